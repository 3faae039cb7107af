"""The exact curves, checked against a real store, a replay and brute force."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab.errors import WrongArgumentError
from memlab.evidence.references import find_references
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.policies import TokenBudget
from memlab.replay import replay
from memlab.sizing import advise, cap_curve, prepare_sizing, recommend_cap
from memlab.sizing import lifetimes as lifetimes_module
from memlab.sizing.curve import EXACT_AT, in_tokens
from memlab.sizing.lifetimes import Lifetimes, Ranked
from memlab.sizing.timeline import age_rank_quantiles, backtest_cap, boot_over_time
from memlab.store import SqliteMemoryStore
from tests.support.frames import lives, make_episodes, make_frame, make_references, row


def dated(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the memories with shuffled dates."""
    created = frame[c.CREATED_AT].sample(frac=1, random_state=seed)
    return frame.assign(**{c.CREATED_AT: created.array})


LIVES = st.builds(dated, lives(), st.integers(0, 9))


class StoreState(NamedTuple):
    """Ids in a store, and the active ones among them."""

    present: set[str]
    active: set[str]


def run_forward(frame: pd.DataFrame, cap: int) -> Iterator[StoreState]:
    """Write a frame's rows into the real store, compacting after each.

    Yields the state before the first row and after every one.
    """
    with SqliteMemoryStore(":memory:") as store:
        yield StoreState(set(), set())
        for item in frame.itertuples():
            provenance = MemoryProvenance(None, "agent", source_task_ref="t")
            store.put(MemoryItem(item.memory_id, MemoryKind(item.kind), "t", "", provenance))
            for old in frame.loc[frame[c.SUPERSEDED_BY] == item.memory_id, c.MEMORY_ID]:
                if store.get(old) is not None:
                    store.supersede(old, by_memory_id=item.memory_id)
            store.compact_episodic(cap)
            present = {name for name in frame[c.MEMORY_ID] if store.get(name) is not None}
            yield StoreState(present, {memory.memory_id for memory in store.list_active()})


@given(frame=LIVES, cap=st.integers(0, 6))
def test_cap_curve_equals_running_the_real_store(frame: pd.DataFrame, cap: int) -> None:
    references = find_references(frame)
    before_first, *states = run_forward(frame, cap)
    states_before_writes = [before_first, *states]
    pairs = references[[c.TARGET_ID, c.AT_POSITION]].itertuples(index=False)
    served = [target in states_before_writes[int(at) - 1].present for target, at in pairs]
    assert (Ranked.of(frame, Lifetimes.of(frame), references).rank <= cap).tolist() == served
    line = prepare_sizing(frame, references).at([cap]).iloc[0]
    if served:
        assert line["served_observed"] == pytest.approx(np.mean(served))
    tokens = frame.set_index(c.MEMORY_ID)[c.TOKENS]
    sizes = {
        "boot_memories": [len(state.active) for state in states],
        "boot_tokens": [tokens[list(state.active)].sum() for state in states],
    }
    for name, values in sizes.items():
        ordered = np.sort(values)
        place_of_p95 = int(np.ceil(0.95 * len(ordered))) - 1
        assert line[f"{name}_mean"] == pytest.approx(ordered.mean())
        assert line[f"{name}_p95"] == ordered[place_of_p95]
        assert line[f"{name}_max"] == ordered[-1]


@pytest.mark.parametrize("max_rows_without_numba", [0, 2_048], ids=["compiled", "plain"])
@given(frame=LIVES, data=st.data())
def test_budget_curve_equals_replay(
    frame: pd.DataFrame, data: st.DataObject, max_rows_without_numba: int
) -> None:
    references = find_references(frame)
    with patch.object(lifetimes_module, "MAX_ROWS_WITHOUT_NUMBA", max_rows_without_numba):
        needed_budgets = in_tokens(prepare_sizing(frame, references)).needed_budgets
    just_too_small = (needed_budgets - 1).clip(0)
    budgets = np.unique(np.concatenate([[0], needed_budgets, just_too_small])).tolist()
    for budget in data.draw(st.sets(st.sampled_from(budgets), min_size=1, max_size=4)):
        is_kept = replay(frame, references, TokenBudget(budget)).references["kept"]
        assert (needed_budgets <= budget).tolist() == is_kept.tolist()


@given(frame=LIVES)
def test_curve_is_monotonic_in_the_number(frame: pd.DataFrame) -> None:
    sizing = prepare_sizing(frame)
    assert sizing.curve.index.is_monotonic_increasing
    budgets = range(0, sizing.present.tokens + 20, 9)
    for curve in (sizing.curve, in_tokens(sizing).at(budgets)):
        changes = curve.drop(columns="pruned").diff().iloc[1:].fillna(0)
        assert (changes >= -1e-12).all(axis=None)
        assert (curve["low"] <= curve["served"] + 1e-12).all()
        assert (curve["served"] <= curve["high"] + 1e-12).all()


@given(frame=LIVES, cap=st.integers(0, 6))
def test_plain_and_compiled_ranks_are_equal(frame: pd.DataFrame, cap: int) -> None:
    history = Lifetimes.of(frame)
    rows = len(history)
    target, at = (places.astype(np.int64) for places in np.triu_indices(rows + 1, k=1))
    with patch.object(lifetimes_module, "MAX_ROWS_WITHOUT_NUMBA", 0):
        looped = history.largest_ranks(target, at).tolist()
        (kept_over_time,) = history.kept_over_time([cap])
    assert history.largest_ranks(target, at).tolist() == looped
    for computed in history.kept_over_time([cap, cap]):
        np.testing.assert_array_equal(computed, kept_over_time)


