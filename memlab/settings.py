"""Read and check the settings of stores in ``memlab.toml``.

Settings under ``[store."NAME"]`` take precedence over those at the top. The file is used only if
the owner of the store, the caller or root owns it and nobody else may write to it.
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
from memlab.files import ordinary_file
from memlab.items import MemoryKind
from memlab.text import failure_message, shortened
from memlab.versions import FileFormat, Written, written_in

FILE: Final = "memlab.toml"
STORES: Final = "store"
"""Key of the table that has one table per store."""

SIZED: Final = "sized"
"""Key in a policy for the :class:`Sized` of its number, which ``size --save`` writes."""
FORMAT: FileFormat = FileFormat(number=1, readable_from=1, oldest=1)
"""Format of a settings file; a file without versions has format 1."""
VERSIONS: Final = "memlab settings: format {}, readable from format {}"
"""Comment with the versions. It is a comment because older versions reject unknown keys."""
_VERSIONS_COMMENT: Final = re.compile(
    rf"(?m)^# ?{VERSIONS.format('([0-9]{1,9})', '([0-9]{1,9})')} *$"
)
AUTO: Final = "auto"
"""Value of a policy's number that is to be sized on each use."""
NUMBERS: Final[Mapping[str, str]] = {"recent": "keep", "tokens": "max_tokens"}
"""Name of the number that is sized, by policy."""

REPLACED: Final[Mapping[str, str]] = {"learned": "activation"}
"""The policy that replaced each policy of earlier versions.

Settings and plans may still have the former name. The new policy has the same settings.
"""

Parser = Callable[[str, Any], Any]
"""Function that takes the name and the TOML value of a setting, and returns the parsed value."""
_MAX_BYTES: Final = 2**20
"""Maximum size of a settings file in bytes."""


class Sized(NamedTuple):
    """Record of the sizing of a policy's number.

    Attributes
    ----------
    at : datetime
        The time of the sizing.
    memories : int
        Number of prunable memories that had been written by then.
    until : int
        Number of written prunable memories up to which the sized number is valid.
    """

    at: datetime
    memories: int
    until: int

    def to_setting(self) -> dict[str, Any]:
        """Return the fields by their keys in a settings file."""
        return {key: getattr(self, name) for name, key in SIZED_KEYS.items()}


SIZED_KEYS: Final = {"at": "at", "memories": "memories", "until": "until"}
"""Key in a settings file of each field of :class:`Sized`. The keys never change."""


# These functions raise ValueError for a wrong value. The reader of the file adds path and line.


def _parse_text(_name: str, value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")  # noqa: TRY004 - see above
    return value


def _list_of_texts(value: Any) -> list[str]:
    """Return a list of texts. A single text becomes a list of one."""
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    return [_parse_text("", value)]


def _parse_policy(_name: str, value: Any) -> Mapping[str, Any]:
    """Return a policy as a mapping of its name and settings."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(  # noqa: TRY004 - see above
            'policy must name a policy and its settings, as in { name = "recent", keep = 200 }'
        )
    policy = dict(value)
    if SIZED in policy:
        policy[SIZED] = _sized_of(policy[SIZED], policy["name"])
    return MappingProxyType(policy)


def _sized_of(value: Any, policy: str) -> Sized:
    """Return the record of the sizing of a policy's number."""
    has_keys = isinstance(value, dict) and set(value) == set(SIZED_KEYS.values())
    at = value["at"] if has_keys else None
    if policy not in NUMBERS or not isinstance(at, datetime):
        raise ValueError(
            "sized is what memlab size --save records about a number: at, memories and until; "
            "remove it if the number is your own"
        )
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return Sized(
        at=at,
        memories=whole_number("memories", value["memories"], least=1),
        until=whole_number("until", value["until"], least=1),
    )


def _parse_age(name: str, value: Any) -> timedelta | None:
    """Return an age; None for no limit."""
    word_for_no_limit = "ever" if name == "archive_for" else "never"
    if value == word_for_no_limit:
        return None
    try:
        return age_of(_parse_text(name, value))
    except ValueError as error:
        raise ValueError(
            f'{name}={value!r:.80} is not an age like "365d", or "{word_for_no_limit}"'
        ) from error


def _parse_truth(name: str, value: Any) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r:.80} is neither true nor false")  # noqa: TRY004
    return value


