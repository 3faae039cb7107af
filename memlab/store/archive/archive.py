"""The archive: every memory that was taken out of a store, as it was. Standard library only.

Whoever holds the store's write lock copies and deletes, commits, then records the deletion:
stopped in between there is a copy too many, never one too few. Wrong parts are left out, as faults.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, MemlabError
from memlab.store.archive import entries, formats
from memlab.store.archive.entries import Apply, Archived, Copy, Dropped, Entry, Key, SampleRow
from memlab.store.archive.location import ArchiveLocation, unchanged
from memlab.store.database import error_in_words, sqlite_errors_in_words, transaction
from memlab.store.records import AT_ONCE, batched, fingerprint_of
from memlab.store.shapes import integer, list_of, pair, text
from memlab.text import shortened

MOST_TOLD: Final = 5
"""Faults that are named; others are counted."""
_WITNESSES: Final = "witnesses"
_ALL_KEYS: Final = 3
"""The first format whose readers take every key of a record's place."""
_NOTED: Final = list_of(pair(integer(), text), most=500)
_OF_ONE_ROW: Final = ("SQLITE_CORRUPT", "SQLITE_TOOBIG")
"""Errors of SQLite that one row of several may be to blame for."""


Fetch = Callable[[Iterable[Any]], Iterator[tuple[Any, bytes]]]
"""Yields what a store has at some keys, as :meth:`memlab.sources.base.Reader.records` does."""


class EntryState(NamedTuple):
    """What became of a deletion: the keys of its copies, by what the store has there."""

    same: set[Key]
    """The memory, in all that must be as it was."""
    changed: set[Key]
    """A memory with its id."""
    taken: set[Key]
    """Another memory."""
    absent: set[Key]
    """Nothing."""

    @property
    def is_gone(self) -> bool:
        """Whether not one of the memories is where it was."""
        return not self.same and not self.changed and bool(self.taken or self.absent)


class FileIdentity(NamedTuple):
    """What tells a file from every other one while it is there."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "FileIdentity":
        """Return the identity of the file at a path, which is no link's."""
        found = path.lstat()
        return cls(found.st_dev, found.st_ino)