def test_short_history_does_not_import_numba() -> None:
    program = (
        "import sys, memlab\n"
        "print(memlab.recommend_cap(memlab.load(memlab.store_path('three_hundred_issues'))))\n"
        "print('numba' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "keep_recent" in printed
    assert printed.splitlines()[-1] == "False"


def test_unknown_supersession_time_counts_as_active() -> None:
    unknown = make_frame(row("a", superseded_by="gone"), "b", "c", row("d", evidence_refs=("a",)))
    older = make_frame("a", row("b", superseded_by="a"), "c", row("d", evidence_refs=("b",)))
    for frame, rank in ((unknown, 3), (older, 2)):
        assert Ranked.of(frame, Lifetimes.of(frame), find_references(frame)).rank.tolist() == [rank]


def test_curve_of_the_present_equals_one_compaction() -> None:
    frame = make_frame(
        row("old", tokens=100),
        row("skill", kind="procedural", tokens=7),
        row("failed", tokens=50, superseded_by="new"),
        row("new", tokens=30),
        row("last", tokens=1),
        minutes=24 * 60,
    )
    curve = cap_curve(frame)
    assert curve.index.tolist() == [0, 1, 2, 3]
    assert curve["boot_memories"].tolist() == [1, 2, 3, 4]
    assert curve["boot_tokens"].tolist() == [7, 8, 38, 138]
    assert curve["pruned"].tolist() == [3, 2, 1, 0]
    assert curve["days"].tolist() == [0, 0, 1, 4]
    assert curve["prunable_share"].tolist() == pytest.approx([0, 1 / 2, 2 / 3, 3 / 4])
    assert curve["prunable_share_tokens"].tolist() == pytest.approx([0, 1 / 8, 31 / 38, 131 / 138])


def test_store_without_references_uses_other_projects() -> None:
    curve = cap_curve(make_episodes(5))
    assert curve[["served_own", "served_observed"]].isna().all(axis=None)
    assert curve["served"].tolist() == curve["served_elsewhere"].tolist()
    assert curve[["low", "served", "high"]].notna().all(axis=None)
    assert curve["boot_memories_mean"].tolist() == [0, 1, 1.8, 2.4, 2.8, 3]


def test_empty_store_has_one_cap() -> None:
    (only,) = cap_curve(make_frame()).reset_index().to_dict("records")
    assert only["keep_recent"] == 0
    assert only["boot_tokens_p95"] == 0
    assert only["boot_memories_max"] == 0


def test_row_order_and_gaps_do_not_change_the_curve() -> None:
    frame = make_episodes(60)
    rng = np.random.default_rng(1)
    at = rng.integers(1, 60, 40)
    references = make_references(frame, at, 1 + (at * rng.random(40)).astype(int) // 2)
    spread = frame.assign(position=frame[c.POSITION] * 3 + 5)
    moved = references.assign(
        target_position=references[c.TARGET_POSITION] * 3 + 5,
        at_position=references[c.AT_POSITION] * 3 + 5,
    ).sample(frac=1, random_state=2)
    spread_before = spread.copy(deep=True)
    moved_before = moved.copy(deep=True)
    pd.testing.assert_frame_equal(cap_curve(frame, references), cap_curve(spread, moved))
    pd.testing.assert_frame_equal(spread, spread_before)
    pd.testing.assert_frame_equal(moved, moved_before)


def test_large_store_curve_has_a_row_per_change_of_share() -> None:
    frame = make_episodes(6000)
    rng = np.random.default_rng(1)
    at = rng.integers(1, 6000, 300)
    references = make_references(frame, at, 1 + (at * rng.random(300) ** 3).astype(int))
    sizing = prepare_sizing(frame, references)
    curve = sizing.curve
    assert set(sizing.references.rank) <= set(curve.index)
    assert len(curve) < len(frame) / 2
    exact_lines = curve.loc[curve.attrs[EXACT_AT]]
    pd.testing.assert_frame_equal(sizing.at(exact_lines.index), exact_lines, check_dtype=False)
    interpolated = curve.drop(index=exact_lines.index)
    exact = sizing.at(interpolated.index)
    for name in ("boot_tokens_mean", "boot_tokens_p95", "boot_tokens_max"):
        np.testing.assert_allclose(interpolated[name], exact[name], rtol=0.02)


def sizing_at(frame: pd.DataFrame, caps: list[int]) -> pd.DataFrame:
    return prepare_sizing(frame).at(caps)


def curve_with_frame_as_references(frame: pd.DataFrame) -> pd.DataFrame:
    return cap_curve(frame, frame)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(sizing_at, caps=[-1]), "cap=-1 is not a whole number of 0 or more"),
        (curve_with_frame_as_references, "this one has no column 'target_id'"),
        (advise, r"what memlab\.sizing\.prepare_sizing returns"),
        (partial(recommend_cap, token_budget=-5), "token_budget=-5 is not a whole number"),
        (
            partial(boot_over_time, caps=[5], moments=1),
            "moments=1 is not a whole number of 2 or",
        ),
        (
            partial(age_rank_quantiles, parts=0),
            "parts=0 is not a whole number of 1 or more",
        ),
        (partial(backtest_cap, splits=(0.5, 1.0)), r"split=1\.0 is not between 0 and 1"),
    ],
)
def test_invalid_arguments_are_rejected_by_name(
    call: Callable[[pd.DataFrame], object], message: str
) -> None:
    with pytest.raises((ValueError, WrongArgumentError), match=message):
        call(make_episodes(3))
