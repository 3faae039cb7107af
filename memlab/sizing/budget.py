"""A budget in tokens, sized as a cap is: what each serves, and the one that a target takes.

Under `TokenBudget` a memory stays as long as it, all that is newer and the floor fit. So its age
rank in tokens is how many these take, budgets keep nested sets as caps do, and one pass over the
history gives every budget. How far back the next references will reach is known in memories, by the
store's own and by other projects'; a memory of mean length stands for so many tokens.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from memlab import arguments
from memlab.columns import REFERENCES, SOURCE, TOKEN_RULE
from memlab.evidence.law import DEFAULT_CONFIDENCE
from memlab.sizing.choice import Verdict
from memlab.sizing.curve import Sizing, prepared_on_rows
from memlab.sizing.history import Ints, beyond_gaps
from memlab.sizing.recommending import choice_of
from memlab.sizing.record import Record, record_of
from memlab.sizing.wording import MEANING as MEANING_OF_CAPS
from memlab.sizing.wording import (
    evidence_in_words,
    missing_references,
    poor_in_words,
    without_archive,
)
from memlab.text import Sheet, Shown

MAX_TOKENS = "max_tokens"
"""Name of the curve's index."""

SPREAD = 200
"""Budgets in a curve, beside none at all and those at which what it served changes."""

MEANING = MEANING_OF_CAPS | {
    Verdict.OK: "the target is met by a budget, and the evidence reaches that far",
    Verdict.CAP_HAS_NO_EFFECT: "all that is loaded today fits: keep all for now",
    Verdict.HORIZON_TOO_SHORT: (
        "references keep reaching the far end of this history: the budget will grow with the store"
    ),
}


@dataclass(frozen=True)
class BudgetSizing:
    """A store prepared for sizing a budget.

    Attributes
    ----------
    sizing : Sizing
        The store, its references' age ranks and its gaps' cap in memories of mean length.
    took : array of int64
        The budget that each reference took, floor included; 0 for one to a load-bearing memory. Of
        one to what was deleted without an archive, what the law expects.
    mean : float
        Tokens of a memory of mean length.
    """

    sizing: Sizing
    took: Ints
    mean: float

    @property
    def floor(self) -> int:
        """What the load-bearing memories take now."""
        return self.sizing.present.floor.tokens

    @property
    def most(self) -> int:
        """What all that is loaded now takes."""
        return self.floor + int(self.sizing.present.tokens_newest[-1])

    def budget_of(self, memories: float) -> int:
        """Return the budget that has room for so many memories of mean length."""
        return self.floor + int(np.ceil(memories * self.mean))

    def at(self, budgets: Iterable[int]) -> pd.DataFrame:
        """Return the curve at these budgets.

        Raises
        ------
        ValueError
            When one is no whole number of 0 or more.
        """
        wanted = np.array([arguments.whole_number(MAX_TOKENS, each) for each in budgets], np.int64)
        room = np.maximum(wanted - self.floor, 0)
        memories = np.floor(room / self.mean + 1e-9).astype(np.int64)
        newest = self.sizing.present.tokens_newest
        kept = np.searchsorted(newest, room, side="right") - 1
        ahead = self.sizing.ahead
        low, high = ahead.limits_at(memories)
        served = np.searchsorted(np.sort(self.took), wanted, side="right")
        return pd.DataFrame(
            {
                "served": ahead.share_at(memories),
                "low": low,
                "high": high,
                "served_observed": served / len(self.took) if len(self.took) else np.nan,
                "kept": kept,
                "boot_tokens": self.floor + newest[kept],
                "pruned": self.sizing.present.prunable - kept,
                "days": self.sizing.present.days_newest[kept],
            },
            index=pd.Index(wanted, name=MAX_TOKENS),
        )


