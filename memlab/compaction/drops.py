"""Erasing from an archive: the words of deleted memories, and with them what restores them."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import pandas as pd

from memlab import columns as c
from memlab.clock import aware, moment_or_now
from memlab.compaction.archive_views import look_into
from memlab.compaction.wire import minute
from memlab.errors import ArchiveError
from memlab.evidence.past import DELETION, deletions_of, facts_of, sound, with_deletions
from memlab.evidence.references import find_references
from memlab.frame.loading import frame_of, load
from memlab.sources.archived import open_archived
from memlab.sources.base import Source, archive_at
from memlab.sources.opening import SourceLike
from memlab.store.archive.archive import Archive, archive_errors
from memlab.store.archive.content_copies import count_copies, erase_copies
from memlab.store.archive.hashed_names import make_key
from memlab.store.archive.opening import check_not_renamed, open_archive
from memlab.store.archive.schema import Dropped, Entry
from memlab.store.archive.tombstones import drop, drop_facts
from memlab.text import DisplayMixin, TextPage, counted

NO_ARCHIVE_BEFORE: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""memlab made no archive before this: an earlier time comes from a clock that was wrong."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, repr=False)
class ArchiveErasure(DisplayMixin):
    """What dropping erases, or has erased.

    `entries` are the deletions whose copies go; `passed_over` says which are not dropped by a
    date, and why. With `facts_too` the `facts` of earlier drops go as well, and `references` count
    no more. ``copies`` of these memories, and of others as they were before, go too.
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
        """How many memories can be restored no more."""
        return sum(entry.left for entry in self.entries)

    @property
    def never_restored(self) -> int:
        """How many of these were never put back: the archive has the only copy that is known."""
        return sum(entry.left - entry.restored for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        return {
            "plans": [entry.digest for entry in self.entries],
            "memories": self.memories,
            "never_restored": self.never_restored,
            "facts_too": self.facts_too,
            "facts": sum(each.memories for each in self.facts),
            "references": self.references,
            "copies": self.copies,
            "passed_over": list(self.passed_over),
        }

    def sheet(self) -> TextPage:
        """Return what is printed."""
        plans = counted(len(self.entries), "plans")
        title = f"drop {counted(self.memories)} of {plans} from the archive of {self.store}"
        gone = self.never_restored
        facts = [("never restored", f"{gone:,}: nothing brings these back" if gone else "none")]
        for entry in self.entries:
            archived = f"archived {minute(entry.archived_at)}"
            facts.append((entry.digest[:12], f"{counted(entry.left)}, {archived}"))
        facts += [
            (each.digest[:12], f"the facts of {counted(each.memories)}") for each in self.facts
        ]
        if self.copies:
            facts.append(("copies", f"{self.copies:,} that memlab kept of what was in the store"))
        if self.facts_too:
            lost = f"{counted(self.references, 'references')} to them count no more"
            history = "the history is incomplete for good"
            cap = "a recommended cap stays above all written since"
            facts.append(("cost", f"{lost}; {history}, and {cap}"))
        else:
            kept = "position, time, kind, label, size, hashed names: references to them count on"
            facts.append(("facts kept", kept))
        facts += [("not by date", why) for why in self.passed_over]
        return TextPage(title, facts)


def drop_archived(
    store: SourceLike,
    *,
    before: datetime | None = None,
    digest: str | None = None,
    facts_too: bool = False,
    now: datetime | None = None,
) -> ArchiveErasure:
    """Erase the words of deleted memories from the archive for good; keep the facts of each.

    The room that they took goes back to the disk. :func:`what_drops` says what it would erase.

    Parameters
    ----------
    store : str, Path or Source
        The store. Its rows are not touched.
    before : datetime, optional
        Drop what was archived earlier than this, with a time zone. Where the clock that wrote the
        time was wrong for sure, a deletion is passed over: name it.
    digest : str, optional
        Drop this deletion; the beginning of its digest will do. Either this or `before` is given.
    facts_too : bool
        Whether to erase as well that the memories were there. Then references to them count no
        more, and the store's history has a gap.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    """
    until = _until(before, digest)
    moment = moment_or_now(now, call="memlab.compaction.drop_archived")
    source = open_archived(store, digest or "")
    lost = _taken_by(source) if facts_too else None  # before anything is locked: it takes long
    check_not_renamed(archive_at(source))
    with open_archive(archive_at(source)) as archive:
        # Nobody's apply is then between its copies and its deletion.
        with nullcontext() if _is_lost(source) else source.changing():
            found = _chosen(source, archive, until, digest, facts_too=facts_too)
            erase_copies(archive, _names(source, archive, found.entries), until)
            key = b"" if facts_too else make_key(archive)
            for entry in found.entries:
                kept = not (facts_too or entry.recovers)
                facts = facts_of(sound(_frame(source, archive, entry)), key) if kept else ()
                drop(archive, entry, facts, at=moment)
            if found.facts:
                drop_facts(archive, found.facts)
        if not found.is_empty:
            # Without room on the disk for it the pages stay, and are filled again.
            with suppress(ArchiveError), archive_errors(archive.path):
                archive.connection.execute("VACUUM")
    return found if lost is None else _with_cost(found, lost)


def what_drops(
    store: SourceLike,
    *,
    before: datetime | None = None,
    digest: str | None = None,
    facts_too: bool = False,
) -> ArchiveErasure:
    """Say what :func:`drop_archived` would erase, of the same arguments. Reads only."""
    until = _until(before, digest)
    source = open_archived(store, digest or "")
    found = look_into(
        source, lambda archive: _chosen(source, archive, until, digest, facts_too=facts_too)
    )
    return _with_cost(found, _taken_by(source)) if facts_too else found


def _until(before: datetime | None, digest: str | None) -> datetime:
    """Check that a caller names a deletion or a moment; return the moment, else one before all."""
    if (before is None) == (digest is None):
        raise ValueError(f"give either before={before!r} or digest={digest!r}")
    return _NEVER if before is None else aware(before, call="drop_archived", name="before")


def _chosen(
    source: Source, archive: Archive, until: datetime, digest: str | None, *, facts_too: bool
) -> ArchiveErasure:
    """Return what goes, and how many copies with it."""
    dropped = archive.dropped() if facts_too else []
    doubts = dict[Entry, str]()
    if digest is not None:
        facts = [each for each in dropped if digest and each.digest.startswith(digest)]
        if len(facts) > 1:
            raise archive.ambiguous(digest, facts)
        entries = [] if facts else [archive.entry(digest)]
    else:
        latest = _NEVER
        for entry in archive.entries():
            if entry.archived_at < until:
                doubts[entry] = _doubt(source, archive, entry, latest)
            latest = max(latest, entry.archived_at)
        facts = [each for each in dropped if each.deleted_at < until]
        entries = [entry for entry, doubt in doubts.items() if not doubt]
    return ArchiveErasure(
        source.name,
        tuple(entries),
        facts_too,
        tuple(facts),
        passed_over=tuple(filter(None, doubts.values())),
        copies=count_copies(archive, _names(source, archive, entries), until),
    )


def _names(source: Source, archive: Archive, entries: Iterable[Entry]) -> set[str]:
    """Return the ids of the memories of deletions, where copies are kept."""
    if not archive.has_table("copies"):
        return set()
    deletions = (entry for entry in entries if not entry.recovers)
    records = (record for entry in deletions for _, record in archive.records(entry))
    return {source.facts_of(record).memory_id or "" for record in records}


def _doubt(source: Source, archive: Archive, entry: Entry, latest_before: datetime) -> str:
    """Say why the time of an entry cannot be true; nothing where it can."""
    at = entry.archived_at
    if at < NO_ARCHIVE_BEFORE:
        why = "before there was memlab"
    elif at < latest_before:
        why = "before a plan that was applied earlier"
    else:
        written = _frame(source, archive, entry)[c.CREATED_AT].max()
        if not at < written:  # or none says when
            return ""
        why = f"before its memories were written ({minute(written)})"
    return (
        f"plan {entry.digest[:12]} says {minute(at)}, {why}: the clock was wrong; "
        f"--drop {entry.digest[:12]} drops it all the same"
    )


def _taken_by(source: Source) -> "pd.Series[int]":
    """Return for each reference so far the number of the deletion that took what it is to."""
    if _is_lost(source):
        return pd.Series(dtype="int64")
    past = with_deletions(load(source, on_bad_row="keep"), deletions_of(source))
    deletion_at = dict(zip(past[c.POSITION], past.pop(DELETION), strict=True))
    return find_references(past)[c.TARGET_POSITION].map(deletion_at)


def _with_cost(found: ArchiveErasure, taken_by: "pd.Series[int]") -> ArchiveErasure:
    going = [each.apply for each in found.entries] + [each.apply for each in found.facts]
    return replace(found, references=int(taken_by.isin(going).sum()))


def _is_lost(source: Source) -> bool:
    return source.permissions_template is not None and not source.permissions_template.exists()


def _frame(source: Source, archive: Archive, entry: Entry) -> pd.DataFrame:
    rows = source.rows_of(archive.records(entry), with_body=True)
    return frame_of(rows, name=str(archive.path), on_bad_row="keep")
