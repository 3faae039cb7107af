"""Write files atomically, and read files from untrusted folders safely."""

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final, NamedTuple

from memlab.arguments import expect
from memlab.errors import MemlabError
from memlab.text import failure_message


class FileMode(NamedTuple):
    """Upper limit on the permissions of a new file.

    Attributes
    ----------
    mode : int
        Permission bits.
    group : int or None
        Id of the group that the bits of the group are for; None for any group.
    """

    mode: int
    group: int | None = None

    def of(self, group: int) -> int:
        """Return the permission bits for a file of a group.

        If it is another group than :attr:`group`, its members get the permissions of others.

        >>> oct(FileMode(0o640, group=100).of(100)), oct(FileMode(0o640, group=100).of(200))
        ('0o640', '0o600')
        """
        if self.group is None or self.group == group:
            return self.mode
        bits_of_others = self.mode & 0o007
        without_group = self.mode & ~0o070
        return without_group | bits_of_others << 3


TEMP_SUFFIX: Final = ".part"
"""Suffix of the name of a file that is being written."""

DEFAULT_MODE: Final = FileMode(0o666)
"""No limit beyond the umask."""
OWNER_ONLY: Final = FileMode(0o600)
"""Permissions for the owner alone."""


DEFAULT_MAX_BYTES: Final = 2**31
"""Default maximum size in bytes of a file that is read."""
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for opening a file to read. A pipe with this name does not block the program."""


@contextmanager
def ordinary_file(
    path: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES, follow_links: bool = True
) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise OSError for a pipe or a device.

    Parameters
    ----------
    path : Path or str
        The file.
    max_bytes : int
        Maximum size. Raise OSError for a larger file.
    follow_links : bool
        Whether `path` may be a symbolic link.
    """
    flags = _READ_FLAGS if follow_links else _READ_FLAGS | os.O_NOFOLLOW
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        status = os.fstat(file.fileno())
        if not S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no ordinary file", str(path))
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes / 2**20:,.0f} MiB", str(path))
        yield file


def permissions_like(path: Path | None) -> FileMode:
    """Return the maximum permissions of a new file with data from a file or folder.

    None stands for a server. Only the owner may read data from a server, or from a path whose
    permissions cannot be read.
    """
    if path is None:
        return OWNER_ONLY
    try:
        status = path.stat()
    except (OSError, ValueError):
        return OWNER_ONLY
    return FileMode(status.st_mode & 0o666, status.st_gid)


def make_like(descriptor: int, owner: tuple[int, int], mode: int) -> None:
    """Set owner and permissions of a new file.

    If the system does not allow the group, the file gets narrower permissions; see
    :meth:`FileMode.of`.

    Parameters
    ----------
    descriptor : int
        The descriptor of the open file.
    owner : tuple of (int, int)
        Ids of the user and the group.
    mode : int
        Permission bits.
    """
    user, group = owner
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != owner:
        try:
            os.fchown(descriptor, user, group)
        except PermissionError:  # members of a group may still give their own files to the group
            with suppress(PermissionError):
                os.fchown(descriptor, -1, group)
    group_of_file = os.fstat(descriptor).st_gid
    os.fchmod(descriptor, FileMode(mode, group).of(group_of_file))


def write_whole(
    path: Path | str,
    content: bytes | str,
    *,
    permissions: FileMode = DEFAULT_MODE,
    replace: bool = True,
) -> Path:
    """Write `content` to `path` atomically.

    >>> write_whole("note.txt", "kept").read_text()
    'kept'
    """
    with whole_file(path, permissions=permissions, replace=replace) as draft:
        if isinstance(content, str):
            content = content.encode()
        draft.write_bytes(content)
    return Path(path)


def read_whole(path: Path | str) -> bytes:
    """Return the content of a regular file that a user named; raise MemlabError on failure."""
    expect(path, str, PathLike, call="memlab", name="file")
    try:
        with ordinary_file(path) as file:
            return file.read(DEFAULT_MAX_BYTES)
    except (OSError, ValueError) as error:
        message = failure_message(f"{path} cannot be read", error, "the path and its permissions")
        raise MemlabError(message) from error


