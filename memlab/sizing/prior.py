"""The prior of reaches from other projects, and its posterior with a store's own references.

A reference's *reach* is the power to which the number of memories written is raised to give the
age rank of its target: 0 for the newest memory, 1 for the oldest. An age rank is the stack distance
of a reference (Mattson et al. 1970, "Evaluation techniques for storage hierarchies"): the smallest
cap that still serves it. The prior is fitted to many projects and combined with each store's own
data, as in empirical Bayes (Efron and Morris 1973). docs/how/law.md has the figures;
``data/fit_law.py`` fitted the files in ``evidence/laws/``.
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
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_TARGET, DEFAULT_UNTIL
from memlab.frame.fields import Floats, Ints
from memlab.text import DisplayMixin, TextPage, counted, percent_as_given

Numbers = npt.ArrayLike

Evidence = Literal["references", "reads"]
"""Kind of evidence: a later memory names the memory, or an agent opened it after a search."""

EVIDENCE: Final[tuple[Evidence, ...]] = get_args(Evidence)

STRETCH: Final = 2.0
"""Growth over a stretch of a fitted history: the ratio of the memories written at its end to those
at its beginning."""

EVALUATED_GROWTH: Final = 1.3
"""The references that a cap must serve are those that arise until the number of memories written
has grown by this factor. It does not depend on the horizon, so that a longer horizon never gives a
smaller number."""

MIN_REFERENCES_AHEAD: Final = 5.0
"""Smallest number of references that the next stretch is assumed to bring."""


_STORE_SIZES: Final = 9
"""Number of store sizes, evenly spaced over a stretch, at which references are assumed to arise."""


LEVELS: Final = np.arange(1, 1000) / 1000
"""Shares of references for which a cap is computed. Another share gets the cap of the next higher
level; above the last level the cap is the number of all memories."""


class Project(NamedTuple):
    """Reaches of the references of one project or store: a thin line in the chart of the prior.

    Attributes
    ----------
    name : str
    memories : tuple of int
        Memories written when each of the project's stretches begins.
    reach : dict of str to tuple of float
        By share of references, such as ``"0.9"``: the reach that serves it in each stretch.
    """

    name: str
    memories: tuple[int, ...]
    reach: dict[str, tuple[float, ...]]


class CapWithLimits(NamedTuple):
    """A cap that serves a share of references, with its lower and upper limit, in memories."""

    cap: int
    low: int
    high: int


class Limits(NamedTuple):
    """Lower and upper limits of a quantity, such as the cap at each of `LEVELS`."""

    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class ReachPrior:
    """Prior of the reach that serves each share of references, fitted to other projects.

    Attributes
    ----------
    shares, reach : tuple of float
        Shares of references, and the mean reach that serves each.
    between, within : tuple of float
        Standard deviation of the reach at each share: between projects, and between the stretches
        of one project.
    noise : tuple of float
        Standard deviation of the reach at each share that is due to chance, because a stretch has
        only a limited number of references.
    worth : float
        Strength of the prior, in clusters of references: with as many clusters, a store's own
        references weigh as much as the prior.
    pace : tuple of float
        Scale and power of the number of references in a stretch: ``scale * memories ** power``,
        where `memories` have been written when the stretch begins.
    seen : tuple of int
        Smallest and largest store in the fit, in memories.
    projects : tuple of Project
        Data of the fit.
    source : str
        Description of the data.
    """

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
        """Return the reach that serves each share, interpolated: 0 serves none, 1 serves all."""
        reach: Floats = np.interp(levels, (0, *self.shares, 1), (0, *self.reach, 1))
        return reach

    def spread_at(self, levels: Floats, memories: float, *, weight: float = 0.0) -> Floats:
        """Return the standard deviation of the reach in a project's next stretch, at each share.

        It grows with each doubling of the store beyond the sizes in the fit. `weight` is the
        weight of the store's own references.
        """
        shares = (0, *self.shares, 1)
        between = np.interp(levels, shares, (0, *self.between, 0))
        within = np.interp(levels, shares, (0, *self.within, 0))
        doublings = self.doublings_beyond(memories)
        spread: Floats = np.sqrt((1 - weight) * between**2 + (1 + doublings) * within**2)
        return spread

    def doublings_beyond(self, memories: float) -> float:
        """Return the number of doublings between a store's size and the nearest size in the fit."""
        smallest, largest = self.seen
        size = max(memories, 1.0)
        if size < smallest:
            return math.log2(smallest / size)
        if size > largest:
            return math.log2(size / largest)
        return 0.0

    def weight_of(self, references: int) -> float:
        """Return the weight of a store's own references beside the prior, from 0 to 1.

        It is ``n / (n + worth)``, the shrinkage weight of a normal mean under a normal prior.
        """
        return references / (references + self.worth)

    def references_ahead(self, memories: float) -> float:
        """Return the expected number of references until `EVALUATED_GROWTH` is reached."""
        scale, power = self.pace
        references_in_stretch = scale * memories**power
        part_of_stretch = (EVALUATED_GROWTH**power - 1) / (STRETCH**power - 1)
        return max(float(part_of_stretch * references_in_stretch), MIN_REFERENCES_AHEAD)

    def joined(self, other: "ReachPrior", share: float) -> "ReachPrior":
        """Return the prior of a mixture in which a `share` of references follows `other`.

        The reach at each share is a quantile of the mixture. The sizes in `seen` are weighted
        geometric means, the other parameters weighted arithmetic means.
        """
        if share <= 0:
            return self
        if share >= 1:
            return other
        weights_of_priors = (1 - share, share)
        reach = np.concatenate([self.reach_at(LEVELS), other.reach_at(LEVELS)])
        weights = np.repeat(weights_of_priors, len(LEVELS))
        mixed = np.quantile(reach, self.shares, method="inverted_cdf", weights=weights)

        def weighted_mean(own_value: Any, other_value: Any) -> Any:
            """Return the mean of a parameter of both priors: a number, or a tuple of numbers."""
            mean = np.average((own_value, other_value), axis=0, weights=weights_of_priors)
            return _with_tuples(mean.tolist())

        log_sizes = np.log([self.seen, other.seen])
        sizes = np.exp(np.average(log_sizes, axis=0, weights=weights_of_priors))
        return replace(
            self,
            reach=tuple(mixed.tolist()),
            between=weighted_mean(self.between, other.between),
            within=weighted_mean(self.within, other.within),
            noise=weighted_mean(self.noise, other.noise),
            worth=weighted_mean(self.worth, other.worth),
            pace=weighted_mean(self.pace, other.pace),
            seen=tuple(sizes.round().astype(int).tolist()),
            projects=self.projects + other.projects,
            source=f"{self.source}; {other.source}",
        )

    @classmethod
    def from_json(cls, text: str) -> "ReachPrior":
        """Return the prior that the text of a file in ``laws/`` holds."""
        fields = {name: _with_tuples(value) for name, value in json.loads(text).items()}
        projects = (Project(**project) for project in fields.pop("projects"))
        return cls(**fields, projects=tuple(projects))


