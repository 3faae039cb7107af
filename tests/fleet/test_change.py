"""Changing a fleet: plan, review, apply and maintain, each store by itself."""

import json
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import memlab
from memlab.errors import PlanError
from memlab.fleet import FleetPlan, Serial, apply, maintain, plan, size, survey
from tests.support.fleets import NOW, DiesAfter, agent_store, applied, mixed_fleet
from tests.support.invariants import rows_of
from tests.support.programs import forked
from tests.support.stores import episodes, files_in, row, run_sql, write_rows, write_signals

KEEP = memlab.KeepRecent(4)
EPISODES = range(0, 36, 3)
"""Number of episodes of each readable store of the mixed fleet; each has a decision, too."""


def counts(stores: list[Path]) -> list[int]:
    """Count the memories of each store."""
    return [len(rows_of(store)) for store in stores]


def readable_stores(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.name == "memory.db"]


@pytest.fixture
def four_stores(tmp_path: Path) -> list[Path]:
    """Make four stores, each with a decision and nine episodes."""
    return [agent_store(tmp_path / str(number) / "memory.db", 9) for number in range(4)]


@pytest.fixture
def single_store(tmp_path: Path) -> Path:
    return agent_store(tmp_path / "memory.db", 9)


def write_settings(store: Path, keep: int, other_lines: str = "") -> None:
    toml = f'policy = {{ name = "recent", keep = {keep} }}\n'
    store.with_name("memlab.toml").write_text(toml + other_lines)


# Plan


def test_fleet_plan_agrees_with_the_plan_of_each_store(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path)
    before = files_in(tmp_path)
    new_plan = plan(names, KEEP, now=NOW)
    assert files_in(tmp_path) == before
    planned_stores = [Path(planned.store) for planned in new_plan.stores]
    assert planned_stores == readable_stores(names)
    assert [Path(refused.store).name for refused in new_plan.refused] == ["text.db", "gone.db"]
    for planned in new_plan.stores:
        own_plan = memlab.plan(planned.store, KEEP, now=NOW)
        assert planned.digest == own_plan.digest
        assert planned.deleted == len(own_plan.memories)
        assert planned.boot_after == own_plan.boot_after.tokens
        assert planned.floor == own_plan.floor.tokens
    deleted = [max(0, episodes - 4) for episodes in EPISODES]
    assert new_plan.totals["deleted"] == sum(deleted)
    assert new_plan.largest[0].deleted == 29
    assert "10 of 12 stores change" in str(new_plan)


