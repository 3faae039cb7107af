"""Measure how long ``memlab compare`` takes, beside ``memlab show`` of the same store.

    python .ci/bench/bench_compare.py [--rows 5000] [--rounds 3] [--beside PYTHON]

The generated store has `--rows` memories, one in seven of which refers to an earlier one. The
commands take turns, and the least time of the rounds is printed, on the clock and on the processor.
Both times depend on the load of the machine; their ratio to `show` hardly does. With the
interpreter of another memlab, its commands take turns with those of this one.

Policies without near-duplicates should take at most six times as long as `show` for 5,000 memories,
and odek's policy at most 4 seconds; every policy at most 15 seconds for 100,000.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.stores import row, write_rows

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
DAYS: Final = 730
VOCABULARY: Final = 20_000
COMMANDS: Final = {
    "show": "show",
    "compare by three rules": "compare --policy recent --policy ttl --policy value",
    "compare odek's rule": "compare --policy odek",
    "compare by default": "compare",
}
MEMLAB: Final = "from memlab.cli import main; main()"


class Seconds(NamedTuple):
    """Time of a command, on the clock and on the processor."""

    clock: float
    cpu: float


def generate(path: Path, rows: int) -> None:
    """Write a store over two years, with the word frequencies of a language and few references."""
    rng = random.Random(1)
    memories = []
    for number in range(rows):
        words = [int(VOCABULARY ** rng.random()) for _ in range(rng.randint(20, 80))]
        distance = int(math.exp(rng.gauss(3.5, 1.8))) + 1
        references = []
        if rng.random() < 0.15 and distance <= number:
            references = [f"m{number - distance}"]
        kind = "episodic" if rng.random() < 0.97 else "procedural"
        memory = row(
            f"m{number}",
            kind,
            "merged",
            title=f"Issue {number}",
            body=" ".join(f"word{word}" for word in words),
            created_at=(START + number * timedelta(days=DAYS) / rows).isoformat(),
            evidence_refs_json=json.dumps(references),
        )
        memories.append(memory)
    write_rows(path, memories)


def measure(python: str, command: str, store: Path) -> Seconds:
    """Measure one run of a command of memlab on a store."""
    name, *options = command.split()
    started = time.perf_counter()
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:  # a working directory without another memlab
        subprocess.run(
            [python, "-c", MEMLAB, name, str(store), *options],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    after = os.times()
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return Seconds(time.perf_counter() - started, user + system)


def main() -> None:
    """Print the least time of each command, and its ratio to that of `show`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", help="the interpreter of another memlab")
    options = parser.parse_args()
    pythons = {"here": sys.executable}
    if options.beside:
        pythons["beside"] = options.beside
    runs: dict[tuple[str, str], list[Seconds]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        generate(path, options.rows)
        os.utime(path, (0, 0))  # memlab takes more care with a file that was just written
        for _ in range(options.rounds):
            for name, command in COMMANDS.items():
                for side, python in pythons.items():
                    runs.setdefault((side, name), []).append(measure(python, command, path))
    for side in pythons:
        show = min(runs[side, "show"])
        for name in COMMANDS:
            least = min(runs[side, name])
            print(
                f"{side:7} {name:24} {least.clock:6.2f} s "
                f"({least.cpu:6.2f} s of CPU), {least.clock / show.clock:5.1f} times show"
            )


if __name__ == "__main__":
    main()
