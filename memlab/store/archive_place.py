"""Where an archive is, whose it is, and what goes wrong with its file in words."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from memlab.errors import ArchiveError
from memlab.store.database import error_in_words, path_named

SUFFIX: Final = ".archive.db"
"""What an archive's name adds to its store's."""


class ArchivePlace(NamedTuple):
    """Where the archive of a store is, and whose it is.

    Attributes
    ----------
    path : Path
        The file, there or not.
    store : str
        The store's name, for messages and commands.
    like : Path or None
        The file whose owner and permissions a new archive gets; None for the user's alone.
    scheme : str
        The kind of store, noted in the archive: it says how records are read.
    """

    path: Path
    store: str
    like: Path | None
    scheme: str = "file"


def archive_path(store: Path) -> Path:
    """Return where the memories taken out of a file are kept.

    Examples
    --------
    >>> archive_path(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    resolved = store.resolve()
    return resolved.with_name(f"{resolved.name}{SUFFIX}")


def place_beside(store: Path | str) -> ArchivePlace:
    """Return where the archive of a ``memory_items`` file is."""
    path = path_named(store)
    return ArchivePlace(archive_path(path), str(path.resolve()), path.resolve())


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's own errors on an archive as an :class:`ArchiveError`."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise archive_error(error, path) from error
    except UnicodeDecodeError as error:  # SQLite's message quotes what it found
        raise ArchiveError(f"{path} is damaged ({error}); move it away") from error


def archive_error(error: sqlite3.Error, path: Path) -> ArchiveError:
    """Return the error to raise for one of SQLite's on an archive."""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
        return ArchiveError(
            f"{path} is not an archive, though it has an archive's name; move it away"
        )
    return ArchiveError(f"archive: {error_in_words(error, path)}")
