"""Read every row of a store as Arrow columns, without a Python object per value.

SQLite joins a column's texts of some thousand rows with a separator; Arrow splits them again. Rows
that such a round trip could garble (values of another type than text, the separator inside a text)
are read one by one instead. Of a row too large to be joined the body is not read whole where it is
not wanted: its characters are counted in pieces. The connections are the standard library's:
closing the file through another copy of SQLite would drop the locks of a store that this process
has open.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memlab.sources.base import Rows
from memlab.sources.tables import REPEATING, SCHEMA, TEXT, TEXTS, as_numbers, of_numbers, of_text
from memlab.store.database import connect_reading, values_up_to
from memlab.systems.memory_items.rows import (
    BETWEEN,
    NULLABLE,
    Range,
    one_by_one,
    without_reading_body,
)

_ROWS_AT_ONCE: Final = 2**14
_BYTES_AT_ONCE: Final = 2**22
_WORTH_THREADS: Final = 16
"""So many times are rows read at once before more than one thread does it."""
_MOST_CONNECTIONS: Final = 4
_LARGE: Final = 2**24
"""Bytes of a file below which one connection reads it."""
_MOST_JOINED: Final = 2**23
"""Bytes that the texts of one column may have together to be joined."""
_MOST_GAPS: Final = 4
"""So many times more rowids than rows are walked through in even steps."""

SEPARATOR: Final = "\x1f"
"""Stands between a column's texts where these are one text."""
NULL: Final = "\x1e"
"""Stands for a NULL among them."""
_DECIMALS: Final = 10_000.0
_SOUND: Final = " AND ".join(  # blobs sort after every text
    f"({name} < x'') IS NOT 0" if name in NULLABLE else f"{name} < x''" for name in TEXTS
)
_IN_DECIMALS: Final = f"CAST(confidence * {_DECIMALS} + 0.5 AS INTEGER)"
_JOINED: Final = ", ".join(
    f"group_concat(coalesce({name}, '{NULL}'), '{SEPARATOR}')"
    if name in NULLABLE
    else f"group_concat({name}, '{SEPARATOR}')"
    for name in TEXTS
)


SELECT_JOINED: Final = f"""
SELECT
    count(*),
    count(CASE WHEN {_SOUND} THEN 1 END),
    count(CASE WHEN {_IN_DECIMALS} / {_DECIMALS} = confidence THEN 1 END),
    group_concat(rowid),
    group_concat({_IN_DECIMALS}),
    {", ".join(f"count({name})" for name in NULLABLE)},
    {_JOINED}
{BETWEEN}
"""
"""Joins the rows between two rowids."""


@contextmanager
def snapshot(uri: str, *, size: int) -> Iterator[Sequence[sqlite3.Connection]]:
    """Open a store, and where it is large once more per core; all connections see the same rows."""
    count = 1 + (min(os.cpu_count() or 1, _MOST_CONNECTIONS) if size >= _LARGE else 0)
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect_reading(uri))) for _ in range(count)]
        versions = [_version(connection) for connection in connections[1:]]
        for connection in connections:
            connection.execute("BEGIN")
        _, *others = [_version(connection) for connection in connections]
        # As long as no version has changed between the first and the second look at it, there was
        # a moment between all first and all second looks, and every connection sees that moment.
        yield connections if versions == others else connections[:1]


def _version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when somebody else commits; begins to read if in a BEGIN."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def scan_rows(
    connections: Sequence[sqlite3.Connection], *, with_body: bool = True
) -> Iterator[Rows]:
    """Yield all rows of ``memory_items``, some at a time, in rowid order."""
    ranges = list(_ranges(connections[0]))
    readers = [_Reader(connection, with_body) for connection in connections]
    if len(ranges) < _WORTH_THREADS or len(readers) == 1:
        yield from (readers[0].read(rowids) for rowids in ranges)
    else:
        yield from _scan_in_threads(readers, ranges)


