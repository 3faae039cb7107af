"""The command line interface: the command group, errors and exit codes.

A command parses its arguments, calls a public function, and prints the result. The packages below
compute results and write their pages.
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
from memlab.cli.output import ARGUMENTS_KEY, progress, shorten_paths
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


class _LazyCommands(UserDict[str, Any]):
    """A mapping of commands by name, which imports each command on access."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"memlab.cli.{COMMANDS[name]}"), name)
        return command


_REFUSALS: Final = (
    errors.StalePlanError,
    errors.AlreadyAppliedError,
    errors.CompactionError,
)
"""Errors of a refused change."""


class Commands(click.Group):
    """The group of all commands, which prints an error as a line instead of a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command's name, and keep all arguments for messages."""
        ctx.meta[ARGUMENTS_KEY] = list(args)
        with _sanitize_usage_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and print an error as a line on stderr.

        The exit code is 1 for a refused change, 2 for other errors, and 130 for Ctrl-C.
        """
        try:
            with progress("working"), _sanitize_usage_errors(), _print_warnings_once():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the output has closed it, as head does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except errors.MemlabError as error:
            _print_message(str(error))
            if isinstance(error, errors.UndecidedKindError):
                for line in _commands_with_kind(ctx.meta.get(ARGUMENTS_KEY, ()), error):
                    _print_message(line)
            ctx.exit(1 if isinstance(error, _REFUSALS) else 2)
        except OSError as error:  # an error of the system, for which a traceback is no help
            place = f"{error.filename}: " if error.filename else ""
            reason = error.strerror or error
            _print_message(f"{place}{reason}; check the path and its permissions")
            ctx.exit(2)
        except KeyboardInterrupt:
            _print_message("interrupted")
            ctx.exit(130)


def _commands_with_kind(
    arguments: Sequence[str], error: errors.UndecidedKindError
) -> Iterator[str]:
    """Yield the same command for each possible kind of a folder whose kind is undecided."""
    paths = [argument for argument in arguments if _is_path(argument, error.folder)]
    if not paths:
        return
    for name in error.names:
        new_arguments = [name if argument in paths else argument for argument in arguments]
        yield f"next: {command(*new_arguments)}"


def _is_path(argument: str, path: str) -> bool:
    """Return True if an argument of the command line names the file or folder `path`."""
    return bool(argument) and Path(argument).expanduser().absolute() == Path(path).absolute()


def _print_message(message: str) -> None:
    """Print a message on stderr, without passwords and control characters."""
    click.echo(f"memlab: {for_terminal(without_passwords(shorten_paths(message)))}", err=True)


_PRINTED_ONCE: Final = (
    errors.DamagedArchiveWarning,
    errors.DamagedLogWarning,
    errors.ArchivePermissionsWarning,
    errors.PluginWarning,
)
"""Warnings that are printed as a line on stderr, each message once."""


@contextmanager
def _print_warnings_once() -> Iterator[None]:
    """In the block, print memlab's warnings as lines on stderr; other warnings are unchanged."""
    with warnings.catch_warnings():
        for category in _PRINTED_ONCE:
            warnings.simplefilter("once", category)
        show_default = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            if category in _PRINTED_ONCE:
                _print_message(str(message))
            else:
                show_default(message, category, *args, **kwargs)

        warnings.showwarning = show
        yield


@contextmanager
def _sanitize_usage_errors() -> Iterator[None]:
    """Remove control characters and passwords from usage errors that the block raises.

    For an unknown option, suggest only the options that it is the beginning of. If there are none,
    suggest the similar ones, but not --help.
    """
    try:
        yield
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            similar = error.possibilities or ()
            longer = [name for name in similar if name.startswith(error.option_name)]
            without_help = [name for name in similar if name != "--help"]
            # click declares the attributes of its errors as final, so type checkers forbid an
            # assignment
            vars(error)["possibilities"] = longer or without_help
        if not isinstance(error, click.exceptions.NoArgsIsHelpError):  # help is no error
            vars(error)["message"] = for_terminal(without_passwords(error.message))
        raise


@click.group(
    cls=Commands,
    commands=_LazyCommands(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="memlab", prog_name="memlab")
def main() -> None:
    """See an agent's memory grow, size its keep_recent cap, compact it safely, take it back.

    STORE is the SQLite file an agent keeps its memories in, often called memory.db. Looking at it
    never changes it. compact says what it would delete and waits for --apply; restore puts it back.
    """
