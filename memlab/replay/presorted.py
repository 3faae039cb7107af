"""Replay of steps whose order is known in advance: neither time nor use changes it.

A general replay applies every step at every moment to all present rows. Here rows wait in heaps,
so that a row is looked at only when it is written and when it is evicted. With 16 policies,
``memlab compare`` of 5,000 memories takes a third of the time (``.ci/bench/bench_compare.py``).
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from memlab.frame.fields import Flags, Ints, Times
from memlab.policies.base import Scope

NO_SCOPE = -1
"""The scope of a row that is in none."""


class Step(Protocol):
    """State of a step of a policy while a history is replayed."""

    reason: str
    """Reason that the step gives for the rows that it evicts."""
    can_evict: bool
    """Whether the step may evict any row. If not, it is skipped."""

    def start(self, row: int) -> None:
        """Record that a row was written."""

    def supersede(self, row: int) -> None:
        """Record that a present row was superseded."""

    def remove(self, row: int) -> None:
        """Record that a row was evicted by any step, superseded or not."""

    def evicted(self, now: int) -> Iterator[int]:
        """Yield the rows to evict at a time in microseconds; :meth:`remove` follows for each."""


class Deadlines:
    """A step under which each row has a deadline.

    Parameters
    ----------
    due : array of datetime64[us], shape (rows,)
        Deadline of each row; NaT for none.
    when_superseded : bool
        Whether the step is about superseded rows instead of active ones.
    """

    def __init__(self, due: Times, reason: str, *, when_superseded: bool) -> None:
        self.reason = reason
        self._due = due.astype("datetime64[us]").astype(np.int64).tolist()
        is_ever_due = ~np.isnat(due)
        self.can_evict = bool(is_ever_due.any())
        self._is_ever_due = is_ever_due.tolist()
        self._when_superseded = when_superseded
        self._waiting: list[tuple[int, int]] = []
        """Heap of deadlines with their rows, some of which are no longer awaited."""
        self._is_awaited = bytearray(len(due))
        """Whether the row is to be evicted at its deadline."""

    def start(self, row: int) -> None:
        """Record that a row was written."""
        if not self._when_superseded:
            self._wait(row)

    def supersede(self, row: int) -> None:
        """Record that a row was superseded."""
        if self._when_superseded:
            self._wait(row)
        else:
            self._is_awaited[row] = False

    def remove(self, row: int) -> None:
        """Record that a row was evicted."""
        self._is_awaited[row] = False

    def evicted(self, now: int) -> Iterator[int]:
        """Yield the rows whose deadline has passed."""
        while self._waiting and self._waiting[0][0] < now:
            _, row = heappop(self._waiting)
            if self._is_awaited[row]:
                yield row

    def _wait(self, row: int) -> None:
        """Put a row into the heap of deadlines."""
        if self._is_ever_due[row]:
            self._is_awaited[row] = True
            heappush(self._waiting, (self._due[row], row))


class Ranking:
    """A step that evicts the lowest rows of each scope that exceeds its capacity.

    Parameters
    ----------
    rank : array of int, shape (rows,)
        Place of each row in eviction order.
    size : array of int, shape (rows,)
        Size of each row: 1, or its tokens.
    evictable : array of bool, shape (rows,)
        Rows that are not load-bearing.
    scope : array of int, shape (rows,)
        Number of the scope of each row, or :data:`NO_SCOPE`.
    room : int
        Capacity of each scope, in units of `size`.
    """

    def __init__(
        self, rank: Ints, size: Ints, evictable: Flags, scope: Ints, *, room: int, reason: str
    ) -> None:
        self.reason = reason
        self.can_evict = bool(size.sum() > room)
        self._rank = rank.tolist()
        self._row_at = np.argsort(rank).tolist()
        self._size = size.tolist()
        self._evictable = evictable.tolist()
        self._scope = scope.tolist()
        self._room = room
        scopes = int(scope.max(initial=NO_SCOPE)) + 1
        self._used = [0] * scopes
        """Size of the rows in each scope."""
        self._lowest: list[list[int]] = [[] for _ in range(scopes)]
        """For each scope a heap of ranks, some of which belong to evicted rows."""
        self._grown_scopes: set[int] = set()
        """Scopes to which rows were added since the step was last applied."""
        self._is_counted = bytearray(len(rank))
        """Whether the row counts towards the capacity of its scope."""

    def start(self, row: int) -> None:
        """Record that a row was written."""
        scope = self._scope[row]
        if scope == NO_SCOPE:
            return
        self._is_counted[row] = True
        self._used[scope] += self._size[row]
        self._grown_scopes.add(scope)
        if self._evictable[row]:
            heappush(self._lowest[scope], self._rank[row])

    def supersede(self, row: int) -> None:
        """Record that a row was superseded; it no longer counts towards the capacity."""
        self.remove(row)

    def remove(self, row: int) -> None:
        """Record that a row was evicted."""
        if self._is_counted[row]:
            self._is_counted[row] = False
            self._used[self._scope[row]] -= self._size[row]

    def evicted(self, now: int) -> Iterator[int]:  # noqa: ARG002
        """Yield the lowest rows of the scopes that exceed their capacity."""
        for scope in self._grown_scopes:
            lowest = self._lowest[scope]
            while self._used[scope] > self._room and lowest:
                row = self._row_at[heappop(lowest)]
                if self._is_counted[row]:
                    yield row
        self._grown_scopes.clear()


def scope_numbers(scopes: Sequence[Scope], count: int) -> Ints | None:
    """Return the number of each row's scope, or None if that does not describe the scopes.

    It does not if scopes share rows, or if a scope has members for which it does not exist.

    >>> separate = [Scope(np.array([0, 2]), np.array([0, 2]))]
    >>> scope_numbers(separate, 3).tolist()
    [0, -1, 0]
    """
    numbers = np.full(count, NO_SCOPE, dtype=np.int64)
    for number, scope in enumerate(scopes):
        is_shared = (numbers[scope.members] != NO_SCOPE).any()
        if is_shared or not np.array_equal(scope.members, scope.owners):
            return None
        numbers[scope.members] = number
    return numbers


class Evicted(NamedTuple):
    """The moment at which each row was evicted, and the reason."""

    moment: Ints
    """Shape (rows,); `never` for a row that stays."""
    reason: npt.NDArray[np.object_]
    """Shape (rows,); None for a row that stays."""


class Application(NamedTuple):
    """An application of a policy.

    Attributes
    ----------
    last_row : int
        The row after which it happens.
    now : int
        The time in microseconds.
    """

    last_row: int
    now: int


def evict_in_order(
    steps: Sequence[Step], end: Ints, applications: Sequence[Application], *, never: int
) -> Evicted:
    """Return when each row is evicted by steps whose order is known.

    Parameters
    ----------
    steps : sequence of Step
        Steps in order; each is about the rows that the previous ones left.
    end : array of int, shape (rows,)
        The row that supersedes each row; the number of rows, or more, if none does.
    applications : sequence of Application
        The applications of the policy, in order.
    never : int
        The moment to return for rows that stay.
    """
    count = len(end)
    moments: Ints = np.full(count, never)
    reason_of = np.full(count, None, dtype=object)
    reasons = [step.reason for step in steps]
    if len(steps) > 1:
        reasons = [f"step {number}: {step.reason}" for number, step in enumerate(steps, start=1)]
    acting = [(step, reason) for step, reason in zip(steps, reasons, strict=True) if step.can_evict]
    steps = [step for step, _ in acting]
    superseded_rows: dict[int, list[int]] = {}  # by the row that supersedes them
    for row in np.flatnonzero(end < count).tolist():
        superseded_rows.setdefault(int(end[row]), []).append(row)
    is_present = bytearray(count)
    written = 0
    for last_row, now in applications:
        stop = min(last_row + 1, count)
        for row in range(written, stop):
            is_present[row] = True
            for step in steps:
                step.start(row)
        for new in range(written, stop):
            for row in superseded_rows.get(new, ()):
                if is_present[row]:
                    for step in steps:
                        step.supersede(row)
        written = stop
        for step, reason in acting:
            for row in step.evicted(now):
                is_present[row] = False
                moments[row] = last_row
                reason_of[row] = reason
                for any_step in steps:
                    any_step.remove(row)
    return Evicted(moments, reason_of)