def _ranges(connection: sqlite3.Connection) -> Iterator[Range]:
    """Yield the first and the last rowid of every few rows."""
    count, lowest, highest, pages = connection.execute(
        "SELECT (SELECT count(*) FROM memory_items), (SELECT min(rowid) FROM memory_items), "
        "(SELECT max(rowid) FROM memory_items), page_count * page_size "
        "FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    if not count:
        return
    size = min(max(_BYTES_AT_ONCE * count // pages, 1), _ROWS_AT_ONCE)
    if highest - lowest < _MOST_GAPS * count:
        starts = range(lowest, highest + 1, size)
        yield from ((start, min(start + size - 1, highest)) for start in starts)
        return
    following = (lowest,)
    while following:
        (start,) = following
        following = connection.execute(
            "SELECT rowid FROM memory_items WHERE rowid >= ? ORDER BY rowid LIMIT 1 OFFSET ?",
            (start, size),
        ).fetchone()
        yield start, following[0] - 1 if following else highest


def _scan_in_threads(readers: Sequence["_Reader"], ranges: Iterable[Range]) -> Iterator[Rows]:
    idle: SimpleQueue[_Reader] = SimpleQueue()
    for each in readers:
        idle.put(each)

    def read(rowids: Range) -> Rows:
        reader = idle.get()
        try:
            return reader.read(rowids)
        finally:
            idle.put(reader)

    with ThreadPoolExecutor(len(readers)) as pool:
        running: deque[Future[Rows]] = deque()
        for rowids in ranges:
            running.append(pool.submit(read, rowids))
            if len(running) > 2 * len(readers):  # what is read must not pile up
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


@dataclass(slots=True)
class _Reader:
    """Reads over one connection, and keeps the texts it read last.

    Freed all at once, their memory would go back to the system and be fetched from it again for the
    next rows, page by page: that takes as long as the reading.
    """

    connection: sqlite3.Connection
    with_body: bool
    last: Sequence[Any] = ()

    def read(self, rowids: Range) -> Rows:
        """Read some rows; in halves where their texts together are too large to be joined."""
        self.connection.text_factory = bytes
        try:
            with values_up_to(self.connection, _MOST_JOINED):
                found = self.connection.execute(SELECT_JOINED, rowids).fetchone()
        except sqlite3.DataError:
            return self._in_halves(*rowids)
        table = _apart(self.connection, rowids, found)
        self.last = found
        rows = one_by_one(self.connection, rowids) if table is None else Rows(table)
        return self._wanted(rows)

    def _in_halves(self, first: int, last: int) -> Rows:
        if first == last:
            alone = one_by_one if self.with_body else without_reading_body
            return self._wanted(alone(self.connection, (first, last)))
        middle = first + (last - first) // 2
        halves = [self.read(rowids) for rowids in ((first, middle), (middle + 1, last))]
        together = pa.concat_tables([half.table for half in halves], promote_options="default")
        return Rows(together, [fault for half in halves for fault in half.faults])

    def _wanted(self, rows: Rows) -> Rows:
        return rows if self.with_body else Rows(rows.table.drop_columns("body"), rows.faults)


def _apart(connection: sqlite3.Connection, rowids: Range, found: Sequence[Any]) -> Any | None:
    """Take apart again what :data:`SELECT_JOINED` found; None where that could garble a value."""
    count, sound, decimal, position, confidence, *rest = found
    present, texts = rest[: len(NULLABLE)], rest[len(NULLABLE) :]
    if not count:
        return SCHEMA.empty_table()
    if sound != count:
        return None
    columns: dict[str, Any] = {"position": _integers(position)}
    if decimal == count:
        numbers = _integers(confidence).cast(pa.float64())
        columns["confidence"] = pc.divide(numbers, of_numbers(np.array([_DECIMALS]))[0])
    else:
        columns["confidence"] = _confidences(connection, rowids, columns["position"])
    counts = dict(zip(NULLABLE, present, strict=True))
    for name, text in zip(TEXTS, texts, strict=True):
        columns[name] = _split(text, count, counts.get(name, count))
    if any(column is None for column in columns.values()):
        return None
    columns["active"] = columns["superseded_by"].is_null()
    columns["chars"] = pc.add(*(pc.utf8_length(columns[name]) for name in ("title", "body")))
    columns |= {name: columns[name].dictionary_encode() for name in REPEATING}
    table = pa.table(columns, SCHEMA)
    rising = (np.diff(as_numbers(table["position"])) > 0).all()
    return table if rising else table.sort_by("position")


def _integers(joined: bytes) -> Any:
    return of_numbers(np.fromstring(joined, dtype=np.int64, sep=","))


def _split(joined: bytes, count: int, present: int) -> Any | None:
    """Return `count` texts, all but `present` of them null; None if they cannot be told apart."""
    parts = pc.split_pattern(of_text(joined, pa.large_binary()), SEPARATOR).values
    if len(parts) != count:
        return None
    try:
        texts = pc.cast(parts, TEXT)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    if present == count:
        return texts
    nulls = pc.equal(texts, of_text(NULL.encode(), TEXT)[0])
    if pc.sum(nulls).as_py() != count - present:
        return None
    return pc.if_else(nulls, pa.nulls(1, TEXT)[0], texts)


def _confidences(connection: sqlite3.Connection, rowids: Range, position: Any) -> Any | None:
    """Return confidences of any number of digits; None where one is not a number."""
    found = connection.execute(f"SELECT rowid, confidence {BETWEEN}", rowids).fetchall()
    at, values = zip(*found, strict=True)
    if {type(value) for value in values} != {float} or not pa.array(at).equals(position):
        return None
    return pa.array(values)
