"""Comparison of policies on one history: which rules are tried, and how."""

from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from math import ceil
from typing import Final

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, whole_number
from memlab.evidence.past import HistoryLike
from memlab.evidence.reads import Log
from memlab.evidence.store_history import StoreHistory
from memlab.frame.loading import expect_references
from memlab.policies import KeepAll, KeepRecent, Policy
from memlab.replay.batch import Try, policies_of, replays_of
from memlab.replay.candidates import (
    ODEK,
    USE_RETIRED,
    Room,
    Rule,
    cost_of,
    missing_signals,
    rooms_of,
    rules_for,
)
from memlab.replay.history import ReplayHistory, prepare_history, reads_leave_no_trace
from memlab.replay.parameter_grid import with_remembered
from memlab.replay.result import Comparison
from memlab.replay.summary import summarise
from memlab.replay.verdicts import signals_with_hindsight, with_verdicts
from memlab.replay.walk import Replay, walk_through
from memlab.sources.opening import harvestable

APPLICATIONS: Final = 10_000
"""Approximate number of applications of each policy along a long history."""
APPLICATIONS_BY_DEFAULT: Final = 500
"""The same if no policies are given: an interval is then short beside the sizes of the rules."""


def compare(  # noqa: PLR0913 - what is compared, how, and by how many
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    policies: Iterable[Policy] | None = None,
    *,
    every: int | None = None,
    retire: bool = False,
    token_budget: int | None = None,
    log: Log = None,
    workers: int | None = None,
    progress: bool = False,
) -> "Comparison":
    """Compare policies on one history: the references that each would have lost, and its cost.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still present. The column ``offline_optimum`` is the optimal offline bound of that capacity.

    If a start loads the memories, a read of a present memory is assumed to leave no trace, whether
    a rule deletes or retires: the agent sees the memory without reading it. A rule by use then uses
    reads of memories that were not loaded, and references by name.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.recommend_cap`.
    policies : iterable of Policy, optional
        One for each setting to try. The default is the rules of forge-loop, BetterDB, odek and
        MemForge, each at its own default and at sizes that cost as many tokens as the newest 10, 25
        and 50% of the prunable memories (25, 50 and 75% if memories are searched), and rules by age
        and by use; for a store also the policy in ``memlab.toml``.
    every : int, optional
        Number of memories written from one application of a policy to the next, or of memories
        and references between the nights on which it retires. The default is 1; for a long history
        each policy is applied about 10,000 times, and about 500 times if no policies are given.
    retire : bool
        Replay each policy twice: memories are deleted, or retired and can come back.
    token_budget : int, optional
        Show only policies whose boot context has a p95 within so many tokens.
    log : DataFrame, str or Path, optional
        An access log; the default for a store is the logs in its ``memlab.toml``.
    workers : int, optional
        Number of processes; the default is the number of processors, and 1 for little work or a
        policy that cannot be pickled (one with its own vectoriser, say).
    progress : bool
        Show a progress bar.

    Returns
    -------
    Comparison
        ``answer`` says which rule serves most at equal tokens; ``table`` is the result of
        :func:`memlab.replay.summarise`, with ``KeepAll`` as the last row, and columns that
        say which rows are compared.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> store = memlab.store_path("looked_up")
    >>> comparison = memlab.compare(store, policies=[KeepRecent(20), KeepRecent(50)])
    >>> comparison.table["policy"].tolist()
    ['recent', 'recent', 'all']
    """
    call = "memlab.compare"
    expect(retire, bool, call=call, name="retire")
    if token_budget is not None:
        whole_number("token_budget", token_budget)
    expect_references(references, call=call, optional=True)
    own_policies = None if policies is None else policies_of(policies)
    with_body = any(step.reads_bodies for policy in own_policies or () for step in policy.steps)
    history = StoreHistory.of(frame, log, call=call, with_body=with_body).with_past()
    source = history.source
    past = history.past
    searched = bool(past.attrs.get(col.RECALLED))
    retires = (source is None or source.retirement is not None) and not searched
    rules = list[Rule]()
    if own_policies is None:
        finds_duplicates = find_spec("scipy") is not None
        rules = rules_for(memories=len(past), retires=retires, finds_duplicates=finds_duplicates)
        if ODEK in rules:
            history = history.with_body()
            past = history.past
    if references is None:
        references = history.references
    if every is None:
        applications = APPLICATIONS_BY_DEFAULT if own_policies is None else APPLICATIONS
        every = max(1, ceil(len(past) / applications))
    every = whole_number("every", every, least=1)
    replay_history = prepare_history(past, references, silent=reads_leave_no_trace(past))
    if own_policies is None:
        rooms = rooms_of(replay_history, searched=searched, token_budget=token_budget)
        tries = _tries_by_default(replay_history, rules, rooms, every, retire=retire)
        if source is not None:
            tries += [Try(policy) for policy in with_remembered([], source)]
    else:
        tries = _tries_of(own_policies, retire=retire)
    tries.append(Try(KeepAll()))
    replays = replays_of(replay_history, tries, every=every, workers=workers, progress=progress)
    completed = list[tuple[Try, Replay]]()
    not_compared = []
    for attempt, replay in zip(tries, replays, strict=True):
        if replay is None:
            not_compared.append(f"{attempt.label} in {attempt.cost:,.0f} tokens")
        else:
            completed.append((attempt, replay))
    table = summarise(past, references, [replay for _, replay in completed])
    table = with_verdicts(table, completed, replay_history, signals_with_hindsight(source, past))
    return Comparison(
        store=history.name,
        table=table,
        references=len(references),
        every=every,
        token_budget=token_budget,
        retires=retires,
        log=history.log_option,
        deletes=source is None or not source.read_only_reason,
        not_known=tuple(missing_signals(past)) if own_policies is None else (),
        off=tuple(rule.off for rule in rules if rule.off),
        not_compared=tuple(not_compared),
        harvests=source is not None and can_harvest(source.scheme),
        memories=len(replay_history),
        prunable=int(replay_history.lifetimes.ever_prunable.sum()),
    )


def _tries_of(policies: list[Policy], *, retire: bool) -> list[Try]:
    """Return the replays to make of policies that were given; twice with `retire`."""
    tries = []
    for policy in policies:
        if policy == KeepAll():
            continue
        tries.append(Try(policy))
        if retire:
            tries.append(Try(policy, retire=True))
    return tries


def can_harvest(scheme: str) -> bool:
    """Return whether agents that use such a store record their reads."""
    return any(scheme in system.schemes for system in harvestable())


def _tries_by_default(
    history: ReplayHistory, rules: list[Rule], rooms: list[Room], every: int, *, retire: bool
) -> list[Try]:
    """Return the replays to make by default: defaults, then each rule at equal tokens."""
    tries = [Try(rule.default, rule=rule) for rule in rules if rule.default is not None]
    for room in rooms:
        cost = cost_of(walk_through(history, KeepRecent(room.cap), every=every))
        for rule in rules:
            tries.append(Try(rule=rule, room=room, cost=cost))
            if retire and not rule.retire and rule.name != USE_RETIRED.name:
                tries.append(Try(rule=replace(rule, retire=True), room=room, cost=cost))
    return tries
