"""How sure one can be: limits for the next stretch of a history, from blocks of the past."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from memlab.sizing.estimate import BLOCKS, Estimate, Floats, distinct
from memlab.sizing.history import Ints

RUN: Final = 2
"""Adjacent blocks drawn together: a tenth of the history, so that what resembles its neighbours
stays beside them."""

NEXT_RUNS: Final = 2
"""Runs in one imagined future: a fifth as long again as the history. The limits are for a stretch
to come, whose own needs are few and lumpy, and not for a mean over all time."""

RESAMPLES: Final = 1000
"""Imagined futures. Only mean and standard deviation are taken from them: 1000 give the latter to
2 %, so that another seed moves a cap by a few percent."""

BINS: Final = 4096
"""Ranks told apart; where there are more, neighbours less than half a percent apart share one."""

HALF_NEEDS: Final = 10
"""Sittings that either half must have before they are compared: half of what sizing asks of all."""

LEVELS: Final = np.arange(1, 1001) / 1000
"""Shares of needs for which limits are computed."""

DRIFT_LEVELS: Final = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
"""Shares at which the recent half is compared with all: needs that reach farther do so at all of
them, and the mean over several is less noisy than one."""

AHEAD: Final = (1.1 - 0.5) / (0.75 - 0.5)
"""How much farther the trend carries. With the history as the unit of time, its middle is at 0.5,
that of its recent half at 0.75, and that of the next stretch, a fifth long, at 1.1."""


@dataclass(frozen=True)
class Band:
    """The cap that each share of needs takes, with limits for the next stretch of history.

    Attributes
    ----------
    levels : array of float64
        Shares of needs, increasing.
    lower, upper : arrays of float64
        Limits of the cap that serves each share.
    drift : float
        Factor by which needs of the next stretch reach farther than those of the whole history, if
        the trend goes on; 1.0 where resampling alone would show as much.
    """

    levels: Floats
    lower: Floats
    upper: Floats
    drift: float

    def limits_at(self, caps: Ints) -> tuple[Floats, Floats]:
        """Return the lower and upper limit of the share that each cap serves."""
        low = np.concatenate([[0.0], self.levels])[np.searchsorted(self.upper, caps, side="right")]
        high = np.append(self.levels, 1.0)[np.searchsorted(self.lower, caps, side="right")]
        return low, high

    def caps_at(self, share: float) -> tuple[int, int]:
        """Return the lower and upper limit of the cap that serves at least this share."""
        level = min(int(np.searchsorted(self.levels, share - 1e-9)), len(self.levels) - 1)
        return int(np.floor(self.lower[level])), int(np.ceil(self.upper[level] - 1e-9))


@dataclass(frozen=True)
class Blocks:
    """Weights of the needs, by contiguous block of history and by rank.

    Attributes
    ----------
    ranks : array of int64, one per bin
    whole : array of float64, blocks x bins
        Each need by one over the memories ever seen at its rank.
    recent : array of float64, blocks of the recent half x bins
        Each by one over the memories seen at its rank in that half: what is far back could be
        needed only lately, and the comparison must not take that for a trend.
    comparable : bool
        Both halves hold enough needs to be compared.
    """

    ranks: Ints
    whole: Floats
    recent: Floats
    comparable: bool

    def log_caps(
        self, draw: np.random.Generator, levels: Floats, runs: int, *, recent: bool = False
    ) -> Floats:
        """Return log(1 + cap) for each level in each future of so many runs of blocks."""
        available = self.recent if recent else self.whole
        starts = len(available) - RUN + 1
        drawn = draw.multinomial(runs, np.full(starts, 1 / starts), size=RESAMPLES)
        times = sum(np.pad(drawn, ((0, 0), (lag, RUN - 1 - lag))) for lag in range(RUN))
        shares = np.cumsum(times @ available, axis=1)
        shares = shares[shares[:, -1] > 0]
        shares /= shares[:, -1:]
        place = np.array([share.searchsorted(levels - 1e-12) for share in shares])
        caps: Floats = np.log1p(self.ranks)[np.minimum(place, len(self.ranks) - 1)]
        return caps

    def trend(self, draw: np.random.Generator) -> tuple[float, float]:
        """Return by how much log caps of the next stretch differ from all, and its variance."""
        if not self.comparable:
            return 0.0, 0.0
        whole = self.log_caps(draw, DRIFT_LEVELS, BLOCKS // RUN)
        recent = self.log_caps(draw, DRIFT_LEVELS, BLOCKS // 2 // RUN, recent=True)
        noise = recent.mean(axis=1).var()
        return float(AHEAD * (recent.mean() - whole.mean())), float(AHEAD**2 * noise)


def blocks_of(estimate: Estimate) -> Blocks:
    """Cut an estimate's needs into `BLOCKS` blocks of equal length in rows written."""
    needs = estimate.needs
    rank, at = needs.rank[estimate.within], needs.at[estimate.within]
    first = estimate.first_logged if needs.logged.all() else 0
    length = max(len(estimate.history) - first, 1)
    block = np.minimum((at - first) * BLOCKS // length, BLOCKS - 1)
    ranks, bins = _bins(rank)
    late = block >= BLOCKS // 2
    whole = np.zeros((BLOCKS, len(ranks)))
    recent = np.zeros((BLOCKS - BLOCKS // 2, len(ranks)))
    np.add.at(whole, (block, bins), estimate.weight)
    middle = first + -(-length * (BLOCKS // 2) // BLOCKS)
    np.add.at(recent, (block[late] - BLOCKS // 2, bins[late]), estimate.weight_since(middle)[late])
    sitting = needs.sitting[estimate.within]
    halves = (distinct(sitting[half]) for half in (late, ~late))
    return Blocks(ranks, whole, recent, min(halves) >= HALF_NEEDS)


def band_of(
    estimate: Estimate, confidence: float, *, seed: int, levels: Floats = LEVELS
) -> Band | None:
    """Return limits for the next stretch of history, from resampled blocks of this one.

    For each share of needs, the logarithm of the cap that serves it is computed in many imagined
    futures of `NEXT_RUNS` runs of adjacent blocks; the limits are its mean plus and minus the
    normal quantile of `confidence` times its standard deviation. Distances are heavy-tailed, so it
    is their logarithms that are near normal. Needs of one time resemble each other, so overlapping
    runs of blocks are drawn (Kuensch 1989), not single needs.

    Distances may drift as a project ages, beyond what a growing store alone explains. The recent
    half of the history, weighted by what could be seen in it, is compared with all of it, and the
    difference carried on to the next stretch. Its square is added to the variance on the side that
    it points to: a trend may go on or not.

    A cap that serves a share serves every smaller share: the limits are made to agree on that.

    Parameters
    ----------
    estimate : Estimate
        What the history shows.
    confidence : float
        Of each limit on its own.
    seed : int
        Of the resampling.
    levels : array of float64
        Shares of needs to compute limits for, increasing. An upper limit depends on its level and
        those above it alone.

    Returns
    -------
    Band or None
        None with fewer independent needs than blocks: their spread says nothing.
    """
    if estimate.independent < BLOCKS or not estimate.within.any():
        return None
    blocks = blocks_of(estimate)
    draw = np.random.default_rng(seed)
    shift, noise = blocks.trend(draw)
    future = blocks.log_caps(draw, levels, NEXT_RUNS)
    mean, spread = future.mean(axis=0), future.var(axis=0)
    z = NormalDist().inv_cdf(confidence)
    lower = np.expm1(mean - z * np.sqrt(spread + min(shift, 0) ** 2))
    upper = np.expm1(mean + z * np.sqrt(spread + max(shift, 0) ** 2))
    return Band(
        levels,
        np.maximum(np.maximum.accumulate(lower), 0),
        np.minimum.accumulate(upper[::-1])[::-1],
        float(np.exp(shift)) if shift**2 > noise else 1.0,
    )


def _bins(rank: Ints) -> tuple[Ints, Ints]:
    """Return the ranks told apart, each the largest of its bin, and the bin of every need."""
    ranks = np.flatnonzero(np.bincount(rank, minlength=1)).astype(np.int64)
    if len(ranks) > BINS:
        edges = np.unique(np.geomspace(1, ranks[-1] + 1, BINS).astype(np.int64))
        ranks = np.append(edges[edges < ranks[-1]], ranks[-1])
    return ranks, np.searchsorted(ranks, np.arange(ranks[-1] + 1))[rank]
