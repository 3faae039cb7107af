"""Read every row of a store as Arrow columns, without a Python object per value.

SQLite joins a column's texts of some thousand rows with a separator; Arrow splits them again. Rows
that such a round trip could garble (values of another type than text, the separator inside a text)
are read one by one instead. The connections are the standard library's: closing the file through
another copy of SQLite would drop the locks of a store that this process has open.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Fault = tuple[int, str, str]
"""The rowid, the column and what is wrong with its value."""

TEXT: Final = pa.large_string()
BODY: Final = "body"
REQUIRED: Final = (
    "memory_id",
    "kind",
    "title",
    "tags_json",
    "authored_by",
    "created_at",
    "supersedes_json",
    "evidence_refs_json",
)
NULLABLE: Final = ("source_task_ref", "superseded_by")
ROWS_AT_ONCE: Final = 8192
BODIES_AT_ONCE: Final = 1024

_TYPES: Final = {
    type(None): "NULL",
    int: "a number",
    float: "a number",
    bytearray: "text",
    bytes: "a blob",
}
_SEPARATOR: Final = "\x1f"
_NULL: Final = "\x1e"
_BETWEEN: Final = "FROM memory_items WHERE rowid BETWEEN ? AND ?"
# length() stops at the first NUL. Where there are as many bytes as characters, there is none.
_BODY_HAS_NUL: Final = "(length(body) <> length(CAST(body AS BLOB)) AND instr(body, char(0)) > 0)"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a store, in rowid order.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns of :func:`schema`. What cannot be read is null, and has no characters.
    problems : list of (position, column, text)
        What cannot be read, and why.
    """

    table: Any
    problems: list[Fault] = field(default_factory=list)


def schema(*, with_body: bool) -> Any:
    """Return the Arrow schema of what is read.

    ``position``, the text columns by their names in the table, ``confidence``, ``active``, ``chars``
    of title and body together, and ``body`` where it is asked for.
    """
    texts = [(name, TEXT) for name in _texts(with_body)]
    others = [("confidence", pa.float64()), ("active", pa.bool_()), ("chars", pa.int64())]
    return pa.schema([("position", pa.int64()), *texts, *others])


