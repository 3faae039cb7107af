"""The recommendation, with the evidence it rests on, or a refusal that says what is missing."""

import json
from dataclasses import asdict, dataclass, replace

import pandas as pd

from memlab.arguments import share, whole_number
from memlab.frame.needed import expect_memories, expect_references
from memlab.sizing.choice import Choice, Verdict, choose_cap
from memlab.sizing.curve import DEFAULT_CONFIDENCE, Sizing, prepare_sizing
from memlab.sizing.floor import Floor
from memlab.sizing.wording import rule_in_words, sheet_of, what_would_change
from memlab.text import Sheet, Shown


@dataclass(frozen=True)
class TradeEnd:
    """What one cap serves and costs.

    Attributes
    ----------
    keep_recent : int
    hit_ratio : float or None
        Estimated; None without references.
    hit_ratio_interval : tuple of float or None
    boot_tokens : int
        Now, were the store compacted to this cap.
    boot_tokens_p95 : int
        Over the history under continuous compaction.
    days : float
        Days of memory that the cap buys now.
    """

    keep_recent: int
    hit_ratio: float | None
    hit_ratio_interval: tuple[float, float] | None
    boot_tokens: int
    boot_tokens_p95: int
    days: float


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """A cap with its evidence, or a verdict that says why there is none.

    Attributes
    ----------
    verdict : Verdict
    keep_recent : int or None
        The smallest cap whose lower limit meets the target; None when declined.
    interval : tuple of int or None
        Limits of the cap that serves the target in the next stretch, a fifth as long again as the
        history.
    hit_ratio : float or None
        Estimated share of needs that `keep_recent` serves.
    hit_ratio_interval : tuple of float or None
    references : int
        References counted; `sittings` of them are independent and could be lost to a cap.
    sittings : int
    memories : int
        Rows the evidence comes from.
    horizon : int
        The largest age rank that the evidence speaks of.
    boot_tokens : int or None
        Boot context now, were the store compacted to `keep_recent`; `boot_tokens_p95` over the
        history under continuous compaction.
    boot_tokens_p95 : int or None
    days : float or None
        Days of memory that the cap buys now.
    prunable : int
        Prunable rows now.
    drift : float
        Factor by which needs of the next stretch reach farther than those of the whole history, if
        the trend goes on; 1.0 where resampling alone would show as much.
    target, confidence : float
    token_budget : int or None
    budget_cap : int or None
        The largest cap whose p95 boot context fits the budget.
    trade : tuple of TradeEnd
        Where target and budget conflict: the cap that the target takes, then the one that fits.
    floor : Floor
    rule : str
        How the number was found, in words.
    would_change : tuple of str
        What would change the answer.
    token_rule : str
        How tokens were counted.
    """

    verdict: Verdict
    keep_recent: int | None
    interval: tuple[int, int] | None
    hit_ratio: float | None
    hit_ratio_interval: tuple[float, float] | None
    references: int
    sittings: int
    memories: int
    horizon: int
    boot_tokens: int | None
    boot_tokens_p95: int | None
    days: float | None
    prunable: int
    drift: float
    target: float
    confidence: float
    token_budget: int | None
    budget_cap: int | None
    trade: tuple[TradeEnd, ...]
    floor: Floor
    rule: str
    would_change: tuple[str, ...]
    token_rule: str

    def sheet(self) -> Sheet:
        """Return what is printed."""
        return sheet_of(self)

    def to_json(self) -> str:
        """Return every field as one JSON object."""
        return json.dumps(asdict(self), indent=2)


def recommend_cap(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
    token_budget: int | None = None,
    seed: int = 0,
) -> Advice:
    """Recommend the smallest cap whose lower confidence limit meets the target, or decline.

    The limit is one for the next stretch of history, a fifth as long again (see `band_of`): with
    `confidence` of such stretches, at least `target` of the needs should find their memory.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    target : float
        Share of needs to serve, above 0 and below 1.
    confidence : float
        Of the limit, above 0.5 and below 1.
    token_budget : int, optional
        Tokens that the boot context may take at its p95.
    seed : int
        Of the resampling behind the limits.

    Returns
    -------
    Advice

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    """
    expect_memories(frame, call="memlab.recommend_cap")
    expect_references(references, call="memlab.recommend_cap", optional=True)
    share("target", target)
    sizing = prepare_sizing(frame, references, confidence=confidence, seed=seed)
    return advise(sizing, target=target, token_budget=token_budget)


def advise(sizing: Sizing, *, target: float = 0.9, token_budget: int | None = None) -> Advice:
    """Recommend a cap from what `prepare_sizing` returned; cheap to ask again.

    Raises
    ------
    ValueError
        When the target or the budget is out of its range.
    """
    target = share("target", target)
    if token_budget is not None:
        token_budget = whole_number("token_budget", token_budget)
    choice = choose_cap(
        sizing.estimate,
        sizing.band,
        target=target,
        confidence=sizing.confidence,
        prunable=sizing.present.prunable,
    )
    choice, budget_cap, trade = _within_budget(sizing, choice, token_budget)
    end = None if choice.keep_recent is None else _end(sizing, choice.keep_recent)
    advice = Advice(
        verdict=choice.verdict,
        keep_recent=choice.keep_recent,
        interval=choice.interval,
        hit_ratio=end.hit_ratio if end else None,
        hit_ratio_interval=end.hit_ratio_interval if end else None,
        references=len(sizing.needs),
        sittings=sizing.estimate.independent,
        memories=len(sizing.history),
        horizon=sizing.estimate.horizon,
        boot_tokens=end.boot_tokens if end else None,
        boot_tokens_p95=end.boot_tokens_p95 if end else None,
        days=end.days if end else None,
        prunable=sizing.present.prunable,
        drift=1.0 if sizing.band is None else sizing.band.drift,
        target=target,
        confidence=sizing.confidence,
        token_budget=token_budget,
        budget_cap=budget_cap,
        trade=trade,
        floor=sizing.present.floor,
        rule=rule_in_words(target, sizing.confidence),
        would_change=(),
        token_rule=sizing.present.token_rule,
    )
    return replace(advice, would_change=tuple(what_would_change(sizing, advice)))


def _within_budget(
    sizing: Sizing, choice: Choice, token_budget: int | None
) -> tuple[Choice, int | None, tuple[TradeEnd, ...]]:
    """Return the choice under a budget, the largest cap that fits, and both ends of a conflict."""
    if token_budget is None:
        return choice, None, ()
    budget_cap = sizing.largest_within(token_budget)
    if budget_cap is None or sizing.present.floor.tokens > token_budget:
        return Choice(Verdict.FLOOR_EXCEEDS_BUDGET), None, ()
    cap = choice.keep_recent
    if cap is None or min(cap, sizing.present.prunable) <= budget_cap:
        return choice, budget_cap, ()
    trade = (_end(sizing, cap), _end(sizing, budget_cap))
    return Choice(Verdict.TARGET_EXCEEDS_BUDGET, None, choice.interval), budget_cap, trade


def _end(sizing: Sizing, cap: int) -> TradeEnd:
    """Look one cap up."""
    row = sizing.at([cap]).iloc[0]
    unknown = bool(pd.isna(row["hit_ratio"]))
    return TradeEnd(
        cap,
        None if unknown else float(row["hit_ratio"]),
        None if unknown else (float(row["low"]), float(row["high"])),
        int(row["boot_tokens"]),
        int(row["boot_tokens_p95"]),
        float(row["days"]),
    )
