"""Read ``memory_items`` into Arrow columns, without a Python object per value.

SQLite concatenates the texts of a column over a batch of rows with a separator, and Arrow splits
them. Rows that this would change are read one by one. Only the SQLite of the standard library
opens the file: a second copy of the library in this process would release the locks of the first.
"""

import json
import sqlite3
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memlab.clock import moment_of
from memlab.sources import tables
from memlab.sources.readers import Fault, Rows
from memlab.store.archive.retired import RetiredMemories
from memlab.store.database import limit_value_size, text_read_as
from memlab.store.records import Layout, Record, batched, bound_value, quoted
from memlab.store.signals import HAS_SIGNALS
from memlab.store.signals import SIGNALS as SIDE_TABLE
from memlab.text import shortened

Range = tuple[int, int]
"""The first and the last rowid of a batch."""

_MAX_ROWS: Final = 2**14
"""Maximum number of rows in a batch."""
_BATCH_BYTES: Final = 2**22
"""Average size of a batch, in bytes of the file."""
_MAX_JOINED_BYTES: Final = 2**23
"""Maximum size in bytes of the concatenated texts of one column."""
_PIECE_BYTES: Final = 2**20
"""Size in bytes of the pieces in which a large text is read."""
_RECORDS_PER_BATCH: Final = 4096
"""Number of archived records in a batch."""
_MAX_SPARSENESS: Final = 4
"""Maximum ratio of the span of the rowids to the number of rows for ranges of one length.

With more gaps, most of these ranges would be nearly empty."""

NULLABLE: Final = ("source_task_ref", "superseded_by")
BETWEEN: Final = "FROM memory_items NOT INDEXED WHERE rowid BETWEEN ? AND ?"
"""Selects the rows between two rowids, in rowid order: an index may have another order."""
SEPARATOR: Final = "\x1f"
"""Separates the concatenated texts of a column."""
NULL: Final = "\x1e"
"""Represents NULL in the concatenated texts."""
_DECIMALS: Final = 10_000.0
"""Factor that makes a confidence with up to four decimals a whole number."""
_CONFIDENCE_AS_INTEGER: Final = f"CAST(confidence * {_DECIMALS} + 0.5 AS INTEGER)"


def _is_text_sql(column: str) -> str:
    """Return the SQL condition that a column holds text, or NULL where it may.

    Blobs sort after every text. ``NULL < x''`` is NULL, not 0.
    """
    if column in NULLABLE:
        return f"({column} < x'') IS NOT 0"
    return f"{column} < x''"


def _joined_sql(column: str) -> str:
    """Return the SQL expression for the concatenated texts of a column."""
    if column in NULLABLE:
        return f"group_concat(coalesce({column}, '{NULL}'), '{SEPARATOR}')"
    return f"group_concat({column}, '{SEPARATOR}')"


_ALL_ARE_TEXTS: Final = " AND ".join(map(_is_text_sql, tables.TEXTS))
_JOINED: Final = ", ".join(map(_joined_sql, tables.TEXTS))

SELECT_JOINED: Final = f"""
SELECT
    count(*),
    count(CASE WHEN {_ALL_ARE_TEXTS} THEN 1 END),
    count(CASE WHEN {_CONFIDENCE_AS_INTEGER} / {_DECIMALS} = confidence THEN 1 END),
    group_concat(rowid),
    group_concat({_CONFIDENCE_AS_INTEGER}),
    {", ".join(f"count({name})" for name in NULLABLE)},
    {_JOINED}
{BETWEEN}
"""
"""Selects the concatenated columns of the rows between two rowids."""

_TYPES: Final[dict[type, str]] = {
    type(None): "NULL",
    bytes: "a blob",
    **dict.fromkeys((str, bytearray), "text"),
    **dict.fromkeys((int, float), "a number"),
}
_COLUMNS: Final = ("rowid", "superseded_by IS NULL", "confidence", *tables.TEXTS)


