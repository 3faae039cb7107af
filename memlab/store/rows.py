"""Rows exactly as SQLite stores them: every byte, and what type it has.

Read with :func:`memlab.store.database.exact`, a value is None, int, float, bytes (a blob) or
bytearray (text, decoded by nobody, so that text that is not UTF-8 survives too).
"""

import hashlib
import json
import math
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from memlab.store.database import COLUMNS, exact

SIGNALS: Final = "memory_signals"
"""The side table of a store that keeps signals."""

Value = int | float | bytes | bytearray | None


def fingerprint_of(values: Iterable[Value]) -> str:
    """Return a BLAKE2b digest, 32 hexadecimal digits, of the values' bytes and types.

    Examples
    --------
    >>> fingerprint_of([bytearray(b"1")]) == fingerprint_of([b"1"])
    False
    """
    parts: list[bytes | bytearray] = []
    for value in values:
        # Without a call of our own: this runs for every value of every row that a plan names.
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


def fingerprints(connection: sqlite3.Connection, source: str) -> Iterator[tuple[int, str]]:
    """Return position and fingerprint of rows of ``memory_items``, in order of position.

    Parameters
    ----------
    connection : sqlite3.Connection
        Has the store as its main database.
    source : str
        A table, or a query in parentheses, whose column ``position`` names the rows.
    """
    columns = ", ".join(f"item.{name}" for name in COLUMNS)
    return _fingerprints(
        connection,
        f"SELECT item.rowid, {columns} FROM {source} AS chosen "
        "CROSS JOIN main.memory_items AS item ON item.rowid = chosen.position "
        "ORDER BY chosen.position",
    )


def signal_fingerprints(connection: sqlite3.Connection, source: str) -> Iterator[tuple[int, str]]:
    """Return position and fingerprint of the signals of rows that have some."""
    if not signal_columns(connection):
        return iter(())
    return _fingerprints(
        connection,
        f"SELECT item.rowid, side.* FROM {source} AS chosen "
        "CROSS JOIN main.memory_items AS item ON item.rowid = chosen.position "
        f"CROSS JOIN main.{SIGNALS} AS side ON side.memory_id = item.memory_id "
        "ORDER BY chosen.position",
    )


def fingerprints_under_triggers(
    connection: sqlite3.Connection, condition: str
) -> list[tuple[int, str]]:
    """Return position and fingerprint of the rows that meet a condition in SQL.

    None in a store without triggers: there a statement changes the rows it names and no others, and
    reading a whole store takes time.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'trigger'").fetchone():
        return []
    source = f"(SELECT rowid AS position FROM main.memory_items WHERE {condition})"
    return list(fingerprints(connection, source))


def fill_positions(connection: sqlite3.Connection, table: str, positions: Iterable[int]) -> None:
    """Put positions into a new temporary table that :func:`fingerprints` can read."""
    connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    connection.execute(f"CREATE TEMP TABLE {table} (position INTEGER PRIMARY KEY)")
    connection.executemany(
        f"INSERT INTO temp.{table} VALUES (?)", ((position,) for position in positions)
    )


def signal_columns(connection: sqlite3.Connection, schema: str = "main") -> list[str]:
    """Return the columns of the store's side table, none where there is none."""
    found = connection.execute(
        f"SELECT 1 FROM {schema}.sqlite_schema WHERE type = 'table' AND name = ?", (SIGNALS,)
    ).fetchone()
    names = connection.execute("SELECT name FROM pragma_table_info(?, ?)", (SIGNALS, schema))
    return [name for (name,) in names] if found else []


def as_bytes(value: Value) -> bytes | None:
    """Return a value of any type in one that can be compared and looked up."""
    if value is None or isinstance(value, bytes):
        return value
    return bytes(value) if isinstance(value, bytearray) else str(value).encode()


def quoted(name: str) -> str:
    """Return a column's name as SQL, whatever is in it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def as_json(names: list[str], values: Iterable[Value]) -> str:
    """Return named values as a JSON object from which :func:`from_json` gets the same bytes."""
    return json.dumps({name: jsonable(value) for name, value in zip(names, values, strict=True)})


def jsonable(value: Value) -> Any:
    """Return a value as JSON: plain where JSON has it, else ``{"<type>": "<digits>"}``."""
    match value:
        case bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"text": value.hex()}
        case bytes():
            return {"blob": value.hex()}
        case float() if not math.isfinite(value):
            return {"real": str(value)}
    return value


def from_json(text: str) -> dict[str, tuple[str, Any]]:
    """Return each value with the SQL expression that binds it with its type."""
    return {name: _bound(value) for name, value in json.loads(text).items()}


def _fingerprints(connection: sqlite3.Connection, query: str) -> Iterator[tuple[int, str]]:
    with exact(connection):
        for position, *values in connection.execute(query):
            yield position, fingerprint_of(values)


def _bound(value: Any) -> tuple[str, Any]:
    match value:
        case {"text": digits}:
            return "CAST(? AS TEXT)", bytes.fromhex(digits)
        case {"blob": digits}:
            return "?", bytes.fromhex(digits)
        case {"real": word}:
            return "?", float(word)
    return "?", value
