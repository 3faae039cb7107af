"""The most needs that a number of slots could have served, had one known."""

import heapq

import numpy as np
import numpy.typing as npt

from memlab.replay.life import Ints, Life

Intervals = tuple[Ints, Ints]


def serve_most(life: Life, slots: int) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Say which needs are served when as many as possible are.

    To serve a need is to hold its target from the need before, or from its writing, until then: an
    interval. Which intervals fit into `slots` at a time, as many as possible, is the largest
    `slots`-colourable subgraph of an interval graph, which one pass finds: take intervals as they
    begin, and when there are too many at once, drop the one that ends last (Faigle and Nawijn,
    1995). A memory that was dropped may return once it is needed, so no policy can serve more.

    Load-bearing rows and superseded ones take no slot.

    Parameters
    ----------
    life : Life
        The history.
    slots : int
        Prunable rows that may be held at a time.

    Returns
    -------
    served : array of bool, one per need
    held : array of int64, shape (2, moments)
        Prunable rows held for a need to come, and their tokens, after every moment.
    """
    start, stop = _intervals(life)
    served = np.ones(len(start), dtype=bool)
    ending: list[tuple[int, int]] = []
    latest: list[tuple[int, int]] = []
    held = 0
    for need in np.argsort(start, kind="stable").tolist():
        if stop[need] <= start[need]:
            continue
        while ending and ending[0][0] <= start[need]:
            held -= served[heapq.heappop(ending)[1]]
        heapq.heappush(ending, (int(stop[need]), need))
        heapq.heappush(latest, (-int(stop[need]), need))
        held += 1
        if held > slots:
            served[heapq.heappop(latest)[1]] = False
            held -= 1
    return served, _held(life, start, stop, served)


def _intervals(life: Life) -> Intervals:
    """First moment after which each need's target must be held, and the first it need not."""
    order = np.lexsort((life.at, life.target))
    target, at = life.target[order], life.at[order]
    start, stop = np.empty_like(at), np.empty_like(at)
    again = np.zeros(len(at), dtype=bool)
    again[1:] = target[1:] == target[:-1]
    start[order] = np.where(again, np.append(0, at[:-1])[: len(at)], target)
    stop[order] = np.minimum(at, life.history.end[target])
    free = ~life.history.counted[life.target]
    stop[free] = start[free]
    return start, stop


def _held(life: Life, start: Ints, stop: Ints, served: npt.NDArray[np.bool_]) -> Ints:
    taken = np.flatnonzero(served & (stop > start))
    change = np.zeros((2, len(life) + 1), dtype=np.int64)
    tokens = life.history.tokens[life.target[taken]]
    for line, amount in zip(change, (np.ones_like(tokens), tokens), strict=True):
        np.add.at(line, start[taken], amount)
        np.add.at(line, stop[taken], -amount)
    return np.cumsum(change, axis=1)[:, :-1]
