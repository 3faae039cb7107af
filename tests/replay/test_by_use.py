"""Budgets for retirement by use, with limits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.evidence.usage import share_with_limits
from memlab.policies import Activation
from memlab.replay import BudgetByUse, budget_by_use, replay


def searched() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the past of the bundled searched store and its references."""
    store = memlab.store_path("looked_up")
    past = memlab.load_past(store)
    log = memlab.read_access_log(store.with_suffix(".searches.jsonl"))
    return past, memlab.find_references(past, log)


def test_limits_are_wilson_intervals_by_day() -> None:
    day = np.arange(80)
    served = np.append(np.ones(70), np.zeros(10))  # like 7 of 8 clusters
    assert share_with_limits(day, served, 0.975) == pytest.approx((0.875, 0.5018, 0.9799), abs=1e-4)
    twice = share_with_limits(np.repeat(day, 2), np.repeat(served, 2), 0.975)
    assert twice == pytest.approx(share_with_limits(day, served, 0.975))
    assert share_with_limits(day, np.ones(80), 0.9)[2] == pytest.approx(1)


def test_budget_is_the_smallest_meeting_the_target() -> None:
    past, references = searched()
    budget = budget_by_use(past, references, target=0.6)
    assert budget.likely is not None
    row = budget.table.loc[budget.likely]
    assert row["low"] < 0.6 <= row["served"] < row["high"]
    assert (budget.table.loc[: budget.likely, "served"].iloc[:-1] < 0.6).all()
    assert budget.safe == budget.table.index[-1] > budget.likely
    late = references[c.AT_POSITION] >= 0.75 * len(past)
    before = np.cumsum(past[c.TOKENS])[references.loc[late, c.AT_POSITION] - 1].mean()
    then = round(
        budget.likely * before / (1.1 * past[c.TOKENS].sum())
    )  # the mean until the horizon
    options = {"retire": True, "silent": True}  # its memories are loaded at start
    replayed = replay(past, references, Activation(max_tokens=then), **options).references[late]
    first = ~replayed.assign(day=replayed[c.AT].dt.floor("D")).duplicated([c.TARGET_ID, "day"])
    assert replayed.loc[first, "kept"].mean() == pytest.approx(row["served"], abs=0.05)
    assert f"--max-tokens {budget.likely} --retire" in budget.next_steps()[0]


def test_smaller_token_budget_reports_share_served() -> None:
    past, references = searched()
    most = round(0.15 * past[c.TOKENS].sum())
    budget = budget_by_use(past, references, target=0.6, token_budget=most)
    assert budget.budget == most < (budget.likely or 0)
    served = f"serves {budget.table.loc[most, 'served']:.0%} of reads"
    assert budget.answer.startswith(f"retire by use to {most:,} tokens: {served}")
    assert budget.answer.endswith(f"; 60% take {budget.likely:,}")
    assert f"--max-tokens {most} --retire" in budget.next_steps()[0]
    assert budget_by_use(past, references, target=0.6, token_budget=10**9).budget == budget.likely


def test_answer_without_a_budget_gives_the_reason() -> None:
    shares = pd.DataFrame({"served": 0.8, "low": 0.7, "high": 0.9, "newest": 0.6}, index=[500])
    budget = BudgetByUse("m.db", 0.75, 40, shares)
    answers = {
        "retire by use to 500 tokens": budget,
        "keep all": replace(budget, target=0.95),
        "age is enough": replace(budget, table=shares.assign(newest=0.8)),
        "too few reads": replace(budget, reads=19),
    }
    for phrase, answered in answers.items():
        assert phrase in answered.answer
        assert bool(answered.next_steps()) == phrase.startswith("retire")


def test_past_without_reads_gives_no_budget() -> None:
    past, references = searched()
    budget = budget_by_use(past, references[:0])
    assert budget.reads == 0
    assert budget.likely is None
    assert budget.safe is None
    assert "too few reads" in str(budget_by_use(past[:0], references[:0]))


def test_result_for_loaded_memories_has_a_caveat() -> None:
    past, references = searched()
    text = str(budget_by_use(past, references, target=0.6))
    assert "no public log shows how agents use memories that they have loaded" in text
    past.attrs[c.RECALLED] = True
    assert "no public log" not in str(budget_by_use(past, references, target=0.6))
