"""Memories that were deleted without being kept: what the numbers they left free still say.

A store that numbers its rows one by one shows how many there were. Which references they made, and
which were made to them, is gone; what still names something that is not there counts as a reference
to the newest of them that was there: a miss, of which only the least age rank is known.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as c

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_GAP: Final = "gap"
"""A column that says which rows of a frame stand for a memory of which nothing is known."""
_MOST_GAPS: Final = 1_000
"""So many times more numbers free than taken, and the store does not number one by one."""
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Gaps(NamedTuple):
    """Memories that were deleted without an archive.

    Attributes
    ----------
    memories : int
        How many.
    newest : int
        The position of the newest of them; 0 where there is none.
    cap : int or None
        Where a cap may have deleted some of them: the prunable memories written after the newest of
        these, there or not. That cap was no larger: positions do not tell when it was applied. None
        where none of them can have gone to a cap, for an older memory outlived it.
    """

    memories: int = 0
    newest: int = 0
    cap: int | None = None


def gaps_of(past: pd.DataFrame) -> Gaps:
    """Return how many memories were deleted without being kept, by the numbers they left free.

    Only a store that numbers its memories one by one shows them: where a memory has a ``key`` of
    another kind, there is no telling, and none is counted.
    """
    free = _free_positions(past)
    if not len(free):
        return Gaps()
    capped = free[_may_be_capped(past, free)]
    cap = None
    if len(capped):
        later = past[c.POSITION].to_numpy(np.int64) > capped[-1]
        prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
        cap = int((later & prunable).sum() + (free > capped[-1]).sum())
    return Gaps(len(free), int(free[-1]), cap)


def with_gaps(past: pd.DataFrame) -> pd.DataFrame:
    """Return a past in which a row stands for every memory of which nothing is known.

    Such a row counts as a prunable memory that was deleted: of the time of the one before it, as
    large as prunable ones are on average, with no reference of its own. A frame that is no past, or
    has no gaps, is returned as it is.
    """
    if c.DELETED_AT not in past or _GAP in past:
        return past
    free = _free_positions(past)
    if not len(free):
        return past
    every = pd.concat([past, _unknown(past, free)], ignore_index=True)
    every = every.sort_values(c.POSITION, kind="stable", ignore_index=True)
    every[_GAP] = every[_GAP].eq(other=True)
    every[c.CREATED_AT] = every[c.CREATED_AT].where(~every[_GAP]).ffill().bfill()
    every.attrs = dict(past.attrs)
    return every.astype(dict(past.dtypes))


def rows_of_gaps(frame: pd.DataFrame) -> Flags:
    """Return which rows of a frame stand for a memory of which nothing is known."""
    if _GAP not in frame:
        return np.zeros(len(frame), bool)
    return frame[_GAP].to_numpy(bool)


def named_in_gaps(gap: Flags, names: npt.NDArray[np.object_], at: Ints) -> Ints:
    """Return, for each name that nothing there has, the row it may have been of; -1 for none.

    The newest gap before the mention: the memory was at least as old. No more distinct names than
    there are gaps can have been memories; the first ones count.

    Parameters
    ----------
    gap : array of bool
        As :func:`rows_of_gaps` returns it.
    names : array of str
        What is mentioned.
    at : array of int64
        The row that mentions each.
    """
    rows = np.flatnonzero(gap)
    if not len(rows):
        return np.full(len(names), -1, np.int64)
    codes, _ = pd.factorize(names)
    before = np.searchsorted(rows, at)
    found = rows[np.maximum(before - 1, 0)]
    return np.where((before > 0) & (codes < len(rows)), found, -1).astype(np.int64)


def _free_positions(past: pd.DataFrame) -> Ints:
    """Return the positions that no memory of a past has, below the highest."""
    positions = np.unique(past[c.POSITION].to_numpy(np.int64))
    positions = positions[positions > 0]
    if not len(positions) or c.KEY in past:
        return np.empty(0, np.int64)
    missing = int(positions[-1]) - len(positions)
    if not 0 < missing < _MOST_GAPS * len(positions):
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(1, positions[-1] + 1), positions, assume_unique=True)


def _may_be_capped(past: pd.DataFrame, free: Ints) -> Flags:
    """Return which free positions a cap may have left.

    A cap deletes the oldest. So no older prunable memory is there now, and what a plan deleted of
    the older ones went before anything that a plan deleted of the newer ones.
    """
    position = past[c.POSITION].to_numpy(np.int64)
    order = np.argsort(position, kind="stable")
    deleted = np.zeros(len(past), np.int64)
    if c.DELETED_AT in past:
        moments = past[c.DELETED_AT].dt.tz_localize(None).to_numpy("datetime64[us]")
        deleted = np.where(np.isnat(moments), 0, moments.astype(np.int64))
    there = past[c.PRUNABLE].to_numpy(bool)
    gone = (deleted != 0) & ~past[c.LOAD_BEARING].to_numpy(bool)
    last = np.where(there, _LAST, np.where(gone, deleted, _FIRST))[order]
    first = np.where(gone, deleted, _LAST)[order]
    last_of_older = np.concatenate([[_FIRST], np.maximum.accumulate(last)])
    first_of_newer = np.concatenate([np.minimum.accumulate(first[::-1])[::-1], [_LAST]])
    place = np.searchsorted(position[order], free)
    capped: Flags = last_of_older[place] < first_of_newer[place]
    return capped


def _unknown(past: pd.DataFrame, free: Ints) -> pd.DataFrame:
    """Return a row for each free position."""
    prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
    tokens = past[c.TOKENS].to_numpy(np.int64)[prunable]
    frame = pd.DataFrame(
        {
            c.POSITION: free,
            c.MEMORY_ID: [f"gap:{position}" for position in free.tolist()],
            c.KIND: "episodic",
            c.TOKENS: int(tokens.mean()) if len(tokens) else 0,
            c.CREATED_AT: pd.NaT,
            c.SUPERSEDED_BY: None,
            c.SOURCE_TASK_REF: None,
            c.ACTIVE: False,
            c.LOAD_BEARING: False,
            c.PRUNABLE: False,
            c.DELETED_AT: pd.Timestamp(0, tz="UTC"),
            _GAP: True,
        }
    )
    for name in (c.SUPERSEDES, c.EVIDENCE_REFS, c.TAGS):
        frame[name] = [()] * len(free)
    texts = {name: "" for name in (c.TITLE, c.BODY, c.AUTHORED_BY) if name in past}
    numbers = {name: 0 for name in (c.CHARS, c.CONFIDENCE) if name in past}
    flags = {name: False for name in (c.GRADUATED, c.TRUSTED, c.LOADED_AT_START) if name in past}
    return frame.assign(**texts, **numbers, **flags)