def _parse_claude(_name: str, value: Any) -> Mapping[str, Any]:
    """Return the settings of Claude Code's memory."""
    keys = ", ".join(_CLAUDE_PARSERS)
    if not isinstance(value, dict):
        raise ValueError(f"claude={value!r:.80} is not a table of {keys}")  # noqa: TRY004 - see above
    unknown_keys = [key for key in value if key not in _CLAUDE_PARSERS]
    if unknown_keys:
        raise ValueError(f"claude takes {keys}, and {shortened(unknown_keys[0])} is none of these")
    settings = {}
    for key, setting in value.items():
        parse = _CLAUDE_PARSERS[key]
        settings[key] = parse(key, setting)
    return MappingProxyType(settings)


def _parse_tags(_name: str, value: Any) -> frozenset[str]:
    """Return a set of tags."""
    return frozenset(_list_of_texts(value))


def _parse_kinds(_name: str, value: Any) -> Mapping[str, str]:
    """Return the kind of memory by type of Claude Code's memories."""
    kinds = [kind.value for kind in MemoryKind]
    if not isinstance(value, dict) or not all(kind in kinds for kind in value.values()):
        raise ValueError(
            f"kinds must say of each type which of {', '.join(kinds)} it is, as in "
            '{ project = "semantic" }'
        )
    return MappingProxyType(value)


def _parse_folder(name: str, value: Any) -> Path:
    """Return a path, with the home folder for ``~``."""
    return Path(_parse_text(name, value)).expanduser()


def _parse_paths(_name: str, value: Any) -> tuple[Path, ...]:
    """Return paths, with the home folder for ``~``."""
    return tuple(Path(text).expanduser() for text in _list_of_texts(value))


_parse_count: Final = partial(whole_number, least=1)
"""Parser of a whole number of 1 or more."""
_CLAUDE_PARSERS: Final[Mapping[str, Parser]] = {
    "lines": _parse_count,
    "characters": _parse_count,
    "kinds": _parse_kinds,
}
"""Parser of each setting of Claude Code's memory."""


class SettingInfo(NamedTuple):
    """The function that parses a setting, and the comment that is written after it in a file."""

    parse: Parser
    comment: str


def _setting(parse: Parser, comment: str, default: type = NoneType) -> Any:
    """Declare a field of :class:`Settings` that a file can set.

    Parameters
    ----------
    parse : callable
        The function that parses its value.
    comment : str
        The comment that is written after the setting in a file.
    default : type
        The type whose empty value is the default.
    """
    return field(default_factory=default, metadata={_INFO: SettingInfo(parse, comment)})


_INFO: Final = "info"
"""Key of the :class:`SettingInfo` in the metadata of a field."""


@dataclass(frozen=True)
class Settings:
    """Settings of a store. A setting that is not set is None or empty.

    The comment of each setting says what it means.

    Attributes
    ----------
    file : Path or None
        The settings file; None if there is none.
    name : str
        The name of the store in the file.
    lines : mapping of str to int
        The line of each setting in the file, by key.
    ignored_reason : str
        Why the settings of the file are not used; empty if they are.
    """

    policy: Mapping[str, Any] | None = _setting(
        _parse_policy, "the policy of memlab compact and memlab maintain"
    )
    target: float | None = _setting(
        share, "share of later references that should find their memory"
    )
    confidence: float | None = _setting(confidence, "confidence of the limit that meets the target")
    until: float | None = _setting(
        until, "horizon: a number is valid until the store is so many times as large"
    )
    token_budget: int | None = _setting(
        whole_number, "tokens that the memories loaded at start may take"
    )
    context_window: int | None = _setting(
        _parse_count, "tokens of the model's context window, 200000 where nothing is set"
    )
    log: tuple[Path, ...] = _setting(
        _parse_paths, "access logs of the agent's reads; paths from this folder", tuple
    )
    protected_tags: frozenset[str] = _setting(
        _parse_tags,
        "memories with one of these are never deleted",
        frozenset,
    )
    archive_for: timedelta | None = _setting(
        _parse_age, "how long the archive keeps deleted memories"
    )
    keep_copies: bool = _setting(
        _parse_truth, "memlab maintain copies new and changed memories into the archive", bool
    )
    retire: bool = _setting(
        _parse_truth, "what the policy does not keep is retired, not deleted", bool
    )
    delete_retired_after: timedelta | None = _setting(
        _parse_age, "a memory that was retired and not needed for so long is deleted"
    )
    harvest: str | None = _setting(
        _parse_text, "where memlab maintain harvests reads from, into the first log"
    )
    vacuum_free: float | None = _setting(
        share, "share of the file that must be free before it is rewritten"
    )
    max_per_run: int | None = _setting(
        whole_number, "a run of maintain that would delete or retire more does neither"
    )
    claude: Mapping[str, Any] = _setting(_parse_claude, "how Claude Code's memory is read", dict)
    archive_folder: Path | None = _setting(
        _parse_folder, "folder of the archive, which is beside the store by default"
    )
    kind: str | None = _setting(
        _parse_text, "the scheme of the kind of store that a folder is, such as claude or openclaw"
    )
    file: Path | None = None
    name: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    ignored_reason: str = ""

    @property
    def keep_recent(self) -> int | None:
        """Cap of the policy ``recent``; None for another policy or a cap that is not a number."""
        policy = self.policy or {}
        if policy.get("name") != "recent":
            return None
        keep = policy.get("keep")
        return keep if isinstance(keep, int) else None

    @property
    def sized(self) -> Sized | None:
        """Record of the sizing of the policy's number; None for a number that a person set."""
        if self.policy is None:
            return None
        return self.policy.get(SIZED)

    @property
    def is_auto(self) -> bool:
        """Whether the policy's number is to be sized on each use."""
        policy = self.policy or {}
        number = NUMBERS.get(policy.get("name", ""), "")
        return policy.get(number) == AUTO

    def error(self, setting: str, message: str) -> SettingsError:
        """Return the error with a message about a setting, and with its file and line."""
        return _error(self.file or Path(FILE), self.lines.get(setting), message)


