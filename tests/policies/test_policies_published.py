"""What the four systems' published tests state, one row a case; how duplicates are found."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from decisions import DAY, NOW, kept, memories, went
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from memlab.errors import MissingExtraError
from memlab.policies import (
    ImportanceBudget,
    ImportanceFloor,
    KeepRecent,
    Learned,
    NearDuplicate,
    Pipeline,
    Policy,
    PurgeSuperseded,
    TimeToLive,
    TokenBudget,
    ValueCap,
    decide,
    near_duplicates,
    recency_decay,
    value_score,
)
from memlab.policies.duplicates import replace_older

WEEK = 7 * DAY


def used(*ages: timedelta, importance: tuple[float, ...] = ()) -> list[dict[str, Any]]:
    values = importance or (0.5,) * len(ages)
    return [
        {"last_accessed_at": NOW - age, "importance": value}
        for age, value in zip(ages, values, strict=True)
    ]


def aged(*ages: timedelta) -> list[dict[str, Any]]:
    return [{"created_at": NOW - age} for age in ages]


def of_importance(*values: float, **also: Any) -> list[dict[str, Any]]:
    return [{"importance": value, **also} for value in values]


def said(*texts: str, trusted: tuple[bool, ...] = ()) -> list[dict[str, Any]]:
    trust = trusted or (True,) * len(texts)
    return [{"title": t, "trusted": ok} for t, ok in zip(texts, trust, strict=True)]


def worth(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Importance, agent, thread and tags of each."""
    return [
        {"importance": value, "agent_id": agent, "thread_id": thread, "tags": tuple(tags)}
        for value, agent, thread, *tags in rows
    ]


SAME = "the deploy failed because the port was taken"
FRESH = timedelta(0)
ONE_SCOPE = {"scope": ()}

