"""A recommendation: the cap with the evidence it rests on, and how it shows itself."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from memlab.sizing.choice import Verdict
from memlab.sizing.floor import Floor
from memlab.sizing.record import Record
from memlab.sizing.wording import MEANING, evidence_in_words, poor_in_words, rule_in_short
from memlab.sources.opening import start_words
from memlab.text import Sheet, Shown, Table


@dataclass(frozen=True)
class TradeEnd:
    """What one cap serves and costs.

    Attributes
    ----------
    keep_recent : int
    served : float
        Estimated share of references that find their memory.
    served_limits : tuple of float
    boot_tokens : int
        Now, were the store compacted to this cap.
    boot_tokens_p95 : int
        Over the history under continuous compaction.
    days : float
        Days of memory that the cap buys now.
    """

    keep_recent: int
    served: float
    served_limits: tuple[float, float]
    boot_tokens: int
    boot_tokens_p95: int
    days: float


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """A cap with its evidence, or a verdict that says why no cap meets what was asked.

    Attributes
    ----------
    verdict : Verdict
    keep_recent : int or None
        The smallest cap whose lower limit meets the target; None where a token budget forbids it.
    interval : tuple of int or None
        Limits of the cap that serves the target until the store has doubled.
    served : float or None
        Estimated share of references that `keep_recent` serves.
    served_limits : tuple of float or None
    references : int
        References of the store's own; `sittings` of them are independent and could be lost to a
        cap.
    sittings : int
    weight : float
        How much of the number comes from them, from 0 to 1; the rest comes from other projects.
    projects : int
        How many those are.
    missing : int
        References or reads until the store's own weigh as much as other projects'.
    measured : int
        Earlier cuts of the history at which such a number was measured, `missed` of which served
        fewer than the target.
    missed : int
    widened : float
        Factor on the limits' distance by what followed those cuts; 1.0 where nothing surprised.
    memories : int
        Prunable memories written so far.
    boot_tokens : int or None
        Boot context now, were the store compacted to `keep_recent`; `boot_tokens_p95` over the
        history under continuous compaction.
    boot_tokens_p95 : int or None
    days : float or None
        Days of memory that the cap buys now.
    prunable : int
        Prunable rows now.
    target, confidence : float
    token_budget : int or None
    within_budget : TradeEnd or None
        The largest cap whose boot context fits the budget, now and at its p95, and what it serves.
    trade : tuple of TradeEnd
        Where target and budget conflict: the cap that the target takes, then the one that fits.
    floor : Floor
    rule : str
        How the number was found, in words.
    would_change : tuple of str
        What would change the answer.
    token_rule : str
        How tokens were counted.
    source : str
        What the store is called, where that is known.
    """

    verdict: Verdict
    keep_recent: int | None
    interval: tuple[int, int] | None
    served: float | None
    served_limits: tuple[float, float] | None
    references: int
    sittings: int
    weight: float
    projects: int
    missing: int
    measured: int
    missed: int
    widened: float
    memories: int
    boot_tokens: int | None
    boot_tokens_p95: int | None
    days: float | None
    prunable: int
    target: float
    confidence: float
    token_budget: int | None
    within_budget: TradeEnd | None
    trade: tuple[TradeEnd, ...]
    floor: Floor
    rule: str
    would_change: tuple[str, ...]
    token_rule: str
    source: str = ""

    @property
    def budget_cap(self) -> int | None:
        """The largest cap that fits the budget; None without a budget, or where none fits."""
        return None if self.within_budget is None else self.within_budget.keep_recent

    @property
    def evidence(self) -> str:
        """Say how much of the number is whose."""
        return evidence_in_words(self.weight, self.references, self.projects)

    @property
    def poor_record(self) -> str:
        """What to say beside the number where too many earlier ones missed; else nothing."""
        return poor_in_words(Record(self.measured, self.missed))

    def sheet(self) -> Sheet:
        """Return what is printed."""
        title = f"{self.verdict}: {MEANING[self.verdict]}"
        if self.keep_recent is not None:
            number = f"keep_recent = {self.keep_recent:,}"
            title = f"{', '.join(filter(None, (number, self.poor_record)))} ({title})"
        tables = [_trade_table(self.trade)] if self.trade else []
        if self.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
            tables += _floor_tables(self.floor)
        return Sheet(title, list(_facts(self)), tables)

    def to_json(self) -> str:
        """Return every field as one JSON object."""
        return json.dumps(asdict(self), indent=2)


def _facts(advice: Advice) -> Iterator[tuple[str, str]]:
    yield (
        "target",
        f"{advice.target:.1%} of references served, with {advice.confidence:.0%} confidence",
    )
    yield "evidence", advice.evidence
    if advice.interval is not None:
        low, high = advice.interval
        yield "cap needed", f"{low:,} to {high:,} until the store has doubled"
    if advice.served is not None and advice.served_limits is not None:
        yield "served", _share_in_words(advice.served, advice.served_limits)
    if advice.measured:
        met = advice.measured - advice.missed
        yield "track record", f"met at {met} of {advice.measured} earlier cuts"
    if advice.boot_tokens is not None:
        boot = (
            f"{advice.boot_tokens:,} tokens now, {advice.boot_tokens_p95:,} at most in 95% of "
            f"starts ({advice.token_rule})"
        )
        yield start_words(advice.source), boot
        yield "memory kept", f"{advice.days:,.1f} days"
    if advice.token_budget is not None:
        yield "token budget", _budget_in_words(advice.token_budget, advice.within_budget)
    yield "prunable now", f"{advice.prunable:,} of {advice.memories:,} written"
    yield "rule", rule_in_short(advice.target, advice.confidence)
    for text in advice.would_change:
        yield "note", text


def _budget_in_words(budget: int, end: TradeEnd | None) -> str:
    if end is None:
        return f"{budget:,}; no cap fits"
    served = _share_in_words(end.served, end.served_limits)
    return f"{budget:,}; caps up to {end.keep_recent:,} fit, which serves {served}"


def _share_in_words(share: float, limits: tuple[float, float]) -> str:
    low, high = limits
    return f"{share:.1%} of references, limits {low:.1%} to {high:.1%}"


def _trade_table(trade: tuple[TradeEnd, ...]) -> Table:
    def line(name: str, end: TradeEnd) -> tuple[str | int, ...]:
        low, high = end.served_limits
        return (
            name,
            end.keep_recent,
            f"{end.served:.1%}",
            f"{low:.1%} to {high:.1%}",
            end.boot_tokens,
            end.boot_tokens_p95,
            f"{end.days:,.1f}",
        )

    meets_target, fits_budget = trade
    return Table(
        "Both ends of the trade",
        ("choose", "keep_recent", "served", "limits", "boot tokens", "p95", "days"),
        [line("the target", meets_target), line("the budget", fits_budget)],
    )


def _floor_tables(floor: Floor) -> list[Table]:
    return [
        Table(
            f"Load-bearing: {floor.memories:,} memories, {floor.tokens:,} tokens",
            ("kind", "memories", "tokens"),
            floor.by_kind,
        ),
        Table(
            "The largest of them",
            ("memory_id", "kind", "tokens", "title"),
            [(row.memory_id, row.kind, row.tokens, row.title) for row in floor.largest],
        ),
    ]
