"""A process in which changes of files fail, where the recorder is preloaded into it."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

from memlab.cli import main
from proof.tasks import Operation

ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EACCES)
EVERY: Final = 2**31 - 1


class Fault(NamedTuple):
    """Which of the changes of a folder fail, from 1, and with what error."""

    folder: Path
    first: int
    last: int
    error: int

    def begin(self) -> ctypes.CDLL:
        library = ctypes.CDLL(None)
        library.fail_changes(os.fsencode(self.folder), self.first, self.last, self.error)
        return library


class Said(NamedTuple):
    """How a command ended, and how many changes of files there were that could have failed."""

    exit_code: int
    output: str
    changes: int


def operate(fault: Fault, operation: Operation, store: Path, what: Any) -> Any:
    fault.begin()
    return operation(store, what)


def changes_of(operation: Operation, store: Path, what: Any) -> int:
    """Carry out an operation; return how many changes of files there are that could fail."""
    library = Fault(store.parent, 0, 0, 0).begin()
    operation(store, what)
    return int(library.changes_tried())


def command(words: tuple[object, ...], fault: Fault) -> Said:
    library = fault.begin()
    result = CliRunner().invoke(main, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.output, int(library.changes_tried()))