@cache
def fitted_law(evidence: Evidence = "references") -> ReachPrior:
    """Return the prior that was fitted to public histories of one kind of evidence.

    Raises
    ------
    ValueError
        If `evidence` is not one of `EVIDENCE`.
    """
    if evidence not in EVIDENCE:
        raise ValueError(f"evidence must be one of {', '.join(EVIDENCE)}, not {evidence!r}")
    text = files("memlab.evidence").joinpath("laws", f"{evidence}.json").read_text("utf-8")
    return ReachPrior.from_json(text)


def mixture_prior(share_of_reads: float) -> ReachPrior:
    """Return the prior for a mixture of reads and of references by name."""
    return fitted_law("references").joined(fitted_law("reads"), share_of_reads)


def log_rank_fraction(rank: Numbers, written: Numbers) -> Floats:
    """Return the reach of an age rank: ``log(1 + rank) / log(1 + written)``.

    Examples
    --------
    >>> log_rank_fraction([0, 30, 960], [960, 960, 960]).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    reach: Floats = np.log1p(rank) / np.maximum(np.log1p(written), np.log(2))
    return reach


def geometric_mean_growth(until: float) -> float:
    """Return the geometric mean size of a store over a stretch, divided by its size at the start.

    The store grows evenly from 1 to `until`. The mean of ``log(size)`` over the stretch is
    ``until * log(until) / (until - 1) - 1``.
    """
    return float(np.exp(until * np.log(until) / (until - 1) - 1))


def rank_at(reach: Numbers, written: Numbers) -> Floats:
    """Return the age rank of a reach: the inverse of :func:`log_rank_fraction`."""
    rank: Floats = np.expm1(np.asarray(reach) * np.log1p(written))
    return rank


def caps_over(reach: Floats, memories: float, until: float) -> Floats:
    """Return the cap that serves each share of the references of a stretch in which a store grows.

    A reference to the oldest memory needs a larger cap at the end of the stretch than at its
    beginning. So the caps are quantiles of the age ranks over the whole stretch, and not the age
    ranks at its middle. References are assumed to arise evenly with the memories written.

    Parameters
    ----------
    reach : array of float64, shape (n,)
        The reach at n evenly spaced shares of references, increasing, such as at `LEVELS`.
    memories : float
        Memories written when the stretch begins.
    until : float
        Growth over the stretch: it ends when `until` times `memories` have been written.

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
    midpoints = (np.arange(_STORE_SIZES) + 0.5) / _STORE_SIZES  # of equal parts of the stretch
    sizes = max(memories, 0) * (1 + (until - 1) * midpoints)
    rank_by_size = rank_at(reach[np.newaxis, :], sizes[:, np.newaxis])  # shape (sizes, n)
    # A stable sort merges the sizes, whose ranks increase with the reach.
    ranks = np.sort(rank_by_size, axis=None, kind="stable")
    caps: Floats = ranks[_places_of_shares(len(reach), len(ranks))]
    return caps


