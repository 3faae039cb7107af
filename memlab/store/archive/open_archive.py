"""An open archive: reading and writing the copies of deleted memories. Standard library only.

A deletion holds the write lock of the store. It writes the copies, commits them, deletes, commits
the store, and then marks the deletion as done in the archive. If it is interrupted, a memory may be
in both places, but it is never in neither. Damaged parts of an archive are left out and reported as
faults.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, MemlabError
from memlab.store.archive import formats, packing, schema
from memlab.store.archive.location import ArchiveLocation, unchanged
from memlab.store.archive.schema import Copy, Dropped, Entry, Key, NewCopy, NewEntry, SampleRow
from memlab.store.database import error_in_words, sqlite_errors_in_words, transaction
from memlab.store.records import ROWS_PER_STATEMENT, batched, fingerprint_of
from memlab.store.shapes import check_integer, integer, list_of, pair, text
from memlab.text import shortened

MOST_NAMED_FAULTS: Final = 5
"""Maximum number of faults that a message names; it counts the others."""
_SAMPLE_NAME: Final = "witnesses"
"""Name of the identity sample in the table ``about``."""
_FIRST_FORMAT_WITH_ANY_FIELD: Final = 3
"""First format whose readers accept unknown fields in the place of a memory among others."""
_check_sample: Final = list_of(pair(integer(), text), most=500)
"""Checks the stored identity sample."""
_ERRORS_OF_ONE_ROW: Final = ("SQLITE_CORRUPT", "SQLITE_TOOBIG")
"""Errors of SQLite that one damaged row of several can cause."""


Fetch = Callable[[Iterable[Any]], Iterator[tuple[Any, bytes]]]
"""Yields the records of a store at some keys, like `memlab.sources.readers.Reader.records`."""


class EntryState(NamedTuple):
    """State in the store of the memories of a deletion: the keys of its copies, in four groups."""

    same: set[Key]
    """The store has the memory, unchanged since the plan in every field that the plan compares."""
    changed: set[Key]
    """The store has the memory, changed."""
    taken: set[Key]
    """The store has another memory at this key."""
    absent: set[Key]
    """The store has nothing at this key."""

    @property
    def is_gone(self) -> bool:
        """Whether all of the memories are deleted."""
        return not self.same and not self.changed and bool(self.taken or self.absent)


class FileIdentity(NamedTuple):
    """Device and inode of a file, which identify it as long as it exists."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "FileIdentity":
        """Return the identity of the file at a path; links are not followed."""
        status = path.lstat()
        return cls(status.st_dev, status.st_ino)


