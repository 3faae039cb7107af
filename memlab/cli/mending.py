"""The command ``index``, which plans changes that mend an index, and applies them."""

from pathlib import Path

import click

import memlab
from memlab.cli import options, output, plans
from memlab.clock import now_utc
from memlab.files import check_writable


@click.command(short_help="Show what is wrong with an index; with --apply, mend it.")
@click.argument("store", type=options.STORE)
@options.flag_option(
    "--empty-headings", help="Take headings out, too, that have nothing below them."
)
@options.flag_option("--keep-order", help="Leave the order of the lines alone.")
@options.log_option
@options.save_plan_option
@options.flag_option("--apply", "do_it", help="Carry the plan out. Without it, only show.")
@options.json_option
def index(
    store: Path,
    empty_headings: bool,
    keep_order: bool,
    log: Path | None,
    save_plan: Path | None,
    do_it: bool,
) -> None:
    """Show how the index of STORE would be mended; with --apply, do it.

    The index is the file that a start loads, such as MEMORY.md of Claude Code. Each memory that
    nothing names gets a line, in the style of the index. Entries whose file was deleted are
    removed. If the index was lost or overwritten, its lines come back from git or from copies. If a
    start does not load all of it, the entries that are read most move up, within their section.

    Sentences, comments and hubs stay. A line also stays if its file may still exist.
    The index as it was goes to the archive first, and memlab restore puts it back byte for byte.

    \b
    memlab index ~/.claude/projects/-home-me-work/memory            show
    memlab index ~/.claude/projects/-home-me-work/memory --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.sources.opening import open_source

    if save_plan is not None:
        check_writable(save_plan, replace=False)
    output.show_progress("reading the index")
    source = open_source(store)
    plan = memlab.plan_index(
        source, log=log, empty_headings=empty_headings, reorder=not keep_order, now=now_utc()
    )
    plans.save_plan(plan, save_plan, source)
    if do_it:
        plans.apply_and_print(plan, name=str(store))
    elif output.wants_json():
        output.print_text(plan.to_json())
    else:
        after = plans.after_planning(
            plan, save_plan, reason_if_empty=f"{plan.index} needs no change", name=str(store)
        )
        output.print_lines(plan.sheet(str(store), with_digest=save_plan is not None), "", *after)
