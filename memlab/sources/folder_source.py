"""What sources have in common that are a folder of files and an index of them.

A record holds a memory's file, with its bytes, mode, time and owner, and the lines of the index
that are about it. Where these lines stand among the others, and when the memory was first written
as far as that is known from elsewhere, belongs to its place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from memlab.errors import (
    ArchiveError,
    CompactionError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources.base import (
    DELETED,
    INSERTED,
    Facts,
    Key,
    Reader,
    Rows,
    Watch,
    Writer,
    unwatched,
)
from memlab.sources.folder import FileCopy, is_file_name
from memlab.sources.folder_change import Coming, FolderChange, Leaving, changed_folder
from memlab.sources.folder_journal import Index
from memlab.sources.folder_moment import FolderMoment, moment_now, moment_of
from memlab.store.records import (
    encoded,
    fingerprint_of,
    jsonable,
    with_place,
    without_place,
)

_ROWS_AT_ONCE: Final = 1_000
_DERIVED: Final = "\0"
"""Begins the name of what is no memory: a file made from the others."""


class Found(NamedTuple):
    """A memory of a folder.

    Attributes
    ----------
    key : str
        What the index calls it.
    name : str
        Of its file; empty where it has none.
    said : sequence of dict
        What the index says of it and where, with the words under ``text``.
    place : dict
        What is known of it from elsewhere: ``position`` and whatever its kind adds.
    """

    key: str
    name: str
    said: Sequence[dict[str, Any]]
    place: dict[str, Any]


class Kind(Protocol):
    """What a kind of folder knows of itself."""

    derived: ClassVar[tuple[str, ...]]
    """Files that the system makes anew from the others."""

    @property
    def index(self) -> Index:
        """What it knows of its index."""
        ...

    def memories(self, moment: FolderMoment) -> list[Found]:
        """Return the memories of a folder in order of position."""
        ...

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a memory as a row for :func:`memlab.sources.tables.rows_from`, body included."""
        ...

    def name_of(self, key: str) -> str:
        """Return the name that a memory's file has."""
        ...


