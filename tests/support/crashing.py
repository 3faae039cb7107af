"""A process that stops dead at one of its calls to the file system, without a process."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from memlab.sources.folder.files import Folder

CALLS = ("rename", "link", "unlink", "mkdir", "rmdir")


class Crashed(BaseException):
    """A simulated crash; not an Exception, so that only the test catches it."""


class Calls:
    """Counts calls that change a folder, and blocks them from a chosen call on."""

    def __init__(self, crash_at: int | None) -> None:
        self.made = 0
        self._crash_at = crash_at

    def counted(self, call: Callable[..., Any], *, when: Callable[..., bool] | None = None) -> Any:
        """Return a function that counts a call before it is made; with `when`, only such calls."""

        def counting(*args: Any, **kwargs: Any) -> Any:
            if when is None or when(*args, **kwargs):
                self.made += 1
                if self._crash_at is not None and self.made >= self._crash_at:
                    raise Crashed
            return call(*args, **kwargs)

        return counting


def do_nothing(_descriptor: int) -> None:
    """Sync nothing."""


def creates_file(_path: Any, flags: int, *_: Any, **__: Any) -> bool:
    """True if these arguments of ``os.open`` may create a file."""
    return bool(flags & os.O_CREAT)


@contextmanager
def crashing(at: int | None = None) -> Iterator[Calls]:
    """Crash at the call with this number, from 1; without a number never crash."""
    calls = Calls(at)

    patches = [patch.object(os, name, calls.counted(getattr(os, name))) for name in CALLS]
    patches += [
        patch.object(os, "fsync", calls.counted(do_nothing)),  # takes long, changes nothing
        patch.object(os, "open", calls.counted(os.open, when=creates_file)),
        patch.object(Folder, "exchange", calls.counted(Folder.exchange)),
    ]
    with ExitStack() as stack:
        for patched in patches:
            stack.enter_context(patched)
        yield calls


def crash_everywhere(do: Callable[[], object], *, every: int = 1) -> Iterator[int]:
    """Crash `do` at its first call, its second and so on to its last; yield the number of each.

    With `every` it crashes at one in so many calls.
    """
    number = 1
    while True:
        try:
            with crashing(number):
                do()
        except Crashed:
            yield number
            number += every
        else:
            return
