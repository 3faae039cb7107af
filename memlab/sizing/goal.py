"""From what is asked of a store to a cap or a budget."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pandas as pd

from memlab import arguments
from memlab.evidence.past import Memories
from memlab.evidence.prior import DEFAULT_CONFIDENCE, DEFAULT_TARGET, DEFAULT_UNTIL
from memlab.settings import SETTINGS, Settings
from memlab.sizing.advice import Advice, BudgetAdvice, TradeEnd
from memlab.sizing.curve import (
    BudgetSizing,
    Prepared,
    Sizing,
    prepare_budget,
    prepare_sizing,
    prepared,
)
from memlab.sizing.record import Choice, Verdict, record_of, sittings_needed
from memlab.text import counted

_WITHOUT: Final = {Verdict.NOTHING_PRUNABLE, Verdict.FLOOR_EXCEEDS_BUDGET}
"""Verdicts that come without any number."""


class Question(NamedTuple):
    """What is asked of a store: a cap to look at, or else what the recommended one has to meet."""

    keep_recent: int | None = None
    target: float = DEFAULT_TARGET
    token_budget: int | None = None
    confidence: float = DEFAULT_CONFIDENCE
    until: float = DEFAULT_UNTIL

    @classmethod
    def of(cls, settings: Settings, **asked: Any) -> "Question":
        """Return what is asked; where nothing is said, what the settings say of it."""
        given = {name: value for name, value in asked.items() if value is not None}
        for name, value in given.items():
            read = arguments.whole_number if name == "keep_recent" else SETTINGS[name]["read"]
            given[name] = read(name, value)
        known = {name: getattr(settings, name) for name in cls._fields} | given
        return cls(**{name: value for name, value in known.items() if value is not None})


def recommend_cap(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
    token_budget: int | None = None,
    until: float = DEFAULT_UNTIL,
) -> Advice:
    """Recommend a safe cap, whose lower confidence limit meets the target, and a likely one.

    The limit is one for the next stretch of the store, until its horizon: with `confidence` of such
    stretches, at least `target` of the references should find their memory. A store with few
    references of its own is sized by those of other projects, and the more it has the less so.

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
    until : float
        The horizon: how many times what is written now the numbers speak for, above 1. Whoever
        sizes every night need not look far ahead.
    """
    sizing = prepared(frame, references, confidence, until, call="memlab.recommend_cap")
    return advise(sizing, target=target, token_budget=token_budget)


def advised(
    past: pd.DataFrame, references: pd.DataFrame, asked: Question, *, in_tokens: bool = False
) -> tuple[Any, Any]:
    """Return a store prepared for sizing, and the cap or the budget that meets what is asked."""
    by: Any = (prepare_budget, advise_budget) if in_tokens else (prepare_sizing, advise)
    prepare, advise_on = by
    sizing = prepare(past, references, confidence=asked.confidence, until=asked.until)
    return sizing, advise_on(sizing, target=asked.target, token_budget=asked.token_budget)


def advise(
    sizing: Sizing, *, target: float = DEFAULT_TARGET, token_budget: int | None = None
) -> Advice:
    """Recommend a cap from what `prepare_sizing` returned; cheap to ask again.

    `target` and `token_budget` are those of :func:`memlab.recommend_cap`.
    """
    arguments.expect(sizing, Sizing, call="memlab.sizing.advise", name="sizing")
    target = arguments.share("target", target)
    if token_budget is not None:
        token_budget = arguments.whole_number("token_budget", token_budget)
    choice = sizing.choose(target)
    needed = _end(sizing, choice.keep_recent)
    cap = None if token_budget is None else sizing.largest_within(token_budget)
    fits = None if cap is None else _end(sizing, cap)
    verdict = _under_budget(sizing, choice, token_budget, fits)
    found = _found(sizing, choice, verdict, target)
    conflict = verdict is Verdict.TARGET_EXCEEDS_BUDGET
    safe: dict[str, Any] = vars(needed)
    if conflict or found["likely"] is None:
        safe = dict.fromkeys(safe)
    changes = _what_would_change(sizing, verdict, safe["keep_recent"], target, token_budget)
    return Advice(
        **found,
        **safe,
        token_budget=token_budget,
        sittings=sizing.references.sittings,
        widened=sizing.ahead.widened,
        prunable=sizing.present.prunable,
        within_budget=fits,
        trade=(needed, fits) if conflict and fits else (),
        floor=sizing.present.floor,
        would_change=tuple(changes),
    )


def recommend_budget(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> BudgetAdvice:
    """Recommend a safe budget in tokens, whose lower limit meets the target, and a likely one.

    The budget is that of :class:`memlab.TokenBudget`, the floor included. The arguments, the
    evidence and its limits are those of :func:`memlab.recommend_cap`.
    """
    sizing = prepare_budget(frame, references, confidence=confidence, until=until)
    return advise_budget(sizing, target=target)


def advise_budget(
    prepared: BudgetSizing, *, target: float = DEFAULT_TARGET, token_budget: int | None = None
) -> BudgetAdvice:
    """Recommend a budget from what `prepare_budget` returned; cheap to ask again.

    The words say whether the `target` is met within `token_budget` tokens.
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
        notes=tuple(_what_is_missing(prepared)),
        floor=prepared.floor,
        kept=row["kept"],
        pruned=row["pruned"],
        days=row["days"],
        mean=prepared.mean,
    )


