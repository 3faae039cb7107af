"""The contract of every policy, and how policies are called."""

import pickle
import re
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab import Activation, KeepRecent, NearDuplicate, Pipeline, Policy, TimeToLive, TokenBudget
from memlab.errors import WrongArgumentError
from memlab.policies import POLICIES, ImportanceBudget, ImportanceFloor, KeepAll, PurgeSuperseded
from memlab.policies.base import decide
from memlab.policies.rules import ValueCap
from tests.support.decisions import DAY, NOW, deleted_ids, kept_ids, memories
from tests.support.own_policies import (
    OF_ONES_OWN,
    SOME_OF_EACH,
    Crowded,
    EveryOther,
    Hasty,
    NeverReferred,
    ShortBodies,
)
from tests.support.properties import examples

PAST = pd.DataFrame({"memory_id": ["m0"] * 4})
EVERY = SOME_OF_EACH | OF_ONES_OWN
EVERY |= {
    "a policy that reads bodies": ShortBodies(12),
    "a learning policy with a past": NeverReferred(2).with_past(PAST),
}


@pytest.mark.parametrize("policy", EVERY.values(), ids=EVERY)
def test_policy_is_frozen_and_can_be_pickled(policy: Policy) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert re.fullmatch("[a-z-]+", policy.name)
    assert len(policy.origin) > 10
    field_names = [field.name for field in fields(policy)]
    first_name = field_names[0] if field_names else "keep"
    with pytest.raises(FrozenInstanceError):
        setattr(policy, first_name, 1)


def test_every_policy_is_registered_by_name() -> None:
    assert {type(policy) for policy in SOME_OF_EACH.values()} == set(POLICIES.values())
    assert all(policy.name == name for name, policy in POLICIES.items())


def test_class_without_a_name_gets_a_default_name() -> None:
    assert EveryOther().name == "every-other"
    assert EveryOther().origin == "tests.support.own_policies:EveryOther"
    assert Hasty().name == "hasty"
    assert TimeToLive().name == "ttl"


def test_overridden_evict_is_used_by_decide() -> None:
    class DeletesTheFirst(KeepRecent):
        runner = "ranked"

        def evict(self, rows: pd.DataFrame, **_: Any) -> "pd.Series[str]":
            return pd.Series({0: "mine"}, dtype="str")

    decided = decide(memories([{}, {}]), DeletesTheFirst(2), now=NOW)
    assert decided["reason"].iloc[0] == "mine"


def test_pipeline_names_the_deleting_step() -> None:
    frame = memories([{"importance": 0.1}, {}, {}, {"active": False}])
    pipeline = Pipeline(ImportanceFloor(0.3), KeepRecent(1))
    named = pipeline.evict(frame, now=NOW)
    assert named.to_dict() == {0: "step 1: below-floor", 1: "step 2: beyond-newest"}
    assert Pipeline().evict(frame, now=NOW).empty
    assert deleted_ids(frame, Pipeline()) == []


def test_pipeline_inherits_requirements_of_its_steps() -> None:
    assert Pipeline.odek().reads_bodies
    assert not Pipeline.odek().learns
    assert Pipeline(KeepAll(), Pipeline(Activation(3))).learns
    assert not Pipeline.memforge(threshold=0.1, max_items=3).reads_bodies


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ([0, 1], "returned list"),
        (pd.Series([True, False, True]), "let rows go for True"),
        (pd.Series("old", index=[-1]), "missing rows"),
        (pd.Series("old", index=[1, 1]), "one row twice"),
        (pd.Series("old", index=["m0"]), "named rows by str"),
        (pd.Series([None], index=[0], dtype="str"), "let rows go for nan"),
        (pd.Series("kept", index=[0]), "let rows go for 'kept'"),
    ],
)
def test_evict_with_invalid_result_is_rejected(
    named: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EveryOther, "evict", lambda *_, now: named)
    with pytest.raises(ValueError, match=message):
        decide(memories([{}, {}, {}]), EveryOther(), now=NOW)