@dataclass(frozen=True, repr=False)
class BudgetAdvice(Shown):
    """A budget in tokens with its evidence.

    Attributes
    ----------
    verdict : Verdict
    max_tokens : int
        The smallest budget whose lower limit meets the target.
    interval : tuple of int
        Limits of the budget that serves the target until the store has doubled.
    served : float
        Estimated share of references that `max_tokens` serves; `served_limits` its limits.
    served_limits : tuple of float
    served_observed : float or None
        The share of the store's own references so far that it would have served, exactly.
    references : int
        Of the store's own. `weight` of the number comes from them, the rest from `projects` others.
    weight : float
    projects : int
    missing : int
        References or reads until the store's own weigh as much as other projects'.
    measured, missed : int
        Earlier cuts of the history at which such a number was measured, and how many it missed.
    gaps : int
        Memories that were deleted without an archive.
    floor, loaded : int
        Tokens that load-bearing memories take now, and all that is loaded.
    kept, pruned : int
        Prunable memories that it would keep and delete now.
    days : float
        From the newest memory back to the oldest kept.
    mean : float
        Tokens of a prunable memory on average.
    target, confidence : float
    token_rule : str
    """

    verdict: Verdict
    max_tokens: int
    interval: tuple[int, int]
    served: float
    served_limits: tuple[float, float]
    served_observed: float | None
    references: int
    weight: float
    projects: int
    missing: int
    measured: int
    missed: int
    gaps: int
    floor: int
    loaded: int
    kept: int
    pruned: int
    days: float
    mean: float
    target: float
    confidence: float
    token_rule: str

    def sheet(self) -> Sheet:
        """Return what is printed."""
        number = f"max_tokens = {self.max_tokens:,}"
        poor = poor_in_words(Record(self.measured, self.missed))
        title = (
            f"{', '.join(filter(None, (number, poor)))} ({self.verdict}: {MEANING[self.verdict]})"
        )
        return Sheet(title, list(self._facts()), [])

    def to_json(self) -> str:
        """Return every field as one JSON object."""
        return json.dumps(asdict(self), indent=2)

    def _facts(self) -> Iterator[tuple[str, str]]:
        low, high = self.served_limits
        confidence = f"with {self.confidence:.0%} confidence"
        yield "target", f"{self.target:.1%} of references served, {confidence}"
        yield "evidence", evidence_in_words(self.weight, self.references, self.projects)
        fewest, most = self.interval
        yield "budget needed", f"{fewest:,} to {most:,} tokens until the store has doubled"
        yield "served", f"{self.served:.1%} of references, limits {low:.1%} to {high:.1%}"
        if self.served_observed is not None:
            yield "so far", f"{self.served_observed:.1%} of {self.references:,} references"
        if self.measured:
            met = self.measured - self.missed
            yield "track record", f"met at {met} of {self.measured} earlier cuts"
        yield "floor", f"{self.floor:,} tokens of load-bearing memories are in it"
        yield "loaded now", f"{self.loaded:,} tokens ({self.token_rule})"
        kept = f"{self.kept:,} prunable memories, {self.days:,.1f} days; {self.pruned:,} would go"
        yield "keeps now", kept
        if self.gaps:
            yield "note", without_archive(self.gaps)
        rule = f"the smallest budget whose lower {self.confidence:.0%} limit serves"
        mean = f"a memory counts as the mean, {self.mean:,.0f} tokens"
        yield "rule", f"{rule} {self.target:.0%} of references; {mean}"


