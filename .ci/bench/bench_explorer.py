"""Time of one move in the sizing panel: numbers, pictures and command brought up to date.

    python .ci/bench/bench_explorer.py [--moves 20]

Moves each control on the bundled two years and on 100,000 rows with 5,000 references; prints the
median and the slowest move beside the time a person notices: 100 ms, and 300 ms for the large one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import memlab
from tests.support.frames import make_episodes, make_references


def large_store() -> tuple[pd.DataFrame, pd.DataFrame]:
    """100,000 episodes and 5,000 later needs with a heavy tail."""
    frame = make_episodes(100_000)
    chance = np.random.default_rng(1)
    at = np.sort(chance.integers(1, len(frame), 5_000))
    distance = np.minimum(np.exp(chance.normal(4, 2, len(at))).astype(np.int64) + 1, at)
    return frame, make_references(frame, at, distance)


def timed(control: Any, values: Iterable[Any]) -> list[float]:
    """Milliseconds that each setting of a control takes."""
    spent = []
    for value in values:
        start = time.perf_counter()
        control.value = value
        spent.append(1e3 * (time.perf_counter() - start))
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=20)
    moves = parser.parse_args().moves
    two_years = memlab.load(memlab.store_path("two_years"))
    stores = {"two_years": ((two_years, None), 100), "100,000 rows": (large_store(), 300)}
    for name, ((frame, references), bound) in stores.items():
        start = time.perf_counter()
        panel = memlab.explore(frame, references)
        print(f"{name}: opened in {time.perf_counter() - start:.2f} s")
        values = {
            "slider": (panel.slider, [100 + 10 * n for n in range(moves)]),
            "box": (panel.keep_recent, [n * 37 % 2_000 + 1 for n in range(moves)]),
            "target": (panel.target, [0.5 + n % 49 / 100 for n in range(1, moves + 1)]),
            "token budget": (panel.token_budget, [20_000 + 500 * n for n in range(moves)]),
        }
        for control, (widget, settings) in values.items():
            spent = timed(widget, settings)
            median = statistics.median(spent)
            slowest = max(spent)
            print(
                f"  {control:13} median {median:5.0f} ms, slowest {slowest:5.0f} ms, "
                f"{median / bound:.2f} of {bound} ms"
            )


if __name__ == "__main__":
    main()
