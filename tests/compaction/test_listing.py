"""``memlab.rows``, the effect of a cap, and the cost of a plan."""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.base_activation import base_level_of_days, per_length
from memlab.compaction import Cost, cost_of
from memlab.errors import MemlabError
from memlab.items import Size
from memlab.settings import FILE
from memlab.sizing import cap_effect, survivors
from memlab.views.memory_table import BY, FACTS, LABELS, WHERE, table_of
from tests.support.frames import ROWS_OF_ANY_KIND, START, frame_of, make_frame, make_log
from tests.support.shell import output_of
from tests.support.stores import episodes, item, row, run_sql, write_rows

WRITTEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = WRITTEN + timedelta(days=100)


def log_of(*reads: tuple[str, float]) -> pd.DataFrame:
    """Return a log of reads, each with its days after the memories were written."""
    hours_until_written = (pd.Timestamp(WRITTEN) - START) / pd.Timedelta(hours=1)
    reads_in_hours = [(memory_id, hours_until_written + 24 * day) for memory_id, day in reads]
    return make_log(*reads_in_hours)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store: a decision, a superseded episode, ten episodes (two deleted), one reference."""
    rows = [row("d", "semantic"), row("old", superseded_by="e1"), *episodes(10)]
    rows[-1]["evidence_refs_json"] = '["e9"]'
    rows[-1]["body"] = "long " * 100
    path = write_rows(tmp_path / "memory.db", rows)
    memlab.apply(memlab.plan(path, memlab.KeepRecent(8)))
    return path


def test_rows_have_label_cost_reads_and_references(store: Path) -> None:
    log = log_of(("e9", 1), ("e9", 20), ("e5", 6), ("gone", 7), ("d", 101))
    listed = memlab.rows(store, memlab.KeepRecent(2), log=log, now=NOW).set_index("memory_id")
    assert dict(listed["label"].value_counts()) == {
        "prunable": 8,
        "load-bearing": 1,
        "superseded": 1,
        "retired": 0,
        "reached": 0,
        "unlisted": 0,
        "deleted": 0,
    }
    assert listed.index[0] == "e10", "by tokens"
    e9 = listed.loc["e9"]
    assert e9["label"] == "prunable"
    assert e9["age_days"] == 100
    assert e9["reads"] == 2
    assert e9["references"] == 1
    assert set(listed.index[listed["keep"]]) == {"d", "old", "e9", "e10"}
    assert listed.loc["e8", "chance"] == "unread"
    assert listed.loc["e8", "reason"] == "beyond-newest"
    assert listed.loc["d", "reads"] == 0, "read after now"
    deleted = memlab.rows(store, memlab.KeepRecent(2), where="deleted", now=NOW)
    assert table_of(deleted, most=9, width=80).heading == "all deleted"
    assert set(deleted["memory_id"]) == {"e1", "e2"}
    assert deleted["deleted_at"].notna().all()


def test_need_is_activation_per_length(store: Path) -> None:
    log = log_of(("e9", 1), ("e9", 15), ("e5", 29))
    listed = memlab.rows(store, log=log, by="need", now=NOW)
    by_id = listed.set_index("memory_id")
    age = 100
    days_since_e5 = [age - 29]
    need_of_e5 = per_length(base_level_of_days(age, days_since_e5), by_id.loc["e5", "tokens"])
    days_since_e9 = [age - 1, age - 15, age]  # two reads and a reference
    need_of_e9 = per_length(base_level_of_days(age, days_since_e9), by_id.loc["e9", "tokens"])
    assert by_id.loc["e5", "need"] == pytest.approx(need_of_e5)
    assert by_id.loc["e9", "need"] == pytest.approx(need_of_e9)
    assert dict(listed.attrs[FACTS])["need"].startswith("activation by reads and references")
    without = memlab.rows(store, by="need", now=NOW)
    assert without["reads"].isna().all()
    facts = dict(without.attrs[FACTS])
    assert facts["reads"].startswith("not known: no access log; memlab harvest")


@pytest.mark.long
@given(
    ROWS_OF_ANY_KIND,
    st.integers(0, 10),
    st.sampled_from(sorted(BY)),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 300)), max_size=10),
)
def test_rows_lists_every_memory_once_with_its_decision(
    drawn: list[dict[str, Any]], cap: int, by: str, reads: list[tuple[int, int]]
) -> None:
    frame = frame_of(drawn)
    policy = memlab.KeepRecent(cap)
    named_reads = [(f"m{number}", hours) for number, hours in reads]
    log = make_log(*named_reads)
    listed = memlab.rows(frame, policy, by=by, log=log, now=NOW)
    assert sorted(listed["memory_id"]) == sorted(frame["memory_id"])
    assert listed[BY[by]].is_monotonic_decreasing
    parts = {state: memlab.rows(frame, policy, where=state, log=log, now=NOW) for state in WHERE}
    assert sum(len(parts[label]) for label in LABELS) == len(frame)
    is_kept = memlab.decide(frame, policy, now=NOW)["keep"]
    assert set(parts["not-kept"]["memory_id"]) == set(frame["memory_id"][~is_kept])
    references = memlab.find_references(frame, log, now=NOW)
    assert listed["reads"].sum() + listed["references"].sum() == len(references)


def test_rows_uses_the_policy_and_log_of_the_settings(store: Path) -> None:
    log = memlab.AccessLog(store.with_name("reads.log"))
    log.extend([{"memory_id": "e9", "at": (WRITTEN + timedelta(days=1)).isoformat()}])
    policy = 'policy = { name = "recent", keep = 3 }\nlog = "reads.log"\n'
    store.with_name(FILE).write_text(policy)
    listed = memlab.rows(store, where="not-kept", now=NOW)
    planned = memlab.plan(store, memlab.KeepRecent(3)).memories
    assert set(listed["memory_id"]) == {memory.memory_id for memory in planned}
    assert listed["reads"].sum() == 0
    unread = memlab.rows(store, where="unread", now=NOW)["memory_id"]
    all_but_e9 = {"d", "old", "e3", "e4", "e5", "e6", "e7", "e8", "e10"}
    assert set(unread) == all_but_e9
    sized = "sized = { memories = 1, until = 2, at = 2026-01-01T00:00:00Z }"
    store.with_name(FILE).write_text(policy.replace("3 }", f"3, {sized} }}"))
    listed = memlab.rows(store, now=NOW)
    assert "keep" not in listed
    assert "sizes it again" in dict(listed.attrs[FACTS])["memlab.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "not-kept"}, "only a policy can tell"),
        ({"where": "unread"}, "only an access log can tell"),
        ({"where": "all"}, "where must be one of load-bearing, prunable, "),
        ({"by": "size"}, "by must be one of tokens, reads, references, need, age, not 'size'"),
    ],
)
def test_rows_rejects_unanswerable_arguments(
    store: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((MemlabError, ValueError), match=message):
        memlab.rows(store, **arguments)


def test_need_in_a_searched_store_suggests_what_to_load() -> None:
    odek = Path(memlab.store_path("two_years")).with_name("odek")
    log = memlab.read_access_log(odek.with_name("odek.reads.jsonl"))
    with_log = memlab.rows(odek, by="need", log=log)
    assert dict(with_log.attrs[FACTS])["need"].endswith("worth loading at start")
    without_log = memlab.rows(odek, by="need")
    assert not dict(without_log.attrs[FACTS])["need"].endswith("worth loading at start")


def test_table_fits_its_width_and_omits_shared_columns(store: Path) -> None:
    policy = memlab.KeepRecent(2)
    table = table_of(memlab.rows(store, policy, where="not-kept"), most=3, width=80)
    assert table.heading == "all prunable, none kept"
    assert table.remark == "and 3 more"
    assert table.header == ("id", "tokens", "days", "refs", "title")
    page = memlab.text.as_text(memlab.text.TextPage("", [], [table]))
    assert max(map(len, page.splitlines())) <= 80


def test_rows_without_itables_displays_as_a_frame(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "itables", None)
    listed = memlab.rows(store, now=NOW)
    assert listed._repr_html_() == pd.DataFrame(listed)._repr_html_()


# Effect and cost of a compaction


def test_cap_effect_deletes_the_oldest_and_dates_the_cut() -> None:
    frame = make_frame("a", {c.MEMORY_ID: "d", c.KIND: "semantic"}, "b", "c", "e")
    effect = cap_effect(frame, 2)
    created = list(frame[c.CREATED_AT])
    assert effect.deleted == Size(2, 20)
    assert effect.before.memories == 5
    assert effect.after.memories == 3
    assert effect.after.load_bearing == Size(1, 10)
    assert effect.after.prunable_by_memories == 2 / 3
    assert effect.newest_deleted == created[2]
    assert effect.oldest_kept == created[3]
    assert effect.newest_kept == created[4]


def test_cap_effect_of_zero_and_of_a_cap_without_effect() -> None:
    frame = make_frame("a", {c.MEMORY_ID: "d", c.KIND: "semantic"}, "b", "c", "e")
    keeping_none = cap_effect(frame, 0)
    assert keeping_none.after.prunable_by_memories == 0
    assert keeping_none.oldest_kept is None
    assert keeping_none.newest_kept is None
    keeping_all = cap_effect(frame, 10)
    assert keeping_all.deleted == Size(0, 0)
    assert keeping_all.newest_deleted is None


@given(rows=ROWS_OF_ANY_KIND, keep_recent=st.integers(0, 12))
def test_cap_effect_equals_compact_episodic(rows: list[dict[str, Any]], keep_recent: int) -> None:
    with memlab.SqliteMemoryStore(":memory:") as store:
        for number, memory in enumerate(rows):
            by = memory[c.SUPERSEDED_BY]
            store.put(item(f"m{number}", memory[c.KIND], *memory[c.TAGS], superseded_by=by))
        removed = store.compact_episodic(keep_recent)
        remaining_ids = {item.memory_id for item in store.list_active()}
    frame = frame_of(rows)
    kept = survivors(frame, keep_recent)
    assert set(kept.loc[kept[c.ACTIVE], c.MEMORY_ID]) == remaining_ids
    assert len(frame) - len(kept) == removed
    assert cap_effect(frame, keep_recent).deleted.memories == removed


@pytest.fixture(scope="module")
def issues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("issues")
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), folder / "memory.db")


def test_cost_of_a_cap_agrees_with_sizing(issues: Path) -> None:
    advice = memlab.recommend_cap(issues)
    served = memlab.sizing.cap_curve(issues).loc[50]
    cost = cost_of(memlab.plan(issues, memlab.KeepRecent(50), now=NOW))
    assert cost.lost == pytest.approx(1 - served["served"])
    assert cost.lost_limits == pytest.approx((1 - served["high"], 1 - served["low"]))
    assert cost.safe == advice.keep_recent
    assert cost.likely == advice.likely
    assert cost.references == advice.references
    at_safe = cost_of(memlab.plan(issues, memlab.KeepRecent(advice.keep_recent), now=NOW))
    assert at_safe.lost < 0.1
    assert cost.lost > 0.1


def test_cost_of_a_token_budget_agrees_with_sizing(issues: Path) -> None:
    sized = memlab.size(issues, unit="tokens")
    advice = sized.advice
    served = sized.sizing.at([3_000]).loc[3_000]
    cost = cost_of(memlab.plan(issues, memlab.TokenBudget(3_000), now=NOW))
    assert cost.lost == pytest.approx(1 - served["served"])
    assert cost.safe == advice.max_tokens
    assert cost.likely == advice.likely


@pytest.mark.parametrize(
    "policy", [memlab.KeepRecent(50), memlab.TimeToLive(timedelta(days=20)), memlab.Activation(90)]
)
def test_cost_counts_references_to_deleted_memories(issues: Path, policy: memlab.Policy) -> None:
    targets = memlab.find_references(issues)["target_id"].tolist()
    reads = [(target, 1) for target in targets[:30]]
    log = log_of(*reads)
    listed = memlab.rows(issues, policy, where="not-kept", log=log, now=NOW)["memory_id"]
    plan_with_log = memlab.plan(issues, policy, log=log, now=NOW)
    assert {memory.memory_id for memory in plan_with_log.memories} == set(listed)
    plan = memlab.plan(issues, policy, now=NOW)
    deleted = {memory.memory_id for memory in plan.memories}
    references_to_deleted = [target for target in targets if target in deleted]
    cost = cost_of(plan)
    assert cost.to_deleted > 0
    assert cost.to_deleted == len(references_to_deleted)
    in_words = f"{cost.to_deleted} of {len(targets)} later needs were of a memory that it"
    if cost.missed is not None:
        in_words = f"{cost.missed} of {len(targets)} later needs ("
    assert in_words in str(cost)
    if isinstance(policy, memlab.KeepRecent):
        assert cost.lost is not None
    else:
        assert cost.lost is None


def test_past_outside_the_limits_is_explained() -> None:
    estimate: Any = {"lost": 0.068, "lost_limits": (0.045, 0.1), "safe": 9, "likely": 5}
    cost = Cost(**estimate, target=0.9, references=100, to_deleted=0, missed=4)
    assert "4 of 100 later needs (4.0%), if applied from the start; the estimate" in str(cost)
    inside = replace(cost, missed=6)
    assert "the estimate for later needs" not in str(inside)
    short = str(replace(inside, horizon_too_short=True, missed=0))
    assert "0 of 100 later needs (0.0%), if applied from the start; more will be missed" in short


def test_dry_run_prints_cost_as_text_and_json(issues: Path) -> None:
    cost = cost_of(memlab.plan(issues, memlab.KeepRecent(50), now=NOW))
    assert cost.lost_limits is not None
    low, high = cost.lost_limits
    output = output_of("compact", issues, "--keep-recent", 50)
    assert f"about {cost.lost:.1%} would not find their memory" in output
    assert f"limits {low:.1%} to {high:.1%}" in output
    assert f"{cost.safe} is safe, {cost.likely} is likely" in output
    printed = output_of("compact", issues, "--keep-recent", 50, "--json")
    assert json.loads(printed)["cost"] == json.loads(cost.to_json())
    plan = memlab.Plan.from_json(printed)
    assert len(plan.memories) == 542
    *plan_lines, end_of_list, _cost, end = printed.splitlines()
    assert end_of_list == "],"
    assert [*plan_lines, "]", end] == plan.to_json().splitlines()
    assert "what that costs" not in output_of("compact", issues, "--keep-recent", 600)


def test_unknown_cost_does_not_fail_the_dry_run(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    (tmp_path / "memlab.toml").write_text('log = "gone.jsonl"\n')
    compact = ("compact", store, "--keep-recent", 3)
    for arguments in (compact, (*compact, "--json")):
        assert "is not known: " in output_of(*arguments)
    (tmp_path / "memlab.toml").unlink()
    assert "no later need is known" in output_of(*compact)
    run_sql(store, "DELETE FROM memory_items")
    assert "nothing to do" in output_of(*compact)
