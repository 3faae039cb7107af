"""Archiving rows that a runtime deletes by itself, by the protocol of :mod:`memlab.store.archive`.

The runtime holds its store's write lock and has decided what goes: it calls
:meth:`RowArchive.copy`, deletes and commits, and then calls :meth:`RowArchive.finish`; where the
deletion was rolled back, :meth:`RowArchive.forget`. Stopped in between there is a copy too many.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memlab.errors import MemlabError
from memlab.store.archive import Apply, Archived
from memlab.store.archive_file import create_archive, open_archive
from memlab.store.archive_place import place_beside
from memlab.store.records import fingerprint_of, layout_of, records_at


class RowArchive:
    """The archive beside a store, for what the store deletes by itself.

    Parameters
    ----------
    connection : sqlite3.Connection
        To the store.
    store : Path
        Its file.
    """

    def __init__(self, connection: sqlite3.Connection, store: Path) -> None:
        self._connection = connection
        self.place: Final = place_beside(store)
        self._begun: list[tuple[str, datetime]] = []
        self._done: list[tuple[str, datetime]] = []

    def copy(self, reasons: Mapping[int, str], *, policy: Mapping[str, Any], at: datetime) -> None:
        """Copy rows as they are, and sync the copies; call it under the store's write lock.

        Parameters
        ----------
        reasons : mapping of int to str
            Why each row goes, by its rowid.
        policy : mapping
            The rule, as JSON values.
        at : datetime
            The moment of the deletion, with a time zone.

        Raises
        ------
        ArchiveError
            When the copies cannot be made or are not what is in the store; nothing may be deleted.
        """
        copies = list(self._copies(reasons))
        digest = _digest(policy, at, copies)
        apply = Apply(digest, policy, at, len(reasons))
        with create_archive(self.place) as archive, archive.copying(apply, copies, at=at):
            pass
        self._begun.append((digest, at))

    def finish(self) -> None:
        """Record that the rows copied last are deleted; call it when the store has committed.

        Raises
        ------
        ArchiveError
            When the archive cannot note it. It notes it at the next call.
        """
        self._done += self._begun
        self._begun = []
        if self._done:
            with open_archive(self.place) as archive:
                for digest, at in self._done:
                    archive.finish(digest, at)
            self._done = []

    def forget(self) -> None:
        """Drop the copies made last: the store still has the rows. A copy too many does no harm."""
        with suppress(MemlabError):
            if self._begun:
                with open_archive(self.place) as archive:
                    for digest, _ in self._begun:
                        archive.forget(digest)
        self._begun = []

    def _copies(self, reasons: Mapping[int, str]) -> Iterator[Archived]:
        layout = layout_of(self._connection)
        for position, record in records_at(self._connection, layout, reasons):
            yield Archived(position, fingerprint_of(record), record, reasons[position])


def _digest(policy: Mapping[str, Any], at: datetime, copies: list[Archived]) -> str:
    """Return the name of a deletion: a digest of why, when and what."""
    told = [dict(policy), at.isoformat(), *((c.key, c.fingerprint, c.reason) for c in copies)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
