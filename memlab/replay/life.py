"""A history to walk forward through, and policies followed through it.

Each runner finds what :func:`memlab.policies.decide` would.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.past import in_reach
from memlab.evidence.references import positions_and_next, references_on_rows
from memlab.frame.fields import Flags, Floats, Ints, Times, as_instant, as_moment
from memlab.policies import (
    Activation,
    CappedPolicy,
    DatedPolicy,
    NearDuplicate,
    Policy,
    duplicates,
)
from memlab.policies.activation import Trial, Uses, days_of, trial_of, uses_of
from memlab.policies.base import (
    iter_evictions,
    lowest_beyond,
    lowest_first,
    named_by,
    numbers,
    runner_for,
    times,
)
from memlab.replay import presorted
from memlab.sizing.history import History

_EPOCH = np.datetime64(0, "us")


@dataclass(frozen=True)
class ReplayHistory:
    """Rows in order of writing, and references; those of moment ``m`` come before row ``m``.

    Where it is `silent` and memories are retired, a read of one that is loaded leaves no trace.
    """

    frame: pd.DataFrame
    references: pd.DataFrame
    target: Ints
    at: Ints
    history: History
    silent: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def clock(self) -> Times:
        """UTC time of each moment; it never runs backward, and unknown times are the last known."""
        created = self.created
        known = np.where(np.isnat(created), _EPOCH, created)
        return np.maximum.accumulate(known) if len(known) else known

    @cached_property
    def created(self) -> Times:
        """UTC time each row says it was made at."""
        return times(self.frame, col.CREATED_AT)

    @cached_property
    def referred(self) -> Times:
        """UTC time of each reference; that of the row about to be written where it is unknown."""
        said = times(self.references, col.AT)
        clock = np.append(self.clock, self.clock[-1:] if len(self) else _EPOCH)
        return np.where(np.isnat(said), clock[self.at], said)

    @cached_property
    def importance(self) -> Floats:
        """Importance of each row; lowest where its system evicted the row and kept none.

        A missing importance ranks highest. Where every memory that is there has one, a deleted one
        without was evicted by its system, which keeps none: then no other was lower.
        """
        values = numbers(self.frame, col.IMPORTANCE).copy()
        if col.DELETED_AT in self.frame:
            is_deleted = self.frame[col.DELETED_AT].notna().to_numpy()
            present = values[~is_deleted]
            if len(present) and not np.isnan(present).any():
                values[is_deleted & np.isnan(values)] = -np.inf
        return values

    @cached_property
    def positions(self) -> Ints:
        """Position of each row, and the one the next row would get."""
        return positions_and_next(self.frame)

    def near_duplicates(self, policy: NearDuplicate) -> "NearDuplicates":
        """Return what a policy finds near-duplicates by, looked for once."""
        if policy not in self._near_duplicates:
            by_age = duplicates.oldest_first(self.frame)
            if policy.threshold and len(self):
                texts = duplicates.texts_of(self.frame.iloc[by_age])
                vectors = duplicates.vectors_of(texts, policy)
                likeness = duplicates.Likeness(vectors, policy.threshold)
                alike = likeness.have_one()
            else:
                likeness = duplicates.Likeness(np.zeros((len(self), 1)), 1.0)
                alike = np.zeros(len(self), dtype=bool)
            self._near_duplicates[policy] = NearDuplicates(by_age, likeness, alike)
        return self._near_duplicates[policy]

    @cached_property
    def _near_duplicates(self) -> "dict[NearDuplicate, NearDuplicates]":
        return {}

    @cached_property
    def uses(self) -> Uses:
        """Every use of every row, in the order of the references."""
        return uses_of(self.created, self.target, self.at, times(self.references, col.AT))

    @cached_property
    def first_of_day(self) -> Ints:
        """1 for each reference that is the first to its row on its UTC day, else 0."""
        first = np.ones(len(self.at), dtype=np.int64)
        first[self.uses.again[self.uses.again < len(first)]] = 0
        return first

    @cached_property
    def trial(self) -> Trial:
        """How age and activation would have served the references; the same for every cap."""
        return trial_of(self.frame, self.references)

    @cached_property
    def trial_by_names(self) -> Trial:
        """The same of references by name, which are seen whether their target is loaded or not."""
        return trial_of(self.frame, self.references, silent=True)


class NearDuplicates(NamedTuple):
    """What near-duplicates of a history are found by."""

    by_age: Ints
    """Rows of the history by the time they say they were made at."""
    likeness: "duplicates.Likeness"
    """Their vectors, in that order."""
    alike: Flags
    """Rows, in that order, that any other is like, now or later: none else is ever replaced."""


def reads_leave_no_trace(frame: pd.DataFrame) -> bool:
    """Return whether agents of a store need not read what is loaded: they have it before them.

    So it is with stores whose memories are loaded at start. A frame that says nothing of a store
    holds all that was read.
    """
    return bool(frame.attrs.get(col.SOURCE)) and not frame.attrs.get(col.RECALLED)


def life_of(
    frame: pd.DataFrame, references: pd.DataFrame, *, silent: bool = False
) -> ReplayHistory:
    """Return a frame and those of its references that fit it as a history to walk through."""
    frame, references = in_reach(frame, references)
    rows = frame.sort_values(col.POSITION, kind="stable").reset_index(drop=True)
    target, at, place = references_on_rows(rows, references)
    fitting = references.iloc[place].reset_index(drop=True)
    fitting.attrs = {**references.attrs, col.SOURCE: frame.attrs.get(col.SOURCE, "")}
    return ReplayHistory(rows, fitting, target, at, History.of(rows), silent=silent)


class UsageState(Mapping[str, Any]):
    """Which rows are there at a moment, and their columns then; a served reference is an access."""

    def __init__(self, life: ReplayHistory, *, silent: bool = False) -> None:
        self.silent = silent
        """Whether nobody notes reads of what is loaded."""
        self.seen = np.zeros(len(life.at), dtype=bool)
        """Which references have arisen, and were noted."""
        self.accessed = np.where(np.isnat(life.created), _EPOCH, life.created)
        self.accesses = np.zeros(len(life), dtype=np.int64)
        self.here = np.zeros(len(life), dtype=bool)
        self.active = np.zeros(len(life), dtype=bool)
        self.new: list[int] = []
        """Rows written since a policy was last applied."""
        self.any_back = False
        """Whether retired rows are put before the policy again."""
        self._life = life
        self._whole: dict[str, npt.NDArray[Any]] = {}
        self._rows: Ints | slice = slice(None)

    def enter_again(self, rows: Flags) -> None:
        """Put retired rows before the policy again."""
        self.here |= rows
        self.any_back = bool(rows.any())

    def applied(self) -> None:
        """Note that the policy has been applied."""
        self.new.clear()
        self.any_back = False

    def write(self, start: int, stop: int) -> None:
        """Note that rows were written."""
        self.here[start:stop] = True
        self.active[start:stop] = True
        self.new.extend(range(start, stop))

    def serve(self, references: Ints) -> None:
        """Note that references were served: each day on which a row was is one access."""
        target = self._life.target[references]
        np.maximum.at(self.accessed, target, self._life.referred[references])
        np.add.at(self.accesses, target, self._life.first_of_day[references])

    def of(self, rows: Ints) -> "UsageState":
        """Return the signals of some rows; the same object, pointed elsewhere."""
        self._rows = rows
        return self

    def as_frame(self, rows: Ints, *, active: Flags) -> pd.DataFrame:
        """Return some rows as a frame of that moment, numbered from 0."""
        frame = self._life.frame.iloc[rows].reset_index(drop=True)
        frame[col.ACTIVE] = active
        frame[col.PRUNABLE] = active & ~frame[col.LOAD_BEARING]
        frame[col.SUPERSEDED_BY] = frame[col.SUPERSEDED_BY].mask(active)
        accessed = pd.DatetimeIndex(self.accessed[rows]).tz_localize("UTC")
        frame[col.LAST_ACCESSED_AT] = pd.Series(accessed).astype(col.TIME)
        frame[col.ACCESS_COUNT] = pd.array(self.accesses[rows], dtype="Int64")
        if col.IMPORTANCE in frame:
            frame[col.IMPORTANCE] = self._life.importance[rows]
        return frame

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name == col.LAST_ACCESSED_AT:
            return self.accessed[self._rows]
        if name == col.ACCESS_COUNT:
            return self.accesses[self._rows]
        if name not in self._whole:
            column = self._life.frame[name]
            timed = isinstance(column.dtype, pd.DatetimeTZDtype)
            values = times(self._life.frame, name) if timed else column.to_numpy()
            self._whole[name] = self._life.importance if name == col.IMPORTANCE else values
        return self._whole[name][self._rows]

    def __contains__(self, name: object) -> bool:
        return name in {col.LAST_ACCESSED_AT, col.ACCESS_COUNT} or name in self._life.frame

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._life.frame, col.LAST_ACCESSED_AT, col.ACCESS_COUNT])

    def __len__(self) -> int:
        return sum(1 for _ in self)


Gone = Iterable[tuple[Ints, str]]
"""Rows that go, and why they do."""


class Runner:
    """One policy on its way through a history, asked about every row that `signals` say is there.

    One that learns is first told the past.
    """

    policy: Any

    def __init__(self, policy: Policy, life: ReplayHistory, signals: UsageState) -> None:
        self.policy = policy
        self.life = life
        self.signals = signals

    def gone(self, moment: int, now: datetime) -> Gone:
        """Name the rows that go at a moment, load-bearing ones left out, and why."""
        rows = np.flatnonzero(self.signals.here)
        policy = self.policy
        if policy.learns:  # from what there was until then: deleted rows, all references
            written = np.arange(min(moment + 1, len(self.life)))
            past = self.signals.as_frame(written, active=self.life.history.end[written] > moment)
            policy = policy.after(past, self.life.references[self.signals.seen])
        present = self.signals.as_frame(rows, active=self.signals.active[rows])
        places, why = named_by(policy, present, now=now)
        for reason in dict.fromkeys(why.tolist()):
            yield rows[places[why == reason]], reason

    def presorted(self) -> presorted.Step | None:
        """Return the step with its order, where neither the moment nor a reference changes it."""
        return None


class Capped(Runner):
    """The lowest of a ranking go, as many as there is no room for."""

    policy: CappedPolicy

    def __init__(self, policy: CappedPolicy, life: ReplayHistory, signals: UsageState) -> None:
        super().__init__(policy, life, signals)
        self._may_go = life.history.ever_prunable
        size = policy.sizes(life.frame) if len(life) else np.empty(0, dtype=np.int64)
        self._size = size * (self._may_go | policy.counts_load_bearing)
        self._scopes = policy.scopes(life.frame) if len(life) else []
        self._holds_all = len(self._scopes) == 1 and len(self._scopes[0].members) == len(life)
        self._scopes_of: list[list[int]] = []
        if not self._holds_all:
            self._scopes_of = [[] for _ in range(len(life))]
            for number, scope in enumerate(self._scopes):
                for row in scope.members.tolist():
                    self._scopes_of[row].append(number)

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name the lowest of each scope that has outgrown its room."""
        if self.policy.capacity is None or not (self.signals.new or self.signals.any_back):
            return
        here = self.signals.here & self.signals.active
        keys_of = partial(self.keys, now=now)
        if self._holds_all:
            there = np.flatnonzero(here)
            lowest = lowest_beyond(self.policy, there, self._size, self._may_go, keys_of)
            if len(lowest):
                yield lowest, self.reason()
            return
        scopes = self._scopes
        if not self.signals.any_back:
            grown = {number for row in self.signals.new for number in self._scopes_of[row]}
            scopes = [self._scopes[number] for number in grown]
        for lowest in iter_evictions(self.policy, scopes, self._size, here, self._may_go, keys_of):
            here[lowest] = False
            yield lowest, self.reason()

    def reason(self) -> str:
        """Return why rows go now."""
        return self.policy.reason

    def keys(self, rows: Ints, now: datetime) -> tuple[npt.NDArray[Any], ...]:
        """Return what rows are ranked by at a moment."""
        return self.policy.eviction_keys(self.signals.of(rows), now=now)

    def presorted(self) -> presorted.Step | None:
        """Return the step with its ranks, where it says that nothing changes them."""
        count = len(self.life)
        if runner_for(self.policy) != "ranked" or self.policy.fills or not count:
            return None
        scope = presorted.scope_numbers(self._scopes, count)
        if scope is None:
            return None
        keys = self.keys(np.arange(count), as_moment(self.life.clock[-1]))
        rank = np.empty(count, dtype=np.int64)
        rank[lowest_first(keys)] = np.arange(count)
        room = self.policy.capacity
        return presorted.Ranking(
            rank,
            self._size,
            self._may_go,
            scope,
            room=int(self._size.sum()) if room is None else room,
            reason=self.policy.reason,
        )


