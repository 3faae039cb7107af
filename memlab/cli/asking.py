"""What is asked of a store: the options that ``report`` and ``chart`` share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.options import SHARE, moment_for, store_or_bundled
from memlab.cli.progress import doing

if TYPE_CHECKING:
    from memlab.report import Findings

Command = Callable[..., Any]

_OPTIONS = (
    click.option(
        "--cap",
        "--keep-recent",
        "cap",
        type=click.IntRange(min=0),
        help="The keep_recent to look at; by default the recommended one.",
    ),
    click.option(
        "--target",
        type=SHARE,
        default=0.9,
        show_default=True,
        help="The share of later references that should find their memory.",
    ),
    click.option(
        "--token-budget",
        type=click.IntRange(min=0),
        metavar="N",
        help="Tokens that the memories loaded at start may take.",
    ),
    click.option(
        "--log",
        "log_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="An access log: CSV or JSON lines with memory_id and at.",
    ),
)


def question_options(command: Command) -> Command:
    """Add ``--cap``, ``--target``, ``--token-budget`` and ``--log`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def examined(
    store: Path | None,
    *,
    cap: int | None,
    target: float,
    token_budget: int | None,
    log_file: Path | None,
) -> "tuple[Path, Findings]":
    """Return the store, the bundled one where none is named, and what is found in it."""
    from memlab.evidence.past import load_past
    from memlab.evidence.reads import read_access_log
    from memlab.frame.arrays import arrays_of
    from memlab.report.findings import Question, examine

    path = store_or_bundled(store)
    doing("reading the store")
    log = read_access_log(log_file) if log_file else None
    past = load_past(path, log=log)
    doing("sizing")
    return path, examine(
        past,
        now=moment_for(store, arrays_of(past).last_at),
        asked=Question(cap, target, token_budget),
        log=log,
        log_name=log_file.name if log_file else "",
        store=_name_of(path),
    )


def _name_of(store: object) -> str:
    """Return what a page calls a store: a file by its name alone, for pages are passed on."""
    return store.name if isinstance(store, Path) else str(store)
