"""What a fleet's stores share, how far back references reach, and the cap of each by it.

The law's model one floor up: a store's reach is ``fleet + u[store] + sample error``, ``u`` normal,
the error of variance ``within ** 2 + noise / references``; the spread is by moments (DerSimonian
and Laird 1986), drawn towards the public one, as is the mean by the projects' `between`.
Each store's prior is fitted on the others, for what it says itself is weighed when it is sized.
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
from memlab.evidence.references import collect_evidence
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
"""References without which a store has no quantile, as in the fit of the law."""
STORES: Final = 3
"""Stores with so many references, without which there is no cohort."""
SAMPLE: Final = 200
"""Stores that are asked for their references: more would hardly change what they share."""


@dataclass(frozen=True)
class StoreEstimate:
    """What one store's references say: the reach that serves each of the law's shares."""

    references: int
    reach: Floats
    reads: float = 0.0
    """The share of reads among them."""


@dataclass(frozen=True)
class Cohort:
    """What the stores of a fleet share.

    `law` is that of the fleet and public projects together, the prior of each of its stores;
    ``public`` that of the projects alone. ``stores`` counts those that had references enough,
    ``references`` these. For each share of the law, ``weights`` says how much of it is the fleet's,
    0 to 1; `told` has what each store said that was counted.
    """

    law: ReachPrior
    stores: int
    references: int
    weights: tuple[float, ...]
    told: Mapping[str, StoreEstimate] = field(default_factory=dict, repr=False, compare=False)
    public: ReachPrior = field(default_factory=fitted_law, repr=False)

    @property
    def prior(self) -> "Cohort":
        """What is known of a store before it says anything itself, without who told it."""
        return replace(self, told={})

    def weight_at(self, share: float) -> float:
        """Return how much of what is known of a share is the fleet's, not other projects'."""
        return float(np.interp(share, self.law.shares, self.weights))

    def without(self, store: str) -> "Cohort":
        """Return what the others share: the prior of a store that was counted itself."""
        if store not in self.told:
            return self
        others = {name: told for name, told in self.told.items() if name != store}
        return fit_cohort(others, self.public)


def cohort_of(
    sources: Sources, *, runner: Runner | None = None, progress: Progress | None = None
) -> Cohort:
    """Return what the stores of a fleet share, by those of a sample that have references.

    The arguments are those of :func:`memlab.fleet.survey`. Of more than 200 stores a sample is
    asked, the same one every time; one that cannot be read says nothing. With fewer than three
    stores that have eight references it is the public law.
    """
    members = Members(tuple(sample_of(members_of(sources))))
    task = FleetTask("references", told_by, StoreEstimate)
    found = outcomes_of(task, members, runner=runner, progress=progress)
    return fit_cohort({each.name: each.value for each in found if each.value is not None})


def sample_of(members: Members) -> list[Member]:
    """Return at most `SAMPLE` stores: those whose names' digests come first."""
    there = [member for member in members.stores if not member.problem]
    if len(there) > SAMPLE:
        there.sort(key=lambda each: blake2b(each.name.encode(), digest_size=8).digest())
    return there[:SAMPLE]


def told_by(where: str) -> StoreEstimate:
    """Return what one store says; a reference counts as the memories written then."""
    found = collect_evidence(where, call="memlab.fleet.size")
    references = prepare_sizing(found.past, found.references).references
    if references.cluster_count < FEWEST:
        return StoreEstimate(references.cluster_count, np.empty(0))
    reach, written = (each.astype(np.float64) for each in references.reach)
    upto = np.cumsum(written)
    wanted = np.array(fitted_law().shares) * upto[-1] * (1 - 1e-9)
    reads = float((found.references[KIND] == "log").mean())
    return StoreEstimate(references.cluster_count, reach[np.searchsorted(upto, wanted)], reads)


def fit_cohort(said: Mapping[str, StoreEstimate], law: ReachPrior | None = None) -> Cohort:
    """Fit what stores share, by what each of them says."""
    told = {name: each for name, each in said.items() if each.references >= FEWEST}
    if law is None:
        counts = [each.references for each in told.values()]
        reads = [each.reads for each in told.values()]
        law = mixture_prior(float(np.average(reads, weights=counts)) if told else 0.0)
    if len(told) < STORES:
        return Cohort(law, 0, 0, (0.0,) * len(law.shares), told, law)
    reach = np.array([each.reach for each in told.values()])
    count = np.array([each.references for each in told.values()], dtype=np.float64)
    mean, between, weight = _posterior(reach, count, law)
    middle = int(np.searchsorted(law.shares, 0.9))
    worth = law.worth * float((law.between[middle] / between[middle]) ** 2)
    rising = tuple(np.clip(np.maximum.accumulate(mean), 0, 1).tolist())
    shared = replace(law, reach=rising, between=tuple(between.tolist()), worth=worth)
    return Cohort(shared, len(told), int(count.sum()), tuple(weight.tolist()), told, law)


