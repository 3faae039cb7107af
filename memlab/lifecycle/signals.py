"""What a lifecycle store keeps beside its items: a row of signals each, scopes and counters."""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from memlab import columns as c
from memlab.clock import Age, as_age, aware
from memlab.errors import StoreError
from memlab.items import is_load_bearing_stored, strings_of
from memlab.store.signals import CREATE_SIGNALS, HAS_SIGNALS, signal_columns

if TYPE_CHECKING:
    from memlab.policies import ValueCap

Label = tuple[str, str]
Labels = frozenset[Label]

TAGS: Final = "tags"

WITH_ITEMS: Final = f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS}"
_ACTIVE_IN_SCOPE: Final = (
    f"{WITH_ITEMS} "
    "WHERE signal.scope IN (SELECT value FROM json_each(?)) AND item.superseded_by IS NULL"
)
REINFORCE: Final = (
    "UPDATE memory_signals AS signal SET access_count = coalesce(access_count, 0) + "
    "(coalesce(access_count, 0) = 0 OR substr(last_accessed_at, 1, 10) <> substr(:at, 1, 10)), "
    "last_accessed_at = :at, graduated = coalesce(:graduated, graduated) "
    "WHERE memory_id = :memory_id "
    f"AND EXISTS (SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS} "
    "AND (signal.expires_at IS NULL OR signal.expires_at >= :at "
    "OR load_bearing(item.kind, item.tags_json)))"
)
"""Counts a UTC day of access of one row that is there and has not expired."""
FIRST_USE: Final = (
    "INSERT OR REPLACE INTO memory_signals "
    "(memory_id, position, access_count, last_accessed_at, graduated) "
    "SELECT memory_id, rowid, 1, :at, coalesce(:graduated, 0) FROM memory_items AS item "
    "WHERE memory_id = :memory_id "
    f"AND NOT EXISTS (SELECT 1 FROM memory_signals AS signal WHERE {HAS_SIGNALS})"
)
"""Begins the signals of a row that a plain store wrote: it has no scope, so it is never capped."""
_NEXT_SCOPE: Final = "SELECT min(scope) FROM memory_signals WHERE scope > ?"

