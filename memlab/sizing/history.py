"""A store's life as arrays: what was active when, and how far back references reached in ranks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as c
from memlab.evidence.past import rows_of_gaps
from memlab.evidence.prior import LEVELS, ReachPrior, log_rank_fraction, rank_at
from memlab.evidence.references import references_on_rows, successors
from memlab.frame.fields import LABELS, Flags, Floats, Ints
from memlab.text import Table

_MEASURES: Final = ("mean", "p95", "max")
_PRESENT: Final = (c.MEMORY_ID, c.KIND, c.TITLE, c.TOKENS, c.CREATED_AT, *LABELS)
"""Columns that say what a store holds now."""


SHORT: Final = 2_048
"""Rows up to which nothing compiled is used: loading numba takes a second."""

LARGEST_SHOWN: Final = 5


@dataclass(frozen=True)
class LargeRow:
    """A load-bearing row that costs much; its text comes from an agent and is not to be trusted."""

    memory_id: str
    kind: str
    title: str
    tokens: int


@dataclass(frozen=True)
class Floor:
    """The load-bearing active rows.

    `by_kind` has kind, rows and tokens, the costliest first; `largest` the costliest rows.
    """

    memories: int
    tokens: int
    by_kind: tuple[tuple[str, int, int], ...]
    largest: tuple[LargeRow, ...]

    def tables(self, title: str) -> list[Table]:
        """Return what they cost by kind, under a title, and the costliest of them."""
        largest = [(row.memory_id, row.kind, row.tokens, row.title) for row in self.largest]
        return [
            Table(title, ("kind", "memories", "tokens"), self.by_kind),
            Table("The costliest", ("memory_id", "kind", "tokens", "title"), largest),
        ]


def floor_of(frame: pd.DataFrame) -> Floor:
    """Return what the frame's load-bearing active rows cost, by kind and the largest of them."""
    labels = (frame[name].to_numpy(dtype=bool) for name in (c.ACTIVE, c.LOAD_BEARING))
    rows = np.flatnonzero(np.logical_and(*labels))
    tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)[rows]
    codes, kinds = pd.factorize(frame[c.KIND].array.take(rows))
    named = codes >= 0
    sizes = np.bincount(codes[named], minlength=len(kinds))
    costs = np.bincount(codes[named], tokens[named], minlength=len(kinds)).astype(np.int64)
    by_kind = zip(map(str, kinds), sizes.tolist(), costs.tolist(), strict=True)
    largest = np.argsort(-tokens, kind="stable")[:LARGEST_SHOWN]
    names = (frame[name].array.take(rows[largest]) for name in (c.MEMORY_ID, c.KIND, c.TITLE))
    shown = zip(*names, strict=True)
    return Floor(
        len(rows),
        int(tokens.sum()),
        tuple(sorted(by_kind, key=lambda kind: (-kind[2], kind[0]))),
        tuple(
            LargeRow(str(name), str(kind), str(title), cost)
            for (name, kind, title), cost in zip(shown, tokens[largest].tolist(), strict=True)
        ),
    )


