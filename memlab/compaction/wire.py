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
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

from memlab.arguments import expect
from memlab.clock import age_text, moment_of
from memlab.errors import PlanError
from memlab.items import Size
from memlab.settings import REPLACED
from memlab.store.archive.schema import check_depth
from memlab.store.records import batched
from memlab.text import counted, in_shell, percent, shortened
from memlab.versions import FileFormat, written_in

FORMAT: FileFormat = FileFormat(number=2, readable_from=2, oldest=2)
"""The format of every file that this module serializes."""
READABLE_FROM: Final = "readable_from"
"""Key of the oldest format whose readers understand a file; by default the file's own format."""
_DIGEST: Final = "digest"
"""Key of the digest of a plan."""

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
"""A string in JSON, or the rest of a text that ends within one."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Half of a pair of UTF-16 code units, escaped or not."""

_DEFAULT_ADVICE: Final = "give one that memlab wrote"
_COMMANDS: Final = {
    "memlab_plan": "memlab apply",
    "memlab_index_plan": "memlab apply",
    "memlab_fleet_plan": "memlab fleet apply",
}
"""The command that takes a file, by the marker of its kind."""

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
        # A policy of another package has an address, "module:Class", by which it can be imported.
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
"""Stored key of each field of :class:`Size`."""


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
    if isinstance(value, Mapping):
        return dict(value)
    return value


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
    for key, value in content.items():
        yield f"{separator}{json.dumps(key)}{colon}"
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
    values_of_columns = zip(*rows, strict=True)
    columns = dict(zip(stored_keys, values_of_columns, strict=True))
    ordered_keys = sorted(columns) if sort_keys else list(columns)
    # Each column of pieces has one piece of the text of each row.
    columns_of_pieces = list[Iterable[str]]()
    separator = "{"
    for key in ordered_keys:
        columns_of_pieces.append(repeat(f"{separator}{json.dumps(key)}{colon}", len(rows)))
        columns_of_pieces.append(_column_as_json(columns[key]))
        separator = comma
    columns_of_pieces.append(repeat("}", len(rows)))
    return map("".join, zip(*columns_of_pieces, strict=True))


def _column_as_json(values: Sequence[Any]) -> Iterator[str]:
    """Yield values as JSON texts, with a faster encoder for columns of text or of integers."""
    types = set(map(type, values))
    if types == {str}:
        return map(in_quotes, values)
    if types == {int}:
        return map(repr, values)
    return map(json.dumps, values)


def parsed(text: str | bytes, marker: str) -> dict[str, Any]:
    """Parse a JSON object of one kind and check its format.

    Raise PlanError if it is malformed, has too many values for its length, or is of another kind
    or an unsupported format.

    Parameters
    ----------
    text : str or bytes
        The JSON text.
    marker : str
        The key by which the kind is known, such as "memlab_plan".
    """
    kind = marker.removeprefix("memlab_")
    expect(text, str, bytes, call=f"{kind.title()}.from_json", name="text")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
        with fields_checked(kind):
            _check_value_count(decoded)
        content = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"this is not a {kind}: it is not JSON ({error}); {_DEFAULT_ADVICE}"
        ) from error
    if not isinstance(content, dict) or marker not in content:
        raise PlanError(f"this is not a {kind}: it has no {marker!r}; {_advice_for(content)}")
    with fields_checked(kind):
        _check_no_surrogates(decoded, content)
        check_depth(content, _MAX_DEPTH)
        written = written_in(content[marker], content.get(READABLE_FROM))
    FORMAT.check(f"this {kind.replace('_', ' ')}", written, PlanError)
    return content


def check_digest(content: Mapping[str, Any], digest: str, advice_end: str = "") -> None:
    """Raise PlanError if the plan in a file was edited after it was made.

    Parameters
    ----------
    content : mapping
        The parsed file, which has the digest of the plan as it was made.
    digest : str
        The digest of the plan that was read from it.
    advice_end : str
        Text after the advice to make a new plan.
    """
    if content.get(_DIGEST) != digest:
        raise PlanError(
            "the plan was edited after it was made: its digest does not fit; make a new plan"
            f"{advice_end}"
        )


