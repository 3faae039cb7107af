"""Keep what is most active: base-level activation from when and how often a memory was used."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.base_activation import LENGTH_OFFSET, LENGTH_POWER, SHORTEST_DAYS
from memlab.evidence.references import find_references, references_on_rows
from memlab.frame.fields import Flags, Floats, Ints, Times, as_instant
from memlab.policies.base import CappedPolicy, GoesBy, Keys, Rows, Runner, numbers, times
from memlab.text import counted

MARGIN: Final = 2.0
"""Standard errors of the reads by which activation must have served less for age to decide. Of
references by name, which public histories show to go by age, any less is enough."""

FIRST_LOOK: Final = 10
"""Needs seen before age and activation are compared for the first time."""

GROWTH: Final = 1.15
"""By how much needs grow from one comparison to the next."""

MOST_AT_A_NEED: Final = 4_000
"""Memories and uses above which only a part of the needs is compared: as many in a thousand as
this is thousandths of them."""

SAME_MOMENT: Final = 1 / 1_440
"""Days within which two times of a store are one: a minute."""

FEWEST_LOADED: Final = 5
"""Memories with one last access, below which nothing says that starts raise a counter."""

MOSTLY: Final = 0.9
"""Share of memories that agree where a counter counts starts."""

_DAY: Final = np.timedelta64(1, "D")
_EPOCH: Final = np.datetime64(0, "us")


def base_levels(age: Floats, idle: Floats, reads: Floats) -> Floats:
    """Return the activation of memories; :func:`memlab.base_activation.base_level` for arrays.

    Parameters
    ----------
    age, idle, reads : array of float
        Days since each was written and read last (NaN: never), and on how many days it was read.
    """
    age = np.maximum(age, SHORTEST_DAYS)
    read = (reads > 0) & ~np.isnan(idle)
    idle = np.where(read, np.clip(idle, SHORTEST_DAYS, age), age)
    used = 1 / np.sqrt(idle) + reads * 2 / (np.sqrt(age) + np.sqrt(idle))
    return np.where(read, used, 1 / np.sqrt(age))


def per_length(activation: Floats, tokens: Ints) -> Floats:
    """Return activation by length; :func:`memlab.base_activation.per_length` for arrays."""
    by_length: Floats = activation / (tokens + LENGTH_OFFSET) ** LENGTH_POWER
    return by_length


@dataclass(frozen=True)
class Uses:
    """When memories were written, and every use of them in the order in which it arose.

    Attributes
    ----------
    born : array of float
        Days since 1970 at which each memory was written; NaN where no memory has a time.
    target : array of int
        The memory of each use, by its place in `born`.
    when : array of float
        Days since 1970 at which each use arose.
    """

    born: Floats
    target: Ints
    when: Floats

    @cached_property
    def again(self) -> Ints:
        """The next use of the same memory on the same UTC day; as many as there are for none."""
        again = np.full(len(self.target), len(self.target))
        order = np.lexsort((np.arange(len(self.target)), np.floor(self.when), self.target))
        target = self.target[order]
        day = np.floor(self.when)[order]
        same = (target[1:] == target[:-1]) & (day[1:] == day[:-1])
        again[order[:-1][same]] = order[1:][same]
        return again

    def days(self, seen: Flags) -> Flags:
        """Return which uses stand for their day: of those `seen`, the last of a memory's day."""
        seen_again: Flags = np.append(seen, np.bool_(0))[self.again]
        return seen & ~seen_again

    def levels(self, now: float, seen: Flags, first: int | None = None) -> Floats:
        """Return the activation of the memories written first, by the uses seen.

        Parameters
        ----------
        now : float
            The moment, in days since 1970.
        seen : array of bool
            Which uses are known.
        first : int, optional
            How many memories; all of them by default.
        """
        count = len(self.born) if first is None else first
        chosen = np.flatnonzero(self.days(seen))
        idle = np.maximum(now - self.when[chosen], SHORTEST_DAYS)
        uses = np.bincount(self.target[chosen], 1 / np.sqrt(idle), minlength=count)
        return 1 / np.sqrt(self.ages(now)[:count]) + uses[:count]

    def ages(self, now: float) -> Floats:
        """Return how many days old memories are; one without a time has just been written."""
        return np.fmax(now - self.born, SHORTEST_DAYS)

    def counts(self) -> tuple[Floats, Floats]:
        """Return of each memory on how many days it was used, and the last time (NaN: never)."""
        chosen = self.days(np.ones(len(self.target), dtype=bool))
        count = np.bincount(self.target[chosen], minlength=len(self.born)).astype(np.float64)
        last = np.full(len(self.born), -np.inf)
        np.maximum.at(last, self.target, self.when)
        return count, np.where(np.isfinite(last), last, np.nan)


