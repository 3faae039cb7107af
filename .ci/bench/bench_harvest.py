"""Measure the time and memory of a harvest of Claude Code's transcripts.

    python .ci/bench/bench_harvest.py [--megabytes 500] [--rounds 3]

The transcripts resemble real ones: most bytes are results of tools and written files, and one call
in a hundred concerns a memory. Each round runs in a process of its own; the round with the least
processor time is printed.
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
from typing import Any, Final

from memlab.evidence.ingestion import harvest

START: Final = datetime(2026, 8, 1, tzinfo=UTC)
PROJECT: Final = "-work-app"
FILE_BYTES: Final = 20_000_000
"""Size of a transcript."""
CHARACTERS: Final = 'abcdefgh  \n"\\/_memory\u00e9'
"""Characters of the results of tools, some of which JSON escapes."""


def generate(home: Path, size: int) -> Path:
    """Write transcripts of `size` bytes in total; return the memory folder."""
    rng = random.Random(5)
    folder = home / ".claude" / "projects" / PROJECT / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").touch()
    text = "".join(rng.choice(CHARACTERS) for _ in range(200_000))
    written = 0
    calls = 0
    files = size // FILE_BYTES or 1
    for file in range(files):
        end = min(size, (file + 1) * FILE_BYTES)
        with (folder.parent / f"session{file}.jsonl").open("w") as out:
            while written < end:
                calls += 1
                for line in lines_of_call(calls, folder, text, rng):
                    written += out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return folder


def lines_of_call(number: int, folder: Path, text: str, rng: random.Random) -> list[object]:
    """Make the lines of a call and of its result."""
    path = f"/srv/app/src/file{number % 900}.py"
    if number % 100 == 0:
        path = f"{folder}/m{number % 500}.md"
    start = rng.randrange(150_000)
    content = text[start : start + rng.choice([200, 2_000, 20_000])]
    tool = "Read"
    arguments = {"file_path": path}
    if number % 7 == 0:
        tool = "Bash"
        arguments = {"command": "pytest -q tests"}
    if number % 70 == 0:
        arguments = {"command": f"grep -n x {path} | head"}
    call_id = f"toolu_{number}"
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    common = {
        "sessionId": "s",
        "cwd": "/srv/app",
        "version": "2.1.259",
        "timestamp": (START + timedelta(seconds=number)).isoformat(),
    }
    return [
        {
            **common,
            "type": "assistant",
            "uuid": f"a{number}",
            "message": {"content": [call]},
        },
        {
            **common,
            "type": "user",
            "uuid": f"u{number}",
            "message": {"content": [result]},
            "toolUseResult": {"type": "text", "file": {"filePath": path, "content": content}},
        },
    ]


def measure(folder: Path) -> None:
    """Print the costs of one harvest as JSON."""
    with tempfile.TemporaryDirectory() as logs:
        started = time.perf_counter()
        started_cpu = time.process_time()
        result = harvest(folder, Path(logs) / "reads.log")
        costs = {
            "reads": result.reads,
            "megabytes": result.bytes / 1e6,
            "seconds": time.perf_counter() - started,
            "cpu": time.process_time() - started_cpu,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    print(json.dumps(costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as home:
        folder = generate(Path(home), options.megabytes * 1_000_000)
        command = [sys.executable, __file__, "--measure", str(folder)]
        for _ in range(options.rounds):
            run = subprocess.run(command, capture_output=True, check=True, text=True)
            rounds.append(json.loads(run.stdout))
    best = min(rounds, key=lambda costs: costs["cpu"])
    print(
        f"{best['megabytes']:.0f} MB, {best['reads']:,} reads: {best['cpu']:.2f} s of CPU "
        f"({best['megabytes'] / best['cpu']:.0f} MB/s), {best['seconds']:.2f} s by the clock, "
        f"{best['memory']:.0f} MB of memory at most"
    )


if __name__ == "__main__":
    main()
