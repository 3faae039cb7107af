"""Simulated power cuts: possible disk contents after recorded writes and syncs.

What was synced is there. What was written since may be there or not, in any combination, a write in
part, by sectors. A name is given, taken away, moved or exchanged whole or not at all, and made sure
of when its folder is synced. Until then names are kept up to some moment, or any of them and not
others; of one name never a later change without an earlier one. This is what POSIX promises; a file
system may promise more.
"""

import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.programs import Task, environment

SECTOR = 512
ROOT: Final = 0
_HEAD = struct.Struct("<16sQqII")
_PROGRAM = "import pickle, sys; do, *arguments = pickle.load(sys.stdin.buffer); do(*arguments)"


class Event(NamedTuple):
    """One operation of a process on a file; ``recorder.c`` defines the names."""

    what: str
    file: int
    """Its inode, which can be reused; 0 if unknown."""
    at: int
    """Offset of a write, new length, mode of a folder, or the event up to which data is synced."""
    path: str
    """The name created, removed, or renamed."""
    data: bytes
    """Written bytes, the new name, or the mode of a synced file."""


def record_events(recorder: Path, do: Task, store: Path, argument: Any) -> list[Event]:
    """Run a task in a process and list its changes of files in the store's folder, in order."""
    folder = store.parent
    log = folder.with_name(f"{folder.name}.recorded")
    log.unlink(missing_ok=True)
    variables = {"LD_PRELOAD": str(recorder), "RECORDED_FOLDER": str(folder), "RECORD_TO": str(log)}
    program = [sys.executable, "-c", _PROGRAM]
    task = pickle.dumps((do, store, argument))
    subprocess.run(program, check=True, input=task, env=environment() | variables)
    return list(_events(log.read_bytes()))


def _events(log: bytes) -> Iterator[Event]:
    place = 0
    while place < len(log):
        operation, file, at, path_bytes, data_bytes = _HEAD.unpack_from(log, place)
        path_at = place + _HEAD.size
        data_at = path_at + path_bytes
        place = data_at + data_bytes
        path = os.fsdecode(log[path_at:data_at])
        yield Event(operation.rstrip(b"\0").decode(), file, at, path, log[data_at:place])


Names = dict[int, dict[str, int]]
"""For each folder, the number of the file of each name."""


class Change(NamedTuple):
    """A name in a folder that is given to a file, or to none."""

    folder: int
    name: str
    number: int | None
    """The file that has the name from now on."""


class Place(NamedTuple):
    """A name in a folder."""

    folder: int
    name: str

    def holding(self, number: int | None) -> Change:
        """Return the change that gives this name to a file, or to none."""
        return Change(self.folder, self.name, number)


Step = tuple[Change, ...]
"""Changes of names that are made at once."""


class Copy(NamedTuple):
    """A file or folder of an image; equal numbers mean one file with several names."""

    number: int
    content: bytes | None
    mode: int
    written: int
    """Time of the last change, in nanoseconds."""


Image = dict[str, Copy]
"""Content of the disk by path below the folder; folders have no content."""


@dataclass
class _Node:
    """A file or folder of the simulated disk."""

    mode: int
    written: int = 0
    """Time of the last change, in nanoseconds."""
    synced: bytes | None = b""
    """Content on disk; None for a folder."""
    since: list[Event] = field(default_factory=list)
    """Writes after the last sync."""

    def content(self, events: Sequence[Event]) -> bytes:
        """Return the synced content with these writes."""
        content = bytearray(self.synced or b"")
        for event in events:
            if event.what == "truncate":
                del content[event.at :]
                content.extend(bytes(event.at - len(content)))
            else:
                content.extend(bytes(max(0, event.at - len(content))))
                content[event.at : event.at + len(event.data)] = event.data
        return bytes(content)


