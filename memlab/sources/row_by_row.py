"""Rows of ``memory_items`` read one by one, whatever their values are."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from memlab.sources.base import Fault, Rows
from memlab.sources.tables import SCHEMA, TEXTS
from memlab.store.database import exact
from memlab.store.large import pieces_of_text

Range = tuple[int, int]
"""The first and the last rowid of some rows."""

NULLABLE: Final = ("source_task_ref", "superseded_by")
BETWEEN: Final = "FROM memory_items WHERE rowid BETWEEN ? AND ?"

_TYPES: Final = {
    type(None): "NULL",
    int: "a number",
    float: "a number",
    bytearray: "text",
    bytes: "a blob",
}
_STANDS_FOR: Final = {
    "null": None,
    "integer": 0,
    "real": 0.0,
    "text": bytearray(),
    "blob": b"",
}
"""A value of each type in SQLite, in place of one that is not read."""


def one_by_one(connection: sqlite3.Connection, rowids: Range) -> Rows:
    """Read rows whatever their values are."""
    connection.text_factory = bytearray  # a blob comes as bytes, so the two differ
    names = ("rowid", "superseded_by IS NULL", "confidence", *TEXTS)
    rows, faults = [], []
    for stored in connection.execute(f"SELECT {', '.join(names)} {BETWEEN} ORDER BY rowid", rowids):
        row, wrong = read_row(stored)
        rows.append(row)
        faults += wrong
    return Rows(pa.Table.from_pylist(rows, SCHEMA), faults)


def without_reading_body(connection: sqlite3.Connection, rowid: Range) -> Rows:
    """Read one row whose body may be large; its characters are counted in pieces."""
    others = ("rowid", "superseded_by IS NULL", "confidence", *(n for n in TEXTS if n != "body"))
    with exact(connection):
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        found = connection.execute(
            f"SELECT typeof(body), {', '.join(others)} {BETWEEN}", rowid
        ).fetchone()
    if found is None:
        return Rows(SCHEMA.empty_table())
    kind, *stored = found
    chars, body = 0, _STANDS_FOR[kind.decode()]
    if kind == b"text":
        try:
            pieces = pieces_of_text(connection, "body", rowid[0], encoding.decode())
            chars = sum(map(len, pieces))
        except UnicodeDecodeError:
            return one_by_one(connection, rowid)
    stored.insert(others.index(TEXTS[TEXTS.index("body") + 1]), body)
    row, wrong = read_row(stored)
    row["chars"] += chars
    return Rows(pa.Table.from_pylist([row], SCHEMA), wrong)


def read_row(stored: Sequence[Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row with None for what cannot be read, and why it cannot.

    Parameters
    ----------
    stored : sequence
        Position, whether it is active, confidence, and the values of :data:`TEXTS`, as
        :func:`memlab.store.database.exact` reads them.
    """
    position, active, confidence, *values = stored
    row: dict[str, Any] = {"position": position, "active": bool(active), "confidence": None}
    wrong: dict[str, str] = {}
    for name, value in zip(TEXTS, values, strict=True):
        row[name] = None
        if isinstance(value, bytearray):
            try:
                row[name] = value.decode()
            except UnicodeDecodeError:
                wrong[name] = "is not UTF-8"
        elif value is not None or name not in NULLABLE:
            wrong[name] = f"is {_TYPES[type(value)]}, not text"
    if isinstance(confidence, float):
        row["confidence"] = confidence
    else:
        wrong["confidence"] = f"is {_TYPES[type(confidence)]}, not a number"
    row["chars"] = len(row["title"] or "") + len(row["body"] or "")
    return row, [(position, name, f"{name} {text}") for name, text in wrong.items()]
