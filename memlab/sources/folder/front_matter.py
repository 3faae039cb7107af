"""The front matter of a memory file: its few fields, whatever state the file is in.

PyYAML reads it, with the loader that makes nothing but texts, lists and mappings. Front matter is
written by an agent or by hand and often is no YAML (``description: Tests: run them all``), so what
PyYAML refuses is read line by line: a memory's type decides whether it may be deleted and must not
get lost over a colon.
"""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple

LONGEST: Final = 2**16
"""Characters at the beginning of a file in which its front matter must end."""

_FENCE: Final = "---"
_NESTING: Final = "[{-?:&*"
_MOST_NESTED: Final = 500
_MOST_BRACKETS: Final = 200
"""Of brackets inside one another PyYAML takes time that grows with the square of their number."""
_LINE: Final = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?$")
_QUOTES: Final = ('"', "'")


class FrontMatter(NamedTuple):
    """What stands at the head of a file."""

    fields: Mapping[str, str]
    text_at: int
    problem: str


def read_front_matter(text: str) -> FrontMatter:
    r"""Return the front matter of a file; nothing where there is none.

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
    if block.count("[") + block.count("{") > _MOST_BRACKETS:
        problem = problem or "it has more brackets than anybody writes"
    if not problem:
        import yaml  # no other kind of store pays for it

        # The loader in C is five times as fast; nested too deep, it would run out of stack.
        is_deep = sum(map(block.count, _NESTING)) >= _MOST_NESTED
        loader = yaml.BaseLoader if is_deep else getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            found = yaml.load(block, Loader=loader)  # noqa: S506 - makes texts only
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
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
    lines = rest.splitlines(keepends=True)
    fields = "".join(takewhile(lambda line: _LINE.match(line.rstrip("\r\n")), lines))
    return (fields, 0, "it does not end") if fields else (None, 0, "")


def _flat(found: Mapping[Any, Any]) -> dict[str, str]:
    """Return the fields that are texts, those of nested mappings after those of the top level."""
    fields: dict[str, str] = {}
    for each in (found, *(value for value in found.values() if isinstance(value, dict))):
        for name, value in each.items():
            if isinstance(name, str) and isinstance(value, str):
                fields.setdefault(name, value)
    return fields


def _line_by_line(block: str) -> dict[str, str]:
    """Return what stands behind each name on a line of its own; the first of a name counts."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        found = _LINE.match(line.rstrip())
        if found and found[2]:
            value = found[2].strip()
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in _QUOTES
            fields.setdefault(found[1], value[1:-1] if quoted else value)
    return fields
