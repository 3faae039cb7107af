"""Groups of replays with equal cost, and the differences in a group with confidence limits."""

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Floats
from memlab.policies import KeepAll, KeepRecent, Policy, TokenBudget
from memlab.replay.batch import CompletedTask
from memlab.replay.candidates import COST_TOLERANCE
from memlab.replay.history import ReplayHistory
from memlab.replay.noise import difference_with_limits
from memlab.replay.summary import RETIRED, lost_references
from memlab.replay.walk import Replay
from memlab.sources.base import Source


def signals_with_hindsight(source: Source | None, past: pd.DataFrame) -> frozenset[str]:
    """Return the signals whose present value alone a store has: earlier values were overwritten."""
    revised = past.attrs.get(col.REVISED, ()) if source is None else source.overwritten_signals
    return frozenset(name for name in revised if name in past and past[name].notna().any())


def with_verdicts(
    table: pd.DataFrame,
    completed: list[CompletedTask],
    history: ReplayHistory,
    hindsight_signals: frozenset[str],
) -> pd.DataFrame:
    """Add columns to a table that say which rows have equal cost, and how they differ.

    Parameters
    ----------
    table : DataFrame
        The result of :func:`memlab.replay.summarise`.
    completed : list of CompletedTask
        The replays of the table, in order, with their tasks.
    history : ReplayHistory
        The history.
    hindsight_signals : frozenset of str
        Signals of which the store knows only the present value.

    Returns
    -------
    DataFrame
        The table with further columns:

        - ``rule``: name of a rule that was tried by default;
        - ``cost_group``: number of the group of rows that cost equally many tokens;
        - ``hindsight``: whether the rule used values that were not known at that time;
        - ``newest``: whether the rule keeps the newest memories and deletes the others;
        - ``gain``, ``gain_low``, ``gain_high``: the served share minus that of the row in the same
          cost group that keeps the newest memories, with limits;
        - ``behind``, ``behind_low``: the best served share in the same cost group minus the served
          share of the row, with the lower limit of this difference.
    """
    replays = [replay for _, replay in completed]
    groups = _cost_groups(table, completed)
    hindsight = []
    for replay in replays:
        signals = set[str]()
        for step in replay.policy.steps:
            signals |= step.signals
        hindsight.append(not hindsight_signals.isdisjoint(signals))
    is_newest = [_is_newest(replay.policy) and not replay.retire for replay in replays]
    table = table.assign(
        rule=[task.label for task, _ in completed],
        cost_group=pd.array(groups, dtype="Int64"),
        hindsight=hindsight,
        newest=np.array(is_newest, dtype=bool),
    )
    table = table.assign(**_differences(table, groups, replays, history))
    if any(task.rule is not None for task, _ in completed):
        table = _labelled_by_rule(table, completed)
    return table


def _differences(
    table: pd.DataFrame, groups: list[int | None], replays: list[Replay], history: ReplayHistory
) -> dict[str, Floats]:
    """Return the columns ``gain`` and ``behind`` with their limits; see :func:`with_verdicts`."""
    names = ("gain", "gain_low", "gain_high", "behind", "behind_low")
    columns = {name: np.full(len(table), np.nan) for name in names}
    day = history.referred.astype("datetime64[D]").astype(np.int64)
    if not len(day):
        return columns
    serves = (~lost_references(replays)).astype(np.float64)
    served = table["served"].to_numpy()
    is_newest = table["newest"].to_numpy()
    has_hindsight = table["hindsight"].to_numpy()
    for group in sorted({group for group in groups if group is not None}):
        rows = np.array([row for row, group_of_row in enumerate(groups) if group_of_row == group])
        without_hindsight = rows[~has_hindsight[rows]]
        if not len(without_hindsight):
            continue
        pairs = len(rows) - 1
        best = without_hindsight[np.argmax(served[without_hindsight])]
        newest_rows = rows[is_newest[rows]]
        for row in rows:
            if len(newest_rows):
                newest = newest_rows[0]
                gain = difference_with_limits(day, serves[:, row] - serves[:, newest], pairs=pairs)
                columns["gain"][row] = gain.mean
                columns["gain_low"][row] = gain.low
                columns["gain_high"][row] = gain.high
            behind = difference_with_limits(day, serves[:, best] - serves[:, row], pairs=pairs)
            columns["behind"][row] = behind.mean
            columns["behind_low"][row] = behind.low
    return columns


def _is_newest(policy: Policy) -> bool:
    """Return whether a policy keeps the newest memories."""
    return type(policy) in {KeepRecent, TokenBudget}


def _cost_groups(table: pd.DataFrame, completed: list[CompletedTask]) -> list[int | None]:
    """Return the number of each row's group of equal cost; None if a row is in no group.

    If rules were tried at cost levels, there is a group for each level. Otherwise rows are grouped
    by their cost.
    """
    levels = [task.level for task, _ in completed]
    caps = sorted({level.cap for level in levels if level is not None})
    if caps:
        return [None if level is None else caps.index(level.cap) for level in levels]
    return _groups_by_cost(table)


def _groups_by_cost(table: pd.DataFrame) -> list[int | None]:
    """Return the number of each row's group of similar cost; None if no other row is similar."""
    cost = table["boot_tokens_mean"].to_numpy()
    evicts = (table["deleted"] > 0).to_numpy() & (table["policy"] != KeepAll.name).to_numpy()
    groups: list[int | None] = [None] * len(table)
    number = -1
    cheapest_of_group = -np.inf
    for row in np.argsort(cost, kind="stable").tolist():
        if not evicts[row]:
            continue
        if number < 0 or cost[row] > cheapest_of_group * (1 + COST_TOLERANCE):
            number += 1
            cheapest_of_group = cost[row]
        groups[row] = number
    shared = sorted({group for group in groups if group is not None and groups.count(group) > 1})
    return [shared.index(group) if group in shared else None for group in groups]


def _labelled_by_rule(table: pd.DataFrame, completed: list[CompletedTask]) -> pd.DataFrame:
    """Return the table with labels and families of rules in place of those of policies."""
    labels = []
    families = []
    ranks_by = {}
    for (task, replay), label, family in zip(completed, table.index, table["family"], strict=True):
        ending = RETIRED if replay.retire else ""
        if task.rule is None:
            labels.append(str(label))
            families.append(str(family))
        elif task.level is None:
            labels.append(f"{task.rule.name}, by default{ending}")
            families.append(task.rule.name + ending)
        else:
            labels.append(task.rule.label(replay.policy) + ending)
            families.append(task.rule.name + ending)
        ranks_by[families[-1]] = replay.policy.ranks_by
    table = table.assign(family=families).set_axis(pd.Index(labels, name="label"), axis="index")
    table.attrs[col.RANKS_BY] = ranks_by
    return table
