"""mcp-memory-service: the last ten queries that found a memory, in the memory's own metadata.

Queries before the last ten are gone, so a memory that is found often shows fewer reads than it had;
harvests in between keep them. A search that asks for five may write down ten.
"""

import json
from collections.abc import Iterator
from sqlite3 import Connection
from typing import Any, Final

from memlab.evidence.harvest.databases import read_database
from memlab.evidence.harvest.found import Asked, Found, Read, moment_of_seconds
from memlab.evidence.harvest.lines import mapping, sequence, text
from memlab.sources.recognising import tables_of
from memlab.text import counted

NAME: Final = "an mcp-memory-service database"

_COLUMNS: Final = {"content_hash", "metadata", "memory_type"}
_KEPT: Final = 10
_SELECT: Final = (
    "SELECT content_hash, metadata FROM memories WHERE metadata LIKE '%access_queries%' ORDER BY id"
)

BROKEN: Final = "memories whose metadata cannot be read"
WITHOUT_TIME: Final = "queries without a time"


def recognises(asked: Asked) -> bool:
    """Whether the source is such a database."""
    return tables_of(asked.path).get("memories", set()) >= _COLUMNS


def find(asked: Asked) -> Found:
    """Return the queries that found a memory."""
    found = Found(files=1, bytes=asked.path.stat().st_size)
    cut = 0
    for content_hash, metadata in read_database(asked.path, _rows):
        try:
            fields = mapping(json.loads(metadata))
        except (ValueError, RecursionError, TypeError):
            found.left_out[BROKEN] += 1
            continue
        queries = [mapping(each) for each in sequence(fields.get("access_queries"))]
        cut += len(queries) >= _KEPT
        found.reads += _reads(text(content_hash), queries, found)
    found.reads.sort(key=lambda read: read.at)
    if cut:
        found.notes.append(
            f"of {counted(cut, 'memories')} the last {_KEPT} queries are shown, which is all that "
            "the service keeps: earlier ones are gone unless a harvest kept them"
        )
    found.notes.append("a search that asks for five memories may have written down ten")
    found.store = str(asked.path)
    return found


def _reads(memory_id: str, queries: list[dict[str, Any]], found: Found) -> Iterator[Read]:
    for query in queries:
        at = moment_of_seconds(query.get("timestamp"))
        if at is None:
            found.left_out[WITHOUT_TIME] += 1
        elif memory_id:
            yield Read(memory_id, at, f"mcp-memory:{memory_id}:{at.isoformat()}", "query")


def _rows(connection: Connection) -> list[tuple[Any, Any]]:
    return connection.execute(_SELECT).fetchall()
