"""Small fleets, tasks that kill their process, and a Dask cluster as a user would start one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from memlab.fleet import FleetPlan, Outcome, Runner, StoreLine
from memlab.fleet.change import Applied, apply_saved, saved_plans
from memlab.fleet.sweep import outcomes_of, survey_task
from memlab.fleet.workers import FleetTask
from tests.support.stores import episodes, row, write_rows

CHECKOUT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 7, 1, tzinfo=UTC)
START = 120.0
"""Seconds that processes may take to start on a busy machine."""


def agent_store(path: Path, count: int) -> Path:
    """Write a store of one decision and some episodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_rows(path, [row("decision", "semantic"), *episodes(count)])


def referring_store(path: Path, count: int, distance: int) -> Path:
    """Write a store in which every fifth episode refers to the one `distance` before it."""
    rows = []
    for number in range(count):
        month = 1 + number // 200
        day = 1 + number // 8 % 25
        columns = row(
            f"e{number}",
            source_task_ref=None,
            created_at=f"2026-{month:02}-{day:02}T12:00:{number % 60:02}+00:00",
        )
        if number % 5 == 0 and number > distance:
            columns["evidence_refs_json"] = f'["e{number - distance}"]'
        rows.append(columns)
    return write_rows(path, rows)


def mixed_fleet(folder: Path) -> list[Path]:
    """Write stores of several sizes; return their paths and two paths without a store."""
    stores = [
        agent_store(folder / f"agent-{number}" / "memory.db", 3 * number) for number in range(12)
    ]
    text = folder / "text.db"
    text.write_text("no database, by its first bytes")
    return [*stores[:6], text, folder / "gone.db", *stores[6:]]


@dataclass(frozen=True)
class Deadly:
    """A survey that kills its worker at some stores, a number of times each."""

    tally: Path
    deadly: frozenset[str]
    times: int

    def __call__(self, where: str) -> StoreLine:
        name = Path(where).parent.name
        deaths = len(list(self.tally.glob(f"{name}-*")))
        if name in self.deadly and deaths < self.times:
            (self.tally / f"{name}-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return survey_task(NOW).work(where)


@dataclass(frozen=True)
class DiesAfter:
    """A progress callback that kills its process after a number of stores."""

    count: int

    def __call__(self, finished: int, total: int) -> None:
        if finished == self.count:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DiesApplying:
    """Applies plans and kills its worker once, at a step of one store."""

    tally: Path
    step: str

    def __call__(self, where: str, plan: Any) -> Applied:
        def on_step(step: str) -> None:
            note = self.tally / "died"
            if "agent-7" in where and step == self.step and not note.exists():
                note.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return apply_saved(where, plan, now=NOW, on_step=on_step)


def applied(
    fleet_plan: FleetPlan, runner: Runner | None = None, work: Callable[..., Applied] | None = None
) -> list[Outcome[Applied]]:
    """Apply the plans of each store; return the outcomes."""
    members, plan_of = saved_plans(fleet_plan)
    task = FleetTask("apply", work or partial(apply_saved, now=NOW), Applied, changes=True)
    return outcomes_of(task, members, runner=runner, argument_of=plan_of)


@contextmanager
def dask_cluster(
    folder: Path, *, workers: int = 2, preload: Path | None = None, python: str = sys.executable
) -> Iterator[Path]:
    """Start a scheduler and workers in separate processes; yield the scheduler's file.

    A single worker has no nanny that starts it again: a nanny is one more process.
    """
    file = folder / "scheduler.json"
    environment = os.environ | {
        "PYTHONPATH": str(CHECKOUT),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",  # the default of 3 is slower
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(part: str, *arguments: object) -> None:
        command = [python, "-m", f"distributed.cli.dask_{part}", "--no-dashboard"]
        command += map(str, arguments)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        started.append(process)

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file)
        until = time.monotonic() + START
        while not file.exists() or not file.stat().st_size:
            assert time.monotonic() < until, "the scheduler did not start"
            assert started[0].poll() is None, "the scheduler ended"
            time.sleep(0.05)
        nanny = "--nanny" if workers > 1 else "--no-nanny"
        options = ["--scheduler-file", str(file), nanny, "--nthreads", "1"]
        if preload:
            options += ["--preload", str(preload)]
        for number in range(workers):
            start("worker", *options, "--local-directory", folder / f"worker-{number}")
        yield file
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
