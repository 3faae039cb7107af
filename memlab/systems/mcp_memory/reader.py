"""mcp-memory-service's memories over a connection: rows, vectors, edges, and what they mean.

Of the vectors the tables that they are kept in are read, not the virtual one, so that it takes the
standard library alone. A virtual table ``vec0`` keeps its vectors some hundred a row: ``_rowids``
says in which chunk and at which place one is, ``_vector_chunks00`` holds the bytes, ``_chunks`` the
size and the partition.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.errors import StoreError
from memlab.sources.base import Fault, Key, place_of
from memlab.sources.reads import moment_of_seconds
from memlab.sources.sqlite_rows import TableReader, columns_of, exact_rows, text_of
from memlab.store.records import encoded
from memlab.store.shapes import be, optional, text, whole
from memlab.text import Sheet, Shown

TABLE: Final = "memories"
GRAPH: Final = "memory_graph"
VECTORS: Final = "memory_embeddings"
DELETED_AT: Final = "deleted_at"
KNOWN_SCHEMA: Final = 19
"""The newest ``schema_version`` that this adapter was tried on."""

VECTOR: Final = "$vector"
"""In a record: the memory's vector, and the partition that it is found in."""
EDGES: Final = "$edges"
"""In a record: the edges of the graph on both of its sides."""

PROTECTED: Final = frozenset({"critical", "important", "reference", "permanent"})
"""Tags of what the service itself never forgets."""
_MISTAKE: Final = "mistake"
_FAILURES: Final = 3
"""A mistake made so often is protected as well."""

_PARTS: Final = frozenset(f"{VECTORS}_{part}" for part in ("rowids", "chunks", "vector_chunks00"))


@dataclass(frozen=True, repr=False)
class ServiceFacts(Shown):
    """What lies beside the memories."""

    schema: int | None
    known_schema: int
    deleted: int
    vectors: int
    edges: int
    synced: int

    def sheet(self) -> Sheet:
        """Return the facts as a page."""
        facts = [
            ("loaded", "nothing at start by itself: a search brings memories"),
            ("beside", f"{self.vectors:,} vectors, {self.edges:,} edges"),
            ("deleted", f"{self.deleted:,}, which the service has not purged yet"),
        ]
        if self.synced:
            facts.append(("synced", f"{self.synced:,} events: memlab deletes nothing here"))
        if self.schema is not None and self.schema > self.known_schema:
            newer = f"{self.schema}, newer than {self.known_schema}, the newest that memlab knows"
            facts.append(("schema", f"{newer}; what it knows is read, nothing is deleted"))
        return Sheet("mcp-memory-service", facts)


