#!/usr/bin/env python3
"""Write the bundled folder of Claude Code's memory and transcripts, always with the same bytes.

    python data/generate_claude.py          write the folder claude beside this file
    python data/generate_claude.py FOLDER   write it into FOLDER

The folder is simulated; README.md beside this file describes the model. The script needs only the
standard library.
"""

import json
import re
import shutil
import sys
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

from generate import DATA, Dice, Project, Row, join_lines, working_moments

PROJECT: Final = Path("claude/projects/-home-mara-harbor")
MEMORY_FOLDER: Final = f"/home/mara/.claude/projects/{PROJECT.name}/memory"
"""The memory folder in the transcripts, which were written on another machine."""
FIRST_DAY: Final = date(2026, 2, 2)
LAST_DAY: Final = date(2026, 6, 30)
SESSIONS: Final = 140
MEMORIES_PER_SESSION: Final = 2
MAX_READS: Final = 4
"""Maximum number of earlier memories that a session reads."""
CALL_DURATION: Final = timedelta(seconds=53)
DISTANCE_FACTOR: Final = 0.2
"""Distance of a read over that in the other bundled stores, whose agent reads memories less."""
LAST_OLD_STYLE: Final = 160
"""Number of the last memory with the older style of front matter."""
UNINDEXED: Final = frozenset({31, 77, 118, 143, 202})
"""Numbers of the memories that the index does not name."""
DANGLING: Final = {60: "project_old-staging-notes.md", 150: "reference_price-sheet.md"}
"""Index entries whose file was removed by hand, by the number of the memory that they precede."""
TYPES: Final = {"semantic": "feedback", "procedural": "reference", "episodic": "project"}


class MemoryFile(NamedTuple):
    """A memory file: `kind` is its type in Claude Code."""

    name: str
    kind: str
    title: str
    text: str


class Transcript:
    """The transcript of a session: one line for each call, and one for its result."""

    def __init__(self, session: str, start: datetime) -> None:
        self.session = session
        self.now = start
        self.lines: list[str] = []

    def add_read(self, memory: MemoryFile) -> None:
        """Add a call that reads a memory."""
        numbered = [f"{n}\t{line}" for n, line in enumerate(memory.text.splitlines(), start=1)]
        path = f"{MEMORY_FOLDER}/{memory.name}"
        self._add_call("Read", {"file_path": path}, "\n".join(numbered))

    def add_write(self, memory: MemoryFile) -> None:
        """Add a call that writes a new memory."""
        path = f"{MEMORY_FOLDER}/{memory.name}"
        arguments = {"file_path": path, "content": memory.text}
        self._add_call("Write", arguments, f"File created successfully at: {path}")

    def _add_call(self, tool: str, arguments: dict[str, Any], result: str) -> None:
        """Add the lines of a call and of its result."""
        self.now += CALL_DURATION
        number = f"{self.session}-{len(self.lines) // 2:02d}"
        call_id = f"toolu_{number}"
        call = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
        self._add_line("assistant", f"a-{number}", call)
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        self._add_line("user", f"u-{number}", answer)

    def _add_line(self, role: str, uuid: str, content: dict[str, Any]) -> None:
        line = {
            "type": role,
            "uuid": uuid,
            "sessionId": self.session,
            "timestamp": _format_time(self.now),
            "message": {"role": role, "content": [content]},
        }
        self.lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def claude_folder() -> dict[str, bytes]:
    """Write a project's memory and the transcript of each session; return the files by path.

    A session reads some earlier memories, at the distances of references, and then writes two new
    ones. Some sessions read the memory that they have just written. The index has the memories in
    the order in which they were written, so that the newest ones are cut.
    """
    dice = Dice(281)
    rows = iter(_write_rows(SESSIONS * MEMORIES_PER_SESSION))
    memories: list[MemoryFile] = []
    files: dict[str, bytes] = {}
    end_of_last = datetime.min.replace(tzinfo=UTC)
    starts = working_moments(SESSIONS, first=FIRST_DAY, last=LAST_DAY, seed=282)
    for number, start in enumerate(starts, start=1):
        session = f"session-{number:03d}"
        transcript = Transcript(session, max(start, end_of_last + timedelta(minutes=5)))
        for memory in _draw_reads(dice, memories):
            transcript.add_read(memory)
        for _ in range(MEMORIES_PER_SESSION):
            written_at = transcript.now + CALL_DURATION
            memory = _memory_file(next(rows), len(memories) + 1, session, written_at)
            memories.append(memory)
            transcript.add_write(memory)
        if dice.chance(0.2):
            transcript.add_read(memories[-1])
        end_of_last = transcript.now
        files[f"{PROJECT}/{session}.jsonl"] = join_lines(transcript.lines)
    for memory in memories:
        files[f"{PROJECT}/memory/{memory.name}"] = memory.text.encode()
    files[f"{PROJECT}/memory/MEMORY.md"] = join_lines(_index_lines(memories))
    return files


