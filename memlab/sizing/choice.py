"""Choosing a cap, or declining to: the one rule behind the advice and its backtest."""

import math
from dataclasses import dataclass
from enum import StrEnum

from memlab.sizing.estimate import BLOCKS, Estimate
from memlab.sizing.resampling import Band


class Verdict(StrEnum):
    """What the evidence allows to say."""

    OK = "ok"
    CAP_HAS_NO_EFFECT = "cap-has-no-effect"
    """The cap that the target takes is not below the prunable rows there are: nothing would go."""
    FLOOR_EXCEEDS_BUDGET = "floor-exceeds-budget"
    """Load-bearing rows alone pass the token budget; no cap can help."""
    TARGET_EXCEEDS_BUDGET = "target-exceeds-budget"
    """The target takes a cap that the token budget does not allow; both ends are given."""
    TOO_FEW_REFERENCES = "too-few-references"
    HORIZON_TOO_SHORT = "horizon-too-short"
    """Needs keep coming at the far end of what the history can show; more may lie beyond."""
    TARGET_BEYOND_HORIZON = "target-beyond-horizon"
    """The cap that the target takes, with its limit, lies beyond what the history can show."""


@dataclass(frozen=True)
class Choice:
    """A cap for a target.

    Attributes
    ----------
    verdict : Verdict
    keep_recent : int or None
        None when declined.
    interval : tuple of int or None
        Limits of the cap that serves the target in the next stretch.
    """

    verdict: Verdict
    keep_recent: int | None = None
    interval: tuple[int, int] | None = None


def sittings_needed(target: float, confidence: float) -> int:
    """Return how many independent needs a limit for this target takes.

    The largest of `m` values is an upper limit of their `target` quantile with confidence
    ``1 - target ** m`` (Wilks 1941), whatever their distribution: with fewer, no sample can show
    the target at all. At least one for every block that is resampled.

    Examples
    --------
    >>> sittings_needed(0.9, 0.9), sittings_needed(0.95, 0.9), sittings_needed(0.5, 0.9)
    (22, 45, 20)
    """
    return max(BLOCKS, math.ceil(math.log(1 - confidence) / math.log(target)))


def choose_cap(
    estimate: Estimate, band: Band | None, *, target: float, confidence: float, prunable: int
) -> Choice:
    """Choose the smallest cap whose lower limit meets the target, or decline.

    Parameters
    ----------
    estimate : Estimate
        What the history shows.
    band : Band or None
        Its limits; None with too few needs for any.
    target : float
        Share of needs to serve.
    confidence : float
        With which `band` was made.
    prunable : int
        Prunable rows there are: a cap of that many has no effect.
    """
    if band is None or estimate.independent < sittings_needed(target, confidence):
        return Choice(Verdict.TOO_FEW_REFERENCES)
    lower, upper = band.caps_at(target)
    cap = max(upper, estimate.cap_for(target))
    interval = (min(lower, cap), cap)
    if cap >= prunable:
        return Choice(Verdict.CAP_HAS_NO_EFFECT, cap, interval)
    if cap > estimate.horizon:
        return Choice(Verdict.TARGET_BEYOND_HORIZON)
    if estimate.far_share > 1 - target:
        return Choice(Verdict.HORIZON_TOO_SHORT)
    return Choice(Verdict.OK, cap, interval)


def check_target(target: float) -> None:
    """Raise ValueError unless the target is a share that a sample can show."""
    if not 0 < target < 1:
        raise ValueError(f"target must lie between 0 and 1, not {target!r}")
