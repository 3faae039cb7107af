"""What a pending change of a folder has written down in ``.memlab``, and how it is taken back."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from memlab.clock import file_clock, wait_for_clock_tick
from memlab.errors import StoreError
from memlab.sources.folder.files import (
    FileCopy,
    Folder,
    Listing,
    Stamp,
    changed,
    is_file_path,
    opened_folder,
)
from memlab.store.shapes import anything, boolean, fields, integer, list_of, text
from memlab.versions import FileFormat, written_in

PENDING: Final = ".memlab"
_OVER: Final = ".memlab-"
"""How folders begin that are left when a change ends."""
_PART: Final = "part"
"""An operation that is not written down yet: it has not begun."""

VERSION: Final = "index"
"""The version that is not in the folder: the new one before it is swapped, the old one after."""
_MADE: Final = "made"
"""The digest of the new version, by which it is known again where it was not edited since."""
_OLD: Final = "old"
_BASE: Final = "base"
"""The index before memories were put in, and as that left it: they tell what was edited since."""
_JOURNAL: Final = "journal.json"
_MARKER: Final = "memlab_folder_change"
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""The format of a journal. One that is readable from its own format says one number: readers of
format 1 refuse any field that they do not know."""
_READABLE_FROM: Final = "readable_from"

_FAULTS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What an edit may raise that goes by what is no journal's."""


