"""Backtest: choose caps at earlier moments of a history, and measure them afterwards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import NormalDist, median
from typing import Final, NamedTuple, Self

import numpy as np

from memlab.frame.fields import Ints
from memlab.sizing.lifetimes import Lifetimes, Ranked
from memlab.sizing.prior import Posterior, PosteriorSettings, log_rank_fraction

DEFAULT_SPLITS: Final = (0.5, 0.6, 0.7, 0.8)
"""Shares of the rows written at which the history is split for a backtest."""

TEST_SHARE: Final = 0.2
"""Length of the test part after a split, as a share of all rows."""

MIN_TEST_REFERENCES: Final = 5
"""Smallest number of test references of a split that counts in the inflation of intervals."""

INFLATION_SHARES: Final = (0.5, 0.75, 0.9, 0.95)
"""Shares of references at which the inflation of intervals is computed."""

MAX_SURPRISE: Final = 2.0
"""Limit of a surprise, in standard deviations: a larger one counts as this much.

Without a limit, one surprise among few references would inflate every later interval.
"""

PRIOR_SPLITS: Final = 4.0
"""Weight of the prior belief that intervals are right, as a number of splits."""


class TrackRecord(NamedTuple):
    """Result of a backtest.

    Attributes
    ----------
    measured, missed : int
        Number of splits with test references, and number of these that missed the target.
    waste : float or None
        Median ratio of the chosen cap or budget to the needed one; None without a measured split.
    """

    measured: int
    missed: int
    waste: float | None = None

    @property
    def poor(self) -> bool:
        """Whether the target was missed at more than one in four splits."""
        return 4 * self.missed > self.measured


@dataclass(frozen=True)
class BacktestSplit:
    """A history until a split, and the references of the test part that followed.

    Attributes
    ----------
    share : float
        Share of all rows before the split.
    lifetimes : Lifetimes
        The history before the split.
    references : Ranked
        The references before the split.
    uninflated : Posterior
        The posterior from that history and its references, without inflated intervals.
    test_ranks : array of int64
        Age ranks of the references of the test part, sorted.
    """

    share: float
    lifetimes: Lifetimes
    references: Ranked
    uninflated: Posterior
    test_ranks: Ints

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior at the split, with intervals inflated by the backtest before it."""
        earlier = backtest_splits(
            self.lifetimes, self.references, self.uninflated.settings, DEFAULT_SPLITS
        )
        return replace(self.uninflated, interval_inflation=interval_inflation_of(earlier))

    @property
    def prunable(self) -> int:
        """Number of prunable memories that were present at the split."""
        return int(self.lifetimes.active_before[-1])

    def needed(self, target: float) -> int:
        """Return the smallest cap that would have met the target in the test part."""
        # without 1e-9, a rounding error could demand one reference more
        references_to_serve = math.ceil(target * len(self.test_ranks) - 1e-9)
        return int(self.test_ranks[references_to_serve - 1])

    def achieved(self, cap: int) -> float:
        """Return the share of the test references that a cap would have served."""
        served = np.searchsorted(self.test_ranks, cap, side="right")
        return float(served / len(self.test_ranks))

    def surprise(self, target: float) -> float:
        """Measure the excess of the needed reach over the expected one, in standard deviations.

        The result is between 0 and `MAX_SURPRISE`.
        """
        with_limits = self.uninflated.cap_for(target)
        caps = [with_limits.cap, with_limits.high, self.needed(target)]
        reaches = log_rank_fraction(caps, self.uninflated.geometric_mean_size)
        expected, upper, needed = reaches
        # the upper limit is `quantile` standard deviations above the expected reach
        quantile = NormalDist().inv_cdf(self.uninflated.settings.confidence)
        surprise = quantile * float((needed - expected) / max(upper - expected, 1e-3))
        return min(max(surprise, 0.0), MAX_SURPRISE)


def posterior_of(
    lifetimes: Lifetimes, references: Ranked, settings: PosteriorSettings
) -> Posterior:
    """Return the posterior of the caps until the horizon, from a history and its references."""
    reaches = references.reaches
    return Posterior(
        settings=settings,
        memories=int(lifetimes.prunable_before[-1]),
        own_reaches=reaches.reach,
        reach_weights=reaches.written,  # memories written by then: a later reference weighs more
        cluster_count=references.cluster_count,
        own_share_always_served=references.always,
    )


def backtest_splits(
    lifetimes: Lifetimes, references: Ranked, settings: PosteriorSettings, shares: Sequence[float]
) -> list[BacktestSplit]:
    """Split a history after each of some shares of its rows."""
    row_count = len(lifetimes)
    splits = []
    for share in shares:
        first = round(share * row_count)
        last = round((share + TEST_SHARE) * row_count)
        if last >= row_count:
            last = row_count + 1  # references after the last row count too
        before = lifetimes.until(first)
        references_before = references.between(0, first)
        references_after = references.between(first, last)
        split = BacktestSplit(
            share=share,
            lifetimes=before,
            references=references_before,
            uninflated=posterior_of(before, references_before, settings),
            test_ranks=np.sort(references_after.rank),
        )
        splits.append(split)
    return splits


