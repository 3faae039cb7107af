"""Expand paths, patterns, folders, files of names and URLs to the stores of a fleet."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from memlab.arguments import expect, wrong_argument_error
from memlab.errors import MemlabError, SettingsError
from memlab.evidence.access_log import log_parts
from memlab.files import read_whole
from memlab.settings import FILE as SETTINGS
from memlab.settings import read_settings
from memlab.sources.opening import find_below, is_named_by_scheme, is_store, open_source
from memlab.store.archive.location import SUFFIX, archive_path
from memlab.store.database import SIDE_FILES, path_named
from memlab.text import without_passwords

_NO_STORE_SUFFIXES: Final = (SUFFIX, *SIDE_FILES)
"""Suffixes of files beside a store that are not stores: its archive, WAL and journal."""


@dataclass(frozen=True)
class Member:
    """A store of a fleet, or a name that matches no store.

    Attributes
    ----------
    name : str
        The store's name in tables and messages: an absolute path, or a URL without a password.
    location : str
        The path or URL that opens the store.
    size : int
        Size of the store's file in bytes; 0 if this machine has no such file.
    problem : str
        The reason for which the name cannot be a store; empty if it can be one.

    Examples
    --------
    >>> Member.at("/no/such/memory.db").name
    '/no/such/memory.db'
    """

    name: str
    location: str = field(repr=False)
    size: int = 0
    problem: str = ""

    @classmethod
    def at(cls, name: str) -> "Member":
        """Return the member of a path or a URL, which need not exist.

        Examples
        --------
        >>> Member.at("postgresql://host/db").size
        0
        """
        try:
            return cls(name=name, location=name, size=Path(name).stat().st_size)
        except (OSError, ValueError):
            return cls(name=name, location=name)

    def state(self) -> str:
        """Return a fingerprint of the store's files, which changes when a file changes.

        Returns
        -------
        str
            The name, inode, size and modification time of the store, its archive, its settings and
            its access logs. Empty if this machine cannot see the store.
        """
        if self.problem or "://" in self.location:
            return ""
        path = Path(self.location)
        try:
            if path.is_dir():
                files = list(open_source(path).files())
            else:
                files = [path, Path(f"{path}-wal"), Path(f"{path}-journal")]
            files += _files_beside(path.resolve())
        except (MemlabError, OSError, RuntimeError):
            return ""
        fingerprints = []
        for file in files:
            with suppress(OSError, ValueError):
                stat = file.stat()
                fingerprints.append(f"{file.name}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}")
        return ";".join(fingerprints)


@dataclass(frozen=True)
class Members:
    """The stores of a fleet, without duplicates.

    Attributes
    ----------
    stores : tuple of Member
        The stores, in the order in which they were named.
    repeated : int
        Number of names that match a store named before.
    other_databases : tuple of str
        Databases in the named folders that are not stores.

    Examples
    --------
    >>> len(Members((Member.at("a.db"), Member.at("b.db"))).stores)
    2
    """

    stores: tuple[Member, ...]
    repeated: int = 0
    other_databases: tuple[str, ...] = ()


Sources = str | PathLike[str] | Iterable[str | PathLike[str]] | Members
"""Type of the argument that names the stores, in all functions of :mod:`memlab.fleet`."""


def members_of(sources: Sources) -> Members:
    """Return the members that `sources` match, or `sources` if they are members already."""
    if isinstance(sources, Members):
        return sources
    return expand_names(sources)


def expand_names(sources: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Members:
    """Return the stores that names match, each once.

    Parameters
    ----------
    sources : str, Path, or iterable of them
        A path, a pattern such as ``/srv/agents/**/memory.db``, a folder that is a store or contains
        some, a URL, a scheme and a path such as ``odek:FOLDER``, or ``@FILE`` with such a name on
        each line. Empty lines and those that begin with ``#`` are skipped.

    Returns
    -------
    Members
        The stores. A path that does not exist here is a member too, because it may exist on another
        machine. A pattern without a match and a folder without a store are members with a problem.

    Raises
    ------
    MemlabError
        If no name was given, or all members have a problem.

    Examples
    --------
    >>> import memlab
    >>> len(expand_names(memlab.store_path("two_years")).stores)
    1
    """
    members: dict[object, Member] = {}
    other_databases: dict[str, None] = {}
    count = 0
    for text in _names_in(sources):
        for member in _matches_of(text, other_databases):
            count += 1
            members.setdefault(_identity(member), _check_unicode(member))
    stores = tuple(members.values())
    if not count:
        raise MemlabError("no store was named; name some: paths, patterns, URLs, @FILE of names")
    if all(member.problem for member in stores):
        raise MemlabError("; ".join(member.problem for member in stores[:3]))
    return Members(
        stores=stores, repeated=count - len(stores), other_databases=tuple(other_databases)
    )


def _names_in(sources: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Iterator[str]:
    """Yield each name, and the names in each ``@FILE``."""
    names = [sources] if isinstance(sources, str | PathLike) else sources
    if not isinstance(names, Iterable):
        raise wrong_argument_error(sources, "texts", call="memlab.fleet", name="sources")
    for name in names:
        expect(name, str, PathLike, call="memlab.fleet", name="one of sources")
        text = os.fsdecode(fspath(name))
        if text.startswith("@"):
            yield from _lines_of(text[1:])
        else:
            yield text


def _lines_of(file: str) -> Iterator[str]:
    """Yield the names in a file, one on each line; skip empty lines and comments."""
    try:
        lines = read_whole(Path(file).expanduser()).decode().splitlines()
    except UnicodeDecodeError as error:
        message = f"{file} is not a file of names: it is not text ({error.reason})"
        raise MemlabError(message) from error
    for line in lines:
        name = line.strip()
        if name and not name.startswith("#"):
            yield name


def _matches_of(text: str, other_databases: dict[str, None]) -> Iterator[Member]:
    """Yield the members that a name matches.

    Databases in a folder that are not stores are added to `other_databases`, as keys.
    """
    path = Path(text).expanduser()
    if text.startswith("file:"):
        yield from _stores_at(path_named(text), other_databases)
        return
    if os.path.lexists(path) and "://" not in text:
        yield from _stores_at(path, other_databases)
        return
    if "://" in text or is_named_by_scheme(text):
        try:
            yield Member(name=open_source(text).name, location=text)
        except MemlabError as error:
            yield _not_a_store(without_passwords(text), str(error))
        return
    if not has_magic(text):
        yield from _stores_at(path, other_databases)
        return
    paths = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - absolute patterns too
    matches = [match for match in paths if not match.endswith(_NO_STORE_SUFFIXES)]
    for match in matches:
        yield from _stores_at(Path(match), other_databases)
    if not matches:
        yield _not_a_store(text, f"nothing matches {text}; check the pattern")


def _stores_at(path: Path, other_databases: dict[str, None]) -> Iterator[Member]:
    """Yield the store at a path, or the stores below a folder that is not a store itself."""
    name = os.path.abspath(path)  # noqa: PTH100 - `resolve` would replace a link by its target
    try:
        is_plain_folder = path.is_dir() and not is_store(path)
    except (OSError, ValueError):
        is_plain_folder = False
    if not is_plain_folder:
        yield Member.at(name)
        return
    search = find_below([Path(name)])
    for database in search.other_databases:
        other_databases[str(database)] = None
    for store in search.stores:
        yield Member.at(str(store.path))
    for folder in search.unreadable:
        yield _not_a_store(str(folder), f"{folder} cannot be entered; check its permissions")
    if not search.stores and not search.unreadable:
        yield _not_a_store(name, f"{name} is a folder without a store in it; name a store")


def _not_a_store(name: str, problem: str) -> Member:
    """Return a member with a problem."""
    return Member(name=name, location=name, problem=problem)


def _check_unicode(member: Member) -> Member:
    """Return the member. If its name is not UTF-8, return a member with a problem instead."""
    name = os.fsencode(member.name).decode(errors="backslashreplace")
    if name == member.name:
        return member
    return _not_a_store(name, f"{name} is a name that is not UTF-8; give the file another")


def _identity(member: Member) -> object:
    """Return a key that is equal for two names of one store, such as a link and its target."""
    with suppress(OSError, ValueError):
        stat = Path(member.location).stat()
        return stat.st_dev, stat.st_ino
    return member.name


def _files_beside(path: Path) -> list[Path]:
    """Return a store's archive, its settings, and the parts of the access logs in its settings."""
    archive = archive_path(path)
    settings_file = Path(os.path.realpath(path)).with_name(SETTINGS)
    try:
        logs = read_settings(folder=settings_file.parent, name=path.name, like=path).log
    except SettingsError:
        logs = ()
    parts = [part for log in logs for part in log_parts(log)]
    return [archive, settings_file, *parts]
