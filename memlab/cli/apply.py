"""``memlab apply`` and ``memlab finish``: carry out what was planned."""

from datetime import UTC, datetime
from pathlib import Path

import click

from memlab.cli.options import FILE, STORE, json_option
from memlab.cli.output import print_lines, print_text
from memlab.cli.progress import APPLYING, doing, telling


@click.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="PLAN", type=FILE)
@click.option("--store", type=STORE, help="The store, where it is not the one the plan names.")
@json_option
def apply_plan(plan_file: Path, store: Path | None, as_json: bool) -> None:
    """Carry out a reviewed PLAN, as memlab compact --save-plan wrote it.

    A plan is refused when a memory it decided on has changed since, and when it was applied before.
    """
    from memlab.compaction.applying import apply
    from memlab.compaction.plans import Plan
    from memlab.files import read_whole

    doing("reading the plan")
    made = Plan.from_json(read_whole(plan_file))
    watch = telling("waiting to write", APPLYING)
    receipt = apply(made, store=store, now=datetime.now(UTC), watch=watch)
    print_text(receipt.to_json()) if as_json else print_lines(receipt)


@click.command("finish")
@click.argument("store", type=STORE)
@click.argument("digest")
@json_option
def finish_plan(store: Path, digest: str, as_json: bool) -> None:
    """Finish the plan DIGEST that was cut short on STORE.

    memlab doctor STORE says whether there is one.
    """
    from memlab.compaction.applying import finish

    watch = telling("reading the plan", APPLYING)
    receipt = finish(store, digest, now=datetime.now(UTC), watch=watch)
    print_text(receipt.to_json()) if as_json else print_lines(receipt)
