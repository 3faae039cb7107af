"""What a fleet costs: stores a second, one process and two, Dask beside the pool, one large store.

    python tests/bench/bench_fleet.py FOLDER [--stores 1000] [--large 0] [--survey-only]

Makes the stores below FOLDER where they are missing: 200 to 2,000 memories each, one in twelve
load-bearing, one in twenty a reference to an earlier one. Prints for each task and runner the
stores a second on the clock, the processor seconds of this process a store, which where the work
is done here are all of it, and the most memory that it took. On a machine that does other things
the ratios and the processor seconds are what to read. ``--large N`` adds a store of N memories and
compares the whole with the large one.
"""

import argparse
import json
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import memlab
from memlab import fleet
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
        title, body = f"Issue {n} of store {seed}", "word " * (lengths[n] // 5)
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


def measured(name: str, stores: int, work: Callable[[], object]) -> float:
    used, started = time.process_time(), time.perf_counter()
    work()
    took = time.perf_counter() - started
    cost = 1e3 * (time.process_time() - used) / stores
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{name:24} {took:8.1f} s {stores / took:8.1f} stores/s {cost:7.1f} ms of CPU here "
        f"a store, its peak {peak:6.0f} MB",
        flush=True,
    )
    return took


@contextmanager
def two_workers() -> Iterator[fleet.Cluster]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield fleet.Cluster(client)


def tasks(names: list[str], *, survey_only: bool) -> dict[str, Callable[[fleet.Runner], object]]:
    found: dict[str, Callable[[fleet.Runner], object]] = {
        "survey": lambda runner: fleet.survey(names, now=NOW, runner=runner)
    }
    if not survey_only:
        found["plan"] = lambda runner: fleet.plan(names, POLICY, now=NOW, runner=runner)
        found["size"] = lambda runner: fleet.size(names, runner=runner)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--survey-only", action="store_true")
    asked = parser.parse_args()
    names = made(asked.folder, asked.stores)
    if asked.large:
        large = str(asked.folder / f"large-{asked.large}.db")
        make((large, asked.large, 1))
        measured("large alone", 1, lambda: fleet.survey(large, now=NOW, runner=fleet.Processes(1)))
        for count in (1, 2):
            who = fleet.Processes(count)
            measured(f"small alone, {count}", len(names), lambda: fleet.survey(names, runner=who))  # noqa: B023
        both = [*names, large]
        measured("both, 2", len(both), lambda: fleet.survey(both, runner=fleet.Processes(2)))
        return
    for name, task in tasks(names, survey_only=asked.survey_only).items():
        measured(f"{name}, here", len(names), lambda: task(fleet.Serial()))  # noqa: B023
        one = measured(f"{name}, 1 process", len(names), lambda: task(fleet.Processes(1)))  # noqa: B023
        two = measured(f"{name}, 2 processes", len(names), lambda: task(fleet.Processes(2)))  # noqa: B023
        print(f"{'':24} two processes are {one / two:.2f} times as fast as one")
    with two_workers() as cluster:
        for name, task in tasks(names, survey_only=asked.survey_only).items():
            measured(f"{name}, Dask", len(names), lambda: task(cluster))  # noqa: B023


if __name__ == "__main__":
    main()
