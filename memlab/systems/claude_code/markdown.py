"""Markdown as Claude Code writes it; what PyYAML refuses is read by line, not to lose a type."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

LONGEST: Final = 2**16
"""Characters at the beginning of a file in which its front matter must end."""

_BEGIN: Final = re.compile(r"\ufeff?---[^\S\n]*\n")
_END: Final = re.compile(r"^(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.MULTILINE)
_LINE: Final = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?$")

_WIKILINK: Final = re.compile(
    r"\[\[(?P<name>[^\[\]\n|#]+)(?:#[^\[\]\n|]*)?(?:\|(?P<alias>[^\[\]\n]*))?\]\]"
)
_LINK: Final = re.compile(
    rf"{_WIKILINK.pattern}|"
    r"\[(?P<label>(?:[^\[\]\\\n]++|\\.|\[[^\[\]\n]*+\]){0,100}+)\]"
    r"\((?P<target><[^<>\n]*+>|[^()\n]*+(?:\([^()\n]*+\)[^()\n]*+){0,100}+)\)"
)
"""A link. It has no more pieces than somebody writes: not bounded, a line of brackets takes time
that grows with its square."""
_ITEM: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|[ \t]*\|")
_LEADING_LINK: Final = re.compile(r"[ \t>]*[*_~]{0,3}\[")
_LEADING_NAME: Final = re.compile(r"[ \t]*[*_`~]{0,4}(?P<name>\w[\w.-]*\.md)(?![\w/-])")
_TITLE: Final = re.compile(r"""(?<![ \t])[ \t]+(?:"[^"]*"|'[^']*')$""")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BACKTICKS: Final = re.compile("`+")
_NO_LINK_AFTER: Final = re.compile(r"[\w!)\]]")
"""What stands before the bracket of an image or of an array's index, and before no link's."""
_SUFFIX: Final = ".md"


class FrontMatter(NamedTuple):
    """What stands at the head of a file."""

    fields: Mapping[str, str]
    text_at: int
    problem: str
    tree: Mapping[Any, Any] | None = None
    """All that YAML says; None where there is none, or it cannot be read."""


def read_front_matter(text: str) -> FrontMatter:
    r"""Return the front matter of a file; nothing where there is none.

    >>> head = read_front_matter("---\nname: a\nmetadata:\n  type: user\n---\nbody")
    >>> head.fields["type"], head.problem
    ('user', '')
    >>> read_front_matter("---\nname: Tests: all of them\ntype: user\n---\n").fields["name"]
    'Tests: all of them'
    """
    begin = _BEGIN.match(text[:LONGEST])
    if begin is None:
        return FrontMatter({}, 0, "")
    rest = text[begin.end() : LONGEST]
    if end := _END.search(rest):
        block = rest[: end.start()]
        text_at = begin.end() + end.end()
        problem = ""
    else:
        lines = rest.splitlines(keepends=True)
        block = "".join(takewhile(lambda line: _LINE.match(line.rstrip("\r\n")), lines))
        text_at = 0
        problem = "it does not end" if block else ""
    # Inside one another they take PyYAML time that grows with their square, and run out of stack.
    if sum(map(block.count, "[{-?:&*")) > 500:
        problem = problem or "it has more brackets and colons than anybody writes"
    if not problem:
        import yaml  # no other kind of store pays for it

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            found = yaml.load(block, Loader=loader)  # noqa: S506 - makes texts only
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
        else:
            if isinstance(found, dict):
                return FrontMatter(_flat(found), text_at, "", found)
            problem = "" if found is None or found == "" else "it is no mapping"
    return FrontMatter(_line_by_line(block), text_at, problem)


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
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            fields.setdefault(found[1], value[1:-1] if quoted else value)
    return fields


class Mention(NamedTuple):
    """A file named in a text."""

    target: str
    start: int
    end: int
    label: str


