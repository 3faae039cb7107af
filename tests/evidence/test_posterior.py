"""``memlab.law``: a cap with limits for a store of which nothing is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.evidence.posterior import Posterior
from memlab.evidence.prior import MIDDLE, fitted_law

SIZES = (0, 1, 10, 100, 250, 500, 1_000, 4_000, 16_000, 64_000, 1_000_000)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9, 0.95, 0.99])
def test_the_cap_and_the_one_to_be_safe_grow_with_the_store(share: float) -> None:
    asked = [memlab.law(size, share) for size in SIZES]
    assert [each.cap for each in asked] == sorted(each.cap for each in asked)
    assert [each.high for each in asked] == sorted(each.high for each in asked)
    for each in asked:
        assert 0 <= each.low <= each.cap <= each.high <= 2 * each.memories


@given(memories=st.integers(0, 10**6), shares=st.tuples(*[st.floats(0.01, 0.999)] * 2))
def test_a_larger_share_takes_no_smaller_cap(memories: int, shares: tuple[float, float]) -> None:
    less, more = (memlab.law(memories, share) for share in sorted(shares))
    assert less.cap <= more.cap
    assert less.low <= more.low
    assert less.high <= more.high


def test_it_says_where_it_was_not_seen_and_is_wider_there() -> None:
    assert [memlab.law(size).seen for size in SIZES] == [250 <= size <= 16_000 for size in SIZES]
    within, beyond = memlab.law(16_000), memlab.law(128_000)
    assert beyond.high / beyond.cap > 1.3 * within.high / within.cap
    assert "not seen at this size, so the limits are wider" in str(beyond)
    assert "not seen" not in str(within)


def test_more_confidence_asks_for_more() -> None:
    caps = [memlab.law(2_000, confidence=confidence).high for confidence in (0.6, 0.8, 0.9, 0.99)]
    assert caps == sorted(set(caps))


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
        projects = memlab.evidence.law_lines(share).dropna(subset="project")
        asked = [memlab.law(int(size), share) for size in projects["memories"]]
        within = [
            each.low <= cap <= each.high for each, cap in zip(asked, projects["cap"], strict=True)
        ]
        assert 0.7 < np.mean(within) < 0.97, share


def known(reach: list[float], *, memories: int = 1_000, always: float = 0.0) -> Posterior:
    """A store whose own references reached this far."""
    same = np.ones(len(reach))
    return Posterior(fitted_law(), memories, np.sort(reach), same, len(reach), 0.9, always)


def test_without_references_of_its_own_a_store_gets_the_law() -> None:
    asked = memlab.law(1_000, 0.9)
    assert known([]).cap_for(0.9) == (asked.cap, asked.low, asked.high)
    assert known([]).weight == 0
    caps = np.array([0, 100, 10_000])
    assert np.isnan(known([]).own_share_at(caps)).all()
    np.testing.assert_array_equal(known([]).share_at(caps), known([]).law_share_at(caps))


def test_with_many_references_of_its_own_the_law_has_no_say() -> None:
    store = known([0.1, 0.2] * 50_000)
    assert store.weight > 0.998
    assert store.cap_for(0.9)[0] == round((1 + MIDDLE * 1_000) ** 0.2, 0)
    assert memlab.law(1_000, 0.9).cap > 100


def test_its_weight_grows_with_its_references() -> None:
    weights = [known([0.5] * count).weight for count in (0, 10, 97, 1_000)]
    assert weights == sorted(weights)
    assert weights[2] == pytest.approx(0.5, abs=0.01)


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
    assert (asked.cap, asked.high) == (2_000, 2_000)
    assert asked.low == memlab.law(1_000, 0.999).low
    store = known([0.1] * 100_000)
    assert store.cap_for(0.999)[0] < store.cap_for(share)[0] == 2_000
    assert store.share_at(np.array([1_999, 2_000])).tolist() == [0.999, 1.0]


def test_references_that_every_cap_serves_leave_less_for_a_cap_to_serve() -> None:
    reach = list(np.random.default_rng(3).uniform(0, 1, 2_000))
    store, plain = known(reach, always=0.5), known(reach)
    assert store.share_at(np.array([0]))[0] == pytest.approx(0.5 * store.weight, abs=0.01)
    assert store.cap_for(0.9)[0] < plain.cap_for(0.9)[0]
    assert store.cap_for(0.3) == (0, 0, 0)


def test_what_is_recent_counts_for_more() -> None:
    near_lately = replace(known([0.2] * 50 + [0.6] * 50), recency=np.repeat([9.0, 1.0], 50))
    far_lately = replace(near_lately, recency=np.repeat([1.0, 9.0], 50))
    assert near_lately.cap_for(0.8)[0] < far_lately.cap_for(0.8)[0]


def test_limits_widen_by_a_poor_record() -> None:
    store = known([0.5] * 50)
    wider = replace(store, widened=1.5)
    assert wider.cap_for(0.9)[0] == store.cap_for(0.9)[0]
    assert wider.cap_for(0.9)[2] > 1.2 * store.cap_for(0.9)[2]
    assert wider.cap_for(0.9)[1] < store.cap_for(0.9)[1]