class Activated(Capped):
    """The ranking is by activation, unless age has served more."""

    policy: Activation

    def keys(self, rows: Ints, now: datetime) -> tuple[npt.NDArray[Any], ...]:
        """Return activation at a moment, or age."""
        if self._age_decides():
            return (rows,)
        levels = self.life.uses.levels(days_of(now), self.signals.seen)[rows]
        return (self.policy.ranked_by(levels, self.life.history.tokens[rows]),)

    def reason(self) -> str:
        """Say so where age decides."""
        return self.policy.by_age if self._age_decides() else self.policy.reason

    def _age_decides(self) -> bool:
        trial = self.life.trial_by_names if self.signals.silent else self.life.trial
        needs = int(self.signals.seen[trial.place].sum())
        return trial.age_decides(self.policy.space, needs)


class Dated(Runner):
    """Each row has a time after which it goes."""

    policy: DatedPolicy

    def __init__(self, policy: DatedPolicy, life: ReplayHistory, signals: UsageState) -> None:
        super().__init__(policy, life, signals)
        self._due = policy.deadlines(life.frame)
        self._due[~life.history.ever_prunable] = np.datetime64("NaT", "us")

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name the rows whose time has passed."""
        here = self.signals.here
        active = self.signals.active
        among = {"active": here & active, "superseded": here & ~active}
        due = among.get(self.policy.population, here) & (self._due < as_instant(now))
        rows = np.flatnonzero(due)
        return [(rows, self.policy.reason)] if len(rows) else []

    def presorted(self) -> presorted.Step | None:
        """Return the step with its deadlines, where it is about active or superseded rows alone."""
        if self.policy.population not in {"active", "superseded"}:
            return None
        when_superseded = self.policy.population == "superseded"
        return presorted.Deadlines(self._due, self.policy.reason, when_superseded=when_superseded)


class Repeating(Runner):
    """Near-duplicates, looked for among the rows that another was ever like."""

    policy: NearDuplicate

    def __init__(self, policy: NearDuplicate, life: ReplayHistory, signals: UsageState) -> None:
        super().__init__(policy, life, signals)
        self._found = life.near_duplicates(policy)
        self._trust = duplicates.trust_in(life.frame)[self._found.by_age]
        self._known = np.zeros(len(life), dtype=bool)
        """Rows, by age, that were there last time."""
        self._pairs = duplicates.NO_PAIRS

    def gone(self, moment: int, now: datetime) -> Gone:  # noqa: ARG002
        """Name what a newer row replaces, unless the rows are those that were left last time."""
        by_age = self._found.by_age
        alike = self._found.alike
        here = self.signals.here & self.signals.active & self.life.history.ever_prunable
        there = here[by_age] & alike
        if np.array_equal(there, self._known):
            return ()
        new = np.flatnonzero(there & ~self._known)
        pairs = [self._pairs.among(there)]
        if len(new):
            # A row may say that it was made before others that are there: these meet it too.
            rows = np.flatnonzero(there)
            later = rows[np.searchsorted(rows, new[0]) :]
            met = self._found.likeness.pairs(later, rows)
            is_new = there & ~self._known
            some = is_new[met.newer] | is_new[met.older]
            pairs.append(met.where(some))
        self._pairs = duplicates.Pairs.merged(pairs)
        replaced = duplicates.settle(
            self._pairs, self._trust, there, keep_untrusted=self.policy.keep_untrusted
        )
        self._known = there
        rows = by_age[[each.row for each in replaced]] if replaced else by_age[:0]
        return [(rows, self.policy.reason)] if len(rows) else ()


RUNNERS: Final[dict[str, Callable[[Any, ReplayHistory, UsageState], Runner]]] = {
    "asked": Runner,
    "steps": Runner,
    "capped": Capped,
    "ranked": Capped,
    "activation": Activated,
    "dated": Dated,
    "duplicates": Repeating,
}
"""Runners by the name that a policy calls for them with; of a pipeline's steps each has its own."""


def runner_of(policy: Policy, life: ReplayHistory, signals: UsageState) -> Runner:
    """Return the runner for a policy of one step."""
    name = runner_for(policy)
    if name not in RUNNERS:
        raise ValueError(
            f"{type(policy).__qualname__}.runner is {name!r}: leave it out, or name one of "
            f"{', '.join(RUNNERS)}"
        )
    return RUNNERS[name](policy, life, signals)
