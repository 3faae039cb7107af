"""What a pending change of a folder has written down, so that it can be taken back.

In ``.memlab`` each operation has a folder of its own, ``1``, ``2`` and so on: ``journal.json``, the
other version of the index, files taken out under ``out`` and files to put in under ``in``, by their
number in the journal.
"""

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, Self

from memlab.errors import StoreError
from memlab.sources.folder import FileCopy, Folder, is_file_name
from memlab.sources.folder_files import open_subfolder

PENDING: Final = ".memlab"
OVER: Final = ".memlab-over-"
PART: Final = ".memlab-part-"
"""How folders begin that are left when a change ends, or is stopped before it began."""

OUT, IN = "out", "in"
_JOURNAL: Final = "journal.json"
_FORMAT: Final = 1


class Index(Protocol):
    """What a kind of folder knows of its index.

    Attributes
    ----------
    name : str
        Of the file.
    first : bool
        Whether lines leave the index before their files go; else after.
    """

    name: str
    first: bool

    def without(self, raw: bytes, gone: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with nothing in it that names memories.

        Parameters
        ----------
        raw : bytes
            The index; empty where there is none.
        gone : mapping of str to object
            What it says of each that goes, by what it calls it.
        there : collection of str
            The files of the folder, those that go and come among them.
        """
        ...

    def with_back(self, raw: bytes, said: Mapping[str, Any], there: Collection[str]) -> bytes:
        """Return the index with what it said of memories in its place again.

        What it says of them already is left as it is.
        """
        ...


class Entry(NamedTuple):
    """A memory that goes or comes.

    Attributes
    ----------
    key : str
        What the index calls it.
    name : str
        Of its file; empty where it has none.
    written : int
        When the file was last written, in nanoseconds since 1970.
    said : object
        What the index says of it, as JSON.
    """

    key: str
    name: str
    written: int
    said: Any


@dataclass(frozen=True)
class Journal:
    """One operation of a pending change.

    Parameters
    ----------
    handle : int
        The descriptor of its folder.
    number : int
        Which operation of the change it is, from 1.
    taking_out : bool
        Whether its files go; else they come.
    entries : tuple of Entry
        By number from 0.
    """

    handle: int
    number: int
    taking_out: bool
    entries: tuple[Entry, ...]

    def to_json(self) -> bytes:
        """Return it as it lies on the disk."""
        content = {
            "memlab_folder_change": _FORMAT,
            "taking_out": self.taking_out,
            "entries": [entry._asdict() for entry in self.entries],
        }
        return json.dumps(content).encode()

    @classmethod
    def read(cls, folder: Folder, handle: int, number: int) -> Self:
        """Return the operation whose folder is open.

        Raises
        ------
        StoreError
            When its journal cannot be read.
        """
        try:
            taking_out, entries = _parsed(Folder(folder.path / PENDING, handle).read(_JOURNAL).data)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{folder.path / PENDING} is no change that this memlab can take back ({error}); "
                "look into it, move what is under out back by hand, then remove it"
            ) from error
        return cls(handle, number, taking_out, entries)


def is_as_put(inside: int, number: str, folder: int, entry: Entry) -> bool:
    """Whether a file that was put in is there and nobody has written to it since."""
    try:
        put = os.stat(number, dir_fd=inside, follow_symlinks=False)
        there = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return put.st_ino == there.st_ino and there.st_mtime_ns == entry.written


def journal_file(journal: Journal) -> FileCopy:
    """Return the file that a journal is written to."""
    return FileCopy(_JOURNAL, journal.to_json(), 0o600, 0, (os.geteuid(), os.getegid()))


@contextmanager
def journals_in(folder: Folder) -> Iterator[list[Journal]]:
    """Hand out the operations of a pending change, the first first; none where none is pending.

    Raises
    ------
    StoreError
        When one cannot be read, or ``.memlab`` is not what memlab makes.
    """
    with ExitStack() as stack:
        try:
            pending = open_subfolder(folder.handle, PENDING)
        except FileNotFoundError:
            yield []
            return
        except OSError as error:
            raise StoreError(
                f"{folder.path / PENDING} is in the way ({error.strerror}); it is memlab's name "
                "for a change under way: move it elsewhere"
            ) from error
        stack.callback(os.close, pending)
        _check_own(folder, pending)
        operations = Folder(folder.path / PENDING, pending).listing().folders
        numbers = sorted(int(name) for name in operations if name.isdecimal())
        found = []
        for number in numbers:
            handle = open_subfolder(pending, str(number))
            stack.callback(os.close, handle)
            found.append(Journal.read(folder, handle, number))
        yield found


def _check_own(folder: Folder, pending: int) -> None:
    """Check that nobody else could have put ``.memlab`` there."""
    found, around = os.fstat(pending), os.fstat(folder.handle)
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (around.st_uid, os.geteuid(), 0):
        raise StoreError(
            f"{folder.path / PENDING} was not made by memlab, for others may write to it; look "
            "into it and move it elsewhere"
        )


def _parsed(raw: bytes) -> tuple[bool, tuple[Entry, ...]]:
    """Return what a journal says; a name in it that leaves the folder makes it no journal."""
    content = json.loads(raw)
    if content["memlab_folder_change"] != _FORMAT:
        raise ValueError(f"it has format {content['memlab_folder_change']!r}")
    entries = tuple(
        Entry(str(each["key"]), str(each["name"]), int(each["written"]), each["said"])
        for each in content["entries"]
    )
    if bad := [entry.name for entry in entries if entry.name and not is_file_name(entry.name)]:
        raise ValueError(f"{bad[0]!r} is no file of the folder")
    return bool(content["taking_out"]), entries
