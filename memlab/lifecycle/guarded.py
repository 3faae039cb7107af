"""The lifecycle store."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memlab.arguments import expect, refusal, texts
from memlab.clock import now_utc
from memlab.columns import AGENT_SCOPE
from memlab.errors import CompactionError
from memlab.items import MemoryItem, MemoryKind, is_load_bearing_memory
from memlab.lifecycle.ranking import Capacity
from memlab.lifecycle.scopes import Scopes
from memlab.lifecycle.signals import (
    LifecycleStats,
    Trust,
    as_text,
    checked_importance,
    expiry_of,
    load_bearing,
    prepare,
    scope_fields,
    scope_key,
    trust_of,
    values_of,
)
from memlab.store import ReadLog, SqliteMemoryStore
from memlab.store.database import transaction
from memlab.store.signals import HAS_SIGNALS, SIGNAL_COLUMNS

if TYPE_CHECKING:
    from memlab.policies.duplicates import NearDuplicate, TextIndex

LOWEST_VALUE: Final = "lowest-value"
EXPIRED: Final = "expired"
NEAR_DUPLICATE: Final = "near-duplicate"


class LifecycleStore(SqliteMemoryStore):
    """A store that keeps itself in bounds as it is written.

    Signals are kept in tables of their own in the same file; ``memory_items`` stays as it is, and a
    plain ``SqliteMemoryStore`` reads and writes the file as before. Rows written by a plain store
    have no signals: they belong to no scope and are neither capped nor expired.

    Load-bearing rows are never evicted and never expire. They take up room in their scope.

    Parameters
    ----------
    path : str or Path
        The file, made when missing, or ``":memory:"``.
    capacity : ValueCap, optional
        How many active rows a scope may hold and which goes first; without it nothing is capped.
    duplicates : NearDuplicate, optional
        When a row that is written replaces the one active row most similar to it, whatever its
        scope; without it none does.
    clock : callable, optional
        Tells the time, with a time zone, wherever no ``now`` is given.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.
    access_log : AccessLog, optional
        Where `get` writes down every item that it returns.

    Raises
    ------
    StoreError
        When the file is not a store or cannot be opened.

    Examples
    --------
    >>> from memlab.items import MemoryProvenance
    >>> from memlab.policies import ValueCap
    >>> with LifecycleStore(":memory:", capacity=ValueCap(1)) as store:
    ...     for number, importance in ((1, 0.9), (2, 0.1)):
    ...         provenance = MemoryProvenance(None, "agent", source_task_ref=f"issue:#{number}")
    ...         item = MemoryItem(f"m{number}", "episodic", "shipped", "", provenance)
    ...         store.put(item, importance=importance, agent_id="a")
    ...     [item.memory_id for item in store.list_active()], dict(store.stats().evicted)
    (['m1'], {'lowest-value': 1})
    """

    def __init__(
        self,
        path: str | Path,
        *,
        capacity: Capacity | None = None,
        duplicates: "NearDuplicate | None" = None,
        clock: Callable[[], datetime] = now_utc,
        busy_timeout: float = 30.0,
        access_log: ReadLog | None = None,
    ) -> None:
        _expect_rules(capacity, duplicates, clock)
        super().__init__(path, busy_timeout=busy_timeout, access_log=access_log)
        self.capacity: Final = capacity
        self.duplicates: Final = duplicates
        self._clock = clock
        self._scopes = Scopes(self.connection)
        self._texts: TextIndex | None = None
        self._seen: tuple[int, int] | None = None
        self._failures = 0
        self._last_failure: str | None = None
        if duplicates is not None and duplicates.threshold > 0:
            # What makes the vectors is loaded now, not while other writers wait for the file.
            _text_index(duplicates, []).most_similar("", "")
        self.connection.create_function("load_bearing", 2, load_bearing, deterministic=True)
        try:
            with self._errors_in_words():
                known = scope_fields(self.connection)
                self._fields = (known or AGENT_SCOPE) if capacity is None else capacity.scope
                if known != self._fields:
                    with transaction(self.connection):
                        prepare(self.connection, self._fields)
        except BaseException:
            self.close()
            raise

    def put(  # noqa: PLR0913 - what is known of a memory when it is written
        self,
        item: MemoryItem,
        *,
        ttl: timedelta | float | None = None,
        importance: float = 0.5,
        agent_id: str | None = None,
        thread_id: str | None = None,
        namespace: str | None = None,
        trust: Trust | str = Trust.TRUSTED,
    ) -> None:
        """Write `item` and what is known of it, then bring its scope within capacity.

        Item, signals and the near-duplicate it replaces are one transaction. Capacity is enforced
        after it; a failure there is counted in :meth:`stats` and leaves the put as it is. Writing
        an id again replaces item and signals.

        Parameters
        ----------
        item : MemoryItem
            The memory.
        ttl : timedelta or float, optional
            Time to live, or seconds of it; zero, negative or absent is durable.
        importance : float
            In [0, 1].
        agent_id, thread_id, namespace : str, optional
            What the row belongs to. A row with none of its scope's fields is never capped.
        trust : Trust or str
            Who stands behind it; an untrusted row never replaces one that is trusted or approved.

        Raises
        ------
        ValueError
            If `importance`, `ttl` or `trust` is out of range, or a tag that makes up the scope
            holds a comma.
        StoreError
            When the file cannot be written; nothing is changed.
        """
        expect(item, MemoryItem, call="store.put", name="item")
        belongs = {"agent_id": agent_id, "thread_id": thread_id, "namespace": namespace}
        for name, value in belongs.items():
            expect(value, str, call="store.put", name=name, optional=True)
        now = self._clock()
        signals: dict[str, Any] = {
            **belongs,
            "importance": checked_importance(importance),
            "last_accessed_at": as_text(now),
            "expires_at": expiry_of(ttl, now),
            "trusted": trust_of(trust).rank,
            "scope": scope_key(self._fields, belongs, item.tags),
        }
        with self._writing():
            self._replace_duplicate(item, signals["trusted"])
            self._write(item, signals)
        if self.capacity is not None and signals["scope"] is not None:
            self._enforce(signals["scope"], self.capacity, now)

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id; None when there is none or it has expired."""
        item = super().get(memory_id)
        if item is None or is_load_bearing_memory(item):
            return item
        return None if self._expired(" AND signal.memory_id = ?", memory_id) else item

    def list_active(self, *, kind: MemoryKind | None = None) -> list[MemoryItem]:
        """Return the items that no other has replaced and that have not expired."""
        items = super().list_active(kind=kind)
        expired = self._expired()
        return [i for i in items if i.memory_id not in expired or is_load_bearing_memory(i)]

    def supersede(self, memory_id: str, *, by_memory_id: str) -> None:
        """Mark `memory_id` as replaced by `by_memory_id`; it leaves the count of its scope.

        Raises
        ------
        KeyError
            Naming the id that is not in the store; nothing is changed.
        ValueError
            When an item would replace itself.
        """
        expect(memory_id, str, call="store.supersede", name="memory_id")
        with self._errors_in_words():
            before = self._now_seen()
        item = super().get(memory_id)
        super().supersede(memory_id, by_memory_id=by_memory_id)
        if self._seen == before and item is not None and item.is_active:
            # One change of ours since: what is known still holds, but for this row.
            self._seen = (before[0], before[1] + 1)
            with self._writing():
                self._leave_scope(memory_id)

    def touch(self, ids: Iterable[str], *, now: datetime) -> int:
        """Note that memories were used: last access and access count. An expiry stays.

        Parameters
        ----------
        ids : iterable of str
            Ids; those that are gone, expired or without signals are passed over.
        now : datetime
            When they were used, with a time zone. An earlier time than the last leaves that.

        Returns
        -------
        int
            How many were reinforced.
        """
        at = as_text(now)
        reinforced = 0
        with self._writing():
            for memory_id in dict.fromkeys(texts(ids, call="store.touch", name="ids")):
                reinforced += self._touch(memory_id, at)
        return reinforced

    def expire(self, now: datetime) -> int:
        """Delete what has expired, and signals whose row is gone.

        Returns
        -------
        int
            How many rows were deleted.
        """
        at = as_text(now)
        with self._writing():
            gone = self._sweep(at)
            self.connection.execute(
                "DELETE FROM memory_signals AS signal WHERE NOT EXISTS "
                f"(SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS})"
            )
        return gone

    def stats(self) -> LifecycleStats:
        """Return what was evicted and why, and how full every scope is. Reads all signals."""
        with self._errors_in_words():
            sizes = self.connection.execute(
                "SELECT signal.scope, count(*), sum(load_bearing(item.kind, item.tags_json)) "
                f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS} "
                "WHERE item.superseded_by IS NULL AND signal.scope IS NOT NULL "
                "GROUP BY signal.scope"
            ).fetchall()
            evicted = self.connection.execute(
                "SELECT substr(name, 9), value FROM memory_lifecycle WHERE name GLOB 'evicted:*'"
            ).fetchall()
        slots = self.capacity.slots if self.capacity else None
        return LifecycleStats(
            sizes={scope: size for scope, size, _ in sizes},
            evicted=dict(evicted),
            enforcement_failures=self._failures,
            last_failure=self._last_failure,
            floor_over_capacity={
                scope: floor for scope, _, floor in sizes if slots is not None and floor > slots
            },
        )

    def _write(self, item: MemoryItem, signals: dict[str, Any]) -> None:
        """Write a row and its signals, and keep count of its scope."""
        self._forget(item.memory_id)
        super().put(item)
        (position,) = self.connection.execute(
            "SELECT rowid FROM memory_items WHERE memory_id = ?", (item.memory_id,)
        ).fetchone()
        marks = ", ".join("?" * len(SIGNAL_COLUMNS))
        self.connection.execute(
            f"INSERT INTO memory_signals ({', '.join(SIGNAL_COLUMNS)}) VALUES ({marks})",
            values_of(item, signals, position=position),
        )
        self._scopes.enter(item, signals, position)

    def _forget(self, memory_id: str) -> None:
        """Drop a row's signals and take it out of the count of its scope."""
        counted = self.connection.execute(
            "SELECT 1 FROM memory_signals AS signal JOIN memory_items AS item "
            f"ON {HAS_SIGNALS} WHERE signal.memory_id = ? AND item.superseded_by IS NULL",
            (memory_id,),
        ).fetchone()
        if counted:
            self._leave_scope(memory_id)
        self.connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))

    def _leave_scope(self, memory_id: str) -> None:
        """Take a row that was active out of its scope and out of the texts."""
        self._scopes.leave(memory_id)
        if self._texts is not None:
            self._texts.discard(memory_id)

    def _remove(self, memory_id: str, reason: str) -> None:
        """Delete a row that is not load-bearing, and count it by reason.

        Raises
        ------
        CompactionError
            When a trigger kept it, or changed other rows with it.
        """
        self._forget(memory_id)
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
        self.connection.execute(
            "INSERT INTO memory_lifecycle VALUES ('evicted:' || ?, 1) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1",
            (reason,),
        )

    def _enforce(self, scope: str, capacity: Capacity, now: datetime) -> None:
        """Evict the lowest rows of a scope that holds too many; never fail the put before it."""
        try:
            with self._writing():
                if self._scopes.count(scope) > capacity.slots:
                    self._sweep(as_text(now))
                while self._scopes.count(scope) > capacity.slots:
                    if (row := self._scopes.lowest(scope, capacity, now)) is None:
                        break
                    self._remove(row.memory_id, LOWEST_VALUE)
        except Exception as error:  # noqa: BLE001 - the row is durable, whatever comes after it
            self._failures += 1
            self._last_failure = str(error) or type(error).__name__

    def _sweep(self, at: str) -> int:
        """Delete the rows that have expired."""
        expired = self.connection.execute(
            "SELECT signal.memory_id FROM memory_signals AS signal "
            f"JOIN memory_items AS item ON {HAS_SIGNALS} "
            "WHERE signal.expires_at <= ? AND NOT load_bearing(item.kind, item.tags_json)",
            (at,),
        ).fetchall()
        for (memory_id,) in expired:
            self._remove(memory_id, EXPIRED)
        return len(expired)

    def _touch(self, memory_id: str, at: str) -> int:
        """Reinforce one row that is there and has not expired."""
        reinforced = self.connection.execute(
            "UPDATE memory_signals AS signal SET access_count = coalesce(access_count, 0) + 1, "
            "last_accessed_at = max(coalesce(last_accessed_at, ''), :at) "
            "WHERE memory_id = :memory_id "
            f"AND EXISTS (SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS} "
            "AND (signal.expires_at IS NULL OR signal.expires_at > :at "
            "OR load_bearing(item.kind, item.tags_json)))",
            {"at": at, "memory_id": memory_id},
        ).rowcount
        if reinforced:
            self._scopes.touch(memory_id, datetime.fromisoformat(at))
        return reinforced

    def _expired(self, also: str = "", *values: str) -> set[str]:
        """Return the ids of rows that have expired and are still in the file."""
        with self._errors_in_words():
            expired = self.connection.execute(
                "SELECT signal.memory_id FROM memory_signals AS signal "
                f"JOIN memory_items AS item ON {HAS_SIGNALS} WHERE signal.expires_at <= ?{also}",
                (as_text(self._clock()), *values),
            ).fetchall()
        return {memory_id for (memory_id,) in expired}

    def _replace_duplicate(self, item: MemoryItem, trusted: int) -> None:
        """Delete the row that `item` repeats, unless that one is trusted more."""
        if self.duplicates is None or self.duplicates.threshold == 0:
            return
        texts = self._texts = self._texts or self._read_texts(self.duplicates)
        texts.discard(item.memory_id)
        if is_load_bearing_memory(item) or not item.is_active:
            return
        if (found := texts.most_similar(item.title, item.body)) is not None:
            rank = self.connection.execute(
                "SELECT signal.trusted FROM memory_signals AS signal JOIN memory_items AS item "
                f"ON {HAS_SIGNALS} WHERE signal.memory_id = ?",
                (found,),
            ).fetchone()
            if trusted >= (1 if rank is None else rank[0]):
                self._remove(found, NEAR_DUPLICATE)
        texts.add(item.memory_id, item.title, item.body)

    def _read_texts(self, policy: "NearDuplicate") -> "TextIndex":
        """Read the texts that a row may repeat: those of active rows that are not load-bearing."""
        return _text_index(
            policy,
            self.connection.execute(
                "SELECT memory_id, title, body FROM memory_items WHERE superseded_by IS NULL "
                "AND NOT load_bearing(kind, tags_json) ORDER BY rowid"
            ).fetchall(),
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Do all of the block or none of it, with what is known of scopes in step.

        Scopes are kept between transactions as long as nobody else has written: no other
        connection (``data_version``) and nothing else through this one (``total_changes``). After
        a foreign write a scope is counted again when it is next written to, and its rows are read
        again when it is next too full.
        """
        try:
            with self._errors_in_words(), transaction(self.connection):
                if self._seen != self._now_seen():
                    self._scopes.forget()
                    self._texts = None
                yield
            self._seen = self._now_seen()
        except BaseException:
            self._seen = None
            raise

    def _now_seen(self) -> tuple[int, int]:
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        return version, self.connection.total_changes


def _expect_rules(capacity: object, duplicates: object, clock: object) -> None:
    """Refuse what is no rule, by what a rule must have: no frame is loaded for that."""
    for name, rule, wanted in (
        ("capacity", capacity, ("slots", "scope")),
        ("duplicates", duplicates, ("threshold", "vectorise")),
    ):
        fits = not isinstance(rule, type) and all(hasattr(rule, each) for each in wanted)
        if rule is not None and not fits:
            raise refusal(rule, name, call="LifecycleStore", name=name)
    if not callable(clock):
        raise refusal(clock, "clock", call="LifecycleStore", name="clock")


def _text_index(policy: "NearDuplicate", rows: list[tuple[str, str, str]]) -> "TextIndex":
    """Return an index of texts; only a store that looks for duplicates needs the modules for it."""
    from memlab.policies.duplicates import TextIndex

    return TextIndex(policy, rows)
