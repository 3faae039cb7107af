"""The compiled loops of sizing, for long histories; :mod:`memlab.sizing.table` does short ones.

Imported on first use: numba takes a second to load.

The first call on a machine compiles (about five seconds); the result is cached beside the module
or, where that folder cannot be written, in the user's cache folder.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Groups = tuple[Ints, npt.NDArray[np.int32]]
"""Where each group starts, and the members of all: half the memory of int64 is a quarter faster."""

BLOCK = 64
"""Words in a block: 4,096 rows."""


@njit(cache=True)
def group_by(key: Ints, groups: int) -> Groups:  # pragma: no cover - compiled
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
    gone: there the maximum had risen already. So the answer is the number of steps before `at`:
    all there are, less those from `at` on.

    The steps are bits in words, the words in blocks. Beside each word stands how many steps follow
    it in its block, beside each block how many follow in later ones: new steps come at the front,
    where they change neither, so only a step that goes has a few neighbouring counts to lower. The
    next step is found by union-find. A pair costs three look-ups, a row a constant, and a step that
    goes at most ``BLOCK + rows / 64 / BLOCK`` additions in a line.
    """
    n = len(counted)
    start, member = group_by(target, n)
    words = n // 64 + 1
    bits = np.zeros(words, np.uint64)
    later_words = np.zeros(words, np.int64)
    later_blocks = np.zeros(words // BLOCK + 1, np.int64)
    after = np.arange(n + 1)
    rank = np.zeros(len(target), np.int64)
    steps = 0
    front = words - 1
    for row in range(n - 1, -1, -1):
        if row >> 6 != front:
            begun = later_words[front] + _count_bits(bits[front])
            front = row >> 6
            if (front + 1) % BLOCK:
                later_words[front] = begun
            else:
                later_blocks[front // BLOCK] = later_blocks[front // BLOCK + 1] + begun
        if not counted[row]:
            after[row] = row + 1
            continue
        gone = _next_step(after, end[row])
        if gone < n:
            after[gone] = gone + 1
            word = gone >> 6
            bits[word] ^= np.uint64(1) << np.uint64(gone & 63)
            later_words[max(front, word - word % BLOCK) : word] -= 1
            later_blocks[front // BLOCK : word // BLOCK] -= 1
            steps -= 1
        bits[front] |= np.uint64(1) << np.uint64(row & 63)
        steps += 1
        for i in range(start[row], start[row + 1]):
            pair = member[i]
            before = min(at[pair], end[row])
            word = before >> 6
            rest = bits[word] >> np.uint64(before & 63)
            follow = later_blocks[word // BLOCK] + later_words[word] + _count_bits(rest)
            rank[pair] = steps - follow
    return rank


@njit(cache=True)
def kept_over_time(
    cap: int, counted: Flags, tokens: Ints, end: Ints, ends: Groups
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


@njit(cache=True)
def largest_sums(
    weight: Ints, end: Ints, beside: Ints, target: Ints, at: Ints
) -> Ints:  # pragma: no cover - compiled
    """Return, for each pair, the largest sum of weights at least as new as `target` before `at`.

    A row weighs from its own moment up to its end; `beside` is added at each moment. Going back
    through the rows, each adds its weight to the moments at which it is there, and a pair asks for
    the largest value from its target's moment on: a tree of maxima over moments, each node with
    what was added to all below it.
    """
    n = len(weight)
    start, member = group_by(target, n)
    width = 1
    while width < n:
        width *= 2
    most = np.full(2 * width, np.iinfo(np.int64).min // 2)
    added = np.zeros(2 * width, np.int64)
    most[width : width + n] = beside
    for node in range(width - 1, 0, -1):
        most[node] = max(most[2 * node], most[2 * node + 1])
    largest = np.zeros(len(target), np.int64)
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
            found = np.iinfo(np.int64).min
            for block in _blocks(row, min(at[pair], end[row]), width):
                value = most[block]
                node = block >> 1
                while node:
                    value += added[node]
                    node >>= 1
                found = max(found, value)
            largest[pair] = found
    return largest


@njit(cache=True)
def _blocks(first: int, stop: int, width: int) -> list[int]:  # pragma: no cover - compiled
    """Return the nodes of a tree that cover the moments from `first` up to and without `stop`."""
    nodes = []
    left, right = first + width, stop + width
    while left < right:
        if left & 1:
            nodes.append(left)
            left += 1
        if right & 1:
            right -= 1
            nodes.append(right)
        left >>= 1
        right >>= 1
    return nodes
