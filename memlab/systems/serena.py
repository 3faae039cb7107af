"""Serena's memories, Markdown files below ``.serena/memories``, and their reads in transcripts."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from memlab.errors import StoreError
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import NOTE, FolderMemory, NotesSource, creation_time_of, note_of
from memlab.sources.readers import Key
from memlab.sources.reads import HarvestRequest, HarvestResult, text
from memlab.sources.recognition import Evidence, Strength, spellings
from memlab.sources.transcripts import Touch, TouchRules, calls_in, harvest_transcripts

MEMORIES: Final = Path(".serena", "memories")
ELSEWHERE: Final = "reads by agents in other projects"

_READ_TOOL: Final = "read_memory"
_WRITE_TOOLS: Final = ("write_memory", "edit_memory")


def _homes() -> list[Path]:
    """Return the spellings of the folder in ``SERENA_HOME``; none if it is not set."""
    home = os.environ.get("SERENA_HOME", "")
    return spellings(Path(home).expanduser()) if home else []


def _is_memories(folder: Path) -> bool:
    """Return whether Serena puts memories into a folder of this path."""
    if folder.name != MEMORIES.name:
        return False
    parent = folder.parent
    return parent.name == MEMORIES.parent.name or parent in _homes()


EVIDENCE: Final = (
    Evidence(
        Strength.PLACE,
        "is the memories folder in .serena, or in the folder that SERENA_HOME names",
        _is_memories,
    ),
)


class Serena(NotesSource):
    """The memories of a project."""

    scheme = "serena"
    default_locations = ("SERENA_HOME", str(MEMORIES.parent))

    evidence = EVIDENCE

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        if _is_memories(self.given_path):  # it may be a link to a folder of another name
            with suppress(OSError, RuntimeError):
                self.path = self.given_path.parent.resolve() / self.given_path.name

    @classmethod
    def evidence_folder(cls, path: Path) -> Path:
        """Return the path. A project's folder means its memories only in a name with a scheme."""
        return path

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of memories of a path, which may be that of the project."""
        if _is_memories(path):
            return path
        if path.name == MEMORIES.parent.name or path in _homes():
            return path / MEMORIES.name
        return path / MEMORIES

    def check_exists(self) -> None:
        """Raise StoreError for a project without a folder of memories."""
        if self.is_for_restore or self.path.is_dir():
            return
        problem = "is not there"
        if self.path.is_symlink() and not self.path.exists():
            problem = "is a link that leads nowhere"
        elif self.path.exists():
            problem = "is no folder"
        raise StoreError(
            f"{self.path} {problem}, and Serena keeps a project's memories nowhere else; check the "
            "path, or let Serena write a memory first"
        )

    def is_document(self, key: Key, record: bytes) -> bool:  # noqa: ARG002 - the folder decides
        """Return whether an archived file was a document: its folder is not one of Serena's."""
        return not _is_memories(self.path)

    @staticmethod
    def may_include(name: str) -> bool:
        """Return whether a folder below may hold memories."""
        return not any(part.startswith(".") for part in name.split("/"))

    def memories(self, moment: FolderMoment) -> list[FolderMemory]:
        """Return the memories."""
        first_commits = self.first_commits(moment)
        notes = []
        for name in filter(self.is_note, moment.names):
            created_at = creation_time_of(moment, name, first_commits)
            notes.append(note_of(name, created_at, loaded=True, prunable=True))
        return notes

    def at_start(self, name: str, text: str) -> str | None:  # noqa: ARG002 - only names are loaded
        """Return the name of a memory, which a start lists."""
        return name.removesuffix(NOTE)


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a project with memories, or their folder."""
    return Serena.recognise(Serena(request.path).path, {}) is not None


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads of memories in transcripts."""
    source = Serena(request.path)
    rules = TouchRules(lambda line: b"_memory" in line, partial(_touches, source.path.parents[1]))
    return harvest_transcripts(request, rules, source.scheme, source.name)


def _touches(project: Path, line: dict[str, Any]) -> Iterator[Touch]:
    """Yield the reads and writes of memories of a project in a line of a transcript."""
    is_in_project = Path(text(line.get("cwd"))).is_relative_to(project)
    outcome = None if is_in_project else ELSEWHERE
    for call in calls_in(line):
        tool = call.tool.rpartition("__")[2]
        arguments = call.arguments
        name = text(arguments.get("memory_name")) or text(arguments.get("memory_file_name"))
        memory = name.removesuffix(NOTE) + NOTE
        is_write = tool in _WRITE_TOOLS
        if (tool == _READ_TOOL or is_write) and Serena.is_note(memory):
            yield Touch(call.id, memory, _READ_TOOL, is_write=is_write, outcome=outcome)
