"""Records: the canonical bytes of a row of ``memory_items`` and its signals.

A record is one JSON object in UTF-8, with every byte of the row and the type of each value: first
the columns in :data:`memlab.store.database.COLUMNS`, then an agent's own columns by name, then the
rows of the side table. A NULL in a column without a default is left out, so that a column added
later changes no record. Values without a form in JSON are objects: ``{"blob": "<hexadecimal>"}``,
``{"real": "inf"}``, and ``{"text": "<hexadecimal>"}`` for text that is not UTF-8.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, repeat
from json.encoder import encode_basestring as in_quotes
from typing import Any, Final, NamedTuple, TypeVar

from memlab.errors import ArchiveError, StoreError
from memlab.items import is_load_bearing_stored
from memlab.store.database import COLUMNS, ROWID_NAMES, limit_value_size, text_read_as
from memlab.store.shapes import (
    abbreviated,
    check_integer,
    list_of,
    mapping_of,
    non_empty,
    sqlite_value,
    text,
)
from memlab.store.shapes import fields as shape_of_fields
from memlab.store.signals import HAS_SIGNALS, SIGNALS, signal_columns

Value = int | float | bytes | bytearray | None
"""A value as :func:`memlab.store.database.text_read_as` reads it: bytearray is text, bytes a
blob."""

Item = TypeVar("Item")

Record = tuple[int, bytes]
"""A rowid and the record of the row."""

PLACE_FIELD: Final = b', "place":'
"""Beginning of the field ``place``, which is the last field of a record that has one.

It holds the place of the memory among others. No other field of a record has a space before it."""

ROWS_PER_STATEMENT: Final = 900
"""Maximum number of rows in a statement. Older builds of SQLite accept at most 999 parameters."""

_LARGE_VALUE: Final = 2**17
"""Size in bytes of a value. A row with a larger value is read by a statement of its own."""

_ESCAPED_AS_QUESTION: Final = bytes.maketrans(bytes({*range(32), *b'"\\'}), b"?" * 34)
"""Translation table that replaces by a question mark each character that JSON escapes.

