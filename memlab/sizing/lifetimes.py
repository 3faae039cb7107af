"""The history of a store as arrays: active memories over time, and the age ranks of references.

An age rank is a stack distance (Mattson et al. 1970, "Evaluation techniques for storage
hierarchies"): the smallest cap that still serves a reference. Sets kept by increasing caps are
nested, so one pass over a history gives the result for every cap.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as c
from memlab.evidence.past import rows_of_gaps
from memlab.evidence.references import references_on_rows, successors
from memlab.frame.fields import LABELS, Flags, Floats, Ints
from memlab.growth.context import FutureDates, entries_loaded
from memlab.sizing.prior import LEVELS, ReachPrior, log_rank_fraction, rank_at
from memlab.text import Table

_MEASURES: Final = ("mean", "p95", "max")
"""Names of the statistics in columns, in the order of the fields of `Statistics`."""
_PRESENT: Final = (
    c.MEMORY_ID,
    c.KIND,
    c.TITLE,
    c.TOKENS,
    c.CREATED_AT,
    *LABELS,
    c.LOADED_AT_START,
)
"""Columns that describe the present memories."""


MAX_ROWS_WITHOUT_NUMBA: Final = 2_048
"""Largest number of rows for which numba is not used, because importing it takes a second."""

MAX_LARGE_ROWS: Final = 5


@dataclass(frozen=True)
class LargeRow:
    """A large load-bearing row. Its text comes from an agent and is not trusted."""

    memory_id: str
    kind: str
    title: str
    tokens: int


@dataclass(frozen=True)
class Floor:
    """Size of the load-bearing active rows.

    `by_kind` holds kind, rows and tokens, the largest first. `largest` holds the largest rows.

    Examples
    --------
    >>> floor = Floor(memories=2, tokens=90, by_kind=(("decision", 2, 90),), largest=())
    >>> [table.heading for table in floor.tables("Load-bearing")]
    ['Load-bearing', 'The costliest']
    """

    memories: int
    tokens: int
    by_kind: tuple[tuple[str, int, int], ...]
    largest: tuple[LargeRow, ...]

    def tables(self, title: str) -> list[Table]:
        """Return a table of the sizes by kind, under a title, and a table of the largest rows."""
        largest = [(row.memory_id, row.kind, row.tokens, row.title) for row in self.largest]
        return [
            Table(title, ("kind", "memories", "tokens"), self.by_kind),
            Table("The costliest", ("memory_id", "kind", "tokens", "title"), largest),
        ]


def floor_of(frame: pd.DataFrame) -> Floor:
    """Return the size of a frame's load-bearing active rows, by kind, with the largest rows."""
    is_active = frame[c.ACTIVE].to_numpy(dtype=bool)
    is_load_bearing = frame[c.LOAD_BEARING].to_numpy(dtype=bool)
    rows = np.flatnonzero(is_active & is_load_bearing)
    tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)[rows]
    codes, kinds = pd.factorize(frame[c.KIND].array.take(rows))
    has_kind = codes >= 0  # a missing kind has the code -1
    sizes = np.bincount(codes[has_kind], minlength=len(kinds))
    costs = np.bincount(codes[has_kind], tokens[has_kind], minlength=len(kinds)).astype(np.int64)
    by_kind = zip(map(str, kinds), sizes.tolist(), costs.tolist(), strict=True)
    largest = np.argsort(-tokens, kind="stable")[:MAX_LARGE_ROWS]
    large_rows = zip(
        frame[c.MEMORY_ID].array.take(rows[largest]),
        frame[c.KIND].array.take(rows[largest]),
        frame[c.TITLE].array.take(rows[largest]),
        tokens[largest].tolist(),
        strict=True,
    )
    return Floor(
        memories=len(rows),
        tokens=int(tokens.sum()),
        by_kind=tuple(sorted(by_kind, key=_most_tokens_first)),
        largest=tuple(
            LargeRow(memory_id=str(memory_id), kind=str(kind), title=str(title), tokens=cost)
            for memory_id, kind, title, cost in large_rows
        ),
    )


class FloorOverTime(NamedTuple):
    """Number and tokens of the active load-bearing rows after every moment, shape (rows,)."""

    memories: Ints
    tokens: Ints


