"""Files of JSON lines, of any size and in any state, read a line at a time."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, Final

from memlab.evidence.harvest.found import Progress

LONGEST: Final = 2**26
"""Bytes of a line that is looked at; a longer one is passed over without being held in memory."""
_PIECE: Final = 2**20
"""Bytes of such a line that are read at once."""
_TOLD_EVERY: Final = 2**23
"""Bytes between two words about progress."""
_GIVE_UP: Final = 10_000
"""So many lines that are no objects, and not one that is, and the rest is not looked at."""
_MARK: Final = b"\xef\xbb\xbf"

BROKEN: Final = "lines that are broken or cut short"
TOO_LONG: Final = f"lines of over {LONGEST // 2**20} MiB"
UNREADABLE: Final = "files that cannot be read"
ANOTHER_FORMAT: Final = "files in a format that is not known"

Wanted = Callable[[bytes], bool]


class LineReader:
    """Reads files of JSON objects, one a line, and counts what it passes over.

    A line is parsed only when it is wanted, so that gigabytes of lines that say nothing cost no
    more than a look at their bytes.

    Parameters
    ----------
    files : iterable of Path
        What will be read.
    progress : callable
        Is told how many of their bytes were read.
    left_out : Counter
        Where to count.
    """

    def __init__(self, files: Iterable[Path], progress: Progress, left_out: Counter[str]) -> None:
        self.left_out = left_out
        self._progress = progress
        self.files = [file for file in sorted(files) if self._is_readable(file)]
        self.total = sum(file.stat().st_size for file in self.files)
        self.done = 0

    def objects(self, file: Path, wanted: Wanted) -> Iterator[dict[str, Any]]:
        """Yield the objects of a file whose lines are wanted."""
        broken, known = 0, False
        start, size = self.done, file.stat().st_size
        try:
            with file.open("rb") as opened:
                for line in self._lines(opened):
                    if not (line.startswith(b"{") and line.endswith(b"}")):
                        broken += 1
                        if broken == _GIVE_UP and not known:
                            break
                        continue
                    known = known or b'"type"' in line
                    if wanted(line) and (parsed := self._parsed(line)) is not None:
                        yield parsed
        except OSError:
            self.left_out[UNREADABLE] += 1
        if known:
            self.left_out[BROKEN] += broken
        elif size:
            self.left_out[ANOTHER_FORMAT] += 1
        self.done = start + size
        self._progress(self.done, self.total)

    def _lines(self, opened: IO[bytes]) -> Iterator[bytes]:
        """Yield lines that are not blank, without the white space around them."""
        told = self.done
        while line := opened.readline(LONGEST):
            self.done += len(line)
            if len(line) == LONGEST and not line.endswith(b"\n"):
                self.left_out[TOO_LONG] += 1
                while (rest := opened.readline(_PIECE)) and not rest.endswith(b"\n"):
                    self.done += len(rest)
            elif stripped := line.removeprefix(_MARK).strip():
                yield stripped
            if self.done - told > _TOLD_EVERY:
                told = self.done
                self._progress(min(self.done, self.total), self.total)

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.left_out[BROKEN] += 1
            return None
        return found

    def _is_readable(self, file: Path) -> bool:
        """Whether it is an ordinary file; a pipe would make us wait."""
        try:
            ordinary = S_ISREG(file.stat().st_mode)
        except OSError:
            ordinary = False
        if not ordinary:
            self.left_out[UNREADABLE] += 1
        return ordinary


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for what is none."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return a JSON array; an empty one for what is none."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a JSON string that can be written as UTF-8; an empty one for what is none."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
