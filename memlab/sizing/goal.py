"""From a goal, the share of references to serve, to a cap or a budget."""

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import arguments
from memlab.evidence.past import Memories
from memlab.evidence.prior import DEFAULT_CONFIDENCE, DEFAULT_TARGET
from memlab.settings import Settings
from memlab.sizing.advice import Advice, BudgetAdvice, TradeEnd
from memlab.sizing.curve import (
    BudgetSizing,
    Prepared,
    Sizing,
    prepare_budget,
    prepared,
)
from memlab.sizing.record import Choice, Verdict, record_of
from memlab.sizing.wording import (
    missing_references,
    rule_in_words,
    what_is_missing,
    what_would_change,
)

_WITHOUT: Final = {Verdict.NOTHING_PRUNABLE, Verdict.FLOOR_EXCEEDS_BUDGET}
"""Verdicts that come without any number."""


class Goal(NamedTuple):
    """What is asked of a store: the share to serve, how surely, and in how many tokens."""

    target: float = DEFAULT_TARGET
    confidence: float = DEFAULT_CONFIDENCE
    token_budget: int | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        target: float | None = None,
        confidence: float | None = None,
        token_budget: int | None = None,
    ) -> "Goal":
        """Return what is asked; where nothing is said, what the settings say of it."""
        return cls(
            target or settings.target or DEFAULT_TARGET,
            confidence or settings.confidence or DEFAULT_CONFIDENCE,
            settings.token_budget if token_budget is None else token_budget,
        )