def added_fields(content: Mapping[str, Any], marker: str, known: Collection[str]) -> dict[str, Any]:
    """Return the fields of a file of a newer format that are not among the `known` keys.

    Return an empty dictionary for a file of the current format. A newer format that is still
    readable may add fields to the object, but not to its rows. The digest covers these fields, so
    they are preserved.
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
    return _DEFAULT_ADVICE


@contextmanager
def fields_checked(kind: str) -> Iterator[None]:
    """Convert the error of a missing or wrong field of a file into a PlanError.

    `kind` names the kind of the file in the message, such as "plan".
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"this is not a whole {kind}: {error}; make a new one") from error


def field_of(content: Mapping[str, Any], name: str, *types: type) -> Any:
    """Return a field after checking its type. A truth value is not accepted as a number.

    Raise KeyError if the field is missing, TypeError if it has another type, and ValueError if it
    is an integer beyond 64 bits.
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
        # Separators inside strings, such as titles, do not separate values.
        count -= sum(_count_separators(match[0]) for match in _STRING.finditer(text))
    if count > limit:
        raise ValueError(f"it has {count:,} values in {len(text):,} bytes")


def _count_separators(text: str) -> int:
    """Return the number of characters in a text after which a JSON value may start."""
    return sum(text.count(separator) for separator in ",[{")


def _check_no_surrogates(text: str, content: Mapping[str, Any]) -> None:
    """Raise ValueError if a text has a lone surrogate, which is in no memory.

    The path of a store may have one, for a byte of a file name that is not UTF-8.
    """
    if not _SURROGATE.search(text):
        return
    # Most surrogates are in pairs. Encoding fails only if one of them is alone.
    try:
        json.dumps({**content, "store": ""}, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character, {error.object[error.start]!r}") from error


def time_of(content: Mapping[str, Any], name: str) -> datetime:
    """Return a field that holds a date and time, with the time zone that was written.

    Raise ValueError if it is not a time with a time zone.
    """
    text = field_of(content, name, str)
    moment_of(text)  # raises ValueError if there is no time zone
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
            values[field.name] = _value_of_type(content, key, field.type, keys)
    return values


def _value_of_type(
    content: Mapping[str, Any], name: str, declared_type: Any, keys: StoredKeys
) -> Any:
    """Return the value of a field after checking it against its declared type."""
    if declared_type is datetime:
        return time_of(content, name)
    if declared_type in (Size, Size | None):
        return _size_in(content, name, is_optional=declared_type is not Size)
    if get_origin(declared_type) is Mapping:
        return field_of(content, name, dict)
    if declared_type == tuple[str, ...]:
        texts = field_of(content, name, list)
        return tuple(field_of({name: text}, name, str) for text in texts)
    if get_origin(declared_type) is tuple:
        row_type = get_args(declared_type)[0]
        return tuples_of(content, name, row_type, keys)
    return field_of(content, name, *_types_in(declared_type))


def _size_in(content: Mapping[str, Any], name: str, *, is_optional: bool) -> Size | None:
    """Return a field that holds a size; None for JSON's null, if that is allowed."""
    types = (dict, NoneType) if is_optional else (dict,)
    size_fields = field_of(content, name, *types)
    if size_fields is None:
        return None
    (size,) = _iter_named_tuples([size_fields], Size, SIZE_KEYS)
    return size


def _types_in(declared_type: Any) -> tuple[type, ...]:
    """Return the types of a union; for another type, the type itself."""
    return get_args(declared_type) or (declared_type,)


def tuples_of(
    content: Mapping[str, Any], name: str, row_type: Callable[..., Row], keys: StoredKeys
) -> tuple[Row, ...]:
    """Return the rows of a list as named tuples, each field checked against its declared type."""
    rows = field_of(content, name, list)
    return tuple(_iter_named_tuples(rows, row_type, keys[row_type]))  # type: ignore[index]


