"""``memlab compact``: what a policy would delete, and with ``--apply`` deleting it."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.options import FILE, STORE, json_option
from memlab.cli.output import print_lines
from memlab.cli.policy import SettingsCommand, faults_of, policy_of, policy_option, set_option

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan


@click.command(cls=SettingsCommand, short_help="Show what a cap would delete; with --apply, do it.")
@click.argument("store", type=STORE)
@policy_option()
@set_option
@click.option("--save-plan", type=FILE, help="Write the plan to a new file for review.")
@click.option("--apply", "do_it", is_flag=True, help="Carry the plan out. Without it, only show.")
@json_option
def compact(
    store: Path,
    policy_name: str,
    given: tuple[str, ...],
    save_plan: Path | None,
    do_it: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Show what a cap would delete from STORE; with --apply, archive and delete it.

    Decisions, skills and rejected paths are never deleted. What is deleted goes to an archive
    beside the store first, and memlab restore puts it back byte for byte.

    \b
    memlab compact memory.db --keep-recent 200            show
    memlab compact memory.db --keep-recent 200 --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.applying import apply
    from memlab.compaction.planning import plan
    from memlab.files import whole_file

    policy = policy_of(policy_name, settings, given)
    with faults_of([policy]):
        made = plan(store, policy, now=datetime.now(UTC))
    if save_plan is not None:
        with whole_file(save_plan, replace=False) as draft:
            draft.write_text(made.to_json(), encoding="utf-8")
    if do_it:
        receipt = apply(made, now=datetime.now(UTC))
        click.echo(receipt.to_json() if as_json else f"{made}\n\n{receipt}", nl=not as_json)
        return
    click.echo(made.to_json() if as_json else str(made), nl=not as_json)
    if not as_json:
        click.echo()
        print_lines(*_warnings(made), *_next_steps(save_plan, nothing=not made.memories))


def _warnings(made: "Plan") -> list[str]:
    """Say so when a policy leaves nothing but the load-bearing memories."""
    if not made.memories or made.kept or _keeps_none(made.policy):
        return []
    lines = ["every prunable memory would go"]
    if any(step.get("max_items") or step.get("max_tokens") for step in _steps(made.policy)):
        lines = [
            f"every prunable memory would go: {made.floor.memories:,} load-bearing ones take up",
            "room under this policy and stay; a larger number keeps more",
        ]
    return lines


def _steps(policy: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the policies that a plan was made with, those of a pipeline one by one."""
    inner = policy.get("policies")
    if not isinstance(inner, list):
        return [policy]
    return [step for one in inner for step in _steps(one)]


def _keeps_none(policy: Mapping[str, Any]) -> bool:
    """Whether a plan was made with a cap of none, which asks for just that."""
    return any(0 in (step.get("keep"), step.get("max_tokens")) for step in _steps(policy))


def _next_steps(save_plan: Path | None, *, nothing: bool) -> list[str]:
    if nothing:
        return ["nothing to do: under this policy every memory stays"]
    if save_plan is not None:
        return [
            f"nothing was deleted; the plan is in {save_plan}. After review:",
            f"  memlab apply {shlex.quote(str(save_plan))}",
        ]
    return ["nothing was deleted; add --apply to do it, or --save-plan FILE to have it reviewed"]
