"""A prior on reach that the stores of a fleet share, and the recommended cap of each store.

The model is hierarchical, one level above the law: a store's reach is ``fleet + u[store] + sample
error``, where ``u`` is normal and the error has variance ``within ** 2 + noise / references``. The
variance between stores is estimated by moments (DerSimonian and Laird 1986) and shrunk towards that
of public projects. The mean is shrunk towards the public mean by their `between`.

Each store's prior is fitted on the other stores, because its own references enter when it is sized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from memlab.columns import KIND
from memlab.evidence.prior import ReachPrior, fitted_law, mixture_prior
from memlab.evidence.store_history import StoreHistory
from memlab.fleet.names import Member, Members, Sources, members_of
from memlab.fleet.sweep import outcomes_of, table_of
from memlab.fleet.workers import FleetTask, Progress, Runner
from memlab.frame.fields import Floats
from memlab.settings import NOTHING
from memlab.sizing import advise, prepare_sizing
from memlab.sizing.goal import SizingGoal

if TYPE_CHECKING:
    import pandas as pd

FEWEST: Final = 8
"""Minimum number of references for a store to have quantiles, as in the fit of the law."""
STORES: Final = 3
"""Minimum number of such stores for a cohort."""
SAMPLE: Final = 200
"""Maximum number of stores that are read to fit the prior; more would hardly change it."""


@dataclass(frozen=True)
class StoreEstimate:
    """The reach of one store, estimated from its references."""

    references: int
    """Number of references, counted in clusters."""
    reach: Floats
    """The reach that serves each of the law's shares, shape (shares,); empty for a small sample."""
    reads: float = 0.0
    """Share of reads among the references, 0 to 1."""


@dataclass(frozen=True)
class Cohort:
    """The prior on reach that the stores of a fleet share.

    Attributes
    ----------
    law : ReachPrior
        The prior of a store of this fleet, from its stores and public projects.
    stores : int
        Stores with enough references to be counted.
    references : int
        References of these stores.
    weights : tuple of float
        The weight of the fleet in each share of the law, 0 to 1; the rest is public projects'.
    told : Mapping
        The estimate of each counted store, by name.
    public : ReachPrior
        The prior from public projects alone.
    """

    law: ReachPrior
    stores: int
    references: int
    weights: tuple[float, ...]
    told: Mapping[str, StoreEstimate] = field(default_factory=dict, repr=False, compare=False)
    public: ReachPrior = field(default_factory=fitted_law, repr=False)

    @property
    def prior(self) -> "Cohort":
        """The same prior without the estimates of single stores."""
        return replace(self, told={})

    def weight_at(self, share: float) -> float:
        """Return the weight of the fleet in the prior at a share of references.

        Parameters
        ----------
        share : float
            Share of references to serve, 0 to 1.

        Returns
        -------
        float
            The weight, 0 to 1; the rest is the weight of public projects.
        """
        return float(np.interp(share, self.law.shares, self.weights))

    def without(self, store: str) -> "Cohort":
        """Return the cohort of the other stores, which gives a counted store its prior.

        Parameters
        ----------
        store : str
            Name of the store to leave out.
        """
        if store not in self.told:
            return self
        others = {name: estimate for name, estimate in self.told.items() if name != store}
        return fit_cohort(others, self.public)


def cohort_of(
    sources: Sources, *, runner: Runner | None = None, progress: Progress | None = None
) -> Cohort:
    """Fit the prior that the stores of a fleet share, on a sample of them.

    At most 200 stores are read; the same stores are sampled each time. A store that cannot be read
    is left out. With fewer than three stores of at least eight references the result is the public
    prior.

    Parameters
    ----------
    sources, runner, progress
        As for :func:`memlab.fleet.survey`.

    Returns
    -------
    Cohort
        The prior, and the estimates that it was fitted on.

    Raises
    ------
    MemlabError
        If no store was named.
    """
    members = Members(tuple(sample_of(members_of(sources))))
    task = FleetTask("references", estimate_of, StoreEstimate)
    outcomes = outcomes_of(task, members, runner=runner, progress=progress)
    return fit_cohort(
        {outcome.name: outcome.value for outcome in outcomes if outcome.value is not None}
    )


def sample_of(members: Members) -> list[Member]:
    """Return at most `SAMPLE` stores, in the order of the digests of their names."""
    readable = [member for member in members.stores if not member.problem]
    if len(readable) > SAMPLE:
        readable.sort(key=lambda member: blake2b(member.name.encode(), digest_size=8).digest())
    return readable[:SAMPLE]


