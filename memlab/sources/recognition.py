"""Evidence for what kind of store a folder is: every kind of folder has a table of its own.

A kind follows from what is there, never from what is missing. Evidence is compared by strength: the
strongest decides, and two kinds with equally strong evidence are undecided.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple


class Strength(IntEnum):
    """How much a piece of evidence says."""

    CONTENT = 1
    """Files that a person may have written just so."""
    TRACE = 2
    """Files or tables that the system's own program writes."""
    PLACE = 3
    """The folder is where the system puts its stores, or its settings name it."""


class Evidence(NamedTuple):
    """A piece of evidence for a kind of store, as docs/stores.md lists it."""

    strength: Strength
    what: str
    """A sentence without its subject, the folder."""
    holds: Callable[[Path], bool]
    """Whether it holds for a folder."""


TEMPLATES: Final = frozenset({"skills", "templates", "template", "fixtures", "testdata"})
"""Folders whose content is an example of a store: files below them are no evidence."""

MOST_ENTRIES: Final = 20_000
"""Files and folders that are looked at, at most, to find one of a kind below a folder."""


def strongest(table: Iterable[Evidence], folder: Path) -> Evidence | None:
    """Return the strongest evidence of a table that holds for a folder; None where none does."""
    for evidence in sorted(table, key=lambda each: -each.strength):
        if evidence.strength is Strength.CONTENT and is_in_templates(folder):
            continue
        with suppress(OSError):  # what cannot be looked at is evidence of nothing
            if evidence.holds(folder):
                return evidence
    return None


def is_in_templates(folder: Path) -> bool:
    """Return whether a folder lies among templates, such as those of a skill.

    >>> is_in_templates(Path("/app/skills/notes/assets")), is_in_templates(Path("/home/u/skills"))
    (True, False)
    """
    return not TEMPLATES.isdisjoint(folder.parent.parts)


def spellings(folder: Path) -> list[Path]:
    """Return a folder's path as it was given, and without links."""
    given = Path(os.path.abspath(folder))  # noqa: PTH100 - a link keeps its name
    return list(dict.fromkeys((given, Path(os.path.realpath(folder)))))


def files_below(folder: Path, left_out: Iterable[str] = ()) -> Iterator[str]:
    """Yield names of files in a folder and below it, without hidden folders and those left out."""
    skipped = {*left_out}

    def names() -> Iterator[str]:
        for _, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            folders[:] = [name for name in folders if name not in skipped]
            yield from files

    return islice(names(), MOST_ENTRIES)
