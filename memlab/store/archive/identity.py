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

_SAMPLE_SIZE: Final = 32
"""Number of memories of each half of the sample.

One half are the oldest memories that are not episodic, the other the newest memories."""
_MOST_FILES: Final = 2_000
"""Maximum number of files in a folder that are searched for an archive of another name."""


def identity_sample_of(connection: sqlite3.Connection, deleted_rows: str) -> list[SampleRow]:
    """Return the sample of memories by which a store is recognized.

    Rows that meet the SQL condition `deleted_rows` are left out.
    """
    staying_rows = f"FROM main.memory_items WHERE ({deleted_rows}) IS NOT TRUE"
    sample: dict[int, str] = {}
    for selection in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        sample.update(_digests(connection, f"{staying_rows} {selection} LIMIT {_SAMPLE_SIZE}"))
    return sorted(sample.items())


def check_is_of(archive: OpenArchive) -> None:
    """Raise ArchiveError if an archive is of another store than the one beside it."""
    location = archive.location
    matching, differing = _compare_sample(location, archive)
    if differing and not matching:
        raise errors.ArchiveError(
            f"{location.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {location.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed, if it is in the same folder."""
    if _sampled_file(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _MOST_FILES):
        has_own_store = path.with_name(path.name.removesuffix(SUFFIX)).exists() or _is_in_use(path)
        if has_own_store:
            continue
        with suppress(errors.MemlabError):  # the file may be no archive in spite of its name
            other_location = location._replace(path=path)
            existing_path(other_location)
            matching, differing = read_archive(other_location, partial(_compare_sample, location))
            if matching > differing:
                return path
    return None


def _is_in_use(archive: Path) -> bool:
    """Return whether an archive notes a store that still exists."""
    store = noted_store(archive)
    return bool(store) and lexists(store)


def archives_of_missing_folders(location: ArchiveLocation) -> list[Path]:
    """Return the archives of missing folders with the same name and kind as this one.

    Such a folder may have been moved here. Only its name shows that.
    """
    if not location.is_chosen or location.like is None:
        return []
    archives = []
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _MOST_FILES):
        store = noted_store(path)
        if not store or lexists(store):
            continue
        if Path(store).name == location.like.name and noted_kind(path) == location.scheme:
            archives.append(path)
    return sorted(archives)


def _sampled_file(location: ArchiveLocation) -> Path | None:
    """Return the file of a store that can be recognized by its memories; None for other stores."""
    store = location.like
    if not location.has_sample or store is None or not store.is_file():
        return None
    return store


def _compare_sample(location: ArchiveLocation, archive: OpenArchive) -> tuple[int, int]:
    """Return how many rows of a store match the sample of an archive, and how many differ.

    A row differs if the store has another memory at its position, or if it is beyond the last one.
    """
    store = _sampled_file(location)
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
        replaced = len(current) - matching  # another memory has the position
        beyond_end = sum(position > last for position in sample)
        return matching, replaced + beyond_end

    return read_snapshot(store, compare)


def _digests(connection: sqlite3.Connection, rows_sql: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever types their values have."""
    with text_as_bytearray(connection, bytes):
        selected = connection.execute(f"SELECT rowid, memory_id, created_at {rows_sql}").fetchall()
    return {
        row[0]: hashlib.blake2b(repr(row).encode(), digest_size=8).hexdigest() for row in selected
    }
