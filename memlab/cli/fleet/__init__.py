"""``memlab fleet``: many stores at once."""

from typing import Final

import click

from memlab.cli import LazyGroup

COMMANDS: Final = {
    "apply": "fleet.change.apply_fleet",
    "maintain": "fleet.change.maintain_fleet",
    "plan": "fleet.change.plan_fleet",
    "report": "fleet.look.report_fleet",
    "show": "fleet.look.show_fleet",
    "size": "fleet.look.size_fleet",
}


class FleetCommands(LazyGroup):
    """The commands on many stores."""

    commands_at = COMMANDS


@click.group(cls=FleetCommands, short_help="Do with many stores what is done with one.")
def fleet() -> None:
    """Look at many stores, size them, and change them after one review.

    NAMES are paths, patterns such as '/srv/agents/**/memory.db', folders, URLs, and @FILE with a
    name on each line; a store that is named twice counts once. A store that cannot be read is a
    line with its error. The exit code is 1 where any store has one, or passes a threshold.
    """
