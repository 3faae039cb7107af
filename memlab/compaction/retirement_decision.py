"""Decide which memories stay loaded, for a plan that retires the others."""

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.compaction.planning_snapshot import RowNumbers
from memlab.compaction.plans import NEEDED
from memlab.evidence.store_history import StoreHistory
from memlab.frame.fields import Flags, retired_rows
from memlab.policies import CappedPolicy, Policy
from memlab.policies.base import PINNED, Decision, decision_of


def decide_retirement(frame: pd.DataFrame, history: StoreHistory, policy: Policy) -> Decision:
    """Decide which memories are loaded. Retired memories take part as if they were loaded.

    A memory that was read or referred to since it was retired is needed. A policy that considers
    use decides about such memories itself. Any other policy keeps them as far as its capacity
    allows.

    Parameters
    ----------
    frame : DataFrame
        The memories of the store.
    history : StoreHistory
        The history of the store, which has these rows.
    policy : Policy
        The policy.
    """
    last_references = history.references.groupby(col.TARGET_ID)[col.AT].max()
    last_needed_at = last_references.reindex(frame[col.MEMORY_ID]).to_numpy("datetime64[us]")
    if any(step.learns for step in policy.steps):
        policy = policy.with_past(history.past, history.references)

    is_retired = retired_rows(frame)
    is_load_bearing = frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    is_active = frame[col.ACTIVE].to_numpy(dtype=bool)
    is_needed = np.zeros_like(is_retired)
    if is_retired.any():
        retired_at = frame[col.RETIRED_AT].to_numpy("datetime64[us]")
        is_needed = is_retired & (last_needed_at > retired_at)
    is_candidate = is_active | is_retired
    candidates = frame.drop(columns=col.RETIRED_AT, errors="ignore").assign(
        **{col.ACTIVE: is_candidate, col.PRUNABLE: is_candidate & ~is_load_bearing}
    )
    is_pinned = is_needed & ~is_load_bearing
    if any(step.ranks_by == "use" for step in policy.steps):
        is_pinned = np.zeros_like(is_needed)
    latest_first = np.argsort(last_needed_at.astype(np.int64))[::-1]
    for step in policy.steps:
        if isinstance(step, CappedPolicy) and step.capacity is not None:
            _unpin_beyond_capacity(is_pinned, latest_first, step, step.capacity, candidates)
    decision = decision_of(candidates.assign(**{PINNED: is_pinned}), policy, now=history.now)
    keep = decision.keep.copy()
    keep[~is_candidate] = True  # superseded memories are not loaded and do not change
    reasons = [*decision.reasons, NEEDED]
    reason = decision.reason.copy()
    reason[is_needed & decision.keep & ~is_load_bearing] = reasons.index(NEEDED)
    return Decision(keep, reason, reasons)


def _unpin_beyond_capacity(
    is_pinned: Flags,
    latest_first: RowNumbers,
    policy: CappedPolicy,
    capacity: int,
    rows: pd.DataFrame,
) -> None:
    """Clear the flag `is_pinned` of memories that do not fit into the capacity of a policy.

    The memories that were needed latest stay pinned. The policy decides about the others.

    Parameters
    ----------
    is_pinned : array of bool, one for each row
        Whether the policy must keep a memory. It is changed in place.
    latest_first : array of int
        The row numbers, from the latest use to the earliest.
    policy : CappedPolicy
        The policy, which gives the size of each row and the scopes with a capacity of their own.
    capacity : int
        The capacity of each scope, in the policy's unit.
    rows : DataFrame
        The memories.
    """
    sizes = policy.sizes(rows)
    is_load_bearing = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    for scope in policy.scopes(rows):
        is_in_scope = np.zeros_like(is_pinned)
        is_in_scope[scope.members] = True
        capacity_left = capacity
        if policy.counts_load_bearing:
            capacity_left -= int(sizes[is_in_scope & is_load_bearing].sum())
        is_candidate = is_pinned & is_in_scope
        candidates_latest_first = latest_first[is_candidate[latest_first]]
        for row in candidates_latest_first.tolist():
            fits = sizes[row] <= capacity_left
            is_pinned[row] = fits
            if fits:
                capacity_left -= int(sizes[row])
