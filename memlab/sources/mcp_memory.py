"""mcp-memory-service: one SQLite file of memories, their vectors and a graph between them.

A memory is a row that its service has not deleted; the vector that finds it and the edges on both
of its sides belong to it. Reading needs the standard library alone: of the vectors the tables that
they are kept in are read, not the virtual one. How they are changed is in
:mod:`memlab.sources.mcp_memory_changes`.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, place_of
from memlab.sources.mcp_memory_facts import ServiceFacts
from memlab.sources.mcp_memory_rows import EDGES, VECTOR, lasting_fields, row_of
from memlab.sources.mcp_memory_vectors import vectors_of
from memlab.sources.sqlite_rows import (
    AT_ONCE,
    check_columns,
    columns_of,
    exact_rows,
    named,
    one_moment,
    tables_in,
)
from memlab.store.archive_place import archive_path
from memlab.store.looking import again_if_changed
from memlab.store.records import encoded

TABLE: Final = "memories"
GRAPH: Final = "memory_graph"
DELETED_AT: Final = "deleted_at"
KNOWN_SCHEMA: Final = 19
"""The newest ``schema_version`` that this adapter was tried on."""

NEEDED: Final = {
    TABLE: ("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at")
}
_READ: Final = (*NEEDED[TABLE], "confidence", "last_accessed", "superseded_by", "store")


class McpMemory:
    """The memories of one database of mcp-memory-service.

    Parameters
    ----------
    where : str or Path
        The file, ``~/.local/share/mcp-memory/sqlite_vec.db`` on Linux, with ``mcp-memory:`` before
        it or not.
    """

    scheme: ClassVar[str] = "mcp-memory"
    atomic: ClassVar[bool] = True
    recall_log: ClassVar[str | None] = "the last ten queries in each memory's own metadata"
    protected: frozenset[str] = frozenset()

    def __init__(self, where: str | PathLike[str]) -> None:
        self.path: Path = named(where, self.scheme, ()).path.absolute()

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The absolute path with its scheme, which says that nothing of it is loaded at start."""
        return f"{self.scheme}:{self.path}"

    @property
    def like(self) -> Path:
        """The file, whose owner and permissions the archive gets."""
        return self.path

    @property
    def archive(self) -> Path:
        """The archive beside the file, there or not."""
        return archive_path(self.path)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the database at one moment, leaving no trace."""
        with one_moment(self.path) as connection:
            check_columns(connection, NEEDED, str(self.path), "mcp-memory-service")
            yield MemoryReader(connection)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the database for one transaction, whose commit reaches the disk."""
        from memlab.sources.mcp_memory_changes import opened_for_change

        with opened_for_change(self.path) as writer:
            yield writer

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as they were read while they were there."""
        from memlab.sources.tables import rows_of_each

        remaining = iter(records)
        while some := list(islice(remaining, AT_ONCE)):
            rows = [row_of(json.loads(record)) for _, record in some]
            yield rows_of_each(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind, tags and title."""
        row = row_of(json.loads(record))
        return Facts(row["memory_id"], row["kind"], row["tags_json"], row["title"])

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a search does not change, nor a neighbour that goes."""
        return encoded(lasting_fields(json.loads(record)))

    def make(
        self,
        path: Path,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> int:
        """Refuse: the service makes its databases itself."""
        raise UnsafeDeletionError(
            f"only mcp-memory-service makes its databases, so nothing was written to {path}: "
            "restore into the database that they came from, or memlab archive STORE --export",
            instead="memlab archive STORE --export memories.jsonl",
        )

    def cap_setting(self, keep: int) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: the service has no cap."""
        return None

    def about(self) -> ServiceFacts:
        """Return what there is to say of the database beside its frame."""

        def look() -> ServiceFacts:
            with one_moment(self.path) as connection:
                check_columns(connection, NEEDED, str(self.path), "mcp-memory-service")
                return MemoryReader(connection).facts()

        return again_if_changed(look)


