"""Records of ``memory_items`` as the rows that they were, many at once where they are ordinary."""

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyarrow import json as pa_json

from memlab.sources.base import Rows
from memlab.sources.beside import signal_arrays
from memlab.sources.row_by_row import read_row
from memlab.sources.tables import SCHEMA, SIGNALS, TEXTS, rows_from
from memlab.store.records import Record
from memlab.store.signals import SIGNALS as SIDE_TABLE

_AT_ONCE: Final = 4096
_HAS_SIGNALS: Final = f'"{SIDE_TABLE}":['.encode()
_FIELDS: Final = pa.schema([(name, pa.string()) for name in TEXTS] + [("confidence", pa.float64())])


def rows_of_records(records: Iterable[Record], *, with_body: bool = False) -> Iterator[Rows]:
    """Yield rows in the order of the records, as the scan of a store would have.

    Parameters
    ----------
    records : iterable of (position, record)
        As :mod:`memlab.store.records` makes them.
    with_body : bool
        Whether ``body`` is wanted.
    """
    remaining = iter(records)
    while some := list(islice(remaining, _AT_ONCE)):
        rows = _at_once(some) or _one_by_one(some)
        rows = _with_signals(rows, some)
        yield rows if with_body else Rows(rows.table.drop_columns("body"), rows.faults)


def _at_once(records: list[Record]) -> Rows | None:
    """Let Arrow read records whose values are of the types that agents write; None for others."""
    text = b"\n".join(record for _, record in records)
    try:
        found = pa_json.read_json(
            BytesIO(text),
            pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pa_json.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    nullable = {"source_task_ref", "superseded_by"}
    columns = {name: found[name].combine_chunks() for name in found.column_names}
    if len(found) != len(records) or any(
        column.null_count for name, column in columns.items() if name not in nullable
    ):
        return None
    columns["position"] = pa.array([position for position, _ in records], pa.int64())
    columns["active"] = columns["superseded_by"].is_null()
    return rows_from(columns)


def _one_by_one(records: list[Record]) -> Rows:
    rows, faults = [], []
    for position, record in records:
        stored = json.loads(record)
        values = (_exact(stored.get(name)) for name in TEXTS)
        replaced = "superseded_by" in stored
        row, wrong = read_row((position, not replaced, _exact(stored.get("confidence")), *values))
        rows.append(row)
        faults += wrong
    return Rows(pa.Table.from_pylist(rows, SCHEMA), faults)


def _exact(value: Any) -> Any:
    """Return a JSON value of a record as SQLite had it."""
    match value:
        case str():
            return bytearray(value, "utf-8")
        case {"text": digits, "encoding": encoding}:
            return bytearray(bytes.fromhex(digits).decode(encoding, errors="replace"), "utf-8")
        case {"text": digits}:
            return bytearray.fromhex(digits)
        case {"blob": digits}:
            return bytes.fromhex(digits)
        case {"real": word}:
            return float(word)
    return value


def _with_signals(rows: Rows, records: list[Record]) -> Rows:
    said: dict[int, list[Any]] = {}
    names = SIGNALS.names
    for position, record in records:
        if _HAS_SIGNALS in record:
            last = json.loads(record)[SIDE_TABLE][-1]
            said[position] = [_plain(last.get(name)) for name in names]
    if not said:
        return rows
    positions = [position for position, _ in records]
    arrays, wrong = signal_arrays(names, positions, said)
    table, faults = rows.table, [*rows.faults, *wrong]
    for name, array in arrays.items():
        if array.null_count < len(array):
            table = table.append_column(name, array)
    return Rows(table, faults)


def _plain(value: Any) -> Any:
    exact = _exact(value)
    return exact.decode(errors="replace") if isinstance(exact, bytearray) else exact