def scan_rows(
    connections: Sequence[sqlite3.Connection], *, with_body: bool = True
) -> Iterator[Rows]:
    """Yield all rows of ``memory_items`` in batches, in rowid order.

    With several connections, each of them reads in a thread of its own.
    """
    ranges = list(_ranges(connections[0]))
    readers = []
    for connection in connections:
        previous_texts: list[Any] = []  # one list for each connection
        readers.append(partial(_read, connection, previous_texts, with_body=with_body))
    if len(readers) == 1:
        yield from map(readers[0], ranges)
        return
    with ExitStack() as stack:
        executors = [stack.enter_context(ThreadPoolExecutor(1)) for _ in readers]
        running = deque[Future[Rows]]()
        round_robin = cycle(zip(executors, readers, strict=True))
        for rowids, (executor, read) in zip(ranges, round_robin, strict=False):
            running.append(executor.submit(read, rowids))
            if len(running) > 2 * len(executors):  # limits the memory of unread batches
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _ranges(connection: sqlite3.Connection) -> Iterator[Range]:
    """Yield the ranges of rowids that make up the batches."""
    count, start, highest, file_size = connection.execute(
        "SELECT (SELECT count(*) FROM memory_items), (SELECT min(rowid) FROM memory_items), "
        "(SELECT max(rowid) FROM memory_items), page_count * page_size "
        "FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    size = min(max(_BATCH_BYTES * count // file_size, 1), _MAX_ROWS)
    if start is not None and highest - start < _MAX_SPARSENESS * count:
        for first in range(start, highest + 1, size):
            yield first, min(first + size - 1, highest)
        return
    next_start = "SELECT rowid FROM memory_items WHERE rowid >= ? ORDER BY rowid LIMIT 1 OFFSET ?"
    while start is not None:
        row = connection.execute(next_start, (start, size)).fetchone()
        if row is None:
            yield start, highest
            return
        (following,) = row
        yield start, following - 1
        start = following


def _read(
    connection: sqlite3.Connection, previous_texts: list[Any], rowids: Range, *, with_body: bool
) -> Rows:
    """Return a batch of rows. A batch whose texts are too large to be joined is read in halves.

    `previous_texts` holds the joined texts of the previous batch until those of this batch are
    read. If they were freed earlier, the memory would go back to the system, and allocating it
    again takes as long as the reading.
    """
    connection.text_factory = bytes
    try:
        with limit_value_size(connection, _MAX_JOINED_BYTES):
            joined = connection.execute(SELECT_JOINED, rowids).fetchone()
    except sqlite3.DataError:
        first, last = rowids
        if first < last:
            return _read_halves(connection, previous_texts, rowids, with_body=with_body)
        if with_body:
            return one_by_one(connection, rowids)
        return _without_body(without_reading_body(connection, rowids))
    table = _split_joined(connection, rowids, joined)
    previous_texts[:] = joined
    rows = one_by_one(connection, rowids) if table is None else Rows(table)
    return rows if with_body else _without_body(rows)


def _read_halves(
    connection: sqlite3.Connection, previous_texts: list[Any], rowids: Range, *, with_body: bool
) -> Rows:
    """Return a batch of rows, read in two parts."""
    first, last = rowids
    middle = first + (last - first) // 2
    lower = _read(connection, previous_texts, (first, middle), with_body=with_body)
    upper = _read(connection, previous_texts, (middle + 1, last), with_body=with_body)
    table = pa.concat_tables([lower.table, upper.table], promote_options="default")
    return Rows(table, [*lower.faults, *upper.faults])


def _split_joined(
    connection: sqlite3.Connection, rowids: Range, joined: Sequence[Any]
) -> Any | None:
    """Return the table of a result of :data:`SELECT_JOINED`; None if a value could be changed."""
    count, text_count, decimal_count, position, confidence, *value_lists = joined
    nonnull_counts = value_lists[: len(NULLABLE)]
    texts = value_lists[len(NULLABLE) :]
    if not count:
        return tables.SCHEMA.empty_table()
    if text_count != count:  # joining would make texts of other values
        return None
    columns: dict[str, Any] = {"position": _integers(position)}
    if decimal_count == count:
        numbers = _integers(confidence).cast(pa.float64())
        columns["confidence"] = pc.divide(numbers, tables.of_numbers(np.array([_DECIMALS]))[0])
    else:
        columns["confidence"] = _confidences(connection, rowids)
    counts = dict(zip(NULLABLE, nonnull_counts, strict=True))
    for name, text in zip(tables.TEXTS, texts, strict=True):
        columns[name] = _split(text, count, counts.get(name, count))
    if any(column is None for column in columns.values()):
        return None
    columns["active"] = columns["superseded_by"].is_null()
    title_chars = pc.utf8_length(columns["title"])
    columns["chars"] = pc.add(title_chars, pc.utf8_length(columns["body"]))
    columns |= {name: columns[name].dictionary_encode() for name in tables.REPEATING}
    return pa.table(columns, tables.SCHEMA)


def _integers(joined: bytes) -> Any:
    """Return concatenated integers as an Arrow array."""
    return tables.of_numbers(np.fromstring(joined, dtype=np.int64, sep=","))


def _split(joined: bytes, count: int, nonnull_count: int) -> Any | None:
    """Return `count` texts, `nonnull_count` of them not null.

    Return None if a text has the separator or the character for NULL in it.
    """
    parts = pc.split_pattern(tables.of_text(joined, pa.large_binary()), SEPARATOR).values
    if len(parts) != count:
        return None
    try:
        texts = pc.cast(parts, tables.TEXT)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    if nonnull_count == count:
        return texts
    nulls = pc.equal(texts, tables.of_text(NULL.encode(), tables.TEXT)[0])
    if pc.sum(nulls).as_py() != count - nonnull_count:
        return None
    return pc.if_else(nulls, pa.nulls(1, tables.TEXT)[0], texts)


def _confidences(connection: sqlite3.Connection, rowids: Range) -> Any | None:
    """Return the confidences with all their digits; None if one of them is not a float."""
    rows = connection.execute(f"SELECT confidence {BETWEEN}", rowids)
    values = [value for (value,) in rows]
    if not all(type(value) is float for value in values):
        return None
    return pa.array(values)


def one_by_one(connection: sqlite3.Connection, rowids: Range) -> Rows:
    """Return a batch of rows that may hold any values."""
    connection.text_factory = bytearray  # a blob is returned as bytes, so that the two differ
    return _rows_of(connection.execute(f"SELECT {', '.join(_COLUMNS)} {BETWEEN}", rowids))


def _rows_of(stored_rows: Iterable[Sequence[Any]]) -> Rows:
    """Return a batch of rows with their faults, from the values of :data:`_COLUMNS`."""
    rows = []
    faults = []
    for values in stored_rows:
        row, faults_of_row = _read_row(values)
        rows.append(row)
        faults += faults_of_row
    return Rows(pa.Table.from_pylist(rows, tables.SCHEMA), faults)


def without_reading_body(connection: sqlite3.Connection, rowid: Range) -> Rows:
    """Return one row without its body, whose characters are counted piece by piece."""
    empty_body = "CASE typeof(body) WHEN 'text' THEN '' WHEN 'blob' THEN x'' ELSE body END"
    columns = (empty_body if name == "body" else name for name in _COLUMNS)
    with text_read_as(connection):
        query = f"SELECT {', '.join(columns)} {BETWEEN}"
        values = connection.execute(query, rowid).fetchone()
    if values is None:
        return Rows(tables.SCHEMA.empty_table())
    row, faults = _read_row(values)
    if row["body"] is not None:
        try:
            row["chars"] += _characters_of_body(connection, rowid[0])
        except UnicodeDecodeError:
            return one_by_one(connection, rowid)
    return Rows(pa.Table.from_pylist([row], tables.SCHEMA), faults)


def _characters_of_body(connection: sqlite3.Connection, position: int) -> int:
    """Return the number of characters of a body, of which one piece at a time is in memory."""
    decoder = getincrementaldecoder("utf-8")()
    count = 0
    with connection.blobopen("memory_items", "body", position, readonly=True) as text:
        while piece := text.read(_PIECE_BYTES):
            count += len(decoder.decode(piece))
    return count + len(decoder.decode(b"", final=True))


def _read_row(row_values: Sequence[Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row and its faults. An unreadable value is None."""
    position, active, confidence, *values = row_values
    row: dict[str, Any] = {"position": position, "active": bool(active), "confidence": None}
    reasons: dict[str, str] = {}
    for name, value in zip(tables.TEXTS, values, strict=True):
        row[name] = None
        if isinstance(value, str):
            row[name] = value
        elif isinstance(value, bytearray):
            try:
                row[name] = value.decode()
            except UnicodeDecodeError:
                reasons[name] = "is not UTF-8"
        elif value is not None or name not in NULLABLE:
            reasons[name] = f"is {_TYPES[type(value)]}, not text"
    if isinstance(confidence, float):
        row["confidence"] = confidence
    else:
        reasons["confidence"] = f"is {_TYPES[type(confidence)]}, not a number"
    row["chars"] = len(row["title"] or "") + len(row["body"] or "")
    return row, [Fault(position, name, f"{name} {reason}") for name, reason in reasons.items()]


def add_signals(
    batches: Iterable[Rows], connection: sqlite3.Connection, layout: Layout, others: Sequence[str]
) -> Iterator[Rows]:
    """Yield batches with their signals and with the requested additional columns.

    Parameters
    ----------
    batches : iterable of Rows
        Batches of :func:`scan_rows`.
    connection : Connection
        The store.
    layout : Layout
        The columns of its tables.
    others : sequence of str
        Columns that an agent added to ``memory_items``.
    """
    names = [field.name for field in tables.SIGNALS if field.name in layout.signals]
    chosen = ", ".join(f"signal.{quoted(name)}" for name in names)
    signals = (
        f"SELECT item.rowid, {chosen} FROM main.memory_items AS item JOIN main.{SIDE_TABLE} AS "
        f"signal ON {HAS_SIGNALS} WHERE item.rowid BETWEEN ? AND ?"
    )
    own_columns_query = f"SELECT {', '.join(map(quoted, others))} {BETWEEN}"
    for rows in batches:
        signals_by_position: dict[int, Sequence[Any]] = {}
        if names:
            for position, *values in _fetched(connection, str, signals, rows):
                signals_by_position[position] = values
        with_signals = _with_signals(rows, names, signals_by_position)
        own_rows = _fetched(connection, _text, own_columns_query, rows) if others else []
        own_columns = {}
        for number, name in enumerate(others):
            own_columns[name] = [row[number] for row in own_rows]
        yield Rows(with_signals.table, with_signals.faults, own_columns)


def with_retired(rows: Rows, retired: RetiredMemories) -> Rows:
    """Return a batch with the time of retirement of its memories.

    A retired memory is stored as superseded by itself. In the result its ``superseded_by`` is null.
    """
    table = rows.table
    is_superseded_by_itself = pc.equal(table["superseded_by"], table["memory_id"])
    is_superseded_by_itself = pc.fill_null(is_superseded_by_itself, False)  # noqa: FBT003
    retired_at: list[Any] = [None] * len(table)
    for row in np.flatnonzero(tables.as_numbers(is_superseded_by_itself)).tolist():
        memory_id = table["memory_id"][row].as_py()
        position = table["position"][row].as_py()
        retirement = retired.at(position, memory_id)
        if retirement:
            retired_at[row] = retirement.retired_at
    retired_column = pa.array(retired_at, tables.MOMENT)
    superseded_by = pc.if_else(
        retired_column.is_valid(), pa.nulls(1, tables.TEXT)[0], table["superseded_by"]
    )
    table = table.set_column(
        table.column_names.index("superseded_by"), "superseded_by", superseded_by
    )
    return Rows(table.append_column(tables.RETIRED.name, retired_column), rows.faults, rows.others)


def _with_signals(rows: Rows, names: Sequence[str], signals: Mapping[int, Sequence[Any]]) -> Rows:
    """Return a batch with a typed column per signal; `signals` has the values by position."""
    table = rows.table
    faults = list(rows.faults)
    positions = table["position"].to_pylist() if names else []
    for column, name in enumerate(names):
        kind = tables.SIGNALS.field(name).type
        values = []
        for position in positions:
            stored_value = signals[position][column] if position in signals else None
            value = None
            if stored_value is not None:
                value, reason = _parsed(kind, stored_value)
                if reason:
                    faults.append(Fault(position, name, f"{name} {reason}"))
            values.append(value)
        table = table.append_column(name, pa.array(values, kind))
    return Rows(table, faults)


def _fetched(
    connection: sqlite3.Connection, factory: Callable[[bytes], Any], query: str, rows: Rows
) -> list[Any]:
    """Return the result of a query for the positions of a batch; `factory` decodes texts."""
    positions = rows.table["position"]
    bounds = (0, -1)
    if len(positions):
        bounds = (positions[0].as_py(), positions[-1].as_py())
    with text_read_as(connection, factory):
        return connection.execute(query, bounds).fetchall()


def _text(value: bytes) -> str | bytes:
    """Return a text; its bytes if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _parsed(kind: Any, stored: object) -> tuple[Any, str | None]:
    """Return a stored value as a value of an Arrow type, or None and the reason."""
    parser = _PARSERS[kind]
    if not parser.is_valid(stored):
        shown_value = shortened(stored) if isinstance(stored, str) else repr(stored)
        return None, f"{shown_value} is {parser.fault}"
    try:
        return parser.convert(stored), None
    except ValueError as error:
        return None, str(error)


class _Parser(NamedTuple):
    """The check of a stored value, its conversion, and the fault if the check fails."""

    is_valid: Callable[[Any], bool]
    convert: Callable[[Any], Any]
    fault: str


_PARSERS: Final[dict[Any, _Parser]] = {
    pa.float64(): _Parser(lambda value: isinstance(value, int | float), float, "not a number"),
    pa.int64(): _Parser(lambda value: isinstance(value, int), int, "not a whole number"),
    pa.bool_(): _Parser(lambda value: value in (0, 1), bool, "neither 0 nor 1"),
    tables.TEXT: _Parser(lambda value: isinstance(value, str), str, "not text"),
    tables.MOMENT: _Parser(lambda value: isinstance(value, str), moment_of, "not text"),
}
"""The parser of each type of a signal."""


def rows_of_records(records: Iterable[Record], *, with_body: bool = False) -> Iterator[Rows]:
    """Yield archived records in batches, in their order, like the scan of a store."""
    for batch in batched(records, _RECORDS_PER_BATCH):
        parsed = [(position, json.loads(record)) for position, record in batch]
        rows = _rows_of(_stored_values(position, row) for position, row in parsed)
        # The last element has the values; those before it are the key of the row in that table.
        signals = {position: row[SIDE_TABLE][-1] for position, row in parsed if SIDE_TABLE in row}
        names_with_value: set[str] = set()
        for row in signals.values():
            names_with_value.update(name for name, value in row.items() if value is not None)
        names = [name for name in tables.SIGNALS.names if name in names_with_value]
        values = {
            position: [_readable_value(row.get(name)) for name in names]
            for position, row in signals.items()
        }
        rows = _with_signals(rows, names, values)
        yield rows if with_body else _without_body(rows)


def _stored_values(position: int, row: Mapping[str, Any]) -> list[Any]:
    """Return the values of :data:`_COLUMNS` of a parsed record."""
    is_active = "superseded_by" not in row
    texts = [_stored_value(row.get(name)) for name in tables.TEXTS]
    return [position, is_active, _stored_value(row.get("confidence")), *texts]


def _without_body(rows: Rows) -> Rows:
    """Return a batch without the column ``body``."""
    return Rows(rows.table.drop_columns("body"), rows.faults)


def _stored_value(value: Any) -> Any:
    """Return the value that SQLite had for a JSON value of a record."""
    expression, bound = bound_value(value)
    is_plain = expression == "?"  # else the value is text that is not UTF-8, bound as a blob
    return bound if is_plain else bytearray(bound)


def _readable_value(value: Any) -> Any:
    """Return the value for a JSON value of a record; invalid UTF-8 is replaced."""
    exact = _stored_value(value)
    return exact.decode(errors="replace") if isinstance(exact, bytearray) else exact