class MemoryReader(TableReader):
    """Memories over a connection that sees one moment."""

    system = "mcp-memory-service"
    table = TABLE
    needed: ClassVar = {
        TABLE: ("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at")
    }
    read = (*needed[TABLE], "confidence", "last_accessed", "superseded_by", "store")

    def __init__(self, connection: sqlite3.Connection, where: Path) -> None:
        super().__init__(connection, where)
        self.live = f"{DELETED_AT} IS NULL" if DELETED_AT in self.columns else "1"

    def facts(self) -> ServiceFacts:
        """Return what is said of the database beside its frame."""

        def count(table: str, condition: str = "1") -> int:
            if table not in self.tables:
                return 0
            return int(self._one(f"SELECT count(*) FROM {table} WHERE {condition}"))

        return ServiceFacts(
            schema=self.schema(),
            known_schema=KNOWN_SCHEMA,
            deleted=count(TABLE, f"NOT ({self.live})"),
            vectors=count(f"{VECTORS}_rowids"),
            edges=count(GRAPH),
            synced=count("sync_events"),
        )

    def schema(self) -> int | None:
        """Return the version that the service's migrations left the file at."""
        if "metadata" not in self.tables:
            return None
        found = self.connection.execute(
            "SELECT CAST(value AS INTEGER) FROM metadata WHERE key = 'schema_version'"
        ).fetchone()
        return found[0] if found else None

    def _places(self) -> Iterator[tuple[int, int]]:
        found = self.connection.execute(f"SELECT id, created_at FROM {TABLE} WHERE {self.live}")
        return ((_place(key, at), key) for key, at in found)

    def _row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return row_of(stored)

    def _records(self, rows: Mapping[Key, dict[str, Any]]) -> dict[Key, bytes]:
        """Return each memory's row with its vector and edges."""
        live = {key: row for key, row in rows.items() if DELETED_AT not in row}
        vectors = self._vectors(list(live))
        edges = self._edges({str(row.get("content_hash")) for row in live.values()})
        for key, row in live.items():
            name = row.get("content_hash")  # SQLite holds anything in any column
            if key in vectors:
                row[VECTOR] = vectors[key]
            if isinstance(name, str) and name in edges:
                row[EDGES] = edges[name]
        return {key: encoded(row) for key, row in live.items()}

    def _edges(self, hashes: set[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the edges on both sides of some memories, in an order that never changes."""
        found: dict[str, dict[bytes, dict[str, Any]]] = {}
        if GRAPH not in self.tables:
            return {}
        for side in ("source_hash", "target_hash"):
            for edge in exact_rows(self.connection, GRAPH, side, hashes):
                ends = edge["source_hash"], edge["target_hash"]
                for end in hashes.intersection(map(str, ends)):
                    found.setdefault(end, {})[encoded(edge)] = edge
        return {end: [edge for _, edge in sorted(edges.items())] for end, edges in found.items()}

    def _vectors(self, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """Return the vectors of memories that have one: hexadecimal digits, and a partition."""
        if not self.tables >= _PARTS or not keys:
            return {}
        of = columns_of(self.connection, f"{VECTORS}_chunks")
        partition = "c.partition00" if "partition00" in of else "NULL"
        places = self.connection.execute(
            f"SELECT r.rowid, r.chunk_id, r.chunk_offset, c.size, {partition} "
            f"FROM {VECTORS}_rowids AS r JOIN {VECTORS}_chunks AS c ON c.chunk_id = r.chunk_id "
            f"WHERE r.rowid IN ({', '.join('?' * len(keys))}) ORDER BY r.chunk_id",
            list(keys),
        ).fetchall()
        found: dict[Key, dict[str, Any]] = {}
        chunk, data = None, b""
        for key, chunk_id, offset, size, store in places:
            try:
                if chunk_id != chunk:  # a chunk is read once, for it holds a thousand vectors
                    chunk, data = chunk_id, self._chunk(chunk_id)
                whole(1)(size)
                whole(0, size - 1)(offset)
                optional(text)(store)
            except ValueError as error:
                raise StoreError(
                    f"the vector of memory {key} is kept otherwise than sqlite-vec keeps it "
                    f"({error}); nothing was changed: restore a backup, or let the service make "
                    "its vectors anew"
                ) from error
            length = len(data) // size
            vector = data[offset * length : (offset + 1) * length]
            found[key] = {"data": vector.hex()} | ({} if store is None else {"store": store})
        return found

    def _chunk(self, chunk_id: int) -> bytes:
        """Return the vectors of a chunk, one after another."""
        found = self.connection.execute(
            f"SELECT vectors FROM {VECTORS}_vector_chunks00 WHERE rowid = ?", (chunk_id,)
        ).fetchone()
        (vectors,) = found or (b"",)
        be(vectors, bytes, "a blob")
        return bytes(vectors)


def row_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a memory as a row, from its columns or from its record."""
    told = metadata_of(fields.get("metadata"))
    tags = [tag for each in text_of(fields.get("tags")).split(",") if (tag := each.strip())]
    memory_type = text_of(fields.get("memory_type")).strip()
    title, _, body = text_of(fields.get("content")).partition("\n")
    created = _number(fields.get("created_at"))
    position, at = _place(fields["id"], created), moment_of_seconds(created)
    replaced = text_of(fields.get("superseded_by")) or None
    last = [told.get("last_accessed_at"), fields.get("last_accessed")]
    count = _number(told.get("access_count"))
    faults: list[Fault] = []
    if at is None:
        shown = f"created_at {fields.get('created_at')!r:.80} is no time"
        faults.append((position, "created_at", shown))
    if not isinstance(fields.get("content_hash"), str):
        faults.append((position, "content_hash", "content_hash is no text"))
    return {
        "position": position,
        "key": fields["id"],
        "memory_id": text_of(fields.get("content_hash")),
        "kind": "semantic" if is_protected(tags, memory_type, told) else "episodic",
        "title": title,
        "body": body,
        "tags_json": json.dumps([*tags, *filter(None, [memory_type])], ensure_ascii=False),
        "authored_by": "mcp-memory-service",
        "created_at": at,
        "confidence": _first(fields.get("confidence"), 1.0),
        "active": replaced is None,
        "superseded_by": replaced,
        "importance": _first(told.get("importance_score"), told.get("quality_score")),
        "access_count": int(count) if count is not None and 0 <= count < 2**62 else None,
        "last_accessed_at": moment_of_seconds(_first(*last)),
        "namespace": text_of(fields.get("store")) or None,
        "loaded_at_start": False,
        "faults": faults,
    }


def is_protected(tags: Sequence[str], memory_type: str, told: Mapping[str, Any]) -> bool:
    """Whether the service itself never forgets a memory.

    Examples
    --------
    >>> is_protected(["Critical"], "note", {}), is_protected([], "mistake", {"failure_count": 3})
    (True, True)
    """
    if PROTECTED & {tag.lower() for tag in tags}:
        return True
    failures = _number(told.get("failure_count"))
    return memory_type == _MISTAKE and failures is not None and failures >= _FAILURES


def metadata_of(value: object) -> dict[str, Any]:
    """Return the fields of a memory's metadata; none of what is no JSON object."""
    try:
        found = json.loads(text_of(value) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e308 else None


def _first(*values: object) -> float | None:
    """Return the first of some values that is a number."""
    return next((number for number in map(_number, values) if number is not None), None)


def _place(key: int, created_at: object) -> int:
    """Return where a memory stands by the time it was stored."""
    if not isinstance(created_at, int | float) or created_at != created_at:  # noqa: PLR0124 - NaN
        return place_of(0, key)
    return place_of(int(min(max(created_at, 0.0), 1e12) * 1_000), key)
