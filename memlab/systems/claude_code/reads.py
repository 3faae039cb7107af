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
from typing import Any, Final, NamedTuple

from memlab.errors import MemlabError
from memlab.sources.reads import HarvestRequest, HarvestResult, mapping, sequence, text
from memlab.sources.recognition import strongest
from memlab.sources.transcripts import (
    SuccessfulTouch,
    ToolCall,
    Touch,
    TouchRules,
    calls_in,
    harvest_transcripts,
    id_of_line,
    transcript_files,
    without_access_logs,
)
from memlab.systems.claude_code.evidence import EVIDENCE, is_memory, is_placed
from memlab.systems.claude_code.index import INDEX, RETIRED
from memlab.systems.claude_code.shell import file_uses
from memlab.systems.claude_code.view import PROJECTS, WRITERS, is_of_project

_RELEVANT: Final = "relevant_memories"
"""The type of an attachment with the memories that Claude Code chose for a message."""
_HOME: Final = "~"
_MAX_FOLDERS_SHOWN: Final = 5
"""Maximum number of folders in a message."""

IS_INDEX: Final = f"uses of {INDEX}, which every start loads"
NO_MEMORY: Final = "files that are no memories"
SEARCHES: Final = "searches over several files, or that show names alone"
NOT_FOLLOWED: Final = "shell commands that name a memory in a way that memlab cannot resolve"
NO_FILE_NAMED: Final = "shell commands that name the folder and no memory in it"
OTHER_TOOLS: Final = "calls of other tools that name a memory"

_READERS: Final = ("Read", "View", "view", "NotebookRead")
"""Built-in tools that show one file."""
_SHELLS: Final = ("Bash", "PowerShell", "Shell", "bash", "shell")
_PATH_PARAMETERS: Final = ("file_path", "path", "notebook_path", "uri", "filename")
"""Names of the tool parameters that hold a path."""
_MCP_READER: Final = re.compile(r"mcp__.+__(?:read|get|view|open|cat)_?(?:text_|multiple_)?files?")
"""The name of a tool of an MCP server that shows files."""
_MCP_WRITER: Final = re.compile(
    r"mcp__.+__(?:write|edit|create|move|delete|append|update|patch)_?(?:to_)?file"
)
"""The name of a tool of an MCP server that changes a file."""
_MCP_SERVER: Final = "MCP server"
"""Label of a read by a tool of an MCP server."""
_PATH_PART: Final = r"[^\s\"'`$;|&<>(){}*?\[\]/\\,]+"
"""Pattern of a part of a path in the text of a command."""


class _FileInFolder(NamedTuple):
    """A file below the memory folder that a call names.

    Attributes
    ----------
    store_path : str
        The value of :attr:`memlab.sources.transcripts.Touch.store_path`: empty for the folder
        itself, ``~`` if the path begins with the home folder, else the path of a folder of the same
        name in another place.
    name : str
        The path of the file in the folder.
    """

    store_path: str
    name: str


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a memory folder or contains one."""
    return bool(_memory_folders(request.path))


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads of the files in a memory folder."""
    folder = _memory_folder(request)
    projects = folder.parent.parent if is_of_project(folder) else None
    finder = _TouchFinder(folder)
    rules = TouchRules(finder.may_have_touch, finder.touches_in, _touches_of_one_folder)
    result = harvest_transcripts(
        request, rules, "claude-code", str(folder), default_folder=projects
    )
    reads_all_projects = projects is not None and request.transcripts is None
    if reads_all_projects and result.files:
        own_transcripts = without_access_logs(transcript_files(folder.parent))
        if not own_transcripts:
            result.notes.insert(
                0, f"{folder.parent.name} has no sessions: the transcripts are of other projects"
            )
    return result


