"""Make plans that supersede load-bearing memories by newer ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pandas as pd

from memlab import columns as col
from memlab.clock import moment_or_now
from memlab.compaction.planning_snapshot import PlanningSnapshot, frame_at
from memlab.compaction.plans import Plan, PlannedLink, PlannedMemory
from memlab.compaction.wire import some_of
from memlab.errors import PlanError
from memlab.policies import KeepAll
from memlab.policies.base import decision_of
from memlab.policies.supersession import supersedable
from memlab.sources.base import read_consistent
from memlab.sources.capabilities import require
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Reader


def plan_supersession(
    source: SourceLike,
    links: Mapping[str, str] | None = None,
    *,
    only: Collection[str] | None = None,
    now: datetime | None = None,
) -> Plan:
    """Plan to supersede load-bearing memories by newer ones. The store is only read.

    Parameters
    ----------
    source, now
        As for :func:`memlab.plan`.
    links : mapping of str to str, optional
        The id of the superseding memory, by the id of the superseded one. By default the pairs that
        :func:`memlab.policies.supersession.supersedable` finds, which needs the extra for
        near-duplicates.
    only : collection of str, optional
        Supersede only these of the memories that were found.

    Returns
    -------
    Plan
        The plan. It deletes nothing.

    Raises
    ------
    PlanError
        If an id is not the id of an active load-bearing memory, if a memory would supersede itself,
        or if the store has no field for superseding memories.

    Examples
    --------
    >>> import memlab
    >>> plan = plan_supersession(memlab.store_path("two_years"))
    >>> len(plan.memories)  # it deletes nothing
    0
    """
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.compaction.plan_supersession")
    require(opened, "supersession")
    _ = opened.archive  # raises an error if the store can have no archive
    settings: dict[str, Any] = {"policy": "supersede"}
    if only is not None:
        settings["only"] = sorted(only)

    def planned(reader: Reader) -> Plan:
        frame = frame_at(reader, opened, with_body=True)
        snapshot = PlanningSnapshot(reader, opened, frame)
        decision = decision_of(frame, KeepAll(), now=moment)
        chosen = _supersedable(frame, only) if links is None else _by_hand(frame, links)
        linked_ids = set(chosen) | {newer for newer, _ in chosen.values()}
        is_linked = frame[col.MEMORY_ID].isin(linked_ids).to_numpy()
        return Plan(
            store=opened.name,
            made_at=moment,
            policy=settings,
            token_rule=snapshot.token_rule,
            groups=snapshot.groups(decision, deleted=~decision.keep),
            memories=(),
            kept=(),
            supersedes=tuple(_links(snapshot.memories(is_linked, decision), chosen)),
        )

    return read_consistent(opened, planned)


def _supersedable(frame: pd.DataFrame, only: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """Return by id the memories that can be superseded: the superseding id, and the reason.

    Raise PlanError if one of the ids in `only` is not among them.
    """
    pairs = supersedable(frame)
    chosen = {}
    for older, newer, reason in zip(
        pairs[col.MEMORY_ID], pairs[col.SUPERSEDED_BY], pairs[col.REASON], strict=True
    ):
        chosen[older] = (newer, reason)
    if only is None:
        return chosen
    requested = set(only)
    unknown = sorted(requested - chosen.keys())
    if unknown:
        raise PlanError(
            f"no newer memory repeats {some_of(unknown)}; memlab floor lists for what there "
            "is, and --supersede OLDER=NEWER names a pair by hand"
        )
    return {older: link for older, link in chosen.items() if older in requested}


def _by_hand(frame: pd.DataFrame, links: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return by id the memories that a caller supersedes: the superseding id, and the reason.

    Raise PlanError if a link is not allowed.
    """
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    active = set(frame[col.MEMORY_ID][frame[col.ACTIVE]])
    known = set(floor[col.MEMORY_ID])
    for older, newer in links.items():
        if older not in known:
            raise PlanError(
                f"{older!r} is not an active load-bearing memory of this store: memlab compact "
                "deletes prunable ones, and one that is superseded is not loaded"
            )
        if newer not in active or newer == older or newer in links:
            raise PlanError(
                f"{newer!r} cannot stand for {older!r}: name another active memory of this store, "
                "one that is not superseded in the same plan"
            )
    return {older: (newer, "by hand") for older, newer in links.items()}


def _links(
    planned: Iterable[PlannedMemory], chosen: Mapping[str, tuple[str, str]]
) -> Iterator[PlannedLink]:
    """Yield the links of a plan. `planned` has both memories of each link."""
    memories = {memory.memory_id: memory for memory in planned}
    for memory_id, older in memories.items():
        if memory_id not in chosen:
            continue
        newer_id, reason = chosen[memory_id]
        newer = memories[newer_id]
        yield PlannedLink(
            key=older.key,
            position=older.position,
            memory_id=older.memory_id,
            kind=older.kind,
            title=older.title,
            reason=reason,
            tokens=older.tokens,
            fingerprint=older.fingerprint,
            by_key=newer.key,
            by_memory_id=newer_id,
            by_fingerprint=newer.fingerprint,
        )
