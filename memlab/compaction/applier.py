"""Carrying out a plan: archive what it deletes, delete it, verify, so that it can be taken back."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from memlab import errors
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction import plans
from memlab.compaction.plans import KeptMemory, Plan, PlannedLink, PlannedMemory, Receipt
from memlab.compaction.wire import some_of
from memlab.sources.base import (
    Facts,
    Key,
    Reader,
    Source,
    StepCallback,
    Writer,
    archive_at,
    no_progress,
)
from memlab.sources.opening import SourceLike, folder_schemes, open_source, schemes
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import Apply, Archived, Entry
from memlab.store.archive.facts import RetiredMemories, note_retired, retired_in
from memlab.store.archive.opening import archived_change, check_archive_of, open_archive
from memlab.store.records import fingerprint_of
from memlab.store.snapshot import retry_if_changed
from memlab.text import counted

Planned = PlannedMemory | PlannedLink
_KEEPS: Final = "keeps"
_STANDS: Final = "lets stand"
Named = TypeVar("Named", bound=PlannedMemory | PlannedLink | KeptMemory)


def apply(
    plan: Plan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
    all_prunable: bool = False,
) -> Receipt:
    """Carry out a plan: archive what it deletes, delete it, verify.

    A plan that supersedes or retires deletes nothing: the archive keeps the plan, which says how to
    take it back. The copies are committed and synced before the deletion commits, so that being
    stopped at any moment leaves a memory too many, never one too few. Applying the same plan again
    then finishes it. Where an error is raised nothing was deleted, or it says what was and what
    next.

    Parameters
    ----------
    plan : Plan
        What to do.
    store : str, Path or Source, optional
        Another store than the one that the plan was made from, with the same memories.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with the name of each step that is done: "locked" (nobody else can write), "checked",
        "copied", "archived" (the copies are on the disk), "deleted", "verified", "committed" (the
        deletion is on the disk) and "recorded" (the archive says so).
    all_prunable : bool
        Whether it is meant that no prunable memory stays loaded. A cap of none says so itself.

    Raises
    ------
    StalePlanError
        When a memory that the plan decided on has changed or gone.
    AlreadyAppliedError
        When the plan was applied before.
    CompactionError
        When the plan deletes or retires a load-bearing memory or calls one by what it is not, or
        others than the plan's would have been touched.
    PlanError
        When the plan says two things that do not go together, the store cannot do what it says, or
        all that is prunable would go and nobody said so.
    ArchiveError
        When the memories cannot be archived.
    UnsafeDeletionError
        When deleting from such a store is not safe.
    """
    expect(plan, Plan, call="memlab.apply", name="plan")
    expect(all_prunable, bool, call="memlab.apply", name="all_prunable")
    _check_readable(plan)
    if plan.removes_all_prunable and not (plan.asks_for_none or all_prunable):
        raise errors.PlanError(
            f"plan {plan.digest[:12]} would leave no prunable memory loaded; nothing was changed: "
            "where that is meant, say --all, in Python all_prunable=True"
        )
    source = _opened_as_planned(plan, store)
    moment = moment_or_now(now, call="memlab.apply")
    location = archive_at(source)
    has_archive = check_archive_of(location, is_needed=not plan.is_empty)
    if plan.is_empty and not has_archive:
        return replace(receipt_of(plan, source, moment), archive=None)

    if not plan.is_empty:
        source.check_sound()

    def carry_out() -> Receipt:
        with archived_change(location, opened_for(plan, source)) as both:
            watch("locked")
            receipt = _carried_out(both.writer, both.archive, source, plan, moment, watch)
            both.after_commit = lambda: _note(both.archive, receipt, source, watch)
        return receipt

    return retry_if_changed(carry_out)


def _opened_as_planned(plan: Plan, store: SourceLike | None) -> Source:
    """Open the store of a plan, which must be of the kind that the plan was made of."""
    where = plan.store if store is None else store
    known = folder_schemes()
    planned, colon, _ = plan.store.partition(":")
    if not colon:
        # Of folders those of Claude Code alone are named by their path; only files have such keys.
        keys = chain((memory.key for memory in plan.memories), plan.links)
        planned = "claude" if any(isinstance(key, str) for key in keys) else ""
    elif planned not in known:
        planned = ""
    source = open_source(where, noted=planned)
    if planned and source.is_folder and source.scheme in known and source.scheme != planned:
        kinds = schemes()
        names = tuple(
            f"{scheme}:{source.permissions_template}" for scheme in (source.scheme, planned)
        )
        raise errors.UndecidedKindError(
            f"plan {plan.digest[:12]} was made of {source.permissions_template} as "
            f"{kinds[planned].what}, and it is {kinds[source.scheme].what}; "
            f"nothing was changed: make a new plan of {' or '.join(names)}",
            given=str(source.permissions_template),
            names=names,
        )
    return source


def opened_for(plan: Plan, source: Source) -> AbstractContextManager[Writer]:
    """Open a store for what a plan does to it."""
    if plan.supersedes:
        return source.superseding()
    return source.retiring() if plan.moves else source.changing()


def finish(
    store: SourceLike,
    digest: str,
    *,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> Receipt:
    """Apply a plan that was cut short, as it stands in the archive, by its digest or its beginning.

    The other arguments are those of :func:`apply`, which says what is raised.
    """
    source = open_source(store)
    check_archive_of(archive_at(source))
    with open_archive(archive_at(source)) as archive:
        found = plan_in(archive, archive.entry(digest))
    return apply(found, store=source, now=now, watch=watch, all_prunable=True)


def plan_in(archive: Archive, entry: Entry) -> Plan:
    """Return the plan that an entry of an archive carried out."""
    name = f"plan {entry.digest[:12]} in {archive.path}"
    try:
        rows_of = partial(archive.plan_rows, entry)
        found = Plan.from_json(archive.plan_text(entry), rows_of=rows_of)
    except errors.PlanError as error:
        raise errors.ArchiveError(f"{name} cannot be read: {error}") from error
    if found.digest != entry.digest:
        raise errors.ArchiveError(
            f"{name} is another one, {found.digest[:12]}; restore a backup of it"
        )
    return found


def settle(
    archive: Archive, reader: Reader, source: Source, now: datetime, *, forget: bool = False
) -> tuple[str, ...]:
    """Note plans as done that were stopped before their note; see :meth:`Archive.settle`."""
    is_done = partial(is_superseded, reader, source, archive)
    return archive.reconcile_interrupted(reader.records, at=now, is_done=is_done, forget=forget)


def is_superseded(reader: Reader, source: Source, archive: Archive, entry: Entry) -> bool | None:
    """Whether what a plan was to supersede or retire is; None where nobody can say yet."""
    try:
        plan = plan_in(archive, entry)
    except errors.ArchiveError:
        return None
    return _is_linked(reader, source, plan) or (False if plan.moves else None)


def _is_linked(reader: Reader, source: Source, plan: Plan) -> bool:
    """Whether memories of a plan are superseded, all of them, or retired as it says."""
    links = plan.links.items()
    as_planned = links & links_now(reader, source, plan.links).items()
    return bool(as_planned) if plan.moves else len(as_planned) == len(links)


def links_now(reader: Reader, source: Source, keys: Iterable[Key]) -> dict[Key, str | None]:
    """Return what stands for each memory that is there."""
    return {key: source.superseded_by(record) for key, record in reader.records(keys)}


@contextmanager
def explain_unrecorded(done: str) -> Iterator[None]:
    """Say what is done where only the archive's note of it fails."""
    try:
        yield
    except errors.ArchiveError as error:
        raise errors.ArchiveError(
            f"{done}; only the archive could not note it ({error.__cause__ or error}): run the "
            "same command again, it notes it"
        ) from error


