"""The side tables of a lifecycle store: a row of signals for each item, scopes and counters."""

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
"""A field of a scope and its value, such as ``("agent_id", "a")``; a tag has the field ``tags``."""
Labels = frozenset[Label]
"""All labels of a row or of a scope. A row is in a scope if it has all labels of the scope."""

TAGS: Final = "tags"

WITH_ITEMS: Final = f"FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS}"
"""Joins the signals with their items, in SQL."""
_ACTIVE_IN_SCOPES: Final = (
    f"{WITH_ITEMS} "
    "WHERE signal.scope IN (SELECT value FROM json_each(?)) AND item.superseded_by IS NULL"
)
"""Selects the active rows whose :func:`scope_key` is in a JSON list."""
UPDATE_USE: Final = (
    "UPDATE memory_signals AS signal SET access_count = coalesce(access_count, 0) + "
    "(coalesce(access_count, 0) = 0 OR substr(last_accessed_at, 1, 10) <> substr(:at, 1, 10)), "
    "last_accessed_at = :at, graduated = coalesce(:graduated, graduated) "
    "WHERE memory_id = :memory_id "
    f"AND EXISTS (SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS} "
    "AND (signal.expires_at IS NULL OR signal.expires_at >= :at "
    "OR load_bearing(item.kind, item.tags_json)))"
)
"""Records a use of a row with signals that has not expired.

The number of uses is the number of UTC days with a use."""
INSERT_FIRST_USE: Final = (
    "INSERT OR REPLACE INTO memory_signals "
    "(memory_id, position, access_count, last_accessed_at, graduated) "
    "SELECT memory_id, rowid, 1, :at, coalesce(:graduated, 0) FROM memory_items AS item "
    "WHERE memory_id = :memory_id "
    f"AND NOT EXISTS (SELECT 1 FROM memory_signals AS signal WHERE {HAS_SIGNALS})"
)
"""Creates the signals of a row without signals, which a plain store wrote, at its first use.

Such a row has no scope and is never capped."""
_NEXT_KEY: Final = "SELECT min(scope) FROM memory_signals WHERE scope > ?"
"""Selects the first scope key after another one."""

