"""The kind of store that an archive was created for.

An archive notes the kind as its scheme. A folder may have been treated as two kinds of store at
different times. The first archive then has the usual name, and the archive of the other kind has
its scheme in the name.
"""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Final

from memlab.store.archive.location import SUFFIX, archive_path

STORE: Final = "store"
"""Name in the table ``about`` of the path of the store, for an archive in another folder."""


def noted_kind(archive: Path) -> str:
    """Return the scheme that an archive notes; empty if there is no archive or no note."""
    try:
        status = archive.lstat()
    except (OSError, ValueError):
        return ""
    if not S_ISREG(status.st_mode) or not status.st_size:
        return ""
    return _cached_scheme(archive, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _cached_scheme(archive: Path, *_file_state: int) -> str:
    """Return the noted scheme.

    The state of the file is part of the key of the cache, so that a changed file is read again.
    """
    return _printable(_first_value(archive, "SELECT value FROM about WHERE name = 'scheme'"))


def _printable(value: object) -> str:
    """Return a value if it is a printable text; an empty text otherwise."""
    if isinstance(value, str) and value.isprintable():
        return value
    return ""


def noted_store(archive: Path) -> str:
    """Return the store path that an archive in another folder notes; empty if it notes none."""
    return _printable(_first_value(archive, "SELECT value FROM about WHERE name = ?", STORE))


def has_deletion(archive: Path, digest: str) -> bool:
    """Return whether an archive has a deletion whose digest begins with `digest`."""
    if not digest:
        return False
    statement = "SELECT 1 FROM applies WHERE substr(digest, 1, ?) = ?"
    return _first_value(archive, statement, len(digest), digest) is not None


def _first_value(archive: Path, statement: str, *values: object) -> object:
    """Return the first value that a statement selects; None if there is none.

    Return None for an unreadable file, too. The file is opened as immutable, so that no other file
    is created beside it.
    """
    try:
        uri = f"{archive.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            row = connection.execute(statement, values).fetchone()
    except (sqlite3.Error, ValueError, OSError):
        return None
    return None if row is None else row[0]


def archive_of_kind(store: Path, scheme: str) -> Path:
    """Return the path of the archive of a folder that is treated as one kind of store."""
    usual = archive_path(store)
    is_other_kind = noted_kind(usual) not in ("", scheme)
    if is_other_kind:
        return usual.with_name(f"{usual.name.removesuffix(SUFFIX)}.{scheme}{SUFFIX}")
    return usual


def archives_beside(store: Path, schemes: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Yield each archive of a folder whose noted scheme is one of `schemes`, and that scheme."""
    usual = archive_path(store)
    stem = usual.name.removesuffix(SUFFIX)
    names = [usual.name]
    names += [f"{stem}.{scheme}{SUFFIX}" for scheme in schemes]
    for name in names:
        archive = usual.with_name(name)
        kind = noted_kind(archive)
        if kind in schemes:
            yield archive, kind


def store_name_of(archive: str, schemes: Collection[str]) -> str:
    """Return the name of a store from the file name of the archive beside it.

    >>> store_name_of("work.openclaw.archive.db", ["openclaw"]), store_name_of("a.archive.db", [])
    ('work', 'a')
    """
    name = archive.removesuffix(SUFFIX)
    stem, dot, scheme = name.rpartition(".")
    if dot and scheme in schemes:
        return stem
    return name
