"""What a ``memory_items`` store keeps beside the columns that every source has: signals, others."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from memlab import columns as col
from memlab.items import shortened
from memlab.moments import moment_of
from memlab.sources.base import Fault, Rows
from memlab.sources.tables import SIGNALS
from memlab.store.database import exact
from memlab.store.records import Layout, quoted
from memlab.store.signals import SIGNALS as SIDE_TABLE
from memlab.store.signals import has_signals

Said = dict[int, Sequence[Any]]
"""What the side table says of rows, by position."""


def with_beside(
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
            arrays, wrong = signal_arrays(names, positions, here)
            faults = faults + wrong
            for name, array in arrays.items():
                table = table.append_column(name, array)
        yield Rows(table, faults, _others(connection, others, positions))


def signal_arrays(
    names: Sequence[str], positions: Sequence[int], said: Mapping[int, Sequence[Any]]
) -> tuple[dict[str, Any], list[Fault]]:
    """Return one typed Arrow column per signal, a value for every position, and what is wrong."""
    arrays, faults = {}, []
    for place, name in enumerate(names):
        parse, meanings = _PARSERS[SIGNALS.field(name).type], {}
        values = []
        for position in positions:
            stored = said[position][place] if position in said else None
            known = (type(stored), stored)  # 1 and 1.0 are one key to a dictionary
            if stored is not None and known not in meanings:
                meanings[known] = _meaning(parse, stored)
            value, wrong = meanings[known] if stored is not None else (None, None)
            values.append(value)
            if wrong:
                faults.append((position, name, f"{name} {wrong}"))
        arrays[name] = pa.array(values, SIGNALS.field(name).type)
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


def _meaning(parse: Callable[[Any], Any], stored: object) -> tuple[Any, str | None]:
    try:
        return parse(stored), None
    except ValueError as error:
        return None, str(error)


def _shown(value: object) -> str:
    return shortened(value) if isinstance(value, str) else repr(value)


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise ValueError(f"{_shown(value)} is not a number")


def _count(value: object) -> int:
    if isinstance(value, int):
        return value
    raise ValueError(f"{_shown(value)} is not a whole number")


def _flag(value: object) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(f"{_shown(value)} is neither 0 nor 1")


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{_shown(value)} is not text")


def _when(value: object) -> datetime:
    return moment_of(_words(value))


_PARSERS: Final[dict[Any, Callable[[Any], Any]]] = {
    SIGNALS.field(name).type: parse
    for name, parse in (
        (col.IMPORTANCE, _number),
        (col.ACCESS_COUNT, _count),
        (col.TRUSTED, _flag),
        (col.AGENT_ID, _words),
        (col.EXPIRES_AT, _when),
    )
}