def estimate_of(where: str) -> StoreEstimate:
    """Return the reach of one store, with each reference weighted by the memories written then."""
    evidence = StoreHistory.of(where, call="memlab.fleet.size").with_references()
    references = prepare_sizing(evidence.past, evidence.references).references
    if references.cluster_count < FEWEST:
        return StoreEstimate(references=references.cluster_count, reach=np.empty(0))
    reach, written = (values.astype(np.float64) for values in references.reach)
    cumulative = np.cumsum(written)
    wanted = np.array(fitted_law().shares) * cumulative[-1] * (1 - 1e-9)
    return StoreEstimate(
        references=references.cluster_count,
        reach=reach[np.searchsorted(cumulative, wanted)],
        reads=float((evidence.references[KIND] == "log").mean()),
    )


def fit_cohort(estimates: Mapping[str, StoreEstimate], public: ReachPrior | None = None) -> Cohort:
    """Fit the prior that stores share, from the estimate of each store.

    `public` is the prior from public projects. By default it is the one for the stores' mix of
    reads and references.
    """
    counted = {
        name: estimate for name, estimate in estimates.items() if estimate.references >= FEWEST
    }
    if public is None:
        public = mixture_prior(_share_of_reads(counted))
    if len(counted) < STORES:
        return Cohort(
            law=public,
            stores=0,
            references=0,
            weights=(0.0,) * len(public.shares),
            told=counted,
            public=public,
        )
    reach = np.array([estimate.reach for estimate in counted.values()])
    count = np.array([estimate.references for estimate in counted.values()], dtype=np.float64)
    mean, between, weight = _posterior(reach, count, public)
    middle = int(np.searchsorted(public.shares, 0.9))
    worth = public.worth * float((public.between[middle] / between[middle]) ** 2)
    rising = tuple(np.clip(np.maximum.accumulate(mean), 0, 1).tolist())
    return Cohort(
        law=replace(public, reach=rising, between=tuple(between.tolist()), worth=worth),
        stores=len(counted),
        references=int(count.sum()),
        weights=tuple(weight.tolist()),
        told=counted,
        public=public,
    )


def _share_of_reads(estimates: Mapping[str, StoreEstimate]) -> float:
    """Return the share of reads among the references of all stores, 0 to 1."""
    if not estimates:
        return 0.0
    counts = [estimate.references for estimate in estimates.values()]
    reads = [estimate.reads for estimate in estimates.values()]
    return float(np.average(reads, weights=counts))


def _posterior(reach: Floats, count: Floats, law: ReachPrior) -> tuple[Floats, Floats, Floats]:
    """Return the posterior mean and spread of reach for each share, and the fleet's weight.

    `reach` has shape (stores, shares) and `count` shape (stores,); each result has shape (shares,).
    """
    public = np.array(law.between) ** 2
    within = np.array(law.within) ** 2
    error = within + np.array(law.noise) / count[:, None]
    spread = _between_by_moments(reach, error)
    known = len(law.projects) or 1
    spread = (len(reach) * spread + known * public) / (len(reach) + known)
    information = (1 / (spread + error)).sum(axis=0)
    own = (reach / (spread + error)).sum(axis=0) / information
    weight = public / (public + 1 / information)
    mean = weight * own + (1 - weight) * np.array(law.reach)
    unsure = 1 / (1 / public + information)
    return mean, np.sqrt(spread + unsure), weight


def _between_by_moments(reach: Floats, error: Floats) -> Floats:
    """Return the variance between stores by moments (DerSimonian and Laird 1986), at least 0.

    `reach` and `error`, the variance of each store's estimate, have shape (stores, shares).
    """
    precision = 1 / error
    total = precision.sum(axis=0)
    mean = (precision * reach).sum(axis=0) / total
    square = (precision * (reach - mean) ** 2).sum(axis=0)
    scale = total - (precision**2).sum(axis=0) / total
    variance: Floats = np.maximum(0.0, (square - (len(reach) - 1)) / scale)
    return variance


