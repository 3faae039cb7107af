"""Reading the columns policies go by, some of which a frame may lack."""

from collections.abc import Mapping, Sequence
from datetime import datetime
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


def moment(now: datetime) -> np.datetime64:
    """Return an aware time as UTC in microseconds."""
    return pd.Timestamp(now).tz_convert("UTC").tz_localize(None).as_unit("us").to_datetime64()


def scope_numbers(
    rows: pd.DataFrame, fields: Sequence[str], *, cap_unscoped: bool
) -> npt.NDArray[np.int64]:
    """Return each row's scope by the fields the frame has, all 0 where it has none of them."""
    present = [name for name in fields if name in rows]
    if not present:
        return np.zeros(len(rows), dtype=np.int64)
    labels = pd.DataFrame({name: _scope_labels(rows[name]) for name in present})
    number = labels.groupby(present, dropna=False, sort=False).ngroup().to_numpy().astype(np.int64)
    if cap_unscoped:
        return number
    return np.where(labels.isna().all(axis=1), np.int64(-1), number)


def _scope_labels(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return what a scope field is compared by: tags as a set, empty as missing."""
    if values.name != col.TAGS:
        return values
    return values.map(lambda tags: ",".join(sorted(set(tags))) or None).astype("str")
