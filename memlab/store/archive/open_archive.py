"""An open archive: reading and writing the copies of deleted memories. Standard library only.

A deletion locks the store for writing. It writes the copies and commits them, deletes the memories
and commits the store, and then marks the deletion as done in the archive. If it is interrupted, a
memory may be in both places, but it is never in neither. Damaged parts of an archive are skipped
and reported as faults.
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
from memlab.store.archive.location import ArchiveLocation
from memlab.store.archive.schema import Copy, Dropped, Entry, Key, NewCopy, NewEntry, SampleRow
from memlab.store.database import convert_sqlite_errors, memlab_error_for, transaction
from memlab.store.records import ROWS_PER_STATEMENT, batched, fingerprint_of
from memlab.store.shapes import check_integer, integer, list_of, pair, text
from memlab.text import shortened

MAX_NAMED_FAULTS: Final = 5
"""Maximum number of faults that a message names. It gives the number of the others."""
_SAMPLE_NAME: Final = "witnesses"
"""Name of the identity sample in the table ``about``."""
_FIRST_FORMAT_WITH_ANY_PLACE: Final = 3
"""First format whose readers accept unknown keys in ``place``, the last field of a record."""
_check_sample: Final = list_of(pair(integer(), text), most=500)
"""Checks the stored identity sample."""
_SELECT_ENTRIES: Final = """
SELECT apply AS number, digest, memories, archived_at, finished_at, count(key) AS copies,
    count(restored_at) AS restored, plan_json_zlib IS NOT NULL AS has_plan,
    policy = ? AS is_recovery, policy = ? AS is_index_change
FROM applies LEFT JOIN archived USING (apply) GROUP BY apply
"""
"""Selects the fields of each :class:`Entry`, given the policies of a recovery and of an index."""
_ERRORS_OF_ONE_ROW: Final = ("SQLITE_CORRUPT", "SQLITE_TOOBIG")
"""Names of errors of SQLite that one damaged row among several can cause."""


Fetch = Callable[[Iterable[Any]], Iterator[tuple[Any, bytes]]]
"""Function that yields the key and the record of the memories of a store with some keys.

