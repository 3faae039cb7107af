"""A group of commands whose modules are imported when they are named."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click


class LazyGroup(click.Group):
    """A group of commands, imported one by one."""

    commands_at: ClassVar[Mapping[str, str]] = {}
    """Where each command lies below ``memlab.cli``: a module, a dot and a name in it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands, in the order of the alphabet."""
        return sorted(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, imported now; None where there is none of the name."""
        if cmd_name not in self.commands_at:
            return None
        module, _, name = self.commands_at[cmd_name].rpartition(".")
        command: click.Command = getattr(import_module(f"memlab.cli.{module}"), name)
        return command
