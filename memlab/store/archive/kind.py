"""Which kind of store an archive was begun for: its table ``about`` notes the scheme.

A folder may have been taken for two kinds of store at different times. The archive that was begun
first has the usual name; another kind's has its scheme in the name.
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
"""The name in ``about`` of the path of a store whose archive was begun in a chosen folder."""


def noted_kind(archive: Path) -> str:
    """Return the scheme that an archive notes; empty where there is no archive, or none noted."""
    try:
        found = archive.lstat()
    except (OSError, ValueError):
        return ""
    if not S_ISREG(found.st_mode) or not found.st_size:
        return ""
    return _noted(archive, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _noted(archive: Path, *_stamp: int) -> str:
    found = _first(archive, "SELECT value FROM about WHERE name = 'scheme'")
    return found if isinstance(found, str) and found.isprintable() else ""


def noted_store(archive: Path) -> str:
    """Return the path of the store that an archive elsewhere was begun for; empty if none."""
    found = _first(archive, "SELECT value FROM about WHERE name = ?", STORE)
    return found if isinstance(found, str) and found.isprintable() else ""


def has_deletion(archive: Path, digest: str) -> bool:
    """Whether an archive has a deletion whose digest begins with `digest`."""
    statement = "SELECT 1 FROM applies WHERE substr(digest, 1, ?) = ?"
    return bool(digest) and _first(archive, statement, len(digest), digest) is not None


def _first(archive: Path, statement: str, *values: object) -> object:
    """Return the first value that a statement finds, leaving no trace beside the file."""
    try:
        uri = f"{archive.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            row = connection.execute(statement, values).fetchone()
    except (sqlite3.Error, ValueError, OSError):
        return None
    return None if row is None else row[0]


def archive_of_kind(store: Path, scheme: str) -> Path:
    """Return where the memories are kept that were taken out of a folder as one kind of store."""
    usual = archive_path(store)
    if noted_kind(usual) in ("", scheme):
        return usual
    return usual.with_name(f"{usual.name.removesuffix(SUFFIX)}.{scheme}{SUFFIX}")


def archives_beside(store: Path, schemes: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Yield the archives of a folder with the kind that each notes, one of `schemes`."""
    usual = archive_path(store)
    stem = usual.name.removesuffix(SUFFIX)
    names = [usual.name, *(f"{stem}.{scheme}{SUFFIX}" for scheme in schemes)]
    for name in names:
        archive = usual.with_name(name)
        kind = noted_kind(archive)
        if kind in schemes:
            yield archive, kind


def store_name_of(archive: str, schemes: Collection[str]) -> str:
    """Return the name of the store that an archive of such a name lies beside.

    >>> store_name_of("work.openclaw.archive.db", ["openclaw"]), store_name_of("a.archive.db", [])
    ('work', 'a')
    """
    name = archive.removesuffix(SUFFIX)
    stem, dot, scheme = name.rpartition(".")
    return stem if dot and scheme in schemes else name