def read_end(path: Path, count: int) -> bytes:
    """Return the last `count` bytes of a regular file; no bytes if it cannot be read."""
    with suppress(OSError), ordinary_file(path, max_bytes=sys.maxsize) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - count))
        return file.read(count)
    return b""


@contextmanager
def whole_file(
    path: Path | str, *, permissions: FileMode = DEFAULT_MODE, replace: bool = True
) -> Iterator[Path]:
    """Yield an empty draft beside `path`. The draft becomes the file unless the block raises.

    Parameters
    ----------
    path : Path or str
        The file to write.
    permissions : FileMode
        Upper limit on its permissions.
    replace : bool
        Whether an existing file is replaced. Otherwise raise MemlabError if there is one.
    """
    is_renamed = False
    try:
        target = Path(path).parent.resolve() / Path(path).name
        draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}{TEMP_SUFFIX}")
        _check_target(target, path, replace=replace)
        _remove_stale_drafts(target)
        try:
            lock_descriptor = _create_draft(draft, target, permissions)
            try:
                yield draft
            finally:
                os.close(lock_descriptor)
            sync(draft)
            if replace:
                draft.replace(target)
            else:
                target.hardlink_to(draft)  # unlike a rename, this fails if the name is in use
            is_renamed = True
        finally:
            _discard(draft)
        sync(target.parent)
    except FileExistsError as error:
        raise MemlabError(f"{path} exists already; name a new file") from error
    except OSError as error:
        problem = "cannot be written"
        if is_renamed:
            problem = "was written, but perhaps not stored on the disk"
        raise MemlabError(failure_message(f"{path} {problem}", error)) from error


def check_writable(path: Path | str, *, replace: bool = True) -> None:
    """Raise MemlabError if a file cannot be written.

    A caller uses it before long work on the content of the file.
    """
    with suppress(_NothingToWriteError), whole_file(path, replace=replace):
        raise _NothingToWriteError


class _NothingToWriteError(Exception):
    """Leaves the block of :func:`whole_file`, so that the file is not replaced."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder while a file in it is read and rewritten."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        message = failure_message(
            f"{folder} cannot be opened", error, "the path and its permissions"
        )
        raise MemlabError(message) from error
    try:
        with suppress(OSError):  # a file system without locks
            flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_target(target: Path, path: Path | str, *, replace: bool) -> None:
    """Raise MemlabError for a link or a special file, and FileExistsError for a file to keep.

    `target` is the resolved path, and `path` is the path for the message.
    """
    if target.is_symlink():
        raise MemlabError(f"{path} is a link; name the file itself")
    if not target.exists():
        return
    if not target.is_file():
        raise MemlabError(f"{path} is not an ordinary file; name one to write")
    if not replace:
        raise FileExistsError(path)


def _remove_stale_drafts(target: Path) -> None:
    """Remove drafts of the same file whose writers were killed, which left their locks free."""
    for stale_draft in target.parent.glob(f".{escape(target.name[:200])}.*{TEMP_SUFFIX}"):
        with suppress(OSError):
            descriptor = os.open(stale_draft, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                _discard(stale_draft)
            finally:
                os.close(descriptor)


def _discard(draft: Path) -> None:
    """Remove a draft and its SQLite journal. If that fails, the next writer tries again."""
    for path in (draft, draft.with_name(f"{draft.name}-journal")):
        with suppress(OSError):
            path.unlink()


def _create_draft(draft: Path, target: Path, permissions: FileMode) -> int:
    """Create and lock an empty draft, and return its descriptor.

    Its permissions are at most those of `permissions` and of the file that it replaces.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, permissions.mode)
    try:
        status = os.fstat(descriptor)
        mode = target.stat().st_mode if target.exists() else status.st_mode
        os.fchmod(descriptor, mode & permissions.of(status.st_gid))
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
