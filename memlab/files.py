"""Files written for a user: each appears whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from memlab.arguments import expect
from memlab.errors import MemlabError


class Limit(NamedTuple):
    """Who may read a new file at most.

    Attributes
    ----------
    mode : int
        Permission bits.
    group : int or None
        Whose bits those of the group are; None where that does not matter.
    """

    mode: int
    group: int | None = None

    def of(self, group: int) -> int:
        """Return the permission bits for a file of a group: another one's may do what all may."""
        if self.group is None or self.group == group:
            return self.mode
        return self.mode & ~0o070 | (self.mode & 0o007) << 3


DRAFT: Final = ".part"
"""Ends the name of a file that is being written."""

ANYBODY: Final = Limit(0o666)
"""As the umask leaves it."""
ALONE: Final = Limit(0o600)
"""For whoever runs memlab alone."""


def limit_like(path: Path | None) -> Limit:
    """Return who may read what comes from a file or folder; None is a server's, for one alone."""
    try:
        found = None if path is None else path.stat()
    except (OSError, ValueError):
        found = None
    return ALONE if found is None else Limit(found.st_mode & 0o666, found.st_gid)


def write_whole(path: Path | str, content: bytes | str, *, limit: Limit = ANYBODY) -> Path:
    """Write `content` so that `path` holds all of it or what it held before.

    Parameters
    ----------
    path : Path or str
        Replaced when it exists, and then keeps its permissions, or has tighter ones.
    content : bytes or str
        Text is written as UTF-8.
    limit : Limit
        Who may read it at most.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    MemlabError
        When the file cannot be written; what was there is as it was.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note.txt", "kept").read_text()
    'kept'
    """
    with whole_file(path, limit=limit) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def read_whole(path: Path | str) -> bytes:
    """Return everything in a file that a user named.

    Raises
    ------
    MemlabError
        When it cannot be read.
    """
    expect(path, str, PathLike, call="memlab", name="file")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MemlabError(
            f"{path} cannot be read ({error.strerror or error}); check the path and its permissions"
        ) from error


@contextmanager
def whole_file(path: Path | str, *, limit: Limit = ANYBODY, replace: bool = True) -> Iterator[Path]:
    """Hand out an empty draft beside `path`, then sync it and give it that name.

    When the block raises, the draft is removed and `path` is as it was.

    Parameters
    ----------
    path : Path or str
        The file to write. A link is refused: what it points to is somebody's.
    limit : Limit
        Who may read it at most; within that, whoever may read the file that is replaced, or whom
        the umask lets.
    replace : bool
        Whether an existing file may be replaced.

    Yields
    ------
    Path
        The draft.

    Raises
    ------
    MemlabError
        When `path` cannot be written, is no ordinary file, or exists and must not be replaced.
    """
    try:
        target = Path(path).parent.resolve() / Path(path).name
        draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}{DRAFT}")
        _check_target(target, path, replace=replace)
        _remove_left(target)
        try:
            held = _make(draft, target, limit)
            try:
                yield draft
            finally:
                os.close(held)
            _sync(draft)
            _name(draft, target, replace=replace)
            sync_folder(target.parent)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except FileExistsError as error:
        raise MemlabError(f"{path} exists; name a file that does not") from error
    except OSError as error:
        raise MemlabError(
            f"{path} cannot be written ({error.strerror or error}); check the folder, its "
            "permissions and the room on the disk"
        ) from error


def check_writable(path: Path | str, *, replace: bool = True) -> None:
    """Refuse a file that could not be written, before the work whose result it is to hold.

    Raises
    ------
    MemlabError
        As :func:`whole_file` would. Nothing is left behind.
    """
    with suppress(_TriedError), whole_file(path, replace=replace):
        raise _TriedError


class _TriedError(Exception):
    """Ends a try."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Let one process at a time read a file of a folder and write it anew; the others wait.

    Raises
    ------
    MemlabError
        When the folder cannot be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise MemlabError(
            f"{folder} cannot be opened ({error.strerror}); check the path and its permissions"
        ) from error
    try:
        with suppress(OSError):  # a file system without locks
            flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    _sync(folder)


def _check_target(target: Path, path: Path | str, *, replace: bool) -> None:
    if target.is_symlink():
        raise MemlabError(f"{path} is a link; name the file itself")
    if not target.exists():
        return
    if not target.is_file():
        raise MemlabError(f"{path} is not an ordinary file; name one to write")
    if not replace:
        raise FileExistsError(path)


def _remove_left(target: Path) -> None:
    """Remove drafts of the same file whose writers were killed: nobody holds their lock."""
    for left in target.parent.glob(f".{escape(target.name[:200])}.*{DRAFT}"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                left.unlink()
            finally:
                os.close(descriptor)


def _make(draft: Path, target: Path, limit: Limit) -> int:
    """Make an empty draft with the permissions that the file is to have, or tighter ones.

    Returns a descriptor that holds its lock for as long as it is written.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, limit.mode)
    try:
        made = os.fstat(descriptor)
        wanted = target.stat().st_mode if target.exists() else made.st_mode
        os.fchmod(descriptor, wanted & limit.of(made.st_gid))
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _name(draft: Path, target: Path, *, replace: bool) -> None:
    if replace:
        draft.replace(target)
    else:
        target.hardlink_to(draft)  # unlike a rename, refuses a name taken meanwhile


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
