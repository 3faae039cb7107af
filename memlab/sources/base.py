"""Base classes of sources: ``Source``, ``Reader`` and ``Writer``, and the records they exchange.

What few sources can do is in :mod:`memlab.sources.capabilities`. docs/guides/own_source.md shows
how to write a source. This module imports the standard library alone, because a plan is applied
without a frame library. Drivers are imported when needed.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from os import PathLike, environ, fspath
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from memlab import errors
from memlab.items import is_load_bearing_stored
from memlab.settings import Settings
from memlab.sources.capabilities import (
    NO_HISTORY,
    ExternalHistory,
    Intake,
    NativeCap,
    SearchLog,
    StartIndex,
    StartLimit,
    StoreMaking,
    Supersession,
)
from memlab.sources.checkouts import Project
from memlab.sources.readers import (
    Key,
    Reader,
    Records,
    Rows,
    Writer,
    check_requested,
    rows_from_dicts,
)
from memlab.sources.recognition import Evidence, Strength
from memlab.store.archive.archive import Archive
from memlab.store.archive.content_copies import keeps_copies
from memlab.store.archive.location import (
    ArchiveLocation,
    archive_path,
    name_elsewhere,
    unchanged,
)
from memlab.store.archive.retired import RetiredMemories, retired_in
from memlab.store.database import check_wal
from memlab.store.records import batched, check_canonical, encoded, without_place
from memlab.store.snapshot import FileStates, retry_if_changed, states_of
from memlab.text import DisplayMixin, TextPage

Result = TypeVar("Result")

DATABASES: Final = (".db", ".sqlite", ".sqlite3")
"""File name suffixes of SQLite databases."""


def check_table(
    location: object, system: str, table: str, needed: Iterable[str], existing: Collection[str]
) -> None:
    """Raise StoreError if a table of a system does not exist or lacks a needed column.

    Parameters
    ----------
    location : object
        The store, for messages.
    system : str
        The name of the system, for messages.
    table : str
        The name of the table.
    needed : iterable of str
        The columns that the table must have.
    existing : collection of str
        The columns that the table has; empty if there is no such table.
    """
    if not existing:
        raise errors.StoreError(
            f"{location} has no table {table}, so it is not a database of {system}'s; check its "
            "name"
        )
    missing = [name for name in needed if name not in existing]
    if missing:
        raise errors.StoreError(
            f"{table} in {location} lacks the column {', '.join(missing)}: another version of "
            f"{system} than memlab knows, or another system"
        )


@dataclass(frozen=True, repr=False)
class About(DisplayMixin):
    """Additional report on a store: a page for people and the same fields for scripts."""

    page: TextPage
    fields: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the report."""
        return dict(self.fields)

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


class Diagnostic(NamedTuple):
    """A diagnostic of a store that its owner can act on.

    Attributes
    ----------
    name : str
        Name of the diagnostic.
    occurrences : int
        Number of occurrences; 0 if the diagnostic was run and found nothing.
    summary, advice : str
        The problem and the remedy.
    chars_cut : int
        Characters that a start does not load because of it.
    """

    name: str
    occurrences: int
    summary: str
    advice: str
    chars_cut: int = 0


_is_load_bearing: Final = lru_cache(4096)(is_load_bearing_stored)
"""Cached check: the memories of a store share few kinds and lists of tags."""


