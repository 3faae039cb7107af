"""Archived deletions by an agent's runtime, which compacts its own open store without a plan."""

import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memlab import errors
from memlab.store.archive.archive import Archive
from memlab.store.archive.identity import identity_sample_of
from memlab.store.archive.location import existing_path
from memlab.store.archive.opening import archived_change, open_archive
from memlab.store.archive.schema import NewCopy, NewEntry
from memlab.store.records import layout_of, positions_where, records_at
from memlab.store.selection import check_deletion
from memlab.text import command


class PolicyAndReason(NamedTuple):
    """The cause of a deletion by a runtime.

    Attributes
    ----------
    policy : mapping
        The policy as JSON values.
    reason : str
        The reason for which the policy deletes the memories.
    """

    policy: Mapping[str, Any]
    reason: str


class ArchivedCompaction(NamedTuple):
    """An archived deletion by a runtime, which can be undone.

    Attributes
    ----------
    digest : str
        The digest by which the archive names the deletion.
    store : Path
        The file of the store.

    Examples
    --------
    >>> ArchivedCompaction("ab" * 32, Path("memory.db")).undo
    'memlab restore memory.db abababababab'
    """

    digest: str
    store: Path

    @property
    def undo(self) -> str:
        """The command that undoes the deletion."""
        return command("restore", self.store, self.digest[:12])


@contextmanager
def archived_first(
    connection: sqlite3.Connection,
    archive: Archive | None,
    is_deleted: str,
    policy_and_reason: PolicyAndReason,
    *,
    at: datetime,
    check: bool = True,
) -> Iterator[str | None]:
    """Archive rows; then run the block, which deletes them.

    If the block raises an error, the copies are discarded. A runtime uses this to delete from a
    store that it has open, without a plan::

        with transaction(connection):
            with archived_first(
                connection, archive, is_deleted, policy_and_reason, at=now
            ) as digest:
                delete_rows(connection, is_deleted, load_bearing)
        note_deleted(archive, digest, at=now)

    Parameters
    ----------
    connection : sqlite3.Connection
        The open store, in a transaction that holds its write lock.
    archive : Archive or None
        Where the rows are archived; None to delete them without an archive.
    is_deleted : str
        The SQL condition of the rows that the block deletes.
    policy_and_reason : PolicyAndReason
        The cause of the deletion, which the archive records.
    at : datetime
        The time to record.
    check : bool
        Whether to check the archive, and to mark interrupted deletions in it as done or discard
        them. Once is enough while a runtime has the store open.

    Yields
    ------
    str or None
        The digest by which the archive names the deletion; None without an archive.
    """
    check_deletion(connection, is_deleted)
    if archive is None:
        yield None
        return
    if check:
        archive.check()
    layout = layout_of(connection)
    digest = secrets.token_hex(32)
    ((count,),) = connection.execute(f"SELECT count(*) FROM main.memory_items WHERE {is_deleted}")
    # The caller has opened the store for the change, so no context manager is needed for that.
    store_is_open = nullcontext(None)
    with archived_change(archive.location, store_is_open) as change:
        opened = change.archive
        if check:
            opened.check_entries()
            opened.reconcile_interrupted(partial(records_at, connection, layout), at=at)
        positions = positions_where(connection, is_deleted)
        copies = (
            NewCopy(position, record, policy_and_reason.reason)
            for position, record in records_at(connection, layout, positions)
        )
        sample = identity_sample_of(connection, is_deleted) if check else None
        deletion = NewEntry(
            digest=digest, policy=policy_and_reason.policy, made_at=at, memories=count
        )
        with opened.adding_entry(deletion, copies, at=at, identity_sample=sample):
            yield digest


def note_deleted(archive: Archive | None, digest: str | None, *, at: datetime) -> None:
    """Record in the archive that a deletion is done, after the store has committed it.

    Do nothing without an archive, or without a deletion.
    """
    if archive is None or digest is None:
        return
    location = archive.location
    try:
        existing_path(location)
        with open_archive(location) as opened:
            opened.mark_applied(digest, at)
    except errors.ArchiveError as error:
        raise errors.ArchiveError(
            f"the rows were deleted from {location.store} and are archived, but the archive "
            f"could not record it ({error.__cause__ or error}): the next deletion records it"
        ) from error
