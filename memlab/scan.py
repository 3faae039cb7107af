"""Read every row of a store as Arrow columns, without a Python object per value.

SQLite joins a column's texts of some thousand rows with a separator; Arrow splits them again. Rows
that such a round trip could garble (values of another type than text, the separator inside a text)
are read one by one instead. The connections are the standard library's: closing the file through
another copy of SQLite would drop the locks of a store that this process has open.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from queue import SimpleQueue
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memlab.database import connect_reading

Texts = tuple[str, ...]
Range = tuple[int, int]
Fault = tuple[int, str, str]
"""The rowid, the column and what is wrong with its value."""

BODY: Final = "body"
NULLABLE: Final = ("source_task_ref", "superseded_by")
REPEATING: Final = ("kind", "tags_json", "supersedes_json", "evidence_refs_json")
"""Columns in which few texts come often: Arrow keeps each text once."""
TEXTS: Final[Texts] = ("memory_id", "title", "authored_by", "created_at", *REPEATING, *NULLABLE)

TEXT: Final = pa.large_string()
CODED: Final = pa.dictionary(pa.int32(), TEXT)
ROWS_AT_ONCE: Final = 8192
BODIES_AT_ONCE: Final = 1024

_MOST_CONNECTIONS: Final = 4
_WORTH_THREADS: Final = 8  # times ROWS_AT_ONCE
_MOST_GAPS: Final = 4

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
_BODY_FACTS: Final = {
    "lengths": "group_concat(length(body))",
    "characters": "sum(length(body))",
    "bytes": "sum(length(CAST(body AS BLOB)))",
}
_FACTS: Final = {
    "rows": "count(*)",
    "sound": "",
    "position": "group_concat(rowid)",
    "lowest confidence": "min(confidence)",
    "highest confidence": "max(confidence)",
    "confidences": "count(confidence)",
    **{f"{name} present": f"count({name})" for name in NULLABLE},
    **_BODY_FACTS,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a store, in rowid order.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns of :func:`schema_of`. What cannot be read is null, and has no characters.
    faults : list of (position, column, text)
        What cannot be read, and why.
    """

    table: Any
    faults: list[Fault] = field(default_factory=list)


@cache
def schema_of(texts: Texts) -> Any:
    """Return the Arrow schema of rows with these text columns.

    They go by their names in the table, and so does ``confidence``. Beside them are ``position``,
    ``active``, and ``chars`` of title and body together.
    """
    columns = [(name, CODED if name in REPEATING else TEXT) for name in texts]
    others = [("confidence", pa.float64()), ("active", pa.bool_()), ("chars", pa.int64())]
    return pa.schema([("position", pa.int64()), *columns, *others])


@contextmanager
def snapshot(uri: str) -> Iterator[Sequence[sqlite3.Connection]]:
    """Open a store once per core, every connection in a transaction that sees the same rows."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(connect_reading(uri)))
            for _ in range(min(os.cpu_count() or 1, _MOST_CONNECTIONS))
        ]
        versions = [_version(connection) for connection in connections]
        for connection in connections:
            connection.execute("BEGIN")
        # As long as no version has changed between the first and the second look at it, there was
        # a moment between all first and all second looks, and every connection sees that moment.
        same = versions == [_version(connection) for connection in connections]
        yield connections if same else connections[:1]


def _version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when somebody else commits; begins to read if in a BEGIN."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def scan_rows(connections: Sequence[sqlite3.Connection], texts: Texts) -> Iterator[Rows]:
    """Yield all rows of ``memory_items``, some thousand at a time, in rowid order.

    Parameters
    ----------
    connections : sequence of sqlite3.Connection
        One or more that see the same rows; each reads in a thread of its own.
    texts : tuple of str
        :data:`TEXTS`, with :data:`BODY` where bodies are wanted too. Bodies that are not read are
        not checked to be UTF-8.
    """
    ranges = list(_ranges(connections[0], BODIES_AT_ONCE if BODY in texts else ROWS_AT_ONCE))
    if len(ranges) < _WORTH_THREADS or len(connections) == 1:
        yield from (_read(connections[0], rowids, texts) for rowids in ranges)
    else:
        yield from _scan_in_threads(connections, ranges, texts)


def _ranges(connection: sqlite3.Connection, size: int) -> Iterator[Range]:
    """Yield the first and the last rowid of every `size` rows or fewer, but for gaps."""
    lowest, highest, count = connection.execute(
        "SELECT (SELECT min(rowid) FROM memory_items), (SELECT max(rowid) FROM memory_items), "
        "(SELECT count(*) FROM memory_items)"
    ).fetchone()
    if count and highest - lowest < _MOST_GAPS * count:
        for first in range(lowest, highest + 1, size):
            yield first, min(first + size - 1, highest)
        return
    while lowest is not None:
        following = connection.execute(
            "SELECT rowid FROM memory_items WHERE rowid >= ? ORDER BY rowid LIMIT 1 OFFSET ?",
            (lowest, size),
        ).fetchone()
        yield lowest, highest if following is None else following[0] - 1
        lowest = None if following is None else following[0]


def _scan_in_threads(
    connections: Sequence[sqlite3.Connection], ranges: Iterable[Range], texts: Texts
) -> Iterator[Rows]:
    idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
    for connection in connections:
        idle.put(connection)

    def read(rowids: Range) -> Rows:
        connection = idle.get()
        try:
            return _read(connection, rowids, texts)
        finally:
            idle.put(connection)

    with ThreadPoolExecutor(len(connections)) as pool:
        running: deque[Future[Rows]] = deque()
        for rowids in ranges:
            running.append(pool.submit(read, rowids))
            if len(running) > 2 * len(connections):  # what is read must not pile up
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _read(connection: sqlite3.Connection, rowids: Range, texts: Texts) -> Rows:
    return _joined(connection, rowids, texts) or _one_by_one(connection, rowids, texts)


def _joined(connection: sqlite3.Connection, rowids: Range, texts: Texts) -> Rows | None:
    """Read each column's texts as one; None where that could garble a value."""
    connection.text_factory = bytes
    try:
        found = connection.execute(_select_joined(texts), rowids).fetchone()
    except sqlite3.DataError:  # together longer than SQLite allows one value to be
        return None
    values = dict(zip((*_FACTS, *texts), found, strict=True))
    count = values["rows"]
    if not count:
        return Rows(schema_of(texts).empty_table())
    if values["sound"] != count or _has_nul(connection, rowids, values):
        return None
    columns: dict[str, Any] = {"position": _integers(values["position"])}
    columns["confidence"] = _confidences(connection, rowids, columns["position"], values)
    for name in texts:
        columns[name] = _split(values[name], count, values.get(f"{name} present", count))
    if any(column is None for column in columns.values()):
        return None
    columns["active"] = columns["superseded_by"].is_null()
    body = pc.utf8_length(columns[BODY]) if BODY in texts else _integers(values["lengths"])
    columns["chars"] = pc.add(pc.utf8_length(columns["title"]), body)
    columns |= {name: columns[name].dictionary_encode() for name in REPEATING}
    table = pa.table(columns, schema_of(texts))
    in_order = (np.diff(columns["position"]) > 0).all()
    return Rows(table if in_order else table.sort_by("position"))


