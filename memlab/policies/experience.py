"""What a store has lived through: memories in the order they were written, and needs of them."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references, references_on_rows
from memlab.evidence.usage import HALF_LIFE
from memlab.frame.fields import Flags, Floats, Ints, as_instant

FIRST_LOOK: Final = 10
"""Needs seen before a store's own weights are fitted for the first time."""

GROWTH: Final = 1.15
"""By how much needs grow from one look to the next."""

TAG_PRIOR: Final = 10.0
"""Needs' worth of belief that a tag is needed as much as any other."""

_LAST_NUMBER: Final = r"(?:^|[^0-9A-Za-z])(\d{1,15})$"
_DAY: Final = np.timedelta64(1, "D")
_EPOCH: Final = np.datetime64(0, "us")


@dataclass(frozen=True)
class Experience:
    """Memories in order of writing, load-bearing ones left out, and their needs, times in days."""

    tokens: Ints
    written: Floats
    """What is known of each when it is written, from size to breadth in the words of `Learned`."""
    names: Floats
    number: Floats
    highest: Floats
    tags: Ints
    born: Floats
    at: Ints
    target: Ints
    when: Floats
    read: Flags
    position: Ints
    """The position that was about to be written when each need arose."""
    floor: Ints
    """Tokens of the load-bearing memories that had been written when each need arose."""
    searched: bool
    """Whether memories are found by searching, none of them loaded at start."""

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def looks(self) -> Ints:
        """Needs that had arisen when everything so far is looked at again."""
        counts, count = [], FIRST_LOOK
        while count <= len(self.at):
            counts.append(count)
            count = max(count + FIRST_LOOK, int(count * GROWTH))
        return np.array(counts, dtype=np.int64)

    @cached_property
    def tag_rates(self) -> Floats:
        """How much more a memory's tags were needed: a shrunken log, (looks + 1, memories)."""
        kinds = int(self.tags.max(initial=-1)) + 1
        rates = np.zeros((len(self.looks) + 1, len(self)))
        if not kinds:
            return rates
        carries = self.tags >= 0
        share = carries / np.maximum(carries.sum(axis=1, keepdims=True), 1)
        for line, seen in zip(rates[1:], self.looks.tolist(), strict=True):
            moment = self.at[seen - 1]
            needed = _tally(self.tags[self.target[:seen]], kinds)
            written = _tally(self.tags[:moment], kinds)
            overall = seen / moment
            rate = (needed + TAG_PRIOR) / (written + TAG_PRIOR / overall) / overall
            line[:] = (np.append(np.log(rate), 0.0)[self.tags] * share).sum(axis=1)
        return rates

    @cached_property
    def before(self) -> Ints:
        """Needs that had arisen before each: those of one moment know nothing of each other."""
        new = np.ones(len(self.at), dtype=bool)
        new[1:] = (np.diff(self.at) > 0) | (np.diff(self.when) > 0)
        return np.maximum.accumulate(np.where(new, np.arange(len(self.at)), 0))

    def use(self, memory: Ints, seen: "Ints | int") -> tuple[Ints, Ints, Floats, Floats]:
        """Say of each memory, by `seen` needs: their count, the last (place, time), fading sum."""
        keys, order, fading = self._by_target
        span = len(self.at) + 1
        first = np.searchsorted(keys, memory * span)
        past = np.searchsorted(keys, memory * span + seen)
        needed = past > first
        last = np.where(needed, np.append(order, 0)[past - 1], -1)
        at = np.append(self.at, -1)[last]
        when = np.where(needed, np.append(self.when, 0.0)[last], self.born[memory])
        return past - first, at, when, np.where(needed, np.append(fading, 0.0)[past - 1], 0.0)

    @cached_property
    def _by_target(self) -> tuple[Ints, Ints, Floats]:
        """Needs by memory, as one key; their numbers; their sum by each, fading."""
        order = np.argsort(self.target, kind="stable")
        fading = np.ones(len(order))
        target, when = self.target[order], self.when[order]
        again = np.flatnonzero(target[1:] == target[:-1]) + 1
        kept = 0.5 ** (np.maximum(when[again] - when[again - 1], 0.0) / HALF_LIFE)
        for place, share in zip(again.tolist(), kept.tolist(), strict=True):
            fading[place] += share * fading[place - 1]
        return target * (len(order) + 1) + order, order, fading


def experience_of(frame: pd.DataFrame, references: pd.DataFrame | None = None) -> Experience:
    """Return what a store has lived through."""
    if references is None:
        references = find_references(frame)
    counted = ~frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    rows = frame.loc[counted]
    target, at, place = references_on_rows(rows, references)
    gaps = rows[col.CREATED_AT].diff().dt.total_seconds().to_numpy(dtype=np.float64)
    born = np.fmax.accumulate(np.append(0.0, _days(rows[col.CREATED_AT])))[1:]
    when = _days(references[col.AT].iloc[place])
    when = np.where(np.isnan(when), np.append(born, born[-1:])[at], when)
    read = (references[col.KIND].iloc[place] == "log").to_numpy(dtype=bool)
    order = np.lexsort((target, when, at))
    days = pd.DataFrame({"target": target[order], "day": np.floor(when[order])})
    order = order[~(days.duplicated().to_numpy() & read[order])]
    number, highest = _task_numbers(rows)
    size = _standardised(np.log1p(rows[col.CHARS].to_numpy(dtype=np.float64)))
    gap = _standardised(np.log1p(np.nan_to_num(np.maximum(gaps, 0.0))))
    lag = _standardised(np.log1p(highest - number))
    names = np.log1p(_lengths(rows[col.EVIDENCE_REFS]))
    breadth = np.minimum(_lengths(rows[col.TAGS]), 4.0) - 2.0
    tokens = frame[col.TOKENS].to_numpy(dtype=np.int64)
    floor = np.cumsum(tokens * ~counted)
    before = np.searchsorted(frame[col.POSITION], references[col.AT_POSITION].iloc[place[order]])
    return Experience(
        tokens=tokens[counted],
        floor=np.append(0, floor)[before],
        written=np.column_stack([size, size**2 - 1.0, gap, lag, names, breadth]),
        names=names,
        number=number,
        highest=highest,
        tags=_tag_numbers(rows[col.TAGS]),
        born=born,
        at=at[order],
        target=target[order],
        when=when[order],
        read=read[order],
        position=references[col.AT_POSITION].to_numpy(dtype=np.int64)[place[order]],
        searched=col.LOADED_AT_START in frame and not frame[col.LOADED_AT_START].any(),
    )


def days_of(moment: datetime) -> float:
    """Return a moment as days."""
    return float((as_instant(moment) - _EPOCH) / _DAY)


def _days(times: "pd.Series[Any]") -> Floats:
    naive = times.astype(col.TIME).dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    return (naive - _EPOCH) / _DAY


def _standardised(values: Floats) -> Floats:
    """Return how far each value is from the mean until then, in standard deviations, at most 3."""
    count = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / count
    variance = np.maximum(np.cumsum(values**2) / count - mean**2, 0.01)
    return np.asarray(np.clip((values - mean) / np.sqrt(variance), -3.0, 3.0))


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
