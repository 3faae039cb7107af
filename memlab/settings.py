"""What a person has chosen for a store: ``memlab.toml`` beside it, read and written with checks.

``[store."NAME"]`` comes before the top. A folder may be anybody's: the file counts only where it is
the store owner's, the caller's or root's, and no other may write it.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from stat import S_ISLNK
from types import MappingProxyType, NoneType
from typing import Any, Final, NamedTuple

from memlab.arguments import confidence, share, until, whole_number
from memlab.clock import age_of
from memlab.errors import SettingsError
from memlab.files import FileMode, folder_held, limit_like, make_like, ordinary_file, whole_file
from memlab.items import MemoryKind
from memlab.text import refused, shortened
from memlab.versions import FileFormat, Written, written_in

FILE: Final = "memlab.toml"
STORES: Final = "store"
"""The table under which a store has one of its own."""

SIZED: Final = "sized"
"""The key of a policy under which ``size --save`` notes of its number when it was found, at how
many memories, and until how many it speaks."""
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""The format of a file of settings; one that says none, as people write them, is of the first."""
_VERSIONS: Final = "memlab settings: format {}, readable from format {}"
"""A comment that says so, for an older memlab refuses a key that it does not know."""
_SAYS_VERSIONS: Final = re.compile(
    rf"(?m)^# ?{_VERSIONS.format('([0-9]{1,9})', '([0-9]{1,9})')} *$"
)
AUTO: Final = "auto"
"""What stands for a number that is to be found anew each time."""
NUMBERS: Final[Mapping[str, str]] = {"recent": "keep", "tokens": "max_tokens"}
"""By policy, the setting whose number sizing finds."""

REPLACED: Final[Mapping[str, str]] = {"learned": "activation"}
"""Policies of earlier versions that settings and plans may still name, and the policy that replaced
each; it takes the same settings."""

Read = Callable[[str, Any], Any]
"""Returns what the value of a setting means, by the setting's name."""
_MOST: Final = 2**20
"""Bytes beyond which a file of settings is none."""


class Sized(NamedTuple):
    """When a number was found, at how many prunable memories written, until how many it speaks."""

    at: datetime
    memories: int
    until: int

    def to_setting(self) -> dict[str, Any]:
        """Return it as a file of settings keeps it, by key."""
        return {key: getattr(self, name) for name, key in SIZED_KEYS.items()}


SIZED_KEYS: Final = {"at": "at", "memories": "memories", "until": "until"}
"""The key in a file of settings of each field of a :class:`Sized`; they are never changed."""


