"""What the next stretch of a store will take: the law and the store's own references together."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.evidence import prior
from memlab.evidence.prior import Evidence, Floats, Law
from memlab.text import Sheet, Shown, counted

Ints = npt.NDArray[np.int64]

LEVELS: Final = np.arange(1, 1000) / 1000
"""Shares of references for which a cap is known; for others, that of the next higher. Beyond the
last it is all that there will be."""

_BLUR: Final = 1e-6
"""Caps are computed by logarithms: a whole one may come out this much beside itself."""


@dataclass(frozen=True)
class Terms:
    """What a number goes by beside the store: how surely, for how long, and what others needed."""

    confidence: float = prior.DEFAULT_CONFIDENCE
    until: float = prior.DEFAULT_UNTIL
    law: Law = field(default_factory=prior.fitted_law)

    def __post_init__(self) -> None:
        arguments.confidence("confidence", self.confidence)
        arguments.until("until", self.until)


@dataclass(frozen=True)
class Posterior:
    """The cap that each share of the next stretch's references takes, with limits.

    A normal prior, the law, and the store's own reach, share by share, weighed by `weight`.
    """

    terms: Terms
    memories: int
    own: Floats
    recency: Floats
    sittings: int
    always: float = 0.0
    widened: float = 1.0

    @cached_property
    def weight(self) -> float:
        """How much of the answer comes from the store's own references, from 0 to 1."""
        return self.terms.law.weight_of(self.sittings)

    @cached_property
    def caps(self) -> Floats:
        """The cap for each level by both together."""
        return self._caps(self._reach)

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper limits of the cap for each level."""
        lower, upper = prior.limits_of(
            LEVELS,
            self._reach,
            self.terms.law.spread_at(LEVELS, self.memories, weight=self.weight),
            quantile=self.widened * NormalDist().inv_cdf(self.terms.confidence),
            references=self.terms.law.references_ahead(self.memories),
        )
        return self._caps(lower), self._caps(upper)

    @property
    def everything(self) -> int:
        """The cap that serves every reference of the stretch: all there is at its end."""
        return math.ceil(self.terms.until * max(self.memories, 1) - _BLUR)

    @property
    def middle(self) -> float:
        """Memories written at the middle of the stretch."""
        return prior.middle_of(self.terms.until) * self.memories

    def cap_for(self, share: float) -> tuple[int, int, int]:
        """Return the cap that serves a share, and its lower and upper limit."""
        losable = (share - self._free) / (1 - self._free)
        if losable <= 0:
            return 0, 0, 0
        place = int(np.searchsorted(LEVELS, losable - 1e-9))
        lower, upper = self.limits
        if place == len(LEVELS):
            return self.everything, int(lower[-1] + _BLUR), self.everything
        return (
            int(np.ceil(self.caps[place] - _BLUR)),
            int(lower[place] + _BLUR),
            int(np.ceil(upper[place] - _BLUR)),
        )

    def share_at(self, caps: Ints) -> Floats:
        """Return the share of references that each cap serves."""
        return self._served(caps, self.caps, self._free)

    def own_share_at(self, caps: Ints) -> Floats:
        """Return the same by the store's own references alone; NaN without any."""
        if not len(self.own):
            return np.full(len(caps), self.always or np.nan)
        return self._served(caps, self._caps(self._own_reach), self.always)

    def law_share_at(self, caps: Ints) -> Floats:
        """Return the same by the law alone."""
        return self._served(caps, self._caps(self.terms.law.reach_at(LEVELS)), 0.0)

    def limits_at(self, caps: Ints) -> tuple[Floats, Floats]:
        """Return the lower and upper limit of the share that each cap serves, around that share."""
        lower, upper = self.limits
        share = self.share_at(caps)
        place = np.searchsorted(lower, caps + _BLUR, side="right")
        high = self._free + (1 - self._free) * np.append(LEVELS, 1.0)[place]
        low = self._served(caps, upper, self._free)
        return np.minimum(low, share), np.maximum(high, share)

    @property
    def _free(self) -> float:
        """What every cap serves, as far as it is known; the law knows of none."""
        return self.weight * self.always

    @cached_property
    def _own_reach(self) -> Floats:
        upto = np.cumsum(self.recency)
        reach: Floats = self.own[np.searchsorted(upto, LEVELS * upto[-1] * (1 - 1e-12))]
        return reach

    @cached_property
    def _reach(self) -> Floats:
        law = self.terms.law.reach_at(LEVELS)
        if not len(self.own):
            return law
        return self.weight * self._own_reach + (1 - self.weight) * law

    def _caps(self, reach: Floats) -> Floats:
        return prior.rank_at(reach, self.middle)

    def _served(self, caps: Ints, needed: Floats, free: float) -> Floats:
        """Return the largest level whose cap is there, beside what is free."""
        needed = np.append(needed, self.everything)
        level = np.concatenate([[0.0], LEVELS, [1.0]])
        served = level[np.searchsorted(needed, caps + _BLUR, side="right")]
        share: Floats = free + (1 - free) * served
        return share


