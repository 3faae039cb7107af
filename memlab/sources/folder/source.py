"""What folder sources share: a record is a file and its index lines, without their place.

Notes are folders of Markdown files, and of folders of these, with no index that names them.
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

from memlab.columns import COMMIT, DELETED_AT, WRITTEN_AT
from memlab.errors import CompactionError, StoreError
from memlab.files import FileMode
from memlab.sources import base
from memlab.sources.folder.change import FolderChange, Parts, changed_folder
from memlab.sources.folder.files import FILE_KEYS, FileCopy, is_file_path, opened_folder
from memlab.sources.folder.git import (
    History,
    LateError,
    PastMoment,
    blobs,
    history_of,
    note_late,
    past_moments,
)
from memlab.sources.folder.journal import FolderMoment, Index, folder_moment, moment_now
from memlab.sources.reads import moment_of_seconds
from memlab.sources.reads import text as readable
from memlab.sources.recognition import Evidence, strongest
from memlab.store import records as stored
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
from memlab.text import TextPage, command, counted

Result = TypeVar("Result")

_ID: Final = integer(0, 2**32 - 2)
"""Of a user or group; one more stands for nobody."""
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
    {"memory_id": text, "index": list_of(_BYTES), "file": _FILE, "place": _PLACE}, absent={"file"}
)
_OF_LOSS: Final = {DELETED_AT: "at", WRITTEN_AT: "since", COMMIT: "commit"}
"""Columns of what is gone, by what a loss calls them."""
_VERSIONS: Final = 500
"""Versions of one file that are read, at most, the oldest of them."""
_DERIVED: Final = "\0"
"""Begins the name of what is no memory: a file made from the others."""


class Found(NamedTuple):
    """A memory of a folder: its key, its file's name, and what the index says of it, as JSON."""

    key: str
    name: str
    said: Sequence[Any]
    place: dict[str, Any]


