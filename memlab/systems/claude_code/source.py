"""Claude Code's memory: a folder of Markdown files, and ``MEMORY.md``, the index loaded at start.

A memory is active when a line of the index names it, and costs these lines at start. A deletion
takes its lines out of the index, then the file away: no line ever names a file that has gone.
Retiring moves them to ``RETIRED.md`` beside the index, which a hand may edit too.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, lru_cache
from os import PathLike, fspath
from typing import Any, Final

from memlab.clock import file_clock, moment_of
from memlab.columns import LISTED
from memlab.errors import ArchiveError, CompactionError, StoreError
from memlab.settings import Settings
from memlab.sources.base import About, Key, Links, Orders, Trouble, Writer
from memlab.sources.folder.change import Parts, changed_folder
from memlab.sources.folder.files import FileCopy, Stamp
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, FolderWriter, Found
from memlab.sources.opening import find_below
from memlab.sources.reads import text as readable
from memlab.store.archive.facts import RetiredMemories
from memlab.store.shapes import fields, listed, text, truth, whole
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.evidence import (
    EVIDENCE,
    has_claude_type,
    is_kept_by_name,
    is_placed,
)
from memlab.systems.claude_code.hubs import list_of_links
from memlab.systems.claude_code.index import INDEX, RETIRED, IndexEntry, MemoryIndex, State
from memlab.systems.claude_code.markdown import (
    FileNames,
    mentions_in,
    name_in_link,
    read_front_matter,
    wikilinks_in,
)
from memlab.systems.claude_code.types import type_of
from memlab.systems.claude_code.view import FolderView, Note, first_calls, with_retired
from memlab.text import counted

KINDS: Final[Mapping[str, str]] = {"user": "semantic", "feedback": "semantic"}
"""What each type of memory is; those are what an agent was told to do. Any other is an episode."""

_EPISODIC: Final = "episodic"
_GUARDED: Final = "semantic"
"""What a memory counts as whose type is in doubt."""
_SUFFIX: Final = ".md"
_PLACE: Final = fields(
    {
        "position": whole(),
        "said": listed(indexes.ENTRY),
        "loaded": truth,
        **dict.fromkeys(("created_at", "dated", "at_start", "retired_at", "index_state"), text),
        **dict.fromkeys(("retired", "pointer"), listed(indexes.ENTRY)),
        **dict.fromkeys(("links", "hubs"), listed(text)),
    },
    absent={"retired_at", "retired", "pointer", "index_state", "hubs"},
)


class ClaudeCode(FolderSource):
    """A folder of Claude Code's memory."""

    scheme = "claude"
    usual = ("CLAUDE_CONFIG_DIR", ".claude", "projects", "agent-memory", "agent-memory-local")
    evidence = EVIDENCE
    index_name = INDEX
    index_first = True
    place = staticmethod(_PLACE)
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
        view = self.view(moment)
        names = view.names if moment.known is None else _names(self.path, moment.known)
        entries, lines = indexes.entries_of(view.index, view.names), view.costs()
        retired = indexes.entries_of(view.aside, view.names)
        known = self.retired() if retired else RetiredMemories()
        named = indexes.entries_of(view.index, with_retired(view.names)) if known else {}
        found = []
        for name, note in view.notes.items():
            if name in view.hubs and not self.puts_back:
                continue
            links = [names.file_of(link) for link in note.links]
            place = {
                "position": view.position(name),
                "created_at": view.dates[name].at.isoformat(),
                "dated": view.dates[name].how,
                "loaded": State.LOADED in lines.get(name, ()),
                "at_start": "".join(lines.get(name, {}).values()),
                "links": [link for link in dict.fromkeys(links) if link not in (None, name)],
            }
            if state := view.index_state(name):
                place["index_state"] = state
            if hubs := view.hubs_of.get(name):
                place["hubs"] = hubs
            if (since := known.at(name, name)) and name in retired and name not in entries:
                place.pop("index_state", None)
                place["retired_at"] = since.retired_at.isoformat()
                place["retired"] = kept = list(retired[name])
                place["at_start"] = "".join(readable(str(each["text"])) for each in kept)
                place["pointer"] = list(named.get(RETIRED, ()))
            found.append(Found(name, name, entries.get(name, ()), place))
        return found

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row."""
        text = "" if file is None else file.data.decode(errors="replace")
        head = read_front_matter(text)
        stem = found.key.removesuffix(_SUFFIX)
        kind, doubt = type_of(stem, text, head, self._kinds)
        if not doubt and found.said and (hubs := found.place.get("hubs")):
            doubt = f"{hubs[0]} names it too: a link there would lead to no file"
        name, about = (head.fields.get(name, "").strip() for name in ("name", "description"))
        own = "" if name == stem else name  # the key says it
        title = ": ".join(filter(None, (own, about))) or stem
        return {
            "kind": self._kind_of(kind, doubtful=bool(doubt)),
            "title": readable(title),
            "body": readable(text[head.text_at :].strip()),
            "tags_json": json.dumps([readable(kind)] if kind else [], ensure_ascii=False),
            "evidence_refs_json": json.dumps(found.place["links"], ensure_ascii=False),
            # Sessions run side by side: one that writes again has not come back to what it wrote.
            "thread_id": head.fields.get("originSessionId") or None,
            "authored_by": "claude-code",
            "created_at": found.place["created_at"],
            "active": bool(found.said),
            "index_state": None if "retired_at" in found.place else state_in(found),
            "doubt": doubt or None,
            "at_start": found.place["at_start"],
            "loaded_at_start": found.place["loaded"],
            "retired_at": moment_of(since) if (since := found.place.get("retired_at")) else None,
        }

    def _kind_of(self, name: str, *, doubtful: bool) -> str:
        """Return the kind of memory that a type is; what is in doubt is load-bearing."""
        kind = self._kinds.get(name, _EPISODIC)
        return _GUARDED if doubtful and kind == _EPISODIC else kind

    def file_of(self, key: str) -> str:
        """Return the name of a memory's file; empty where none has that name."""
        return key if is_memory(key) else ""

    @contextmanager
    def retiring(self) -> Iterator[Writer]:
        """Open the folder as :meth:`changing` does: lines move to ``RETIRED.md`` and back."""
        with changed_folder(self.path, self) as change:
            yield RetiringWriter(self, change)

    def superseded_by(self, record: bytes) -> str | None:
        """Return a retired memory's own id."""
        said = json.loads(record)
        return str(said["memory_id"]) if said["place"].get("retired_at") else None

    def entries_kept(self, record: bytes) -> str:
        """Return what the index and ``RETIRED.md`` say of a memory."""
        place = json.loads(record)["place"]
        return json.dumps({name: place.get(name, []) for name in ("said", "retired", "pointer")})

    @staticmethod
    def titles(raw: bytes) -> dict[str, str]:
        """Return the words of the first link to each file in an index."""
        found: dict[str, str] = {}
        for mention in mentions_in(raw.decode(errors="replace")):
            name = name_in_link(mention.target)
            if name is not None:
                found.setdefault(name, mention.label)
        return found

    def remove_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with nothing in it that names files."""
        return indexes.remove_entries(raw, said, filter(is_memory, there), self.path)

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with what it said of files in its place again."""
        return indexes.insert_entries(raw, said, filter(is_memory, there), self.path)

    def about(self) -> About:
        """Return what there is to say of the index."""
        return self.seen(lambda moment: self.view(moment).about())

    def orders(self, reads: Mapping[str, int]) -> Orders:
        """Return which files are loaded at start, by the index as it stands and in other orders."""
        return self.seen(lambda moment: self.view(moment).orders(reads))

    def troubles(self) -> list[Trouble]:
        """Return what can be wrong with front matter and index."""
        return self.seen(lambda moment: self.view(moment).troubles())

    def view(self, moment: FolderMoment) -> FolderView:
        """Return what is known of the folder at a moment."""
        files = {name: self._note(moment, name) for name in moment.names if is_memory(name)}
        notes = self._memories_among(files)
        if not files and not self.is_placed and INDEX not in moment.names:
            deeper = [each.path for each in find_below([self.path]).stores]
            if deeper:
                raise StoreError(
                    f"there are no memories in {self.path}, but {counted(len(deeper), 'stores')} "
                    f"below it: open {deeper[0]}, or list all with memlab find {self.path}"
                )
        index = _index(b"" if moment.index is None else moment.index.data, self._rule)
        if moment.known is None:
            self._called = first_calls(moment.folder.path)
        aside = _index(_retired_bytes(moment), self._rule)
        others = {name: files[name] for name in sorted(files.keys() - notes.keys())}
        return FolderView(
            folder=self.name,
            moment=moment,
            notes=notes,
            index=index,
            called=self._called,
            aside=aside,
            born=self.born(moment),
            kept=tuple(filter(is_kept_by_name, others)),
            untyped={n: note for n, note in others.items() if not is_kept_by_name(n)},
        )

    @cached_property
    def is_placed(self) -> bool:
        """Whether the folder is where Claude Code puts its memory, or its settings name it."""
        return is_placed(self.given) or is_placed(self.path)

    def _memories_among(self, files: Mapping[str, Note]) -> Mapping[str, Note]:
        """Return the files that are memories.

        Outside the places that Claude Code's configuration names these are the files with one of
        its types. Where no file has one and a person named the scheme, all but documents are.
        """
        if self.puts_back:
            return files
        own = {name: note for name, note in files.items() if not is_kept_by_name(name)}
        if self.is_placed:
            return own
        typed = {name: note for name, note in own.items() if note.is_typed}
        if self._is_named_by_scheme and not typed:
            return own
        return typed

    def is_document(self, key: Key, record: bytes) -> bool:
        """Whether an archived file is no memory of the folder, as it is known today."""
        name = str(key)
        if is_kept_by_name(name):
            return True
        if self.is_placed or self._is_named_by_scheme:
            return False
        return not has_claude_type(self.content(record).decode(errors="replace"))

    def _note(self, moment: FolderMoment, name: str) -> Note:
        known = self._notes.get(name)
        if known is None or known[0] != moment.rely_on(name):
            text = moment.read(name).data.decode(errors="replace")
            head = read_front_matter(text)
            note = Note(
                head=head,
                links=tuple(wikilinks_in(text)),
                links_listed=list_of_links(text),
                type=type_of(name.removesuffix(_SUFFIX), text, head, self._kinds),
                is_typed=has_claude_type(text),
            )
            known = self._notes[name] = moment.rely_on(name), note
        return known[1]


