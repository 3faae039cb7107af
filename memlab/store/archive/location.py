"""Location of an archive, and the permissions of its file, which are not wider than the store's."""

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
from memlab.store.archive.formats import is_incomplete
from memlab.store.archive.schema import Check
from memlab.store.database import path_named
from memlab.store.records import check_any_row, check_row
from memlab.store.snapshot import read_snapshot
from memlab.text import in_shell

SUFFIX: Final = ".archive.db"
"""Suffix of the name of an archive, after the name of its store."""


def unchanged(record: bytes) -> bytes:
    """Return a record unchanged."""
    return record


def id_in(record: bytes) -> Any:
    """Return the id in a record of ``memory_items``."""
    return json.loads(record).get("memory_id")


class ArchiveLocation(NamedTuple):
    """Location of the archive of a store, and how the records of that store are read.

    Attributes
    ----------
    path : Path
        The file of the archive.
    store : str
        The name of the store in messages.
    store_path : Path or None
        The file or folder of the store, from which the archive takes owner and permissions; None
        for a server.
    check : callable
        Checks the record of a deleted memory, which is not load-bearing.
    check_copy : callable
        Checks the record of any other memory, which may be load-bearing.
    scheme : str
        The kind of store.
    comparable_record : callable
        Returns the part of a record that must be unchanged since planning.
    id_of : callable
        Returns the memory id in a record.
    has_identity_sample : bool
        Whether the archive has a sample of the memories that stay, to recognize its store.
    common_permissions : callable or None
        Returns the permission bits that all files of the store have; None for a store in one file.
    older_record : callable
        Returns a record in the form that readers of formats before 3 accept.
    """

    path: Path
    store: str
    store_path: Path | None
    check: Check
    check_copy: Check
    scheme: str = "file"
    comparable_record: Callable[[bytes], bytes] = unchanged
    id_of: Callable[[bytes], Any] = id_in
    has_identity_sample: bool = True
    common_permissions: Callable[[], int] | None = None
    older_record: Callable[[bytes], bytes] = unchanged

    @property
    def is_of_server(self) -> bool:
        """Whether the store is on a server, and not in a file or a folder."""
        return self.store_path is None

    @property
    def is_in_archive_folder(self) -> bool:
        """Whether the archive is in a folder that the settings name, and not beside its store."""
        return (
            self.store_path is not None
            and Path(realpath(self.store_path)).parent != self.path.parent
        )

    def mode_at_most(self) -> int:
        """Return the widest permissions that the archive may have.

        They are the permissions that all files of the store have, because the archive may have
        copies of memories from each of them. The owner may read and write it in any case.
        """
        if self.store_path is None:
            return 0o600
        store_mode = self.store_path.stat().st_mode & 0o666
        if self.common_permissions is None:
            return store_mode
        return (store_mode & self.common_permissions()) | 0o600


