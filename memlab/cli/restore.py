"""``memlab restore``: put back what a plan deleted."""

from pathlib import Path

import click

from memlab.cli.options import FILE, STORE, json_option
from memlab.cli.output import print_json, print_lines
from memlab.cli.progress import RESTORING, telling
from memlab.text import counted


@click.command("restore", short_help="Put back what a plan deleted.")
@click.argument("store", type=STORE)
@click.argument("digest")
@click.option("--id", "ids", multiple=True, help="Only this memory; may be given several times.")
@click.option("--into", type=FILE, help="Put the memories into a new file instead.")
@json_option
def restore_plan(
    store: Path, digest: str, ids: tuple[str, ...], into: Path | None, as_json: bool
) -> None:
    """Put back into STORE what the plan DIGEST deleted: every byte, at the same position.

    The beginning of the digest will do; memlab archive STORE lists them.
    """
    from memlab.compaction.restoring import restore

    watch = telling("reading the archive", RESTORING)
    count = restore(digest, store=store, ids=ids or None, into=into, watch=watch)
    target = store if into is None else into
    if as_json:
        left = {"left_out": count.left_out, "rows_left_out": dict(count.rows_left_out)}
        print_json({"restored": count, **left, "into": str(target)})
    else:
        print_lines(f"{counted(count, 'memories')} restored into {target}")
        if not count and not count.left_out:
            print_lines("what that plan deleted is in the store already, each memory in its place")
        if count.left_out:
            left_out = counted(count.left_out, "memories")
            print_lines(f"{left_out} left in the archive, whose own time has passed since")
        for table, rows in count.rows_left_out.items():
            print_lines(
                f"{counted(rows, 'rows')} of {table} left in the archive, since something else "
                "referred to is not there"
            )
