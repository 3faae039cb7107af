"""Functions that open the file of an archive: to read it, to write it, or to change its store.

:class:`memlab.store.archive.archive.Archive` calls them after its checks. Reading creates no file
beside an archive.
"""

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Final, Generic, TypeVar

from memlab import errors
from memlab.store.archive import formats
from memlab.store.archive.kind import STORE
from memlab.store.archive.location import (
    ArchiveLocation,
    create_archive_file,
    has_archive,
)
from memlab.store.archive.lock import archive_lock
from memlab.store.archive.open_archive import (
    FileIdentity,
    OpenArchive,
    archive_error,
    archive_errors,
)
from memlab.store.archive.worktree import keep_out_of_git
from memlab.store.database import check_encoding, check_side_files, transaction
from memlab.store.snapshot import read_snapshot

Result = TypeVar("Result")
AnyWriter = TypeVar("AnyWriter")

_LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for the lock of another process."""


@contextmanager
def open_archive(location: ArchiveLocation) -> Iterator[OpenArchive]:
    """Open an existing archive for reading and writing."""
    with archive_lock(location), _opened(location) as archive:
        yield archive


@contextmanager
def _opened(location: ArchiveLocation, *, may_be_empty: bool = False) -> Iterator[OpenArchive]:
    """Open the file of an archive. With `may_be_empty`, create the tables of an empty one.

    The caller has called :func:`archive_lock`.
    """
    path = location.path
    check_side_files(path)
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_LOCK_TIMEOUT, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # With FULL, a power cut can undo a commit in its last step; with EXTRA it cannot.
            connection.execute("PRAGMA synchronous = EXTRA")
            if may_be_empty:
                # The page size has an effect on a new file only.
                connection.execute(f"PRAGMA page_size = {formats.PAGE_BYTES}")
                with transaction(connection):
                    if formats.is_incomplete(connection):
                        formats.create_tables(connection, location.scheme)
                        _note_store(connection, location)
            check_archive(connection, path)
            file = FileIdentity.of(path)
        yield OpenArchive(connection, location, file)


def _note_store(connection: sqlite3.Connection, location: ArchiveLocation) -> None:
    """Note the path of the store in a new archive that is not beside the store."""
    if location.is_in_archive_folder and location.store_path is not None:
        name_and_value = (STORE, realpath(location.store_path))
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", name_and_value)


@dataclass
class ArchivedChange(Generic[AnyWriter]):
    """A store that is open for a change, and its archive.

    Attributes
    ----------
    writer : object
        Changes the store.
    archive : OpenArchive
        The archive.
    after_commit : callable
        Called when the store has committed, while the archive is still open.
    """

    writer: AnyWriter
    archive: OpenArchive
    after_commit: Callable[[], None] = lambda: None


@contextmanager
def archived_change(
    location: ArchiveLocation, change: AbstractContextManager[AnyWriter]
) -> Iterator[ArchivedChange[AnyWriter]]:
    """Open a store for a change, and then its archive, until the block ends.

    The store stays locked meanwhile. An archive that was created and has no content at the end is
    removed.
    """
    with ExitStack() as opened:
        opened.enter_context(archive_lock(location))
        with change as writer:
            has_archive(location)  # raises ArchiveError if the file at the path is something else
            new_ignore_file = keep_out_of_git(location.path, location.store_path)
            is_new = create_archive_file(location)
            try:
                archive = opened.enter_context(_opened(location, may_be_empty=True))
                opened_change = ArchivedChange(writer, archive)
                yield opened_change
            finally:
                if is_new:
                    _remove_unused(location.path)
                if new_ignore_file is not None and not location.path.exists():
                    new_ignore_file.unlink(missing_ok=True)
        opened_change.after_commit()


def _remove_unused(path: Path) -> None:
    """Remove an archive that has no content, unless another process writes into it.

    While this process holds SQLite's exclusive lock on the file, no other process can write. If one
    has opened the file before, :meth:`OpenArchive.check_in_place` raises at its next write, because
    the file is removed.
    """
    with suppress(sqlite3.Error, OSError):
        before = FileIdentity.of(path)
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            if formats.is_unused(connection) and before == FileIdentity.of(path):
                path.unlink()


def read_archive(location: ArchiveLocation, read: Callable[[OpenArchive], Result]) -> Result:
    """Call a function on an archive, opened for reading, and return its result.

    Warn about faults of the archive. No file is created beside it.
    """

    def read_connection(connection: sqlite3.Connection) -> tuple[Result, OpenArchive]:
        archive = OpenArchive(connection, location)
        return read(archive), archive

    path = location.path
    try:
        result, archive = read_snapshot(path, read_connection, check=check_archive)
    except (errors.StoreError, errors.BadRowError) as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error):
            raise archive_error(cause, path) from cause
        raise errors.ArchiveError(f"archive: {error}") from error
    if archive.faults:
        advice = "these parts were left out: restore a backup of the archive to read them"
        warnings.warn(
            f"{archive.describe_faults()}; {advice}", errors.DamagedArchiveWarning, stacklevel=2
        )
    return result


def check_archive(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ArchiveError if a file is not an archive of a known format."""
    check_encoding(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0 or not formats.has_entries(connection):
        raise errors.ArchiveError(
            f"{path} is not an archive that memlab made; nothing in it is lost: move it away and "
            "keep it, and the next deletion begins a new archive"
        )
    formats.FORMAT.check(str(path), formats.written(connection), errors.ArchiveError)
    fault = formats.table_fault(connection)
    if fault:
        raise errors.ArchiveError(
            f"{path} {fault}, so that it is not an archive that memlab made; nothing in it is "
            "lost: restore a backup of it, or move it away and keep it"
        )
