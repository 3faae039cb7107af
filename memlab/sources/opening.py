"""Which kind of store a name means: one table, an adapter a line."""

from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Final, NamedTuple, cast

from memlab.arguments import refusal
from memlab.errors import MemlabError, UnsafeDeletionError
from memlab.settings import NOTHING, Settings, read_settings
from memlab.sources.abilities import Adjustable
from memlab.sources.base import Source
from memlab.sources.recognising import is_project_memory, recognise
from memlab.store import SqliteMemoryStore

SourceLike = str | PathLike[str] | SqliteMemoryStore | Source
"""What names a source wherever memlab takes one."""


RECALLED: Final = "recalled from"


class Adapter(NamedTuple):
    """Where to find the class of a kind of store.

    Attributes
    ----------
    module, maker : str
        The class is called with the path or URL as it was given.
    start : str
        What the active memories of such a store are to its agent: what it loads at start, or what
        it recalls from; of an index that is cut, more than that.
    """

    module: str
    maker: str
    start: str = "boot context"


ADAPTERS: Final[dict[str, Adapter]] = {
    "file": Adapter("memlab.sources.memory_items", "MemoryItems"),
    "claude": Adapter("memlab.sources.claude_code", "ClaudeCode", start="in the index"),
    "claude-mem": Adapter("memlab.sources.claude_mem", "ClaudeMem"),
    "mcp-memory": Adapter("memlab.sources.mcp_memory", "McpMemory", start=RECALLED),
    "odek": Adapter("memlab.sources.odek", "Odek"),
    **dict.fromkeys(
        ("valkey", "redis", "valkeys", "rediss", "unix"),
        Adapter("memlab.sources.betterdb", "Betterdb", start=RECALLED),
    ),
    **dict.fromkeys(
        ("postgresql", "postgres"),
        Adapter("memlab.sources.memforge", "Memforge", start=RECALLED),
    ),
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
    SettingsError
        When ``memlab.toml`` beside it cannot be used.
    """
    if isinstance(where, SqliteMemoryStore):
        return _as_chosen(made_by("file", where))
    if not isinstance(where, str | PathLike):
        if isinstance(where, Source):
            return where
        raise refusal(where, "store", call="memlab", name="source")
    text = fspath(where)
    scheme, colon, _ = text.partition(":")
    if colon and scheme in ADAPTERS:
        return _as_chosen(made_by(scheme, text))
    if "://" in text:
        raise MemlabError(
            f"memlab knows no kind of store called {scheme!r}; it knows {', '.join(ADAPTERS)}"
        )
    return _as_chosen(made_by(_kind_of(Path(text)), where))


def start_words(name: str) -> str:
    """Return what the active memories of a store are to its agent, in a few words.

    Examples
    --------
    >>> start_words("/srv/memory.db"), start_words("redis://localhost/0")
    ('boot context', 'recalled from')
    """
    scheme = name.partition(":")[0]
    if scheme not in ADAPTERS:
        scheme = "claude" if is_project_memory(Path(name)) else "file"
    return ADAPTERS[scheme].start


def made_by(scheme: str, where: str | PathLike[str] | SqliteMemoryStore) -> Source:
    """Return a source of a known kind, its module imported now."""
    adapter = ADAPTERS[scheme]
    return cast("Source", getattr(import_module(adapter.module), adapter.maker)(where))


def settings_of(source: Source) -> Settings:
    """Return what ``memlab.toml`` says of a store; nothing where there is none.

    Raises
    ------
    SettingsError
        When it cannot be used; the message names the line.
    """
    place = settings_place(source)
    return NOTHING if place is None else read_settings(*place)


def settings_place(source: Source) -> tuple[Path, str] | None:
    """Return the folder that a store's settings lie in, and what it is called there.

    None for a store in memory, and for a name that cannot be a path.
    """
    try:
        folder, like = source.archive.parent, source.like
    except (UnsafeDeletionError, OSError, ValueError, RuntimeError):
        return None
    return folder, source.name if like is None else like.name


def _as_chosen(source: Source) -> Source:
    """Return a source as a person wants it read."""
    settings = settings_of(source)
    source.protected = settings.protected_tags
    if isinstance(source, Adjustable):
        source.adjust(settings)
    return source


def _kind_of(path: Path) -> str:
    """Return the scheme that a bare path stands for; what cannot be looked at is for it to say."""
    found = recognise(path)
    if found is None or found.scheme is None:
        return "file"
    return found.scheme
