"""How much a memory is worth: decay, and the scores built on it.

Standard library only. The same functions take single numbers, where a store is written, and numpy
arrays, where a frame is ranked.
"""

from datetime import timedelta
from typing import Any, Final

HALF_LIFE: Final = timedelta(days=7)
SIMILARITY_WEIGHT: Final = 0.6
RECENCY_WEIGHT: Final = 0.25
IMPORTANCE_WEIGHT: Final = 0.15

_MOST_AHEAD: Final = -1000.0
"""Half-lives that a clock may be ahead: a power of two of that many still fits a float."""


def recency_decay(age: Any, half_life: Any) -> Any:
    """Return how much of a memory's recency is left: one half per half-life.

    Parameters
    ----------
    age : timedelta, float or array
        In the unit of `half_life`. Below zero, after a clock that was ahead, more than all is left.
    half_life : timedelta or float
        Above zero.

    Returns
    -------
    float or array
        ``2 ** (-age / half_life)``, for an age of no less than -1000 half-lives. Source: BetterDB
        agent-memory, which sets no bound on either side.

    Examples
    --------
    >>> recency_decay(timedelta(days=14), timedelta(days=7))
    0.25
    """
    lives = age / half_life
    bounded = lives * (lives > _MOST_AHEAD) + _MOST_AHEAD * (lives <= _MOST_AHEAD)
    return 2.0**-bounded


def composite_score(
    similarity: Any, age: Any, importance: Any, *, half_life: Any = HALF_LIFE
) -> Any:
    """Return what a recall ranks by: similarity, recency and importance at 0.6, 0.25, 0.15.

    Parameters
    ----------
    similarity : float or array
        Of the memory to the query, in [0, 1].
    age : timedelta, float or array
        Since the later of its creation and its last access, in the unit of `half_life`. (What
        evicts goes by the last access alone.)
    importance : float or array
        In [0, 1].
    half_life : timedelta or float
        Above zero; seven days by default.

    Returns
    -------
    float or array
        In [0, 1] for an age of 0 or more. Source: BetterDB agent-memory.

    Examples
    --------
    >>> round(composite_score(1.0, timedelta(0), 1.0), 12)
    1.0
    """
    return (
        SIMILARITY_WEIGHT * similarity
        + RECENCY_WEIGHT * recency_decay(age, half_life)
        + IMPORTANCE_WEIGHT * importance
    )


def value_score(
    age: Any,
    importance: Any,
    *,
    half_life: Any = HALF_LIFE,
    recency_weight: float = RECENCY_WEIGHT,
    importance_weight: float = IMPORTANCE_WEIGHT,
) -> Any:
    """Return what an eviction ranks by: the composite score without similarity, renormalised.

    Parameters
    ----------
    age : timedelta, float or array
        Since the last access, in the unit of `half_life`.
    importance : float or array
        In [0, 1].
    half_life : timedelta or float
        Above zero; seven days by default.
    recency_weight, importance_weight : float
        0 or more.

    Returns
    -------
    float or array
        In [0, 1] for an age of 0 or more; 0 for all when both weights are 0. Source: BetterDB
        agent-memory.

    Examples
    --------
    >>> value_score(timedelta(days=7), 0.5)
    0.5
    """
    total = recency_weight + importance_weight
    if total == 0:
        return importance * 0.0
    return (importance_weight * importance + recency_weight * recency_decay(age, half_life)) / total