KEYS: Final = {
    "policy": "policy",
    "target": "target",
    "confidence": "confidence",
    "until": "until",
    "token_budget": "token_budget",
    "context_window": "context_window",
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
    "archive_folder": "archive_folder",
}
"""Key in a settings file of each field of :class:`Settings`. The keys never change."""
SETTINGS: Final[Mapping[str, SettingInfo]] = {
    KEYS[setting.name]: setting.metadata[_INFO] for setting in fields(Settings) if setting.metadata
}
"""The parser and the comment of every setting by its key, in the order of messages."""
EXAMPLES: Final = {
    "policy": '{ name = "recent", keep = 200 }',
    "target": "0.9",
    "confidence": "0.9",
    "until": "1.2",
    "token_budget": "20000",
    "context_window": "200000",
    "log": '["reads.jsonl"]',
    "protected_tags": '["pinned"]',
    "archive_for": '"365d"',
    "keep_copies": "true",
    "retire": "true",
    "delete_retired_after": '"365d"',
    "harvest": '"/path/of/what/the/agent/writes"',
    "vacuum_free": "0.5",
    "max_per_run": "50",
    "claude": "{ lines = 200, characters = 25000 }",
    "kind": '"claude"',
    "archive_folder": '"/path/of/a/folder"',
}
"""An example of each setting by its key, as TOML."""
_FIELDS: Final = {key: name for name, key in KEYS.items()}
"""The field of :class:`Settings` of each key."""
NO_SETTINGS: Final = Settings()
"""Settings of a store without a file."""


def read_settings(folder: Path, name: str, like: Path | None = None) -> Settings:
    """Return the settings of a store from the file in a folder.

    Parameters
    ----------
    folder : Path
        The folder of the file.
    name : str
        The name of the store in the file.
    like : Path, optional
        The file or folder of the store; its owner may own the settings file.

    Raises
    ------
    SettingsError
        If the file is not valid, or others may write to it.
    """
    file = folder / FILE
    try:
        text = text_of(file, like)
    except _UntrustedOwnerError as error:
        return Settings(file=file, name=name, ignored_reason=str(error))
    if text is None:
        return NO_SETTINGS
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number with too many digits is a ValueError
        raise SettingsError(f"{file} is not TOML: {error}; mend that line") from error
    is_newer_format = FORMAT.is_newer(_check_versions(text, file))
    stores: Any = content.pop(STORES, {})
    table_of_store = stores.get(name, {}) if isinstance(stores, dict) else None
    if not isinstance(table_of_store, dict):
        line = _line_of(text, STORES, name) or _line_of(text, STORES)
        raise _error(file, line, f'write the settings of one store under [{STORES}."{name}"]')
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    # The store's own settings come last, so that they take precedence.
    tables_by_path = {(): content, (STORES, name): table_of_store}
    for path, table in tables_by_path.items():
        for key, value in table.items():
            if is_newer_format and key not in SETTINGS:
                continue  # the newer format added it
            line = _line_of(text, *path, key)
            values[_FIELDS[key]] = _parsed(key, value, file, line)
            # Without a line of its own, a key keeps the line that it has in an earlier table.
            lines[key] = line or lines.get(key, 1)
    return Settings(**values, file=file, name=name, lines=lines)


