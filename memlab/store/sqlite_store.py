"""The store that an agent reads and writes, with its own compaction."""

import json
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from heapq import nlargest
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple, Protocol, Self

from memlab import items
from memlab.arguments import expect, whole_number
from memlab.clock import now_utc
from memlab.errors import BadRowError, MemlabError, StoreError, UnsafeDeletionError
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance, strings_of
from memlab.store import database
from memlab.store.archive.archive import Archive
from memlab.store.archive.runtime_deletion import (
    ArchivedCompaction,
    PolicyAndReason,
    archived_first,
    note_deleted,
)
from memlab.store.selection import (
    classify_rows,
    delete_rows,
    drop_classification,
    surplus_condition,
)


def row_of(item: MemoryItem) -> tuple[Any, ...]:
    """Return the values of an item in the order of :data:`memlab.store.database.COLUMNS`."""
    provenance = item.provenance
    event = provenance.source_event
    return (
        item.memory_id,
        item.kind.value,
        item.title,
        item.body,
        _json(item.tags),
        None if event is None else event.event_id,
        None if event is None else event.sequence,
        provenance.source_task_ref,
        provenance.authored_by,
        provenance.confidence,
        _time_as_given(provenance.created_at),
        _json(provenance.supersedes),
        _json(provenance.evidence_refs),
        item.superseded_by,
    )


