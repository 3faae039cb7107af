"""What the commands on many stores take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memlab.cli.options import FILE
from memlab.cli.progress import quiet

if TYPE_CHECKING:
    from memlab.fleet.running import Progress, Runner

Command = TypeVar("Command", bound=Callable[..., Any])

NAMES = click.argument("names", nargs=-1, required=True, metavar="NAMES...")
TOKEN_BUDGET = click.option(
    "--token-budget",
    type=click.IntRange(min=0),
    metavar="N",
    help="Tokens that the memories loaded at start may take, of each store.",
)


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


def out_options(command: Command) -> Command:
    """Add what keeps results as they come."""
    options = (
        click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Keep results as they come; the same command again does what is missing.",
        ),
        click.option("--fresh", is_flag=True, help="Throw away what FOLDER holds, and begin anew."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def begun(out: Path | None, *, fresh: bool) -> Path | None:
    """Return the folder of results, emptied where that was asked for.

    Raises
    ------
    click.UsageError
        When something is to be thrown away and no folder was named.
    """
    if fresh and out is None:
        raise click.UsageError("--fresh needs --out FOLDER")
    if fresh and out is not None:
        from memlab.fleet.parts import start_over

        start_over(out)
    return out


def runner_options(command: Command) -> Command:
    """Add what says who does the work."""
    options = (
        click.option(
            "--processes",
            type=click.IntRange(min=1),
            metavar="N",
            help="Processes on this machine; by default one for each processor.",
        ),
        click.option(
            "--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://HOST:8786."
        ),
        click.option(
            "--scheduler-file", type=FILE, help="The file that dask scheduler wrote, instead."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def runner_of(
    processes: int | None, scheduler: str | None, scheduler_file: Path | None
) -> Iterator["Runner | None"]:
    """Hand out who does the work; None where nobody was asked for.

    Raises
    ------
    click.UsageError
        When more than one was.
    """
    asked = {
        "--processes": processes,
        "--scheduler": scheduler,
        "--scheduler-file": scheduler_file,
    }
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one")
    if scheduler is None and scheduler_file is None:
        from memlab.fleet import Processes, Serial

        yield None if processes is None else Serial() if processes == 1 else Processes(processes)
        return
    from memlab.fleet import cluster_at

    with cluster_at(scheduler, scheduler_file=scheduler_file) as cluster:
        yield cluster


@contextmanager
def bar(what: str) -> Iterator["Progress"]:
    """Show how many stores are done and how many a second, on a terminal alone."""
    from tqdm import tqdm

    quiet()
    with tqdm(desc=what, unit=" stores", leave=False, disable=None) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield progress
