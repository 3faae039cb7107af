"""A store file: opening and checking it, and messages for the errors of SQLite."""

import os
import re
import sqlite3
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from memlab.arguments import wrong_argument_error
from memlab.errors import BadRowError, DamagedLogWarning, MemlabError, StoreError
from memlab.files import ordinary_file, permissions_like, whole_file

_COLUMNS: Final = """
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
"""
CREATE_TABLE: Final = f"\nCREATE TABLE IF NOT EXISTS memory_items ({_COLUMNS})\n"

_DECLARED: Final = dict(column.split()[:2] for column in _COLUMNS.split(","))
"""Declared type of each column."""
COLUMNS: Final = tuple(_DECLARED)
"""Columns of ``memory_items``, in the order of their declaration."""

SIDE_FILES: Final = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a store."""
ROWID_NAMES: Final = frozenset({"rowid", "oid", "_rowid_"})
"""Column names, in lower case, that would hide the rowid."""
SET_CACHE_SIZE: Final = "PRAGMA cache_size = -32768"
"""Lets SQLite cache 32 MiB of pages: each deletion touches another page of the index on ids."""

_REBUILD_ADVICE: Final = "copy its rows into a store made by memlab.SqliteMemoryStore"

DAMAGED_LOG_ADVICE: Final = (
    "copy the store and {log} to a safe place, recover from the copies what is missing (the "
    "sqlite3 shell's .recover, or a backup), then move {log} away"
)
"""Advice for a store whose write-ahead log is damaged."""
_WAL_HEADER: Final = struct.Struct(">8I")
"""Header of a write-ahead log: magic, version, page size, checkpoint, two salts and two checksums.

It is big-endian whatever the byte order of the checksums."""
_WAL_VERSION: Final = 3_007_000
_WAL_BYTE_ORDERS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""Byte order of the checksums, by magic number."""
_VALUE_FAULT: Final = re.compile(r"^(NULL|NUMERIC|TEXT|non-\w+) value in |^CHECK constraint failed")
"""Matches a line of SQLite's integrity check about a value that violates a constraint."""

NO_DATABASE: Final = "{path} is not a SQLite database; name the memory.db that an agent writes"
BUSY: Final = "{path} is locked by another process; try again when that process is done"
_MESSAGES: Final = {
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
    # If a commit was written and could not be synced, the next reader finds it done.
    "IOERR": "{path} cannot be read or written ({error}); nothing is lost: check the disk and run "
    "the same command again",
}
"""Message for an error, by the primary name of its SQLite error code.

``MOUNTED`` is no name of SQLite: :func:`memlab_error_for` finds out that a file system is mounted
read-only."""


def memlab_error_for(error: sqlite3.Error | UnicodeDecodeError, path: Path | str) -> MemlabError:
    """Return the error to raise for an error of SQLite on the store at `path`."""
    # Python cannot decode an error message of SQLite that quotes text of a damaged file.
    if isinstance(error, UnicodeDecodeError):
        return StoreError(_MESSAGES["CORRUPT"].format(path=path, error=error))
    if str(error).startswith("Could not decode to UTF-8"):
        return BadRowError(f"{path} holds text that is not UTF-8: {error}; memlab doctor names it")
    if "no such collation sequence" in str(error):
        return StoreError(
            f"{path} has an index or a column with a collation that only its agent's program "
            f"defines ({error}); nothing was changed: drop that index, or create it again "
            "without the collation"
        )
    name = getattr(error, "sqlite_errorname", "")
    if not name and "is locked" in str(error):
        name = "BUSY"
    primary = name.removeprefix("SQLITE_").partition("_")[0]
    if primary in {"CANTOPEN", "READONLY"} and _is_mounted_read_only(path):
        primary = "MOUNTED"
    message = _MESSAGES.get(primary, "{path} cannot be used as a store: SQLite says {error}")
    return StoreError(message.format(path=path, error=error))


@contextmanager
def convert_sqlite_errors(
    path: Path | str,
    to_error: Callable[[Any, Path | str], Exception] = memlab_error_for,
    module: Any = sqlite3,
) -> Iterator[None]:
    """Raise errors of SQLite in the block as errors of memlab.

    Parameters
    ----------
    path : Path or str
        The file that messages name.
    to_error : callable
        Makes the error to raise from an error and the path.
    module : module
        The module whose ``Error`` is caught.
    """
    try:
        yield
    except module.ProgrammingError:
        raise  # a mistake in the calling code, not in the user's file
    except (module.Error, UnicodeDecodeError) as error:
        raise to_error(error, path) from error


def check_side_files(path: Path) -> None:
    """Raise StoreError if a side file of a store is not a regular file."""
    for suffix in SIDE_FILES:
        side = Path(f"{path}{suffix}")
        try:
            if not S_ISREG(side.lstat().st_mode):
                raise StoreError(
                    f"{side} is not an ordinary file, and SQLite would take it for a part of "
                    f"{path}; nothing was changed: move it away"
                )
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                f"{side} cannot be looked at ({error.strerror}), where SQLite keeps a part of "
                f"{path}; check the path, or give the store a shorter name"
            ) from error