@pytest.mark.parametrize(
    "policy", [policy for policy in POLICIES.values() if policy is not Pipeline]
)
def test_every_policy_setting_has_help(policy: type[Policy]) -> None:
    for field in fields(policy):
        if field.init:
            assert len(field.metadata["help"]) > 10, field.name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(KeepRecent, -1), "keep=-1"),
        (partial(KeepRecent, 1, by="title"), "by='title'"),
        (partial(Activation, -2), "max_items=-2"),
        (Activation, "give either max_items (--max-items) or max_tokens"),
        (partial(Activation, 5, 5), "max_tokens (--max-tokens), not both"),
        (partial(TokenBudget, -1), "max_tokens=-1"),
        (partial(ImportanceBudget, -3), "max_items=-3"),
        (partial(EveryOther, -1), "offset=-1"),
        (partial(ValueCap, 1, recency=-0.1), "recency=-0.1"),
        (partial(Crowded, 3, how="all"), "how='all' is not 'oldest' or 'newest'"),
        (partial(ValueCap, 1, half_life=timedelta(0)), "half_life="),
        (partial(ValueCap, 1, importance=float("nan")), "importance=nan"),
        (partial(ValueCap, 1, scope=("colour",)), "colour"),
        (partial(NearDuplicate, 1.2), "threshold=1.2"),
        (partial(PurgeSuperseded, -DAY), "older_than="),
    ],
)
def test_policy_setting_out_of_range_is_rejected(make: Callable[[], Policy], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_policy_setting_of_the_wrong_type_is_rejected() -> None:
    with pytest.raises(WrongArgumentError, match="ValueCap takes as recency a number, not 'high'"):
        ValueCap(1, recency="high")
    with pytest.raises(WrongArgumentError, match="ValueCap takes as scope a tuple"):
        ValueCap(1, scope="agent_id")


def test_age_can_be_given_as_text() -> None:
    month = timedelta(days=30)
    assert TimeToLive("30d") == TimeToLive(month)
    assert PurgeSuperseded("30d") == PurgeSuperseded(month)
    assert ValueCap(3, half_life="1.5h") == ValueCap(3, half_life=timedelta(minutes=90))
    assert Pipeline.odek(ttl="30d") == Pipeline.odek(ttl=month)
    with pytest.raises(ValueError, match="ttl='soon' is not an age"):
        TimeToLive("soon")
    with pytest.raises(WrongArgumentError, match=r"takes as waits .* timedelta\(days=3.5\)"):
        Crowded(3, waits=3.5)


def test_numpy_numbers_become_plain_numbers() -> None:
    assert type(KeepRecent(np.int64(5)).keep) is int
    assert type(ImportanceFloor(np.float32(0.5)).threshold) is float
    assert KeepRecent(np.int64(5)) == KeepRecent(5)


Drawn = list[dict[str, Any]]
instants = st.integers(-400, 40).map(lambda days: NOW + days * DAY)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "importance": st.sampled_from([0.0, 0.1, 0.5, 0.50001, 3.0, np.nan, np.inf]),
            "created_at": st.none() | instants,
            "last_accessed_at": st.none() | instants,
            "expires_at": st.none() | instants,
            "active": st.sampled_from([True, True, True, False]),
            "load_bearing": st.sampled_from([False, False, False, True]),
            "agent_id": st.sampled_from([None, "a", "b"]),
            "namespace": st.sampled_from([None, "n"]),
            "graduated": st.booleans(),
            "trusted": st.booleans(),
            "tags": st.sampled_from([(), ("x",), ("x", "y")]),
            "title": st.lists(st.sampled_from("abcdef"), max_size=4).map(" ".join),
        }
    ),
    max_size=14,
)


def four_of(policies: Iterable[Policy]) -> st.SearchStrategy[list[Policy]]:
    """Return a strategy of four different policies: with all of them an example would be slow."""
    return st.lists(st.sampled_from(list(policies)), min_size=4, max_size=4, unique=True)


