"""The law: how far back later needs reach; with a store's own, what its next stretch will take.

A need's *reach* is the power to which the number of memories written is raised to give the age rank
of its target: 0 the newest, 1 the oldest. docs/how/law.md has the figures;
``data/fit_law.py`` fitted ``laws/``.
"""

import json
import math
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from statistics import NormalDist
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.frame.fields import Floats, Ints
from memlab.text import DisplayMixin, TextPage, counted

Numbers = npt.ArrayLike

Evidence = Literal["references", "reads"]
"""How a later need shows: a later memory names the memory, or an agent that searched opened it."""

EVIDENCE: Final[tuple[Evidence, ...]] = get_args(Evidence)

STRETCH: Final = 2.0
"""A stretch of a history, in fits, lasts until this many times what there was has been written."""

DEFAULT_UNTIL: Final = 1.2
"""How many times what is written now a number speaks for: who sizes again and again, every night or
every week, need not look a doubling ahead."""

DEFAULT_TARGET: Final = 0.9
"""The share of references to serve where nobody has said one."""

DEFAULT_CONFIDENCE: Final = 0.9
"""Of each limit on its own."""

JUDGED: Final = 1.3
"""A number is judged by the references that come until this many times what there is is written, so
few that their share is noise too. Whatever the horizon: a longer one never asks for less."""

FEWEST_AHEAD: Final = 5.0
"""References that the next stretch is taken to bring at least: a share of fewer says little."""


_MOMENTS: Final = 9
"""Sizes of a store, evenly spaced over a stretch, at which needs are taken to arise."""


LEVELS: Final = np.arange(1, 1000) / 1000
"""Shares of references for which a cap is known; for others, that of the next higher. Beyond the
last it is all that there will be."""


class Project(NamedTuple):
    """What the needs of one project, or one store, took: a thin line in the chart of the law."""

    name: str
    memories: tuple[int, ...]
    reach: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class ReachPrior:
    """The reach that serves a share of needs, and how projects differ from it."""

    shares: tuple[float, ...]
    reach: tuple[float, ...]
    between: tuple[float, ...]
    within: tuple[float, ...]
    noise: tuple[float, ...]
    worth: float
    pace: tuple[float, float]
    seen: tuple[int, int]
    projects: tuple[Project, ...] = ()
    source: str = ""

    def reach_at(self, levels: Floats) -> Floats:
        """Return the reach that serves each share; no reach serves none, 1 serves all."""
        found: Floats = np.interp(levels, (0, *self.shares, 1), (0, *self.reach, 1))
        return found

    def spread_at(self, levels: Floats, memories: float, *, weight: float = 0.0) -> Floats:
        """Return the spread of a project's next stretch, wider each doubling beyond the law's."""
        between, within = (
            np.interp(levels, (0, *self.shares, 1), (0, *spread, 0))
            for spread in (self.between, self.within)
        )
        beyond = self.doublings_beyond(memories)
        found: Floats = np.sqrt((1 - weight) * between**2 + (1 + beyond) * within**2)
        return found

    def doublings_beyond(self, memories: float) -> float:
        """Return how many doublings a store is away from those at which the law was seen."""
        fewest, most = self.seen
        return float(max(0.0, np.log2(fewest / max(memories, 1.0)), np.log2(memories / most or 1)))

    def weight_of(self, references: int) -> float:
        """Return how much a store's own references say of it, beside the law: from 0 to 1."""
        return references / (references + self.worth)

    def references_ahead(self, memories: float) -> float:
        """Return about how many references come while a number is judged."""
        scale, power = self.pace
        share = (JUDGED**power - 1) / (STRETCH**power - 1)
        return max(float(share * scale * memories**power), FEWEST_AHEAD)

    def joined(self, other: "ReachPrior", share: float) -> "ReachPrior":
        """Return the law of needs of which a `share` follow the other law, each by its kind."""
        if not 0 < share < 1:
            return other if share else self
        parts = (1 - share, share)
        reach = np.concatenate([law.reach_at(LEVELS) for law in (self, other)])
        weights = np.repeat(parts, len(LEVELS))
        together = np.quantile(reach, self.shares, method="inverted_cdf", weights=weights)
        between = dict[str, Any]()
        for name in ("between", "within", "noise", "worth", "pace"):
            pair = getattr(self, name), getattr(other, name)
            between[name] = _frozen(np.average(pair, axis=0, weights=parts).tolist())
        seen = np.exp(np.average(np.log([self.seen, other.seen]), axis=0, weights=parts))
        return replace(
            self,
            reach=tuple(together.tolist()),
            **between,
            seen=tuple(seen.round().astype(int).tolist()),
            projects=self.projects + other.projects,
            source=f"{self.source}; {other.source}",
        )

    @classmethod
    def from_json(cls, text: str) -> "ReachPrior":
        """Return the law that a file of ``laws/`` holds."""
        fields = {name: _frozen(value) for name, value in json.loads(text).items()}
        projects = (Project(**project) for project in fields.pop("projects"))
        return cls(**fields, projects=tuple(projects))


