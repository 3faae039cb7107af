"""Along a history: boot contexts agree with the cap curve, age ranks with the shares served."""

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references, row
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.evidence.prior import MIDDLE
from memlab.frame.loading import load
from memlab.report.bundled import store_path
from memlab.sizing import (
    age_rank_quantiles,
    age_ranks,
    boot_over_time,
    cap_curve,
    caps_along,
    prepare_sizing,
)


def with_gaps() -> pd.DataFrame:
    """The past of a store of which somebody deleted memories without an archive."""
    rows = [
        row(f"m{n}", **{c.EVIDENCE_REFS: (f"m{max(n - 9, 0)}",) if n % 3 == 0 else ()})
        for n in range(60)
    ]
    past = make_frame(*rows).assign(**{c.DELETED_AT: pd.Series(pd.NaT, range(60), dtype=c.TIME)})
    return past.drop(range(5, 20)).reset_index(drop=True)


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return load(store_path("two_years"))


def at_cap(timeline: pd.DataFrame, cap: int | None) -> pd.DataFrame:
    wanted = timeline["keep_recent"].isna() if cap is None else timeline["keep_recent"] == cap
    return timeline[wanted.fillna(value=False)]


def test_mean_and_peak_over_time_are_those_of_the_cap_curve(two_years: pd.DataFrame) -> None:
    timeline = boot_over_time(two_years, [0, 50, 400], moments=len(two_years))
    curve = cap_curve(two_years)
    for cap in (0, 50, 400):
        held = at_cap(timeline, cap)
        assert len(held) == len(two_years)
        for measure in ("memories", "tokens"):
            assert held[measure].max() == curve.loc[cap, f"boot_{measure}_max"]
            assert held[measure].mean() == pytest.approx(curve.loc[cap, f"boot_{measure}_mean"])


def test_what_left_gaps_counts_as_in_the_cap_curve() -> None:
    past = with_gaps()
    curve = cap_curve(past)
    ranks = age_ranks(past)
    timeline = boot_over_time(past, [10, 45])
    for cap in (10, 45):
        assert (ranks["age_rank"] <= cap).mean() == curve.loc[cap, "served_observed"]
        for measure in ("memories", "tokens"):
            held = at_cap(timeline, cap)[measure]
            assert held.max() == curve.loc[cap, f"boot_{measure}_max"]
            assert held.mean() == pytest.approx(curve.loc[cap, f"boot_{measure}_mean"])
    assert timeline["written"].max() == age_rank_quantiles(past)["last"].max() == 60


def test_quantiles_are_of_the_ranks_where_there_are_gaps() -> None:
    past = with_gaps()
    (found,) = age_rank_quantiles(past, parts=1)["p90"]
    assert found == np.quantile(age_ranks(past)["age_rank"], 0.9, method="inverted_cdf")
    assert len(age_ranks(past)) == len(prepare_sizing(past).references)


def test_no_cap_ends_with_what_is_active_now(two_years: pd.DataFrame) -> None:
    last = at_cap(boot_over_time(two_years, []), None).iloc[-1]
    active = two_years[two_years[c.ACTIVE]]
    assert (last["memories"], last["tokens"]) == (len(active), active[c.TOKENS].sum())
    assert last["written"] == len(two_years)


def test_a_long_history_is_looked_at_in_so_many_moments(two_years: pd.DataFrame) -> None:
    thin = boot_over_time(two_years, [50], moments=11)
    whole = boot_over_time(two_years, [50], moments=len(two_years))
    assert len(at_cap(thin, 50)) == len(at_cap(thin, None)) == 11
    assert at_cap(thin, 50)["written"].iloc[[0, -1]].tolist() == [1, len(two_years)]
    same = whole.merge(thin, on=["keep_recent", "written", "at", "memories", "tokens"])
    assert len(same) == len(thin)


def test_times_go_forward_whatever_order_rows_were_dated_in() -> None:
    frame = make_frame(*"abcd")
    frame[c.CREATED_AT] = frame[c.CREATED_AT].iloc[[2, 0, 3, 1]].reset_index(drop=True)
    assert boot_over_time(frame, [])["at"].is_monotonic_increasing
    frame.loc[[0, 2], c.CREATED_AT] = pd.NaT
    assert boot_over_time(frame, [1])["at"].notna().all()


def test_an_empty_store_has_no_moments() -> None:
    timeline = boot_over_time(make_episodes(3).iloc[:0], [5])
    assert timeline.empty
    assert list(timeline) == ["keep_recent", "written", "at", "memories", "tokens"]


@given(
    needs=st.lists(st.tuples(st.integers(1, 39), st.integers(1, 39)), min_size=1, max_size=30),
    cap=st.integers(0, 40),
)
def test_a_cap_serves_the_references_whose_rank_it_reaches(
    needs: list[tuple[int, int]], cap: int
) -> None:
    frame = make_episodes(40)
    at, back = zip(*((at, min(back, at)) for at, back in needs), strict=True)
    references = make_references(frame, at, back)
    ranks = age_ranks(frame, references)
    served = cap_curve(frame, references)["served_observed"]
    assert (ranks["age_rank"] <= cap).mean() == pytest.approx(served.loc[cap])


def test_a_reference_to_a_load_bearing_row_has_rank_0() -> None:
    frame = make_frame(
        row("d", **{c.KIND: "semantic"}), "e", row("f", **{c.EVIDENCE_REFS: ("d", "e")})
    )
    assert age_ranks(frame)["age_rank"].tolist() == [0, 1]
    assert age_rank_quantiles(frame, parts=1)["references"].tolist() == [1]


def test_quantiles_are_of_the_references_of_their_part() -> None:
    frame = make_episodes(100)
    references = make_references(frame, [10, 20, 30, 40, 90], [1, 5, 2, 9, 70])
    table = age_rank_quantiles(frame, references, parts=2)
    assert table["first"].tolist() == [0, 50]
    assert table["last"].tolist() == [50, 100]
    assert table["references"].tolist() == [4, 1]
    assert table["p50"].tolist() == [2, 70]
    assert table["p90"].tolist() == [9, 70]
    none = age_rank_quantiles(make_episodes(10), parts=3)
    assert (none["references"].tolist(), none["last"].tolist()) == ([0] * 3, [3, 7, 10])
    assert none["p50"].isna().all()


def test_caps_along_are_those_of_stretches_in_which_the_store_doubled() -> None:
    frame = make_episodes(800)
    at = [*range(400, 800, 20), *range(200, 400, 20), 150, 160]
    references = make_references(frame, at, [7] * len(at))
    along = caps_along(frame, references, share=0.5)
    assert along["memories"].tolist() == [200, 400, 800]
    reach = np.log1p(7) / np.log1p([300, 600])  # of the middle one in each stretch
    expected = np.expm1(reach * np.log1p(MIDDLE * np.array([200, 400])))
    assert along["cap"].iloc[:2].tolist() == pytest.approx(expected, rel=0.01)
    assert along["cap"].iloc[-1] == prepare_sizing(frame, references).ahead.cap_for(0.5)[0]


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_without_references_caps_along_are_one_point_of_the_law(rows: int) -> None:
    along = caps_along(make_episodes(rows))
    assert along.to_numpy().tolist() == [[rows, memlab.law(rows).cap]]
