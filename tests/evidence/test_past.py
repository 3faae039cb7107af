"""The past of a store: present and deleted rows in one frame."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab.compaction import apply, plan
from memlab.errors import ArchiveError, DamagedArchiveWarning
from memlab.evidence.access_log import AccessLog
from memlab.evidence.past import DeletedMemories, Gaps, gaps_of, load_past, past_of, present_rows
from memlab.frame.loading import load
from memlab.policies import KeepRecent, Policy
from memlab.policies.activation import Activation
from memlab.store.archive.location import archive_path
from tests.support.frames import make_episodes
from tests.support.stores import episodes, row, run_sql, write_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def compact(store: Path, keep: int) -> str:
    """Apply a cap; return the digest."""
    return apply(plan(store, KeepRecent(keep), now=NOON), now=NOON).digest


def test_past_of_uncompacted_store_equals_its_rows(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    pd.testing.assert_frame_equal(load_past(store).drop(columns=c.DELETED_AT), load(store))
    archive_path(store).touch()
    assert load_past(store)[c.DELETED_AT].tolist() == [pd.NaT] * 3


def test_archived_rows_keep_their_place_in_the_past(tmp_path: Path) -> None:
    rows = [row("d", "semantic"), *episodes(4), row("s", superseded_by="e4")]
    store = write_rows(tmp_path / "memory.db", rows)
    full_frame = load(store)
    compact(store, 3)
    write_rows(store, [row("late", evidence_refs_json='["e1"]')])
    compact(store, 1)
    assert len(load(store)) == 3
    past = load_past(store)
    lasting = full_frame.drop(columns=[c.ACTIVE, c.PRUNABLE, c.LABEL])
    pd.testing.assert_frame_equal(past.iloc[:6][lasting.columns], lasting)
    assert past[c.MEMORY_ID].tolist()[6:] == ["late"]
    assert (past[c.LABEL] == "deleted").equals(past[c.DELETED_AT].notna())
    deleted = past.loc[past[c.DELETED_AT].notna(), c.MEMORY_ID].tolist()
    assert deleted == ["e1", "e2", "e3", "e4"]


def test_reused_position_or_id_is_a_new_memory(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(4))
    compact(store, 0)
    later = "2026-04-01T00:00:00+00:00"
    write_rows(store, [row(name, created_at=later) for name in ("new", "e2")])
    past = load_past(store)
    assert past[c.MEMORY_ID].tolist() == ["e1", "e2", "e3", "e4", "new", "e2"]
    assert past[c.POSITION].tolist() == [1, 2, 3, 4, 5, 6]


def test_unreadable_archived_row_is_left_out_with_warning(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    compact(store, 1)
    change = "UPDATE archived SET fields = replace(fields, '2026-03-01', 'once') WHERE key = 1"
    run_sql(archive_path(store), change)
    with pytest.warns(DamagedArchiveWarning, match=r"key 1 of plan .* these parts were left out"):
        assert load_past(store)[c.MEMORY_ID].tolist() == ["e2", "e3"]


@given(st.lists(st.integers(-4, 6) | st.sets(st.integers(0, 30), max_size=8), max_size=12))
def test_past_is_in_writing_order_after_any_deletions(steps: list[Any]) -> None:
    """Steps write memories or delete some; positions are those that SQLite assigns."""
    positions: list[int] = []
    present_numbers: list[int] = []
    deleted: list[list[int]] = []
    for step in steps:
        if isinstance(step, int) and step >= 0:
            for _ in range(step):
                highest = max((positions[number] for number in present_numbers), default=0)
                present_numbers.append(len(positions))
                positions.append(highest + 1)
            continue
        if isinstance(step, int):
            chosen = present_numbers[step:]
        else:
            chosen = sorted(step.intersection(present_numbers))
        present_numbers = [number for number in present_numbers if number not in chosen]
        deleted.append(chosen)
    full_frame = make_episodes(len(positions))
    placed = full_frame.assign(position=np.array(positions, dtype=np.int64))
    present = placed.iloc[present_numbers].reset_index(drop=True)
    deletions = []
    for day, numbers in enumerate(deleted):
        rows = placed.iloc[numbers].reset_index(drop=True)
        deletions.append(DeletedMemories(NOON + timedelta(days=day), rows, day))
    past = past_of(present, deletions)
    assert past[c.MEMORY_ID].tolist() == full_frame[c.MEMORY_ID].tolist()
    assert past[c.POSITION].is_monotonic_increasing
    assert past[c.POSITION].is_unique
    assert set(present_rows(past)[c.MEMORY_ID]) == {f"m{number + 1}" for number in present_numbers}
    deleted_rows = past[past[c.DELETED_AT].notna()]
    assert not deleted_rows[c.ACTIVE].any()
    assert not deleted_rows[c.PRUNABLE].any()


def test_memory_deleted_twice_has_the_later_time() -> None:
    frame = make_episodes(3)
    later = NOON + timedelta(days=1)
    first = frame.iloc[:1]
    twice = [DeletedMemories(NOON, first, 0), DeletedMemories(later, first, 1)]
    past = past_of(frame.iloc[1:], twice)
    assert past[c.DELETED_AT].tolist()[0] == later
    assert len(past) == 3


def test_position_tie_orders_deleted_first() -> None:
    frame = make_episodes(3)
    late = frame.iloc[[2]].assign(position=1)
    early = frame.iloc[[0]].assign(position=1)
    past = past_of(early, [DeletedMemories(NOON, late, 1)])
    assert past[c.MEMORY_ID].tolist() == ["m3", "m1"]
    assert past[c.POSITION].tolist() == [1, 2]


def test_store_with_large_position_jumps_has_no_gaps() -> None:
    assert gaps_of(make_episodes(2).assign(position=[5, 10**15])) == Gaps(
        memories=0, newest=0, cap=None
    )


def test_only_learning_policies_need_archive_and_reads(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(30))

    def deleted_by(policy: Policy) -> list[str]:
        return [memory.memory_id for memory in plan(store, policy).memories]

    AccessLog(tmp_path / "reads.jsonl").add("e3")
    assert "e3" in deleted_by(Activation(5))
    (tmp_path / "memlab.toml").write_text('log = "reads.jsonl"\n')
    assert "e3" not in deleted_by(Activation(5))
    archive_path(store).write_bytes(b"something else entirely" * 50)
    assert len(deleted_by(KeepRecent(2))) == 28
    with pytest.raises(ArchiveError):
        deleted_by(Activation(2))
