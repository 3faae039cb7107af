"""Which kind of store a name means: one table of systems, and nothing else below names one."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, cast

from memlab.arguments import refusal
from memlab.errors import (
    ChangedWhileReadError,
    MemlabError,
    UndecidedKindError,
    UnsafeDeletionError,
)
from memlab.settings import NOTHING, Settings, read_settings, write_settings
from memlab.sources.base import DATABASES, Source
from memlab.sources.recognition import Evidence, Strength
from memlab.sources.sqlite_rows import begins_as_sqlite, tables_of
from memlab.store import SqliteMemoryStore
from memlab.store.archive.kind import archives_beside, store_name_of
from memlab.store.archive.location import SUFFIX
from memlab.store.database import stat_store
from memlab.text import command

SourceLike = str | PathLike[str] | SqliteMemoryStore | Source
"""What names a source wherever memlab takes one."""

_PACKAGE: Final = "memlab.systems"
"""That a module's name begins in which begins with a dot."""


class Recognised(NamedTuple):
    """What a path is."""

    scheme: str
    path: Path
    what: str
    evidence: str = ""
    """What tells its kind, as a sentence without its subject."""


class System(NamedTuple):
    """A system that memlab knows; nothing of it is imported until it is asked for."""

    what: str
    """What its stores are called."""
    schemes: tuple[str, ...]
    """By which they are named, as in ``redis://localhost`` or ``odek:FOLDER``."""
    source: str = ""
    """The module and the class of its source; empty where only its reads are known."""
    reads: str = ""
    """The module that finds in it what was read; empty where nothing is written down."""
    start: str = "recalled from"
    """What the active memories of a store are to its agent."""
    usual: tuple[str, ...] = ()
    """Ends of paths that mean such a store before anything is looked at."""
    inside: tuple[str, ...] = ()
    """Names of which a folder that is such a store has one; others are not looked at."""

    @property
    def kind(self) -> type[Source]:
        """The class of its source."""
        module, _, name = self.source.partition(":")
        return cast("type[Source]", getattr(import_module(module, _PACKAGE), name))

    @property
    def way(self) -> Any:
        """Its module with ``recognises(asked)`` and ``find(asked)``, which find what was read."""
        return import_module(self.reads, _PACKAGE)


SYSTEMS: tuple[System, ...] = (
    System("memory_items", ("file",), ".memory_items.source:MemoryItems", start="boot context"),
    System("claude-mem", ("claude-mem",), ".claude_mem:ClaudeMem", ".claude_mem", "loaded from"),
    System("mcp-memory-service", ("mcp-memory",), ".mcp_memory:McpMemory", ".mcp_memory"),
    System("Codex", (), reads=".codex"),
    System(
        "OpenClaw workspace",
        ("openclaw",),
        ".openclaw:OpenClaw",
        ".openclaw",
        usual=(".openclaw/workspace*",),
        inside=("memory", "SOUL.md"),
    ),
    System(
        "Serena memories",
        ("serena",),
        ".serena:Serena",
        ".serena",
        "boot context",
        usual=(".serena/memories",),
    ),
    System(
        "Claude Code memory",
        ("claude",),
        ".claude_code.source:ClaudeCode",
        ".claude_code.reads",
        start="in the index",
        usual=("projects/*/memory", ".claude/agent-memory*/*"),  # a project's, a subagent's
        inside=("MEMORY.md",),
    ),
    System("odek episodes", ("odek",), ".odek:Odek", inside=("index.json", "episodes")),
    System("MemForge", ("postgresql", "postgres"), ".memforge:Memforge", ".memforge"),
    System("BetterDB", ("valkey", "redis", "valkeys", "rediss", "unix"), ".betterdb:Betterdb"),
    System("LangGraph", (), reads=".langgraph"),
)
"""In the order in which they are asked what a path is: an agent's own store needs no other system's
module, and a workspace that OpenClaw reads may hold a memory folder."""


def schemes() -> dict[str, System]:
    """Return the systems that stores are opened of, by scheme."""
    return {scheme: system for system in SYSTEMS for scheme in system.schemes}


