"""The compiled loops of sizing. Imported on first use: numba takes a second to load.

The first call on a machine compiles (about five seconds); the result is cached beside the module
or, where that folder cannot be written, in the user's cache folder.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@njit(cache=True)
def group_by(key: Ints, groups: int) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return where each group starts and the members of all groups in order (a counting sort)."""
    start = np.zeros(groups + 1, np.int64)
    for value in key:
        start[value + 1] += 1
    for group in range(groups):
        start[group + 1] += start[group]
    place = start[:-1].copy()
    member = np.empty(len(key), np.int32)
    for i in range(len(key)):
        member[place[key[i]]] = i
        place[key[i]] += 1
    return start, member


@njit(cache=True)
def _count_bits(word: np.uint64) -> int:  # pragma: no cover - compiled
    """Return how many bits of a 64-bit word are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True)
def _add_to_words(tree: Ints, word: int, change: int) -> None:  # pragma: no cover - compiled
    """Add to one word's count in a Fenwick tree."""
    node = word + 1
    while node < len(tree):
        tree[node] += change
        node += node & -node


@njit(cache=True)
def _next_step(after: Ints, place: int) -> int:  # pragma: no cover - compiled
    """Return the first step at `place` or later, halving the path to it on the way."""
    while after[place] != place:
        after[place] = after[after[place]]
        place = after[place]
    return place


@njit(cache=True)
def largest_ranks_under_supersession(
    counted: Flags, end: Ints, target: Ints, at: Ints
) -> Ints:  # pragma: no cover - compiled
    """Return the largest age rank of `target` in the moments before `at`, for each pair.

    Going back through the rows, the largest age rank so far of the current row is a non-decreasing
    function of time that rises by at most one at a moment: a set of steps. One more counted row
    raises the rank of everything older while it is active, from its own moment to its `end`. On the
    largest rank so far that is a new step at its own moment, and the first step at or after its end
    gone: there the maximum had risen already. So the answer is the number of steps before `at`.
    The steps are bits, counted by a Fenwick tree over words; the next step is found by union-find.
    O(rows + pairs log(rows / 64)).
    """
    n = len(counted)
    start, member = group_by(target, n)
    bits = np.zeros(n // 64 + 1, np.uint64)
    tree = np.zeros(len(bits) + 1, np.int64)
    after = np.arange(n + 1)
    rank = np.zeros(len(target), np.int64)
    for row in range(n - 1, -1, -1):
        if not counted[row]:
            after[row] = row + 1
            continue
        gone = _next_step(after, end[row])
        if gone < n:
            after[gone] = gone + 1
            bits[gone >> 6] ^= np.uint64(1) << np.uint64(gone & 63)
            _add_to_words(tree, gone >> 6, -1)
        bits[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
        _add_to_words(tree, row >> 6, 1)
        for i in range(start[row], start[row + 1]):
            pair = member[i]
            before = min(at[pair], end[row])
            node = before >> 6
            below = (np.uint64(1) << np.uint64(before & 63)) - np.uint64(1)
            steps = _count_bits(bits[node] & below)
            while node > 0:
                steps += tree[node]
                node &= node - 1
            rank[pair] = steps
    return rank


@njit(cache=True)
def kept_over_time(
    cap: int, counted: Flags, tokens: Ints, end: Ints, ends: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return how many prunable rows, and tokens of them, a cap leaves after every moment.

    At each moment a row is written, the rows it replaces leave, and the oldest go until the cap
    holds. `ends` are the rows grouped by their end.
    """
    n = len(counted)
    start, member = ends
    items_then = np.empty(n, np.int64)
    tokens_then = np.empty(n, np.int64)
    items = 0
    total = 0
    oldest = 0
    for moment in range(n):
        if counted[moment]:
            items += 1
            total += tokens[moment]
        for i in range(start[moment], start[moment + 1]):
            row = member[i]
            if counted[row] and row >= oldest:
                items -= 1
                total -= tokens[row]
        while items > cap:
            if counted[oldest] and end[oldest] > moment:
                items -= 1
                total -= tokens[oldest]
            oldest += 1
        items_then[moment] = items
        tokens_then[moment] = total
    return items_then, tokens_then
