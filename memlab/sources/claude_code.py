"""Claude Code's memory: a folder of Markdown files, and ``MEMORY.md``, the index loaded at start.

A memory is active when a line of the index names it. What it costs at start is its lines there: the
file itself is read when it is needed. A deletion takes its lines out of the index, then the file
away, so that no line ever names a file that has gone.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.moments import moment_of
from memlab.settings import Settings
from memlab.sources.abilities import Trouble
from memlab.sources.base import Watch, place_of, unwatched
from memlab.sources.claude_facts import IndexFacts, counted, sizes, unread
from memlab.sources.claude_notes import Notes, is_memory, names_in, text_of
from memlab.sources.folder import FileCopy
from memlab.sources.folder_journal import Index
from memlab.sources.folder_moment import FolderMoment
from memlab.sources.folder_moment import moment_of as moment_of_folder
from memlab.sources.folder_source import FolderSource, Found, Kind
from memlab.sources.front_matter import FrontMatter, read_front_matter
from memlab.sources.index_links import FileNames
from memlab.sources.index_orders import Orders, orders_of
from memlab.sources.index_places import said_of, with_said, without_said
from memlab.sources.load_rule import CLAUDE_CODE, LoadRule, State
from memlab.sources.memory_index import INDEX, MemoryIndex
from memlab.sources.transcript_times import is_of_project
from memlab.store.looking import again_if_changed

KINDS: Final[Mapping[str, str]] = {"user": "semantic", "feedback": "semantic"}
"""What each type of memory is; those are what an agent was told to do. Any other is an episode."""

FROM_FRONT_MATTER: Final = "front matter"
FROM_TRANSCRIPTS: Final = "transcripts"
FROM_FILE: Final = "file time"

_SUFFIX: Final = ".md"


class ClaudeCode(FolderSource):
    """A folder of Claude Code's memory.

    Parameters
    ----------
    where : str or Path
        The folder that ``MEMORY.md`` lies in.
    rule : LoadRule, optional
        How much of the index is loaded at start.
    kinds : mapping of str to str, optional
        The kind of each type of memory; what is not in it is ``"episodic"``.
    watch : callable, optional
        Called with each :class:`memlab.sources.folder_change.Step` of a change.
    """

    scheme: ClassVar[str] = "claude"

    def __init__(
        self,
        where: str | PathLike[str],
        *,
        rule: LoadRule = CLAUDE_CODE,
        kinds: Mapping[str, str] = KINDS,
        watch: Watch = unwatched,
    ) -> None:
        super().__init__(where, watch=watch)
        self._rule, self._kinds = rule, kinds
        self._notes = Notes()

    def adjust(self, settings: Settings) -> None:
        """Take the load rule and the kinds that were chosen for this folder."""
        chosen = settings.claude
        self._rule = LoadRule(
            chosen.get("lines", self._rule.lines), chosen.get("characters", self._rule.units)
        )
        self._kinds = {**self._kinds, **chosen.get("kinds", {})}

    @property
    def kind(self) -> Kind:
        """What this folder is like, its project's transcripts as they are now."""
        return self._folder()

    def _folder(self) -> "ClaudeFolder":
        return ClaudeFolder(self.path, self._rule, self._kinds, self._notes)

    @property
    def recall_log(self) -> str | None:
        """The folder of the project's transcripts."""
        if is_of_project(self.path):
            return str(self.path.parent)
        return "the folder is of no project, and transcripts lie beside a project's memory"

    def cap_setting(self, keep: int) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: Claude Code has no cap but what it loads of the index."""
        return None

    def about(self) -> IndexFacts:
        """Return what there is to say of the index.

        Raises
        ------
        StoreError
            When the folder cannot be read.
        """

        def look() -> IndexFacts:
            kind = self._folder()
            with moment_of_folder(self.path, kind.index) as moment:
                return kind.facts(moment, self.name)

        return again_if_changed(look)

    def orders(self, reads: Mapping[str, int]) -> Orders:
        """Return which files are loaded at start, by the index as it stands and in other orders.

        Parameters
        ----------
        reads : mapping of str to int
            How often each file was read.
        """

        def look() -> Orders:
            kind = self._folder()
            with moment_of_folder(self.path, kind.index) as moment:
                return kind.orders(moment, reads)

        return again_if_changed(look)

    def troubles(self) -> list[Trouble]:
        """Return what can be wrong with front matter and index."""
        return self.about().troubles()


class ClaudeFolder:
    """What a folder of Claude Code's memory is like.

    Parameters
    ----------
    folder : Path
        The folder.
    rule : LoadRule
        How much of the index is loaded at start.
    kinds : mapping of str to str
        The kind of each type of memory.
    notes : Notes
        What was found out of it before.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, folder: Path, rule: LoadRule, kinds: Mapping[str, str], notes: Notes
    ) -> None:
        self._folder = folder
        self._rule, self._kinds, self._notes = rule, kinds, notes

    @property
    def index(self) -> Index:
        """The index of the folder."""
        return _Index(self._folder)

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the files of the folder but the index, the oldest first."""
        notes = self._notes.all_of(moment)
        names, index = names_in(self._folder, notes), self._notes.index_of(moment, self._rule)
        said, lines = said_of(index, names), _lines(index, names)
        heard_of = self._notes.heard_of(self._folder)
        found = []
        for name, note in notes.items():
            at, dated = _created(note.head, heard_of.get(name), moment.stamp_of(name).written)
            links = [names.file_of(link) for link in note.links]
            place = {
                "position": place_of(int(at.timestamp() * 1_000), name),
                "created_at": at.isoformat(),
                "dated": dated,
                "loaded": State.LOADED in lines.get(name, ()),
                "at_start": "".join(lines.get(name, {}).values()),
                "links": [link for link in dict.fromkeys(links) if link not in (None, name)],
            }
            found.append(Found(name, name, said.get(name, ()), place))
        return sorted(found, key=lambda each: int(each.place["position"]))

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row."""
        text = "" if file is None else text_of(file)
        head = read_front_matter(text)
        kind = head.fields.get("type", "").strip().lower()
        title, about = (head.fields.get(name, "").strip() for name in ("name", "description"))
        words = [part for part in (title or found.key.removesuffix(_SUFFIX), about) if part]
        return {
            "position": found.place["position"],
            "key": found.key,
            "memory_id": found.key,
            "kind": self._kinds.get(kind, "episodic"),
            "title": _readable(": ".join(words)),
            "body": _readable(text[head.text_at :].strip()),
            "tags_json": json.dumps([_readable(kind)] if kind else [], ensure_ascii=False),
            "evidence_refs_json": json.dumps(found.place["links"], ensure_ascii=False),
            # Sessions run side by side: one that writes again has not come back to what it wrote.
            "thread_id": head.fields.get("originSessionId") or None,
            "authored_by": "claude-code",
            "created_at": found.place["created_at"],
            "confidence": 1.0,
            "active": bool(found.said),
            "at_start": found.place["at_start"],
            "loaded_at_start": found.place["loaded"],
        }

    def name_of(self, key: str) -> str:
        """Return the name of a memory's file."""
        return key

    def facts(self, moment: FolderMoment, name: str) -> IndexFacts:
        """Return what there is to say of the index at a moment."""
        notes = self._notes.all_of(moment)
        names, index = names_in(self._folder, notes), self._notes.index_of(moment, self._rule)
        whole = replace(index, rule=LoadRule(len(index.raw) + 1, 2 * len(index.raw) + 1))
        named = index.named(names)
        cut = [each for each in index.blocks if each.state is State.CUT and each.files(names)]
        seen = {
            file for file, blocks in named.items() if any(b.state is not State.CUT for b in blocks)
        }
        heard_of, listing = self._notes.heard_of(self._folder), moment.listing
        dated = [
            _created(note.head, heard_of.get(name), moment.stamp_of(name).written)[1]
            for name, note in notes.items()
        ]
        return IndexFacts(
            folder=name,
            rule=self._rule,
            **sizes(index.loaded, whole.loaded, index.states),
            files=len(notes),
            named=len(named),
            cut=tuple((each.number, _readable(each.text.strip())) for each in cut),
            cut_files=tuple(sorted(named.keys() - seen)),
            unnamed=tuple(sorted(notes.keys() - named.keys())),
            dangling=tuple((n, _readable(target)) for n, target in index.dangling(names)),
            dated=counted(dated),
            broken={each: note.head.problem for each, note in notes.items() if note.head.problem},
            not_read=unread((listing.links, listing.folders, listing.others)),
            pending=moment.is_pending,
        )

    def orders(self, moment: FolderMoment, reads: Mapping[str, int]) -> Orders:
        """Return which files are loaded at start, by the index as it stands and in other orders."""
        written = {
            each.key: datetime.fromisoformat(each.place["created_at"])
            for each in self.memories(moment)
        }
        names = names_in(self._folder, self._notes.all_of(moment))
        return orders_of(self._notes.index_of(moment, self._rule), names, written, reads)


