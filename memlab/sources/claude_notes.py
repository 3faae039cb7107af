"""What is known of the files of a folder of Claude Code's memory, found out once a version of each.

A folder is looked at more than once, for its memories, its index, its orders; a file whose stamp is
the same is not read again for its front matter.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from memlab.sources.folder import FileCopy, Stamp
from memlab.sources.folder_moment import FolderMoment
from memlab.sources.front_matter import FrontMatter, read_front_matter
from memlab.sources.index_links import FileNames, wikilinks_in
from memlab.sources.load_rule import LoadRule
from memlab.sources.memory_index import INDEX, MemoryIndex
from memlab.sources.transcript_times import Stamps, first_heard_of, stamps_of, transcripts_of

_SUFFIX = ".md"


class Note(NamedTuple):
    """What a file says of itself.

    Attributes
    ----------
    head : FrontMatter
    links : tuple of str
        Names that its text links to.
    """

    head: FrontMatter
    links: tuple[str, ...]


class Notes:
    """What was found out of a folder. For one folder, and for as long as somebody looks at it."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Stamp, Note]] = {}
        self._index: MemoryIndex | None = None
        self._heard: tuple[Mapping[Path, Stamps], dict[str, datetime]] | None = None

    def all_of(self, moment: FolderMoment) -> dict[str, Note]:
        """Return what each memory of a folder says of itself, by the name of its file."""
        return {name: self._note(moment, name) for name in moment.names if is_memory(name)}

    def index_of(self, moment: FolderMoment, rule: LoadRule) -> MemoryIndex:
        """Return the index of a folder, an empty one where there is none."""
        raw = b"" if moment.index is None else moment.index.data
        if self._index is None or (self._index.raw, self._index.rule) != (raw, rule):
            self._index = MemoryIndex(raw, rule)
        return self._index

    def heard_of(self, folder: Path) -> dict[str, datetime]:
        """Return when each file of a folder is first heard of in transcripts, by name."""
        stamps = stamps_of(transcripts_of(folder))
        if self._heard is None or self._heard[0] != stamps:
            self._heard = stamps, first_heard_of(folder, stamps)
        return self._heard[1]

    def _note(self, moment: FolderMoment, name: str) -> Note:
        known = self._of.get(name)
        if known is None or known[0] != moment.rely_on(name):
            text = text_of(moment.read(name))
            note = Note(read_front_matter(text), tuple(wikilinks_in(text)))
            known = self._of[name] = moment.rely_on(name), note
        return known[1]


def is_memory(name: str) -> bool:
    """Whether a file of a folder is one of its memories.

    Examples
    --------
    >>> [is_memory(name) for name in ("a.md", "MEMORY.md", "notes.txt", ".draft.md")]
    [True, False, False, False]
    """
    return name.endswith(_SUFFIX) and name != INDEX and not name.startswith(".")


def names_in(folder: Path, notes: Mapping[str, Note]) -> FileNames:
    """Return what links may call the files of a folder: their names, or those they give themselves.

    A name that two files give themselves means neither.
    """
    own: dict[str, str] = {}
    twice = set()
    for file, note in notes.items():
        name = note.head.fields.get("name", "").strip()
        if name in own:
            twice.add(name)
        if name:
            own.setdefault(name, file)
    return FileNames(folder, notes.keys(), {k: f for k, f in own.items() if k not in twice})


def text_of(file: FileCopy) -> str:
    """Return what is in a file; what is no UTF-8 is replaced."""
    return file.data.decode(errors="replace")
