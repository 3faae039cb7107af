"""Lock for changes to the archive of a server store.

A change to a file or a folder locks the store, and nobody changes its archive without that lock. A
server store has no such lock. Without this one, a second process would mistake a deletion in
progress for an interrupted one that never began, and erase its copies.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Final

from memlab.errors import ArchiveError
from memlab.store.archive.location import ArchiveLocation
from memlab.text import failure_message

LOCK_SUFFIX: Final = "-lock"
"""Suffix of the name of the lock file, which exists only while the lock is held."""
_LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for the lock of another process."""
_PAUSE: Final = 0.05
"""Seconds between two attempts."""
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def archive_lock(location: ArchiveLocation) -> Iterator[None]:
    """Hold the lock of a server store's archive during the block; do nothing for other stores.

    Raises
    ------
    ArchiveError
        If another process holds the lock for too long, or if the lock file cannot be created.
    """
    if not location.is_of_server:
        yield
        return
    lock_file = location.path.with_name(f"{location.path.name}{LOCK_SUFFIX}")
    try:
        lock_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _open_and_lock(lock_file, location)
    except OSError as error:
        failure = f"the archive {location.path} cannot be locked, nothing was changed"
        raise ArchiveError(
            failure_message(failure, error, "the permissions of the folder")
        ) from error
    try:
        yield
    finally:
        # The file is removed before the lock is released. After the release, the file at this path
        # may be that of another process.
        lock_file.unlink(missing_ok=True)
        os.close(descriptor)


def _open_and_lock(lock_file: Path, location: ArchiveLocation) -> int:
    """Create and lock the lock file; return its descriptor."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        descriptor = os.open(lock_file, _OPEN_FLAGS, 0o600)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            if _is_file_at(lock_file, descriptor):
                return descriptor
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ArchiveError(
                    f"{location.store} is being changed by another memlab, which holds "
                    f"{lock_file}; nothing was changed: try again when it is done"
                ) from error
            time.sleep(_PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_file_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is the one at a path; another process may have removed it."""
    try:
        at_path = path.lstat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (at_path.st_dev, at_path.st_ino) == (opened.st_dev, opened.st_ino)
