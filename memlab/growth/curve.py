"""What a store's rows were at each instant of its history."""

from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import expect
from memlab.evidence.gaps import gaps_of
from memlab.frame.arrays import arrays_of
from memlab.frame.needed import expect_memories
from memlab.growth.lives import NEVER, Int64s, lifetimes

_MOST_INSTANTS: Final = 100_000
_LAST_YEAR: Final = 9999  # of Python's calendar, and of every axis
_STEPS: Final = ("s", "min", "h", "D", "W", "MS", "YS")


def growth_curve(frame: pd.DataFrame, *, freq: str | None = None) -> pd.DataFrame:
    """Return what the store's surviving rows were at evenly spaced instants.

    A row counts from its ``created_at``. A superseded row counts as active until the row that
    replaced it was created, and as superseded from then on; if that row is not in the frame, as
    superseded from the start. A row without a usable time is placed with the row inserted before
    it.

    A frame of a whole past (:func:`memlab.load_past`) shows deletions as steps. Of what was deleted
    without an archive nothing is known: there the curve is a lower bound, and its caveat says so.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` or :func:`memlab.load_past` returns it.
    freq : str, optional
        A pandas frequency such as ``"D"`` or ``"W"``. By default the finest of seconds, minutes,
        hours, days, weeks, months and years that gives at most 1,000 instants.

    Returns
    -------
    pandas.DataFrame
        Columns as in :data:`memlab.columns.GROWTH_DTYPES`; the index ``at`` holds instants in UTC,
        the first before the first row's time, the last at or after the last one's. Noise
        shares are NaN while nothing is active. ``attrs`` carries the token rule, what
        it cannot show in a sentence, and the number of rows without a usable time.

    Raises
    ------
    ValueError
        When `freq` is not a frequency, or would give more than 100,000 instants.
    """
    expect_memories(frame, call="memlab.growth_curve")
    expect(freq, str, call="memlab.growth_curve", name="freq", optional=True)
    born, ended, gone = lifetimes(arrays_of(frame))
    instants = _instants(np.concatenate([born, gone[gone < NEVER]]), freq)
    at = instants.as_unit("us").asi8
    tokens = frame[c.TOKENS].to_numpy(np.int64)
    protected = frame[c.LOAD_BEARING].to_numpy(bool)
    curve = pd.DataFrame(index=instants.rename(c.AT))
    for items, tokens_of_items, rows in (
        (c.LOAD_BEARING, c.LOAD_BEARING_TOKENS, protected),
        (c.PRUNABLE, c.PRUNABLE_TOKENS, ~protected),
    ):
        left = np.minimum(ended, gone)[rows]
        alive = _running(born[rows], tokens[rows], at) - _running(left, tokens[rows], at)
        curve[items], curve[tokens_of_items] = alive.T
    replaced = _running(ended, tokens, at) - _running(np.maximum(ended, gone), tokens, at)
    curve[c.SUPERSEDED], curve[c.SUPERSEDED_TOKENS] = replaced.T
    curve[c.NOISE_SHARE] = curve[c.PRUNABLE] / (curve[c.PRUNABLE] + curve[c.LOAD_BEARING])
    curve[c.NOISE_SHARE_TOKENS] = curve[c.PRUNABLE_TOKENS] / (
        curve[c.PRUNABLE_TOKENS] + curve[c.LOAD_BEARING_TOKENS]
    )
    curve = curve[list(c.GROWTH_DTYPES)].astype(c.GROWTH_DTYPES)
    curve.attrs = {
        c.TOKEN_RULE: frame.attrs.get(c.TOKEN_RULE, ""),
        c.SOURCE: frame.attrs.get(c.SOURCE, ""),
        c.CAVEAT: _caveat(frame),
        c.UNDATED: int(frame[c.CREATED_AT].isna().sum()),
    }
    return curve


def _caveat(frame: pd.DataFrame) -> str:
    """Say what the curve cannot show; nothing where it shows all."""
    gaps = gaps_of(frame).memories
    if not gaps:
        return ""
    what = f"{gaps:,} memories were" if gaps > 1 else "1 memory was"
    if c.DELETED_AT in frame:
        return f"{what} deleted without an archive, and left no trace."
    return f"{what} deleted earlier: the curve counts those that survive."


def _running(times: Int64s, tokens: Int64s, at: Int64s) -> Int64s:
    """Return how many of `times` are at or before each instant, and the tokens of those."""
    order = np.argsort(times, kind="stable")
    totals = np.concatenate([[0], np.cumsum(tokens[order])])
    items = np.searchsorted(times[order], at, side="right")
    return np.column_stack([items, totals[items]])


def _instants(born: Int64s, freq: str | None) -> pd.DatetimeIndex:
    """Return instants from just before the first time to just after the last."""
    if not len(born):
        return pd.DatetimeIndex([], dtype=c.TIME)
    first, last = (pd.Timestamp(int(t), unit="us", tz="UTC") for t in (born.min(), born.max()))
    steps = {name: _step(name) for name in ([freq] if freq else _STEPS)}
    for name, step in steps.items():
        if first + step <= first:
            raise ValueError(f"freq must go forward in time, not {freq!r}")
        expected = (last - first) / ((first + step + step) - (first + step))
        if expected <= (_MOST_INSTANTS if freq else 1_000) or (not freq and name == _STEPS[-1]):
            start = first.normalize() - step
            instants = pd.date_range(start, last + step + step, freq=step, unit="us")
            instants = instants.where(instants.year >= 1, first)
            instants = instants.where(instants.year <= _LAST_YEAR, last)
            begin = max(0, int(instants.searchsorted(first, side="left")) - 1)
            return instants[begin : int(instants.searchsorted(last, side="left")) + 1]
    raise ValueError(
        f"freq {freq!r} gives more than {_MOST_INSTANTS:,} instants between {first} and {last}; "
        "choose a coarser one"
    )


def _step(freq: str) -> Any:
    try:
        return pd.tseries.frequencies.to_offset(freq)
    except ValueError as error:
        raise ValueError(f"freq={freq!r} is no pandas frequency, such as 'D' or 'W'") from error
