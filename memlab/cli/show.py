"""``memlab show``: the headline numbers of a store."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.find import inventory_lines
from memlab.cli.options import STORE, json_option, moment_for, store_or_bundled
from memlab.cli.output import print_json, print_lines
from memlab.errors import StoreError
from memlab.settings import Settings
from memlab.sources.abilities import Telling

if TYPE_CHECKING:
    from memlab.evidence.cut import CutLosses
    from memlab.growth import Inventory
    from memlab.sources.base import Source


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    help="The backlog of prunable memories that is still all right.  [default: the cap that "
    "memlab.toml remembers]",
)
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of a folder with an index: what its cut loses, by the reads of an access log.",
)
@json_option
def show(store: Path | None, threshold: int | None, log_file: Path | None, as_json: bool) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is noise.

    What STORE is is found out by looking; a folder that holds several lists them. Without STORE,
    the bundled two years.
    """
    from memlab.frame.labelling import read_memories
    from memlab.growth.summary import summary_of
    from memlab.sources.opening import open_source, settings_of

    path = store_or_bundled(store)
    if (inside := _stores_inside(path)) is not None:
        print_json(inside) if as_json else print_lines(*inventory_lines(inside))
        return
    source = open_source(path)
    memories = read_memories(source, with_words=False)
    about = source.about() if isinstance(source, Telling) else None
    arrays, settings = memories.arrays, settings_of(source)
    summary = summary_of(
        arrays,
        now=moment_for(store, arrays.last_at),
        threshold=settings.keep_recent if threshold is None else threshold,
        token_rule=memories.token_rule,
    )
    losses = None if log_file is None else _losses(source, log_file)
    if as_json:
        told = {} if about is None else {"about": about}
        told |= {} if losses is None else {"cut": losses}
        print_json({"store": str(path), "summary": summary, **told})
        return
    also = [] if about is None else ["", about]
    also += [] if losses is None else ["", losses]
    heavy = 2 * summary.boot.load_bearing.tokens > summary.boot.tokens
    lines = _next_lines(store, settings, heavy=heavy)
    print_lines(str(path), summary, *also, "", *lines)


def _losses(source: "Source", log: Path) -> "CutLosses":
    """Return what the cut of an index loses, by the reads of a log."""
    from memlab.evidence.cut import cut_losses
    from memlab.evidence.reads import read_access_log

    return cut_losses(source, read_access_log(log))


def _stores_inside(path: "Path | Source") -> "Inventory | None":
    """Return the stores below a folder that is none itself; None for anything else."""
    from memlab.sources.recognising import recognise

    if not isinstance(path, Path) or not path.is_dir() or recognise(path) is not None:
        return None
    from memlab.growth import find_stores

    found = find_stores(path)
    if not found.stores:
        raise StoreError(f"{path} is a folder without a store in it; name a store, or its folder")
    return found


def _next_lines(store: Path | None, settings: Settings, *, heavy: bool) -> list[str]:
    """Say what to run next; of a floor that weighs more than half, how it could come down."""
    if store is None:
        return ["this is the bundled example; next: memlab show STORE with a store of yours"]
    name = shlex.quote(str(store))
    lines = [f"next: memlab size {name}    which keep_recent, with evidence"]
    if settings.policy is not None:
        lines.append(f"      memlab compact {name}    what the remembered policy would delete")
    if heavy:
        lines.append(f"      memlab floor {name}    what no cap brings down, and what could")
    return lines
