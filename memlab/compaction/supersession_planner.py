"""Make plans that supersede load-bearing memories by newer ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

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

    def plan_of(reader: Reader) -> Plan:
        frame = frame_at(reader, opened, with_body=True)
        snapshot = PlanningSnapshot(reader, opened, frame)
        decision = decision_of(frame, KeepAll(), now=moment)
        links_by_id = _found_links(frame, only) if links is None else _links_by_hand(frame, links)
        newer_ids = {link.newer_id for link in links_by_id.values()}
        linked_ids = links_by_id.keys() | newer_ids
        is_linked = frame[col.MEMORY_ID].isin(linked_ids).to_numpy()
        return Plan(
            store=opened.name,
            made_at=moment,
            policy=settings,
            token_rule=snapshot.token_rule,
            groups=snapshot.groups(decision, deleted=~decision.keep),
            memories=(),
            kept=(),
            supersedes=tuple(_planned_links(snapshot.memories(decision, is_linked), links_by_id)),
        )

    return read_consistent(opened, plan_of)


class _Link(NamedTuple):
    """The id of the memory that supersedes an older one, and the reason."""

    newer_id: str
    reason: str


def _found_links(frame: pd.DataFrame, only: Collection[str] | None) -> dict[str, _Link]:
    """Return the links of memories that newer ones repeat, by the id of the older memory.

    Raise PlanError if one of the ids in `only` is not among them.
    """
    pairs = supersedable(frame)
    links = {}
    for older_id, newer_id, reason in zip(
        pairs[col.MEMORY_ID], pairs[col.SUPERSEDED_BY], pairs[col.REASON], strict=True
    ):
        links[older_id] = _Link(newer_id=newer_id, reason=reason)
    if only is None:
        return links
    requested_ids = set(only)
    unknown_ids = sorted(requested_ids - links.keys())
    if unknown_ids:
        raise PlanError(
            f"no newer memory repeats {some_of(unknown_ids)}; memlab floor lists the memories that "
            "a newer one repeats, and --supersede OLDER=NEWER names a pair by hand"
        )
    return {older_id: link for older_id, link in links.items() if older_id in requested_ids}


def _links_by_hand(frame: pd.DataFrame, links: Mapping[str, str]) -> dict[str, _Link]:
    """Return the links that a caller gives, by the id of the older memory.

    Raise PlanError if a link is not allowed.
    """
    is_active = frame[col.ACTIVE]
    active_ids = set(frame[col.MEMORY_ID][is_active])
    load_bearing_ids = set(frame[col.MEMORY_ID][is_active & frame[col.LOAD_BEARING]])
    for older_id, newer_id in links.items():
        if older_id not in load_bearing_ids:
            raise PlanError(
                f"{older_id!r} is not an active load-bearing memory of this store: memlab compact "
                "deletes prunable ones, and one that is superseded is not loaded"
            )
        if newer_id not in active_ids or newer_id == older_id or newer_id in links:
            raise PlanError(
                f"{newer_id!r} cannot stand for {older_id!r}: name another active memory of this "
                "store, one that is not superseded in the same plan"
            )
    return {
        older_id: _Link(newer_id=newer_id, reason="by hand") for older_id, newer_id in links.items()
    }


def _planned_links(
    memories: Iterable[PlannedMemory], links: Mapping[str, _Link]
) -> Iterator[PlannedLink]:
    """Yield the links of a plan. `memories` has both memories of each link."""
    memories_by_id = {memory.memory_id: memory for memory in memories}
    for older_id, older in memories_by_id.items():
        if older_id not in links:
            continue
        link = links[older_id]
        newer = memories_by_id[link.newer_id]
        yield PlannedLink(
            key=older.key,
            position=older.position,
            memory_id=older.memory_id,
            kind=older.kind,
            title=older.title,
            reason=link.reason,
            tokens=older.tokens,
            fingerprint=older.fingerprint,
            by_key=newer.key,
            by_memory_id=newer.memory_id,
            by_fingerprint=newer.fingerprint,
        )
