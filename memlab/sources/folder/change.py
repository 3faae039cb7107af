"""Changing files of a folder and the index that names them: both or none.

As SQLite does with a journal beside its file, a change first writes down how to take it back, in a
folder ``.memlab`` inside the folder, and is over when that has gone:

1. *prepared*: ``.memlab`` appears, whole and synced: what the index says of each file, and for a
   change that puts files in, the files. From here on the change is pending.
2. *swapped*: the index and its new version, which lies in ``.memlab``, change places in one step.
   Where somebody has edited it meanwhile they change back: a hand's edit is never overwritten.
3. *moved*: each file is renamed into ``.memlab``, or is linked from there under its name, which
   must be free. Where a system takes files out before their lines, and wherever files come back,
   this comes before 2.
4. *over*: where all that was moved is still what was planned, ``.memlab`` is renamed, which commits
   it at once, and then removed.

Whoever is stopped before 4 leaves ``.memlab``; the next to change the folder first takes the change
back. Whoever only reads sees the folder as if that had been done. What goes is in the archive
before 1, so that nothing is ever there only once.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, StalePlanError, StoreError
from memlab.sources.folder import journal
from memlab.sources.folder.files import FileCopy, Folder, opened_folder
from memlab.sources.folder.journal import PENDING, Entry, Index, Moved, Operation
from memlab.text import refused

_PATIENCE: Final = 30.0


class Parts(NamedTuple):
    """Of a memory that goes or comes: its file, where it has one, and what the index says of it."""

    file: FileCopy | None
    said: Any


class FolderChange:
    """A folder that is locked and being changed. Get one from :func:`changed_folder`."""

    def __init__(self, folder: Folder, index: Index) -> None:
        self.folder: Final = folder
        self._index = index
        self.is_over = False
        self._count = 0
        self._moved: list[Moved] = []

    def take_out(self, memories: Mapping[str, Parts]) -> None:
        """Take memories out, by what the index calls each."""
        operation = self._begun(memories, taking_out=True)
        if self._index.index_first:
            self._moved += operation.swap_index(self._index)
        for number, (file, _) in enumerate(memories.values()):
            if file is not None:
                with suppress(FileNotFoundError):
                    self.folder.move(file.name, f"{operation.files}/{number}")
                self._moved.append((f"{operation.files}/{number}", file.data, file.name))
        self.folder.sync(f"{operation.files}/", *operation.names)
        if not self._index.index_first:
            self._moved += operation.swap_index(self._index)

    def put_back(self, memories: Mapping[str, Parts], *, are_new: bool = False) -> None:
        """Put memories back, by what the index calls each; `are_new` where it must not name any."""
        operation = self._begun(memories, taking_out=False)
        for place, entry in operation.placed:
            try:
                self.folder.link(place, entry.name)
            except FileExistsError as error:
                raise ArchiveError(
                    f"{self.folder.path / entry.name} is there again; nothing was restored: "
                    "restore other ids, or move it away first"
                ) from error
        self.folder.sync(*operation.names)
        self._moved += operation.swap_index(self._index, are_new=are_new)

    def commit(self) -> None:
        """Make all of it last, if what was moved is still what it was: it may have been open."""
        if not self._count:
            return
        for place, data, called in self._moved:
            found = self.folder.read_if_there(place)
            if found is None or found.data != data:
                raise StalePlanError(
                    f"{self.folder.path / called} was changed while it was deleted; nothing was "
                    "deleted: make a new plan",
                    memory_ids=(called,),
                )
        journal.end_pending(self.folder)
        self.is_over = True
        self.folder.sync()
        journal.sweep(self.folder)

    def _begun(self, memories: Mapping[str, Parts], *, taking_out: bool) -> Operation:
        """Write an operation down where it is found after a crash."""
        self._count += 1
        entries = tuple(
            Entry(key, file.name, file.written, said) if file else Entry(key, "", 0, said)
            for key, (file, said) in memories.items()
        )
        operation = Operation(self.folder, f"{PENDING}/{self._count}", taking_out, entries)
        operation.write(file for file, _ in memories.values())
        return operation


@contextmanager
def changed_folder(path: Path | str, index: Index) -> Iterator[FolderChange]:
    """Lock a folder, take back what was cut short, and hand it out to be changed."""
    with opened_folder(path, index.enters) as folder, _in_words(folder):
        _lock(folder)
        journal.take_back(folder, index)
        change = FolderChange(folder, index)
        try:
            yield change
            change.commit()
        except BaseException as error:
            if not change.is_over:
                journal.take_back(folder, index)
            elif isinstance(error, OSError):
                raise StoreError(
                    f"{folder.path} was changed and the disk may not keep that "
                    f"({error.strerror or error}): check the disk and run the same command again"
                ) from error
            raise


def _lock(folder: Folder) -> None:
    """Take the lock of every memlab that changes the folder; closing the folder unlocks it."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(folder.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise StoreError(
                    f"{folder.path} is being changed by another memlab; try again when it is done"
                ) from error
            time.sleep(0.05)


@contextmanager
def _in_words(folder: Folder) -> Iterator[None]:
    """Raise the system's own errors as a StoreError that says what, where and what next."""
    try:
        yield
    except OSError as error:
        begun = folder.inode_of(PENDING) is not None
        pending = "what was begun is taken back by the next command"
        what = f"{folder.path} cannot be changed, {pending if begun else 'nothing was changed'}"
        raise StoreError(refused(what, error)) from error
