"""The store an agent reads and writes, and the one routine that compacts it.

Standard library only: an agent's runtime that imports this module pays for nothing else.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from memlab.database import (
    COLUMNS,
    CREATE_TABLE,
    check_table,
    connect,
    exact,
    roomy_cache,
    sqlite_errors_in_words,
)
from memlab.errors import BadRowError, CompactionError, StoreError
from memlab.items import (
    REJECTED_PATH_TAG,
    EventId,
    EventRef,
    MemoryItem,
    MemoryKind,
    MemoryProvenance,
    is_load_bearing_stored,
    strings_of,
)
from memlab.rows import fingerprints_under_triggers

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM memory_items"
_UPSERT: Final = (
    f"INSERT INTO memory_items ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (memory_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])
)
# BINARY: a table may declare its columns NOCASE. IN, not EXISTS: a subquery that looks at the row
# would keep SQLite from deleting while it scans.
_PRUNABLE_PAIR: Final = (
    "(kind COLLATE BINARY, tags_json COLLATE BINARY) "
    "IN (SELECT kind, tags_json FROM temp.prunable_pairs)"
)
_NOT_PRUNABLE: Final = f"{_PRUNABLE_PAIR} IS NOT TRUE"
_ACTIVE_PRUNABLE: Final = f"superseded_by IS NULL AND {_PRUNABLE_PAIR}"
_HIGHEST_ROWID: Final = 2**63 - 1
_SMALLEST_DATABASE: Final = 512
"""Bytes: one page of the smallest size."""


class SqliteMemoryStore:
    """An agent's memory in one SQLite file.

    Parameters
    ----------
    path : str or Path
        The file, made with its parent folders when missing, or ``":memory:"``.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.

    Raises
    ------
    StoreError
        When the file is not a store or cannot be opened.

    Examples
    --------
    >>> with SqliteMemoryStore(":memory:") as store:
    ...     provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#1")
    ...     store.put(MemoryItem("m1", MemoryKind.EPISODIC, "shipped", "", provenance))
    ...     store.compact_episodic(keep_recent=0)
    1
    """

    def __init__(self, path: str | Path, *, busy_timeout: float = 30.0) -> None:
        self.path: Final = None if str(path) == ":memory:" else Path(path)
        """The store's file; None for a store in memory."""
        if self.path is not None:
            _prepare(self.path)
        self.connection: Final = connect(path, busy_timeout=busy_timeout)
        """For code that keeps tables of its own in the same file."""
        try:
            with sqlite_errors_in_words(path):
                exists = self.connection.execute(
                    "SELECT 1 FROM sqlite_schema WHERE name = 'memory_items'"
                ).fetchone()
                if exists:
                    check_table(self.connection, path)
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute(CREATE_TABLE)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A closed store cannot be used again."""
        self.connection.close()

    def put(self, item: MemoryItem) -> None:
        """Write `item`; one with the same id is replaced and keeps its place in the order."""
        with self._errors_in_words():
            self.connection.execute(_UPSERT, _row_of(item))

    def get(self, memory_id: str) -> MemoryItem | None:
        """Return the item with this id, superseded or not; None when there is none.

        Raises
        ------
        BadRowError
            When its row cannot be read as an item.
        """
        return next(iter(self._items("WHERE memory_id = ?", memory_id)), None)

    def list_active(self, *, kind: MemoryKind | None = None) -> list[MemoryItem]:
        """Return the items that no other has replaced, in rowid order.

        Raises
        ------
        BadRowError
            When a row cannot be read as an item.
        """
        if kind is None:
            return self._items("WHERE superseded_by IS NULL ORDER BY rowid")
        return self._items("WHERE superseded_by IS NULL AND kind = ? ORDER BY rowid", kind)

    def list_rejected_paths(self) -> list[MemoryItem]:
        """Return the active items tagged ``rejected-path``, in rowid order.

        Raises
        ------
        BadRowError
            When a row cannot be read as an item.
        """
        return [item for item in self.list_active() if REJECTED_PATH_TAG in item.tags]

    def supersede(self, memory_id: str, *, by_memory_id: str) -> None:
        """Mark `memory_id` as replaced by `by_memory_id`.

        Raises
        ------
        KeyError
            Naming the id that is not in the store; nothing is changed.
        ValueError
            When an item would replace itself.
        """
        if memory_id == by_memory_id:
            raise ValueError(f"by_memory_id must be another item than {memory_id!r}")
        with self._errors_in_words(), transaction(self.connection):
            for needed in (memory_id, by_memory_id):
                if not self.connection.execute(
                    "SELECT 1 FROM memory_items WHERE memory_id = ?", (needed,)
                ).fetchone():
                    raise KeyError(needed)
            self.connection.execute(
                "UPDATE memory_items SET superseded_by = ? WHERE memory_id = ?",
                (by_memory_id, memory_id),
            )

    def compact_episodic(self, keep_recent: int) -> int:
        """Delete all active prunable items but the `keep_recent` with the highest rowids.

        Load-bearing and superseded rows are not touched. The deletion is one transaction: either
        all of it is there afterwards, or none. Deleted bytes are overwritten or left in free pages
        as the SQLite build's ``secure_delete`` says.

        Parameters
        ----------
        keep_recent : int
            How many prunable items may stay; 0 or more.

        Returns
        -------
        int
            How many rows were deleted. 0 when there are no more than `keep_recent`; then nothing is
            written.

        Raises
        ------
        ValueError
            When `keep_recent` is negative or not an int.
        BadRowError
            When an active row cannot be classified; nothing is deleted.
        CompactionError
            When a trigger would have cost a load-bearing row, or changed any that stays; nothing is
            deleted.
        """
        if type(keep_recent) is not int or keep_recent < 0:
            raise ValueError(f"keep_recent must be an int of 0 or more, not {keep_recent!r}")
        with (
            self._errors_in_words(),
            roomy_cache(self.connection),
            transaction(self.connection),
        ):
            load_bearing = classify_rows(self.connection)
            surplus = surplus_condition(self.connection, keep_recent)
            deleted = delete_rows(self.connection, surplus, load_bearing) if surplus else 0
            forget_verdicts(self.connection)
        return deleted

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file.

        Parameters
        ----------
        path : Path
            The file to make.

        Raises
        ------
        StoreError
            When it exists or cannot be written.
        """
        if path.exists():
            raise StoreError(f"{path} exists; name a file that does not")
        with sqlite_errors_in_words(path), closing(connect(path)) as copy:
            self.connection.backup(copy)

    def _items(self, where: str, *values: str) -> list[MemoryItem]:
        with self._errors_in_words():
            return [_item_of(row) for row in self.connection.execute(f"{_SELECT} {where}", values)]

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        with sqlite_errors_in_words(self.path or ":memory:"):
            yield


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of the block or none of it.

    ``BEGIN IMMEDIATE`` waits for other writers first; a transaction that reads and then writes
    would fail at once when somebody wrote in between.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def classify_rows(connection: sqlite3.Connection) -> int:
    """Ask the predicate once per distinct kind and tags, and keep the prunable pairs.

    Call it inside a transaction. The pairs stay in ``temp.prunable_pairs`` until
    :func:`forget_verdicts`. Superseded rows that cannot be classified count as load-bearing.

    Returns
    -------
    int
        How many load-bearing rows there are.

    Raises
    ------
    BadRowError
        When an active row cannot be classified.
    """
    forget_verdicts(connection)
    connection.execute(
        "CREATE TEMP TABLE prunable_pairs "
        "(kind, tags_json, PRIMARY KEY (kind, tags_json)) WITHOUT ROWID"
    )
    verdict = cache(is_load_bearing_stored)
    load_bearing = 0
    with exact(connection):
        # Once a pair is known to be prunable, its rows are passed over in SQL.
        for position, kind, tags_json, active in connection.execute(
            f"SELECT rowid, kind, tags_json, superseded_by IS NULL FROM memory_items "
            f"WHERE {_NOT_PRUNABLE} ORDER BY rowid"
        ):
            try:
                pair = _decoded(kind), _decoded(tags_json)
                is_load_bearing = verdict(*pair)
            except ValueError as error:
                if active:
                    raise _unclassifiable(connection, position, error) from error
                is_load_bearing = True
            if is_load_bearing:
                load_bearing += 1
            else:
                connection.execute("INSERT OR IGNORE INTO temp.prunable_pairs VALUES (?, ?)", pair)
    return load_bearing


