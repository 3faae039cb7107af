"""``memlab fleet show``, ``size`` and ``report``: what reads many stores and changes none."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.fleet.options import (
    NAMES,
    TOKEN_BUDGET,
    Columns,
    Job,
    bar,
    fail_if,
    job_options,
)
from memlab.cli.options import FILE, SHARE
from memlab.cli.output import print_lines, share
from memlab.clock import now_utc
from memlab.text import Sheet, command, counted

if TYPE_CHECKING:
    import pandas as pd

    from memlab.fleet import Cohort, Members
    from memlab.fleet.task import Progress

VERDICTS: Final = ("floor-exceeds-budget", "target-exceeds-budget")
"""Those that make the exit code 1: somebody has to choose."""


@click.command("show", short_help="Show what agents load from each store.")
@NAMES
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    metavar="N",
    help="Prunable memories that are still all right; more in any store makes the exit code 1.",
)
@job_options()
def show_fleet(names: tuple[str, ...], threshold: int | None, job: Job) -> None:
    """Show what agents load from each store at start, largest first, and how much is prunable.

    \b
    memlab fleet show '/srv/agents/*/memory.db'
    memlab fleet show @stores.txt --threshold 500 --csv
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import expand_names, survey

    members, folder = expand_names(names), job.kept()
    with job.working() as work:
        table = work("survey", survey, members, now=now_utc(), out=folder)
    most = float("inf") if threshold is None else threshold
    over = int(table["prunable"].gt(most).sum())

    def page(table: "pd.DataFrame") -> list[str | Sheet]:
        facts = _loaded(table, members)
        if threshold is not None:
            facts.append(("over the threshold", f"{over:,} of {counted(len(table), 'stores')}"))
        bad = int(table["error"].notna().sum())
        title = f"{counted(len(table), 'stores')}, {f'{bad:,} left out' if bad else 'all read'}"
        sheet = job.sheet(title, table, LOADED, most="boot_tokens", facts=facts)
        return [sheet, "", f"next: {command('fleet size', *names)}    a cap for each"]

    job.show(table, page)
    fail_if(table["error"].notna().any() or table["unreadable"].gt(0).any() or over > 0)


LOADED: Final[Columns] = {
    "at start": lambda row: int(row.boot_memories),
    "tokens": lambda row: int(row.boot_tokens),
    "floor": lambda row: int(row.floor_tokens),
    "prunable": lambda row: int(row.prunable),
    "share": lambda row: share(row.prunable_tokens, row.boot_tokens),
    "written": lambda row: f"{row.last_at:%Y-%m-%d}" if row.last_at == row.last_at else "–",
}


def _loaded(table: "pd.DataFrame", members: "Members") -> list[tuple[str, str]]:
    sums = table.sum(numeric_only=True).astype(int)
    loaded = f"{counted(sums['boot_memories'])}, {counted(sums['boot_tokens'], 'tokens')}"
    prunable = counted(sums["prunable_tokens"], "tokens")
    disk = f"{sums['bytes'] / 1e6:,.1f} MB"
    if sums["free_bytes"] * 20 > sums["bytes"]:  # else a vacuum is not worth it
        disk += f", of which a vacuum gives back {sums['free_bytes'] / 1e6:,.1f} MB"
    facts = [
        ("loaded at start", loaded),
        ("prunable share", f"{share(sums['prunable_tokens'], sums['boot_tokens'])}, {prunable}"),
        ("on the disk", disk),
    ]
    if sums["unreadable"]:
        where = counted(int(table["unreadable"].gt(0).sum()), "stores")
        facts.append(("not readable", f"{counted(sums['unreadable'], 'memories')} of {where}"))
    if members.repeated:
        facts.append(("named twice", f"{members.repeated:,}; a store counts once"))
    if members.others:
        databases = counted(len(members.others), "databases")
        facts.append(("no stores", f"{databases} of something else, such as {members.others[0]}"))
    return facts


