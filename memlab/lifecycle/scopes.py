"""What is known of scopes between transactions, so that a put need not read them again."""

import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.lifecycle.labels import Labels, Shelves, labels_in
from memlab.lifecycle.ranking import Capacity, Ranked, Tournament
from memlab.lifecycle.signals import as_text
from memlab.store.signals import HAS_SIGNALS

EPOCH: Final = as_text(datetime.fromtimestamp(0, UTC))

MOST_KNOWN: Final = 10_000
"""Scopes that are kept in mind; beyond them all are counted again."""

_ACTIVE_IN_SCOPE: Final = (
    f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS} "
    "WHERE signal.scope IN (SELECT value FROM json_each(?)) AND item.superseded_by IS NULL"
)
# One step down the index for each distinct value.
_WRITTEN: Final = (
    "WITH RECURSIVE written(scope) AS (SELECT min(scope) FROM memory_signals UNION ALL "
    "SELECT (SELECT min(scope) FROM memory_signals WHERE scope > written.scope) FROM written "
    "WHERE written.scope IS NOT NULL) SELECT scope FROM written WHERE scope IS NOT NULL"
)


@dataclass
class ScopeRows:
    """The active rows of a scope: how many, and those that may go, once it was too full."""

    count: int
    evictable: Tournament | None = None


class Scopes:
    """The scopes that have been counted, kept in step with what their store writes.

    Parameters
    ----------
    connection : sqlite3.Connection
        Of the store, with the predicate as its function ``load_bearing``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """Count every scope again when it is next asked for."""
        self._known: dict[str, ScopeRows] = {}
        self._shelves = Shelves()
        self._written: dict[str, Labels] | None = None

    def count(self, scope: str) -> int:
        """Return how many active rows a scope holds."""
        if scope not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self.forget()
            (count,) = self._connection.execute(
                f"SELECT count(*) {_ACTIVE_IN_SCOPE}", (self._within(scope),)
            ).fetchone()
            self._known[scope] = ScopeRows(count)
            self._shelves.add(scope)
        return self._known[scope].count

    def lowest(self, scope: str, capacity: Capacity, now: datetime) -> Ranked | None:
        """Return the row of a counted scope that goes first, None where none may."""
        rows = self._known[scope]
        if rows.evictable is None:
            rows.evictable = Tournament(capacity, self._evictable(scope))
        return rows.evictable.lowest(now)

    def enter(self, item: MemoryItem, signals: dict[str, Any], position: int) -> None:
        """Count in a row that was written."""
        if not item.is_active or signals["scope"] is None:
            return
        if self._written is not None:
            self._written[signals["scope"]] = labels_in(signals["scope"])
        ranked = None
        if not is_load_bearing_memory(item):
            accessed = datetime.fromisoformat(signals["last_accessed_at"])
            ranked = Ranked(item.memory_id, signals["importance"], accessed, position)
        for rows in self._holding(signals["scope"]):
            rows.count += 1
            if rows.evictable is not None and ranked is not None:
                rows.evictable.add(ranked)

    def leave(self, memory_id: str) -> None:
        """Count out a row that was active and has signals."""
        for rows in self._scopes_of(memory_id):
            rows.count -= 1
            if rows.evictable is not None:
                rows.evictable.discard(memory_id)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row that has signals."""
        for rows in self._scopes_of(memory_id):
            if rows.evictable is not None:
                rows.evictable.touch(memory_id, accessed)

    def _within(self, scope: str) -> str:
        """Return as JSON what rows of a scope were written with: its labels, and maybe more."""
        if self._written is None:
            found = self._connection.execute(_WRITTEN).fetchall()
            self._written = {key: labels_in(key) for (key,) in found}
        wanted = labels_in(scope)
        return json.dumps([key for key, labels in self._written.items() if wanted <= labels])

    def _evictable(self, scope: str) -> Iterator[Ranked]:
        found = self._connection.execute(
            "SELECT signal.memory_id, coalesce(signal.importance, 0.0), "
            f"coalesce(signal.last_accessed_at, ?), item.rowid {_ACTIVE_IN_SCOPE} "
            "AND NOT load_bearing(item.kind, item.tags_json)",
            (EPOCH, self._within(scope)),
        )
        for memory_id, importance, accessed, position in found:
            finite = importance if math.isfinite(importance) else 0.0
            yield Ranked(memory_id, finite, datetime.fromisoformat(accessed), position)

    def _scopes_of(self, memory_id: str) -> Iterator[ScopeRows]:
        row = self._connection.execute(
            "SELECT scope FROM memory_signals WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        return iter(()) if row is None or row[0] is None else self._holding(row[0])

    def _holding(self, key: str) -> Iterator[ScopeRows]:
        """Yield the known scopes that a row with these labels is in."""
        return (self._known[scope] for scope in self._shelves.holding(key))
