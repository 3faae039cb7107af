"""What commands take: a store, a question, ``--json``; what was not said, ``memlab.toml`` says."""

import os
import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from memlab.arguments import number_of, share
from memlab.cli.output import JSON
from memlab.views.bundled import store_path

Command = TypeVar("Command", bound=Callable[..., Any])

TARGET: Final = 0.9
"""The share of references to serve where nobody has said one."""
LISTED_ROWS: Final = 20
"""Memories that a table lists where nobody says how many."""
WIDTH: Final = 80
"""Columns of a table of memories for a pipe."""
_REMEMBERED: Final = "what memlab.toml remembers"


class Store(click.Path):
    """A path, or the URL of a server, which is kept out of whatever takes paths apart."""

    name = "store"

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path, or a source whose text is its name without a password."""
        if isinstance(value, str) and "://" in value and not value.startswith("file:"):
            from memlab.sources.opening import open_source

            return open_source(value)
        found = Path(os.fsdecode(super().convert(value, param, ctx)))
        for_sqlite = str(found) == ":memory:" or str(found).startswith("file:")
        if (for_sqlite and found.exists()) or (
            ":" in str(found) and str(value).startswith((".", os.sep))
        ):
            found = found.absolute()  # what looks like more than a path is one here
        return found


STORE: Final = Store()
PATH: Final = click.Path(path_type=Path)
FILE: Final = click.Path(path_type=Path, dir_okay=False)
"""A file that a command writes, or reads."""


def digests_beginning(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the digests in the archive of the store that was typed, the newest first."""
    from memlab.sources.archived import open_archived
    from memlab.sources.base import Source, archive_at
    from memlab.store.archive.opening import read_archive

    try:
        given = [ctx.params.get("store"), ctx.params.get("place"), *ctx.args]
        store: Any = next(filter(None, given))  # among args after an option without its value
        store = store if isinstance(store, Source) else Path(store).expanduser()
        with warnings.catch_warnings(action="ignore"):
            entries = read_archive(archive_at(open_archived(store)), lambda found: found.entries())
    except Exception:  # noqa: BLE001 - a shell is never told what is wrong
        return []
    return [
        CompletionItem(entry.digest[:12], help=f"{entry.archived_at:%Y-%m-%d %H:%M}")
        for entry in reversed(entries)
        if entry.digest.startswith(incomplete)
        and (entry.finished_at is None or ctx.command.name != "apply")
    ]


class Share(click.ParamType[float]):
    """A share between 0 and 1, such as 0.9 or 90%."""

    name = "share"

    def __init__(self, check: Callable[[str, float], float] = share) -> None:
        self._check = check

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share, or end the command with what is wrong with it."""
        try:
            return self._check((param and param.name) or "value", number_of(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Number(click.IntRange):
    """A whole number, of 0 or more where nothing else is said; help calls it N."""

    def __init__(self, least: int = 0) -> None:
        super().__init__(min=least)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Return what stands for it in help."""
        return "N"


SHARE: Final = Share()
NUMBER: Final = Number()

flag_option: Final = partial(click.option, is_flag=True)
file_option: Final = partial(click.option, type=FILE)
number_option: Final = partial(click.option, type=NUMBER)
path_option: Final = partial(click.option, type=PATH)
digest_option: Final = partial(click.option, shell_complete=digests_beginning)
digest_argument: Final = partial(
    click.argument, "digest", required=False, shell_complete=digests_beginning
)

YES = flag_option("--yes", help="An archive_for of less than a day is meant.")
ALL = flag_option("--all", "all_prunable", help="It is meant that no prunable memory stays loaded.")
json_option = flag_option(
    "--json",
    expose_value=False,
    callback=lambda ctx, _, given: ctx.meta.update({JSON: given}),
    help="Print JSON for a script.",
)
backlog_option = number_option(
    "--backlog",
    help="How many prunable memories are still all right.  [default: the cap that "
    "memlab.toml remembers]",
)
save_plan_option = file_option("--save-plan", help="Write the plan to a new file for review.")
log_option = path_option(
    "--log",
    metavar="FILE",
    help=f"An access log: CSV or JSON lines with memory_id and at.  [default: {_REMEMBERED}]",
)
target_option = click.option(
    "--target",
    type=SHARE,
    help="The share of later references that should find their memory.  [default: "
    f"{_REMEMBERED}, else {TARGET}]",
)
budget_option = number_option(
    "--token-budget",
    help=f"Tokens that the memories loaded at start may take.  [default: {_REMEMBERED}]",
)
_CAP = number_option(
    "--keep-recent",
    help=f"The keep_recent to look at.  [default: {_REMEMBERED}, else the recommended one]",
)


until_option = click.option(
    "--until",
    type=click.FloatRange(1, min_open=True),
    metavar="X",
    help="How many times what is written now the numbers are to speak for; who sizes every night "
    "need not look far ahead.  [default: what memlab.toml remembers, else 1.2]",
)


def sizing_options(command: Command) -> Command:
    """Add ``--target``, ``--token-budget``, ``--until`` and ``--log`` to a command."""
    return target_option(budget_option(until_option(log_option(command))))


def question_options(command: Command) -> Command:
    """Add ``--keep-recent`` to those of sizing."""
    return _CAP(sizing_options(command))


def store_and_moment(store: Path | None) -> tuple[Path, datetime | None]:
    """Return the store and no moment; without one the bundled two years, and when they end."""
    if store is not None:
        return store, None
    from memlab.growth.summary import past_arrays
    from memlab.sources.opening import open_source

    path = store_path("two_years")
    return path, past_arrays(open_source(path))[0].last_at
