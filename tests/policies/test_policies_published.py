"""Published test cases of the four systems, one row a case; duplicate detection."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from memlab import Activation, NearDuplicate, Pipeline, Policy, TimeToLive, TokenBudget, decide
from memlab.errors import MissingExtraError
from memlab.policies import ImportanceBudget, ImportanceFloor, PurgeSuperseded, ValueCap
from memlab.policies.duplicates import near_duplicates, replace_older
from memlab.policies.rules import recency_decay, value_score
from tests.support.decisions import DAY, NOW, deleted_ids, memories
from tests.support.properties import examples

WEEK = 7 * DAY


def rows_of(**columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Return memories with the given values of columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def ago(*days: float) -> list[datetime]:
    return [NOW - day * DAY for day in days]


OF_ALL = ValueCap(1, scope=())
SAME = "the deploy failed because the port was taken"
INSTANT = timedelta(microseconds=1)

CASES: dict[str, tuple[list[dict[str, Any]], Policy, list[int]]] = {
    # BetterDB agent-memory
    "low then middle importance": (rows_of(importance=[0.1, 0.5, 0.9]), OF_ALL, [0, 1]),
    "oldest then middle": (rows_of(last_accessed_at=ago(0, 7, 28)), OF_ALL, [1, 2]),
    "an important but stale row loses if recency has weight": (
        rows_of(last_accessed_at=ago(42, 0), importance=[0.9, 0.1]),
        ValueCap(1, recency=0.9, importance=0.1, scope=()), [0],
    ),
    "a negative cap deletes everything": ([{}, {}], ValueCap(-5, scope=()), [0, 1]),
    "without weights the older last access goes": (
        rows_of(last_accessed_at=ago(0, 7), importance=[0.0, 1.0]),
        ValueCap(1, recency=0, importance=0, scope=()), [1],
    ),
    "infinite importance counts as missing": (rows_of(importance=[float("inf"), 0.1]), OF_ALL, [0]),
    "a last access that is missing is the epoch": (
        rows_of(last_accessed_at=[None, *ago(3_500)]), OF_ALL, [0],
    ),
    "tags outside of the scope setting make no scopes": (
        rows_of(agent_id=["a", "a"], tags=[("x",), ("y",)]), ValueCap(1, scope=("agent_id",)), [0],
    ),
    "a scope of a thread excludes other threads": (
        rows_of(agent_id=["a", "a"], thread_id=["t1", "t2"]), ValueCap(1), [],
    ),
    "case makes no difference to agents and tags": (
        rows_of(importance=[0.9, 0.1], agent_id=["A", "a"], tags=[("X",), ("x",)]),
        ValueCap(1), [1],
    ),
    "a row expires only after its expiry time": (
        rows_of(expires_at=[NOW - INSTANT, NOW]), TimeToLive(), [0],
    ),
    "the row's own expiry precedes the age": (
        rows_of(expires_at=ago(-1), created_at=ago(90)), TimeToLive(DAY), [],
    ),
    # odek
    "threshold zero keeps both": (rows_of(title=[SAME, SAME]), Pipeline.odek(threshold=0), []),
    "an untrusted newer is not stored beside a trusted older": (
        rows_of(title=[SAME, SAME], trusted=[True, False]), Pipeline.odek(), [1],
    ),
    "until July 2026 an untrusted newer stayed beside a trusted older": (
        rows_of(title=[SAME, SAME], trusted=[True, False]),
        Pipeline.odek(keep_untrusted=True), [],
    ),
    "odek ignores a row's own expiry": (
        rows_of(expires_at=[NOW - DAY, NOW - DAY]), Pipeline.odek(), [],
    ),
    "odek's age counts from creation despite a row's own expiry": (
        rows_of(expires_at=[NOW + DAY, NOW + DAY], created_at=ago(24 * 9, 1)),
        Pipeline.odek(ttl=7 * DAY), [0],
    ),
    "the newest by creation are kept": (
        rows_of(created_at=ago(1, 5, 3, 2, 4)), Pipeline.odek(keep=3), [1, 4],
    ),
    "a row expires only after its ttl": (
        rows_of(created_at=[NOW - DAY - INSTANT, NOW - DAY]), Pipeline.odek(ttl=DAY), [0],
    ),
    "a cap of zero is off": ([{}, {}, {}], Pipeline.odek(keep=0), []),
    "deduplication also orders by creation": (
        rows_of(title=[SAME, SAME], created_at=ago(1, 7)), Pipeline.odek(), [1],
    ),
    "words are letters and digits": (
        rows_of(title=["cache_size grew", "cache size, grew"]), NearDuplicate(0.99), [0],
    ),
    "wordless texts have no duplicates": (rows_of(title=["", "", ".", "."]), NearDuplicate(), []),
    "load-bearing and superseded rows are not compared": (
        rows_of(title=[SAME] * 3, load_bearing=[True, False, False], active=[True, True, False]),
        NearDuplicate(), [],
    ),
    "bodies are compared if they are loaded": (
        rows_of(title=["shipped"] * 2, body=["one thing entirely", "quite another"]),
        NearDuplicate(), [],
    ),
    "a negative ttl is durable": (rows_of(created_at=ago(365)), TimeToLive(-DAY), []),
    "a ttl of zero is durable": (rows_of(created_at=ago(365)), TimeToLive(0 * DAY), []),
    "duplicates are deleted before the cap applies": (
        rows_of(title=["one more thing", SAME, SAME]), Pipeline.odek(keep=2), [1],
    ),
    # MemForge
    "the default budget keeps fifty": ([{}] * 50, ImportanceBudget(None), []),
    "a budget of zero is off": ([{}] * 50, ImportanceBudget(0), []),
    "a graduated row is not exempt from the budget": (
        rows_of(importance=[0.5, 0.9, 0.6, 0.1], graduated=[False] * 3 + [True]),
        ImportanceBudget(2), [0, 3],
    ),
    "a graduated row is exempt from the default floor of 0.1": (
        rows_of(importance=[0.05, 0.1, 0.05], graduated=[False, False, True]),
        ImportanceFloor(), [0],
    ),
    "an importance never measured is not below the floor": (
        rows_of(importance=[float("nan"), 0.0]), ImportanceFloor(0.5), [1],
    ),
    "an importance at the floor is compared as it is kept": (
        rows_of(importance=[float(np.float32(0.7)), 0.69]), ImportanceFloor(0.7), [1],
    ),
    "a non-numeric importance is deleted last": (
        rows_of(importance=[float("nan"), 3.0, 0.1]), ImportanceBudget(1), [1, 2],
    ),
    "equal in single precision is a tie": (
        rows_of(importance=[0.1 + 1e-12, 0.1]), ImportanceBudget(1), [0],
    ),
    "MemForge's order has default values": (
        rows_of(importance=[0.05, *[0.5] * 60]), Pipeline.memforge(), [0],
    ),
    # memlab
    "a budget in tokens drops the oldest until the rest fits": (
        rows_of(tokens=[10, 20, 30, 40, 50, 60]), TokenBudget(120), [0, 1, 2, 3],
    ),
    "load-bearing rows come on top of what is active": (
        rows_of(load_bearing=[False, True, True] * 3), Activation(1), [0, 3],
    ),
    "load-bearing rows take up a budget in tokens": (
        rows_of(load_bearing=[True, False, False, False]), TokenBudget(25), [1, 2],
    ),
    "old superseded episodes are deleted, decisions stay": (
        rows_of(
            active=[False] * 3 + [True],
            load_bearing=[False, True, False, False],
            created_at=ago(9, 9, 1, 9),
        ),
        PurgeSuperseded(WEEK), [0],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "policy", "deleted"), CASES.values(), ids=CASES)
def test_published_case_is_reproduced(
    rows: list[dict[str, Any]], policy: Policy, deleted: list[int]
) -> None:
    assert deleted_ids(memories(rows), policy) == [f"m{number}" for number in deleted]


@pytest.mark.parametrize(("lives", "recency"), [(4, 0.0625), (-3, 8.0), (-2000, 2.0**1000)])
def test_recency_halves_with_each_half_life(lives: int, recency: float) -> None:
    assert recency_decay(lives * WEEK, WEEK) == recency
    assert recency_decay(np.array([lives * 7.0]), 7.0).tolist() == [recency]


def test_value_score_weighs_recency_and_importance() -> None:
    assert value_score(WEEK, 1.0) == pytest.approx((0.15 + 0.125) / 0.4)


def test_near_duplicates_name_what_replaces_them() -> None:
    frame = memories(rows_of(title=[SAME, "tea grows in shade", SAME + " again"]))
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
"""Texts, and their cosine by odek's own code without its projection."""


