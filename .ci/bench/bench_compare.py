"""How long ``memlab compare`` takes beside ``memlab show`` of the same store.

    python .ci/bench/bench_compare.py [--rows 5000] [--rounds 3] [--beside PYTHON]

A store of so many memories is generated, one in seven of which names an earlier one. Each command
is run in turn, and the least of the rounds is shown, on the clock and on the processor: both shrink
and grow with the load of the machine, their ratio hardly does. With the interpreter of another
memlab, its commands are run in turn with this one's.

Rules without near-duplicates should take at most six times `show` of 5,000 memories, odek's rule
4 seconds; every rule of 100,000 at most 15.
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
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.stores import row, write_rows

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
DAYS: Final = 730
WORDS: Final = 20_000
RULES: Final = ("recent", "ttl", "value")
COMMAND: Final = "from memlab.cli import main; main()"


def generate(path: Path, rows: int) -> None:
    """Write a store over two years, with words as frequent as in a language and few references."""
    chance = random.Random(1)
    written = []
    for number in range(rows):
        words = [int(WORDS ** chance.random()) for _ in range(chance.randint(20, 80))]
        distance = int(math.exp(chance.gauss(3.5, 1.8))) + 1
        names = [f"m{number - distance}"] if chance.random() < 0.15 and distance <= number else []
        kind = "episodic" if chance.random() < 0.97 else "procedural"
        memory = row(
            f"m{number}",
            kind,
            "merged",
            title=f"Issue {number}",
            body=" ".join(f"word{word}" for word in words),
            created_at=(START + number * timedelta(days=DAYS) / rows).isoformat(),
            evidence_refs_json=json.dumps(names),
        )
        written.append(memory)
    write_rows(path, written)


def seconds(python: str, *words: str) -> tuple[float, float]:
    """Return how long one run of a command takes, on the clock and on the processor."""
    started = time.perf_counter()
    before = os.times()
    with tempfile.TemporaryDirectory() as elsewhere:  # where no other memlab lies
        asked = [python, "-c", COMMAND, *words]
        subprocess.run(asked, cwd=elsewhere, check=True, capture_output=True)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return time.perf_counter() - started, used


def main() -> None:
    """Print the least time of each command, and how many times that of `show` it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", help="the interpreter of another memlab")
    options = parser.parse_args()
    rules = [word for rule in RULES for word in ("--policy", rule)]
    commands = {
        "show": ("show",),
        "compare by three rules": ("compare", *rules),
        "compare odek's rule": ("compare", "--policy", "odek"),
        "compare by default": ("compare",),
    }
    pythons = [sys.executable, *([options.beside] if options.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        generate(path, options.rows)
        os.utime(path, (0, 0))  # a file written just now is looked at with more care
        least: dict[tuple[str, str], tuple[float, float]] = {}
        for _ in range(options.rounds):
            for name, (command, *more) in commands.items():
                for python in pythons:
                    found = seconds(python, command, str(path), *more)
                    least[python, name] = min(found, least.get((python, name), found))
    for python in pythons:
        shown = least[python, "show"]
        for name in commands:
            clock, processor = least[python, name]
            print(
                f"{'here' if python == sys.executable else 'beside':7} {name:24} {clock:6.2f} s "
                f"({processor:6.2f} s of CPU), {clock / shown[0]:5.1f} times show"
            )


if __name__ == "__main__":
    main()
