"""The track record: caps chosen on a history before a cut, measured on what came after."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab.evidence.references import find_references
from memlab.sizing.choice import check_target, choose_cap
from memlab.sizing.curve import DEFAULT_CONFIDENCE, KEEP_RECENT
from memlab.sizing.estimate import Estimate
from memlab.sizing.history import History, Needs, history_of, needs_of
from memlab.sizing.resampling import LEVELS, band_of

CUTS: Final = (0.5, 0.6, 0.7, 0.8)
AHEAD: Final = 0.2
"""Share of the history that follows a cut and is measured."""

_DTYPES: Final = {
    "cut": "float64",
    "verdict": "str",
    KEEP_RECENT: "Int64",
    "target": "float64",
    "achieved": "Float64",
    "reached": "boolean",
    "references": "int64",
    "needed": "Int64",
}


def backtest_cap(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
    cuts: Sequence[float] = CUTS,
    seed: int = 0,
) -> pd.DataFrame:
    """Choose a cap on the history before each cut; measure it on the next fifth of the history.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    target, confidence : float
        As for `recommend_cap`.
    cuts : sequence of float
        Shares of the rows written, each above 0 and below 1.
    seed : int
        Of the resampling behind the limits.

    Returns
    -------
    DataFrame
        One row per cut: ``cut``; ``verdict`` on the evidence before it; ``keep_recent``, <NA> where
        the verdict declines; ``target``; ``achieved``, the share of needs in the next fifth that
        this cap would have served; ``reached``, whether that meets the target; ``references`` in
        that fifth; ``needed``, the smallest cap that would have met the target there.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    """
    check_target(target)
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, not {confidence!r}")
    if not all(0 < cut < 1 for cut in cuts):
        raise ValueError(f"cuts must lie between 0 and 1, not {cuts!r}")
    if references is None:
        references = find_references(frame)
    history = history_of(frame)
    needs, _ = needs_of(frame, history, references)
    rows = [
        _measure(history, needs, cut, target=target, confidence=confidence, seed=seed)
        for cut in cuts
    ]
    return pd.DataFrame(rows, columns=list(_DTYPES)).astype(_DTYPES)


def _measure(
    history: History, needs: Needs, cut: float, *, target: float, confidence: float, seed: int
) -> dict[str, Any]:
    """One row of the backtest."""
    n = len(history)
    first = round(cut * n)
    last = round((cut + AHEAD) * n)
    before = history.until(first)
    estimate = Estimate(before, needs.between(0, first))
    levels = LEVELS[target - LEVELS[0] <= LEVELS]  # an upper limit depends on these alone
    band = band_of(estimate, confidence, seed=seed, levels=levels)
    prunable = int((before.counted & (before.end >= first)).sum())
    choice = choose_cap(estimate, band, target=target, confidence=confidence, prunable=prunable)
    after = np.sort(needs.between(first, last if last < n else n + 1).rank)
    row: dict[str, Any] = {
        "cut": cut,
        "verdict": str(choice.verdict),
        KEEP_RECENT: choice.keep_recent,
        "target": target,
        "achieved": None,
        "reached": None,
        "references": len(after),
        "needed": None,
    }
    if len(after):
        row["needed"] = int(after[math.ceil(target * len(after) - 1e-9) - 1])
        if choice.keep_recent is not None:
            achieved = float((after <= choice.keep_recent).mean())
            row |= {"achieved": achieved, "reached": achieved >= target - 1e-9}
    return row
