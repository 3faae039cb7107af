"""Labs: they write the stores that the conformance suite tests, and read them without the adapter.

An adapter is tested with a lab of its own, which inherits from :class:`Lab`, or from
:class:`FilesLab` if each memory is a file.
"""

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.sources.readers import Key

COUNT: Final = 12
"""Number of memories with which the suite fills a new store."""
TEXTS: Final = (
    "né à Zürich — 北京 🦀",
    "one\nand\nmore lines",
    'quoted "text" %s %% <b>&</b> | with a \\ and\ttabs',
    "",
    "\nan empty first line",
)
"""Texts that a store may change by mistake; a lab writes them as contents of memories."""
MODES: Final = (0o600, 0o755, 0o664, 0o640, 0o444)
"""Permissions that a lab gives to files in turn."""


class Lab:
    """Write a store of one kind as the system's own software does, and read it back.

    The suite compares the memories that a lab reads with those that the adapter reads. Therefore a
    lab never uses the adapter.
    It must implement :meth:`fill`, :meth:`add_pair`, :meth:`change` and :meth:`exactly`.

    Parameters
    ----------
    folder : Path
        An empty folder for the store.

    Attributes
    ----------
    path : Path
        Path of the store: :attr:`where` below the folder.
    name : str
        Name by which memlab opens the store: the path, with :attr:`scheme` before it.

    Examples
    --------
    A store with one memory per line:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from memlab.testing import Lab
    >>> class LinesLab(Lab):
    ...     where = "memory.txt"
    ...
    ...     def fill(self, count):
    ...         self.path.write_text("".join(f"{number} text\\n" for number in range(count)))
    ...
    ...     def add_pair(self, number):
    ...         with self.path.open("a") as file:
    ...             file.write(f"a{number} pair {number}\\nb{number} pair {number}\\n")
    ...
    ...     def change(self, key):
    ...         before = self.exactly()[key]
    ...         self.path.write_text(self.path.read_text().replace(before, f"{key} changed"))
    ...
    ...     def exactly(self):
    ...         return {line.split()[0]: line for line in self.path.read_text().splitlines()}
    >>> with TemporaryDirectory() as folder:
    ...     lab = LinesLab(Path(folder))
    ...     lab.fill(2)
    ...     lab.change("1")
    ...     lab.exactly()
    {'0': '0 text', '1': '1 changed'}
    """

    where: ClassVar[str]
    """Path of the store below the folder of the lab."""
    scheme: ClassVar[str] = ""
    """Prefix of the store's name, such as ``lines:``; empty if the path alone is recognised."""
    registration_code: ClassVar[str] = ""
    """Python code that registers the adapter in another process; empty if that needs no code."""
    in_one_step: ClassVar[bool] = True
    """Whether :meth:`add_pair` is atomic: no reader sees one of the two memories alone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.where
        self.name = f"{self.scheme}{self.path}"

    def fill(self, count: int) -> None:
        """Create the store with `count` memories, oldest first.

        The memories should have everything that the store can hold, for example odd texts
        (:data:`TEXTS`), blobs, vectors, expiry dates and rows of other tables. At most the first
        memory is load-bearing; all others are prunable.
        """

    def add_pair(self, number: int) -> None:
        """Add two memories with the title ``pair <number>``, in one step if the store can."""

    def change(self, key: Key) -> None:
        """Change one memory in place."""

    def edit_index(self) -> bytes:
        """Edit the index by hand, and return the bytes that an undo must keep.

        Return nothing if the store has no index.
        """
        return b""

    def index(self) -> bytes:
        """Return the content of the index; nothing if the store has none."""
        return b""

    def others(self) -> dict[str, str]:
        """Return the texts of files that are not memories, by path below the store's folder.

        The suite writes these files and checks that they stay as they are.
        """
        return {"beside.md": "somebody else's\n"}

    def exactly(self) -> dict[Key, Any]:
        """Return by key everything that the store has of each memory.

        An undo must restore it byte for byte.

        Raises
        ------
        NotImplementedError
            If the lab does not implement this.
        """
        raise NotImplementedError


class FilesLab(Lab):
    """Write a store in which each memory is a Markdown file.

    It must implement :meth:`fill` and :meth:`add_pair`. The other methods are those of files: the
    key of a memory is its path below the folder, and its permissions, owner and time of writing
    must come back too.

    Parameters
    ----------
    folder : Path
        An empty folder for the store.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from memlab.testing import FilesLab
    >>> from memlab.testing.labs import write_in_one_step
    >>> class NotesLab(FilesLab):
    ...     where = "notes"
    ...
    ...     def fill(self, count):
    ...         for number in range(count):
    ...             write_in_one_step(self.path / f"{number:02}.md", f"note {number}\\n")
    ...
    ...     def add_pair(self, number):
    ...         self.add_folder(f"pair{number}", f"pair {number}", datetime(2026, 3, 1, tzinfo=UTC))
    >>> with TemporaryDirectory() as folder:
    ...     lab = NotesLab(Path(folder))
    ...     lab.fill(2)
    ...     lab.add_pair(1)
    ...     sorted(lab.exactly())
    ['00.md', '01.md', 'pair1/a.md', 'pair1/b.md']
    """

    def others(self) -> dict[str, str]:
        """Return the texts of a file of another kind, of a draft and of a file of git."""
        return {"notes.txt": "somebody else's\n", ".draft.md": "a draft\n", ".git/a.md": "git's\n"}

    def files(self) -> Iterable[Path]:
        """Return the files of all memories."""
        return self.path.rglob("*.md")

    def change(self, key: Key) -> None:
        """Add a line to the file of a memory."""
        with (self.path / str(key)).open("a") as file:
            file.write("changed\n")

    def exactly(self) -> dict[Key, Any]:
        """Return the bytes, permissions, time of writing and owner of each file, by its path."""
        states: dict[Key, Any] = {}
        for path in self.files():
            status = path.lstat()
            name = path.relative_to(self.path).as_posix()
            states[name] = (
                path.read_bytes(),
                status.st_mode,
                status.st_mtime_ns,
                status.st_uid,
            )
        return states

    def add_folder(self, name: str, title: str, written: datetime) -> None:
        """Add a folder of two notes in one step.

        Parameters
        ----------
        name : str
            Name of the folder.
        title : str
            Text of both notes.
        written : datetime
            Time of writing of both notes.
        """
        for side in "ab":
            write_in_one_step(self.path / ".draft" / f"{side}.md", f"{title}\n", written)
        (self.path / ".draft").rename(self.path / name)


def write_in_one_step(path: Path, text: str, written: datetime | None = None) -> None:
    """Write a file so that no reader sees a part of it.

    Parameters
    ----------
    path : Path
        The file. Its folder is created if it is missing.
    text : str
        The content. Line ends are written as they are.
    written : datetime or None
        Time of writing; None for now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, newline="")
    if written is not None:
        os.utime(draft, (written.timestamp(), written.timestamp()))
    draft.rename(path)
