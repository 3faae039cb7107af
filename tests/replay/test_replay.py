"""Replay against repeated decisions, against the cap curve, and by example."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations, compress, product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy import random

from memlab import Activation, KeepRecent, NearDuplicate, Pipeline, Policy, TimeToLive, decide
from memlab import columns as c
from memlab.evidence.references import REFERENCE_KINDS, find_references
from memlab.policies import ImportanceBudget, PurgeSuperseded, TokenBudget, ValueCap
from memlab.policies.base import RunnerName, runner_name_of
from memlab.replay import history, offline_optimum, replay
from tests.support.frames import (
    START,
    lives,
    make_episodes,
    make_frame,
    make_log,
    make_references,
    row,
)
from tests.support.histories import work
from tests.support.own_policies import OF_ONES_OWN, SOME_OF_EACH, RecentByUse, ShortBodies, asked

TITLES = ("alpha beta gamma", "alpha beta gamma", "alpha beta delta", "one two", "three")

POLICIES = {**SOME_OF_EACH, **OF_ONES_OWN}


def with_values(frame: pd.DataFrame, titles: list[int], importance: list[float]) -> pd.DataFrame:
    """Return the frame with drawn titles, importance and agents."""
    titles = titles[: len(frame)]
    frame[c.TITLE] = pd.Series([TITLES[title] for title in titles], dtype="str")
    frame[c.IMPORTANCE] = importance[: len(frame)]
    frame[c.AGENT_ID] = pd.Series([("a", "b", None)[title % 3] for title in titles], dtype="str")
    return frame


LIVES = st.builds(
    with_values,
    lives(),
    st.lists(st.integers(0, 4), min_size=13, max_size=13),
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.5, 0.9]), min_size=13, max_size=13),
)
PAIRS = make_frame(
    row("m0", superseded_by="m1"),
    row("m1"),
    row("m2", superseded_by="m3"),
    row("m3"),
    row("m4", superseded_by="m5"),
    row("m5"),
    row("m6", superseded_by="m7"),
    row("m7"),
    minutes=24 * 60,
)
REPLACED = with_values(PAIRS, [0, 1, 2, 3, 4, 0, 1, 2], [0.5] * 8)
"""Pairs of memories; the second of each pair supersedes the first."""


class StepwiseResult(NamedTuple):
    """Reasons of the deleted memories by id, and a flag for each served reference."""

    deleted: dict[str, str]
    served: list[bool]


def decide_stepwise(
    frame: pd.DataFrame, references: pd.DataFrame, policy: Policy, every: int, now: Any
) -> StepwiseResult:
    """Apply a policy after every few writes, and at the end if `now` is given."""
    last_access = dict(zip(frame[c.MEMORY_ID], frame[c.CREATED_AT], strict=True))
    deleted: dict[str, str] = {}
    served = pd.Series(data=True, index=references.index)
    moments = []
    for position, created in enumerate(frame[c.CREATED_AT], start=1):
        if position % every == 0:
            moments.append((position, created))
    if now:
        moments.append((len(frame) + 1, now))
    for position, at in moments:
        past = frame.iloc[:position].copy()
        earlier_references = references[references[c.AT_POSITION] <= position]
        for target, access in earlier_references[[c.TARGET_ID, c.AT]].itertuples(index=False):
            if target not in deleted:
                last_access[target] = max(last_access[target], access)
        past[c.ACTIVE] = ~past[c.SUPERSEDED_BY].isin(past[c.MEMORY_ID])
        past[c.PRUNABLE] = past[c.ACTIVE] & ~past[c.LOAD_BEARING]
        past[c.LAST_ACCESSED_AT] = past[c.MEMORY_ID].map(last_access).astype(c.TIME)
        present = past[~past[c.MEMORY_ID].isin(deleted)]
        decided = decide(present, policy.with_past(past, earlier_references), now=at)
        is_deleted = ~decided[c.KEEP]
        deleted_ids = present.loc[is_deleted, c.MEMORY_ID]
        reasons = decided.loc[is_deleted, c.REASON]
        deleted.update(zip(deleted_ids, reasons, strict=True))
        is_later = references[c.AT_POSITION] > position
        is_lost = is_later & references[c.TARGET_ID].isin(deleted)
        served &= ~is_lost
    return StepwiseResult(deleted, served.tolist())


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@settings(max_examples=1 + settings().max_examples // 20)
@example(frame=REPLACED, every=1, late=True, retire=False)
@example(frame=REPLACED[:0], every=1, late=True, retire=False)
@given(frame=LIVES, every=st.integers(1, 3), late=st.booleans(), retire=st.booleans())
def test_results_do_not_depend_on_runner(
    policy: Policy, frame: pd.DataFrame, every: int, late: bool, retire: bool
) -> None:
    references = find_references(frame)
    now = START + pd.Timedelta(days=20) if late else None
    options = {"every": every, "now": now, "retire": retire}
    quick = replay(frame, references, policy, **options)
    slow = replay(frame, references, asked(policy), **options)
    pd.testing.assert_frame_equal(quick.deleted, slow.deleted)
    pd.testing.assert_frame_equal(quick.references, slow.references)
    pd.testing.assert_frame_equal(quick.boot, slow.boot)
    assert quick.returned == slow.returned
    if references.empty:
        assert "no references" in str(quick)
    else:
        assert "no references" not in str(quick)
    if not retire:
        stepwise = decide_stepwise(frame, references, policy, every, now)
        assert dict(quick.deleted[[c.MEMORY_ID, "step"]].to_numpy()) == stepwise.deleted
        assert quick.references["kept"].tolist() == stepwise.served


def test_duplicate_is_deleted_after_its_trusted_predecessor() -> None:
    titles = "abcdefgh"
    frame = make_episodes(8)
    frame[c.TITLE] = list(titles)
    frame[c.TRUSTED] = frame.index == 0
    vectors = np.eye(8)
    vectors[0, :3] = (1, 0, 0)
    vectors[1, :3] = (0.9, 0.1, 0.4)
    vectors[2, :3] = (1, 0, 0.1)

    def vectorise(texts: Iterable[str]) -> npt.NDArray[np.float64]:
        return vectors[[titles.index(text) for text in texts]]

    near = NearDuplicate(0.9, vectorise=vectorise, keep_untrusted=True)
    policy = Pipeline(near, TimeToLive("3.5h"))
    quick = replay(frame, find_references(frame), policy).deleted
    deleted = quick[[c.MEMORY_ID, "step"]].to_numpy().tolist()
    assert deleted[0] == ["m1", "step 2: expired"]
    assert deleted[1] == ["m2", "step 1: near-duplicate"]
    slow = replay(frame, find_references(frame), asked(policy)).deleted
    assert deleted == slow[[c.MEMORY_ID, "step"]].to_numpy().tolist()


@pytest.mark.parametrize(("kind", "retire"), [("evidence", False), ("log", True)])
def test_activation_results_do_not_depend_on_runner(kind: str, retire: bool) -> None:
    frame, references = work(700)
    references[c.KIND] = pd.Categorical([kind] * len(references), REFERENCE_KINDS)
    quick = replay(frame, references, Activation(40), every=25, retire=retire)
    slow = replay(frame, references, asked(Activation(40)), every=25, retire=retire)
    if retire:
        assert quick.returned > 0
    else:
        assert quick.returned == 0
    newest = replay(frame, references, KeepRecent(40), every=25)
    assert quick.deleted[c.MEMORY_ID].tolist() == slow.deleted[c.MEMORY_ID].tolist()
    assert quick.deleted[c.MEMORY_ID].tolist() != newest.deleted[c.MEMORY_ID].tolist()


@dataclass(frozen=True)
class Named(KeepRecent):
    note: str = "ours"
    name: ClassVar[str] = "named"


class Typo(KeepRecent):
    runner: ClassVar[RunnerName] = "quick"  # type: ignore[assignment]


class Vouched(RecentByUse):
    runner: ClassVar[RunnerName] = "capped"


class Mixed:
    def deadlines(self, rows: pd.DataFrame) -> npt.NDArray[np.datetime64]:
        return np.full(len(rows), np.datetime64("1970-01-01", "us"))


class MixedIn(Mixed, TimeToLive):
    pass


def test_subclass_keeps_its_runner_unless_it_overrides_deciding() -> None:
    assert runner_name_of(Named(3)) == "ranked"
    assert runner_name_of(Vouched(3)) == "capped"
    assert runner_name_of(RecentByUse(3)) == "asked"
    assert runner_name_of(MixedIn()) == "asked"
    assert len(replay(*six_episodes(), MixedIn()).deleted) == 6
    with pytest.raises(ValueError, match=r"Typo\.runner is 'quick': leave it out"):
        replay(*six_episodes(), Typo(2))


def test_policy_can_read_bodies() -> None:
    frame, references = six_episodes()
    frame[c.BODY] = ["a body of some length", "short"] * 3
    deleted = replay(frame, references, ShortBodies()).deleted[c.MEMORY_ID].tolist()
    assert deleted == ["m2", "m4", "m6"]


@given(LIVES, st.sampled_from(list(SOME_OF_EACH.values())), st.booleans())
def test_no_policy_serves_more_than_the_offline_bound(
    frame: pd.DataFrame, policy: Policy, retire: bool
) -> None:
    references = find_references(frame)
    replayed = replay(frame, references, policy, retire=retire)
    best = offline_optimum(frame, references, replayed.most_held)
    assert replayed.references["kept"].sum() <= best.kept.sum()


class Need(NamedTuple):
    """A reference to a row that is made at a later one."""

    target: int
    at: int


def most_by_search(needs: set[Need], capacity: int) -> int:
    """Return the most needs that any choice of intervals serves, by exhaustive search.

    A need is served if its memory is held since it was written or last needed.
    """
    held_from: dict[int, int] = {}
    intervals = []
    for need in sorted(needs, key=lambda need: need.at):
        start = held_from.get(need.target, need.target)
        intervals.append(range(start, need.at))
        held_from[need.target] = need.at
    best = 0
    for is_chosen in product((True, False), repeat=len(intervals)):
        chosen = list(compress(intervals, is_chosen))
        most_held = max((count_held(chosen, interval.start) for interval in chosen), default=0)
        if most_held <= capacity:
            best = max(best, len(chosen))
    return best


def count_held(intervals: list[range], moment: int) -> int:
    """Count the intervals that contain a moment."""
    return len([interval for interval in intervals if moment in interval])


NEEDS = [Need(target, at) for target, at in combinations(range(13), 2)]


@given(st.sets(st.sampled_from(NEEDS), max_size=9), st.integers(0, 3))
def test_offline_bound_equals_exhaustive_search(needs: set[Need], capacity: int) -> None:
    frame = make_episodes(13)
    at = [need.at for need in needs]
    distance = [need.at - need.target for need in needs]
    references = make_references(frame, at, distance)
    bound = offline_optimum(frame, references, capacity)
    assert bound.kept.sum() == most_by_search(needs, capacity)
    assert bound.held.max() <= capacity


def six_episodes() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return six episodes an hour apart; the third, fifth and sixth refer to m1."""
    frame = make_episodes(6, tokens=[10, 20, 30, 40, 50, 60])
    return frame, make_references(frame, [2, 4, 5], [2, 4, 5])