class _TouchFinder:
    """Finds the touches of the files of one memory folder, under every path of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_subfolders = is_placed(folder) or is_placed(folder.resolve())
        """Whether memories may lie in subfolders."""
        self._has_index: dict[str, bool] = {}
        """Whether each subfolder that was named has an index, so that it is another store."""
        self._project_path = ""
        """The end of the folder's path if it is that of a project, else empty."""
        if is_of_project(folder):
            self._project_path = f"/{PROJECTS}/{folder.parent.name}/{folder.name}"
        self._store_paths = _store_paths(folder, self._project_path)
        """The value of ``store_path`` for each path of the folder."""
        self._file_pattern = self._pattern_of_files()
        """A path of a file in the folder, in the text of a command."""
        self._last_names = _last_names(folder)
        """For each path of the folder, the names at its end in the forms that JSON may have.

        Every absolute or relative path into the folder contains these names.
        """

    def _pattern_of_files(self) -> re.Pattern[str]:
        """Return the pattern of the path of a file in the folder."""
        folders = list(self._store_paths)
        if self._project_path:
            folders.append(self._project_path)
        alternatives = "|".join(re.escape(folder) for folder in folders)
        subfolders = rf"(?:/+{_PATH_PART})*" if self._has_subfolders else ""
        return re.compile(rf"(?:{alternatives})/+({_PATH_PART}{subfolders})")

    def may_have_touch(self, line: bytes) -> bool:
        """Return whether a line of a transcript may name the folder."""
        return any(_has_all(names, line) for names in self._last_names)

    def touches_in(self, line: dict[str, Any]) -> Iterator[Touch]:
        """Yield the touches of memories in a line of a transcript."""
        cwd = text(line.get("cwd")) or None
        for call in calls_in(line):
            yield from self._touches_by_call(call, cwd)
        attachment = mapping(line.get("attachment"))
        if attachment:
            yield from self._touches_by_attachment(attachment, line)

    def _touches_by_call(self, call: ToolCall, cwd: str | None) -> Iterator[Touch]:
        """Yield the touches of memories by one tool call."""
        paths = [_absolute(path, cwd) for path in _paths_in(call.arguments)]
        is_write = call.tool in WRITERS or _MCP_WRITER.fullmatch(call.tool) is not None
        is_read = call.tool in _READERS or _MCP_READER.fullmatch(call.tool) is not None
        if is_write or is_read:
            for path in paths:
                yield from self._touches_of_file(call.id, call.tool, path, is_write=is_write)
        elif call.tool in _SHELLS:
            yield from self._touches_by_command(call, cwd)
        elif call.tool in ("Grep", "Glob"):
            for path in paths:
                yield from self._touches_by_search(call, path)
        else:
            for path in paths:
                if self._is_folder(path) or self._file_at(path) is not None:
                    yield Touch(call.id, "", call.tool, outcome=OTHER_TOOLS)

    def _touches_by_search(self, call: ToolCall, path: str) -> Iterator[Touch]:
        """Yield the touch by a search in a path: a read if it shows the lines of one file."""
        file = self._file_at(path)
        is_file = file is not None and not self._is_subfolder(file.name)
        shows_lines = call.tool == "Grep" and call.arguments.get("output_mode") == "content"
        if is_file and shows_lines:
            yield from self._touches_of_file(call.id, call.tool, path, is_write=False)
        elif is_file or self._is_folder(path):
            yield Touch(call.id, "", call.tool, outcome=SEARCHES)

    def _touches_by_command(self, call: ToolCall, cwd: str | None) -> Iterator[Touch]:
        """Yield the touches by a shell command.

        A touch that is not counted has an outcome, which says why.
        """
        command = text(call.arguments.get("command"))
        resolved_names = set[str]()
        named_files = self._files_named_in(command)
        uses = file_uses(command, cwd) if call.tool != "PowerShell" else ()
        for use in uses:
            file = self._file_at(use.path)
            if use.verb == "search":
                if file is not None or self._is_folder(use.path):
                    # An empty name: the whole folder was searched, so that no file is missing.
                    resolved_names.add(file.name if file else "")
                    yield Touch(call.id, "", call.tool, outcome=SEARCHES)
                continue
            if file is not None:
                resolved_names.add(file.name)
            is_write = use.verb == "write"
            yield from self._touches_of_file(call.id, call.tool, use.path, is_write=is_write)
        for name in named_files:
            if name.endswith(".md") and name not in resolved_names:
                outcome = NOT_FOLLOWED if self._may_be_memory(name) else NO_MEMORY
                yield Touch(call.id, name, call.tool, store_path="in a command", outcome=outcome)
        if not resolved_names and not named_files and self._names_folder(command):
            yield Touch(call.id, "", call.tool, outcome=NO_FILE_NAMED)

    def _names_folder(self, command: str) -> bool:
        """Return whether a command contains a path of the folder."""
        return any(folder in command for folder in self._store_paths)

    def _files_named_in(self, command: str) -> set[str]:
        """Return the files of the folder whose paths occur in a command."""
        with_slashes = command.replace("\\\\", "/").replace("\\", "/")
        matches = self._file_pattern.finditer(with_slashes)
        names = {os.path.normpath(match[1]) for match in matches}
        return {name for name in names if self._belongs_to_folder(name)}

    def _touches_by_attachment(
        self, attachment: dict[str, Any], line: dict[str, Any]
    ) -> Iterator[Touch]:
        """Yield the touches by an attachment; only those of an attachment of memories count."""
        call_id = id_of_line(line)
        if attachment.get("type") != _RELEVANT:
            outcome = "attachments that were loaded without being asked for"
            yield Touch(call_id, "", "", outcome=outcome)
            return
        for memory in sequence(attachment.get("memories")):
            path = text(mapping(memory).get("path"))
            for touch in self._touches_of_file(call_id, _RELEVANT, path, is_write=False):
                # An attached memory was read: the outcome None would mean a call without a result.
                yield touch._replace(outcome=touch.outcome or "")

    def _touches_of_file(
        self, call_id: str, tool: str, path: str, *, is_write: bool
    ) -> Iterator[Touch]:
        """Yield the touch of one file, if it is in the folder."""
        file = self._file_at(path) if path else None
        if file is None:
            return
        if self._may_be_memory(file.name):
            shown_tool = _MCP_SERVER if tool.startswith("mcp__") else tool
            yield Touch(
                call_id, file.name, shown_tool, is_write=is_write, store_path=file.store_path
            )
        elif not is_write:
            outcome = IS_INDEX if file.name == INDEX else NO_MEMORY
            yield Touch(call_id, file.name, tool, store_path=file.store_path, outcome=outcome)

    def _is_folder(self, path: str) -> bool:
        """Return whether a path is the folder, so that a file below it would be in the folder."""
        return self._file_at(f"{path}/x") is not None

    def _file_at(self, path: str) -> _FileInFolder | None:
        """Return the file of the folder at a path; None for a path elsewhere."""
        # `normpath` keeps two slashes at the beginning.
        normalized = re.sub(r"^/{2,}", "/", os.path.normpath(path))
        file = self._split(normalized)
        if file is None or not self._belongs_to_folder(file.name):
            return None
        return file

    def _split(self, path: str) -> _FileInFolder | None:
        """Return a path split at the end of a path of the folder; None for a path elsewhere."""
        parent, _, name = path.rpartition("/")
        if parent in self._store_paths:
            return _FileInFolder(self._store_paths[parent], name)
        for folder, store_path in self._store_paths.items():
            if path.startswith(f"{folder}/"):
                return _FileInFolder(store_path, path.removeprefix(f"{folder}/"))
        if not self._project_path or f"{self._project_path}/" not in path:
            return None
        above, _, name = path.rpartition(f"{self._project_path}/")
        return _FileInFolder(above + self._project_path, name)

    def _belongs_to_folder(self, name: str) -> bool:
        """Return whether a path below the folder belongs to it, and not to a store below it."""
        if "/" not in name:
            return True
        if name.startswith("../") or not self._has_subfolders:
            return False
        subfolders = map(str, PurePosixPath(name).parents[:-1])
        return not any(self._is_store(subfolder) for subfolder in subfolders)

    def _is_store(self, path: str) -> bool:
        """Return whether a subfolder has an index, so that it is another store."""
        if path not in self._has_index:
            self._has_index[path] = os.path.lexists(self._folder / path / INDEX)
        return self._has_index[path]

    def _is_subfolder(self, name: str) -> bool:
        """Return whether a path below the folder is that of a subfolder with memories."""
        return self._has_subfolders and (self._folder / name).is_dir()

    @staticmethod
    def _may_be_memory(name: str) -> bool:
        """Return whether a file of the folder may be a memory, by its path."""
        if "/" in name:
            return is_memory(name)
        return name not in (INDEX, RETIRED) and name.endswith(".md")


