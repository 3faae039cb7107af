"""JSON forms of what this package hands to people: written to diff well, read with every check."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from itertools import repeat
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any, Final, TypeVar, get_args

from memlab.arguments import expect
from memlab.compaction.long_lists import Chunk, in_chunks
from memlab.errors import PlanError
from memlab.items import shortened
from memlab.moments import moment_of

FORMAT: Final = 2
"""Version of every JSON form, written into each."""
FIRST_FORMAT: Final = 1
"""What memlab 0.1.0 wrote."""

_BEYOND: Final = 2**63
_DEEPEST: Final = 32
"""Lists and objects, one in the other. A pipeline of policies takes five."""
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

Row = TypeVar("Row", bound=tuple[Any, ...])


def as_data(value: Any) -> Any:
    """Return a setting as JSON values: what it is, never code that could run.

    Examples
    --------
    >>> as_data(timedelta(days=7))
    '7 days, 0:00:00'
    >>> as_data((1, None, len))
    [1, None, 'builtins.len']
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "address", type(value).__name__)
        settings = {
            field.name: as_data(getattr(value, field.name)) for field in fields(value) if field.init
        }
        return {"policy": name, **settings}
    if isinstance(value, (tuple, list)):
        return [as_data(each) for each in value]
    if isinstance(value, timedelta):
        return str(value)
    named = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def canonical(value: Any) -> str:
    """Return JSON values as the one text that a digest is made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def rows_as_json(names: Sequence[str], columns: Chunk, *, sort_keys: bool = False) -> Iterator[str]:
    """Yield rows as the JSON objects that their fields make, each as :func:`json.dumps` would.

    With sorted keys they are without spaces. All are written at once by columns: it would take as
    long to begin with a row as to write it.

    Parameters
    ----------
    names : sequence of str
        Of the fields.
    columns : sequence of sequence
        The values of each field.
    sort_keys : bool
        Whether the names come in their order, as in a text that a digest is made of.

    Examples
    --------
    >>> list(rows_as_json(["tokens", "memories"], [[30], [2]]))
    ['{"tokens": 30, "memories": 2}']
    >>> list(rows_as_json(["tokens", "memories"], [[30], [2]], sort_keys=True))
    ['{"memories":2,"tokens":30}']
    """
    colon, comma = (":", ",") if sort_keys else (": ", ", ")
    said = {name: _said(column) for name, column in zip(names, columns, strict=True)}
    pieces = list[Iterable[str]]()
    for name in sorted(names) if sort_keys else names:
        pieces += [repeat(f'{comma if pieces else "{"}"{name}"{colon}'), said[name]]
    return map("".join, zip(*pieces, repeat("}")))


def _said(column: Sequence[Any]) -> Iterable[str]:
    """Return values as JSON; those of one type are not looked at one by one."""
    kinds = {*map(type, column)}
    if kinds == {str}:
        return map(in_quotes, column)
    return map(repr if kinds == {int} else json.dumps, column)


def list_in_pieces(rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a canonical JSON list of named tuples, some thousand rows at a time."""
    yield "["
    yield from _joined(rows, ",", sort_keys=True)
    yield "]"


def json_lines(rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a JSON list with one named tuple on each line, some thousand rows at a time."""
    if not rows:
        yield "[]"
        return
    yield "[\n "
    yield from _joined(rows, ",\n ", sort_keys=False)
    yield "\n]"


def _joined(rows: Sequence[tuple[Any, ...]], comma: str, *, sort_keys: bool) -> Iterator[str]:
    names: Sequence[str] = rows[0]._fields if rows else ()  # type: ignore[attr-defined]
    for place, columns in enumerate(in_chunks(rows)):
        said = comma.join(rows_as_json(names, columns, sort_keys=sort_keys))
        yield f"{comma}{said}" if place else said


def parsed(text: str | bytes, marker: str) -> dict[str, Any]:
    """Return the JSON object in `text` after checking that it has `marker` and a known version.

    Raises
    ------
    PlanError
        When it is something else.
    """
    what = marker.removeprefix("memlab_")
    expect(text, str, bytes, call=f"{what.title()}.from_json", name="text")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"this is not a {what}: it is not JSON ({error})") from error
    if not isinstance(content, dict) or marker not in content:
        raise PlanError(f"this is not a {what}: it has no {marker!r}")
    with fields_checked(what):
        _check_texts(text, content)
        _check_depth(content)
    if content[marker] not in (FIRST_FORMAT, FORMAT):
        raise PlanError(
            f"this {what} has format {content[marker]!r} and this memlab reads {FIRST_FORMAT} and "
            f"{FORMAT}; use the memlab that wrote it"
        )
    return content


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


def _check_texts(text: str | bytes, content: Mapping[str, Any]) -> None:
    """Refuse halves of characters, which no store has and no terminal, file or digest takes."""
    raw = text if isinstance(text, str) else text.decode(errors="replace")
    if _HALF.search(raw):  # most are halves of a whole
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"half a character, {error.object[error.start]!r}") from error


def _check_depth(content: Mapping[str, Any]) -> None:
    """Refuse what is nested so deep that whoever compares or shows it would fail."""
    level: list[Any] = [content]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {_DEEPEST}")


def when(content: Mapping[str, Any], name: str) -> datetime:
    """Return a field that holds a moment, with the zone that it was written with."""
    text = field_of(content, name, str)
    moment_of(text)
    return datetime.fromisoformat(text)


def tuple_of(content: Mapping[str, Any], row: Callable[..., Row]) -> Row:
    """Return the named tuple that ``_asdict`` wrote, each field of the type it is declared with."""
    declared = row.__annotations__
    if not isinstance(content, dict) or content.keys() != declared.keys():
        raise KeyError(f"an entry without just the fields {', '.join(declared)}")
    return row(*(field_of(content, n, *_types(kind)) for n, kind in declared.items()))


def tuples_of(content: Mapping[str, Any], name: str, row: Callable[..., Row]) -> tuple[Row, ...]:
    """Return a list of named tuples."""
    return tuple(tuple_of(each, row) for each in field_of(content, name, list))


def taken_from(content: Mapping[str, Any], name: str, row: Callable[..., Row]) -> Iterator[Row]:
    """Yield a list of named tuples, and take what each is made of out of `content`."""
    parts = field_of(content, name, list)
    for place, each in enumerate(parts):
        parts[place] = None
        yield tuple_of(each, row)


def of_first_format(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan that memlab 0.1.0 wrote in today's fields."""
    return {
        **content,
        "groups": [
            {
                "deleted": group["goes"],
                **{name: group[name] for name in ("label", "kind", "reason")},
                **size_of_first_format(group),
            }
            for group in content["groups"]
        ],
        "memories": [
            {"key": row["position"], **{n: v for n, v in row.items() if n != "signals"}}
            for row in content["rows"]
        ],
        "kept": [
            {
                "key": row["position"],
                "memory_id": row["memory_id"],
                "fingerprint": row["fingerprint"],
            }
            for row in content["kept"]
        ],
    }


def size_of_first_format(size: Mapping[str, Any]) -> dict[str, Any]:
    """Return a size that memlab 0.1.0 wrote in today's fields."""
    return {"memories": size["items"], "tokens": size["tokens"]}


def _types(kind: Any) -> tuple[type, ...]:
    return get_args(kind) or (kind,)
