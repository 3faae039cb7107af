"""The answer of a comparison: which rule serves most at equal tokens."""

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab import KeepRecent, TimeToLive
from memlab import columns as c
from memlab.policies import ImportanceBudget, ImportanceFloor, ValueCap
from memlab.replay import Comparison, compare, replay
from memlab.replay.candidates import COST_TOLERANCE
from memlab.replay.noise import difference_with_limits
from memlab.replay.result import _none_better
from tests.support.frames import START, make_episodes, make_frame, make_references, row

LOOKED_UP = memlab.store_path("looked_up")
READS = LOOKED_UP.with_suffix(".reads.jsonl")


@pytest.fixture(scope="module")
def by_default() -> Comparison:
    return compare(LOOKED_UP, log=READS, workers=1)


EVERY = 25
"""Number of memories between two applications; each compares all texts."""


def importance_frame() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 300 episodes with 200 references, all to important ones."""
    rows = 300
    frame = make_episodes(rows)
    chance = np.random.default_rng(0)
    important = chance.random(rows) < 0.2
    frame[c.IMPORTANCE] = np.where(important, 0.9, 0.1)
    at = np.sort(chance.integers(150, rows, 200))
    targets = np.flatnonzero(important[:100])
    distance = at - chance.choice(targets, 200)
    return frame, make_references(frame, at, distance)


def test_default_comparison_tries_four_named_systems(by_default: Comparison) -> None:
    rules = set(by_default.table["rule"])
    systems = {"newest (forge-loop)", "BetterDB", "odek", "MemForge"}
    assert rules >= systems | {"age", "by use"}
    defaults = by_default.table[by_default.table["cost_group"].isna()]
    assert {"odek", "MemForge"} <= set(defaults["rule"])
    assert any("forge-loop" in reason for reason in by_default.off_by_default)
    assert any("BetterDB" in reason for reason in by_default.off_by_default)


def test_rows_of_one_budget_cost_equal_tokens(by_default: Comparison) -> None:
    compared = by_default.table[by_default.table["cost_group"].notna()]
    assert compared["cost_group"].nunique() == 3
    for _, lines in compared.groupby("cost_group"):
        cost = lines["boot_tokens_mean"]
        newest = cost[lines["newest"]].iloc[0]
        assert (abs(cost - newest) <= COST_TOLERANCE * newest).all()
        assert len(lines) > 4


def test_row_equals_replay_with_its_own_options(by_default: Comparison) -> None:
    past = memlab.load_past(LOOKED_UP)
    references = memlab.find_references(LOOKED_UP, memlab.read_access_log(READS))
    lines = by_default.table[by_default.table["rule"] == "BetterDB"]
    for _, line in lines.iterrows():
        cap = int(line["options"].split()[-1])
        policy = memlab.Pipeline.betterdb(max_items=cap)
        alone = replay(past, references, policy, every=by_default.every, silent=True)
        assert alone.served == line["served"]


def test_load_bearing_memories_do_not_use_the_cap(by_default: Comparison) -> None:
    floor = by_default.table["floor_memories"].iloc[0]
    assert floor > 0
    for _, lines in by_default.table.dropna(subset="cost_group").groupby("cost_group"):
        options = lines.set_index("rule")["options"]
        cap_of_memforge = int(options["MemForge"].split()[-1])
        cap_of_newest = int(options["newest (forge-loop)"].split()[-1])
        difference = cap_of_memforge - cap_of_newest
        assert abs(difference - floor) <= max(10, 0.1 * cap_of_newest)


def test_answer_is_the_rule_better_than_noise(by_default: Comparison) -> None:
    advised = by_default.advised
    assert advised is not None
    assert advised["rule"] == "by use"
    assert advised["gain_low"] > 0
    assert advised["served"] >= 0.9
    assert by_default.answer.startswith("By use ")
    assert ": more than noise" in by_default.answer
    assert str(advised["options"]) in by_default.next_steps()[3]


def test_page_ends_with_the_answer_and_its_command(by_default: Comparison) -> None:
    answer, blank, command, *_ = by_default.next_steps()
    assert answer == by_default.answer
    assert blank == ""
    assert command.startswith("next: memlab size ")


@pytest.fixture(scope="module")
def two_years() -> Comparison:
    return compare(memlab.store_path("two_years"), workers=1)


def test_difference_within_noise_advises_newest(two_years: Comparison) -> None:
    assert two_years.advised is not None
    assert two_years.advised["newest"]
    _, _, step = two_years.next_steps()
    assert "memlab size" in step
    assert "which cap is safe" in step


def test_missing_signals_are_named(by_default: Comparison) -> None:
    assert any("BetterDB's rule is recency" in reason for reason in by_default.missing_signals)
    frame, references = importance_frame()
    known = compare(frame, references, every=EVERY, workers=1).missing_signals
    assert not any("importance" in reason for reason in known)


@pytest.mark.parametrize("count", [0, 5])
def test_few_references_give_no_advice(count: int) -> None:
    frame = make_episodes(60)
    at = np.arange(30, 30 + count)
    references = make_references(frame, at, np.full(count, 3))
    comparison = compare(frame, references, every=EVERY, workers=1)
    assert comparison.advised is None
    assert not [line for line in comparison.next_steps() if "compact" in line]


@pytest.mark.parametrize("rows", [0, 1, 2, 11])
def test_small_store_gets_an_answer(rows: int) -> None:
    comparison = compare(make_episodes(rows), workers=1)
    assert comparison.answer.endswith(".")
    assert str(comparison)


# Searched stores


def searched() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a store that is searched, with its references."""
    frame, references = importance_frame()
    frame = frame.drop(columns=c.IMPORTANCE)
    frame.attrs[c.RECALLED] = True
    return frame, references


