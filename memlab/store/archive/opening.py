"""Opening the file of an archive: for reading without a trace, for writing, and for a deletion.

:class:`memlab.store.archive.archive.Archive` calls these functions after its checks.
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
from memlab.store.archive.holding import archive_held
from memlab.store.archive.kind import STORE
from memlab.store.archive.location import (
    ArchiveLocation,
    create_archive_file,
    has_archive,
)
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
Changed = TypeVar("Changed")

_LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for the lock of another process."""


@contextmanager
def open_archive(location: ArchiveLocation) -> Iterator[OpenArchive]:
    """Open an existing archive for reading and writing."""
    with archive_held(location), _opened(location) as archive:
        yield archive


@contextmanager
def _opened(location: ArchiveLocation, *, may_be_empty: bool = False) -> Iterator[OpenArchive]:
    """Open the file of an archive; create its tables if it may be empty."""
    path = location.path
    check_side_files(path)
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_LOCK_TIMEOUT, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # With FULL, a power cut can undo the end of a commit; with EXTRA it cannot.
            connection.execute("PRAGMA synchronous = EXTRA")
            if may_be_empty:
                # This has an effect on a new file only.
                connection.execute(f"PRAGMA page_size = {formats.PAGE}")
                with transaction(connection):
                    if formats.is_unfilled(connection):
                        formats.begin(connection, location.scheme)
                        _note_store(connection, location)
            check_archive(connection, path)
            file = FileIdentity.of(path)
        yield OpenArchive(connection, location, file)


def _note_store(connection: sqlite3.Connection, location: ArchiveLocation) -> None:
    """Note the path of the store in a new archive that is not beside it."""
    if location.is_chosen and location.like is not None:
        note = (STORE, realpath(location.like))
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", note)


@dataclass
class ArchivedChange(Generic[Changed]):
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

    writer: Changed
    archive: OpenArchive
    after_commit: Callable[[], None] = lambda: None


@contextmanager
def archived_change(
    location: ArchiveLocation, change: AbstractContextManager[Changed]
) -> Iterator[ArchivedChange[Changed]]:
    """Open a store for a change and its archive, under the store's lock, until the block ends."""
    with ExitStack() as opened:
        opened.enter_context(archive_held(location))
        with change as writer:
            has_archive(location)  # raises if the file at the path cannot be the archive
            # a .gitignore that was written for the archive; None if there is no need for one
            new_ignore_file = keep_out_of_git(location.path, location.like)
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

    While this process holds SQLite's exclusive lock on the file, no other process can write. One
    that opened the file before finds at its next write, by :meth:`OpenArchive.check_in_place`, that
    the file is gone.
    """
    with suppress(sqlite3.Error, OSError):
        before = FileIdentity.of(path)
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            if formats.is_unused(connection) and before == FileIdentity.of(path):
                path.unlink()


def read_archive(location: ArchiveLocation, read: Callable[[OpenArchive], Result]) -> Result:
    """Return ``read(archive)`` and warn about faults of the archive; create no file beside it."""

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
        advice = "that was left out: restore a backup of it to have it again"
        warnings.warn(
            f"{archive.faults_in_words()}; {advice}", errors.DamagedArchiveWarning, stacklevel=2
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
    fault = formats.wrong_table(connection)
    if fault:
        raise errors.ArchiveError(
            f"{path} {fault}, so that it is not an archive that memlab made; nothing in it is "
            "lost: restore a backup of it, or move it away and keep it"
        )
