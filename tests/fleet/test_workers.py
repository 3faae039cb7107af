"""Process pools and Dask clusters give the results of one process, also when workers die."""

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import KeepRecent, fleet
from memlab.compaction import archived_rows
from memlab.errors import MemlabError
from memlab.fleet import Cluster, Member, Outcome, Processes, Runner, Serial, StoreLine, cluster_at
from memlab.fleet.sweep import outcomes_of, survey_task
from memlab.fleet.workers import (
    LARGE_STORE_BYTES,
    MAX_CHUNK_STORES,
    ArgumentOf,
    Chunk,
    ChunkFuture,
    FleetTask,
    WorkerPool,
)
from memlab.lazy import import_extra
from tests.support.fleets import (
    NOW,
    Deadly,
    DiesApplying,
    agent_store,
    applied,
    dask_cluster,
    mixed_fleet,
)
from tests.support.invariants import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a scheduler and two workers in processes of their own."""
    pytest.importorskip("distributed")
    with (
        dask_cluster(tmp_path_factory.mktemp("dask")) as file,
        cluster_at(scheduler_file=file, patience=120) as connected,
    ):
        connected.client.wait_for_workers(2, timeout=120)
        yield connected


class KillsOne(Processes):
    """A process pool of which one process is killed at some point."""

    def run(
        self,
        task: FleetTask[Any],
        members: Sequence[Member],
        argument_of: ArgumentOf = fleet.workers.no_argument,
    ) -> Iterator[Outcome[Any]]:
        for number, outcome in enumerate(super().run(task, members, argument_of)):
            if number == 1:
                os.kill(multiprocessing.active_children()[-1].pid or 0, signal.SIGKILL)
            yield outcome


@pytest.fixture(params=[pytest.param("processes", marks=pytest.mark.long), "cluster"])
def runner(request: pytest.FixtureRequest) -> Runner:
    if request.param == "processes":
        return Processes(2)
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster


def test_results_do_not_depend_on_runner(runner: Runner, tmp_path: Path) -> None:
    """One process of the pool is killed in each pass."""
    if isinstance(runner, Processes):
        runner = KillsOne(2)
    names = mixed_fleet(tmp_path / "fleet")
    for name in names[:6]:
        name.with_name("memlab.toml").write_text('policy = { name = "recent", keep = 5 }\n')
    shutil.copytree(tmp_path / "fleet", tmp_path / "aside")
    expected_results = list(results_of_operations(names, Serial()))
    after = {name: rows_of(name) for name in names if name.name == "memory.db"}
    shutil.rmtree(tmp_path / "fleet")
    (tmp_path / "aside").rename(tmp_path / "fleet")
    results = results_of_operations(names, runner)
    for result, expected in zip(results, expected_results, strict=True):
        pd.testing.assert_frame_equal(result, expected)
    assert {name: rows_of(name) for name in after} == after


def test_survey_in_processes_equals_a_serial_one(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    survey = fleet.survey(names, now=NOW, runner=Processes(2))
    pd.testing.assert_frame_equal(survey, fleet.survey(names, now=NOW, runner=Serial()))


def results_of_operations(names: Sequence[Path], runner: Runner) -> Iterator[pd.DataFrame]:
    """Yield the result of every fleet operation."""
    findings = fleet.examine_fleet(names, now=NOW, runner=runner)
    yield findings.stores
    yield findings.sizes
    yield findings.weeks
    new_plan = fleet.plan(names, KeepRecent(7), now=NOW, runner=runner)
    yield pd.DataFrame([vars(planned) for planned in (*new_plan.stores, *new_plan.refused)])
    results = fleet.apply(new_plan, now=NOW, runner=runner)
    yield results.assign(status=results["status"].replace("applied before", "applied"))
    results = fleet.maintain(names, apply=True, now=NOW, runner=runner)
    yield results[["store", "error"]].assign(done=results["status"].isin(["done", "nothing"]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("deadly", "times", "expected_aside"),
    [
        pytest.param({"agent-4"}, 1, set(), id="once"),
        pytest.param({"agent-2", "agent-9"}, 99, {"agent-2", "agent-9"}, id="always"),
    ],
)
def test_store_that_kills_its_worker_twice_is_set_aside(
    runner: Runner, deadly: set[str], times: int, expected_aside: set[str], tmp_path: Path
) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    (tmp_path / "tally").mkdir()
    work = Deadly(tmp_path / "tally", frozenset(deadly), times)
    outcomes = outcomes_of(FleetTask("survey", work, StoreLine), names, runner=runner)
    serial_outcomes = outcomes_of(survey_task(NOW), names, runner=Serial())
    aside = {outcome.name for outcome in outcomes if outcome.kind == fleet.workers.SET_ASIDE}
    assert {Path(name).parent.name for name in aside} == expected_aside
    others = [outcome for outcome in outcomes if outcome.name not in aside]
    assert others == [outcome for outcome in serial_outcomes if outcome.name not in aside]
    assert len(list((tmp_path / "tally").iterdir())) >= len(deadly)


@pytest.mark.long
@pytest.mark.parametrize("step", ["archived", "verified"])
def test_worker_killed_while_applying_loses_nothing(
    runner: Runner, step: str, tmp_path: Path
) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    new_plan = fleet.plan(names, KeepRecent(4), now=NOW)
    outcomes = applied(new_plan, runner, DiesApplying(tmp_path, step))
    assert (tmp_path / "died").exists()
    assert len(outcomes) == len(new_plan.changed)
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    remaining = [len(rows_of(name)) for name in names if name.name == "memory.db"]
    assert remaining == [1 + min(episodes, 4) for episodes in range(0, 36, 3)]
    archived = [len(archived_rows(planned.store)) for planned in new_plan.changed]
    assert archived == [planned.deleted for planned in new_plan.changed]


# Scheduling


SIZES = st.sampled_from(
    [
        0,
        1_000_000,
        LARGE_STORE_BYTES // 3,
        LARGE_STORE_BYTES,
        LARGE_STORE_BYTES + 1,
        3 * LARGE_STORE_BYTES,
    ]
)


@given(sizes=st.lists(SIZES, max_size=400), workers=st.integers(1, 8))
def test_chunks_hold_each_store_once_and_large_ones_alone(sizes: list[int], workers: int) -> None:
    members = [Member(f"s{number}", f"s{number}", size) for number, size in enumerate(sizes)]
    chunks = fleet.workers.chunks_of(members, workers)
    small = [member for member in members if member.size <= LARGE_STORE_BYTES]
    large = [member for member in members if member.size > LARGE_STORE_BYTES]
    large.sort(key=lambda member: member.size, reverse=True)
    assert list(chain.from_iterable(chunks)) == large + small
    max_small_stores = max(1, min(MAX_CHUNK_STORES, len(small) // (8 * workers)))
    for chunk in chunks:
        max_stores = 1 if chunk[0].size > LARGE_STORE_BYTES else max_small_stores
        assert len(chunk) <= max_stores


class CountingPool(WorkerPool):
    """A pool of two threads that counts the stores submitted at once."""

    workers = 2
    death_errors = (ZeroDivisionError,)

    def __init__(self) -> None:
        self.unfinished = 0
        self.most_unfinished = 0
        self.threads = ThreadPoolExecutor(2)

    def submit(self, task: FleetTask[Any], chunk: Chunk) -> ChunkFuture:
        self.unfinished += len(chunk)
        self.most_unfinished = max(self.most_unfinished, self.unfinished)
        return self.threads.submit(
            lambda: [task.do(member, argument) for member, argument in chunk]
        )


def test_scheduled_work_is_bounded() -> None:
    pool = CountingPool()
    names = [str(number) for number in range(2_000)]
    members = [Member(name, name, problem="none") for name in names]
    finished = 0
    for _ in fleet.workers.schedule(pool, survey_task(NOW), members, fleet.workers.no_argument):
        finished += 1
        pool.unfinished -= 1
    assert finished == 2_000
    max_chunks = fleet.workers.CHUNKS_PER_WORKER * pool.workers
    assert pool.most_unfinished <= max_chunks * MAX_CHUNK_STORES


# Processes


def test_few_small_stores_run_serially() -> None:
    few = [Member(name, name, 1000) for name in ("a", "b", "c")]
    assert isinstance(fleet.workers.default_runner(few), Serial)
    assert isinstance(fleet.workers.default_runner(few * 20), Processes)
    assert isinstance(fleet.workers.default_runner([Member("large", "large", 10**9)]), Processes)


class BrokenExecutor:
    """An executor whose processes end before they do any work."""

    def submit(self, function: Callable[[], int]) -> Future[int]:
        future: Future[int] = Future()
        future.set_exception(BrokenProcessPool())
        return future

    def shutdown(self, *, cancel_futures: bool) -> None:
        pass


def test_pool_whose_processes_end_at_once_explains_the_main_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet.workers._ProcessPool, "_start", lambda _: BrokenExecutor())
    with pytest.raises(MemlabError, match="no process could be started; begin what your script"):
        list(Processes(1).run(survey_task(NOW), []))


@pytest.mark.long
def test_script_without_main_guard_gets_an_explanation(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 2)
    script = tmp_path / "script.py"
    script.write_text(
        "import memlab.fleet\n"
        "try:\n"
        f"    memlab.fleet.survey({str(store)!r}, runner=memlab.fleet.Processes(1))\n"
        "except memlab.MemlabError as error:\n"
        "    print('error:', error)\n"
    )
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "error: no process could be started; begin what your script does with" in result.stdout


# A cluster


@pytest.fixture
def store(tmp_path: Path) -> Path:
    pytest.importorskip("distributed")
    return agent_store(tmp_path / "memory.db", 1)


NO_MEMLAB = """
import sys
class NotThere:
    def find_spec(name, *_):
        if name.startswith("memlab"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NotThere)
