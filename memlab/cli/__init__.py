"""The command line interface: the command group, errors and exit codes.

A command parses its words, calls a public function and prints what it returns. What is computed and
what a page says is decided in the packages below.
"""

import os
import sys
import warnings
from collections import UserDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from memlab import errors
from memlab.cli.output import ARGUMENTS, as_given, progress
from memlab.text import command, for_terminal, without_passwords

COMMANDS: Final = {
    "apply": "compact",
    "compact": "compact",
    "floor": "compact",
    "restore": "compact",
    "fleet": "fleet",
    "index": "mending",
    "lab": "pages",
    "report": "pages",
    "compare": "questions",
    "doctor": "questions",
    "find": "questions",
    "harvest": "questions",
    "rows": "questions",
    "show": "questions",
    "size": "questions",
    "archive": "upkeep",
    "init": "upkeep",
    "lost": "upkeep",
    "maintain": "upkeep",
    "vacuum": "upkeep",
}
"""The module of each command, which is imported when the command is named or listed."""


class _Imported(UserDict[str, Any]):
    """A mapping of commands by name, which imports each command on access."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"memlab.cli.{COMMANDS[name]}"), name)
        return command


class Commands(click.Group):
    """The group of all commands, which prints errors as sentences."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the command's name, and keep all words for error messages."""
        ctx.meta[ARGUMENTS] = list(args)
        with _harmless_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and print an error as a line on stderr.

        The exit code is 1 for a refused change, 2 for other errors, and 130 for Ctrl-C.
        """
        try:
            with progress("working"), _harmless_errors(), _warned_once():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the output has closed it, as head does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except errors.MemlabError as error:
            _say(str(error))
            if isinstance(error, errors.UndecidedKindError):
                for line in _commands_with_kind(ctx.meta.get(ARGUMENTS, ()), error):
                    _say(line)
            refused = isinstance(
                error, errors.StalePlanError | errors.AlreadyAppliedError | errors.CompactionError
            )
            ctx.exit(1 if refused else 2)
        except OSError as error:  # an error of the system, for which a traceback is no help
            file = f"{error.filename}: " if error.filename else ""
            _say(f"{file}{error.strerror or error}; check the path and its permissions")
            ctx.exit(2)
        except KeyboardInterrupt:
            _say("interrupted")
            ctx.exit(130)


def _commands_with_kind(
    arguments: Sequence[str], error: errors.UndecidedKindError
) -> Iterator[str]:
    """Yield the same command for each possible kind of a folder whose kind is undecided."""
    paths = [argument for argument in arguments if _is_path(argument, error.given)]
    if not paths:
        return
    for name in error.names:
        new_arguments = [name if argument in paths else argument for argument in arguments]
        yield f"next: {command(*new_arguments)}"


def _is_path(argument: str, path: str) -> bool:
    """Return whether an argument of the command line is this path."""
    return bool(argument) and Path(argument).expanduser().absolute() == Path(path).absolute()


def _say(message: str) -> None:
    """Print a message on stderr, without passwords and control characters."""
    click.echo(f"memlab: {for_terminal(without_passwords(as_given(message)))}", err=True)


_PRINTED_ONCE: Final = (
    errors.DamagedArchiveWarning,
    errors.DamagedLogWarning,
    errors.ArchivePermissionsWarning,
    errors.PluginWarning,
)
"""Warnings that are printed as a line on stderr, each message once."""


@contextmanager
def _warned_once() -> Iterator[None]:
    """Print memlab's warnings as lines on stderr in the block; other warnings are unchanged."""
    with warnings.catch_warnings():
        for category in _PRINTED_ONCE:
            warnings.simplefilter("once", category)
        show_default = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *place: Any, **options: Any
        ) -> None:
            if category in _PRINTED_ONCE:
                _say(str(message))
            else:
                show_default(message, category, *place, **options)

        warnings.showwarning = show
        yield


@contextmanager
def _harmless_errors() -> Iterator[None]:
    """Remove control characters and passwords from the usage errors of the block."""
    try:
        yield
    except click.ClickException as error:
        if not isinstance(error, click.exceptions.NoArgsIsHelpError):  # help is no error
            vars(error)["message"] = for_terminal(without_passwords(error.message))
        raise


@click.group(
    cls=Commands,
    commands=_Imported(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="memlab", prog_name="memlab")
def main() -> None:
    """See an agent's memory grow, size its keep_recent cap, compact it safely, take it back.

    STORE is the SQLite file an agent keeps its memories in, often called memory.db. Looking at it
    never changes it. compact says what it would delete and waits for --apply; restore puts it back.
    """
