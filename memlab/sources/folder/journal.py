"""The journal of a pending change of a folder, in ``.memlab``, and the rollback of the change."""

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
from memlab.store.archive.index_versions import IndexVersion, digest_of
from memlab.store.shapes import anything, boolean, fields, integer, list_of, text
from memlab.versions import FileFormat, written_in

PENDING: Final = ".memlab"
_OVER: Final = ".memlab-"
"""Prefix of the folders of completed changes, which are to be removed."""
_PART: Final = "part"
"""Folder of an operation whose journal is still being written; the operation has not begun."""

VERSION: Final = "index"
"""The other version of the index: the new one before the exchange, the old one after it."""
_MADE: Final = "made"
"""Digest of the new version, which shows whether the index was edited since."""
_OLD: Final = "old"
"""The index before memories were inserted."""
_BASE: Final = "base"
"""The index after memories were inserted; with the old one it shows later edits."""
_JOURNAL: Final = "journal.json"
_MARKER: Final = "memlab_folder_change"
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""Format of a journal. A journal that is readable from its own format has one number only, because
readers of format 1 reject unknown fields."""
_READABLE_FROM: Final = "readable_from"

_FAULTS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""Errors that an edit of the index may raise for the entries of a damaged journal."""


class Index(Protocol):
    """Rules of a kind of folder: the names of its files, and the changes of its index.

    In the methods, `raw` is the content of the index, `index_entries` has the entries of
    memories by key, and `file_names` has the names of the files in the folder.
    """

    index_name: ClassVar[str] = ""
    """File name of the index; empty for none."""
    index_first: bool = False
    """Whether index entries are removed before the files."""

    @staticmethod
    def may_include(name: str) -> bool:  # noqa: ARG004
        """Return whether the files of a subfolder belong to the folder, by its relative path."""
        return False

    def includes(self, path: str, around: Folder) -> bool:
        """Return whether the files of a subfolder that exists belong to the folder.

        Parameters
        ----------
        path : str
            Its relative path.
        around : Folder
            The folder that contains it.
        """
        return self.may_include(path)

    @staticmethod
    def titles(raw: bytes) -> Mapping[str, str]:  # noqa: ARG004
        """Return the title of each file in an index."""
        return {}

    def remove_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the index without the entries of memories."""
        return raw

    def insert_entries(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bytes:
        """Return the index with the missing entries of memories in their former place."""
        return raw

    def are_entries_unchanged(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> bool:
        """Return whether the entries of memories are unchanged since they were read."""
        return True

    def keys_with_entry(
        self, raw: bytes, index_entries: Mapping[str, Any], file_names: Collection[str]
    ) -> set[str]:
        """Return the keys of memories that already have an entry."""
        return set()

    def without_change(self, before: bytes, made: bytes, now: bytes) -> bytes | None:
        """Return the current index without the change from `before` to `made`; None if unknown."""
        return None


Answer = TypeVar("Answer")
Moved = tuple[str, bytes, str]
"""A moved file: its current path, its content and its former name."""


class IndexSwap(NamedTuple):
    """An exchange of the index with a new version.

    Attributes
    ----------
    before : FileCopy or None
        The index before the exchange; None if there was none.
    after : bytes
        The content of the new version.
    path : str
        Path of the version that was moved out; the new version if there was no index.
    """

    before: FileCopy | None
    after: bytes
    path: str

    @property
    def moved(self) -> Moved:
        """The file that was moved out."""
        if self.before is None:
            return self.path, self.after, self.path
        return self.path, self.before.data, self.before.name


class Entry(NamedTuple):
    """A memory that an operation removes or inserts.

    Attributes
    ----------
    key, name : str
        Its key, and the path of its file; the path is empty if it has no file.
    written : int
        Time of last modification of its file, in nanoseconds.
    index_entries : object
        Its entries in the index, as JSON values.
    """

    key: str
    name: str
    written: int
    index_entries: Any


_ENTRY_KEYS: Final = {"key": "key", "name": "name", "written": "written", "index_entries": "said"}
"""Key in a journal of each field of :class:`Entry`. The keys never change."""


@dataclass(frozen=True)
class Operation:
    """One operation of a pending change: memories are removed or inserted.

    Attributes
    ----------
    folder : Folder
        The folder that is changed.
    own : str
        The path of the folder with the journal of the operation.
    taking_out : bool
        Whether the memories are removed.
    entries : tuple of Entry
        The memories.
    """

    folder: Folder
    own: str
    taking_out: bool
    entries: tuple[Entry, ...]

    @property
    def files(self) -> str:
        """Path of the folder with its files, which are named by the numbers of the entries."""
        return f"{self.own}/{'out' if self.taking_out else 'in'}"

    @property
    def placed(self) -> list[tuple[str, Entry]]:
        """Entries that have a file, each with the path of the file during the change."""
        placed = []
        for number, entry in enumerate(self.entries):
            if entry.name:
                placed.append((f"{self.files}/{number}", entry))
        return placed

    @property
    def names(self) -> list[str]:
        """Names of the files that it removes or inserts."""
        return [entry.name for _, entry in self.placed]

    def write(self, files: Iterable[FileCopy | None]) -> None:
        """Write the journal and the files to insert, then move both to their final path."""
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
        content["entries"] = entries
        journal = FileCopy(
            name=f"{part.own}/{_JOURNAL}",
            data=json.dumps(content).encode(),
            mode=0o600,
            written=0,
            owner=(os.geteuid(), os.getegid()),
        )
        folder.write(journal)
        folder.sync(f"{part.own}/", f"{part.files}/")
        folder.move(part.own, self.own)
        folder.sync(f"{PENDING}/")

    def edited(self, index: Index, raw: bytes, *, undo: bool = False) -> bytes:
        """Return the index after the operation, or after its rollback."""
        inserts = self.taking_out == undo
        edit = index.insert_entries if inserts else index.remove_entries
        return self._asked(edit, raw)

    def before(self, index: Index, raw: bytes) -> bytes:
        """Return the index without the change of the operation; later edits are kept."""
        old = self.folder.read_if_there(f"{self.own}/{_OLD}")
        base = self.folder.read_if_there(f"{self.own}/{_BASE}")
        made = self.folder.read_if_there(f"{self.own}/{_MADE}")
        if old and base and made and made.data == _digest(base.data):
            reverted = index.without_change(old.data, base.data, raw)
            if reverted is not None:
                return reverted
        return self.edited(index, raw, undo=True)

    def _asked(
        self, ask: Callable[[bytes, Mapping[str, Any], Collection[str]], Answer], raw: bytes
    ) -> Answer:
        """Return ``ask(raw, entries, names)`` for the memories that have index entries.

        An error means that the journal is damaged.
        """
        entries = {
            entry.key: entry.index_entries
            for entry in self.entries
            if entry.index_entries is not None
        }
        names = {*self.folder.listing().files, *self.names}
        try:
            return ask(raw, entries, names)
        except _FAULTS as error:
            raise _not_ours(self.folder, f"{type(error).__name__}: {error}") from error

    def swap_index(
        self,
        index: Index,
        *,
        undo: bool = False,
        are_new: bool = False,
        earlier: IndexVersion | None = None,
    ) -> IndexSwap | None:
        """Exchange the index with an edited version, or with an `earlier` version.

        Return None if the index needs no change. Raise ChangedWhileReadError if the index was
        edited meanwhile: the entries of memories to remove must be unchanged, memories that
        `are_new` may not have an entry, and only the index that followed the `earlier` version is
        exchanged with it.
        """
        name = index.index_name
        folder = self.folder
        now = folder.read_if_there(name) if name else None
        before = b"" if now is None else now.data
        if not name:
            return None
        is_planned = undo or not self.taking_out or self._asked(index.are_entries_unchanged, before)
        if not is_planned or (are_new and self._asked(index.keys_with_entry, before)):
            raise changed(folder.path / name)
        written = file_clock()
        if earlier is not None and earlier.data is not None:
            if digest_of(before) != earlier.digest_after:
                raise changed(folder.path / name)
            new = earlier.data
            written = earlier.written
        else:
            new = self.before(index, before) if undo else self.edited(index, before)
        if new == before:
            return None
        around = os.fstat(folder.handle)
        like = now or FileCopy(name, b"", 0o600, 0, (around.st_uid, around.st_gid))
        version = f"{self.own}/{VERSION}"
        file = like._replace(name=version, data=new, written=written)
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
        return IndexSwap(now, new, version)

    def _exchange_back(self, version: str, name: str, made: bytes) -> None:
        """Exchange the index with its former version again."""
        self.folder.exchange(version, name)
        back = self.folder.read_if_there(version)
        if back is not None and _digest(back.data) != made:  # it was edited in that instant
            self.folder.link(version, f"{name}.edited-{token_hex(4)}")

    def roll_back(self, index: Index) -> None:
        """Restore the files and the index."""
        if self.taking_out:
            self._restore_names()
            self._restore_index(index)
        else:
            self._restore_index(index)
            for entry in self.put_in():
                self.folder.unlink(entry.name)
        self.folder.sync(*self.names)

    def put_in(self) -> Iterator[Entry]:
        """Yield the entries of inserted files that are unchanged since."""
        for place, entry in self.placed:
            inserted = self.folder.stamp_of(place)
            if inserted is None:
                continue
            current = None
            with suppress(NotADirectoryError):  # a file is in the place of its folder
                current = self.folder.stamp_of(entry.name)
            if current is None:
                continue
            if current.inode == inserted.inode and current.written == entry.written:
                yield entry

    def _restore_names(self) -> None:
        """Give the files that were moved out their names again."""
        for place, entry in self.placed:
            moved = self.folder.inode_of(place)
            file_names = self.folder.inode_of(entry.name) if moved is not None else None
            if moved is not None and file_names is None:
                self.folder.link(place, entry.name)
            elif file_names != moved:  # another file was written under the name: both are kept
                with suppress(FileExistsError):
                    self.folder.link(place, f"{entry.name}.before-{moved:x}")
        self.folder.sync(*self.names)

    def _restore_index(self, index: Index) -> None:
        """Restore the former index, or undo the change in an index that was edited since."""
        folder = self.folder
        name = index.index_name
        if not name:
            return
        made = folder.read_if_there(f"{self.own}/{_MADE}")
        if made is None:
            return
        version = folder.read_if_there(f"{self.own}/{VERSION}")
        now = folder.read_if_there(name)
        is_linked = folder.inode_of(f"{self.own}/{VERSION}") == folder.inode_of(name)
        if version and made.data == _digest(version.data) and not is_linked:
            return  # the versions were not exchanged
        if version is None or now is None or made.data != _digest(now.data):
            self.swap_index(index, undo=True)
        elif is_linked:
            folder.unlink(name)  # there was no index before
        else:
            self._exchange_back(version.name, name, made.data)


def roll_back(folder: Folder, index: Index) -> None:
    """Roll back the pending change, which may have been interrupted, if there is one."""
    for operation in reversed(pending_operations(folder)):
        operation.roll_back(index)
    if folder.inode_of(PENDING) is not None:
        end_pending(folder)
        folder.sync()
    sweep(folder)


def end_pending(folder: Folder) -> None:
    """Complete the pending change. It is durable once the folder is synced."""
    folder.move(PENDING, f"{_OVER}{token_hex(4)}")


def sweep(folder: Folder) -> None:
    """Remove the folders of completed changes."""
    for name in folder.listing().others:
        if name.startswith(_OVER):
            with suppress(OSError):  # the next change tries again
                shutil.rmtree(name, dir_fd=folder.handle)


def pending_operations(folder: Folder) -> list[Operation]:
    """Return the operations of the pending change in order; none if no change is pending."""
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
            raise changed(folder.path) from error  # the change was completed meanwhile
        if isinstance(error, StoreError):
            raise
        raise _not_ours(folder, str(error)) from error


def _operations(folder: Folder) -> list[Operation]:
    """Return the operations; raise ValueError for unknown files, which completion would delete."""
    inside = folder.names_in(PENDING) - {_PART}
    names = [str(number) for number in range(1, len(inside) + 1)]
    if others := inside - {*names}:
        raise ValueError(f"{min(others)!r} is not an operation of it")
    operations = []
    for name in names:
        own = f"{PENDING}/{name}"
        content = json.loads(folder.read(f"{own}/{_JOURNAL}").data)
        _check_content(folder, content)
        entries = tuple(
            Entry(**{field: row[key] for field, key in _ENTRY_KEYS.items()})
            for row in content["entries"]
        )
        operation = Operation(folder, own, content["taking_out"], entries)
        known = {place.rpartition("/")[2] for place, _ in operation.placed}
        if others := folder.names_in(operation.files) - known:
            raise ValueError(f"{min(others)!r} is none of its files")
        operations.append(operation)
    return operations


def _file_name(value: Any) -> None:
    """Check the path of a file in a journal; it is empty for a memory without a file."""
    text(value)
    if value and not is_file_path(value):
        raise ValueError(f"{value!r:.80} is not a file of the folder")


_ENTRY: Final = fields({"key": text, "name": _file_name, "written": integer(), "said": anything})
_CONTENT: Final = {
    _MARKER: integer(1),
    _READABLE_FROM: integer(1),
    "taking_out": boolean,
    "entries": list_of(_ENTRY),
}


def _check_content(folder: Folder, content: Any) -> None:
    """Check the content of a journal; a journal of a newer format may have unknown fields."""
    fields(_CONTENT, absent={_READABLE_FROM}, others=anything)(content)
    written = written_in(content[_MARKER], content.get(_READABLE_FROM))
    FORMAT.check(f"the change that is pending in {folder.path / PENDING}", written, StoreError)
    if not FORMAT.is_newer(written):
        fields(_CONTENT, absent={_READABLE_FROM})(content)


def _not_ours(folder: Folder, why: str) -> StoreError:
    """Return the error for a pending change that this version cannot roll back."""
    return StoreError(
        f"{folder.path / PENDING} is no change that this memlab can take back ({why}); look into "
        "it, move what is under out back by hand, then remove it"
    )


def _digest(data: bytes) -> bytes:
    return sha256(data).hexdigest().encode()


class Place(NamedTuple):
    """The current path of a file, which a pending change may have moved, and its stamp."""

    path: str
    stamp: Stamp


@dataclass(frozen=True)
class FolderMoment:
    """The content of a folder at one moment; see :func:`folder_moment` and :func:`moment_now`."""

    folder: Folder
    listing: Listing
    index: FileCopy | None
    _places: dict[str, Place] = field(repr=False)
    _used: set[Place] = field(default_factory=set, repr=False)
    is_pending: bool = False
    known: frozenset[str] | None = None
    """For a moment in the past, the names of all files that ever existed."""

    @property
    def names(self) -> list[str]:
        """Names of the regular files without the pending change, sorted."""
        return sorted(self._places)

    def stamp_of(self, name: str) -> Stamp:
        """Return the stamp of a file, which changes when the file is written."""
        return self._places[name].stamp

    def rely_on(self, name: str) -> Stamp:
        """Return the stamp of a file, and check at the end that it is unchanged."""
        self._used.add(self._places[name])
        return self._places[name].stamp

    def read(self, name: str) -> FileCopy:
        """Return a file, and check at the end that it is unchanged."""
        place = self._places[name]
        try:
            found = self.folder.read(place.path, place.stamp)
        except FileNotFoundError as error:
            raise changed(self.folder.path) from error
        self._used.add(place)
        return found._replace(name=name)

    def check(self) -> None:
        """Raise ChangedWhileReadError if a file that was read has changed."""
        with suppress(OSError):
            if all(self.folder.stamp_of(path) == stamp for path, stamp in self._used):
                return
        raise changed(self.folder.path)


@contextmanager
def folder_moment(path: Path | str, index: Index) -> Iterator[FolderMoment]:
    """Yield the folder at this moment without its pending change; check for changes at the end."""
    with opened_folder(path, index.includes) as folder:
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
    """Return the content of an open folder at this moment, with its pending change."""
    listing = folder.listing()
    name = index.index_name
    if name in listing.others:
        raise StoreError(
            f"{folder.path / name} is not an ordinary file of a size that an index has, and "
            "memlab follows no link: put the file itself there"
        )
    places = {name: Place(name, stamp) for name, stamp in listing.files.items()}
    seen = FolderMoment(folder, listing, None, places)
    if name not in places:
        return seen
    # The index is not checked again at the end, because later edits of it do no harm.
    return replace(seen, index=seen.read(name), _used=set())


def _before(operation: Operation, seen: FolderMoment, index: Index) -> FolderMoment:
    """Return a moment without an operation of the pending change."""
    places = dict(seen._places)
    if operation.taking_out:
        for path, entry in operation.placed:
            stamp = operation.folder.stamp_of(path)
            if stamp is not None:
                places.setdefault(entry.name, Place(path, stamp))
    else:
        for entry in operation.put_in():
            places.pop(entry.name, None)
    raw = seen.index
    removed = places.get(index.index_name) if raw is None else None
    if removed is not None:  # the operation removes the index itself
        raw = operation.folder.read(removed.path)._replace(name=index.index_name)
    elif raw is not None:
        raw = raw._replace(data=operation.before(index, raw.data))
    return replace(seen, index=raw, is_pending=True, _places=places)
