"""Limits of a run: ``max_per_run`` and the confirmation for all prunable memories."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import fleet
from memlab.errors import PlanError
from memlab.policies import PurgeSuperseded, TimeToLive
from memlab.settings import FILE
from memlab.upkeep.maintenance import Maintenance, Step, maintain
from tests.support.invariants import rows_of
from tests.support.shell import output_of
from tests.support.stores import episodes, files_in, row, write_rows

NOW = datetime(2026, 6, 1, 3, 17, tzinfo=UTC)
OLD = TimeToLive(timedelta(days=30))
TTL = 'policy = { name = "ttl", ttl = "30d" }\n'
RECENT = 'policy = { name = "recent", keep = 4 }\n'
RETIRING = f"{RECENT}retire = true\n"


def compact_step(maintenance: Maintenance) -> Step:
    (step,) = [step for step in maintenance.steps if step.name == "compact"]
    return step


def test_deletion_of_no_prunable_memory_needs_no_confirmation(tmp_path: Path) -> None:
    rows = [row("e", superseded_by="d"), row("d", "semantic")]
    store = write_rows(tmp_path / "memory.db", rows)
    assert memlab.apply(memlab.plan(store, PurgeSuperseded(timedelta()), now=NOW)).deleted == 1


@given(st.lists(st.booleans(), max_size=6), st.integers(0, 6), st.booleans())
def test_removing_all_prunable_needs_confirmation(
    old: list[bool], decisions: int, retire: bool
) -> None:
    times = ["2026-01-01T00:00Z" if is_old else "2026-05-31T00:00Z" for is_old in old]
    rows = [row(f"d{number}", "semantic") for number in range(decisions)]
    rows += [row(f"e{number}", created_at=at) for number, at in enumerate(times)]
    message = r"nothing was changed\. To allow it, add --all, or all_prunable=True in Python"
    with TemporaryDirectory() as folder:
        store = write_rows(Path(folder, "memory.db"), rows)
        before = files_in(Path(folder))
        plan = memlab.plan(store, OLD, retire=retire, now=NOW)
        removes_all = len(old) > 0 and all(old)
        assert plan.removes_all_prunable == removes_all
        if not removes_all:
            memlab.apply(plan, now=NOW)
            assert memlab.load(store)["prunable"].any() == (len(old) > 0)
            return
        with pytest.raises(PlanError, match=message):
            memlab.apply(plan, now=NOW)
        assert files_in(Path(folder)) == before
        receipt = memlab.apply(plan, now=NOW, all_prunable=True)
        if retire:
            assert receipt.deleted == 0
            assert receipt.retired == len(old)
        else:
            assert receipt.deleted == len(old)
            assert receipt.retired == 0
        assert memlab.restore(receipt, now=NOW).memories == len(old)


@pytest.mark.parametrize("settings", [RECENT, RETIRING])
def test_maintenance_stops_above_max_per_run(store: Path, settings: str) -> None:
    (store.parent / FILE).write_text(f"{settings}max_per_run = 5\n")
    before = rows_of(store)
    for maintenance in (maintain(store, now=NOW), maintain(store, apply=True, now=NOW)):
        step = compact_step(maintenance)
        assert step.outcome == "FAILED"
        assert "6 memories would go, more than max_per_run = 5, so none does" in step.message
        assert f"memlab compact {store} shows them" in step.message
    assert rows_of(store) == before
    (store.parent / FILE).write_text(f"{settings}max_per_run = 6\n")
    assert compact_step(maintain(store, apply=True, now=NOW)).outcome == "done"


def test_deleted_retired_memories_count_towards_max_per_run(store: Path) -> None:
    (store.parent / FILE).write_text(RETIRING)
    maintain(store, apply=True, now=NOW)
    write_rows(store, episodes(3, start=20))
    (store.parent / FILE).write_text(f'{RETIRING}delete_retired_after = "30d"\nmax_per_run = 8\n')
    before = rows_of(store)
    later = NOW + timedelta(days=40)
    step = compact_step(maintain(store, apply=True, now=later))
    assert "9 memories would go" in step.message
    assert rows_of(store) == before
    (store.parent / FILE).write_text(f'{RETIRING}delete_retired_after = "30d"\nmax_per_run = 9\n')
    assert maintain(store, apply=True, now=later).deleted == 6


def test_maintenance_names_the_command_for_all_prunable(store: Path) -> None:
    (store.parent / FILE).write_text(TTL)
    for maintenance in (maintain(store, now=NOW), maintain(store, apply=True, now=NOW)):
        step = compact_step(maintenance)
        assert step.outcome == "FAILED"
        assert f"memlab maintain {store} --apply --all" in step.message
    assert len(rows_of(store)) == 13
    assert maintain(store, apply=True, now=NOW, all_prunable=True).deleted == 10
    write_rows(store, episodes(3, start=20))
    (store.parent / FILE).write_text('policy = { name = "recent", keep = 0 }\n')
    assert maintain(store, apply=True, now=NOW).deleted == 3


def test_fleet_stops_only_the_store_that_would_lose_all(store: Path, tmp_path: Path) -> None:
    new = row("new", created_at=NOW.isoformat())
    other = write_rows(tmp_path / "other.db", [*episodes(2), new])
    stores = [str(store), str(other)]
    (tmp_path / FILE).write_text(TTL)
    new_plan = fleet.plan(stores, OLD, now=NOW)
    maintained = fleet.maintain(stores, now=NOW)
    assert maintained["status"].tolist() == ["FAILED", "would"]
    assert maintained["deleted"].tolist() == [0, 2]
    applied = fleet.apply(new_plan, now=NOW)
    assert applied["error"].notna().tolist() == [True, False]
    assert len(rows_of(store)) == 13
    assert len(rows_of(other)) == 1
    assert fleet.apply(new_plan, now=NOW, all_prunable=True)["error"].isna().all()


def test_command_line_asks_for_all_option(store: Path) -> None:
    plan_file = str(store.parent / "plan.json")
    compact = ("compact", str(store), "--policy", "ttl", "--ttl", "30d")
    assert "every prunable memory would go; --apply needs --all, too" in output_of(*compact)
    assert "would be retired; --apply needs --all, too" in output_of(*compact, "--retire")
    assert "--all" in output_of(*compact, "--apply", code=2)
    output_of(*compact, "--save-plan", plan_file)
    output_of("apply", plan_file, code=2)
    output_of("apply", plan_file, "--all")
    write_rows(store, episodes(3, start=20))
    output_of(*compact, "--apply", "--all")
    assert len(rows_of(store)) == 3
