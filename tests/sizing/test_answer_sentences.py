"""The answer of a sizing in sentences: one case for each template."""

import re
from dataclasses import replace
from typing import Any

import pytest

import memlab
from memlab.sizing import Advice, Floor, Verdict, recommend_cap
from memlab.sizing.answer import (
    BY_USE,
    REMARKS,
    TEMPLATES,
    AnswerCase,
    answer_by_use,
    answer_of,
    answer_of_fleet,
    case_of,
)
from memlab.sizing.curve import in_tokens, prepare_sizing
from memlab.sizing.goal import advise


@pytest.fixture(scope="module")
def advice() -> Advice:
    """Return the recommendation for the bundled two-year store."""
    return recommend_cap(memlab.store_path("two_years"))


CASES: dict[str, tuple[dict[str, Any], AnswerCase, str]] = {
    "a cap that saves much": (
        {},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are nine chances in ten that nine in ten later needs "
            "are still served. 356 would cut it to 25,719, at even odds."
        ),
    ),
    "a custom context window": (
        {"context_window": 1_000_000, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (17% → 4% of 1,000,000). There are nine chances in ten that nine in ten later needs "
            "are still served."
        ),
    ),
    "a custom target and confidence": (
        {"target": 0.87, "confidence": 0.95, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are 19 chances in 20 that 87% of later needs are still "
            "served."
        ),
    ),
    "other projects' data": (
        {"verdict": Verdict.FROM_OTHER_PROJECTS, "references": 3, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are nine chances in ten that nine in ten later needs "
            "are still served. This rests mostly on data of nine other projects: the store itself "
            "has shown 3 later needs."
        ),
    ),
    "other projects' data alone": (
        {"verdict": Verdict.FROM_OTHER_PROJECTS, "references": 0, "keep_recent": 3_000},
        AnswerCase.KEEP_ALL,
        (
            "Keep all for now: the safe cap is 3,000 episodes, and the store has 2,864. Keeping 356"
            " episodes would cut a start to 25,719 tokens, at even odds. This rests mostly on data "
            "of nine other projects: the store itself has shown no later need yet."
        ),
    ),
    "references to the oldest memories": (
        {"verdict": Verdict.HORIZON_TOO_SHORT, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are nine chances in ten that nine in ten later needs "
            "are still served. Later needs here often reach back to the oldest memories: size "
            "again as the store grows."
        ),
    ),
    "memories deleted without an archive": (
        {"verdict": Verdict.HISTORY_INCOMPLETE, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are nine chances in ten that nine in ten later needs "
            "are still served. Memories were deleted without an archive, so more may be needed "
            "than is known."
        ),
    ),
    "a poor track record": (
        {"measured": 4, "missed": 2, "likely": 675},
        AnswerCase.COMPACT,
        (
            "Compacting to the newest 675 episodes cuts a start today from 165,169 to 43,978 tokens"
            " (83% → 22% of 200,000). There are nine chances in ten that nine in ten later needs "
            "are still served. But at 2 of 4 earlier moments this rule would have missed the "
            "target."
        ),
    ),
    "nothing prunable": (
        {"verdict": Verdict.NOTHING_PRUNABLE, "keep_recent": None, "prunable": 0, "loaded": 6_491},
        AnswerCase.NOTHING,
        "Nothing to remove: 115 memories, 6,491 tokens.",
    ),
    "all episodes gone": (
        {"prunable": 0, "loaded": 6_491},
        AnswerCase.NOTHING,
        "Nothing to remove: 115 memories, 6,491 tokens.",
    ),
    "a cap without effect": (
        {"verdict": Verdict.CAP_HAS_NO_EFFECT, "keep_recent": 2_864, "likely": 2_864},
        AnswerCase.KEEP_ALL,
        "Keep all for now: the safe cap is 2,864 episodes, and the store has 2,864.",
    ),
    "a saving under a tenth": (
        {"keep_recent": 2_700, "boot_tokens": 155_000, "likely": 2_700},
        AnswerCase.SMALL_SAVING,
        (
            "Keep all for now: the safe cap, the newest 2,700 episodes, saves only 10,169 of "
            "165,169 tokens a start."
        ),
    ),
    "load-bearing memories above the budget": (
        {
            "verdict": Verdict.FLOOR_EXCEEDS_BUDGET,
            "keep_recent": None,
            "token_budget": 5_000,
            "store": "my memory.db",
        },
        AnswerCase.FLOOR,
        (
            "Load-bearing memories take 6,491 tokens, the budget is 5,000: no cap helps. memlab "
            "floor 'my memory.db' shows which they are."
        ),
    ),
    "too little evidence": (
        {"verdict": Verdict.TARGET_BEYOND_HORIZON, "target": 0.995, "store": "memory.db"},
        AnswerCase.TOO_LITTLE_EVIDENCE,
        (
            "Keep all for now: there is too little evidence that any cap serves 99.5% of later "
            "needs. It takes 460 needs of this store's own to show that, and 425 are known. memlab "
            "size memory.db --explain says how to collect them."
        ),
    ),
    "a store too small to need a cap": (
        {"loaded": 1_900, "boot_tokens": 200},
        AnswerCase.TOO_SMALL,
        "Keep all for now: a start takes only 1,900 tokens (0.9% of 200,000).",
    ),
    "a store that is searched": (
        {"loads_at_start": False, "likely": 675},
        AnswerCase.SEARCHED,
        (
            "Nothing is loaded at start; deleting 2,189 episodes, all but the newest 675 episodes, "
            "frees 121,191 of 165,169 tokens of the store. There are nine chances in ten that nine "
            "in ten later needs are still served."
        ),
    ),
    "a store that is searched, and a cap without effect": (
        {"loads_at_start": False, "keep_recent": 3_000},
        AnswerCase.SEARCHED_KEEP_ALL,
        (
            "Keep all for now: nothing is loaded at start, the safe cap is 3,000 episodes, and the "
            "store has 2,864. Keeping 356 episodes would cut the store to 25,719 tokens, at even "
            "odds."
        ),
    ),
}
"""By description: changed fields of the recommendation, the case, and its sentences."""


