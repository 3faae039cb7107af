"""The archive beside a store: every row that a plan took out, as it was.

``<store>.archive.db`` is an ordinary SQLite file with the permissions of its store. The view
``archived_rows`` shows each copy with the digest of the plan that took it out, when, why, from
which position, and all columns of ``memory_items``; the table ``applies`` holds the plans.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from memlab.compaction.plans import Plan
from memlab.errors import ArchiveError, PlanError, StoreError, UnfilledArchiveError
from memlab.items import shortened
from memlab.store.database import (
    COLUMNS,
    connect_reading,
    error_in_words,
    exact,
    read_store,
    transaction,
)
from memlab.store.rows import Value, as_bytes, as_json, fingerprint_of, signal_columns

Result = TypeVar("Result")

FORMAT: Final = 1
"""``PRAGMA user_version`` of an archive."""

_COLUMNS: Final = ", ".join(COLUMNS)
_CREATE: Final = (
    """
    CREATE TABLE applies (
        apply INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
        made_at TEXT NOT NULL, rows INTEGER NOT NULL, archived_at TEXT NOT NULL, finished_at TEXT,
        plan_json_zlib BLOB NOT NULL
    )""",
    f"""
    CREATE TABLE archived (
        apply INTEGER NOT NULL REFERENCES applies (apply), position INTEGER NOT NULL,
        reason TEXT NOT NULL, fingerprint TEXT NOT NULL, signals TEXT, restored_at TEXT,
        {_COLUMNS}, PRIMARY KEY (apply, position)
    )""",
    f"""
    CREATE VIEW archived_rows AS
    SELECT digest, archived_at, finished_at, restored_at, reason, position, {_COLUMNS}, signals
    FROM archived JOIN applies USING (apply) ORDER BY apply, position""",
    f"PRAGMA user_version = {FORMAT}",
)


class Entry(NamedTuple):
    """One applied plan in an archive.

    Attributes
    ----------
    apply : int
        Its key in the archive's tables.
    digest : str
        The plan's.
    rows : int
        How many rows were archived.
    archived_at : datetime
        When the copies were made.
    finished_at : datetime or None
        When the deletion was recorded as done; None when it was cut short.
    left : int
        How many of the copies are still in the archive.
    restored : int
        How many of these have been put back.
    """

    apply: int
    digest: str
    rows: int
    archived_at: datetime
    finished_at: datetime | None
    left: int
    restored: int


class Copy(NamedTuple):
    """An archived row, without its columns."""

    position: int
    memory_id: bytes | None
    fingerprint: str
    restored_at: str | None

    def is_id(self, value: Value) -> bool:
        """Whether a value read exactly is this row's id."""
        return as_bytes(value) == self.memory_id


def archive_path(store: Path) -> Path:
    """Return where the rows taken out of `store` are kept.

    Examples
    --------
    >>> archive_path(Path("/srv/memory.db")).name
    'memory.db.archive.db'
    """
    resolved = store.resolve()
    return resolved.with_name(f"{resolved.name}.archive.db")


