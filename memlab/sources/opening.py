"""The table of systems that memlab knows, and the detection of the kind of a store.

No other module of this package names a system.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from os.path import lexists, realpath
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, cast

from memlab.arguments import refusal
from memlab.errors import (
    ChangedWhileReadError,
    MemlabError,
    UndecidedKindError,
    UnsafeDeletionError,
)
from memlab.settings import EXAMPLES, FILE, NO_SETTINGS, Settings, read_settings
from memlab.settings_file import template_of, write_settings, write_template
from memlab.sources.base import DATABASES, Source
from memlab.sources.recognition import Strength
from memlab.sources.sqlite_rows import begins_as_sqlite, tables_of
from memlab.sources.system import Match, System
from memlab.store import SqliteMemoryStore
from memlab.store.archive.kind import archives_beside, store_name_of
from memlab.store.archive.location import SUFFIX
from memlab.store.database import stat_store
from memlab.text import command

_NOT_LOADED: Final = System("", ()).start
"""Value of :attr:`System.start` for a system of which a start loads nothing."""
SourceLike = str | PathLike[str] | SqliteMemoryStore | Source
"""A store: its path, its URL, an open store or a source."""


class Recognised(NamedTuple):
    """A store that was recognised at a path.

    Attributes
    ----------
    scheme : str
        The scheme of its kind.
    path : Path
        Its path.
    system : str
        The name of its kind.
    evidence : str
        The evidence for its kind, as a sentence without its subject.
    """

    scheme: str
    path: Path
    system: str
    evidence: str = ""


SYSTEMS: tuple[System, ...] = (
    System("memory_items", ("file",), ".memory_items.source:MemoryItems", start="a start"),
    System(
        "claude-mem",
        ("claude-mem",),
        ".claude_mem:ClaudeMem",
        reads=".claude_mem",
        start="loaded from",
    ),
    System("mcp-memory-service", ("mcp-memory",), ".mcp_memory:McpMemory", reads=".mcp_memory"),
    System("Codex", ("codex",), ".codex:Codex", reads=".codex"),
    System("MCP memory server", ("mcp-graph",), ".mcp_graph:McpGraph"),
    System(
        "Hermes memories",
        ("hermes",),
        ".hermes:Hermes",
        start="a start",
        usual=(".hermes/memories", ".hermes/profiles/*/memories"),
        inside=("USER.md",),
    ),
    System(
        "OpenClaw workspace",
        ("openclaw",),
        ".openclaw:OpenClaw",
        reads=".openclaw",
        usual=(".openclaw/workspace*",),
        inside=("memory", "SOUL.md"),
    ),
    System(
        "Serena memories",
        ("serena",),
        ".serena:Serena",
        reads=".serena",
        start="a start",
        usual=(".serena/memories",),
    ),
    System(
        "Claude Code memory",
        ("claude",),
        ".claude_code.source:ClaudeCode",
        reads=".claude_code.reads",
        start="in the index",
        usual=("projects/*/memory", ".claude/agent-memory*/*"),  # a project's, a subagent's
        inside=("MEMORY.md",),
    ),
    System("odek episodes", ("odek",), ".odek:Odek", inside=("index.json", "episodes")),
    System("MemForge", ("postgresql", "postgres"), ".memforge:Memforge", reads=".memforge"),
    System("BetterDB", ("valkey", "redis", "valkeys", "rediss", "unix"), ".betterdb:Betterdb"),
    System("LangGraph", (), reads=".langgraph"),
)
"""The systems that memlab knows, in the order in which they are tried for a path.

An agent's own store comes first, because it needs no other system's module. OpenClaw comes before
Claude Code, because its workspaces may contain a memory folder.
"""


def schemes() -> dict[str, System]:
    """Return the systems that have a scheme, by scheme."""
    return {scheme: system for system in SYSTEMS for scheme in system.schemes}


def system_named(scheme: str) -> System | None:
    """Return the system of a scheme: memlab's own, or that of an installed package.

    Raises
    ------
    MemlabError
        If the package that offers the scheme is broken.
    """
    built_in = schemes().get(scheme)
    if built_in is not None:
        return built_in
    from memlab.sources.installed import installed_system  # slow to import

    return installed_system(scheme)


def _system_in(name: str) -> System | None:
    """Return the system whose scheme a store's name begins with; None if it begins with none."""
    scheme, colon, _ = name.partition(":")
    return system_named(scheme) if colon else None


