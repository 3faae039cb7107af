"""Confidence limits of the difference between two rules."""

from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from memlab.frame.fields import Floats, Ints

CONFIDENCE: Final = 0.9
"""One-sided confidence that the limits of all pairs of a comparison hold together."""


class Difference(NamedTuple):
    """A mean difference, as a share of references, with confidence limits."""

    mean: float
    low: float
    high: float


def difference_with_limits(day: Ints, difference: Floats, *, pairs: int = 1) -> Difference:
    """Return the mean of paired differences, with simultaneous limits for several pairs.

    References of one day are correlated, so days are the sampling units (cluster sampling, Kish
    1965). For several pairs the limits are widened by the Bonferroni correction.

    Parameters
    ----------
    day : array of int, shape (n,)
        The day of each reference.
    difference : array of float, shape (n,)
        For each reference: 1 if only the first rule served it, -1 if only the second did, else 0.
    pairs : int
        Number of differences that are judged together.

    Returns
    -------
    Difference
        Limits of -1 and 1 if there are fewer than two days.

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
    days, day_number = np.unique(day, return_inverse=True)
    if len(days) < 2:
        return Difference(mean, -1.0, 1.0)
    sum_of_day = np.bincount(day_number, difference - mean)
    variance = float((sum_of_day**2).sum()) * len(days) / (len(days) - 1)
    quantile = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / max(1, pairs))
    half_width = quantile * variance**0.5 / count
    return Difference(mean, mean - half_width, mean + half_width)
