"""Make plans: decide which memories a policy deletes or retires, and record them."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction import plans
from memlab.compaction.merge_planner import plan_merge
from memlab.compaction.planning_snapshot import PlanningSnapshot, frame_at
from memlab.compaction.plans import Plan, StartChange
from memlab.compaction.retirement_decision import decide_retirement
from memlab.compaction.store_change import entries_of
from memlab.compaction.wire import as_data
from memlab.errors import PlanError
from memlab.evidence.reads import Log
from memlab.evidence.store_history import StoreHistory
from memlab.frame.fields import Flags, Ints, retired_rows
from memlab.frame.loading import load
from memlab.growth.context import loaded_after
from memlab.items import Size
from memlab.policies import Policy
from memlab.policies.base import decision_of
from memlab.policies.rules import ByIds
from memlab.sources.base import Source, read_consistent
from memlab.sources.capabilities import Supersession, require
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Reader, StepCallback, no_progress
from memlab.store.selection import TriggerEffect
from memlab.text import command


def plan(  # noqa: PLR0913 - each one is a choice of the user
    source: SourceLike,
    policy: Policy | None = None,
    *,
    ids: Collection[str] | None = None,
    retire: bool = False,
    into: SourceLike | None = None,
    log: Log = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
) -> Plan:
    """Plan which memories of a store a policy deletes or retires. The store is only read.

    The decision and the recorded fingerprints come from one snapshot of the store. A policy that
    learns uses the archive of the store and the access log as well. While the policy decides,
    other processes can write to a store in WAL mode that is open; with a rollback journal they
    wait.

    Parameters
    ----------
    source : str, Path, SqliteMemoryStore or Source
        A store's file, its URL, or an open store.
    policy : Policy
        The retention policy. Leave it out if `ids` or `into` is given.
    ids : collection of str, optional
        The ids of the memories to delete or retire, instead of a policy. All others stay as they
        are.
    retire : bool
        Retire the memories that the policy does not keep, instead of deleting them. A retired
        memory stays in the store and is not loaded. The plan decides again about all memories that
        are retired already: those that the policy keeps now are returned. Under a policy that does
        not consider use, memories that were read or referred to since they were retired are
        returned as well, the latest first, as far as the capacity of the policy allows.
    into : str, Path or Source, optional
        Instead of a policy, another folder of the same project. Memories that it lacks are copied
        there, byte for byte and with their index lines. Then all memories of which it has an equal
        one are archived here, load-bearing ones too. A memory whose name has another content there
        stays here. Only folders of Claude Code's memory can be merged.
    log : DataFrame, str or Path, optional
        An access log. The logs in ``memlab.toml`` by default.
    now : datetime, optional
        The time of the decision, with a time zone. The current time by default.
    on_step : callable, optional
        Progress callback. It is called with the name of each finished step: "read", "decided".

    Returns
    -------
    Plan
        The plan. :func:`memlab.apply` applies it.

    Raises
    ------
    PlanError
        If `retire` is true and the agent of the store loads no memories at start, or if one of
        `ids` is not the id of an active prunable memory, or if `into` or the store is no folder
        that can be merged.
    ValueError
        If not just one of a policy, ids and `into` is given.
    UnsafeDeletionError
        If the store is in memory, or if other tables of its file would lose rows.

    Examples
    --------
    >>> import memlab
    >>> plan = memlab.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> plan.policy
    {'policy': 'recent', 'keep': 50, 'by': 'position'}
    """
    if into is not None:
        if policy is not None or ids is not None or retire:
            raise ValueError(
                "memlab.plan takes either a policy, ids or into, and no retire with it"
            )
        return plan_merge(source, into, moment_or_now(now, call="memlab.plan"), on_step)
    if ids is not None:
        if policy is not None:
            raise ValueError("memlab.plan takes either a policy or ids, not both")
        distinct_ids = dict.fromkeys(texts(ids, call="memlab.plan", name="ids"))
        policy = ByIds(tuple(distinct_ids))
    expect(policy, Policy, call="memlab.plan", name="policy")
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.plan")
    expect(retire, bool, call="memlab.plan", name="retire")
    retirement = require(opened, "retirement") if retire else None
    _ = opened.archive  # raises an error if the store can have no archive
    history = StoreHistory(opened, log, now=moment, call="memlab.plan")
    if log is not None:
        # Logs of the settings are read later, and only for a policy that uses them. A missing log
        # must not stop a cap.
        history.with_reads()
    request = _Request(cast("Policy", policy), retirement, history)
    return read_consistent(opened, lambda reader: _plan_of(reader, opened, request, on_step))


class _Request(NamedTuple):
    """The request of one call of :func:`plan`.

    Attributes
    ----------
    policy : Policy
        The policy.
    retirement : Supersession or None
        The ability of the store to retire memories; None to delete them.
    history : StoreHistory
        The history of the store, without the rows of the snapshot.
    """

    policy: Policy
    retirement: Supersession | None
    history: StoreHistory


def _plan_of(reader: Reader, source: Source, request: _Request, on_step: StepCallback) -> Plan:
    """Make a plan from one snapshot of a store."""
    policy = request.policy
    retirement = request.retirement
    now = request.history.now
    with_body = any(step.reads_bodies for step in policy.steps)
    frame = frame_at(reader, source, with_body=with_body)
    on_step("read")
    snapshot = PlanningSnapshot(reader, source, frame)
    frame.attrs = {}  # pandas would copy them deeply with every column
    if source.index is not None:
        frame.attrs[col.INDEX_TOKENS] = source.index.overhead_tokens()
    history = request.history.with_rows(frame)
    if isinstance(policy, ByIds):
        _check_ids(frame, source, policy.ids)
    if retirement is not None:
        decision = decide_retirement(frame, history, policy)
        is_active = snapshot.columns[col.ACTIVE]
        snapshot.relabel(is_active & ~decision.keep, plans.RETIRES)
        if not isinstance(policy, ByIds) and retirement.returns_memories():
            is_returned = ~is_active & decision.keep & retired_rows(frame)
            snapshot.relabel(is_returned, plans.RETURNS)
        is_removed = snapshot.has_label(plans.RETIRES)
    else:
        if any(step.learns for step in policy.steps):
            policy = policy.with_past(history.past, history.references)
        decision = decision_of(frame, policy, now=now)
        is_removed = ~decision.keep
    on_step("decided")
    start = None
    if col.INDEX_TOKENS in frame.attrs:
        is_active = snapshot.columns[col.ACTIVE] | snapshot.has_label(plans.RETURNS)
        start = _start_without(frame, is_active, is_removed)
    # Free the memory of the frame before the rows of the plan are made, which take more than it.
    del frame, history
    snapshot.release_unused()
    removed = snapshot.memories(decision, is_removed)
    is_deleted = is_removed if retirement is None else np.zeros_like(is_removed)
    plan_made = Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=snapshot.token_rule,
        groups=snapshot.groups(decision, deleted=is_deleted),
        memories=(),
        kept=snapshot.kept(~is_removed & snapshot.is_prunable),
        start=start,
        is_retirement=retirement is not None,
        expires=snapshot.expiring(is_removed | snapshot.is_prunable, now),
    )
    if retirement is None:
        is_newest_deleted = bool(is_deleted[-1:].any())
        trigger_effects: tuple[TriggerEffect, ...] = ()
        if removed:
            trigger_effects = reader.side_effects([memory.key for memory in removed])
        return replace(
            plan_made,
            memories=removed,
            trigger_effects=trigger_effects,
            deletes_newest=source.is_native_format and is_newest_deleted,
        )
    returned = snapshot.memories(decision, snapshot.has_label(plans.RETURNS))
    return replace(
        plan_made,
        retires=removed,
        returns=returned,
        entries=entries_of(reader, retirement, removed + returned),
    )


def start_change(source: Source, plan: Plan) -> StartChange:
    """Return the sizes of a start before and after a plan, for a store with an index."""
    frame = load(source, on_bad_row="keep")
    removed_keys = [memory.key for memory in (*plan.memories, *plan.retires)]
    removed_keys += [link.key for link in plan.supersedes]
    is_returned = frame[col.KEY].isin([memory.key for memory in plan.returns])
    is_active = (frame[col.ACTIVE] | is_returned).to_numpy(bool)
    is_removed = frame[col.KEY].isin(removed_keys).to_numpy(bool)
    return _start_without(frame, is_active, is_removed)


def _start_without(frame: pd.DataFrame, is_active: Flags, is_removed: Flags) -> StartChange:
    """Return the sizes of a start before and after some memories are removed from the index.

    Parameters
    ----------
    frame : DataFrame
        The memories of the store.
    is_active : array of bool
        For each memory, whether it is active afterwards unless it is removed.
    is_removed : array of bool
        For each memory, whether it is removed.
    """
    tokens: Ints = frame[col.TOKENS].to_numpy(np.int64)

    def size_of(is_loaded: Flags) -> Size:
        index_tokens = frame.attrs[col.INDEX_TOKENS]
        return Size(
            memories=int(is_loaded.sum()), tokens=int(tokens[is_loaded].sum()) + index_tokens
        )

    is_loaded = loaded_after(frame, np.ones(len(frame), dtype=bool))
    is_floor = is_loaded & frame[col.LOAD_BEARING].to_numpy(bool)
    return StartChange(
        before=size_of(is_loaded),
        after=size_of(loaded_after(frame, ~is_removed, is_active=is_active)),
        floor=Size(memories=int(is_floor.sum()), tokens=int(tokens[is_floor].sum())),
    )


def _check_ids(frame: pd.DataFrame, source: Source, ids: Collection[str]) -> None:
    """Raise PlanError unless each id is that of an active prunable memory."""
    rows_by_id = frame.drop_duplicates(col.MEMORY_ID).set_index(col.MEMORY_ID)
    for memory_id in ids:
        if memory_id not in rows_by_id.index:
            listing = command("rows", source.name, "--json")
            similar = get_close_matches(memory_id, map(str, rows_by_id.index), n=1)
            suggestion = f"; {similar[0]!r} is one" if similar else ""
            raise PlanError(
                f"{memory_id!r} is not a memory of this store{suggestion}; "
                f"{listing} lists their ids"
            )
        memory = rows_by_id.loc[memory_id]
        if not memory[col.PRUNABLE]:
            is_load_bearing = bool(memory[col.LOAD_BEARING])
            raise PlanError(
                reason_to_keep(memory_id, source=source, is_load_bearing=is_load_bearing)
            )


def reason_to_keep(memory_id: str, *, source: Source, is_load_bearing: bool) -> str:
    """Return why a memory that is not prunable is not deleted by its id, and what to do instead."""
    if not is_load_bearing:
        return (
            f"{memory_id!r} is not loaded any more: it is superseded, retired, or named by no index"
        )
    advice = "only a person changes or deletes it, by hand"
    if source.supersession is not None:
        supersede = command("floor", source.name, "--supersede", f"{memory_id}=NEWER")
        advice = f"{supersede} supersedes it by a newer memory, so that it is not loaded"
    return f"{memory_id!r} is load-bearing, and is never deleted or retired; {advice}"
