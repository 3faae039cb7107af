"""Measure a comparison of six policies with twenty settings each on ten thousand memories.

    python .ci/bench/bench_replay.py [STORE]

Each policy is replayed twice in the same process, once deleting memories and once retiring them.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memlab import columns as c
from memlab.evidence.references import find_references
from memlab.frame.loading import load
from memlab.policies import (
    Activation,
    ImportanceBudget,
    KeepRecent,
    Pipeline,
    Policy,
    TimeToLive,
    ValueCap,
)
from memlab.replay.history import ReplayHistory, prepare_history
from memlab.replay.walk import walk_through
from tests.support.histories import simulate_history


def policies_for(days: float) -> list[Policy]:
    """Make six policies for each of twenty caps from 20 to 2,000.

    `days` is the mean time from one memory to the next.
    """
    policies: list[Policy] = []
    for cap in np.geomspace(20, 2000, 20).astype(int).tolist():
        policies += [
            KeepRecent(cap),
            TimeToLive(timedelta(days=days * cap)),
            ValueCap(cap, half_life=timedelta(days=days * cap / 4)),
            ImportanceBudget(cap),
            Pipeline.odek(threshold=0, keep=cap),
            Activation(cap),
        ]
    return policies


def measure(history: ReplayHistory, policies: list[Policy], *, retire: bool) -> float:
    """Replay all policies; return the seconds."""
    started = time.perf_counter()
    for policy in tqdm(policies, leave=False):
        walk_through(history, policy, retire=retire)
    return time.perf_counter() - started


def main() -> None:
    """Replay all policies twice, and print the seconds."""
    if len(sys.argv) > 1:
        frame = load(sys.argv[1])
        references = find_references(frame)
    else:
        frame, references = simulate_history(1, "growing", rows=10_000)
    frame[c.IMPORTANCE] = np.random.default_rng(0).random(len(frame))
    span = frame[c.CREATED_AT].max() - frame[c.CREATED_AT].min()
    policies = policies_for(span / timedelta(days=1) / len(frame))
    history = prepare_history(frame, references)
    deleting = measure(history, policies, retire=False)
    retiring = measure(history, policies, retire=True)
    print(
        f"{len(frame):,} rows, {len(references):,} references, {len(policies)} replays: "
        f"{deleting:.1f} s deleting, {retiring:.1f} s retiring, {retiring / deleting:.2f} times"
    )


if __name__ == "__main__":
    main()
