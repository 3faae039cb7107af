"""Folders of Claude Code's memory with transcripts, written as they are found in the field.

They follow 31 public indexes. Most lines are ``- [Title](file.md) — hook``; others are starred or
prose, have several links or none, or link to a deleted file. Front matter is of two generations or
missing.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memlab.testing.labs import write_in_one_step

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
HEADS = {
    "origin": "type: {kind}\noriginSessionId: {session}",
    "type": "type: {kind}",
    "metadata": "metadata: \n  type: {kind}",
    "node origin": "metadata: \n  node_type: memory\n  type: {kind}\n  originSessionId: {session}",
    "node": "metadata: \n  node_type: memory\n  type: {kind}",
    "modified": "metadata: \n  type: {kind}\n  originSessionId: {session}\n  modified: {modified}",
    "none": "",
    "broken": "description: [{name}\ntype: {kind}",
}
"""Styles of front matter, below the name and the description."""
STYLES = tuple(HEADS)
NAMES = ("topic_{}.md", "Topic {}.md", "v1.{}.notes.md", "überblick-{}.md", "北京_{}.md")
BODIES = ("Short.", "A longer text. " * 40, "See [[{0}]] [[{1}]].", "né 北京 🦀\r\nend")
LINES = (
    "- {link} — a hook, {number}",
    "* ★ **{link}** hook",
    "- {link}, [second]({other}) — two",
    "- [[{stem}]] by name",
    "\nBefore a release read {link} once more.\n",
    "\n## Section {number}\n",
    "- {link} — a hook that\n  goes on below",
    "- {link}\n- [Gone](gone_{number}.md) — removed",
)


def at(number: float) -> datetime:
    """Return the time of the given hours after the start."""
    return START + timedelta(hours=number)


def stamp(moment: datetime) -> str:
    """Return a time in the format of transcripts."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def memory(
    name: str,
    kind: str = "project",
    *,
    style: str = "origin",
    session: str = "s0",
    modified: datetime | None = None,
    body: str = "What was found out.",
) -> str:
    """Return the text of a memory file."""
    if style == "none":
        return f"{body}\n"
    time = "" if modified is None else stamp(modified)
    head = HEADS[style].format(name=name, kind=kind, session=session, modified=time)
    name_lines = f"name: {name}\ndescription: about {name}"
    if style == "broken":
        name_lines = f"name: {name}: of all"
    return f"---\n{name_lines}\n{head}\n---\n\n{body}\n"


def write_memory(folder: Path, name: str, text: str, written: datetime | None = None) -> Path:
    """Write a file, in one step."""
    path = folder / name
    write_in_one_step(path, text, written)
    return path


def write_index(folder: Path, lines: Iterable[str], *, end: str = "\n") -> None:
    """Replace the index in one step."""
    write_memory(folder, "MEMORY.md", "\n".join(lines) + end)


def write_memories(folder: Path, *names: str, line: str = "- [T]({}.md)") -> None:
    """Add a memory for each name, an hour apart, and its line to the index."""
    for number, name in enumerate(names):
        write_memory(folder, f"{name}.md", memory(name), at(number))
    new_lines = [line.format(name) for name in names]
    write_index(folder, index_lines(folder) + new_lines)


def index_lines(folder: Path) -> list[str]:
    index = folder / "MEMORY.md"
    return index.read_text().splitlines() if index.exists() else []


def call(tool: str, path: Path | str, moment: datetime, session: str, number: int) -> list[str]:
    """Return the two transcript lines of a tool call: the call and its result."""
    name = f"toolu_{session}_{number}"
    use = {"type": "tool_use", "id": name, "name": tool, "input": {"file_path": str(path)}}
    result = {"type": "tool_result", "tool_use_id": name, "content": "1\tx"}

    def line(role: str, uuid: str, block: dict[str, Any]) -> str:
        fields = {
            "type": role,
            "uuid": uuid,
            "sessionId": session,
            "timestamp": stamp(moment),
            "message": {"role": role, "content": [block]},
        }
        return json.dumps(fields, separators=(",", ":"))

    return [line("assistant", f"u_{name}", use), line("user", f"r_{name}", result)]


def write_transcript(project: Path, session: str, lines: Sequence[str]) -> Path:
    """Add lines to a session's transcript."""
    project.mkdir(parents=True, exist_ok=True)
    path = project / f"{session}.jsonl"
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def project_folder(home: Path, slug: str = "-home-u-work") -> Path:
    """Return the memory folder of a project below a home folder."""
    folder = home / ".claude" / "projects" / slug / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def realistic_folder(folder: Path, *, files: int = 8) -> Path:
    """Fill a folder with files and index lines of every kind seen in real folders."""
    names = [NAMES[number % 5].format(number) for number in range(files)]
    stems = [name.removesuffix(".md") for name in names]
    lines = ["---", "title: index", "---", "<!-- for people", "only -->", "# Memory index", ""]
    for number, (name, stem) in enumerate(zip(names, stems, strict=True)):
        style = STYLES[number % 8]
        kind = ("project", "feedback", "reference", "user")[number % 4]
        body = BODIES[number % 4].format(stems[0], stems[number // 2])
        text = memory(f"memory {number}", kind, style=style, modified=at(number + 0.5), body=body)
        write_memory(folder, name, text, at(number))
        target = name.replace(" ", "%20")
        line = LINES[number % 8].format(
            link=f"[About {name}]({target})",
            other=names[number // 2].replace(" ", "%20"),
            stem=stem,
            number=number,
        )
        lines.append(line)
    write_index(folder, lines, end="")
    return folder


def with_subfolders(folder: Path) -> Path:
    """Fill a folder with memories beside the index and in sub-folders, one with a hub.

    Beside them lie a store of its own, a document, a file without a type, and an archive.
    """
    lines = ["# Memory", ""]
    for number in range(6):
        kind = "feedback" if number == 3 else "project"
        body = f"What was found out. See [[deploy_{number % 4}]]."
        text = memory(f"topic {number}", kind, body=body)
        write_memory(folder, f"topic_{number}.md", text, at(number))
        lines.append(f"- [Topic {number}](topic_{number}.md) — hook {number}")
    for number in range(4):
        text = memory(f"deploy {number}", style="metadata", body="See [[topic_0]].")
        write_memory(folder, f"deploy/deploy_{number}.md", text, at(10 + number))
    hub = ["# Deploy", "", "- [deploy 0](deploy_0.md) — hook", "- [deploy 1](deploy_1.md) — hook"]
    write_memory(folder, "deploy/INDEX.md", "\n".join([*hub, ""]), at(14))
    lines += [f"- [deploy {number}](deploy/deploy_{number}.md) — hook" for number in (2, 3)]
    lines.append("- [All of deploying](deploy/INDEX.md)")
    for number in range(3):
        text = memory(f"billing {number}", body=f"Bill {number}.")
        write_memory(folder, f"billing/eu/billing_{number}.md", text, at(20 + number))
        lines.append(f"- [billing {number}](billing/eu/billing_{number}.md) — hook")
    for number in range(2):
        write_memory(folder / "other", f"n{number}.md", memory(f"n {number}"), at(30 + number))
    write_index(folder / "other", [f"- [N {number}](n{number}.md)" for number in range(2)])
    write_memory(folder, "deploy/README.md", "# How to deploy\n", at(40))
    write_memory(folder, "deploy/notes.md", "No type.\n", at(41))
    write_memory(folder, "archive/old.md", memory("old"), at(42))
    write_index(folder, lines)
    return folder
