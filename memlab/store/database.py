"""A store file: opening it, checking that it is one, and SQLite's errors in our words."""

import os
import re
import sqlite3
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from memlab.arguments import refusal
from memlab.errors import BadRowError, DamagedLogWarning, MemlabError, StoreError
from memlab.files import limit_like, ordinary_file, whole_file

_COLUMNS: Final = """
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
"""
CREATE_TABLE: Final = f"\nCREATE TABLE IF NOT EXISTS memory_items ({_COLUMNS})\n"

_DECLARED: Final = dict(each.split()[:2] for each in _COLUMNS.split(","))
COLUMNS: Final = tuple(_DECLARED)
"""The table's columns, in the order in which they are declared."""

SIDE_FILES: Final = ("-wal", "-shm", "-journal")
"""How the names of files end that SQLite keeps beside a store."""
HIDING: Final = frozenset({"rowid", "oid", "_rowid_"})
"""Names of a column, in small letters, under which a row's position could not be asked for."""
ROOMY_CACHE: Final = "PRAGMA cache_size = -32768"
"""Lets SQLite hold up to 32 MiB of pages: each deletion touches another of the ids' index."""

_ANOTHER_SCHEMA: Final = "copy its rows into a store made by memlab.SqliteMemoryStore"

HOW_TO_GO_ON: Final = (
    "copy the store and {log} to a safe place, recover from the copies what is missing (the "
    "sqlite3 shell's .recover, or a backup), then move {log} away"
)
_WAL_HEAD: Final = struct.Struct(">8I")
"""Magic, version, page size, checkpoint, two salts, two checksums: big-endian whatever the sums."""
_WAL_VERSION: Final = 3_007_000
_WAL_ORDERS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""By magic, in which order of bytes the checksums are made."""
_OF_VALUES: Final = re.compile(r"^(NULL|NUMERIC|TEXT|non-\w+) value in |^CHECK constraint failed")

NO_DATABASE: Final = "{path} is not a SQLite database; name the memory.db that an agent writes"
BUSY: Final = "{path} is locked by another process; try again when that process is done"
_WORDS: Final = {
    "NOTADB": NO_DATABASE,
    "BUSY": BUSY,
    "LOCKED": BUSY,
    "READONLY": "{path} cannot be written; check the permissions of the file and its folder",
    "CORRUPT": "{path} is damaged ({error}); restore a backup, or copy what can be read with "
    "the sqlite3 shell's .recover",
    "CANTOPEN": "{path} cannot be opened; check that the path exists and its permissions",
    "MOUNTED": "{path} cannot be written: its file system is mounted read-only; copy it to "
    "another, or have that one mounted for writing",
    "FULL": "no room left on the disk for {path}; nothing was changed: free some and try again",
    # Where a commit fails that was written and could not be synced, the next to look finds it done.
    "IOERR": "{path} cannot be read or written ({error}); nothing is lost: check the disk and run "
    "the same command again",
}


def error_in_words(error: sqlite3.Error | UnicodeDecodeError, path: Path | str) -> MemlabError:
    """Return the error to raise for an error of SQLite on the store at `path`."""
    if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes what it found
        return StoreError(_WORDS["CORRUPT"].format(path=path, error=error))
    if str(error).startswith("Could not decode to UTF-8"):
        return BadRowError(f"{path} holds text that is not UTF-8: {error}; memlab doctor names it")
    if "no such collation sequence" in str(error):
        return StoreError(
            f"{path} has an index or a column with a collation that its agent's own program brings "
            f"along ({error}); nothing was changed: drop that index, or make it without"
        )
    name = getattr(error, "sqlite_errorname", "BUSY" if "is locked" in str(error) else "")
    primary = name.removeprefix("SQLITE_").partition("_")[0]
    if primary in {"CANTOPEN", "READONLY"} and _is_mounted_read_only(path):
        primary = "MOUNTED"
    words = _WORDS.get(primary, "{path} cannot be used as a store: SQLite says {error}")
    return StoreError(words.format(path=path, error=error))


@contextmanager
def sqlite_errors_in_words(
    path: Path | str,
    in_words: Callable[[Any, Path | str], Exception] = error_in_words,
    module: Any = sqlite3,
) -> Iterator[None]:
    """Raise SQLite's own errors as one of memlab's that says what, where and what next."""
    try:
        yield
    except module.ProgrammingError:
        raise  # a mistake in a caller's code, not in a user's file
    except (module.Error, UnicodeDecodeError) as error:
        raise in_words(error, path) from error


def check_side_files(path: Path) -> None:
    """Refuse what is no ordinary file, a pipe say, where SQLite keeps a store's journals."""
    for end in SIDE_FILES:
        side = Path(f"{path}{end}")
        try:
            if not S_ISREG(side.lstat().st_mode):
                raise StoreError(
                    f"{side} is no ordinary file, and SQLite would take it for a part of {path}; "
                    "nothing was changed: move it away"
                )
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                f"{side} cannot be looked at ({error.strerror}), where SQLite keeps a part of "
                f"{path}; check the path, or give the store a shorter name"
            ) from error


