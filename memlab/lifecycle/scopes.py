"""What is known of full scopes between transactions, so that a put need not read them again."""

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.lifecycle.ranking import Capacity, Ranked, Tournament
from memlab.lifecycle.signals import HAS_SIGNALS, as_text

EPOCH: Final = as_text(datetime.fromtimestamp(0, UTC))


@dataclass
class ScopeRows:
    """The active rows of a scope: how many, and those that may go."""

    count: int
    evictable: Tournament


class Scopes:
    """The scopes whose rows have been read, kept in step with what their store writes.

    Parameters
    ----------
    connection : sqlite3.Connection
        Of the store, with the predicate as its function ``load_bearing``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str | None, ScopeRows] = {}

    def forget(self) -> None:
        """Read every scope again when it is next asked for."""
        self._known = {}

    def rows_of(self, scope: str, capacity: Capacity) -> ScopeRows:
        """Return the active rows of a scope, read from the file unless they are known."""
        if scope not in self._known:
            rows = self._connection.execute(
                "SELECT load_bearing(item.kind, item.tags_json), signal.memory_id, "
                "coalesce(signal.importance, 0.0), coalesce(signal.last_accessed_at, ?), "
                "item.rowid FROM memory_signals AS signal "
                f"JOIN memory_items AS item ON {HAS_SIGNALS} "
                "WHERE signal.scope = ? AND item.superseded_by IS NULL",
                (EPOCH, scope),
            ).fetchall()
            evictable = (
                Ranked(memory_id, importance, datetime.fromisoformat(accessed), position)
                for floor, memory_id, importance, accessed, position in rows
                if not floor
            )
            self._known[scope] = ScopeRows(len(rows), Tournament(capacity, evictable))
        return self._known[scope]

    def enter(self, item: MemoryItem, signals: dict[str, Any], position: int) -> None:
        """Count in a row that was written."""
        if not item.is_active or (rows := self._known.get(signals["scope"])) is None:
            return
        rows.count += 1
        if not is_load_bearing_memory(item):
            accessed = datetime.fromisoformat(signals["last_accessed_at"])
            rows.evictable.add(Ranked(item.memory_id, signals["importance"], accessed, position))

    def leave(self, memory_id: str) -> None:
        """Count out a row that was active and has signals."""
        if (rows := self._scope_of(memory_id)) is not None:
            rows.count -= 1
            rows.evictable.discard(memory_id)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row that has signals."""
        if (rows := self._scope_of(memory_id)) is not None:
            rows.evictable.touch(memory_id, accessed)

    def _scope_of(self, memory_id: str) -> ScopeRows | None:
        row = self._connection.execute(
            "SELECT scope FROM memory_signals WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        return self._known.get(row[0]) if row else None
