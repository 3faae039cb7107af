"""The fitted prior and ``memlab.law``, the cap for a store without references."""

import importlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.evidence.defaults import DEFAULT_UNTIL
from memlab.evidence.usage import other_stores
from memlab.sizing import prior
from memlab.sizing.prior import LEVELS, Posterior, PosteriorSettings

CHECKOUT = Path(__file__).resolve().parents[2]
MIDDLE = prior.geometric_mean_growth(DEFAULT_UNTIL)
HISTORIES = CHECKOUT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def fitting() -> Iterator[ModuleType]:
    pytest.importorskip("scipy")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKOUT / "data")
        yield importlib.import_module("fit_law")


@pytest.mark.long
def test_shipped_prior_equals_fit_of_recorded_histories(fitting: ModuleType) -> None:
    if not any(HISTORIES.glob("history-*")):
        pytest.skip("no recorded histories (shared/data) beside the checkout")
    for evidence in prior.EVIDENCE:
        histories = fitting.read_histories(HISTORIES, evidence)
        assert fitting.fit(histories) == prior.fitted_law(evidence)
    assert fitting.measure_usage(HISTORIES) == other_stores()


def test_fit_recovers_reach_and_spread_of_simulated_projects(fitting: ModuleType) -> None:
    """Each project's reach is uniform, shifted by a constant per project."""
    rng = np.random.default_rng(1)
    shifts = rng.normal(0.1, 0.05, 12)
    projects = []
    for shift in shifts:
        at = np.sort(rng.integers(250, 16_000, 4_000))
        reach = np.clip(rng.uniform(0, 0.8, 4_000) + shift, 0, 1)
        rank = np.clip(prior.rank_at(reach, at).round(), 1, at).astype(int)
        projects.append(fitting.History(f"by {shift}", 16_000, at, rank))
    law = fitting.fit(projects, worth=100.0)
    places = [law.shares.index(share) for share in (0.3, 0.5, 0.75, 0.9)]
    expected = [0.8 * law.shares[place] + shifts.mean() for place in places]
    assert [law.reach[place] for place in places] == pytest.approx(expected, abs=0.02)
    assert [law.between[place] for place in places] == pytest.approx([shifts.std()] * 4, abs=0.015)
    assert max(law.within[place] for place in places) < 0.02


def test_doublings_beyond_the_observed_range_are_counted() -> None:
    law = prior.fitted_law()
    fewest, most = law.seen
    assert law.doublings_beyond(fewest) == pytest.approx(0)
    assert law.doublings_beyond(most) == pytest.approx(0)
    assert law.doublings_beyond(fewest / 4) == pytest.approx(2)
    assert law.doublings_beyond(most * 2) == pytest.approx(1)
    assert law.doublings_beyond(0) == pytest.approx(np.log2(fewest))


def test_reads_reach_farther_back_than_references() -> None:
    for size in (10, 50, 250, 1_000, 10_000, 100_000):
        by_name = memlab.law(size, evidence="references")
        by_search = memlab.law(size, evidence="reads")
        assert by_name.cap < by_search.cap
        assert by_search.cap <= 2 * size
        assert by_name.high <= by_search.high
        assert f"{by_search.cap:,} serves 90% of reads" in str(by_search)
    with pytest.raises(ValueError, match="must be one of references, reads, not 'recalls'"):
        memlab.law(100, evidence="recalls")  # type: ignore[arg-type]


@given(share=st.floats(0, 1), level=st.floats(0.02, 0.98))
def test_mixture_prior_lies_between_its_two_parts(share: float, level: float) -> None:
    def reach_of(law: prior.ReachPrior) -> float:
        (reach,) = law.reach_at(np.array([level]))
        return float(reach)

    of_references = prior.mixture_prior(0.0)
    mixture = prior.mixture_prior(share)
    of_reads = prior.mixture_prior(1.0)
    assert reach_of(of_references) - 0.01 <= reach_of(mixture)
    assert reach_of(mixture) <= reach_of(of_reads) + 0.01
    assert of_references.worth >= mixture.worth
    assert mixture.worth >= of_reads.worth
    with_more_reads = prior.mixture_prior((1 + share) / 2)
    assert reach_of(with_more_reads) >= reach_of(mixture) - 0.01