def uses_of(created: Times, target: Ints, at: Ints, said: Times) -> Uses:
    """Return the uses of memories in order of position.

    Parameters
    ----------
    created : array of datetime64
        When each says it was written. One that does not say is as old as its neighbour before it.
    target, at : array of int
        The memory of each use, and how many had been written when it arose.
    said : array of datetime64
        When each use arose; where it does not say, when the memory about to be written then was.
    """
    clock = np.fmax.accumulate(np.append(_days(created), np.nan))
    when = np.where(np.isnat(said), clock[at], _days(said))
    return Uses(born=births(created), target=target, when=np.nan_to_num(when))


def births(created: Times) -> Floats:
    """Return when memories were written, in days; for one without a time that of a neighbour."""
    known = pd.Series(_days(created))
    return np.asarray(known.ffill().bfill(), dtype=np.float64)


def days_of(moment: datetime) -> float:
    """Return a moment in days since 1970."""
    return float((as_instant(moment) - _EPOCH) / _DAY)


def _days(moments: Times) -> Floats:
    return np.asarray((moments - _EPOCH) / _DAY, dtype=np.float64)


class Space(NamedTuple):
    """What there is room for: memories, load-bearing ones aside, or tokens with them."""

    size: int
    of_tokens: bool


@dataclass(frozen=True)
class Trial:
    """What activation and age would each have served of the needs so far.

    Needs are counted once a day. Load-bearing memories, which are loaded anyway, are left out, and
    nothing that was written is taken to have gone.

    Attributes
    ----------
    uses : Uses
        Of the prunable memories.
    written : array of int
        How many of them had been written when each need arose.
    floor : array of int
        Tokens of the load-bearing memories that had been written then.
    place : array of int
        The number of each need among the references.
    tokens : array of int
        Of each prunable memory.
    margin : float
        Standard errors by which activation must have served less.
    """

    uses: Uses
    written: Ints
    floor: Ints
    place: Ints
    tokens: Ints
    margin: float

    def age_decides(self, space: Space, seen: int | None = None) -> bool:
        """Return whether age has served more by the last comparison before so many needs."""
        needs = len(self.written) if seen is None else seen
        looks = [look for look in self._looks if look <= needs]
        if not looks:
            return False
        asked = (space, looks[-1])
        if asked not in self._decided:
            self._decided[asked] = self._age_has_served_more(space, looks[-1])
        return self._decided[asked]

    @cached_property
    def _decided(self) -> dict[tuple[Space, int], bool]:
        return {}

    def _age_has_served_more(self, space: Space, look: int) -> bool:
        tried = self._tried[self._tried < look]
        floor = self.floor[tried] if space.of_tokens else 0
        by_activation, by_age = self._reach[int(space.of_tokens)][:, : len(tried)]
        gain = (by_activation <= space.size - floor).astype(np.float64)
        gain -= by_age <= space.size - floor
        if not len(gain):
            return False
        error = float(gain.std()) / np.sqrt(len(gain))
        return bool(gain.mean() + self.margin * error < 0)

    @cached_property
    def _looks(self) -> list[int]:
        looks = []
        count = FIRST_LOOK
        while count <= len(self.written):
            looks.append(count)
            count = max(count + FIRST_LOOK, int(count * GROWTH))
        return looks

    @cached_property
    def _tried(self) -> Ints:
        """The needs that are compared: the first of a day, of a long history evenly a part."""
        count = np.arange(len(self.written))
        first = np.ones(len(count), dtype=bool)
        later = self.uses.again[self.uses.again < len(count)]
        first[later] = False
        shares = np.minimum(1.0, MOST_AT_A_NEED / np.maximum(self.written + count, 1))
        chosen = np.diff(np.floor(np.cumsum(shares) + 1e-9), prepend=0) > 0
        return np.flatnonzero(first & chosen)

    @cached_property
    def _reach(self) -> tuple[Floats, Floats]:
        """Room from which each tried need is served by activation and by age: memories, tokens."""
        memories, tokens = np.zeros((2, 2, len(self._tried)))
        moment = np.stack([self.written, self.uses.when])
        new = np.ones(len(self.written), dtype=bool)
        new[1:] = (np.diff(moment) > 0).any(axis=0)
        known = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        whole = np.append(0, np.cumsum(self.tokens))
        place = np.arange(len(self.written))
        for number, need in enumerate(self._tried.tolist()):
            written = int(self.written[need])
            target = int(self.uses.target[need])
            level = self.uses.levels(float(self.uses.when[need]), place < known[need], written)
            memories[0, number] = 1 + _above(level, target).sum()
            memories[1, number] = written - target
            size = self.tokens[:written]
            above = _above(per_length(level, size), target)
            tokens[0, number] = size[target] + size[above].sum()
            tokens[1, number] = whole[written] - whole[target]
        return memories, tokens


