"""The activation policy: its formula, its dates, the age backtest, and what it serves."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab import decide
from memlab.base_activation import base_level, base_level_of_days, per_length
from memlab.evidence.references import find_references
from memlab.frame.loading import load
from memlab.policies import Activation, KeepRecent, TokenBudget
from memlab.policies import activation as arrays
from memlab.policies.activation import (
    ActivationBacktest,
    Capacity,
    activity_of,
    backtest_activation,
    counts_starts,
)
from memlab.replay import replay, replay_each
from tests.support.frames import START, make_episodes, make_frame, make_log, make_references, row
from tests.support.histories import recorded

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ages = st.floats(0, 5_000)
reads = st.integers(0, 500)


def days_of_writing(count: int, **signals: Any) -> pd.DataFrame:
    """Return a frame of one episode a day, with the given signal columns."""
    frame = make_frame(*(row(f"m{number}") for number in range(count)), minutes=24 * 60)
    return frame.assign(**signals)


def levels(frame: pd.DataFrame, references: pd.DataFrame, now: datetime) -> list[float]:
    return activity_of(frame, frame, references, now=now).levels.tolist()


def no_references(frame: pd.DataFrame) -> pd.DataFrame:
    return find_references(frame)[:0]


def times(*days: float | None) -> "pd.Series[Any]":
    """Return times in days after the first memory."""
    at = [pd.NaT if day is None else START + pd.Timedelta(days=day) for day in days]
    return pd.Series(at, dtype=c.TIME)


# The formula


@given(age=ages, idle=ages, count=reads)
def test_base_level_equals_the_published_formula(age: float, idle: float, count: int) -> None:
    long = max(age, 0.5)
    short = min(max(idle, 0.5), max(age, 0.5))
    if count and long - short > 1e-6 * long:
        spread = (long**0.5 - short**0.5) / (0.5 * (long - short))
        expected = short**-0.5 + count * spread
    elif count:
        expected = (count + 1) * long**-0.5
    else:
        expected = long**-0.5
    assert base_level(age, idle, count) == pytest.approx(expected, rel=1e-6)


@given(st.lists(st.tuples(ages, st.none() | ages, reads, st.integers(0, 9_999)), min_size=1))
def test_array_and_scalar_formulas_agree(
    memories: list[tuple[float, float | None, int, int]],
) -> None:
    columns = ["age", "idle", "count"]
    table = pd.DataFrame(memories, columns=[*columns, "tokens"])
    age, idle, count = (table[name].to_numpy("float64") for name in columns)
    tokens = table["tokens"].to_numpy("int64")
    by_array = arrays.base_levels(age, idle, count)
    one_by_one = [base_level(age, idle, count) for age, idle, count, _ in memories]
    assert by_array == pytest.approx(one_by_one)
    by_length = [
        per_length(level, tokens)
        for level, (_, _, _, tokens) in zip(one_by_one, memories, strict=True)
    ]
    assert arrays.per_length(by_array, tokens) == pytest.approx(by_length)


@given(st.floats(0, 400), st.lists(st.integers(0, 400), unique=True, max_size=20))
def test_array_and_scalar_sums_over_days_agree(age: float, days: list[int]) -> None:
    frame = make_frame(row("m0"), row("m1"))
    now = pd.Timestamp(START) + pd.Timedelta(days=500)
    born = now - pd.Timedelta(days=age)
    frame[c.CREATED_AT] = pd.Series([born, born], dtype=c.TIME)
    used = [day for day in days if day < age]
    log = pd.DataFrame({c.MEMORY_ID: "m0", c.AT: [now - pd.Timedelta(days=day) for day in used]})
    log[c.AT] = pd.to_datetime(log[c.AT], utc=True)
    references = find_references(frame, log, only_log=True)
    computed = activity_of(frame, frame, references, now=now.to_pydatetime()).levels
    assert computed[0] == pytest.approx(base_level_of_days(age, used), rel=1e-4)
    assert computed[1] == pytest.approx(base_level(age), rel=1e-4)


def test_approximation_is_near_the_exact_sum_for_even_days() -> None:
    spread = base_level_of_days(200, range(10, 200, 10))
    assert base_level(200, 10, reads=19) == pytest.approx(spread, rel=0.15)


def test_exact_sum_is_larger_for_recent_reads() -> None:
    late = base_level_of_days(400, range(1, 21))
    early = base_level_of_days(400, [1, *range(370, 389)])
    assert late > 2 * early


# Sources of the dates


def test_second_read_in_a_utc_day_does_not_change_the_count() -> None:
    frame = days_of_writing(3)
    once = find_references(frame, make_log(("m0", 24 * 10 + 9)))
    twice = find_references(frame, make_log(("m0", 24 * 10 + 3), ("m0", 24 * 10 + 9)))
    next_day = find_references(frame, make_log(("m0", 24 * 10 + 9), ("m0", 24 * 11 + 9)))
    now = START + 20 * DAY
    assert levels(frame, twice, now) == levels(frame, once, now)
    assert levels(frame, next_day, now)[0] > levels(frame, once, now)[0]


def test_access_counter_is_used_without_a_log() -> None:
    frame = days_of_writing(
        3, access_count=pd.array([3, 0, 0], "Int64"), last_accessed_at=times(96, None, None)
    )
    activity = activity_of(frame, frame, no_references(frame), now=START + 100 * DAY)
    assert activity.levels[0] == pytest.approx(base_level(100, 4, reads=3))
    assert activity.levels[1] == pytest.approx(base_level(99))
    assert "1 memory by the store's own counter" in activity.notes[0]


def test_log_and_counter_are_combined_per_memory() -> None:
    frame = days_of_writing(
        3, access_count=pd.array([5, 1, 0], "Int64"), last_accessed_at=times(50, 90, None)
    )
    log = make_log(("m0", 24 * 80), ("m1", 24 * 60), ("m1", 24 * 70), ("m2", 24 * 70))
    computed = levels(frame, find_references(frame, log), START + 100 * DAY)
    assert computed[0] == pytest.approx(base_level(100, 20, reads=5)), "more reads, earlier last"
    assert computed[1] == pytest.approx(base_level(99, 10, reads=2)), "fewer reads, later last"
    assert computed[2] == pytest.approx(base_level_of_days(98, [30])), "the log has all of it"


COUNTERS = {
    "last access at creation": (0, 0.0, base_level(100)),
    "an uncounted last access is one read": (0, 60.0, base_level(100, 40, reads=1)),
    "never accessed": (0, None, base_level(100)),
    "counted without a time": (4, None, base_level(100, 100, reads=4)),
    "not finite": (float("inf"), 60.0, base_level(100, 40, reads=1)),
    "negative": (-3, 60.0, base_level(100, 40, reads=1)),
    "missing": (None, None, base_level(100)),
    "in the future": (2, 500.0, base_level(100, 0, reads=2)),
}


@pytest.mark.parametrize(("count", "last", "level"), COUNTERS.values(), ids=COUNTERS)
def test_counter_gives_the_expected_level(
    count: float | None, last: float | None, level: float
) -> None:
    counts = pd.Series([count], dtype="float64")
    frame = days_of_writing(1, access_count=counts, last_accessed_at=times(last))
    activity = activity_of(frame, frame, no_references(frame), now=START + 100 * DAY)
    assert activity.levels[0] == pytest.approx(level)
    warns_of_future = any("future" in note for note in activity.notes)
    is_in_future = last == 500.0
    assert warns_of_future == is_in_future


def test_missing_creation_time_is_taken_from_neighbours() -> None:
    frame = days_of_writing(4)
    frame[c.CREATED_AT] = times(None, 10, None, 30)
    computed = levels(frame, no_references(frame), START + 100 * DAY)
    assert computed == pytest.approx(
        [base_level(90), base_level(90), base_level(90), base_level(70)]
    )


def test_future_creation_time_is_now_with_a_note() -> None:
    frame = days_of_writing(3)
    activity = activity_of(frame, frame, no_references(frame), now=START + DAY / 2)
    assert activity.levels[2] == pytest.approx(base_level(0))
    assert "2 memories written in the future, taken as written now" in activity.notes


def test_counter_raised_by_every_start_is_ignored() -> None:
    born = times(*range(20))
    starts = pd.array([20 - number for number in range(20)], "Int64")
    frame = days_of_writing(20, access_count=starts, last_accessed_at=times(*[20.5] * 20))
    frame[c.CREATED_AT] = born
    activity = activity_of(frame, frame, no_references(frame), now=START + 21 * DAY)
    assert activity.levels == pytest.approx([base_level(21 - number) for number in range(20)])
    assert "it counts starts" in activity.notes[0]
    is_kept = decide(frame, Activation(5), now=START + 21 * DAY)[c.KEEP]
    assert frame.index[is_kept].tolist() == [15, 16, 17, 18, 19]


def test_counter_of_starts_is_recognised_under_a_cap() -> None:
    born = np.arange(40.0)
    count = np.where(born >= 20, 40 - born, 0.0)
    last = np.where(born >= 20, 40.0, np.nan)
    assert counts_starts(born, count, last)


@pytest.mark.parametrize(
    ("count", "last"),
    [
        ([1.0] * 10, [40.0] * 10),  # one search found all memories
        ([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0], [40.0] * 10),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], list(range(20, 30))),
        ([0.0] * 10, [np.nan] * 10),
    ],
)
def test_counter_of_use_is_not_taken_for_starts(count: list[float], last: list[float]) -> None:
    assert not counts_starts(np.arange(10.0), np.array(count), np.array(last, dtype=np.float64))


# Kept memories


def test_activation_without_reads_keeps_the_newest() -> None:
    frame = days_of_writing(40)
    last = frame[c.CREATED_AT].iloc[-1]
    unread = decide(frame, Activation(5), now=last)
    assert unread.index[unread[c.KEEP]].tolist() == [35, 36, 37, 38, 39]
    read = find_references(frame, make_log(("m3", 39 * 24)))
    after = decide(frame, Activation(5).with_past(frame, read), now=last)
    assert after.index[after[c.KEEP]].tolist() == [3, 36, 37, 38, 39]


def test_token_budget_keeps_the_shorter_of_equal_activity() -> None:
    frame = make_frame(row("long", tokens=900), row("short", tokens=100), minutes=0)
    decided = decide(frame, Activation(max_tokens=950), now=NOW)
    assert decided[c.KEEP].tolist() == [False, True]
    assert decided[c.REASON].tolist() == [Activation.reason, "kept"]


def test_deleted_memories_do_not_fit_the_unused_budget() -> None:
    rng = np.random.default_rng(7)
    for budget in rng.integers(20, 4_000, 25).tolist():
        sizes = rng.integers(1, 900, 60).tolist()
        frame = make_frame(*(row(f"e{number}", tokens=size) for number, size in enumerate(sizes)))
        is_kept = decide(frame, Activation(max_tokens=budget), now=NOW)[c.KEEP]
        tokens = frame[c.TOKENS]
        unused_budget = budget - tokens[is_kept].sum()
        assert 0 <= unused_budget < tokens[~is_kept].min()


def test_reads_of_unknown_memories_change_nothing() -> None:
    frame = days_of_writing(20)
    foreign_reads = find_references(frame, make_log(("other", 24 * 30), ("m9", -24 * 30)))
    last = frame[c.CREATED_AT].iloc[-1]
    with_reads = decide(frame, Activation(5).with_past(frame, foreign_reads), now=last)
    without_reads = decide(frame, Activation(5).with_past(frame, foreign_reads[:0]), now=last)
    pd.testing.assert_frame_equal(with_reads, without_reads)


@pytest.mark.parametrize("unit", ["max_items", "max_tokens"])
def test_decision_with_the_past_equals_the_replay(unit: str) -> None:
    frame, references = recorded()
    cap = 60 if unit == "max_items" else 60 * int(frame[c.TOKENS].mean())
    policy = Activation(**{unit: cap})
    deleted = replay(frame, references, policy).deleted
    for written in (500, 1100, 1600):
        past = frame.iloc[:written]
        deleted_before = deleted.loc[deleted["deleted_at_position"] < written, c.MEMORY_ID]
        deleted_now = deleted.loc[deleted["deleted_at_position"] == written, c.MEMORY_ID]
        present = past[~past[c.MEMORY_ID].isin(deleted_before)]
        now = past[c.CREATED_AT].iloc[-1]
        is_kept = decide(present, policy.with_past(past), now=now)[c.KEEP]
        assert present.loc[~is_kept, c.MEMORY_ID].tolist() == deleted_now.tolist()


def test_past_is_not_part_of_policy_equality() -> None:
    frame, _ = recorded()
    with_whole_past = Activation(60).with_past(frame)
    with_part = Activation(60).with_past(frame.iloc[:900])
    assert with_whole_past == Activation(60)
    assert with_part == Activation(60)
    assert "past" not in repr([with_whole_past, with_part])
    pd.testing.assert_frame_equal(
        decide(frame, with_whole_past, now=NOW), decide(frame, with_part, now=NOW)
    )


# Fallback to age


def history_read_when_new() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a history in which each memory is read on its first three days only."""
    frame = days_of_writing(120)
    reads = [
        (f"m{number}", 24 * (number + later) + 1) for number in range(120) for later in range(3)
    ]
    return frame, find_references(frame, make_log(*reads))