@cache
def _places_of_shares(count: int, total: int) -> Ints:
    """Return the place of each of `count` even shares among `total` sorted ranks.

    It is the place of the smallest rank that serves at least the share.
    """
    shares = np.arange(1, count + 1) / (count + 1)
    served_counts = np.ceil(shares * total - 1e-9).astype(np.int64)  # 1e-9: rounding errors
    return served_counts - 1


def limits_of(
    levels: Floats, reach: Floats, spread: Floats, *, quantile: float, references: float
) -> Limits:
    """Return lower and upper limits of the reach that serves each share in the next stretch.

    Two independent deviations are added in quadrature:

    - Projects differ by `spread`, the standard deviation of the reach.
    - Of ``n`` later references, a fixed reach serves a share ``s`` that varies by chance. Its logit
      has the standard deviation ``1 / sqrt(n s (1 - s))`` (delta method). The reach is read from
      its own curve at the lower and at the upper limit of the share.

    Limits do not fall as the share rises, because a cap that serves more is never smaller.
    """
    step = quantile / np.sqrt(references * levels * (1 - levels))
    logit = np.log(levels / (1 - levels))
    all_levels = np.concatenate([[0], levels, [1]])
    all_reaches = np.concatenate([[0], reach, [1]])
    reach_below = np.interp(_expit(logit - step), all_levels, all_reaches)
    reach_above = np.interp(_expit(logit + step), all_levels, all_reaches)
    lower = reach - np.hypot(quantile * spread, reach - reach_below)
    upper = reach + np.hypot(quantile * spread, reach_above - reach)
    # Where a limit falls, the lower one keeps the largest value so far, and the upper one takes
    # the smallest value that follows.
    rising_lower = np.maximum.accumulate(lower)
    rising_upper = np.minimum.accumulate(upper[::-1])[::-1]
    return Limits(lower=np.clip(rising_lower, 0, 1), upper=np.clip(rising_upper, 0, 1))


def _expit(logit: Floats) -> Floats:
    """Return the share with a logit: the logistic function."""
    share: Floats = 1 / (1 + np.exp(-logit))
    return share


def _with_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    if isinstance(value, dict):
        return {name: _with_tuples(member) for name, member in value.items()}
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    return value


_ROUNDING: Final = 1e-6
"""Rounding error of a cap, which is computed by logarithms."""


@dataclass(frozen=True)
class PosteriorSettings:
    """Settings of a posterior: one-sided confidence of its limits, horizon and prior."""

    confidence: float = DEFAULT_CONFIDENCE
    until: float = DEFAULT_UNTIL
    law: ReachPrior = field(default_factory=fitted_law)

    def __post_init__(self) -> None:
        arguments.confidence("confidence", self.confidence)
        arguments.until("until", self.until)


