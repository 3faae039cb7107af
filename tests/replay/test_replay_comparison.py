"""Comparison of policies on one history, with the offline bound and overlaps."""

from datetime import datetime
from signal import SIG_BLOCK, SIGINT, pthread_sigmask

import numpy as np
import pandas as pd
import pytest

from memlab import Activation, KeepRecent, Policy, TimeToLive, TokenBudget
from memlab import columns as c
from memlab.evidence.references import find_references
from memlab.policies import ImportanceBudget, KeepAll, ValueCap
from memlab.replay import batch, compare, offline_optimum, overlap, replay, replay_each
from memlab.replay.result import Comparison
from tests.support.frames import make_episodes, make_frame, row
from tests.support.histories import HistoryFrames, simulate_history


@pytest.fixture(scope="module")
def history() -> HistoryFrames:
    frame, references = simulate_history(5, "steady", rows=800)
    frame[c.IMPORTANCE] = np.random.default_rng(0).random(len(frame))
    return frame, references


POLICIES: list[Policy] = [
    KeepRecent(30),
    ImportanceBudget(30),
    ValueCap(30, half_life="8h"),
    TimeToLive("30h"),
    Activation(30),
    TokenBudget(300),
]


def test_served_share_is_at_most_the_offline_bound(history: HistoryFrames) -> None:
    table = compare(*history, POLICIES).table
    assert (table["served"] <= table["offline_optimum"] + 1e-12).all()
    best = offline_optimum(*history, 30)
    served = table.loc["recent 30", "served"]
    assert table.loc["recent 30", "offline_optimum"] == best.served
    assert served < best.served
    assert table.loc["all", ["served", "lost", "deleted"]].tolist() == [1, 0, 0]
    assert table.loc["recent 30", "most_held"] == 30
    assert table.loc["recent 30", "boot_tokens_p95"] == 300


def test_compare_uses_the_store_references_by_default() -> None:
    rows = [row(f"m{number}", evidence_refs=(f"m{number // 2}",)) for number in range(40)]
    frame = make_frame(*rows)
    references = find_references(frame)
    assert len(references) > 30
    by_default = compare(frame, None, [KeepRecent(5)]).table
    with_references = compare(frame, references, [KeepRecent(5)]).table
    pd.testing.assert_frame_equal(by_default, with_references)
    assert compare(frame, policies=[]).table.index.tolist() == ["all"]
    empty = compare(frame[:0], policies=[KeepRecent(5)]).table
    assert empty[["served", "boot_tokens_mean", "boot_tokens_p95"]].isna().all(axis=None)
    assert empty["floor_memories"].tolist() == [0, 0]


def is_interruptible(*_: object, **__: object) -> bool:
    return SIGINT not in pthread_sigmask(SIG_BLOCK, ())


