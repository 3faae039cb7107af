"""Policies followed forward through a history, one moment at a time.

Each runner decides what :func:`memlab.policies.decide` would decide about the rows present then.
:class:`Asked` asks it, and serves any policy; the others look only at the rows that changed.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memlab.frame.fields import as_instant
from memlab.policies import CappedPolicy, DatedPolicy, Learned, NearDuplicate, Policy
from memlab.policies.base import lowest_of, named_by, runner_for
from memlab.policies.duplicates import cosines, oldest_first, texts_of, unit_rows, word_counts
from memlab.policies.experience import days_of
from memlab.policies.learned import Moment
from memlab.replay.life import Flags, Ints, Life, Signals

Gone = Iterable[tuple[int, str]]


class Runner(ABC):
    """One policy on its way through a history, and the rows that are there for it."""

    policy: Any

    def __init__(self, policy: Policy, life: Life, signals: Signals) -> None:
        self.policy, self.life, self.signals = policy, life, signals
        self._here = np.zeros(len(life), dtype=bool)

    def enter(self, row: int) -> None:
        """Take note of a row just written, or back, whatever its kind."""
        self._here[row] = True

    def supersede(self, row: int) -> None:
        """Take note of a row that another has replaced."""
        self.remove(row)

    def remove(self, row: int) -> None:
        """Take note of a row that is gone, active or superseded until then."""
        self._here[row] = False

    @abstractmethod
    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the rows that go at a moment, load-bearing ones left out, and why."""


