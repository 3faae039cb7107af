"""View of a Claude Code memory folder at one moment: its files, their creation times, its index.

The creation time of a file is the earliest of: its front matter, its modification time, its first
commit in git, and the first tool call in a transcript that wrote it.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from memlab.clock import moment_and_zone, shifted
from memlab.columns import LISTED, REACHED, UNLISTED
from memlab.errors import StoreError
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.base import About, Diagnostic, position_from_timestamp
from memlab.sources.capabilities import CURRENT_ORDER, MOST_READ, IndexOrderings
from memlab.sources.folder.files import Folder
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.opening import NOT_ENTERED
from memlab.sources.readers import Key
from memlab.sources.reads import LineReader, moment
from memlab.sources.reads import text as readable
from memlab.sources.result_cache import computed_once
from memlab.sources.transcripts import calls_in, transcript_files
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.hubs import LEAST_LINKS, hubs_among
from memlab.systems.claude_code.index import (
    INDEX,
    RETIRED,
    Block,
    IndexLink,
    MemoryIndex,
    Section,
    State,
)
from memlab.systems.claude_code.markdown import FileNames, FrontMatter, path_below
from memlab.systems.claude_code.types import SETTLE, MemoryType
from memlab.text import Table, TextPage, all_of, command, counted, verb_for

_MAX_ROWS: Final = 10
"""Maximum number of rows shown of a table."""
_MAX_NAMES: Final = 3
"""Maximum number of names in a sentence."""
_LOADED: Final = frozenset({State.LOADED})
_VISIBLE: Final = frozenset({State.LOADED, State.CUT})

_FILE_TIME: Final = "file time"
_YEAR_OF_MISSING_TIME: Final = 1980
"""The year of files without a time in an archive such as ZIP."""
_COPY_INTERVAL: Final = timedelta(seconds=2)
"""Files that are written at most this far apart may be copies from one batch."""
PROJECTS: Final = "projects"
"""The folder in which Claude Code keeps the data of projects."""
_FOLDER_DEPTH: Final = 3
"""Number of parts of the path of a memory folder, from :data:`PROJECTS` on."""

WRITERS: Final = ("Write", "Edit", "MultiEdit")
"""The tools that write a file."""

_WRITING_CALL: Final = re.compile(rf'"name"\s*:\s*"(?:{"|".join(WRITERS)})"'.encode())


class _WritingCall(NamedTuple):
    """A call that wrote a file below a project.

    Attributes
    ----------
    folders : tuple of str
        The last three parts of the path of the folder below which the file is:
        ``("projects", PROJECT, "memory")`` for a memory.
    name : str
        The path of the file in that folder.
    at : datetime
        The time of the call.
    """

    folders: tuple[str, ...]
    name: str
    at: datetime


class CreationTime(NamedTuple):
    """The creation time of a file.

    Attributes
    ----------
    at : datetime
        The time.
    origin : str
        The source of the time, such as "git".
    tie_breaker : str or int
        A key that orders files with equal times.
    """

    at: datetime
    origin: str
    tie_breaker: Key


class Note(NamedTuple):
    """The parsed content of a memory file."""

    head: FrontMatter
    """The front matter of the file."""
    links: tuple[str, ...]
    """The targets of its links."""
    links_listed: MemoryIndex | None
    """The file, parsed like ``MEMORY.md``, if it is mostly a list of links; else None."""
    paths_listed: MemoryIndex | None
    """Like `links_listed`.

    In a memory location of Claude Code, links to files of subfolders count too.
    """
    type: MemoryType
    is_typed: bool = True
    """Whether its front matter has one of the types of Claude Code."""
    heading: str = ""
    """Its first heading; empty for none."""

    @property
    def is_signed(self) -> bool:
        """Whether its front matter has a name and a type, as Claude Code writes both.

        Documents of a project may have a type such as ``reference``, too, but no name.
        """
        return self.is_typed and bool(self.head.fields.get("name", "").strip())


@dataclass(frozen=True)
class FolderView:
    """A memory folder at one moment, and the report on its index."""

    folder: str
    """The name of the folder in messages."""
    moment: FolderMoment
    notes: Mapping[str, Note]
    """The content of the memories, by file."""
    index: MemoryIndex
    first_calls: Mapping[str, datetime]
    """Time of the first call in a transcript that wrote each file."""
    retired_index: MemoryIndex
    """``RETIRED.md``, parsed as an index."""
    first_commits: Mapping[str, datetime]
    """Time of the first commit of each file."""
    documents: tuple[str, ...] = ()
    """Markdown files whose names exclude them from the memories, such as README.md."""
    untyped: Mapping[str, Note] = field(default_factory=dict)
    """Markdown files that are no memories because their front matter has no type."""
    is_placed: bool = False
    """Whether the folder is a default or configured memory location of Claude Code.

    Such a folder may have memories in subfolders.
    """

    @cached_property
    def names(self) -> FileNames:
        """The names by which links refer to files: file names, and unique names in front matter."""
        alias_of = {}
        for file, note in self.notes.items():
            alias_of[file] = note.head.fields.get("name", "").strip()
        counts = Counter(alias_of.values())
        aliases = {alias: file for file, alias in alias_of.items() if alias and counts[alias] == 1}
        return FileNames(self.moment.folder.path, self.notes.keys(), aliases)

    @cached_property
    def blocks_by_file(self) -> dict[str, list[Block]]:
        """The blocks of the index that name each file."""
        return self.index.blocks_by_file(self.names)

    @cached_property
    def hubs(self) -> dict[str, MemoryIndex]:
        """The hubs, parsed as indexes, by file name; empty for a moment in the past."""
        if self.moment.is_past:
            return {}
        files = {**self.notes, **self.untyped}
        names = self.names
        if self.untyped:
            names = replace(names, files=files.keys())
        lists = {}
        for name, note in files.items():
            index = _list_of_links(name, note, names)
            if index is not None:
                lists[name] = index
        return hubs_among(lists, self.index.blocks_by_file(names), names)

    @cached_property
    def hubs_of(self) -> dict[str, list[str]]:
        """The hubs that name each file."""
        hubs_by_file: dict[str, list[str]] = {}
        for hub, index in self.hubs.items():
            for name in index.blocks_by_file(self.names.for_links_in(hub)):
                if name != hub:
                    hubs_by_file.setdefault(name, []).append(hub)
        return hubs_by_file

    @cached_property
    def unlisted(self) -> list[str]:
        """The memories that the index, the hubs and ``RETIRED.md`` all omit."""
        return sorted(name for name in self.notes if self.index_state(name) == UNLISTED)

    @cached_property
    def overhead_chars(self) -> int:
        """Number of characters of the loaded index that belong to no memory."""
        chars_of_memories = 0
        for name, texts in self.index_texts.items():
            if name not in self.hubs:
                chars_of_memories += len(texts.get(State.LOADED, ""))
        return max(len(readable(self.index.loaded)) - chars_of_memories, 0)

    @cached_property
    def below(self) -> list[str]:
        """The Markdown files in subfolders that are not read as memories.

        Files of subfolders that are stores of their own are left out.
        """
        folder = self.moment.folder
        # A name with a dot is taken for that of a file.
        may_have_subfolders = any("." not in name for name in self.moment.listing.others)
        if self.moment.is_past or not may_have_subfolders:
            return []
        store_prefixes = tuple(f"{name}/" for name in self.stores)
        tree = Folder(folder.path, folder.handle, _may_hold_files)
        try:
            all_files = tree.listing().files.keys()
        except StoreError:
            return []
        markdown_below = filter(_is_below, all_files - self.moment.listing.files.keys())
        return sorted(name for name in markdown_below if not name.startswith(store_prefixes))

    @cached_property
    def stores(self) -> list[str]:
        """The subfolders of a memory location of Claude Code that are stores of their own."""
        if self.moment.is_past or not self.is_placed:
            return []
        folder = self.moment.folder
        return [name for name in self.moment.listing.others if has_index(folder, name)]

    @property
    def without_type(self) -> list[str]:
        """The Markdown files that are no memories and no hubs, because they have no type."""
        return sorted(self.untyped.keys() - self.hubs.keys())

    @cached_property
    def retired_files(self) -> list[str]:
        """The files that ``RETIRED.md`` names and the index does not."""
        named_in_retired = self.retired_index.blocks_by_file(self.names).keys()
        return sorted(named_in_retired - self.blocks_by_file.keys())

    def index_state(self, name: str) -> str | None:
        """Return whether the index lists, reaches or omits a file; None if the index is unknown."""
        if name in self.blocks_by_file:
            return LISTED
        if name in self.hubs_of or name in self.retired_index.blocks_by_file(self.names):
            return REACHED
        if self.moment.is_past and self.moment.index is None:
            return None
        return UNLISTED

    @cached_property
    def creation_times(self) -> dict[str, CreationTime]:
        """The creation time of each file."""
        times = {name: self._earliest_time(name) for name in self.notes}
        return corrected_by_lines(times, self.blocks_by_file)

    @cached_property
    def is_newest_first(self) -> bool:
        """Whether newer lines of the index are above older ones.

        Only files whose time is known count.
        """
        times = {name: self._earliest_time(name) for name in self.notes}
        listed = [name for name in self.blocks_by_file if name in times]
        return _is_newest_first(listed, _batch_starts(listed, times), times)

    @cached_property
    def path_by_last_name(self) -> dict[str, str]:
        """The path of each Markdown file in or below the folder, by the last part of the path."""
        files = (*self.below, *self.notes, *self.untyped)
        return {PurePosixPath(path).name: path for path in files}

    @cached_property
    def all_names(self) -> FileNames:
        """The names by which links may refer to anything in the folder, memory or not."""
        files, others = self.moment.listing
        folders = {str(parent) for file in files for parent in PurePosixPath(file).parents[:-1]}
        return replace(self.names, files={*self.names.files, *files, *others, *folders})

    @cached_property
    def dead_links(self) -> list[IndexLink]:
        """The links of the index to missing files of the folder, by line."""
        below = [link for link in self._links_below if self._is_in_known_subfolder(link.target)]
        return sorted([*self.index.dangling(self.all_names), *below], key=lambda link: link.line)

    @cached_property
    def unsure_links(self) -> list[IndexLink]:
        """The links to missing files in subfolders without memories.

        Such a link may lead to a document of the project.
        """
        return [link for link in self._links_below if not self._is_in_known_subfolder(link.target)]

    def is_dead(self, target: str) -> bool:
        """Return whether a link of the index leads to a missing file of the folder."""
        return target in self._dead_targets

    @cached_property
    def _dead_targets(self) -> set[str]:
        """The targets of the links to missing files of the folder."""
        return {link.target for link in self.dead_links}

    @cached_property
    def _links_below(self) -> list[IndexLink]:
        """The links to missing files in subfolders; none if subfolders are not read.

        Links into a subfolder that is not entered are left out.
        """
        if not self.is_placed:
            return []
        names = self.all_names
        links = []
        for link in self.index.links:
            path = path_below(link.target)
            if path is None or names.file_of(link.target) is not None:
                continue
            parents = {str(parent) for parent in PurePosixPath(path).parents}
            # The subfolders that are not entered are among the other names of the listing.
            leads_into_unread_subfolder = not parents.isdisjoint(self.moment.listing.others)
            if not leads_into_unread_subfolder:
                links.append(link)
        return links

    def _is_in_known_subfolder(self, target: str) -> bool:
        """Return whether a link leads into a subfolder that contains memories."""
        subfolder = str(path_below(target)).partition("/")[0]
        return any(name.startswith(f"{subfolder}/") for name in self.notes)

    def _earliest_time(self, name: str) -> CreationTime:
        """Return the earliest known time of a file: front matter, transcripts, git, file time."""
        candidates = []
        for key in ("created", "modified"):
            with suppress(ValueError):
                at, _ = moment_and_zone(self.notes[name].head.fields.get(key, "").strip())
                candidates.append(CreationTime(at, "front matter", name))
        if name in self.first_calls:
            candidates.append(CreationTime(self.first_calls[name], "transcripts", name))
        if name in self.first_commits:
            candidates.append(CreationTime(self.first_commits[name], "git", name))
        written_microseconds = self.moment.stamp_of(name).written // 1_000
        written = datetime.fromtimestamp(written_microseconds / 1e6, UTC)
        if not candidates or written.year > _YEAR_OF_MISSING_TIME:
            candidates.append(CreationTime(written, _FILE_TIME, name))
        return min(candidates, key=lambda candidate: candidate.at)

    def position(self, name: str) -> int:
        """Return the position of a file, derived from its creation time."""
        created = self.creation_times[name]
        milliseconds = int(created.at.timestamp() * 1_000)
        return position_from_timestamp(milliseconds, created.tie_breaker)

    @cached_property
    def index_texts(self) -> dict[str, dict[State, str]]:
        """The index text of each file, by the state of the lines.

        The text of a block counts for the first file that it names. A file with a loaded line has
        no cut text.
        """
        texts_by_file: dict[str, dict[State, str]] = {}
        for block, files in self.index.blocks_with_files(self.names):
            if block.state is State.UNSEEN:
                continue
            for number, name in enumerate(files):
                texts = texts_by_file.setdefault(name, {})
                text = readable(block.text) if number == 0 else ""
                texts[block.state] = texts.get(block.state, "") + text
        for texts in texts_by_file.values():
            if State.LOADED in texts:
                texts.pop(State.CUT, None)
        return texts_by_file

    @cached_property
    def report(self) -> dict[str, Any]:
        """The facts of the report, as JSON values."""
        index = self.index
        blocks_by_file = self.blocks_by_file
        retired = self.retired_files
        memories = self.notes.keys() - self.hubs.keys()
        reached = (self.hubs_of.keys() & memories) - blocks_by_file.keys() - set(retired)
        cut = []
        for block, files in index.blocks_with_files(self.names):
            if block.state is State.CUT and files:
                cut.append((block.number, readable(block.text.strip())))
        doubts = {name: self.notes[name].type.doubt for name in sorted(memories)}
        problems = {name: note.head.problem for name, note in self.notes.items()}
        others = self.moment.listing.others
        return {
            "folder": self.folder,
            "rule": {"lines": index.rule.lines, "units": index.rule.units},
            "lines": len(index.states),
            "loaded_lines": index.states.count(State.LOADED),
            "units": indexes.units_of(index.text),
            "loaded_units": indexes.units_of(index.loaded),
            "files": len(memories),
            "named": len(blocks_by_file.keys() & memories),
            "hubs": sorted(self.hubs),
            "reached": sorted(reached),
            # The memories that both the index and a hub name. No plan takes them.
            "held": sorted(self.hubs_of.keys() & blocks_by_file.keys() & memories),
            "cut": cut,
            "cut_files": sorted(index.cut_files(self.names)),
            "unnamed": [name for name in self.unlisted if name not in self.hubs],
            "below": self.below,
            "in_sub_folders": sum("/" in name for name in memories),
            "stores": self.stores,
            # The number of characters of the loaded index that belong to no memory.
            "apart": self.overhead_chars,
            "doubtful": {name: doubt for name, doubt in doubts.items() if doubt},
            "retired": retired,
            "dangling": [(link.line, readable(link.target)) for link in self.dead_links],
            "unsure_links": [(link.line, readable(link.target)) for link in self.unsure_links],
            "kept_by_name": list(self.documents),
            "without_type": self.without_type,
            "dated": dict(Counter(created.origin for created in self.creation_times.values())),
            "broken": {name: problem for name, problem in problems.items() if problem},
            "not_read": [name for name in others if not name.startswith(".memlab")],
            "pending": self.moment.is_pending,
            "sections": [_section_fields(section) for section in self.sections],
        }

    @property
    def sections(self) -> list[Section]:
        """The sections of an index that is itself the memory; empty if it is a list of files."""
        if not self.index.is_prose or self._lists_subfolders():
            return []
        return indexes.sections_of(self.index)

    def _lists_subfolders(self) -> bool:
        """Return whether most of the index names files in subfolders, such as hubs."""
        chars = 0
        chars_with_file = 0
        for block, files in self.index.blocks_with_files(self.all_names):
            if block.state is State.UNSEEN or indexes.is_heading(block.text):
                continue
            length = len(block.text.strip())
            chars += length
            if files:
                chars_with_file += length
        return chars <= 2 * chars_with_file

    def diagnostics(self, retired: Collection[str] = ()) -> list[Diagnostic]:
        """Return the problems that a person can fix: front matter, dangling links, cut lines.

        Also check that ``MEMORY.md`` or ``RETIRED.md`` names each memory in `retired`.
        """
        return [
            self._front_matter_diagnostic(),
            self._types_diagnostic(),
            self._links_diagnostic(),
            self._unlisted_diagnostic(),
            self._empty_headings_diagnostic(),
            self._cut_diagnostic(),
            self._sub_folders_diagnostic(),
            *self._hub_diagnostics(),
            *self._retired_diagnostics(retired),
        ]

    def _front_matter_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for front matter that is not valid YAML."""
        file_count = self.report["files"]
        broken = [f"{name} ({reason})" for name, reason in sorted(self.report["broken"].items())]
        return _diagnostic(
            "front_matter",
            broken,
            problem=(  # these words follow the number of `broken` files
                f"of {counted(file_count, 'files')} {verb_for(len(broken), 'have')} front matter "
                "that is not YAML and was read line by line"
            ),
            if_none=(
                f"{all_of(file_count, 'files')} {verb_for(file_count, 'have')} valid YAML front "
                "matter or none"
            ),
            advice="quote values that contain a colon or a bracket",
        )

    def _types_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for memories of a doubtful type."""
        file_count = self.report["files"]
        doubtful = [f"{name} ({reason})" for name, reason in self.report["doubtful"].items()]
        return _diagnostic(
            "types",
            doubtful,
            problem=(
                f"of {counted(file_count, 'files')} {verb_for(len(doubtful), 'have')} an unclear "
                f"type, and {verb_for(len(doubtful), 'count')} as load-bearing"
            ),
            if_none=(
                f"{all_of(file_count, 'files')} {verb_for(file_count, 'have')} a known type, or "
                "none"
            ),
            advice=SETTLE,
        )

    def _links_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for links of the index to missing files of the folder."""
        dangling = [f"line {number}: {target}" for number, target in self.report["dangling"]]
        return _diagnostic(
            "index_links",
            dangling,
            problem=(
                f"{_noun(dangling, 'links')} of {INDEX} {verb_for(len(dangling), 'lead')} to no "
                "file"
            ),
            if_none=self._sound_links_words(),
            advice=(
                f"restore the files, or run {command('index', self.folder)}: it removes lines that "
                "name no other file"
            ),
        )

    def _unlisted_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for memories to which neither the index nor a hub leads."""
        file_count = self.report["files"]
        unnamed = self.report["unnamed"]
        return _diagnostic(
            "unlisted",
            unnamed,
            problem=(
                f"of {counted(file_count, 'files')} {verb_for(len(unnamed), 'are')} named by "
                "nothing that a start loads"
            ),
            if_none=f"{INDEX} or a hub leads to {all_of(file_count, 'files')}",
            advice=f"{command('index', self.folder)} shows a line for each",
        )

    def _empty_headings_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for headings of the index with nothing below them."""
        numbers = indexes.find_empty_headings(self.index)
        headings = [self.index.blocks[number].text.strip() for number in numbers]
        return _diagnostic(
            "empty_headings",
            headings,
            problem=(
                f"{_noun(headings, 'headings')} of {INDEX} {verb_for(len(headings), 'have')} "
                "nothing below"
            ),
            if_none=f"no heading of {INDEX} is empty",
            advice=(
                f"{command('index', self.folder, '--empty-headings')} shows {INDEX} without them"
            ),
        )

    def _cut_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for files that are named below the loaded part of the index.

        If there is no such file, report the other lines below that part.
        """
        index = self.index
        named_count = self.report["named"]
        cut = self.report["cut_files"]
        if cut:
            problem = (
                f"of {counted(named_count, 'named files')} {verb_for(len(cut), 'are')} below the "
                "loaded part of the index"
            )
        else:
            cut = self._cut_lines()
            problem = (
                f"of {counted(self.report['lines'], 'lines')} of {INDEX} "
                f"{verb_for(len(cut), 'are')} below the part that is loaded"
            )
        diagnostic = _diagnostic(
            "index_cut",
            cut,
            problem=problem,
            if_none=f"the lines of {all_of(named_count, 'named files')} are loaded",
            advice=(
                f"{command('compact', self.folder, '--keep-recent', 'N', '--retire')} makes room; "
                f"{command('index', self.folder, '--log', 'LOG')} moves up the lines that were "
                "read most"
            ),
        )
        cut_chars = sum(len(texts.get(State.CUT, "")) for texts in self.index_texts.values())
        if not cut_chars:
            # No memory has text that is cut. All text below the loaded part counts instead.
            cut_chars = len(index.text) - len(index.loaded)
        return diagnostic._replace(chars_cut=cut_chars)

    def _cut_lines(self) -> list[str]:
        """Return the numbers, as words, of the lines that are not blank and not loaded."""
        return [
            f"line {block.number}"
            for block in self.index.blocks
            if block.state is State.CUT and block.text.strip()
        ]

    def _sound_links_words(self) -> str:
        """Return the sentence for an index without dead links. It names the unsure links."""
        no_dead_link = f"no link of {INDEX} leads to a missing file of the folder"
        unsure = [f"line {number}: {target}" for number, target in self.report["unsure_links"]]
        if not unsure:
            return no_dead_link
        count = f"{counted(len(unsure), 'links')} not found below the folder"
        return f"{no_dead_link}; {count}, perhaps documents of the project: {_first_of(unsure)}"

    def _sub_folders_diagnostic(self) -> Diagnostic:
        """Return the diagnostic for Markdown files in subfolders that are no memories."""
        if not self.is_placed:
            return _diagnostic(
                "sub_folders",
                self.below,
                problem=(
                    f"{_noun(self.below, 'Markdown files')} in sub-folders: not read, not counted"
                ),
                if_none="no Markdown file is in a sub-folder",
                advice=(
                    "move them up beside the index, and change their links, to have them counted, "
                    "sized and kept copies of"
                ),
            )
        without_type = [name for name in self.without_type if "/" in name]
        return _diagnostic(
            "sub_folders",
            without_type,
            problem=(
                f"{_noun(without_type, 'Markdown files')} in sub-folders without a name or a type: "
                "not read, not counted"
            ),
            if_none="no Markdown file in a sub-folder lacks a name or a type",
            advice=(
                "write name: NAME and type: project, or another type, into the front matter of "
                "those that are memories"
            ),
        )

    def _hub_diagnostics(self) -> list[Diagnostic]:
        """Return a diagnostic with the number of memories that hubs name, if there are hubs.

        It reports no problem.
        """
        if not self.hubs:
            return []
        hubs = counted(len(self.hubs), "hubs")
        reached = counted(len(self.report["reached"]))
        verb = verb_for(len(self.hubs), "name")
        summary = f"{hubs} {verb} {reached} that {INDEX} does not: {_first_of(list(self.hubs))}"
        return [Diagnostic(name="hubs", occurrences=0, summary=summary, advice="")]

    def _retired_diagnostics(self, retired: Collection[str]) -> list[Diagnostic]:
        """Return the diagnostic for retired memories without a line, if any memory is retired."""
        existing = sorted(name for name in retired if name in self.notes)
        if not existing:
            return []
        retired_with_line = self.retired_index.blocks_by_file(self.names).keys()
        named = self.blocks_by_file.keys() | retired_with_line
        missing = [name for name in existing if name not in named]
        reason = ""
        if RETIRED in self.moment.listing.others:
            reason = f", and {RETIRED} is a link or no ordinary file"
        return [
            _diagnostic(
                "retired_lines",
                missing,
                problem=(
                    f"{_noun(missing, 'retired memories')} {verb_for(len(missing), 'are')} named "
                    f"neither by {INDEX} nor by {RETIRED}{reason}"
                ),
                if_none=f"{INDEX} or {RETIRED} names {all_of(len(existing), 'retired memories')}",
                advice=(
                    f"{command('archive', self.folder)} lists the plans: memlab restore of the one "
                    "that retired them brings their lines back"
                ),
            )
        ]

    def extra_report(self) -> About:
        """Return the facts about the index, as JSON values and as a page."""
        tables = [table for table in self._tables() if table.rows]
        return About(TextPage(f"{INDEX} in {self.folder}", self._facts(), tables), self.report)

    def _facts(self) -> list[tuple[str, str]]:
        """Return the names and texts of the facts on the page about the index."""
        report = self.report
        origins = sorted(report["dated"].items())
        dated = ", ".join(f"{count:,} by {origin}" for origin, count in origins)
        files = counted(report["files"], "files")
        verb = verb_for(report["named"], "are")
        facts = [
            ("index", self._size_words()),
            ("limits", self._limits_words()),
            ("memories", f"{report['named']:,} of {files} {verb} named by a line"),
            ("dated", dated or "none"),
        ]
        for fact in _COUNTED_FACTS:
            value = report[fact.key]
            count = value if isinstance(value, int) else len(value)
            if count:
                words = fact.singular if count == 1 else fact.plural
                facts.append((fact.name, f"{count:,} {words}"))
        documents = self.documents
        if documents:
            facts.append(("kept", f"{len(documents):,} kept by name: {_first_of(documents)}"))
        untyped = report["without_type"]
        if untyped:
            explanation = "without a type of Claude Code's, which are no memories in such a folder"
            if self.is_placed:
                explanation = (
                    "in sub-folders without a name and a type, which are no memories there"
                )
            facts.append(("others", f"{len(untyped):,} {explanation}: {_first_of(untyped)}"))
        if report["pending"]:
            facts.append(("pending", "a change was interrupted; the next change undoes it first"))
        return facts

    def _size_words(self) -> str:
        """Return the numbers of loaded lines and characters of the index in words."""
        report = self.report
        lines = f"{report['loaded_lines']:,} of {counted(report['lines'], 'lines')}"
        verb = verb_for(report["loaded_lines"], "are")
        characters = f"{report['loaded_units']:,} of {counted(report['units'], 'characters')}"
        return f"{lines} {verb} loaded, {characters}"

    def _limits_words(self) -> str:
        """Return the largest part of an index that a start loads."""
        rule = self.index.rule
        lines = counted(rule.lines, "lines")
        return f"a start loads at most {lines} or {counted(rule.units, 'characters')}"

    def _tables(self) -> list[Table]:
        """Return the tables on the page about the index, with or without rows."""
        report = self.report
        unnamed = [(name,) for name in report["unnamed"]]
        doubtful = list(report["doubtful"].items())
        broken = list(report["broken"].items())
        sections = [_section_row(section) for section in report["sections"]]
        return [
            _table("lines that are cut", ("line", "text"), report["cut"]),
            _table("files that no line names", ("file",), unnamed),
            _table("types in doubt", ("file", "why"), doubtful),
            _table("lines whose file is not there", ("line", "link"), report["dangling"]),
            _table(
                "lines whose file is not below the folder: a document of the project, or gone",
                ("line", "link"),
                report["unsure_links"],
            ),
            _table("front matter that is not YAML", ("file", "why"), broken),
            Table(f"sections of {INDEX}", ("line", "section", "tokens", "cut"), sections),
        ]

    def orderings(self, reads: Mapping[str, int]) -> IndexOrderings:
        """List the files that the index would load with its entries in each order."""
        oldest_first = sorted(self.notes, key=self.position)
        written = {name: self.creation_times[name].at for name in oldest_first}
        rank = {name: number for number, name in enumerate(oldest_first)}
        sort_keys: dict[str, Callable[[str], int]] = {
            "newest first": lambda name: -rank[name],
            "oldest first": lambda name: rank[name],
            MOST_READ: lambda name: -reads.get(name, 0),
        }
        visible = self._files(self.index, _VISIBLE)
        files = {CURRENT_ORDER: visible}
        loaded_counts = {CURRENT_ORDER: len(self._files(self.index, _LOADED))}
        for order, key in sort_keys.items():
            files[order] = tuple(sorted(visible, key=key))
            loaded_counts[order] = len(self._files(self._reordered(key), _LOADED))
        return IndexOrderings(written, files, loaded_counts)

    def _files(self, index: MemoryIndex, states: Collection[State]) -> tuple[str, ...]:
        """Return the files that lines in one of `states` name, from top to bottom."""
        files = dict[str, None]()
        for block in index.blocks:
            if block.state in states:
                files.update(dict.fromkeys(block.files(self.names)))
        return tuple(files)

    def _reordered(self, key: Callable[[str], int]) -> MemoryIndex:
        """Return the index with its visible entries sorted by `key`; other blocks stay.

        The key of an entry is that of the first file that it names.
        """
        blocks = list(self.index.blocks)
        numbers = []
        for number, block in enumerate(blocks):
            if block.is_entry and block.state in _VISIBLE and block.files(self.names):
                numbers.append(number)
        entries = [blocks[number] for number in numbers]
        entries.sort(key=lambda block: key(block.files(self.names)[0]))
        for number, entry in zip(numbers, entries, strict=True):
            blocks[number] = entry
        texts = [block.text if block.text.endswith("\n") else f"{block.text}\n" for block in blocks]
        return MemoryIndex(indexes.encoded("".join(texts)), self.index.rule)


def _list_of_links(name: str, note: Note, names: FileNames) -> MemoryIndex | None:
    """Return a file as an index if it is a list of links to files of the folder, else None.

    Links to files of subfolders count if these files exist.
    """
    if note.links_listed is not None:
        return note.links_listed
    if note.paths_listed is None:
        return None
    listed = note.paths_listed.blocks_by_file(names.for_links_in(name)).keys()
    is_list = len(listed) >= LEAST_LINKS and any("/" in file for file in listed)
    return note.paths_listed if is_list else None


def _may_hold_files(path: str, parent: Folder) -> bool:  # noqa: ARG001 - the name decides
    """Return whether the Markdown files of a subfolder may be memories."""
    name = path.rpartition("/")[2]
    return not name.startswith(".") and name not in NOT_ENTERED


def _is_below(name: str) -> bool:
    """Return whether a path is that of a Markdown file in a subfolder."""
    return "/" in name and name.endswith(".md")


def has_index(parent: Folder, name: str) -> bool:
    """Return whether a subfolder has an index, so that it is a store of its own."""
    with suppress(OSError):  # it is no folder, or cannot be read
        return parent.status_of(f"{name}/{INDEX}") is not None
    return False


def with_retired(names: FileNames) -> FileNames:
    """Return the names of the files of a folder with ``RETIRED.md`` added."""
    return replace(names, files={*names.files, RETIRED})


def _diagnostic(
    name: str, affected: Sequence[str], *, problem: str, if_none: str, advice: str
) -> Diagnostic:
    """Return a diagnostic that counts the affected items and names the first of them.

    Parameters
    ----------
    name : str
        The name of the diagnostic.
    affected : sequence of str
        The affected items.
    problem : str
        The words after the number of affected items.
    if_none : str
        The summary if no item is affected.
    advice : str
        The advice to a person.
    """
    summary = if_none
    if affected:
        summary = f"{len(affected):,} {problem}: {_first_of(affected)}"
    return Diagnostic(name=name, occurrences=len(affected), summary=summary, advice=advice)


def _noun(items: Sequence[str], plural: str) -> str:
    """Return the singular of a noun if there is one item, else the plural."""
    return counted(len(items), plural).partition(" ")[2]


def _first_of(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of the remaining names."""
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


