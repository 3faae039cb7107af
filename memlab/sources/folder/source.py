"""Base classes of sources that are folders: ``FolderSource``, ``FolderWriter``, ``NotesSource``.

The record of a memory holds its file and its index entries, without their place in the index.
Notes are Markdown files in a folder and its subfolders, without an index.
"""

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path, PurePosixPath
from stat import S_IMODE
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from memlab.clock import file_clock
from memlab.errors import CompactionError, StalePlanError, StoreError
from memlab.files import FileMode
from memlab.sources import base, readers
from memlab.sources.folder.change import FolderChange, MemoryParts, changed_folder
from memlab.sources.folder.files import FILE_KEYS, FileCopy, is_file_path, opened_folder
from memlab.sources.folder.git import FileLifetime, GitHistory, PastMoment, history_of
from memlab.sources.folder.history import FolderHistory
from memlab.sources.folder.journal import FolderMoment, FolderRules, folder_moment, moment_now
from memlab.sources.reads import moment_of_seconds
from memlab.sources.reads import text as without_surrogates
from memlab.sources.recognition import Evidence, strongest
from memlab.store import records as stored
from memlab.store.archive.index_versions import IndexVersion, digest_of
from memlab.store.archive.kind import archive_of_kind
from memlab.store.shapes import (
    anything,
    boolean,
    digits,
    fields,
    integer,
    list_of,
    pair,
    text,
    text_or,
)
from memlab.store.snapshot import retry_if_changed
from memlab.text import TextPage, command, counted, failure_message

Result = TypeVar("Result")

_ID: Final = integer(0, 2**32 - 2)
"""Numeric id of a user or group. 2**32 - 1 is excluded: system calls use it for "no change"."""
_OWNER: Final = pair(_ID, _ID)
_BYTES: Final = text_or(text, fields({"text": digits}))
_FILE: Final = fields(
    {
        "name": text,
        "mode": integer(0, 0o7777),
        "written": integer(),
        "owner": _OWNER,
        "data": _BYTES,
    }
)
_PLACE: Final = fields({"position": integer(), "said": list_of(anything)}, others=anything)
_RECORD: Final = fields(
    {"memory_id": text, "index": list_of(_BYTES), "file": _FILE, "place": _PLACE},
    may_be_absent={"file"},
)

_DERIVED: Final = "\0"
"""Prefix of the key of a derived file, which is not a memory."""


class FolderMemory(NamedTuple):
    """A memory of a folder.

    Attributes
    ----------
    key : str
        Its key.
    name : str
        Path of its file in the folder; empty if it has none.
    index_entries : sequence
        Its entries in the index, as JSON values.
    place : dict
        Its position and other fields that do not belong to its content.
    """

    key: str
    name: str
    index_entries: Sequence[Any]
    place: dict[str, Any]


