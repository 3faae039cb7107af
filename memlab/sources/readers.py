"""Readers and writers of sources, and the keys, records and rows that they exchange."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from memlab import errors
from memlab.store.archive.copied_records import CopiedRecords
from memlab.store.archive.index_versions import IndexVersion
from memlab.store.archive.schema import SampleRow
from memlab.store.records import fingerprint_of
from memlab.store.selection import TriggerEffect

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})

Key = int | str
"""Primary key of a memory in its source, such as a rowid, a hash key or a file name.

memlab does not interpret it, and it does not define an order.
"""

Records = Iterable[tuple[Key, bytes]]
"""Pairs of a key and the record of that memory."""


def keys_of(records: Records) -> Sequence[Key]:
    """Return the keys of records. Records of an archive are not read for that.

    >>> keys_of([(1, b"{}"), (2, b"{}")])
    [1, 2]
    """
    if isinstance(records, CopiedRecords):
        return records.copied_keys
    return [key for key, _ in records]


ExtraColumns = Mapping[str, Sequence[object]]
"""Additional columns by name."""


class LinkChange(NamedTuple):
    """A change of which memories supersede others. A memory that supersedes itself is retired.

    Attributes
    ----------
    superseded_by : mapping of Key to str or None
        The id of the superseding memory, by the key of the superseded one; None to clear it.
    planned : mapping of Key to str, optional
        To apply a plan: the index entries of each memory when the plan was made, as
        :meth:`Supersession.index_entries_of` returned them.
    before : mapping of Key to str, optional
        To undo a plan: the index entries of each memory before the plan was applied, in that form.
    """

    superseded_by: Mapping[Key, str | None]
    planned: Mapping[Key, str] | None = None
    before: Mapping[Key, str] | None = None


class Fault(NamedTuple):
    """A value of a memory that cannot be read."""

    position: int
    """The position of the memory."""
    column: str
    reason: str


StepCallback = Callable[[str], None]
"""Function that is called with the name of each completed step.

An exception that it raises stops the operation after that step.
"""


def no_progress(step: str) -> None:
    """Do nothing. This is the default progress callback."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of memories of a source, in order of insertion; see :func:`rows_from_dicts`.

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
    others: ExtraColumns = field(default_factory=dict)


def check_requested(requested: Iterable[str], existing: Collection[str], owner: str) -> None:
    """Raise StoreError if a column that the caller requested does not exist.

    Parameters
    ----------
    requested : iterable of str
        The requested columns.
    existing : collection of str
        The columns that exist.
    owner : str
        The table or the store that has the columns, for messages.
    """
    unknown = [name for name in requested if name not in existing]
    if not unknown:
        return
    advice = f"it has {', '.join(existing)}" if existing else "leave columns= out"
    raise errors.StoreError(f"{owner} has no column {', '.join(unknown)}; {advice}")


def rows_from_dicts(
    rows: list[dict[str, Any]], *, with_body: bool, others: ExtraColumns = _EMPTY
) -> Rows:
    """Return a batch of rows that are given as dictionaries, which have the same keys.

    A row may have its unreadable values under the key ``faults``.

    >>> row = {"position": 1, "memory_id": "m1", "kind": "episodic", "title": "shipped",
    ...        "body": "it", "created_at": "2026-03-01T12:00:00Z"}
    >>> rows = rows_from_dicts([row], with_body=True)
    >>> rows.table["chars"].to_pylist(), rows.table["tags_json"].to_pylist()
    ([9], ['[]'])
    """
    from memlab.sources.tables import table_of

    faults = []
    for row in rows:
        for position, column, reason in row.get("faults", ()):
            faults.append(Fault(position, column, reason))
    first_row = rows[0]  # a batch is never empty
    names = [name for name in first_row if name != "faults"]
    table = table_of({name: [row[name] for row in rows] for name in names})
    if not with_body:
        table = table.drop_columns("body")
    return Rows(table, faults, others)


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


def keys_in(reader: Reader) -> list[Key]:
    """Return the keys of all memories, in order of insertion."""
    keys: list[Key] = []
    for rows in reader.batches(with_body=False):
        keys += rows.table["key"].to_pylist()
    return keys


