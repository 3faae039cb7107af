"""Read the type of a memory file, and decide whether the type is in doubt.

Instructions of a person have the types ``user`` and ``feedback``. They must not be lost because
their type is written in another form than Claude Code's. A file that may be an instruction and has
no plain type is in doubt: it counts as load-bearing until a person settles its type.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from memlab.items import MemoryKind
from memlab.systems.claude_code.markdown import MAX_FRONT_MATTER, FrontMatter

PLAIN: Final = frozenset({"project", "reference"})
"""Claude Code's types that are no instructions."""
SETTLE: Final = (
    "write type: project or type: feedback into their front matter; a type of your own is settled "
    "for all in memlab.toml: kinds = { TYPE = 'episodic' } below [store.NAME.claude]"
)
"""Advice on how to settle a doubtful type."""

_TYPE: Final = "type"
_OTHER_KEYS: Final = frozenset({"kind", "category", "memory_type", "memory-type", "memorytype"})
"""Other keys that people use for the type, in lower case."""
_DEEPEST: Final = 20
"""Maximum depth of front matter that is searched."""
_WORD: Final = re.compile(r"[^\W_]+")
_BARE_LINE: Final = re.compile(r"""(?m)^[ \t]*type:[ \t]*["']?(\w+)["']?[ \t]*(?:#.*)?\r?$""")
_LOOSE: Final = re.compile(
    r"(?im)(?:^[^\S\n]*(?:-[^\S\n]+)?|[{,][^\S\n]*)[\"']?"
    r"(?P<key>type|kind|category|memory[_-]?type)[\"']?[^\S\n]*[:：=](?P<value>[^\n,}]*)"
)
"""A type outside of valid YAML. Some people write a full-width colon."""
_LEADING_BLANKS: Final = re.compile(r"\ufeff?(?:\s|<!--.*?-->)*", re.DOTALL)
_FENCED: Final = re.compile(
    r"(?P<fence>-{3,}|\+{3,})[^\S\n]*\n(?P<head>.*?)(?:^(?P=fence)|^\s*$|\Z)",
    re.DOTALL | re.MULTILINE,
)

Statement = tuple[str, str | None]
"""A key and the type that is its value; None if the value is not text."""


class MemoryType(NamedTuple):
    """The type of a memory.

    Attributes
    ----------
    name : str
        The type in the file, in lower case; empty for none.
    doubt : str
        Why the type is in doubt; empty for no doubt.
    """

    name: str
    doubt: str = ""


def type_of(stem: str, text: str, head: FrontMatter, kinds: Mapping[str, str]) -> MemoryType:
    r"""Return the type of a memory file.

    Parameters
    ----------
    stem : str
        Name of the file without its suffix.
    text : str
        Content of the file.
    head : FrontMatter
        The result of :func:`memlab.systems.claude_code.markdown.read_front_matter`.
    kinds : mapping of str to str
        The kind of memory of each type. All kinds but "episodic" are load-bearing.

    Examples
    --------
    >>> from memlab.systems.claude_code.markdown import read_front_matter
    >>> text = "---\nname: a\ntype: [feedback, user]\n---\n"
    >>> type_of("a", text, read_front_matter(text), {"feedback": "semantic"}).doubt
    'its type is a list'
    """
    name = head.fields.get(_TYPE, "").strip().lower()
    instruction_types = {
        type_name for type_name, kind in kinds.items() if kind != MemoryKind.EPISODIC
    }
    plain_types = (PLAIN | kinds.keys()) - instruction_types
    types = [value for _, value in _statements(text, head, instruction_types)]
    if not types:
        return MemoryType(name, _doubt_without_type(stem, head, instruction_types))
    for value in types:
        if value not in instruction_types and value not in plain_types:
            return MemoryType(name, _unclear(value))
    instructions = [value for value in types if value in instruction_types]
    if instructions and not plain_types.isdisjoint(types):
        return MemoryType(name, f"its type is {instructions[0]}, and it states another one, too")
    if instructions and name not in instruction_types:
        return MemoryType(name, f"its type, {instructions[0]}, is not where Claude Code reads it")
    return MemoryType(name)


def _doubt_without_type(stem: str, head: FrontMatter, instruction_types: Collection[str]) -> str:
    """Return the sign that a file without a type is an instruction; empty for none."""
    if head.problem:
        return f"its front matter cannot be read ({head.problem})"
    first = _WORD.match(stem)
    if first and first[0].lower() in instruction_types:
        return f"its name begins with {first[0]!r}, and it says no type"
    return ""


def _unclear(value: str | None) -> str:
    """Return the reason to doubt a type that is neither an instruction nor a plain type."""
    if value is None:
        return "its type is a list"
    if not value:
        return "its type is empty"
    return f"its type is {value!r:.40}, which is not known"


def _statements(
    text: str, head: FrontMatter, instruction_types: Collection[str]
) -> Iterator[Statement]:
    """Yield the types in a file; those under other keys only if they may be an instruction."""
    if head.tree is not None:
        for statement in _in_tree(head.tree):
            if _is_relevant(statement, instruction_types):
                yield statement
        # The tree has only the last value of a repeated key.
        for value in _BARE_LINE.findall(text[: head.text_at]):
            yield _TYPE, value.lower()
        return
    for match in _LOOSE.finditer(_loose_head(text, head)):
        value = match["value"].partition("#")[0].strip().strip("\"'").strip().lower()
        statement = (match["key"].lower(), value)
        if _is_relevant(statement, instruction_types):
            yield statement


def _is_relevant(statement: Statement, instruction_types: Collection[str]) -> bool:
    """Return whether a key is ``type``, or its value has the name of an instruction's type."""
    key, value = statement
    return key == _TYPE or not set(instruction_types).isdisjoint(_WORD.findall(value or ""))


def _in_tree(tree: Any, depth: int = 0) -> Iterator[Statement]:
    """Yield the types in parsed front matter, at any depth."""
    if not isinstance(tree, Mapping) or depth > _DEEPEST:
        return
    for key, value in tree.items():
        name = key.strip().lower() if isinstance(key, str) else ""
        if isinstance(value, Mapping):
            yield from _in_tree(value, depth + 1)
        elif name == _TYPE or name in _OTHER_KEYS:
            stated_type = value.strip().lower() if isinstance(value, str) else None
            yield name, stated_type


def _loose_head(text: str, head: FrontMatter) -> str:
    """Return the beginning of a file that may be meant as front matter."""
    if head.text_at:
        return text[: head.text_at]
    start = text[:MAX_FRONT_MATTER]
    fenced = _FENCED.match(start, pos=_LEADING_BLANKS.match(start).end())  # type: ignore[union-attr]  # it may be empty
    if fenced is None:
        return ""
    return fenced["head"]