def test_lost_reference_names_the_deleting_step() -> None:
    replayed = replay(*six_episodes(), KeepRecent(2))
    assert replayed.references["kept"].tolist() == [True, False, False]
    assert replayed.references["deleted_at_position"].tolist() == [pd.NA, 3, 3]
    assert replayed.references["step"].tolist()[1:] == ["beyond-newest"] * 2
    assert replayed.lost == 2
    assert replayed.served == pytest.approx(1 / 3)
    assert replayed.regret.loc["m1"].to_dict() == {
        "lost": 2,
        "first_at_position": 5,
        "first_at": START + pd.Timedelta(hours=4),
        "deleted_at_position": 3,
        "step": "beyond-newest",
    }
    assert replayed.regret_over_time["lost"].tolist() == [0, 1, 2]
    assert replayed.boot["boot_memories"].tolist() == [1, 2, 2, 2, 2, 2]
    assert replayed.boot["boot_tokens"].tolist() == [10, 30, 50, 70, 90, 110]
    assert replayed.deleted[c.MEMORY_ID].tolist() == ["m1", "m2", "m3", "m4"]


def test_retired_memory_returns_when_referenced() -> None:
    policy = ValueCap(2, importance=0.0)  # deletes the least recently used
    frame = make_episodes(9, tokens=[10, 20, 30, 40, 50, 60, 70, 80, 90])
    frame[c.CREATED_AT] = START + pd.to_timedelta(range(9), unit="D")
    references = make_references(frame, [4, 5, 6], [4, 5, 6])
    deleting = replay(frame, references, policy, retire=False)
    retiring = replay(frame, references, policy, retire=True)
    assert deleting.references["kept"].tolist() == [False, False, False]
    assert retiring.references["kept"].tolist() == [False, True, True]
    assert retiring.references["deleted_at_position"].tolist() == [3, pd.NA, pd.NA]
    assert retiring.returned == 1
    assert retiring.boot["boot_tokens"].tolist() == [10, 30, 50, 70, 60, 70, 80, 150, 240]
    assert retiring.deleted[c.MEMORY_ID].tolist() == ["m2", "m3", "m4", "m5", "m6", "m1"]
    assert "deleted" in str(deleting)
    assert "deleted" not in str(retiring)
    assert "came back   1 time\n" in str(retiring)