def all_systems() -> tuple[System, ...]:
    """Return memlab's own systems and those of installed packages; broken ones are left out."""
    from memlab.sources.installed import installed_systems

    return (*SYSTEMS, *installed_systems(schemes()))


def kinds() -> dict[str, type[Source]]:
    """Import and return the class of each of memlab's own kinds of source, by its first scheme."""
    return {system.first_scheme: system.kind for system in SYSTEMS if system.source}


def all_kinds() -> dict[str, type[Source]]:
    """Return :func:`kinds` and the classes of installed packages, by their first scheme."""
    return {system.first_scheme: system.kind for system in all_systems() if system.source}


def harvestable() -> list[System]:
    """Return the systems that record reads, in the order in which they are tried."""
    return [system for system in SYSTEMS if system.reads]


def open_source(location: SourceLike, *, noted: str = "") -> Source:
    """Return the source of a store. Only the evidence for its kind and its settings are read.

    Parameters
    ----------
    location : str, Path, SqliteMemoryStore or Source
        A path or URL, with or without the scheme of a kind.
    noted : str, optional
        The scheme of the kind that a plan recorded.

    Returns
    -------
    Source
        The source, with the settings of the store applied.

    Raises
    ------
    UndecidedKindError
        If the kind of a folder cannot be determined, or the evidence contradicts the kind that its
        archive, its settings or a plan recorded.
    """
    if isinstance(location, Source):
        return location
    if isinstance(location, SqliteMemoryStore):
        return _with_settings(made_by("file", location))
    if not isinstance(location, str | PathLike):
        raise refusal(location, "store", call="memlab", name="source")
    text = fspath(location)
    scheme, _, path_text = text.partition(":")
    system = _system_in(text)
    if "://" not in text:  # a path, not a URL
        stat_store(Path(text if system is None else path_text))
    elif system is None:
        known = [name for system in all_systems() for name in system.schemes]
        raise MemlabError(
            f"memlab knows no kind of store called {scheme!r}; it knows {', '.join(known)}"
        )
    if system is None:
        scheme = _kind_of(text, noted)
    return open_kind(scheme, location)


def open_kind(scheme: str, location: str | PathLike[str]) -> Source:
    """Return a source of a known kind, with the settings of the store applied."""
    return _with_settings(made_by(scheme, location))


def _kind_of(text: str, noted: str = "") -> str:
    """Return the scheme of the kind of store at a path, by evidence, records and a plan.

    The scheme is ``file`` if there is no evidence. Opening the file then reports what is wrong.
    """
    path = Path(text)
    recognised = recognise(path)
    recorded = known_kinds(path)
    if not recorded and (recognised is None or recognised.scheme not in schemes()):
        recorded = _kinds_of_plugins(path)
    if noted and noted not in recorded:
        recorded = (*recorded, noted)
    if recognised is not None:
        if recorded and recognised.scheme not in recorded:
            raise _another_kind(text, recognised, recorded)
        return recognised.scheme
    by_evidence = [match.system.first_scheme for match in _matches_at(path)]
    possible = list(recorded)
    if by_evidence:
        possible = [kind for kind in recorded if kind in by_evidence]
    if len(possible) == 1:
        return possible[0]
    candidates = possible or by_evidence or could_be(path)
    if candidates:
        raise _undecided(text, candidates)
    return "file"


def known_kinds(path: Path) -> tuple[str, ...]:
    """Return the schemes of the kinds that a folder's settings or archives record.

    The settings take precedence, because the kind is in them if a person named it.
    """
    with suppress(OSError, ValueError, RuntimeError):
        return () if path.is_file() else _recorded_kinds(path, folder_schemes())
    return ()


def _recorded_kinds(path: Path, folders: Sequence[str]) -> tuple[str, ...]:
    """Return which of these schemes a folder's settings or archives record."""
    real = path.expanduser().resolve()
    existing = real if real.exists() else None
    chosen = read_settings(real.parent, real.name, existing).kind
    if chosen is not None and chosen in folders:
        return (chosen,)
    return tuple(dict.fromkeys(kind for _, kind in archives_beside(real, folders)))


