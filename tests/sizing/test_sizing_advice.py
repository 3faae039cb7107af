"""Recommendations: every verdict with its conditions and costs."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.evidence.references import REFERENCE_KINDS
from memlab.policies import TokenBudget
from memlab.sizing import Advice, Verdict, advise, cap_curve, prepare_sizing, recommend_cap
from memlab.sizing.curve import in_tokens
from memlab.sizing.prior import mixture_prior
from memlab.views import Recommendation
from tests.support.frames import make_episodes, make_references
from tests.support.histories import (
    HistoryFrames,
    recommend_budget,
    recorded,
    simulate_history,
    work,
)
from tests.support.stores import run_sql


def near(rows: int = 1000, *, references: int = 200, **columns: Any) -> HistoryFrames:
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
        assert advice.interval[0] < advice.likely
        assert advice.likely < advice.keep_recent
        assert f"{advice.keep_recent:,} is safe, {advice.likely:,} is likely" in str(advice)
        for cap, column in ((advice.keep_recent, "low"), (advice.likely, "served")):
            just_below, at_cap = sizing.at([cap - 1, cap])[column]
            assert just_below < target
            assert at_cap >= target - 1e-9


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


def test_answer_that_keeps_all_memories_has_no_command() -> None:
    advice = recommend_cap(make_episodes(1000))
    too_small = replace(advice, loaded=1_500)
    small_saving = replace(advice, boot_tokens=advice.loaded - 1)
    for keeps_all in (too_small, small_saving):
        assert keeps_all.answer.startswith("Keep all for now")
        assert keeps_all.command("memory.db") is None


def test_load_bearing_memories_above_the_window_are_named_without_a_number() -> None:
    frame = make_episodes(5, tokens=[60_000] * 5).assign(load_bearing=True, prunable=False)
    advice = recommend_cap(frame)
    assert advice.answer.startswith("Nothing to remove: 5 memories, 300,000 tokens. ")
    assert "Load-bearing memories alone take 300,000 tokens, more than" in advice.answer
    assert any("memlab floor" in step for step in advice.next_steps("memory.db"))


def test_store_that_memlab_does_not_change_gets_no_command() -> None:
    advice = recommend_cap(make_episodes(1000))
    assert replace(advice, source="claude-mem:x.db").command() is None


def recommendation_for_a_graph(tmp_path: Path) -> Recommendation:
    """Size a store that memlab only reads, and whose system has no settings."""
    file = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "a", "entityType": "note", "observations": ["x"]}
    file.write_text(json.dumps(entity) + "\n")
    return memlab.size(f"mcp-graph:{file}", explain=True)


def test_read_only_store_without_settings_gets_no_steps(tmp_path: Path) -> None:
    sized = recommendation_for_a_graph(tmp_path)
    advice = replace(sized.advice, weight=1.0)  # no lines on how to collect reads
    assert advice.next_steps(source=sized.evidence.source) == []


def test_steps_of_a_read_only_store_begin_with_no_blank_line(tmp_path: Path) -> None:
    steps = recommendation_for_a_graph(tmp_path).next_steps()
    assert steps[0].startswith("for a number of its own")


TARGET_NEAR_ONE = 0.996


@pytest.mark.parametrize("fact", ["target", "rule"], ids=["target of the page", "rule of the page"])
def test_target_is_printed_as_it_was_given(fact: str) -> None:
    advice = recommend_cap(make_episodes(1000), target=TARGET_NEAR_ONE)
    assert "99.6%" in dict(advice.sheet().facts)[fact]


def test_prior_matches_the_store_kind_of_evidence() -> None:
    frame, references = near()
    references = references.assign(kind=pd.Categorical(references["kind"], REFERENCE_KINDS))
    reads = reads_of(references)
    mixed = pd.concat([references[::2], reads[1::2]])
    sizing = prepare_sizing(frame, references)
    assert sizing.settings.law == mixture_prior(0)
    assert sizing.reads == 0
    sizing = prepare_sizing(frame, reads)
    assert sizing.settings.law == mixture_prior(1)
    assert sizing.reads == 1
    sizing = prepare_sizing(frame, mixed)
    assert sizing.settings.law == mixture_prior(0.5)
    assert sizing.reads == pytest.approx(0.5, abs=0.01)


def reads_of(references: pd.DataFrame) -> pd.DataFrame:
    """Return the references as reads of a log."""
    kinds = ["log"] * len(references)
    return references.assign(kind=pd.Categorical(kinds, REFERENCE_KINDS))


def test_reads_of_one_task_are_separate_clusters() -> None:
    frame, references = near()
    frame_of_one_task = frame.assign(source_task_ref="session:1")
    sizing = prepare_sizing(frame_of_one_task, reads_of(references))
    assert sizing.references.cluster_count > 100


def test_prior_of_a_searched_store_is_that_of_reads() -> None:
    searched = make_episodes(100).assign(loaded_at_start=False)
    assert prepare_sizing(searched).settings.law == mixture_prior(1)
    assert prepare_sizing(make_episodes(100)).settings.law == mixture_prior(0)
    assert recommend_cap(searched).likely > recommend_cap(make_episodes(100)).likely


def test_answer_names_the_store_as_it_was_given() -> None:
    store = str(memlab.store_path("two_years"))
    for advice in (
        recommend_cap(store, token_budget=100),
        memlab.size(store, token_budget=100),
        advise(prepare_sizing(store), token_budget=100),
        advise(in_tokens(prepare_sizing(store)), token_budget=100),
    ):
        assert f"memlab floor {store} shows" in advice.answer


def test_weight_of_own_references_grows_with_their_number() -> None:
    few = recommend_cap(*near(references=5))
    medium = recommend_cap(*near(references=50))
    many = recommend_cap(*near(references=900))
    assert few.verdict is Verdict.FROM_OTHER_PROJECTS
    assert medium.verdict is Verdict.FROM_OTHER_PROJECTS
    assert many.verdict is Verdict.OK
    assert few.weight < medium.weight
    assert medium.weight < 0.8
    assert many.weight > 0.8
    assert few.keep_recent > medium.keep_recent
    assert medium.keep_recent > many.keep_recent
    own_part = f"{medium.weight:.0%} from 50 later needs seen in this store"
    other_part = f"{1 - medium.weight:.0%} from the data of nine other projects"
    assert f"{own_part}, {other_part}" in str(medium)
    assert medium.missing == few.missing - (medium.cluster_count - few.cluster_count)
    assert f"{few.missing} more references or reads" in str(few)
    assert many.missing == 0
    assert "more references or reads" not in str(many)


def test_cap_from_many_own_references_is_near_their_reach() -> None:
    advice = recommend_cap(*near(references=900))
    low, high = advice.served_limits
    assert 20 <= advice.keep_recent <= 120
    assert memlab.law(1000).high / 4 > 120
    assert advice.boot_tokens == 10 * advice.keep_recent
    assert advice.boot_tokens_p95 == 10 * advice.keep_recent
    assert low >= 0.9
    assert low <= advice.served <= high
    assert advice.days == pytest.approx((advice.keep_recent - 1) / 24)
    boot = f"today 10,000 tokens, and {advice.boot_tokens:,} under the safe cap"
    for phrase in (boot, "900 later needs", "1,000 of 1,000 written", "with 90% confidence"):
        assert phrase in str(advice)


def far_end() -> HistoryFrames:
    """Return a history in which every fourth reference goes back two thirds of it."""
    frame = make_episodes(2000)
    at = np.arange(1200, 2000, 4)
    distance = np.where(np.arange(200) % 4 == 0, at * 2 // 3, 1 + at % 7)
    return frame, make_references(frame, at, distance)


def small() -> HistoryFrames:
    """Return a hundred memories; references of every second ten reach sixty rows back."""
    frame = make_episodes(100)
    at = np.arange(60, 100)
    reaches_far = at // 10 % 2 == 1
    return frame, make_references(frame, at, np.where(reaches_far, 60, 2))


def dangling() -> HistoryFrames:
    """Return a history with one reference to a missing memory."""
    frame, references = near(references=900)
    references.loc[0, c.TARGET_POSITION] = 5000
    return frame, references


class VerdictCase(NamedTuple):
    """A history, the arguments of a recommendation, and the expected result."""

    world: Callable[[], HistoryFrames]
    arguments: dict[str, float]
    verdict: Verdict
    condition: str


VERDICTS = {
    "references to the oldest": VerdictCase(
        far_end,
        {"confidence": 0.6},
        Verdict.HORIZON_TOO_SHORT,
        "25% of references reach beyond",
    ),
    "a target below those references": VerdictCase(
        far_end,
        {"confidence": 0.6, "target": 0.7},
        Verdict.OK,
        "cap           keep_recent = ",
    ),
    "a target that needs more references": VerdictCase(
        near,
        {"target": 0.998},
        Verdict.TARGET_BEYOND_HORIZON,
        "1,151 references of its own are needed",
    ),
    "nearly every reference": VerdictCase(
        partial(near, rows=4_000, references=3_900),
        {"confidence": 0.6, "target": 0.9995},
        Verdict.CAP_HAS_NO_EFFECT,
        "no smaller number is known to meet the target",
    ),
    "a small store": VerdictCase(
        small,
        {},
        Verdict.CAP_HAS_NO_EFFECT,
        "ask again when the store holds more than",
    ),
    "references of one session": VerdictCase(
        partial(near, source_task_ref="session:1"),
        {},
        Verdict.FROM_OTHER_PROJECTS,
        "1% from 200 later needs seen in this store",
    ),
    "only load-bearing memories": VerdictCase(
        partial(near, load_bearing=True, prunable=False),
        {},
        Verdict.NOTHING_PRUNABLE,
        "200 references to load-bearing memories",
    ),
    "a dangling reference": VerdictCase(
        dangling,
        {},
        Verdict.OK,
        "1 reference to something that is no earlier memory",
    ),
}


@pytest.mark.parametrize("case", VERDICTS.values(), ids=VERDICTS)
def test_verdict_comes_with_conditions_that_change_it(case: VerdictCase) -> None:
    advice = recommend_cap(*case.world(), **case.arguments)
    assert advice.verdict is case.verdict
    assert case.condition in str(advice)
    if case.verdict is Verdict.CAP_HAS_NO_EFFECT:
        assert advice.keep_recent >= advice.prunable
        assert advice.command("memory.db") is None
        assert not [line for line in advice.next_steps() if "shows what would go" in line]


def test_references_served_by_every_cap_lower_the_cap() -> None:
    frame, references = near(references=900)
    plain = recommend_cap(frame, references)
    frame.loc[:0, [c.LOAD_BEARING, c.PRUNABLE]] = [True, False]
    repeated = references.iloc[::2].assign(target_position=1)
    combined = pd.concat([references, repeated]).sort_values(c.AT_POSITION)
    assert recommend_cap(frame, combined).keep_recent < plain.keep_recent
    at_zero = cap_curve(frame, combined).loc[0]
    assert at_zero["served_observed"] == pytest.approx(1 / 3)
    assert at_zero["served_own"] == pytest.approx(1 / 3)


def two_kinds() -> HistoryFrames:
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
    assert advice.keep_recent is None
    assert advice.within_budget is None
    assert advice.budget_cap is None
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
    assert fits_budget.served < 0.9
    assert meets_target.served_limits[0] >= 0.9
    for_target, for_budget, *_ = advice.next_steps("memory.db")
    command = "memory.db --keep-recent"
    assert for_target.endswith(f"{command} {meets_target.keep_recent}    for the target")
    assert for_budget.endswith(f"{command} {fits_budget.keep_recent}    for the budget")
    assert advice.policy is None
    assert advice.command("memory.db") is None
    row = cap_curve(frame, references).loc[5]
    fits = "caps up to 5 fit today and at 95% of past starts; the largest serves"
    remark = f"{fits} {row['served']:.1%} of later needs, limits"
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
    assert advice.number >= advice.likely
    assert advice.likely >= 1
    assert advice.command("memory.db") is None
    assert "the likely number" not in "".join(advice.next_steps())
    if recommend is not recommend_budget:
        assert "so the limits are wider" in str(advice)


@pytest.mark.parametrize("recommend", [recommend_cap, recommend_budget])
def test_next_steps_name_the_store(recommend) -> None:
    advice = recommend(memlab.store_path("three_hundred_issues"))
    store = advice.name_for_commands
    assert store.endswith("three_hundred_issues.db")
    first, *other_steps = advice.next_steps()
    assert first.startswith(f"next: memlab compact {store} --")
    assert first.endswith("    shows what would go")
    assert f"{advice.command()}    does it" in [line.strip() for line in other_steps]
    options = " ".join((*advice.number_kind.size_options, "--log"))
    assert f"  memlab size {store} {options}" in str(other_steps)


@pytest.mark.parametrize("recommend", [recommend_cap, recommend_budget])
def test_longer_horizon_needs_more_memories(recommend) -> None:
    shorter = recommend(*near(references=60), until=1.2)
    longer = recommend(*near(references=60), until=3.0)
    assert shorter.until == 1_200
    assert longer.until == 3_000
    assert shorter.likely < longer.likely
    assert shorter.number < longer.number
    assert "until 3,000 episodes are written" in str(longer)


def pruned_by_hand(path: Path, *, after: int, count: int) -> pd.DataFrame:
    """Return the two-year past after an unarchived deletion of some memories."""
    store = memlab.copy_store(memlab.store_path("two_years"), path / "memory.db")
    episodes = "FROM memory_items WHERE kind = 'episodic' ORDER BY rowid"
    chosen = f"SELECT rowid {episodes} LIMIT {count} OFFSET {after}"
    run_sql(store, f"DELETE FROM memory_items WHERE rowid IN ({chosen})")
    return memlab.load_past(store)


class Advised(NamedTuple):
    """The recommended cap and the recommended budget of one store."""

    cap: Advice
    budget: Advice


def cap_and_budget(frame: pd.DataFrame, *, extra_memories: int = 0) -> Advised:
    """Recommend a cap and a budget for memories of ten tokens each; check that they agree."""
    cap = memlab.recommend_cap(frame)
    budget = recommend_budget(frame)
    assert cap.keep_recent is not None
    floor = budget.floor.tokens
    assert budget.max_tokens == floor + 10 * (cap.keep_recent + extra_memories)
    assert budget.likely == floor + 10 * (cap.likely + extra_memories)
    assert budget.served == pytest.approx(cap.served, abs=0.01 * extra_memories)
    assert budget.weight == cap.weight
    assert budget.track_record == cap.track_record.replace("its cap was", "its budget was")
    return Advised(cap, budget)


def deletion_notes(budget: Advice) -> list[str]:
    """Return the notes of a recommended budget on memories deleted without an archive."""
    notes = budget.would_change
    return [note for note in notes if " were deleted without an archive" in note]


def test_equal_lengths_make_budget_and_cap_agree() -> None:
    frame, _ = recorded()
    frame = frame.assign(**{c.TOKENS: 10})
    advised = cap_and_budget(frame)
    assert advised.cap.verdict != "history-incomplete"
    assert deletion_notes(advised.budget) == []


@pytest.mark.parametrize(
    ("after", "extra_memories"),
    [
        (0, 1),  # a budget may have deleted the oldest because one memory did not fit
        (300, 0),
    ],
    ids=["oldest gone", "others gone"],
)
def test_budget_and_cap_agree_after_unarchived_deletions(
    tmp_path: Path, after: int, extra_memories: int
) -> None:
    frame = pruned_by_hand(tmp_path, after=after, count=700).assign(**{c.TOKENS: 10})
    advised = cap_and_budget(frame, extra_memories=extra_memories)
    assert advised.cap.verdict == "history-incomplete"
    (note,) = deletion_notes(advised.budget)
    assert note.startswith("700 ")


def test_budget_covers_memories_since_unarchived_deletion(tmp_path: Path) -> None:
    frame = pruned_by_hand(tmp_path, after=0, count=2_000)
    tokens_since = frame.loc[frame[c.PRUNABLE], c.TOKENS].sum()
    full_frame = memlab.load(memlab.store_path("two_years"))
    assert recommend_budget(full_frame, target=0.5).max_tokens < tokens_since
    assert recommend_budget(frame, target=0.5).max_tokens >= tokens_since


def test_safe_budget_meets_the_target() -> None:
    frame, references = work()
    frame[c.TOKENS] = 3 + np.arange(len(frame)) % 16
    advice = recommend_budget(frame, references, target=0.5)
    decided = memlab.decide(frame, TokenBudget(advice.max_tokens))
    deleted = (~decided["keep"]).sum()
    assert deleted > 0
    assert deleted == advice.prunable - advice.keep_recent
    assert advice.served_limits[0] >= 0.5


def test_token_budget_equal_to_the_recommended_is_a_policy() -> None:
    sizing = in_tokens(prepare_sizing(*near(references=900)))
    recommended = advise(sizing).max_tokens
    advice = advise(sizing, token_budget=recommended)
    assert advice.within_budget.max_tokens == recommended
    assert advice.budget_cap == recommended
    assert advice.policy == {"name": "tokens", "max_tokens": recommended}
    assert list(advice.trade) == []


def test_token_budget_below_the_recommended_offers_both() -> None:
    sizing = in_tokens(prepare_sizing(*near(references=900)))
    recommended = advise(sizing).max_tokens
    advice = advise(sizing, token_budget=recommended - 1)
    assert advice.within_budget.max_tokens == recommended - 1
    assert advice.budget_cap == recommended - 1
    assert advice.policy is None
    meets_target, fits_budget = advice.trade
    assert meets_target.max_tokens == recommended
    assert fits_budget.max_tokens == recommended - 1
    for_target, for_budget, *_ = advice.next_steps()
    assert for_target.endswith(f" --max-tokens {meets_target.number}    for the target")
    assert for_budget.endswith(f" --max-tokens {fits_budget.number}    for the budget")


def test_brief_page_omits_numbers_near_the_recommended() -> None:
    sized = memlab.size(memlab.store_path("two_years"))
    advice = sized.advice
    curve = sized.curve
    near_safe = round(0.95 * advice.keep_recent)
    near_likely = round(1.05 * advice.likely)
    caps = [near_safe, near_likely, 200, advice.likely, advice.keep_recent, curve.index[-1]]
    table = advice.brief(curve[curve.index.isin(caps)]).tables[0]
    listed = [row[0] for row in table.rows]
    assert f"> {advice.keep_recent:,}" in listed
    assert f"{near_safe:,}" not in listed
    assert f"{near_likely:,}" not in listed
