"""Decide whether a folder is Claude Code's memory, and which of its files are memories.

In a folder to which Claude Code's configuration points, every Markdown file is a memory. In another
folder, the front matter decides. A file with the name of a document is never a memory.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.sources.folder.files import Folder, is_file_path, opened_folder
from memlab.sources.opening import NOT_ENTERED
from memlab.sources.recognition import Evidence, Strength, spellings, strongest
from memlab.systems.claude_code.hubs import list_of_links
from memlab.systems.claude_code.index import INDEX, RETIRED, MemoryIndex
from memlab.systems.claude_code.markdown import (
    MAX_SUBFOLDERS,
    FileNames,
    FrontMatter,
    read_front_matter,
)

TYPES: Final = frozenset({"user", "feedback", "project", "reference"})
"""Types of Claude Code's memories."""

AGENTS_FILES: Final = frozenset({"AGENTS.md", "CLAUDE.md", "SOUL.md", "USER.md", "TOOLS.md"})
"""Files with instructions for agents. Agents read them under these names in capitals only."""
DOCUMENTS: Final = frozenset({"readme.md", "license.md", "changelog.md"})
"""Names of documents of a project, in lower case."""

_SUFFIX: Final = ".md"
_ARCHIVE_FOLDERS: Final = frozenset(
    {"archive", "archives", "archived", "backup", "backups", "old", "retired", "trash"}
)
"""Names, in lower case, of folders in which people put files that are no memories any more."""

_CONFIGURATION: Final = ".claude"
_PROJECTS: Final = "projects"
_MEMORY: Final = "memory"
_SUBAGENT_FOLDERS: Final = ("agent-memory", "agent-memory-local")
"""Folders in a configuration folder with a memory folder for each subagent."""
_SLUG: Final = re.compile(r"-|[A-Za-z]--")
"""Prefix of a project's folder: the encoded root of a path, or of a drive."""
_MANAGED_SETTINGS: Final = Path("/etc/claude-code/managed-settings.json")
_SETTING: Final = "autoMemoryDirectory"
_MAX_SETTINGS: Final = 2**20
"""Maximum size in bytes of a settings file."""
_MAX_BEGINNING: Final = 2**18
"""Number of bytes of a memory that are searched for front matter."""

_TOP_LEVEL_TYPE: Final = re.compile(r"type[ \t]*:(?P<value>.*)", re.IGNORECASE)
_METADATA: Final = re.compile(r"metadata[ \t]*:[ \t]*(?P<inline>\{.*)?")
_NESTED_TYPE: Final = re.compile(r"[ \t]+type[ \t]*:(?P<value>.*)", re.IGNORECASE)
_INLINE_TYPE: Final = re.compile(r"\btype[ \t]*:(?P<value>[^,}]*)", re.IGNORECASE)
_WORD: Final = re.compile(r"[\w-]+")


def is_kept_by_name(name: str) -> bool:
    """Return whether a file has the name of a document, so that it is never a memory.

    >>> [is_kept_by_name(name) for name in ("README.md", "a/Readme.md", "SOUL.md", "soul.md")]
    [True, True, True, False]
    """
    own_name = name.rpartition("/")[2]
    return own_name in AGENTS_FILES or own_name.lower() in DOCUMENTS


def may_hold_memories(name: str) -> bool:
    """Return whether the files of a subfolder of a memory folder may be memories, by its path.

    Hidden folders, folders that a search does not enter, and folders for archived files have none.

    >>> [may_hold_memories(name) for name in ("deploy/eu", "deploy/.git", "Archive/2025", "_old")]
    [True, False, False, False]
    """
    parts = name.split("/")
    return len(parts) <= MAX_SUBFOLDERS and not any(_is_left_out(part) for part in parts)


def _is_left_out(name: str) -> bool:
    """Return whether the files of a folder of this name are no memories."""
    is_hidden = name.startswith(".")
    has_suffix = name.endswith(_SUFFIX)
    is_archive = name.strip("_- ").lower() in _ARCHIVE_FOLDERS
    return is_hidden or has_suffix or is_archive or name in NOT_ENTERED