class FolderSource(base.FileSource, Index):
    """A folder of memory files: its index is edited by what a kind of folder knows of it."""

    is_folder = True
    place: ClassVar["staticmethod[[Any], None]"]
    """The shape of a memory's place in a record."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Files that the system makes anew from the others."""
    is_file_alone: ClassVar[bool] = False
    """Whether a memory is its file, and what the index says of it may be edited by a hand."""
    evidence: ClassVar[tuple[Evidence, ...]] = ()
    """What tells such a folder from others."""
    puts_back: bool = False
    """Whether it is opened to put back what an archive holds: then every file is a memory that can
    be one by its name, for what may be taken out limits nothing that may come back."""
    _missing_is_empty = False

    def __init__(self, where: str | PathLike[str]) -> None:
        super().__init__(where)
        self.given = self.path
        """The path as it was given, from the root, with its links."""
        self._pinned: Path | None = None
        with suppress(OSError, ValueError, RuntimeError):  # opening it says what is wrong with it
            self.path = self.folder_in(self.path.resolve())

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, Any]) -> Path | None:
        """Return the folder of a path for which there is evidence."""
        found = cls.evidence_for(path, tables)
        return None if found is None else found[0]

    @classmethod
    def evidence_for(
        cls,
        path: Path,
        tables: Mapping[str, Any],  # noqa: ARG003 - a folder has none
    ) -> tuple[Path, Evidence] | None:
        """Return the folder that a path means, and the strongest evidence for its kind."""
        folder = cls.folder_meant(path)
        if not folder.is_dir():
            return None
        found = strongest(cls.evidence, folder)
        return None if found is None else (folder, found)

    @classmethod
    def folder_meant(cls, path: Path) -> Path:
        """Return the folder that evidence is looked for in, where no scheme was given."""
        return cls.folder_in(path)

    @property
    def archive(self) -> Path:
        """The archive beside the folder that holds memories of this kind."""
        return self._pinned or archive_of_kind(self.path, self.scheme)

    def putting_back(self, folder: Path | None = None, archive: Path | None = None) -> Self:
        """Return it as it is opened to put back what its archive holds.

        Parameters
        ----------
        folder, archive : Path, optional
            Where the memories and their archive are, where an archive says so.
        """
        twin = copy(self)
        twin.puts_back = True
        if folder is not None:
            twin.path = folder
        twin._pinned = archive
        return twin

    def check_there(self) -> None:
        """Check that the folder is there, where more is known than that it is not."""
        if self.is_missing() and self.archive.is_file():
            raise StoreError(
                f"there is no folder {self.path} any more, and beside it lies its archive: "
                f"{command('lost', self.name)} says what that can bring back"
            )

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the folder of the memories, where one around it was named."""
        return path

    def is_missing(self) -> bool:
        """Return whether the folder is not there."""
        return "\0" not in str(self.path) and not os.path.lexists(self.path)

    def read_missing_as_empty(self) -> None:
        """Let :meth:`reading` find nothing where the folder is not there, to see what is lost."""
        self._missing_is_empty = True

    @contextmanager
    def made_again(self) -> Iterator[None]:
        """Make a folder that is not there, no more open than its archive, to restore into."""
        if not self.is_missing():
            yield
            return
        archived = S_IMODE(self.archive.stat().st_mode) if self.archive.exists() else 0o600
        may_enter = (archived & 0o444) >> 2
        self.path.mkdir(mode=archived | may_enter | 0o700)
        try:
            yield
        except BaseException:
            with suppress(OSError):  # there is something in it
                self.path.rmdir()
            raise

    def files(self) -> list[Path]:
        """Return the files in the folder, and in those below that belong to it."""
        with opened_folder(self.path, self.enters) as folder:
            return [self.path / name for name in folder.listing().files]

    def narrowest_mode(self) -> int:
        """Return the permissions that everybody has on each file, and in whatever group it is."""
        mode = 0o666
        with opened_folder(self.path, self.enters) as folder:
            group = os.fstat(folder.handle).st_gid
            for name in folder.listing().files:
                found = folder.status_of(name)
                if found is not None:
                    mode &= FileMode(found.st_mode & 0o666, found.st_gid).of(group)
        return mode

    def is_private(self, record: bytes, mode: int) -> bool:
        """Return whether fewer people may read a memory's file than one with these permissions."""
        file = memory_in(record)[1]
        return file is not None and bool(mode & ~file.mode & 0o066)

    @abstractmethod
    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the memories of a folder."""

    def records_in(self, moment: FolderMoment) -> dict[base.Key, bytes]:
        """Return the records of the memories of a folder by key."""
        return {
            each.key: record_of(each, moment.read(each.name) if each.name else None)
            for each in self.memories(moment)
        }

    @abstractmethod
    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return what is a kind's own of a memory's row, see :meth:`row_of`."""

    @abstractmethod
    def file_of(self, key: str) -> str:
        """Return the name that a memory's file has; empty where it can have none."""

    def check_place(self, found: Found) -> None:
        """Check what an archive's record says of a memory's place, and of its index."""
        self.place(found.place)

    @contextmanager
    def reading(self) -> Iterator[base.Reader]:
        """Open the folder at one moment; what was read is looked at again at the end."""
        if self.is_missing() and self._missing_is_empty:
            yield base.WholeReader(self, {})
            return
        self.check_there()
        with folder_moment(self.path, self) as moment:
            yield base.WholeReader(self, self.records_in(moment))

    @contextmanager
    def changing(self) -> Iterator[base.Writer]:
        """Open the folder for a change that lasts when the block ends, and not where it raises."""
        self.check_there()
        with changed_folder(self.path, self) as change:
            yield FolderWriter(self, change)

    def seen(self, look: Callable[[FolderMoment], Result]) -> Result:
        """Return what a look at the folder finds; look again, up to five times, if it changes."""

        def once() -> Result:
            self.check_there()
            with folder_moment(self.path, self) as moment:
                return look(moment)

        return retry_if_changed(once)

    def history(self) -> History:
        """Return what git knows of the folder."""
        return history_of(self.path, type(self))

    def born(self, moment: FolderMoment) -> dict[str, datetime]:
        """Return when the files of a moment were first committed, as far as git knows them."""
        lives = moment.lives.values() if isinstance(moment, PastMoment) else self.history().lives
        return {life.name: life.born for life in lives if life.born is not None}

    def former_names(self) -> list[base.FormerName]:
        """Return the ids that memories had before git saw them renamed."""
        lives = self.history().lives
        taken = {life.name for life in lives}
        found = []
        for life in lives:
            for name, until in life.former:
                former = self.key_of(name)
                current = self.key_of(life.name)
                is_free = name not in taken and not os.path.lexists(self.path / name)
                if former != current:
                    found.append(base.FormerName(former, current, until, is_free))
        return found

    def text_versions(self, keys: Iterable[str]) -> Iterator[tuple[str, list[base.TextVersion]]]:
        """Yield for each memory the texts that git has of it, oldest first."""
        lives = {self.key_of(life.name): life for life in self.history().lives}
        with blobs(self.path) as content:
            for key in keys:
                if key not in lives:
                    continue
                found = []
                for at, commit, blob in reversed(lives[key].versions[-_VERSIONS:]):
                    data = content(blob)
                    if data is not None:
                        words = data.decode(errors="replace")
                        found.append(base.TextVersion(at, commit, words))
                yield key, found

    def births(self) -> dict[str, str]:
        """Return for each memory the commit that first had it."""
        lives = self.history().lives
        return {self.key_of(each.name): each.versions[-1][1] for each in lives if each.versions}

    def last_changed(self, key: str) -> datetime | None:
        """Return when a memory's file was last written."""
        name = self.file_of(key)
        with suppress(OSError, ValueError):
            return moment_of_seconds((self.path / name).lstat().st_mtime) if name else None
        return None

    def key_of(self, name: str) -> str:
        """Return the id of the memory that a file holds."""
        return name

    def iter_deleted_elsewhere(self, *, with_body: bool) -> Iterator[base.Rows]:
        """Yield what was committed to git and is not there any more."""
        for some in stored.batched(self._gone()):
            others = {name: [getattr(each, own) for each in some] for name, own in _OF_LOSS.items()}
            rows = [self.row_of(each.record) for each in some]
            yield base.rows_of_each(rows, with_body=with_body, others=others)

    def iter_lost(self) -> Iterator[base.Loss]:
        """Return what was committed to git and is not there any more, or has no words any more.

        What was moved out of the store is among it, with where it is now.
        """
        # What git cannot read, or was empty all along, is no loss.
        return (each for each in self._gone(emptied=True) if not self.is_empty(each.record))

    def _gone(self, *, emptied: bool = False) -> Iterator[base.Loss]:
        """Yield what git keeps and is not there; where git stops answering, none of it counts."""
        try:
            yield from self._gone_by_git(emptied=emptied)
        except LateError as error:
            raise StoreError(note_late(self.path, error).missing) from error

    def _gone_by_git(self, *, emptied: bool) -> Iterator[base.Loss]:
        history = self.history()
        if not history.lives:
            return
        with folder_moment(self.path, self) as now, blobs(self.path) as content:
            for then in past_moments(now, history, content, emptied=emptied):
                for found in (each for each in self.memories(then) if each.name):
                    life = then.lives[found.name]
                    yield base.Loss(
                        key=found.key,
                        record=record_of(found, then.read(found.name)),
                        at=life.taken,
                        since=life.written,
                        commit=life.commit,
                        is_emptied=life.is_there,
                        moved_to=life.moved_to,
                        perhaps=life.perhaps,
                    )

    def content_for_digest(self, record: bytes) -> bytes:
        """Return the bytes of its file; of a memory that has none, its lines."""
        file = memory_in(record)[1]
        return stored.without_place(record) if file is None else file.data

    def is_empty(self, record: bytes) -> bool:
        """Return whether its file has nothing in it."""
        return not self.content_for_digest(record).strip()

    def knows_gone(self) -> bool:
        """Return whether git knows of memories that are not there any more."""
        return next(self._gone(), None) is not None

    def is_tracked(self) -> bool:
        """Return whether git keeps it."""
        return bool(self.history().lives)

    def past_note(self) -> str:
        """Return what git cannot say of the folder, and why."""
        return self.history().missing

    def past_is_read(self) -> bool:
        """Return whether git answered in time."""
        return self.history().is_read

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return a memory as a row, body included."""
        found, file = memory_in(record)
        place = found.place["position"]
        key = found.key
        own = self.row(found, file)
        return {"position": place, "key": key, "memory_id": key, "confidence": 1.0, **own}

    def check_record(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of such a folder can have a record."""
        stored.check_canonical(record, said)
        _RECORD(said)
        found, file = memory_in(record)
        if found.key != key:
            raise ValueError(f"it is a record of {found.key!r:.80}")
        if file and not (file.name == self.file_of(found.key) and is_file_path(file.name)):
            raise ValueError(f"it names {file.name!r:.80} as the file of {found.key!r:.80}")
        self.check_place(found)


