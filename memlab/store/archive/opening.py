"""Opening an archive: to read it without a trace, to change it, or to make it."""

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from memlab import errors
from memlab.store.archive.archive import Archive, archive_error, archive_errors
from memlab.store.archive.entries import FORMAT, create_tables, is_made_here
from memlab.store.archive.location import ArchiveLocation, begun_path, is_begun, touch_like
from memlab.store.database import check_encoding, check_side_files, connect_reading, transaction
from memlab.store.snapshot import read_snapshot

Result = TypeVar("Result")
Changed = TypeVar("Changed")

_PATIENCE: Final = 30.0
"""Seconds for which the lock of another process is waited for."""


@contextmanager
def open_archive(location: ArchiveLocation) -> Iterator[Archive]:
    """Open an archive for reading and writing."""
    path = begun_path(location)
    with _connected(path) as connection:
        with archive_errors(path):
            check_archive(connection, path)
        yield Archive(connection, location)


@dataclass
class ArchivedChange(Generic[Changed]):
    """A store that is being changed, and its archive beside it."""

    writer: Changed
    archive: Archive
    after_commit: Callable[[], None] = lambda: None
    """Called when the store has committed and the archive is still open."""


@contextmanager
def archived_change(
    location: ArchiveLocation, change: AbstractContextManager[Changed]
) -> Iterator[ArchivedChange[Changed]]:
    """Open a store for a change and its archive, under the store's lock, until that is noted."""
    with ExitStack() as opened:
        with change as writer:
            is_begun(location)
            is_new = touch_like(location.path, location.like)
            archive = None
            try:
                connection = opened.enter_context(_connected(location.path))
                with archive_errors(location.path):
                    with transaction(connection):
                        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                            create_tables(connection, location.scheme)
                    check_archive(connection, location.path)
                archive = Archive(connection, location)
                both = ArchivedChange(writer, archive)
                yield both
            finally:
                if is_new and (archive is None or archive.is_empty):
                    with suppress(OSError):
                        location.path.unlink(missing_ok=True)
        both.after_commit()


def read_archive(location: ArchiveLocation, read: Callable[[Archive], Result]) -> Result:
    """Return ``read(archive)`` without leaving a trace beside it, and warn of what it left out."""

    def read_at(uri: str) -> tuple[Result, Archive]:
        with closing(connect_reading(uri)) as connection:
            archive = Archive(connection, location)
            return read(archive), archive

    path = begun_path(location)
    try:
        result, archive = read_snapshot(path, read_at, check=check_archive)
    except (errors.StoreError, errors.BadRowError) as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error):
            raise archive_error(cause, path) from cause
        raise errors.ArchiveError(f"archive: {error}") from error
    if archive.faults:
        words = f"{archive.told()}; that was left out: restore a backup of it to have it again"
        warnings.warn(words, errors.DamagedArchiveWarning, stacklevel=2)
    return result


def check_archive(connection: sqlite3.Connection, path: Path) -> None:
    """Check that `connection` holds an archive of a known format."""
    check_encoding(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table'").fetchone()
    if version == 0 and not found:
        raise errors.UnfilledArchiveError(
            f"{path} was begun and never filled: a plan was cut short before it took anything out; "
            "apply it again, or delete that file"
        )
    if version != FORMAT or not is_made_here(connection):
        made = "" if version != FORMAT else ", with other tables than memlab makes"
        raise errors.ArchiveError(
            f"{path} is no archive of format {FORMAT} (it says {version}{made}); nothing in it is "
            "lost: move it away and keep it, and the next deletion begins a new archive"
        )


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    check_side_files(path)
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
            connection.execute("PRAGMA synchronous = EXTRA")
        yield connection
