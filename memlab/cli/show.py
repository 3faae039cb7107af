"""``memlab show``: the headline numbers of a store."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.find import inventory_lines
from memlab.cli.options import STORE, json_option, moment_for, store_or_bundled
from memlab.cli.output import print_json, print_lines
from memlab.errors import StoreError
from memlab.sources.base import Telling

if TYPE_CHECKING:
    from memlab.growth import Inventory
    from memlab.sources.base import Source


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

    What STORE is is found out by looking; a folder that holds several lists them. Without STORE,
    the bundled two years.
    """
    from memlab.frame.labelling import read_memories
    from memlab.growth.summary import summary_of
    from memlab.sources.opening import open_source

    path = store_or_bundled(store)
    if (inside := _stores_inside(path)) is not None:
        print_json(inside) if as_json else print_lines(*inventory_lines(inside))
        return
    memories, source = read_memories(path), open_source(path)
    about = source.about() if isinstance(source, Telling) else None
    arrays = memories.arrays
    summary = summary_of(
        arrays,
        now=moment_for(store, arrays.last_at),
        threshold=threshold,
        token_rule=memories.token_rule,
    )
    if as_json:
        told = {} if about is None else {"about": about}
        print_json({"store": str(path), "summary": summary, **told})
        return
    also = [] if about is None else ["", *str(about).splitlines()]
    print_lines(str(path), *str(summary).splitlines(), *also, "", *_next_lines(store))


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


def _next_lines(store: Path | None) -> list[str]:
    if store is None:
        return ["this is the bundled example; next: memlab show STORE with a store of yours"]
    name = shlex.quote(str(store))
    return [
        f"next: memlab size {name}    which keep_recent, with evidence",
        f"      memlab compact {name} --keep-recent 50    what a cap would do; deletes nothing",
    ]
