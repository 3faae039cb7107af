"""Empirical Bayes for a fleet: the prior that its stores share, and the cap of each store.

The reach of a reference is defined in :mod:`memlab.sizing.prior`. The model is hierarchical:

- The reach of one store is ``fleet mean + store effect + sample error``. The store effect is
  normal. The sample error has variance ``within ** 2 + noise / references``.
- The variance of the store effects is estimated by moments (DerSimonian and Laird 1986). It is
  shrunk towards the variance between public projects.
- The fleet mean is shrunk towards the mean of public projects.

The prior of a store is fitted on the other stores of the fleet, because the store's own references
are added when it is sized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from memlab.arguments import expect_frame
from memlab.clock import moment_or_now
from memlab.columns import KIND
from memlab.errors import MemlabError
from memlab.evidence.defaults import DEFAULT_TARGET
from memlab.evidence.store_history import StoreHistory
from memlab.fleet.names import Member, Members, Sources, members_of
from memlab.fleet.sweep import outcomes_of, table_of
from memlab.fleet.workers import FleetTask, Progress, Runner
from memlab.frame.fields import Floats
from memlab.settings import NO_SETTINGS, Sized
from memlab.sizing import advise, prepare_sizing
from memlab.sizing.goal import SizingGoal
from memlab.sizing.number_kinds import CAP
from memlab.sizing.prior import ReachPrior, fitted_law, mixture_prior
from memlab.sources.opening import open_source, settings_of

if TYPE_CHECKING:
    import pandas as pd

MIN_REFERENCES: Final = 8
"""Minimum number of references for a store to be used in the fit."""
MIN_STORES: Final = 3
"""Minimum number of stores with enough references to fit a prior of the fleet."""
MAX_SAMPLED_STORES: Final = 200
"""Maximum number of stores that are read to fit the prior; more stores hardly change the prior."""


@dataclass(frozen=True)
class StoreEstimate:
    """The reach of one store, estimated from its references."""

    references: int
    """Number of references, counted in clusters."""
    reach: Floats
    """The reach that serves each of the prior's shares of references, shape (shares,).

    Empty if the store has too few references.
    """
    reads: float = 0.0
    """Share of reads among the references, 0 to 1."""


@dataclass(frozen=True)
class Cohort:
    """The prior on reach that the stores of a fleet share.

    Attributes
    ----------
    law : ReachPrior
        The prior for a store of this fleet, from the fleet's stores and from public projects.
    stores : int
        Number of stores in the fit, which are the stores with enough references.
    references : int
        Number of references of these stores.
    weights : tuple of float
        The weight of the fleet in the prior, 0 to 1, at each of ``law.shares``. The rest is the
        weight of public projects.
    estimates : Mapping
        The estimate of each store in the fit, by name.
    public : ReachPrior
        The prior from public projects alone.

    Examples
    --------
    >>> import memlab.fleet
    >>> cohort = memlab.fleet.cohort_of(memlab.store_path("two_years"))
    >>> cohort.weight_at(0.9)
    0.0
    """

    law: ReachPrior
    stores: int
    references: int
    weights: tuple[float, ...]
    estimates: Mapping[str, StoreEstimate] = field(default_factory=dict, repr=False, compare=False)
    public: ReachPrior = field(default_factory=fitted_law, repr=False)

    @property
    def prior(self) -> "Cohort":
        """A copy of the prior without the estimates of single stores."""
        return replace(self, estimates={})

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
        """Return the prior fitted without one store, which is used to size that store.

        Parameters
        ----------
        store : str
            Name of the store to leave out.

        Returns
        -------
        Cohort
            The prior fitted on the other stores; this one if the store is not in the fit.
        """
        if store not in self.estimates:
            return self
        other_estimates = {
            name: estimate for name, estimate in self.estimates.items() if name != store
        }
        return fit_cohort(other_estimates, self.public)


def cohort_of(
    sources: Sources, *, runner: Runner | None = None, progress: Progress | None = None
) -> Cohort:
    """Fit the prior that the stores of a fleet share, on a sample of them.

    At most 200 stores are read; each call samples the same stores. A store that cannot be read is
    left out. If fewer than three stores have at least eight references, the result is the public
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

    Examples
    --------
    >>> import memlab.fleet
    >>> cohort = memlab.fleet.cohort_of(memlab.store_path("two_years"))
    >>> cohort.stores  # fewer than three stores: the prior is that of public projects
    0
    """
    members = Members(tuple(sample_of(members_of(sources))))
    task = FleetTask("references", estimate_of, StoreEstimate)
    outcomes = outcomes_of(task, members, runner=runner, progress=progress)
    return fit_cohort(
        {outcome.name: outcome.value for outcome in outcomes if outcome.value is not None}
    )


def sample_of(members: Members) -> list[Member]:
    """Return the readable stores, or a sample of `MAX_SAMPLED_STORES` of them.

    The sample is sorted by a digest of the names, so that it is the same each time.
    """
    readable = [member for member in members.stores if not member.problem]
    if len(readable) > MAX_SAMPLED_STORES:
        readable.sort(key=lambda member: blake2b(member.name.encode(), digest_size=8).digest())
    return readable[:MAX_SAMPLED_STORES]


def estimate_of(location: str) -> StoreEstimate:
    """Return the estimated reach of one store.

    The weight of a reference is the number of memories that were written before it.
    """
    evidence = StoreHistory.of(location, call="memlab.fleet.size").with_references()
    references = prepare_sizing(evidence.past, evidence.references).references
    if references.cluster_count < MIN_REFERENCES:
        return StoreEstimate(references=references.cluster_count, reach=np.empty(0))
    reach = references.reaches.reach.astype(np.float64)
    written = references.reaches.written.astype(np.float64)
    cumulative = np.cumsum(written)
    shares = np.array(fitted_law().shares)
    thresholds = shares * cumulative[-1] * (1 - 1e-9)  # the factor absorbs rounding errors
    return StoreEstimate(
        references=references.cluster_count,
        reach=reach[np.searchsorted(cumulative, thresholds)],
        reads=float((evidence.references[KIND] == "log").mean()),
    )


def fit_cohort(estimates: Mapping[str, StoreEstimate], public: ReachPrior | None = None) -> Cohort:
    """Fit the prior that stores share, from the estimate of each store.

    `public` is the prior from public projects. By default it is the one for the stores' mix of
    reads and references.
    """
    usable = {
        name: estimate
        for name, estimate in estimates.items()
        if estimate.references >= MIN_REFERENCES
    }
    if public is None:
        public = mixture_prior(_share_of_reads(usable))
    if len(usable) < MIN_STORES:
        return Cohort(
            law=public,
            stores=0,
            references=0,
            weights=(0.0,) * len(public.shares),
            estimates=usable,
            public=public,
        )
    reach = np.array([estimate.reach for estimate in usable.values()])
    count = np.array([estimate.references for estimate in usable.values()], dtype=np.float64)
    posterior = _posterior(reach, count, public)
    # `worth` is the weight of the prior in references. The smaller the variance between stores
    # relative to that between public projects, the larger the weight.
    at_default_target = int(np.searchsorted(public.shares, DEFAULT_TARGET))
    deviation = posterior.deviation
    variance_ratio = (public.between[at_default_target] / deviation[at_default_target]) ** 2
    increasing = np.clip(np.maximum.accumulate(posterior.mean), 0, 1)
    law = replace(
        public,
        reach=tuple(increasing.tolist()),
        between=tuple(deviation.tolist()),
        worth=public.worth * float(variance_ratio),
    )
    return Cohort(
        law=law,
        stores=len(usable),
        references=int(count.sum()),
        weights=tuple(posterior.fleet_weight.tolist()),
        estimates=usable,
        public=public,
    )


def _share_of_reads(estimates: Mapping[str, StoreEstimate]) -> float:
    """Return the share of reads among the references of all stores, 0 to 1."""
    if not estimates:
        return 0.0
    counts = [estimate.references for estimate in estimates.values()]
    reads = [estimate.reads for estimate in estimates.values()]
    return float(np.average(reads, weights=counts))


class _Posterior(NamedTuple):
    """The posterior of a new store's reach; each field is an array of shape (shares,)."""

    mean: Floats
    deviation: Floats
    """Standard deviation."""
    fleet_weight: Floats
    """The weight of the fleet in the mean, 0 to 1."""


