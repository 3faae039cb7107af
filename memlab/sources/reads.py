"""What a harvest finds in its source, and files of JSON lines, of any size and in any state."""

import json
import os
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from memlab.clock import moment_and_zone
from memlab.files import ordinary_file

READ: Final = "read"
MAINTENANCE: Final = "maintenance"
"""A read that ended in an edit of what was read."""
OWN_SESSION: Final = "own session"
"""A read in the session that had written the memory."""
WRITE: Final = "write"
"""Not a read: a change of a memory, which a harvest remembers to judge later reads by."""
APART: Final = {MAINTENANCE: "ended in an edit", OWN_SESSION: "in the session that wrote it"}
"""Kinds of read that are no later need."""

Progress = Callable[[int, int], None]
"""Takes how many bytes were read and how many there are."""


def unheard(_done: int, _total: int) -> None:
    """Tell nobody how far a harvest is."""


class Read(NamedTuple):
    """One read of a memory, or a change of one."""

    memory_id: str
    at: datetime
    id: str
    how: str
    session: str | None = None
    kind: str = READ


@dataclass
class Found:
    """Reads and everything to be said about them."""

    reads: list[Read] = field(default_factory=list)
    apart: list[Read] = field(default_factory=list)
    writes: list[Read] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    without_zone: int = 0
    store: str | None = None


@dataclass(frozen=True)
class Asked:
    """What to harvest."""

    source: str
    transcripts: Path | None = None
    progress: Progress = unheard
    before: Mapping[str, Read] = field(default_factory=dict)
    scheme: str = ""
    """The scheme of the kind of store that a person named."""

    @property
    def path(self) -> Path:
        """The source as a file or a folder, from the root."""
        return Path(os.path.normpath(Path(self.source).expanduser().absolute()))


def moment(value: object, found: Found | None = None) -> datetime | None:
    """Return a moment in UTC, None for what is none; one without a zone is taken as UTC."""
    if not isinstance(value, str):
        return None
    try:
        at, has_zone = moment_and_zone(value)
    except ValueError:
        return None
    if found is not None:
        found.without_zone += not has_zone
    return at


def moment_of_seconds(seconds: object) -> datetime | None:
    """Return the moment so many seconds after 1970, None for what is no number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


LONGEST: Final = 2**26
"""Bytes of a line that is looked at; a longer one is passed over without being held in memory."""
_LARGEST: Final = 2**36
"""Bytes of a file that is read; holes count."""
_PIECE: Final = 2**20
"""Bytes of such a line that are read at once."""
_MARK: Final = b"\xef\xbb\xbf"

BROKEN: Final = "lines that are broken or cut short"
TOO_LONG: Final = f"lines of over {LONGEST // 2**20} MiB"
UNREADABLE: Final = "files that cannot be read"
ANOTHER_FORMAT: Final = "files in a format that is not known"

Wanted = Callable[[bytes], bool]


class LineReader:
    """Reads files of JSON lines and counts what it passes over; a line is parsed when wanted."""

    def __init__(
        self, files: Iterable[Path], progress: Progress = unheard, found: Found | None = None
    ) -> None:
        counted = Found() if found is None else found
        self.left_out = counted.left_out
        self._progress = progress
        self.files = sorted(files)
        self.total = self.done = 0
        for file in self.files:
            with suppress(OSError):  # which is counted when it is read
                self.total += file.stat().st_size
        counted.files = len(self.files)
        counted.bytes = self.total

    def objects(self, file: Path, wanted: Wanted) -> Iterator[dict[str, Any]]:
        """Yield the objects of a file whose lines are wanted."""
        broken = 0
        known = False
        size = 0
        try:
            with ordinary_file(file, most=_LARGEST) as opened:
                size = os.fstat(opened.fileno()).st_size
                for line in self._lines(opened):
                    if not (line.startswith(b"{") and line.endswith(b"}")):
                        broken += 1
                        continue
                    known = known or b'"type"' in line
                    if wanted(line):
                        if isinstance(found := parsed(line), dict):
                            yield found
                        else:
                            self.left_out[BROKEN] += 1
        except OSError:
            self.left_out[UNREADABLE] += 1
        if known:
            self.left_out[BROKEN] += broken
        elif size:
            self.left_out[ANOTHER_FORMAT] += 1
        self.done += size
        self._progress(self.done, self.total)

    def _lines(self, opened: IO[bytes]) -> Iterator[bytes]:
        while line := opened.readline(LONGEST):
            if len(line) == LONGEST and not line.endswith(b"\n"):
                self.left_out[TOO_LONG] += 1
                while (rest := opened.readline(_PIECE)) and not rest.endswith(b"\n"):
                    continue
            elif stripped := line.removeprefix(_MARK).strip():
                yield stripped


def parsed(text: Any) -> Any:
    """Return a JSON value; None for what is none."""
    with suppress(ValueError, RecursionError, TypeError):
        return json.loads(text)
    return None


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for what is none."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return a JSON array; an empty one for what is none."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a JSON string that can be written as UTF-8; an empty one for what is none."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