def _kinds_of_plugins(path: Path) -> tuple[str, ...]:
    """Return the schemes of installed packages that a folder's settings or archives record."""
    with suppress(OSError, ValueError, RuntimeError):
        if path.is_file():
            return ()
        built_in = schemes()
        folders = [
            name for name, kind in all_kinds().items() if kind.is_folder and name not in built_in
        ]
        if folders:
            return _recorded_kinds(path, folders)
    return ()


def folder_schemes() -> tuple[str, ...]:
    """Return the schemes of those kinds of store that are folders."""
    return tuple(scheme for scheme, kind in kinds().items() if kind.is_folder)


def could_be(path: Path) -> list[str]:
    """Return the schemes of the kinds of store that a folder with a ``MEMORY.md`` may be.

    Projects keep documents under that name too, so that a person has to decide.
    """
    if not (path / "MEMORY.md").is_file():
        return []
    candidates = []
    with suppress(OSError):
        names = {entry.name for entry in path.iterdir()}
        for system in reversed(SYSTEMS):
            if not system.source or not system.kind.is_folder:
                continue
            if not names.isdisjoint(system.inside):
                candidates.append(system.first_scheme)
    return candidates


def _undecided(text: str, candidates: Sequence[str]) -> UndecidedKindError:
    """Return the error for a folder that may be of several kinds."""
    names = tuple(f"{scheme}:{text}" for scheme in candidates)
    systems = [_system_known(scheme).name for scheme in candidates]
    commands = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} may be {' or '.join(systems)}, and as well a project's own documents: nothing in "
        f"it decides that; say which it is by its scheme, {commands}",
        folder=text,
        names=names,
    )


def _another_kind(text: str, recognised: Recognised, kinds: Sequence[str]) -> UndecidedKindError:
    """Return the error for a folder whose evidence contradicts its recorded kinds."""
    names = tuple(f"{scheme}:{text}" for scheme in (recognised.scheme, *kinds))
    known = " and ".join(_system_known(kind).name for kind in kinds)
    commands = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} is known as {known}, by its archive, its settings or a plan, and now looks like "
        f"{recognised.system}: it {recognised.evidence}; nothing was done: say which it is by its "
        f"scheme, {commands}. What was taken out comes back as before, with memlab restore",
        folder=text,
        names=names,
    )


def made_by(scheme: str, location: str | PathLike[str] | SqliteMemoryStore) -> Source:
    """Import the module of a known kind and return a source of it."""
    source = cast("Callable[[Any], Source]", _system_known(scheme).kind)(location)
    if scheme not in schemes():
        from memlab.sources.installed import unproven_reason

        source.unproven_reason = unproven_reason(source, scheme)
    return source


def _system_known(scheme: str) -> System:
    """Return the system of a scheme that is known to exist."""
    system = system_named(scheme)
    if system is None:
        raise MemlabError(f"no installed package offers the kind of store {scheme!r} any more")
    return system


def recognise(path: Path) -> Recognised | None:
    """Return the store at a path by evidence; None if it is unknown or ambiguous.

    Installed packages are asked only about a path that none of memlab's own systems knows.

    Raises
    ------
    ChangedWhileReadError
        If another program writes to the file all the time.
    """
    with suppress(OSError, ValueError):
        if not (path.is_file() or path.is_dir()):
            return None
        matches = _matches_at(path)
        is_certain = len(matches) == 1 or (matches and path.is_file())
        if is_certain:
            system, store, evidence = matches[0]
            return Recognised(
                scheme=system.first_scheme,
                path=store,
                system=system.name,
                evidence=evidence.statement,
            )
    return None


def _matches_at(path: Path) -> list[Match]:
    """Return the strongest evidence of memlab's own systems, else that of installed packages."""
    matches = _strongest_at(path)
    if matches or known_kinds(path):
        return matches
    from memlab.sources.installed import installed_matches

    tables = tables_of(path) if path.is_file() else {}
    return _strongest(installed_matches(path, tables, schemes()))


