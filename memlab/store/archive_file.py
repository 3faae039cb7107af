"""The file of an archive: made beside its store, opened, and read without a trace."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from os.path import lexists
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import TypeVar

from memlab.errors import ArchiveError, StoreError, UnfilledArchiveError
from memlab.store.archive import Archive
from memlab.store.archive_place import ArchivePlace, archive_error, archive_errors
from memlab.store.archive_tables import (
    FIRST_FORMAT,
    FORMAT,
    TABLES,
    bring_up_to_date,
    create_tables,
)
from memlab.store.database import connect_reading, transaction
from memlab.store.looking import read_store

Result = TypeVar("Result")


@contextmanager
def open_archive(place: ArchivePlace, *, busy_timeout: float = 30.0) -> Iterator[Archive]:
    """Open an archive for reading and writing; one of format 1 is brought up to date.

    Parameters
    ----------
    place : ArchivePlace
        Where it is.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.

    Raises
    ------
    ArchiveError
        When there is none, or the file is no archive of a known format.
    """
    path = _existing(place)
    with _connected(path, busy_timeout) as connection:
        with archive_errors(path):
            check_archive(connection, path)
        bring_up_to_date(connection, place)
        yield Archive(connection, place)


@contextmanager
def create_archive(place: ArchivePlace, *, busy_timeout: float = 30.0) -> Iterator[Archive]:
    """Open an archive for reading and writing, making it where there is none.

    One that was made for a deletion that was refused is removed again.

    Parameters
    ----------
    place : ArchivePlace
        Where it is.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.

    Raises
    ------
    ArchiveError
        When it cannot be made, or the file is no archive of a known format.
    """
    path = place.path
    is_new = _touch_like(path, place.like)
    try:
        with _connected(path, busy_timeout) as new:
            with archive_errors(path):
                with transaction(new):
                    if not new.execute("SELECT 1 FROM sqlite_schema").fetchone():
                        create_tables(new, place)
                check_archive(new, path)
            bring_up_to_date(new, place)
            try:
                yield Archive(new, place)
            except BaseException:
                is_new = is_new and not new.execute("SELECT 1 FROM applies").fetchone()
                raise
    except BaseException:
        if is_new:  # made for nothing
            path.unlink(missing_ok=True)
        raise


def read_archive(place: ArchivePlace, read: Callable[[Archive], Result]) -> Result:
    """Return ``read(archive)`` without leaving a trace beside it.

    Parameters
    ----------
    place : ArchivePlace
        Where it is.
    read : callable
        May be called more than once.

    Raises
    ------
    ArchiveError
        When there is none, or it cannot be read.
    """

    def read_at(uri: str) -> Result:
        with closing(connect_reading(uri)) as connection:
            return read(Archive(connection, place))

    path = _existing(place)
    try:
        return read_store(path, read_at, check=check_archive)
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error):
            raise archive_error(cause, path) from cause
        raise ArchiveError(f"archive: {error}") from error


def is_begun(place: ArchivePlace) -> bool:
    """Whether there is a file with something in it where the archive would be.

    Raises
    ------
    ArchiveError
        When something else is there: a folder, a pipe, a link to nothing.
    """
    if lexists(place.path) and not place.path.is_file():
        raise ArchiveError(
            f"{place.path} has an archive's name and is no ordinary file; move it away"
        )
    return place.path.is_file() and place.path.stat().st_size > 0


def check_archive(connection: sqlite3.Connection, path: Path) -> None:
    """Check that `connection` holds an archive of a known format.

    Raises
    ------
    UnfilledArchiveError
        When it is still empty.
    ArchiveError
        When it does not.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    tables = {name for (name,) in found}
    if version == 0 and not tables:
        raise UnfilledArchiveError(
            f"{path} was begun and never filled: a plan was cut short before it took anything out; "
            "apply it again, or delete that file"
        )
    if version not in TABLES or not TABLES[version] <= tables:
        raise ArchiveError(
            f"{path} is not an archive of format {FIRST_FORMAT} or {FORMAT} (it says {version}); "
            "use the memlab that wrote it, or move the file away"
        )


def _existing(place: ArchivePlace) -> Path:
    if not is_begun(place):
        if place.like is not None and not place.like.exists():
            raise ArchiveError(
                f"there is no store {place.store} and no archive {place.path}; check the path"
            )
        raise ArchiveError(
            f"there is no archive {place.path}: no plan has taken anything out of {place.store}"
        )
    return place.path


@contextmanager
def _connected(path: Path, busy_timeout: float) -> Iterator[sqlite3.Connection]:
    with archive_errors(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=busy_timeout, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
            connection.execute("PRAGMA synchronous = EXTRA")
        yield connection


def _touch_like(path: Path, store: Path | None) -> bool:
    """Make an empty file with the owner and the permissions of `store`; whether there was none."""
    try:
        if store is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        like = None if store is None else store.stat()
        try:
            _make(path, like)
        except FileExistsError:
            _check_ordinary(path, like)
            return False
    except OSError as error:
        raise ArchiveError(
            f"the archive {path} cannot be made ({error.strerror}); nothing was deleted: check the "
            "permissions of the folder"
        ) from error
    return True


def _make(path: Path, like: os.stat_result | None) -> None:
    """Make an empty file; it must not be there."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if like is not None:
            _make_like(descriptor, like)
            _check_for_owner(path, os.fstat(descriptor), like)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _make_like(descriptor: int, like: os.stat_result) -> None:
    """Give a file that was just made the owner and the permissions of another."""
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        except PermissionError:  # a member of the group may give a file of his own to the group
            with suppress(PermissionError):
                os.fchown(descriptor, -1, like.st_gid)
    os.fchmod(descriptor, like.st_mode & (0o666 if S_ISDIR(like.st_mode) else 0o7777))


def _check_ordinary(path: Path, like: os.stat_result | None) -> None:
    """Refuse what is no file of its own, or may be read by more people than the store."""
    found = path.lstat()
    if not S_ISREG(found.st_mode):
        raise ArchiveError(
            f"{path} has an archive's name and is a link or no ordinary file; nothing was deleted: "
            "move it away"
        )
    allowed = 0o600 if like is None else like.st_mode
    if S_IMODE(found.st_mode) & ~allowed & 0o777:
        raise ArchiveError(
            f"{path} may be read or written by more people than the store; nothing was deleted: "
            f"run chmod {allowed & 0o777:o} on it first"
        )
    if like is not None:
        _check_for_owner(path, found, like)


def _check_for_owner(path: Path, found: os.stat_result, like: os.stat_result) -> None:
    """Refuse an archive from which the store's owner could restore nothing."""
    if like.st_uid in (0, found.st_uid):
        return
    groups = _groups_of(like.st_uid) or [like.st_gid]
    allowed = found.st_mode >> 3 if found.st_gid in groups else found.st_mode
    if allowed & 0o6 != 0o6:
        raise ArchiveError(
            f"the owner of the store could not read and write the archive {path}; nothing was "
            "deleted: let the owner apply the plan, or give the store a group that its owner is "
            "in, which may read and write it"
        )


def _groups_of(user: int) -> list[int]:
    """Return the groups of a user; none where nobody knows the user."""
    import pwd  # not on every system, and hardly ever needed

    try:
        known = pwd.getpwuid(user)
    except KeyError:
        return []
    return os.getgrouplist(known.pw_name, known.pw_gid)
