"""Claude Code's memory: a folder of Markdown files, and ``MEMORY.md``, the index loaded at start.

A memory is active when a line of the index names it, and costs these lines at start. A deletion
takes its lines out of the index, then the file away: no line ever names a file that has gone.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from memlab.clock import moment_of
from memlab.errors import StoreError
from memlab.settings import Settings
from memlab.sources.base import About, Orders, Trouble, Writer
from memlab.sources.folder.change import changed_folder
from memlab.sources.folder.files import FileCopy, Stamp, opened_folder
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, Found
from memlab.sources.opening import find_below, schemes
from memlab.sources.reads import text as readable
from memlab.store.archive.retired import RetiredMemories
from memlab.store.shapes import fields, listed, text, truth, whole
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.dates import first_calls
from memlab.systems.claude_code.index import INDEX, RETIRED, MemoryIndex, State, entries_of
from memlab.systems.claude_code.markdown import FileNames, read_front_matter, wikilinks_in
from memlab.systems.claude_code.retiring import RetiringWriter
from memlab.systems.claude_code.view import FolderView, Note, retired_bytes, with_retired
from memlab.text import counted

KINDS: Final[Mapping[str, str]] = {"user": "semantic", "feedback": "semantic"}
"""What each type of memory is; those are what an agent was told to do. Any other is an episode."""

USUAL: Final = schemes()["claude"].usual
_SUFFIX: Final = ".md"
_PLACE: Final = fields(
    {
        "position": whole(),
        "said": listed(indexes.ENTRY),
        "loaded": truth,
        **dict.fromkeys(("created_at", "dated", "at_start", "retired_at"), text),
        **dict.fromkeys(("retired", "pointer"), listed(indexes.ENTRY)),
        "links": listed(text),
    },
    absent={"retired_at", "retired", "pointer"},
)


class ClaudeCode(FolderSource):
    """A folder of Claude Code's memory."""

    scheme = "claude"
    usual = ("CLAUDE_CONFIG_DIR", ".claude", "projects", "agent-memory", "agent-memory-local")
    index_name = INDEX
    index_first = True
    cuts_index = True
    retires = True

    def __init__(self, where: str | PathLike[str]) -> None:
        super().__init__(where)
        self._is_named_by_scheme = fspath(where).startswith(f"{self.scheme}:")
        self._rule, self._kinds = indexes.CLAUDE_CODE, KINDS
        self._notes: dict[str, tuple[Stamp, Note]] = {}
        """By file: a folder is looked at more than once, and a file whose stamp is the same is not
        read again."""
        self._called: dict[str, datetime] = {}

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, Any]) -> Path | None:  # noqa: ARG003
        """Return a folder that has the index, or lies where such folders do."""
        if path.is_dir():
            with suppress(StoreError), opened_folder(path) as folder:
                if INDEX in folder.listing().files or any(map(path.match, USUAL)):
                    return path
        return None

    @property
    def name(self) -> str:
        """The absolute path, with the scheme where one was given."""
        return super().name if self._is_named_by_scheme else str(self.path)

    def adjust(self, settings: Settings) -> None:
        """Take the load rule and the kinds that were chosen for this folder."""
        chosen = settings.claude
        self._rule = indexes.LoadRule(
            chosen.get("lines", self._rule.lines), chosen.get("characters", self._rule.units)
        )
        self._kinds = {**self._kinds, **chosen.get("kinds", {})}

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the files of the folder but the index."""
        view = self._view(moment)
        names = view.names if moment.known is None else _names(self.path, moment.known)
        entries, lines = entries_of(view.index, view.names), view.costs()
        retired = entries_of(view.aside, view.names)
        known = self.retired() if retired else RetiredMemories()
        named = entries_of(view.index, with_retired(view.names)) if known else {}
        found = []
        for name, note in view.notes.items():
            links = [names.file_of(link) for link in note.links]
            place = {
                "position": view.position(name),
                "created_at": view.dates[name].at.isoformat(),
                "dated": view.dates[name].how,
                "loaded": State.LOADED in lines.get(name, ()),
                "at_start": "".join(lines.get(name, {}).values()),
                "links": [link for link in dict.fromkeys(links) if link not in (None, name)],
            }
            if (since := known.at(name, name)) and name in retired and name not in entries:
                place["retired_at"] = since.retired_at.isoformat()
                place["retired"] = kept = list(retired[name])
                place["at_start"] = "".join(readable(str(each["text"])) for each in kept)
                place["pointer"] = list(named.get(RETIRED, ()))
            found.append(Found(name, name, entries.get(name, ()), place))
        return found

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row."""
        text = "" if file is None else _text_of(file)
        head = read_front_matter(text)
        kind = head.fields.get("type", "").strip().lower()
        name, about = (head.fields.get(name, "").strip() for name in ("name", "description"))
        stem = found.key.removesuffix(_SUFFIX)
        own = "" if name == stem else name  # the key says it
        title = ": ".join(filter(None, (own, about))) or stem
        return {
            "kind": self._kinds.get(kind, "episodic"),
            "title": readable(title),
            "body": readable(text[head.text_at :].strip()),
            "tags_json": json.dumps([readable(kind)] if kind else [], ensure_ascii=False),
            "evidence_refs_json": json.dumps(found.place["links"], ensure_ascii=False),
            # Sessions run side by side: one that writes again has not come back to what it wrote.
            "thread_id": head.fields.get("originSessionId") or None,
            "authored_by": "claude-code",
            "created_at": found.place["created_at"],
            "active": bool(found.said),
            "at_start": found.place["at_start"],
            "loaded_at_start": found.place["loaded"],
            "retired_at": moment_of(since) if (since := found.place.get("retired_at")) else None,
        }

    def file_of(self, key: str) -> str:
        """Return the name of a memory's file; empty where none has that name."""
        return key if is_memory(key) else ""

    @contextmanager
    def retiring(self) -> Iterator[Writer]:
        """Open the folder as :meth:`changing` does: lines move to ``RETIRED.md`` and back."""
        with changed_folder(self.path, self) as change:
            yield RetiringWriter(self, change, self._view)

    def superseded_by(self, record: bytes) -> str | None:
        """Return a retired memory's own id."""
        said = json.loads(record)
        return str(said["memory_id"]) if said["place"].get("retired_at") else None

    def entries_kept(self, record: bytes) -> str:
        """Return what the index and ``RETIRED.md`` say of a memory."""
        place = json.loads(record)["place"]
        return json.dumps({name: place.get(name, []) for name in ("said", "retired", "pointer")})

    def check_place(self, found: Found) -> None:
        """Check what an archive's record says of a file's place."""
        _PLACE(found.place)

    def remove_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with nothing in it that names files."""
        return indexes.remove_entries(raw, said, filter(is_memory, there), self.path)

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with what it said of files in its place again."""
        return indexes.insert_entries(raw, said, filter(is_memory, there), self.path)

    def about(self) -> About:
        """Return what there is to say of the index."""
        return self.seen(lambda moment: self._view(moment).about())

    def orders(self, reads: Mapping[str, int]) -> Orders:
        """Return which files are loaded at start, by the index as it stands and in other orders."""
        return self.seen(lambda moment: self._view(moment).orders(reads))

    def troubles(self) -> list[Trouble]:
        """Return what can be wrong with front matter and index."""
        return self.seen(lambda moment: self._view(moment).troubles())

    def _view(self, moment: FolderMoment) -> FolderView:
        notes = {name: self._note(moment, name) for name in moment.names if is_memory(name)}
        if not notes and self.recognise(self.path, {}) is None:
            deeper = [each.path for each in find_below([self.path]).stores]
            if deeper:
                raise StoreError(
                    f"there are no memories in {self.path}, but {counted(len(deeper), 'stores')} "
                    f"below it: open {deeper[0]}, or list all with memlab find {self.path}"
                )
        index = _index(b"" if moment.index is None else moment.index.data, self._rule)
        if moment.known is None:
            self._called = first_calls(moment.folder.path)
        aside = _index(retired_bytes(moment), self._rule)
        return FolderView(self.name, moment, notes, index, self._called, aside, self.born(moment))

    def _note(self, moment: FolderMoment, name: str) -> Note:
        known = self._notes.get(name)
        if known is None or known[0] != moment.rely_on(name):
            text = _text_of(moment.read(name))
            note = Note(read_front_matter(text), tuple(wikilinks_in(text)))
            known = self._notes[name] = moment.rely_on(name), note
        return known[1]


_index = lru_cache(maxsize=8)(MemoryIndex)
"""What an index says; a folder is looked at more than once, and at many moments of its past."""
_names = lru_cache(maxsize=1)(FileNames)
"""What links in files that are gone may mean."""


def is_memory(name: str) -> bool:
    """Whether a file of a folder is one of its memories.

    >>> [is_memory(name) for name in ("a.md", "MEMORY.md", "notes.txt", ".draft.md", "b/a.md")]
    [True, False, False, False, False]
    """
    is_here = not name.startswith(".") and "/" not in name
    return is_here and name.endswith(_SUFFIX) and name not in (INDEX, RETIRED)


def _text_of(file: FileCopy) -> str:
    return file.data.decode(errors="replace")
