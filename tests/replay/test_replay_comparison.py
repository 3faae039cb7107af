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
from tests.support.histories import simulate_history


def history() -> tuple[pd.DataFrame, pd.DataFrame]:
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


def test_served_share_is_at_most_the_offline_bound() -> None:
    table = compare(*history(), POLICIES).table
    assert (table["served"] <= table["offline_optimum"] + 1e-12).all()
    best = offline_optimum(*history(), 30)
    served = table.loc["recent 30", "served"]
    assert table.loc["recent 30", "offline_optimum"] == best.served > served
    assert table.loc["all", ["served", "lost", "deleted"]].tolist() == [1, 0, 0]
    assert table.loc["recent 30", "most_held"] == 30
    assert table.loc["recent 30", "boot_tokens_p95"] == 300


def test_compare_uses_the_store_references_by_default() -> None:
    frame = make_frame(*(row(f"m{n}", evidence_refs=(f"m{n // 2}",)) for n in range(40)))
    references = find_references(frame)
    assert len(references) > 30
    by_default, given = (
        compare(frame, given_references, [KeepRecent(5)]).table
        for given_references in (None, references)
    )
    pd.testing.assert_frame_equal(by_default, given)
    assert compare(frame, policies=[]).table.index.tolist() == ["all"]
    empty = compare(frame[:0], policies=[KeepRecent(5)]).table
    assert empty[["served", "boot_tokens_mean", "boot_tokens_p95"]].isna().all(axis=None)
    assert empty["floor_memories"].tolist() == [0, 0]


def interruptible(*_: object, **__: object) -> bool:
    return SIGINT not in pthread_sigmask(SIG_BLOCK, ())


def test_workers_ignore_the_interrupt_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_replay_one", interruptible)
    assert replay_each(*history(), POLICIES, workers=2) == [False] * len(POLICIES)
    assert interruptible()


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    frame, references = history()
    alone = replay_each(frame, references, POLICIES, workers=1)
    together = replay_each(frame, references, POLICIES, workers=2)
    for single, other in zip(alone, together, strict=True):
        assert single.policy == other.policy
        pd.testing.assert_frame_equal(single.references, other.references)
        pd.testing.assert_frame_equal(single.deleted, other.deleted)
        pd.testing.assert_frame_equal(single.boot, other.boot)


def test_overlap_counts_rows_deleted_by_both() -> None:
    frame, references = history()
    replays = replay_each(frame, references, POLICIES[:2])
    newest, budget = (set(result.deleted[c.MEMORY_ID]) for result in replays)
    deleted_by_both = len(newest & budget)
    assert overlap(replays).to_numpy().tolist() == [
        [len(newest), deleted_by_both],
        [deleted_by_both, len(budget)],
    ]
    share = overlap(replays, share=True)
    assert share.iloc[0, 1] == deleted_by_both / len(newest)
    lost = [~result.references["kept"] for result in replays]
    assert overlap(replays, of="lost").iloc[0, 1] == (lost[0] & lost[1]).sum()
    table = compare(frame, references, POLICIES[:2]).table
    assert table["lost_only_here"].iloc[0] == (lost[0] & ~lost[1]).sum()
    assert table["only_here"].tolist()[:2] == [len(newest - budget), len(budget - newest)]
    nothing = replay_each(frame, references, [KeepAll(), KeepRecent(len(frame))])
    assert overlap(nothing, share=True).isna().all(axis=None)
    assert overlap([]).empty


def test_retiring_rows_follow_deleting_rows() -> None:
    policies = [KeepRecent(30), ValueCap(30, half_life="8h")]
    plain, with_retiring = (
        compare(*history(), policies, retire=retire).table for retire in (False, True)
    )
    assert with_retiring["retire"].tolist() == [False, True, False, True, False]
    alike = plain.columns.drop([name for name in plain if name.startswith(("gain", "behind"))])
    pd.testing.assert_frame_equal(with_retiring.loc[~with_retiring["retire"], alike], plain[alike])
    retired = with_retiring[with_retiring["retire"]]
    assert retired.index.tolist() == [f"{label}, retired" for label in plain.index[:2]]
    assert retired["family"].tolist() == [f"{name}, retired" for name in plain["family"][:2]]
    served = with_retiring["served"]
    assert served["recent 30, retired"] == served["recent 30"]
    assert served.iloc[3] == replay(*history(), policies[1], retire=True).served != served.iloc[2]
    text = str(Comparison("memory.db", with_retiring, references=100))
    assert "not loaded" in text
    assert "nothing is deleted" in text
    assert "loaded at start: the mean" in text
    with_retiring.attrs[c.RECALLED] = True
    assert "there to be found: the mean" in str(
        Comparison("memory.db", with_retiring, references=100)
    )
    with_retiring.attrs[c.RECALLED] = False
    assert with_retiring["options"].iloc[1] == "--policy recent --keep-recent 30"
    line = "compact memory.db --policy recent --keep-recent 30 --retire "
    for best, phrase in (
        ("recent 30, retired", line),
        (with_retiring.index[3], "--half-life 8h --retire "),
    ):
        with_retiring["cost_group"] = pd.array(
            [0 if label == best else None for label in with_retiring.index], "Int64"
        )
        steps = Comparison("memory.db", with_retiring, references=100).next_steps()
        assert phrase in "\n".join(steps)


def test_next_step_is_the_cheapest_sufficient_cap() -> None:
    table = compare(*history(), [KeepRecent(cap) for cap in (30, 400, 700)]).table
    good = [cap for cap in (30, 400, 700) if table.loc[f"recent {cap}", "served"] >= 0.9]
    assert 30 not in good
    next_steps = Comparison("memory.db", table, references=100).next_steps()
    assert f"memlab compact memory.db --policy recent --keep-recent {min(good)} " in "\n".join(
        next_steps
    )


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


def test_floor_is_counted_separately() -> None:
    frame, references = history()
    frame.loc[:9, [c.LOAD_BEARING, c.PRUNABLE]] = True, False
    table = compare(frame, references, [KeepRecent(0)]).table
    assert table[["floor_memories", "floor_tokens"]].to_numpy().tolist() == [[10, 100]] * 2
    assert table.loc["recent 0", "boot_memories_mean"] < 10.01


def test_out_of_range_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="workers=0"):
        replay_each(*history(), POLICIES, workers=0)
    with pytest.raises(ValueError, match="of='kept'"):
        overlap([], of="kept")  # type: ignore[arg-type]
    for call, given in ((compare, POLICIES), (replay, POLICIES[0])):
        with pytest.raises(ValueError, match="every=0"):
            call(*history(), given, every=0)
    with pytest.raises(ValueError, match="no time zone"):
        replay(*history(), POLICIES[0], now=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the error
