"""Which row of a scope goes next, without looking at all of them.

A score mixes importance, which stands, with recency, which fades: the order of two rows changes as
time passes, so no sorted index holds it. But any two rows change places at most once, at a moment
that can be computed. A kinetic tournament (Basch, Guibas, Hershberger 1999, "Data structures for
mobile data") keeps the winner of every pair of halves with the span of time for which it holds:
finding the lowest, adding, and removing a row look at one path through the tree.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from memlab.scoring import value_score

FOREVER = (-math.inf, math.inf)
NO_TIME = (math.inf, -math.inf)


class Capacity(Protocol):
    """How many rows a scope may hold and what they are ranked by, as ``ValueCap`` says it."""

    @property
    def slots(self) -> int:
        """Rows a scope may hold."""

    @property
    def half_life(self) -> Any:
        """Age of the last access at which recency halves."""

    @property
    def recency(self) -> float:
        """Weight of recency."""

    @property
    def importance(self) -> float:
        """Weight of importance."""

    @property
    def scope(self) -> tuple[str, ...]:
        """Fields that make a scope."""


class Ranked(NamedTuple):
    """A row that may go."""

    memory_id: str
    importance: float
    accessed: datetime
    position: int


class Tournament:
    """Rows of one scope that may go, and which of them goes first at any moment.

    Lowest score goes first, ties toward the older last access, then toward the older position.

    Parameters
    ----------
    capacity : Capacity
        Half-life and weights.
    rows : iterable of Ranked
        The rows to begin with.
    """

    def __init__(self, capacity: Capacity, rows: Iterable[Ranked] = ()) -> None:
        self._capacity = capacity
        self._half_life = capacity.half_life.total_seconds()
        self._plant(list(rows))

    def __len__(self) -> int:
        return len(self._leaf)

    def add(self, row: Ranked) -> None:
        """Take in a row, in place of an older one with its id."""
        self.discard(row.memory_id)
        if not self._free:
            self._plant([*self._rows(), row])
            return
        leaf = self._free.pop()
        self._leaf[row.memory_id] = leaf
        self._put(leaf, row)

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if (leaf := self._leaf.pop(memory_id, None)) is not None:
            self._put(leaf, None)
            self._free.append(leaf)

    def touch(self, memory_id: str, accessed: datetime) -> None:
        """Note the last access of a row, if it is here."""
        leaf = self._leaf.get(memory_id, 0)
        if leaf and (row := self._winner[leaf]):
            self._put(leaf, row._replace(accessed=accessed))

    def lowest(self, now: datetime) -> Ranked | None:
        """Return the row that goes first at `now`, None where there is none."""
        self._settle(1, now, now.timestamp())
        return self._winner[1]

    def _plant(self, rows: list[Ranked]) -> None:
        """Make a tree for `rows` and as many again."""
        self._half = 1 << max(1, len(rows).bit_length())
        spare = [None] * (self._half - len(rows))
        self._winner: list[Ranked | None] = [*[None] * self._half, *rows, *spare]
        self._span = [NO_TIME] * self._half + [FOREVER] * self._half
        self._leaf = {row.memory_id: self._half + i for i, row in enumerate(rows)}
        self._free = list(range(2 * self._half - 1, self._half + len(rows) - 1, -1))

    def _rows(self) -> list[Ranked]:
        return [row for row in self._winner[self._half :] if row is not None]

    def _put(self, leaf: int, row: Ranked | None) -> None:
        """Set a leaf; every winner above it is open again."""
        self._winner[leaf] = row
        node = leaf >> 1
        while node:
            self._span[node] = NO_TIME
            node >>= 1

    def _settle(self, node: int, now: datetime, at: float) -> None:
        """Find the winner below `node`, and for how long it holds."""
        first, last = self._span[node]
        if first <= at <= last:
            return
        left, right = 2 * node, 2 * node + 1
        self._settle(left, now, at)
        self._settle(right, now, at)
        one, other = self._winner[left], self._winner[right]
        begins, ends = FOREVER
        if one is None or other is None:
            self._winner[node] = one or other
        else:
            self._winner[node], begins, ends = self._lower(one, other, now, at)
        (one_begins, one_ends), (other_begins, other_ends) = self._span[left], self._span[right]
        self._span[node] = max(begins, one_begins, other_begins), min(ends, one_ends, other_ends)

    def _key(self, row: Ranked, now: datetime) -> tuple[float, datetime, int]:
        score = value_score(
            now - row.accessed,
            row.importance,
            half_life=self._capacity.half_life,
            recency_weight=self._capacity.recency,
            importance_weight=self._capacity.importance,
        )
        return score, row.accessed, row.position

    def _lower(
        self, one: Ranked, other: Ranked, now: datetime, at: float
    ) -> tuple[Ranked, float, float]:
        """Return which of two rows goes first, and the span of time around `at` in which it does.

        With access ages apart by ``d`` half-lives and importances by ``i``, the scores cross where
        the newer access is ``log2(recency * (1 - 2**-d) / (importance * i))`` half-lives old: the
        older access is lower before that, the newer after. Near that moment rounding decides, so
        the scores themselves are compared and the span is empty.
        """
        older, newer = sorted((one, other), key=attrgetter("accessed", "position"))
        latest = newer.accessed.timestamp()
        begins, ends = NO_TIME  # before the last access, after a clock was ahead: looked at anew
        if at >= latest:
            gain = self._capacity.importance * (older.importance - newer.importance)
            if gain <= 0:
                return older, latest, math.inf
            apart = (latest - older.accessed.timestamp()) / self._half_life
            fading = self._capacity.recency * -math.expm1(-apart * math.log(2))
            if fading > 0:
                crossing = latest + self._half_life * math.log2(fading / gain)
                doubt = self._half_life * min(1.0, 1e-14 / gain) + 1e-5
                if at < crossing - doubt:
                    return older, latest, crossing - doubt
                if at > crossing + doubt:
                    return newer, max(latest, crossing + doubt), math.inf
            else:
                begins, ends = latest, math.inf
        return min(older, newer, key=lambda row: self._key(row, now)), begins, ends
