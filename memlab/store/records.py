"""Records: a row of ``memory_items``, and what belongs to it, as canonical bytes.

A record is one JSON object in UTF-8 with every byte of the row and the type of each value: columns
as in :data:`memlab.store.database.COLUMNS`, an agent's own by name, then the rows of the side
table. A NULL is left out where a row has it by itself, so that a column added later changes no
record. What JSON has no form for is an object: ``{"blob": "<hexadecimal>"}``, ``{"real": "inf"}``,
and ``{"text": "<hexadecimal>"}`` for text that is no UTF-8.
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
from memlab.store.database import COLUMNS, HIDING, text_as_bytearray, values_up_to
from memlab.store.shapes import fields, integer, list_of, mapping_of, non_empty, shown, stored, text
from memlab.store.signals import HAS_SIGNALS, SIGNALS, signal_columns

Value = int | float | bytes | bytearray | None
"""As :func:`memlab.store.database.exact` reads it: text is a bytearray, a blob bytes."""

Item = TypeVar("Item")

Record = tuple[int, bytes]
"""A rowid and the record of the row."""

PLACE: Final = b', "place":'
"""Begins the last field of a record that says where among others its memory stands. No other field
of a record has a space before it."""

AT_ONCE: Final = 900
"""Rows read by one statement; older builds of SQLite take no more than 999 parameters."""


_LARGE: Final = 2**17
"""Bytes of a value above which its row is read alone."""


_ESCAPED: Final = bytes.maketrans(bytes({*range(32), *b'"\\'}), b"?" * 34)
"""Changes a text that has anything which JSON escapes."""


class Layout(NamedTuple):
    """What the rows of a store are made of."""

    columns: tuple[str, ...]
    defaulted: frozenset[str]
    signals: tuple[str, ...]


def layout_of(connection: sqlite3.Connection) -> Layout:
    """Return what the rows of a checked store are made of."""
    found = connection.execute(
        "SELECT name, dflt_value IS NOT NULL FROM pragma_table_xinfo('memory_items') "
        "WHERE hidden = 0"
    ).fetchall()
    others = sorted({name for name, _ in found} - set(COLUMNS))
    if SIGNALS in others:
        raise StoreError(
            f"memory_items has a column {SIGNALS}, the name of a table that memlab looks for "
            "beside it; rename that column"
        )
    defaulted = frozenset(name for name, has_default in found if has_default)
    return Layout((*COLUMNS, *others), defaulted, signal_columns(connection))


def fingerprint_of(record: bytes) -> str:
    """Return a BLAKE2b digest of a record, without its place among others: 32 hexadecimal digits.

    >>> fingerprint_of(b'{"memory_id":"m1"}') == fingerprint_of(b'{"memory_id":"m2"}')
    False
    >>> there = with_place(b'{"memory_id":"m1"}', 3)
    >>> fingerprint_of(there) == fingerprint_of(b'{"memory_id":"m1"}')
    True
    """
    at = record.rfind(PLACE)  # from the end it is found, or not, in a quarter of the time
    return blake2b(record if at < 0 else record[:at] + b"}", digest_size=16).hexdigest()


def with_place(record: bytes, place: Any) -> bytes:
    """Return a record that also says where among others its memory stands, as JSON."""
    return record[:-1] + PLACE + json.dumps(place, separators=(",", ":")).encode() + b"}"


def without_place(record: bytes) -> bytes:
    """Return what a record says of the memory alone."""
    at = record.rfind(PLACE)
    return record if at < 0 else record[:at] + b"}"


def batched(each: Iterable[Item], size: int = AT_ONCE) -> Iterator[list[Item]]:
    """Yield some at a time, by default as many as one statement or transaction takes."""
    remaining = iter(each)
    while some := list(islice(remaining, size)):
        yield some


def records_at(
    connection: sqlite3.Connection, layout: Layout, positions: Iterable[int]
) -> Iterator[Record]:
    """Yield the rows at `positions` that are there, in that order, some hundred at a time."""
    for wanted in batched(positions):
        found = dict(_read_within(connection, layout, wanted))
        yield from [(position, found[position]) for position in wanted if position in found]


def positions_where(connection: sqlite3.Connection, condition: str) -> Iterator[int]:
    """Yield the positions of the rows that meet a condition in SQL, in order."""
    found = connection.execute(
        f"SELECT rowid FROM main.memory_items WHERE {condition} ORDER BY rowid"
    )
    while some := found.fetchmany(AT_ONCE):
        yield from (position for (position,) in some)


def fingerprint_under_triggers(connection: sqlite3.Connection, condition: str) -> str | None:
    """Return a fingerprint of all rows that meet a condition; None in a store without triggers."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'trigger'").fetchone():
        return None
    together = blake2b(digest_size=16)
    positions = positions_where(connection, condition)
    for position, record in records_at(connection, layout_of(connection), positions):
        together.update(b"%d %d " % (position, len(record)) + record)
    return together.hexdigest()