A text that it leaves unchanged is written to JSON as it is."""


class Layout(NamedTuple):
    """Columns of the rows of a store.

    Attributes
    ----------
    columns : tuple of str
        The columns of ``memory_items``.
    defaulted : frozenset of str
        The columns of ``memory_items`` with a default value.
    signals : tuple of str
        The columns of the side table; empty if there is none.
    """

    columns: tuple[str, ...]
    defaulted: frozenset[str]
    signals: tuple[str, ...]


def layout_of(connection: sqlite3.Connection) -> Layout:
    """Return the columns of the rows of a checked store."""
    columns = connection.execute(
        "SELECT name, dflt_value IS NOT NULL FROM pragma_table_xinfo('memory_items') "
        "WHERE hidden = 0"
    ).fetchall()
    own_columns = sorted({name for name, _ in columns} - set(COLUMNS))
    if SIGNALS in own_columns:
        raise StoreError(
            f"memory_items has a column {SIGNALS}, the name of a table that memlab looks for "
            "beside it; rename that column"
        )
    return Layout(
        columns=(*COLUMNS, *own_columns),
        defaulted=frozenset(name for name, has_default in columns if has_default),
        signals=signal_columns(connection),
    )


def fingerprint_of(record: bytes) -> str:
    """Return a BLAKE2b digest of a record without its place: 32 hexadecimal digits.

    >>> fingerprint_of(b'{"memory_id":"m1"}') == fingerprint_of(b'{"memory_id":"m2"}')
    False
    >>> placed = with_place(b'{"memory_id":"m1"}', 3)
    >>> fingerprint_of(placed) == fingerprint_of(b'{"memory_id":"m1"}')
    True
    """
    return blake2b(without_place(record), digest_size=16).hexdigest()


def with_place(record: bytes, place: Any) -> bytes:
    """Return a record with the place of its memory among others, a JSON value."""
    return record[:-1] + PLACE_FIELD + json.dumps(place, separators=(",", ":")).encode() + b"}"


def without_place(record: bytes) -> bytes:
    """Return a record without the place of its memory."""
    start = record.rfind(PLACE_FIELD)  # from the end, this takes a quarter of the time
    if start < 0:
        return record
    return record[:start] + b"}"


def batched(elements: Iterable[Item], size: int = ROWS_PER_STATEMENT) -> Iterator[list[Item]]:
    """Yield the elements in lists of at most `size`, by default as many as one statement takes."""
    remaining = iter(elements)
    while batch := list(islice(remaining, size)):
        yield batch


def records_at(
    connection: sqlite3.Connection, layout: Layout, positions: Iterable[int]
) -> Iterator[Record]:
    """Yield the records at `positions`, in that order; missing rows are left out."""
    for batch in batched(positions):
        records = dict(_read_within(connection, layout, batch))
        for position in batch:
            if position in records:
                yield position, records[position]


def positions_where(connection: sqlite3.Connection, condition: str) -> Iterator[int]:
    """Yield the positions of the rows that meet an SQL condition, in order."""
    selected = connection.execute(
        f"SELECT rowid FROM main.memory_items WHERE {condition} ORDER BY rowid"
    )
    while rows := selected.fetchmany(ROWS_PER_STATEMENT):
        for (position,) in rows:
            yield position


def fingerprint_under_triggers(connection: sqlite3.Connection, condition: str) -> str | None:
    """Return a digest of all rows that meet a condition; None for a store without triggers.

    The digest shows whether a trigger changed a row. Without triggers nothing can, and the rows
    need not be read.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'trigger'").fetchone():
        return None
    digest = blake2b(digest_size=16)
    positions = positions_where(connection, condition)
    for position, record in records_at(connection, layout_of(connection), positions):
        digest.update(b"%d %d " % (position, len(record)) + record)
    return digest.hexdigest()


def fill_positions(connection: sqlite3.Connection, table: str, positions: Iterable[int]) -> None:
    """Insert positions into a new temporary table."""
    connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    connection.execute(f"CREATE TEMP TABLE {table} (position INTEGER PRIMARY KEY)")
    connection.executemany(
        f"INSERT INTO temp.{table} VALUES (?)", ((position,) for position in positions)
    )


def is_as_archived(record: bytes, archived: bytes, layout: Layout) -> bool:
    """Return whether a row equals its archived record.

    Two differences do not count: own columns of the agent that were added since, and archived
    signals for which the store has no column. An archived value of a column of ``memory_items``
    that was dropped since counts: the row lacks that value, and a restore would be rejected.
    """
    if record == archived:
        return True
    current_row = json.loads(record)
    archived_row = json.loads(archived)
    current_signals = current_row.pop(SIGNALS, [])
    archived_signals = _storable_signals(archived_row.pop(SIGNALS, []), layout)
    # Columns of an agent's own that were added since do not count.
    for name in current_row.keys() - archived_row.keys() - set(COLUMNS):
        del current_row[name]
    return bool(current_row == archived_row and current_signals == archived_signals)


def without_signals(record: bytes) -> bytes:
    """Return a record without signals."""
    if f'"{SIGNALS}":['.encode() not in record:
        return record
    return encoded({name: value for name, value in json.loads(record).items() if name != SIGNALS})


def extra_columns_of(records: Iterable[Record]) -> list[str]:
    """Return the additional columns that an empty store needs for `records`."""
    names = {name for _, record in records for name in json.loads(record)}
    return sorted(names - {*COLUMNS, SIGNALS})


def selecting(columns: Iterable[str], table: str = "item") -> str:
    """Return the SQL that selects columns of a table, given its name or alias."""
    return ", ".join(f"{table}.{quoted(name)}" for name in columns)


