"""Ten rounds of sizing and compacting a real history, beside the history that was never compacted.

    python .ci/bench/bench_rounds.py [NAME...]

A round writes a tenth of the memories, in the order in which they were written, and runs the
commands of a night: ``memlab size STORE --save``, then ``memlab maintain STORE --apply``. For each
it shows the cap that ``memlab.toml`` remembers then, that of the same history had nothing been
deleted, and how many references of the next tenth named a memory that was gone by then.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rounds import rounds_of

SHARED: Final = Path(__file__).resolve().parents[3] / "shared"
NAMES: Final = ("history-uv", "history-bevy", "history-arrow-rs", "history-deno")


def build(name: str, path: Path) -> Path:
    """Build the recorded history as a store."""
    tool = SHARED / "tools" / "build_store.py"
    subprocess.run([sys.executable, tool, name, path], check=True, capture_output=True)
    return path


def show(names: list[str]) -> None:
    """Print the rounds of each history."""
    for name in names or NAMES:
        with TemporaryDirectory() as folder:
            whole = build(name, Path(folder) / "whole.db")
            print(f"\n{name}\n{'written':>8} {'cap':>6} {'uncompacted':>12} {'deleted':>8} missed")
            for one in rounds_of(whole, Path(folder)):
                print(
                    f"{one.written:>8,} {one.cap!s:>6} {one.uncompacted!s:>12} {one.deleted:>8,} "
                    f"{one.missed:,} of {one.references:,}  {one.verdict}",
                    flush=True,
                )


if __name__ == "__main__":
    show(sys.argv[1:])
