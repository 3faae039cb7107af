"""``memlab report``: what is in a store and what a cap would do, as one HTML file."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from memlab.cli.options import STORE_FILE, moment_for, store_or_bundled
from memlab.cli.output import print_lines, share

if TYPE_CHECKING:
    from memlab.sizing import Advice

FILE = click.Path(path_type=Path, dir_okay=False)

WITHOUT_EVIDENCE: Final = 50
"""The cap that a report shows where the evidence does not allow to recommend one."""


@click.command(short_help="Write one HTML file with charts.")
@click.argument("store", type=STORE_FILE, required=False)
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=Path("memlab-report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--keep-recent",
    type=click.IntRange(min=0),
    help=f"The cap whose effect is shown; by default the recommended one, else {WITHOUT_EVIDENCE}.",
)
@click.option(
    "--record",
    type=FILE,
    help="Also write a decision record in Markdown, and the plan to review beside it.",
)
def report(store: Path | None, output: Path, keep_recent: int | None, record: Path | None) -> None:
    """Write a report on STORE: one self-contained HTML file with its charts.

    Without STORE, on the bundled two years. The store is only read.
    """
    from tqdm import tqdm

    from memlab.evidence.past import load_past
    from memlab.frame.arrays import arrays_of
    from memlab.frame.loading import load
    from memlab.growth import summarize
    from memlab.report.pages import write_report
    from memlab.sizing import recommend_cap

    for file in (output, record):
        if file is not None and not file.parent.is_dir():
            raise click.UsageError(f"there is no folder {file.parent} to write {file.name} into")
    path = store_or_bundled(store)
    frame = load(path)
    now = moment_for(store, arrays_of(frame).last_at)
    advice = recommend_cap(load_past(path))
    cap = next(n for n in (keep_recent, advice.keep_recent, WITHOUT_EVIDENCE) if n is not None)
    parameters = {"store": str(path.resolve()), "now": now.isoformat(), "keep_recent": cap}
    with tqdm(desc="report", unit=" cells", leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        write_report(output, parameters, name=path.name, progress=progress)
    boot = summarize(frame, now=now).boot
    print_lines(
        f"report: {output}",
        f"  an agent loads {boot.items:,} memories at every start, {boot.tokens:,} tokens "
        "(estimated)",
        f"  noise: {share(boot.prunable.items, boot.items)} of items, "
        f"{share(boot.prunable.tokens, boot.tokens)} of tokens",
        f"  load-bearing: {boot.load_bearing.items:,} memories, "
        f"{boot.load_bearing.tokens:,} tokens; no cap goes below them",
    )
    if record is not None:
        _write_record(record, path, advice, cap, now)


def _write_record(record: Path, path: Path, advice: "Advice", cap: int, now: datetime) -> None:
    """Write the record, and beside it the plan unless a plan for this cap was applied already."""
    from memlab.compaction.contents import last_applied
    from memlab.compaction.planning import plan
    from memlab.files import write_whole
    from memlab.policies import KeepRecent
    from memlab.report.record import decision_record

    policy = KeepRecent(cap)
    made, receipt, plan_file = plan(path, policy, now=now), None, None
    applied = last_applied(path)
    if not made.memories and applied is not None and applied[0].policy == made.policy:
        made, receipt = applied
    elif made.memories:
        plan_file = record.with_suffix(".plan.json")
        write_whole(plan_file, made.to_json())
        print_lines(f"plan: {plan_file}")
    text = decision_record(advice, made, now=now, plan_file=plan_file, receipt=receipt)
    write_whole(record, text)
    print_lines(f"record: {record}")
