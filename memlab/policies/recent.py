"""Policies of count alone: the newest N, and nothing at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import whole_number
from memlab.policies.base import CappedPolicy, Policy
from memlab.policies.readings import times


@dataclass(frozen=True)
class KeepAll(Policy):
    """Nothing goes: the bound on what can be kept, and on what it costs."""

    name: ClassVar[str] = "all"
    origin: ClassVar[str] = "bound: nothing goes"

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Name no row."""
        return pd.Series(dtype="str")


@dataclass(frozen=True)
class KeepRecent(CappedPolicy):
    """Keep the newest prunable rows, as ``SqliteMemoryStore.compact_episodic`` does.

    Load-bearing rows come on top: with D of them and M prunable rows, D + min(M, `keep`) stay.

    Raises
    ------
    ValueError
        If `keep` is not a whole number of 0 or more, or `by` is no column it can go by.
    """

    keep: int = field(metadata={"help": "prunable memories to keep"})
    by: Literal["position", "created_at"] = field(
        default="position",
        metadata={
            "help": "what newest means: insertion order, or the time a memory says it was made"
        },
    )

    name: ClassVar[str] = "recent"
    origin: ClassVar[str] = "forge-loop: the newest N by insertion order"
    reason: ClassVar[str] = "beyond-newest"
    counts_load_bearing: ClassVar[bool] = False
    timeless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        whole_number("keep", self.keep)
        if self.by not in {col.POSITION, col.CREATED_AT}:
            raise ValueError(f"by={self.by!r} is neither 'position' nor 'created_at'")

    @property
    def slots(self) -> int:
        """How many prunable rows stay."""
        return self.keep

    def eviction_keys(
        self,
        rows: Mapping[str, Any] | pd.DataFrame,
        *,
        now: datetime,  # noqa: ARG002
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the position, or the creation time where that is what newest means."""
        if self.by == col.POSITION:
            return (pd.Series(rows[col.POSITION]).to_numpy(),)
        # A time that is missing ranks as the oldest: nothing says the row is new.
        return (times(rows, col.CREATED_AT).astype("int64"),)
