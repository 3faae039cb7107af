"""Measure the cap curve on a large history, beside simulating caps one by one.

    python .ci/bench/bench_sizing.py [--rows 1000000] [--references 5000000]

Prints the seconds of:

- the first call in this process, which compiles the loops or loads them from the cache;
- the largest ranks, which give every cap at once;
- ten caps, one by one, each a compiled first-in-first-out pass that looks every reference up;
- the largest sums of tokens, which give every budget at once;
- the references as arrays, and the whole ``cap_curve``;
- a recommendation, a look-up and an advice on 100,000 rows.

The second to the fourth are seconds of the processor, so that they can be compared on a busy
machine.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from numba import njit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memlab import columns as c
from memlab.sizing import advise, cap_curve, prepare_sizing, recommend_cap
from memlab.sizing.lifetimes import Lifetimes, Ranked
from tests.support.frames import make_episodes, make_references

Ints = npt.NDArray[np.int64]
Clock = Callable[[], float]


@njit()
def count_served(
    cap: int, prunable: npt.NDArray[np.bool_], end: Ints, target: Ints, at: Ints
) -> int:
    """Simulate one cap, and count the references to memories that are still loaded.

    `end` is the position at which each row is superseded.
    """
    count = len(prunable)
    deleted_at = np.full(count, count)
    queue = np.empty(count, np.int64)
    queue_start = 0
    queue_end = 0
    active = 0
    ending = np.zeros(count + 1, np.int64)  # active rows that are superseded at each position
    for position in range(count):
        if prunable[position]:
            queue[queue_end] = position
            queue_end += 1
            active += 1
            ending[end[position]] += 1
        active -= ending[position]
        while active > cap:
            oldest = queue[queue_start]
            queue_start += 1
            if end[oldest] > position:
                deleted_at[oldest] = position
                ending[end[oldest]] -= 1
                active -= 1
    served = 0
    for i in range(len(target)):
        served += deleted_at[target[i]] >= at[i]
    return served


def large_history(rows: int, references: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make episodes and references with a heavy tail.

    30 % of the episodes are superseded, hundreds of rows later.
    """
    rng = np.random.default_rng(7)
    frame = make_episodes(rows, tokens=rng.integers(10, 500, rows))
    end = np.arange(rows) + rng.geometric(1 / 300, rows)
    is_superseded = (rng.random(rows) < 0.3) & (end < rows)
    successors = pd.Series(frame[c.MEMORY_ID].to_numpy()[np.minimum(end, rows - 1)])
    frame[c.SUPERSEDED_BY] = successors.where(is_superseded, None).astype("str")
    frame[c.ACTIVE] = ~is_superseded
    frame[c.PRUNABLE] = ~is_superseded
    at = np.sort(rng.integers(1, rows, references))
    distance = np.minimum(np.ceil(rng.lognormal(3.5, 2.5, references)), at).astype(np.int64)
    return frame, make_references(frame, at, distance)


def seconds_of(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Measure one call."""
    started = clock()
    work()
    return clock() - started


def best_of(rounds: int, work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Measure the fastest of some calls."""
    return min(seconds_of(work, clock) for _ in range(rounds))


def measure_large(rows: int, references: int) -> None:
    """Measure the cap curve of a large history."""
    small_history = large_history(2_000, 4_000)
    first_call = seconds_of(lambda: cap_curve(*small_history))
    print(f"first call, 2,000 rows           {first_call:8.2f} s")
    frame, needs = large_history(rows, references)
    history = Lifetimes.of(frame)
    target = needs[c.TARGET_POSITION].to_numpy() - 1
    at = needs[c.AT_POSITION].to_numpy() - 1
    ranks = history.largest_ranks(target, at)
    all_caps = best_of(5, lambda: history.largest_ranks(target, at), time.process_time)
    caps = np.geomspace(10, rows // 2, 10).astype(np.int64)

    def served_by(cap: int) -> int:
        served: int = count_served(cap, history.ever_prunable, history.end, target, at)
        return served

    for cap in caps:
        assert served_by(cap) == (ranks <= cap).sum()
    ten_caps = best_of(5, lambda: [served_by(cap) for cap in caps], time.process_time)
    ratio = ten_caps / all_caps
    print(f"every cap at once                {all_caps:8.2f} s")
    print(f"ten caps, one by one             {ten_caps:8.2f} s   {ratio:.1f} times that")
    all_budgets = best_of(
        2,
        lambda: history.largest_ranks(target, at, in_tokens=True, with_floor=True),
        time.process_time,
    )
    print(f"every budget in tokens at once   {all_budgets:8.2f} s")
    arrays = best_of(2, lambda: Ranked.of(frame, history, needs))
    print(f"references as arrays, with ranks {arrays:8.2f} s")
    curve = best_of(2, lambda: cap_curve(frame, needs))
    print(f"cap_curve, whole                 {curve:8.2f} s")


def measure_interactive() -> None:
    """Measure the calls that a person waits for, on 100,000 rows."""
    frame, needs = large_history(100_000, 10_000)
    recommendation = best_of(2, lambda: recommend_cap(frame, needs))
    print(f"recommend_cap, 100,000 rows      {recommendation:8.3f} s")
    curve = best_of(2, lambda: cap_curve(frame, needs))
    print(f"cap_curve, 100,000 rows          {curve:8.3f} s")
    sizing = prepare_sizing(frame, needs)
    advise(sizing)
    look_up = best_of(5, lambda: sizing.at([1234]))
    print(f"look-up at another cap           {look_up:8.3f} s")
    advice = best_of(5, lambda: advise(sizing, target=0.8, token_budget=10**6))
    print(f"advice on another target, budget {advice:8.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--references", type=int, default=5_000_000)
    options = parser.parse_args()
    measure_large(options.rows, options.references)
    measure_interactive()


if __name__ == "__main__":
    main()