NOTHING_TO_REMOVE = {
    "empty": (0, "episodic", "There are no memories to compare rules on."),
    "load-bearing": (12, "semantic", "Every memory is load-bearing (12): no rule removes any."),
    "one prunable": (1, "episodic", "No later need is known of this store"),
}


@pytest.mark.parametrize(
    ("count", "kind", "message"), NOTHING_TO_REMOVE.values(), ids=NOTHING_TO_REMOVE
)
def test_store_with_nothing_to_remove_has_its_own_answer(
    count: int, kind: str, message: str
) -> None:
    rows = [row(f"m{number}", kind=kind) for number in range(count)]
    frame = make_frame(*rows)
    comparison = compare(frame, workers=1)
    assert comparison.answer.startswith(message)
    commands = [step.command.split("memlab ")[-1] for step in comparison._steps()]
    assert len(set(commands)) == len(commands)
    assert commands


def test_empty_store_is_not_directed_to_size() -> None:
    steps = compare(make_frame(), workers=1).next_steps()
    assert not [step for step in steps if "memlab size" in step]
    assert "memlab doctor" in steps[2]


def test_tied_rules_are_named_in_the_answer(two_years: Comparison) -> None:
    assert two_years.answer.endswith("the most; odek 286 serves as many.")


@pytest.mark.parametrize(
    ("gain", "behind_low", "phrase"),
    [
        ((0.0, -0.001), (0, 0), "; all rules are equal within noise."),
        ((0.0, -0.2), (0, 0.1), ", and no rule serves more beyond noise."),
        ((0.02, -0.2), (0, 0.1), ", and no rule serves more beyond noise: A serves 2 points "),
    ],
    ids=["equal", "rounded to nothing", "more"],
)
def test_gain_within_noise_is_worded_without_zero_points(
    gain: tuple[float, float], behind_low: tuple[float, float], phrase: str
) -> None:
    columns = {"gain": gain, "gain_low": -0.01, "gain_high": 0.05, "behind_low": behind_low}
    table = pd.DataFrame(columns, index=["A", "B"])
    assert _none_better(table).startswith(phrase)


def test_searched_store_gets_no_cap() -> None:
    comparison = compare(*searched(), every=EVERY, workers=1)
    assert comparison.answer.startswith("Nothing of this store is loaded at start")
    assert "--by need" in comparison.next_steps()[2]
    assert not [line for line in comparison.next_steps() if "memlab size" in line]


