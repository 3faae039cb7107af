"""What must hold of a store whatever happens to it: written once, used by every kind of test."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from memlab.items import is_load_bearing_stored

Row = tuple[Any, ...]

_EVERY_COLUMN_AS_STORED = """
    SELECT rowid, memory_id, kind, title, body, tags_json, source_event_id, source_sequence,
           source_task_ref, authored_by, confidence, created_at, supersedes_json,
           evidence_refs_json, superseded_by
    FROM memory_items ORDER BY rowid
"""
_KIND, _TAGS, _SUPERSEDED_BY = 2, 5, 14


def rows_of(store: Path | sqlite3.Connection) -> dict[int, Row]:
    """Every row by position, text as bytes, so that nothing is decoded on the way."""
    if isinstance(store, Path):
        with closing(sqlite3.connect(store)) as connection:
            return rows_of(connection)
    cursor = store.cursor()
    factory, store.text_factory = store.text_factory, bytes
    try:
        return {row[0]: row for row in cursor.execute(_EVERY_COLUMN_AS_STORED)}
    finally:
        store.text_factory = factory


def is_load_bearing_row(row: Row) -> bool:
    """The predicate's verdict on a row; one that cannot be classified counts as load-bearing."""
    try:
        return is_load_bearing_stored(row[_KIND].decode(), row[_TAGS].decode())
    except (ValueError, AttributeError):
        return True


def is_prunable_row(row: Row) -> bool:
    return row[_SUPERSEDED_BY] is None and not is_load_bearing_row(row)


def assert_sound(store: Path) -> None:
    """SQLite finds nothing wrong with the file."""
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def assert_load_bearing_rows_stay(before: dict[int, Row], after: dict[int, Row]) -> None:
    """Every load-bearing row is where it was, byte for byte."""
    for position, row in before.items():
        if is_load_bearing_row(row):
            assert after.get(position) == row


def assert_compacted(before: dict[int, Row], after: dict[int, Row], keep_recent: int) -> None:
    """Exactly the newest `keep_recent` prunable rows are left, and every other row is as it was."""
    prunable = [position for position, row in before.items() if is_prunable_row(row)]
    surplus = set(prunable[: max(0, len(prunable) - keep_recent)])
    assert after == {p: row for p, row in before.items() if p not in surplus}
    assert_load_bearing_rows_stay(before, after)
