"""What a compaction would do: to a boot context, and to later references and reads."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from frames import ROWS_OF_ANY_KIND, frame_of, make_frame, row
from hypothesis import given
from hypothesis import strategies as st
from shell import said
from stores import episodes, item, run_sql, write_rows

import memlab
from memlab import columns as c
from memlab.compaction import cap_effect, cost_of, survivors
from memlab.items import Size

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def test_a_cap_deletes_the_oldest_and_says_where_it_cuts() -> None:
    frame = make_frame("a", row("d", **{c.KIND: "semantic"}), "b", "c", "e")
    effect, created = cap_effect(frame, 2), list(frame[c.CREATED_AT])
    assert effect.deleted == Size(2, 20)
    assert (effect.before.memories, effect.after.memories) == (5, 3)
    assert effect.after.load_bearing == Size(1, 10)
    assert effect.after.prunable_by_memories == 2 / 3
    assert effect.newest_deleted == created[2]
    assert (effect.oldest_kept, effect.newest_kept) == (created[3], created[4])
    none, every = cap_effect(frame, 0), cap_effect(frame, 10)
    assert (none.after.prunable_by_memories, none.oldest_kept, none.newest_kept) == (0, None, None)
    assert (every.deleted, every.newest_deleted) == (Size(0, 0), None)


@given(rows=ROWS_OF_ANY_KIND, keep_recent=st.integers(0, 12))
def test_a_preview_is_what_a_store_would_do(rows: list[dict[str, Any]], keep_recent: int) -> None:
    with memlab.SqliteMemoryStore(":memory:") as store:
        for number, one in enumerate(rows):
            by = one[c.SUPERSEDED_BY]
            store.put(item(f"m{number}", one[c.KIND], *one[c.TAGS], superseded_by=by))
        removed = store.compact_episodic(keep_recent)
        left = {item.memory_id for item in store.list_active()}
    frame = frame_of(rows)
    kept = survivors(frame, keep_recent)
    assert set(kept.loc[kept[c.ACTIVE], c.MEMORY_ID]) == left
    assert cap_effect(frame, keep_recent).deleted.memories == removed == len(frame) - len(kept)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("issues")
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), folder / "memory.db")


def test_a_cap_or_a_budget_costs_what_sizing_says_that_it_does_not_serve(store: Path) -> None:
    advice = memlab.recommend_cap(store)
    served = memlab.sizing.cap_curve(store).loc[50]
    cost = cost_of(memlab.plan(store, memlab.KeepRecent(50), now=NOW))
    assert cost.lost == pytest.approx(1 - served["served"])
    assert cost.lost_limits == pytest.approx((1 - served["high"], 1 - served["low"]))
    assert (cost.safe, cost.likely) == (advice.keep_recent, advice.likely)
    assert cost.references == advice.references
    at_safe = cost_of(memlab.plan(store, memlab.KeepRecent(advice.keep_recent), now=NOW))
    assert at_safe.lost < 0.1 < cost.lost
    sized = memlab.size(store, unit="tokens")
    advice, served = sized.advice, sized.sizing.at([3_000]).loc[3_000]
    cost = cost_of(memlab.plan(store, memlab.TokenBudget(3_000), now=NOW))
    assert cost.lost == pytest.approx(1 - served["served"])
    assert (cost.safe, cost.likely) == (advice.max_tokens, advice.likely)


@pytest.mark.parametrize(
    "policy", [memlab.KeepRecent(50), memlab.TimeToLive(timedelta(days=20)), memlab.Learned(90)]
)
def test_a_plan_counts_the_references_to_what_goes(store: Path, policy: memlab.Policy) -> None:
    plan = memlab.plan(store, policy, now=NOW)
    gone = {memory.memory_id for memory in plan.memories}
    targets = memlab.find_references(store)["target_id"].tolist()
    cost = cost_of(plan)
    assert cost.to_deleted == sum(target in gone for target in targets) > 0
    assert f"{cost.to_deleted} of {len(targets)} references led to what it deletes" in str(cost)
    assert (cost.lost is None) == (not isinstance(policy, memlab.KeepRecent))


def test_the_dry_run_says_it_in_words_and_in_json(store: Path) -> None:
    cost = cost_of(memlab.plan(store, memlab.KeepRecent(50), now=NOW))
    low, high = cost.lost_limits or (0, 0)
    shown = said("compact", store, "--keep-recent", 50)
    assert f"about {cost.lost:.1%} would find their memory gone" in shown
    assert f"limits {low:.1%} to {high:.1%}" in shown
    assert f"{cost.safe} is safe, {cost.likely} is likely" in shown
    told = said("compact", store, "--keep-recent", 50, "--json")
    assert json.loads(told)["cost"] == json.loads(cost.to_json())
    plan, lines = memlab.Plan.from_json(told), told.splitlines()
    assert len(plan.memories) == 542
    assert [*lines[:-3], "]", "}"] == plan.to_json().splitlines()
    assert "what that costs" not in said("compact", store, "--keep-recent", 600)


def test_what_it_costs_is_no_reason_to_fail(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    (tmp_path / "memlab.toml").write_text('log = "gone.jsonl"\n')
    compact = ("compact", store, "--keep-recent", 3)
    for words in (compact, (*compact, "--json")):
        assert "is not known: " in said(*words)
    (tmp_path / "memlab.toml").unlink()
    assert "no reference or read is known" in said(*compact)
    run_sql(store, "DELETE FROM memory_items")
    assert "nothing to do" in said(*compact)
