"""Functions of all commands that make a plan: save it, apply it, and print the next steps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import memlab
from memlab.cli import output
from memlab.clock import now_utc
from memlab.files import permissions_like, write_whole
from memlab.store.archive.schema import LATEST
from memlab.text import command

if TYPE_CHECKING:
    from memlab.sources.base import Source
    from memlab.text import TextPage

AnyPlan: TypeAlias = "memlab.Plan | memlab.IndexPlan"
AnyReceipt: TypeAlias = "memlab.Receipt | memlab.IndexReceipt"


def save_plan(plan: AnyPlan, file: Path | None, source: "Source") -> None:
    """Write a plan to a new file for review; do nothing if `file` is None."""
    if file is None:
        return
    permissions = permissions_like(source.local_path)
    write_whole(file, plan.to_json(), permissions=permissions, replace=False)


def apply_plan(plan: AnyPlan, store: Path | str, *, all_prunable: bool) -> AnyReceipt:
    """Apply a plan, and return its receipt; after Ctrl-C, print how to continue."""
    on_step = output.progress_callback("applying")
    try:
        return memlab.apply(
            plan, store=store, now=now_utc(), on_step=on_step, all_prunable=all_prunable
        )
    except KeyboardInterrupt:
        archive = command("archive", store)
        output.print_lines(
            f"next: {archive}    says what plan {plan.digest[:12]} did, and how it goes on"
        )
        raise


def apply_and_print(
    plan: AnyPlan,
    notes: Sequence[Any] = (),
    *,
    all_prunable: bool = False,
    name: str = "",
    page: "TextPage | None" = None,
) -> None:
    """Apply a plan, and print the notes, the plan and its receipt.

    `name` is the store as a person named it. `page` replaces the plan's own page.
    """
    receipt = apply_plan(plan, plan.store, all_prunable=all_prunable)
    if output.wants_json():
        output.print_text(receipt.to_json())
    else:
        output.print_lines(*notes, page or plan.sheet(name), "", _receipt_for(receipt, name))


def _receipt_for(receipt: AnyReceipt, name: str) -> AnyReceipt:
    """Return a receipt that names the store and its archive as a person named the store."""
    if not name or "://" in name:
        return receipt
    archive = receipt.archive
    if archive is not None and Path(archive).parent == Path(receipt.store).parent:
        archive = str(Path(name).parent / Path(archive).name)
    return replace(receipt, store=name, archive=archive)


def after_planning(
    plan: AnyPlan, file: Path | None, *, reason_if_empty: str, name: str
) -> list[str]:
    """Return the lines on how to apply a plan and how to undo it.

    Parameters
    ----------
    plan : Plan or IndexPlan
        The plan.
    file : Path or None
        The file that it was saved in.
    reason_if_empty : str
        Why there is nothing to do, which is printed for an empty plan.
    name : str
        The store, as a person named it.
    """
    if plan.is_empty:
        saved = f"; the plan is in {file}" if file else ""
        return [f"nothing to do: {reason_if_empty}{saved}"]
    participle = participle_of(plan)
    if file is not None:
        return [
            f"nothing was {participle}; the plan is in {file}. After review:",
            f"  {command('apply', file)}",
        ]
    undo = command("restore", name, LATEST)
    return [
        f"nothing was {participle}; add --apply to do it, or --save-plan FILE to have it reviewed",
        f"undo: {undo}    undoes it, once it is applied",
    ]


def participle_of(plan: AnyPlan) -> str:
    """Return the participle of what a plan does: "deleted" or "changed"."""
    deletes = isinstance(plan, memlab.Plan) and not plan.links and not plan.merges
    return "deleted" if deletes else "changed"