def _found(sizing: Prepared, choice: Choice, verdict: Verdict, target: float) -> dict[str, Any]:
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
        "projects": len(sizing.terms.law.projects),
        "missing": sizing.missing,
        **record._asdict(),
        "memories": sizing.ahead.memories,
        "until": sizing.ahead.everything,
        "loaded": sizing.present.tokens,
        "target": target,
        "confidence": sizing.terms.confidence,
        "token_rule": sizing.present.token_rule,
        "source": sizing.source,
    }


def _under_budget(
    sizing: Sizing, choice: Choice, token_budget: int | None, fits: TradeEnd | None
) -> Verdict:
    if token_budget is None:
        return choice.verdict
    if fits is None:
        return Verdict.FLOOR_EXCEEDS_BUDGET
    if min(choice.keep_recent, sizing.present.prunable) > fits.keep_recent:
        return Verdict.TARGET_EXCEEDS_BUDGET
    return choice.verdict


def _end(sizing: Sizing, cap: int) -> TradeEnd:
    (row,) = sizing.at([cap]).to_dict("records")
    limits = row["low"], row["high"]
    boot = row["boot_tokens"], row["boot_tokens_p95"]
    return TradeEnd(cap, row["served"], limits, *boot, row["days"])


def _what_is_missing(sizing: Prepared) -> Iterator[str]:
    """Say what of its past a store is sized without."""
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


def _what_would_change(
    sizing: Sizing, verdict: Verdict, cap: int | None, target: float, token_budget: int | None
) -> Iterator[str]:
    """Say what would lead to another answer, the most telling first."""
    yield from _what_is_missing(sizing)
    if sizing.lost:
        yield (
            f"{sizing.lost:,} references name nothing that is known: they count as misses, to "
            "memories at least as old as the newest of these"
        )
    if sizing.gaps.cap is not None:
        yield (
            f"the number is no smaller than {sizing.gaps.cap:,}, all prunable memories written "
            "since: the cap that deleted those memories was no larger, and what it lost would ask "
            "for more; memlab compact, and SqliteMemoryStore(path, archive=True), keep what they "
            "delete"
        )
    yield from _by_verdict(sizing, verdict, cap, target, token_budget)
    if verdict is not Verdict.NOTHING_PRUNABLE:
        yield from _on_the_limits(sizing)
    served = len(sizing.references) - int(sizing.references.losable.sum())
    if served:
        yield f"{counted(served, 'references')} to load-bearing memories, which every cap serves"
    if sizing.misfits:
        misfits = counted(sizing.misfits, "references")
        yield f"left out: {misfits} to something that is no earlier memory of this store"


def _on_the_limits(sizing: Sizing) -> Iterator[str]:
    if sizing.missing:
        yield (
            f"with {counted(sizing.missing, 'more references')} or reads, this store's own would "
            "weigh as much as other projects'"
        )
    if sizing.ahead.widened > 1.05:
        yield (
            f"limits are {sizing.ahead.widened - 1:.0%} wider than references alone give: "
            "what followed earlier cuts of this history was a surprise"
        )
    if sizing.terms.law.doublings_beyond(sizing.ahead.memories):
        fewest, most = sizing.terms.law.seen
        yield (
            f"other projects were seen at {fewest:,} to {counted(most, 'memories')}, not at "
            f"{sizing.ahead.memories:,}: limits are wider for it"
        )


def _by_verdict(
    sizing: Sizing, verdict: Verdict, cap: int | None, target: float, token_budget: int | None
) -> Iterator[str]:
    match verdict:
        case Verdict.CAP_HAS_NO_EFFECT if cap == sizing.ahead.everything:
            yield "nothing less than all is known to serve so many; a lower target takes fewer"
        case Verdict.CAP_HAS_NO_EFFECT:
            yield f"ask again when the store holds more than {cap:,} prunable memories"
        case Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = sizing.present.floor.tokens
            over = max(floor - (token_budget or 0), 0)
            yield (
                f"load-bearing memories take {counted(floor, 'tokens')} now, {over:,} over the "
                "budget: supersede or shorten decisions and skills, or raise the budget"
            )
        case Verdict.TARGET_EXCEEDS_BUDGET:
            yield "a larger budget, a lower target, or the cap that fits and what it serves"
        case Verdict.HORIZON_TOO_SHORT:
            yield (
                f"{sizing.references.far_share:.0%} of references reach beyond half of what there "
                f"was, more than the {1 - target:.0%} that the target leaves; size again as the "
                "store grows, or aim lower"
            )
        case Verdict.TARGET_BEYOND_HORIZON:
            needed = sittings_needed(target, sizing.terms.confidence)
            yield (
                f"{counted(needed, 'references')} of its own can show a target of {target:.4g}; "
                f"{sizing.references.sittings:,} are known"
            )
        case Verdict.OK | Verdict.FROM_OTHER_PROJECTS:
            yield f"a lower target than {target:.0%} takes a smaller cap, a higher one a larger"
