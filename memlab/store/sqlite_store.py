"""The store an agent reads and writes, and the one routine that compacts it."""

import json
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from heapq import nlargest
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, Protocol, Self

from memlab import items
from memlab.arguments import expect, whole_number
from memlab.clock import now_utc
from memlab.errors import BadRowError, MemlabError, StoreError, UnsafeDeletionError
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance, strings_of
from memlab.store import database
from memlab.store.archive.location import location_beside
from memlab.store.archive.opening import ArchivedCompaction, Why, archived_first, note_deleted
from memlab.store.selection import classify_rows, delete_rows, forget_verdicts, surplus_condition


def row_of(item: MemoryItem) -> tuple[Any, ...]:
    """Return an item's values in the order of :data:`memlab.store.database.COLUMNS`."""
    provenance = item.provenance
    event = provenance.source_event
    return (
        item.memory_id,
        item.kind.value,
        item.title,
        item.body,
        _json(item.tags),
        event.event_id if event else None,
        event.sequence if event else None,
        provenance.source_task_ref,
        provenance.authored_by,
        provenance.confidence,
        _as_given(provenance.created_at),
        _json(provenance.supersedes),
        _json(provenance.evidence_refs),
        item.superseded_by,
    )


def item_of(row: tuple[Any, ...]) -> MemoryItem:
    """Return the item that a row of these values is."""
    values = dict(zip(database.COLUMNS, row, strict=True))
    event = values["source_event_id"], values["source_sequence"]
    try:
        provenance = MemoryProvenance(
            source_event=None if None in event else items.EventRef(*event),
            authored_by=values["authored_by"],
            source_task_ref=values["source_task_ref"],
            confidence=values["confidence"],
            created_at=datetime.fromisoformat(values["created_at"]),
            supersedes=strings_of(values["supersedes_json"]),
            evidence_refs=strings_of(values["evidence_refs_json"]),
        )
        kind = MemoryKind(values["kind"])
        tags = strings_of(values["tags_json"])
        own = values["memory_id"], kind, values["title"], values["body"]
        return MemoryItem(*own, provenance, tags, values["superseded_by"])
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRowError(
            f"memory {values['memory_id']!r} cannot be read: {error}; mend its row",
            memory_id=str(values["memory_id"]),
        ) from error


def _as_given(moment: datetime) -> str:
    unsaid = moment.tzname() == items.ZONE_UNSAID.tzname(None)
    return (moment.replace(tzinfo=None) if unsaid else moment).isoformat()


def _json(values: tuple[str, ...]) -> str:
    return json.dumps(values, separators=(",", ":"))


_NAMES: Final = ", ".join(database.COLUMNS)
_UPSERT: Final = (
    f"INSERT INTO memory_items ({_NAMES}) VALUES ({', '.join('?' * len(database.COLUMNS))}) "
    "ON CONFLICT (memory_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in database.COLUMNS[1:])
)
_SMALLEST_DATABASE: Final = 512
"""Bytes: one page of the smallest size."""


class ReadLog(Protocol):
    """Where a store writes down what was read, such as a :class:`memlab.AccessLog`."""

    def add(self, memory_id: str, /) -> None:
        """Write down that a memory was read now."""


