"""Archives of format 1, as memlab 0.1.0 made them: read as they are.

Such an archive has a copy of every column of a row where one of today has the row's record, so both
say the same. How one goes on: reading leaves it as it is. The first time that it is opened to be
written to, :mod:`memlab.store.archive` puts its copies into today's tables, in one transaction that
is rolled back where a copy would not come over; stopped at any moment, the file is of one format or
of the other, whole.
"""

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from memlab.store.database import COLUMNS, exact
from memlab.store.records import Value, encoded, fingerprint_of, selecting
from memlab.store.signals import SIGNALS

DAMAGED: Final = "damaged:"
"""Before the fingerprint of a copy that is not what was archived, so that it never fits one."""

_COLUMNS: Final = ", ".join(COLUMNS)
_AT_ONCE: Final = 500


class Copied(NamedTuple):
    """A copy of format 1 in today's terms."""

    apply: int
    key: int
    fingerprint: str
    record: bytes
    reason: str
    restored_at: str | None


def copies_of_1(connection: sqlite3.Connection, *, table: str = "archived") -> Iterator[Copied]:
    """Yield the copies of an archive of format 1 in the order in which they were made."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    readable, chosen = selecting(COLUMNS, encoding, table)
    found = connection.execute(
        f"SELECT apply, position, fingerprint, reason, restored_at, signals, {_COLUMNS}, {chosen} "
        f"FROM {table} ORDER BY apply, position"
    )
    while some := _fetched(connection, found):
        for apply, position, *values in some:
            fingerprint, reason, restored_at, signals = map(_text, values[:4])
            stored, said = values[4 : 4 + len(COLUMNS)], readable(values[4 + len(COLUMNS) :])
            record = encoded(_row(said, signals))
            sound = _fingerprint_of_values(stored) == fingerprint
            yield Copied(
                apply,
                position,
                fingerprint_of(record) if sound else f"{DAMAGED}{fingerprint}",
                record,
                reason or "",
                restored_at,
            )


def _fetched(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[Sequence[Any]]:
    with exact(connection):
        return cursor.fetchmany(_AT_ONCE)


def _text(value: bytearray | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _row(said: Iterable[Any], signals: str | None) -> dict[str, Any]:
    """Return a row as its record has it: what is NULL is left out."""
    row = {name: value for name, value in zip(COLUMNS, said, strict=True) if value is not None}
    if signals is not None:
        row[SIGNALS] = [{n: v for n, v in json.loads(signals).items() if v is not None}]
    return row


def _fingerprint_of_values(values: Iterable[Value]) -> str:
    """Return the fingerprint of format 1: of the bytes and types of the columns alone."""
    parts: list[bytes | bytearray] = []
    for value in values:
        if isinstance(value, bytearray):
            parts += (b"t%d:" % len(value), value)
        elif value is None:
            parts.append(b"n")
        elif isinstance(value, int):
            parts.append(b"i%d:" % value)
        elif isinstance(value, float):
            parts.append(b"r" + struct.pack(">d", value))
        else:
            parts += (b"b%d:" % len(value), value)
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
