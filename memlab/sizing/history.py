"""A store's life as arrays: what was active when, and how far back references reached in ranks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.columns import (
    ACTIVE,
    CREATED_AT,
    DELETED_AT,
    KIND,
    LOAD_BEARING,
    MEMORY_ID,
    PRUNABLE,
    SOURCE_TASK_REF,
    SUPERSEDED_BY,
    TITLE,
    TOKEN_RULE,
    TOKENS,
)
from memlab.evidence.ahead import LEVELS
from memlab.evidence.law import Law, rank_at, reach_of
from memlab.evidence.places import OnRows, references_on_rows
from memlab.sizing.floor import Floor, floor_of
from memlab.sizing.table import SHORT, RankTable

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_MEASURES: Final = ("mean", "p95", "max")
_PRESENT: Final = (MEMORY_ID, KIND, TITLE, TOKENS, CREATED_AT, ACTIVE, LOAD_BEARING, PRUNABLE)
"""Columns that say what a store holds now."""


@dataclass(frozen=True)
class History:
    """Rows in the order they were written; a moment is one row written and what it replaced gone.

    Attributes
    ----------
    counted : array of bool, one per row
        Not load-bearing: compaction chooses among these while they are active.
    end : array of int64, one per row
        The moment from which the row is superseded: its replacement's row number. The number of
        rows for a row that never is, or whose replacement is not in the store or stands before it.
        Such a row counts as active to the last moment, which can only make ranks larger.
    tokens : array of int64, one per row
    unknown_ends : int
        Superseded rows whose moment is not known.
    """

    counted: Flags
    end: Ints
    tokens: Ints
    unknown_ends: int = 0

    def __len__(self) -> int:
        return len(self.counted)

    @cached_property
    def superseded(self) -> bool:
        """Whether any row's rank may stop growing before the last moment."""
        return bool((self.end < len(self)).any())

    @cached_property
    def prunable(self) -> int:
        """How many counted rows there would be now, had none been deleted."""
        return int((self.counted & (self.end == len(self))).sum())

    @cached_property
    def counted_before(self) -> Ints:
        """Counted rows before each row, and before the next one to come."""
        return np.concatenate([[0], np.cumsum(self.counted, dtype=np.int64)])

    @cached_property
    def active_before(self) -> Ints:
        """Those of them that are not superseded then."""
        gone = np.bincount(self.end[self.counted], minlength=len(self) + 1)
        before: Ints = self.counted_before - np.append(0, np.cumsum(gone)[:-1])
        return before

    @cached_property
    def floor(self) -> tuple[Ints, Ints]:
        """Load-bearing memories and tokens active after every moment."""
        n = len(self)
        rows = np.flatnonzero(~self.counted)
        change = np.zeros((2, n + 1), np.int64)
        for line, amount in zip(
            change, (np.ones(len(rows), np.int64), self.tokens[rows]), strict=True
        ):
            np.add.at(line, rows, amount)
            np.add.at(line, self.end[rows], -amount)
        items, tokens = np.cumsum(change[:, :n], axis=1)
        return items, tokens

    def until(self, moment: int) -> "History":
        """Return the history as it was before `moment`."""
        return replace(
            self,
            counted=self.counted[:moment],
            end=np.minimum(self.end[:moment], moment),
            tokens=self.tokens[:moment],
        )

    def largest_ranks(self, target: Ints, at: Ints) -> Ints:
        """Return the largest age rank of each target in the moments before `at`.

        A cap of `k`, held continuously, still has the target then iff this is at most `k`. It is 0
        for a load-bearing target. A superseded row is no longer pruned: its rank stays as it was.

        Parameters
        ----------
        target, at : arrays of int64
            Row numbers, with ``target < at <= len(history)``.
        """
        if not self.superseded:
            rank = self.counted_before[at] - self.counted_before[target]
        elif len(self) <= SHORT:
            rank = self._table.largest_ranks(target, np.minimum(at, self.end[target]))
        else:
            from memlab.sizing.kernels import largest_ranks_under_supersession

            return largest_ranks_under_supersession(self.counted, self.end, target, at)
        return np.where(self.counted[target], rank, 0)

    def largest_sums(self, target: Ints, at: Ints, *, with_floor: bool) -> Ints:
        """Return what each target's age rank is in tokens: the largest one before `at`.

        A budget of `k` tokens, held continuously, still has the target then iff this is at most
        `k`: it counts what is at least as new as the target, and with the floor what is loaded
        beside it. It is 0 for a load-bearing target.

        Parameters
        ----------
        target, at : arrays of int64
            As for :meth:`largest_ranks`.
        with_floor : bool
            Whether to add the load-bearing tokens of each moment.
        """
        weight = np.where(self.counted, self.tokens, 0)
        beside = self.floor[1] if with_floor else np.zeros(len(self), np.int64)
        if len(self) > SHORT:
            from memlab.sizing.kernels import largest_sums

            found = largest_sums(weight, self.end, beside, target, at)
        else:
            found = np.zeros(len(target), np.int64)
            sums, order, place = beside.copy(), np.argsort(-target, kind="stable"), 0
            for row in range(len(self) - 1, -1, -1):
                sums[row : self.end[row]] += weight[row]
                while place < len(order) and target[order[place]] == row:
                    pair = order[place]
                    found[pair] = sums[row : min(at[pair], self.end[row])].max()
                    place += 1
        return np.where(self.counted[target], found, 0)

    def kept_over_time(self, caps: Iterable[int]) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each cap how many prunable rows it leaves after every moment, and tokens."""
        if not self.superseded:
            there, upto = self.counted_before[1:], np.cumsum(self.tokens[self.counted])
            upto = np.append(0, upto)
            for cap in caps:
                kept = np.minimum(there, cap)
                yield kept, upto[there] - upto[there - kept]
            return
        if len(self) <= SHORT:
            yield from self._table.kept_over_time([*caps], self.tokens)
            return
        from memlab.sizing.kernels import group_by, kept_over_time

        ends = group_by(self.end, len(self) + 1)
        for cap in caps:
            yield kept_over_time(cap, self.counted, self.tokens, self.end, ends)

    @cached_property
    def _table(self) -> RankTable:
        return RankTable.of(self.counted, self.end)

    def boot_at(self, caps: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return mean, p95 and max of boot items and tokens under continuous compaction, by name.

        Over the moments after each row written; the p95 is the smallest value that 95 % of them do
        not pass.
        """
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
    """References as arrays, in the order in which they arose.

    Attributes
    ----------
    rank : array of int64
        Largest age rank of the target so far; 0 for a load-bearing one.
    written : array of int64
        Prunable memories written by then, whether they were still there or not.
    active : array of int64
        Those of them that were active then, had none been deleted.
    at : array of int64
        The row about to be written when the reference arose.
    sitting : array of int64
        References with the same number arose in one task, or in one pause between two writes.
    """

    rank: Ints
    written: Ints
    active: Ints
    at: Ints
    sitting: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def between(self, first: int, last: int) -> "Ranked":
        """Return the references that arose from moment `first` up to and without `last`."""
        low, high = np.searchsorted(self.at, [first, last])
        part = slice(low, high)
        columns = (self.rank, self.written, self.active, self.at, self.sitting)
        return Ranked(*(column[part] for column in columns))

    @cached_property
    def losable(self) -> Flags:
        """Which references a cap could fail: those to prunable memories."""
        return self.rank > 0

    @cached_property
    def reach(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """How far each of those reached, in increasing order, and the memories written then.

        See `memlab.evidence.law`.
        """
        reach = reach_of(self.rank[self.losable], self.written[self.losable])
        order = np.argsort(reach, kind="stable")
        return reach[order], self.written[self.losable][order].astype(np.float64)

    @cached_property
    def sittings(self) -> int:
        """In how many sittings those arose: references of one task come together."""
        return len(np.unique(self.sitting[self.losable]))

    def share_at(self, caps: Ints) -> npt.NDArray[np.float64]:
        """Return the plain share of references that each cap would have served; NaN for none."""
        if not len(self):
            return np.full(len(caps), np.nan)
        upto = np.cumsum(np.bincount(self.rank))
        served: npt.NDArray[np.float64] = upto[np.minimum(caps, len(upto) - 1)] / upto[-1]
        return served

    @cached_property
    def far_share(self) -> float:
        """The share of those that reached beyond half of what was there to reach."""
        return (
            float((2 * self.rank > self.active)[self.losable].mean()) if self.losable.any() else 0.0
        )

    @cached_property
    def always(self) -> float:
        """The share of references that every cap serves."""
        return float(1 - self.losable.mean()) if len(self) else 0.0


@dataclass(frozen=True)
class Present:
    """What the store holds now.

    Attributes
    ----------
    tokens_newest : array of int64
        Tokens of the newest 0, 1, ... prunable rows together.
    days_newest : array of float64
        Days from the newest row back to the oldest of the newest 0, 1, ... prunable rows.
    floor : Floor
        The load-bearing active rows.
    token_rule : str
        How tokens were counted.
    """

    tokens_newest: Ints
    days_newest: npt.NDArray[np.float64]
    floor: Floor
    token_rule: str

    @property
    def prunable(self) -> int:
        """How many active rows compaction chooses among."""
        return len(self.tokens_newest) - 1


def history_of(frame: pd.DataFrame) -> History:
    """Return the frame's rows as a history."""
    n = len(frame)
    end = np.full(n, n, np.int64)
    rows = np.flatnonzero(frame[SUPERSEDED_BY].notna().to_numpy())
    by = np.empty(0, np.int64)
    if len(rows):
        ids = frame[MEMORY_ID]
        newest = np.flatnonzero(~ids.duplicated(keep="last").to_numpy())
        place = pd.Index(ids.iloc[newest]).get_indexer(frame[SUPERSEDED_BY].iloc[rows])
        by = np.where(place < 0, place, newest[place])
    known = by > rows
    end[rows[known]] = by[known]
    counted = ~frame[LOAD_BEARING].to_numpy(dtype=bool)
    tokens = frame[TOKENS].to_numpy(dtype=np.int64)
    return History(counted, end, tokens, int((~known).sum()))


def present_of(frame: pd.DataFrame) -> Present:
    """Return what the frame's store holds now."""
    if DELETED_AT in frame and (gone := frame[DELETED_AT].notna().to_numpy()).any():
        frame = frame.loc[~gone, list(_PRESENT)]
    newest_first = np.flatnonzero(frame[PRUNABLE].to_numpy(dtype=bool))[::-1]
    created = frame[CREATED_AT].to_numpy("datetime64[us]")
    newest = np.fmax.reduce(created, initial=np.datetime64("NaT"))
    age = newest - created[newest_first]
    tokens = frame[TOKENS].to_numpy(dtype=np.int64)[newest_first]
    return Present(
        np.append(0, tokens.cumsum()),
        np.append(0.0, np.fmax.accumulate(age / np.timedelta64(1, "D"))),
        floor_of(frame),
        str(frame.attrs.get(TOKEN_RULE, "not said")),
    )


def ranked(
    frame: pd.DataFrame, history: History, references: pd.DataFrame
) -> tuple[Ranked, OnRows]:
    """Return the references that fit the frame as arrays, and the rows that they name.

    Raises
    ------
    ValueError
        When `references` lacks a column.
    """
    on_rows = references_on_rows(frame, references)
    if KIND not in references:
        raise ValueError(
            f"references has no column {KIND!r}; make them with find_references(frame, log)"
        )
    at = on_rows.at
    logged = (references[KIND] == "log").to_numpy(dtype=bool)[on_rows.place]
    rank = history.largest_ranks(on_rows.target, at)
    found = Ranked(
        rank,
        history.counted_before[at],
        history.active_before[at],
        at,
        _sittings(frame, at, logged),
    )
    return found, on_rows


def beyond_gaps(references: Ranked, lost: Flags, law: Law) -> Ranked:
    """Return the references with those to gaps as far back as the law expects of them.

    Of such a one only the least age rank is known. The law's references that reach at least as far
    reach in the middle as far as the share of them half way to all.
    """
    if not lost.any():
        return references
    least = reach_of(references.rank[lost], references.written[lost])
    share = np.interp(least, law.reach_at(LEVELS), LEVELS)
    expected = rank_at(law.reach_at((1 + share) / 2), references.written[lost])
    rank = references.rank.copy()
    rank[lost] = np.clip(np.ceil(expected), rank[lost], references.written[lost])
    return replace(references, rank=rank)


def mean_p95_max(values: Ints) -> tuple[float, int, int]:
    """Return the mean, the nearest-rank 95th percentile and the maximum of one value or more."""
    nearest = -(-95 * len(values) // 100) - 1
    return values.mean(), np.partition(values, nearest)[nearest], values.max()


def _sittings(frame: pd.DataFrame, at: Ints, logged: Flags) -> Ints:
    """Return a number for the task that each reference arose in; for one without, its moment's."""
    own = len(frame) + np.arange(len(frame) + 1)
    by_row = own.copy()
    rows = np.flatnonzero(frame[SOURCE_TASK_REF].notna().to_numpy())
    by_row[rows] = pd.factorize(frame[SOURCE_TASK_REF].iloc[rows])[0]
    sitting = by_row[at]
    sitting[logged] = own[at[logged]]
    return sitting