def _above(level: Floats, target: int) -> Flags:
    """Return which memories rank above one: of equal ones, the newer."""
    above: Flags = level > level[target]
    above[target + 1 :] |= level[target + 1 :] == level[target]
    return above


def trial_of(past: pd.DataFrame, references: pd.DataFrame, *, silent: bool = False) -> Trial:
    """Return what can be compared of a past.

    Once a plan has retired memories, a log may hold only reads of what was not loaded, and would
    count against whatever chose. So reads from then on are left out, all of them where `silent`.
    """
    is_prunable = ~past[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = past.loc[is_prunable]
    is_read = (references[col.KIND] == "log").to_numpy(dtype=bool)
    is_judged = np.ones(len(references), dtype=bool)
    if silent:
        is_judged = ~is_read
    elif col.RETIRED_AT in past and past[col.RETIRED_AT].notna().any():
        since = past[col.RETIRED_AT].min()
        is_judged = ~is_read | (references[col.AT] < since).to_numpy(dtype=bool)
    judged = references[is_judged]
    is_read = is_read[is_judged]
    target, at, place = references_on_rows(rows, judged)
    when = times(judged, col.AT)[place]
    created = times(rows, col.CREATED_AT)
    clock = np.fmax.accumulate(np.append(_days(created), np.nan))
    moments = np.where(np.isnat(when), clock[at], _days(when))
    order = np.lexsort((target, moments, at))
    target = target[order]
    at = at[order]
    place = place[order]
    position = judged[col.AT_POSITION].to_numpy(dtype=np.int64)[place]
    tokens = past[col.TOKENS].to_numpy(dtype=np.int64)
    floor = np.append(0, np.cumsum(np.where(is_prunable, 0, tokens)))
    before = np.searchsorted(past[col.POSITION].to_numpy(), position)
    return Trial(
        uses=uses_of(created, target, at, when[order]),
        written=at,
        floor=floor[before],
        place=np.flatnonzero(is_judged)[place],
        tokens=tokens[is_prunable],
        margin=MARGIN if 2 * np.count_nonzero(is_read[place]) >= len(place) else 0.0,
    )


@dataclass(frozen=True)
class Activity:
    """How active the rows of a frame are, and what that rests on.

    Attributes
    ----------
    levels : array of float
        Base-level activation of each row.
    notes : tuple of str
        What was taken otherwise than it was said, in words.
    """

    levels: Floats
    notes: tuple[str, ...]


def activity_of(
    rows: pd.DataFrame, past: pd.DataFrame, references: pd.DataFrame, *, now: datetime
) -> Activity:
    """Return how active rows are, by what their past and their store's counter say of their use.

    A row has its number of days of use and its last use from the references or from the counter,
    whichever says more and later; where the references say all of it, each day counts by itself.
    """
    moment = days_of(now)
    notes = []
    found = references_on_rows(past, references)
    said = times(references, col.AT)[found.place]
    uses = uses_of(times(past, col.CREATED_AT), found.target, found.at, said)
    # A deleted id may have been written again: the newest of them counts.
    newest = np.flatnonzero(~past[col.MEMORY_ID].duplicated(keep="last"))
    ids = pd.Index(past[col.MEMORY_ID].iloc[newest])
    place = newest[ids.get_indexer(pd.Index(rows[col.MEMORY_ID]))]
    exact = uses.levels(moment, np.ones(len(uses.target), dtype=bool))[place]
    count, last = (each[place] for each in uses.counts())
    age = uses.ages(moment)[place]
    counter = read_counter(rows, births(times(rows, col.CREATED_AT)), moment)
    more = counter.reads > count
    later = (counter.last > last + SAME_MOMENT) | (np.isnan(last) & ~np.isnan(counter.last))
    counts_more = more | (later & (counter.reads > 0))
    if counts_more.any():
        reads = np.fmax(count, counter.reads)
        idle = moment - np.fmax(last, counter.last)
        idle = np.where(np.isnan(idle) & (reads > 0), age, idle)
        exact = np.where(counts_more, base_levels(age, idle, reads), exact)
        notes.append(
            f"{counted(int(counts_more.sum()))} by the store's own counter, taken as it counts: "
            "some systems count several accesses of a day"
        )
    notes += counter.notes
    if ahead := int((births(times(rows, col.CREATED_AT)) > moment).sum()):
        notes.append(f"{counted(ahead)} written in the future, taken as written now")
    return Activity(exact, tuple(notes))


class Counter(NamedTuple):
    """What a store's counter says of rows: reads, the last of them in days, and notes on it."""

    reads: Floats
    last: Floats
    notes: tuple[str, ...]


def read_counter(rows: Rows, born: Floats, now: float) -> Counter:
    """Return what ``access_count`` and ``last_accessed_at`` of rows say.

    A number that is not finite or negative is unknown. A last access of what was counted 0 times is
    one read, unless it is the birth. A counter that starts raise is refused.
    """
    notes = []
    count = numbers(rows, col.ACCESS_COUNT).copy()
    count[~np.isfinite(count) | (count < 0)] = np.nan
    last = _days(times(rows, col.LAST_ACCESSED_AT))
    if ahead := int((last > now + SAME_MOMENT).sum()):
        notes.append(f"{counted(ahead)} accessed in the future, taken as accessed now")
    last = np.where(np.isnan(last), np.nan, np.minimum(last, now))
    is_birth = np.abs(last - born) <= SAME_MOMENT
    uncounted = np.where(np.isnan(last) | is_birth, 0.0, 1.0)
    count = np.where(np.nan_to_num(count) > 0, count, uncounted)
    last = np.where(count > 0, last, np.nan)
    if counts_starts(born, count, last):
        notes.append(
            "the store's counter is left out: nearly all memories have one last access, and the "
            "older ones higher counts, so it counts starts"
        )
        return Counter(np.zeros_like(count), np.full_like(last, np.nan), tuple(notes))
    return Counter(count, last, tuple(notes))


def counts_starts(born: Floats, count: Floats, last: Floats) -> bool:
    """Return whether a counter is raised by every start, which loads all or the newest memories.

    Then the last access of what was loaded is the last start, and each count is the number of
    starts since the memory was written: the older the higher.
    """
    used = np.flatnonzero(count > 0)
    if not len(used) or np.isnan(last[used]).all():
        return False
    start = np.nanmax(last[used])
    at_start = used[np.abs(last[used] - start) <= SAME_MOMENT]
    if len(at_start) < FEWEST_LOADED:
        return False
    loadable = np.flatnonzero((born >= born[at_start].min()) & (born <= start - SAME_MOMENT))
    if len(at_start) < MOSTLY * len(loadable):
        return False
    in_order = count[at_start[np.argsort(born[at_start], kind="stable")]]
    falls = np.diff(in_order) <= 0
    return bool(in_order.max() > 1 and falls.mean() >= MOSTLY)


class Evidence(NamedTuple):
    """What a decision goes by: the past, the uses in it, and how age and activation served."""

    past: pd.DataFrame
    references: pd.DataFrame
    trial: Trial


@dataclass(frozen=True)
class Activation(CappedPolicy):
    """Keep the prunable memories that are most active.

    Base-level activation (Anderson and Schooler 1991) says how likely a memory is needed next. With
    L days since it was written, t days since it was read last, n days on which it was read, d = 0.5
    and no time below half a day it is ::

        L^-d                                                    if it was never read
        t^-d + n (L^(1-d) - t^(1-d)) / ((1-d) (L - t))          else

    which is Petrov's (2006) approximation of the sum of the powers ``t_i^-d`` of all times since it
    was written and read; as t approaches L it is ``(n + 1) L^-d``. Where references and a log of
    reads have every day, the sum itself is used: the approximation is 3 to 13 % high. Else the
    store's own counter is (``access_count``, ``last_accessed_at``), as it counts; memory by memory
    the larger n and the later time of both. A second read on one UTC day moves t and not n. Being
    loaded at start is no read, and a counter that starts raise is left out.

    With `max_items` it counts memories, and load-bearing ones come on top, as under `KeepRecent`.
    With `max_tokens` it counts tokens, load-bearing ones among them, as `TokenBudget` does; there
    activation is divided by ``(tokens + 10)^0.4``, and what still fits stays.

    Nothing is fitted. Where age would have served more of the store's own needs in the room there
    is, it keeps the newest, and its reason says so: of reads by two standard errors more, of
    references by name any more.

    A store that has been compacted shows only what was kept, and a log of reads is no part of it.
    :func:`memlab.plan` gives both; anywhere else do so with :meth:`after`.

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
        metadata={"help": "tokens that the boot context may take", "least": 0, "size": "tokens"},
    )
    past: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    references: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    evidence: Evidence | None = field(default=None, init=False, repr=False, compare=False)

    origin: ClassVar[str] = "memlab: when and how often a memory was used (Anderson, Schooler 1991)"
    reason: ClassVar[str] = "least-active"
    by_age: ClassVar[str] = "oldest: use served fewer needs than age"
    fills: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    runner: ClassVar[Runner] = "activation"
    goes_by: ClassVar[GoesBy] = "use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.max_items is None) == (self.max_tokens is None):
            both = "" if self.max_items is None else ", not both"
            raise ValueError(
                f"give either max_items (--max-items) or max_tokens (--max-tokens){both}: how much "
                "it may keep"
            )

    @property
    def capacity(self) -> int | None:
        """How many prunable rows stay, or for how many tokens there is room."""
        return self.max_tokens if self.max_items is None else self.max_items

    @property
    def space(self) -> Space:
        """The same, and what is counted."""
        return Space(size=int(self.capacity or 0), of_tokens=self.max_items is None)

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the tokens of each row; or one for each prunable row, and none for the others."""
        if self.max_items is None:
            return rows[col.TOKENS].to_numpy(dtype=np.int64)
        return (~rows[col.LOAD_BEARING].to_numpy(dtype=bool)).astype(np.int64)

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the policy with a past, and the uses in it, to decide by."""
        return self._with(past=past, references=references)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the least active rows, as many as there is no room for."""
        told = self._with(evidence=self._evidence_on(rows))
        named = super(Activation, told).evict(rows, now=now)
        return named.replace(self.reason, self.by_age) if told.age_decides(rows) else named

    def age_decides(self, rows: pd.DataFrame) -> bool:
        """Return whether age has served more of the needs so far."""
        evidence = self.evidence or self._evidence_on(rows)
        return evidence.trial.age_decides(self.space)

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:
        """Return how active each row is, by length where tokens count; its age where that decides.

        Rows that are as active as others go oldest position first.
        """
        here = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(dict(rows))
        if self.age_decides(here):
            return (np.asarray(here[col.POSITION]),)
        return (self.ranked_by(self.activity(here, now=now).levels, here[col.TOKENS]),)

    def ranked_by(self, levels: Floats, tokens: Any) -> Floats:
        """Return activation, divided by length where the policy counts tokens."""
        if self.max_items is None:
            return per_length(levels, np.asarray(tokens, dtype=np.int64))
        return levels

    def activity(self, rows: pd.DataFrame, *, now: datetime) -> Activity:
        """Return how active rows are, and what that rests on."""
        evidence = self.evidence or self._evidence_on(rows)
        return activity_of(rows, evidence.past, evidence.references, now=now)

    def _evidence_on(self, here: pd.DataFrame) -> Evidence:
        """Return the past with what was written since, the uses in it, and what they say."""
        past = here
        if self.past is not None:
            new = here[~here[col.MEMORY_ID].isin(self.past[col.MEMORY_ID])]
            both = [self.past, new[list(self.past.columns.intersection(new.columns))]]
            past = pd.concat(both).sort_values(col.POSITION, kind="stable", ignore_index=True)
        references = find_references(past) if self.references is None else self.references
        return Evidence(past=past, references=references, trial=trial_of(past, references))

    def _with(self, **known: Any) -> Self:
        policy = replace(self)
        for name in ("past", "references", "evidence"):
            object.__setattr__(policy, name, known.get(name, getattr(self, name)))
        return policy
