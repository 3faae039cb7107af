"""Compiled loops of sizing. The first call on a machine compiles them; numba caches them."""

import numpy as np
from numba import njit

from memlab.frame.fields import Flags, Ints


@njit(cache=True)
def kept_over_time(
    cap: int, ever_prunable: Flags, tokens: Ints, end: Ints, start: Ints, member: Ints
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return the number and the tokens of the prunable rows that a cap keeps at every moment.

    At each moment a row is written, the rows that it supersedes end, and the oldest rows are
    deleted until the cap holds. `start` and `member` are the rows grouped by their end; see
    :func:`memlab.sizing.lifetimes.grouped`.
    """
    row_count = len(ever_prunable)
    items_by_moment = np.empty(row_count, np.int64)
    tokens_by_moment = np.empty(row_count, np.int64)
    items = 0
    total = 0
    oldest = 0
    for moment in range(row_count):
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
        items_by_moment[moment] = items
        tokens_by_moment[moment] = total
    return items_by_moment, tokens_by_moment


@njit(cache=True)
def largest_sums(
    weight: Ints, end: Ints, floor: Ints, start: Ints, member: Ints, at: Ints
) -> Ints:  # pragma: no cover - compiled
    """Return the largest age rank of the target of each reference before the moment `at`.

    The rank at a moment is the sum of `floor` and of the `weight` of all active rows that are at
    least as new as the target. A row is active from its moment to its end. The rows are added from
    the newest to the oldest, so that the rank is a sum over the rows added so far. A segment tree
    over moments holds the changes of this sum: `total` has the sum of the changes below each node,
    and `largest_prefix` their largest prefix sum. `start` and `member` are the references grouped
    by target.
    """
    row_count = len(weight)
    width = 1
    while width <= row_count:
        width *= 2
    total = np.zeros(2 * width, np.int64)
    largest_prefix = np.zeros(2 * width, np.int64)
    largest = np.zeros(len(at), np.int64)
    for row in range(row_count - 1, -1, -1):
        _add(total, largest_prefix, row, floor[row] + weight[row])
        _add(total, largest_prefix, row + 1, -floor[row])
        _add(total, largest_prefix, end[row], -weight[row])
        for i in range(start[row], start[row + 1]):
            reference = member[i]
            node = width + min(at[reference], end[row])
            while node > 1:
                if node % 2 == 1:  # a right child: the moments of its left sibling are earlier
                    sibling = node - 1
                    largest[reference] = max(
                        largest_prefix[sibling], total[sibling] + largest[reference]
                    )
                node //= 2
    return largest


@njit(cache=True)
def _add(
    total: Ints, largest_prefix: Ints, moment: int, amount: int
) -> None:  # pragma: no cover - compiled
    """Add an amount to the change at a moment, and update the nodes above it."""
    node = len(total) // 2 + moment
    total[node] += amount
    largest_prefix[node] = total[node]
    node //= 2
    while node > 0:
        total[node] = total[2 * node] + total[2 * node + 1]
        largest_prefix[node] = max(
            largest_prefix[2 * node], total[2 * node] + largest_prefix[2 * node + 1]
        )
        node //= 2
