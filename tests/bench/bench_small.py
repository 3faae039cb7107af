"""What a small store costs, for a fleet is many of them; and what a lock costs its writer.

    python tests/bench/bench_small.py [--rounds 40]

Milliseconds to load and to plan the 300-issue example, warm: the best of the rounds on the clock
and on the processor. Then, for each journal mode, how long the slowest of a writer's commits takes
alone, and beside a plan whose policy thinks for half a second: a store in WAL mode goes on being
written to, one with a rollback journal waits until the policy has decided.
"""

import argparse
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import memlab

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "three_hundred_issues.db"
NOW = datetime(2026, 7, 1, tzinfo=UTC)
THINKS = 0.5


def best(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Milliseconds of the best round, on the clock and on the processor."""
    clock, processor = [], []
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        work()
        clock.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    return 1e3 * min(clock), 1e3 * min(processor)


class Thinking(memlab.KeepRecent):
    """A policy that takes its time."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        time.sleep(THINKS)
        return super().evict(rows, now=now)


def slowest_commit(path: Path, beside: Callable[[], object] | None) -> float:
    """Milliseconds of the slowest of a writer's commits, alone or beside something."""
    other = threading.Thread(target=beside) if beside else None
    slowest = 0.0
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as writer:
        writer.execute("PRAGMA synchronous = NORMAL")
        if other:
            other.start()
        until = time.perf_counter() + 2 * THINKS
        while time.perf_counter() < until:
            started = time.perf_counter()
            writer.execute("UPDATE memory_items SET confidence = confidence WHERE rowid = 1")
            slowest = max(slowest, time.perf_counter() - started)
    if other:
        other.join()
    return 1e3 * slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        shutil.copyfile(EXAMPLE, path)
        os.utime(path, (0, 0))  # a file written just now is looked at with more care
        for name, work in (
            ("load", lambda: memlab.load(path)),
            ("plan", lambda: memlab.plan(path, memlab.KeepRecent(50), now=NOW)),
        ):
            work()
            clock, processor = best(work, rounds)
            print(f"{name:5} {clock:6.1f} ms ({processor:6.1f} ms of CPU)")
        for mode in ("WAL", "DELETE"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"PRAGMA journal_mode = {mode}")
            alone = slowest_commit(path, None)
            beside = slowest_commit(path, lambda: memlab.plan(path, Thinking(50), now=NOW))
            print(
                f"{mode:7} slowest commit {alone:6.1f} ms alone, {beside:6.1f} ms beside a plan "
                f"that decides for {1e3 * THINKS:.0f} ms"
            )


if __name__ == "__main__":
    main()