_CREATE_SIDE_TABLES: Final = (
    "CREATE INDEX IF NOT EXISTS memory_signals_scope ON memory_signals (scope)",
    (
        "CREATE INDEX IF NOT EXISTS memory_signals_expiry ON memory_signals (expires_at) "
        "WHERE expires_at IS NOT NULL"
    ),
    "CREATE TABLE IF NOT EXISTS memory_lifecycle (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)


class Trust(StrEnum):
    """Trust in the writer of a memory.

    Examples
    --------
    >>> Trust("untrusted").rank, Trust.USER_APPROVED.rank
    (0, 1)
    """

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    USER_APPROVED = "user-approved"
    AUTO_APPROVED = "auto-approved"

    @classmethod
    def _missing_(cls, value: object) -> "Trust":
        raise ValueError(f"trust={value!r:.80} is not one of {', '.join(cls)}")

    @property
    def rank(self) -> int:
        """0 for an untrusted writer, 1 for any other."""
        return int(self is not Trust.UNTRUSTED)


@cache
def load_bearing(kind: Any, tags_json: Any) -> bool:
    """Return whether a row is load-bearing; a row that cannot be classified counts as such."""
    try:
        return is_load_bearing_stored(kind, tags_json)
    except (AttributeError, TypeError, ValueError):
        return True


def as_text(moment: datetime) -> str:
    """Return a moment in UTC as text that sorts by time."""
    aware(moment, call="LifecycleStore")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def expiry_of(ttl: Age | float | None, now: datetime) -> str | None:
    """Return the time of expiry of a row that is written now; None if it never expires."""
    if ttl is None:
        return None
    if not isinstance(ttl, Age) and not _is_finite(ttl):
        raise ValueError(f"ttl={ttl!r} is not an age or a finite number of seconds")
    try:
        duration = as_age(ttl) if isinstance(ttl, Age) else timedelta(seconds=ttl)
        if duration <= timedelta(0):
            return None
        return as_text(now + duration)
    except OverflowError as error:
        raise ValueError(
            f"ttl={ttl!r} ends beyond the calendar; leave it out to keep it"
        ) from error


def checked_importance(importance: float, *, bounded: bool) -> float:
    """Return an importance as a float; raise ValueError if it is out of range.

    A bounded importance must be in [0, 1]. Any other importance must be finite.
    """
    if not _is_finite(importance) or (bounded and not 0 <= importance <= 1):
        requirement = "in [0, 1], where a capacity goes by it" if bounded else "that is finite"
        raise ValueError(f"importance={importance!r} is not a number {requirement}")
    return float(importance)


def _is_finite(value: object) -> bool:
    """Return whether a value is a finite number, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def scope_fields(connection: sqlite3.Connection) -> tuple[str, ...] | None:
    """Return the fields by which a store groups rows into scopes; None if it has no side tables."""
    (table_count,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
        "AND name IN ('memory_signals', 'memory_lifecycle')"
    ).fetchone()
    if table_count < 2:
        return None
    row = connection.execute("SELECT value FROM memory_lifecycle WHERE name = 'scopes'").fetchone()
    if row is None:
        return None
    (fields_json,) = row
    return tuple(json.loads(fields_json))


def prepare(connection: sqlite3.Connection, fields: tuple[str, ...]) -> None:
    """Create the side tables, and set the scope of every row according to `fields`.

    The caller has begun a transaction.
    """
    connection.execute(CREATE_SIGNALS)
    if not signal_columns(connection):
        raise StoreError(
            "the store has a table memory_signals that another program made; nothing was changed: "
            "rename that table, or open the store by SqliteMemoryStore"
        )
    for statement in _CREATE_SIDE_TABLES:
        connection.execute(statement)
    rows = connection.execute(
        "SELECT signal.memory_id, signal.agent_id, signal.thread_id, signal.namespace, "
        f"item.tags_json {WITH_ITEMS}"
    ).fetchall()
    scopes = []
    for memory_id, agent_id, thread_id, namespace, tags_json in rows:
        values = {"agent_id": agent_id, "thread_id": thread_id, "namespace": namespace}
        scopes.append((scope_key(fields, values, _tags(tags_json)), memory_id))
    connection.executemany("UPDATE memory_signals SET scope = ? WHERE memory_id = ?", scopes)
    connection.execute(
        "INSERT OR REPLACE INTO memory_lifecycle VALUES ('scopes', ?)", (json.dumps(fields),)
    )


def _tags(tags_json: str) -> tuple[str, ...]:
    """Return tags from JSON; an empty tuple if they cannot be read."""
    try:
        return strings_of(tags_json)
    except (ValueError, TypeError):
        return ()


def expired_ids(
    connection: sqlite3.Connection, at: str, condition: str = "", *values: str
) -> list[str]:
    """Return the ids of the rows that have expired and are not load-bearing.

    Parameters
    ----------
    connection : sqlite3.Connection
        The store.
    at : str
        The time, as :func:`as_text` returns it.
    condition : str
        SQL that begins with AND and restricts the rows.
    *values : str
        The parameters of `condition`.
    """
    expired = connection.execute(
        f"SELECT signal.memory_id {WITH_ITEMS} WHERE signal.expires_at < ? {condition} "
        "AND NOT load_bearing(item.kind, item.tags_json)",
        (at, *values),
    )
    return [memory_id for (memory_id,) in expired]


def scope_key(
    fields: Iterable[str], values: Mapping[str, str | None], tags: Iterable[str]
) -> str | None:
    """Return the labels of a row as JSON; None if it has a value for none of the fields.

    Case is ignored, as in BetterDB's index, and white space around a tag is ignored, too.

    >>> scope_key(("agent_id", "tags"), {"agent_id": "A"}, ("y", "X"))
    '{"agent_id": "a", "tags": ["x", "y"]}'
    """
    fields = tuple(fields)
    labels: dict[str, Any] = {}
    for name in fields:
        value = values.get(name)
        if value is not None:
            labels[name] = value.lower()
    if TAGS in fields:
        distinct_tags = sorted({tag.strip().lower() for tag in tags})
        if distinct_tags:
            labels[TAGS] = distinct_tags
    if fields and not labels:
        return None
    return json.dumps(labels, sort_keys=True)


@lru_cache(maxsize=100_000)
def labels_in(key: str) -> Labels:
    """Return the labels in a key that :func:`scope_key` made."""
    fields = json.loads(key)
    tags = fields.pop(TAGS, ())
    labels = set(fields.items())
    labels.update((TAGS, tag) for tag in tags)
    return frozenset(labels)


def scopes_within(connection: sqlite3.Connection, scope: str) -> str:
    """List the keys of all scopes whose rows belong to a scope too, as JSON.

    These keys have all labels of the scope, and perhaps others.
    """
    keys = list[str]()
    key = ""
    while True:
        (key,) = connection.execute(_NEXT_KEY, (key,)).fetchone()
        if not key:
            return json.dumps(keys)
        if labels_in(scope) <= labels_in(key):
            keys.append(key)
        else:
            key = _last_key_without(scope, key)


def _last_key_without(scope: str, key: str) -> str:
    """Return a text to skip keys: the next key with all labels of a scope comes after this text.

    `key` lacks one of the labels. The keys are in sorted order, and so are the fields of a key. If
    a key has a field or a value that sorts after a missing label, no later key with the same
    beginning has this label. All these keys are skipped.
    """
    prefix = "{"
    missing_labels = {name: value for name, value in json.loads(scope).items() if name != TAGS}
    for name, value in json.loads(key).items():
        if missing_labels:
            missing_name, missing_value = next(iter(missing_labels.items()))
            if (name, value) == (missing_name, missing_value):
                del missing_labels[missing_name]
            elif name >= missing_name:
                with_missing_label = prefix + _member({missing_name: missing_value})
                if with_missing_label > key:
                    return with_missing_label
                # "~" sorts after the quotation mark that begins a field, and so after all keys
                # with this beginning.
                return f"{prefix}~"
        prefix += f"{_member({name: value})}, "
    return key


def _member(field: dict[str, Any]) -> str:
    """Return one field and its value as JSON, without the braces."""
    return json.dumps(field)[1:-1]


def count_active(connection: sqlite3.Connection, scopes_json: str) -> int:
    """Return the number of active rows in the scopes that :func:`scopes_within` lists."""
    (count,) = connection.execute(f"SELECT count(*) {_ACTIVE_IN_SCOPES}", (scopes_json,)).fetchone()
    return int(count)


def eviction_order(
    connection: sqlite3.Connection, scopes_json: str, capacity: "ValueCap", now: datetime
) -> list[str]:
    """Return the ids of the rows of a scope that may be evicted, the lowest value first.

    The scope is given by the result of :func:`scopes_within`.
    """
    rows = connection.execute(
        "SELECT signal.memory_id, signal.importance, signal.last_accessed_at, item.rowid "
        f"{_ACTIVE_IN_SCOPES} AND NOT load_bearing(item.kind, item.tags_json)",
        (scopes_json,),
    ).fetchall()
    if not rows:
        return []
    ids, importance, accessed_at, position = zip(*rows, strict=True)
    import numpy as np  # a store without a capacity needs the standard library alone

    # Times are in UTC, as put and touch write them. A missing time stays None, which numpy turns
    # into NaT.
    times = [None if text is None else text.removesuffix("+00:00") for text in accessed_at]
    columns: dict[str, Any] = {
        c.POSITION: np.array(position),
        c.IMPORTANCE: np.array(importance, np.float64),
        c.LAST_ACCESSED_AT: np.array(times, "datetime64[us]"),
    }
    eviction_keys = capacity.eviction_keys(columns, now=now)
    # lexsort takes the most important key last. Rows with equal keys are in order of position.
    order = np.lexsort((columns[c.POSITION], *reversed(eviction_keys)))
    return [ids[row_number] for row_number in order]


@dataclass(frozen=True, kw_only=True)
class LifecycleStats:
    """Counters of a lifecycle store, and the size of its scopes.

    Attributes
    ----------
    sizes : mapping of str to int
        Number of active rows by scope, including load-bearing ones, for every scope with which a
        row was written. A scope is named by its fields and tags as JSON. Scopes overlap; a row
        counts in each of its scopes.
    evicted : mapping of str to int
        Rows removed since the store was created, by reason: ``lowest-value``, ``expired``,
        ``near-duplicate``.
    not_stored : int
        Items that were not written because they were untrusted and repeated a trusted row.
    enforcement_failures : int
        Number of times that this object could not evict or archive after a put. The rows that were
        put stay.
    last_failure : str or None
        Message of the last failure.
    floor_over_capacity : mapping of str to int
        Scopes whose load-bearing rows alone exceed the capacity, and the number of these rows.

    Examples
    --------
    >>> from memlab.lifecycle import LifecycleStore
    >>> with LifecycleStore(":memory:") as store:
    ...     stats = store.stats()
    >>> stats.not_stored, stats.enforcement_failures
    (0, 0)
    """

    sizes: Mapping[str, int]
    evicted: Mapping[str, int]
    not_stored: int
    enforcement_failures: int
    last_failure: str | None
    floor_over_capacity: Mapping[str, int]


def count_not_stored(connection: sqlite3.Connection) -> None:
    """Increment the counter of items that were not written."""
    connection.execute(
        "INSERT INTO memory_lifecycle VALUES ('not-stored', 1) "
        "ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


def read_stats(
    connection: sqlite3.Connection, capacity: int | None, failures: int, last_failure: str | None
) -> LifecycleStats:
    """Return the sizes of a store's scopes and its counters."""
    counts_by_key = connection.execute(
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
    sizes, floors = _scope_sizes(counts_by_key)
    floor_over_capacity = {}
    if capacity is not None:
        floor_over_capacity = {scope: floor for scope, floor in floors.items() if floor > capacity}
    return LifecycleStats(
        sizes=sizes,
        evicted=dict(evicted),
        not_stored=not_stored,
        enforcement_failures=failures,
        last_failure=last_failure,
        floor_over_capacity=floor_over_capacity,
    )


def _scope_sizes(
    counts_by_key: list[tuple[str, int, int]],
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of active and of load-bearing rows of each scope.

    Rows with a key count in every scope whose labels are all in the key. Scopes are grouped by the
    last of their sorted labels, so that each key is compared with few scopes: this label is the
    thread if the scope has one, and few scopes share a thread.

    Parameters
    ----------
    counts_by_key : list of tuple
        Each :func:`scope_key` with its number of active rows and its number of load-bearing rows.
        Every key also is a scope.
    """
    scopes_by_label: defaultdict[Label | None, list[str]] = defaultdict(list)
    for scope, _, _ in counts_by_key:
        last_label = max(labels_in(scope), default=None)
        scopes_by_label[last_label].append(scope)
    sizes = Counter[str]()
    floors = Counter[str]()
    for key, size, floor in counts_by_key:
        labels = labels_in(key)
        for label in (None, *labels):
            for scope in scopes_by_label[label]:
                if labels_in(scope) <= labels:
                    sizes[scope] += size
                    floors[scope] += floor
    return dict(sizes), dict(floors)
