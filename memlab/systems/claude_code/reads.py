"""Find the reads of Claude Code's memory files in transcripts.

A read is a call of ``Read``, a shell command that prints a named file, or an attachment. It counts
if it succeeded and its session did not write the file.
"""

import json
import os.path
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from memlab.errors import MemlabError
from memlab.sources.reads import HarvestRequest, HarvestResult, mapping, sequence, text
from memlab.sources.recognition import strongest
from memlab.sources.transcripts import Look, Seen, Touch, calls_in, named, uses_in
from memlab.systems.claude_code.evidence import EVIDENCE, is_memory, is_placed
from memlab.systems.claude_code.index import INDEX, RETIRED
from memlab.systems.claude_code.shell import file_uses
from memlab.systems.claude_code.view import PROJECTS, WRITERS, is_of_project

_RELEVANT: Final = "relevant_memories"
_HOME: Final = "~"

IS_INDEX: Final = f"uses of {INDEX}, which every start loads"
NO_MEMORY: Final = "files that are no memories"
SEARCHES: Final = "searches over several files, or that show names alone"
NOT_FOLLOWED: Final = "shell commands that name a memory in a way that memlab cannot resolve"
NO_FILE_NAMED: Final = "shell commands that name the folder and no memory in it"
OTHER_TOOLS: Final = "calls of other tools that name a memory"

_READERS: Final = ("Read", "View", "view", "NotebookRead")
"""Built-in tools that show one file."""
_SHELLS: Final = ("Bash", "PowerShell", "Shell", "bash", "shell")
_PATHS: Final = ("file_path", "path", "notebook_path", "uri", "filename")
"""Names of the tool parameters that hold a path."""
_SERVERS_READER: Final = re.compile(
    r"mcp__.+__(?:read|get|view|open|cat)_?(?:text_|multiple_)?files?"
)
_SERVERS_WRITER: Final = re.compile(
    r"mcp__.+__(?:write|edit|create|move|delete|append|update|patch)_?(?:to_)?file"
)
"""Tools of MCP servers that show files, and that change a file."""
_SERVER: Final = "MCP server"
"""Label of a read by a tool of an MCP server."""
_END: Final = r"[^\s\"'`$;|&<>(){}*?\[\]/\\,]+"
"""Pattern of a part of a path in the text of a command."""


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a memory folder or contains one."""
    return bool(_memory_folders(request.path))


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads of the files in a memory folder."""
    folder = _the_one(request)
    beside = folder.parent.parent if is_of_project(folder) else None
    uses = _Uses(folder)
    look = Look(uses.may_be_in, uses.of, _of_one_folder)
    return uses_in(request, look, "claude-code", str(folder), beside=beside)


