"""Which replays are compared at equal cost, and whether their differences exceed noise."""

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Floats
from memlab.policies import KeepAll, KeepRecent, Policy, TokenBudget
from memlab.replay.batch import Try
from memlab.replay.candidates import COST_TOLERANCE
from memlab.replay.history import ReplayHistory
from memlab.replay.noise import difference_with_limits
from memlab.replay.summary import RETIRED, lost_references
from memlab.replay.walk import Replay
from memlab.sources.base import Source


def signals_with_hindsight(source: Source | None, past: pd.DataFrame) -> frozenset[str]:
    """Return the signals of which a store knows only the present value."""
    revised = past.attrs.get(col.REVISED, ()) if source is None else source.revised
    return frozenset(name for name in revised if name in past and past[name].notna().any())


def with_verdicts(
    table: pd.DataFrame,
    tried: list[tuple[Try, Replay]],
    history: ReplayHistory,
    hindsight_signals: frozenset[str],
) -> pd.DataFrame:
    """Add to a table the rows that are compared at equal tokens, and their differences.

    Parameters
    ----------
    table : DataFrame
        The result of :func:`memlab.replay.summarise`.
    tried : list of (Try, Replay)
        The replays of the table, in order.
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
        - ``newest``: whether it keeps the newest memories;
        - ``gain``, ``gain_low``, ``gain_high``: the served share minus that of the newest memories
          in the same cost group, with limits;
        - ``behind``, ``behind_low``: the best served share in the same cost group minus that of the
          row, with its lower limit.
    """
    replays = [replay for _, replay in tried]
    rooms = _rooms_in(table, tried)
    hindsight = []
    for replay in replays:
        signals = set[str]()
        for step in replay.policy.steps:
            signals |= step.signals
        hindsight.append(not hindsight_signals.isdisjoint(signals))
    is_newest = [_is_newest(replay.policy) and not replay.retire for replay in replays]
    table = table.assign(
        rule=[attempt.label for attempt, _ in tried],
        cost_group=pd.array(rooms, dtype="Int64"),
        hindsight=hindsight,
        newest=np.array(is_newest, dtype=bool),
    )
    table = table.assign(**_differences(table, rooms, replays, history))
    if any(attempt.rule is not None for attempt, _ in tried):
        table = _named_by_rule(table, tried)
    return table


def _differences(
    table: pd.DataFrame, rooms: list[int | None], replays: list[Replay], history: ReplayHistory
) -> dict[str, Floats]:
    """Return the columns ``gain`` and ``behind`` with their limits; see :func:`with_verdicts`."""
    names = ("gain", "gain_low", "gain_high", "behind", "behind_low")
    columns = {name: np.full(len(table), np.nan) for name in names}
    day = history.referred.astype("datetime64[D]").astype(np.int64)
    if not len(day):
        return columns
    kept = (~lost_references(replays)).astype(np.float64)
    served = table["served"].to_numpy()
    is_newest = table["newest"].to_numpy()
    has_hindsight = table["hindsight"].to_numpy()
    for room in sorted({room for room in rooms if room is not None}):
        rows = np.array([row for row, room_of_row in enumerate(rooms) if room_of_row == room])
        judged = rows[~has_hindsight[rows]]
        if not len(judged):
            continue
        pairs = len(rows) - 1
        best = judged[np.argmax(served[judged])]
        newest = rows[is_newest[rows]]
        for row in rows:
            if len(newest):
                gain = difference_with_limits(day, kept[:, row] - kept[:, newest[0]], pairs=pairs)
                columns["gain"][row] = gain.mean
                columns["gain_low"][row] = gain.low
                columns["gain_high"][row] = gain.high
            behind = difference_with_limits(day, kept[:, best] - kept[:, row], pairs=pairs)
            columns["behind"][row] = behind.mean
            columns["behind_low"][row] = behind.low
    return columns


def _is_newest(policy: Policy) -> bool:
    """Return whether a policy keeps the newest memories."""
    return type(policy) in {KeepRecent, TokenBudget}


def _rooms_in(table: pd.DataFrame, tried: list[tuple[Try, Replay]]) -> list[int | None]:
    """Return the number of each row's room; None if no other row costs as many tokens."""
    rooms = [attempt.room for attempt, _ in tried]
    caps = sorted({room.cap for room in rooms if room is not None})
    if caps:
        return [None if room is None else caps.index(room.cap) for room in rooms]
    return _rooms_by_cost(table)


def _rooms_by_cost(table: pd.DataFrame) -> list[int | None]:
    """Return the number of each row's group of about equal cost; None if it is alone."""
    cost = table["boot_tokens_mean"].to_numpy()
    deletes = (table["deleted"] > 0).to_numpy() & (table["policy"] != KeepAll.name).to_numpy()
    rooms: list[int | None] = [None] * len(table)
    number = -1
    cheapest_of_room = -np.inf
    for row in np.argsort(cost, kind="stable").tolist():
        if not deletes[row]:
            continue
        if number < 0 or cost[row] > cheapest_of_room * (1 + COST_TOLERANCE):
            number += 1
            cheapest_of_room = cost[row]
        rooms[row] = number
    shared = sorted({room for room in rooms if room is not None and rooms.count(room) > 1})
    return [shared.index(room) if room in shared else None for room in rooms]


def _named_by_rule(table: pd.DataFrame, tried: list[tuple[Try, Replay]]) -> pd.DataFrame:
    """Return the table with rows named by their rules instead of by their policies."""
    labels = []
    families = []
    ranks_by = {}
    for (attempt, replay), label, family in zip(tried, table.index, table["family"], strict=True):
        ending = RETIRED if replay.retire else ""
        if attempt.rule is None:
            labels.append(str(label))
            families.append(str(family))
        elif attempt.room is None:
            labels.append(f"{attempt.rule.name}, by default{ending}")
            families.append(attempt.rule.name + ending)
        else:
            labels.append(attempt.rule.label(replay.policy) + ending)
            families.append(attempt.rule.name + ending)
        ranks_by[families[-1]] = replay.policy.ranks_by
    table = table.assign(family=families).set_axis(pd.Index(labels, name="label"), axis="index")
    table.attrs[col.RANKS_BY] = ranks_by
    return table