def check_canonical(record: bytes, fields: dict[str, Any]) -> None:
    """Check that a record is written canonically, so that equal rows have equal records."""
    own_fields = dict(fields)
    # An agent's own column may be named "place", too. Only the space before the key shows that the
    # field is the place among others, which `encoded` does not write.
    place = own_fields.pop("place", None) if PLACE_FIELD in record else None
    canonical = encoded(own_fields)
    if place is not None:
        canonical = with_place(canonical, place)
    if record != canonical:
        raise ValueError("its record is not in canonical form")


def check_row(key: int | str, record: bytes, fields: dict[str, Any]) -> None:
    """Check that a record from an untrusted file can be that of a deleted row."""
    check_any_row(key, record, fields)
    if _is_load_bearing(fields["kind"], fields["tags_json"]):
        raise ValueError("it is load-bearing, and such a row is never deleted")


def check_any_row(key: int | str, record: bytes, fields: dict[str, Any]) -> None:
    """Check that a record from an untrusted file can be that of a row of ``memory_items``."""
    check_integer(key)
    check_canonical(record, fields)
    non_texts = {
        name: value for name, value in fields.items() if type(value) is not str or name == SIGNALS
    }
    _check_non_texts(non_texts)
    for name in fields.keys() - _KNOWN_FIELDS:
        text(name)
        if name.lower() in ROWID_NAMES or "\0" in name:
            raise ValueError(f"{abbreviated(name)} is not a column of memory_items")
    texts = fields.keys() - non_texts.keys()
    if not texts >= {"kind", "tags_json"}:
        raise ValueError("it lacks a kind or tags")


def encoded(row: dict[str, Any]) -> bytes:
    """Return the bytes of a record for a row of values as they were read."""
    try:
        return _JSON.encode(row).encode()
    except ValueError:  # the row has a number that is not finite
        return _JSON.encode({name: jsonable(value) for name, value in row.items()}).encode()


def jsonable(value: Value) -> Any:
    """Return a value as JSON: unchanged if JSON has its type, else an object with its type."""
    if isinstance(value, bytearray):  # checked first, because most values are texts
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"text": value.hex()}
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"real": str(value)}
    return value