class _Uses:
    """Finds the uses of the files of one memory folder, under every path of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_subfolders = is_placed(folder) or is_placed(folder.resolve())
        """Whether memories may lie in subfolders."""
        self._stores: dict[str, bool] = {}
        """Whether each subfolder that was named has an index, so that it is another store."""
        called = {str(folder), str(folder.resolve())}
        home = Path.home()
        self._called = dict.fromkeys(called, "")
        """The mark of a touch by the path that it uses for the folder."""
        self._tail = None
        for path in called:
            if path.startswith(f"{home}/"):
                self._called[_HOME + path.removeprefix(str(home))] = _HOME
        if is_of_project(folder):
            self._tail = f"/{PROJECTS}/{folder.parent.name}/{folder.name}"
            self._called[f"{_HOME}/.claude{self._tail}"] = _HOME
        tail = [re.escape(self._tail)] if self._tail else []
        folders = "|".join([*map(re.escape, self._called), *tail])
        below = rf"(?:/+{_END})*" if self._has_subfolders else ""
        self._paths = re.compile(rf"(?:{folders})/+({_END}{below})")
        self._needles = [
            [*map(_forms_in_json, path.parts[-1 if path.parent == home else -2 :])]  # home may be ~
            for path in map(Path, called)
        ]
        """Every absolute or relative path into the folder contains these names."""

    def may_be_in(self, line: bytes) -> bool:
        """Return whether a line of a transcript may name the folder."""
        return any(_has_all(names, line) for names in self._needles)

    def of(self, line: dict[str, Any]) -> Iterator[Touch]:
        """Yield the touches of memories in a line of a transcript."""
        cwd = text(line.get("cwd")) or None
        for call in calls_in(line):
            yield from self._of_call(*call, cwd)
        attachment = mapping(line.get("attachment"))
        if attachment:
            yield from self._of_attachment(attachment, line)

    def _of_call(
        self, call: str, tool: str, given: dict[str, Any], cwd: str | None
    ) -> Iterator[Touch]:
        """Yield the touches of memories by one tool call."""
        paths = [_absolute(path, cwd) for path in _paths_in(given)]
        is_writer = tool in WRITERS or _SERVERS_WRITER.fullmatch(tool) is not None
        if is_writer or tool in _READERS or _SERVERS_READER.fullmatch(tool):
            for path in paths:
                yield from self._of_file(call, tool, path, writes=is_writer)
        elif tool in _SHELLS:
            yield from self._of_command(call, tool, text(given.get("command")), cwd)
        elif tool in ("Grep", "Glob"):
            for path in paths:
                place = self._place(path)
                is_file = place is not None and not self._is_subfolder(place[1])
                if is_file and tool == "Grep" and given.get("output_mode") == "content":
                    yield from self._of_file(call, tool, path, writes=False)
                elif is_file or self._holds(path):
                    yield Touch(call, "", tool, outcome=SEARCHES)
        else:
            for path in paths:
                if self._holds(path) or self._place(path) is not None:
                    yield Touch(call, "", tool, outcome=OTHER_TOOLS)

    def _of_command(self, call: str, tool: str, command: str, cwd: str | None) -> Iterator[Touch]:
        """Yield the touches by a shell command; a use that cannot be followed has an outcome."""
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
                why = NOT_FOLLOWED if self._may_be_memory(name) else NO_MEMORY
                yield Touch(call, name, tool, place="in a command", outcome=why)
        if not known and not named and self._names_folder(command):
            yield Touch(call, "", tool, outcome=NO_FILE_NAMED)

    def _names_folder(self, command: str) -> bool:
        """Return whether a command contains a path of the folder."""
        return any(folder in command for folder in self._called)

    def _named_in(self, command: str) -> set[str]:
        """Return the files of the folder whose paths occur in a command."""
        text_of = command.replace("\\\\", "/").replace("\\", "/")
        names = {os.path.normpath(match[1]) for match in self._paths.finditer(text_of)}
        return {name for name in names if self._is_here(name)}

    def _of_attachment(self, attachment: dict[str, Any], line: dict[str, Any]) -> Iterator[Touch]:
        """Yield the touches by an attachment, which only relevant memories count as."""
        call = named(line)
        if attachment.get("type") != _RELEVANT:
            why = "attachments that were loaded without being asked for"
            yield Touch(call, "", "", outcome=why)
            return
        for memory in map(mapping, sequence(attachment.get("memories"))):
            for touch in self._of_file(call, _RELEVANT, text(memory.get("path")), writes=False):
                yield touch._replace(outcome=touch.outcome or "")

    def _of_file(self, call: str, tool: str, path: str, *, writes: bool) -> Iterator[Touch]:
        """Yield the touch of one file, if it is in the folder."""
        place = self._place(path) if path else None
        if place is None:
            return
        folder, name = place
        if self._may_be_memory(name):
            how = _SERVER if tool.startswith("mcp__") else tool
            yield Touch(call, name, how, writes, folder)
        elif not writes:
            why = IS_INDEX if name == INDEX else NO_MEMORY
            yield Touch(call, name, tool, place=folder, outcome=why)

    def _holds(self, path: str) -> bool:
        """Return whether a path is the folder."""
        return self._place(f"{path}/x") is not None

    def _place(self, path: str) -> tuple[str, str] | None:
        """Return the mark of the folder and the name of a file; None for a file elsewhere."""
        whole = re.sub(r"^/{2,}", "/", os.path.normpath(path))
        place = self._split(whole)
        return place if place is not None and self._is_here(place[1]) else None

    def _split(self, path: str) -> tuple[str, str] | None:
        """Return the mark of the folder and the rest of a path below it; None elsewhere."""
        above, _, name = path.rpartition("/")
        if above in self._called:
            return self._called[above], name
        for folder, mark in self._called.items():
            if path.startswith(f"{folder}/"):
                return mark, path.removeprefix(f"{folder}/")
        at = path.rfind(f"{self._tail}/") if self._tail else -1
        if at < 0:
            return None
        end = at + len(f"{self._tail}")
        return path[:end], path[end + 1 :]

    def _is_here(self, name: str) -> bool:
        """Return whether a path below the folder belongs to it, and not to a store below it."""
        if "/" not in name:
            return True
        if name.startswith("../"):
            return False
        return self._has_subfolders and not any(
            self._is_store(str(above)) for above in PurePosixPath(name).parents[:-1]
        )

    def _is_store(self, path: str) -> bool:
        """Return whether a subfolder has an index, so that it is another store."""
        if path not in self._stores:
            self._stores[path] = os.path.lexists(self._folder / path / INDEX)
        return self._stores[path]

    def _is_subfolder(self, name: str) -> bool:
        """Return whether a path below the folder is that of a subfolder with memories."""
        return self._has_subfolders and (self._folder / name).is_dir()

    @staticmethod
    def _may_be_memory(name: str) -> bool:
        """Return whether a file of the folder may be a memory, by its path."""
        if "/" in name:
            return is_memory(name)
        return name not in (INDEX, RETIRED) and name.endswith(".md")


def _paths_in(given: Mapping[str, Any]) -> list[str]:
    """Return the paths in the parameters of a tool; one empty path if there is none."""
    paths = [text(given.get(name)) for name in _PATHS]
    paths += [text(path) for path in sequence(given.get("paths"))]
    return [_with_slashes(path.removeprefix("file://")) for path in paths if path] or [""]


def _has_all(names: list[set[bytes]], line: bytes) -> bool:
    """Return whether a line has each of some names, in one of its forms."""
    return all(any(form in line for form in forms) for forms in names)


def _with_slashes(path: str) -> str:
    """Return a path with slashes instead of the backslashes of Windows."""
    return path if "/" in path else path.replace("\\", "/")


def _forms_in_json(name: str) -> set[bytes]:
    """Return the encodings of a name in JSON: with ASCII escapes, and without."""
    forms = (json.dumps(name, ensure_ascii=ascii_only) for ascii_only in (True, False))
    return {form[1:-1].encode(errors="surrogateescape") for form in forms}


def _absolute(path: str, cwd: str | None) -> str:
    """Return a path joined to the working folder, unless it is absolute."""
    is_whole = path.startswith(("/", "~")) or path[1:3] == ":/"
    if is_whole or cwd is None:
        return path
    return f"{cwd}/{path}" if path else cwd


def _of_one_folder(seen: list[Seen], result: HarvestResult) -> list[Seen]:
    """Return the touches of the folder itself; if there are none, of its most used namesake."""
    places = Counter(use.touch.place for use in seen if use.touch.place != _HOME)
    kept = ""
    if places and "" not in places:
        kept = min(places, key=lambda place: (-places[place], place))
        result.notes.append(f"the transcripts call this folder {kept}")
    ours = [use for use in seen if use.touch.place in {kept, _HOME}]
    other_reads = _read_count(seen) - _read_count(ours)
    result.left_out["reads of a folder of the same name in another place"] += other_reads
    return ours


def _read_count(seen: list[Seen]) -> int:
    """Return the number of touches that are reads."""
    return sum(not use.touch.writes for use in seen)


def _memory_folders(path: Path, *, is_named: bool = False) -> list[Path]:
    """Return the memory folders for a path: itself, or those of its project or projects.

    A folder that `is_named` by a scheme is one, regardless of its content.
    """
    if path.is_dir() and (is_named or strongest(EVIDENCE, path) is not None):
        return [path]
    below = "*/memory" if path.name == PROJECTS else f"{PROJECTS}/*/memory"
    candidates = path.glob("memory" if path.parent.name == PROJECTS else below)
    return sorted(folder for folder in candidates if folder.is_dir())


def _the_one(request: HarvestRequest) -> Path:
    """Return the memory folder of the source; raise MemlabError if it has several."""
    path = request.path
    folders = _memory_folders(path, is_named=bool(request.scheme))
    if len(folders) == 1:
        return folders[0]
    names = ", ".join(str(folder) for folder in folders[:5])
    more = f" and {len(folders) - 5:,} more" if len(folders) > 5 else ""
    raise MemlabError(f"{path} has several memory folders; name one: {names}{more}")