class _CountedFact(NamedTuple):
    """A fact of the report that counts files or other items.

    Attributes
    ----------
    name : str
        The name of the fact on the page.
    key : str
        The key of the items, or of their number, in :attr:`FolderView.report`.
    singular, plural : str
        The words after the number, for one item and for several.
    """

    name: str
    key: str
    singular: str
    plural: str


_COUNTED_FACTS: Final = (
    _CountedFact(
        name="hubs",
        key="hubs",
        singular=f"file is a list of links: index as {INDEX} is, and no memory",
        plural=f"files are lists of links: index as {INDEX} is, and no memories",
    ),
    _CountedFact(
        name="reached",
        key="reached",
        singular="file is named by a hub alone: opened on demand, no plan takes it",
        plural="files are named by a hub alone: opened on demand, no plan takes them",
    ),
    _CountedFact(
        name="unlisted",
        key="unnamed",
        singular="file that nothing names: no start leads to it",
        plural="files that nothing names: no start leads to them",
    ),
    _CountedFact(
        name="held",
        key="held",
        singular="file is named by a hub too, so no plan takes it",
        plural="files are named by a hub too, so no plan takes them",
    ),
    _CountedFact(
        name="doubtful",
        key="doubtful",
        singular=f"file counts as load-bearing; {SETTLE}",
        plural=f"files count as load-bearing; {SETTLE}",
    ),
    _CountedFact(
        name="retired",
        key="retired",
        singular=f"file, named by {RETIRED}",
        plural=f"files, named by {RETIRED}",
    ),
    _CountedFact(
        name="cut",
        key="cut_files",
        singular="named file is below the loaded part of the index",
        plural="named files are below the loaded part of the index",
    ),
    _CountedFact(
        name="below",
        key="below",
        singular="Markdown file in a folder below is not read as a memory",
        plural="Markdown files in folders below are not read as memories",
    ),
    _CountedFact(
        name="sub-folders",
        key="in_sub_folders",
        singular="memory is in a sub-folder",
        plural="memories are in sub-folders",
    ),
    _CountedFact(
        name="stores",
        key="stores",
        singular=f"sub-folder has {INDEX}: a store of its own, which is not counted here",
        plural=f"sub-folders have {INDEX}: stores of their own, which are not counted here",
    ),
    _CountedFact(
        name="not read",
        key="not_read",
        singular="link, folder or other file",
        plural="links, folders and other files",
    ),
    _CountedFact(
        name="sections",
        key="sections",
        singular=f"section of {INDEX}, which is itself the memory; read-only",
        plural=f"sections of {INDEX}, which is itself the memory; read-only",
    ),
)


