"""Sizing and compacting in any sequence never lowers the next number."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.compaction import archived_plans, drop_archived
from memlab.evidence.past import Gaps, fill_missing_rows, gaps_of, load_past
from memlab.policies import KeepRecent, TokenBudget
from memlab.sizing import Verdict, recommend_cap
from memlab.store import SqliteMemoryStore
from tests.support.histories import recommend_budget, recorded_rows
from tests.support.stores import Row, episodes, row, run_sql, write_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
Recommend = Callable[..., Any]


def advice(store: Path, recommend: Recommend = recommend_cap) -> Any:
    return recommend(load_past(store))


def recommended_plan(store: Path, recommend: Recommend) -> memlab.Plan:
    """Plan a compaction to the recommended number."""
    policies = {recommend_cap: KeepRecent, recommend_budget: TokenBudget}
    policy = policies[recommend](advice(store, recommend).number)
    return memlab.plan(store, policy, now=NOON)


def apply_recommended_plan(store: Path, recommend: Recommend) -> None:
    memlab.apply(recommended_plan(store, recommend), now=NOON)


def compact_for_good(store: Path, recommend: Recommend, *, archive: bool = False) -> None:
    """Compact by count to the recommended number, as a runtime does."""
    with SqliteMemoryStore(store, archive=archive) as opened:
        opened.compact_episodic(len(recommended_plan(store, recommend).kept))


def drop_oldest(store: Path, _: Recommend, *, facts_too: bool = False) -> None:
    """Drop the contents of the oldest plan in the archive, if there is one."""
    if not store.with_name(f"{store.name}.archive.db").exists():
        return
    entries = archived_plans(store)
    if entries:
        drop_archived(store, digest=entries[0].digest, facts_too=facts_too, now=NOON)


STEPS: dict[str, Callable[..., object]] = {
    "plan": apply_recommended_plan,
    "for good": compact_for_good,
    "archived": partial(compact_for_good, archive=True),
    "drop": drop_oldest,
    "drop facts": partial(drop_oldest, facts_too=True),
}
WALKS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6)


@st.composite
def stores(draw: st.DrawFn) -> list[Row]:
    """Draw rows that refer to earlier ones, with decisions and superseded rows."""
    count = draw(st.integers(30, 160))
    distances = draw(st.lists(st.integers(1, 150), min_size=count, max_size=count))
    reference_every = draw(st.integers(1, 4))
    decision_every = draw(st.integers(3, 40))
    rows = []
    for number, distance in enumerate(distances):
        kind = "semantic" if number % decision_every == 0 else "episodic"
        references = []
        if number % reference_every == 0:
            references.append(f"issue:m{number - distance}")
        superseded_by = None
        if number % 17 == 3 and number + 1 < count:
            superseded_by = f"m{number + 1}"
        columns = row(
            f"m{number}",
            kind,
            evidence_refs_json=json.dumps(references),
            superseded_by=superseded_by,
            created_at=f"2026-02-{1 + number // 24:02}T{number % 24:02}:00:00+00:00",
        )
        rows.append(columns)
    return rows


@pytest.mark.long
@pytest.mark.parametrize("recommend", [recommend_cap, recommend_budget])
@settings(max_examples=14)
@given(rows=stores(), steps=WALKS, sizes=st.lists(st.integers(0, 600), min_size=1, max_size=4))
def test_compacting_never_lowers_the_number(
    recommend: Recommend, rows: list[Row], sizes: list[int], steps: list[str]
) -> None:
    for columns, size in zip(rows, cycle(sizes)):
        columns["body"] = "x" * size
    with TemporaryDirectory() as folder:
        store = write_rows(Path(folder) / "memory.db", rows)
        numbers = [advice(store, recommend).number]
        for step in steps:
            STEPS[step](store, recommend)
            numbers.append(advice(store, recommend).number)
    assert numbers == sorted(numbers)


def test_unarchived_deletion_makes_history_incomplete(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", recorded_rows())
    before = advice(store)
    with SqliteMemoryStore(store) as opened:
        deleted = opened.compact_episodic(300)
    after = advice(store)
    assert before.verdict is not Verdict.HISTORY_INCOMPLETE
    assert after.verdict is Verdict.HISTORY_INCOMPLETE
    assert after.memories == before.memories
    assert after.keep_recent is not None
    assert after.keep_recent >= 300
    conditions = " ".join(after.would_change)
    assert f"{deleted:,} memories were deleted without an archive" in conditions
    assert "no smaller than 300, all prunable memories written since" in conditions
    assert "references name memories that are neither in the store nor in its archive" in conditions


def test_gap_bound_is_memories_written_since_the_deletion(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d", "semantic"), *episodes(20)])
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(5)
    write_rows(store, episodes(7, start=21))
    assert gaps_of(load_past(store)) == Gaps(memories=15, newest=16, cap=12)


def test_single_row_deleted_by_hand_gives_no_bound(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    run_sql(store, "DELETE FROM memory_items WHERE rowid = 5")
    expected = Gaps(memories=1, newest=5, cap=None)
    assert gaps_of(load_past(store)) == expected
    memlab.apply(memlab.plan(store, KeepRecent(10), now=NOON), now=NOON)
    assert gaps_of(load_past(store)) == expected
    assert advice(store).verdict is not Verdict.HISTORY_INCOMPLETE


def test_frame_without_deletions_has_no_gaps_filled(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(5)
    frame = memlab.load(store)
    assert memlab.recommend_cap(frame).verdict is not Verdict.HISTORY_INCOMPLETE
    pd.testing.assert_frame_equal(fill_missing_rows(frame), frame)


def test_lost_references_are_at_most_one_name_per_gap(tmp_path: Path) -> None:
    rows = episodes(30)
    for columns in rows[10:]:
        columns["evidence_refs_json"] = json.dumps([f"commit:{columns['memory_id']}", "issue:e5"])
    store = write_rows(tmp_path / "memory.db", rows)
    run_sql(store, "DELETE FROM memory_items WHERE rowid IN (5, 6)")
    references = memlab.find_references(load_past(store))
    # e5 is referred to by twenty rows; commit:e11 could be e6, but is the same reference
    assert references[c.TARGET_POSITION].tolist() == [6] * 20
    assert memlab.evidence.count_references(load_past(store))["dangling"]["evidence"] == 19


def test_reference_to_a_gap_ranks_beyond_kept_memories(tmp_path: Path) -> None:
    rows = episodes(400)
    for columns in rows[200:]:
        columns["evidence_refs_json"] = '["issue:e1"]'
    store = write_rows(tmp_path / "memory.db", rows)
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(100)
    sizing = memlab.sizing.prepare_sizing(load_past(store))
    assert sizing.lost == 100
    assert (sizing.references.rank > range(1, 101)).all()


def test_references_of_deleted_rows_still_count(tmp_path: Path) -> None:
    rows = episodes(1200)
    for number, columns in enumerate(rows, start=1):
        distance = 60 + (number - 1) % 60 if number <= 700 else 1
        target = number - distance
        references = [f"issue:e{target}"] if target > 0 else []
        columns["evidence_refs_json"] = json.dumps(references)
    store = write_rows(tmp_path / "memory.db", rows)
    before = advice(store).number
    assert 100 < before < 900
    compact_for_good(store, recommend_cap)
    posterior = memlab.sizing.prepare_sizing(load_past(store)).posterior
    assert posterior.cap_for(0.9).high < before
    assert advice(store).number == before
