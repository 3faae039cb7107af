"""Measure fleet commands by runner: this process, a pool of one or two processes, and Dask.

    python .ci/bench/bench_fleet.py FOLDER [--stores 1000] [--tasks survey,plan,size]
        [--runners serial,1,2,dask] [--rounds 1] [--large N]

Generates the stores below FOLDER if they do not exist: 200 to 2,000 memories each, one in twelve
load-bearing, one in twenty with a reference to an earlier one. Each runner does each task, with its
results saved as ``--results`` saves them. With `--rounds` above 1 the runners take turns, and the
sums are compared. Prints the stores per second on the clock, the milliseconds of the processor for
each store, of the workers and of the client, and the peak memory of the client.

If other programs use the machine, the rate on the clock says little. The last column is the rate
that an idle machine would have without waiting for the disk: stores divided by the processor
seconds of the busiest process, a worker or the client. `--large N` adds a store of N memories, and
prints the time of the busiest worker over the least that is possible: the time of the large store
alone, or half of the total.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from rows import Row, write_store

import memlab
from memlab import fleet
from memlab.fleet.change import plan_task
from memlab.fleet.cohort import fit_cohort, size_task
from memlab.fleet.sweep import outcomes_of, survey_task
from memlab.fleet.workers import ArgumentOf, FleetTask, no_argument

NOW: Final = datetime(2026, 7, 1, tzinfo=UTC)
POLICY: Final = memlab.KeepRecent(100)
TASKS: Final[dict[str, FleetTask[Any]]] = {
    "survey": survey_task(NOW),
    "plan": plan_task(POLICY, NOW),
    "size": size_task(fit_cohort({}), {}),
}
COMPARED_RUNNERS: Final = (("1", "2"), ("dask", "2"))
"""Pairs of runners whose sums are compared."""


class NewStore(NamedTuple):
    """A store to generate."""

    path: str
    memories: int
    seed: int


class Cost(NamedTuple):
    """Seconds on the clock, and of the processor: of each worker, and of the client."""

    clock: float
    workers: list[float]
    client: float

    @property
    def busiest(self) -> float:
        """Processor seconds of the busiest process."""
        return max(*self.workers, self.client)


@dataclass(frozen=True)
class TimedWork:
    """The work of a task, which records the processor seconds of each call by process."""

    work: Callable[..., Any]
    folder: Path

    def __call__(self, location: str, *arguments: Any) -> Any:
        started = time.process_time()
        try:
            return self.work(location, *arguments)
        finally:
            with (self.folder / str(os.getpid())).open("a") as file:
                file.write(f"{time.process_time() - started}\n")


def generate_rows(count: int, seed: int) -> Iterator[Row]:
    """Yield the rows of a store."""
    rng = np.random.default_rng(seed)
    kinds = rng.random(count)
    has_reference = rng.random(count) < 0.05
    distances = np.ceil(rng.lognormal(3, 1.4, count)).astype(int)
    lengths = rng.integers(80, 400, count)
    for number in range(count):
        kind = "episodic"
        if kinds[number] < 0.05:
            kind = "semantic"
        elif kinds[number] < 0.08:
            kind = "procedural"
        references = []
        if has_reference[number] and distances[number] <= number:
            references = [f"m{number - distances[number]}"]
        yield Row(
            memory_id=f"m{number}",
            kind=kind,
            title=f"Issue {number} of store {seed}",
            body="word " * (lengths[number] // 5),
            source_task_ref=f"issue:{number}",
            confidence=0.8,
            created_at=(NOW - timedelta(hours=count - number)).isoformat(),
            evidence_refs_json=json.dumps(references),
        )


def generate(store: NewStore) -> None:
    """Write a store, unless it exists."""
    path = Path(store.path)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    write_store(draft, generate_rows(store.memories, store.seed), synchronous="OFF")
    os.utime(draft, (0, 0))
    draft.rename(path)


def generate_all(folder: Path, count: int) -> list[str]:
    """Write the stores that do not exist; return the paths of all."""
    sizes = np.random.default_rng(0).integers(200, 2_001, count).tolist()
    stores = []
    for number, memories in enumerate(sizes):
        path = folder / f"{number // 1000:03}" / f"{number:06}.db"
        stores.append(NewStore(str(path), memories, seed=number))
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(generate, stores, chunksize=50))
    return [store.path for store in stores]


def measure(task_name: str, paths: list[str], runner: fleet.Runner) -> Cost:
    """Do a task as memlab.fleet does it, with its results saved to a folder."""
    task = TASKS[task_name]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = folder / "times"
        times.mkdir()
        timed_task = replace(task, work=TimedWork(task.work, times))
        started_cpu = time.process_time()
        started = time.perf_counter()
        outcomes = outcomes_of(
            timed_task,
            paths,
            runner=runner,
            out=folder / "results",
            argument_of=argument_for(task_name, paths, runner),
        )
        clock = time.perf_counter() - started
        client = time.process_time() - started_cpu
        failed = [outcome for outcome in outcomes if outcome.error]
        assert not failed, failed[0]
        workers = [sum_of_lines(file) for file in sorted(times.iterdir())]
    if isinstance(runner, fleet.Serial):
        client -= sum(workers)
    return Cost(clock, workers, client)


def sum_of_lines(file: Path) -> float:
    """Add the numbers in a file."""
    return sum(float(number) for number in file.read_text().split())


def argument_for(task_name: str, paths: list[str], runner: fleet.Runner) -> ArgumentOf:
    """Choose the extra argument of a task for each store, as memlab.fleet does."""
    if task_name == "plan":
        return lambda member: member.name
    if task_name == "size":
        cohort = fleet.cohort_of(paths, runner=runner)
        return lambda member: cohort.without(member.name).prior
    return no_argument


def print_cost(title: str, stores: int, cost: Cost) -> None:
    """Print the cost of a task."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{title:18} {stores / cost.clock:6.1f}/s {1e3 * sum(cost.workers) / stores:6.1f} ms of "
        f"CPU a store in {len(cost.workers)} workers, {1e3 * cost.client / stores:5.2f} ms here, "
        f"peak {peak:5.0f} MB; {stores / cost.busiest:6.1f}/s by the busiest",
        flush=True,
    )