"""


@pytest.mark.long
def test_worker_without_memlab_is_reported(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask ends a worker that cannot unpickle its task."""
    monkeypatch.setattr("memlab.fleet.workers.HEARTBEAT", 0.5)
    (tmp_path / "without.py").write_text(NO_MEMLAB)
    message = f"no worker at tcp://127.*: start one with memlab {memlab.__version__}"
    with (
        dask_cluster(tmp_path, workers=1, preload=tmp_path / "without.py") as file,
        cluster_at(scheduler_file=file, patience=120) as cluster,
    ):
        cluster.client.wait_for_workers(1, timeout=120)
        with pytest.raises(MemlabError, match=message):
            fleet.survey(store, now=NOW, runner=Cluster(cluster.client, patience=2))


def test_worker_with_another_version_reads_nothing(store: Path) -> None:
    read: list[str] = []
    chunk = [(Member.at(str(store)), None)]
    host = socket.gethostname()
    with pytest.raises(MemlabError, match=rf"the worker on {host} runs memlab"):
        fleet.workers.run_chunk_on_dask(FleetTask("reads", read.append, StoreLine), chunk, "0.0.9")
    assert read == []
    needs = FleetTask("needs", lambda _: import_extra("nosuchmodule", extra="none"), StoreLine)
    (outcome,) = fleet.workers.run_chunk_on_dask(needs, chunk, memlab.__version__)
    assert outcome.kind == "MissingExtraError"
    assert outcome.error.startswith(f"on {host}: this needs nosuchmodule, ")
    assert "'.[none]' in a checkout" in outcome.error


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ({"address": "tcp://127.0.0.1:9"}, r"no scheduler answers at tcp://127\.0\.0\.1:9"),
        ({"scheduler_file": Path("none.json")}, r"no scheduler file .*is the scheduler running"),
    ],
)
def test_missing_scheduler_is_reported(scheduler: dict[str, Any], message: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(MemlabError, match=message), cluster_at(**scheduler, patience=0.5):
        pass


@pytest.mark.long
def test_lost_scheduler_is_reported_and_the_call_resumes(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    paths = [agent_store(tmp_path / str(number) / "memory.db", 2) for number in range(30)]
    out = tmp_path / "results"
    with dask_cluster(tmp_path, workers=1) as file, cluster_at(scheduler_file=file) as cluster:
        scheduler = cluster.client.run_on_scheduler(os.getpid)

        def kill_scheduler(done: int, total: int) -> None:
            if done == 1:
                os.kill(scheduler, signal.SIGKILL)

        with pytest.raises(MemlabError, match="has ended; finished stores are kept"):
            fleet.survey(paths, now=NOW, runner=cluster, progress=kill_scheduler, out=out)
    steps: list[int] = []

    def record_step(done: int, total: int) -> None:
        steps.append(done)

    resumed = fleet.survey(paths, now=NOW, runner=Serial(), out=out, progress=record_step)
    assert steps[0] > 1
    assert steps == list(range(steps[0], 31))  # finished stores are not repeated
    pd.testing.assert_frame_equal(resumed, fleet.survey(paths, now=NOW, runner=Serial()))
