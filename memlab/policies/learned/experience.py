"""What a store has lived through, as arrays: what each memory was like, and its references."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.places import references_on_rows
from memlab.evidence.references import find_references

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIRST_LOOK: Final = 30
"""References seen before anything is learned from them."""

GROWTH: Final = 1.15
"""By how much references grow from one look to the next."""

TAG_PRIOR: Final = 10.0
"""References' worth of belief that a tag is referred to as much as any other."""

_LAST_NUMBER: Final = r"(?:^|[^0-9A-Za-z])(\d{1,15})$"


@dataclass(frozen=True)
class Experience:
    """Memories in the order they were written, load-bearing ones left out, and references to them.

    What is said of a memory was known when it was written, so a look back is a look back: what came
    later changes nothing.

    Attributes
    ----------
    size, gap, lag : arrays of float64, one per memory
        Length of its text, time since the memory before it, and how far its task's number lies
        behind the highest so far, as logarithms in standard deviations from the mean until then.
    names : array of float64
        Logarithm of one plus the earlier memories it names.
    breadth : array of float64
        Tags it carries, up to four, less two.
    number, highest : arrays of float64
        The number in its task reference, and the highest until then; the place among memories
        where there are no such numbers.
    tags : array of int64, shape (memories, most tags on one)
        Tag numbers, -1 where there are fewer.
    at, target : arrays of int64, one per reference
        Memories written before the reference arose, and which one it was to, in the order they
        arose.
    """

    size: Floats
    gap: Floats
    lag: Floats
    names: Floats
    breadth: Floats
    number: Floats
    highest: Floats
    tags: Ints
    at: Ints
    target: Ints

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def looks(self) -> Ints:
        """Memories written by each moment at which everything so far is looked at again.

        The moments follow from the number of references alone, so they stay as history grows.
        """
        counts, count = [], FIRST_LOOK
        while count <= len(self.at):
            counts.append(count)
            count = max(count + 10, int(count * GROWTH))
        moments = self.at[np.array(counts, dtype=np.int64) - 1] + 1
        # A reference of the moment itself may still follow: the look takes in all of them.
        return np.unique(moments)

    @cached_property
    def tag_rates(self) -> Floats:
        """How much more often than others a memory's tags were referred to, (looks + 1, memories).

        Mean over its tags of the logarithm of references per memory against the overall rate,
        shrunken toward it. Zero before the first look.
        """
        kinds = int(self.tags.max(initial=-1)) + 1
        rates = np.zeros((len(self.looks) + 1, len(self)))
        if not kinds:
            return rates
        carries = self.tags >= 0
        share = carries / np.maximum(carries.sum(axis=1, keepdims=True), 1)
        for line, moment in zip(rates[1:], self.looks, strict=True):
            seen = np.searchsorted(self.at, moment)
            referred = _tally(self.tags[self.target[:seen]], kinds)
            written = _tally(self.tags[:moment], kinds)
            overall = seen / moment
            rate = (referred + TAG_PRIOR) / (written + TAG_PRIOR / overall) / overall
            line[:] = (np.append(np.log(rate), 0.0)[self.tags] * share).sum(axis=1)
        return rates

    def references_before(self, memory: Ints, moment: "Ints | np.int64") -> tuple[Ints, Ints]:
        """Return how often each memory was referred to before a moment; when last, or -1."""
        keys, at, span = self._by_target
        first = np.searchsorted(keys, memory * span)
        past = np.searchsorted(keys, memory * span + moment)
        last = np.where(past > first, np.append(at, -1)[past - 1], -1)
        return past - first, last

    @cached_property
    def _by_target(self) -> tuple[Ints, Ints, int]:
        """References sorted by memory and moment, as one key, and the key's stride."""
        span = len(self) + 2
        order = np.lexsort((self.at, self.target))
        return self.target[order] * span + self.at[order], self.at[order], span


def experience_of(frame: pd.DataFrame, references: pd.DataFrame | None = None) -> Experience:
    """Return what a store has lived through.

    Parameters
    ----------
    frame : DataFrame
        Rows in the order they were written; those pruned since belong to it.
    references : DataFrame, optional
        What `find_references` returns; found in the frame when not given.
    """
    if references is None:
        references = find_references(frame)
    counted = ~frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = frame.loc[counted]
    on_rows = references_on_rows(rows, references)
    number, highest = _task_numbers(rows)
    return Experience(
        size=_standardised(np.log1p(rows[col.CHARS].to_numpy(dtype=np.float64))),
        gap=_standardised(_gaps(rows)),
        lag=_standardised(np.log1p(highest - number)),
        names=np.log1p(_lengths(rows[col.EVIDENCE_REFS])),
        breadth=np.minimum(_lengths(rows[col.TAGS]), 4.0) - 2.0,
        number=number,
        highest=highest,
        tags=_tag_numbers(rows[col.TAGS]),
        at=on_rows.at,
        target=on_rows.target,
    )


def _standardised(values: Floats) -> Floats:
    """Return how far each value is from the mean until then, in standard deviations, at most 3."""
    count = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / count
    variance = np.maximum(np.cumsum(values**2) / count - mean**2, 0.01)
    return np.asarray(np.clip((values - mean) / np.sqrt(variance), -3.0, 3.0))


def _gaps(rows: pd.DataFrame) -> Floats:
    """Logarithm of the seconds since the row before; an unknown time is no gap."""
    seconds = rows[col.CREATED_AT].diff().dt.total_seconds().to_numpy(dtype=np.float64)
    return np.asarray(np.log1p(np.nan_to_num(np.maximum(seconds, 0.0))))


def _task_numbers(rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the number each task reference ends in, and the highest until then."""
    place = np.arange(len(rows), dtype=np.float64)
    found = rows[col.SOURCE_TASK_REF].astype("str").str.extract(_LAST_NUMBER, expand=False)
    number = pd.to_numeric(found, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if 2 * np.count_nonzero(np.isnan(number)) >= len(number):
        return place, place
    highest = np.fmax.accumulate(np.append(0.0, number))[1:]
    return np.where(np.isnan(number), highest, number), highest


def _lengths(cells: "pd.Series[Any]") -> Floats:
    return np.fromiter(map(len, cells), np.float64, len(cells))


def _tag_numbers(cells: "pd.Series[Any]") -> Ints:
    """Return tags as numbers in order of appearance, one row of them a memory."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(tag, len(numbers)) for tag in tags] for tags in cells]
    table = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _tally(tags: Ints, kinds: int) -> Floats:
    return np.bincount(tags[tags >= 0], minlength=kinds).astype(np.float64)
