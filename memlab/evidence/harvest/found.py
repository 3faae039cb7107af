"""What a harvest finds in its source."""

import os.path
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from memlab.evidence.reads import READ

Progress = Callable[[int, int], None]
"""Takes how many bytes were read and how many there are."""


def unheard(_done: int, _total: int) -> None:
    """Tell nobody how far a harvest is."""


class Read(NamedTuple):
    """One read of a memory, or a change of one.

    Attributes
    ----------
    memory_id : str
        As the source's frame has it.
    at : datetime
        When it was read, with a time zone.
    id : str
        Names the read in its source, whatever copies of it there are.
    how : str
        By what, such as a tool's name.
    session : str or None
        The session it was made in.
    kind : str
        ``read``, ``write``, or one of :data:`memlab.evidence.reads.APART`.
    """

    memory_id: str
    at: datetime
    id: str
    how: str
    session: str | None = None
    kind: str = READ


@dataclass
class Found:
    """Reads and everything to be said about them.

    Attributes
    ----------
    reads : list of Read
        The later needs.
    apart : list of Read
        Reads that are no later need: maintenance, and those of the session that wrote the memory.
    writes : list of Read
        Changes that later harvests must know of, since their source may sweep them away.
    left_out : Counter
        Reason -> how many calls, results or lines are no read.
    notes : list of str
        What a person should know of this kind of source; sentences.
    files, bytes : int
        How much was read.
    without_zone : int
        How many times had no time zone and were taken as UTC.
    store : str or None
        What ``memlab.load`` takes to show the memories, where there is such a thing.
    """

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
    """What to harvest.

    Attributes
    ----------
    source : str
        A path or the URL of a server.
    transcripts : Path or None
        Where transcripts lie, when that is not where the source's kind keeps them.
    progress : callable
        Is told how far the harvest is.
    before : mapping
        What earlier harvests into the same log found, by id.
    """

    source: str
    transcripts: Path | None = None
    progress: Progress = unheard
    before: Mapping[str, Read] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The source as a file or a folder, from the root."""
        return Path(os.path.normpath(Path(self.source).expanduser().absolute()))


class Way(NamedTuple):
    """How one kind of source is harvested.

    Attributes
    ----------
    name : str
        The kind, in words.
    recognises : callable
        Says whether a source is of this kind.
    find : callable
        Returns its reads.
    """

    name: str
    recognises: Callable[[Asked], bool]
    find: Callable[[Asked], Found]


def moment(value: object, found: Found) -> datetime | None:
    """Return a moment in UTC, None for what is none; one without a zone is taken as UTC."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        if at is None:
            return None
        if at.tzinfo is None:
            found.without_zone += 1
            return at.replace(tzinfo=UTC)
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_of_seconds(seconds: object) -> datetime | None:
    """Return the moment so many seconds after 1970, None for what is no number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