def archive_beside(store: Path) -> Path:
    """Return the path of an archive beside its store, which is the default location.

    >>> archive_beside(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    resolved = Path(realpath(store))
    return resolved.with_name(f"{resolved.name}{SUFFIX}")


def archive_path(store: Path) -> Path:
    """Return the path of the archive of a file or a folder.

    It is beside the store, or in the folder that ``memlab.toml`` names. An archive that is beside
    the store is used until somebody moves it to that folder.

    >>> archive_path(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    store_path = Path(realpath(store))
    beside = archive_beside(store_path)
    if not lexists(store_path.with_name(SETTINGS_FILE)):
        return beside
    folder = read_settings(store_path.parent, store_path.name, store_path).archive_folder
    if folder is None:
        return beside
    in_folder = Path(realpath(folder)) / name_elsewhere(str(store_path))
    if lexists(beside) and not lexists(in_folder):
        return beside
    return in_folder


def name_elsewhere(store: str) -> str:
    """Return the file name of an archive that is in another folder than its store.

    `store` is the path or the URL of the store.

    >>> name_elsewhere("redis://localhost:6379/0?name=betterdb_ac")
    'redis-localhost-6379-0-name-betterdb_ac-5d37d9e4.archive.db'
    """
    readable_part = re.sub(r"[^A-Za-z0-9_.]+", "-", store).strip("-.")[:80]
    digest = blake2b(store.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{readable_part}-{digest}{SUFFIX}"


def location_beside(store: Path | str) -> ArchiveLocation:
    """Return the location of the archive of a ``memory_items`` file."""
    path = path_named(store).resolve()
    return ArchiveLocation(
        path=archive_path(path),
        store=str(path),
        store_path=path,
        check=check_row,
        check_copy=check_any_row,
    )


def has_archive(location: ArchiveLocation) -> bool:
    """Return whether a store has an archive.

    An empty file, or one whose creation was interrupted, is no archive yet; the next change
    completes it. Raise ArchiveError if the file at its path cannot be an archive of this store, or
    if the folder in the settings is missing.
    """
    try:
        status = location.path.lstat()
    except (OSError, ValueError):
        if location.is_in_archive_folder and not location.path.parent.is_dir():
            raise ArchiveError(
                f"{location.path.parent}, which memlab.toml names as the archive_folder of "
                f"{location.store}, is not there; nothing was changed: mount it, make it with "
                f"{in_shell('mkdir', '-p', str(location.path.parent))}, or take archive_folder out"
            ) from None
        return False
    fault = ""
    if not S_ISREG(status.st_mode):
        fault = "is a link or no ordinary file"
    elif not _is_trusted(status, location):
        fault = f"belongs to user {status.st_uid}, who may not write to the store"
    if fault:
        raise ArchiveError(
            f"{location.path} has an archive's name and {fault}; nothing was changed: move it away"
        )
    return status.st_size > 0 and not _is_incomplete(location.path)


def _is_incomplete(path: Path) -> bool:
    """Return whether the creation of an archive was interrupted; False for an unreadable file."""
    try:
        return read_snapshot(path, is_incomplete, check=lambda _connection, _path: None)
    except MemlabError:  # the fault is reported when the archive is opened
        return False


def existing_path(location: ArchiveLocation) -> Path:
    """Return the path of an archive; raise ArchiveError if there is none."""
    if not has_archive(location):
        raise missing_archive(location)
    return location.path


def missing_archive(location: ArchiveLocation) -> ArchiveError:
    """Return the error to raise if a store has no archive."""
    if location.store_path is not None and not location.store_path.exists():
        return ArchiveError(
            f"there is no store {location.store} and no archive {location.path}; check the path"
        )
    return ArchiveError(
        f"there is no archive {location.path}: memlab has deleted nothing of "
        f"{location.store}; check the path"
    )


def create_archive_file(location: ArchiveLocation) -> bool:
    """Create the empty file of an archive; return False if it exists.

    It has at most the permissions of the store. If it exists with wider permissions and belongs to
    the caller, they are restricted.
    """
    path = location.path
    store = location.store_path
    try:
        store_status = None
        store_mode = 0o600
        if store is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            store_status = store.stat()
            store_mode = store_status.st_mode
        allowed = location.mode_at_most()
        try:
            _create_empty(path, store_status, allowed)
        except FileExistsError:
            _restrict_permissions(path, allowed, store_mode)
            _check_owner_can_restore(path, path.lstat(), store_status)
            return False
    except OSError as error:
        raise ArchiveError(
            f"the archive {path} cannot be made ({error.strerror}); nothing was deleted: check the "
            "permissions of the folder"
        ) from error
    return True


def _create_empty(path: Path, store: os.stat_result | None, allowed: int) -> None:
    """Create the empty file of an archive.

    Parameters
    ----------
    path : Path
        The file.
    store : os.stat_result or None
        The status of the store, whose owner and group the file gets; None for a server.
    allowed : int
        The widest permissions that the file may have.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if store is not None:
            make_like(descriptor, (store.st_uid, store.st_gid), allowed)
        _check_owner_can_restore(path, os.fstat(descriptor), store)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _restrict_permissions(path: Path, allowed: int, store_mode: int) -> None:
    """Restrict the permissions of an archive to the `allowed` ones, and warn.

    The archive of another user cannot be restricted. It is accepted if its permissions are not
    wider than those of the store; memories that fewer people may read are then not copied into it.
    """
    status = path.lstat()
    mode = S_IMODE(status.st_mode)
    restricted = mode & allowed
    if mode & 0o777 == restricted & 0o777:
        return
    if status.st_uid != os.geteuid():
        bits_beyond_store = mode & ~store_mode & 0o777
        if not bits_beyond_store:
            return
        raise ArchiveError(
            f"{path} may be read or written by more people than the store, and is not yours to "
            f"change; nothing was deleted: let its owner run chmod {allowed & 0o666:o} on it first"
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        opened = os.fstat(descriptor)
        is_same = (opened.st_ino, opened.st_uid) == (status.st_ino, status.st_uid)
        if not is_same or opened.st_nlink != 1:
            raise ArchiveError(f"{path} was replaced, or has a second name; nothing was deleted")
        os.fchmod(descriptor, restricted)
    finally:
        os.close(descriptor)
    warnings.warn(
        f"{path} could be read or written by more people than what goes into it: its permissions "
        f"are {restricted & 0o777:o} now, where they were {mode & 0o777:o}",
        ArchivePermissionsWarning,
        stacklevel=2,
    )


def _check_owner_can_restore(
    path: Path, archive: os.stat_result, store: os.stat_result | None
) -> None:
    """Raise ArchiveError if the owner of a store could not read and write the archive at `path`.

    Root can, and so can the owner of the archive.
    """
    if store is None or store.st_uid in (0, archive.st_uid):
        return
    if not _can_owner_access(store, archive):
        raise ArchiveError(
            f"the owner of the store could not read and write the archive {path}; nothing was "
            "deleted: let the owner apply the plan, or give the store a group that its owner is "
            "in, which may read and write it"
        )


def _is_trusted(archive: os.stat_result, location: ArchiveLocation) -> bool:
    """Return whether the owner of a file may have made the archive of a store.

    That is the case for root, the caller, the owner of the store and everybody who may write to it.
    """
    user = archive.st_uid
    if user in (0, os.geteuid()):
        return True
    if location.store_path is None:
        return False
    if not location.store_path.exists():
        return True
    store = location.store_path.stat()
    return user == store.st_uid or _can_owner_access(archive, store)


def _can_owner_access(owned: os.stat_result, file: os.stat_result) -> bool:
    """Return whether the owner of one file may read and write another file that is not theirs.

    If the owner is a member of the group of that file, its permissions for the group count, and
    otherwise its permissions for others.
    """
    import pwd  # imported here, because some systems lack it and it is rarely needed

    groups = [owned.st_gid]
    with suppress(KeyError):
        account = pwd.getpwuid(owned.st_uid)
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
    read_and_write = 0o060 if file.st_gid in groups else 0o006
    return file.st_mode & read_and_write == read_and_write
