"""Recommend a cap or a token budget that meets a goal."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import pandas as pd

from memlab import arguments
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_TARGET, DEFAULT_UNTIL
from memlab.evidence.past import HistoryLike, source_of
from memlab.growth.context import CONTEXT_WINDOW
from memlab.settings import SETTINGS, Settings
from memlab.sizing.advice import Advice, BudgetAdvice
from memlab.sizing.backtest import Choice, Verdict, clusters_needed, record_of
from memlab.sizing.curve import (
    BudgetSizing,
    CurvePoint,
    Sizing,
    in_tokens,
    prepared,
)
from memlab.sources.opening import settings_of
from memlab.text import counted, percent, percent_as_given

_VERDICTS_WITHOUT_NUMBER: Final = {Verdict.NOTHING_PRUNABLE, Verdict.FLOOR_EXCEEDS_BUDGET}
"""Verdicts without a number."""


class SizingGoal(NamedTuple):
    """Goal of a recommendation: the target that a cap must meet, or a given cap to evaluate."""

    keep_recent: int | None = None
    target: float = DEFAULT_TARGET
    token_budget: int | None = None
    confidence: float = DEFAULT_CONFIDENCE
    until: float = DEFAULT_UNTIL
    context_window: int = CONTEXT_WINDOW

    @classmethod
    def of(cls, settings: Settings, **options: Any) -> "SizingGoal":
        """Return the goal from options; the settings replace those that are None.

        Raise a ValueError or a TypeError if an option is invalid.
        """
        fields = {}
        for name in cls._fields:
            value = getattr(settings, name)
            if value is not None:
                fields[name] = value
        for name, value in options.items():
            if value is None:
                continue
            parse = arguments.whole_number if name == "keep_recent" else SETTINGS[name].parse
            fields[name] = parse(name, value)
        return cls(**fields)


def recommend_cap(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
    token_budget: int | None = None,
    until: float = DEFAULT_UNTIL,
) -> Advice:
    """Recommend a safe cap, whose lower confidence limit meets the target, and a likely one.

    The limit holds for the next stretch of the store, until the horizon: in the share `confidence`
    of such stretches, at least the share `target` of references finds its memory. A store with few
    references of its own is sized mostly by a prior from other projects (empirical Bayes); the more
    references it has, the less the prior weighs.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from ``memlab.load_past``, or a store, whose history is loaded. The answer compares
        a start with the ``context_window`` of the store's ``memlab.toml``, else with 200,000.
    references : DataFrame, optional
        References from ``find_references``. The default is those of the frame, or of the store and
        the logs in its ``memlab.toml``.
    target : float
        Share of references to serve, above 0 and below 1.
    confidence : float
        One-sided confidence of the limit, above 0.5 and below 1.
    token_budget : int, optional
        Upper limit of the tokens of a start: today, and in 95% of the starts of the past.
    until : float
        Horizon, a factor above 1: with 1.2, the numbers stay valid until the store has written 1.2
        times the memories that it has written so far. If a store is sized every night or every
        week, a short horizon is enough.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> import memlab
    >>> advice = memlab.recommend_cap(memlab.store_path("two_years"), target=0.5)
    >>> advice.likely <= advice.keep_recent
    True
    """
    call = "memlab.recommend_cap"
    sizing = prepared(frame, references, confidence, until, call=call)
    advice = advise(sizing, target=target, token_budget=token_budget)
    source = source_of(frame)
    window = None if source is None else settings_of(source).context_window
    return advice if window is None else replace(advice, context_window=window)


def recommend(
    memories: HistoryLike,
    references: pd.DataFrame,
    goal: SizingGoal,
    *,
    tokens: bool,
    now: datetime | None = None,
) -> tuple[Sizing, Advice]:
    """Return a store prepared for sizing, and its recommended cap.

    If `tokens` is true, a budget in tokens is recommended instead.
    """
    sizing = prepared_for(memories, references, goal, tokens=tokens, now=now)
    advice = advise(sizing, target=goal.target, token_budget=goal.token_budget)
    return sizing, replace(advice, context_window=goal.context_window)


def prepared_for(
    memories: HistoryLike,
    references: pd.DataFrame,
    goal: SizingGoal,
    *,
    tokens: bool,
    now: datetime | None = None,
) -> Sizing:
    """Return a store prepared for sizing a cap, or a budget in tokens if `tokens` is true."""
    call = "memlab.sizing.recommend"
    sizing = prepared(memories, references, goal.confidence, goal.until, call=call, now=now)
    return in_tokens(sizing) if tokens else sizing


def advise(
    sizing: Sizing, *, target: float = DEFAULT_TARGET, token_budget: int | None = None
) -> Advice:
    """Recommend a cap from the result of `prepare_sizing`. Repeated calls are cheap.

    Parameters
    ----------
    sizing : Sizing
        The result of :func:`memlab.sizing.prepare_sizing`.
    target, token_budget
        As for :func:`memlab.recommend_cap`.

    Returns
    -------
    Advice
        A `BudgetAdvice` if `sizing` is for budgets in tokens.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> import memlab
    >>> sizing = memlab.sizing.prepare_sizing(memlab.store_path("two_years"))
    >>> caps = [memlab.sizing.advise(sizing, target=target).keep_recent for target in (0.5, 0.9)]
    >>> caps == sorted(caps)
    True
    """
    arguments.expect(sizing, Sizing, call="memlab.sizing.advise", name="sizing")
    target = arguments.share("target", target)
    if token_budget is not None:
        token_budget = arguments.whole_number("token_budget", token_budget)
    choice = sizing.choose(target)
    needed = sizing.point_at(sizing.number_for(choice.keep_recent))
    largest = None if token_budget is None else sizing.largest_within(token_budget)
    fits = None if largest is None else sizing.point_at(largest)
    verdict = _verdict_under_budget(sizing, choice.verdict, needed, token_budget, fits)
    is_conflict = verdict is Verdict.TARGET_EXCEEDS_BUDGET
    has_number = verdict not in _VERDICTS_WITHOUT_NUMBER
    likely = sizing.number_for(choice.likely)
    low, high = choice.interval
    # The fields of `Advice` on the safe number are those of a point of the curve: the number, the
    # share that it serves and its cost. Without a safe number, each of them is None.
    safe_fields = vars(needed)
    if is_conflict or not has_number:
        safe_fields = dict.fromkeys(safe_fields)
    values: dict[str, Any] = {
        **safe_fields,
        **record_of(sizing.splits, target)._asdict(),
        "verdict": verdict,
        "likely": likely if has_number else None,
        "interval": (sizing.number_for(low), sizing.number_for(high)) if has_number else None,
        "references": len(sizing.references),
        "cluster_count": sizing.references.cluster_count,
        "weight": sizing.posterior.weight,
        "projects": len(sizing.settings.law.projects),
        "missing": sizing.references_needed,
        "interval_inflation": sizing.posterior.interval_inflation,
        "memories": sizing.posterior.memories,
        "until": sizing.posterior.memories_at_horizon,
        "loaded": sizing.present.tokens_loaded,
        "active_tokens": sizing.present.tokens,
        "prunable": sizing.present.prunable,
        "target": target,
        "confidence": sizing.settings.confidence,
        "token_budget": token_budget,
        "within_budget": fits,
        "trade": (needed, fits) if is_conflict else (),
        "floor": sizing.present.floor,
        "would_change": tuple(_notes(sizing, verdict, choice, target, token_budget)),
        "token_rule": sizing.present.token_rule,
        "source": sizing.source,
        "store": sizing.store,
        "likely_boot_tokens": sizing.tokens_at(likely) if has_number else None,
        "loads_at_start": not sizing.present.recalled,
        "load_bearing_at_start": sizing.present.load_bearing_at_start,
    }
    if isinstance(sizing, BudgetSizing):
        return BudgetAdvice(**values, mean=sizing.mean)
    return Advice(**values)


def _verdict_under_budget(
    sizing: Sizing,
    verdict: Verdict,
    needed: CurvePoint,
    token_budget: int | None,
    fits: CurvePoint | None,
) -> Verdict:
    """Return the verdict under a token budget; `fits` is the largest number within it."""
    if token_budget is None:
        return verdict
    if fits is None:
        return Verdict.FLOOR_EXCEEDS_BUDGET
    number = needed.number
    if not isinstance(sizing, BudgetSizing):
        # A cap above the number of memories keeps them all, and costs as much as that.
        number = min(number, sizing.number_to_keep_all)
    return Verdict.TARGET_EXCEEDS_BUDGET if number > fits.number else verdict


def _history_notes(sizing: Sizing) -> Iterator[str]:
    """Yield notes on the parts of the history that are missing."""
    gaps = sizing.gaps
    if sizing.lacks_past:
        yield (
            f"this frame holds what is left: what was deleted from {sizing.source} is in its "
            "archive; give the store's path in place of the frame, and the whole past counts"
        )
    if gaps.memories:
        were = "was" if gaps.memories == 1 else "were"
        newest = f"the newest of them at position {gaps.newest:,}"
        yield f"{counted(gaps.memories)} {were} deleted without an archive, {newest}"


def _notes(
    sizing: Sizing, verdict: Verdict, choice: Choice, target: float, token_budget: int | None
) -> Iterator[str]:
    """Yield notes on what would change the recommendation, the most important first."""
    noun = sizing.number_kind.noun
    yield from _history_notes(sizing)
    if sizing.lost:
        yield (
            f"{sizing.lost:,} references name memories that are neither in the store nor in its "
            "archive: each counts as a miss"
        )
    if sizing.gaps.cap is not None:
        yield (
            f"the number is no smaller than {sizing.number_for(sizing.gaps.cap):,}, all prunable "
            f"memories written since: the {noun} that deleted those memories was no "
            "larger, and what it lost would ask for more; memlab compact, and "
            "SqliteMemoryStore(path, archive=True), keep what they delete"
        )
    yield from _verdict_notes(sizing, verdict, choice, target, token_budget)
    if verdict is not Verdict.NOTHING_PRUNABLE:
        yield from _limit_notes(sizing)
    always_served = len(sizing.references) - int(sizing.references.losable.sum())
    if always_served:
        to_floor = f"{counted(always_served, 'references')} to load-bearing memories"
        yield f"{to_floor}, which every {noun} serves"
    if sizing.unmatched_references:
        unmatched = counted(sizing.unmatched_references, "references")
        yield f"left out: {unmatched} to something that is no earlier memory of this store"


def _limit_notes(sizing: Sizing) -> Iterator[str]:
    """Yield notes on the weight of the store's references and the width of the limits."""
    if sizing.references_needed:
        more = counted(sizing.references_needed, "more references")
        yield f"with {more} or reads, this store's own would weigh as much as other projects'"
    inflation = sizing.posterior.interval_inflation
    if inflation > 1.05:
        yield (
            f"limits are {inflation - 1:.0%} wider than references alone give: "
            "earlier numbers of this rule missed what followed"
        )
    if sizing.settings.law.doublings_beyond(sizing.posterior.memories):
        smallest, largest = sizing.settings.law.seen
        yield (
            f"other projects were seen at {smallest:,} to {counted(largest, 'memories')}, not at "
            f"{sizing.posterior.memories:,}: so the limits are wider"
        )


