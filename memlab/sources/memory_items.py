"""The store of an agent that writes ``memory_items``: one SQLite file."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import ClassVar, Final, cast

from memlab.errors import (
    ArchiveError,
    CompactionError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources.abilities import Superseder
from memlab.sources.base import (
    DELETED,
    INSERTED,
    Facts,
    Key,
    Reader,
    Rows,
    Watch,
    Writer,
    unwatched,
)
from memlab.store import SqliteMemoryStore
from memlab.store.archive_entries import Witness
from memlab.store.archive_place import archive_path
from memlab.store.database import (
    CREATE_TABLE,
    check_table,
    connect,
    path_named,
    roomy_cache,
    sqlite_errors_in_words,
    store_file,
    transaction,
)
from memlab.store.identity import witnesses_in
from memlab.store.insertion import insert_records
from memlab.store.looking import one_look
from memlab.store.other_tables import (
    Written,
    check_deletion,
    check_insertion,
    check_supersession,
    is_tied,
)
from memlab.store.prints import prints_at
from memlab.store.records import (
    Layout,
    Record,
    columns_of,
    fill_positions,
    is_as_archived,
    layout_of,
    print_under_triggers,
    quoted,
    records_at,
    without_signals,
)
from memlab.store.selection import classify_rows, delete_rows

_WANTED: Final = "rowid IN (SELECT position FROM temp.wanted)"


class MemoryItems:
    """A store in one SQLite file, written by an agent or by :class:`memlab.SqliteMemoryStore`.

    Parameters
    ----------
    where : str, Path or SqliteMemoryStore
        The file, a ``file:`` URI, or an open store, of which only what is committed is seen.
    """

    scheme: ClassVar[str] = "file"
    atomic: ClassVar[bool] = True
    recall_log: ClassVar[str | None] = None
    protected: frozenset[str] = frozenset()

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
        return ":memory:" if self._open is not None else str(self.like)

    @property
    def path(self) -> Path:
        """The file, with links followed.

        Raises
        ------
        StoreError
            When there is none.
        """
        return store_file(self._where).resolve()

    @property
    def like(self) -> Path:
        """The file whose owner and permissions the archive gets, there or not."""
        return path_named(self._where).resolve()

    @property
    def archive(self) -> Path:
        """The archive beside the file, there or not.

        Raises
        ------
        UnsafeDeletionError
            When the store is in memory.
        """
        self._check_file()
        return archive_path(path_named(self._where))

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the store at one consistent moment, leaving no trace."""
        from memlab.sources.scan import snapshot

        if self._open is not None:
            with closing(connect(":memory:")) as copy:
                self._open.connection.backup(copy)
                yield _Reader([copy])
            return
        path = store_file(self._where)
        with one_look(path) as uri, snapshot(uri, size=path.stat().st_size) as connections:
            check_table(connections[0], path)
            yield _Reader(connections)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the store for one transaction, whose commit reaches the disk."""
        with self.superseding() as writer:
            yield writer

    @contextmanager
    def superseding(self) -> Iterator[Superseder]:
        """Open the store for one transaction, whose commit reaches the disk."""
        self._check_file()
        with opened_for_change(self.path) as connection, transaction(connection):
            # Of a file that may only be read SQLite makes no word until something is written.
            connection.execute("DELETE FROM main.memory_items WHERE rowid IS NULL")
            yield _Writer(connection, self.protected)

    def superseded_by(self, record: bytes) -> str | None:
        """Return the id of the row that stands for a record's."""
        found = json.loads(record).get("superseded_by")
        return found if isinstance(found, str) else None

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived rows as they were loaded while they were in the store."""
        from memlab.sources.archived import rows_of_records

        return rows_of_records(cast("Iterable[Record]", records), with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind, tags and title."""
        row = json.loads(record)
        memory_id, kind, tags, title = map(row.get, ("memory_id", "kind", "tags_json", "title"))
        return Facts(
            memory_id if isinstance(memory_id, str) else None,
            kind if isinstance(kind, str) else "",
            tags if isinstance(tags, str) else "",
            title if isinstance(title, str) else None,
        )

    def lasting(self, record: bytes) -> bytes:
        """Return a record without its signals."""
        return without_signals(record)

    def make(self, path: Path, records: Iterable[tuple[Key, bytes]]) -> int:
        """Make a new store at an empty file, with these rows alone; return how many."""
        others, encoding = columns_of(cast("Iterable[Record]", records))
        with closing(connect(path)) as connection, sqlite_errors_in_words(path):
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            connection.execute(CREATE_TABLE)
            for name in others:  # without a type, so that every value stays as it is
                connection.execute(f"ALTER TABLE memory_items ADD COLUMN {quoted(name)}")
            with transaction(connection):
                return _Writer(connection).insert(records)

    def cap_setting(self, keep: int) -> str | None:
        """Return the call by which an agent's runtime keeps to a cap."""
        return f"compact_episodic(keep_recent={keep})"

    def _check_file(self) -> None:
        """Refuse what could not be archived before it is deleted."""
        if self._open is not None or self._where == ":memory:":
            raise UnsafeDeletionError(
                "a store in memory has no file to keep an archive beside: make it with "
                "SqliteMemoryStore(path), then plan",
                instead="SqliteMemoryStore(path)",
            )