@dataclass(frozen=True)
class Posterior:
    """Posterior of the cap that serves each share of the next stretch's references, with limits.

    At each share, the posterior mean of the reach is the weighted mean of the prior's reach and the
    store's own (empirical Bayes: a normal mean under a normal prior). `weight` is the weight of the
    store's own.

    Attributes
    ----------
    settings : PosteriorSettings
    memories : int
        Prunable memories written so far.
    own_reaches : array of float64, shape (n,)
        Reaches of the store's own references, increasing. References to load-bearing memories are
        left out, because every cap serves them.
    reach_weights : array of float64, shape (n,)
        Weight of each of these references: the number of memories written when it arose.
    cluster_count : int
        Number of clusters of these references: their effective sample size.
    own_share_always_served : float
        Share of the store's own references that every cap serves.
    interval_inflation : float
        Factor by which a backtest widens the limits, 1 or more.
    """

    settings: PosteriorSettings
    memories: int
    own_reaches: Floats
    reach_weights: Floats
    cluster_count: int
    own_share_always_served: float = 0.0
    interval_inflation: float = 1.0

    @cached_property
    def weight(self) -> float:
        """Weight of the store's own references, from 0 to 1."""
        return self.settings.law.weight_of(self.cluster_count)

    @cached_property
    def caps(self) -> Floats:
        """Posterior mean of the cap for each level."""
        return self._caps(self._reach)

    @cached_property
    def limits(self) -> Limits:
        """Lower and upper limits of the cap for each level."""
        reach_limits = limits_of(
            LEVELS,
            self._reach,
            self.settings.law.spread_at(LEVELS, self.memories, weight=self.weight),
            quantile=self.interval_inflation * NormalDist().inv_cdf(self.settings.confidence),
            references=self.settings.law.references_ahead(self.memories),
        )
        return Limits(self._caps(reach_limits.lower), self._caps(reach_limits.upper))

    @property
    def memories_at_horizon(self) -> int:
        """Cap that serves every reference of the stretch: the number of memories at its end."""
        return math.ceil(self.settings.until * max(self.memories, 1) - _ROUNDING)

    @property
    def geometric_mean_size(self) -> float:
        """Geometric mean of the number of memories written, over the stretch."""
        return geometric_mean_growth(self.settings.until) * self.memories

    def cap_for(self, share: float) -> CapWithLimits:
        """Return the cap that serves a share, and its lower and upper limit."""
        # Every cap serves the share `_always_served`; the cap must serve this share of the rest.
        share_of_rest = (share - self._always_served) / (1 - self._always_served)
        if share_of_rest <= 0:
            return CapWithLimits(cap=0, low=0, high=0)
        level = int(np.searchsorted(LEVELS, share_of_rest - 1e-9))
        lower, upper = self.limits
        is_above_last_level = level == len(LEVELS)
        if is_above_last_level:
            return CapWithLimits(
                cap=self.memories_at_horizon,
                low=int(lower[-1] + _ROUNDING),
                high=self.memories_at_horizon,
            )
        return CapWithLimits(
            cap=int(np.ceil(self.caps[level] - _ROUNDING)),
            low=int(lower[level] + _ROUNDING),
            high=int(np.ceil(upper[level] - _ROUNDING)),
        )

    def share_at(self, caps: Ints) -> Floats:
        """Return the share of references that each cap serves."""
        return self._served(caps, self.caps, self._always_served)

    def own_share_at(self, caps: Ints) -> Floats:
        """Return the share of the store's own references that each cap serves.

        It is NaN if the store has no references.
        """
        if not len(self.own_reaches):
            # Either all references are to load-bearing memories, or there are none.
            has_references = self.own_share_always_served > 0
            share = self.own_share_always_served if has_references else np.nan
            return np.full(len(caps), share)
        caps_needed = self._caps(self._own_reach)
        return self._served(caps, caps_needed, self.own_share_always_served)

    def law_share_at(self, caps: Ints) -> Floats:
        """Return the share that each cap serves by the prior alone."""
        return self._served(caps, self._caps(self.settings.law.reach_at(LEVELS)), 0.0)

    def limits_at(self, caps: Ints) -> Limits:
        """Return the lower and the upper limit of the share that each cap serves."""
        lower, upper = self.limits
        share = self.share_at(caps)
        # The smallest level whose lower limit is above the cap; beyond the last level it is 1.
        level = np.searchsorted(lower, caps + _ROUNDING, side="right")
        high_of_rest = np.append(LEVELS, 1.0)[level]
        high = self._always_served + (1 - self._always_served) * high_of_rest
        low = self._served(caps, upper, self._always_served)
        return Limits(lower=np.minimum(low, share), upper=np.maximum(high, share))

    @property
    def _always_served(self) -> float:
        """Share that every cap serves: the weighted mean of the store's own share and 0.

        The prior has no references to load-bearing memories.
        """
        return self.weight * self.own_share_always_served

    @cached_property
    def _own_reach(self) -> Floats:
        """Weighted quantiles of the store's own reaches at `LEVELS`."""
        cumulative_weight = np.cumsum(self.reach_weights)
        weight_at_level = LEVELS * cumulative_weight[-1]
        # 1 - 1e-12 offsets rounding errors
        rows = np.searchsorted(cumulative_weight, weight_at_level * (1 - 1e-12))
        reach: Floats = self.own_reaches[rows]
        return reach

    @cached_property
    def _reach(self) -> Floats:
        """Posterior mean of the reach at `LEVELS`."""
        prior_reach = self.settings.law.reach_at(LEVELS)
        if not len(self.own_reaches):
            return prior_reach
        return self.weight * self._own_reach + (1 - self.weight) * prior_reach

    def _caps(self, reach: Floats) -> Floats:
        """Return the cap that serves each share in the next stretch, from its reach."""
        return caps_over(reach, self.memories, self.settings.until)

    def _served(self, caps: Ints, caps_needed: Floats, always_served: float) -> Floats:
        """Return the share that each cap serves, from the cap that each level needs.

        `always_served` is the share that every cap serves; the levels are shares of the rest.
        """
        caps_needed = np.append(caps_needed, self.memories_at_horizon)
        served_levels = np.concatenate([[0.0], LEVELS, [1.0]])
        met_count = np.searchsorted(caps_needed, caps + _ROUNDING, side="right")
        share_of_rest = served_levels[met_count]
        share: Floats = always_served + (1 - always_served) * share_of_rest
        return share


