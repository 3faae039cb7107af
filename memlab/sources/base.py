"""Where memories live: what every kind of store can do; docs/guides/own_source.md makes one.

Standard library alone, for a plan is applied without frames; drivers are imported when needed.
"""

import json
import re
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
from memlab.store.archive.copies import keeps_copies
from memlab.store.archive.entries import SampleRow
from memlab.store.archive.facts import RetiredMemories, retired_in
from memlab.store.archive.location import ArchiveLocation, archive_path, is_begun, unchanged
from memlab.store.archive.opening import read_archive
from memlab.store.database import check_wal
from memlab.store.records import batched, check_canonical, encoded, fingerprint_of, without_place
from memlab.store.selection import TriggerEffect
from memlab.store.snapshot import retry_if_changed
from memlab.text import DisplayMixin, TextPage

Result = TypeVar("Result")

Key = int | str
"""The source's own address of a memory, never looked into: a rowid, the key of a hash, a file's
name. It says nothing of order."""

Records = Iterable[tuple[Key, bytes]]
"""Records by key."""


class KeyedRecords(ABC):
    """Records that are read each time they are gone through, and whose keys are known."""

    keys: Sequence[Key]

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the records, in the order of the keys."""


def keys_of(records: Records) -> Sequence[Key]:
    """Return the keys of records, reading none of them where the keys are known.

    >>> keys_of([(1, b"{}"), (2, b"{}")])
    [1, 2]
    """
    return records.keys if isinstance(records, KeyedRecords) else [key for key, _ in records]


Others = Mapping[str, Sequence[object]]
"""Further columns, by name."""

Links = Mapping[Key, str | None]
"""The id of what stands for each memory; None where nothing does."""

Fault = tuple[int, str, str]
"""What cannot be read of a memory: its position, the column, and what is wrong with its value."""

StepCallback = Callable[[str], None]
"""Called with the name of each step when it is done; what it raises stops the operation there."""

DATABASES: Final = (".db", ".sqlite", ".sqlite3")
"""How the names of SQLite files end."""


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def no_progress(step: str) -> None:
    """Take no notice."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some memories of a source, in order of insertion; see :func:`rows_of_each`.

    The table has the columns of :data:`memlab.sources.tables.SCHEMA`, and those of
    :data:`memlab.sources.tables.SIGNALS` that the source keeps. What cannot be read is null there
    and named in `faults`; `others` are further columns that were asked for by name.
    """

    table: Any
    faults: list[Fault] = field(default_factory=list)
    others: Others = field(default_factory=dict)


def check_asked(asked: Iterable[str], known: Collection[str], what: str) -> None:
    """Check that the columns that were asked for by name are there."""
    if unknown := [name for name in asked if name not in known]:
        has = f"it has {', '.join(known)}" if known else "leave columns= out"
        raise errors.StoreError(f"{what} has no column {', '.join(unknown)}; {has}")


def check_table(where: object, system: str, table: str, needed: Iterable[str], found: Any) -> None:
    """Check that a table of some columns is that of a system, in a version that is known."""
    if not found:
        raise errors.StoreError(
            f"{where} has no table {table}, so it is no database of {system}'s; check its name"
        )
    if missing := [name for name in needed if name not in found]:
        raise errors.StoreError(
            f"{table} in {where} lacks the column {', '.join(missing)}: another version of "
            f"{system} than memlab knows, or another system"
        )


def rows_of_each(rows: list[dict[str, Any]], *, with_body: bool, others: Others = _NONE) -> Rows:
    """Return rows each of which was read by itself; what cannot be read is in ``faults``.

    >>> row = {"position": 1, "memory_id": "m1", "kind": "episodic", "title": "shipped",
    ...        "body": "it", "created_at": "2026-03-01T12:00:00Z"}
    >>> rows = rows_of_each([row], with_body=True)
    >>> rows.table["chars"].to_pylist(), rows.table["tags_json"].to_pylist()
    ([9], ['[]'])
    """
    from memlab.sources.tables import table_of

    faults = [fault for row in rows for fault in row.get("faults", ())]
    table = table_of({name: [row[name] for row in rows] for name in rows[0] if name != "faults"})
    return Rows(table if with_body else table.drop_columns("body"), faults, others)


@dataclass(frozen=True, repr=False)
class About(DisplayMixin):
    """What there is to say of a store beside its frame: a page, and what a script reads."""

    page: TextPage
    said: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return what a script reads."""
        return dict(self.said)

    def sheet(self) -> TextPage:
        """Return the page."""
        return self.page