class SqliteMemoryStore:
    """An agent's memory in one SQLite file.

    Parameters
    ----------
    path : str or Path
        The file, made with its parent folders when missing, or ``":memory:"``.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.
    access_log : AccessLog, optional
        Where `get` writes down every item that it returns: what ``memlab size --log`` sizes a cap
        by. A log that cannot be written never breaks the read; it warns.
    archive : bool
        Whether `compact_episodic` archives what it deletes, beside the file: ``memlab restore``
        puts it back; not of a store in memory. Without, its deletions are final.

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
                f"access_log must be an AccessLog, such as memlab.AccessLog('reads.log'), not "
                f"{access_log!r}"
            )
        self.access_log: Final = access_log
        """Where reads are written down; None for nowhere."""
        expect(path, str, PathLike, call=type(self).__name__, name="path")
        expect(busy_timeout, float, int, call=type(self).__name__, name="busy_timeout")
        expect(archive, bool, call=type(self).__name__, name="archive")
        named = database.path_named(path)
        self.path: Final = None if str(named) == ":memory:" else named
        """The store's file; None for a store in memory."""
        self.archive: Final = location_beside(self.path) if archive and self.path else None
        """Where deleted rows are archived; None for nowhere."""
        self.last_compaction: ArchivedCompaction | None = None
        """The last deletion by `compact_episodic` that was archived; None where there is none."""
        if archive and self.path is None:
            raise UnsafeDeletionError(
                "a store in memory has no file to keep an archive beside: name a file, as "
                "in SqliteMemoryStore(path, archive=True)"
            )
        if self.path is not None:
            _prepare(self.path)
            database.keep_damaged_log(Path(self.path))
        self.connection: Final = database.connect(named, busy_timeout=busy_timeout)
        """For code that keeps tables of its own in the same file."""
        try:
            with database.sqlite_errors_in_words(path):
                exists = self.connection.execute(
                    "SELECT 1 FROM sqlite_schema WHERE name = 'memory_items'"
                ).fetchone()
                if exists:
                    database.check_table(self.connection, path)
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute(database.ROOMY_CACHE)
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
        """Write `item` and return it; one with its id is replaced and keeps its place in order."""
        expect(item, MemoryItem, call="store.put", name="item")
        with self._errors_in_words():
            self.connection.execute(_UPSERT, row_of(item))
        return item

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id, superseded or not; None when there is none.

        BadRowError, here and in the other methods, when a row cannot be read as an item.
        """
        expect(memory_id, str, call="store.get", name="memory_id")
        item = next(iter(self._items("WHERE memory_id = ?", memory_id)), None)
        if item is not None and self.access_log is not None:
            try:
                self.access_log.add(item.memory_id)
            except (MemlabError, OSError) as error:
                warnings.warn(f"a read was not logged: {error}", RuntimeWarning, stacklevel=2)
        return item

    def search(self, words: str, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return items in which words occur, best first, whether they are loaded or not.

        A plain scan. The more of the words an item has the better, whatever the case of their
        letters; then the more of them stand in its title or tags; then the newer. A search is no
        read: what of it is then got is, and the log says so.

        Parameters
        ----------
        words : str
            What to look for, with spaces between.
        limit : int
            How many items to return at most.
        """
        expect(words, str, call="store.search", name="words")
        limit = whole_number("limit", limit, least=1)
        wanted = {*words.casefold().split()}

        def ranked() -> Iterator[tuple[int, int, int]]:
            query = "SELECT rowid, title, tags_json, body FROM memory_items"
            for rowid, title, tags, body in self.connection.execute(query):
                head = f"{title}\n{items.tags_as_text(tags)}".casefold()
                in_head = {word for word in wanted if word in head}
                found = in_head | {word for word in wanted if word in str(body).casefold()}
                if found:
                    yield len(found), len(in_head), rowid

        with self._errors_in_words():
            best = nlargest(limit, ranked())
        return tuple(item for *_, rowid in best for item in self._items("WHERE rowid = ?", rowid))

    def list_active(self, *, kind: MemoryKind | None = None) -> tuple[MemoryItem, ...]:
        """Return the items that no other has replaced, in rowid order."""
        if kind is None:
            return self._items("WHERE superseded_by IS NULL ORDER BY rowid")
        expect(kind, str, call="store.list_active", name="kind")
        return self._items("WHERE superseded_by IS NULL AND kind = ? ORDER BY rowid", kind)

    def list_rejected_paths(self) -> tuple[MemoryItem, ...]:
        """Return the active items tagged ``rejected-path``, as :meth:`list_active` does."""
        return tuple(item for item in self.list_active() if items.REJECTED_PATH_TAG in item.tags)

    def list_research_notes(self) -> tuple[MemoryItem, ...]:
        """Return the active items tagged ``research``, the newest first by rowid."""
        return tuple(item for item in self.list_active() if items.RESEARCH_TAG in item.tags)[::-1]

    def supersede(self, memory_id: str, *, by_memory_id: str) -> MemoryItem:
        """Mark `memory_id` as replaced by `by_memory_id`, and return it as it is now.

        By itself it is retired. KeyError names the id that is not in the store, the replacement's
        first; nothing is changed then.
        """
        with self._errors_in_words(), database.transaction(self.connection):
            return self._mark_superseded(memory_id, by_memory_id)

    def compact_episodic(self, keep_recent: int) -> int:
        """Delete for good, unless the store archives, all but the newest active prunable items.

        The `keep_recent` with the highest rowids stay. Load-bearing and superseded rows are not
        touched. What a :class:`memlab.lifecycle.LifecycleStore` noted of the rows goes with them.
        The deletion is one transaction: either all of it is there afterwards, or none. A store made
        with ``archive=True`` copies the rows into the archive beside its file first, and syncs
        that; any other archives nothing. Deleted bytes are overwritten or left in free pages as the
        SQLite build's ``secure_delete`` says. Whatever is raised, nothing is deleted.

        Parameters
        ----------
        keep_recent : int
            How many prunable items may stay; 0 or more.

        Returns
        -------
        int
            How many rows were deleted. 0 when there are no more than `keep_recent`; then nothing is
            written. What a store made with ``archive=True`` deleted stands in ``last_compaction``,
            whose ``undo`` is the command that takes it back.

        Raises
        ------
        BadRowError
            When an active row cannot be classified.
        ArchiveError
            When the rows cannot be archived.
        CompactionError
            When a trigger would have cost a load-bearing row, or changed any that stays.
        UnsafeDeletionError
            When a trigger would take rows of another table with it that nothing brings back, or a
            foreign key ties rows of another table to what would go.
        """
        keep_recent = whole_number("keep_recent", keep_recent)
        now = now_utc()
        opened = self.connection
        with self._errors_in_words(), database.transaction(opened):
            load_bearing = classify_rows(opened)
            surplus = surplus_condition(opened, keep_recent)
            digest = None
            deleted = 0
            if surplus:
                policy = {"policy": "recent", "keep": keep_recent, "by": "position"}
                why = Why(policy, "beyond-newest")
                with archived_first(opened, self.archive, surplus, why, at=now) as digest:
                    deleted = delete_rows(opened, surplus, load_bearing)
            forget_verdicts(opened)
        note_deleted(self.archive, digest, at=now)
        self.last_compaction = None
        if digest is not None and self.path is not None:
            self.last_compaction = ArchivedCompaction(digest, self.path)
        return deleted

    def _mark_superseded(self, memory_id: str, by_memory_id: str) -> MemoryItem:
        expect(memory_id, str, call="store.supersede", name="memory_id")
        expect(by_memory_id, str, call="store.supersede", name="by_memory_id")
        for needed in (by_memory_id, memory_id):
            if not self.connection.execute(
                "SELECT 1 FROM memory_items WHERE memory_id = ?", (needed,)
            ).fetchone():
                raise KeyError(needed)
        self.connection.execute(
            "UPDATE memory_items SET superseded_by = ? WHERE memory_id = ?",
            (by_memory_id, memory_id),
        )
        return self._items("WHERE memory_id = ?", memory_id)[0]

    def _items(self, where: str, *values: str | int) -> tuple[MemoryItem, ...]:
        with self._errors_in_words():
            found = self.connection.execute(f"SELECT {_NAMES} FROM memory_items {where}", values)
            return tuple(item_of(row) for row in found)

    def _errors_in_words(self) -> AbstractContextManager[None]:
        return database.sqlite_errors_in_words(self.path or ":memory:")


def _prepare(path: Path) -> None:
    """Make the folders of `path`; refuse a file of a few bytes: SQLite would write over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder of {path} cannot be made ({error.strerror}); check the path and its "
            "permissions"
        ) from error
    found = database.stat_store(path)
    if found and S_ISREG(found.st_mode) and 0 < found.st_size < _SMALLEST_DATABASE:
        raise StoreError(database.NO_DATABASE.format(path=path))
