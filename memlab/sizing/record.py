"""The track record: what a number chosen at an earlier moment would have served afterwards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import NormalDist, median
from typing import Final, NamedTuple, Self

import numpy as np

from memlab.evidence.prior import Posterior, PosteriorSettings, log_rank_fraction
from memlab.frame.fields import Ints
from memlab.sizing.history import History, Ranked

CUTS: Final = (0.5, 0.6, 0.7, 0.8)
"""Shares of the rows written at which a store looks back."""

AFTER: Final = 0.2
"""Share of the rows that follows a cut and is measured."""

FEWEST_AFTER: Final = 5
"""References after a cut without which it says nothing of how wide limits should be."""

WATCHED: Final = (0.5, 0.75, 0.9, 0.95)
"""Shares of references whose caps are looked at when limits are widened."""

MOST_SURPRISING: Final = 2.0
"""Standard deviations that a surprise counts for at most: one bad miss among a few references must
not ask for many times the need from then on."""

PRIOR: Final = 4.0
"""Cuts' worth of belief that limits are as wide as they should be."""


class TrackRecord(NamedTuple):
    """How often a number would have met a target."""

    measured: int
    missed: int
    waste: float | None = None

    @property
    def poor(self) -> bool:
        """Whether more than one in four missed."""
        return 4 * self.missed > self.measured


@dataclass(frozen=True)
class BacktestSplit:
    """A store as it was, and what was referred to in the fifth that followed."""

    share: float
    history: History
    references: Ranked
    plain: Posterior
    after: Ints

    @cached_property
    def posterior(self) -> Posterior:
        """What would have been said then."""
        earlier = backtest_splits(self.history, self.references, self.plain.terms, CUTS)
        return replace(self.plain, interval_inflation=widening(earlier))

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
        middle, limit, came = log_rank_fraction(
            [expected, high, self.needed(target)], self.plain.middle
        )
        quantile = NormalDist().inv_cdf(self.plain.terms.confidence)
        surprise = quantile * float((came - middle) / max(limit - middle, 1e-3))
        return min(max(surprise, 0.0), MOST_SURPRISING)


def posterior_of(history: History, references: Ranked, terms: PosteriorSettings) -> Posterior:
    """Return what the next stretch of a history will take, by what is known at its end."""
    written = int(history.prunable_before[-1])
    found = references
    return Posterior(terms, written, *found.reach, found.cluster_count, found.always)


def backtest_splits(
    history: History, references: Ranked, terms: PosteriorSettings, shares: Sequence[float]
) -> list[BacktestSplit]:
    """Return a history as it was at some moments, and what followed each."""
    n = len(history)
    cuts = []
    for share in shares:
        first = round(share * n)
        last = round((share + AFTER) * n)
        before = history.until(first)
        seen = references.between(0, first)
        after = references.between(first, last if last < n else n + 1)
        plain = posterior_of(before, seen, terms)
        cuts.append(BacktestSplit(share, before, seen, plain, np.sort(after.rank)))
    return cuts


def record_of(cuts: Sequence[BacktestSplit], target: float) -> TrackRecord:
    """Return how often a number for this target would have met it."""
    numbers = [
        (cut.posterior.cap_for(target)[2], cut.needed(target)) for cut in cuts if len(cut.after)
    ]
    missed = sum(chosen < needed for chosen, needed in numbers)
    times = [chosen / max(needed, 1) for chosen, needed in numbers]
    return TrackRecord(len(numbers), missed, median(times) if times else None)


def widening(cuts: Sequence[BacktestSplit]) -> float:
    """Return by how much more than expected the past surprised at the worst share: 1 or more."""
    telling = [cut for cut in cuts if len(cut.after) >= FEWEST_AFTER]
    scales = [1.0]
    for target in WATCHED:
        squares = [cut.surprise(target) ** 2 for cut in telling]
        scales.append(math.sqrt((PRIOR + sum(squares)) / (PRIOR + len(squares))))
    return max(scales)


class Verdict(StrEnum):
    """What a recommendation comes down to; ``meaning`` says it in words."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Take a value and its meaning."""
        verdict = str.__new__(cls, value)
        verdict._value_ = value
        verdict.meaning = meaning
        return verdict

    OK = "ok", "the target is met, and the evidence reaches that far"
    NOTHING_PRUNABLE = "nothing-prunable", "no memory that a cap could delete was written yet"
    FROM_OTHER_PROJECTS = (
        "from-other-projects",
        "most of what this rests on is what other projects needed again",
    )
    CAP_HAS_NO_EFFECT = (
        "cap-has-no-effect",
        "the target takes all that there is now: keep all for now",
    )
    FLOOR_EXCEEDS_BUDGET = (
        "floor-exceeds-budget",
        "load-bearing memories alone pass the token budget: no cap can help",
    )
    TARGET_EXCEEDS_BUDGET = (
        "target-exceeds-budget",
        "no cap meets both the target and the token budget: choose",
    )
    HORIZON_TOO_SHORT = (
        "horizon-too-short",
        "references keep reaching the far end of this history: the number will grow with the store",
    )
    TARGET_BEYOND_HORIZON = (
        "target-beyond-horizon",
        "no evidence is fine enough for so high a target, this store's nor other projects'",
    )
    HISTORY_INCOMPLETE = (
        "history-incomplete",
        "memories were deleted without an archive, and with them what a number would rest on",
    )


@dataclass(frozen=True)
class Choice:
    """A cap for a target."""

    verdict: Verdict
    keep_recent: int
    interval: tuple[int, int]
    likely: int


def clusters_needed(target: float, confidence: float) -> int:
    """Return how many references can show so high a target, by ``1 - target ** m`` (Wilks 1941)."""
    return math.ceil(math.log(1 - confidence) / math.log(target))


def choose_cap(posterior: Posterior, *, target: float, prunable: int, far_share: float) -> Choice:
    """Choose the smallest cap whose lower limit meets the target."""
    likely, low, cap = posterior.cap_for(target)
    needed = clusters_needed(target, posterior.terms.confidence)
    verdict = Verdict.OK
    if not posterior.memories:
        verdict = Verdict.NOTHING_PRUNABLE
    elif target > posterior.terms.law.shares[-1] and posterior.cluster_count < needed:
        verdict = Verdict.TARGET_BEYOND_HORIZON
    elif posterior.cluster_count and cap >= prunable:
        verdict = Verdict.CAP_HAS_NO_EFFECT
    elif posterior.weight < 0.5:
        verdict = Verdict.FROM_OTHER_PROJECTS
    elif far_share > 1 - target:
        verdict = Verdict.HORIZON_TOO_SHORT
    return Choice(verdict, cap, (low, cap), likely)