def is_memory(name: str) -> bool:
    """Return whether a file with that path in a memory folder can be a memory.

    >>> [is_memory(name) for name in ("a.md", "MEMORY.md", "notes.txt", ".draft.md")]
    [True, False, False, False]
    >>> [is_memory(name) for name in ("b/a.md", "b/MEMORY.md", "archive/a.md", "b/../a.md")]
    [True, False, False, False]
    """
    subfolder, _, own_name = name.rpartition("/")
    if own_name.startswith(".") or not own_name.endswith(_SUFFIX) or own_name in (INDEX, RETIRED):
        return False
    return not subfolder or (is_file_path(name) and may_hold_memories(subfolder))


def has_claude_type(text: str, head: FrontMatter | None = None) -> bool:
    r"""Return whether ``type`` or ``metadata.type`` in front matter is a type of Claude Code.

    A caller that has read the front matter passes it as `head`, because reading it takes long.

    >>> has_claude_type("---\nname: a\nmetadata:\n  type: user\n---\n")
    True
    >>> has_claude_type("---\nname: a-skill\ndescription: does it\n---\n")
    False
    """
    if head is None:
        head = read_front_matter(text)
    values = list(_types_in(text[: head.text_at]))
    if not head.text_at:  # the front matter does not end, and was read as far as possible
        values = [head.fields.get("type", "")]
    for value in values:
        words = _words(value)
        if words and words <= TYPES:
            return True
    return False


def _words(value: str) -> set[str]:
    """Return the words of a value in lower case, without a comment."""
    return {word.lower() for word in _WORD.findall(value.partition(" #")[0])}


def _types_in(block: str) -> Iterator[str]:
    """Yield the values of ``type`` and ``metadata.type`` in a block of front matter."""
    is_in_metadata = False
    for line in block.splitlines():
        top_level_type = _TOP_LEVEL_TYPE.match(line)
        metadata = _METADATA.match(line)
        nested_type = _NESTED_TYPE.match(line)
        if top_level_type:
            yield top_level_type["value"]
        elif metadata:
            for inline_type in _INLINE_TYPE.finditer(metadata["inline"] or ""):
                yield inline_type["value"]
        elif is_in_metadata and nested_type:
            yield nested_type["value"]
        if line.strip() and not line.startswith((" ", "\t")):
            is_in_metadata = metadata is not None


def is_placed(folder: Path) -> bool:
    """Return whether a folder is a default or configured memory location of Claude Code."""
    return strongest(PLACES, folder) is not None


def _is_configuration(folder: Path) -> bool:
    """Return whether a folder is a configuration folder of Claude Code."""
    return folder.name == _CONFIGURATION or folder in _configurations(os.environ)