class OpenArchive:
    """An open archive. :mod:`memlab.store.archive.opening` opens it.

    Parameters
    ----------
    connection : sqlite3.Connection
        The open file.
    location : ArchiveLocation
        Where the archive is, and how the records of its store are read.
    file : FileIdentity, optional
        The file that was opened for writing; None for reading.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        location: ArchiveLocation,
        file: FileIdentity | None = None,
    ) -> None:
        self.connection: Final = connection
        self._file: Final = file
        self.location: Final = location
        self.path: Final = location.path
        self.faults: Final[dict[str, str]] = {}
        # Text is read as bytearray: a damaged byte must not stop the reading of a table, and text
        # must differ from a blob.
        connection.text_factory = bytearray
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, schema.MAX_RECORD_BYTES + 2**16)
        self.format: Final = formats.format_of(connection)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a statement selects."""
        with archive_errors(self.path):
            return self.connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction."""
        with archive_errors(self.path), transaction(self.connection):
            self.check_in_place()
            yield self.connection

    def check_in_place(self) -> None:
        """Raise ArchiveError if the archive's path leads to another file than the one that is open.

        Memories that were archived in a file without a name would be lost.
        """
        with suppress(OSError):
            if self._file in (None, FileIdentity.of(self.path)):
                return
        raise _replaced(self.path)

    def entries(self) -> list[Entry]:
        """Return every deletion, oldest first."""
        entries: list[Entry] = []
        for row in self.rows(
            "SELECT apply, digest, memories, archived_at, finished_at, count(key), "
            "count(restored_at), plan_json_zlib IS NOT NULL, policy = ?, policy = ? FROM applies "
            "LEFT JOIN archived USING (apply) GROUP BY apply",
            json.dumps(schema.RECOVERY_POLICY),
            json.dumps(schema.INDEX_POLICY),
        ):
            with self.leaving_out(f"deletion {row[0]}"):
                entries.append(schema.entry_of(row))
        for entry in entries:
            if entry.copies != entry.memories:
                self.faults[f"plan {entry.digest[:12]}"] = (
                    f"{entry.copies:,} of its {entry.memories:,} copies are there"
                )
        return entries

    def dropped(self) -> list[Dropped]:
        """Return every deletion of which only tombstones are left, oldest first."""
        if not self.has_table("dropped"):
            return []
        erased = []
        for apply, digest, count, deleted_at, dropped_at in self.rows(
            "SELECT apply, digest, count(*), deleted_at, max(dropped_at) FROM dropped "
            "GROUP BY apply ORDER BY apply"
        ):
            with self.leaving_out(f"drop {apply!r:.40}"):
                check_integer(apply, 1)
                erased.append(
                    Dropped(
                        number=apply,
                        digest=schema.digest_in(digest),
                        memories=count,
                        deleted_at=schema.moment_in(deleted_at, "deleted_at"),
                        dropped_at=schema.moment_in(dropped_at, "dropped_at"),
                    )
                )
        return erased

    def check_entries(self) -> None:
        """Raise ArchiveError if a deletion in the archive cannot be read."""
        ((count,),) = self.rows("SELECT count(*) FROM applies")
        if len(self.entries()) != count:
            raise ArchiveError(
                f"{self.faults_in_words()}; nothing was changed: restore a backup of it, or move "
                "it away and keep it"
            )

    def faults_in_words(self) -> str:
        """Return a message that names the faults."""
        faults = [f"{part} ({reason})" for part, reason in self.faults.items()]
        named = "; ".join(faults[:MOST_NAMED_FAULTS])
        hidden = len(faults) - MOST_NAMED_FAULTS
        more = f" and {hidden:,} more" if hidden > 0 else ""
        return f"{self.path} is damaged: {named}{more}"

    def find_entry(self, digest: str) -> Entry | None:
        """Return the deletion with this whole digest; None if there is none."""
        return next((entry for entry in self.entries() if entry.digest == digest), None)

    def entry(self, digest: str) -> Entry:
        """Return the deletion whose digest begins with `digest`.

        Raise ArchiveError if there is none, or more than one.
        """
        matches = [entry for entry in self.entries() if digest and entry.digest.startswith(digest)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise self.ambiguous(digest, matches)
        name = shortened(digest)
        for dropped in self.dropped():
            if digest and dropped.digest.startswith(digest):
                raise ArchiveError(
                    f"plan {name} was dropped from {self.path} on "
                    f"{dropped.dropped_at:%Y-%m-%d %H:%M} UTC: its words are erased, and "
                    "nothing restores them"
                )
        raise ArchiveError(
            f"no plan {name} in {self.path}; memlab archive {self.location.store} lists them"
        )

    def ambiguous(self, digest: str, matches: Iterable[Entry | Dropped]) -> ArchiveError:
        """Return the error to raise if several deletions have digests that begin with `digest`."""
        names = ", ".join(deletion.digest[:16] for deletion in matches)
        words = f"{shortened(digest)} names several plans in {self.path}: {names}; write more"
        return ArchiveError(words)

    def plan_text(self, entry: Entry) -> bytes:
        """Return the stored text of the plan of an entry."""
        ((blob,),) = self.rows("SELECT plan_json_zlib FROM applies WHERE apply = ?", entry.number)
        if blob is None:
            raise ArchiveError(
                f"{entry.digest[:12]} in {self.path} was no plan: a runtime compacted by itself; "
                "its memories can be restored all the same"
            )
        try:
            return packing.unpacked(blob)
        except ValueError as error:
            raise ArchiveError(
                f"plan {entry.digest[:12]} in {self.path} cannot be read: {error}; its memories "
                "can be restored all the same"
            ) from error

    def plan_rows(self, entry: Entry, text: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return the rows of a plan for the memories that it deletes, by key, oldest first.

        Return None if the text itself has them. Raise ValueError if they cannot be read.

        Parameters
        ----------
        entry : Entry
            The deletion.
        text : mapping
            The stored text of its plan, parsed as JSON.
        """
        with archive_errors(self.path):
            rows = self.format.plan_rows(text, entry.number)
            return None if rows is None else list(rows)

    def copies(self, entry: Entry) -> list[Copy]:
        """Return the copies of an entry in the order of their creation, without their records."""
        with archive_errors(self.path):
            copies = []
            for rowid, *row in self.format.copies(entry.number):
                with self.leaving_out(_copy_named(entry, rowid, row[0])):
                    copies.append(self._copy_of(*row))
        return copies

    def _copy_of(
        self, key: object, fingerprint: object, reason: object, restored_at: object
    ) -> Copy:
        """Return the copy of these stored values; `restored_at` is the time of its restoration."""
        return schema.copy_of(key, self.format.fingerprint_in(fingerprint), reason, restored_at)

    def batches(self, entry: Entry) -> Iterator[list[tuple[Copy, bytes]]]:
        """Yield the copies of an entry with their records in batches, in order."""
        with archive_errors(self.path):
            rowids = self.connection.execute(
                "SELECT rowid FROM archived WHERE apply = ? ORDER BY rowid", (entry.number,)
            )
            while rows := rowids.fetchmany(ROWS_PER_STATEMENT):
                sound = self._sound_copies(entry, [rowid for (rowid,) in rows])
                if sound:
                    yield sound

    def records(
        self, entry: Entry, keys: Iterable[Key] | None = None, *, seen: bool = False
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of an entry, in the order of its copies or of `keys`.

        Parameters
        ----------
        entry : Entry
            The deletion.
        keys : iterable of key, optional
            Only these; by default all.
        seen : bool
            Whether the records were checked before in the same :meth:`one_moment`; they are then
            not checked again.
        """
        if keys is None:
            for copies in self.batches(entry):
                yield from ((copy.key, record) for copy, record in copies)
            return
        with archive_errors(self.path):
            for batch in batched(keys):
                records = self._records_by_key(entry, batch, seen=seen)
                yield from ((key, records[key]) for key in batch if key in records)

    def _records_by_key(self, entry: Entry, keys: list[Key], *, seen: bool) -> dict[Key, bytes]:
        """Return the records of some copies by key; check them unless they were checked before."""
        if seen:
            return {
                schema.key_in(key): self.format.record_in(*stored)
                for key, *stored in self.format.records_of(entry.number, keys)
            }
        sound = self._sound_copies(entry, self.format.rowids_of(entry.number, keys))
        return {copy.key: record for copy, record in sound}

    def state_of(
        self, fetch: Fetch, entry: Entry, copies: Iterable[Copy] | None = None
    ) -> EntryState:
        """Compare the copies of a deletion with the records in its store.

        Parameters
        ----------
        fetch : callable
            Reads records of the store.
        entry : Entry
            The deletion.
        copies : iterable of Copy, optional
            Its copies, if the caller has read them.
        """
        comparable_record = self.location.compared
        id_of = self.location.id_of
        if copies is None:
            copies = self.copies(entry)
        fingerprints = {copy.key: copy.fingerprint for copy in copies}
        same: set[Key] = set()
        differing: dict[Key, bytes] = {}
        for key, record in fetch(fingerprints):
            if fingerprint_of(record) == fingerprints[key]:
                same.add(key)
            else:
                differing[key] = record
        # All differing records count as changed until their copy is read, so that one whose copy
        # is unreadable does not count as another memory.
        changed = set(differing)
        copied_records = self.records(entry, differing) if differing else ()
        for key, copied_record in copied_records:
            record = differing[key]
            changed.discard(key)
            copied_fingerprint = fingerprint_of(comparable_record(copied_record))
            current_fingerprint = fingerprint_of(comparable_record(record))
            if copied_fingerprint == current_fingerprint:
                same.add(key)
            elif id_of(copied_record) == id_of(record):
                changed.add(key)
        return EntryState(
            same=same,
            changed=changed,
            taken=differing.keys() - same - changed,
            absent=fingerprints.keys() - same - differing.keys(),
        )

    def reconcile_interrupted(
        self,
        fetch: Fetch,
        *,
        at: datetime,
        is_done: Callable[[Entry], bool | None] = lambda _: None,
        discard: bool = True,
    ) -> tuple[str, ...]:
        """Mark interrupted deletions as done or discard them, as the store shows.

        A deletion is done if its memories are gone, and discarded if none of them was deleted. The
        caller holds the write lock of the store, so no deletion is in progress.

        Parameters
        ----------
        fetch : callable
            Reads records of the store.
        at : datetime
            The time to record.
        is_done : callable
            Returns for an entry without memories whether it was carried out; None if that is not
            known.
        discard : bool
            Whether to discard entries that never began.

        Returns
        -------
        tuple of str
            The digests of the deletions that were marked as done.
        """
        done = []
        for entry in self.entries():
            if entry.finished_at is not None:
                continue
            if entry.memories:
                state = self.state_of(fetch, entry)
                never_began = entry.copies > 0 and len(state.same) == entry.copies
                is_gone: bool | None = state.is_gone
            else:
                is_gone = is_done(entry)
                never_began = is_gone is False
            if is_gone:
                self.mark_applied(entry.digest, at)
                done.append(entry.digest)
            elif discard and never_began:
                self.discard_pending(entry.digest)
        return tuple(done)

    @contextmanager
    def adding(
        self,
        new_entry: NewEntry,
        new_copies: Iterable[NewCopy],
        *,
        at: datetime,
        staying: Iterable[SampleRow] | None = None,
        on_step: Callable[[str], None] = lambda _: None,
        is_undone: Callable[[BaseException], bool] = lambda _: True,
    ) -> Iterator[None]:
        """Add an entry with its copies, check and sync them; then run the block.

        The block makes the change that the entry records, such as a deletion. The caller holds the
        write lock of the store. The entry of an interrupted attempt is replaced. If the block
        raises and `is_undone` says that the store is unchanged, the entry is discarded.

        Parameters
        ----------
        new_entry : NewEntry
            The entry.
        new_copies : iterable of NewCopy
            The copies of the memories that the block deletes.
        at : datetime
            The time to record.
        staying : iterable of SampleRow, optional
            The sample of memories that stay, by which the store is recognized later.
        on_step : callable
            Called with the name of each step that is done.
        is_undone : callable
            Returns whether the store is unchanged after an error of the block.
        """
        with self.transaction() as connection:
            self.erase(new_entry.digest)
            ((entry_number,),) = connection.execute(
                "INSERT INTO applies (digest, policy, made_at, memories, archived_at) "
                "VALUES (?, ?, ?, ?, ?) RETURNING apply",
                (
                    new_entry.digest,
                    json.dumps(dict(new_entry.policy)),
                    schema.moment_text(new_entry.made_at),
                    new_entry.memories,
                    schema.moment_text(at),
                ),
            )
            storable = _storable(new_copies, self.as_kept)
            packed = self.format.insert_copies(entry_number, storable, new_entry.plan)
            connection.execute(
                "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?", (packed, entry_number)
            )
            self._check_copies(entry_number, new_entry.memories)
            if staying is not None:
                self.note_identity_sample(staying)
            on_step("copied")
        on_step("archived")
        self.check_in_place()
        try:
            yield
        except BaseException as error:
            if is_undone(error):
                with suppress(MemlabError):
                    self.discard_pending(new_entry.digest)
            raise

    @property
    def as_kept(self) -> Callable[[bytes], bytes]:
        """Function that returns a record in the form that readers of this format accept."""
        if self.format.number < _FIRST_FORMAT_WITH_ANY_FIELD:
            return self.location.older_record
        return unchanged

    def mark_applied(self, digest: str, at: datetime) -> None:
        """Record that a deletion is done, unless that is recorded already."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE applies SET finished_at = ? WHERE digest = ? AND finished_at IS NULL",
                (schema.moment_text(at), digest),
            )

    def discard_pending(self, digest: str) -> None:
        """Delete an entry and its copies. The caller knows that its memories are in the store."""
        with self.transaction():
            self.erase(digest)

    def mark_restored(self, digest: str, keys: Iterable[Key], at: datetime) -> None:
        """Record that copies were restored."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE archived SET restored_at = ? WHERE key = ? AND apply = "
                "(SELECT apply FROM applies WHERE digest = ?)",
                ((schema.moment_text(at), key, digest) for key in keys),
            )

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything in the block from one state of the archive, in one read transaction."""
        with archive_errors(self.path):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")

    def identity_sample(self) -> list[SampleRow]:
        """Return the memories by which the store is recognized; an empty list if none are noted."""
        sample = dict[int, str]()
        # Anybody may have written the archive: a sample with an unknown shape is ignored.
        with suppress(TypeError, ValueError, RecursionError):
            stored = json.loads(self.metadata(_SAMPLE_NAME) or b"[]")
            _check_sample(stored)
            sample = dict(stored)
        marks = ", ".join("?" * len(sample))
        deleted = {*self.rows(f"SELECT key FROM archived WHERE key IN ({marks})", *sample)}
        return [
            (position, digest) for position, digest in sample.items() if (position,) not in deleted
        ]

    def metadata(self, name: str) -> Any:
        """Return a value from the table ``about``; None if there is none of this name."""
        rows = self.rows("SELECT value FROM about WHERE name = ?", name)
        return rows[0][0] if rows else None

    def has_table(self, name: str) -> bool:
        """Return whether the archive has an optional table."""
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = ?", name))

    def note_identity_sample(self, staying: Iterable[SampleRow]) -> None:
        """Note memories by which the store is recognized, in the transaction of the caller."""
        self.connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", (_SAMPLE_NAME, json.dumps(list(staying)))
        )

    def erase(self, digest: str) -> None:
        """Delete an entry and its copies, in the transaction of the caller."""
        self.connection.execute(
            "DELETE FROM archived WHERE apply = (SELECT apply FROM applies WHERE digest = ?)",
            (digest,),
        )
        self.connection.execute("DELETE FROM applies WHERE digest = ?", (digest,))

    def _sound_copies(self, entry: Entry, rowids: Sequence[int]) -> list[tuple[Copy, bytes]]:
        """Return the copies at some row ids, and their records, if these are undamaged.

        If SQLite cannot read several rows because of one of them, read each row by itself.
        """
        try:
            rows = self.format.copies_at(rowids)
        except sqlite3.DatabaseError as error:
            if not getattr(error, "sqlite_errorname", "").startswith(_ERRORS_OF_ONE_ROW):
                raise
            if len(rowids) > 1:
                return list(
                    chain.from_iterable(self._sound_copies(entry, [rowid]) for rowid in rowids)
                )
            self.faults[_copy_named(entry, rowids[0], None)] = str(error)
            return []
        check = self.location.check_copy if entry.is_recovery else self.location.check
        sound = []
        for (rowid, *row), stored in rows:
            with self.leaving_out(_copy_named(entry, rowid, row[0])):
                copy = self._copy_of(*row)
                record = self.format.record_in(*stored)
                sound.append((copy, schema.record_of(record, copy, check)))
        return sound

    @contextmanager
    def leaving_out(self, what: str) -> Iterator[None]:
        """Record a ValueError of the block as a fault of a part of the archive.

        The block then ends, so that the part is left out.
        """
        try:
            yield
        except ValueError as error:
            self.faults[what] = str(error)

    def _check_copies(self, entry_number: int, memories: int) -> None:
        """Read every copy again; raise ArchiveError if not all are what was archived."""
        sound = self.format.count_sound(entry_number)
        if sound != memories:
            raise ArchiveError(
                f"{self.path} did not keep every memory as it is ({sound:,} of {memories:,}); "
                "nothing was deleted: check the disk"
            )


