"""mcp-memory-service: one SQLite file of memories, their vectors and a graph between them.

A deletion does the same as the service: it deletes the vector and the edges on both sides and sets
``deleted_at``; the row stays. Vectors are read without sqlite-vec, from the shadow tables of
``vec0``: ``_rowids`` has the chunk and offset of a vector, ``_vector_chunks00`` the bytes, and
``_chunks`` the size and partition. Reads are the last ten hits that the service stores.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.columns import IMPORTANCE
from memlab.errors import StoreError, UnsafeDeletionError
from memlab.lazy import install_command
from memlab.sources import reads, sqlite_rows
from memlab.sources.base import About, position_from_timestamp
from memlab.sources.readers import Fault, Key, Records, Writer
from memlab.sources.reads import HarvestRequest, HarvestResult, Read, mapping, moment_of_seconds
from memlab.sources.sqlite_rows import (
    TableReader,
    TableSource,
    tables_of,
    text_of,
    text_or_none,
)
from memlab.store import shapes
from memlab.store.database import check_encoding, convert_sqlite_errors, store_file, transaction
from memlab.store.records import encoded, insert_row
from memlab.text import TextPage, counted

BROKEN: Final = "memories whose metadata cannot be read"
WITHOUT_TIME: Final = "queries without a time"

TABLE: Final = "memories"
GRAPH: Final = "memory_graph"
VECTORS: Final = "memory_embeddings"
DELETED_AT: Final = "deleted_at"
KNOWN_SCHEMA: Final = 19
"""The newest ``schema_version`` that this adapter was tested with."""

VECTOR: Final = "$vector"
"""Key in a record: the vector of the memory, and its partition."""
EDGES: Final = "$edges"
"""Key in a record: the edges of the memory in the graph, in both directions."""

PROTECTED: Final = frozenset({"critical", "important", "reference", "permanent"})
"""Tags that exempt a memory from the forgetting of the service."""
_SHADOW_TABLES: Final = frozenset(
    f"{VECTORS}_{part}" for part in ("rowids", "chunks", "vector_chunks00")
)

BACKEND: Final = "MCP_MEMORY_STORAGE_BACKEND"

_LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for the lock of another process."""

_USAGE_FIELDS: Final = ("access_count", "last_accessed_at", "access_queries", "avg_ranking")
"""Metadata fields that a search changes."""
_SHAPE: Final = shapes.fields(
    {
        "id": shapes.integer(),
        "content_hash": shapes.text,
        VECTOR: shapes.fields(
            {"data": shapes.digits, "store": shapes.sqlite_value}, may_be_absent={"store"}
        ),
        EDGES: shapes.list_of(shapes.mapping_of(shapes.sqlite_value)),
    },
    may_be_absent={VECTOR, EDGES},
    others=shapes.sqlite_value,
)
_KEPT_QUERIES: Final = 10
"""Number of queries that the service keeps for each memory."""


