"""Serena's memories: Markdown files below ``.serena/memories``, and their reads by transcripts."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import NOTE, NotesSource, known_since, note_of
from memlab.sources.folder.source import Found as FoundNote
from memlab.sources.reads import Asked, Found, text
from memlab.sources.transcripts import Look, Touch, calls_in, uses_in

MEMORIES: Final = Path(".serena", "memories")
ELSEWHERE: Final = "reads by agents in other projects"

_READ: Final = "read_memory"
_WRITERS: Final = ("write_memory", "edit_memory")


class Serena(NotesSource):
    """The memories of a project."""

    scheme = "serena"
    usual = ("SERENA_HOME", str(MEMORIES.parent))

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, Any]) -> Path | None:  # noqa: ARG003
        """Return a folder that lies where Serena puts memories."""
        return path if path.is_dir() and path.parts[-2:] == MEMORIES.parts else None

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the memories, where its project was named, too."""
        below = (path / MEMORIES, path / MEMORIES.name)
        return next(filter(Path.is_dir, below), path)

    @staticmethod
    def enters(name: str) -> bool:
        """Whether memories may lie in a folder."""
        return not any(part.startswith(".") for part in name.split("/"))

    def memories(self, moment: FolderMoment) -> list[FoundNote]:
        """Return the memories."""
        names, born = filter(self.is_note, moment.names), self.born(moment)
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
