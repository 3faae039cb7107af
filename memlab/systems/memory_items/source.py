"""The source of a SQLite file with the table ``memory_items`` of an agent's runtime."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from memlab.errors import ArchiveError, CompactionError, StoreError, UnsafeDeletionError
from memlab.sources import base, readers
from memlab.sources.capabilities import StoreMaking, Supersession
from memlab.store import SqliteMemoryStore, database, selection
from memlab.store import records as stored
from memlab.store.archive.identity import identity_sample_of
from memlab.store.archive.location import archive_path
from memlab.store.archive.retired import RetiredMemories
from memlab.store.archive.schema import SampleRow
from memlab.store.selection import TriggerEffect, classify_rows, count_load_bearing, delete_rows
from memlab.store.snapshot import open_snapshots, read_snapshot

_IS_WANTED: Final = "rowid IN (SELECT position FROM temp.wanted)"
"""Condition that selects the rows of :func:`memlab.store.records.fill_positions`."""
_LARGE_FILE: Final = 2**24
"""Minimum size in bytes of a file that is read by several threads."""
_MAX_CONNECTIONS: Final = 4
"""Maximum number of threads that read a file."""


class MemoryItems(base.Source):
    """A SQLite file that an agent or :class:`memlab.SqliteMemoryStore` writes."""

    scheme = "file"
    is_native_format = True
    # A file is recognised by this column alone. Another missing column is an error when it is read.
    tables: ClassVar = {"memory_items": ("memory_id",)}

    def __init__(self, location: "str | PathLike[str] | SqliteMemoryStore") -> None:
        self._store_in_memory: SqliteMemoryStore | None = None
        self._location: str | Path
        if not isinstance(location, SqliteMemoryStore):
            self._location = fspath(location)
        elif location.path is None:
            self._store_in_memory = location
            self._location = ":memory:"
        else:
            self._location = location.path

    @property
    def name(self) -> str:
        """Absolute path, or ``:memory:``."""
        if self._store_in_memory is not None:
            return ":memory:"
        return str(self.local_path)

    @property
    def path(self) -> Path:
        """Path of the existing file, with links resolved."""
        return database.store_file(self._location).resolve()

    @cached_property
    def local_path(self) -> Path:
        """Path of the file, with links resolved. The file need not exist."""
        return Path(realpath(database.path_named(self._location)))

    @property
    def archive_path(self) -> Path:
        """Path of the archive beside the file. It need not exist."""
        self._check_file()
        return archive_path(database.path_named(self._location))

    @contextmanager
    def reading(self) -> Iterator[readers.Reader]:
        """Open the store for reading at one consistent moment, without writing anything."""
        if self._store_in_memory is not None:
            with closing(database.connect(":memory:")) as copy:
                self._store_in_memory.connection.backup(copy)
                yield _Reader(copy)
            return
        path = database.store_file(self._location)
        status = database.stat_store(path)
        extra_connections = 0
        if status and status.st_size >= _LARGE_FILE:
            extra_connections = min(os.cpu_count() or 1, _MAX_CONNECTIONS)
        with open_snapshots(path, 1 + extra_connections) as (connection, *others):
            if not connection.in_transaction:  # else the snapshots share one moment already
                connection.execute("BEGIN")
            database.check_table(connection, path)
            yield _Reader(connection, self.retired(), others)

    @contextmanager
    def changing(self) -> Iterator[readers.SupersedingWriter]:
        """Open the store for one durable transaction."""
        self._check_file()
        with database.opened_for_change(self.path) as connection, database.transaction(connection):
            # SQLite reports a read-only file at the first write only.
            connection.execute("DELETE FROM main.memory_items WHERE rowid IS NULL")
            yield _Writer(connection, self.protected)

    def check_sound(self) -> None:
        """Raise StoreError if the write-ahead log, the table or its indexes are damaged."""
        super().check_sound()
        if self._store_in_memory is not None:
            return
        faults = read_snapshot(
            self.path, lambda connection: database.table_faults(connection, "memory_items")
        )
        if faults:
            raise StoreError(
                f"{self.path} is damaged ({faults[0]}; {len(faults):,} faults in memory_items); "
                "nothing was changed: copy the file to a safe place and restore a backup, or copy "
                "what can be read into a new one with the sqlite3 shell's .recover, and use that"
            )

    def check_record(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that an archived record is that of a valid, deletable row."""
        stored.check_row(key, record, parsed)

    def check_copy(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that a copied record is that of a valid row, which may be load-bearing."""
        stored.check_any_row(key, record, parsed)

    @property
    def supersession(self) -> "RowSupersession":
        """The ability to set ``superseded_by``."""
        return RowSupersession(self)

    @property
    def retirement(self) -> "RowSupersession":
        """The ability to set ``superseded_by`` to the id of the row itself."""
        return RowSupersession(self)

    @property
    def store_making(self) -> "RowStoreMaking":
        """The ability to write rows into a new file."""
        return RowStoreMaking()

    def rows_of(
        self, records: readers.Records, *, with_body: bool = False
    ) -> Iterator[readers.Rows]:
        """Yield archived rows in batches, as a scan of the store would yield them."""
        from memlab.systems.memory_items.scan import rows_of_records

        return rows_of_records(cast("Iterable[stored.Record]", records), with_body=with_body)

    def facts_of(self, record: bytes) -> base.Facts:
        """Return the id, kind, tags and title of a record."""
        fields = json.loads(record)
        return base.Facts(
            memory_id=_text_of(fields, "memory_id"),
            kind=_text_of(fields, "kind") or "",
            tags_json=_text_of(fields, "tags_json") or "",
            title=_text_of(fields, "title"),
        )

    def without_usage(self, record: bytes) -> bytes:
        """Return a record without the signals of ``memory_signals``."""
        return stored.without_signals(record)

    def content_for_digest(self, record: bytes) -> bytes:
        """Return a record without its signals and its supersession, which retiring changes."""
        fields = json.loads(stored.without_signals(record))
        fields["superseded_by"] = None
        return base.canonical(fields)

    def no_reads_message(self) -> str:
        """Return the message that explains how an agent's runtime writes a read log."""
        return (
            f"{self.name} holds no record of reads. Let the agent's runtime write one: "
            "SqliteMemoryStore(path, access_log=memlab.AccessLog('reads.jsonl'))"
        )

    def _check_file(self) -> None:
        """Raise UnsafeDeletionError for a store in memory, which cannot have an archive."""
        if self._location == ":memory:":
            raise UnsafeDeletionError(
                "a store in memory has no file, so it can have no archive: make the store with "
                "SqliteMemoryStore(path), then plan"
            )


class RowSupersession(Supersession):
    """Supersession by the column ``superseded_by``."""

    def __init__(self, source: MemoryItems) -> None:
        self.source = source

    def changing(self) -> AbstractContextManager[readers.SupersedingWriter]:
        """Open the store for one durable transaction."""
        return self.source.changing()

    def superseded_by(self, record: bytes) -> str | None:
        """Return the id of the superseding row; for a retired row this is its own id."""
        return _text_of(json.loads(record), "superseded_by")


class RowStoreMaking(StoreMaking):
    """Writing of rows into a new file."""

    def make(self, path: Path, records: readers.Records) -> int:
        """Write a new store with these rows to an empty file, and return their number."""
        extra_columns = stored.extra_columns_of(cast("Iterable[stored.Record]", records))
        with closing(database.connect(path)) as connection, database.convert_sqlite_errors(path):
            connection.execute(database.CREATE_TABLE)
            for name in extra_columns:
                # Without a type, the column keeps each value as it is.
                connection.execute(f"ALTER TABLE memory_items ADD COLUMN {stored.quoted(name)}")
            with database.transaction(connection):
                return _Writer(connection).insert(records)


class _Reader(readers.Reader):
    """Reader of a store over a connection. Connections in `scanning` read rows in parallel."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        retired: RetiredMemories | None = None,
        scanning: Sequence[sqlite3.Connection] = (),
    ) -> None:
        self._retired = retired or RetiredMemories()
        self._connection = connection
        self._scanning = scanning or [connection]

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[readers.Rows]:
        from memlab.systems.memory_items.scan import add_signals, scan_rows, with_retired

        readers.check_requested(columns, self._layout.columns, "memory_items")
        scanned = scan_rows(self._scanning, with_body=with_body)
        for rows in add_signals(scanned, self._connection, self._layout, columns):
            yield with_retired(rows, self._retired) if self._retired else rows

    def records(self, keys: Iterable[readers.Key]) -> Iterator[tuple[readers.Key, bytes]]:
        return stored.records_at(self._connection, self._layout, cast("Iterable[int]", keys))

    def side_effects(self, keys: Iterable[readers.Key]) -> tuple[TriggerEffect, ...]:
        self._connection.text_factory = str  # a scan sets it to bytes
        # Only the check of foreign keys asks which rows refer to the memories at these positions.
        positions: Iterable[int] = ()
        if selection.foreign_keys_on_memories(self._connection):
            positions = cast("Iterable[int]", keys)
        stored.fill_positions(self._connection, "wanted", positions)
        return selection.check_deletion(self._connection, _IS_WANTED)

    @cached_property
    def _layout(self) -> stored.Layout:
        return stored.layout_of(self._connection)


class _Writer(_Reader, readers.SupersedingWriter):
    """Writer of a store in one transaction; `protected` are tags that make a row load-bearing."""

    likely_cause = "a trigger on memory_items in the store"

    def __init__(
        self, connection: sqlite3.Connection, protected: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(connection)
        self._protected = protected
        self._replaces = False
        """Whether the deleted rows are inserted again in the same change."""

    def replace(self, expected: Mapping[readers.Key, str], records: readers.Records) -> None:
        self._replaces = True
        super().replace(expected, records)
        self._replaces = False

    def _delete(self, expected: Mapping[readers.Key, str]) -> None:
        load_bearing_count = classify_rows(self._connection, self._protected)
        stored.fill_positions(self._connection, "wanted", cast("Iterable[int]", expected))
        if self._replaces:  # a replaced row may be load-bearing: it is inserted again
            load_bearing_count -= count_load_bearing(self._connection, _IS_WANTED)
        delete_rows(self._connection, _IS_WANTED, load_bearing_count)

    def identity_sample(self, leaving: Iterable[readers.Key]) -> list[SampleRow]:
        """Return some rows that identify the store, without those that leave it."""
        stored.fill_positions(self._connection, "wanted", cast("Iterable[int]", leaving))
        return identity_sample_of(self._connection, _IS_WANTED)

    def conflicts(self, records: readers.Records) -> list[str]:
        conflicts = []
        for batch in stored.batched(records):
            ids = []
            for position, record in batch:
                memory_id = _text_of(json.loads(record), "memory_id")
                if memory_id is not None:
                    ids.append((memory_id, position))
            if not self._has_any_id([memory_id for memory_id, _ in ids]):
                continue
            for memory_id, position in ids:
                if self._has_id_elsewhere(memory_id, position):
                    conflicts.append(f"id {memory_id!r}")
        return conflicts

    def _has_any_id(self, ids: Sequence[str]) -> bool:
        """Return whether the store has a row with one of the ids."""
        marks = ", ".join("?" * len(ids))
        query = f"SELECT 1 FROM main.memory_items WHERE memory_id IN ({marks})"
        return self._connection.execute(query, ids).fetchone() is not None

    def _has_id_elsewhere(self, memory_id: str, position: readers.Key) -> bool:
        """Return whether another row than that at `position` has an id."""
        query = "SELECT 1 FROM main.memory_items WHERE memory_id = ? AND rowid <> ?"
        return self._connection.execute(query, (memory_id, position)).fetchone() is not None

    def _insert(self, records: readers.Records) -> int:
        selection.check_insertion(self._connection)
        positions = cast("Iterable[int]", readers.keys_of(records))
        stored.fill_positions(self._connection, "wanted", positions)
        self._others_before = self._fingerprint_of_others()
        return stored.insert_records(
            self._connection, self._layout, cast("Iterable[stored.Record]", records)
        )

    def _fingerprint_of_others(self) -> str | None:
        """Return a fingerprint of the other rows if triggers could change them."""
        return stored.fingerprint_under_triggers(self._connection, f"NOT ({_IS_WANTED})")

    def _check_inserted(self, records: readers.Records, expected_count: int) -> None:
        super()._check_inserted(records, expected_count)
        if self._others_before != self._fingerprint_of_others():
            raise ArchiveError(
                "other memories would have changed; all was rolled back: look for a trigger on "
                "memory_items, or restore into a new file"
            )

    def is_back(self, current_record: bytes, record: bytes) -> bool:
        return stored.is_as_archived(current_record, record, self._layout)

    def supersede(self, change: readers.LinkChange) -> int:
        connection = self._connection
        links = change.superseded_by
        selection.check_supersession(connection)
        stored.fill_positions(connection, "wanted", cast("Iterable[int]", links))
        count_before = self._count()
        others_before = self._fingerprint_of_others()
        expected = {}
        for position, record in self.records(links):
            row = _with_supersession(record)
            row["superseded_by"] = links[position]
            expected[position] = row
        connection.executemany(
            "UPDATE main.memory_items SET superseded_by = ? WHERE rowid = ?",
            [(superseding_id, position) for position, superseding_id in links.items()],
        )
        after = {position: _with_supersession(record) for position, record in self.records(links)}
        is_as_expected = len(expected) == len(links) and after == expected
        others_are_unchanged = (
            self._count() == count_before and self._fingerprint_of_others() == others_before
        )
        if not is_as_expected or not others_are_unchanged:
            raise CompactionError(
                f"superseding {len(links):,} memories would have changed more than that; all was "
                "rolled back: look for a trigger on memory_items in the store"
            )
        return len(links)

    def _count(self) -> int:
        (count,) = self._connection.execute("SELECT count(*) FROM main.memory_items").fetchone()
        return int(count)


def _with_supersession(record: bytes) -> dict[str, object]:
    """Return the fields of a row, including ``superseded_by``, which a record omits for NULL."""
    return {"superseded_by": None, **json.loads(record)}


def _text_of(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a field of a parsed record; None if it is no text."""
    value = fields.get(name)
    return value if isinstance(value, str) else None
