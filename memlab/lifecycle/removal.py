"""How a row leaves a lifecycle store: repeated by a new one, expired, or of the lowest value."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from memlab.clock import moment_and_zone
from memlab.errors import CompactionError
from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.policies.duplicates import NearDuplicate, TextIndex
from memlab.store.archive.location import ArchiveLocation
from memlab.store.archive.runtime import Why, archived_first, note_deleted
from memlab.store.records import fill_positions
from memlab.store.signals import HAS_SIGNALS

LOWEST_VALUE: Final = "lowest-value"
EXPIRED: Final = "expired"
NEAR_DUPLICATE: Final = "near-duplicate"


_OLDEST: Final = datetime.min.replace(tzinfo=UTC)

_REPEATABLE: Final = (
    "SELECT memory_id, title, body, created_at, rowid FROM memory_items "
    "WHERE superseded_by IS NULL AND NOT load_bearing(kind, tags_json)"
)


class Removals:
    """Deletes rows of one open store, within its transactions."""

    def __init__(
        self, connection: sqlite3.Connection, place: ArchiveLocation | None, repeats: "Repeats"
    ) -> None:
        self._connection = connection
        self._place = place
        self._repeats = repeats
        self._going: list[tuple[str | None, datetime]] = []
        self._is_settled = False

    def remove(self, doomed: Sequence[str], reason: str, now: datetime) -> None:
        """Archive rows that are not load-bearing, delete them, and count them by reason."""
        if not doomed:
            return
        with self._copied(doomed, reason, now):
            for memory_id in doomed:
                self._delete(memory_id)
        self._connection.execute(
            "INSERT INTO memory_lifecycle VALUES ('evicted:' || ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (reason, len(doomed)),
        )

    def undone(self) -> None:
        """Forget what was about to go: its transaction was rolled back."""
        self._going, self._is_settled = [], False

    def note_done(self) -> None:
        """Have the archive note what was deleted, after the commit."""
        if not self._going:
            return
        going, self._going, self._is_settled = self._going, [], False
        for digest, at in going:
            note_deleted(self._place, digest, at=at)
        self._is_settled = True

    @contextmanager
    def _copied(self, doomed: Sequence[str], reason: str, now: datetime) -> Iterator[None]:
        """Archive rows before the block deletes them, where the store archives."""
        connection = self._connection
        chosen = "rowid IN (SELECT position FROM temp.going)"
        by_id = "SELECT rowid FROM memory_items WHERE memory_id = ?"
        found = (connection.execute(by_id, (each,)).fetchone() for each in doomed)
        fill_positions(connection, "going", (position for (position,) in found))
        why = Why({"policy": "LifecycleStore", "reason": reason}, reason)
        settle = not self._is_settled
        with archived_first(connection, self._place, chosen, why, at=now, settle=settle) as digest:
            yield
        self._going.append((digest, now))
        self._is_settled = True

    def _delete(self, memory_id: str) -> None:
        self._repeats.discard(memory_id)
        self._connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))
        before = self._connection.total_changes
        gone = self._connection.execute(
            "DELETE FROM memory_items WHERE memory_id = ? AND NOT load_bearing(kind, tags_json)",
            (memory_id,),
        ).rowcount
        changed = self._connection.total_changes - before
        if (gone, changed) != (1, 1):
            raise CompactionError(
                f"deleting {memory_id!r} deleted {gone} rows and changed {changed}; it was rolled "
                "back: look for a trigger on memory_items in the store"
            )


class Repeats:
    """The texts of active rows that are not load-bearing, for the rows that may repeat them."""

    def __init__(self, connection: sqlite3.Connection, policy: NearDuplicate | None) -> None:
        self._connection = connection
        self._policy = policy if policy and policy.threshold > 0 else None
        self._texts: TextIndex | None = None
        if self._policy:
            TextIndex(self._policy, []).most_similar("", "")  # what it needs is there, or said now

    def forget(self) -> None:
        """Read the texts again when they are next asked for."""
        self._texts = None

    def replaced_by(self, item: MemoryItem, trusted: int) -> str | None:
        """Return the id of the row that `item` replaces: the one it repeats, trust permitting."""
        if (texts := self._known()) is None:
            return None
        texts.discard(item.memory_id)
        if not _may_repeat(item):
            return None
        found = texts.most_similar(item.title, item.body)
        return found if found is not None and trusted >= self._trust_of(found) else None

    def add(self, item: MemoryItem, position: int) -> None:
        """Take in a row that was written."""
        if _may_repeat(item) and (texts := self._known()) is not None:
            order = item.provenance.created_at, position
            texts.add((item.memory_id, item.title, item.body, order))

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if self._texts is not None:
            self._texts.discard(memory_id)

    def _known(self) -> TextIndex | None:
        if self._texts is None and self._policy:
            found = self._connection.execute(_REPEATABLE)
            rows = [(*row, (_made_at(at), position)) for *row, at, position in found]
            self._texts = TextIndex(self._policy, rows)
        return self._texts

    def _trust_of(self, memory_id: str) -> int:
        """Return who stands behind a row: somebody, where nothing else is known of it."""
        rank = self._connection.execute(
            "SELECT signal.trusted FROM memory_signals AS signal JOIN memory_items AS item "
            f"ON {HAS_SIGNALS} WHERE signal.memory_id = ? AND signal.trusted IS NOT NULL",
            (memory_id,),
        ).fetchone()
        return 1 if rank is None else int(rank[0])


def _may_repeat(item: MemoryItem) -> bool:
    return item.is_active and not is_load_bearing_memory(item)


def _made_at(created: object) -> datetime:
    """Return when a row says it was made; no time is the oldest, one without a zone is UTC."""
    with suppress(ValueError):
        return moment_and_zone(str(created))[0]
    return _OLDEST
