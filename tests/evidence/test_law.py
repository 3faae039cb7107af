"""The law: what is fitted is what ships, and it says how sure it is."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.evidence.posterior import LEVELS
from memlab.evidence.prior import (
    SEEN,
    Law,
    doublings_beyond,
    fitted_law,
    limits_of,
    rank_at,
    reach_of,
)

CHECKOUT = Path(__file__).resolve().parents[2]
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


def test_the_numbers_that_ship_are_what_the_histories_give(fitting: ModuleType) -> None:
    if not any(HISTORIES.glob("history-*")):
        pytest.skip("no recorded histories (shared/data) beside the checkout")
    assert fitting.fit(fitting.read_histories(HISTORIES)) == fitted_law()


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
    middle = law.shares.index(0.5)
    medians = [np.median(each.stretches[2].reach) for each in alike]  # type: ignore[attr-defined]
    assert np.std(medians) > 0.03
    assert law.between[middle] < 0.015


def test_a_law_comes_back_from_its_file() -> None:
    law = fitted_law()
    assert Law.from_json(law.to_json()) == law


def test_it_ships_no_history_only_a_few_numbers_of_each() -> None:
    law = fitted_law()
    assert len(law.projects) == 9
    for project in law.projects:
        assert {len(reach) for reach in project.reach.values()} == {len(project.memories)}
        assert len(project.memories) <= 6
        assert law.source.count(project.name) >= 1


def test_a_larger_share_reaches_farther() -> None:
    law = fitted_law()
    for column in (law.shares, law.reach):
        assert list(column) == sorted(set(column))
    assert (np.diff(law.reach_at(LEVELS)) > 0).all()


@given(written=st.integers(1, 10**6), share=st.floats(0, 1))
def test_reach_and_rank_are_two_names_of_one_place(written: int, share: float) -> None:
    rank = share * written
    assert float(rank_at(reach_of(rank, written), written)) == pytest.approx(
        rank, abs=1e-6 * written
    )
    assert 0 <= float(reach_of(rank, written)) <= 1 + 1e-12


def test_nothing_is_beyond_where_the_law_was_seen_and_doublings_are_counted() -> None:
    fewest, most = SEEN
    assert [doublings_beyond(size) for size in (fewest, 1_000, most)] == [0, 0, 0]
    assert doublings_beyond(fewest / 4) == pytest.approx(2)
    assert doublings_beyond(most * 2) == pytest.approx(1)
    assert doublings_beyond(0) > doublings_beyond(10)


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
def test_limits_enclose_the_law_and_keep_its_order(
    spread: float, references: float, quantile: float
) -> None:
    reach = fitted_law().reach_at(LEVELS)
    lower, upper = limits_of(
        LEVELS, reach, np.full(len(LEVELS), spread), quantile=quantile, references=references
    )
    assert (lower <= reach + 1e-12).all()
    assert (reach <= upper + 1e-12).all()
    assert (np.diff(lower) >= 0).all()
    assert (np.diff(upper) >= 0).all()
    assert lower.min() >= 0
    assert upper.max() <= 1


def test_limits_close_as_spread_and_small_samples_go() -> None:
    reach = fitted_law().reach_at(LEVELS)
    lower, upper = limits_of(LEVELS, reach, np.zeros(999), quantile=1.28, references=1e9)
    np.testing.assert_allclose(lower, reach, atol=1e-3)
    np.testing.assert_allclose(upper, reach, atol=1e-3)


def test_a_stretch_with_few_references_has_wider_limits() -> None:
    law = fitted_law()
    scale, power = law.pace
    assert law.references_ahead(2_000) == pytest.approx(scale * 2_000**power)
    assert law.references_ahead(0) == law.references_ahead(10) == 5
    faster = replace(law, pace=(10 * scale, power))
    assert faster.references_ahead(2_000) > law.references_ahead(2_000)