def age_decides(frame: pd.DataFrame, references: pd.DataFrame, cap: int) -> bool:
    """True if the backtest prefers the newest memories to the most active."""
    backtest = backtest_activation(frame, references)
    return backtest.age_decides(Capacity(size=cap, of_tokens=False))


def test_age_decides_if_use_served_fewer_needs() -> None:
    frame, references = history_read_when_new()
    assert not age_decides(frame, references[:9], cap=3)
    assert age_decides(frame, references, cap=3)
    assert not age_decides(frame, references, cap=60), "both serve all"
    decided = decide(frame, Activation(3).with_past(frame, references), now=NOW)
    assert set(decided.loc[~decided[c.KEEP], c.REASON]) == {Activation.reason_by_age}
    assert decided.index[decided[c.KEEP]].tolist() == [117, 118, 119]


def test_backtest_ignores_later_references() -> None:
    frame, references = history_read_when_new()
    whole_backtest = backtest_activation(frame, references)
    for rows_seen in (20, 77, 200):
        part: ActivationBacktest = backtest_activation(frame, references[:rows_seen])
        for size in (2, 3, 10):
            capacity = Capacity(size=size, of_tokens=False)
            assert part.age_decides(capacity) == whole_backtest.age_decides(capacity, rows_seen)


def test_reads_after_retirement_do_not_favour_age() -> None:
    frame, references = history_read_when_new()
    retired = frame.assign(**{c.RETIRED_AT: pd.Series(pd.NaT, frame.index, c.TIME)})
    retired.loc[0, c.RETIRED_AT] = START + DAY
    assert not age_decides(retired, references, cap=3)
    evidence = references.assign(**{c.KIND: "evidence"})
    assert age_decides(retired, evidence, cap=3)


