"""Deleting mcp-memory-service's memories as its own delete does, and undoing it.

A deletion takes the vector and the edges on both sides and sets ``deleted_at``; the row itself
stays until the service purges it, for its text search counts on that. An undo clears ``deleted_at``
and puts vector and edges back; a row that the service has purged since is inserted as it was.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from memlab.errors import (
    ArchiveError,
    CompactionError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources.base import DELETED, INSERTED, Key, Watch, unwatched
from memlab.sources.mcp_memory_reader import (
    DELETED_AT,
    GRAPH,
    KNOWN_SCHEMA,
    NEEDED,
    TABLE,
    MemoryReader,
)
from memlab.sources.mcp_memory_rows import EDGES, VECTOR
from memlab.sources.mcp_memory_vectors import (
    TABLE as VECTORS,
)
from memlab.sources.mcp_memory_vectors import (
    driver,
    has_partition,
    insert_vector,
    load_extension,
)
from memlab.sources.sqlite_rows import check_columns
from memlab.store.database import error_in_words, store_file, transaction
from memlab.store.insertion import bound_value
from memlab.store.records import fingerprint_of, quoted

BACKEND: Final = "MCP_MEMORY_STORAGE_BACKEND"

_NOW: Final = "(julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970, as the service writes them."""
_SYNCING: Final = ("sync_events", "sync_cursor", "push_cursor")
_OWN_TRIGGERS: Final = frozenset({"memories_fts_ai", "memories_fts_au", "memories_fts_ad"})
_WAIT: Final = 30.0


@contextmanager
def opened_for_change(path: Path) -> Iterator["MemoryWriter"]:
    """Open a database for one transaction.

    Its driver may be another SQLite than the standard library's: that one never has this file open
    meanwhile, for closing it would drop this transaction's locks.

    Raises
    ------
    UnsafeDeletionError
        Where a deletion would do more than is known of it, or could not take the vector along.
    StoreError
        When the database cannot be written.
    """
    _check_backend(path)
    module = driver()
    file = store_file(path).resolve()
    with _errors_in_words(module, path):
        opened = module.connect(str(file), timeout=_WAIT, isolation_level=None)
        with closing(opened) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            load_extension(connection)
            connection.execute("PRAGMA synchronous = EXTRA")
            with transaction(connection):
                check_columns(connection, NEEDED, str(path), "mcp-memory-service")
                writer = MemoryWriter(connection)
                writer.check_safe(str(path))
                yield writer


