"""The memories that a start loads by need: the load-bearing ones, then the most active that fit."""

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

_ROWS: Final = (
    "SELECT item.rowid, item.memory_id, item.kind, item.tags_json, item.title, item.body, "
    "item.created_at, item.superseded_by IS NOT NULL, signal.access_count, "
    "signal.last_accessed_at, signal.expires_at "
    f"FROM memory_items AS item LEFT JOIN memory_signals AS signal ON {HAS_SIGNALS} "
    "WHERE item.superseded_by IS NULL OR item.superseded_by = item.memory_id ORDER BY item.rowid"
)
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


def chosen_for_start(
    connection: sqlite3.Connection,
    path: Path | None,
    *,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    now: datetime,
) -> list[int]:
    """Return the rowids of the memories that a start loads, ascending. Nothing is written."""
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
    chosen = [memory.rowid for memory in floor]
    prunable = [memory for memory in candidates if not memory.is_load_bearing]
    prunable.sort(key=lambda memory: (memory.activation, memory.rowid), reverse=True)
    for memory in prunable:
        if memory.tokens <= remaining:
            chosen.append(memory.rowid)
            remaining -= memory.tokens
    return sorted(chosen)


def _candidates(
    connection: sqlite3.Connection,
    path: Path | None,
    *,
    count_tokens: Callable[[str], int],
    now: datetime,
) -> Iterator[Candidate]:
    """Yield the active and the retired memories that have not expired."""
    rows = [_Row(*row) for row in connection.execute(_ROWS)]
    retired = None
    if path is not None and any(row.is_inactive for row in rows):
        retired = open_source(path).retired()
    written = creation_times([row.created_at for row in rows])
    for row, written_at in zip(rows, written, strict=True):
        if row.is_inactive and (retired is None or retired.at(row.rowid, row.memory_id) is None):
            continue  # the agent, and not a plan, made it inactive
        is_load_bearing = load_bearing(row.kind, row.tags_json)
        expires_at = _moment(row.expires_at)
        if expires_at is not None and expires_at < now and not is_load_bearing:
            continue
        tokens = count_tokens(f"{row.title}{row.body}")
        yield Candidate(
            rowid=row.rowid,
            tokens=tokens,
            is_load_bearing=is_load_bearing,
            activation=per_length(_activation(row, written_at, now), tokens),
        )


class _Row(NamedTuple):
    """A memory with its signals, as `_ROWS` selects it."""

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


def _activation(row: _Row, written_at: datetime | None, now: datetime) -> float:
    """Return the base-level activation of a memory by its signals."""
    age = 0.0 if written_at is None else (now - written_at) / _DAY
    count = row.access_count
    reads = count if isinstance(count, int) and count > 0 else 0
    if not reads:
        return base_level(age)
    last_read_at = _moment(row.last_accessed_at)
    idle = age if last_read_at is None else (now - last_read_at) / _DAY
    return base_level(age, idle, reads)


def creation_times(texts: Iterable[object]) -> list[datetime | None]:
    """Return when memories were written; a memory without a time takes that of a neighbour.

    >>> [at and at.day for at in creation_times(["soon", "2026-01-05", None, "2026-01-09"])]
    [5, 5, 5, 9]
    """
    moments = [_moment(text) for text in texts]
    latest = next((moment for moment in moments if moment is not None), None)
    filled = []
    for moment in moments:
        latest = moment or latest
        filled.append(latest)
    return filled


def _moment(text: object) -> datetime | None:
    """Return the moment of a text in UTC; None if it is none."""
    with suppress(ValueError):
        moment, _ = moment_and_zone(str(text))
        return moment.astimezone(UTC)
    return None
