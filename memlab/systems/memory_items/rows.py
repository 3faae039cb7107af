"""Rows of ``memory_items`` one by one, their signals, and rows again of archived records."""

import json
import sqlite3
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from memlab.clock import moment_of
from memlab.sources.base import Fault, Rows, portions, rows_from
from memlab.sources.tables import MOMENT, SCHEMA, SIGNALS, TEXT, TEXTS
from memlab.store.database import exact
from memlab.store.records import Layout, Record, quoted
from memlab.store.signals import SIGNALS as SIDE_TABLE
from memlab.store.signals import has_signals
from memlab.text import shortened

Range = tuple[int, int]
"""The first and the last rowid of some rows."""

_PIECE: Final = 2**20
NULLABLE: Final = ("source_task_ref", "superseded_by")
BETWEEN: Final = "FROM memory_items WHERE rowid BETWEEN ? AND ?"

_TYPES: Final = {
    type(None): "NULL",
    int: "a number",
    float: "a number",
    bytearray: "text",
    bytes: "a blob",
}
_COLUMNS: Final = ("rowid", "superseded_by IS NULL", "confidence", *TEXTS)


def one_by_one(connection: sqlite3.Connection, rowids: Range) -> Rows:
    """Read rows whatever their values are."""
    connection.text_factory = bytearray  # a blob comes as bytes, so the two differ
    return _rows_of(
        connection.execute(f"SELECT {', '.join(_COLUMNS)} {BETWEEN} ORDER BY rowid", rowids)
    )


def _rows_of(found: Iterable[Sequence[Any]]) -> Rows:
    rows, faults = [], []
    for stored in found:
        row, wrong = _read_row(stored)
        rows.append(row)
        faults += wrong
    return Rows(pa.Table.from_pylist(rows, SCHEMA), faults)


def without_reading_body(connection: sqlite3.Connection, rowid: Range) -> Rows:
    """Read one row whose body may be large; its characters are counted in pieces."""
    instead = "CASE typeof(body) WHEN 'text' THEN '' WHEN 'blob' THEN x'' ELSE body END"
    columns = (instead if name == "body" else name for name in _COLUMNS)
    with exact(connection):
        found = connection.execute(
            f"SELECT typeof(body) = 'text', {', '.join(columns)} {BETWEEN}", rowid
        ).fetchone()
    if found is None:
        return Rows(SCHEMA.empty_table())
    is_text, *stored = found
    row, wrong = _read_row(stored)
    if is_text:
        try:
            row["chars"] += _characters_of_body(connection, rowid[0])
        except UnicodeDecodeError:
            return one_by_one(connection, rowid)
    return Rows(pa.Table.from_pylist([row], SCHEMA), wrong)


def _characters_of_body(connection: sqlite3.Connection, position: int) -> int:
    """Count the characters of a text without holding all of it."""
    decoder, count = getincrementaldecoder("utf-8")(), 0
    with connection.blobopen("memory_items", "body", position, readonly=True) as text:
        while piece := text.read(_PIECE):
            count += len(decoder.decode(piece))
    return count + len(decoder.decode(b"", final=True))


