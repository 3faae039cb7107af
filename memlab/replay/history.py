"""The history that is replayed, and the runners that apply policies to it."""

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
from memlab.evidence.use_times import Uses, days_of, length_divisor, uses_of
from memlab.frame.fields import Flags, Floats, Ints, Times, as_instant, as_moment
from memlab.policies import (
    Activation,
    CappedPolicy,
    DatedPolicy,
    NearDuplicate,
    Policy,
)
from memlab.policies.activation import ActivationBacktest, backtest_activation
from memlab.policies.base import (
    Scope,
    evicted_by,
    float_column,
    iter_evictions,
    lowest_first,
    runner_name_of,
    surplus_of_scope,
    time_column,
)
from memlab.policies.duplicates import is_trusted, oldest_first, replace_repeatedly, texts_of
from memlab.policies.likeness import NO_PAIRS, Pairs, SimilaritySearch, vectors_of
from memlab.replay import presorted
from memlab.sizing.lifetimes import Lifetimes

_EPOCH = np.datetime64(0, "us")


@dataclass(frozen=True)
class ReplayHistory:
    """Rows in order of writing, and the references to them.

    Moments are numbered like rows: row ``m`` is written at moment ``m``. The references of moment
    ``m`` arise just before row ``m`` is written.

    Attributes
    ----------
    frame, references : DataFrame
        The rows, and the references that fit them.
    target : array of int, shape (references,)
        The row to which each reference points.
    at : array of int, shape (references,)
        The moment at which each reference arises.
    lifetimes : Lifetimes
        The same rows as arrays.
    silent : bool
        Whether a read of a present memory leaves no trace.
    """

    frame: pd.DataFrame
    references: pd.DataFrame
    target: Ints
    at: Ints
    lifetimes: Lifetimes
    silent: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def clock(self) -> Times:
        """UTC time of each moment, shape (rows,).

        The times never decrease. A row without a time gets the time of the row before it.
        """
        created = self.created
        filled = np.where(np.isnat(created), _EPOCH, created)
        return np.maximum.accumulate(filled) if len(filled) else filled

    @cached_property
    def created(self) -> Times:
        """UTC creation time of each row."""
        return time_column(self.frame, col.CREATED_AT)

    @cached_property
    def referred(self) -> Times:
        """UTC time of each reference.

        A reference without a time gets the time of the row that is written next.
        """
        recorded = time_column(self.references, col.AT)
        clock = np.append(self.clock, self.clock[-1:] if len(self) else _EPOCH)
        return np.where(np.isnat(recorded), clock[self.at], recorded)

    @cached_property
    def importance(self) -> Floats:
        """Importance of each row: NaN if missing, -inf if the row was evicted by its system.

        If every present memory has an importance, the system of the store ranks by importance.
        This system then evicted each deleted memory without an importance, because its importance
        was the lowest. Such a memory gets -inf, because policies rank a missing importance highest.
        """
        values = float_column(self.frame, col.IMPORTANCE).copy()
        if col.DELETED_AT in self.frame:
            is_deleted = self.frame[col.DELETED_AT].notna().to_numpy()
            present = values[~is_deleted]
            if len(present) and not np.isnan(present).any():
                values[is_deleted & np.isnan(values)] = -np.inf
        return values

    @cached_property
    def positions(self) -> Ints:
        """Position of each row, and as the last element the position of the next row to write."""
        return positions_and_next(self.frame)

    def near_duplicates(self, policy: NearDuplicate) -> "DuplicateSearch":
        """Return the search for near-duplicates that a policy needs; prepare it only once."""
        if policy not in self._near_duplicates:
            by_age = oldest_first(self.frame)
            if policy.threshold and len(self):
                texts = texts_of(self.frame.iloc[by_age])
                vectors = vectors_of(texts, policy.vectorise)
                likeness = SimilaritySearch(vectors, policy.threshold)
                has_duplicate = likeness.has_near_duplicate()
            else:  # without a threshold, no row is a near-duplicate of another
                likeness = SimilaritySearch(np.zeros((len(self), 1)), 1.0)
                has_duplicate = np.zeros(len(self), dtype=bool)
            self._near_duplicates[policy] = DuplicateSearch(by_age, likeness, has_duplicate)
        return self._near_duplicates[policy]

    @cached_property
    def _near_duplicates(self) -> "dict[NearDuplicate, DuplicateSearch]":
        return {}

    @cached_property
    def uses(self) -> Uses:
        """Every use of every row, in the order of the references."""
        return uses_of(self.created, self.target, self.at, time_column(self.references, col.AT))

    @cached_property
    def length_divisor(self) -> Floats:
        """Divisor of the activation of each row if the policy has a budget of tokens."""
        return length_divisor(self.lifetimes.tokens)

    @cached_property
    def first_of_day(self) -> Ints:
        """1 for each reference that is the first to its row on its UTC day, else 0."""
        is_first = np.ones(len(self.at), dtype=np.int64)
        next_use = self.uses.next_on_day  # the number of references if there is no next use
        has_next_use = next_use < len(is_first)
        is_first[next_use[has_next_use]] = 0
        return is_first

    @cached_property
    def backtest(self) -> ActivationBacktest:
        """Backtest of age against activation on all references; it is the same for every cap."""
        return backtest_activation(self.frame, self.references)

    @cached_property
    def backtest_by_names(self) -> ActivationBacktest:
        """Backtest of age against activation on references by name alone.

        A reference by name leaves a trace whether its target is loaded or not.
        """
        return backtest_activation(self.frame, self.references, silent=True)


