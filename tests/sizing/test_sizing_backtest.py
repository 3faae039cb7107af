"""The track record: how it is kept, the bar that it has to pass, and what a poor one does."""

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references
from histories import DRIFTS, simulate_history

from memlab import columns as c
from memlab.sizing import backtest_cap, prepare_sizing, recommend_cap
from memlab.sizing.record import Record, posterior_of, record_of, widening

REAL = ("history-uv", "history-bevy", "history-arrow-rs")
SEEDS = range(100, 107)


def test_seventeen_cuts_in_twenty_of_simulated_histories_reach_their_target() -> None:
    simulated = pd.concat(
        backtest_cap(*simulate_history(seed + 1000 * place, drift).as_frames()).assign(drift=drift)
        for place, drift in enumerate(DRIFTS)
        for seed in SEEDS
    )
    assert simulated["keep_recent"].notna().all()
    told = simulated[simulated["achieved"].notna()]  # references followed
    assert len(told) >= 0.95 * len(simulated)
    assert told["reached"].mean() >= 0.85
    assert (told["keep_recent"] / told["needed"]).median() < 2.5
    assert told.loc[told["drift"] == "growing", "reached"].mean() >= 0.7


def test_seventeen_cuts_in_twenty_of_real_histories_reach_their_target(real_store) -> None:
    from memlab.frame.loading import load

    tests = pd.concat([backtest_cap(load(real_store(name))) for name in REAL])
    assert set(tests["verdict"]) <= {"ok", "from-other-projects"}
    assert tests["reached"].mean() >= 0.85
    assert (tests["keep_recent"] / tests["needed"]).median() < 2.5


def steady() -> tuple[pd.DataFrame, pd.DataFrame]:
    return simulate_history(21, "steady", rows=4000).as_frames()


def test_a_backtest_says_what_was_chosen_and_what_it_achieved() -> None:
    tests = backtest_cap(*steady())
    assert tests["cut"].tolist() == [0.5, 0.6, 0.7, 0.8]
    assert (tests["target"] == 0.9).all()
    names = "cut verdict keep_recent target achieved reached references needed"
    assert list(tests) == names.split()


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


@pytest.mark.parametrize("seed", [21, 11])
def test_a_choice_before_a_cut_is_the_advice_of_that_day(seed: int) -> None:
    frame, references = simulate_history(seed, "steady", rows=4000).as_frames()
    then = frame.iloc[:2400]
    known = references[references[c.AT_POSITION] <= 2400]
    chosen = backtest_cap(frame, references, cuts=(0.6,))["keep_recent"].iloc[0]
    assert chosen == recommend_cap(then, known).keep_recent


def test_what_was_needed_is_the_smallest_cap_that_meets_the_target() -> None:
    frame = make_episodes(100)
    references = make_references(frame, [80, 81, 82, 83, 84], [1, 2, 3, 4, 50])
    row = backtest_cap(frame, references, target=0.8, cuts=(0.8,)).iloc[0]
    assert (row["needed"], row["references"]) == (4, 5)
    assert row["verdict"] == "from-other-projects"
    assert row["achieved"] == (np.array([1, 2, 3, 4, 50]) <= row["keep_recent"]).mean()


def test_a_stretch_without_references_needs_nothing() -> None:
    tests = backtest_cap(make_episodes(50))
    assert tests["references"].tolist() == [0, 0, 0, 0]
    assert tests[["needed", "achieved", "reached"]].isna().all(axis=None)
    assert backtest_cap(make_frame())["needed"].isna().all()


def surprising(seed: int = 11) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history with few references, of which those after two of the cuts lie far back."""
    return simulate_history(seed, "steady", rows=3000).as_frames()


def test_a_poor_record_stands_in_the_headline_and_widens_the_limits() -> None:
    frame, references = surprising()
    sizing, advice = prepare_sizing(frame, references), recommend_cap(frame, references)
    tests = backtest_cap(frame, references)
    assert advice.missed == (~tests["reached"].astype(bool)).sum() == 2
    headline = str(advice).partition("\n")[0]
    words = "but at 2 of 4 earlier cuts such a number missed"
    numbers = f"keep_recent = {advice.keep_recent:,} is safe, {advice.likely:,} is likely"
    assert headline.startswith(f"{numbers}, {words} (")
    assert words in advice._repr_html_()
    assert advice.widened > 1.2
    plain = posterior_of(sizing.history, sizing.references, sizing.law, 0.9)
    assert plain.cap_for(0.9)[2] < advice.keep_recent
    widened = f"limits are {advice.widened - 1:.0%} wider"
    assert any(text.startswith(widened) for text in advice.would_change)


def test_a_good_record_is_not_in_the_headline_and_widens_nothing() -> None:
    advice = recommend_cap(*steady())
    assert advice.missed == 0
    assert advice.measured == 4
    assert advice.widened == 1
    assert "missed" not in str(advice).partition("\n")[0]
    tests = backtest_cap(*steady())
    times = (tests["keep_recent"] / tests["needed"]).median()
    assert times > 1.1
    assert advice.track_record == f"met 4 of 4, at {times:.1f} times the need (median)"
    assert advice.track_record in str(advice)


def far_after(cut: float, back: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history whose references were near up to a cut and all of them so far back after it."""
    frame = make_episodes(2000)
    at = np.arange(100, 2000, 5)
    distance = np.where(at < cut * 2000, 1 + at % 5, back)
    return frame, make_references(frame, at, distance)


def test_a_worse_surprise_widens_more_and_none_does_not() -> None:
    scales = [widening(prepare_sizing(*far_after(0.8, back)).cuts) for back in (5, 30, 600)]
    assert scales[0] == 1
    assert scales == sorted(scales)
    assert 1.2 < scales[-1] < 3


def test_a_record_counts_only_cuts_that_references_followed() -> None:
    frame = make_episodes(100)
    cuts = prepare_sizing(frame, make_references(frame, [20, 30, 85], [1, 2, 85])).cuts
    assert [len(cut.after) for cut in cuts] == [0, 0, 1, 1]
    chosen = [cut.posterior.cap_for(0.9)[2] for cut in cuts[2:]]
    assert record_of(cuts, 0.9) == (2, sum(cap < 85 for cap in chosen), sum(chosen) / 2 / 85)
    assert record_of(cuts[:2], 0.9) == (0, 0, None)
    assert widening(cuts) == 1


def test_more_than_one_miss_in_four_is_a_poor_record() -> None:
    counts = [(0, 0), (4, 0), (4, 1), (4, 2), (3, 1), (1, 1)]
    assert [Record(*each).poor for each in counts] == [False, False, False, True, True, True]
