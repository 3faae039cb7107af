"""The memories of an mcp-memory-service, over a connection that sees one moment."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from memlab.errors import StoreError
from memlab.sources.base import Key, Rows
from memlab.sources.mcp_memory_facts import ServiceFacts
from memlab.sources.mcp_memory_rows import EDGES, VECTOR, position_of, row_of
from memlab.sources.mcp_memory_vectors import vectors_of
from memlab.sources.sqlite_rows import AT_ONCE, columns_of, exact_rows, tables_in
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
