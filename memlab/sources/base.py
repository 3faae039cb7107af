"""Base classes of sources: ``Source``, ``Reader`` and ``Writer``, and the records they exchange.

docs/guides/own_source.md shows how to write a source. This module imports the standard library
alone, because a plan is applied without a frame library. Drivers are imported when needed.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from os import PathLike, environ, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from memlab import errors
from memlab.items import is_load_bearing_stored
from memlab.settings import Settings
from memlab.sources.recognition import Evidence, Strength
from memlab.store.archive.content_copies import keeps_copies
from memlab.store.archive.index_versions import IndexVersion
from memlab.store.archive.location import (
    ArchiveLocation,
    archive_path,
    has_archive,
    name_elsewhere,
    unchanged,
)
from memlab.store.archive.opening import read_archive
from memlab.store.archive.retired import RetiredMemories, retired_in
from memlab.store.archive.schema import SampleRow
from memlab.store.database import check_wal
from memlab.store.records import batched, check_canonical, encoded, fingerprint_of, without_place
from memlab.store.selection import TriggerEffect
from memlab.store.snapshot import retry_if_changed
from memlab.text import DisplayMixin, TextPage

Result = TypeVar("Result")

Key = int | str
"""Primary key of a memory in its source, such as a rowid, a hash key or a file name.

memlab does not interpret it, and it does not define an order.
"""

Records = Iterable[tuple[Key, bytes]]
"""Pairs of a key and the record of that memory."""


class KeyedRecords(ABC):
    """Records with known keys, which are read again on each iteration."""

    known_keys: Sequence[Key]
    """The keys in order. `dict` would take an object with ``keys`` for a mapping."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the records, in the order of the keys."""


def keys_of(records: Records) -> Sequence[Key]:
    """Return the keys of records. Records with known keys are not read.

    >>> keys_of([(1, b"{}"), (2, b"{}")])
    [1, 2]
    """
    if isinstance(records, KeyedRecords):
        return records.known_keys
    return [key for key, _ in records]


Others = Mapping[str, Sequence[object]]
"""Additional columns by name."""

Links = Mapping[Key, str | None]
"""Id of the memory that supersedes each memory; None for a memory that is not superseded."""

Fault = tuple[int, str, str]
"""An unreadable value: the position of its memory, its column, and the reason."""

StepCallback = Callable[[str], None]
"""Function that is called with the name of each completed step.

An exception that it raises stops the operation after that step.
"""

DATABASES: Final = (".db", ".sqlite", ".sqlite3")
"""File name suffixes of SQLite databases."""


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def no_progress(step: str) -> None:
    """Do nothing. This is the default progress callback."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of memories of a source, in order of insertion; see :func:`rows_of_each`.

    Attributes
    ----------
    table : pyarrow.Table
        One row per memory, with the columns of :data:`memlab.sources.tables.SCHEMA` and those
        columns of :data:`memlab.sources.tables.SIGNALS` that the source keeps.
    faults : list of Fault
        The values that cannot be read. They are null in the table.
    others : mapping of str to sequence
        Additional columns that the caller requested by name.
    """

    table: Any
    faults: list[Fault] = field(default_factory=list)
    others: Others = field(default_factory=dict)


