"""Which scopes a row is in, and which rows of a scope go next.

A scope is a set of labels: the agent, thread, namespace and tags that a row was written with. It
holds every row that has all of them, so scopes overlap.
"""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np

from memlab.frame.fields import as_instant
from memlab.policies import ValueCap, value_score
from memlab.store.signals import HAS_SIGNALS

Label = tuple[str, str]
Labels = frozenset[Label]

TAGS: Final = "tags"
EPOCH: Final = "1970-01-01T00:00:00.000000+00:00"

_ACTIVE_IN_SCOPE: Final = (
    f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS} "
    "WHERE signal.scope IN (SELECT value FROM json_each(?)) AND item.superseded_by IS NULL"
)
# One step down the index for each distinct value.
_WRITTEN: Final = (
    "WITH RECURSIVE written(scope) AS (SELECT min(scope) FROM memory_signals UNION ALL "
    "SELECT (SELECT min(scope) FROM memory_signals WHERE scope > written.scope) FROM written "
    "WHERE written.scope IS NOT NULL) SELECT scope FROM written WHERE scope IS NOT NULL"
)


def scope_key(
    fields: Iterable[str], values: Mapping[str, str | None], tags: Iterable[str]
) -> str | None:
    """Return the labels of a row as JSON, or None when none of the scope's fields is set.

    Case makes no difference, as in BetterDB's index, nor does white space around a tag.

    Examples
    --------
    >>> scope_key(("agent_id", "tags"), {"agent_id": "A"}, ("y", "X"))
    '{"agent_id": "a", "tags": ["x", "y"]}'
    """
    fields = tuple(fields)
    known: dict[str, Any] = {
        name: value.lower() for name in fields if (value := values.get(name)) is not None
    }
    if TAGS in fields and (wanted := sorted({tag.strip().lower() for tag in tags})):
        known[TAGS] = wanted
    return json.dumps(known, sort_keys=True) if known or not fields else None


@lru_cache(maxsize=100_000)
def labels_in(key: str) -> Labels:
    """Return the labels that :func:`scope_key` has written down."""
    known = json.loads(key)
    tags = known.pop(TAGS, ())
    return frozenset([*known.items(), *((TAGS, tag) for tag in tags)])


def keys_within(connection: sqlite3.Connection, scope: str) -> str:
    """Return as JSON what rows of a scope were written with: its labels, and maybe more."""
    wanted = labels_in(scope)
    return json.dumps([key for (key,) in connection.execute(_WRITTEN) if wanted <= labels_in(key)])


def size_within(connection: sqlite3.Connection, keys: str) -> int:
    """Return how many active rows a scope holds, by its :func:`keys_within`."""
    (count,) = connection.execute(f"SELECT count(*) {_ACTIVE_IN_SCOPE}", (keys,)).fetchone()
    return int(count)


def lowest_within(
    connection: sqlite3.Connection, keys: str, capacity: ValueCap, now: datetime
) -> list[str]:
    """Return the ids of the rows of a scope that may go: those of the lowest value first."""
    found = connection.execute(
        "SELECT signal.memory_id, coalesce(signal.importance, 0.0), "
        f"coalesce(signal.last_accessed_at, '{EPOCH}'), item.rowid {_ACTIVE_IN_SCOPE} "
        "AND NOT load_bearing(item.kind, item.tags_json)",
        (keys,),
    ).fetchall()
    if not found:
        return []
    ids, importance, accessed, position = zip(*found, strict=True)
    moments = (datetime.fromisoformat(each).astimezone(UTC) for each in accessed)
    last = np.array([moment.replace(tzinfo=None) for moment in moments], "datetime64[us]")
    score = value_score(
        as_instant(now) - last,
        np.array([each if math.isfinite(each) else 0.0 for each in importance]),
        half_life=np.timedelta64(capacity.half_life),
        recency_weight=capacity.recency,
        importance_weight=capacity.importance,
    )
    return [ids[at] for at in np.lexsort((position, last, score))]


@dataclass(frozen=True, kw_only=True)
class LifecycleStats:
    """What a lifecycle store has done, and how full its scopes are.

    Attributes
    ----------
    sizes : mapping of str to int
        Active rows by scope, load-bearing ones included, for every scope that a row was written
        with. A scope is its fields and tags as JSON. Scopes overlap, and a row counts in each.
    evicted : mapping of str to int
        Rows removed since the store began, by reason: ``lowest-value``, ``expired``,
        ``near-duplicate``.
    enforcement_failures : int
        How often this object could not enforce a capacity after a put. The puts stand.
    last_failure : str or None
        What the last of them said.
    floor_over_capacity : mapping of str to int
        Scopes whose load-bearing rows alone exceed the capacity, and how many rows that is.
    """

    sizes: Mapping[str, int]
    evicted: Mapping[str, int]
    enforcement_failures: int
    last_failure: str | None
    floor_over_capacity: Mapping[str, int]


def read_stats(
    connection: sqlite3.Connection, slots: int | None, *, failures: int, last_failure: str | None
) -> LifecycleStats:
    """Count a store's scopes, each with what overlaps it, and read what was evicted from it."""
    written = connection.execute(
        "SELECT signal.scope, count(*), sum(load_bearing(item.kind, item.tags_json)) "
        f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS} "
        "WHERE item.superseded_by IS NULL AND signal.scope IS NOT NULL "
        "GROUP BY signal.scope"
    ).fetchall()
    evicted = connection.execute(
        "SELECT substr(name, 9), value FROM memory_lifecycle WHERE name GLOB 'evicted:*'"
    ).fetchall()
    sizes, floors = Counter[str](), Counter[str]()
    # Each scope lies at one of its labels, threads first: few others have that.
    lying: defaultdict[Label | None, list[str]] = defaultdict(list)
    for scope, _, _ in written:
        lying[max(labels_in(scope), default=None)].append(scope)
    for key, size, floor in written:
        labels = labels_in(key)
        for scope in (each for label in (None, *labels) for each in lying[label]):
            if labels_in(scope) <= labels:
                sizes[scope] += size
                floors[scope] += floor
    over = {scope: floor for scope, floor in floors.items() if slots is not None and floor > slots}
    return LifecycleStats(
        sizes=dict(sizes),
        evicted=dict(evicted),
        enforcement_failures=failures,
        last_failure=last_failure,
        floor_over_capacity=over,
    )