@pytest.mark.parametrize(("changes", "case", "sentences"), CASES.values(), ids=CASES)
def test_answer_is_written_from_the_template_of_its_case(
    advice: Advice, changes: dict[str, Any], case: AnswerCase, sentences: str
) -> None:
    changed_advice = replace(advice, **{"source": "", **changes})
    assert case_of(changed_advice) is case
    assert answer_of(changed_advice) == sentences


def test_conflict_answer_names_both_caps_and_shares() -> None:
    sizing = prepare_sizing(memlab.store_path("two_years"))
    advice_of_caps = advise(sizing, token_budget=20_000)
    assert case_of(advice_of_caps) is AnswerCase.CHOOSE
    assert advice_of_caps.answer == (
        "No cap meets both the target and the limit of 20,000 tokens. Serving nine in ten later "
        "needs takes the newest 675 episodes (43,978 tokens at start today), which would serve 95% "
        "of them (90% to 99%). Within the limit today and at 95% of past starts, the newest 244 "
        "episodes (19,713 tokens at start today) would serve 87% of them (79% to 93%)."
    )
    advice_of_budgets = advise(in_tokens(sizing), token_budget=20_000)
    assert "Within the limit, a budget of 20,000 tokens" in advice_of_budgets.answer


def test_every_template_is_tested() -> None:
    tested = {case for _, case, _ in CASES.values()} | {AnswerCase.CHOOSE}
    assert tested == set(AnswerCase)
    assert set(TEMPLATES) == set(AnswerCase)
    verdicts = {changes.get("verdict") for changes, _, _ in CASES.values()}
    assert set(REMARKS) <= verdicts
    assert set(Verdict) - verdicts == {Verdict.OK, Verdict.TARGET_EXCEEDS_BUDGET}


def test_token_budget_answer_names_tokens() -> None:
    advice = advise(in_tokens(prepare_sizing(memlab.store_path("two_years"))))
    assert advice.answer.startswith(f"Compacting to a budget of {advice.number:,} tokens cuts ")
    assert re.search(rf" {advice.likely:,} would cut it to [\d,]+, at even odds\.", advice.answer)


@pytest.mark.parametrize("unit", ["memories", "tokens"])
def test_answer_number_equals_number_of_the_next_step(unit: str) -> None:
    sizing = memlab.size(memlab.store_path("two_years"), unit=unit)
    number = sizing.advice.number
    assert f"{number:,}" in sizing.answer
    assert str(number) in sizing.next_steps()[0].split()
    plan = memlab.plan(memlab.store_path("two_years"), memlab.KeepRecent(sizing.advice.keep_recent))
    if unit == "memories":
        assert f"from {plan.boot_before.tokens:,} to {plan.boot_after.tokens:,}" in sizing.answer


def test_answer_is_page_title_and_json_field() -> None:
    sizing = memlab.size(memlab.store_path("two_years"))
    assert str(sizing).startswith(f"{sizing.answer}\n")
    assert str(sizing.advice).startswith(f"{sizing.answer}\n")
    assert sizing.to_dict()["answer"] == sizing.answer
    assert sizing.advice.to_dict()["answer"] == sizing.answer


