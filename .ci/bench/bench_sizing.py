"""Time of the cap curve on a large history beside simulating caps one by one.

    python .ci/bench/bench_sizing.py [--rows 1000000] [--references 5000000]

Prints seconds of: the first call in this process (compiling, or loading the compiled loops from the
cache); the largest ranks, which answer every cap at once; ten caps simulated one by one, each a
compiled first-in-first-out pass over the history that also looks every reference up; the largest
sums of tokens, which answer every budget at once; the whole ``cap_curve``; a look-up and an advice
on 100,000 rows once prepared. The second to the fourth are seconds of the processor, so that the
comparison holds on a busy machine.
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


@njit
def served_by_one_cap(
    cap: int, counted: npt.NDArray[np.bool_], end: Ints, target: Ints, at: Ints
) -> int:
    """Run one cap forward, noting when each row goes; count the references served."""
    n = len(counted)
    goes = np.full(n, n)
    waiting = np.empty(n, np.int64)
    first = 0
    last = 0
    active = 0
    leaving = np.zeros(n + 1, np.int64)
    for moment in range(n):
        if counted[moment]:
            waiting[last] = moment
            last += 1
            active += 1
            leaving[end[moment]] += 1
        active -= leaving[moment]
        while active > cap:
            oldest = waiting[first]
            first += 1
            if end[oldest] > moment:
                goes[oldest] = moment
                leaving[end[oldest]] -= 1
                active -= 1
    served = 0
    for i in range(len(target)):
        served += goes[target[i]] >= at[i]
    return served


def large_history(rows: int, references: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Episodes of which 30 % are superseded hundreds of rows later, with heavy-tailed needs."""
    rng = np.random.default_rng(7)
    frame = make_episodes(rows, tokens=rng.integers(10, 500, rows))
    end = np.arange(rows) + rng.geometric(1 / 300, rows)
    gone = (rng.random(rows) < 0.3) & (end < rows)
    frame[c.SUPERSEDED_BY] = (
        pd.Series(frame[c.MEMORY_ID].to_numpy()[np.minimum(end, rows - 1)])
        .where(gone, None)
        .astype("str")
    )
    frame[c.ACTIVE] = ~gone
    frame[c.PRUNABLE] = ~gone
    at = np.sort(rng.integers(1, rows, references))
    distance = np.minimum(np.ceil(rng.lognormal(3.5, 2.5, references)), at).astype(np.int64)
    return frame, make_references(frame, at, distance)


Clock = Callable[[], float]


def seconds(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Seconds that one call takes."""
    begun = clock()
    work()
    return clock() - begun


def best_of(times: int, work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """The shortest of several calls."""
    return min(seconds(work, clock) for _ in range(times))


def measure_large(rows: int, references: int) -> None:
    """The exact curve at full size."""
    small = large_history(2_000, 4_000)
    print(f"first call, 2,000 rows           {seconds(lambda: cap_curve(*small)):8.2f} s")
    frame, needs = large_history(rows, references)
    history = Lifetimes.of(frame)
    target = needs[c.TARGET_POSITION].to_numpy() - 1
    at = needs[c.AT_POSITION].to_numpy() - 1
    ranks = history.largest_ranks(target, at)
    every = best_of(5, lambda: history.largest_ranks(target, at), time.process_time)
    caps = np.geomspace(10, rows // 2, 10).astype(np.int64)
    data = (history.ever_prunable, history.end, target, at)
    for cap in caps:
        assert served_by_one_cap(cap, *data) == (ranks <= cap).sum()
    ten = best_of(5, lambda: [served_by_one_cap(cap, *data) for cap in caps], time.process_time)
    print(f"every cap at once                {every:8.2f} s")
    print(f"ten caps, one by one             {ten:8.2f} s   {ten / every:.1f} times that")
    sums = best_of(
        2,
        lambda: history.largest_ranks(target, at, in_tokens=True, with_floor=True),
        time.process_time,
    )
    print(f"every budget in tokens at once   {sums:8.2f} s")
    arrays = best_of(2, lambda: Ranked.of(frame, history, needs))
    print(f"references as arrays, with ranks {arrays:8.2f} s")
    print(f"cap_curve, whole                 {best_of(2, lambda: cap_curve(frame, needs)):8.2f} s")


def measure_interactive() -> None:
    """What a person waits for on 100,000 rows."""
    frame, needs = large_history(100_000, 10_000)
    print(
        f"recommend_cap, 100,000 rows      {best_of(2, lambda: recommend_cap(frame, needs)):8.3f} s"
    )
    print(f"cap_curve, 100,000 rows          {best_of(2, lambda: cap_curve(frame, needs)):8.3f} s")
    sizing = prepare_sizing(frame, needs)
    advise(sizing)
    print(f"look-up at another cap           {best_of(5, lambda: sizing.at([1234])):8.3f} s")
    again = best_of(5, lambda: advise(sizing, target=0.8, token_budget=10**6))
    print(f"advice on another target, budget {again:8.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--references", type=int, default=5_000_000)
    asked = parser.parse_args()
    measure_large(asked.rows, asked.references)
    measure_interactive()
