"""The tables of an archive, taken for data that anybody may have written: ValueError if wrong."""

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from memlab.clock import moment_of
from memlab.store.database import COLUMNS
from memlab.store.records import fingerprint_of
from memlab.store.shapes import be, shown, whole
from memlab.store.signals import SIGNALS

Key = int | str
"""A source's own address of a memory."""

SampleRow = tuple[int, str]
"""A memory that stayed in a store: its position, and a digest of it."""


class Apply(NamedTuple):
    """A deletion that is about to be archived."""

    digest: str
    policy: Mapping[str, Any]
    made_at: datetime
    memories: int
    plan: Callable[[], Iterable[str]] | None = None
    """Yields the text of the plan, where it was one."""


class Archived(NamedTuple):
    """A memory that goes: its record, and why."""

    key: Key
    record: bytes
    reason: str


class Entry(NamedTuple):
    """A deletion in an archive."""

    apply: int
    digest: str
    memories: int
    archived_at: datetime
    finished_at: datetime | None
    left: int
    restored: int
    planned: bool = True
    recovers: bool = False
    """Whether it put back what somebody else had deleted, and deleted nothing."""


class Dropped(NamedTuple):
    """A deletion whose words were erased from the archive."""

    apply: int
    digest: str
    memories: int
    deleted_at: datetime
    dropped_at: datetime


class Copy(NamedTuple):
    """An archived memory, without its record."""

    key: Key
    fingerprint: str
    reason: str
    restored_at: str | None


LARGEST: Final = 2**29
"""Bytes of a record, and of a plan as it is packed."""
_ROOM: Final = 2**22
_PACKED: Final = 16
"""A plan has at most :data:`_ROOM` bytes, or so many times those that it is packed in."""
_PARTS: Final = 2**23
"""Values of a record: each may take thirty times its text in memory."""
_DEEPEST: Final = 16

_FINGERPRINT: Final = re.compile("[0-9a-f]{32}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")

Check = Callable[[Key, bytes, dict[str, Any]], None]
"""Takes a key, a record and what it says; see :func:`memlab.store.records.check_row`."""


def text_in(value: object, what: str, *, most: int = 2**16) -> str:
    """Return a text that was read as :func:`memlab.store.database.exact` reads it."""
    raw = _raw(value, what)
    if len(raw) > most:
        raise ValueError(f"{what} has {len(raw):,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is no UTF-8") from None


def moment_in(value: object, what: str) -> datetime:
    """Return a moment."""
    return moment_of(text_in(value, what))