class Asked(Runner):
    """Any policy, asked about every row present; one that learns is first told the past."""

    policy: Policy

    def __init__(self, policy: Policy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._active = np.zeros(len(life), dtype=bool)

    def enter(self, row: int) -> None:
        """Ask about a row from now on."""
        self._here[row] = self._active[row] = True

    def supersede(self, row: int) -> None:
        """Ask about a row as a superseded one."""
        self._active[row] = False

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the rows the policy names."""
        rows = np.flatnonzero(self._here)
        policy = self._taught(moment) if self.policy.learns else self.policy
        named = named_by(policy, self.signals.as_frame(rows, active=self._active[rows]), now=now)
        return zip(rows[named.index.to_numpy(dtype=np.int64)].tolist(), named, strict=True)

    def _taught(self, moment: int) -> Policy:
        """Return the policy with what there was until a moment: deleted rows, all references."""
        rows = np.arange(min(moment + 1, len(self.life)))
        past = self.signals.as_frame(rows, active=self.life.history.end[rows] > moment)
        arisen = np.searchsorted(self.life.at, moment, side="right")
        return self.policy.after(past, self.life.references.iloc[:arisen])


@dataclass
class Room:
    """Rows of one scope that are there: those that may go, in the order they were written.

    Rows that never go have `taken` room as well; `owners`, ascending, were written with just this
    scope.
    """

    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    taken: int = 0
    owners: list[int] = field(default_factory=list)


class Capped(Runner):
    """The lowest of a ranking go, as many as there is no room for."""

    policy: CappedPolicy

    def __init__(self, policy: CappedPolicy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._may_go = life.history.ever_prunable
        self._changed: set[int] = set()
        size = policy.sizes(life.frame) if len(life) else np.empty(0, dtype=np.int64)
        self._size = size * (self._may_go | policy.counts_load_bearing)
        self._rooms: list[Room] = []
        self._rooms_of: list[list[int]] = [[] for _ in range(len(life))]
        self._own = np.full(len(life), -1)
        for number, scope in enumerate(policy.scopes(life.frame) if len(life) else ()):
            self._rooms.append(Room())
            self._own[scope.owners] = number
            for row in scope.members.tolist():
                self._rooms_of[row].append(number)

    def enter(self, row: int) -> None:
        """Count a row in its scopes."""
        self._here[row] = True
        for number in self._rooms_of[row]:
            room = self._rooms[number]
            room.taken += int(self._size[row])
            if self._may_go[row]:
                place = room.rows.searchsorted(row)  # most often after all others
                room.rows = np.concatenate([room.rows[:place], [row], room.rows[place:]])
            if number == self._own[row]:
                insort(room.owners, row)
            self._changed.add(number)

    def remove(self, row: int) -> None:
        """Count a row no longer, if it was counted."""
        if not self._here[row]:
            return
        self._here[row] = False
        for number in self._rooms_of[row]:
            room = self._rooms[number]
            room.taken -= int(self._size[row])
            if self._may_go[row]:
                room.rows = room.rows[room.rows != row]
            if number == self._own[row]:
                room.owners.remove(row)

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the lowest of each scope that has outgrown its room."""
        if self.policy.slots is None:
            return
        rooms = [self._rooms[number] for number in self._changed]
        self._changed.clear()
        for room in sorted((r for r in rooms if r.owners), key=lambda room: room.owners[-1]):
            surplus = room.taken - self.policy.slots
            if surplus > 0 and len(rows := room.rows):
                keys, size = self.keys(rows, moment, now), self._size[rows]
                lowest = lowest_of(keys, size, surplus, fill=self.policy.fills)
                reason = self.reason(moment)
                for row in rows[lowest].tolist():
                    self.remove(row)
                    yield row, reason

    def reason(self, moment: int) -> str:  # noqa: ARG002
        """Return why rows go at a moment."""
        return self.policy.reason

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:  # noqa: ARG002
        """Return what rows are ranked by at a moment."""
        return self.policy.eviction_keys(self.signals.of(rows), now=now)


class Ranked(Capped):
    """A ranking that neither time nor references change."""

    def __init__(self, policy: CappedPolicy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._rank = np.empty(len(life), dtype=np.int64)
        if len(life):
            keys = policy.eviction_keys(life.frame, now=life.now(-1))
            self._rank[np.lexsort(tuple(reversed(keys)))] = np.arange(len(life))

    def keys(self, rows: Ints, moment: int, now: datetime) -> tuple[npt.NDArray[Any], ...]:  # noqa: ARG002
        """Return places in the ranking."""
        return (self._rank[rows],)


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
        """Return how many needs have arisen by a moment."""
        past = self.life.expectation.experience
        return int(np.searchsorted(past.position, self.life.positions[moment], side="right"))


class Dated(Runner):
    """Each row has a time after which it goes."""

    policy: DatedPolicy

    def __init__(self, policy: DatedPolicy, life: Life, signals: Signals) -> None:
        super().__init__(policy, life, signals)
        self._due = policy.deadlines(life.frame)
        self._due[~life.history.ever_prunable] = np.datetime64("NaT", "us")
        self._dated = np.flatnonzero(~np.isnat(self._due))

    def enter(self, row: int) -> None:
        """Watch a row that will go one day."""
        self._here[row] = self.policy.population != "superseded"

    def supersede(self, row: int) -> None:
        """Watch a row no longer, or from now on."""
        if self.policy.population != "all":
            self._here[row] = self.policy.population == "superseded"

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name the rows whose time has passed."""
        due = self._here[self._dated] & (self._due[self._dated] < as_instant(now))
        return [(row, self.policy.reason) for row in self._dated[due].tolist()]


class Repeating(Asked):
    """Near-duplicates: nobody asks until a row is written that is one."""

    policy: NearDuplicate

    def __init__(self, policy: NearDuplicate, life: Life, signals: Signals) -> None:
        texts = texts_of(life.frame)
        self._vectors: Any = (policy.vectorise or word_counts)(texts) if texts else None
        self._unit: Any = unit_rows(self._vectors) if texts else None
        self._found = False
        by_age = oldest_first(life.frame)
        # the rows that the policy compares, in the order in which it does
        known = replace(policy, vectorise=lambda _: self._vectors[by_age[self._compared[by_age]]])
        super().__init__(known, life, signals)

    @property
    def _compared(self) -> Flags:
        """Rows that the policy compares: prunable ones."""
        return self._here & self._active & self.life.history.ever_prunable

    def enter(self, row: int) -> None:
        """See whether a row repeats one that is there."""
        if self.life.history.ever_prunable[row] and self.policy.threshold and not self._found:
            others = np.flatnonzero(self._compared)
            cosine = cosines(self._unit[others], self._unit[[row]])
            self._found = bool((cosine >= self.policy.threshold - 1e-4).any())
        super().enter(row)

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name what a row written since has replaced."""
        if not self._found:
            return ()
        self._found = False
        return super().gone(moment, now)


RUNNERS: Final[dict[str, Callable[[Any, Life, Signals], Runner]]] = {
    "asked": Asked,
    "steps": Asked,
    "capped": Capped,
    "ranked": Ranked,
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