def check_asked(asked: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise StoreError if a column that the caller requested is unknown."""
    unknown = [name for name in asked if name not in known]
    if not unknown:
        return
    advice = f"it has {', '.join(known)}" if known else "leave columns= out"
    raise errors.StoreError(f"{what} has no column {', '.join(unknown)}; {advice}")


def check_table(where: object, system: str, table: str, needed: Iterable[str], found: Any) -> None:
    """Raise StoreError if a table of a system does not exist or lacks a needed column.

    `found` holds the names of the columns that the table has, and is empty for no such table.
    """
    if not found:
        raise errors.StoreError(
            f"{where} has no table {table}, so it is no database of {system}'s; check its name"
        )
    missing = [name for name in needed if name not in found]
    if missing:
        raise errors.StoreError(
            f"{table} in {where} lacks the column {', '.join(missing)}: another version of "
            f"{system} than memlab knows, or another system"
        )


def rows_of_each(rows: list[dict[str, Any]], *, with_body: bool, others: Others = _NONE) -> Rows:
    """Return a batch made of single rows, with their unreadable values in ``faults``.

    >>> row = {"position": 1, "memory_id": "m1", "kind": "episodic", "title": "shipped",
    ...        "body": "it", "created_at": "2026-03-01T12:00:00Z"}
    >>> rows = rows_of_each([row], with_body=True)
    >>> rows.table["chars"].to_pylist(), rows.table["tags_json"].to_pylist()
    ([9], ['[]'])
    """
    from memlab.sources.tables import table_of

    faults = [fault for row in rows for fault in row.get("faults", ())]
    names = [name for name in rows[0] if name != "faults"]
    table = table_of({name: [row[name] for row in rows] for name in names})
    if not with_body:
        table = table.drop_columns("body")
    return Rows(table, faults, others)


@dataclass(frozen=True, repr=False)
class About(DisplayMixin):
    """Additional report on a store: a page for people and the same fields for scripts."""

    page: TextPage
    said: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the report."""
        return dict(self.said)

    def sheet(self) -> TextPage:
        """Return the page."""
        return self.page


class Facts(NamedTuple):
    """The fields of a memory that applying and restoring need.

    An unreadable kind or list of tags is the empty string, which no episodic memory has.
    """

    memory_id: str | None
    kind: str
    tags_json: str
    title: str | None = None


TODAY: Final = "as it stands"
"""Name of the order that the index has now."""
MOST_READ: Final = "most read first"
"""Name of the order by number of reads, highest first."""


class IndexOrderings(NamedTuple):
    """The entries of an index in several orders, and how many of them a start loads.

    Attributes
    ----------
    written : mapping of str to datetime
        When each memory was written, by memory id.
    lines : mapping of str to tuple of str
        The memory ids from the top down, by name of the order.
    fits : mapping of str to int
        The number of entries that a start loads, by name of the order.
    """

    written: Mapping[str, datetime]
    lines: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, int]


class Loss(NamedTuple):
    """A memory that another program or a person deleted, emptied or moved out of the store.

    Attributes
    ----------
    key, record : Key, bytes
        The key and the record that the memory had.
    at, since, seen : datetime or None
        When it was lost, when it was last written, and when a copy of it was last seen.
    commit : str
        The hash of the git commit that removed it; empty if git does not know it.
    is_emptied : bool
        Whether its file exists and is empty.
    moved_to : str
        The current path of its file outside of the store; empty if it was not moved.
    perhaps : str
        A similar file that the same commit added; empty for none.
    is_unlisted : bool
        Whether the memory exists and its index entry was removed; the record has the entry.
    """

    key: Key
    record: bytes
    at: datetime | None
    since: datetime | None
    commit: str = ""
    seen: datetime | None = None
    is_emptied: bool = False
    moved_to: str = ""
    perhaps: str = ""
    is_unlisted: bool = False


class TextVersion(NamedTuple):
    """The text of a memory as of a commit."""

    at: datetime
    commit: str
    text: str


class FormerName(NamedTuple):
    """A former id of a renamed memory.

    Attributes
    ----------
    name, memory_id : str
        The former id and the current one.
    until : datetime
        When it was renamed.
    is_free : bool
        Whether no other memory has used the former id since.
    """

    name: str
    memory_id: str
    until: datetime
    is_free: bool


def is_index_lost(lost: int, named: int) -> bool:
    """Return whether an index was lost or overwritten, as opposed to edited line by line.

    Parameters
    ----------
    lost : int
        Number of memories that exist and that the index no longer names.
    named : int
        Number of memories that the index still names.

    Examples
    --------
    >>> is_index_lost(7, 1), is_index_lost(1, 0), is_index_lost(1, 1), is_index_lost(5, 300)
    (True, True, False, False)
    """
    return lost > named or (lost >= 2 and lost == named)


class Search(NamedTuple):
    """A search that an agent made: its time and its query."""

    at: datetime
    words: str


class Trouble(NamedTuple):
    """A diagnostic of a store that its owner can act on.

    Attributes
    ----------
    name : str
        Name of the diagnostic.
    found : int
        Number of occurrences; 0 if the diagnostic was run and found nothing.
    summary, advice : str
        The problem and the remedy.
    chars_cut : int
        Characters that a start does not load because of it.
    """

    name: str
    found: int
    summary: str
    advice: str
    chars_cut: int = 0


