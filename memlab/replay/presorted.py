"""Replay of steps with a fixed order of eviction, which neither time nor use changes.

A general replay applies every step at every moment to all present rows. Here each step keeps its
rows in heaps, so that a row is processed only when it is written and when it is evicted. With 16
policies, ``memlab compare`` of 5,000 memories takes a third of the time
(``.ci/bench/bench_compare.py``).
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
    """A step of a policy, and its state while a history is replayed."""

    reason: str
    """Reason that the step gives for the rows that it evicts."""
    can_evict: bool
    """Whether the step may evict any row. If not, it is skipped."""

    def write(self, row: int) -> None:
        """Record that a row was written."""

    def supersede(self, row: int) -> None:
        """Record that a present row was superseded."""

    def remove(self, row: int) -> None:
        """Record that this step or another one evicted a row, which may be superseded."""

    def iter_evictions(self, now: int) -> Iterator[int]:
        """Yield the rows to evict at a time in microseconds.

        The caller calls :meth:`remove` for each row before it takes the next one.
        """


class Deadlines:
    """A step that evicts each row at its deadline.

    Parameters
    ----------
    due : array of datetime64[us], shape (rows,)
        Deadline of each row; NaT for none.
    reason : str
        Reason that the step gives.
    when_superseded : bool
        Whether the step evicts superseded rows instead of active ones.
    """

    def __init__(self, due: Times, reason: str, *, when_superseded: bool) -> None:
        self.reason = reason
        self._deadlines = due.astype("datetime64[us]").astype(np.int64).tolist()
        has_deadline = ~np.isnat(due)
        self.can_evict = bool(has_deadline.any())
        self._has_deadline = has_deadline.tolist()
        self._when_superseded = when_superseded
        self._heap: list[tuple[int, int]] = []
        """Heap of deadlines and their rows; entries of rows that are no candidates stay in it."""
        self._is_candidate = bytearray(len(due))
        """Whether each row is to be evicted at its deadline."""

    def write(self, row: int) -> None:
        """Record that a row was written."""
        if not self._when_superseded:
            self._push(row)

    def supersede(self, row: int) -> None:
        """Record that a row was superseded."""
        if self._when_superseded:
            self._push(row)
        else:
            self._is_candidate[row] = False

    def remove(self, row: int) -> None:
        """Record that a row was evicted."""
        self._is_candidate[row] = False

    def iter_evictions(self, now: int) -> Iterator[int]:
        """Yield the rows whose deadline has passed."""
        while self._heap and self._heap[0][0] < now:
            _, row = heappop(self._heap)
            if self._is_candidate[row]:
                yield row

    def _push(self, row: int) -> None:
        """Put a row into the heap of deadlines."""
        if self._has_deadline[row]:
            self._is_candidate[row] = True
            heappush(self._heap, (self._deadlines[row], row))


class Ranking:
    """A step that evicts the lowest rows of each scope that exceeds its capacity.

    Parameters
    ----------
    rank : array of int, shape (rows,)
        Place of each row in eviction order.
    size : array of int, shape (rows,)
        Amount of the capacity that each row uses: 1, its tokens, or 0.
    evictable : array of bool, shape (rows,)
        Rows that are not load-bearing.
    scope : array of int, shape (rows,)
        Number of the scope of each row, or :data:`NO_SCOPE`.
    capacity : int
        Capacity of each scope, in units of `size`.
    reason : str
        Reason that the step gives.
    """

    def __init__(
        self, rank: Ints, size: Ints, evictable: Flags, scope: Ints, *, capacity: int, reason: str
    ) -> None:
        self.reason = reason
        self.can_evict = bool(size.sum() > capacity)
        self._rank = rank.tolist()
        self._row_at = np.argsort(rank).tolist()
        self._size = size.tolist()
        self._evictable = evictable.tolist()
        self._scope = scope.tolist()
        self._capacity = capacity
        scope_count = int(scope.max(initial=NO_SCOPE)) + 1
        self._used = [0] * scope_count
        """Total size of the rows in each scope."""
        self._ranks: list[list[int]] = [[] for _ in range(scope_count)]
        """Heap of the ranks of each scope's rows; the ranks of evicted rows stay in it."""
        self._grown_scopes: set[int] = set()
        """Scopes to which rows were added since the step was last applied."""
        self._is_counted = bytearray(len(rank))
        """Whether each row counts towards the capacity of its scope."""

    def write(self, row: int) -> None:
        """Record that a row was written."""
        scope = self._scope[row]
        if scope == NO_SCOPE:
            return
        self._is_counted[row] = True
        self._used[scope] += self._size[row]
        self._grown_scopes.add(scope)
        if self._evictable[row]:
            heappush(self._ranks[scope], self._rank[row])

    def supersede(self, row: int) -> None:
        """Record that a row was superseded; it no longer counts towards the capacity."""
        self.remove(row)

    def remove(self, row: int) -> None:
        """Record that a row was evicted."""
        if self._is_counted[row]:
            self._is_counted[row] = False
            self._used[self._scope[row]] -= self._size[row]

    def iter_evictions(self, now: int) -> Iterator[int]:  # noqa: ARG002
        """Yield the lowest rows of the scopes that exceed their capacity."""
        for scope in self._grown_scopes:
            ranks = self._ranks[scope]
            while self._used[scope] > self._capacity and ranks:
                row = self._row_at[heappop(ranks)]
                if self._is_counted[row]:
                    yield row
        self._grown_scopes.clear()


