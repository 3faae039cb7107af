"""Read Markdown as Claude Code writes it: front matter, links and list entries.

Front matter that PyYAML rejects is read line by line, so that the type of a memory is not lost.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from posixpath import normpath
from typing import Any, Final, NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

DEEPEST: Final = 8
"""Maximum number of subfolders above a memory."""
LONGEST: Final = 2**16
"""Maximum length of front matter in characters, from the beginning of the file."""

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
"""A link. The repetitions are bounded, because an unbounded match of a line of brackets takes
quadratic time."""
_TITLE_LINE: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<title>\S[^\n]*)", re.MULTILINE)
_ITEM: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|[ \t]*\|")
_LEADING_LINK: Final = re.compile(r"[ \t>]*[*_~]{0,3}\[")
_LEADING_NAME: Final = re.compile(
    r"[ \t]*[*_`~]{0,4}(?P<name>(?:\w[\w.-]*/){0,8}\w[\w.-]*\.md)(?![\w/-])"
)
_TITLE: Final = re.compile(r"""(?<![ \t])[ \t]+(?:"[^"]*"|'[^']*')$""")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BACKTICKS: Final = re.compile("`+")
_NO_LINK_AFTER: Final = re.compile(r"[\w!)\]]")
"""A character before a bracket that makes it an image or an array index, not a link."""
_SUFFIX: Final = ".md"
_LONGEST_NAME: Final = 256
"""Length from which a text is no file name. Unicode normalization of longer texts takes quadratic
time."""


class FrontMatter(NamedTuple):
    """The front matter of a file.

    Attributes
    ----------
    fields : mapping of str to str
        The text fields by name.
    text_at : int
        The position after the front matter; 0 if there is none or it does not end.
    problem : str
        Why it is not valid YAML; empty if it is valid or missing.
    tree : mapping or None
        The YAML document; None if there is none or it cannot be parsed.
    """

    fields: Mapping[str, str]
    text_at: int
    problem: str
    tree: Mapping[Any, Any] | None = None


def read_front_matter(text: str) -> FrontMatter:
    r"""Return the front matter of a file; an empty one if there is none.

    >>> head = read_front_matter("---\nname: a\nmetadata:\n  type: user\n---\nbody")
    >>> head.fields["type"], head.problem
    ('user', '')
    >>> read_front_matter("---\nname: Tests: all of them\ntype: user\n---\n").fields["name"]
    'Tests: all of them'
    """
    begin = _BEGIN.match(text[:LONGEST])
    if begin is None:
        return FrontMatter({}, 0, "")
    remainder = text[begin.end() : LONGEST]
    end = _END.search(remainder)
    if end is not None:
        block = remainder[: end.start()]
        text_at = begin.end() + end.end()
        problem = ""
    else:
        lines = remainder.splitlines(keepends=True)
        block = "".join(takewhile(lambda line: _LINE.match(line.rstrip("\r\n")), lines))
        text_at = 0
        problem = "it does not end" if block else ""
    # Nested collections take PyYAML quadratic time and can exhaust the stack.
    if sum(map(block.count, "[{-?:&*")) > 500:
        problem = problem or "it has more brackets and colons than anybody writes"
    if not problem:
        import yaml  # imported late: no other kind of store needs it

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            tree = yaml.load(block, Loader=loader)  # noqa: S506 - creates strings only
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
        else:
            if isinstance(tree, dict):
                return FrontMatter(_flat(tree), text_at, "", tree)
            is_empty = tree is None or tree == ""
            problem = "" if is_empty else "it is no mapping"
    return FrontMatter(_line_by_line(block), text_at, problem)


def _flat(tree: Mapping[Any, Any]) -> dict[str, str]:
    """Return the text fields of a mapping and of its nested mappings; the top level wins."""
    fields: dict[str, str] = {}
    nested = [value for value in tree.values() if isinstance(value, dict)]
    for mapping in (tree, *nested):
        for name, value in mapping.items():
            if isinstance(name, str) and isinstance(value, str):
                fields.setdefault(name, value)
    return fields


