"""Policies of time: memories that have run out, and superseded ones nobody reclaims."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.policies.base import Policy
from memlab.policies.signals import moment, times


@dataclass(frozen=True)
class TimeToLive(Policy):
    """Drop what has expired.

    A row with ``expires_at`` goes by that alone; any other goes by its age since ``created_at``.
    Being used extends neither. A row without either time is durable.
    """

    ttl: timedelta | None = field(
        default=None,
        metadata={
            "help": "age at which a memory goes; zero, negative or absent keeps what has no expiry"
        },
    )

    name: ClassVar[str] = "ttl"
    origin: ClassVar[str] = "odek, BetterDB: expiry by age"
    reason: ClassVar[str] = "expired"

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows whose time has come."""
        at = moment(now)
        expires = times(rows, col.EXPIRES_AT)
        expired = expires <= at
        if self.ttl is not None and self.ttl > timedelta(0):
            age = at - times(rows, col.CREATED_AT)
            expired |= np.isnat(expires) & (age >= np.timedelta64(self.ttl))
        return pd.Series(self.reason, index=np.flatnonzero(expired), dtype="str")


@dataclass(frozen=True)
class PurgeSuperseded(Policy):
    """Drop superseded rows of an age, which no compaction ever reclaims.

    Load-bearing ones stay: a decision that was replaced is still a decision that was made.

    Raises
    ------
    ValueError
        If `older_than` is negative.
    """

    older_than: timedelta = field(
        metadata={"help": "age since creation from which a superseded memory goes"}
    )

    name: ClassVar[str] = "purge-superseded"
    origin: ClassVar[str] = "memlab: superseded rows, which no compaction reclaims"
    population: ClassVar[Literal["active", "superseded"]] = "superseded"
    reason: ClassVar[str] = "superseded-long-ago"

    def __post_init__(self) -> None:
        """Refuse a negative age."""
        if self.older_than < timedelta(0):
            raise ValueError(f"older_than={self.older_than!r} is negative")

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the superseded rows that are old enough."""
        age = moment(now) - times(rows, col.CREATED_AT)
        old = np.flatnonzero(age >= np.timedelta64(self.older_than))
        return pd.Series(self.reason, index=old, dtype="str")
