"""Outcomes as one table: a row a store."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from memlab.fleet.outcomes import Outcome

STORE: Final = "store"
ERROR: Final = "error"


def table_of(outcomes: Sequence[Outcome[Any]], dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each outcome, in their order.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Whose values are named tuples with at least the fields of `dtypes`.
    dtypes : mapping of str to str
        The columns, which are missing where there is an error.

    Returns
    -------
    DataFrame
        ``store``, those columns, and ``error``, missing where there is none.
    """
    columns: dict[str, pd.Series[Any]] = {
        STORE: pd.Series([outcome.name for outcome in outcomes], dtype="str")
    }
    for name, dtype in dtypes.items():
        values = [None if each.value is None else getattr(each.value, name) for each in outcomes]
        columns[name] = _series(values, dtype)
    errors = [outcome.error or None for outcome in outcomes]
    columns[ERROR] = pd.Series(errors, dtype="str")
    return pd.DataFrame(columns)


def _series(values: list[Any], dtype: Any) -> "pd.Series[Any]":
    if dtype.startswith("datetime"):
        values = pd.to_datetime(pd.Series(values, dtype="object"), utc=True).tolist()
    series: pd.Series[Any] = pd.Series(values, dtype=dtype)
    return series
