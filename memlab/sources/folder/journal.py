"""What a pending change of a folder has written down, and how it is taken back.

In ``.memlab`` each operation has a folder of its own, ``1``, ``2`` and so on: ``journal.json``, the
other version of the index, files taken out under ``out`` and files to put in under ``in``, by their
number in the journal. Whoever only reads sees the folder as it is with the change taken back.
"""

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple, Protocol

from memlab.clock import file_clock, wait_out
from memlab.errors import ChangedWhileReadError, StoreError
from memlab.sources.folder.files import (
    FileCopy,
    Folder,
    Listing,
    Stamp,
    changed,
    is_file_path,
    opened_folder,
)
from memlab.store.shapes import anything, fields, listed, text, truth, whole

PENDING: Final = ".memlab"
OVER: Final = ".memlab-over-"
PART: Final = ".memlab-part-"
"""How folders begin that are left when a change ends, or is stopped before it began."""

OUT, IN = "out", "in"
VERSION: Final = "index"
"""The version that is not in the folder: the new one before it is swapped, the old one after."""

_MADE: Final = "made"
"""The digest of the new version, by which it is known again where it was not edited since."""
_JOURNAL: Final = "journal.json"
_FORMAT: Final = 1
_TRIES: Final = 5
_LOOKS: Final = 100

_FAULTS: Final = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError),
)
"""What an edit may raise that goes by what is no journal's."""