@cache
def fitted_law(evidence: Evidence = "references") -> ReachPrior:
    """Return the law as fitted on public histories of one kind of evidence."""
    if evidence not in EVIDENCE:
        raise ValueError(f"evidence must be one of {', '.join(EVIDENCE)}, not {evidence!r}")
    text = files("memlab.evidence").joinpath("laws", f"{evidence}.json").read_text("utf-8")
    return ReachPrior.from_json(text)


def mixture_prior(reads: float) -> ReachPrior:
    """Return the law of needs of which a share are reads, the others references by name."""
    return fitted_law("references").joined(fitted_law("reads"), reads)


def log_rank_fraction(rank: Numbers, written: Numbers) -> Floats:
    """Return the power of the memories written that an age rank is: 0 for none, 1 for all."""
    found: Floats = np.log1p(rank) / np.maximum(np.log1p(written), np.log(2))
    return found


def middle_of(until: float) -> float:
    """Return the memories at the middle of a stretch, in logarithms, beside those at its start."""
    return float(np.exp(until * np.log(until) / (until - 1) - 1))


def rank_at(reach: Numbers, written: Numbers) -> Floats:
    """Return the age rank that a reach is among so many memories written."""
    found: Floats = np.expm1(np.asarray(reach) * np.log1p(written))
    return found


