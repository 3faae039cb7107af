"""Speed of reading the past of a folder that git tracks.

    python .ci/bench/bench_git.py [--files 10000] [--commits 3000] [--rounds 3]

Every commit changes the index; three in ten of the files have been deleted again. Each round runs
in a process of its own; seconds are of one look at all that the folder has held.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import memlab

START = 1_700_000_000


def generate(folder: Path, files: int, commits: int) -> None:
    """Write a repository with a past."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    content = b"".join(stream(files, commits))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=content, check=True)
    subprocess.run(["git", "reset", "-q", "--hard", "main"], cwd=folder, check=True)


def stream(files: int, commits: int) -> Iterator[bytes]:
    """Yield what git makes commits of."""
    chance = random.Random(11)
    there = list[str]()
    written = 0
    for number in range(commits):
        yield b"commit refs/heads/main\ncommitter n <n@e> %d +0000\n" % (START + 600 * number)
        yield data(f"commit {number}")
        while written * commits < files * (number + 1):
            there.append(f"note_{written}.md")
            text = f"---\nname: note {written}\ntype: project\n---\n" + f"word {written} " * 100
            yield f"M 644 inline {there[-1]}\n".encode() + data(text)
            written += 1
        if number % 3 == 0:
            for name in chance.sample(there, min(len(there), int(0.9 * files / commits) + 1)):
                there.remove(name)
                yield f"D {name}\n".encode()
        lines = "".join(f"- [T]({name}) about it\n" for name in there[-150:])
        yield b"M 644 inline MEMORY.md\n" + data(lines)


def data(text: str) -> bytes:
    """Return a text as git takes it in."""
    return b"data %d\n%b\n" % (len(text.encode()), text.encode())


def main() -> None:
    """Print the seconds of each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    if options.measure:
        began = time.perf_counter()
        past = memlab.load_past(options.measure)
        gone = int(past["deleted_at"].notna().sum())
        print(f"{len(past):,} memories, {gone:,} of them gone: {time.perf_counter() - began:.2f} s")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, options.files, options.commits)
        for _ in range(options.rounds):
            subprocess.run([sys.executable, __file__, "--measure", name], check=True)


if __name__ == "__main__":
    main()