def surplus_condition(connection: sqlite3.Connection, keep_recent: int) -> str | None:
    """Return, as SQL, which rows are active, prunable and not among the newest `keep_recent`.

    Call it after :func:`classify_rows`, in the same transaction. None when there are no such rows.
    """
    cut = connection.execute(
        f"SELECT rowid FROM memory_items WHERE {_ACTIVE_PRUNABLE} "
        "ORDER BY rowid DESC LIMIT 1 OFFSET ?",
        (min(keep_recent, _HIGHEST_ROWID),),
    ).fetchone()
    return None if cut is None else f"rowid <= {cut[0]} AND {_ACTIVE_PRUNABLE}"


def delete_rows(
    connection: sqlite3.Connection, chosen: str, load_bearing: int, *, beside: str | None = None
) -> int:
    """Delete the `chosen` rows and check that every load-bearing row is still there.

    Where a trigger could touch rows that stay, every one of them is compared with before.

    Parameters
    ----------
    connection : sqlite3.Connection
        In the transaction that classified the rows.
    chosen : str
        A condition in SQL, of this package's own making.
    load_bearing : int
        How many load-bearing rows there were, as :func:`classify_rows` counted.
    beside : str, optional
        A statement on another table to run before, while the rows are there to be looked up.

    Returns
    -------
    int
        How many rows were deleted.

    Raises
    ------
    CompactionError
        When the number of load-bearing rows is another than before, or a row that was to stay is
        not as it was.
    """
    staying = fingerprints_under_triggers(connection, f"({chosen}) IS NOT TRUE")
    if beside is not None:
        connection.execute(beside)
    deleted = connection.execute(f"DELETE FROM memory_items WHERE {chosen}").rowcount
    (left,) = connection.execute(
        f"SELECT count(*) FROM memory_items WHERE {_NOT_PRUNABLE}"
    ).fetchone()
    if left != load_bearing:
        raise CompactionError(
            f"deleting {deleted} rows would have left {left} of {load_bearing} load-bearing rows; "
            "all was rolled back: look for a trigger on memory_items in the store"
        )
    if staying != fingerprints_under_triggers(connection, "TRUE"):
        raise CompactionError(
            f"deleting {deleted} rows would have changed or kept others than were chosen; all was "
            "rolled back: look for a trigger on memory_items in the store"
        )
    return deleted


