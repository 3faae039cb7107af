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
from memlab.sources.base import Trouble, Watch, place_of, unwatched
from memlab.sources.claude_facts import IndexFacts, counted, sizes, unread
from memlab.sources.folder import FileCopy
from memlab.sources.folder_journal import Index
from memlab.sources.folder_moment import FolderMoment
from memlab.sources.folder_moment import moment_of as moment_of_folder
from memlab.sources.folder_source import FolderSource, Found, Kind
from memlab.sources.front_matter import FrontMatter, read_front_matter
from memlab.sources.index_links import FileNames, wikilinks_in
from memlab.sources.index_orders import Orders, orders_of
from memlab.sources.index_places import said_of, with_said, without_said
from memlab.sources.load_rule import CLAUDE_CODE, LoadRule, State
from memlab.sources.memory_index import INDEX, MemoryIndex
from memlab.sources.transcript_times import first_heard_of, is_of_project, transcripts_of
from memlab.store.database import again_if_changed

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
        return ClaudeFolder(self.path, self._rule, self._kinds)

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
            kind = ClaudeFolder(self.path, self._rule, self._kinds)
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
            kind = ClaudeFolder(self.path, self._rule, self._kinds)
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
    kinds : mapping of str to str, optional
        The kind of each type of memory.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path, rule: LoadRule, kinds: Mapping[str, str] = KINDS) -> None:
        self._folder = folder
        self._rule, self._kinds = rule, kinds
        self._heard_of: dict[str, datetime] | None = None

    @property
    def index(self) -> Index:
        """The index of the folder."""
        return _Index(self._folder)

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the files of the folder but the index, the oldest first."""
        heads = {
            name: read_front_matter(_text(moment.read(name)))
            for name in moment.names
            if is_memory(name)
        }
        names = names_in(self._folder, heads)
        index = MemoryIndex(b"" if moment.index is None else moment.index.data, self._rule)
        said = said_of(index, names)
        lines = _lines(index, names)
        found = []
        for name, head in heads.items():
            at, dated = self._created(name, head, moment.stamp_of(name).written)
            links = [names.file_of(link) for link in wikilinks_in(_text(moment.read(name)))]
            place = {
                "position": place_of(int(at.timestamp() * 1_000), name),
                "created_at": at.isoformat(),
                "dated": dated,
                "loaded": State.LOADED in lines.get(name, ()),
                "at_start": "".join(lines.get(name, {}).values()),
                "links": [link for link in dict.fromkeys(links) if link not in (None, name)],
            }
            found.append(Found(name, name, said.get(name, []), place))
        return sorted(found, key=lambda each: int(each.place["position"]))

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row."""
        text = "" if file is None else _text(file)
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
        heads = {
            each: read_front_matter(_text(moment.read(each)))
            for each in moment.names
            if is_memory(each)
        }
        names = names_in(self._folder, heads)
        index = MemoryIndex(b"" if moment.index is None else moment.index.data, self._rule)
        whole = replace(index, rule=LoadRule(len(index.raw) + 1, 2 * len(index.raw) + 1))
        named = index.named(names)
        cut = [each for each in index.blocks if each.state is State.CUT and each.files(names)]
        seen = {file for file, blocks in named.items() if any(b not in cut for b in blocks)}
        found = self.memories(moment)
        listing = moment.listing
        return IndexFacts(
            folder=name,
            rule=self._rule,
            **sizes(index.loaded, whole.loaded, index.states),
            files=len(heads),
            named=len(named),
            cut=tuple((each.number, _readable(each.text.strip())) for each in cut),
            cut_files=tuple(sorted(named.keys() - seen)),
            unnamed=tuple(sorted(heads.keys() - named.keys())),
            dangling=tuple((n, _readable(target)) for n, target in index.dangling(names)),
            dated=counted([each.place["dated"] for each in found]),
            broken={each: head.problem for each, head in heads.items() if head.problem},
            not_read=unread((listing.links, listing.folders, listing.others)),
            pending=moment.is_pending,
        )

    def orders(self, moment: FolderMoment, reads: Mapping[str, int]) -> Orders:
        """Return which files are loaded at start, by the index as it stands and in other orders."""
        written = {
            each.key: datetime.fromisoformat(each.place["created_at"])
            for each in self.memories(moment)
        }
        heads = {name: read_front_matter(_text(moment.read(name))) for name in written}
        names = names_in(self._folder, heads)
        index = MemoryIndex(b"" if moment.index is None else moment.index.data, self._rule)
        return orders_of(index, names, written, reads)

    def _created(self, name: str, head: FrontMatter, written: int) -> tuple[datetime, str]:
        """Return when a file was first there as far as is known, and how that is known.

        The earliest of what its front matter and the transcripts say; a file's own time, which
        every copy changes, only where neither says anything.
        """
        if self._heard_of is None:
            self._heard_of = first_heard_of(self._folder, transcripts_of(self._folder))
        known = [
            (at, FROM_FRONT_MATTER)
            for field in ("created", "modified")
            if (at := _moment(head.fields.get(field))) is not None
        ]
        if name in self._heard_of:
            known.append((self._heard_of[name], FROM_TRANSCRIPTS))
        if known:
            return min(known, key=lambda pair: pair[0])
        return datetime.fromtimestamp(written // 1_000 / 1e6, UTC), FROM_FILE


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


def is_memory(name: str) -> bool:
    """Whether a file of a folder is one of its memories.

    Examples
    --------
    >>> [is_memory(name) for name in ("a.md", "MEMORY.md", "notes.txt", ".draft.md")]
    [True, False, False, False]
    """
    return name.endswith(_SUFFIX) and name != INDEX and not name.startswith(".")


def names_in(folder: Path, heads: Mapping[str, FrontMatter]) -> FileNames:
    """Return what links may call the files of a folder: their names, or those they give themselves.

    A name that two files give themselves means neither.
    """
    own: dict[str, str] = {}
    twice = set()
    for file, head in heads.items():
        name = head.fields.get("name", "").strip()
        if name in own:
            twice.add(name)
        if name:
            own.setdefault(name, file)
    return FileNames(folder, heads.keys(), {k: f for k, f in own.items() if k not in twice})


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


def _text(file: FileCopy) -> str:
    return file.data.decode(errors="replace")


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