class FolderSource:
    """A folder of memory files.

    Parameters
    ----------
    where : str or Path
        The folder, with or without its scheme before it.
    watch : callable, optional
        Called with each :class:`memlab.sources.folder_change.Step` of a change.
    """

    scheme: ClassVar[str]
    atomic: ClassVar[bool] = True
    protected: frozenset[str] = frozenset()

    def __init__(self, where: str | PathLike[str], *, watch: Watch = unwatched) -> None:
        self._where = fspath(where)
        self._watch = watch

    @property
    def name(self) -> str:
        """The absolute path, with the scheme where one was given."""
        scheme = f"{self.scheme}:"
        return f"{scheme}{self.path}" if self._where.startswith(scheme) else str(self.path)

    @property
    def path(self) -> Path:
        """The folder, with links followed; what cannot be a path is for opening it to say."""
        path = Path(self._where.removeprefix(f"{self.scheme}:"))
        with suppress(OSError, ValueError, RuntimeError):
            return path.expanduser().resolve()
        return path

    @property
    def like(self) -> Path:
        """The folder, whose owner and permissions the archive gets."""
        return self.path

    @property
    def archive(self) -> Path:
        """The archive beside the folder, there or not."""
        return self.path.with_name(f"{self.path.name}.archive.db")

    @property
    def recall_log(self) -> str | None:
        """Where recalls are written down, or why nowhere."""
        return None

    @property
    def kind(self) -> Kind:
        """What this kind of folder knows of itself, asked anew for every moment."""
        raise NotImplementedError

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the folder at one moment; what was read is looked at again at the end."""
        kind = self.kind
        with moment_of(self.path, kind.index) as moment:
            yield _Reader(kind, moment)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the folder for a change that lasts when the block ends, and not where it raises."""
        kind = self.kind
        with changed_folder(self.path, kind.index, watch=self._watch) as change:
            yield _Writer(kind, change)

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as they were loaded while they were in the folder."""
        kind = self.kind
        rows = (kind.row(*_kept(record)) for _, record in records)
        return _in_batches(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind, tags and title."""
        row = self.kind.row(*_kept(record))
        return Facts(row["memory_id"], row["kind"], row["tags_json"], row["title"])

    def lasting(self, record: bytes) -> bytes:
        """Return a record without its place: use changes nothing of a file."""
        return without_place(record)

    def make(
        self,
        path: Path,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> int:
        """Refuse: a store of this kind is a folder, not a file.

        Raises
        ------
        UnsafeDeletionError
            Always.
        """
        raise UnsafeDeletionError(
            f"{path} would be a file, and memories of this kind live in a folder; nothing was "
            "restored: restore into the folder they came from, or write them to a .jsonl file with "
            "memlab archive --export",
            instead="memlab archive STORE --export memories.jsonl",
        )

    def cap_setting(self, keep: int) -> str | None:
        """Return the setting of the system's own that holds a cap."""
        raise NotImplementedError


class _Reader:
    """The memories of a folder at one moment."""

    def __init__(self, kind: Kind, moment: FolderMoment) -> None:
        self._kind = kind
        self._moment = moment

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        if columns:
            raise StoreError(
                f"memories in files have no column {', '.join(columns)}; leave columns= out"
            )
        moment = self._now()
        rows = (self._kind.row(each, _file_of(each, moment)) for each in self._found(moment))
        return _in_batches(rows, with_body=with_body)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        moment = self._now()
        found = {each.key: each for each in self._found(moment)}
        for key in keys:
            if each := found.get(str(key)):
                yield key, record_of(each, _file_of(each, moment))

    def _now(self) -> FolderMoment:
        return self._moment

    def _found(self, moment: FolderMoment) -> list[Found]:
        return self._kind.memories(moment)


class _Writer(_Reader):
    """A folder that is locked and being changed."""

    def __init__(self, kind: Kind, change: FolderChange) -> None:
        super().__init__(kind, moment_now(change.folder, kind.index))
        self._change = change

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        moment = self._now()
        found = {each.key: each for each in self._found(moment)}
        leaving, wrong = {}, []
        for key, fingerprint in expected.items():
            each = found.get(str(key))
            file = None if each is None else _file_of(each, moment)
            if each is None or fingerprint_of(record_of(each, file)) != fingerprint:
                wrong.append(str(key))
            else:
                leaving[each.key] = Leaving(file, list(each.said))
        if wrong:
            raise StalePlanError(
                f"{len(wrong):,} memories in {self._change.folder.path} changed or went since the "
                f"plan was made, {wrong[0]} among them; nothing was deleted: make a new plan",
                memory_ids=tuple(wrong),
            )
        self._change.take_out(leaving | self._derived(moment))
        watch(DELETED)
        self._check(found.keys() - leaving.keys(), gone=leaving)
        return len(leaving)

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        """Say which files are there under the names of memories that come back."""
        here = set(self._now().names)
        files = (_kept(record)[1] for _, record in records)
        return [f"file {file.name!r}" for file in files if file is not None and file.name in here]

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        moment = self._now()
        before = {each.key for each in self._found(moment)}
        kept = {str(key): record for key, record in records}
        coming = {key: self._coming(key, record) for key, record in kept.items()}
        if derived := self._derived(moment):
            self._change.take_out(derived)
        self._change.put_back(coming)
        watch(INSERTED)
        self._check(before | coming.keys(), gone=())
        for key, record in self.records(kept):
            if fingerprint_of(record) != fingerprint_of(kept[str(key)]):
                raise ArchiveError(
                    f"{key} would not have come back as it was; nothing was restored: look at "
                    f"{self._change.folder.path / self._kind.index.name}"
                )
        return len(coming)

    def _coming(self, key: str, record: bytes) -> Coming:
        found, file = _kept(record)
        if file is not None and (
            file.name != self._kind.name_of(key) or not is_file_name(file.name)
        ):
            raise ArchiveError(
                f"the archive names {file.name!r} as the file of {key!r}, which it cannot be; "
                "nothing was restored: the archive was changed, restore a backup of it"
            )
        return Coming(file, found.said)

    def _derived(self, moment: FolderMoment) -> dict[str, Leaving]:
        here = set(moment.names)
        return {
            f"{_DERIVED}{name}": Leaving(moment.read(name), None)
            for name in self._kind.derived
            if name in here
        }

    def _check(self, stay: Iterable[str], *, gone: Iterable[str]) -> None:
        """Check that just the memories that were meant are gone, or there again."""
        now = {each.key for each in self._found(self._now())}
        if wrong := sorted((set(stay) - now) | (set(gone) & now)):
            raise CompactionError(
                f"{wrong[0]} and {len(wrong) - 1:,} more would have gone or stayed by mistake in "
                f"{self._change.folder.path}; all was taken back: try again when nobody writes"
            )

    def _now(self) -> FolderMoment:
        return moment_now(self._change.folder, self._kind.index)


def record_of(found: Found, file: FileCopy | None) -> bytes:
    """Return all that deleting a memory would take away."""
    own: dict[str, Any] = {
        "memory_id": found.key,
        "index": [_bytes_as_json(str(each["text"])) for each in found.said],
    }
    if file is not None:
        own["file"] = {
            "name": file.name,
            "mode": file.mode,
            "written": file.written,
            "owner": list(file.owner),
            "data": jsonable(bytearray(file.data)),
        }
    return with_place(encoded(own), {**found.place, "said": list(found.said)})


def _kept(record: bytes) -> tuple[Found, FileCopy | None]:
    """Return the memory that a record holds.

    Raises
    ------
    ArchiveError
        When it holds none.
    """
    try:
        row = json.loads(record)
        place, file = row["place"], row.get("file")
        found = Found(str(row["memory_id"]), file["name"] if file else "", place["said"], place)
        if file is None:
            return found, None
        data = file["data"]
        raw = data.encode() if isinstance(data, str) else bytes.fromhex(data["text"])
        user, group = map(int, file["owner"])
        name, mode, written = str(file["name"]), int(file["mode"]), int(file["written"])
        return found, FileCopy(name, raw, mode, written, (user, group))
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(
            f"a record in the archive holds no memory of this kind ({error}); restore a backup of "
            "the archive"
        ) from error


def _bytes_as_json(text: str) -> Any:
    return jsonable(bytearray(text.encode("utf-8", "surrogateescape")))


def _file_of(found: Found, moment: FolderMoment) -> FileCopy | None:
    return moment.read(found.name) if found.name else None


def _in_batches(rows: Iterable[dict[str, Any]], *, with_body: bool) -> Iterator[Rows]:
    """Yield rows some at a time."""
    from memlab.sources.tables import rows_of_each

    remaining = iter(rows)
    while some := list(islice(remaining, _ROWS_AT_ONCE)):
        yield rows_of_each(some, with_body=with_body)
