"""The command line: parse, call, print, exit code."""

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
from memlab.cli.output import progress
from memlab.text import command, for_terminal, without_passwords

COMMANDS: Final = {
    name: module
    for module, names in {
        "compact": ("apply", "compact", "floor", "restore"),
        "fleet": ("fleet",),
        "pages": ("lab", "report"),
        "questions": ("compare", "doctor", "find", "harvest", "rows", "show", "size"),
        "upkeep": ("archive", "lost", "maintain", "vacuum"),
    }.items()
    for name in names
}
"""In which module each command lies; it is imported when the command is named, or listed."""


_ARGUMENTS: Final = "memlab.arguments"
"""Where the words of the command line are kept for an error's next steps."""


class _Imported(UserDict[str, Any]):
    """Commands by name, of which each is imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"memlab.cli.{COMMANDS[name]}"), name)
        return command


class Commands(click.Group):
    """All commands; their errors are sentences."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the command's name."""
        ctx.meta[_ARGUMENTS] = [*args]
        with _harmless_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error is a line on stderr: 1 refused, 2 bad input, 130 Ctrl-C."""
        try:
            with progress("working"), _harmless_errors(), _warned_once():
                return super().invoke(ctx)
        except BrokenPipeError:  # whoever reads the output has seen enough, as head has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except errors.MemlabError as error:
            _say(str(error))
            if isinstance(error, errors.UndecidedKindError):
                for line in _commands_with_kind(ctx.meta.get(_ARGUMENTS, ()), error):
                    _say(line)
            refused = isinstance(
                error, errors.StalePlanError | errors.AlreadyAppliedError | errors.CompactionError
            )
            ctx.exit(1 if refused else 2)
        except OSError as error:  # of a system, not of memlab: there is nothing to trace back
            what = f"{error.filename}: " if error.filename else ""
            _say(f"{what}{error.strerror or error}; check the path and its permissions")
            ctx.exit(2)
        except KeyboardInterrupt:
            _say("interrupted")
            ctx.exit(130)


def _commands_with_kind(
    arguments: Sequence[str], error: errors.UndecidedKindError
) -> Iterator[str]:
    """Yield the command that was given with each name that decides which kind a folder is."""
    meant = [argument for argument in arguments if _is_path(argument, error.given)]
    for name in error.names:
        if meant:
            words = [name if argument in meant else argument for argument in arguments]
            yield f"next: {command(*words)}"


def _is_path(argument: str, given: str) -> bool:
    """Whether an argument of the command line is a path that an error names."""
    return bool(argument) and Path(argument).expanduser().absolute() == Path(given).absolute()


def _say(words: str) -> None:
    click.echo(f"memlab: {for_terminal(without_passwords(words))}", err=True)


_SAID_ONCE: Final = (
    errors.DamagedArchiveWarning,
    errors.DamagedLogWarning,
    errors.ArchivePermissionsWarning,
)
"""Warnings that are lines on stderr."""


@contextmanager
def _warned_once() -> Iterator[None]:
    """Let what an archive could not say be a line on stderr, and show other warnings as ever."""
    with warnings.catch_warnings():
        for own in _SAID_ONCE:
            warnings.simplefilter("once", own)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category in _SAID_ONCE:
                _say(str(message))
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield


@contextmanager
def _harmless_errors() -> Iterator[None]:
    """Let no word of the command line that an error quotes steer the terminal, or be a password."""
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