_index = lru_cache(maxsize=8)(MemoryIndex)
"""What an index says; a folder is looked at more than once, and at many moments of its past."""
_names = lru_cache(maxsize=1)(FileNames)
"""What links in files that are gone may mean."""


def state_in(found: Found) -> str | None:
    """Return how a start led to a memory, by its place; an older archive says no more than that."""
    state = found.place.get("index_state")
    return LISTED if state is None and found.said else state


def is_memory(name: str) -> bool:
    """Whether a file of such a name can be a memory of a folder.

    >>> [is_memory(name) for name in ("a.md", "MEMORY.md", "notes.txt", ".draft.md", "b/a.md")]
    [True, False, False, False, False]
    """
    is_here = not name.startswith(".") and "/" not in name
    return is_here and name.endswith(_SUFFIX) and name not in (INDEX, RETIRED)


def _retired_bytes(moment: FolderMoment) -> bytes:
    """Return what ``RETIRED.md`` says; nothing where it is no file."""
    return moment.read(RETIRED).data if RETIRED in moment.names else b""


HEAD: Final = b"# Retired\n\nNot loaded at start. Look here when something is missing.\n\n"
POINTER: Final = f"- [Retired memories]({RETIRED}): not loaded at start\n"
KEPT: Final = fields({name: listed(indexes.ENTRY) for name in ("said", "retired", "pointer")})
"""What the index and ``RETIRED.md`` said of a memory, and the index of that file, in a plan."""


