"""Archiving what a runtime deletes by itself: the archive's protocol on one open store.

Whoever deletes rows of ``memory_items`` without a plan wraps the deletion::

    with transaction(connection):
        with archived_first(connection, place, chosen, why, at=now) as digest:
            delete_rows(connection, chosen, load_bearing, signals=signals)
    note_deleted(place, digest, at=now)

A plan does the same over any source, in :mod:`memlab.compaction.applying`. Standard library only.
"""

import hashlib
import json
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from memlab.errors import ArchiveError, MemlabError
from memlab.store.archive import Archive
from memlab.store.archive_entries import Apply, Archived, Entry
from memlab.store.archive_file import create_archive, is_begun, open_archive
from memlab.store.archive_place import ArchivePlace
from memlab.store.identity import check_archive_of, witnesses_in
from memlab.store.other_tables import check_deletion
from memlab.store.records import (
    Layout,
    fingerprint_of,
    layout_of,
    positions_where,
    records_at,
)


class Why(NamedTuple):
    """Why rows are deleted.

    Attributes
    ----------
    policy : mapping
        The rule and its settings as JSON values, as a plan has them: ``{"policy": "recent", "keep":
        50, "by": "position"}``.
    reason : str
        What is noted beside each copy, such as ``"beyond-newest"``.
    """

    policy: Mapping[str, Any]
    reason: str


class Compacted(int):
    """How many rows were deleted.

    Attributes
    ----------
    digest : str or None
        By which the archive knows them, and ``memlab.restore(digest, store=path)`` puts them back;
        None where nothing was archived.
    store : Path or None
        The file that they were deleted from.
    """

    digest: str | None
    store: Path | None

    def __new__(cls, count: int, *, digest: str | None = None, store: Path | None = None) -> Self:
        """Return a number that knows how to take the deletion back."""
        made = super().__new__(cls, count)
        made.digest, made.store = digest, store
        return made

    @property
    def undo(self) -> str | None:
        """The command that takes it back; None where the deletion is final."""
        if self.digest is None:
            return None
        return shlex.join(["memlab", "restore", str(self.store), self.digest[:12]])


@contextmanager
def archived_first(
    connection: sqlite3.Connection,
    place: ArchivePlace,
    chosen: str,
    why: Why,
    *,
    at: datetime,
    settle: bool = True,
) -> Iterator[str]:
    """Copy rows into the archive, commit and sync it; then let the block delete them.

    Where the block raises, the copies are one too many and are taken out again.

    Parameters
    ----------
    connection : sqlite3.Connection
        To the store, inside a transaction that holds its write lock.
    place : ArchivePlace
        From :func:`memlab.store.archive_place.place_beside`.
    chosen : str
        Which rows, a condition in SQL on ``memory_items`` of this package's own making.
    why : Why
        What the archive says of them.
    at : datetime
        The moment, with a time zone.
    settle : bool
        Whether to look whose the archive is, and through it for earlier deletions whose note was
        cut short. One who deletes often looks once, and again after a deletion that did not go
        through.

    Yields
    ------
    str
        The digest that names the deletion.

    Raises
    ------
    ArchiveError
        When the rows cannot be archived. Nothing was deleted.
    UnsafeDeletionError
        When other tables would lose rows that nothing brings back. Nothing was archived.
    """
    check_deletion(connection, chosen)
    if settle:
        check_archive_of(place)
    layout = layout_of(connection)
    digest, count = _named(connection, layout, chosen, why, at)
    with create_archive(place) as archive:
        if settle:
            _settle(connection, layout, archive, at)
        copies = (
            Archived(position, fingerprint_of(record), record, why.reason)
            for position, record in records_at(
                connection, layout, positions_where(connection, chosen)
            )
        )
        staying = witnesses_in(connection, chosen) if settle else None
        named = Apply(digest, why.policy, at, count)
        with archive.copying(named, copies, at=at, staying=staying):
            pass
        try:
            yield digest
        except BaseException:
            with suppress(MemlabError):  # where this fails, doctor says so
                archive.forget(digest)
            raise


def note_deleted(place: ArchivePlace, digest: str, *, at: datetime) -> None:
    """Note in the archive that a deletion is done; call it after the store's commit.

    Raises
    ------
    ArchiveError
        When it cannot be noted: the rows are deleted and archived all the same, and the next
        deletion notes it.
    """
    try:
        with open_archive(place) as archive:
            archive.finish(digest, at)
    except ArchiveError as error:
        raise ArchiveError(
            f"the rows were deleted from {place.store} and are archived; only the archive could "
            f"not note it ({error.__cause__ or error}): the next deletion notes it"
        ) from error


def note_earlier(connection: sqlite3.Connection, place: ArchivePlace, *, at: datetime) -> None:
    """Note earlier deletions as done whose note was cut short, in a transaction on the store."""
    if is_begun(place):
        with open_archive(place) as archive:
            _settle(connection, layout_of(connection), archive, at)


def _named(
    connection: sqlite3.Connection, layout: Layout, chosen: str, why: Why, at: datetime
) -> tuple[str, int]:
    """Return a digest over what goes, why and when, and how many rows go."""
    together = hashlib.sha256(json.dumps([dict(why.policy), at.isoformat()]).encode())
    count = 0
    for position, record in records_at(connection, layout, positions_where(connection, chosen)):
        together.update(f"\n{position} {fingerprint_of(record)}".encode())
        count += 1
    return together.hexdigest(), count


def _settle(connection: sqlite3.Connection, layout: Layout, archive: Archive, at: datetime) -> None:
    """Note deletions as done whose rows are gone, and forget those that never began.

    Nobody is between copies and deletion, for that takes the store's write lock.
    """
    for entry in archive.entries():
        if entry.finished_at is not None:
            continue
        there = _still_there(connection, layout, archive, entry)
        if not there:
            archive.finish(entry.digest, at)
        elif there == entry.left:
            archive.forget(entry.digest)


def _still_there(
    connection: sqlite3.Connection, layout: Layout, archive: Archive, entry: Entry
) -> int:
    """Return how many of an entry's rows are in the store, changed or not."""
    copies = dict(archive.records(entry))
    positions = [position for position in copies if isinstance(position, int)]
    return sum(
        _id_of(record) == _id_of(copies[position])
        for position, record in records_at(connection, layout, positions)
    )


def _id_of(record: bytes) -> Any:
    return json.loads(record).get("memory_id")