def receipt_of(plan: Plan, source: Source, now: datetime) -> Receipt:
    """Return the receipt of a plan all of which was carried out on a store."""
    return Receipt(
        digest=plan.digest,
        store=source.name,
        archive=str(source.archive),
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
    )


def _carried_out(
    writer: Writer, archive: Archive, source: Source, plan: Plan, now: datetime, watch: StepCallback
) -> Receipt:
    """Do all of :func:`apply` that happens under the store's write lock."""
    if not plan.is_empty:
        archive.check_entries()
    entry = next((entry for entry in archive.entries() if entry.digest == plan.digest), None)
    done = receipt_of(plan, source, now)
    if entry and _is_resumed(writer, archive, entry, source, plan, watch):
        return replace(done, deleted=entry.memories, expired=done.deleted - entry.memories)
    forget = bool(plan.memories or plan.moves)
    done = replace(done, finished=settle(archive, writer, source, now, forget=forget))
    expired = _check_against_store(writer, archive, source, plan, now)
    watch("checked")
    private = _private_keys(writer, archive, source, plan)
    staying_here = expired | private
    leaving = [memory for memory in plan.memories if memory.key not in staying_here]
    links = {key: by for key, by in plan.links.items() if key not in expired}
    if not leaving and not links:
        return replace(done, deleted=0, retired=0, returned=0, expired=len(expired), archive=None)
    copies = _copies(writer, leaving)
    staying = writer.identity_sample(memory.key for memory in plan.memories)
    with archive.deleting(
        Apply(
            digest=plan.digest,
            policy=plan.policy,
            made_at=plan.made_at,
            memories=len(leaving),
            plan=plans.text_for_archive(plan, expired),
        ),
        copies,
        at=now,
        staying=staying,
        watch=watch,
        is_undone=lambda error: source.atomic or isinstance(error, errors.StalePlanError),
    ):
        if plan.moves:  # noted before the store says so
            retired = {each.key: each.memory_id for each in plan.retires if each.key in links}
            returned = {each.key: each.reason == plans.NEEDED for each in plan.returns}
            note_retired(archive, plan.digest, retired=retired, returned=returned, at=now)
        if links:
            planned = {each.key: each.said for each in plan.entries if each.key in links}
            writer.supersede(links, planned=planned if plan.moves else None)
        else:
            expected = {memory.key: memory.fingerprint for memory in leaving}
            writer.delete(expected, watch=watch)
        watch("verified")
    count = sum(memory.key in links for memory in plan.retires)
    return replace(done, deleted=len(leaving), retired=count, expired=len(expired))