def kinds() -> dict[str, type[Source]]:
    """Return the class of every kind of source, by its first scheme, all imported now."""
    return {system.schemes[0]: system.kind for system in SYSTEMS if system.source}


def harvestable() -> list[System]:
    """Return the systems that reads are found in, in the order in which they are asked."""
    return [system for system in SYSTEMS if system.reads]


def open_source(where: SourceLike, *, noted: str = "") -> Source:
    """Return the source that a name means. Nothing of it is read but what tells its kind.

    Parameters
    ----------
    where : str, Path, SqliteMemoryStore or Source
        A path or URL, with the scheme of a kind or without.
    noted : str, optional
        The scheme of the kind that a plan knows it as.

    Raises
    ------
    UndecidedKindError
        When nothing tells which kind a folder is, or it looks like another kind than its archive,
        its settings or a plan know it as.
    """
    if isinstance(where, Source):
        return where
    if isinstance(where, SqliteMemoryStore):
        return _as_chosen(made_by("file", where))
    if not isinstance(where, str | PathLike):
        raise refusal(where, "store", call="memlab", name="source")
    text = fspath(where)
    scheme, colon, rest = text.partition(":")
    known = schemes()
    if "://" not in text:
        stat_store(Path(rest if scheme in known else text))
    elif scheme not in known:
        raise MemlabError(
            f"memlab knows no kind of store called {scheme!r}; it knows {', '.join(known)}"
        )
    if not colon or scheme not in known:
        scheme = _kind_of(text, noted)
    return open_kind(scheme, where)


def open_kind(scheme: str, where: str | PathLike[str]) -> Source:
    """Return a source of a known kind, with what a person chose for it."""
    return _as_chosen(made_by(scheme, where))


def _kind_of(text: str, noted: str = "") -> str:
    """Return the scheme of what a path is; what cannot be looked at is for a file's kind to say."""
    path = Path(text)
    found = recognise(path)
    kinds = known_kinds(path)
    if noted and noted not in kinds:
        kinds = (noted,) if not kinds else (*kinds, noted)
    if found is not None:
        if kinds and found.scheme not in kinds:
            raise _another_kind(text, found, kinds)
        return found.scheme
    strongest_kinds = [system.schemes[0] for system, _, _ in _strongest_at(path)]
    left = [kind for kind in kinds if kind in strongest_kinds or not strongest_kinds]
    if len(left) == 1:
        return left[0]
    candidates = left or [*strongest_kinds] or could_be(path)
    if candidates:
        raise _undecided(text, candidates)
    return "file"


def known_kinds(path: Path) -> tuple[str, ...]:
    """Return the kinds that a folder's settings or its archives know it as, by scheme.

    What the settings say comes first: they were written where a person named the kind.
    """
    folders = folder_schemes()
    with suppress(OSError, ValueError, RuntimeError):
        if path.is_file():
            return ()
        real = path.expanduser().resolve()
        like = real if real.exists() else None
        chosen = read_settings(real.parent, real.name, like).kind
        if chosen in folders:
            return (chosen,)
        return tuple(dict.fromkeys(kind for _, kind in archives_beside(real, folders)))
    return ()


def folder_schemes() -> tuple[str, ...]:
    """Return the schemes of the kinds of store that are folders."""
    return tuple(scheme for scheme, kind in kinds().items() if kind.is_folder)


def could_be(path: Path) -> list[str]:
    """Return the kinds of store that a folder with a ``MEMORY.md`` may be, for all that is known.

    A project keeps documents so, too: a person says which it is.
    """
    if not (path / "MEMORY.md").is_file():
        return []
    with suppress(OSError):
        inside = {each.name for each in path.iterdir()}
        return [
            system.schemes[0]
            for system in reversed(SYSTEMS)
            if system.source and system.kind.is_folder and not inside.isdisjoint(system.inside)
        ]
    return []


def _undecided(text: str, schemes_: Iterable[str]) -> UndecidedKindError:
    names = tuple(f"{scheme}:{text}" for scheme in schemes_)
    what = [schemes()[name.partition(":")[0]].what for name in names]
    shown = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} may be {' or '.join(what)}, and as well a project's own documents: nothing in it "
        f"decides that; say which it is by its scheme, {shown}",
        given=text,
        names=names,
    )