def fill_positions(connection: sqlite3.Connection, table: str, positions: Iterable[int]) -> None:
    """Put positions into a new temporary table."""
    connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    connection.execute(f"CREATE TEMP TABLE {table} (position INTEGER PRIMARY KEY)")
    connection.executemany(
        f"INSERT INTO temp.{table} VALUES (?)", ((position,) for position in positions)
    )


def is_as_archived(record: bytes, archived: bytes, layout: Layout) -> bool:
    """Whether a row of a store says all that an archived one said, as far as the store can."""
    if record == archived:
        return True
    now = json.loads(record)
    then = json.loads(archived)
    signals_now = now.pop(SIGNALS, [])
    known = _known(then.pop(SIGNALS, []), layout)
    given = now.keys() - then.keys() - set(COLUMNS)
    then |= {name: now[name] for name in given}
    return bool(now == then and signals_now == known)


def without_signals(record: bytes) -> bytes:
    """Return a record as it is in a store that keeps no signals."""
    if f'"{SIGNALS}":['.encode() not in record:
        return record
    return encoded({name: value for name, value in json.loads(record).items() if name != SIGNALS})


def columns_of(records: Iterable[Record]) -> list[str]:
    """Return the further columns that an empty store must have to take `records`."""
    others = {name for _, record in records for name in json.loads(record)}
    return sorted(others - {*COLUMNS, SIGNALS})


def selecting(columns: Iterable[str], table: str = "item") -> str:
    """Return the SQL that selects columns of a table, by its name or alias."""
    return ", ".join(f"{table}.{quoted(name)}" for name in columns)


def check_canonical(record: bytes, said: dict[str, Any]) -> None:
    """Check that a record is written as records are: two that say the same are the same."""
    own = dict(said)
    place = own.pop("place", None) if PLACE in record else None
    if record != (encoded(own) if place is None else with_place(encoded(own), place)):
        raise ValueError("its record is not written as records are")


def check_row(key: int | str, record: bytes, said: dict[str, Any]) -> None:
    """Check that a record of anybody's can be that of a row that was deleted."""
    check_any_row(key, record, said)
    if _is_load_bearing(said["kind"], said["tags_json"]):
        raise ValueError("it is load-bearing, and nothing deletes such a row")


def check_any_row(key: int | str, record: bytes, said: dict[str, Any]) -> None:
    """Check that a record of anybody's can be that of a row of ``memory_items``."""
    integer()(key)
    check_canonical(record, said)
    odd = {name: value for name, value in said.items() if type(value) is not str or name == SIGNALS}
    _ODD(odd)
    for name in said.keys() - _KNOWN:
        text(name)
        if name.lower() in HIDING or "\0" in name:
            raise ValueError(f"{shown(name)} is no column of memory_items")
    if not said.keys() - odd.keys() >= {"kind", "tags_json"}:
        raise ValueError("it is of no kind, or has no tags")


