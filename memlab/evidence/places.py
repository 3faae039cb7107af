"""Positions and row numbers: where rows of a frame stand, and which of them references speak of."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.columns import AT, AT_POSITION, POSITION, TARGET_POSITION

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class OnRows(NamedTuple):
    """References that fit a frame, as row numbers, in the order in which they arose.

    Attributes
    ----------
    target : array of int64
        The row that was needed.
    at : array of int64
        The row about to be written then; the number of rows for one after the last.
    place : array of int64
        Where the reference stands among all that were given.
    """

    target: Ints
    at: Ints
    place: Ints


def references_on_rows(frame: pd.DataFrame, references: pd.DataFrame) -> OnRows:
    """Return the references whose target is a row of the frame that was written before they arose.

    Parameters
    ----------
    frame : DataFrame
        Rows in order of ``position``.
    references : DataFrame
        What ``find_references`` returns, of this frame or of one that holds more rows.

    Raises
    ------
    ValueError
        When `references` lacks a column.
    """
    for name in (TARGET_POSITION, AT_POSITION, AT):
        if name not in references:
            raise ValueError(
                f"references has no column {name!r}; make them with find_references(frame, log)"
            )
    positions = frame[POSITION].to_numpy(dtype=np.int64)
    target, exact = _row_numbers(positions, references[TARGET_POSITION].to_numpy(dtype=np.int64))
    at, _ = _row_numbers(positions, references[AT_POSITION].to_numpy(dtype=np.int64))
    place = np.flatnonzero(exact & (target < at))
    if (np.diff(at[place]) < 0).any():
        place = place[np.argsort(at[place], kind="stable")]
    return OnRows(target[place], at[place], place)


def positions_and_next(frame: pd.DataFrame) -> Ints:
    """Return every row's position, and the one that the next row will get at the earliest."""
    positions = frame[POSITION].to_numpy(dtype=np.int64)
    return np.append(positions, (positions[-1] if len(positions) else 0) + 1)


def _row_numbers(positions: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Return how many rows stand before each position, and whether it is a row's."""
    n = len(positions)
    if n and positions[-1] - positions[0] == n - 1:
        row = wanted - positions[0]
        return np.clip(row, 0, n), (row >= 0) & (row < n)
    row = np.searchsorted(positions, wanted)
    return row, (row < n) & (np.append(positions, -1)[row] == wanted)
