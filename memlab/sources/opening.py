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

from memlab.arguments import wrong_argument_error
from memlab.errors import (
    ChangedWhileReadError,
    MemlabError,
    StoreError,
    UndecidedKindError,
    UnsafeDeletionError,
)
from memlab.settings import EXAMPLES, FILE, NO_SETTINGS, Settings, read_settings
from memlab.settings_file import template_of, write_settings, write_template
from memlab.sources.base import DATABASES, Source
from memlab.sources.recognition import Strength
from memlab.sources.sqlite_rows import begins_as_sqlite, tables_of
from memlab.sources.system import NOT_LOADED, Match, System
from memlab.store import SqliteMemoryStore
from memlab.store.archive.kind import archives_beside, store_name_of
from memlab.store.archive.location import SUFFIX
from memlab.store.database import stat_store
from memlab.text import command

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


def open_source(location: SourceLike, *, planned_scheme: str = "") -> Source:
    """Return the source of a store. Only the evidence for its kind and its settings are read.

    Parameters
    ----------
    location : str, Path, SqliteMemoryStore or Source
        A path or URL, with or without the scheme of a kind.
    planned_scheme : str, optional
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
        return _with_settings(source_of_kind("file", location))
    if not isinstance(location, str | PathLike):
        raise wrong_argument_error(location, "store", call="memlab", name="source")
    text = fspath(location)
    scheme, _, path_text = text.partition(":")
    system = _system_in(text)
    if "://" not in text:  # a path, not a URL
        stat_store(Path(text if system is None else path_text))
    elif system is None:
        known_schemes = [name for known in all_systems() for name in known.schemes]
        raise MemlabError(
            f"memlab knows no kind of store called {scheme!r}; it knows {', '.join(known_schemes)}"
        )
    if system is None:
        scheme = _kind_of(text, planned_scheme)
    return open_kind(scheme, location)


def open_kind(scheme: str, location: str | PathLike[str]) -> Source:
    """Return a source of a known kind, with the settings of the store applied."""
    return _with_settings(source_of_kind(scheme, location))


def _kind_of(text: str, planned_scheme: str) -> str:
    """Return the scheme of the kind of store at a path, by evidence, records and a plan.

    The scheme is ``file`` if there is no evidence. Opening the file then reports what is wrong.

    Parameters
    ----------
    text : str
        The path.
    planned_scheme : str
        The scheme that a plan recorded; empty for none.
    """
    path = Path(text)
    recognised = recognise(path)
    recorded = recorded_kinds(path)
    is_built_in = recognised is not None and recognised.scheme in schemes()
    if not recorded and not is_built_in:
        recorded = _kinds_of_plugins(path)
    if planned_scheme and planned_scheme not in recorded:
        recorded = (*recorded, planned_scheme)
    if recognised is not None:
        if recorded and recognised.scheme not in recorded:
            raise _contradiction_error(text, recognised, recorded)
        return recognised.scheme
    if path.name == "MEMORY.md" and path.is_file():
        _check_file_of_folder(path)
    by_evidence = [match.system.first_scheme for match in _matches_at(path)]
    possible = list(recorded)
    if by_evidence:
        possible = [kind for kind in recorded if kind in by_evidence]
    if len(possible) == 1:
        return possible[0]
    candidates = possible or by_evidence or possible_kinds(path)
    if candidates:
        raise _undecided_error(text, candidates)
    return "file"


def _check_file_of_folder(file: Path) -> None:
    """Raise an error with the folder to name if a ``MEMORY.md`` may be a file of a store.

    Other projects have documents of this name.

    Raises
    ------
    StoreError
        If its folder is a store.
    UndecidedKindError
        If its folder may be a store.
    """
    folder = file.parent
    if is_store(folder):
        raise StoreError(f"{file} is a file of a store, which is its folder; name {folder}")
    candidates = possible_kinds(folder)
    if candidates:
        raise _undecided_error(str(folder), candidates)


def recorded_kinds(path: Path) -> tuple[str, ...]:
    """Return the schemes of the kinds that a folder's settings or archives record.

    The settings take precedence, because the kind is in them if a person named it.
    """
    with suppress(OSError, ValueError, RuntimeError):
        if not path.is_file():
            return _recorded_kinds(path, folder_schemes())
    return ()


def _recorded_kinds(path: Path, candidates: Sequence[str]) -> tuple[str, ...]:
    """Return the schemes that a folder's settings or archives record, among some schemes."""
    folder = path.expanduser().resolve()
    existing_folder = folder if folder.exists() else None
    kind_in_settings = read_settings(folder.parent, folder.name, existing_folder).kind
    if kind_in_settings is not None and kind_in_settings in candidates:
        return (kind_in_settings,)
    kinds_of_archives = [kind for _, kind in archives_beside(folder, candidates)]
    return tuple(dict.fromkeys(kinds_of_archives))