def encoded(row: dict[str, Any]) -> bytes:
    """Return a row of JSON values, blobs and numbers as the bytes of a record."""
    try:
        return _JSON.encode(row).encode()
    except ValueError:  # a number that is not finite
        return _JSON.encode({name: jsonable(value) for name, value in row.items()}).encode()


def jsonable(value: Value) -> Any:
    """Return a value as JSON: plain where JSON has it, else an object that names its type."""
    if isinstance(value, bytearray):  # first, for most are
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
    """Return a value as text of JSON, without asking the encoder where Python says the same."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _JSON.encode(jsonable(value))


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=jsonable
)


def quoted(name: str) -> str:
    """Return a column's name as SQL, whatever is in it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _read_within(
    connection: sqlite3.Connection, layout: Layout, positions: list[int]
) -> list[Record]:
    """Read rows, fewer at a time where one of them has a large value."""
    if len(positions) > 1:
        try:
            with values_up_to(connection, _LARGE):
                return _read(connection, layout, positions)
        except sqlite3.DataError:
            middle = len(positions) // 2
            parts = (positions[:middle], positions[middle:])
            return [each for part in parts for each in _read_within(connection, layout, part)]
    return _read(connection, layout, positions)


def _read(connection: sqlite3.Connection, layout: Layout, positions: list[int]) -> list[Record]:
    """Read rows by columns: an encoder that is asked for each row takes longer than all else."""
    signals = signals_at(connection, layout, positions)
    try:
        found = _rows_at(connection, layout, positions, str)
    except sqlite3.OperationalError as error:
        if "Could not decode to UTF-8" not in str(error):
            raise
        found = _rows_at(connection, layout, positions, bytearray)
    if not found:
        return []
    there, *columns = zip(*found, strict=True)
    pieces: list[Iterable[str]] = []
    constant = ""
    for name, values in zip(layout.columns, columns, strict=True):
        defaulted = name in layout.defaulted
        before, each, after = _field(f",{in_quotes(name)}:", values, defaulted=defaulted)
        pieces += repeat(constant + before, len(there)), each
        constant = after
    rows = map("".join, zip(*pieces, repeat(constant + "}", len(there)), strict=True))
    records = [(at, b"{" + row.encode()[1:]) for at, row in zip(there, rows, strict=True)]
    if not signals:
        return records
    return [
        (at, record[:-1] + b"," + encoded({SIGNALS: signals[at]})[1:] if at in signals else record)
        for at, record in records
    ]


def _rows_at(
    connection: sqlite3.Connection, layout: Layout, positions: list[int], text: type
) -> list[tuple[Any, ...]]:
    """Return the rows at some positions; going through all is quicker than looking each up."""
    where = f"IN ({', '.join('?' * len(positions))})"
    bound = positions
    if {*map(type, positions)} == {int}:
        first = min(positions)
        last = max(positions)
        if last - first < 2 * len(positions):
            where = "BETWEEN ? AND ?"
            bound = [first, last]
    with text_as_bytearray(connection, text):
        return connection.execute(
            f"SELECT rowid, {selecting(layout.columns)} FROM main.memory_items AS item "
            f"WHERE rowid {where}",
            bound,
        ).fetchall()


def _field(head: str, values: Sequence[Any], *, defaulted: bool) -> tuple[str, Iterable[str], str]:
    """Return a column as JSON: what stands before and after each value's own text."""
    try:
        texts = "".join(values).encode()
    except TypeError:  # not all are texts
        if {*map(type, values)} == {float} and math.isfinite(sum(values)):
            return head, map(repr, values), ""
        absent = f"{head}null" if defaulted else ""  # NULL only where no row has it so
        said = (
            absent
            if value is None
            else head + (in_quotes(value) if type(value) is str else as_json(value))
            for value in values
        )
        return "", said, ""
    if texts.translate(_ESCAPED) == texts:
        return f'{head}"', values, '"'
    return head, map(in_quotes, values), ""