_LOOKS: Final = 5
_PAUSE: Final = 0.02
"""How often, and after how many seconds, the header of a log is looked at again."""
_MOST_LOGS: Final = 1_000
"""Copies of damaged logs that are kept beside a store."""


def wal_fault(path: Path) -> str:
    """Say what is wrong with a store's write-ahead log; empty where nothing is.

    SQLite takes a log whose header it cannot read for none, and the next writer empties it. A
    header that somebody is writing at this moment is no damage: it is read again after a while.
    """
    log = Path(f"{path}{SIDE_FILES[0]}")
    seen = _wal_head(log)
    for _ in range(_LOOKS):
        if _is_sound_head(seen):
            return ""
        time.sleep(_PAUSE)
        before = seen
        seen = _wal_head(log)
        if seen == before:
            break
    if _is_sound_head(seen):
        return ""
    return f"the header of {log} is damaged, so that what was written last cannot be seen"


def _wal_head(log: Path) -> bytes:
    """Return the beginning of a log; nothing where there is none, or it cannot be opened."""
    try:
        with ordinary_file(log, most=sys.maxsize, follow_links=False) as file:
            return bytes(file.read(_WAL_HEAD.size + 1))
    except OSError:  # whoever opens the store says what is wrong with it
        return b""


def _is_sound_head(head: bytes) -> bool:
    """Whether SQLite can read the header that a log begins with, or nothing was written yet."""
    if len(head) <= _WAL_HEAD.size:
        return True
    magic, version, *_, first, second = _WAL_HEAD.unpack(head[: _WAL_HEAD.size])
    if magic not in _WAL_ORDERS or version != _WAL_VERSION:
        return False
    return (first, second) == _wal_checksum(head[: _WAL_HEAD.size - 8], _WAL_ORDERS[magic])


def keep_damaged_log(path: Path) -> Path | None:
    """Copy a damaged write-ahead log before the store is opened for writing, which empties it.

    Returns the copy, which has the store's permissions; None where the log is sound. A copy of the
    same bytes that is there already is not made again.
    """
    if not wal_fault(path):
        return None
    log = Path(f"{path}{SIDE_FILES[0]}")
    with ordinary_file(log, most=sys.maxsize, follow_links=False) as file:
        content = file.read()
    for number in range(1, _MOST_LOGS):
        kept = Path(f"{log}.damaged-{number}")
        if not os.path.lexists(kept):
            with whole_file(kept, limit=limit_like(path), replace=False) as draft:
                draft.write_bytes(content)
            break
        if kept.is_file() and not kept.is_symlink() and kept.read_bytes() == content:
            break
    else:
        raise StoreError(
            f"the header of {log} is damaged, and {_MOST_LOGS:,} copies of such logs are beside "
            "it; nothing was changed: move them away"
        )
    warnings.warn(
        f"the header of {log} is damaged, so that what was written last cannot be seen, and "
        f"opening the store for writing empties it; a copy is kept as {kept}",
        DamagedLogWarning,
        stacklevel=3,
    )
    return kept


def _wal_checksum(data: bytes, order: str) -> tuple[int, int]:
    """Return the two sums that SQLite keeps of the header of a log."""
    first = 0
    second = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def check_wal(path: Path) -> None:
    """Refuse to delete from a store whose write-ahead log cannot be read: that would empty it."""
    if fault := wal_fault(path):
        log = f"{path}{SIDE_FILES[0]}"
        raise StoreError(f"{fault}; nothing was changed: {HOW_TO_GO_ON.format(log=log)}")


