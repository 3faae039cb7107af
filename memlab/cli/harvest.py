"""``memlab harvest``: gather what an agent read."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import json_option
from memlab.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from memlab.evidence.harvest.gather import Harvest


@click.command(short_help="Gather what an agent read into an access log.")
@click.argument("source")
@click.option(
    "-o",
    "--output",
    "log",
    type=click.Path(path_type=Path),
    metavar="LOG",
    help="The access log to append to.  [default: SOURCE.reads.log]",
)
@click.option(
    "--transcripts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where Claude Code's transcripts or Codex's sessions lie, if not where they usually do.",
)
@json_option
def harvest(source: str, log: Path | None, transcripts: Path | None, as_json: bool) -> None:
    """Append what agents read from SOURCE to an access log; the source is only read.

    SOURCE is a Claude Code memory folder, the database of claude-mem, mcp-memory-service or
    LangGraph, Codex's folder, an OpenClaw workspace, or a postgresql:// URL of MemForge or
    LangGraph. What the log has is not added again and stays when its source has swept it away, so
    run this as often as the source forgets.

    \b
    memlab harvest ~/.claude/projects/-work-app/memory
    memlab harvest ~/.claude-mem/claude-mem.db -o reads.log
    memlab size memory.db --log reads.log
    """  # noqa: D301 - \b keeps the lines below it apart
    from tqdm import tqdm

    from memlab.evidence.harvest.gather import harvest_reads

    with tqdm(desc="harvest", unit="B", unit_scale=True, leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        gathered = harvest_reads(source, log, transcripts=transcripts, progress=progress)
    if as_json:
        print_json(gathered)
    else:
        print_lines(gathered, "", *_next_lines(gathered))


def _next_lines(gathered: "Harvest") -> list[str]:
    if not gathered.reads and not gathered.kept:
        return ["next: nothing to size by yet; harvest again after some sessions"]
    store = shlex.quote(gathered.store) if gathered.chances and gathered.store else "STORE"
    log = shlex.quote(str(gathered.log))
    return [f"next: memlab size {store} --log {log}    sizes a cap by these"]
