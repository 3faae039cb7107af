"""Comparison of policies on one history: it chooses the replays, and returns their result."""

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
from memlab.replay.batch import CompletedTask, ReplayTask, policies_of, replay_tasks
from memlab.replay.candidates import (
    ODEK,
    USE_RETIRED,
    CostLevel,
    Rule,
    cost_levels_of,
    cost_of,
    missing_signals,
    rules_for,
)
from memlab.replay.history import ReplayHistory, prepare_history, reads_leave_no_trace
from memlab.replay.parameter_grid import with_policy_in_settings
from memlab.replay.result import Comparison
from memlab.replay.summary import summarise
from memlab.replay.verdicts import signals_with_hindsight, with_verdicts
from memlab.replay.walk import walk_through
from memlab.sources.opening import harvestable

APPLICATIONS: Final = 10_000
"""Approximate number of applications of each policy along a long history."""
APPLICATIONS_BY_DEFAULT: Final = 500
"""The same number for rules that are tried by default.

The interval is 0.2% of the history, which is short beside the compared caps (10% and more).
"""


def compare(  # noqa: PLR0913 - the history, the policies, and how they are replayed
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
) -> Comparison:
    """Compare policies on one history by the references that each would have lost, and by cost.

    Every policy is replayed from the first memory to the last. A reference is served if its target
    was still present. The column ``offline_optimum`` is the optimal offline bound for the same
    capacity.

    If a start loads the memories, a read of a present memory is assumed to leave no trace: the
    agent sees the memory without reading it. This is assumed for rules that delete and for rules
    that retire. A rule by use then uses reads of memories that were not loaded, and references by
    name.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.recommend_cap`.
    policies : iterable of Policy, optional
        One policy for each setting to try. By default, the rules of forge-loop, BetterDB, odek and
        MemForge are tried, and rules by age and by use; for a store also the policy in
        ``memlab.toml``. Each rule is tried at its own default, and at sizes that cost as many
        tokens as the newest 10, 25 and 50% of the prunable memories (25, 50 and 75% if memories
        are searched).
    every : int, optional
        Number of memories written from one application of a policy to the next. A policy that
        retires is applied at night, after at least so many memories and references. The default is
        1; for a long history each policy is applied about 10,000 times, and about 500 times if no
        policies are given.
    retire : bool
        Replay each policy twice: memories are deleted, or retired and can come back.
    token_budget : int, optional
        Show only policies under which 95% of starts load at most so many tokens.
    log : DataFrame, str or Path, optional
        An access log. The default for a store is the logs in its ``memlab.toml``.
    workers : int, optional
        Number of processes. The default is the number of processors, and 1 for little work or a
        policy that cannot be pickled (for example, one with its own vectoriser).
    progress : bool
        Show a progress bar.

    Returns
    -------
    Comparison
        ``answer`` says which rule serves most at equal tokens. ``table`` is the result of
        :func:`memlab.replay.summarise`, with ``KeepAll`` as the last row, and further columns that
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
    given_policies = None if policies is None else policies_of(policies)
    steps = [step for policy in given_policies or [] for step in policy.steps]
    with_body = any(step.reads_bodies for step in steps)
    history = StoreHistory.of(frame, log, call=call, with_body=with_body).with_past()
    source = history.source
    past = history.past
    is_searched = bool(past.attrs.get(col.RECALLED))
    retires = (source is None or source.retirement is not None) and not is_searched
    rules = list[Rule]()
    if given_policies is None:
        finds_duplicates = find_spec("scipy") is not None
        rules = rules_for(memories=len(past), retires=retires, finds_duplicates=finds_duplicates)
        if ODEK in rules:
            history = history.with_body()
            past = history.past
    if references is None:
        references = history.references
    if every is None:
        applications = APPLICATIONS_BY_DEFAULT if given_policies is None else APPLICATIONS
        every = max(1, ceil(len(past) / applications))
    every = whole_number("every", every, least=1)
    replay_history = prepare_history(past, references, silent=reads_leave_no_trace(past))
    if given_policies is None:
        levels = cost_levels_of(replay_history, searched=is_searched, token_budget=token_budget)
        tasks = _default_tasks(replay_history, rules, levels, every, retire=retire)
        if source is not None:
            tasks += [ReplayTask(policy) for policy in with_policy_in_settings([], source)]
    else:
        tasks = _tasks_of(given_policies, retire=retire)
    tasks.append(ReplayTask(KeepAll()))
    replays = replay_tasks(replay_history, tasks, every=every, workers=workers, progress=progress)
    completed: list[CompletedTask] = []
    not_compared = []
    for task, replay in zip(tasks, replays, strict=True):
        if replay is None:
            not_compared.append(f"{task.label} in {task.cost:,.0f} tokens")
        else:
            completed.append(CompletedTask(task, replay))
    table = summarise(past, references, [replay for _, replay in completed])
    table = with_verdicts(table, completed, replay_history, signals_with_hindsight(source, past))
    missing = [] if given_policies is not None else list(missing_signals(past))
    return Comparison(
        store=history.name,
        table=table,
        references=len(replay_history.references),
        every=every,
        token_budget=token_budget,
        retires=retires,
        log=history.log_option,
        deletes=source is None or not source.read_only_reason,
        missing_signals=tuple(missing),
        off_by_default=tuple(rule.off_by_default for rule in rules if rule.off_by_default),
        not_compared=tuple(not_compared),
        harvests=source is not None and can_harvest(source.scheme),
        memories=len(replay_history),
        prunable=int(replay_history.lifetimes.ever_prunable.sum()),
    )


def _tasks_of(policies: list[Policy], *, retire: bool) -> list[ReplayTask]:
    """Return the tasks for given policies; with `retire`, each policy has two tasks."""
    tasks = []
    for policy in policies:
        if policy == KeepAll():
            continue
        tasks.append(ReplayTask(policy))
        if retire:
            tasks.append(ReplayTask(policy, retire=True))
    return tasks


def can_harvest(scheme: str) -> bool:
    """Return whether agents that use stores of a scheme record their reads."""
    return any(scheme in system.schemes for system in harvestable())


def _default_tasks(
    history: ReplayHistory, rules: list[Rule], levels: list[CostLevel], every: int, *, retire: bool
) -> list[ReplayTask]:
    """Return the tasks without given policies: rules at their defaults, then at equal cost."""
    tasks = [ReplayTask(rule.default, rule=rule) for rule in rules if rule.default is not None]
    for level in levels:
        cost = cost_of(walk_through(history, KeepRecent(level.cap), every=every))
        for rule in rules:
            tasks.append(ReplayTask(rule=rule, level=level, cost=cost))
            retires_already = rule.retire or rule.name == USE_RETIRED.name
            if retire and not retires_already:
                tasks.append(ReplayTask(rule=replace(rule, retire=True), level=level, cost=cost))
    return tasks