@settings(max_examples=examples(50))
@given(rows, st.booleans(), four_of(EVERY.values()))
def test_every_policy_keeps_the_contract(
    drawn: Drawn, signals: bool, policies: list[Policy]
) -> None:
    repeated_labels = [None, 1, 2, 3, 4] * 3
    frame = memories(drawn, signals=signals).set_axis(repeated_labels[: len(drawn)])
    before = frame.copy(deep=True)
    for policy in policies:
        decision = decide(frame, policy, now=NOW)
        pd.testing.assert_frame_equal(frame, before)
        pd.testing.assert_index_equal(decision.index, frame.index)
        assert decision["keep"].dtype == bool
        assert isinstance(decision["reason"].dtype, pd.CategoricalDtype)
        assert decision["reason"].notna().all()
        keep = decision["keep"].to_numpy()
        populations = {step.population for step in policy.steps}
        may_touch_active = bool(populations & {"all", "active"})
        may_touch_superseded = bool(populations - {"active"})
        is_active = frame["active"].to_numpy()
        if not may_touch_active:
            assert keep[is_active].all()
        if not may_touch_superseded:
            assert keep[~is_active].all()
        reasons = decision["reason"].to_numpy()
        assert (reasons[frame["load_bearing"].to_numpy()] == "load-bearing").all()
        assert set(reasons[keep]) <= {"kept", "load-bearing", "superseded"}
        assert not set(reasons[~keep]) & {"kept", "load-bearing", "superseded"}


@settings(max_examples=examples(50))
@given(rows, st.randoms(use_true_random=False), four_of(SOME_OF_EACH.values()))
def test_decisions_ignore_row_order_and_are_idempotent(
    drawn: Drawn, random: Any, policies: Any
) -> None:
    frame = memories(drawn)
    shuffled = frame.sample(frac=1, random_state=random.randrange(2**32))
    for policy in policies:
        keep = decide(frame, policy, now=NOW)["keep"]
        pd.testing.assert_series_equal(keep, decide(shuffled, policy, now=NOW)["keep"].sort_index())
        # The cap of odek deletes rows that were the nearest duplicates of others.
        if policy is not SOME_OF_EACH["odek"]:
            assert decide(frame[keep], policy, now=NOW)["keep"].all(), policy


@given(rows, st.integers(0, 6))
def test_importance_budget_applies_per_agent(drawn: Drawn, cap: int) -> None:
    frame = memories(drawn)
    together = decide(frame, ImportanceBudget(cap), now=NOW)["keep"]
    for _, part in frame.groupby("agent_id", dropna=False):
        alone = decide(part, ImportanceBudget(cap, scope=()), now=NOW)["keep"]
        pd.testing.assert_series_equal(together[part.index], alone)


def scope_of(row: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the scope fields and tags that a memory was written with."""
    fields = {(name, row[name]) for name in ("agent_id", "namespace") if isinstance(row[name], str)}
    return frozenset(fields | {("tags", tag) for tag in row["tags"]})


def capped_by_brute_force(frame: pd.DataFrame, policy: ValueCap) -> set[str]:
    """Return the ids that a cap deletes, computed scope by scope."""
    keys = policy.eviction_keys(frame, now=NOW)
    sort_keys = list(zip(*keys, strict=True))
    active_rows = frame.assign(sort_key=sort_keys)[frame["active"]].to_dict("records")
    scopes_newest_first = dict.fromkeys(scope_of(memory) for memory in reversed(active_rows))
    evicted: set[str] = set()
    for scope in reversed(scopes_newest_first):
        if not scope:
            continue
        in_scope = [
            memory
            for memory in active_rows
            if scope <= scope_of(memory) and memory["memory_id"] not in evicted
        ]
        prunable = [memory for memory in in_scope if not memory["load_bearing"]]
        prunable.sort(key=lambda memory: memory["sort_key"])
        surplus = max(0, len(in_scope) - policy.capacity)
        evicted |= {memory["memory_id"] for memory in prunable[:surplus]}
    return evicted


@given(rows, st.integers(0, 6))
def test_value_cap_applies_to_every_scope(drawn: Drawn, cap: int) -> None:
    frame = memories(drawn)
    assert set(deleted_ids(frame, ValueCap(cap))) == capped_by_brute_force(frame, ValueCap(cap))


@given(rows, st.integers(0, 140), st.integers(1, 60))
def test_larger_cap_keeps_everything_a_smaller_one_keeps(drawn: Drawn, cap: int, more: int) -> None:
    frame = memories(drawn)
    for policy in (KeepRecent, TokenBudget, partial(ValueCap, scope=()), Activation):
        kept_by_smaller = set(kept_ids(frame, policy(cap)))
        kept_by_larger = set(kept_ids(frame, policy(cap + more)))
        assert kept_by_smaller <= kept_by_larger
