"""JSON forms of what this package hands to people: written to diff well, read with every check.

Each record has a table of the keys under which a file keeps its fields, so that no stored name is a
Python name: a field may be renamed, its key stays.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any, Final, TypeVar, get_args, get_origin

from memlab.arguments import expect
from memlab.clock import moment_of
from memlab.errors import PlanError
from memlab.items import Size
from memlab.settings import REPLACED
from memlab.store.archive.entries import check_depth
from memlab.store.records import batched
from memlab.text import counted, shortened
from memlab.versions import FileFormat, written_in

FORMAT: FileFormat = FileFormat(number=2, readable_from=2, oldest=2)
"""The format of every JSON form."""
READABLE_FROM: Final = "readable_from"
"""The key of the oldest format whose readers understand a file; its own where it says none."""
_DIGEST: Final = "digest"

StoredKeys = Mapping[type, Mapping[str, str]]
"""For each class of records, the key in a file of each of its fields, in the order of the file."""

_BEYOND: Final = 2**63
_DEEPEST: Final = 32
"""Lists and objects, one in the other. A pipeline of policies takes five."""
_PARTS: Final = 2**20
_EACH: Final = 12
"""Bytes of text for each value beyond :data:`_PARTS`: a plan's take 17, and up to 64 in memory."""
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

_GIVE: Final = "give one that memlab wrote"
_CARRIED_OUT: Final = {"memlab_plan": "memlab apply", "memlab_fleet_plan": "memlab fleet apply"}

Row = TypeVar("Row", bound=tuple[Any, ...])


def as_data(value: Any) -> Any:
    """Return a setting as JSON values: what it is, never code that could run.

    A setting of a policy is kept under the ``key`` in the metadata of its field, else under the
    name of the field.

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
        return [as_data(each) for each in value]
    if isinstance(value, timedelta):
        return str(value)
    named = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Returns JSON values as the one text that a digest is made of."""


SIZE_KEYS: Final = {"memories": "memories", "tokens": "tokens"}


def header(marker: str) -> dict[str, Any]:
    """Return how a file begins: its kind, its format, and the oldest format that reads it."""
    return {marker: FORMAT.number, READABLE_FROM: FORMAT.readable_from}


def to_json_fields(record: Any, keys: StoredKeys) -> dict[str, Any]:
    """Return a record as a file keeps it, by key; tuples of rows are as they are.

    Parameters
    ----------
    record : dataclass or named tuple
        What to write.
    keys : StoredKeys
        The keys of its fields. A field that is not among them is not written.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Cap(NamedTuple):
    ...     number: int
    >>> to_json_fields(Cap(50), {Cap: {"number": "keep"}})
    {'keep': 50}
    """
    named = keys[type(record)]
    return {key: _json_value(getattr(record, name)) for name, key in named.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Size):
        return to_json_fields(value, {Size: SIZE_KEYS})
    return dict(value) if isinstance(value, Mapping) else value


def iter_json(said: Mapping[str, Any], keys: StoredKeys, *, in_lines: bool) -> Iterator[str]:
    """Yield a JSON object some rows at a time: one on each line, or the text of a digest."""
    line, colon = ("\n", ": ") if in_lines else ("", ":")
    begin = "{" + line
    for name, value in said.items():
        yield f"{begin}{json.dumps(name)}{colon}"
        begin = f",{line}"
        if not isinstance(value, tuple):
            yield json.dumps(value) if in_lines else canonical(value)
            continue
        comma = "["
        lead = "\n " if in_lines else ""
        for some in batched(value):
            rows = _rows_as_json(some, keys[type(some[0])], sort_keys=not in_lines)
            yield comma + lead + f",{lead}".join(rows)
            comma = ","
        yield "[]" if comma == "[" else f"{line}]"
    yield f"{line}}}{line}"


