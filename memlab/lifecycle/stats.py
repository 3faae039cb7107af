"""What a lifecycle store has done, and how full its scopes are."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memlab.lifecycle.labels import Shelves
from memlab.store.signals import HAS_SIGNALS


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