def table_faults(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return what SQLite finds wrong with the pages and indexes of a table; empty for nothing.

    Values that break a constraint are no damage: they are archived and restored as they are.
    """
    try:
        found = connection.execute(f"PRAGMA integrity_check({table!r})").fetchall()
    except sqlite3.OperationalError:  # a function or collation of an agent's own is missing
        return []
    lines = [str(line) for (line,) in found]
    return [line for line in lines if line != "ok" and not _OF_VALUES.search(line)]


def _is_mounted_read_only(path: Path | str) -> bool:
    with suppress(OSError, ValueError):
        return bool(os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY)
    return False


def connect(path: Path | str, *, busy_timeout: float = 30.0) -> sqlite3.Connection:
    """Open `path` for reading and writing, with transactions begun by hand."""
    check_side_files(Path(path))
    with sqlite_errors_in_words(path):
        return sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of the block or none; wait for writers first, since after a read that would fail."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_encoding(connection: sqlite3.Connection, path: Path | str) -> None:
    """Refuse a file whose text is UTF-16: records and their fingerprints are of UTF-8."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding != "UTF-8":
        raise StoreError(
            f"{path} keeps its text as {encoding} and memlab reads UTF-8; nothing was changed: "
            "copy it with sqlite3 FILE '.dump --preserve-rowids' | sqlite3 NEW_FILE"
        )


def check_table(connection: sqlite3.Connection, path: Path | str) -> None:
    """Check that `connection` holds ``memory_items`` as agents write it, with or without more."""
    with sqlite_errors_in_words(path):
        check_encoding(connection, path)
        table = connection.execute(
            "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND name = 'memory_items'"
        ).fetchone()
        found = {
            name: (declared.upper(), key, hidden)
            for name, declared, key, hidden in connection.execute(
                "SELECT name, type, pk, hidden FROM pragma_table_xinfo('memory_items')"
            )
        }
    if table is None:
        raise StoreError(
            f"{path} has no table memory_items; name the memory.db that an agent writes"
        )
    kind, without_rowid = table
    missing = [name for name in COLUMNS if name not in found]
    wrong = [
        (kind != "table", f"is a {kind}, not a table; name the store itself"),
        (
            without_rowid,
            "was made WITHOUT ROWID, so its rows have no order of insertion; " + _ANOTHER_SCHEMA,
        ),
        (missing, f"lacks the column {', '.join(missing)}; {_ANOTHER_SCHEMA}"),
    ]
    for name, (declared, key, hidden) in found.items():
        wanted = _DECLARED.get(name)  # columns of an agent's own may be anything
        how = "generated" if hidden else declared or "nothing"
        differs = wanted and (declared != wanted or hidden)
        hides = f"has a column {name}, which hides the order of insertion"
        wrong += [
            (differs, f"declares {name} as {how}, not {wanted}; {_ANOTHER_SCHEMA}"),
            (
                key != (name == COLUMNS[0]),
                f"has another primary key than memory_id; {_ANOTHER_SCHEMA}",
            ),
            (name.lower() in HIDING, f"{hides}; {_ANOTHER_SCHEMA}"),
        ]
    if words := next((words for is_wrong, words in wrong if is_wrong), ""):
        raise StoreError(f"memory_items in {path} {words}")


def path_named(source: Path | str) -> Path:
    """Return the path that a path or a ``file:`` URI names, whatever is there."""
    if not isinstance(source, str | PathLike):
        raise refusal(source, "PathLike", call="memlab", name="store")
    text = str(source)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file:") else Path(text)


def stat_store(path: Path) -> os.stat_result | None:
    """Return what is at a path; None where nothing is."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or error
        raise StoreError(f"{path} cannot be looked at ({words}); check the path") from error


def store_file(source: Path | str) -> Path:
    """Return the existing file that a path or a ``file:`` URI names."""
    path = path_named(source)
    found = stat_store(path)
    if found is None:
        raise StoreError(f"there is no file {path}; check the path")
    if S_ISDIR(found.st_mode):
        raise StoreError(f"{path} is a folder and no store; memlab find {path} lists those inside")
    if not S_ISREG(found.st_mode) or found.st_size == 0:
        is_what = "empty" if S_ISREG(found.st_mode) else "not a file"
        raise StoreError(f"{path} is {is_what}; name the memory.db that an agent writes")
    return path


def connect_reading(uri: str, *, busy_timeout: float = 5.0) -> sqlite3.Connection:
    """Open a URI for reading; threads may take turns with what it opens."""
    return sqlite3.connect(
        uri, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )


@contextmanager
def text_as_bytearray(
    connection: sqlite3.Connection, text: Callable[[bytes], Any] = bytearray
) -> Iterator[None]:
    """Hand out text as bytearray, so that it differs from a blob and need not be UTF-8."""
    before = connection.text_factory
    connection.text_factory = text
    try:
        yield
    finally:
        connection.text_factory = before


@contextmanager
def values_up_to(connection: sqlite3.Connection, size: int) -> Iterator[None]:
    """Let a value of more than `size` bytes, stored or made, raise :class:`sqlite3.DataError`."""
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


@contextmanager
def opened_for_change(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store whose every commit reaches the disk."""
    keep_damaged_log(Path(path))
    with closing(connect(path)) as connection, sqlite_errors_in_words(path):
        check_table(connection, path)
        # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(ROOMY_CACHE)
        yield connection
