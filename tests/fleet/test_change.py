"""Changing a fleet: plan, review, apply and maintain, each store by itself."""

import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.errors import PlanError
from memlab.fleet import FleetPlan, Serial, apply, maintain, plan, size, survey
from tests.support.fleets import NOW, DiesAfter, agent_store, applied, mixed_fleet
from tests.support.invariants import rows_of
from tests.support.programs import forked
from tests.support.stores import episodes, files_in, row, run_sql, write_rows, write_signals

KEEP = memlab.KeepRecent(4)


def counts(names: list[Path]) -> list[int]:
    return [len(rows_of(name)) for name in names]


def good_ones(names: list[Path]) -> list[Path]:
    return [name for name in names if name.name == "memory.db"]


@pytest.fixture
def four_stores(tmp_path: Path) -> list[Path]:
    """Make four stores, each with a decision and nine episodes."""
    return [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(4)]


@pytest.fixture
def single_store(tmp_path: Path) -> Path:
    return agent_store(tmp_path / "memory.db", 9)


def remember(store: Path, keep: int, more: str = "") -> None:
    toml = f'policy = {{ name = "recent", keep = {keep} }}\n'
    store.with_name("memlab.toml").write_text(toml + more)


# Plan


def test_fleet_plan_agrees_with_the_plan_of_each_store(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path)
    before = files_in(tmp_path)
    new_plan = plan(names, KEEP, now=NOW)
    assert files_in(tmp_path) == before
    assert [planned.store for planned in new_plan.stores] == list(map(str, good_ones(names)))
    assert [Path(refused.store).name for refused in new_plan.refused] == ["text.db", "gone.db"]
    for planned in new_plan.stores:
        own_plan = memlab.plan(planned.store, KEEP, now=NOW)
        assert planned.digest == own_plan.digest
        assert planned.deleted == len(own_plan.memories)
        assert planned.boot_after == own_plan.boot_after.tokens
        assert planned.floor == own_plan.floor.tokens
    assert new_plan.totals["deleted"] == sum(max(0, 3 * n - 4) for n in range(12))
    assert new_plan.largest[0].deleted == 29
    assert "10 of 12 stores change" in str(new_plan)


def test_plan_file_round_trips_and_diffs_by_line(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    file = tmp_path / "plan.json"
    new_plan = plan(names, KEEP, now=NOW, save=file)
    written = [file, *file.with_name("plan.json.plans").iterdir()]
    assert {path.stat().st_mode & 0o077 for path in written} == {0}  # readable by the owner only
    read = FleetPlan.read(file)
    assert read.digest == new_plan.digest
    assert read.stores == new_plan.stores
    assert read.refused == new_plan.refused
    write_rows(names[5], episodes(1, start=900))
    second_plan = plan(names, KEEP, now=NOW, save=tmp_path / "again.json")
    changed = set(new_plan.to_json().splitlines()) ^ set(second_plan.to_json().splitlines())
    stores = [line for line in changed if '"store":' in line]
    assert {json.loads(line.strip(" ,"))["store"] for line in stores} == {str(names[5])}


def test_repeated_plan_uses_its_own_time(tmp_path: Path, single_store: Path) -> None:
    policy = memlab.TimeToLive(timedelta(days=60))
    for days in (0, 400):
        now = NOW + timedelta(days=days)
        new_plan = plan(single_store, policy, now=now, save=tmp_path / "plan.json")
        assert new_plan.stores == plan(single_store, policy, now=now).stores
        assert new_plan.made_at == now


def test_only_failed_plans_are_made_again(
    tmp_path: Path, single_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [single_store, tmp_path / "b.db"]
    file = tmp_path / "plan.json"
    assert len(plan(names, KEEP, now=NOW, save=file).refused) == 1
    agent_store(names[1], 7)
    first = plan(names, KEEP, now=NOW, save=file)
    monkeypatch.setattr("memlab.fleet.change.plan_store", None)  # no store is planned again
    second_plan = plan(names, KEEP, now=NOW + timedelta(days=1), save=file)
    assert second_plan.stores == first.stores
    assert apply(file, now=NOW)["deleted"].tolist() == [5, 3]


def test_each_store_is_planned_by_its_settings(four_stores: list[Path]) -> None:
    remember(four_stores[0], 2)
    remember(four_stores[1], 7)
    new_plan = plan(four_stores[:3], now=NOW)
    assert [planned.deleted for planned in new_plan.stores] == [7, 2]
    assert [refused.store for refused in new_plan.refused] == [str(four_stores[2])]
    assert "no policy is set for" in new_plan.refused[0].error


# Apply


@pytest.mark.parametrize("saved", [False, True], ids=["memory", "file"])
def test_fleet_apply_agrees_with_the_plan_of_each_store(tmp_path: Path, saved: bool) -> None:
    names = mixed_fleet(tmp_path)
    new_plan = plan(names, KEEP, now=NOW, save=tmp_path / "plan.json" if saved else None)
    results = apply(tmp_path / "plan.json" if saved else new_plan, now=NOW, runner=Serial())
    assert results["error"].isna().all()
    assert results["deleted"].tolist() == [planned.deleted for planned in new_plan.changed]
    assert counts(good_ones(names)) == [1 + min(3 * n, 4) for n in range(12)]
    for _, line in results.iterrows():
        memlab.restore(line["digest"], store=line["store"])
    assert counts(good_ones(names)) == [1 + 3 * n for n in range(12)]


def test_memories_expired_since_planning_are_not_counted(single_store: Path) -> None:
    write_signals(single_store, "e1", expires_at=(NOW + timedelta(hours=1)).isoformat())
    new_plan = plan(single_store, KEEP, now=NOW)
    run_sql(single_store, "DELETE FROM memory_items WHERE memory_id = 'e1'")
    assert apply(new_plan, now=NOW + timedelta(hours=2))["deleted"].tolist() == [4]


def test_changed_store_is_rejected_alone(four_stores: list[Path]) -> None:
    new_plan = plan(four_stores, KEEP, now=NOW)
    run_sql(four_stores[1], "UPDATE memory_items SET body = 'other' WHERE memory_id = 'e1'")
    run_sql(four_stores[2], "DELETE FROM memory_items WHERE memory_id = 'e9'")
    write_rows(four_stores[3], [row("new")])
    kinds = [outcome.kind for outcome in applied(new_plan)]
    assert kinds == ["", "StalePlanError", "StalePlanError", ""]
    assert counts(four_stores) == [5, 10, 9, 6]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f.write_text(f.read_text().replace('"deleted": 5', '"deleted": 4')), "edited"),
        (lambda f: f.write_text('{"memlab_plan": 2}'), "; memlab apply carries it out"),
        (lambda f: f.with_name("plan.json.plans").rename(f.with_name("moved")), "are missing"),
    ],
    ids=["edited", "no plan", "without the plans beside it"],
)
def test_invalid_plan_file_is_rejected(single_store: Path, spoil: Any, message: str) -> None:
    file = single_store.with_name("plan.json")
    plan(single_store, KEEP, now=NOW, save=file)
    spoil(file)
    with pytest.raises(PlanError, match=message):
        apply(file, now=NOW)


