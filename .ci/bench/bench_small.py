"""Measure calls and commands on a small store, and how long a plan blocks a writer.

    python .ci/bench/bench_small.py [--rounds 40] [--beside PYTHON]

Prints the milliseconds to load the 300-issue example, to plan, and to recommend a cap, after a
first call: the best of the rounds, on the clock and on the processor. The same for `memlab show`
and `memlab size`, from the start of the process. With the interpreter of another memlab, both take
turns and their ratio is printed, because a busy machine slows both alike.

Then prints, for each journal mode, the slowest commit of a writer: alone, and beside a plan whose
policy takes half a second. A store in WAL mode can be written meanwhile; with a rollback journal
the writer waits for the policy.
"""

import argparse
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pandas as pd
from commands import Seconds, least_of, measure_apart, measure_command

import memlab

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "data" / "three_hundred_issues.db"
NOW: Final = datetime(2026, 7, 1, tzinfo=UTC)
POLICY_SECONDS: Final = 0.5
TURNS: Final = 3
"""Number of turns of each memlab."""
COMMAND_RUNS: Final = 3
"""Runs of a command in each turn."""


class SlowPolicy(memlab.KeepRecent):
    """A policy that takes `POLICY_SECONDS`."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        time.sleep(POLICY_SECONDS)
        return super().evict(rows, now=now)


def measure_call(call: Callable[[], object]) -> Seconds:
    """Measure a call in this process."""
    started = time.perf_counter()
    started_cpu = time.process_time()
    call()
    clock = time.perf_counter() - started
    return Seconds(clock, time.process_time() - started_cpu)


def measure_calls(path: Path, rounds: int) -> dict[str, Seconds]:
    """Measure each call on a store after a first one."""
    past = memlab.load_past(path)
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: memlab.load(path),
        "plan": lambda: memlab.plan(path, memlab.KeepRecent(50), now=NOW),
        "recommend": lambda: memlab.recommend_cap(past),
    }
    for call in calls.values():
        call()
    return {
        name: least_of([measure_call(call) for _ in range(rounds)]) for name, call in calls.items()
    }


def measure_python(python: str, path: Path, rounds: int) -> dict[str, Seconds]:
    """Measure each call and command with the memlab of an interpreter."""
    calls = measure_apart(__file__, path, "--rounds", rounds, python=python)
    times = {name: Seconds(*values) for name, values in calls.items()}
    for name in ("show", "size"):
        runs = [measure_command(python, name, str(path)) for _ in range(COMMAND_RUNS)]
        times[f"memlab {name}"] = least_of(runs)
    return times


def print_times(path: Path, rounds: int, beside: str | None) -> None:
    """Print the time of each call and command, and its ratio to that of another memlab."""
    turns = []
    other_turns = []
    for _ in range(TURNS):
        turns.append(measure_python(sys.executable, path, rounds))
        if beside:
            other_turns.append(measure_python(beside, path, rounds))
    for name in turns[0]:
        least = least_of([turn[name] for turn in turns])
        ratio = ""
        if other_turns:
            other = least_of([turn[name] for turn in other_turns])
            ratio = f", {least.cpu / other.cpu:.2f} of the other's"
        print(f"{name:12} {1e3 * least.clock:7.1f} ms ({1e3 * least.cpu:7.1f} ms of CPU{ratio})")


def slowest_commit(path: Path, beside: Callable[[], object] | None = None) -> float:
    """Commit for a second, and return the milliseconds of the slowest commit.

    `beside` runs in another thread meanwhile.
    """
    thread = threading.Thread(target=beside) if beside else None
    slowest = 0.0
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as writer:
        writer.execute("PRAGMA synchronous = NORMAL")
        if thread:
            thread.start()
        end = time.perf_counter() + 2 * POLICY_SECONDS
        while time.perf_counter() < end:
            started = time.perf_counter()
            writer.execute("UPDATE memory_items SET confidence = confidence WHERE rowid = 1")
            slowest = max(slowest, time.perf_counter() - started)
    if thread:
        thread.join()
    return 1e3 * slowest


def print_slowest_commits(path: Path) -> None:
    """Print the slowest commit in each journal mode."""
    for mode in ("WAL", "DELETE"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
        alone = slowest_commit(path)
        beside = slowest_commit(path, lambda: memlab.plan(path, SlowPolicy(50), now=NOW))
        print(
            f"{mode:7} slowest commit {alone:6.1f} ms alone, {beside:6.1f} ms beside a plan "
            f"that decides for {1e3 * POLICY_SECONDS:.0f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--beside", help="the interpreter of another memlab")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_calls(options.measure, options.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        shutil.copyfile(EXAMPLE, path)
        os.utime(path, (0, 0))  # memlab takes more care with a file that was just written
        print_times(path, options.rounds, options.beside)
        print_slowest_commits(path)


if __name__ == "__main__":
    main()