class Archive:
    """An open archive. :mod:`memlab.store.archive.opening` opens one.

    `file` says which file was opened to be written; an archive that is only read has none.
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
        # One wrong byte must not end the reading of a table, and a blob is no text.
        connection.text_factory = bytearray
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, entries.LARGEST + 2**16)
        self.format: Final = formats.format_of(connection)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return what a statement finds."""
        with archive_errors(self.path):
            return self.connection.execute(statement, values).fetchall()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Do all of the block in one transaction, or none of it."""
        with archive_errors(self.path), transaction(self.connection):
            self.check_in_place()
            yield self.connection

    def check_in_place(self) -> None:
        """Refuse to go on where the file that was opened is not the one at the archive's path.

        Nobody would find in it what a store no longer has.
        """
        with suppress(OSError):
            if self._file in (None, FileIdentity.of(self.path)):
                return
        raise _replaced(self.path)

    def entries(self) -> list[Entry]:
        """Return every deletion, oldest first."""
        found = []
        for row in self.rows(
            "SELECT apply, digest, memories, archived_at, finished_at, count(key), "
            "count(restored_at), plan_json_zlib IS NOT NULL, policy = ? FROM applies "
            "LEFT JOIN archived USING (apply) GROUP BY apply",
            json.dumps(entries.RECOVERS),
        ):
            with self.leaving_out(f"deletion {row[0]}"):
                found.append(entries.entry_of(row))
        for entry in found:
            if entry.left != entry.memories:
                self.faults[f"plan {entry.digest[:12]}"] = (
                    f"{entry.left:,} of its {entry.memories:,} copies are there"
                )
        return found

    def dropped(self) -> list[Dropped]:
        """Return every deletion of which facts alone are kept, oldest first."""
        if not self.has_table("dropped"):
            return []
        dropped = []
        for number, digest, count, *moments in self.rows(
            "SELECT apply, digest, count(*), deleted_at, max(dropped_at) FROM dropped "
            "GROUP BY apply ORDER BY apply"
        ):
            with self.leaving_out(f"drop {number!r:.40}"):
                integer(1)(number)
                deleted, at = map(entries.moment_in, moments, ("deleted_at", "dropped_at"))
                dropped.append(Dropped(number, entries.digest_in(digest), count, deleted, at))
        return dropped

    def check_entries(self) -> None:
        """Check that every deletion can be read, before another one is added."""
        ((count,),) = self.rows("SELECT count(*) FROM applies")
        if len(self.entries()) != count:
            raise ArchiveError(
                f"{self.told()}; nothing was changed: restore a backup of it, or move it away and "
                "keep it"
            )

    def told(self) -> str:
        """Return what was left out, in words."""
        some = [f"{what} ({why})" for what, why in self.faults.items()]
        more = f" and {len(some) - MOST_TOLD:,} more" if len(some) > MOST_TOLD else ""
        return f"{self.path} is damaged: {'; '.join(some[:MOST_TOLD])}{more}"

    def entry(self, digest: str) -> Entry:
        """Return the deletion whose digest begins with `digest`."""
        found = [entry for entry in self.entries() if digest and entry.digest.startswith(digest)]
        if len(found) == 1:
            return found[0]
        name = shortened(digest)
        if not found:
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
        raise self.ambiguous(digest, found)

    def ambiguous(self, digest: str, found: Iterable[Entry | Dropped]) -> ArchiveError:
        """Say that a digest is too short to name one."""
        names = ", ".join(each.digest[:16] for each in found)
        words = f"{shortened(digest)} names several plans in {self.path}: {names}; write more"
        return ArchiveError(words)

    def plan_text(self, entry: Entry) -> bytes:
        """Return the plan that an entry carried out, as text."""
        ((blob,),) = self.rows("SELECT plan_json_zlib FROM applies WHERE apply = ?", entry.apply)
        if blob is None:
            raise ArchiveError(
                f"{entry.digest[:12]} in {self.path} was no plan: a runtime compacted by itself; "
                "its memories can be restored all the same"
            )
        try:
            return entries.unpacked(blob)
        except ValueError as error:
            raise ArchiveError(
                f"plan {entry.digest[:12]} in {self.path} cannot be read: {error}; its memories "
                "can be restored all the same"
            ) from error

    def plan_rows(self, entry: Entry, text: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return what a plan says of the memories that it deletes, by key, oldest first.

        None where its text, read as JSON, says it itself. ValueError where that cannot be read.
        """
        with archive_errors(self.path):
            rows = self.format.plan_rows(text, entry.apply)
            return None if rows is None else list(rows)

    def copies(self, entry: Entry) -> list[Copy]:
        """Return an entry's copies in the order in which they were made, their records unread."""
        with archive_errors(self.path):
            copies = []
            for rowid, *row in self.format.copies(entry.apply):
                with self.leaving_out(_copy_named(entry, rowid, row[0])):
                    copies.append(self._copy_of(*row))
        return copies

    def _copy_of(self, key: object, fingerprint: object, reason: object, at: object) -> Copy:
        return entries.copy_of(key, self.format.fingerprint_in(fingerprint), reason, at)

    def batches(self, entry: Entry) -> Iterator[list[tuple[Copy, bytes]]]:
        """Yield an entry's copies with their records, some at a time, in order."""
        with archive_errors(self.path):
            rowids = self.connection.execute(
                "SELECT rowid FROM archived WHERE apply = ? ORDER BY rowid", (entry.apply,)
            )
            while some := [rowid for (rowid,) in rowids.fetchmany(AT_ONCE)]:
                if sound := self._sound(entry, some):
                    yield sound

    def records(
        self, entry: Entry, keys: Iterable[Key] | None = None, *, seen: bool = False
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of an entry, in the order of its copies, or of `keys`.

        What was `seen` within the same :meth:`one_moment` is not looked at again.
        """
        if keys is None:
            for copies in self.batches(entry):
                yield from ((copy.key, record) for copy, record in copies)
            return
        with archive_errors(self.path):
            for some in batched(keys):
                if seen:
                    found = {
                        entries.key_in(key): self.format.record_in(*stored)
                        for key, *stored in self.format.records_of(entry.apply, some)
                    }
                else:
                    sound = self._sound(entry, self.format.rowids_of(entry.apply, some))
                    found = {copy.key: record for copy, record in sound}
                yield from ((key, found[key]) for key in some if key in found)

    def state_of(
        self, fetch: Fetch, entry: Entry, copies: Iterable[Copy] | None = None
    ) -> EntryState:
        """Say which copies of a deletion are in the store, as they were or changed, or not."""
        compared = self.location.compared
        id_of = self.location.id_of
        known = self.copies(entry) if copies is None else copies
        wanted = {copy.key: copy.fingerprint for copy in known}
        same: set[Key] = set()
        others: dict[Key, tuple[bytes, Any]] = {}
        for key, record in fetch(wanted):
            if fingerprint_of(record) == wanted[key]:
                same.add(key)
            else:
                others[key] = compared(record), id_of(record)
        changed = set(others)  # a copy that cannot be read does not say that another has its place
        for key, record in self.records(entry, others) if others else ():
            there, memory_id = others[key]
            changed.discard(key)
            if fingerprint_of(compared(record)) == fingerprint_of(there):
                same.add(key)
            elif id_of(record) == memory_id:
                changed.add(key)
        taken = others.keys() - same - changed
        return EntryState(same, changed, taken, wanted.keys() - same - others.keys())

    def reconcile_interrupted(
        self,
        fetch: Fetch,
        *,
        at: datetime,
        is_done: Callable[[Entry], bool | None] = lambda _: None,
        forget: bool = True,
    ) -> tuple[str, ...]:
        """Note deletions as done whose memories are gone, and forget those that never began.

        Whoever holds the store's write lock knows that nobody is between copies and deletion. Of an
        entry without memories `is_done` says which it is. Returns what was noted.
        """
        done = []
        for entry in self.entries():
            if entry.finished_at is not None:
                continue
            if entry.memories:
                state = self.state_of(fetch, entry)
                never_began = len(state.same) == entry.left > 0
                is_gone: bool | None = state.is_gone
            else:
                is_gone = is_done(entry)
                never_began = is_gone is False
            if is_gone:
                self.mark_applied(entry.digest, at)
                done.append(entry.digest)
            elif forget and never_began:
                self.discard_pending(entry.digest)
        return tuple(done)

    @contextmanager
    def deleting(
        self,
        apply: Apply,
        memories: Iterable[Archived],
        *,
        at: datetime,
        staying: Iterable[SampleRow] | None = None,
        watch: Callable[[str], None] = lambda _: None,
        is_undone: Callable[[BaseException], bool] = lambda _: True,
    ) -> Iterator[None]:
        """Copy memories, check, commit and sync every copy; then let the block delete them.

        The caller holds the store's write lock. Copies that an unfinished attempt left are
        replaced. Where the block raises and nothing was deleted, the copies are taken out again.
        """
        with self.changing() as connection:
            self.erase(apply.digest)
            ((number,),) = connection.execute(
                "INSERT INTO applies (digest, policy, made_at, memories, archived_at) "
                "VALUES (?, ?, ?, ?, ?) RETURNING apply",
                (
                    apply.digest,
                    json.dumps(dict(apply.policy)),
                    entries.moment_text(apply.made_at),
                    apply.memories,
                    entries.moment_text(at),
                ),
            )
            fitting = _fitting(memories, self.as_kept)
            packed = self.format.insert_copies(number, fitting, apply.plan)
            connection.execute(
                "UPDATE applies SET plan_json_zlib = ? WHERE apply = ?", (packed, number)
            )
            self._check_copies(number, apply.memories)
            if staying is not None:
                self.note_identity_sample(staying)
            watch("copied")
        watch("archived")
        self.check_in_place()
        try:
            yield
        except BaseException as error:
            if is_undone(error):
                with suppress(MemlabError):
                    self.discard_pending(apply.digest)
            raise

    @property
    def as_kept(self) -> Callable[[bytes], bytes]:
        """Returns a record as this archive keeps it: its format's first readers take it."""
        return self.location.older_record if self.format.number < _ALL_KEYS else unchanged

    def mark_applied(self, digest: str, at: datetime) -> None:
        """Record that the deletion is done, unless that is recorded."""
        with self.changing() as connection:
            connection.execute(
                "UPDATE applies SET finished_at = ? WHERE digest = ? AND finished_at IS NULL",
                (entries.moment_text(at), digest),
            )

    def discard_pending(self, digest: str) -> None:
        """Drop an entry and its copies. The caller knows that the memories are in the store."""
        with self.changing():
            self.erase(digest)

    def mark_restored(self, digest: str, keys: Iterable[Key], at: datetime) -> None:
        """Record that copies are back."""
        with self.changing() as connection:
            connection.executemany(
                "UPDATE archived SET restored_at = ? WHERE key = ? AND apply = "
                "(SELECT apply FROM applies WHERE digest = ?)",
                ((entries.moment_text(at), key, digest) for key in keys),
            )

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let everything read in the block be of one moment: nobody drops what is being read."""
        with archive_errors(self.path):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.execute("ROLLBACK")

    def identity_sample(self) -> list[SampleRow]:
        """Return memories of the store by which it is known again; none where none were noted."""
        noted = dict[int, str]()
        with suppress(TypeError, ValueError, RecursionError):  # it may be of others' making
            written = json.loads(self.metadata(_WITNESSES) or b"[]")
            _NOTED(written)
            noted = dict(written)
        marks = ", ".join("?" * len(noted))
        gone = {*self.rows(f"SELECT key FROM archived WHERE key IN ({marks})", *noted)}
        return [(at, digest) for at, digest in noted.items() if (at,) not in gone]

    def metadata(self, name: str) -> Any:
        """Return what an archive says of itself under a name; None where it says nothing."""
        found = self.rows("SELECT value FROM about WHERE name = ?", name)
        return found[0][0] if found else None

    def has_table(self, name: str) -> bool:
        """Whether it has a table that not every archive has."""
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = ?", name))

    def note_identity_sample(self, staying: Iterable[SampleRow]) -> None:
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

    def _sound(self, entry: Entry, rowids: Sequence[int]) -> list[tuple[Copy, bytes]]:
        """Return the copies at some rows that are what was archived."""
        try:
            found = self.format.copies_at(rowids)
        except sqlite3.DatabaseError as error:
            if not getattr(error, "sqlite_errorname", "").startswith(_OF_ONE_ROW):
                raise
            if len(rowids) > 1:
                return [each for rowid in rowids for each in self._sound(entry, [rowid])]
            self.faults[_copy_named(entry, rowids[0], None)] = str(error)
            return []
        check = self.location.check_copy if entry.recovers else self.location.check
        sound = []
        for (rowid, *row), stored in found:
            with self.leaving_out(_copy_named(entry, rowid, row[0])):
                copy = self._copy_of(*row)
                record = self.format.record_in(*stored)
                sound.append((copy, entries.record_of(record, copy, check)))
        return sound

    @contextmanager
    def leaving_out(self, what: str) -> Iterator[None]:
        """Leave a part of the archive out that is found to be wrong, and note which."""
        try:
            yield
        except ValueError as error:
            self.faults[what] = str(error)

    def _check_copies(self, number: int, memories: int) -> None:
        """Read every copy again, and compare it with what was planned."""
        sound = self.format.count_sound(number)
        if sound != memories:
            raise ArchiveError(
                f"{self.path} did not keep every memory as it is ({sound:,} of {memories:,}); "
                "nothing was deleted: check the disk"
            )


def check_fits(name: object, record: bytes, what_next: str) -> None:
    """Refuse a memory that nobody could read from an archive again."""
    try:
        entries.check_size(record)
    except ValueError as error:
        raise ArchiveError(
            f"memory {name!r:.80} is too large for the archive ({error}); {what_next}"
        ) from error


def _fitting(memories: Iterable[Archived], as_kept: Callable[[bytes], bytes]) -> Iterator[Archived]:
    """Yield memories as an archive keeps them, and refuse one that is too large."""
    for memory in memories:
        check_fits(memory.key, memory.record, "nothing was deleted: shorten it, or keep it")
        yield memory if as_kept is unchanged else memory._replace(record=as_kept(memory.record))


def _copy_named(entry: Entry, rowid: int, key: object) -> str:
    name = f"key {key}" if isinstance(key, int) else f"row {rowid}"
    if isinstance(key, bytearray):
        name = f"key {shortened(key[:200].decode(errors='replace'))}"
    return f"{name} of plan {entry.digest[:12]}"


def _replaced(path: Path | str) -> ArchiveError:
    return ArchiveError(
        f"{path} was moved, deleted or replaced while it was in use; nothing was written to it or "
        "deleted since: run the same command again"
    )


def archive_error(error: sqlite3.Error | UnicodeDecodeError, path: Path | str) -> ArchiveError:
    """Return the error to raise for one of SQLite's on an archive."""
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_READONLY_DBMOVED":
        return _replaced(path)
    if name == "SQLITE_NOTADB":
        return ArchiveError(
            f"{path} is not an archive, though it has an archive's name; move it away"
        )
    if str(error).startswith("Could not decode to UTF-8"):
        return ArchiveError(f"{path} is damaged (text that is no UTF-8); move it away and keep it")
    return ArchiveError(f"archive: {error_in_words(error, path)}")


archive_errors: Final = partial(sqlite_errors_in_words, in_words=archive_error)
"""Raises SQLite's own errors on an archive as an :class:`ArchiveError`."""