def test_invalid_target_or_time_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"is 0\.9 meant"):
        size("memory.db", target=90)
    with pytest.raises(ValueError, match="no time zone"):
        survey("memory.db", now=NOW.replace(tzinfo=None))


@pytest.mark.long
def test_killed_client_resumes_where_it_stopped(tmp_path: Path, four_stores: list[Path]) -> None:
    file = tmp_path / "plan.json"
    dies = {"runner": Serial(), "progress": DiesAfter(3)}
    with forked("tests.support.fleets") as children:
        ended = children.run(plan, sources=four_stores, policy=KEEP, now=NOW, save=file, **dies)
        assert ended.code == -signal.SIGKILL
        assert not file.exists()
        new_plan = plan(four_stores, KEEP, now=NOW, save=file)
        assert [planned.deleted for planned in new_plan.stores] == [5] * 4
        assert children.run(apply, plan=file, now=NOW, **dies).code == -signal.SIGKILL
    assert counts(four_stores) == [5, 5, 5, 10]
    assert apply(file, now=NOW)["status"].tolist() == [*["applied before"] * 3, "applied"]
    assert counts(four_stores) == [5] * 4


# Maintain


def test_each_store_is_maintained_by_its_settings(four_stores: list[Path]) -> None:
    names = four_stores[:3]
    remember(names[0], 2)
    remember(names[1], 20)
    remember(four_stores[3], 2, "max_per_run = 1\nkeep_copies = true\n")
    stopped = maintain(four_stores[3], now=NOW).iloc[0]
    assert stopped["status"] == "FAILED"
    assert stopped["deleted"] == 0
    assert "max_per_run" in stopped["failed"]
    for do_it, status, remaining in ((False, "would", 10), (True, "done", 3)):
        results = maintain(names, apply=do_it, now=NOW)
        assert results["status"].tolist()[:2] == [status, "nothing"]
        assert results["deleted"].tolist()[:2] == [7, 0]
        assert "no settings for" in results["error"][2]
        assert counts(names) == [remaining, 10, 10]
    assert results["undo"][0].startswith("memlab restore ")


def test_interrupted_maintenance_resumes_and_reports_everything(
    tmp_path: Path, four_stores: list[Path]
) -> None:
    for name in four_stores:
        remember(name, 2)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    report_folder = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        maintain(
            four_stores, apply=True, now=NOW, runner=Serial(), progress=stop, out=report_folder
        )
    assert counts(four_stores) == [3, 3, 10, 10]
    done = maintain(four_stores, apply=True, now=NOW, runner=Serial(), out=report_folder)
    assert done["status"].tolist() == ["done"] * 4
    assert done["deleted"].tolist() == [7] * 4
    assert done["undo"].str.startswith("memlab restore ").all()
    second_run = maintain(four_stores, apply=True, now=NOW, out=report_folder)
    assert second_run["status"].tolist() == ["nothing"] * 4
