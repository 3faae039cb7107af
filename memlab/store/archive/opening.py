"""Opening an archive: to read it without a trace, to change it, to make it before rows go.

Which store it is of is known by digests of memories that stayed: the store's tables are not
touched.
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
"""Seconds for which the lock of another process is waited for."""


@contextmanager
def open_archive(location: ArchiveLocation) -> Iterator[Archive]:
    """Open an archive for reading and writing."""
    existing_path(location)
    with archive_held(location), _opened(location) as archive:
        yield archive


@contextmanager
def _opened(location: ArchiveLocation, *, may_be_empty: bool = False) -> Iterator[Archive]:
    """Open the file of an archive, and make its tables where there may be none."""
    path = location.path
    check_side_files(path)
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
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
    """Write down the store of a new archive that does not lie beside it."""
    if location.is_chosen and location.like is not None:
        note = (STORE, realpath(location.like))
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", note)


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
    """Remove an archive that holds nothing, unless somebody else has begun to write into it.

    Nobody else can write while SQLite's exclusive lock on the file is held, and whoever opened it
    before finds it gone when it comes to write: see :meth:`Archive.check_in_place`.
    """
    with suppress(sqlite3.Error, OSError):
        before = FileIdentity.of(path)
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            if formats.is_unused(connection) and before == FileIdentity.of(path):
                path.unlink()


def read_archive(location: ArchiveLocation, read: Callable[[Archive], Result]) -> Result:
    """Return ``read(archive)`` without leaving a trace beside it, and warn of what it left out."""

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
    """Check that `connection` holds an archive of a known format."""
    check_encoding(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0 or not formats.has_entries(connection):
        raise errors.ArchiveError(
            f"{path} is no archive that memlab made; nothing in it is lost: move it away and keep "
            "it, and the next deletion begins a new archive"
        )
    formats.FORMAT.check(str(path), formats.written(connection), errors.ArchiveError)
    if wrong := formats.wrong_table(connection):
        raise errors.ArchiveError(
            f"{path} {wrong}, so that it is no archive as memlab makes them; nothing in it is "
            "lost: restore a backup of it, or move it away and keep it"
        )


_EACH: Final = 32
"""Of the oldest memories that are no episodes, and of the newest."""
_LOOKED_AT: Final = 2_000
"""Files of a folder, at most, that are looked at for an archive of another name."""


def identity_sample_of(connection: sqlite3.Connection, leaving: str) -> list[SampleRow]:
    """Return memories by which their store is known again."""
    staying = f"FROM main.memory_items WHERE ({leaving}) IS NOT TRUE"
    found: dict[int, str] = {}
    for rest in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        found |= _digests(connection, f"{staying} {rest} LIMIT {_EACH}")
    return sorted(found.items())


def check_is_of(archive: Archive) -> None:
    """Check that an archive is of the store beside it, as far as anybody can tell."""
    location = archive.location
    found, other = _compared(location, archive)
    if other and not found:
        raise errors.ArchiveError(
            f"{location.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {location.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def check_archive_of(location: ArchiveLocation, *, is_needed: bool = True) -> bool:
    """Check what lies where the archive of a store would be, and return whether it has one."""
    exists = has_archive(location)
    if exists and location.has_sample:
        read_archive(location, check_is_of)
    elif is_needed:
        check_not_renamed(location)
    return exists


def check_not_renamed(location: ArchiveLocation) -> None:
    """Check that a store which has no archive did not leave it behind under another name."""
    if not has_archive(location) and (renamed := archive_of_other_name(location)):
        raise errors.ArchiveError(
            f"{renamed} is the archive of this store, which had another name; nothing was changed: "
            f"rename it to {location.path}"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed since, where one lies beside it."""
    if _like(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        if path.with_name(path.name.removesuffix(SUFFIX)).exists() or _is_anothers(path):
            continue
        with suppress(errors.MemlabError):  # no archive, for all its name
            found, other = read_archive(location._replace(path=path), partial(_compared, location))
            if found > other:
                return path
    return None


def _is_anothers(archive: Path) -> bool:
    """Whether the store for which an archive was begun in this folder is where it was."""
    store = noted_store(archive)
    return bool(store) and lexists(store)


def archives_left(location: ArchiveLocation) -> list[Path]:
    """Return the archives of folders of this name and kind that are gone from where they were.

    Such a folder may have been moved here: nothing but its name tells.
    """
    if not location.is_chosen or location.like is None:
        return []
    found = []
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        store = noted_store(path)
        is_same = Path(store).name == location.like.name and noted_kind(path) == location.scheme
        if store and is_same and not lexists(store):
            found.append(path)
    return sorted(found)


def _like(location: ArchiveLocation) -> Path | None:
    """Return the store's file, where it can be told from another by its memories."""
    found = location.like
    return found if location.has_sample and found is not None and found.is_file() else None


def _compared(location: ArchiveLocation, archive: Archive) -> tuple[int, int]:
    """Return how many memories that an archive noted are there, how many others in their stead."""
    store = _like(location)
    noted = dict(archive.identity_sample())

    def read(connection: sqlite3.Connection) -> tuple[int, int]:
        places = ", ".join(map(str, noted))
        there = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({places})")
        (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
        if last is None:  # an empty store is nobody's
            return 0, 0
        found = len(noted.items() & there.items())
        return found, len(there) - found + sum(place > last for place in noted)

    return read_snapshot(store, read) if store is not None and noted else (0, 0)


def _digests(connection: sqlite3.Connection, rows: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever their values are."""
    with text_as_bytearray(connection, bytes):
        found = connection.execute(f"SELECT rowid, memory_id, created_at {rows}").fetchall()
    return {
        place: hashlib.blake2b(repr((place, *said)).encode(), digest_size=8).hexdigest()
        for place, *said in found
    }


class Why(NamedTuple):
    """Why rows are deleted."""

    policy: Mapping[str, Any]
    reason: str


class ArchivedCompaction(NamedTuple):
    """A deletion by a runtime that is in the archive and can be taken back.

    Examples
    --------
    >>> ArchivedCompaction("ab" * 32, Path("memory.db")).undo
    'memlab restore memory.db abababababab'
    """

    digest: str
    store: Path

    @property
    def undo(self) -> str:
        """The command that takes it back."""
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
    """Archive and sync rows; then let the block delete them. If it raises, take them out again.

    For a runtime that deletes by itself from one open store; without a location nothing is
    archived::

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
    with archived_change(location, ExitStack()) as both:  # whoever calls holds the store's lock
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
        named = Apply(digest, why.policy, at, count)
        with archive.deleting(named, copies, at=at, staying=staying):
            yield digest


def note_deleted(location: ArchiveLocation | None, digest: str | None, *, at: datetime) -> None:
    """Note in the archive that a deletion is done; call it after the store's commit."""
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
