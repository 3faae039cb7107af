"""The prior of a fleet, learned from stores that follow one law."""

from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.fleet import Serial, cohort_of, size
from memlab.fleet.cohort import (
    MAX_SAMPLED_STORES,
    Cohort,
    StoreEstimate,
    fit_cohort,
    sample_of,
    save_caps,
    size_task,
)
from memlab.fleet.names import Member, Members
from memlab.sizing.prior import Project, ReachPrior, fitted_law
from tests.support.fleets import referring_store
from tests.support.properties import examples
from tests.support.stores import row, write_rows

LAW = fitted_law()
AT = int(np.searchsorted(LAW.shares, 0.9))


def simulated(
    stores: int, *, away: float = 0.0, spread: float = 0.04, references: int = 60, seed: int = 0
) -> dict[str, StoreEstimate]:
    """Simulate stores around the prior, shifted by `away` and varied by `spread`."""
    rng = np.random.default_rng(seed)
    places = np.searchsorted(np.arange(1, references + 1), np.array(LAW.shares) * references)
    estimates = {}
    for number in range(stores):
        shift = away + spread * rng.standard_normal()
        reach = np.sort(np.clip(LAW.reach_at(rng.random(references)) + shift, 0.01, 1))
        estimates[f"store-{number}"] = StoreEstimate(references, reach[places])
    return estimates


def test_caps_are_saved_with_a_time_that_has_a_zone(tmp_path: Path) -> None:
    sized = size(write_rows(tmp_path / "memory.db", [row("m1")]))
    with pytest.raises(ValueError, match="zone"):
        save_caps(sized, now=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="sized"):
        save_caps("memory.db")


def test_cohort_weight_grows_with_the_number_of_stores() -> None:
    silent = {f"silent-{number}": StoreEstimate(3, np.empty(0)) for number in range(50)}
    cohort = fit_cohort(silent | simulated(2))
    assert cohort.law == LAW
    assert cohort.stores == 0
    assert cohort.weight_at(0.9) == 0.0
    weights = {
        stores: fit_cohort(simulated(stores, away=0.1)).weight_at(0.9) for stores in (2, 3, 10, 80)
    }
    assert weights[2] == 0
    assert 0 < weights[3] < 0.9
    assert weights[3] <= weights[10] <= weights[80]
    assert weights[80] > 0.9


@pytest.mark.parametrize("away", [-0.15, 0.1, 0.2])
def test_many_shifted_stores_move_the_prior(away: float) -> None:
    cohort = fit_cohort(simulated(80, away=away))
    expected = min(LAW.reach[AT] + away, 1.0)
    assert cohort.law.reach[AT] == pytest.approx(expected, abs=0.04)
    assert cohort.weight_at(0.9) > 0.9


def test_similar_stores_make_the_prior_narrow() -> None:
    alike = fit_cohort(simulated(80, spread=0.01)).law
    unlike = fit_cohort(simulated(80, spread=0.12)).law
    assert alike.between[AT] < LAW.between[AT]
    assert LAW.between[AT] < unlike.between[AT] + 0.05
    assert alike.worth > unlike.worth
    few = fit_cohort(simulated(150, spread=0.0, references=10))
    assert few.law.between[AT] < 0.6 * LAW.between[AT] + 0.03


@given(stores=st.integers(0, 30), seed=st.integers(0, 99), references=st.integers(8, 40))
@settings(max_examples=examples(30))
def test_fitted_prior_is_valid(stores: int, seed: int, references: int) -> None:
    law = fit_cohort(simulated(stores, seed=seed, references=references, spread=0.2)).law
    reach = np.array(law.reach)
    assert (np.diff(reach) >= 0).all()
    assert ((reach >= 0) & (reach <= 1)).all()
    assert (np.array(law.between) > 0).all()
    assert law.worth > 0


@given(stores=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=examples(20))
def test_cohort_without_a_store_equals_fit_of_the_others(stores: int, seed: int) -> None:
    estimates = simulated(stores, seed=seed, away=0.1)
    whole_cohort = fit_cohort(estimates)
    for name in estimates:
        others = {other: estimates[other] for other in estimates if other != name}
        assert whole_cohort.without(name) == fit_cohort(others)
    assert whole_cohort.without("another") is whole_cohort


def test_prior_digest_is_stable() -> None:
    law = ReachPrior(
        shares=(0.5, 0.9),
        reach=(0.25, 0.75),
        between=(0.05, 0.1),
        within=(0.02, 0.04),
        noise=(0.5, 0.3),
        worth=40.0,
        pace=(2.0, 0.5),
        seen=(100, 4000),
        projects=(Project("one", (100, 200), {"0.5": (0.2, 0.3)}),),
        source="one project",
    )
    prior = Cohort(law=law, stores=3, references=30, weights=(0.25, 0.5))
    assert size_task(prior, {}).depends_on == "802ea977d821343a249ea57b6ceed616"


