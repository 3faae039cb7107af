"""Erase the content of deleted memories from an archive. Nothing restores them afterwards."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import pandas as pd

from memlab import columns as c
from memlab.clock import aware, moment_or_now
from memlab.compaction.archive_views import read_archive_of
from memlab.compaction.wire import minute_in_words
from memlab.errors import ArchiveError
from memlab.evidence.past import (
    DELETION,
    deletions_of,
    facts_of,
    interpretable_rows,
    with_deletions,
)
from memlab.evidence.references import find_references
from memlab.frame.loading import frame_of, load
from memlab.sources.archived import open_archived
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike
from memlab.store.archive.content_copies import count_copies, erase_copies
from memlab.store.archive.hashed_names import make_key
from memlab.store.archive.open_archive import OpenArchive, archive_errors
from memlab.store.archive.schema import Dropped, Entry
from memlab.store.archive.tombstones import drop, erase_tombstones
from memlab.text import DisplayMixin, TextPage, counted

NO_ARCHIVE_BEFORE: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""Time before the first archive of memlab: an earlier time comes from a wrong clock."""
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, repr=False)
class ArchiveErasure(DisplayMixin):
    """Content of an archive that is to be erased, or was erased.

    Attributes
    ----------
    store : str
        The store.
    entries : tuple of Entry
        The deletions whose copies are erased.
    facts_too : bool
        Whether tombstones are erased as well.
    facts : tuple of Dropped
        The earlier erasures whose tombstones are erased.
    references : int
        The number of references that no longer count without the tombstones.
    passed_over : tuple of str
        Why some deletions before the given date are not erased, in a sentence each.
    copies : int
        The number of copies of contents that are erased: of these memories, and, if a date is
        given, of earlier contents of other memories.

    Examples
    --------
    >>> ArchiveErasure("notes.db", ()).is_empty
    True
    """

    store: str
    entries: tuple[Entry, ...]
    facts_too: bool = False
    facts: tuple[Dropped, ...] = ()
    references: int = 0
    passed_over: tuple[str, ...] = ()
    copies: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to erase."""
        return not (self.entries or self.facts or self.copies)

    @property
    def memories(self) -> int:
        """Number of memories that can no longer be restored."""
        return sum(entry.copies for entry in self.entries)

    @property
    def never_restored(self) -> int:
        """Number of these memories that were never restored. The archive has their only copy."""
        return sum(entry.copies - entry.restored for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the erasure as JSON values."""
        return {
            "plans": [entry.digest for entry in self.entries],
            "memories": self.memories,
            "never_restored": self.never_restored,
            "facts_too": self.facts_too,
            "facts": sum(dropped.memories for dropped in self.facts),
            "references": self.references,
            "copies": self.copies,
            "passed_over": list(self.passed_over),
        }

    def sheet(self) -> TextPage:
        """Return the printed page."""
        plans = counted(len(self.entries), "plans")
        title = f"drop {counted(self.memories)} of {plans} from the archive of {self.store}"
        never_restored = "none"
        if self.never_restored:
            never_restored = f"{self.never_restored:,}: nothing brings these back"
        facts = [("never restored", never_restored)]
        for entry in self.entries:
            archived = f"archived {minute_in_words(entry.archived_at)}"
            facts.append((entry.digest[:12], f"{counted(entry.copies)}, {archived}"))
        facts += [
            (dropped.digest[:12], f"the facts of {counted(dropped.memories)}")
            for dropped in self.facts
        ]
        if self.copies:
            facts.append(("copies", f"{self.copies:,} that memlab kept of what was in the store"))
        if self.facts_too:
            lost = f"{counted(self.references, 'references')} to them no longer count"
            history = "the history is incomplete for good"
            cap = "a recommended cap stays above all written since"
            facts.append(("cost", f"{lost}; {history}, and {cap}"))
        else:
            kept = "position, time, kind, label, size, hashed names: references to them still count"
            facts.append(("facts kept", kept))
        facts += [("not by date", reason) for reason in self.passed_over]
        return TextPage(title, facts)