class DuplicateSearch(NamedTuple):
    """A search for near-duplicates among the rows of a history, in order of creation time.

    Attributes
    ----------
    by_age : array of int, shape (rows,)
        Rows of the history in order of creation time.
    likeness : SimilaritySearch
        The vectors of these rows, in that order.
    has_duplicate : array of bool, shape (rows,)
        Whether these rows have a near-duplicate at any time. No other row is ever replaced.
    """

    by_age: Ints
    likeness: SimilaritySearch
    has_duplicate: Flags


def reads_leave_no_trace(frame: pd.DataFrame) -> bool:
    """Return whether agents of a store see memories without a recorded read.

    This is so if a start loads the memories. A frame without a source is assumed to have all reads.
    """
    return bool(frame.attrs.get(col.SOURCE)) and not frame.attrs.get(col.RECALLED)


def prepare_history(
    frame: pd.DataFrame, references: pd.DataFrame, *, silent: bool = False
) -> ReplayHistory:
    """Return the history of a frame, with the references whose target and moment are in it."""
    frame, references = in_reach(frame, references)
    rows = frame.sort_values(col.POSITION, kind="stable").reset_index(drop=True)
    target, at, numbers_of_fitting = references_on_rows(rows, references)
    fitting = references.iloc[numbers_of_fitting].reset_index(drop=True)
    fitting.attrs = {**references.attrs, col.SOURCE: frame.attrs.get(col.SOURCE, "")}
    return ReplayHistory(rows, fitting, target, at, Lifetimes.of(rows), silent=silent)


