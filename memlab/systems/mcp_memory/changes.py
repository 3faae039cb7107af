"""Deleting mcp-memory-service's memories as its own delete does, and undoing it.

A deletion takes the vector and the edges on both sides and sets ``deleted_at``; the row itself
stays until the service purges it, for its text search counts on that. An undo clears ``deleted_at``
and puts vector and edges back; a row that the service has purged since is inserted as it was.
"""

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from memlab.errors import ArchiveError, CompactionError, StoreError, UnsafeDeletionError
from memlab.lazy import install_command
from memlab.sources.base import Key, Writer
from memlab.store.database import check_encoding, error_in_words, store_file, transaction
from memlab.store.records import bound_value, quoted
from memlab.systems.mcp_memory.reader import (
    DELETED_AT,
    EDGES,
    GRAPH,
    KNOWN_SCHEMA,
    TABLE,
    VECTOR,
    VECTORS,
    MemoryReader,
)

BACKEND: Final = "MCP_MEMORY_STORAGE_BACKEND"

_NOW: Final = "(julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970, as the service writes them."""
_SYNCING: Final = ("sync_events", "sync_cursor", "push_cursor")
_OWN_TRIGGERS: Final = frozenset({"memories_fts_ai", "memories_fts_au", "memories_fts_ad"})
_WAIT: Final = 30.0
_FLOATS: Final = re.compile(r"content_embedding\s+float\[\d+\]", re.IGNORECASE)
_PARTITION: Final = re.compile(r"\bstore\s+text\s+partition\s+key", re.IGNORECASE)


@contextmanager
def opened_for_change(path: Path) -> Iterator["MemoryWriter"]:
    """Open a database for one transaction.

    Its driver may be another SQLite than the standard library's: that one never has this file open
    meanwhile, for closing it would drop this transaction's locks.
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
                check_encoding(connection, path)
                writer = MemoryWriter(connection, path)
                writer.check_safe(path)
                yield writer


class MemoryWriter(MemoryReader, Writer):
    """Changes memories in one transaction."""

    suspect = f"a trigger on {TABLE}"

    def check_safe(self, name: Path) -> None:
        """Check that a deletion would do no more than the service's own."""
        for table in _SYNCING:
            if table in self.tables and self._one(f"SELECT count(*) FROM {table}"):
                raise UnsafeDeletionError(
                    f"{name} is kept in step with other machines ({table} holds rows), and each "
                    "deletion must be told to them; nothing was changed: delete with the service's "
                    "own tools",
                    instead="the service's delete_memory",
                )
        if (version := self.schema() or 0) > KNOWN_SCHEMA:
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
        triggers = self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN (?, ?)",
            (TABLE, GRAPH),
        )
        if foreign := sorted({name for (name,) in triggers} - _OWN_TRIGGERS):
            raise UnsafeDeletionError(
                f"a deletion in {name} would set off {', '.join(foreign)}, and nobody knows what "
                "that does; nothing was changed: drop it while memlab works",
                instead=f"DROP TRIGGER {foreign[0]}",
            )
        self._partition = _partition_of(self.connection)

    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete memories as the service does."""
        all_rows = f"SELECT count(*) FROM {TABLE}"  # with those deleted
        rows = self._one(all_rows)
        for key, record in dict(self.records(expected)).items():
            content_hash = str(json.loads(record)["content_hash"])
            if self._partition is not None:
                self.connection.execute(f"DELETE FROM {VECTORS} WHERE rowid = ?", (key,))
            if GRAPH in self.tables:
                at_an_end = "source_hash = ?1 OR target_hash = ?1"
                self.connection.execute(f"DELETE FROM {GRAPH} WHERE {at_an_end}", (content_hash,))
            self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = {_NOW} WHERE id = ? AND {self.live}", (key,)
            )
        if rows != self._one(all_rows):
            raise CompactionError(
                f"rows of {TABLE} would have gone; all was rolled back: look for {self.suspect}"
            )

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

    def _insert(self, records: Iterable[tuple[Key, bytes]]) -> int:
        """Put memories back with their vectors and edges."""
        count = 0
        for key, record in records:
            self._put_back(key, json.loads(record))
            count += 1
        return count

    def _is_back(self, there: bytes, record: bytes) -> bool:
        """Whether a memory is as it was; edges an earlier undo of the other side made are more."""
        if there == record:
            return True
        now, then = json.loads(there), json.loads(record)
        edges, wanted = now.pop(EDGES, []), then.pop(EDGES, [])
        return bool(now == then) and all(edge in edges for edge in wanted)

    def _put_back(self, key: Key, record: dict[str, Any]) -> None:
        vector, edges = record.pop(VECTOR, None), record.pop(EDGES, [])
        store = (vector or {}).get("store", "default")
        if self._rows_like(key, record["content_hash"]):
            self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = NULL WHERE id = ? AND content_hash = ?",
                (key, record["content_hash"]),
            )
        else:
            self._add(TABLE, record)
        if vector is not None:
            if self._partition is None:
                raise ArchiveError(
                    f"the database keeps no vectors any more, and memory {key} had one; nothing "
                    "was restored: let the service make its tables first"
                )
            row = {"rowid": key, "content_embedding": {"blob": vector["data"]}}
            self._add(VECTORS, row | ({"store": store} if self._partition else {}))
        for edge in edges:
            self._add(GRAPH, edge, or_ignore=True)

    def _add(self, table: str, row: dict[str, Any], *, or_ignore: bool = False) -> None:
        bound = [bound_value(value) for value in row.values()]
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

    def _count(self) -> int:
        return int(self._one(f"SELECT count(*) FROM {TABLE} WHERE {self.live}"))


def driver() -> Any:
    """Return the module whose connections can load extensions: the standard one, or pysqlite3."""
    install = install_command("mcp-memory")
    if find_spec("sqlite_vec") is None:
        raise UnsafeDeletionError(
            "deleting here takes a vector along, which only sqlite-vec can; nothing was changed: "
            f"{install}, then run the same command",
            instead=install,
        )
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    if find_spec("pysqlite3") is not None:
        return import_module("pysqlite3")
    raise UnsafeDeletionError(
        "the sqlite3 of this Python cannot load extensions, and deleting here takes sqlite-vec; "
        f"nothing was changed: {install}, or run memlab with the Python that the service runs with",
        instead=install,
    )


def load_extension(connection: Any) -> None:
    """Give a connection of :func:`driver` the table type ``vec0``."""
    connection.enable_load_extension(True)  # noqa: FBT003 - SQLite's own signature
    try:
        import_module("sqlite_vec").load(connection)
    finally:
        connection.enable_load_extension(False)  # noqa: FBT003 - SQLite's own signature


def _partition_of(connection: sqlite3.Connection) -> bool | None:
    """Return whether vectors are kept by store; None where the database keeps none."""
    found = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE name = ?", (VECTORS,)
    ).fetchone()
    if found is None:
        return None
    if not _FLOATS.search(found[0]):
        raise StoreError(f"{VECTORS} keeps other vectors than memlab knows; nothing was changed")
    return bool(_PARTITION.search(found[0]))


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
        if not hasattr(error, "sqlite_errorname"):  # pysqlite3 says the code in its text alone
            words = {"locked": "BUSY", "readonly": "READONLY", "read-only": "READONLY"}
            error.sqlite_errorname = next((c for w, c in words.items() if w in str(error)), "")
        raise error_in_words(error, path) from error