def _read_row(stored: Sequence[Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return a row with None for what cannot be read, and why it cannot."""
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


Said = dict[int, Sequence[Any]]
"""What the side table says of rows, by position."""


def add_signals(
    batches: Iterable[Rows], connection: sqlite3.Connection, layout: Layout, others: Sequence[str]
) -> Iterator[Rows]:
    """Add signals, and the columns of an agent's own that are wanted, to rows as they come."""
    names = [field.name for field in SIGNALS if field.name in layout.signals]
    said = _said(connection, layout, names) if names else iter(())
    ahead = next(said, None)
    for rows in batches:
        positions = rows.table["position"].to_pylist() if names or others else []
        table, faults = rows.table, rows.faults
        if names:
            here: Said = {}
            while positions and ahead is not None and ahead[0] <= positions[-1]:
                here[ahead[0]] = ahead[1:]
                ahead = next(said, None)
            arrays, wrong = _signal_arrays(names, positions, here)
            faults = faults + wrong
            for name, array in arrays.items():
                table = table.append_column(name, array)
        yield Rows(table, faults, _others(connection, others, positions))


def _signal_arrays(
    names: Sequence[str], positions: Sequence[int], said: Mapping[int, Sequence[Any]]
) -> tuple[dict[str, Any], list[Fault]]:
    """Return one typed Arrow column per signal, a value for every position, and what is wrong."""
    arrays, faults = {}, []
    for place, name in enumerate(names):
        kind, meanings = SIGNALS.field(name).type, {}
        values = []
        for position in positions:
            stored = said[position][place] if position in said else None
            known = (type(stored), stored)  # 1 and 1.0 are one key to a dictionary
            if stored is not None and known not in meanings:
                meanings[known] = _meaning(kind, stored)
            value, wrong = meanings[known] if stored is not None else (None, None)
            values.append(value)
            if wrong:
                faults.append((position, name, f"{name} {wrong}"))
        arrays[name] = pa.array(values, kind)
    return arrays, faults


def _said(
    connection: sqlite3.Connection, layout: Layout, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Read signals in the order of the rows that they belong to."""
    chosen = ", ".join(f"signal.{quoted(name)}" for name in names)
    # A cursor of its own: text_factory is looked at as each value is read.
    cursor = connection.execute(
        f"SELECT item.rowid, {chosen} FROM main.memory_items AS item JOIN main.{SIDE_TABLE} AS "
        f"signal ON {has_signals(layout.signals)} ORDER BY item.rowid"
    )
    while some := _fetched(connection, cursor):
        yield from some


def _fetched(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    factory, connection.text_factory = connection.text_factory, str
    try:
        return cursor.fetchmany(4096)
    finally:
        connection.text_factory = factory


def _others(
    connection: sqlite3.Connection, names: Sequence[str], positions: Sequence[int]
) -> dict[str, list[object]]:
    if not names:
        return {}
    if not positions:
        return {name: [] for name in names}
    chosen = ", ".join(map(quoted, names))
    with exact(connection):
        found = connection.execute(
            f"SELECT {chosen} FROM main.memory_items WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
            (positions[0], positions[-1]),
        ).fetchall()
    columns = zip(*found, strict=True)
    return {name: [_plain(v) for v in column] for name, column in zip(names, columns, strict=True)}


def _plain(value: Any) -> object:
    """Return text as text where it is UTF-8, and as bytes where it is not."""
    if not isinstance(value, bytearray):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return bytes(value)


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


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_MEANINGS: Final[dict[Any, tuple[Callable[[Any], bool], Callable[[Any], Any], str]]] = {
    pa.float64(): (lambda value: isinstance(value, int | float), float, "not a number"),
    pa.int64(): (lambda value: isinstance(value, int), int, "not a whole number"),
    pa.bool_(): (lambda value: value in (0, 1), bool, "neither 0 nor 1"),
    TEXT: (_is_text, str, "not text"),
    MOMENT: (_is_text, moment_of, "not text"),
}
"""What a signal of each type may be stored as, how it is read, and what is said of others."""


def rows_of_records(records: Iterable[Record], *, with_body: bool = False) -> Iterator[Rows]:
    """Yield rows in the order of the records, as the scan of a store would have."""
    for some in portions(records, 4096):
        positions = [position for position, _ in some]
        stored = [json.loads(record) for _, record in some]
        rows = _ordinary(positions, stored) or _whatever(positions, stored)
        rows = _with_signals(rows, positions, stored)
        yield rows if with_body else Rows(rows.table.drop_columns("body"), rows.faults)


def _ordinary(positions: list[int], stored: list[dict[str, Any]]) -> Rows | None:
    """Return records whose values are of the types that agents write; None for others."""
    columns: dict[str, Any] = {name: [each.get(name) for each in stored] for name in TEXTS}
    columns["confidence"] = [each.get("confidence") for each in stored]
    if {*map(type, columns["confidence"])} != {float} or any(
        None in values for name, values in columns.items() if name not in NULLABLE
    ):
        return None
    columns["active"] = [by is None for by in columns["superseded_by"]]
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
        return rows_from({"position": positions, **columns})
    return None


def _whatever(positions: list[int], stored: list[dict[str, Any]]) -> Rows:
    each = (
        ("superseded_by" not in row, *(_exact(row.get(name)) for name in ("confidence", *TEXTS)))
        for row in stored
    )
    return _rows_of((position, *row) for position, row in zip(positions, each, strict=True))


def _exact(value: Any) -> Any:
    """Return a JSON value of a record as SQLite had it."""
    match value:
        case str():
            return bytearray(value, "utf-8")
        case {"text": digits}:
            return bytearray.fromhex(digits)
        case {"blob": digits}:
            return bytes.fromhex(digits)
        case {"real": word}:
            return float(word)
    return value


def _with_signals(rows: Rows, positions: list[int], stored: list[dict[str, Any]]) -> Rows:
    said = {
        position: [_readable(row[SIDE_TABLE][-1].get(name)) for name in SIGNALS.names]
        for position, row in zip(positions, stored, strict=True)
        if SIDE_TABLE in row
    }
    if not said:
        return rows
    arrays, wrong = _signal_arrays(SIGNALS.names, positions, said)
    table, faults = rows.table, [*rows.faults, *wrong]
    for name, array in arrays.items():
        if array.null_count < len(array):
            table = table.append_column(name, array)
    return Rows(table, faults)


def _readable(value: Any) -> Any:
    exact = _exact(value)
    return exact.decode(errors="replace") if isinstance(exact, bytearray) else exact
