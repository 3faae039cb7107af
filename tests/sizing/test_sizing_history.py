"""Sizing along a history: backtests, track record, starts, age ranks."""

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.charts import plot_age_ranks
from memlab.sizing import cap_curve, caps_along, prepare_sizing, recommend_cap
from memlab.sizing.backtest import TrackRecord, interval_inflation_of, posterior_of, record_of
from memlab.sizing.prior import STRETCH, geometric_mean_growth
from memlab.sizing.timeline import age_rank_quantiles, age_ranks, backtest_cap, boot_over_time
from tests.support.frames import make_episodes, make_frame, make_references, row
from tests.support.histories import DRIFTS, simulate_history

REAL = ("history-uv", "history-bevy", "history-arrow-rs")


def test_simulated_histories_reach_their_target() -> None:
    # The earliest split is at 0.5 of the history, and its test part ends at 0.7.
    until = 1.4
    backtests = []
    for number, drift in enumerate(DRIFTS):
        for seed in range(1000 * number + 100, 1000 * number + 107):
            backtest = backtest_cap(*simulate_history(seed, drift), until=until)
            backtests.append(backtest.assign(drift=drift))
    tests = pd.concat(backtests)
    assert tests["keep_recent"].notna().all()
    with_references = tests[tests["achieved"].notna()]
    assert len(with_references) >= 0.95 * len(tests)
    assert with_references["reached"].mean() >= 0.85
    assert (with_references["keep_recent"] / with_references["needed"]).median() < 2.5
    growing = with_references[with_references["drift"] == "growing"]
    assert growing["reached"].mean() >= 0.7


def test_real_histories_reach_their_target(real_store) -> None:
    tests = pd.concat([backtest_cap(memlab.load(real_store(name))) for name in REAL])
    assert set(tests["verdict"]) <= {"ok", "from-other-projects"}
    assert tests["reached"].mean() >= 0.85
    assert (tests["keep_recent"] / tests["needed"]).median() < 2.5


@pytest.mark.parametrize("seed", [21, 11])
def test_backtest_cap_equals_recommendation_at_the_split(seed: int) -> None:
    frame, references = simulate_history(seed, "steady", rows=4000)
    then = frame.iloc[:2400]
    known = references[references[c.AT_POSITION] <= 2400]
    chosen = backtest_cap(frame, references, splits=(0.6,))["keep_recent"].iloc[0]
    assert chosen == recommend_cap(then, known).keep_recent


def test_needed_cap_is_the_smallest_meeting_the_target() -> None:
    frame = make_episodes(100)
    references = make_references(frame, [80, 81, 82, 83, 84], [1, 2, 3, 4, 50])
    row = backtest_cap(frame, references, target=0.8, splits=(0.8,)).iloc[0]
    assert row["needed"] == 4
    assert row["references"] == 5
    assert row["verdict"] == "from-other-projects"
    assert row["achieved"] == (np.array([1, 2, 3, 4, 50]) <= row["keep_recent"]).mean()


def test_backtest_without_references_needs_no_cap() -> None:
    tests = backtest_cap(make_episodes(50))
    assert tests["references"].tolist() == [0, 0, 0, 0]
    assert tests[["needed", "achieved", "reached"]].isna().all(axis=None)
    assert backtest_cap(make_frame())["needed"].isna().all()


def test_poor_track_record_widens_the_limits() -> None:
    # There are few references, and those after two of the splits reach far back.
    frame, references = simulate_history(11, "steady", rows=3000)
    sizing = prepare_sizing(frame, references)
    advice = recommend_cap(frame, references)
    tests = backtest_cap(frame, references)
    missed = tests[~tests["reached"].astype(bool)]
    assert len(missed) == 2
    assert advice.missed == 2
    phrase = "But at 2 of 4 earlier moments this rule would have missed the target."
    assert str(advice).partition("\n")[0].endswith(phrase)
    assert phrase in advice._repr_html_()
    assert advice.interval_inflation > 1.2
    plain = posterior_of(sizing.lifetimes, sizing.references, sizing.settings)
    assert plain.cap_for(0.9).high < advice.keep_recent
    widened = f"limits are {advice.interval_inflation - 1:.0%} wider"
    assert any(text.startswith(widened) for text in advice.would_change)


