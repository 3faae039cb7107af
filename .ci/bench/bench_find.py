"""Measure ``memlab.find`` on a home folder with many of Claude Code's projects.

    python .ci/bench/bench_find.py [--projects 100] [--memories 30] [--sessions 10] [--rounds 3]

Each session has a transcript of about two hundred lines that writes three of its project's
memories, and a transcript of a subagent. Each round runs in a process of its own; seconds are of
the processor.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import memlab

START: Final = datetime(2026, 3, 1, 9, tzinfo=UTC)
TEXT_LINES: Final = 200
"""Lines of a transcript that call no tool."""
WRITES: Final = 3
"""Memories that a session writes."""


def generate(home: Path, projects: int, memories: int, sessions: int) -> None:
    """Write the projects with their memories and transcripts."""
    for number in range(projects):
        project = home / ".claude" / "projects" / f"-home-u-work-{number}"
        files = write_memories(project / "memory", number, memories)
        for session in range(sessions):
            first = session * WRITES
            written = [files[(first + n) % memories] for n in range(WRITES)]
            write_transcripts(project, f"s{number}-{session}", written)


def write_memories(folder: Path, project: int, count: int) -> list[Path]:
    """Write the memories of a project and their index; return the paths."""
    folder.mkdir(parents=True)
    files = [folder / f"topic_{number}.md" for number in range(count)]
    for file in files:
        name = file.name
        head = f"---\nname: {name}\ndescription: about {name}\ntype: project\n---\n\n"
        file.write_text(head + f"What project {project} found out. " * 20)
    lines = [f"- [T]({file.name}) — about it\n" for file in files]
    (folder / "MEMORY.md").write_text("".join(lines))
    return files


def write_transcripts(project: Path, session: str, written: list[Path]) -> None:
    """Write the transcripts of a session and of its subagent."""
    text = "".join(f"{line}\n" for line in transcript_lines(session, written))
    (project / f"{session}.jsonl").write_text(text)
    subagents = project / session / "subagents"
    subagents.mkdir(parents=True)
    (subagents / "agent-1.jsonl").write_text(text[: len(text) // 2])


def transcript_lines(session: str, written: list[Path]) -> Iterator[str]:
    """Yield the lines of a session that writes some files."""
    at = START
    for number in range(TEXT_LINES):
        at += timedelta(seconds=30)
        yield transcript_line(session, at, {"type": "text", "text": f"a sentence {number} " * 10})
    for number, file in enumerate(written):
        call: dict[str, object] = {
            "type": "tool_use",
            "id": f"{session}-{number}",
            "name": "Write",
            "input": {"file_path": str(file), "content": "x"},
        }
        yield transcript_line(session, at, call)


def transcript_line(session: str, at: datetime, content: dict[str, object]) -> str:
    """Write a line of a transcript."""
    line = {
        "type": "assistant",
        "sessionId": session,
        "timestamp": at.isoformat(),
        "message": {"role": "assistant", "content": [content]},
    }
    return json.dumps(line)


def measure(home: Path) -> None:
    """Print the seconds of one search."""
    started = time.process_time()
    stores = memlab.find(home).stores
    seconds = time.process_time() - started
    memories = sum(store.memories or 0 for store in stores)
    print(f"{len(stores):,} stores, {memories:,} memories: {seconds:.2f} s of CPU")


def main() -> None:
    """Print the seconds of each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=100)
    parser.add_argument("--memories", type=int, default=30)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as home:
        generate(Path(home), options.projects, options.memories, options.sessions)
        for _ in range(options.rounds):
            subprocess.run([sys.executable, __file__, "--measure", home], check=True)


if __name__ == "__main__":
    main()