def test_sample_does_not_depend_on_order() -> None:
    paths = [f"/srv/{number}" for number in range(3 * MAX_SAMPLED_STORES)]
    members = tuple(Member(path, path) for path in paths)
    sample = sample_of(Members(members))
    assert sample == sample_of(Members(tuple(reversed(members))))
    assert len(sample) == MAX_SAMPLED_STORES


def test_store_without_references_is_sized_by_its_fleet(tmp_path: Path) -> None:
    names = [referring_store(tmp_path / f"{number}.db", 300, 2) for number in range(12)]
    silent = referring_store(tmp_path / "silent.db", 300, 300)
    sizes = size([*names, silent], runner=Serial()).set_index("store")
    alone = memlab.recommend_cap(memlab.load_past(silent))
    line = sizes.loc[str(silent)]
    assert line["references"] == 0
    assert line["keep_recent"] < alone.keep_recent
    assert line["own"] == 0
    assert line["fleet"] + line["elsewhere"] == pytest.approx(1)
    assert line["fleet"] > 0.5


def test_prior_of_a_store_excludes_the_store(tmp_path: Path) -> None:
    names = [referring_store(tmp_path / f"{number}.db", 200, 2 + number) for number in range(4)]
    sizes = size(names, runner=Serial()).set_index("store")
    for name in names:
        cohort_of_others = cohort_of([other for other in names if other != name])
        (expected,) = size(name, cohort=cohort_of_others).to_dict("records")
        assert sizes.loc[str(name), "keep_recent"] == expected["keep_recent"]
        assert sizes.loc[str(name), "fleet"] == pytest.approx(expected["fleet"])
    three = size(names[:3], runner=Serial())
    assert three["fleet"].tolist() == [0, 0, 0]  # two other stores are too few
    assert cohort_of(names[:3]).stores == 3


def test_fleet_size_agrees_with_advice_of_the_store(tmp_path: Path) -> None:
    path = referring_store(tmp_path / "one.db", 200, 3)
    (line,) = size(path, token_budget=900, runner=Serial()).to_dict("records")
    advice = memlab.recommend_cap(memlab.load_past(path), token_budget=900)
    assert line["keep_recent"] == advice.keep_recent
    assert line["verdict"] == str(advice.verdict)
    assert line["own"] == advice.weight
    assert line["fleet"] == 0
    assert line["floor"] == advice.floor.tokens
    assert advice.within_budget is not None
    assert line["fits"] == advice.within_budget.keep_recent
    assert line["fits_served"] == advice.within_budget.served


def test_changed_fleet_is_sized_again(tmp_path: Path) -> None:
    names = [referring_store(tmp_path / f"{number}.db", 300, 2) for number in range(4)]
    silent = referring_store(tmp_path / "silent.db", 300, 300)
    size([*names[:3], silent], runner=Serial(), out=tmp_path / "out")
    for changed_fleet in ([*names, silent], [*names[1:], silent]):
        resumed = size(changed_fleet, runner=Serial(), out=tmp_path / "out")
        pd.testing.assert_frame_equal(resumed, size(changed_fleet, runner=Serial()))


def test_fleet_weight_follows_the_target_of_each_store(tmp_path: Path) -> None:
    law = fit_cohort(simulated(10, away=0.1)).law
    prior = Cohort(law, 10, 600, tuple(np.linspace(1, 0, len(law.shares)).tolist()))
    path = referring_store(tmp_path / "silent.db", 100, 100)
    for share in (0.5, 0.95):
        (tmp_path / "memlab.toml").write_text(f"target = {share}\n")
        line = size_task(prior, {}).work(str(path), prior)
        assert line.fleet == pytest.approx((1 - line.own) * prior.weight_at(share))
        assert line.fleet + line.elsewhere + line.own == pytest.approx(1)


def test_fleet_size_includes_the_answer_of_each_store(tmp_path: Path) -> None:
    large = memlab.copy_store(memlab.store_path("two_years"), tmp_path / "large.db")
    small = write_rows(tmp_path / "small.db", [row("m0", "episodic")])
    sizes = size([large, small], runner=Serial()).set_index("store")
    assert sizes.loc[str(small), "answer"] == memlab.size(small).answer
    keep_recent = sizes.loc[str(large), "keep_recent"]
    answer = sizes.loc[str(large), "answer"]
    assert answer.startswith(f"Compacting to the newest {keep_recent:,} episodes")
