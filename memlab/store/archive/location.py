"""Where an archive is, whose it is, and who may read it: nobody whom the store shuts out."""

import json
import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from os.path import lexists, realpath
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, ArchivePermissionsWarning, MemlabError
from memlab.files import make_like
from memlab.settings import FILE as SETTINGS_FILE
from memlab.settings import read_settings
from memlab.store.archive.formats import is_unfilled
from memlab.store.archive.schema import Check
from memlab.store.database import path_named
from memlab.store.records import check_any_row, check_row
from memlab.store.snapshot import read_snapshot
from memlab.text import in_shell

SUFFIX: Final = ".archive.db"
"""What an archive's name adds to its store's."""


def unchanged(record: bytes) -> bytes:
    """Return a record as it is."""
    return record


def id_in(record: bytes) -> Any:
    """Return the id that a record of ``memory_items`` says."""
    return json.loads(record).get("memory_id")


class ArchiveLocation(NamedTuple):
    """Where the archive of a store is, whose it is, and how that store's records are read."""

    path: Path
    store: str
    like: Path | None
    check: Check
    check_copy: Check
    """Checks a record of what memlab did not delete, which may be load-bearing."""
    scheme: str = "file"
    compared: Callable[[bytes], bytes] = unchanged
    """Returns what of a record must be as a plan saw it."""
    id_of: Callable[[bytes], Any] = id_in
    has_sample: bool = True
    """Whether it notes a few memories that stay, by which its store is told from another."""
    narrowest: Callable[[], int] | None = None
    """Returns the permissions that everybody has on each file of the store; None for one file."""
    older_record: Callable[[bytes], bytes] = unchanged
    """Returns a record as readers of archives before format 3 take it."""

    @property
    def is_chosen(self) -> bool:
        """Whether it is in a folder that somebody named, and not beside its file or folder."""
        return self.like is not None and Path(realpath(self.like)).parent != self.path.parent

    def mode_at_most(self) -> int:
        """Return the permissions that an archive may have: those of the narrowest thing in it."""
        if self.like is None:
            return 0o600
        around = self.like.stat().st_mode & 0o666
        if self.narrowest is None:
            return around
        return around & self.narrowest() | 0o600