def drop_archived(
    store: SourceLike,
    *,
    before: datetime | None = None,
    digest: str | None = None,
    facts_too: bool = False,
    now: datetime | None = None,
) -> ArchiveErasure:
    """Erase the content of deleted memories from the archive for good; keep a tombstone of each.

    The space is returned to the disk. :func:`plan_erasure` returns what would be erased.

    Parameters
    ----------
    store : str, Path or Source
        The store. Its rows are not touched.
    before : datetime, optional
        Erase the content of deletions that were archived before this time, with a time zone. A
        deletion whose time certainly comes from a wrong clock is skipped. It can be erased by its
        digest.
    digest : str, optional
        Erase the content of this deletion: its digest, or the first characters. Exactly one of
        `before` and `digest` is given.
    facts_too : bool
        Erase the tombstones as well. References to these memories then no longer count, and the
        history of the store has a gap.
    now : datetime, optional
        The time that the archive records. The current time by default.

    Returns
    -------
    ArchiveErasure
        The deletions and the copies that were erased.

    Raises
    ------
    ArchiveError
        If there is no archive, or no such deletion in it.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> erasure = drop_archived(store, digest=receipt.digest)
    >>> erasure.memories == receipt.deleted
    True
    """
    end = _end_of_period(before, digest)
    moment = moment_or_now(now, call="memlab.compaction.drop_archived")
    source = open_archived(store, digest or "")
    # Finding references takes long, so it is done before anything is locked.
    deletion_numbers = _deletion_of_each_reference(source) if facts_too else None
    with source.archive.writing() as archive:
        # While the store is locked, no plan is between its copies and its deletion.
        store_lock = nullcontext() if _is_lost(source) else source.changing()
        with store_lock:
            erasure = _erasure_of(source, archive, end, digest, facts_too=facts_too)
            _erase(source, archive, erasure, end, moment)
        if not erasure.is_empty:
            # If the disk has no room for VACUUM, the free pages stay and are used again.
            with suppress(ArchiveError), archive_errors(archive.path):
                archive.connection.execute("VACUUM")
    if deletion_numbers is None:
        return erasure
    return _with_lost_references(erasure, deletion_numbers)


def _erase(
    source: Source,
    archive: OpenArchive,
    erasure: ArchiveErasure,
    end: datetime,
    now: datetime,
) -> None:
    """Erase the content of deletions, and their tombstones if the erasure includes them."""
    erase_copies(archive, _memory_ids(source, archive, erasure.entries), end)
    hash_key = b"" if erasure.facts_too else make_key(archive)
    for entry in erasure.entries:
        facts: Iterable[str] = ()
        if not erasure.facts_too and not entry.is_recovery:
            facts = facts_of(interpretable_rows(_frame(source, archive, entry)), hash_key)
        drop(archive, entry, facts, at=now)
    if erasure.facts:
        erase_tombstones(archive, erasure.facts)


def plan_erasure(
    store: SourceLike,
    *,
    before: datetime | None = None,
    digest: str | None = None,
    facts_too: bool = False,
) -> ArchiveErasure:
    """Plan the erasure of :func:`drop_archived`. The archive is only read.

    The parameters are those of :func:`drop_archived`.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> plan_erasure(store, digest=receipt.digest).memories == receipt.deleted
    True
    """
    end = _end_of_period(before, digest)
    source = open_archived(store, digest or "")
    erasure = read_archive_of(
        source, lambda archive: _erasure_of(source, archive, end, digest, facts_too=facts_too)
    )
    if not facts_too:
        return erasure
    return _with_lost_references(erasure, _deletion_of_each_reference(source))


def _end_of_period(before: datetime | None, digest: str | None) -> datetime:
    """Return the time before which deletions are erased.

    If a digest selects one deletion, return the earliest time of all, so that no other deletion is
    erased. Raise ValueError unless exactly one of the two arguments is given.
    """
    if (before is None) == (digest is None):
        raise ValueError(f"give either before={before!r} or digest={digest!r}")
    return _EARLIEST if before is None else aware(before, call="drop_archived", name="before")