class _Index:
    """``MEMORY.md``, edited."""

    name = INDEX
    first = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def without(self, raw: bytes, gone: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with nothing in it that names files."""
        memories = [name for name in there if is_memory(name)]
        return without_said(raw, gone, memories, self._folder)

    def with_back(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with what it said of files in its place again."""
        memories = [name for name in there if is_memory(name)]
        return with_said(raw, said, memories, self._folder)


def _created(head: FrontMatter, heard: datetime | None, written: int) -> tuple[datetime, str]:
    """Return when a file was first there as far as is known, and how that is known.

    The earliest of what its front matter and the transcripts say; a file's own time, which every
    copy changes, only where neither says anything.
    """
    known = [
        (at, FROM_FRONT_MATTER)
        for field in ("created", "modified")
        if (at := _moment(head.fields.get(field))) is not None
    ]
    if heard is not None:
        known.append((heard, FROM_TRANSCRIPTS))
    if known:
        return min(known, key=lambda pair: pair[0])
    return datetime.fromtimestamp(written // 1_000 / 1e6, UTC), FROM_FILE


def _lines(index: MemoryIndex, names: FileNames) -> dict[str, dict[State, str]]:
    """Return what the index costs of each file that it names: the lines it is the first name of.

    Those that are loaded, or, where all are below the cut, what they would cost above it.
    """
    texts: dict[str, dict[State, str]] = {}
    for block in index.blocks:
        if block.state is not State.UNSEEN:
            for number, name in enumerate(block.files(names)):
                of_file = texts.setdefault(name, {})
                text = block.text if number == 0 else ""
                of_file[block.state] = of_file.get(block.state, "") + _readable(text)
    return {
        name: {State.LOADED: each[State.LOADED]} if State.LOADED in each else each
        for name, each in texts.items()
    }


def _moment(text: str | None) -> datetime | None:
    """Return the moment that a field of front matter names, in UTC where it has no zone."""
    if not text:
        return None
    for each in (text.strip(), f"{text.strip()}+00:00", f"{text.strip()}T00:00:00+00:00"):
        try:
            return moment_of(each)
        except ValueError:
            continue
    return None


def _readable(text: str) -> str:
    return text.encode(errors="replace").decode()
