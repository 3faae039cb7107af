"""Workers of a Dask cluster, started as a user would: a scheduler and two workers of their own."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from fleets import NOW, Deadly, agent_store, dask_cluster, mixed_fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memlab
from memlab.errors import MemlabError
from memlab.extras import import_extra
from memlab.fleet import Cluster, Processes, Serial, cluster_at, expand_names, survey
from memlab.fleet.clusters import _checked
from memlab.fleet.outcomes import SET_ASIDE
from memlab.fleet.running import outcomes_of
from memlab.fleet.surveying import Surveying

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as file:
        yield file


@pytest.fixture(scope="module")
def cluster(scheduler_file: Path) -> Iterator[Cluster]:
    with cluster_at(scheduler_file=scheduler_file, patience=120) as found:
        found.client.wait_for_workers(2, timeout=120)
        yield found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return mixed_fleet(tmp_path_factory.mktemp("fleet"))


@dataclass(frozen=True)
class NeedsMore:
    """A look at a store that nothing installed here can read."""

    def __call__(self, where: str, given: object = None) -> object:
        return import_extra("nosuchmodule", extra="none")


@given(data=st.data())
@settings(
    max_examples=1 + settings().max_examples // 10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_runner_returns_the_same_table_in_the_same_order(
    cluster: Cluster, fleet: list[Path], data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(fleet), min_size=2, unique=True))
    if not {name.name for name in names} - {"gone.db", "text.db"}:
        names = [*names, fleet[0]]
    expected = survey(names, now=NOW, runner=Serial())
    for runner in (cluster, Processes(2)):
        pd.testing.assert_frame_equal(survey(names, now=NOW, runner=runner), expected)


def test_a_worker_that_is_killed_in_the_middle_costs_a_retry(
    cluster: Cluster, fleet: list[Path], tmp_path: Path
) -> None:
    work = Deadly(NOW, tmp_path, frozenset({"agent-3"}), times=1)
    found = outcomes_of(work, fleet, runner=cluster)
    assert len(list(tmp_path.iterdir())) == 1
    assert found == outcomes_of(work, fleet, runner=Serial())


def test_a_store_that_kills_every_worker_is_set_aside_and_named(
    cluster: Cluster, fleet: list[Path], tmp_path: Path
) -> None:
    work = Deadly(NOW, tmp_path, frozenset({"agent-5"}), times=99)
    found = outcomes_of(work, fleet, runner=cluster)
    aside = [each.name for each in found if each.kind == SET_ASIDE]
    assert [Path(name).parent.name for name in aside] == ["agent-5"]
    assert sum(each.value is not None for each in found) == 11


def test_workers_of_another_memlab_are_refused_in_words(tmp_path: Path) -> None:
    older = tmp_path / "older.py"
    older.write_text("import memlab\nmemlab.__version__ = '0.0.9'\n")
    store = agent_store(tmp_path / "memory.db", 1)
    with (
        dask_cluster(tmp_path, workers=1, preload=older) as file,
        cluster_at(scheduler_file=file, patience=120) as cluster,
        pytest.raises(MemlabError, match=r"runs memlab 0\.0\.9; install the same on every worker"),
    ):
        survey(store, now=NOW, runner=cluster)


def test_a_worker_that_came_late_with_another_memlab_reads_nothing(tmp_path: Path) -> None:
    members = expand_names([agent_store(tmp_path / "memory.db", 1), tmp_path / "gone.db"]).stores
    chunk = [(member, None) for member in members]
    for found in _checked(Surveying(NOW), chunk, "0.0.9"):
        assert found.value is None
        assert f"the worker on {socket.gethostname()} runs memlab" in found.error
        assert "and the client 0.0.9; install the same on both" in found.error
    good, gone = _checked(Surveying(NOW), chunk, memlab.__version__)
    assert (good.error, good.value.memories) == ("", 2)
    assert gone.error.startswith("there is no file")


def test_a_worker_without_an_extra_says_which_and_where(tmp_path: Path) -> None:
    members = expand_names(agent_store(tmp_path / "memory.db", 1)).stores
    (found,) = _checked(NeedsMore(), [(members[0], None)], memlab.__version__)
    assert found.kind == "MissingExtraError"
    assert found.error.startswith(f"on {socket.gethostname()}: this needs nosuchmodule, ")
    assert "memlab[none]" in found.error


def test_a_scheduler_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(MemlabError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"),
        cluster_at("tcp://127.0.0.1:9", patience=0.5),
    ):
        pass
    with (
        pytest.raises(MemlabError, match=r"there is no scheduler file .*is the scheduler running"),
        cluster_at(scheduler_file=tmp_path / "none.json"),
    ):
        pass


def test_a_scheduler_without_workers_is_said(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    with (
        dask_cluster(tmp_path, workers=0) as file,
        cluster_at(scheduler_file=file, patience=120) as cluster,
        pytest.raises(MemlabError, match="no worker came to tcp://127"),
    ):
        survey(store, now=NOW, runner=Cluster(cluster.client, patience=1))


def test_a_worker_that_hangs_is_said(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    with dask_cluster(tmp_path, workers=1) as file, cluster_at(scheduler_file=file) as cluster:
        cluster.client.wait_for_workers(1, timeout=120)
        (worker,) = cluster.client.run(os.getpid).values()
        os.kill(worker, signal.SIGSTOP)
        try:
            with pytest.raises(MemlabError, match="did not say in 2 seconds which memlab it runs"):
                survey(store, now=NOW, runner=Cluster(cluster.client, patience=2))
        finally:
            os.kill(worker, signal.SIGCONT)
        assert survey(store, now=NOW, runner=cluster)["memories"].tolist() == [2]


def test_a_scheduler_that_goes_away_is_said_and_the_same_call_goes_on(tmp_path: Path) -> None:
    paths = [agent_store(tmp_path / f"{n}" / "memory.db", 2) for n in range(30)]
    with dask_cluster(tmp_path, workers=1) as file, cluster_at(scheduler_file=file) as cluster:
        process = cluster.client.run_on_scheduler(os.getpid)

        def end(done: int, total: int) -> None:
            if done == 1:
                os.kill(process, signal.SIGKILL)

        with pytest.raises(MemlabError, match="went away; what is done is done"):
            survey(paths, now=NOW, runner=cluster, progress=end, out=tmp_path / "kept")
    seen: list[int] = []
    found = survey(
        paths,
        now=NOW,
        runner=Serial(),
        progress=lambda done, _: seen.append(done),
        out=tmp_path / "kept",
    )
    assert seen[0] > 1
    assert seen == list(range(seen[0], 31))  # what was kept is not asked for again
    pd.testing.assert_frame_equal(found, survey(paths, now=NOW, runner=Serial()))
