"""Choosing a cap for a target: the one rule behind the advice and its track record."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from memlab.evidence.ahead import Ahead
from memlab.evidence.gaps import Gaps


class Verdict(StrEnum):
    """What the evidence allows to say. Every verdict but two comes with a cap."""

    OK = "ok"
    FROM_OTHER_PROJECTS = "from-other-projects"
    """Most of what the number rests on are other projects' references."""
    CAP_HAS_NO_EFFECT = "cap-has-no-effect"
    """The cap that the target takes is not below the prunable rows there are: nothing would go."""
    FLOOR_EXCEEDS_BUDGET = "floor-exceeds-budget"
    """Load-bearing rows alone pass the token budget; no cap can help."""
    TARGET_EXCEEDS_BUDGET = "target-exceeds-budget"
    """The target takes a cap that the token budget does not allow; both ends are given."""
    HORIZON_TOO_SHORT = "horizon-too-short"
    """References keep reaching the far end of what the history can show: the cap will grow."""
    TARGET_BEYOND_HORIZON = "target-beyond-horizon"
    """No evidence is fine enough for so high a target: neither this store's nor other projects'."""
    HISTORY_INCOMPLETE = "history-incomplete"
    """Memories were deleted without an archive, and with them what the number would rest on."""


@dataclass(frozen=True)
class Choice:
    """A cap for a target.

    Attributes
    ----------
    verdict : Verdict
    keep_recent : int
    interval : tuple of int
        Limits of the cap that serves the target in the next stretch.
    """

    verdict: Verdict
    keep_recent: int
    interval: tuple[int, int]


class Affordable(NamedTuple):
    """What is left of a choice under a token budget.

    Attributes
    ----------
    verdict : Verdict
    keep_recent : int or None
        None where the budget does not allow the cap that the target takes.
    interval : tuple of int or None
        As of the choice; None where no cap fits the budget.
    """

    verdict: Verdict
    keep_recent: int | None = None
    interval: tuple[int, int] | None = None


def sittings_needed(target: float, confidence: float) -> int:
    """Return how many independent references can show so high a target.

    The largest of `m` values is an upper limit of their `target` quantile with confidence
    ``1 - target ** m`` (Wilks 1941), whatever their distribution: with fewer, no sample can show
    the target at all.

    Examples
    --------
    >>> sittings_needed(0.9, 0.9), sittings_needed(0.99, 0.9), sittings_needed(0.999, 0.9)
    (22, 230, 2302)
    """
    return math.ceil(math.log(1 - confidence) / math.log(target))


def choose_cap(ahead: Ahead, *, target: float, prunable: int, far_share: float) -> Choice:
    """Choose the smallest cap whose lower limit meets the target.

    Parameters
    ----------
    ahead : Ahead
        What the next stretch will take.
    target : float
        Share of references to serve.
    prunable : int
        Prunable rows there are: a cap of that many has no effect.
    far_share : float
        Share of the store's own references that reached beyond half of what they could.
    """
    _, low, cap = ahead.cap_for(target)
    return Choice(_verdict(ahead, cap, target, prunable, far_share), cap, (low, cap))


def above_gaps(choice: Choice, gaps: Gaps, *, target: float, written: int, lost: float) -> Choice:
    """Return a choice that does not go below the cap whose deletions removed its evidence.

    Without that, a store that is sized and compacted without an archive would be given a smaller
    number each time.

    Parameters
    ----------
    choice : Choice
        By the evidence that is left.
    gaps : Gaps
        What was deleted without an archive.
    target : float
        Share of references to serve.
    written : int
        Memories written so far, there or not.
    lost : float
        Share of the references that are to gaps.
    """
    if gaps.cap is not None:
        low, high = choice.interval
        least = max(choice.keep_recent, gaps.cap)
        return Choice(Verdict.HISTORY_INCOMPLETE, least, (low, max(high, least)))
    spare = 1 - target
    if 2 * lost > spare or gaps.memories > spare * written:
        return replace(choice, verdict=Verdict.HISTORY_INCOMPLETE)
    return choice


def _verdict(ahead: Ahead, cap: int, target: float, prunable: int, far_share: float) -> Verdict:
    fine_enough = ahead.sittings >= sittings_needed(target, ahead.confidence)
    if target > ahead.law.shares[-1] and not fine_enough:
        return Verdict.TARGET_BEYOND_HORIZON
    if not ahead.sittings:
        return Verdict.FROM_OTHER_PROJECTS
    if cap >= prunable:
        return Verdict.CAP_HAS_NO_EFFECT
    if ahead.weight < 0.5:
        return Verdict.FROM_OTHER_PROJECTS
    return Verdict.HORIZON_TOO_SHORT if far_share > 1 - target else Verdict.OK
