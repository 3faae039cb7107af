"""The lifecycle store, which a row leaves as repeated, expired, or of the lowest value."""

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
from memlab.lifecycle import signals as side
from memlab.lifecycle.boot import chosen_for_start, estimated_tokens
from memlab.lifecycle.signals import LifecycleStats, Trust, as_text
from memlab.store import ReadLog, SqliteMemoryStore
from memlab.store.archive.opening import Why, archived_first, note_deleted
from memlab.store.database import transaction
from memlab.store.records import fill_positions
from memlab.store.signals import HAS_SIGNALS

if TYPE_CHECKING:
    from memlab.policies import ValueCap
    from memlab.policies.duplicates import NearDuplicate, Text

_REPEATABLE: Final = (
    "SELECT memory_id, title, body, created_at, rowid FROM memory_items "
    "WHERE superseded_by IS NULL AND NOT load_bearing(kind, tags_json)"
)


def _may_repeat(item: MemoryItem) -> bool:
    return item.is_active and not is_load_bearing_memory(item)


def _made_at(created: object) -> datetime:
    """Return when a row says it was made; no time is the oldest, one without a zone is UTC."""
    with suppress(ValueError):
        return moment_and_zone(str(created))[0]
    return datetime.min.replace(tzinfo=UTC)


SCOPE: Final = (*AGENT_SCOPE, side.TAGS)
"""What scopes are made of where no capacity says it."""


class _NoTexts:
    """Stands for the texts that may be repeated where near-duplicates are not looked for."""

    def forget(self) -> None:
        """There is nothing to forget."""

    def add(self, row: object) -> None:
        """There is nothing to compare with."""

    def discard(self, memory_id: str) -> None:
        """There is nothing to leave out."""

    def most_similar(self, memory_id: str, title: str, body: str) -> None:
        """Return None: nothing is repeated."""


