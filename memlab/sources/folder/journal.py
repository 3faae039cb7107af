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
    changed_while_read,
    is_file_path,
    opened_folder,
)
from memlab.store.archive.index_versions import IndexVersion, digest_of
from memlab.store.shapes import anything, boolean, fields, integer, list_of, text
from memlab.versions import FileFormat, written_in

PENDING: Final = ".memlab"
"""Folder of the pending change."""
_COMPLETED: Final = ".memlab-"
"""Prefix of the folders of completed changes, which are to be removed."""
_UNFINISHED: Final = "part"
"""Folder of an operation whose journal is still being written; the operation has not begun."""

_OTHER_VERSION: Final = "index"
"""The other version of the index: the new one before the exchange, the old one after it."""
_NEW_DIGEST: Final = "made"
"""Digest of the new version, which shows whether the index was edited since."""
_BEFORE_INSERTION: Final = "old"
"""The index before memories were inserted."""
_AFTER_INSERTION: Final = "base"
"""The index after memories were inserted. A comparison with it shows later edits."""
_JOURNAL: Final = "journal.json"
_MARKER: Final = "memlab_folder_change"
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""Format of a journal.

The number `readable_from` is written only if it differs from the number of the format, because
readers of format 1 reject unknown fields.
"""
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


class FolderRules(Protocol):
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
        """Return whether the files of a subfolder may belong to the folder, by its relative path.

        Unlike :meth:`includes`, this also decides for subfolders that no longer exist.
        """
        return False

    def includes(self, path: str, parent: Folder) -> bool:
        """Return whether the files of a subfolder that exists belong to the folder.

        Parameters
        ----------
        path : str
            Its relative path.
        parent : Folder
            The open folder that contains it.
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

    def without_change(self, before: bytes, after: bytes, current: bytes) -> bytes | None:
        """Return the current index without a change from `before` to `after`; None if unknown."""
        return None


Result = TypeVar("Result")


class MovedFile(NamedTuple):
    """A file that a change moved: its current path, its content and its former path."""

    path: str
    data: bytes
    former_path: str