class Archive:
    """An open archive. Get one from :func:`open_archive` or :func:`read_archive`.

    Parameters
    ----------
    connection : sqlite3.Connection
        To an archive of this format.
    store : Path
        The store beside which it lies.
    """

    def __init__(self, connection: sqlite3.Connection, store: Path) -> None:
        self.connection: Final = connection
        self.store: Final = store
        self.path: Final = archive_path(store)

    def entries(self) -> list[Entry]:
        """Return every applied plan, oldest first."""
        with archive_errors(self.path):
            found = self.connection.execute(
                "SELECT apply, digest, rows, archived_at, finished_at, count(position), "
                "count(restored_at) FROM applies LEFT JOIN archived USING (apply) GROUP BY apply"
            ).fetchall()
        try:
            return [
                Entry(apply, digest, rows, _moment(at), finished and _moment(finished), left, back)
                for apply, digest, rows, at, finished, left, back in found
            ]
        except (TypeError, ValueError) as error:
            raise ArchiveError(
                f"the table applies in {self.path} was changed by hand ({error}); restore a backup"
            ) from error

    def entry(self, digest: str) -> Entry:
        """Return the applied plan whose digest begins with `digest`.

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
            raise ArchiveError(
                f"no plan {name} in {self.path}; memlab archive {self.store} lists them"
            )
        names = ", ".join(entry.digest[:16] for entry in found)
        raise ArchiveError(
            f"{shortened(digest)} names several plans in {self.path}: {names}; write more"
        )

    def plan_of(self, entry: Entry) -> Plan:
        """Return the plan that an entry carried out."""
        with archive_errors(self.path):
            (packed,) = self.connection.execute(
                "SELECT plan_json_zlib FROM applies WHERE apply = ?", (entry.apply,)
            ).fetchone()
        try:
            return Plan.from_json(zlib.decompress(packed))
        except (zlib.error, TypeError, PlanError) as error:
            raise ArchiveError(
                f"plan {entry.digest[:12]} in {self.path} cannot be read: {error}; its rows can be "
                "restored all the same"
            ) from error

    def copies(self, entry: Entry) -> list[Copy]:
        """Return an entry's archived rows in order of position."""
        with archive_errors(self.path):
            found = self.connection.execute(
                "SELECT position, fingerprint, restored_at FROM archived WHERE apply = ? "
                "ORDER BY position",
                (entry.apply,),
            ).fetchall()
            with exact(self.connection):
                ids = self.connection.execute(
                    "SELECT memory_id FROM archived WHERE apply = ? ORDER BY position",
                    (entry.apply,),
                ).fetchall()
        return [
            Copy(position, as_bytes(memory_id), fingerprint, restored_at)
            for (position, fingerprint, restored_at), (memory_id,) in zip(found, ids, strict=True)
        ]

    @contextmanager
    def copying(self, plan: Plan, packed: bytes, at: datetime) -> Iterator[None]:
        """Copy a plan's rows out of the store, and check every copy; commit after the block.

        The caller holds the store's write lock, so that nobody changes the rows meanwhile. Copies
        that an earlier, unfinished attempt at the same plan left are replaced.

        Parameters
        ----------
        plan : Plan
            Names the rows.
        packed : bytes
            The same plan from :func:`pack`, made before the store was locked.
        at : datetime
            The moment written beside the copies.
        """
        with archive_errors(self.path):
            self.connection.execute(
                "ATTACH ? AS store", (f"{self.store.resolve().as_uri()}?mode=ro",)
            )
            try:
                with transaction(self.connection):
                    self._copy(plan, packed, at)
                    self._check_copies(plan)
                    yield
            finally:
                self.connection.execute("DETACH store")

    def finish(self, digest: str, at: datetime) -> None:
        """Record that the deletion is done, unless that is recorded."""
        with archive_errors(self.path), transaction(self.connection):
            self.connection.execute(
                "UPDATE applies SET finished_at = ? WHERE digest = ? AND finished_at IS NULL",
                (_text(at), digest),
            )

    def forget(self, digest: str) -> None:
        """Drop an entry and its copies. The caller knows that the rows are in the store."""
        with archive_errors(self.path), transaction(self.connection):
            self._forget(digest)

    def mark_restored(self, entry: Entry, positions: Iterable[int], at: datetime) -> None:
        """Record that copies have been put back."""
        with archive_errors(self.path), transaction(self.connection):
            self.connection.executemany(
                "UPDATE archived SET restored_at = ? WHERE apply = ? AND position = ?",
                ((_text(at), entry.apply, position) for position in positions),
            )

    def _copy(self, plan: Plan, packed: bytes, at: datetime) -> None:
        self._forget(plan.digest)
        (apply,) = self.connection.execute(
            "INSERT INTO applies (digest, policy, made_at, rows, archived_at, plan_json_zlib) "
            "VALUES (?, ?, ?, ?, ?, ?) RETURNING apply",
            (
                plan.digest,
                json.dumps(plan.policy),
                _text(plan.made_at),
                len(plan.rows),
                _text(at),
                packed,
            ),
        ).fetchone()
        self.connection.executemany(
            f"INSERT INTO archived (apply, position, reason, fingerprint, {_COLUMNS}) "
            f"SELECT ?, rowid, ?, ?, {_COLUMNS} FROM store.memory_items WHERE rowid = ?",
            ((apply, row.reason, row.fingerprint, row.position) for row in plan.rows),
        )
        if names := signal_columns(self.connection, "store"):
            self._copy_signals(apply, names)

    def _copy_signals(self, apply: int, names: list[str]) -> None:
        with exact(self.connection):
            found = self.connection.execute(
                "SELECT copy.position, side.* FROM main.archived AS copy "
                "JOIN store.memory_signals AS side ON side.memory_id = copy.memory_id "
                "WHERE copy.apply = ?",
                (apply,),
            ).fetchall()
        self.connection.executemany(
            "UPDATE archived SET signals = ? WHERE apply = ? AND position = ?",
            ((as_json(names, values), apply, position) for position, *values in found),
        )

    def _check_copies(self, plan: Plan) -> None:
        with exact(self.connection):
            copies = {
                position: fingerprint_of(values)
                for position, *values in self.connection.execute(
                    f"SELECT position, {_COLUMNS} FROM archived JOIN applies USING (apply) "
                    "WHERE digest = CAST(? AS TEXT)",
                    (plan.digest,),
                )
            }
        if copies != {row.position: row.fingerprint for row in plan.rows}:
            raise ArchiveError(
                f"{self.path} did not keep every row as it is; nothing was deleted: check the disk"
            )

    def _forget(self, digest: str) -> None:
        self.connection.execute(
            "DELETE FROM archived WHERE apply = (SELECT apply FROM applies WHERE digest = ?)",
            (digest,),
        )
        self.connection.execute("DELETE FROM applies WHERE digest = ?", (digest,))