def test_workers_ignore_the_interrupt_signal(
    history: HistoryFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_replay_one", is_interruptible)
    flags = replay_each(*history, POLICIES, workers=2)
    assert len(flags) == len(POLICIES)
    assert not any(flags)
    assert is_interruptible()


def test_results_do_not_depend_on_the_number_of_workers(history: HistoryFrames) -> None:
    frame, references = history
    alone = replay_each(frame, references, POLICIES, workers=1)
    together = replay_each(frame, references, POLICIES, workers=2)
    for single, other in zip(alone, together, strict=True):
        assert single.policy == other.policy
        pd.testing.assert_frame_equal(single.references, other.references)
        pd.testing.assert_frame_equal(single.deleted, other.deleted)
        pd.testing.assert_frame_equal(single.boot, other.boot)


def test_overlap_counts_rows_deleted_by_both(history: HistoryFrames) -> None:
    frame, references = history
    replays = replay_each(frame, references, POLICIES[:2])
    by_newest, by_budget = replays
    newest = set(by_newest.deleted[c.MEMORY_ID])
    budget = set(by_budget.deleted[c.MEMORY_ID])
    deleted_by_both = len(newest & budget)
    assert overlap(replays).to_numpy().tolist() == [
        [len(newest), deleted_by_both],
        [deleted_by_both, len(budget)],
    ]
    share = overlap(replays, share=True)
    assert share.iloc[0, 1] == deleted_by_both / len(newest)
    lost_by_newest = ~by_newest.references["kept"]
    lost_by_budget = ~by_budget.references["kept"]
    lost_by_both = lost_by_newest & lost_by_budget
    assert overlap(replays, of="lost").iloc[0, 1] == lost_by_both.sum()
    table = compare(frame, references, POLICIES[:2]).table
    assert table["lost_only_here"].iloc[0] == (lost_by_newest & ~lost_by_budget).sum()
    assert table["only_here"].tolist()[:2] == [len(newest - budget), len(budget - newest)]
    nothing = replay_each(frame, references, [KeepAll(), KeepRecent(len(frame))])
    assert overlap(nothing, share=True).isna().all(axis=None)
    assert overlap([]).empty


TWO_POLICIES = [KeepRecent(30), ValueCap(30, half_life="8h")]


@pytest.fixture(scope="module")
def retiring_table(history: HistoryFrames) -> pd.DataFrame:
    """Compare two policies and their retirement."""
    return compare(*history, TWO_POLICIES, retire=True).table


def test_retiring_rows_follow_deleting_rows(
    history: HistoryFrames, retiring_table: pd.DataFrame
) -> None:
    plain = compare(*history, TWO_POLICIES).table
    table = retiring_table
    assert table["retire"].tolist() == [False, True, False, True, False]
    relative = [name for name in plain if name.startswith(("gain", "behind"))]
    deleting = table[~table["retire"]]
    pd.testing.assert_frame_equal(deleting.drop(columns=relative), plain.drop(columns=relative))
    retiring = table[table["retire"]]
    assert retiring.index.tolist() == [f"{label}, retired" for label in plain.index[:2]]
    assert retiring["family"].tolist() == [f"{name}, retired" for name in plain["family"][:2]]
    assert retiring["options"].iloc[0] == "--policy recent --keep-recent 30"


def test_share_served_by_retiring_equals_its_replay(
    history: HistoryFrames, retiring_table: pd.DataFrame
) -> None:
    served = retiring_table["served"].tolist()
    recent, recent_retired, value_cap, value_cap_retired, _ = served
    assert recent_retired == recent
    replayed = replay(*history, ValueCap(30, half_life="8h"), retire=True)
    assert value_cap_retired == replayed.served
    assert value_cap_retired != value_cap


def test_page_with_retiring_rows_explains_them(retiring_table: pd.DataFrame) -> None:
    table = retiring_table.copy()
    text = str(Comparison("memory.db", table, references=100))
    assert "not loaded" in text
    assert "nothing is deleted" in text
    assert "loaded at start: the mean" in text
    table.attrs[c.RECALLED] = True
    text = str(Comparison("memory.db", table, references=100))
    assert "there to be found: the mean" in text


@pytest.mark.parametrize(
    ("row_number", "phrase"),
    [
        (1, "compact memory.db --policy recent --keep-recent 30 --retire "),
        (3, "--half-life 8h --retire "),
    ],
    ids=["newest", "value"],
)
def test_next_step_retires_if_that_is_best(
    retiring_table: pd.DataFrame, row_number: int, phrase: str
) -> None:
    cost_groups: list[int | None] = [None] * len(retiring_table)
    cost_groups[row_number] = 0
    table = retiring_table.assign(cost_group=pd.array(cost_groups, "Int64"))
    steps = Comparison("memory.db", table, references=100).next_steps()
    assert phrase in "\n".join(steps)


def test_next_step_is_the_cheapest_sufficient_cap(history: HistoryFrames) -> None:
    table = compare(*history, [KeepRecent(cap) for cap in (30, 400, 700)]).table
    good = [cap for cap in (30, 400, 700) if table.loc[f"recent {cap}", "served"] >= 0.9]
    assert 30 not in good
    table.attrs[c.RECALLED] = True  # otherwise the next step is the size of the store
    next_steps = Comparison("memory.db", table, references=100).next_steps()
    command = f"memlab compact memory.db --policy recent --keep-recent {min(good)} "
    assert command in "\n".join(next_steps)


def test_policies_without_effect_share_one_line() -> None:
    frame = make_episodes(10)
    frame[c.CREATED_AT] = frame[c.CREATED_AT].iloc[0] + pd.to_timedelta(range(10), unit="D")
    policies = [KeepRecent(5), KeepRecent(10), KeepRecent(500), Activation(5)]
    comparison = compare(frame, policies=policies, retire=True)
    assert len(comparison.table) == 9
    text = str(comparison)
    labels = [label for label in comparison.table.index if f"\n  {label}  " in text]
    assert labels == ["recent 5", "activation 5", "all"]
    left_out = "4 lines with nothing to delete, 2 lines with nothing gained by retiring"
    assert f"left out: {left_out}" in text


def test_floor_is_counted_separately(history: HistoryFrames) -> None:
    memories, references = history
    frame = memories.copy()
    frame.loc[:9, [c.LOAD_BEARING, c.PRUNABLE]] = True, False
    table = compare(frame, references, [KeepRecent(0)]).table
    assert table[["floor_memories", "floor_tokens"]].to_numpy().tolist() == [[10, 100]] * 2
    assert table.loc["recent 0", "boot_memories_mean"] < 10.01


def test_out_of_range_arguments_are_named(history: HistoryFrames) -> None:
    with pytest.raises(ValueError, match="workers=0"):
        replay_each(*history, POLICIES, workers=0)
    with pytest.raises(ValueError, match="of='kept'"):
        overlap([], of="kept")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every=0"):
        compare(*history, POLICIES, every=0)
    with pytest.raises(ValueError, match="every=0"):
        replay(*history, POLICIES[0], every=0)
    with pytest.raises(ValueError, match="no time zone"):
        replay(*history, POLICIES[0], now=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the error
