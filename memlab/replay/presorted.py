"""Replay of steps whose order is known beforehand: neither time nor use changes it.

A general walk asks every step at every moment about all rows that are there. Rows whose order does
not change wait in heaps instead, so that each is looked at when it comes and when it goes. With 16
policies named, ``memlab compare`` of 5,000 memories takes a third of the time so
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
    """A step of a policy on its way through a history."""

    reason: str
    """Why rows go."""

    def start(self, row: int) -> None:
        """Note that a row was written."""

    def supersede(self, row: int) -> None:
        """Note that a row that is there was superseded."""

    def remove(self, row: int) -> None:
        """Note that a row went, superseded or not, by whatever step."""

    def gone(self, now: int) -> Iterator[int]:
        """Yield the rows that go at a moment, in microseconds; :meth:`remove` follows for each."""


class Deadlines:
    """A step under which each row goes after a time of its own.

    Parameters
    ----------
    due : array of datetime64[us], shape (rows,)
        When each row goes; NaT for never.
    when_superseded : bool
        Whether the step is about superseded rows, rather than about active ones.
    """

    def __init__(self, due: Times, reason: str, *, when_superseded: bool) -> None:
        self.reason = reason
        self._due = due.astype("datetime64[us]").astype(np.int64).tolist()
        self._is_ever_due = (~np.isnat(due)).tolist()
        self._when_superseded = when_superseded
        self._waiting: list[tuple[int, int]] = []
        self._is_subject = bytearray(len(due))

    def start(self, row: int) -> None:
        """Note that a row was written."""
        if not self._when_superseded:
            self._wait(row)

    def supersede(self, row: int) -> None:
        """Note that a row was superseded."""
        if self._when_superseded:
            self._wait(row)
        else:
            self._is_subject[row] = False

    def remove(self, row: int) -> None:
        """Note that a row went."""
        self._is_subject[row] = False

    def gone(self, now: int) -> Iterator[int]:
        """Yield the rows whose time has passed."""
        while self._waiting and self._waiting[0][0] < now:
            _, row = heappop(self._waiting)
            if self._is_subject[row]:
                yield row

    def _wait(self, row: int) -> None:
        if self._is_ever_due[row]:
            self._is_subject[row] = True
            heappush(self._waiting, (self._due[row], row))


class Ranking:
    """A step under which the lowest rows of each scope go, beyond its room.

    Parameters
    ----------
    rank : array of int, shape (rows,)
        Order in which rows go, each number once.
    size : array of int, shape (rows,)
        How much room each row takes up.
    may_go : array of bool, shape (rows,)
        Rows that are not load-bearing.
    scope : array of int, shape (rows,)
        Number of the scope that each row is in, or :data:`NO_SCOPE`.
    room : int
        How much room each scope has.
    """

    def __init__(
        self, rank: Ints, size: Ints, may_go: Flags, scope: Ints, *, room: int, reason: str
    ) -> None:
        self.reason = reason
        self._rank = rank.tolist()
        self._row_at = np.argsort(rank).tolist()
        self._size = size.tolist()
        self._may_go = may_go.tolist()
        self._scope = scope.tolist()
        self._room = room
        scopes = int(scope.max(initial=NO_SCOPE)) + 1
        self._taken = [0] * scopes
        self._lowest: list[list[int]] = [[] for _ in range(scopes)]
        self._grown: set[int] = set()
        self._is_there = bytearray(len(rank))

    def start(self, row: int) -> None:
        """Note that a row was written."""
        scope = self._scope[row]
        if scope == NO_SCOPE:
            return
        self._is_there[row] = True
        self._taken[scope] += self._size[row]
        self._grown.add(scope)
        if self._may_go[row]:
            heappush(self._lowest[scope], self._rank[row])

    def supersede(self, row: int) -> None:
        """Note that a row was superseded, and takes up no room any more."""
        self.remove(row)

    def remove(self, row: int) -> None:
        """Note that a row went."""
        if self._is_there[row]:
            self._is_there[row] = False
            self._taken[self._scope[row]] -= self._size[row]

    def gone(self, now: int) -> Iterator[int]:  # noqa: ARG002
        """Yield the lowest rows of the scopes that have outgrown their room."""
        for scope in self._grown:
            lowest = self._lowest[scope]
            while self._taken[scope] > self._room and lowest:
                row = self._row_at[heappop(lowest)]
                if self._is_there[row]:
                    yield row
        self._grown.clear()


def scope_numbers(scopes: Sequence[Scope], count: int) -> Ints | None:
    """Return the number of the scope of each row, or None where scopes share rows.

    >>> apart = [Scope(np.array([0, 2]), np.array([0, 2]))]
    >>> scope_numbers(apart, 3).tolist()
    [0, -1, 0]
    """
    numbers = np.full(count, NO_SCOPE, dtype=np.int64)
    for number, scope in enumerate(scopes):
        is_shared = (numbers[scope.members] != NO_SCOPE).any()
        if is_shared or not np.array_equal(scope.members, scope.owners):
            return None
        numbers[scope.members] = number
    return numbers


class Gone(NamedTuple):
    """When each row went, and why."""

    moment: Ints
    """Shape (rows,); `never` where it stays."""
    step: npt.NDArray[np.object_]
    """Shape (rows,); None where it stays."""


class Moment(NamedTuple):
    """An application of a policy: after which row, and when in microseconds."""

    moment: int
    now: int


def gone_in_order(
    steps: Sequence[Step], end: Ints, applications: Sequence[Moment], *, never: int
) -> Gone:
    """Return when each row goes under steps whose order is known.

    Parameters
    ----------
    steps : sequence of Step
        One after another, each about what those before it left.
    end : array of int, shape (rows,)
        The row that supersedes each row; any number from the count of rows on for none.
    applications : sequence of Moment
        When the policy is applied, in order.
    never : int
        The moment to give for rows that stay.
    """
    count = len(end)
    moments: Ints = np.full(count, never)
    why = np.full(count, None, dtype=object)
    reasons = [
        f"step {number}: {step.reason}" if len(steps) > 1 else step.reason
        for number, step in enumerate(steps, start=1)
    ]
    superseded_by: dict[int, list[int]] = {}
    for row in np.flatnonzero(end < count).tolist():
        superseded_by.setdefault(int(end[row]), []).append(row)
    is_there = bytearray(count)
    written = 0
    for moment, now in applications:
        stop = min(moment + 1, count)
        for row in range(written, stop):
            is_there[row] = True
            for step in steps:
                step.start(row)
        for new in range(written, stop):
            for row in superseded_by.get(new, ()):
                if is_there[row]:
                    for step in steps:
                        step.supersede(row)
        written = stop
        for step, reason in zip(steps, reasons, strict=True):
            for row in step.gone(now):
                is_there[row] = False
                moments[row] = moment
                why[row] = reason
                for each in steps:
                    each.remove(row)
    return Gone(moments, why)