@dataclass(frozen=True)
class FileNames:
    """Tells which file of a folder a link means."""

    folder: Path
    names: Collection[str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    _found: dict[str, str | None] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def _by_folded(self) -> dict[str, str | None]:
        """Each name by what is left of it without case; None where several share that."""
        found: dict[str, str | None] = {}
        for name in self.names:
            folded = _folded(name)
            found[folded] = None if folded in found else name
        return found

    def file_of(self, target: str) -> str | None:
        """Return the file a target means, as written, else by Unicode or case if one alone fits."""
        if target not in self._found:
            meant = map(self._named, _candidates(target, self.folder))
            self._found[target] = next(filter(None, meant), None)
        return self._found[target]

    def _named(self, path: str) -> str | None:
        if path in self.names:
            return path
        return self._by_folded.get(_folded(path)) or self.aliases.get(path)


def mentions_in(text: str) -> tuple[Mention, ...]:
    """Return what a text names, in order: links, and file names that begin an entry of a list."""
    found = []
    for link in _LINK.finditer(text):
        label = link["label"] or (link["alias"] or link["name"] or "").strip()
        found.append(Mention(link["name"] or link["target"], *link.span(), label))
    item = _ITEM.match(text)
    if item and (lead := _LEADING_NAME.match(text, item.end())):
        found.append(Mention(lead["name"], *lead.span("name"), lead["name"].removesuffix(_SUFFIX)))
    return tuple(sorted(found, key=lambda mention: mention.start))


def name_in_link(target: str) -> str | None:
    """Return the Markdown file that the target of a link names; None where it names none.

    >>> [name_in_link(target) for target in ("a.md", "<a b.md>", "./a%20b.md#c", "a", "https://x")]
    ['a.md', 'a b.md', 'a b.md', 'a.md', None]
    """
    written = target.strip().strip("<>")
    if not written or _SCHEME.match(written) or written.startswith("#"):
        return None
    name = unquote(re.split(r"[#?]", written, maxsplit=1)[0]).removeprefix("./")
    return name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"


def is_entry(line: str) -> bool:
    """Whether a line is an item of a list, a row of a table, or begins with a link."""
    return bool(_ITEM.match(line) or _LEADING_LINK.match(line))


def is_wikilink(text: str, mention: Mention) -> bool:
    """Whether a text names a file there as ``[[name]]``."""
    return text.startswith("[[", mention.start)


def inline_links(text: str, mentions: Iterable[Mention]) -> Iterator[Mention]:
    """Yield the mentions of a text that Markdown shows as links: no code, no image, no array.

    >>> text = "[a](b.md) `[c](d.md)` ![e](f.png) arr[i](cb) [[g]]"
    >>> [link.target for link in inline_links(text, mentions_in(text))]
    ['b.md']
    """
    code = _code_spans(text)
    for mention in mentions:
        is_link = text.startswith("[", mention.start) and not is_wikilink(text, mention)
        is_in_code = any(start <= mention.start < end for start, end in code)
        if is_link and not is_in_code and not _NO_LINK_AFTER.match(text, max(mention.start - 1, 0)):
            yield mention


def _code_spans(text: str) -> list[tuple[int, int]]:
    """Return where a text has code: between two runs of as many backticks."""
    spans = []
    opened: tuple[int, int] | None = None
    for run in _BACKTICKS.finditer(text):
        length = run.end() - run.start()
        if opened is None:
            opened = run.start(), length
        elif opened[1] == length:
            spans.append((opened[0], run.end()))
            opened = None
    return spans


def is_local(target: str) -> bool:
    """Whether a target is written like the name of a file beside the index."""
    path = target.strip().strip("<>")
    return bool(path) and not _SCHEME.match(path) and path[0] != "#" and "/" not in path


def unlinked(text: str, gone: Collection[str], names: FileNames) -> str | None:
    """Return a text without its links to `gone`, whose words stay; None where that takes more."""
    found = split_links(text, gone, names)
    return None if found is None else found.text


class Link(NamedTuple):
    """A link that was taken out of a text: where its words stand now, and how it was written."""

    start: int
    end: int
    written: str
    target: str


class Unlinked(NamedTuple):
    """A text whose links to some files were taken out, and these links in order."""

    text: str
    links: tuple[Link, ...]

    def linked(self, others: Iterable[Link] = ()) -> str | None:
        """Return the text with its links in place, and `others`; None where two overlap.

        >>> one, other = Link(2, 3, "[A](a.md)", "a.md"), Link(5, 6, "[B](b.md)", "b.md")
        >>> Unlinked("- A, B", (one,)).linked([other])
        '- [A](a.md), [B](b.md)'
        """
        pieces = []
        end = 0
        for link in sorted([*others, *self.links]):
            if link.start < end:
                return None
            pieces.append(self.text[end : link.start] + link.written)
            end = link.end
        return "".join([*pieces, self.text[end:]])


def split_links(text: str, files: Collection[str], names: FileNames) -> Unlinked | None:
    """Return a text without its links to some files, and the links; None where links are nested."""
    pieces = []
    links = []
    end = length = 0
    for mention in mentions_in(text):
        if names.file_of(mention.target) not in files:
            continue
        words = _words(mention, names)
        start = length + mention.start - end
        written = text[mention.start : mention.end]
        links.append(Link(start, start + len(words), written, mention.target))
        pieces.append(text[end : mention.start] + words)
        length = start + len(words)
        end = mention.end
    left = "".join([*pieces, text[end:]])
    # In links inside one another the inner ones are links only once the outer ones have gone.
    if any(names.file_of(mention.target) in files for mention in mentions_in(left)):
        return None
    return Unlinked(left, tuple(links))


def wikilinks_in(text: str) -> list[str]:
    """Return the names that a text links to, as in ``[[name]]``."""
    return [found["name"] for found in _WIKILINK.finditer(text)]


def _words(mention: Mention, names: FileNames) -> str:
    """Return what stays of a link: never again the name of a file."""
    bare = mention.label.strip("*_`~ \t")
    if bare.endswith(_SUFFIX) and names.file_of(bare) is not None:
        return mention.label.replace(bare, bare.removesuffix(_SUFFIX))
    return mention.label


def _folded(name: str) -> str:
    return normalize("NFC", name).casefold()


def _candidates(target: str, folder: Path) -> Iterator[str]:
    """Yield the file names in `folder` that a target may mean, the likeliest first."""
    written = _TITLE.sub("", target.strip()).strip()
    if written.startswith("<") and written.endswith(">"):
        written = written[1:-1]
    bare = re.split(r"[#?]", written, maxsplit=1)[0]
    for text in dict.fromkeys((written, bare, unquote(bare))):
        path = text.removeprefix("./").removeprefix(f"{folder}/").removeprefix(f"{folder.name}/")
        if 0 < len(path) < 256 and "/" not in path:  # to compose more takes their square
            yield path
            yield f"{path}{_SUFFIX}"
