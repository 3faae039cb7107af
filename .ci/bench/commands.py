"""Run commands and benchmarks in processes of their own, and measure them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Seconds(NamedTuple):
    """Time on the clock, and on the processor."""

    clock: float
    cpu: float


def least_of(runs: Sequence[Seconds]) -> Seconds:
    """Return the least time on the clock and the least on the processor, of any of the runs."""
    return Seconds(min(run.clock for run in runs), min(run.cpu for run in runs))


def measure_command(python: str, *arguments: str) -> Seconds:
    """Measure a command of the memlab of an interpreter, from the start of its process."""
    started = time.perf_counter()
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:  # a working directory without another memlab
        command = [python, "-m", "memlab", *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return Seconds(time.perf_counter() - started, user + system)


def measure_apart(
    file: str, *words: object, tree: Path | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """Run a benchmark with ``--measure`` in a process of its own; return what it prints as JSON.

    Parameters
    ----------
    file : str
        The benchmark's file.
    *words
        Words after ``--measure``.
    tree : Path, optional
        The tree of the memlab to measure, by default the one that the interpreter imports.
    python : str
        The interpreter.
    """
    command = [python, file, "--measure"]
    command += map(str, words)
    environment = dict(os.environ)
    if tree:
        environment["PYTHONPATH"] = str(tree)
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    costs: dict[str, Any] = json.loads(run.stdout)
    return costs
