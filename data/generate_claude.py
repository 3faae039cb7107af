#!/usr/bin/env python3
"""Make the bundled folder of Claude Code's memory and its transcripts, byte for byte the same.

    python data/generate_claude.py          write the folder claude beside this file
    python data/generate_claude.py FOLDER   write it there

It is simulated: README.md beside this file says after what. Standard library only.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from generate import HERE, Dice, Project, Row, working_moments

PROJECT = Path("claude/projects/-home-mara-harbor")
MEMORY = f"/home/mara/.claude/projects/{PROJECT.name}/memory"
"""What the transcripts call the folder: they were written on another machine."""

SESSIONS = 140
MEMORIES = 2
"""Each session writes so many."""
READS = 4
"""A session reads up to so many of what earlier ones wrote."""
NEARER = 0.2
"""Needs reach so much less far back than in the other bundled stores, whose agent reads less."""
WITHOUT_A_LINE = frozenset({31, 77, 118, 143, 202})
"""Memories that the index does not name."""
GONE = {60: "project_old-staging-notes.md", 150: "reference_price-sheet.md"}
"""By the memory it stands before: a line of the index whose file was removed by hand."""
TYPES = {"semantic": "feedback", "procedural": "reference", "episodic": "project"}


class Memory(NamedTuple):
    """A file of the folder."""

    name: str
    kind: str
    title: str
    text: str


class Transcript:
    """What one session did, as Claude Code writes it down: a line a call, a line a result."""

    def __init__(self, session: str, began: datetime) -> None:
        self.session = session
        self.now = began
        self.lines: list[str] = []

    def read(self, memory: Memory) -> None:
        """Open a memory."""
        shown = "\n".join(f"{n}\t{line}" for n, line in enumerate(memory.text.splitlines(), 1))
        self._call("Read", {"file_path": f"{MEMORY}/{memory.name}"}, shown)

    def write(self, memory: Memory) -> None:
        """Write a memory that was not there."""
        path = f"{MEMORY}/{memory.name}"
        given = {"file_path": path, "content": memory.text}
        self._call("Write", given, f"File created successfully at: {path}")

    def _call(self, tool: str, given: dict[str, Any], result: str) -> None:
        self.now += timedelta(seconds=53)
        number = f"{self.session}-{len(self.lines) // 2:02d}"
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": given}
        self._line("assistant", f"a-{number}", use)
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
        self._line("user", f"u-{number}", answer)

    def _line(self, kind: str, uuid: str, content: dict[str, Any]) -> None:
        line = {
            "type": kind,
            "uuid": uuid,
            "sessionId": self.session,
            "timestamp": _stamp(self.now),
            "message": {"role": kind, "content": [content]},
        }
        self.lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def claude_folder() -> dict[str, bytes]:
    """Return the files of a project: its memory, and a transcript of each session.

    A session first reads what it needs of earlier ones, as far back as needs reach, then writes
    two memories. Some read what they have just written, or read a memory again to mend it. The
    index has a line a memory in the order of writing, so the newest stand below the cut.
    """
    dice = Dice(281)
    rows = iter(_rows(SESSIONS * MEMORIES))
    memories: list[Memory] = []
    files: dict[str, bytes] = {}
    over = datetime.min.replace(tzinfo=UTC)
    days = {"first": date(2026, 2, 2), "last": date(2026, 6, 30)}
    for number, began in enumerate(working_moments(SESSIONS, seed=282, **days), start=1):
        session = f"session-{number:03d}"
        transcript = Transcript(session, max(began, over + timedelta(minutes=5)))
        for memory in _needed(dice, memories):
            transcript.read(memory)
        for _ in range(MEMORIES):
            written = transcript.now + timedelta(seconds=53)
            memories.append(_memory(next(rows), len(memories) + 1, session, written))
            transcript.write(memories[-1])
        if dice.chance(0.2):
            transcript.read(memories[-1])
        over = transcript.now
        files[f"{PROJECT}/{session}.jsonl"] = _text(transcript.lines)
    for memory in memories:
        files[f"{PROJECT}/memory/{memory.name}"] = memory.text.encode()
    files[f"{PROJECT}/memory/MEMORY.md"] = _text(_index(memories))
    return files


def _rows(count: int) -> list[Row]:
    """Return what the memories say, by the words of the other bundled stores."""
    dice = Dice(283)
    moments = working_moments(count, seed=284, first=date(2026, 2, 2), last=date(2026, 6, 30))
    project = Project(seed=285, moments=iter(moments))
    skills = iter(range(len(project.phrases["skills"])))
    for issue in range(1, count + 1):
        draw = dice.random()
        if draw < 0.12:
            project.decision(issue)
        elif draw < 0.16 and (skill := next(skills, None)) is not None:
            project.skill(issue, skill)
        elif draw < 0.4:
            project.failed(issue)
        else:
            project.merged(issue)
    return list(project.rows.values())


def _memory(row: Row, number: int, session: str, written: datetime) -> Memory:
    """Return a memory as a file: front matter of the older sort, and of the newer one later on."""
    kind = TYPES[row.kind]
    words = re.findall(r"[a-z]+", row.title.lower())
    name = f"{kind}_{number:03d}-{'-'.join(words[:4])}"
    head = [f"name: {name}", f"description: {json.dumps(row.title, ensure_ascii=False)}"]
    if number <= 160:
        head += [f"type: {kind}", f"originSessionId: {session}"]
    else:
        head += ["metadata: ", "  node_type: memory", f"  type: {kind}"]
        head += [f"  originSessionId: {session}", f"  modified: {_stamp(written)}"]
    text = "\n".join(["---", *head, "---", "", f"{row.body}\n"])
    return Memory(f"{name}.md", kind, row.title, text)


def _needed(dice: Dice, memories: list[Memory]) -> Iterator[Memory]:
    """Yield the memories that a session reads before it writes its own."""
    for _ in range(dice.between(0, READS)):
        back = ceil(NEARER * dice.distance())
        if back <= len(memories):
            yield memories[-back]


def _index(memories: list[Memory]) -> list[str]:
    """Return the lines of the index."""
    lines = ["# What to know of this project", ""]
    for number, memory in enumerate(memories, start=1):
        if number in GONE:
            lines.append(f"- [Notes]({GONE[number]}) — kept for later")
        if number not in WITHOUT_A_LINE:
            lines.append(f"- [{memory.title[:48].rstrip(' .,:')}]({memory.name}) — {memory.kind}")
    return lines


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def main(folder: Path) -> None:
    """Write the folder anew and say how large it came out."""
    shutil.rmtree(folder / PROJECT.parts[0], ignore_errors=True)
    files = claude_folder()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    size = sum(map(len, files.values()))
    print(f"{folder / PROJECT}: {len(files):,} files, {size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