class FolderWriter(base.WholeReader, base.Writer):
    """A folder that is locked and being changed."""

    likely_cause = "somebody else who writes to the folder"
    source: FolderSource

    def __init__(self, source: FolderSource, change: FolderChange) -> None:
        self.source = source
        self._change = change
        self._known: tuple[object, dict[base.Key, bytes]] | None = None
        self._entered_before = 0
        self._entries_stay: Collection[base.Key] = ()

    @property
    def memories(self) -> dict[base.Key, bytes]:  # type: ignore[override]
        """What is in the folder now; of a moment like the last it is known."""
        moment = self._now()
        seen = moment.listing, moment.index
        if self._known is None or self._known[0] != seen:
            self._known = seen, self.source.records_in(moment)
        return self._known[1]

    def _now(self) -> FolderMoment:
        return moment_now(self._change.folder, self.source)

    def _stale(self, expected: Mapping[base.Key, str]) -> list[base.Key]:
        """Keep the files that were compared: no other may be moved out."""
        there = self.memories
        self._leaving = self._derived()
        for found, file in (memory_in(there[key]) for key in expected if key in there):
            said = None if found.key in self._entries_stay else found.said
            self._leaving[found.key] = Parts(file, said)
        self._stay = there.keys() - expected.keys()
        prints = {key: stored.fingerprint_of(there[key]) for key in expected if key in there}
        return [key for key, planned in expected.items() if prints.get(key) != planned]

    def _delete(self, expected: Mapping[base.Key, str]) -> None:  # noqa: ARG002 - as they were compared
        self._change.take_out(self._leaving)

    def _check_deleted(self, expected: Mapping[base.Key, str], before: int) -> None:  # noqa: ARG002
        """Check that just these went; what somebody wrote meanwhile may be there."""
        now = self._keys()
        if wrong := sorted((self._stay - now) | (expected.keys() & now)):
            raise CompactionError(
                f"{wrong[0]} and {len(wrong) - 1:,} more would have gone or stayed by mistake in "
                f"{self._change.folder.path}; all was taken back: try again when nobody writes"
            )

    def _count(self) -> int:
        return len(self._keys())

    def _keys(self) -> set[base.Key]:
        return {each.key for each in self.source.memories(self._now())}

    def conflicts(self, records: base.Records) -> list[str]:
        """Say which files are there under the names of memories that come back."""
        here = set(self._now().names)
        files = (memory_in(record)[1] for _, record in records)
        return [f"file {file.name!r}" for file in files if file is not None and file.name in here]

    def lacks_file(self, there: bytes, record: bytes) -> bool:
        """Return whether an index says of a memory what it said, and only its file is gone."""
        entry = json.loads(there)
        whole = json.loads(record)
        return "file" not in entry and "file" in whole and entry["index"] == whole["index"]

    def _check_inserted(self, records: base.Records, total: int) -> None:
        """Check that all is back; what the index had an entry of is no memory more."""
        super()._check_inserted(records, total - self._entered_before)

    def _insert(self, records: base.Records) -> int:
        coming = {}
        there = self._keys()
        self._entered_before = sum(key in there for key, _ in records)
        for key, record in records:
            found, file = memory_in(record)
            file = file and self._change.folder.with_owner_here(file)
            coming[str(key)] = Parts(file, found.said)
        self.entries_left = self._entered({key: said for key, (_, said) in coming.items() if said})
        if derived := self._derived():
            self._change.take_out(derived)
        self._change.put_back(coming)
        return len(coming)

    def _entered(self, said: Mapping[str, Any]) -> list[str]:
        """Return which memories the index has an entry of already."""
        moment = self._now()
        raw = b"" if moment.index is None else moment.index.data
        return sorted(self.source.entered(raw, said, {*moment.names, *said}))

    def is_back(self, there: bytes, record: bytes) -> bool:
        """Return whether a memory is there as it was, but for owner and permissions.

        Where the file alone is the memory, its entries may have been edited since.
        """
        return _but_for_rights(there, self.source) == _but_for_rights(record, self.source)

    def is_unchanged(self, there: bytes, record: bytes) -> bool:
        """Return whether a memory and what the index says of it are as they were."""
        same = json.loads(there)["index"] == json.loads(record)["index"]
        return same and self.is_back(there, record)

    def is_as_put_back(self, there: bytes, record: bytes) -> bool:
        """Return whether it is back, and has the entries in the index that came with it."""
        entries = json.loads(record)["index"]
        same = not entries or entries == json.loads(there)["index"]
        return same and self.is_back(there, record)

    def as_put_back(self, records: base.Records) -> list[tuple[base.Key, bytes]]:
        """Return records without the entries that the index has already, so that none is put in."""
        if not self.source.is_file_alone:
            return list(records)
        kept = {str(key): memory_in(record) for key, record in records}
        self.entries_left = self._entered(
            {key: found.said for key, (found, _) in kept.items() if found.said}
        )
        alone = {key: kept[key] for key in self.entries_left}
        return [
            (key, record_of(alone[str(key)][0]._replace(said=()), alone[str(key)][1]))
            if str(key) in alone
            else (key, record)
            for key, record in records
        ]

    def take_out_again(self, expected: Mapping[base.Key, str], records: base.Records) -> int:
        """Delete what was put back; entries of the index that did not come with it stay."""
        if self.source.is_file_alone:
            self._entries_stay = {
                key for key, record in records if key in expected and not memory_in(record)[0].said
            }
        try:
            return self.delete(expected)
        finally:
            self._entries_stay = ()

    def replace(self, expected: Mapping[base.Key, str], records: base.Records) -> None:
        """Let files be as they were; where these alone are the memories, their entries stay."""
        if self.source.is_file_alone:
            self._entries_stay = [*expected]
        try:
            super().replace(expected, records)
        finally:
            self._entries_stay = ()

    def _derived(self) -> dict[str, Parts]:
        moment = self._now()
        here = [name for name in self.source.derived if name in moment.names]
        return {f"{_DERIVED}{name}": Parts(moment.read(name), None) for name in here}


