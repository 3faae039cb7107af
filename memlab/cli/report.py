"""``memlab report``: one HTML file that shows what is in a store and what a cap would do."""

from pathlib import Path

import click

from memlab.cli.options import STORE, moment_for, store_or_bundled
from memlab.cli.output import print_lines, share


@click.command()
@click.argument("store", type=STORE, required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("memlab-report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--keep-recent",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="The cap whose effect the report shows.",
)
def report(store: Path | None, output: Path, keep_recent: int) -> None:
    """Write a report on STORE: one self-contained HTML file with its charts.

    Without STORE, on the bundled two years. The store is only read.
    """
    from tqdm import tqdm

    from memlab.frame import load
    from memlab.growth import summarize
    from memlab.reporting import write_report

    path = store_or_bundled(store)
    frame = load(path)
    now = moment_for(store, frame)
    parameters = {
        "store": str(path.resolve()),
        "now": now.isoformat(),
        "keep_recent": keep_recent,
    }
    with tqdm(desc="report", unit="cell", leave=False, disable=None) as bar:

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
