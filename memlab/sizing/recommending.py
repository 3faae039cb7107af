"""From a store to a recommendation."""

import numpy as np
import pandas as pd

from memlab import arguments
from memlab.evidence.law import DEFAULT_CONFIDENCE
from memlab.sizing.advice import Advice, TradeEnd
from memlab.sizing.choice import Affordable, Choice, Verdict, above_gaps, choose_cap
from memlab.sizing.curve import Sizing, prepared
from memlab.sizing.record import record_of
from memlab.sizing.wording import missing_references, rule_in_words, what_would_change


def recommend_cap(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
    token_budget: int | None = None,
) -> Advice:
    """Recommend the smallest cap whose lower confidence limit meets the target.

    The limit is one for the next stretch of the store, until it has doubled: with `confidence` of
    such stretches, at least `target` of the references should find their memory. A store with few
    references of its own is sized by what other projects' references say, and the more it has the
    less by those.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
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


def advise(sizing: Sizing, *, target: float = 0.9, token_budget: int | None = None) -> Advice:
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
    choice = choice_of(sizing, target=target, prunable=sizing.present.prunable)
    needed = _end(sizing, choice.keep_recent)
    fits = None if token_budget is None else _largest_within(sizing, token_budget)
    found, trade = _within_budget(sizing, choice, token_budget, needed, fits)
    end = None if found.keep_recent is None else needed
    record = record_of(sizing.cuts, target)
    return Advice(
        verdict=found.verdict,
        keep_recent=found.keep_recent,
        interval=found.interval,
        served=end.served if end else None,
        served_limits=end.served_limits if end else None,
        references=len(sizing.references),
        sittings=sizing.references.sittings,
        weight=sizing.ahead.weight,
        projects=len(sizing.law.projects),
        missing=missing_references(sizing),
        measured=record.measured,
        missed=record.missed,
        widened=sizing.ahead.widened,
        memories=sizing.ahead.memories,
        boot_tokens=end.boot_tokens if end else None,
        boot_tokens_p95=end.boot_tokens_p95 if end else None,
        days=end.days if end else None,
        prunable=sizing.present.prunable,
        target=target,
        confidence=sizing.confidence,
        token_budget=token_budget,
        within_budget=fits,
        trade=trade,
        floor=sizing.present.floor,
        rule=rule_in_words(target, sizing.confidence),
        would_change=tuple(what_would_change(sizing, found, target, token_budget)),
        token_rule=sizing.present.token_rule,
        source=sizing.source,
    )


def choice_of(sizing: Sizing, *, target: float, prunable: int) -> Choice:
    """Choose by all evidence, and not below what deletions without an archive have removed of it.

    Parameters
    ----------
    sizing : Sizing
        Its references' age ranks in the unit of `prunable`: memories, or those of mean length.
    target : float
        Share of references to serve.
    prunable : int
        What there is of prunable memories now.
    """
    choice = choose_cap(
        sizing.ahead,
        target=target,
        prunable=prunable,
        far_share=sizing.references.far_share,
    )
    return above_gaps(
        choice,
        sizing.gaps,
        target=target,
        written=len(sizing.history),
        lost=sizing.lost / max(len(sizing.references), 1),
    )


def _within_budget(
    sizing: Sizing,
    choice: Choice,
    token_budget: int | None,
    needed: TradeEnd,
    fits: TradeEnd | None,
) -> tuple[Affordable, tuple[TradeEnd, ...]]:
    """Return the choice under a budget, and both ends of a conflict."""
    as_chosen = Affordable(choice.verdict, choice.keep_recent, choice.interval)
    if token_budget is None:
        return as_chosen, ()
    if fits is None or sizing.present.floor.tokens > token_budget:
        return Affordable(Verdict.FLOOR_EXCEEDS_BUDGET), ()
    if min(needed.keep_recent, sizing.present.prunable) <= fits.keep_recent:
        return as_chosen, ()
    return Affordable(Verdict.TARGET_EXCEEDS_BUDGET, None, choice.interval), (needed, fits)


def _largest_within(sizing: Sizing, token_budget: int) -> TradeEnd | None:
    """Return the largest cap that fits a budget and what it serves; None where none fits."""
    cap = sizing.largest_within(token_budget)
    return None if cap is None else _end(sizing, cap)


def _end(sizing: Sizing, cap: int) -> TradeEnd:
    """Look one cap up."""
    row = {name: column[0] for name, column in sizing.columns_at(np.array([cap])).items()}
    return TradeEnd(
        cap,
        float(row["served"]),
        (float(row["low"]), float(row["high"])),
        int(row["boot_tokens"]),
        int(row["boot_tokens_p95"]),
        float(row["days"]),
    )
