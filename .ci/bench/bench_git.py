"""Measure how long it takes to read the history of a folder that git tracks.

    python .ci/bench/bench_git.py [--files 10000] [--commits 3000] [--rounds 3]

Every commit changes the index; three in ten of the files have been deleted again. Each round runs
in a process of its own and reads all memories that the folder has ever held.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import memlab

START: Final = 1_700_000_000
INDEXED: Final = 150
"""Number of files that the index names, the newest ones."""


def generate(folder: Path, files: int, commits: int) -> None:
    """Write a repository with a history."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    stream = b"".join(import_stream(files, commits))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=stream, check=True)
    subprocess.run(["git", "reset", "-q", "--hard", "main"], cwd=folder, check=True)


def import_stream(files: int, commits: int) -> Iterator[bytes]:
    """Yield the commits as input of ``git fast-import``."""
    rng = random.Random(11)
    present: list[str] = []
    written = 0
    for number in range(commits):
        yield b"commit refs/heads/main\ncommitter n <n@e> %d +0000\n" % (START + 600 * number)
        yield data_command(f"commit {number}")
        while written * commits < files * (number + 1):
            name = f"note_{written}.md"
            text = f"---\nname: note {written}\ntype: project\n---\n" + f"word {written} " * 100
            yield f"M 644 inline {name}\n".encode() + data_command(text)
            present.append(name)
            written += 1
        if number % 3 == 0:
            deletions = min(len(present), int(0.9 * files / commits) + 1)
            for name in rng.sample(present, deletions):
                present.remove(name)
                yield f"D {name}\n".encode()
        index = "".join(f"- [T]({name}) about it\n" for name in present[-INDEXED:])
        yield b"M 644 inline MEMORY.md\n" + data_command(index)


def data_command(text: str) -> bytes:
    """Write a text as a ``data`` command of ``git fast-import``."""
    content = text.encode()
    return b"data %d\n%b\n" % (len(content), content)


def measure(folder: Path) -> None:
    """Print the seconds of one read."""
    started = time.perf_counter()
    memories = memlab.load_past(folder)
    deleted = int(memories["deleted_at"].notna().sum())
    seconds = time.perf_counter() - started
    print(f"{len(memories):,} memories, {deleted:,} of them gone: {seconds:.2f} s")


def main() -> None:
    """Print the seconds of each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), options.files, options.commits)
        for _ in range(options.rounds):
            subprocess.run([sys.executable, __file__, "--measure", folder], check=True)


if __name__ == "__main__":
    main()
