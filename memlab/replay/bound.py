"""The most references that a number of slots could have served, had one known them all before."""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.arguments import whole_number
from memlab.replay.life import Ints, Life, life_of


@dataclass(frozen=True)
class Bound:
    """What no policy with so many slots can do better.

    Attributes
    ----------
    slots : int
        Prunable memories that may be held at a time.
    kept : array of bool, one per reference that fits the frame, in the order they arose
        Which are served.
    held : array of int64, one per row
        Prunable memories held for a reference to come, after each was written.
    """

    slots: int
    kept: npt.NDArray[np.bool_]
    held: Ints

    @property
    def served(self) -> float:
        """Share of references that are served; NaN without any."""
        return float(self.kept.mean()) if len(self.kept) else float("nan")


def oracle(frame: pd.DataFrame, references: pd.DataFrame, slots: int) -> Bound:
    """Return the most that any policy with so many slots could have served.

    It knows what will be referred to, so it bounds a replay and cannot decide about a store.

    Parameters
    ----------
    frame, references : DataFrame
        As for :func:`memlab.replay.replay`.
    slots : int
        Prunable memories that may be held at a time.

    Raises
    ------
    ValueError
        If `slots` is not a whole number of 0 or more, or `references` lacks a column.
    """
    return bound_of(life_of(frame, references), whole_number("slots", slots))


def bound_of(life: Life, slots: int) -> Bound:
    """Return the bound of a history that has been prepared; see :func:`oracle`.

    To serve a reference is to hold its target from the reference before, or from its writing, until
    then: an interval. Which intervals fit into `slots` at a time, as many as possible, is the
    largest `slots`-colourable subgraph of an interval graph, which one pass finds: take intervals
    as they begin, and when there are too many at once, drop the one that ends last (Faigle and
    Nawijn, 1995). A memory that was dropped may return once it is referred to, so no policy can
    serve more.

    Load-bearing rows and superseded ones take no slot.
    """
    start, stop = _intervals(life)
    kept = np.ones(len(start), dtype=bool)
    ending: list[tuple[int, int]] = []
    latest: list[tuple[int, int]] = []
    held = 0
    for reference in np.argsort(start, kind="stable").tolist():
        if stop[reference] <= start[reference]:
            continue
        while ending and ending[0][0] <= start[reference]:
            held -= kept[heapq.heappop(ending)[1]]
        heapq.heappush(ending, (int(stop[reference]), reference))
        heapq.heappush(latest, (-int(stop[reference]), reference))
        held += 1
        if held > slots:
            kept[heapq.heappop(latest)[1]] = False
            held -= 1
    taken = np.flatnonzero(kept & (stop > start))
    change = np.zeros(len(life) + 1, dtype=np.int64)
    np.add.at(change, start[taken], 1)
    np.add.at(change, stop[taken], -1)
    return Bound(slots, kept, np.cumsum(change)[:-1])


def _intervals(life: Life) -> tuple[Ints, Ints]:
    """First moment after which each reference's target must be held, and the first it need not."""
    order = np.lexsort((life.at, life.target))
    target, at = life.target[order], np.take(life.at, order)
    start, stop = np.empty_like(at), np.empty_like(at)
    again = np.zeros(len(at), dtype=bool)
    again[1:] = target[1:] == target[:-1]
    start[order] = np.where(again, np.append(0, at[:-1])[: len(at)], target)
    stop[order] = np.minimum(at, life.history.end[target])
    free = ~life.history.counted[life.target]
    stop[free] = start[free]
    return start, stop
