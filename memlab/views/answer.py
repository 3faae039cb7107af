"""The answer that a report begins with, and the record of a decision for whoever reviews it."""

from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memlab.compaction.wire import sized
from memlab.evidence.posterior import in_words
from memlab.frame.labelling import called
from memlab.sizing import Advice, Verdict
from memlab.sources.opening import is_harvestable, start_words
from memlab.text import command, counted, for_terminal
from memlab.views.findings import Findings

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan, Receipt


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
    """What a reader wants to know first."""

    headline: str
    because: list[str]
    facts: list[Fact]
    steps: list[Step]


def answer_of(findings: Findings) -> Answer:
    """Return the answer for a store."""
    headline, because = _headline(findings), list(_because(findings))
    facts, steps = list(_facts(findings)), list(_steps(findings))
    if (by_use := findings.by_use) is not None:
        by_age = f"by age alone, {headline[:1].lower()}{headline[1:]}"
        because = [*map(sentence, (findings.usage.answer, by_age))]
        headline = sentence(by_use.answer)[:-1]
        served, _, _, newest = by_use.table.loc[by_use.budget]
        before, stays = findings.summary.boot.tokens, "nothing is deleted; what is read comes back"
        facts = [
            Fact("reads served", f"{served:.0%}", f"of {by_use.reads:,}; by age {newest:.0%}"),
            Fact(findings.tokens, f"{before:,} → {by_use.budget:,}", stays),
        ]
        (step,) = by_use.next_steps()
        retire = step.removeprefix("next: ").partition("    ")[0]
        steps.insert(0, Step(retire, f"shows what would be retired by use: {stays}"))
    return Answer(headline, because, facts, steps)


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
        return f"No number: {advice.verdict.meaning}"
    if advice.keep_recent >= advice.prunable:
        return f"Keep everything for now: {advice.numbers}"
    return f"Keep the newest {advice.keep_recent:,}: {advice.numbers}"