def _another_kind(text: str, found: Recognised, kinds: Sequence[str]) -> UndecidedKindError:
    names = tuple(f"{scheme}:{text}" for scheme in (found.scheme, *kinds))
    known = " and ".join(schemes()[kind].what for kind in kinds)
    shown = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} is known as {known}, by its archive, its settings or a plan, and now looks like "
        f"{found.what}: it {found.evidence}; nothing was done: say which it is by its scheme, "
        f"{shown}. What was taken out comes back as before, with memlab restore",
        given=text,
        names=names,
    )


def made_by(scheme: str, where: str | PathLike[str] | SqliteMemoryStore) -> Source:
    """Return a source of a known kind, its module imported now."""
    return cast("Callable[[Any], Source]", schemes()[scheme].kind)(where)


def recognise(path: Path) -> Recognised | None:
    """Return what a path is, None for what memlab does not know; raise where it is written to."""
    with suppress(OSError, ValueError):
        if not (path.is_file() or path.is_dir()):
            return None
        found = _strongest_at(path)
        if len(found) == 1 or (found and path.is_file()):
            system, store, evidence = found[0]
            return Recognised(system.schemes[0], store, system.what, evidence.what)
    return None


def _strongest_at(path: Path) -> list[tuple[System, Path, Evidence]]:
    """Return the kinds for which there is the strongest evidence, each with what it is."""
    found: list[tuple[System, Path, Evidence]] = []
    with suppress(OSError, ValueError):
        if not (path.is_file() or path.is_dir()):
            return []
        tables = tables_of(path) if path.is_file() else {}
        for system in filter(lambda each: each.source, SYSTEMS):
            seen = system.kind.evidence_for(path, tables)
            if seen is not None:
                found += [(system, *seen)]
    best = max((evidence.strength for _, _, evidence in found), default=None)
    return [each for each in found if each[2].strength == best]


def is_store(path: Path) -> bool:
    """Return whether a path is a store, by evidence or by what its settings or archives know of it."""
    return recognise(path) is not None or bool(known_kinds(path))


def is_named_by_scheme(name: str) -> bool:
    """Return whether a name says by a scheme which file or folder it means, such as ``odek:FOLDER``."""
    return "://" not in name and name.partition(":")[0] in schemes() and ":" in name


def start_words(name: str) -> str:
    """Return what the active memories of a store are to its agent, in a few words.

    >>> start_words("/srv/memory.db"), start_words("redis://localhost/0")
    ('boot context', 'recalled from')
    """
    known = schemes()
    system = known.get(name.partition(":")[0])
    path = PurePath(name)
    usual = (each for each in SYSTEMS if any(map(path.match, each.usual)))
    return (system or next(usual, known["file"])).start


def can_delete_from(name: str) -> bool:
    """Return whether memlab deletes from a store of such a name, or its system's own cap alone does.

    >>> can_delete_from("claude-mem:claude-mem.db"), can_delete_from("memory.db")
    (False, True)
    """
    system = schemes().get(name.partition(":")[0])
    return system is None or system.kind.deletes


def is_searched(name: str) -> bool:
    """Return whether agents search a store of such a name, whatever a start loads of it.

    >>> is_searched("openclaw:workspace"), is_searched("claude:memory"), is_searched("memory.db")
    (True, False, False)
    """
    system = schemes().get(name.partition(":")[0])
    return system is not None and not system.kind.cuts_index


def settings_of(source: Source) -> Settings:
    """Return what ``memlab.toml`` says of a store, read once; nothing where there is none."""
    if source.settings is None:
        place = settings_place(source)
        source.settings = NOTHING if place is None else read_settings(*place)
    return source.settings


def remember(source: Source, chosen: Mapping[str, Any]) -> Path:
    """Write settings of a store into ``memlab.toml``, and return the file."""
    place = settings_place(source)
    if place is None:
        raise MemlabError(
            f"{source.name} has no folder to keep settings in; name the store by its file"
        )
    is_noted = settings_of(source).kind is not None
    source.settings = None
    if source.is_folder and (is_noted or not _is_plain_kind(source)):
        chosen = {**chosen, "kind": source.scheme}
    return write_settings(*place, chosen)