def record_of(splits: Sequence[BacktestSplit], target: float) -> TrackRecord:
    """Return the track record of the safe cap for a target, over splits with test references."""
    missed = 0
    ratios = []
    for split in splits:
        if not len(split.test_ranks):
            continue
        chosen = split.posterior.cap_for(target).high
        needed = split.needed(target)
        ratios.append(chosen / max(needed, 1))
        if chosen < needed:
            missed += 1
    waste = median(ratios) if ratios else None
    return TrackRecord(measured=len(ratios), missed=missed, waste=waste)


def interval_inflation_of(splits: Sequence[BacktestSplit]) -> float:
    """Return the interval inflation of a backtest: a factor of 1 or more.

    A factor is computed at each share of `INFLATION_SHARES`, and the largest is returned. A factor
    is the root mean square of the surprises of all splits, in standard deviations. `PRIOR_SPLITS`
    further surprises of 1 are added to them: the prior belief that intervals are right.
    """
    measured = [split for split in splits if len(split.test_ranks) >= MIN_TEST_REFERENCES]
    factors = [1.0]
    for target in INFLATION_SHARES:
        squares = [split.surprise(target) ** 2 for split in measured]
        mean_square = (PRIOR_SPLITS + sum(squares)) / (PRIOR_SPLITS + len(squares))
        factors.append(math.sqrt(mean_square))
    return max(factors)


class Verdict(StrEnum):
    """Outcome of a recommendation; ``meaning`` explains it in words.

    Examples
    --------
    >>> Verdict("ok").meaning
    'the target is met, and the evidence reaches that far'
    """

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Create a member from its value and its meaning."""
        verdict = str.__new__(cls, value)
        verdict._value_ = value
        verdict.meaning = meaning
        return verdict

    OK = "ok", "the target is met, and the evidence reaches that far"
    NOTHING_PRUNABLE = "nothing-prunable", "no memory that a cap could delete was written yet"
    FROM_OTHER_PROJECTS = (
        "from-other-projects",
        "this store has little evidence of its own",
    )
    CAP_HAS_NO_EFFECT = (
        "cap-has-no-effect",
        "the target needs everything that there is now: keep all for now",
    )
    FLOOR_EXCEEDS_BUDGET = (
        "floor-exceeds-budget",
        "load-bearing memories alone exceed the token budget: no cap can help",
    )
    TARGET_EXCEEDS_BUDGET = (
        "target-exceeds-budget",
        "no cap meets both the target and the token budget: choose one",
    )
    # Here the horizon is the length of the history: it can show no reference to a memory that is
    # older than its first one.
    HORIZON_TOO_SHORT = (
        "horizon-too-short",
        "later needs often reach back to the oldest memories: a larger store takes a larger number",
    )
    # Here the horizon is the largest share of references that the evidence can speak of.
    TARGET_BEYOND_HORIZON = (
        "target-beyond-horizon",
        "there is too little evidence, here and in other projects, for so high a target",
    )
    HISTORY_INCOMPLETE = (
        "history-incomplete",
        "memories were deleted without an archive",
    )


@dataclass(frozen=True)
class Choice:
    """The safe cap (`keep_recent`) and the likely cap for a target, with limits and a verdict."""

    verdict: Verdict
    keep_recent: int
    interval: tuple[int, int]
    likely: int


def clusters_needed(target: float, confidence: float) -> int:
    """Return the number of clusters that can show a target.

    It is the smallest m for which ``1 - target ** m`` reaches `confidence` (nonparametric
    tolerance limits, Wilks 1941).
    """
    return math.ceil(math.log(1 - confidence) / math.log(target))


def choose_cap(posterior: Posterior, *, target: float, prunable: int, far_share: float) -> Choice:
    """Return the smallest cap whose lower limit meets the target, with a verdict.

    Parameters
    ----------
    posterior : Posterior
        The posterior of the caps.
    target : float
        Share of references to serve.
    prunable : int
        Number of present prunable memories.
    far_share : float
        Share of references whose age rank is more than half of the active memories; see
        :attr:`Ranked.far_share`.
    """
    with_limits = posterior.cap_for(target)
    safe_cap = with_limits.high
    needed = clusters_needed(target, posterior.settings.confidence)
    largest_known_share = posterior.settings.law.shares[-1]
    verdict = Verdict.OK
    if not posterior.memories:
        verdict = Verdict.NOTHING_PRUNABLE
    elif target > largest_known_share and posterior.cluster_count < needed:
        verdict = Verdict.TARGET_BEYOND_HORIZON
    # Without references of its own, a store gets the verdict FROM_OTHER_PROJECTS instead.
    elif posterior.cluster_count and safe_cap >= prunable:
        verdict = Verdict.CAP_HAS_NO_EFFECT
    elif posterior.weight < 0.5:
        verdict = Verdict.FROM_OTHER_PROJECTS
    elif far_share > 1 - target:
        verdict = Verdict.HORIZON_TOO_SHORT
    return Choice(
        verdict=verdict,
        keep_recent=safe_cap,
        interval=(with_limits.low, safe_cap),
        likely=with_limits.cap,
    )
