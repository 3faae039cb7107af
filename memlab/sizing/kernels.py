"""Compiled loops of sizing. The first call on a machine compiles them; numba caches them."""

import numpy as np
from numba import njit

from memlab.frame.fields import Flags, Ints


@njit(cache=True)
def kept_over_time(
    cap: int, ever_prunable: Flags, tokens: Ints, end: Ints, start: Ints, member: Ints
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return the number and the tokens of the prunable rows that a cap leaves after every moment.

    At each moment a row is written, the rows it replaces end, and the oldest are deleted until the
    cap holds. `start` and `member` are the rows grouped by their end.
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

    A row has its weight from its moment to its end. A segment tree holds the changes: each node has
    their sum and the largest prefix sum. `start` and `member` are the pairs grouped by target.
    """
    n = len(weight)
    width = 1
    while width <= n:
        width *= 2
    total = np.zeros(2 * width, np.int64)
    most = np.zeros(2 * width, np.int64)
    largest = np.zeros(len(at), np.int64)
    for row in range(n - 1, -1, -1):
        _add(total, most, row, floor[row] + weight[row])
        _add(total, most, row + 1, -floor[row])
        _add(total, most, end[row], -weight[row])
        for i in range(start[row], start[row + 1]):
            pair = member[i]
            node = width + min(at[pair], end[row])
            while node > 1:
                if node & 1:
                    largest[pair] = max(most[node - 1], total[node - 1] + largest[pair])
                node >>= 1
    return largest


@njit(cache=True)
def _add(total: Ints, most: Ints, moment: int, amount: int) -> None:  # pragma: no cover - compiled
    node = len(total) // 2 + moment
    total[node] += amount
    most[node] = total[node]
    node >>= 1
    while node:
        total[node] = total[2 * node] + total[2 * node + 1]
        most[node] = max(most[2 * node], total[2 * node] + most[2 * node + 1])
        node >>= 1