def _line_by_line(block: str) -> dict[str, str]:
    """Return the fields of lines such as ``name: value``; the first line of a name wins."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        match = _LINE.match(line.rstrip())
        if match is None or not match[2]:
            continue
        value = match[2].strip()
        is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
        fields.setdefault(match[1], value[1:-1] if is_quoted else value)
    return fields


class Mention(NamedTuple):
    """A mention of a file in a text: the target, its start and end, and the label."""

    target: str
    start: int
    end: int
    label: str


@dataclass(frozen=True)
class FileNames:
    """Resolves the targets of links to files of a folder and of its subfolders.

    Attributes
    ----------
    folder : Path
        Absolute path of the folder.
    names : collection of str
        The files, by their paths in the folder.
    aliases : mapping of str to str
        The files by other names.
    base : str
        Path in the folder of the subfolder from which links lead; empty for the folder itself.
    """

    folder: Path
    names: Collection[str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    _resolved: dict[str, str | None] = field(default_factory=dict, init=False, compare=False)
    _beside: dict[str, "FileNames"] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def identity(self) -> tuple[Path, frozenset[str], frozenset[tuple[str, str]], str]:
        """A hashable value that is equal for equal names."""
        return self.folder, frozenset(self.names), frozenset(self.aliases.items()), self.base

    def beside(self, name: str) -> "FileNames":
        """Return the names as links in a file of the folder use them."""
        base = name.rpartition("/")[0]
        if base == self.base:
            return self
        if base not in self._beside:
            self._beside[base] = replace(self, base=base)
        return self._beside[base]

    @cached_property
    def _has_subfolders(self) -> bool:
        """Whether a target may be a path with a slash."""
        return bool(self.base) or any("/" in name for name in self.names)

    @cached_property
    def _by_folded(self) -> dict[str, str | None]:
        """The file of each case-folded name; None if several files share it."""
        names: dict[str, str | None] = {}
        for name in self.names:
            folded = _folded(name)
            names[folded] = None if folded in names else name
        return names

    def file_of(self, target: str) -> str | None:
        """Return the file of a link target; None if no file matches.

        A file matches by its exact name, else by Unicode form or case if only one file does. A
        target without a slash and a suffix, such as that of ``[[name]]``, also matches the only
        file of that name in a subfolder.
        """
        if target not in self._resolved:
            self._resolved[target] = self._resolve(target)
        return self._resolved[target]

    def _resolve(self, target: str) -> str | None:
        """Return the file of a link target; None if no file matches."""
        for path in self._candidates(target):
            file = self._file_named(path)
            if file:
                return file
        if self._has_subfolders and _is_stem(target):
            return self._by_stem.get(_folded(target))
        return None

    def _candidates(self, target: str) -> Iterator[str]:
        """Yield the paths in the folder that a target may mean, in order of preference."""
        written = path_in_target(target)
        bare = re.split(r"[#?]", written, maxsplit=1)[0]
        for text in dict.fromkeys((written, bare, unquote(bare))):
            for path in self._paths_meant(text):
                yield path
                yield f"{path}{_SUFFIX}"

    def _paths_meant(self, text: str) -> Iterator[str]:
        """Yield the paths in the folder of a path in a link: from the base, and from the folder."""
        written = text.removeprefix("./")
        path = written.removeprefix(f"{self.folder}/")
        inner = path.removeprefix(f"{self.folder.name}/")
        if not self._has_subfolders:
            if 0 < len(inner) < _LONGEST_NAME and "/" not in inner:
                yield inner
            return
        is_too_long = any(len(part) >= _LONGEST_NAME for part in path.split("/"))
        if not path or path.startswith("/") or is_too_long:
            return
        from_base = f"{self.base}/{path}" if self.base and path == written else path
        for candidate in dict.fromkeys((from_base, path, inner)):
            normalized = normpath(candidate)
            if normalized.count("/") <= DEEPEST and not normalized.startswith("../"):
                yield normalized

    @cached_property
    def _by_stem(self) -> dict[str, str | None]:
        """The file in a subfolder of each case-folded last name; None if several files share it."""
        stems: dict[str, str | None] = {}
        for name in self.names:
            stem = _folded(name.rpartition("/")[2].removesuffix(_SUFFIX))
            stems[stem] = None if stem in stems or "/" not in name else name
        return stems

    def _file_named(self, path: str) -> str | None:
        """Return the file with a name; None if no file, or more than one, matches."""
        if path in self.names:
            return path
        return self._by_folded.get(_folded(path)) or self.aliases.get(path)


def mentions_in(text: str) -> tuple[Mention, ...]:
    """Return the files named in a text, in order: links, and a file name that begins an entry."""
    mentions = []
    for link in _LINK.finditer(text):
        mention = Mention(
            target=link["name"] or link["target"],
            start=link.start(),
            end=link.end(),
            label=link["label"] or (link["alias"] or link["name"] or "").strip(),
        )
        mentions.append(mention)
    item = _ITEM.match(text)
    leading_name = _LEADING_NAME.match(text, item.end()) if item else None
    if leading_name:
        name = leading_name["name"]
        start = leading_name.start("name")
        mention = Mention(
            target=name, start=start, end=start + len(name), label=name.removesuffix(_SUFFIX)
        )
        mentions.append(mention)
    return tuple(sorted(mentions, key=lambda mention: mention.start))


def name_in_link(target: str) -> str | None:
    """Return the Markdown file that the target of a link names; None if it names no file.

    >>> [name_in_link(target) for target in ("a.md", "<a b.md>", "./a%20b.md#c", "a", "https://x")]
    ['a.md', 'a b.md', 'a b.md', 'a.md', None]
    """
    written = target.strip().strip("<>")
    if not written or _SCHEME.match(written) or written.startswith("#"):
        return None
    name = unquote(re.split(r"[#?]", written, maxsplit=1)[0]).removeprefix("./")
    return name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"


def is_entry(line: str) -> bool:
    """Return whether a line is a list item, a table row, or begins with a link."""
    return bool(_ITEM.match(line) or _LEADING_LINK.match(line))


def is_wikilink(text: str, mention: Mention) -> bool:
    """Return whether a mention in a text has the form ``[[name]]``."""
    return text.startswith("[[", mention.start)


def inline_links(text: str, mentions: Iterable[Mention]) -> Iterator[Mention]:
    """Yield the mentions that Markdown renders as links: not code, images or array indexes.

    >>> text = "[a](b.md) `[c](d.md)` ![e](f.png) arr[i](cb) [[g]]"
    >>> [link.target for link in inline_links(text, mentions_in(text))]
    ['b.md']
    """
    code = _code_spans(text)
    for mention in mentions:
        is_link = text.startswith("[", mention.start) and not is_wikilink(text, mention)
        is_in_code = any(start <= mention.start < end for start, end in code)
        is_other_bracket = _NO_LINK_AFTER.match(text, max(mention.start - 1, 0)) is not None
        if is_link and not is_in_code and not is_other_bracket:
            yield mention


def _code_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each code span, between two equal runs of backticks."""
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
    """Return whether a target looks like the name of a file in the same folder."""
    path = target.strip().strip("<>")
    return bool(path) and not _SCHEME.match(path) and path[0] != "#" and "/" not in path


