"""Parameter types and options that several commands share."""

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
from memlab.cli.output import JSON_KEY
from memlab.evidence.defaults import DEFAULT_TARGET
from memlab.views.bundled import store_path

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_ROWS: Final = 20
"""Default number of memories in a table."""
DEFAULT_WIDTH: Final = 80
"""Width in columns of a table of memories if the output is no terminal."""
_FROM_SETTINGS: Final = "from memlab.toml"


class Store(click.Path):
    """A parameter that is the path of a store, or the URL of a server."""

    name = "store"

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the opened source of a URL, whose text hides the password."""
        if isinstance(value, str) and "://" in value and not value.startswith("file:"):
            from memlab.sources.opening import open_source

            return open_source(value)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        text = str(path)
        is_sqlite_name = text == ":memory:" or text.startswith("file:")
        if is_sqlite_name and path.exists():
            return path.absolute()  # SQLite opens this path as a file, not by its special name
        # A path removes the "./" before a name, and a name with a colon looks like a scheme.
        is_marked_as_path = str(value).startswith((".", os.sep))
        if ":" in text and is_marked_as_path:
            return path.absolute()
        return path


STORE: Final = Store()
PATH: Final = click.Path(path_type=Path)
FILE: Final = click.Path(path_type=Path, dir_okay=False)
"""A file that a command writes or reads."""


def complete_digest(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a digest in the shell with the plans in the typed store's archive, newest first.

    For ``memlab apply`` only interrupted plans are offered.
    """
    from memlab.sources.archived import open_archived
    from memlab.sources.base import Source

    store = _typed_store(ctx)
    if store is None:
        return []
    try:
        if not isinstance(store, Source):
            store = Path(store).expanduser()
        with warnings.catch_warnings(action="ignore"):
            entries = open_archived(store).archive.read(lambda archive: archive.entries())
    except Exception:  # noqa: BLE001 - completion never prints an error
        return []
    items = []
    if ctx.command.name == "restore" and entries and "latest".startswith(incomplete):
        items.append(CompletionItem("latest", help="the last plan that is not undone"))
    for entry in reversed(entries):
        is_offered = entry.finished_at is None or ctx.command.name != "apply"
        if is_offered and entry.digest.startswith(incomplete):
            moment = f"{entry.archived_at:%Y-%m-%d %H:%M}"
            items.append(CompletionItem(entry.digest[:12], help=moment))
    return items


def _typed_store(ctx: click.Context) -> Any:
    """Return the store that an incomplete command line names; None without one."""
    # after an option without its value the store is among the context's args
    for typed in (ctx.params.get("store"), ctx.params.get("place"), *ctx.args):
        if typed:
            return typed
    return None


class Share(click.ParamType[float]):
    """A parameter that is a share between 0 and 1, such as 0.9 or 90%."""

    name = "share"

    def __init__(self, check: Callable[[str, float], float] = share) -> None:
        self._check = check

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share; end the command with a usage error if it is out of range."""
        name = "value"
        if param is not None and param.name:
            name = param.name
        try:
            return self._check(name, number_of(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Number(click.IntRange):
    """A parameter that is a whole number of at least `minimum`; help calls it N."""

    def __init__(self, minimum: int = 0) -> None:
        super().__init__(min=minimum)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Return the placeholder in help."""
        return "N"


SHARE: Final = Share()
NUMBER: Final = Number()

flag_option: Final = partial(click.option, is_flag=True)
file_option: Final = partial(click.option, type=FILE)
number_option: Final = partial(click.option, type=NUMBER)
path_option: Final = partial(click.option, type=PATH)
digest_option: Final = partial(click.option, shell_complete=complete_digest)
digest_argument: Final = partial(
    click.argument, "digest", required=False, shell_complete=complete_digest
)

yes_option = flag_option("--yes", help="Allow an archive_for of less than a day in memlab.toml.")
all_option = flag_option(
    "--all",
    "all_prunable",
    help="Allow a plan that keeps no prunable memory. A cap of 0 needs no --all.",
)


def _remember_json(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    """Store in the context whether ``--json`` was given, for :func:`output.wants_json`."""
    ctx.meta[JSON_KEY] = is_given


json_option = flag_option(
    "--json",
    expose_value=False,
    callback=_remember_json,
    help="Print JSON for a script.",
)
backlog_option = number_option(
    "--backlog",
    help="Number of prunable memories above which to warn.  [default: the cap in memlab.toml]",
)
save_plan_option = file_option("--save-plan", help="Write the plan to a new file for review.")
log_option = path_option(
    "--log",
    metavar="FILE",
    help=f"An access log: CSV or JSON lines with memory_id and at.  [default: {_FROM_SETTINGS}]",
)
target_option = click.option(
    "--target",
    type=SHARE,
    help="The share of later references that should find their memory.  [default: "
    f"{_FROM_SETTINGS}, else {DEFAULT_TARGET}]",
)
budget_option = number_option(
    "--token-budget",
    help=f"Tokens that the memories loaded at start may take.  [default: {_FROM_SETTINGS}]",
)
keep_recent_option = number_option(
    "--keep-recent",
    help=f"The keep_recent to look at.  [default: {_FROM_SETTINGS}, else the recommended one]",
)


until_option = click.option(
    "--until",
    type=click.FloatRange(1, min_open=True),
    metavar="X",
    help="Horizon: the numbers stay valid until the store is so many times as large as now. "
    "If you size every night, a short one is enough.  [default: from memlab.toml, else 1.2]",
)


def sizing_options(command: Command) -> Command:
    """Add ``--target``, ``--token-budget``, ``--until`` and ``--log`` to a command."""
    return target_option(budget_option(until_option(log_option(command))))


def question_options(command: Command) -> Command:
    """Add the sizing options and ``--keep-recent`` to a command."""
    return keep_recent_option(sizing_options(command))


def store_and_now(store: Path | None) -> tuple[Path, datetime | None]:
    """Return the store to examine, and the time to use as now; None stands for the clock's time.

    If `store` is None, return the bundled store of two years and the time of its last memory.
    """
    if store is not None:
        return store, None
    from memlab.growth.summary import past_arrays
    from memlab.sources.opening import open_source

    path = store_path("two_years")
    memories, _ = past_arrays(open_source(path))
    return path, memories.last_at