def forget_verdicts(connection: sqlite3.Connection) -> None:
    """Drop what :func:`classify_rows` found."""
    connection.execute("DROP TABLE IF EXISTS temp.prunable_pairs")


def _prepare(path: Path) -> None:
    """Make the folders that `path` lies in; refuse a file that is there and can be no database.

    SQLite takes a file of a few bytes for an empty database and writes over it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder of {path} cannot be made ({error.strerror}); check the path and its "
            "permissions"
        ) from error
    if path.is_file() and 0 < path.stat().st_size < _SMALLEST_DATABASE:
        raise StoreError(f"{path} is not a SQLite database; name the memory.db of an agent")


def _decoded(value: object) -> str:
    """Return text that was read exactly."""
    if not isinstance(value, bytearray):
        raise ValueError("kind or tags_json is not text")  # noqa: TRY004 - a row at fault, no caller
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError("kind or tags_json is not UTF-8") from error


def _unclassifiable(
    connection: sqlite3.Connection, position: int, error: ValueError
) -> BadRowError:
    """Name the row at `position`, whatever type its id has."""
    found = connection.execute(
        "SELECT CAST(memory_id AS BLOB) FROM memory_items WHERE rowid = ?", (position,)
    ).fetchone()
    # Of a damaged file SQLite may find a row in one way and not in another.
    name = None if found is None or found[0] is None else found[0].decode(errors="replace")
    return BadRowError(
        f"row {position} (memory_id {name!r}) cannot be classified: {error}; nothing was deleted: "
        "mend that row, then compact",
        position=position,
        memory_id=name,
    )


def _row_of(item: MemoryItem) -> tuple[Any, ...]:
    """Return the item's values in the order of :data:`memlab.database.COLUMNS`."""
    provenance = item.provenance
    event = provenance.source_event
    return (
        item.memory_id,
        item.kind.value,
        item.title,
        item.body,
        _json(item.tags),
        event.event_id if event else None,
        event.sequence if event else None,
        provenance.source_task_ref,
        provenance.authored_by,
        provenance.confidence,
        provenance.created_at.astimezone(UTC).isoformat(),
        _json(provenance.supersedes),
        _json(provenance.evidence_refs),
        item.superseded_by,
    )


def _item_of(row: tuple[Any, ...]) -> MemoryItem:
    values = dict(zip(COLUMNS, row, strict=True))
    try:
        return MemoryItem(
            values["memory_id"],
            MemoryKind(values["kind"]),
            values["title"],
            values["body"],
            _provenance_of(values),
            strings_of(values["tags_json"]),
            values["superseded_by"],
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRowError(
            f"memory {values['memory_id']!r} cannot be read: {error}; mend its row",
            memory_id=str(values["memory_id"]),
        ) from error


def _provenance_of(values: dict[str, Any]) -> MemoryProvenance:
    event_id = values["source_event_id"]
    return MemoryProvenance(
        source_event=None
        if event_id is None
        else EventRef(EventId(event_id), values["source_sequence"]),
        authored_by=values["authored_by"],
        source_task_ref=values["source_task_ref"],
        confidence=values["confidence"],
        created_at=datetime.fromisoformat(values["created_at"]),
        supersedes=strings_of(values["supersedes_json"]),
        evidence_refs=strings_of(values["evidence_refs_json"]),
    )


def _json(values: tuple[str, ...]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
