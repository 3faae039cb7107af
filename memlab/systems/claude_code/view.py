"""A folder of Claude Code's memory at a moment: its files, when each was first there, its index.

A file's time is the earliest that is heard of: by front matter, its own, git's, or a call's.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from memlab.clock import moment_and_zone, shifted
from memlab.columns import LISTED as LISTED_STATE
from memlab.columns import REACHED, UNLISTED
from memlab.errors import StoreError
from memlab.sources.base import (
    MOST_READ,
    TODAY,
    About,
    IndexOrderings,
    Key,
    Trouble,
    position_from_timestamp,
)
from memlab.sources.folder.files import Folder
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.opening import NOT_ENTERED
from memlab.sources.reads import LineReader, moment
from memlab.sources.reads import text as readable
from memlab.sources.transcripts import calls_in, transcript_files
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.hubs import hubs_among
from memlab.systems.claude_code.index import INDEX, RETIRED, Block, MemoryIndex, State
from memlab.systems.claude_code.markdown import FileNames, FrontMatter
from memlab.systems.claude_code.types import SETTLE, MemoryType
from memlab.text import Table, TextPage, command

LISTED: Final = 10
"""Lines of a list that are shown."""
_NAMED: Final = 3
"""Names that a sentence ends with."""
_LOADED: Final = frozenset({State.LOADED})
_SEEN: Final = frozenset({State.LOADED, State.CUT})

_FROM_FILE: Final = "file time"
PROJECTS: Final = "projects"
"""The folder in which Claude Code keeps what belongs to projects."""

WRITERS: Final = ("Write", "Edit", "MultiEdit")
"""The tools that write a file."""

_CALL: Final = re.compile(rf'"name"\s*:\s*"(?:{"|".join(WRITERS)})"'.encode())

Call = tuple[tuple[str, ...], str, datetime]
"""The last three folders of a path, the file's name, and when the call was."""


class Dated(NamedTuple):
    """When a file was first there, how that is known, and what tells it from others of then."""

    at: datetime
    how: str
    tie: Key


class Note(NamedTuple):
    """What a file says of itself."""

    head: FrontMatter
    links: tuple[str, ...]
    links_listed: MemoryIndex | None
    """The file as an index, where it is mostly a list of links."""
    type: MemoryType
    is_typed: bool = True
    """Whether its front matter has one of Claude Code's own types."""


