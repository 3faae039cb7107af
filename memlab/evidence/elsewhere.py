"""What a cap would be by other projects' references alone: the law, asked."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from memlab import arguments
from memlab.columns import MEMORIES
from memlab.evidence.ahead import Ahead
from memlab.evidence.law import DEFAULT_CONFIDENCE, MIDDLE, SEEN, Law, fitted_law, rank_at
from memlab.text import Sheet, Shown

NUMBERS: Final = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)

PROJECT: Final = "project"
SHARE: Final = "share"
CAP: Final = "cap"
LOW: Final = "low"
HIGH: Final = "high"

_ALONG: Final = 60
"""Points of a drawn law."""


@dataclass(frozen=True, repr=False)
class CapElsewhere(Shown):
    """The cap that serves a share of references, by what other projects referred to.

    Attributes
    ----------
    memories : int
        Prunable memories written.
    share : float
        Of the references that arise until the store has doubled.
    cap : int
        Expected.
    low, high : int
        Limits: `high` is the cap to set where nothing of the store itself is known.
    confidence : float
        Of each limit on its own.
    seen : bool
        Whether the law was seen in stores of this size; where not, the limits are wider.
    projects : int
        How many it was seen in.
    """

    memories: int
    share: float
    cap: int
    low: int
    high: int
    confidence: float
    seen: bool
    projects: int

    def sheet(self) -> Sheet:
        """Return what is printed."""
        fewest, most = SEEN
        where = f"{fewest:,} to {most:,} memories"
        facts = [
            (
                "limits",
                f"{self.low:,} to {self.high:,}, each at {self.confidence:.0%} confidence",
            ),
            ("to be safe", f"keep_recent = {self.high:,}"),
            ("holds until", f"{2 * self.memories:,} memories have been written"),
            (
                "evidence",
                f"{in_words(self.projects)} other projects at {where}"
                + ("" if self.seen else "; not seen at this size, so the limits are wider"),
            ),
        ]
        title = (
            f"keep_recent = {self.cap:,} serves {100 * self.share:.4g}% of references where "
            f"{self.memories:,} memories have been written"
        )
        return Sheet(title, facts)


def law(
    memories: int, share: float = 0.9, *, confidence: float = DEFAULT_CONFIDENCE
) -> CapElsewhere:
    """Return the cap that serves a share of references, by other projects alone.

    Parameters
    ----------
    memories : int
        Prunable memories written so far, 0 or more.
    share : float
        Share of references to serve until as many have been written again, above 0 and below 1.
    confidence : float
        Of each limit on its own, above 0.5 and below 1.

    Returns
    -------
    CapElsewhere

    Raises
    ------
    ValueError
        When an argument is out of its range.

    Examples
    --------
    >>> law(1_000, 0.9)
    keep_recent = 189 serves 90% of references where 1,000 memories have been written
      limits       65 to 497, each at 90% confidence
      to be safe   keep_recent = 497
      holds until  2,000 memories have been written
      evidence     nine other projects at 250 to 16,000 memories
    """
    memories = arguments.whole_number("memories", memories)
    share = arguments.share("share", share)
    confidence = arguments.confidence(confidence)
    cap, low, high = _ahead(fitted_law(), memories, confidence).cap_for(share)
    fewest, most = SEEN
    return CapElsewhere(
        memories,
        share,
        cap,
        low,
        high,
        confidence,
        fewest <= memories <= most,
        len(fitted_law().projects),
    )


def law_lines(share: float = 0.9, *, confidence: float = DEFAULT_CONFIDENCE) -> pd.DataFrame:
    """Return what `memlab.charts.plot_law` draws: the law along a store's size, and each project.

    Parameters
    ----------
    share : float
        Share of references to serve, above 0 and below 1.
    confidence : float
        Of each limit on its own, above 0.5 and below 1.

    Returns
    -------
    DataFrame
        Columns ``project`` (missing for the law itself), ``share``, ``memories``, ``cap``, and
        ``low`` and ``high``, which a project has not.

    Raises
    ------
    ValueError
        When an argument is out of its range.
    """
    share = arguments.share("share", share)
    confidence = arguments.confidence(confidence)
    fitted = fitted_law()
    sizes = np.geomspace(*SEEN, _ALONG).round().astype(np.int64)
    caps = [_ahead(fitted, int(size), confidence).cap_for(share) for size in sizes]
    itself = pd.DataFrame(caps, columns=[CAP, LOW, HIGH]).assign(**{MEMORIES: sizes, PROJECT: None})
    lines = pd.concat([itself, *_project_lines(fitted, share)], ignore_index=True)
    lines[SHARE] = share
    return lines[[PROJECT, SHARE, MEMORIES, CAP, LOW, HIGH]].astype({PROJECT: "str"})


def in_words(number: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _ahead(fitted: Law, memories: int, confidence: float) -> Ahead:
    return Ahead(fitted, memories, np.empty(0), np.empty(0), 0, confidence)


def _project_lines(fitted: Law, share: float) -> list[pd.DataFrame]:
    """Return each project's cap at the beginning of its stretches, between shares by its reach."""
    lines = []
    for project in fitted.projects:
        shares = sorted(map(float, project.reach))
        by_share = np.array([project.reach[str(each)] for each in shares])
        reach = [np.interp(share, shares, column) for column in by_share.T]
        caps = rank_at(reach, MIDDLE * np.array(project.memories))
        lines.append(pd.DataFrame({PROJECT: project.name, MEMORIES: project.memories, CAP: caps}))
    return lines