def _is_plain_kind(source: Source) -> bool:
    """Return whether a place or the traces of a system's own program say of which kind a folder is.

    Settings without the kind are read by every memlab; the first ones refuse it as unknown.
    """
    found = _strongest_at(Path(source.permissions_template or source.name))
    return len(found) == 1 and (
        found[0][0].schemes[0] == source.scheme and found[0][2].strength >= Strength.TRACE
    )


def settings_place(source: Source) -> tuple[Path, str, Path | None] | None:
    """Return the folder that a store's settings lie in, its name there, and what its owner owns."""
    try:
        folder = source.archive.parent
        like = source.permissions_template
    except (UnsafeDeletionError, OSError, ValueError, RuntimeError):
        return None
    return folder, source.name if like is None else like.name, like


def _as_chosen(source: Source) -> Source:
    settings = settings_of(source)
    source.protected = settings.protected_tags
    source.adjust(settings)
    return source


NOT_ENTERED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", ".cache", ".Trash"}
)
"""Folders that hold copies of other people's files by the thousand, and no store."""


class Search(NamedTuple):
    """What a search found."""

    stores: tuple[Recognised, ...]
    shut: tuple[Path, ...]
    others: tuple[Path, ...]


def usual_places(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return where the systems that memlab knows put their stores, there or not."""
    known = os.environ if environment is None else environment
    home = Path(known.get("HOME") or Path.home())
    return [place for kind in kinds().values() for place in kind.usual_places(home, known)]


def find_below(folders: list[Path]) -> Search:
    """Look for stores in folders and all that is below them."""
    stores: dict[str, Recognised] = {}
    shut: list[OSError] = []
    others: list[Path] = []
    for folder in folders:
        for here, names, files in os.walk(folder, onerror=shut.append):
            names[:] = sorted(set(names) - NOT_ENTERED)
            for found in _stores_at(Path(here), names, files, others):
                stores.setdefault(os.path.realpath(found.path), found)
    return Search(
        tuple(stores[path] for path in sorted(stores, key=Path)),
        tuple(Path(os.fsdecode(error.filename or "?")) for error in shut),
        tuple(others),
    )


def _stores_at(
    folder: Path, names: list[str], files: list[str], others: list[Path]
) -> Iterator[Recognised]:
    inside = {*names, *files}
    if any(
        not inside.isdisjoint(each.inside) or any(map(folder.match, each.usual)) for each in SYSTEMS
    ) and (found := recognise(folder)):
        yield found
    endings = {ending for kind in kinds().values() for ending in kind.endings}
    archives = {name for name in files if name.endswith(SUFFIX)}
    archived = {_store_beside(folder, name) for name in archives} - {""}
    named = {name for name in files if name.endswith(tuple(endings))}
    for name in sorted(archived | (named - archives)):
        path = folder / name
        if path.is_symlink() and path.exists():
            continue
        is_named = name in archived or name.endswith(DATABASES)
        is_database = begins_as_sqlite(path)
        with suppress(ChangedWhileReadError):
            may_be = is_database or path.is_dir() or not name.endswith(DATABASES)
            if may_be and (found := recognise(path) or _known_at(path)):
                yield found
                continue
            if is_database and name not in archived and tables_of(path):
                others.append(path)
                continue
        if is_named:
            yield Recognised("file", path, "named like a store")


def _store_beside(folder: Path, archive: str) -> str:
    """Return the name of the store that an archive lies beside."""
    usual = archive.removesuffix(SUFFIX)
    return usual if (folder / usual).exists() else store_name_of(archive, folder_schemes())


def _known_at(path: Path) -> Recognised | None:
    """Return what a folder is known as where nothing in it tells; None where that is not one."""
    known = known_kinds(path) if path.is_dir() else ()
    if len(known) != 1:
        return None
    system = schemes()[known[0]]
    return Recognised(known[0], path, system.what, "is known so by its settings or archive")