@dataclass(frozen=True)
class SizedStore:
    """The recommendation for one store.

    Attributes
    ----------
    keep_recent, likely : int or None
        The safe cap and the likely one; None if no cap meets the target and the budget.
    verdict : str
        One of :class:`memlab.sizing.Verdict`.
    low : int or None
        The lower limit of the cap that meets the target; `keep_recent` is the upper limit.
    served, served_low : float or None
        Share of later references that the cap serves, and its lower limit.
    fits, fits_served : int, float or None
        The largest cap that fits the token budget, and the share of references that it serves.
    references : int
        The store's own references.
    own, fleet, elsewhere : float
        The weights of the store's own references, of the fleet and of other projects in the
        recommendation; their sum is 1.
    memories : int
        Prunable memories written so far.
    until : int
        The number of written memories up to which the recommendation stays valid.
    prunable, deletes : int
        Prunable memories in the store, and those that the cap would delete today.
    boot_now, boot_after, floor : int
        Tokens loaded at start, now and under the cap, and those of load-bearing memories.
    """

    keep_recent: int | None
    likely: int | None
    verdict: str
    low: int | None
    served: float | None
    served_low: float | None
    fits: int | None
    fits_served: float | None
    references: int
    own: float
    fleet: float
    elsewhere: float
    memories: int
    until: int
    prunable: int
    deletes: int
    boot_now: int
    boot_after: int
    floor: int

    stored_names: ClassVar[Mapping[str, str]] = {
        "keep_recent": "keep_recent",
        "likely": "likely",
        "verdict": "verdict",
        "low": "low",
        "served": "served",
        "served_low": "served_low",
        "fits": "fits",
        "fits_served": "fits_served",
        "references": "references",
        "own": "own",
        "fleet": "fleet",
        "elsewhere": "elsewhere",
        "memories": "memories",
        "until": "until",
        "prunable": "prunable",
        "deletes": "deletes",
        "boot_now": "boot_now",
        "boot_after": "boot_after",
        "floor": "floor",
    }


def size(  # noqa: PLR0913 - what is asked, by what, and who does it
    sources: Sources,
    *,
    target: float | None = None,
    token_budget: int | None = None,
    until: float | None = None,
    cohort: Cohort | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Recommend a cap for every store. The stores are only read.

    Each recommendation combines the store's own references, the prior of the fleet and that of
    public projects; the columns ``own``, ``fleet`` and ``elsewhere`` hold their weights.

    Parameters
    ----------
    sources, runner, progress, out
        As for :func:`memlab.fleet.survey`.
    target, token_budget, until : float, int, float, optional
        As for :func:`memlab.size`. By default each store's settings, else 0.9, no budget and 1.2.
    cohort : Cohort, optional
        The prior of the fleet; by default :func:`memlab.fleet.cohort_of` fits it. A store that was
        counted in it is sized by a prior fitted on the other stores.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`SizedStore`, and ``error``, missing
        if there is none.

    Raises
    ------
    ValueError
        If `target`, `token_budget` or `until` is out of range.
    """
    asked = {"target": target, "token_budget": token_budget, "until": until}
    SizingGoal.of(NOTHING, **asked)  # raise once for a bad argument, instead of for each store
    members = members_of(sources)
    if cohort is None:
        cohort = cohort_of(members, runner=runner)
    shared = cohort

    def prior_of(member: Member) -> Cohort:
        return shared.without(member.name).prior

    task = size_task(shared.prior, asked)
    return table_of(task, members, runner=runner, progress=progress, out=out, given=prior_of)


def size_task(prior: Cohort, asked: Mapping[str, Any]) -> FleetTask[SizedStore]:
    """Return the task that sizes a store; `prior` is that of stores not counted in it."""
    return FleetTask(
        name="size",
        work=partial(_sized, asked=asked),
        row=SizedStore,
        asked=asked,
        rests_on=blake2b(repr(prior).encode(), digest_size=16).hexdigest(),
    )


def _sized(where: str, prior: Cohort, *, asked: Mapping[str, Any]) -> SizedStore:
    """Return the recommendation for one store, given the prior of the other stores."""
    evidence = StoreHistory.of(where, call="memlab.fleet.size").with_references()
    goal = SizingGoal.of(evidence.settings, **asked)
    sizing = prepare_sizing(
        evidence.past,
        evidence.references,
        confidence=goal.confidence,
        until=goal.until,
        law=prior.law if prior.stores else None,
    )
    advice = advise(sizing, target=goal.target, token_budget=goal.token_budget)
    cap = advice.keep_recent
    within = advice.within_budget
    fleet = prior.weight_at(goal.target)
    return SizedStore(
        keep_recent=cap,
        likely=advice.likely,
        verdict=str(advice.verdict),
        low=None if advice.interval is None else advice.interval[0],
        served=advice.served,
        served_low=None if advice.served_limits is None else advice.served_limits[0],
        fits=None if within is None else within.keep_recent,
        fits_served=None if within is None else within.served,
        references=advice.references,
        own=advice.weight,
        fleet=(1 - advice.weight) * fleet,
        elsewhere=(1 - advice.weight) * (1 - fleet),
        memories=advice.memories,
        until=advice.until,
        prunable=advice.prunable,
        deletes=0 if cap is None else max(0, advice.prunable - cap),
        boot_now=advice.loaded,
        boot_after=advice.loaded if advice.boot_tokens is None else advice.boot_tokens,
        floor=advice.floor.tokens,
    )