def _posterior(reach: Floats, count: Floats, law: ReachPrior) -> _Posterior:
    """Return the posterior of a new store's reach.

    Parameters
    ----------
    reach : array of float64, shape (stores, shares)
        The reach of each store at each share.
    count : array of float64, shape (stores,)
        The number of references of each store.
    law : ReachPrior
        The prior from public projects.
    """
    public_variance = np.array(law.between) ** 2
    error_variance = np.array(law.within) ** 2 + np.array(law.noise) / count[:, None]
    stores = len(reach)
    projects = len(law.projects) or 1
    estimated = _between_by_moments(reach, error_variance)
    variance = (stores * estimated + projects * public_variance) / (stores + projects)

    precision = 1 / (variance + error_variance)
    total_precision = precision.sum(axis=0)
    fleet_mean = (precision * reach).sum(axis=0) / total_precision
    weight = public_variance / (public_variance + 1 / total_precision)
    mean = weight * fleet_mean + (1 - weight) * np.array(law.reach)
    variance_of_mean = 1 / (1 / public_variance + total_precision)
    return _Posterior(
        mean=mean, deviation=np.sqrt(variance + variance_of_mean), fleet_weight=weight
    )


def _between_by_moments(reach: Floats, error_variance: Floats) -> Floats:
    """Return the variance between stores by moments (DerSimonian and Laird 1986), at least 0.

    `reach` and `error_variance` (of each store's estimate) have shape (stores, shares).
    """
    precision = 1 / error_variance
    total = precision.sum(axis=0)
    mean = (precision * reach).sum(axis=0) / total
    heterogeneity = (precision * (reach - mean) ** 2).sum(axis=0)  # Cochran's Q
    degrees_of_freedom = len(reach) - 1
    scale = total - (precision**2).sum(axis=0) / total
    variance: Floats = np.maximum(0.0, (heterogeneity - degrees_of_freedom) / scale)
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
        The weights of the store's own references, of the fleet and of public projects in the
        recommendation; their sum is 1.
    memories : int
        Prunable memories written so far.
    until : int
        The number of written memories up to which the recommendation stays valid.
    prunable, deletes : int
        Number of prunable memories, and number of memories that the cap would delete today.
    boot_now, boot_after, floor : int
        Tokens loaded at start now and under the cap, and tokens of the load-bearing memories.
    answer : str
        The recommendation in sentences.

    Examples
    --------
    The fields are columns of the table that :func:`memlab.fleet.size` returns.

    >>> import memlab.fleet
    >>> table = memlab.fleet.size(memlab.store_path("looked_up"))
    >>> {"keep_recent", "likely", "verdict", "own", "answer"} <= set(table)
    True
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
    answer: str

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
        "answer": "answer",
    }


