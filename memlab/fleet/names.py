"""Which stores are meant: paths, globs, folders, files of names and URLs, each store once."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from memlab.arguments import expect, refusal
from memlab.errors import MemlabError, SettingsError
from memlab.evidence.access_log import log_parts
from memlab.files import read_whole
from memlab.settings import FILE as SETTINGS
from memlab.settings import read_settings
from memlab.sources.opening import find_below, is_named_by_scheme, is_store, open_source
from memlab.store.archive.location import SUFFIX, archive_path
from memlab.store.database import SIDE_FILES, path_named
from memlab.text import without_passwords

_BESIDE: Final = (SUFFIX, *SIDE_FILES)
"""Ends of the names of files that lie beside stores."""


@dataclass(frozen=True)
class Member:
    """A store of a fleet, or a name that means none.

    Every table and message calls it `name`: an absolute path, or a URL without a password; `where`
    opens it. ``size`` is the bytes of its file, 0 for what is no file here. ``problem`` says why
    the name means no store; empty where it may mean one.
    """

    name: str
    where: str = field(repr=False)
    size: int = 0
    problem: str = ""

    @classmethod
    def at(cls, name: str) -> "Member":
        """Return the store that a path or a URL names, whether or not it is there."""
        try:
            return cls(name, name, Path(name).stat().st_size)
        except (OSError, ValueError):
            return cls(name, name)

    def state(self) -> str:
        """Return what its files are like: another text once they have changed.

        Those are the store, its archive, its settings and its access logs. Empty for what cannot be
        seen.
        """
        if self.problem or "://" in self.where:
            return ""
        path = Path(self.where)
        try:
            own = [path, Path(f"{path}-wal"), Path(f"{path}-journal")]
            files = open_source(path).files() if path.is_dir() else own
            seen = [*files, *_beside(path.resolve())]
        except (MemlabError, OSError, RuntimeError):
            return ""
        marks = []
        for file in seen:
            with suppress(OSError, ValueError):
                at = file.stat()
                marks.append(f"{file.name}:{at.st_ino}:{at.st_size}:{at.st_mtime_ns}")
        return ";".join(marks)


@dataclass(frozen=True)
class Members:
    """The stores of a fleet, each once, in the order in which they were named.

    `repeated` names meant a store that was named before; `others` are databases of something else
    that lie in the folders that were named.
    """

    stores: tuple[Member, ...]
    repeated: int = 0
    others: tuple[str, ...] = ()


Sources = str | PathLike[str] | Iterable[str | PathLike[str]] | Members
"""What names stores wherever :mod:`memlab.fleet` takes them."""


def members_of(sources: Sources) -> Members:
    """Return members as they are, and names expanded."""
    return sources if isinstance(sources, Members) else expand_names(sources)


def expand_names(sources: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Members:
    """Return the stores that some names mean; a MemlabError where none means one.

    Parameters
    ----------
    sources : str, Path, or iterable of them
        A path, a pattern such as ``/srv/agents/**/memory.db``, a folder that is a store or holds
        some, a URL, a scheme and a path such as ``odek:FOLDER``, or ``@FILE`` with such a name on
        each line; there, empty lines and those that begin with ``#`` mean nothing. A path that
        cannot be seen from here is kept, for the machine that is to read it may see it. A pattern
        that matches nothing, and a folder without a store, are members with a problem.
    """
    known: dict[object, Member] = {}
    others: dict[str, None] = {}
    count = 0
    for text in _texts(sources):
        for member in _meant(text, others):
            count += 1
            known.setdefault(_identity(member), _in_unicode(member))
    stores = tuple(known.values())
    if not count:
        raise MemlabError("no store was named; name some: paths, patterns, URLs, @FILE of names")
    if all(member.problem for member in stores):
        raise MemlabError("; ".join(member.problem for member in stores[:3]))
    return Members(stores, count - len(stores), tuple(others))


def _texts(sources: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Iterator[str]:
    given = [sources] if isinstance(sources, str | PathLike) else sources
    if not isinstance(given, Iterable):
        raise refusal(sources, "texts", call="memlab.fleet", name="sources")
    for each in given:
        expect(each, str, PathLike, call="memlab.fleet", name="one of sources")
        text = os.fsdecode(fspath(each))
        if not text.startswith("@"):
            yield text
            continue
        try:
            lines = read_whole(Path(text[1:]).expanduser()).decode().splitlines()
        except UnicodeDecodeError as error:
            words = f"{text[1:]} is no file of names: it is not text ({error.reason})"
            raise MemlabError(words) from error
        yield from (line for line in map(str.strip, lines) if line and not line.startswith("#"))


def _meant(text: str, others: dict[str, None]) -> Iterator[Member]:
    path = Path(text).expanduser()
    if text.startswith("file:"):
        yield from _at(path_named(text), others)
    elif "://" in text or (is_named_by_scheme(text) and not os.path.lexists(path)):
        try:
            yield Member(open_source(text).name, text)
        except MemlabError as error:
            yield _not_there(without_passwords(text), str(error))
    elif has_magic(text) and not os.path.lexists(path):
        found = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - absolute patterns too
        matches = [name for name in found if not name.endswith(_BESIDE)]
        for match in matches:
            yield from _at(Path(match), others)
        if not matches:
            yield _not_there(text, f"nothing matches {text}; check the pattern")
    else:
        yield from _at(path, others)


def _at(path: Path, others: dict[str, None]) -> Iterator[Member]:
    name = os.path.abspath(path)  # noqa: PTH100 - a link keeps the name that a person gave it
    try:
        below = path.is_dir() and not is_store(path)
    except (OSError, ValueError):
        below = False
    if not below:
        yield Member.at(name)
        return
    found = find_below([Path(name)])
    others.update(dict.fromkeys(map(str, found.others)))
    for store in found.stores:
        yield Member.at(str(store.path))
    for shut in found.shut:
        yield _not_there(str(shut), f"{shut} cannot be entered; check its permissions")
    if not found.stores and not found.shut:
        yield _not_there(name, f"{name} is a folder without a store in it; name a store")


def _not_there(name: str, problem: str) -> Member:
    return Member(name, name, problem=problem)


def _in_unicode(member: Member) -> Member:
    """Return a member whose name a table can hold, and what is not UTF-8 as none."""
    name = os.fsencode(member.name).decode(errors="backslashreplace")
    if name == member.name:
        return member
    return _not_there(name, f"{name} is a name that is not UTF-8; give the file another")


def _identity(member: Member) -> object:
    """Return what two names of one store have in common, links and passwords aside."""
    with suppress(OSError, ValueError):
        found = Path(member.where).stat()
        return found.st_dev, found.st_ino
    return member.name


def _beside(path: Path) -> list[Path]:
    """Return a store's archive, its settings, and the parts of the logs that they remember."""
    archive = archive_path(path)
    try:
        logs = read_settings(archive.parent, path.name, path).log
    except SettingsError:
        logs = ()
    parts = [part for log in logs for part in log_parts(log)]
    return [archive, archive.with_name(SETTINGS), *parts]
