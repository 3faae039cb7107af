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

MAX_SUBFOLDERS: Final = 8
"""Maximum number of subfolders above a memory."""
MAX_FRONT_MATTER: Final = 2**16
"""Maximum length of front matter in characters, from the beginning of the file."""

_FRONT_MATTER_START: Final = re.compile(r"\ufeff?---[^\S\n]*\n")
_FRONT_MATTER_END: Final = re.compile(r"^(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.MULTILINE)
_FIELD_LINE: Final = re.compile(r"[ \t]*(?P<name>[A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(?P<value>.*))?$")
"""A line ``name: value`` of front matter; the value may be missing."""
_YAML_INDICATORS: Final = "[{-?:&*"
"""Characters that can begin a nested collection of YAML."""
_MAX_YAML_INDICATORS: Final = 500
"""Maximum number of these characters in front matter."""

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
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<title>\S[^\n]*)", re.MULTILINE)
_ITEM: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|[ \t]*\|")
"""The beginning of a list item, with its check box, or of a table row."""
_LEADING_LINK: Final = re.compile(r"[ \t>]*[*_~]{0,3}\[")
_LEADING_NAME: Final = re.compile(
    r"[ \t]*[*_`~]{0,4}(?P<name>(?:\w[\w.-]*/){0,8}\w[\w.-]*\.md)(?![\w/-])"
)
_LINK_TITLE: Final = re.compile(r"""(?<![ \t])[ \t]+(?:"[^"]*"|'[^']*')$""")
"""The title in the target of a link, as in ``(a.md "Title")``."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BACKTICKS: Final = re.compile("`+")
_NO_LINK_AFTER: Final = re.compile(r"[\w!)\]]")
"""A character before a bracket that makes it an image or an array index, not a link."""
_SUFFIX: Final = ".md"
_MAX_NAME: Final = 255
"""Maximum length of a file name in characters. Unicode normalization of longer texts takes
quadratic time."""


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
    begin = _FRONT_MATTER_START.match(text[:MAX_FRONT_MATTER])
    if begin is None:
        return FrontMatter({}, 0, "")
    remainder = text[begin.end() : MAX_FRONT_MATTER]
    end = _FRONT_MATTER_END.search(remainder)
    if end is not None:
        block = remainder[: end.start()]
        text_at = begin.end() + end.end()
        problem = ""
    else:
        lines = remainder.splitlines(keepends=True)
        block = "".join(takewhile(lambda line: _FIELD_LINE.match(line.rstrip("\r\n")), lines))
        text_at = 0
        problem = "it does not end" if block else ""
    # Nested collections take PyYAML quadratic time and can exhaust the stack.
    indicator_count = sum(block.count(character) for character in _YAML_INDICATORS)
    if indicator_count > _MAX_YAML_INDICATORS and not problem:
        problem = "it has more brackets and colons than anybody writes"
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
        match = _FIELD_LINE.match(line.rstrip())
        if match is None or not match["value"]:
            continue
        value = match["value"].strip()
        is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
        if is_quoted:
            value = value[1:-1]
        fields.setdefault(match["name"], value)
    return fields


class Mention(NamedTuple):
    """A mention of a file in a text.

    Attributes
    ----------
    target : str
        The target of the link, or the file name.
    start, end : int
        The start and the end of the mention in the text.
    label : str
        The text that a reader sees instead of the target.
    """

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
    files : collection of str
        Paths of the files in the folder.
    aliases : mapping of str to str
        The files by their other names, such as the name in front matter.
    base : str
        The subfolder to which links are relative, by its path in the folder; empty for the folder
        itself.
    """

    folder: Path
    files: Collection[str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    _resolved: dict[str, str | None] = field(default_factory=dict, init=False, compare=False)
    _by_base: dict[str, "FileNames"] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def identity(self) -> tuple[Path, frozenset[str], frozenset[tuple[str, str]], str]:
        """A hashable value that is equal for equal names."""
        return self.folder, frozenset(self.files), frozenset(self.aliases.items()), self.base

    def for_links_in(self, name: str) -> "FileNames":
        """Return the names for links in a file of the folder, which are relative to that file."""
        base = name.rpartition("/")[0]
        if base == self.base:
            return self
        if base not in self._by_base:
            self._by_base[base] = replace(self, base=base)
        return self._by_base[base]

    @cached_property
    def _has_subfolders(self) -> bool:
        """Whether a target may be a path with a slash."""
        return bool(self.base) or any("/" in name for name in self.files)

    @cached_property
    def _file_by_folded_name(self) -> dict[str, str | None]:
        """The file of each case-folded name; None if several files share it."""
        file_by_name: dict[str, str | None] = {}
        for name in self.files:
            folded = _folded(name)
            file_by_name[folded] = None if folded in file_by_name else name
        return file_by_name

    def file_of(self, target: str) -> str | None:
        """Return the file of a link target; None if no file matches.

        A file matches by its exact name. A name that differs in case or in Unicode form matches if
        only one file has it. A target without a slash and a suffix, such as that of ``[[name]]``,
        also matches the only file of that name in a subfolder.
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
            return self._file_by_stem.get(_folded(target))
        return None

    def _candidates(self, target: str) -> Iterator[str]:
        """Yield the paths in the folder that a target may mean, in order of preference."""
        path_as_written = path_in_target(target)
        without_anchor = re.split(r"[#?]", path_as_written, maxsplit=1)[0]
        for text in dict.fromkeys((path_as_written, without_anchor, unquote(without_anchor))):
            for path in self._paths_in_folder(text):
                yield path
                yield f"{path}{_SUFFIX}"

    def _paths_in_folder(self, text: str) -> Iterator[str]:
        """Yield the paths in the folder that a path in a link may mean.

        The path may be relative to the base, to the folder or to the parent of the folder, or
        absolute.
        """
        path_as_written = text.removeprefix("./")
        path = path_as_written.removeprefix(f"{self.folder}/")
        path_from_parent = path.removeprefix(f"{self.folder.name}/")
        if not self._has_subfolders:
            if 0 < len(path_from_parent) <= _MAX_NAME and "/" not in path_from_parent:
                yield path_from_parent
            return
        is_too_long = any(len(part) > _MAX_NAME for part in path.split("/"))
        if not path or path.startswith("/") or is_too_long:
            return
        is_absolute = path != path_as_written
        path_from_base = f"{self.base}/{path}" if self.base and not is_absolute else path
        for candidate in dict.fromkeys((path_from_base, path, path_from_parent)):
            normalized = normpath(candidate)
            if normalized.count("/") <= MAX_SUBFOLDERS and not normalized.startswith("../"):
                yield normalized

    @cached_property
    def _file_by_stem(self) -> dict[str, str | None]:
        """The file of each case-folded last name without a suffix, for files in subfolders.

        The value is None if several files share the name, or if the file is in no subfolder.
        """
        file_by_stem: dict[str, str | None] = {}
        for name in self.files:
            stem = _folded(name.rpartition("/")[2].removesuffix(_SUFFIX))
            is_unique = stem not in file_by_stem
            file_by_stem[stem] = name if is_unique and "/" in name else None
        return file_by_stem

    def _file_named(self, path: str) -> str | None:
        """Return the file with a name; None if no file, or more than one, matches."""
        if path in self.files:
            return path
        return self._file_by_folded_name.get(_folded(path)) or self.aliases.get(path)


def mentions_in(text: str) -> tuple[Mention, ...]:
    """Return the files named in a text, in order: links, and a file name that begins an entry."""
    mentions = []
    for link in _LINK.finditer(text):
        mention = Mention(
            target=link["name"] or link["target"],
            start=link.start(),
            end=link.end(),
            label=_label_of(link),
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


def _label_of(link: re.Match[str]) -> str:
    """Return the label of a link; for ``[[name]]``, the alias or the name."""
    if link["label"]:
        return link["label"]
    return (link["alias"] or link["name"] or "").strip()


def name_in_link(target: str) -> str | None:
    """Return the Markdown file that the target of a link names; None if it names no file.

    >>> [name_in_link(target) for target in ("a.md", "<a b.md>", "./a%20b.md#c", "a", "https://x")]
    ['a.md', 'a b.md', 'a b.md', 'a.md', None]
    """
    path = target.strip().strip("<>")
    if not path or _SCHEME.match(path) or path.startswith("#"):
        return None
    name = unquote(re.split(r"[#?]", path, maxsplit=1)[0]).removeprefix("./")
    return name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"


def begins_item(line: str) -> bool:
    """Return whether a line begins a list item, is a table row, or begins with a link."""
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
    code_spans = _code_spans(text)
    for mention in mentions:
        is_link = text.startswith("[", mention.start) and not is_wikilink(text, mention)
        is_in_code = any(span.start <= mention.start < span.end for span in code_spans)
        is_other_bracket = _NO_LINK_AFTER.match(text, max(mention.start - 1, 0)) is not None
        if is_link and not is_in_code and not is_other_bracket:
            yield mention


class _CodeSpan(NamedTuple):
    """The start and the end of a code span in a text."""

    start: int
    end: int


def _code_spans(text: str) -> list[_CodeSpan]:
    """Return the code spans of a text, each from one run of backticks to the next equal one."""
    spans = []
    opening: re.Match[str] | None = None
    for run in _BACKTICKS.finditer(text):
        if opening is None:
            opening = run
        elif run[0] == opening[0]:
            spans.append(_CodeSpan(opening.start(), run.end()))
            opening = None
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
    """Return whether a target looks like a relative path of a file."""
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
    copied_end = 0  # the end of the part of `text` that was copied
    for mention in mentions_in(text):
        if names.file_of(mention.target) not in files:
            continue
        remaining += text[copied_end : mention.start]
        start = len(remaining)
        remaining += _label_without_file(mention, names)
        original = text[mention.start : mention.end]
        links.append(RemovedLink(start, len(remaining), original, mention.target))
        copied_end = mention.end
    remaining += text[copied_end:]
    # An inner link becomes visible only after the outer link was removed.
    if any(names.file_of(mention.target) in files for mention in mentions_in(remaining)):
        return None
    return Unlinked(remaining, tuple(links))


def first_heading(text: str) -> str:
    r"""Return the first heading of a text; empty for none.

    >>> first_heading("Words.\n## How to deploy ##\n")
    'How to deploy'
    """
    match = _HEADING.search(text)
    return "" if match is None else match["title"].strip().strip("#").strip()


def wikilinks_in(text: str) -> list[str]:
    """Return the names that a text links to, as in ``[[name]]``."""
    return [link["name"] for link in _WIKILINK.finditer(text)]


def _label_without_file(mention: Mention, names: FileNames) -> str:
    """Return the label that replaces a link; shorten it if it would name a file again."""
    words = mention.label.strip("*_`~ \t")
    if words.endswith(_SUFFIX) and names.file_of(words) is not None:
        return mention.label.replace(words, words.removesuffix(_SUFFIX))
    return mention.label


def _folded(name: str) -> str:
    """Return a name in a form that is equal for names that differ in case or Unicode form."""
    return normalize("NFC", name).casefold()


def path_in_target(target: str) -> str:
    """Return the target of a link without its title and its angle brackets.

    >>> path_in_target(' <a b.md> "Title"'), path_in_target("a.md#part")
    ('a b.md', 'a.md#part')
    """
    path = _LINK_TITLE.sub("", target.strip()).strip()
    if path.startswith("<") and path.endswith(">"):
        return path[1:-1]
    return path


def _is_stem(target: str) -> bool:
    """Return whether a target is a file name without a suffix."""
    return len(target) <= _MAX_NAME and "/" not in target and not target.endswith(_SUFFIX)
