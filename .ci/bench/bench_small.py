"""What a small store costs, for a fleet is many of them; and what a lock costs its writer.

    python .ci/bench/bench_small.py [--rounds 40] [--beside PYTHON]

Milliseconds to load, to plan and to recommend a cap for the 300-issue example, warm: the best of
the rounds on the clock and on the processor; then `memlab show` and `memlab size` from their start.
With the interpreter of another memlab, both are measured in turns and the ratio is shown, for a
busy machine slows both alike. Last, for each journal mode, how long the slowest of a writer's
commits takes alone, and beside a plan whose policy thinks for half a second: a store in WAL mode
goes on being written to, one with a rollback journal waits until the policy has decided.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
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
COMMAND = "from memlab.cli import main; main()"


def best(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Milliseconds of the best round, on the clock and on the processor."""
    clock = []
    processor = []
    for _ in range(rounds):
        started = time.perf_counter()
        used = time.process_time()
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


def calls(path: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of each call on a store."""
    past = getattr(memlab, "load_past", memlab.load)(path)
    work = {
        "load": lambda: memlab.load(path),
        "plan": lambda: memlab.plan(path, memlab.KeepRecent(50), now=NOW),
        "recommend": lambda: memlab.recommend_cap(past),
    }
    for call in work.values():
        call()
    return {name: best(call, rounds) for name, call in work.items()}


def command(python: str, *words: str) -> tuple[float, float]:
    """Milliseconds of one run of a command, on the clock and on the processor."""
    started = time.perf_counter()
    before = os.times()
    with tempfile.TemporaryDirectory() as elsewhere:  # where no other memlab lies
        asked = [python, "-c", COMMAND, *words]
        subprocess.run(asked, cwd=elsewhere, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return 1e3 * (time.perf_counter() - started), 1e3 * used


def measured(python: str, path: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of each call and command with the memlab of an interpreter."""
    asked = [python, __file__, "--calls", str(path), "--rounds", str(rounds)]
    found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    for name in ("show", "size"):
        runs = [command(python, name, str(path)) for _ in range(3)]
        found[f"memlab {name}"] = tuple(map(min, zip(*runs, strict=True)))
    return found


def small(path: Path, rounds: int, beside: str | None) -> None:
    """Print what a small store costs, where it is asked for beside another memlab's cost."""
    pythons = [sys.executable, *([beside] if beside else [])]
    turns = [[measured(python, path, rounds) for python in pythons] for _ in range(3)]
    for name in turns[0][0]:
        least = [
            [min(turn[who][name][what] for turn in turns) for what in (0, 1)]
            for who in range(len(pythons))
        ]
        ratio = f", {least[0][1] / least[1][1]:.2f} of the other's" if beside else ""
        print(f"{name:12} {least[0][0]:7.1f} ms ({least[0][1]:7.1f} ms of CPU{ratio})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--beside", help="the interpreter of another memlab")
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls:
        print(json.dumps(calls(options.calls, options.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        shutil.copyfile(EXAMPLE, path)
        os.utime(path, (0, 0))  # a file written just now is looked at with more care
        small(path, options.rounds, options.beside)
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