def test_good_track_record_leaves_limits_and_title_alone() -> None:
    steady = simulate_history(21, "steady", rows=4000)
    advice = recommend_cap(*steady)
    tests = backtest_cap(*steady)
    assert advice.missed == 0
    assert advice.measured == 4
    assert advice.interval_inflation == 1
    assert "missed" not in str(advice).partition("\n")[0]
    times = (tests["keep_recent"] / tests["needed"]).median()
    assert times > 1.1
    assert advice.track_record.startswith("at 0 of 4 earlier moments this rule would have missed")
    assert (
        f"its cap was {times:.1f} times the smallest that would have met it" in advice.track_record
    )
    assert advice.track_record in str(advice)


def test_interval_inflation_grows_with_the_surprise() -> None:
    frame = make_episodes(2000)
    at = np.arange(100, 2000, 5)
    inflations = []
    for late_distance in (5, 30, 600):
        distance = np.where(at < 1600, 1 + at % 5, late_distance)
        sizing = prepare_sizing(frame, make_references(frame, at, distance))
        inflations.append(interval_inflation_of(sizing.splits))
    assert inflations[0] == 1
    assert inflations == sorted(inflations)
    assert 1.2 < inflations[-1] < 3


def test_track_record_ignores_splits_without_later_references() -> None:
    frame = make_episodes(100)
    splits = prepare_sizing(frame, make_references(frame, [20, 30, 85], [1, 2, 85])).splits
    assert [len(split.test_ranks) for split in splits] == [0, 0, 1, 1]
    chosen = [split.posterior.cap_for(0.9).high for split in splits[2:]]
    record = record_of(splits, 0.9)
    assert record.measured == 2
    assert record.missed == len([cap for cap in chosen if cap < 85])
    assert record.waste == pytest.approx(sum(chosen) / 2 / 85)
    assert record_of(splits[:2], 0.9) == TrackRecord(measured=0, missed=0, waste=None)
    assert interval_inflation_of(splits) == 1


@pytest.mark.parametrize(
    ("measured", "missed", "is_poor"),
    [
        (0, 0, False),
        (4, 0, False),
        (4, 1, False),
        (4, 2, True),
        (3, 1, True),
        (1, 1, True),
    ],
)
def test_track_record_is_poor_above_one_miss_in_four(
    measured: int, missed: int, is_poor: bool
) -> None:
    assert TrackRecord(measured, missed).poor == is_poor


GAPS = 15


def with_gaps() -> pd.DataFrame:
    """Return the past of a store in which `GAPS` memories were deleted without an archive."""
    rows = []
    for number in range(60):
        target = max(number - 9, 0)
        evidence_refs = (f"m{target}",) if number % 3 == 0 else ()
        rows.append(row(f"m{number}", evidence_refs=evidence_refs))
    frame = make_frame(*rows)
    past = frame.assign(**{c.DELETED_AT: pd.Series(pd.NaT, range(60), dtype=c.TIME)})
    return past.drop(range(5, 5 + GAPS)).reset_index(drop=True)


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return memlab.load(memlab.store_path("two_years"))


def at_cap(timeline: pd.DataFrame, cap: int) -> pd.DataFrame:
    return timeline[timeline["keep_recent"].eq(cap).fillna(value=False)]


def without_cap(timeline: pd.DataFrame) -> pd.DataFrame:
    return timeline[timeline["keep_recent"].isna()]


@pytest.mark.parametrize("kind", ["whole", "gaps"])
def test_boot_over_time_agrees_with_the_curve(two_years: pd.DataFrame, kind: str) -> None:
    past = two_years if kind == "whole" else with_gaps()
    all_moments = len(past) + (GAPS if kind == "gaps" else 0)
    curve = cap_curve(past)
    ranks = age_ranks(past)
    timeline = boot_over_time(past, [10, 45], moments=all_moments)
    for cap in (10, 45):
        assert (ranks["age_rank"] <= cap).mean() == curve.loc[cap, "served_observed"]
        for measure in ("memories", "tokens"):
            values = at_cap(timeline, cap)[measure]
            assert values.max() == curve.loc[cap, f"boot_{measure}_max"]
            assert values.mean() == pytest.approx(curve.loc[cap, f"boot_{measure}_mean"])
    assert timeline["written"].max() == age_rank_quantiles(past)["last"].max()
    if kind == "whole":
        last = without_cap(timeline).iloc[-1]
        active = past[past[c.ACTIVE]]
        assert last["memories"] == len(active)
        assert last["tokens"] == active[c.TOKENS].sum()
        assert last["written"] == len(past)


