"""Whether two rules serve differently, or only by chance."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from memlab.frame.fields import Floats, Ints

CONFIDENCE = 0.9
"""Of each limit, when all pairs of a comparison are taken together."""


class Difference(NamedTuple):
    """A mean difference, as a share of references, and its limits."""

    mean: float
    low: float
    high: float


def difference_with_limits(day: Ints, difference: Floats, *, pairs: int = 1) -> Difference:
    """Return the mean of paired differences, with limits for several pairs at once.

    References of one day are alike, so days are taken as drawn, not references (Kish 1965). With
    several pairs each limit is as much wider as Bonferroni's inequality asks for.

    Parameters
    ----------
    day : array of int, shape (n,)
        The day of each reference.
    difference : array of float, shape (n,)
        What one rule served more than another, of each reference.
    pairs : int
        How many differences are looked at together.

    Examples
    --------
    >>> import numpy as np
    >>> day, difference = np.arange(100), np.tile([1.0, 0.0], 50)
    >>> mean, low, high = difference_with_limits(day, difference)
    >>> mean, round(low, 2), round(high, 2)
    (0.5, 0.44, 0.56)
    """
    count = len(difference)
    mean = float(difference.mean())
    days, place = np.unique(day, return_inverse=True)
    if len(days) < 2:
        return Difference(mean, -1.0, 1.0)
    sums = np.bincount(place, difference - mean)
    variance = float((sums**2).sum()) * len(days) / (len(days) - 1)
    wide = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / max(1, pairs))
    half = wide * variance**0.5 / count
    return Difference(mean, mean - half, mean + half)
