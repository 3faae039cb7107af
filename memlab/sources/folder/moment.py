"""A folder as it is at one moment, a pending change of it left out of account."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from memlab.clock import wait_out
from memlab.errors import ChangedWhileReadError, StoreError
from memlab.sources.folder.files import FileCopy, Folder, Listing, Stamp, changed, opened_folder
from memlab.sources.folder.journal import PENDING, Index, Operation, pending_operations

_LOOKS: Final = 100


class Place(NamedTuple):
    """Where a file of the folder lies: under its own name, or moved out by a pending change."""

    folder: Folder
    name: str
    stamp: Stamp


@dataclass(frozen=True)
class FolderMoment:
    """What a folder holds. Get one from :func:`moment_of` or :func:`moment_now`."""

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
def moment_of(path: Path | str, index: Index) -> Iterator[FolderMoment]:
    """Hand out a folder as it is now, a pending change of it taken back.

    What comes later is not seen. What was read is looked at again at the end.
    """
    with opened_folder(path) as folder:
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
    raw = None
    if name in listing.files:
        try:
            raw = folder.read(name, listing.files[name])
        except FileNotFoundError as error:
            raise changed(folder.path) from error
    return FolderMoment(folder, listing, raw, is_pending=False, _places=places)


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
        raw = raw._replace(data=operation.edit(index, undo=True)(raw.data))
    return replace(seen, index=raw, is_pending=True, _places=places)