def test_boot_over_time_samples_the_given_number_of_moments(two_years: pd.DataFrame) -> None:
    sampled = boot_over_time(two_years, [50], moments=11)
    every_moment = boot_over_time(two_years, [50], moments=len(two_years))
    assert len(at_cap(sampled, 50)) == 11
    assert len(without_cap(sampled)) == 11
    assert at_cap(sampled, 50)["written"].iloc[0] == 1
    assert at_cap(sampled, 50)["written"].iloc[-1] == len(two_years)
    in_both = every_moment.merge(sampled, on=["keep_recent", "written", "at", "memories", "tokens"])
    assert len(in_both) == len(sampled)


def test_boot_over_time_is_monotonic_for_any_creation_times() -> None:
    frame = make_frame(*"abcd")
    frame[c.CREATED_AT] = frame[c.CREATED_AT].iloc[[2, 0, 3, 1]].reset_index(drop=True)
    assert boot_over_time(frame, [])["at"].is_monotonic_increasing
    frame.loc[[0, 2], c.CREATED_AT] = pd.NaT
    assert boot_over_time(frame, [1])["at"].notna().all()


def test_boot_over_time_of_empty_store_is_empty() -> None:
    timeline = boot_over_time(make_episodes(3).iloc[:0], [5])
    assert timeline.empty
    assert list(timeline) == ["keep_recent", "written", "at", "memories", "tokens"]


def test_reference_to_load_bearing_row_has_rank_zero() -> None:
    frame = make_frame(row("d", kind="semantic"), "e", row("f", evidence_refs=("d", "e")))
    assert age_ranks(frame)["age_rank"].tolist() == [0, 1]
    assert age_rank_quantiles(frame, parts=1)["references"].tolist() == [2]


def test_title_of_age_ranks_names_the_cap_that_served_so_far() -> None:
    past = memlab.load_past(memlab.store_path("two_years"))
    curve = cap_curve(past)
    so_far = curve.index[curve["served_observed"] >= 0.9][0]
    chart = plot_age_ranks(age_ranks(past)).figure
    assert chart.title.endswith(f"nine in ten {so_far}")
    assert "Not drawn: 47 references to load-bearing memories (rank 0)" in chart.alt


def test_caps_along_count_references_to_load_bearing_rows() -> None:
    decision = row("d", kind="semantic")
    frame = make_frame(decision, *(f"e{n}" for n in range(400)))
    at = [*range(210, 260, 2), *range(211, 400, 2)]
    rows_back = [9] * 25 + at[25:]  # the others reach back to the decision, the first row
    references = make_references(frame, at, rows_back)
    past, now = caps_along(frame, references, share=0.5)["cap"]
    assert past == 0
    assert now == recommend_cap(frame, references, target=0.5).likely


def test_age_rank_quantiles_are_computed_per_part() -> None:
    frame = make_episodes(100)
    references = make_references(frame, [10, 20, 30, 40, 90], [1, 5, 2, 9, 70])
    table = age_rank_quantiles(frame, references, parts=2)
    assert table["first"].tolist() == [0, 50]
    assert table["last"].tolist() == [50, 100]
    assert table["references"].tolist() == [4, 1]
    assert table["p50"].tolist() == [2, 70]
    assert table["p90"].tolist() == [9, 70]


def test_age_rank_quantiles_without_references_are_missing() -> None:
    table = age_rank_quantiles(make_episodes(10), parts=3)
    assert table["references"].tolist() == [0, 0, 0]
    assert table["last"].tolist() == [3, 7, 10]
    assert table["p50"].isna().all()


def test_caps_along_are_computed_at_each_doubling() -> None:
    frame = make_episodes(800)
    # The stretch from 100 to 200 memories has too few references for a cap.
    at = [150, 160, *range(200, 400, 20), *range(400, 800, 20)]
    references = make_references(frame, at, [7] * len(at))
    along = caps_along(frame, references, share=0.5)
    assert along["memories"].tolist() == [200, 400, 800]
    reach = np.log1p(7) / np.log1p([300, 600])  # the median reference of each part
    expected = np.expm1(reach * np.log1p(geometric_mean_growth(STRETCH) * np.array([200, 400])))
    assert along["cap"].iloc[:2].tolist() == pytest.approx(expected, rel=0.01)
    for until in (1.2, 2.0):
        along = caps_along(frame, references, share=0.5, until=until)
        ahead = prepare_sizing(frame, references, until=until).posterior
        assert along["cap"].iloc[-1] == ahead.cap_for(0.5).cap


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_caps_along_without_references_is_one_prior_point(rows: int) -> None:
    along = caps_along(make_episodes(rows))
    assert along.to_numpy().tolist() == [[rows, memlab.law(rows).cap]]