_NUMBER_WORDS: Final = (
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

_LINE_POINTS: Final = 60
"""Number of points of the drawn prior."""


@dataclass(frozen=True, repr=False)
class PriorCap(DisplayMixin):
    """Cap that serves a share of later references, from other projects alone.

    `low` and `high` are its limits. `seen` tells whether the fit includes stores of this size.
    """

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
        """Return the page that is printed."""
        smallest, largest = fitted_law(self.evidence).seen
        sizes = f"{smallest:,} to {counted(largest, 'memories')}"
        other_stores = (
            "other projects" if self.evidence == "references" else "stores that are searched"
        )
        end = math.ceil(self.until * self.memories)
        unseen = "" if self.seen else "; not seen at this size, so the limits are wider"
        confidence = percent_as_given(self.confidence)
        limits = f"{self.low:,} to {self.high:,}, each at {confidence} confidence"
        facts = [
            ("limits", limits),
            ("to be safe", f"keep_recent = {self.high:,}"),
            ("holds until", f"{counted(end, 'prunable memories')} have been written"),
            ("evidence", f"{in_words(self.projects)} {other_stores} at {sizes}{unseen}"),
        ]
        share = percent_as_given(self.share)
        title = (
            f"keep_recent = {self.cap:,} serves {share} of {self.evidence} where "
            f"{counted(self.memories, 'prunable memories')} have been written"
        )
        return TextPage(title, facts)


def law(
    memories: int,
    share: float = DEFAULT_TARGET,
    *,
    evidence: Evidence = "references",
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> PriorCap:
    """Return the cap that serves a share of later references, from other projects alone.

    References by name, such as from one change to another, become rarer with age. Reads after a
    search hardly do: a cap by age that serves nine in ten reads saves little.

    Parameters
    ----------
    memories : int
        Prunable memories written so far, 0 or more.
    share : float
        Share of references to serve, above 0 and below 1.
    evidence : {"references", "reads"}
        Kind of references: memories that later memories name, in nine public projects; or notes
        that agents opened after a search, in 32 public stores.
    confidence : float
        One-sided confidence of each limit, above 0.5 and below 1.
    until : float
        Horizon: the number is valid until this many times `memories` are written, above 1.

    Returns
    -------
    PriorCap

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> law(1_000, 0.9)
    keep_recent = 153 serves 90% of references where 1,000 prunable memories have been written
      limits       27 to 517, each at 90% confidence
      to be safe   keep_recent = 517
      holds until  1,200 prunable memories have been written
      evidence     nine other projects at 250 to 16,000 memories
    >>> law(1_000, 0.9, evidence="reads").cap
    724
    """
    memories = arguments.whole_number("memories", memories)
    share = arguments.share("share", share)
    arguments.expect(evidence, str, call="memlab.law", name="evidence")
    fitted = fitted_law(evidence)
    settings = PosteriorSettings(confidence, until, fitted)
    with_limits = _prior_alone(settings, memories).cap_for(share)
    smallest, largest = fitted.seen
    is_size_seen = smallest <= memories <= largest
    projects = len(fitted.projects)
    return PriorCap(
        memories=memories,
        share=share,
        cap=with_limits.cap,
        low=with_limits.low,
        high=with_limits.high,
        confidence=confidence,
        seen=is_size_seen,
        projects=projects,
        evidence=evidence,
        until=until,
    )


def law_lines(
    share: float = DEFAULT_TARGET,
    *,
    evidence: Evidence = "references",
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Return the lines of the chart of the prior: the cap by store size.

    The line of the prior has limits. Each project of the fit has a line without limits.

    The arguments are those of :func:`memlab.law`. The columns are ``project`` (missing for the
    prior itself), ``share``, ``evidence``, ``memories``, ``cap``, and for the prior ``low`` and
    ``high``.

    Examples
    --------
    >>> lines = law_lines(0.9)
    >>> lines["project"].nunique(), bool((lines["low"].dropna() >= 0).all())
    (9, True)
    """
    share = arguments.share("share", share)
    fitted = fitted_law(evidence)
    sizes = np.geomspace(*fitted.seen, _LINE_POINTS).round().astype(np.int64)
    settings = PosteriorSettings(confidence, until, fitted)
    caps = [_prior_alone(settings, int(size)).cap_for(share) for size in sizes]
    prior = pd.DataFrame(caps, columns=[CAP, LOW, HIGH])
    prior[c.MEMORIES] = sizes
    prior[PROJECT] = None
    lines = pd.concat([prior, *_project_lines(settings, share)], ignore_index=True)
    lines[SHARE] = share
    lines[EVIDENCE_KIND] = evidence
    columns = [PROJECT, SHARE, EVIDENCE_KIND, c.MEMORIES, CAP, LOW, HIGH]
    return lines[columns].astype({PROJECT: "str", EVIDENCE_KIND: "str"})


def others_in_words(projects: int) -> str:
    """Return the projects of a prior as a phrase, for use after "the data of".

    >>> others_in_words(9), others_in_words(32)
    ('nine other projects', '32 other stores that are searched')
    >>> others_in_words(41)
    'nine other projects and of 32 stores that are searched'
    """
    named = len(fitted_law("references").projects)
    searched = len(fitted_law("reads").projects)
    if projects == searched:
        return f"{in_words(searched)} other stores that are searched"
    if projects == named + searched:
        return f"{in_words(named)} other projects and of {searched:,} stores that are searched"
    return f"{in_words(projects)} other projects"


def in_words(number: int) -> str:
    """Return a small number as a word."""
    return _NUMBER_WORDS[number] if number < len(_NUMBER_WORDS) else f"{number:,}"


def _prior_alone(settings: PosteriorSettings, memories: int) -> Posterior:
    """Return the posterior of a store without references of its own."""
    return Posterior(
        settings=settings,
        memories=memories,
        own_reaches=np.empty(0),
        reach_weights=np.empty(0),
        cluster_count=0,
    )


def _project_lines(settings: PosteriorSettings, share: float) -> list[pd.DataFrame]:
    """Return one frame per project: its cap at the size at which each of its stretches begins."""
    lines = []
    for project in settings.law.projects:
        shares = sorted(map(float, project.reach))
        # shape (shares, stretches)
        reach_by_share = np.array([project.reach[str(fitted_share)] for fitted_share in shares])
        reach = [np.interp(share, shares, stretch_reach) for stretch_reach in reach_by_share.T]
        caps = rank_at(reach, geometric_mean_growth(settings.until) * np.array(project.memories))
        lines.append(pd.DataFrame({PROJECT: project.name, c.MEMORIES: project.memories, CAP: caps}))
    return lines
