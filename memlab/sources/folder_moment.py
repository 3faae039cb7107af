"""A folder as it is at one moment, a pending change of it left out of account."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from memlab.clock import wait_out
from memlab.errors import ChangedWhileReadError
from memlab.sources.folder import FileCopy, Folder, Listing, Stamp, opened_folder
from memlab.sources.folder_files import inode_of, opened_subfolder
from memlab.sources.folder_journal import (
    IN,
    OUT,
    PENDING,
    Index,
    Journal,
    is_as_put,
    journals_in,
)
from memlab.sources.folder_undo import edits_of

_LOOKS: Final = 100


class Place(NamedTuple):
    """Where a file of the folder lies: under its own name, or moved out by a pending change."""

    folder: Folder
    name: str
    stamp: Stamp


@dataclass(frozen=True)
class FolderMoment:
    """What a folder holds. Get one from :func:`moment_of` or :func:`moment_now`.

    Parameters
    ----------
    folder : Folder
        Open.
    listing : Listing
        What is in it now.
    index : FileCopy or None
        As it would be without a pending change; None where there is none.
    is_pending : bool
        Whether a change was cut short, or is under way.
    """

    folder: Folder
    listing: Listing
    index: FileCopy | None
    is_pending: bool
    _places: dict[str, Place] = field(repr=False)
    _used: set[Place] = field(default_factory=set, repr=False)

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
        """Return a file of it.

        Raises
        ------
        ChangedWhileReadError
            When it is no longer what it was at this moment.
        FileNotFoundError
            When it is none of :attr:`names`.
        """
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
        """Look again at all that was read.

        Raises
        ------
        ChangedWhileReadError
            When something of it was written since.
        """
        folders = {place.folder for place in self._used}
        now = {folder: folder.listing().files for folder in folders}
        if any(now[place.folder].get(place.name) != place.stamp for place in self._used):
            raise changed(self.folder.path)


@contextmanager
def moment_of(path: Path | str, index: Index) -> Iterator[FolderMoment]:
    """Hand out a folder as it is now, a pending change of it taken back.

    What comes later is not seen. What was read is looked at again at the end.

    Parameters
    ----------
    path : Path or str
        The folder.
    index : Index
        What its kind knows of its index.

    Raises
    ------
    ChangedWhileReadError
        When what was read has been written meanwhile.
    StoreError
        When it cannot be read.
    """
    with opened_folder(path) as folder, ExitStack() as stack:
        for _ in range(_LOOKS):
            pending = inode_of(folder.handle, PENDING)
            with suppress(ChangedWhileReadError):
                seen = moment_now(folder, index)
                if pending == inode_of(folder.handle, PENDING):
                    break
        else:
            raise changed(folder.path)
        if pending is not None:
            seen = _taken_back(seen, index, stack)
        wait_out(max((seen.stamp_of(name).changed for name in seen.names), default=0))
        yield seen
        seen.check()


def moment_now(folder: Folder, index: Index) -> FolderMoment:
    """Return an open folder as it is now, whatever change is under way.

    Raises
    ------
    ChangedWhileReadError
        When the index is written meanwhile.
    """
    listing = folder.listing()
    places = {name: Place(folder, name, stamp) for name, stamp in listing.files.items()}
    raw = None
    if index.name in listing.files:
        try:
            raw = folder.read(index.name, listing.files[index.name])
        except FileNotFoundError as error:
            raise changed(folder.path) from error
    return FolderMoment(folder, listing, raw, is_pending=False, _places=places)


def changed(path: Path) -> ChangedWhileReadError:
    """Return the error for a folder that was written while it was read."""
    return ChangedWhileReadError(f"{path} is written while it is read; try again when it is quiet")


def _taken_back(seen: FolderMoment, index: Index, stack: ExitStack) -> FolderMoment:
    """Return a moment without the pending change."""
    journals = stack.enter_context(journals_in(seen.folder))
    places, raw = dict(seen._places), seen.index
    for journal in reversed(journals):
        _move_back(seen.folder, journal, places, stack)
        _, undo = edits_of(seen.folder, index, journal)
        raw = None if raw is None else raw._replace(data=undo(raw.data))
    return replace(seen, index=raw, is_pending=True, _places=places)


def _move_back(
    folder: Folder, journal: Journal, places: dict[str, Place], stack: ExitStack
) -> None:
    """Let files be where they were before an operation of a pending change."""
    name = OUT if journal.taking_out else IN
    inside = stack.enter_context(opened_subfolder(journal.handle, name))
    if journal.taking_out:
        moved = Folder(folder.path, inside)
        for number, stamp in moved.listing().files.items():
            entry = journal.entries[int(number)]
            places.setdefault(entry.name, Place(moved, number, stamp))
        return
    for at, entry in enumerate(journal.entries):
        if entry.name and is_as_put(inside, str(at), folder.handle, entry):
            places.pop(entry.name, None)