_SCHEMA: Final = (
    "CREATE INDEX IF NOT EXISTS memory_signals_scope ON memory_signals (scope)",
    (
        "CREATE INDEX IF NOT EXISTS memory_signals_expiry ON memory_signals (expires_at) "
        "WHERE expires_at IS NOT NULL"
    ),
    "CREATE TABLE IF NOT EXISTS memory_lifecycle (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)


class Trust(StrEnum):
    """Who stands behind a memory."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    USER_APPROVED = "user-approved"
    AUTO_APPROVED = "auto-approved"

    @classmethod
    def _missing_(cls, value: object) -> "Trust":
        raise ValueError(f"trust={value!r:.80} is not one of {', '.join(cls)}")

    @property
    def rank(self) -> int:
        """0 for what nobody stands behind, 1 for anything else."""
        return int(self is not Trust.UNTRUSTED)


@cache
def load_bearing(kind: Any, tags_json: Any) -> bool:
    """Return the predicate's verdict; what cannot be classified is load-bearing."""
    try:
        return is_load_bearing_stored(kind, tags_json)
    except (AttributeError, TypeError, ValueError):
        return True


def as_text(moment: datetime) -> str:
    """Return a time so that text sorts as time does."""
    aware(moment, call="LifecycleStore")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def expiry_of(ttl: Age | float | None, now: datetime) -> str | None:
    """Return when a row written now expires; None for one that does not."""
    if ttl is None:
        return None
    if not isinstance(ttl, Age) and not _is_finite(ttl):
        raise ValueError(f"ttl={ttl!r} is not an age or a finite number of seconds")
    try:
        life = as_age(ttl) if isinstance(ttl, Age) else timedelta(seconds=ttl)
        return as_text(now + life) if life > timedelta(0) else None
    except OverflowError as error:
        raise ValueError(
            f"ttl={ttl!r} ends beyond the calendar; leave it out to keep it"
        ) from error


def checked_importance(importance: float, *, bounded: bool) -> float:
    """Return importance as a float."""
    if not _is_finite(importance) or (bounded and not 0 <= importance <= 1):
        wanted = "in [0, 1], where a capacity goes by it" if bounded else "that is finite"
        raise ValueError(f"importance={importance!r} is not a number {wanted}")
    return float(importance)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def scope_fields(connection: sqlite3.Connection) -> tuple[str, ...] | None:
    """Return what scopes are made of in a store that has side tables, None in any other."""
    (tables,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
        "AND name IN ('memory_signals', 'memory_lifecycle')"
    ).fetchone()
    if tables < 2:
        return None
    row = connection.execute("SELECT value FROM memory_lifecycle WHERE name = 'scopes'").fetchone()
    return tuple(json.loads(row[0])) if row else None


def prepare(connection: sqlite3.Connection, fields: tuple[str, ...]) -> None:
    """Make the side tables, and give every row the scope that `fields` say, in a transaction."""
    connection.execute(CREATE_SIGNALS)
    if not signal_columns(connection):
        raise StoreError(
            "the store has a table memory_signals that another program made; nothing was changed: "
            "rename that table, or open the store by SqliteMemoryStore"
        )
    for statement in _SCHEMA:
        connection.execute(statement)
    rows = connection.execute(
        "SELECT signal.memory_id, signal.agent_id, signal.thread_id, signal.namespace, "
        f"item.tags_json {WITH_ITEMS}"
    ).fetchall()
    scopes = (
        (scope_key(fields, dict(zip(c.AGENT_SCOPE, known, strict=True)), _tags(tags)), memory_id)
        for memory_id, *known, tags in rows
    )
    connection.executemany("UPDATE memory_signals SET scope = ? WHERE memory_id = ?", scopes)
    connection.execute(
        "INSERT OR REPLACE INTO memory_lifecycle VALUES ('scopes', ?)", (json.dumps(fields),)
    )


def _tags(tags_json: str) -> tuple[str, ...]:
    try:
        return strings_of(tags_json)
    except (ValueError, TypeError):
        return ()


def expired_ids(connection: sqlite3.Connection, at: str, also: str = "", *values: str) -> list[str]:
    """Return the ids of rows that have expired and are still in the file; none load-bearing."""
    expired = connection.execute(
        f"SELECT signal.memory_id {WITH_ITEMS} WHERE signal.expires_at < ? {also} "
        "AND NOT load_bearing(item.kind, item.tags_json)",
        (at, *values),
    )
    return [memory_id for (memory_id,) in expired]


def scope_key(
    fields: Iterable[str], values: Mapping[str, str | None], tags: Iterable[str]
) -> str | None:
    """Return the labels of a row as JSON, or None when none of the scope's fields is set.

    Case makes no difference, as in BetterDB's index, nor does white space around a tag.

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
    found = []
    at = ""
    while at := connection.execute(_NEXT_SCOPE, (at,)).fetchone()[0]:
        if labels_in(scope) <= labels_in(at):
            found.append(at)
        else:
            at = _passed(at, scope)
    return json.dumps(found)


def _passed(key: str, scope: str) -> str:
    """Return up to where no key after this one has all labels of a scope: fields are sorted."""
    begun = "{"
    wanted = [each for each in json.loads(scope).items() if each[0] != TAGS]
    for label in json.loads(key).items():
        if wanted and label == wanted[0]:
            del wanted[0]
        elif wanted and label[0] >= wanted[0][0]:
            least = begun + json.dumps(dict(wanted[:1]))[1:-1]
            return least if least > key else f"{begun}~"
        begun += f"{json.dumps(dict([label]))[1:-1]}, "
    return key


def size_within(connection: sqlite3.Connection, keys: str) -> int:
    """Return how many active rows a scope holds, by its :func:`keys_within`."""
    (count,) = connection.execute(f"SELECT count(*) {_ACTIVE_IN_SCOPE}", (keys,)).fetchone()
    return int(count)


def lowest_within(
    connection: sqlite3.Connection, keys: str, capacity: "ValueCap", now: datetime
) -> list[str]:
    """Return the ids of the rows of a scope that may go: those of the lowest value first."""
    found = connection.execute(
        "SELECT signal.memory_id, signal.importance, signal.last_accessed_at, item.rowid "
        f"{_ACTIVE_IN_SCOPE} AND NOT load_bearing(item.kind, item.tags_json)",
        (keys,),
    ).fetchall()
    if not found:
        return []
    ids, importance, accessed, position = zip(*found, strict=True)
    import numpy as np  # a store without a capacity needs the standard library alone

    # In UTC, as put and touch have it.
    times = [each and each.removesuffix("+00:00") for each in accessed]
    rows: dict[str, Any] = {
        c.POSITION: np.array(position),
        c.IMPORTANCE: np.array(importance, np.float64),
        c.LAST_ACCESSED_AT: np.array(times, "datetime64[us]"),
    }
    worth = capacity.eviction_keys(rows, now=now)
    return [ids[at] for at in np.lexsort((rows[c.POSITION], *worth[::-1]))]


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
    not_stored : int
        Items that were not written, since they were untrusted and repeated a trusted row.
    enforcement_failures : int
        How often this object could not evict or archive what a put asked for. The puts stand.
    last_failure : str or None
        What the last of them said.
    floor_over_capacity : mapping of str to int
        Scopes whose load-bearing rows alone exceed the capacity, and how many rows that is.
    """

    sizes: Mapping[str, int]
    evicted: Mapping[str, int]
    not_stored: int
    enforcement_failures: int
    last_failure: str | None
    floor_over_capacity: Mapping[str, int]


def count_not_stored(connection: sqlite3.Connection) -> None:
    """Count an item that was not written."""
    connection.execute(
        "INSERT INTO memory_lifecycle VALUES ('not-stored', 1) "
        "ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


def read_stats(
    connection: sqlite3.Connection, slots: int | None, failures: int, last_failure: str | None
) -> LifecycleStats:
    """Count a store's scopes, each with what overlaps it, and read what was evicted from it."""
    written = connection.execute(
        "SELECT signal.scope, count(*), sum(load_bearing(item.kind, item.tags_json)) "
        f"{WITH_ITEMS} WHERE item.superseded_by IS NULL AND signal.scope IS NOT NULL "
        "GROUP BY signal.scope"
    ).fetchall()
    evicted = connection.execute(
        "SELECT substr(name, 9), value FROM memory_lifecycle WHERE name GLOB 'evicted:*'"
    ).fetchall()
    not_stored = connection.execute(
        "SELECT coalesce(max(value), 0) FROM memory_lifecycle WHERE name = 'not-stored'"
    ).fetchone()[0]
    sizes = Counter[str]()
    floors = Counter[str]()
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
        not_stored=not_stored,
        enforcement_failures=failures,
        last_failure=last_failure,
        floor_over_capacity=over,
    )