NUMBERS: Final = (
    *("no", "one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
)

PROJECT: Final = "project"
SHARE: Final = "share"
EVIDENCE_KIND: Final = "evidence"
CAP: Final = "cap"
LOW: Final = "low"
HIGH: Final = "high"

_ALONG: Final = 60
"""Points of a drawn law."""


@dataclass(frozen=True, repr=False)
class PriorCap(Shown):
    """The cap that serves a share of later needs, by what was needed elsewhere."""

    memories: int
    share: float
    cap: int
    low: int
    high: int
    confidence: float
    seen: bool
    projects: int
    evidence: Evidence = "references"
    until: float = prior.DEFAULT_UNTIL

    def sheet(self) -> Sheet:
        """Return what is printed."""
        fewest, most = prior.fitted_law(self.evidence).seen
        where = f"{fewest:,} to {counted(most, 'memories')}"
        others = "other projects" if self.evidence == "references" else "stores that are searched"
        end = math.ceil(self.until * self.memories)
        unseen = "" if self.seen else "; not seen at this size, so the limits are wider"
        limits = f"{self.low:,} to {self.high:,}, each at {self.confidence:.0%} confidence"
        facts = [
            ("limits", limits),
            ("to be safe", f"keep_recent = {self.high:,}"),
            ("holds until", f"{end:,} memories have been written"),
            ("evidence", f"{in_words(self.projects)} {others} at {where}{unseen}"),
        ]
        title = (
            f"keep_recent = {self.cap:,} serves {100 * self.share:.4g}% of {self.evidence} where "
            f"{self.memories:,} memories have been written"
        )
        return Sheet(title, facts)


def law(
    memories: int,
    share: float = 0.9,
    *,
    evidence: Evidence = "references",
    confidence: float = prior.DEFAULT_CONFIDENCE,
    until: float = prior.DEFAULT_UNTIL,
) -> PriorCap:
    """Return the cap that serves a share of later needs, by what was needed elsewhere.

    References by name, such as one change makes to another, fall off with age. What an agent opens
    after a search hardly does: a cap by age that serves nine in ten reads saves little.

    Parameters
    ----------
    memories : int
        Prunable memories written so far, 0 or more.
    share : float
        Share of needs to serve, above 0 and below 1.
    evidence : {"references", "reads"}
        What the needs are: memories that later ones name, in nine public projects; or notes that
        agents found by searching, in 32 public stores.
    confidence : float
        Of each limit on its own, above 0.5 and below 1.
    until : float
        How many times what is written now the number speaks for, above 1.

    Examples
    --------
    >>> law(1_000, 0.9)
    keep_recent = 153 serves 90% of references where 1,000 memories have been written
      limits       27 to 518, each at 90% confidence
      to be safe   keep_recent = 518
      holds until  1,200 memories have been written
      evidence     nine other projects at 250 to 16,000 memories
    >>> law(1_000, 0.9, evidence="reads").cap
    683
    """
    memories = arguments.whole_number("memories", memories)
    share = arguments.share("share", share)
    arguments.expect(evidence, str, call="memlab.law", name="evidence")
    fitted = prior.fitted_law(evidence)
    terms = Terms(confidence, until, fitted)
    caps = _ahead(terms, memories).cap_for(share)
    fewest, most = fitted.seen
    seen = fewest <= memories <= most
    projects = len(fitted.projects)
    return PriorCap(memories, share, *caps, confidence, seen, projects, evidence, until)


def law_lines(
    share: float = 0.9,
    *,
    evidence: Evidence = "references",
    confidence: float = prior.DEFAULT_CONFIDENCE,
    until: float = prior.DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Return what `memlab.charts.plot_law` draws: the law along a store's size, and each project.

    The arguments are those of :func:`memlab.law`. Columns ``project`` (missing for the law itself),
    `share`, `evidence`, `memories`, `cap`, and of the law `low` and `high`.
    """
    share = arguments.share("share", share)
    fitted = prior.fitted_law(evidence)
    sizes = np.geomspace(*fitted.seen, _ALONG).round().astype(np.int64)
    terms = Terms(confidence, until, fitted)
    caps = [_ahead(terms, int(size)).cap_for(share) for size in sizes]
    itself = pd.DataFrame(caps, columns=[CAP, LOW, HIGH]).assign(
        **{c.MEMORIES: sizes, PROJECT: None}
    )
    lines = pd.concat([itself, *_project_lines(terms, share)], ignore_index=True)
    lines[SHARE], lines[EVIDENCE_KIND] = share, evidence
    columns = [PROJECT, SHARE, EVIDENCE_KIND, c.MEMORIES, CAP, LOW, HIGH]
    return lines[columns].astype({PROJECT: "str", EVIDENCE_KIND: "str"})


def in_words(number: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _ahead(terms: Terms, memories: int) -> Posterior:
    return Posterior(terms, memories, np.empty(0), np.empty(0), 0)


def _project_lines(terms: Terms, share: float) -> list[pd.DataFrame]:
    """Return each project's cap at the beginning of its stretches, between shares by its reach."""
    lines = []
    for project in terms.law.projects:
        shares = sorted(map(float, project.reach))
        by_share = np.array([project.reach[str(each)] for each in shares])
        reach = [np.interp(share, shares, column) for column in by_share.T]
        caps = prior.rank_at(reach, prior.middle_of(terms.until) * np.array(project.memories))
        lines.append(pd.DataFrame({PROJECT: project.name, c.MEMORIES: project.memories, CAP: caps}))
    return lines