def _rows_as_json(
    rows: Sequence[Any], keys: Mapping[str, str], *, sort_keys: bool
) -> Iterator[str]:
    """Yield named tuples as JSON objects, by columns: an encoder is slow to begin with a row."""
    comma, colon = (",", ":") if sort_keys else (", ", ": ")
    named = [keys[field] for field in rows[0]._fields]
    columns = dict(zip(named, zip(*rows, strict=True), strict=True))
    pieces = list[Iterable[str]]()
    for name in sorted(columns) if sort_keys else columns:
        head = f"{comma if pieces else '{'}{json.dumps(name)}{colon}"
        pieces += [repeat(head, len(rows)), _column_as_json(columns[name])]
    return map("".join, zip(*pieces, repeat("}", len(rows)), strict=True))


def _column_as_json(values: Sequence[Any]) -> Iterator[str]:
    kinds = {*map(type, values)}
    if kinds == {str}:
        return map(in_quotes, values)
    return map(repr if kinds == {int} else json.dumps, values)


def parsed(text: str | bytes, marker: str) -> dict[str, Any]:
    """Return the JSON object in `text` after checking that it has `marker` and a known version."""
    what = marker.removeprefix("memlab_")
    expect(text, str, bytes, call=f"{what.title()}.from_json", name="text")
    try:
        said = text if isinstance(text, str) else text.decode("utf-8-sig")
        with fields_checked(what):
            _check_parts(said)
        content = json.loads(said)
    except (ValueError, RecursionError) as error:
        words = f"this is not a {what}: it is not JSON ({error}); {_GIVE}"
        raise PlanError(words) from error
    if not isinstance(content, dict) or marker not in content:
        there = _CARRIED_OUT.keys() & content if isinstance(content, dict) else ()
        does = next((f"{_CARRIED_OUT[one]} carries it out" for one in there), _GIVE)
        raise PlanError(f"this is not a {what}: it has no {marker!r}; {does}")
    with fields_checked(what):
        _check_texts(said, content)
        check_depth(content, _DEEPEST)
        written = written_in(content[marker], content.get(READABLE_FROM))
    FORMAT.check(f"this {what.replace('_', ' ')}", written, PlanError)
    return content


def added_fields(content: Mapping[str, Any], marker: str, known: Collection[str]) -> dict[str, Any]:
    """Return what a file of a newer format says beside the `known` keys; else nothing.

    A newer format that an older reader understands may add fields to the object, and none to its
    rows. A digest covers them, so they are carried.
    """
    if not FORMAT.is_newer(written_in(content[marker], content.get(READABLE_FROM))):
        return {}
    passed_over = {marker, READABLE_FROM, _DIGEST, *known}
    return {key: value for key, value in content.items() if key not in passed_over}


@contextmanager
def fields_checked(what: str) -> Iterator[None]:
    """Raise a missing or wrong field as a PlanError."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"this is not a whole {what}: {error}; make a new one") from error


def field_of(content: Mapping[str, Any], name: str, *types: type) -> Any:
    """Return a field after checking its type; a truth value is not a number."""
    value = content[name]
    if type(value) not in types:
        raise TypeError(f"{name} is {value!r:.80}")
    if type(value) is int and not -_BEYOND <= value < _BEYOND:
        raise ValueError(f"{name} is {shortened(str(value))}, beyond 64 bits")
    return value


def _check_parts(text: str) -> None:
    """Refuse what would take many times its text in memory, such as lists of nothing."""
    most = max(_PARTS, len(text) // _EACH)
    parts = _parts(text)
    if parts > most:  # most of them are in titles, or else it is no plan
        parts -= sum(_parts(each[0]) for each in _STRING.finditer(text))
    if parts > most:
        raise ValueError(f"it has {parts:,} values in {len(text):,} bytes")


def _parts(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _check_texts(text: str, content: Mapping[str, Any]) -> None:
    """Refuse halves of characters, which no memory has; a path may stand for bytes by them."""
    if _HALF.search(text):  # most are halves of a whole
        try:
            json.dumps({**content, "store": ""}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"half a character, {error.object[error.start]!r}") from error


def when(content: Mapping[str, Any], name: str) -> datetime:
    """Return a field that holds a moment, with the zone that it was written with."""
    text = field_of(content, name, str)
    moment_of(text)
    return datetime.fromisoformat(text)


def fields_in(content: Mapping[str, Any], record: type, keys: StoredKeys) -> dict[str, Any]:
    """Return a dataclass's fields, each of its declared type; one with a default may be missing."""
    named = keys[record]
    return {
        each.name: _typed(content, named[each.name], each.type, keys)
        for each in fields(record)
        if each.name in named and (named[each.name] in content or each.default is MISSING)
    }


