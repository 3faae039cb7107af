"""Policies followed forward through a history, one moment at a time.

Each runner decides at a moment exactly what :func:`memlab.policies.decide` would decide about the
rows present then; it only spares itself the rows about which nothing has changed.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memlab.policies import (
    CappedPolicy,
    ImportanceFloor,
    KeepAll,
    NearDuplicate,
    Policy,
    PurgeSuperseded,
    TimeToLive,
)
from memlab.policies.duplicates import texts_of, word_sets
from memlab.policies.learned import Learned
from memlab.policies.readings import moment as as_moment
from memlab.replay.life import Ints, Life, Signals


class Runner(Protocol):
    """One policy on its way through a history."""

    def enter(self, row: int) -> None:
        """Take note of a row just written, whatever its kind."""

    def leave(self, row: int) -> None:
        """Take note of a row that is superseded or gone."""

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:
        """Name the rows that go at a moment, load-bearing ones left out, and why."""


class Untouched:
    """Nothing goes."""

    def enter(self, row: int) -> None:
        """Take no note."""

    def leave(self, row: int) -> None:
        """Take no note."""

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Name no row."""
        return ()


class Scope:
    """Rows that share a cap: those that may go, in the order they were written."""

    def __init__(self) -> None:
        self.rows = np.empty(64, dtype=np.int64)
        self.count = 0
        self.fixed = 0

    @property
    def candidates(self) -> Ints:
        """Row numbers that may go."""
        return self.rows[: self.count]

    def add(self, row: int) -> None:
        """Take in a row written after all others."""
        if self.count == len(self.rows):
            self.rows = np.append(self.rows, np.empty_like(self.rows))
        self.rows[self.count] = row
        self.count += 1

    def discard(self, row: int) -> None:
        """Let a row go, if it is here."""
        place = int(np.searchsorted(self.candidates, row))
        if place < self.count and self.rows[place] == row:
            self.rows[place : self.count - 1] = self.rows[place + 1 : self.count]
            self.count -= 1


class Capped:
    """The lowest of a ranking go, as many as are too many."""

    def __init__(self, policy: CappedPolicy, life: Life, signals: Signals) -> None:
        self.policy, self.signals = policy, signals
        self._scope_of = policy.scopes(life.frame) if len(life) else np.empty(0, dtype=np.int64)
        self._may_go = life.history.counted
        self._scopes: dict[int, Scope] = {}
        self._changed: set[int] = set()
        self._ranks = self._standing_ranks(life) if policy.timeless and len(life) else None

    def _standing_ranks(self, life: Life) -> Ints:
        """Places in a ranking that neither time nor use changes."""
        keys = self.policy.eviction_keys(life.frame, now=life.now(-1))
        ranks = np.empty(len(life), dtype=np.int64)
        ranks[np.lexsort(tuple(reversed(keys)))] = np.arange(len(life))
        return ranks

    def enter(self, row: int) -> None:
        """Count a row in its scope."""
        number = int(self._scope_of[row])
        if number < 0:
            return
        scope = self._scopes.setdefault(number, Scope())
        if self._may_go[row]:
            scope.add(row)
        else:
            scope.fixed += self.policy.counts_load_bearing
        self._changed.add(number)

    def leave(self, row: int) -> None:
        """Count a row no longer."""
        if (scope := self._scopes.get(int(self._scope_of[row]))) is None:
            return
        if self._may_go[row]:
            scope.discard(row)
        else:
            scope.fixed -= self.policy.counts_load_bearing

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:
        """Name the lowest of each scope that has grown beyond its slots."""
        if self.policy.slots is None:
            return
        for number in sorted(self._changed):
            scope = self._scopes[number]
            surplus = scope.count + scope.fixed - self.policy.slots
            if surplus > 0 and scope.count:
                for row in self._lowest(scope.candidates, surplus, moment, now):
                    yield int(row), self.policy.reason
        self._changed.clear()

    def _lowest(self, rows: Ints, surplus: int, moment: int, now: datetime) -> Ints:
        keys = self.keys(rows, moment, now)
        if surplus > 1:
            return rows[np.lexsort(tuple(reversed(keys)))[:surplus]]
        lowest = np.arange(len(rows))
        for key in keys:
            among = key[lowest]
            lowest = lowest[among == among.min()]
            if len(lowest) == 1:
                break
        return rows[lowest[:1]]

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:  # noqa: ARG002
        """Return what rows are ranked by at a moment."""
        if self._ranks is not None:
            return (self._ranks[rows],)
        return self.policy.eviction_keys(self.signals.of(rows), now=now)