@pytest.mark.parametrize(("texts", "cosine"), PAIRS.items())
def test_similarity_equals_odek_without_projection(texts: tuple[str, str], cosine: float) -> None:
    frame = memories(rows_of(title=texts))
    pairs = near_duplicates(frame, NearDuplicate(0.01))
    if cosine == 0.0:
        assert pairs.empty
    else:
        assert pairs["similarity"].tolist() == pytest.approx([cosine], abs=0.001)


def test_embeddings_can_be_supplied() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.1]])
    frame = memories(rows_of(title="abc"))
    assert deleted_ids(frame, NearDuplicate(vectorise=lambda texts: vectors[: len(texts)])) == [
        "m0"
    ]
    assert deleted_ids(frame, NearDuplicate(vectorise=lambda texts: csr_matrix(vectors))) == ["m0"]


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.ones((1, 3)), "1 vectors for 2 texts"),
        (np.array([[1.0], [np.nan]]), "NaN"),
        (csr_matrix([[1.0], [np.inf]]), "infinity"),
        ([0.5, 0.5], "not a matrix"),
    ],
)
def test_vectors_of_the_wrong_shape_are_rejected(vectors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decide(memories(rows_of(title="ab")), NearDuplicate(vectorise=lambda _: vectors), now=NOW)


def test_missing_scipy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])

    monkeypatch.setattr("memlab.lazy.import_module", not_installed)
    with pytest.raises(MissingExtraError, match=r"this needs scipy, .* -m pip install"):
        decide(memories(rows_of(title="ab")), NearDuplicate(), now=NOW)


