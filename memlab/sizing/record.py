"""Backtest: choose caps at earlier moments of a history, and measure them afterwards."""

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
"""Shares of the rows written at which the history is split for a backtest."""

AFTER: Final = 0.2
"""Share of the rows after a split on which the cap is measured."""

FEWEST_AFTER: Final = 5
"""Smallest number of references after a split that counts in the inflation of intervals."""

WATCHED: Final = (0.5, 0.75, 0.9, 0.95)
"""Shares of references at which the inflation of intervals is computed."""

MOST_SURPRISING: Final = 2.0
"""Largest surprise that counts, in standard deviations. A larger one among few references would
inflate every later interval."""

PRIOR: Final = 4.0
"""Weight of the prior that intervals are right, in splits."""


class TrackRecord(NamedTuple):
    """Result of a backtest: measured splits, missed targets, median of chosen over needed."""

    measured: int
    missed: int
    waste: float | None = None

    @property
    def poor(self) -> bool:
        """Whether the target was missed at more than one in four splits."""
        return 4 * self.missed > self.measured


@dataclass(frozen=True)
class BacktestSplit:
    """A history before a split, and the age ranks of the references in the fifth that followed.

    `plain` is the posterior before the split, without inflated intervals. `after` is sorted.
    """

    share: float
    history: History
    references: Ranked
    plain: Posterior
    after: Ints

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior at the split, with intervals inflated by the backtest before it."""
        earlier = backtest_splits(self.history, self.references, self.plain.terms, CUTS)
        return replace(self.plain, interval_inflation=widening(earlier))

    @property
    def prunable(self) -> int:
        """Number of prunable rows at the split."""
        return int(self.history.active_before[-1])

    def needed(self, target: float) -> int:
        """Return the smallest cap that would have met the target afterwards."""
        return int(self.after[math.ceil(target * len(self.after) - 1e-9) - 1])

    def achieved(self, cap: int) -> float:
        """Return the share of the references after the split that a cap would have served."""
        return float(np.searchsorted(self.after, cap, side="right") / len(self.after))

    def surprise(self, target: float) -> float:
        """Return how many standard deviations the needed reach exceeds the expected one, or 0."""
        expected, _, high = self.plain.cap_for(target)
        middle, limit, came = log_rank_fraction(
            [expected, high, self.needed(target)], self.plain.middle
        )
        quantile = NormalDist().inv_cdf(self.plain.terms.confidence)
        surprise = quantile * float((came - middle) / max(limit - middle, 1e-3))
        return min(max(surprise, 0.0), MOST_SURPRISING)


def posterior_of(history: History, references: Ranked, terms: PosteriorSettings) -> Posterior:
    """Return the posterior of the caps for the next stretch, from a history and its references."""
    reach, recency = references.reach
    return Posterior(
        terms=terms,
        memories=int(history.prunable_before[-1]),
        own=reach,
        recency=recency,
        cluster_count=references.cluster_count,
        always=references.always,
    )


def backtest_splits(
    history: History, references: Ranked, terms: PosteriorSettings, shares: Sequence[float]
) -> list[BacktestSplit]:
    """Return the splits of a history after some shares of its rows."""
    n = len(history)
    splits = []
    for share in shares:
        first = round(share * n)
        last = round((share + AFTER) * n)
        if last >= n:
            last = n + 1  # references after the last row count too
        before = history.until(first)
        references_before = references.between(0, first)
        references_after = references.between(first, last)
        split = BacktestSplit(
            share=share,
            history=before,
            references=references_before,
            plain=posterior_of(before, references_before, terms),
            after=np.sort(references_after.rank),
        )
        splits.append(split)
    return splits


def record_of(cuts: Sequence[BacktestSplit], target: float) -> TrackRecord:
    """Return how often the safe cap for a target would have met it."""
    missed = 0
    ratios = []
    for cut in cuts:
        if not len(cut.after):
            continue
        _, _, chosen = cut.posterior.cap_for(target)
        needed = cut.needed(target)
        ratios.append(chosen / max(needed, 1))
        if chosen < needed:
            missed += 1
    waste = median(ratios) if ratios else None
    return TrackRecord(measured=len(ratios), missed=missed, waste=waste)


def widening(cuts: Sequence[BacktestSplit]) -> float:
    """Return the interval inflation of a backtest: a factor of 1 or more.

    At each share of `WATCHED` it is the root mean square of the surprises, in standard deviations,
    with `PRIOR` surprises of 1 added. The largest one counts.
    """
    measured = [cut for cut in cuts if len(cut.after) >= FEWEST_AFTER]
    scales = [1.0]
    for target in WATCHED:
        squares = [cut.surprise(target) ** 2 for cut in measured]
        scales.append(math.sqrt((PRIOR + sum(squares)) / (PRIOR + len(squares))))
    return max(scales)


class Verdict(StrEnum):
    """Outcome of a recommendation; ``meaning`` explains it in words."""

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
        "most of the evidence is from other projects; this store has little of its own",
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
    HORIZON_TOO_SHORT = (
        "horizon-too-short",
        "later needs keep reaching back to the oldest memories: the number grows with the store",
    )
    TARGET_BEYOND_HORIZON = (
        "target-beyond-horizon",
        "there is too little evidence, here and in other projects, for so high a target",
    )
    HISTORY_INCOMPLETE = (
        "history-incomplete",
        "memories were deleted without an archive, and with them evidence that a number needs",
    )


@dataclass(frozen=True)
class Choice:
    """A cap for a target: safe (`keep_recent`) and likely, with limits and a verdict."""

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
