"""What is asked of a store: by an option, else by what ``memlab.toml`` remembers of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from memlab.cli.options import SHARE, moment_for, store_or_bundled
from memlab.cli.progress import doing

if TYPE_CHECKING:
    import pandas as pd

    from memlab.report import Findings
    from memlab.settings import Settings

Command = Callable[..., Any]

TARGET: Final = 0.9
"""The share of references to serve where nobody has said one."""
_REMEMBERED: Final = "what memlab.toml remembers"


class Asked(NamedTuple):
    """What a recommendation is for, and what it rests on beside the store.

    Attributes
    ----------
    target : float
        The share of later references that should find their memory.
    token_budget : int or None
        Tokens that the memories loaded at start may take.
    log : DataFrame or None
        Reads, as :func:`memlab.read_access_log` returns them.
    log_file : Path or None
        Where they were read from; of several logs the first.
    """

    target: float
    token_budget: int | None
    log: "pd.DataFrame | None"
    log_file: Path | None


_CAP = click.option(
    "--cap",
    "--keep-recent",
    "cap",
    type=click.IntRange(min=0),
    help=f"The keep_recent to look at.  [default: {_REMEMBERED}, else the recommended one]",
)
_TARGET = click.option(
    "--target",
    type=SHARE,
    help="The share of later references that should find their memory.  [default: "
    f"{_REMEMBERED}, else {TARGET}]",
)
_BUDGET = click.option(
    "--token-budget",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Tokens that the memories loaded at start may take.  [default: {_REMEMBERED}]",
)
log_option = click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"An access log: CSV or JSON lines with memory_id and at.  [default: {_REMEMBERED}]",
)


def sizing_options(command: Command) -> Command:
    """Add ``--target``, ``--token-budget`` and ``--log`` to a command."""
    return _TARGET(_BUDGET(log_option(command)))


def question_options(command: Command) -> Command:
    """Add ``--cap``, ``--target``, ``--token-budget`` and ``--log`` to a command."""
    return _CAP(sizing_options(command))


def asked_of(
    settings: "Settings", target: float | None, token_budget: int | None, log_file: Path | None
) -> Asked:
    """Return what is asked: by the options where they were given, else by the settings."""
    return Asked(
        target if target is not None else settings.target or TARGET,
        settings.token_budget if token_budget is None else token_budget,
        reads_of(settings, log_file),
        log_file or next(iter(settings.log), None),
    )


def reads_of(settings: "Settings", log_file: Path | None) -> "pd.DataFrame | None":
    """Return the reads of a log that was named, else of those that are remembered."""
    from memlab.evidence.reads import read_access_log, remembered_reads

    return remembered_reads(settings) if log_file is None else read_access_log(log_file)


def examined(
    store: Path | None,
    *,
    cap: int | None,
    target: float | None,
    token_budget: int | None,
    log_file: Path | None,
) -> "tuple[Path, Findings]":
    """Return the store, the bundled one where none is named, and what is found in it."""
    from memlab.evidence.cut import cut_losses
    from memlab.evidence.past import load_past
    from memlab.frame.arrays import arrays_of
    from memlab.report.findings import Question, examine
    from memlab.sources.claude_code import ClaudeCode
    from memlab.sources.opening import open_source, settings_of

    path = store_or_bundled(store)
    source = open_source(path)
    settings = settings_of(source)
    asked = asked_of(settings, target, token_budget, log_file)
    doing("reading the store")
    past = load_past(source, log=asked.log)
    doing("sizing")
    findings = examine(
        past,
        now=moment_for(store, arrays_of(past).last_at),
        asked=Question(
            settings.keep_recent if cap is None else cap, asked.target, asked.token_budget
        ),
        log=asked.log,
        log_name=asked.log_file.name if asked.log_file else "",
        store=_name_of(path),
    )
    if isinstance(source, ClaudeCode):
        findings = replace(findings, cut=cut_losses(source, asked.log))
    return path, findings


def _name_of(store: object) -> str:
    """Return what a page calls a store: a file by its name alone, for pages are passed on."""
    return store.name if isinstance(store, Path) else str(store)
