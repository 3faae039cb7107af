"""Reading a store file at one moment, whatever its state, without creating files beside it."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from memlab.arguments import expect
from memlab.clock import wait_for_clock_tick
from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import permissions_like, whole_file
from memlab.store import database
from memlab.text import failure_message

Result = TypeVar("Result")


class FileState(NamedTuple):
    """The state of a file, by which a change is noticed; zeros if there is no file."""

    modified: int
    """Time of the last change in nanoseconds."""
    size: int
    """Size in bytes."""
    inode: int


FileStates = dict[Path, FileState]
"""States of files by path."""

_ATTEMPTS: Final = 5
"""Maximum number of attempts to read a store that changes."""


@contextmanager
def open_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store at its current state for reading; create no file beside it."""
    with open_snapshots(path, 1) as (connection,):
        yield connection


@contextmanager
def open_snapshots(path: Path, count: int) -> Iterator[list[sqlite3.Connection]]:
    """Open a store several times, so that all connections see the same state.

    If another process commits in the meantime, only one connection is yielded.

    Opening a store in WAL mode read-only would create files beside it. A store that nobody has open
    is therefore read as immutable, and checked for changes afterwards. A store that was left in the
    middle of a transaction is recovered in a temporary copy.

    Parameters
    ----------
    path : Path
        The store.
    count : int
        The number of connections to open.
    """
    file = path.resolve()  # the side files are beside the target of a link
    with ExitStack() as stack, database.convert_sqlite_errors(path):
        try:
            uri, before = _uri_for_reading(file, stack)
        except OSError as error:
            raise StoreError(failure_message(f"{path} cannot be looked at", error)) from error
        changed_error = ChangedWhileReadError(
            f"{path} is rewritten faster than it can be read; try again when it is quiet"
        )
        try:
            with ExitStack() as opened:
                connections = []
                for _ in range(count):
                    connection = closing(database.connect_reading(uri))
                    connections.append(opened.enter_context(connection))
                if count > 1:
                    connections = _begin_reading_together(connections)
                yield connections
        except Exception as error:  # a file that is being rewritten can cause any error
            if before == states_of(before):
                raise
            raise changed_error from error
        if before != states_of(before):
            raise changed_error


def _begin_reading_together(connections: list[sqlite3.Connection]) -> list[sqlite3.Connection]:
    """Begin a read transaction on each connection; return those that see the same state.

    If another process commits in the meantime, return the first connection alone.
    """
    first, *others = connections
    before = [_begin_and_read_version(connection) for connection in others]
    for connection in connections:
        connection.execute("BEGIN")
    _begin_and_read_version(first)
    after = [_begin_and_read_version(connection) for connection in others]
    # If no version changed between the first and the second query, there was a moment after all
    # first queries and before all second ones, and every connection sees the state at that moment.
    if before == after:
        return connections
    return [first]


