"""The lifecycle store, which enforces caps, expiry and near-duplicate rules at each write."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.arguments import expect, texts, whole_number
from memlab.clock import Age, aware, moment_and_zone, now_utc
from memlab.columns import AGENT_SCOPE
from memlab.errors import ArchiveError, CompactionError, UnsafeDeletionError
from memlab.items import MemoryItem, MemoryKind, is_load_bearing_memory
from memlab.lifecycle import signals as signal_tables
from memlab.lifecycle.boot import estimated_tokens, rowids_to_load
from memlab.lifecycle.signals import LifecycleStats, Trust, as_text
from memlab.store import ReadLog, SqliteMemoryStore
from memlab.store.archive.runtime_deletion import PolicyAndReason, archived_first, note_deleted
from memlab.store.database import transaction
from memlab.store.records import fill_positions
from memlab.store.signals import HAS_SIGNALS

if TYPE_CHECKING:
    from memlab.policies import ValueCap
    from memlab.policies.duplicates import NearDuplicate
    from memlab.policies.text_index import IndexedText

_SELECT_COMPARED: Final = (
    "SELECT memory_id, title, body, created_at, rowid FROM memory_items "
    "WHERE superseded_by IS NULL AND NOT load_bearing(kind, tags_json)"
)
"""Selects the rows that a new item is compared with: active ones that are not load-bearing."""


def _is_compared(item: MemoryItem) -> bool:
    """Return whether near-duplicates of an item are searched.

    They are searched if the item is active and not load-bearing.
    """
    return item.is_active and not is_load_bearing_memory(item)


def _creation_time(created: object) -> datetime:
    """Return a creation time; a missing time becomes the earliest, and a missing zone UTC."""
    with suppress(ValueError):
        moment, _ = moment_and_zone(str(created))
        return moment
    return datetime.min.replace(tzinfo=UTC)


DEFAULT_SCOPE_FIELDS: Final = (*AGENT_SCOPE, signal_tables.TAGS)
"""Fields by which rows are grouped into scopes, in a store without a capacity."""


class _Deletion(NamedTuple):
    """A deletion in the present transaction.

    Attributes
    ----------
    digest : str or None
        The digest by which the archive names the deletion; None without an archive.
    at : datetime
        The time of the deletion.
    """

    digest: str | None
    at: datetime


class _NoTexts:
    """Stands in for the text index in a store that does not search near-duplicates."""

    def forget(self) -> None:
        """Do nothing."""

    def add(self, memory_id: str, title: str, body: str, order: object) -> None:
        """Do nothing."""

    def discard(self, memory_id: str) -> None:
        """Do nothing."""

    def most_similar(self, memory_id: str, title: str, body: str) -> None:
        """Return None: there is no near-duplicate."""


class LifecycleStore(SqliteMemoryStore):
    """A store that enforces its caps, expiry and near-duplicate rules at each write.

    Signals are kept in tables of their own in the same file. ``memory_items`` is unchanged, and a
    plain ``SqliteMemoryStore`` reads and writes the file as before. Rows written by a plain store
    have no signals until they are touched: they belong to no scope, and are neither capped nor
    expired.

    Load-bearing rows are never evicted and never expire. They take up room in their scope. Evicted,
    expired and replaced rows are archived beside the file first, unless `archive` is off;
    ``memlab archive`` lists them and ``memlab restore`` puts them back.

    Rows are deleted one by one. A compaction would classify and count every row of the file, so
    that each put would take time in proportion to the file. The statement that deletes a row never
    deletes a load-bearing row, by the rule of :func:`memlab.is_load_bearing_memory`. The deletion
    is rolled back if it changes other rows.

    Parameters
    ----------
    path : str or Path
        The file, created if missing, or ``":memory:"``.
    capacity : ValueCap, optional
        Number of active rows that a scope may hold, and the eviction order; without it nothing is
        capped. The scope of a put is all rows with the fields and tags of the put, as in BetterDB.
    duplicates : NearDuplicate, optional
        Rule by which a written row replaces the one active row most similar to it, in any scope;
        without it no row is replaced.
    archive : bool
        Whether to archive deleted rows. Without an archive a deletion is final. A put that evicts
        then takes about a fifth of the time (``.ci/bench/bench_lifecycle.py``), because it does
        not sync an archive twice. A store in memory has no archive.
    clock : callable, optional
        Returns the time, with a time zone, for methods without a ``now``.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.
    access_log : AccessLog, optional
        A log to which `get` writes every item that it returns.

    Examples
    --------
    >>> from memlab.items import MemoryProvenance
    >>> from memlab.policies import ValueCap
    >>> with LifecycleStore(":memory:", capacity=ValueCap(1)) as store:
    ...     for number, importance in ((1, 0.9), (2, 0.1)):
    ...         provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
    ...         item = MemoryItem(f"m{number}", "episodic", "shipped", "", provenance)
    ...         _ = store.put(item, importance=importance, agent_id="a")
    ...     [item.memory_id for item in store.list_active()], dict(store.stats().evicted)
    (['m1'], {'lowest-value': 1})
    """

    def __init__(  # noqa: PLR0913 - the arguments of a plain store, and the rules
        self,
        path: str | Path,
        *,
        capacity: "ValueCap | None" = None,
        duplicates: "NearDuplicate | None" = None,
        archive: bool = True,
        clock: Callable[[], datetime] = now_utc,
        busy_timeout: float = 30.0,
        access_log: ReadLog | None = None,
    ) -> None:
        call = "LifecycleStore"
        if capacity is not None or duplicates is not None:  # these need numpy
            from memlab.policies import NearDuplicate, ValueCap

            expect(capacity, ValueCap, call=call, name="capacity", optional=True)
            expect(duplicates, NearDuplicate, call=call, name="duplicates", optional=True)
        expect(clock, Callable, call=call, name="clock")  # type: ignore[arg-type]
        expect(archive, bool, call=call, name="archive")
        has_archive = archive and str(path) != ":memory:"
        super().__init__(
            path, busy_timeout=busy_timeout, access_log=access_log, archive=has_archive
        )
        self.capacity: Final = capacity
        self.duplicates: Final = duplicates
        self._clock = clock
        self._known_version: tuple[int, int] | None = None
        """Data version of the file and number of changes after this object's last transaction.

        If they differ later, something else has written to the file, and the text index is rebuilt.
        """
        self._failures = 0
        """Number of times that this object could not evict or archive after a put."""
        self._last_failure: str | None = None
        """Message of the last of these failures."""
        self._texts: Any = _NoTexts()
        if duplicates is not None:
            from memlab.policies.text_index import TextIndex

            self._texts = TextIndex(duplicates, self._compared_texts)
        self._pending_deletions: list[_Deletion] = []
        """Deletions in the present transaction.

        They are recorded in the archive as done after the transaction is committed.
        """
        self._is_archive_checked = False
        """Whether the archive was found to be this store's, without interrupted deletions."""
        self.connection.create_function(
            "load_bearing", 2, signal_tables.load_bearing, deterministic=True
        )
        try:
            with self._converting_errors():
                stored_fields = signal_tables.scope_fields(self.connection)
                if capacity is None:
                    self._scope_fields = stored_fields or DEFAULT_SCOPE_FIELDS
                else:
                    self._scope_fields = capacity.scope
                if stored_fields != self._scope_fields:
                    with transaction(self.connection):
                        signal_tables.prepare(self.connection, self._scope_fields)
        except BaseException:
            self.close()
            raise

    def put(  # noqa: PLR0913 - the signals of a memory when it is written
        self,
        item: MemoryItem,
        *,
        ttl: Age | float | None = None,
        importance: float = 0.5,
        agent_id: str | None = None,
        thread_id: str | None = None,
        namespace: str | None = None,
        trust: Trust | str = Trust.TRUSTED,
        graduated: bool = False,
    ) -> MemoryItem:
        """Write an item and its signals, bring its scope within capacity, and return the item.

        One transaction writes the item and its signals, and replaces a near-duplicate. Another one
        enforces the capacity. If the enforcement fails, or if the near-duplicate cannot be
        archived, nothing more is deleted: the item stays, and :meth:`stats` counts the failure. If
        the store has an item with the same id, that item and its signals are replaced.

        Parameters
        ----------
        item : MemoryItem
            The memory.
        ttl : timedelta, str or float, optional
            Time to live, such as "30d", or in seconds; zero, negative or absent means no expiry.
        importance : float
            In [0, 1] if the store has a capacity, as BetterDB requires; else any finite number, as
            MemForge accepts.
        agent_id, thread_id, namespace : str, optional
            Fields of the row's scope. A row with none of its scope's fields and tags is never
            capped.
        trust : Trust or str
            Trust in the writer. An untrusted item that repeats a trusted or approved row is not
            stored, and is counted in :meth:`stats`; with ``NearDuplicate(keep_untrusted=True)``
            both stay.
        graduated : bool
            Whether a policy with an importance floor keeps the item in any case, as in MemForge.

        Returns
        -------
        MemoryItem
            The given item, even if it was not stored.
        """
        expect(item, MemoryItem, call="store.put", name="item")
        scope_values = {"agent_id": agent_id, "thread_id": thread_id, "namespace": namespace}
        for name, value in scope_values.items():
            expect(value, str, call="store.put", name=name, optional=True)
        expect(graduated, bool, call="store.put", name="graduated")
        expect(trust, str, call="store.put", name="trust")
        now = self._clock()
        signals: dict[str, Any] = {
            **scope_values,
            "importance": signal_tables.checked_importance(
                importance, bounded=self.capacity is not None
            ),
            "last_accessed_at": as_text(now),
            "expires_at": signal_tables.expiry_of(ttl, now),
            "trusted": Trust(trust).rank,
            "graduated": int(graduated),
            "scope": signal_tables.scope_key(self._scope_fields, scope_values, item.tags),
        }
        with self._writing():
            duplicate_id = self._near_duplicate_of(item)
            if duplicate_id is not None:
                if signals["trusted"] >= self._trust_in(duplicate_id):
                    self._delete_near_duplicate(duplicate_id, now)
                elif self.duplicates is not None and not self.duplicates.keep_untrusted:
                    # The search removed an earlier text with the id of this item from the index of
                    # texts. As the item is not stored, that text must be indexed again.
                    self._texts.forget()
                    signal_tables.count_not_stored(self.connection)
                    return item
            super().put(item)
            (position,) = self.connection.execute(
                "SELECT rowid FROM memory_items WHERE memory_id = ?", (item.memory_id,)
            ).fetchone()
            row = {"memory_id": item.memory_id, "access_count": 0, "position": position, **signals}
            values = ", ".join(f":{name}" for name in row)
            self.connection.execute(
                f"INSERT OR REPLACE INTO memory_signals ({', '.join(row)}) VALUES ({values})", row
            )
            if _is_compared(item):
                age_order = (item.provenance.created_at, position)
                self._texts.add(item.memory_id, item.title, item.body, age_order)
        if self.capacity is not None and signals["scope"] is not None:
            self._enforce_capacity(signals["scope"], self.capacity, now)
        return item

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id; None if there is none or it has expired."""
        expect(memory_id, str, call="store.get", name="memory_id")
        if self._expired_ids("AND signal.memory_id = ?", memory_id):
            return None
        return super().get(memory_id)  # this also logs the read

    def search(self, words: str, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return items that contain words, best first, without expired ones."""
        limit = whole_number("limit", limit, least=1)
        expired_ids = self._expired_ids()
        items = super().search(words, limit + len(expired_ids))
        not_expired = [item for item in items if item.memory_id not in expired_ids]
        return tuple(not_expired[:limit])

    def list_active(self, *, kind: MemoryKind | None = None) -> tuple[MemoryItem, ...]:
        """Return the items that are neither superseded nor expired."""
        items = super().list_active(kind=kind)
        expired_ids = self._expired_ids()
        return tuple(item for item in items if item.memory_id not in expired_ids)

    def boot_items(
        self,
        *,
        max_tokens: int,
        count_tokens: Callable[[str], int] = estimated_tokens,
        now: datetime | None = None,
    ) -> tuple[MemoryItem, ...]:
        """Return the items to load at start: the load-bearing ones, then the most active that fit.

        Nothing is written. The candidates are the active items that have not expired, and the items
        that a plan retired. Items that others superseded, or that the agent withdrew, are never
        loaded. Activation depends on the time of writing, the number of days of use and the last
        use (:class:`memlab.Activation`), and is divided by length. :meth:`touch` records a use;
        neither this method nor :meth:`list_active` does.

        Parameters
        ----------
        max_tokens : int
            Number of tokens that the start may take. All load-bearing items are returned, even if
            they alone take more; FloorExceedsBudgetWarning says so.
        count_tokens : callable, optional
            Counts the tokens of title and body together; the default is a fourth of the characters.
        now : datetime, optional
            The moment, with a time zone; now by default.

        Returns
        -------
        tuple of MemoryItem
            In rowid order, like :meth:`list_active`. So the beginning of a prompt changes as little
            as possible from one start to the next, and the provider's prompt cache can reuse it.

        Examples
        --------
        >>> from memlab.items import MemoryProvenance
        >>> with LifecycleStore(":memory:") as store:
        ...     for name in ("old", "used", "new"):
        ...         provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:{name}")
        ...         _ = store.put(MemoryItem(name, "episodic", "shipped it", "", provenance))
        ...     _ = store.touch(["used"])
        ...     [item.memory_id for item in store.boot_items(max_tokens=6)]
        ['used', 'new']
        """
        token_limit = whole_number("max_tokens", max_tokens)
        expect(count_tokens, Callable, call="store.boot_items", name="count_tokens")  # type: ignore[arg-type]
        moment = self._clock() if now is None else aware(now, call="store.boot_items")
        with self._converting_errors():
            rowids = rowids_to_load(
                self.connection,
                self.path,
                max_tokens=token_limit,
                count_tokens=count_tokens,
                now=moment,
            )
        items = list[MemoryItem]()
        for rowid in rowids:
            items += self._items("WHERE rowid = ?", rowid)
        return tuple(items)

    def supersede(self, memory_id: str, *, by_memory_id: str) -> MemoryItem:
        """Mark `memory_id` as superseded by `by_memory_id`, and return the changed item.

        A superseded item does not count in its scope.

        Raises
        ------
        KeyError
            If one of the ids is not in the store.
        """
        expect(memory_id, str, call="store.supersede", name="memory_id")
        with self._writing():
            self._texts.discard(memory_id)
            return self._mark_superseded(memory_id, by_memory_id)

    def touch(
        self, ids: Iterable[str], *, now: datetime | None = None, graduated: bool | None = None
    ) -> int:
        """Record a use of memories, and return the number of memories for which it was recorded.

        The time of the last use and the number of UTC days with a use are recorded; a second use on
        one day changes the time alone. The time of expiry is unchanged. A row that a plain store
        wrote has signals from its first use on; it still belongs to no scope.

        Call it with the memories that the agent used in its work: those it cited, opened or
        followed. Never call it with the memories that a start loaded: how often a memory was loaded
        predicts later needs worse than its age does.

        Parameters
        ----------
        ids : iterable of str
            Ids; deleted and expired ones are skipped.
        now : datetime, optional
            Time of use, with a time zone; now by default. It replaces the recorded last access,
            even a later one, which a clock that was ahead may have written. BetterDB does so too.
        graduated : bool, optional
            Whether a policy with an importance floor keeps the memories in any case from now on;
            unchanged by default.

        Returns
        -------
        int
            The number of memories for which a use was recorded.

        Examples
        --------
        A runtime that calls ``list_active`` at start and records the memories that its answer cited
        changes three lines: the store it opens, the items a start loads, and the items it used. ::

            store = memlab.LifecycleStore("memory.db", archive=True)
            at_start = store.boot_items(max_tokens=4000)  # in place of store.list_active()
            store.touch(cited_ids)  # when a task ends
        """
        expect(graduated, bool, call="store.touch", name="graduated", optional=True)
        at = as_text(self._clock() if now is None else now)
        distinct_ids = dict.fromkeys(texts(ids, call="store.touch", name="ids"))
        uses = [
            {"memory_id": memory_id, "at": at, "graduated": graduated} for memory_id in distinct_ids
        ]
        connection = self.connection
        with self._writing():
            updated = connection.executemany(signal_tables.UPDATE_USE, uses)
            inserted = connection.executemany(signal_tables.INSERT_FIRST_USE, uses)
            return updated.rowcount + inserted.rowcount

    def expire(self, now: datetime | None = None) -> int:
        """Delete expired rows, and signals without a row; return the number of expired rows.

        Raises
        ------
        ArchiveError
            If the rows cannot be archived. Nothing is deleted.
        """
        now = self._clock() if now is None else aware(now, call="LifecycleStore")
        with self._writing():
            count = self._delete_expired(now)
            self.connection.execute(
                "DELETE FROM memory_signals AS signal WHERE NOT EXISTS "
                f"(SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS})"
            )
        return count

    def stats(self) -> LifecycleStats:
        """Return the counters of evictions and the size of every scope. All signals are read."""
        with self._converting_errors():
            capacity = self.capacity.capacity if self.capacity else None
            return signal_tables.read_stats(
                self.connection, capacity, self._failures, self._last_failure
            )

    def _enforce_capacity(self, scope: str, capacity: "ValueCap", now: datetime) -> None:
        """Evict the rows of lowest value from a scope that is over its capacity.

        Expired rows are deleted first. A failure is counted and never fails the put.
        """
        connection = self.connection
        try:
            with self._writing():
                scopes_json = signal_tables.scopes_within(connection, scope)
                excess = signal_tables.count_active(connection, scopes_json) - capacity.capacity
                if excess > 0 and self._delete_expired(now):
                    excess = signal_tables.count_active(connection, scopes_json) - capacity.capacity
                if excess > 0:
                    candidates = signal_tables.eviction_order(
                        connection, scopes_json, capacity, now
                    )
                    self._archive_and_delete(candidates[:excess], "lowest-value", now)
        except Exception as error:  # noqa: BLE001 - the row is committed, so the put has succeeded
            self._count_failure(error)

    def _delete_expired(self, now: datetime) -> int:
        """Delete expired rows; return the number of deleted rows."""
        memory_ids = signal_tables.expired_ids(self.connection, as_text(now))
        self._archive_and_delete(memory_ids, "expired", now)
        return len(memory_ids)

    def _expired_ids(self, condition: str = "", *values: str) -> set[str]:
        """Return the ids of the rows that have expired by now.

        `condition` is SQL that begins with AND and restricts the rows; `values` are its parameters.
        """
        now = as_text(self._clock())
        with self._converting_errors():
            return set(signal_tables.expired_ids(self.connection, now, condition, *values))

    def _near_duplicate_of(self, item: MemoryItem) -> str | None:
        """Return the id of the row that an item repeats; None if there is none.

        The text of an earlier item with the same id is taken out of the index.
        """
        if not _is_compared(item):
            self._texts.discard(item.memory_id)
            return None
        duplicate_id: str | None = self._texts.most_similar(item.memory_id, item.title, item.body)
        return duplicate_id

    def _trust_in(self, memory_id: str) -> int:
        """Return the :attr:`Trust.rank` of a row's writer; a row without signals is trusted."""
        (rank,) = self.connection.execute(
            f"SELECT coalesce(max(signal.trusted), 1) {signal_tables.WITH_ITEMS} "
            "WHERE signal.memory_id = ?",
            (memory_id,),
        ).fetchone()
        return int(rank)

    def _delete_near_duplicate(self, memory_id: str, now: datetime) -> None:
        """Delete the row that a new item repeats; if the row cannot be deleted, both rows stay."""
        try:
            self._archive_and_delete([memory_id], "near-duplicate", now)
        except (ArchiveError, UnsafeDeletionError) as error:
            self._count_failure(error)
            self._texts.forget()

    def _compared_texts(self) -> "list[IndexedText]":
        """Return the texts of the rows that new items are compared with."""
        from memlab.policies.text_index import IndexedText

        rows = self.connection.execute(_SELECT_COMPARED)
        return [
            IndexedText(memory_id, title, body, (_creation_time(created_at), position))
            for memory_id, title, body, created_at, position in rows
        ]

    def _count_failure(self, error: Exception) -> None:
        """Count a failure to evict or archive, and keep its message for :meth:`stats`."""
        self._failures += 1
        self._last_failure = str(error) or type(error).__name__

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the block as one transaction, and keep the text index consistent with it."""
        try:
            with self._converting_errors(), transaction(self.connection):
                (version,) = self.connection.execute("PRAGMA data_version").fetchone()
                if self._known_version != (version, self.connection.total_changes):
                    self._texts.forget()
                yield
        except BaseException:
            self._known_version = None
            self._pending_deletions = []
            self._is_archive_checked = False
            raise
        # No other process could write while the version was read, so each later commit changes it.
        self._known_version = (version, self.connection.total_changes)
        self._record_deletions_in_archive()

    def _record_deletions_in_archive(self) -> None:
        """Record in the archive that the deletions of a committed transaction are done.

        If that fails, the archive has an unfinished deletion, and is checked before the next one.
        """
        deletions = self._pending_deletions
        self._pending_deletions = []
        if not deletions:
            return
        self._is_archive_checked = False
        try:
            for deletion in deletions:
                note_deleted(self.archive, deletion.digest, at=deletion.at)
            self._is_archive_checked = True
        except ArchiveError as error:
            self._count_failure(error)

    def _archive_and_delete(self, memory_ids: Sequence[str], reason: str, now: datetime) -> None:
        """Archive rows that are not load-bearing, delete them, and count them by reason."""
        if not memory_ids:
            return
        connection = self.connection
        positions = []
        for memory_id in memory_ids:
            (position,) = connection.execute(
                "SELECT rowid FROM memory_items WHERE memory_id = ?", (memory_id,)
            ).fetchone()
            positions.append(position)
        fill_positions(connection, "deleted_positions", positions)
        is_deleted = "rowid IN (SELECT position FROM temp.deleted_positions)"
        policy_and_reason = PolicyAndReason({"policy": "LifecycleStore", "reason": reason}, reason)
        with archived_first(
            connection,
            self.archive,
            is_deleted,
            policy_and_reason,
            at=now,
            check=not self._is_archive_checked,
        ) as digest:
            for memory_id in memory_ids:
                self._delete(memory_id)
        self._pending_deletions.append(_Deletion(digest, now))
        self._is_archive_checked = True
        connection.execute(
            "INSERT INTO memory_lifecycle VALUES ('evicted:' || ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (reason, len(memory_ids)),
        )

    def _delete(self, memory_id: str) -> None:
        """Delete a row that is not load-bearing, and its signals.

        Raise CompactionError if another number of rows is changed.
        """
        self._texts.discard(memory_id)
        self.connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))
        changes_before = self.connection.total_changes
        deleted = self.connection.execute(
            "DELETE FROM memory_items WHERE memory_id = ? AND NOT load_bearing(kind, tags_json)",
            (memory_id,),
        ).rowcount
        changed = self.connection.total_changes - changes_before
        if deleted != 1 or changed != 1:
            raise CompactionError(
                f"deleting {memory_id!r} deleted {deleted} rows and changed {changed}; "
                "it was rolled back: look for a trigger on memory_items in the store"
            )