def _table(heading: str, header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> Table:
    return Table(f"{heading}: {len(rows):,}", header, rows).first(_MAX_ROWS, "; --json lists all")


def corrected_by_lines(
    times: Mapping[str, CreationTime], files: Iterable[str]
) -> dict[str, CreationTime]:
    """Return creation times of files, with those of copied files corrected by the index.

    Copying a folder gives its files new times. A file counts as copied if it is dated by file time
    alone and was written in a batch. It gets the minute in which the batch began. But its time is
    at the latest just before that of the next newer file in the index that is not copied.

    Parameters
    ----------
    times : mapping of str to CreationTime
        The creation times by file.
    files : iterable of str
        The files in the order of the lines of the index.
    """
    corrected = dict(times)
    listed = [name for name in files if name in times]
    copied = _batch_starts(listed, times)
    newest_first = listed if _is_newest_first(listed, copied, times) else listed[::-1]
    # The latest time that a copied file can have: just before that of the next newer file that is
    # not copied.
    latest: datetime | None = None
    # Ties are counted from the newest file, so that deleting the oldest one changes no other tie.
    tie_counts: Counter[datetime] = Counter()
    for name in newest_first:
        if name not in copied:
            latest = shifted(times[name].at, timedelta(milliseconds=-1))
            continue
        at = copied[name] if latest is None else min(copied[name], latest)
        tie_counts[at] += 1
        # The newest of the files with one time gets -1, the older ones -2, -3 and so on.
        corrected[name] = CreationTime(at, f"line of {INDEX}", tie_breaker=-tie_counts[at])
    return corrected


def _batch_starts(files: Iterable[str], times: Mapping[str, CreationTime]) -> dict[str, datetime]:
    """Return the minute in which each batch of copied files began, by file.

    Only files that are dated by file time alone can be copies. Other files have no key.
    """
    candidates = [name for name in files if times[name].origin == _FILE_TIME]
    batch_starts: dict[str, datetime] = {}
    for earlier, later in pairwise(sorted(candidates, key=times.__getitem__)):
        if times[later].at - times[earlier].at <= _COPY_INTERVAL:
            minute = times[earlier].at.replace(second=0, microsecond=0)
            # The earlier file is in a batch already, or it is the first one of a new batch.
            batch_start = batch_starts.setdefault(earlier, minute)
            batch_starts[later] = batch_start
    return batch_starts


def _is_newest_first(
    files: Sequence[str], copied: Mapping[str, datetime], times: Mapping[str, CreationTime]
) -> bool:
    """Return whether newer lines are above older ones, judged by the files with known times.

    Parameters
    ----------
    files : sequence of str
        The files in the order of the lines of the index.
    copied : mapping of str to datetime
        The copied files, whose times are not known, with the time of the copy.
    times : mapping of str to CreationTime
        The creation times by file.
    """
    time_by_line = {}
    for line, name in enumerate(files):
        if name not in copied:
            time_by_line[line] = times[name].at
    # Each comparison is a vote; True stands for an index with the newest line on top.
    votes = [lower < upper for upper, lower in pairwise(time_by_line.values())]
    if copied:
        # A file that was written after the copy is nearer to the newer end than the copied files.
        copied_lines = [line for line, name in enumerate(files) if name in copied]
        middle_line = copied_lines[len(copied_lines) // 2]
        copied_at = max(copied.values())
        votes += [line < middle_line for line, at in time_by_line.items() if at > copied_at]
    return 2 * sum(votes) > len(votes)


def is_of_project(folder: Path) -> bool:
    """Return whether a folder is where Claude Code keeps the memory of a project."""
    return folder.parent.parent.name == PROJECTS


def first_calls(folder: Path) -> dict[str, datetime]:
    """Return the time of the first call that wrote each file, in the transcripts of all projects.

    All projects are read because a git worktree has transcripts of its own.
    """
    if not is_of_project(folder):
        return {}
    projects = folder.parent.parent
    by_folder = computed_once(("first calls", projects), lambda: _first_calls_by_folder(projects))
    times = by_folder.get(folder.parts[-_FOLDER_DEPTH:], {})
    return dict(times)


def _first_calls_by_folder(projects: Path) -> dict[tuple[str, ...], dict[str, datetime]]:
    """Return the time of the first call that wrote each file, by folder.

    A folder is given by the last parts of its path, from :data:`PROJECTS` on.
    """
    by_folder: dict[tuple[str, ...], dict[str, datetime]] = {}
    for path in transcript_files(projects, follow_links=False):
        with suppress(OSError):
            status = path.lstat()
            if not S_ISREG(status.st_mode):
                continue
            for call in _writing_calls(path, status.st_size, status.st_mtime_ns):
                times = by_folder.setdefault(call.folders, {})
                times[call.name] = min(call.at, times.get(call.name, call.at))
    return by_folder


@lru_cache(maxsize=2**16)
def _writing_calls(path: Path, size: int, written: int) -> list[_WritingCall]:  # noqa: ARG001 - part of the cache key
    """Return the calls of a transcript that wrote a file below a project."""

    def may_match(line: bytes) -> bool:
        return PROJECTS.encode() in line and _WRITING_CALL.search(line) is not None

    writing_calls: list[_WritingCall] = []
    for line in LineReader([path]).objects(path, may_match):
        at = moment(line.get("timestamp"))
        for call in calls_in(line):
            if at is None or call.tool not in WRITERS:
                continue
            file_path = str(call.arguments.get("file_path")).replace("\\", "/")
            parts = PurePosixPath(file_path).parts
            for start, part in enumerate(parts[:-_FOLDER_DEPTH]):
                if part == PROJECTS:
                    end = start + _FOLDER_DEPTH
                    folders = parts[start:end]
                    name = "/".join(parts[end:])
                    writing_calls.append(_WritingCall(folders, name, at))
    return writing_calls


def _section_fields(section: Section) -> dict[str, Any]:
    """Return a section as JSON values, with its number of tokens and of those that are cut."""
    tokens = ceil(len(section.text) / CHARS_PER_TOKEN)
    loaded_tokens = ceil(len(section.loaded) / CHARS_PER_TOKEN)
    return {
        "line": section.line,
        "title": readable(section.title),
        "tokens": tokens,
        "cut_tokens": tokens - loaded_tokens,
    }


def _section_row(fields: Mapping[str, Any]) -> tuple[int, str, int, str]:
    """Return the row of a section in the table of sections."""
    tokens = fields["tokens"]
    cut_tokens = fields["cut_tokens"]
    if not cut_tokens:
        cut = "–"
    elif cut_tokens == tokens:
        cut = "all"
    else:
        cut = f"{cut_tokens:,}"
    return fields["line"], fields["title"] or "(before the first heading)", tokens, cut
