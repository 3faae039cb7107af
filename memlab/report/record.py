"""The decision record: which cap, on what evidence, by which plan, with what result."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.sources.opening import start_words
from memlab.text import counted, for_terminal

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan
    from memlab.compaction.receipts import Receipt
    from memlab.items import Size
    from memlab.sizing import Advice


def decision_record(
    advice: "Advice",
    plan: "Plan",
    *,
    now: datetime,
    plan_file: Path | None = None,
    receipt: "Receipt | None" = None,
) -> str:
    """Return a record of a sizing decision, ready for a pull request.

    Parameters
    ----------
    advice : Advice
        What the evidence said.
    plan : Plan
        What was decided.
    now : datetime
        The moment of the record.
    plan_file : Path, optional
        Where the plan lies for whoever reviews it.
    receipt : Receipt, optional
        What applying the plan did; without one the record says that it was not applied.

    Returns
    -------
    str
        Markdown. What comes from the store stands in code fences, where nothing in it is markup.
    """
    cap = plan.policy.get("keep")
    chosen = "as recommended" if cap == advice.keep_recent else "chosen by hand"
    facts = {
        "store": f"`{_inline(_name(plan.store))}`",
        "date": f"{now:%Y-%m-%d}",
        "cap": f"`keep_recent = {cap}`, {chosen}",
        "verdict of the evidence": f"`{advice.verdict}`",
        "deletes": f"{plan.deletes.memories:,} of {counted(plan.total.memories, 'memories')}",
        start_words(plan.store): f"{_size(plan.boot_before)} → {_size(plan.boot_after)}",
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


def _name(store: str) -> str:
    """Return a file's name, and the whole name of what is on a server."""
    return store if "://" in store else Path(store).name


def _size(size: "Size") -> str:
    return f"{counted(size.memories, 'memories')}, {counted(size.tokens, 'tokens')}"


def _inline(text: str) -> str:
    return for_terminal(text).replace("`", "'").replace("|", "\\|")


def _fenced(text: str) -> str:
    """Return `text` in a code fence that no run of backticks in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
