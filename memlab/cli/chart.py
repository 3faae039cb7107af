"""``memlab chart``: one chart of a store, as a file."""

from pathlib import Path
from typing import Any

import click

from memlab.cli.asking import examined, question_options
from memlab.cli.options import FILE, STORE
from memlab.cli.output import print_lines
from memlab.cli.progress import doing

NAMES = (
    "age-ranks",
    "backlog",
    "backtest",
    "before-after",
    "boot-context",
    "boot-over-time",
    "cap-curve",
    "comparison",
    "growth",
    "growth-tokens",
    "law",
    "overlap",
    "regret",
    "trade-off",
)
"""Those of `memlab.report.drawing`, which is heavy to load for a line of help."""

ENDINGS = (".svg", ".png")


@click.command(short_help="Draw one chart as an SVG or PNG file.")
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
@click.argument("store", type=STORE, required=False)
@click.option("-o", "--output", type=FILE, help="The file to write.  [default: NAME.svg]")
@click.option("--narrow", is_flag=True, help="Draw it for a narrow column.")
@question_options
def chart(name: str, store: Path | None, output: Path | None, narrow: bool, **asked: Any) -> None:
    """Draw the chart NAME of STORE: an SVG file that follows the reader's theme, or a PNG file.

    \b
    NAME is one of
      boot-context    what an agent loads at every start
      growth          how prunable and load-bearing memories grew; growth-tokens
      backlog         what lies beyond a cap
      before-after    what a cap would change today
      age-ranks       how far back references reach
      cap-curve       what share of references each cap serves
      trade-off       that share against its cost in tokens
      boot-over-time  what would have been loaded under a few caps
      backtest        caps chosen earlier, beside those that it took
      law             how the cap grows with a store, in public projects and in this store
      comparison      what policies serve and cost; overlap and regret: what they delete and lose

    Without STORE, of the bundled two years.
    """  # noqa: D301 - \b keeps the list as it is
    output = output or Path(f"{name}.svg")
    if output.suffix not in ENDINGS:
        raise click.UsageError(f"{output.name} must end in {' or '.join(ENDINGS)}")
    from memlab.charts.figure import NARROW
    from memlab.files import check_writable, limit_like, write_whole
    from memlab.report.drawing import draw
    from memlab.sources.opening import open_source

    check_writable(output)
    path, findings = examined(store, **asked)
    doing(f"drawing {name}")
    drawn = draw(name, findings)
    if narrow:
        drawn = drawn.at(width=NARROW)
    content = drawn.svg().encode() if output.suffix == ".svg" else drawn.png(dpi=144)
    write_whole(output, content, limit=limit_like(open_source(path).like))
    print_lines(f"chart: {output}", f"  {drawn.title}")
