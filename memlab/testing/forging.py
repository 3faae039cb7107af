"""Forged values, archives and plans, as an attacker could write them. A seed determines each."""

import json
import random
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from memlab.store.records import encoded, fingerprint_of, with_place

HOSTILE_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**63 - 1,
    -(2**63),
    2**63,
    10**30,
    -(10**400),
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "\0",
    "x" * 5000,
    "é🦀",
    "\ud800",
    "d1",
    "m0",
    "s1",
    "a.md",
    "episodic",
    "semantic",
    "../../outside",
    "../../outside/canary",
    "/tmp/outside",
    "/etc/passwd",
    "a/b",
    ".",
    "..",
    "MEMORY.md",
    "memlab.toml",
    "$x",
    "$xzz",
    "$$",
    "-1",
    "1e999",
    "recent",
    "[" * 3000,
    "2026-03-01T12:00:00Z",
    "2026-03-01",
    "0001-01-01T00:00:00-12:00",
    "9999-99-99",
    "2016-12-31T23:59:60Z",
    "rowid",
    '["rejected-path"]',
    '{"session_id": "s1"}',
    [],
    {},
    [[]],
    [None],
    [1, "a"],
    {"a": {"b": []}},
    {"session_id": "s1"},
    [{}] * 30,
    {"blob": "00ff"},
    {"blob": "zz"},
    {"blob": "0"},
    {"real": "inf"},
    {"real": "nan"},
    {"blob": "00", "text": "00"},
    {"text": "ff", "encoding": "UTF-16le"},
    {"memory_id": "m0"},
    {"text": "ff"},
    {"text": 5},
)
"""Values that replace any value of JSON."""

HOSTILE_COLUMN_VALUES: Final = (
    None,
    0,
    -1,
    10**18,
    2**63 - 1,
    -(2**63),
    0.5,
    float("inf"),
    -1e308,
    "",
    "\0",
    "episodic\0",
    "x" * 70_000,
    "é" * 3000,
    "'); DROP TABLE memory_items;--",
    b"",
    b"\xff\xfe",
    b"{}",
    b"episodic",
    "\ud800".encode("utf-8", "surrogatepass"),
    "0" * 64,
    "f" * 32,
    "yesterday",
    "2025-02-30T00:00:00+00:00",
    "2026-03-01T12:00:00",
    "9999-12-31T23:59:59.999999-12:00",
    "0001-01-01T00:00:00-12:00",
    "2025-01-01T00:00:00.123456789+00:00",
    "{}",
    "[]",
    "[]" * 10,
    "null",
    "NaN",
    "1e999",
    "[" * 5000,
    '{"a": ' * 3000,
    '["a", 1]',
    '["rejected-path"]',
    '["\\ud800"]',
    '{"a": [1, 2]}',
    '[["a", 1]]',
    '[[1e400, "x"]]',
    '[[1, "x"], 5]',
)
"""Values that replace the value of any column of a table."""

HOSTILE_BYTES: Final = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b" " * 999,
    b"---\n",
    b"<!-- ",
    b"-->",
    b"```\n",
    b"[" * 3000,
    b"\\[" * 3000,
    b"](a.md)",
    b"[[a]]",
    b"[x](../../outside/canary)",
    b"[x](/etc/passwd)",
    b"{",
    b"}",
    b'"',
    b"= ",
    b"''' ",
    b"# ",
    b"\x1b[31m",
    b"0",
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"nan",
    b"true",
    b"null",
    b"x" * 70_000,
    "né 🦀".encode(),
)
"""Bytes that are inserted into a file."""

SCHEMA_CHANGES: Final = (
    "CREATE TRIGGER t AFTER UPDATE ON applies BEGIN DELETE FROM archived; END",
    "CREATE TRIGGER t AFTER INSERT ON archived BEGIN DELETE FROM archived; END",
    "CREATE INDEX i ON archived (hex(zeroblob(1000000)))",
    "ALTER TABLE archived ADD COLUMN more AS (hex(zeroblob(100000000)))",
    "ALTER TABLE archived RENAME TO kept; CREATE VIEW archived AS SELECT * FROM kept",
    "DROP TABLE applies; CREATE TABLE applies (apply, digest)",
    "DROP TABLE about",
    "PRAGMA user_version = 7",
)
"""Statements that change the schema of an archive."""