def _store_paths(folder: Path, project_path: str) -> dict[str, str]:
    """Return the value of ``store_path`` for each path by which calls may name the folder."""
    absolute_paths = {str(folder), str(folder.resolve())}
    store_paths = dict.fromkeys(absolute_paths, "")
    home = str(Path.home())
    for path in absolute_paths:
        if path.startswith(f"{home}/"):
            store_paths[_HOME + path.removeprefix(home)] = _HOME
    if project_path:
        store_paths[f"{_HOME}/.claude{project_path}"] = _HOME
    return store_paths


def _last_names(folder: Path) -> list[list[set[bytes]]]:
    """Return the last names of each path of the folder.

    Each name is the set of the forms in which JSON may have it.
    """
    last_names = []
    for path in {folder, folder.resolve()}:
        parts = path.parts[-2:]
        if path.parent == Path.home():  # it may be written as ~, so that its name does not occur
            parts = path.parts[-1:]
        last_names.append([_forms_in_json(part) for part in parts])
    return last_names


def _paths_in(arguments: Mapping[str, Any]) -> list[str]:
    """Return the paths in the arguments of a tool; one empty path if there is none."""
    values = [text(arguments.get(name)) for name in _PATH_PARAMETERS]
    values += [text(path) for path in sequence(arguments.get("paths"))]
    paths = [_with_slashes(value.removeprefix("file://")) for value in values if value]
    return paths or [""]


