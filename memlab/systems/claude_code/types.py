"""Which type a memory file says it has, and whether that can be doubted.

What a person told an agent, its types ``user`` and ``feedback``, must not be lost because it is
written in another way than Claude Code writes it. A file that may say so and does not say it
plainly is in doubt, and counts as load-bearing until a person settles it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from memlab.items import MemoryKind
from memlab.systems.claude_code.markdown import LONGEST, FrontMatter

PLAIN: Final = frozenset({"project", "reference"})
"""The types of Claude Code's own that are no instruction."""
SETTLE: Final = (
    "write type: project or type: feedback into their front matter; a type of your own is settled "
    "for all in memlab.toml: kinds = { TYPE = 'episodic' } below [store.NAME.claude]"
)
"""How a person settles what is in doubt."""

_TYPE: Final = "type"
_OTHER_KEYS: Final = frozenset({"kind", "category", "memory_type", "memory-type", "memorytype"})
"""What else people call the type, without case."""
_DEEPEST: Final = 20
_WORD: Final = re.compile(r"[^\W_]+")
_BARE_LINE: Final = re.compile(r"""(?m)^[ \t]*type:[ \t]*["']?(\w+)["']?[ \t]*(?:#.*)?\r?$""")
_LOOSE: Final = re.compile(
    r"(?im)(?:^[^\S\n]*(?:-[^\S\n]+)?|[{,][^\S\n]*)[\"']?"
    r"(?P<key>type|kind|category|memory[_-]?type)[\"']?[^\S\n]*[:：=](?P<value>[^\n,}]*)"
)
"""A type as it is written where no YAML says it; some write a colon of full width."""
_BEFORE: Final = re.compile(r"\ufeff?(?:\s|<!--.*?-->)*", re.DOTALL)
_FENCED: Final = re.compile(
    r"(?P<fence>-{3,}|\+{3,})[^\S\n]*\n(?P<head>.*?)(?:^(?P=fence)|^\s*$|\Z)",
    re.DOTALL | re.MULTILINE,
)

Statement = tuple[str, str | None]
"""A key, and the type that it says; None for what is no text."""


class MemoryType(NamedTuple):
    """The type of a memory."""

    name: str
    """As the file says it, in lower case; empty where it says none."""
    doubt: str = ""
    """Why it counts as load-bearing until a person says otherwise; empty for no doubt."""


def type_of(stem: str, text: str, head: FrontMatter, kinds: Mapping[str, str]) -> MemoryType:
    r"""Return the type of a memory file.

    Parameters
    ----------
    stem : str
        The file's name without its ending.
    text : str
        All of the file.
    head : FrontMatter
        What :func:`memlab.systems.claude_code.markdown.read_front_matter` found in it.
    kinds : mapping of str to str
        Type -> kind of memory, of which all but "episodic" are load-bearing.

    Examples
    --------
    >>> from memlab.systems.claude_code.markdown import read_front_matter
    >>> text = "---\nname: a\ntype: [feedback, user]\n---\n"
    >>> type_of("a", text, read_front_matter(text), {"feedback": "semantic"}).doubt
    'its type is a list'
    """
    name = head.fields.get(_TYPE, "").strip().lower()
    guarding = {known for known, kind in kinds.items() if kind != MemoryKind.EPISODIC}
    plain = (PLAIN | kinds.keys()) - guarding
    said = [value for _, value in _statements(text, head, guarding)]
    if not said:
        return MemoryType(name, _doubt_without_type(stem, head, guarding))
    for value in said:
        if value not in guarding and value not in plain:
            return MemoryType(name, _unclear(value))
    guards = [value for value in said if value in guarding]
    if guards and not plain.isdisjoint(said):
        return MemoryType(name, f"it says {guards[0]} and another type")
    if guards and name not in guarding:
        return MemoryType(name, f"it says {guards[0]} where Claude Code would not look")
    return MemoryType(name)


def _doubt_without_type(stem: str, head: FrontMatter, guarding: Collection[str]) -> str:
    """Return why a file that says no type may be an instruction; empty for no sign of that."""
    if head.problem:
        return f"its front matter cannot be read ({head.problem})"
    first = _WORD.match(stem)
    if first and first[0].lower() in guarding:
        return f"its name begins with {first[0]!r}, and it says no type"
    return ""


def _unclear(value: str | None) -> str:
    if value is None:
        return "its type is a list"
    return f"its type is {value!r:.40}, which is not known" if value else "its type is empty"


def _statements(text: str, head: FrontMatter, guarding: Collection[str]) -> Iterator[Statement]:
    """Yield what a file says of its type: under other keys only what may be an instruction."""
    if head.tree is not None:
        yield from (each for each in _in_tree(head.tree) if _counts(each, guarding))
        lines = _BARE_LINE.findall(text[: head.text_at])  # of a key that stands twice one is read
        yield from ((_TYPE, line.lower()) for line in lines)
        return
    for found in _LOOSE.finditer(_loose_head(text, head)):
        value = found["value"].partition("#")[0].strip().strip("\"'").strip().lower()
        statement = found["key"].lower(), value
        if _counts(statement, guarding):
            yield statement


def _counts(statement: Statement, guarding: Collection[str]) -> bool:
    key, value = statement
    return key == _TYPE or not set(guarding).isdisjoint(_WORD.findall(value or ""))


def _in_tree(tree: Any, depth: int = 0) -> Iterator[Statement]:
    """Yield each type that front matter says, at any depth."""
    if not isinstance(tree, Mapping) or depth > _DEEPEST:
        return
    for key, value in tree.items():
        name = key.strip().lower() if isinstance(key, str) else ""
        if isinstance(value, Mapping):
            yield from _in_tree(value, depth + 1)
        elif name == _TYPE or name in _OTHER_KEYS:
            yield name, value.strip().lower() if isinstance(value, str) else None


def _loose_head(text: str, head: FrontMatter) -> str:
    """Return what stands where front matter should, and may have been meant as such."""
    if head.text_at:
        return text[: head.text_at]
    start = text[:LONGEST]
    fenced = _FENCED.match(start, pos=_BEFORE.match(start).end())  # type: ignore[union-attr]  # it may be empty
    return fenced["head"] if fenced else ""
