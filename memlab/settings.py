"""What a person has chosen for a store: ``memlab.toml`` beside it, read with every check.

The file lies in the folder that the store's archive lies in: beside a file or a folder, and for a
server where its archive is kept on this machine. What stands at its top holds for every store of
that folder; what stands under ``[store."NAME"]`` for that one, and comes first. `NAME` is the name
of the file or folder, or a server's URL without its password.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from stat import S_ISREG
from types import MappingProxyType
from typing import Any, Final

from memlab.arguments import confidence, share, whole_number
from memlab.errors import SettingsError
from memlab.items import MemoryKind, shortened
from memlab.moments import age_of

FILE: Final = "memlab.toml"
STORES: Final = "store"
"""The table under which a store has one of its own."""

_MOST: Final = 2**20
"""Bytes beyond which a file of settings is none."""


@dataclass(frozen=True)
class Settings:
    """What is remembered of a store; None, or nothing, where a thing is not.

    Parameters
    ----------
    policy : mapping or None
        ``name`` and the settings of a policy, as they were written;
        :func:`memlab.policies.remembered.policy_in` makes the policy.
    target : float or None
        Share of later references that should find their memory.
    confidence : float or None
        Of the limit that meets the target.
    token_budget : int or None
        Tokens that the memories loaded at start may take.
    log : tuple of Path
        Access logs.
    protected_tags : frozenset of str
        Memories with one of these are load-bearing.
    archive_for : timedelta or None
        How long the archive keeps what was deleted; None for ever.
    vacuum_free : float or None
        The share of a store's file that must be free before it is rewritten.
    claude : mapping
        For a folder of Claude Code's memory: ``lines`` and ``characters``, how much of the index is
        loaded at start, and ``kinds``, what each type of memory is.
    file : Path or None
        Where it was read; None where there is no such file.
    name : str
        What the store is called in it.
    lines : mapping of str to int
        The line of the file that each setting was read from.
    """

    policy: Mapping[str, Any] | None = None
    target: float | None = None
    confidence: float | None = None
    token_budget: int | None = None
    log: tuple[Path, ...] = ()
    protected_tags: frozenset[str] = frozenset()
    archive_for: timedelta | None = None
    vacuum_free: float | None = None
    claude: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    file: Path | None = None
    name: str = ""
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def keep_recent(self) -> int | None:
        """The cap, where the policy is to keep the newest; else None."""
        if self.policy is None or self.policy["name"] != "recent":
            return None
        keep = self.policy.get("keep")
        return keep if isinstance(keep, int) else None

    def error(self, setting: str, words: str) -> SettingsError:
        """Return the error for a setting that cannot be used."""
        return _error(self.file or Path(FILE), self.lines.get(setting), words)


NOTHING: Final = Settings()
"""What is remembered where nothing is."""


def read_settings(folder: Path, name: str) -> Settings:
    """Return what the file of settings in a folder says of a store.

    Parameters
    ----------
    folder : Path
        Where the store's archive lies, or would.
    name : str
        What the store is called in the file.

    Raises
    ------
    SettingsError
        When there is such a file and it cannot be used; the message names the line.
    """
    file = folder / FILE
    text = _text_of(file)
    if text is None:
        return NOTHING
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{file} is not TOML: {error}; mend that line") from error
    lines = _lines_of(text)
    stores: Any = content.pop(STORES, {})
    own = stores.get(name, {}) if isinstance(stores, dict) else None
    if not isinstance(own, dict):
        line = lines.get((STORES, name), lines.get((STORES,)))
        raise _error(file, line, f'write the settings of one store under [{STORES}."{name}"]')
    found: dict[str, Any] = {}
    at: dict[str, int] = {}
    for path, values in (((), content), ((STORES, name), own)):
        for key, value in values.items():
            line = lines.get((*path, key))
            found[key] = _read(key, value, file, line)
            at[key] = line or at.get(key, 1)
    return Settings(**found, file=file, name=name, lines=at)


def _read(key: str, value: Any, file: Path, line: int | None) -> Any:
    """Return what the value of a setting means."""
    if key not in _READ:
        known = ", ".join(_READ)
        raise _error(file, line, f"there is no setting {shortened(key)}; there are {known}")
    try:
        found = _READ[key](value)
    except (TypeError, ValueError) as error:
        raise _error(file, line, str(error)) from error
    return tuple(file.parent / each for each in found) if key == "log" else found


def _text_of(file: Path) -> str | None:
    """Return the text of a file of settings; None where there is no such file."""
    try:
        found = file.stat()
    except (OSError, ValueError):  # a folder that may not be entered: the store itself says so
        return None
    if not S_ISREG(found.st_mode):
        raise SettingsError(f"{file} is no ordinary file; memlab keeps its settings there")
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST + 1)
    except OSError as error:
        words = error.strerror or error
        raise SettingsError(f"{file} cannot be read ({words}); check its permissions") from error
    if len(raw) > _MOST:
        raise SettingsError(f"{file} is larger than settings are; move it away")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _error(file, line, "it is not UTF-8") from error


def _error(file: Path, line: int | None, words: str) -> SettingsError:
    where = str(file) if line is None else f"{file}, line {line}"
    return SettingsError(f"{where}: {words}")


def _lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Return the line on which each key of a TOML text stands, tables by their headers.

    A line inside a text or a list of several lines may be taken for a key: it then stands for
    nothing that is looked up.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = line.lstrip().startswith("[")
        path = _path_of(line) if header else _path_of(f"{_before_equals(line)}= 0")
        if path is None:
            continue
        table = path if header else table
        whole = path if header else (*table, *path)
        for length in range(1, len(whole) + 1):
            lines.setdefault(whole[:length], number)
    return lines


def _before_equals(line: str) -> str:
    """Return a line up to the first equals sign that does not stand in a quoted key."""
    found = _KEY.match(line)
    return found[0] if found else "="


def _path_of(line: str) -> tuple[str, ...] | None:
    """Return the keys that a line of TOML names, from the outside in; None for any other line."""
    try:
        value: Any = tomllib.loads(line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    path = []
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        path.append(key)
        value = value[0] if isinstance(value, list) and value else value
    return tuple(path) or None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")  # noqa: TRY004 - told with its line
    return value


def _texts(value: Any) -> list[str]:
    """Return a text, or a list of them, as a list."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    return [_text(value)]


