"""Which store an archive is of.

The tables of a store are its agent's, so nothing is written there that would name it. The archive
notes a few memories that stayed whenever something was deleted, by digests of position, id and time
of creation. A store with other memories in their places is another store; one that has them is the
archive's, whatever its file is called today. Standard library only.
"""

import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from memlab.errors import ArchiveError, MemlabError, UnfilledArchiveError
from memlab.store.archive import Archive
from memlab.store.archive_entries import Witness
from memlab.store.archive_file import is_begun, read_archive
from memlab.store.archive_place import SUFFIX, ArchivePlace
from memlab.store.database import connect_reading
from memlab.store.looking import read_store

_EACH: Final = 32
"""Of the oldest memories that are no episodes, and of the newest."""
_LOOKED_AT: Final = 2_000
"""Files of a folder, at most, that are looked at for an archive of another name."""


class Likeness(NamedTuple):
    """How many memories that an archive noted are in a store, and how many others in their place.

    Attributes
    ----------
    found : int
        The very memories.
    other : int
        Another memory in the place, or a place that the store has not come to yet.
    """

    found: int
    other: int

    @property
    def is_foreign(self) -> bool:
        """Whether the archive is another store's."""
        return self.other > 0 and not self.found

    @property
    def is_own(self) -> bool:
        """Whether the archive is this store's for sure."""
        return self.found > self.other


def witnesses_in(connection: sqlite3.Connection, leaving: str) -> list[Witness]:
    """Return memories by which their store is known again.

    Parameters
    ----------
    connection : sqlite3.Connection
        To the store.
    leaving : str
        The rows that go, a condition in SQL on ``memory_items``.
    """
    staying = f"FROM main.memory_items WHERE ({leaving}) IS NOT TRUE"
    found: dict[int, str] = {}
    for rest in ("AND kind <> 'episodic' ORDER BY rowid", "ORDER BY rowid DESC"):
        found |= _digests(connection, f"{staying} {rest} LIMIT {_EACH}")
    return sorted(found.items())


def likeness(connection: sqlite3.Connection, witnesses: Iterable[Witness]) -> Likeness:
    """Return how much of what an archive noted is in a store."""
    noted = dict(witnesses)
    places = ", ".join(map(str, noted))
    there = _digests(connection, f"FROM main.memory_items WHERE rowid IN ({places})")
    (last,) = connection.execute("SELECT max(rowid) FROM main.memory_items").fetchone()
    if last is None:  # an empty store is nobody's
        return Likeness(0, 0)
    found = sum(there.get(place) == digest for place, digest in noted.items())
    beyond = sum(place not in there and place > last for place in noted)
    return Likeness(found, len(there) - found + beyond)


def check_is_of(archive: Archive) -> None:
    """Check that an archive is of the store beside it, as far as anybody can tell.

    Raises
    ------
    ArchiveError
        When the store has none of the memories that the archive noted, and others in their place.
    """
    place = archive.place
    if place.scheme == "file" and _is_foreign(place, archive.witnesses()):
        raise ArchiveError(
            f"{place.path} is the archive of another store: not one of the memories that stayed "
            f"when it was written is in {place.store}; nothing was changed: move it away, or "
            "restore from it into a new file"
        )


def check_archive_of(place: ArchivePlace) -> None:
    """Check what lies where the archive of a store would be; nothing may be there.

    Raises
    ------
    ArchiveError
        When it is the archive of another store, or there is none and the store's own lies beside
        it under another name.
    """
    if place.scheme == "file" and is_begun(place):
        with suppress(UnfilledArchiveError):
            read_archive(place, check_is_of)
    else:
        check_not_renamed(place)


def check_not_renamed(place: ArchivePlace) -> None:
    """Check that a store which has no archive did not leave it behind under another name.

    Raises
    ------
    ArchiveError
        When there is none, and the store's own lies beside it under another name.
    """
    if place.scheme != "file" or is_begun(place):
        return
    if renamed := archive_of_other_name(place):
        raise ArchiveError(
            f"{renamed} is the archive of this store, which had another name; nothing was changed: "
            f"rename it to {place.path}"
        )


def archive_of_other_name(place: ArchivePlace) -> Path | None:
    """Return the archive of a store that was renamed since, where one lies beside it."""
    if place.scheme != "file" or place.like is None or not place.like.is_file():
        return None
    for path in islice(place.path.parent.glob(f"*{SUFFIX}"), _LOOKED_AT):
        of = path.with_name(path.name.removesuffix(SUFFIX))
        if path == place.path or path.is_symlink() or not path.is_file() or of.exists():
            continue
        try:
            witnesses = read_archive(place._replace(path=path), lambda found: found.witnesses())
            if witnesses and _compared(place.like, witnesses).is_own:
                return path
        except MemlabError:  # no archive, for all its name
            continue
    return None


def _is_foreign(place: ArchivePlace, witnesses: list[Witness]) -> bool:
    if not witnesses or place.like is None or not place.like.is_file():
        return False
    return _compared(place.like, witnesses).is_foreign


def _compared(store: Path, witnesses: list[Witness]) -> Likeness:
    def read(uri: str) -> Likeness:
        with closing(connect_reading(uri)) as connection:
            return likeness(connection, witnesses)

    return read_store(store, read)


def _digests(connection: sqlite3.Connection, rows: str) -> dict[int, str]:
    """Return the digests of rows by position, whatever their values are."""
    factory, connection.text_factory = connection.text_factory, bytes
    try:
        found = connection.execute(f"SELECT rowid, memory_id, created_at {rows}").fetchall()
    finally:
        connection.text_factory = factory
    return {
        place: hashlib.blake2b(repr((place, *said)).encode(), digest_size=8).hexdigest()
        for place, *said in found
    }