def path_below(target: str) -> str | None:
    """Return the path of a Markdown file in a subfolder that a link names; None for all else.

    >>> targets = ("infra/a.md#b", "./infra/a%20b.md", "a.md", "../docs/a.md", "/a/b.md", "a/b.py")
    >>> [path_below(target) for target in targets]
    ['infra/a.md', 'infra/a b.md', None, None, None, None]
    """
    if not is_inside(target):
        return None
    path = normpath(unquote(re.split(r"[#?]", path_in_target(target), maxsplit=1)[0]))
    is_below = "/" in path and not path.startswith(("../", "/", "~"))
    return path if is_below and path.endswith(_SUFFIX) else None


def is_inside(target: str) -> bool:
    """Return whether a target looks like the path of a file in the same folder or beside it."""
    path = target.strip().strip("<>")
    return is_local(path.replace("/", "-")) and not path.startswith("/")


def unlinked(text: str, files: Collection[str], names: FileNames) -> str | None:
    """Return a text with its links to files replaced by their labels; None if links are nested."""
    split = split_links(text, files, names)
    return None if split is None else split.text


class RemovedLink(NamedTuple):
    """A link that was removed from a text.

    Attributes
    ----------
    start, end : int
        The start and the end of its label in the text without links.
    original : str
        The link as it was written.
    target : str
        The target of the link.
    """

    start: int
    end: int
    original: str
    target: str