def _begin_and_read_version(connection: sqlite3.Connection) -> int:
    """Return the data version of a store, which changes when another process commits.

    The query before it makes a transaction that was begun see the current state from then on.
    """
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def retry_if_changed(read: Callable[[], Result]) -> Result:
    """Return ``read()``; call it up to five times if another process writes while it reads."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(ChangedWhileReadError):
            return read()
    return read()


def read_snapshot(
    path: Path,
    read: Callable[[sqlite3.Connection], Result],
    *,
    check: Callable[[sqlite3.Connection, Path], None] = database.check_table,
) -> Result:
    """Return ``read(connection)`` for a checked snapshot of a store."""

    def read_once() -> Result:
        with open_snapshot(path) as connection:
            check(connection, path)
            return read(connection)

    return retry_if_changed(read_once)


def copy_store(source: Path | str, target: Path | str) -> Path:
    """Copy a store at its current state into a new file. The store is only read.

    The copy appears when it is complete, or not at all. Its permissions are at most those of the
    store.

    Parameters
    ----------
    source : Path or str
        The file of the store, or its ``file:`` URI.
    target : Path or str
        The file to create.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    MemlabError
        If `target` exists or cannot be written.

    Examples
    --------
    >>> import memlab
    >>> store = copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> len(memlab.load(store))
    480
    """
    expect(target, str, PathLike, call="memlab.copy_store", name="target")
    path = database.store_file(source)
    with whole_file(target, permissions=permissions_like(path), replace=False) as draft:

        def read(original: sqlite3.Connection) -> None:
            with closing(database.connect(draft)) as copy:
                original.backup(copy)

        read_snapshot(path, read)
    return Path(target)


def _uri_for_reading(file: Path, stack: ExitStack) -> tuple[str, FileStates]:
    """Return a URI that opens a store for reading, and the states of the files that it reads.

    These files must not change meanwhile. The states are empty if SQLite locks the store while it
    is read.
    """
    database.check_side_files(file)
    locking_uri = f"{file.as_uri()}?mode=ro"
    wal, shm, journal = (_side_file(file, suffix) for suffix in database.SIDE_FILES)
    in_use = wal.exists() and shm.exists()
    if _needs_recovery(file, locking_uri, in_use=in_use):
        before = states_of([file, wal, shm, journal])
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return _recovered_copy(file, Path(folder)), before
    if in_use or not _is_wal(file):
        return locking_uri, {}
    before = states_of([file])
    return f"{locking_uri}&immutable=1", before


def _needs_recovery(file: Path, locking_uri: str, *, in_use: bool) -> bool:
    """Return whether a store was left in the middle of a transaction."""
    wal, shm, journal = (_side_file(file, suffix) for suffix in database.SIDE_FILES)
    if _state_of(wal).size > 0 and not shm.exists():
        return True
    if not journal.exists():
        return False
    if not in_use and _is_wal(file):
        return True
    # The journal of a writer that holds a lock is not rolled back: SQLite waits for that writer.
    return _fails_with(locking_uri, "SQLITE_READONLY", "SQLITE_CANTOPEN", busy_timeout=0)


def _is_wal(file: Path) -> bool:
    """Return whether a file is in WAL mode, which SQLite cannot open without locks.

    The header is not read here: closing the file would drop every lock of this process on it.
    """
    return _fails_with(f"{file.as_uri()}?mode=ro&nolock=1", "SQLITE_CANTOPEN")


def _fails_with(uri: str, *error_names: str, busy_timeout: float = 5.0) -> bool:
    """Return whether SQLite fails to read a file with one of these errors."""
    try:
        with closing(database.connect_reading(uri, busy_timeout=busy_timeout)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        return error.sqlite_errorname.startswith(error_names)
    return False


def _recovered_copy(file: Path, folder: Path) -> str:
    """Copy a store and its side files into `folder`, recover the copy and return its URI."""
    copy = folder / "store.db"
    shutil.copyfile(file, copy)
    for suffix in ("-wal", "-journal"):
        with suppress(FileNotFoundError):  # another process may have removed it
            shutil.copyfile(_side_file(file, suffix), _side_file(copy, suffix))
    with closing(database.connect(copy)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema")
        connection.execute("PRAGMA journal_mode = DELETE")
    return f"{copy.as_uri()}?mode=ro&immutable=1"


def _side_file(path: Path, suffix: str) -> Path:
    """Return the path of a side file of a store."""
    return path.with_name(path.name + suffix)


def states_of(files: Iterable[Path]) -> FileStates:
    """Return the states of files, after the clock's next tick.

    A file that is changed from then on has another time of change.
    """
    states = {file: _state_of(file) for file in files}
    times = [state.modified for state in states.values()]
    wait_for_clock_tick(max(times, default=0))
    return states


def _state_of(file: Path) -> FileState:
    """Return the state of a file."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return FileState(modified=0, size=0, inode=0)
    return FileState(modified=stat.st_mtime_ns, size=stat.st_size, inode=stat.st_ino)