def size(  # noqa: PLR0913 - each parameter is a separate option
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

    Each recommendation combines the store's own references, the prior of the fleet and the prior of
    public projects; the columns ``own``, ``fleet`` and ``elsewhere`` hold their weights.

    Parameters
    ----------
    sources, runner, progress, out
        As for :func:`memlab.fleet.survey`.
    target, token_budget, until : float, int, float, optional
        As for :func:`memlab.size`. By default each store's settings, else 0.9, no budget and 1.2.
    cohort : Cohort, optional
        The prior of the fleet; by default :func:`memlab.fleet.cohort_of` fits it. A store that is
        in the fit is sized with a prior fitted on the other stores.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`SizedStore`, and ``error``, missing
        if there is none.

    Raises
    ------
    ValueError
        If `target`, `token_budget` or `until` is out of range.
    MemlabError
        If no store was named, or `out` holds other files.

    Examples
    --------
    >>> import memlab.fleet
    >>> sized = memlab.fleet.size(memlab.store_path("two_years"), target=0.5)
    >>> bool((sized["likely"] <= sized["keep_recent"]).all())
    True
    """
    goal = {"target": target, "token_budget": token_budget, "until": until}
    SizingGoal.of(NO_SETTINGS, **goal)  # raise once for a bad argument, instead of for each store
    members = members_of(sources)
    if cohort is None:
        cohort = cohort_of(members, runner=runner)
    shared = cohort

    def prior_of(member: Member) -> Cohort:
        return shared.without(member.name).prior

    task = size_task(shared.prior, goal)
    return table_of(task, members, runner=runner, progress=progress, out=out, argument_of=prior_of)


def save_caps(
    sized: "pd.DataFrame", *, goal: Mapping[str, Any] | None = None, now: datetime | None = None
) -> "pd.DataFrame":
    """Write the safe cap of each store to the ``memlab.toml`` beside it, as its policy.

    ``memlab fleet plan`` without a policy and ``memlab maintain`` then use these caps. Stores
    without a cap, and stores with an error, are left out. There are two exceptions: a store whose
    cap is ``"auto"`` keeps it, and only the goal is saved; a store with ``retire = true`` is not
    planned by ``fleet plan``, because ``memlab maintain`` retires its memories.

    Parameters
    ----------
    sized : DataFrame
        The result of :func:`size`.
    goal : Mapping, optional
        Settings to write beside the cap: those of ``target``, ``token_budget`` and ``until`` that
        :func:`size` was called with.
    now : datetime, optional
        The time of the sizing, with a time zone; by default the present.

    Returns
    -------
    DataFrame
        A row for each store with a cap: ``store``, ``file``, ``note`` on an exception, and
        ``error``, missing if the settings were saved.

    Raises
    ------
    TypeError
        If `sized` is not a frame.
    ValueError
        If `sized` lacks a column, or `now` has no time zone.

    Examples
    --------
    >>> import memlab.fleet
    >>> store = memlab.copy_store(memlab.store_path("two_years"), "memory.db")
    >>> saved = memlab.fleet.save_caps(memlab.fleet.size(store))
    >>> saved["error"].isna().all(), saved["file"][0].endswith("memlab.toml")
    (np.True_, True)
    """
    import pandas as pd

    from memlab.sizing.saving import save_number

    call = "memlab.fleet.save_caps"
    columns = ("store", "memories", "until", "keep_recent", "error")
    expect_frame(sized, *columns, call=call, name="sized")
    at = moment_or_now(now, call=call).replace(microsecond=0)
    goal_settings = {name: value for name, value in (goal or {}).items() if value is not None}
    rows = []
    with_cap = sized[sized["error"].isna() & sized["keep_recent"].notna()]
    for store in with_cap.to_dict("records"):
        name = str(store["store"])
        policy = CAP.policy_with(int(store["keep_recent"]))
        record = Sized(at, int(store["memories"]), int(store["until"]))
        row: dict[str, str | None] = {"store": name, "file": None, "note": None, "error": None}
        try:
            source = open_source(name)
            saved = save_number(source, policy, record, goal_settings)
            row["file"] = str(saved.file)
            if saved.is_automatic:
                row["note"] = saved.validity
            elif settings_of(source).retire:
                row["note"] = "retire = true: maintain retires by this cap, fleet plan does not"
        except MemlabError as error:
            row["error"] = str(error)
        rows.append(row)
    return pd.DataFrame(rows, columns=["store", "file", "note", "error"])


def size_task(prior: Cohort, goal: Mapping[str, Any]) -> FleetTask[SizedStore]:
    """Return the task that sizes a store.

    `prior` is the prior of stores that are not in its fit, and `goal` the arguments of
    :class:`SizingGoal`.
    """
    return FleetTask(
        name="size",
        work=partial(_size_store, goal=goal),
        row=SizedStore,
        settings=goal,
        depends_on=_digest_of(prior),
    )


def _digest_of(prior: Cohort) -> str:
    """Return a digest of a prior. Results of an earlier run are reused if their digest is equal.

    The text is written out here, because `repr` changes when a field is renamed.
    """
    law = prior.law
    text = (
        f"Cohort(law=ReachPrior(shares={law.shares!r}, reach={law.reach!r}, "
        f"between={law.between!r}, within={law.within!r}, noise={law.noise!r}, "
        f"worth={law.worth!r}, pace={law.pace!r}, seen={law.seen!r}, "
        f"projects={law.projects!r}, source={law.source!r}), stores={prior.stores!r}, "
        f"references={prior.references!r}, weights={prior.weights!r})"
    )
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _size_store(location: str, prior: Cohort, *, goal: Mapping[str, Any]) -> SizedStore:
    """Return the recommendation for one store, given the prior of the other stores."""
    evidence = StoreHistory.of(location, call="memlab.fleet.size").with_references()
    store_goal = SizingGoal.of(evidence.settings, **goal)
    law = prior.law if prior.stores else None
    sizing = prepare_sizing(
        evidence.past,
        evidence.references,
        confidence=store_goal.confidence,
        until=store_goal.until,
        law=law,
    )
    advice = replace(
        advise(sizing, target=store_goal.target, token_budget=store_goal.token_budget),
        context_window=store_goal.context_window,
    )
    cap = advice.keep_recent
    deletes = 0
    if cap is not None:
        deletes = max(0, advice.prunable - cap)
    boot_after = advice.loaded
    if advice.boot_tokens is not None:
        boot_after = advice.boot_tokens
    fits = None
    fits_served = None
    if advice.within_budget is not None:
        fits = advice.within_budget.keep_recent
        fits_served = advice.within_budget.served
    fleet_share = prior.weight_at(store_goal.target)
    low = None
    if advice.interval is not None:
        low, _ = advice.interval
    served_low = None
    if advice.served_limits is not None:
        served_low, _ = advice.served_limits
    return SizedStore(
        keep_recent=cap,
        likely=advice.likely,
        verdict=str(advice.verdict),
        low=low,
        served=advice.served,
        served_low=served_low,
        fits=fits,
        fits_served=fits_served,
        references=advice.references,
        own=advice.weight,
        fleet=(1 - advice.weight) * fleet_share,
        elsewhere=(1 - advice.weight) * (1 - fleet_share),
        memories=advice.memories,
        until=advice.until,
        prunable=advice.prunable,
        deletes=deletes,
        boot_now=advice.loaded,
        boot_after=boot_after,
        floor=advice.floor.tokens,
        answer=advice.answer,
    )
