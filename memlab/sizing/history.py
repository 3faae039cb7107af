"""A store's life as arrays: what was active when, and how old a needed memory was in ranks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.columns import (
    AT_POSITION,
    CREATED_AT,
    KIND,
    LOAD_BEARING,
    MEMORY_ID,
    POSITION,
    PRUNABLE,
    SOURCE_TASK_REF,
    SUPERSEDED_BY,
    TARGET_POSITION,
    TOKEN_RULE,
    TOKENS,
)
from memlab.sizing.floor import Floor, floor_of
from memlab.sizing.table import SHORT, RankTable

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NOWHERE: Final = -1
_MEASURES: Final = ("mean", "p95", "max")


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
    def counted_before(self) -> Ints:
        """Counted rows before each row, and before the next one to come."""
        return np.concatenate([[0], np.cumsum(self.counted, dtype=np.int64)])

    @cached_property
    def floor(self) -> tuple[Ints, Ints]:
        """Load-bearing items and tokens active after every moment."""
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

    def kept_over_time(self, caps: Iterable[int]) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each cap how many prunable rows it leaves after every moment, and tokens."""
        if len(self) <= SHORT:
            yield from (self._table.kept_over_time(cap, self.tokens) for cap in caps)
            return
        from memlab.sizing.kernels import group_by, kept_over_time

        ends = group_by(self.end, len(self) + 1)
        for cap in caps:
            yield kept_over_time(cap, self.counted, self.tokens, self.end, ends)

    @cached_property
    def _table(self) -> RankTable:
        return RankTable.of(self.counted, self.end)

    def boot_over_history(self, caps: Ints) -> pd.DataFrame:
        """Return mean, p95 and max of boot items and tokens under continuous compaction.

        Over the moments after each row written; the p95 is the smallest value that 95 % of them do
        not pass.
        """
        names = [f"boot_{of}_{what}" for of in ("items", "tokens") for what in _MEASURES]
        if not len(self):
            return pd.DataFrame(0, index=caps, columns=names)
        rows = np.empty((len(caps), len(names)))
        for row, kept in zip(rows, self.kept_over_time(caps), strict=True):
            for place, (part, floor) in enumerate(zip(kept, self.floor, strict=True)):
                row[3 * place : 3 * place + 3] = mean_p95_max(part + floor)
        table = pd.DataFrame(rows, index=caps, columns=names)
        return table.astype({name: "int64" for name in names if not name.endswith("mean")})


@dataclass(frozen=True)
class Needs:
    """References as arrays, in the order in which they arose.

    Attributes
    ----------
    rank : array of int64
        Largest age rank of the target so far; 0 for a load-bearing one.
    at : array of int64
        The row about to be written when the need arose.
    sitting : array of int64
        Needs with the same number arose in one task, or in one pause between two writes.
    logged : array of bool
        Found in an access log rather than in the store.
    """

    rank: Ints
    at: Ints
    sitting: Ints
    logged: Flags

    def __len__(self) -> int:
        return len(self.rank)

    def between(self, first: int, last: int) -> "Needs":
        """Return the needs that arose from moment `first` up to and without `last`."""
        low, high = np.searchsorted(self.at, [first, last])
        part = slice(low, high)
        return Needs(self.rank[part], self.at[part], self.sitting[part], self.logged[part])


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
        by = pd.Index(frame[MEMORY_ID]).get_indexer(frame[SUPERSEDED_BY].iloc[rows])
    known = by > rows
    end[rows[known]] = by[known]
    counted = ~frame[LOAD_BEARING].to_numpy(dtype=bool)
    tokens = frame[TOKENS].to_numpy(dtype=np.int64)
    return History(counted, end, tokens, int((~known).sum()))


def present_of(frame: pd.DataFrame) -> Present:
    """Return what the frame's store holds now."""
    newest_first = frame.loc[frame[PRUNABLE], [TOKENS, CREATED_AT]].iloc[::-1]
    age = frame[CREATED_AT].max() - newest_first[CREATED_AT]
    days = age.to_numpy() / np.timedelta64(1, "D")
    return Present(
        np.concatenate([[0], newest_first[TOKENS].to_numpy().cumsum()]).astype(np.int64),
        np.concatenate([[0.0], np.fmax.accumulate(days)]),
        floor_of(frame),
        str(frame.attrs.get(TOKEN_RULE, "not said")),
    )


def needs_of(frame: pd.DataFrame, history: History, references: pd.DataFrame) -> tuple[Needs, int]:
    """Return the references as arrays, and how many do not fit the frame.

    A reference fits when its target is a row of the frame that was written before it arose.

    Raises
    ------
    ValueError
        When `references` lacks a column.
    """
    for name in (TARGET_POSITION, AT_POSITION, KIND):
        if name not in references:
            raise ValueError(
                f"references has no column {name!r}; make them with find_references(frame, log)"
            )
    positions = frame[POSITION].to_numpy()
    target, exact = _row_numbers(positions, references[TARGET_POSITION].to_numpy(dtype=np.int64))
    at, _ = _row_numbers(positions, references[AT_POSITION].to_numpy(dtype=np.int64))
    fits = exact & (target < at)
    if not fits.all():
        target, at = target[fits], at[fits]
    logged = (references[KIND] == "log").to_numpy(dtype=bool)[fits]
    order = slice(None) if (at[1:] >= at[:-1]).all() else np.argsort(at, kind="stable")
    rank = history.largest_ranks(target, at)[order]
    at, logged = at[order], logged[order]
    return Needs(rank, at, _sittings(frame, at, logged), logged), int((~fits).sum())


def mean_p95_max(values: Ints) -> tuple[float, int, int]:
    """Return the mean, the nearest-rank 95th percentile and the maximum of one value or more."""
    nearest = -(-95 * len(values) // 100) - 1
    return values.mean(), np.partition(values, nearest)[nearest], values.max()


def _row_numbers(positions: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Return how many rows stand before each position, and whether it is a row's."""
    n = len(positions)
    if n and positions[-1] - positions[0] == n - 1:
        row = wanted - positions[0]
        return np.clip(row, 0, n), (row >= 0) & (row < n)
    row = np.searchsorted(positions, wanted)
    return row, (row < n) & (np.append(positions, _NOWHERE)[row] == wanted)


def _sittings(frame: pd.DataFrame, at: Ints, logged: Flags) -> Ints:
    """Return a number for the task that each need arose in; for one without, its moment's."""
    own = len(frame) + np.arange(len(frame) + 1)
    by_row = own.copy()
    rows = np.flatnonzero(frame[SOURCE_TASK_REF].notna().to_numpy())
    by_row[rows] = pd.factorize(frame[SOURCE_TASK_REF].iloc[rows])[0]
    sitting = by_row[at]
    sitting[logged] = own[at[logged]]
    return sitting