_HEADER_READS: Final = 5
"""Maximum number of attempts to read the header of a write-ahead log."""
_HEADER_PAUSE: Final = 0.02
"""Seconds between two attempts to read the header of a write-ahead log."""
_MAX_LOG_COPIES: Final = 1_000
"""Maximum number of copies of damaged logs that are kept beside a store."""


def wal_fault(path: Path) -> str:
    """Describe the fault of a store's write-ahead log; empty if there is none.

    SQLite ignores a log whose header it cannot read, and the next writer empties it. A header that
    is being written at this moment is not damaged, so it is read again after a pause.
    """
    log = Path(f"{path}{SIDE_FILES[0]}")
    header = _read_wal_header(log)
    for _ in range(_HEADER_READS):
        if _is_sound_header(header):
            return ""
        time.sleep(_HEADER_PAUSE)
        previous = header
        header = _read_wal_header(log)
        if header == previous:
            break
    if _is_sound_header(header):
        return ""
    return f"the header of {log} is damaged, so the latest changes cannot be read"


def _read_wal_header(log: Path) -> bytes:
    """Return the first bytes of a log; empty if it does not exist or cannot be opened."""
    try:
        with ordinary_file(log, max_bytes=sys.maxsize, follow_links=False) as file:
            return bytes(file.read(_WAL_HEADER.size + 1))
    except OSError:  # the fault is reported when the store is opened
        return b""


def _is_sound_header(header: bytes) -> bool:
    """Return whether SQLite can read the header of a log; also True for a log without content."""
    if len(header) <= _WAL_HEADER.size:  # no byte follows the header, if it is complete at all
        return True
    magic, version, *_, first, second = _WAL_HEADER.unpack(header[: _WAL_HEADER.size])
    if magic not in _WAL_BYTE_ORDERS or version != _WAL_VERSION:
        return False
    without_checksums = header[: _WAL_HEADER.size - 8]
    return (first, second) == _wal_checksum(without_checksums, _WAL_BYTE_ORDERS[magic])


def keep_damaged_log(path: Path) -> Path | None:
    """Copy a damaged write-ahead log before the store is opened for writing, which empties it.

    Warn with DamagedLogWarning. An existing copy of the same bytes is not made again.

    Returns
    -------
    Path or None
        The copy, with the permissions of the store; None if the log is sound.
    """
    if not wal_fault(path):
        return None
    log = Path(f"{path}{SIDE_FILES[0]}")
    with ordinary_file(log, max_bytes=sys.maxsize, follow_links=False) as file:
        content = file.read()
    for number in range(1, _MAX_LOG_COPIES):
        copy = Path(f"{log}.damaged-{number}")
        if not os.path.lexists(copy):
            with whole_file(copy, permissions=permissions_like(path), replace=False) as draft:
                draft.write_bytes(content)
            break
        is_regular = copy.is_file() and not copy.is_symlink()
        if is_regular and copy.read_bytes() == content:
            break
    else:
        raise StoreError(
            f"the header of {log} is damaged, and {_MAX_LOG_COPIES:,} copies of such logs are "
            "beside it; nothing was changed: move them away"
        )
    warnings.warn(
        f"the header of {log} is damaged, so the latest changes cannot be read, and "
        f"opening the store for writing empties it; a copy is kept as {copy}",
        DamagedLogWarning,
        stacklevel=3,
    )
    return copy


def _wal_checksum(data: bytes, order: str) -> tuple[int, int]:
    """Return the two checksums of a write-ahead log over its header."""
    first = 0
    second = 0
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def check_wal(path: Path) -> None:
    """Raise StoreError if a store's write-ahead log is damaged: writing would empty it."""
    fault = wal_fault(path)
    if fault:
        log = f"{path}{SIDE_FILES[0]}"
        raise StoreError(f"{fault}; nothing was changed: {DAMAGED_LOG_ADVICE.format(log=log)}")


