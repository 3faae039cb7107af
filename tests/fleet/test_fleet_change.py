"""Plan, review, apply: reads only, one file, and each store for itself."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from fleets import NOW, TESTS, DiesApplying, agent_store, dask_cluster, mixed_fleet
from invariants import rows_of
from stores import episodes, row, run_sql, write_rows

import memlab
from memlab.compaction.applying import ApplyStep
from memlab.errors import PlanError, StoreError, WrongArgumentError
from memlab.fleet import FleetPlan, Processes, Runner, Serial, apply, cluster_at, plan
from memlab.fleet.carrying_out import carried_out
from memlab.fleet.deciding import Deciding

TWO = Processes(2)
KEEP = memlab.KeepRecent(4)


def counts(names: list[Path]) -> list[int]:
    return [len(rows_of(name)) for name in names]


def good_ones(names: list[Path]) -> list[Path]:
    return [name for name in names if name.name == "memory.db"]


def test_a_plan_says_of_every_store_what_its_own_plan_says(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path)
    made = plan(names, KEEP, now=NOW)
    assert [each.store for each in made.stores] == list(map(str, good_ones(names)))
    assert [Path(each.store).name for each in made.refused] == ["text.db", "gone.db"]
    for each in made.stores:
        own = memlab.plan(each.store, KEEP, now=NOW)
        assert (each.digest, each.deleted) == (own.digest, len(own.memories))
        assert (each.boot_after, each.floor) == (own.boot_after.tokens, own.floor.tokens)
    assert made.totals["deleted"] == sum(max(0, 3 * n - 4) for n in range(12))
    assert made.largest[0].deleted == 29
    assert "10 of 12 stores change" in str(made)


def test_planning_changes_nothing_and_leaves_no_trace(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 9)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    plan(store, KEEP, now=NOW)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_the_file_is_read_back_whole_and_diffs_by_line(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    file = tmp_path / "plan.json"
    made = plan(names, KEEP, now=NOW, save=file)
    read = FleetPlan.read(file)
    assert (read.digest, read.stores, read.refused) == (made.digest, made.stores, made.refused)
    write_rows(names[5], episodes(1, start=900))
    again = plan(names, KEEP, now=NOW, save=tmp_path / "again.json")
    changed = set(made.to_json().splitlines()) ^ set(again.to_json().splitlines())
    stores = [line for line in changed if '"store":' in line]
    assert {json.loads(line.strip(" ,"))["store"] for line in stores} == {str(names[5])}


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan(agent_store(tmp_path / "memory.db", 9), KEEP, now=NOW, save=file)
    file.write_text(file.read_text().replace('"deleted": 5', '"deleted": 4'))
    with pytest.raises(PlanError, match="the plan was edited"):
        apply(file, now=NOW)
    file.write_text("{}")
    with pytest.raises(PlanError, match="this is not a fleet_plan"):
        apply(file, now=NOW)


def test_a_file_without_the_plans_beside_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan(agent_store(tmp_path / "memory.db", 9), KEEP, now=NOW, save=file)
    (tmp_path / "plan.json.plans").rename(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="the plans of the stores are missing"):
        apply(file, now=NOW)


@pytest.mark.parametrize("runner", [Serial(), TWO], ids=["serial", "processes"])
@pytest.mark.parametrize("saved", [False, True], ids=["memory", "file"])
def test_applying_does_to_each_store_what_its_own_plan_does(
    tmp_path: Path, runner: Runner, saved: bool
) -> None:
    names = mixed_fleet(tmp_path)
    made = plan(names, KEEP, now=NOW, save=tmp_path / "plan.json" if saved else None)
    found = apply(tmp_path / "plan.json" if saved else made, now=NOW, runner=runner)
    assert found["error"].isna().all()
    assert found["deleted"].tolist() == [each.deleted for each in made.changed]
    assert counts(good_ones(names)) == [1 + min(3 * n, 4) for n in range(12)]
    for _, line in found.iterrows():
        memlab.restore(line["digest"], store=line["store"])
    assert counts(good_ones(names)) == [1 + 3 * n for n in range(12)]


def test_a_store_that_changed_since_is_refused_alone(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(4)]
    made = plan(names, KEEP, now=NOW)
    run_sql(names[1], "UPDATE memory_items SET body = 'other' WHERE memory_id = 'e1'")
    run_sql(names[2], "DELETE FROM memory_items WHERE memory_id = 'e9'")
    write_rows(names[3], [row("new")])
    found = carried_out(made, now=NOW)
    assert [each.kind for each in found] == ["", "StalePlanError", "StalePlanError", ""]
    assert counts(names) == [5, 10, 9, 6]


def test_an_archive_that_cannot_be_written_refuses_its_store_alone(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(3)]
    made = plan(names, KEEP, now=NOW)
    (tmp_path / "1" / "memory.db.archive.db").mkdir()
    found = apply(made, now=NOW)
    assert found["error"].notna().tolist() == [False, True, False]
    assert counts(names) == [5, 10, 5]


def test_applied_twice_nothing_goes_twice(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(3)]
    made = plan(names, KEEP, now=NOW)
    apply(made, now=NOW)
    again = apply(made, now=NOW)
    assert again["status"].tolist() == ["applied before"] * 3
    assert again["error"].isna().all()
    assert counts(names) == [5, 5, 5]


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("distributed")
    with dask_cluster(tmp_path_factory.mktemp("dask")) as file:
        yield file


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("where", ["processes", "cluster"])
@pytest.mark.parametrize("step", [ApplyStep.ARCHIVED, ApplyStep.VERIFIED])
def test_a_worker_that_is_killed_while_it_applies_loses_nothing_and_repeats_nothing(
    tmp_path: Path, scheduler_file: Path, step: str, where: str
) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    made = plan(names, KEEP, now=NOW)

    def work(_: object) -> DiesApplying:
        return DiesApplying(NOW, tmp_path, step)

    if where == "cluster":
        with cluster_at(scheduler_file=scheduler_file, patience=120) as cluster:
            found = carried_out(made, now=NOW, runner=cluster, work=work)
    else:
        found = carried_out(made, now=NOW, runner=TWO, work=work)
    assert (tmp_path / "died").exists()
    assert [each.error for each in found] == [""] * len(made.changed)
    assert counts(good_ones(names)) == [1 + min(3 * n, 4) for n in range(12)]
    archived = [len(memlab.compaction.archived_rows(each.store)) for each in made.changed]
    assert archived == [each.deleted for each in made.changed]


SCRIPT = """
import os, sys
import memlab, memlab.fleet as fleet
from fleets import NOW
def progress(done, total):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
policy = memlab.KeepRecent(4)
if sys.argv[1] == "plan":
    names, file = sys.argv[4:], sys.argv[2]
    fleet.plan(names, policy, now=NOW, save=file, runner=fleet.Serial(), progress=progress)
