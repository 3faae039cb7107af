"""Limits of a run: ``max_per_run`` and the confirmation for all prunable memories."""

from contextlib import nullcontext
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
from memlab.upkeep.maintenance import Maintenance, maintain
from tests.support.invariants import rows_of
from tests.support.shell import output_of
from tests.support.stores import episodes, files_in, row, write_rows

NOW = datetime(2026, 6, 1, 3, 17, tzinfo=UTC)
OLD = TimeToLive(timedelta(days=30))
TTL = 'policy = { name = "ttl", ttl = "30d" }\n'
RECENT = 'policy = { name = "recent", keep = 4 }\n'
RETIRING = f"{RECENT}retire = true\n"


def compacting(maintenance: Maintenance) -> tuple[str, str]:
    return next((str(s.outcome), s.message) for s in maintenance.steps if s.name == "compact")


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
        refused = pytest.raises(PlanError, match=message) if old and all(old) else nullcontext()
        with refused:
            memlab.apply(plan, now=NOW)
        assert memlab.load(store)["prunable"].any() == bool(old)
        if plan.removes_all_prunable:
            assert files_in(Path(folder)) == before
            receipt = memlab.apply(plan, now=NOW, all_prunable=True)
            assert receipt.deleted == (0 if retire else len(old))
            assert receipt.retired == (len(old) if retire else 0)
            assert memlab.restore(receipt, now=NOW).memories == len(old)


@pytest.mark.parametrize("settings", [RECENT, RETIRING])
def test_maintenance_stops_above_max_per_run(store: Path, settings: str) -> None:
    (store.parent / FILE).write_text(f"{settings}max_per_run = 5\n")
    before = rows_of(store)
    for maintenance in (maintain(store, now=NOW), maintain(store, apply=True, now=NOW)):
        outcome, message = compacting(maintenance)
        assert outcome == "FAILED"
        assert "6 memories would go, more than max_per_run = 5, so none does" in message
        assert f"memlab compact {store} shows them" in message
    assert rows_of(store) == before
    (store.parent / FILE).write_text(f"{settings}max_per_run = 6\n")
    assert compacting(maintain(store, apply=True, now=NOW))[0] == "done"


def test_deleted_retired_memories_count_towards_max_per_run(store: Path) -> None:
    (store.parent / FILE).write_text(RETIRING)
    maintain(store, apply=True, now=NOW)
    write_rows(store, episodes(3, start=20))
    (store.parent / FILE).write_text(f'{RETIRING}delete_retired_after = "30d"\nmax_per_run = 8\n')
    before = rows_of(store)
    later = NOW + timedelta(days=40)
    assert "9 memories would go" in compacting(maintain(store, apply=True, now=later))[1]
    assert rows_of(store) == before
    (store.parent / FILE).write_text(f'{RETIRING}delete_retired_after = "30d"\nmax_per_run = 9\n')
    assert maintain(store, apply=True, now=later).deleted == 6


def test_maintenance_names_the_command_for_all_prunable(store: Path) -> None:
    (store.parent / FILE).write_text(TTL)
    for maintenance in (maintain(store, now=NOW), maintain(store, apply=True, now=NOW)):
        assert compacting(maintenance)[0] == "FAILED"
        assert f"memlab maintain {store} --apply --all" in compacting(maintenance)[1]
    assert len(rows_of(store)) == 13
    assert maintain(store, apply=True, now=NOW, all_prunable=True).deleted == 10
    write_rows(store, episodes(3, start=20))
    (store.parent / FILE).write_text('policy = { name = "recent", keep = 0 }\n')
    assert maintain(store, apply=True, now=NOW).deleted == 3


def test_fleet_stops_only_the_store_that_would_lose_all(store: Path, tmp_path: Path) -> None:
    other = write_rows(
        tmp_path / "other.db", [*episodes(2), row("new", created_at=NOW.isoformat())]
    )
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