CASES: dict[str, tuple[list[dict[str, Any]], Policy, list[int]]] = {
    # BetterDB agent-memory
    "low then middle importance, equally fresh": (
        used(FRESH, FRESH, FRESH, importance=(0.1, 0.5, 0.9)), ValueCap(1, **ONE_SCOPE), [0, 1],
    ),
    "oldest then middle, equally important": (
        used(FRESH, WEEK, 4 * WEEK), ValueCap(1, **ONE_SCOPE), [1, 2],
    ),
    "important but stale loses where recency weighs": (
        used(6 * WEEK, FRESH, importance=(0.9, 0.1)),
        ValueCap(1, recency=0.9, importance=0.1, scope=()), [0],
    ),
    "a cap below zero takes all": (used(FRESH, WEEK), ValueCap(-5, **ONE_SCOPE), [0, 1]),
    "without weights the older last access goes": (
        used(FRESH, WEEK, importance=(0.0, 1.0)),
        ValueCap(1, recency=0, importance=0, scope=()), [1],
    ),
    "an importance that is not finite counts as none": (
        used(FRESH, FRESH, importance=(float("inf"), 0.1)), ValueCap(1, **ONE_SCOPE), [0],
    ),
    "a last access that is missing is the epoch": (
        [{"last_accessed_at": None}, *used(500 * WEEK)], ValueCap(1, **ONE_SCOPE), [0],
    ),
    "tags make no scopes where they are left out": (
        [{"agent_id": "a", "tags": t} for t in [("x",), ("y",)]],
        ValueCap(1, scope=("agent_id",)), [0],
    ),
    "a scope of an agent alone holds all its threads": (
        worth((0.9, "a", "t1"), (0.8, "a", "t2"), (0.1, "a", None)), ValueCap(1), [1, 2],
    ),
    "a scope of a thread holds no other": (
        worth((0.1, "a", None), (0.2, "a", "t1"), (0.8, "a", "t2")), ValueCap(2), [0],
    ),
    "case makes no difference to agents and tags": (
        worth((0.9, "A", None, "X"), (0.1, "a", None, "x")), ValueCap(1), [1],
    ),
    "expiry is passed after its moment": (
        [{"expires_at": NOW - timedelta(microseconds=1)}, {"expires_at": NOW}], TimeToLive(), [0],
    ),
    "an expiry of its own goes before the age": (
        [{"expires_at": NOW + DAY, "created_at": NOW - 90 * DAY}], TimeToLive(DAY), [],
    ),
    # odek
    "identical summaries leave the newer": (said(SAME, SAME), Pipeline.odek(), [0]),
    "threshold zero leaves both": (said(SAME, SAME), Pipeline.odek(threshold=0), []),
    "an untrusted newer does not replace a trusted older": (
        said(SAME, SAME, trusted=(True, False)), Pipeline.odek(), [],
    ),
    "a cap of three of five keeps the newest three": (
        aged(5 * DAY, 4 * DAY, 3 * DAY, 2 * DAY, DAY), Pipeline.odek(keep=3), [0, 1],
    ),
    "newest goes by creation, not by insertion": (
        aged(DAY, 3 * DAY, 2 * DAY), KeepRecent(1, by="created_at"), [1, 2],
    ),
    "a ttl of seven days takes the row of ten": (
        aged(10 * DAY, timedelta(hours=2), timedelta(hours=1)), Pipeline.odek(ttl=WEEK), [0],
    ),
    "a ttl is passed after its moment": (
        aged(WEEK + timedelta(microseconds=1), WEEK), TimeToLive(WEEK), [0],
    ),
    "a cap of zero is off": (aged(3 * DAY, 2 * DAY, DAY), Pipeline.odek(keep=0), []),
    "newer goes by creation in dedup too": (
        [{"title": SAME, "created_at": NOW - DAY}, {"title": SAME, "created_at": NOW - WEEK}],
        Pipeline.odek(), [1],
    ),
    "words are told apart by letters and digits alone": (
        said("cache_size grew", "cache size, grew"), NearDuplicate(0.99), [0],
    ),
    "texts without words are nobody's duplicates": (
        said("", "", "...", "..."), NearDuplicate(), [],
    ),
    "load-bearing and superseded rows are not compared": (
        [
            {"title": SAME, "load_bearing": True},
            {"title": SAME},
            {"title": SAME, "active": False},
        ],
        NearDuplicate(), [],
    ),
    "bodies are compared when they are there": (
        [
            {"title": "shipped", "body": "one thing entirely"},
            {"title": "shipped", "body": "quite another"},
        ],
        NearDuplicate(), [],
    ),
    "a negative ttl is durable": (aged(365 * DAY), TimeToLive(-DAY), []),
    "duplicates go before the cap counts": (
        said(SAME, SAME, "one more thing"), Pipeline.odek(keep=2), [0],
    ),
    # MemForge
    "no budget keeps fifty": (of_importance(*[0.5] * 50), ImportanceBudget(None), []),
    "a budget of zero is off": (of_importance(*[0.5] * 50), ImportanceBudget(0), []),
    "thirty at a budget of twenty lose exactly the ten lowest": (
        of_importance(*[0.1 * i for i in range(30, 0, -1)]), ImportanceBudget(20),
        list(range(20, 30)),
    ),
    "a budget goes across namespaces": (
        of_importance(*[0.5] * 15, agent_id="g", namespace="a")
        + of_importance(*[0.9] * 20, agent_id="g", namespace="b"),
        ImportanceBudget(20), list(range(15)),
    ),
    "a graduated row is not exempt from the budget": (
        of_importance(0.5, 0.6, 0.7, 0.8, 0.9, 0.55, 0.65, 0.75, 0.85)
        + of_importance(0.1, graduated=True),
        ImportanceBudget(5), [0, 1, 5, 6, 9],
    ),
    "a graduated row is exempt from the floor": (
        of_importance(0.1, 0.2) + of_importance(0.1, graduated=True), ImportanceFloor(0.2), [0],
    ),
    "an importance never measured is not below the floor": (
        of_importance(float("nan"), 0.0), ImportanceFloor(0.5), [1],
    ),
    "a floor is 0.1 unless said": (of_importance(0.05, 0.1, 0.2), ImportanceFloor(), [0]),
    "an importance at the floor is compared as it is kept": (
        of_importance(float(np.float32(0.7)), 0.69), ImportanceFloor(0.7), [1],
    ),
    "an importance that is no number goes last": (
        of_importance(float("nan"), 3.0, 0.1), ImportanceBudget(1), [1, 2],
    ),
    "equal in single precision is a tie": (
        of_importance(0.1 + 1e-12, 0.1), ImportanceBudget(1), [0],
    ),
    "the order of MemForge has defaults": (
        of_importance(0.05, *[0.5] * 60), Pipeline.memforge(), [0],
    ),
    # memlab's own
    "a budget in tokens drops the oldest until the rest fits": (
        [{"tokens": 10 * n} for n in range(1, 7)], TokenBudget(120), [0, 1, 2, 3],
    ),
    "load-bearing rows come on top of what is learned": (
        [{"load_bearing": n % 3 > 0} for n in range(9)], Learned(1), [0, 3],
    ),
    "load-bearing rows take up a budget in tokens": (
        [{"load_bearing": True}, {}, {}, {}], TokenBudget(25), [1, 2],
    ),
    "superseded episodes of the age go, decisions stay": (
        [
            {"active": False, "created_at": NOW - 9 * DAY},
            {"active": False, "created_at": NOW - 9 * DAY, "load_bearing": True},
            {"active": False, "created_at": NOW - DAY},
            {"created_at": NOW - 9 * DAY},
        ],
        PurgeSuperseded(WEEK), [0],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "policy", "gone"), CASES.values(), ids=CASES)
def test_published_case(rows: list[dict[str, Any]], policy: Policy, gone: list[int]) -> None:
    assert went(memories(rows), policy) == [f"m{i}" for i in gone]


