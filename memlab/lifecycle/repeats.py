"""Which row a new one repeats, looked for while the store is written."""

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.store.signals import HAS_SIGNALS

if TYPE_CHECKING:
    from memlab.policies.duplicates import NearDuplicate, TextIndex

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)

_REPEATABLE: Final = (
    "SELECT memory_id, title, body, created_at, rowid FROM memory_items "
    "WHERE superseded_by IS NULL AND NOT load_bearing(kind, tags_json)"
)


class Repeats:
    """The texts of active rows that are not load-bearing, for the rows that may repeat them.

    Parameters
    ----------
    connection : sqlite3.Connection
        Of the store, with the predicate as its function ``load_bearing``.
    policy : NearDuplicate
        Threshold and vectors. What makes these is loaded now, not while other writers wait.
    """

    def __init__(self, connection: sqlite3.Connection, policy: "NearDuplicate") -> None:
        self._connection = connection
        self._policy = policy
        self._texts: TextIndex | None = None
        self._read([]).most_similar("", "")

    def forget(self) -> None:
        """Read the texts again when they are next asked for."""
        self._texts = None

    def replaced_by(self, item: MemoryItem, trusted: int) -> str | None:
        """Return the id of the row that `item` replaces: the one it repeats, trust permitting."""
        texts = self._known()
        texts.discard(item.memory_id)
        if not _may_repeat(item):
            return None
        found = texts.most_similar(item.title, item.body)
        return found if found is not None and trusted >= self._trust_of(found) else None

    def add(self, item: MemoryItem, position: int) -> None:
        """Take in a row that was written."""
        if _may_repeat(item):
            order = item.provenance.created_at, position
            self._known().add((item.memory_id, item.title, item.body, order))

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if self._texts is not None:
            self._texts.discard(memory_id)

    def _known(self) -> "TextIndex":
        if self._texts is None:
            self._texts = self._read(self._connection.execute(_REPEATABLE).fetchall())
        return self._texts

    def _read(self, rows: list[tuple[str, str, str, str, int]]) -> "TextIndex":
        """Return an index of rows; only a store that looks for repeats needs the modules for it."""
        from memlab.policies.duplicates import TextIndex

        return TextIndex(
            self._policy,
            [
                (memory_id, title, body, (_made_at(created), position))
                for memory_id, title, body, created, position in rows
            ],
        )

    def _trust_of(self, memory_id: str) -> int:
        rank = self._connection.execute(
            "SELECT signal.trusted FROM memory_signals AS signal JOIN memory_items AS item "
            f"ON {HAS_SIGNALS} WHERE signal.memory_id = ?",
            (memory_id,),
        ).fetchone()
        return 1 if rank is None or rank[0] is None else int(rank[0])


def _may_repeat(item: MemoryItem) -> bool:
    return item.is_active and not is_load_bearing_memory(item)


def _made_at(created: object) -> datetime:
    """Return when a row says it was made; no time is the oldest, one without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(str(created))
    except ValueError:
        return _OLDEST
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
