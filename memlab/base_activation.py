"""Base-level activation: the odds that a memory is needed next, computed from the times of its use.

The odds that a memory is needed decrease as a power of the time since it was written and since
each use, and the contributions of several uses add up (Anderson and Schooler 1991). If only the
number of uses and the last one are known, the others are assumed to be spread evenly over the
time between (Petrov 2006).

The decay d is 0.5, as is usual in the literature, and the functions have the simpler formulas for
this value: (L^(1-d) - t^(1-d)) / ((1-d) (L - t)) becomes 2 / (sqrt(L) + sqrt(t)), which is finite
for t = L. To use another decay, change all functions here and in :mod:`memlab.evidence.use_times`.

This module needs the standard library alone.
:mod:`memlab.evidence.use_times` has the same formula for arrays.
"""

from collections.abc import Iterable
from math import sqrt
from typing import Final

SHORTEST_DAYS: Final = 0.5
"""Lower bound of all times in days: a use an hour ago counts like any other use of today."""

LENGTH_POWER: Final = 0.4
"""Exponent of the length by which activation is divided in a budget of tokens."""

LENGTH_OFFSET: Final = 10
"""Tokens added to the length of each memory, so that short memories do not win by their length."""


def base_level(age: float, idle: float | None = None, reads: float = 0) -> float:
    """Return the activation of a memory from the number of its reads and the last of them.

    Without reads it is L^-d, else t^-d + n (L^(1-d) - t^(1-d)) / ((1-d) (L - t)), with d = 0.5
    (Petrov 2006).

    Parameters
    ----------
    age : float
        L, days since it was written.
    idle : float, optional
        t, days since it was last read; None if it was never read.
    reads : float
        n, the number of days on which it was read.

    Returns
    -------
    float
        Above 0, in days to the power of -1/2.

    Examples
    --------
    Written 100 days ago and never read: 1 / sqrt(100).

    >>> base_level(100)
    0.1

    Written 100 days ago and read on three days, the last of them 4 days ago: 1 / sqrt(4), and three
    times 2 / (sqrt(100) + sqrt(4)).

    >>> base_level(100, 4, reads=3)
    1.0
    """
    age = max(age, SHORTEST_DAYS)
    if idle is None or not reads:
        return 1 / sqrt(age)
    idle = min(max(idle, SHORTEST_DAYS), age)
    return 1 / sqrt(idle) + reads * 2 / (sqrt(age) + sqrt(idle))


def base_level_of_days(age: float, idles: Iterable[float]) -> float:
    """Return the activation of a memory from all days on which it was read.

    It is the exact sum, without the assumption of :func:`base_level` that reads are spread evenly.

    Parameters
    ----------
    age : float
        Days since it was written.
    idles : iterable of float
        For each day on which the memory was read, the number of days since then.

    Returns
    -------
    float
        Above 0, in days to the power of -1/2.

    Examples
    --------
    >>> base_level_of_days(100, [4, 25])
    0.8
    """
    times = (age, *idles)
    return sum(1 / sqrt(max(time, SHORTEST_DAYS)) for time in times)


def per_length(activation: float, tokens: int) -> float:
    """Return activation divided by length, for a budget of tokens.

    It is ``activation / (tokens + LENGTH_OFFSET) ** LENGTH_POWER``.

    Examples
    --------
    >>> round(per_length(1.0, 1_014), 4)
    0.0625
    """
    return float(activation / (tokens + LENGTH_OFFSET) ** LENGTH_POWER)