class RetiringWriter(FolderWriter):
    """A folder that is locked and whose memories are retired, and returned."""

    source: ClaudeCode

    def supersede(self, links: Links, kept: Mapping[Key, str] | None = None) -> int:
        """Let the lines of some memories change sides, to where they were where that is `kept`."""
        moment, names, index = self._seen()
        if RETIRED in moment.listing.others:
            raise StoreError(
                f"{self._change.folder.path / RETIRED} is a link or no ordinary file; nothing was "
                "changed: put a file there, or take it away"
            )
        said, known = indexes.entries_of(index, names), _checked(kept or {})
        leave = [str(key) for key, by in links.items() if by is not None]
        back = [str(key) for key, by in links.items() if by is None]

        raw = _retired_bytes(moment) or HEAD
        aside = indexes.entries_of(MemoryIndex(raw), names)
        returning = {name: list(aside.get(name, ())) for name in back}
        text = indexes.remove_entries(raw, returning, names.names, names.folder)
        exact = {
            name: known[name]["retired"] for name in leave if known.get(name, {}).get("retired")
        }
        text = indexes.insert_entries(text, exact, names.names, names.folder)
        text += b"" if text.endswith(b"\n") else b"\n"
        lines = [_line_of(name, said.get(name, ())) for name in leave if name not in exact]
        text += indexes.encoded("".join(lines))

        going = {name: Parts(None, list(said.get(name, ()))) for name in leave}
        coming = {}
        for name, entries in returning.items():
            top = _at_the_top(index, name, _line_of(name, entries), skip=leave, names=names)
            coming[name] = Parts(None, known.get(name, {}).get("said") or [top])
        is_empty = text.strip() == HEAD.strip()
        if RETIRED in moment.names:
            pointer = list(said.get(RETIRED, ())) if is_empty else None
            going[RETIRED] = Parts(moment.read(RETIRED), pointer)
        if not is_empty:
            around = os.fstat(self._change.folder.handle)
            like = moment.index or FileCopy(RETIRED, b"", 0o600, 0, (around.st_uid, around.st_gid))
            file = like._replace(name=RETIRED, data=text, written=file_clock())
            before = next((each["pointer"] for each in known.values() if each["pointer"]), None)
            entry = before or [_at_the_top(index, RETIRED, POINTER, skip=leave, names=names)]
            coming[RETIRED] = Parts(file, None if RETIRED in said else entry)
        self._change.take_out(going)
        self._change.put_back(coming)
        self._check_moved(leave, back)
        return len(links)

    def _seen(self) -> tuple[FolderMoment, FileNames, MemoryIndex]:
        """Return the folder as it is now, what its files are called, and its index."""
        view = self.source.view(moment := self._now())
        return moment, with_retired(view.names), view.index

    def _check_moved(self, leave: Iterable[str], back: Iterable[str]) -> None:
        """Check that the index names just those of the memories that it should."""
        moment, names, index = self._seen()
        named, retired = index.named(names), MemoryIndex(_retired_bytes(moment)).named(names)
        wrong = [each for each in leave if each in named or each not in retired]
        if wrong := [*wrong, *(each for each in back if each not in named)]:
            raise CompactionError(
                f"the lines of {wrong[0]} and {len(wrong) - 1:,} more could not be moved between "
                f"{INDEX} and {RETIRED} in {self._change.folder.path}; all was taken back"
            )


