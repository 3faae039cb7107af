"""Reading a store without leaving a trace, at one moment, whatever state its file is in."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

from memlab.arguments import expect
from memlab.clock import wait_for_clock_tick
from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import limit_like, whole_file
from memlab.store import database
from memlab.text import refused

Result = TypeVar("Result")
State = dict[str, tuple[int, int, int]]

_LOOKS: Final = 5


@contextmanager
def open_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store at `path` as it is now, and leave no trace."""
    with open_snapshots(path, 1) as (connection,):
        yield connection


@contextmanager
def open_snapshots(path: Path, most: int) -> Iterator[list[sqlite3.Connection]]:
    """Open a store so up to `most` times: all connections see the same rows.

    Opening a WAL store read-only makes files beside it, so one that nobody has open is read as
    immutable, and looked at again afterwards; one left in a transaction is recovered in a copy.
    """
    file = path.resolve()  # side files lie beside what a link points to
    with ExitStack() as stack, database.sqlite_errors_in_words(path):
        try:
            uri, before = _way_in(file, stack)
        except OSError as error:
            raise StoreError(refused(f"{path} cannot be looked at", error)) from error
        changed = ChangedWhileReadError(
            f"{path} is rewritten faster than it can be read; try again when it is quiet"
        )
        try:
            with ExitStack() as opened:
                ways = (closing(database.connect_reading(uri)) for _ in range(most))
                connections = [opened.enter_context(each) for each in ways]
                yield connections if most == 1 else _at_one_moment(connections)
        except Exception as error:  # what is half rewritten can fail in any way
            if before == _state(file, before):
                raise
            raise changed from error
        if before != _state(file, before):
            raise changed


def _at_one_moment(connections: list[sqlite3.Connection]) -> list[sqlite3.Connection]:
    """Begin to read over those that see one moment: all of them, or the first alone."""
    before = [_version(each) for each in connections[1:]]
    for each in connections:
        each.execute("BEGIN")
    _, *after = [_version(each) for each in connections]
    # As long as no version has changed between the first and the second look at it, there was
    # a moment between all first and all second looks, and every connection sees that moment.
    return connections if before == after else connections[:1]


def _version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when somebody else commits; begins to read if in a BEGIN."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def retry_if_changed(look: Callable[[], Result]) -> Result:
    """Return ``look()``; when somebody wrote while it read, look again, up to five times."""
    for _ in range(_LOOKS - 1):
        with suppress(ChangedWhileReadError):
            return look()
    return look()


def read_snapshot(
    path: Path,
    read: Callable[[sqlite3.Connection], Result],
    *,
    check: Callable[[sqlite3.Connection, Path], None] = database.check_table,
) -> Result:
    """Return what is read of the checked store at `path`, which is opened without a trace."""

    def look() -> Result:
        with open_snapshot(path) as connection:
            check(connection, path)
            return read(connection)

    return retry_if_changed(look)


def copy_store(source: Path | str, target: Path | str) -> Path:
    """Copy a store, as one moment sees it, into a new file; the store is only read.

    The copy appears whole or not at all, and no more people may read it than the store. MemlabError
    where `target` exists or cannot be written.

    Parameters
    ----------
    source : Path or str
        A store's file or ``file:`` URI.
    target : Path or str
        The file to make.
    """
    expect(target, str, PathLike, call="memlab.copy_store", name="target")
    path = database.store_file(source)
    with whole_file(target, limit=limit_like(path), replace=False) as draft:

        def read(original: sqlite3.Connection) -> None:
            with closing(database.connect(draft)) as copy:
                original.backup(copy)

        read_snapshot(path, read)
    return Path(target)


def _way_in(file: Path, stack: ExitStack) -> tuple[str, State]:
    """Return a URI that opens the store, and what must stay as it is while no lock holds it."""
    database.check_side_files(file)
    locking = f"{file.as_uri()}?mode=ro"
    wal, shm, journal = (_side_file(file, suffix) for suffix in database.SIDE_FILES)
    is_left = _stamp(wal)[1] > 0 and not shm.exists()
    in_use = wal.exists() and shm.exists()
    # What a writer that holds a lock has begun is not rolled back: whoever reads waits for it.
    is_left |= journal.exists() and (
        (not in_use and _is_wal(file))
        or _is_refused(locking, "SQLITE_READONLY", "SQLITE_CANTOPEN", busy_timeout=0)
    )
    if is_left:
        before = _state(file, ("", *database.SIDE_FILES))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return _recovered_copy(file, Path(folder)), before
    if in_use or not _is_wal(file):
        return locking, {}
    before = _state(file, ("",))
    return f"{locking}&immutable=1", before


def _is_wal(file: Path) -> bool:
    """Whether the file asks for a write-ahead log, which SQLite cannot open without locks.

    Closing the file in Python would drop every lock that this process has on it.
    """
    return _is_refused(f"{file.as_uri()}?mode=ro&nolock=1", "SQLITE_CANTOPEN")


def _is_refused(uri: str, *why: str, busy_timeout: float = 5.0) -> bool:
    """Whether SQLite cannot read a file, for one of these reasons."""
    try:
        with closing(database.connect_reading(uri, busy_timeout=busy_timeout)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        return error.sqlite_errorname.startswith(why)
    return False


def _recovered_copy(file: Path, folder: Path) -> str:
    """Copy the store and its side files into `folder`, recover it there and return its URI."""
    copy = folder / "store.db"
    shutil.copyfile(file, copy)
    for suffix in ("-wal", "-journal"):
        with suppress(FileNotFoundError):  # its writer may have gone since
            shutil.copyfile(_side_file(file, suffix), _side_file(copy, suffix))
    with closing(database.connect(copy)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema")
        connection.execute("PRAGMA journal_mode = DELETE")
    return f"{copy.as_uri()}?mode=ro&immutable=1"


def _side_file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _state(file: Path, suffixes: Iterable[str]) -> State:
    """Return what differs once somebody has written one of the files."""
    state = {suffix: _stamp(_side_file(file, suffix)) for suffix in suffixes}
    wait_for_clock_tick(max((changed for changed, *_ in state.values()), default=0))
    return state


def _stamp(file: Path) -> tuple[int, int, int]:
    """Return when the file was changed, how long it is and which it is; zeros if there is none."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
