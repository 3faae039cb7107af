"""Claude Code's memory: a folder of Markdown files, and ``MEMORY.md``, the index loaded at start.

A memory is active if the index names it; the lines that name it are its cost at start. A deletion
first removes the lines from the index and then the file, so that no line names a missing file.
Retiring moves the lines to ``RETIRED.md`` beside the index. People may edit both files.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from math import ceil
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from memlab.clock import file_clock, moment_of
from memlab.columns import LISTED, UNLISTED
from memlab.errors import ArchiveError, CompactionError, StalePlanError, StoreError
from memlab.items import CHARS_PER_TOKEN
from memlab.settings import Settings
from memlab.sources.base import About, Diagnostic, knows_losses
from memlab.sources.capabilities import (
    IndexMend,
    IndexMending,
    IndexOrderings,
    IndexUndone,
    Intake,
    Loss,
    MergedStart,
    StartIndex,
    Supersession,
    is_index_lost,
)
from memlab.sources.checkouts import Project
from memlab.sources.folder.change import MemoryParts, changed_folder
from memlab.sources.folder.files import FileCopy, Folder, Stamp
from memlab.sources.folder.git import CommittedFile, versions_of
from memlab.sources.folder.history import FolderHistory
from memlab.sources.folder.journal import FolderMoment, FolderRules
from memlab.sources.folder.source import (
    FolderMemory,
    FolderSource,
    FolderWriter,
    memory_in,
    record_of,
)
from memlab.sources.opening import find_below
from memlab.sources.readers import IndexWriter, Key, LinkChange, SupersedingWriter
from memlab.sources.reads import moment_of_seconds
from memlab.sources.reads import text as readable
from memlab.store.archive.content_copies import copies_in
from memlab.store.archive.index_versions import IndexVersion, digest_of
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import RetiredMemories
from memlab.store.records import with_place, without_place
from memlab.store.shapes import boolean, fields, integer, list_of, text
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.evidence import (
    EVIDENCE,
    has_claude_type,
    is_kept_by_name,
    is_memory,
    is_placed,
    may_hold_memories,
)
from memlab.systems.claude_code.hubs import list_of_links
from memlab.systems.claude_code.index import INDEX, RETIRED, IndexEntry, MemoryIndex, State
from memlab.systems.claude_code.markdown import (
    FileNames,
    FrontMatter,
    first_heading,
    mentions_in,
    name_in_link,
    read_front_matter,
    wikilinks_in,
)
from memlab.systems.claude_code.mend_undo import without_mend
from memlab.systems.claude_code.mending import Committed, Priorities, mended
from memlab.systems.claude_code.projects import project_of
from memlab.systems.claude_code.types import MemoryType, type_of
from memlab.systems.claude_code.view import (
    FolderView,
    Note,
    first_calls,
    has_index,
    is_of_project,
    with_retired,
)
from memlab.text import command, counted, in_shell

KINDS: Final[Mapping[str, str]] = {"user": "semantic", "feedback": "semantic"}
"""Kind of each type that holds instructions to an agent. Any other type is episodic."""

_EPISODIC: Final = "episodic"
_GUARDED: Final = "semantic"
"""Kind of a memory whose type is in doubt."""
_SUFFIX: Final = ".md"
_NO_INDEX: Final = ""
"""The key ``whole`` of a new or edited entry, which no earlier index contained as it is."""
_MAX_SIBLINGS: Final = 1_000
"""Maximum number of other projects that are compared with one."""
_SINCE_FORMAT_3: Final = ("index_state", "hubs")
"""Keys of the place of a memory that archives before format 3 do not allow."""
_PLACE: Final = fields(
    {
        "position": integer(),
        "said": list_of(indexes.check_entry),
        "loaded": boolean,
        **dict.fromkeys(("created_at", "dated", "at_start", "retired_at", "index_state"), text),
        **dict.fromkeys(("retired", "pointer"), list_of(indexes.check_entry)),
        **dict.fromkeys(("links", "hubs"), list_of(text)),
    },
    may_be_absent={"retired_at", "retired", "pointer", "index_state", "hubs"},
)
"""Check the place of a memory in a record, which is :attr:`FolderMemory.place`.