def _erasure_of(
    source: Source,
    archive: OpenArchive,
    end: datetime,
    digest: str | None,
    *,
    facts_too: bool,
) -> ArchiveErasure:
    """Return the erasure of the deletion with a digest; without one, of all before `end`."""
    earlier_erasures = archive.dropped() if facts_too else []
    entries = list[Entry]()
    reasons_to_skip = list[str]()
    if digest is None:
        tombstones = [erasure for erasure in earlier_erasures if erasure.deleted_at < end]
        latest_before = _EARLIEST
        for entry in archive.entries():
            if entry.archived_at < end:
                reason = _reason_to_doubt(source, archive, entry, latest_before)
                if reason:
                    reasons_to_skip.append(reason)
                else:
                    entries.append(entry)
            latest_before = max(latest_before, entry.archived_at)
    else:
        tombstones = [
            erasure for erasure in earlier_erasures if digest and erasure.digest.startswith(digest)
        ]
        if len(tombstones) > 1:
            raise archive.ambiguous(digest, tombstones)
        if not tombstones:
            entries.append(archive.entry(digest))
    return ArchiveErasure(
        store=source.name,
        entries=tuple(entries),
        facts_too=facts_too,
        facts=tuple(tombstones),
        passed_over=tuple(reasons_to_skip),
        copies=count_copies(archive, _memory_ids(source, archive, entries), end),
    )


def _memory_ids(source: Source, archive: OpenArchive, entries: Iterable[Entry]) -> set[str]:
    """Return the ids of the memories of deletions; none if the archive keeps no copies."""
    if not archive.has_table("copies"):
        return set()
    memory_ids = set[str]()
    for entry in entries:
        if entry.is_recovery:
            continue
        for _, record in archive.records(entry):
            memory_ids.add(source.facts_of(record).memory_id or "")
    return memory_ids


def _reason_to_doubt(
    source: Source, archive: OpenArchive, entry: Entry, latest_before: datetime
) -> str:
    """Return why the time of an entry certainly comes from a wrong clock; empty if it may be right.

    `latest_before` is the latest time of the entries that were archived before this one.
    """
    at = entry.archived_at
    if at < NO_ARCHIVE_BEFORE:
        reason = "before there was memlab"
    elif at < latest_before:
        reason = "before a plan that was applied earlier"
    else:
        created_at = _frame(source, archive, entry)[c.CREATED_AT].max()
        if pd.isna(created_at) or at >= created_at:
            return ""
        reason = f"before its memories were written ({minute_in_words(created_at)})"
    return (
        f"plan {entry.digest[:12]} says {minute_in_words(at)}, {reason}: the clock was wrong; "
        f"--drop {entry.digest[:12]} drops it all the same"
    )


def _deletion_of_each_reference(source: Source) -> "pd.Series[int]":
    """Return for each reference the number of the deletion of its target; NaN for none."""
    if _is_lost(source):
        return pd.Series(dtype="int64")
    history = with_deletions(load(source, on_bad_row="keep"), deletions_of(source))
    deletion_by_position = dict(zip(history[c.POSITION], history.pop(DELETION), strict=True))
    return find_references(history)[c.TARGET_POSITION].map(deletion_by_position)


def _with_lost_references(
    erasure: ArchiveErasure, deletion_numbers: "pd.Series[int]"
) -> ArchiveErasure:
    """Return an erasure with the number of references that no longer count.

    `deletion_numbers` has for each reference the number of the deletion of its target.
    """
    erased_numbers = [entry.number for entry in erasure.entries]
    erased_numbers += [dropped.number for dropped in erasure.facts]
    return replace(erasure, references=int(deletion_numbers.isin(erased_numbers).sum()))


def _is_lost(source: Source) -> bool:
    """Return whether the file or folder of a store is missing."""
    return source.local_path is not None and not source.local_path.exists()


def _frame(source: Source, archive: OpenArchive, entry: Entry) -> pd.DataFrame:
    """Return the copies of a deletion as a frame."""
    rows = source.rows_of(archive.records(entry), with_body=True)
    return frame_of(rows, name=str(archive.path), on_bad_row="keep")