class McpMemory(TableSource):
    """The memories of one database of mcp-memory-service."""

    scheme = "mcp-memory"
    overwritten_signals = frozenset({IMPORTANCE})
    default_locations = ("XDG_DATA_HOME", ".local/share", "mcp-memory")
    tables: ClassVar = {TABLE: ("content_hash", "content", "memory_type")}
    shape = staticmethod(_SHAPE)

    @classmethod
    def usual_places(cls, home: Path, environment: Mapping[str, str]) -> list[Path]:
        """Return the service's folders on Linux and macOS."""
        on_a_mac = home / "Library" / "Application Support" / "mcp-memory"
        return [*super().usual_places(home, environment), on_a_mac]

    def reader(self, connection: sqlite3.Connection) -> "MemoryReader":
        """Return a reader of the service's memories."""
        return MemoryReader(connection, self)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the database for one transaction, with an SQLite that can load extensions."""
        backend = os.environ.get(BACKEND, "").strip().lower()
        if backend in ("hybrid", "cloudflare"):
            reason = (
                f"{BACKEND} is {backend}: the service keeps {self.path} in step with Cloudflare"
            )
            raise _unsafe(reason)
        module = driver()
        file = store_file(self.path).resolve()
        with convert_sqlite_errors(self.path, module=module):
            opened = module.connect(str(file), timeout=_LOCK_TIMEOUT, isolation_level=None)
            with closing(opened) as connection:
                connection.text_factory = lambda data: data.decode(errors="replace")
                load_extension(connection)
                connection.execute("PRAGMA synchronous = EXTRA")
                with transaction(connection):
                    check_encoding(connection, self.path)
                    writer = MemoryWriter(connection, self)
                    writer.check_safe(self.path)
                    yield writer

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return a memory as a row, by its columns."""
        metadata = metadata_of(parsed.get("metadata"))
        created = parsed.get("created_at")
        tags = [tag.strip() for tag in text_of(parsed.get("tags")).split(",")]
        tags = [tag for tag in tags if tag]
        memory_type = text_of(parsed.get("memory_type")).strip()
        tags_with_type = [*tags, memory_type] if memory_type else tags
        title, _, body = text_of(parsed.get("content")).partition("\n")
        position = _position(parsed["id"], created)
        at = moment_of_seconds(created)
        last_access = _number(metadata.get("last_accessed_at"), parsed.get("last_accessed"))
        successor = text_or_none(parsed.get("superseded_by"))
        count = _number(metadata.get("access_count"))
        access_count = None
        if count is not None and 0 <= count < 2**62:
            access_count = int(count)
        faults: list[Fault] = []
        if at is None:
            faults.append(
                Fault(position, "created_at", f"created_at {created!r:.80} is not a time")
            )
        if not isinstance(parsed.get("content_hash"), str):
            faults.append(Fault(position, "content_hash", "content_hash is no text"))
        return {
            "position": position,
            "key": parsed["id"],
            "memory_id": text_of(parsed.get("content_hash")),
            "kind": "semantic" if is_protected(tags, memory_type, metadata) else "episodic",
            "title": title,
            "body": body,
            "tags_json": json.dumps(tags_with_type, ensure_ascii=False),
            "authored_by": "mcp-memory-service",
            "created_at": at,
            "confidence": _number(parsed.get("confidence"), 1.0),
            "active": successor is None,
            "superseded_by": successor,
            "importance": _number(metadata.get("importance_score"), metadata.get("quality_score")),
            "access_count": access_count,
            "last_accessed_at": moment_of_seconds(last_access),
            "namespace": text_or_none(parsed.get("store")),
            "loaded_at_start": False,
            "faults": faults,
        }

    def without_usage(self, record: bytes) -> bytes:
        """Return a record without edges and without the fields that a search changes."""
        row = json.loads(record)
        left_out = (EDGES, "last_accessed", "metadata")
        kept = {name: value for name, value in row.items() if name not in left_out}
        metadata = metadata_of(row.get("metadata"))
        if metadata:
            kept["metadata"] = {
                name: metadata[name] for name in sorted(metadata) if name not in _USAGE_FIELDS
            }
        else:
            kept["metadata"] = row.get("metadata")
        return encoded(kept)


