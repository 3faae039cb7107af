"""The track record: how it is kept, and the bar that it has to pass."""

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references
from histories import DRIFTS, simulate_history

from memlab import columns as c
from memlab.sizing import backtest_cap, recommend_cap

REAL = ("history-uv", "history-bevy", "history-arrow-rs")
SEEDS = range(100, 107)


@pytest.fixture(scope="module")
def simulated() -> pd.DataFrame:
    """The backtests of simulated histories of every drift, one row per cut."""
    tests = [
        backtest_cap(*simulate_history(seed + 1000 * place, drift).as_frames()).assign(drift=drift)
        for place, drift in enumerate(DRIFTS)
        for seed in SEEDS
    ]
    return pd.concat(tests, ignore_index=True)


def answered(tests: pd.DataFrame) -> pd.DataFrame:
    """The cuts at which there was a choice to measure."""
    return tests[tests["achieved"].notna()]


def test_four_cuts_in_five_of_simulated_histories_reach_their_target(
    simulated: pd.DataFrame,
) -> None:
    told = answered(simulated)
    assert len(told) >= 0.75 * len(simulated)
    assert told["reached"].mean() >= 0.8
    assert (told["keep_recent"] / told["needed"]).median() < 2.5


def test_most_cuts_of_histories_whose_distances_grow_reach_their_target(
    simulated: pd.DataFrame,
) -> None:
    growing = answered(simulated[simulated["drift"] == "growing"])
    assert growing["reached"].mean() >= 0.7


def test_four_cuts_in_five_of_real_histories_reach_their_target(real_store) -> None:
    from memlab.frame.loading import load

    tests = pd.concat([backtest_cap(load(real_store(name))) for name in REAL])
    assert (tests["verdict"] == "ok").all()
    assert tests["reached"].mean() >= 0.8
    assert (tests["keep_recent"] / tests["needed"]).median() < 2.5


def steady() -> tuple[pd.DataFrame, pd.DataFrame]:
    return simulate_history(21, "steady", rows=4000).as_frames()


def test_a_backtest_says_what_was_chosen_and_what_it_achieved() -> None:
    tests = backtest_cap(*steady())
    assert tests["cut"].tolist() == [0.5, 0.6, 0.7, 0.8]
    assert (tests["target"] == 0.9).all()
    assert list(tests.columns) == [
        "cut",
        "verdict",
        "keep_recent",
        "target",
        "achieved",
        "reached",
        "references",
        "needed",
    ]


def test_nothing_after_the_cut_enters_the_choice() -> None:
    frame, references = steady()
    before = references[references[c.AT_POSITION] <= 2400]
    rng = np.random.default_rng(0)
    at = rng.integers(2400, 4000, 400)
    other = make_references(frame, at, 1 + (at * rng.random(400)).astype(int))
    changed = backtest_cap(frame, pd.concat([before, other]), cuts=(0.6,))
    unchanged = backtest_cap(frame, references, cuts=(0.6,))
    assert changed["keep_recent"].tolist() == unchanged["keep_recent"].tolist()
    assert changed["achieved"].tolist() != unchanged["achieved"].tolist()


def test_a_choice_before_a_cut_is_the_advice_of_that_day() -> None:
    frame, references = steady()
    then = frame.iloc[:2400]
    known = references[references[c.AT_POSITION] <= 2400]
    chosen = backtest_cap(frame, references, cuts=(0.6,))["keep_recent"].iloc[0]
    assert chosen == recommend_cap(then, known).keep_recent


def test_what_was_needed_is_the_smallest_cap_that_meets_the_target() -> None:
    frame = make_episodes(100)
    references = make_references(frame, [80, 81, 82, 83, 84], [1, 2, 3, 4, 50])
    row = backtest_cap(frame, references, target=0.8, cuts=(0.8,)).iloc[0]
    assert (row["needed"], row["references"]) == (4, 5)
    assert row["verdict"] == "too-few-references"
    assert pd.isna(row["keep_recent"])
    assert pd.isna(row["achieved"])


def test_a_stretch_without_needs_needs_nothing() -> None:
    tests = backtest_cap(make_episodes(50))
    assert tests["references"].tolist() == [0, 0, 0, 0]
    assert tests[["needed", "achieved", "reached"]].isna().all(axis=None)
    assert backtest_cap(make_frame())["needed"].isna().all()


def test_cuts_outside_the_history_are_refused() -> None:
    with pytest.raises(ValueError, match="cuts must lie between 0 and 1"):
        backtest_cap(make_episodes(5), cuts=(0.5, 1.0))
    with pytest.raises(ValueError, match="confidence must lie between"):
        backtest_cap(make_episodes(5), confidence=0.2)
    with pytest.raises(ValueError, match="target must lie between"):
        backtest_cap(make_episodes(5), target=1.0)
