"""Which store an archive is of, by digests of memories that stayed: its tables are not touched."""

import hashlib
import sqlite3
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from memlab.errors import ArchiveError, MemlabError, UnfilledArchiveError
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import SampleRow
from memlab.store.archive.location import SUFFIX, ArchiveLocation, is_begun
from memlab.store.archive.opening import read_archive
from memlab.store.database import connect_reading, exact
from memlab.store.snapshot import read_snapshot

_EACH: Final = 32
"""Of the oldest memories that are no episodes, and of the newest."""
_LOOKED_AT: Final = 2_000
"""Files of a folder, at most, that are looked at for an archive of another name."""


def identity_sample_of(connection: sqlite3.Connection, leaving: str) -> list[SampleRow]:
    """Return memories by which their store is known again."""
    staying = f"FROM main.memory_items WHERE ({leaving}) IS NOT TRUE"
    found: dict[int, str] = {}
    for rest in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        found |= _digests(connection, f"{staying} {rest} LIMIT {_EACH}")
    return sorted(found.items())


def _match(connection: sqlite3.Connection, noted: dict[int, str]) -> tuple[int, int]:
    """Return how many memories that an archive noted are there, how many others in their stead."""
    places = ", ".join(map(str, noted))
    there = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({places})")
    (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
    if last is None:  # an empty store is nobody's
        return 0, 0
    found = sum(there.get(location) == digest for location, digest in noted.items())
    beyond = sum(place not in there and place > last for place in noted)
    return found, len(there) - found + beyond


def check_is_of(archive: Archive) -> None:
    """Check that an archive is of the store beside it, as far as anybody can tell."""
    location = archive.location
    found, other = _compared(location, archive)
    if other and not found:
        raise ArchiveError(
            f"{location.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {location.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def check_archive_of(location: ArchiveLocation, *, is_needed: bool = True) -> bool:
    """Check what lies where the archive of a store would be, and return whether it has one."""
    has_archive = is_begun(location)
    if has_archive and location.has_sample:
        with suppress(UnfilledArchiveError):
            read_archive(location, check_is_of)
    elif is_needed:
        check_not_renamed(location)
    return has_archive


def check_not_renamed(location: ArchiveLocation) -> None:
    """Check that a store which has no archive did not leave it behind under another name."""
    if not is_begun(location) and (renamed := archive_of_other_name(location)):
        raise ArchiveError(
            f"{renamed} is the archive of this store, which had another name; nothing was changed: "
            f"rename it to {location.path}"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed since, where one lies beside it."""
    if _like(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        of = path.with_name(path.name.removesuffix(SUFFIX))
        if path == location.path or path.is_symlink() or not path.is_file() or of.exists():
            continue
        try:
            found, other = read_archive(location._replace(path=path), partial(_compared, location))
            if found > other:
                return path
        except MemlabError:  # no archive, for all its name
            continue
    return None


def _like(location: ArchiveLocation) -> Path | None:
    """Return the store's file, where it can be told from another by its memories."""
    found = location.like
    return found if location.has_sample and found is not None and found.is_file() else None


def _compared(location: ArchiveLocation, archive: Archive) -> tuple[int, int]:
    """Hold a store against what an archive noted of it."""
    store, noted = _like(location), dict(archive.identity_sample())

    def read(uri: str) -> tuple[int, int]:
        with closing(connect_reading(uri)) as connection:
            return _match(connection, noted)

    return read_snapshot(store, read) if store is not None and noted else (0, 0)


def _digests(connection: sqlite3.Connection, rows: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever their values are."""
    with exact(connection, bytes):
        found = connection.execute(f"SELECT rowid, memory_id, created_at {rows}").fetchall()
    return {
        place: hashlib.blake2b(repr((place, *said)).encode(), digest_size=8).hexdigest()
        for place, *said in found
    }
