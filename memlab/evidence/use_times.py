"""Times at which memories were used, and base-level activation for arrays of memories.

:mod:`memlab.base_activation` has the formula for one memory, with its sources.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from memlab.base_activation import LENGTH_OFFSET, LENGTH_POWER, SHORTEST_DAYS
from memlab.frame.fields import Flags, Floats, Ints, Times, as_instant

_DAY: Final = np.timedelta64(1, "D")
_EPOCH: Final = np.datetime64(0, "us")


def base_levels(age: Floats, idle: Floats, reads: Floats) -> Floats:
    """Return the base-level activation of memories.

    :func:`memlab.base_activation.base_level` has the formula for one memory, and explains it.

    Parameters
    ----------
    age, idle, reads : array of float, shape (memories,)
        Days since each memory was written, days since it was last read (NaN: never), and the number
        of days on which it was read.
    """
    age = np.maximum(age, SHORTEST_DAYS)
    is_read = (reads > 0) & ~np.isnan(idle)
    idle = np.where(is_read, np.clip(idle, SHORTEST_DAYS, age), age)
    level_if_read = 1 / np.sqrt(idle) + reads * 2 / (np.sqrt(age) + np.sqrt(idle))
    level_if_unread = 1 / np.sqrt(age)
    return np.where(is_read, level_if_read, level_if_unread)


def per_length(activation: Floats, tokens: Ints) -> Floats:
    """Return activation by length; :func:`memlab.base_activation.per_length` is for one memory."""
    by_length: Floats = activation / length_divisor(tokens)
    return by_length


def length_divisor(tokens: Ints) -> Floats:
    """Return the numbers by which :func:`per_length` divides the activation of memories."""
    divisor: Floats = np.power(tokens + float(LENGTH_OFFSET), LENGTH_POWER)
    return divisor


@dataclass(frozen=True)
class Uses:
    """Times at which memories were written and used; uses are in the order in which they arose.

    Attributes
    ----------
    created : array of float, shape (memories,)
        Creation time of each memory in days since 1970; NaN if no memory has a time.
    target : array of int, shape (uses,)
        The memory of each use, as its place in `created`.
    when : array of float, shape (uses,)
        Days since 1970 at which each use arose.
    """

    created: Floats
    target: Ints
    when: Floats

    @cached_property
    def next_on_day(self) -> Ints:
        """The next use of the same memory on the same UTC day, shape (uses,).

        If there is none, it is the number of uses.
        """
        next_use = np.full(len(self.target), len(self.target))
        order = np.lexsort((np.arange(len(self.target)), np.floor(self.when), self.target))
        target = self.target[order]
        day = np.floor(self.when)[order]
        is_same_day = (target[1:] == target[:-1]) & (day[1:] == day[:-1])
        next_use[order[:-1][is_same_day]] = order[1:][is_same_day]
        return next_use

    def is_last_of_day(self, is_known: Flags) -> Flags:
        """Flag the known uses after which no other use of the same memory is known on that day."""
        # The appended flag is that of "no next use".
        is_next_known: Flags = np.append(is_known, np.bool_(0))[self.next_on_day]
        return is_known & ~is_next_known

    def levels(self, now: float, is_known: Flags, memories: Ints | slice = slice(None)) -> Floats:
        """Return the activation of memories, computed from the uses seen.

        Parameters
        ----------
        now : float
            The moment, in days since 1970.
        is_known : array of bool, shape (uses,)
            The uses that are known.
        memories : array of int or slice, optional
            Places of the memories; all by default.
        """
        counted_uses = np.flatnonzero(self.is_last_of_day(is_known))
        idle = np.maximum(now - self.when[counted_uses], SHORTEST_DAYS)
        activation_by_uses = np.bincount(
            self.target[counted_uses], 1 / np.sqrt(idle), minlength=len(self.created)
        )
        return 1 / np.sqrt(self.ages(now, memories)) + activation_by_uses[memories]

    def ages(self, now: float, memories: Ints | slice = slice(None)) -> Floats:
        """Return the ages of memories in days.

        If no memory has a time, each counts as just written.
        """
        return np.fmax(now - self.created[memories], SHORTEST_DAYS)

    def counts(self) -> tuple[Floats, Floats]:
        """Return the number of days with a use and the last use (NaN: never) of each memory."""
        counted_uses = self.is_last_of_day(np.ones(len(self.target), dtype=bool))
        count = np.bincount(self.target[counted_uses], minlength=len(self.created))
        last_use = np.full(len(self.created), -np.inf)
        np.maximum.at(last_use, self.target, self.when)
        last_use[np.isneginf(last_use)] = np.nan
        return count.astype(np.float64), last_use


def uses_of(created: Times, target: Ints, memories_written: Ints, recorded: Times) -> Uses:
    """Return the uses of memories that are in order of position.

    Parameters
    ----------
    created : array of datetime64, shape (memories,)
        Creation time; a memory without one is as old as the memory before it.
    target : array of int, shape (uses,)
        The memory of each use.
    memories_written : array of int, shape (uses,)
        The number of memories that had been written when each use arose.
    recorded : array of datetime64, shape (uses,)
        Time of each use; the default is the creation time of the memory that was written next.
    """
    # The latest creation time so far; the last entry is for uses after the last write.
    clock = np.fmax.accumulate(np.append(days_since_1970(created), np.nan))
    when = np.where(np.isnat(recorded), clock[memories_written], days_since_1970(recorded))
    return Uses(created=births(created), target=target, when=np.nan_to_num(when))


def births(created: Times) -> Floats:
    """Return creation times in days; a memory without one takes that of a neighbour."""
    days = pd.Series(days_since_1970(created))
    return np.asarray(days.ffill().bfill(), dtype=np.float64)


def days_of(moment: datetime) -> float:
    """Return a moment in days since 1970."""
    return float((as_instant(moment) - _EPOCH) / _DAY)


def days_since_1970(moments: Times) -> Floats:
    """Return times in days since 1970, with NaN for a missing time."""
    return np.asarray((moments - _EPOCH) / _DAY, dtype=np.float64)


def ranks_above(level: Floats, target: int) -> Flags:
    """Flag the memories that rank above the memory `target`.

    A memory ranks above another if its level is higher, or if the levels are equal and it is newer.
    Memories are in order of position, so a newer one has a higher number.
    """
    is_above: Flags = level > level[target]
    is_above[target + 1 :] |= level[target + 1 :] == level[target]
    return is_above
