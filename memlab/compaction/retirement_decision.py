"""Decide which memories are loaded, where the others are retired and not deleted."""

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.compaction.planning_snapshot import Places
from memlab.compaction.plans import NEEDED
from memlab.evidence.store_history import StoreHistory
from memlab.frame.fields import Flags, retired_rows
from memlab.policies import CappedPolicy, Policy
from memlab.policies.base import PINNED, Decision, decision_of


def decide_retirement(frame: pd.DataFrame, history: StoreHistory, policy: Policy) -> Decision:
    """Decide which memories are loaded, as if the retired ones were loaded too.

    A policy that considers use decides about memories that were needed since they were retired.
    Under any other policy such memories are kept, as far as its capacity allows.

    Parameters
    ----------
    frame : DataFrame
        The memories of the store.
    history : StoreHistory
        The history of the store, which has these rows.
    policy : Policy
        The policy.
    """
    last_reference = history.references.groupby(col.TARGET_ID)[col.AT].max()
    needed_at = last_reference.reindex(frame[col.MEMORY_ID]).to_numpy("datetime64[us]")
    if any(step.learns for step in policy.steps):
        policy = policy.with_past(history.past, history.references)

    retired = retired_rows(frame)
    load_bearing = frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    active = frame[col.ACTIVE].to_numpy(dtype=bool)
    needed = np.zeros_like(retired)
    if retired.any():
        needed = retired & (needed_at > frame[col.RETIRED_AT].to_numpy("datetime64[us]"))
    candidates = frame.drop(columns=col.RETIRED_AT, errors="ignore").assign(
        **{col.ACTIVE: active | retired, col.PRUNABLE: (active | retired) & ~load_bearing}
    )
    is_held = needed & ~load_bearing
    if any(step.ranks_by == "use" for step in policy.steps):
        is_held = np.zeros_like(needed)
    latest_first = np.argsort(needed_at.astype(np.int64))[::-1]
    for step in policy.steps:
        if isinstance(step, CappedPolicy) and step.capacity is not None:
            _release_beyond_capacity(is_held, latest_first, step, step.capacity, candidates)
    pinned = candidates.assign(**{PINNED: is_held})
    decision = decision_of(pinned, policy, now=history.now)
    keep = decision.keep.copy()
    reason = decision.reason.copy()
    reason[needed & keep & ~load_bearing] = len(decision.reasons)
    keep[~active & ~retired] = True  # superseded memories are not loaded and do not change
    return Decision(keep, reason, [*decision.reasons, NEEDED])


def _release_beyond_capacity(
    is_held: Flags, latest_first: Places, policy: CappedPolicy, capacity: int, rows: pd.DataFrame
) -> None:
    """Clear the flag `is_held` of memories that do not fit into the capacity of a policy.

    The memories that were needed latest are held first. The policy decides about the others.

    Parameters
    ----------
    is_held : array of bool, one for each row
        Whether a memory is held. It is changed in place.
    latest_first : array of int
        The row numbers, from the latest use to the earliest.
    policy : CappedPolicy
        The policy, which gives the size of each row and the scopes with a capacity of their own.
    capacity : int
        The capacity of each scope, in the policy's unit.
    rows : DataFrame
        The memories.
    """
    size = policy.sizes(rows)
    load_bearing = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    for scope in policy.scopes(rows):
        in_scope = np.zeros_like(is_held)
        in_scope[scope.members] = True
        left = capacity
        if policy.counts_load_bearing:
            left -= int(size[in_scope & load_bearing].sum())
        is_candidate = is_held & in_scope
        for place in latest_first[is_candidate[latest_first]].tolist():
            is_held[place] = size[place] <= left
            if is_held[place]:
                left -= int(size[place])
