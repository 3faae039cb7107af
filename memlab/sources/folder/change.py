"""Change files of a folder and its index atomically.

Like SQLite's rollback journal, a change first writes a journal with which it can be rolled back,
into a folder ``.memlab`` in the folder. The change is complete when that folder is gone:

1. *prepare*: ``.memlab`` is created and synced. It has the index entries of each file, and the
   files that are inserted. From now on the change is pending.
2. *exchange*: the index and its new version in ``.memlab`` are exchanged in one step. If the index
   was edited meanwhile, they are exchanged back, so that no edit is overwritten.
3. *move*: deleted files are renamed into ``.memlab``; inserted files are linked from there to their
   names, which must be unused. This step precedes step 2 for insertions, and for systems that
   delete files before their entries.
4. *commit*: if the moved files are unchanged, ``.memlab`` is renamed in one step, then removed.

If the process stops before step 4, ``.memlab`` remains. The next change of the folder rolls the
pending change back first. A reader sees the folder as if it had been rolled back. Deleted memories
are in the archive before step 1, so there are two copies at any time.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, StalePlanError, StoreError
from memlab.sources.folder import journal
from memlab.sources.folder.files import FileCopy, Folder, opened_folder
from memlab.sources.folder.journal import (
    PENDING,
    Entry,
    FolderRules,
    IndexSwap,
    MovedFile,
    Operation,
)
from memlab.store.archive.index_versions import IndexVersion, digest_of
from memlab.text import failure_message

_LOCK_TIMEOUT: Final = 30.0
"""Timeout in seconds for the lock of the folder."""


class MemoryParts(NamedTuple):
    """The file of a memory, or None if it has no file, and its index entries."""

    file: FileCopy | None
    index_entries: Any


class FolderChange:
    """A pending change of a locked folder. See :func:`changed_folder`."""

    def __init__(self, folder: Folder, rules: FolderRules) -> None:
        self.folder: Final = folder
        self.is_committed = False
        self.removes_empty_folders = False
        """Whether to remove subfolders that are empty once their memories are deleted."""
        self._rules = rules
        self._operation_count = 0
        self._moved_files: list[MovedFile] = []
        self._swaps: list[IndexSwap] = []

    def remove(self, memories: Mapping[str, MemoryParts]) -> None:
        """Delete memories; the keys are those of the index."""
        operation = self._begin_operation(memories, is_removal=True)
        if self._rules.index_first:
            self._swap_index(operation)
        for number, (file, _) in enumerate(memories.values()):
            if file is None:
                continue
            path = f"{operation.files_path}/{number}"
            with suppress(FileNotFoundError):  # commit() raises the error
                self.folder.move(file.name, path)
            self._moved_files.append(MovedFile(path, file.data, file.name))
        self.folder.sync(f"{operation.files_path}/", *operation.names)
        if not self._rules.index_first:
            self._swap_index(operation)

    def insert(
        self,
        memories: Mapping[str, MemoryParts],
        *,
        are_new: bool = False,
        earlier: IndexVersion | None = None,
    ) -> None:
        """Insert memories and their index entries, or an `earlier` version of the index.

        The index may not name memories that `are_new`.
        """
        operation = self._begin_operation(memories, is_removal=False)
        for path, entry in operation.paths_and_entries:
            try:
                self.folder.link(path, entry.name)
            except FileExistsError as error:
                raise ArchiveError(
                    f"{self.folder.path / entry.name} is there again; nothing was restored: "
                    "restore other ids, or move it away first"
                ) from error
        self.folder.sync(*operation.names)
        self._swap_index(operation, are_new=are_new, earlier=earlier)

    def _swap_index(
        self, operation: Operation, *, are_new: bool = False, earlier: IndexVersion | None = None
    ) -> None:
        """Exchange the index with its version after an operation."""
        swap = operation.swap_index(self._rules, are_new=are_new, earlier=earlier)
        if swap is not None:
            self._moved_files.append(swap.moved)
            self._swaps.append(swap)

    def index_version(self) -> IndexVersion | None:
        """Return the index before the change.

        Return None if the change left the index as it was, or if another program edited it between
        two operations.
        """
        if not self._swaps:
            return None
        for earlier, later in pairwise(self._swaps):
            if later.before is None or later.before.data != earlier.after:
                return None
        before = self._swaps[0].before
        return IndexVersion(
            name=self._rules.index_name,
            data=None if before is None else before.data,
            written=0 if before is None else before.written,
            digest_after=digest_of(self._swaps[-1].after),
        )

    def commit(self) -> None:
        """Commit the change if the moved files are unchanged; a program may have them open."""
        if not self._operation_count:
            return
        for moved in self._moved_files:
            file = self.folder.read_if_there(moved.path)
            if file is None or file.data != moved.data:
                raise StalePlanError(
                    f"{self.folder.path / moved.former_path} was changed while it was deleted; "
                    "nothing was deleted: make a new plan",
                    memory_ids=(moved.former_path,),
                )
        journal.complete_pending(self.folder)
        self.is_committed = True
        self.folder.sync()
        journal.remove_completed(self.folder)
        if self.removes_empty_folders:
            for moved in self._moved_files:
                self.folder.remove_empty_parents(moved.former_path)

    def _begin_operation(
        self, memories: Mapping[str, MemoryParts], *, is_removal: bool
    ) -> Operation:
        """Write the journal of an operation, so that it can be rolled back after a crash."""
        self._operation_count += 1
        entries = []
        for key, (file, index_entries) in memories.items():
            name = "" if file is None else file.name
            written = 0 if file is None else file.written
            entries.append(Entry(key=key, name=name, written=written, index_entries=index_entries))
        operation = Operation(
            folder=self.folder,
            path=f"{PENDING}/{self._operation_count}",
            is_removal=is_removal,
            entries=tuple(entries),
        )
        operation.write(file for file, _ in memories.values())
        return operation


@contextmanager
def changed_folder(path: Path | str, rules: FolderRules) -> Iterator[FolderChange]:
    """Lock a folder, roll back an interrupted change, and yield a new change of it."""
    with opened_folder(path, rules.includes) as folder, _store_errors(folder):
        _lock(folder)
        journal.roll_back(folder, rules)
        change = FolderChange(folder, rules)
        try:
            yield change
            change.commit()
        except BaseException as error:
            if not change.is_committed:
                journal.roll_back(folder, rules)
            elif isinstance(error, OSError):
                raise StoreError(
                    f"{folder.path} was changed, but perhaps not stored on the disk "
                    f"({error.strerror or error}): check the disk and run the same command again"
                ) from error
            raise


def _lock(folder: Folder) -> None:
    """Take the lock against other changes by memlab. Closing the folder releases it."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(folder.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{folder.path} is being changed by another memlab; try again when it is done"
                ) from error
            time.sleep(0.05)
        else:
            return


@contextmanager
def _store_errors(folder: Folder) -> Iterator[None]:
    """Raise errors of the system as StoreError, with the state of the folder."""
    try:
        yield
    except OSError as error:
        outcome = "nothing was changed"
        if folder.inode_of(PENDING) is not None:
            outcome = "the next command undoes the interrupted change"
        problem = f"{folder.path} cannot be changed, {outcome}"
        raise StoreError(failure_message(problem, error)) from error