class Reader(ABC):
    """A consistent view of a source at one moment."""

    @abstractmethod
    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory in batches, in order of insertion.

        Parameters
        ----------
        with_body : bool
            Whether to load ``body``. ``chars`` counts title and body in both cases.
        columns : sequence of str
            The source's own columns to load into :attr:`Rows.others`.

        Yields
        ------
        Rows
            One batch.

        Raises
        ------
        StoreError
            If the source has no such column.
        """

    @abstractmethod
    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the key and the record of each existing memory of `keys`, in the order given.

        A record holds everything that deleting the memory removes: all values with their types,
        rows that are deleted by a cascade, and times to live. It is canonical: equal memories have
        equal records, and the fingerprint of a memory is that of its record. A record is a JSON
        object in UTF-8 without line breaks, with the memory's own fields at the top level. The
        records are read in batches.
        """

    def side_effects(self, keys: Iterable[Key]) -> tuple[TriggerEffect, ...]:  # noqa: ARG002
        """Return the effects of triggers on other tables when these memories are deleted."""
        return ()


class Writer(Reader):
    """A source that is open for a change. A system implements :meth:`_delete` and :meth:`_insert`.

    Attributes
    ----------
    likely_cause : str
        The likely cause if a change affects other memories than intended; part of messages.
    rows_left_out : mapping of str to int
        Number of rows per table that were deleted with memories and could not be restored.
    entries_left : sequence of Key
        Keys of restored memories whose existing index entry was left unchanged.
    index_before : mapping of str to IndexVersion
        By file name: the index files to restore if they are as the plan left them.
    """

    likely_cause: ClassVar[str] = "somebody else who writes to the store"
    rows_left_out: Mapping[str, int] = _NONE
    entries_left: Sequence[Key] = ()
    index_before: Mapping[str, IndexVersion] = MappingProxyType({})

    def index_versions(self) -> list[IndexVersion]:
        """Return the index files that the change replaced, as they were before."""
        return []

    def delete(self, expected: Mapping[Key, str], *, watch: StepCallback = no_progress) -> int:
        """Delete memories and their dependent rows, and verify the deletion.

        Parameters
        ----------
        expected : mapping of Key to str
            The fingerprint of each memory's :meth:`comparable_record` when the plan was made.
        watch : callable
            Called with "deleted" after the deletion, before it is verified.

        Returns
        -------
        int
            The number of deleted memories.

        Raises
        ------
        StalePlanError
            If one of the memories no longer exists or has changed. Nothing is deleted.
        CompactionError
            If other memories would be deleted or changed too. Nothing is deleted.
        """
        stale = self._stale(expected)
        if stale:
            raise errors.StalePlanError(
                f"{len(stale):,} memories are gone or changed since they were looked at, "
                f"{stale[0]} first; nothing was deleted: make a new plan"
            )
        before = self._count()
        self._delete(expected)
        watch("deleted")
        self._check_deleted(expected, before)
        return len(expected)

    def conflicts(self, records: Records) -> list[str]:  # noqa: ARG002
        """Return the conflicts that prevent restoring memories, other than keys in use.

        The records are iterated over once at most.
        """
        return []

    def insert(self, records: Records, *, watch: StepCallback = no_progress) -> int:
        """Insert memories at their former keys and verify them.

        A memory whose own time to live has passed is not inserted.

        Parameters
        ----------
        records : iterable of (Key, bytes)
            Records whose keys are not in use. They are iterated over more than once.
        watch : callable
            Called with "inserted" after the insertion, before it is verified.

        Returns
        -------
        int
            The number of inserted memories.

        Raises
        ------
        ArchiveError
            If a memory would differ from its record or another memory would change. Nothing is
            inserted.
        """
        before = self._count()
        count = self._insert(records)
        watch("inserted")
        self._check_inserted(records, before + count)
        return count

    def replace(self, expected: Mapping[Key, str], records: Records) -> None:
        """Replace memories, load-bearing ones too, by records if they still match `expected`."""
        self.delete(expected)
        self.insert(records)

    def lacks_file(self, there: bytes, record: bytes) -> bool:  # noqa: ARG002
        """Return whether a memory has its former index entry and only its file is missing."""
        return False

    def as_put_back(self, records: Records) -> Sequence[tuple[Key, bytes]]:
        """Return records without the parts that the store already has, such as index entries."""
        return list(records)

    def is_as_put_back(self, there: bytes, record: bytes) -> bool:
        """Return whether a memory is exactly as a record of :meth:`as_put_back` restored it."""
        return self.is_back(there, record)

    def take_out_again(self, expected: Mapping[Key, str], records: Records) -> int:  # noqa: ARG002
        """Delete the parts that records of :meth:`as_put_back` restored, and nothing else."""
        return self.delete(expected)

    def unlisted(self, kept: Mapping[Key, str]) -> list[Key]:  # noqa: ARG002
        """Return the memories whose index entry differs from `kept`, retired ones included."""
        return []

    def supersede(
        self,
        links: Links,
        kept: Mapping[Key, str] | None = None,
        *,
        planned: Mapping[Key, str] | None = None,
    ) -> int:
        """Set or clear the superseding memory of memories, if :attr:`Source.supersedes`.

        A memory that supersedes itself is retired.

        Parameters
        ----------
        links : mapping of Key to str or None
            The id of the superseding memory by key; None to clear it.
        kept : mapping of Key to str, optional
            The :meth:`Source.index_entries_of` each memory when the plan that is undone was made.
        planned : mapping of Key to str, optional
            The same of the plan that is applied.

        Returns
        -------
        int
            The number of changed memories.
        """
        raise NotImplementedError

    def comparable_record(self, record: bytes) -> bytes:
        """Return the part of a record that must be unchanged since planning.

        Server stores leave usage counters out.
        """
        return record

    def identity_sample(self, leaving: Iterable[Key]) -> list[SampleRow] | None:  # noqa: ARG002
        """Return a sample of remaining memories that identifies the store; None if not needed."""
        return None

    @abstractmethod
    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete memories and their dependent rows. The memories were checked just before."""

    @abstractmethod
    def _insert(self, records: Records) -> int:
        """Insert memories and their dependent rows, and return the number of memories."""

    def _stale(self, expected: Mapping[Key, str]) -> list[Key]:
        """Return the keys of memories that no longer exist or changed since planning.

        On a server, the unchanged memories are locked.
        """
        unchanged_keys = set()
        for key, record in self.records(expected):
            fingerprint = fingerprint_of(self.comparable_record(record))
            if fingerprint == expected[key]:
                unchanged_keys.add(key)
        return [key for key in expected if key not in unchanged_keys]

    def _count(self) -> int:
        return sum(len(rows.table) for rows in self.batches(with_body=False))

    def _check_deleted(self, expected: Mapping[Key, str], before: int) -> None:
        """Raise CompactionError if the number of deleted memories is not the expected one."""
        deleted = before - self._count()
        if deleted != len(expected):
            raise errors.CompactionError(
                f"{len(expected):,} memories were to go and {deleted:,} would have gone; "
                f"all was rolled back: look for {self.likely_cause}"
            )

    def _check_inserted(self, records: Records, wanted: int) -> None:
        """Raise ArchiveError if an inserted memory differs or the number of memories is wrong."""
        undone = f"all was rolled back: look for {self.likely_cause}"
        stored_records = self.records(keys_of(records))
        for key, record in records:
            stored_key, stored_record = next(stored_records, (None, b""))
            if stored_key != key or not self.is_back(stored_record, record):
                raise errors.ArchiveError(
                    f"memory {key} would not have come back as it was; {undone}"
                )
        if self._count() != wanted:
            raise errors.ArchiveError(f"other memories would have changed; {undone}")

    def is_unchanged(self, there: bytes, record: bytes) -> bool:
        """Return whether a memory and its index entry match an archived record."""
        return self.is_back(there, record)

    def is_back(self, there: bytes, record: bytes) -> bool:
        """Return whether a restored memory matches its archived record."""
        return there == record


_is_load_bearing: Final = lru_cache(4096)(is_load_bearing_stored)
"""Cached check: the memories of a store share few kinds and lists of tags."""


class Source(ABC):
    """A store of memories: a file, a folder or a server. Creating a source opens nothing.

    Attributes
    ----------
    scheme : str
        The scheme of its name, as in :data:`memlab.sources.opening.SYSTEMS`. Archives record it.
    atomic : bool
        Whether :meth:`changing` is one transaction. If not, a deletion can be interrupted half
        way; applying the plan again completes it.
    supersedes : bool
        Whether one memory can supersede another, which is kept and not loaded.
    retires : bool
        Whether a memory can be retired: it is no longer loaded at start and can still be found.
    deletes : bool
        Whether memlab deletes from it. If not, its system has a setting for the cap.
    is_native_format : bool
        Whether it is a file in memlab's own format, written by an agent's runtime. memlab rewrites
        such files, and their keys are the positions.
    is_folder : bool
        Whether its memories are files of a folder.
    cuts_index : bool
        Whether a start loads an index up to a maximum length, so that :meth:`orders` applies.
    tables : mapping of str to sequence of str
        Tables with the columns that a SQLite file must have to be such a store.
    endings : tuple of str
        File name suffixes of such stores; a search uses them.
    setting : str
        The setting of its system that holds a cap, with ``%d`` for the number; empty for none.
    default_locations : tuple of str
        The environment variable that sets the folder, the default folder below the home, and the
        paths of stores in that folder.
    usage_fields : collection of str
        Fields of a record that change by use alone.
    revised : frozenset of str
        Signals that its system overwrites after a memory is written.
    protected : frozenset of str
        Tags that make a memory load-bearing by a person's choice. It is empty until
        :func:`memlab.sources.opening.open_source` reads the settings.
    settings : Settings or None
        The settings of the store in ``memlab.toml``; None until they are read.
    """

    scheme: str
    atomic: bool = True
    supersedes: bool = False
    retires: bool = False
    deletes: bool = True
    is_native_format: bool = False
    is_folder: bool = False
    cuts_index: bool = False
    revised: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    settings: Settings | None = None
    tables: ClassVar[Mapping[str, Sequence[str]]] = {}
    endings: ClassVar[tuple[str, ...]] = DATABASES
    setting: ClassVar[str] = ""
    default_locations: ClassVar[tuple[str, ...]] = ()
    usage_fields: ClassVar[Collection[str]] = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Absolute path or URL, without a password, that ``memlab show NAME`` accepts."""

    @property
    def permissions_template(self) -> Path | None:
        """File or folder whose owner and permissions the archive gets; None for a server."""
        return None

    @property
    def archive(self) -> Path:
        """Path of its archive: beside the file or folder, or :func:`archive_elsewhere`."""
        template = self.permissions_template
        if template is None:
            return archive_elsewhere(self.name)
        return archive_path(template)

    def __str__(self) -> str:
        return self.name

    @property
    def is_copied(self) -> bool:
        """Whether its archive may keep copies of its memories."""
        return self.is_folder or (self.is_native_format and self.name != ":memory:")

    def files(self) -> list[Path]:
        """Return the paths of its files, which need not exist; an empty list for a server."""
        template = self.permissions_template
        if template is None:
            return []
        return [template, Path(f"{template}-wal")]

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reader]:
        """Open the source for reading at one consistent moment, without writing anything.

        A source that cannot be locked is checked again when the block ends.
        :func:`read_consistent` reads it again after a ChangedWhileReadError.

        Raises
        ------
        StoreError
            If the source cannot be opened.
        ChangedWhileReadError
            If another program wrote to the source during the block.
        """

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return the path of the store at a path or in that folder; None for no such store.

        Parameters
        ----------
        path : Path
            A file or folder.
        tables : mapping of str to frozenset of str
            The columns of each table, if the path is a SQLite file.
        """
        if not cls.tables:
            return None
        for name, columns in cls.tables.items():
            if name not in tables or not tables[name].issuperset(columns):
                return None
        return path

    @classmethod
    def evidence_for(
        cls, path: Path, tables: Mapping[str, frozenset[str]]
    ) -> tuple[Path, Evidence] | None:
        """Return the store at a path and the strongest evidence for its kind; None for none."""
        store = cls.recognise(path, tables)
        if store is None:
            return None
        return store, Evidence(Strength.TRACE, "has its system's tables", Path.exists)

    def is_document(self, key: Key, record: bytes) -> bool:  # noqa: ARG002
        """Return whether an archived file is not a memory by the current rules of its kind."""
        return False

    def putting_back(self, folder: Path | None = None, archive: Path | None = None) -> "Source":  # noqa: ARG002
        """Return the source as it is opened to restore memories; a folder accepts every file."""
        return self

    @classmethod
    def usual_places(cls, home: Path, known: Mapping[str, str]) -> Sequence[Path]:
        """Return the default paths of such stores, which need not exist.

        Parameters
        ----------
        home : Path
            The home folder.
        known : mapping of str to str
            The environment variables.
        """
        if not cls.default_locations:
            return ()
        variable, below, *names = cls.default_locations
        folder = Path(known.get(variable) or home / below)
        if not names:
            return [folder]
        return [folder / name for name in names]

    def changing(self) -> AbstractContextManager[Writer]:
        """Open the source for a change that is durable when the block ends.

        If the block raises, an atomic source is unchanged.

        Raises
        ------
        UnsafeDeletionError
            If deleting is not safe. The message has the reason and the alternative.
        """
        raise errors.UnsafeDeletionError(
            f"memlab deletes nothing from {self.name}; delete with its system's own tools"
        )

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row at its former position."""
        return self.row_in(json.loads(record))

    def row_in(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return a parsed record as a row.

        A source that does not implement this method overrides :meth:`row_of`, or :meth:`rows_of`
        and :meth:`facts_of`.
        """
        raise NotImplementedError

    def rows_of(self, records: Records, *, with_body: bool = False) -> Iterator[Rows]:
        """Yield archived memories in batches like :meth:`Reader.batches`, from records alone."""
        for batch in batched(records):
            rows = [self.row_of(record) for _, record in batch]
            yield rows_of_each(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return the fields of a record that applying and restoring need."""
        row = self.row_of(record)
        tags = "" if row.get("faults") else row["tags_json"]
        return Facts(
            memory_id=row["memory_id"], kind=row["kind"], tags_json=tags, title=row["title"]
        )

    def is_load_bearing(self, facts: Facts, *, unsure: bool) -> bool:
        """Return whether a memory is never deleted or retired; `unsure` if its tags are invalid."""
        try:
            return _is_load_bearing(facts.kind, facts.tags_json, self.protected)
        except ValueError:
            return unsure

    def without_usage(self, record: bytes) -> bytes:
        """Return a record without the fields that use alone changes.

        These are access counts, times of last access and times to live. Use of a memory that a
        plan deletes makes the plan stale, except on a server, where use never stops. Use of a
        memory that the plan keeps never makes it stale.
        """
        if not self.usage_fields:
            return without_place(record)
        fields = json.loads(record)
        kept = {name: value for name, value in fields.items() if name not in self.usage_fields}
        return encoded(kept)

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:  # noqa: ARG002
        """Check that an archived record is valid for this source. The record is not trusted.

        Parameters
        ----------
        key : Key
            The key under which the archive has the record.
        record : bytes
            A JSON object.
        said : dict
            The parsed record.

        Raises
        ------
        ValueError
            If the record has unknown fields, values out of range or another key.
        """
        check_canonical(record, said)

    def check_copy(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that the record of a copy is valid; it may be of a memory that is not deletable."""
        self.check_record(key, record, said)

    def make(self, path: Path, records: Records) -> int:  # noqa: ARG002
        """Write a new store with these memories to a path, and return their number."""
        raise errors.UnsafeDeletionError(
            f"memlab makes no store of the kind of {self.name}, so nothing was written to {path}: "
            "restore into the store that they came from, or export them with memlab "
            "archive STORE --export memories.jsonl"
        )

    def adjust(self, settings: Settings) -> None:  # noqa: B027
        """Apply a person's settings for this store, except its protected tags."""

    def extra_report(self) -> Any:
        """Return a report on what is not in the frame; None for nothing to report."""
        return None

    def apart_at_start(self) -> int:
        """Return the number of characters that a start loads beside memories, such as an index."""
        return 0

    def orders(self, reads: Mapping[str, int]) -> IndexOrderings:  # noqa: ARG002
        """Return the part of the index that a start loads, in the current and in other orders."""
        raise errors.MemlabError(
            f"{self.name} has no index that is cut; name a folder of Claude Code's memory"
        )

    def diagnostics(self) -> Sequence[Trouble]:
        """Return the diagnostics of this kind of store, those that found nothing included."""
        return ()

    def narrowest_mode(self) -> int:
        """Return the permissions that all files of a folder of memories have in common."""
        return 0o600

    def is_private(self, record: bytes, mode: int) -> bool:  # noqa: ARG002
        """Return whether a memory has narrower read permissions than `mode`."""
        return False

    def check_sound(self) -> None:
        """Raise StoreError if its file is damaged, because a deletion could lose more data.

        Restoring, exporting and copying are still allowed.
        """
        if self.permissions_template is not None and not self.is_folder:
            check_wal(self.permissions_template)

    def iter_deleted_elsewhere(self, *, with_body: bool) -> Iterator[Rows]:  # noqa: ARG002
        """Yield deleted memories that its system or git still has.

        :attr:`Rows.others` has ``deleted_at``, and for git also ``written_at`` and ``commit``.
        """
        return iter(())

    def iter_lost(self) -> Iterator[Loss]:
        """Yield memories that another program or a person deleted or emptied and git has."""
        return iter(())

    def is_tracked(self) -> bool:
        """Return whether git tracks the store, so that :meth:`iter_lost` is complete."""
        return False

    def text_versions(self, keys: Iterable[str]) -> Iterator[tuple[str, list[TextVersion]]]:  # noqa: ARG002
        """Yield the versions of each memory's text that git has, oldest first."""
        return iter(())

    def births(self) -> Mapping[str, str]:
        """Return the commit that added each memory, if git tracks the store."""
        return {}

    def last_changed(self, key: str) -> datetime | None:  # noqa: ARG002
        """Return the time of last modification of a memory's file; None if there is no file."""
        return None

    def former_names(self) -> Sequence[FormerName]:
        """Return the known former ids of renamed memories."""
        return ()

    def searches(self) -> Iterator[Search]:
        """Yield the recorded searches. Most systems do not record the queries."""
        return iter(())

    def content_for_digest(self, record: bytes) -> bytes:
        """Return the part of a record that changes when the memory is written."""
        return self.without_usage(record)

    def is_missing(self) -> bool:
        """Return whether its folder does not exist."""
        return False

    def read_missing_as_empty(self) -> None:  # noqa: B027
        """Let :meth:`reading` treat a missing folder as an empty one, so that losses are found."""

    def made_again(self) -> AbstractContextManager[None]:
        """Create a missing folder to restore into; remove it again if nothing was restored."""
        return nullcontext()

    def older_record(self, record: bytes) -> bytes:
        """Return a record without the fields that readers of archive formats below 3 reject."""
        return record

    def is_unlisted(self, record: bytes) -> bool:  # noqa: ARG002
        """Return whether a record has no index entry."""
        return False

    def relisted(self, record: bytes, older: bytes) -> bytes | None:  # noqa: ARG002
        """Return a record with the index entries of an older record; None if it has none."""
        return None

    def is_empty(self, record: bytes) -> bool:
        """Return whether a memory has no text."""
        return not json.loads(record).get("body")

    def knows_gone(self) -> bool:
        """Return whether :meth:`iter_deleted_elsewhere` yields anything."""
        return False

    def past_note(self) -> str:
        """Return which part of the history is unknown, and why; empty if all is known."""
        return ""

    def past_is_read(self) -> bool:
        """Return whether the history could be read in time; unattended runs require it."""
        return True

    def without_reads(self) -> str:
        """Return the message for a system that records no reads to harvest."""
        return (
            f"{self.name} writes down no reads; give its agent a log: memlab.AccessLog('reads.log')"
        )

    def superseding(self) -> AbstractContextManager[Writer]:
        """Open the source like :meth:`changing`; raise PlanError if it cannot supersede."""
        if self.supersedes:
            return self.changing()
        raise errors.PlanError(
            f"in {self.name} no memory can stand for another; "
            "shorten or delete load-bearing ones with its system's own tools"
        )

    def retiring(self) -> AbstractContextManager[Writer]:
        """Open the source like :meth:`changing`; raise PlanError if it cannot retire."""
        if self.retires:
            return self.changing()
        raise errors.PlanError(
            f"there is nothing to retire in {self.name}: its agent looks up what it needs, or its "
            "system chooses what a start loads, so only deleting makes that smaller; memlab "
            "compact without --retire shows what that costs"
        )

    def superseded_by(self, record: bytes) -> str | None:  # noqa: ARG002
        """Return the id of the superseding memory; for a retired memory this is its own id."""
        return None

    def index_entries_of(self, record: bytes) -> str:  # noqa: ARG002
        """Return the index entries that a plan stores to undo a retirement exactly, as text."""
        return ""

    def retired(self) -> RetiredMemories:
        """Return the memories that plans retired and returned; none if that is unreadable."""
        with suppress(errors.MemlabError):
            location = archive_at(self)
            if has_archive(location):
                return read_archive(location, retired_in)
        return RetiredMemories()

    def cap_setting(self, keep: int) -> str | None:
        """Return the assignment of a cap in its system's settings; None for no such setting."""
        if not self.setting:
            return None
        return self.setting % keep

    def cap_now(self) -> int | None:
        """Return the current cap in its system's settings; None if that is not known."""
        return None

    def native_cap_instructions(self, keep: int) -> list[str]:  # noqa: ARG002
        """Return the lines that explain how to set a cap where memlab does not delete."""
        return []


class FileSource(Source):
    """A store that is one file or folder. Its name begins with its scheme."""

    def __init__(self, where: str | PathLike[str]) -> None:
        self.path = Path(fspath(where).removeprefix(f"{self.scheme}:")).expanduser().absolute()

    @property
    def name(self) -> str:
        """Absolute path with the scheme."""
        return f"{self.scheme}:{self.path}"

    @property
    def permissions_template(self) -> Path | None:
        """Path of the file or folder."""
        return self.path


class WholeReader(Reader):
    """Reader of a store whose records are all in memory, by key."""

    def __init__(self, source: Source, memories: dict[Key, bytes]) -> None:
        self.source = source
        self.memories = memories

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the memories as rows of :meth:`Source.row_of`, in order of position."""
        check_asked(columns, (), self.source.name)
        rows = [self.source.row_of(record) for record in self.memories.values()]
        rows.sort(key=itemgetter("position"))
        for batch in batched(rows):
            yield rows_of_each(batch, with_body=with_body)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the key and the record of each existing memory."""
        memories = self.memories
        return ((key, memories[key]) for key in keys if key in memories)


class WholeWriter(WholeReader, Writer):
    """Writer that changes the records in memory; the source writes them when the block ends."""

    def _delete(self, expected: Mapping[Key, str]) -> None:
        for key in expected:
            del self.memories[key]

    def _insert(self, records: Records) -> int:
        restored = dict(records)
        self.memories |= restored
        return len(restored)

    def _count(self) -> int:
        return len(self.memories)


def canonical(value: Any) -> bytes:
    """Return the canonical JSON encoding of a value: sorted keys, no spaces, UTF-8.

    >>> canonical({"b": 1, "a": 2})
    b'{"a":2,"b":1}'
    """
    return _JSON.encode(value).encode()


def read_consistent(source: Source, look: Callable[[Reader], Result]) -> Result:
    """Return ``look(reader)`` for one consistent moment; retry up to five times after a write."""

    def read() -> Result:
        with source.reading() as reader:
            return look(reader)

    return retry_if_changed(read)


def archive_at(source: Source) -> ArchiveLocation:
    """Return the location of a source's archive, with the identity of the source."""
    is_server = source.permissions_template is None
    return ArchiveLocation(
        path=source.archive,
        store=source.name,
        like=source.permissions_template,
        check=source.check_record,
        check_copy=source.check_copy,
        scheme=source.scheme,
        compared=source.without_usage if is_server else unchanged,
        id_of=lambda record: source.facts_of(record).memory_id,
        has_sample=source.is_native_format,
        narrowest=source.narrowest_mode if source.is_folder else None,
        older_record=source.older_record,
    )


def has_past(source: Source) -> bool:
    """Return whether an archive, git or the system knows of deleted memories of a source."""
    return source.name != ":memory:" and (has_archive(archive_at(source)) or source.knows_gone())


def knows_losses(source: Source) -> bool:
    """Return whether git or copies record what other programs delete from a source."""
    return source.is_tracked() or (source.is_copied and keeps_copies(archive_at(source)))


def losses_unknown(source: Source) -> str:
    """Return the note for a folder without git and copies; empty if losses are recorded."""
    if not source.is_folder or knows_losses(source):
        return ""
    return "not known: neither git nor copies would know what somebody else deleted"


def position_from_timestamp(milliseconds: int, tie: Key) -> int:
    """Return the position of a memory in a source that orders by time.

    The position of a memory never changes. Memories of the same millisecond are ordered by `tie`
    if it is a number, and in a fixed order by its hash if it is text.

    Parameters
    ----------
    milliseconds : int
        Milliseconds since 1970; clipped to the range that a position can hold.
    tie : int or str
        The key that orders memories of the same millisecond.

    >>> first = position_from_timestamp(1_700_000_000_000, 7)
    >>> first < position_from_timestamp(1_700_000_000_000, 8)
    True
    >>> first = position_from_timestamp(1_700_000_000_000, "b")
    >>> first < position_from_timestamp(1_700_000_000_001, "a")
    True
    """
    if isinstance(tie, str):
        tie = int.from_bytes(blake2b(tie.encode(errors="surrogatepass"), digest_size=4).digest())
    clipped = min(max(milliseconds, 0), _LAST_MILLISECOND)
    return (clipped << _TIE_BITS) | (tie & _TIE_MASK)


def archive_elsewhere(name: str) -> Path:
    """Return the local path of the archive of a server store.

    >>> archive_elsewhere("redis://localhost:6379/0?name=betterdb_ac").name
    'redis-localhost-6379-0-name-betterdb_ac-5d37d9e4.archive.db'
    """
    home = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "memlab" / name_elsewhere(name)


_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_TIE_BITS: Final = 20
LEAST_PLACE_OF_TIME: Final = 10**12 << _TIE_BITS
"""Lower bound of a :func:`position_from_timestamp` since 2001; row numbers are below it."""
_TIE_MASK: Final = (1 << _TIE_BITS) - 1
_LAST_MILLISECOND: Final = (1 << (63 - _TIE_BITS)) - 1