@given(spread=st.floats(0, 0.3), references=st.floats(5, 1e5), quantile=st.floats(0.01, 3))
def test_limits_enclose_the_prior_and_widen_with_few_references(
    spread: float, references: float, quantile: float
) -> None:
    reach = prior.fitted_law().reach_at(LEVELS)

    def limits(spread: float, references: float) -> tuple[prior.Floats, prior.Floats]:
        spreads = np.full(len(LEVELS), spread)
        return prior.limits_of(LEVELS, reach, spreads, quantile=quantile, references=references)

    lower, upper = limits(spread, references)
    for smaller, larger in pairwise([0, lower, reach, upper, 1]):
        assert np.all(smaller <= np.add(larger, 1e-12))
    for limit in (lower, upper):
        assert (np.diff(limit) >= 0).all()
    _, upper_with_fewer = limits(spread, references / 2)
    assert (upper_with_fewer >= upper - 1e-12).all()
    np.testing.assert_allclose(limits(0, 1e10), [reach, reach], atol=1e-3)


def assert_larger_argument_gives_no_smaller_cap(name: str, values: list[float]) -> None:
    arguments: dict[str, Any] = {"memories": 2_000, "share": 0.9, "confidence": 0.9, "until": 1.2}
    smaller, larger = sorted(values)
    less = memlab.law(**{**arguments, name: smaller})
    more = memlab.law(**{**arguments, name: larger})
    assert less.cap <= more.cap
    assert less.high <= more.high
    limits = [0, less.low, less.cap, less.high, np.ceil(less.until * max(less.memories, 1))]
    assert limits == sorted(limits)


