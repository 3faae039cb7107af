"""The undo of a change that an archive records: what was asked, and what came of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from memlab.compaction.index_change import IndexRestored
from memlab.compaction.recorded_change import RecordedChange
from memlab.compaction.wire import entries_left_in_words, some_of
from memlab.errors import ArchiveError
from memlab.sources.base import Source
from memlab.sources.readers import Key, StepCallback
from memlab.store.archive.copied_records import CopiedRecords, damaged
from memlab.store.archive.open_archive import OpenArchive
from memlab.text import DisplayMixin, TextPage, counted


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
        """Raise ArchiveError if a requested id is not among the ids of the plan."""
        unknown = sorted(set(self.ids or ()).difference(ids))
        if unknown:
            raise ArchiveError(
                f"plan {self.recorded.digest[:12]} {action_words} no memory {some_of(unknown)}; "
                f"nothing was restored: memlab archive {self.archive.location.store} lists what it "
                "did"
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
        Number of memories that were restored. For the undo of a recovery, number of memories that
        were removed again.
    left_out : int
        Number of memories that were not restored because they have expired.
    rows_left_out : mapping of str to int
        Number of rows of other tables that were not restored, by table.
    stay : int or None
        For the undo of a recovery: number of memories that stay because they are load-bearing.
    entries_left : sequence of int or str
        Keys of memories that already had an entry in the index. The entry was left unchanged.
    index : IndexRestored or None
        For the undo of a plan of :func:`memlab.plan_index`: what became of the index.
    origin : str
        For the undo of a merge that the other folder was asked for: the folder that the memories
        were restored into.
    other : str
        For the undo of a merge: the folder that the memories were merged into.
    taken_out : int
        For the undo of a merge: number of copies that were taken out of that folder.
    stay_there : sequence of int or str
        For the undo of a merge: keys of the copies that stay there, because they were changed
        since or another merge relies on them.
    """

    memories: int = 0
    left_out: int = 0
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    stay: int | None = None
    entries_left: Sequence[Key] = ()
    index: IndexRestored | None = None
    origin: str = ""
    other: str = ""
    taken_out: int = 0
    stay_there: Sequence[Key] = ()

    def __int__(self) -> int:
        """Return the number of memories."""
        return self.memories

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        if self.index is not None:
            return self.index.sheet()
        title, *others = self.in_words(self.origin)
        return TextPage(title, [("", line) for line in others])

    def in_words(self, target: str = "") -> list[str]:
        """Return the lines that say what was undone; `target` names the store, if it is given."""
        restored = counted(self.memories)
        if self.stay is None:
            lines = [f"{restored} restored into {target}" if target else f"{restored} restored"]
            if not (self.memories or self.left_out or self.taken_out):
                lines.append("that plan is undone already: every memory is at its place")
        else:
            place = f" of {target}" if target else ""
            lines = [f"{restored} taken out{place} again, which memlab lost had put back"]
            if self.stay:
                verb = "stays" if self.stay == 1 else "stay"
                lines.append(f"{counted(self.stay)} {verb}: memlab deletes nothing load-bearing")
        if self.other:
            lines.append(f"{counted(self.taken_out)} taken out of {self.other} again")
            if self.stay_there:
                lines.append(self.stay_in_words())
        if self.index_note:
            lines.append(f"index: {self.index_note}")
        if self.left_out:
            left_out = counted(self.left_out)
            lines.append(f"{left_out} left in the archive, whose own time has passed since")
        for table, rows in self.rows_left_out.items():
            lines.append(
                f"{counted(rows, 'rows')} of {table} left in the archive, since something else "
                "referred to is not there"
            )
        return lines

    def stay_in_words(self) -> str:
        """Return a sentence about copies that stay in the other folder; empty for none."""
        if not self.stay_there:
            return ""
        count = len(self.stay_there)
        verb = "stays" if count == 1 else "stay"
        return (
            f"{counted(count)} {verb} in {self.other}, changed since or needed by another merge: "
            f"{some_of(self.stay_there)}"
        )

    @property
    def index_note(self) -> str:
        """Sentence about index entries that were left unchanged; empty if there are none."""
        return entries_left_in_words(self.entries_left)
