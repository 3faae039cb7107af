"""Recommendations: every verdict with its conditions and costs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.evidence.references import REFERENCE_KINDS
from memlab.policies import TokenBudget
from memlab.sizing import Verdict, advise, cap_curve, prepare_sizing, recommend_cap
from memlab.sizing.curve import in_tokens
from memlab.sizing.prior import mixture_prior
from tests.support.frames import make_episodes, make_references
from tests.support.histories import recommend_budget, recorded, simulate_history, work
from tests.support.stores import run_sql

World = tuple[pd.DataFrame, pd.DataFrame]
"""Memories, and the references to them."""


def near(rows: int = 1000, *, references: int = 200, **columns: Any) -> World:
    """Return a history whose references all lie within twenty rows; keywords are columns."""
    rng = np.random.default_rng(0)
    at = np.sort(rng.integers(30, rows, references))
    frame = make_episodes(rows).assign(**columns)
    return frame, make_references(frame, at, rng.integers(1, 21, references))


def test_safe_and_likely_caps_are_the_smallest_meeting_target() -> None:
    frame, references = simulate_history(14, "steady", rows=3000)
    sizing = prepare_sizing(frame, references)
    for target in (0.5, 0.75, 0.9):
        advice = advise(sizing, target=target)
        assert advice.verdict is Verdict.OK
        assert advice.interval[0] < advice.likely < advice.keep_recent
        assert f"{advice.keep_recent:,} is safe, {advice.likely:,} is likely" in str(advice)
        for cap, column in ((advice.keep_recent, "low"), (advice.likely, "served")):
            below, at_cap = sizing.at([cap - 1, cap])[column]
            assert below < target <= at_cap + 1e-9


def test_cap_without_references_comes_from_other_projects() -> None:
    advice = recommend_cap(make_episodes(1000))
    asked = memlab.law(1000, 0.9)
    assert advice.verdict is Verdict.FROM_OTHER_PROJECTS
    assert advice.keep_recent == asked.high
    assert advice.interval == (asked.low, asked.high)
    assert advice.weight == 0
    assert advice.references == 0
    assert advice.projects == 9
    assert advice.boot_tokens == 10 * advice.keep_recent
    assert "evidence      the data of nine other projects; no later need was seen" in str(advice)
    assert advice.command("memory.db") is not None
    assert (
        replace(advice, source="claude-mem:x.db").command() is None
    )  # memlab does not delete there


def test_prior_matches_the_store_kind_of_evidence() -> None:
    frame, references = near()
    own_references = references.assign(kind=pd.Categorical(references["kind"], REFERENCE_KINDS))
    reads = own_references.assign(
        kind=pd.Categorical(["log"] * len(own_references), REFERENCE_KINDS)
    )
    mixed = pd.concat([own_references[::2], reads[1::2]])
    laws = [prepare_sizing(frame, given).settings.law for given in (own_references, reads, mixed)]
    assert laws == [mixture_prior(0), mixture_prior(1), mixture_prior(0.5)]
    shares = [prepare_sizing(frame, given).reads for given in (own_references, reads, mixed)]
    assert shares == [0, 1, pytest.approx(0.5, abs=0.01)]
    # reads of one task are separate clusters
    of_one_task = frame.assign(source_task_ref="session:1")
    assert prepare_sizing(of_one_task, reads).references.cluster_count > 100
    searched = make_episodes(100).assign(loaded_at_start=False)
    assert prepare_sizing(searched).settings.law == mixture_prior(1)
    assert prepare_sizing(make_episodes(100)).settings.law == mixture_prior(0)
    assert recommend_cap(searched).likely > recommend_cap(make_episodes(100)).likely


def test_weight_of_own_references_grows_with_their_number() -> None:
    advices = few, medium, many = [recommend_cap(*near(references=count)) for count in (5, 50, 900)]
    other = Verdict.FROM_OTHER_PROJECTS
    assert [advised.verdict for advised in advices] == [other, other, Verdict.OK]
    assert few.weight < medium.weight < 0.8 < many.weight
    assert few.keep_recent > medium.keep_recent > many.keep_recent
    own_line = f"50 later needs seen in this store count {medium.weight:.0%}"
    assert f"{own_line}, the data of nine other projects {1 - medium.weight:.0%}" in str(medium)
    assert medium.missing == few.missing - (medium.cluster_count - few.cluster_count)
    assert f"{few.missing} more references or reads" in str(few)
    assert many.missing == 0
    assert "more references or reads" not in str(many)
    assert 20 <= many.keep_recent <= 120 < memlab.law(1000).high / 4
    assert many.boot_tokens == many.boot_tokens_p95 == 10 * many.keep_recent
    assert 0.9 <= many.served_limits[0] <= many.served <= many.served_limits[1]
    assert many.days == pytest.approx((many.keep_recent - 1) / 24)
    boot = f"today 10,000 tokens, and {many.boot_tokens:,} under the safe cap"
    for part in (boot, "900 later needs", "1,000 of 1,000 written", "with 90% confidence"):
        assert part in str(many)


def far_end() -> World:
    """Return a history in which every fourth reference goes back two thirds of it."""
    frame = make_episodes(2000)
    at = np.arange(1200, 2000, 4)
    distance = np.where(np.arange(200) % 4 == 0, at * 2 // 3, 1 + at % 7)
    return frame, make_references(frame, at, distance)


def small() -> World:
    frame = make_episodes(100)
    at = np.arange(60, 100)
    return frame, make_references(frame, at, np.where(at // 10 % 2, 60, 2))


def dangling() -> World:
    frame, references = near(references=900)
    references.loc[0, c.TARGET_POSITION] = 5000
    return frame, references


@pytest.mark.parametrize(
    ("world", "asked", "verdict", "condition"),
    [
        (far_end, {"confidence": 0.6}, Verdict.HORIZON_TOO_SHORT, "25% of references reach beyond"),
        (far_end, {"confidence": 0.6, "target": 0.7}, Verdict.OK, "cap           keep_recent = "),
        (
            near,
            {"target": 0.998},
            Verdict.TARGET_BEYOND_HORIZON,
            "1,151 references of its own are needed",
        ),
        (
            partial(near, rows=4_000, references=3_900),
            {"confidence": 0.6, "target": 0.9995},
            Verdict.CAP_HAS_NO_EFFECT,
            "no smaller number is known to meet the target",
        ),
        (small, {}, Verdict.CAP_HAS_NO_EFFECT, "ask again when the store holds more than"),
        (
            partial(near, source_task_ref="session:1"),
            {},
            Verdict.FROM_OTHER_PROJECTS,
            "200 later needs seen in this store count 1%",
        ),
        (
            partial(near, load_bearing=True, prunable=False),
            {},
            Verdict.NOTHING_PRUNABLE,
            "200 references to load-bearing memories",
        ),
        (dangling, {}, Verdict.OK, "1 reference to something that is no earlier memory"),
    ],
)
def test_verdict_comes_with_conditions_that_change_it(
    world: Callable[[], World], asked: dict[str, float], verdict: Verdict, condition: str
) -> None:
    advice = recommend_cap(*world(), **asked)
    assert advice.verdict is verdict
    assert condition in str(advice)
    if verdict is Verdict.CAP_HAS_NO_EFFECT:
        assert advice.keep_recent >= advice.prunable
        assert advice.command("memory.db") is None
        assert "deletes nothing yet" in advice.next_steps()[0]


def test_references_served_by_every_cap_lower_the_cap() -> None:
    frame, references = near(references=900)
    plain = recommend_cap(frame, references)
    frame.loc[:0, [c.LOAD_BEARING, c.PRUNABLE]] = [True, False]
    repeated = references.iloc[::2].assign(target_position=1)
    combined = pd.concat([references, repeated]).sort_values(c.AT_POSITION)
    assert recommend_cap(frame, combined).keep_recent < plain.keep_recent
    none = cap_curve(frame, combined).loc[0]
    assert none[["served_observed", "served_own"]].tolist() == pytest.approx([1 / 3, 1 / 3])


def two_kinds() -> World:
    """Return a history of near references with two hundred tokens of decisions and skills."""
    frame, references = near(references=900, kind="episodic")
    facts = [("semantic", 120), ("procedural", 50), ("semantic", 30)]
    frame.loc[:2, [c.KIND, c.TOKENS]] = facts
    frame.loc[:2, [c.LOAD_BEARING, c.PRUNABLE]] = [True, False]
    return frame, references


def test_load_bearing_floor_above_budget_gives_no_cap() -> None:
    frame, references = two_kinds()
    sizing = prepare_sizing(frame, references)
    budget = advise(in_tokens(sizing), token_budget=199)
    assert budget.verdict == Verdict.FLOOR_EXCEEDS_BUDGET
    assert budget.max_tokens is None
    advice = advise(sizing, token_budget=199)
    assert advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET
    assert advice.keep_recent is advice.within_budget is advice.budget_cap is None
    assert advice.floor.by_kind == (("semantic", 2, 150), ("procedural", 1, 50))
    assert [large.memory_id for large in advice.floor.largest] == ["m1", "m2", "m3"]
    assert "200 tokens now, 1 over the budget" in advice.would_change[0]
    assert advice.next_steps("memory.db")[0].startswith("next: memlab floor memory.db ")
    assert "Load-bearing: 3 memories, 200 tokens" in str(advice)


def test_budget_below_target_offers_both_caps() -> None:
    frame, references = two_kinds()
    free = recommend_cap(frame, references)
    advice = recommend_cap(frame, references, token_budget=250)
    assert advice.verdict is Verdict.TARGET_EXCEEDS_BUDGET
    assert advice.keep_recent is None
    assert advice.likely == free.likely
    meets_target, fits_budget = advice.trade
    assert meets_target.keep_recent == free.keep_recent
    assert fits_budget == advice.within_budget
    assert fits_budget.keep_recent == advice.budget_cap
    assert fits_budget.boot_tokens_p95 == 250
    assert fits_budget.served < 0.9 <= meets_target.served_limits[0]
    steps = advice.next_steps("memory.db")
    for end, goal, line in zip(advice.trade, ("target", "budget"), steps, strict=False):
        assert line.endswith(f"memory.db --keep-recent {end.keep_recent}    for the {goal}")
    assert advice.policy is advice.command("memory.db") is None
    row = cap_curve(frame, references).loc[5]
    remark = f"caps up to 5 fit, which serves {row['served']:.1%} of later needs, limits"
    assert f"{remark} {row['low']:.1%} to {row['high']:.1%}" in str(advice)
    above = recommend_cap(frame, references, token_budget=2000)
    assert above.verdict == Verdict.OK
    assert above.keep_recent == free.keep_recent


@pytest.mark.parametrize("late", [[], [400] * 20], ids=["alike", "recently longer"])
def test_the_budget_cap_is_the_largest_that_fits(late: list[int]) -> None:
    tokens = np.append(np.random.default_rng(2).integers(1, 100, 500), late).astype(int)
    sizing = prepare_sizing(make_episodes(len(tokens), tokens=tokens))
    most = sizing.curve[["boot_tokens", "boot_tokens_p95"]].max(axis="columns")
    for budget in (0, 399, 3_000, 5_000, 60_000, 10**9):
        assert sizing.largest_within(budget) == most[most <= budget].index.max()


@pytest.mark.parametrize(
    "recommend", [recommend_cap, partial(recommend_cap, token_budget=10), recommend_budget]
)
def test_store_of_one_memory_gets_a_number_without_effect(recommend) -> None:
    advice = recommend(make_episodes(1))
    assert advice.verdict == Verdict.FROM_OTHER_PROJECTS
    assert advice.memories == 1
    assert advice.number >= advice.likely >= 1
    assert advice.command("memory.db") is None
    assert "the likely number" not in "".join(advice.next_steps())
    assert recommend is recommend_budget or "so the limits are wider" in str(advice)


@pytest.mark.parametrize("recommend", [recommend_cap, recommend_budget])
def test_next_steps_name_the_store(recommend) -> None:
    advice = recommend(memlab.store_path("three_hundred_issues"))
    first, *other_steps = advice.next_steps()
    assert first.startswith("next: memlab compact three_hundred_issues.db --")
    assert first.endswith("    shows what would go")
    assert f"{advice.command()}    does it" in [line.strip() for line in other_steps]
    options = " ".join((*advice.number_kind.size_options, "--log"))
    assert f"  memlab size three_hundred_issues.db {options}" in str(other_steps)


@pytest.mark.parametrize("recommend", [recommend_cap, recommend_budget])
def test_longer_horizon_needs_more_memories(recommend) -> None:
    near_ahead, far = (recommend(*near(references=60), until=until) for until in (1.2, 3.0))
    assert near_ahead.until == 1_200
    assert far.until == 3_000
    assert near_ahead.likely < far.likely
    assert near_ahead.number < far.number
    assert "until 3,000 episodes are written" in str(far)


def pruned_by_hand(path: Path, *, after: int, count: int) -> pd.DataFrame:
    """Return the two-year past after an unarchived deletion of some memories."""
    store = memlab.copy_store(memlab.store_path("two_years"), path / "memory.db")
    episodes = "FROM memory_items WHERE kind = 'episodic' ORDER BY rowid"
    chosen = f"SELECT rowid {episodes} LIMIT {count} OFFSET {after}"
    run_sql(store, f"DELETE FROM memory_items WHERE rowid IN ({chosen})")
    return memlab.load_past(store)


@pytest.mark.parametrize("after", [None, 0, 300], ids=["whole", "oldest gone", "others gone"])
def test_equal_lengths_make_budget_and_cap_agree(tmp_path: Path, after: int | None) -> None:
    is_present = after is None
    frame = recorded()[0] if is_present else pruned_by_hand(tmp_path, after=after, count=700)
    frame = frame.assign(**{c.TOKENS: 10})
    cap = memlab.recommend_cap(frame)
    budget = recommend_budget(frame)
    assert cap.keep_recent is not None
    assert (cap.verdict == "history-incomplete") == (not is_present)
    over = after == 0  # a budget may have deleted the oldest because one memory did not fit
    assert budget.max_tokens == budget.floor.tokens + 10 * (cap.keep_recent + over)
    assert budget.likely == budget.floor.tokens + 10 * (cap.likely + over)
    assert budget.served == pytest.approx(cap.served, abs=0.01 * over)
    assert budget.weight == cap.weight
    assert budget.track_record == cap.track_record
    deletions = [note for note in budget.would_change if " were deleted without an archive" in note]
    assert [note.split()[0] for note in deletions] == ["700"] * (not is_present)


def test_budget_covers_memories_since_unarchived_deletion(tmp_path: Path) -> None:
    frame = pruned_by_hand(tmp_path, after=0, count=2_000)
    since = frame.loc[frame[c.PRUNABLE], c.TOKENS].sum()
    full_frame = memlab.load(memlab.store_path("two_years"))
    numbers = (recommend_budget(past, target=0.5).max_tokens for past in (full_frame, frame))
    assert next(numbers) < since <= next(numbers)


def test_safe_budget_meets_the_target() -> None:
    frame, references = work()
    frame[c.TOKENS] = 3 + np.arange(len(frame)) % 16
    advice = recommend_budget(frame, references, target=0.5)
    decided = memlab.decide(frame, TokenBudget(advice.max_tokens))
    assert int((~decided["keep"]).sum()) == advice.prunable - advice.keep_recent > 0
    assert advice.served_limits[0] >= 0.5


@pytest.mark.parametrize("spare", [0, -1])
def test_recommended_budget_is_limited_by_token_budget(spare: int) -> None:
    sizing = in_tokens(prepare_sizing(*near(references=900)))
    takes = advise(sizing).max_tokens
    advice = advise(sizing, token_budget=takes + spare)
    assert advice.within_budget.max_tokens == advice.budget_cap == takes + spare
    assert advice.policy == (None if spare else {"name": "tokens", "max_tokens": takes})
    assert [end.max_tokens for end in advice.trade] == ([takes, takes - 1] if spare else [])
    for end, argument, line in zip(advice.trade, ("target", "budget"), advice.next_steps()):  # noqa: B905
        assert line.endswith(f" --max-tokens {end.number}    for the {argument}")


def test_brief_page_omits_numbers_near_the_recommended() -> None:
    sized = memlab.size(memlab.store_path("two_years"))
    advice = sized.advice
    rows = sized.curve
    near = [round(0.95 * advice.keep_recent), round(1.05 * advice.likely)]
    shown_rows = rows[
        rows.index.isin([*near, 200, advice.likely, advice.keep_recent, rows.index[-1]])
    ]
    listed = [row[0] for row in advice.brief(shown_rows).tables[0].rows]
    assert f"> {advice.keep_recent:,}" in listed
    assert not {f"{number:,}" for number in near} & set(listed)