def table_faults(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the faults that SQLite finds in the pages and indexes of a table.

    Values that violate a constraint are not faults: they are archived and restored as they are.
    """
    try:
        rows = connection.execute(f"PRAGMA integrity_check({table!r})").fetchall()
    except sqlite3.OperationalError:  # the table needs a function or collation of the agent
        return []
    lines = [str(line) for (line,) in rows]
    return [line for line in lines if line != "ok" and not _VALUE_FAULT.search(line)]


def _is_mounted_read_only(path: Path | str) -> bool:
    """Return whether a file is on a file system that is mounted read-only."""
    with suppress(OSError, ValueError):
        return bool(os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY)
    return False


def connect(path: Path | str, *, busy_timeout: float = 30.0) -> sqlite3.Connection:
    """Open `path` for reading and writing, without implicit transactions."""
    check_side_files(Path(path))
    with convert_sqlite_errors(path):
        return sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction that takes the write lock at its beginning.

    A transaction that reads first fails if somebody else wrote meanwhile.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_encoding(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raise StoreError if the text of a file is UTF-16: records are made of UTF-8."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding != "UTF-8":
        raise StoreError(
            f"{path} keeps its text as {encoding} and memlab reads UTF-8; nothing was changed: "
            "copy it with sqlite3 FILE '.dump --preserve-rowids' | sqlite3 NEW_FILE"
        )


def check_table(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raise StoreError unless a file has the table ``memory_items`` as agents write it.

    Further columns of an agent's own are allowed.
    """
    with convert_sqlite_errors(path):
        check_encoding(connection, path)
        table = connection.execute(
            "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND name = 'memory_items'"
        ).fetchone()
        columns = [
            _Column(name=name, declared=declared.upper(), key=key, is_generated=bool(hidden))
            for name, declared, key, hidden in connection.execute(
                "SELECT name, type, pk, hidden FROM pragma_table_xinfo('memory_items')"
            )
        ]
    if table is None:
        raise StoreError(
            f"{path} has no table memory_items; name the memory.db that an agent writes"
        )
    table_type, without_rowid = table
    fault = _table_fault(table_type, columns, without_rowid=bool(without_rowid))
    if fault:
        raise StoreError(f"memory_items in {path} {fault}")


class _Column(NamedTuple):
    """A column of a table as SQLite describes it."""

    name: str
    declared: str
    """Its declared type, in capital letters."""
    key: int
    """Its place in the primary key; 0 if it is not part of it."""
    is_generated: bool


def _table_fault(table_type: str, columns: Sequence[_Column], *, without_rowid: bool) -> str:
    """Describe the fault of a table ``memory_items`` as a clause; empty if there is none."""
    if table_type != "table":
        return f"is a {table_type}, not a table; name the store itself"
    if without_rowid:
        no_order = "was made WITHOUT ROWID, so its rows have no order of insertion"
        return f"{no_order}; {_REBUILD_ADVICE}"
    names = {column.name for column in columns}
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        return f"lacks the column {', '.join(missing)}; {_REBUILD_ADVICE}"
    for column in columns:
        fault = _column_fault(column)
        if fault:
            return f"{fault}; {_REBUILD_ADVICE}"
    return ""


def _column_fault(column: _Column) -> str:
    """Describe the fault of a column as a clause; empty if there is none.

    Further columns of an agent's own may have any type.
    """
    name = column.name
    expected = _DECLARED.get(name)
    if expected and (column.declared != expected or column.is_generated):
        declared = "generated" if column.is_generated else column.declared or "nothing"
        return f"declares {name} as {declared}, not {expected}"
    expected_key = 1 if name == COLUMNS[0] else 0
    if column.key != expected_key:
        return "has another primary key than memory_id"
    if name.lower() in ROWID_NAMES:
        return f"has a column {name}, which hides the order of insertion"
    return ""


def path_named(source: Path | str) -> Path:
    """Return the path of a path or a ``file:`` URI; it need not exist."""
    if not isinstance(source, str | PathLike):
        raise wrong_argument_error(source, "PathLike", call="memlab", name="store")
    text = str(source)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    return Path(text)


def stat_store(path: Path) -> os.stat_result | None:
    """Return the status of a path; None if nothing is there."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{path} cannot be looked at ({reason}); check the path") from error


def store_file(source: Path | str) -> Path:
    """Return the path of an existing file, from a path or a ``file:`` URI."""
    path = path_named(source)
    status = stat_store(path)
    if status is None:
        raise StoreError(f"there is no file {path}; check the path")
    if S_ISDIR(status.st_mode):
        raise StoreError(f"{path} is a folder and no store; memlab find {path} lists those inside")
    advice = "name the memory.db that an agent writes"
    if not S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a file; {advice}")
    if status.st_size == 0:
        raise StoreError(f"{path} is empty; {advice}")
    return path


def connect_reading(uri: str, *, busy_timeout: float = 5.0) -> sqlite3.Connection:
    """Open a URI for reading; several threads may use the connection in turn."""
    return sqlite3.connect(
        uri, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )


@contextmanager
def text_read_as(
    connection: sqlite3.Connection, factory: Callable[[bytes], Any] = bytearray
) -> Iterator[None]:
    """Let queries in the block return texts as made by a factory, such as bytearray.

    A bytearray differs from a blob, and need not be UTF-8.
    """
    before = connection.text_factory
    connection.text_factory = factory
    try:
        yield
    finally:
        connection.text_factory = before


@contextmanager
def limit_value_size(connection: sqlite3.Connection, size: int) -> Iterator[None]:
    """Raise :class:`sqlite3.DataError` in the block for any value of more than `size` bytes."""
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


@contextmanager
def opened_for_change(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store of ``memory_items`` so that each commit is synced to disk.

    Adapters of other tables use :func:`connect` and :func:`transaction`.
    """
    keep_damaged_log(Path(path))
    with closing(connect(path)) as connection, convert_sqlite_errors(path):
        check_table(connection, path)
        # With FULL, a power cut can undo the end of a commit; with EXTRA it cannot.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(SET_CACHE_SIZE)
        yield connection
