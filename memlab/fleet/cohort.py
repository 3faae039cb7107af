"""What a fleet's stores share: how far back references reach in stores of one kind of agent.

The model is that of the law (:mod:`memlab.evidence.law`), one floor further up. The reach that
serves a share of a store's references is

    y[store] = fleet + u[store] + sample error

with the fleet's mean drawn around that of public projects with their standard deviation `between`,
``u`` normal with a standard deviation of the fleet's own, and the sample error with variance
``within ** 2 + noise / references``. The spread is estimated by moments (DerSimonian and Laird
1986) and drawn towards the public one as if that had been seen in as many stores as there were
projects; the mean is the posterior mean. With few stores that is nearly the public law, with many
it is the fleet's own. What a store says itself is weighed when it is sized, so the prior of each is
fitted on the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from memlab.clock import now_utc
from memlab.evidence.law import Floats, Law, fitted_law
from memlab.evidence.past import load_past
from memlab.evidence.reads import remembered_reads
from memlab.evidence.references import find_references
from memlab.fleet.names import Member, Members, Sources, members_of
from memlab.fleet.running import Progress, Runner, outcomes_of
from memlab.sizing import prepare_sizing
from memlab.sources.opening import open_source, settings_of

if TYPE_CHECKING:
    import pandas as pd

    from memlab.settings import Settings

FEWEST: Final = 8
"""References without which a store has no quantile, as in the fit of the law."""
STORES: Final = 3
"""Stores with so many references, without which there is no cohort."""
SAMPLE: Final = 200
"""Stores that are asked for their references: more would hardly change what they share."""
_TYPE: Final = "<f4"


class Evidence(NamedTuple):
    """What one store says of how far back references reach.

    Attributes
    ----------
    sittings : int
        References that count: those of one task are one.
    reach, written : bytes
        Of each reference to a prunable memory its reach, in increasing order, and the memories
        written by then, as 4-byte floats.
    """

    sittings: int
    reach: bytes
    written: bytes


@dataclass(frozen=True)
class Gathering:
    """The work of asking stores for their evidence."""

    def __call__(self, where: str, given: Any = None) -> Evidence:  # noqa: ARG002 - needs none
        """Return what one store says."""
        _, frame, found = lived_through(where)
        references = prepare_sizing(frame, found).references
        reach, written = references.reach
        return Evidence(
            references.sittings, reach.astype(_TYPE).tobytes(), written.astype(_TYPE).tobytes()
        )


def lived_through(where: str) -> "tuple[Settings, pd.DataFrame, pd.DataFrame]":
    """Return a store's settings, its whole past, and the references in it and in its logs.

    Parameters
    ----------
    where : str
        The store's path or URL.
    """
    source = open_source(where)
    settings = settings_of(source)
    log = remembered_reads(settings)
    frame = load_past(source, log=log)
    now = None if log is None else now_utc()
    return settings, frame, find_references(frame, log, now=now)


class Told(NamedTuple):
    """What one store's references say: the reach that serves each of the law's shares.

    Attributes
    ----------
    reach : array of float64
        For each share.
    references : int
        How many that rests on.
    """

    reach: Floats
    references: int


class Prior(NamedTuple):
    """What is known of a store before it says anything itself.

    Attributes
    ----------
    law : Law
        Of the other stores of its fleet and public projects together.
    weights : tuple of float
        For each of the law's shares, how much of it is the fleet's: 0 to 1.
    """

    law: Law
    weights: tuple[float, ...]

    def weight_at(self, share: float) -> float:
        """Return how much of what is known of a share is the fleet's, not other projects'."""
        return float(np.interp(share, self.law.shares, self.weights))


@dataclass(frozen=True)
class Cohort:
    """What the stores of a fleet share.

    Attributes
    ----------
    law : Law
        Of the fleet and public projects together: the prior of each of its stores.
    stores : int
        How many had references enough to be counted.
    references : int
        How many those had together.
    weights : tuple of float
        For each of the law's shares, how much of it is the fleet's: 0 to 1.
    told : mapping of str to Told
        What each store said that was counted.
    public : Law
        That of other projects alone.
    """

    law: Law
    stores: int
    references: int
    weights: tuple[float, ...]
    told: Mapping[str, Told] = field(default_factory=dict, repr=False, compare=False)
    public: Law = field(default_factory=fitted_law, repr=False)

    @property
    def prior(self) -> Prior:
        """That of a store which is not counted in it."""
        return Prior(self.law, self.weights)

    def without(self, store: str) -> "Cohort":
        """Return what the others share: the prior of a store that was counted itself."""
        if store not in self.told:
            return self
        others = {name: told for name, told in self.told.items() if name != store}
        return _fitted(others, self.public)


def cohort_of(
    sources: Sources, *, runner: Runner | None = None, progress: Progress | None = None
) -> Cohort:
    """Return what the stores of a fleet share, by those of a sample that have references.

    Parameters
    ----------
    sources, runner, progress
        As for :func:`memlab.fleet.survey`. Of more than 200 stores a sample is asked, the same one
        every time.

    Returns
    -------
    Cohort
        With fewer than three stores that have eight references, the public law as it is. A store
        that cannot be read says nothing.

    Raises
    ------
    MemlabError
        When no store was named, or nobody is left to do the work.
    """
    members = Members(tuple(_sample(members_of(sources).stores)))
    found = outcomes_of(Gathering(), members, runner=runner, progress=progress)
    return fit_cohort({each.name: each.value for each in found if each.value is not None})


def fit_cohort(evidence: Mapping[str, Evidence], law: Law | None = None) -> Cohort:
    """Fit what stores share, by what each of them says.

    Parameters
    ----------
    evidence : mapping of str to Evidence
        By store.
    law : Law, optional
        Of public projects.
    """
    law = fitted_law() if law is None else law
    shares = np.array(law.shares)
    telling = {name: each for name, each in evidence.items() if each.sittings >= FEWEST}
    return _fitted(
        {name: Told(_quantiles(each, shares), each.sittings) for name, each in telling.items()}, law
    )


def _fitted(told: Mapping[str, Told], law: Law) -> Cohort:
    if len(told) < STORES:
        return Cohort(law, 0, 0, (0.0,) * len(law.shares), told, law)
    shares = np.array(law.shares)
    reach = np.array([each.reach for each in told.values()])
    count = np.array([each.references for each in told.values()], dtype=np.float64)
    mean, between, weight = _posterior(reach, count, law)
    before = np.array(law.between)
    middle = int(np.searchsorted(shares, 0.9))
    worth = law.worth * float((before[middle] / between[middle]) ** 2)
    shared = replace(
        law,
        reach=tuple(np.clip(np.maximum.accumulate(mean), 0, 1).tolist()),
        between=tuple(between.tolist()),
        worth=worth,
    )
    return Cohort(shared, len(told), int(count.sum()), tuple(weight.tolist()), told, law)


def _posterior(reach: Floats, count: Floats, law: Law) -> tuple[Floats, Floats, Floats]:
    """Return mean and spread of the stores for each share, and the weight of the fleet's own."""
    public, within = np.array(law.between) ** 2, np.array(law.within) ** 2
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


def _quantiles(evidence: Evidence, shares: Floats) -> Floats:
    """Return the reach that serves each share; a reference counts as the memories written then."""
    reach = np.frombuffer(evidence.reach, _TYPE).astype(np.float64)
    upto = np.cumsum(np.frombuffer(evidence.written, _TYPE).astype(np.float64))
    found: Floats = reach[np.searchsorted(upto, shares * upto[-1] * (1 - 1e-9))]
    return found


def _sample(members: Sequence[Member]) -> list[Member]:
    """Return at most `SAMPLE` stores: those whose names' digests come first."""
    there = [member for member in members if not member.problem]
    if len(there) <= SAMPLE:
        return there
    return sorted(there, key=lambda m: blake2b(m.name.encode(), digest_size=8).digest())[:SAMPLE]
