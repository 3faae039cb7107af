"""Measure one move in the sizing panel, which updates numbers, charts and command.

    python .ci/bench/bench_explorer.py [--moves 20]

Moves each control on the bundled store of two years, and on 100,000 rows with 5,000 references.
Prints the median and the slowest move, and the ratio of the median to the time that a person
notices: 100 ms, and 300 ms for the large store.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import memlab
from tests.support.frames import make_episodes, make_references


class Case(NamedTuple):
    """A store to explore, and the time of a move that a person notices."""

    name: str
    frame: pd.DataFrame
    references: pd.DataFrame | None
    noticeable_ms: int


class Control(NamedTuple):
    """A widget of the panel, and the values to give it."""

    name: str
    widget: Any
    settings: Sequence[float]


def large_case() -> Case:
    """Make 100,000 episodes and 5,000 references with a heavy tail."""
    frame = make_episodes(100_000)
    rng = np.random.default_rng(1)
    at = np.sort(rng.integers(1, len(frame), 5_000))
    distance = np.minimum(np.exp(rng.normal(4, 2, len(at))).astype(np.int64) + 1, at)
    return Case("100,000 rows", frame, make_references(frame, at, distance), 300)


def measure(control: Control) -> list[float]:
    """Set each value of a control; return the milliseconds of each."""
    durations = []
    for value in control.settings:
        started = time.perf_counter()
        control.widget.value = value
        durations.append(1e3 * (time.perf_counter() - started))
    return durations


def explore(case: Case, moves: int) -> None:
    """Open the panel, move each control, and print the times."""
    started = time.perf_counter()
    panel = memlab.explore(case.frame, case.references)
    print(f"{case.name}: opened in {time.perf_counter() - started:.2f} s")
    controls = [
        Control("slider", panel.slider, [100 + 10 * n for n in range(moves)]),
        Control("box", panel.keep_recent, [n * 37 % 2_000 + 1 for n in range(moves)]),
        Control("target", panel.target, [0.5 + n % 49 / 100 for n in range(1, moves + 1)]),
        Control("token budget", panel.token_budget, [20_000 + 500 * n for n in range(moves)]),
    ]
    for control in controls:
        durations = measure(control)
        median = statistics.median(durations)
        print(
            f"  {control.name:13} median {median:5.0f} ms, slowest {max(durations):5.0f} ms, "
            f"{median / case.noticeable_ms:.2f} of {case.noticeable_ms} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=20)
    moves = parser.parse_args().moves
    two_years = memlab.load(memlab.store_path("two_years"))
    explore(Case("two_years", two_years, None, 100), moves)
    explore(large_case(), moves)


if __name__ == "__main__":
    main()
