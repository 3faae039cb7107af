"""What is known of scopes between transactions, so that a put need not read them again."""

import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.lifecycle.ranking import Capacity, Ranked, Tournament
from memlab.lifecycle.signals import as_text
from memlab.store.signals import HAS_SIGNALS

EPOCH: Final = as_text(datetime.fromtimestamp(0, UTC))

_ACTIVE_IN_SCOPE: Final = (
    f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS} "
    "WHERE signal.scope = ? AND item.superseded_by IS NULL"
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
        self._known: dict[str | None, ScopeRows] = {}

    def forget(self) -> None:
        """Count every scope again when it is next asked for."""
        self._known = {}

    def count(self, scope: str) -> int:
        """Return how many active rows a scope holds."""
        if scope not in self._known:
            (count,) = self._connection.execute(
                f"SELECT count(*) {_ACTIVE_IN_SCOPE}", (scope,)
            ).fetchone()
            self._known[scope] = ScopeRows(count)
        return self._known[scope].count

    def lowest(self, scope: str, capacity: Capacity, now: datetime) -> Ranked | None:
        """Return the row of a counted scope that goes first, None where none may."""
        rows = self._known[scope]
        if rows.evictable is None:
            rows.evictable = Tournament(capacity, self._evictable(scope))
        return rows.evictable.lowest(now)

    def _evictable(self, scope: str) -> Iterator[Ranked]:
        found = self._connection.execute(
            "SELECT signal.memory_id, coalesce(signal.importance, 0.0), "
            f"coalesce(signal.last_accessed_at, ?), item.rowid {_ACTIVE_IN_SCOPE} "
            "AND NOT load_bearing(item.kind, item.tags_json)",
            (EPOCH, scope),
        )
        for memory_id, importance, accessed, position in found:
            finite = importance if math.isfinite(importance) else 0.0
            yield Ranked(memory_id, finite, datetime.fromisoformat(accessed), position)

    def enter(self, item: MemoryItem, signals: dict[str, Any], position: int) -> None:
        """Count in a row that was written."""
        if not item.is_active or (rows := self._known.get(signals["scope"])) is None:
            return
        rows.count += 1
        if rows.evictable is not None and not is_load_bearing_memory(item):
            accessed = datetime.fromisoformat(signals["last_accessed_at"])
            rows.evictable.add(Ranked(item.memory_id, signals["importance"], accessed, position))

    def leave(self, memory_id: str) -> None:
        """Count out a row that was active and has signals."""
        if (rows := self._scope_of(memory_id)) is not None:
            rows.count -= 1
            if rows.evictable is not None:
                rows.evictable.discard(memory_id)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row that has signals."""
        rows = self._scope_of(memory_id)
        if rows is not None and rows.evictable is not None:
            rows.evictable.touch(memory_id, accessed)

    def _scope_of(self, memory_id: str) -> ScopeRows | None:
        row = self._connection.execute(
            "SELECT scope FROM memory_signals WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        return self._known.get(row[0]) if row else None