def _configurations(environment: Mapping[str, str]) -> list[Path]:
    """Return the configuration folders of the current user, in all spellings."""
    home = Path(environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - never raises
    folders = [home / _CONFIGURATION]
    configured = environment.get("CLAUDE_CONFIG_DIR")
    if configured:
        folders.insert(0, Path(configured).expanduser())
    paths = []
    for folder in folders:
        paths += spellings(folder)
    return paths


def _is_memory_of_project(path: Path) -> bool:
    """Return whether a path is that of the memory folder of a project."""
    return path.name == _MEMORY and path.parent.parent.name == _PROJECTS


def _is_of_configuration(folder: Path) -> bool:
    """Return whether a folder is a project's memory in a configuration folder."""
    return any(
        _is_memory_of_project(path) and _is_configuration(path.parent.parent.parent)
        for path in spellings(folder)
    )


def _has_slug(folder: Path) -> bool:
    """Return whether a folder is a project's memory, judged by the name of the project's folder."""
    return any(
        _is_memory_of_project(path) and _SLUG.match(path.parent.name) is not None
        for path in spellings(folder)
    )


def _is_of_agent(folder: Path) -> bool:
    """Return whether a folder is the memory of a subagent."""
    return any(
        path.parent.name in _SUBAGENT_FOLDERS and _is_configuration(path.parent.parent)
        for path in spellings(folder)
    )


def _is_linked_from_configuration(folder: Path) -> bool:
    """Return whether the memory of a project in a configuration folder is a link to a folder."""
    real = os.path.realpath(folder)
    for configuration in _configurations(os.environ):
        with suppress(OSError):
            for project in sorted((configuration / _PROJECTS).iterdir()):
                memory = project / _MEMORY
                is_link = project.is_symlink() or memory.is_symlink()
                if is_link and os.path.realpath(memory) == real:
                    return True
    return False


def _is_named_by_settings(folder: Path) -> bool:
    """Return whether ``autoMemoryDirectory`` names a folder.

    Claude Code reads it from user, local and managed settings, and not from the shared settings of
    a project, which may be untrusted.
    """
    real = os.path.realpath(folder)
    return any(os.path.realpath(named) == real for named in memory_directories(folder))


def memory_directories(folder: Path | None = None) -> list[Path]:
    """Return the folders that ``autoMemoryDirectory`` of readable settings names.

    Parameters
    ----------
    folder : Path, optional
        A folder whose own and parent folders' local settings are read too.
    """
    files = [_MANAGED_SETTINGS]
    for configuration in _configurations(os.environ):
        files += [configuration / "settings.json", configuration / "settings.local.json"]
    if folder is not None:
        for path in spellings(folder):
            for parent in (path, *path.parents):
                files.append(parent / _CONFIGURATION / "settings.local.json")
    directories = (_directory_in(file) for file in dict.fromkeys(files))
    return [directory for directory in directories if directory is not None]


def _directory_in(file: Path) -> Path | None:
    """Return the memory folder that a settings file names; None if it names no valid one."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_SETTINGS:
            return None
        settings = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    directory = settings.get(_SETTING) if isinstance(settings, dict) else None
    if not isinstance(directory, str) or "\0" in directory:
        return None
    if not directory.startswith(("/", "~/")):
        return None
    with suppress(RuntimeError):
        return Path(directory).expanduser()
    return None


def has_typed_memories(folder: Path) -> bool:
    """Return whether most files that the index names have front matter with a Claude Code type."""
    with (
        suppress(StoreError, ChangedWhileReadError, FileNotFoundError),
        opened_folder(folder) as opened,
    ):
        names = opened.listing().files
        if INDEX not in names:
            return False
        notes = {name for name in names if name.endswith(".md")} - {INDEX, RETIRED}
        indexes = [opened.read(name).data for name in (INDEX, RETIRED) if name in names]
        files = _files_named_by(indexes, opened, FileNames(opened.path, notes))
        return 2 * len(files.typed) > len(files.named)
    return False


class _NamedFiles(NamedTuple):
    """The files that an index names, and those of them that have a type of Claude Code."""

    named: set[str]
    typed: set[str]


def _files_named_by(indexes: list[bytes], folder: Folder, names: FileNames) -> _NamedFiles:
    """Return the files that indexes name, directly or by a hub.

    Hubs, which are part of the index, are left out.
    """
    unvisited: list[str] = []
    for raw in indexes:
        unvisited += MemoryIndex(raw).blocks_by_file(names)
    named: set[str] = set()
    typed: set[str] = set()
    hubs: set[str] = set()
    while unvisited:
        name = unvisited.pop()
        if name in named or name in hubs:
            continue
        text = _beginning(folder, name)
        index = None if is_kept_by_name(name) else list_of_links(text)
        if index is not None:
            hubs.add(name)
            unvisited += index.blocks_by_file(names)
            continue
        named.add(name)
        if has_claude_type(text):
            typed.add(name)
    return _NamedFiles(named, typed)


def _beginning(folder: Folder, name: str) -> str:
    """Return the beginning of a file; empty if it cannot be read."""
    try:
        return folder.read(name).data[:_MAX_BEGINNING].decode(errors="replace")
    except (StoreError, FileNotFoundError):
        return ""


PLACES: Final = (
    Evidence(
        Strength.PLACE,
        "is projects/PROJECT/memory of a Claude configuration folder (.claude, CLAUDE_CONFIG_DIR)",
        _is_of_configuration,
    ),
    Evidence(
        Strength.PLACE,
        "is projects/PROJECT/memory, and PROJECT begins as Claude Code names projects (-, C--)",
        _has_slug,
    ),
    Evidence(
        Strength.PLACE,
        "is agent-memory/NAME or agent-memory-local/NAME of a Claude configuration folder",
        _is_of_agent,
    ),
    Evidence(
        Strength.PLACE,
        "is named by autoMemoryDirectory in a user's, local or managed settings of Claude Code",
        _is_named_by_settings,
    ),
    Evidence(
        Strength.PLACE,
        "is what projects/PROJECT/memory of a Claude configuration folder links to",
        _is_linked_from_configuration,
    ),
)
EVIDENCE: Final = (
    *PLACES,
    Evidence(
        Strength.CONTENT,
        "has a MEMORY.md that names files, most with front matter whose type or metadata.type is "
        "user, feedback, project or reference",
        has_typed_memories,
    ),
)
