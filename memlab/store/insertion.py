"""Putting records back: the rows they were made of, with every byte and type as it was."""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from memlab.errors import ArchiveError
from memlab.store.large import UTF_8
from memlab.store.records import Layout, Record, quoted, records_at
from memlab.store.signals import SIGNALS


def insert_records(
    connection: sqlite3.Connection, layout: Layout, records: Iterable[Record]
) -> int:
    """Put rows and what belongs to them into a store; return how many rows.

    Signals are put back where the store has a side table.

    Raises
    ------
    ArchiveError
        When the table lacks a column of a record, or its encoding a text.
    """
    count = 0
    for position, record in records:
        row = json.loads(record)
        signals = row.pop(SIGNALS, ())
        if missing := row.keys() - set(layout.columns):
            raise ArchiveError(
                f"memory_items has no column {', '.join(sorted(missing))} any more; nothing was "
                "restored: restore into a new file"
            )
        _insert(connection, layout, "memory_items", {"rowid": position} | row)
        kept = [_known(each, layout) for each in signals]
        if any(kept):
            _insert_signals(connection, layout, position, [each for each in kept if each])
        count += 1
    return count


def _known(signals: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return what a store's side table has columns for."""
    return {name: value for name, value in signals.items() if name in layout.signals}


def _insert_signals(
    connection: sqlite3.Connection, layout: Layout, position: int, signals: list[dict[str, Any]]
) -> None:
    """Put back what was said of a row, unless whoever deleted the row left that alone.

    Signals of other rows of the same id, which are not there any more, make way.

    Raises
    ------
    ArchiveError
        When the side table says something else of the row, or of another row in its place.
    """
    ((_, record),) = records_at(connection, layout, [position])
    there = json.loads(record).get(SIGNALS, [])
    if there == signals:
        return
    if there:
        raise _taken(position)
    if "position" in layout.signals:
        connection.execute(
            f"DELETE FROM main.{SIGNALS} WHERE memory_id COLLATE BINARY = (SELECT memory_id FROM "
            "main.memory_items WHERE rowid = ?)",
            (position,),
        )
    try:
        for each in signals:
            _insert(connection, layout, SIGNALS, each)
    except sqlite3.IntegrityError as error:
        raise _taken(position) from error


def _taken(position: int) -> ArchiveError:
    return ArchiveError(
        f"the table {SIGNALS} says something else in place of what it said of position {position}; "
        "nothing was restored: restore the others by id, or into a new file"
    )


def _insert(
    connection: sqlite3.Connection, layout: Layout, table: str, row: dict[str, Any]
) -> None:
    bound = [bound_value(connection, value, layout.encoding) for value in row.values()]
    connection.execute(
        f"INSERT INTO main.{table} ({', '.join(map(quoted, row))}) "
        f"VALUES ({', '.join(sql for sql, _ in bound)})",
        [value for _, value in bound],
    )


def bound_value(connection: sqlite3.Connection, value: Any, encoding: str) -> tuple[str, Any]:
    """Return the SQL expression that binds a JSON value with its type, and what it binds."""
    match value:
        case {"text": digits}:
            if value.get("encoding", UTF_8) != encoding:
                raise ArchiveError(
                    f"a text that is no {value.get('encoding', UTF_8)} cannot go into a store in "
                    f"{encoding}; nothing was restored: restore into a new file"
                )
            if encoding == UTF_8:
                return "CAST(? AS TEXT)", bytes.fromhex(digits)
            return _raw_text(connection, bytes.fromhex(digits))
        case {"blob": digits}:
            return "?", bytes.fromhex(digits)
        case {"real": word}:
            return "?", float(word)
    return "?", value


def _raw_text(connection: sqlite3.Connection, raw: bytes) -> tuple[str, int]:
    """Return an expression for text of these bytes.

    A blob that is bound would be taken for UTF-8, one that is stored for what the file's texts are.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS raw_texts (bytes BLOB)")
    place = connection.execute("INSERT INTO temp.raw_texts VALUES (?)", (raw,)).lastrowid or 0
    return "(SELECT CAST(bytes AS TEXT) FROM temp.raw_texts WHERE rowid = ?)", place
