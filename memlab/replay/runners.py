"""Policies followed through a history; each finds what :func:`memlab.policies.decide` would."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memlab.frame.fields import as_instant
from memlab.policies import CappedPolicy, DatedPolicy, Learned, NearDuplicate, Policy, duplicates
from memlab.policies.base import evicted, named_by, runner_for
from memlab.policies.experience import days_of
from memlab.policies.learned import Moment
from memlab.replay.life import Ints, Life, Signals

Gone = Iterable[tuple[int, str]]


class Runner(ABC):
    """One policy on its way through a history; `signals` say which rows are there."""

    policy: Any

    def __init__(self, policy: Policy, life: Life, signals: Signals) -> None:
        self.policy, self.life, self.signals = policy, life, signals

    @abstractmethod
    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the rows that go at a moment, load-bearing ones left out, and why."""


class Asked(Runner):
    """Any policy, asked about every row present; one that learns is first told the past."""

    policy: Policy

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the rows the policy names."""
        rows = np.flatnonzero(self.signals.here)
        policy = self._taught(moment) if self.policy.learns else self.policy
        present = self.signals.as_frame(rows, active=self.signals.active[rows])
        named = named_by(policy, present, now=now)
        return zip(rows[named.index.to_numpy(dtype=np.int64)].tolist(), named, strict=True)

    def _taught(self, moment: int) -> Policy:
        """Return the policy with what there was until a moment: deleted rows, all references."""
        rows = np.arange(min(moment + 1, len(self.life)))
        past = self.signals.as_frame(rows, active=self.life.history.end[rows] > moment)
        arisen = np.searchsorted(self.life.at, moment, side="right")
        return self.policy.after(past, self.life.references.iloc[:arisen])


class Capped(Runner):
    """The lowest of a ranking go, as many as there is no room for."""

    policy: CappedPolicy

    def __init__(self, policy: CappedPolicy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._may_go = life.history.ever_prunable
        size = policy.sizes(life.frame) if len(life) else np.empty(0, dtype=np.int64)
        self._size = size * (self._may_go | policy.counts_load_bearing)
        self._scopes = policy.scopes(life.frame) if len(life) else []
        self._scopes_of: list[list[int]] = [[] for _ in range(len(life))]
        for number, scope in enumerate(self._scopes):
            for row in scope.members.tolist():
                self._scopes_of[row].append(number)

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the lowest of each scope that has outgrown its room."""
        if self.policy.slots is None:
            return
        grown = {number for row in self.signals.new for number in self._scopes_of[row]}
        scopes = [self._scopes[number] for number in grown]
        here = self.signals.here & self.signals.active
        keys_of = partial(self.keys, moment=moment, now=now)
        for lowest in evicted(self.policy, scopes, self._size, here, self._may_go, keys_of):
            here[lowest] = False
            yield from zip(lowest.tolist(), repeat(self.reason(moment)))

    def reason(self, moment: int) -> str:  # noqa: ARG002
        """Return why rows go at a moment."""
        return self.policy.reason

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:  # noqa: ARG002
        """Return what rows are ranked by at a moment."""
        return self.policy.eviction_keys(self.signals.of(rows), now=now)


class Learning(Capped):
    """The ranking is what the store's own past lets expect, which learns from all of it."""

    policy: Learned

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:
        """Return scores at a moment."""
        number = self.life.history.prunable_before
        written = int(number[min(moment + 1, len(number) - 1)])
        when = Moment(written, self._seen(moment), days_of(now))
        return (self.life.expectation.scores(number[rows], when, self.policy.space),)

    def reason(self, moment: int) -> str:
        """Say so where age decides."""
        if self.life.expectation.decides(self._seen(moment), self.policy.space):
            return self.policy.reason
        return self.policy.by_age

    def _seen(self, moment: int) -> int:
        past = self.life.expectation.experience
        return int(np.searchsorted(past.position, self.life.positions[moment], side="right"))


class Dated(Runner):
    """Each row has a time after which it goes."""

    policy: DatedPolicy

    def __init__(self, policy: DatedPolicy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._due = policy.deadlines(life.frame)
        self._due[~life.history.ever_prunable] = np.datetime64("NaT", "us")

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name the rows whose time has passed."""
        here, active = self.signals.here, self.signals.active
        among = {"active": here & active, "superseded": here & ~active}
        due = among.get(self.policy.population, here) & (self._due < as_instant(now))
        return [(row, self.policy.reason) for row in np.flatnonzero(due).tolist()]


class Repeating(Runner):
    """Near-duplicates, looked for among the rows that another was ever like."""

    policy: NearDuplicate

    def __init__(self, policy: NearDuplicate, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        texts = duplicates.texts_of(life.frame)
        self._vectors: Any = duplicates.vectors_of(texts, policy) if texts else None
        unit: Any = duplicates.unit_rows(self._vectors) if texts else None
        self._trust, self._by_age = (
            duplicates.trust_in(life.frame),
            duplicates.oldest_first(life.frame),
        )
        self._alike = np.zeros(len(life), dtype=bool)
        """Rows that any other is like, now or later: none else is ever replaced."""
        for start in range(0, len(life) if policy.threshold else 0, duplicates.BLOCK):
            alike = (
                duplicates.cosines(unit, unit[start : start + duplicates.BLOCK])
                >= policy.threshold - 1e-4
            )
            np.fill_diagonal(alike[start:], val=False)  # each is itself
            self._alike[start : start + duplicates.BLOCK] = alike.any(axis=0)
        self._left = np.empty(0, dtype=np.int64)

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name what a newer row replaces, unless the rows are those that were left last time."""
        there = self.signals.here & self.signals.active & self.life.history.ever_prunable
        rows = self._by_age[(there & self._alike)[self._by_age]]
        if np.array_equal(rows, self._left):
            return ()
        vectors, trust = self._vectors[rows], self._trust[rows]
        winner, _ = duplicates.replace_older(vectors, trust, self.policy.threshold)
        self._left = rows[winner < 0]
        return [(row, self.policy.reason) for row in rows[winner >= 0].tolist()]


RUNNERS: Final[dict[str, Callable[[Any, Life, Signals], Runner]]] = {
    "asked": Asked,
    "steps": Asked,
    "capped": Capped,
    "ranked": Capped,
    "learned": Learning,
    "dated": Dated,
    "duplicates": Repeating,
}
"""Runners by the name that a policy calls for them with; of a pipeline's steps each has its own."""


def runner_of(policy: Policy, life: Life, signals: Signals) -> Runner:
    """Return the runner for a policy of one step."""
    name = runner_for(policy)
    if name not in RUNNERS:
        raise ValueError(
            f"{type(policy).__qualname__}.runner is {name!r}: leave it out, or name one of "
            f"{', '.join(RUNNERS)}"
        )
    return RUNNERS[name](policy, life, signals)
