"""Budgets in tokens: exact as a replay finds them, estimated as caps are."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from frames import make_frame, row
from histories import recorded, work
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.cli import main
from memlab.evidence.references import find_references
from memlab.policies import TokenBudget
from memlab.replay import replay
from memlab.settings import read_settings
from memlab.sizing import budget_curve, cap_curve, history, prepare_budget, recommend_budget


@st.composite
def lives(draw: st.DrawFn) -> pd.DataFrame:
    """A store with a floor, memories superseded later, and references."""
    count = draw(st.integers(2, 14))
    rows = []
    for number in range(count):
        later = st.sampled_from([None, *(f"m{n}" for n in range(number + 1, count))])
        rows.append(
            row(
                f"m{number}",
                kind=draw(st.sampled_from(["episodic", "episodic", "semantic"])),
                tokens=draw(st.integers(0, 12)),
                superseded_by=draw(st.none() | later),
                evidence_refs=tuple(
                    f"m{n}" for n in draw(st.sets(st.integers(0, max(number - 1, 0)), max_size=2))
                ),
            )
        )
    return make_frame(*rows)


@given(lives(), st.booleans(), st.data())
def test_a_budget_serves_what_a_replay_under_it_serves(
    frame: pd.DataFrame, long: bool, data: st.DataObject
) -> None:
    references = find_references(frame)
    with patch.object(history, "SHORT", 0 if long else 2_048):
        took = prepare_budget(frame, references).took
    telling = np.unique(np.concatenate([[0], took, took - 1]).clip(0)).tolist()
    for budget in data.draw(st.sets(st.sampled_from(telling), min_size=1, max_size=4)):
        kept = replay(frame, references, TokenBudget(budget)).references["kept"]
        assert (took <= budget).tolist() == kept.tolist()


@pytest.mark.parametrize("curve_of", [cap_curve, budget_curve])
@given(frame=lives())
def test_a_larger_number_serves_keeps_and_costs_no_less(
    curve_of: Callable[[pd.DataFrame], pd.DataFrame], frame: pd.DataFrame
) -> None:
    curve = curve_of(frame)
    assert curve.index.is_monotonic_increasing
    assert (curve.drop(columns="pruned").diff().iloc[1:].fillna(0) >= -1e-12).all(axis=None)
    assert (curve["low"] <= curve["served"] + 1e-12).all()
    assert (curve["served"] <= curve["high"] + 1e-12).all()


def pruned_by_hand(path: Path, *, after: int, count: int) -> Path:
    """Two years of memories, of which somebody deleted some without an archive."""
    store = memlab.copy_store(memlab.store_path("two_years"), path / "memory.db")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "DELETE FROM memory_items WHERE rowid IN (SELECT rowid FROM memory_items "
            "WHERE kind = 'episodic' ORDER BY rowid LIMIT ? OFFSET ?)",
            (count, after),
        )
    return store


@pytest.mark.parametrize("after", [None, 0, 300], ids=["whole", "oldest gone", "others gone"])
def test_memories_of_one_length_are_sized_as_by_number(tmp_path: Path, after: int | None) -> None:
    if after is None:
        frame, _ = recorded()
    else:
        frame = memlab.load_past(pruned_by_hand(tmp_path, after=after, count=700))
    frame = frame.assign(**{c.TOKENS: 10})
    cap, budget = memlab.recommend_cap(frame), recommend_budget(frame)
    assert cap.keep_recent is not None
    assert (cap.verdict == "history-incomplete") == (after is not None)
    assert budget.max_tokens == budget.floor + 10 * cap.keep_recent
    assert budget.likely == budget.floor + 10 * cap.likely
    assert budget.served == pytest.approx(cap.served)
    for name in ("verdict", "references", "weight", "track_record"):
        assert getattr(budget, name) == getattr(cap, name), name
    gone = [] if after is None else ["700 memories"]
    assert [note.partition(" were")[0] for note in budget.notes] == gone


def test_a_budget_has_room_for_all_that_was_written_since_a_deletion_without_an_archive(
    tmp_path: Path,
) -> None:
    frame = memlab.load_past(pruned_by_hand(tmp_path, after=0, count=2_000))
    since = frame.loc[frame[c.PRUNABLE], c.TOKENS].sum()
    assert recommend_budget(frame, target=0.5).max_tokens >= since
    assert recommend_budget(memlab.load(memlab.store_path("two_years")), target=0.5).max_tokens < (
        since
    )


def test_what_it_keeps_is_what_the_policy_keeps() -> None:
    frame, references = work()
    advice = recommend_budget(frame, references, target=0.5)
    plan = memlab.decide(
        frame, TokenBudget(advice.max_tokens), now=frame[c.CREATED_AT].max().to_pydatetime()
    )
    assert int((~plan["keep"]).sum()) == advice.pruned
    assert advice.pruned > 0


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def test_a_recommended_budget_is_remembered_and_gone_by(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    saved = invoke("size", store, "--by", "tokens", "--target", 0.8, "--save")
    assert saved.exit_code == 0, saved.output
    told = json.loads(invoke("size", store, "--by", "tokens", "--target", 0.8, "--json").output)
    remembered = read_settings(tmp_path, "memory.db")
    assert remembered.policy is not None
    assert remembered.policy["max_tokens"] == told["max_tokens"]
    assert remembered.sized is not None
    assert remembered.sized[1:] == (told["memories"], told["until"])
    made = json.loads(invoke("compact", store, "--json").output)
    assert made["policy"] == {"policy": "tokens", "max_tokens": told["max_tokens"]}


@pytest.mark.parametrize("spare", [0, -1])
def test_a_target_is_held_against_the_tokens_that_may_be_spent(tmp_path: Path, spare: int) -> None:
    store = memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    words = ("size", store, "--by", "tokens", "--target", 0.8)
    takes = json.loads(invoke(*words, "--json").output)["max_tokens"]
    asked = (*words, "--token-budget", takes + spare)
    told = json.loads(invoke(*asked, "--json").output)
    assert told["token_budget"] == takes + spare
    assert takes + spare in [each["max_tokens"] for each in told["budgets"]]
    shown = invoke(*asked, "--save")
    if spare == 0:
        assert (shown.exit_code, "the target is met within it" in shown.output) == (0, True)
        assert read_settings(tmp_path, "memory.db").token_budget == takes
    else:
        assert told["command"] is None
        assert f"--max-tokens {takes}    for the target" in shown.output
        assert f"--max-tokens {takes - 1}    for the budget" in shown.output
        assert (shown.exit_code, (tmp_path / "memlab.toml").exists()) == (1, False)
