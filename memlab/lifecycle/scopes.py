"""Which scopes a row is in, which row of a scope goes next, and what is known between puts.

A scope is a set of labels: the agent, thread, namespace and tags that a row was written with. It
holds every row that has all of them, so scopes overlap. What was counted once need not be read
again for a put, as long as nobody else has written.
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from memlab.clock import as_age
from memlab.frame.fields import as_instant
from memlab.items import MemoryItem, is_load_bearing_memory
from memlab.policies import ValueCap, value_score
from memlab.store.signals import HAS_SIGNALS

Label = tuple[str, str]
Labels = frozenset[Label]

TAGS: Final = "tags"
ROW: Final = np.dtype(
    [("there", "?"), ("importance", "f8"), ("accessed", "M8[us]"), ("position", "i8")]
)
EPOCH: Final = "1970-01-01T00:00:00.000000+00:00"
MOST_KNOWN: Final = 10_000
"""Scopes that are kept in mind; beyond them all are counted again."""

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


class Shelves:
    """Scopes, found by the labels of a row that is in them.

    Each stands on the shelf of one of its labels, of which few others have it.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._shelves: dict[Label | None, dict[str, Labels]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Take in a scope that is not here."""
        labels = labels_in(key)
        least = min(
            labels, key=lambda label: (len(self._shelves.get(label, ())), label), default=None
        )
        self._shelves.setdefault(least, {})[key] = labels

    def holding(self, key: str) -> Iterator[str]:
        """Yield the scopes that a row with these labels is in."""
        labels = labels_in(key)
        for label in (None, *labels):
            for scope, wanted in self._shelves.get(label, {}).items():
                if wanted <= labels:
                    yield scope


class Ranked(NamedTuple):
    """A row that may go."""

    memory_id: str
    importance: float
    accessed: datetime
    position: int


class Ranking:
    """Rows of one scope that may go, as columns: which of them goes first is asked of all at once.

    A score mixes importance, which stands, with recency, which fades: the order of two rows changes
    as time passes, so no sorted index holds it.
    """

    def __init__(self, capacity: ValueCap, rows: Iterable[Ranked] = ()) -> None:
        self._capacity = capacity
        self._rows = np.zeros(64, ROW)
        self._names: dict[int, str] = {}
        self._free: list[int] = []
        self._at: dict[str, int] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Ranked) -> None:
        """Take in a row, in place of an older one with its id."""
        self.discard(row.memory_id)
        at = self._free.pop() if self._free else len(self._names)
        if at == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._at[row.memory_id], self._names[at] = at, row.memory_id
        self._rows[at] = True, row.importance, as_instant(row.accessed), row.position

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if (at := self._at.pop(memory_id, None)) is not None:
            self._rows["there"][at] = False
            self._free.append(at)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row, if it is here."""
        if (at := self._at.get(memory_id)) is not None:
            self._rows["accessed"][at] = as_instant(accessed)

    def lowest(self, now: datetime) -> str | None:
        """Return the id of the row that goes first: of the lowest score the longest unused."""
        if not self._at:
            return None
        rows = self._rows[: len(self._names)]
        score = value_score(
            as_instant(now) - rows["accessed"],
            rows["importance"],
            half_life=np.timedelta64(as_age(self._capacity.half_life)),
            recency_weight=self._capacity.recency,
            importance_weight=self._capacity.importance,
        )
        score[~rows["there"]] = np.inf
        (alike,) = np.nonzero(score == score.min())
        first = np.lexsort((rows["position"][alike], rows["accessed"][alike]))[0]
        return self._names[int(alike[first])]


@dataclass
class ScopeRows:
    """The active rows of a scope: how many, and those that may go, once it was too full."""

    count: int
    evictable: Ranking | None = None


class Scopes:
    """The scopes that have been counted, kept in step with what their store writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """Count every scope again when it is next asked for."""
        self._known: dict[str, ScopeRows] = {}
        self._shelves = Shelves()
        self._written: dict[str, Labels] | None = None

    def count(self, scope: str) -> int:
        """Return how many active rows a scope holds."""
        if scope not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self.forget()
            (count,) = self._connection.execute(
                f"SELECT count(*) {_ACTIVE_IN_SCOPE}", (self._within(scope),)
            ).fetchone()
            self._known[scope] = ScopeRows(count)
            self._shelves.add(scope)
        return self._known[scope].count

    def lowest(self, scope: str, capacity: ValueCap, now: datetime) -> str | None:
        """Return the row of a counted scope that goes first, None where none may."""
        rows = self._known[scope]
        if rows.evictable is None:
            rows.evictable = Ranking(capacity, self._evictable(scope))
        return rows.evictable.lowest(now)

    def enter(self, item: MemoryItem, signals: dict[str, Any], position: int) -> None:
        """Count in a row that was written."""
        if not item.is_active or signals["scope"] is None:
            return
        if self._written is not None:
            self._written[signals["scope"]] = labels_in(signals["scope"])
        ranked = None
        if not is_load_bearing_memory(item):
            accessed = datetime.fromisoformat(signals["last_accessed_at"])
            ranked = Ranked(item.memory_id, signals["importance"], accessed, position)
        for rows in self._holding(signals["scope"]):
            rows.count += 1
            if rows.evictable is not None and ranked is not None:
                rows.evictable.add(ranked)

    def leave(self, memory_id: str) -> None:
        """Count out a row that was active and has signals."""
        for rows in self._scopes_of(memory_id):
            rows.count -= 1
            if rows.evictable is not None:
                rows.evictable.discard(memory_id)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row that has signals."""
        for rows in self._scopes_of(memory_id):
            if rows.evictable is not None:
                rows.evictable.touch(memory_id, accessed)

    def _within(self, scope: str) -> str:
        """Return as JSON what rows of a scope were written with: its labels, and maybe more."""
        if self._written is None:
            found = self._connection.execute(_WRITTEN).fetchall()
            self._written = {key: labels_in(key) for (key,) in found}
        wanted = labels_in(scope)
        return json.dumps([key for key, labels in self._written.items() if wanted <= labels])

    def _evictable(self, scope: str) -> Iterator[Ranked]:
        found = self._connection.execute(
            "SELECT signal.memory_id, coalesce(signal.importance, 0.0), "
            f"coalesce(signal.last_accessed_at, ?), item.rowid {_ACTIVE_IN_SCOPE} "
            "AND NOT load_bearing(item.kind, item.tags_json)",
            (EPOCH, self._within(scope)),
        )
        for memory_id, importance, accessed, position in found:
            finite = importance if math.isfinite(importance) else 0.0
            yield Ranked(memory_id, finite, datetime.fromisoformat(accessed), position)

    def _scopes_of(self, memory_id: str) -> Iterator[ScopeRows]:
        row = self._connection.execute(
            "SELECT scope FROM memory_signals WHERE memory_id = ?", (memory_id,)
        ).fetchone()
        return self._holding(None if row is None else row[0])

    def _holding(self, key: str | None) -> Iterator[ScopeRows]:
        """Yield the known scopes that a row with these labels is in."""
        if key is not None:
            yield from (self._known[scope] for scope in self._shelves.holding(key))


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
    scopes = Shelves(scope for scope, _, _ in written)
    for labels, size, floor in written:
        for scope in scopes.holding(labels):
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
