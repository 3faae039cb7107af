"""Recommendations: every verdict, what is said with it, and what it costs."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references, row
from histories import simulate_history

from memlab import columns as c
from memlab.sizing import Verdict, advise, prepare_sizing, recommend_cap
from memlab.sizing.choice import sittings_needed


def near_needs(rows: int = 1000, *, needs: int = 200) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history whose needs all lie within twenty rows."""
    rng = np.random.default_rng(0)
    at = np.sort(rng.integers(30, rows, needs))
    frame = make_episodes(rows)
    return frame, make_references(frame, at, rng.integers(1, 21, needs))


def test_near_needs_take_a_small_cap() -> None:
    frame, references = near_needs()
    advice = recommend_cap(frame, references)
    assert advice.verdict is Verdict.OK
    assert 18 <= advice.keep_recent <= 22
    assert advice.interval[0] <= advice.keep_recent == advice.interval[1]
    low, high = advice.hit_ratio_interval
    assert 0.9 <= low <= advice.hit_ratio <= high
    assert (advice.references, advice.memories, advice.prunable) == (200, 1000, 1000)
    assert advice.boot_tokens == advice.boot_tokens_p95 == 10 * advice.keep_recent
    assert advice.days == pytest.approx((advice.keep_recent - 1) / 24)
    assert advice.drift == 1.0


def test_the_cap_is_the_smallest_whose_lower_limit_meets_the_target() -> None:
    frame, references = simulate_history(11, "steady", rows=3000).as_frames()
    sizing = prepare_sizing(frame, references)
    for target in (0.5, 0.75, 0.9):
        advice = advise(sizing, target=target)
        assert advice.verdict is Verdict.OK
        below, there = sizing.at([advice.keep_recent - 1, advice.keep_recent])["low"]
        assert below < target <= there


def test_a_higher_target_or_confidence_takes_no_smaller_cap() -> None:
    frame, references = simulate_history(11, "steady", rows=3000).as_frames()
    caps = [recommend_cap(frame, references, target=t).keep_recent for t in (0.5, 0.7, 0.8, 0.9)]
    assert caps == sorted(caps)
    sure = [
        recommend_cap(frame, references, confidence=level).keep_recent for level in (0.6, 0.8, 0.9)
    ]
    assert sure == sorted(sure)


