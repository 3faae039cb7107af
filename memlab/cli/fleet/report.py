"""``memlab fleet report``: many stores on one HTML page."""

from contextlib import ExitStack
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
)
from memlab.cli.options import FILE
from memlab.cli.output import print_lines
from memlab.clock import now_utc
from memlab.text import counted

if TYPE_CHECKING:
    from memlab.fleet.running import Progress


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
@out_options
@runner_options
def report_fleet(
    names: tuple[str, ...],
    output: Path,
    token_budget: int | None,
    out: Path | None,
    fresh: bool,
    **who: Any,
) -> None:
    """Write one self-contained HTML page: what the stores load, where caps help, what to look at.

    The stores are only read.
    """
    from memlab.extras import import_extra
    from memlab.fleet import examine_fleet, expand_names, write_fleet_report
    from memlab.fleet.page import KEPT_APART

    if not output.parent.is_dir():
        raise click.UsageError(f"there is no folder {output.parent} to write {output.name} into")
    import_extra("jinja2", extra="report")
    import_extra("matplotlib", extra="report")
    members = expand_names(names)
    for each in KEPT_APART:
        begun(None if out is None else out / each, fresh=fresh)
    with runner_of(**who) as runner, ExitStack() as bars:

        def telling(what: str) -> "Progress":
            bars.close()
            return bars.enter_context(bar(what))

        found = examine_fleet(
            members,
            now=now_utc(),
            token_budget=token_budget,
            runner=runner,
            telling=telling,
            out=out,
        )
    write_fleet_report(output, found)
    bad = int(found.stores["error"].notna().sum())
    left_out = f", {bad:,} left out" if bad else ""
    print_lines(f"report: {output}", f"  {counted(len(found.stores), 'stores')}{left_out}")
    if bad:
        click.get_current_context().exit(1)
