"""A plan held against itself and against its store: a file may say anything of either."""

from collections import Counter
from collections.abc import Callable, Sequence

from memlab.compaction.locating import Named, beside, some_of
from memlab.compaction.planned import PRUNABLE, SUPERSEDED, TITLE, KeptMemory, PlannedMemory
from memlab.compaction.plans import Plan
from memlab.compaction.wire import FORMAT
from memlab.errors import CompactionError, PlanError, StalePlanError
from memlab.items import is_load_bearing_stored
from memlab.sources.abilities import AmongOthers
from memlab.sources.base import Facts, Reader, Source
from memlab.store.records import fingerprint_of


def check_readable(plan: Plan) -> None:
    """Check what can be checked of a plan without its store.

    Raises
    ------
    PlanError
        When memlab 0.1.0 wrote it, it both deletes and supersedes, or it names a memory twice.
    """
    if plan.format != FORMAT:
        raise PlanError(
            f"plan {plan.digest[:12]} was made by memlab 0.1.0, whose fingerprints are of another "
            "kind; nothing was deleted: make a new plan with memlab compact, and review that"
        )
    if plan.memories and plan.supersedes:
        raise PlanError(
            f"plan {plan.digest[:12]} both deletes and supersedes; nothing was changed: make one "
            "plan for each"
        )
    keys = [memory.key for memory in plan.memories] + [memory.key for memory in plan.kept]
    if len(set(keys)) != len(keys):
        raise PlanError(
            f"plan {plan.digest[:12]} names a memory twice; nothing was deleted: make a new plan"
        )


def check_against_store(reader: Reader, source: Source, plan: Plan) -> None:
    """Compare everything that a plan says with its store, under the store's write lock.

    Raises
    ------
    StalePlanError
        When a memory has changed or gone, or triggers do other things than the plan says.
    CompactionError
        When it deletes a load-bearing memory, or calls one by what it is not.
    PlanError
        When its groups do not add up.
    """
    gone, changed = _stale(reader, plan.memories, _compared(source, plan))
    kept_gone, kept_changed = _stale(reader, plan.kept, _compared_as_kept(source, plan))
    gone, changed = gone + kept_gone, changed + kept_changed
    if gone or changed:
        parts = [f"{len(gone):,} gone ({some_of(gone)})"] if gone else []
        parts += [f"{len(changed):,} changed ({some_of(changed)})"] if changed else []
        raise StalePlanError(
            f"the store is not as plan {plan.digest[:12]} saw it: {' and '.join(parts)}; nothing "
            "was deleted: make a new plan",
            memory_ids=tuple(dict.fromkeys(gone + changed)),
        )
    if isinstance(reader, AmongOthers) and (
        plan.written != reader.written_with(memory.key for memory in plan.memories)
    ):
        raise StalePlanError(
            f"triggers of the store do other things than plan {plan.digest[:12]} says; nothing was "
            "deleted: make a new plan"
        )
    _check_groups(plan)


def _stale(
    reader: Reader, decided: Sequence[Named], compared: Callable[[Named, bytes], bytes]
) -> tuple[list[str], list[str]]:
    """Return the ids of memories that are gone, and of those that have changed."""
    gone, changed = [], []
    records = reader.records(memory.key for memory in decided)
    for memory, record in beside(decided, records):
        if record is None:
            gone.append(memory.memory_id)
        elif fingerprint_of(compared(memory, record)) != memory.fingerprint:
            changed.append(memory.memory_id)
    return gone, changed


def _compared(source: Source, plan: Plan) -> Callable[[PlannedMemory, bytes], bytes]:
    """Return a look at each record that would be deleted: a plan file may say anything of it."""

    def check(named: PlannedMemory, record: bytes) -> bytes:
        facts = source.facts_of(record)
        if fingerprint_of(record) != named.fingerprint:
            return record
        if _is_load_bearing(facts, source.protected):
            raise CompactionError(
                f"plan {plan.digest[:12]} names {facts.memory_id!r}, which is load-bearing; "
                "nothing was deleted: make a new plan"
            )
        if (facts.memory_id, facts.kind) != (named.memory_id, named.kind):
            raise _misnamed(plan, f"{facts.memory_id!r}, {facts.kind}", named)
        if facts.title is not None and facts.title[:TITLE] != named.title:
            raise CompactionError(
                f"the title of {facts.memory_id!r} is {facts.title[:TITLE]!r} and plan "
                f"{plan.digest[:12]} calls it {named.title!r}; nothing was deleted: make a new plan"
            )
        if source.scheme == "file" and named.key != named.position:
            raise CompactionError(
                f"{facts.memory_id!r} is at position {named.key} and plan {plan.digest[:12]} says "
                f"position {named.position}; nothing was deleted: make a new plan"
            )
        return record

    return check


def _compared_as_kept(source: Source, plan: Plan) -> Callable[[KeptMemory, bytes], bytes]:
    """Return a look at each record that the plan rests on."""

    def check(named: KeptMemory, record: bytes) -> bytes:
        lasting = source.lasting(record)
        memory_id = source.facts_of(record).memory_id
        if fingerprint_of(lasting) == named.fingerprint and memory_id != named.memory_id:
            raise _misnamed(plan, f"{memory_id!r}", named)
        return lasting

    return check


def _misnamed(plan: Plan, truly: str, named: PlannedMemory | KeptMemory) -> CompactionError:
    kind = f", {named.kind}" if isinstance(named, PlannedMemory) else ""
    return CompactionError(
        f"plan {plan.digest[:12]} calls {truly} by the name of {named.memory_id!r}{kind}; nothing "
        "was deleted: make a new plan"
    )


def _check_groups(plan: Plan) -> None:
    """Compare the counts that a reviewer reads with the memories that the plan lists."""
    told: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for group in plan.groups:
        if group.deleted:
            told[group.kind, group.reason] += group.memories
            tokens[group.kind, group.reason] += group.tokens
    memories = Counter((memory.kind, memory.reason) for memory in plan.memories)
    for memory in plan.memories:
        tokens[memory.kind, memory.reason] -= memory.tokens
    kept = sum(g.memories for g in plan.groups if not g.deleted and g.label == PRUNABLE)
    labels = {group.label for group in plan.groups if group.deleted}
    if (
        told != memories
        or any(tokens.values())
        or kept != len(plan.kept)
        or labels - {PRUNABLE, SUPERSEDED}
    ):
        raise PlanError(
            f"the groups of plan {plan.digest[:12]} do not add up to the memories that it lists; "
            "nothing was deleted: make a new plan"
        )


def _is_load_bearing(facts: Facts, protected: frozenset[str]) -> bool:
    try:
        return is_load_bearing_stored(facts.kind, facts.tags_json, protected)
    except ValueError:
        return True