def pack(plan: Plan) -> bytes:
    """Return a plan as an archive keeps it."""
    return zlib.compress(plan.to_json().encode())


@contextmanager
def open_archive(store: Path, *, busy_timeout: float = 30.0) -> Iterator[Archive]:
    """Open the archive of a store for reading and writing.

    Parameters
    ----------
    store : Path
        The store.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.

    Raises
    ------
    ArchiveError
        When there is none, or the file is no archive of this format.
    """
    path = _existing(store)
    with _connected(path, busy_timeout) as connection:
        with archive_errors(path):
            check_archive(connection, path)
        yield Archive(connection, store)


@contextmanager
def create_archive(
    store: Path, connection: sqlite3.Connection, *, busy_timeout: float = 30.0
) -> Iterator[Archive]:
    """Open the archive of a store, making it where there is none.

    Parameters
    ----------
    store : Path
        The store.
    connection : sqlite3.Connection
        Open on the store; says how it encodes text, for SQLite attaches only files that agree.
    busy_timeout : float
        Seconds to wait for another process's transaction to end.

    Raises
    ------
    ArchiveError
        When it cannot be made, or the file is no archive of this format.
    """
    path = archive_path(store)
    _touch_like(path, store)
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    with _connected(path, busy_timeout) as new:
        with archive_errors(path):
            new.execute(f"PRAGMA encoding = '{encoding}'")
            with transaction(new):
                if not new.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    for statement in _CREATE:
                        new.execute(statement)
            check_archive(new, path)
        yield Archive(new, store)


def read_archive(store: Path, read: Callable[[Archive], Result]) -> Result:
    """Return ``read(archive)`` without leaving a trace beside it.

    Parameters
    ----------
    store : Path
        The store.
    read : callable
        May be called more than once.

    Raises
    ------
    ArchiveError
        When there is none, or it cannot be read.
    """

    def read_at(uri: str) -> Result:
        with closing(connect_reading(uri)) as connection:
            return read(Archive(connection, store))

    path = _existing(store)
    try:
        return read_store(path, read_at, check=check_archive)
    except StoreError as error:
        raise ArchiveError(f"archive: {error}") from error


def check_archive(connection: sqlite3.Connection, path: Path) -> None:
    """Check that `connection` holds an archive of this format.

    Raises
    ------
    UnfilledArchiveError
        When it is still empty.
    ArchiveError
        When it does not.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    ).fetchall()
    if version == 0 and not tables:
        raise UnfilledArchiveError(
            f"{path} was begun and never filled: a plan was cut short before it took anything out; "
            "apply it again, or delete that file"
        )
    if version != FORMAT or tables != [("applies",), ("archived",)]:
        raise ArchiveError(
            f"{path} is not an archive of format {FORMAT} (it says {version}); use the memlab that "
            "wrote it, or move the file away"
        )


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's own errors on an archive as an :class:`ArchiveError`."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            raise ArchiveError(
                f"{path} is not an archive, though it has an archive's name; move it away"
            ) from error
        raise ArchiveError(f"archive: {error_in_words(error, path)}") from error
    except UnicodeDecodeError as error:  # SQLite's message quotes what it found
        raise ArchiveError(f"{path} is damaged ({error}); move it away") from error


def _existing(store: Path) -> Path:
    path = archive_path(store)
    if not path.is_file() or path.stat().st_size == 0:
        if not store.is_file():
            raise ArchiveError(f"there is no store {store} and no archive {path}; check the path")
        raise ArchiveError(f"there is no archive {path}: no plan has taken anything out of {store}")
    return path


@contextmanager
def _connected(path: Path, busy_timeout: float) -> Iterator[sqlite3.Connection]:
    with archive_errors(path):
        # A URI, so that a store can be attached for reading alone.
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=busy_timeout, isolation_level=None
        )
    with closing(connection):
        with archive_errors(path):
            # FULL leaves the end of a commit to chance on a power cut, EXTRA does not.
            connection.execute("PRAGMA synchronous = EXTRA")
        yield connection


def _touch_like(path: Path, store: Path) -> None:
    """Make an empty file with the owner and the permissions of `store`, unless there is one."""
    like = store.stat()
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        found = path.stat()
        if (found.st_uid, found.st_gid) != (like.st_uid, like.st_gid):
            with suppress(PermissionError):
                os.chown(path, like.st_uid, like.st_gid)
        if found.st_mode != like.st_mode:
            path.chmod(like.st_mode & 0o7777)
    except OSError as error:
        raise ArchiveError(
            f"the archive {path} cannot be made ({error.strerror}); nothing was deleted: check the "
            "permissions of the folder"
        ) from error


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
