"""Every row of ``memory_items`` as Arrow columns, without a Python object per value.

SQLite joins a column's texts of some thousand rows with a separator; Arrow splits them again. Rows
that such a round trip could garble are read one by one. Only the standard library's SQLite opens
the file: another copy would drop the locks of a store that this process has open.
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
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memlab.clock import moment_of
from memlab.sources import tables
from memlab.sources.base import Fault, Rows
from memlab.store.archive.facts import RetiredMemories
from memlab.store.database import text_as_bytearray, values_up_to
from memlab.store.records import Layout, Record, batched, bound_value, quoted
from memlab.store.signals import HAS_SIGNALS
from memlab.store.signals import SIGNALS as SIDE_TABLE
from memlab.text import shortened

Range = tuple[int, int]
"""The first and the last rowid of some rows."""

_ROWS_AT_ONCE: Final = 2**14
_BYTES_AT_ONCE: Final = 2**22
_MOST_JOINED: Final = 2**23
"""Bytes that the texts of one column may have together to be joined."""
_PIECE: Final = 2**20
"""Bytes of a large text that are read at once."""
_RECORDS_AT_ONCE: Final = 4096
_MOST_GAPS: Final = 4
"""Rowids for each row, up to which rows are taken to lie close together."""

NULLABLE: Final = ("source_task_ref", "superseded_by")
BETWEEN: Final = "FROM memory_items NOT INDEXED WHERE rowid BETWEEN ? AND ?"
"""Finds rows in their order: an index may have another."""
SEPARATOR: Final = "\x1f"
"""Stands between a column's texts where these are one text."""
NULL: Final = "\x1e"
"""Stands for a NULL among them."""
_DECIMALS: Final = 10_000.0
_SOUND: Final = " AND ".join(  # blobs sort after every text
    f"({name} < x'') IS NOT 0" if name in NULLABLE else f"{name} < x''" for name in tables.TEXTS
)
_IN_DECIMALS: Final = f"CAST(confidence * {_DECIMALS} + 0.5 AS INTEGER)"
_JOINED: Final = ", ".join(
    f"group_concat(coalesce({name}, '{NULL}'), '{SEPARATOR}')"
    if name in NULLABLE
    else f"group_concat({name}, '{SEPARATOR}')"
    for name in tables.TEXTS
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
    """Yield all rows of ``memory_items``, some at a time, in rowid order; a thread a connection."""
    ranges = list(_ranges(connections[0]))
    readers = [partial(_read, each, [], with_body=with_body) for each in connections]
    if len(readers) == 1:
        yield from map(readers[0], ranges)
        return
    with ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in readers]
        running = deque[Future[Rows]]()
        turns = cycle(zip(pools, readers, strict=True))
        for rowids, (pool, read) in zip(ranges, turns, strict=False):
            running.append(pool.submit(read, rowids))
            if len(running) > 2 * len(pools):  # what is read must not pile up
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _ranges(connection: sqlite3.Connection) -> Iterator[Range]:
    count, start, highest, room = connection.execute(
        "SELECT (SELECT count(*) FROM memory_items), (SELECT min(rowid) FROM memory_items), "
        "(SELECT max(rowid) FROM memory_items), page_count * page_size "
        "FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    size = min(max(_BYTES_AT_ONCE * count // room, 1), _ROWS_AT_ONCE)
    if start is not None and highest - start < _MOST_GAPS * count:
        firsts = range(start, highest + 1, size)
        yield from ((first, min(first + size - 1, highest)) for first in firsts)
        return
    following = "SELECT rowid FROM memory_items WHERE rowid >= ? ORDER BY rowid LIMIT 1 OFFSET ?"
    while start is not None:
        (after,) = connection.execute(following, (start, size)).fetchone() or (None,)
        yield start, highest if after is None else after - 1
        start = after


def _read(
    connection: sqlite3.Connection, kept: list[Any], rowids: Range, *, with_body: bool
) -> Rows:
    """Read some rows; in halves where their texts together are too large to be joined.

    What was read before is `kept` so long: its memory would go back to the system, and be fetched
    from it again page by page, which takes as long as the reading.
    """
    first, last = rowids
    connection.text_factory = bytes
    try:
        with values_up_to(connection, _MOST_JOINED):
            found = connection.execute(SELECT_JOINED, rowids).fetchone()
    except sqlite3.DataError:
        if first < last:
            middle = first + (last - first) // 2
            parts = ((first, middle), (middle + 1, last))
            halves = [_read(connection, kept, part, with_body=with_body) for part in parts]
            together = pa.concat_tables([half.table for half in halves], promote_options="default")
            return Rows(together, [fault for half in halves for fault in half.faults])
        alone = one_by_one if with_body else without_reading_body
        rows = alone(connection, rowids)
    else:
        table = _apart(connection, rowids, found)
        kept[:] = found
        rows = one_by_one(connection, rowids) if table is None else Rows(table)
    return rows if with_body else _without_body(rows)


def _apart(connection: sqlite3.Connection, rowids: Range, found: Sequence[Any]) -> Any | None:
    """Take apart again what :data:`SELECT_JOINED` found; None where that could garble a value."""
    count, sound, decimal, position, confidence, *rest = found
    present = rest[: len(NULLABLE)]
    texts = rest[len(NULLABLE) :]
    if not count:
        return tables.SCHEMA.empty_table()
    if sound != count:
        return None
    columns: dict[str, Any] = {"position": _integers(position)}
    if decimal == count:
        numbers = _integers(confidence).cast(pa.float64())
        columns["confidence"] = pc.divide(numbers, tables.of_numbers(np.array([_DECIMALS]))[0])
    else:
        columns["confidence"] = _confidences(connection, rowids)
    counts = dict(zip(NULLABLE, present, strict=True))
    for name, text in zip(tables.TEXTS, texts, strict=True):
        columns[name] = _split(text, count, counts.get(name, count))
    if any(column is None for column in columns.values()):
        return None
    columns["active"] = columns["superseded_by"].is_null()
    columns["chars"] = pc.add(*(pc.utf8_length(columns[name]) for name in ("title", "body")))
    columns |= {name: columns[name].dictionary_encode() for name in tables.REPEATING}
    return pa.table(columns, tables.SCHEMA)


def _integers(joined: bytes) -> Any:
    return tables.of_numbers(np.fromstring(joined, dtype=np.int64, sep=","))


def _split(joined: bytes, count: int, present: int) -> Any | None:
    """Return `count` texts, all but `present` of them null; None if they cannot be told apart."""
    parts = pc.split_pattern(tables.of_text(joined, pa.large_binary()), SEPARATOR).values
    if len(parts) != count:
        return None
    try:
        texts = pc.cast(parts, tables.TEXT)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    if present == count:
        return texts
    nulls = pc.equal(texts, tables.of_text(NULL.encode(), tables.TEXT)[0])
    if pc.sum(nulls).as_py() != count - present:
        return None
    return pc.if_else(nulls, pa.nulls(1, tables.TEXT)[0], texts)


def _confidences(connection: sqlite3.Connection, rowids: Range) -> Any | None:
    """Return confidences of any number of digits; None where one is not a number."""
    found = connection.execute(f"SELECT confidence {BETWEEN}", rowids)
    values = [value for (value,) in found]
    return pa.array(values) if {*map(type, values)} == {float} else None


def one_by_one(connection: sqlite3.Connection, rowids: Range) -> Rows:
    """Read rows whatever their values are."""
    connection.text_factory = bytearray  # a blob comes as bytes, so the two differ
    return _rows_of(connection.execute(f"SELECT {', '.join(_COLUMNS)} {BETWEEN}", rowids))


def _rows_of(found: Iterable[Sequence[Any]]) -> Rows:
    rows = []
    faults = []
    for stored in found:
        row, wrong = _read_row(stored)
        rows.append(row)
        faults += wrong
    return Rows(pa.Table.from_pylist(rows, tables.SCHEMA), faults)


def without_reading_body(connection: sqlite3.Connection, rowid: Range) -> Rows:
    """Read one row whose body may be large; its characters are counted in pieces."""
    instead = "CASE typeof(body) WHEN 'text' THEN '' WHEN 'blob' THEN x'' ELSE body END"
    columns = (instead if name == "body" else name for name in _COLUMNS)
    with text_as_bytearray(connection):
        query = f"SELECT {', '.join(columns)} {BETWEEN}"
        stored = connection.execute(query, rowid).fetchone()
    if stored is None:
        return Rows(tables.SCHEMA.empty_table())
    row, wrong = _read_row(stored)
    if row["body"] is not None:
        try:
            row["chars"] += _characters_of_body(connection, rowid[0])
        except UnicodeDecodeError:
            return one_by_one(connection, rowid)
    return Rows(pa.Table.from_pylist([row], tables.SCHEMA), wrong)


def _characters_of_body(connection: sqlite3.Connection, position: int) -> int:
    """Count the characters of a text without holding all of it."""
    decoder = getincrementaldecoder("utf-8")()
    count = 0
    with connection.blobopen("memory_items", "body", position, readonly=True) as text:
        while piece := text.read(_PIECE):
            count += len(decoder.decode(piece))
    return count + len(decoder.decode(b"", final=True))


def _read_row(stored: Sequence[Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row with None for what cannot be read, and why it cannot."""
    position, active, confidence, *values = stored
    row: dict[str, Any] = {"position": position, "active": bool(active), "confidence": None}
    wrong: dict[str, str] = {}
    for name, value in zip(tables.TEXTS, values, strict=True):
        row[name] = None
        if isinstance(value, str):
            row[name] = value
        elif isinstance(value, bytearray):
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


def add_signals(
    batches: Iterable[Rows], connection: sqlite3.Connection, layout: Layout, others: Sequence[str]
) -> Iterator[Rows]:
    """Add signals, and the columns of an agent's own that are wanted, to rows as they come."""
    names = [field.name for field in tables.SIGNALS if field.name in layout.signals]
    chosen = ", ".join(f"signal.{quoted(name)}" for name in names)
    signals = (
        f"SELECT item.rowid, {chosen} FROM main.memory_items AS item JOIN main.{SIDE_TABLE} AS "
        f"signal ON {HAS_SIGNALS} WHERE item.rowid BETWEEN ? AND ?"
    )
    own = f"SELECT {', '.join(map(quoted, others))} {BETWEEN}"
    for rows in batches:
        said = _fetched(connection, str, signals, rows) if names else []
        known = _with_signals(rows, names, {at: values for at, *values in said})
        stored = _fetched(connection, _text, own, rows) if others else []
        asked = {name: [row[at] for row in stored] for at, name in enumerate(others)}
        yield Rows(known.table, known.faults, asked)


def with_retired(rows: Rows, retired: RetiredMemories) -> Rows:
    """Return rows that say which are retired, and since when: no other stands for such a one."""
    table = rows.table
    same = pc.fill_null(pc.equal(table["superseded_by"], table["memory_id"]), False)  # noqa: FBT003
    since: list[Any] = [None] * len(table)
    for place in np.flatnonzero(tables.as_numbers(same)).tolist():
        name, position = (table[each][place].as_py() for each in ("memory_id", "position"))
        if known := retired.at(position, name):
            since[place] = known.retired_at
    at = pa.array(since, tables.MOMENT)
    by = pc.if_else(at.is_valid(), pa.nulls(1, tables.TEXT)[0], table["superseded_by"])
    table = table.set_column(table.column_names.index("superseded_by"), "superseded_by", by)
    return Rows(table.append_column(tables.RETIRED.name, at), rows.faults, rows.others)


def _with_signals(rows: Rows, names: Sequence[str], said: Mapping[int, Sequence[Any]]) -> Rows:
    """Return rows with a typed column per signal, a value for every position."""
    table = rows.table
    faults = [*rows.faults]
    positions = table["position"].to_pylist() if names else []
    for place, name in enumerate(names):
        kind = tables.SIGNALS.field(name).type
        values = []
        for position in positions:
            stored = said[position][place] if position in said else None
            value, wrong = (None, None) if stored is None else _meaning(kind, stored)
            values.append(value)
            if wrong:
                faults.append((position, name, f"{name} {wrong}"))
        table = table.append_column(name, pa.array(values, kind))
    return Rows(table, faults)


def _fetched(
    connection: sqlite3.Connection, factory: Callable[[bytes], Any], query: str, rows: Rows
) -> list[Any]:
    """Return what a query finds between the positions of rows, with text made by `factory`."""
    at = rows.table["position"]
    bounds = (at[0].as_py(), at[-1].as_py()) if len(at) else (0, -1)
    with text_as_bytearray(connection, factory):
        return connection.execute(query, bounds).fetchall()


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _meaning(kind: Any, stored: object) -> tuple[Any, str | None]:
    """Return what a stored value says as a value of a type, or why it says nothing."""
    fits, make, otherwise = _MEANINGS[kind]
    if not fits(stored):
        shown = shortened(stored) if isinstance(stored, str) else repr(stored)
        return None, f"{shown} is {otherwise}"
    try:
        return make(stored), None
    except ValueError as error:
        return None, str(error)


_MEANINGS: Final[dict[Any, tuple[Callable[[Any], bool], Callable[[Any], Any], str]]] = {
    pa.float64(): (lambda value: isinstance(value, int | float), float, "not a number"),
    pa.int64(): (lambda value: isinstance(value, int), int, "not a whole number"),
    pa.bool_(): (lambda value: value in (0, 1), bool, "neither 0 nor 1"),
    tables.TEXT: (lambda value: isinstance(value, str), str, "not text"),
    tables.MOMENT: (lambda value: isinstance(value, str), moment_of, "not text"),
}
"""What a signal of each type may be stored as, how it is read, and what is said of others."""


def rows_of_records(records: Iterable[Record], *, with_body: bool = False) -> Iterator[Rows]:
    """Yield rows in the order of the records, as the scan of a store would have."""
    for some in batched(records, _RECORDS_AT_ONCE):
        stored = [(position, json.loads(record)) for position, record in some]
        rows = _rows_of(
            (
                position,
                "superseded_by" not in row,
                *(_exact(row.get(name)) for name in ("confidence", *tables.TEXTS)),
            )
            for position, row in stored
        )
        signals = {position: row[SIDE_TABLE][-1] for position, row in stored if SIDE_TABLE in row}
        kept = {name for row in signals.values() for name in row if row[name] is not None}
        names = [name for name in tables.SIGNALS.names if name in kept]
        said = {at: [_readable(row.get(name)) for name in names] for at, row in signals.items()}
        rows = _with_signals(rows, names, said)
        yield rows if with_body else _without_body(rows)


def _without_body(rows: Rows) -> Rows:
    return Rows(rows.table.drop_columns("body"), rows.faults)


def _exact(value: Any) -> Any:
    """Return a JSON value of a record as SQLite had it."""
    expression, bound = bound_value(value)
    return bound if expression == "?" else bytearray(bound)  # text that is no UTF-8


def _readable(value: Any) -> Any:
    exact = _exact(value)
    return exact.decode(errors="replace") if isinstance(exact, bytearray) else exact
