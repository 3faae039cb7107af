"""What a store may keep beside its memories, and how the two belong together."""

import sqlite3
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
CREATE_SIGNALS: Final = (
    f"CREATE TABLE IF NOT EXISTS {SIGNALS} "
    f"({', '.join(f'{name} {kind}' for name, kind in SIGNAL_COLUMNS.items())})"
)

HAS_SIGNALS: Final = "item.rowid = signal.position AND item.memory_id = signal.memory_id"
"""How a row, ``memory_items AS item``, and its own ``memory_signals AS signal`` find each other."""


def signal_columns(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the columns of a store's side table that hold values; none where it keeps none."""
    found = connection.execute(
        "SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 AND EXISTS "
        "(SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?)",
        (SIGNALS, SIGNALS),
    )
    names = dict(found)
    is_own = names.keys() >= SIGNAL_COLUMNS.keys() and names["memory_id"]
    return tuple(names) if is_own else ()