def item_of(row: tuple[Any, ...]) -> MemoryItem:
    """Return the item of a row with these values; raise BadRowError if they are wrong."""
    values = dict(zip(database.COLUMNS, row, strict=True))
    event_id = values["source_event_id"]
    sequence = values["source_sequence"]
    event = None
    if event_id is not None and sequence is not None:
        event = items.EventRef(event_id=event_id, sequence=sequence)
    try:
        provenance = MemoryProvenance(
            source_event=event,
            authored_by=values["authored_by"],
            source_task_ref=values["source_task_ref"],
            confidence=values["confidence"],
            created_at=datetime.fromisoformat(values["created_at"]),
            supersedes=strings_of(values["supersedes_json"]),
            evidence_refs=strings_of(values["evidence_refs_json"]),
        )
        return MemoryItem(
            memory_id=values["memory_id"],
            kind=MemoryKind(values["kind"]),
            title=values["title"],
            body=values["body"],
            provenance=provenance,
            tags=strings_of(values["tags_json"]),
            superseded_by=values["superseded_by"],
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRowError(
            f"memory {values['memory_id']!r} cannot be read: {error}; mend its row",
            memory_id=str(values["memory_id"]),
        ) from error


def _time_as_given(moment: datetime) -> str:
    """Return a time as text; leave out a time zone that was not given."""
    if moment.tzname() == items.UTC_BY_DEFAULT.tzname(None):
        moment = moment.replace(tzinfo=None)
    return moment.isoformat()


def _json(values: tuple[str, ...]) -> str:
    """Return strings as a stored JSON list."""
    return json.dumps(values, separators=(",", ":"))


_NAMES: Final = ", ".join(database.COLUMNS)
_UPSERT: Final = (
    f"INSERT INTO memory_items ({_NAMES}) VALUES ({', '.join('?' * len(database.COLUMNS))}) "
    "ON CONFLICT (memory_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in database.COLUMNS[1:])
)
_SMALLEST_DATABASE: Final = 512
"""Size in bytes of one page of the smallest page size."""


class _Match(NamedTuple):
    """A row that a search matches. The best match is the largest one."""

    words: int
    """Number of searched words that the row contains."""
    words_in_title_or_tags: int
    rowid: int


class ReadLog(Protocol):
    """A log of reads, such as :class:`memlab.AccessLog`.

    Examples
    --------
    >>> class ReadIds(list):
    ...     def add(self, memory_id):
    ...         self.append(memory_id)
    >>> import memlab
    >>> path = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> first = memlab.load(path)["memory_id"].iloc[0]
    >>> reads = ReadIds()
    >>> with SqliteMemoryStore(path, access_log=reads) as store:
    ...     title = store.get(first).title
    >>> reads == [first]
    True
    """

    def add(self, memory_id: str, /) -> None:
        """Record that a memory is read now."""


class SqliteMemoryStore:
    """An agent's memory in one SQLite file.

    Parameters
    ----------
    path : str or Path
        The file, created with its parent folders if it is missing, or ``":memory:"``.
    busy_timeout : float
        Seconds to wait for the transaction of another process.
    access_log : AccessLog, optional
        The log in which `get` records every item that it returns, for ``memlab size --log``. If the
        log cannot be written, `get` warns and returns the item.
    archive : bool
        Whether `compact_episodic` archives what it deletes, beside the file, so that ``memlab
        restore`` restores it. Not for a store in memory. By default its deletions are final.

    Attributes
    ----------
    path : Path or None
        The file; None for a store in memory.
    access_log : AccessLog or None
        The log of reads.
    archive : Archive or None
        Where deleted rows are archived; None if they are not.
    connection : sqlite3.Connection
        The open file, for code that keeps its own tables in it.
    last_compaction : ArchivedCompaction or None
        The last archived deletion by `compact_episodic`, with the command that undoes it.

    Raises
    ------
    StoreError
        If the file cannot be opened, or is not a store of this kind.
    UnsafeDeletionError
        If a store in memory is to have an archive.

    Examples
    --------
    >>> from memlab import MemoryProvenance
    >>> with SqliteMemoryStore(":memory:") as store:
    ...     provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#1")
    ...     _ = store.put(MemoryItem("m1", MemoryKind.EPISODIC, "shipped", "", provenance))
    ...     store.compact_episodic(keep_recent=0)
    1
    """

    def __init__(
        self,
        path: str | Path,
        *,
        busy_timeout: float = 30.0,
        access_log: ReadLog | None = None,
        archive: bool = False,
    ) -> None:
        if access_log is not None and not hasattr(access_log, "add"):
            raise ValueError(
                f"access_log must be an AccessLog, such as memlab.AccessLog('reads.jsonl'), not "
                f"{access_log!r}"
            )
        self.access_log: Final = access_log
        expect(path, str, PathLike, call=type(self).__name__, name="path")
        expect(busy_timeout, float, int, call=type(self).__name__, name="busy_timeout")
        expect(archive, bool, call=type(self).__name__, name="archive")
        file = database.path_named(path)
        is_in_memory = str(file) == ":memory:"
        if archive and is_in_memory:
            raise UnsafeDeletionError(
                "a store in memory has no file, so it can have no archive: name a file, as "
                "in SqliteMemoryStore(path, archive=True)"
            )
        self.path: Final = None if is_in_memory else file
        self.archive: Final = Archive.beside(file) if archive else None
        self.last_compaction: ArchivedCompaction | None = None
        if self.path is not None:
            _prepare(self.path)
            database.keep_damaged_log(Path(self.path))
        self.connection: Final = database.connect(file, busy_timeout=busy_timeout)
        try:
            with database.convert_sqlite_errors(path):
                exists = self.connection.execute(
                    "SELECT 1 FROM sqlite_schema WHERE name = 'memory_items'"
                ).fetchone()
                if exists:
                    database.check_table(self.connection, path)
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute(database.SET_CACHE_SIZE)
                self.connection.execute(database.CREATE_TABLE)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A closed store cannot be used again."""
        self.connection.close()

    def put(self, item: MemoryItem) -> MemoryItem:
        """Write `item` and return it. An item with the same id is replaced in its position."""
        expect(item, MemoryItem, call="store.put", name="item")
        with self._converting_errors():
            self.connection.execute(_UPSERT, row_of(item))
        return item

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id, superseded or not; None if there is none.

        Raises
        ------
        BadRowError
            If the row cannot be read as an item. The other methods raise it, too.
        """
        expect(memory_id, str, call="store.get", name="memory_id")
        items_with_id = self._items("WHERE memory_id = ?", memory_id)
        if not items_with_id:
            return None
        item = items_with_id[0]
        if self.access_log is not None:
            try:
                self.access_log.add(item.memory_id)
            except (MemlabError, OSError) as error:
                warnings.warn(f"a read was not logged: {error}", RuntimeWarning, stacklevel=2)
        return item

    def search(self, words: str, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return the items that contain words, best first, whether they are active or not.

        All rows are scanned. Items are ranked by the number of different words that they contain,
        then by the number of words in title or tags, then by position, newest first. Case is
        ignored. A search is not recorded as a read; a later `get` is.

        Parameters
        ----------
        words : str
            The words, separated by spaces.
        limit : int
            The maximum number of items.
        """
        expect(words, str, call="store.search", name="words")
        limit = whole_number("limit", limit, least=1)
        searched_words = set(words.casefold().split())

        def iter_matches() -> Iterator[_Match]:
            query = "SELECT rowid, title, tags_json, body FROM memory_items"
            for rowid, title, tags, body in self.connection.execute(query):
                title_and_tags = f"{title}\n{items.tags_as_text(tags)}".casefold()
                in_title_or_tags = {word for word in searched_words if word in title_and_tags}
                body_text = str(body).casefold()
                in_body = {word for word in searched_words if word in body_text}
                in_any = in_title_or_tags | in_body
                if in_any:
                    yield _Match(len(in_any), len(in_title_or_tags), rowid)

        with self._converting_errors():
            best = nlargest(limit, iter_matches())
        results: list[MemoryItem] = []
        for match in best:
            results += self._items("WHERE rowid = ?", match.rowid)
        return tuple(results)

    def list_active(self, *, kind: MemoryKind | None = None) -> tuple[MemoryItem, ...]:
        """Return the items that are not superseded, in rowid order."""
        if kind is None:
            return self._items("WHERE superseded_by IS NULL ORDER BY rowid")
        expect(kind, str, call="store.list_active", name="kind")
        return self._items("WHERE superseded_by IS NULL AND kind = ? ORDER BY rowid", kind)

    def list_rejected_paths(self) -> tuple[MemoryItem, ...]:
        """Return the active items tagged ``rejected-path``, as :meth:`list_active` does."""
        return tuple(item for item in self.list_active() if items.REJECTED_PATH_TAG in item.tags)

    def list_research_notes(self) -> tuple[MemoryItem, ...]:
        """Return the active items tagged ``research``, newest first by rowid."""
        notes = [item for item in self.list_active() if items.RESEARCH_TAG in item.tags]
        return tuple(reversed(notes))

    def supersede(self, memory_id: str, *, by_memory_id: str) -> MemoryItem:
        """Mark `memory_id` as superseded by `by_memory_id`, and return it.

        An item that is superseded by itself is retired.

        Raises
        ------
        KeyError
            If one of the ids is not in the store, `by_memory_id` first. Nothing is changed.
        """
        with self._converting_errors(), database.transaction(self.connection):
            return self._mark_superseded(memory_id, by_memory_id)

    def compact_episodic(self, keep_recent: int) -> int:
        """Hard-delete all active prunable items except the newest, in one transaction.

        The `keep_recent` items with the highest rowids stay. Load-bearing and superseded rows are
        not touched. Signals that a :class:`memlab.lifecycle.LifecycleStore` keeps of deleted rows
        are deleted with them. A store made with ``archive=True`` copies the rows into its archive
        and syncs it first; for any other store the deletion is final. Deleted bytes are overwritten
        or left in free pages as the SQLite build's ``secure_delete`` determines. After an error
        nothing is deleted.

        Parameters
        ----------
        keep_recent : int
            The maximum number of prunable items that stay; 0 or more.

        Returns
        -------
        int
            The number of deleted rows. If it is 0, nothing is written. If the store archives its
            deletions, ``last_compaction`` describes this one; its ``undo`` is the command that
            restores the rows.

        Raises
        ------
        BadRowError
            If an active row cannot be classified.
        ArchiveError
            If the rows cannot be archived.
        CompactionError
            If a trigger would delete a load-bearing row, or change a row that stays.
        UnsafeDeletionError
            If a trigger would delete rows of another table that nothing restores, or if a foreign
            key ties rows of another table to the deleted ones.
        """
        keep_recent = whole_number("keep_recent", keep_recent)
        now = now_utc()
        connection = self.connection
        with self._converting_errors(), database.transaction(connection):
            load_bearing = classify_rows(connection)
            surplus_sql = surplus_condition(connection, keep_recent)
            digest = None
            deleted = 0
            if surplus_sql:
                policy = {"policy": "recent", "keep": keep_recent, "by": "position"}
                policy_and_reason = PolicyAndReason(policy, "beyond-newest")
                with archived_first(
                    connection, self.archive, surplus_sql, policy_and_reason, at=now
                ) as digest:
                    deleted = delete_rows(connection, surplus_sql, load_bearing)
            drop_classification(connection)
        note_deleted(self.archive, digest, at=now)
        self.last_compaction = None
        if digest is not None and self.path is not None:
            self.last_compaction = ArchivedCompaction(digest, self.path)
        return deleted

    def _mark_superseded(self, memory_id: str, by_memory_id: str) -> MemoryItem:
        """Set the link of a superseded item in the transaction of the caller; return the item."""
        expect(memory_id, str, call="store.supersede", name="memory_id")
        expect(by_memory_id, str, call="store.supersede", name="by_memory_id")
        for required_id in (by_memory_id, memory_id):
            if not self.connection.execute(
                "SELECT 1 FROM memory_items WHERE memory_id = ?", (required_id,)
            ).fetchone():
                raise KeyError(required_id)
        self.connection.execute(
            "UPDATE memory_items SET superseded_by = ? WHERE memory_id = ?",
            (by_memory_id, memory_id),
        )
        return self._items("WHERE memory_id = ?", memory_id)[0]

    def _items(self, where: str, *values: str | int) -> tuple[MemoryItem, ...]:
        """Return the items that a condition selects."""
        with self._converting_errors():
            rows = self.connection.execute(f"SELECT {_NAMES} FROM memory_items {where}", values)
            return tuple(item_of(row) for row in rows)

    def _converting_errors(self) -> AbstractContextManager[None]:
        """Return a context manager that raises SQLite's errors as errors of memlab."""
        return database.convert_sqlite_errors(self.path or ":memory:")


def _prepare(path: Path) -> None:
    """Create the parent folders of `path`; raise StoreError for a file too small for a database.

    SQLite would overwrite such a file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder of {path} cannot be made ({error.strerror}); check the path and its "
            "permissions"
        ) from error
    status = database.stat_store(path)
    if status is None or not S_ISREG(status.st_mode):
        return
    if 0 < status.st_size < _SMALLEST_DATABASE:
        raise StoreError(database.NO_DATABASE.format(path=path))
