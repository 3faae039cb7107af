"""How sure one can be: limits for the next stretch of a history, from blocks of the past."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from memlab.sizing.estimate import BLOCKS, Estimate, Floats
from memlab.sizing.history import Ints

NEXT_BLOCKS: Final = 4
"""Blocks in one imagined future: a fifth as long again as the history. The limits are for a stretch
to come, whose own needs are few and lumpy, and not for a mean over all time."""

RESAMPLES: Final = 400
"""Imagined futures. Only mean and standard deviation are taken from them: 400 give the latter to
4 %, which moves a cap by as much again."""

BINS: Final = 4096
"""Ranks told apart; where there are more, neighbours less than half a percent apart share one."""

HALF_NEEDS: Final = 10
"""Sittings that either half must have before they are compared: half of what sizing asks of all."""

LEVELS: Final = np.arange(1, 1001) / 1000
"""Shares of needs for which limits are computed."""


@dataclass(frozen=True)
class Band:
    """The cap that each share of needs takes, with limits for the next stretch of history.

    Attributes
    ----------
    levels : array of float64
        Shares of needs, increasing.
    lower, upper : arrays of float64
        Limits of the cap that serves each share.
    drift : array of float64
        Factor by which the recent half of the history takes a larger cap than all of it.
    drifting : array of bool
        Whether that factor is more than resampling alone would give.
    """

    levels: Floats
    lower: Floats
    upper: Floats
    drift: Floats
    drifting: npt.NDArray[np.bool_]

    def limits_at(self, caps: Ints) -> tuple[Floats, Floats]:
        """Return the lower and upper limit of the share that each cap serves."""
        low = np.concatenate([[0.0], self.levels])[np.searchsorted(self.upper, caps, side="right")]
        high = np.append(self.levels, 1.0)[np.searchsorted(self.lower, caps, side="right")]
        return low, high

    def caps_at(self, share: float) -> tuple[int, int]:
        """Return the lower and upper limit of the cap that serves at least this share."""
        level = min(int(np.searchsorted(self.levels, share - 1e-9)), len(self.levels) - 1)
        return int(np.floor(self.lower[level])), int(np.ceil(self.upper[level] - 1e-9))

    def drift_at(self, share: float) -> float:
        """Return the drift at this share; 1.0 where there is none to be seen."""
        level = min(int(np.searchsorted(self.levels, share - 1e-9)), len(self.levels) - 1)
        return float(self.drift[level]) if self.drifting[level] else 1.0


@dataclass(frozen=True)
class Blocks:
    """Weights of the needs, by contiguous block of history and by rank.

    Attributes
    ----------
    ranks : array of int64, one per bin
    weight : array of float64, blocks x bins
    comparable : bool
        Both halves hold enough needs to be compared.
    """

    ranks: Ints
    weight: Floats
    comparable: bool

    def log_caps(
        self, draw: np.random.Generator, levels: Floats, count: int, *, first: int = 0
    ) -> Floats:
        """Return log(1 + cap) for each level in each future of `count` blocks from `first` on."""
        available = self.weight[first:]
        even = np.full(len(available), 1 / len(available))
        times = draw.multinomial(count, even, size=RESAMPLES)
        shares = np.cumsum(times @ available, axis=1)
        shares = shares[shares[:, -1] > 0]
        shares /= shares[:, -1:]
        place = np.array([np.searchsorted(share, levels - 1e-12) for share in shares])
        caps: Floats = np.log1p(self.ranks)[np.minimum(place, len(self.ranks) - 1)]
        return caps


def blocks_of(estimate: Estimate) -> Blocks:
    """Cut an estimate's needs into `BLOCKS` blocks of equal length in rows written."""
    needs = estimate.needs
    rank, at = needs.rank[estimate.within], needs.at[estimate.within]
    first = estimate.first_logged if needs.logged.all() else 0
    length = max(len(estimate.history) - first, 1)
    block = np.minimum((at - first) * BLOCKS // length, BLOCKS - 1)
    ranks = np.flatnonzero(np.bincount(rank, minlength=1))
    if len(ranks) > BINS:
        edges = np.unique(np.geomspace(1, ranks[-1] + 1, BINS).astype(np.int64))
        ranks = np.append(edges[edges < ranks[-1]], ranks[-1])
    bins = np.searchsorted(ranks, np.arange(ranks[-1] + 1))[rank]
    weight = np.zeros((BLOCKS, len(ranks)))
    np.add.at(weight, (block, bins), estimate.weight)
    recent = block >= BLOCKS // 2
    sitting = needs.sitting[estimate.within]
    halves = (len(np.unique(sitting[half])) for half in (recent, ~recent))
    return Blocks(ranks, weight, min(halves) >= HALF_NEEDS)


def band_of(
    estimate: Estimate, confidence: float, *, seed: int, levels: Floats = LEVELS
) -> Band | None:
    """Return limits for the next stretch of history, from resampled blocks of this one.

    None with fewer independent needs within the horizon than blocks: their spread says nothing.

    For each share of needs, the logarithm of the cap that serves it is computed in many imagined
    futures of `NEXT_BLOCKS` blocks; the limits are its mean plus and minus the normal quantile of
    `confidence` times its standard deviation. Distances are heavy-tailed, so it is their logarithms
    that are near normal. Needs of one time resemble each other, so blocks are drawn (Kuensch 1989),
    not single needs.

    Distances may drift as a project ages. Where the recent half of the history takes a larger (or a
    smaller) cap than all of it, the square of the difference in logarithms, less the variance that
    resampling alone gives it, is added to the variance on that side.

    Parameters
    ----------
    estimate : Estimate
        What the history shows.
    confidence : float
        Of each limit on its own.
    seed : int
        Of the resampling.
    levels : array of float64
        Shares of needs to compute limits for, increasing.
    """
    if estimate.independent < BLOCKS or not estimate.within.any():
        return None
    blocks = blocks_of(estimate)
    draw = np.random.default_rng(seed)
    future = blocks.log_caps(draw, levels, NEXT_BLOCKS)
    mean, spread = future.mean(axis=0), future.var(axis=0)
    shift, noise = np.zeros(len(levels)), np.zeros(len(levels))
    if blocks.comparable:
        whole = blocks.log_caps(draw, levels, BLOCKS)
        recent = blocks.log_caps(draw, levels, BLOCKS // 2, first=BLOCKS // 2)
        shift, noise = recent.mean(axis=0) - whole.mean(axis=0), recent.var(axis=0)
    drift = np.maximum(shift**2 - noise, 0)
    z = NormalDist().inv_cdf(confidence)
    lower = np.expm1(mean - z * np.sqrt(spread + drift * (shift < 0)))
    upper = np.expm1(mean + z * np.sqrt(spread + drift * (shift > 0)))
    return Band(
        levels,
        np.maximum(np.minimum.accumulate(lower[::-1])[::-1], 0),
        np.maximum.accumulate(upper),
        np.exp(shift),
        drift > 0,
    )
