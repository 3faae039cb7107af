"""What the next stretch of a store will take: the law and the store's own references together."""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from memlab.evidence.law import MIDDLE, STRETCH, Floats, Law, limits_of, rank_at

Ints = npt.NDArray[np.int64]

LEVELS: Final = np.arange(1, 1000) / 1000
"""Shares of references for which a cap is known; for others, that of the next higher. Beyond the
last it is all that there will be."""

_BLUR: Final = 1e-6
"""Caps are computed by logarithms: a whole one may come out this much beside itself."""


@dataclass(frozen=True)
class Ahead:
    """The cap that each share of the next stretch's references takes, with limits.

    The posterior of a normal mean under a normal prior, share by share: the reach of the store's
    own references and that of the law, weighed by `weight`. The stretch lasts until the store has
    doubled.

    Attributes
    ----------
    law : Law
    memories : int
        Prunable memories written so far, whether they are still there or not.
    own : array of float64
        Reach of each of the store's own references to prunable memories, in increasing order.
    recency : array of float64
        Memories written by the time of each of those: a reference counts as much. What is recent
        says more of what comes next.
    sittings : int
        In how many sittings they arose: the references that count.
    confidence : float
        Of each limit on its own.
    always : float
        Share of the store's references that are to load-bearing memories: every cap serves them.
    widened : float
        Factor on how far the limits are away: 1 or more.
    """

    law: Law
    memories: int
    own: Floats
    recency: Floats
    sittings: int
    confidence: float
    always: float = 0.0
    widened: float = 1.0

    @cached_property
    def weight(self) -> float:
        """How much of the answer comes from the store's own references, from 0 to 1."""
        return self.law.weight_of(self.sittings)

    @cached_property
    def own_caps(self) -> Floats | None:
        """The cap for each level by the store's own references; None without any."""
        return self._caps(self._own_reach) if len(self.own) else None

    @cached_property
    def law_caps(self) -> Floats:
        """The cap for each level by the law."""
        return self._caps(self.law.reach_at(LEVELS))

    @cached_property
    def caps(self) -> Floats:
        """The cap for each level by both together."""
        return self._caps(self._reach)

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper limits of the cap for each level."""
        lower, upper = limits_of(
            LEVELS,
            self._reach,
            self.law.spread_at(LEVELS, self.memories, weight=self.weight),
            quantile=self.widened * NormalDist().inv_cdf(self.confidence),
            references=self.law.references_ahead(self.memories),
        )
        return self._caps(lower), self._caps(upper)

    @property
    def everything(self) -> int:
        """The cap that serves every reference until the store has doubled: all there is by then."""
        return int(STRETCH * max(self.memories, 1))

    def cap_for(self, share: float) -> tuple[int, int, int]:
        """Return the cap that serves a share, and its lower and upper limit."""
        losable = (share - self._free) / (1 - self._free)
        if losable <= 0:
            return 0, 0, 0
        place = int(np.searchsorted(LEVELS, losable - 1e-9))
        lower, upper = self.limits
        if place == len(LEVELS):
            return self.everything, int(lower[-1] + _BLUR), self.everything
        return (
            int(np.ceil(self.caps[place] - _BLUR)),
            int(lower[place] + _BLUR),
            int(np.ceil(upper[place] - _BLUR)),
        )

    def share_at(self, caps: Ints) -> Floats:
        """Return the share of references that each cap serves."""
        return self._served(caps, self.caps, self._free)

    def own_share_at(self, caps: Ints) -> Floats:
        """Return the same by the store's own references alone; NaN without any."""
        if self.own_caps is None:
            return np.full(len(caps), self.always or np.nan)
        return self._served(caps, self.own_caps, self.always)

    def law_share_at(self, caps: Ints) -> Floats:
        """Return the same by the law alone."""
        return self._served(caps, self.law_caps, 0.0)

    def limits_at(self, caps: Ints) -> tuple[Floats, Floats]:
        """Return the lower and upper limit of the share that each cap serves, around that share.

        Of a handful of memories the share expected can lie beyond the limits drawn for it.
        """
        lower, upper = self.limits
        share = self.share_at(caps)
        place = np.searchsorted(lower, caps + _BLUR, side="right")
        high = self._free + (1 - self._free) * np.append(LEVELS, 1.0)[place]
        low = self._served(caps, upper, self._free)
        return np.minimum(low, share), np.maximum(high, share)

    @property
    def _free(self) -> float:
        """What every cap serves, as far as it is known; the law knows of none."""
        return self.weight * self.always

    @cached_property
    def _own_reach(self) -> Floats:
        upto = np.cumsum(self.recency)
        reach: Floats = self.own[np.searchsorted(upto, LEVELS * upto[-1] * (1 - 1e-12))]
        return reach

    @cached_property
    def _reach(self) -> Floats:
        law = self.law.reach_at(LEVELS)
        if not len(self.own):
            return law
        return self.weight * self._own_reach + (1 - self.weight) * law

    def _caps(self, reach: Floats) -> Floats:
        return rank_at(reach, MIDDLE * self.memories)

    def _served(self, caps: Ints, needed: Floats, free: float) -> Floats:
        """Return the largest level whose cap is there, beside what is free."""
        needed = np.append(needed, self.everything)
        level = np.concatenate([[0.0], LEVELS, [1.0]])
        served = level[np.searchsorted(needed, caps + _BLUR, side="right")]
        share: Floats = free + (1 - free) * served
        return share