def record_of(found: Found, file: FileCopy | None) -> bytes:
    """Return all that deleting a memory would take away."""
    said = list(found.said)
    texts = [str(each["text"]).encode("utf-8", "surrogateescape") for each in said]
    own: dict[str, Any] = {"memory_id": found.key, "index": list(map(bytearray, texts))}
    if file is not None:
        own["file"] = {key: getattr(file, name) for name, key in FILE_KEYS.items()}
        own["file"]["data"] = bytearray(file.data)
    return stored.with_place(stored.encoded(own), {**found.place, "said": said})


def memory_in(record: bytes) -> tuple[Found, FileCopy | None]:
    """Return the memory that a checked record holds."""
    row = json.loads(record)
    place = row["place"]
    file = row.get("file")
    found = Found(row["memory_id"], file["name"] if file else "", place["said"], place)
    if file is None:
        return found, None
    data = file["data"]
    raw = data.encode() if isinstance(data, str) else bytes.fromhex(data["text"])
    said = {**file, "data": raw, "owner": tuple(file["owner"])}
    return found, FileCopy(**{name: said[key] for name, key in FILE_KEYS.items()})


def _but_for_rights(record: bytes, source: FolderSource) -> dict[str, Any]:
    """Return what a record says of a memory but owner and permissions, which its folder gives."""
    said: dict[str, Any] = json.loads(stored.without_place(record))
    for name in ("mode", "owner"):
        said.get("file", {}).pop(name, None)
    if source.is_file_alone:
        del said["index"]
    return said