class Unlinked(NamedTuple):
    """A text without its links to some files, and these links in order."""

    text: str
    links: tuple[RemovedLink, ...]

    def linked(self, others: Iterable[RemovedLink] = ()) -> str | None:
        """Return the text with its links and `others` restored; None if two links overlap.

        >>> first = RemovedLink(2, 3, "[A](a.md)", "a.md")
        >>> second = RemovedLink(5, 6, "[B](b.md)", "b.md")
        >>> Unlinked("- A, B", (first,)).linked([second])
        '- [A](a.md), [B](b.md)'
        """
        pieces = []
        end = 0
        for link in sorted([*others, *self.links]):
            if link.start < end:
                return None
            pieces.append(self.text[end : link.start] + link.original)
            end = link.end
        return "".join([*pieces, self.text[end:]])


def split_links(text: str, files: Collection[str], names: FileNames) -> Unlinked | None:
    """Return a text split from its links to some files; None if links are nested."""
    remaining = ""
    links = []
    copied_to = 0  # the position in `text` up to which it was copied
    for mention in mentions_in(text):
        if names.file_of(mention.target) not in files:
            continue
        remaining += text[copied_to : mention.start]
        start = len(remaining)
        remaining += _label_without_file(mention, names)
        original = text[mention.start : mention.end]
        links.append(RemovedLink(start, len(remaining), original, mention.target))
        copied_to = mention.end
    remaining += text[copied_to:]
    # An inner link becomes visible only after the outer link was removed.
    if any(names.file_of(mention.target) in files for mention in mentions_in(remaining)):
        return None
    return Unlinked(remaining, tuple(links))


def first_heading(text: str) -> str:
    r"""Return the first heading of a text; empty for none.

    >>> first_heading("Words.\n## How to deploy ##\n")
    'How to deploy'
    """
    match = _TITLE_LINE.search(text)
    return "" if match is None else match["title"].strip().strip("#").strip()


def wikilinks_in(text: str) -> list[str]:
    """Return the names that a text links to, as in ``[[name]]``."""
    return [link["name"] for link in _WIKILINK.finditer(text)]


def _label_without_file(mention: Mention, names: FileNames) -> str:
    """Return the label that replaces a link; shorten it if it would name a file again."""
    bare = mention.label.strip("*_`~ \t")
    if bare.endswith(_SUFFIX) and names.file_of(bare) is not None:
        return mention.label.replace(bare, bare.removesuffix(_SUFFIX))
    return mention.label


def _folded(name: str) -> str:
    return normalize("NFC", name).casefold()


def path_in_target(target: str) -> str:
    """Return the target of a link without its title and its angle brackets.

    >>> path_in_target(' <a b.md> "Title"'), path_in_target("a.md#part")
    ('a b.md', 'a.md#part')
    """
    written = _TITLE.sub("", target.strip()).strip()
    if written.startswith("<") and written.endswith(">"):
        return written[1:-1]
    return written


def _is_stem(target: str) -> bool:
    """Return whether a target is a file name without a suffix."""
    return len(target) < _LONGEST_NAME and "/" not in target and not target.endswith(_SUFFIX)