@pytest.mark.parametrize("name", ["history-uv", "history-bevy", "history-arrow-rs"])
def test_activation_serves_recorded_histories_as_well_as_newest(real_store, name: str) -> None:
    frame = load(real_store(name))
    references = find_references(frame)
    late = (references[c.AT_POSITION] > len(frame) / 2).to_numpy()
    policies = [KeepRecent(50), Activation(50), KeepRecent(1000), Activation(1000)]
    replays = replay_each(frame, references, policies, workers=1)
    served = [float(result.references.loc[late, "kept"].mean()) for result in replays]
    newest_50, active_50, newest_1000, active_1000 = served
    assert active_50 >= newest_50 - 0.01
    assert active_1000 >= newest_1000 - 0.01


# Served references


def history_of_reused_memories() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a note a day; every fifth of the first thirty is read twice a week."""
    frame = make_episodes(200, tokens=[50, 400] * 100)
    frame[c.CREATED_AT] = START + pd.to_timedelta(range(200), unit="D")
    at = []
    distance = []
    for day in range(40, 200, 4):
        for target in range(0, 30, 5):
            at.append(day)
            distance.append(day - target)
    return frame, make_references(frame, at, distance)


def test_activation_serves_more_of_reused_memories() -> None:
    frame, references = history_of_reused_memories()
    pairs = [(KeepRecent(10), Activation(10)), (TokenBudget(2500), Activation(max_tokens=2500))]
    for newest, active in pairs:
        served_by_age = replay(frame, references, newest, retire=True).served
        served_by_use = replay(frame, references, active, retire=True).served
        assert served_by_use > served_by_age + 0.5
