"""How long large stores of other systems take to show, and how much memory that takes.

python .ci/bench/bench_stores.py FOLDER: makes them in FOLDER (6 GB) unless they are there, and
runs ``memlab show`` on each in a process of its own.

A claude-mem database of 100,000 observations; one of 5 GB of which 1 % is observations, the rest
messages that wait in its queue; a folder of Claude Code's memory with 100,000 files.
"""

import json
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.claude_store import memory, project_folder
from tests.support.owners import observation, write_claude_mem

COUNT = 100_000
GIGABYTES = 5
MESSAGE = 1_000_000
START = 1_700_000_000_000
INSERT = (
    "INSERT INTO observations (memory_session_id, project, type, title, subtitle, facts, "
    "narrative, concepts, created_at, created_at_epoch, content_hash) "
    "VALUES ('s', 'web', 'discovery', ?, 'in one line', ?, ?, '[\"gotcha\"]', '', ?, ?)"
)


def filled(file: Path, count: int, *, messages: int = 0) -> Path:
    """A database that claude-mem made, with observations and what waits in its queue."""
    if file.exists():
        return file
    first = [{**observation("the first"), "at": START}]
    write_claude_mem(file, [{"session": "s", "project": "web", "observations": first}])
    narrative = "what happened there " * 15
    facts = json.dumps(["a fact of some length"] * 4)
    every = max(messages // count, 1) if messages else 0
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        queued = 0
        for number in range(1, count):
            row = (f"observation {number}", facts, narrative, START + number * 60_000, str(number))
            connection.execute(INSERT, row)
            if messages and number * messages // count > queued:
                queued += every
                connection.execute(
                    "INSERT INTO pending_messages (session_db_id, content_session_id, "
                    "message_type, tool_response, created_at_epoch) "
                    "VALUES (1, 'content-s', 'observation', zeroblob(?), 0)",
                    (MESSAGE,),
                )
    return file


def files(home: Path) -> Path:
    """A folder of memories, a tenth of which the index names."""
    folder = project_folder(home)
    if not (folder / "MEMORY.md").exists():
        for number in range(COUNT):
            (folder / f"m{number}.md").write_text(memory(f"m{number}", style="type"))
        lines = [f"- [m{number}](m{number}.md) — about it" for number in range(0, COUNT, 10)]
        (folder / "MEMORY.md").write_text("\n".join(lines))
    return folder


def measured(name: str, *command: str) -> None:
    """Print how long a command takes, and the most memory that it held."""
    began = time.perf_counter()
    code = "import sys; from memlab.cli import main; main(sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL, check=False
    )
    seconds = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{name:<40} {seconds:6.1f} s  {most:6,.0f} MiB at most so far  exit {run.returncode}")


def main() -> None:
    """Make what is not there, and measure it."""
    folder = Path(sys.argv[1])
    many = filled(folder / "many" / "claude-mem.db", COUNT)
    large = filled(folder / "large" / "claude-mem.db", 60_000, messages=GIGABYTES * 1_000)
    for name, file in (("100,000 observations", many), ("5 GB, 1 % observations", large)):
        print(f"{file.name}: {file.stat().st_size / 1e9:.2f} GB")
        measured(f"show: {name}", "show", str(file))
    measured("vacuum: 5 GB, 1 % observations", "vacuum", str(large))
    measured("show: a folder of 100,000 files", "show", str(files(folder / "home")))


if __name__ == "__main__":
    main()
