"""Selection of the memories that a start loads: load-bearing ones, then the most active."""

import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.base_activation import base_level, per_length
from memlab.clock import moment_and_zone
from memlab.errors import FloorExceedsBudgetWarning
from memlab.items import CHARS_PER_TOKEN
from memlab.lifecycle.signals import load_bearing
from memlab.sources.opening import open_source
from memlab.store.signals import HAS_SIGNALS

_SELECT_CANDIDATES: Final = (
    "SELECT item.rowid, item.memory_id, item.kind, item.tags_json, item.title, item.body, "
    "item.created_at, item.superseded_by IS NOT NULL, signal.access_count, "
    "signal.last_accessed_at, signal.expires_at "
    f"FROM memory_items AS item LEFT JOIN memory_signals AS signal ON {HAS_SIGNALS} "
    "WHERE item.superseded_by IS NULL OR item.superseded_by = item.memory_id ORDER BY item.rowid"
)
"""Selects active memories, and memories that name themselves as ``superseded_by``, with signals.

Retired memories name themselves, and so may memories that an agent withdrew. The fields are those
of :class:`_Row`."""
_DAY: Final = timedelta(days=1)


def estimated_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text: a fourth of its characters, rounded up.

    >>> estimated_tokens("nine more")
    3
    """
    return -(-len(text) // CHARS_PER_TOKEN)


@dataclass(frozen=True)
class Candidate:
    """A memory that a start may load.

    Attributes
    ----------
    rowid, tokens : int
    is_load_bearing : bool
    activation : float
        Base-level activation divided by length; see :func:`memlab.base_activation.per_length`.
    """

    rowid: int
    tokens: int
    is_load_bearing: bool
    activation: float


def rowids_to_load(
    connection: sqlite3.Connection,
    path: Path | None,
    *,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    now: datetime,
) -> list[int]:
    """Return the rowids of the memories that a start loads, in ascending order.

    Warn with FloorExceedsBudgetWarning if the load-bearing memories exceed the limit. Nothing is
    written.

    Parameters
    ----------
    connection : sqlite3.Connection
        The open store.
    path : Path or None
        Its file; None for a store in memory.
    max_tokens : int
        The maximum number of tokens of the memories to load.
    count_tokens : callable
        Returns the number of tokens of a text.
    now : datetime
        The time of the start.
    """
    candidates = list(_candidates(connection, path, count_tokens=count_tokens, now=now))
    floor = [memory for memory in candidates if memory.is_load_bearing]
    floor_tokens = sum(memory.tokens for memory in floor)
    remaining = max_tokens - floor_tokens
    if remaining < 0:
        warnings.warn(
            f"the load-bearing memories alone take {floor_tokens:,} tokens, more than the "
            f"{max_tokens:,} that a start may take; all of them are loaded, and nothing else",
            FloorExceedsBudgetWarning,
            stacklevel=3,
        )
    rowids = [memory.rowid for memory in floor]
    prunable = [memory for memory in candidates if not memory.is_load_bearing]
    prunable.sort(key=lambda memory: (memory.activation, memory.rowid), reverse=True)
    for memory in prunable:
        if memory.tokens <= remaining:
            rowids.append(memory.rowid)
            remaining -= memory.tokens
    return sorted(rowids)


def _candidates(
    connection: sqlite3.Connection,
    path: Path | None,
    *,
    count_tokens: Callable[[str], int],
    now: datetime,
) -> Iterator[Candidate]:
    """Yield the active and the retired memories that have not expired."""
    rows = [_Row(*row) for row in connection.execute(_SELECT_CANDIDATES)]
    retired = None
    if path is not None and any(row.is_inactive for row in rows):
        retired = open_source(path).retired()
    created = creation_times([row.created_at for row in rows])
    for row, created_at in zip(rows, created, strict=True):
        if row.is_inactive:
            is_retired = retired is not None and retired.at(row.rowid, row.memory_id) is not None
            if not is_retired:  # the agent itself marked it as superseded
                continue
        is_load_bearing = load_bearing(row.kind, row.tags_json)
        expires_at = _moment(row.expires_at)
        is_expired = expires_at is not None and expires_at < now
        if is_expired and not is_load_bearing:
            continue
        tokens = count_tokens(f"{row.title}{row.body}")
        yield Candidate(
            rowid=row.rowid,
            tokens=tokens,
            is_load_bearing=is_load_bearing,
            activation=per_length(_activation(row, created_at, now), tokens),
        )


class _Row(NamedTuple):
    """A memory with its signals, as `_SELECT_CANDIDATES` selects it.

    Columns of type Any may have any type in an agent's file.
    """

    rowid: int
    memory_id: str
    kind: Any
    tags_json: Any
    title: Any
    body: Any
    created_at: Any
    is_inactive: int
    access_count: Any
    last_accessed_at: Any
    expires_at: Any


def _activation(row: _Row, created_at: datetime | None, now: datetime) -> float:
    """Return the base-level activation of a memory by its signals."""
    age = 0.0 if created_at is None else (now - created_at) / _DAY
    read_count = row.access_count
    if not isinstance(read_count, int) or read_count <= 0:
        return base_level(age)
    last_read_at = _moment(row.last_accessed_at)
    days_since_read = age if last_read_at is None else (now - last_read_at) / _DAY
    return base_level(age, days_since_read, read_count)


def creation_times(texts: Iterable[object]) -> list[datetime | None]:
    """Return the creation times of memories, given as texts in the order of their creation.

    A memory without a readable time gets the time of the memory before it. Memories before the
    first readable time get this first time.

    >>> [at.day for at in creation_times(["soon", "2026-01-05", None, "2026-01-09"])]
    [5, 5, 5, 9]
    """
    moments = [_moment(text) for text in texts]
    readable = [moment for moment in moments if moment is not None]
    latest = readable[0] if readable else None
    filled = []
    for moment in moments:
        if moment is not None:
            latest = moment
        filled.append(latest)
    return filled


def _moment(text: object) -> datetime | None:
    """Return the time in a text, in UTC; None if it is not a time."""
    with suppress(ValueError):
        moment, _ = moment_and_zone(str(text))
        return moment.astimezone(UTC)
    return None
