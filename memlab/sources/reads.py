"""Reads that a harvest finds, and a reader of JSON Lines files of any size and in any state."""

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
"""A read that was followed by an edit of the memory in the same session."""
OWN_SESSION: Final = "own session"
"""A read in the session that wrote the memory."""
WRITE: Final = "write"
"""A change of a memory. It is not a read; a harvest keeps it to classify later reads."""
EXCLUDED_KINDS: Final = {
    MAINTENANCE: "before an edit of the same memory",
    OWN_SESSION: "in the session that wrote the memory",
}
"""Kinds of read that are no evidence of a need, each with its name in messages."""

LOG_SUFFIX: Final = ".reads.jsonl"
"""End of the name of an access log that a harvest writes beside its source."""
FIRST_BYTES_OF_LOG: Final = b'{"memory_id"'
"""First bytes of every access log that memlab wrote."""

BytesCallback = Callable[[int, int], None]
"""Progress callback: takes the number of bytes that were read and the total."""


def no_bytes_progress(_done: int, _total: int) -> None:
    """Do nothing. This is the default progress callback."""


class Read(NamedTuple):
    """A read or a change of a memory.

    Attributes
    ----------
    memory_id : str
        The id of the memory.
    at : datetime
        Its time.
    id : str
        Its own id, by which a later harvest knows it again.
    tool : str
        The name of the tool or of the event.
    session : str or None
        The session of the agent; None if it is not known.
    kind : str
        One of `READ`, `MAINTENANCE`, `OWN_SESSION` and `WRITE`.
    """

    memory_id: str
    at: datetime
    id: str
    tool: str
    session: str | None = None
    kind: str = READ


@dataclass
class HarvestResult:
    """The result of a harvest.

    Attributes
    ----------
    reads, excluded, writes : list of Read
        Reads that are evidence of a need, reads of :data:`EXCLUDED_KINDS`, and changes.
    left_out : Counter
        Number of calls, lines and files that were left out, by reason.
    notes : list of str
        Remarks for a person.
    files, bytes : int
        Number and total size of the files that were read.
    without_zone : int
        Number of times without a time zone, which were read as UTC.
    store : str or None
        The name of the store.
    """

    reads: list[Read] = field(default_factory=list)
    excluded: list[Read] = field(default_factory=list)
    writes: list[Read] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    without_zone: int = 0
    store: str | None = None


@dataclass(frozen=True)
class HarvestRequest:
    """The request of a harvest.

    Attributes
    ----------
    source : str
        The path or the address of the source.
    transcripts : Path or None
        The folder of transcripts; None for the default one.
    progress : callable
        The progress callback.
    recorded : mapping of str to Read
        The reads and changes that earlier harvests recorded, by id.
    scheme : str
        The scheme of the kind of store that a person named; empty for none.
    """

    source: str
    transcripts: Path | None = None
    progress: BytesCallback = no_bytes_progress
    recorded: Mapping[str, Read] = field(default_factory=dict)
    scheme: str = ""

    @property
    def path(self) -> Path:
        """Absolute path of the source."""
        return Path(os.path.normpath(Path(self.source).expanduser().absolute()))


def moment(value: object, result: HarvestResult | None = None) -> datetime | None:
    """Return the time of an ISO 8601 text in UTC; None if it is not a time.

    A time without a zone is read as UTC and counted in `result`.
    """
    if not isinstance(value, str):
        return None
    try:
        at, has_zone = moment_and_zone(value)
    except ValueError:
        return None
    if result is not None and not has_zone:
        result.without_zone += 1
    return at


def moment_of_seconds(seconds: object) -> datetime | None:
    """Return the time of a number of seconds since 1970; None if it is not such a number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


MAX_LINE_BYTES: Final = 2**26
"""Maximum length of a line in bytes; a longer line is skipped in pieces."""
_MAX_FILE_BYTES: Final = 2**36
"""Maximum size of a file in bytes, holes included."""
_PIECE_BYTES: Final = 2**20
"""Bytes of a skipped line that are read at once."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

BROKEN: Final = "lines that are broken or cut short"
TOO_LONG: Final = f"lines of over {MAX_LINE_BYTES // 2**20} MiB"
UNREADABLE: Final = "files that cannot be read"
ANOTHER_FORMAT: Final = "files in an unknown format"

LineTest = Callable[[bytes], bool]
"""Function that returns whether a line has to be parsed."""


class LineReader:
    """Reader of JSON Lines files that parses selected lines only, and counts unreadable ones."""

    def __init__(
        self,
        files: Iterable[Path],
        progress: BytesCallback = no_bytes_progress,
        result: HarvestResult | None = None,
    ) -> None:
        counts = HarvestResult() if result is None else result
        self.left_out = counts.left_out
        self._progress = progress
        self.files = sorted(files)
        self.done = 0
        self.total = 0
        for file in self.files:
            with suppress(OSError):  # the error is counted when the file is read
                self.total += file.stat().st_size
        counts.files = len(self.files)
        counts.bytes = self.total

    def objects(self, file: Path, is_selected: LineTest) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects on the selected lines of a file."""
        broken = 0
        has_type = False
        size = 0
        try:
            with ordinary_file(file, max_bytes=_MAX_FILE_BYTES) as opened:
                size = os.fstat(opened.fileno()).st_size
                for line in self._lines(opened):
                    if not (line.startswith(b"{") and line.endswith(b"}")):
                        broken += 1
                        continue
                    has_type = has_type or b'"type"' in line
                    if not is_selected(line):
                        continue
                    value = parsed(line)
                    if isinstance(value, dict):
                        yield value
                    else:
                        self.left_out[BROKEN] += 1
        except OSError:
            self.left_out[UNREADABLE] += 1
        # A file in which no line has a type is in another format: its lines are not broken.
        if has_type:
            self.left_out[BROKEN] += broken
        elif size:
            self.left_out[ANOTHER_FORMAT] += 1
        self.done += size
        self._progress(self.done, self.total)

    def _lines(self, opened: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines of a file that are not blank; skip and count lines that are too long."""
        while line := opened.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                self.left_out[TOO_LONG] += 1
                _skip_line(opened)
                continue
            stripped = line.removeprefix(_BYTE_ORDER_MARK).strip()
            if stripped:
                yield stripped


def _skip_line(opened: IO[bytes]) -> None:
    """Read an open file up to the end of the current line."""
    while piece := opened.readline(_PIECE_BYTES):
        if piece.endswith(b"\n"):
            return


def parsed(text: Any) -> Any:
    """Return the value of a JSON text; None if it is not JSON."""
    with suppress(ValueError, RecursionError, TypeError):
        return json.loads(text)
    return None


def mapping(value: Any) -> dict[str, Any]:
    """Return a value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return a value if it is a JSON array, else an empty array."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a value without lone surrogates if it is a JSON string, else an empty string."""
    if not isinstance(value, str):
        return ""
    return value.encode(errors="replace").decode()
