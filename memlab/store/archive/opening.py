"""Opening an archive: for reading without a trace, for writing, and for a deletion.

An archive recognizes its store by a sample: digests of memories that stayed in the store. The
tables of the store are not touched for that.
"""

import hashlib
import secrets
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from os.path import lexists, realpath
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from memlab import errors
from memlab.store.archive import formats
from memlab.store.archive.archive import Archive, FileIdentity, archive_error, archive_errors
from memlab.store.archive.holding import archive_held
from memlab.store.archive.kind import STORE, noted_kind, noted_store
from memlab.store.archive.location import (
    SUFFIX,
    ArchiveLocation,
    create_archive_file,
    existing_path,
    has_archive,
)
from memlab.store.archive.schema import Apply, Archived, SampleRow
from memlab.store.archive.worktree import keep_out_of_git
from memlab.store.database import check_encoding, check_side_files, text_as_bytearray, transaction
from memlab.store.records import layout_of, positions_where, records_at
from memlab.store.selection import check_deletion
from memlab.store.snapshot import read_snapshot
from memlab.text import command

Result = TypeVar("Result")
Changed = TypeVar("Changed")

_PATIENCE: Final = 30.0
"""Seconds to wait for the lock of another process."""


@contextmanager
def open_archive(location: ArchiveLocation) -> Iterator[Archive]:
    """Open an archive for reading and writing."""
    existing_path(location)
    with archive_held(location), _opened(location) as archive:
        yield archive


@contextmanager
def _opened(location: ArchiveLocation, *, may_be_empty: bool = False) -> Iterator[Archive]:
    """Open the file of an archive; create its tables if it may be empty."""
    path = location.path
    check_side_files(path)
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # With FULL, a power cut can undo the end of a commit; with EXTRA it cannot.
            connection.execute("PRAGMA synchronous = EXTRA")
            if may_be_empty:
                connection.execute(f"PRAGMA page_size = {formats.PAGE}")  # of a new file
                with transaction(connection):
                    if formats.is_unfilled(connection):
                        formats.begin(connection, location.scheme)
                        _note_store(connection, location)
            check_archive(connection, path)
            file = FileIdentity.of(path)
        yield Archive(connection, location, file)


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
    archive : Archive
        The archive.
    after_commit : callable
        Called when the store has committed, while the archive is still open.
    """

    writer: Changed
    archive: Archive
    after_commit: Callable[[], None] = lambda: None


@contextmanager
def archived_change(
    location: ArchiveLocation, change: AbstractContextManager[Changed]
) -> Iterator[ArchivedChange[Changed]]:
    """Open a store for a change and its archive, under the store's lock, until the block ends."""
    with ExitStack() as opened:
        opened.enter_context(archive_held(location))
        with change as writer:
            has_archive(location)
            ignore = keep_out_of_git(location.path, location.like)
            is_new = create_archive_file(location)
            try:
                archive = opened.enter_context(_opened(location, may_be_empty=True))
                both = ArchivedChange(writer, archive)
                yield both
            finally:
                if is_new:
                    _remove_unused(location.path)
                if ignore is not None and not location.path.exists():
                    ignore.unlink(missing_ok=True)
        both.after_commit()


def _remove_unused(path: Path) -> None:
    """Remove an archive that has no content, unless another process writes into it.

    While SQLite's exclusive lock on the file is held, nobody else can write. A process that opened
    it before notices at its next write that the file is gone: see :meth:`Archive.check_in_place`.
    """
    with suppress(sqlite3.Error, OSError):
        before = FileIdentity.of(path)
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            if formats.is_unused(connection) and before == FileIdentity.of(path):
                path.unlink()