class MemoryReader(TableReader):
    """Reads memories over a connection on one snapshot."""

    system = "mcp-memory-service"
    table = TABLE
    needed = ("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at")

    def __init__(self, connection: sqlite3.Connection, source: McpMemory) -> None:
        super().__init__(connection, source)
        self.live_condition = f"{DELETED_AT} IS NULL" if DELETED_AT in self.columns else "1"
        self.keeps_vectors = self.table_names >= _SHADOW_TABLES
        chunk_columns = sqlite_rows.columns_of(connection, f"{VECTORS}_chunks")
        self.is_partitioned = "partition00" in chunk_columns

    def about(self) -> About:
        """Return the facts about the database, as JSON values and as a page."""

        def count(table: str, condition: str = "1") -> int:
            if table not in self.table_names:
                return 0
            return int(self._single_value(f"SELECT count(*) FROM {table} WHERE {condition}"))

        counts = {
            "schema": self.schema(),
            "known_schema": KNOWN_SCHEMA,
            "deleted": count(TABLE, f"NOT ({self.live_condition})"),
            "vectors": count(f"{VECTORS}_rowids"),
            "edges": count(GRAPH),
            "synced": count("sync_events"),
        }
        facts = [
            ("loaded", "nothing at start by itself: a search brings memories"),
            ("beside", f"{counts['vectors']:,} vectors, {counts['edges']:,} edges"),
            ("deleted", f"{counts['deleted']:,}, which the service has not purged yet"),
        ]
        if counts["synced"]:
            facts.append(("synced", f"{counts['synced']:,} events: memlab deletes nothing here"))
        newer = sqlite_rows.note_on_newer_schema(counts["schema"], KNOWN_SCHEMA)
        if newer:
            facts.append(("schema", f"{newer}; what it knows is read, nothing is deleted"))
        return About(TextPage("mcp-memory-service", facts), counts)

    def schema(self) -> int | None:
        """Return the schema version of the database; None if it stores none."""
        query = "SELECT max(CAST(value AS INTEGER)) FROM metadata WHERE key = 'schema_version'"
        return self._single_value(query) if "metadata" in self.table_names else None

    def _places(self) -> Iterator[tuple[int, int]]:
        rows = self.connection.execute(
            f"SELECT id, created_at FROM {TABLE} WHERE {self.live_condition}"
        )
        return ((_position(key, at), key) for key, at in rows)

    def _records(self, rows: Mapping[Key, dict[str, Any]]) -> dict[Key, bytes]:
        live = {key: row for key, row in rows.items() if DELETED_AT not in row}
        vectors = self._vectors(list(live))
        edges = self._edges({str(row.get("content_hash")) for row in live.values()})
        for key, row in live.items():
            if key in vectors:
                row[VECTOR] = vectors[key]
            memory_edges = edges.get(str(row.get("content_hash")))  # the column may have any type
            if memory_edges:
                row[EDGES] = memory_edges
        return {key: encoded(row) for key, row in live.items()}

    def _edges(self, hashes: set[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the edges of memories in both directions, in a stable order."""
        edges_by_hash: dict[str, dict[bytes, dict[str, Any]]] = {}
        if GRAPH not in self.table_names:
            return {}
        for side in ("source_hash", "target_hash"):
            for edge in sqlite_rows.exact_rows(self.connection, GRAPH, side, hashes):
                ends = edge["source_hash"], edge["target_hash"]
                for end in hashes.intersection(map(str, ends)):
                    edges_by_hash.setdefault(end, {})[encoded(edge)] = edge
        sorted_edges = {}
        for end, edges in edges_by_hash.items():
            sorted_edges[end] = [edges[canonical] for canonical in sorted(edges)]
        return sorted_edges

    def _vectors(self, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """Return the vectors of memories as hexadecimal digits, with their partition."""
        if not self.keeps_vectors or not keys:
            return {}
        partition = "c.partition00" if self.is_partitioned else "NULL"
        locations = self.connection.execute(
            f"SELECT r.rowid, r.chunk_id, r.chunk_offset, c.size, {partition} "
            f"FROM {VECTORS}_rowids AS r JOIN {VECTORS}_chunks AS c ON c.chunk_id = r.chunk_id "
            f"WHERE r.rowid IN ({', '.join('?' * len(keys))}) ORDER BY r.chunk_id",
            list(keys),
        ).fetchall()
        select_chunk = f"SELECT vectors FROM {VECTORS}_vector_chunks00 WHERE rowid = ?"
        vectors: dict[Key, dict[str, Any]] = {}
        current_chunk_id = None
        data = b""
        for key, chunk_id, offset, size, store in locations:
            if chunk_id != current_chunk_id:  # read each chunk once: it holds a thousand vectors
                current_chunk_id = chunk_id
                row = self.connection.execute(select_chunk, (chunk_id,)).fetchone()
                data = b"" if row is None else row[0]
            try:
                shapes.check_type(data, bytes, "a blob")
                shapes.check_integer(size, 1)
                shapes.check_integer(offset, 0, size - 1)
                shapes.optional(shapes.text)(store)
            except ValueError as error:
                raise StoreError(
                    f"the vector of memory {key} is not stored by sqlite-vec ({error}); "
                    "nothing was changed: restore a backup, or let the service make it anew"
                ) from error
            length = len(data) // size
            vector = data[offset * length : (offset + 1) * length]
            vectors[key] = {"data": vector.hex()}
            if store is not None:
                vectors[key]["store"] = store
        return vectors


class MemoryWriter(MemoryReader, Writer):
    """Changes memories in one transaction."""

    likely_cause = f"a trigger on {TABLE}"

    def check_safe(self, name: Path) -> None:
        """Raise UnsafeDeletionError if a deletion would do more than one by the service."""
        for table in {"sync_events", "sync_cursor", "push_cursor"} & self.table_names:
            if self._single_value(f"SELECT count(*) FROM {table}"):
                raise _unsafe(f"{name} is kept in step with other machines ({table} holds rows)")
        version = self.schema() or 0
        if version > KNOWN_SCHEMA:
            raise _unsafe(f"{name} is of schema {version} and memlab knows {KNOWN_SCHEMA}")
        if DELETED_AT not in self.columns:
            raise _unsafe(
                f"{name} is of a version without {DELETED_AT}: no deletion could be taken back",
                "a newer mcp-memory-service opens it once",
            )
        # The vectors of the service are of the type float.
        select_other_type = "SELECT 1 FROM sqlite_schema WHERE name = ? AND sql NOT LIKE '%float[%'"
        if self.connection.execute(select_other_type, (VECTORS,)).fetchone():
            raise _unsafe(
                f"{VECTORS} in {name} has vectors of a kind that memlab could not restore"
            )
        triggers = self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN (?, ?)",
            (TABLE, GRAPH),
        )
        service_triggers = {f"memories_fts_{event}" for event in ("ai", "au", "ad")}
        foreign_triggers = sorted({name for (name,) in triggers} - service_triggers)
        if foreign_triggers:
            reason = f"a deletion in {name} would fire {', '.join(foreign_triggers)}"
            raise _unsafe(reason, f"DROP TRIGGER {foreign_triggers[0]} while memlab works")

    def _delete(self, expected: Mapping[Key, str]) -> None:
        now = "(julianday('now') - 2440587.5) * 86400.0"  # in seconds since 1970
        for key, record in dict(self.records(expected)).items():
            content_hash = str(json.loads(record)["content_hash"])
            if self.keeps_vectors:
                self.connection.execute(f"DELETE FROM {VECTORS} WHERE rowid = ?", (key,))
            if GRAPH in self.table_names:
                at_an_end = "source_hash = ?1 OR target_hash = ?1"
                self.connection.execute(f"DELETE FROM {GRAPH} WHERE {at_an_end}", (content_hash,))
            self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = {now} WHERE id = ? AND {self.live_condition}",
                (key,),
            )

    def conflicts(self, records: Records) -> list[str]:
        """Return the contents that have been stored again since their deletion."""
        select_same_content = f"SELECT id FROM {TABLE} WHERE content_hash = ? AND id <> ?"
        conflicts = []
        for key, record in records:
            content_hash = json.loads(record)["content_hash"]
            same_content = self.connection.execute(select_same_content, (content_hash, key))
            for (other,) in same_content:
                conflicts.append(f"the same content, stored again as {other}")
        return conflicts

    def _insert(self, records: Records) -> int:
        count = 0
        for key, record in records:
            count += 1
            memory = json.loads(record)
            vector = memory.pop(VECTOR, None)
            edges = memory.pop(EDGES, [])
            updated = self.connection.execute(
                f"UPDATE {TABLE} SET {DELETED_AT} = NULL WHERE id = ? AND content_hash = ?",
                (key, memory["content_hash"]),
            )
            if not updated.rowcount:  # the service has purged it
                insert_row(self.connection, TABLE, memory)
            if vector is not None:
                row = {"rowid": key, "content_embedding": {"blob": vector["data"]}}
                if self.is_partitioned:
                    row["store"] = vector.get("store", "default")
                insert_row(self.connection, VECTORS, row)
            for edge in edges:
                insert_row(self.connection, GRAPH, edge, "INSERT OR IGNORE")
        return count

    def is_back(self, current_record: bytes, record: bytes) -> bool:
        """Return whether a memory is as archived; further edges of earlier restores may exist."""
        current = json.loads(current_record)
        archived = json.loads(record)
        edges = current.pop(EDGES, [])
        archived_edges = archived.pop(EDGES, [])
        return bool(current == archived) and all(edge in edges for edge in archived_edges)

    def _count(self) -> int:
        return int(self._single_value(f"SELECT count(*) FROM {TABLE} WHERE {self.live_condition}"))


def driver() -> Any:
    """Return an SQLite module that can load extensions: the standard one or pysqlite3."""
    install = install_command("mcp-memory")
    if find_spec("sqlite_vec") is None:
        raise _unsafe(
            "a deletion here also deletes a vector, for which it needs sqlite-vec", install
        )
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    if find_spec("pysqlite3") is not None:
        return import_module("pysqlite3")
    raise _unsafe(
        "the sqlite3 of this Python cannot load extensions, and a deletion here needs sqlite-vec",
        f"{install}, or run memlab with the Python that the service runs with",
    )


def _unsafe(reason: str, instead: str = "the service's delete_memory") -> UnsafeDeletionError:
    """Return the error for a deletion that memlab refuses."""
    return UnsafeDeletionError(f"{reason}; nothing was changed; what to do instead: {instead}")


def load_extension(connection: Any) -> None:
    """Load the table type ``vec0`` of sqlite-vec into a connection of :func:`driver`."""
    connection.enable_load_extension(True)  # noqa: FBT003 - SQLite's own signature
    import_module("sqlite_vec").load(connection)
    connection.enable_load_extension(False)  # noqa: FBT003 - SQLite's own signature


def is_protected(tags: Sequence[str], memory_type: str, metadata: Mapping[str, Any]) -> bool:
    """Return whether the service never forgets a memory by itself.

    >>> is_protected(["Critical"], "note", {}), is_protected([], "mistake", {"failure_count": 3})
    (True, True)
    """
    if PROTECTED & {tag.lower() for tag in tags}:
        return True
    failure_count = _number(metadata.get("failure_count"), 0)
    return memory_type == "mistake" and failure_count is not None and failure_count >= 3


def metadata_of(value: object) -> dict[str, Any]:
    """Return the metadata of a memory; empty if it is no JSON object."""
    return mapping(reads.parsed(text_of(value)))


def _number(*values: object) -> float | None:
    """Return the first value that is a finite number; None if there is none."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308:
            return float(value)
    return None


def _position(key: int, created_at: object) -> int:
    """Return the position of a memory by its creation time."""
    at = moment_of_seconds(created_at)
    return position_from_timestamp(0 if at is None else int(at.timestamp() * 1_000), key)


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a database of mcp-memory-service."""
    return McpMemory.recognise(request.path, tables_of(request.path)) is not None


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads: the queries that found a memory."""
    result = HarvestResult(files=1, bytes=request.path.stat().st_size, store=str(request.path))
    query = (
        f"SELECT content_hash, metadata FROM {TABLE} WHERE metadata LIKE '%access_queries%' "
        "ORDER BY id"
    )
    full_count = 0
    for content_hash, metadata in sqlite_rows.rows_in(request.path, query):
        fields = reads.parsed(metadata)
        if fields is None:
            result.left_out[BROKEN] += 1
            continue
        queries = reads.sequence(mapping(fields).get("access_queries"))
        if len(queries) >= _KEPT_QUERIES:
            full_count += 1
        memory_id = reads.text(content_hash)
        for query_made in map(mapping, queries):
            at = moment_of_seconds(query_made.get("timestamp"))
            if at is None:
                result.left_out[WITHOUT_TIME] += 1
            elif memory_id:
                read_id = f"mcp-memory:{memory_id}:{at.isoformat()}"
                result.reads.append(Read(memory_id=memory_id, at=at, id=read_id, tool="query"))
    if full_count:
        result.notes.append(
            f"of {counted(full_count, 'memories')} the last {_KEPT_QUERIES} queries are shown, "
            "which is all that the service keeps: earlier ones are gone unless a harvest kept them"
        )
    result.notes.append("for a search that asks for five memories, the service may have logged ten")
    return result
