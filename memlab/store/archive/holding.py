"""The lock under which one process at a time changes an archive whose store has no lock of its own.

A file or a folder is locked for a change, and its archive with it. A server is not: without this
lock a second process would take the copies of a deletion that is under way for those of one that
never began, and erase them.
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
from memlab.text import refused

SUFFIX: Final = "-lock"
"""What the name of the lock file adds to the archive's; it is there while the lock is held."""
_PATIENCE: Final = 30.0
"""Seconds for which the lock of another process is waited for."""
_PAUSE: Final = 0.05
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def archive_held(location: ArchiveLocation) -> Iterator[None]:
    """Hold the archive of a server store, so that the other processes wait for the block's end.

    Raises
    ------
    ArchiveError
        When another process holds it for too long, or the lock file cannot be made.
    """
    if location.like is not None:
        yield
        return
    lock = location.path.with_name(f"{location.path.name}{SUFFIX}")
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _locked(lock, location)
    except OSError as error:
        what = f"the archive {location.path} cannot be locked, nothing was changed"
        raise ArchiveError(refused(what, error, "the permissions of the folder")) from error
    try:
        yield
    finally:
        # Under the lock, so that it is the file that others wait for and not one of theirs.
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path, location: ArchiveLocation) -> int:
    """Return the descriptor of a lock file that is locked, and is the one at its path."""
    until = time.monotonic() + _PATIENCE
    while True:
        descriptor = os.open(lock, _FLAGS, 0o600)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            if _is_at(descriptor, lock):
                return descriptor
        except BlockingIOError as error:
            if time.monotonic() > until:
                os.close(descriptor)
                raise ArchiveError(
                    f"{location.store} is being changed by another memlab, which holds {lock}; "
                    "nothing was changed: try again when it is done"
                ) from error
            time.sleep(_PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path: whoever held it before has unlinked it."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