def test_a_cap_is_exact_beyond_ten_thousand_rows() -> None:
    frame = memories(of_importance(*np.linspace(1, 0, 12_000)))
    assert kept(frame, ValueCap(7, scope=())) == [f"m{i}" for i in range(7)]


@pytest.mark.parametrize(("lives", "left"), [(4, 0.0625), (-3, 8.0), (-2000, 2.0**1000)])
def test_recency_halves_with_each_half_life(lives: int, left: float) -> None:
    assert recency_decay(lives * WEEK, WEEK) == left
    assert recency_decay(np.array([lives * 7.0]), 7.0).tolist() == [left]


def test_an_eviction_scores_recency_and_importance() -> None:
    assert value_score(WEEK, 1.0) == pytest.approx((0.15 + 0.125) / 0.4)


def test_near_duplicates_name_what_replaces_them() -> None:
    frame = memories(said(SAME, "tea grows in shade", SAME + " again"))
    pairs = near_duplicates(frame, NearDuplicate(0.9))
    assert pairs["memory_id"].tolist() == ["m0"]
    assert pairs["replaced_by"].tolist() == ["m2"]
    assert pairs["similarity"].tolist() == pytest.approx([76 / (74 * 83) ** 0.5])


PAIRS = {
    ("the build broke on the lockfile", "the build broke on the lockfile"): 1.0,
    ("retry retry retry backoff", "retry backoff"): 0.857,
    ("shipped the cache behind the new flag", "shipped the cache behind the new switch"): 0.944,
    ("tea grows in shade", "the deploy failed"): 0.0,
    ("shipped_é", "shipped ü"): 0.5,
    ("x² grew", "x grew"): 1.0,
    ("ŁÓDŹ İstanbul ΣΊΣΥΦΟΣ", "łódź istanbul σίσυφοσ"): 1.0,
}  # fmt: skip
"""Texts, and their cosine in odek without its projection, as odek's own code gives it."""


@pytest.mark.parametrize(("texts", "cosine"), PAIRS.items())
def test_a_likeness_is_that_of_odek_without_its_projection(
    texts: tuple[str, str], cosine: float
) -> None:
    found = near_duplicates(memories(said(*texts)), NearDuplicate(0.01))["similarity"]
    assert found.tolist() == pytest.approx([cosine] if cosine else [], abs=0.001)


def test_embeddings_may_be_passed_in() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.1]])
    frame = memories(said("a", "b", "c"))
    assert went(frame, NearDuplicate(vectorise=lambda texts: vectors[: len(texts)])) == ["m0"]
    assert went(frame, NearDuplicate(vectorise=lambda texts: csr_matrix(vectors))) == ["m0"]


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (np.ones((1, 3)), "1 vectors for 2 texts"),
        (np.array([[1.0], [np.nan]]), "NaN"),
        (csr_matrix([[1.0], [np.inf]]), "infinity"),
        ([0.5, 0.5], "not a matrix"),
    ],
)
def test_vectors_that_fit_no_text_are_refused(vectors: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decide(memories(said("a", "b")), NearDuplicate(vectorise=lambda _: vectors), now=NOW)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])

    monkeypatch.setattr("memlab.lazy.import_module", not_installed)
    with pytest.raises(MissingExtraError, match=r"run: .* -m pip install 'scikit-learn"):
        decide(memories(said("a", "b")), NearDuplicate(), now=NOW)


def replaced_by_hand(vectors: np.ndarray, trust: np.ndarray, threshold: float) -> dict[int, int]:
    """Compare all pairs, in order, until nothing more goes."""
    length = np.linalg.norm(vectors, axis=1)
    unit = vectors / np.where(length == 0, 1, length)[:, None]
    alive, winner, changed = list(range(len(vectors))), {}, True
    while changed:
        changed = False
        for row in list(alive):
            older = [other for other in alive if other < row]
            if not older:
                continue
            best = max(older, key=lambda other: (round(unit[row] @ unit[other], 9), other))
            if unit[row] @ unit[best] >= threshold - 1e-9 and trust[row] >= trust[best]:
                winner[best] = row
                alive.remove(best)
                changed = True
    return winner


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=12),
    st.sampled_from([0.5, 0.8, 0.92, 1.0]),
    st.data(),
)
def test_duplicates_are_those_of_comparing_all_pairs(
    counts: list[list[int]], threshold: float, data: st.DataObject
) -> None:
    vectors = np.array(counts, dtype=float)
    trust = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    expected = replaced_by_hand(vectors, trust, threshold)
    for matrix in (csr_matrix(vectors), vectors):
        winner, similarity = replace_older(matrix, trust, threshold)
        assert {int(i): int(winner[i]) for i in np.flatnonzero(winner >= 0)} == expected
        assert ((similarity >= 0) == (winner >= 0)).all()
