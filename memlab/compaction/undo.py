"""The undo of a change that an archive records: its request and its result."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memlab.compaction.index_change import IndexRestored
from memlab.compaction.recorded_change import RecordedChange
from memlab.compaction.wire import entries_left_in_words, some_of
from memlab.errors import ArchiveError
from memlab.sources.base import Source
from memlab.sources.readers import Key, StepCallback
from memlab.store.archive.copied_records import CopiedRecords, damaged
from memlab.store.archive.open_archive import OpenArchive
from memlab.text import DisplayMixin, TextPage, counted, verb_for


@dataclass(frozen=True)
class Undo:
    """One call of :func:`memlab.restore`, with the store and the archive that it opened.

    Attributes
    ----------
    source : Source
        The store.
    recorded : RecordedChange
        The change to undo, in the open archive of the store.
    ids : frozenset of str or None
        The ids of the memories to restore; None for all.
    into : Path or None
        The new file to restore into; None for the store.
    now : datetime
        The time of restoration that the archive records.
    on_step : callable
        Progress callback.
    """

    source: Source
    recorded: RecordedChange
    ids: frozenset[str] | None
    into: Path | None
    now: datetime
    on_step: StepCallback

    @property
    def archive(self) -> OpenArchive:
        """The open archive of the store."""
        return self.recorded.archive

    def check_known(self, ids: Iterable[str | None], action_words: str) -> None:
        """Raise ArchiveError if a requested id is not among the ids of the plan.

        Parameters
        ----------
        ids : iterable of str or None
            The ids of the memories that the plan changed.
        action_words : str
            The action of the plan for the message, such as "deleted".
        """
        requested_ids = self.ids or frozenset()
        unknown_ids = sorted(requested_ids.difference(ids))
        if unknown_ids:
            raise ArchiveError(
                f"plan {self.recorded.digest[:12]} {action_words} no memory "
                f"{some_of(unknown_ids)}; nothing was restored: "
                f"memlab archive {self.archive.location.store} lists what it did"
            )

    def requested_copies(self) -> CopiedRecords:
        """Return the copies of the requested memories, as the archive has them now.

        Raise ArchiveError if an id is unknown, or if copies of the whole plan are missing.
        """
        archive = self.archive
        entry = archive.entry(self.recorded.digest)
        copies = archive.copies(entry)
        if self.ids is None:
            if len(copies) != entry.memories:
                raise damaged(archive)
            return CopiedRecords(archive, entry, copies)
        records = archive.records(entry)
        ids_by_key = {key: self.source.facts_of(record).memory_id for key, record in records}
        self.check_known(ids_by_key.values(), "deleted")
        requested = [copy for copy in copies if ids_by_key.get(copy.key) in self.ids]
        return CopiedRecords(archive, entry, requested)


@dataclass(frozen=True, repr=False)
class Restored(DisplayMixin):
    """Result of :func:`memlab.restore`.

    Attributes
    ----------
    memories : int
        Number of memories that were restored. For the undo of a recovery, it is the number of
        memories that were removed again; for that of a plan that superseded, retired or returned
        memories, the number of memories that it set back.
    left_out : int
        Number of memories that were not restored because they have expired.
    rows_left_out : mapping of str to int
        Number of rows of other tables that were not restored, by table.
    active_again : int or None
        For the undo of a plan that superseded, retired or returned memories: number of memories
        that are active again.
    retired_again : int
        For the undo of such a plan: number of memories that it had returned and that are retired
        again.
    load_bearing : int or None
        For the undo of a recovery: number of memories that were left in the store because they are
        load-bearing.
    entries_left : sequence of int or str
        Keys of memories that already had an entry in the index. The entry was left unchanged.
    index : IndexRestored or None
        For the undo of a plan of :func:`memlab.plan_index`: the result for the index.
    origin : str
        For the undo of a merge: the folder that the memories were merged from, and restored into.
        It is empty if the caller named this folder, and set if the caller named `other`.
    other : str
        For the undo of a merge: the folder that the memories were merged into.
    copies_removed : int
        For the undo of a merge: number of copies that were removed from `other`.
    copies_left : sequence of int or str
        For the undo of a merge: keys of the copies that were left there, because they were changed
        since or another merge relies on them.
    """

    memories: int = 0
    left_out: int = 0
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    active_again: int | None = None
    retired_again: int = 0
    load_bearing: int | None = None
    entries_left: Sequence[Key] = ()
    index: IndexRestored | None = None
    origin: str = ""
    other: str = ""
    copies_removed: int = 0
    copies_left: Sequence[Key] = ()

    def __int__(self) -> int:
        """Return the number of memories."""
        return self.memories

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values by stored key."""
        return {RESTORED_KEYS.get(name, name): value for name, value in super().to_dict().items()}

    def sheet(self) -> TextPage:
        """Return the printed page."""
        if self.index is not None:
            return self.index.sheet()
        title, *others = self.in_words(self.origin)
        return TextPage(title, [("", line) for line in others])

    def in_words(self, target: str = "") -> list[str]:
        """Return the lines about the memories, the copies and the index.

        Parameters
        ----------
        target : str
            The store that was restored into, if the lines are to name it.
        """
        # Each of these counts is None unless a change of its kind was undone.
        if self.load_bearing is not None:  # a recovery
            lines = self._removal_in_words(target, self.load_bearing)
        elif self.active_again is not None:  # a plan that superseded, retired or returned memories
            lines = self._activation_in_words(target, self.active_again)
        else:
            lines = self._restoration_in_words(target)
        if self.other:
            lines.append(f"{counted(self.copies_removed)} taken out of {self.other} again")
            if self.copies_left:
                lines.append(self.copies_left_in_words())
        if self.index_note:
            lines.append(f"index: {self.index_note}")
        if self.left_out:
            left_out = counted(self.left_out)
            lines.append(f"{left_out} left in the archive, because they have expired since")
        for table, rows in self.rows_left_out.items():
            lines.append(
                f"{counted(rows, 'rows')} of {table} left in the archive, because a row that "
                "they refer to is missing"
            )
        return lines

    def _restoration_in_words(self, target: str) -> list[str]:
        """Return the lines about memories that were restored."""
        restored = counted(self.memories)
        lines = [f"{restored} restored into {target}" if target else f"{restored} restored"]
        if not (self.memories or self.left_out or self.copies_removed):
            lines.append(_IS_UNDONE)
        return lines

    def _activation_in_words(self, target: str, active_again: int) -> list[str]:
        """Return the lines about memories that are active again or retired again."""
        place = f" in {target}" if target else ""
        lines = [f"{counted(active_again)} {verb_for(active_again, 'are')} active again{place}"]
        if self.retired_again:
            verb = verb_for(self.retired_again, "are")
            lines.append(f"{counted(self.retired_again)} {verb} retired again")
        if not self.memories:
            lines.append(_IS_UNDONE)
        return lines

    def _removal_in_words(self, target: str, load_bearing: int) -> list[str]:
        """Return the lines about memories that the undo of a recovery removed."""
        place = f" of {target}" if target else ""
        removed = counted(self.memories)
        lines = [f"{removed} taken out{place} again: 'memlab lost --restore' had put them back"]
        if load_bearing:
            verb = verb_for(load_bearing, "stay")
            lines.append(f"{counted(load_bearing)} {verb}: memlab deletes nothing load-bearing")
        return lines

    def copies_left_in_words(self) -> str:
        """Return a sentence about copies that were left in the other folder; empty for none."""
        if not self.copies_left:
            return ""
        count = len(self.copies_left)
        return (
            f"{counted(count)} {verb_for(count, 'stay')} in {self.other}, changed since or needed "
            f"by another merge: {some_of(self.copies_left)}"
        )

    @property
    def index_note(self) -> str:
        """Sentence about index entries that were left unchanged; empty if there are none."""
        return entries_left_in_words(self.entries_left)


_IS_UNDONE: Final = "that plan is undone already: every memory is at its place"

RESTORED_KEYS: Final = {
    "load_bearing": "stay",
    "copies_removed": "taken_out",
    "copies_left": "stay_there",
}
"""JSON keys of the fields of :class:`Restored` that are not named like the field."""
