"""A disk that loses its power: what may be on it, by what a process had written and synced.

What was synced is there. What was written since may be there or not, in any combination, a write in
part, by sectors. Names are kept in order but only made sure of when their folder is synced. This
is what POSIX promises; a file system may promise more.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.recording import Event

SECTOR = 512
Names = dict[str, int]
Image = dict[str, bytes]
"""What each file of the folder holds."""


@dataclass
class _File:
    synced: bytes = b""
    since: list[Event] = field(default_factory=list)

    def content(self, events: Sequence[Event]) -> bytes:
        content = bytearray(self.synced)
        for event in events:
            if event.what == "truncate":
                del content[event.at :]
                content.extend(bytes(event.at - len(content)))
            else:
                content.extend(bytes(max(0, event.at - len(content))))
                content[event.at : event.at + len(event.data)] = event.data
        return bytes(content)


class Disk:
    """A folder's files as a process changes them.

    Parameters
    ----------
    folder : Path
        As it is before the process begins; all of it is on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self.files: dict[int, _File] = {}
        self.synced_names: Names = {}
        self.renamings: list[Event | tuple[str, int]] = []
        self._number_of_inode: dict[int, int] = {}
        for path in folder.iterdir():
            number = self._new_file(path.stat().st_ino)
            self.files[number].synced = path.read_bytes()
            self.synced_names[str(path)] = number
        self.changes: list[Names] = []

    def _new_file(self, inode: int) -> int:
        number = len(self.files)
        self.files[number] = _File()
        self._number_of_inode[inode] = number
        return number

    @property
    def names(self) -> Names:
        """The names as the process sees them."""
        return self.changes[-1] if self.changes else self.synced_names

    def see(self, event: Event) -> None:
        """Let one thing happen."""
        names = dict(self.names)
        match event.what:
            case "create":
                names[event.path] = self._new_file(event.file)
            case "unlink":
                names.pop(event.path)
            case "rename":
                names[event.data.decode()] = names.pop(event.path)
            case "link":
                names[event.data.decode()] = names[event.path]
            case "sync folder":
                self.synced_names, self.changes = names, []
                return
            case "sync":
                file = self.files[self._number_of_inode[event.file]]
                file.synced, file.since = file.content(file.since), []
                return
            case _:
                self.files[self._number_of_inode[event.file]].since.append(event)
                return
        self.changes.append(names)

    def images_after_a_cut(self, rng: random.Random) -> Iterator[Image]:
        """Yield what may be on the disk when the power goes now."""
        everything = {number: file.since for number, file in self.files.items()}
        nothing: dict[int, list[Event]] = {number: [] for number in self.files}
        for names in (self.names, self.synced_names):
            for kept in (everything, nothing):
                yield self._image(names, kept)
        names = rng.choice([self.synced_names, *self.changes])
        yield self._image(names, {n: _some_of(file.since, rng) for n, file in self.files.items()})

    def _image(self, names: Names, kept: dict[int, list[Event]]) -> Image:
        return {
            path: self.files[number].content(kept[number])
            for path, number in names.items()
            if not path.endswith("-shm")  # shared memory: made anew by whoever opens the store
        }


def _some_of(events: list[Event], rng: random.Random) -> list[Event]:
    """Return some of what was written, each write whole or in some of its sectors."""
    kept = [event for event in events if rng.random() < 0.5]
    return [part for event in kept for part in _sectors_of(event, rng)]


def _sectors_of(event: Event, rng: random.Random) -> Iterator[Event]:
    if event.what == "truncate" or rng.random() < 0.5:
        yield event
        return
    for start in range(0, len(event.data), SECTOR):
        if rng.random() < 0.5:
            part = event.data[start : start + SECTOR]
            yield Event("write", event.file, event.at + start, "", part)