@contextmanager
def open_runner(name: str) -> Iterator[fleet.Runner]:
    """Open a runner: ``serial``, ``dask`` or a number of processes."""
    if name == "dask":
        with open_dask() as cluster:
            yield cluster
    elif name == "serial":
        yield fleet.Serial()
    else:
        yield fleet.Processes(int(name))


@contextmanager
def open_dask() -> Iterator[fleet.Cluster]:
    """Start a Dask cluster of two workers."""
    from distributed import Client, LocalCluster

    os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"  # as the guide advises
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield fleet.Cluster(client)


def compare_runners(paths: list[str], tasks: list[str], runners: list[str], rounds: int) -> None:
    """Measure each task with each runner, and compare the runners.

    The runners take turns, because the speed of a machine can change from minute to minute.
    """
    costs: dict[tuple[str, str], list[Cost]] = {}
    for _, task, name in product(range(rounds), tasks, runners):
        with open_runner(name) as runner:
            cost = measure(task, paths, runner)
        print_cost(f"{task}, {name}", len(paths), cost)
        costs.setdefault((task, name), []).append(cost)
    for task in tasks:
        for first, second in COMPARED_RUNNERS:
            if first in runners and second in runners:
                print_comparison(task, first, costs[task, first], second, costs[task, second])


def print_comparison(
    task: str, first: str, costs: list[Cost], second: str, other_costs: list[Cost]
) -> None:
    """Print the ratios of the sums of two runners."""
    clock = sum(cost.clock for cost in costs) / sum(cost.clock for cost in other_costs)
    busiest = sum(cost.busiest for cost in costs) / sum(cost.busiest for cost in other_costs)
    print(
        f"{task}: {first} takes {clock:.2f} times as long as {second} on the clock, "
        f"{busiest:.2f} by the busiest"
    )


def measure_large(paths: list[str], large: str) -> None:
    """Survey a large store and many small ones, apart and together."""
    runner = fleet.Processes(2)
    alone = measure("survey", [large], runner)
    print_cost("large alone", 1, alone)
    small = measure("survey", paths, runner)
    print_cost("small alone", len(paths), small)
    together = measure("survey", [*paths, large], runner)
    print_cost("together", len(paths) + 1, together)
    total = sum(alone.workers) + sum(small.workers)
    least = max(sum(alone.workers), total / 2)
    ratio = max(together.workers) / least
    print(f"the busiest worker took {ratio:.2f} of the least that it can be")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--tasks", default="survey,plan,size")
    parser.add_argument("--runners", default="serial,1,2,dask")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--large", type=int, default=0)
    options = parser.parse_args()
    paths = generate_all(options.folder, options.stores)
    if options.large:
        large = str(options.folder / f"large-{options.large}.db")
        generate(NewStore(large, options.large, seed=1))
        measure_large(paths, large)
    else:
        tasks = options.tasks.split(",")
        runners = options.runners.split(",")
        compare_runners(paths, tasks, runners, options.rounds)


if __name__ == "__main__":
    main()