class Facts(NamedTuple):
    """What applying and restoring must know; unreadable kind or tags are empty, no episode's."""

    memory_id: str | None
    kind: str
    tags_json: str
    title: str | None = None


TODAY: Final = "as it stands"
"""The order of an index that nobody changed."""
MOST_READ: Final = "most read first"


class IndexOrderings(NamedTuple):
    """What an index names from the top down in one order or another, and what of it is loaded."""

    written: Mapping[str, datetime]
    lines: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, int]


class Loss(NamedTuple):
    """A memory that somebody else deleted, emptied or moved out of the store.

    Attributes
    ----------
    key, record : Key, bytes
        The memory as it was.
    at, since, seen : datetime or None
        When it went, when it was last written, and when a copy of it was last seen.
    commit : str
        Git's name of the commit in which it went.
    is_emptied : bool
        Whether its file is there without words.
    moved_to : str
        Where its file is now, outside of the store; empty where it is nowhere.
    perhaps : str
        The file that came in the same commit and is much like it; empty for none.
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
    """Whether it is there and the index that named it does not any more; the record has its lines.
    """


class TextVersion(NamedTuple):
    """The text that a memory had from a commit on."""

    at: datetime
    commit: str
    text: str


class FormerName(NamedTuple):
    """An id that a memory had before it was renamed.

    Attributes
    ----------
    name, memory_id : str
        The id that it had, and the one that it has now.
    until : datetime
        When it was renamed.
    is_free : bool
        Whether no other memory has had the name since.
    """

    name: str
    memory_id: str
    until: datetime
    is_free: bool


def is_index_lost(lost: int, named: int) -> bool:
    """Whether an index was lost or clobbered, and not edited line by line.

    Parameters
    ----------
    lost : int
        Memories that are there and that it names no more.
    named : int
        Memories that it names still.

    Examples
    --------
    >>> is_index_lost(7, 1), is_index_lost(1, 0), is_index_lost(1, 1), is_index_lost(5, 300)
    (True, True, False, False)
    """
    return lost > named or (lost >= 2 and lost == named)


class Search(NamedTuple):
    """What an agent looked for, and when."""

    at: datetime
    words: str


class Trouble(NamedTuple):
    """Something about a store that its owner could mend."""

    name: str
    found: int
    summary: str
    advice: str
    chars_cut: int = 0
    """Characters that a start would load and cuts because of it."""


class Reader(ABC):
    """What a source holds at one moment."""

    @abstractmethod
    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory, some at a time, in order of insertion.

        Parameters
        ----------
        with_body : bool
            Whether ``body`` is wanted; ``chars`` counts title and body either way.
        columns : sequence of str
            Of the source's own, for :attr:`Rows.others`; StoreError where it has no such column.
        """

    @abstractmethod
    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of those of `keys` that are there, in the order given.

        A record holds all that deleting the memory would take away: every byte and type, what
        cascades with it, times to live. It is canonical: the same memory gives the same bytes, and
        its fingerprint is that of these bytes. It is a JSON object in UTF-8 without line breaks,
        the memory's own fields at the top. Some at a time are in memory.
        """

    def side_effects(self, keys: Iterable[Key]) -> tuple[TriggerEffect, ...]:  # noqa: ARG002
        """Return what triggers do to other tables when these memories are deleted."""
        return ()


class Writer(Reader):
    """A source that is being changed: a system's own are :meth:`_delete` and :meth:`_insert`.

    Attributes
    ----------
    likely_cause : str
        What to look for when more or less would have changed than was meant.
    rows_left_out : mapping of str to int
        Table -> how many rows that went with memories could not be put back with them.
    entries_left : sequence of Key
        Memories that came back and of which an index had an entry already, which was left alone.
    """

    likely_cause: ClassVar[str] = "somebody else who writes to the store"
    rows_left_out: Mapping[str, int] = _NONE
    entries_left: Sequence[Key] = ()

    def delete(self, expected: Mapping[Key, str], *, watch: StepCallback = no_progress) -> int:
        """Delete memories that are still as planned, and what belongs to them, and verify it.

        Parameters
        ----------
        expected : mapping of Key to str
            The fingerprint of what is :meth:`compared` of each memory's record.
        watch : callable
            Called with "deleted" when they are gone, before that is verified.

        Raises
        ------
        StalePlanError
            When one of them is gone or has another record now. None is deleted.
        CompactionError
            When others would have gone or changed with them. None is deleted.
        """
        if stale := self._stale(expected):
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
        """Say what stands in the way of putting memories back, other than keys that are taken.

        The records are gone through once at most.
        """
        return []

    def insert(self, records: Records, *, watch: StepCallback = no_progress) -> int:
        """Put memories back at their keys, exactly, verify it, and return how many.

        Those whose own time to live has passed stay away.

        Parameters
        ----------
        records : iterable of (Key, bytes)
            Whose keys are free; gone through more than once.
        watch : callable
            Called with "inserted" when they are back, before that is verified.

        Raises
        ------
        ArchiveError
            When one would not come back as it was, or another would change. None is put back.
        """
        before = self._count()
        count = self._insert(records)
        watch("inserted")
        self._check_inserted(records, before + count)
        return count

    def replace(self, expected: Mapping[Key, str], records: Records) -> None:
        """Let memories be as they were, load-bearing ones too, that are still as `expected`."""
        self.delete(expected)
        self.insert(records)

    def lacks_file(self, there: bytes, record: bytes) -> bool:  # noqa: ARG002
        """Whether an index says of a memory what it said, and only its file is gone."""
        return False

    def as_put_back(self, records: Records) -> Sequence[tuple[Key, bytes]]:
        """Return records without what a store that takes them already has of them."""
        return list(records)

    def is_as_put_back(self, there: bytes, record: bytes) -> bool:
        """Whether a memory is there just as a record of :meth:`as_put_back` put it."""
        return self.is_back(there, record)

    def take_out_again(self, expected: Mapping[Key, str], records: Records) -> int:  # noqa: ARG002
        """Delete what records of :meth:`as_put_back` put there, and no more than that."""
        return self.delete(expected)

    def unlisted(self, kept: Mapping[Key, str]) -> list[Key]:  # noqa: ARG002
        """Return those memories of which an index does not say what is `kept`, retired or not."""
        return []

    def supersede(
        self,
        links: Links,
        kept: Mapping[Key, str] | None = None,
        *,
        planned: Mapping[Key, str] | None = None,
    ) -> int:
        """Let others stand for memories, or none again, where :attr:`Source.supersedes`.

        A memory that stands for itself is retired. Where a plan is taken back, `kept` is what it
        knew by :meth:`Source.entries_kept`; where one is applied, `planned` is.
        """
        raise NotImplementedError

    def comparable_record(self, record: bytes) -> bytes:
        """Return what of a record must be as a plan saw it; on a server that without usage."""
        return record

    def identity_sample(self, leaving: Iterable[Key]) -> list[SampleRow] | None:  # noqa: ARG002
        """Return a few memories that stay, by which a store is told from another of its name."""
        return None

    @abstractmethod
    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete memories that were just found to be as planned, with what belongs to them."""

    @abstractmethod
    def _insert(self, records: Records) -> int:
        """Put memories back with what belongs to them; return how many."""

    def _stale(self, expected: Mapping[Key, str]) -> list[Key]:
        """Return the memories that are gone or not as planned; on a server, hold the others so."""
        same = {
            key
            for key, record in self.records(expected)
            if fingerprint_of(self.comparable_record(record)) == expected[key]
        }
        return [key for key in expected if key not in same]

    def _count(self) -> int:
        return sum(len(rows.table) for rows in self.batches(with_body=False))

    def _check_deleted(self, expected: Mapping[Key, str], before: int) -> None:
        gone = before - self._count()
        if gone != len(expected):
            words = f"{len(expected):,} memories were to go and {gone:,} would have gone"
            raise errors.CompactionError(
                f"{words}; all was rolled back: look for {self.likely_cause}"
            )

    def _check_inserted(self, records: Records, wanted: int) -> None:
        undone = f"all was rolled back: look for {self.likely_cause}"
        back = self.records(keys_of(records))
        for key, record in records:
            found, there = next(back, (None, b""))
            if found != key or not self.is_back(there, record):
                raise errors.ArchiveError(
                    f"memory {key} would not have come back as it was; {undone}"
                )
        if self._count() != wanted:
            raise errors.ArchiveError(f"other memories would have changed; {undone}")

    def is_unchanged(self, there: bytes, record: bytes) -> bool:
        """Whether a memory, with what an index says of it, is as it was."""
        return self.is_back(there, record)

    def is_back(self, there: bytes, record: bytes) -> bool:
        """Whether a memory that was put back is what was archived."""
        return there == record


