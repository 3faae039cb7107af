"""Files written for a user: each appears whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from memlab.arguments import expect
from memlab.errors import MemlabError


def write_whole(path: Path | str, content: bytes | str) -> Path:
    """Write `content` so that `path` holds all of it or what it held before.

    Parameters
    ----------
    path : Path or str
        Replaced when it exists, and then keeps its permissions.
    content : bytes or str
        Text is written as UTF-8.

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
    with whole_file(path) as draft:
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
def whole_file(
    path: Path | str, *, mode: int | None = None, replace: bool = True
) -> Iterator[Path]:
    """Hand out an empty draft beside `path`, then sync it and give it that name.

    When the block raises, the draft is removed and `path` is as it was.

    Parameters
    ----------
    path : Path or str
        The file to write; a link is followed.
    mode : int, optional
        Permission bits. By default those of the file that is replaced, or what the umask leaves.
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
        target = Path(path).resolve()
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        _check_target(target, path, replace=replace)
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            if mode is not None or target.exists():
                draft.chmod(target.stat().st_mode & 0o7777 if mode is None else mode)
            yield draft
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


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    _sync(folder)


def _check_target(target: Path, path: Path | str, *, replace: bool) -> None:
    if not target.exists():
        return
    if not target.is_file():
        raise MemlabError(f"{path} is not an ordinary file; name one to write")
    if not replace:
        raise FileExistsError(path)


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
