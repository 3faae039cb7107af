"""``memlab find``: which stores there are."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import STORE, json_option, names_a_folder
from memlab.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from memlab.growth import Inventory


@click.command(short_help="Find the stores below a folder.")
@click.argument("folder", type=STORE, required=False)
@json_option
def find(folder: Path | None, as_json: bool) -> None:
    """Find the stores below FOLDER, and what each holds. Reads only; links are not followed.

    Without FOLDER, where Claude Code, claude-mem, mcp-memory-service and odek put theirs.
    """
    from memlab.growth import find_stores

    if folder is not None and not folder_to_look_through(folder):
        raise click.UsageError(
            f"{folder} names one store, and this looks through folders; next: memlab show "
            f"{shlex.quote(str(folder))}"
        )
    found = find_stores(folder)
    if as_json:
        print_json(found)
        return
    print_lines(*inventory_lines(found))


def folder_to_look_through(named: object) -> bool:
    """Whether a name is a path, and not the URL of one store."""
    return isinstance(named, Path) and (named.is_dir() or not names_a_folder(named))


def inventory_lines(found: "Inventory") -> list["str | Inventory"]:
    """Return what was found, and what to run next."""
    readable = [store for store in found.stores if not store.problem]
    if not readable:
        return [found, "", "next: memlab find FOLDER, to look elsewhere"]
    name = shlex.quote(max(readable, key=lambda store: store.tokens_at_start or 0).where)
    return [found, "", f"next: memlab show {name}"]