class FolderSource(base.FileSource, FolderRules):
    """A folder of memory files. Each kind of folder implements how its index is edited."""

    is_folder = True
    place: ClassVar["staticmethod[[Any], None]"]
    """Check of the place of a memory in a record."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Files that the system regenerates from the others."""
    is_file_alone: ClassVar[bool] = False
    """Whether a memory is its file alone, so that people may edit its index entries."""
    evidence: ClassVar[tuple[Evidence, ...]] = ()
    """Evidence by which such a folder is recognised."""
    is_for_restore: bool = False
    """Whether it is opened to restore from an archive. Then every file with a valid name is a
    memory, because the limits on deleting do not apply to restoring."""
    _missing_is_empty = False

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        self.given_path = self.path
        """Absolute path as it was given, with symbolic links."""
        self._recorded_archive: Path | None = None
        """The path of the archive that an archive recorded; None for the default one."""
        with suppress(OSError, ValueError, RuntimeError):  # opening the folder raises the error
            self.path = self.folder_in(self.path.resolve())

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, Any]) -> Path | None:
        """Return the folder at a path if there is evidence for this kind, else None."""
        match = cls.evidence_for(path, tables)
        if match is None:
            return None
        folder, _ = match
        return folder

    @classmethod
    def evidence_for(
        cls,
        path: Path,
        tables: Mapping[str, Any],  # noqa: ARG003 - a folder has none
    ) -> tuple[Path, Evidence] | None:
        """Return the folder at a path and the strongest evidence for this kind; None for none."""
        folder = cls.evidence_folder(path)
        if not folder.is_dir():
            return None
        evidence = strongest(cls.evidence, folder)
        if evidence is None:
            return None
        return folder, evidence

    @classmethod
    def evidence_folder(cls, path: Path) -> Path:
        """Return the folder in which to look for evidence of this kind, by a path."""
        return cls.folder_in(path)

    @property
    def archive_path(self) -> Path:
        """Path of the archive beside the folder, for memories of this kind."""
        if self._recorded_archive is not None:
            return self._recorded_archive
        return archive_of_kind(self.path, self.scheme)

    def for_restore(self, folder: Path | None = None, archive: Path | None = None) -> Self:
        """Return a copy of the source that is opened to restore from its archive.

        Parameters
        ----------
        folder, archive : Path, optional
            The paths of the memories and of their archive, if an archive recorded them.
        """
        restoring = copy(self)
        restoring.is_for_restore = True
        if folder is not None:
            restoring.path = folder
        restoring._recorded_archive = archive
        return restoring

    def check_exists(self) -> None:
        """Raise StoreError if the folder is missing and its archive exists."""
        if self.is_missing() and self.archive_path.is_file():
            raise StoreError(
                f"there is no folder {self.path} any more, but its archive is still beside it: "
                f"{command('lost', self.name)} lists what can be restored"
            )

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the memories in a parent folder that a person named."""
        return path

    def is_missing(self) -> bool:
        """Return whether the folder does not exist."""
        return "\0" not in str(self.path) and not os.path.lexists(self.path)

    def read_missing_as_empty(self) -> None:
        """Let :meth:`reading` treat a missing folder as empty, so that losses are found."""
        self._missing_is_empty = True

    @contextmanager
    def recreated_folder(self) -> Iterator[None]:
        """Create a missing folder to restore into, with permissions as narrow as its archive's."""
        if not self.is_missing():
            yield
            return
        archive_mode = 0o600
        if self.archive_path.exists():
            archive_mode = S_IMODE(self.archive_path.stat().st_mode)
        # Whoever may read the archive may list and enter the folder; its owner may do all.
        enter_bits = (archive_mode & 0o444) >> 2
        try:
            self.path.mkdir(mode=archive_mode | enter_bits | 0o700)
        except OSError as error:
            problem = f"the folder {self.path} cannot be made again, nothing was restored"
            advice = "that the folder above it is there"
            raise StoreError(failure_message(problem, error, advice)) from error
        try:
            yield
        except BaseException:
            with suppress(OSError):  # the folder is not empty
                self.path.rmdir()
            raise

    def files(self) -> list[Path]:
        """Return the paths of the files in the folder and in the subfolders that belong to it."""
        with opened_folder(self.path, self.includes) as folder:
            return [self.path / name for name in folder.listing().files]

    def narrowest_mode(self) -> int:
        """Return the permissions that all files have in common, for the group of the folder."""
        mode = 0o666
        with opened_folder(self.path, self.includes) as folder:
            group = os.fstat(folder.handle).st_gid
            for name in folder.listing().files:
                status = folder.status_of(name)
                if status is not None:
                    mode &= FileMode(status.st_mode & 0o666, status.st_gid).of(group)
        return mode

    def is_private(self, record: bytes, mode: int) -> bool:
        """Return whether a memory's file has narrower read permissions than `mode`."""
        _, file = memory_in(record)
        if file is None:
            return False
        denied_bits = mode & ~file.mode & 0o066  # rights of group and others that the file lacks
        return denied_bits != 0

    @abstractmethod
    def memories(self, moment: FolderMoment) -> list[FolderMemory]:
        """Return the memories of the folder at a moment."""

    def records_in(self, moment: FolderMoment) -> dict[readers.Key, bytes]:
        """Return the records of the memories of the folder by key."""
        records: dict[readers.Key, bytes] = {}
        for memory in self.memories(moment):
            records[memory.key] = self.record_in(memory, moment)
        return records

    def record_in(self, memory: FolderMemory, moment: FolderMoment) -> bytes:
        """Return the record of a memory of the folder at a moment."""
        if not memory.name:
            return record_of(memory, None)
        return record_of(memory, moment.read(memory.name))

    @abstractmethod
    def row(self, memory: FolderMemory, file: FileCopy | None) -> dict[str, Any]:
        """Return the columns of a memory's row that depend on the kind, see :meth:`row_of`."""

    @abstractmethod
    def file_of(self, key: str) -> str:
        """Return the path of a memory's file in the folder; empty if the key allows no file."""

    def check_place(self, memory: FolderMemory) -> None:
        """Raise ValueError if the place or the index entries in an archived record are invalid."""
        self.place(memory.place)

    @contextmanager
    def reading(self) -> Iterator[readers.Reader]:
        """Open the folder for reading at one moment; check for changes when the block ends."""
        if self.is_missing() and self._missing_is_empty:
            yield base.WholeReader(self, {})
            return
        self.check_exists()
        with folder_moment(self.path, self) as moment:
            yield base.WholeReader(self, self.records_in(moment))

    @contextmanager
    def changing(self) -> Iterator[readers.Writer]:
        """Open the folder for a change, which is undone if the block raises."""
        self.check_exists()
        with changed_folder(self.path, self) as change:
            yield FolderWriter(self, change)

    def read_moment(self, function: Callable[[FolderMoment], Result]) -> Result:
        """Return the result of a function of the folder at one moment.

        If the folder is written meanwhile, the function is called again, up to five times.
        """

        def call_once() -> Result:
            self.check_exists()
            with folder_moment(self.path, self) as moment:
                return function(moment)

        return retry_if_changed(call_once)

    def history(self) -> GitHistory:
        """Return the git history of the folder."""
        return history_of(self.path, self.rules)

    @property
    def rules(self) -> type[FolderRules]:
        """The rules by which files of the past belong to the folder."""
        return type(self)

    @property
    def external_history(self) -> FolderHistory:
        """The memories that git knows and that are no longer in the folder."""
        return FolderHistory(self)

    def first_commits(self, moment: FolderMoment) -> dict[str, datetime]:
        """Return the time of the first commit of each file that git tracks."""
        lifetimes: Iterable[FileLifetime] = self.history().lifetimes
        if isinstance(moment, PastMoment):
            lifetimes = moment.lifetimes.values()
        return {
            lifetime.name: lifetime.first_commit_at
            for lifetime in lifetimes
            if lifetime.first_commit_at is not None
        }

    def key_of(self, name: str) -> str:
        """Return the id of the memory in a file."""
        return name

    def content_for_digest(self, record: bytes) -> bytes:
        """Return the bytes of a memory's file; its index entries if it has no file."""
        _, file = memory_in(record)
        if file is None:
            return stored.without_place(record)
        return file.data

    def is_empty(self, record: bytes) -> bool:
        """Return whether a memory's file is empty but for white space."""
        return not self.content_for_digest(record).strip()

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row, body included."""
        memory, file = memory_in(record)
        row = {
            "position": memory.place["position"],
            "key": memory.key,
            "memory_id": memory.key,
            "confidence": 1.0,
        }
        row.update(self.row(memory, file))
        return row

    def check_record(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Raise ValueError if an archived record is not valid for such a folder."""
        stored.check_canonical(record, parsed)
        _RECORD(parsed)
        memory, file = memory_in(record)
        if memory.key != key:
            raise ValueError(f"it is a record of {memory.key!r:.80}")
        if file is not None:
            is_own_file = file.name == self.file_of(memory.key) and is_file_path(file.name)
            if not is_own_file:
                raise ValueError(f"it names {file.name!r:.80} as the file of {memory.key!r:.80}")
        self.check_place(memory)