class Forecasting(Capped):
    """The ranking is the store's own forecast, which learns from all that was ever written."""

    def __init__(self, policy: Learned, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._forecast = life.forecast
        self._number = life.history.counted_before

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:  # noqa: ARG002
        """Return forecast scores at a moment."""
        written = int(self._number[min(moment + 1, len(self._number) - 1)])
        return (self._forecast.scores(self._number[rows], written),)


class Dated:
    """Each row has a time from which it goes."""

    def __init__(self, policy: TimeToLive | PurgeSuperseded | ImportanceFloor, life: Life) -> None:
        self.policy = policy
        self._superseded = policy.population == "superseded"
        self._life = life
        self._due = self._deadlines()
        self._here: set[int] = set()

    def _deadlines(self) -> npt.NDArray[np.datetime64]:
        due: npt.NDArray[np.datetime64]
        if isinstance(self.policy, ImportanceFloor):
            due = np.full(len(self._life), np.datetime64("NaT", "us"))
            if len(due):
                named = self.policy.evict(self._life.frame, now=self._life.now(-1))
                due[named.index.to_numpy(dtype=np.int64)] = np.datetime64(-(2**62), "us")
        else:
            due = self.policy.deadlines(self._life.frame)
        due[~self._life.history.counted] = np.datetime64("NaT", "us")
        return due

    def enter(self, row: int) -> None:
        """Watch a row that will go one day."""
        if not self._superseded and not np.isnat(self._due[row]):
            self._here.add(row)

    def leave(self, row: int) -> None:
        """Watch a row no longer; a policy of superseded rows begins to."""
        if row in self._here:
            self._here.discard(row)
        elif self._superseded and not np.isnat(self._due[row]):
            self._here.add(row)

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Name the rows whose time has come."""
        if not self._here:
            return ()
        rows = np.fromiter(self._here, np.int64, len(self._here))
        due = np.sort(rows[self._due[rows] <= as_moment(now)])
        return [(int(row), self.policy.reason) for row in due]


class Whole:
    """Any other policy, asked about every row present."""

    def __init__(self, policy: Policy, life: Life, signals: Signals) -> None:
        self.policy, self.signals = policy, signals
        self._may_go = life.history.counted
        self._here = np.zeros(len(life), dtype=bool)

    def enter(self, row: int) -> None:
        """Ask about a row from now on."""
        self._here[row] = self.policy.population == "active"

    def leave(self, row: int) -> None:
        """Ask about a row no longer; about a superseded one, where those are the matter."""
        self._here[row] = self.policy.population == "superseded" and not self._here[row]

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Name the rows the policy names."""
        rows = np.flatnonzero(self._here)
        frame = self.signals.as_frame(rows, active=self.policy.population == "active")
        named = self.policy.evict(frame, now=now)
        gone = rows[named.index.to_numpy(dtype=np.int64)]
        return [(int(row), why) for row, why in zip(gone, named, strict=True) if self._may_go[row]]


class Repeating(Whole):
    """Near-duplicates: nothing goes until a row is written that is one."""

    def __init__(self, policy: NearDuplicate, life: Life, signals: Signals) -> None:
        texts = texts_of(life.frame)
        self._threshold = policy.threshold
        self._vectors: Any = (policy.vectorise or word_sets)(texts) if texts else None
        self._norms = self._lengths()
        self._found = False
        cached = replace(policy, vectorise=lambda _: self._vectors[np.flatnonzero(self._asked)])
        super().__init__(cached, life, signals)

    def _lengths(self) -> npt.NDArray[np.float64]:
        if self._vectors is None:
            return np.empty(0)
        squares = self._vectors.power(2) if hasattr(self._vectors, "power") else self._vectors**2
        lengths = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).ravel()
        return np.where(lengths > 0, lengths, np.inf)

    @property
    def _asked(self) -> npt.NDArray[np.bool_]:
        """Rows that the policy compares: prunable ones."""
        return self._here & self._may_go

    def enter(self, row: int) -> None:
        """See whether a row repeats one that is there."""
        if self._may_go[row] and self._threshold and not self._found:
            others = np.flatnonzero(self._asked)
            product = self._vectors[others] @ self._vectors[[row]].T
            dot = np.asarray(product.todense() if hasattr(product, "todense") else product).ravel()
            cosine = dot / (self._norms[others] * self._norms[row])
            self._found = bool((cosine >= self._threshold - 1e-4).any())
        super().enter(row)

    def gone(self, moment: int, now: datetime) -> Iterable[tuple[int, str]]:
        """Name what a row written since has replaced."""
        if not self._found:
            return ()
        self._found = False
        return super().gone(moment, now)


def runner_of(policy: Policy, life: Life, signals: Signals) -> Runner:
    """Return the runner for a policy of one step."""
    if isinstance(policy, Learned):
        return Forecasting(policy, life, signals)
    if isinstance(policy, CappedPolicy):
        return Capped(policy, life, signals)
    if isinstance(policy, NearDuplicate):
        return Repeating(policy, life, signals)
    if isinstance(policy, (TimeToLive, PurgeSuperseded, ImportanceFloor)):
        return Dated(policy, life)
    return Untouched() if isinstance(policy, KeepAll) else Whole(policy, life, signals)
