"""One change of a store: its context, and the steps that all changes share.

Applying, restoring, superseding, retiring and recovering each hold a :class:`StoreChange` while the
store is locked and its archive is open.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from memlab import errors
from memlab.compaction.plans import Plan, PlannedIndexEntries, PlannedMemory, Receipt
from memlab.compaction.recorded_change import RecordedChange
from memlab.sources.base import Source
from memlab.sources.capabilities import Supersession, check_deletable, require, superseding_id
from memlab.sources.readers import Key, Reader, StepCallback, SupersedingWriter, Writer
from memlab.store.archive.index_versions import digest_of
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Entry
from memlab.text import counted


@dataclass(frozen=True)
class StoreChange:
    """Context of one change of a store.

    Attributes
    ----------
    source : Source
        The store.
    writer : Writer
        Changes the store. It holds the lock of the store, if stores of its kind can be locked.
    archive : OpenArchive
        The archive, open for writing.
    now : datetime
        The time of the change that the archive records.
    on_step : callable
        Progress callback.
    """

    source: Source
    writer: Writer
    archive: OpenArchive
    now: datetime
    on_step: StepCallback

    def reconcile(self, *, discard_unchanged: bool = False) -> tuple[str, ...]:
        """Mark plans as applied that were interrupted after their changes; return their digests.

        With `discard_unchanged`, discard those that were interrupted before any change. See
        :meth:`OpenArchive.reconcile_interrupted`.
        """
        is_done = partial(is_in_effect, self.writer, self.source, self.archive)
        return self.archive.reconcile_interrupted(
            self.writer.records, at=self.now, is_done=is_done, discard=discard_unchanged
        )


@dataclass(frozen=True)
class PlannedChange(StoreChange):
    """Context of applying or undoing a plan.

    Attributes
    ----------
    plan : Plan
        The plan.
    """

    plan: Plan

    def resume(self, entry: Entry) -> bool:
        """Finish the plan if it was interrupted after its deletion began.

        Parameters
        ----------
        entry : Entry
            The plan in the archive.

        Returns
        -------
        bool
            Whether the plan is applied now.

        Raises
        ------
        AlreadyAppliedError
            If the archive has marked the plan as applied.
        """
        plan = self.plan
        if entry.finished_at is not None:
            restored = f", {entry.restored:,} of them restored since" if entry.restored else ""
            receipt = receipt_of(plan, self.source, entry.finished_at)
            done = changes_in_words(replace(receipt, deleted=entry.memories))
            raise errors.AlreadyAppliedError(
                f"plan {plan.digest[:12]} was applied on {entry.finished_at:%Y-%m-%d %H:%M} UTC: "
                f"{done} in {self.archive.path}{restored}; make a new plan",
                applied_at=entry.finished_at,
                restored=entry.restored,
            )
        if plan.links:
            return _is_linked(self.writer, self.source, plan)
        state = self.archive.state_of(self.writer.records, entry)
        if state.is_gone:
            return True
        # Only a source without transactions can stop after deleting some of the memories.
        is_half_done = not self.writer.atomic and bool(state.absent) and not state.changed
        if not is_half_done:
            return False
        remaining = {
            memory.key: memory.fingerprint for memory in plan.memories if memory.key in state.same
        }
        self.writer.delete(remaining, on_step=self.on_step)
        self.on_step("verified")
        return True


@dataclass(frozen=True)
class LinkingChange(PlannedChange):
    """Context of applying or undoing a plan that supersedes, retires or returns memories."""

    writer: SupersedingWriter


def opened_for(plan: Plan, source: Source) -> AbstractContextManager[Writer]:
    """Open a store for the changes that a plan makes to it."""
    if plan.links:
        return opened_to_supersede(plan, source)
    check_deletable(source)
    return source.changing()


def opened_to_supersede(plan: Plan, source: Source) -> AbstractContextManager[SupersedingWriter]:
    """Open a store for a plan that supersedes, retires or returns memories."""
    check_deletable(source)
    if plan.supersedes:
        return require(source, "supersession").changing()
    return require(source, "retirement").changing()


def _is_index_changed(source: Source, recorded: RecordedChange) -> bool | None:
    """Return whether an index is as a plan leaves it.

    Return None if this cannot be decided: the plan cannot be read, memlab does not change indexes
    of this kind, or somebody edited the index since.
    """
    try:
        plan = recorded.index_plan
    except errors.ArchiveError:
        return None
    mending = None if source.index is None else source.index.mending
    if mending is None:
        return None
    digest = digest_of(mending.content())
    if digest == plan.digest_after:
        return True
    if digest == plan.digest_before:
        return False
    return None


def is_in_effect(reader: Reader, source: Source, archive: OpenArchive, entry: Entry) -> bool | None:
    """Return whether a store shows the change of a plan that deletes no memories.

    Such a plan superseded or retired memories, or changed the index. Return None if this cannot be
    decided: the plan cannot be read, not all memories that it supersedes are superseded, or
    somebody edited the index since.
    """
    recorded = RecordedChange(archive, entry)
    if entry.is_index_change:
        return _is_index_changed(source, recorded)
    try:
        plan = recorded.plan
    except errors.ArchiveError:
        return None
    if _is_linked(reader, source, plan):
        return True
    if plan.moves:
        return False
    return None


def _is_linked(reader: Reader, source: Source, plan: Plan) -> bool:
    """Return whether the store has the links that a plan sets.

    A plan that retires or returns needs one of its links to be set, a plan that supersedes all of
    them.
    """
    current = links_of(reader, source, plan.links)
    links_set = plan.links.items() & current.items()
    if plan.moves:
        return bool(links_set)
    return len(links_set) == len(plan.links)


def links_of(reader: Reader, source: Source, keys: Iterable[Key]) -> dict[Key, str | None]:
    """Return by key the id of the memory that supersedes each memory in the store, or None."""
    return {key: superseding_id(source, record) for key, record in reader.records(keys)}


def entries_of(
    reader: Reader, retirement: Supersession, moves: Iterable[PlannedMemory]
) -> tuple[PlannedIndexEntries, ...]:
    """Return the index entries of memories that a plan retires or returns.

    Memories without an entry are left out.
    """
    entries = []
    for key, record in reader.records(memory.key for memory in moves):
        lines = retirement.index_entries_of(record)
        if lines:
            entries.append(PlannedIndexEntries(key, lines))
    return tuple(entries)


@contextmanager
def explain_unrecorded(done: str) -> Iterator[None]:
    """Add to an ArchiveError that the store was changed and the archive did not record it.

    `done` is a clause about the changes that were made.
    """
    try:
        yield
    except errors.ArchiveError as error:
        raise errors.ArchiveError(
            f"{done}, but the archive could not record it ({error.__cause__ or error}): run the "
            "same command again to record it"
        ) from error


def receipt_of(plan: Plan, source: Source, now: datetime) -> Receipt:
    """Return the receipt of a plan that was applied to a store completely."""
    return Receipt(
        digest=plan.digest,
        store=source.name,
        archive=str(source.archive_path),
        policy=plan.policy,
        made_at=plan.made_at,
        applied_at=now,
        deleted=len(plan.memories),
        boot_before=plan.boot_before,
        boot_after=plan.boot_after,
        token_rule=plan.token_rule,
        superseded=len(plan.supersedes),
        retired=len(plan.retires),
        returned=len(plan.returns),
        into=plan.into,
        copied=plan.copied.memories,
        start_before=None if plan.start is None else plan.start.before,
        start_after=None if plan.start is None else plan.start.after,
    )


def changes_in_words(receipt: Receipt) -> str:
    """Return a clause about the memories that a plan deleted, superseded, retired or returned.

    An example is "3 memories are deleted and archived".
    """
    clauses = []
    for participle, count in receipt.done:
        if count:
            verb = "is" if count == 1 else "are"
            clauses.append(f"{counted(count)} {verb} {participle}")
    if receipt.deleted and not receipt.into:
        clauses[-1] += " and archived"
    return " and ".join(clauses)