class Source(ABC):
    """A store of memories: a file, a folder or a server. Creating a source opens nothing.

    Attributes
    ----------
    scheme : str
        The scheme of its name, as in :data:`memlab.sources.opening.SYSTEMS`. Archives record it.
    native_cap : NativeCap or None
        The setting of its system for a cap.
    index_type : type of StartIndex, or None
        The class of its :attr:`index`.
    is_native_format : bool
        Whether it is a file in memlab's own format, written by an agent's runtime. memlab rewrites
        such files, and their keys are the positions.
    is_folder : bool
        Whether its memories are files of a folder.
    own_settings : str
        The key in ``memlab.toml`` of the settings of its kind alone; empty for none.

    tables : mapping of str to sequence of str
        Tables with the columns that a SQLite file must have to be such a store.
    endings : tuple of str
        File name suffixes of such stores; a search uses them.

    default_locations : tuple of str
        The environment variable that names a folder, the default of that folder below the home,
        and the paths of stores in it; the folder itself is the store if there are no paths.
    usage_fields : collection of str
        Fields of a record that change by use alone.
    overwritten_signals : frozenset of str
        Signals that its system overwrites after a memory is written.
    protected : frozenset of str
        Tags that make a memory load-bearing by a person's choice. It is empty until
        :func:`memlab.sources.opening.open_source` reads the settings.
    settings : Settings or None
        The settings of the store in ``memlab.toml``; None until they are read.
    unproven_reason : str
        Why an installed package has not shown that it deletes safely; empty for memlab's own.
    """

    scheme: str
    is_native_format: bool = False
    is_folder: bool = False
    own_settings: ClassVar[str] = ""
    overwritten_signals: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    settings: Settings | None = None
    unproven_reason: str = ""
    tables: ClassVar[Mapping[str, Sequence[str]]] = {}
    endings: ClassVar[tuple[str, ...]] = DATABASES
    default_locations: ClassVar[tuple[str, ...]] = ()
    usage_fields: ClassVar[Collection[str]] = ()
    native_cap: NativeCap | None = None
    index_type: ClassVar[type[Any] | None] = None

    @property
    def index(self) -> StartIndex | None:
        """The index that an agent loads at its start, all or in part; None for most sources."""
        if self.index_type is None:
            return None
        index: StartIndex = self.index_type(self)
        return index

    @property
    def search_log(self) -> SearchLog | None:
        """The searches of its agents; None for most systems, which do not record the queries."""
        return None

    @property
    def external_history(self) -> ExternalHistory:
        """Deleted memories that git or its system knows; an empty history for most sources."""
        return NO_HISTORY

    @property
    def supersession(self) -> Supersession | None:
        """The ability to let one memory supersede another, which is then not loaded."""
        return None

    @property
    def retirement(self) -> Supersession | None:
        """The ability to retire a memory, which is then not loaded and can be found."""
        return None

    @property
    def read_only_reason(self) -> str:
        """Reason why memlab does not delete from the store, with advice; empty if it deletes."""
        is_overridden = type(self).changing is not Source.changing
        if not is_overridden:
            return f"memlab deletes nothing from {self.name}; delete with its system's own tools"
        return self.unproven_reason

    @property
    def intake(self) -> Intake | None:
        """The ability to take memories of another store of its kind; None for most sources."""
        return None

    @property
    def store_making(self) -> StoreMaking | None:
        """The ability to write memories into a new store of its kind; None for most sources."""
        return None

    @property
    @abstractmethod
    def name(self) -> str:
        """Absolute path or URL, without a password, that ``memlab show NAME`` accepts."""

    @property
    def local_path(self) -> Path | None:
        """Path of the store's file or folder on this machine; None for a server.

        New files with data of the store get the permissions of this file or folder.
        """
        return None

    @property
    def is_server(self) -> bool:
        """Whether the store is on a server, and not in a file or a folder."""
        return self.local_path is None

    @property
    def archive_path(self) -> Path:
        """Path of its archive: beside the file or folder, or :func:`archive_elsewhere`."""
        local_path = self.local_path
        if local_path is None:
            return archive_elsewhere(self.name)
        return archive_path(local_path)

    @property
    def archive(self) -> Archive:
        """Its archive, which need not exist."""
        return Archive(
            ArchiveLocation(
                path=self.archive_path,
                store=self.name,
                store_path=self.local_path,
                check=self.check_record,
                check_copy=self.check_copy,
                scheme=self.scheme,
                comparable_record=self.without_usage if self.is_server else unchanged,
                id_of=lambda record: self.facts_of(record).memory_id,
                has_identity_sample=self.is_native_format,
                common_permissions=self.narrowest_mode if self.is_folder else None,
                older_record=self.older_record,
            )
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_copied(self) -> bool:
        """Whether its archive may keep copies of its memories."""
        return self.is_folder or (self.is_native_format and self.name != ":memory:")

    def files(self) -> list[Path]:
        """Return the paths of its files, which need not exist; an empty list for a server."""
        local_path = self.local_path
        if local_path is None:
            return []
        return [local_path, Path(f"{local_path}-wal")]

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
        statement = "has its system's tables" if cls.tables else "has its system's content"
        return store, Evidence(Strength.TRACE, statement, Path.exists)

    def is_document(self, key: Key, record: bytes) -> bool:  # noqa: ARG002
        """Return whether an archived file is not a memory by the current rules of its kind."""
        return False

    def for_restore(self, folder: Path | None = None, archive: Path | None = None) -> "Source":  # noqa: ARG002
        """Return the source as it is opened to restore memories; a folder accepts every file."""
        return self

    @classmethod
    def usual_places(cls, home: Path, environment: Mapping[str, str]) -> Sequence[Path]:
        """Return the default paths of such stores, which need not exist.

        Parameters
        ----------
        home : Path
            The home folder.
        environment : mapping of str to str
            The environment variables.
        """
        if not cls.default_locations:
            return ()
        variable, default_folder, *names = cls.default_locations
        folder = Path(environment.get(variable) or home / default_folder)
        if not names:
            return [folder]
        return [folder / name for name in names]

    def changing(self) -> AbstractContextManager[Writer]:
        """Open the source for a change that is durable when the block ends.

        If the block raises and the writer is atomic, the store is unchanged. A source that memlab
        only reads does not implement this method; its :attr:`read_only_reason` may name the
        alternative.

        Raises
        ------
        UnsafeDeletionError
            If deleting is not safe. The message has the reason and the alternative.
        """
        raise errors.UnsafeDeletionError(self.read_only_reason)

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row at its former position."""
        return self.row_in(json.loads(record))

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return a parsed record as a row.

        A source that does not implement this method overrides :meth:`row_of`, or :meth:`rows_of`
        and :meth:`facts_of`.
        """
        raise NotImplementedError

    def rows_of(self, records: Records, *, with_body: bool = False) -> Iterator[Rows]:
        """Yield archived memories in batches like :meth:`Reader.batches`, from records alone."""
        for batch in batched(records):
            rows = [self.row_of(record) for _, record in batch]
            yield rows_from_dicts(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return the fields of a record that applying and restoring need."""
        row = self.row_of(record)
        tags = "" if row.get("faults") else row.get("tags_json", "[]")
        return Facts(
            memory_id=row["memory_id"], kind=row["kind"], tags_json=tags, title=row["title"]
        )

    def is_load_bearing(self, facts: Facts, *, if_invalid: bool) -> bool:
        """Return whether a memory is load-bearing; `if_invalid` if its tags cannot be read."""
        try:
            return _is_load_bearing(facts.kind, facts.tags_json, self.protected)
        except ValueError:
            return if_invalid

    def without_usage(self, record: bytes) -> bytes:
        """Return a record without the fields that use alone changes.

        These are access counts, times of last access and times to live. Use of a memory that a
        plan deletes makes the plan stale, except on a server, where use never stops. Use of a
        memory that the plan keeps never makes it stale.
        """
        if not self.usage_fields:
            return without_place(record)
        fields = json.loads(record)
        for name in self.usage_fields:
            fields.pop(name, None)
        return encoded(fields)

    def check_record(self, key: Key, record: bytes, parsed: dict[str, Any]) -> None:  # noqa: ARG002
        """Check that an archived record is valid for this source. The record is not trusted.

        Parameters
        ----------
        key : Key
            The key under which the archive has the record.
        record : bytes
            A JSON object.
        parsed : dict
            The parsed record.

        Raises
        ------
        ValueError
            If the record has unknown fields, values out of range or another key.
        """
        check_canonical(record, parsed)

    def check_copy(self, key: Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that the record of a copy is valid; it may be of a memory that is not deletable."""
        self.check_record(key, record, parsed)

    def adjust(self, settings: Settings) -> None:  # noqa: B027
        """Apply a person's settings for this store, except its protected tags."""

    def extra_report(self) -> Any:
        """Return a report on what is not in the frame; None for nothing to report."""
        return None

    def diagnostics(self) -> Sequence[Diagnostic]:
        """Return the diagnostics of this kind of store, including those that found nothing."""
        return ()

    def narrowest_mode(self) -> int:
        """Return the permissions that all files of a folder of memories have in common."""
        return 0o600

    def is_private(self, record: bytes, mode: int) -> bool:  # noqa: ARG002
        """Return whether a memory has narrower read permissions than `mode`."""
        return False

    def check_sound(self) -> None:
        """Raise StoreError if the store's file is damaged: a deletion could lose more data.

        Restoring, exporting and copying are still allowed.
        """
        if self.local_path is not None and not self.is_folder:
            check_wal(self.local_path)

    def start_limit(self) -> StartLimit | None:
        """Return the limit of its system on what a start loads; None for no limit."""
        return None

    def find_project(self) -> Project | None:
        """Return the project that the memories are about; None if it is not known."""
        return None

    def siblings(self) -> "Sequence[Source]":
        """Return the stores of other projects beside this store; none for most systems."""
        return ()

    def content_for_digest(self, record: bytes) -> bytes:
        """Return the part of a record that changes when the memory is written."""
        return self.without_usage(record)

    def is_missing(self) -> bool:
        """Return whether its folder does not exist."""
        return False

    def read_missing_as_empty(self) -> None:  # noqa: B027
        """Let :meth:`reading` treat a missing folder as an empty one, so that losses are found."""

    def recreated_folder(self) -> AbstractContextManager[None]:
        """Create a missing folder to restore into; remove it again if nothing was restored."""
        return nullcontext()

    def older_record(self, record: bytes) -> bytes:
        """Return a record without the fields that readers of archive formats below 3 reject."""
        return record

    def is_empty(self, record: bytes) -> bool:
        """Return whether a memory has no text."""
        return not json.loads(record).get("body")

    def no_reads_message(self) -> str:
        """Return the message for a system that records no reads to harvest."""
        log = "memlab.AccessLog('reads.jsonl')"
        return f"{self.name} holds no record of reads; let its agent write one with {log}"

    def retired(self) -> RetiredMemories:
        """Return the memories that plans retired and returned; none if that is unreadable."""
        with suppress(errors.MemlabError):
            archive = self.archive
            if archive.exists:
                return archive.read(retired_in)
        return RetiredMemories()


class FileSource(Source):
    """A store that is one file or folder. Its name begins with its scheme."""

    def __init__(self, location: str | PathLike[str]) -> None:
        self.path = Path(fspath(location).removeprefix(f"{self.scheme}:")).expanduser().absolute()

    @property
    def name(self) -> str:
        """Absolute path with the scheme."""
        return f"{self.scheme}:{self.path}"

    @property
    def local_path(self) -> Path | None:
        """Path of the file or folder."""
        return self.path


class WholeReader(Reader):
    """Reader of a store whose records are all in memory, by key."""

    def __init__(self, source: Source, memories: dict[Key, bytes]) -> None:
        self.source = source
        self.memories = memories

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the memories as rows of :meth:`Source.row_of`, in order of position."""
        check_requested(columns, (), self.source.name)
        rows = [self.source.row_of(record) for record in self.memories.values()]
        rows.sort(key=itemgetter("position"))
        for batch in batched(rows):
            yield rows_from_dicts(batch, with_body=with_body)

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
        self.memories.update(restored)
        return len(restored)

    def _count(self) -> int:
        return len(self.memories)


def canonical(value: Any) -> bytes:
    """Return the canonical JSON encoding of a value: sorted keys, no spaces, UTF-8.

    >>> canonical({"b": 1, "a": 2})
    b'{"a":2,"b":1}'
    """
    return _JSON.encode(value).encode()


def read_consistent(source: Source, function: Callable[[Reader], Result]) -> Result:
    """Return ``function(reader)`` for one consistent moment.

    If the source is written meanwhile, the function is called again, up to five times.
    """

    def call_once() -> Result:
        with source.reading() as reader:
            return function(reader)

    return retry_if_changed(call_once)


def file_states(source: Source) -> FileStates | None:
    """Return the states of a store's files; None for a server, and for a store in memory.

    If they are unchanged, so are the memories. If they have changed, the memories may be the same,
    because a file was touched or the use of a memory was recorded.
    """
    if source.name == ":memory:":
        return None
    try:
        states = states_of(source.files())
    except (OSError, errors.StoreError):
        return None
    if not states:  # a server has no files
        return None
    return states


def has_past(source: Source) -> bool:
    """Return whether an archive, git or the system knows of deleted memories of a source."""
    if source.name == ":memory:":
        return False
    return source.archive.exists or source.external_history.has_deleted()


def knows_losses(source: Source) -> bool:
    """Return whether git or copies record what other programs delete from a source."""
    return source.external_history.is_tracked() or has_kept_copies(source)


def has_kept_copies(source: Source) -> bool:
    """Return whether the archive of a source keeps copies, from which losses can be restored."""
    return source.is_copied and keeps_copies(source.archive)


def note_on_unknown_losses(source: Source) -> str:
    """Return the note that the losses of a folder are unknown; empty if they are recorded."""
    if not source.is_folder or knows_losses(source):
        return ""
    return (
        "it is not known what other programs deleted: the store is not in git, and memlab has no "
        "copies"
    )


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
MIN_TIME_POSITION: Final = 10**12 << _TIE_BITS
"""Lowest :func:`position_from_timestamp` of a time since September 2001. Row numbers are lower."""
_TIE_MASK: Final = (1 << _TIE_BITS) - 1
_LAST_MILLISECOND: Final = (1 << (63 - _TIE_BITS)) - 1
