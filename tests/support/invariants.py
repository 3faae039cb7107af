"""Invariants of a store that hold whatever happens to it, for every kind of test."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from memlab.errors import MemlabError
from memlab.items import is_load_bearing_stored

Row = tuple[Any, ...]

_COLUMNS = (
    "memory_id, kind, title, body, tags_json, source_event_id, source_sequence, source_task_ref, "
    "authored_by, confidence, created_at, supersedes_json, evidence_refs_json, superseded_by"
)
_TYPES = " || ' ' || ".join(f"typeof({name})" for name in _COLUMNS.split(", "))
_EVERY_COLUMN_AS_STORED = f"SELECT rowid, {_COLUMNS}, {_TYPES} FROM memory_items ORDER BY rowid"
_KIND = 2
_TAGS = 5
_SUPERSEDED_BY = 14


def rows_of(store: Path | sqlite3.Connection) -> dict[int, Row]:
    """Return every row by position: undecoded values and SQLite types."""
    if isinstance(store, Path):
        with closing(sqlite3.connect(store)) as connection:
            return rows_of(connection)
    factory = store.text_factory
    store.text_factory = bytes
    try:
        return {row[0]: row for row in store.execute(_EVERY_COLUMN_AS_STORED)}
    finally:
        store.text_factory = factory


def salvaged_rows_of(store: Path) -> dict[int, Row]:
    """Return every row of a damaged store that can still be read.

    Work on a copy: reading may recover the file.
    """
    rows: dict[int, Row] = {}
    with closing(sqlite3.connect(store)) as connection, suppress(sqlite3.Error, UnicodeDecodeError):
        type_query = "SELECT type FROM sqlite_schema WHERE lower(name) = 'memory_items'"
        if connection.execute(type_query).fetchall() != [("table",)]:
            return {}
        connection.text_factory = bytes
        positions = connection.execute("SELECT rowid FROM memory_items NOT INDEXED").fetchall()
        query = f"SELECT rowid, {_COLUMNS}, {_TYPES} FROM memory_items NOT INDEXED WHERE rowid = ?"
        for position in positions:
            with suppress(sqlite3.Error):
                rows |= {row[0]: row for row in connection.execute(query, position)}
    return rows


def archive_of(store: Path) -> Path:
    return store.with_name(f"{store.name}.archive.db")


def records_in_archive_of(store: Path) -> list[tuple[Any, dict[str, Any]]]:
    """Return every key with its record as JSON, read without the package."""
    archive = archive_of(store)
    if not archive.exists():
        return []
    with closing(sqlite3.connect(archive)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return []
        if connection.execute("PRAGMA user_version").fetchall() == [(2,)]:
            query = "SELECT key, record FROM archived ORDER BY apply, key"
            return [(key, json.loads(record)) for key, record in connection.execute(query)]
        query = (
            "SELECT key, fields, paths FROM archived JOIN layouts USING (layout) "
            "ORDER BY apply, key"
        )
        return [
            (key, record_with_names(fields, paths))
            for key, fields, paths in connection.execute(query)
        ]


def record_with_names(fields: str, paths: str) -> dict[str, Any]:
    """Return a record with its column names, from a list of values if it is stored so."""
    values: Any = json.loads(fields)
    if isinstance(values, dict):
        return values
    return dict(zip(json.loads(paths), values, strict=True))


def copies_of(store: Path) -> dict[int, list[Row]]:
    """Return the archived rows of each position, in the form of :func:`rows_of`."""
    copies: dict[int, list[Row]] = {}
    for position, record in records_in_archive_of(store):
        cells = [stored(record.get(name)) for name in _COLUMNS.split(", ")]
        values = [cell.value for cell in cells]
        types = " ".join(cell.type for cell in cells)
        row = (position, *values, types.encode())
        copies.setdefault(position, []).append(row)
    return copies


class Cell(NamedTuple):
    """A value as SQLite stores it, and the name of its type."""

    value: Any
    type: str


_SQLITE_TYPES = {int: "integer", float: "real", type(None): "null"}


def stored(value: Any) -> Cell:
    """Return a value of a record as it is stored."""
    match value:
        case {"text": digits}:
            return Cell(bytes.fromhex(digits), "text")
        case {"blob": digits}:
            return Cell(bytes.fromhex(digits), "blob")
        case {"real": word}:
            return Cell(float(word), "real")
        case str():
            return Cell(value.encode(), "text")
    return Cell(value, _SQLITE_TYPES[type(value)])


def is_load_bearing_row(row: Row) -> bool:
    """True if a row is load-bearing; unclassifiable rows count as load-bearing."""
    try:
        return is_load_bearing_stored(row[_KIND].decode(), row[_TAGS].decode())
    except (ValueError, AttributeError):
        return True


def is_prunable_row(row: Row) -> bool:
    return row[_SUPERSEDED_BY] is None and not is_load_bearing_row(row)


def result_of(operation: Callable[[], Any]) -> Any:
    """Return the result of a call, or None if it raises a memlab error."""
    try:
        return operation()
    except MemlabError:
        return None


def assert_sound(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def assert_nothing_lost(before: dict[int, Row], store: Path) -> None:
    """Assert that store and archive are intact and hold each row of `before` byte for byte.

    Load-bearing rows are in the store itself. This holds whenever an operation is stopped.
    """
    assert_sound(store)
    if archive_of(store).exists():
        assert_sound(archive_of(store))
    after = rows_of(store)
    copies = copies_of(store)
    assert_load_bearing_rows_stay(before, after)
    for position, row in before.items():
        if after.get(position) != row:
            assert row in copies.get(position, [])


def assert_load_bearing_rows_stay(before: dict[int, Row], after: dict[int, Row]) -> None:
    for position, row in before.items():
        if is_load_bearing_row(row):
            assert after.get(position) == row


def assert_compacted(before: dict[int, Row], after: dict[int, Row], keep_recent: int) -> None:
    """Assert that exactly the newest `keep_recent` prunable rows and all other rows are left."""
    prunable = [position for position, row in before.items() if is_prunable_row(row)]
    surplus = set(prunable[: max(0, len(prunable) - keep_recent)])
    assert after == {position: row for position, row in before.items() if position not in surplus}
    assert_load_bearing_rows_stay(before, after)
