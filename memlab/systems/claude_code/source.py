"""Claude Code's memory: a folder of Markdown files, and ``MEMORY.md``, the index loaded at start.

A memory is active when a line of the index names it, and costs these lines at start. A deletion
takes its lines out of the index, then the file away: no line ever names a file that has gone.
Retiring moves them to ``RETIRED.md`` beside the index, which a hand may edit too.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from os import PathLike, fspath
from typing import Any, Final

from memlab.clock import file_clock, moment_of
from memlab.columns import LISTED, UNLISTED
from memlab.errors import ArchiveError, CompactionError, StalePlanError, StoreError
from memlab.settings import Settings
from memlab.sources.base import (
    About,
    IndexOrderings,
    Key,
    Links,
    Loss,
    Trouble,
    Writer,
    is_index_lost,
    knows_losses,
)
from memlab.sources.folder.change import Parts, changed_folder
from memlab.sources.folder.files import FileCopy, Stamp
from memlab.sources.folder.git import Version, versions_of
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, FolderWriter, Found, memory_in, record_of
from memlab.sources.opening import find_below
from memlab.sources.reads import moment_of_seconds
from memlab.sources.reads import text as readable
from memlab.store.archive.facts import RetiredMemories
from memlab.store.records import with_place, without_place
from memlab.store.shapes import boolean, fields, integer, list_of, text
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
from memlab.text import command, counted, in_shell

KINDS: Final[Mapping[str, str]] = {"user": "semantic", "feedback": "semantic"}
"""What each type of memory is; those are what an agent was told to do. Any other is an episode."""

_EPISODIC: Final = "episodic"
_GUARDED: Final = "semantic"
"""What a memory counts as whose type is in doubt."""
_SUFFIX: Final = ".md"
_SINCE_FORMAT_3: Final = ("index_state", "hubs")
"""Keys of a place that readers of archives before format 3 refuse."""
_PLACE: Final = fields(
    {
        "position": integer(),
        "said": list_of(indexes.ENTRY),
        "loaded": boolean,
        **dict.fromkeys(("created_at", "dated", "at_start", "retired_at", "index_state"), text),
        **dict.fromkeys(("retired", "pointer"), list_of(indexes.ENTRY)),
        **dict.fromkeys(("links", "hubs"), list_of(text)),
    },
    absent={"retired_at", "retired", "pointer", "index_state", "hubs"},
)


class ClaudeCode(FolderSource):
    """A folder of Claude Code's memory."""

    scheme = "claude"
    default_locations = (
        "CLAUDE_CONFIG_DIR",
        ".claude",
        "projects",
        "agent-memory",
        "agent-memory-local",
    )
    evidence = EVIDENCE
    index_name = INDEX
    index_first = True
    place = staticmethod(_PLACE)
    cuts_index = True
    retires = True
    is_file_alone = True

    def __init__(self, where: str | PathLike[str]) -> None:
        super().__init__(where)
        self._is_named_by_scheme = fspath(where).startswith(f"{self.scheme}:")
        self._rule = indexes.CLAUDE_CODE
        self._kinds = KINDS
        self._notes: dict[str, tuple[Stamp, Note]] = {}
        """By file: a folder is looked at more than once, and a file whose stamp is the same is not
        read again."""
        self._called: dict[str, datetime] = {}
        self._aliases: Mapping[str, str] = {}
        """What files alone called themselves when they were last looked at."""
        self._others: Collection[str] = ()
        """Which files were no memories then."""

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
        entries = indexes.entries_of(view.index, view.names)
        lines = view.costs()
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

    def index_entries_of(self, record: bytes) -> str:
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
        return indexes.remove_entries(raw, said.keys(), self._names_of(said, there))

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with what it said of files in its place again."""
        return indexes.insert_entries(raw, said, self._names_of(said, there))

    def is_as_said(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bool:
        """Whether the index says of files just what it said when it was read."""
        return indexes.is_as_said(raw, said, self._names_of(said, there))

    def entered(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> set[str]:
        """Return the files that an entry of their own names already."""
        return MemoryIndex(raw).entered(self._names_of(said, there)) & said.keys()

    def taken_back(self, before: bytes, made: bytes, now: bytes) -> bytes:
        """Return the index without a step, as it was edited since."""
        return indexes.take_back(before, made, now)

    def _names_of(self, said: Mapping[str, Any], there: Collection[str]) -> FileNames:
        memories = (name for name in there if is_memory(name) and name not in self._others)
        return indexes.names_of(said, memories, self.path, self._aliases)

    def extra_report(self) -> About:
        """Return what there is to say of the index."""
        return self.seen(lambda moment: self.view(moment).extra_report())

    def older_record(self, record: bytes) -> bytes:
        """Return a record without the keys that came with format 3 of archives."""
        place = json.loads(record)["place"]
        older = {key: value for key, value in place.items() if key not in _SINCE_FORMAT_3}
        return record if len(older) == len(place) else with_place(without_place(record), older)

    def is_unlisted(self, record: bytes) -> bool:
        """Whether neither the index nor a hub names a memory."""
        return bool(json.loads(record)["place"].get("index_state") == UNLISTED)

    def relisted(self, record: bytes, older: bytes) -> bytes | None:
        """Return a memory's record with the lines of the index that an older record has."""
        said = json.loads(older)["place"]["said"]
        found, file = memory_in(record)
        return record_of(self._named_by(found, said), file) if said else None

    def _named_by(self, found: Found, said: Sequence[Any]) -> Found:
        return found._replace(said=said, place={**found.place, "index_state": LISTED})

    def iter_lost(self) -> Iterator[Loss]:
        """Yield what git knows to be gone or emptied, and what a lost index named."""
        yield from super().iter_lost()
        versions = versions_of(self.path, INDEX) if self.history().lives else []
        if versions:
            yield from self.seen(lambda moment: self._lines_lost(moment, versions))

    def _lines_lost(self, moment: FolderMoment, versions: Sequence[Version]) -> list[Loss]:
        """Return the memories that the index names no more, by the newest version that did."""
        view = self.view(moment)
        unlisted = {each.name: each for each in self.memories(moment) if each.name in view.unlisted}
        named = len(view.named.keys() - view.hubs.keys())
        written = moment.stamp_of(INDEX).written if INDEX in moment.names else None
        at = None if written is None else moment_of_seconds(written // 1_000 / 1e6)
        for version in versions if unlisted else ():
            entries = indexes.entries_of(_index(version.data, self._rule), view.names)
            lost = [name for name in unlisted if name in entries]
            if is_index_lost(len(lost), named):
                return [
                    Loss(
                        name,
                        record_of(self._named_by(unlisted[name], entries[name]), moment.read(name)),
                        at=at or version.at,
                        since=version.at,
                        commit=version.commit,
                        is_unlisted=True,
                    )
                    for name in lost
                ]
        return []

    def apart_at_start(self) -> int:
        """Return how many characters of the index a start loads that are no memory's lines."""
        return self.seen(lambda moment: self.view(moment).apart)

    def orders(self, reads: Mapping[str, int]) -> IndexOrderings:
        """Return which files are loaded at start, by the index as it stands and in other orders."""
        return self.seen(lambda moment: self.view(moment).orders(reads))

    def diagnostics(self) -> list[Trouble]:
        """Return what can be wrong with front matter and index, and with what is retired."""
        known = self.retired()
        retired = {
            str(key)
            for key, memory in known.items()
            if memory.returned_at in (None, memory.retired_at) and known.at(key, str(key))
        }
        found = self.seen(lambda moment: self.view(moment).diagnostics(retired))
        return [*found, self.seen(self._index_trouble)]

    def _index_trouble(self, moment: FolderMoment) -> Trouble:
        """Say whether the index is there, and names as many of the memories as an index does."""
        view = self.view(moment)
        unlisted = [name for name in view.unlisted if name not in view.hubs]
        others = len(view.notes) - len(view.hubs) - len(unlisted)
        known = knows_losses(self)
        back = f"{command('lost', self.name)} says what it named, and brings that back"
        unsure = "whether it named more is not known: neither git nor copies would know"
        if moment.index is None and self.history().index:
            words = f"there is no {INDEX}, and git has one: no start loads any of "
            asked = in_shell("git", "-C", str(self.path), "checkout", "HEAD", "--", INDEX)
            advice = f"bring it back: {asked}"
            return Trouble("index", 1, f"{words}{counted(len(view.notes))}", advice)
        if moment.index is None and view.notes:
            words = f"there is no {INDEX}, so no start loads any of {counted(len(view.notes))}"
            return Trouble("index", 1, words, back if known else unsure)
        if len(unlisted) > others:
            words = f"{INDEX} names no more than {others:,} of {counted(others + len(unlisted))}"
            return Trouble("index", 1, words, back if known else unsure)
        return Trouble("index", 0, f"{INDEX} leads to most of the memories", "")

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
        view = FolderView(
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
        if moment.known is None:
            self._aliases = view.names.aliases
            self._others = others.keys()
        return view

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
        return not has_claude_type(self.content_for_digest(record).decode(errors="replace"))

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
KEPT: Final = fields({name: list_of(indexes.ENTRY) for name in ("said", "retired", "pointer")})
"""What the index and ``RETIRED.md`` said of a memory, and the index of that file, in a plan."""


class RetiringWriter(FolderWriter):
    """A folder that is locked and whose memories are retired, and returned."""

    source: ClaudeCode

    def supersede(
        self,
        links: Links,
        kept: Mapping[Key, str] | None = None,
        *,
        planned: Mapping[Key, str] | None = None,
    ) -> int:
        """Let the lines of some memories change sides, to where they were where that is `kept`.

        A line that somebody has edited since goes as it was edited.
        """
        seen = self._seen()
        if RETIRED in seen.moment.listing.others:
            raise StoreError(
                f"{self._change.folder.path / RETIRED} is a link or no ordinary file; nothing was "
                "changed: put a file there, or take it away"
            )
        if planned is not None:
            self._check_planned(seen, planned)
        known = None if kept is None else _checked(kept)
        leave = [str(key) for key, by in links.items() if by is not None]
        back = [str(key) for key, by in links.items() if by is None]

        going = {name: Parts(None, list(seen.said.get(name, ()))) for name in leave}
        if known is None:
            text, coming = self._returned(seen, back, leave)
        else:
            text, coming = self._taken_back(seen, back, known)
        text = _with_lines_of(text, leave, seen, known or {})
        self._change_retired_file(seen, text, going, coming, leave, known)
        self._change.take_out(going)
        self._change.put_back(coming, are_new=known is None)
        self._check_moved(leave, back)
        return len(links)

    def unlisted(self, kept: Mapping[Key, str]) -> list[Key]:
        """Return those memories that the index does not name as it did, whatever its words.

        A memory that had an entry of its own must have one, any other must be named. One whose
        line is still in ``RETIRED.md``, as it was put there, is not back either.
        """
        seen = self._seen()
        retired = indexes.own_texts(seen.retired, seen.names)
        entered = seen.index.entered(seen.names)
        found: list[Key] = []
        for name, said in _checked(kept).items():
            before: list[IndexEntry] = said["said"]
            own = retired.get(name, [])
            if name in entered:
                is_left = bool(own) and not _edited(own, _line_of(name, before))
            else:
                lines = "".join(str(entry["text"]) for entry in before)
                had_own = name in MemoryIndex(indexes.encoded(lines)).entered(seen.names)
                is_left = had_own or name not in seen.said
            if is_left:
                found.append(name)
        return found

    def _seen(self) -> "_Seen":
        """Return the folder as it is now, what its files are called, and its index."""
        moment = self._now()
        view = self.source.view(moment)
        names = with_retired(view.names)
        return _Seen(moment, names, view.index, indexes.entries_of(view.index, names))

    def _check_planned(self, seen: "_Seen", planned: Mapping[Key, str]) -> None:
        """Check that the index says of memories what it said when they were compared."""
        records = self.source.records_in(seen.moment)
        for key, said in planned.items():
            if key not in records or self.source.index_entries_of(records[key]) != said:
                raise StalePlanError(
                    f"what {INDEX} says of {key} was changed while the plan was applied; nothing "
                    "was changed: make a new plan",
                    memory_ids=(str(key),),
                )

    def _returned(
        self, seen: "_Seen", back: Sequence[str], leave: Sequence[str]
    ) -> tuple[bytes, dict[str, Parts]]:
        """Return ``RETIRED.md`` without what returns, and what the index then says of that."""
        entries = indexes.entries_of(MemoryIndex(seen.retired), seen.names)
        coming = {}
        for name in back:
            line = _line_of(name, entries.get(name, ()))
            entry = _at_the_top(seen.index, name, line, skip=leave, names=seen.names)
            coming[name] = Parts(None, [entry])
        return indexes.remove_entries(seen.retired, back, seen.names), coming

    def _taken_back(
        self, seen: "_Seen", back: Sequence[str], known: Mapping[str, Any]
    ) -> tuple[bytes, dict[str, Parts]]:
        """Return ``RETIRED.md`` without what was retired, and what the index said of that.

        Where somebody has edited a line in ``RETIRED.md``, that is what the index then says; it
        stays there where the index has an entry of the memory already.
        """
        retired = indexes.own_texts(seen.retired, seen.names)
        entered = seen.index.entered(seen.names)
        coming = {}
        moves = []
        left = []
        before: list[IndexEntry]
        for name in back:
            before = known.get(name, {}).get("said", [])
            edited = _edited(retired.get(name, ()), _line_of(name, before))
            if name in entered:
                left.append(name)
            if not (edited and name in entered):
                moves.append(name)
            if edited:
                before = _with_texts(name, before, edited)
            if not before:
                line = _line_of(name, ())
                before = [_at_the_top(seen.index, name, line, skip=(), names=seen.names)]
            coming[name] = Parts(None, before)
        self.entries_left = left
        return indexes.remove_own_entries(seen.retired, moves, seen.names), coming

    def _change_retired_file(
        self,
        seen: "_Seen",
        text: bytes,
        going: dict[str, Parts],
        coming: dict[str, Parts],
        leave: Sequence[str],
        known: Mapping[str, Any] | None,
    ) -> None:
        """Let ``RETIRED.md`` have a text, and the index a line that leads there while it is."""
        there = seen.moment.read(RETIRED) if RETIRED in seen.moment.names else None
        pointer = list(seen.said.get(RETIRED, ()))
        entries = [each["pointer"] for each in (known or {}).values()]
        before: list[IndexEntry] = next(filter(None, entries), [])
        own = {POINTER.strip(), *(str(entry["text"]).strip() for entry in before)}
        is_own = all(str(entry["text"]).strip() in own for entry in pointer)
        if text.strip() == HEAD.strip() and is_own:
            if there or pointer:
                going[RETIRED] = Parts(there, pointer)
            return
        if there is None or there.data != text:
            if there is not None:
                going[RETIRED] = Parts(there, None)
            around = os.fstat(self._change.folder.handle)
            owner = (around.st_uid, around.st_gid)
            like = there or seen.moment.index or FileCopy(RETIRED, b"", 0o600, 0, owner)
            file = like._replace(name=RETIRED, data=text, written=file_clock())
            coming[RETIRED] = Parts(file, None)
        # Whoever took the line away that leads there, while memories are retired, meant that.
        if not pointer and (there is None or known is None):
            at_top = _at_the_top(seen.index, RETIRED, POINTER, skip=leave, names=seen.names)
            new = coming[RETIRED].file if RETIRED in coming else None
            coming[RETIRED] = Parts(new, before or [at_top])

    def _check_moved(self, leave: Iterable[str], back: Iterable[str]) -> None:
        """Check that the index names just those of the memories that it should."""
        seen = self._seen()
        retired = MemoryIndex(_retired_bytes(seen.moment)).named(seen.names)
        wrong = [each for each in leave if each in seen.said or each not in retired]
        if wrong := [*wrong, *(each for each in back if each not in seen.said)]:
            raise CompactionError(
                f"the lines of {wrong[0]} and {len(wrong) - 1:,} more could not be moved between "
                f"{INDEX} and {RETIRED} in {self._change.folder.path}; all was taken back"
            )


@dataclass(frozen=True)
class _Seen:
    """A folder at a moment, what its files are called, its index, and what that says of each."""

    moment: FolderMoment
    names: FileNames
    index: MemoryIndex
    said: Mapping[str, Sequence[IndexEntry]]

    @property
    def retired(self) -> bytes:
        """What ``RETIRED.md`` says, or would say first."""
        return _retired_bytes(self.moment) or HEAD


def _with_lines_of(
    text: bytes, leave: Sequence[str], seen: _Seen, known: Mapping[str, Any]
) -> bytes:
    """Return ``RETIRED.md`` with the lines of memories; where they were, if they were there."""
    own = indexes.own_texts(seen.index.raw, seen.names)
    exact = {}
    lines = []
    for name in leave:
        before = known.get(name, {}).get("retired", [])
        edited = _edited(own.get(name, ()), _line_of(name, before))
        if not before:
            lines.append(_line_of(name, seen.said.get(name, ())))
        elif edited:
            exact[name] = _with_texts(name, before, edited)
        else:
            exact[name] = before
    text = indexes.insert_entries(text, exact, seen.names)
    if lines and not text.endswith(b"\n"):
        text += b"\n"
    text += indexes.encoded("".join(lines))
    # A file whose last line has no end keeps none, so that taking it back leaves no end there.
    if seen.retired.endswith(b"\n"):
        return text if text.endswith(b"\n") else text + b"\n"
    return text.removesuffix(b"\n")


def _edited(texts: Sequence[str], made: str) -> list[str]:
    """Return the texts of a memory's entries where they are not what memlab made."""
    return [] if all(text.strip() == made.strip() for text in texts) else list(texts)


def _with_texts(name: str, before: Sequence[IndexEntry], texts: Sequence[str]) -> list[IndexEntry]:
    """Return what was said of a memory, with other texts for the entries that name it alone."""
    own = [entry for entry in before if entry["entry"] and list(entry["files"]) == [name]]
    others = [entry for entry in before if entry not in own]
    place = {"line": 0, "text": "", "entry": True, "files": [name], "above": [], "below": []}
    first = own[0] if own else place
    edited = [{**first, "text": text, "was": first["text"], "whole": ""} for text in texts]
    return [*edited, *others]


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