@contextmanager
def opened_for_change(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store whose every commit reaches the disk."""
    with closing(connect(path)) as connection, sqlite_errors_in_words(path):
        check_table(connection, path)
        # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
        connection.execute("PRAGMA synchronous = EXTRA")
        with roomy_cache(connection):
            yield connection


class _Reader:
    """Rows over connections that see one moment; the first is free while the others scan."""

    def __init__(self, connections: Sequence[sqlite3.Connection]) -> None:
        self._first = connections[0]
        self._scanning = connections[1:] or connections
        self._known: Layout | None = None

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        from memlab.sources.beside import with_beside
        from memlab.sources.scan import scan_rows

        if unknown := [name for name in columns if name not in self._layout.columns]:
            raise StoreError(
                f"memory_items has no column {', '.join(unknown)}; it has "
                f"{', '.join(self._layout.columns)}"
            )
        scanned = scan_rows(self._scanning, with_body=with_body)
        yield from with_beside(scanned, self._first, self._layout, columns)

    def printed(self, *, with_body: bool) -> Iterator[Rows]:
        from memlab.sources.column_prints import can_be_printed
        from memlab.sources.scan import scan_rows

        if not can_be_printed(self._layout):
            return self.batches(with_body=with_body)
        return scan_rows(self._scanning, with_body=with_body, printed=self._layout)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        return records_at(self._first, self._layout, cast("Iterable[int]", keys))

    def prints(self, keys: Iterable[Key], *, lasting: bool = False) -> Iterator[tuple[Key, str]]:
        layout = self._layout._replace(signals=()) if lasting else self._layout
        return prints_at(self._first, layout, cast("Iterable[int]", keys))

    def written_with(self, keys: Iterable[Key]) -> tuple[Written, ...]:
        self._first.text_factory = str  # a scan asks for bytes
        # Where no other table is tied to memories, nobody asks which are meant.
        tied = cast("Iterable[int]", keys) if is_tied(self._first) else ()
        fill_positions(self._first, "wanted", tied)
        return check_deletion(self._first, _WANTED)

    @property
    def _layout(self) -> Layout:
        if self._known is None:
            self._known = layout_of(self._first)
        return self._known


class _Writer(_Reader):
    """One transaction that holds the store's write lock."""

    def __init__(
        self, connection: sqlite3.Connection, protected: frozenset[str] = frozenset()
    ) -> None:
        super().__init__([connection])
        self._protected = protected

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        connection = self._first
        self._check_still(cast("Mapping[int, str]", expected))
        load_bearing = classify_rows(connection, self._protected)
        fill_positions(connection, "wanted", cast("Iterable[int]", expected))
        rows = self._count()
        deleted = delete_rows(connection, _WANTED, load_bearing, signals=self._layout.signals)
        watch(DELETED)
        gone = rows - self._count()
        if not deleted == gone == len(expected):
            raise CompactionError(
                f"{len(expected):,} memories were to go and {gone:,} would have gone; all was "
                "rolled back: look for a trigger on memory_items in the store"
            )
        return deleted

    def witnesses(self, leaving: Iterable[Key]) -> list[Witness]:
        fill_positions(self._first, "wanted", cast("Iterable[int]", leaving))
        return witnesses_in(self._first, _WANTED)

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        taken = []
        for position, record in records:
            memory_id = json.loads(record).get("memory_id")
            found = (
                isinstance(memory_id, str)
                and self._first.execute(
                    "SELECT 1 FROM main.memory_items WHERE memory_id = ? AND rowid <> ?",
                    (memory_id, position),
                ).fetchone()
            )
            if found:
                taken.append(f"id {memory_id!r}")
        return taken

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        connection, others = self._first, f"NOT ({_WANTED})"
        check_insertion(connection)
        known = cast("Iterable[Record]", records)
        fill_positions(connection, "wanted", (position for position, _ in known))
        rows, unchanged = self._count(), print_under_triggers(connection, others)
        count = insert_records(connection, self._layout, known)
        watch(INSERTED)
        back = records_at(connection, self._layout, (position for position, _ in known))
        exact = all(
            place == position and is_as_archived(there, record, self._layout)
            for (position, record), (place, there) in zip(known, back, strict=True)
        )
        if (
            not exact
            or self._count() != rows + count
            or unchanged != print_under_triggers(connection, others)
        ):
            raise ArchiveError(
                "the memories would not have come back as they were, or others would have changed; "
                "all was rolled back: look for a trigger on memory_items, or restore into a new "
                "file"
            )
        return count

    def supersede(self, links: Mapping[Key, str | None]) -> int:
        connection, others = self._first, f"NOT ({_WANTED})"
        check_supersession(connection)
        positions = cast("Iterable[int]", links)
        fill_positions(connection, "wanted", positions)
        rows, unchanged = self._count(), print_under_triggers(connection, others)
        before = {position: _said_of(record) for position, record in self.records(links)}
        connection.executemany(
            "UPDATE main.memory_items SET superseded_by = ? WHERE rowid = ?",
            [(by, position) for position, by in links.items()],
        )
        after = {position: _said_of(record) for position, record in self.records(links)}
        wanted = {
            position: before[position] | {"superseded_by": links[position]} for position in before
        }
        if (
            after != wanted
            or len(after) != len(links)
            or rows != self._count()
            or unchanged != print_under_triggers(connection, others)
        ):
            raise CompactionError(
                f"superseding {len(links):,} memories would have changed more than that; all was "
                "rolled back: look for a trigger on memory_items in the store"
            )
        return len(links)

    def _count(self) -> int:
        (count,) = self._first.execute("SELECT count(*) FROM main.memory_items").fetchone()
        return int(count)

    def _check_still(self, expected: Mapping[int, str]) -> None:
        same = {key for key, found in self.prints(expected) if found == expected[cast("int", key)]}
        stale = [position for position in expected if position not in same]
        if stale:
            raise StalePlanError(
                f"{len(stale):,} memories are gone or changed since they were looked at, at "
                f"position {stale[0]} first; nothing was deleted: make a new plan"
            )


def _said_of(record: bytes) -> dict[str, object]:
    """Return a record's fields, with what stands for its row whether that is NULL or not."""
    return {"superseded_by": None, **json.loads(record)}
