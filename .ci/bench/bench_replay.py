"""How long a comparison takes: six policies at twenty settings each on ten thousand memories.

Run by name: ``python .ci/bench/bench_replay.py [STORE]``.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from histories import simulate_history

from memlab import columns as c
from memlab.evidence.references import find_references
from memlab.frame.loading import load
from memlab.policies import (
    ImportanceBudget,
    KeepRecent,
    Pipeline,
    Policy,
    TimeToLive,
    ValueCap,
)
from memlab.policies.learned import Learned
from memlab.replay import compare


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
            Learned(cap),
        ]
    return policies


def main() -> None:
    """Compare once on two processes and say how long it took."""
    if len(sys.argv) > 1:
        frame = load(sys.argv[1])
        references = find_references(frame)
    else:
        frame, references = simulate_history(1, "growing", rows=10_000).as_frames()
    frame[c.IMPORTANCE] = np.random.default_rng(0).random(len(frame))
    span = frame[c.CREATED_AT].max() - frame[c.CREATED_AT].min()
    policies = settings(span / timedelta(days=1) / len(frame))
    began = time.perf_counter()
    table = compare(frame, references, policies, workers=2, progress=True)
    seconds = time.perf_counter() - began
    spent = sum(os.times()[:4])
    print(table[["served", "oracle", "boot_tokens_mean", "deleted"]].to_string())
    print(
        f"{len(frame):,} rows, {len(references):,} references, {len(policies)} replays: "
        f"{seconds:.1f} s, {spent:.1f} s of processor time"
    )


if __name__ == "__main__":
    main()