def _verdict_notes(
    sizing: Sizing, verdict: Verdict, choice: Choice, target: float, token_budget: int | None
) -> Iterator[str]:
    """Yield the notes that belong to a verdict."""
    match verdict:
        # Only the cap that keeps every memory until the horizon meets the target.
        case Verdict.CAP_HAS_NO_EFFECT if (
            choice.keep_recent == sizing.posterior.memories_at_horizon
        ):
            yield "no smaller number is known to meet the target; a lower target needs less"
        case Verdict.CAP_HAS_NO_EFFECT:
            memories = counted(choice.keep_recent, "prunable memories")
            yield f"ask again when the store holds more than {memories}"
        case Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = sizing.present.floor.tokens
            over = max(floor - (token_budget or 0), 0)
            yield (
                f"load-bearing memories take {counted(floor, 'tokens')} now, {over:,} over the "
                "budget: supersede or shorten decisions and skills, or raise the budget"
            )
        case Verdict.TARGET_EXCEEDS_BUDGET:
            fits = f"the {sizing.number_kind.noun} that fits and what it serves"
            yield f"a larger budget, a lower target, or {fits}"
        case Verdict.HORIZON_TOO_SHORT:
            far_share = percent(sizing.references.far_share, 0)
            yield (
                f"{far_share} of references reach beyond half of the memories of their time, more "
                f"than the {percent_as_given(1 - target)} that the target may miss; size again as "
                "the store grows, or lower the target"
            )
        case Verdict.TARGET_BEYOND_HORIZON:
            needed = clusters_needed(target, sizing.settings.confidence)
            yield (
                f"{counted(needed, 'references')} of its own are needed to show a target of "
                f"{percent_as_given(target)}; "
                f"{sizing.references.cluster_count:,} are known"
            )
        case Verdict.OK | Verdict.FROM_OTHER_PROJECTS:
            smaller = f"takes a smaller {sizing.number_kind.noun}, a higher one a larger"
            yield f"a lower target than {percent_as_given(target)} {smaller}"