def row_ranges(connection: sqlite3.Connection, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last rowid of every `size` rows."""
    lowest, highest = connection.execute(
        "SELECT (SELECT min(rowid) FROM memory_items), (SELECT max(rowid) FROM memory_items)"
    ).fetchone()
    while lowest is not None:
        following = connection.execute(
            "SELECT rowid FROM memory_items WHERE rowid >= ? ORDER BY rowid LIMIT 1 OFFSET ?",
            (lowest, size),
        ).fetchone()
        yield lowest, highest if following is None else following[0] - 1
        lowest = None if following is None else following[0]


def read_rows(connection: sqlite3.Connection, rowids: tuple[int, int], *, with_body: bool) -> Rows:
    """Read rows of ``memory_items``.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction, so that all rows are of one moment.
    rowids : (int, int)
        The first and the last; there is at least one row between.
    with_body : bool
        Whether to read the bodies, or only how long they are. Bodies that are not read are not
        checked to be UTF-8.
    """
    columns = _joined(connection, rowids, with_body)
    if columns is None:
        return _one_by_one(connection, rowids, with_body)
    return Rows(_in_order(pa.table(columns, schema(with_body=with_body))))


def _joined(
    connection: sqlite3.Connection, rowids: tuple[int, int], with_body: bool
) -> dict[str, Any] | None:
    """Read each column's texts as one; None where that could garble a value."""
    connection.text_factory = bytes
    try:
        found = connection.execute(_select_joined(with_body), rowids).fetchone()
    except sqlite3.DataError:  # together longer than SQLite allows one value to be
        return None
    count, sound, positions, lengths, *rest = found
    if sound != count:
        return None
    names = _texts(with_body)
    joined, present = rest[: len(names)], rest[len(names) :]
    columns: dict[str, Any] = {"position": _integers(positions)}
    for name, texts, there in zip(names, joined, present, strict=True):
        columns[name] = _split(texts, count, there)
    columns["confidence"] = _confidences(connection, rowids, columns["position"])
    if any(values is None for values in columns.values()):
        return None
    columns["active"] = columns["superseded_by"].is_null()
    body = pc.utf8_length(columns[BODY]) if with_body else _integers(lengths)
    columns["chars"] = pc.add(pc.utf8_length(columns["title"]), body)
    return columns


def _texts(with_body: bool) -> tuple[str, ...]:
    return (*REQUIRED, *NULLABLE, BODY) if with_body else (*REQUIRED, *NULLABLE)


@cache
def _select_joined(with_body: bool) -> str:
    names = _texts(with_body)
    checks = [  # blobs sort after every text
        f"({name} < x'') IS NOT 0" if name in NULLABLE else f"{name} < x''" for name in names
    ]
    checks += [] if with_body else [f"body < x'' AND NOT {_BODY_HAS_NUL}"]
    wanted = (
        "count(*)",
        f"sum({' AND '.join(checks)})",
        "group_concat(rowid)",
        "NULL" if with_body else "group_concat(length(body))",
        *(f"group_concat(coalesce({name}, '{_NULL}'), '{_SEPARATOR}')" for name in names),
        *(f"count({name})" for name in names),
    )
    return f"SELECT {', '.join(wanted)} {_BETWEEN}"


def _integers(joined: bytes) -> Any:
    return pa.array(np.fromstring(joined, dtype=np.int64, sep=","))


def _split(joined: bytes, count: int, present: int) -> Any | None:
    """Return `count` texts, all but `present` of them null; None if they cannot be told apart."""
    parts = pc.split_pattern(pa.array([joined], pa.large_binary()), _SEPARATOR).values
    if len(parts) != count:
        return None
    try:
        texts = pc.cast(parts, TEXT)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    if present == count:
        return texts
    nulls = pc.equal(texts, pa.scalar(_NULL, TEXT))
    if pc.sum(nulls).as_py() != count - present:
        return None
    return pc.if_else(nulls, pa.scalar(None, TEXT), texts)


def _confidences(
    connection: sqlite3.Connection, rowids: tuple[int, int], position: Any
) -> Any | None:
    """Return the confidences, exactly as stored; None where one is not a number."""
    low, high, present = connection.execute(
        f"SELECT min(confidence), max(confidence), count(confidence) {_BETWEEN}", rowids
    ).fetchone()
    if type(low) is not float or type(high) is not float or present != len(position):
        return None
    if low == high:
        return pa.array(np.full(present, low))
    found = connection.execute(f"SELECT rowid, confidence {_BETWEEN}", rowids).fetchall()
    at, values = zip(*found, strict=True)
    return pa.array(values) if pa.array(at).equals(position) else None


def _in_order(table: Any) -> Any:
    position = table["position"].to_numpy()
    return table if (np.diff(position) > 0).all() else table.take(pa.array(np.argsort(position)))


def _one_by_one(connection: sqlite3.Connection, rowids: tuple[int, int], with_body: bool) -> Rows:
    """Read rows whatever their values are."""
    connection.text_factory = bytearray  # a blob comes as bytes, so the two differ
    names = ("position", "confidence", "active", *_texts(with_body=True))
    found = connection.execute(
        "SELECT rowid, confidence, superseded_by IS NULL, "
        f"{', '.join(_texts(with_body=True))} {_BETWEEN} ORDER BY rowid",
        rowids,
    )
    rows, problems = [], []
    for values in found:
        row, troubles = _row(dict(zip(names, values, strict=True)), with_body)
        rows.append(row)
        problems += troubles
    return Rows(pa.Table.from_pylist(rows, schema(with_body=with_body)), problems)


def _row(stored: dict[str, Any], with_body: bool) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row with None for what cannot be read, and why it cannot."""
    row: dict[str, Any] = {"position": stored["position"], "active": bool(stored["active"])}
    problems = []
    for name in _texts(with_body=True):
        errors = "strict" if with_body or name != BODY else "replace"
        row[name], trouble = _text(stored[name], errors)
        if trouble and not (stored[name] is None and name in NULLABLE):
            problems.append((row["position"], name, f"{name} {trouble}"))
    row["confidence"] = stored["confidence"] if isinstance(stored["confidence"], float) else None
    if row["confidence"] is None:
        what = _TYPES[type(stored["confidence"])]
        problems.append((row["position"], "confidence", f"confidence is {what}, not a number"))
    row["chars"] = len(row["title"] or "") + len(row[BODY] or "")
    return row, problems


def _text(value: Any, errors: str) -> tuple[str | None, str | None]:
    """Return the text, or why there is none."""
    if not isinstance(value, bytearray):
        return None, f"is {_TYPES[type(value)]}, not text"
    try:
        return value.decode(errors=errors), None
    except UnicodeDecodeError:
        return None, "is not UTF-8"
