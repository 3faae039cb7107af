"""What a start loads by need: the load-bearing memories, then the most active that fit."""

import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from memlab.base_activation import base_level, per_length
from memlab.clock import moment_and_zone
from memlab.errors import FloorExceedsBudgetWarning
from memlab.lifecycle.signals import load_bearing
from memlab.sources.opening import open_source
from memlab.store.signals import HAS_SIGNALS

CHARS_PER_TOKEN: Final = 4

_ROWS: Final = (
    "SELECT item.rowid, item.memory_id, item.kind, item.tags_json, item.title, item.body, "
    "item.created_at, item.superseded_by IS NOT NULL, signal.access_count, "
    "signal.last_accessed_at, signal.expires_at "
    f"FROM memory_items AS item LEFT JOIN memory_signals AS signal ON {HAS_SIGNALS} "
    "WHERE item.superseded_by IS NULL OR item.superseded_by = item.memory_id ORDER BY item.rowid"
)
_DAY: Final = timedelta(days=1)


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: a fourth of its characters, rounded up.

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
        By its length.
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
    """Return the rowids of what a start loads, in ascending order; nothing is written."""
    candidates = list(_candidates(connection, path, count_tokens=count_tokens, now=now))
    floor = [one for one in candidates if one.is_load_bearing]
    room = max_tokens - sum(one.tokens for one in floor)
    if room < 0:
        warnings.warn(
            f"the load-bearing memories alone take {max_tokens - room:,} tokens, more than the "
            f"{max_tokens:,} that a start may take; all of them are loaded, and nothing else",
            FloorExceedsBudgetWarning,
            stacklevel=3,
        )
    chosen = [one.rowid for one in floor]
    prunable = [one for one in candidates if not one.is_load_bearing]
    for one in sorted(prunable, key=lambda one: (one.activation, one.rowid), reverse=True):
        if one.tokens <= room:
            chosen.append(one.rowid)
            room -= one.tokens
    return sorted(chosen)


def _candidates(
    connection: sqlite3.Connection,
    path: Path | None,
    *,
    count_tokens: Callable[[str], int],
    now: datetime,
) -> Iterator[Candidate]:
    """Yield active, unexpired and retired memories; none that another has superseded."""
    rows = connection.execute(_ROWS).fetchall()
    retired = None
    if path is not None and any(row[7] for row in rows):
        retired = open_source(path).retired()
    born = births([row[6] for row in rows])
    for (rowid, memory_id, kind, tags, title, body, _, is_away, *signals), at in zip(
        rows, born, strict=True
    ):
        is_floor = load_bearing(kind, tags)
        count, last, expires = signals
        if is_away and (retired is None or retired.at(rowid, memory_id) is None):
            continue  # the agent withdrew it itself
        ends = _moment(expires)
        if ends is not None and ends < now and not is_floor:
            continue
        tokens = count_tokens(f"{title}{body}")
        age = 0.0 if at is None else (now - at) / _DAY
        used = _moment(last)
        reads = count if isinstance(count, int) and count > 0 else 0
        idle = None
        if reads:
            idle = age if used is None else (now - used) / _DAY
        activation = per_length(base_level(age, idle, reads), tokens)
        yield Candidate(rowid, tokens, is_load_bearing=is_floor, activation=activation)


def births(texts: Iterable[object]) -> list[datetime | None]:
    """Return when memories were written, in order; for one that does not say when a neighbour was.

    >>> [at and at.day for at in births(["soon", "2026-01-05", None, "2026-01-09"])]
    [5, 5, 5, 9]
    """
    known = [_moment(text) for text in texts]
    latest = next((moment for moment in known if moment is not None), None)
    filled = []
    for moment in known:
        latest = moment or latest
        filled.append(latest)
    return filled


def _moment(text: object) -> datetime | None:
    with suppress(ValueError):
        moment, _ = moment_and_zone(str(text))
        return moment.astimezone(UTC)
    return None