def as_json(value: Value) -> str:
    """Return a value as JSON text; avoid the encoder where Python writes the same."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _JSON.encode(jsonable(value))


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=jsonable
)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _read_within(
    connection: sqlite3.Connection, layout: Layout, positions: list[int]
) -> list[Record]:
    """Read rows; halve the batch if one of them has a large value."""
    if len(positions) > 1:
        try:
            with limit_value_size(connection, _LARGE_VALUE):
                return _read(connection, layout, positions)
        except sqlite3.DataError:
            middle = len(positions) // 2
            first_half = _read_within(connection, layout, positions[:middle])
            return first_half + _read_within(connection, layout, positions[middle:])
    return _read(connection, layout, positions)


def _read(connection: sqlite3.Connection, layout: Layout, positions: list[int]) -> list[Record]:
    """Read rows column by column, because encoding each row by itself takes most of the time."""
    signals = signals_at(connection, layout, positions)
    try:
        selected = _rows_at(connection, layout, positions, str)
    except sqlite3.OperationalError as error:
        if "Could not decode to UTF-8" not in str(error):
            raise
        selected = _rows_at(connection, layout, positions, bytearray)
    if not selected:
        return []
    read_positions, *columns = zip(*selected, strict=True)
    count = len(read_positions)
    # A row is the text of its values with constant text between them. Each piece is one such part,
    # for all rows: a constant text (repeated), or the values of a column. The constant text after
    # a value and that before the next value are joined into one piece.
    pieces: list[Iterable[str]] = []
    text_between = ""
    for name, values in zip(layout.columns, columns, strict=True):
        has_default = name in layout.defaulted
        field = _column_as_json(f",{in_quotes(name)}:", values, has_default=has_default)
        pieces.append(repeat(text_between + field.before, count))
        pieces.append(field.values)
        text_between = field.after
    pieces.append(repeat(text_between + "}", count))
    rows = map("".join, zip(*pieces, strict=True))
    records = [
        # Each row begins with the comma of its first field, which the brace replaces.
        (position, b"{" + row.encode()[1:])
        for position, row in zip(read_positions, rows, strict=True)
    ]
    if not signals:
        return records
    return [
        (position, _with_signals(record, signals.get(position))) for position, record in records
    ]


def _with_signals(record: bytes, signals: list[dict[str, Any]] | None) -> bytes:
    """Return a record with the signals of its row, or None, as the last field."""
    if signals is None:
        return record
    return record[:-1] + b"," + encoded({SIGNALS: signals})[1:]


def _rows_at(
    connection: sqlite3.Connection, layout: Layout, positions: list[int], text_type: type
) -> list[tuple[Any, ...]]:
    """Return the rows at some positions, with texts as `text_type`: str or bytearray.

    If the positions are dense, a range scan is faster than single lookups.
    """
    where = f"IN ({', '.join('?' * len(positions))})"
    parameters = positions
    if set(map(type, positions)) == {int}:
        first = min(positions)
        last = max(positions)
        if last - first < 2 * len(positions):
            where = "BETWEEN ? AND ?"
            parameters = [first, last]
    with text_read_as(connection, text_type):
        return connection.execute(
            f"SELECT rowid, {selecting(layout.columns)} FROM main.memory_items AS item "
            f"WHERE rowid {where}",
            parameters,
        ).fetchall()


class _JsonColumn(NamedTuple):
    """The values of a column as JSON, with the text that is the same before and after each."""

    before: str
    values: Iterable[str]
    after: str


def _column_as_json(prefix: str, values: Sequence[Any], *, has_default: bool) -> _JsonColumn:
    """Return the values of a column as JSON; `prefix` is its name as a key."""
    try:
        texts = "".join(values).encode()
    except TypeError:  # not all values are texts
        # A sum is finite only if every value is; it is faster than a test of each value. If finite
        # values add up to infinity, they are written one by one, with the same result.
        if set(map(type, values)) == {float} and math.isfinite(sum(values)):
            return _JsonColumn(prefix, map(repr, values), "")
        # NULL is left out unless the column has another default.
        null_field = f"{prefix}null" if has_default else ""
        return _JsonColumn("", (_field_as_json(prefix, value, null_field) for value in values), "")
    if texts.translate(_ESCAPED_AS_QUESTION) == texts:
        return _JsonColumn(f'{prefix}"', values, '"')
    return _JsonColumn(prefix, map(in_quotes, values), "")


def _field_as_json(prefix: str, value: Any, null_field: str) -> str:
    """Return a field of a record as JSON; `null_field` for NULL."""
    if value is None:
        return null_field
    if type(value) is str:
        return prefix + in_quotes(value)
    return prefix + as_json(value)


def signals_at(
    connection: sqlite3.Connection, layout: Layout, positions: Sequence[int]
) -> dict[int, list[dict[str, Any]]]:
    """Return the row of the side table for each of some rows, in a list of one, by position.

    The side table has one row for an id at most, but the format of records has a list.
    """
    if not layout.signals:
        return {}
    marks = ", ".join("?" * len(positions))
    columns = selecting(layout.signals, "signal")
    with text_read_as(connection):
        selected = connection.execute(
            f"SELECT item.rowid, {columns} FROM main.memory_items AS item JOIN main.{SIGNALS} AS "
            f"signal ON {HAS_SIGNALS} WHERE item.rowid IN ({marks})",
            positions,
        ).fetchall()
    signals = {}
    for position, *values in selected:
        pairs = zip(layout.signals, map(jsonable, values), strict=True)
        signals[position] = [{name: value for name, value in pairs if value is not None}]
    return signals


_DELETE_STALE_SIGNALS: Final = (
    f"DELETE FROM main.{SIGNALS} WHERE memory_id COLLATE BINARY = "
    "(SELECT memory_id FROM main.memory_items WHERE rowid = ?)"
)
"""Deletes signals that an earlier row with the same id left behind."""
_KNOWN_FIELDS: Final = frozenset({*COLUMNS, SIGNALS})
_check_non_texts: Final = shape_of_fields(
    {SIGNALS: non_empty(list_of(mapping_of(sqlite_value)))},
    may_be_absent={SIGNALS},
    others=sqlite_value,
)
"""Checks the values of a row that are not texts; :func:`check_canonical` has checked the texts."""
_is_load_bearing: Final = lru_cache(4096)(is_load_bearing_stored)


def insert_records(
    connection: sqlite3.Connection, layout: Layout, records: Iterable[Record]
) -> int:
    """Insert rows, with their signals if the store has a side table; return the number of rows."""
    table = "main.memory_items"
    count = 0
    names: tuple[str, ...] = ()
    waiting: list[tuple[Any, ...]] = []
    for position, record in records:
        row = {"rowid": position, **json.loads(record)}
        signals = row.pop(SIGNALS, ())
        is_plain = not signals and dict not in map(type, row.values())
        fits_batch = is_plain and len(waiting) < ROWS_PER_STATEMENT and tuple(row) == names
        if waiting and not fits_batch:
            _insert_plain(connection, table, names, waiting)
            waiting = []
        if not waiting:
            names = tuple(row)
            _check_columns(names, layout)
        if is_plain:
            waiting.append(tuple(row.values()))
        else:
            insert_row(connection, table, row)
        for signal in _storable_signals(signals, layout):
            connection.execute(_DELETE_STALE_SIGNALS, (position,))
            insert_row(connection, f"main.{SIGNALS}", signal)
        count += 1
    _insert_plain(connection, table, names, waiting)
    return count


def _check_columns(names: tuple[str, ...], layout: Layout) -> None:
    """Raise ArchiveError if the store lacks a column of a row, except the first, its rowid."""
    missing = set(names[1:]) - set(layout.columns)
    if missing:
        raise ArchiveError(
            f"memory_items has no column {', '.join(sorted(missing))} any more; nothing was "
            "restored: restore into a new file"
        )


def _insert_plain(
    connection: sqlite3.Connection,
    table: str,
    names: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    """Insert rows by one statement; their values are bound as they are in JSON."""
    if rows:
        columns = ", ".join(map(quoted, names))
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


def _storable_signals(signals: Iterable[dict[str, Any]], layout: Layout) -> list[dict[str, Any]]:
    """Return the signals of a row for which the store has columns."""
    storable_signals = []
    for signal in signals:
        fields = {name: value for name, value in signal.items() if name in layout.signals}
        if fields:
            storable_signals.append(fields)
    return storable_signals


def insert_row(
    connection: sqlite3.Connection, table: str, row: dict[str, Any], verb: str = "INSERT"
) -> None:
    """Insert a row of JSON values with their stored types."""
    bindings = [bound_value(value) for value in row.values()]
    columns = ", ".join(map(quoted, row))
    expressions = ", ".join(expression for expression, _ in bindings)
    parameters = [parameter for _, parameter in bindings]
    connection.execute(f"{verb} INTO {table} ({columns}) VALUES ({expressions})", parameters)


def bound_value(value: Any) -> tuple[str, Any]:
    """Return the SQL expression and the parameter that bind a JSON value with its stored type."""
    match value:
        case {"text": digits}:
            return "CAST(? AS TEXT)", bytes.fromhex(digits)
        case {"blob": digits}:
            return "?", bytes.fromhex(digits)
        case {"real": number}:
            return "?", float(number)
    return "?", value
