"""The track record as a table: caps chosen before a cut, measured on what came after."""

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from memlab import arguments
from memlab.columns import REFERENCES, SOURCE
from memlab.evidence.law import DEFAULT_CONFIDENCE
from memlab.sizing.choice import choose_cap
from memlab.sizing.curve import KEEP_RECENT, prepared
from memlab.sizing.record import CUTS, Cut, cuts_of

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

    Returns
    -------
    DataFrame
        One row per cut: ``cut``; ``verdict`` on the evidence before it; ``keep_recent``, chosen by
        that evidence alone; ``target``; ``achieved``, the share of references in the next fifth
        that this cap would have served; ``reached``, whether that meets the target; ``references``
        in that fifth; ``needed``, the smallest cap that would have met the target there.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    target = arguments.share("target", target)
    shares = [arguments.share("cut", cut) for cut in cuts]
    sizing = prepared(frame, references, confidence, call="memlab.sizing.backtest_cap")
    found = cuts_of(sizing.history, sizing.references, sizing.law, sizing.confidence, shares)
    table = backtest_table(found, target)
    table.attrs = {SOURCE: sizing.source, REFERENCES: len(sizing.references)}
    return table


def backtest_table(cuts: Sequence[Cut], target: float) -> pd.DataFrame:
    """Return the table of `backtest_cap`."""
    rows = [_measure(cut, target) for cut in cuts]
    return pd.DataFrame(rows, columns=list(_DTYPES)).astype(_DTYPES)


def _measure(cut: Cut, target: float) -> dict[str, Any]:
    """One row of the backtest."""
    choice = choose_cap(
        cut.ahead, target=target, prunable=cut.prunable, far_share=cut.references.far_share
    )
    row: dict[str, Any] = {
        "cut": cut.share,
        "verdict": str(choice.verdict),
        KEEP_RECENT: choice.keep_recent,
        "target": target,
        "achieved": None,
        "reached": None,
        "references": len(cut.after),
        "needed": None,
    }
    if len(cut.after):
        achieved = cut.achieved(choice.keep_recent)
        row |= {
            "achieved": achieved,
            "reached": achieved >= target - 1e-9,
            "needed": cut.needed(target),
        }
    return row
