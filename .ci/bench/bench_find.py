"""Speed of ``memlab.find`` over a home folder with many of Claude Code's projects.

    python .ci/bench/bench_find.py [--projects 100] [--memories 30] [--sessions 10] [--rounds 3]

Each session has a transcript of some hundred lines that wrote three of its project's memories, and
a transcript of a subagent. Each round runs in a process of its own; seconds are of CPU.
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

import memlab

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
LINES = 200
"""Lines of a transcript that call no tool."""


def generate(home: Path, projects: int, memories: int, sessions: int) -> None:
    """Write the projects with their memories and transcripts."""
    for number in range(projects):
        project = home / ".claude" / "projects" / f"-home-u-work-{number}"
        folder = project / "memory"
        folder.mkdir(parents=True)
        names = [f"topic_{memory}.md" for memory in range(memories)]
        for name in names:
            head = f"---\nname: {name}\ndescription: about {name}\ntype: project\n---\n\n"
            (folder / name).write_text(head + f"What project {number} found out. " * 20)
        index = "".join(f"- [T]({name}) — about it\n" for name in names)
        (folder / "MEMORY.md").write_text(index)
        for session in range(sessions):
            wrote = [folder / names[(session * 3 + each) % memories] for each in range(3)]
            lines = list(transcript(f"s{number}-{session}", wrote))
            text = "".join(f"{line}\n" for line in lines)
            (project / f"s{number}-{session}.jsonl").write_text(text)
            below = project / f"s{number}-{session}" / "subagents"
            below.mkdir(parents=True)
            (below / "agent-1.jsonl").write_text(text[: len(text) // 2])


def transcript(session: str, files: list[Path]) -> Iterator[str]:
    """Yield the lines of a session that writes some files."""
    at = START
    for number in range(LINES):
        at += timedelta(seconds=30)
        yield line(session, at, [{"type": "text", "text": f"a sentence {number} " * 10}])
    for number, file in enumerate(files):
        called = {"file_path": str(file), "content": "x"}
        use = {"type": "tool_use", "id": f"{session}-{number}", "name": "Write", "input": called}
        yield line(session, at, [use])


def line(session: str, at: datetime, content: list[dict[str, object]]) -> str:
    """Return a line of a transcript."""
    message = {"role": "assistant", "content": content}
    named = {"type": "assistant", "sessionId": session, "timestamp": at.isoformat()}
    return json.dumps({**named, "message": message})


def main() -> None:
    """Print the seconds of each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--projects", type=int, default=100)
    parser.add_argument("--memories", type=int, default=30)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    if options.measure:
        began = time.process_time()
        found = memlab.find(options.measure)
        seconds = time.process_time() - began
        total = sum(store.memories or 0 for store in found.stores)
        print(f"{len(found.stores):,} stores, {total:,} memories: {seconds:.2f} s of CPU")
        return
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), options.projects, options.memories, options.sessions)
        for _ in range(options.rounds):
            subprocess.run([sys.executable, __file__, "--measure", name], check=True)


if __name__ == "__main__":
    main()
