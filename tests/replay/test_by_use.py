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
from tests.support.histories import HistoryFrames


@pytest.fixture(scope="module")
def searched() -> HistoryFrames:
    """Return the past of the bundled searched store and its references."""
    store = memlab.store_path("looked_up")
    past = memlab.load_past(store)
    log = memlab.read_access_log(store.with_suffix(".searches.jsonl"))
    return past, memlab.find_references(past, log)


@pytest.fixture(scope="module")
def budget(searched: HistoryFrames) -> BudgetByUse:
    """Return the budget for the searched store with a target that it meets."""
    return budget_by_use(*searched, target=0.6)


def test_limits_are_wilson_intervals_by_day() -> None:
    day = np.arange(80)
    served = np.append(np.ones(70), np.zeros(10))  # like 7 of 8 clusters
    assert share_with_limits(day, served, 0.975) == pytest.approx((0.875, 0.5018, 0.9799), abs=1e-4)
    twice = share_with_limits(np.repeat(day, 2), np.repeat(served, 2), 0.975)
    assert twice == pytest.approx(share_with_limits(day, served, 0.975))
    _, _, high = share_with_limits(day, np.ones(80), 0.9)
    assert high == pytest.approx(1)


def test_budget_is_the_smallest_meeting_the_target(budget: BudgetByUse) -> None:
    assert budget.likely is not None
    row = budget.table.loc[budget.likely]
    assert row["low"] < 0.6
    assert row["served"] >= 0.6
    assert row["served"] < row["high"]
    assert (budget.table.loc[: budget.likely, "served"].iloc[:-1] < 0.6).all()
    assert budget.safe == budget.table.index[-1]
    assert budget.safe > budget.likely
    assert f"--max-tokens {budget.likely} --retire" in budget.next_steps()[0]


def test_likely_budget_serves_its_share_in_a_replay(
    searched: HistoryFrames, budget: BudgetByUse
) -> None:
    past, references = searched
    assert budget.likely is not None
    is_late = references[c.AT_POSITION] >= 0.75 * len(past)
    written_tokens = np.cumsum(past[c.TOKENS])
    tokens_at_references = written_tokens[references.loc[is_late, c.AT_POSITION] - 1].mean()
    mean_tokens_until_horizon = 1.1 * past[c.TOKENS].sum()
    scaled_budget = round(budget.likely * tokens_at_references / mean_tokens_until_horizon)
    policy = Activation(max_tokens=scaled_budget)
    # Reads are silent, because the memories of this store are loaded at start.
    replayed = replay(past, references, policy, retire=True, silent=True).references[is_late]
    days = replayed[c.AT].dt.floor("D")
    is_first_of_day = ~replayed.assign(day=days).duplicated([c.TARGET_ID, "day"])
    served = replayed.loc[is_first_of_day, "kept"].mean()
    assert served == pytest.approx(budget.table.loc[budget.likely, "served"], abs=0.05)


def test_smaller_token_budget_reports_share_served(searched: HistoryFrames) -> None:
    past, references = searched
    most = round(0.15 * past[c.TOKENS].sum())
    budget = budget_by_use(past, references, target=0.6, token_budget=most)
    assert budget.likely is not None
    assert most < budget.likely
    assert budget.budget == most
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
        if answered is budget:
            assert answered.next_steps()
        else:
            assert not answered.next_steps()


def test_past_without_reads_gives_no_budget(searched: HistoryFrames) -> None:
    past, references = searched
    budget = budget_by_use(past, references[:0])
    assert budget.reads == 0
    assert budget.likely is None
    assert budget.safe is None
    assert "too few reads" in str(budget_by_use(past[:0], references[:0]))


def test_result_for_loaded_memories_has_a_caveat(
    searched: HistoryFrames, budget: BudgetByUse
) -> None:
    past, references = searched
    assert "no public log shows how agents use memories that they have loaded" in str(budget)
    recalled = past.copy()
    recalled.attrs[c.RECALLED] = True
    assert "no public log" not in str(budget_by_use(recalled, references, target=0.6))