def _has_all(names: list[set[bytes]], line: bytes) -> bool:
    """Return whether a line contains each of some names, in one of its forms."""
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
    has_drive = path[1:3] == ":/"
    if path.startswith(("/", "~")) or has_drive or cwd is None:
        return path
    return f"{cwd}/{path}" if path else cwd


def _touches_of_one_folder(
    touches: list[SuccessfulTouch], result: HarvestResult
) -> list[SuccessfulTouch]:
    """Return the touches of the folder itself.

    If there are none, return those of the most used folder of the same name in another place.
    """
    store_paths = [successful.touch.store_path for successful in touches]
    counts = Counter(path for path in store_paths if path != _HOME)
    chosen_path = ""
    if counts and "" not in counts:
        chosen_path = min(counts, key=lambda path: (-counts[path], path))  # ties: first by name
        result.notes.append(f"the transcripts call this folder {chosen_path}")
    chosen = [
        successful for successful in touches if successful.touch.store_path in {chosen_path, _HOME}
    ]
    other_reads = _read_count(touches) - _read_count(chosen)
    result.left_out["reads of a folder of the same name in another place"] += other_reads
    return chosen


def _read_count(touches: list[SuccessfulTouch]) -> int:
    """Return the number of touches that are reads."""
    return sum(not successful.touch.is_write for successful in touches)


def _memory_folders(path: Path, *, is_named: bool = False) -> list[Path]:
    """Return the memory folders for a path: the path itself, or those of its project or projects.

    Parameters
    ----------
    path : Path
        A memory folder, a project, the folder of projects, or a configuration folder.
    is_named : bool
        Whether the path was given with a scheme. Then any folder counts as a memory folder.
    """
    if path.is_dir() and (is_named or strongest(EVIDENCE, path) is not None):
        return [path]
    if path.parent.name == PROJECTS:
        pattern = "memory"
    elif path.name == PROJECTS:
        pattern = "*/memory"
    else:
        pattern = f"{PROJECTS}/*/memory"
    return sorted(folder for folder in path.glob(pattern) if folder.is_dir())


def _memory_folder(request: HarvestRequest) -> Path:
    """Return the memory folder of the source; raise MemlabError if it has several."""
    path = request.path
    folders = _memory_folders(path, is_named=bool(request.scheme))
    if len(folders) == 1:
        return folders[0]
    names = ", ".join(str(folder) for folder in folders[:_MAX_FOLDERS_SHOWN])
    hidden_count = len(folders) - _MAX_FOLDERS_SHOWN
    more = f" and {hidden_count:,} more" if hidden_count > 0 else ""
    raise MemlabError(f"{path} has several memory folders; name one: {names}{more}")