def two(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(values, min_size=2, max_size=2)


@given(two(st.sampled_from([0, 1, 10, 249, 1_000, 16_000, 10**6])))
def test_larger_store_gets_no_smaller_cap(memories: list[float]) -> None:
    assert_larger_argument_gives_no_smaller_cap("memories", memories)


@given(two(st.floats(0.01, 0.999)))
def test_larger_share_gets_no_smaller_cap(shares: list[float]) -> None:
    assert_larger_argument_gives_no_smaller_cap("share", shares)


@given(two(st.floats(0.6, 0.99)))
def test_larger_confidence_gets_no_smaller_cap(confidences: list[float]) -> None:
    assert_larger_argument_gives_no_smaller_cap("confidence", confidences)


@given(two(st.floats(1.01, 4)))
def test_longer_horizon_gets_no_smaller_cap(horizons: list[float]) -> None:
    assert_larger_argument_gives_no_smaller_cap("until", horizons)


def test_limits_are_wider_and_marked_beyond_the_observed_range() -> None:
    for size in (250, 500, 1_000, 4_000, 16_000):
        assert memlab.law(size).seen
    for size in (0, 1, 10, 100, 64_000, 1_000_000):
        assert not memlab.law(size).seen
    within = memlab.law(16_000)
    beyond = memlab.law(128_000)
    assert beyond.high / beyond.cap > 1.3 * within.high / within.cap
    assert "not seen at this size, so the limits are wider" in str(beyond)
    assert "not seen" not in str(within)


def test_result_states_its_horizon() -> None:
    assert "holds until  2,400 prunable memories have been written" in str(memlab.law(2_000))
    assert np.log(MIDDLE) == pytest.approx(np.log(np.linspace(1, 1.2, 100_001)).mean(), abs=1e-6)
    for until in (1.0, 0, float("inf"), True, "2"):
        with pytest.raises(ValueError, match="is not a horizon: give the number of memories"):
            memlab.law(2_000, until=until)  # type: ignore[arg-type]


def test_law_lines_hold_the_prior_and_each_project() -> None:
    lines = memlab.sizing.law_lines(0.9)
    law = lines[lines["project"].isna()]
    for row in law.iloc[::20].itertuples():
        expected = memlab.law(int(row.memories), 0.9)
        assert row.cap == expected.cap
        assert row.low == expected.low
        assert row.high == expected.high
    projects = lines[lines["project"].notna()]
    assert projects["project"].nunique() == 9
    assert set(lines["share"]) == {0.9}
    (uv,) = [project for project in prior.fitted_law().projects if project.name == "uv"]
    lines_of_uv = projects.loc[projects["project"] == "uv"]
    assert lines_of_uv["memories"].tolist() == list(uv.memories)
    expected_caps = (1 + MIDDLE * np.array(uv.memories)) ** uv.reach["0.9"] - 1
    assert lines_of_uv["cap"].tolist() == pytest.approx(expected_caps)


def test_most_project_caps_lie_within_the_limits() -> None:
    for share in (0.5, 0.75, 0.9, 0.95):
        projects = memlab.sizing.law_lines(share, until=prior.STRETCH).dropna(subset="project")
        laws = [memlab.law(int(size), share, until=prior.STRETCH) for size in projects["memories"]]
        low = [law.low for law in laws]
        high = [law.high for law in laws]
        share_within = projects["cap"].between(low, high).mean()
        assert 0.7 < share_within < 0.97, share


def posterior_of(
    reach: list[float], *, memories: int = 1_000, always_served: float = 0.0
) -> Posterior:
    """Return the posterior of a store with references of this reach, all of equal weight."""
    weights = np.ones(len(reach))
    settings = PosteriorSettings()
    return Posterior(settings, memories, np.sort(reach), weights, len(reach), always_served)


def test_own_references_reduce_the_weight_of_the_prior() -> None:
    weights = [posterior_of([0.5] * count).weight for count in (0, 10, 97, 1_000)]
    assert weights == sorted(weights)
    assert weights[2] == pytest.approx(0.5, abs=0.01)


def test_many_own_references_decide_the_cap() -> None:
    store = posterior_of([0.1, 0.2] * 50_000)
    assert store.weight > 0.998
    assert store.cap_for(0.9).cap == round((1 + MIDDLE * 1_000) ** 0.2, 0)
    assert memlab.law(1_000, 0.9).cap > 100


def test_share_served_by_every_cap_needs_no_cap() -> None:
    store = posterior_of([0.5] * 1_000, always_served=0.5)
    assert store.cap_for(0.3) == (0, 0, 0)


@given(
    reach=st.lists(st.floats(0, 1), max_size=60),
    memories=st.integers(0, 5_000),
    always_served=st.floats(0, 0.9),
    share=st.one_of(st.floats(0.01, 0.99), st.floats(0.99, 0.99999)),
)
def test_cap_for_and_share_at_are_inverse_functions(
    reach: list[float], memories: int, always_served: float, share: float
) -> None:
    store = posterior_of(reach, memories=memories, always_served=always_served)
    cap, low, high = store.cap_for(share)
    assert low <= cap
    assert cap <= high
    caps = np.array([cap, high])
    assert store.share_at(caps)[0] >= share - 1e-6
    lower, upper = store.limits_at(caps)
    assert lower[1] >= share - 1e-6
    assert (lower <= store.share_at(caps) + 1e-12).all()
    assert (store.share_at(caps) <= upper + 1e-12).all()


@pytest.mark.parametrize("share", [0.9991, 0.99999])
def test_share_above_last_level_gives_the_largest_cap(share: float) -> None:
    law = memlab.law(1_000, share)
    assert law.cap == 1_200
    assert law.high == 1_200
    assert law.low == memlab.law(1_000, 0.999).low
    store = posterior_of([0.1] * 100_000)
    assert store.cap_for(share).cap == 1_200
    assert store.cap_for(0.999).cap < 1_200
    assert store.share_at(np.array([1_199, 1_200])).tolist() == [0.999, 1.0]