def _note(archive: Archive, receipt: Receipt, source: Source, watch: StepCallback) -> None:
    watch("committed")
    if receipt.archive is None:
        return
    with explain_unrecorded(f"{_done_by(receipt)} in {source.name}"):
        archive.mark_applied(receipt.digest, receipt.applied_at)
    watch("recorded")


def _done_by(receipt: Receipt) -> str:
    done = " and ".join(
        f"{counted(count)} {'is' if count == 1 else 'are'} {did}"
        for did, count in receipt.done
        if count
    )
    return f"{done} and archived" if receipt.deleted else done


def _is_resumed(
    writer: Writer, archive: Archive, entry: Entry, source: Source, plan: Plan, watch: StepCallback
) -> bool:
    """Finish a plan that was stopped after its deletion began; whether it was."""
    if entry.finished_at is not None:
        restored = f", {entry.restored:,} of them restored since" if entry.restored else ""
        done = receipt_of(plan, source, entry.finished_at)
        raise errors.AlreadyAppliedError(
            f"plan {plan.digest[:12]} was applied on {entry.finished_at:%Y-%m-%d %H:%M} UTC: "
            f"{_done_by(replace(done, deleted=entry.memories))} in {archive.path}{restored}; make "
            "a new plan"
        )
    if plan.links:
        return _is_linked(writer, source, plan)
    state = archive.state_of(writer.records, entry)
    if state.is_gone:
        return True
    if source.atomic or not state.absent or state.changed:
        return False
    # Some of them went: only a source without transactions stops half way, and the rest follows.
    left = {m.key: m.fingerprint for m in plan.memories if m.key in state.same}
    writer.delete(left, watch=watch)
    watch("verified")
    return True


