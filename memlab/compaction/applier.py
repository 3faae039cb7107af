"""Apply a plan to its store: archive the memories it deletes, delete them, verify the result."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, TypeVar, overload

from memlab import errors
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.columns import UNLISTED
from memlab.compaction import plans
from memlab.compaction.index_change import apply_index_plan
from memlab.compaction.index_plans import IndexPlan, IndexReceipt
from memlab.compaction.merging import copies_removed_on_error, copy_into_other
from memlab.compaction.plans import KeptMemory, Plan, PlannedLink, PlannedMemory, Receipt
from memlab.compaction.recorded_change import RecordedChange
from memlab.compaction.store_change import (
    LinkingChange,
    PlannedChange,
    changes_in_words,
    entries_of,
    explain_unrecorded,
    opened_for,
    receipt_of,
)
from memlab.compaction.wire import some_of
from memlab.sources.base import Facts, Source
from memlab.sources.capabilities import require, superseding_id
from memlab.sources.opening import SourceLike, open_source, system_named
from memlab.sources.readers import Key, LinkChange, Reader, StepCallback, Writer, no_progress
from memlab.store.archive.index_versions import note_index_versions
from memlab.store.archive.retired import RetiredMemories, note_retired, retired_in
from memlab.store.archive.schema import NewCopy, NewEntry
from memlab.store.records import fingerprint_of
from memlab.store.snapshot import retry_if_changed
from memlab.text import counted

ChangedMemory = PlannedMemory | PlannedLink
"""A memory that a plan changes: deletes, supersedes, retires or returns."""
NamedMemory = PlannedMemory | PlannedLink | KeptMemory
"""A memory that a plan names."""
AnyNamedMemory = TypeVar("AnyNamedMemory", bound=NamedMemory)
_LETS_STAND: Final = "lets stand"
"""Action of a plan on a memory that supersedes another one: it stays as it is."""


@overload
def apply(
    plan: Plan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
    all_prunable: bool = False,
) -> Receipt: ...
@overload
def apply(
    plan: IndexPlan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
    all_prunable: bool = False,
) -> IndexReceipt: ...
def apply(
    plan: Plan | IndexPlan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
    all_prunable: bool = False,
) -> Receipt | IndexReceipt:
    """Apply a plan: archive the memories that it deletes, delete them, verify.

    A plan of :func:`memlab.plan_index` changes the index alone; the archive keeps the index as it
    was.

    A plan that supersedes or retires deletes nothing. The archive keeps such a plan so that it can
    be undone. The copies are committed and synced before the deletion commits. A process that is
    stopped at any moment can therefore leave a memory too many, never one too few. Applying the
    same plan again finishes it. An error means that nothing was deleted, unless its message says
    what was deleted and what to do next.

    Parameters
    ----------
    plan : Plan or IndexPlan
        The plan to apply.
    store : str, Path or Source, optional
        The store to apply the plan to, if the store has moved since. It must hold the same
        memories. By default the store that the plan was made from.
    now : datetime, optional
        The time of application that the archive records, with a time zone. The current time by
        default.
    on_step : callable, optional
        Progress callback. It is called with the name of each finished step: "locked" (no other
        process can write), "checked", "copied", "archived" (the copies are on the disk), "deleted",
        "verified", "committed" (the deletion is on the disk) and "recorded" (the archive has marked
        the plan as applied). A plan that merges two folders adds steps of the other folder, such as
        "copied there".
    all_prunable : bool
        Allow a plan that keeps no prunable memory. A plan made with a cap of 0 needs no such
        permission.

    Returns
    -------
    Receipt or IndexReceipt
        The record of the changes. Its digest undoes them with :func:`restore`.

    Raises
    ------
    StalePlanError
        If a memory that the plan decided on has changed or is missing, if the index has changed
        since an index plan was made, or if the other folder of a merge has changed.
    AlreadyAppliedError
        If the plan was applied before.
    CompactionError
        If the plan retires a load-bearing memory, or deletes one without a merge, if it describes
        a memory wrongly, or if it would change memories that it does not name.
    PlanError
        If the plan contradicts itself, if the store does not support its actions, or if it removes
        every prunable memory and `all_prunable` is false.
    ArchiveError
        If the memories cannot be archived.
    UnsafeDeletionError
        If it is unsafe to delete from a store of this kind.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> left = memlab.load(store)
    >>> int(left["prunable"].sum())
    50
    """
    expect(plan, Plan, IndexPlan, call="memlab.apply", name="plan")
    expect(all_prunable, bool, call="memlab.apply", name="all_prunable")
    if isinstance(plan, IndexPlan):
        return apply_index_plan(plan, store=store, now=now, on_step=on_step)
    _check_consistent(plan)
    if plan.removes_all_prunable and not (plan.policy_keeps_none or all_prunable):
        raise errors.PlanError(
            f"plan {plan.digest[:12]} would leave no prunable memory loaded; nothing was "
            "changed. To allow it, add --all, or all_prunable=True in Python"
        )
    source = _opened_as_planned(plan, store)
    moment = moment_or_now(now, call="memlab.apply")
    archive = source.archive
    if plan.is_empty and not archive.exists:
        return replace(receipt_of(plan, source, moment), archive=None)

    if not plan.is_empty:
        source.check_sound()

    def carry_out() -> Receipt:
        with (
            copies_removed_on_error(plan, source),
            archive.changing(opened_for(plan, source)) as opened,
        ):
            change_type: type[PlannedChange] = LinkingChange if plan.links else PlannedChange
            change = change_type(
                source=source,
                writer=opened.writer,
                archive=opened.archive,
                now=moment,
                on_step=on_step,
                plan=plan,
            )
            on_step("locked")
            receipt = _apply_locked(change)
            opened.after_commit = lambda: _mark_applied(change, receipt)
        return receipt

    return retry_if_changed(carry_out)


def _opened_as_planned(plan: Plan, store: SourceLike | None) -> Source:
    """Open the store of a plan and check that it is of the kind that the plan was made from."""
    location = plan.store if store is None else store
    planned_scheme = _planned_scheme(plan)
    source = open_source(location, planned_scheme=planned_scheme)
    system = system_named(source.scheme) if source.is_folder else None
    planned_system = system_named(planned_scheme) if planned_scheme else None
    if system is None or planned_system is None or source.scheme == planned_scheme:
        return source
    folder = str(source.local_path)
    names = (f"{source.scheme}:{folder}", f"{planned_scheme}:{folder}")
    raise errors.UndecidedKindError(
        f"plan {plan.digest[:12]} was made of {folder} as {planned_system.name}, and it is "
        f"{system.name}; nothing was changed: make a new plan of {' or '.join(names)}",
        folder=folder,
        names=names,
    )


def _planned_scheme(plan: Plan) -> str:
    """Return the scheme of the folder that a plan was made from; empty for other stores."""
    scheme, colon, _ = plan.store.partition(":")
    if colon:
        system = system_named(scheme)
        is_folder = system is not None and system.kind.is_folder
        return scheme if is_folder else ""
    # The plan names its store by a path. If the keys are texts, the store is a folder, and only
    # folders of Claude Code are named by a path.
    keys = chain((memory.key for memory in plan.memories), plan.links)
    has_text_keys = any(isinstance(key, str) for key in keys)
    return "claude" if has_text_keys else ""


def finish(
    store: SourceLike,
    digest: str,
    *,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
) -> Receipt | IndexReceipt:
    """Finish an interrupted plan, which is read from the archive.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    digest : str
        The digest of the plan, or its first characters.
    now, on_step
        As for :func:`apply`.

    Returns
    -------
    Receipt or IndexReceipt
        As for :func:`apply`, which lists the errors as well.

    Examples
    --------
    >>> import memlab
    >>> from contextlib import suppress
    >>> def interrupt(step):
    ...     if step == "archived":
    ...         raise KeyboardInterrupt
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> plan = memlab.plan(store, memlab.KeepRecent(50))
    >>> with suppress(KeyboardInterrupt):
    ...     apply(plan, on_step=interrupt)
    >>> finish(store, plan.digest).deleted
    384
    """
    source = open_source(store)
    source.archive.check()
    with source.archive.writing() as archive:
        recorded = RecordedChange.named(archive, digest)
        plan: Plan | IndexPlan
        plan = recorded.index_plan if recorded.entry.is_index_change else recorded.plan
    return apply(plan, store=source, now=now, on_step=on_step, all_prunable=True)


def _apply_locked(change: PlannedChange) -> Receipt:
    """Apply a plan while the write lock of its store is held."""
    plan = change.plan
    archive = change.archive
    writer = change.writer
    if not plan.is_empty:
        archive.check_entries()
    entry = archive.find_entry(plan.digest)
    complete_receipt = receipt_of(plan, change.source, change.now)
    if entry and change.resume(entry):
        expired_count = 0
        if not change.source.is_folder:
            # The entry of a database leaves out memories that had expired. The entry of a folder
            # leaves out private memories instead, because memories in a folder never expire.
            expired_count = complete_receipt.deleted - entry.memories
        return replace(complete_receipt, deleted=entry.memories, expired=expired_count)
    # A plan that deletes or moves memories discards each interrupted plan that changed nothing.
    # Other plans leave such plans in the archive.
    discard_unchanged = bool(plan.memories or plan.moves)
    finished = change.reconcile(discard_unchanged=discard_unchanged)
    expired_keys = _check_against_store(change)
    change.on_step("checked")
    skipped_keys = expired_keys | _private_keys(change)
    to_delete = [memory for memory in plan.memories if memory.key not in skipped_keys]
    links = {key: link for key, link in plan.links.items() if key not in expired_keys}
    receipt = replace(
        complete_receipt,
        finished=finished,
        deleted=len(to_delete),
        retired=sum(memory.key in links for memory in plan.retires),
        expired=len(expired_keys),
    )
    # A plan that was read from a file has no sizes of a start, nor has the plan of a merge.
    if plan.start is None and change.source.index is not None:
        receipt = _with_start(receipt, change)
    if not to_delete and not links:
        return replace(receipt, returned=0, archive=None)
    new_entry = NewEntry(
        digest=plan.digest,
        policy=plan.policy,
        made_at=plan.made_at,
        memories=len(to_delete),
        plan=plans.text_for_archive(plan, expired_keys),
    )
    with archive.adding_entry(
        new_entry,
        _copies(writer, change.source, to_delete),
        at=change.now,
        identity_sample=writer.identity_sample(memory.key for memory in plan.memories),
        on_step=change.on_step,
        is_unchanged_after=partial(_is_unchanged_after, writer),
    ):
        if plan.moves:
            # The archive records these before the store changes.
            _record_moves(change, links)
        if isinstance(change, LinkingChange):
            planned_entries = _planned_entries(plan, links)
            change.writer.supersede(LinkChange(links, planned=planned_entries))
        else:
            expected = {memory.key: memory.fingerprint for memory in to_delete}
            if plan.merges:
                copy_into_other(change, expected.keys())
            writer.delete(expected, on_step=change.on_step)
        note_index_versions(archive, plan.digest, writer.index_versions())
        change.on_step("verified")
    return receipt


def _with_start(receipt: Receipt, change: PlannedChange) -> Receipt:
    """Return a receipt with the sizes of a start before and after the plan.

    The store is still as before the plan.
    """
    from memlab.compaction.planner import start_change  # imports pandas

    start = start_change(change.source, change.plan)
    return replace(receipt, start_before=start.before, start_after=start.after)


def _is_unchanged_after(writer: Writer, error: BaseException) -> bool:
    """Return whether a store is unchanged after an error during its change."""
    return writer.atomic or isinstance(error, errors.StalePlanError)


def _record_moves(change: PlannedChange, linked_keys: Collection[Key]) -> None:
    """Record in the archive which memories a plan retires and which it returns.

    Of the retired memories, only those at `linked_keys` are recorded.
    """
    plan = change.plan
    retired = {memory.key: memory.memory_id for memory in plan.retires if memory.key in linked_keys}
    # A returned memory was needed, or the policy keeps it now.
    is_needed = {memory.key: memory.reason == plans.NEEDED for memory in plan.returns}
    note_retired(change.archive, plan.digest, retired=retired, returned=is_needed, at=change.now)


def _planned_entries(plan: Plan, linked_keys: Collection[Key]) -> dict[Key, str] | None:
    """Return the index entries that a plan saw, by key; None if the plan supersedes."""
    if not plan.moves:
        return None
    return {entry.key: entry.index_entries for entry in plan.entries if entry.key in linked_keys}


def _mark_applied(change: PlannedChange, receipt: Receipt) -> None:
    """Record in the archive that a plan was applied."""
    change.on_step("committed")
    if receipt.archive is None:
        return
    with explain_unrecorded(f"{changes_in_words(receipt)} in {change.source.name}"):
        change.archive.mark_applied(receipt.digest, receipt.applied_at)
    change.on_step("recorded")


def _private_keys(change: PlannedChange) -> frozenset[Key]:
    """Return the keys of memories that must not be copied into an archive of another user.

    Fewer people may read these memories than the archive, and the caller cannot restrict the
    permissions of the archive. The memories therefore stay in the store. If there are any, warn
    with ArchivePermissionsWarning.
    """
    if not change.source.is_folder:
        return frozenset()
    memories = change.plan.memories
    mode = change.archive.path.stat().st_mode
    records = change.writer.records(memory.key for memory in memories)
    private = frozenset(key for key, record in records if change.source.is_private(record, mode))
    if private:
        names = [memory.memory_id for memory in memories if memory.key in private]
        warnings.warn(
            f"{counted(len(private))} kept ({some_of(names)}): fewer people may read them than "
            f"{change.archive.path}, whose permissions only its owner can change",
            errors.ArchivePermissionsWarning,
            stacklevel=2,
        )
    return private


def _copies(reader: Reader, source: Source, memories: Sequence[PlannedMemory]) -> Iterator[NewCopy]:
    """Yield the copies of memories for the archive.

    Raise StalePlanError if a memory is missing: some kinds of store cannot be locked, so another
    process may have deleted it since the check. Raise ArchiveError if a restore would refuse a
    record.
    """
    # The conformance suite holds the records of memlab's own sources.
    is_own_source = type(source).__module__.startswith("memlab.")
    for memory, record in _with_records(reader, memories):
        if record is None:
            raise errors.StalePlanError(
                f"memory {memory.memory_id!r:.80} was deleted while the plan was applied; nothing "
                "was deleted: make a new plan",
                memory_ids=(memory.memory_id,),
            )
        if not is_own_source:
            _check_restorable(source, memory, record)
        yield NewCopy(memory.key, record, memory.reason, plans.planned_row(memory))


def _check_restorable(source: Source, memory: PlannedMemory, record: bytes) -> None:
    """Raise ArchiveError if a restore would refuse the record of a memory."""
    try:
        source.check_record(memory.key, record, json.loads(record))
    except ValueError as error:
        raise errors.ArchiveError(
            f"nothing was deleted: {type(source).__name__} wrote a record of "
            f"{memory.memory_id!r:.80} that its check_record refuses ({error}), so it could not "
            "be restored; mend the source"
        ) from error


def _with_records(
    reader: Reader, memories: Sequence[AnyNamedMemory]
) -> Iterator[tuple[AnyNamedMemory, bytes | None]]:
    """Yield memories with their records. The record of a missing memory is None."""
    # The reader yields the records that exist, in the order of the memories.
    records = reader.records(memory.key for memory in memories)
    next_key, next_record = next(records, (None, None))
    for memory in memories:
        if memory.key != next_key:
            yield memory, None
            continue
        yield memory, next_record
        next_key, next_record = next(records, (None, None))


def _nothing_was_done(plan: Plan) -> str:
    """Return the end of a message about a plan that was rejected before any change."""
    participle = "changed" if plan.links else "deleted"
    return f"nothing was {participle}: make a new plan"


def _check_consistent(plan: Plan) -> None:
    """Raise PlanError if a plan contradicts itself. The store is not needed for this check."""
    kinds_of_change = [plan.memories, plan.supersedes, plan.moves]
    if sum(bool(memories) for memories in kinds_of_change) > 1:
        raise errors.PlanError(
            f"plan {plan.digest[:12]} mixes deleting, superseding and retiring; nothing was "
            "changed: make one plan for each"
        )
    merged_keys = {memory.key for memory in plan.memories} if plan.merges else set()
    if {copy.key for copy in plan.copies} != merged_keys:
        raise errors.PlanError(
            f"plan {plan.digest[:12]} does not say for each memory what stands for it in "
            f"{plan.into or 'another folder'}; {_nothing_was_done(plan)}"
        )
    named: Iterator[NamedMemory] = chain(*plan.memories_by_action.values(), plan.kept)
    keys = [memory.key for memory in named]
    has_duplicates = len(set(keys)) < len(keys)
    superseding_keys = {link.by_key for link in plan.supersedes}
    if has_duplicates or not superseding_keys.isdisjoint(keys):
        raise errors.PlanError(
            f"plan {plan.digest[:12]} names a memory twice; {_nothing_was_done(plan)}"
        )


def _check_against_store(change: PlannedChange) -> frozenset[Key]:
    """Check that a store is still as a plan saw it, and that the plan describes it correctly.

    Return the keys of the memories that the plan would change and that have expired since.
    """
    plan = change.plan
    expired_and_missing = _check_memories(change)
    _check_side_effects(change.writer, plan)
    if not plan.supersedes:
        _check_groups(plan)
    _check_index_entries(change)
    return expired_and_missing


def _check_memories(change: PlannedChange) -> frozenset[Key]:
    """Check that the memories of a plan are unchanged, and that each action of it is allowed.

    Return the keys of the memories that the plan would change and that have expired since.
    """
    plan = change.plan
    source = change.source
    retired = retired_in(change.archive) if plan.returns else RetiredMemories()
    expired_keys = plan.expired_keys(change.now)
    missing_ids: list[str] = []
    changed_ids: list[str] = []
    expired_and_missing: set[Key] = set()
    for action, memories in _named_memories_by_action(plan).items():
        get_comparable_record: Callable[[bytes], bytes]
        if action == plans.KEEPS:
            # A memory that stays may have been used since.
            get_comparable_record = source.without_usage
        else:
            get_comparable_record = change.archive.location.comparable_record
        for memory, record in _with_records(change.writer, memories):
            if record is None:
                if memory.key not in expired_keys:
                    missing_ids.append(memory.memory_id)
                elif action in plan.memories_by_action:
                    # The plan would change the memory. A memory that it only names is not counted.
                    expired_and_missing.add(memory.key)
                continue
            if fingerprint_of(get_comparable_record(record)) != memory.fingerprint:
                changed_ids.append(memory.memory_id)
                continue
            # A load-bearing memory may leave a folder if the other folder has an equal one.
            may_be_load_bearing = action == plans.DELETES and plan.merges
            fault = _fault_of(
                action, memory, record, source, retired, may_be_load_bearing=may_be_load_bearing
            )
            if fault:
                raise errors.CompactionError(
                    f"plan {plan.digest[:12]} {fault}; {_nothing_was_done(plan)}"
                )
    _check_fresh(plan, missing_ids, changed_ids)
    return frozenset(expired_and_missing)


def _check_index_entries(change: PlannedChange) -> None:
    """Raise StalePlanError unless the index has the entries that a plan recorded."""
    plan = change.plan
    entries: tuple[plans.PlannedIndexEntries, ...] = ()
    if plan.moves:
        retirement = require(change.source, "retirement")
        entries = entries_of(change.writer, retirement, plan.moves)
    if plan.entries != entries:
        raise errors.StalePlanError(
            f"the index does not say what plan {plan.digest[:12]} says; {_nothing_was_done(plan)}"
        )


def _named_memories_by_action(plan: Plan) -> dict[str, Sequence[NamedMemory]]:
    """Return every memory that a plan names, by the action of the plan on it."""
    superseding = [
        KeptMemory(key=link.by_key, memory_id=link.by_memory_id, fingerprint=link.by_fingerprint)
        for link in plan.supersedes
    ]
    return {**plan.memories_by_action, plans.KEEPS: plan.kept, _LETS_STAND: superseding}


def _check_fresh(plan: Plan, missing_ids: list[str], changed_ids: list[str]) -> None:
    """Raise StalePlanError if memories of a plan are missing from its store or changed."""
    differences = []
    if missing_ids:
        differences.append(f"{len(missing_ids):,} gone ({some_of(missing_ids)})")
    if changed_ids:
        differences.append(f"{len(changed_ids):,} changed ({some_of(changed_ids)})")
    if differences:
        raise errors.StalePlanError(
            f"the store is not as plan {plan.digest[:12]} saw it: {' and '.join(differences)}; "
            f"{_nothing_was_done(plan)}",
            memory_ids=tuple(dict.fromkeys(missing_ids + changed_ids)),
        )


def _check_side_effects(writer: Writer, plan: Plan) -> None:
    """Raise StalePlanError if triggers of the store have other effects than a plan lists."""
    keys = [memory.key for memory in plan.memories]
    effects = writer.side_effects(keys) if keys else ()
    if plan.trigger_effects != effects:
        raise errors.StalePlanError(
            f"triggers of the store do other things than plan {plan.digest[:12]} says; "
            f"{_nothing_was_done(plan)}"
        )


def _fault_of(
    action: str,
    memory: NamedMemory,
    record: bytes,
    source: Source,
    retired: RetiredMemories,
    *,
    may_be_load_bearing: bool,
) -> str:
    """Return a clause for a message if a plan describes a memory wrongly or may not act on it.

    Return an empty text if the plan describes the memory correctly and the action is allowed.
    """
    facts = source.facts_of(record)
    name = memory.memory_id
    if action in (plans.DELETES, plans.RETIRES):
        if not may_be_load_bearing and source.is_load_bearing(facts, if_invalid=True):
            return f"names {facts.memory_id!r}, which is load-bearing"
    elif action == plans.SUPERSEDES and not source.is_load_bearing(facts, if_invalid=False):
        return f"names {facts.memory_id!r}, which is not load-bearing"
    if facts.memory_id != name:
        return f"calls {facts.memory_id!r} by the name of {name!r}"
    if action in (plans.RETIRES, plans.SUPERSEDES, _LETS_STAND):
        if superseding_id(source, record) is not None:
            return f"{action} {name!r}, which is not loaded"
    elif action == plans.RETURNS:
        superseding = superseding_id(source, record)
        # A retired memory is superseded by itself.
        if superseding != name or not retired.at(memory.key, superseding):
            return f"returns {name!r}, which no plan retired"
    return "" if isinstance(memory, KeptMemory) else _wrong_field(memory, facts, source)


def _wrong_field(memory: ChangedMemory, facts: Facts, source: Source) -> str:
    """Return a clause for a message if a plan prints a wrong field of a memory, else an empty text.

    The printed fields are the kind, the title and, in the agent's own format, the position.
    """
    if facts.kind != memory.kind:
        name = repr(memory.memory_id)
        return f"calls {name}, {facts.kind} by the name of {name}, {memory.kind}"
    if facts.title is not None:
        title = facts.title[: plans.MAX_TITLE_CHARS]
        if title != memory.title:
            return (
                f"gives {memory.memory_id!r} the title {memory.title!r}, but its title is {title!r}"
            )
    if source.is_native_format and memory.key != memory.position:
        place = f"position {memory.position}, and it is at {memory.key}"
        return f"says that {memory.memory_id!r} is at {place}"
    return ""


def _check_groups(plan: Plan) -> None:
    """Raise PlanError if the groups of a plan do not agree with the memories that it lists."""
    # Memories and tokens in the groups minus those of the listed memories.
    excess_memories = Counter[tuple[str, ...]]()
    excess_tokens = Counter[tuple[str, ...]]()
    for group in plan.groups:
        if group.action != plans.KEEPS:
            excess_memories[group.action, group.kind, group.reason] += group.memories
            excess_tokens[group.action, group.kind, group.reason] += group.tokens
    for action, memories in plan.memories_by_action.items():
        for memory in memories:
            excess_memories[action, memory.kind, memory.reason] -= 1
            excess_tokens[action, memory.kind, memory.reason] -= memory.tokens
    add_up = not any(excess_memories.values()) and not any(excess_tokens.values())
    kept_count = sum(
        group.memories
        for group in plan.groups
        if not group.deleted and group.label == plans.PRUNABLE
    )
    deleted_labels = {group.label for group in plan.groups if group.deleted}
    deletable_labels = {plans.PRUNABLE, plans.SUPERSEDED, plans.RETIRED}
    if plan.merges:
        deletable_labels |= {plans.LOAD_BEARING, UNLISTED}
    may_be_deleted = deleted_labels <= deletable_labels
    if not add_up or kept_count != len(plan.kept) or not may_be_deleted:
        raise errors.PlanError(
            f"the groups of plan {plan.digest[:12]} do not add up to the memories that it lists; "
            f"{_nothing_was_done(plan)}"
        )
