"""Harvest the reads of LangGraph's store.

A read postpones the expiry of a memory. Therefore the time of its last read is known.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from memlab.clock import moment_and_zone
from memlab.sources.postgres import is_server, read_server, tables_on
from memlab.sources.reads import HarvestRequest, HarvestResult, Read
from memlab.sources.sqlite_rows import rows_in, tables_of

_COLUMNS: Final = {"prefix", "key", "updated_at", "expires_at", "ttl_minutes"}
_SAME_WRITE: Final = timedelta(seconds=2)
"""Maximum difference of the two times that one write stores."""

Row = tuple[str, str, Any, Any, float | None]
"""Prefix, key, time of update, time of expiry, and time to live in minutes of a memory."""

WITHOUT_EXPIRY: Final = "memories without a time to live, whose reads leave no trace"
NOT_READ: Final = "memories not read since they were written"
WITHOUT_TIME: Final = "memories whose times cannot be read"


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a store of LangGraph, in SQLite or on PostgreSQL."""
    tables = tables_on(request.source) if is_server(request.source) else tables_of(request.path)
    return tables.get("store", set()) >= _COLUMNS


def find(request: HarvestRequest) -> HarvestResult:
    """Return the last read of each memory."""
    query = (
        "SELECT prefix, key, updated_at, expires_at, ttl_minutes FROM store ORDER BY prefix, key"
    )
    if is_server(request.source):
        result = HarvestResult()
        rows: Iterable[Row] = read_server(request.source, query)
    else:
        result = HarvestResult(files=1, bytes=request.path.stat().st_size)
        rows = rows_in(request.path, query)
    for prefix, key, updated_at, expires_at, minutes in rows:
        if expires_at is None or minutes is None:
            result.left_out[WITHOUT_EXPIRY] += 1
            continue
        try:
            written, _ = moment_and_zone(str(updated_at))
            expiry, _ = moment_and_zone(str(expires_at))
            last_read = expiry - timedelta(minutes=minutes)
        except (TypeError, ValueError, OverflowError):  # not a time, or out of range
            result.left_out[WITHOUT_TIME] += 1
            continue
        if last_read - written <= _SAME_WRITE:
            result.left_out[NOT_READ] += 1
        else:
            memory_id = f"{prefix}/{key}"
            read_id = f"langgraph:{memory_id}:{last_read.isoformat()}"
            result.reads.append(
                Read(memory_id=memory_id, at=last_read, id=read_id, tool="expiry put off")
            )
    result.notes.append(
        "only the last read of each memory is known: harvest often, and the log keeps the others"
    )
    return result
