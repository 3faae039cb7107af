"""``memlab compact``: what a policy would delete, and with ``--apply`` deleting it."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.options import FILE, STORE, json_option
from memlab.cli.output import print_lines, print_text
from memlab.cli.policy import (
    Chosen,
    SettingsCommand,
    faults_of,
    policy_of,
    policy_option,
    set_option,
)
from memlab.cli.progress import APPLYING, PLANNING, telling
from memlab.text import for_terminal

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan
    from memlab.policies import Policy
    from memlab.sources.base import Source


@click.command(cls=SettingsCommand, short_help="Show what a cap would delete; with --apply, do it.")
@click.argument("store", type=STORE)
@policy_option()
@set_option
@click.option("--save", is_flag=True, help="Remember the policy in memlab.toml beside the store.")
@click.option("--save-plan", type=FILE, help="Write the plan to a new file for review.")
@click.option("--apply", "do_it", is_flag=True, help="Carry the plan out. Without it, only show.")
@json_option
def compact(
    store: Path,
    policy_name: str | None,
    given: tuple[str, ...],
    save: bool,
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
    memlab compact memory.db --keep-recent 200 --save     remember it
    memlab compact memory.db                              show, by what is remembered
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.applying import apply
    from memlab.compaction.planning import plan
    from memlab.files import check_writable, limit_like, whole_file
    from memlab.sources.opening import open_source

    source = open_source(store)
    asked = policy_name or given or any(text is not None for text in settings.values())
    chosen = policy_of(policy_name or "recent", settings, given) if asked else None
    if save and chosen is None:
        raise click.UsageError("--save needs a policy to remember, such as --keep-recent N")
    if save_plan is not None:
        check_writable(save_plan, replace=False)
    policy = _remembered(source) if chosen is None else chosen.policy
    with faults_of([policy]):
        made = plan(
            source, policy, now=datetime.now(UTC), watch=telling("reading the store", PLANNING)
        )
    if save_plan is not None:
        with (
            whole_file(save_plan, limit=limit_like(source.like), replace=False) as draft,
            draft.open("w", encoding="utf-8") as file,
        ):
            file.writelines(made.json_pieces())
    if save and chosen is not None:
        _remember(source, chosen)
    told = _protected(source)
    if do_it:
        receipt = apply(made, now=datetime.now(UTC), watch=telling("waiting to write", APPLYING))
        print_text(receipt.to_json()) if as_json else print_lines(*told, made, "", receipt)
    elif as_json:
        print_text(made.to_json())
    else:
        steps = _next_steps(save_plan, nothing=not made.memories)
        print_lines(*told, made, "", *_clock_warnings(made), *_warnings(made), *steps)


def _remembered(source: "Source") -> "Policy":
    """Return the policy that is remembered of a store."""
    from memlab.policies.remembered import policy_in
    from memlab.sources.opening import settings_of

    policy = policy_in(settings_of(source))
    if policy is None:
        raise click.UsageError(
            f"no policy is remembered for {source.name}: give a cap with --keep-recent N, or let "
            f"memlab size {shlex.quote(source.name)} --save find one"
        )
    return policy


def _remember(source: "Source", chosen: Chosen) -> None:
    """Write a policy into the settings of a store."""
    from memlab.policies.remembered import as_setting
    from memlab.remembering import remember

    file = remember(source, {"policy": as_setting(chosen.name, chosen.settings)})
    click.echo(for_terminal(f"remembered in {file}\n"), err=True)


def _protected(source: "Source") -> list[str]:
    """Say which tags a person has made load-bearing."""
    if not source.protected:
        return []
    tags = ", ".join(sorted(source.protected))
    return [f"load-bearing by memlab.toml: what is tagged {tags}"]


def _clock_warnings(made: "Plan") -> list[str]:
    """Say so when the clock is far from all that is known of the store's time."""
    written = [m.created_at for m in made.memories if m.created_at]
    if made.kept or not written:
        return []
    newest = datetime.fromisoformat(max(written))
    years = (made.made_at - newest).days / 365.25
    if years < 1:
        return []
    clock = f"this machine's clock says {made.made_at:%Y-%m-%d}"
    return [f"the newest memory was written on {newest:%Y-%m-%d} and {clock}: is it right?"]


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