def recommend_cap(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
    token_budget: int | None = None,
) -> Advice:
    """Recommend a safe cap, whose lower confidence limit meets the target, and a likely one.

    The limit is one for the next stretch of the store, until it has doubled: with `confidence` of
    such stretches, at least `target` of the references should find their memory. A store with few
    references of its own is sized by what other projects' references say, and the more it has the
    less by those.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load_past`` returns, or the store itself, for its whole past.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame, or in the store and the logs that
        ``memlab.toml`` remembers, when not given.
    target : float
        Share of references to serve, above 0 and below 1.
    confidence : float
        Of the limit, above 0.5 and below 1.
    token_budget : int, optional
        Tokens that the boot context may take, now and at its p95.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    target = arguments.share("target", target)
    sizing = prepared(frame, references, confidence, call="memlab.recommend_cap")
    return advise(sizing, target=target, token_budget=token_budget)


def advise(
    sizing: Sizing, *, target: float = DEFAULT_TARGET, token_budget: int | None = None
) -> Advice:
    """Recommend a cap from what `prepare_sizing` returned; cheap to ask again.

    Parameters
    ----------
    sizing : Sizing
        A prepared store.
    target, token_budget
        As for :func:`memlab.recommend_cap`.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        When the target or the budget is out of its range.
    WrongArgumentError
        When `sizing` is something else.
    """
    arguments.expect(sizing, Sizing, call="memlab.sizing.advise", name="sizing")
    target = arguments.share("target", target)
    if token_budget is not None:
        token_budget = arguments.whole_number("token_budget", token_budget)
    choice = sizing.choose(target)
    needed = _end(sizing, choice.keep_recent)
    fits = _largest_within(sizing, token_budget)
    verdict = _under_budget(sizing, choice, token_budget, fits)
    found = _found(sizing, choice, verdict, target)
    conflict = verdict is Verdict.TARGET_EXCEEDS_BUDGET
    end = None if conflict or found["likely"] is None else needed
    cap = None if end is None else end.keep_recent
    return Advice(
        **found,
        token_budget=token_budget,
        keep_recent=cap,
        served=end.served if end else None,
        served_limits=end.served_limits if end else None,
        sittings=sizing.references.sittings,
        widened=sizing.ahead.widened,
        boot_tokens=end.boot_tokens if end else None,
        boot_tokens_p95=end.boot_tokens_p95 if end else None,
        days=end.days if end else None,
        prunable=sizing.present.prunable,
        within_budget=fits,
        trade=(needed, fits) if conflict and fits else (),
        floor=sizing.present.floor,
        rule=rule_in_words(target, sizing.confidence),
        would_change=tuple(what_would_change(sizing, verdict, cap, target, token_budget)),
    )


def recommend_budget(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
) -> BudgetAdvice:
    """Recommend a safe budget in tokens, whose lower limit meets the target, and a likely one.

    The budget is that of :class:`memlab.TokenBudget`, the floor included. The evidence and its
    limits are those of :func:`memlab.recommend_cap`.

    Parameters
    ----------
    frame, references, target, confidence
        As for :func:`memlab.recommend_cap`.

    Returns
    -------
    BudgetAdvice
    """
    target = arguments.share("target", target)
    return advise_budget(prepare_budget(frame, references, confidence=confidence), target=target)


def advise_budget(
    prepared: BudgetSizing, *, target: float = DEFAULT_TARGET, token_budget: int | None = None
) -> BudgetAdvice:
    """Recommend a budget from what `prepare_budget` returned; cheap to ask again.

    Parameters
    ----------
    prepared : BudgetSizing
        A prepared store.
    target : float
        Share of references to serve, above 0 and below 1.
    token_budget : int, optional
        Tokens that may be spent at the most; the words say whether the target is met within them.

    Returns
    -------
    BudgetAdvice

    Raises
    ------
    ValueError
        When the target is out of its range.
    """
    target = arguments.share("target", target)
    choice = prepared.choose(target)
    budget = prepared.number_for(choice.keep_recent)
    (row,) = prepared.at([budget]).to_dict("records")
    found = _found(prepared, choice, choice.verdict, target)
    is_number = found["likely"] is not None
    return BudgetAdvice(
        **found,
        token_budget=token_budget,
        max_tokens=budget if is_number else None,
        served=row["served"] if is_number else None,
        served_limits=(row["low"], row["high"]) if is_number else None,
        served_observed=row["served_observed"] if len(prepared.took) else None,
        notes=tuple(what_is_missing(prepared)),
        floor=prepared.floor,
        kept=row["kept"],
        pruned=row["pruned"],
        days=row["days"],
        mean=prepared.mean,
    )


def _found(sizing: Prepared, choice: Choice, verdict: Verdict, target: float) -> dict[str, Any]:
    """Return what advice says in whatever unit."""
    record = record_of(sizing.cuts, target)
    likely, interval = None, None
    if verdict not in _WITHOUT:
        likely = sizing.number_for(choice.likely)
        low, high = choice.interval
        interval = sizing.number_for(low), sizing.number_for(high)
    return {
        "verdict": verdict,
        "likely": likely,
        "interval": interval,
        "references": len(sizing.references),
        "weight": sizing.ahead.weight,
        "projects": len(sizing.law.projects),
        "missing": missing_references(sizing),
        "measured": record.measured,
        "missed": record.missed,
        "waste": record.waste,
        "memories": sizing.ahead.memories,
        "until": sizing.ahead.everything,
        "loaded": sizing.present.tokens,
        "target": target,
        "confidence": sizing.confidence,
        "token_rule": sizing.present.token_rule,
        "source": sizing.source,
    }


def _under_budget(
    sizing: Sizing, choice: Choice, token_budget: int | None, fits: TradeEnd | None
) -> Verdict:
    """Return the verdict on a choice under a budget."""
    if token_budget is None:
        return choice.verdict
    if fits is None or sizing.present.floor.tokens > token_budget:
        return Verdict.FLOOR_EXCEEDS_BUDGET
    if min(choice.keep_recent, sizing.present.prunable) > fits.keep_recent:
        return Verdict.TARGET_EXCEEDS_BUDGET
    return choice.verdict


def _largest_within(sizing: Sizing, token_budget: int | None) -> TradeEnd | None:
    """Return the largest cap that fits a budget and what it serves; None where none fits."""
    cap = None if token_budget is None else sizing.largest_within(token_budget)
    return None if cap is None else _end(sizing, cap)


def _end(sizing: Sizing, cap: int) -> TradeEnd:
    """Look one cap up."""
    row = {name: each.item() for name, each in sizing.columns_at(np.array([cap])).items()}
    limits = row["low"], row["high"]
    boot = row["boot_tokens"], row["boot_tokens_p95"]
    return TradeEnd(cap, row["served"], limits, *boot, row["days"])
