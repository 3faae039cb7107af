"""The front matter of a memory file: its few fields, whatever state the file is in.

PyYAML reads it, with the loader that makes nothing but texts, lists and mappings. Front matter is
written by an agent or by hand and often is no YAML (``description: Tests: run them all``), so what
PyYAML refuses is read line by line: a memory's type decides whether it may be deleted and must not
get lost over a colon.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

LONGEST: Final = 2**16
"""Characters at the beginning of a file in which its front matter must end."""

_FENCE: Final = "---"
_NESTING: Final = "[{-?:&*"
_MOST_NESTED: Final = 500
_LINE: Final = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?$")
_PLAIN: Final = re.compile(
    r"(?P<indent> *)(?P<name>[A-Za-z_]\w*):"
    r"(?: +(?P<value>\"[^\"\\]*\"|'[^']*'|[^\W_](?:[^:#]++|:(?=\S)|(?<! )#)*+))? *"
)
_QUOTES: Final = ('"', "'")


class FrontMatter(NamedTuple):
    """What stands at the head of a file.

    Attributes
    ----------
    fields : mapping of str to str
        By name. A field of a nested mapping such as ``metadata`` goes by its own name, where the
        top level has none of that name.
    text_at : int
        Where the text below it begins, in characters.
    problem : str
        Why it was read line by line; empty where it was not.
    """

    fields: Mapping[str, str]
    text_at: int
    problem: str


def read_front_matter(text: str) -> FrontMatter:
    r"""Return the front matter of a file; nothing where there is none.

    Parameters
    ----------
    text : str
        The file, or its first `LONGEST` characters.

    Examples
    --------
    >>> head = read_front_matter("---\nname: a\nmetadata:\n  type: user\n---\nbody")
    >>> head.fields["type"], head.problem
    ('user', '')
    >>> read_front_matter("---\nname: Tests: all of them\ntype: user\n---\n").fields["name"]
    'Tests: all of them'
    """
    block, text_at, problem = _block(text)
    if block is None:
        return FrontMatter({}, 0, "")
    if not problem:
        if (plain := _plain(block)) is not None:
            return FrontMatter(_flat(plain), text_at, "")
        import yaml  # no other kind of store pays for it

        try:
            found = yaml.load(block, Loader=_loader(block))  # noqa: S506 - makes texts only
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = _first_line(error)
        else:
            if isinstance(found, dict):
                return FrontMatter(_flat(found), text_at, "")
            problem = "" if found is None or found == "" else "it is no mapping"
    return FrontMatter(_line_by_line(block), text_at, problem)


def _block(text: str) -> tuple[str | None, int, str]:
    """Return the text between the fences, where the rest begins, and what is wrong with it."""
    head = text[:LONGEST].removeprefix("\ufeff")
    skipped = len(text[:LONGEST]) - len(head)
    first, newline, rest = head.partition("\n")
    if first.rstrip() != _FENCE or not newline:
        return None, 0, ""
    at = len(first) + 1
    for line in rest.splitlines(keepends=True):
        if line.rstrip() in (_FENCE, "..."):
            return head[len(first) + 1 : at], skipped + at + len(line), ""
        at += len(line)
    fields = "".join(_leading_fields(rest))
    return (fields, 0, "it does not end") if fields else (None, 0, "")


def _plain(block: str) -> dict[str, Any] | None:
    """Return what the plainest YAML says, four times as fast; None for any that is not.

    A name and a value a line, the value all letters or in quotes without a quote or an escape, and
    names without a value above others that are indented alike.
    """
    found: dict[str, Any] = {}
    nested: dict[str, str] | None = None
    above, depth = "", ""
    lines = [line for line in block.split("\n") if line]
    if not "".join(lines).isprintable():
        return None
    for line in lines:
        fits = _PLAIN.fullmatch(line)
        if fits is None:
            return None
        indent, name, raw = fits.groups()
        value = _unquoted(raw.rstrip()) if raw else ""
        if not indent:
            found[name], nested, above = value, None, "" if raw else name
        elif nested is None and above:
            nested, depth = {name: value}, indent
            found[above] = nested
        elif nested is not None and indent == depth:
            nested[name] = value
        else:
            return None
    return found


def _loader(block: str) -> Any:
    """Return the loader in C, five times as fast, for what cannot be nested too deep for it.

    The one in Python ends in an error where the one in C would run out of stack.
    """
    import yaml

    nested = sum(map(block.count, _NESTING))
    return (
        getattr(yaml, "CBaseLoader", yaml.BaseLoader) if nested < _MOST_NESTED else yaml.BaseLoader
    )


def _leading_fields(text: str) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        if not _LINE.match(line.rstrip("\r\n")):
            return
        yield line


def _flat(found: Mapping[Any, Any]) -> dict[str, str]:
    """Return the fields that are texts, those of nested mappings after those of the top level."""
    fields = {name: value for name, value in found.items() if _is_field(name, value)}
    for nested in found.values():
        if isinstance(nested, dict):
            for name, value in nested.items():
                if _is_field(name, value):
                    fields.setdefault(name, value)
    return fields


def _is_field(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, str)


def _line_by_line(block: str) -> dict[str, str]:
    """Return what stands behind each name on a line of its own; the first of a name counts."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        found = _LINE.match(line.rstrip())
        if found and found[2]:
            fields.setdefault(found[1], _unquoted(found[2].strip()))
    return fields


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in _QUOTES
    return value[1:-1] if quoted else value


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
