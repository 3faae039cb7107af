"""The store of an agent that writes ``memory_items``: one SQLite file."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from memlab.errors import ArchiveError, CompactionError, StoreError, UnsafeDeletionError
from memlab.sources import base
from memlab.store import SqliteMemoryStore, database, selection
from memlab.store import records as stored
from memlab.store.archive.entries import SampleRow
from memlab.store.archive.facts import RetiredMemories
from memlab.store.archive.location import archive_path
from memlab.store.archive.opening import identity_sample_of
from memlab.store.selection import TriggerEffect, classify_rows, count_load_bearing, delete_rows
from memlab.store.snapshot import open_snapshots, read_snapshot

_WANTED: Final = "rowid IN (SELECT position FROM temp.wanted)"
_LARGE: Final = 2**24
"""Bytes of a file from which on a thread per core reads it."""
_MOST_CONNECTIONS: Final = 4


class MemoryItems(base.Source):
    """A store in one SQLite file, written by an agent or by :class:`memlab.SqliteMemoryStore`."""

    scheme = "file"
    supersedes = True
    retires = True
    is_native_format = True
    tables: ClassVar = {"memory_items": ("memory_id",)}  # what it lacks is said when it is read

    def __init__(self, where: "str | PathLike[str] | SqliteMemoryStore") -> None:
        self._open: SqliteMemoryStore | None = None
        if isinstance(where, SqliteMemoryStore):
            self._open = where if where.path is None else None
            self._where: str | Path = ":memory:" if where.path is None else where.path
        else:
            self._where = fspath(where)

    @property
    def name(self) -> str:
        """The absolute path."""
        return ":memory:" if self._open is not None else str(self.permissions_template)

    @property
    def path(self) -> Path:
        """The file, with links followed."""
        return database.store_file(self._where).resolve()

    @cached_property
    def permissions_template(self) -> Path:
        """The file whose owner and permissions the archive gets, there or not."""
        return Path(realpath(database.path_named(self._where)))

    @property
    def archive(self) -> Path:
        """The archive beside the file, there or not."""
        self._check_file()
        return archive_path(database.path_named(self._where))

    @contextmanager
    def reading(self) -> Iterator[base.Reader]:
        """Open the store at one consistent moment, leaving no trace."""
        if self._open is not None:
            with closing(database.connect(":memory:")) as copy:
                self._open.connection.backup(copy)
                yield _Reader(copy)
            return
        path = database.store_file(self._where)
        found = database.stat_store(path)
        more = (
            min(os.cpu_count() or 1, _MOST_CONNECTIONS) if found and found.st_size >= _LARGE else 0
        )
        with open_snapshots(path, 1 + more) as (connection, *others):
            if not connection.in_transaction:  # a large one's are at one moment already
                connection.execute("BEGIN")
            database.check_table(connection, path)
            yield _Reader(connection, self.retired(), others)

    @contextmanager
    def changing(self) -> Iterator[base.Writer]:
        """Open the store for one transaction, whose commit reaches the disk."""
        self._check_file()
        with database.opened_for_change(self.path) as connection, database.transaction(connection):
            # Of a file that may only be read SQLite makes no word until something is written.
            connection.execute("DELETE FROM main.memory_items WHERE rowid IS NULL")
            yield _Writer(connection, self.protected)

    def check_sound(self) -> None:
        """Raise StoreError where its log, or the pages or indexes of its table, are damaged."""
        super().check_sound()
        if self._open is not None:
            return
        found = read_snapshot(
            self.path, lambda connection: database.table_faults(connection, "memory_items")
        )
        if found:
            raise StoreError(
                f"{self.path} is damaged ({found[0]}; {len(found):,} faults in memory_items); "
                "nothing was changed: copy the file to a safe place and restore a backup, or copy "
                "what can be read into a new one with the sqlite3 shell's .recover, and use that"
            )

    def check_record(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a row can have a record."""
        stored.check_row(key, record, said)

    def check_copy(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a row can have a record, be it load-bearing."""
        stored.check_any_row(key, record, said)

    def superseded_by(self, record: bytes) -> str | None:
        """Return the id of the row that stands for a record's."""
        found = json.loads(record).get("superseded_by")
        return found if isinstance(found, str) else None

    def rows_of(self, records: base.Records, *, with_body: bool = False) -> Iterator[base.Rows]:
        """Yield archived rows as they were loaded while they were in the store."""
        from memlab.systems.memory_items.scan import rows_of_records

        return rows_of_records(cast("Iterable[stored.Record]", records), with_body=with_body)

    def facts_of(self, record: bytes) -> base.Facts:
        """Return a record's id, kind, tags and title."""
        said = json.loads(record)
        memory_id, kind, tags, title = map(said.get, ("memory_id", "kind", "tags_json", "title"))
        return base.Facts(
            memory_id if isinstance(memory_id, str) else None,
            kind if isinstance(kind, str) else "",
            tags if isinstance(tags, str) else "",
            title if isinstance(title, str) else None,
        )

    def without_usage(self, record: bytes) -> bytes:
        """Return a record without its signals."""
        return stored.without_signals(record)

    def content_for_digest(self, record: bytes) -> bytes:
        """Return a record without its signals and what stands for it: retiring writes no words."""
        said = json.loads(stored.without_signals(record))
        return base.canonical({**said, "superseded_by": None})

    def make(self, path: Path, records: base.Records) -> int:
        """Make a new store at an empty file, with these rows alone; return how many."""
        others = stored.columns_of(cast("Iterable[stored.Record]", records))
        with closing(database.connect(path)) as connection, database.sqlite_errors_in_words(path):
            connection.execute(database.CREATE_TABLE)
            for name in others:  # without a type, so that every value stays as it is
                connection.execute(f"ALTER TABLE memory_items ADD COLUMN {stored.quoted(name)}")
            with database.transaction(connection):
                return _Writer(connection).insert(records)

    def without_reads(self) -> str:
        """Return how an agent's own runtime keeps a log of them."""
        return (
            f"{self.name} is an agent's own store, which writes down no reads; give it a log: "
            "SqliteMemoryStore(path, access_log=memlab.AccessLog('reads.log'))"
        )

    def _check_file(self) -> None:
        """Refuse what could not be archived before it is deleted."""
        if self._open is not None or self._where == ":memory:":
            raise UnsafeDeletionError(
                "a store in memory has no file to keep an archive beside: make it with "
                "SqliteMemoryStore(path), then plan"
            )


class _Reader(base.Reader):
    def __init__(
        self,
        connection: sqlite3.Connection,
        retired: RetiredMemories | None = None,
        others: Sequence[sqlite3.Connection] = (),
    ) -> None:
        self._retired = retired or RetiredMemories()
        self._connection = connection
        self._scanning = others or [connection]

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[base.Rows]:
        from memlab.systems.memory_items.scan import add_signals, scan_rows, with_retired

        base.check_asked(columns, self._layout.columns, "memory_items")
        scanned = scan_rows(self._scanning, with_body=with_body)
        found = add_signals(scanned, self._connection, self._layout, columns)
        yield from (with_retired(rows, self._retired) for rows in found) if self._retired else found

    def records(self, keys: Iterable[base.Key]) -> Iterator[tuple[base.Key, bytes]]:
        return stored.records_at(self._connection, self._layout, cast("Iterable[int]", keys))

    def side_effects(self, keys: Iterable[base.Key]) -> tuple[TriggerEffect, ...]:
        self._connection.text_factory = str  # a scan asks for bytes
        # Where no other table is tied to memories, nobody asks which are meant.
        tied = cast("Iterable[int]", keys) if selection.ties(self._connection) else ()
        stored.fill_positions(self._connection, "wanted", tied)
        return selection.check_deletion(self._connection, _WANTED)

    @cached_property
    def _layout(self) -> stored.Layout:
        return stored.layout_of(self._connection)


class _Writer(_Reader, base.Writer):
    likely_cause = "a trigger on memory_items in the store"

    def __init__(
        self, connection: sqlite3.Connection, protected: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(connection)
        self._protected = protected
        self._replaces = False

    def replace(self, expected: Mapping[base.Key, str], records: base.Records) -> None:
        self._replaces = True
        super().replace(expected, records)
        self._replaces = False

    def _delete(self, expected: Mapping[base.Key, str]) -> None:
        load_bearing = classify_rows(self._connection, self._protected)
        stored.fill_positions(self._connection, "wanted", cast("Iterable[int]", expected))
        if self._replaces:
            load_bearing -= count_load_bearing(self._connection, _WANTED)
        delete_rows(self._connection, _WANTED, load_bearing)

    def identity_sample(self, leaving: Iterable[base.Key]) -> list[SampleRow]:
        stored.fill_positions(self._connection, "wanted", cast("Iterable[int]", leaving))
        return identity_sample_of(self._connection, _WANTED)

    def conflicts(self, records: base.Records) -> list[str]:
        elsewhere = "SELECT 1 FROM main.memory_items WHERE memory_id = ? AND rowid <> ?"
        taken = []
        for some in stored.batched(records):
            named = ((position, json.loads(record).get("memory_id")) for position, record in some)
            ids = [(name, position) for position, name in named if isinstance(name, str)]
            marks = ", ".join("?" * len(ids))
            any_of_them = f"SELECT 1 FROM main.memory_items WHERE memory_id IN ({marks})"
            if self._connection.execute(any_of_them, [name for name, _ in ids]).fetchone():
                taken += [
                    f"id {memory_id!r}"
                    for memory_id, position in ids
                    if self._connection.execute(elsewhere, (memory_id, position)).fetchone()
                ]
        return taken

    def _insert(self, records: base.Records) -> int:
        selection.check_insertion(self._connection)
        known = cast("Iterable[stored.Record]", records)
        positions = cast("Iterable[int]", base.keys_of(records))
        stored.fill_positions(self._connection, "wanted", positions)
        self._unchanged = stored.fingerprint_under_triggers(self._connection, f"NOT ({_WANTED})")
        return stored.insert_records(self._connection, self._layout, known)

    def _check_inserted(self, records: base.Records, wanted: int) -> None:
        super()._check_inserted(records, wanted)
        if self._unchanged != stored.fingerprint_under_triggers(
            self._connection, f"NOT ({_WANTED})"
        ):
            raise ArchiveError(
                "other memories would have changed; all was rolled back: look for a trigger on "
                "memory_items, or restore into a new file"
            )

    def is_back(self, there: bytes, record: bytes) -> bool:
        return stored.is_as_archived(there, record, self._layout)

    def supersede(
        self,
        links: base.Links,
        kept: Mapping[base.Key, str] | None = None,  # noqa: ARG002 - of an index
        *,
        planned: Mapping[base.Key, str] | None = None,  # noqa: ARG002 - of an index
    ) -> int:
        connection = self._connection
        others = f"NOT ({_WANTED})"
        selection.check_supersession(connection)
        positions = cast("Iterable[int]", links)
        stored.fill_positions(connection, "wanted", positions)
        unchanged = self._count(), stored.fingerprint_under_triggers(connection, others)
        before = {at: _said_by(record) for at, record in self.records(links)}
        connection.executemany(
            "UPDATE main.memory_items SET superseded_by = ? WHERE rowid = ?",
            [(by, position) for position, by in links.items()],
        )
        wanted = {at: row | {"superseded_by": links[at]} for at, row in before.items()}
        after = {at: _said_by(record) for at, record in self.records(links)}
        left = self._count(), stored.fingerprint_under_triggers(connection, others)
        if len(before) != len(links) or after != wanted or left != unchanged:
            raise CompactionError(
                f"superseding {len(links):,} memories would have changed more than that; all was "
                "rolled back: look for a trigger on memory_items in the store"
            )
        return len(links)

    def _count(self) -> int:
        (count,) = self._connection.execute("SELECT count(*) FROM main.memory_items").fetchone()
        return int(count)


def _said_by(record: bytes) -> dict[str, object]:
    """Return the fields of a row, with what stands for it whether that is NULL or not."""
    return {"superseded_by": None, **json.loads(record)}
