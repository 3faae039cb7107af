"""How a lifecycle store deletes: archived first, row by row, counted by reason."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from memlab.errors import CompactionError
from memlab.store.archive_place import ArchivePlace
from memlab.store.archiving import Why, archived_first, note_deleted
from memlab.store.other_tables import check_deletion, is_tied
from memlab.store.records import fill_positions

LOWEST_VALUE: Final = "lowest-value"
EXPIRED: Final = "expired"
NEAR_DUPLICATE: Final = "near-duplicate"


class Removals:
    """Deletes rows of one open store, within its transactions.

    Parameters
    ----------
    connection : sqlite3.Connection
        To the store, which knows the function ``load_bearing``.
    place : ArchivePlace or None
        Where copies go first; None for a store that does not archive.
    """

    def __init__(self, connection: sqlite3.Connection, place: ArchivePlace | None) -> None:
        self._connection = connection
        self._place = place
        self._going: list[tuple[str, datetime]] = []
        self._is_settled = False

    def remove(self, doomed: Sequence[str], reason: str, now: datetime) -> None:
        """Archive rows that are not load-bearing, delete them, and count them by reason.

        Raises
        ------
        ArchiveError
            When they cannot be archived; none is deleted.
        CompactionError
            When a trigger kept one, or changed other rows with it.
        UnsafeDeletionError
            When a foreign key ties rows of another table to one.
        """
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

    def forget_signals(self, memory_id: str) -> None:
        """Delete what is known of a memory beside its row."""
        self._connection.execute("DELETE FROM memory_signals WHERE memory_id = ?", (memory_id,))

    def undone(self) -> None:
        """Forget what was about to go: its transaction was rolled back."""
        self._going, self._is_settled = [], False

    def note_done(self) -> None:
        """Have the archive note what was deleted, after the commit.

        Raises
        ------
        ArchiveError
            When it cannot; the next deletion does.
        """
        going, self._going = self._going, []
        if self._place is None or not going:
            return
        self._is_settled = False
        for digest, at in going:
            note_deleted(self._place, digest, at=at)
        self._is_settled = True

    @contextmanager
    def _copied(self, doomed: Sequence[str], reason: str, now: datetime) -> Iterator[None]:
        """Archive rows before the block deletes them, where the store archives."""
        chosen = "rowid IN (SELECT position FROM temp.going)"
        tied = is_tied(self._connection)
        if self._place is not None or tied:
            fill_positions(self._connection, "going", self._positions_of(doomed))
        if self._place is None:
            if tied:
                check_deletion(self._connection, chosen)
            yield
            return
        why = Why({"policy": "LifecycleStore", "reason": reason}, reason)
        settle = not self._is_settled
        with archived_first(
            self._connection, self._place, chosen, why, at=now, settle=settle
        ) as digest:
            yield
        self._going.append((digest, now))
        self._is_settled = True

    def _positions_of(self, ids: Sequence[str]) -> Iterator[int]:
        for memory_id in ids:
            yield from self._connection.execute(
                "SELECT rowid FROM memory_items WHERE memory_id = ?", (memory_id,)
            ).fetchone()

    def _delete(self, memory_id: str) -> None:
        self.forget_signals(memory_id)
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
