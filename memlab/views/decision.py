"""The record of a decision, for whoever reviews it."""

from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.compaction.wire import sized
from memlab.frame.labelling import called
from memlab.settings import NOTHING, Settings
from memlab.sizing import Advice
from memlab.sources.opening import start_words
from memlab.text import counted, for_terminal

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan, Receipt


def decision_record(
    advice: Advice,
    plan: "Plan",
    *,
    now: datetime,
    settings: Settings = NOTHING,
    plan_file: Path | None = None,
    receipt: "Receipt | None" = None,
) -> str:
    """Return a sizing decision in Markdown for a pull request; a store's words are in fences."""
    cap = plan.policy.get("keep")
    names = {advice.budget_cap: "the largest within the token budget"}
    if settings.sized is not None:
        names[settings.keep_recent] = f"found on {settings.sized.at:%Y-%m-%d} and remembered"
    names |= {advice.likely: "the likely one", advice.keep_recent: "the safe one"}
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
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
