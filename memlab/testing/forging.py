"""Values, archives and plans as somebody else could have written them, each from a seed."""

import json
import random
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from memlab.store.records import encoded, fingerprint_of, with_place

HOSTILE: Final[tuple[Any, ...]] = (
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
"""In the place of any value of JSON."""

STORED: Final = (
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
"""In the place of any column of a table."""

TOKENS: Final = (
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
"""In the midst of a file."""

SCHEMES: Final = (
    "CREATE TRIGGER t AFTER UPDATE ON applies BEGIN DELETE FROM archived; END",
    "CREATE TRIGGER t AFTER INSERT ON archived BEGIN DELETE FROM archived; END",
    "CREATE INDEX i ON archived (hex(zeroblob(1000000)))",
    "ALTER TABLE archived ADD COLUMN more AS (hex(zeroblob(100000000)))",
    "ALTER TABLE archived RENAME TO kept; CREATE VIEW archived AS SELECT * FROM kept",
    "DROP TABLE applies; CREATE TABLE applies (apply, digest)",
    "DROP TABLE about",
    "PRAGMA user_version = 7",
)
"""What somebody could make of an archive's tables."""

COLUMNS: Final = {
    "applies": "digest policy made_at memories archived_at finished_at plan_json_zlib",
    "archived": "apply key fingerprint layout fields reason tokens restored_at",
    "layouts": "paths has_place",
    "about": "value",
    "dropped": "apply digest deleted_at dropped_at facts",
}


_IMPOSSIBLE: Final = (
    sqlite3.Error,
    ValueError,
    TypeError,
    OverflowError,
    AttributeError,
    RecursionError,
)
"""What a change raises that an earlier one has made impossible: it changes nothing then."""


def _record(fields: str, paths: str) -> dict[str, Any]:
    """Return a record that an archive keeps as a list of values, or as it is."""
    values: Any = json.loads(fields)
    if isinstance(values, dict):
        return values
    return dict(zip(json.loads(paths), values, strict=True))


def forge(archive: Path, rng: random.Random) -> str:
    """Change a closed archive as nobody does who means well; return what was done."""
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        change = rng.choices(CHANGES, WEIGHTS)[0]
        with closing(sqlite3.connect(archive, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            with suppress(*_IMPOSSIBLE):
                change(connection, rng)
        done.append(change.__name__)
    if rng.random() < 0.1:
        archive.write_bytes(in_bytes(archive.read_bytes(), rng))
        done.append("in_bytes")
    return ", ".join(done)


def forge_records(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Let records say something else; their fingerprints say so too, most of the time."""
    rows = [(rowid, record) for rowid, _, record in _records(connection)]
    for rowid, record in rng.sample(rows, min(len(rows), rng.choice((1, 1, 2, 8)))):
        parsed = json.loads(record)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            parsed = changed(parsed, rng)
        _keep(connection, rowid, written(parsed, rng), sound=rng.random() < 0.9)


def swap_values(connection: sqlite3.Connection, rng: random.Random) -> None:
    rows = _records(connection)
    rowid, _, record = rng.choice(rows)
    _, other, donor = rng.choice(rows)
    parsed = json.loads(record)
    given = json.loads(donor)
    for name in rng.sample(list(given), rng.randrange(1, len(given) + 1)):
        parsed[name] = given[name]
    _keep(connection, rowid, canonical(parsed))
    if rng.random() < 0.3:
        connection.execute("UPDATE archived SET key = ? WHERE rowid = ?", (f"{other}x", rowid))


def _keep(connection: sqlite3.Connection, rowid: int, made: bytes, *, sound: bool = True) -> None:
    digest = bytes.fromhex(fingerprint_of(made))
    connection.execute(
        "UPDATE archived SET fields = ?, fingerprint = iif(?, ?, fingerprint) WHERE rowid = ?",
        (made.decode(errors="replace"), sound, digest, rowid),
    )


def _records(connection: sqlite3.Connection) -> list[tuple[int, Any, str]]:
    """Number, key and record of every copy."""
    found = connection.execute(
        "SELECT archived.rowid, key, fields, paths FROM archived JOIN layouts USING (layout)"
    )
    return [(rowid, key, dumped(_record(*values))) for rowid, key, *values in found]


def forge_columns(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(list(COLUMNS))
    column = rng.choice(COLUMNS[table].split())
    value = rng.choice(STORED)
    if column in ("key", "restored_at") and rng.random() < 0.5:
        value = rng.choice((1, 3, 10**6, "a.md", "s1", "../a.md", "betterdb_ac:mem:x", "other:key"))
    every = table == "about" or rng.random() < 0.2
    where = "1" if every else f"rowid % 4 = {rng.randrange(4)}"
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


def forge_facts(connection: sqlite3.Connection, rng: random.Random) -> None:
    rows = connection.execute("SELECT rowid, facts FROM dropped").fetchall()
    for rowid, facts in rng.sample(rows, min(len(rows), 2)):
        parsed = changed(json.loads(facts), rng)
        connection.execute("UPDATE dropped SET facts = ? WHERE rowid = ?", (dumped(parsed), rowid))


def delete_rows(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(("applies", "archived", "about", "dropped"))
    where = "1" if table == "about" else f"rowid % 3 = {rng.randrange(3)}"
    connection.execute(f"DELETE FROM {table} WHERE {where}")


def forge_plans(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Keep another plan, or a bomb."""
    (packed,) = connection.execute("SELECT plan_json_zlib FROM applies LIMIT 1").fetchone()
    parsed = json.loads(zlib.decompress(packed)) if packed else {}
    made = rng.choice(
        (
            lambda: zlib.compress(dumped(changed(parsed, rng)).encode(errors="replace")),
            lambda: zlib.compress(b" " * 50_000_000),
            lambda: zlib.compress(b"[" * 100_000),
            lambda: (packed or b"")[: rng.randrange(1, 400)],
        )
    )()
    connection.execute("UPDATE applies SET plan_json_zlib = ?", (made,))


def rewrite_schema(connection: sqlite3.Connection, rng: random.Random) -> None:
    connection.executescript(rng.choice(SCHEMES))


def in_bytes(data: bytes, rng: random.Random) -> bytes:
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
                raw[at:at] = rng.choice(TOKENS)
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


def changed(value: Any, rng: random.Random) -> Any:
    """JSON with one value of it replaced, taken out, or one put in."""
    path = rng.choice(list(_places(value)))
    here = made = json.loads(json.dumps(value))
    for step in path[:-1]:
        here = here[step]
    if not path:
        return rng.choice(HOSTILE)
    choice = rng.random()
    if choice < 0.15:
        del here[path[-1]]
    elif choice < 0.25 and isinstance(here, dict):
        here[str(rng.choice(HOSTILE))[:50]] = rng.choice(HOSTILE)
    elif choice < 0.35:
        here[path[-1]] = [here[path[-1]]] * rng.choice((0, 1, 3))
    elif choice < 0.45 and isinstance(here[path[-1]], str):
        text = here[path[-1]]
        here[path[-1]] = rng.choice((text[::-1], f"{text}!", text[:-1], text.upper(), f"../{text}"))
    elif choice < 0.5 and type(here[path[-1]]) is int:
        here[path[-1]] += rng.choice((1, -1, 1000, 2**40, 2**62, 2**66))
    else:
        here[path[-1]] = rng.choice(HOSTILE)
    return made


def written(parsed: Any, rng: random.Random) -> bytes:
    choice = rng.random()
    if choice < 0.05:
        return dumped(parsed).encode(errors="surrogatepass")
    if choice < 0.1:
        made = dumped(parsed).encode(errors="surrogatepass")
        return made.replace(b"1", b"[" * 5000, 1) if choice < 0.075 else made[: len(made) // 2]
    try:
        return canonical(parsed)
    except (ValueError, AttributeError, TypeError):
        return dumped(parsed).encode(errors="surrogatepass")


def canonical(parsed: dict[str, Any]) -> bytes:
    """A record as memlab writes it."""
    if "place" not in parsed:
        return encoded(parsed)
    own = {name: value for name, value in parsed.items() if name != "place"}
    return with_place(encoded(own), parsed["place"])


def dumped(parsed: Any) -> str:
    return json.dumps(parsed, ensure_ascii=False)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, (*path, name))
