"""Advice in words: the rule, what would change the answer, and the page that shows it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from memlab.sizing.choice import Verdict, sittings_needed
from memlab.sizing.curve import Sizing
from memlab.sizing.resampling import HALF_NEEDS
from memlab.text import Sheet, Table

if TYPE_CHECKING:
    from memlab.sizing.advice import Advice, TradeEnd

_MEANING: Final = {
    Verdict.OK: "the target is met by a cap, and the evidence reaches that far",
    Verdict.CAP_HAS_NO_EFFECT: (
        "the cap that the target takes is not below the prunable rows there are: keep all for now"
    ),
    Verdict.FLOOR_EXCEEDS_BUDGET: "load-bearing rows alone pass the token budget: no cap can help",
    Verdict.TARGET_EXCEEDS_BUDGET: "no cap meets both the target and the token budget: choose",
    Verdict.TOO_FEW_REFERENCES: "too few later needs are known to size a cap by",
    Verdict.HORIZON_TOO_SHORT: (
        "needs keep coming at the far end of what this history can show: more may lie beyond"
    ),
    Verdict.TARGET_BEYOND_HORIZON: (
        "the cap that the target takes, with its limit, lies beyond what this history can show"
    ),
}


def rule_in_words(target: float, confidence: float) -> str:
    """Say how the number is found."""
    return (
        f"the smallest cap whose lower {confidence:.0%} limit serves {target:.0%} of needs in the "
        "next stretch, a fifth as long as the history; mean cumulative function of needs by age "
        "rank, limits from resampled blocks of history, widened where needs drift"
    )


def what_would_change(sizing: Sizing, advice: "Advice") -> Iterator[str]:
    """Say what would lead to another answer, the most telling first."""
    yield from _MISSING.get(advice.verdict, _nothing)(sizing, advice)
    if advice.drift != 1.0:
        yield (
            f"drift: by their trend, needs of the next stretch reach {advice.drift:.1f} times as "
            "far as those of the whole history; limits are widened, size again as the store grows"
        )
    elif advice.keep_recent is not None and advice.sittings < 4 * HALF_NEEDS:
        yield "little evidence: whether needs drift cannot be told yet"
    served = int((sizing.needs.rank == 0).sum())
    if served:
        yield f"{served:,} of the references are to load-bearing rows, which every cap serves"
    if sizing.misfits:
        yield f"{sizing.misfits:,} references name no earlier row of this store and are left out"
    if sizing.history.unknown_ends:
        yield (
            f"{sizing.history.unknown_ends:,} superseded rows name a replacement that is not there "
            "or older; they count as active throughout, which can only ask for a larger cap"
        )


def sheet_of(advice: "Advice") -> Sheet:
    """Lay an advice out."""
    title = f"{advice.verdict}: {_MEANING[advice.verdict]}"
    if advice.keep_recent is not None:
        title = f"keep_recent = {advice.keep_recent:,} ({title})"
    tables = []
    if advice.trade:
        tables.append(_trade_table(advice))
    if advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        tables += _floor_tables(advice)
    return Sheet(title, list(_facts(advice)), tables)


def _facts(advice: "Advice") -> Iterator[tuple[str, str]]:
    yield "target", f"{advice.target:.1%} of needs served, with {advice.confidence:.0%} confidence"
    if advice.interval is not None:
        low, high = advice.interval
        yield "cap needed", f"{low:,} to {high:,} in the next stretch"
    if advice.hit_ratio is not None and advice.hit_ratio_interval is not None:
        low_share, high_share = advice.hit_ratio_interval
        yield "hit ratio", f"{advice.hit_ratio:.1%}, limits {low_share:.1%} to {high_share:.1%}"
    evidence = (
        f"{advice.references:,} references, {advice.sittings:,} independent ones that a cap can "
        f"lose, {advice.memories:,} memories, horizon {advice.horizon:,} rows back"
    )
    yield "evidence", evidence
    if advice.boot_tokens is not None:
        boot = (
            f"{advice.boot_tokens:,} tokens now, {advice.boot_tokens_p95:,} at the p95 of the "
            f"history ({advice.token_rule})"
        )
        yield "boot context", boot
        yield "memory kept", f"{advice.days:,.1f} days"
    if advice.token_budget is not None:
        fits = "no cap" if advice.budget_cap is None else f"up to {advice.budget_cap:,}"
        yield "token budget", f"{advice.token_budget:,}; caps that fit: {fits}"
    yield "prunable now", f"{advice.prunable:,} rows"
    yield "rule", advice.rule
    for text in advice.would_change:
        yield "note", text


def _trade_table(advice: "Advice") -> Table:
    def line(name: str, end: "TradeEnd") -> tuple[str | int, ...]:
        share = "unknown" if end.hit_ratio is None else f"{end.hit_ratio:.3f}"
        return (
            name,
            end.keep_recent,
            share,
            end.boot_tokens,
            end.boot_tokens_p95,
            f"{end.days:,.1f}",
        )

    meets_target, fits_budget = advice.trade
    return Table(
        "Both ends of the trade",
        ("choose", "keep_recent", "hit ratio", "boot tokens", "p95", "days"),
        [line("the target", meets_target), line("the budget", fits_budget)],
    )


def _floor_tables(advice: "Advice") -> list[Table]:
    floor = advice.floor
    return [
        Table(
            f"Load-bearing rows: {floor.items:,} rows, {floor.tokens:,} tokens",
            ("kind", "rows", "tokens"),
            floor.by_kind,
        ),
        Table(
            "The largest of them",
            ("memory_id", "kind", "tokens", "title"),
            [(row.memory_id, row.kind, row.tokens, row.title) for row in floor.largest],
        ),
    ]


def _nothing(_: Sizing, advice: "Advice") -> Iterator[str]:
    yield f"a lower target than {advice.target:.0%} takes a smaller cap, a higher one a larger"


def _more_references(_: Sizing, advice: "Advice") -> Iterator[str]:
    needed = sittings_needed(advice.target, advice.confidence)
    yield (
        f"{needed:,} independent references to prunable rows are needed for this target, "
        f"{advice.sittings:,} are known"
    )
    yield (
        "stores that agents write often say nothing of later needs: add an access log, or let "
        "items name in evidence_refs what they built on"
    )
    if advice.budget_cap is not None:
        yield f"the token budget alone allows keep_recent up to {advice.budget_cap:,}"


def _more_history(sizing: Sizing, advice: "Advice") -> Iterator[str]:
    far = sizing.estimate.far_share
    yield (
        f"{far:.0%} of needs lie between age ranks {advice.horizon // 2:,} and {advice.horizon:,}; "
        f"as many may lie beyond, more than the {1 - advice.target:.0%} that the target leaves"
    )
    yield "a longer history, an older access log, or a lower target"


def _beyond(_: Sizing, advice: "Advice") -> Iterator[str]:
    yield f"a longer history than its horizon of {advice.horizon:,}, or a lower target"


def _grow(_: Sizing, advice: "Advice") -> Iterator[str]:
    yield f"ask again when the store holds more than {advice.keep_recent:,} prunable rows"


def _lower_floor(_: Sizing, advice: "Advice") -> Iterator[str]:
    over = advice.floor.tokens - (advice.token_budget or 0)
    yield (
        f"load-bearing rows take {advice.floor.tokens:,} tokens now, {max(over, 0):,} over the "
        "budget: supersede or shorten decisions and skills, or raise the budget"
    )


def _choose(_: Sizing, advice: "Advice") -> Iterator[str]:
    meets_target, fits_budget = advice.trade
    yield (
        f"a budget of {meets_target.boot_tokens_p95:,} tokens would allow the target; a cap of "
        f"{fits_budget.keep_recent:,} fits this one"
    )


_MISSING: Final = {
    Verdict.TOO_FEW_REFERENCES: _more_references,
    Verdict.HORIZON_TOO_SHORT: _more_history,
    Verdict.TARGET_BEYOND_HORIZON: _beyond,
    Verdict.CAP_HAS_NO_EFFECT: _grow,
    Verdict.FLOOR_EXCEEDS_BUDGET: _lower_floor,
    Verdict.TARGET_EXCEEDS_BUDGET: _choose,
}
