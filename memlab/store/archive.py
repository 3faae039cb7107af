"""The archive: every memory that was taken out of a store, as it was.

An archive is an ordinary SQLite file. The view ``archived_memories`` shows each copy with the
digest of the plan that took it out, when, why and from where, its record, and the columns of
``memory_items`` that the record has; the table ``applies`` holds the plans. Standard library only,
and nothing here knows what a plan or a source is: a runtime archives by the same protocol.

The protocol: whoever holds the store's write lock copies (:meth:`Archive.copying`, which checks
every copy and syncs the file), deletes, commits, and then has the deletion recorded as done
(:meth:`Archive.finish`). Stopped in between there is a copy too many, never one too few.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from memlab.errors import ArchiveError
from memlab.items import shortened
from memlab.store.archive_1 import copies_of_1
from memlab.store.archive_entries import Apply, Archived, Copy, Entry, Key, Witness
from memlab.store.archive_place import ArchivePlace, archive_errors
from memlab.store.archive_tables import FIRST_FORMAT
from memlab.store.database import transaction
from memlab.store.records import AT_ONCE, fingerprint_of

_WITNESSES: Final = "witnesses"


class Archive:
    """An open archive. :mod:`memlab.store.archive_file` opens one.

    Parameters
    ----------
    connection : sqlite3.Connection
        To an archive that was checked.
    place : ArchivePlace
        Where it is.
    """

    def __init__(self, connection: sqlite3.Connection, place: ArchivePlace) -> None:
        self.connection: Final = connection
        self.place: Final = place
        self.path: Final = place.path
        (self.format,) = connection.execute("PRAGMA user_version").fetchone()

    def entries(self) -> list[Entry]:
        """Return every deletion, oldest first."""
        key, count = ("position", "rows") if self.format == FIRST_FORMAT else ("key", "memories")
        with archive_errors(self.path):
            found = self.connection.execute(
                f"SELECT apply, digest, {count}, archived_at, finished_at, count({key}), "
                "count(restored_at), plan_json_zlib IS NOT NULL FROM applies LEFT JOIN archived "
                "USING (apply) GROUP BY apply"
            ).fetchall()
        try:
            return [
                Entry(
                    *(apply, digest, size, _moment(at), finished and _moment(finished)),
                    *(left, back, bool(planned)),
                )
                for apply, digest, size, at, finished, left, back, planned in found
            ]
        except (TypeError, ValueError) as error:
            raise ArchiveError(
                f"the table applies in {self.path} was changed by hand ({error}); restore a backup"
            ) from error

    def entry(self, digest: str) -> Entry:
        """Return the deletion whose digest begins with `digest`.

        Raises
        ------
        ArchiveError
            When none does, or more than one.
        """
        found = [entry for entry in self.entries() if digest and entry.digest.startswith(digest)]
        if len(found) == 1:
            return found[0]
        name = shortened(digest)
        if not found:
            if dropped := self._dropped_at(digest):
                raise ArchiveError(
                    f"plan {name} was dropped from {self.path} on {dropped:%Y-%m-%d %H:%M} UTC: "
                    "its words are erased, and nothing restores them"
                )
            raise ArchiveError(
                f"no plan {name} in {self.path}; memlab archive {self.place.store} lists them"
            )
        names = ", ".join(entry.digest[:16] for entry in found)
        raise ArchiveError(f"{name} names several plans in {self.path}: {names}; write more")

    def plan_text(self, entry: Entry) -> bytes:
        """Return the plan that an entry carried out, as text.

        Raises
        ------
        ArchiveError
            When none was kept, or it is damaged.
        """
        with archive_errors(self.path):
            (packed,) = self.connection.execute(
                "SELECT plan_json_zlib FROM applies WHERE apply = ?", (entry.apply,)
            ).fetchone()
        if packed is None:
            raise ArchiveError(
                f"{entry.digest[:12]} in {self.path} was no plan: a runtime compacted by itself; "
                "its memories can be restored all the same"
            )
        try:
            return zlib.decompress(packed)
        except (zlib.error, TypeError) as error:
            raise ArchiveError(
                f"plan {entry.digest[:12]} in {self.path} cannot be read: {error}; its memories "
                "can be restored all the same"
            ) from error

    def copies(self, entry: Entry) -> list[Copy]:
        """Return an entry's copies in the order in which they were made."""
        if self.format == FIRST_FORMAT:
            return [copy for copies in self.batches(entry) for copy, _ in copies]
        with archive_errors(self.path):
            found = self.connection.execute(
                "SELECT key, fingerprint, reason, restored_at FROM archived WHERE apply = ? "
                "ORDER BY rowid",
                (entry.apply,),
            )
            return [Copy(*row) for row in found]

    def batches(self, entry: Entry) -> Iterator[list[tuple[Copy, bytes]]]:
        """Yield an entry's copies with their records, some at a time, in order.

        Records come as they are: compare their fingerprints where that matters.
        """
        with archive_errors(self.path):
            copies = self._stored(entry)
            while some := list(islice(copies, AT_ONCE)):
                yield some

    def records(
        self, entry: Entry, keys: Iterable[Key] | None = None
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of an entry, or of those of its copies that have these `keys`.

        All of them come in the order in which the copies were made, some in that of `keys`.
        """
        if keys is None or self.format == FIRST_FORMAT:
            wanted = None if keys is None else set(keys)
            for copies in self.batches(entry):
                yield from ((c.key, r) for c, r in copies if wanted is None or c.key in wanted)
        else:
            with archive_errors(self.path):
                yield from self._records_at(entry, keys)

    def damaged(self, entry: Entry) -> list[Key]:
        """Return the keys of copies whose records are not what was archived."""
        return [
            copy.key
            for copies in self.batches(entry)
            for copy, record in copies
            if fingerprint_of(record) != copy.fingerprint
        ]

    @contextmanager
    def copying(
        self,
        apply: Apply,
        memories: Iterable[Archived],
        *,
        at: datetime,
        staying: Iterable[Witness] | None = None,
    ) -> Iterator[None]:
        """Copy memories, and check every copy; commit and sync after the block.

        The caller holds the store's write lock, so that nobody changes the memories meanwhile.
        Copies that an earlier, unfinished attempt at the same deletion left are replaced.

        Parameters
        ----------
        apply : Apply
            What the deletion is.
        memories : iterable of Archived
            As they are in the store now.
        at : datetime
            The moment written beside the copies.
        staying : iterable of Witness, optional
            Memories that stay, by which the store is known again; without, the earlier ones stand.

        Raises
        ------
        ArchiveError
            When a copy is not what was planned. The archive is as before.
        """
        with archive_errors(self.path), transaction(self.connection):
            self.erase(apply.digest)
            number = self._begin(apply, at)
            self._write(
                (number, m.key, m.fingerprint, m.record.decode(), m.reason, None) for m in memories
            )
            self._check_copies(number, apply.memories)
            if staying is not None:
                self.note_witnesses(staying)
            yield

    def finish(self, digest: str, at: datetime) -> None:
        """Record that the deletion is done, unless that is recorded."""
        with archive_errors(self.path), transaction(self.connection):
            self.connection.execute(
                "UPDATE applies SET finished_at = ? WHERE digest = ? AND finished_at IS NULL",
                (_text(at), digest),
            )

    def forget(self, digest: str) -> None:
        """Drop an entry and its copies. The caller knows that the memories are in the store."""
        with archive_errors(self.path), transaction(self.connection):
            self.erase(digest)

    @contextmanager
    def marking_restored(self, digest: str, keys: Iterable[Key], at: datetime) -> Iterator[None]:
        """Record that copies have been put back, once the block has committed that.

        Whoever enters it holds the store's write lock: until the record is there too, nobody drops
        the copies, or applies a plan of the same name anew.
        """
        with archive_errors(self.path), transaction(self.connection):
            self.connection.executemany(
                "UPDATE archived SET restored_at = ? WHERE key = ? AND apply = "
                "(SELECT apply FROM applies WHERE digest = ?)",
                ((_text(at), key, digest) for key in keys),
            )
            yield

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let everything read in the block be of one moment: nobody drops what is being read."""
        with archive_errors(self.path):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")

    def witnesses(self) -> list[Witness]:
        """Return memories of the store by which it is known again; none where none were noted.

        What was deleted into this archive since does not count: its place may be another's by now.
        """
        if self.format == FIRST_FORMAT:
            return []
        with archive_errors(self.path):
            found = self.connection.execute(
                "SELECT value FROM about WHERE name = ?", (_WITNESSES,)
            ).fetchone()
            try:
                noted = {int(place): str(digest) for place, digest in json.loads(found[0])}
            except (TypeError, ValueError):  # none, or changed by hand: it says nothing then
                return []
            marks = ", ".join("?" * len(noted))
            gone = self.connection.execute(
                f"SELECT key FROM archived WHERE key IN ({marks})", list(noted)
            ).fetchall()
        return sorted(noted.items() - {(place, noted[place]) for (place,) in gone})

    def note_witnesses(self, staying: Iterable[Witness]) -> None:
        """Write down memories by which the store is known again, in the caller's transaction."""
        self.connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", (_WITNESSES, json.dumps(list(staying)))
        )

    def erase(self, digest: str) -> None:
        """Delete an entry and its copies, in the caller's transaction."""
        self.connection.execute(
            "DELETE FROM archived WHERE apply = (SELECT apply FROM applies WHERE digest = ?)",
            (digest,),
        )
        self.connection.execute("DELETE FROM applies WHERE digest = ?", (digest,))

    def _dropped_at(self, digest: str) -> datetime | None:
        """Return when the copies of a deletion were erased, where facts of it are kept."""
        with archive_errors(self.path):
            if not self.connection.execute(
                "SELECT 1 FROM sqlite_schema WHERE name = 'dropped'"
            ).fetchone():
                return None
            found = self.connection.execute("SELECT digest, dropped_at FROM dropped").fetchall()
        named = [at for name, at in found if digest and name.startswith(digest)]
        return _moment(named[0]) if named else None

    def _stored(self, entry: Entry) -> Iterator[tuple[Copy, bytes]]:
        if self.format == FIRST_FORMAT:
            for copied in copies_of_1(self.connection):
                if copied.apply == entry.apply:
                    yield Copy(*copied[1:3], *copied[4:]), copied.record
            return
        found = self.connection.execute(
            "SELECT key, fingerprint, reason, restored_at, record FROM archived WHERE apply = ? "
            "ORDER BY rowid",
            (entry.apply,),
        )
        yield from ((Copy(*copy), record.encode()) for *copy, record in found)

    def _records_at(self, entry: Entry, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            marks = ", ".join("?" * len(some))
            found = dict(
                self.connection.execute(
                    f"SELECT key, record FROM archived WHERE apply = ? AND key IN ({marks})",
                    (entry.apply, *some),
                )
            )
            yield from ((key, found[key].encode()) for key in some if key in found)

    def _begin(self, apply: Apply, at: datetime) -> int:
        (number,) = self.connection.execute(
            "INSERT INTO applies (digest, policy, made_at, memories, archived_at, plan_json_zlib) "
            "VALUES (?, ?, ?, ?, ?, ?) RETURNING apply",
            (
                apply.digest,
                json.dumps(dict(apply.policy)),
                _text(apply.made_at),
                apply.memories,
                _text(at),
                apply.plan,
            ),
        ).fetchone()
        return int(number)

    def _write(self, copies: Iterable[tuple[Any, ...]]) -> None:
        self.connection.executemany(
            "INSERT INTO archived (apply, key, fingerprint, record, reason, restored_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            copies,
        )

    def _check_copies(self, number: int, memories: int) -> None:
        """Read every copy again, and compare it with what was planned."""
        found = self.connection.execute(
            "SELECT fingerprint, record FROM archived WHERE apply = ?", (number,)
        )
        sound = sum(fingerprint_of(record.encode()) == planned for planned, record in found)
        if sound != memories:
            raise ArchiveError(
                f"{self.path} did not keep every memory as it is ({sound:,} of {memories:,}); "
                "nothing was deleted: check the disk"
            )


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