@given(frame=lives(superseded=False), cap=st.integers(0, 6))
def test_keep_recent_returns_nothing_and_serves_no_less(frame: pd.DataFrame, cap: int) -> None:
    references = find_references(frame)
    deleting = replay(frame, references, KeepRecent(cap), retire=False)
    retiring = replay(frame, references, KeepRecent(cap), retire=True)
    assert (retiring.references["kept"] >= deleting.references["kept"]).all()
    assert (retiring.boot["boot_memories"] >= deleting.boot["boot_memories"]).all()
    assert not retiring.returned


def test_retiring_runs_nightly_and_deleting_on_every_write() -> None:
    frame = make_episodes(60)  # one an hour, from midnight
    deleting = replay(frame, None, KeepRecent(10), retire=False)
    retiring = replay(frame, None, KeepRecent(10), retire=True)
    assert deleting.boot["boot_memories"].max() == 10
    assert retiring.boot["boot_memories"].tolist()[22:26] == [23, 10, 11, 12]
    undated = frame.assign(**{c.CREATED_AT: pd.Series(pd.NaT, frame.index, c.TIME)})
    retiring_undated = replay(undated, None, KeepRecent(10), retire=True)
    assert retiring_undated.boot["boot_memories"].max() == 10


def daily_episodes(count: int) -> pd.DataFrame:
    rows = [row(f"m{number}") for number in range(count)]
    return make_frame(*rows, minutes=24 * 60)


