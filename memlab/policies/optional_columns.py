"""Columns that policies go by and a frame may lack, as arrays."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col

ALWAYS: Final = np.datetime64(-(2**62), "us")
"""A time before all others."""


def numbers(rows: Mapping[str, Any] | pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """Return a column as floats, NaN throughout where there is no such column."""
    if name not in rows:
        return np.full(len(rows[col.POSITION]), np.nan)
    values = rows[name]
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        return values
    return np.asarray(pd.Series(values).to_numpy(dtype=np.float64, na_value=np.nan))


def times(rows: Mapping[str, Any] | pd.DataFrame, name: str) -> npt.NDArray[np.datetime64]:
    """Return a column of times as UTC in microseconds, NaT throughout where there is none."""
    if name not in rows:
        return np.full(len(rows[col.POSITION]), np.datetime64("NaT", "us"))
    values = rows[name]
    if isinstance(values, np.ndarray) and values.dtype == np.dtype("datetime64[us]"):
        return values
    return np.asarray(pd.Series(values).to_numpy(dtype="datetime64[us]"))