class Index(Protocol):
    """What a kind of folder knows of its files and of its index."""

    index_name: ClassVar[str] = ""
    """Empty where there is none."""
    index_first: bool = False
    """Whether what it says of files goes before them."""

    @staticmethod
    def enters(name: str) -> bool:  # noqa: ARG004
        """Return whether files of a folder below are files of this one, by its path from here."""
        return False

    @staticmethod
    def titles(raw: bytes) -> Mapping[str, str]:  # noqa: ARG004
        """Return what an index calls each file, where it names files."""
        return {}

    def remove_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002
        """Return the index with nothing in it that names memories."""
        return raw

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002
        """Return the index with what it said of memories, and does not say now, in its place."""
        return raw

    def is_as_said(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bool:  # noqa: ARG002
        """Return whether the index says of memories just what it said when it was read."""
        return True

    def entered(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> set[str]:  # noqa: ARG002
        """Return the memories of which the index has an entry, so that none is put in."""
        return set()

    def taken_back(self, before: bytes, made: bytes, now: bytes) -> bytes | None:  # noqa: ARG002
        """Return the index without a step, as it was edited since; None where that is not known."""
        return None


Told = TypeVar("Told")
Moved = tuple[str, bytes, str]
"""Where what was moved lies, what is in it, and what it was called."""


class Entry(NamedTuple):
    """A memory that goes or comes: its key, its file's name and time, what the index says of it."""

    key: str
    name: str
    written: int
    said: Any


_ENTRY_KEYS: Final = {"key": "key", "name": "name", "written": "written", "said": "said"}
"""The key in a journal of each field of an :class:`Entry`; they are never changed."""


@dataclass(frozen=True)
class Operation:
    """One operation of a pending change: of a folder, written down in a folder of its own."""

    folder: Folder
    own: str
    taking_out: bool
    entries: tuple[Entry, ...]

    @property
    def files(self) -> str:
        """Where its files are, by their numbers among the entries."""
        return f"{self.own}/{'out' if self.taking_out else 'in'}"

    @property
    def placed(self) -> list[tuple[str, Entry]]:
        """The entries that have a file, each with where that is while the change is pending."""
        return [(f"{self.files}/{n}", entry) for n, entry in enumerate(self.entries) if entry.name]

    @property
    def names(self) -> list[str]:
        """The files that it takes out or puts in."""
        return [entry.name for _, entry in self.placed]

    def write(self, files: Iterable[FileCopy | None]) -> None:
        """Write it down with the files that it puts in, and only then let it have its name."""
        part = replace(self, own=f"{PENDING}/{_PART}")
        folder = self.folder
        if folder.inode_of(PENDING) is None:
            folder.make_folder(PENDING, 0o700)
        folder.make_folder(part.files)
        for number, file in enumerate(files):
            if file is not None and not self.taking_out:
                folder.write(file._replace(name=f"{part.files}/{number}"))
        entries = [
            {key: getattr(entry, name) for name, key in _ENTRY_KEYS.items()}
            for entry in self.entries
        ]
        content: dict[str, Any] = {_MARKER: FORMAT.number}
        if FORMAT.readable_from != FORMAT.number:
            content[_READABLE_FROM] = FORMAT.readable_from
        content["taking_out"] = self.taking_out
        data = json.dumps(content | {"entries": entries}).encode()
        owner = os.geteuid(), os.getegid()
        folder.write(FileCopy(f"{part.own}/{_JOURNAL}", data, 0o600, 0, owner))
        folder.sync(f"{part.own}/", f"{part.files}/")
        folder.move(part.own, self.own)
        folder.sync(f"{PENDING}/")

    def edited(self, index: Index, raw: bytes, *, undo: bool = False) -> bytes:
        """Return what it makes of the index, or the index with that taken back."""
        does = index.insert_entries if self.taking_out == undo else index.remove_entries
        return self._asked(does, raw)

    def before(self, index: Index, raw: bytes) -> bytes:
        """Return the index without what it made of it, as it may have been edited since."""
        old = self.folder.read_if_there(f"{self.own}/{_OLD}")
        base = self.folder.read_if_there(f"{self.own}/{_BASE}")
        made = self.folder.read_if_there(f"{self.own}/{_MADE}")
        if old and base and made and made.data == _digest(base.data):
            left = index.taken_back(old.data, base.data, raw)
            if left is not None:
                return left
        return self.edited(index, raw, undo=True)

    def _asked(
        self, ask: Callable[[bytes, Mapping[str, Any], Collection[str]], Told], raw: bytes
    ) -> Told:
        """Return what the index tells of the memories of which it says something."""
        said = {entry.key: entry.said for entry in self.entries if entry.said is not None}
        there = {*self.folder.listing().files, *self.names}
        try:
            return ask(raw, said, there)
        except _FAULTS as error:
            raise _not_ours(self.folder, f"{type(error).__name__}: {error}") from error

    def swap_index(self, index: Index, *, undo: bool = False, are_new: bool = False) -> list[Moved]:
        """Let the index and an edited version of it change places; return what came out, if so.

        What it says of memories that go must be what was read of it, and of those that come, where
        they `are_new`, nothing: else somebody has edited it since.
        """
        name = index.index_name
        folder = self.folder
        now = folder.read_if_there(name) if name else None
        before = b"" if now is None else now.data
        if not name:
            return []
        if self.taking_out and not undo and not self._asked(index.is_as_said, before):
            raise changed(folder.path / name)
        if are_new and self._asked(index.entered, before):
            raise changed(folder.path / name)
        new = self.before(index, before) if undo else self.edited(index, before)
        if new == before:
            return []
        around = os.fstat(folder.handle)
        like = now or FileCopy(name, b"", 0o600, 0, (around.st_uid, around.st_gid))
        version = f"{self.own}/{VERSION}"
        file = like._replace(name=version, data=new, written=file_clock())
        with suppress(FileNotFoundError):  # where it is taken back
            folder.unlink(version)
        folder.write(file)
        if not undo:
            if not self.taking_out:
                folder.write(file._replace(name=f"{self.own}/{_OLD}", data=before, mode=0o600))
                folder.write(file._replace(name=f"{self.own}/{_BASE}", mode=0o600))
            folder.write(file._replace(name=f"{self.own}/{_MADE}", data=_digest(new), mode=0o600))
        folder.sync(version)  # else nobody can tell later whether they have changed places
        try:
            if now is None:
                folder.link(version, name)
            else:
                folder.exchange(version, name)
        except (FileExistsError, FileNotFoundError) as error:  # somebody made it, or took it away
            raise changed(folder.path / name) from error
        came_out = folder.read_if_there(version)
        if now is not None and (came_out is None or came_out.data != before):
            self._exchange_back(version, name, _digest(new))
            raise changed(folder.path / name)
        folder.sync()
        return [(version, new if now is None else before, name)]

    def _exchange_back(self, version: str, name: str, made: bytes) -> None:
        """Let the index and a version that it came out for change places again."""
        self.folder.exchange(version, name)
        back = self.folder.read_if_there(version)
        if back is not None and _digest(back.data) != made:  # it was edited in that instant
            self.folder.link(version, f"{name}.edited-{token_hex(4)}")

    def take_back(self, index: Index) -> None:
        """Let files and index be as before."""
        if self.taking_out:
            self._restore_names()
            self._restore_index(index)
        else:
            self._restore_index(index)
            for entry in self.put_in():
                self.folder.unlink(entry.name)
        self.folder.sync(*self.names)

    def put_in(self) -> Iterator[Entry]:
        """Yield the files that were put in and that nobody has written to since."""
        for place, entry in self.placed:
            put = self.folder.stamp_of(place)
            there = self.folder.stamp_of(entry.name) if put else None
            if put and there and (there.inode, there.written) == (put.inode, entry.written):
                yield entry

    def _restore_names(self) -> None:
        """Let files that were moved out have their names again."""
        for place, entry in self.placed:
            moved = self.folder.inode_of(place)
            there = self.folder.inode_of(entry.name) if moved is not None else None
            if moved is not None and there is None:
                self.folder.link(place, entry.name)
            elif there != moved:  # written anew meanwhile: both are kept, whoever is stopped here
                with suppress(FileExistsError):
                    self.folder.link(place, f"{entry.name}.before-{moved:x}")
        self.folder.sync(*self.names)

    def _restore_index(self, index: Index) -> None:
        """Let the index be as it was, or where it was edited since, take back what was changed."""
        folder = self.folder
        name = index.index_name
        if not name or (made := folder.read_if_there(f"{self.own}/{_MADE}")) is None:
            return
        version, now = map(folder.read_if_there, (f"{self.own}/{VERSION}", name))
        is_linked = folder.inode_of(f"{self.own}/{VERSION}") == folder.inode_of(name)
        if version and made.data == _digest(version.data) and not is_linked:
            return  # they have not changed places
        if version is None or now is None or made.data != _digest(now.data):
            self.swap_index(index, undo=True)
        elif is_linked:
            folder.unlink(name)  # there was none before
        else:
            self._exchange_back(version.name, name, made.data)


def take_back(folder: Folder, index: Index) -> None:
    """Take a pending change back, the one under way or one that was cut short, if there is one."""
    for operation in reversed(pending_operations(folder)):
        operation.take_back(index)
    if folder.inode_of(PENDING) is not None:
        end_pending(folder)
        folder.sync()
    sweep(folder)


def end_pending(folder: Folder) -> None:
    """Let a change be pending no more, once that is synced: what its folder holds is not needed."""
    folder.move(PENDING, f"{_OVER}{token_hex(4)}")


def sweep(folder: Folder) -> None:
    """Remove what changes have left that ended."""
    for name in folder.listing().others:
        if name.startswith(_OVER):
            with suppress(OSError):  # next time
                shutil.rmtree(name, dir_fd=folder.handle)


def pending_operations(folder: Folder) -> list[Operation]:
    """Return the operations of a pending change, the first first; none where none is pending."""
    where = folder.path / PENDING
    elsewhere = "that is memlab's name for a change under way: move it elsewhere"
    try:
        with folder.subfolder(PENDING) as pending:
            found = os.fstat(pending.handle)
            around = os.fstat(folder.handle)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{where} is in the way ({error.strerror}); {elsewhere}") from error
    owners = around.st_uid, os.geteuid(), 0
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in owners:
        raise StoreError(f"{where} was not made by memlab: others may write to it; {elsewhere}")
    try:
        return _operations(folder)
    except (StoreError, OSError, ValueError, RecursionError) as error:
        if folder.inode_of(PENDING) != found.st_ino:
            raise changed(folder.path) from error  # the change has ended meanwhile
        if isinstance(error, StoreError):
            raise
        raise _not_ours(folder, str(error)) from error


def _operations(folder: Folder) -> list[Operation]:
    """Read the operations; what they do not know would go with them when the change ends."""
    inside = folder.names_in(PENDING) - {_PART}
    names = [str(number) for number in range(1, len(inside) + 1)]
    if others := inside - {*names}:
        raise ValueError(f"{min(others)!r} is no operation of it")
    found = []
    for name in names:
        own = f"{PENDING}/{name}"
        content = json.loads(folder.read(f"{own}/{_JOURNAL}").data)
        _check_content(folder, content)
        entries = tuple(
            Entry(**{field: each[key] for field, key in _ENTRY_KEYS.items()})
            for each in content["entries"]
        )
        operation = Operation(folder, own, content["taking_out"], entries)
        known = {place.rpartition("/")[2] for place, _ in operation.placed}
        if others := folder.names_in(operation.files) - known:
            raise ValueError(f"{min(others)!r} is none of its files")
        found.append(operation)
    return found


def _file_name(value: Any) -> None:
    """Check for the name of a file of the folder; empty for a memory that has none."""
    text(value)
    if value and not is_file_path(value):
        raise ValueError(f"{value!r:.80} is no file of the folder")


_ENTRY: Final = fields({"key": text, "name": _file_name, "written": integer(), "said": anything})
_CONTENT: Final = {
    _MARKER: integer(1),
    _READABLE_FROM: integer(1),
    "taking_out": boolean,
    "entries": list_of(_ENTRY),
}


def _check_content(folder: Folder, content: Any) -> None:
    """Check a journal; one of a newer format may say more than is known of its operation."""
    fields(_CONTENT, absent={_READABLE_FROM}, others=anything)(content)
    written = written_in(content[_MARKER], content.get(_READABLE_FROM))
    FORMAT.check(f"the change that is pending in {folder.path / PENDING}", written, StoreError)
    if not FORMAT.is_newer(written):
        fields(_CONTENT, absent={_READABLE_FROM})(content)


def _not_ours(folder: Folder, why: str) -> StoreError:
    """Return the error for a pending change that memlab did not leave so: nothing is touched."""
    return StoreError(
        f"{folder.path / PENDING} is no change that this memlab can take back ({why}); look into "
        "it, move what is under out back by hand, then remove it"
    )


def _digest(data: bytes) -> bytes:
    return sha256(data).hexdigest().encode()


class Place(NamedTuple):
    """Where a file of the folder lies: under its own name, or moved out by a pending change."""

    path: str
    stamp: Stamp


@dataclass(frozen=True)
class FolderMoment:
    """What a folder holds. Get one from :func:`folder_moment` or :func:`moment_now`."""

    folder: Folder
    listing: Listing
    index: FileCopy | None
    _places: dict[str, Place] = field(repr=False)
    _used: set[Place] = field(default_factory=set, repr=False)
    is_pending: bool = False
    known: frozenset[str] | None = None
    """Of a moment in the past, the names of all files that ever were there."""

    @property
    def names(self) -> list[str]:
        """The ordinary files in it, in order, a pending change taken back."""
        return sorted(self._places)

    def stamp_of(self, name: str) -> Stamp:
        """Return what differs once somebody has written a file."""
        return self._places[name].stamp

    def rely_on(self, name: str) -> Stamp:
        """Return the stamp of a file that was read before, to be looked at again at the end."""
        self._used.add(self._places[name])
        return self._places[name].stamp

    def read(self, name: str) -> FileCopy:
        """Return a file of it."""
        place = self._places[name]
        try:
            found = self.folder.read(place.path, place.stamp)
        except FileNotFoundError as error:
            raise changed(self.folder.path) from error
        self._used.add(place)
        return found._replace(name=name)

    def check(self) -> None:
        """Look again at all that was read."""
        with suppress(OSError):
            if all(self.folder.stamp_of(path) == stamp for path, stamp in self._used):
                return
        raise changed(self.folder.path)


@contextmanager
def folder_moment(path: Path | str, index: Index) -> Iterator[FolderMoment]:
    """Hand out a folder as it is now, a pending change taken back; look at it again at the end."""
    with opened_folder(path, index.enters) as folder:
        pending = folder.inode_of(PENDING)
        seen = moment_now(folder, index)
        for operation in reversed(pending_operations(folder)):
            seen = _before(operation, seen, index)
        if pending != folder.inode_of(PENDING):
            raise changed(folder.path)
        wait_for_clock_tick(max((seen.stamp_of(name).changed for name in seen.names), default=0))
        yield seen
        seen.check()


def moment_now(folder: Folder, index: Index) -> FolderMoment:
    """Return an open folder as it is now, whatever change is under way."""
    listing = folder.listing()
    name = index.index_name
    if name in listing.others:
        raise StoreError(
            f"{folder.path / name} is no ordinary file of a size that an index has, and "
            "memlab follows no link: put the file itself there"
        )
    places = {name: Place(name, stamp) for name, stamp in listing.files.items()}
    seen = FolderMoment(folder, listing, None, places)
    # It is not looked at again at the end: whoever edits it then disturbs nobody.
    return replace(seen, index=seen.read(name), _used=set()) if name in places else seen


def _before(operation: Operation, seen: FolderMoment, index: Index) -> FolderMoment:
    """Return a moment without an operation of a pending change: files are where they were."""
    places = dict(seen._places)
    if operation.taking_out:
        for path, entry in operation.placed:
            if stamp := operation.folder.stamp_of(path):
                places.setdefault(entry.name, Place(path, stamp))
    else:
        for entry in operation.put_in():
            places.pop(entry.name, None)
    raw = seen.index
    if raw is not None:
        raw = raw._replace(data=operation.before(index, raw.data))
    return replace(seen, index=raw, is_pending=True, _places=places)