def archive_beside(store: Path) -> Path:
    """Return where the archive of a store is unless ``memlab.toml`` names a folder for it.

    >>> archive_beside(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    resolved = Path(realpath(store))
    return resolved.with_name(f"{resolved.name}{SUFFIX}")


def archive_path(store: Path) -> Path:
    """Return where the memories taken out of a file or a folder are kept.

    That is beside the store, or in the folder that ``memlab.toml`` there names. An archive that was
    begun beside the store counts until it is moved.

    >>> archive_path(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    resolved = Path(realpath(store))
    beside = archive_beside(resolved)
    if not lexists(resolved.with_name(SETTINGS_FILE)):
        return beside
    folder = read_settings(resolved.parent, resolved.name, resolved).archive_folder
    if folder is None:
        return beside
    chosen = Path(realpath(folder)) / name_elsewhere(str(resolved))
    return beside if not lexists(chosen) and lexists(beside) else chosen


def name_elsewhere(store: str) -> str:
    """Return the name of an archive that does not lie beside its store.

    >>> name_elsewhere("redis://localhost:6379/0?name=betterdb_ac")
    'redis-localhost-6379-0-name-betterdb_ac-5d37d9e4.archive.db'
    """
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", store).strip("-.")[:80]
    digest = blake2b(store.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{words}-{digest}{SUFFIX}"


def location_beside(store: Path | str) -> ArchiveLocation:
    """Return where the archive of a ``memory_items`` file is."""
    path = path_named(store).resolve()
    return ArchiveLocation(archive_path(path), str(path), path, check_row, check_any_row)


def has_archive(location: ArchiveLocation) -> bool:
    """Whether a store has an archive.

    An empty file, or one whose making was cut short, is none: the next deletion or copy fills it.
    """
    try:
        found = location.path.lstat()
    except (OSError, ValueError):
        if location.is_chosen and not location.path.parent.is_dir():
            raise ArchiveError(
                f"{location.path.parent}, which memlab.toml names as the archive_folder of "
                f"{location.store}, is not there; nothing was changed: mount it, make it with "
                f"{in_shell('mkdir', '-p', str(location.path.parent))}, or take archive_folder out"
            ) from None
        return False
    wrong = ""
    if not S_ISREG(found.st_mode):
        wrong = "is a link or no ordinary file"
    elif not _is_trusted(found, location):
        wrong = f"belongs to user {found.st_uid}, who may not write to the store"
    if wrong:
        raise ArchiveError(
            f"{location.path} has an archive's name and {wrong}; nothing was changed: move it away"
        )
    return found.st_size > 0 and not _is_unfilled(location.path)


def _is_unfilled(path: Path) -> bool:
    """Whether a file is an archive that was begun and never filled; one in doubt is not."""
    try:
        return read_snapshot(path, is_unfilled, check=lambda _connection, _path: None)
    except MemlabError:  # whoever opens it says what is wrong with it
        return False


def existing_path(location: ArchiveLocation) -> Path:
    """Return where an archive is, which must be there."""
    if not has_archive(location):
        if location.like is not None and not location.like.exists():
            raise ArchiveError(
                f"there is no store {location.store} and no archive {location.path}; check the path"
            )
        raise ArchiveError(
            f"there is no archive {location.path}: no plan has taken anything out of "
            f"{location.store}; check the path"
        )
    return location.path


def create_archive_file(location: ArchiveLocation) -> bool:
    """Make an empty file that no more people may read than the store; whether there was none.

    One that is there and open to more people is made as narrow, where it is the caller's own.
    """
    path = location.path
    store = location.like
    try:
        if store is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        like = None if store is None else store.stat()
        allowed = location.mode_at_most()
        try:
            _make(path, like, allowed)
        except FileExistsError:
            _narrow(path, allowed, 0o600 if like is None else like.st_mode)
            _check_for_owner(path, path.lstat(), like)
            return False
    except OSError as error:
        raise ArchiveError(
            f"the archive {path} cannot be made ({error.strerror}); nothing was deleted: check the "
            "permissions of the folder"
        ) from error
    return True


def _make(path: Path, like: os.stat_result | None, allowed: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if like is not None:
            make_like(descriptor, (like.st_uid, like.st_gid), allowed)
        _check_for_owner(path, os.fstat(descriptor), like)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _narrow(path: Path, allowed: int, around: int) -> None:
    """Take from an archive what more people may do with it than with what goes into it.

    In somebody else's archive, those memories of a folder are left out that fewer people may read.
    """
    found = path.lstat()
    narrowed = S_IMODE(found.st_mode) & allowed
    if S_IMODE(found.st_mode) & 0o777 == narrowed & 0o777:
        return
    if found.st_uid != os.geteuid():
        if not S_IMODE(found.st_mode) & ~around & 0o777:
            return
        raise ArchiveError(
            f"{path} may be read or written by more people than the store, and is not yours to "
            f"change; nothing was deleted: let its owner run chmod {allowed & 0o666:o} on it first"
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        opened = os.fstat(descriptor)
        if (opened.st_ino, opened.st_uid, opened.st_nlink) != (found.st_ino, found.st_uid, 1):
            raise ArchiveError(f"{path} was replaced, or has a second name; nothing was deleted")
        os.fchmod(descriptor, narrowed)
    finally:
        os.close(descriptor)
    warnings.warn(
        f"{path} could be read or written by more people than what goes into it: its permissions "
        f"are {narrowed & 0o777:o} now, where they were {found.st_mode & 0o777:o}",
        ArchivePermissionsWarning,
        stacklevel=2,
    )


def _check_for_owner(path: Path, found: os.stat_result, like: os.stat_result | None) -> None:
    """Refuse an archive from which the store's owner could restore nothing."""
    if not (like is None or like.st_uid in (0, found.st_uid) or _is_open_to(like, found)):
        raise ArchiveError(
            f"the owner of the store could not read and write the archive {path}; nothing was "
            "deleted: let the owner apply the plan, or give the store a group that its owner is "
            "in, which may read and write it"
        )


def _is_trusted(found: os.stat_result, location: ArchiveLocation) -> bool:
    """Whether a file's owner may have made the archive of a store: who can write to that can."""
    user = found.st_uid
    if user in (0, os.geteuid()) or (location.like is not None and not location.like.exists()):
        return True
    if location.like is None:
        return False
    like = location.like.stat()
    return user == like.st_uid or _is_open_to(found, like)


def _is_open_to(owned: os.stat_result, file: os.stat_result) -> bool:
    """Whether the owner of something may read and write a file as one of a group, or of all."""
    import pwd  # not on every system, and hardly ever needed

    groups = [owned.st_gid]
    with suppress(KeyError):
        known = pwd.getpwuid(owned.st_uid)
        groups = os.getgrouplist(known.pw_name, known.pw_gid)
    allowed = file.st_mode >> 3 if file.st_gid in groups else file.st_mode
    return allowed & 0o6 == 0o6
