"""Serena's memories: Markdown files below ``.serena/memories``, and their reads by transcripts."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from memlab.errors import StoreError
from memlab.sources.base import Key
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import NOTE, NotesSource, known_since, note_of
from memlab.sources.folder.source import Found as FoundNote
from memlab.sources.reads import Asked, Found, text
from memlab.sources.recognition import Evidence, Strength, spellings
from memlab.sources.transcripts import Look, Touch, calls_in, uses_in

MEMORIES: Final = Path(".serena", "memories")
ELSEWHERE: Final = "reads by agents in other projects"

_READ: Final = "read_memory"
_WRITERS: Final = ("write_memory", "edit_memory")


def _homes() -> list[Path]:
    """Return the folder that ``SERENA_HOME`` names, if it names one."""
    named = os.environ.get("SERENA_HOME", "")
    return spellings(Path(named).expanduser()) if named else []


def _is_memories(folder: Path) -> bool:
    """Whether Serena would put memories into such a folder."""
    if folder.name != MEMORIES.name:
        return False
    around = folder.parent
    return around.name == MEMORIES.parent.name or around in _homes()


EVIDENCE: Final = (
    Evidence(
        Strength.PLACE,
        "is memories of a folder .serena, or of the one of SERENA_HOME",
        _is_memories,
    ),
)


class Serena(NotesSource):
    """The memories of a project."""

    scheme = "serena"
    default_locations = ("SERENA_HOME", str(MEMORIES.parent))

    evidence = EVIDENCE

    def __init__(self, where: str | PathLike[str]) -> None:
        super().__init__(where)
        if _is_memories(self.given):  # which may be a link to a folder of another name
            with suppress(OSError, RuntimeError):
                self.path = self.given.parent.resolve() / self.given.name

    @classmethod
    def folder_meant(cls, path: Path) -> Path:
        """Return the path: a project is not its memories unless a scheme says so."""
        return path

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the memories, there or not, where its project was named, too."""
        if _is_memories(path):
            return path
        if path.name == MEMORIES.parent.name or path in _homes():
            return path / MEMORIES.name
        return path / MEMORIES

    def check_there(self) -> None:
        """Refuse a project without memories: its other files are its own."""
        if self.puts_back or self.path.is_dir():
            return
        how = "is not there"
        if self.path.is_symlink() and not self.path.exists():
            how = "is a link that leads nowhere"
        elif self.path.exists():
            how = "is no folder"
        raise StoreError(
            f"{self.path} {how}, and Serena keeps a project's memories nowhere else; check the "
            "path, or let Serena write a memory first"
        )

    def is_document(self, key: Key, record: bytes) -> bool:  # noqa: ARG002 - of any file
        """Whether an archived file lay outside of where Serena puts memories."""
        return not _is_memories(self.path)

    @staticmethod
    def enters(name: str) -> bool:
        """Whether memories may lie in a folder."""
        return not any(part.startswith(".") for part in name.split("/"))

    def memories(self, moment: FolderMoment) -> list[FoundNote]:
        """Return the memories."""
        names = filter(self.is_note, moment.names)
        born = self.born(moment)
        return [note_of(n, known_since(moment, n, born), loaded=True, judged=True) for n in names]

    def at_start(self, name: str, text: str) -> str | None:  # noqa: ARG002 - the name alone
        """Return the name, as it is listed."""
        return name.removesuffix(NOTE)


def recognises(asked: Asked) -> bool:
    """Whether the source is the memories of a project, or a project that has some."""
    return Serena.recognise(Serena(asked.path).path, {}) is not None


def find(asked: Asked) -> Found:
    """Return the memories that were read."""
    source = Serena(asked.path)
    look = Look(lambda line: b"_memory" in line, partial(_touches, source.path.parents[1]))
    return uses_in(asked, look, source.scheme, source.name)


def _touches(project: Path, line: dict[str, Any]) -> Iterator[Touch]:
    """Yield what the calls of a line do with the memories of a project."""
    outcome = None if Path(text(line.get("cwd"))).is_relative_to(project) else ELSEWHERE
    for call, called, given in calls_in(line):
        tool = called.rpartition("__")[2]
        name = text(given.get("memory_name")) or text(given.get("memory_file_name"))
        memory = name.removesuffix(NOTE) + NOTE
        if tool in (_READ, *_WRITERS) and Serena.is_note(memory):
            yield Touch(call, memory, _READ, tool in _WRITERS, outcome=outcome)