def _write_rows(count: int) -> list[Row]:
    """Write the titles and bodies of the memories with the phrases of the other bundled stores."""
    dice = Dice(283)
    moments = working_moments(count, first=FIRST_DAY, last=LAST_DAY, seed=284)
    project = Project(seed=285, moments=moments)
    unwritten_skills = list(range(len(project.phrases["skills"])))
    for issue in range(1, count + 1):
        draw = dice.random()
        if draw < 0.12:
            project.add_decision(issue)
        elif draw < 0.16 and unwritten_skills:
            project.add_skill(issue, unwritten_skills.pop(0))
        elif draw < 0.4:
            project.add_failure(issue)
        else:
            project.add_merge(issue)
    return list(project.rows.values())


def _memory_file(row: Row, number: int, session: str, written_at: datetime) -> MemoryFile:
    """Write a memory as a file with front matter: the older style first, later the newer one."""
    kind = TYPES[row.kind]
    words = re.findall(r"[a-z]+", row.title.lower())
    name = f"{kind}_{number:03d}-{'-'.join(words[:4])}"
    lines = [
        "---",
        f"name: {name}",
        f"description: {json.dumps(row.title, ensure_ascii=False)}",
    ]
    if number <= LAST_OLD_STYLE:
        lines += [
            f"type: {kind}",
            f"originSessionId: {session}",
        ]
    else:
        lines += [
            "metadata: ",
            "  node_type: memory",
            f"  type: {kind}",
            f"  originSessionId: {session}",
            f"  modified: {_format_time(written_at)}",
        ]
    lines += ["---", "", f"{row.body}\n"]
    return MemoryFile(f"{name}.md", kind, row.title, "\n".join(lines))


def _draw_reads(dice: Dice, memories: list[MemoryFile]) -> list[MemoryFile]:
    """Draw the earlier memories that a session reads."""
    read = []
    for _ in range(dice.between(0, MAX_READS)):
        age_rank = ceil(DISTANCE_FACTOR * dice.distance())
        if age_rank <= len(memories):
            read.append(memories[-age_rank])
    return read


def _index_lines(memories: list[MemoryFile]) -> list[str]:
    """List the lines of the index."""
    lines = ["# What to know of this project", ""]
    for number, memory in enumerate(memories, start=1):
        if number in DANGLING:
            lines.append(f"- [Notes]({DANGLING[number]}) — kept for later")
        if number not in UNINDEXED:
            title = memory.title[:48].rstrip(" .,:")
            lines.append(f"- [{title}]({memory.name}) — {memory.kind}")
    return lines


def _format_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def main() -> None:
    """Replace the folder, and print its size."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    shutil.rmtree(folder / PROJECT.parts[0], ignore_errors=True)
    files = claude_folder()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    size = sum(len(content) for content in files.values())
    print(f"{folder / PROJECT}: {len(files):,} files, {size:,} bytes")


if __name__ == "__main__":
    main()
