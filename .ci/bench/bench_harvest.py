"""Speed and memory of a harvest of Claude Code transcripts.

    python .ci/bench/bench_harvest.py [--megabytes 500] [--rounds 3]

The transcripts are like real ones: most bytes are what tools answered and what was written, and
one line in some hundred concerns a memory. Each round runs in a process of its own; seconds are of
one core, the best of the rounds.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memlab.evidence.ingestion import harvest

START = datetime(2026, 8, 1, tzinfo=UTC)
SLUG = "-work-app"


def generate(home: Path, size: int) -> Path:
    """Write some megabytes of transcripts, 20 MB a file; return the memory folder."""
    chance = random.Random(5)
    folder = home / ".claude" / "projects" / SLUG / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").touch()
    source = "".join(chance.choice('abcdefgh  \n"\\/_memory\u00e9') for _ in range(200_000))
    written = number = 0
    for file in range(size // 20_000_000 or 1):
        with (folder.parent / f"session{file}.jsonl").open("w") as out:
            while written < min(size, (file + 1) * 20_000_000):
                number += 1
                for line in lines(number, folder, source, chance):
                    written += out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return folder


def lines(number: int, folder: Path, source: str, chance: random.Random) -> list[object]:
    """Return a call and its result."""
    at = (START + timedelta(seconds=number)).isoformat()
    line = {"sessionId": "s", "cwd": "/srv/app", "version": "2.1.259", "timestamp": at}
    memory = f"{folder}/m{number % 500}.md"
    path = memory if number % 100 == 0 else f"/srv/app/src/file{number % 900}.py"
    place = chance.randrange(150_000)
    text = source[place : place + chance.choice([200, 2_000, 20_000])]
    used: dict[str, object] = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read"}
    used["input"] = {"file_path": path}
    if number % 7 == 0:
        command = f"grep -n x {path} | head" if number % 70 == 0 else "pytest -q tests"
        used |= {"name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
    file = {"type": "text", "file": {"filePath": path, "content": text}}
    return [
        {**line, "type": "assistant", "uuid": f"a{number}", "message": {"content": [used]}},
        {
            **line,
            "type": "user",
            "uuid": f"u{number}",
            "message": {"content": [result]},
            "toolUseResult": file,
        },
    ]


def measure(folder: Path) -> None:
    """Print what one harvest takes, as JSON."""
    with tempfile.TemporaryDirectory() as logs:
        started = time.perf_counter()
        used = time.process_time()
        found = harvest(folder, Path(logs) / "reads.log")
        result = {
            "reads": found.reads,
            "megabytes": found.bytes / 1e6,
            "seconds": time.perf_counter() - started,
            "cpu": time.process_time() - used,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        measure(args.folder)
        return
    with tempfile.TemporaryDirectory() as home:
        folder = generate(Path(home), args.megabytes * 1_000_000)
        command = [sys.executable, __file__, "--folder", str(folder)]
        found = [
            json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            for _ in range(args.rounds)
        ]
    best = min(found, key=lambda each: each["cpu"])
    print(
        f"{best['megabytes']:.0f} MB, {best['reads']:,} reads: {best['cpu']:.2f} s of CPU "
        f"({best['megabytes'] / best['cpu']:.0f} MB/s), {best['seconds']:.2f} s by the clock, "
        f"{best['memory']:.0f} MB of memory at most"
    )


if __name__ == "__main__":
    main()
