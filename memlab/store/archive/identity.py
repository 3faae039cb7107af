"""Recognition of the store of an archive, by a sample of the memories that stayed in the store.

The sample has the positions and digests of these memories. It is stored in the archive, so that the
tables of the store need not be changed.
"""

import hashlib
import sqlite3
from contextlib import suppress
from functools import partial
from itertools import islice
from os.path import lexists
from pathlib import Path
from typing import Final, NamedTuple

from memlab import errors
from memlab.store.archive.kind import noted_kind, noted_store
from memlab.store.archive.location import SUFFIX, ArchiveLocation, existing_path
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.opening import read_archive
from memlab.store.archive.schema import SampleRow
from memlab.store.database import text_read_as
from memlab.store.snapshot import read_snapshot

_SAMPLE_SIZE: Final = 32
"""Maximum number of memories in each half of the sample.

One half are the oldest memories that are not episodic. The other half are the newest memories."""
_MAX_FILES: Final = 2_000
"""Maximum number of archives in a folder among which one of another name is searched."""


def identity_sample_of(connection: sqlite3.Connection, deleted_rows: str) -> list[SampleRow]:
    """Return the sample of memories by which a store is recognized.

    Parameters
    ----------
    connection : sqlite3.Connection
        The open store.
    deleted_rows : str
        The SQL condition of the rows that are about to be deleted. They are left out.
    """
    staying_rows = f"FROM main.memory_items WHERE ({deleted_rows}) IS NOT TRUE"
    oldest = "AND kind <> 'episodic' ORDER BY rowid"
    newest = "ORDER BY rowid DESC"
    sample: dict[int, str] = {}
    for selection in (oldest, newest):
        sample.update(_digests(connection, f"{staying_rows} {selection} LIMIT {_SAMPLE_SIZE}"))
    return sorted(sample.items())


def check_is_of_store(archive: OpenArchive) -> None:
    """Raise ArchiveError if an archive is of another store than the one beside it."""
    location = archive.location
    comparison = _compare_sample(location, archive)
    if comparison.differing and not comparison.matching:
        raise errors.ArchiveError(
            f"{location.path} is the archive of another store: {location.store} has none of the "
            "memories that were kept when the archive was written; nothing was changed: move it "
            "away, or restore from it into a new file"
        )


def archive_of_other_name(location: ArchiveLocation) -> Path | None:
    """Return the archive of a store that was renamed, if it is in the same folder."""
    if _sampled_file(location) is None:
        return None
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _MAX_FILES):
        if _has_own_store(path):
            continue
        with suppress(errors.MemlabError):  # the file may be no archive in spite of its name
            other_location = location._replace(path=path)
            existing_path(other_location)
            comparison = read_archive(other_location, partial(_compare_sample, location))
            if comparison.matching > comparison.differing:
                return path
    return None


def _has_own_store(archive: Path) -> bool:
    """Return whether the store of an archive exists: beside it, or at the path that it notes."""
    if archive.with_name(archive.name.removesuffix(SUFFIX)).exists():
        return True
    store = noted_store(archive)
    return bool(store) and lexists(store)


def archives_of_missing_folders(location: ArchiveLocation) -> list[Path]:
    """Return the archives of missing folders with the same name and kind as this store.

    Such a folder may have been moved to the place of this store. Nothing but its name shows that.
    """
    if not location.is_in_archive_folder or location.store_path is None:
        return []
    archives = []
    for path in islice(location.path.parent.glob(f"*{SUFFIX}"), _MAX_FILES):
        store = noted_store(path)
        if not store or lexists(store):
            continue
        if Path(store).name == location.store_path.name and noted_kind(path) == location.scheme:
            archives.append(path)
    return sorted(archives)


def _sampled_file(location: ArchiveLocation) -> Path | None:
    """Return the file of a store that can be recognized by a sample; None for any other store."""
    store = location.store_path
    if not location.has_identity_sample or store is None or not store.is_file():
        return None
    return store


class _Comparison(NamedTuple):
    """Number of memories of a sample that a store has, and number of those that contradict it.

    A memory contradicts if the store has another one at its position, or none at that position and
    all later ones. A memory that is only missing from the store does neither.
    """

    matching: int
    differing: int


def _compare_sample(location: ArchiveLocation, archive: OpenArchive) -> _Comparison:
    """Compare the sample of an archive with the store of a location."""
    store = _sampled_file(location)
    sample = dict(archive.identity_sample())
    if store is None or not sample:
        return _Comparison(0, 0)

    def compare(connection: sqlite3.Connection) -> _Comparison:
        positions = ", ".join(map(str, sample))
        current = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({positions})")
        (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
        if last is None:  # an empty store contradicts no archive
            return _Comparison(0, 0)
        matching = len(sample.items() & current.items())
        replaced = len(current) - matching
        beyond_end = sum(position > last for position in sample)
        return _Comparison(matching, replaced + beyond_end)

    return read_snapshot(store, compare)


def _digests(connection: sqlite3.Connection, rows_sql: str) -> dict[int, str]:
    """Return the digests of rows by position. Their values may have any type.

    `rows_sql` is the statement that selects the rows, from its FROM on.
    """
    with text_read_as(connection, bytes):
        selected = connection.execute(f"SELECT rowid, memory_id, created_at {rows_sql}").fetchall()
    return {
        row[0]: hashlib.blake2b(repr(row).encode(), digest_size=8).hexdigest() for row in selected
    }
