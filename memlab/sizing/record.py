"""The track record: what a number chosen at an earlier moment would have served afterwards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from memlab.evidence.ahead import Ahead
from memlab.evidence.law import MIDDLE, Law, reach_of
from memlab.sizing.history import History, Ints, Ranked

CUTS: Final = (0.5, 0.6, 0.7, 0.8)
"""Shares of the rows written at which a store looks back."""

AFTER: Final = 0.2
"""Share of the rows that follows a cut and is measured."""

FEWEST_AFTER: Final = 5
"""References after a cut without which it says nothing of how wide limits should be."""

WATCHED: Final = (0.5, 0.75, 0.9, 0.95)
"""Shares of references whose caps are looked at when limits are widened."""

MOST_SURPRISING: Final = 4.0
"""Standard deviations that a surprise counts for at most: what is farther is no normal error."""

PRIOR: Final = 4.0
"""Cuts' worth of belief that limits are as wide as they should be."""


class Record(NamedTuple):
    """How often a number would have met a target.

    Attributes
    ----------
    measured, missed : int
        Cuts that references followed, and those of them where too few found their memory.
    """

    measured: int
    missed: int

    @property
    def poor(self) -> bool:
        """Whether more than one in four missed."""
        return 4 * self.missed > self.measured


@dataclass(frozen=True)
class Cut:
    """A store as it was, and what was referred to in the fifth that followed.

    Attributes
    ----------
    share : float
        Of the rows written.
    history, references
        The store then.
    plain : Ahead
        What was known then, its limits not widened by what was a surprise before.
    after : array of int64
        Age ranks of the references that followed, in increasing order.
    """

    share: float
    history: History
    references: Ranked
    plain: Ahead
    after: Ints

    @cached_property
    def ahead(self) -> Ahead:
        """What would have been said then."""
        law, confidence = self.plain.law, self.plain.confidence
        earlier = cuts_of(self.history, self.references, law, confidence, CUTS)
        return replace(self.plain, widened=widening(earlier))

    @property
    def prunable(self) -> int:
        """Prunable rows then."""
        return int(self.history.active_before[-1])

    def needed(self, target: float) -> int:
        """Return the smallest cap that would have met the target afterwards."""
        return int(self.after[math.ceil(target * len(self.after) - 1e-9) - 1])

    def achieved(self, cap: int) -> float:
        """Return the share of what followed that a cap would have served."""
        return float(np.searchsorted(self.after, cap, side="right") / len(self.after))

    def surprise(self, target: float) -> float:
        """Return by how many standard deviations more was needed than expected; 0 for less."""
        expected, _, high = self.plain.cap_for(target)
        middle, limit, came = reach_of(
            [expected, high, self.needed(target)], MIDDLE * self.plain.memories
        )
        quantile = NormalDist().inv_cdf(self.plain.confidence)
        surprise = quantile * float((came - middle) / max(limit - middle, 1e-3))
        return min(max(surprise, 0.0), MOST_SURPRISING)


def ahead_of(history: History, references: Ranked, law: Law, confidence: float) -> Ahead:
    """Return what the next stretch of a history will take, by what is known at its end."""
    return Ahead(
        law,
        int(history.counted_before[-1]),
        *references.reach,
        references.sittings,
        confidence,
        references.always,
    )


def cuts_of(
    history: History, references: Ranked, law: Law, confidence: float, shares: Sequence[float]
) -> list[Cut]:
    """Return a history as it was at some moments, and what followed each."""
    n = len(history)
    cuts = []
    for share in shares:
        first, last = round(share * n), round((share + AFTER) * n)
        before, seen = history.until(first), references.between(0, first)
        after = references.between(first, last if last < n else n + 1)
        plain = ahead_of(before, seen, law, confidence)
        cuts.append(Cut(share, before, seen, plain, np.sort(after.rank)))
    return cuts


def record_of(cuts: Sequence[Cut], target: float) -> Record:
    """Return how often a number for this target would have met it."""
    measured = [cut for cut in cuts if len(cut.after)]
    missed = [cut for cut in measured if cut.needed(target) > cut.ahead.cap_for(target)[2]]
    return Record(len(measured), len(missed))


def widening(cuts: Sequence[Cut]) -> float:
    """Return by how much more than expected the past surprised, where numbers missed: 1 or more.

    The scale of a normal error with a prior worth `PRIOR` cuts that it is 1, at whichever of the
    shares watched the numbers did worst.
    """
    telling = [cut for cut in cuts if len(cut.after) >= FEWEST_AFTER]
    scales = [1.0]
    for target in WATCHED:
        squares = [cut.surprise(target) ** 2 for cut in telling]
        scales.append(math.sqrt((PRIOR + sum(squares)) / (PRIOR + len(squares))))
    return max(scales)
