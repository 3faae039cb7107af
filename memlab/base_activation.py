"""Base-level activation: how likely a memory is needed next, by when and how often it was used.

The odds that a memory is needed fall off as a power of the time since it was written and since each
use of it, and those of several uses add up (Anderson and Schooler 1991). Where only the number of
uses and the last of them are known, the others are taken as spread evenly over the time between
(Petrov 2006). This half needs the standard library alone; :mod:`memlab.policies.activation` has the
same formula for arrays.
"""

from collections.abc import Iterable
from math import sqrt
from typing import Final

DECAY: Final = 0.5
"""The power by which a use fades, d in the literature, where .5 is usual. The formulas below are
written for a half: with it (L^(1-d) - t^(1-d)) / ((1-d) (L - t)) is 2 / (sqrt(L) + sqrt(t)), which
needs no limit where t approaches L."""

SHORTEST_DAYS: Final = 0.5
"""No time counts as less: what was used an hour ago is needed no more than what was used today."""

LENGTH_POWER: Final = 0.4
"""By tokens, activation is divided by the length to this power."""

LENGTH_OFFSET: Final = 10
"""Tokens that a memory is taken to cost beside its own."""


def base_level(age: float, idle: float | None = None, reads: float = 0) -> float:
    """Return the activation of a memory from the number of its reads and the last of them.

    Without reads it is L^-d, else t^-d + n (L^(1-d) - t^(1-d)) / ((1-d) (L - t)), with d = 0.5.

    Parameters
    ----------
    age : float
        L, days since it was written.
    idle : float, optional
        t, days since it was read last; None where it was never read.
    reads : float
        n, on how many days it was read.

    Returns
    -------
    float
        Above 0; per square root of days.

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
    """Return the activation of a memory all of whose days of reading are known: the exact sum.

    Parameters
    ----------
    age : float
        Days since it was written.
    idles : iterable of float
        Days since the last read of each day on which it was read.

    Examples
    --------
    >>> base_level_of_days(100, [4, 25])
    0.8
    """
    times = (age, *idles)
    return sum(1 / sqrt(max(time, SHORTEST_DAYS)) for time in times)


def per_length(activation: float, tokens: int) -> float:
    """Return what activation comes to where room is counted in tokens.

    Examples
    --------
    >>> round(per_length(1.0, 1_014), 4)
    0.0625
    """
    return float(activation / (tokens + LENGTH_OFFSET) ** LENGTH_POWER)
