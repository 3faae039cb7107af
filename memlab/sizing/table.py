"""Age ranks of a short history, every row at every moment: exact, and nothing to compile.

A loop compiled by numba answers for any length in a blink, but loading numba takes a second. A
store of some hundred memories has its whole answer in one table before that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SHORT: Final = 2_048
"""Rows up to which the table is used: at this length it holds four million cells of 3 bytes."""

FEW: Final = 12
"""Caps below which the table is compared with each; more of them are read off sums over ranks."""


@dataclass(frozen=True)
class RankTable:
    """The rows of a history against its moments.

    Attributes
    ----------
    active : array of bool, shape (rows, moments)
        Whether a row is counted, written and not yet superseded after a moment.
    largest : array of int16, shape (rows, moments)
        The largest age rank that the row has had by then, whether or not it is counted itself.
    """

    active: Flags
    largest: npt.NDArray[np.int16]

    @classmethod
    def of(cls, counted: Flags, end: Ints) -> "RankTable":
        """Return the table of a history, as :class:`memlab.sizing.history.History` describes it."""
        moments = np.arange(len(counted))
        written = moments >= moments[:, None]
        active = written & counted[:, None] & (moments < end[:, None])
        ranks = np.cumsum(active[::-1], axis=0, dtype=np.int16)[::-1]
        return cls(active, np.maximum.accumulate(ranks * written, axis=1))

    def largest_ranks(self, target: Ints, at: Ints) -> Ints:
        """Return the largest age rank of each target, a counted row, by the moment before `at`."""
        return self.largest[target, at - 1].astype(np.int64)

    def kept_over_time(self, caps: Sequence[int], tokens: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each cap how many prunable rows, and tokens of them, it leaves over time."""
        if len(caps) < FEW:
            for cap in caps:
                kept = self.active & (self.largest <= cap)
                yield kept.sum(axis=0), tokens @ kept
            return
        rows, moments = self.active.shape
        row, moment = np.nonzero(self.active)
        cell = self.largest[row, moment].astype(np.int64) * moments + moment
        sums = []
        for weights in (None, tokens[row]):  # whole numbers below 2 ** 53: a double holds them
            by_rank = np.bincount(cell, weights, (rows + 1) * moments).astype(np.int64)
            sums.append(np.cumsum(by_rank.reshape(rows + 1, moments), axis=0))
        for cap in caps:
            count, cost = (upto[min(cap, rows)] for upto in sums)
            yield count, cost