def test_a_cap_beyond_the_prunable_rows_has_no_effect() -> None:
    frame = make_episodes(100)
    at = np.arange(60, 100)
    advice = recommend_cap(frame, make_references(frame, at, np.where(at // 10 % 2, 60, 2)))
    assert advice.verdict is Verdict.CAP_HAS_NO_EFFECT
    assert advice.keep_recent >= advice.prunable
    assert "more than" in advice.would_change[0]


def test_too_few_independent_references_are_declined() -> None:
    frame, references = near_needs()
    needed = sittings_needed(0.9, 0.9)
    enough = references.drop_duplicates(c.AT_POSITION).head(needed)
    assert recommend_cap(frame, enough).verdict is Verdict.OK
    declined = recommend_cap(frame, enough.head(needed - 1))
    assert declined.verdict is Verdict.TOO_FEW_REFERENCES
    assert declined.keep_recent is None
    assert declined.interval is None
    assert "22 independent references" in declined.would_change[0]
    assert "access log" in declined.would_change[1]


def test_many_references_of_one_task_are_one_piece_of_evidence() -> None:
    frame, references = near_needs()
    same = frame.assign(source_task_ref=pd.Series(["session:1"] * len(frame), dtype="str"))
    advice = recommend_cap(same, references)
    assert (advice.references, advice.sittings) == (200, 1)
    assert advice.verdict is Verdict.TOO_FEW_REFERENCES


def test_references_to_load_bearing_rows_are_no_evidence_for_a_cap() -> None:
    frame, references = near_needs()
    frame[c.LOAD_BEARING] = True
    frame[c.PRUNABLE] = False
    advice = recommend_cap(frame, references)
    assert (advice.verdict, advice.sittings) == (Verdict.TOO_FEW_REFERENCES, 0)
    assert any("200 of the references are to load-bearing rows" in s for s in advice.would_change)


def test_needs_that_keep_coming_at_the_far_end_ask_for_a_longer_history() -> None:
    frame = make_episodes(2000)
    at = np.arange(1200, 2000, 4)
    distance = np.where(np.arange(200) % 4 == 0, 1000 + at % 60, 1 + at % 7)
    log = make_references(frame, at, distance).assign(kind="log")
    advice = recommend_cap(frame, log)
    assert advice.verdict is Verdict.HORIZON_TOO_SHORT
    assert advice.keep_recent is None
    assert "as many may lie beyond" in advice.would_change[0]
    assert recommend_cap(frame, log, target=0.7).verdict is Verdict.OK


def test_a_limit_beyond_what_was_seen_is_declined() -> None:
    lives = [
        row(f"m{i}", superseded_by=f"m{i + 20}" if i % 20 and i + 20 < 2000 else None)
        for i in range(2000)
    ]
    frame = make_frame(*lives)
    at = np.arange(100, 2000, 10)
    distance = np.where(at // 100 % 4 == 0, 19, 2)
    advice = recommend_cap(frame, make_references(frame, at, distance))
    assert advice.horizon < advice.prunable
    assert advice.verdict is Verdict.TARGET_BEYOND_HORIZON
    assert advice.keep_recent is None
    assert "longer history" in advice.would_change[0]


def two_kinds() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Near needs in a store with two hundred tokens of decisions and skills."""
    frame, references = near_needs()
    frame[c.KIND] = frame[c.KIND].astype("str")
    for place, kind, tokens in ((0, "semantic", 120), (1, "procedural", 50), (2, "semantic", 30)):
        frame.loc[place, [c.KIND, c.TOKENS]] = [kind, tokens]
    frame.loc[:2, c.LOAD_BEARING] = True
    frame.loc[:2, c.PRUNABLE] = False
    return frame, references


def test_load_bearing_rows_over_the_budget_are_a_floor_no_cap_can_lower() -> None:
    frame, references = two_kinds()
    advice = recommend_cap(frame, references, token_budget=199)
    assert advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET
    assert advice.keep_recent is None
    assert advice.budget_cap is None
    assert advice.floor.by_kind == (("semantic", 2, 150), ("procedural", 1, 50))
    assert [large.memory_id for large in advice.floor.largest] == ["m1", "m2", "m3"]
    assert "200 tokens now, 1 over the budget" in advice.would_change[0]


def test_a_budget_below_the_target_gives_both_ends_of_the_trade() -> None:
    frame, references = two_kinds()
    free = recommend_cap(frame, references)
    advice = recommend_cap(frame, references, token_budget=250)
    assert advice.verdict is Verdict.TARGET_EXCEEDS_BUDGET
    assert advice.keep_recent is None
    meets_target, fits_budget = advice.trade
    assert meets_target.keep_recent == free.keep_recent
    assert fits_budget.keep_recent == advice.budget_cap == 5
    assert fits_budget.boot_tokens_p95 == 250
    assert fits_budget.hit_ratio < 0.9 <= meets_target.hit_ratio


def test_a_budget_above_the_target_changes_nothing() -> None:
    frame, references = two_kinds()
    free = recommend_cap(frame, references)
    advice = recommend_cap(frame, references, token_budget=1000)
    assert (advice.verdict, advice.keep_recent) == (Verdict.OK, free.keep_recent)
    assert advice.budget_cap == 80


def test_the_budget_cap_is_the_largest_that_fits() -> None:
    rng = np.random.default_rng(2)
    frame = make_episodes(500, tokens=rng.integers(1, 400, 500))
    sizing = prepare_sizing(frame)
    p95 = sizing.curve["boot_tokens_p95"]
    for budget in (0, 399, 5000, 60000, 10**9):
        assert sizing.largest_within(budget) == p95[p95 <= budget].index.max()


def test_a_budget_is_answered_where_the_target_is_declined() -> None:
    advice = recommend_cap(make_episodes(100), token_budget=70)
    assert advice.verdict is Verdict.TOO_FEW_REFERENCES
    assert advice.budget_cap == 7
    assert any("keep_recent up to 7" in text for text in advice.would_change)


def test_needs_that_reach_ever_further_widen_the_cap() -> None:
    rng = np.random.default_rng(6)
    frame = make_episodes(4000)
    at = np.sort(rng.integers(400, 4000, 800))
    steady = np.ceil(20 * rng.lognormal(0, 1, 800)).clip(1, at)
    growing = np.ceil(20 * np.exp(2 * (at / 4000 - 0.5)) * rng.lognormal(0, 1, 800)).clip(1, at)
    flat, drifting = (
        recommend_cap(frame, make_references(frame, at, distance.astype(int)))
        for distance in (steady, growing)
    )
    assert flat.drift == pytest.approx(1.0, abs=0.2)
    assert drifting.drift > 1.2
    assert any("drift" in text for text in drifting.would_change)
    assert drifting.keep_recent > drifting.interval[0] * (
        flat.keep_recent / max(flat.interval[0], 1)
    )


def test_an_advice_prints_its_evidence() -> None:
    frame, references = near_needs()
    advice = recommend_cap(frame, references)
    text = str(advice)
    assert text.startswith(f"keep_recent = {advice.keep_recent}")
    for part in ("200 references", "1,000 memories", "horizon 951", "an estimate", "90% limit"):
        assert part in text


def test_an_advice_is_json_for_scripts() -> None:
    frame, references = two_kinds()
    told = json.loads(recommend_cap(frame, references, token_budget=250).to_json())
    assert told["verdict"] == "target-exceeds-budget"
    assert told["floor"]["largest"][0]["memory_id"] == "m1"
    assert told["trade"][1]["keep_recent"] == 5


def test_text_from_an_agent_is_harmless_in_every_form() -> None:
    frame, references = two_kinds()
    frame.loc[0, c.TITLE] = "<script>alert(1)</script>\x1b[31m"
    advice = recommend_cap(frame, references, token_budget=100)
    assert "<script>" not in advice._repr_html_()
    assert "&lt;script&gt;" in advice._repr_html_()
    assert "\x1b" not in str(advice)


def test_an_advice_is_frozen() -> None:
    advice = recommend_cap(make_episodes(3))
    with pytest.raises(AttributeError):
        advice.keep_recent = 5  # type: ignore[misc]


def test_an_empty_store_is_declined() -> None:
    advice = recommend_cap(make_frame(), token_budget=10)
    assert (advice.verdict, advice.memories, advice.horizon) == (Verdict.TOO_FEW_REFERENCES, 0, 0)
    assert str(advice)


def test_what_cannot_be_counted_on_is_said() -> None:
    frame, references = near_needs()
    frame.loc[3, c.SUPERSEDED_BY] = "gone"
    frame.loc[3, [c.ACTIVE, c.PRUNABLE]] = False
    references.loc[0, c.TARGET_POSITION] = 5000
    said = " ".join(recommend_cap(frame, references).would_change)
    assert "1 references name no earlier row" in said
    assert "1 superseded rows name a replacement that is not there" in said


def test_wrong_arguments_are_named() -> None:
    frame = make_episodes(3)
    with pytest.raises(ValueError, match=r"target=90 is not between 0 and 1; is 0\.9 meant\?"):
        recommend_cap(frame, target=90)
    with pytest.raises(ValueError, match="token_budget=-5 is not a whole number of 0 or more"):
        recommend_cap(frame, token_budget=-5)


def test_the_compiled_loops_are_loaded_only_when_needed() -> None:
    program = "import sys, memlab.sizing; print('numba' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert run.stdout.strip() == "False"


def test_an_agents_store_that_says_nothing_of_needs_is_declined(real_store) -> None:
    from memlab.frame.loading import load

    frame = load(real_store("agent-store1"))
    assert recommend_cap(frame).verdict is Verdict.TOO_FEW_REFERENCES
    advice = recommend_cap(frame, token_budget=50000)
    assert advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET
    assert advice.floor.items == 590
