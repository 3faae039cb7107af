"""The best that could have been done: a bound, not a decision."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

import pandas as pd

from memlab.arguments import whole_number
from memlab.policies.base import Policy


@dataclass(frozen=True)
class Oracle(Policy):
    """The most references that any policy with so many slots could have served.

    It knows what was needed later, so it bounds a replay and cannot decide about a store.

    Raises
    ------
    ValueError
        If `max_items` is not a whole number of 0 or more.
    """

    max_items: int = field(metadata={"help": "prunable memories that may be held at a time"})

    name: ClassVar[str] = "oracle"
    origin: ClassVar[str] = "bound: knows what will be needed"

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        whole_number("max_items", self.max_items)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Refuse to decide: the future is not in a frame."""
        raise ValueError(
            "Oracle knows what was needed later, which no frame says: use it in a replay or a "
            "comparison, and another policy to decide"
        )