COLUMNS: Final = {
    "applies": "digest policy made_at memories archived_at finished_at plan_json_zlib",
    "archived": "apply key fingerprint layout fields reason tokens restored_at",
    "layouts": "paths has_place",
    "about": "value",
    "dropped": "apply digest deleted_at dropped_at facts",
}
"""Columns of each table of an archive that are forged, separated by spaces."""

_IMPOSSIBLE: Final = (
    sqlite3.Error,
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    RecursionError,
)
"""Errors of a change that an earlier one made impossible, for example by dropping a table."""


def _record(fields: str, paths: str) -> dict[str, Any]:
    """Return a record from its columns: an object, or a list of values named by `paths`."""
    values: Any = json.loads(fields)
    if isinstance(values, dict):
        return values
    return dict(zip(json.loads(paths), values, strict=True))


def forge(archive: Path, rng: random.Random) -> str:
    """Forge a closed archive, and return the names of the changes that were tried."""
    names = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        (change,) = rng.choices(CHANGES, WEIGHTS)
        with closing(sqlite3.connect(archive, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            with suppress(*_IMPOSSIBLE):
                change(connection, rng)
        names.append(change.__name__)
    if rng.random() < 0.1:
        archive.write_bytes(mutated_bytes(archive.read_bytes(), rng))
        names.append("mutated_bytes")
    return ", ".join(names)


def forge_records(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change values of records; in nine of ten the fingerprint is changed to match."""
    rows = [(rowid, record) for rowid, _, record in _records(connection)]
    for rowid, record in rng.sample(rows, min(len(rows), rng.choice((1, 1, 2, 8)))):
        parsed = json.loads(record)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            parsed = mutated(parsed, rng)
        has_new_fingerprint = rng.random() < 0.9
        record_bytes = forged_record(parsed, rng)
        _write_record(connection, rowid, record_bytes, with_fingerprint=has_new_fingerprint)


def swap_values(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Copy fields of one record into another, which may get a key that does not exist."""
    rows = _records(connection)
    rowid, _, record = rng.choice(rows)
    _, other_key, other_record = rng.choice(rows)
    parsed = json.loads(record)
    other = json.loads(other_record)
    for name in rng.sample(list(other), rng.randrange(1, len(other) + 1)):
        parsed[name] = other[name]
    _write_record(connection, rowid, canonical(parsed))
    if rng.random() < 0.3:
        connection.execute("UPDATE archived SET key = ? WHERE rowid = ?", (f"{other_key}x", rowid))


def _write_record(
    connection: sqlite3.Connection, rowid: int, record: bytes, *, with_fingerprint: bool = True
) -> None:
    """Write a record into an archive, by default with the fingerprint that matches it."""
    digest = bytes.fromhex(fingerprint_of(record))
    connection.execute(
        "UPDATE archived SET fields = ?, fingerprint = iif(?, ?, fingerprint) WHERE rowid = ?",
        (record.decode(errors="replace"), with_fingerprint, digest, rowid),
    )


def _records(connection: sqlite3.Connection) -> list[tuple[int, Any, str]]:
    """Return the row number, the key and the record of each archived memory."""
    rows = connection.execute(
        "SELECT archived.rowid, key, fields, paths FROM archived JOIN layouts USING (layout)"
    )
    return [(rowid, key, json_text(_record(fields, paths))) for rowid, key, fields, paths in rows]


def forge_columns(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Set a column of a table to one value, in all rows or in each fourth."""
    table = rng.choice(list(COLUMNS))
    column = rng.choice(COLUMNS[table].split())
    value = rng.choice(HOSTILE_COLUMN_VALUES)
    if column in ("key", "restored_at") and rng.random() < 0.5:
        value = rng.choice((1, 3, 10**6, "a.md", "s1", "../a.md", "betterdb_ac:mem:x", "other:key"))
    is_in_all_rows = table == "about" or rng.random() < 0.2  # the table about has few rows
    condition = "1" if is_in_all_rows else f"rowid % 4 = {rng.randrange(4)}"
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {condition}", (value,))


def forge_facts(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change the facts that the archive keeps of up to two erased memories."""
    rows = connection.execute("SELECT rowid, facts FROM dropped").fetchall()
    for rowid, facts in rng.sample(rows, min(len(rows), 2)):
        parsed = mutated(json.loads(facts), rng)
        connection.execute(
            "UPDATE dropped SET facts = ? WHERE rowid = ?", (json_text(parsed), rowid)
        )


def delete_rows(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Delete each third row of a table, or all rows of the table ``about``."""
    table = rng.choice(("applies", "archived", "about", "dropped"))
    condition = "1" if table == "about" else f"rowid % 3 = {rng.randrange(3)}"
    connection.execute(f"DELETE FROM {table} WHERE {condition}")


def forge_plans(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Replace the stored plans by a changed plan, a decompression bomb or a part of the plan."""
    (packed,) = connection.execute("SELECT plan_json_zlib FROM applies LIMIT 1").fetchone()
    parsed = json.loads(zlib.decompress(packed)) if packed else {}
    match rng.choice(("changed", "large", "deeply nested", "cut off")):
        case "changed":
            forged = zlib.compress(json_text(mutated(parsed, rng)).encode(errors="replace"))
        case "large":
            forged = zlib.compress(b" " * 50_000_000)
        case "deeply nested":
            forged = zlib.compress(b"[" * 100_000)
        case _:
            forged = (packed or b"")[: rng.randrange(1, 400)]
    connection.execute("UPDATE applies SET plan_json_zlib = ?", (forged,))


def rewrite_schema(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change the schema of an archive."""
    connection.executescript(rng.choice(SCHEMA_CHANGES))


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes in which pieces are replaced, deleted, repeated or inserted."""
    raw = bytearray(data or b" ")
    for _ in range(rng.choice((1, 1, 2, 8, 50))):
        at = rng.randrange(len(raw) + 1)
        end = min(at + rng.choice((1, 1, 5, 200)), len(raw))
        match rng.randrange(4):
            case 0:
                raw[at:end] = rng.randbytes(end - at)
            case 1 if len(raw) > end - at:
                del raw[at:end]
            case 2:
                raw[at:at] = raw[at:end]
            case _:
                raw[at:at] = rng.choice(HOSTILE_BYTES)
    return bytes(raw)


CHANGES: Final[tuple[Callable[[sqlite3.Connection, random.Random], None], ...]] = (
    forge_records,
    swap_values,
    forge_columns,
    forge_facts,
    delete_rows,
    forge_plans,
    rewrite_schema,
)
WEIGHTS: Final = (10, 4, 5, 2, 1, 1, 1)
"""Relative frequency of each of :data:`CHANGES`."""


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a JSON value in which one value is replaced, removed or added."""
    path = rng.choice(list(_places(value)))
    if not path:  # the value itself
        return rng.choice(HOSTILE_VALUES)
    copy = json.loads(json.dumps(value))
    parent = copy
    for step in path[:-1]:
        parent = parent[step]
    name = path[-1]
    choice = rng.random()
    if choice < 0.15:
        del parent[name]
    elif choice < 0.25 and isinstance(parent, dict):
        parent[str(rng.choice(HOSTILE_VALUES))[:50]] = rng.choice(HOSTILE_VALUES)
    elif choice < 0.35:
        parent[name] = [parent[name]] * rng.choice((0, 1, 3))
    elif choice < 0.45 and isinstance(parent[name], str):
        text = parent[name]
        parent[name] = rng.choice((text[::-1], f"{text}!", text[:-1], text.upper(), f"../{text}"))
    elif choice < 0.5 and type(parent[name]) is int:
        parent[name] += rng.choice((1, -1, 1000, 2**40, 2**62, 2**66))
    else:
        parent[name] = rng.choice(HOSTILE_VALUES)
    return copy


def forged_record(parsed: Any, rng: random.Random) -> bytes:
    """Return the bytes of a forged record: nine of ten canonical, the others not, or not JSON."""
    choice = rng.random()
    if choice < 0.1:
        text = json_text(parsed).encode(errors="surrogatepass")
        if choice < 0.05:
            return text
        if choice < 0.075:
            return text.replace(b"1", b"[" * 5000, 1)
        return text[: len(text) // 2]
    try:
        return canonical(parsed)
    except (ValueError, AttributeError, TypeError):
        return json_text(parsed).encode(errors="surrogatepass")


def canonical(parsed: dict[str, Any]) -> bytes:
    """Return the bytes of a record as memlab writes it."""
    if "place" not in parsed:
        return encoded(parsed)
    fields = {name: value for name, value in parsed.items() if name != "place"}
    return with_place(encoded(fields), parsed["place"])


def json_text(parsed: Any) -> str:
    """Return a JSON text that need not be canonical."""
    return json.dumps(parsed, ensure_ascii=False)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of a JSON value and of each value in it, as keys and list indexes."""
    yield path
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for name, child in children:
        yield from _places(child, (*path, name))
