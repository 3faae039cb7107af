"""Policies as a user of the package would write them, and any policy with the slow runner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

import numpy.typing as npt
import pandas as pd

from memlab.policies import (
    Activation,
    ImportanceBudget,
    ImportanceFloor,
    KeepAll,
    KeepRecent,
    NearDuplicate,
    Pipeline,
    Policy,
    PurgeSuperseded,
    TimeToLive,
    TokenBudget,
    ValueCap,
)
from memlab.policies.base import runner_name_of


@dataclass(frozen=True)
class EveryOther(Policy):
    """Keep memories at every other position; a minimal custom policy."""

    offset: int = field(
        default=0, metadata={"help": "which of two positions is deleted", "least": 0}
    )

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        evicted = rows.index[rows["position"] % 2 == self.offset % 2]
        return pd.Series("every other", index=evicted)


@dataclass(frozen=True)
class Crowded(Policy):
    """Drop the oldest active memory of the largest scope, and superseded ones with it."""

    most: int = field(metadata={"help": "memories there may be", "size": True})
    waits: timedelta = timedelta(0)
    how: Literal["oldest", "newest"] = "oldest"

    name: ClassVar[str] = "crowded"
    origin: ClassVar[str] = "a test: the largest scope loses memories"
    population: ClassVar[Literal["active", "superseded", "all"]] = "all"

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        if len(rows) <= self.most:
            return pd.Series(dtype="str")
        row = rows.index[0] if self.how == "oldest" else rows.index[-1]
        return pd.Series(["crowded"], index=[row])


@dataclass(frozen=True)
class NeverReferred(Policy):
    """Delete memories five positions old that were never referred to."""

    age: int = 5
    seen: frozenset[str] = field(default=frozenset(), init=False, compare=False)
    written: int = field(default=0, init=False, compare=False)

    learns: ClassVar[bool] = True

    def with_past(
        self, past: pd.DataFrame, references: pd.DataFrame | None = None
    ) -> "NeverReferred":
        learned = NeverReferred(self.age)
        targets = frozenset() if references is None else frozenset(references["target_id"])
        object.__setattr__(learned, "seen", targets)
        object.__setattr__(learned, "written", len(past))
        return learned

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        old = rows["position"] <= self.written - self.age
        evicted = rows.index[old & ~rows["memory_id"].isin(self.seen)]
        return pd.Series("never referred to", index=evicted)


@dataclass(frozen=True)
class ShortBodies(Policy):
    """Delete memories with a short body."""

    least: int = 10

    reads_bodies: ClassVar[bool] = True

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        return pd.Series("short", index=rows.index[rows["body"].str.len() < self.least])


class Hasty(TimeToLive):
    """A subclass that decides differently from its base."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        return pd.Series("hasty", index=rows.index)


@dataclass(frozen=True)
class RecentByUse(KeepRecent):
    """A subclass whose ranking depends on references, unlike that of its base."""

    def eviction_keys(
        self, rows: Mapping[str, Any] | pd.DataFrame, *, now: datetime
    ) -> tuple[npt.NDArray[Any], ...]:
        if "last_accessed_at" not in rows:
            return super().eviction_keys(rows, now=now)
        used = pd.Series(rows["last_accessed_at"]).to_numpy(dtype="datetime64[us]")
        return (used.astype("int64"),)


class AllAtOnce(Pipeline):
    """A pipeline that overrides the decision of its steps."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        evicted = super().evict(rows, now=now)
        return evicted if len(evicted) > 1 else evicted.iloc[:0]


DAY = timedelta(days=1)
SOME_OF_EACH: dict[str, Policy] = {
    "recent": KeepRecent(2),
    "newest by time": KeepRecent(3, by="created_at"),
    "ttl": TimeToLive(3 * DAY),
    "value": ValueCap(2),
    "value with a short half-life": ValueCap(4, half_life=2 * DAY, importance=0.5),
    "value by use alone": ValueCap(2, importance=0.0),
    "value of the whole store": ValueCap(3, scope=()),
    "value by agents": ValueCap(2, scope=("agent_id",)),
    "value by tags": ValueCap(1, scope=("tags",)),
    "value without weights": ValueCap(2, recency=0, importance=0),
    "budget": ImportanceBudget(2),
    "budget of the whole store": ImportanceBudget(2, scope=()),
    "floor": ImportanceFloor(0.4),
    "duplicates": NearDuplicate(0.6),
    "superseded": PurgeSuperseded(2 * DAY),
    "all": KeepAll(),
    "tokens": TokenBudget(35),
    "activation": Activation(2),
    "odek": Pipeline.odek(threshold=0.6, ttl=5 * DAY, keep=2),
    "memforge": Pipeline.memforge(threshold=0.3, max_items=2),
    "betterdb": Pipeline.betterdb(max_items=2),
    "nested pipelines": Pipeline(
        ImportanceFloor(0.2), Pipeline(PurgeSuperseded(2 * DAY), TokenBudget(35))
    ),
}
"""Every policy of the package, for small frames of a memory a day."""

OF_ONES_OWN: dict[str, Policy] = {
    "a custom policy": EveryOther(),
    "a custom policy over all rows": Crowded(4),
    "a policy with an option": Crowded(3, how="newest"),
    "a learning policy": NeverReferred(3),
    "a subclass": Hasty(),
    "a subclass with another ranking": RecentByUse(3),
    "a custom policy first": Pipeline(EveryOther(1), KeepRecent(3)),
    "a learning policy first": Pipeline(NeverReferred(4), ValueCap(3)),
    "a custom pipeline": AllAtOnce(ImportanceFloor(0.4), KeepRecent(2)),
    "a custom pipeline in a pipeline": Pipeline(AllAtOnce(ImportanceFloor(0.3)), KeepRecent(3)),
}


def asked(policy: Policy) -> Policy:
    """Return a policy with the same decisions and the slow runner."""
    if runner_name_of(policy) == "steps":
        return Pipeline(*(asked(step) for step in policy.steps))
    kind: Any = type(policy)

    def evict(self: Policy, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        return kind.evict(self, rows, now=now)

    def with_past(
        self: Policy, past: pd.DataFrame, references: pd.DataFrame | None = None
    ) -> Policy:
        return asked(kind.with_past(policy, past, references))

    attributes = {
        "name": policy.name,
        "origin": policy.origin,
        "evict": evict,
        "with_past": with_past,
    }
    slow = type(f"Asked{kind.__name__}", (kind,), attributes)
    copied = object.__new__(slow)
    copied.__dict__.update(policy.__dict__)
    return copied