def test_context_window_comes_from_settings(tmp_path: Any) -> None:
    store = memlab.copy_store(memlab.store_path("two_years"), tmp_path / "m.db")
    (tmp_path / "memlab.toml").write_text("context_window = 1000000\n")
    assert "(17% → 4% of 1,000,000)" in memlab.size(store).answer


def test_retirement_by_use_has_its_own_answer() -> None:
    answer = answer_by_use(
        loaded=25_005, budget=16_838, served=0.92, limits=(0.71, 0.98), newest=0.79
    )
    assert answer == (
        "Retiring by use cuts a start today from 25,005 to at most 16,838 tokens (13% → 8% of "
        "200,000). Within as many tokens, it would have served 92% of the past reads (71% to 98%), "
        "and keeping the newest memories 79%."
    )
    assert BY_USE.count("{") == 9


def test_answer_names_the_floor_of_the_store(advice: Advice) -> None:
    assert isinstance(advice.floor, Floor)
    assert f"{advice.floor.memories:,} memories" in answer_of(replace(advice, prunable=0))


def test_fleet_answer_is_one_sentence() -> None:
    answer = answer_of_fleet(stores=3, sized=2, loaded=90_000, left=7_000, deleted=1_200)
    assert answer == (
        "The safe caps of 2 stores cut their starts today from 90,000 to 7,000 tokens together; "
        "1,200 memories would go."
    )
    answer = answer_of_fleet(stores=3, sized=2, loaded=90_000, left=89_000, deleted=1_200)
    assert answer == (
        "Keep all for now: the safe caps of 2 stores save 1,000 of 90,000 tokens at start together."
    )
    answer = answer_of_fleet(stores=3, sized=0, loaded=90_000, left=90_000, deleted=1_200)
    assert answer == "No store has a cap: 3 stores looked at, 90,000 tokens at start together."


WINDOWS = {
    "likely fits": (40_000, "; the likely cap of 356 leaves 25,719, which fits."),
    "neither fits": (20_000, "; the likely cap of 356 leaves 25,719, which does not fit either."),
}


@pytest.mark.parametrize(("window", "ending"), WINDOWS.values(), ids=WINDOWS)
def test_safe_cap_above_context_window_is_remarked(
    advice: Advice, window: int, ending: str
) -> None:
    answer = answer_of(replace(advice, context_window=window))
    remark = f"The safe cap still leaves 43,978 tokens, more than the context window of {window:,}"
    assert f"{remark}{ending}" in answer


def test_floor_above_context_window_is_remarked_with_its_command(advice: Advice) -> None:
    window = advice.floor.tokens - 1
    small = replace(advice, context_window=window)
    remark = (
        f"Load-bearing memories alone take {advice.floor.tokens:,} tokens, more than the context "
        f"window of {window:,}: no cap changes that."
    )
    assert remark in answer_of(small)
    assert "still leaves" not in answer_of(small)
    assert small.next_steps("memory.db")[0].startswith("next: memlab floor memory.db ")
    assert "memlab floor" not in "".join(advice.next_steps("memory.db"))


def test_answer_that_keeps_all_is_followed_by_its_explanation(advice: Advice) -> None:
    """A command that compacts follows only if the answer names its number."""
    likely = f"--keep-recent {advice.likely} "
    saves_little = replace(advice, boot_tokens=advice.loaded - 1)
    assert "Keep all for now" in answer_of(saves_little)
    explanation, compact = saves_little.next_steps("memory.db", brief=True)
    assert explanation.startswith("next: memlab size memory.db --explain")
    assert likely in compact
    too_small = replace(advice, loaded=900, boot_tokens=800)
    assert "a start takes only 900 tokens" in answer_of(too_small)
    (explanation,) = too_small.next_steps("memory.db", brief=True)
    assert "compact" not in explanation
    in_full = "".join(too_small.next_steps("memory.db"))
    assert f"--keep-recent {advice.number} " in in_full
    assert likely in in_full


def test_verdict_says_that_a_start_exceeds_the_context_window(advice: Advice) -> None:
    small = replace(advice, context_window=40_000)
    verdict = "ok: the target is met, and the evidence reaches that far"
    beside = "; but a start still exceeds the context window of 40,000"
    assert dict(small.sheet().facts)["verdict"] == verdict + beside
    assert dict(advice.sheet().facts)["verdict"] == verdict


def test_safe_cap_within_context_window_is_not_remarked(advice: Advice) -> None:
    assert "still leaves" not in answer_of(advice)