class Disk:
    """A folder with its content, on disk before a process changes it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.nodes: list[_Node] = []
        self.synced_names: Names = {}
        self.names: Names = {}
        self.pending: list[Step] = []
        self._number_of_inode: dict[int, int] = {}
        self._add(folder)

    def _add(self, path: Path) -> int:
        """Add a file or folder in its synced state."""
        status = path.stat()
        number = self._new(status.st_ino, _Node(status.st_mode & 0o7777, status.st_mtime_ns))
        if path.is_dir():
            self.nodes[number].synced = None
            entries = {entry.name: self._add(entry) for entry in sorted(path.iterdir())}
            self.synced_names[number] = entries
            self.names[number] = dict(entries)
        else:
            self.nodes[number].synced = path.read_bytes()
        return number

    def _new(self, inode: int, node: _Node) -> int:
        number = len(self.nodes)
        self._number_of_inode[inode] = number
        self.nodes.append(node)
        if node.synced is None:
            self.synced_names[number] = {}
            self.names[number] = {}
        return number

    def see(self, event: Event) -> None:
        match event.what:
            case "create":
                number = self._new(event.file, _Node(0o600))
                self._change(self._place(event.path).holding(number))
            case "make folder":
                number = self._new(event.file, _Node(event.at, synced=None))
                self._change(self._place(event.path).holding(number))
            case "remove":
                self._change(self._place(event.path).holding(None))
            case "link":
                old = self._place(event.path)
                new = self._place(os.fsdecode(event.data))
                self._change(new.holding(self._number_at(old)))
            case "rename":
                old = self._place(event.path)
                new = self._place(os.fsdecode(event.data))
                self._change(new.holding(self._number_at(old)), old.holding(None))
            case "exchange":
                old = self._place(event.path)
                new = self._place(os.fsdecode(event.data))
                self._change(new.holding(self._number_at(old)), old.holding(self._number_at(new)))
            case "sync folder":
                self._sync_folder(self._number_of_inode[event.file])
            case "sync":
                node = self.nodes[self._number_of_inode[event.file]]
                node.synced = node.content(node.since)
                node.since = []
                node.mode = int.from_bytes(event.data, "little") & 0o7777
                node.written = event.at
            case _:
                self.nodes[self._number_of_inode[event.file]].since.append(event)

    def _sync_folder(self, folder: int) -> None:
        """Put the pending names of a folder on disk, and earlier steps with the same names."""
        steps_of_folder = set()
        for number, step in enumerate(self.pending):
            if any(change.folder == folder for change in step):
                steps_of_folder.add(number)
        kept_steps = self._closed(steps_of_folder)
        self.synced_names = self._names_after(kept_steps)
        self.pending = [
            step for number, step in enumerate(self.pending) if number not in kept_steps
        ]

    def _place(self, path: str) -> Place:
        *parents, name = Path(path).relative_to(self.root).parts
        folder = ROOT
        for parent in parents:
            folder = self.names[folder][parent]
        return Place(folder, name)

    def _number_at(self, place: Place) -> int | None:
        return self.names[place.folder].get(place.name)

    def _change(self, *step: Change) -> None:
        """Change names in one atomic step."""
        self.pending.append(step)
        _apply(self.names, step)

    def _closed(self, wanted: set[int]) -> list[int]:
        """Return the wanted steps with all earlier steps on the same names, in order."""
        kept_steps = []
        places = set()
        for number in reversed(range(len(self.pending))):
            touched = _places(self.pending[number])
            if number in wanted or touched & places:
                kept_steps.append(number)
                places |= touched
        return kept_steps[::-1]

    def _names_after(self, steps: Sequence[int]) -> Names:
        names = {
            folder: dict(names_in_folder) for folder, names_in_folder in self.synced_names.items()
        }
        for number in steps:
            _apply(names, self.pending[number])
        return names

    def images_after_a_cut(self, rng: random.Random) -> Iterator[Image]:
        """Yield possible contents of the disk after a power cut now."""
        everything = {number: node.since for number, node in enumerate(self.nodes)}
        nothing: dict[int, list[Event]] = {number: [] for number in everything}
        for names in (self.names, self.synced_names):
            for selected in (everything, nothing):
                yield dict(self._image(names, selected))
        steps = range(len(self.pending))
        first_steps = range(rng.randint(0, len(steps)))
        random_steps = {number for number in steps if rng.random() < 0.3}
        last_step = set(steps[-1:])
        for steps_kept in (first_steps, self._closed(random_steps), self._closed(last_step)):
            parts = {number: _random_part(since, rng) for number, since in everything.items()}
            yield dict(self._image(self._names_after(steps_kept), parts))

    def _image(
        self,
        names: Names,
        kept_events: dict[int, list[Event]],
        folder: int = ROOT,
        prefix: str = "",
    ) -> Iterator[tuple[str, Copy]]:
        """Yield the path and copy of everything in a folder and below it."""
        for name, number in names[folder].items():
            if name.endswith("-shm"):
                continue  # shared memory is recreated on opening the store
            node = self.nodes[number]
            content = None if node.synced is None else node.content(kept_events[number])
            yield f"{prefix}{name}", Copy(number, content, node.mode, node.written)
            if content is None:
                yield from self._image(names, kept_events, number, f"{prefix}{name}/")


def put_on_disk(image: Image, folder: Path) -> None:
    """Replace the contents of a folder by an image."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    path_of_number: dict[int, Path] = {}
    for name, copy in sorted(image.items()):
        path = folder / name
        if copy.number in path_of_number:
            path.hardlink_to(path_of_number[copy.number])
            continue
        path_of_number[copy.number] = path
        if copy.content is None:
            path.mkdir(copy.mode)
        else:
            path.write_bytes(copy.content)
            path.chmod(copy.mode)
            os.utime(path, ns=(copy.written, copy.written))


def _places(step: Step) -> set[Place]:
    """Return the folders and names that a step changes."""
    return {Place(change.folder, change.name) for change in step}


def _apply(names: Names, step: Step) -> None:
    for change in step:
        if change.number is None:
            names[change.folder].pop(change.name, None)
        else:
            names[change.folder][change.name] = change.number


def _random_part(events: list[Event], rng: random.Random) -> list[Event]:
    """Return a random part of the writes, each whole or in some sectors."""
    selected = [event for event in events if rng.random() < 0.5]
    parts: list[Event] = []
    for event in selected:
        parts += _random_sectors(event, rng)
    return parts


def _random_sectors(event: Event, rng: random.Random) -> Iterator[Event]:
    if event.what == "truncate" or rng.random() < 0.5:
        yield event
        return
    for start in range(0, len(event.data), SECTOR):
        if rng.random() < 0.5:
            yield event._replace(at=event.at + start, data=event.data[start : start + SECTOR])