def test_searched_store_gets_deletion_with_little_loss() -> None:
    frame = make_episodes(600)
    near = make_references(frame, np.arange(100, 600, 5), np.full(100, 3))
    frame.attrs[c.RECALLED] = True
    comparison = compare(frame, near, every=EVERY, workers=1)
    advised = comparison.advised
    assert advised is not None
    assert advised["lost"] <= 0.01 * len(near)
    deleted = comparison.table.loc[comparison.table["lost"] <= 0.01 * len(near), "deleted"]
    assert advised["deleted"] == deleted.max()


# Hindsight


def test_rules_using_revised_signals_are_not_advised() -> None:
    frame, references = importance_frame()
    known_throughout = compare(frame, references, every=EVERY, workers=1)
    assert known_throughout.answer.startswith("BetterDB")
    frame.attrs[c.REVISED] = [c.IMPORTANCE]
    comparison = compare(frame, references, every=EVERY, workers=1)
    table = comparison.table
    assert set(table.loc[table["hindsight"], "rule"]) == {"BetterDB", "MemForge"}
    assert "MemForge" not in comparison.answer
    assert "BetterDB" not in comparison.answer
    if comparison.advised is not None:
        assert not comparison.advised["hindsight"]
    assert ", with hindsight" in str(comparison)


def test_policies_declare_their_signals() -> None:
    assert ImportanceFloor().signals == {c.IMPORTANCE, c.GRADUATED}
    assert ImportanceBudget(5).signals == {c.IMPORTANCE}
    assert ValueCap(5).signals == {c.IMPORTANCE}
    assert KeepRecent(5).signals == frozenset()
    assert TimeToLive("1d").signals == frozenset()


def test_evicted_memories_without_importance_rank_lowest() -> None:
    frame = make_episodes(40)
    frame[c.IMPORTANCE] = np.where(np.arange(40) < 20, np.nan, 0.5)
    frame[c.DELETED_AT] = pd.Series(pd.NaT, index=frame.index, dtype=c.TIME)
    frame.loc[:19, c.DELETED_AT] = START + pd.Timedelta(days=300)
    references = make_references(frame, np.array([25, 30]), np.array([3, 8]))
    replayed = replay(frame, references, ImportanceBudget(20))
    assert set(replayed.deleted[c.MEMORY_ID]) == set(frame[c.MEMORY_ID].iloc[:20])


def test_missing_importance_ranks_highest() -> None:
    frame = make_episodes(40)
    frame[c.IMPORTANCE] = np.where(np.arange(40) % 2, np.nan, 0.5)
    references = make_references(frame, np.array([25]), np.array([3]))
    replayed = replay(frame, references, ImportanceBudget(20))
    deleted = set(replayed.deleted[c.MEMORY_ID])
    assert deleted == set(frame.loc[frame[c.IMPORTANCE].notna(), c.MEMORY_ID])


# Noise


def test_limits_count_references_of_one_day_as_one_cluster() -> None:
    difference = np.tile([1.0, 0.0], 50)
    apart = difference_with_limits(np.arange(100), difference)
    together = difference_with_limits(np.repeat(np.arange(10), 10), np.repeat(difference[:10], 10))
    assert apart.mean == 0.5
    assert together.mean == 0.5
    assert together.high - together.low > 2 * (apart.high - apart.low)
    several = difference_with_limits(np.arange(100), difference, pairs=5)
    assert several.low < apart.low


def test_references_of_a_single_day_are_within_noise() -> None:
    assert difference_with_limits(np.zeros(50, dtype=int), np.ones(50)).low < 0


def test_false_alarm_rate_is_as_stated() -> None:
    chance = np.random.default_rng(1)
    false_alarms = 0
    for _ in range(400):
        difference = chance.choice([-1.0, 0.0, 1.0], 200)
        limits = difference_with_limits(np.repeat(np.arange(50), 4), difference)
        if limits.low > 0:
            false_alarms += 1
    assert 0.05 < false_alarms / 400 < 0.16


def test_single_rule_answer_asks_for_a_second_rule() -> None:
    alone = compare(LOOKED_UP, log=READS, policies=[KeepRecent(20), KeepRecent(50)], workers=1)
    expected = f"One rule was tried on {alone.references} references; name a second to compare it."
    assert alone.answer == expected
