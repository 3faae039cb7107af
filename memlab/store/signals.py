"""What a store may keep beside its memories, and how the two belong together.

``memory_signals`` is made by :class:`memlab.lifecycle.LifecycleStore` alone; others may keep a
table of that name with fewer columns or more.
"""

import sqlite3
from collections.abc import Collection
from typing import Final

SIGNALS: Final = "memory_signals"
"""The side table of a store that keeps signals."""

SIGNAL_COLUMNS: Final = {
    "memory_id": "TEXT PRIMARY KEY",
    "importance": "REAL",
    "last_accessed_at": "TEXT",
    "access_count": "INTEGER",
    "expires_at": "TEXT",
    "agent_id": "TEXT",
    "namespace": "TEXT",
    "thread_id": "TEXT",
    "graduated": "INTEGER",
    "trusted": "INTEGER",
    "position": "INTEGER",
    "scope": "TEXT",
}
"""Columns of memlab's own table. ``position`` is the rowid of the row they belong to: signals of a
row that was deleted and written anew by another store belong to nothing. ``scope`` is what the row
is capped with."""

HAS_SIGNALS: Final = "item.rowid = signal.position AND item.memory_id = signal.memory_id"
"""How a row, ``memory_items AS item``, and its own ``memory_signals AS signal`` find each other."""

_BY_ID: Final = "item.memory_id = signal.memory_id"


def signal_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of a store's side table that hold values; none where there is none."""
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 AND EXISTS "
        "(SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?)",
        (SIGNALS, SIGNALS),
    )
    names = [name for (name,) in found]
    return names if "memory_id" in names else []


def defaulted_signals(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the columns of a store's side table that are not NULL by themselves."""
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 AND dflt_value IS NOT NULL",
        (SIGNALS,),
    )
    return frozenset(name for (name,) in found)


def has_signals(columns: Collection[str]) -> str:
    """Return, as SQL, the one rule by which a row and its signals find each other."""
    return HAS_SIGNALS if "position" in columns else _BY_ID


def is_own(columns: Collection[str]) -> bool:
    """Whether a side table with these columns is memlab's own."""
    return set(SIGNAL_COLUMNS) <= set(columns)


def deletion_of_signals(columns: Collection[str], chosen: str) -> str:
    """Return the statement that deletes the signals of the `chosen` rows, while those are there."""
    return (
        f"DELETE FROM main.{SIGNALS} AS signal WHERE EXISTS (SELECT 1 FROM main.memory_items "
        f"AS item WHERE {has_signals(columns)} AND ({chosen}))"
    )