Three keys have index entries: ``said`` those of the memory in ``MEMORY.md``, ``retired`` those of
the memory in ``RETIRED.md``, and ``pointer`` those in ``MEMORY.md`` that link to ``RETIRED.md``.
"""


class MemoryMd(StartIndex):
    """The index ``MEMORY.md``, which a start loads up to a limit."""

    def __init__(self, source: "ClaudeCode") -> None:
        self.source = source

    def orderings(self, reads: Mapping[str, int]) -> IndexOrderings:
        """List the files that the index loads as it is, and those it would load in other orders."""
        return self.source.read_moment(lambda moment: self.source.view(moment).orderings(reads))

    def overhead_chars(self) -> int:
        """Return the number of characters of the loaded index that belong to no memory."""
        return self.source.read_moment(lambda moment: self.source.view(moment).overhead_chars)

    def is_unlisted(self, record: bytes) -> bool:
        """Return whether the index and the hubs all omit a memory."""
        return bool(json.loads(record)["place"].get("index_state") == UNLISTED)

    def relisted(self, record: bytes, older: bytes) -> bytes | None:
        """Return the record of a memory with the index entries of an older record; None if none."""
        entries = json.loads(older)["place"]["said"]
        if not entries:
            return None
        memory, file = memory_in(record)
        return record_of(_listed_by(memory, entries), file)

    @property
    def mending(self) -> IndexMending:
        """The ability to mend ``MEMORY.md``."""
        return MemoryMdMending(self.source)


class MemoryMdMending(IndexMending):
    """Planning and undoing a mend of ``MEMORY.md``."""

    def __init__(self, source: "ClaudeCode") -> None:
        self.source = source

    def planned(
        self,
        reads: Mapping[str, int],
        lost: Mapping[str, bytes],
        *,
        empty_headings: bool,
        reorder: bool,
    ) -> IndexMend:
        """Return the change that mends ``MEMORY.md``.

        The records in `lost` have the entries that unlisted memories had in an older ``MEMORY.md``.
        """
        lost_entries = {name: json.loads(record)["place"]["said"] for name, record in lost.items()}

        def plan(moment: FolderMoment) -> IndexMend:
            view = self.source.view(moment)
            committed = None
            if lost or moment.index is None:
                committed = self._committed(view)
            mend = mended(
                view,
                lost=lost_entries,
                committed=committed,
                empty_headings=empty_headings,
                priorities=Priorities(reads, self._load_bearing_in(moment)),
                reorder=reorder,
            )
            before = None if moment.index is None else moment.index.data
            after: bytes | None = mend.index.raw
            if not after and before is None:
                after = None
            return IndexMend(
                name=INDEX,
                before=before,
                after=after,
                lines=mend.lines,
                load_before=mend.before,
                load_after=mend.after,
            )

        return self.source.read_moment(plan)

    def _load_bearing_in(self, moment: FolderMoment) -> frozenset[str]:
        """Return the files of the load-bearing memories at a moment."""
        source = self.source
        return frozenset(
            str(key)
            for key, record in source.records_in(moment).items()
            if source.is_load_bearing(source.facts_of(record), if_invalid=True)
        )

    def _committed(self, view: FolderView) -> Committed | None:
        """Return the newest version of the index in git from before it was lost, else None.

        :func:`is_index_lost` decides this by the number of memories that a version names and that
        are unlisted now. A version that is not UTF-8 is skipped.
        """
        source = self.source
        if not source.external_history.is_tracked():
            return None
        unlisted = set(view.unlisted)
        listed_count = len(view.blocks_by_file.keys() - view.hubs.keys())
        for version in versions_of(source.path, INDEX):
            named = _parse_index(version.data, view.index.rule).blocks_by_file(view.names)
            is_lost = is_index_lost(len(unlisted & named.keys()), listed_count)
            if is_lost and _is_utf8(version.data):
                return Committed(version.data, f"{version.commit[:12]} of {version.at:%Y-%m-%d}")
        return None

    @contextmanager
    def changing(self) -> Iterator[IndexWriter]:
        """Open the folder for a change of ``MEMORY.md``, which is undone if the block raises."""
        self.source.check_exists()
        with changed_folder(self.source.path, self.source) as change:
            yield FolderWriter(self.source, change)

    def content(self) -> bytes | None:
        """Return the content of ``MEMORY.md``; None if there is no file."""

        def index_data(moment: FolderMoment) -> bytes | None:
            return None if moment.index is None else moment.index.data

        return self.source.read_moment(index_data)

    def without_change(self, before: bytes | None, after: bytes, current: bytes) -> IndexUndone:
        """Return the current ``MEMORY.md`` without the change from `before` to `after`."""
        names = self.source.read_moment(lambda moment: self.source.view(moment).names)
        return without_mend(before, after, current, names)


def _is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class ClaudeCode(FolderSource):
    """A memory folder of Claude Code."""

    scheme = "claude"
    own_settings = "claude"
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
    is_file_alone = True  # people may edit the lines of the index
    index_type = MemoryMd

    _restores_into_subfolders = False
    """Whether a copy that is opened to restore has files in subfolders."""

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        self._is_named_by_scheme = fspath(location).startswith(f"{self.scheme}:")
        self._rule = indexes.CLAUDE_CODE
        self._kinds = KINDS
        self._notes: dict[str, tuple[Stamp, Note]] = {}
        """Cache by file name. A file is read again only if its stamp has changed."""
        self._first_calls: dict[str, datetime] = {}
        """Time of the first call in a transcript that wrote each file, as of the last view."""
        self._aliases: Mapping[str, str] = {}
        """The aliases from front matter, as of the last view."""
        self._no_memories: Collection[str] = ()
        """The Markdown files that were no memories, as of the last view."""

    @property
    def name(self) -> str:
        """Absolute path of the folder, with the scheme if one was given.

        Symbolic links are resolved, with one exception: if only the given path is a memory location
        of Claude Code, it is the name. Opened by the resolved path, the folder would not count as
        such a location, nor its files without a type as memories.
        """
        if self._is_named_by_scheme:
            return super().name
        is_placed_by_link = is_placed(self.given_path) and not is_placed(self.path)
        return str(self.given_path if is_placed_by_link else self.path)

    def adjust(self, settings: Settings) -> None:
        """Apply the load rule and the kinds that the settings have for this folder."""
        own_settings = settings.claude
        self._rule = indexes.LoadRule(
            lines=own_settings.get("lines", self._rule.lines),
            units=own_settings.get("characters", self._rule.units),
        )
        self._kinds = {**self._kinds, **own_settings.get("kinds", {})}

    def memories(self, moment: FolderMoment) -> list[FolderMemory]:
        """Return the memories of the folder, without hubs and the index itself."""
        view = self.view(moment)
        names = view.names
        if moment.names_ever is not None:
            names = _cached_names(self.path, moment.names_ever)
        entries = indexes.entries_of(view.index, view.names)
        retired_entries = indexes.entries_of(view.retired_index, view.names)
        retirements = self.retired() if retired_entries else RetiredMemories()
        pointers = _pointers(view) if retirements else []
        memories = []
        for name in view.notes:
            if name in view.hubs and not self.is_for_restore:
                continue
            place = _place_in(view, name, names)
            retirement = retirements.at(key=name, memory_id=name)
            if retirement and name in retired_entries and name not in entries:
                place.pop("index_state", None)
                place["retired_at"] = retirement.retired_at.isoformat()
                place["retired"] = list(retired_entries[name])
                texts = (str(entry["text"]) for entry in retired_entries[name])
                place["at_start"] = "".join(readable(text) for text in texts)
                place["pointer"] = list(pointers)
            index_entries = entries.get(name, ())
            memory = FolderMemory(key=name, name=name, index_entries=index_entries, place=place)
            memories.append(memory)
        return memories

    def row(self, memory: FolderMemory, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row."""
        text = "" if file is None else file.data.decode(errors="replace")
        head = read_front_matter(text)
        stem = _stem_of(memory.key)
        type_name, doubt = _type_of(memory.key, text, head, self._kinds)
        hubs = memory.place.get("hubs")
        if hubs and memory.index_entries and not doubt:
            doubt = f"{hubs[0]} names it too: a link there would lead to no file"
        name = head.fields.get("name", "").strip()
        description = head.fields.get("description", "").strip()
        if name == stem:  # the key has it already
            name = ""
        title_parts = [part for part in (name, description) if part]
        title = ": ".join(title_parts or [stem])
        tags = [readable(type_name)] if type_name else []
        session = head.fields.get("originSessionId", "")
        index_state = None if "retired_at" in memory.place else state_in(memory)
        retired_at = memory.place.get("retired_at")
        return {
            "kind": self._kind_of(type_name, doubtful=bool(doubt)),
            "title": readable(title),
            "body": readable(text[head.text_at :].strip()),
            "tags_json": json.dumps(tags, ensure_ascii=False),
            "evidence_refs_json": json.dumps(memory.place["links"], ensure_ascii=False),
            # Sessions run in parallel: a later write in one session is not a return to the memory.
            "thread_id": session or None,
            "authored_by": "claude-code",
            "created_at": memory.place["created_at"],
            "active": bool(memory.index_entries),
            "index_state": index_state,
            "doubt": doubt or None,
            "at_start": memory.place["at_start"],
            "loaded_at_start": memory.place["loaded"],
            "retired_at": moment_of(retired_at) if retired_at else None,
        }

    def _kind_of(self, name: str, *, doubtful: bool) -> str:
        """Return the kind of a memory type; an episodic type in doubt counts as load-bearing."""
        kind = self._kinds.get(name, _EPISODIC)
        if doubtful and kind == _EPISODIC:
            return _GUARDED
        return kind

    def file_of(self, key: str) -> str:
        """Return the file name of a memory; empty if no memory can have that key."""
        return key if is_memory(key) else ""

    def includes(self, path: str, parent: Folder) -> bool:
        """Return whether the files of a subfolder belong to the folder.

        Only a memory location of Claude Code has memories in subfolders. A subfolder with an index
        is a store of its own; that limits what is read, but not what is restored.
        """
        if self.is_for_restore:
            return self._restores_into_subfolders and may_hold_memories(path)
        if not self.is_placed or not may_hold_memories(path):
            return False
        return not has_index(parent, path.rpartition("/")[2])

    @property
    def rules(self) -> type[FolderRules]:
        """The rules by which files of the past belong to the folder.

        This class has such rules itself. By them, no subfolder of the past belongs to the folder.
        """
        return _PlacedRules if self.is_placed else type(self)

    def for_restore(self, folder: Path | None = None, archive: Path | None = None) -> Self:
        """Return a copy of the source that is opened to restore from its archive."""
        restoring = super().for_restore(folder, archive)
        restoring._restores_into_subfolders = restoring.is_placed or restoring._has_archived_below()
        return restoring

    def _has_archived_below(self) -> bool:
        """Return whether the archive has a memory of a subfolder."""

        def has_memory_below(archive: OpenArchive) -> bool:
            names: list[str] = []
            for entry in archive.entries():
                names += [str(copy.key) for copy in archive.copies(entry)]
            names += [copy.memory_id for copy in copies_in(archive)]
            return any("/" in name for name in names)

        try:
            return self.archive.exists and self.archive.read(has_memory_below)
        except ArchiveError:
            return False

    def find_project(self) -> Project | None:
        """Return the project of the folder, by its transcripts or by its name."""
        return project_of(self.place_of_project())

    def siblings(self) -> Sequence["ClaudeCode"]:
        """Return the memory folders of the other projects beside this one that have memories."""
        own_folder = self.place_of_project()
        if not is_of_project(own_folder):
            return ()
        folders = sorted(own_folder.parent.parent.glob(f"*/{own_folder.name}"))
        others = [folder for folder in folders if folder != own_folder and _has_memory_file(folder)]
        return [ClaudeCode(folder) for folder in others[:_MAX_SIBLINGS]]

    def place_of_project(self) -> Path:
        """Return the path of the folder among those of the projects, before links are resolved."""
        return self.given_path if is_of_project(self.given_path) else self.path

    @property
    def retirement(self) -> "LineRetirement":
        """The ability to move index lines to ``RETIRED.md``."""
        return LineRetirement(self)

    @property
    def intake(self) -> "FileIntake":
        """The ability to take files of another folder, with their index lines."""
        return FileIntake(self)

    @property
    def external_history(self) -> "ClaudeCodeHistory":
        """The deleted files and the lost index lines that git knows."""
        return ClaudeCodeHistory(self)

    @staticmethod
    def titles(raw: bytes) -> dict[str, str]:
        """Return the label of the first link to each file in an index."""
        labels: dict[str, str] = {}
        for mention in mentions_in(raw.decode(errors="replace")):
            name = name_in_link(mention.target)
            if name is not None:
                labels.setdefault(name, mention.label)
        return labels

    def remove_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the index without the entries and links of the files in `index_entries`."""
        return indexes.remove_entries(
            raw, index_entries.keys(), self.names_with(index_entries, file_names)
        )

    def insert_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the index with the entries in `index_entries` restored."""
        return indexes.insert_entries(
            raw, index_entries, self.names_with(index_entries, file_names)
        )

    def are_entries_unchanged(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bool:
        """Return whether the entries of the files in `index_entries` are unchanged."""
        return indexes.are_entries_unchanged(
            raw, index_entries, self.names_with(index_entries, file_names)
        )

    def keys_with_entry(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> set[str]:
        """Return the files in `index_entries` that already have an entry of their own."""
        return (
            MemoryIndex(raw).files_with_entry(self.names_with(index_entries, file_names))
            & index_entries.keys()
        )

    def without_change(self, before: bytes, after: bytes, current: bytes) -> bytes:
        """Return the current index without the change from `before` to `after`."""
        return indexes.without_change(before, after, current)

    def names_with(
        self, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> FileNames:
        """Return the names by which links may refer to memories and files with entries."""
        memories = [
            name for name in file_names if is_memory(name) and name not in self._no_memories
        ]
        return indexes.names_of(index_entries, memories, self.path, self._aliases)

    def extra_report(self) -> About:
        """Return the report on the index."""
        return self.read_moment(lambda moment: self.view(moment).extra_report())

    def older_record(self, record: bytes) -> bytes:
        """Return a record without the keys that archive format 3 added."""
        place = json.loads(record)["place"]
        older = {key: value for key, value in place.items() if key not in _SINCE_FORMAT_3}
        if len(older) == len(place):
            return record
        return with_place(without_place(record), older)

    def diagnostics(self) -> list[Diagnostic]:
        """Return the diagnostics of front matter, index and retired memories."""
        retirements = self.retired()
        retired = set()
        for key, retirement in retirements.items():
            # `returned_at` is None if the plan that retired the memory was interrupted. It is
            # `retired_at` if no plan has returned the memory.
            has_not_returned = retirement.returned_at in (None, retirement.retired_at)
            if has_not_returned and retirements.at(key, str(key)):
                retired.add(str(key))
        of_view = self.read_moment(lambda moment: self.view(moment).diagnostics(retired))
        return [*of_view, self.read_moment(self._index_diagnostic)]

    def _index_diagnostic(self, moment: FolderMoment) -> Diagnostic:
        """Return the diagnostic for an index that is missing or omits most of the memories."""
        view = self.view(moment)
        unlisted = [name for name in view.unlisted if name not in view.hubs]
        listed_count = len(view.notes) - len(view.hubs) - len(unlisted)
        memories = counted(len(view.notes))
        if moment.index is None and self.history().index:
            checkout = in_shell("git", "-C", str(self.path), "checkout", "HEAD", "--", INDEX)
            mend = command("index", self.name)
            return Diagnostic(
                name="index",
                occurrences=1,
                summary=f"there is no {INDEX}, and git has one: no start loads any of {memories}",
                advice=f"bring it back: {checkout}, or {mend} with lines for what is new",
            )
        if moment.index is None and view.notes:
            return Diagnostic(
                name="index",
                occurrences=1,
                summary=f"there is no {INDEX}, so no start loads any of {memories}",
                advice=self._index_advice(),
            )
        if len(unlisted) > listed_count:
            count = counted(listed_count + len(unlisted))
            return Diagnostic(
                name="index",
                occurrences=1,
                summary=f"{INDEX} names no more than {listed_count:,} of {count}",
                advice=self._index_advice(),
            )
        return Diagnostic(
            name="index", occurrences=0, summary=f"{INDEX} leads to most of the memories", advice=""
        )

    def _index_advice(self) -> str:
        """Return the advice for an index that is missing or omits most of the memories."""
        if knows_losses(self):
            return (
                f"{command('lost', self.name)} lists what it named; {command('index', self.name)} "
                "restores these lines and adds one for each other file"
            )
        return (
            "it is not known whether it named more: the folder is not in git, and memlab has "
            f"no copies; {command('index', self.name)} shows a line for each file"
        )

    def view(self, moment: FolderMoment) -> FolderView:
        """Return the view of the folder at a moment.

        Raises
        ------
        StoreError
            If the folder is not one of Claude Code's and has no memories, but subfolders have.
        """
        files = {name: self._note(moment, name) for name in moment.names if is_memory(name)}
        notes = self._memories_among(files)
        if not moment.is_past:
            if not files and not self.is_placed and INDEX not in moment.names:
                self._check_no_store_below()
            self._first_calls = first_calls(moment.folder.path)
        others = {name: files[name] for name in sorted(files.keys() - notes.keys())}
        raw = b"" if moment.index is None else moment.index.data
        view = FolderView(
            folder=self.name,
            moment=moment,
            notes=notes,
            index=_parse_index(raw, self._rule),
            first_calls=self._first_calls,
            retired_index=_parse_index(_retired_bytes(moment), self._rule),
            first_commits=self.first_commits(moment),
            documents=tuple(filter(is_kept_by_name, others)),
            untyped={name: note for name, note in others.items() if not is_kept_by_name(name)},
            is_placed=self.is_placed,
        )
        if not moment.is_past:
            self._aliases = view.names.aliases
            self._no_memories = others.keys()
        return view

    def _check_no_store_below(self) -> None:
        """Raise StoreError if a subfolder is a store."""
        stores = find_below([self.path]).stores
        if stores:
            raise StoreError(
                f"there are no memories in {self.path}, but {counted(len(stores), 'stores')} "
                f"below it: open {stores[0].path}, or list all with memlab find {self.path}"
            )

    @cached_property
    def is_placed(self) -> bool:
        """Whether the folder is a default or configured memory location of Claude Code."""
        return is_placed(self.given_path) or is_placed(self.path)

    def _memories_among(self, files: Mapping[str, Note]) -> Mapping[str, Note]:
        """Return the files that are memories.

        In a memory location of Claude Code, every file except documents such as README.md is a
        memory; in its subfolders, only files with a name and a type of Claude Code are. Elsewhere,
        only files with such a type are. If no file has one, none in the archive had one, and the
        source was named with the scheme, every file except documents is a memory.
        """
        if self.is_for_restore:
            return files
        notes = {name: note for name, note in files.items() if not is_kept_by_name(name)}
        if self.is_placed:
            return {name: note for name, note in notes.items() if "/" not in name or note.is_signed}
        typed = {name: note for name, note in notes.items() if note.is_typed}
        if typed or not self._is_named_by_scheme or self._has_archived_type():
            return typed
        return notes

    def _has_archived_type(self) -> bool:
        """Return whether the archive has a memory with a type of Claude Code.

        Then the folder was known by types, although its last typed file may be deleted by now. An
        archive that cannot be read may have one.
        """

        def has_typed_memory(archive: OpenArchive) -> bool:
            for entry in archive.entries():
                for _, record in archive.records(entry):
                    text = self.content_for_digest(record).decode(errors="replace")
                    if has_claude_type(text):
                        return True
            return False

        try:
            return self.archive.exists and self.archive.read(has_typed_memory)
        except ArchiveError:
            return True

    def is_document(self, key: Key, record: bytes) -> bool:
        """Return whether an archived file would not count as a memory by the current rules."""
        name = str(key)
        if is_kept_by_name(name):
            return True
        if "/" not in name and (self.is_placed or self._is_named_by_scheme):
            return False
        return not has_claude_type(self.content_for_digest(record).decode(errors="replace"))

    def _note(self, moment: FolderMoment, name: str) -> Note:
        """Return the parsed content of a file, cached by its stamp."""
        stamp = moment.rely_on(name)
        if name in self._notes:
            cached_stamp, cached_note = self._notes[name]
            if cached_stamp == stamp:
                return cached_note
        text = moment.read(name).data.decode(errors="replace")
        head = read_front_matter(text)
        links_listed = list_of_links(text)
        paths_listed = links_listed
        if links_listed is None and self.is_placed:
            paths_listed = list_of_links(text, with_paths=True)
        note = Note(
            head=head,
            links=tuple(wikilinks_in(text)),
            links_listed=links_listed,
            paths_listed=paths_listed,
            type=_type_of(name, text, head, self._kinds),
            is_typed=has_claude_type(text, head),
            heading=first_heading(text[head.text_at :]),
        )
        self._notes[name] = (stamp, note)
        return note


@lru_cache(maxsize=8)
def _parse_index(raw: bytes, rule: indexes.LoadRule) -> MemoryIndex:
    """Return a parsed index, cached: a folder is viewed repeatedly and at many past moments."""
    return MemoryIndex(raw, rule)


@lru_cache(maxsize=1)
def _cached_names(folder: Path, names: frozenset[str]) -> FileNames:
    """Return the names for links in the files of a past moment, cached."""
    return FileNames(folder, names)


def _place_in(view: FolderView, name: str, names: FileNames) -> dict[str, Any]:
    """Return the place of a memory that is not retired, as it is stored in its record.

    Parameters
    ----------
    view : FolderView
        The folder.
    name : str
        The file of the memory.
    names : FileNames
        The names by which links in the memory refer to files.
    """
    links = [names.for_links_in(name).file_of(link) for link in view.notes[name].links]
    index_texts = view.index_texts.get(name, {})
    created = view.creation_times[name]
    place = {
        "position": view.position(name),
        "created_at": created.at.isoformat(),
        "dated": created.origin,
        "loaded": State.LOADED in index_texts,
        "at_start": "".join(index_texts.values()),
        "links": [link for link in dict.fromkeys(links) if link not in (None, name)],
    }
    index_state = view.index_state(name)
    if index_state:
        place["index_state"] = index_state
    hubs = view.hubs_of.get(name)
    if hubs:
        place["hubs"] = hubs
    return place


class _PlacedRules(FolderRules):
    """Rules by which files of the past belong to a memory location of Claude Code."""

    index_name = INDEX
    may_include = staticmethod(may_hold_memories)
    titles = staticmethod(ClaudeCode.titles)


class LineRetirement(Supersession):
    """Retirement by moving the index lines of a memory to ``RETIRED.md``."""

    def __init__(self, source: ClaudeCode) -> None:
        self.source = source

    @contextmanager
    def changing(self) -> Iterator[SupersedingWriter]:
        """Open the folder for retiring: index lines move to ``RETIRED.md`` and back."""
        with changed_folder(self.source.path, self.source) as change:
            yield RetiringWriter(self.source, change)

    def superseded_by(self, record: bytes) -> str | None:
        """Return the memory's own id if it is retired, else None.

        A memory that supersedes itself is a retired one, see :class:`Supersession`.
        """
        fields_of_record = json.loads(record)
        is_retired = bool(fields_of_record["place"].get("retired_at"))
        return str(fields_of_record["memory_id"]) if is_retired else None

    def returns_memories(self) -> bool:
        """Return whether ``MEMORY.md`` exists.

        If it is missing, returning a memory would create a new one.
        """
        return self.source.read_moment(lambda moment: moment.index is not None)

    def index_entries_of(self, record: bytes) -> str:
        """Return the entries of a memory in the index and ``RETIRED.md``, as JSON."""
        place = json.loads(record)["place"]
        return json.dumps({name: place.get(name, []) for name in ("said", "retired", "pointer")})


class FileIntake(Intake):
    """Taking files of another folder, with their lines of the index."""

    def __init__(self, source: ClaudeCode) -> None:
        self.source = source

    def names_in_use(self) -> Collection[str]:
        """Return the names of all files of the folder, links and documents included."""
        return self.source.read_moment(lambda moment: {*moment.names, *moment.listing.others})

    @cached_property
    def _names_at_first(self) -> frozenset[str]:
        """The names of all files when they were first asked for."""
        return frozenset(self.names_in_use())

    def reason_to_refuse(self, key: Key) -> str:
        """Return the reason why a memory of a subfolder cannot be put there; empty if it can."""
        subfolders = {str(parent) for parent in PurePosixPath(str(key)).parents[:-1]}
        if not subfolders:
            return ""
        if not self.source.is_placed:
            return "stays: the other folder has no memories in sub-folders"
        names_in_the_way = subfolders & self._names_at_first
        if names_in_the_way:
            name = min(names_in_the_way)
            return f"stays: {name} there is a store of its own, a link or a file"
        return ""

    def record_for(self, record: bytes) -> bytes:
        """Return the record of a memory with one index entry, which goes to the end of an index.

        The entry is the memory's own line, or a plain link if it has none. A memory that no index
        names, or that is retired, has no entry.
        """
        memory, file = memory_in(record)
        place = {name: memory.place[name] for name in ("position", "created_at", "dated", "links")}
        place["loaded"] = False
        place["at_start"] = ""
        entries = [_new_entry(memory.key, memory.index_entries)] if memory.index_entries else []
        return record_of(memory._replace(index_entries=entries, place=place), file)

    def reason_to_stay(self, record: bytes) -> str:
        """Return the reason why a memory cannot leave the folder; empty if it can.

        It needs a file. If a hub names it, it stays, because a link there would lead to no file.
        """
        memory, file = memory_in(record)
        if file is None:
            return "stays: it has no file"
        if memory.place.get("hubs"):
            return "stays: a hub names it"
        return ""

    def start_with(self, records: Sequence[bytes]) -> MergedStart:
        """Return the part of the index that a start would load with the lines of more memories."""
        entries = {}
        for record in records:
            memory, _ = memory_in(record)
            if memory.index_entries:
                entries[str(memory.key)] = memory.index_entries

        def start_at(moment: FolderMoment) -> MergedStart:
            view = self.source.view(moment)
            file_names = [*view.notes, *entries]
            raw = self.source.insert_entries(view.index.raw, entries, file_names)
            merged = MemoryIndex(raw, view.index.rule)
            return MergedStart(
                lines=len(merged.states) - merged.states.count(State.UNSEEN),
                loaded_lines=merged.states.count(State.LOADED),
                tokens=ceil(len(merged.loaded) / CHARS_PER_TOKEN),
                cut_now=len(view.report["cut_files"]),
                cut=len(merged.cut_files(self.source.names_with(entries, file_names))),
            )

        return self.source.read_moment(start_at)


def _new_entry(name: str, entries: Sequence[IndexEntry]) -> IndexEntry:
    """Return an entry that goes to the end of another index, with the memory's own line."""
    line = _line_of(name, entries)
    # The line must be an entry of the memory in another folder, too. For example, it is none
    # if its link has the path of this folder.
    names_elsewhere = FileNames(Path("/"), {name})
    files_with_entry = MemoryIndex(indexes.encoded(line)).files_with_entry(names_elsewhere)
    if name not in files_with_entry:
        line = _line_of(name, ())
    return {
        "line": 0,
        "text": line,
        "entry": True,
        "whole": _NO_INDEX,
        "files": [name],
        "above": [],
        "below": [],
    }


class ClaudeCodeHistory(FolderHistory):
    """The deleted files and the lost index lines that git knows."""

    source: ClaudeCode

    def iter_lost(self) -> Iterator[Loss]:
        """Yield the memories that are deleted or emptied since git, and lost index lines."""
        yield from super().iter_lost()
        source = self.source
        versions = versions_of(source.path, INDEX) if self.is_tracked() else []
        if versions:
            yield from source.read_moment(lambda moment: self._lost_lines(moment, versions))

    def _lost_lines(self, moment: FolderMoment, versions: Sequence[CommittedFile]) -> list[Loss]:
        """Return the memories that the index no longer names, from the newest version that does."""
        view = self.source.view(moment)
        memories = self.source.memories(moment)
        unlisted = {memory.name: memory for memory in memories if memory.name in view.unlisted}
        if not unlisted:
            return []
        listed_count = len(view.blocks_by_file.keys() - view.hubs.keys())
        for version in versions:
            index = _parse_index(version.data, view.index.rule)
            entries = indexes.entries_of(index, view.names)
            lost = [name for name in unlisted if name in entries]
            if is_index_lost(len(lost), listed_count):
                return [
                    _loss_of_line(moment, unlisted[name], entries[name], version) for name in lost
                ]
        return []


def _loss_of_line(
    moment: FolderMoment, memory: FolderMemory, entries: Sequence[Any], version: CommittedFile
) -> Loss:
    """Return the loss of the index lines of a memory; it dates from the index file's time."""
    at = None
    if INDEX in moment.names:
        at = moment_of_seconds(moment.stamp_of(INDEX).written // 1_000 / 1e6)
    return Loss(
        memory.name,
        record_of(_listed_by(memory, entries), moment.read(memory.name)),
        lost_at=at or version.at,
        written_at=version.at,
        commit=version.commit,
        is_unlisted=True,
    )


def _listed_by(memory: FolderMemory, entries: Sequence[Any]) -> FolderMemory:
    """Return a memory with other index entries, marked as listed by the index."""
    place = dict(memory.place)
    place["index_state"] = LISTED
    return memory._replace(index_entries=entries, place=place)


def state_in(memory: FolderMemory) -> str | None:
    """Return the index state of a memory; derive it if an older archive did not store it."""
    state: str | None = memory.place.get("index_state")
    if state is None and memory.index_entries:
        return LISTED
    return state


def _has_memory_file(folder: Path) -> bool:
    """Return whether a folder or a subfolder of it has a file that can be a memory."""
    for path, subfolders, files in os.walk(folder):
        prefix = "" if path == str(folder) else f"{os.path.relpath(path, folder)}/"
        if any(is_memory(f"{prefix}{name}") for name in files):
            return True
        subfolders[:] = sorted(name for name in subfolders if may_hold_memories(f"{prefix}{name}"))
    return False


def _stem_of(name: str) -> str:
    """Return the name of a file without its folder and its suffix."""
    return name.rpartition("/")[2].removesuffix(_SUFFIX)


def _type_of(name: str, text: str, head: FrontMatter, kinds: Mapping[str, str]) -> MemoryType:
    """Return the type of a memory file; it is in doubt in a subfolder named like another type."""
    memory_type = type_of(_stem_of(name), text, head, kinds)
    instruction_types = {type_name for type_name, kind in kinds.items() if kind != _EPISODIC}
    folders = instruction_types.intersection(part.lower() for part in name.split("/")[:-1])
    if folders and not memory_type.doubt and memory_type.name not in instruction_types:
        doubt = f"it lies in a folder {min(folders)}, and its type is {memory_type.name!r:.40}"
        return memory_type._replace(doubt=doubt)
    return memory_type


def _retired_bytes(moment: FolderMoment) -> bytes:
    """Return the content of ``RETIRED.md``; empty if it is missing or no ordinary file."""
    return moment.read(RETIRED).data if RETIRED in moment.names else b""


def _pointers(view: FolderView) -> list[IndexEntry]:
    """Return the index entries that link to ``RETIRED.md``."""
    entries = indexes.entries_of(view.index, with_retired(view.names))
    return list(entries.get(RETIRED, ()))


HEAD: Final = b"# Retired\n\nNot loaded at start. Look here when something is missing.\n\n"
POINTER: Final = f"- [Retired memories]({RETIRED}): not loaded at start\n"
check_planned_entries: Final = fields(
    {name: list_of(indexes.check_entry) for name in ("said", "retired", "pointer")}
)
"""Check the entries of a memory in a plan: in the index, in ``RETIRED.md``, and the pointer."""


class RetiringWriter(FolderWriter, SupersedingWriter):
    """Writer of a locked folder that retires memories and returns them."""

    source: ClaudeCode
    _retired_before: IndexVersion | None = None
    """``RETIRED.md`` before the change; None if no memory was retired or returned."""

    def supersede(self, change: LinkChange) -> int:
        """Move the index lines of memories to ``RETIRED.md``, or back.

        A memory returns if `change` clears its superseding memory; every other memory in `change`
        retires. When a plan is undone, lines return to exactly the places that they had before it.
        A line that was edited since keeps its edited text.

        Raises
        ------
        StoreError
            If ``RETIRED.md`` is a link or no ordinary file.
        StalePlanError
            If the entries of a planned memory have changed.
        CompactionError
            If the lines could not be moved.
        """
        state = self._state()
        if RETIRED in state.moment.listing.others:
            raise StoreError(
                f"{self._change.folder.path / RETIRED} is a link or no ordinary file; nothing was "
                "changed: put a file there, or take it away"
            )
        if change.planned is not None:
            self._check_planned(state, change.planned)
        entries_before = None if change.before is None else _checked(change.before)
        links = change.superseded_by
        if entries_before is not None and self._is_as_plan_left_it(state):
            self._restore_earlier(state, links, entries_before)
            return len(links)
        retiring = [str(key) for key, superseding in links.items() if superseding is not None]
        returning = [str(key) for key, superseding in links.items() if superseding is None]
        removed = {}
        for name in retiring:
            removed_entries = list(state.entries.get(name, ()))
            removed[name] = MemoryParts(file=None, index_entries=removed_entries)
        if entries_before is None:
            text, inserted = self._returned(state, returning, retiring)
        else:
            text, inserted = self._restored(state, returning, entries_before)
        text = _with_lines_of(text, retiring, state, entries_before or {})
        self._change_retired_file(state, text, removed, inserted, retiring, entries_before)
        self._retired_before = self._version_of_retired(state, removed, inserted)
        self._change.remove(removed)
        self._change.insert(inserted, are_new=entries_before is None)
        self._check_moved(retiring, returning)
        return len(links)

    def _is_as_plan_left_it(self, state: "_State") -> bool:
        """Return whether the index and ``RETIRED.md`` are as a plan left them.

        Both are then restored byte for byte, as they were before the plan.
        """
        retired_before = self.index_before.get(RETIRED)
        if self._earlier_index() is None or retired_before is None:
            return False
        file = state.retired_file
        content = None if file is None else file.data
        return digest_of(content) == retired_before.digest_after

    def _restore_earlier(
        self,
        state: "_State",
        links: Mapping[Key, str | None],
        entries_before: Mapping[str, Any],
    ) -> None:
        """Restore the index and ``RETIRED.md`` from before a plan, byte for byte."""
        retired_before = self.index_before[RETIRED]
        old_file = state.retired_file
        if old_file is not None:
            self._change.remove({RETIRED: MemoryParts(file=old_file, index_entries=None)})
        retiring = [str(key) for key, superseding in links.items() if superseding is not None]
        returning = [str(key) for key, superseding in links.items() if superseding is None]
        # The earlier index lacks the lines of the retiring memories. Nothing is inserted for them,
        # but the journal of the change names them.
        inserted = {name: MemoryParts(file=None, index_entries=None) for name in retiring}
        for name in returning:
            index_entries = entries_before.get(name, {}).get("said", [])
            inserted[name] = MemoryParts(file=None, index_entries=index_entries)
        if retired_before.data is not None:
            file = self._retired_file(state, old_file, retired_before.data)
            file = file._replace(written=retired_before.written)
            inserted[RETIRED] = MemoryParts(file=file, index_entries=None)
        self._change.insert(inserted, earlier=self.index_before[INDEX])
        self._check_moved(retiring, returning)

    def index_versions(self) -> list[IndexVersion]:
        """Return the index and the ``RETIRED.md`` that the change replaced."""
        versions = super().index_versions()
        if versions and self._retired_before is not None:
            versions.append(self._retired_before)
        return versions

    def _version_of_retired(
        self,
        state: "_State",
        removed: Mapping[str, MemoryParts],
        inserted: Mapping[str, MemoryParts],
    ) -> IndexVersion:
        """Return ``RETIRED.md`` before a change, with the digest of the file after it."""
        old_file = state.retired_file
        new_file = old_file
        if RETIRED in removed and removed[RETIRED].file is not None:
            new_file = None
        if RETIRED in inserted and inserted[RETIRED].file is not None:
            new_file = inserted[RETIRED].file
        return IndexVersion(
            name=RETIRED,
            data=None if old_file is None else old_file.data,
            written=0 if old_file is None else old_file.written,
            digest_after=digest_of(None if new_file is None else new_file.data),
        )

    def unlisted(self, before: Mapping[Key, str]) -> list[Key]:
        """Return the memories whose index lines are not back, ignoring changes of wording.

        A memory that had an entry of its own must have one again; any other memory must be named.
        A memory whose line is still unedited in ``RETIRED.md`` is not back either.
        """
        state = self._state()
        retired_texts = indexes.own_texts(state.retired_content, state.names)
        files_with_entry = state.index.files_with_entry(state.names)
        unlisted: list[Key] = []
        for name, entries_in_plan in _checked(before).items():
            entries: list[IndexEntry] = entries_in_plan["said"]
            texts = retired_texts.get(name, [])
            if name in files_with_entry:
                # The index has its entry, but the unedited line may still be in RETIRED.md, too.
                is_edited = bool(_edited_texts(texts, _line_of(name, entries)))
                is_unlisted = bool(texts) and not is_edited
            else:
                lines = indexes.encoded("".join(str(entry["text"]) for entry in entries))
                had_entry = name in MemoryIndex(lines).files_with_entry(state.names)
                is_unlisted = had_entry or name not in state.entries
            if is_unlisted:
                unlisted.append(name)
        return unlisted

    def _state(self) -> "_State":
        """Return the current state of the folder."""
        moment = self._now()
        view = self.source.view(moment)
        names = with_retired(view.names)
        return _State(moment, names, view.index, indexes.entries_of(view.index, names))

    def _check_planned(self, state: "_State", planned: Mapping[Key, str]) -> None:
        """Raise StalePlanError if the entries of a planned memory have changed."""
        records = self.source.records_in(state.moment)
        retirement = self.source.retirement
        for key, entries in planned.items():
            if key not in records or retirement.index_entries_of(records[key]) != entries:
                raise StalePlanError(
                    f"what {INDEX} says of {key} was changed while the plan was applied; nothing "
                    "was changed: make a new plan",
                    memory_ids=(str(key),),
                )

    def _returned(
        self, state: "_State", returning: Sequence[str], retiring: Sequence[str]
    ) -> tuple[bytes, dict[str, MemoryParts]]:
        """Return ``RETIRED.md`` without the returning memories, and their new index entries."""
        entries = indexes.entries_of(MemoryIndex(state.retired_content), state.names)
        inserted = {}
        for name in returning:
            line = _line_of(name, entries.get(name, ()))
            entry = _at_the_top(state.index, name, line, skip=retiring, names=state.names)
            inserted[name] = MemoryParts(file=None, index_entries=[entry])
        text = indexes.remove_entries(state.retired_content, returning, state.names)
        return text, inserted

    def _restored(
        self, state: "_State", returning: Sequence[str], entries_before: Mapping[str, Any]
    ) -> tuple[bytes, dict[str, MemoryParts]]:
        """Return ``RETIRED.md`` without the restored memories, and their old index entries.

        A line that was edited in ``RETIRED.md`` returns with its edited text. It stays in
        ``RETIRED.md`` if the index already has an entry of the memory.
        """
        retired_texts = indexes.own_texts(state.retired_content, state.names)
        files_with_entry = state.index.files_with_entry(state.names)
        inserted = {}
        moved = []
        entries: list[IndexEntry]
        for name in returning:
            entries = entries_before.get(name, {}).get("said", [])
            edited = _edited_texts(retired_texts.get(name, ()), _line_of(name, entries))
            if not (edited and name in files_with_entry):
                moved.append(name)
            if edited:
                entries = _with_texts(name, entries, edited)
            if not entries:
                line = _line_of(name, ())
                entries = [_at_the_top(state.index, name, line, skip=(), names=state.names)]
            inserted[name] = MemoryParts(file=None, index_entries=entries)
        # The entries of these memories that are in the index already stay as they are.
        self.entries_left = [name for name in returning if name in files_with_entry]
        text = indexes.remove_own_entries(state.retired_content, moved, state.names)
        return text, inserted

    def _change_retired_file(
        self,
        state: "_State",
        text: bytes,
        removed: dict[str, MemoryParts],
        inserted: dict[str, MemoryParts],
        retiring: Sequence[str],
        entries_before: Mapping[str, Any] | None,
    ) -> None:
        """Add the change of ``RETIRED.md``, and of its line in the index, to a change.

        If no retired memory is left, the file and its line are removed.

        Parameters
        ----------
        state : _State
            The folder before the change.
        text : bytes
            The new content of ``RETIRED.md``.
        removed, inserted : dict of str to MemoryParts
            What the change removes and inserts; this method adds to both.
        retiring : sequence of str
            The memories that the change retires.
        entries_before : mapping or None
            The entries from before the plan that is undone; None if none is undone.
        """
        old_file = state.retired_file
        pointer = list(state.entries.get(RETIRED, ()))
        old_pointer = _pointer_in(entries_before)
        unedited_texts = {str(entry["text"]).strip() for entry in old_pointer}
        unedited_texts.add(POINTER.strip())
        is_unedited = all(str(entry["text"]).strip() in unedited_texts for entry in pointer)
        if text.strip() == HEAD.strip() and is_unedited:
            if old_file or pointer:
                removed[RETIRED] = MemoryParts(file=old_file, index_entries=pointer)
            return
        if old_file is None or old_file.data != text:
            if old_file is not None:
                removed[RETIRED] = MemoryParts(file=old_file, index_entries=None)
            file = self._retired_file(state, old_file, text)
            inserted[RETIRED] = MemoryParts(file=file, index_entries=None)
        # If the pointer is missing while memories are retired, a person has removed it on purpose.
        # Undoing a plan leaves it so.
        stays_missing = old_file is not None and entries_before is not None
        if not pointer and not stays_missing:
            new_pointer = _at_the_top(
                state.index, RETIRED, POINTER, skip=retiring, names=state.names
            )
            new_file = inserted[RETIRED].file if RETIRED in inserted else None
            index_entries = old_pointer or [new_pointer]
            inserted[RETIRED] = MemoryParts(file=new_file, index_entries=index_entries)

    def _retired_file(self, state: "_State", old_file: FileCopy | None, text: bytes) -> FileCopy:
        """Return a ``RETIRED.md`` that has the mode and owner of the old file or of the index."""
        status = os.fstat(self._change.folder.handle)
        owner = (status.st_uid, status.st_gid)
        template = old_file or state.moment.index
        if template is None:
            template = FileCopy(RETIRED, data=b"", mode=0o600, written=0, owner=owner)
        return template._replace(name=RETIRED, data=text, written=file_clock())

    def _check_moved(self, retired: Iterable[str], returned: Iterable[str]) -> None:
        """Raise CompactionError if a memory's lines are not in the file where they should be."""
        state = self._state()
        named_in_retired = MemoryIndex(_retired_bytes(state.moment)).blocks_by_file(state.names)
        wrong = [name for name in retired if name in state.entries or name not in named_in_retired]
        wrong += [name for name in returned if name not in state.entries]
        if wrong:
            raise CompactionError(
                f"the lines of {wrong[0]} and {len(wrong) - 1:,} more could not be moved between "
                f"{INDEX} and {RETIRED} in {self._change.folder.path}; all was rolled back"
            )


@dataclass(frozen=True)
class _State:
    """The state of a folder, with its file names, index, and the index entries of each file."""

    moment: FolderMoment
    names: FileNames
    index: MemoryIndex
    entries: Mapping[str, Sequence[IndexEntry]]

    @property
    def retired_file(self) -> FileCopy | None:
        """The file ``RETIRED.md``; None if it does not exist."""
        return self.moment.read(RETIRED) if RETIRED in self.moment.names else None

    @property
    def retired_content(self) -> bytes:
        """The content of ``RETIRED.md``; its heading if it does not exist yet."""
        return _retired_bytes(self.moment) or HEAD


def _pointer_in(entries_before: Mapping[str, Any] | None) -> list[IndexEntry]:
    """Return the index entries that linked to ``RETIRED.md`` before a plan; empty if none did."""
    if entries_before is not None:
        for entries in entries_before.values():
            pointer: list[IndexEntry] = entries["pointer"]
            if pointer:
                return pointer
    return []


def _with_lines_of(
    text: bytes, retiring: Sequence[str], state: _State, entries_before: Mapping[str, Any]
) -> bytes:
    """Return ``RETIRED.md`` with the lines of memories, at their old places if they have any.

    Parameters
    ----------
    text : bytes
        The content of the file.
    retiring : sequence of str
        The memories.
    state : _State
        The folder before the change.
    entries_before : mapping
        The entries from before a plan that is undone, by memory.
    """
    index_texts = indexes.own_texts(state.index.raw, state.names)
    restored = {}
    new_lines = []
    for name in retiring:
        entries = entries_before.get(name, {}).get("retired", [])
        edited = _edited_texts(index_texts.get(name, ()), _line_of(name, entries))
        if not entries:
            new_lines.append(_line_of(name, state.entries.get(name, ())))
        elif edited:
            restored[name] = _with_texts(name, entries, edited)
        else:
            restored[name] = entries
    text = indexes.insert_entries(text, restored, state.names)
    if new_lines and not text.endswith(b"\n"):
        text += b"\n"
    text += indexes.encoded("".join(new_lines))
    # A file without a final line end stays so, so that undoing the change restores its bytes.
    if state.retired_content.endswith(b"\n"):
        return text if text.endswith(b"\n") else text + b"\n"
    return text.removesuffix(b"\n")


def _edited_texts(texts: Sequence[str], unedited: str) -> list[str]:
    """Return the texts of a memory's entries if one was edited; return none otherwise."""
    if any(text.strip() != unedited.strip() for text in texts):
        return list(texts)
    return []


def _with_texts(name: str, entries: Sequence[IndexEntry], texts: Sequence[str]) -> list[IndexEntry]:
    """Return the entries of a memory with other texts for the entries that name it alone."""
    own_entries = [entry for entry in entries if _is_entry_of(name, entry)]
    others = [entry for entry in entries if entry not in own_entries]
    template: dict[str, Any] = {
        "line": 0,
        "text": "",
        "entry": True,
        "files": [name],
        "above": [],
        "below": [],
    }
    if own_entries:
        template = dict(own_entries[0])
    edited: list[IndexEntry] = []
    for edited_text in texts:
        entry = dict(template)
        entry["text"] = edited_text
        # Entries that stood beside it find it by the digest of its text before the edit.
        entry["was"] = template["text"]
        entry["whole"] = _NO_INDEX
        edited.append(entry)
    return edited + others


def _is_entry_of(name: str, entry: IndexEntry) -> bool:
    """Return whether an index entry names one file and no other."""
    return bool(entry["entry"]) and list(entry["files"]) == [name]


def _line_of(name: str, entries: Sequence[IndexEntry]) -> str:
    """Return the line of a file for another index: its own entry, or a plain link.

    The line has no indentation. An indented line would be nested below the line before it.
    """
    for entry in entries:
        if _is_entry_of(name, entry):
            text = str(entry["text"]).lstrip(" \t")
            return text if text.endswith("\n") else f"{text}\n"
    return f"- [{name}](<{name}>)\n"


def _at_the_top(
    index: MemoryIndex, name: str, line: str, *, skip: Iterable[str], names: FileNames
) -> IndexEntry:
    """Return an entry to insert above the first remaining entry, so that the line is loaded.

    The line gets the indentation of that entry, which would otherwise be nested below it.
    """
    skipped = {RETIRED, *skip}
    remaining = [block for block in index.blocks if skipped.isdisjoint(block.files(names))]
    items = [block for block in remaining if block.is_item]
    not_blank = [block for block in remaining if block.text.strip()]
    text = line
    below = []
    if items or not_blank:
        following = items[0] if items else not_blank[0]
        first_line = indexes.lines_of(following.text)[0]
        below.append(indexes.digest_of(indexes.encoded(first_line)))
        if items:
            text = _indentation_of(first_line) + line
    return {
        "line": 0,
        "text": text,
        "entry": True,
        "whole": _NO_INDEX,
        "files": [name],
        "above": [],
        "below": below,
    }


def _indentation_of(line: str) -> str:
    """Return the white space at the beginning of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _checked(planned: Mapping[Key, str]) -> dict[str, Any]:
    """Return the index entries in a plan by file name; raise ArchiveError if they are malformed."""
    entries = {}
    for key, entries_json in planned.items():
        try:
            entries[str(key)] = json.loads(entries_json)
            check_planned_entries(entries[str(key)])
        except (ValueError, TypeError, RecursionError) as error:
            raise ArchiveError(
                f"the plan does not say where the lines of {key!r:.80} stood ({error}); nothing "
                "was restored: move them by hand"
            ) from error
    return entries
