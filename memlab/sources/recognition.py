"""Evidence for the kind of a folder. Each kind of folder has a table of evidence.

Only existing files are evidence, never missing ones. The strongest evidence decides. The kind is
undecided if two kinds have equally strong evidence.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple


class Strength(IntEnum):
    """Strength of a piece of evidence."""

    CONTENT = 1
    """Files that a person may have written in the same form."""
    TRACE = 2
    """Files or tables that the system itself writes."""
    PLACE = 3
    """The folder is a default location of the system, or its settings name the folder."""


class Evidence(NamedTuple):
    """A piece of evidence for a kind of store. docs/stores.md lists all of them.

    Attributes
    ----------
    strength : Strength
        Its strength.
    statement : str
        A sentence whose subject is the folder, without the subject.
    holds : callable
        Returns whether the sentence is true of a folder.
    """

    strength: Strength
    statement: str
    holds: Callable[[Path], bool]


TEMPLATES: Final = frozenset({"skills", "templates", "template", "fixtures", "testdata"})
"""Names of folders with examples of stores. Contents of files below them are no evidence."""

MAX_ENTRIES: Final = 20_000
"""Maximum number of files that are searched below a folder."""


def strongest(table: Iterable[Evidence], folder: Path) -> Evidence | None:
    """Return the strongest evidence of a table that is true of a folder; None for none."""
    by_strength = sorted(table, key=lambda evidence: evidence.strength, reverse=True)
    for evidence in by_strength:
        if evidence.strength is Strength.CONTENT and is_in_templates(folder):
            continue
        with suppress(OSError):  # an unreadable file is no evidence
            if evidence.holds(folder):
                return evidence
    return None


def is_in_templates(folder: Path) -> bool:
    """Return whether a folder is below a folder of templates, such as those of a skill.

    >>> is_in_templates(Path("/app/skills/notes/assets")), is_in_templates(Path("/home/u/skills"))
    (True, False)
    """
    return not TEMPLATES.isdisjoint(folder.parent.parts)


def spellings(folder: Path) -> list[Path]:
    """Return the absolute path of a folder as given, and with links resolved if that differs."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - a link keeps its name
    return list(dict.fromkeys((absolute, Path(os.path.realpath(folder)))))


def files_below(folder: Path, left_out: Iterable[str] = ()) -> Iterator[str]:
    """Yield the names of files in a folder and below it, up to a maximum number.

    Hidden folders and folders named in `left_out` are skipped.
    """
    skipped = {*left_out}

    def names() -> Iterator[str]:
        for _, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            folders[:] = [name for name in folders if name not in skipped]
            yield from files

    return islice(names(), MAX_ENTRIES)