class MemoryReader:
    """Memories over a connection that sees one moment.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.columns = columns_of(connection, TABLE)
        self.tables = tables_in(connection)
        self.live = f"{DELETED_AT} IS NULL" if DELETED_AT in self.columns else "1"

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the memories in order of time, some at a time."""
        from memlab.sources.tables import rows_of_each

        if unknown := [name for name in columns if name not in self.columns]:
            raise StoreError(
                f"{TABLE} has no column {', '.join(unknown)}; it has {', '.join(self.columns)}"
            )
        known = [name for name in _READ if name in self.columns]
        asked = [*known, *(name for name in columns if name not in known)]
        chosen = ", ".join(f'"{name}"' for name in asked)
        remaining = iter(self._in_order())
        while some := list(islice(remaining, AT_ONCE)):
            marks = ", ".join("?" * len(some))
            rows = self.connection.execute(
                f"SELECT {chosen} FROM {TABLE} WHERE id IN ({marks})", some
            )
            found = {row[0]: dict(zip(asked, row, strict=True)) for row in rows}
            others = {name: [found[key][name] for key in some] for name in columns}
            told = [row_of(found[key]) for key in some]
            yield rows_of_each(told, with_body=with_body, others=others)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield each memory's row with its vector and edges."""
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            found = {
                row["id"]: row
                for row in exact_rows(self.connection, TABLE, "id", some)
                if DELETED_AT not in row
            }
            vectors = vectors_of(self.connection, self.tables, list(found))
            edges = self._edges([str(row["content_hash"]) for row in found.values()])
            for key in some:
                if key in found:
                    yield key, encoded(self._whole(found[key], vectors, edges))

    def facts(self) -> ServiceFacts:
        """Return what is said of the database beside its frame."""

        def count(table: str, condition: str) -> int:
            if table not in self.tables:
                return 0
            return int(self._one(f"SELECT count(*) FROM {table} WHERE {condition}"))

        return ServiceFacts(
            schema=self.schema(),
            known_schema=KNOWN_SCHEMA,
            deleted=count(TABLE, f"NOT ({self.live})"),
            vectors=count("memory_embeddings_rowids", "1"),
            edges=count(GRAPH, "1"),
            synced=count("sync_events", "1"),
        )

    def schema(self) -> int | None:
        """Return the version that the service's migrations left the file at."""
        if "metadata" not in self.tables:
            return None
        found = self.connection.execute(
            "SELECT CAST(value AS INTEGER) FROM metadata WHERE key = 'schema_version'"
        ).fetchone()
        return found[0] if found else None

    def _one(self, statement: str) -> Any:
        return self.connection.execute(statement).fetchone()[0]

    def _in_order(self) -> list[int]:
        found = self.connection.execute(f"SELECT id, created_at FROM {TABLE} WHERE {self.live}")
        return [key for _, key in sorted((position_of(key, at), key) for key, at in found)]

    def _whole(
        self,
        row: dict[str, Any],
        vectors: Mapping[int, dict[str, Any]],
        edges: Mapping[str, list[dict[str, Any]]],
    ) -> dict[str, Any]:
        whole = dict(row)
        if row["id"] in vectors:
            whole[VECTOR] = vectors[row["id"]]
        if row["content_hash"] in edges:
            whole[EDGES] = edges[row["content_hash"]]
        return whole

    def _edges(self, hashes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the edges on both sides of some memories, in an order that never changes."""
        found: dict[str, dict[bytes, dict[str, Any]]] = {}
        if GRAPH not in self.tables:
            return {}
        wanted = set(hashes)
        for side in ("source_hash", "target_hash"):
            for edge in exact_rows(self.connection, GRAPH, side, hashes):
                for end in {edge["source_hash"], edge["target_hash"]} & wanted:
                    found.setdefault(end, {})[encoded(edge)] = edge
        return {end: [edge for _, edge in sorted(edges.items())] for end, edges in found.items()}


def position_of(key: int, created_at: object) -> int:
    """Return where a memory stands by the time it was stored."""
    if not isinstance(created_at, int | float) or created_at != created_at:  # noqa: PLR0124 - NaN
        return place_of(0, key)
    return place_of(int(min(max(created_at, 0.0), 1e12) * 1_000), key)
