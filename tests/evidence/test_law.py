"""What ships is the fitted law; ``memlab.law`` is a cap with limits where nothing is known."""

import gzip
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.evidence.posterior import LEVELS, Posterior, Terms
from memlab.evidence.prior import (
    DEFAULT_UNTIL,
    EVIDENCE,
    STRETCH,
    Floats,
    fitted_law,
    law_of,
    limits_of,
    middle_of,
    rank_at,
    reach_of,
)
from memlab.evidence.usage import other_stores

CHECKOUT = Path(__file__).resolve().parents[2]
MIDDLE = middle_of(DEFAULT_UNTIL)
HISTORIES = CHECKOUT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def fitting() -> Iterator[ModuleType]:
    pytest.importorskip("scipy")
    spec = importlib.util.spec_from_file_location("fit_law", CHECKOUT / "data" / "fit_law.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.long
def test_the_numbers_that_ship_are_what_the_histories_give(fitting: ModuleType) -> None:
    if not any(HISTORIES.glob("history-*")):
        pytest.skip("no recorded histories (shared/data) beside the checkout")
    for evidence in EVIDENCE:
        assert fitting.fit(fitting.read_histories(HISTORIES, evidence)) == fitted_law(evidence)
    assert fitting.measure_usage(HISTORIES) == other_stores()


def test_a_read_is_the_best_hit_of_a_search_once_a_day(fitting: ModuleType, tmp_path: Path) -> None:
    def write(name: str, *lines: str) -> None:
        with gzip.open(tmp_path / f"recalls-r01-{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(lines))

    write(
        "memories", "position,born", *(f"{day - 1},2026-03-{day:02}T00:00:00Z" for day in (1, 2, 3))
    )
    write(
        "reads",
        "at,query,position,best",
        "2026-03-02T09:00:00Z,0,0,1",
        "2026-03-02T09:01:00Z,1,0,1",
        "2026-03-02T09:01:00Z,1,1,0",
        "2026-03-03T09:00:00Z,2,0,1",
        "2026-03-03T09:00:00Z,3,1,1",
    )
    (tmp_path / "recalls-groups.csv").write_text("store,group\nrecalls-r01,7\n")
    (read,) = fitting.read_histories(tmp_path, "reads")
    assert (read.name, read.owner, read.memories) == ("r01", "7", 3)
    assert [*zip(read.at.tolist(), read.rank.tolist(), strict=True)] == [(2, 2), (3, 3), (3, 2)]


def simulated(fitting: ModuleType, seed: int, *, shift: float, references: int) -> object:
    """A project whose references reach uniformly far, all of them farther by `shift`."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(250, 16_000, references))
    reach = np.clip(rng.uniform(0, 0.8, references) + shift, 0, 1)
    rank = np.clip(rank_at(reach, at).round(), 1, at).astype(int)
    return fitting.History(f"p{seed}", 16_000, at, rank)


def test_the_fit_finds_the_law_and_the_spread_that_projects_were_drawn_from(
    fitting: ModuleType,
) -> None:
    shifts = np.random.default_rng(1).normal(0.1, 0.05, 12)
    projects = [
        simulated(fitting, seed, shift=shift, references=4_000) for seed, shift in enumerate(shifts)
    ]
    law = fitting.fit(projects, worth=100.0)
    places = [law.shares.index(share) for share in (0.3, 0.5, 0.75, 0.9)]
    expected = [0.8 * law.shares[place] + shifts.mean() for place in places]
    assert [law.reach[place] for place in places] == pytest.approx(expected, abs=0.02)
    assert [law.between[place] for place in places] == pytest.approx([shifts.std()] * 4, abs=0.015)
    assert max(law.within[place] for place in places) < 0.02


def test_small_samples_are_not_taken_for_a_spread_of_projects(fitting: ModuleType) -> None:
    alike = [simulated(fitting, seed, shift=0.1, references=400) for seed in range(12)]
    law = fitting.fit(alike, worth=100.0)
    medians = [np.median(each.stretches[2].reach) for each in alike]  # type: ignore[attr-defined]
    assert np.std(medians) > 0.03
    assert law.between[law.shares.index(0.5)] < 0.015


@given(written=st.integers(1, 10**6), share=st.floats(0, 1))
def test_reach_and_rank_are_two_names_of_one_place(written: int, share: float) -> None:
    rank = share * written
    assert float(rank_at(reach_of(rank, written), written)) == pytest.approx(
        rank, abs=1e-6 * written
    )
    assert 0 <= float(reach_of(rank, written)) <= 1 + 1e-12


def test_nothing_is_beyond_where_a_law_was_seen_and_doublings_are_counted() -> None:
    fewest, most = fitted_law().seen
    sizes = (fewest, 2 * fewest, most, fewest / 4, most * 2)
    assert [*map(fitted_law().doublings_beyond, sizes)] == pytest.approx([0, 0, 0, 2, 1])
    assert np.isfinite(fitted_law().doublings_beyond(0))


def test_reads_reach_farther_back_than_references_and_are_the_more_cautious_evidence() -> None:
    for size in (10, 50, 250, 1_000, 10_000, 100_000):
        by_name, by_search = (memlab.law(size, evidence=evidence) for evidence in EVIDENCE)
        assert by_name.cap < by_search.cap <= 2 * size
        assert by_name.high <= by_search.high
        assert f"{by_search.cap:,} serves 90% of reads" in str(by_search)
    with pytest.raises(ValueError, match="must be one of references, reads, not 'recalls'"):
        memlab.law(100, evidence="recalls")  # type: ignore[arg-type]


@given(share=st.floats(0, 1), level=st.floats(0.02, 0.98))
def test_a_law_of_both_kinds_lies_between_them_and_goes_by_how_many(
    share: float, level: float
) -> None:
    near, joined, far = (law_of(reads) for reads in (0.0, share, 1.0))
    reach = [float(law.reach_at(np.array([level]))[0]) for law in (near, joined, far)]
    assert reach[0] - 0.01 <= reach[1] <= reach[2] + 0.01
    assert near.worth >= joined.worth >= far.worth
    more = law_of((1 + share) / 2)
    assert float(more.reach_at(np.array([level]))[0]) >= reach[1] - 0.01


def test_spread_falls_with_own_references_and_grows_beyond_what_was_seen() -> None:
    law = fitted_law()
    known = [law.spread_at(LEVELS, 1_000, weight=weight) for weight in (0.0, 0.5, 1.0)]
    assert (known[0][100:-100] > known[1][100:-100]).all()
    assert (known[1][100:-100] > known[2][100:-100]).all()
    assert (law.spread_at(LEVELS, 100_000) > known[0]).all()
    assert law.spread_at(LEVELS, 1_000, weight=1.0)[499] == pytest.approx(
        law.within[law.shares.index(0.5)]
    )


@given(spread=st.floats(0, 0.3), references=st.floats(5, 1e5), quantile=st.floats(0.01, 3))
def test_limits_enclose_the_law_keep_its_order_and_are_the_wider_the_fewer_references_come(
    spread: float, references: float, quantile: float
) -> None:
    reach = fitted_law().reach_at(LEVELS)

    def limits(spread: float, references: float) -> tuple[Floats, Floats]:
        spreads = np.full(len(LEVELS), spread)
        return limits_of(LEVELS, reach, spreads, quantile=quantile, references=references)

    lower, upper = limits(spread, references)
    for smaller, larger in pairwise([0, lower, reach, upper, 1]):
        assert np.all(smaller <= np.add(larger, 1e-12))
    assert (np.diff([lower, upper]) >= 0).all()
    assert (limits(spread, references / 2)[1] >= upper - 1e-12).all()
    np.testing.assert_allclose(limits(0, 1e10), [reach, reach], atol=1e-3)


def test_few_references_are_ahead_of_a_small_store_and_never_fewer_than_five() -> None:
    law = fitted_law()
    scale, power = law.pace
    assert 5 < law.references_ahead(4_000) < scale * 4_000**power / 2
    assert law.references_ahead(0) == law.references_ahead(10) == 5
    faster = replace(law, pace=(10 * scale, power))
    assert faster.references_ahead(4_000) > law.references_ahead(4_000)


SIZES = (0, 1, 10, 100, 250, 500, 1_000, 4_000, 16_000, 64_000, 1_000_000)


@given(
    memories=st.tuples(*[st.sampled_from([0, 1, 10, 249, 1_000, 16_000, 10**6])] * 2),
    share=st.tuples(*[st.floats(0.01, 0.999)] * 2),
    confidence=st.tuples(*[st.floats(0.6, 0.99)] * 2),
    until=st.tuples(*[st.floats(1.01, 4)] * 2),
)
def test_a_larger_store_share_confidence_or_horizon_takes_no_smaller_cap(
    **asked: tuple[float, float],
) -> None:
    usual: dict[str, Any] = {"memories": 2_000, "share": 0.9, "confidence": 0.9, "until": 1.2}
    for name, both in asked.items():
        less, more = (memlab.law(**{**usual, name: each}) for each in sorted(both))
        assert less.cap <= more.cap
        assert less.high <= more.high
        assert 0 <= less.low <= less.cap <= less.high <= np.ceil(less.until * max(less.memories, 1))


def test_it_says_where_it_was_not_seen_and_is_wider_there() -> None:
    assert [memlab.law(size).seen for size in SIZES] == [250 <= size <= 16_000 for size in SIZES]
    within, beyond = memlab.law(16_000), memlab.law(128_000)
    assert beyond.high / beyond.cap > 1.3 * within.high / within.cap
    assert "not seen at this size, so the limits are wider" in str(beyond)
    assert "not seen" not in str(within)


def test_a_number_says_until_when_it_holds() -> None:
    assert "holds until  2,400 memories have been written" in str(memlab.law(2_000))
    moments = np.log(np.linspace(1, 2, 100_001))
    assert np.log(middle_of(2.0)) == pytest.approx(moments.mean(), abs=1e-6)
    for until in (1.0, 0, float("inf"), True, "2"):
        with pytest.raises(ValueError, match="is no horizon: how many times what is written now"):
            memlab.law(2_000, until=until)  # type: ignore[arg-type]


def test_the_lines_of_the_chart_are_the_law_and_every_project() -> None:
    lines = memlab.evidence.law_lines(0.9)
    law = lines[lines["project"].isna()]
    for row in law.iloc[::20].itertuples():
        asked = memlab.law(int(row.memories), 0.9)
        assert (row.cap, row.low, row.high) == (asked.cap, asked.low, asked.high)
    projects = lines[lines["project"].notna()]
    assert projects["project"].nunique() == 9
    assert set(lines["share"]) == {0.9}
    uv = next(project for project in fitted_law().projects if project.name == "uv")
    drawn = projects.loc[projects["project"] == "uv"]
    assert drawn["memories"].tolist() == list(uv.memories)
    expected = [
        (1 + MIDDLE * n) ** r - 1 for n, r in zip(uv.memories, uv.reach["0.9"], strict=True)
    ]
    assert drawn["cap"].tolist() == pytest.approx(expected)


def test_most_stretches_of_the_projects_lie_within_the_limits() -> None:
    for share in (0.5, 0.75, 0.9, 0.95):
        projects = memlab.evidence.law_lines(share, until=STRETCH).dropna(subset="project")
        asked = [memlab.law(int(size), share, until=STRETCH) for size in projects["memories"]]
        within = [
            each.low <= cap <= each.high for each, cap in zip(asked, projects["cap"], strict=True)
        ]
        assert 0.7 < np.mean(within) < 0.97, share


def known(reach: list[float], *, memories: int = 1_000, always: float = 0.0) -> Posterior:
    """A store whose own references reached this far."""
    same = np.ones(len(reach))
    return Posterior(Terms(), memories, np.sort(reach), same, len(reach), always)


def test_the_more_references_of_its_own_the_less_the_law_has_to_say() -> None:
    weights = [known([0.5] * count).weight for count in (0, 10, 97, 1_000)]
    assert weights == sorted(weights)
    assert weights[2] == pytest.approx(0.5, abs=0.01)
    store = known([0.1, 0.2] * 50_000)
    assert store.weight > 0.998
    assert store.cap_for(0.9)[0] == round((1 + MIDDLE * 1_000) ** 0.2, 0)
    assert memlab.law(1_000, 0.9).cap > 100
    assert known([0.5] * 1_000, always=0.5).cap_for(0.3) == (0, 0, 0)  # every cap serves so many


def test_the_answer_lies_between_the_two_it_is_made_of() -> None:
    rng = np.random.default_rng(2)
    store = known(list(rng.uniform(0, 0.6, 80)))
    both = np.column_stack([store.own_caps, store.law_caps])
    assert (both.min(axis=1) <= store.caps + 1e-9).all()
    assert (store.caps <= both.max(axis=1) + 1e-9).all()


@given(
    reach=st.lists(st.floats(0, 1), max_size=60),
    memories=st.integers(0, 5_000),
    always=st.floats(0, 0.9),
    share=st.one_of(st.floats(0.01, 0.99), st.floats(0.99, 0.99999)),
)
def test_cap_and_share_are_one_curve_seen_from_two_sides(
    reach: list[float], memories: int, always: float, share: float
) -> None:
    store = known(reach, memories=memories, always=always)
    cap, low, high = store.cap_for(share)
    assert low <= cap <= high
    caps = np.array([cap, high])
    assert store.share_at(caps)[0] >= share - 1e-6
    lower, upper = store.limits_at(caps)
    assert lower[1] >= share - 1e-6
    assert (lower <= store.share_at(caps) + 1e-12).all()
    assert (store.share_at(caps) <= upper + 1e-12).all()


@pytest.mark.parametrize("share", [0.9991, 0.99999])
def test_beyond_the_last_level_the_cap_is_all_that_there_will_be(share: float) -> None:
    asked = memlab.law(1_000, share)
    assert (asked.cap, asked.high) == (1_200, 1_200)
    assert asked.low == memlab.law(1_000, 0.999).low
    store = known([0.1] * 100_000)
    assert store.cap_for(0.999)[0] < store.cap_for(share)[0] == 1_200
    assert store.share_at(np.array([1_199, 1_200])).tolist() == [0.999, 1.0]


def test_what_is_recent_counts_for_more() -> None:
    near_lately = replace(known([0.2] * 50 + [0.6] * 50), recency=np.repeat([9.0, 1.0], 50))
    far_lately = replace(near_lately, recency=np.repeat([1.0, 9.0], 50))
    assert near_lately.cap_for(0.8)[0] < far_lately.cap_for(0.8)[0]