def _typed(content: Mapping[str, Any], name: str, kind: Any, keys: StoredKeys) -> Any:
    if kind is datetime:
        return when(content, name)
    if kind is Size:
        return next(_tuples([field_of(content, name, dict)], Size, SIZE_KEYS))
    if get_origin(kind) is Mapping:
        return field_of(content, name, dict)
    if kind == tuple[str, ...]:
        return tuple(field_of({name: each}, name, str) for each in field_of(content, name, list))
    if get_origin(kind) is tuple:
        return tuples_of(content, name, get_args(kind)[0], keys)
    return field_of(content, name, *(get_args(kind) or (kind,)))


def tuples_of(
    content: Mapping[str, Any], name: str, row: Callable[..., Row], keys: StoredKeys
) -> tuple[Row, ...]:
    """Return a list of named tuples, each field of the type it is declared with."""
    return tuple(_tuples(field_of(content, name, list), row, keys[row]))  # type: ignore[index]


def _tuples(parts: list[Any], row: Callable[..., Row], keys: Mapping[str, str]) -> Iterator[Row]:
    """Yield named tuples, and take what each is made of out of its list: a plan may be long."""
    types = {keys[name]: get_args(kind) or (kind,) for name, kind in row.__annotations__.items()}
    for place, each in enumerate(parts):
        if not isinstance(each, dict) or each.keys() != types.keys():
            raise KeyError(f"an entry without just the fields {', '.join(types)}")
        parts[place] = None
        yield row(*(field_of(each, name, *kinds) for name, kinds in types.items()))


def in_words(policy: Mapping[str, Any]) -> str:
    """Return a policy's data as one line.

    >>> recent = {"policy": "recent", "keep": 50, "by": "position", "now": None}
    >>> in_words(recent)
    "recent(keep=50, by='position')"
    >>> in_words({"policy": "pipeline", "policies": [recent]})
    "pipeline(policies=[recent(keep=50, by='position')])"
    >>> in_words({"policy": "learned", "max_items": 50})
    'learned(max_items=50), which activation has replaced'
    """
    settings = (
        f"{name}={_word(value)}"
        for name, value in policy.items()
        if name != "policy" and value is not None
    )
    name = str(policy.get("policy"))
    words = f"{name}({', '.join(settings)})"
    return f"{words}, which {REPLACED[name]} has replaced" if name in REPLACED else words


def minute(moment: datetime) -> str:
    """Return a moment to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def sized(size: Size, memories: str = "memories") -> str:
    """Return a size in words."""
    return f"{counted(size.memories, memories)}, {counted(size.tokens, 'tokens')}"


def change(before: Size, after: Size) -> str:
    """Return what a size becomes."""
    return f"{sized(before)} -> {sized(after)}"


def share(part: Size, whole: Size) -> str:
    """Return a part of a size, with its shares."""
    memories = part.memories / whole.memories if whole.memories else 0.0
    tokens = part.tokens / whole.tokens if whole.tokens else 0.0
    return (
        f"{part.memories:,} of {counted(whole.memories)} ({memories:.1%}), "
        f"{part.tokens:,} of {counted(whole.tokens, 'tokens')} ({tokens:.1%})"
    )


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return in_words(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return repr(value)


def some_of(names: Sequence[object]) -> str:
    """Return the first five names, each cut when it is long, and how many more there are."""
    texts = [str(name) for name in names[:5]]
    shown = ", ".join(text if len(text) <= 80 else f"{text[:77]}..." for text in texts)
    return f"{shown} and {len(names) - 5:,} more" if len(names) > 5 else shown


def entries_left_in_words(names: Sequence[object]) -> str:
    """Say of which memories that came back an index has an entry already; empty for none.

    >>> entries_left_in_words(["a.md"])
    'it has an entry of 1 of them already, which stays as it is: a.md'
    """
    if not names:
        return ""
    return (
        f"it has an entry of {len(names):,} of them already, which stays as it is: {some_of(names)}"
    )
