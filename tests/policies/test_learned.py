"""Learned: what it starts from and learns, that it only looks back, and when age decides."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import make_frame, make_log, row
from histories import recorded, work

from memlab import columns as c
from memlab.evidence.references import find_references
from memlab.frame.loading import load
from memlab.policies import KeepRecent, Learned, Policy, TokenBudget, decide
from memlab.policies.learned import Expectation, Moment, Space, experience_of, fitted_weights
from memlab.replay import replay, replay_each

CHECKOUT = Path(__file__).resolve().parents[2]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def served_late(frame: pd.DataFrame, references: pd.DataFrame, *policies: Policy) -> list[float]:
    """Share of references that each policy served after the first half."""
    late = references[c.AT_POSITION] > len(frame) / 2
    replays = replay_each(frame, references, policies, workers=1)
    return [float(one.references.loc[late.to_numpy(), "kept"].mean()) for one in replays]


def test_what_is_referred_to_by_kind_is_learned_in_as_many_slots_and_tokens() -> None:
    frame, references = work()
    budget = 40 * int(frame[c.TOKENS].mean())
    policies = KeepRecent(40), Learned(40), TokenBudget(budget), Learned(max_tokens=budget)
    newest, learned, fitting, expected = served_late(frame, references, *policies)
    assert learned > newest + 0.15
    assert expected > fitting + 0.03


def test_what_goes_would_not_fit_into_what_is_left_of_the_room() -> None:
    rng = np.random.default_rng(7)
    for budget in rng.integers(20, 4_000, 25).tolist():
        sizes = rng.integers(1, 900, 60).tolist()
        frame = make_frame(*(row(f"e{n}", tokens=size) for n, size in enumerate(sizes)))
        tokens, keep = frame[c.TOKENS], decide(frame, Learned(max_tokens=budget), now=NOW)[c.KEEP]
        left = budget - tokens[keep].sum()
        assert 0 <= left < tokens[~keep].min()


def days_of_writing(count: int) -> pd.DataFrame:
    """So many episodes, one a day."""
    return make_frame(*(row(f"m{n}") for n in range(count)), minutes=24 * 60)


def test_the_first_read_is_acted_on() -> None:
    frame = days_of_writing(40)
    policy = Learned(5)
    last = frame[c.CREATED_AT].iloc[-1]
    unread = decide(frame, policy, now=last)
    assert unread.index[unread[c.KEEP]].tolist() == [35, 36, 37, 38, 39]
    references = find_references(frame, make_log(("m3", 39 * 24)))
    taught = decide(frame, policy.after(frame, references), now=last)
    assert taught.index[taught[c.KEEP]].tolist() == [3, 36, 37, 38, 39]


def test_reads_of_one_day_are_one_and_what_they_say_fades_by_half_in_two_weeks() -> None:
    frame = days_of_writing(10)
    often = make_log(*(("m2", 24 * day + n / 60) for day in (30, 44) for n in range(60)))
    past = experience_of(frame, find_references(frame, often))
    assert past.target.tolist() == [2, 2]
    assert past.use(np.array([2, 3]), 2)[0].tolist() == [2, 0]
    fading = [past.use(np.array([2]), seen)[3].tolist() for seen in (1, 2)]
    assert fading == [[1.0], [1.5]]


def test_reads_of_nothing_that_is_there_or_was_yet_change_nothing() -> None:
    frame = days_of_writing(20)
    strange = find_references(frame, make_log(("other", 24 * 30), ("m9", -24 * 30)))
    last = frame[c.CREATED_AT].iloc[-1]
    policies = (Learned(5).after(frame, each) for each in (strange, strange[:0]))
    told, untold = (decide(frame, policy, now=last) for policy in policies)
    pd.testing.assert_frame_equal(told, untold)


def test_memories_without_a_token_are_decided_about() -> None:
    frame = days_of_writing(10).assign(**{c.TOKENS: 0})
    taught = Learned(5).after(frame, find_references(frame, make_log(("m3", 240))))
    assert decide(frame, taught, now=NOW)[c.KEEP].sum() == 5


def misled() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history in which only the newest is ever read, once it is there, and never again."""
    frame = days_of_writing(120)
    return frame, find_references(frame, make_log(*((f"m{n}", 24 * n + 1) for n in range(120))))


