"""Where memories live: what every kind of store can do, and what the rest of memlab asks of it.

An adapter is one module with one class that has the attributes and methods of :class:`Source`, one
line in :data:`memlab.sources.opening.ADAPTERS`, and one line of test that puts it through
``tests/sources/conformance.py``. Frames, references, sizing, plans, the archive and restoring are
written once on top of it and know of no store.

Importing this module loads the standard library alone, for a plan is applied without frames; an
adapter imports pyarrow, or its driver, inside the methods that need it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from os import environ
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from memlab.store.archive_place import ArchivePlace
from memlab.store.looking import again_if_changed

Result = TypeVar("Result")

Key = int | str
"""The source's own address of a memory, never looked into: a rowid, the key of a hash, a file's
name. It says nothing of order."""

Fault = tuple[int, str, str]
"""What cannot be read of a memory: its position, the column, and what is wrong with its value."""

Watch = Callable[[str], None]
"""Called with the name of each step when it is done; what it raises stops the operation there."""

DELETED: Final = "deleted"
"""The step of :meth:`Writer.delete` at which the memories are gone and nothing is verified yet."""
INSERTED: Final = "inserted"
"""The step of :meth:`Writer.insert` at which they are back and nothing is verified yet."""


def unwatched(step: str) -> None:
    """Take no notice."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some memories of a source, in order of insertion.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns of :data:`memlab.sources.tables.SCHEMA`, and those of
        :data:`memlab.sources.tables.SIGNALS` that the source keeps; make it with
        :func:`memlab.sources.tables.rows_from`. What cannot be read is null, and has no characters.
    faults : list of (position, column, text)
        What cannot be read, and why.
    others : mapping of str to sequence
        Further columns that were asked for by name, a Python value for every row.
    """

    table: Any
    faults: list[Fault] = field(default_factory=list)
    others: Mapping[str, Sequence[object]] = field(default_factory=dict)


class Facts(NamedTuple):
    """What applying and restoring must know of a record, without a frame.

    Attributes
    ----------
    memory_id : str or None
        As the frame has it; None for one that is no text.
    kind, tags_json : str
        What :func:`memlab.items.is_load_bearing_stored` judges. Text that cannot be read is empty,
        which it refuses.
    title : str or None
        As the frame has it; None where the source does not say it without a frame.
    """

    memory_id: str | None
    kind: str
    tags_json: str
    title: str | None = None


class Reader(Protocol):
    """What a source holds at one moment."""

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory, some at a time, in order of insertion.

        Parameters
        ----------
        with_body : bool
            Whether ``body`` is wanted; ``chars`` counts title and body either way.
        columns : sequence of str
            Columns of the source's own that are wanted in :attr:`Rows.others`.

        Raises
        ------
        StoreError
            When the source has no such column.
        """
        ...

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of those of `keys` that are there, in the order given.

        A record holds all that deleting the memory would take away: every byte and type, what
        cascades with it, times to live. It is canonical: the same memory gives the same bytes, and
        its fingerprint is that of these bytes. It is a JSON object in UTF-8 without line breaks,
        the memory's own fields at the top. Some at a time are in memory.
        """
        ...


class Writer(Reader, Protocol):
    """A source that is being changed."""

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        """Delete memories that are still as planned, and what belongs to them, and verify it.

        Parameters
        ----------
        expected : mapping of Key to str
            The fingerprint of each memory's record.
        watch : callable
            Called with :data:`DELETED` when they are gone, before that is verified.

        Returns
        -------
        int
            How many went: all of `expected`.

        Raises
        ------
        StalePlanError
            When one of them is gone or has another record now. None is deleted.
        CompactionError
            When others would have gone or changed with them. None is deleted.
        """
        ...

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        """Say what stands in the way of putting memories back, such as ``id 'm1'`` elsewhere.

        Empty when nothing does. Keys that are taken need not be looked for.
        """
        ...

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        """Put memories back at their keys, exactly, and verify it.

        Parameters
        ----------
        records : iterable of (Key, bytes)
            Whose keys are free; gone through more than once.
        watch : callable
            Called with :data:`INSERTED` when they are back, before that is verified.

        Returns
        -------
        int
            How many were put back: all but those whose own time to live has passed.

        Raises
        ------
        ArchiveError
            When one would not come back as it was, or another would change. None is put back.
        """
        ...


@runtime_checkable
class Source(Protocol):
    """A store of memories, wherever it is. Making one opens nothing.

    Attributes
    ----------
    name : str
        A path or URL that ``memlab show NAME`` takes, from any folder; without a password.
    scheme : str
        The adapter's name in :data:`memlab.sources.opening.ADAPTERS`; an archive notes it.
    archive : Path
        Where deleted memories are kept: beside a file or folder, or :func:`archive_elsewhere`.
    like : Path or None
        The file or folder, there or not, whose owner and permissions the archive gets; None for a
        server, whose archive belongs to whoever runs memlab alone.
    atomic : bool
        Whether :meth:`changing` is one transaction. Where it is not, a deletion may be stopped
        half way, and applying the plan again goes on from there.
    recall_log : str or None
        Where the source's own log of recalls is, or the words for why it has none that serves.
    protected : frozenset of str
        Tags that make a memory load-bearing by a person's own choice; none until
        :func:`memlab.sources.opening.open_source` finds some in their settings.
    """

    name: str
    scheme: str
    archive: Path
    like: Path | None
    atomic: bool
    recall_log: str | None
    protected: frozenset[str]

    def reading(self) -> AbstractContextManager[Reader]:
        """Open the source at one consistent moment, leaving no trace.

        A source that cannot be held still is looked at again when the block ends.

        Raises
        ------
        StoreError
            When it cannot be read.
        ChangedWhileReadError
            At the end, when somebody wrote meanwhile; :func:`at_one_moment` reads again.
        """
        ...

    def changing(self) -> AbstractContextManager[Writer]:
        """Open the source for a change that is on the disk when the block ends.

        When the block raises, an atomic source is as before.

        Raises
        ------
        UnsafeDeletionError
            Where deleting is not safe, with the reason and what to do instead.
        StoreError
            When it cannot be written.
        """
        ...

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as :meth:`Reader.batches` yielded them while they were there.

        A memory has the position it had, so that store and archive make one history. Reads nothing
        but `records`.
        """
        ...

    def facts_of(self, record: bytes) -> Facts:
        """Return what applying and restoring must know of a record."""
        ...

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record mere use does not change: no count, last access or time to live.

        A plan is stale when a memory that it deletes was used since; one that it keeps may be.
        """
        ...

    def make(self, path: Path, records: Iterable[tuple[Key, bytes]]) -> int:
        """Make a new store at an empty file, with these memories alone; return how many.

        Goes through `records` more than once.

        Raises
        ------
        UnsafeDeletionError
            Where a store of this kind is not a file.
        """
        ...

    def cap_setting(self, keep: int) -> str | None:
        """Return the setting of the source's own that holds a cap, as it is written; else None."""
        ...


