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
from memlab.policies.base import CappedPolicy, DatedPolicy, Runner
from memlab.policies.readings import ALWAYS, moment, numbers, scope_numbers, times
from memlab.scoring import HALF_LIFE, IMPORTANCE_WEIGHT, RECENCY_WEIGHT, value_score

SCOPE_FIELDS: Final = frozenset({*col.AGENT_SCOPE, col.TAGS})


@dataclass(frozen=True)
class ValueCap(CappedPolicy):
    """Cap a scope by importance and recency of use; the least valuable rows go.

    The score is :func:`memlab.scoring.value_score` of the age since the last access. Lowest goes
    first, ties toward the older last access, then toward the older row. A missing or non-finite
    importance counts as 0, a missing last access as the epoch. Load-bearing rows take up room in
    their scope and never go.

    A row with none of the scope's fields set is never capped. A frame with no column for any of
    them keeps no scopes at all: the whole of it is one.

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
        default=col.AGENT_SCOPE,
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

    def scopes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the number of each row's scope, -1 where none of its fields is set."""
        return scope_numbers(rows, self.scope, cap_unscoped=False)

    def eviction_keys(
        self, rows: Mapping[str, Any] | pd.DataFrame, *, now: datetime
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the score, then the last access in microseconds since the epoch."""
        accessed = times(rows, col.LAST_ACCESSED_AT)
        accessed = np.where(np.isnat(accessed), np.datetime64(0, "us"), accessed)
        score = value_score(
            moment(now) - accessed,
            finite_importance(rows),
            half_life=np.timedelta64(self.half_life),
            recency_weight=self.recency,
            importance_weight=self.importance,
        )
        return score, accessed.astype(np.int64)


@dataclass(frozen=True)
class ImportanceBudget(CappedPolicy):
    """Hold a hard budget per agent; the least important rows go until the count equals the cap.

    The count goes across namespaces. Graduated rows are not exempt. Missing importance counts as
    0; ties go oldest first. Load-bearing rows take up room and never go.

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

    def scopes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the number of each row's agent; rows without one share a budget."""
        return scope_numbers(rows, self.scope, cap_unscoped=True)

    def eviction_keys(
        self,
        rows: Mapping[str, Any] | pd.DataFrame,
        *,
        now: datetime,  # noqa: ARG002
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the importance."""
        return (finite_importance(rows),)


@dataclass(frozen=True)
class ImportanceFloor(DatedPolicy):
    """Drop what is less important than a threshold, graduated rows excepted.

    A row whose importance was never measured is not below it.

    Raises
    ------
    ValueError
        If `threshold` is not a number.
    """

    threshold: float = field(metadata={"help": "importance below which a memory goes"})

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
        below = numbers(rows, col.IMPORTANCE) < self.threshold
        if col.GRADUATED in rows:
            below &= ~rows[col.GRADUATED].fillna(value=False).to_numpy(dtype=bool)
        return np.where(below, ALWAYS, np.datetime64("NaT", "us"))


def finite_importance(rows: Mapping[str, Any] | pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return importance, 0 where it is missing or not finite."""
    values = numbers(rows, col.IMPORTANCE)
    return np.where(np.isfinite(values), values, 0.0)


def check_scope(scope: tuple[str, ...]) -> None:
    """Raise a ValueError for a field that no scope is made of."""
    if unknown := sorted(set(scope) - SCOPE_FIELDS):
        raise ValueError(f"scope={scope!r}: {unknown} is not among {sorted(SCOPE_FIELDS)}")
