"""JSON serialization of plans, receipts and fleet plans, and phrases that their reports share.

The text is laid out to diff well, and every field is validated when it is read. A table gives the
stored key of each field of a record. A field may therefore be renamed; its key stays.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

from memlab.arguments import expect
from memlab.clock import age_text, moment_of
from memlab.errors import PlanError
from memlab.items import Size
from memlab.settings import REPLACED
from memlab.store.archive.schema import check_depth
from memlab.store.records import batched
from memlab.text import counted, in_shell, shortened
from memlab.versions import FileFormat, written_in

FORMAT: FileFormat = FileFormat(number=2, readable_from=2, oldest=2)
"""The format of every JSON form."""
READABLE_FROM: Final = "readable_from"
"""Key of the oldest format whose readers understand a file; by default the file's own format."""
_DIGEST: Final = "digest"

StoredKeys = Mapping[type, Mapping[str, str]]
"""Stored key of each field, by class of record, in the order of the file."""

_INTEGER_LIMIT: Final = 2**63
_MAX_DEPTH: Final = 32
"""Maximum nesting of lists and objects. A pipeline of policies needs five levels."""
_ALWAYS_ALLOWED_VALUES: Final = 2**20
"""Number of values that a file of any size may contain."""
_BYTES_PER_VALUE: Final = 12
"""Minimum length of text per value, in bytes, in a file with more values than are always allowed.

A value of a plan takes 17 bytes of text and up to 64 bytes of memory."""
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

_ADVICE: Final = "give one that memlab wrote"
_COMMANDS: Final = {
    "memlab_plan": "memlab apply",
    "memlab_index_plan": "memlab apply",
    "memlab_fleet_plan": "memlab fleet apply",
}

Row = TypeVar("Row", bound=tuple[Any, ...])


def as_data(value: Any) -> Any:
    """Return a policy or one of its settings as JSON values.

    A function becomes its qualified name, so the result contains no code. The setting of a policy
    is stored under the ``key`` in the metadata of its field, by default under the field's name.

    Parameters
    ----------
    value : object
        A policy, a setting or a list of these.

    Returns
    -------
    object
        Numbers, text, lists and dictionaries.

    Examples
    --------
    >>> as_data(timedelta(days=7))
    '7 days, 0:00:00'
    >>> as_data((1, None, len, {"x"}))
    [1, None, 'builtins.len', 'builtins.set']
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "address", type(value).__name__)
        settings = {
            field.metadata.get("key", field.name): as_data(getattr(value, field.name))
            for field in fields(value)
            if field.init
        }
        return {"policy": name, **settings}
    if isinstance(value, (tuple, list)):
        return [as_data(item) for item in value]
    if isinstance(value, timedelta):
        return str(value)
    is_named = callable(value) and hasattr(value, "__qualname__")
    definition = value if is_named else type(value)
    return f"{definition.__module__}.{definition.__qualname__}"


canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Encoder of JSON values as canonical text, from which digests are computed."""


SIZE_KEYS: Final = {"memories": "memories", "tokens": "tokens"}


def header(marker: str) -> dict[str, Any]:
    """Return the first fields of a file: its kind, its format and the oldest readable format."""
    return {marker: FORMAT.number, READABLE_FROM: FORMAT.readable_from}


def to_json_fields(record: Any, keys: StoredKeys) -> dict[str, Any]:
    """Return the fields of a record as JSON values by stored key; leave tuples of rows unchanged.

    Parameters
    ----------
    record : dataclass or named tuple
        The record to write.
    keys : StoredKeys
        The stored keys of its fields. A field without a key is not written.

    Returns
    -------
    dict
        The values by stored key.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Cap(NamedTuple):
    ...     number: int
    >>> to_json_fields(Cap(50), {Cap: {"number": "keep"}})
    {'keep': 50}
    """
    stored_keys = keys[type(record)]
    return {key: _json_value(getattr(record, name)) for name, key in stored_keys.items()}


