"""The answer that a report begins with: the number or what is missing, and what to do next."""

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from memlab.evidence.elsewhere import in_words
from memlab.report.commands import preview_command
from memlab.report.findings import Findings
from memlab.sizing import Advice, Verdict
from memlab.sizing.wording import MEANING


class Fact(NamedTuple):
    """A figure with its name, and what there is to say of it."""

    name: str
    figure: str
    remark: str


class Step(NamedTuple):
    """A command, and what it does."""

    command: str
    does: str


class Answer(NamedTuple):
    """What a reader wants to know first.

    Attributes
    ----------
    headline : str
    because : list of str
        What stands behind it, in sentences.
    facts : list of Fact
    steps : list of Step
        What to do next: there is always something.
    """

    headline: str
    because: list[str]
    facts: list[Fact]
    steps: list[Step]


def answer_of(findings: Findings) -> Answer:
    """Return the answer for a store."""
    return Answer(
        _headline(findings),
        list(_because(findings)),
        list(_facts(findings)),
        list(_steps(findings)),
    )


def _headline(findings: Findings) -> str:
    """Say the number, or what is in its way."""
    advice, budget = findings.advice, findings.asked.token_budget or 0
    match advice.verdict:
        case Verdict.FLOOR_EXCEEDS_BUDGET:
            return (
                f"No cap fits {budget:,} tokens: load-bearing memories alone take "
                f"{advice.floor.tokens:,}"
            )
        case Verdict.TARGET_EXCEEDS_BUDGET:
            return f"No cap both serves {advice.target:.0%} and fits {budget:,} tokens: choose"
    if advice.keep_recent is None:
        return f"No number: {MEANING[advice.verdict]}"
    if _nothing_goes(advice):
        return f"Keep everything for now: keep_recent = {advice.keep_recent:,}"
    return f"Keep the newest {advice.keep_recent:,}: keep_recent = {advice.keep_recent:,}"


def _because(findings: Findings) -> Iterator[str]:
    """Say what the number means and how far to trust it."""
    advice = findings.advice
    if advice.keep_recent is not None:
        yield (
            f"The smallest cap that serves {advice.target:.0%} of later references with "
            f"{advice.confidence:.0%} confidence, until the store has doubled."
        )
    if advice.verdict is not Verdict.OK:
        yield _sentence(MEANING[advice.verdict])
    if _nothing_goes(advice):
        yield f"The store holds {advice.prunable:,} prunable memories, so that cap deletes nothing."
    if advice.poor_record:
        yield _sentence(advice.poor_record.removeprefix("but "))
    for end, what in zip(advice.trade, ("The target", "The budget"), strict=False):
        yield (
            f"{what} takes keep_recent = {end.keep_recent:,}: {end.served:.1%} of references, "
            f"{end.boot_tokens:,} {_tokens_of(findings)}."
        )
    if findings.cap not in {None, advice.keep_recent}:
        yield f"The figures below are for keep_recent = {findings.cap:,}."


def _facts(findings: Findings) -> Iterator[Fact]:
    """Name the figures that people choose on."""
    advice, effect = findings.advice, findings.effect
    if findings.cap is not None:
        row = findings.sizing.at([findings.cap]).iloc[0]
        limits = f"limits {row['low']:.1%} to {row['high']:.1%}"
        yield Fact("references served", f"{row['served']:.1%}", limits)
    own = "1 reference" if advice.references == 1 else f"{advice.references:,} references"
    others = f"{own}; the rest of the weight is {in_words(advice.projects)} other projects'"
    yield Fact("this store's own evidence", f"{advice.weight:.0%}", others)
    if effect is None:
        tokens = f"{findings.summary.boot.tokens:,}"
        now = "what an agent loads now" if findings.summary.loads_any else "none loaded at start"
        yield Fact(_tokens_of(findings), tokens, now)
    else:
        after, before = effect.after, effect.before
        yield Fact(
            _tokens_of(findings),
            f"{before.tokens:,} → {after.tokens:,}",
            f"{before.memories:,} → {after.memories:,} memories; {advice.token_rule}",
        )
        share = effect.deleted.memories / before.memories if before.memories else 0
        remark = f"{share:.1%} of what is loaded; archived first, and can be put back"
        yield Fact("memories deleted", f"{effect.deleted.memories:,}", remark)
    if advice.measured:
        met = advice.measured - advice.missed
        remark = "earlier moments at which such a number met the target afterwards"
        yield Fact("track record", f"{met} of {advice.measured}", remark)


def _tokens_of(findings: Findings) -> str:
    """Name the tokens that a cap holds down: what is loaded at start, or what is recalled from."""
    return "tokens at start" if findings.summary.loads_any else "tokens to recall from"


def _steps(findings: Findings) -> Iterator[Step]:
    """Say what to run next, and what would make the number the store's own."""
    advice, store = findings.advice, shlex.quote(findings.store)
    if findings.cap is not None and findings.cap < advice.prunable:
        shows = f"shows what keep_recent = {findings.cap:,} would delete, and deletes nothing"
        yield Step(preview_command(findings.store, findings.cap), shows)
    elif advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        yield Step(f"memlab floor {store}", "shows which load-bearing memories cost most")
    else:
        yield Step(f"memlab size {store}", "asks again, as the store grows")
    if advice.weight < 0.5:
        missing = "1 more reference" if advice.missing == 1 else f"{advice.missing:,} more"
        yield Step(
            "memlab harvest SOURCE",
            f"reads from what agents already write what they looked up: {missing}, and this "
            "store's own count as much as other projects'",
        )


def _nothing_goes(advice: Advice) -> bool:
    """Whether the recommended cap would delete nothing today."""
    return advice.keep_recent is not None and advice.keep_recent >= advice.prunable


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