NOTE: Final = ".md"
"""How the names of notes end."""
_MARKS: Final = "#-*_=> \t\r"
"""What Markdown puts around a title."""
_NOTHING: Final = list_of(anything, most=0)
_NOTE_PLACE: Final = fields(
    {
        "position": integer(),
        "said": _NOTHING,
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
        """Return whether a file, by its path in the folder, is a note, and one that may be deleted."""
        above, _, last = name.rpartition("/")
        return last.endswith(NOTE) and not last.startswith(".") and cls.enters(above)

    @abstractmethod
    def at_start(self, name: str, text: str) -> str | None:
        """Return what a start loads because of a note; None for all of it."""

    def facts(self, moment: FolderMoment) -> dict[str, str]:
        """Return what there is to say of the notes, by name."""
        others = [each for each in moment.listing.others if self.enters(each) or self.is_note(each)]
        found = {}
        if others:
            names = counted(len(others), "names")
            found["not read"] = f"{names} of links or of what is no file, {others[0]} first"
        if moment.is_pending:
            found["pending"] = "a change was cut short; the next one takes it back first"
        return found

    def extra_report(self) -> base.About | None:
        """Return what there is to say of the notes."""
        found = self.seen(self.facts)
        page = TextPage(f"notes in {self.name}", list(found.items()))
        return base.About(page, found) if found else None

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a note as a row: its first line is the title, else its name is."""
        whole = readable("" if file is None else file.data.decode(errors="replace"))
        line, _, rest = whole.strip().partition("\n")
        title = line.strip(_MARKS)
        body = rest.strip()
        if not title:
            title = PurePosixPath(found.key).stem
            body = whole.strip()
        return {
            "kind": "episodic" if found.place["judged"] else "semantic",
            "title": title,
            "body": body,
            "tags_json": "[]",
            "authored_by": self.scheme,
            "created_at": found.place["created_at"],
            "at_start": self.at_start(found.key, whole),
            "loaded_at_start": found.place["loaded"],
        }

    def file_of(self, key: str) -> str:
        """Return the key where it is a note's; no other file ever comes out of an archive."""
        return key if self.is_note(key) else ""


def known_since(moment: FolderMoment, name: str, born: Mapping[str, datetime]) -> datetime:
    """Return when a file was first committed or last written, whichever is earlier."""
    written = moment_of_seconds(moment.rely_on(name).written // 1_000 / 1e6)
    at = written or datetime.fromtimestamp(0, UTC)  # of a time beyond the years that there are
    return min(at, born.get(name, at))


def note_of(name: str, born: datetime, *, loaded: bool, judged: bool) -> Found:
    """Return a note that was first there at `born`; one that is not judged is load-bearing."""
    milliseconds = int(born.timestamp() * 1_000)
    place = {
        "position": base.position_from_timestamp(milliseconds, name),
        "created_at": datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(),
        "loaded": loaded,
        "judged": judged,
    }
    return Found(name, name, (), place)
