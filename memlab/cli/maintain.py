"""``memlab maintain``: all that a store needs from time to time, in one call for cron."""

from datetime import UTC, datetime
from pathlib import Path

import click

from memlab.cli.options import STORE, json_option
from memlab.cli.output import print_lines
from memlab.cli.progress import doing


@click.command("maintain", short_help="Compact, drop and vacuum by what is remembered.")
@click.argument("store", type=STORE)
@click.option("--apply", "do_it", is_flag=True, help="Do it. Without it, only show.")
@json_option
@click.pass_context
def maintain_store(ctx: click.Context, store: Path, do_it: bool, as_json: bool) -> None:
    """Look after STORE by what memlab.toml remembers of it: fit for cron.

    Looks at its health and stops where something fails; compacts it by the remembered policy, into
    the archive; drops what the archive has kept for archive_for; rewrites the file where the share
    vacuum_free of it is free. What is not remembered is not done.

    Ends with 0 when all went well, 1 when a step failed, 2 when there is nothing to go by.
    """
    from memlab.maintenance import maintain, plan_maintenance

    doing("looking after the store")
    act = maintain if do_it else plan_maintenance
    found = act(store, now=datetime.now(UTC))
    if as_json:
        click.echo(found.to_json())
    else:
        print_lines(found)
        if found.has_work:
            print_lines("", "nothing was changed; add --apply to do it")
    ctx.exit(1 if found.failed else 0)
