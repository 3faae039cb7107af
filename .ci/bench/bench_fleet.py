"""What a fleet costs: stores a second, one process and two, Dask beside the pool, one large store.

    python .ci/bench/bench_fleet.py FOLDER [--stores 1000] [--tasks survey,plan,size]
        [--runners serial,1,2,dask] [--rounds 1] [--large N]

Makes the stores below FOLDER where they are missing: 200 to 2,000 memories each, one in twelve
load-bearing, one in twenty a reference to an earlier one. Each task is done by each runner, its
results kept in parts as ``--results`` keeps them; with ``--rounds`` above 1 runners take turns, and
the comparison is of the sums. Printed are stores a second on the clock, the processor milliseconds
that a store takes of the workers and of the client, and the most memory that the client took.

On a machine that does other things the clock says little. The last column is what the clock would
say on one that does nothing else and waits for no disk: stores by the processor seconds of the
busiest of workers and client. ``--large N`` adds a store of N memories, and says how much longer
than the large one alone, or than all of it on all processors, the busiest worker took.
"""

import argparse
import json
import os
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import memlab
from memlab import fleet
from memlab.fleet.change import plan_task
from memlab.fleet.cohort import fit_cohort, size_task
from memlab.fleet.sweep import outcomes_of, survey_task
from memlab.fleet.workers import FleetTask, no_argument
from memlab.store.database import CREATE_TABLE

NOW = datetime(2026, 7, 1, tzinfo=UTC)
POLICY = memlab.KeepRecent(100)
MARKS = ",".join("?" * 14)


def rows(count: int, seed: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    kinds = rng.random(count)
    refers = rng.random(count) < 0.05
    back = np.ceil(rng.lognormal(3, 1.4, count)).astype(int)
    lengths = rng.integers(80, 400, count)
    for n in range(count):
        kind = "semantic" if kinds[n] < 0.05 else "procedural" if kinds[n] < 0.08 else "episodic"
        named = [f"m{n - back[n]}"] if refers[n] and back[n] <= n else []
        at = (NOW - timedelta(hours=count - n)).isoformat()
        title = f"Issue {n} of store {seed}"
        body = "word " * (lengths[n] // 5)
        yield (
            f"m{n}", kind, title, body, '["merged"]', None, None, f"issue:{n}", "agent", 0.8, at,
            "[]", json.dumps(named), None,
        )  # fmt: skip


def make(where: tuple[str, int, int]) -> None:
    name, count, seed = where
    path = Path(name)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    connection = sqlite3.connect(draft)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(CREATE_TABLE)
    with connection:
        connection.executemany(f"INSERT INTO memory_items VALUES ({MARKS})", rows(count, seed))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    os.utime(draft, (0, 0))
    draft.rename(path)


def made(folder: Path, stores: int) -> list[str]:
    sizes = np.random.default_rng(0).integers(200, 2_001, stores).tolist()
    names = [str(folder / f"{n // 1000:03}" / f"{n:06}.db") for n in range(stores)]
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(make, zip(names, sizes, range(stores), strict=True), chunksize=50))
    return names


@dataclass(frozen=True)
class Costed:
    """Work that notes what the process that does it has used of the processor."""

    work: Callable[..., Any]
    tally: Path

    def __call__(self, where: str, *given: Any) -> Any:
        started = time.process_time()
        try:
            return self.work(where, *given)
        finally:
            with (self.tally / str(os.getpid())).open("a") as file:
                file.write(f"{time.process_time() - started}\n")


class Cost(NamedTuple):
    """Seconds on the clock, and of the processor: of each worker, and of the client."""

    clock: float
    workers: list[float]
    client: float

    @property
    def busiest(self) -> float:
        return max(*self.workers, self.client)


def cost_of(task: str, names: list[str], runner: fleet.Runner) -> Cost:
    """Do a task as memlab.fleet does it, with results kept in parts."""
    made = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        (tally := Path(folder) / "tally").mkdir()
        costed = replace(made, work=Costed(made.work, tally))
        used = time.process_time()
        started = time.perf_counter()
        make_argument = {"size": lambda: prior_of(names, runner), "plan": lambda: name_of}.get(task)
        found = outcomes_of(
            costed,
            names,
            runner=runner,
            out=Path(folder) / "parts",
            argument_of=make_argument() if make_argument else no_argument,
        )
        clock = time.perf_counter() - started
        client = time.process_time() - used
        bad = [each for each in found if each.error]
        assert not bad, bad[0]
        files = sorted(tally.iterdir())
        workers = [sum(map(float, file.read_text().split())) for file in files]
    if isinstance(runner, fleet.Serial):
        client -= sum(workers)
    return Cost(clock, workers, client)


def prior_of(names: list[str], runner: fleet.Runner) -> Any:
    """What each store's own evidence leaves of the fleet's, as memlab.fleet.size finds it."""
    cohort = fleet.cohort_of(names, runner=runner)

    def prior(member: fleet.Member) -> Any:
        return cohort.without(member.name).prior

    return prior


def name_of(member: fleet.Member) -> str:
    return member.name


def told(name: str, stores: int, cost: Cost) -> Cost:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{name:18} {stores / cost.clock:6.1f}/s {1e3 * sum(cost.workers) / stores:6.1f} ms of CPU "
        f"a store in {len(cost.workers)} workers, {1e3 * cost.client / stores:5.2f} ms here, peak "
        f"{peak:5.0f} MB; {stores / cost.busiest:6.1f}/s by the busiest",
        flush=True,
    )
    return cost


