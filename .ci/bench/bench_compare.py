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
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from commands import Seconds, least_of, measure_command

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.stores import row, write_rows

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
DAYS: Final = 730
VOCABULARY: Final = 20_000
COMMANDS: Final = {
    "show": "show {}",
    "compare by three rules": "compare {} --policy recent --policy ttl --policy value",
    "compare odek's rule": "compare {} --policy odek",
    "compare by default": "compare {}",
}


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
                arguments = [word.format(path) for word in command.split()]
                for side, python in pythons.items():
                    run = measure_command(python, *arguments)
                    runs.setdefault((side, name), []).append(run)
    for side in pythons:
        show = least_of(runs[side, "show"])
        for name in COMMANDS:
            least = least_of(runs[side, name])
            print(
                f"{side:7} {name:24} {least.clock:6.2f} s "
                f"({least.cpu:6.2f} s of CPU), {least.clock / show.clock:5.1f} times show"
            )


if __name__ == "__main__":
    main()