def test_age_decides_where_use_has_served_fewer_needs_and_the_reason_says_so() -> None:
    frame, references = misled()
    expectation = Expectation(experience_of(frame, references))
    few, many = (expectation.trusted(Space(room, of_tokens=False)) for room in (2, 60))
    assert few[0]
    assert not few[-1]
    assert many.all()  # where both keep all that is needed, neither does worse
    newest, learned = (replay(frame, references, one) for one in (KeepRecent(2), Learned(2)))
    late = learned.deleted[c.POSITION] > 60
    assert set(learned.deleted.loc[late, "step"]) == {Learned.by_age}
    assert learned.deleted[c.MEMORY_ID].iloc[-1] == newest.deleted[c.MEMORY_ID].iloc[-1]
    decided = decide(frame, Learned(2).after(frame, references), now=NOW)
    assert set(decided.loc[~decided[c.KEEP], c.REASON]) == {Learned.by_age}
    assert decided.index[decided[c.KEEP]].tolist() == [118, 119]


def test_while_age_alone_decides_the_longer_of_two_of_one_age_goes() -> None:
    frame, references = misled()
    frame.loc[[19, 9], c.TOKENS], frame.loc[[20, 10], c.TOKENS] = 500, 10
    expectation = Expectation(experience_of(frame, references))
    space = Space(2 * int(frame[c.TOKENS].iloc[-1]), of_tokens=True)
    assert not expectation.decides(120, space)
    memories = np.array([20, 19, 10, 9])
    score = expectation.scores(memories, Moment(120, 120, 1e5), space)
    assert memories[np.argsort(-score)].tolist() == [20, 10, 19, 9]


@pytest.mark.parametrize("unit", ["max_items", "max_tokens"])
def test_a_store_decided_on_with_its_past_keeps_what_the_replay_keeps(unit: str) -> None:
    frame, references = recorded()
    room = 60 if unit == "max_items" else 60 * int(frame[c.TOKENS].mean())
    policy = Learned(**{unit: room})
    done = replay(frame, references, policy)
    for written in (500, 1100, 1600):
        past = frame.iloc[:written]
        early = done.deleted["deleted_at_position"] < written
        there = past[~past[c.MEMORY_ID].isin(done.deleted.loc[early, c.MEMORY_ID])]
        kept = decide(there, policy.after(past), now=NOW)[c.KEEP]
        went = done.deleted.loc[done.deleted["deleted_at_position"] == written, c.MEMORY_ID]
        assert there.loc[~kept, c.MEMORY_ID].tolist() == went.tolist()


def test_a_past_without_the_newest_rows_is_completed_from_the_store() -> None:
    frame, _ = recorded()
    policies = [Learned(60).after(past) for past in (frame, frame.iloc[:900])]
    assert policies == [Learned(60)] * 2  # a past is no part of what a policy is
    assert "past" not in repr(policies)
    whole, joined = (decide(frame, policy, now=NOW) for policy in policies)
    pd.testing.assert_frame_equal(whole, joined)


def test_task_numbers_that_are_not_numbers_do_no_harm() -> None:
    frame, references = work(400)
    frame[c.SOURCE_TASK_REF] = pd.Series([f"session:{i:x}f" for i in range(400)], dtype="str")
    past = experience_of(frame, references)
    assert past.number.tolist() == list(range(400))
    frame[c.SOURCE_TASK_REF] = pd.Series([f"issue:#{2 * i}" for i in range(400)], dtype="str")
    assert experience_of(frame, references).number.tolist() == list(range(0, 800, 2))


def test_the_weights_that_ship_are_what_the_histories_give() -> None:
    pytest.importorskip("scipy")
    data = CHECKOUT.parent / "shared" / "data"
    if not any(data.glob("recalls-*")):
        pytest.skip("no recorded histories (shared/data) beside the checkout")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKOUT / "data")
        import fit_weights
    fitted = fit_weights.fit(fit_weights.read_stores(data, "reads"), "reads")
    np.testing.assert_allclose(fitted, fitted_weights("reads"), atol=0.001)


@pytest.mark.parametrize("name", ["history-uv", "history-bevy", "history-arrow-rs"])
def test_no_recorded_history_is_served_worse_than_by_the_newest(real_store, name: str) -> None:
    frame = load(real_store(name))
    references = find_references(frame)
    policies = [kind(cap) for cap in (50, 1000) for kind in (KeepRecent, Learned)]
    served = served_late(frame, references, *policies)
    assert all(np.diff(served)[::2] >= -0.005)