def scope_number_of_rows(scopes: Sequence[Scope], count: int) -> Ints | None:
    """Return the number of each row's scope; None if a row can be in several scopes.

    It is also None if the owners of a scope are not all of its members.

    >>> separate = [Scope(np.array([0, 2]), np.array([0, 2]))]
    >>> scope_number_of_rows(separate, 3).tolist()
    [0, -1, 0]
    """
    numbers = np.full(count, NO_SCOPE, dtype=np.int64)
    for number, scope in enumerate(scopes):
        is_shared = (numbers[scope.members] != NO_SCOPE).any()
        if is_shared or not np.array_equal(scope.members, scope.owners):
            return None
        numbers[scope.members] = number
    return numbers


class RowEvictions(NamedTuple):
    """The moment at which each row was evicted, and the reason.

    Attributes
    ----------
    moment : array of int, shape (rows,)
        The moment; `never` of :func:`evict_in_order` for a row that stays.
    reason : array of str, shape (rows,)
        The reason; None for a row that stays.
    """

    moment: Ints
    reason: npt.NDArray[np.object_]


class Application(NamedTuple):
    """An application of a policy.

    Attributes
    ----------
    last_row : int
        The row after whose writing the policy is applied.
    now : int
        The time of the application, in microseconds.
    """

    last_row: int
    now: int


def evict_in_order(
    steps: Sequence[Step], successor: Ints, applications: Sequence[Application], *, never: int
) -> RowEvictions:
    """Evict rows by presorted steps, and return the moment and the reason of each eviction.

    Parameters
    ----------
    steps : sequence of Step
        Steps in order. Each decides about the rows that the previous steps left.
    successor : array of int, shape (rows,)
        The row that supersedes each row. If none does, it is at least the number of rows.
    applications : sequence of Application
        The applications of the policy, in order.
    never : int
        The moment to return for rows that stay.
    """
    count = len(successor)
    moment_of: Ints = np.full(count, never)
    reason_of = np.full(count, None, dtype=object)
    reasons = [step.reason for step in steps]
    if len(steps) > 1:
        reasons = [f"step {number}: {step.reason}" for number, step in enumerate(steps, start=1)]
    reason_of_step = {
        step: reason for step, reason in zip(steps, reasons, strict=True) if step.can_evict
    }
    rows_superseded_by: dict[int, list[int]] = {}
    for row in np.flatnonzero(successor < count).tolist():
        rows_superseded_by.setdefault(int(successor[row]), []).append(row)
    is_present = bytearray(count)
    written = 0
    for last_row, now in applications:
        stop = min(last_row + 1, count)
        for row in range(written, stop):
            is_present[row] = True
            for step in reason_of_step:
                step.write(row)
        for new_row in range(written, stop):
            for row in rows_superseded_by.get(new_row, ()):
                if is_present[row]:
                    for step in reason_of_step:
                        step.supersede(row)
        written = stop
        for step, reason in reason_of_step.items():
            for row in step.iter_evictions(now):
                is_present[row] = False
                moment_of[row] = last_row
                reason_of[row] = reason
                for any_step in reason_of_step:
                    any_step.remove(row)
    return RowEvictions(moment=moment_of, reason=reason_of)