def moment_text(moment: datetime) -> str:
    """Return a moment as an archive has it: texts sort as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def key_in(value: object) -> Key:
    """Return the key of a memory."""
    return value if type(value) is int else text_in(value, "its key")


def digest_in(value: object) -> str:
    """Return the digest of a plan."""
    return _matching(_DIGEST, value, "its digest")


def entry_of(row: tuple[Any, ...]) -> Entry:
    """Return a deletion: its number, its values, and what is known of its copies and its plan."""
    number, digest, memories, archived_at, finished_at, left, restored, planned, recovers = row
    whole(1)(number)
    whole(0, 2**53)(memories)
    if left and not memories:
        raise ValueError(f"it says that it deleted nothing, and has {left:,} copies")
    return Entry(
        *(number, digest_in(digest), memories, moment_in(archived_at, "archived_at")),
        None if finished_at is None else moment_in(finished_at, "finished_at"),
        *(left, restored, bool(planned), bool(recovers)),
    )


def copy_of(key: object, fingerprint: object, reason: object, restored_at: object) -> Copy:
    """Return a copy of the values that an archive has of it."""
    return Copy(
        key_in(key),
        _matching(_FINGERPRINT, fingerprint, "its fingerprint"),
        text_in(reason, "its reason"),
        None if restored_at is None else moment_in(restored_at, "restored_at").isoformat(),
    )


def record_of(value: object, copy: Copy, check: Check) -> bytes:
    """Return the record of a copy, as it was archived."""
    record = bytes(_raw(value, "its record"))
    if fingerprint_of(record) != copy.fingerprint:
        raise ValueError("its record is not what was archived")
    check_size(record)
    try:
        said = json.loads(record)
    except (ValueError, RecursionError):
        raise ValueError("its record is no JSON") from None
    be(said, dict, "a JSON object")
    check_depth(said, _DEEPEST)
    try:
        check(copy.key, record, said)
    except RecursionError:
        raise ValueError("what its record holds is nested too deep") from None
    return record


def check_size(record: bytes) -> None:
    """Check that a record is of a size that is read again."""
    if len(record) <= _PARTS:
        return
    parts = sum(map(record.count, (b",", b"[", b"{")))
    if len(record) > LARGEST or parts > _PARTS:
        raise ValueError(f"its record has {len(record):,} bytes in up to {parts:,} values")


def check_depth(value: Any, deepest: int) -> None:
    """Check that JSON is not nested so deep that whoever compares or shows it would fail."""
    level = [value]
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {deepest}")


def packed(pieces: Callable[[], Iterable[str]], words: bytes = b"") -> bytes:
    """Return a text in as little room as :func:`unpacked` takes it out of again."""
    for level in (-1, 0):
        size, packing = 0, zlib.compressobj(level, zdict=words)
        parts = list[bytes]()
        for piece in pieces():
            raw = piece.encode()
            size += len(raw)
            parts.append(packing.compress(raw))
        made = b"".join([*parts, packing.flush()])
        if size <= _most(made):
            break
    return made


def unpacked(blob: Any, words: bytes = b"") -> bytes:
    """Return a text that was packed; one that nobody packed here may unpack to anything."""
    be(blob, bytes, "a blob")
    unpacking = zlib.decompressobj(zdict=words)
    try:
        found = unpacking.decompress(blob, _most(blob) + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof or len(found) > _most(blob):
        raise ValueError(f"it does not end within {_most(blob):,} bytes")
    return found


def _most(blob: bytes) -> int:
    return max(_ROOM, _PACKED * len(blob))


def _raw(value: object, what: str) -> bytearray:
    if not isinstance(value, bytearray):  # as texts come, see Archive
        raise ValueError(f"{what} is {shown(value)}, no text")  # noqa: TRY004 - of a file, no call
    return value


def _matching(pattern: re.Pattern[str], value: object, what: str) -> str:
    found = text_in(value, what)
    if not pattern.fullmatch(found):
        raise ValueError(f"{what} is {shown(found)}")
    return found


RECOVERS: Final = {"policy": "lost"}
"""Stands for a policy where memlab put back what somebody else had deleted."""

FORMAT: Final = 2
"""``PRAGMA user_version`` of an archive."""

_SHOWN: Final = ", ".join(
    f"json_extract(record, '$.{name}') AS {name}" for name in (*COLUMNS, SIGNALS)
)
_VIEW: Final = f"""
CREATE VIEW IF NOT EXISTS archived_memories AS
SELECT digest, archived_at, finished_at, restored_at, reason, key, {_SHOWN}, record
FROM archived JOIN applies USING (apply) ORDER BY archived.rowid"""
_TABLES: Final = {
    "about": "(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # A number that was dropped is not given out again.
    "applies": """(
        apply INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
        made_at TEXT NOT NULL, memories INTEGER NOT NULL, archived_at TEXT NOT NULL,
        finished_at TEXT, plan_json_zlib BLOB
    )""",
    "archived": """(
        apply INTEGER NOT NULL REFERENCES applies (apply), key NOT NULL, fingerprint TEXT NOT NULL,
        record TEXT NOT NULL, reason TEXT NOT NULL, restored_at TEXT, PRIMARY KEY (apply, key)
    )""",
    "dropped": """(
        apply INTEGER NOT NULL, digest TEXT NOT NULL, deleted_at TEXT NOT NULL,
        dropped_at TEXT NOT NULL, facts TEXT NOT NULL
    )""",
    "retired": """(
        key NOT NULL PRIMARY KEY, name TEXT NOT NULL, apply INTEGER NOT NULL,
        retired_at TEXT NOT NULL, returned_at TEXT, times_needed INTEGER NOT NULL DEFAULT 0
    )""",
    "copies": """(
        memory_id TEXT NOT NULL, digest BLOB NOT NULL, key NOT NULL, fingerprint BLOB NOT NULL,
        record_zlib BLOB NOT NULL, is_empty INTEGER NOT NULL, seen_at TEXT, missed_at TEXT,
        PRIMARY KEY (memory_id, digest)
    )""",
}
_IN_EACH: Final = ("about", "applies", "archived")
"""Tables of every archive: others are made once something is dropped, retired or copied."""


def is_unfilled(connection: sqlite3.Connection) -> bool:
    """Whether a file has no tables, or some of an archive's that were never finished.

    Whoever was killed while it made them took nothing out of the store yet.
    """
    if not _tables_in(connection):
        return True
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version == 0 and _has_no_rows(connection)


def is_unused(connection: sqlite3.Connection) -> bool:
    """Whether nobody would miss an archive: it has no rows, and was not made to hold copies."""
    return "copies" not in _tables_in(connection) and _has_no_rows(connection)


def _has_no_rows(connection: sqlite3.Connection) -> bool:
    """Whether an archive has no rows but what it says of itself."""
    names = _tables_in(connection)
    if not names <= _TABLES.keys():
        return False
    rows = [f"SELECT 1 FROM {name}" for name in sorted(names - {"about"})]
    return not rows or not connection.execute(" UNION ALL ".join(rows)).fetchone()


def _tables_in(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute(
        "SELECT CAST(name AS BLOB) FROM sqlite_schema WHERE type = 'table' "
        "AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    return {bytes(name).decode(errors="replace") for (name,) in found}


def make_table(connection: sqlite3.Connection, name: str) -> None:
    """Make a table where there is none."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {_TABLES[name]}")


def create_tables(connection: sqlite3.Connection, scheme: str) -> None:
    """Make the tables of an archive, in the caller's transaction."""
    for name in _IN_EACH:
        make_table(connection, name)
    connection.execute(_VIEW)
    connection.execute("INSERT OR REPLACE INTO about VALUES ('scheme', ?)", (scheme,))
    connection.execute(f"PRAGMA user_version = {FORMAT}")  # the last: until then it is unfilled


def is_made_here(connection: sqlite3.Connection) -> bool:
    """Whether the tables of an archive are those that memlab makes: others may run code."""
    names = str(tuple(_TABLES))
    found = connection.execute(  # an index of a key is of no statement
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
        f"AND (lower(name) IN {names} OR lower(tbl_name) IN {names})"
    )
    made = {name: _plain(f"CREATE TABLE {name} {columns}") for name, columns in _TABLES.items()}
    there = {(name, _plain(sql)) for name, sql in found}
    return {(name, made[name]) for name in _IN_EACH} <= there <= {*made.items()}


def _plain(statement: object) -> str:
    """Return a statement with one space wherever some are."""
    return " ".join(str(statement).split())