class Statistics(NamedTuple):
    """Mean, nearest-rank 95th percentile and maximum of values; the fields are in that order."""

    mean: float
    p95: int
    maximum: int


def _most_tokens_first(size_of_kind: tuple[str, int, int]) -> tuple[int, str]:
    """Return the key by which the sizes of kinds are sorted: most tokens first, then by name."""
    kind, _, tokens = size_of_kind
    return -tokens, kind


@dataclass(frozen=True)
class Lifetimes:
    """The rows of a store in the order of writing, as arrays.

    A *moment* is the number of the row that is written in it, from 0. A row that supersedes others
    ends them in the moment in which it is written.

    Attributes
    ----------
    ever_prunable : array of bool
        Whether each row is prunable while it is active.
    end : array of int64
        The moment in which each row was superseded; the number of rows if it was not.
    tokens : array of int64
        Tokens of each row.
    """

    ever_prunable: Flags
    end: Ints
    tokens: Ints

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Lifetimes":
        """Return the lifetimes of the rows of a frame."""
        end = np.full(len(frame), len(frame), np.int64)
        rows, successor = successors(frame)
        is_later = successor > rows
        end[rows[is_later]] = successor[is_later]
        ever_prunable = ~frame[c.LOAD_BEARING].to_numpy(dtype=bool)
        tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)
        return cls(ever_prunable, end, tokens)

    def __len__(self) -> int:
        return len(self.ever_prunable)

    @cached_property
    def superseded(self) -> bool:
        """Whether any row was superseded. Without one, age ranks only grow with time."""
        return bool((self.end < len(self)).any())

    @cached_property
    def prunable(self) -> int:
        """Number of active prunable rows at the end, deleted ones included."""
        return int((self.ever_prunable & (self.end == len(self))).sum())

    @cached_property
    def prunable_before(self) -> Ints:
        """Number of ever prunable rows written before each moment, shape (rows + 1,)."""
        return np.concatenate([[0], np.cumsum(self.ever_prunable, dtype=np.int64)])

    @cached_property
    def active_before(self) -> Ints:
        """Number of active prunable rows before each moment, shape (rows + 1,)."""
        superseded = np.bincount(self.end[self.ever_prunable], minlength=len(self) + 1)
        superseded_before = np.append(0, np.cumsum(superseded)[:-1])
        active: Ints = self.prunable_before - superseded_before
        return active

    @cached_property
    def floor(self) -> FloorOverTime:
        """Number and tokens of load-bearing memories that are active after every moment."""
        rows = np.flatnonzero(~self.ever_prunable)
        memories = self._active_total(rows, np.ones_like(rows))
        tokens = self._active_total(rows, self.tokens[rows])
        return FloorOverTime(memories=memories, tokens=tokens)

    def _active_total(self, rows: Ints, amounts: Ints) -> Ints:
        """Return the sum of `amounts` over those of `rows` that are active after each moment."""
        change = np.zeros(len(self) + 1, np.int64)
        change[rows] = amounts
        np.subtract.at(change, self.end[rows], amounts)
        total: Ints = np.cumsum(change[:-1])
        return total

    def until(self, moment: int) -> "Lifetimes":
        """Return the lifetimes as they were known before `moment`."""
        end = np.minimum(self.end[:moment], moment)
        return Lifetimes(self.ever_prunable[:moment], end, self.tokens[:moment])

    def largest_ranks(
        self, target: Ints, at: Ints, *, in_tokens: bool = False, with_floor: bool = False
    ) -> Ints:
        """Return the largest age rank of each target in the moments before `at`; 0 if load-bearing.

        The age rank at a moment is the number of active prunable memories that are at least as new
        as the target. With `in_tokens` it is the number of their tokens, and with `with_floor` the
        tokens of the floor are added. The largest rank is the stack distance of a reference
        (Mattson et al. 1970): a store that is held to a cap or a budget of `k` at every moment
        still has the target if and only if this rank is at most `k`.
        """
        weight_if_prunable = self.tokens if in_tokens else np.ones(len(self), np.int64)
        weight = np.where(self.ever_prunable, weight_if_prunable, 0)
        floor = self.floor.tokens if with_floor else np.zeros(len(self), np.int64)
        if not self.superseded:  # sums only grow, so the last one is the largest
            before = np.append(0, np.cumsum(weight))
            sums = before[at] - before[target] + floor[np.maximum(at - 1, 0)]
        elif len(self) <= MAX_ROWS_WITHOUT_NUMBA:
            sums = _largest_sums(weight, self.end, floor, target, at)
        else:
            from memlab.sizing.kernels import largest_sums

            start, member = grouped(target, len(self))
            sums = largest_sums(weight, self.end, floor, start, member, at)
        return np.where(self.ever_prunable[target], sums, 0)

    def kept_over_time(self, caps: Iterable[int]) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each cap the number and tokens of the prunable rows left after every moment."""
        if not self.superseded:
            written = self.prunable_before[1:]
            tokens = np.append(0, np.cumsum(self.tokens[self.ever_prunable]))
            for cap in caps:
                kept = np.minimum(written, cap)
                yield kept, tokens[written] - tokens[written - kept]
            return
        if len(self) <= MAX_ROWS_WITHOUT_NUMBA:
            yield from self._kept_by_ranks(np.array(list(caps)))
            return
        from memlab.sizing.kernels import kept_over_time

        start, member = grouped(self.end, len(self) + 1)
        for cap in caps:
            yield kept_over_time(cap, self.ever_prunable, self.tokens, self.end, start, member)

    def _kept_by_ranks(self, caps: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the results of `kept_over_time` for a short history, for all caps at once."""
        n = len(self)
        largest = np.zeros(n, np.int64)  # the largest age rank of each row so far
        tokens = np.zeros(n + 1, np.int64)
        present_ranks = np.arange(1, n + 1)
        kept_memories = np.empty((len(caps), n), np.int64)
        kept_tokens = np.empty((len(caps), n), np.int64)
        for moment in range(n):
            is_active = self.ever_prunable[: moment + 1] & (self.end[: moment + 1] > moment)
            newest_first = is_active.nonzero()[0][::-1]
            ranks = np.maximum(largest[newest_first], present_ranks[: len(newest_first)])
            largest[newest_first] = ranks
            count = ranks.searchsorted(caps, side="right")
            self.tokens[newest_first].cumsum(out=tokens[1 : len(ranks) + 1])
            kept_memories[:, moment] = count
            kept_tokens[:, moment] = tokens[count]
        yield from zip(kept_memories, kept_tokens, strict=True)

    def boot_at(self, caps: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return mean, p95 and max of a start over the history under each cap.

        Each cap is held after every row written. The result has an array of shape (caps,) by column
        name, such as ``boot_tokens_p95``.
        """
        memories_by_measure = np.zeros((len(_MEASURES), len(caps)))
        tokens_by_measure = np.zeros((len(_MEASURES), len(caps)))
        if len(self):
            floor = self.floor
            for column, (memories, tokens) in enumerate(self.kept_over_time(caps)):
                memories_by_measure[:, column] = mean_p95_max(memories + floor.memories)
                tokens_by_measure[:, column] = mean_p95_max(tokens + floor.tokens)
        columns: dict[str, npt.NDArray[Any]] = {}
        for unit, measured in (("memories", memories_by_measure), ("tokens", tokens_by_measure)):
            for measure, values in zip(_MEASURES, measured, strict=True):
                is_mean = measure == "mean"
                columns[f"boot_{unit}_{measure}"] = values if is_mean else values.astype(np.int64)
        return columns


class Reaches(NamedTuple):
    """Reaches of references in increasing order.

    Attributes
    ----------
    reach : array of float64
        The reaches.
    written : array of float64
        Number of prunable rows written before each reference.
    """

    reach: Floats
    written: Floats


@dataclass(frozen=True)
class Ranked:
    """References as arrays, one element each, in the order in which they arose.

    Attributes
    ----------
    rank : array of int64
        Age rank of the target: the smallest cap that would have served the reference; 0 if the
        target is load-bearing.
    written, active : array of int64
        Number of prunable rows written before the reference, and of those that were still active.
    at, target : array of int64
        The moment of the reference (the row written next), and the row of the target.
    cluster : array of int64
        Number of the task in which the reference arose. A read, and a reference without a task, has
        a number of its moment.
    lost : array of bool
        Whether the target was deleted without an archive.
    """

    rank: Ints
    written: Ints
    active: Ints
    at: Ints
    cluster: Ints
    target: Ints
    lost: Flags

    @classmethod
    def of(cls, frame: pd.DataFrame, lifetimes: Lifetimes, references: pd.DataFrame) -> "Ranked":
        """Return the references that fit the frame as arrays."""
        target, at, numbers = references_on_rows(frame, references)
        is_read = (references[c.KIND] == "log").to_numpy(dtype=bool)[numbers]
        # A reference without a task gets the number of its moment, above all numbers of tasks.
        by_moment = len(frame) + np.arange(len(frame) + 1)
        cluster = by_moment.copy()
        tasks = np.flatnonzero(frame[c.SOURCE_TASK_REF].notna().to_numpy())
        cluster[tasks] = pd.factorize(frame[c.SOURCE_TASK_REF].iloc[tasks])[0]
        return cls(
            rank=lifetimes.largest_ranks(target, at),
            written=lifetimes.prunable_before[at],
            active=lifetimes.active_before[at],
            at=at,
            cluster=np.where(is_read, by_moment[at], cluster[at]),
            target=target,
            lost=rows_of_gaps(frame)[target],
        )

    def __len__(self) -> int:
        return len(self.rank)

    def between(self, first: int, last: int) -> "Ranked":
        """Return the references that arose from moment `first` until before moment `last`."""
        selected = slice(*np.searchsorted(self.at, [first, last]))
        return Ranked(
            rank=self.rank[selected],
            written=self.written[selected],
            active=self.active[selected],
            at=self.at[selected],
            cluster=self.cluster[selected],
            target=self.target[selected],
            lost=self.lost[selected],
        )

    def with_expected_ranks(self, law: ReachPrior) -> "Ranked":
        """Return the references with the ranks that are expected for lost targets.

        The rank that is known for a lost target is a lower limit. The expected rank is the median
        of the prior between that limit and `written`.
        """
        lost = self.lost
        if not lost.any():
            return self
        least_reach = log_rank_fraction(self.rank[lost], self.written[lost])
        # The share of references below the limit; the median of the others lies halfway to 1.
        share = np.interp(least_reach, law.reach_at(LEVELS), LEVELS)
        expected = rank_at(law.reach_at((1 + share) / 2), self.written[lost])
        rank = self.rank.copy()
        rank[lost] = np.clip(np.ceil(expected), rank[lost], self.written[lost])
        return replace(self, rank=rank)

    @cached_property
    def losable(self) -> Flags:
        """Whether each reference is to a prunable memory, which a cap may have deleted by then."""
        return self.rank > 0

    @cached_property
    def reaches(self) -> Reaches:
        """Reaches of losable references."""
        written = self.written[self.losable]
        reach = log_rank_fraction(self.rank[self.losable], written)
        order = np.argsort(reach, kind="stable")
        return Reaches(reach[order], written[order].astype(np.float64))

    @cached_property
    def cluster_count(self) -> int:
        """Number of clusters among losable references: the effective sample size.

        References that arise in one task are not independent, so a task counts once, as in
        cluster sampling (Kish 1965).
        """
        return len(np.unique(self.cluster[self.losable]))

    def share_at(self, caps: Ints) -> Floats:
        """Return the share of references that each cap would have served; NaN if there are none."""
        if not len(self):
            return np.full(len(caps), np.nan)
        cumulative = np.cumsum(np.bincount(self.rank))
        share: Floats = cumulative[np.minimum(caps, len(cumulative) - 1)] / cumulative[-1]
        return share

    @cached_property
    def far_share(self) -> float:
        """Share of losable references whose rank is more than half of the active memories."""
        is_far = 2 * self.rank > self.active
        is_far_losable = is_far[self.losable]
        return float(is_far_losable.mean()) if len(is_far_losable) else 0.0

    @cached_property
    def always(self) -> float:
        """Share of references that every cap serves: those to load-bearing memories."""
        return float(1 - self.losable.mean()) if len(self) else 0.0


class LoadedSizes(NamedTuple):
    """Sizes of a start that keeps the newest n prunable memories, by n, shape (prunable + 1,).

    Attributes
    ----------
    memories, tokens : array of int64
        Memories that a start loads, and their tokens with the index's own text.
    prunable_memories, prunable_tokens : array of int64
        The prunable ones of them, and their tokens.
    """

    memories: Ints
    tokens: Ints
    prunable_memories: Ints
    prunable_tokens: Ints

    def at(self, kept: Ints) -> "LoadedSizes":
        """Return the sizes of starts that keep these numbers of prunable memories."""
        return LoadedSizes(
            memories=self.memories[kept],
            tokens=self.tokens[kept],
            prunable_memories=self.prunable_memories[kept],
            prunable_tokens=self.prunable_tokens[kept],
        )


@dataclass(frozen=True)
class Present:
    """Sizes of the present memories.

    Attributes
    ----------
    tokens_newest : array of int64, shape (prunable + 1,)
        Tokens of the newest n prunable memories together, by n.
    loaded : LoadedSizes
        Sizes of a start that keeps the load-bearing memories and the newest n prunable ones. If
        the agent only searches its memories, all kept memories count.
    days_newest : array of float64, shape (prunable + 1,)
        Days from the newest memory back to the oldest of the newest n prunable ones, by n. Rows
        dated in the future are left out.
    floor : Floor
        Size of the load-bearing memories.
    token_rule : str
        How tokens were counted.
    recalled : bool
        Whether the agent only searches prunable memories, and loads none of them at start.
    load_bearing_at_start : int
        Tokens of load-bearing memories that a start loads, if prunable ones are only searched.
    """

    tokens_newest: Ints
    loaded: LoadedSizes
    days_newest: Floats
    floor: Floor
    token_rule: str
    recalled: bool = False
    load_bearing_at_start: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame, now: datetime) -> "Present":
        """Return the sizes, at the moment `now`, of the memories that are not deleted."""
        if c.DELETED_AT in frame:
            is_deleted = frame[c.DELETED_AT].notna().to_numpy()
            if is_deleted.any():
                columns = [name for name in _PRESENT if name in frame]
                frame = frame.loc[~is_deleted, columns]
        newest_first = np.flatnonzero(frame[c.PRUNABLE].to_numpy(dtype=bool))[::-1]  # row numbers
        created = frame[c.CREATED_AT].to_numpy("datetime64[us]", copy=True)
        created[FutureDates.of(created, now).left_out] = np.datetime64("NaT")
        newest = np.fmax.reduce(created, initial=np.datetime64("NaT"))
        age = newest - created[newest_first]
        tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)[newest_first]
        is_recalled = bool(frame.attrs.get(c.RECALLED))
        load_bearing_at_start = 0
        if is_recalled and c.LOADED_AT_START in frame:
            is_loaded = frame[c.ACTIVE] & frame[c.LOADED_AT_START]
            load_bearing_at_start = int(frame.loc[is_loaded, c.TOKENS].sum())
        return cls(
            tokens_newest=np.append(0, tokens.cumsum()),
            loaded=_loaded_sizes(frame, newest_first, is_recalled=is_recalled),
            days_newest=np.append(0.0, np.fmax.accumulate(age / np.timedelta64(1, "D"))),
            floor=floor_of(frame),
            token_rule=str(frame.attrs.get(c.TOKEN_RULE, "not said")),
            recalled=is_recalled,
            load_bearing_at_start=load_bearing_at_start,
        )

    @property
    def prunable(self) -> int:
        """Number of active rows that a compaction may delete."""
        return len(self.tokens_newest) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all active memories, loaded at start or not."""
        return self.floor.tokens + int(self.tokens_newest[-1])

    @property
    def tokens_loaded(self) -> int:
        """Tokens that an agent loads at start; those that it searches if it loads none."""
        return int(self.loaded.tokens[-1])


def _loaded_sizes(frame: pd.DataFrame, newest_first: Ints, *, is_recalled: bool) -> LoadedSizes:
    """Return the sizes of a start that keeps the newest n prunable memories.

    `newest_first` holds the row numbers of the prunable memories of a frame without deleted rows.
    """
    tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)
    is_active = frame[c.ACTIVE].to_numpy(dtype=bool)
    is_prunable = frame[c.PRUNABLE].to_numpy(dtype=bool)
    is_loaded = is_active
    index_tokens: int = 0
    if c.LOADED_AT_START in frame and not is_recalled:
        is_loaded = is_active & frame[c.LOADED_AT_START].to_numpy(dtype=bool)
        index_tokens = frame.attrs.get(c.INDEX_TOKENS, 0)
    is_cut = c.INDEX_TOKENS in frame.attrs and bool((is_active & ~is_loaded).any())
    if is_cut:
        return _sizes_under_cut_index(
            newest_first,
            index_tokens,
            tokens=tokens,
            is_active=is_active,
            is_prunable=is_prunable,
            is_loaded=is_loaded,
        )
    # no entry moves up, so each memory adds its own size
    is_fixed = is_loaded & ~is_prunable
    is_loaded_newest = is_loaded[newest_first]
    prunable_memories = np.append(0, is_loaded_newest.cumsum())
    prunable_tokens = np.append(0, (tokens[newest_first] * is_loaded_newest).cumsum())
    return LoadedSizes(
        memories=int(is_fixed.sum()) + prunable_memories,
        tokens=int(tokens[is_fixed].sum()) + index_tokens + prunable_tokens,
        prunable_memories=prunable_memories,
        prunable_tokens=prunable_tokens,
    )