@dataclass(frozen=True)
class FolderView:
    """What is known of a folder, and what there is to say of its index that no frame holds."""

    folder: str
    moment: FolderMoment
    notes: Mapping[str, Note]
    index: MemoryIndex
    called: Mapping[str, datetime]
    """When transcripts first tell of each file."""
    aside: MemoryIndex
    """What ``RETIRED.md`` says."""
    born: Mapping[str, datetime]
    """When each was first committed."""
    kept: tuple[str, ...] = ()
    """Markdown files that are no memories by their names, such as README.md."""
    untyped: Mapping[str, Note] = field(default_factory=dict)
    """Markdown files that are no memories because their front matter has no type."""

    @cached_property
    def names(self) -> FileNames:
        """What links may call the files: their names, or those that they alone give themselves."""
        own = [
            (note.head.fields.get("name", "").strip(), file) for file, note in self.notes.items()
        ]
        times = Counter(name for name, _ in own)
        aliases = {name: file for name, file in own if name and times[name] == 1}
        return FileNames(self.moment.folder.path, self.notes.keys(), aliases)

    @cached_property
    def named(self) -> dict[str, list[Block]]:
        """The blocks of the index that name each file."""
        return self.index.named(self.names)

    @cached_property
    def hubs(self) -> dict[str, MemoryIndex]:
        """The hubs, by file; of a moment in the past none are told apart."""
        if self.moment.known is not None:
            return {}
        files = {**self.notes, **self.untyped}
        lists = {name: note.links_listed for name, note in files.items()}
        known = {name: index for name, index in lists.items() if index is not None}
        names = replace(self.names, names=files.keys())
        return hubs_among(known, self.index.named(names), names)

    @cached_property
    def hubs_of(self) -> dict[str, list[str]]:
        """The hubs that name each file."""
        found: dict[str, list[str]] = {}
        for hub, index in self.hubs.items():
            for name in index.named(self.names):
                if name != hub:
                    found.setdefault(name, []).append(hub)
        return found

    @cached_property
    def unlisted(self) -> list[str]:
        """The memories that neither the index, nor a hub, nor ``RETIRED.md`` names."""
        return sorted(name for name in self.notes if self.index_state(name) == UNLISTED)

    @cached_property
    def apart(self) -> int:
        """Characters of the index that a start loads and that are no memory's lines."""
        costs = (
            of_file.get(State.LOADED, "")
            for name, of_file in self.costs().items()
            if name not in self.hubs
        )
        return max(len(readable(self.index.loaded)) - sum(map(len, costs)), 0)

    @cached_property
    def below(self) -> list[str]:
        """The Markdown files in folders below, which are not read as memories."""
        folder = self.moment.folder
        if self.moment.known is not None or all("." in each for each in self.moment.listing.others):
            return []
        whole = Folder(folder.path, folder.handle, _may_hold_files)
        with suppress(StoreError):
            found = whole.listing().files
            return [name for name in found if "/" in name and name.endswith(".md")]
        return []

    @cached_property
    def retired_files(self) -> list[str]:
        """The files that ``RETIRED.md`` names and the index does not."""
        return sorted(self.aside.named(self.names).keys() - self.named.keys())

    def index_state(self, name: str) -> str | None:
        """Return how a start leads to a file; None where no index is known of that moment."""
        if name in self.named:
            return LISTED_STATE
        if name in self.hubs_of or name in self.aside.named(self.names):
            return REACHED
        is_unknown = self.moment.known is not None and self.moment.index is None
        return None if is_unknown else UNLISTED

    @cached_property
    def dates(self) -> dict[str, Dated]:
        """When each file was first there."""
        return dated_by_lines({name: self._earliest(name) for name in self.notes}, self.named)

    @property
    def _all_names(self) -> FileNames:
        """What links may call whatever is in the folder, memories or not."""
        files, others = self.moment.listing
        return replace(self.names, names={*self.names.names, *files, *others})

    def _earliest(self, name: str) -> Dated:
        """Return the earliest that is heard of a file: of itself, of others, its own time."""
        known = []
        for key in ("created", "modified"):
            with suppress(ValueError):
                at, _ = moment_and_zone(self.notes[name].head.fields.get(key, "").strip())
                known.append((at, "front matter"))
        for how, times in (("transcripts", self.called), ("git", self.born)):
            if name in times:
                known.append((times[name], how))
        changed = datetime.fromtimestamp(self.moment.stamp_of(name).written // 1_000 / 1e6, UTC)
        if not known or changed.year > 1980:  # as which archives write that keep none
            known.append((changed, _FROM_FILE))
        return Dated(*min(known, key=lambda pair: pair[0]), name)

    def position(self, name: str) -> int:
        """Return where a file stands by when it was first there."""
        at, _, tie = self.dates[name]
        return position_from_timestamp(int(at.timestamp() * 1_000), tie)

    def costs(self) -> dict[str, dict[State, str]]:
        """Return the lines that the index takes for each file that it names first."""
        texts: dict[str, dict[State, str]] = {}
        for block in self.index.blocks:
            if block.state is not State.UNSEEN:
                for number, name in enumerate(block.files(self.names)):
                    of_file = texts.setdefault(name, {})
                    cost = readable(block.text) if number == 0 else ""
                    of_file[block.state] = of_file.get(block.state, "") + cost
        for of_file in texts.values():
            if State.LOADED in of_file:
                of_file.pop(State.CUT, None)
        return texts

    @cached_property
    def said(self) -> dict[str, Any]:
        """The facts, as JSON has them."""
        index = self.index
        named = self.named
        retired = self.retired_files
        memories = self.notes.keys() - self.hubs.keys()
        reached = (self.hubs_of.keys() & memories) - named.keys() - {*retired}
        cut = [b for b in index.blocks if b.state is State.CUT and b.files(self.names)]
        others = self.moment.listing.others
        return {
            "folder": self.folder,
            "rule": {"lines": index.rule.lines, "units": index.rule.units},
            "lines": len(index.states),
            "loaded_lines": index.states.count(State.LOADED),
            "units": indexes.units_of(index.text),
            "loaded_units": indexes.units_of(index.loaded),
            "files": len(memories),
            "named": len(named.keys() & memories),
            "hubs": sorted(self.hubs),
            "reached": sorted(reached),
            "held": sorted(self.hubs_of.keys() & named.keys() & memories),
            "cut": [(each.number, readable(each.text.strip())) for each in cut],
            "cut_files": sorted(n for n in named if {b.state for b in named[n]} == {State.CUT}),
            "unnamed": [name for name in self.unlisted if name not in self.hubs],
            "below": self.below,
            "apart": self.apart,
            "doubtful": {
                n: self.notes[n].type.doubt for n in sorted(memories) if self.notes[n].type.doubt
            },
            "retired": retired,
            "dangling": [(n, readable(t)) for n, t in index.dangling(self._all_names)],
            "kept_by_name": list(self.kept),
            "without_type": sorted(self.untyped.keys() - self.hubs.keys()),
            "dated": dict(Counter(each.how for each in self.dates.values())),
            "broken": {file: n.head.problem for file, n in self.notes.items() if n.head.problem},
            "not_read": [each for each in others if not each.startswith(".memlab")],
            "pending": self.moment.is_pending,
        }

    def diagnostics(self, retired: Collection[str] = ()) -> list[Trouble]:
        """Return what a person could mend: front matter, lines without a file, or cut.

        Of the memories that plans have `retired`, one of the two indexes must name each.
        """
        index = self.index
        files, named = (f"{self.said[name]:,}" for name in ("files", "named"))
        broken = [f"{name} ({why})" for name, why in sorted(self.said["broken"].items())]
        doubtful = [f"{name} ({why})" for name, why in self.said["doubtful"].items()]
        dangling = [f"line {number}: {target}" for number, target in self.said["dangling"]]
        cut = sum(len(of_file.get(State.CUT, "")) for of_file in self.costs().values())
        cut_lines = [
            f"line {block.number}"
            for block in index.blocks
            if block.state is State.CUT and block.text.strip()
        ]
        return [
            _trouble(
                "front_matter",
                broken,
                f"of {files} files have front matter that is no YAML and was read line by line",
                f"that of all {files} files is YAML, or there is none",
                "put a value that holds a colon or a bracket in quotes",
            ),
            _trouble(
                "types",
                doubtful,
                f"of {files} files do not say plainly of what type they are, and count as "
                "load-bearing",
                f"the type of all {files} files is plain, or none is said",
                SETTLE,
            ),
            _trouble(
                "index_links",
                dangling,
                f"links of {INDEX} lead to no file",
                f"every link of {INDEX} leads to a file",
                f"take them out of {INDEX}, or write the files",
            ),
            _trouble(
                "index_cut",
                self.said["cut_files"] or cut_lines,
                f"of {named} named files stand below what is loaded"
                if self.said["cut_files"]
                else f"of {self.said['lines']:,} lines of {INDEX} stand below what is loaded",
                f"the lines of all {named} named files are loaded",
                f"move lines up, or take some out: memlab show {self.folder} lists them",
            )._replace(chars_cut=cut or len(index.text) - len(index.loaded)),
            _trouble(
                "sub_folders",
                self.below,
                "Markdown files lie in folders below and are read by no command, so no number here "
                "speaks of them",
                "no Markdown file lies in a folder below",
                "move them up beside the index, and change their links, to have them counted, "
                "sized and kept copies of",
            ),
            *self._retired_troubles(retired),
        ]

    def _retired_troubles(self, retired: Collection[str]) -> list[Trouble]:
        """Return which retired memories are named nowhere; nothing where none is retired."""
        there = sorted(name for name in retired if name in self.notes)
        if not there:
            return []
        named = self.named.keys() | self.aside.named(self.names).keys()
        is_other = RETIRED in self.moment.listing.others
        why = f", and {RETIRED} is a link or no ordinary file" if is_other else ""
        return [
            _trouble(
                "retired_lines",
                [name for name in there if name not in named],
                f"retired memories are named neither by {INDEX} nor by {RETIRED}{why}",
                f"{INDEX} or {RETIRED} names all {len(there):,} retired memories",
                f"{command('archive', self.folder)} lists the plans: memlab restore of the one "
                "that retired them brings their lines back",
            )
        ]

    def extra_report(self) -> About:
        """Return the facts and a page of them."""
        said = self.said
        most = self.index.rule.units
        units = said["units"]
        loaded = said["loaded_units"]
        size = f"{units:,} of at most {most:,}" if loaded == units else f"{loaded:,} of {units:,}"
        dated = ", ".join(f"{count:,} by {how}" for how, count in sorted(said["dated"].items()))
        lines = f"{said['loaded_lines']:,} of {said['lines']:,} lines"
        facts = [
            ("index", f"{lines} are loaded, {size} characters"),
            ("memories", f"{said['named']:,} of {said['files']:,} files are named by a line"),
            ("dated", dated or "none"),
        ]
        for name, found, words in (
            ("hubs", "hubs", f"files are lists of links: index as {INDEX} is, and no memories"),
            (
                "reached",
                "reached",
                "files are named by a hub alone: opened on demand, no plan takes them",
            ),
            ("unlisted", "unnamed", "files that nothing names: no start leads to them"),
            ("held", "held", "files are named by a hub too, so no plan takes them"),
            ("doubtful", "doubtful", f"files count as load-bearing; {SETTLE}"),
            ("retired", "retired", f"files, named by {RETIRED}"),
            ("cut", "cut_files", "named files stand below what is loaded"),
            ("below", "below", "Markdown files in folders below are not read as memories"),
            ("not read", "not_read", "links, folders and other files"),
        ):
            if said[found]:
                facts.append((name, f"{len(said[found]):,} {words}"))
        if self.kept:
            facts.append(("kept", f"{len(self.kept):,} kept by name: {_first_of(self.kept)}"))
        if untyped := said["without_type"]:
            words = "without a type of Claude Code's, which are no memories in such a folder"
            facts.append(("others", f"{len(untyped):,} {words}: {_first_of(untyped)}"))
        if said["pending"]:
            facts.append(("pending", "a change was cut short; the next one takes it back first"))
        tables = [
            _table("lines that are cut", ("line", "text"), said["cut"]),
            _table("files that no line names", ("file",), [(name,) for name in said["unnamed"]]),
            _table("types in doubt", ("file", "why"), [*said["doubtful"].items()]),
            _table("lines whose file is not there", ("line", "link"), said["dangling"]),
            _table("front matter that is no YAML", ("file", "why"), [*said["broken"].items()]),
        ]
        shown = [each for each in tables if each.rows]
        return About(TextPage(f"{INDEX} in {self.folder}", facts, shown), said)

    def orders(self, reads: Mapping[str, int]) -> IndexOrderings:
        """Return what the index has loaded, its entries in each order."""
        written = {name: self.dates[name].at for name in sorted(self.notes, key=self.position)}
        age = {name: number for number, name in enumerate(written)}
        keys: dict[str, Callable[[str], int]] = {
            "newest first": lambda name: -age[name],
            "oldest first": lambda name: age[name],
            MOST_READ: lambda name: -reads.get(name, 0),
        }
        visible = self._files(self.index, _SEEN)
        lines = {TODAY: visible}
        fits = {TODAY: len(self._files(self.index, _LOADED))}
        for order, key in keys.items():
            lines[order] = tuple(sorted(visible, key=key))
            fits[order] = len(self._files(self._reordered(key), _LOADED))
        return IndexOrderings(written, lines, fits)

    def _files(self, index: MemoryIndex, states: Collection[State]) -> tuple[str, ...]:
        """Return the files that lines of some states name, from the top down."""
        blocks = (block for block in index.blocks if block.state in states)
        return tuple(dict.fromkeys(name for block in blocks for name in block.files(self.names)))

    def _reordered(self, key: Callable[[str], int]) -> MemoryIndex:
        """Return the index with its entries in another order, at the places where entries stood."""
        blocks = self.index.blocks
        moves = [b.is_entry and b.state in _SEEN and bool(b.files(self.names)) for b in blocks]
        entries = [block for block, does in zip(blocks, moves, strict=True) if does]
        ordered = iter(sorted(entries, key=lambda block: key(block.files(self.names)[0])))
        texts = [
            (next(ordered) if does else block).text
            for block, does in zip(blocks, moves, strict=True)
        ]
        whole = "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)
        return MemoryIndex(indexes.encoded(whole), self.index.rule)


def _may_hold_files(path: str) -> bool:
    """Whether Markdown files of a folder below may be somebody's memories."""
    name = path.rpartition("/")[2]
    return not name.startswith(".") and name not in NOT_ENTERED


def with_retired(names: FileNames) -> FileNames:
    """Return the names of a folder's files, ``RETIRED.md`` among them."""
    return replace(names, names={*names.names, RETIRED})


def _trouble(name: str, found: Sequence[str], words: str, otherwise: str, advice: str) -> Trouble:
    """Return what is wrong, with the first that it is wrong with."""
    summary = f"{len(found):,} {words}: {_first_of(found)}" if found else otherwise
    return Trouble(name, len(found), summary, advice)


def _first_of(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _table(heading: str, header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> Table:
    return Table(f"{heading}: {len(rows):,}", header, rows).first(LISTED)


def dated_by_lines(dates: dict[str, Dated], lines: Iterable[str]) -> dict[str, Dated]:
    """Take the order of an index into account for when each file was first there; return it.

    A copy gives files new times. Those that are known by these alone, and were written at once, are
    older than the next of `lines` whose time is known.
    """
    named = [name for name in lines if name in dates]
    copied = _copied([name for name in named if dates[name].how == _FROM_FILE], dates)
    known: datetime | None = None
    # Counted from the newest, so that those that stay are told apart as before when others go.
    newer: Counter[datetime] = Counter()
    for name in named if _is_newest_first(named, copied, dates) else reversed(named):
        if name not in copied:
            known = shifted(dates[name].at, timedelta(milliseconds=-1))
            continue
        at = copied[name] if known is None else min(copied[name], known)
        dates[name] = Dated(at, f"line of {INDEX}", -1 - newer[at])
        newer[at] += 1
    return dates


def _copied(names: Sequence[str], dates: Mapping[str, Dated]) -> dict[str, datetime]:
    """Return which files were written at once, and the minute in which that began."""
    found: dict[str, datetime] = {}
    for one, other in pairwise(sorted(names, key=dates.__getitem__)):
        if dates[other].at - dates[one].at <= timedelta(seconds=2):
            begun = found.setdefault(one, dates[one].at.replace(second=0, microsecond=0))
            found[other] = begun
    return found


def _is_newest_first(
    named: Sequence[str], copied: Mapping[str, datetime], dates: Mapping[str, Dated]
) -> bool:
    """Whether newer lines stand above older ones, by the files whose times are known."""
    own = [(place, dates[name].at) for place, name in enumerate(named) if name not in copied]
    falls = [later < earlier for (_, earlier), (_, later) in pairwise(own)]
    if copied:  # what was written since stands at the newer end, too
        places = [place for place, name in enumerate(named) if name in copied]
        since = max(copied.values())
        falls += [place < places[len(places) // 2] for place, at in own if at > since]
    return 2 * sum(falls) > len(falls)


def is_of_project(folder: Path) -> bool:
    """Whether a folder lies where Claude Code keeps the memory of a project."""
    return folder.parent.parent.name == PROJECTS


def first_calls(folder: Path) -> dict[str, datetime]:
    """Return when any project's transcripts (worktrees have their own) first tell of each file."""
    first: dict[str, datetime] = {}
    if not is_of_project(folder):
        return first
    for path in transcript_files(folder.parent.parent, follow_links=False):
        with suppress(OSError):
            found = path.lstat()
            calls = _calls(path, found.st_size, found.st_mtime_ns) if S_ISREG(found.st_mode) else []
            for around, name, at in calls:
                if around == folder.parts[-3:]:
                    first[name] = min(at, first.get(name, at))
    return first


@lru_cache(maxsize=2**16)
def _calls(path: Path, size: int, written: int) -> list[Call]:  # noqa: ARG001 - another is another file
    """Return what calls in a transcript wrote."""

    def matters(line: bytes) -> bool:
        return PROJECTS.encode() in line and _CALL.search(line) is not None

    found: list[Call] = []
    for line in LineReader([path]).objects(path, matters):
        at = moment(line.get("timestamp"))
        for _, tool, given in calls_in(line):
            file = PurePosixPath(str(given.get("file_path")).replace("\\", "/"))
            *_, projects, project, folder, name = ("", "", "", "", *file.parts)
            if at is not None and tool in WRITERS and projects == PROJECTS:
                found.append(((projects, project, folder), name, at))
    return found