def _private_keys(reader: Reader, archive: Archive, source: Source, plan: Plan) -> frozenset[Key]:
    """Return the memories that fewer people may read than an archive of somebody else's.

    They stay in the store, which is said; the caller cannot make that archive narrower.
    """
    if not source.is_folder:
        return frozenset()
    mode = archive.path.stat().st_mode
    found = {
        key
        for key, record in reader.records(memory.key for memory in plan.memories)
        if source.is_private(record, mode)
    }
    if found:
        names = [memory.memory_id for memory in plan.memories if memory.key in found]
        warnings.warn(
            f"{counted(len(found))} kept ({some_of(names)}): fewer people may read that than "
            f"{archive.path}, which is not yours to make narrower",
            errors.ArchivePermissionsWarning,
            stacklevel=2,
        )
    return frozenset(found)


def _copies(reader: Reader, leaving: Sequence[PlannedMemory]) -> Iterator[Archived]:
    """Yield what goes; a store that nothing holds still may have been written to since a look."""
    for memory, record in _with_records(reader, leaving):
        if record is None:
            raise errors.StalePlanError(
                f"memory {memory.memory_id!r:.80} was deleted while the plan was applied; nothing "
                "was deleted: make a new plan",
                memory_ids=(memory.memory_id,),
            )
        yield Archived(memory.key, record, memory.reason, plans.planned_row(memory))


def _with_records(
    reader: Reader, memories: Sequence[Named]
) -> Iterator[tuple[Named, bytes | None]]:
    """Yield memories with their records, None where there is none."""
    found = reader.records(memory.key for memory in memories)
    key, record = next(found, (None, None))
    for memory in memories:
        is_there = key == memory.key
        yield memory, record if is_there else None
        if is_there:
            key, record = next(found, (None, None))


def _undone(plan: Plan) -> str:
    return f"nothing was {'changed' if plan.links else 'deleted'}: make a new plan"


def _check_readable(plan: Plan) -> None:
    """Check what can be checked of a plan without its store."""
    if sum(map(bool, (plan.memories, plan.supersedes, plan.moves))) > 1:
        raise errors.PlanError(
            f"plan {plan.digest[:12]} does two of deleting, superseding and retiring; nothing was "
            "changed: make one plan for each"
        )
    named: Iterator[Planned | KeptMemory] = chain(*plan.memories_by_action.values(), plan.kept)
    keys = [memory.key for memory in named]
    ends = {link.by_key for link in plan.supersedes}
    if len(set(keys)) != len(keys) or not ends.isdisjoint(keys):
        raise errors.PlanError(f"plan {plan.digest[:12]} names a memory twice; {_undone(plan)}")


def _check_against_store(
    writer: Writer, archive: Archive, source: Source, plan: Plan, now: datetime
) -> frozenset[Key]:
    """Compare all of a plan with its store; return the keys of what its own time has ended."""
    newer = [KeptMemory(m.by_key, m.by_memory_id, m.by_fingerprint) for m in plan.supersedes]
    named: dict[str, Sequence[Planned | KeptMemory]] = {_KEEPS: plan.kept, _STANDS: newer}
    retired = retired_in(archive) if plan.returns else RetiredMemories()
    absent: list[tuple[str, Planned | KeptMemory]] = []
    changed: list[str] = []
    for fate, memories in {**plan.memories_by_action, **named}.items():
        compared = source.without_usage if fate == _KEEPS else archive.location.compared
        for memory, record in _with_records(writer, memories):
            if record is None:
                absent.append((fate, memory))
            elif fingerprint_of(compared(record)) != memory.fingerprint:
                changed.append(memory.memory_id)
            elif wrong := _wrong_of(fate, memory, record, source, retired):
                raise errors.CompactionError(f"plan {plan.digest[:12]} {wrong}; {_undone(plan)}")
    ended = plan.expired(now)
    gone = [memory.memory_id for _, memory in absent if memory.key not in ended]
    if stale := {how: ids for how, ids in (("gone", gone), ("changed", changed)) if ids}:
        parts = (f"{len(ids):,} {how} ({some_of(ids)})" for how, ids in stale.items())
        raise errors.StalePlanError(
            f"the store is not as plan {plan.digest[:12]} saw it: {' and '.join(parts)}; "
            f"{_undone(plan)}",
            memory_ids=tuple(dict.fromkeys(gone + changed)),
        )
    keys = [memory.key for memory in plan.memories]
    if plan.written != (writer.side_effects(keys) if keys else ()):
        raise errors.StalePlanError(
            f"triggers of the store do other things than plan {plan.digest[:12]} says; "
            f"{_undone(plan)}"
        )
    if not plan.supersedes:
        _check_groups(plan)
    if plan.entries != entries_of(writer, source, plan.moves):
        raise errors.StalePlanError(
            f"the index does not say what plan {plan.digest[:12]} says; {_undone(plan)}"
        )
    return frozenset(memory.key for fate, memory in absent if fate in plan.memories_by_action)


