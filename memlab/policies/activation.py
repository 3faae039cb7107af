"""The policy that keeps the memories with the highest base-level activation.

:mod:`memlab.base_activation` has the formula for one memory, with its sources, and
:mod:`memlab.evidence.use_times` has it for arrays.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references, references_on_rows
from memlab.evidence.use_times import (
    Uses,
    base_levels,
    births,
    days_of,
    days_since_1970,
    per_length,
    ranks_above,
    uses_of,
)
from memlab.frame.fields import Floats, Ints
from memlab.policies.base import (
    CappedPolicy,
    Keys,
    RanksBy,
    Rows,
    RunnerName,
    float_column,
    time_column,
)
from memlab.text import counted

_STANDARD_ERRORS: Final = 2.0
"""Number of standard errors by which age must have served more reads than activation to decide.

For references by name, which follow age in public histories, any larger share is enough.
"""

_FIRST_COMPARISON: Final = 10
"""Number of needs at which age and activation are compared for the first time."""

_COMPARISON_GROWTH: Final = 1.15
"""Factor by which the number of needs grows from one comparison to the next."""

_MAX_EVENTS_UNSAMPLED: Final = 4_000
"""Number of memories and uses above which needs are sampled.

The sampling rate is this number divided by the number of memories and uses.
"""

_SAME_TIME_DAYS: Final = 1 / 1_440
"""Difference up to which two times of a store count as equal: one minute, in days."""

_MIN_EQUAL_ACCESSES: Final = 5
"""Minimum number of memories with an equal last access in a store whose counter counts starts."""

_MIN_AGREEING_SHARE: Final = 0.9
"""Minimum share of memories that must agree in a store whose counter counts starts."""


class Capacity(NamedTuple):
    """A capacity with its unit.

    Attributes
    ----------
    size : int
        A number of prunable memories, or of tokens of all loaded memories.
    of_tokens : bool
        Whether it is a number of tokens.
    """

    size: int
    of_tokens: bool


class _CapacityNeeded(NamedTuple):
    """The smallest capacity at which each need is served, by ranking; shape (needs,)."""

    by_activation: Floats
    by_age: Floats


class _CapacitiesNeeded(NamedTuple):
    """The smallest capacity at which each need is served, by ranking and unit."""

    memories: _CapacityNeeded
    tokens: _CapacityNeeded


@dataclass(frozen=True)
class ActivationBacktest:
    """A backtest of activation against age, on the needs that have arisen.

    A need is a reference to a prunable memory. Several needs of one memory on one day count once.
    Load-bearing memories are left out, because they are always loaded. The backtest assumes that no
    memory was ever deleted.

    Attributes
    ----------
    uses : Uses
        Uses of the prunable memories.
    memories_written : array of int, shape (needs,)
        Number of prunable memories that had been written when each need arose.
    floor_tokens : array of int, shape (needs,)
        Tokens of the load-bearing memories that had been written then.
    reference_numbers : array of int, shape (needs,)
        Number of the reference of each need.
    tokens : array of int, shape (memories,)
        Tokens of each prunable memory.
    margin : float
        Age decides if it served more by this number of standard errors.
    """

    uses: Uses
    memories_written: Ints
    floor_tokens: Ints
    reference_numbers: Ints
    tokens: Ints
    margin: float

    def age_decides(self, sized_capacity: Capacity, needs_so_far: int | None = None) -> bool:
        """Return whether age served more needs at the last comparison.

        Parameters
        ----------
        sized_capacity : Capacity
            The capacity with its unit.
        needs_so_far : int, optional
            The number of needs that have arisen so far; all by default.
        """
        needs = len(self.memories_written) if needs_so_far is None else needs_so_far
        comparisons = [comparison for comparison in self._comparisons if comparison <= needs]
        if not comparisons:
            return False
        key = (sized_capacity, comparisons[-1])
        if key not in self._decisions:
            self._decisions[key] = self._has_age_served_more(sized_capacity, comparisons[-1])
        return self._decisions[key]

    @cached_property
    def _decisions(self) -> dict[tuple[Capacity, int], bool]:
        return {}

    def _has_age_served_more(self, sized_capacity: Capacity, count: int) -> bool:
        """Return whether age served more of the first `count` needs, by at least the margin."""
        compared = self._compared_needs[self._compared_needs < count]
        if not len(compared):
            return False
        if sized_capacity.of_tokens:
            capacities = sized_capacity.size - self.floor_tokens[compared]
            needed = self._capacities_needed.tokens
        else:
            capacities = np.full(len(compared), sized_capacity.size)
            needed = self._capacities_needed.memories
        is_served_by_activation = needed.by_activation[: len(compared)] <= capacities
        is_served_by_age = needed.by_age[: len(compared)] <= capacities
        gain = is_served_by_activation.astype(np.float64) - is_served_by_age
        error = float(gain.std()) / np.sqrt(len(gain))
        return bool(gain.mean() + self.margin * error < 0)

    @cached_property
    def _comparisons(self) -> list[int]:
        """The counts of needs after which activation and age are compared."""
        comparisons = []
        count = _FIRST_COMPARISON
        while count <= len(self.memories_written):
            comparisons.append(count)
            count = max(count + _FIRST_COMPARISON, int(count * _COMPARISON_GROWTH))
        return comparisons

    @cached_property
    def _compared_needs(self) -> Ints:
        """The needs that are compared: the first of each memory and day, or a sample of them."""
        needs = np.arange(len(self.memories_written))
        is_first_of_day = np.ones(len(needs), dtype=bool)
        later_on_day = self.uses.next_on_day[self.uses.next_on_day < len(needs)]
        is_first_of_day[later_on_day] = False
        rate = np.minimum(1.0, _MAX_EVENTS_UNSAMPLED / np.maximum(self.memories_written + needs, 1))
        # A need is sampled where the sum of the rates passes the next whole number.
        is_sampled = np.diff(np.floor(np.cumsum(rate) + 1e-9), prepend=0) > 0
        return np.flatnonzero(is_first_of_day & is_sampled)

    @cached_property
    def _capacities_needed(self) -> _CapacitiesNeeded:
        """The smallest capacity at which each compared need is served."""
        count = len(self._compared_needs)
        memories = _CapacityNeeded(np.zeros(count), np.zeros(count))
        tokens = _CapacityNeeded(np.zeros(count), np.zeros(count))
        known_uses = self._known_use_counts()
        tokens_before = np.append(0, np.cumsum(self.tokens))
        use_numbers = np.arange(len(self.memories_written))
        for number, need in enumerate(self._compared_needs.tolist()):
            written = int(self.memories_written[need])
            target = int(self.uses.target[need])
            is_known = use_numbers < known_uses[need]
            level = self.uses.levels(float(self.uses.when[need]), is_known, slice(written))
            memories.by_activation[number] = 1 + ranks_above(level, target).sum()
            memories.by_age[number] = written - target
            size = self.tokens[:written]
            above = ranks_above(per_length(level, size), target)
            tokens.by_activation[number] = size[target] + size[above].sum()
            tokens.by_age[number] = tokens_before[written] - tokens_before[target]
        return _CapacitiesNeeded(memories=memories, tokens=tokens)

    def _known_use_counts(self) -> Ints:
        """Return for each need the number of uses that arose strictly before it.

        Needs arose in order. Those of one moment are unknown to each other.
        """
        moment = np.stack([self.memories_written, self.uses.when])
        is_first_of_moment = np.ones(len(self.memories_written), dtype=bool)
        is_first_of_moment[1:] = (np.diff(moment) > 0).any(axis=0)
        need_numbers = np.arange(len(is_first_of_moment))
        return np.maximum.accumulate(np.where(is_first_of_moment, need_numbers, 0))


def backtest_activation(
    past: pd.DataFrame, references: pd.DataFrame, *, silent: bool = False
) -> ActivationBacktest:
    """Return the backtest of activation against age on a past.

    Once a plan has retired memories, a log may hold only reads of memories that were not loaded.
    These would count against the policy that chose the loaded memories. Therefore reads since the
    first retirement are left out. With `silent`, all reads are left out.
    """
    is_prunable = ~past[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = past.loc[is_prunable]
    is_read = (references[col.KIND] == "log").to_numpy(dtype=bool)
    is_used = np.ones(len(references), dtype=bool)
    if silent:
        is_used = ~is_read
    elif col.RETIRED_AT in past and past[col.RETIRED_AT].notna().any():
        first_retired = past[col.RETIRED_AT].min()
        is_used = ~is_read | (references[col.AT] < first_retired).to_numpy(dtype=bool)
    used_references = references[is_used]
    is_read = is_read[is_used]
    target, at, numbers_of_fitting = references_on_rows(rows, used_references)
    when = time_column(used_references, col.AT)[numbers_of_fitting]
    created = time_column(rows, col.CREATED_AT)
    clock = np.fmax.accumulate(np.append(days_since_1970(created), np.nan))
    moments = np.where(np.isnat(when), clock[at], days_since_1970(when))
    order = np.lexsort((target, moments, at))
    target = target[order]
    at = at[order]
    numbers_of_fitting = numbers_of_fitting[order]
    position = used_references[col.AT_POSITION].to_numpy(dtype=np.int64)[numbers_of_fitting]
    tokens = past[col.TOKENS].to_numpy(dtype=np.int64)
    floor_tokens = np.append(0, np.cumsum(np.where(is_prunable, 0, tokens)))
    rows_before = np.searchsorted(past[col.POSITION].to_numpy(), position)
    is_mostly_read = 2 * np.count_nonzero(is_read[numbers_of_fitting]) >= len(numbers_of_fitting)
    return ActivationBacktest(
        uses=uses_of(created, target, at, when[order]),
        memories_written=at,
        floor_tokens=floor_tokens[rows_before],
        reference_numbers=np.flatnonzero(is_used)[numbers_of_fitting],
        tokens=tokens[is_prunable],
        margin=_STANDARD_ERRORS if is_mostly_read else 0.0,
    )


@dataclass(frozen=True)
class ActivationLevels:
    """The activation levels of the rows of a frame, and notes on the evidence.

    Attributes
    ----------
    levels : array of float, shape (rows,)
        Base-level activation of each row.
    notes : tuple of str
        Sentences about values that were corrected or left out.
    """

    levels: Floats
    notes: tuple[str, ...]


def activity_of(
    rows: pd.DataFrame, past: pd.DataFrame, references: pd.DataFrame, *, now: datetime
) -> ActivationLevels:
    """Return the activation of rows from the uses in their past and from their store's counter.

    The number of days of use is the larger of the numbers in the references and in the counter; the
    last use is the later of the two. If the references have every use, the sum over the days of use
    is exact. Otherwise it is approximated from the number of days and the last use.
    """
    moment = days_of(now)
    notes = []
    fitting = references_on_rows(past, references)
    time_of_reference = time_column(references, col.AT)[fitting.place]
    uses = uses_of(time_column(past, col.CREATED_AT), fitting.target, fitting.at, time_of_reference)
    # An id may have been written again after a deletion. The newest memory with the id counts.
    newest = np.flatnonzero(~past[col.MEMORY_ID].duplicated(keep="last"))
    ids = pd.Index(past[col.MEMORY_ID].iloc[newest])
    row_in_past = newest[ids.get_indexer(pd.Index(rows[col.MEMORY_ID]))]
    levels = uses.levels(moment, np.ones(len(uses.target), dtype=bool), row_in_past)
    age = uses.ages(moment, row_in_past)
    days_used, last_used = uses.counts()
    count = days_used[row_in_past]
    last = last_used[row_in_past]
    written_at = births(time_column(rows, col.CREATED_AT))
    counter = read_counter(rows, written_at, moment)
    is_only_in_counter = np.isnan(last) & ~np.isnan(counter.last)
    is_later = (counter.last > last + _SAME_TIME_DAYS) | is_only_in_counter
    by_counter = (counter.reads > count) | (is_later & (counter.reads > 0))
    if by_counter.any():
        reads = np.fmax(count, counter.reads)
        idle = moment - np.fmax(last, counter.last)
        idle = np.where(np.isnan(idle) & (reads > 0), age, idle)
        levels = np.where(by_counter, base_levels(age, idle, reads), levels)
        notes.append(
            f"{counted(int(by_counter.sum()))} by the store's own counter, which may count "
            "several accesses of a day"
        )
    notes += counter.notes
    ahead = int((written_at > moment).sum())
    if ahead:
        notes.append(f"{counted(ahead)} written in the future, taken as written now")
    return ActivationLevels(levels, tuple(notes))


class AccessCounter(NamedTuple):
    """The access counter of a store.

    Attributes
    ----------
    reads : array of float, shape (rows,)
        Number of reads of each row.
    last : array of float, shape (rows,)
        Time of the last read of each row, in days since 1970; NaN without a read.
    notes : tuple of str
        Sentences about values that were corrected or left out.
    """

    reads: Floats
    last: Floats
    notes: tuple[str, ...]


def read_counter(rows: Rows, written_at: Floats, now: float) -> AccessCounter:
    """Return the access counter of rows, from ``access_count`` and ``last_accessed_at``.

    A count that is negative or not finite is unknown. If there is a last access but no count, the
    row has one read, unless the last access equals the time of writing. A counter that counts
    starts is left out: all reads are then 0.

    Parameters
    ----------
    rows : DataFrame
        The rows.
    written_at : array of float, shape (rows,)
        Time of writing of each row, in days since 1970.
    now : float
        The present time, in days since 1970.
    """
    notes = []
    count = float_column(rows, col.ACCESS_COUNT).copy()
    count[~np.isfinite(count) | (count < 0)] = np.nan
    last = days_since_1970(time_column(rows, col.LAST_ACCESSED_AT))
    ahead = int((last > now + _SAME_TIME_DAYS).sum())
    if ahead:
        notes.append(f"{counted(ahead)} accessed in the future, taken as accessed now")
    last = np.where(np.isnan(last), np.nan, np.minimum(last, now))
    is_time_of_writing = np.abs(last - written_at) <= _SAME_TIME_DAYS
    reads_by_last_access = np.where(np.isnan(last) | is_time_of_writing, 0.0, 1.0)
    count = np.where(np.nan_to_num(count) > 0, count, reads_by_last_access)
    last = np.where(count > 0, last, np.nan)
    if counts_starts(written_at, count, last):
        notes.append(
            "the store's counter is left out: nearly all memories have one last access, and the "
            "older ones higher counts, so it counts starts"
        )
        return AccessCounter(np.zeros_like(count), np.full_like(last, np.nan), tuple(notes))
    return AccessCounter(count, last, tuple(notes))


def counts_starts(written_at: Floats, count: Floats, last: Floats) -> bool:
    """Return whether every start, which loads all or the newest memories, raises a counter.

    In that case the last access of the loaded memories is the last start. Each count is the number
    of starts since the memory was written, so it increases with age.

    The parameters are arrays with a number for each memory: the time of writing, the count, and the
    last access. Times are in days since 1970.
    """
    used = np.flatnonzero(count > 0)
    if not len(used) or np.isnan(last[used]).all():
        return False
    last_start = np.nanmax(last[used])
    loaded = used[np.abs(last[used] - last_start) <= _SAME_TIME_DAYS]
    if len(loaded) < _MIN_EQUAL_ACCESSES:
        return False
    is_newest = written_at >= written_at[loaded].min()
    is_before_start = written_at <= last_start - _SAME_TIME_DAYS
    if len(loaded) < _MIN_AGREEING_SHARE * np.count_nonzero(is_newest & is_before_start):
        return False
    counts_oldest_first = count[loaded[np.argsort(written_at[loaded], kind="stable")]]
    is_decreasing = np.diff(counts_oldest_first) <= 0
    return bool(counts_oldest_first.max() > 1 and is_decreasing.mean() >= _MIN_AGREEING_SHARE)


class ActivationEvidence(NamedTuple):
    """The evidence of a decision: a past, the references in it, and the backtest on them."""

    past: pd.DataFrame
    references: pd.DataFrame
    backtest: ActivationBacktest


@dataclass(frozen=True)
class Activation(CappedPolicy):
    """Keep the prunable memories with the highest base-level activation.

    Base-level activation (Anderson and Schooler 1991) estimates the odds that a memory is needed
    next. With L days since it was written, t days since it was last read, n days on which it was
    read, d = 0.5, and no time below half a day, it is ::

        L^-d                                                    if it was never read
        t^-d + n (L^(1-d) - t^(1-d)) / ((1-d) (L - t))          otherwise

    This approximates the sum of ``t_i^-d`` over all times since it was written and read (Petrov
    2006). As t approaches L, it is ``(n + 1) L^-d``. If references and a log of reads have every
    day of use, the exact sum is used instead: the approximation is 3 to 13 % too high. Otherwise
    the store's own counter is used (``access_count``, ``last_accessed_at``), whatever it counts.
    For each memory the larger n and the later time of log and counter apply. A second read on one
    UTC day changes t and not n. Being loaded at start is no read, and a counter that counts starts
    is left out.

    `max_items` counts prunable memories, as `KeepRecent` does; load-bearing ones are kept besides.
    `max_tokens` counts tokens, those of load-bearing memories included, as `TokenBudget` does; then
    activation is divided by ``(tokens + 10)^0.4``, and a lower memory that still fits is kept.

    No parameter is fitted. If age would have served more of the store's own needs at the same
    capacity, the policy keeps the newest memories, and the reason says so. For reads, the
    difference must be at least two standard errors; for references by name, any difference counts.

    A store that has been compacted has only the memories that were kept, and no log of reads is
    part of it. :func:`memlab.plan` supplies the past and the log; elsewhere use :meth:`with_past`.

    References
    ----------
    Anderson and Schooler (1991), Reflections of the environment in memory. Psychological Science 2.
    Petrov (2006), Computationally efficient approximation of the base-level learning equation in
    ACT-R. Proceedings of the Seventh International Conference on Cognitive Modeling.

    Examples
    --------
    By hand, a memory written 100 days ago and read on three days, the last of them 4 days ago:
    ``1/sqrt(4) + 3 (sqrt(100) - sqrt(4)) / (0.5 (100 - 4)) = 0.5 + 3 * 8 / 48 = 1.0``. One written
    a day ago has ``1/sqrt(1) = 1.0`` as well, one written two days ago ``0.707``.

    >>> from memlab.base_activation import base_level
    >>> base_level(age=100, idle=4, reads=3), base_level(age=1), round(base_level(age=2), 3)
    (1.0, 1.0, 0.707)
    """

    max_items: int | None = field(
        default=None, metadata={"help": "prunable memories to keep", "least": 0, "size": True}
    )
    max_tokens: int | None = field(
        default=None,
        metadata={"help": "tokens that a start may take", "least": 0, "size": "tokens"},
    )
    past: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    references: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    evidence: ActivationEvidence | None = field(default=None, init=False, repr=False, compare=False)

    origin: ClassVar[str] = "memlab: when and how often a memory was used (Anderson, Schooler 1991)"
    reason: ClassVar[str] = "least-active"
    reason_by_age: ClassVar[str] = "oldest: use served fewer needs than age"
    fills_gaps: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    runner: ClassVar[RunnerName] = "activation"
    ranks_by: ClassVar[RanksBy] = "use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.max_items is None) == (self.max_tokens is None):
            alternative = "" if self.max_items is None else ", not both"
            raise ValueError(
                f"give either max_items (--max-items) or max_tokens (--max-tokens){alternative}: "
                "how much it may keep"
            )

    @property
    def capacity(self) -> int | None:
        """Number of prunable memories, or of tokens, that stay."""
        return self.max_tokens if self.max_items is None else self.max_items

    @property
    def sized_capacity(self) -> Capacity:
        """The capacity with its unit."""
        return Capacity(size=int(self.capacity or 0), of_tokens=self.max_items is None)

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the tokens of each row, or one for each prunable row and 0 for the others."""
        if self.max_items is None:
            return rows[col.TOKENS].to_numpy(dtype=np.int64)
        return (~rows[col.LOAD_BEARING].to_numpy(dtype=bool)).astype(np.int64)

    def with_past(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the policy with a past, and the references in it, to decide by."""
        return self._with_evidence(past=past, references=references)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Return the least active rows, as many as exceed the capacity."""
        policy = self._with_evidence(evidence=self._collect_evidence(rows))
        reasons = super(Activation, policy).evict(rows, now=now)
        if policy.age_decides(rows):
            return reasons.replace(self.reason, self.reason_by_age)
        return reasons

    def age_decides(self, rows: pd.DataFrame) -> bool:
        """Return whether age served more needs so far, so that the oldest rows are evicted."""
        evidence = self.evidence or self._collect_evidence(rows)
        return evidence.backtest.age_decides(self.sized_capacity)

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:
        """Return the activation of each row; its position if age decides.

        With a budget of tokens, the activation is divided by a function of the length. Of rows with
        equal activation, the oldest position goes first.
        """
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(dict(rows))
        if self.age_decides(frame):
            return (np.asarray(frame[col.POSITION]),)
        levels = self.activity(frame, now=now).levels
        return (self.ranking_levels(levels, frame[col.TOKENS]),)

    def ranking_levels(self, levels: Floats, tokens: Any) -> Floats:
        """Return the levels that rows are ranked by: divided by length if tokens are counted."""
        if self.sized_capacity.of_tokens:
            return per_length(levels, np.asarray(tokens, dtype=np.int64))
        return levels

    def activity(self, rows: pd.DataFrame, *, now: datetime) -> ActivationLevels:
        """Return the activation of rows, and notes on the evidence."""
        evidence = self.evidence or self._collect_evidence(rows)
        return activity_of(rows, evidence.past, evidence.references, now=now)

    def _collect_evidence(self, rows: pd.DataFrame) -> ActivationEvidence:
        """Return the evidence of a decision about rows: the past, with the rows written since."""
        past = rows
        if self.past is not None:
            new = rows[~rows[col.MEMORY_ID].isin(self.past[col.MEMORY_ID])]
            known_columns = list(self.past.columns.intersection(new.columns))
            past = pd.concat([self.past, new[known_columns]])
            past = past.sort_values(col.POSITION, kind="stable", ignore_index=True)
        references = self.references
        if references is None:
            references = find_references(past)
        return ActivationEvidence(
            past=past, references=references, backtest=backtest_activation(past, references)
        )

    def _with_evidence(self, **changes: Any) -> Self:
        """Return a copy in which some of the fields past, references and evidence are replaced."""
        policy = replace(self)
        for name in ("past", "references", "evidence"):
            value = changes[name] if name in changes else getattr(self, name)
            object.__setattr__(policy, name, value)
        return policy