def _sizes_under_cut_index(
    newest_first: Ints,
    index_tokens: int,
    *,
    tokens: Ints,
    is_active: Flags,
    is_prunable: Flags,
    is_loaded: Flags,
) -> LoadedSizes:
    """Return the sizes of `_loaded_sizes` for an index of which a start loads only the first part.

    A deletion moves later entries into that part, so the sizes are computed anew for each number.
    """
    count = len(newest_first) + 1
    sizes = LoadedSizes(
        memories=np.empty(count, np.int64),
        tokens=np.empty(count, np.int64),
        prunable_memories=np.empty(count, np.int64),
        prunable_tokens=np.empty(count, np.int64),
    )
    is_kept = ~is_prunable
    for kept_count in range(count):
        if kept_count:
            is_kept[newest_first[kept_count - 1]] = True
        loaded = entries_loaded(is_kept, is_loaded=is_loaded, is_active=is_active)
        prunable = loaded & is_prunable
        sizes.memories[kept_count] = loaded.sum()
        sizes.tokens[kept_count] = tokens[loaded].sum() + index_tokens
        sizes.prunable_memories[kept_count] = prunable.sum()
        sizes.prunable_tokens[kept_count] = tokens[prunable].sum()
    return sizes


def _largest_sums(weight: Ints, end: Ints, floor: Ints, target: Ints, at: Ints) -> Ints:
    """Return the result of :func:`memlab.sizing.kernels.largest_sums`, for a short history."""
    largest = np.zeros(len(target), np.int64)
    start, member = grouped(target, len(weight))
    # When a row is reached, `sums` holds for each moment the weight of the active rows that are at
    # least as new, and the floor.
    sums = floor.copy()
    for row in range(len(weight) - 1, -1, -1):
        sums[row : end[row]] += weight[row]
        references = member[start[row] : start[row + 1]]  # those to this row
        if len(references):
            largest_so_far = np.maximum.accumulate(sums[row : end[row]])
            last_moment = np.minimum(at[references], end[row]) - 1
            largest[references] = largest_so_far[last_moment - row]
    return largest


def grouped(key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Group the places of `key` by its value, which is below `groups`.

    Return two arrays: the place in the second one where each group starts, shape (groups + 1,), and
    the members of all groups, one group after the other.

    >>> start, member = grouped(np.array([1, 0, 1]), 2)
    >>> start.tolist(), member.tolist()
    ([0, 1, 3], [1, 0, 2])
    """
    start = np.append(0, np.cumsum(np.bincount(key, minlength=groups)))
    return start, np.argsort(key, kind="stable")


def mean_p95_max(values: Ints) -> Statistics:
    """Return the mean, the nearest-rank 95th percentile and the maximum of one value or more."""
    nearest_rank = -(-95 * len(values) // 100)  # 95 % of the values, rounded up; from 1
    p95 = np.partition(values, nearest_rank - 1)[nearest_rank - 1]
    return Statistics(mean=values.mean(), p95=p95, maximum=values.max())