@cache
def _select_joined(texts: Texts) -> str:
    required = [name for name in (*TEXTS, BODY) if name not in NULLABLE]
    checks = [f"{name} < x''" for name in required]  # blobs sort after every text
    checks += [f"({name} < x'') IS NOT 0" for name in NULLABLE]
    facts = {name: "NULL" if BODY in texts else sql for name, sql in _BODY_FACTS.items()}
    sound = f"count(CASE WHEN {' AND '.join(checks)} THEN 1 END)"
    values = {name: f"coalesce({name}, '{_NULL}')" for name in NULLABLE}
    joined = [f"group_concat({values.get(name, name)}, '{_SEPARATOR}')" for name in texts]
    wanted = {**_FACTS, **facts, "sound": sound}
    return f"SELECT {', '.join([*wanted.values(), *joined])} {_BETWEEN}"


def _has_nul(connection: sqlite3.Connection, rowids: Range, values: dict[str, Any]) -> bool:
    """Whether the length of a body is not its number of characters: length() stops at a NUL."""
    if values["characters"] == values["bytes"]:
        return False
    found = connection.execute(
        f"SELECT 1 {_BETWEEN} AND length(body) <> length(CAST(body AS BLOB)) "
        "AND instr(body, char(0)) LIMIT 1",
        rowids,
    )
    return found.fetchone() is not None


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
    connection: sqlite3.Connection, rowids: Range, position: Any, values: dict[str, Any]
) -> Any | None:
    """Return the confidences, exactly as stored; None where one is not a number."""
    low, high = values["lowest confidence"], values["highest confidence"]
    if (type(low), type(high), values["confidences"]) != (float, float, len(position)):
        return None
    if low == high:
        return pa.array(np.full(len(position), low))
    found = connection.execute(f"SELECT rowid, confidence {_BETWEEN}", rowids).fetchall()
    at, confidences = zip(*found, strict=True)
    return pa.array(confidences) if pa.array(at).equals(position) else None


def _one_by_one(connection: sqlite3.Connection, rowids: Range, texts: Texts) -> Rows:
    """Read rows whatever their values are."""
    connection.text_factory = bytearray  # a blob comes as bytes, so the two differ
    names = ("rowid", "superseded_by IS NULL", "confidence", *TEXTS, BODY)
    rows, faults = [], []
    for stored in connection.execute(
        f"SELECT {', '.join(names)} {_BETWEEN} ORDER BY rowid", rowids
    ):
        row, wrong = _row(stored, texts)
        rows.append(row)
        faults += wrong
    return Rows(pa.Table.from_pylist(rows, schema_of(texts)), faults)


def _row(stored: Sequence[Any], texts: Texts) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row with None for what cannot be read, and why it cannot."""
    position, active, confidence, *values = stored
    row: dict[str, Any] = {"position": position, "active": bool(active), "confidence": None}
    wrong: dict[str, str] = {}
    for name, value in zip((*TEXTS, BODY), values, strict=True):
        row[name] = None
        if isinstance(value, bytearray):
            try:
                row[name] = value.decode(errors="strict" if name in texts else "replace")
            except UnicodeDecodeError:
                wrong[name] = "is not UTF-8"
        elif value is not None or name not in NULLABLE:
            wrong[name] = f"is {_TYPES[type(value)]}, not text"
    if isinstance(confidence, float):
        row["confidence"] = confidence
    else:
        wrong["confidence"] = f"is {_TYPES[type(confidence)]}, not a number"
    row["chars"] = len(row["title"] or "") + len(row[BODY] or "")
    return row, [(position, name, f"{name} {text}") for name, text in wrong.items()]
