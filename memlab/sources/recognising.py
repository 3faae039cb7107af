"""What a path is, found out by looking and not by its name.

A SQLite file is opened for reading alone, and only when it begins as one; a folder is listed, and
of its files no more is read than tells what they are.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from memlab.errors import ChangedWhileReadError, MemlabError, StoreError
from memlab.sources.folder import Folder, opened_folder
from memlab.sources.front_matter import read_front_matter
from memlab.sources.odek_index import INDEX as EPISODE_INDEX
from memlab.sources.odek_index import EpisodeIndex
from memlab.store.database import COLUMNS, connect_reading, store_file
from memlab.store.looking import again_if_changed, one_look

MEMORY_INDEX: Final = "MEMORY.md"
EPISODES: Final = "episodes"

_COLUMNS_OF_TABLES: Final = """
SELECT tables.name, columns.name
FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
"""
"""A virtual table whose module is not there cannot be asked for its columns."""
_MAGIC: Final = b"SQLite format 3\0"
_MOST: Final = 2**24
"""Bytes of an index beyond which it is not looked into to find out what it is."""
_LOOKED_AT: Final = 20
"""Files of a folder that are looked into to find out what it is."""
_TYPES: Final = frozenset({"user", "feedback", "project", "reference"})


class Recognised(NamedTuple):
    """What a path is.

    Attributes
    ----------
    scheme : str or None
        The adapter that reads it; None where memlab knows what it is and cannot read it.
    path : Path
        Where the store itself lies: an index may lie in a folder below.
    what : str
        In words.
    """

    scheme: str | None
    path: Path
    what: str


class Signature(NamedTuple):
    """Tables and columns by which a SQLite file is known."""

    scheme: str | None
    what: str
    tables: dict[str, frozenset[str]]


SIGNATURES: Final = (
    Signature("file", "memory_items", {"memory_items": frozenset(COLUMNS)}),
    Signature(
        "claude-mem",
        "claude-mem",
        {
            "observations": frozenset({"memory_session_id", "created_at_epoch"}),
            "sdk_sessions": frozenset({"memory_session_id"}),
        },
    ),
    Signature(
        "mcp-memory",
        "mcp-memory-service",
        {"memories": frozenset({"content_hash", "content", "memory_type"})},
    ),
)
"""The first that fits counts: claude-mem has another table called memory_items, too."""


def recognise(path: Path) -> Recognised | None:
    """Return what a path is; None for what is no store that memlab knows.

    Parameters
    ----------
    path : Path
        A file or a folder. A link is followed, for a user named it.
    """
    try:
        if path.is_dir():
            return _folder(path)
        if path.is_file():
            return _file(path)
    except (OSError, ValueError):
        return None
    return None


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Return the tables of a SQLite file with their columns, none of what cannot be read."""

    def look() -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        with one_look(store_file(path)) as uri, closing(connect_reading(uri)) as connection:
            for table, column in connection.execute(_COLUMNS_OF_TABLES):
                found.setdefault(table, set()).add(column)
        return {table: frozenset(columns) for table, columns in found.items()}

    with suppress(MemlabError, sqlite3.Error, OSError):
        return again_if_changed(look)
    return {}


def begins_as_sqlite(path: Path) -> bool:
    """Whether a file's first bytes are those of a SQLite file.

    Not for a file that this process may have open: closing it here would drop its locks.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _file(path: Path) -> Recognised | None:
    tables = tables_of(path)
    for scheme, what, wanted in SIGNATURES:
        if all(columns <= tables.get(name, frozenset()) for name, columns in wanted.items()):
            return Recognised(scheme, path, what)
    if "memory_items" in tables:
        return Recognised(None, path, "another table called memory_items")
    return None


def _folder(path: Path) -> Recognised | None:
    with suppress(StoreError), opened_folder(path) as folder:
        files = folder.listing().files
        if MEMORY_INDEX in files:
            return Recognised("claude", path, "Claude Code memory")
        if EPISODE_INDEX in files and _lists_episodes(folder, files[EPISODE_INDEX].size):
            return Recognised("odek", path, "odek episodes")
        if is_project_memory(path) or _has_memories(folder, list(files)):
            return Recognised("claude", path, "Claude Code memory")
    below = path / EPISODES
    if (below / EPISODE_INDEX).is_file() and not below.is_symlink():
        return _folder(below)
    return None


def _lists_episodes(folder: Folder, size: int) -> bool:
    """Whether an ``index.json`` is odek's, of which there are many that are not."""
    if size > _MOST:
        return False
    try:
        index = EpisodeIndex.read(folder.read(EPISODE_INDEX).data)
    except (StoreError, ChangedWhileReadError, FileNotFoundError):
        return False
    if not index.entries:
        return folder.path.name in (EPISODES, "memory")
    return all(
        entry.session_id is not None and {"summary", "created_at"} & entry.fields.keys()
        for entry in index.entries
    )


def is_project_memory(path: Path) -> bool:
    """Whether a path is where Claude Code keeps the memory of a project."""
    return path.name == "memory" and path.parent.parent.name == "projects"


def _has_memories(folder: Folder, names: list[str]) -> bool:
    """Whether a folder without an index holds files that begin as memories do."""
    for name in [name for name in names if name.endswith(".md")][:_LOOKED_AT]:
        try:
            text = folder.read(name).data.decode(errors="replace")
        except (StoreError, FileNotFoundError):
            continue
        fields = read_front_matter(text).fields
        own = fields.get("node_type") == "memory" or "originSessionId" in fields
        if own or (fields.get("type") in _TYPES and "description" in fields):
            return True
    return False
