"""Apply a plan of an index, and undo it byte for byte."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memlab import errors
from memlab.clock import moment_or_now
from memlab.compaction.index_plans import IndexPlan, IndexReceipt, receipt_of_index
from memlab.compaction.recorded_change import RecordedChange
from memlab.compaction.store_change import StoreChange, explain_unrecorded
from memlab.sources.base import Source
from memlab.sources.capabilities import IndexMending, require
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import IndexWriter, StepCallback, no_progress
from memlab.store.archive.index_versions import (
    IndexVersion,
    digest_of,
    note_index_undone,
    note_index_versions,
)
from memlab.store.archive.schema import INDEX_POLICY, NewEntry, PlanText
from memlab.store.snapshot import retry_if_changed
from memlab.text import DisplayMixin, TextPage, command

_OTHERS_MAY_ACCESS: Final = 0o066
"""Permission bits that let the group and others read or write a file."""


@dataclass(frozen=True)
class IndexChange(StoreChange):
    """Context of a change of an index."""

    writer: IndexWriter


def apply_index_plan(
    plan: IndexPlan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
) -> IndexReceipt:
    """Apply a plan of an index: archive the index as it is, then replace it in one step.

    The parameters and the errors are those of :func:`memlab.apply`.
    """
    source = open_source(plan.store if store is None else store)
    mending = _mending_of(source)
    moment = moment_or_now(now, call="memlab.apply")
    if plan.is_empty:
        return receipt_of_index(plan, None, moment)

    def carry_out() -> IndexReceipt:
        # `mending.changing()` locks the folder; the archive is opened within that lock.
        with source.archive.changing(mending.changing()) as opened:
            change = IndexChange(
                source=source,
                writer=opened.writer,
                archive=opened.archive,
                now=moment,
                on_step=on_step,
            )
            on_step("locked")
            _apply_locked(change, plan)
            opened.after_commit = lambda: _mark_applied(change, plan)
        return receipt_of_index(plan, str(source.archive_path), moment)

    return retry_if_changed(carry_out)


def _mending_of(source: Source) -> IndexMending:
    """Return the ability of a source to change its index; raise PlanError if it has none."""
    mending = require(source, "index").mending
    if mending is None:
        raise errors.PlanError(f"memlab never changes the index of {source.name}")
    return mending


def _apply_locked(change: IndexChange, plan: IndexPlan) -> None:
    """Apply a plan while the lock of its folder is held."""
    archive = change.archive
    archive.check_entries()
    entry = archive.find_entry(plan.digest)
    if entry is not None and entry.finished_at is not None:
        raise errors.AlreadyAppliedError(
            f"plan {plan.digest[:12]} was applied on {entry.finished_at:%Y-%m-%d %H:%M} UTC; make "
            "a new plan",
            applied_at=entry.finished_at,
        )
    current = change.writer.index_now()
    if entry is not None and digest_of(current.data) == plan.digest_after:
        return  # an interrupted attempt changed the index; the caller only records that
    change.reconcile(discard_unchanged=True)
    if digest_of(current.data) != plan.digest_before:
        raise errors.StalePlanError(
            f"{plan.index} was changed since plan {plan.digest[:12]} was made; nothing was "
            "changed: make a new plan"
        )
    change.on_step("checked")
    _check_permissions(change, current.name)
    text = plan.to_json()
    new_entry = NewEntry(
        digest=plan.digest,
        policy=INDEX_POLICY,
        made_at=plan.made_at,
        memories=0,
        plan=PlanText(lambda: [text]),
    )
    with archive.adding_entry(
        new_entry, (), at=change.now, on_step=change.on_step, is_unchanged_after=_is_unchanged_after
    ):
        # The digest tells a later undo whether somebody edited the index since.
        version_before = current._replace(digest_after=plan.digest_after)
        note_index_versions(archive, plan.digest, [version_before])
        change.writer.rewrite_index(plan.text.encode(), digest=plan.digest_before)
        change.on_step("verified")


def _is_unchanged_after(error: BaseException) -> bool:
    """Return whether an index is unchanged after an error during its change."""
    return isinstance(error, (errors.StalePlanError, errors.ChangedWhileReadError))


def _check_permissions(change: StoreChange, name: str) -> None:
    """Raise PlanError if more people may read the archive than the index that it would copy."""
    folder = change.source.local_path
    if folder is None:
        return
    index = folder / name
    archive = change.archive.path
    with suppress(FileNotFoundError):
        index_mode = index.stat().st_mode
        archive_mode = archive.stat().st_mode
        wider_bits = archive_mode & ~index_mode
        if wider_bits & _OTHERS_MAY_ACCESS:
            raise errors.PlanError(
                f"{archive} would have a copy of {index}, and more people may read it; "
                f"nothing was changed: chmod go-rwx {archive}"
            )


def _mark_applied(change: StoreChange, plan: IndexPlan) -> None:
    """Record in the archive that a plan was applied."""
    change.on_step("committed")
    with explain_unrecorded(f"{plan.index} was changed in {change.source.name}"):
        change.archive.mark_applied(plan.digest, change.now)
    change.on_step("recorded")


@dataclass(frozen=True, repr=False)
class IndexRestored(DisplayMixin):
    """Result of undoing a change of an index.

    Attributes
    ----------
    index : str
        File name of the index.
    is_exact : bool
        Whether it has the bytes from before the change again.
    stays : tuple of str
        Changed lines that somebody edited since. The undo leaves them as they are.

    Examples
    --------
    >>> IndexRestored("MEMORY.md", is_exact=False, stays=("- [Release](release.md)",)).is_exact
    False
    """

    index: str
    is_exact: bool
    stays: tuple[str, ...] = ()

    def sheet(self) -> TextPage:
        """Return the printed page."""
        return TextPage(self.in_words(), [("stays", line) for line in self.stays])

    def in_words(self, plan: str = "the plan") -> str:
        """Return the result as a sentence, in which `plan` names the plan."""
        if self.is_exact:
            return f"{self.index} is again as it was before {plan}"
        edited = f"{self.index} was edited since {plan}: the edit stays"
        return f"{edited}, and only the changes of the plan are undone"


def restore_index(
    source: Source, recorded: RecordedChange, *, now: datetime, on_step: StepCallback = no_progress
) -> IndexRestored:
    """Undo a change of an index. Lines that somebody else wrote since are kept."""
    plan = recorded.index_plan
    mending = _mending_of(source)
    version_before = recorded.index_before.get(plan.index)
    if version_before is None:
        listing = command("archive", source.name)
        raise errors.ArchiveError(
            f"the archive no longer has {plan.index} from before plan {plan.digest[:12]}; "
            f"nothing was changed: a drop erases the indexes, which quote memories; {listing} "
            "lists what it has"
        )

    def carry_out() -> IndexRestored:
        with mending.changing() as writer:
            on_step("locked")
            restored = _restore_locked(writer, mending, plan, version_before)
            on_step("verified")
        return restored

    restored = retry_if_changed(carry_out)
    on_step("committed")
    with explain_unrecorded(f"{plan.index} was restored in {source.name}"):
        if recorded.entry.finished_at is None:
            recorded.archive.mark_applied(plan.digest, now)
        note_index_undone(recorded.archive, plan.digest, now)
    on_step("recorded")
    return restored


def _restore_locked(
    writer: IndexWriter, mending: IndexMending, plan: IndexPlan, version_before: IndexVersion
) -> IndexRestored:
    """Restore the index from before a plan while the lock of its folder is held."""
    before = version_before.data
    current = writer.index_now().data
    if current == before:
        return IndexRestored(index=plan.index, is_exact=True)
    digest = digest_of(current)
    is_as_plan_left_it = digest == plan.digest_after
    if current is None or is_as_plan_left_it:
        # The file gets its former time of modification, too.
        writer.rewrite_index(before, digest=digest, written=version_before.written)
        return IndexRestored(index=plan.index, is_exact=True)
    undone = mending.without_change(before, plan.text.encode(), current)
    if undone.data != current:
        writer.rewrite_index(undone.data, digest=digest)
    return IndexRestored(index=plan.index, is_exact=undone.data == before, stays=undone.stays)