@click.command("size", short_help="Recommend a keep_recent for each store.")
@NAMES
@click.option(
    "--target",
    type=SHARE,
    help="The share of later references to serve; 0.9 where memlab.toml says nothing.",
)
@TOKEN_BUDGET
@job_options()
def size_fleet(
    names: tuple[str, ...], target: float | None, token_budget: int | None, job: Job
) -> None:
    """Recommend a keep_recent for each store, by its own references and those of its fleet.

    What many stores of one kind of agent share says more of each than other projects do; the
    columns own and fleet say how much of a number rests on which. The stores are only read.

    \b
    memlab fleet size '/srv/agents/*/memory.db' --token-budget 20000
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import cohort_of, expand_names, size

    members, folder = expand_names(names), job.kept()
    with job.working() as work:
        cohort = work("references", cohort_of, members)
        asked = {"target": target, "token_budget": token_budget, "cohort": cohort}
        table = work("size", size, members, out=folder, **asked)

    def page(table: "pd.DataFrame") -> list[str | Sheet]:
        good = table[table["error"].isna()]
        saved = table["boot_now"] - table["boot_after"]
        verdicts = good["verdict"].value_counts().items()
        deletes = counted(int(good["deletes"].sum()), "memories")
        facts = [
            ("verdicts", ", ".join(f"{count:,} {name}" for name, count in verdicts) or "none"),
            ("the fleet says", _shared(cohort)),
            ("would go", f"{deletes}, {counted(int(saved.sum()), 'tokens')} at start"),
        ]
        caps = f"{int(good['keep_recent'].notna().sum()):,} of {counted(len(table), 'stores')}"
        columns = {name: cell for name, cell in CAPS.items() if name != FITS}
        sheet = job.sheet(
            f"a cap for {caps}",
            table.assign(saved=saved),
            columns if good["fits"].isna().all() else CAPS,
            most="saved",
            facts=facts,
        )
        plan = command("fleet plan", *names)
        lines = ["", f"next: {plan} --keep-recent N --save fleet-plan.json"]
        if token_budget is not None and good["verdict"].eq("target-exceeds-budget").any():
            policy = f"--policy tokens --max-tokens {token_budget}"
            lines.append(f"      {plan} {policy} --save fleet-plan.json    for the budget")
        return [sheet, *lines]

    job.show(table, page)
    fail_if(table["error"].notna().any() or table["verdict"].isin(VERDICTS).any())


def _cap(number: Any) -> str:
    """Return a whole number, or a dash for one that is missing."""
    import pandas as pd

    return "–" if pd.isna(number) else f"{int(number):,}"


FITS: Final = "fits (serves)"
"""The column that there is where there is a budget."""
CAPS: Final[Columns] = {
    "safe": lambda row: _cap(row.keep_recent),
    "likely": lambda row: _cap(row.likely),
    FITS: lambda row: "–" if _cap(row.fits) == "–" else f"{_cap(row.fits)} ({row.fits_served:.0%})",
    "own/fleet": lambda row: f"{row.own:.0%}/{row.fleet:.0%}",
    "refs": lambda row: int(row.references),
    "would go": lambda row: int(row.deletes),
    "tokens": lambda row: int(row.boot_now),
    "after": lambda row: int(row.boot_after),
}


def _shared(cohort: "Cohort") -> str:
    """Say what the prior of each store rests on."""
    if not cohort.stores:
        return "nothing yet: too few stores have references; other projects stand in"
    return (
        f"{counted(cohort.references, 'references')} of {counted(cohort.stores, 'stores')}; "
        f"{cohort.weight_at(0.9):.0%} of what a store without its own is sized by"
    )


@click.command("report", short_help="Write one HTML page on all stores.")
@NAMES
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=Path("memlab-fleet.html"),
    show_default=True,
    help="The file to write.",
)
@TOKEN_BUDGET
@job_options(prints=False)
def report_fleet(names: tuple[str, ...], output: Path, token_budget: int | None, job: Job) -> None:
    """Write one self-contained HTML page: what the stores load, where caps help, what to look at.

    The stores are only read.
    """
    from memlab.fleet import examine_fleet, expand_names, write_fleet_report
    from memlab.fleet.page import KEPT_APART
    from memlab.lazy import import_extra

    if not output.parent.is_dir():
        raise click.UsageError(f"there is no folder {output.parent} to write {output.name} into")
    import_extra("jinja2", extra="report")
    import_extra("matplotlib", extra="report")
    members, folder = expand_names(names), job.kept(*KEPT_APART)
    with job.runner() as runner, ExitStack() as bars:

        def telling(what: str) -> "Progress":
            bars.close()
            return bars.enter_context(bar(what))

        asked: dict[str, Any] = {"token_budget": token_budget, "telling": telling, "out": folder}
        found = examine_fleet(members, now=now_utc(), runner=runner, **asked)
    write_fleet_report(output, found)
    left_out = f", {found.failed:,} left out" if found.failed else ""
    print_lines(f"report: {output}", f"  {counted(len(found.stores), 'stores')}{left_out}")
    fail_if(found.failed > 0)