def _iter_named_tuples(
    rows: list[Any], row_type: Callable[..., Row], keys: Mapping[str, str]
) -> Iterator[Row]:
    """Yield named tuples made from JSON objects.

    Each object is removed from its list at once, because a long plan would take twice the memory.
    """
    types = {
        keys[name]: _types_in(declared_type)
        for name, declared_type in row_type.__annotations__.items()
    }
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != types.keys():
            raise KeyError(f"an entry whose fields are not exactly {', '.join(types)}")
        rows[index] = None
        values = [field_of(row, key, *types_of_field) for key, types_of_field in types.items()]
        yield row_type(*values)


def policy_in_words(policy: Mapping[str, Any]) -> str:
    """Return the JSON values of a policy as one line of text.

    The text consists of options of ``compact`` if that command takes the policy.

    >>> recent = {"policy": "recent", "keep": 50, "by": "position", "now": None}
    >>> policy_in_words(recent), policy_in_words({**recent, "by": "created_at"})
    ('--keep-recent 50', '--keep-recent 50 --newest-by created_at')
    >>> policy_in_words({"policy": "activation", "max_items": None, "max_tokens": 9000})
    '--policy activation --max-tokens 9000'
    >>> policy_in_words({"policy": "pipeline", "policies": [recent]})
    'pipeline(policies=[--keep-recent 50])'
    >>> policy_in_words({"policy": "learned", "max_items": 50})
    'learned(max_items=50), which activation has replaced'
    >>> policy_in_words({"policy": "ids", "ids": ["e1", "e2"]})
    '--id e1 --id e2'
    """
    name = str(policy.get("policy"))
    if name in OPTIONS:
        return _as_options(name, policy)
    settings = [
        f"{key}={_setting_in_words(value)}"
        for key, value in policy.items()
        if key != "policy" and value is not None
    ]
    words = f"{name}({', '.join(settings)})"
    if name in REPLACED:
        return f"{words}, which {REPLACED[name]} has replaced"
    return words


def _as_options(name: str, policy: Mapping[str, Any]) -> str:
    """Return the settings of a policy that are not its defaults as options of ``compact``."""
    options = []
    if name not in _SELECTED_BY_OPTION:
        options.append(in_shell("--policy", name))
    for key, option in OPTIONS[name].items():
        value = policy.get(key, option.default)
        if value != option.default:
            options.append(option.write(option.name, value))
    return " ".join(options)


def _single_option(option: str, value: Any) -> str:
    """Return an option with a setting, or with a list of names separated by commas."""
    values = value if isinstance(value, list) else [value]
    if not values:
        return in_shell(option, "none")
    return in_shell(option, ",".join(map(_option_value, values)))


def _option_with_text(option: str, value: Any) -> str:
    """Return an option with a text that is not converted, such as a path."""
    return in_shell(option, str(value))


_MAX_IDS_SHOWN: Final = 20
"""Number of ids that are shown as options. The page of a plan lists its memories below."""


def _option_for_each(option: str, ids: Sequence[Any]) -> str:
    """Return an option for each of the first ids, and the number of the others."""
    options = [_option_with_text(option, memory_id) for memory_id in ids[:_MAX_IDS_SHOWN]]
    shown = " ".join(options)
    hidden = len(ids) - _MAX_IDS_SHOWN
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
    age = _TIMEDELTA.fullmatch(value) if isinstance(value, str) else None
    if age is None:
        return str(value)
    days, hours, minutes, seconds = (int(part or 0) for part in age.groups())
    return age_text(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))


_TIMEDELTA: Final = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)")
"""The text of a ``timedelta``: days, hours, minutes and seconds."""


class Option(NamedTuple):
    """An option of ``compact`` for a setting of a policy.

    Attributes
    ----------
    name : str
        The option, such as "--ttl".
    default : object
        The value of the setting if the option is not given, as in JSON.
    write : callable
        Takes the name of the option and a value, and returns both for the command line.
    """

    name: str
    default: Any = None
    write: Callable[[str, Any], str] = _single_option


