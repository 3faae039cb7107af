"""``memlab doctor``: is the store healthy, and what to do if not."""

from pathlib import Path

import click

from memlab.cli.options import STORE, json_option


@click.command(short_help="Look at the health of a store and of its archive.")
@click.argument("store", type=STORE)
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="The backlog of prunable memories that is still all right.",
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, store: Path, threshold: int, as_json: bool) -> None:
    """Look at the health of STORE and of its archive. Reads only.

    Ends with exit code 0 when all is well and 1 when something needs a look.
    """
    from memlab.doctor import Status, diagnose

    found = diagnose(store, threshold=threshold)
    click.echo(found.to_json() if as_json else str(found))
    ctx.exit(0 if found.status is Status.OK else 1)