def read_archive(location: ArchiveLocation, read: Callable[[Archive], Result]) -> Result:
    """Return ``read(archive)`` and warn about faults of the archive; create no file beside it."""

    def read_at(connection: sqlite3.Connection) -> tuple[Result, Archive]:
        archive = Archive(connection, location)
        return read(archive), archive

    path = existing_path(location)
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
    """Raise ArchiveError if a file is not an archive of a known format."""
    check_encoding(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0 or not formats.has_entries(connection):
        raise errors.ArchiveError(
            f"{path} is no archive that memlab made; nothing in it is lost: move it away and keep "
            "it, and the next deletion begins a new archive"
        )
    formats.FORMAT.check(str(path), formats.written(connection), errors.ArchiveError)
    fault = formats.wrong_table(connection)
    if fault:
        raise errors.ArchiveError(
            f"{path} {fault}, so that it is no archive as memlab makes them; nothing in it is "
            "lost: restore a backup of it, or move it away and keep it"
        )


_EACH: Final = 32
"""Number of the oldest memories that are no episodes, and of the newest memories, in the sample."""
_LOOKED_AT: Final = 2_000
"""Maximum number of files in a folder that are searched for an archive of another name."""


def identity_sample_of(connection: sqlite3.Connection, leaving: str) -> list[SampleRow]:
    """Return the sample of memories by which a store is recognized, without those that leave."""
    staying = f"FROM main.memory_items WHERE ({leaving}) IS NOT TRUE"
    sample: dict[int, str] = {}
    for order in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        sample.update(_digests(connection, f"{staying} {order} LIMIT {_EACH}"))
    return sorted(sample.items())


def check_is_of(archive: Archive) -> None:
    """Raise ArchiveError if an archive is of another store than the one beside it."""
    location = archive.location
    matching, differing = _compared(location, archive)
    if differing and not matching:
        raise errors.ArchiveError(
            f"{location.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {location.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def check_archive_of(location: ArchiveLocation, *, is_needed: bool = True) -> bool:
    """Check the archive at a location, and return whether it exists.

    Parameters
    ----------
    location : ArchiveLocation
        The location.
    is_needed : bool
        Whether to search for the archive under another name if it is missing.
    """
    exists = has_archive(location)
    if exists and location.has_sample:
        read_archive(location, check_is_of)
    elif is_needed:
        check_not_renamed(location)
    return exists


def check_not_renamed(location: ArchiveLocation) -> None:
    """Raise ArchiveError if a store without an archive left it behind under another name."""
    if has_archive(location):
        return
    renamed = archive_of_other_name(location)
    if renamed is not None:
        raise errors.ArchiveError(
            f"{renamed} is the archive of this store, which had another name; nothing was changed: "
            f"rename it to {location.path}"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed, if it is in the same folder."""
    if _like(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        if path.with_name(path.name.removesuffix(SUFFIX)).exists() or _is_anothers(path):
            continue
        with suppress(errors.MemlabError):  # the file may be no archive in spite of its name
            other_location = location._replace(path=path)
            matching, differing = read_archive(other_location, partial(_compared, location))
            if matching > differing:
                return path
    return None


def _is_anothers(archive: Path) -> bool:
    """Return whether the store that an archive in this folder notes still exists."""
    store = noted_store(archive)
    return bool(store) and lexists(store)


def archives_left(location: ArchiveLocation) -> list[Path]:
    """Return the archives of missing folders with the same name and kind as this one.

    Such a folder may have been moved here; only its name can tell.
    """
    if not location.is_chosen or location.like is None:
        return []
    archives = []
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        store = noted_store(path)
        if not store or lexists(store):
            continue
        if Path(store).name == location.like.name and noted_kind(path) == location.scheme:
            archives.append(path)
    return sorted(archives)


def _like(location: ArchiveLocation) -> Path | None:
    """Return the file of a store that can be recognized by its memories; None for other stores."""
    store = location.like
    if not location.has_sample or store is None or not store.is_file():
        return None
    return store


def _compared(location: ArchiveLocation, archive: Archive) -> tuple[int, int]:
    """Return how many memories of the sample are in the store, and how many others instead."""
    store = _like(location)
    sample = dict(archive.identity_sample())
    if store is None or not sample:
        return 0, 0

    def compare(connection: sqlite3.Connection) -> tuple[int, int]:
        positions = ", ".join(map(str, sample))
        current = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({positions})")
        (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
        if last is None:  # an empty store matches every archive
            return 0, 0
        matching = len(sample.items() & current.items())
        beyond_end = sum(position > last for position in sample)
        return matching, len(current) - matching + beyond_end

    return read_snapshot(store, compare)


def _digests(connection: sqlite3.Connection, rows: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever types their values have."""
    with text_as_bytearray(connection, bytes):
        selected = connection.execute(f"SELECT rowid, memory_id, created_at {rows}").fetchall()
    return {
        row[0]: hashlib.blake2b(repr(row).encode(), digest_size=8).hexdigest() for row in selected
    }


class Why(NamedTuple):
    """Policy and reason of a deletion by a runtime."""

    policy: Mapping[str, Any]
    reason: str


class ArchivedCompaction(NamedTuple):
    """An archived deletion by a runtime, which can be undone.

    Examples
    --------
    >>> ArchivedCompaction("ab" * 32, Path("memory.db")).undo
    'memlab restore memory.db abababababab'
    """

    digest: str
    store: Path

    @property
    def undo(self) -> str:
        """The command that undoes it."""
        return command("restore", self.store, self.digest[:12])


@contextmanager
def archived_first(
    connection: sqlite3.Connection,
    location: ArchiveLocation | None,
    chosen: str,
    why: Why,
    *,
    at: datetime,
    settle: bool = True,
) -> Iterator[str | None]:
    """Archive rows, then let the block delete them; discard the copies if the block raises.

    This is for a runtime that deletes by itself from a store that it has open. Without a location
    nothing is archived::

        with transaction(connection):
            with archived_first(connection, location, chosen, why, at=now) as digest:
                delete_rows(connection, chosen, load_bearing)
        note_deleted(location, digest, at=now)
    """
    check_deletion(connection, chosen)
    if location is None:
        yield None
        return
    if settle:
        check_archive_of(location)
    layout = layout_of(connection)
    digest = secrets.token_hex(32)
    ((count,),) = connection.execute(f"SELECT count(*) FROM main.memory_items WHERE {chosen}")
    # The caller holds the lock of the store.
    with archived_change(location, ExitStack()) as both:
        archive = both.archive
        if settle:
            archive.check_entries()
            archive.reconcile_interrupted(partial(records_at, connection, layout), at=at)
        positions = positions_where(connection, chosen)
        copies = (
            Archived(position, record, why.reason)
            for position, record in records_at(connection, layout, positions)
        )
        staying = identity_sample_of(connection, chosen) if settle else None
        deletion = Apply(digest=digest, policy=why.policy, made_at=at, memories=count)
        with archive.deleting(deletion, copies, at=at, staying=staying):
            yield digest


def note_deleted(location: ArchiveLocation | None, digest: str | None, *, at: datetime) -> None:
    """Record in the archive that a deletion is done. Call it after the commit of the store."""
    if location is None or digest is None:
        return
    try:
        with open_archive(location) as archive:
            archive.mark_applied(digest, at)
    except errors.ArchiveError as error:
        raise errors.ArchiveError(
            f"the rows were deleted from {location.store} and are archived; only the archive could "
            f"not note it ({error.__cause__ or error}): the next deletion notes it"
        ) from error
