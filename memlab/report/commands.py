"""The commands that a report and the panel offer."""

import shlex


def preview_command(store: str, cap: int) -> str:
    """Return the command that shows what a cap would delete, and deletes nothing."""
    return f"memlab compact {shlex.quote(store)} --keep-recent {cap}"
