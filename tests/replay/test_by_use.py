"""Budgets by use: what a ladder of replays that retire would have served, with limits."""

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
    """The bundled store whose reads say use, and the searches of it."""
    store = memlab.store_path("looked_up")
    past = memlab.load_past(store)
    log = memlab.read_access_log(store.with_suffix(".searches.jsonl"))
    return past, memlab.find_references(past, log)


def test_limits_are_wilsons_of_fewer_reads_and_of_days_that_read_alike() -> None:
    day = np.arange(80)
    found = np.append(np.ones(70), np.zeros(10))  # as if 7 of 8
    assert share_with_limits(day, found, 0.975) == pytest.approx((0.875, 0.5018, 0.9799), abs=1e-4)
    twice = share_with_limits(np.repeat(day, 2), np.repeat(found, 2), 0.975)
    assert twice == pytest.approx(share_with_limits(day, found, 0.975))
    assert share_with_limits(day, np.ones(80), 0.9)[2] == pytest.approx(1)


def test_a_budget_is_the_first_that_meets_the_target_in_a_replay_that_retires() -> None:
    past, references = searched()
    found = budget_by_use(past, references, target=0.6)
    assert found.likely is not None
    row = found.table.loc[found.likely]
    assert row["low"] < 0.6 <= row["served"] < row["high"]
    assert (found.table.loc[: found.likely, "served"].iloc[:-1] < 0.6).all()
    assert found.safe == found.table.index[-1] > found.likely
    late = references[c.AT_POSITION] >= 0.75 * len(past)
    before = np.cumsum(past[c.TOKENS])[references.loc[late, c.AT_POSITION] - 1].mean()
    then = round(found.likely * before / (1.1 * past[c.TOKENS].sum()))  # the mean till the horizon
    how = {"retire": True, "silent": True}  # its memories are loaded at start
    done = replay(past, references, Activation(max_tokens=then), **how).references[late]
    first = ~done.assign(day=done[c.AT].dt.floor("D")).duplicated([c.TARGET_ID, "day"])
    assert done.loc[first, "kept"].mean() == pytest.approx(row["served"], abs=0.05)
    assert f"--max-tokens {found.likely} --retire" in found.next_steps()[0]


def test_of_fewer_tokens_that_a_start_may_take_it_says_what_these_serve() -> None:
    past, references = searched()
    most = round(0.15 * past[c.TOKENS].sum())
    found = budget_by_use(past, references, target=0.6, token_budget=most)
    assert found.budget == most < (found.likely or 0)
    served = f"serves {found.table.loc[most, 'served']:.0%} of reads"
    assert found.answer.startswith(f"retire by use to {most:,} tokens: {served}")
    assert found.answer.endswith(f"; 60% take {found.likely:,}")
    assert f"--max-tokens {most} --retire" in found.next_steps()[0]
    assert budget_by_use(past, references, target=0.6, token_budget=10**9).budget == found.likely


def test_what_no_budget_serves_age_serves_as_well_or_few_reads_say_is_said() -> None:
    shares = pd.DataFrame({"served": 0.8, "low": 0.7, "high": 0.9, "newest": 0.6}, index=[500])
    found = BudgetByUse("m.db", 0.75, 40, shares)
    said = {
        "retire by use to 500 tokens": found,
        "keep all": replace(found, target=0.95),
        "age is enough": replace(found, table=shares.assign(newest=0.8)),
        "too few reads": replace(found, reads=19),
    }
    for words, each in said.items():
        assert words in each.answer
        assert bool(each.next_steps()) == words.startswith("retire")


def test_a_past_without_reads_gives_no_budget() -> None:
    past, references = searched()
    found = budget_by_use(past, references[:0])
    assert (found.reads, found.likely, found.safe) == (0, None, None)
    assert "too few reads" in str(budget_by_use(past[:0], references[:0]))


def test_beside_numbers_for_loaded_memories_it_says_that_no_public_log_has_them() -> None:
    past, references = searched()
    said = str(budget_by_use(past, references, target=0.6))
    assert "no public log shows how agents use memories that they have loaded" in said
    past.attrs[c.RECALLED] = True
    assert "no public log" not in str(budget_by_use(past, references, target=0.6))
