"""What a store has held, gone rows among them: as one frame, and as a past to learn from."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from histories import recorded
from stores import Row, episodes, row, run_sql, write_rows

from memlab import columns as c
from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.compaction.restorer import restore
from memlab.errors import ArchiveError, DamagedArchiveWarning
from memlab.evidence.past import load_past
from memlab.frame.loading import load
from memlab.growth.summary import summarize
from memlab.policies import KeepRecent, Pipeline, decide
from memlab.policies.learned import Learned
from memlab.store.archive.location import archive_path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def compact(store: Path, keep: int) -> str:
    """Apply a cap; return the digest."""
    return apply(plan(store, KeepRecent(keep), now=NOON), now=NOON).digest


def past_ids(store: Path) -> list[str]:
    return load_past(store)[c.MEMORY_ID].tolist()


def test_a_store_that_was_never_compacted_is_its_own_past(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    pd.testing.assert_frame_equal(load_past(store).drop(columns=c.DELETED_AT), load(store))
    archive_path(store).touch()
    past = load_past(store)
    assert past[c.MEMORY_ID].tolist() == ["e1", "e2", "e3"]
    assert past[c.DELETED_AT].dtype == c.TIME
    assert past[c.DELETED_AT].isna().all()


def test_a_past_has_the_headline_numbers_of_what_is_left(tmp_path: Path) -> None:
    rows = [row("d", "semantic"), *episodes(9), row("s", superseded_by="e4")]
    store = write_rows(tmp_path / "memory.db", rows)
    before = summarize(store, now=NOON)
    compact(store, 2)
    summary, left = summarize(load_past(store), now=NOON), summarize(load(store), now=NOON)
    assert summary == replace(left, pace=before.pace, dangling=0)
    assert (summary.rows.memories, summary.superseded.memories, left.dangling) == (4, 1, 1)


def test_archived_rows_stand_where_they_stood(tmp_path: Path) -> None:
    rows = [row("d", "semantic"), *episodes(4), row("s", superseded_by="e4")]
    store = write_rows(tmp_path / "memory.db", rows)
    whole = load(store)
    compact(store, 3)
    write_rows(store, [row("late", evidence_refs_json='["e1"]')])
    compact(store, 1)
    assert len(load(store)) == 3
    past = load_past(store)
    now = [c.ACTIVE, c.PRUNABLE]
    pd.testing.assert_frame_equal(
        past.iloc[:6][whole.columns].drop(columns=now), whole.drop(columns=now)
    )
    assert past[c.MEMORY_ID].tolist()[6:] == ["late"]
    gone = past.loc[past[c.DELETED_AT].notna(), c.MEMORY_ID].tolist()
    assert gone == ["e1", "e2", "e3", "e4"]


def test_what_was_put_back_is_there_once(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(4))
    restore(compact(store, 1), store=store)
    compact(store, 2)
    assert past_ids(store) == ["e1", "e2", "e3", "e4"]


def test_a_position_or_an_id_that_comes_again_is_another_memory(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(4))
    compact(store, 0)
    later = "2026-04-01T00:00:00+00:00"
    write_rows(store, [row(name, created_at=later) for name in ("new", "e2")])
    past = load_past(store)
    assert past[c.MEMORY_ID].tolist() == ["e1", "e2", "e3", "e4", "new", "e2"]
    assert past[c.POSITION].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_copy_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    compact(store, 1)
    change = "UPDATE archived SET record = replace(record, '2026-03-01', 'once') WHERE key = 1"
    run_sql(archive_path(store), change)
    with pytest.warns(DamagedArchiveWarning, match=r"key 1 of plan .* that was left out"):
        assert past_ids(store) == ["e2", "e3"]


def history() -> list[Row]:
    """Rows whose needs are written down in them, and follow more than age."""
    frame, _ = recorded()
    return [
        row(
            one.memory_id,
            "episodic",
            *one.tags,
            title="",
            body="x" * one.chars,
            created_at=one.created_at.isoformat(),
            evidence_refs_json=json.dumps(one.evidence_refs),
        )
        for one in frame.itertuples()
    ]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store that was compacted on its way, and the same rows had nothing gone."""
    rows = history()
    folder = tmp_path_factory.mktemp("past")
    store = write_rows(folder / "memory.db", rows[:1300])
    compact(store, 200)
    write_rows(store, [each | {"rowid": 1301 + i} for i, each in enumerate(rows[1300:])])
    return store, write_rows(folder / "whole.db", rows)


@pytest.mark.parametrize("policy", [Learned(60), Pipeline(KeepRecent(450), Learned(60))], ids=str)
def test_a_plan_learns_from_what_was_archived(
    compacted: tuple[Path, Path], policy: Learned | Pipeline
) -> None:
    store, whole = compacted
    frame = load(store)
    expected = decide(frame, policy.after(load(whole)), now=NOON)[c.KEEP]
    made = plan(store, policy, now=NOON)
    assert [each.memory_id for each in made.memories] == frame.loc[~expected, c.MEMORY_ID].tolist()
    assert not expected.equals(decide(frame, policy, now=NOON)[c.KEEP])


def test_a_plan_names_what_a_policy_is_and_not_its_past(compacted: tuple[Path, Path]) -> None:
    made = plan(compacted[0], Learned(60), now=NOON)
    assert made.policy == {"policy": "learned", "max_items": 60, "max_tokens": None}


def test_only_a_policy_that_learns_needs_the_archive(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(5))
    archive_path(store).write_bytes(b"something else entirely" * 50)
    assert len(plan(store, KeepRecent(2), now=NOON).memories) == 3
    with pytest.raises(ArchiveError):
        plan(store, Learned(2), now=NOON)