def prepare_budget(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> BudgetSizing:
    """Prepare a frame for look-ups at many budgets in tokens.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    confidence : float
        Of each limit on its own, above 0.5 and below 1.

    Returns
    -------
    BudgetSizing
        With ``at(budgets)`` and ``budget_of(memories)``.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    call = "memlab.sizing.prepare_budget"
    sizing, (target, at, _), lost = prepared_on_rows(frame, references, confidence, call=call)
    history = sizing.history
    alone = history.largest_sums(target, at, with_floor=False)
    took = history.largest_sums(target, at, with_floor=True)
    lengths = history.tokens[history.counted]
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    ranks = np.where(history.counted[target], np.ceil(alone / mean), 0).astype(np.int64)
    in_means = beyond_gaps(replace(sizing.references, rank=ranks), lost, sizing.law)
    further = np.ceil((in_means.rank - ranks) * mean).astype(np.int64)
    gaps = sizing.gaps
    if gaps.cap is not None:
        since = lengths[len(lengths) - gaps.cap :].sum()
        gaps = gaps._replace(cap=int(np.ceil(since / mean)))
    return BudgetSizing(replace(sizing, references=in_means, gaps=gaps), took + further, mean)


def recommend_budget(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
) -> BudgetAdvice:
    """Recommend the smallest budget in tokens whose lower confidence limit meets the target.

    The budget is that of :class:`memlab.TokenBudget`, the floor included. The evidence and its
    limits are those of :func:`memlab.recommend_cap`.

    Parameters
    ----------
    frame, references, target, confidence
        As for :func:`memlab.recommend_cap`.

    Returns
    -------
    BudgetAdvice

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    target = arguments.share("target", target)
    return advise_budget(prepare_budget(frame, references, confidence=confidence), target=target)


def advise_budget(prepared: BudgetSizing, *, target: float = 0.9) -> BudgetAdvice:
    """Recommend a budget from what `prepare_budget` returned; cheap to ask again.

    Parameters
    ----------
    prepared : BudgetSizing
        A prepared store.
    target : float
        Share of references to serve, above 0 and below 1.

    Returns
    -------
    BudgetAdvice

    Raises
    ------
    ValueError
        When the target is out of its range.
    """
    target = arguments.share("target", target)
    sizing = prepared.sizing
    room = (prepared.most - prepared.floor) / prepared.mean
    choice = choice_of(sizing, target=target, prunable=int(np.ceil(room)))
    low, high = choice.interval
    budget = prepared.budget_of(high)
    row = prepared.at([budget]).iloc[0]
    record = record_of(sizing.cuts, target)
    return BudgetAdvice(
        verdict=choice.verdict,
        max_tokens=budget,
        interval=(prepared.budget_of(low), budget),
        served=float(row["served"]),
        served_limits=(float(row["low"]), float(row["high"])),
        served_observed=float(row["served_observed"]) if len(prepared.took) else None,
        references=len(sizing.references),
        weight=sizing.ahead.weight,
        projects=len(sizing.law.projects),
        missing=missing_references(sizing),
        measured=record.measured,
        missed=record.missed,
        gaps=sizing.gaps.memories,
        floor=prepared.floor,
        loaded=prepared.most,
        kept=int(row["kept"]),
        pruned=int(row["pruned"]),
        days=float(row["days"]),
        mean=prepared.mean,
        target=target,
        confidence=sizing.confidence,
        token_rule=sizing.present.token_rule,
    )


def budget_curve(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> pd.DataFrame:
    """Compute what every budget in tokens serves, and what it keeps.

    What one would have served in the past is exact, under supersession and a growing floor too; one
    pass over the history gives it for every budget. What it will serve until the store has doubled
    is estimated as for a cap.

    Parameters
    ----------
    frame, references, confidence
        As for :func:`memlab.sizing.cap_curve`.

    Returns
    -------
    DataFrame
        Indexed by ``max_tokens`` from the floor of now to what is loaded now, and further as long
        as references reached so far: all budgets at which what was served changes, and a spread of
        others. ``served``, ``low``, ``high``, ``served_observed`` (NaN without a reference),
        ``kept``, ``pruned``, ``boot_tokens`` and ``days``, as for a cap.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    found = prepare_budget(frame, references, confidence=confidence)
    most = max(found.most, int(found.took.max(initial=0)))
    spread = np.linspace(found.floor, max(most, found.floor), SPREAD).round().astype(np.int64)
    curve = found.at(np.unique(np.concatenate([[0], spread, found.took])))
    sizing = found.sizing
    curve.attrs = {
        TOKEN_RULE: sizing.present.token_rule,
        SOURCE: sizing.source,
        REFERENCES: len(sizing.references),
    }
    return curve