class UsageState(Mapping[str, Any]):
    """The rows that are present at a moment, and their columns at that moment.

    A served reference counts as an access. A policy reads this object like a frame: it is a mapping
    from column names to the values of the rows that :meth:`restrict_to` selected.
    """

    def __init__(self, history: ReplayHistory, *, silent: bool = False) -> None:
        self.silent = silent
        """Whether reads of present memories leave no trace."""
        self.is_seen = np.zeros(len(history.at), dtype=bool)
        """References that have arisen and left a trace."""
        self.last_accessed_at = np.where(np.isnat(history.created), _EPOCH, history.created)
        self.access_counts = np.zeros(len(history), dtype=np.int64)
        self.is_present = np.zeros(len(history), dtype=bool)
        """Rows that are written and not evicted, superseded ones included."""
        self.is_active = np.zeros(len(history), dtype=bool)
        """Rows that are written and not superseded, evicted ones included."""
        self.new_rows: list[int] = []
        """Rows written since a policy was last applied."""
        self.any_returned = False
        """Whether retired rows are present again, so that the policy decides about them."""
        self._history = history
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._rows: Ints | slice = slice(None)

    def bring_back(self, rows: Flags) -> None:
        """Make retired rows present again, so that the policy decides about them."""
        self.is_present |= rows
        self.any_returned = bool(rows.any())

    def end_application(self) -> None:
        """Record that the policy has been applied."""
        self.new_rows.clear()
        self.any_returned = False

    def write(self, start: int, stop: int) -> None:
        """Record that rows were written."""
        self.is_present[start:stop] = True
        self.is_active[start:stop] = True
        self.new_rows.extend(range(start, stop))

    def serve(self, references: Ints) -> None:
        """Record that references were served: each UTC day with a use of a row is one access."""
        target = self._history.target[references]
        np.maximum.at(self.last_accessed_at, target, self._history.referred[references])
        np.add.at(self.access_counts, target, self._history.first_of_day[references])

    def restrict_to(self, rows: Ints) -> "UsageState":
        """Restrict the columns of this object to the values of these rows, and return it."""
        self._rows = rows
        return self

    def as_frame(self, rows: Ints, *, active: Flags) -> pd.DataFrame:
        """Return rows as a frame with their values at this moment, numbered from 0."""
        frame = self._history.frame.iloc[rows].reset_index(drop=True)
        frame[col.ACTIVE] = active
        frame[col.PRUNABLE] = active & ~frame[col.LOAD_BEARING]
        frame[col.SUPERSEDED_BY] = frame[col.SUPERSEDED_BY].mask(active)
        accessed = pd.DatetimeIndex(self.last_accessed_at[rows]).tz_localize("UTC")
        frame[col.LAST_ACCESSED_AT] = pd.Series(accessed).astype(col.TIME)
        frame[col.ACCESS_COUNT] = pd.array(self.access_counts[rows], dtype="Int64")
        if col.IMPORTANCE in frame:
            frame[col.IMPORTANCE] = self._history.importance[rows]
        return frame

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name == col.LAST_ACCESSED_AT:
            return self.last_accessed_at[self._rows]
        if name == col.ACCESS_COUNT:
            return self.access_counts[self._rows]
        if name not in self._columns:
            self._columns[name] = self._column(name)
        return self._columns[name][self._rows]

    def _column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of all rows."""
        if name == col.IMPORTANCE:
            return self._history.importance
        column = self._history.frame[name]
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            return time_column(self._history.frame, name)
        return column.to_numpy()

    def __contains__(self, name: object) -> bool:
        return name in {col.LAST_ACCESSED_AT, col.ACCESS_COUNT} or name in self._history.frame

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._history.frame, col.LAST_ACCESSED_AT, col.ACCESS_COUNT])

    def __len__(self) -> int:
        return sum(1 for _ in self)


EvictionsByReason = Iterable[tuple[Ints, str]]
"""Numbers of evicted rows, and the reason of their eviction; one pair for each reason."""


class Runner:
    """Applies one policy at the moments of a history, by calling it with a frame of present rows.

    A policy that learns is fitted to the past first. Subclasses are faster for certain policies.
    """

    policy: Any

    def __init__(self, policy: Policy, history: ReplayHistory, usage: UsageState) -> None:
        self.policy = policy
        self.history = history
        self.usage = usage

    def evicted(self, moment: int, now: datetime) -> EvictionsByReason:
        """Yield the rows to evict at a moment, with the reason; none of them is load-bearing."""
        rows = np.flatnonzero(self.usage.is_present)
        policy = self.policy
        if policy.learns:
            written = np.arange(min(moment + 1, len(self.history)))
            written_frame = self.usage.as_frame(
                written, active=self.history.lifetimes.end[written] > moment
            )
            policy = policy.with_past(written_frame, self.history.references[self.usage.is_seen])
        present = self.usage.as_frame(rows, active=self.usage.is_active[rows])
        places, reasons = evicted_by(policy, present, now=now)
        for reason in dict.fromkeys(reasons.tolist()):
            yield rows[places[reasons == reason]], reason

    def presorted_step(self) -> presorted.Step | None:
        """Return the policy as a presorted step; None if its order of eviction is not fixed."""
        return None


class CapRunner(Runner):
    """Evicts the lowest rows of each scope that exceeds the capacity of the policy."""

    policy: CappedPolicy

    def __init__(self, policy: CappedPolicy, history: ReplayHistory, usage: UsageState) -> None:
        super().__init__(policy, history, usage)
        self._evictable = history.lifetimes.ever_prunable
        sizes: Ints = np.empty(0, dtype=np.int64)
        self._scopes: list[Scope] = []
        if len(history):
            sizes = policy.sizes(history.frame)
            self._scopes = policy.scopes(history.frame)
        uses_capacity = self._evictable | policy.counts_load_bearing
        self._size = np.where(uses_capacity, sizes, 0)
        has_one_scope = len(self._scopes) == 1
        self._is_one_scope = has_one_scope and len(self._scopes[0].members) == len(history)
        """Whether one scope holds all rows."""
        self._scopes_of: list[list[int]] = []
        """Numbers of the scopes of each row; empty if one scope holds all rows."""
        if not self._is_one_scope:
            self._scopes_of = [[] for _ in range(len(history))]
            for number, scope in enumerate(self._scopes):
                for row in scope.members.tolist():
                    self._scopes_of[row].append(number)

    def evicted(self, moment: int, now: datetime) -> EvictionsByReason:  # noqa: ARG002
        """Yield the lowest rows of each scope that exceeds its capacity."""
        any_entered = bool(self.usage.new_rows) or self.usage.any_returned
        if self.policy.capacity is None or not any_entered:
            return
        is_present = self.usage.is_present & self.usage.is_active
        keys_of = partial(self.keys, now=now)
        if self._is_one_scope:
            present = np.flatnonzero(is_present)
            lowest = surplus_of_scope(self.policy, present, self._size, self._evictable, keys_of)
            if len(lowest):
                yield lowest, self.reason()
            return
        scopes = self._scopes if self.usage.any_returned else self._scopes_with_new_rows()
        for lowest in iter_evictions(
            self.policy, scopes, self._size, is_present, self._evictable, keys_of
        ):
            is_present[lowest] = False
            yield lowest, self.reason()

    def _scopes_with_new_rows(self) -> list[Scope]:
        """Return the scopes that rows were written to since the policy was last applied."""
        scope_numbers = set[int]()
        for row in self.usage.new_rows:
            scope_numbers.update(self._scopes_of[row])
        return [self._scopes[number] for number in scope_numbers]

    def reason(self) -> str:
        """Return the reason for which rows are evicted now."""
        return self.policy.reason

    def keys(self, rows: Ints, now: datetime) -> tuple[npt.NDArray[Any], ...]:
        """Return the eviction keys of rows at a moment."""
        return self.policy.eviction_keys(self.usage.restrict_to(rows), now=now)

    def presorted_step(self) -> presorted.Step | None:
        """Return the policy as a presorted step; None if the ranks of rows can change."""
        count = len(self.history)
        has_fixed_ranks = runner_name_of(self.policy) == "ranked" and not self.policy.fills_gaps
        if not has_fixed_ranks or not count:
            return None
        scope = presorted.scope_number_of_rows(self._scopes, count)
        if scope is None:
            return None
        keys = self.keys(np.arange(count), as_moment(self.history.clock[-1]))
        # The rank of each row, 0 for the first to be evicted: the inverse of the order of rows.
        rank = np.empty(count, dtype=np.int64)
        rank[lowest_first(keys)] = np.arange(count)
        capacity = self.policy.capacity
        if capacity is None:
            capacity = int(self._size.sum())  # all rows fit
        return presorted.Ranking(
            rank,
            self._size,
            self._evictable,
            scope,
            capacity=capacity,
            reason=self.policy.reason,
        )


class ActivationRunner(CapRunner):
    """Evicts the least active rows, or the oldest if age served more."""

    policy: Activation

    def keys(self, rows: Ints, now: datetime) -> tuple[npt.NDArray[Any], ...]:
        """Return the activation of rows at a moment; their row numbers if age decides."""
        if self._age_decides():
            return (rows,)
        levels = self.history.uses.levels(days_of(now), self.usage.is_seen, rows)
        if self.policy.sized_capacity.of_tokens:
            levels /= self.history.length_divisor[rows]
        return (levels,)

    def reason(self) -> str:
        """Return the reason of present evictions; it names age if age decides."""
        return self.policy.reason_by_age if self._age_decides() else self.policy.reason

    def _age_decides(self) -> bool:
        """Return whether age served more of the references seen so far than activation."""
        backtest = self.history.backtest_by_names if self.usage.silent else self.history.backtest
        seen_references = int(self.usage.is_seen[backtest.reference_numbers].sum())
        return backtest.age_decides(self.policy.sized_capacity, seen_references)


class DeadlineRunner(Runner):
    """Evicts rows after their deadlines."""

    policy: DatedPolicy

    def __init__(self, policy: DatedPolicy, history: ReplayHistory, usage: UsageState) -> None:
        super().__init__(policy, history, usage)
        self._due = policy.deadlines(history.frame)
        self._due[~history.lifetimes.ever_prunable] = np.datetime64("NaT", "us")

    def evicted(self, moment: int, now: datetime) -> EvictionsByReason:  # noqa: ARG002
        """Return the rows whose deadline has passed."""
        is_candidate = self.usage.is_present
        if self.policy.population == "active":
            is_candidate = is_candidate & self.usage.is_active
        elif self.policy.population == "superseded":
            is_candidate = is_candidate & ~self.usage.is_active
        rows = np.flatnonzero(is_candidate & (self._due < as_instant(now)))
        return [(rows, self.policy.reason)] if len(rows) else []

    def presorted_step(self) -> presorted.Step | None:
        """Return the policy as a presorted step; None if its rows are not all of one state.

        All rows that it may evict must be active, or all must be superseded.
        """
        if self.policy.population not in {"active", "superseded"}:
            return None
        when_superseded = self.policy.population == "superseded"
        return presorted.Deadlines(self._due, self.policy.reason, when_superseded=when_superseded)


class DuplicateRunner(Runner):
    """Evicts rows that a newer near-duplicate replaces.

    Only rows that have a near-duplicate at any time of the history are compared.
    """

    policy: NearDuplicate

    def __init__(self, policy: NearDuplicate, history: ReplayHistory, usage: UsageState) -> None:
        super().__init__(policy, history, usage)
        self._search = history.near_duplicates(policy)
        self._trust = is_trusted(history.frame)[self._search.by_age]
        self._present_before = np.zeros(len(history), dtype=bool)
        """Rows, in order of creation time, that were present at the last application."""
        self._pairs = NO_PAIRS
        """Pairs of near-duplicates at the last application."""

    def presorted_step(self) -> presorted.Step | None:
        """Return a step that evicts nothing if the history has no near-duplicates, else None."""
        if self._search.has_duplicate.any():
            return None
        no_deadlines = np.full(len(self.history), np.datetime64("NaT", "us"))
        return presorted.Deadlines(no_deadlines, self.policy.reason, when_superseded=False)

    def evicted(self, moment: int, now: datetime) -> EvictionsByReason:  # noqa: ARG002
        """Return the rows that newer rows replace; no row if the present rows have not changed."""
        by_age = self._search.by_age
        is_candidate = (
            self.usage.is_present & self.usage.is_active & self.history.lifetimes.ever_prunable
        )
        is_present = is_candidate[by_age] & self._search.has_duplicate
        if np.array_equal(is_present, self._present_before):
            return ()
        self._pairs = self._pairs_among(is_present)
        replaced = replace_repeatedly(
            self._pairs, self._trust, is_present, keep_untrusted=self.policy.keep_untrusted
        )
        self._present_before = is_present
        if not replaced:
            return ()
        return [(by_age[[replacement.row for replacement in replaced]], self.policy.reason)]

    def _pairs_among(self, is_present: Flags) -> Pairs:
        """Return the pairs of near-duplicates among present rows.

        Only pairs with a new row are computed; the other pairs are kept from the last application.
        """
        pairs = [self._pairs.among(is_present)]
        is_new = is_present & ~self._present_before
        new = np.flatnonzero(is_new)
        if len(new):
            # A new row may be older than other rows, by its creation time. Each row is compared
            # with older ones only, so every row from the oldest new one on is compared again.
            rows = np.flatnonzero(is_present)
            later = rows[np.searchsorted(rows, new[0]) :]
            compared = self._search.likeness.pairs(later, rows)
            pairs.append(compared.where(is_new[compared.newer] | is_new[compared.older]))
        return Pairs.merged(pairs)


RUNNERS: Final[dict[str, Callable[[Any, ReplayHistory, UsageState], Runner]]] = {
    "asked": Runner,
    "steps": Runner,
    "capped": CapRunner,
    "ranked": CapRunner,
    "activation": ActivationRunner,
    "dated": DeadlineRunner,
    "duplicates": DuplicateRunner,
}
"""The runner for each value of :attr:`Policy.runner`."""


def runner_of(policy: Policy, history: ReplayHistory, usage: UsageState) -> Runner:
    """Return the runner of a policy. Each step of a pipeline is passed alone."""
    name = runner_name_of(policy)
    if name not in RUNNERS:
        raise ValueError(
            f"{type(policy).__qualname__}.runner is {name!r}: leave it out, or name one of "
            f"{', '.join(RUNNERS)}"
        )
    return RUNNERS[name](policy, history, usage)
