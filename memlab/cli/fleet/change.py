"""``memlab fleet plan`` and ``memlab fleet apply``: one review, then the change."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.fleet.options import (
    NAMES,
    bar,
    runner_of,
    runner_options,
    table_options,
)
from memlab.cli.fleet.output import Column, fleet_sheet, print_sheet, print_table
from memlab.cli.options import FILE, json_option
from memlab.cli.output import print_text
from memlab.cli.policy import SettingsCommand, faults_of, policy_of, policy_option, set_option
from memlab.clock import now_utc
from memlab.text import counted

if TYPE_CHECKING:
    import pandas as pd


@click.command(
    "plan", cls=SettingsCommand, short_help="Show what a cap would delete from each store."
)
@NAMES
@policy_option()
@set_option
@click.option(
    "--save",
    type=FILE,
    metavar="FILE",
    help="Write the plan for review; stopped half way, the same command goes on.",
)
@click.option("--fresh", is_flag=True, help="Begin anew where FILE is there, from every store.")
@json_option
@runner_options
def plan_fleet(
    names: tuple[str, ...],
    policy_name: str | None,
    given: tuple[str, ...],
    save: Path | None,
    fresh: bool,
    as_json: bool,
    processes: int | None,
    scheduler: str | None,
    scheduler_file: Path | None,
    **settings: Any,
) -> None:
    """Show what a policy would delete from each store. Nothing is deleted.

    Without a policy, that which memlab.toml beside each store remembers.

    \b
    memlab fleet plan '/srv/agents/*/memory.db' --keep-recent 200 --save fleet-plan.json
    memlab fleet apply fleet-plan.json
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import expand_names, plan
    from memlab.fleet.fleet_plan import saved_beside
    from memlab.fleet.parts import start_over

    asked = policy_name or given or any(value is not None for value in settings.values())
    policy = policy_of(policy_name or "recent", settings, given).policy if asked else None
    members = expand_names(names)
    if fresh and save is None:
        raise click.UsageError("--fresh needs --save FILE")
    if fresh and save is not None:
        start_over(saved_beside(save))
    with (
        faults_of([policy] if policy else []),
        runner_of(processes, scheduler, scheduler_file) as runner,
        bar("plan") as progress,
    ):
        made = plan(members, policy, now=now_utc(), runner=runner, progress=progress, save=save)
    if as_json:
        print_text(made.to_json())
    else:
        print_sheet(made.sheet(), "", *_next_steps(save, nothing=not made.changed))
    if made.refused:
        click.get_current_context().exit(1)


@click.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="FILE", type=FILE)
@runner_options
@table_options
def apply_fleet(plan_file: Path, limit: int, as_json: bool, as_csv: bool, **who: Any) -> None:
    """Carry out a reviewed plan, each store for itself, as memlab fleet plan --save wrote it.

    What is deleted goes to the store's own archive first. A store that has changed since is
    refused, alone. Stopped half way, the same command finishes it; nothing is applied twice.
    """
    from memlab.fleet import apply

    with runner_of(**who) as runner, bar("apply") as progress:
        table = apply(plan_file, now=now_utc(), runner=runner, progress=progress)
    if not print_table(table, as_json=as_json, as_csv=as_csv):
        _print_receipts(table, limit)
    if table["error"].notna().any():
        click.get_current_context().exit(1)


def _print_receipts(table: "pd.DataFrame", limit: int) -> None:
    good = table[table["error"].isna()]
    is_done = good["status"] == "applied before"
    refused = len(table) - len(good)
    deleted = counted(int(good["deleted"][~is_done].sum()), "memories")
    boot = [int(good[moment].sum()) for moment in ("boot_before", "boot_after")]
    facts = [
        ("deleted", f"{deleted}, archived beside their stores"),
        ("at start", f"{boot[0]:,} -> {boot[1]:,} tokens"),
    ]
    if is_done.any():
        memories = counted(int(good["deleted"][is_done].sum()), "memories")
        words = f"{counted(int(is_done.sum()), 'stores')}, {memories}"
        facts.append(("applied before", f"{words}; nothing is applied twice"))
    largest = table.sort_values("deleted", ascending=False, kind="stable")
    title = f"{len(good):,} of {len(table):,} stores applied, {refused:,} refused"
    undo = good["undo"].iloc[0] if len(good) else ""
    after = ["", f"undo one: {undo}"] if undo else []
    print_sheet(fleet_sheet(title, largest, COLUMNS, facts=facts, limit=limit), *after)


COLUMNS: tuple[Column, ...] = (
    ("deleted", lambda row: int(row.deleted)),
    ("at start", lambda row: int(row.boot_before)),
    ("after", lambda row: int(row.boot_after)),
    ("status", lambda row: str(row.status)),
)


def _next_steps(save: Path | None, *, nothing: bool) -> list[str]:
    if nothing:
        return ["nothing to do: under this policy every memory stays"]
    if save is None:
        return ["nothing was deleted; add --save FILE to have it reviewed and applied"]
    return [
        f"nothing was deleted; the plan is in {save}. After review:",
        f"  memlab fleet apply {shlex.quote(str(save))}",
    ]