def _strongest(
    matches: list[Match],
) -> list[Match]:
    """Return the matches with the strongest evidence."""
    best = max((match.evidence.strength for match in matches), default=None)
    return [match for match in matches if match.evidence.strength == best]


def _strongest_at(path: Path) -> list[Match]:
    """Return the systems with the strongest evidence, each with the store and its evidence."""
    matches: list[Match] = []
    with suppress(OSError, ValueError):
        if not (path.is_file() or path.is_dir()):
            return []
        tables = tables_of(path) if path.is_file() else {}
        for system in SYSTEMS:
            if not system.source:
                continue
            match = system.kind.evidence_for(path, tables)
            if match is not None:
                store, evidence = match
                matches.append(Match(system, store, evidence))
    return _strongest(matches)


def is_store(path: Path) -> bool:
    """Return whether a path is a store, by evidence, settings or archives."""
    return recognise(path) is not None or bool(known_kinds(path) or _kinds_of_plugins(path))


def is_named_by_scheme(name: str) -> bool:
    """Return whether a name is a path with a known scheme, such as ``odek:FOLDER``."""
    return "://" not in name and _system_in(name) is not None


def start_words(name: str) -> str:
    """Return how its agent uses the active memories of a store, in a few words.

    >>> start_words("/srv/memory.db"), start_words("redis://localhost/0")
    ('a start', 'recalled from')
    """
    return _system_of(name).start


def _system_of(name: str) -> System:
    """Return the system of a store by the scheme of its name or by its usual path."""
    system = _system_in(name)
    if system is not None:
        return system
    path = PurePath(name)
    for system in SYSTEMS:
        if any(path.match(pattern) for pattern in system.usual):
            return system
    return schemes()["file"]


def can_delete_from(name: str) -> bool:
    """Return whether memlab deletes from a store with such a name.

    Other systems only have a cap of their own.

    >>> can_delete_from("claude-mem:claude-mem.db"), can_delete_from("memory.db")
    (False, True)
    """
    if _system_in(name) is None:
        return True
    return not made_by(name.partition(":")[0], name).read_only_reason


def is_searched(name: str) -> bool:
    """Return whether agents search a store with such a name, beside what a start loads.

    >>> is_searched("openclaw:workspace"), is_searched("claude:memory"), is_searched("memory.db")
    (True, False, False)
    """
    system = _system_in(name)
    return system is not None and system.kind.index_type is None


def settings_of(source: Source) -> Settings:
    """Return the settings of a store in ``memlab.toml``, read once; empty ones without a file."""
    if source.settings is None:
        place = settings_place(source)
        source.settings = NO_SETTINGS if place is None else read_settings(*place)
    return source.settings


def remember(source: Source, chosen: Mapping[str, Any]) -> Path:
    """Write settings of a store into ``memlab.toml``, and return the path of the file.

    Parameters
    ----------
    source : Source
        The store.
    chosen : mapping of str to object
        The values by key; None removes a setting.

    Raises
    ------
    MemlabError
        If the store has no folder for settings.
    """
    place = _settings_place_of(source)
    is_noted = settings_of(source).kind is not None
    source.settings = None
    if source.is_folder and (is_noted or not _shows_its_kind(source)):
        chosen = {**chosen, "kind": source.scheme}
    return write_settings(*place, chosen)


class SettingsTemplate(NamedTuple):
    """The settings file of a store with a comment for each setting that it lacks.

    Attributes
    ----------
    file : Path
        The file.
    text : str
        Its text.
    left_out : dict of str to str
        Why a setting is not in it, by key.
    """

    file: Path
    text: str
    left_out: dict[str, str]


