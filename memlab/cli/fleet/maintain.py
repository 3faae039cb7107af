"""``memlab fleet maintain``: what every store needs from time to time, in one call for cron."""

from pathlib import Path
from textwrap import shorten
from typing import Any

import click

from memlab.cli.fleet.options import (
    NAMES,
    bar,
    begun,
    out_options,
    runner_of,
    runner_options,
    table_options,
)
from memlab.cli.fleet.output import Column, fleet_sheet, print_sheet, print_table
from memlab.clock import now_utc
from memlab.text import counted


@click.command("maintain", short_help="Compact, drop and vacuum each store as it remembers.")
@NAMES
@click.option("--apply", "do_it", is_flag=True, help="Do it. Without it, only show.")
@out_options
@runner_options
@table_options
def maintain_fleet(
    names: tuple[str, ...],
    do_it: bool,
    out: Path | None,
    fresh: bool,
    limit: int,
    as_json: bool,
    as_csv: bool,
    **who: Any,
) -> None:
    """Look after each store by what memlab.toml beside it remembers: fit for cron.

    A store whose health fails is not changed; one of which nothing is remembered is left out.
    """
    from memlab.fleet import expand_names, maintain, plan_maintenance

    members, folder = expand_names(names), begun(out, fresh=fresh)
    with runner_of(**who) as runner, bar("maintain") as progress:
        act = maintain if do_it else plan_maintenance
        table = act(members, now=now_utc(), runner=runner, progress=progress, out=folder)
    if not print_table(table, as_json=as_json, as_csv=as_csv):
        counts = table["status"].value_counts()
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"
        title = f"maintenance of {counted(len(table), 'stores')}: {told}"
        most = table.sort_values("deleted", ascending=False, kind="stable")
        asked = ["", "nothing was changed; add --apply to do it"] * (not do_it)
        print_sheet(fleet_sheet(title, most, COLUMNS, limit=limit), *asked)
    if table["error"].notna().any() or table["status"].eq("FAILED").any():
        click.get_current_context().exit(1)


def _compact(row: Any) -> str:
    """Return what was done or would be in few words; a number is whole or not there."""
    return "" if row.compact != row.compact else shorten(str(row.compact), 40, placeholder=" …")


COLUMNS: tuple[Column, ...] = (
    ("deletes", lambda row: int(row.deleted)),
    ("status", lambda row: str(row.status)),
    ("compact", _compact),
)
