"""Changing files of a folder and the index that names them: both or none.

A file system renames one thing at a time, so that a change of an index and of files is several
steps. As SQLite does with a journal beside its file, a change first writes down how to take it
back, in a folder ``.memlab`` inside the folder, and is over when that has gone:

1. *prepared*: ``.memlab`` appears, whole and synced: what the index says of each file, and for a
   change that puts files in, the files. From here on the change is pending.
2. *swapped*: the index and its new version, which lies in ``.memlab``, change places in one step.
   What came out must be what the new version was made from; else somebody has edited it, they
   change places again and the new version is made anew. A hand's edit is never overwritten.
3. *moved*: each file is renamed into ``.memlab`` and must be what was planned, or is linked from
   there under its name, which must be free. Where a system takes files out before their lines, and
   wherever files come back, this comes before 2.
4. *over*: ``.memlab`` is renamed, which commits all of it at once, and then removed.

Whoever is stopped before 4 leaves ``.memlab``. The next to change the folder first takes the change
back: files return to their names, what the index said of them returns into the index as it is now.
Whoever only reads sees the folder as if that had been done (:mod:`memlab.sources.folder_moment`).
What goes is in the archive before 1, so that nothing is ever there only once.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, StalePlanError, StoreError
from memlab.sources.base import Watch, unwatched
from memlab.sources.folder import FileCopy, Folder, opened_folder
from memlab.sources.folder_files import (
    give_name,
    made_folder,
    opened_subfolder,
    write_file,
)
from memlab.sources.folder_journal import (
    IN,
    OUT,
    PART,
    PENDING,
    Entry,
    Index,
    Journal,
    journal_file,
    journals_in,
)
from memlab.sources.folder_swap import VERSION, read_if_there, swap_index
from memlab.sources.folder_undo import edits_of, end_pending, sweep, take_back

_PATIENCE: Final = 30.0


class Step(StrEnum):
    """What a change of a folder has just done."""

    LOCKED = "folder locked"
    PREPARED = "change prepared"
    SWAPPED = "index swapped"
    MOVED = "file moved"
    OVER = "change over"


class Leaving(NamedTuple):
    """A memory that goes: its file, where it has one, and what the index says of it."""

    file: FileCopy | None
    said: Any


class Coming(NamedTuple):
    """A memory that comes back: its file, where it had one, and what the index said of it."""

    file: FileCopy | None
    said: Any


class FolderChange:
    """A folder that is locked and being changed. Get one from :func:`changed_folder`.

    Parameters
    ----------
    folder : Folder
        Open.
    index : Index
        What its kind knows of the index.
    watch : callable
        Called with each :class:`Step`.
    """

    def __init__(self, folder: Folder, index: Index, watch: Watch) -> None:
        self.folder: Final = folder
        self.index: Final = index
        self._watch: Final = watch
        self._count = 0
        self._moved: dict[tuple[int, str, str], bytes] = {}

    def index_now(self) -> FileCopy | None:
        """Return the index; None where there is none."""
        return read_if_there(self.folder, self.index.name)

    def take_out(self, leaving: Mapping[str, Leaving]) -> None:
        """Take memories out, by what the index calls each.

        Raises
        ------
        StalePlanError
            When a file is not what it was; let it end the block of :func:`changed_folder`.
        """
        with self._prepared(_entries(leaving), taking_out=True) as journal:
            if not self.index.first:
                self._move_out(journal, leaving)
            self._swap(journal)
            if self.index.first:
                self._move_out(journal, leaving)

    def put_back(self, coming: Mapping[str, Coming]) -> None:
        """Put memories back, by what the index calls each.

        Raises
        ------
        ArchiveError
            When the name of one is taken; let it end the block of :func:`changed_folder`.
        """
        files = [each.file for each in coming.values()]
        with self._prepared(_entries(coming), files, taking_out=False) as journal:
            self._move_in(journal)
            self._swap(journal)

    def commit(self) -> None:
        """Make all of it last.

        Raises
        ------
        StalePlanError
            When somebody who had a file open has written to it since it was moved.
        """
        if not self._count:
            return
        with journals_in(self.folder) as journals:
            for journal in journals:
                self._check_unwritten(journal)
        end_pending(self.folder)
        self._watch(Step.OVER)
        sweep(self.folder)

    @contextmanager
    def _prepared(
        self,
        entries: tuple[Entry, ...],
        files: Sequence[FileCopy | None] = (),
        *,
        taking_out: bool,
    ) -> Iterator[Journal]:
        """Write an operation down where it is found after a crash, and hand it out open."""
        self._count += 1
        part = PART + token_hex(4)
        with ExitStack() as stack:
            around = _made(stack, self.folder, self.folder.handle, part)
            handle = _made(stack, self.folder, around, str(self._count))
            inside = _made(stack, self.folder, handle, OUT if taking_out else IN)
            journal = Journal(handle, self._count, taking_out=taking_out, entries=entries)
            for number, file in enumerate(files):
                if file is not None:
                    write_file(inside, file._replace(name=str(number)))
            write_file(handle, journal_file(journal))
            for each in (inside, handle, around):
                os.fsync(each)
            self._pend(part, around)
            self._watch(Step.PREPARED)
            yield journal

    def _pend(self, part: str, around: int) -> None:
        """Let the operation just written be found as part of the pending change."""
        here = self.folder.handle
        if self._count == 1:
            os.rename(part, PENDING, src_dir_fd=here, dst_dir_fd=here)
        else:
            number = str(self._count)
            with opened_subfolder(here, PENDING) as pending:
                os.rename(number, number, src_dir_fd=around, dst_dir_fd=pending)
                os.fsync(pending)
            os.rmdir(part, dir_fd=here)
        self.folder.sync()

    def _move_out(self, journal: Journal, leaving: Mapping[str, Leaving]) -> None:
        with opened_subfolder(journal.handle, OUT) as out:
            for number, entry in enumerate(journal.entries):
                file = leaving[entry.key].file
                if file is None:
                    continue
                with suppress(FileNotFoundError):
                    os.rename(
                        entry.name, str(number), src_dir_fd=self.folder.handle, dst_dir_fd=out
                    )
                self._watch(Step.MOVED)
                moved = read_if_there(Folder(self.folder.path, out), str(number))
                if moved is None or moved.data != file.data:
                    raise self._stale(entry.name)
                self._moved[journal.number, OUT, str(number)] = file.data
            os.fsync(out)
            self.folder.sync()

    def _move_in(self, journal: Journal) -> None:
        with opened_subfolder(journal.handle, IN) as inside:
            for number, entry in enumerate(journal.entries):
                if not entry.name:
                    continue
                try:
                    give_name(inside, str(number), self.folder.handle, entry.name)
                except FileExistsError as error:
                    raise ArchiveError(
                        f"{self.folder.path / entry.name} is there again; nothing was restored: "
                        "restore other ids, or into a new folder"
                    ) from error
                self._watch(Step.MOVED)
        self.folder.sync()

    def _swap(self, journal: Journal) -> None:
        do, _ = edits_of(self.folder, self.index, journal)
        aside = swap_index(self.folder, self.index.name, journal.handle, do)
        if aside is not None:
            self._moved[journal.number, ".", VERSION] = aside
            self._watch(Step.SWAPPED)

    def _check_unwritten(self, journal: Journal) -> None:
        """Check that what was moved is still what it was: somebody may have had it open."""
        names = {str(at): entry.name for at, entry in enumerate(journal.entries)}
        for (operation, place, name), data in self._moved.items():
            if operation == journal.number:
                with opened_subfolder(journal.handle, place) as handle:
                    found = read_if_there(Folder(self.folder.path, handle), name)
                if found is None or found.data != data:
                    raise self._stale(names.get(name, self.index.name))

    def _stale(self, name: str) -> StalePlanError:
        return StalePlanError(
            f"{self.folder.path / name} was changed while it was deleted; nothing was deleted: "
            "make a new plan",
            memory_ids=(name,),
        )


@contextmanager
def changed_folder(
    path: Path | str, index: Index, *, watch: Watch = unwatched
) -> Iterator[FolderChange]:
    """Lock a folder, take back what was cut short, and hand it out to be changed.

    What the block changes lasts when it ends, and is taken back when it raises.

    Parameters
    ----------
    path : Path or str
        The folder.
    index : Index
        What its kind knows of its index.
    watch : callable, optional
        Called with each :class:`Step` when it is done.

    Raises
    ------
    StoreError
        When the folder cannot be written, or another memlab is changing it.
    """
    with opened_folder(path) as folder, _locked(folder), _in_words(folder):
        watch(Step.LOCKED)
        take_back(folder, index)
        change = FolderChange(folder, index, watch)
        try:
            yield change
            change.commit()
        except BaseException:
            take_back(folder, index)
            raise


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """Hold the lock that every memlab takes which changes the folder; it leaves no file."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(folder.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise StoreError(
                    f"{folder.path} is being changed by another memlab; try again when it is done"
                ) from error
            time.sleep(0.05)
    yield  # closing the folder unlocks it


@contextmanager
def _in_words(folder: Folder) -> Iterator[None]:
    """Raise the system's own errors as a StoreError that says what, where and what next."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{folder.path} cannot be changed ({error.strerror or error}); nothing was changed: "
            "check its permissions and the room on the disk"
        ) from error


def _made(stack: ExitStack, folder: Folder, parent: int, name: str) -> int:
    handle = made_folder(folder, parent, name)
    stack.callback(os.close, handle)
    return handle


def _entries(each: Mapping[str, Leaving] | Mapping[str, Coming]) -> tuple[Entry, ...]:
    return tuple(
        Entry(key, one.file.name, one.file.written, one.said)
        if one.file is not None
        else Entry(key, "", 0, one.said)
        for key, one in each.items()
    )