else:
    fleet.apply(sys.argv[2], now=NOW, runner=fleet.Serial(), progress=progress)
"""


def killed_at(count: int, what: str, file: Path, names: list[Path]) -> None:
    words = [sys.executable, "-c", SCRIPT, what, str(file), str(count), *map(str, names)]
    ran = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(TESTS)}, check=False)
    assert ran.returncode == -signal.SIGKILL


def test_a_client_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(6)]
    file = tmp_path / "plan.json"
    killed_at(3, "plan", file, names)
    assert not file.exists()
    made = plan(names, KEEP, now=NOW, save=file)
    assert [each.deleted for each in made.stores] == [5] * 6
    killed_at(4, "apply", file, names)
    assert counts(names) == [5, 5, 5, 5, 10, 10]
    found = apply(file, now=NOW)
    assert found["status"].tolist() == [*["applied before"] * 4, "applied", "applied"]
    assert counts(names) == [5] * 6


@pytest.mark.parametrize("given", [7, memlab.KeepRecent(1)])
def test_what_is_no_plan_is_refused_in_words(given: object) -> None:
    with pytest.raises(WrongArgumentError, match=r"memlab\.fleet\.apply takes"):
        apply(given, now=NOW)  # type: ignore[arg-type]


def test_what_is_no_policy_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(WrongArgumentError, match=r"memlab\.KeepRecent\(50\)"):
        plan(tmp_path, 50, now=NOW)  # type: ignore[arg-type]


def test_every_runner_makes_the_same_plan(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path)
    assert plan(names, KEEP, now=NOW, runner=TWO) == plan(names, KEEP, now=NOW, runner=Serial())


def test_an_error_is_asked_again(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / "a" / "memory.db", 9), tmp_path / "b.db"]
    file = tmp_path / "plan.json"
    assert len(plan(names, KEEP, now=NOW, save=file).refused) == 1
    agent_store(tmp_path / "b.db", 7)
    made = plan(names, KEEP, now=NOW, save=file)
    assert (made.refused, [each.deleted for each in made.stores]) == ((), [5, 3])
    assert apply(file, now=NOW)["deleted"].tolist() == [5, 3]
    with pytest.raises(StoreError):
        memlab.load(tmp_path / "c.db")
    assert isinstance(pd.read_parquet(tmp_path / "plan.json.plans"), pd.DataFrame)


def test_a_plan_that_is_made_again_is_that_of_its_own_moment(tmp_path: Path) -> None:
    store, file = agent_store(tmp_path / "memory.db", 9), tmp_path / "plan.json"
    policy = memlab.TimeToLive(timedelta(days=60))
    for days in (0, 400):
        now = NOW + timedelta(days=days)
        made = plan(store, policy, now=now, save=file)
        assert made.stores == plan(store, policy, now=now).stores
        assert made.made_at == now


def test_a_plan_that_no_moment_changes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = agent_store(tmp_path / "memory.db", 9), tmp_path / "plan.json"
    first = plan(store, KEEP, now=NOW, save=file)
    monkeypatch.setattr(Deciding, "__call__", None)  # nobody is asked again
    assert plan(store, KEEP, now=NOW + timedelta(days=1), save=file).stores == first.stores


def test_each_store_is_planned_by_what_it_remembers(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(3)]
    for keep in (2, 7):
        toml = f'[policy]\nname = "recent"\nkeep = {keep}\n'
        (tmp_path / str(int(keep == 7)) / "memlab.toml").write_text(toml)
    made = plan(names, now=NOW)
    assert [each.deleted for each in made.stores] == [7, 2]
    assert [Path(each.store).parent.name for each in made.refused] == ["2"]
    assert "remembers none; name one" in made.refused[0].error
