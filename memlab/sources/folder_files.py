"""Steps of changing a folder, each of which a file system does whole or not at all."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from secrets import token_hex
from typing import Any, Final

from memlab.sources.folder import FileCopy, Folder

_EXCHANGE: Final = 2
_NOT_HERE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def exchange(here: int, name: str, there: int, other: str) -> None:
    """Let two files change places in one step.

    Parameters
    ----------
    here, there : int
        Descriptors of their folders.
    name, other : str
        Their names. Where the system cannot do it in one step, `other` is replaced in one and never
        missing; what is written under that name in the instant before is lost.
    """
    swap = _renameat2()
    if swap is not None:
        if swap(here, os.fsencode(name), there, os.fsencode(other), _EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOT_HERE:
            raise OSError(number, os.strerror(number), other)
    kept = f"{name}.{token_hex(4)}"
    os.link(other, kept, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
    os.rename(name, other, src_dir_fd=here, dst_dir_fd=there)
    os.rename(kept, name, src_dir_fd=here, dst_dir_fd=here)


def give_name(here: int, name: str, there: int, other: str) -> None:
    """Give a file a second name, which must be free.

    Raises
    ------
    FileExistsError
        When it is not.
    """
    os.link(name, other, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)


def write_file(folder: int, file: FileCopy) -> None:
    """Make a file that is not there, on the disk before this returns."""
    handle = os.open(file.name, _NEW_FILE, 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as opened:
        opened.write(file.data)
        opened.flush()
        _give(handle, file.owner)
        os.fchmod(handle, file.mode)
        os.utime(handle, ns=(file.written, file.written))
        os.fsync(handle)


def made_folder(folder: Folder, parent: int, name: str) -> int:
    """Make a folder that is not there, for its owner alone, and return its descriptor."""
    os.mkdir(name, 0o700, dir_fd=parent)
    handle = open_subfolder(parent, name)
    of = os.fstat(folder.handle)
    _give(handle, (of.st_uid, of.st_gid))
    return handle


def open_subfolder(parent: int, name: str) -> int:
    """Return the descriptor of a folder that is no link.

    Raises
    ------
    OSError
        When there is none.
    """
    return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


@contextmanager
def opened_subfolder(parent: int, name: str) -> Iterator[int]:
    """Hand out the descriptor of a folder that is no link, and close it."""
    handle = open_subfolder(parent, name)
    try:
        yield handle
    finally:
        os.close(handle)


def inode_of(folder: int, name: str) -> int | None:
    """Return which file a name stands for; None where there is none."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    return None


def remove_tree(folder: int, name: str) -> None:
    """Remove a folder and what is in it, following no link."""
    shutil.rmtree(name, dir_fd=folder)


def _give(handle: int, owner: tuple[int, int]) -> None:
    """Let a file that was just made belong to `owner`, as far as this user may."""
    found = os.fstat(handle)
    if (found.st_uid, found.st_gid) != owner:
        with suppress(PermissionError):
            os.fchown(handle, *owner)


@cache
def _renameat2() -> Any:
    """Return the system's call that exchanges two names; None where it has none."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if found is not None:
        found.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        ]
    return found