@contextmanager
def two_workers() -> Iterator[fleet.Cluster]:
    from distributed import Client, LocalCluster

    os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"  # as the guide says
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield fleet.Cluster(client)


TASKS: dict[str, FleetTask[Any]] = {
    "survey": survey_task(NOW),
    "plan": plan_task(POLICY, NOW),
    "size": size_task(fit_cohort({}), {}),
}


def skewed(names: list[str], large: str) -> None:
    """Survey one large store among many small ones."""
    two = fleet.Processes(2)
    alone = told("large alone", 1, cost_of("survey", [large], two))
    small = told("small alone", len(names), cost_of("survey", names, two))
    both = told("together", len(names) + 1, cost_of("survey", [*names, large], two))
    total = sum(alone.workers) + sum(small.workers)
    least = max(sum(alone.workers), total / 2)
    print(f"the busiest worker took {max(both.workers) / least:.2f} of the least that it can be")


@contextmanager
def opened(name: str) -> Iterator[fleet.Runner]:
    if name == "dask":
        with two_workers() as cluster:
            yield cluster
    else:
        yield fleet.Serial() if name == "serial" else fleet.Processes(int(name))


def compared(names: list[str], tasks: list[str], runners: list[str], rounds: int) -> None:
    """Let the runners take turns, for a machine may be fast in one minute and slow in the next."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    for _, task, name in product(range(rounds), tasks, runners):
        with opened(name) as runner:
            cost = told(f"{task}, {name}", len(names), cost_of(task, names, runner))
        costs.setdefault((task, name), []).append(cost)
    for task in tasks:
        for one, other in (("1", "2"), ("dask", "2")):
            if one in runners and other in runners:
                ours = costs[task, one]
                theirs = costs[task, other]
                clock = sum(cost.clock for cost in ours) / sum(cost.clock for cost in theirs)
                busiest = sum(cost.busiest for cost in ours) / sum(cost.busiest for cost in theirs)
                print(
                    f"{task}: {one} takes {clock:.2f} times as long as {other} on the clock, "
                    f"{busiest:.2f} by the busiest"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--tasks", default="survey,plan,size")
    parser.add_argument("--runners", default="serial,1,2,dask")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--large", type=int, default=0)
    asked = parser.parse_args()
    names = made(asked.folder, asked.stores)
    if asked.large:
        large = str(asked.folder / f"large-{asked.large}.db")
        make((large, asked.large, 1))
        skewed(names, large)
    else:
        compared(names, asked.tasks.split(","), asked.runners.split(","), asked.rounds)


if __name__ == "__main__":
    main()