class IndexSwap(NamedTuple):
    """An exchange of the index with a new version.

    Attributes
    ----------
    before : FileCopy or None
        The index before the exchange; None if there was none.
    after : bytes
        The content of the new version.
    path : str
        Path of the replaced version. If there was no index, path of the new version.
    """

    before: FileCopy | None
    after: bytes
    path: str

    @property
    def moved(self) -> MovedFile:
        """The file at `path` after the exchange, with its former path.

        It is the replaced version. If there was no index before, it is the new version, and `path`
        stands for its former path, too.
        """
        if self.before is None:
            return MovedFile(self.path, self.after, self.path)
        return MovedFile(self.path, self.before.data, self.before.name)


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
    path : str
        The path of the folder with the journal of the operation.
    is_removal : bool
        Whether the memories are removed; otherwise they are inserted.
    entries : tuple of Entry
        The memories.
    """

    folder: Folder
    path: str
    is_removal: bool
    entries: tuple[Entry, ...]

    @property
    def files_path(self) -> str:
        """Path of the folder with its files, which are named by the numbers of the entries."""
        return f"{self.path}/{'out' if self.is_removal else 'in'}"

    @property
    def paths_and_entries(self) -> list[tuple[str, Entry]]:
        """Entries that have a file, each with the path of the file during the change."""
        paths_and_entries = []
        for number, entry in enumerate(self.entries):
            if entry.name:
                paths_and_entries.append((f"{self.files_path}/{number}", entry))
        return paths_and_entries

    @property
    def names(self) -> list[str]:
        """Names of the files that it removes or inserts."""
        return [entry.name for entry in self.entries if entry.name]

    def write(self, files: Iterable[FileCopy | None]) -> None:
        """Write the journal and the files to insert, then move both to their final path.

        Parameters
        ----------
        files : iterable of FileCopy or None
            The file of each entry, in the order of the entries; None for an entry without a file.
        """
        unfinished = replace(self, path=f"{PENDING}/{_UNFINISHED}")
        folder = self.folder
        if folder.inode_of(PENDING) is None:
            folder.make_folder(PENDING, 0o700)
        folder.make_folder(unfinished.files_path)
        if not self.is_removal:
            for number, file in enumerate(files):
                if file is not None:
                    folder.write(file._replace(name=f"{unfinished.files_path}/{number}"))
        journal = FileCopy(
            name=f"{unfinished.path}/{_JOURNAL}",
            data=json.dumps(self._json_fields()).encode(),
            mode=0o600,
            written=0,
            owner=(os.geteuid(), os.getegid()),
        )
        folder.write(journal)
        folder.sync(f"{unfinished.path}/", f"{unfinished.files_path}/")
        folder.move(unfinished.path, self.path)
        folder.sync(f"{PENDING}/")

    def _json_fields(self) -> dict[str, Any]:
        """Return the content of the journal as JSON values."""
        content: dict[str, Any] = {_MARKER: FORMAT.number}
        if FORMAT.readable_from != FORMAT.number:
            content[_READABLE_FROM] = FORMAT.readable_from
        content["taking_out"] = self.is_removal
        content["entries"] = [
            {key: getattr(entry, name) for name, key in _ENTRY_KEYS.items()}
            for entry in self.entries
        ]
        return content

    def index_after(self, rules: FolderRules, raw: bytes) -> bytes:
        """Return the index after the operation."""
        edit = rules.remove_entries if self.is_removal else rules.insert_entries
        return self._with_entries(edit, raw)

    def index_before(self, rules: FolderRules, raw: bytes) -> bytes:
        """Return the index without the change of the operation; later edits are kept."""
        insertion = self._complete_insertion()
        if insertion is not None:
            before, after = insertion
            reverted = rules.without_change(before, after, raw)
            if reverted is not None:
                return reverted
        undo = rules.insert_entries if self.is_removal else rules.remove_entries
        return self._with_entries(undo, raw)

    def _complete_insertion(self) -> tuple[bytes, bytes] | None:
        """Return the index before and after an insertion; None unless both are stored whole."""
        before = self.folder.read_if_there(f"{self.path}/{_BEFORE_INSERTION}")
        after = self.folder.read_if_there(f"{self.path}/{_AFTER_INSERTION}")
        new_digest = self.folder.read_if_there(f"{self.path}/{_NEW_DIGEST}")
        if before is None or after is None or new_digest is None:
            return None
        # The digest is written last, so a crash while the versions were written shows in it.
        if new_digest.data != _digest(after.data):
            return None
        return before.data, after.data

    def _with_entries(
        self, function: Callable[[bytes, Mapping[str, Any], Collection[str]], Result], raw: bytes
    ) -> Result:
        """Return the result of a method of :class:`FolderRules` for the entries of the operation.

        An error means that the journal is damaged.
        """
        entries = {
            entry.key: entry.index_entries
            for entry in self.entries
            if entry.index_entries is not None
        }
        file_names = {*self.folder.listing().files, *self.names}
        try:
            return function(raw, entries, file_names)
        except _FAULTS as error:
            raise _damaged(self.folder, f"{type(error).__name__}: {error}") from error

    def swap_index(
        self,
        rules: FolderRules,
        *,
        undo: bool = False,
        are_new: bool = False,
        earlier: IndexVersion | None = None,
    ) -> IndexSwap | None:
        """Exchange the index with an edited version, or with an `earlier` version.

        Return None if the index needs no change.

        Parameters
        ----------
        rules : FolderRules
            The rules of the folder.
        undo : bool
            Whether to undo the change of the operation.
        are_new : bool
            Whether the memories are new: the index must not have an entry of them.
        earlier : IndexVersion, optional
            The version to restore.

        Raises
        ------
        ChangedWhileReadError
            If the index was edited meanwhile: an entry to remove has changed, a new memory has an
            entry, or the index is not the one that followed the `earlier` version.
        """
        name = rules.index_name
        if not name:
            return None
        before = self.folder.read_if_there(name)
        raw = b"" if before is None else before.data
        if not undo:
            self._check_entries(rules, raw, are_new=are_new)
        written = file_clock()
        # An earlier version without data shows that there was no index before the plan. The entries
        # of the operation are then removed or inserted, as without an earlier version.
        if earlier is not None and earlier.data is not None:
            if digest_of(raw) != earlier.digest_after:
                raise changed_while_read(self.folder.path / name)
            data = earlier.data
            written = earlier.written
        elif undo:
            data = self.index_before(rules, raw)
        else:
            data = self.index_after(rules, raw)
        if data == raw:
            return None
        template = self._empty_index(name) if before is None else before
        path = f"{self.path}/{_OTHER_VERSION}"
        version = template._replace(name=path, data=data, written=written)
        self._write_version(version, raw, undo=undo)
        self._exchange_index(name, before, path, data)
        return IndexSwap(before, data, path)

    def _check_entries(self, rules: FolderRules, raw: bytes, *, are_new: bool) -> None:
        """Raise ChangedWhileReadError if the entries of the memories were edited meanwhile."""
        path = self.folder.path / rules.index_name
        if self.is_removal and not self._with_entries(rules.are_entries_unchanged, raw):
            raise changed_while_read(path)
        if are_new and self._with_entries(rules.keys_with_entry, raw):
            raise changed_while_read(path)

    def _empty_index(self, name: str) -> FileCopy:
        """Return an empty index that belongs to the owner of the folder."""
        status = os.fstat(self.folder.handle)
        owner = (status.st_uid, status.st_gid)
        return FileCopy(name=name, data=b"", mode=0o600, written=0, owner=owner)

    def _write_version(self, version: FileCopy, raw: bytes, *, undo: bool) -> None:
        """Write a version of the index beside the journal, and what a rollback needs to know.

        Parameters
        ----------
        version : FileCopy
            The new version.
        raw : bytes
            The content of the index before.
        undo : bool
            Whether the version undoes the operation. An undo is never rolled back.
        """
        folder = self.folder
        with suppress(FileNotFoundError):  # an operation that is undone has another version there
            folder.unlink(version.name)
        folder.write(version)
        if not undo:
            private = version._replace(mode=0o600)
            if not self.is_removal:
                before_path = f"{self.path}/{_BEFORE_INSERTION}"
                folder.write(private._replace(name=before_path, data=raw))
                folder.write(private._replace(name=f"{self.path}/{_AFTER_INSERTION}"))
            digest_path = f"{self.path}/{_NEW_DIGEST}"
            folder.write(private._replace(name=digest_path, data=_digest(version.data)))
        # A rollback needs the digest on the disk to tell whether the versions were exchanged.
        folder.sync(version.name)

    def _exchange_index(self, name: str, before: FileCopy | None, path: str, data: bytes) -> None:
        """Exchange the index with the version at a path; exchange back if it was edited meanwhile.

        Parameters
        ----------
        name : str
            The name of the index.
        before : FileCopy or None
            The index as it was read; None if there was none.
        path : str
            The path of the new version.
        data : bytes
            The content of the new version.
        """
        folder = self.folder
        try:
            if before is None:
                folder.link(path, name)
            else:
                folder.exchange(path, name)
        except (FileExistsError, FileNotFoundError) as error:  # another program made or removed it
            raise changed_while_read(folder.path / name) from error
        replaced = folder.read_if_there(path)
        if before is not None and (replaced is None or replaced.data != before.data):
            self._exchange_back(path, name, _digest(data))
            raise changed_while_read(folder.path / name)
        folder.sync()

    def _exchange_back(self, path: str, name: str, new_digest: bytes) -> None:
        """Exchange the index with its former version at a path again.

        The new version stays under another name if it was edited in the meantime.
        """
        self.folder.exchange(path, name)
        new_version = self.folder.read_if_there(path)
        if new_version is not None and _digest(new_version.data) != new_digest:
            self.folder.link(path, f"{name}.edited-{token_hex(4)}")

    def roll_back(self, rules: FolderRules) -> None:
        """Restore the files and the index."""
        if self.is_removal:
            self._restore_names()
            self._restore_index(rules)
        else:
            self._restore_index(rules)
            for entry in self.unchanged_insertions():
                self.folder.unlink(entry.name)
        self.folder.sync(*self.names)

    def unchanged_insertions(self) -> Iterator[Entry]:
        """Yield the entries of inserted files that are unchanged since."""
        for path, entry in self.paths_and_entries:
            inserted = self.folder.stamp_of(path)
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
        """Give the removed files their names again.

        If another file has the name by now, the removed file gets a name beside it.
        """
        for path, entry in self.paths_and_entries:
            removed_inode = self.folder.inode_of(path)
            if removed_inode is None:
                continue
            current_inode = self.folder.inode_of(entry.name)
            if current_inode is None:
                self.folder.link(path, entry.name)
            elif current_inode != removed_inode:
                with suppress(FileExistsError):
                    self.folder.link(path, f"{entry.name}.before-{removed_inode:x}")
        self.folder.sync(*self.names)

    def _restore_index(self, rules: FolderRules) -> None:
        """Restore the former index, or undo the change in an index that was edited since."""
        folder = self.folder
        name = rules.index_name
        if not name:
            return
        new_digest = folder.read_if_there(f"{self.path}/{_NEW_DIGEST}")
        if new_digest is None:
            return
        other_path = f"{self.path}/{_OTHER_VERSION}"
        other = folder.read_if_there(other_path)
        current = folder.read_if_there(name)
        is_other_new = other is not None and _digest(other.data) == new_digest.data
        is_current_new = current is not None and _digest(current.data) == new_digest.data
        # If there was no index before, the new version was linked: both paths are one file.
        is_linked = folder.inode_of(other_path) == folder.inode_of(name)
        if is_other_new and not is_linked:
            return  # the versions were not exchanged
        if other is None or not is_current_new:  # the index was edited since
            self.swap_index(rules, undo=True)
        elif is_linked:
            folder.unlink(name)
        else:
            self._exchange_back(other.name, name, new_digest.data)


def roll_back(folder: Folder, rules: FolderRules) -> None:
    """Roll back the pending change, which may have been interrupted, if there is one."""
    for operation in reversed(pending_operations(folder)):
        operation.roll_back(rules)
    if folder.inode_of(PENDING) is not None:
        complete_pending(folder)
        folder.sync()
    remove_completed(folder)


def complete_pending(folder: Folder) -> None:
    """Complete the pending change. It is durable once the folder is synced."""
    folder.move(PENDING, f"{_COMPLETED}{token_hex(4)}")


def remove_completed(folder: Folder) -> None:
    """Remove the folders of completed changes."""
    for name in folder.listing().others:
        if name.startswith(_COMPLETED):
            with suppress(OSError):  # the next change tries again
                shutil.rmtree(name, dir_fd=folder.handle)


def pending_operations(folder: Folder) -> list[Operation]:
    """Return the operations of the pending change in order; none if no change is pending."""
    path = folder.path / PENDING
    advice = "that is memlab's name for a change under way: move it elsewhere"
    try:
        with folder.subfolder(PENDING) as pending:
            status = os.fstat(pending.handle)
            folder_status = os.fstat(folder.handle)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path} is in the way ({error.strerror}); {advice}") from error
    trusted_owners = (folder_status.st_uid, os.geteuid(), 0)  # 0 is root
    is_open_to_others = bool(stat.S_IMODE(status.st_mode) & 0o077)  # any right of group or others
    if is_open_to_others or status.st_uid not in trusted_owners:
        raise StoreError(f"{path} was not made by memlab: others may write to it; {advice}")
    try:
        return _operations(folder)
    except (StoreError, OSError, ValueError, RecursionError) as error:
        if folder.inode_of(PENDING) != status.st_ino:
            raise changed_while_read(folder.path) from error  # the change was completed meanwhile
        if isinstance(error, StoreError):
            raise
        raise _damaged(folder, str(error)) from error


def _operations(folder: Folder) -> list[Operation]:
    """Return the operations; raise ValueError for unknown files, which completion would delete."""
    names_inside = folder.names_in(PENDING) - {_UNFINISHED}
    names = [str(number) for number in range(1, len(names_inside) + 1)]
    unknown_names = names_inside.difference(names)
    if unknown_names:
        raise ValueError(f"{min(unknown_names)!r} is not an operation of it")
    return [_operation_at(f"{PENDING}/{name}", folder) for name in names]


def _operation_at(path: str, folder: Folder) -> Operation:
    """Return the operation with its journal in a folder; raise ValueError for unknown files."""
    content = json.loads(folder.read(f"{path}/{_JOURNAL}").data)
    _check_content(folder, content)
    entries = tuple(
        Entry(**{field: row[key] for field, key in _ENTRY_KEYS.items()})
        for row in content["entries"]
    )
    operation = Operation(folder, path, content["taking_out"], entries)
    known_names = {Path(file_path).name for file_path, _ in operation.paths_and_entries}
    unknown_names = folder.names_in(operation.files_path) - known_names
    if unknown_names:
        raise ValueError(f"{min(unknown_names)!r} is none of its files")
    return operation


def _check_file_path(value: Any) -> None:
    """Check the path of a file in a journal; it is empty for a memory without a file."""
    text(value)
    if value and not is_file_path(value):
        raise ValueError(f"{value!r:.80} is not a file of the folder")


_ENTRY: Final = fields(
    {"key": text, "name": _check_file_path, "written": integer(), "said": anything}
)
_JOURNAL_FIELDS: Final = {
    _MARKER: integer(1),
    _READABLE_FROM: integer(1),
    "taking_out": boolean,
    "entries": list_of(_ENTRY),
}


def _check_content(folder: Folder, content: Any) -> None:
    """Check the content of a journal; a journal of a newer format may have unknown fields."""
    fields(_JOURNAL_FIELDS, may_be_absent={_READABLE_FROM}, others=anything)(content)
    written = written_in(content[_MARKER], content.get(_READABLE_FROM))
    FORMAT.check(f"the change that is pending in {folder.path / PENDING}", written, StoreError)
    if not FORMAT.is_newer(written):
        fields(_JOURNAL_FIELDS, may_be_absent={_READABLE_FROM})(content)


def _damaged(folder: Folder, reason: str) -> StoreError:
    """Return the error for a pending change that this version cannot roll back."""
    return StoreError(
        f"{folder.path / PENDING} is a pending change that this memlab cannot undo ({reason}); "
        "move the files in it back to the folder above by hand, then remove it"
    )


def _digest(data: bytes) -> bytes:
    """Return the digest of an index, as it is written beside a journal."""
    return sha256(data).hexdigest().encode()


class FileLocation(NamedTuple):
    """The current path of a file, which a pending change may have moved, and its stamp."""

    path: str
    stamp: Stamp


@dataclass(frozen=True)
class FolderMoment:
    """The content of a folder at one moment; see :func:`folder_moment` and :func:`moment_now`."""

    folder: Folder
    listing: Listing
    index: FileCopy | None
    _locations: dict[str, FileLocation] = field(repr=False)
    _read_locations: set[FileLocation] = field(default_factory=set, repr=False)
    """The files that :meth:`check` checks."""
    is_pending: bool = False
    """Whether there is a pending change."""
    names_ever: frozenset[str] | None = None
    """For a moment in the past, the names of all files that ever existed."""

    @property
    def is_past(self) -> bool:
        """Whether it is a moment in the past, read from git."""
        return self.names_ever is not None

    @property
    def names(self) -> list[str]:
        """Names of the regular files without the pending change, sorted."""
        return sorted(self._locations)

    def stamp_of(self, name: str) -> Stamp:
        """Return the stamp of a file, which changes when the file is written."""
        return self._locations[name].stamp

    def rely_on(self, name: str) -> Stamp:
        """Return the stamp of a file; :meth:`check` will check that it is unchanged."""
        self._read_locations.add(self._locations[name])
        return self._locations[name].stamp

    def read(self, name: str) -> FileCopy:
        """Return a file; :meth:`check` will check that it is unchanged."""
        location = self._locations[name]
        try:
            file = self.folder.read(location.path, location.stamp)
        except FileNotFoundError as error:
            raise changed_while_read(self.folder.path) from error
        self._read_locations.add(location)
        return file._replace(name=name)

    def check(self) -> None:
        """Raise ChangedWhileReadError if a file that was read has changed."""
        try:
            for path, stamp in self._read_locations:
                if self.folder.stamp_of(path) != stamp:
                    raise changed_while_read(self.folder.path)
        except OSError as error:
            raise changed_while_read(self.folder.path) from error


@contextmanager
def folder_moment(path: Path | str, rules: FolderRules) -> Iterator[FolderMoment]:
    """Yield the folder at this moment without its pending change; check for changes at the end."""
    with opened_folder(path, rules.includes) as folder:
        pending_inode = folder.inode_of(PENDING)
        moment = moment_now(folder, rules)
        for operation in reversed(pending_operations(folder)):
            moment = _before_operation(operation, moment, rules)
        if pending_inode != folder.inode_of(PENDING):
            raise changed_while_read(folder.path)
        change_times = [moment.stamp_of(name).changed for name in moment.names]
        # A file that changes within the same tick would keep its time of change, so the check at
        # the end would miss the change.
        wait_for_clock_tick(max(change_times, default=0))
        yield moment
        moment.check()


def moment_now(folder: Folder, rules: FolderRules) -> FolderMoment:
    """Return the content of an open folder at this moment, with its pending change."""
    listing = folder.listing()
    index_name = rules.index_name
    if index_name in listing.others:
        raise StoreError(
            f"{folder.path / index_name} is a link, not a file, or too large for an index; put the "
            "file itself there"
        )
    locations = {name: FileLocation(name, stamp) for name, stamp in listing.files.items()}
    moment = FolderMoment(folder, listing, None, locations)
    if index_name not in locations:
        return moment
    # The index is not checked again at the end, because later edits of it do no harm.
    return replace(moment, index=moment.read(index_name), _read_locations=set())


def _before_operation(
    operation: Operation, moment: FolderMoment, rules: FolderRules
) -> FolderMoment:
    """Return a moment without an operation of the pending change."""
    folder = operation.folder
    locations = dict(moment._locations)
    if operation.is_removal:
        for path, entry in operation.paths_and_entries:
            stamp = folder.stamp_of(path)
            if stamp is not None:
                locations.setdefault(entry.name, FileLocation(path, stamp))
    else:
        for entry in operation.unchanged_insertions():
            locations.pop(entry.name, None)
    index_file = moment.index
    if index_file is not None:
        data = operation.index_before(rules, index_file.data)
        index_file = index_file._replace(data=data)
    elif rules.index_name in locations:  # the operation removes the index itself
        location = locations[rules.index_name]
        index_file = folder.read(location.path)._replace(name=rules.index_name)
    return replace(moment, index=index_file, is_pending=True, _locations=locations)