def _json_value(value: Any) -> Any:
    """Return the value of a field as JSON values."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Size):
        return to_json_fields(value, {Size: SIZE_KEYS})
    return dict(value) if isinstance(value, Mapping) else value


def iter_json(content: Mapping[str, Any], keys: StoredKeys, *, in_lines: bool) -> Iterator[str]:
    """Yield a JSON object in pieces, some rows at a time.

    Parameters
    ----------
    content : mapping
        The fields of the object by key. A tuple holds rows, all of one class of named tuples.
    keys : StoredKeys
        The stored keys of the rows.
    in_lines : bool
        Whether to write one row on each line. Otherwise write the canonical text of a digest.
    """
    newline = "\n" if in_lines else ""
    colon = ": " if in_lines else ":"
    separator = "{" + newline
    for name, value in content.items():
        yield f"{separator}{json.dumps(name)}{colon}"
        separator = f",{newline}"
        if isinstance(value, tuple):
            yield from _iter_rows(value, keys, in_lines=in_lines)
        elif in_lines:
            yield json.dumps(value)
        else:
            yield canonical(value)
    yield f"{newline}}}{newline}"


def _iter_rows(rows: tuple[Any, ...], keys: StoredKeys, *, in_lines: bool) -> Iterator[str]:
    """Yield a JSON list of rows in pieces, some rows at a time."""
    if not rows:
        yield "[]"
        return
    indent = "\n " if in_lines else ""
    opening = "["
    for batch in batched(rows):
        encoded = _rows_as_json(batch, keys[type(batch[0])], sort_keys=not in_lines)
        yield opening + indent + f",{indent}".join(encoded)
        opening = ","
    yield "\n]" if in_lines else "]"


def _rows_as_json(
    rows: Sequence[Any], keys: Mapping[str, str], *, sort_keys: bool
) -> Iterator[str]:
    """Yield named tuples as JSON objects.

    Encode one column at a time, because calling an encoder for each row is slow.
    """
    comma = "," if sort_keys else ", "
    colon = ":" if sort_keys else ": "
    stored_keys = [keys[field] for field in rows[0]._fields]
    columns = dict(zip(stored_keys, zip(*rows, strict=True), strict=True))
    ordered_keys = sorted(columns) if sort_keys else list(columns)
    pieces = list[Iterable[str]]()
    opening = "{"
    for key in ordered_keys:
        pieces.append(repeat(f"{opening}{json.dumps(key)}{colon}", len(rows)))
        pieces.append(_column_as_json(columns[key]))
        opening = comma
    pieces.append(repeat("}", len(rows)))
    return map("".join, zip(*pieces, strict=True))


def _column_as_json(values: Sequence[Any]) -> Iterator[str]:
    """Yield values as JSON texts, with a faster encoder for columns of text or of integers."""
    types = set(map(type, values))
    if types == {str}:
        return map(in_quotes, values)
    if types == {int}:
        return map(repr, values)
    return map(json.dumps, values)


def parsed(text: str | bytes, marker: str) -> dict[str, Any]:
    """Parse a JSON object and check that it has `marker` and a known version.

    Raise PlanError if it is malformed, too large for its text, or of another kind or version.
    """
    what = marker.removeprefix("memlab_")
    expect(text, str, bytes, call=f"{what.title()}.from_json", name="text")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
        with fields_checked(what):
            _check_value_count(decoded)
        content = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"this is not a {what}: it is not JSON ({error}); {_ADVICE}") from error
    if not isinstance(content, dict) or marker not in content:
        raise PlanError(f"this is not a {what}: it has no {marker!r}; {_advice_for(content)}")
    with fields_checked(what):
        _check_no_surrogates(decoded, content)
        check_depth(content, _MAX_DEPTH)
        written = written_in(content[marker], content.get(READABLE_FROM))
    FORMAT.check(f"this {what.replace('_', ' ')}", written, PlanError)
    return content


def check_digest(content: Mapping[str, Any], digest: str, of_what: str = "") -> None:
    """Raise PlanError if a file was edited: the digest in it is not that of what was read."""
    if content.get(_DIGEST) != digest:
        raise PlanError(
            "the plan was edited after it was made: its digest does not fit; make a new plan"
            f"{of_what}"
        )


def added_fields(content: Mapping[str, Any], marker: str, known: Collection[str]) -> dict[str, Any]:
    """Return the fields of a file of a newer format that are not among the `known` keys.

    Return none for a file of the current format. A newer format that is still readable may add
    fields to the object, but not to its rows. The digest covers them, so they are preserved.
    """
    if not FORMAT.is_newer(written_in(content[marker], content.get(READABLE_FROM))):
        return {}
    known_keys = {marker, READABLE_FROM, _DIGEST, *known}
    return {key: value for key, value in content.items() if key not in known_keys}


def _advice_for(content: Any) -> str:
    """Return the advice for a file of another kind: the command that reads it, if there is one."""
    if isinstance(content, dict):
        for marker, command in _COMMANDS.items():
            if marker in content:
                return f"{command} carries it out"
    return _ADVICE


@contextmanager
def fields_checked(what: str) -> Iterator[None]:
    """Convert the error of a missing or wrong field into a PlanError."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"this is not a whole {what}: {error}; make a new one") from error


