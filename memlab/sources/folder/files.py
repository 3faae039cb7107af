"""An open folder, whose names and contents are somebody else's: no links, no waiting."""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, Self

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import FileMode, make_like
from memlab.text import refused

LARGEST: Final = 2**26
"""Bytes of a file beyond which it is not read: no memory and no index is so large."""

_DEEPEST: Final = 32
"""Folders below each other that are gone through."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAMEAT2: Final = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
"""The system's call that exchanges two names; None where it has none."""
_EXCHANGE: Final = 2
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
"""What the system's call answers where the file system cannot exchange names."""


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
    """A file as it is put back."""

    name: str
    data: bytes
    mode: int
    written: int
    owner: tuple[int, int]


FILE_KEYS: Final = {
    "name": "name",
    "data": "data",
    "mode": "mode",
    "written": "written",
    "owner": "owner",
}
"""The key in a record of each field of a :class:`FileCopy`; they are never changed."""


class Listing(NamedTuple):
    """What is in a folder: ordinary files by name, and the names of all else."""

    files: dict[str, Stamp]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Folder:
    """An open folder. Get one from :func:`opened_folder`."""

    path: Path
    handle: int
    enters: Callable[[str], bool]
    """Whether the files of a folder below, by its path from here, are files of this one."""

    def listing(self) -> Listing:
        """Return what is in it, by name."""
        found = dict(sorted(self._entries("")))
        files = {
            name: Stamp.of(each)
            for name, each in found.items()
            if stat.S_ISREG(each.st_mode) and each.st_size <= LARGEST and _is_text(name)
        }
        return Listing(files, tuple(name for name in found if name not in files))

    def names_in(self, path: str) -> set[str]:
        """Return all names in a folder below."""
        with self.subfolder(path) as folder:
            return {*os.listdir(folder.handle)}  # noqa: PTH208 - which has no path

    def _entries(self, above: str) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self.handle) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # gone since
                    continue
                name = above + entry.name
                is_folder = stat.S_ISDIR(found.st_mode) and name.count("/") < _DEEPEST
                if not (is_folder and _is_text(name) and self.enters(name)):
                    yield name, found
                    continue
                try:
                    with self.subfolder(entry.name) as below:
                        yield from below._entries(f"{name}/")
                except PermissionError as error:
                    what = f"{self.path / entry.name} cannot be read"
                    raise StoreError(refused(what, error, "its permissions")) from error
                except OSError as error:  # it was a folder a moment ago
                    raise changed(self.path) from error

    @contextmanager
    def _holding(self, path: str, *, makes: bool = False) -> Iterator[tuple["Folder", str]]:
        """Hand out the folder that a path from here lies in, and its name there."""
        above, _, name = path.rpartition("/")
        if not above:
            yield self, name
            return
        if makes and self.stamp_of(above) is None:
            self.make_folder(above)
        with self.subfolder(above) as folder:
            yield folder, name

    def read(self, name: str, stamp: Stamp | None = None) -> FileCopy:
        """Return an ordinary file in it."""
        path = self.path / name
        try:
            with self._holding(name) as (around, last):
                handle = os.open(last, _READ, dir_fd=around.handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(refused(f"{path} cannot be read", error, "its permissions")) from error
        with os.fdopen(handle, "rb") as file:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise FileNotFoundError(f"{path} is no ordinary file")
            if before.st_size > LARGEST:
                raise StoreError(f"{path} has more than {LARGEST // 2**20} MiB; move it elsewhere")
            data = file.read(before.st_size)  # of LARGEST bytes, room would be made for each file
            after = os.fstat(handle)
        if Stamp.of(before) != Stamp.of(after) or stamp not in (None, Stamp.of(before)):
            raise changed(path)
        owner = (before.st_uid, before.st_gid)
        return FileCopy(name, data, stat.S_IMODE(before.st_mode), before.st_mtime_ns, owner)

    def read_if_there(self, name: str) -> FileCopy | None:
        """Return a file, None where there is none."""
        with suppress(FileNotFoundError):
            return self.read(name)
        return None

    def stamp_of(self, name: str) -> Stamp | None:
        """Look at what a name stands for; None where there is nothing."""
        with suppress(FileNotFoundError), self._holding(name) as (around, last):
            return Stamp.of(os.stat(last, dir_fd=around.handle, follow_symlinks=False))
        return None

    def status_of(self, name: str) -> os.stat_result | None:
        """Return what the system says of a name; None where there is nothing."""
        with suppress(FileNotFoundError), self._holding(name) as (around, last):
            return os.stat(last, dir_fd=around.handle, follow_symlinks=False)
        return None

    def inode_of(self, name: str) -> int | None:
        """Return which file a name stands for; None where there is none."""
        found = self.stamp_of(name)
        return None if found is None else found.inode

    def write(self, file: FileCopy) -> None:
        """Make a file that is not there, on the disk before this returns; no group gains by it."""
        with self._holding(file.name) as (around, name):
            handle = os.open(name, _NEW_FILE, 0o600, dir_fd=around.handle)
        with os.fdopen(handle, "wb") as opened:
            opened.write(file.data)
            opened.flush()
            make_like(handle, file.owner, file.mode & 0o777)
            os.utime(handle, ns=(file.written, file.written))
            os.fsync(handle)

    def move(self, name: str, other: str) -> None:
        """Give a file or folder another name, and take that from what had it."""
        with self._holding(name) as (here, old), self._holding(other) as (there, new):
            os.rename(old, new, src_dir_fd=here.handle, dst_dir_fd=there.handle)

    def link(self, name: str, other: str) -> None:
        """Give a file a second name, which must be free; folders that it needs are made."""
        with self._holding(name) as (here, old), self._holding(other, makes=True) as (there, new):
            around = {"src_dir_fd": here.handle, "dst_dir_fd": there.handle}
            os.link(old, new, **around, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        """Take a name from a file."""
        with self._holding(name) as (around, last):
            os.unlink(last, dir_fd=around.handle)

    def exchange(self, name: str, other: str) -> None:
        """Let two files change places in one step."""
        if _RENAMEAT2 is not None:
            with self._holding(name) as (here, old), self._holding(other) as (there, new):
                names = here.handle, os.fsencode(old), there.handle, os.fsencode(new)
                if _RENAMEAT2(*names, _EXCHANGE) == 0:
                    return
                number = ctypes.get_errno()
            if number not in _NO_EXCHANGE:
                raise OSError(number, os.strerror(number), other)
        kept = f"{name}.{token_hex(4)}"
        self.link(other, kept)
        self.move(name, other)
        self.move(kept, name)

    @contextmanager
    def subfolder(self, path: str) -> Iterator["Folder"]:
        """Hand out a folder below, to which no link leads."""
        name, _, rest = path.partition("/")
        handle = os.open(name, _READ_FOLDER | os.O_NOFOLLOW, dir_fd=self.handle)
        try:
            below = Folder(self.path / name, handle, self.enters)
            with below.subfolder(rest) if rest else nullcontext(below) as folder:
                yield folder
        finally:
            os.close(handle)

    def make_folder(self, path: str, mode: int | None = None) -> None:
        """Make a folder below, and those around it, with the rights of the one around it."""
        with self._holding(path, makes=True) as (folder, name):
            around = os.fstat(folder.handle)
            wanted = stat.S_IMODE(around.st_mode) if mode is None else mode
            os.mkdir(name, wanted, dir_fd=folder.handle)
            with folder.subfolder(name) as made:
                make_like(made.handle, (around.st_uid, around.st_gid), wanted)
            folder.sync()

    def sync(self, *names: str) -> None:
        """Make the names in it survive a power cut, and in the folders below that hold `names`."""
        os.fsync(self.handle)
        for below in {name.rpartition("/")[0] for name in names} - {""}:
            with suppress(FileNotFoundError), self.subfolder(below) as folder:
                os.fsync(folder.handle)

    def with_owner_here(self, file: FileCopy) -> FileCopy:
        """Return an archived file with an owner that a file may have here, and its permissions.

        Another group than it had may do no more than anybody might; set-id bits never come back.
        """
        around = os.fstat(self.handle)
        user, group = file.owner
        user = user if user in (around.st_uid, os.geteuid()) else around.st_uid
        group = group if group in (around.st_gid, os.getegid()) else around.st_gid
        mode = FileMode(file.mode & 0o777, file.owner[1]).of(group)
        return file._replace(mode=mode, owner=(user, group))


@contextmanager
def opened_folder(
    path: Path | str, enters: Callable[[str], bool] = lambda _: False
) -> Iterator[Folder]:
    """Open a folder that a user named; a link to it is followed, and none in it."""
    try:
        resolved = Path(path).resolve(strict=True)
        handle = os.open(resolved, _READ_FOLDER)
    except FileNotFoundError as error:
        raise StoreError(f"there is no folder {path}; check the path") from error
    except (OSError, ValueError, RuntimeError) as error:
        what = f"{path} cannot be opened as a folder"
        raise StoreError(refused(what, error, "the path and its permissions")) from error
    try:
        yield Folder(resolved, handle, enters)
    finally:
        os.close(handle)


def is_file_name(name: str) -> bool:
    """Return whether a text can name a file in a folder and nothing outside it.

    >>> [is_file_name(name) for name in ("a.md", "../a.md", "..", "", "a/b")]
    [True, False, False, False, False]
    """
    return bool(name) and name not in (".", "..") and not {"/", "\0"} & set(name) and _is_text(name)


def is_file_path(path: str) -> bool:
    """Return whether a text can name a file in a folder or below it, and nothing outside it.

    >>> [is_file_path(path) for path in ("a.md", "b/a.md", "b/../a.md", "/a.md", "b//a.md", "")]
    [True, True, False, False, False, False]
    """
    return all(map(is_file_name, path.split("/")))


def changed(path: Path) -> ChangedWhileReadError:
    """Return the error for what was written while it was read."""
    return ChangedWhileReadError(f"{path} is written while it is read; try again when it is quiet")


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8; Python stands in surrogates for what is not."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