def _check_versions(text: str, file: Path) -> Written:
    """Return the versions of a settings file; raise SettingsError if its format is unsupported."""
    comment = _VERSIONS_COMMENT.search(text)
    try:
        if comment is None:
            written = written_in(1)
        else:
            written = written_in(by=int(comment[1]), readable_from=int(comment[2]))
    except ValueError as error:
        raise _error(file, None, str(error)) from error
    FORMAT.check(str(file), written, SettingsError)
    return written


def _parsed(key: str, value: Any, file: Path, line: int | None) -> Any:
    """Return the parsed value of a setting; raise SettingsError with the line if it is invalid.

    Relative paths start from the folder of the file.
    """
    if key not in SETTINGS:
        setting_names = ", ".join(SETTINGS)
        raise _error(file, line, f"there is no setting {shortened(key)}; there are {setting_names}")
    if any(abs(number) >= 2**63 for number in _whole_numbers_in(value)):
        raise _error(file, line, f"a number of {key} is too large: numbers in TOML have 64 bits")
    try:
        parsed = SETTINGS[key].parse(key, value)
    except (TypeError, ValueError) as error:
        raise _error(file, line, str(error)) from error
    if key == "log":
        return tuple(file.parent / path for path in parsed)
    if key == "archive_folder":
        return file.parent / parsed
    return parsed


def _whole_numbers_in(value: Any) -> Iterator[int]:
    """Yield the integers in a TOML value, nested ones included."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _whole_numbers_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _whole_numbers_in(item)


class _UntrustedOwnerError(SettingsError):
    """The settings file belongs to an untrusted user."""


def text_of(file: Path, like: Path | None) -> str | None:
    """Return the text of a settings file; None if there is no such file.

    Raise SettingsError if others may write to it. `like` is the file or folder of the store.
    """
    try:
        status = file.lstat()
    except (OSError, ValueError):  # if the folder is not accessible, opening the store reports it
        return None
    _check_owner(file, status, like)
    try:
        with ordinary_file(file, max_bytes=_MAX_BYTES, follow_links=False) as opened:
            # Somebody may have replaced the file since.
            _check_owner(file, os.fstat(opened.fileno()), like)
            raw = opened.read(_MAX_BYTES)
    except OSError as error:
        raise SettingsError(
            failure_message(f"{file} cannot be read", error, "what it is")
        ) from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _error(file, line, "it is not UTF-8") from error


def _check_owner(file: Path, status: os.stat_result, like: Path | None) -> None:
    """Raise SettingsError unless only the store owner, the caller or root may write a file."""
    trusted = {os.geteuid(), 0}
    if like is not None:
        with suppress(OSError, ValueError):
            trusted.add(like.stat().st_uid)
    if status.st_uid not in trusted:
        owner = _user_name(status.st_uid)
        raise _UntrustedOwnerError(
            f"{file} belongs to {owner} and is ignored: a settings file must belong to the "
            "store's owner, to you or to root"
        )
    if S_ISLNK(status.st_mode):
        raise SettingsError(f"{file} is a link, which is not followed; put the file itself there")
    if status.st_mode & 0o022:
        raise SettingsError(
            f"{file} may be written by others than its owner, so its settings cannot be trusted; "
            f"check it, then run chmod go-w {shlex.quote(str(file))}"
        )


def _user_name(number: int) -> str:
    """Return the name of the user with an id."""
    import pwd  # not available on every system, and rarely needed

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _error(file: Path, line: int | None, message: str) -> SettingsError:
    """Return the error with a message about a line of a settings file."""
    place = str(file) if line is None else f"{file}, line {line}"
    return SettingsError(f"{place}: {message}")


def _line_of(text: str, *path: str) -> int | None:
    """Return the number of the line with a key of a TOML text; None if it is not found.

    `path` has the keys of the tables around it, outermost first, and the key itself.
    """
    patterns = [rf"(?<![\w-]){re.escape(key)}(?![\w-])" for key in path]
    for number, line in enumerate(text.splitlines(), start=1):
        match = _BEFORE_EQUALS.match(line)
        # One line may have several keys of the path, as the header of a table has.
        while patterns and match and re.search(patterns[0], match[0]):
            del patterns[0]
        if not patterns:
            return number
    return None


_BEFORE_EQUALS: Final = re.compile(r"""(?!\s*#)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^="'])*""")
"""The part of a line before an equals sign outside quotes; no match for a comment."""
