"""``memlab show``: the headline numbers of a store."""

import shlex
from pathlib import Path

import click

from memlab.cli.options import STORE, json_option, moment_for, store_or_bundled
from memlab.cli.output import print_json, print_lines


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="The backlog of prunable memories that is still all right.",
)
@json_option
def show(store: Path | None, threshold: int, as_json: bool) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is noise.

    Without STORE, the bundled two years.
    """
    from memlab.frame.loading import load
    from memlab.growth import summarize

    path = store_or_bundled(store)
    frame = load(path)
    summary = summarize(frame, now=moment_for(store, frame), threshold=threshold)
    if as_json:
        print_json({"store": str(path), "summary": summary})
        return
    print_lines(str(path), *str(summary).splitlines(), "", *_next_lines(store))


def _next_lines(store: Path | None) -> list[str]:
    if store is None:
        return ["this is the bundled example; next: memlab show STORE with a store of yours"]
    name = shlex.quote(str(store))
    return [
        f"next: memlab size {name}    which keep_recent, with evidence",
        f"      memlab compact {name} --keep-recent 50    what a cap would do; deletes nothing",
    ]