def settings_without_effect(source: Source) -> dict[str, str]:
    """Return why a setting has no effect on a store, by the key of the setting.

    >>> list(settings_without_effect(open_kind("file", "memory.db")))
    ['kind', 'claude']
    """
    reasons: dict[str, str] = {}
    deletes = not source.read_only_reason
    if not source.is_folder:
        reasons["kind"] = "the kind of a file or of a server is always known"
    if source.own_settings != "claude":
        reasons["claude"] = "it is not Claude Code's memory"
    if _system_of(source.name).start == _NOT_LOADED:
        reasons["context_window"] = "a start loads nothing of it"
    if not source.is_copied:
        reasons["keep_copies"] = "copies are kept of folders and of memory_items alone"
    if source.is_server:
        reasons["archive_folder"] = "the URL names the archive of a server: ?archive=PATH"
    if not deletes and not source.is_copied:
        for key in ("archive_for", "archive_folder"):
            reasons[key] = "memlab deletes nothing from it, so that it has no archive"
    if not source.is_native_format:
        reasons["vacuum_free"] = "memlab rewrites an agent's own memory_items alone"
    if not deletes:
        reasons["max_per_run"] = "memlab deletes nothing from it"
    for key in ("retire", "delete_retired_after"):
        if not deletes:
            reasons[key] = "memlab retires nothing in it"
        elif source.retirement is None:
            reasons[key] = "its memories cannot be retired, only deleted"
    return reasons


def settings_template(source: Source, *, write: bool) -> SettingsTemplate:
    """Return the settings file of a store with a comment for each setting that it lacks.

    Settings without an effect on the store are left out.

    Parameters
    ----------
    source : Source
        The store.
    write : bool
        Write the text to the file; settings and comments in it are kept.
    """
    with source.reading():
        pass  # raises an error if this is no store, or if it cannot be read
    folder, name, like = _settings_place_of(source)
    left_out = settings_without_effect(source)
    examples = {key: example for key, example in EXAMPLES.items() if key not in left_out}
    if "kind" in examples:
        examples["kind"] = f'"{source.scheme}"'
    text = template_of(folder, name, like, examples)
    file = folder / FILE
    if write:
        source.settings = None
        file = write_template(folder, name, like, examples)
    return SettingsTemplate(file, text, left_out)


class SettingsPlace(NamedTuple):
    """The place of a store's settings.

    Attributes
    ----------
    folder : Path
        Folder of the settings file.
    name : str
        Name of the store in that file.
    like : Path or None
        File or folder whose owner must own the settings file; None for anybody.
    """

    folder: Path
    name: str
    like: Path | None


def _settings_place_of(source: Source) -> SettingsPlace:
    """Return the place of the settings of a store; raise MemlabError if it has no folder."""
    place = settings_place(source)
    if place is None:
        raise MemlabError(
            f"{source.name} has no folder to keep settings in; name the store by its file"
        )
    return place


def _shows_its_kind(source: Source) -> bool:
    """Return whether the location of a folder, or traces of its system's program, show its kind.

    The kind is then left out of the settings, because the first versions of memlab reject it as an
    unknown setting.
    """
    matches = _matches_at(Path(source.permissions_template or source.name))
    if len(matches) != 1:
        return False
    system, _, evidence = matches[0]
    return system.first_scheme == source.scheme and evidence.strength >= Strength.TRACE


def settings_place(source: Source) -> SettingsPlace | None:
    """Return the place of the settings of a store; None if it has no folder."""
    try:
        template = source.permissions_template
        # Settings never follow an archive that was put elsewhere.
        archive = source.archive_path
        folder = archive.parent if template is None else Path(realpath(template)).parent
    except (UnsafeDeletionError, OSError, ValueError, RuntimeError):
        return None
    name = source.name if template is None else template.name
    return SettingsPlace(folder=folder, name=name, like=template)


def _with_settings(source: Source) -> Source:
    """Apply its settings to a source and return it."""
    settings = settings_of(source)
    if settings.archive_folder is not None and source.is_server:
        message = "archive_folder is of files and folders; name the archive of a server in its URL"
        raise settings.error("archive_folder", f"{message}: ?archive=PATH")
    source.protected = settings.protected_tags
    source.adjust(settings)
    return source


_HASH_SUFFIX: Final = re.compile("-[0-9a-f]{8}$")
"""Suffix of the name of an archive that is not beside its store, before :data:`SUFFIX`."""
NOT_ENTERED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", ".cache", ".Trash"}
)
"""Names of folders that a search does not enter: they hold many files of others and no stores."""


