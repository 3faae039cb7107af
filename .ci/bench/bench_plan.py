"""Time and memory of a plan that deletes most of a large store, and of its file.

    python .ci/bench/bench_plan.py [--rows 1000000] [--rounds 3] [--beside TREE]

Seconds on the clock and on the processor, the best of the rounds, and the process's peak. With the
tree of another memlab both are measured in turns, and their plans must name the same memories.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench_compaction import generate

import memlab

HERE = Path(memlab.__file__).parents[1]
NOW = datetime(2026, 7, 1, tzinfo=UTC)


def planned(path: Path) -> dict[str, Any]:
    """Make the plan and its file."""
    started = time.perf_counter()
    used = time.process_time()
    plan = memlab.plan(path, memlab.KeepRecent(50), now=NOW)
    with path.with_suffix(".plan.json").open("w") as file:
        file.writelines(plan.json_pieces())
    return {
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - used,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "deletions": len(plan.memories),
        "fingerprints": sha256("".join(m.fingerprint for m in plan.memories).encode()).hexdigest(),
    }


def planned_by(tree: Path, path: Path) -> dict[str, Any]:
    """Do so in a process of its own, with the memlab of a tree."""
    command = [sys.executable, __file__, "--one", str(path)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    run = subprocess.run(command, env=environment, check=True, capture_output=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="the tree of another memlab")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(planned(options.one)))
        return
    trees = [HERE, *([options.beside] if options.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        generate(path, options.rows, random_ids=False)
        rounds = [[planned_by(tree, path) for tree in trees] for _ in range(options.rounds)]
    for tree, found in zip(trees, zip(*rounds, strict=True), strict=True):
        best = {key: min(each[key] for each in found) for key in found[0]}
        print(
            f"{best['deletions']:,} deletions {best['seconds']:6.1f} s ({best['cpu']:6.1f} s of "
            f"CPU) {best['megabytes']:5.0f} MB   {tree}"
        )
    assert len({each["fingerprints"] for turn in rounds for each in turn}) == 1


if __name__ == "__main__":
    main()
