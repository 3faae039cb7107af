"""mcp-memory-service: one SQLite file of memories, their vectors and a graph between them.

A memory is a row that its service has not deleted; the vector that finds it and the edges on both
of its sides belong to it. How they are changed is in :mod:`memlab.systems.mcp_memory.memories`.

Reads are the last ten queries that found a memory, in the memory's own metadata. Queries before
them are gone, so a memory that is found often shows fewer reads than it had; harvests in between
keep them. A search that asks for five may write down ten.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import Connection
from typing import Any, ClassVar, Final

from memlab.sources.base import Writer
from memlab.sources.reads import Asked, Found, Read, mapping, moment_of_seconds, sequence, text
from memlab.sources.sqlite_rows import TableSource, read_database, tables_of
from memlab.store import shapes
from memlab.store.records import encoded
from memlab.systems.mcp_memory.memories import (
    EDGES,
    TABLE,
    VECTOR,
    MemoryReader,
    metadata_of,
    opened_for_change,
    row_of,
)
from memlab.text import counted

NAME: Final = "an mcp-memory-service database"
BROKEN: Final = "memories whose metadata cannot be read"
WITHOUT_TIME: Final = "queries without a time"

_OF_USE: Final = ("access_count", "last_accessed_at", "access_queries", "avg_ranking")
"""Fields of the metadata that a search changes."""
_SHAPE: Final = shapes.fields(
    {
        "id": shapes.whole(),
        "content_hash": shapes.text,
        VECTOR: shapes.fields({"data": shapes.digits, "store": shapes.stored}, absent={"store"}),
        EDGES: shapes.listed(shapes.named(shapes.stored)),
    },
    absent={VECTOR, EDGES},
    others=shapes.stored,
)
_KEPT: Final = 10
"""Queries that the service keeps of a memory."""


class McpMemory(TableSource):
    """The memories of one database of mcp-memory-service."""

    scheme = "mcp-memory"
    tables: ClassVar = {TABLE: frozenset({"content_hash", "content", "memory_type"})}
    shape = staticmethod(_SHAPE)

    @classmethod
    def usual_places(cls, home: Path, known: Mapping[str, str]) -> list[Path]:
        """Return the service's folders on Linux and macOS."""
        data = Path(known.get("XDG_DATA_HOME") or home / ".local" / "share")
        return [data / "mcp-memory", home / "Library" / "Application Support" / "mcp-memory"]

    def reader(self, connection: Connection) -> MemoryReader:
        """Return a reader of the service's memories."""
        return MemoryReader(connection, self.path)

    def changing(self) -> AbstractContextManager[Writer]:
        """Open the database for one transaction, whose commit reaches the disk."""
        return opened_for_change(self.path)

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row."""
        return row_of(json.loads(record))

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a search does not change, nor a neighbour that goes."""
        row = json.loads(record)
        left_out = (EDGES, "last_accessed", "metadata")
        kept = {name: value for name, value in row.items() if name not in left_out}
        told = metadata_of(row.get("metadata"))
        unused = {name: told[name] for name in sorted(told) if name not in _OF_USE}
        return encoded({**kept, "metadata": unused if told else row.get("metadata")})


def recognises(asked: Asked) -> bool:
    """Whether the source is such a database."""
    return tables_of(asked.path).get(TABLE, set()) >= {"content_hash", "metadata", "memory_type"}


def find(asked: Asked) -> Found:
    """Return the queries that found a memory."""
    found = Found(files=1, bytes=asked.path.stat().st_size, store=str(asked.path))
    query = (
        f"SELECT content_hash, metadata FROM {TABLE} WHERE metadata LIKE '%access_queries%' "
        "ORDER BY id"
    )
    cut = 0
    for content_hash, metadata in read_database(
        asked.path, lambda connection: connection.execute(query).fetchall()
    ):
        try:
            told = mapping(json.loads(metadata))
        except (ValueError, RecursionError, TypeError):
            found.left_out[BROKEN] += 1
            continue
        queries = [mapping(each) for each in sequence(told.get("access_queries"))]
        cut += len(queries) >= _KEPT
        memory_id = text(content_hash)
        for at in (moment_of_seconds(each.get("timestamp")) for each in queries):
            if at is None:
                found.left_out[WITHOUT_TIME] += 1
            elif memory_id:
                name = f"mcp-memory:{memory_id}:{at.isoformat()}"
                found.reads.append(Read(memory_id, at, name, "query"))
    found.reads.sort(key=lambda read: read.at)
    if cut:
        found.notes.append(
            f"of {counted(cut, 'memories')} the last {_KEPT} queries are shown, which is all that "
            "the service keeps: earlier ones are gone unless a harvest kept them"
        )
    found.notes.append("a search that asks for five memories may have written down ten")
    return found
