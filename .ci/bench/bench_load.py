"""Measure the time and memory of ``memlab.load`` on a large store, beside pandas with ``sqlite3``.

    python .ci/bench/bench_load.py [--rows 1000000] [--rounds 3]

Each routine runs in a process of its own on the same generated store. Seconds are of the load
alone, and those of the fastest round are printed. Memory is the peak of the process, imports
included.
"""

import argparse
import json
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pandas as pd
from commands import measure_apart
from rows import Row, write_store

import memlab

SENTENCE: Final = (
    "the cache of an index parser merge failed because a retry timed out when building docs"
)
START: Final = datetime(2024, 1, 1, tzinfo=UTC)


def generate_rows(rows: int) -> Iterator[Row]:
    """Yield rows like those of agents: 87 % prunable, 8 % superseded, some with references."""
    rng = random.Random(7)
    words = SENTENCE.split()
    text = " ".join(rng.choice(words) for _ in range(4000))
    for number in range(rows):
        draw = rng.random()
        start = rng.randrange(3000)
        kind = "episodic"
        if draw < 0.02:
            kind = "semantic"
        elif draw < 0.04:
            kind = "procedural"
        superseded_by = None
        if 0.05 <= draw < 0.13 and number + 1 < rows:
            superseded_by = f"m{number + 1}"
        tags = [rng.choice(["failed", "merged"]), f"area:{rng.randrange(30)}"]
        if draw > 0.99:
            tags.append("rejected-path")
        dash = " – " if rng.random() < 0.05 else " "
        references = []
        if number and rng.random() < 0.07:
            references.append(f"issue:#{rng.randrange(number)}")
        end = text[start : start + rng.randrange(150)]
        confidence = rng.choice([1.0, 1.0, 0.9, 0.7])
        created_at = START + timedelta(minutes=number, microseconds=rng.randrange(10**6))
        yield Row(
            memory_id=f"m{number}",
            kind=kind,
            title=f"shipped #{number}:{dash}{text[start : start + 30]}",
            body=text[start : start + 180] + dash + end,
            tags_json=json.dumps(tags),
            source_task_ref=f"issue:#{number}",
            confidence=confidence,
            created_at=created_at.isoformat(),
            evidence_refs_json=json.dumps(references),
            superseded_by=superseded_by,
        )


def by_the_standard_driver(path: Path) -> pd.DataFrame:
    """Load all columns with pandas."""
    with closing(sqlite3.connect(path)) as connection:
        return pd.read_sql_query("SELECT * FROM memory_items", connection)


def by_the_package(path: Path) -> pd.DataFrame:
    """Load the columns without bodies."""
    return memlab.load(path)


def by_the_package_with_bodies(path: Path) -> pd.DataFrame:
    """Load all columns."""
    return memlab.load(path, with_body=True)


ROUTINES: Final[dict[str, Callable[[Path], pd.DataFrame]]] = {
    "by_the_standard_driver": by_the_standard_driver,
    "by_the_package": by_the_package,
    "by_the_package_with_bodies": by_the_package_with_bodies,
}


def measure(routine: str, path: Path) -> None:
    """Print the costs of a routine as JSON."""
    if routine != by_the_standard_driver.__name__:
        memlab.load(memlab.SqliteMemoryStore(":memory:"))  # the seconds leave out imports
    started = time.perf_counter()
    started_cpu = time.process_time()
    frame = ROUTINES[routine](path)
    costs = {
        "rows": len(frame),
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - started_cpu,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        routine, path = options.measure
        measure(routine, Path(path))
        return
    rounds: dict[str, list[dict[str, Any]]] = {routine: [] for routine in ROUTINES}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memory.db"
        write_store(store, generate_rows(options.rows))
        print(f"{options.rows} rows, {store.stat().st_size / 2**20:.0f} MB")
        for _ in range(options.rounds):
            for routine in ROUTINES:
                rounds[routine].append(measure_apart(__file__, routine, store))
    best = {}
    for routine in ROUTINES:
        best[routine] = min(rounds[routine], key=lambda costs: costs["seconds"])
    driver = best[by_the_standard_driver.__name__]
    for routine, costs in best.items():
        print(
            f"{routine:28} {costs['seconds']:6.2f} s ({costs['cpu']:6.2f} s of CPU) "
            f"{costs['megabytes']:6.0f} MB   {driver['seconds'] / costs['seconds']:4.1f}x as "
            f"fast, {costs['megabytes'] / driver['megabytes']:.2f} of the memory"
        )


if __name__ == "__main__":
    main()