def signals_at(
    connection: sqlite3.Connection, layout: Layout, positions: Sequence[int]
) -> dict[int, list[dict[str, Any]]]:
    """Return what the side table says of rows, by position."""
    if not layout.signals:
        return {}
    marks = ", ".join("?" * len(positions))
    chosen = selecting(layout.signals, "signal")
    with text_as_bytearray(connection):
        found = connection.execute(
            f"SELECT item.rowid, {chosen} FROM main.memory_items AS item JOIN main.{SIGNALS} AS "
            f"signal ON {HAS_SIGNALS} WHERE item.rowid IN ({marks})",
            positions,
        ).fetchall()
    said = {}
    for position, *values in found:
        pairs = zip(layout.signals, map(jsonable, values), strict=True)
        said[position] = [{name: value for name, value in pairs if value is not None}]
    return said


_MAKE_WAY: Final = (
    f"DELETE FROM main.{SIGNALS} WHERE memory_id COLLATE BINARY = "
    "(SELECT memory_id FROM main.memory_items WHERE rowid = ?)"
)
"""Deletes what is left there of a row of the same id: none but the one just put back has it."""
_KNOWN: Final = frozenset({*COLUMNS, SIGNALS})
_ODD: Final = fields(
    {SIGNALS: non_empty(list_of(mapping_of(stored)))}, absent={SIGNALS}, others=stored
)
"""Of what a row has beside texts, which :func:`check_canonical` has looked at."""
_is_load_bearing: Final = lru_cache(4096)(is_load_bearing_stored)


def insert_records(
    connection: sqlite3.Connection, layout: Layout, records: Iterable[Record]
) -> int:
    """Put rows and their signals, where it keeps some, into a store; return how many rows."""
    table = "main.memory_items"
    count = 0
    names: tuple[str, ...] = ()
    waiting: list[tuple[Any, ...]] = []
    for position, record in records:
        row = {"rowid": position} | json.loads(record)
        signals = row.pop(SIGNALS, ())
        is_plain = not signals and dict not in map(type, row.values())
        if waiting and (not is_plain or len(waiting) == AT_ONCE or tuple(row) != names):
            _insert_plain(connection, table, names, waiting)
            waiting = []
        if not waiting:
            names = tuple(row)
            _check_columns(names, layout)
        if is_plain:
            waiting.append(tuple(row.values()))
        else:
            insert_row(connection, table, row)
        for each in _known(signals, layout):
            connection.execute(_MAKE_WAY, (position,))
            insert_row(connection, f"main.{SIGNALS}", each)
        count += 1
    _insert_plain(connection, table, names, waiting)
    return count


def _check_columns(names: tuple[str, ...], layout: Layout) -> None:
    """Refuse a row of which the store lacks a column; the first name is that of its rowid."""
    if missing := {*names[1:]} - {*layout.columns}:
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
    """Insert rows whose values are all bound as JSON has them, by one statement."""
    if rows:
        columns = ", ".join(map(quoted, names))
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


def _known(signals: Iterable[dict[str, Any]], layout: Layout) -> list[dict[str, Any]]:
    """Return of what was said of a row what the store has columns for."""
    kept = ({n: value for n, value in each.items() if n in layout.signals} for each in signals)
    return [each for each in kept if each]


def insert_row(
    connection: sqlite3.Connection, table: str, row: dict[str, Any], insert: str = "INSERT"
) -> None:
    """Insert a row of JSON values as they were stored."""
    bound = [bound_value(value) for value in row.values()]
    connection.execute(
        f"{insert} INTO {table} ({', '.join(map(quoted, row))}) "
        f"VALUES ({', '.join(sql for sql, _ in bound)})",
        [value for _, value in bound],
    )


def bound_value(value: Any) -> tuple[str, Any]:
    """Return the SQL expression that binds a JSON value with its type, and what it binds."""
    match value:
        case {"text": digits}:
            return "CAST(? AS TEXT)", bytes.fromhex(digits)
        case {"blob": digits}:
            return "?", bytes.fromhex(digits)
        case {"real": word}:
            return "?", float(word)
    return "?", value
