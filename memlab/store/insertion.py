"""Putting records back: the rows they were made of, with every byte and type as it was."""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from memlab.errors import ArchiveError
from memlab.store.records import UTF_8, Layout, Record, quoted
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
        for each in signals:
            kept = {name: value for name, value in each.items() if name in layout.signals}
            if kept:
                _insert(connection, layout, SIGNALS, kept)
        count += 1
    return count


def _insert(
    connection: sqlite3.Connection, layout: Layout, table: str, row: dict[str, Any]
) -> None:
    bound = [bound_value(connection, value, layout.encoding) for value in row.values()]
    connection.execute(
        f"INSERT {'OR REPLACE ' if table == SIGNALS else ''}INTO main.{table} "
        f"({', '.join(map(quoted, row))}) VALUES ({', '.join(sql for sql, _ in bound)})",
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
