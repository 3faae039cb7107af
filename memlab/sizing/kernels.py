"""The compiled loops of sizing, for histories that are long and in which memories replaced others.

Imported on first use: numba takes a second to load.

The first call on a machine compiles (some seconds); the result is cached beside the module or,
where that folder cannot be written, in the user's cache folder.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@njit(cache=True)
def kept_over_time(
    cap: int, ever_prunable: Flags, tokens: Ints, end: Ints, start: Ints, member: Ints
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return how many prunable rows, and tokens of them, a cap leaves after every moment.

    At each moment a row is written, the rows it replaces leave, and the oldest go until the cap
    holds. `start` and `member` are the rows grouped by their end.
    """
    n = len(ever_prunable)
    items_then = np.empty(n, np.int64)
    tokens_then = np.empty(n, np.int64)
    items = 0
    total = 0
    oldest = 0
    for moment in range(n):
        if ever_prunable[moment]:
            items += 1
            total += tokens[moment]
        for i in range(start[moment], start[moment + 1]):
            row = member[i]
            if ever_prunable[row] and row >= oldest:
                items -= 1
                total -= tokens[row]
        while items > cap:
            if ever_prunable[oldest] and end[oldest] > moment:
                items -= 1
                total -= tokens[oldest]
            oldest += 1
        items_then[moment] = items
        tokens_then[moment] = total
    return items_then, tokens_then


@njit(cache=True)
def largest_sums(
    weight: Ints, end: Ints, floor: Ints, start: Ints, member: Ints, at: Ints
) -> Ints:  # pragma: no cover - compiled
    """Return, for each pair, the largest sum of weights at least as new as its target before `at`.

    A row weighs from its own moment up to its end; the floor is added at each moment. Going back
    through the rows, each adds its weight to the moments at which it is there, and a pair asks for
    the largest value from its target's moment on: a tree of maxima over moments, each node with
    what was added to all below it. `start` and `member` are the pairs grouped by their target.
    """
    n = len(weight)
    width = 1
    while width < n:
        width *= 2
    most = np.full(2 * width, np.iinfo(np.int64).min // 2)
    added = np.zeros(2 * width, np.int64)
    most[width : width + n] = floor
    for node in range(width - 1, 0, -1):
        most[node] = max(most[2 * node], most[2 * node + 1])
    largest = np.zeros(len(at), np.int64)
    for row in range(n - 1, -1, -1):
        if weight[row]:
            left, right = row + width, end[row] + width
            first, last = left, right - 1
            while left < right:
                if left & 1:
                    most[left] += weight[row]
                    added[left] += weight[row]
                    left += 1
                if right & 1:
                    right -= 1
                    most[right] += weight[row]
                    added[right] += weight[row]
                left >>= 1
                right >>= 1
            for leaf in (first, last):
                node = leaf >> 1
                while node:
                    most[node] = max(most[2 * node], most[2 * node + 1]) + added[node]
                    node >>= 1
        for i in range(start[row], start[row + 1]):
            pair = member[i]
            stop = min(at[pair], end[row])
            largest[pair] = _largest_between(most, added, row + width, stop + width)
    return largest


@njit(cache=True)
def _largest_between(
    most: Ints, added: Ints, left: int, right: int
) -> int:  # pragma: no cover - compiled
    """Return the largest value from leaf `left` up to and without leaf `right` of a tree."""
    largest = np.iinfo(np.int64).min
    while left < right:
        if left & 1:
            largest = max(largest, _value(most, added, left))
            left += 1
        if right & 1:
            right -= 1
            largest = max(largest, _value(most, added, right))
        left >>= 1
        right >>= 1
    return largest


@njit(cache=True)
def _value(most: Ints, added: Ints, node: int) -> int:  # pragma: no cover - compiled
    """Return the largest value below a node, with all that was added above it."""
    value: int = most[node]
    node >>= 1
    while node:
        value += added[node]
        node >>= 1
    return value
