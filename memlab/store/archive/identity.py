"""Recognizing the store of an archive, by a sample of the memories that stayed in it.

The sample holds digests of memories, with their positions. The tables of the store stay untouched.
"""

import hashlib
import sqlite3
from contextlib import suppress
from functools import partial
from itertools import islice
from os.path import lexists
from pathlib import Path
from typing import Final

from memlab import errors
from memlab.store.archive.kind import noted_kind, noted_store
from memlab.store.archive.location import SUFFIX, ArchiveLocation, existing_path
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.opening import read_archive
from memlab.store.archive.schema import SampleRow
from memlab.store.database import text_as_bytearray
from memlab.store.snapshot import read_snapshot

_EACH: Final = 32
"""Number of the oldest memories that are no episodes, and of the newest memories, in the sample."""
_LOOKED_AT: Final = 2_000
"""Maximum number of files in a folder that are searched for an archive of another name."""


def identity_sample_of(connection: sqlite3.Connection, leaving: str) -> list[SampleRow]:
    """Return the sample of memories by which a store is recognized, without those that leave."""
    staying = f"FROM main.memory_items WHERE ({leaving}) IS NOT TRUE"
    sample: dict[int, str] = {}
    for order in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        sample.update(_digests(connection, f"{staying} {order} LIMIT {_EACH}"))
    return sorted(sample.items())


def check_is_of(archive: OpenArchive) -> None:
    """Raise ArchiveError if an archive is of another store than the one beside it."""
    location = archive.location
    matching, differing = _compared(location, archive)
    if differing and not matching:
        raise errors.ArchiveError(
            f"{location.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {location.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed, if it is in the same folder."""
    if _like(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        if path.with_name(path.name.removesuffix(SUFFIX)).exists() or _is_anothers(path):
            continue
        with suppress(errors.MemlabError):  # the file may be no archive in spite of its name
            other_location = location._replace(path=path)
            existing_path(other_location)
            matching, differing = read_archive(other_location, partial(_compared, location))
            if matching > differing:
                return path
    return None


def _is_anothers(archive: Path) -> bool:
    """Return whether the store that an archive in this folder notes still exists."""
    store = noted_store(archive)
    return bool(store) and lexists(store)


def archives_left(location: ArchiveLocation) -> list[Path]:
    """Return the archives of missing folders with the same name and kind as this one.

    Such a folder may have been moved here; only its name can tell.
    """
    if not location.is_chosen or location.like is None:
        return []
    archives = []
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        store = noted_store(path)
        if not store or lexists(store):
            continue
        if Path(store).name == location.like.name and noted_kind(path) == location.scheme:
            archives.append(path)
    return sorted(archives)


def _like(location: ArchiveLocation) -> Path | None:
    """Return the file of a store that can be recognized by its memories; None for other stores."""
    store = location.like
    if not location.has_sample or store is None or not store.is_file():
        return None
    return store


def _compared(location: ArchiveLocation, archive: OpenArchive) -> tuple[int, int]:
    """Return how many memories of the sample are in the store, and how many others instead."""
    store = _like(location)
    sample = dict(archive.identity_sample())
    if store is None or not sample:
        return 0, 0

    def compare(connection: sqlite3.Connection) -> tuple[int, int]:
        positions = ", ".join(map(str, sample))
        current = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({positions})")
        (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
        if last is None:  # an empty store matches every archive
            return 0, 0
        matching = len(sample.items() & current.items())
        beyond_end = sum(position > last for position in sample)
        return matching, len(current) - matching + beyond_end

    return read_snapshot(store, compare)


def _digests(connection: sqlite3.Connection, rows: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever types their values have."""
    with text_as_bytearray(connection, bytes):
        selected = connection.execute(f"SELECT rowid, memory_id, created_at {rows}").fetchall()
    return {
        row[0]: hashlib.blake2b(repr(row).encode(), digest_size=8).hexdigest() for row in selected
    }