def _kinds_of_plugins(path: Path) -> tuple[str, ...]:
    """Return the schemes of installed packages that a folder's settings or archives record."""
    with suppress(OSError, ValueError, RuntimeError):
        if path.is_file():
            return ()
        built_in = schemes()
        candidates = [
            name for name, kind in all_kinds().items() if kind.is_folder and name not in built_in
        ]
        if candidates:
            return _recorded_kinds(path, candidates)
    return ()


def folder_schemes() -> tuple[str, ...]:
    """Return the schemes of those kinds of store that are folders."""
    return tuple(scheme for scheme, kind in kinds().items() if kind.is_folder)


def possible_kinds(path: Path) -> list[str]:
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


def _undecided_error(text: str, candidates: Sequence[str]) -> UndecidedKindError:
    """Return the error for a folder that may be of several kinds."""
    names = tuple(f"{scheme}:{text}" for scheme in candidates)
    systems = [_known_system(scheme).name for scheme in candidates]
    commands = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} may be {' or '.join(systems)}, or a project's own documents, and nothing in it "
        f"tells which; name its kind by the scheme, {commands}",
        folder=text,
        names=names,
    )


def _contradiction_error(
    text: str, recognised: Recognised, kinds: Sequence[str]
) -> UndecidedKindError:
    """Return the error for a folder whose evidence contradicts its recorded kinds."""
    names = tuple(f"{scheme}:{text}" for scheme in (recognised.scheme, *kinds))
    recorded_systems = " and ".join(_known_system(kind).name for kind in kinds)
    commands = " or ".join(command("show", name) for name in names)
    return UndecidedKindError(
        f"{text} is known as {recorded_systems}, by its archive, its settings or a plan, and now "
        f"looks like {recognised.system}: it {recognised.evidence}; nothing was done: say which "
        f"it is by its scheme, {commands}. memlab restore still restores what was deleted",
        folder=text,
        names=names,
    )


def source_of_kind(scheme: str, location: str | PathLike[str] | SqliteMemoryStore) -> Source:
    """Import the module of a known kind and return a source of it."""
    source = cast("Callable[[Any], Source]", _known_system(scheme).kind)(location)
    if scheme not in schemes():
        from memlab.sources.installed import unproven_reason

        source.unproven_reason = unproven_reason(source, scheme)
    return source


def _known_system(scheme: str) -> System:
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
        # Systems that recognise the same file are in order of precedence; folders are ambiguous.
        is_certain = len(matches) == 1 or (len(matches) > 1 and path.is_file())
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
    if matches or recorded_kinds(path):
        return matches
    from memlab.sources.installed import installed_matches

    tables = tables_of(path) if path.is_file() else {}
    return _strongest(installed_matches(path, tables, schemes()))


def _strongest(matches: list[Match]) -> list[Match]:
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
    if recognise(path) is not None:
        return True
    kinds_recorded = recorded_kinds(path) or _kinds_of_plugins(path)
    return bool(kinds_recorded)


def is_named_by_scheme(name: str) -> bool:
    """Return whether a name is a path with a known scheme, such as ``odek:FOLDER``."""
    return "://" not in name and _system_in(name) is not None


