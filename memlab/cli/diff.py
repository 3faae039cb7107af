"""``memlab diff``: what changed between two plans."""

from pathlib import Path

import click

from memlab.cli.options import json_option
from memlab.cli.output import print_json, print_lines

PLAN = click.Path(path_type=Path, dir_okay=False)


@click.command("diff", short_help="Show what changed between two plans.")
@click.argument("before", metavar="PLAN", type=PLAN)
@click.argument("after", metavar="PLAN", type=PLAN)
@json_option
@click.pass_context
def diff_plans(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Show what the second PLAN does otherwise than the first, as memlab compact wrote them.

    Ends with 1 where they differ in what they delete or supersede, and with 0 where they do not.
    """
    from memlab.compaction.differences import difference_of
    from memlab.compaction.plans import Plan
    from memlab.files import read_whole

    first, second = (Plan.from_json(read_whole(each)) for each in (before, after))
    found = difference_of(first, second)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(found)
    ctx.exit(1 if found.differs else 0)
