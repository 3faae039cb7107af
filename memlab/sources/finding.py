"""Finding stores below a folder. Links are not followed, and nothing is opened that is no store.

A file is looked into only when it is named like a database and begins as one; a folder only when it
holds an index, or lies where Claude Code keeps a project's memory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final, NamedTuple

from memlab.sources.odek_index import INDEX as EPISODE_INDEX
from memlab.sources.recognising import (
    EPISODES,
    MEMORY_INDEX,
    Recognised,
    begins_as_sqlite,
    recognise,
)

DATABASES: Final = (".db", ".sqlite", ".sqlite3")
ARCHIVES: Final = ".archive.db"
NOT_ENTERED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", ".cache", ".Trash"}
)
"""Folders that hold copies of other people's files by the thousand, and no store."""


class Search(NamedTuple):
    """What a search found.

    Attributes
    ----------
    stores : tuple of Recognised
        In order of their paths.
    shut : tuple of Path
        Folders that could not be entered.
    """

    stores: tuple[Recognised, ...]
    shut: tuple[Path, ...]


def usual_places(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return where the systems that memlab knows put their stores, there or not.

    Parameters
    ----------
    environment : mapping, optional
        Variables that move them; those of this process by default.
    """
    known = os.environ if environment is None else environment
    home = Path(known.get("HOME") or Path.home())
    claude = Path(known.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    data = Path(known.get("XDG_DATA_HOME") or home / ".local" / "share")
    return [
        claude / "projects",
        claude / "agent-memory",
        Path(known.get("CLAUDE_MEM_DATA_DIR") or home / ".claude-mem"),
        data / "mcp-memory",
        home / "Library" / "Application Support" / "mcp-memory",
        home / ".odek" / "memory",
    ]


def find_below(folders: list[Path]) -> Search:
    """Look for stores in folders and all that is below them.

    Parameters
    ----------
    folders : list of Path
        A link among them is followed, for somebody named it; one below them is not.
    """
    stores: dict[Path, Recognised] = {}
    shut: list[Path] = []
    for folder in folders:
        for here, names, files in os.walk(folder, onerror=lambda error: shut.append(_of(error))):
            names[:] = sorted(set(names) - NOT_ENTERED)
            for found in _stores_at(Path(here), names, files):
                stores.setdefault(found.path.resolve(), found)
    return Search(tuple(stores[path] for path in sorted(stores)), tuple(shut))


def _stores_at(folder: Path, names: list[str], files: list[str]) -> Iterator[Recognised]:
    if _may_be_memory(folder, names, files) and (found := recognise(folder)) is not None:
        yield found
        names[:] = [name for name in names if name != EPISODES or found.path.name != EPISODES]
    for name in sorted(files):
        path = folder / name
        if name.endswith(DATABASES) and not name.endswith(ARCHIVES) and _is_database(path):
            found = recognise(path)
            if found is not None:
                yield found


def _may_be_memory(folder: Path, names: list[str], files: list[str]) -> bool:
    in_place = folder.name == "memory" and folder.parent.parent.name == "projects"
    return (
        MEMORY_INDEX in files
        or (EPISODE_INDEX in files and folder.name in (EPISODES, "memory"))
        or (EPISODES in names and folder.name == "memory")
        or in_place
    )


def _is_database(path: Path) -> bool:
    """Whether a file is an ordinary one that begins as a SQLite file does."""
    with suppress(OSError):
        return S_ISREG(path.lstat().st_mode) and begins_as_sqlite(path)
    return False


def _of(error: OSError) -> Path:
    return Path(os.fsdecode(error.filename or "?"))