class Index(Protocol):
    """What a kind of folder knows of its files and of its index."""

    index_name: str = ""
    """Empty where there is none."""
    index_first: bool = False
    """Whether what it says of files goes before them."""

    @staticmethod
    def enters(name: str) -> bool:  # noqa: ARG004
        """Whether files of a folder below are files of this one, by its path from here."""
        return False

    def remove_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002
        """Return the index with nothing in it that names memories."""
        return raw

    def insert_entries(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:  # noqa: ARG002
        """Return the index with what it said of memories in its place again.

        What it says of them already is left as it is.
        """
        return raw


class Entry(NamedTuple):
    """A memory that goes or comes: its key, its file's name and time, what the index says of it."""

    key: str
    name: str
    written: int
    said: Any


@dataclass(frozen=True)
class Operation:
    """One operation of a pending change: of a folder, written down in a folder of its own."""

    folder: Folder
    own: Folder
    files: Folder
    taking_out: bool
    entries: tuple[Entry, ...]

    def write(self) -> None:
        """Write it down."""
        entries = [entry._asdict() for entry in self.entries]
        content = {"memlab_folder_change": _FORMAT, "taking_out": self.taking_out}
        data = json.dumps(content | {"entries": entries}).encode()
        self.own.write(FileCopy(_JOURNAL, data, 0o600, 0, (os.geteuid(), os.getegid())))

    def edited(self, index: Index, raw: bytes, *, undo: bool = False) -> bytes:
        """Return what it makes of the index, or the index with that taken back."""
        said = {entry.key: entry.said for entry in self.entries if entry.said is not None}
        names = (entry.name for entry in self.entries if entry.name)
        there = {*self.folder.listing().files, *names}
        does = index.insert_entries if self.taking_out == undo else index.remove_entries
        try:
            return does(raw, said, there)
        except _FAULTS as error:
            raise _not_ours(self.folder, f"{type(error).__name__}: {error}") from error

    def swap_index(self, index: Index, *, undo: bool = False) -> bytes | None:
        """Let the index and an edited version of it change places; return what came out."""
        if not (name := index.index_name):
            return None
        for _ in range(_TRIES):
            now = self.folder.read_if_there(name)
            before = b"" if now is None else now.data
            new = self.edited(index, before, undo=undo)
            if new == before:
                return None
            if self._swapped(name, now, new):
                self.folder.sync()
                return new if now is None else before
        where = self.folder.path / name
        raise StoreError(f"{where} is written all the while; nothing was changed: try again later")

    def _swapped(self, name: str, now: FileCopy | None, new: bytes) -> bool:
        """Try once; return whether the index was still what `new` was made from."""
        own, folder = self.own, self.folder
        for left in (_MADE, VERSION):
            with suppress(FileNotFoundError):
                own.unlink(left)
        around = os.fstat(folder.handle)
        like = now or FileCopy(name, b"", 0o600, 0, (around.st_uid, around.st_gid))
        version = like._replace(name=VERSION, data=new, written=file_clock())
        own.write(version)
        own.write(version._replace(name=_MADE, data=_digest(new), mode=0o600))
        own.sync()  # without them nobody can tell later whether they have changed places
        try:
            if now is None:
                own.link(VERSION, folder, name)
                return True
            own.exchange(VERSION, folder, name)
        except (FileExistsError, FileNotFoundError):  # somebody made it, or took it away
            return False
        came_out = own.read_if_there(VERSION)
        if came_out is not None and came_out.data == now.data:
            return True
        own.exchange(VERSION, folder, name)
        back = own.read_if_there(VERSION)
        if back is not None and back.data != new:  # the new version was edited in that instant, too
            own.link(VERSION, folder, f"{name}.edited-{token_hex(4)}")
        return False

    def take_back(self, index: Index) -> None:
        """Let files and index be as before."""
        if self.taking_out:
            self._restore_names()
            self._restore_index(index)
        else:
            self._restore_index(index)
            for entry in self.put_in():
                self.folder.unlink(entry.name)
        self.folder.sync(*(entry.name for entry in self.entries))

    def put_in(self) -> Iterator[Entry]:
        """Yield the files that were put in and that nobody has written to since."""
        for number, entry in enumerate(self.entries):
            put = self.files.stat_of(str(number)) if entry.name else None
            there = self.folder.stat_of(entry.name) if put else None
            if put and there and (there.st_ino, there.st_mtime_ns) == (put.st_ino, entry.written):
                yield entry

    def _restore_names(self) -> None:
        """Let files that were moved out have their names again."""
        for number, entry in enumerate(self.entries):
            moved = self.files.inode_of(str(number))
            there = self.folder.inode_of(entry.name) if moved is not None else None
            if moved is not None and there is None:
                self.files.link(str(number), self.folder, entry.name)
            elif there != moved:  # written anew meanwhile: both are kept
                aside = f"{entry.name}.before-{token_hex(4)}"
                self.files.link(str(number), self.folder, aside)
        self.folder.sync(*(entry.name for entry in self.entries))

    def _restore_index(self, index: Index) -> None:
        """Let the index be as it was, or where it was edited since, take back what was changed."""
        if not (name := index.index_name):
            return
        made, version = map(self.own.read_if_there, (_MADE, VERSION))
        now = self.folder.read_if_there(name)
        is_linked = self.own.inode_of(VERSION) == self.folder.inode_of(name)
        is_new = made and version and made.data == _digest(version.data) and not is_linked
        if made is None or is_new:  # they have not changed places
            return
        is_unedited = now is not None and made.data == _digest(now.data)
        if is_unedited and is_linked:
            self.folder.unlink(name)  # there was none before
        elif is_unedited and version is not None:
            self.own.exchange(VERSION, self.folder, name)
        else:
            self.swap_index(index, undo=True)


def take_back(folder: Folder, index: Index) -> None:
    """Take a pending change back, the one under way or one that was cut short, if there is one."""
    with pending_operations(folder) as operations:
        for operation in reversed(operations):
            operation.take_back(index)
    if folder.inode_of(PENDING) is not None:
        end_pending(folder)
        folder.sync()
    sweep(folder)


def end_pending(folder: Folder) -> None:
    """Let a change be pending no more, once that is synced: what its folder holds is not needed."""
    folder.move(PENDING, folder, OVER + token_hex(4))


def sweep(folder: Folder) -> None:
    """Remove what changes have left that ended or never began."""
    for name in folder.listing().others:
        if name.startswith((OVER, PART)):
            with suppress(OSError):  # next time
                shutil.rmtree(name, dir_fd=folder.handle)


@contextmanager
def pending_operations(folder: Folder) -> Iterator[list[Operation]]:
    """Hand out the operations of a pending change, the first first; none where none is pending."""
    where = folder.path / PENDING
    elsewhere = "that is memlab's name for a change under way: move it elsewhere"
    with ExitStack() as stack:
        try:
            pending = stack.enter_context(folder.subfolder(PENDING))
        except FileNotFoundError:
            yield []
            return
        except OSError as error:
            raise StoreError(f"{where} is in the way ({error.strerror}); {elsewhere}") from error
        found, around = os.fstat(pending.handle), os.fstat(folder.handle)
        owners = around.st_uid, os.geteuid(), 0
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in owners:
            raise StoreError(f"{where} was not made by memlab: others may write to it; {elsewhere}")
        try:
            operations = _operations(folder, pending, stack)
        except (StoreError, OSError, ValueError, RecursionError) as error:
            if folder.inode_of(PENDING) != found.st_ino:
                raise changed(folder.path) from error  # the change has ended meanwhile
            if isinstance(error, StoreError):
                raise
            raise _not_ours(folder, str(error)) from error
        yield operations


def _operations(folder: Folder, pending: Folder, stack: ExitStack) -> list[Operation]:
    """Open the operations; what they do not know would go with them when the change ends."""
    listing, found = pending.listing(), []
    names = [str(number) for number in range(1, len(listing.others) + 1)]
    if others := {*listing.files, *listing.others} - {*names}:
        raise ValueError(f"{min(others)!r} is no operation of it")
    for name in names:
        own = stack.enter_context(pending.subfolder(name))
        content = json.loads(own.read(_JOURNAL).data)
        _CONTENT(content)
        entries = tuple(Entry(**each) for each in content["entries"])
        for each in ([e.key for e in entries], [e.name for e in entries if e.name]):
            if len(set(each)) < len(each):
                raise ValueError("a memory is in it twice")
        taking_out = content["taking_out"]
        files = stack.enter_context(own.subfolder(OUT if taking_out else IN))
        inside = files.listing()
        known = {str(number) for number, entry in enumerate(entries) if entry.name}
        if others := {*inside.others, *inside.files} - known:
            raise ValueError(f"{min(others)!r} is none of its files")
        found.append(Operation(folder, own, files, taking_out, entries))
    return found


def _file_name(value: Any) -> None:
    """Check for the name of a file of the folder; empty for a memory that has none."""
    text(value)
    if value and not is_file_path(value):
        raise ValueError(f"{value!r:.80} is no file of the folder")


_CONTENT: Final = fields(
    {
        "memlab_folder_change": whole(_FORMAT, _FORMAT),
        "taking_out": truth,
        "entries": listed(
            fields({"key": text, "name": _file_name, "written": whole(), "said": anything})
        ),
    }
)


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

    folder: Folder
    name: str
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
    known: Collection[str] | None = None
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
        place = self._places.get(name)
        if place is None:
            raise FileNotFoundError(f"there is no {name} in {self.folder.path}")
        try:
            found = place.folder.read(place.name, place.stamp)
        except FileNotFoundError as error:
            raise changed(self.folder.path) from error
        self._used.add(place)
        return found._replace(name=name)

    def check(self) -> None:
        """Look again at all that was read."""
        folders = {place.folder for place in self._used}
        now = {folder: folder.listing().files for folder in folders}
        if any(now[place.folder].get(place.name) != place.stamp for place in self._used):
            raise changed(self.folder.path)


@contextmanager
def folder_moment(path: Path | str, index: Index) -> Iterator[FolderMoment]:
    """Hand out a folder as it is now, a pending change of it taken back.

    What comes later is not seen. What was read is looked at again at the end.
    """
    with opened_folder(path, index.enters) as folder:
        for _ in range(_LOOKS):
            pending = folder.inode_of(PENDING)
            with suppress(ChangedWhileReadError):
                seen = moment_now(folder, index)
                if pending == folder.inode_of(PENDING):
                    break
        else:
            raise changed(folder.path)
        with ExitStack() as stack:
            if pending is not None:
                for operation in reversed(stack.enter_context(pending_operations(folder))):
                    seen = _before(operation, seen, index)
            wait_out(max((seen.stamp_of(name).changed for name in seen.names), default=0))
            yield seen
            seen.check()


def moment_now(folder: Folder, index: Index) -> FolderMoment:
    """Return an open folder as it is now, whatever change is under way."""
    listing, name = folder.listing(), index.index_name
    if name in listing.others:
        raise StoreError(
            f"{folder.path / name} is no ordinary file of a size that an index has, and "
            "memlab follows no link: put the file itself there"
        )
    places = {name: Place(folder, name, stamp) for name, stamp in listing.files.items()}
    seen = FolderMoment(folder, listing, None, places)
    # It is not looked at again at the end: whoever edits it then disturbs nobody.
    return replace(seen, index=seen.read(name), _used=set()) if name in places else seen


def _before(operation: Operation, seen: FolderMoment, index: Index) -> FolderMoment:
    """Return a moment without an operation of a pending change: files are where they were."""
    places = dict(seen._places)
    if operation.taking_out:
        for number, stamp in operation.files.listing().files.items():
            entry = operation.entries[int(number)]
            places.setdefault(entry.name, Place(operation.files, number, stamp))
    else:
        for entry in operation.put_in():
            places.pop(entry.name, None)
    raw = seen.index
    if raw is not None:
        raw = raw._replace(data=operation.edited(index, raw.data, undo=True))
    return replace(seen, index=raw, is_pending=True, _places=places)
