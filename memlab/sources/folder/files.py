"""Read and write the files of an open folder, whose names and contents are untrusted.

No symbolic link in the folder is followed, and no file is opened that blocks, such as a pipe.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, Self

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import FileMode, make_like
from memlab.text import failure_message

MAX_FILE_BYTES: Final = 2**26
"""Maximum size in bytes of a file that is read."""

_MAX_DEPTH: Final = 32
"""Maximum depth of subfolders that are listed."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAMEAT2: Final = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
"""The system call that exchanges two names; None if the system has none."""
_EXCHANGE: Final = 2
"""The flag ``RENAME_EXCHANGE`` of that call."""
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
"""Errors of that call on a file system that cannot exchange names."""


class Stamp(NamedTuple):
    """Status of a file that changes when the file is written.

    Attributes
    ----------
    inode, size : int
        Inode number, and size in bytes.
    written, changed : int
        Times of the last change of the content and of the status, in nanoseconds.
    """

    inode: int
    size: int
    written: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp of a file with a status."""
        return cls(
            inode=status.st_ino,
            size=status.st_size,
            written=status.st_mtime_ns,
            changed=status.st_ctime_ns,
        )


class FileCopy(NamedTuple):
    """The content and the metadata of a file.

    Attributes
    ----------
    name : str
        Path in the folder.
    data : bytes
        Content.
    mode : int
        Permissions.
    written : int
        Time of the last change of the content, in nanoseconds.
    owner : tuple of int
        Ids of the user and of the group.
    """

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
"""Key in a record of each field of :class:`FileCopy`. The keys never change."""


class Listing(NamedTuple):
    """The regular files of a folder by path, and the names of everything else."""

    files: dict[str, Stamp]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Folder:
    """An open folder. Get one from :func:`opened_folder`."""

    path: Path
    handle: int
    includes: Callable[[str, "Folder"], bool]
    """Function that returns whether the files of a subfolder belong to the folder.

    Its arguments are the path of the subfolder in the folder that was opened, and the open folder
    that contains the subfolder."""

    def listing(self) -> Listing:
        """Return the files of the folder and of the subfolders that belong to it."""
        files = {}
        others = []
        for name, status in sorted(self._entries("")):
            is_file = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES
            if is_file and _is_text(name):
                files[name] = Stamp.of(status)
            else:
                others.append(name)
        return Listing(files=files, others=tuple(others))

    def names_in(self, path: str) -> set[str]:
        """Return all names in a subfolder."""
        with self.subfolder(path) as folder:
            return {*os.listdir(folder.handle)}  # noqa: PTH208 - a handle, not a path

    def _entries(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path and the status of everything in the folder and in included subfolders.

        `prefix` is the path of this folder in the opened one; it ends in a slash unless empty.
        """
        with os.scandir(self.handle) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted since
                    continue
                name = prefix + entry.name
                may_enter = (
                    stat.S_ISDIR(status.st_mode)
                    and name.count("/") < _MAX_DEPTH
                    and _is_text(name)
                    and self.includes(name, self)
                )
                if not may_enter:
                    yield name, status
                    continue
                try:
                    with self.subfolder(entry.name) as below:
                        yield from below._entries(f"{name}/")
                except PermissionError as error:
                    problem = f"{self.path / entry.name} cannot be read"
                    raise StoreError(failure_message(problem, error, "its permissions")) from error
                except OSError as error:  # it was a folder a moment ago
                    raise changed_while_read(self.path) from error

    @contextmanager
    def _opened_parent(
        self, path: str, *, create_parents: bool = False
    ) -> Iterator[tuple["Folder", str]]:
        """Open the folder of a path; yield it and the last part of the path."""
        parent_path, _, name = path.rpartition("/")
        if not parent_path:
            yield self, name
            return
        if create_parents and self.stamp_of(parent_path) is None:
            self.make_folder(parent_path)
        with self.subfolder(parent_path) as folder:
            yield folder, name

    def read(self, name: str, stamp: Stamp | None = None) -> FileCopy:
        """Return a regular file.

        Raises
        ------
        FileNotFoundError
            If there is no such file, or it is no regular file.
        StoreError
            If it cannot be read or is larger than `MAX_FILE_BYTES`.
        ChangedWhileReadError
            If it was written meanwhile, or its stamp is not `stamp`.
        """
        path = self.path / name
        try:
            with self._opened_parent(name) as (parent, last):
                handle = os.open(last, _READ, dir_fd=parent.handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                failure_message(f"{path} cannot be read", error, "its permissions")
            ) from error
        with os.fdopen(handle, "rb") as file:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise FileNotFoundError(f"{path} is not an ordinary file")
            if before.st_size > MAX_FILE_BYTES:
                limit = MAX_FILE_BYTES // 2**20
                raise StoreError(f"{path} has more than {limit} MiB; move it elsewhere")
            data = file.read(before.st_size)  # without a size, it would read a file that grows
            after = os.fstat(handle)
        stamp_before = Stamp.of(before)
        is_as_expected = stamp is None or stamp == stamp_before
        if not is_as_expected or Stamp.of(after) != stamp_before:
            raise changed_while_read(path)
        return FileCopy(
            name=name,
            data=data,
            mode=stat.S_IMODE(before.st_mode),
            written=before.st_mtime_ns,
            owner=(before.st_uid, before.st_gid),
        )

    def read_if_there(self, name: str) -> FileCopy | None:
        """Return a regular file; None if there is none."""
        with suppress(FileNotFoundError):
            return self.read(name)
        return None

    def stamp_of(self, name: str) -> Stamp | None:
        """Return the stamp of a file; None if there is no file."""
        status = self.status_of(name)
        return None if status is None else Stamp.of(status)

    def status_of(self, name: str) -> os.stat_result | None:
        """Return the status of a file; None if there is no file."""
        with suppress(FileNotFoundError), self._opened_parent(name) as (parent, last):
            return os.stat(last, dir_fd=parent.handle, follow_symlinks=False)
        return None

    def inode_of(self, name: str) -> int | None:
        """Return the inode number of a file; None if there is no file."""
        status = self.status_of(name)
        return None if status is None else status.st_ino

    def write(self, file: FileCopy) -> None:
        """Write a new file and sync it.

        If it cannot have the group of `file`, its own group gets the permissions of others.
        """
        with self._opened_parent(file.name) as (parent, name):
            handle = os.open(name, _NEW_FILE, 0o600, dir_fd=parent.handle)
        with os.fdopen(handle, "wb") as opened:
            opened.write(file.data)
            opened.flush()
            make_like(handle, file.owner, file.mode & 0o777)
            os.utime(handle, ns=(file.written, file.written))
            os.fsync(handle)

    def move(self, name: str, other: str) -> None:
        """Rename a file or folder. A file of the new name is replaced."""
        with (
            self._opened_parent(name) as (source, old),
            self._opened_parent(other) as (target, new),
        ):
            os.rename(old, new, src_dir_fd=source.handle, dst_dir_fd=target.handle)

    def link(self, name: str, other: str) -> None:
        """Give a file a second name, which must be unused. Missing folders are created."""
        with (
            self._opened_parent(name) as (source, old),
            self._opened_parent(other, create_parents=True) as (target, new),
        ):
            os.link(
                old,
                new,
                src_dir_fd=source.handle,
                dst_dir_fd=target.handle,
                follow_symlinks=False,
            )

    def unlink(self, name: str) -> None:
        """Delete a name of a file."""
        with self._opened_parent(name) as (parent, last):
            os.unlink(last, dir_fd=parent.handle)

    def remove_empty_parents(self, name: str) -> None:
        """Remove the subfolders of a path, the innermost first, until one is not empty."""
        path, _, _ = name.rpartition("/")
        while path:
            try:
                with self._opened_parent(path) as (parent, last):
                    os.rmdir(last, dir_fd=parent.handle)
            except OSError:  # it holds something, is gone, or may not be removed
                return
            path, _, _ = path.rpartition("/")

    def exchange(self, name: str, other: str) -> None:
        """Exchange the names of two files, atomically if the system can."""
        if _RENAMEAT2 is not None:
            with (
                self._opened_parent(name) as (source, old),
                self._opened_parent(other) as (target, new),
            ):
                result = _RENAMEAT2(
                    source.handle, os.fsencode(old), target.handle, os.fsencode(new), _EXCHANGE
                )
                error_number = ctypes.get_errno()
            if result == 0:
                return
            if error_number not in _NO_EXCHANGE:
                raise OSError(error_number, os.strerror(error_number), other)
        # The file system cannot exchange names: for a moment, both names are one file.
        spare_name = f"{name}.{token_hex(4)}"
        self.link(other, spare_name)
        self.move(name, other)
        self.move(spare_name, name)

    @contextmanager
    def subfolder(self, path: str) -> Iterator["Folder"]:
        """Open a subfolder without following links."""
        name, _, subpath = path.partition("/")
        handle = os.open(name, _READ_FOLDER | os.O_NOFOLLOW, dir_fd=self.handle)
        try:
            subfolder = Folder(self.path / name, handle, self.includes)
            if subpath:
                with subfolder.subfolder(subpath) as folder:
                    yield folder
            else:
                yield subfolder
        finally:
            os.close(handle)

    def make_folder(self, path: str, mode: int | None = None) -> None:
        """Create a subfolder and its missing parents, with the permissions of the parent."""
        with self._opened_parent(path, create_parents=True) as (folder, name):
            parent_status = os.fstat(folder.handle)
            permissions = stat.S_IMODE(parent_status.st_mode) if mode is None else mode
            owner = (parent_status.st_uid, parent_status.st_gid)
            os.mkdir(name, permissions, dir_fd=folder.handle)
            with folder.subfolder(name) as new_folder:
                make_like(new_folder.handle, owner, permissions)
            folder.sync()

    def sync(self, *names: str) -> None:
        """Sync the folder, and the subfolders that hold `names`, to the disk."""
        os.fsync(self.handle)
        subfolders = {name.rpartition("/")[0] for name in names}
        subfolders.discard("")  # the folder itself
        for path in subfolders:
            with suppress(FileNotFoundError, NotADirectoryError), self.subfolder(path) as folder:
                os.fsync(folder.handle)

    def with_owner_here(self, file: FileCopy) -> FileCopy:
        """Return an archived file with an owner and permissions that are safe in this folder.

        A different group gets the permissions of others. Set-id bits are not restored.
        """
        status = os.fstat(self.handle)
        user, archived_group = file.owner
        if user not in (status.st_uid, os.geteuid()):
            user = status.st_uid
        group = archived_group
        if group not in (status.st_gid, os.getegid()):
            group = status.st_gid
        archived_mode = FileMode(file.mode & 0o777, group=archived_group)
        mode = archived_mode.of(group)
        return file._replace(mode=mode, owner=(user, group))


