"""Claude Code's auto memory: a folder of Markdown files, read by tools that transcripts record.

A read is a call of ``Read``, a shell command that shows a file by name, or an attachment. It counts
where it succeeded and its session did not write the file.
"""

import json
import os.path
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from memlab.errors import MemlabError
from memlab.sources.reads import Asked, Found, mapping, sequence, text
from memlab.sources.recognition import strongest
from memlab.sources.transcripts import Look, Seen, Touch, calls_in, named, uses_in
from memlab.systems.claude_code.evidence import EVIDENCE
from memlab.systems.claude_code.index import INDEX, RETIRED
from memlab.systems.claude_code.shell import file_uses
from memlab.systems.claude_code.view import PROJECTS, WRITERS, is_of_project

_RELEVANT: Final = "relevant_memories"
_HOME: Final = "~"

IS_INDEX: Final = f"uses of {INDEX}, which every start loads"
NO_MEMORY: Final = "files that are no memories"
SEARCHES: Final = "searches over several files, or that show names alone"
NOT_FOLLOWED: Final = "shell commands that name a memory in a way that is not followed"
NO_FILE_NAMED: Final = "shell commands that name the folder and no memory in it"
OTHER_TOOLS: Final = "calls of other tools that name a memory"

_READERS: Final = ("Read", "View", "view", "NotebookRead")
"""Tools of an agent's own that show one file."""
_SHELLS: Final = ("Bash", "PowerShell", "Shell", "bash", "shell")
_PATHS: Final = ("file_path", "path", "notebook_path", "uri", "filename")
"""What tools call the path of a file."""
_SERVERS_READER: Final = re.compile(
    r"mcp__.+__(?:read|get|view|open|cat)_?(?:text_|multiple_)?files?"
)
_SERVERS_WRITER: Final = re.compile(
    r"mcp__.+__(?:write|edit|create|move|delete|append|update|patch)_?(?:to_)?file"
)
"""Tools of MCP servers that show files, and that change one."""
_SERVER: Final = "MCP server"
"""How a memory was read by a tool of such a server."""
_END: Final = r"[^\s\"'`$;|&<>(){}*?\[\]/\\,]+"
"""A file's name in the text of a command."""


def recognises(asked: Asked) -> bool:
    """Whether the source is a memory folder, or a folder with one such in it."""
    return bool(_memory_folders(asked.path))


def find(asked: Asked) -> Found:
    """Return the reads of the files in a memory folder."""
    folder = _the_one(asked)
    beside = folder.parent.parent if is_of_project(folder) else None
    uses = _Uses(folder)
    look = Look(uses.may_be_in, uses.of, _of_one_folder)
    return uses_in(asked, look, "claude-code", str(folder), beside=beside)


