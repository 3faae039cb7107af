"""How long a comparison takes: six policies at twenty settings each on ten thousand memories.

Run by name: ``python .ci/bench/bench_replay.py [STORE]``. Each policy deletes, then each retires,
in one process, so that the two times can be compared.
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
from memlab.replay.history import prepare_history
from memlab.replay.walk import walk_through
from tests.support.histories import simulate_history


def settings(days: float) -> list[Policy]:
    """Twenty caps from 20 to 2,000 under each of six policies; `days` from one row to the next."""
    caps = np.geomspace(20, 2000, 20).astype(int).tolist()
    policies: list[Policy] = []
    for cap in caps:
        policies += [
            KeepRecent(cap),
            TimeToLive(timedelta(days=days * cap)),
            ValueCap(cap, half_life=timedelta(days=days * cap / 4)),
            ImportanceBudget(cap),
            Pipeline.odek(threshold=0, keep=cap),
            Activation(cap),
        ]
    return policies


def main() -> None:
    """Replay all of them twice and say how long it took."""
    if len(sys.argv) > 1:
        frame = load(sys.argv[1])
        references = find_references(frame)
    else:
        frame, references = simulate_history(1, "growing", rows=10_000)
    frame[c.IMPORTANCE] = np.random.default_rng(0).random(len(frame))
    span = frame[c.CREATED_AT].max() - frame[c.CREATED_AT].min()
    policies = settings(span / timedelta(days=1) / len(frame))
    life = prepare_history(frame, references)
    seconds = []
    for retire in (False, True):
        began = time.perf_counter()
        for policy in tqdm(policies, leave=False):
            walk_through(life, policy, retire=retire)
        seconds.append(time.perf_counter() - began)
    deleting, retiring = seconds
    print(
        f"{len(frame):,} rows, {len(references):,} references, {len(policies)} replays: "
        f"{deleting:.1f} s deleting, {retiring:.1f} s retiring, {retiring / deleting:.2f} times"
    )


if __name__ == "__main__":
    main()