class FolderWriter(base.WholeReader, readers.IndexWriter):
    """Writer of a folder that is locked."""

    likely_cause = "somebody else who writes to the folder"
    source: FolderSource

    def __init__(self, source: FolderSource, change: FolderChange) -> None:
        self.source = source
        self._change = change
        self._cached_state: object = None
        """The listing and the index of the last reading."""
        self._cached_records: dict[readers.Key, bytes] = {}
        """The records of the last reading."""
        self._counted_before_insertion = 0
        """Number of inserted memories that counted before, because an index entry existed."""
        self._keys_keeping_entries: Collection[readers.Key] = ()
        """Keys of memories whose index entries a deletion leaves unchanged."""
        self._parts_to_remove: dict[str, MemoryParts] = {}
        """The parts that a deletion removes, as they were when they were compared."""
        self._remaining_keys: Collection[readers.Key] = ()
        """Keys of memories that a deletion leaves in the folder."""

    @property
    def memories(self) -> dict[readers.Key, bytes]:  # type: ignore[override]
        """Records in the folder now, by key; cached while listing and index are unchanged."""
        moment = self._now()
        state = (moment.listing, moment.index)
        if self._cached_state != state:
            self._cached_records = self.source.records_in(moment)
            self._cached_state = state
        return self._cached_records

    def _now(self) -> FolderMoment:
        """Return the content of the folder at this moment."""
        return moment_now(self._change.folder, self.source)

    def _stale(self, expected: Mapping[readers.Key, str]) -> list[readers.Key]:
        """Return the keys of memories that no longer exist or changed since planning.

        The parts of the compared memories are recorded, because :meth:`_delete` may remove only
        these.
        """
        records = self.memories
        existing = {key: records[key] for key in expected if key in records}
        self._parts_to_remove = self._derived()
        for record in existing.values():
            memory, file = memory_in(record)
            entries = None if memory.key in self._keys_keeping_entries else memory.index_entries
            self._parts_to_remove[memory.key] = MemoryParts(file, entries)
        self._remaining_keys = records.keys() - expected.keys()
        stale = []
        for key, planned_fingerprint in expected.items():
            if key not in existing or stored.fingerprint_of(existing[key]) != planned_fingerprint:
                stale.append(key)
        return stale

    def _delete(self, expected: Mapping[readers.Key, str]) -> None:  # noqa: ARG002 - see _stale()
        self._change.remove(self._parts_to_remove)

    def _check_deleted(self, expected: Mapping[readers.Key, str], before: int) -> None:  # noqa: ARG002
        """Raise CompactionError unless exactly the expected memories were deleted.

        Memories that another program added meanwhile are allowed.
        """
        current_keys = self._keys()
        wrongly_deleted = set(self._remaining_keys) - current_keys
        not_deleted = expected.keys() & current_keys
        wrong = sorted(wrongly_deleted | not_deleted)
        if wrong:
            raise CompactionError(
                f"{wrong[0]} and {len(wrong) - 1:,} more would have been deleted or kept by "
                f"mistake in {self._change.folder.path}; all was rolled back: try again when no "
                "program writes there"
            )

    def _count(self) -> int:
        return len(self._keys())

    def _keys(self) -> set[readers.Key]:
        return {memory.key for memory in self.source.memories(self._now())}

    def conflicts(self, records: readers.Records) -> list[str]:
        """Return the existing files that have the names of memories to restore."""
        names = set(self._now().names)
        conflicts = []
        for _, record in records:
            _, file = memory_in(record)
            if file is not None and file.name in names:
                conflicts.append(f"file {file.name!r}")
        return conflicts

    def lacks_file(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory has its former index entries and only its file is missing."""
        current_fields = json.loads(current)
        archived_fields = json.loads(record)
        only_file_is_missing = "file" not in current_fields and "file" in archived_fields
        return only_file_is_missing and current_fields["index"] == archived_fields["index"]

    def _check_inserted(self, records: readers.Records, total: int) -> None:
        """Check the inserted memories; subtract those that counted before from the `total`."""
        super()._check_inserted(records, total - self._counted_before_insertion)

    def _insert(self, records: readers.Records) -> int:
        keys = self._keys()
        self._counted_before_insertion = sum(key in keys for key, _ in records)
        parts = {}
        for key, record in records:
            memory, file = memory_in(record)
            if file is not None:
                file = self._change.folder.with_owner_here(file)
            parts[str(key)] = MemoryParts(file, memory.index_entries)
        entries = {key: part.index_entries for key, part in parts.items() if part.index_entries}
        self.entries_left = self._keys_with_entry(entries)
        derived = self._derived()
        if derived:
            self._change.remove(derived)
        self._change.insert(parts, earlier=self._earlier_index())
        return len(parts)

    def is_index_as_left(self) -> bool:
        """Return whether the index is as the plan of :attr:`index_before` left it."""
        earlier = self.index_before.get(self.source.index_name)
        index = self._now().index
        if earlier is None or index is None:
            return False
        return digest_of(index.data) == earlier.digest_after

    def index_versions(self) -> list[IndexVersion]:
        """Return the index that the change replaced, as it was before."""
        version = self._change.index_version()
        return [] if version is None else [version]

    def index_now(self) -> IndexVersion:
        """Return the index of the folder as it is."""
        name = self.source.index_name
        index = self._now().index
        if index is None:
            return IndexVersion(name=name, data=None, written=0, digest_after="")
        return IndexVersion(name=name, data=index.data, written=index.written, digest_after="")

    def rewrite_index(self, data: bytes | None, *, digest: str, written: int | None = None) -> None:
        """Replace the index of the folder, or remove its file."""
        index = self._now().index
        content = None if index is None else index.data
        if digest_of(content) != digest:
            raise StalePlanError(
                f"{self._change.folder.path / self.source.index_name} was changed meanwhile; "
                "nothing was changed: make a new plan"
            )
        if data is None:
            if index is not None:
                self._change.remove({self.source.index_name: MemoryParts(index, None)})
            return
        new = IndexVersion(
            name=self.source.index_name,
            data=data,
            written=file_clock() if written is None else written,
            digest_after=digest_of(content or b""),
        )
        self._change.insert({}, earlier=new)

    def _earlier_index(self) -> IndexVersion | None:
        """Return the index from before a plan, if the index is as the plan left it."""
        earlier = self.index_before.get(self.source.index_name)
        if earlier is None or earlier.data is None:
            return None
        return earlier if self.is_index_as_left() else None

    def _keys_with_entry(self, entries: Mapping[str, Any]) -> list[str]:
        """Return the keys of memories that already have an index entry, sorted."""
        moment = self._now()
        raw = b"" if moment.index is None else moment.index.data
        file_names = {*moment.names, *entries}
        return sorted(self.source.keys_with_entry(raw, entries, file_names))

    def is_back(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory matches its record, except for owner and permissions.

        If the file alone is the memory, its index entries may differ.
        """
        return _comparable_fields(current, self.source) == _comparable_fields(record, self.source)

    def is_unchanged(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory and its index entries match an archived record."""
        has_same_entries = json.loads(current)["index"] == json.loads(record)["index"]
        return has_same_entries and self.is_back(current, record)

    def has_inserted_parts(self, current: bytes, record: bytes) -> bool:
        """Return whether a memory matches a restored record and has the restored entries."""
        entries = json.loads(record)["index"]
        has_same_entries = not entries or entries == json.loads(current)["index"]
        return has_same_entries and self.is_back(current, record)

    def missing_parts_of(self, records: readers.Records) -> list[tuple[readers.Key, bytes]]:
        """Return records without index entries that exist already, so that none is inserted."""
        if not self.source.is_file_alone:
            return list(records)
        entries = {}
        for key, record in records:
            memory, _ = memory_in(record)
            if memory.index_entries:
                entries[str(key)] = memory.index_entries
        self.entries_left = self._keys_with_entry(entries)
        keys_with_entry = set(self.entries_left)
        restored = []
        for key, record in records:
            if str(key) in keys_with_entry:
                memory, file = memory_in(record)
                restored.append((key, record_of(memory._replace(index_entries=()), file)))
            else:
                restored.append((key, record))
        return restored

    def delete_inserted_parts(
        self, expected: Mapping[readers.Key, str], records: readers.Records
    ) -> int:
        """Delete restored memories; index entries that were not restored with them stay.

        If :attr:`index_before` has the index from before and the index is as the insertion left
        it, that version is restored. Subfolders that are empty then are removed, because the
        insertion may have created them.
        """
        self._change.removes_empty_folders = True
        earlier = self.index_before.get(self.source.index_name)
        index = self._now().index
        if earlier is not None and index is not None and self.is_index_as_left():
            return self._delete_and_restore_index(expected, index, earlier)
        keys_keeping_entries = set()
        if self.source.is_file_alone:
            for key, record in records:
                memory, _ = memory_in(record)
                if key in expected and not memory.index_entries:
                    keys_keeping_entries.add(key)
        with self._keeping_entries_of(keys_keeping_entries):
            return self.delete(expected)

    @contextmanager
    def _keeping_entries_of(self, keys: Collection[readers.Key]) -> Iterator[None]:
        """Leave the index entries of memories unchanged while they are deleted."""
        self._keys_keeping_entries = keys
        try:
            yield
        finally:
            self._keys_keeping_entries = ()

    def _delete_and_restore_index(
        self, expected: Mapping[readers.Key, str], index: FileCopy, earlier: IndexVersion
    ) -> int:
        """Delete restored memories, and restore the index from before them byte for byte."""
        with self._keeping_entries_of([*expected]):
            deleted = self.delete(expected)
        if earlier.data is None:
            self._change.remove({f"{_DERIVED}{index.name}": MemoryParts(index, None)})
        else:
            self._change.insert({}, earlier=earlier)
        return deleted

    def replace(self, expected: Mapping[readers.Key, str], records: readers.Records) -> None:
        """Replace files by records; if the file alone is the memory, its index entries stay."""
        keys_keeping_entries = [*expected] if self.source.is_file_alone else []
        with self._keeping_entries_of(keys_keeping_entries):
            super().replace(expected, records)

    def _derived(self) -> dict[str, MemoryParts]:
        """Return the existing derived files, which a change removes."""
        moment = self._now()
        names = [name for name in self.source.derived if name in moment.names]
        return {f"{_DERIVED}{name}": MemoryParts(moment.read(name), None) for name in names}


def record_of(memory: FolderMemory, file: FileCopy | None) -> bytes:
    """Return the record of a memory: everything that deleting it removes."""
    entries = list(memory.index_entries)
    texts = [str(entry["text"]).encode("utf-8", "surrogateescape") for entry in entries]
    content: dict[str, Any] = {
        "memory_id": memory.key,
        "index": [bytearray(text) for text in texts],
    }
    if file is not None:
        content["file"] = {key: getattr(file, name) for name, key in FILE_KEYS.items()}
        content["file"]["data"] = bytearray(file.data)
    return stored.with_place(stored.encoded(content), {**memory.place, "said": entries})


def memory_in(record: bytes) -> tuple[FolderMemory, FileCopy | None]:
    """Return the memory and the file in a checked record."""
    content = json.loads(record)
    place = content["place"]
    file = content.get("file")
    memory = FolderMemory(
        key=content["memory_id"],
        name="" if file is None else file["name"],
        index_entries=place["said"],
        place=place,
    )
    if file is None:
        return memory, None
    data = file["data"]
    file["data"] = data.encode() if isinstance(data, str) else bytes.fromhex(data["text"])
    file["owner"] = tuple(file["owner"])
    return memory, FileCopy(**{name: file[key] for name, key in FILE_KEYS.items()})


def _comparable_fields(record: bytes, source: FolderSource) -> dict[str, Any]:
    """Return the fields of a record without owner and permissions, which depend on the folder."""
    content: dict[str, Any] = json.loads(stored.without_place(record))
    for name in ("mode", "owner"):
        content.get("file", {}).pop(name, None)
    if source.is_file_alone:
        del content["index"]
    return content


NOTE: Final = ".md"
"""File name suffix of notes."""
_TITLE_MARKS: Final = "#-*_=> \t\r"
"""Characters that Markdown puts around a title."""
_NOTE_PLACE: Final = fields(
    {
        "position": integer(),
        "said": list_of(anything, most=0),
        "created_at": text,
        "loaded": boolean,
        "judged": boolean,
    }
)


class NotesSource(FolderSource):
    """A folder of notes."""

    place = staticmethod(_NOTE_PLACE)

    @classmethod
    def is_note(cls, name: str) -> bool:
        """Return whether the file at a path in the folder is a note that may be deleted."""
        subfolder, _, last_name = name.rpartition("/")
        is_note_name = last_name.endswith(NOTE) and not last_name.startswith(".")
        return is_note_name and cls.may_include(subfolder)

    @abstractmethod
    def at_start(self, name: str, text: str) -> str | None:
        """Return the text that a start loads because of a note; None for the whole note."""

    def facts(self, moment: FolderMoment) -> dict[str, str]:
        """Return the facts of the report on the notes, by name."""
        names = moment.listing.others
        unread = [name for name in names if self.may_include(name) or self.is_note(name)]
        facts = {}
        if unread:
            count = counted(len(unread), "names")
            facts["not read"] = f"{count} of links or of what is no file, {unread[0]} first"
        if moment.is_pending:
            facts["pending"] = "a change was interrupted; the next change undoes it first"
        return facts

    def extra_report(self) -> base.About | None:
        """Return a report on unread files and on a pending change; None for nothing to report."""
        facts = self.read_moment(self.facts)
        if not facts:
            return None
        page = TextPage(f"notes in {self.name}", list(facts.items()))
        return base.About(page, facts)

    def row(self, memory: FolderMemory, file: FileCopy | None) -> dict[str, Any]:
        """Return a note as a row. The title is the first line, or the file name without one."""
        data = b"" if file is None else file.data
        note = without_surrogates(data.decode(errors="replace"))
        line, _, text_after_title = note.strip().partition("\n")
        title = line.strip(_TITLE_MARKS)
        body = text_after_title.strip()
        if not title:
            title = PurePosixPath(memory.key).stem
            body = note.strip()
        return {
            "kind": "episodic" if memory.place["judged"] else "semantic",
            "title": title,
            "body": body,
            "tags_json": "[]",
            "authored_by": self.scheme,
            "created_at": memory.place["created_at"],
            "at_start": self.at_start(memory.key, note),
            "loaded_at_start": memory.place["loaded"],
        }

    def file_of(self, key: str) -> str:
        """Return the key if it is the path of a note, else the empty string.

        No other file is ever restored from an archive.
        """
        return key if self.is_note(key) else ""


def creation_time_of(
    moment: FolderMoment, name: str, first_commits: Mapping[str, datetime]
) -> datetime:
    """Return the time of the first commit or of the last write of a file, the earlier one."""
    written_at = moment_of_seconds(moment.rely_on(name).written // 1_000 / 1e6)
    if written_at is None:  # the time is out of the range of datetime
        written_at = datetime.fromtimestamp(0, UTC)
    return min(written_at, first_commits.get(name, written_at))


def note_of(name: str, created: datetime, *, loaded: bool, prunable: bool) -> FolderMemory:
    """Return a note with a creation time; a note that is not `prunable` is load-bearing."""
    milliseconds = int(created.timestamp() * 1_000)
    place = {
        "position": base.position_from_timestamp(milliseconds, name),
        "created_at": datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(),
        "loaded": loaded,
        "judged": prunable,
    }
    return FolderMemory(key=name, name=name, index_entries=(), place=place)