def _because(findings: Findings) -> Iterator[str]:
    """Say what the number means and how far to trust it."""
    advice = findings.advice
    if advice.keep_recent is not None:
        yield (
            f"Safe serves {advice.target:.0%} of later references with {advice.confidence:.0%} "
            f"confidence until {advice.until:,} memories are written, likely with even odds."
        )
    if advice.verdict is not Verdict.OK:
        yield sentence(advice.verdict.meaning)
    if advice.keep_recent is not None and advice.keep_recent >= advice.prunable:
        goes = max(0, advice.prunable - (advice.likely or 0))
        yield (
            f"The store holds {advice.prunable:,} prunable memories: the safe cap deletes none of "
            f"them today, the likely one {f'{goes:,}' if goes else 'none'}."
        )
    if findings.usage.decided:
        yield sentence(findings.usage.answer)
    if advice.poor_record:
        yield sentence(advice.poor_record.removeprefix("but "))
    for end, what in zip(advice.trade, ("The target", "The budget"), strict=False):
        yield (
            f"{what} takes keep_recent = {end.keep_recent:,}: {end.served:.1%} of references, "
            f"{end.boot_tokens:,} {findings.tokens}."
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
    own = counted(advice.references, "references")
    others = f"{own}; the rest of the weight is {in_words(advice.projects)} other projects'"
    yield Fact("this store's own evidence", f"{advice.weight:.0%}", others)
    if effect is None:
        now = findings.by_start("what an agent loads now", "none loaded at start")
        yield Fact(findings.tokens, f"{findings.summary.boot.tokens:,}", now)
    else:
        after, before = effect.after, effect.before
        yield Fact(
            findings.tokens,
            f"{before.tokens:,} → {after.tokens:,}",
            f"{before.memories:,} → {counted(after.memories, 'memories')}; {advice.token_rule}",
        )
        share = effect.deleted.memories / max(1, findings.summary.rows.memories)
        remark = f"{share:.1%} of what is there; archived first, and can be put back"
        yield Fact("would be deleted", f"{effect.deleted.memories:,}", remark)
    if advice.track_record:
        met, _, times = advice.track_record.partition(", ")
        yield Fact("track record", met, f"{times}, at earlier cuts of its history")


def _steps(findings: Findings) -> Iterator[Step]:
    """Say what to run next, and what would make the number the store's own."""
    advice, store = findings.advice, findings.store
    source = findings.evidence.source
    if source is not None and not source.deletes:
        yield Step(command("size", store), "says where the cap belongs in its own settings")
    elif findings.cap is not None and findings.cap < advice.prunable:
        shows = f"shows what keep_recent = {findings.cap:,} would delete, and deletes nothing"
        yield Step(command("compact", store, "--keep-recent", findings.cap), shows)
    elif advice.likely is not None and advice.likely < advice.prunable:
        shows = "shows what the likely number would delete, and deletes nothing"
        yield Step(command("compact", store, "--keep-recent", advice.likely), shows)
    elif advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        yield Step(command("floor", store), "shows which load-bearing memories cost most")
    else:
        yield Step(command("size", store), "asks again, as the store grows")
    if advice.weight < 0.5:
        missing = "1 more reference" if advice.missing == 1 else f"{advice.missing:,} more"
        own = f"{missing}, and this store's own count as much as other projects'"
        log = "memlab.AccessLog('reads.jsonl').add(memory_id)"
        writes = "in the agent's runtime, writes down each memory that it reads"
        has_log = findings.evidence.log_file is not None
        if source and not has_log and is_harvestable(source.like or source.name):
            log = command("harvest", store, *([] if source.like else ["-o", "reads.jsonl"]))
            writes = "reads from what agents already write what they looked up"
        yield Step(log, f"{writes}: {own}")


def sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def decision_record(
    advice: Advice,
    plan: "Plan",
    *,
    now: datetime,
    plan_file: Path | None = None,
    receipt: "Receipt | None" = None,
) -> str:
    """Return a record of a sizing decision in Markdown, ready for a pull request.

    What comes from the store stands in code fences, where nothing in it is markup.
    """
    cap = plan.policy.get("keep")
    names = {advice.likely: "the likely one", advice.keep_recent: "the safe one"}
    facts = {
        "store": f"`{_inline(called(plan.store))}`",
        "date": f"{now:%Y-%m-%d}, by memlab {version('memlab')}",
        "cap": f"`keep_recent = {cap}`, {names.get(cap, 'chosen by hand')}",
        "by the evidence": advice.numbers or "no number",
        "track record": advice.track_record or "none",
        "verdict of the evidence": f"`{advice.verdict}`",
        "deletes": f"{plan.deletes.memories:,} of {counted(plan.total.memories, 'memories')}",
        start_words(plan.store): f"{sized(plan.boot_before)} → {sized(plan.boot_after)}",
        "floor": f"{plan.floor.memories:,} load-bearing memories, all of which stay",
        "plan digest": f"`{plan.digest}`",
        "receipt": _receipt_in_words(receipt, plan_file),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return (
        f"# Decision record: keep_recent = {cap}\n\n"
        f"| | |\n|---|---|\n{rows}\n\n"
        f"## Evidence\n\n{_fenced(str(advice))}\n\n"
        f"## Plan\n\n{_fenced(str(plan))}\n"
    )


def _receipt_in_words(receipt: "Receipt | None", plan_file: Path | None) -> str:
    if receipt is not None:
        return (
            f"applied {receipt.applied_at:%Y-%m-%d %H:%M} UTC, "
            f"{counted(receipt.deleted, 'memories')} deleted and archived; "
            f"undo: `{_inline(receipt.undo)}`"
        )
    if plan_file is not None:
        return f"not applied; after review: `memlab apply {_inline(plan_file.name)}`"
    return "not applied: it deletes nothing"


def _inline(text: str) -> str:
    return for_terminal(text).replace("`", "'").replace("|", "\\|")


def _fenced(text: str) -> str:
    """Return `text` in a code fence that no run of backticks in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