def start_label(name: str) -> str:
    """Return a label for the use of a store's active memories by its agent.

    >>> start_label("/srv/memory.db"), start_label("redis://localhost/0")
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
    scheme = name.partition(":")[0]
    return not source_of_kind(scheme, name).read_only_reason


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
        source.settings = NO_SETTINGS
        if place is not None:
            source.settings = read_settings(place.folder, place.name, place.local_path)
    return source.settings


def save_store_settings(source: Source, values: Mapping[str, Any]) -> Path:
    """Write settings of a store into ``memlab.toml``, and return the path of the file.

    Parameters
    ----------
    source : Source
        The store.
    values : mapping of str to object
        The values by key; None removes a setting.

    Raises
    ------
    MemlabError
        If the store has no folder for settings.
    """
    place = _settings_place_of(source)
    is_kind_recorded = settings_of(source).kind is not None
    source.settings = None  # to be read again
    if source.is_folder and (is_kind_recorded or not _is_kind_evident(source)):
        values = {**values, "kind": source.scheme}
    return write_settings(place.folder, place.name, place.local_path, values)


class SettingsTemplate(NamedTuple):
    """The settings file of a store with a comment for each setting that it lacks.

    Attributes
    ----------
    file : Path
        The file.
    text : str
        Its text.
    left_out : dict of str to str
        The reason for each setting that is not in it, by key.
    """

    file: Path
    text: str
    left_out: dict[str, str]


def settings_without_effect(source: Source) -> dict[str, str]:
    """Return the reason for each setting that has no effect on a store, by its key.

    >>> list(settings_without_effect(open_kind("file", "memory.db")))
    ['kind', 'claude']
    """
    reasons: dict[str, str] = {}
    deletes = not source.read_only_reason
    if not source.is_folder:
        reasons["kind"] = "the kind of a file or of a server is always known"
    if source.own_settings != "claude":
        reasons["claude"] = "it is not Claude Code's memory"
    if _system_of(source.name).start == NOT_LOADED:
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
    place = _settings_place_of(source)
    left_out = settings_without_effect(source)
    examples = {key: example for key, example in EXAMPLES.items() if key not in left_out}
    if "kind" in examples:
        examples["kind"] = f'"{source.scheme}"'
    text = template_of(place.folder, place.name, place.local_path, examples)
    file = place.folder / FILE
    if write:
        source.settings = None  # to be read again
        file = write_template(place.folder, place.name, place.local_path, examples)
    return SettingsTemplate(file, text, left_out)


class SettingsPlace(NamedTuple):
    """The place of a store's settings.

    Attributes
    ----------
    folder : Path
        Folder of the settings file.
    name : str
        Name of the store in that file.
    local_path : Path or None
        File or folder of the store; None for a server. The settings are read only if the settings
        file belongs to its owner, to the current user or to root.
    """

    folder: Path
    name: str
    local_path: Path | None


def _settings_place_of(source: Source) -> SettingsPlace:
    """Return the place of the settings of a store; raise MemlabError if it has no folder."""
    place = settings_place(source)
    if place is None:
        raise MemlabError(
            f"{source.name} has no folder to keep settings in; name the store by its file"
        )
    return place


def _is_kind_evident(source: Source) -> bool:
    """Return whether the location of a folder, or traces of its system's program, show its kind.

    The kind is then left out of the settings, because the first versions of memlab reject it as an
    unknown setting.
    """
    matches = _matches_at(Path(source.local_path or source.name))
    if len(matches) != 1:
        return False
    system, _, evidence = matches[0]
    return system.first_scheme == source.scheme and evidence.strength >= Strength.TRACE


def settings_place(source: Source) -> SettingsPlace | None:
    """Return the place of the settings of a store; None if it has no folder."""
    try:
        local_path = source.local_path
        # Settings never follow an archive that was put elsewhere.
        archive = source.archive_path
        folder = archive.parent if local_path is None else Path(realpath(local_path)).parent
    except (UnsafeDeletionError, OSError, ValueError, RuntimeError):
        return None
    name = source.name if local_path is None else local_path.name
    return SettingsPlace(folder=folder, name=name, local_path=local_path)


def _with_settings(source: Source) -> Source:
    """Apply its settings to a source and return it."""
    settings = settings_of(source)
    if settings.archive_folder is not None and source.is_server:
        message = (
            "archive_folder applies to files and folders only; name the archive of a "
            "server in its URL"
        )
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


class StoreSearch(NamedTuple):
    """The result of a search for stores.

    Attributes
    ----------
    stores : tuple of Recognised
        The stores, sorted by path.
    unreadable : tuple of Path
        Folders that could not be read.
    other_databases : tuple of Path
        SQLite databases that are not stores.
    """

    stores: tuple[Recognised, ...]
    unreadable: tuple[Path, ...]
    other_databases: tuple[Path, ...]


def usual_places(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the default paths of stores of all known systems, which need not exist."""
    if environment is None:
        environment = os.environ
    home = Path(environment.get("HOME") or Path.home())
    places: list[Path] = []
    for kind in all_kinds().values():
        places += kind.usual_places(home, environment)
    return places