def caps_over(reach: Floats, memories: float, until: float) -> Floats:
    """Return the cap that serves each share of the needs of a stretch in which a store grows.

    A need that reaches to the oldest memory takes a larger cap at the end of the stretch than at
    its beginning. So the caps are quantiles of the age ranks over the whole stretch, in which needs
    come evenly with what is written, and not the age ranks at its middle.

    Parameters
    ----------
    reach : array of float64, shape (n,)
        The reach at n evenly spaced shares of needs, increasing, such as at `LEVELS`.
    memories : float
        Memories written when the stretch begins.
    until : float
        The stretch ends when this many times as many have been written.

    Returns
    -------
    array of float64, shape (n,)
        Caps for the same shares.

    Examples
    --------
    >>> all_reach_to_the_oldest = np.ones(9)
    >>> caps_over(all_reach_to_the_oldest, 100, 2.0).round().astype(int).tolist()
    [106, 117, 128, 139, 150, 161, 172, 183, 194]
    """
    steps = (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    sizes = max(memories, 0) * (1 + (until - 1) * steps)
    ranks = np.sort(rank_at(reach[:, None], sizes[None, :]), axis=None)
    count = len(reach)
    shares = np.arange(1, count + 1) / (count + 1)
    places = np.ceil(shares * len(ranks) - 1e-9).astype(np.int64) - 1
    found: Floats = ranks[places]
    return found


def limits_of(
    levels: Floats, reach: Floats, spread: Floats, *, quantile: float, references: float
) -> tuple[Floats, Floats]:
    """Return lower and upper limits of the reach that serves each share in a stretch to come.

    Projects differ by `spread`; a stretch's share at a fixed reach varies in its logit by
    ``1 / sqrt(n s (1 - s))``, which moves the reach along its own curve.
    """
    step = quantile / np.sqrt(references * levels * (1 - levels))
    logit = np.log(levels / (1 - levels))
    ends = np.concatenate([[0], levels, [1]])
    curve = np.concatenate([[0], reach, [1]])
    less, more = (np.interp(1 / (1 + np.exp(-logit - s)), ends, curve) for s in (-step, step))
    lower = reach - np.hypot(quantile * spread, reach - less)
    upper = reach + np.hypot(quantile * spread, more - reach)
    return (
        np.clip(np.maximum.accumulate(lower), 0, 1),
        np.clip(np.minimum.accumulate(upper[::-1])[::-1], 0, 1),
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_BLUR: Final = 1e-6
"""Caps are computed by logarithms: a whole one may come out this much beside itself."""


@dataclass(frozen=True)
class PosteriorSettings:
    """What a number goes by beside the store: how surely, for how long, and what others needed."""

    confidence: float = DEFAULT_CONFIDENCE
    until: float = DEFAULT_UNTIL
    law: ReachPrior = field(default_factory=fitted_law)

    def __post_init__(self) -> None:
        arguments.confidence("confidence", self.confidence)
        arguments.until("until", self.until)


@dataclass(frozen=True)
class Posterior:
    """The cap that each share of the next stretch's references takes, with limits.

    A normal prior, the law, and the store's own reach, share by share, weighed by `weight`.
    """

    terms: PosteriorSettings
    memories: int
    own: Floats
    recency: Floats
    cluster_count: int
    always: float = 0.0
    interval_inflation: float = 1.0

    @cached_property
    def weight(self) -> float:
        """How much of the answer comes from the store's own references, from 0 to 1."""
        return self.terms.law.weight_of(self.cluster_count)

    @cached_property
    def caps(self) -> Floats:
        """The cap for each level by both together."""
        return self._caps(self._reach)

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper limits of the cap for each level."""
        lower, upper = limits_of(
            LEVELS,
            self._reach,
            self.terms.law.spread_at(LEVELS, self.memories, weight=self.weight),
            quantile=self.interval_inflation * NormalDist().inv_cdf(self.terms.confidence),
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
        return middle_of(self.terms.until) * self.memories

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
        return caps_over(reach, self.memories, self.terms.until)

    def _served(self, caps: Ints, needed: Floats, free: float) -> Floats:
        """Return the largest level whose cap is there, beside what is free."""
        needed = np.append(needed, self.everything)
        level = np.concatenate([[0.0], LEVELS, [1.0]])
        served = level[np.searchsorted(needed, caps + _BLUR, side="right")]
        share: Floats = free + (1 - free) * served
        return share


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
EVIDENCE_KIND: Final = "evidence"
CAP: Final = "cap"
LOW: Final = "low"
HIGH: Final = "high"

_ALONG: Final = 60
"""Points of a drawn law."""


@dataclass(frozen=True, repr=False)
class PriorCap(DisplayMixin):
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
    until: float = DEFAULT_UNTIL

    def sheet(self) -> TextPage:
        """Return what is printed."""
        fewest, most = fitted_law(self.evidence).seen
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
        return TextPage(title, facts)


def law(
    memories: int,
    share: float = 0.9,
    *,
    evidence: Evidence = "references",
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
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
      limits       27 to 517, each at 90% confidence
      to be safe   keep_recent = 517
      holds until  1,200 memories have been written
      evidence     nine other projects at 250 to 16,000 memories
    >>> law(1_000, 0.9, evidence="reads").cap
    724
    """
    memories = arguments.whole_number("memories", memories)
    share = arguments.share("share", share)
    arguments.expect(evidence, str, call="memlab.law", name="evidence")
    fitted = fitted_law(evidence)
    terms = PosteriorSettings(confidence, until, fitted)
    caps = _ahead(terms, memories).cap_for(share)
    fewest, most = fitted.seen
    seen = fewest <= memories <= most
    projects = len(fitted.projects)
    return PriorCap(memories, share, *caps, confidence, seen, projects, evidence, until)


def law_lines(
    share: float = 0.9,
    *,
    evidence: Evidence = "references",
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Return what `memlab.charts.plot_law` draws: the law along a store's size, and each project.

    The arguments are those of :func:`memlab.law`. Columns ``project`` (missing for the law itself),
    `share`, `evidence`, `memories`, `cap`, and of the law `low` and `high`.
    """
    share = arguments.share("share", share)
    fitted = fitted_law(evidence)
    sizes = np.geomspace(*fitted.seen, _ALONG).round().astype(np.int64)
    terms = PosteriorSettings(confidence, until, fitted)
    caps = [_ahead(terms, int(size)).cap_for(share) for size in sizes]
    itself = pd.DataFrame(caps, columns=[CAP, LOW, HIGH]).assign(
        **{c.MEMORIES: sizes, PROJECT: None}
    )
    lines = pd.concat([itself, *_project_lines(terms, share)], ignore_index=True)
    lines[SHARE] = share
    lines[EVIDENCE_KIND] = evidence
    columns = [PROJECT, SHARE, EVIDENCE_KIND, c.MEMORIES, CAP, LOW, HIGH]
    return lines[columns].astype({PROJECT: "str", EVIDENCE_KIND: "str"})


def in_words(number: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _ahead(terms: PosteriorSettings, memories: int) -> Posterior:
    return Posterior(terms, memories, np.empty(0), np.empty(0), 0)


def _project_lines(terms: PosteriorSettings, share: float) -> list[pd.DataFrame]:
    """Return each project's cap at the beginning of its stretches, between shares by its reach."""
    lines = []
    for project in terms.law.projects:
        shares = sorted(map(float, project.reach))
        by_share = np.array([project.reach[str(each)] for each in shares])
        reach = [np.interp(share, shares, column) for column in by_share.T]
        caps = rank_at(reach, middle_of(terms.until) * np.array(project.memories))
        lines.append(pd.DataFrame({PROJECT: project.name, c.MEMORIES: project.memories, CAP: caps}))
    return lines