def _line_of(name: str, entries: Sequence[IndexEntry]) -> str:
    """Return the line that stands for a file alone: its own entry, or a plain link."""
    for each in entries:
        if each["entry"] and list(each["files"]) == [name]:
            text = str(each["text"])
            return text if text.endswith("\n") else f"{text}\n"
    return f"- [{name}](<{name}>)\n"


def _at_the_top(
    index: MemoryIndex, name: str, line: str, *, skip: Iterable[str], names: FileNames
) -> IndexEntry:
    """Return an entry that goes above the first of the index that stays, so that it is loaded."""
    gone = {RETIRED, *skip}
    stays = [block for block in index.blocks if not gone & {*block.files(names)}]
    first = next((b for b in stays if b.is_entry), next((b for b in stays if b.text.strip()), None))
    below = [indexes.digest_of(indexes.encoded(indexes.lines_of(first.text)[0]))] if first else []
    said = {"line": 0, "text": line, "entry": True, "whole": "", "files": [name]}
    return said | {"above": [], "below": below}


def _checked(kept: Mapping[Key, str]) -> dict[str, Any]:
    """Return what a plan kept of lines; an archive may be anybody's."""
    found = {}
    for key, said in kept.items():
        try:
            found[str(key)] = json.loads(said)
            KEPT(found[str(key)])
        except (ValueError, TypeError, RecursionError) as error:
            raise ArchiveError(
                f"the plan does not say where the lines of {key!r:.80} stood ({error}); nothing "
                "was restored: move them by hand"
            ) from error
    return found
