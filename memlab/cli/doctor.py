"""``memlab doctor``: is the store healthy, and what to do if not."""

from pathlib import Path

import click

from memlab.cli.options import STORE, json_option
from memlab.cli.output import print_lines, print_text
from memlab.cli.progress import doing


@click.command(short_help="Look at the health of a store and of its archive.")
@click.argument("store", type=STORE)
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    help="The backlog of prunable memories that is still all right.  [default: the cap that "
    "memlab.toml remembers]",
)
@click.option("--strict", is_flag=True, help="End with 1 for a warning, too.")
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, store: Path, threshold: int | None, strict: bool, as_json: bool
) -> None:
    """Look at the health of STORE, of its archive and of its settings. Reads only.

    Ends with exit code 1 where something fails; a warning is worth a look and ends with 0.
    """
    from memlab.diagnosis import Status
    from memlab.doctor import diagnose

    doing("looking at the store and its archive")
    found = diagnose(store, threshold=threshold)
    print_text(found.to_json()) if as_json else print_lines(found)
    bad = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
    ctx.exit(1 if found.status in bad else 0)
