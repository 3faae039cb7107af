"""Which cap each store of a fleet needs, with evidence: its own, its fleet's, other projects'."""

from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from memlab import arguments
from memlab.evidence.law import DEFAULT_CONFIDENCE
from memlab.fleet.cohort import Cohort, Prior, cohort_of, lived_through
from memlab.fleet.names import Member, Sources, members_of
from memlab.fleet.parts import Parts
from memlab.fleet.running import Progress, Runner, outcomes_of
from memlab.sizing import Advice, advise, prepare_sizing

if TYPE_CHECKING:
    import pandas as pd

SIZE_DTYPES: Final = {
    "keep_recent": "Int64",
    "verdict": "str",
    "low": "Int64",
    "served": "Float64",
    "served_low": "Float64",
    "fits": "Int64",
    "fits_served": "Float64",
    "references": "Int64",
    "own": "Float64",
    "fleet": "Float64",
    "elsewhere": "Float64",
    "memories": "Int64",
    "prunable": "Int64",
    "deletes": "Int64",
    "boot_now": "Int64",
    "boot_after": "Int64",
    "floor": "Int64",
}


class SizedStore(NamedTuple):
    """The recommendation for one store.

    Attributes
    ----------
    keep_recent : int or None
        The cap; None where none meets target and budget.
    verdict : str
        One of :class:`memlab.sizing.Verdict`.
    low : int or None
        The lower limit of the cap that the target takes; `keep_recent` is the upper.
    served, served_low : float or None
        Share of later references that the cap serves, and its lower limit.
    fits : int or None
        The largest cap that fits the token budget; None without one, or where none fits.
    fits_served : float or None
        Share of later references that this one serves.
    references : int
        The store's own.
    own, fleet, elsewhere : float
        How much of the number is owed to the store's own references, to what the stores of the
        fleet share, and to other projects; together 1.
    memories : int
        Prunable memories written so far.
    prunable, deletes : int
        Those that are there, and those that the cap would delete today.
    boot_now, boot_after : int
        Tokens that an agent loads at start.
    floor : int
        Tokens of the load-bearing part of it.
    """

    keep_recent: int | None
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
    prunable: int
    deletes: int
    boot_now: int
    boot_after: int
    floor: int


@dataclass(frozen=True)
class Capping:
    """The work of sizing.

    Attributes
    ----------
    target : float or None
        Share of later references to serve; that which the store's settings say, else 0.9.
    token_budget : int or None
        Tokens that the boot context may take; that of the store's settings where there is none.
    prior : Prior or None
        What is known of a store before it says anything; the law of public projects where there is
        none. A store that the fleet's law was fitted on is given a prior of its own.
    """

    target: float | None = None
    token_budget: int | None = None
    prior: Prior | None = None

    def __call__(self, where: str, given: Prior | None = None) -> SizedStore:
        """Return the recommendation for one store."""
        prior = given or self.prior
        settings, frame, references = lived_through(where)
        confidence = settings.confidence or DEFAULT_CONFIDENCE
        law = None if prior is None else prior.law
        sizing = prepare_sizing(frame, references, confidence=confidence, law=law)
        target = self.target or settings.target or 0.9
        budget = settings.token_budget if self.token_budget is None else self.token_budget
        present = sizing.present
        now_tokens = present.floor.tokens + int(present.tokens_newest[-1])
        fleet = 0.0 if prior is None else prior.weight_at(target)
        return sized(advise(sizing, target=target, token_budget=budget), now_tokens, fleet)


def sized(advice: Advice, boot_now: int, fleet: float) -> SizedStore:
    """Return advice as a row.

    Parameters
    ----------
    advice : Advice
        Made with a prior of which the share `fleet` is the fleet's.
    boot_now : int
        Tokens that an agent loads at start now.
    fleet : float
        From 0 to 1.
    """
    cap, within = advice.keep_recent, advice.within_budget
    return SizedStore(
        keep_recent=cap,
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
        prunable=advice.prunable,
        deletes=0 if cap is None else max(0, advice.prunable - cap),
        boot_now=boot_now,
        boot_after=boot_now if advice.boot_tokens is None else advice.boot_tokens,
        floor=advice.floor.tokens,
    )


def size(  # noqa: PLR0913 - what is asked, by what, and who does it
    sources: Sources,
    *,
    target: float | None = None,
    token_budget: int | None = None,
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
    target : float, optional
        Share of later references to serve; by default what a store's settings say, else 0.9.
    token_budget : int, optional
        Tokens that the boot context may take; by default what a store's settings say.
    cohort : Cohort, optional
        What the stores share; found by :func:`memlab.fleet.cohort_of` when not given. A store that
        was counted in it is sized by what the others share.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`SizedStore`, and ``error``, missing
        where there is none.

    Raises
    ------
    ValueError
        When the target or the budget is out of its range.
    MemlabError
        When no store was named, or `out` holds something else.
    """
    from memlab.fleet.tables import table_of

    target = None if target is None else arguments.share("target", target)
    if token_budget is not None:
        token_budget = arguments.whole_number("token_budget", token_budget)
    members = members_of(sources)
    if cohort is None:
        cohort = cohort_of(members, runner=runner)
    whole = cohort.prior
    parts = None
    if out is not None:
        asked = {"asked": "size", "target": target, "token_budget": token_budget}
        known = blake2b(repr(whole).encode(), digest_size=16).hexdigest()
        parts = Parts(Path(out), SizedStore, SIZE_DTYPES, question=asked, rests_on=known)

    def prior(member: Member) -> Prior | None:
        others = cohort.without(member.name)
        return None if others is cohort else others.prior

    work = Capping(target, token_budget, whole)
    found = outcomes_of(work, members, runner=runner, progress=progress, parts=parts, given=prior)
    return table_of(found, SIZE_DTYPES)