:meth:`memlab.sources.readers.Reader.records` is one."""


class EntryState(NamedTuple):
    """The keys of the copies of a deletion in four groups, by what the store has at each key.

    Attributes
    ----------
    same : set of key
        The memory, unchanged since the plan in every field that the plan compares.
    changed : set of key
        The memory, changed.
    taken : set of key
        Another memory.
    absent : set of key
        Nothing.
    """

    same: set[Key]
    changed: set[Key]
    taken: set[Key]
    absent: set[Key]

    @property
    def is_gone(self) -> bool:
        """Whether there are copies, and the store has none of their memories."""
        has_no_memory = not self.same and not self.changed
        return has_no_memory and bool(self.taken or self.absent)


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
        """Why a damaged part was skipped, by the name of the part in messages."""
        # Text is read as bytearray, so that a damaged byte does not stop the reading of a table,
        # and that text differs from a blob.
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
        """Raise ArchiveError if the file at the archive's path is not the one that is open.

        Nobody would find memories that were archived in a file without a name.
        """
        is_open_for_reading = self._file is None
        if is_open_for_reading:
            return
        current_file = None
        with suppress(OSError):
            current_file = FileIdentity.of(self.path)
        if current_file != self._file:
            raise _replaced(self.path)

    def entries(self) -> list[Entry]:
        """Return every entry, oldest first."""
        entries: list[Entry] = []
        recovery_policy = json.dumps(schema.RECOVERY_POLICY)
        index_policy = json.dumps(schema.INDEX_POLICY)
        for row in self.rows(_SELECT_ENTRIES, recovery_policy, index_policy):
            number = row[0]
            with self.skipping_damaged(f"deletion {number}"):
                entries.append(schema.entry_of(row))
        for entry in entries:
            if entry.copies != entry.memories:
                self.faults[f"plan {entry.digest[:12]}"] = (
                    f"{entry.copies:,} of its {entry.memories:,} copies are there"
                )
        return entries

    def dropped(self) -> list[Dropped]:
        """Return every deletion whose copies were erased and that has tombstones, oldest first."""
        if not self.has_table("dropped"):
            return []
        erased = []
        for number, digest, count, deleted_at, dropped_at in self.rows(
            "SELECT apply, digest, count(*), deleted_at, max(dropped_at) FROM dropped "
            "GROUP BY apply ORDER BY apply"
        ):
            with self.skipping_damaged(f"drop {number!r:.40}"):
                check_integer(number, 1)
                erased.append(
                    Dropped(
                        number=number,
                        digest=schema.digest_in(digest),
                        memories=count,
                        deleted_at=schema.moment_in(deleted_at, "deleted_at"),
                        dropped_at=schema.moment_in(dropped_at, "dropped_at"),
                    )
                )
        return erased

    def check_entries(self) -> None:
        """Raise ArchiveError if an entry of the archive cannot be read."""
        ((count,),) = self.rows("SELECT count(*) FROM applies")
        if len(self.entries()) != count:
            raise ArchiveError(
                f"{self.describe_faults()}; nothing was changed: restore a backup of it, or move "
                "it away and keep it"
            )

    def describe_faults(self) -> str:
        """Return a message that names the faults."""
        faults = [f"{part} ({reason})" for part, reason in self.faults.items()]
        named = "; ".join(faults[:MAX_NAMED_FAULTS])
        unnamed_count = len(faults) - MAX_NAMED_FAULTS
        more = f" and {unnamed_count:,} more" if unnamed_count > 0 else ""
        return f"{self.path} is damaged: {named}{more}"

    def find_entry(self, digest: str) -> Entry | None:
        """Return the entry with exactly this digest; None if there is none."""
        for entry in self.entries():
            if entry.digest == digest:
                return entry
        return None

    def entry(self, digest: str) -> Entry:
        """Return the entry whose digest begins with `digest`.

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
                    f"{dropped.dropped_at:%Y-%m-%d %H:%M} UTC: its texts are erased and cannot "
                    "be restored"
                )
        raise ArchiveError(
            f"no plan {name} in {self.path}; memlab archive {self.location.store} lists them"
        )

    def ambiguous(self, digest: str, matches: Iterable[Entry | Dropped]) -> ArchiveError:
        """Return the error to raise if several deletions have digests that begin with `digest`."""
        names = ", ".join(deletion.digest[:16] for deletion in matches)
        return ArchiveError(
            f"{shortened(digest)} names several plans in {self.path}: {names}; write more"
        )

    def plan_text(self, entry: Entry) -> bytes:
        """Return the stored text of the plan of an entry."""
        ((blob,),) = self.rows("SELECT plan_json_zlib FROM applies WHERE apply = ?", entry.number)
        if blob is None:
            raise ArchiveError(
                f"{entry.digest[:12]} in {self.path} is a deletion by an agent's runtime, which "
                "has no plan; its memories can be restored"
            )
        try:
            return packing.unpacked(blob)
        except ValueError as error:
            raise ArchiveError(
                f"plan {entry.digest[:12]} in {self.path} cannot be read: {error}; its memories "
                "can be restored all the same"
            ) from error

    def plan_rows(
        self, entry: Entry, stored_plan: Mapping[str, Any]
    ) -> list[dict[str, Any]] | None:
        """Return the rows of a shortened plan for the memories that it deletes, oldest first.

        Each row is a mapping by the keys of a plan. Return None if the plan is stored whole, so
        that its text has the rows. Raise ValueError if they cannot be read.

        Parameters
        ----------
        entry : Entry
            The deletion.
        stored_plan : mapping
            The stored text of its plan, parsed as JSON.
        """
        with archive_errors(self.path):
            rows = self.format.plan_rows(stored_plan, entry.number)
            if rows is None:
                return None
            return list(rows)

    def copies(self, entry: Entry) -> list[Copy]:
        """Return the copies of an entry in the order of their creation, without their records."""
        with archive_errors(self.path):
            copies = []
            for stored in self.format.copies(entry.number):
                with self.skipping_damaged(_name_of_copy(entry, stored.rowid, stored.key)):
                    copies.append(self._copy_of(stored))
        return copies

    def _copy_of(self, stored: formats.StoredCopy) -> Copy:
        """Return a copy from its stored values; raise ValueError if one of them is wrong."""
        fingerprint = self.format.fingerprint_in(stored.fingerprint)
        return schema.copy_of(stored.key, fingerprint, stored.reason, stored.restored_at)

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
        self, entry: Entry, keys: Iterable[Key] | None = None, *, are_checked: bool = False
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of an entry, in the order of its copies or of `keys`.

        Parameters
        ----------
        entry : Entry
            The deletion.
        keys : iterable of key, optional
            The keys of the copies; by default those of all copies.
        are_checked : bool
            Whether the records were checked before in the same :meth:`read_transaction`. They are
            then not checked again.
        """
        if keys is None:
            for copies in self.batches(entry):
                for copy, record in copies:
                    yield copy.key, record
            return
        with archive_errors(self.path):
            for batch in batched(keys):
                records = self._records_by_key(entry, batch, are_checked=are_checked)
                for key in batch:
                    if key in records:
                        yield key, records[key]

    def _records_by_key(
        self, entry: Entry, keys: list[Key], *, are_checked: bool
    ) -> dict[Key, bytes]:
        """Return the records of some copies by key, and check them unless they `are_checked`."""
        if are_checked:
            return {
                schema.key_in(key): self.format.record_in(*record_values)
                for key, *record_values in self.format.records_of(entry.number, keys)
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
        comparable_record = self.location.comparable_record
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
        taken: set[Key] = set()
        copied_records = self.records(entry, differing) if differing else ()
        for key, copied_record in copied_records:
            record = differing[key]
            copied_fingerprint = fingerprint_of(comparable_record(copied_record))
            current_fingerprint = fingerprint_of(comparable_record(record))
            if copied_fingerprint == current_fingerprint:
                same.add(key)
            elif id_of(copied_record) != id_of(record):
                taken.add(key)
        return EntryState(
            same=same,
            # A memory whose copy is unreadable counts as changed, not as another memory.
            changed=differing.keys() - same - taken,
            taken=taken,
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
        """Mark each interrupted deletion as done, or discard it, according to the store.

        A deletion is marked as done if the store has none of its memories, and discarded if the
        store has all of them. The caller has locked the store for writing, so no deletion is in
        progress.

        Parameters
        ----------
        fetch : callable
            Reads records of the store.
        at : datetime
            The time to record.
        is_done : callable
            Takes an entry without memories, and returns whether its change was made; None if that
            is not known.
        discard : bool
            Whether to discard entries whose change was not begun.

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
    def adding_entry(
        self,
        new_entry: NewEntry,
        new_copies: Iterable[NewCopy],
        *,
        at: datetime,
        identity_sample: Iterable[SampleRow] | None = None,
        on_step: Callable[[str], None] = lambda _: None,
        is_unchanged_after: Callable[[BaseException], bool] = lambda _: True,
    ) -> Iterator[None]:
        """Add an entry with its copies, check and sync them; then run the block.

        The block makes the change that the entry records, such as a deletion. The caller has locked
        the store for writing. The entry of an interrupted attempt is replaced. If the block raises
        an error and the store is unchanged, the entry is discarded.

        Parameters
        ----------
        new_entry : NewEntry
            The entry.
        new_copies : iterable of NewCopy
            The copies of the memories that the block deletes.
        at : datetime
            The time to record.
        identity_sample : iterable of SampleRow, optional
            The sample of memories that stay, by which the store is recognized later.
        on_step : callable
            Called with the name of each completed step.
        is_unchanged_after : callable
            Takes the error of the block, and returns whether the store is unchanged.
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
            packed_plan = self.format.insert_copies(
                entry_number, self._storable_copies(new_copies), new_entry.plan
            )
            connection.execute(
                "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?", (packed_plan, entry_number)
            )
            self._check_copies(entry_number, new_entry.memories)
            if identity_sample is not None:
                self.note_identity_sample(identity_sample)
            on_step("copied")
        # The transaction is committed.
        on_step("archived")
        self.check_in_place()
        try:
            yield
        except BaseException as error:
            if is_unchanged_after(error):
                with suppress(MemlabError):
                    self.discard_pending(new_entry.digest)
            raise

    def _storable_copies(self, memories: Iterable[NewCopy]) -> Iterator[NewCopy]:
        """Yield copies with storable records; raise ArchiveError if a record is too large."""
        for memory in memories:
            check_storable(memory.key, memory.record, "nothing was deleted: shorten it, or keep it")
            if self._accepts_any_place:
                yield memory
            else:
                yield memory._replace(record=self.storable_record(memory.record))

    def storable_record(self, record: bytes) -> bytes:
        """Return a record in the form that readers of this archive's format accept."""
        if self._accepts_any_place:
            return record
        return self.location.older_record(record)

    @property
    def _accepts_any_place(self) -> bool:
        """Whether readers of this archive's format accept unknown keys in ``place``."""
        return self.format.number >= _FIRST_FORMAT_WITH_ANY_PLACE

    def mark_applied(self, digest: str, at: datetime) -> None:
        """Record that a deletion is done, unless that is recorded already."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE applies SET finished_at = ? WHERE digest = ? AND finished_at IS NULL",
                (schema.moment_text(at), digest),
            )

    def discard_pending(self, digest: str) -> None:
        """Delete an entry and its copies. The caller has found all its memories in the store."""
        with self.transaction():
            self.erase(digest)

    def mark_restored(self, digest: str, keys: Iterable[Key], at: datetime) -> None:
        """Record that the copies of an entry with some keys were restored."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE archived SET restored_at = ? WHERE key = ? AND apply = "
                "(SELECT apply FROM applies WHERE digest = ?)",
                ((schema.moment_text(at), key, digest) for key in keys),
            )

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Read everything in the block from one state of the archive, in one read transaction."""
        with archive_errors(self.path):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")

    def identity_sample(self) -> list[SampleRow]:
        """Return the memories by which the store is recognized, without those deleted since.

        Return an empty list if the archive notes none.
        """
        sample = dict[int, str]()
        # Anybody may have written the archive, so a sample that is not one is ignored.
        with suppress(TypeError, ValueError, RecursionError):
            stored = json.loads(self.metadata(_SAMPLE_NAME) or b"[]")
            _check_sample(stored)
            sample = dict(stored)
        marks = ", ".join("?" * len(sample))
        rows = self.rows(f"SELECT key FROM archived WHERE key IN ({marks})", *sample)
        deleted = {position for (position,) in rows}
        return [
            (position, digest) for position, digest in sample.items() if position not in deleted
        ]

    def metadata(self, name: str) -> Any:
        """Return a value from the table ``about``; None if there is none of this name."""
        rows = self.rows("SELECT value FROM about WHERE name = ?", name)
        return rows[0][0] if rows else None

    def has_table(self, name: str) -> bool:
        """Return whether the archive has an optional table."""
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = ?", name))

    def note_identity_sample(self, sample: Iterable[SampleRow]) -> None:
        """Note memories by which the store is recognized, in the transaction of the caller."""
        self.connection.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", (_SAMPLE_NAME, json.dumps(list(sample)))
        )

    def erase(self, digest: str) -> None:
        """Delete an entry and its copies, in the transaction of the caller."""
        self.connection.execute(
            "DELETE FROM archived WHERE apply = (SELECT apply FROM applies WHERE digest = ?)",
            (digest,),
        )
        self.connection.execute("DELETE FROM applies WHERE digest = ?", (digest,))

    def _sound_copies(self, entry: Entry, rowids: Sequence[int]) -> list[tuple[Copy, bytes]]:
        """Return the undamaged copies among those at some row ids, with their records.

        If SQLite cannot read several rows because one of them is damaged, read each row by itself.
        """
        try:
            stored_copies = self.format.copies_at(rowids)
        except sqlite3.DatabaseError as error:
            if not getattr(error, "sqlite_errorname", "").startswith(_ERRORS_OF_ONE_ROW):
                raise
            if len(rowids) > 1:
                each_alone = [self._sound_copies(entry, [rowid]) for rowid in rowids]
                return list(chain.from_iterable(each_alone))
            self.faults[_name_of_copy(entry, rowids[0], None)] = str(error)
            return []
        check_record = self.location.check
        if entry.is_recovery:  # its memories may be load-bearing
            check_record = self.location.check_copy
        sound = []
        for stored in stored_copies:
            with self.skipping_damaged(_name_of_copy(entry, stored.rowid, stored.key)):
                copy = self._copy_of(stored)
                record = self.format.record_in(*stored.record_values)
                sound.append((copy, schema.record_of(record, copy, check_record)))
        return sound

    @contextmanager
    def skipping_damaged(self, part: str) -> Iterator[None]:
        """Run a block that reads a part of the archive; record a ValueError as a fault of the part.

        The error ends the block, and nothing is raised. `part` names the part in messages.
        """
        try:
            yield
        except ValueError as error:
            self.faults[part] = str(error)

    def _check_copies(self, entry_number: int, memories: int) -> None:
        """Read every copy again; raise ArchiveError if not all are what was archived."""
        sound = self.format.count_sound(entry_number)
        if sound != memories:
            raise ArchiveError(
                f"{self.path} did not keep every memory as it is ({sound:,} of {memories:,}); "
                "nothing was deleted: check the disk"
            )


def check_storable(name: object, record: bytes, advice: str) -> None:
    """Raise ArchiveError if a memory is too large to be read from an archive again.

    `advice` is the end of the message.
    """
    try:
        schema.check_size(record)
    except ValueError as error:
        raise ArchiveError(
            f"memory {name!r:.80} is too large for the archive ({error}); {advice}"
        ) from error


def _name_of_copy(entry: Entry, rowid: int, key: object) -> str:
    """Return the name of a copy in messages: its key, or the number of its row if that is wrong."""
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
    return ArchiveError(f"archive: {memlab_error_for(error, path)}")


archive_errors: Final = partial(convert_sqlite_errors, to_error=archive_error)
"""Context manager that turns errors of SQLite on an archive into :class:`ArchiveError`."""