class Writer(Reader):
    """A source that is open for a change. A system implements :meth:`_delete` and :meth:`_insert`.

    Attributes
    ----------
    atomic : bool
        Whether the change is one transaction. If not, a deletion can be interrupted half way;
        applying the plan again completes it.
    likely_cause : str
        The likely cause if a change affects other memories than intended; part of messages.
    rows_left_out : mapping of str to int
        Number of rows per table that were deleted with memories and could not be restored.
    entries_left : sequence of Key
        Keys of restored memories whose existing index entry was left unchanged.
    index_before : mapping of str to IndexVersion
        By file name: the index files to restore if they are as the plan left them.
    """

    atomic: ClassVar[bool] = True
    likely_cause: ClassVar[str] = "somebody else who writes to the store"
    rows_left_out: Mapping[str, int] = _EMPTY
    entries_left: Sequence[Key] = ()
    index_before: Mapping[str, IndexVersion] = _EMPTY

    def is_index_as_left(self) -> bool:
        """Return whether nobody changed the index after the plan of :attr:`index_before`."""
        return False

    def index_versions(self) -> list[IndexVersion]:
        """Return the index files that the change replaced, as they were before."""
        return []

    def delete(self, expected: Mapping[Key, str], *, on_step: StepCallback = no_progress) -> int:
        """Delete memories and their dependent rows, and verify the deletion.

        Parameters
        ----------
        expected : mapping of Key to str
            The fingerprint of each memory's :meth:`comparable_record` when the plan was made.
        on_step : callable
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
        on_step("deleted")
        self._check_deleted(expected, before)
        return len(expected)

    def conflicts(self, records: Records) -> list[str]:  # noqa: ARG002
        """Return the conflicts that prevent restoring memories, other than keys in use.

        The records are iterated over once at most.
        """
        return []

    def insert(self, records: Records, *, on_step: StepCallback = no_progress) -> int:
        """Insert memories at their former keys and verify them.

        A memory whose own time to live has passed is not inserted.

        Parameters
        ----------
        records : iterable of (Key, bytes)
            Records whose keys are not in use. They are iterated over more than once.
        on_step : callable
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
        on_step("inserted")
        self._check_inserted(records, before + count)
        return count

    def replace(self, expected: Mapping[Key, str], records: Records) -> None:
        """Replace memories, load-bearing ones too, by records if they still match `expected`."""
        self.delete(expected)
        self.insert(records)

    def lacks_file(self, current: bytes, record: bytes) -> bool:  # noqa: ARG002
        """Return whether a memory has its former index entry and only its file is missing."""
        return False

    def missing_parts_of(self, records: Records) -> Sequence[tuple[Key, bytes]]:
        """Return the records to insert: without the parts that the store still has.

        Such a part is an index entry that names the memory already.
        """
        return list(records)

    def has_inserted_parts(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory is exactly as a record of :meth:`missing_parts_of` has it."""
        return self.is_back(current, record)

    def delete_inserted_parts(self, expected: Mapping[Key, str], records: Records) -> int:  # noqa: ARG002
        """Delete the parts that :meth:`missing_parts_of` selected to insert; return their number.

        The parts that the store had already stay.
        """
        return self.delete(expected)

    def comparable_record(self, record: bytes) -> bytes:
        """Return the part of a record that must be unchanged since planning.

        Server stores leave usage counters out.
        """
        return record

    def identity_sample(self, leaving: Iterable[Key]) -> list[SampleRow] | None:  # noqa: ARG002
        """Return a sample of memories that identifies the store; None if it needs none.

        The memories at the keys `leaving`, which are deleted, are not in it.
        """
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
                f"{len(expected):,} memories were to be deleted, and {deleted:,} would have "
                f"been; all was rolled back: look for {self.likely_cause}"
            )

    def _check_inserted(self, records: Records, expected_count: int) -> None:
        """Raise ArchiveError if an inserted memory differs or the number of memories is wrong."""
        advice = f"all was rolled back: look for {self.likely_cause}"
        stored_records = self.records(keys_of(records))
        for key, record in records:
            # The stored records come in the same order; one that is missing shifts the rest.
            stored_key, stored_record = next(stored_records, (None, b""))
            if stored_key != key or not self.is_back(stored_record, record):
                raise errors.ArchiveError(
                    f"memory {key} would not have come back as it was; {advice}"
                )
        if self._count() != expected_count:
            raise errors.ArchiveError(f"other memories would have changed; {advice}")

    def is_unchanged(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory matches its archived record, and its index entry does too."""
        return self.is_back(current, record)

    def is_back(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory matches its archived record; its index entry may differ."""
        return current == record


class SupersedingWriter(Writer):
    """A source that is open for superseding or retiring memories; see :class:`Supersession`."""

    @abstractmethod
    def supersede(self, change: LinkChange) -> int:
        """Set or clear the superseding memory of memories, and return their number."""

    def unlisted(self, before: Mapping[Key, str]) -> list[Key]:  # noqa: ARG002
        """Return the memories whose index entries are not those in `before`.

        `before` is that of :class:`LinkChange`.
        """
        return []


class IndexWriter(Writer):
    """A source that is open for a change of its index; see :class:`IndexMending`."""

    @abstractmethod
    def index_now(self) -> IndexVersion:
        """Return the index as it is."""

    @abstractmethod
    def rewrite_index(self, data: bytes | None, *, digest: str, written: int | None = None) -> None:
        """Replace the index, or remove its file.

        Parameters
        ----------
        data : bytes or None
            The new content; None to remove the file.
        digest : str
            The digest of the current content; empty for no file.
        written : int, optional
            Time of last modification that the file gets, in nanoseconds. The current time by
            default.

        Raises
        ------
        StalePlanError
            If the current index has another digest.
        """
