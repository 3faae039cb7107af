"""Policies of order alone: the newest N, the newest that fit, and all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.policies.base import CappedPolicy, Policy, Runner
from memlab.policies.optional_columns import times


@dataclass(frozen=True)
class KeepAll(Policy):
    """Nothing goes: the bound on what can be kept, and on what it costs."""

    name: ClassVar[str] = "all"
    origin: ClassVar[str] = "bound: nothing goes"
    runner: ClassVar[Runner] = "idle"

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

    keep: int = field(
        metadata={
            "help": "newest prunable memories to keep",
            "least": 0,
            "size": True,
            "option": "--keep-recent",
        }
    )
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
    runner: ClassVar[Runner] = "ranked"

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


@dataclass(frozen=True)
class TokenBudget(CappedPolicy):
    """Keep the newest prunable rows that fit, beside the load-bearing ones, into so many tokens.

    The boot context is never longer than that, unless the load-bearing rows alone are. Rows go
    oldest first until the rest fits, so a larger budget keeps all that a smaller one does.

    Raises
    ------
    ValueError
        If `max_tokens` is not a whole number of 0 or more.
    """

    max_tokens: int = field(
        metadata={"help": "tokens that the boot context may take", "least": 0, "size": "tokens"}
    )

    name: ClassVar[str] = "tokens"
    origin: ClassVar[str] = "memlab: the newest that fit into so many tokens at start"
    reason: ClassVar[str] = "beyond-budget"
    runner: ClassVar[Runner] = "ranked"

    @property
    def slots(self) -> int:
        """How many tokens there is room for."""
        return self.max_tokens

    def sizes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the tokens of each row."""
        return rows[col.TOKENS].to_numpy(dtype=np.int64)

    def eviction_keys(
        self,
        rows: Mapping[str, Any] | pd.DataFrame,
        *,
        now: datetime,  # noqa: ARG002
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return the position."""
        return (pd.Series(rows[col.POSITION]).to_numpy(),)