def field_of(content: Mapping[str, Any], name: str, *types: type) -> Any:
    """Return a field after checking its type; a truth value does not count as a number.

    Raise KeyError if it is missing, TypeError if it has another type, and ValueError if it is an
    integer beyond 64 bits.
    """
    value = content[name]
    if type(value) not in types:
        raise TypeError(f"{name} is {value!r:.80}")
    if type(value) is int and not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        raise ValueError(f"{name} is {shortened(str(value))}, beyond 64 bits")
    return value


def _check_value_count(text: str) -> None:
    """Raise ValueError if parsing would need many times the memory of the text.

    An example is a list of millions of empty lists.
    """
    limit = max(_ALWAYS_ALLOWED_VALUES, len(text) // _BYTES_PER_VALUE)
    count = _count_separators(text)
    if count > limit:
        # In a plan these characters are inside strings, mostly titles. Those do not count.
        count -= sum(_count_separators(string[0]) for string in _STRING.finditer(text))
    if count > limit:
        raise ValueError(f"it has {count:,} values in {len(text):,} bytes")


def _count_separators(text: str) -> int:
    """Return how many characters in a text may start a JSON value."""
    return sum(text.count(character) for character in ",[{")


def _check_no_surrogates(text: str, content: Mapping[str, Any]) -> None:
    """Raise ValueError if a text has a surrogate without its pair, which no memory has.

    The path of a store may have one, for a byte of a file name that is not UTF-8.
    """
    if _SURROGATE.search(text):
        # Most surrogates have their pair. Only encoding tells them apart.
        try:
            json.dumps({**content, "store": ""}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"half a character, {error.object[error.start]!r}") from error


def when(content: Mapping[str, Any], name: str) -> datetime:
    """Return a field that holds a date and time, with the time zone that was written.

    Raise ValueError if it is not a time with a time zone.
    """
    text = field_of(content, name, str)
    moment_of(text)
    return datetime.fromisoformat(text)


def fields_in(content: Mapping[str, Any], record: type, keys: StoredKeys) -> dict[str, Any]:
    """Return the values of the fields of a dataclass, each checked against its declared type.

    A field with a default may be missing.
    """
    stored_keys = keys[record]
    values = {}
    for field in fields(record):
        if field.name not in stored_keys:
            continue
        key = stored_keys[field.name]
        if key in content or field.default is MISSING:
            values[field.name] = _typed(content, key, field.type, keys)
    return values


def _typed(content: Mapping[str, Any], name: str, kind: Any, keys: StoredKeys) -> Any:
    """Return a field after checking it against a declared type."""
    if kind is datetime:
        return when(content, name)
    if kind is Size:
        return next(_tuples([field_of(content, name, dict)], Size, SIZE_KEYS))
    if get_origin(kind) is Mapping:
        return field_of(content, name, dict)
    if kind == tuple[str, ...]:
        texts = field_of(content, name, list)
        return tuple(field_of({name: text}, name, str) for text in texts)
    if get_origin(kind) is tuple:
        return tuples_of(content, name, get_args(kind)[0], keys)
    return field_of(content, name, *(get_args(kind) or (kind,)))


def tuples_of(
    content: Mapping[str, Any], name: str, row: Callable[..., Row], keys: StoredKeys
) -> tuple[Row, ...]:
    """Return the rows of a list as named tuples, each field checked against its declared type."""
    return tuple(_tuples(field_of(content, name, list), row, keys[row]))  # type: ignore[index]


def _tuples(parts: list[Any], row: Callable[..., Row], keys: Mapping[str, str]) -> Iterator[Row]:
    """Yield named tuples made from JSON objects.

    Each object is removed from its list at once, because a long plan would take twice the memory.
    """
    types = {keys[name]: get_args(kind) or (kind,) for name, kind in row.__annotations__.items()}
    for index, part in enumerate(parts):
        if not isinstance(part, dict) or part.keys() != types.keys():
            raise KeyError(f"an entry without just the fields {', '.join(types)}")
        parts[index] = None
        values = [field_of(part, key, *kinds) for key, kinds in types.items()]
        yield row(*values)


def in_words(policy: Mapping[str, Any]) -> str:
    """Return the JSON values of a policy as one line of text, as options if there are any.

    >>> recent = {"policy": "recent", "keep": 50, "by": "position", "now": None}
    >>> in_words(recent), in_words({**recent, "by": "created_at"})
    ('--keep-recent 50', '--keep-recent 50 --newest-by created_at')
    >>> in_words({"policy": "activation", "max_items": None, "max_tokens": 9000})
    '--policy activation --max-tokens 9000'
    >>> in_words({"policy": "pipeline", "policies": [recent]})
    'pipeline(policies=[--keep-recent 50])'
    >>> in_words({"policy": "learned", "max_items": 50})
    'learned(max_items=50), which activation has replaced'
    >>> in_words({"policy": "ids", "ids": ["e1", "e2"]})
    '--id e1 --id e2'
    """
    name = str(policy.get("policy"))
    if name in OPTIONS:
        return _as_options(name, policy)
    settings = (
        f"{name}={_word(value)}"
        for name, value in policy.items()
        if name != "policy" and value is not None
    )
    words = f"{name}({', '.join(settings)})"
    if name in REPLACED:
        return f"{words}, which {REPLACED[name]} has replaced"
    return words


def _as_options(name: str, policy: Mapping[str, Any]) -> str:
    """Return the settings of a policy that are not its defaults as options of ``compact``."""
    options = [] if name in _NOT_NAMED else [in_shell("--policy", name)]
    for key, option in OPTIONS[name].items():
        value = policy.get(key, option.default)
        if value != option.default:
            options.append(option.written(option.name, value))
    return " ".join(options)


def _single_option(option: str, value: Any) -> str:
    """Return an option with a setting, or with a list of names separated by commas."""
    values = value if isinstance(value, list) else [value]
    return in_shell(option, ",".join(map(_option_value, values)) or "none")


def _as_text(option: str, value: Any) -> str:
    """Return an option with a text that is no setting, such as a path."""
    return in_shell(option, str(value))


_MOST_IDS: Final = 20
"""Number of ids that are shown as options; a plan lists all memories below."""


def _option_for_each(option: str, ids: Sequence[Any]) -> str:
    """Return an option for each of the first ids, and the number of the others."""
    shown = " ".join(_as_text(option, memory_id) for memory_id in ids[:_MOST_IDS])
    hidden = len(ids) - _MOST_IDS
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


def _option_value(value: Any) -> str:
    """Return the value of a setting as an option takes it.

    >>> [_option_value(value) for value in (True, None, "30 days, 0:00:00", "1 day, 12:00:00")]
    ['yes', 'none', '30d', '36h']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    age = _AGE.fullmatch(value) if isinstance(value, str) else None
    if age is None:
        return str(value)
    days, hours, minutes, seconds = (int(part or 0) for part in age.groups())
    return age_text(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))


_AGE: Final = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)")
"""A ``timedelta`` as text."""


class Option(NamedTuple):
    """An option of ``compact`` for a setting of a policy.

    Attributes
    ----------
    name : str
        The option, such as "--ttl".
    default : object
        The value of the setting, as in JSON, without the option.
    written : callable
        Returns the option with a value for the command line.
    """

    name: str
    default: Any = None
    written: Callable[[str, Any], str] = _single_option


_SCOPE: Final = ["agent_id", "thread_id", "namespace", "tags"]
OPTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "recent": {"keep": Option("--keep-recent"), "by": Option("--newest-by", "position")},
    "tokens": {"max_tokens": Option("--max-tokens")},
    "ttl": {"ttl": Option("--ttl"), "own_expiry": Option("--own-expiry", default=True)},
    "value": {
        "max_items": Option("--max-items"),
        "half_life": Option("--half-life", "7 days, 0:00:00"),
        "recency": Option("--recency", 0.25),
        "importance": Option("--importance", 0.15),
        "scope": Option("--scope", _SCOPE),
    },
    "budget": {"max_items": Option("--max-items"), "scope": Option("--scope", ["agent_id"])},
    "floor": {"threshold": Option("--threshold", 0.1)},
    "activation": {"max_items": Option("--max-items"), "max_tokens": Option("--max-tokens")},
    "purge-superseded": {"older_than": Option("--older-than")},
    "ids": {"ids": Option("--id", written=_option_for_each)},
    "merge": {"into": Option("--into", written=_as_text)},
}
"""The option of each setting, by policy, for the policies that ``compact`` takes."""
_NOT_NAMED: Final = frozenset({"recent", "ids", "merge"})
"""Policies that an option of their own selects, so that ``--policy`` is not needed."""


def minute(moment: datetime) -> str:
    """Return a time in UTC as text, to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def sized(size: Size, memories: str = "memories") -> str:
    """Return a size as text, such as "3 memories, 120 tokens"."""
    return f"{counted(size.memories, memories)}, {counted(size.tokens, 'tokens')}"


def change(before: Size, after: Size) -> str:
    """Return the change of a size as text, "before -> after"."""
    return f"{sized(before)} -> {sized(after)}"


def share(part: Size, whole: Size) -> str:
    """Return a part of a size as text, with its share of the whole in percent."""
    memories = part.memories / whole.memories if whole.memories else 0.0
    tokens = part.tokens / whole.tokens if whole.tokens else 0.0
    return (
        f"{part.memories:,} of {counted(whole.memories)} ({memories:.1%}), "
        f"{part.tokens:,} of {counted(whole.tokens, 'tokens')} ({tokens:.1%})"
    )


def _word(value: Any) -> str:
    """Return a setting as text."""
    if isinstance(value, dict):
        return in_words(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return repr(value)


def some_of(names: Sequence[object]) -> str:
    """Return the first five names as text, and the number of the others.

    A name of more than 80 characters is cut.
    """
    texts = [str(name) for name in names[:5]]
    shown = ", ".join(text if len(text) <= 80 else f"{text[:77]}..." for text in texts)
    if len(names) > 5:
        return f"{shown} and {len(names) - 5:,} more"
    return shown


def entries_left_in_words(names: Sequence[object]) -> str:
    """Return a sentence about restored memories that already had an index entry; empty for none.

    >>> entries_left_in_words(["a.md"])
    'it has an entry of 1 of them already, which stays as it is: a.md'
    """
    if not names:
        return ""
    return (
        f"it has an entry of {len(names):,} of them already, which stays as it is: {some_of(names)}"
    )
