"""``memlab fleet plan``, ``apply`` and ``maintain``: one review, then the change."""

from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.fleet.options import NAMES, Columns, Job, fail_if, job_options
from memlab.cli.options import FILE, YES, json_option
from memlab.cli.output import print_result
from memlab.cli.policy import SettingsCommand, faults_of, policy_of, policy_option, set_option
from memlab.clock import now_utc
from memlab.text import Sheet, counted

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
@job_options(keeps=False, prints=False)
def plan_fleet(
    names: tuple[str, ...],
    policy_name: str | None,
    given: tuple[str, ...],
    save: Path | None,
    job: Job,
    **settings: Any,
) -> None:
    """Show what a policy would delete from each store. Nothing is deleted.

    Without a policy, that which memlab.toml beside each store remembers.

    \b
    memlab fleet plan '/srv/agents/*/memory.db' --keep-recent 200 --save fleet-plan.json
    memlab fleet apply fleet-plan.json
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import expand_names, plan
    from memlab.fleet.change import saved_beside

    asked = policy_name or given or any(value is not None for value in settings.values())
    policy = policy_of(policy_name or "recent", settings, given).policy if asked else None
    members = expand_names(names)
    job.out = None if save is None else saved_beside(save)
    job.kept(option="--save FILE")
    with faults_of([policy] if policy else []), job.working() as work:
        made = work("plan", plan, members, policy, now=now_utc(), save=save)
    print_result(made, as_json=job.as_json)
    fail_if(bool(made.refused))


@click.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="FILE", type=FILE)
@job_options(keeps=False)
def apply_fleet(plan_file: Path, job: Job) -> None:
    """Carry out a reviewed plan, each store for itself, as memlab fleet plan --save wrote it.

    What is deleted goes to the store's own archive first. A store that has changed since is
    refused, alone. Stopped half way, the same command finishes it; nothing is applied twice.
    """
    from memlab.fleet import apply

    def page(table: "pd.DataFrame") -> list[str | Sheet]:
        good = table[table["error"].isna()]
        is_done = good["status"] == "applied before"
        deleted = counted(int(good["deleted"][~is_done].sum()), "memories")
        before, after = (int(good[moment].sum()) for moment in ("boot_before", "boot_after"))
        facts = [
            ("deleted", f"{deleted}, archived beside their stores"),
            ("at start", f"{before:,} -> {counted(after, 'tokens')}"),
        ]
        if is_done.any():
            memories = counted(int(good["deleted"][is_done].sum()), "memories")
            words = f"{counted(int(is_done.sum()), 'stores')}, {memories}"
            facts.append(("applied before", f"{words}; nothing is applied twice"))
        stores, refused = counted(len(table), "stores"), len(table) - len(good)
        title = f"{len(good):,} of {stores} applied, {refused:,} refused"
        sheet = job.sheet(title, table, APPLIED, most="deleted", facts=facts)
        undo = next(iter(good["undo"]), "")
        return [sheet, *(["", f"undo one: {undo}"] if undo else [])]

    with job.working() as work:
        table = work("apply", apply, plan_file, now=now_utc())
    job.show(table, page)
    fail_if(table["error"].notna().any())


APPLIED: Final[Columns] = {
    "deleted": lambda row: int(row.deleted),
    "at start": lambda row: int(row.boot_before),
    "after": lambda row: int(row.boot_after),
    "status": lambda row: str(row.status),
}


@click.command("maintain", short_help="Compact, drop and vacuum each store as it remembers.")
@NAMES
@click.option("--apply", "do_it", is_flag=True, help="Do it. Without it, only show.")
@YES
@job_options()
def maintain_fleet(names: tuple[str, ...], do_it: bool, yes: bool, job: Job) -> None:
    """Look after each store by what memlab.toml beside it remembers: fit for cron.

    A store whose health fails is not changed; one of which nothing is remembered is left out.
    """
    from memlab.fleet import expand_names, maintain, plan_maintenance

    def page(table: "pd.DataFrame") -> list[str | Sheet]:
        counts = table["status"].value_counts().items()
        told = ", ".join(f"{count:,} {name}" for name, count in counts) or "none"
        why = table[["vacuum", "drop", "compact", "doctor"]].bfill(axis=1)["vacuum"]
        most = table.assign(error=table["error"].mask(failed, why))
        title = f"maintenance of {counted(len(table), 'stores')}: {told}"
        asked = [] if do_it else ["", "nothing was changed; add --apply to do it"]
        return [job.sheet(title, most, MAINTAINED, most="deleted"), *asked]

    members, folder = expand_names(names), job.kept()
    with job.working() as work:
        call = partial(maintain, yes=yes) if do_it else plan_maintenance
        table = work("maintain", call, members, now=now_utc(), out=folder)
    failed = table["status"].eq("FAILED").fillna(value=False)
    job.show(table, page)
    fail_if(table["error"].notna().any() or failed.any())


def _compacted(row: Any) -> str:
    """Return what was done or would be in few words; a missing value is not like itself."""
    return "" if row.compact != row.compact else shorten(str(row.compact), 40, placeholder=" …")


MAINTAINED: Final[Columns] = {
    "deletes": lambda row: int(row.deleted),
    "status": lambda row: str(row.status),
    "compact": _compacted,
}