def find_below(folders: list[Path]) -> StoreSearch:
    """Search folders and everything below them for stores."""
    stores: dict[str, Recognised] = {}
    errors: list[OSError] = []
    other_databases: list[Path] = []
    endings = tuple({ending for kind in all_kinds().values() for ending in kind.endings})
    for folder in folders:
        for path, names, files in os.walk(folder, onerror=errors.append):
            # os.walk enters the folders that remain in this list.
            names[:] = sorted(set(names) - NOT_ENTERED)
            for store in _stores_at(Path(path), names, files, other_databases, endings):
                stores.setdefault(os.path.realpath(store.path), store)
    return StoreSearch(
        stores=tuple(stores[path] for path in sorted(stores, key=Path)),
        unreadable=tuple(Path(os.fsdecode(error.filename or "?")) for error in errors),
        other_databases=tuple(other_databases),
    )


def _stores_at(
    folder: Path,
    names: list[str],
    files: list[str],
    other_databases: list[Path],
    endings: tuple[str, ...],
) -> Iterator[Recognised]:
    """Yield a folder if it is a store, and the stores that its files and archives name.

    Parameters
    ----------
    folder : Path
        The folder.
    names, files : list of str
        The names of its subfolders and of its files.
    other_databases : list of Path
        SQLite databases that are no stores are appended to it.
    endings : tuple of str
        File name suffixes of stores.
    """
    if _may_be_store(folder, {*names, *files}):
        store = recognise(folder)
        if store is not None:
            yield store
    archives = {
        name for name in files if name.endswith(SUFFIX) and not _is_of_store_elsewhere(folder, name)
    }
    archived_names = {_store_beside(folder, name) for name in archives}
    archived_names.discard("")  # the store of an archive is not known
    names_of_stores = {name for name in files if name.endswith(endings)}
    for name in sorted(archived_names | (names_of_stores - archives)):
        path = folder / name
        if path.is_symlink() and path.exists():
            continue
        is_named = name in archived_names or name.endswith(DATABASES)
        is_database = begins_as_sqlite(path)
        with suppress(ChangedWhileReadError):
            # A file that is named like a database but is none is not examined.
            is_candidate = is_database or path.is_dir() or not name.endswith(DATABASES)
            store = None
            if is_candidate:
                store = recognise(path) or _recorded_at(path)
            if store is not None:
                yield store
                continue
            if is_database and name not in archived_names and tables_of(path):
                other_databases.append(path)
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


def _recorded_at(path: Path) -> Recognised | None:
    """Return a folder by its recorded kind; None unless exactly one kind is recorded."""
    if not path.is_dir():
        return None
    schemes_recorded = recorded_kinds(path) or _kinds_of_plugins(path)
    if len(schemes_recorded) != 1:
        return None
    (scheme,) = schemes_recorded
    system = _known_system(scheme)
    return Recognised(scheme, path, system.name, "is known so by its settings or archive")
