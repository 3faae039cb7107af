"""Signals: the side table in which a store keeps importance, use and expiry of its memories."""

import sqlite3
from typing import Final

SIGNALS: Final = "memory_signals"
"""Name of the side table."""

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
"""Columns of the side table of memlab.

``position`` is the rowid of the memory: signals of a row that was deleted and written again by
another store belong to no memory. ``scope`` is the group of memories that share a cap."""
CREATE_SIGNALS: Final = (
    f"CREATE TABLE IF NOT EXISTS {SIGNALS} "
    f"({', '.join(f'{name} {kind}' for name, kind in SIGNAL_COLUMNS.items())})"
)

HAS_SIGNALS: Final = "item.rowid = signal.position AND item.memory_id = signal.memory_id"
"""Join condition of ``memory_items AS item`` and ``memory_signals AS signal``."""


def signal_columns(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the columns of a store's side table; an empty tuple if it has none."""
    rows = connection.execute(
        "SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 AND EXISTS "
        "(SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?)",
        (SIGNALS, SIGNALS),
    )
    place_in_key = dict(rows)
    has_all_columns = place_in_key.keys() >= SIGNAL_COLUMNS.keys()
    key = [name for name, place in place_in_key.items() if place]
    # A table of another program may have the same name, and several rows for a memory.
    if not has_all_columns or key != ["memory_id"]:
        return ()
    return tuple(place_in_key)