def at_one_moment(source: Source, look: Callable[[Reader], Result]) -> Result:
    """Return ``look(reader)`` of one moment; look again, up to five times, if somebody wrote.

    Parameters
    ----------
    source : Source
        What to read.
    look : callable
        May be called more than once.

    Raises
    ------
    ChangedWhileReadError
        When the source is written faster than it is read.
    """

    def read() -> Result:
        with source.reading() as reader:
            return look(reader)

    return again_if_changed(read)


def archive_at(source: Source) -> ArchivePlace:
    """Return where a source's archive is, and whose it is."""
    return ArchivePlace(source.archive, source.name, source.like, source.scheme)


def place_of(milliseconds: int, tie: Key) -> int:
    """Return the position of a memory whose source orders by time.

    The same memory has the same position whenever it is read. Memories of one millisecond come in
    the order of `tie` where that is a number, and in some fixed order where it is a text.

    Parameters
    ----------
    milliseconds : int
        Since 1970; what lies before that, or beyond the year 2248, is taken for the nearest.
    tie : int or str
        What tells memories of one moment apart.

    Examples
    --------
    >>> place_of(1_700_000_000_000, 7) < place_of(1_700_000_000_000, 8)
    True
    >>> place_of(1_700_000_000_000, "b") < place_of(1_700_000_000_001, "a")
    True
    """
    if isinstance(tie, str):
        tie = int.from_bytes(blake2b(tie.encode(errors="surrogatepass"), digest_size=4).digest())
    return (min(max(milliseconds, 0), _LAST_MILLISECOND) << _TIE_BITS) | (tie & _TIE_MASK)


def archive_elsewhere(name: str) -> Path:
    """Return where the memories deleted from a server are kept, on this machine.

    Parameters
    ----------
    name : str
        The source's. What would not do in a file's name is replaced, and a digest added.

    Examples
    --------
    >>> archive_elsewhere("redis://localhost:6379/0?name=betterdb_ac").name
    'redis-localhost-6379-0-name-betterdb_ac-5d37d9e4.archive.db'
    """
    home = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:80]
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return home / "memlab" / f"{words}-{digest}.archive.db"


_TIE_BITS: Final = 20
LEAST_PLACE_OF_TIME: Final = 10**12 << _TIE_BITS
"""A :func:`place_of` since 2001 is at least that; no number of a row is."""
_TIE_MASK: Final = (1 << _TIE_BITS) - 1
_LAST_MILLISECOND: Final = (1 << (63 - _TIE_BITS)) - 1