def check_fits(name: object, record: bytes, what_next: str) -> None:
    """Raise ArchiveError if a memory is too large to be read from an archive again."""
    try:
        schema.check_size(record)
    except ValueError as error:
        raise ArchiveError(
            f"memory {name!r:.80} is too large for the archive ({error}); {what_next}"
        ) from error


def _storable(memories: Iterable[NewCopy], as_kept: Callable[[bytes], bytes]) -> Iterator[NewCopy]:
    """Yield memories in the form that the archive keeps; raise ArchiveError if one is too large."""
    for memory in memories:
        check_fits(memory.key, memory.record, "nothing was deleted: shorten it, or keep it")
        yield memory if as_kept is unchanged else memory._replace(record=as_kept(memory.record))


def _copy_named(entry: Entry, rowid: int, key: object) -> str:
    """Return the name of a copy for a message: by its key, or by its row if the key is wrong."""
    name = f"row {rowid}"
    if isinstance(key, int):
        name = f"key {key}"
    elif isinstance(key, bytearray):
        name = f"key {shortened(key[:200].decode(errors='replace'))}"
    return f"{name} of plan {entry.digest[:12]}"


def _replaced(path: Path | str) -> ArchiveError:
    """Return the error to raise if the file of an open archive was moved or replaced."""
    return ArchiveError(
        f"{path} was moved, deleted or replaced while it was in use; nothing was written to it or "
        "deleted since: run the same command again"
    )


def archive_error(error: sqlite3.Error | UnicodeDecodeError, path: Path | str) -> ArchiveError:
    """Return the ArchiveError for an error of SQLite on an archive."""
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_READONLY_DBMOVED":
        return _replaced(path)
    if name == "SQLITE_NOTADB":
        return ArchiveError(
            f"{path} is not an archive, though it has an archive's name; move it away"
        )
    if str(error).startswith("Could not decode to UTF-8"):
        return ArchiveError(f"{path} is damaged (text that is not UTF-8); move it away and keep it")
    return ArchiveError(f"archive: {error_in_words(error, path)}")


archive_errors: Final = partial(sqlite_errors_in_words, to_error=archive_error)
"""Context manager that turns errors of SQLite on an archive into :class:`ArchiveError`."""