def duplicates_by_brute_force(
    vectors: np.ndarray, trust: np.ndarray, threshold: float, *, keep_untrusted: bool
) -> dict[int, int]:
    """Compare all pairs in order; return the replacement of each duplicate."""
    length = np.linalg.norm(vectors, axis=1)
    unit = vectors / np.where(length == 0, 1, length)[:, None]
    alive = list(range(len(vectors)))
    winner = {}
    changed = True
    while changed:
        changed = False
        for row in list(alive):
            older = [other for other in alive if other < row]
            if not older:
                continue
            best = max(older, key=lambda other: (round(unit[row] @ unit[other], 9), other))
            if unit[row] @ unit[best] < threshold - 1e-9:
                continue
            if trust[row] >= trust[best]:
                winner[best] = row
                alive.remove(best)
                changed = True
            elif not keep_untrusted:
                winner[row] = best
                alive.remove(row)
                changed = True
    return winner


@settings(max_examples=examples(200))
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=12),
    st.sampled_from([0.5, 0.8, 0.92, 1.0]),
    st.data(),
)
def test_duplicates_equal_brute_force_comparison(
    counts: list[list[int]], threshold: float, data: st.DataObject
) -> None:
    vectors = np.array(counts, dtype=float)
    trust = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    keep_untrusted = data.draw(st.booleans())
    expected = duplicates_by_brute_force(vectors, trust, threshold, keep_untrusted=keep_untrusted)
    policy = NearDuplicate(threshold, keep_untrusted=keep_untrusted)
    for matrix in (csr_matrix(vectors), vectors):
        winner, similarity = replace_older(matrix, trust, policy)
        is_replaced = winner >= 0
        duplicates = np.flatnonzero(is_replaced).tolist()
        assert dict(zip(duplicates, winner[is_replaced].tolist(), strict=True)) == expected
        assert (similarity >= 0).tolist() == is_replaced.tolist()