@contextmanager
def opened_folder(
    path: Path | str, includes: Callable[[str, Folder], bool] = lambda _path, _parent: False
) -> Iterator[Folder]:
    """Open a folder. A link to the folder is followed, links in the folder are not."""
    try:
        resolved = Path(path).resolve(strict=True)
        handle = os.open(resolved, _READ_FOLDER)
    except FileNotFoundError as error:
        raise StoreError(f"there is no folder {path}; check the path") from error
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"{path} cannot be opened as a folder"
        raise StoreError(failure_message(problem, error, "the path and its permissions")) from error
    try:
        yield Folder(resolved, handle, includes)
    finally:
        os.close(handle)


def is_file_name(name: str) -> bool:
    """Return whether a text is a valid name of a file in a folder.

    >>> [is_file_name(name) for name in ("a.md", "../a.md", "..", "", "a/b")]
    [True, False, False, False, False]
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return _is_text(name)


def is_file_path(path: str) -> bool:
    """Return whether a text is a valid path of a file in a folder or below it.

    >>> [is_file_path(path) for path in ("a.md", "b/a.md", "b/../a.md", "/a.md", "b//a.md", "")]
    [True, True, False, False, False, False]
    """
    return all(map(is_file_name, path.split("/")))


def changed_while_read(path: Path) -> ChangedWhileReadError:
    """Return the error for a path that was written while it was read."""
    return ChangedWhileReadError(f"{path} is written while it is read; try again when it is quiet")


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8. Python represents other bytes as surrogates."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
