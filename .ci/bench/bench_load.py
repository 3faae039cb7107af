"""Time and memory of ``memlab.load`` on a large store beside pandas on the standard driver.

    python .ci/bench/bench_load.py [--rows 1000000] [--rounds 3]

Each way runs in a process of its own on the same generated store. Seconds are of the load alone,
the best of the rounds; memory is the process's peak, imports included.
"""

import argparse
import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd

import memlab
from memlab.store.database import CREATE_TABLE

WORDS = "the cache of an index parser merge failed because a retry timed out when building docs"
START = datetime(2024, 1, 1, tzinfo=UTC)


def generate(path: Path, rows: int) -> None:
    """Write a store like the ones agents write: 87 % prunable, 8 % superseded, some refer back."""
    chance = random.Random(7)
    words = WORDS.split()
    text = " ".join(chance.choice(words) for _ in range(4000))

    def row(n: int) -> tuple[object, ...]:
        roll = chance.random()
        at = chance.randrange(3000)
        kind = "semantic" if roll < 0.02 else "procedural" if roll < 0.04 else "episodic"
        tags = [chance.choice(["failed", "merged"]), f"area:{chance.randrange(30)}"]
        dash = " – " if chance.random() < 0.05 else " "
        evidence = [f"issue:#{chance.randrange(n)}"] if n and chance.random() < 0.07 else []
        return (
            f"m{n}",
            kind,
            f"shipped #{n}:{dash}{text[at : at + 30]}",
            text[at : at + 180] + dash + text[at : at + chance.randrange(150)],
            json.dumps([*tags, "rejected-path"] if roll > 0.99 else tags),
            None,
            None,
            f"issue:#{n}",
            "agent",
            chance.choice([1.0, 1.0, 0.9, 0.7]),
            (START + timedelta(minutes=n, microseconds=chance.randrange(10**6))).isoformat(),
            "[]",
            json.dumps(evidence),
            f"m{n + 1}" if 0.05 <= roll < 0.13 and n + 1 < rows else None,
        )

    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(CREATE_TABLE)
    with connection:
        connection.executemany(
            f"INSERT INTO memory_items VALUES ({','.join('?' * 14)})", (row(n) for n in range(rows))
        )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def by_the_standard_driver(path: Path) -> pd.DataFrame:
    connection = sqlite3.connect(path)
    try:
        return pd.read_sql_query("SELECT * FROM memory_items", connection)
    finally:
        connection.close()


def by_the_package(path: Path) -> pd.DataFrame:
    return memlab.load(path)


def by_the_package_with_bodies(path: Path) -> pd.DataFrame:
    return memlab.load(path, with_body=True)


WAYS: dict[str, Callable[[Path], pd.DataFrame]] = {
    way.__name__: way
    for way in (by_the_standard_driver, by_the_package, by_the_package_with_bodies)
}


def measure(name: str, path: Path) -> None:
    """Print what one way takes, as JSON."""
    if name != by_the_standard_driver.__name__:
        memlab.load(memlab.SqliteMemoryStore(":memory:"))  # imports are no part of a load
    started = time.perf_counter()
    used = time.process_time()
    frame = WAYS[name](path)
    result = {
        "rows": len(frame),
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - used,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(result))


def measured_apart(name: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--way", name, "--store", str(path)]
    run = subprocess.run(command, capture_output=True, check=True, text=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        measure(args.way, args.store)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        generate(path, args.rows)
        print(f"{args.rows} rows, {path.stat().st_size / 2**20:.0f} MB")
        best: dict[str, dict[str, float]] = {}
        for _ in range(args.rounds):
            for name in WAYS:
                found = measured_apart(name, path)
                if name not in best or found["seconds"] < best[name]["seconds"]:
                    best[name] = found
    baseline = best[by_the_standard_driver.__name__]
    for name, found in best.items():
        print(
            f"{name:28} {found['seconds']:6.2f} s ({found['cpu']:6.2f} s of CPU) "
            f"{found['megabytes']:6.0f} MB   {baseline['seconds'] / found['seconds']:4.1f}x as "
            f"fast, {found['megabytes'] / baseline['megabytes']:.2f} of the memory"
        )


if __name__ == "__main__":
    main()
