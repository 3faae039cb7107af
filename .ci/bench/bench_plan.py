"""Measure the time and memory of a plan that deletes most of a large store, its file included.

    python .ci/bench/bench_plan.py [--rows 1000000] [--rounds 3] [--beside TREE]

Seconds are on the clock and on the processor, the best of the rounds. Memory is the peak of the
process. With the tree of another memlab, both take turns, and their plans must delete the same
memories.
"""

import argparse
import json
import resource
import tempfile
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from bench_compaction import generate_rows
from commands import measure_apart
from rows import write_store

import memlab

THIS_TREE: Final = Path(memlab.__file__).parents[1]
NOW: Final = datetime(2026, 7, 1, tzinfo=UTC)


def measure(path: Path) -> dict[str, Any]:
    """Make a plan and write its file; return the costs."""
    started = time.perf_counter()
    started_cpu = time.process_time()
    plan = memlab.plan(path, memlab.KeepRecent(50), now=NOW)
    with path.with_suffix(".plan.json").open("w") as file:
        file.writelines(plan.json_pieces())
    seconds = time.perf_counter() - started
    cpu = time.process_time() - started_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fingerprints = "".join(memory.fingerprint for memory in plan.memories)
    return {
        "seconds": seconds,
        "cpu": cpu,
        "megabytes": peak / 1024,
        "deletions": len(plan.memories),
        "digest": sha256(fingerprints.encode()).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="the tree of another memlab")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    trees = [THIS_TREE]
    if options.beside:
        trees.append(options.beside)
    rounds: list[list[dict[str, Any]]] = [[] for _ in trees]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        write_store(path, generate_rows(options.rows, random_ids=False))
        for _ in range(options.rounds):
            for tree, costs in zip(trees, rounds, strict=True):
                costs.append(measure_apart(__file__, path, tree=tree))
    digests = set()
    for tree, costs in zip(trees, rounds, strict=True):
        digests |= {cost["digest"] for cost in costs}
        seconds = min(cost["seconds"] for cost in costs)
        cpu = min(cost["cpu"] for cost in costs)
        megabytes = min(cost["megabytes"] for cost in costs)
        print(
            f"{costs[0]['deletions']:,} deletions {seconds:6.1f} s ({cpu:6.1f} s of "
            f"CPU) {megabytes:5.0f} MB   {tree}"
        )
    assert len(digests) == 1


if __name__ == "__main__":
    main()
