"""Policies of worth: a cap by decaying value, a budget and a floor by importance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.frame.arrays import as_instant
from memlab.policies.base import CappedPolicy, DatedPolicy, Runner
from memlab.policies.optional_columns import ALWAYS, numbers, times
from memlab.policies.scoping import Scope, scopes_apart, scopes_given
from memlab.scoring import HALF_LIFE, IMPORTANCE_WEIGHT, RECENCY_WEIGHT, value_score

SCOPE_FIELDS: Final = frozenset({*col.AGENT_SCOPE, col.TAGS})


@dataclass(frozen=True)
class ValueCap(CappedPolicy):
    """Cap a scope by importance and recency of use; the least valuable rows go.

    The score is :func:`memlab.scoring.value_score` of the age since the last access, which may lie
    ahead. Lowest goes first, ties toward the older last access, then toward the older row. A
    missing or non-finite importance counts as 0, a missing last access as the epoch. Load-bearing
    rows take up room in their scope and never go.

    A scope is what a row was written with: every field of `scope` that it has, and every tag. What
    matches all of them counts, so scopes overlap: that of a row with an agent alone holds all
    threads of the agent. Case makes no difference. A row without any of them is never capped. A
    frame with no column for an agent, thread or namespace keeps no scopes: the whole of it is one.
    A decision brings every scope that a row stands for within capacity, while BetterDB looks at the
    one that it writes to.

    Raises
    ------
    ValueError
        If `max_items` is not a whole number, `half_life` not above zero, a weight not a finite
        number of 0 or more, or a scope field unknown.
    """

    max_items: int = field(
        metadata={"help": "memories a scope may hold; below 0 counts as 0", "size": True}
    )
    half_life: timedelta = field(
        default=HALF_LIFE, metadata={"help": "age of last access at which recency halves"}
    )
    recency: float = field(default=RECENCY_WEIGHT, metadata={"help": "weight of recency"})
    importance: float = field(default=IMPORTANCE_WEIGHT, metadata={"help": "weight of importance"})
    scope: tuple[str, ...] = field(
        default=(*col.AGENT_SCOPE, col.TAGS),
        metadata={
            "help": "fields that make a scope: agent_id, thread_id, namespace, tags; none: all"
        },
    )

    name: ClassVar[str] = "value"
    origin: ClassVar[str] = "BetterDB agent-memory: importance and recency of use, per scope"
    reason: ClassVar[str] = "lowest-value"
    runner: ClassVar[Runner] = "capped"

    def __post_init__(self) -> None:
        """Refuse settings that rank nothing."""
        super().__post_init__()
        if self.half_life <= timedelta(0):
            raise ValueError(f"half_life={self.half_life!r} is not above zero")
        for name in ("recency", "importance"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"{name}={weight!r} is not a finite weight of 0 or more")
        check_scope(self.scope)

    @property
    def slots(self) -> int:
        """How many rows a scope may hold."""
        return max(0, self.max_items)

    def scopes(self, rows: pd.DataFrame) -> list[Scope]:
        """Return the scopes that rows were written with; they may overlap."""
        return scopes_given(rows, self.scope)

    def eviction_keys(
        self, rows: Mapping[str, Any] | pd.DataFrame, *, now: datetime
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the score, then the last access in microseconds since the epoch."""
        accessed = times(rows, col.LAST_ACCESSED_AT)
        accessed = np.where(np.isnat(accessed), np.datetime64(0, "us"), accessed)
        score = value_score(
            as_instant(now) - accessed,
            finite_importance(rows),
            half_life=np.timedelta64(self.half_life),
            recency_weight=self.recency,
            importance_weight=self.importance,
        )
        return score, accessed.astype(np.int64)


@dataclass(frozen=True)
class ImportanceBudget(CappedPolicy):
    """Hold a hard budget per agent; the least important rows go until the count equals the cap.

    The count goes across namespaces. Graduated rows are not exempt. Importance is compared in
    single precision, as it is kept there; what is no number goes last, ties oldest first.
    Load-bearing rows take up room and never go.

    Raises
    ------
    ValueError
        If `max_items` is not a whole number of 0 or more, or a scope field unknown.
    """

    max_items: int | None = field(
        metadata={"help": "memories an agent may hold; 0 or none: off", "least": 0, "size": True}
    )
    scope: tuple[str, ...] = field(
        default=(col.AGENT_ID,),
        metadata={"help": "fields that hold a budget of their own; none: one for the whole store"},
    )

    name: ClassVar[str] = "budget"
    origin: ClassVar[str] = "MemForge: hard budget per agent, least important first"
    reason: ClassVar[str] = "over-budget"
    runner: ClassVar[Runner] = "ranked"

    def __post_init__(self) -> None:
        """Refuse a scope of unknown fields."""
        super().__post_init__()
        check_scope(self.scope)

    @property
    def slots(self) -> int | None:
        """How many rows an agent may hold, None where the budget is off."""
        return self.max_items or None

    def scopes(self, rows: pd.DataFrame) -> list[Scope]:
        """Return the rows of each agent; rows without one share a budget."""
        return scopes_apart(rows, self.scope)

    def eviction_keys(
        self,
        rows: Mapping[str, Any] | pd.DataFrame,
        *,
        now: datetime,  # noqa: ARG002
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the importance."""
        return (single(numbers(rows, col.IMPORTANCE)),)


@dataclass(frozen=True)
class ImportanceFloor(DatedPolicy):
    """Drop what is less important than a threshold, graduated rows excepted.

    Both are compared in single precision. A row whose importance is no number is not below it.

    Raises
    ------
    ValueError
        If `threshold` is not a number.
    """

    threshold: float = field(default=0.1, metadata={"help": "importance below which a memory goes"})

    name: ClassVar[str] = "floor"
    origin: ClassVar[str] = "MemForge: importance floor, graduated rows excepted"
    reason: ClassVar[str] = "below-floor"
    runner: ClassVar[Runner] = "dated"

    def __post_init__(self) -> None:
        """Refuse what is not a number."""
        super().__post_init__()
        if math.isnan(self.threshold):
            raise ValueError(f"threshold={self.threshold!r} is not a number")

    def deadlines(self, rows: pd.DataFrame) -> npt.NDArray[np.datetime64]:
        """Return the beginning of time for the rows below the threshold, NaT for the others."""
        below = single(numbers(rows, col.IMPORTANCE)) < np.float32(self.threshold)
        if col.GRADUATED in rows:
            below &= ~rows[col.GRADUATED].fillna(value=False).to_numpy(dtype=bool)
        return np.where(below, ALWAYS, np.datetime64("NaT", "us"))


def single(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return numbers as a PostgreSQL ``real`` holds them; too large a one is infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def finite_importance(rows: Mapping[str, Any] | pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return importance, 0 where it is missing or not finite."""
    values = numbers(rows, col.IMPORTANCE)
    return np.where(np.isfinite(values), values, 0.0)


def check_scope(scope: tuple[str, ...]) -> None:
    """Raise a ValueError for a field that no scope is made of."""
    if unknown := sorted(set(scope) - SCOPE_FIELDS):
        raise ValueError(f"scope={scope!r}: {unknown} is not among {sorted(SCOPE_FIELDS)}")
