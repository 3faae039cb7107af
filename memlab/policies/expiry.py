"""Policies of time: memories that have run out, and superseded ones nobody reclaims."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.policies.base import DatedPolicy, Runner
from memlab.policies.optional_columns import times

LONGEST: Final = timedelta(days=2_000_000)
"""Some five thousand years: added to a date, it still fits 64 bits of microseconds."""


@dataclass(frozen=True)
class TimeToLive(DatedPolicy):
    """Drop what has expired.

    A row with ``expires_at`` goes by that alone; any other goes by its age since ``created_at``.
    It goes after that moment, not at it. Being referred to extends neither. A row without either
    time is durable.

    Raises
    ------
    ValueError
        If `ttl` is not a timedelta.
    """

    ttl: timedelta | None = field(
        default=None,
        metadata={
            "help": "age beyond which a memory goes; none or 0 keeps what has no expiry of its own",
            "size": True,
        },
    )

    name: ClassVar[str] = "ttl"
    origin: ClassVar[str] = "odek, BetterDB: expiry by age"
    reason: ClassVar[str] = "expired"
    runner: ClassVar[Runner] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> npt.NDArray[np.datetime64]:
        """Return the UTC time after which each row goes, NaT for a durable one."""
        expires = times(rows, col.EXPIRES_AT)
        if self.ttl is None or self.ttl <= timedelta(0):
            return expires
        due = times(rows, col.CREATED_AT) + np.timedelta64(min(self.ttl, LONGEST))
        return np.where(np.isnat(expires), due, expires)


@dataclass(frozen=True)
class PurgeSuperseded(DatedPolicy):
    """Drop superseded rows of an age, which no compaction ever reclaims.

    Load-bearing ones stay: a decision that was replaced is still a decision that was made.

    Raises
    ------
    ValueError
        If `older_than` is negative or not a timedelta.
    """

    older_than: timedelta = field(
        metadata={
            "help": "age since creation beyond which a superseded memory goes",
            "size": True,
        }
    )

    name: ClassVar[str] = "purge-superseded"
    origin: ClassVar[str] = "memlab: superseded memories, which no compaction reclaims"
    population: ClassVar[Literal["active", "superseded", "all"]] = "superseded"
    reason: ClassVar[str] = "superseded-long-ago"
    runner: ClassVar[Runner] = "dated"

    def __post_init__(self) -> None:
        """Refuse a negative age."""
        super().__post_init__()
        if self.older_than < timedelta(0):
            raise ValueError(f"older_than={self.older_than!r} is negative")

    def deadlines(self, rows: pd.DataFrame) -> npt.NDArray[np.datetime64]:
        """Return the UTC time after which each row is old enough, NaT for one without a date."""
        return times(rows, col.CREATED_AT) + np.timedelta64(min(self.older_than, LONGEST))
