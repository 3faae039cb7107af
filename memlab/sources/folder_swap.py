"""Giving a folder a new version of its index, made from the one whose place it takes."""

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Final

from memlab.clock import file_clock
from memlab.errors import StoreError
from memlab.sources.folder import FileCopy, Folder
from memlab.sources.folder_files import exchange, give_name, write_file

Edit = Callable[[bytes], bytes]

VERSION: Final = "index"
"""The version that is not in the folder: the new one before it is swapped, the old one after."""

MADE: Final = "made"
"""The digest of the new version, by which it is known again where it was not edited since."""

_TRIES: Final = 5
_INDEX_MODE: Final = 0o600


def swap_index(folder: Folder, name: str, aside: int, edit: Edit) -> bytes | None:
    """Let the index and an edited version of it change places.

    Parameters
    ----------
    folder : Folder
        Open.
    name : str
        Of the index, there or not.
    aside : int
        The descriptor of the folder in which the other version lies.
    edit : callable
        Makes the new version of the one that is there.

    Returns
    -------
    bytes or None
        What lies aside now; None where the new version is no other.

    Raises
    ------
    StoreError
        When somebody writes the index faster than that. It is as they wrote it.
    """
    for _ in range(_TRIES):
        now = read_if_there(folder, name)
        before = b"" if now is None else now.data
        new = edit(before)
        if new == before:
            return None
        if _swapped(folder, name, aside, now, new):
            folder.sync()
            return new if now is None else before
    raise StoreError(
        f"{folder.path / name} is written faster than it can be changed; nothing was changed: try "
        "again when it is quiet"
    )


def digest_of(data: bytes) -> bytes:
    """Return the digest by which a version of the index is known."""
    return sha256(data).hexdigest().encode()


def read_if_there(folder: Folder, name: str) -> FileCopy | None:
    """Return a file, None where there is none."""
    with suppress(FileNotFoundError):
        return folder.read(name)
    return None


def _swapped(folder: Folder, name: str, aside: int, now: FileCopy | None, new: bytes) -> bool:
    """Try once; return whether the index was still what `new` was made from."""
    for left in (MADE, VERSION):
        with suppress(FileNotFoundError):
            os.unlink(left, dir_fd=aside)
    around = os.fstat(folder.handle)
    mode, owner = (
        (_INDEX_MODE, (around.st_uid, around.st_gid)) if now is None else (now.mode, now.owner)
    )
    written = file_clock()
    write_file(aside, FileCopy(VERSION, new, mode, written, owner))
    write_file(aside, FileCopy(MADE, digest_of(new), 0o600, written, owner))
    try:
        if now is None:
            give_name(aside, VERSION, folder.handle, name)
            return True
        exchange(aside, VERSION, folder.handle, name)
    except (FileExistsError, FileNotFoundError):  # somebody made it, or took it away
        return False
    came_out = read_if_there(Folder(folder.path, aside), VERSION)
    if came_out is not None and came_out.data == now.data:
        return True
    exchange(aside, VERSION, folder.handle, name)
    back = read_if_there(Folder(folder.path, aside), VERSION)
    if back is not None and back.data != new:  # the new version was edited in that instant, too
        give_name(aside, VERSION, folder.handle, f"{name}.edited-{token_hex(4)}")
    return False
