"""Functions that make something at a path, for tables of test cases."""

from collections.abc import Callable
from pathlib import Path

from tests.support.claude_store import write_memory
from tests.support.openclaw_store import write_events

Make = Callable[[Path], object]
"""A function that makes something at a path."""


def make_nothing(path: Path) -> None:
    pass


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def write_recall_events(path: Path) -> None:
    """Write an OpenClaw workspace that holds an empty log of recalls and nothing else."""
    write_events(path / "memory/.dreams/events.jsonl")


def files(*names: str) -> Make:
    """Return a function that writes files without front matter into a folder without an index."""

    def make(folder: Path) -> None:
        for name in names:
            write_memory(folder, name, "Short.")

    return make