@dataclass(frozen=True)
class History:
    """Rows in the order written; a moment is one row written and what it replaced gone."""

    ever_prunable: Flags
    end: Ints
    tokens: Ints

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "History":
        """Return the frame's rows as a history."""
        end = np.full(len(frame), len(frame), np.int64)
        rows, by = successors(frame)
        known = by > rows
        end[rows[known]] = by[known]
        ever_prunable = ~frame[c.LOAD_BEARING].to_numpy(dtype=bool)
        tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)
        return cls(ever_prunable, end, tokens)

    def __len__(self) -> int:
        return len(self.ever_prunable)

    @cached_property
    def superseded(self) -> bool:
        """Whether any row's rank may stop growing before the last moment."""
        return bool((self.end < len(self)).any())

    @cached_property
    def prunable(self) -> int:
        """How many prunable rows there would be now, had none been deleted."""
        return int((self.ever_prunable & (self.end == len(self))).sum())

    @cached_property
    def prunable_before(self) -> Ints:
        """Ever prunable rows before each row, and before the next one to come."""
        return np.concatenate([[0], np.cumsum(self.ever_prunable, dtype=np.int64)])

    @cached_property
    def active_before(self) -> Ints:
        """Those of them that are not superseded then."""
        gone = np.bincount(self.end[self.ever_prunable], minlength=len(self) + 1)
        before: Ints = self.prunable_before - np.append(0, np.cumsum(gone)[:-1])
        return before

    @cached_property
    def floor(self) -> tuple[Ints, Ints]:
        """Load-bearing memories and tokens active after every moment."""
        change = np.zeros((2, len(self) + 1), np.int64)
        rows = np.flatnonzero(~self.ever_prunable)
        for line, amount in zip(change, (np.ones_like(rows), self.tokens[rows]), strict=True):
            line[rows] = amount
            np.subtract.at(line, self.end[rows], amount)
        items, tokens = np.cumsum(change[:, :-1], axis=1)
        return items, tokens

    def until(self, moment: int) -> "History":
        """Return the history as it was before `moment`."""
        end = np.minimum(self.end[:moment], moment)
        return History(self.ever_prunable[:moment], end, self.tokens[:moment])

    def largest_ranks(
        self, target: Ints, at: Ints, *, in_tokens: bool = False, with_floor: bool = False
    ) -> Ints:
        """Return the largest age rank of each target in the moments before `at`; 0 if load-bearing.

        It counts what is at least as new, or its tokens, and with the floor what is loaded with it.
        A cap or budget of `k`, held continuously, still has the target iff this is at most `k`.
        """
        weight = np.where(self.ever_prunable, self.tokens if in_tokens else 1, 0)
        floor = self.floor[1] if with_floor else np.zeros(len(self), np.int64)
        if not self.superseded:  # then sums only grow: the last one is the largest
            before = np.append(0, np.cumsum(weight))
            sums = before[at] - before[target] + floor[np.maximum(at - 1, 0)]
        elif len(self) <= SHORT:
            sums = _largest_sums(weight, self.end, floor, target, at)
        else:
            from memlab.sizing.kernels import largest_sums

            sums = largest_sums(weight, self.end, floor, *grouped(target, len(self)), at)
        return np.where(self.ever_prunable[target], sums, 0)

    def kept_over_time(self, caps: Iterable[int]) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each cap how many prunable rows it leaves after every moment, and tokens."""
        if not self.superseded:
            there = self.prunable_before[1:]
            upto = np.cumsum(self.tokens[self.ever_prunable])
            upto = np.append(0, upto)
            for cap in caps:
                kept = np.minimum(there, cap)
                yield kept, upto[there] - upto[there - kept]
            return
        if len(self) <= SHORT:
            yield from self._kept_by_ranks(np.array([*caps]))
            return
        from memlab.sizing.kernels import kept_over_time

        ends = grouped(self.end, len(self) + 1)
        for cap in caps:
            yield kept_over_time(cap, self.ever_prunable, self.tokens, self.end, *ends)

    def _kept_by_ranks(self, caps: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield what `kept_over_time` does for a short history: for all caps at each moment."""
        n = len(self)
        largest = np.zeros(n, np.int64)
        tokens = np.zeros(n + 1, np.int64)
        upto = np.arange(1, n + 1)
        kept = np.empty((len(caps), 2, n), np.int64)
        for moment in range(n):
            there = self.ever_prunable[: moment + 1] & (self.end[: moment + 1] > moment)
            newest_first = there.nonzero()[0][::-1]
            ranks = np.maximum(largest[newest_first], upto[: len(newest_first)])
            largest[newest_first] = ranks
            count = ranks.searchsorted(caps, side="right")
            self.tokens[newest_first].cumsum(out=tokens[1 : len(ranks) + 1])
            kept[:, 0, moment] = count
            kept[:, 1, moment] = tokens[count]
        yield from map(tuple, kept)

    def boot_at(self, caps: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return mean, p95 and max of boot items and tokens, by name, if compacted continuously."""
        measured = np.zeros((6, len(caps)))
        for place, kept in enumerate(self.kept_over_time(caps) if len(self) else ()):
            measured[:, place] = [
                measure
                for part, floor in zip(kept, self.floor, strict=True)
                for measure in mean_p95_max(part + floor)
            ]
        names = [f"boot_{of}_{what}" for of in ("memories", "tokens") for what in _MEASURES]
        return {
            name: values if name.endswith("mean") else values.astype(np.int64)
            for name, values in zip(names, measured, strict=True)
        }


@dataclass(frozen=True)
class Ranked:
    """References as arrays, in the order in which they arose; to what is `lost` among them.

    `cluster` numbers the tasks that they arose in; of a read, and where no task is, the moments.
    """

    rank: Ints
    written: Ints
    active: Ints
    at: Ints
    cluster: Ints
    target: Ints
    lost: Flags

    @classmethod
    def of(cls, frame: pd.DataFrame, history: History, references: pd.DataFrame) -> "Ranked":
        """Return the references that fit the frame as arrays."""
        target, at, place = references_on_rows(frame, references)
        logged = (references[c.KIND] == "log").to_numpy(dtype=bool)[place]
        by_moment = len(frame) + np.arange(len(frame) + 1)
        cluster = by_moment.copy()
        tasks = np.flatnonzero(frame[c.SOURCE_TASK_REF].notna().to_numpy())
        cluster[tasks] = pd.factorize(frame[c.SOURCE_TASK_REF].iloc[tasks])[0]
        return cls(
            history.largest_ranks(target, at),
            history.prunable_before[at],
            history.active_before[at],
            at,
            np.where(logged, by_moment[at], cluster[at]),
            target,
            rows_of_gaps(frame)[target],
        )

    def __len__(self) -> int:
        return len(self.rank)

    def between(self, first: int, last: int) -> "Ranked":
        """Return the references that arose from moment `first` up to and without `last`."""
        part = slice(*np.searchsorted(self.at, [first, last]))
        return Ranked(**{each.name: getattr(self, each.name)[part] for each in fields(self)})

    def beyond_gaps(self, law: ReachPrior) -> "Ranked":
        """Return the references, those to gaps as far back as the law expects in the middle."""
        lost = self.lost
        if not lost.any():
            return self
        least = log_rank_fraction(self.rank[lost], self.written[lost])
        share = np.interp(least, law.reach_at(LEVELS), LEVELS)
        expected = rank_at(law.reach_at((1 + share) / 2), self.written[lost])
        rank = self.rank.copy()
        rank[lost] = np.clip(np.ceil(expected), rank[lost], self.written[lost])
        return replace(self, rank=rank)

    @cached_property
    def losable(self) -> Flags:
        """Which references a cap could fail: those to prunable memories."""
        return self.rank > 0

    @cached_property
    def reach(self) -> tuple[Floats, Floats]:
        """How far each of those reached, in increasing order, and the memories written then."""
        reach = log_rank_fraction(self.rank[self.losable], self.written[self.losable])
        order = np.argsort(reach, kind="stable")
        return reach[order], self.written[self.losable][order].astype(np.float64)

    @cached_property
    def cluster_count(self) -> int:
        """Number of clusters among those references: the effective sample size.

        References that arise in one task are not independent, so a task counts once, as in
        cluster sampling (Kish 1965).
        """
        return len(np.unique(self.cluster[self.losable]))

    def share_at(self, caps: Ints) -> Floats:
        """Return the plain share of references that each cap would have served; NaN for none."""
        if not len(self):
            return np.full(len(caps), np.nan)
        upto = np.cumsum(np.bincount(self.rank))
        served: Floats = upto[np.minimum(caps, len(upto) - 1)] / upto[-1]
        return served

    @cached_property
    def far_share(self) -> float:
        """The share of those that reached beyond half of what was there to reach."""
        far = (2 * self.rank > self.active)[self.losable]
        return float(far.mean()) if len(far) else 0.0

    @cached_property
    def always(self) -> float:
        """The share of references that every cap serves."""
        return float(1 - self.losable.mean()) if len(self) else 0.0


@dataclass(frozen=True)
class Present:
    """What the store holds now."""

    tokens_newest: Ints
    days_newest: Floats
    floor: Floor
    token_rule: str
    recalled: bool = False

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Present":
        """Return what the frame's store holds now."""
        if c.DELETED_AT in frame and (gone := frame[c.DELETED_AT].notna().to_numpy()).any():
            frame = frame.loc[~gone, list(_PRESENT)]
        newest_first = np.flatnonzero(frame[c.PRUNABLE].to_numpy(dtype=bool))[::-1]
        created = frame[c.CREATED_AT].to_numpy("datetime64[us]")
        newest = np.fmax.reduce(created, initial=np.datetime64("NaT"))
        age = newest - created[newest_first]
        tokens = frame[c.TOKENS].to_numpy(dtype=np.int64)[newest_first]
        return cls(
            np.append(0, tokens.cumsum()),
            np.append(0.0, np.fmax.accumulate(age / np.timedelta64(1, "D"))),
            floor_of(frame),
            str(frame.attrs.get(c.TOKEN_RULE, "not said")),
            bool(frame.attrs.get(c.RECALLED)),
        )

    @property
    def prunable(self) -> int:
        """How many active rows compaction chooses among."""
        return len(self.tokens_newest) - 1

    @property
    def tokens(self) -> int:
        """What an agent loads now, or recalls from."""
        return self.floor.tokens + int(self.tokens_newest[-1])


def _largest_sums(weight: Ints, end: Ints, floor: Ints, target: Ints, at: Ints) -> Ints:
    largest = np.zeros(len(target), np.int64)
    start, member = grouped(target, len(weight))
    sums = floor.copy()
    for row in range(len(weight) - 1, -1, -1):
        sums[row : end[row]] += weight[row]
        pairs = member[start[row] : start[row + 1]]
        if len(pairs):
            upto = np.maximum.accumulate(sums[row : end[row]])
            largest[pairs] = upto[np.minimum(at[pairs], end[row]) - row - 1]
    return largest


def grouped(key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Return where each group begins, and the members of all groups in order."""
    start = np.append(0, np.cumsum(np.bincount(key, minlength=groups)))
    return start, np.argsort(key, kind="stable")


def mean_p95_max(values: Ints) -> tuple[float, int, int]:
    """Return the mean, the nearest-rank 95th percentile and the maximum of one value or more."""
    nearest = -(-95 * len(values) // 100) - 1
    return values.mean(), np.partition(values, nearest)[nearest], values.max()
