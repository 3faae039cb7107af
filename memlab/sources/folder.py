"""A folder of memory files, read without following links and without waiting for anything.

Names and contents are somebody else's: every file is opened by its name in the open folder, never
by a path put together, and only when it is an ordinary file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from memlab.errors import ChangedWhileReadError, StoreError

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Stamp(NamedTuple):
    """What differs once somebody has written a file."""

    inode: int
    size: int
    written: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Return the stamp of a file that was looked at."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class FileCopy(NamedTuple):
    """A file as it is put back.

    Attributes
    ----------
    name : str
        In its folder.
    data : bytes
        All of it.
    mode : int
        Permission bits.
    written : int
        Nanoseconds since 1970.
    owner : tuple of int
        User and group.
    """

    name: str
    data: bytes
    mode: int
    written: int
    owner: tuple[int, int]


class Listing(NamedTuple):
    """What is in a folder.

    Attributes
    ----------
    files : dict of str to Stamp
        Ordinary files.
    links, folders, others : tuple of str
        What is neither read nor followed; ``others`` are devices, pipes and names that are no text.
    """

    files: dict[str, Stamp]
    links: tuple[str, ...]
    folders: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Folder:
    """An open folder. Get one from :func:`opened_folder`.

    Parameters
    ----------
    path : Path
        Where it was found, with links followed.
    handle : int
        Its descriptor.
    """

    path: Path
    handle: int

    def listing(self) -> Listing:
        """Return what is in it, by name."""
        files: dict[str, Stamp] = {}
        found: dict[str, list[str]] = {"links": [], "folders": [], "others": []}
        with os.scandir(self.handle) as entries:
            for entry in entries:
                try:
                    looked_at = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # gone since
                    continue
                if not _is_text(entry.name):
                    found["others"].append(entry.name)
                elif stat.S_ISREG(looked_at.st_mode):
                    files[entry.name] = Stamp.of(looked_at)
                else:
                    found[_sort_of(looked_at.st_mode)].append(entry.name)
        named = {name: files[name] for name in sorted(files)}
        return Listing(named, **{name: tuple(sorted(each)) for name, each in found.items()})

    def read(self, name: str, stamp: Stamp | None = None) -> FileCopy:
        """Return an ordinary file in it.

        Parameters
        ----------
        name : str
            Of the file.
        stamp : Stamp, optional
            What it must have.

        Raises
        ------
        ChangedWhileReadError
            When it has another one, or is written while it is read.
        FileNotFoundError
            When there is none, or it is no ordinary file.
        StoreError
            When it cannot be read.
        """
        try:
            handle = os.open(name, _FLAGS, dir_fd=self.handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(self._in_words(name, error)) from error
        with os.fdopen(handle, "rb") as file:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise FileNotFoundError(f"{self.path / name} is no ordinary file")
            data = file.read()
            after = os.fstat(handle)
        if Stamp.of(before) != Stamp.of(after) or stamp not in (None, Stamp.of(before)):
            raise ChangedWhileReadError(
                f"{self.path / name} is written while it is read; try again when it is quiet"
            )
        owner = (before.st_uid, before.st_gid)
        return FileCopy(name, data, stat.S_IMODE(before.st_mode), before.st_mtime_ns, owner)

    def sync(self) -> None:
        """Make the names in it survive a power cut."""
        os.fsync(self.handle)

    def _in_words(self, name: str, error: OSError) -> str:
        return (
            f"{self.path / name} cannot be read ({error.strerror or error}); check its permissions"
        )


@contextmanager
def opened_folder(path: Path | str) -> Iterator[Folder]:
    """Open a folder that a user named; a link to it is followed.

    Raises
    ------
    StoreError
        When there is none, or it cannot be opened.
    """
    try:
        resolved = Path(path).resolve(strict=True)
        handle = os.open(resolved, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise StoreError(f"there is no folder {path}; check the path") from error
    except NotADirectoryError as error:
        raise StoreError(f"{path} is not a folder; name the folder itself") from error
    except (OSError, ValueError, RuntimeError) as error:
        words = getattr(error, "strerror", None) or error
        raise StoreError(
            f"{path} cannot be opened ({words}); check the path and its permissions"
        ) from error
    try:
        yield Folder(resolved, handle)
    finally:
        os.close(handle)


def is_file_name(name: str) -> bool:
    """Whether a text can name a file in a folder and nothing outside it.

    Examples
    --------
    >>> [is_file_name(name) for name in ("a.md", "../a.md", "..", "", "a/b")]
    [True, False, False, False, False]
    """
    return bool(name) and name not in (".", "..") and not {"/", "\0"} & set(name) and _is_text(name)


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8; Python stands in surrogates for what is not."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _sort_of(mode: int) -> str:
    return "links" if stat.S_ISLNK(mode) else "folders" if stat.S_ISDIR(mode) else "others"