def entries_of(
    reader: Reader, source: Source, moves: Iterable[PlannedMemory]
) -> tuple[plans.PlannedEntries, ...]:
    """Return what a store's index says of memories that are to be retired, or to return."""
    found = reader.records([memory.key for memory in moves])
    entries = (plans.PlannedEntries(key, source.index_entries_of(record)) for key, record in found)
    return tuple(each for each in entries if each.said)


def _wrong_of(
    fate: str, named: Planned | KeptMemory, record: bytes, source: Source, retired: RetiredMemories
) -> str:
    """Say what of a memory is not as a plan says, or keeps it from what the plan does to it."""
    facts = source.facts_of(record)
    name = named.memory_id
    if fate in (plans.DELETES, plans.RETIRES):
        if source.is_load_bearing(facts, unsure=True):
            return f"names {facts.memory_id!r}, which is load-bearing"
    elif fate == plans.SUPERSEDES and not source.is_load_bearing(facts, unsure=False):
        return f"names {facts.memory_id!r}, which is not load-bearing"
    if facts.memory_id != name:
        return f"calls {facts.memory_id!r} by the name of {name!r}"
    if fate in (plans.RETIRES, plans.SUPERSEDES, _STANDS):
        if source.superseded_by(record) is not None:
            return f"{fate} {name!r}, which is not loaded"
    elif fate == plans.RETURNS:
        by = source.superseded_by(record)
        if by != name or not retired.at(named.key, by):
            return f"returns {name!r}, which no plan retired"
    return "" if isinstance(named, KeptMemory) else _misnamed(named, facts, source)


def _misnamed(named: Planned, facts: Facts, source: Source) -> str:
    """Say what a plan tells a person of a memory that is not so; empty where all is."""
    if facts.kind != named.kind:
        name = repr(named.memory_id)
        return f"calls {name}, {facts.kind} by the name of {name}, {named.kind}"
    title = named.title if facts.title is None else facts.title[: plans.TITLE]
    if title != named.title:
        return f"calls {named.memory_id!r} {named.title!r}, and its title is {title!r}"
    if source.is_native_format and named.key != named.position:
        place = f"position {named.position}, and it is at {named.key}"
        return f"says that {named.memory_id!r} is at {place}"
    return ""


def _check_groups(plan: Plan) -> None:
    """Compare the counts that a reviewer reads with the memories that the plan lists."""
    memories = Counter[tuple[str, ...]]()
    tokens = Counter[tuple[str, ...]]()
    for group in plan.groups:
        if group.fate != "keeps":
            memories[group.fate, group.kind, group.reason] += group.memories
            tokens[group.fate, group.kind, group.reason] += group.tokens
    for fate, listed in plan.memories_by_action.items():
        for memory in listed:
            memories[fate, memory.kind, memory.reason] -= 1
            tokens[fate, memory.kind, memory.reason] -= memory.tokens
    kept = sum(g.memories for g in plan.groups if not g.deleted and g.label == plans.PRUNABLE)
    labels = {group.label for group in plan.groups if group.deleted}
    differs = any(memories.values()) or any(tokens.values()) or kept != len(plan.kept)
    if differs or labels - {plans.PRUNABLE, plans.SUPERSEDED, plans.RETIRED}:
        raise errors.PlanError(
            f"the groups of plan {plan.digest[:12]} do not add up to the memories that it lists; "
            f"{_undone(plan)}"
        )