def test_plan_file_round_trips_and_diffs_by_line(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    file = tmp_path / "plan.json"
    new_plan = plan(names, KEEP, now=NOW, save=file)
    written = [file, *file.with_name("plan.json.plans").iterdir()]
    assert {path.stat().st_mode & 0o077 for path in written} == {0}  # readable by the owner only
    from_file = FleetPlan.read(file)
    assert from_file.digest == new_plan.digest
    assert from_file.stores == new_plan.stores
    assert from_file.refused == new_plan.refused
    write_rows(names[5], episodes(1, start=900))
    second_plan = plan(names, KEEP, now=NOW, save=tmp_path / "again.json")
    changed_lines = set(new_plan.to_json().splitlines()) ^ set(second_plan.to_json().splitlines())
    lines_of_stores = [line.strip(" ,") for line in changed_lines if '"store":' in line]
    assert {json.loads(line)["store"] for line in lines_of_stores} == {str(names[5])}


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
    write_settings(four_stores[0], 2)
    write_settings(four_stores[1], 7)
    new_plan = plan(four_stores[:3], now=NOW)
    assert [planned.deleted for planned in new_plan.stores] == [7, 2]
    assert "the policy saved for each store\n" in str(new_plan)
    assert [refused.store for refused in new_plan.refused] == [str(four_stores[2])]
    assert "no policy is set for" in new_plan.refused[0].error


# Apply


@pytest.mark.parametrize("is_saved", [False, True], ids=["memory", "file"])
def test_fleet_apply_agrees_with_the_plan_of_each_store(tmp_path: Path, is_saved: bool) -> None:
    names = mixed_fleet(tmp_path)
    file = tmp_path / "plan.json" if is_saved else None
    new_plan = plan(names, KEEP, now=NOW, save=file)
    results = apply(file or new_plan, now=NOW, runner=Serial())
    assert results["error"].isna().all()
    assert results["deleted"].tolist() == [planned.deleted for planned in new_plan.changed]
    assert counts(readable_stores(names)) == [1 + min(episodes, 4) for episodes in EPISODES]
    for _, line in results.iterrows():
        memlab.restore(line["digest"], store=line["store"])
    assert counts(readable_stores(names)) == [1 + episodes for episodes in EPISODES]


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


def test_repeated_apply_tells_when_the_plan_was_applied(four_stores: list[Path]) -> None:
    new_plan = plan(four_stores, KEEP, now=NOW)
    apply(new_plan, now=NOW)
    results = apply(new_plan, now=NOW + timedelta(days=1))
    assert set(results["status"]) == {"applied before"}
    assert set(results["applied_at"]) == {NOW}


def test_plan_of_a_restored_store_is_refused(four_stores: list[Path]) -> None:
    new_plan = plan(four_stores, KEEP, now=NOW)
    for outcome in applied(new_plan)[1:]:
        assert outcome.value is not None
        memlab.restore(outcome.value.digest, store=outcome.name)
    outcomes = applied(new_plan)
    assert [outcome.kind for outcome in outcomes] == ["", *["AlreadyAppliedError"] * 3]
    assert "5 of them restored since; make a new plan" in outcomes[1].error


def edit_count(file: Path) -> None:
    file.write_text(file.read_text().replace('"deleted": 5', '"deleted": 4'))


def write_plan_of_one_store(file: Path) -> None:
    file.write_text('{"memlab_plan": 2}')


def move_plans_away(file: Path) -> None:
    file.with_name("plan.json.plans").rename(file.with_name("moved"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (edit_count, "edited"),
        (write_plan_of_one_store, "; memlab apply carries it out"),
        (move_plans_away, "are missing"),
    ],
)
def test_invalid_plan_file_is_rejected(
    single_store: Path, spoil: Callable[[Path], None], message: str
) -> None:
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
    die_after_three = {"runner": Serial(), "progress": DiesAfter(3)}
    with forked("tests.support.fleets") as children:
        planning = children.run(
            plan, sources=four_stores, policy=KEEP, now=NOW, save=file, **die_after_three
        )
        assert planning.code == -signal.SIGKILL
        assert not file.exists()
        new_plan = plan(four_stores, KEEP, now=NOW, save=file)
        assert [planned.deleted for planned in new_plan.stores] == [5, 5, 5, 5]
        applying = children.run(apply, plan=file, now=NOW, **die_after_three)
        assert applying.code == -signal.SIGKILL
    assert counts(four_stores) == [5, 5, 5, 10]
    statuses = apply(file, now=NOW)["status"].tolist()
    assert statuses == ["applied before", "applied before", "applied before", "applied"]
    assert counts(four_stores) == [5, 5, 5, 5]


# Maintain


def test_each_store_is_maintained_by_its_settings(four_stores: list[Path]) -> None:
    names = four_stores[:3]
    write_settings(names[0], 2)
    write_settings(names[1], 20)
    write_settings(four_stores[3], 2, "max_per_run = 1\nkeep_copies = true\n")
    stopped = maintain(four_stores[3], now=NOW).iloc[0]
    assert stopped["status"] == "FAILED"
    assert stopped["deleted"] == 0
    assert "max_per_run" in stopped["failed"]
    dry_run = maintain(names, apply=False, now=NOW)
    assert dry_run["status"].tolist()[:2] == ["would", "nothing"]
    assert dry_run["deleted"].tolist()[:2] == [7, 0]
    assert "no settings for" in dry_run["error"][2]
    assert counts(names) == [10, 10, 10]
    results = maintain(names, apply=True, now=NOW)
    assert results["status"].tolist()[:2] == ["done", "nothing"]
    assert results["deleted"].tolist()[:2] == [7, 0]
    assert "no settings for" in results["error"][2]
    assert counts(names) == [3, 10, 10]
    assert results["undo"][0].startswith("memlab restore ")


def test_interrupted_maintenance_resumes_and_reports_everything(
    tmp_path: Path, four_stores: list[Path]
) -> None:
    for store in four_stores:
        write_settings(store, 2)

    def stop_after_two(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "results"
    with pytest.raises(KeyboardInterrupt):
        maintain(
            four_stores, apply=True, now=NOW, runner=Serial(), progress=stop_after_two, out=out
        )
    assert counts(four_stores) == [3, 3, 10, 10]
    resumed = maintain(four_stores, apply=True, now=NOW, runner=Serial(), out=out)
    assert resumed["status"].tolist() == ["done"] * 4
    assert resumed["deleted"].tolist() == [7] * 4
    assert resumed["undo"].str.startswith("memlab restore ").all()
    second_run = maintain(four_stores, apply=True, now=NOW, out=out)
    assert second_run["status"].tolist() == ["nothing"] * 4