def test_silent_reads_of_loaded_memories_are_not_counted() -> None:
    frame = daily_episodes(30)
    reads = [("m0", 24 * day + 12) for day in range(10, 25)]
    references = find_references(frame, make_log(*reads))
    reported = replay(frame, references, Activation(3), retire=True, silent=False)
    silent = replay(frame, references, Activation(3), retire=True, silent=True)
    served_if_reported = reported.references["kept"]
    served_if_silent = silent.references["kept"]
    assert served_if_reported.iloc[1:].all()
    assert len(served_if_reported) == 15
    assert not served_if_silent.iloc[0]
    assert served_if_silent.sum() > 0
    assert served_if_silent.sum() < served_if_reported.sum()


def test_silent_reads_do_not_inform_a_deleting_policy() -> None:
    frame = daily_episodes(30)
    reads = [("m0", 24 * day + 12) for day in range(1, 25)]
    references = find_references(frame, make_log(*reads))
    newest = replay(frame, references, KeepRecent(3))
    with_reads = replay(frame, references, Activation(3))
    silent = replay(frame, references, Activation(3), silent=True)
    assert with_reads.lost == 0
    assert newest.lost > 0
    assert silent.lost == newest.lost


def test_nights_with_few_events_are_skipped() -> None:
    frame = daily_episodes(30)
    every_night = replay(frame, None, KeepRecent(3), retire=True)
    every_fourth = replay(frame, None, KeepRecent(3), retire=True, every=4)
    assert every_night.boot["boot_memories"].max() == 4
    assert every_fourth.boot["boot_memories"].max() == 6