_is_load_bearing: Final = lru_cache(4096)(is_load_bearing_stored)
"""Most memories of a store have one of few kinds and lists of tags."""


class Source(ABC):
    """A store of memories, wherever it is. Making one opens nothing.

    Attributes
    ----------
    scheme : str
        By which it is named, as in :data:`memlab.sources.opening.SYSTEMS`; an archive notes it.
    atomic : bool
        Whether :meth:`changing` is one transaction. Where it is not, a deletion may be stopped
        half way, and applying the plan again goes on from there.
    supersedes : bool
        Whether one memory can stand for another, which stays and is not loaded.
    retires : bool
        Whether a memory can be taken out of what is loaded at start and stay to be found.
    deletes : bool
        Whether memlab deletes from it; else its cap is a setting of its own.
    is_native_format : bool
        Whether it is the file of an agent's own runtime in memlab's own format: one that memlab
        rewrites, and whose keys are its positions.
    is_folder : bool
        Whether its memories are files of a folder.
    cuts_index : bool
        Whether a start loads an index up to some length, so that :meth:`orders` can say of what.
    tables : mapping of str to sequence of str
        Tables and columns without which a SQLite file is no such store.
    endings : tuple of str
        How the names of its files end, by which a search finds them.
    setting : str
        The setting of its system's own that holds a cap, with ``%d`` for it; empty for none.
    default_locations : tuple of str
        Where its system puts such stores: the variable that moves the folder, the folder below a
        home, and where in it they are.
    usage_fields : collection of str
        Fields of a record that mere use changes, where no place among others is written down.
    revised : frozenset of str
        Signals that its system changes after a memory is written, keeping no earlier value.
    protected : frozenset of str
        Tags that make a memory load-bearing by a person's own choice; none until
        :func:`memlab.sources.opening.open_source` finds some in their settings.
    settings : Settings or None
        What ``memlab.toml`` says of it; None until it is asked for.
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
        """A path or URL that ``memlab show NAME`` takes, from any folder; without a password."""

    @property
    def permissions_template(self) -> Path | None:
        """The file or folder whose owner and permissions its archive gets; None for a server."""
        return None

    @property
    def archive(self) -> Path:
        """Where its deletions are kept: beside a file or folder, or :func:`archive_elsewhere`."""
        return (
            archive_elsewhere(self.name)
            if self.permissions_template is None
            else archive_path(self.permissions_template)
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_copied(self) -> bool:
        """Whether its archive may keep copies of what is in it."""
        return self.is_folder or (self.is_native_format and self.name != ":memory:")

    def files(self) -> list[Path]:
        """Return the files that it is made of, there or not; none of a server."""
        return (
            []
            if self.permissions_template is None
            else [self.permissions_template, Path(f"{self.permissions_template}-wal")]
        )

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reader]:
        """Open the source at one consistent moment, leaving no trace; StoreError where it cannot.

        A source that cannot be held still is looked at again when the block ends:
        ChangedWhileReadError when somebody wrote meanwhile; :func:`read_consistent` reads again.
        """

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return the store that a path is, or has in it; `tables` are those of a SQLite file."""
        fits = (name in tables and tables[name] >= {*own} for name, own in cls.tables.items())
        return path if cls.tables and all(fits) else None

    @classmethod
    def evidence_for(
        cls, path: Path, tables: Mapping[str, frozenset[str]]
    ) -> tuple[Path, Evidence] | None:
        """Return the store that a path is or has in it, and the strongest evidence for that."""
        found = cls.recognise(path, tables)
        if found is None:
            return None
        return found, Evidence(Strength.TRACE, "has its system's tables", Path.exists)

    def is_document(self, key: Key, record: bytes) -> bool:  # noqa: ARG002
        """Whether an archived file is no memory, as far as a folder's kind is known today."""
        return False

    def putting_back(self, folder: Path | None = None, archive: Path | None = None) -> "Source":  # noqa: ARG002
        """Return it as it is opened to put archived memories back; a folder takes every file."""
        return self

    @classmethod
    def usual_places(cls, home: Path, known: Mapping[str, str]) -> Sequence[Path]:
        """Return where its system puts such stores, there or not, by a home and an environment."""
        if not cls.default_locations:
            return ()
        variable, below, *names = cls.default_locations
        return [Path(known.get(variable) or home / below) / name for name in names or [""]]

    def changing(self) -> AbstractContextManager[Writer]:
        """Open the source for a change that is on the disk when the block ends.

        When the block raises, an atomic source is as before. UnsafeDeletionError where deleting is
        not safe, with the reason and what to do instead.
        """
        raise errors.UnsafeDeletionError(
            f"memlab deletes nothing from {self.name}; delete with its system's own tools"
        )

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row, at the position that it had."""
        return self.row_in(json.loads(record))

    def row_in(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a record says, read, as a row.

        A source without it has a :meth:`row_of` of its own, or :meth:`rows_of` and
        :meth:`facts_of`.
        """
        raise NotImplementedError

    def rows_of(self, records: Records, *, with_body: bool = False) -> Iterator[Rows]:
        """Yield archived memories as :meth:`Reader.batches` yielded them; reads nothing else."""
        for some in batched(records):
            yield rows_of_each([self.row_of(record) for _, record in some], with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return what applying and restoring must know of a record."""
        row = self.row_of(record)
        tags = "" if row.get("faults") else row["tags_json"]
        return Facts(row["memory_id"], row["kind"], tags, row["title"])

    def is_load_bearing(self, facts: Facts, *, unsure: bool) -> bool:
        """Whether a record is of a memory that nothing deletes or retires."""
        try:
            return _is_load_bearing(facts.kind, facts.tags_json, self.protected)
        except ValueError:
            return unsure

    def without_usage(self, record: bytes) -> bytes:
        """Return what of a record mere use does not change: no count, last access or time to live.

        A plan is stale when a memory that it deletes was used since, but not on a server, where use
        never stops; one that it keeps may be used anywhere.
        """
        if not self.usage_fields:
            return without_place(record)
        kept = {n: value for n, value in json.loads(record).items() if n not in self.usage_fields}
        return encoded(kept)

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:  # noqa: ARG002
        """Check that one of its memories can have a record, which anybody may have written.

        `key` is the address that the archive has for it, `record` a JSON object, and `said` the
        same, read. ValueError when none can: it has other fields, values beyond their range,
        another key.
        """
        check_canonical(record, said)

    def check_copy(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that one of its memories can have a record; it may be one that nothing deletes."""
        self.check_record(key, record, said)

    def make(self, path: Path, records: Records) -> int:  # noqa: ARG002
        """Make a store of these memories at an empty file, where it is one; return how many."""
        raise errors.UnsafeDeletionError(
            f"memlab makes no store of the kind of {self.name}, so nothing was written to {path}: "
            "restore into the store that they came from, or export them with memlab "
            "archive STORE --export memories.jsonl"
        )

    def adjust(self, settings: Settings) -> None:  # noqa: B027
        """Take what a person chose for this store, beside its protected tags."""

    def extra_report(self) -> Any:
        """Return a page that shows itself, of what no frame holds; None for nothing."""
        return None

    def apart_at_start(self) -> int:
        """Return how many characters a start loads that belong to no memory, as an index's text."""
        return 0

    def orders(self, reads: Mapping[str, int]) -> IndexOrderings:  # noqa: ARG002
        """Return what a start loads of an index, as it stands and in other orders of its lines."""
        raise errors.MemlabError(
            f"{self.name} has no index that is cut; name a folder of Claude Code's memory"
        )

    def diagnostics(self) -> Sequence[Trouble]:
        """Return what can be wrong with a store of this kind and was looked at, found or not."""
        return ()

    def narrowest_mode(self) -> int:
        """Return the permissions that everybody has on each file of a folder of memories."""
        return 0o600

    def is_private(self, record: bytes, mode: int) -> bool:  # noqa: ARG002
        """Whether fewer people may read a memory than a file with these permissions."""
        return False

    def check_sound(self) -> None:
        """Raise StoreError where its file is damaged, so that a deletion could lose more of it.

        Restoring, exporting and copying go on all the same.
        """
        if self.permissions_template is not None and not self.is_folder:
            check_wal(self.permissions_template)

    def iter_deleted_elsewhere(self, *, with_body: bool) -> Iterator[Rows]:  # noqa: ARG002
        """Yield what has gone from it and somebody else keeps: its system, or git.

        ``deleted_at`` is in :attr:`Rows.others`; of git, ``written_at`` and ``commit`` too.
        """
        return iter(())

    def iter_lost(self) -> Iterator[Loss]:
        """Yield what somebody else deleted or emptied and git keeps."""
        return iter(())

    def is_tracked(self) -> bool:
        """Whether :meth:`losses` would know."""
        return False

    def text_versions(self, keys: Iterable[str]) -> Iterator[tuple[str, list[TextVersion]]]:  # noqa: ARG002
        """Yield for each memory the texts that it has had, oldest first, where git keeps them."""
        return iter(())

    def births(self) -> Mapping[str, str]:
        """Return for each memory the commit that first had it, where git keeps them."""
        return {}

    def last_changed(self, key: str) -> datetime | None:  # noqa: ARG002
        """Return when a memory's file was last written; None where it is no file that is there."""
        return None

    def former_names(self) -> Sequence[FormerName]:
        """Return the ids that memories had before they were renamed, where that is known."""
        return ()

    def searches(self) -> Iterator[Search]:
        """Yield what was searched for, where its words are kept; nobody writes them elsewhere."""
        return iter(())

    def content_for_digest(self, record: bytes) -> bytes:
        """Return what of a record differs once somebody has written the memory."""
        return self.without_usage(record)

    def is_missing(self) -> bool:
        """Whether the folder that it was is not there."""
        return False

    def read_missing_as_empty(self) -> None:  # noqa: B027
        """Let :meth:`reading` find nothing where the folder is not there, to see what is lost."""

    def made_again(self) -> AbstractContextManager[None]:
        """Make a folder that is not there, to restore into; it goes again where nothing is."""
        return nullcontext()

    def older_record(self, record: bytes) -> bytes:
        """Return a record without what readers of archives before format 3 refuse in it."""
        return record

    def is_unlisted(self, record: bytes) -> bool:  # noqa: ARG002
        """Whether no index of the store leads to a memory, as its record says."""
        return False

    def relisted(self, record: bytes, older: bytes) -> bytes | None:  # noqa: ARG002
        """Return a record with the lines of the index that an older one has; None for none."""
        return None

    def is_empty(self, record: bytes) -> bool:
        """Whether a memory has no words in it."""
        return not json.loads(record).get("body")

    def knows_gone(self) -> bool:
        """Whether :meth:`gone` would tell a summary of anything."""
        return False

    def past_note(self) -> str:
        """Return what should be known of what has gone and is not, and why; empty for nothing."""
        return ""

    def past_is_read(self) -> bool:
        """Whether whoever keeps its past answered: nothing unattended goes by half a past."""
        return True

    def without_reads(self) -> str:
        """Return why no reads can be harvested where its system writes none down."""
        return (
            f"{self.name} writes down no reads; give its agent a log: memlab.AccessLog('reads.log')"
        )

    def superseding(self) -> AbstractContextManager[Writer]:
        """Open a source that :attr:`supersedes` as :meth:`changing` does."""
        if self.supersedes:
            return self.changing()
        words = "shorten or delete load-bearing ones with its system's own tools"
        raise errors.PlanError(f"in {self.name} no memory can stand for another; {words}")

    def retiring(self) -> AbstractContextManager[Writer]:
        """Open a source that :attr:`retires` as :meth:`changing` does."""
        if self.retires:
            return self.changing()
        raise errors.PlanError(
            f"there is nothing to retire in {self.name}: its agent looks up what it needs, or its "
            "system chooses what a start loads, so only deleting makes that smaller; memlab "
            "compact without --retire shows what that costs"
        )

    def superseded_by(self, record: bytes) -> str | None:  # noqa: ARG002
        """Return the id of the memory that stands for this one; of a retired one, its own."""
        return None

    def index_entries_of(self, record: bytes) -> str:  # noqa: ARG002
        """Return what a plan must know to take a retirement back exactly; mostly nothing."""
        return ""

    def retired(self) -> RetiredMemories:
        """Return what plans retired and returned; nothing where that cannot be read."""
        with suppress(errors.MemlabError):
            location = archive_at(self)
            if is_begun(location):
                return read_archive(location, retired_in)
        return RetiredMemories()

    def cap_setting(self, keep: int) -> str | None:
        """Return the setting of the source's own that holds a cap, as it is written; else None."""
        return self.setting % keep if self.setting else None

    def cap_now(self) -> int | None:
        """Return the cap that the setting has today, where nothing is deleted."""
        return None

    def native_cap_instructions(self, keep: int) -> list[str]:  # noqa: ARG002
        """Return the lines that say what to do with a cap where nothing is deleted."""
        return []


class FileSource(Source):
    """A store that is one file or folder, whose name has its scheme."""

    def __init__(self, where: str | PathLike[str]) -> None:
        self.path = Path(fspath(where).removeprefix(f"{self.scheme}:")).expanduser().absolute()

    @property
    def name(self) -> str:
        """The absolute path with its scheme, which says what the file is."""
        return f"{self.scheme}:{self.path}"

    @property
    def permissions_template(self) -> Path | None:
        """The file or folder."""
        return self.path


class WholeReader(Reader):
    """A store that is read whole: the records of its memories by key."""

    def __init__(self, source: Source, memories: dict[Key, bytes]) -> None:
        self.source = source
        self.memories = memories

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the memories as :meth:`Source.row_of` has them, in order of position."""
        check_asked(columns, (), self.source.name)
        rows = sorted(map(self.source.row_of, self.memories.values()), key=itemgetter("position"))
        for some in batched(rows):
            yield rows_of_each(some, with_body=with_body)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records that are there."""
        there = self.memories
        return ((key, there[key]) for key in keys if key in there)


class WholeWriter(WholeReader, Writer):
    """One of which the memories are changed here, and written by its source at the end."""

    def _delete(self, expected: Mapping[Key, str]) -> None:
        for key in expected:
            del self.memories[key]

    def _insert(self, records: Records) -> int:
        back = dict(records)
        self.memories |= back
        return len(back)

    def _count(self) -> int:
        return len(self.memories)


def canonical(value: Any) -> bytes:
    """Return a JSON value as the one text that says it."""
    return _JSON.encode(value).encode()


def read_consistent(source: Source, look: Callable[[Reader], Result]) -> Result:
    """Return ``look(reader)`` of one moment; look again, up to five times, if somebody wrote."""

    def read() -> Result:
        with source.reading() as reader:
            return look(reader)

    return retry_if_changed(read)


def archive_at(source: Source) -> ArchiveLocation:
    """Return where a source's archive is, and whose it is."""
    return ArchiveLocation(
        source.archive,
        source.name,
        source.permissions_template,
        source.check_record,
        source.check_copy,
        source.scheme,
        unchanged if source.permissions_template else source.without_usage,
        lambda record: source.facts_of(record).memory_id,
        source.is_native_format,
        narrowest=source.narrowest_mode if source.is_folder else None,
        older_record=source.older_record,
    )


def has_past(source: Source) -> bool:
    """Whether anything is known that was in a source and has gone."""
    return source.name != ":memory:" and (is_begun(archive_at(source)) or source.knows_gone())


def knows_losses(source: Source) -> bool:
    """Whether git or copies can say what somebody else deleted from a source."""
    return source.is_tracked() or (source.is_copied and keeps_copies(archive_at(source)))


def losses_unknown(source: Source) -> str:
    """Say of a folder that nobody would know what somebody else deleted; nothing where one does."""
    if not source.is_folder or knows_losses(source):
        return ""
    return "not known: neither git nor copies would know what somebody else deleted"


def position_from_timestamp(milliseconds: int, tie: Key) -> int:
    """Return the position of a memory whose source orders by time.

    The same memory has the same position whenever it is read. Memories of one millisecond come in
    the order of `tie` where that is a number, and in some fixed order where it is a text.

    >>> first = position_from_timestamp(1_700_000_000_000, 7)
    >>> first < position_from_timestamp(1_700_000_000_000, 8)
    True
    >>> first = position_from_timestamp(1_700_000_000_000, "b")
    >>> first < position_from_timestamp(1_700_000_000_001, "a")
    True
    """
    if isinstance(tie, str):
        tie = int.from_bytes(blake2b(tie.encode(errors="surrogatepass"), digest_size=4).digest())
    return (min(max(milliseconds, 0), _LAST_MILLISECOND) << _TIE_BITS) | (tie & _TIE_MASK)


def archive_elsewhere(name: str) -> Path:
    """Return where the memories deleted from a server are kept, on this machine.

    >>> archive_elsewhere("redis://localhost:6379/0?name=betterdb_ac").name
    'redis-localhost-6379-0-name-betterdb_ac-5d37d9e4.archive.db'
    """
    home = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:80]
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return home / "memlab" / f"{words}-{digest}.archive.db"


_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_TIE_BITS: Final = 20
LEAST_PLACE_OF_TIME: Final = 10**12 << _TIE_BITS
"""A :func:`position_from_timestamp` since 2001 is at least that; no number of a row is."""
_TIE_MASK: Final = (1 << _TIE_BITS) - 1
_LAST_MILLISECOND: Final = (1 << (63 - _TIE_BITS)) - 1
