"""What a command is at, on a terminal, once it takes more than a moment.

One line on stderr, with the seconds so far, gone as soon as there is something to print.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

PATIENCE: Final = 1.0
"""Seconds before anything is said."""
EVERY: Final = 0.5


PLANNING: Final = {"read": "deciding", "decided": "listing what would go"}
APPLYING: Final = {
    "locked": "comparing the store with the plan",
    "checked": "copying into the archive",
    "archived": "deleting",
    "deleted": "looking at what was deleted",
    "verified": "writing to the disk",
    "committed": "noting it in the archive",
}
RESTORING: Final = {
    "locked": "looking for the places",
    "checked": "putting memories back",
    "inserted": "comparing them with the archive",
    "verified": "writing to the disk",
    "committed": "noting it in the archive",
}
REWRITING: Final = {"checked": "rewriting the file", "rewritten": "giving the room back"}
"""What comes after each step of a plan, an apply, a restore and a vacuum."""


class Working:
    """A line that says what is being done, written by a thread of its own.

    Parameters
    ----------
    doing : str
        What is being done.
    """

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self._done = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self) -> None:
        """Take the line away; returns once it is gone."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        began, width = time.monotonic(), 0
        if self._done.wait(PATIENCE):
            return
        while True:
            line = f"{self.doing} … {time.monotonic() - began:.0f} s"
            sys.stderr.write(f"\r{line:<{width}}")
            sys.stderr.flush()
            width = max(width, len(line))
            if self._done.wait(EVERY):
                break
        sys.stderr.write(f"\r{'':<{width}}\r")
        sys.stderr.flush()


_running: list[Working] = []
"""What works now: one, or none."""


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Say what is being done while the block takes long; nothing where nobody watches."""
    if sys.stderr.isatty():
        _running.append(Working(doing))
        _running[-1].start()
    try:
        yield
    finally:
        quiet()


def doing(what: str) -> None:
    """Change what is said."""
    for one in _running:
        one.doing = what


def telling(first: str, then: Mapping[str, str]) -> Callable[[str], None]:
    """Say what is done first, and return what says after each step what comes then."""
    doing(first)
    return lambda step: doing(then[step]) if step in then else None


def quiet() -> None:
    """Take the line away, because something is printed now."""
    while _running:
        _running.pop().stop()
