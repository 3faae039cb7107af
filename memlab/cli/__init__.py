"""The command line: parse, call, print, exit code."""

from typing import Any

import click

from memlab.cli.compact import apply_plan, compact, finish_plan, restore_plan
from memlab.cli.compare import compare
from memlab.cli.doctor import doctor
from memlab.cli.lab import lab
from memlab.cli.report import report
from memlab.cli.show import show
from memlab.cli.size import size
from memlab.cli.upkeep import archive, show_space, vacuum_store
from memlab.errors import AlreadyAppliedError, CompactionError, MemlabError, StalePlanError
from memlab.text import for_terminal


class Commands(click.Group):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of memlab becomes one line on stderr.

        The exit code is 1 where a plan was refused, 2 for bad input, 130 after Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except MemlabError as error:
            click.echo(f"memlab: {for_terminal(str(error))}", err=True)
            refused = isinstance(error, StalePlanError | AlreadyAppliedError | CompactionError)
            ctx.exit(1 if refused else 2)
        except KeyboardInterrupt:
            click.echo("memlab: interrupted", err=True)
            ctx.exit(130)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memlab")
def main() -> None:
    """See an agent's memory grow, size its keep_recent cap, compact it safely, take it back.

    STORE is the SQLite file an agent keeps its memories in, often called memory.db. Looking at it
    never changes it. compact says what it would delete and waits for --apply; restore puts it back.
    """


for command in (
    show,
    size,
    report,
    lab,
    compare,
    compact,
    apply_plan,
    finish_plan,
    restore_plan,
    doctor,
    archive,
    show_space,
    vacuum_store,
):
    main.add_command(command)
