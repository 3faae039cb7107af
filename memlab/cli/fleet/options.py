"""What the commands on many stores take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from memlab.fleet.running import Progress

Command = TypeVar("Command", bound=Callable[..., Any])

NAMES = click.argument("names", nargs=-1, required=True, metavar="NAMES...")


def table_options(command: Command) -> Command:
    """Add ``--json``, ``--csv`` and ``--limit`` to a command that prints a table."""
    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for a script."),
        click.option("--csv", "as_csv", is_flag=True, help="Print every store as CSV."),
        click.option(
            "--limit",
            type=click.IntRange(min=0),
            default=20,
            show_default=True,
            metavar="N",
            help="Stores that the table lists.",
        ),
    )
    for option in options:
        command = option(command)
    return command


@contextmanager
def bar(what: str) -> Iterator["Progress"]:
    """Show how many stores are done and how many a second, on a terminal alone."""
    from tqdm import tqdm

    with tqdm(desc=what, unit=" stores", leave=False, disable=None) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield progress
