"""The lifecycle store, which enforces caps, expiry and near-duplicate rules as it is written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memlab.arguments import expect, texts, whole_number
from memlab.clock import Age, aware, moment_and_zone, now_utc
from memlab.columns import AGENT_SCOPE
from memlab.errors import ArchiveError, CompactionError, UnsafeDeletionError
from memlab.items import MemoryItem, MemoryKind, is_load_bearing_memory
from memlab.lifecycle import signals as signal_tables
from memlab.lifecycle.boot import chosen_for_start, estimated_tokens
from memlab.lifecycle.signals import LifecycleStats, Trust, as_text
from memlab.store import ReadLog, SqliteMemoryStore
from memlab.store.archive.runtime_deletion import PolicyAndReason, archived_first, note_deleted
from memlab.store.database import transaction
from memlab.store.records import fill_positions
from memlab.store.signals import HAS_SIGNALS

if TYPE_CHECKING:
    from memlab.policies import ValueCap
    from memlab.policies.duplicates import NearDuplicate
    from memlab.policies.text_index import Text

_SELECT_COMPARED: Final = (
    "SELECT memory_id, title, body, created_at, rowid FROM memory_items "
    "WHERE superseded_by IS NULL AND NOT load_bearing(kind, tags_json)"
)
"""Selects the rows that are compared with new items, with their texts and their order."""


def _is_compared(item: MemoryItem) -> bool:
    """Return whether an item is compared with others: it is active and not load-bearing."""
    return item.is_active and not is_load_bearing_memory(item)


def _creation_time(created: object) -> datetime:
    """Return a creation time; a missing one is the earliest, one without a zone is UTC."""
    with suppress(ValueError):
        return moment_and_zone(str(created))[0]
    return datetime.min.replace(tzinfo=UTC)


DEFAULT_SCOPE_FIELDS: Final = (*AGENT_SCOPE, signal_tables.TAGS)
"""Fields by which rows are grouped into scopes if no capacity names others."""


class _NoTexts:
    """A text index that is used if near-duplicates are not searched."""

    def forget(self) -> None:
        """Do nothing."""

    def add(self, row: object) -> None:
        """Do nothing."""

    def discard(self, memory_id: str) -> None:
        """Do nothing."""

    def most_similar(self, memory_id: str, title: str, body: str) -> None:
        """Return None: no text is repeated."""


class LifecycleStore(SqliteMemoryStore):
    """A store that keeps itself within bounds as it is written.

    Signals are kept in tables of their own in the same file. ``memory_items`` is unchanged, and a
    plain ``SqliteMemoryStore`` reads and writes the file as before. Rows written by a plain store
    have no signals until they are touched: they belong to no scope, and are neither capped nor
    expired.

    Load-bearing rows are never evicted and never expire. They take up room in their scope. Evicted,
    expired and replaced rows are archived beside the file first, unless `archive` is off;
    ``memlab archive`` lists them and ``memlab restore`` puts them back.

    Rows are deleted one by one. A compaction classifies and counts every row of the file, so with
    it each put would take time in proportion to the file. The statement that deletes a row
    contains the same predicate :func:`memlab.is_load_bearing_memory`. The deletion is rolled back
    if it changes other rows.

    Parameters
    ----------
    path : str or Path
        The file, created if missing, or ``":memory:"``.
    capacity : ValueCap, optional
        Number of active rows that a scope may hold, and the eviction order; without it nothing is
        capped. A put is counted against all rows that match its fields and tags, as in BetterDB.
    duplicates : NearDuplicate, optional
        Rule by which a written row replaces the one active row most similar to it, in any scope;
        without it none does.
    archive : bool
        Whether to archive deleted rows. Without it a deletion is final, and a put that evicts takes
        about a fifth of the time (``.ci/bench/bench_lifecycle.py``): an archive is synced twice. A
        store in memory has no archive.
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

    def __init__(  # noqa: PLR0913 - what a plain store takes, and the rules
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
        archives = archive and str(path) != ":memory:"
        super().__init__(path, busy_timeout=busy_timeout, access_log=access_log, archive=archives)
        self.capacity: Final = capacity
        self.duplicates: Final = duplicates
        self._clock = clock
        self._known_version: tuple[int, int] | None = None
        """Version of the database and number of changes after this object's last transaction.

        If they differ later, another connection has written, and the text index is rebuilt.
        """
        self._failures = 0
        self._last_failure: str | None = None
        self._texts: Any = _NoTexts()
        if duplicates is not None:
            from memlab.policies.text_index import TextIndex

            self._texts = TextIndex(duplicates, self._compared_texts)
        self._pending_deletions: list[tuple[str | None, datetime]] = []
        """Digest and time of each deletion in the present transaction.

        They are noted in the archive as done after the transaction is committed.
        """
        self._is_archive_checked = False
        """Whether this object has checked the archive and resolved interrupted deletions in it."""
        self.connection.create_function(
            "load_bearing", 2, signal_tables.load_bearing, deterministic=True
        )
        try:
            with self._errors_in_words():
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

    def put(  # noqa: PLR0913 - what is known of a memory when it is written
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

        One transaction writes the item and its signals, and replaces a near-duplicate. Capacity is
        enforced after it. If that fails, or if the near-duplicate cannot be archived, nothing more
        is deleted: the item stays, and :meth:`stats` counts the failure. If the id exists already,
        its item and its signals are replaced.

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
            Whether a policy with an importance floor keeps the item, as in MemForge.

        Returns
        -------
        MemoryItem
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
            if self._resolve_near_duplicate(item, signals["trusted"], now):
                self._texts.forget()  # the index has no text of this id now, the store may have one
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
                order = item.provenance.created_at, position  # of two near-duplicates
                self._texts.add((item.memory_id, item.title, item.body, order))
        if self.capacity is not None and signals["scope"] is not None:
            self._enforce(signals["scope"], self.capacity, now)
        return item

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id; None if there is none or it has expired."""
        expect(memory_id, str, call="store.get", name="memory_id")
        is_expired = bool(self._expired("AND signal.memory_id = ?", memory_id))
        return None if is_expired else super().get(memory_id)  # `super().get` logs the read

    def search(self, words: str, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return items that contain words, best first, without expired ones."""
        limit = whole_number("limit", limit, least=1)
        expired = self._expired()
        items = super().search(words, limit + len(expired))
        return tuple(item for item in items if item.memory_id not in expired)[:limit]

    def list_active(self, *, kind: MemoryKind | None = None) -> tuple[MemoryItem, ...]:
        """Return the items that are neither superseded nor expired."""
        items = super().list_active(kind=kind)
        expired = self._expired()
        return tuple(item for item in items if item.memory_id not in expired)

    def boot_items(
        self,
        *,
        max_tokens: int,
        count_tokens: Callable[[str], int] = estimated_tokens,
        now: datetime | None = None,
    ) -> tuple[MemoryItem, ...]:
        """Return the items to load at start: the load-bearing ones, then the most active that fit.

        Nothing is written. Active items that have not expired compete, and so do items that a plan
        retired; items that others superseded, or that the agent withdrew, are never loaded.
        Activation depends on the time of writing, the number of days of use and the last use
        (:class:`memlab.Activation`), and is divided by length. :meth:`touch` records a use; neither
        this method nor :meth:`list_active` does.

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
            In rowid order, like :meth:`list_active`. The beginning of a prompt then stays the same
            from one start to the next as far as possible, and is cached.

        Examples
        --------
        >>> from memlab.items import MemoryProvenance
        >>> with LifecycleStore(":memory:") as store:
        ...     for name in ("old", "used", "new"):
        ...         whence = MemoryProvenance(None, "agent", source_task_ref=f"issue:{name}")
        ...         _ = store.put(MemoryItem(name, "episodic", "shipped it", "", whence))
        ...     _ = store.touch(["used"])
        ...     [item.memory_id for item in store.boot_items(max_tokens=6)]
        ['used', 'new']
        """
        token_limit = whole_number("max_tokens", max_tokens)
        expect(count_tokens, Callable, call="store.boot_items", name="count_tokens")  # type: ignore[arg-type]
        moment = self._clock() if now is None else aware(now, call="store.boot_items")
        with self._errors_in_words():
            chosen = chosen_for_start(
                self.connection,
                self.path,
                max_tokens=token_limit,
                count_tokens=count_tokens,
                now=moment,
            )
        items = list[MemoryItem]()
        for rowid in chosen:
            items += self._items("WHERE rowid = ?", rowid)
        return tuple(items)

    def supersede(self, memory_id: str, *, by_memory_id: str) -> MemoryItem:
        """Mark `memory_id` as superseded by `by_memory_id`, and return it as it is now.

        It no longer counts in its scope. KeyError names an id that does not exist.
        """
        expect(memory_id, str, call="store.supersede", name="memory_id")
        with self._writing():
            self._texts.discard(memory_id)
            return self._mark_superseded(memory_id, by_memory_id)

    def touch(
        self, ids: Iterable[str], *, now: datetime | None = None, graduated: bool | None = None
    ) -> int:
        """Record that memories were used (the time, and the UTC days of use); return how many were.

        Call it with the memories that the agent used in its work: those it cited, opened or
        followed. Never call it with the memories that a start loaded: the number of starts predicts
        later needs worse than age does. A second use on one day changes the time and not the count.
        Expiry is unchanged. A row that a plain store wrote is counted from its first use on; it
        still belongs to no scope.

        Parameters
        ----------
        ids : iterable of str
            Ids; deleted and expired ones are skipped.
        now : datetime, optional
            Time of use, with a time zone; now by default. It becomes the last access even if a
            clock that was ahead recorded a later one, as in BetterDB.
        graduated : bool, optional
            Whether a policy with an importance floor keeps them from now on; unchanged by default.

        Returns
        -------
        int

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
        distinct = dict.fromkeys(texts(ids, call="store.touch", name="ids"))
        rows = [
            {"memory_id": memory_id, "at": at, "graduated": graduated} for memory_id in distinct
        ]
        with self._writing():
            with_signals = self.connection.executemany(signal_tables.REINFORCE, rows).rowcount
            without_signals = self.connection.executemany(signal_tables.FIRST_USE, rows).rowcount
            return with_signals + without_signals

    def expire(self, now: datetime | None = None) -> int:
        """Delete expired rows, and signals whose row is gone; return the number of rows.

        ArchiveError if they cannot be archived; nothing is deleted then.
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
        """Return the counters of evictions and the size of every scope. Reads all signals."""
        with self._errors_in_words():
            capacity = self.capacity.capacity if self.capacity else None
            return signal_tables.read_stats(
                self.connection, capacity, self._failures, self._last_failure
            )

    def _enforce(self, scope: str, capacity: "ValueCap", now: datetime) -> None:
        """Evict the lowest rows of a scope above capacity; a failure never fails the put."""
        try:
            with self._writing():
                keys = signal_tables.scope_keys_within(self.connection, scope)
                excess = signal_tables.size_of_scopes(self.connection, keys) - capacity.capacity
                if excess > 0 and self._delete_expired(now):
                    excess = signal_tables.size_of_scopes(self.connection, keys) - capacity.capacity
                if excess > 0:
                    lowest = signal_tables.lowest_in_scopes(self.connection, keys, capacity, now)
                    self._remove(lowest[:excess], "lowest-value", now)
        except Exception as error:  # noqa: BLE001 - the row is durable, whatever comes after it
            self._failed(error)

    def _delete_expired(self, now: datetime) -> int:
        """Delete expired rows, and return the number of them."""
        expired = signal_tables.expired_ids(self.connection, as_text(now))
        self._remove(expired, "expired", now)
        return len(expired)

    def _expired(self, condition: str = "", *values: str) -> set[str]:
        """Return the ids of expired rows.

        `condition` is SQL that further restricts the rows, with `values` for its parameters.
        """
        with self._errors_in_words():
            return {
                *signal_tables.expired_ids(
                    self.connection, as_text(self._clock()), condition, *values
                )
            }

    def _resolve_near_duplicate(self, item: MemoryItem, trusted: int, now: datetime) -> bool:
        """Delete the near-duplicate of an item if it is no more trusted than the item.

        Return True if the item must not be stored, because the near-duplicate is more trusted. If
        the policy keeps untrusted items in that case, both stay, and the result is False.
        """
        if not _is_compared(item):
            self._texts.discard(item.memory_id)
            return False
        duplicate_id = self._texts.most_similar(item.memory_id, item.title, item.body)
        if duplicate_id is None:
            return False
        # A row without signals counts as trusted.
        (trust_of_duplicate,) = self.connection.execute(
            f"SELECT coalesce(max(signal.trusted), 1) {signal_tables.WITH_ITEMS} "
            "WHERE signal.memory_id = ?",
            (duplicate_id,),
        ).fetchone()
        if trusted < trust_of_duplicate:
            keeps_both = self.duplicates is None or self.duplicates.keep_untrusted
            return not keeps_both
        try:
            self._remove([duplicate_id], "near-duplicate", now)
        except (ArchiveError, UnsafeDeletionError) as error:  # nothing was deleted: both stay
            self._failed(error)
            self._texts.forget()
        return False

    def _compared_texts(self) -> "list[Text]":
        """Return the texts of the rows that new items are compared with."""
        rows = self.connection.execute(_SELECT_COMPARED)
        return [
            (memory_id, title, body, (_creation_time(created_at), position))
            for memory_id, title, body, created_at, position in rows
        ]

    def _failed(self, error: Exception) -> None:
        """Count a failure of enforcement."""
        self._failures += 1
        self._last_failure = str(error) or type(error).__name__

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the block as one transaction, and keep the text index consistent with it."""
        try:
            with self._errors_in_words(), transaction(self.connection):
                (version,) = self.connection.execute("PRAGMA data_version").fetchone()
                if self._known_version != (version, self.connection.total_changes):
                    self._texts.forget()
                yield
        except BaseException:
            self._known_version = None
            self._pending_deletions = []
            self._is_archive_checked = False
            raise
        # The version was read while nobody else could write, so a later commit changes it.
        self._known_version = version, self.connection.total_changes
        pending = self._pending_deletions
        self._pending_deletions = []
        try:
            for digest, at in pending:
                self._is_archive_checked = False  # stays so if the archive cannot note the deletion
                note_deleted(self.archive, digest, at=at)
                self._is_archive_checked = True
        except ArchiveError as error:
            self._failed(error)

    def _remove(self, memory_ids: Sequence[str], reason: str, now: datetime) -> None:
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
        chosen = "rowid IN (SELECT position FROM temp.deleted_positions)"
        policy_and_reason = PolicyAndReason({"policy": "LifecycleStore", "reason": reason}, reason)
        with archived_first(
            connection,
            self.archive,
            chosen,
            policy_and_reason,
            at=now,
            check=not self._is_archive_checked,
        ) as digest:
            for memory_id in memory_ids:
                self._delete(memory_id)
        self._pending_deletions.append((digest, now))
        self._is_archive_checked = True
        connection.execute(
            "INSERT INTO memory_lifecycle VALUES ('evicted:' || ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (reason, len(memory_ids)),
        )

    def _delete(self, memory_id: str) -> None:
        """Delete a row that is not load-bearing, and its signals."""
        self._texts.discard(memory_id)
        self.connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))
        before = self.connection.total_changes
        deleted = self.connection.execute(
            "DELETE FROM memory_items WHERE memory_id = ? AND NOT load_bearing(kind, tags_json)",
            (memory_id,),
        ).rowcount
        changed = self.connection.total_changes - before
        if deleted != 1 or changed != 1:
            raise CompactionError(
                f"deleting {memory_id!r} deleted {deleted} rows and changed {changed}; "
                "it was rolled back: look for a trigger on memory_items in the store"
            )