_VALUE_SCOPE: Final = ["agent_id", "thread_id", "namespace", "tags"]
"""Default of the setting ``scope`` of the policy ``value``."""
OPTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "recent": {"keep": Option("--keep-recent"), "by": Option("--newest-by", "position")},
    "tokens": {"max_tokens": Option("--max-tokens")},
    "ttl": {"ttl": Option("--ttl"), "own_expiry": Option("--own-expiry", default=True)},
    "value": {
        "max_items": Option("--max-items"),
        "half_life": Option("--half-life", "7 days, 0:00:00"),
        "recency": Option("--recency", 0.25),
        "importance": Option("--importance", 0.15),
        "scope": Option("--scope", _VALUE_SCOPE),
    },
    "budget": {"max_items": Option("--max-items"), "scope": Option("--scope", ["agent_id"])},
    "floor": {"threshold": Option("--threshold", 0.1)},
    "activation": {"max_items": Option("--max-items"), "max_tokens": Option("--max-tokens")},
    "purge-superseded": {"older_than": Option("--older-than")},
    "ids": {"ids": Option("--id", write=_option_for_each)},
    "merge": {"into": Option("--into", write=_option_with_text)},
}
"""The option of each setting, by policy, for the policies that ``compact`` takes."""
_SELECTED_BY_OPTION: Final = frozenset({"recent", "ids", "merge"})
"""Policies that an option of their own selects, so that ``--policy`` is not needed."""


def minute_in_words(moment: datetime) -> str:
    """Return a time in UTC as text, to the minute.

    >>> minute_in_words(datetime(2026, 3, 1, 12, 30, 59, tzinfo=UTC))
    '2026-03-01 12:30 UTC'
    """
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def size_in_words(size: Size, memories: str = "memories") -> str:
    """Return a size as text, with `memories` as the plural noun for what is counted.

    >>> size_in_words(Size(memories=3, tokens=120))
    '3 memories, 120 tokens'
    """
    return f"{counted(size.memories, memories)}, {counted(size.tokens, 'tokens')}"


def size_change_in_words(before: Size, after: Size) -> str:
    """Return the change of a size as text.

    >>> size_change_in_words(Size(memories=3, tokens=120), Size(memories=1, tokens=40))
    '3 memories, 120 tokens -> 1 memory, 40 tokens'
    """
    return f"{size_in_words(before)} -> {size_in_words(after)}"


def share_in_words(part: Size, whole: Size) -> str:
    """Return a part of a size as text, with its share of the whole in percent.

    >>> share_in_words(Size(memories=1, tokens=40), Size(memories=4, tokens=120))
    '1 of 4 memories (25.0%), 40 of 120 tokens (33.3%)'
    """
    memories = part.memories / whole.memories if whole.memories else 0.0
    tokens = part.tokens / whole.tokens if whole.tokens else 0.0
    return (
        f"{part.memories:,} of {counted(whole.memories)} ({percent(memories)}), "
        f"{part.tokens:,} of {counted(whole.tokens, 'tokens')} ({percent(tokens)})"
    )


def _setting_in_words(value: Any) -> str:
    """Return a setting of a policy as text."""
    if isinstance(value, dict):
        return policy_in_words(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_setting_in_words, value))}]"
    return repr(value)


_MAX_NAMES_SHOWN: Final = 5
_MAX_NAME_CHARS: Final = 80


def some_of(names: Sequence[object]) -> str:
    """Return the first five names as text, and the number of the others.

    A name of more than 80 characters is cut.

    >>> some_of(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    shown_names = []
    for name in names[:_MAX_NAMES_SHOWN]:
        text = str(name)
        if len(text) > _MAX_NAME_CHARS:
            text = f"{text[: _MAX_NAME_CHARS - 3]}..."
        shown_names.append(text)
    shown = ", ".join(shown_names)
    hidden = len(names) - _MAX_NAMES_SHOWN
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


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
