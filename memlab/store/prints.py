"""Fingerprints of rows of ``memory_items``, without reading a large text whole.

A fingerprint is that of a record (:mod:`memlab.store.records`). JSON escapes a text character by
character, so that the pieces of a large one make the same bytes as the whole.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from json.encoder import encode_basestring as in_quotes
from typing import Final

from memlab.store.database import exact
from memlab.store.large import pieces_of_text, size_of_text, values_up_to
from memlab.store.records import (
    AT_ONCE,
    Layout,
    as_json,
    encoded,
    fingerprint_of,
    quoted,
    records_at,
    selecting,
    signals_at,
)
from memlab.store.signals import SIGNALS

_LARGE: Final = 2**17
"""Bytes of a value above which it is read in pieces."""


def prints_at(
    connection: sqlite3.Connection, layout: Layout, positions: Iterable[int]
) -> Iterator[tuple[int, str]]:
    """Yield the fingerprints of the rows at `positions` that are there, in the order given."""
    remaining = iter(positions)
    while some := list(islice(remaining, AT_ONCE)):
        yield from _prints(connection, layout, some)


def _prints(
    connection: sqlite3.Connection, layout: Layout, positions: list[int]
) -> list[tuple[int, str]]:
    try:
        with values_up_to(connection, _LARGE):
            records = records_at(connection, layout, positions)
            return [(position, fingerprint_of(record)) for position, record in records]
    except sqlite3.DataError:
        if len(positions) == 1:
            return [(positions[0], _print_in_pieces(connection, layout, positions[0]))]
    middle = len(positions) // 2
    halves = (positions[:middle], positions[middle:])
    return [each for half in halves for each in _prints(connection, layout, half)]


def _print_in_pieces(connection: sqlite3.Connection, layout: Layout, position: int) -> str:
    """Return the fingerprint of a row that has a large value."""
    hashed = blake2b(digest_size=16)
    try:
        for piece in _record_in_pieces(connection, layout, position):
            hashed.update(piece.encode())
    except UnicodeDecodeError:  # a record has such text as digits
        ((_, record),) = records_at(connection, layout, [position])
        return fingerprint_of(record)
    return hashed.hexdigest()


def _record_in_pieces(
    connection: sqlite3.Connection, layout: Layout, position: int
) -> Iterator[str]:
    """Yield a record that :func:`memlab.store.records.records_at` would have as a whole."""
    typeof = ", ".join(f"typeof({quoted(name)})" for name in layout.columns)
    with exact(connection):
        types = connection.execute(
            f"SELECT {typeof} FROM main.memory_items WHERE rowid = ?", (position,)
        ).fetchone()
    separator = "{"
    for name, kind in zip(layout.columns, types, strict=True):
        if kind == b"null" and name not in layout.defaulted:
            continue
        yield f"{separator}{in_quotes(name)}:"
        if kind == b"text" and size_of_text(connection, name, position) > _LARGE:
            yield '"'
            for piece in pieces_of_text(connection, name, position, layout.encoding):
                yield in_quotes(piece)[1:-1]
            yield '"'
        else:
            yield _value(connection, layout, name, position)
        separator = ","
    if said := signals_at(connection, layout, [position]).get(position):
        yield f"{separator}{encoded({SIGNALS: said}).decode()[1:-1]}"
    yield "}"


def _value(connection: sqlite3.Connection, layout: Layout, name: str, position: int) -> str:
    """Return one value of a row as a record has it."""
    readable, chosen = selecting([name], layout.encoding)
    with exact(connection):
        stored = connection.execute(
            f"SELECT {chosen} FROM main.memory_items AS item WHERE rowid = ?", (position,)
        ).fetchone()
    (value,) = readable(stored)
    return as_json(value)
