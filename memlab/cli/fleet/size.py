"""``memlab fleet size``: a cap for each store, with evidence."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.fleet.options import (
    NAMES,
    TOKEN_BUDGET,
    bar,
    begun,
    out_options,
    runner_of,
    runner_options,
    table_options,
)
from memlab.cli.fleet.output import Column, fleet_sheet, print_sheet, print_table
from memlab.cli.options import SHARE
from memlab.text import counted

if TYPE_CHECKING:
    import pandas as pd

    from memlab.fleet.cohort import Cohort

FINDINGS = ("floor-exceeds-budget", "target-exceeds-budget")
"""Verdicts that make the exit code 1: somebody has to choose."""


@click.command("size", short_help="Recommend a keep_recent for each store.")
@NAMES
@click.option(
    "--target",
    type=SHARE,
    help="The share of later references to serve; 0.9 where memlab.toml says nothing.",
)
@TOKEN_BUDGET
@out_options
@runner_options
@table_options
def size_fleet(
    names: tuple[str, ...],
    target: float | None,
    token_budget: int | None,
    out: Path | None,
    fresh: bool,
    limit: int,
    as_json: bool,
    as_csv: bool,
    **who: Any,
) -> None:
    """Recommend a keep_recent for each store, by its own references and those of its fleet.

    What many stores of one kind of agent share says more of each than other projects do; the
    columns own and fleet say how much of a number rests on which. The stores are only read.

    \b
    memlab fleet size '/srv/agents/*/memory.db' --token-budget 20000
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import cohort_of, expand_names, size

    members, folder = expand_names(names), begun(out, fresh=fresh)
    with runner_of(**who) as runner:
        with bar("references") as progress:
            cohort = cohort_of(members, runner=runner, progress=progress)
        with bar("size") as progress:
            table = size(
                members,
                target=target,
                token_budget=token_budget,
                cohort=cohort,
                runner=runner,
                progress=progress,
                out=folder,
            )
    if not print_table(table, as_json=as_json, as_csv=as_csv):
        _print_sizes(table, cohort, limit, names, token_budget)
    if table["error"].notna().any() or table["verdict"].isin(FINDINGS).any():
        click.get_current_context().exit(1)


def _print_sizes(
    table: "pd.DataFrame",
    cohort: "Cohort",
    limit: int,
    names: tuple[str, ...],
    token_budget: int | None,
) -> None:
    good = table[table["error"].isna()]
    deletes = counted(int(good["deletes"].sum()), "memories")
    saved = int((good["boot_now"] - good["boot_after"]).sum())
    verdicts = ", ".join(
        f"{count:,} {name}" for name, count in good["verdict"].value_counts().items()
    )
    facts = [
        ("verdicts", verdicts or "none"),
        ("the fleet says", cohort_in_words(cohort)),
        ("would go", f"{deletes}, {counted(saved, 'tokens')} at start"),
    ]
    most = table.assign(saved=table["boot_now"] - table["boot_after"])
    most = most.sort_values("saved", ascending=False, kind="stable")
    title = f"a cap for {int(good['keep_recent'].notna().sum()):,} of {len(table):,} stores"
    columns = COLUMNS if good["fits"].isna().all() else (*COLUMNS[:1], FITS, *COLUMNS[1:])
    plan = f"memlab fleet plan {' '.join(map(shlex.quote, names))}"
    print_sheet(
        fleet_sheet(title, most, columns, facts=facts, limit=limit),
        "",
        f"next: {plan} --keep-recent N --save fleet-plan.json",
        *_for_the_budget(good, plan, token_budget),
    )


def _for_the_budget(good: "pd.DataFrame", plan: str, token_budget: int | None) -> list[str]:
    """Return the command for those whose budget is too small for their target."""
    if token_budget is None or not good["verdict"].eq("target-exceeds-budget").any():
        return []
    policy = f"--policy tokens --max-tokens {token_budget}"
    return [f"      {plan} {policy} --save fleet-plan.json    for the budget"]


def cohort_in_words(cohort: "Cohort") -> str:
    """Say what the prior of each store rests on."""
    if not cohort.stores:
        return "nothing yet: too few stores have references; other projects stand in"
    return (
        f"{cohort.references:,} references of {cohort.stores:,} stores; "
        f"{cohort.prior.weight_at(0.9):.0%} of what a store without its own is sized by"
    )


def _cap(row: Any) -> str:
    import pandas as pd

    return "–" if pd.isna(row.keep_recent) else f"{int(row.keep_recent):,}"


def _fits(row: Any) -> str:
    import pandas as pd

    return "–" if pd.isna(row.fits) else f"{int(row.fits):,} ({row.fits_served:.0%})"


def _evidence(row: Any) -> str:
    return f"{row.own:.0%}/{row.fleet:.0%}"


FITS: Column = ("fits (serves)", _fits)
"""Where there is a budget."""
COLUMNS: tuple[Column, ...] = (
    ("cap", _cap),
    ("own/fleet", _evidence),
    ("references", lambda row: int(row.references)),
    ("would go", lambda row: int(row.deletes)),
    ("at start", lambda row: int(row.boot_now)),
    ("after", lambda row: int(row.boot_after)),
)