def _text(_name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")  # noqa: TRY004 - told with its line
    return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    return [_text("", value)]


def _policy(_name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(  # noqa: TRY004 - told with its line
            'policy must name a policy and its settings, as in { name = "recent", keep = 200 }'
        )
    sized = {SIZED: _sized(value[SIZED], value["name"])} if SIZED in value else {}
    return MappingProxyType(value | sized)


def _sized(value: Any, policy: str) -> Sized:
    known = isinstance(value, dict) and set(value) == set(SIZED_KEYS.values())
    if policy not in NUMBERS or not known or not isinstance(at := value["at"], datetime):
        raise ValueError(
            "sized is what memlab size --save notes of a number: at, memories and until; take it "
            "out where the number is yours"
        )
    counts = (whole_number(name, value[name], least=1) for name in ("memories", "until"))
    return Sized(at if at.tzinfo else at.replace(tzinfo=UTC), *counts)


def _age(name: str, value: Any) -> timedelta | None:
    never = "ever" if name == "archive_for" else "never"
    if value == never:
        return None
    try:
        return age_of(_text(name, value))
    except ValueError as error:
        words = f'{name}={value!r:.80} is not an age like "365d", or "{never}"'
        raise ValueError(words) from error


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r:.80} is neither true nor false")  # noqa: TRY004
    return value


def _claude(_name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or (unknown := [key for key in value if key not in _CLAUDE]):
        what = "it" if not isinstance(value, dict) else shortened(unknown[0])
        raise ValueError(f"claude takes {', '.join(_CLAUDE)}, and {what} is none of these")
    return MappingProxyType({key: _CLAUDE[key](key, each) for key, each in value.items()})


def _kinds(_name: str, value: Any) -> Mapping[str, str]:
    known = [kind.value for kind in MemoryKind]
    if not isinstance(value, dict) or not all(each in known for each in value.values()):
        raise ValueError(
            f"kinds must say of each type which of {', '.join(known)} it is, as in "
            '{ project = "semantic" }'
        )
    return MappingProxyType(value)


def _paths(_name: str, value: Any) -> tuple[Path, ...]:
    return tuple(Path(each).expanduser() for each in _texts(value))


_count: Final = partial(whole_number, least=1)
_CLAUDE: Final[Mapping[str, Read]] = {"lines": _count, "characters": _count, "kinds": _kinds}


def _setting(read: Read, means: str, default: type = NoneType) -> Any:
    """Declare a setting: what a value of it means, and what is written behind it."""
    return field(default_factory=default, metadata={"read": read, "means": means})


@dataclass(frozen=True)
class Settings:
    """What is remembered of a store; None, or nothing, where a thing is not."""

    policy: Mapping[str, Any] | None = _setting(
        _policy, "what memlab compact and maintain delete by"
    )
    target: float | None = _setting(
        share, "share of later references that should find their memory"
    )
    confidence: float | None = _setting(confidence, "of the limit that meets the target")
    until: float | None = _setting(
        until, "how many times what is written now a number is to speak for"
    )
    token_budget: int | None = _setting(
        whole_number, "tokens that the memories loaded at start may take"
    )
    log: tuple[Path, ...] = _setting(_paths, "what the agent read; paths from this folder", tuple)
    protected_tags: frozenset[str] = _setting(
        lambda _, value: frozenset(_texts(value)),
        "memories with one of these are never deleted",
        frozenset,
    )
    archive_for: timedelta | None = _setting(_age, "how long the archive keeps what was deleted")
    keep_copies: bool = _setting(
        _truth, "memlab maintain copies what is new into the archive", bool
    )
    retire: bool = _setting(_truth, "what the policy does not keep is retired, not deleted", bool)
    delete_retired_after: timedelta | None = _setting(
        _age, "what was retired and not needed for so long is deleted"
    )
    harvest: str | None = _setting(
        _text, "where memlab maintain harvests reads from, into the first log"
    )
    vacuum_free: float | None = _setting(
        share, "share of the file that must be free before it is rewritten"
    )
    max_per_run: int | None = _setting(
        whole_number, "a run of maintain that takes out more stops before"
    )
    claude: Mapping[str, Any] = _setting(_claude, "how Claude Code's memory is read", dict)
    kind: str | None = _setting(
        _text, "the scheme of the kind of store that a folder is, such as claude or openclaw"
    )
    file: Path | None = None
    name: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    not_obeyed: str = ""

    @property
    def keep_recent(self) -> int | None:
        """The cap, where the policy is to keep the newest; else None."""
        policy = self.policy or {}
        keep = policy.get("keep") if policy.get("name") == "recent" else None
        return keep if isinstance(keep, int) else None

    @property
    def sized(self) -> Sized | None:
        """What ``size --save`` noted of the policy's number; None of one that a person typed."""
        return None if self.policy is None else self.policy.get(SIZED)

    @property
    def is_auto(self) -> bool:
        """Whether the policy's number is to be found anew each time."""
        policy = self.policy or {}
        return policy.get(NUMBERS.get(policy.get("name", ""), "")) == AUTO

    def error(self, setting: str, words: str) -> SettingsError:
        """Return the error for a setting that cannot be used."""
        return _error(self.file or Path(FILE), self.lines.get(setting), words)


KEYS: Final = {
    "policy": "policy",
    "target": "target",
    "confidence": "confidence",
    "until": "until",
    "token_budget": "token_budget",
    "log": "log",
    "protected_tags": "protected_tags",
    "archive_for": "archive_for",
    "keep_copies": "keep_copies",
    "retire": "retire",
    "delete_retired_after": "delete_retired_after",
    "harvest": "harvest",
    "vacuum_free": "vacuum_free",
    "max_per_run": "max_per_run",
    "claude": "claude",
    "kind": "kind",
}
"""The key in a file of settings of each field of :class:`Settings`; they are never changed."""
SETTINGS: Final = {KEYS[each.name]: each.metadata for each in fields(Settings) if each.metadata}
"""Every setting by its key, in the order in which a mistake lists them."""
_FIELDS: Final = {key: name for name, key in KEYS.items()}
NOTHING: Final = Settings()
"""What is remembered where nothing is."""


def read_settings(folder: Path, name: str, like: Path | None = None) -> Settings:
    """Return what the file of settings in a folder says of a store."""
    file = folder / FILE
    try:
        text = text_of(file, like)
    except _StrangersError as error:
        return Settings(file=file, name=name, not_obeyed=str(error))
    if text is None:
        return NOTHING
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, too
        raise SettingsError(f"{file} is not TOML: {error}; mend that line") from error
    is_newer = FORMAT.is_newer(_check_versions(text, file))
    stores: Any = content.pop(STORES, {})
    own = stores.get(name, {}) if isinstance(stores, dict) else None
    if not isinstance(own, dict):
        line = _line_of(text, STORES, name) or _line_of(text, STORES)
        raise _error(file, line, f'write the settings of one store under [{STORES}."{name}"]')
    found: dict[str, Any] = {}
    at: dict[str, int] = {}
    for path, values in (((), content), ((STORES, name), own)):
        for key, value in values.items():
            if is_newer and key not in SETTINGS:
                continue  # it is one that a newer format added
            line = _line_of(text, *path, key)
            found[key] = _read(key, value, file, line)
            at[key] = line or at.get(key, 1)
    values = {_FIELDS[key]: value for key, value in found.items()}
    return Settings(**values, file=file, name=name, lines=at)


def _check_versions(text: str, file: Path) -> Written:
    """Return the format of a file of settings; SettingsError of one that cannot be read."""
    says = _SAYS_VERSIONS.search(text)
    try:
        written = written_in(int(says[1]), int(says[2])) if says else written_in(1)
    except ValueError as error:
        raise _error(file, None, str(error)) from error
    FORMAT.check(str(file), written, SettingsError)
    return written


def write_settings(folder: Path, name: str, like: Path | None, chosen: Mapping[str, Any]) -> Path:
    """Write settings of a store into its file; what else stands there stays, comments too."""
    found = read_settings(folder, name, like)  # what is wrong is said before the file is touched
    if found.not_obeyed:
        raise SettingsError(f"{found.not_obeyed}; nothing was written: move it away first")
    file = folder / FILE
    if like is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    limit = limit_like(like)  # whoever may read the store; its owner alone writes
    limit = FileMode(limit.mode & 0o644 | 0o600, limit.group)
    with folder_held(folder):
        before = text_of(file, like)
        text = with_settings(before or "", name, {k: _stored(v, folder) for k, v in chosen.items()})
        model = file if before is not None else like
        with whole_file(file, limit=limit) as draft, draft.open("w", encoding="utf-8") as opened:
            opened.write(text)
            if model is not None and model.exists():
                its = model.stat()
                made = os.fstat(opened.fileno())
                # whoever may read the store needs them, whatever the umask says
                mode = limit.mode if before is None else made.st_mode & 0o777
                make_like(opened.fileno(), (its.st_uid, its.st_gid), mode)
    read_settings(folder, name, like)
    return file


def with_settings(text: str, name: str, chosen: Mapping[str, Any]) -> str:
    """Return the text of a file of settings with those of one store written into it."""
    import tomlkit  # reading, as a runtime does, needs the standard library alone

    def item(value: Any) -> Any:
        if not isinstance(value, dict):
            return tomlkit.item(value)
        table = tomlkit.inline_table()  # on one line
        table.update({key: item(each) for key, each in value.items()})
        return table

    document = tomlkit.parse(text)
    if not text.strip():
        versions = _VERSIONS.format(FORMAT.number, FORMAT.readable_from)
        document.add(tomlkit.comment(versions))
        document.add(tomlkit.comment("What memlab remembers of the stores in this folder."))
        which = f'What stands above the first [{STORES}."..."] holds for all of them, what is below'
        document.add(tomlkit.comment(f"{which} for one."))
    stores: Any = document.setdefault(STORES, tomlkit.table(is_super_table=True))
    if name not in stores:
        stores.add(name, tomlkit.table())
    own = stores[name]
    for key, value in chosen.items():
        if value is None:
            own.pop(key, None)
            continue
        had = own.item(key).trivia.comment if key in own else f"# {SETTINGS[key]['means']}"
        own[key] = written = item(value)
        if had:
            written.comment(had.removeprefix("#").strip())
    return tomlkit.dumps(document)


def _stored(value: Any, folder: Path) -> Any:
    """Return a value as TOML has it; a path below the folder from there on."""
    if not isinstance(value, Path):
        return value
    whole = value.expanduser().absolute()
    return str(whole.relative_to(folder) if whole.is_relative_to(folder) else whole)


def _read(key: str, value: Any, file: Path, line: int | None) -> Any:
    if key not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise _error(file, line, f"there is no setting {shortened(key)}; there are {known}")
    if any(abs(number) >= 2**63 for number in _whole_numbers_in(value)):
        raise _error(file, line, f"a number of {key} is too large: TOML's have 64 bits")
    try:
        found = SETTINGS[key]["read"](key, value)
    except (TypeError, ValueError) as error:
        raise _error(file, line, str(error)) from error
    return tuple(file.parent / each for each in found) if key == "log" else found


def _whole_numbers_in(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers_in(each)


class _StrangersError(SettingsError):
    """The file is somebody else's."""


def text_of(file: Path, like: Path | None) -> str | None:
    """Return the text of a file of settings; None where there is no such file."""
    try:
        found = file.lstat()
    except (OSError, ValueError):  # a folder that may not be entered: the store itself says so
        return None
    _check_whose(file, found, like)
    try:
        with ordinary_file(file, most=_MOST, follow_links=False) as opened:
            _check_whose(file, os.fstat(opened.fileno()), like)
            raw = opened.read(_MOST)
    except OSError as error:
        raise SettingsError(refused(f"{file} cannot be read", error, "what it is")) from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _error(file, line, "it is not UTF-8") from error


def _check_whose(file: Path, found: os.stat_result, like: Path | None) -> None:
    """Refuse a file that others than the store's owner, the caller and root have a hand in."""
    trusted = {os.geteuid(), 0}
    with suppress(OSError, ValueError):
        trusted |= {like.stat().st_uid} if like is not None else set()
    if found.st_uid not in trusted:
        raise _StrangersError(
            f"{file} belongs to {_user(found.st_uid)} and is not obeyed: settings count only from "
            "a file of the store's owner, of you or of root"
        )
    if S_ISLNK(found.st_mode):
        raise SettingsError(f"{file} is a link, which is not followed; put the file itself there")
    if found.st_mode & 0o022:
        raise SettingsError(
            f"{file} may be written by others than its owner, so that it may say what anybody "
            f"wants; read it, then run chmod go-w {shlex.quote(str(file))}"
        )


def _user(number: int) -> str:
    import pwd  # not on every system, and hardly ever needed

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _error(file: Path, line: int | None, words: str) -> SettingsError:
    where = str(file) if line is None else f"{file}, line {line}"
    return SettingsError(f"{where}: {words}")


def _line_of(text: str, *path: str) -> int | None:
    """Return the line on which a key of a TOML text stands: what it lies under is named before."""
    wanted = [rf"(?<![\w-]){re.escape(each)}(?![\w-])" for each in path]
    for number, line in enumerate(text.splitlines(), start=1):
        before_equals = _KEY.match(line)
        while wanted and before_equals and re.search(wanted[0], before_equals[0]):
            del wanted[0]
        if not wanted:
            return number
    return None


_KEY: Final = re.compile(r"""(?!\s*#)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^="'])*""")