def test_superseded_memories_are_not_retired() -> None:
    frame = REPLACED
    references = find_references(REPLACED)
    loaded = replay(frame, references, KeepRecent(8)).boot
    assert loaded["boot_memories"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert loaded["held"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    purge = PurgeSuperseded(timedelta(0))
    assert len(replay(frame, references, purge).deleted) == 4
    assert replay(frame, references, purge, retire=True).deleted.empty


def test_later_access_times_are_not_used_earlier() -> None:
    frame, references = six_episodes()
    used = frame.assign(**{c.LAST_ACCESSED_AT: frame[c.CREATED_AT].array[::-1]})
    with_usage = replay(used, references, ValueCap(2)).deleted
    without_usage = replay(frame, references, ValueCap(2)).deleted
    pd.testing.assert_frame_equal(with_usage, without_usage)


def test_result_does_not_depend_on_input_order() -> None:
    frame, references = six_episodes()
    shuffled_frame = frame.iloc[random.default_rng(3).permutation(6)]
    frame_before = shuffled_frame.copy(deep=True)
    shuffled_references = references.iloc[::-1]
    references_before = shuffled_references.copy(deep=True)
    odek = Pipeline.odek(keep=2)
    deleted = replay(shuffled_frame, shuffled_references, odek).deleted
    pd.testing.assert_frame_equal(deleted, replay(frame, references, odek).deleted)
    pd.testing.assert_frame_equal(shuffled_frame, frame_before)
    pd.testing.assert_frame_equal(shuffled_references, references_before)


@pytest.mark.parametrize(
    "policy",
    [
        KeepRecent(20),
        TokenBudget(900),
        TimeToLive("2d"),
        ImportanceBudget(20),
        Pipeline.memforge(threshold=0.3, max_items=30),
        Pipeline(PurgeSuperseded("1d"), TimeToLive("3d"), TokenBudget(900)),
    ],
    ids=str,
)
@pytest.mark.parametrize("every", [1, 7])
def test_presorted_and_stepwise_runners_agree(
    policy: Policy, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, references = work(400)
    chance = np.random.default_rng(1)
    frame[c.IMPORTANCE] = chance.choice([0.1, 0.5, 0.9, np.nan], len(frame))
    frame[c.AGENT_ID] = pd.Series(chance.choice(["a", "b"], len(frame)), dtype="str")
    frame.loc[::5, c.SUPERSEDED_BY] = frame[c.MEMORY_ID].shift(-3)
    frame[c.LOAD_BEARING] = chance.random(len(frame)) < 0.1
    options = {"every": every, "now": frame[c.CREATED_AT].max() + pd.Timedelta(days=1)}
    quick = replay(frame, references, policy, **options)
    for runner in (history.CapRunner, history.DeadlineRunner):
        monkeypatch.setattr(runner, "presorted_step", lambda _: None)
    slow = replay(frame, references, policy, **options)
    assert not slow.deleted.empty
    assert len(slow.deleted) < len(frame)
    pd.testing.assert_frame_equal(quick.deleted, slow.deleted)
    pd.testing.assert_frame_equal(quick.references, slow.references)
    pd.testing.assert_frame_equal(quick.boot, slow.boot)