class _Uses:
    """Finds what calls do with the files of one memory folder, whatever a transcript calls it."""

    def __init__(self, folder: Path) -> None:
        called = {str(folder), str(folder.resolve())}
        home = Path.home()
        self._called = dict.fromkeys(called, "")
        """By path: how touches of the folder are marked that call it so."""
        self._tail = None
        for path in called:
            if path.startswith(f"{home}/"):
                self._called[_HOME + path.removeprefix(str(home))] = _HOME
        if is_of_project(folder):
            self._tail = f"/{PROJECTS}/{folder.parent.name}/{folder.name}"
            self._called[f"{_HOME}/.claude{self._tail}"] = _HOME
        tail = [re.escape(self._tail)] if self._tail else []
        folders = "|".join([*map(re.escape, self._called), *tail])
        self._paths = re.compile(rf"(?:{folders})/+({_END})")
        self._needles = [
            [*map(_forms_in_json, path.parts[-1 if path.parent == home else -2 :])]  # home may be ~
            for path in map(Path, called)
        ]
        """No path leads into the folder without these names, from a working folder or by itself."""

    def may_be_in(self, line: bytes) -> bool:
        return any(
            all(any(form in line for form in forms) for forms in names) for names in self._needles
        )

    def of(self, line: dict[str, Any]) -> Iterator[Touch]:
        cwd = text(line.get("cwd")) or None
        for call in calls_in(line):
            yield from self._of_call(*call, cwd)
        attachment = mapping(line.get("attachment"))
        if attachment:
            yield from self._of_attachment(attachment, line)

    def _of_call(
        self, call: str, tool: str, given: dict[str, Any], cwd: str | None
    ) -> Iterator[Touch]:
        paths = [_absolute(path, cwd) for path in _paths_in(given)]
        is_writer = tool in WRITERS or _SERVERS_WRITER.fullmatch(tool) is not None
        if is_writer or tool in _READERS or _SERVERS_READER.fullmatch(tool):
            for path in paths:
                yield from self._of_file(call, tool, path, writes=is_writer)
        elif tool in _SHELLS:
            yield from self._of_command(call, tool, text(given.get("command")), cwd)
        elif tool in ("Grep", "Glob"):
            for path in paths:
                is_file = self._place(path) is not None
                if is_file and tool == "Grep" and given.get("output_mode") == "content":
                    yield from self._of_file(call, tool, path, writes=False)
                elif is_file or self._holds(path):
                    yield Touch(call, "", tool, outcome=SEARCHES)
        else:
            for path in paths:
                if self._holds(path) or self._place(path) is not None:
                    yield Touch(call, "", tool, outcome=OTHER_TOOLS)

    def _of_command(self, call: str, tool: str, command: str, cwd: str | None) -> Iterator[Touch]:
        """Yield what a shell command does with memories; what cannot be followed is left out."""
        known = set[str]()
        named = self._named_in(command)
        uses = file_uses(command, cwd) if tool != "PowerShell" else ()
        for use in uses:
            place = self._place(use.path)
            if use.verb == "search":
                if place is not None or self._holds(use.path):
                    known.add(place[1] if place else "")
                    yield Touch(call, "", tool, outcome=SEARCHES)
                continue
            if place is not None:
                known.add(place[1])
            yield from self._of_file(call, tool, use.path, writes=use.verb == "write")
        for name in named:
            if name.endswith(".md") and name not in known:
                why = NO_MEMORY
                if name not in (INDEX, RETIRED):
                    why = NOT_FOLLOWED
                yield Touch(call, name, tool, place="in a command", outcome=why)
        if not known and not named and self._names_folder(command):
            yield Touch(call, "", tool, outcome=NO_FILE_NAMED)

    def _names_folder(self, command: str) -> bool:
        return any(folder in command for folder in self._called)

    def _named_in(self, command: str) -> set[str]:
        """Return the files of the folder whose paths stand in a command."""
        text_of = command.replace("\\\\", "/").replace("\\", "/")
        return {match[1] for match in self._paths.finditer(text_of)}

    def _of_attachment(self, attachment: dict[str, Any], line: dict[str, Any]) -> Iterator[Touch]:
        call = named(line)
        if attachment.get("type") != _RELEVANT:
            why = "attachments that were loaded without being asked for"
            yield Touch(call, "", "", outcome=why)
            return
        for memory in map(mapping, sequence(attachment.get("memories"))):
            for touch in self._of_file(call, _RELEVANT, text(memory.get("path")), writes=False):
                yield touch._replace(outcome=touch.outcome or "")

    def _of_file(self, call: str, tool: str, path: str, *, writes: bool) -> Iterator[Touch]:
        place = self._place(path) if path else None
        if place is None:
            return
        folder, name = place
        if name not in (INDEX, RETIRED) and name.endswith(".md"):
            how = _SERVER if tool.startswith("mcp__") else tool
            yield Touch(call, name, how, writes, folder)
        elif not writes:
            why = IS_INDEX if name == INDEX else NO_MEMORY
            yield Touch(call, name, tool, place=folder, outcome=why)

    def _holds(self, path: str) -> bool:
        return self._place(f"{path}/x") is not None

    def _place(self, path: str) -> tuple[str, str] | None:
        """Return what a file's path calls the folder, and the file; None for one elsewhere."""
        above, _, name = re.sub(r"^/{2,}", "/", os.path.normpath(path)).rpartition("/")
        if above in self._called:
            return self._called[above], name
        is_namesake = self._tail is not None and above.endswith(self._tail)
        return (above, name) if is_namesake else None


def _paths_in(given: Mapping[str, Any]) -> list[str]:
    """Return the paths that a tool was given."""
    found = [text(given.get(name)) for name in _PATHS]
    found += [text(path) for path in sequence(given.get("paths"))]
    return [_with_slashes(path.removeprefix("file://")) for path in found if path] or [""]


def _with_slashes(path: str) -> str:
    """Return a path as others than Windows write it."""
    return path if "/" in path else path.replace("\\", "/")


def _forms_in_json(name: str) -> set[bytes]:
    """Return a name as JSON has it, written in ASCII or not."""
    forms = (json.dumps(name, ensure_ascii=ascii_only) for ascii_only in (True, False))
    return {form[1:-1].encode(errors="surrogateescape") for form in forms}


def _absolute(path: str, cwd: str | None) -> str:
    is_whole = path.startswith(("/", "~")) or path[1:3] == ":/"
    if is_whole or cwd is None:
        return path
    return f"{cwd}/{path}" if path else cwd


def _of_one_folder(seen: list[Seen], found: Found) -> list[Seen]:
    """Keep the touches of the folder itself; where there is none, of its namesake elsewhere."""
    places = Counter(one.touch.place for one in seen if one.touch.place != _HOME)
    kept = "" if "" in places or not places else min(places, key=lambda p: (-places[p], p))
    if kept:
        found.notes.append(f"the transcripts call this folder {kept}")
    ours = [one for one in seen if one.touch.place in {kept, _HOME}]
    others = sum(not one.touch.writes for one in seen) - sum(not o.touch.writes for o in ours)
    found.left_out["reads of a folder of the same name in another place"] += others
    return ours


def _memory_folders(path: Path, *, is_named: bool = False) -> list[Path]:
    """Return the memory folders that a path may mean: itself, its project's, its projects'.

    A path that `is_named` by a scheme is one, whatever there is in it.
    """
    if path.is_dir() and (is_named or strongest(EVIDENCE, path) is not None):
        return [path]
    below = "*/memory" if path.name == PROJECTS else f"{PROJECTS}/*/memory"
    found = path.glob("memory" if path.parent.name == PROJECTS else below)
    return sorted(each for each in found if each.is_dir())


def _the_one(asked: Asked) -> Path:
    path = asked.path
    folders = _memory_folders(path, is_named=bool(asked.scheme))
    if len(folders) == 1:
        return folders[0]
    names = ", ".join(str(each) for each in folders[:5])
    more = f" and {len(folders) - 5:,} more" if len(folders) > 5 else ""
    raise MemlabError(f"{path} has several memory folders; name one: {names}{more}")