def _posterior(reach: Floats, count: Floats, law: ReachPrior) -> tuple[Floats, Floats, Floats]:
    """Return mean and spread of the stores for each share, and the weight of the fleet's own."""
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
    """Return the variance between stores: what their spread is more than their errors explain."""
    sure = 1 / error
    total = sure.sum(axis=0)
    mean = (sure * reach).sum(axis=0) / total
    square = (sure * (reach - mean) ** 2).sum(axis=0)
    scale = total - (sure**2).sum(axis=0) / total
    found: Floats = np.maximum(0.0, (square - (len(reach) - 1)) / scale)
    return found


@dataclass(frozen=True)
class SizedStore:
    """The recommendation for one store.

    Attributes
    ----------
    keep_recent, likely : int or None
        The safe cap and the likely one; None where none meets target and budget.
    verdict : str
        One of :class:`memlab.sizing.Verdict`.
    low : int or None
        The lower limit of the cap that the target takes; `keep_recent` is the upper.
    served, served_low : float or None
        Share of later references that the cap serves, and its lower limit.
    fits, fits_served : int, float or None
        The largest cap that fits the token budget, and the share that this one serves.
    references : int
        The store's own.
    own, fleet, elsewhere : float
        How much of the number is owed to these, to what the stores of the fleet share, and to
        other projects; together 1.
    memories : int
        Prunable memories written so far.
    prunable, deletes : int
        Those that are there, and those that the cap would delete today.
    boot_now, boot_after, floor : int
        Tokens loaded at start, and those of the load-bearing part.
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
    """Recommend a cap for every store. Nothing is written.

    Each store's number rests on its own references, on what the stores of the fleet share, and on
    other projects; ``own``, ``fleet`` and ``elsewhere`` say how much on which.

    Parameters
    ----------
    sources, runner, progress, out
        As for :func:`memlab.fleet.survey`.
    target, token_budget, until : float, int, float, optional
        As for :func:`memlab.size`; by default what each store's settings say, else 0.9, none, 1.2.
    cohort : Cohort, optional
        What the stores share; found by :func:`memlab.fleet.cohort_of` when not given. A store that
        was counted in it is sized by what the others share.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`SizedStore`, and ``error``, missing
        where there is none.
    """
    asked = {"target": target, "token_budget": token_budget, "until": until}
    SizingGoal.of(NOTHING, **asked)  # what is out of its range is said once, not of each store
    members = members_of(sources)
    shared = cohort_of(members, runner=runner) if cohort is None else cohort

    task = size_task(shared.prior, asked)
    how: Any = {"runner": runner, "progress": progress, "out": out}
    return table_of(task, members, given=lambda each: shared.without(each.name).prior, **how)


def size_task(prior: Cohort, asked: Mapping[str, Any]) -> FleetTask[SizedStore]:
    """Return the task of sizing for a goal; `prior` is that of stores not counted in it."""
    rests_on = blake2b(repr(prior).encode(), digest_size=16).hexdigest()
    work = partial(_sized, asked=asked)
    return FleetTask("size", work, SizedStore, asked=asked, rests_on=rests_on)


def _sized(where: str, prior: Cohort, *, asked: Mapping[str, Any]) -> SizedStore:
    """Return the recommendation for one store, by what is known of it from others."""
    found = collect_evidence(where, call="memlab.fleet.size")
    question = SizingGoal.of(found.settings, **asked)
    law = prior.law if prior.stores else None
    sizing = prepare_sizing(
        found.past, found.references, confidence=question.confidence, until=question.until, law=law
    )
    advice = advise(sizing, target=question.target, token_budget=question.token_budget)
    cap = advice.keep_recent
    within = advice.within_budget
    fleet = prior.weight_at(question.target)
    same = ("keep_recent", "likely", "served", "references", "memories", "until", "prunable")
    return SizedStore(
        **{name: getattr(advice, name) for name in same},
        verdict=str(advice.verdict),
        low=advice.interval and advice.interval[0],
        served_low=advice.served_limits and advice.served_limits[0],
        fits=None if within is None else within.keep_recent,
        fits_served=None if within is None else within.served,
        own=advice.weight,
        fleet=(1 - advice.weight) * fleet,
        elsewhere=(1 - advice.weight) * (1 - fleet),
        deletes=0 if cap is None else max(0, advice.prunable - cap),
        boot_now=advice.loaded,
        boot_after=advice.loaded if advice.boot_tokens is None else advice.boot_tokens,
        floor=advice.floor.tokens,
    )
