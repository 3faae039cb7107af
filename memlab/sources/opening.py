"""Which kind of store a name means: one table, an adapter a line."""

import sqlite3
from contextlib import closing, suppress
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Final, NamedTuple, cast

from memlab.arguments import refusal
from memlab.errors import MemlabError
from memlab.sources.base import Source
from memlab.store import SqliteMemoryStore
from memlab.store.database import connect_reading, read_store

SourceLike = str | PathLike[str] | SqliteMemoryStore | Source
"""What names a source wherever memlab takes one."""


class Adapter(NamedTuple):
    """Where to find the class of a kind of store.

    Attributes
    ----------
    module, maker : str
        The class is called with the path or URL as it was given.
    tables : tuple of str
        Tables by which a SQLite file is known to be of this kind when its path is given bare.
    files : tuple of str
        Files by which a folder is.
    """

    module: str
    maker: str
    tables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


ADAPTERS: Final[dict[str, Adapter]] = {
    "file": Adapter("memlab.sources.memory_items", "MemoryItems"),
    **dict.fromkeys(
        ("valkey", "redis", "valkeys", "rediss", "unix"),
        Adapter("memlab.sources.betterdb", "Betterdb"),
    ),
    **dict.fromkeys(("postgresql", "postgres"), Adapter("memlab.sources.memforge", "Memforge")),
}
"""By scheme, as in ``redis://localhost``. A bare path is looked at, and is a ``file`` otherwise."""


def open_source(where: SourceLike) -> Source:
    """Return the source that a name means. Nothing of it is read but what tells its kind.

    Parameters
    ----------
    where : str, Path, SqliteMemoryStore or Source
        A path, a URL whose scheme is one of :data:`ADAPTERS`, an open store, or a source, which is
        returned as it is.

    Raises
    ------
    MemlabError
        When no adapter has that scheme.
    """
    if isinstance(where, SqliteMemoryStore):
        return made_by("file", where)
    if isinstance(where, Source):
        return where
    if not isinstance(where, str | PathLike):
        raise refusal(where, "store", call="memlab", name="source")
    text = fspath(where)
    scheme, colon, _ = text.partition(":")
    if colon and scheme in ADAPTERS:
        return made_by(scheme, text)
    if "://" in text:
        raise MemlabError(
            f"memlab knows no kind of store called {scheme!r}; it knows {', '.join(ADAPTERS)}"
        )
    return made_by(_kind_of(Path(text)), where)


def made_by(scheme: str, where: str | PathLike[str] | SqliteMemoryStore) -> Source:
    """Return a source of a known kind, its module imported now."""
    adapter = ADAPTERS[scheme]
    return cast("Source", getattr(import_module(adapter.module), adapter.maker)(where))


def _kind_of(path: Path) -> str:
    """Return the scheme that a bare path stands for; what cannot be looked at is for it to say."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            return _first("files", {n for n in _marks("files") if (path / n).is_file()})
        if _marks("tables") and path.is_file():
            return _first("tables", _tables_of(path))
    return "file"


def _marks(kind: str) -> set[str]:
    return {name for adapter in ADAPTERS.values() for name in getattr(adapter, kind)}


def _first(kind: str, found: set[str]) -> str:
    for scheme, adapter in ADAPTERS.items():
        marks = getattr(adapter, kind)
        if marks and set(marks) <= found:
            return scheme
    return "file"


def _tables_of(path: Path) -> set[str]:
    """Return the tables of a SQLite file, none of any other."""

    def read(uri: str) -> set[str]:
        with closing(connect_reading(uri)) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}

    with suppress(MemlabError, sqlite3.Error):
        return read_store(path, read, check=lambda _connection, _path: None)
    return set()
