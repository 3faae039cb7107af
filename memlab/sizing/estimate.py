"""What share of the needs a cap would serve."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from memlab.sizing.history import History, Ints, Needs

Floats = npt.NDArray[np.float64]

BLOCKS: Final = 20
"""Contiguous blocks that a history is cut into: each long enough that the needs of one burst of
work fall into the same block, and enough of them for a variance."""


@dataclass(frozen=True)
class Estimate:
    """The needs a history has shown, weighted by how many memories could have shown them.

    The mean cumulative function of needs per memory (Nelson 1988; Lawless and Nadeau 1995), with
    age rank in the place of time: a need at rank `d` weighs one over the number of memories that
    have been seen at rank `d`. Its value at a cap over its value at the horizon is the share of
    needs that the cap serves. Ranks nest like stack distances (Mattson et al. 1970), so one
    function answers for every cap. Young memories can only have shown short distances; the weights
    undo that.

    Attributes
    ----------
    history, needs
        Both up to the moment of the estimate.
    """

    history: History
    needs: Needs

    @cached_property
    def first_logged(self) -> int:
        """The moment from which an access log was kept, as far as it shows."""
        return int(self.needs.at[self.needs.logged][0]) if self.needs.logged.any() else 0

    def seen_since(self, first: int) -> Ints:
        """Count the memories whose rank was `d` at some moment from `first` on, for each `d`."""
        n = len(self.history)
        rows = np.flatnonzero(self.history.counted)
        reached = self.history.largest_ranks(rows, np.full(len(rows), n))
        seen = _at_least(reached, len(rows) + 1)
        if first:
            old = rows[rows < first]
            passed = self.history.largest_ranks(old, np.full(len(old), first))
            seen[:-1] -= _at_least(passed, len(rows) + 1)[1:]
        return seen

    @cached_property
    def horizon(self) -> int:
        """The largest rank at which a block's worth of memories has been seen.

        Beyond it a single need would outweigh a block of history, so nothing is said of it.
        """
        seen = self.seen_since(self.first_logged if self.needs.logged.all() else 0)
        enough = max(math.ceil(self.history.counted.sum() / BLOCKS), 1)
        return int(np.flatnonzero(seen >= enough)[-1]) if (seen >= enough).any() else 0

    @cached_property
    def within(self) -> npt.NDArray[np.bool_]:
        """Which needs lie within the horizon."""
        return self.needs.rank <= self.horizon

    @cached_property
    def by_rank(self) -> tuple[Ints, Floats]:
        """Ranks in increasing order and the share of needs up to each."""
        rank = self.needs.rank[self.within]
        total = np.bincount(rank, self.weight, minlength=1)
        ranks = np.flatnonzero(np.bincount(rank, minlength=1)).astype(np.int64)
        share = np.cumsum(total[ranks], dtype=np.float64)
        return ranks, share / share[-1] if len(share) else share

    @cached_property
    def weight(self) -> Floats:
        """One over the memories seen at each need's rank, for the needs within the horizon."""
        return self.weight_since(0)

    def weight_since(self, first: int) -> Floats:
        """Return the same, of the memories seen at that rank from the moment `first` on."""
        rank = np.maximum(self.needs.rank[self.within], 1)
        weight: Floats = (1 / np.maximum(self.seen_since(first), 1))[rank]
        if self.needs.logged.any():
            logged = self.needs.logged[self.within]
            seen = self.seen_since(max(first, self.first_logged))
            weight[logged] = (1 / np.maximum(seen, 1))[rank[logged]]
        return weight

    def share_at(self, caps: Ints) -> Floats:
        """Return the estimated share of needs that each cap serves; NaN where there are none."""
        ranks, share = self.by_rank
        if not len(ranks):
            return np.full(len(caps), np.nan)
        return np.concatenate([[0.0], share])[np.searchsorted(ranks, caps, side="right")]

    def observed_at(self, caps: Ints) -> Floats:
        """Return the plain share of the needs seen that each cap would have served."""
        if not len(self.needs):
            return np.full(len(caps), np.nan)
        upto = np.cumsum(np.bincount(self.needs.rank))
        served: Floats = upto[np.minimum(caps, len(upto) - 1)] / upto[-1]
        return served

    def cap_for(self, share: float) -> int:
        """Return the smallest cap whose estimated share is at least `share`."""
        ranks, shares = self.by_rank
        return int(ranks[min(int(np.searchsorted(shares, share - 1e-12)), len(ranks) - 1)])

    @cached_property
    def independent(self) -> int:
        """In how many sittings a cap could have failed: needs of one task come together."""
        return distinct(self.needs.sitting[self.needs.rank > 0])

    @cached_property
    def far_share(self) -> float:
        """The share of needs in the last octave of the horizon, from half of it on."""
        return float(1 - self.share_at(np.array([self.horizon // 2]))[0])


def distinct(numbers: Ints) -> int:
    """Count the different numbers among small ones of 0 or more."""
    return int(np.count_nonzero(np.bincount(numbers)))


def _at_least(ranks: Ints, largest: int) -> Ints:
    """Count the ranks that are at least 0, 1, ... `largest`."""
    return np.cumsum(np.bincount(ranks, minlength=largest + 1)[::-1])[::-1]
