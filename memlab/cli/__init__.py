"""The command line: parse, call, print, exit code."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from memlab.cli.lazy_group import LazyGroup
from memlab.cli.progress import working
from memlab.errors import AlreadyAppliedError, CompactionError, MemlabError, StalePlanError
from memlab.text import for_terminal

COMMANDS: Final = {
    "apply": "apply.apply_plan",
    "archive": "upkeep.archive",
    "chart": "chart.chart",
    "compact": "compact.compact",
    "compare": "compare.compare",
    "diff": "diff.diff_plans",
    "doctor": "doctor.doctor",
    "find": "find.find",
    "fleet": "fleet.fleet",
    "finish": "apply.finish_plan",
    "floor": "floor.floor",
    "harvest": "harvest.harvest",
    "lab": "lab.lab",
    "maintain": "maintain.maintain_store",
    "report": "report.report",
    "restore": "restore.restore_plan",
    "show": "show.show",
    "size": "size.size",
    "space": "upkeep.show_space",
    "vacuum": "upkeep.vacuum_store",
}
"""Where each command lies; its module is imported when the command is named, or listed."""


class Commands(LazyGroup):
    """All commands, whose errors are sentences."""

    commands_at = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the command's name."""
        with _harmless_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of memlab becomes one line on stderr.

        The exit code is 1 where a plan was refused, 2 for bad input, 130 after Ctrl-C.
        """
        try:
            with working("working"), _harmless_errors():
                return super().invoke(ctx)
        except BrokenPipeError:  # whoever reads the output has seen enough, as head has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except MemlabError as error:
            click.echo(f"memlab: {for_terminal(str(error))}", err=True)
            refused = isinstance(error, StalePlanError | AlreadyAppliedError | CompactionError)
            ctx.exit(1 if refused else 2)
        except KeyboardInterrupt:
            click.echo("memlab: interrupted", err=True)
            ctx.exit(130)


@contextmanager
def _harmless_errors() -> Iterator[None]:
    """Let no word of the command line that an error quotes steer the terminal."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = for_terminal(error.message)
        raise


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memlab", prog_name="memlab")
def main() -> None:
    """See an agent's memory grow, size its keep_recent cap, compact it safely, take it back.

    STORE is the SQLite file an agent keeps its memories in, often called memory.db. Looking at it
    never changes it. compact says what it would delete and waits for --apply; restore puts it back.
    """