class Search(NamedTuple):
    """The result of a search for stores.

    Attributes
    ----------
    stores : tuple of Recognised
        The stores, sorted by path.
    shut : tuple of Path
        Folders that could not be read.
    others : tuple of Path
        SQLite databases that are not stores.
    """

    stores: tuple[Recognised, ...]
    shut: tuple[Path, ...]
    others: tuple[Path, ...]


def usual_places(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the default paths of stores of all known systems, which need not exist."""
    variables = os.environ if environment is None else environment
    home = Path(variables.get("HOME") or Path.home())
    places: list[Path] = []
    for kind in all_kinds().values():
        places += kind.usual_places(home, variables)
    return places


def find_below(folders: list[Path]) -> Search:
    """Search folders and everything below them for stores."""
    stores: dict[str, Recognised] = {}
    errors: list[OSError] = []
    others: list[Path] = []
    endings = tuple({ending for kind in all_kinds().values() for ending in kind.endings})
    for folder in folders:
        for path, names, files in os.walk(folder, onerror=errors.append):
            # os.walk enters the folders that remain in this list.
            names[:] = sorted(set(names) - NOT_ENTERED)
            for store in _stores_at(Path(path), names, files, others, endings):
                stores.setdefault(os.path.realpath(store.path), store)
    return Search(
        stores=tuple(stores[path] for path in sorted(stores, key=Path)),
        shut=tuple(Path(os.fsdecode(error.filename or "?")) for error in errors),
        others=tuple(others),
    )


def _stores_at(
    folder: Path,
    names: list[str],
    files: list[str],
    others: list[Path],
    endings: tuple[str, ...],
) -> Iterator[Recognised]:
    """Yield the stores that a folder is or has; append other SQLite databases to `others`.

    The files of stores have one of the `endings`.
    """
    if _may_be_store(folder, {*names, *files}):
        store = recognise(folder)
        if store is not None:
            yield store
    archives = {
        name for name in files if name.endswith(SUFFIX) and not _is_of_store_elsewhere(folder, name)
    }
    archived = {_store_beside(folder, name) for name in archives}
    archived.discard("")  # the store of an archive is not known
    names_of_stores = {name for name in files if name.endswith(endings)}
    for name in sorted(archived | (names_of_stores - archives)):
        path = folder / name
        if path.is_symlink() and path.exists():
            continue
        is_named = name in archived or name.endswith(DATABASES)
        is_database = begins_as_sqlite(path)
        with suppress(ChangedWhileReadError):
            is_candidate = is_database or path.is_dir() or not name.endswith(DATABASES)
            store = None
            if is_candidate:
                store = recognise(path) or _known_at(path)
            if store is not None:
                yield store
                continue
            if is_database and name not in archived and tables_of(path):
                others.append(path)
                continue
        if is_named:
            yield Recognised("file", path, "named like a store")


def _may_be_store(folder: Path, names: set[str]) -> bool:
    """Return whether a folder with these names has a usual path or a file name of a system."""
    for system in all_systems():
        has_name = not names.isdisjoint(system.inside)
        if has_name or any(folder.match(pattern) for pattern in system.usual):
            return True
    return False


def _is_of_store_elsewhere(folder: Path, archive: str) -> bool:
    """Return whether an archive is in a folder that a person chose, and its store is elsewhere."""
    stem = archive.removesuffix(SUFFIX)
    return _HASH_SUFFIX.search(stem) is not None and not lexists(folder / stem)


def _store_beside(folder: Path, archive: str) -> str:
    """Return the name of the store of an archive in the same folder; empty if unknown."""
    usual = archive.removesuffix(SUFFIX)
    if (folder / usual).exists():
        return usual
    folders = [scheme for scheme, kind in all_kinds().items() if kind.is_folder]
    return store_name_of(archive, folders)


def _known_at(path: Path) -> Recognised | None:
    """Return a folder by its recorded kind; None unless exactly one kind is recorded."""
    if not path.is_dir():
        return None
    schemes_recorded = known_kinds(path) or _kinds_of_plugins(path)
    if len(schemes_recorded) != 1:
        return None
    (scheme,) = schemes_recorded
    system = _system_known(scheme)
    return Recognised(scheme, path, system.name, "is known so by its settings or archive")