class MemoryWriter(MemoryReader):
    """Changes memories in one transaction."""

    def check_safe(self, name: str) -> None:
        """Check that a deletion would do no more than the service's own.

        Raises
        ------
        UnsafeDeletionError
            When it would, or less.
        """
        for table in _SYNCING:
            if table in self.tables and self._one(f"SELECT count(*) FROM {table}"):
                raise UnsafeDeletionError(
                    f"{name} is kept in step with other machines ({table} holds rows), and each "
                    "deletion must be told to them; nothing was changed: delete with the service's "
                    "own tools",
                    instead="the service's delete_memory",
                )
        version = self.schema()
        if version is not None and version > KNOWN_SCHEMA:
            raise UnsafeDeletionError(
                f"{name} is of schema {version} and memlab knows {KNOWN_SCHEMA}: it reads what it "
                "knows and deletes nothing; use a newer memlab, or the service's own tools",
                instead="the service's delete_memory",
            )
        if DELETED_AT not in self.columns:
            raise UnsafeDeletionError(
                f"{name} is of a version without {DELETED_AT}, whose deletions cannot be taken "
                "back; nothing was changed: let a newer mcp-memory-service open it once",
                instead="a newer mcp-memory-service",
            )
        if foreign := self._foreign_triggers():
            raise UnsafeDeletionError(
                f"a deletion in {name} would set off {', '.join(foreign)}, and nobody knows what "
                "that does; nothing was changed: drop it while memlab works",
                instead=f"DROP TRIGGER {foreign[0]}",
            )
        self._partition = has_partition(self.connection)

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        """Delete memories that are as expected, as the service does."""
        hashes = self._check_still(expected)
        before = self._counts()
        for key, content_hash in hashes.items():
            if self._partition is not None:
                self.connection.execute(f"DELETE FROM {VECTORS} WHERE rowid = ?", (key,))
            if GRAPH in self.tables:
                self.connection.execute(
                    f"DELETE FROM {GRAPH} WHERE source_hash = ? OR target_hash = ?",
                    (content_hash, content_hash),
                )
            self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = {_NOW} WHERE id = ? AND {self.live}", (key,)
            )
        watch(DELETED)
        after = self._counts()
        if before[0] - after[0] != len(expected) or before[1] != after[1]:
            raise CompactionError(
                f"{len(expected):,} memories were to go and {before[0] - after[0]:,} would have "
                f"gone; all was rolled back: look for a trigger on {TABLE}"
            )
        return len(expected)

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        """Say which contents were stored again since, and which ids are another memory's now."""
        taken = []
        for key, record in records:
            content_hash = json.loads(record)["content_hash"]
            for other, found in self._rows_like(key, content_hash):
                if other != key:
                    taken.append(f"the same content, stored again as {other}")
                elif found != content_hash:
                    taken.append(f"another memory under id {key}")
        return taken

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        """Put memories back with their vectors and edges."""
        known = dict(records)
        before = self._counts()
        for key, record in known.items():
            self._put_back(key, json.loads(record))
        watch(INSERTED)
        back = dict(self.records(known))
        wrong = [key for key, record in known.items() if not _is_back(back.get(key), record)]
        if wrong or self._counts()[0] != before[0] + len(known):
            raise ArchiveError(
                f"memory {wrong[0] if wrong else ''} would not have come back as it was; nothing "
                "was restored: the service has changed or purged what belongs to it"
            )
        return len(known)

    def _put_back(self, key: Key, record: dict[str, Any]) -> None:
        vector, edges = record.pop(VECTOR, None), record.pop(EDGES, [])
        if self._rows_like(key, record["content_hash"]):
            self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = NULL WHERE id = ? AND content_hash = ?",
                (key, record["content_hash"]),
            )
        else:
            self._insert(TABLE, record)
        if vector is not None:
            if self._partition is None:
                raise ArchiveError(
                    f"the database keeps no vectors any more, and memory {key} had one; nothing "
                    "was restored: let the service make its tables first"
                )
            insert_vector(self.connection, int(key), vector, partition=self._partition)
        for edge in edges:
            self._insert(GRAPH, edge, or_ignore=True)

    def _insert(self, table: str, row: dict[str, Any], *, or_ignore: bool = False) -> None:
        (encoding,) = self.connection.execute("PRAGMA encoding").fetchone()
        bound = [bound_value(self.connection, value, encoding) for value in row.values()]
        self.connection.execute(
            f"INSERT {'OR IGNORE ' if or_ignore else ''}INTO {table} "
            f"({', '.join(map(quoted, row))}) VALUES ({', '.join(sql for sql, _ in bound)})",
            [value for _, value in bound],
        )

    def _rows_like(self, key: Key, content_hash: str) -> list[tuple[int, str]]:
        found = self.connection.execute(
            f"SELECT id, content_hash FROM {TABLE} WHERE id = ? OR content_hash = ?",
            (key, content_hash),
        )
        return found.fetchall()

    def _counts(self) -> tuple[int, int]:
        """Return how many memories there are, and how many rows with those deleted."""
        return (
            self._one(f"SELECT count(*) FROM {TABLE} WHERE {self.live}"),
            self._one(f"SELECT count(*) FROM {TABLE}"),
        )

    def _check_still(self, expected: Mapping[Key, str]) -> dict[Key, str]:
        """Return the content's hash of each memory, all of which are as expected."""
        found = dict(self.records(expected))
        stale = [
            key
            for key, wanted in expected.items()
            if key not in found or fingerprint_of(found[key]) != wanted
        ]
        if stale:
            raise StalePlanError(
                f"{len(stale):,} memories are gone or changed since they were looked at, id "
                f"{stale[0]} first; nothing was deleted: make a new plan"
            )
        return {key: str(json.loads(record)["content_hash"]) for key, record in found.items()}

    def _foreign_triggers(self) -> list[str]:
        found = self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN (?, ?)",
            (TABLE, GRAPH),
        )
        return sorted(name for (name,) in found if name not in _OWN_TRIGGERS)


def _is_back(there: bytes | None, archived: bytes) -> bool:
    """Whether a memory is as it was; edges that an earlier undo of the other side made are more."""
    if there is None or there == archived:
        return there is not None
    now, then = json.loads(there), json.loads(archived)
    edges, wanted = now.pop(EDGES, []), then.pop(EDGES, [])
    return bool(now == then) and all(edge in edges for edge in wanted)


def _check_backend(path: Path) -> None:
    """Refuse where the service writes to Cloudflare as well, as far as the environment says so."""
    backend = os.environ.get(BACKEND, "").strip().lower()
    if backend in ("hybrid", "cloudflare"):
        raise UnsafeDeletionError(
            f"{BACKEND} is {backend}: the service keeps {path} in step with Cloudflare, which "
            "would bring back what is deleted here, or lose what is restored; nothing was changed: "
            "delete with the service's own tools",
            instead="the service's delete_memory",
        )


@contextmanager
def _errors_in_words(module: Any, path: Path) -> Iterator[None]:
    """Raise the errors of either SQLite in words."""
    try:
        yield
    except module.ProgrammingError:
        raise
    except module.Error as error:
        raise _as_store_error(error, path) from error


def _as_store_error(error: Exception, path: Path) -> Exception:
    """Return the error in words; pysqlite3 says the code in its text alone."""
    if isinstance(error, sqlite3.Error):
        return error_in_words(error, path)
    if "locked" in str(error):
        return StoreError(
            f"{path} is locked by another process; try again when that process is done"
        )
    if "readonly" in str(error) or "read-only" in str(error):
        return StoreError(
            f"{path} cannot be written; check the permissions of the file and its folder"
        )
    return StoreError(f"{path} cannot be used as a store: SQLite says {error}")
