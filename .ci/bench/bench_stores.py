"""Measure the time and memory of ``memlab show`` on large stores of other systems.

    python .ci/bench/bench_stores.py FOLDER

Generates the stores in FOLDER (6 GB) if they do not exist: a claude-mem database of 100,000
observations; one of 5 GB, of which 1 % is observations and the rest messages in its queue; and a
folder of Claude Code's memory with 100,000 files. Each command runs in a process of its own.

claude-mem writes its databases itself: install it first with ``.ci/owners.sh OWNERS``, and set
``MEMLAB_OWNERS=OWNERS``.
"""

import json
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.claude_store import memory, project_folder
from tests.support.owners import observation, write_claude_mem

COUNT: Final = 100_000
LARGE_COUNT: Final = 60_000
LARGE_MESSAGES: Final = 5_000
MESSAGE_BYTES: Final = 1_000_000
START_MS: Final = 1_700_000_000_000
INSERT_OBSERVATION: Final = (
    "INSERT INTO observations (memory_session_id, project, type, title, subtitle, facts, "
    "narrative, concepts, created_at, created_at_epoch, content_hash) "
    "VALUES ('s', 'web', 'discovery', ?, 'in one line', ?, ?, '[\"gotcha\"]', '', ?, ?)"
)
INSERT_MESSAGE: Final = (
    "INSERT INTO pending_messages (session_db_id, content_session_id, "
    "message_type, tool_response, created_at_epoch) "
    "VALUES (1, 'content-s', 'observation', zeroblob(?), 0)"
)


def generate_database(path: Path, count: int, *, messages: int = 0) -> None:
    """Write a claude-mem database with observations and queued messages, unless it exists."""
    if path.exists():
        return
    first = {**observation("the first"), "at": START_MS}
    write_claude_mem(path, [{"session": "s", "project": "web", "observations": [first]}])
    narrative = "what happened there " * 15
    facts = json.dumps(["a fact of some length"] * 4)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        queued = 0
        for number in range(1, count):
            created_at = START_MS + number * 60_000
            row = (f"observation {number}", facts, narrative, created_at, str(number))
            connection.execute(INSERT_OBSERVATION, row)
            if number * messages // count > queued:
                connection.execute(INSERT_MESSAGE, (MESSAGE_BYTES,))
                queued += 1


def generate_folder(home: Path) -> Path:
    """Write a folder of memories, unless it exists; the index names a tenth of them."""
    folder = project_folder(home)
    index = folder / "MEMORY.md"
    if not index.exists():
        for number in range(COUNT):
            (folder / f"m{number}.md").write_text(memory(f"m{number}", style="type"))
        lines = [f"- [m{number}](m{number}.md) — about it" for number in range(0, COUNT, 10)]
        index.write_text("\n".join(lines))
    return folder


def measure(title: str, *arguments: str) -> None:
    """Print how long a command takes, and the peak memory of all commands so far."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "memlab", *arguments]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{title:<40} {seconds:6.1f} s  {peak:6,.0f} MiB at most so far  exit {run.returncode}")


def main() -> None:
    """Generate the stores that do not exist, and measure each."""
    folder = Path(sys.argv[1])
    many = folder / "many" / "claude-mem.db"
    generate_database(many, COUNT)
    large = folder / "large" / "claude-mem.db"
    generate_database(large, LARGE_COUNT, messages=LARGE_MESSAGES)
    for title, path in (("100,000 observations", many), ("5 GB, 1 % observations", large)):
        print(f"{path.name}: {path.stat().st_size / 1e9:.2f} GB")
        measure(f"show: {title}", "show", str(path))
    measure("vacuum: 5 GB, 1 % observations", "vacuum", str(large))
    measure("show: a folder of 100,000 files", "show", str(generate_folder(folder / "home")))


if __name__ == "__main__":
    main()