class LifecycleStore(SqliteMemoryStore):
    """A store that keeps itself in bounds as it is written.

    Signals are kept in tables of their own in the same file; ``memory_items`` stays as it is, and a
    plain ``SqliteMemoryStore`` reads and writes the file as before. Rows written by a plain store
    have no signals until they are touched: they belong to no scope and are neither capped nor
    expired.

    Load-bearing rows are never evicted and never expire. They take up room in their scope. What is
    evicted, expires or is replaced is archived beside the file first, unless that is declined;
    ``memlab archive`` lists it and ``memlab restore`` puts it back.

    Rows are deleted one by one, not by the routine that compacts a store: that one judges and
    counts every row of the file, and a put would be as slow as the file is long. The statement that
    deletes a row asks the same predicate, and is rolled back when it changes others.

    Parameters
    ----------
    path : str or Path
        The file, made when missing, or ``":memory:"``.
    capacity : ValueCap, optional
        How many active rows a scope may hold and which goes first; without it nothing is capped. A
        put is counted against all rows that match what it was given, as BetterDB does.
    duplicates : NearDuplicate, optional
        When a row that is written replaces the one active row most similar to it, whatever its
        scope; without it none does.
    archive : bool
        Whether to archive what is deleted. Without it a deletion is final, and a put that evicts
        takes about a fifth of the time (``.ci/bench/bench_lifecycle.py``): an archive is synced
        twice. A store in memory has no archive.
    clock : callable, optional
        Tells the time, with a time zone, wherever no ``now`` is given.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.
    access_log : AccessLog, optional
        Where `get` writes down every item that it returns.

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
        if capacity is not None or duplicates is not None:  # these need more than Python's own
            from memlab.policies import NearDuplicate, ValueCap

            expect(capacity, ValueCap, call=call, name="capacity", optional=True)
            expect(duplicates, NearDuplicate, call=call, name="duplicates", optional=True)
        expect(clock, Callable, call=call, name="clock")  # type: ignore[arg-type]
        expect(archive, bool, call=call, name="archive")
        keeps = archive and str(path) != ":memory:"
        super().__init__(path, busy_timeout=busy_timeout, access_log=access_log, archive=keeps)
        self.capacity: Final = capacity
        self.duplicates: Final = duplicates
        self._clock = clock
        self._seen: tuple[int, int] | None = None
        self._failures = 0
        self._last_failure: str | None = None
        self._texts: Any = _NoTexts()
        if duplicates is not None:
            from memlab.policies.duplicates import TextIndex

            self._texts = TextIndex(duplicates, self._repeatable)
        self._going: list[tuple[str | None, datetime]] = []
        self._is_settled = False
        self.connection.create_function("load_bearing", 2, side.load_bearing, deterministic=True)
        try:
            with self._errors_in_words():
                known = side.scope_fields(self.connection)
                self._fields = (known or SCOPE) if capacity is None else capacity.scope
                if known != self._fields:
                    with transaction(self.connection):
                        side.prepare(self.connection, self._fields)
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
        """Write `item` and what is known of it, bring its scope within capacity, and return it.

        Item, signals and the near-duplicate it replaces are one transaction. Capacity is enforced
        after it. Where that fails, or the near-duplicate cannot be archived, no more is deleted; it
        is counted in :meth:`stats` and the put stays. Writing an id again replaces both.

        Parameters
        ----------
        item : MemoryItem
            The memory.
        ttl : timedelta, str or float, optional
            Time to live, such as "30d", or seconds of it; zero, negative or absent is durable.
        importance : float
            In [0, 1] where the store has a capacity, as BetterDB wants it; else any finite number,
            as MemForge takes it.
        agent_id, thread_id, namespace : str, optional
            What the row belongs to. A row with none of its scope's fields and tags is never capped.
        trust : Trust or str
            Who stands behind it. An untrusted item that repeats a trusted or approved row is not
            stored, and counted in :meth:`stats`; with ``NearDuplicate(keep_untrusted=True)`` both
            stay.
        graduated : bool
            Whether an importance floor spares it, as MemForge does.
        """
        expect(item, MemoryItem, call="store.put", name="item")
        belongs = {"agent_id": agent_id, "thread_id": thread_id, "namespace": namespace}
        for name, value in belongs.items():
            expect(value, str, call="store.put", name=name, optional=True)
        expect(graduated, bool, call="store.put", name="graduated")
        expect(trust, str, call="store.put", name="trust")
        now = self._clock()
        signals: dict[str, Any] = {
            **belongs,
            "importance": side.checked_importance(importance, bounded=self.capacity is not None),
            "last_accessed_at": as_text(now),
            "expires_at": side.expiry_of(ttl, now),
            "trusted": Trust(trust).rank,
            "graduated": int(graduated),
            "scope": side.scope_key(self._fields, belongs, item.tags),
        }
        with self._writing():
            if self._repeats_trusted(item, signals["trusted"], now):
                self._texts.forget()  # an earlier text of its id stays
                side.count_not_stored(self.connection)
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
            if _may_repeat(item):
                order = item.provenance.created_at, position
                self._texts.add((item.memory_id, item.title, item.body, order))
        if self.capacity is not None and signals["scope"] is not None:
            self._enforce(signals["scope"], self.capacity, now)
        return item

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id; None when there is none or it has expired."""
        expect(memory_id, str, call="store.get", name="memory_id")
        is_gone = self._expired("AND signal.memory_id = ?", memory_id)
        return None if is_gone else super().get(memory_id)  # which logs a read

    def search(self, words: str, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return items in which words occur, best first, without those that have expired."""
        limit = whole_number("limit", limit, least=1)
        expired = self._expired()
        found = super().search(words, limit + len(expired))
        return tuple(item for item in found if item.memory_id not in expired)[:limit]

    def list_active(self, *, kind: MemoryKind | None = None) -> tuple[MemoryItem, ...]:
        """Return the items that no other has replaced and that have not expired."""
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
        """Return what to load at start: the load-bearing items, then the most active that fit.

        Nothing is deleted and nothing is written. Active items that have not expired compete, and
        those that a plan retired compete again; what others superseded, or the agent withdrew, is
        never loaded. How active an item is goes by when it was written, on how many days it was
        used and when last (:class:`memlab.Activation`), divided by its length; :meth:`touch` notes
        a use. Neither this nor :meth:`list_active` is one.

        Parameters
        ----------
        max_tokens : int
            What the start may take. Load-bearing items are all returned, even where they alone take
            more; FloorExceedsBudgetWarning says so.
        count_tokens : callable, optional
            Counts the tokens of title and body together; about a fourth of the characters by
            default.
        now : datetime, optional
            The moment, with a time zone; now by default.

        Returns
        -------
        tuple of MemoryItem
            In rowid order, as :meth:`list_active` has them: so a prompt's beginning stays the same
            from one start to the next as far as it can, and is cached.

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
        most = whole_number("max_tokens", max_tokens)
        expect(count_tokens, Callable, call="store.boot_items", name="count_tokens")  # type: ignore[arg-type]
        moment = self._clock() if now is None else aware(now, call="store.boot_items")
        with self._errors_in_words():
            chosen = chosen_for_start(
                self.connection,
                self.path,
                max_tokens=most,
                count_tokens=count_tokens,
                now=moment,
            )
        items = (self._items("WHERE rowid = ?", rowid) for rowid in chosen)
        return tuple(item for found in items for item in found)

    def supersede(self, memory_id: str, *, by_memory_id: str) -> MemoryItem:
        """Mark `memory_id` as replaced by `by_memory_id`, and return it as it is now.

        It leaves the count of its scope. KeyError names an id that is not there.
        """
        expect(memory_id, str, call="store.supersede", name="memory_id")
        with self._writing():
            self._texts.discard(memory_id)
            return self._mark_superseded(memory_id, by_memory_id)

    def touch(
        self, ids: Iterable[str], *, now: datetime | None = None, graduated: bool | None = None
    ) -> int:
        """Note that memories were used, and return how many: the time, and the UTC days of use.

        Call it with what the agent used in its work: what it cited, opened or followed. Never call
        it with what a start loaded: a count of starts ranks memories worse than their age does. A
        second use on one day moves the time and not the count. An expiry stays. A row that a plain
        store wrote is counted from its first use on; it still belongs to no scope.

        Parameters
        ----------
        ids : iterable of str
            Ids; those that are gone or expired are passed over.
        now : datetime, optional
            When they were used, with a time zone; now by default. That is the last access then,
            even where a clock that was ahead had noted a later one: so does BetterDB.
        graduated : bool, optional
            Whether an importance floor spares them from now on; as before where it is not given.

        Examples
        --------
        A runtime that calls ``list_active`` at start and notes which memories its answer cited
        changes three lines: the store it opens, what a start loads, and what it used. ::

            store = memlab.LifecycleStore("memory.db", archive=True)
            at_start = store.boot_items(max_tokens=4000)  # in place of store.list_active()
            store.touch(cited_ids)  # when a task ends
        """
        expect(graduated, bool, call="store.touch", name="graduated", optional=True)
        at = as_text(self._clock() if now is None else now)
        given = dict.fromkeys(texts(ids, call="store.touch", name="ids"))
        rows = [{"memory_id": each, "at": at, "graduated": graduated} for each in given]
        with self._writing():
            used = self.connection.executemany(side.REINFORCE, rows).rowcount
            return used + self.connection.executemany(side.FIRST_USE, rows).rowcount

    def expire(self, now: datetime | None = None) -> int:
        """Delete what has expired, and signals whose row is gone; return how many rows.

        ArchiveError when they cannot be archived; nothing is deleted then.
        """
        now = self._clock() if now is None else aware(now, call="LifecycleStore")
        with self._writing():
            gone = self._sweep(now)
            self.connection.execute(
                "DELETE FROM memory_signals AS signal WHERE NOT EXISTS "
                f"(SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS})"
            )
        return gone

    def stats(self) -> LifecycleStats:
        """Return what was evicted and why, and how full every scope is. Reads all signals."""
        with self._errors_in_words():
            slots = self.capacity.capacity if self.capacity else None
            return side.read_stats(self.connection, slots, self._failures, self._last_failure)

    def _enforce(self, scope: str, capacity: "ValueCap", now: datetime) -> None:
        """Evict the lowest rows of a scope that holds too many; never fail the put before it."""
        try:
            with self._writing():
                keys = side.keys_within(self.connection, scope)
                beyond = side.size_within(self.connection, keys) - capacity.capacity
                if beyond > 0 and self._sweep(now):
                    beyond = side.size_within(self.connection, keys) - capacity.capacity
                if beyond > 0:
                    lowest = side.lowest_within(self.connection, keys, capacity, now)
                    self._remove(lowest[:beyond], "lowest-value", now)
        except Exception as error:  # noqa: BLE001 - the row is durable, whatever comes after it
            self._failed(error)

    def _sweep(self, now: datetime) -> int:
        expired = side.expired_ids(self.connection, as_text(now))
        self._remove(expired, "expired", now)
        return len(expired)

    def _expired(self, also: str = "", *values: str) -> set[str]:
        with self._errors_in_words():
            return {*side.expired_ids(self.connection, as_text(self._clock()), also, *values)}

    def _repeats_trusted(self, item: MemoryItem, trusted: int, now: datetime) -> bool:
        """Delete the row that `item` repeats; return whether that one is trusted more, and stays.

        A policy that keeps untrusted near-duplicates has both stay, as if `item` repeated nothing.
        """
        if not _may_repeat(item):
            self._texts.discard(item.memory_id)
            return False
        found = self._texts.most_similar(item.memory_id, item.title, item.body)
        if found is None:
            return False
        # Somebody stands behind a row of which nothing else is known.
        (trust,) = self.connection.execute(
            f"SELECT coalesce(max(signal.trusted), 1) {side.WITH_ITEMS} WHERE signal.memory_id = ?",
            (found,),
        ).fetchone()
        if trusted < trust:
            return self.duplicates is not None and not self.duplicates.keep_untrusted
        try:
            self._remove([found], "near-duplicate", now)
        except (ArchiveError, UnsafeDeletionError) as error:  # nothing was deleted: both stay
            self._failed(error)
            self._texts.forget()
        return False

    def _repeatable(self) -> "list[Text]":
        """Return the texts of active rows that are not load-bearing, for those that repeat them."""
        found = self.connection.execute(_REPEATABLE)
        return [(*row, (_made_at(at), position)) for *row, at, position in found]

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._last_failure = str(error) or type(error).__name__

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Do all of the block or none of it, with what is known of texts in step."""
        try:
            with self._errors_in_words(), transaction(self.connection):
                (version,) = self.connection.execute("PRAGMA data_version").fetchone()
                if self._seen != (version, self.connection.total_changes):
                    self._texts.forget()
                yield
        except BaseException:
            self._seen = None
            self._going = []
            self._is_settled = False
            raise
        # The version that was read while nobody else could write: a commit since then shows.
        self._seen = version, self.connection.total_changes
        going = self._going
        self._going = []
        try:
            for digest, at in going:
                self._is_settled = False
                note_deleted(self.archive, digest, at=at)
                self._is_settled = True
        except ArchiveError as error:
            self._failed(error)

    def _remove(self, doomed: Sequence[str], reason: str, now: datetime) -> None:
        """Archive rows that are not load-bearing, delete them, and count them by reason."""
        if not doomed:
            return
        connection = self.connection
        chosen = "rowid IN (SELECT position FROM temp.going)"
        by_id = "SELECT rowid FROM memory_items WHERE memory_id = ?"
        found = (connection.execute(by_id, (each,)).fetchone() for each in doomed)
        fill_positions(connection, "going", (position for (position,) in found))
        why = Why({"policy": "LifecycleStore", "reason": reason}, reason)
        settle = not self._is_settled
        with archived_first(connection, self.archive, chosen, why, at=now, settle=settle) as digest:
            for memory_id in doomed:
                self._delete(memory_id)
        self._going.append((digest, now))
        self._is_settled = True
        connection.execute(
            "INSERT INTO memory_lifecycle VALUES ('evicted:' || ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (reason, len(doomed)),
        )

    def _delete(self, memory_id: str) -> None:
        self._texts.discard(memory_id)
        self.connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))
        before = self.connection.total_changes
        gone = self.connection.execute(
            "DELETE FROM memory_items WHERE memory_id = ? AND NOT load_bearing(kind, tags_json)",
            (memory_id,),
        ).rowcount
        changed = self.connection.total_changes - before
        if (gone, changed) != (1, 1):
            raise CompactionError(
                f"deleting {memory_id!r} deleted {gone} rows and changed {changed}; it was rolled "
                "back: look for a trigger on memory_items in the store"
            )
