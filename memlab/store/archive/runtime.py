"""Archiving what a runtime deletes by itself: the archive's protocol on one open store.

::

    with transaction(connection):
        with archived_first(connection, location, chosen, why, at=now) as digest:
            delete_rows(connection, chosen, load_bearing)
    note_deleted(location, digest, at=now)
"""

import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memlab.errors import ArchiveError
from memlab.store.archive.entries import Apply, Archived
from memlab.store.archive.location import ArchiveLocation
from memlab.store.archive.opening import (
    archived_change,
    check_archive_of,
    identity_sample_of,
    open_archive,
)
from memlab.store.records import layout_of, positions_where, records_at
from memlab.store.selection import check_deletion
from memlab.text import command


class Why(NamedTuple):
    """Why rows are deleted."""

    policy: Mapping[str, Any]
    reason: str


class Compacted(int):
    """How many rows were deleted; it knows how to take the deletion back."""

    digest: str | None = None
    store: Path | None = None

    @property
    def undo(self) -> str | None:
        """The command that takes it back; None where the deletion is final."""
        if self.digest is None:
            return None
        return command("restore", self.store, self.digest[:12])


@contextmanager
def archived_first(
    connection: sqlite3.Connection,
    location: ArchiveLocation | None,
    chosen: str,
    why: Why,
    *,
    at: datetime,
    settle: bool = True,
) -> Iterator[str | None]:
    """Archive and sync rows; then let the block delete them. If it raises, take them out again.

    Without a location nothing is archived.
    """
    check_deletion(connection, chosen)
    if location is None:
        yield None
        return
    if settle:
        check_archive_of(location)
    layout = layout_of(connection)
    digest = secrets.token_hex(32)
    ((count,),) = connection.execute(f"SELECT count(*) FROM main.memory_items WHERE {chosen}")
    with archived_change(location, nullcontext()) as both:
        archive = both.archive
        if settle:
            archive.check_entries()
            archive.settle(partial(records_at, connection, layout), at=at)
        positions = positions_where(connection, chosen)
        copies = (
            Archived(position, record, why.reason)
            for position, record in records_at(connection, layout, positions)
        )
        staying = identity_sample_of(connection, chosen) if settle else None
        named = Apply(digest, why.policy, at, count)
        with archive.deleting(named, copies, at=at, staying=staying):
            yield digest


def note_deleted(location: ArchiveLocation | None, digest: str | None, *, at: datetime) -> None:
    """Note in the archive that a deletion is done; call it after the store's commit."""
    if location is None or digest is None:
        return
    try:
        with open_archive(location) as archive:
            archive.finish(digest, at)
    except ArchiveError as error:
        raise ArchiveError(
            f"the rows were deleted from {location.store} and are archived; only the archive could "
            f"not note it ({error.__cause__ or error}): the next deletion notes it"
        ) from error