def _policy(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(_NO_POLICY)  # noqa: TRY004 - told with its line
    return MappingProxyType(value)


def _log(value: Any) -> tuple[Path, ...]:
    return tuple(Path(each).expanduser() for each in _texts(value))


def _protected(value: Any) -> frozenset[str]:
    return frozenset(_texts(value))


def _archive_for(value: Any) -> timedelta | None:
    if value == "ever":
        return None
    try:
        return age_of(_text(value))
    except ValueError as error:
        words = f'archive_for={value!r:.80} is not an age like "365d", or "ever"'
        raise ValueError(words) from error


def _claude(value: Any) -> Mapping[str, Any]:
    """Return how Claude Code's memory is read."""
    if not isinstance(value, dict) or (unknown := [key for key in value if key not in _CLAUDE]):
        what = "it" if not isinstance(value, dict) else shortened(unknown[0])
        raise ValueError(f"claude takes {', '.join(_CLAUDE)}, and {what} is none of these")
    return MappingProxyType({key: _CLAUDE[key](each) for key, each in value.items()})


def _kinds(value: Any) -> Mapping[str, str]:
    known = [kind.value for kind in MemoryKind]
    if not isinstance(value, dict) or not all(each in known for each in value.values()):
        raise ValueError(
            f"kinds must say of each type which of {', '.join(known)} it is, as in "
            '{ project = "semantic" }'
        )
    return MappingProxyType(value)


_KEY: Final = re.compile(r"""\s*(?:[A-Za-z0-9_.\-\s]|"(?:[^"\\]|\\.)*"|'[^']*')+(?==)""")
_NO_POLICY: Final = (
    'policy must name a policy and its settings, as in { name = "recent", keep = 200 }'
)
_CLAUDE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "lines": lambda value: whole_number("lines", value, least=1),
    "characters": lambda value: whole_number("characters", value, least=1),
    "kinds": _kinds,
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "policy": _policy,
    "target": lambda value: share("target", value),
    "confidence": confidence,
    "token_budget": lambda value: whole_number("token_budget", value),
    "log": _log,
    "protected_tags": _protected,
    "archive_for": _archive_for,
    "vacuum_free": lambda value: share("vacuum_free", value),
    "claude": _claude,
}
"""What each setting means; what raises ValueError is none."""
