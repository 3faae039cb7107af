"""Parse and edit ``MEMORY.md``: which lines are loaded, and which lines are about each file.

Claude Code drops front matter and block comments. It loads the first 200 lines of the rest, and
cuts these to 25,000 UTF-16 units, at the end of a line. A restore inserts the blocks of a file at
their former lines if the index is otherwise unchanged. Otherwise it inserts each block beside the
nearest lines that surrounded it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import Enum, StrEnum
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memlab.store.shapes import boolean, fields, integer, list_of, non_empty, raw_text, text
from memlab.systems.claude_code import markdown

INDEX: Final = "MEMORY.md"
RETIRED: Final = "RETIRED.md"
"""The file beside the index that holds the lines of retired memories. It is not a memory."""

check_entry: Final = fields(
    {
        "line": integer(0, 2**31),
        "text": non_empty(raw_text),
        "entry": boolean,
        "whole": text,
        "also": text,
        **dict.fromkeys(("files", "above", "below"), list_of(text)),
    },
    may_be_absent={"also"},
)
"""Check one index entry in an archive or a journal. The input may be untrusted.

The keys are: ``line``, the number of its first line, from 0; ``text``, its lines; ``entry``, see
:attr:`Block.is_entry`; ``files``, the files that it names; ``above`` and ``below``, the digests of
the lines around it, the nearest first; ``whole``, the digest of the index; ``also``, the name in
the front matter of the file.
"""

MASK: Final = "\0"
"""Placeholder for each character of front matter and comments."""

_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r" {0,3}<!--")
_COMMENTS: Final = re.compile(r"<!--.*?(?:(-->)|\Z)", re.DOTALL)
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t\r\n]|\Z)")
_DEEPEST_HEADING_LEVEL: Final = 6
_NEIGHBOURS: Final = 100
"""Number of lines above a block, and below it, whose digests are stored."""
_BLANK_LINE: Final = "\n"
"""Inserted as the first line so that the next line is not parsed as front matter."""
_NEVER_CONTINUES: Final = ("#", "```", "~~~", "<!--", "|")
"""Prefixes of lines that never continue an entry, at any indentation."""


@dataclass(frozen=True)
class LoadRule:
    """The limits of the part of the index that is loaded."""

    lines: int = 200
    """Maximum number of lines."""
    units: int = 25_000
    """Maximum number of UTF-16 units."""


CLAUDE_CODE: Final = LoadRule()


class State(StrEnum):
    """How Claude Code treats a line at start."""

    LOADED = "loaded"
    CUT = "cut"
    """The line is beyond the limits, in whole or in part."""
    UNSEEN = "unseen"
    """The line is front matter or a comment."""


class Block(NamedTuple):
    """A line, or a list entry together with its continuation lines."""

    number: int
    """The number of its first line, from 1."""
    text: str
    """Its lines, with their line ends."""
    state: State
    is_entry: bool
    """Whether it is an item without items nested below it."""
    mentions: tuple[markdown.Mention, ...]
    """The links and file names in it, without those in comments."""

    def files(self, names: markdown.FileNames) -> list[str]:
        """Return the files of the folder that the block names, without duplicates."""
        targets = (names.file_of(mention.target) for mention in self.mentions)
        return list(dict.fromkeys(file for file in targets if file is not None))

    @property
    def is_item(self) -> bool:
        """Whether the block is an item: of a list, with or without nested items, or a table row."""
        return self.state is not State.UNSEEN and markdown.begins_item(self.text)

    @property
    def indent(self) -> int:
        """Indentation in columns."""
        return _indent(self.text)

    def subject(self, names: markdown.FileNames) -> str | None:
        """Return the file that the entry is about, which is the first file it names.

        Return None if the block is no entry, names no file, or names the file as ``[[name]]``.
        """
        if not self.is_item:
            return None
        for mention in self.mentions:
            file = names.file_of(mention.target)
            if file is not None:
                return None if markdown.is_wikilink(self.text, mention) else file
        return None

    def without(self, removed: Collection[str], names: markdown.FileNames) -> str | None:
        """Return the text without links to removed files; None for an entry of only such files."""
        files = self.files(names)
        if not any(file in removed for file in files):
            return self.text
        if self.is_entry and all(file in removed for file in files):
            return None
        return markdown.unlinked(self.text, removed, names)


class IndexLink(NamedTuple):
    """A Markdown link of the index: the number of its line, from 1, and its target."""

    line: int
    target: str


@dataclass(frozen=True)
class MemoryIndex:
    """The parsed index file."""

    raw: bytes
    """The bytes of the file."""
    rule: LoadRule = CLAUDE_CODE
    """The limits of the part that is loaded."""

    @cached_property
    def text(self) -> str:
        """The text without front matter and comments, before the limits apply."""
        return "".join(self._visible_lines).strip()

    @cached_property
    def loaded(self) -> str:
        """The text that is loaded at start."""
        lines = self.text.split("\n")[: self.rule.lines]
        return _within_units("\n".join(lines), self.rule.units)

    @cached_property
    def states(self) -> list[State]:
        """The state of each line."""
        is_all_loaded = self.loaded == self.text
        visible_text = "".join(self._visible_lines)
        text_start = len(visible_text) - len(visible_text.lstrip())
        loaded_end = text_start + len(self.loaded)
        states = list[State]()
        line_start = 0
        for line in self._visible_lines:
            line_end = line_start + len(line.rstrip())
            if not line:
                states.append(State.UNSEEN)
            elif is_all_loaded or line_end <= loaded_end:
                states.append(State.LOADED)
            else:
                states.append(State.CUT)
            line_start += len(line)
        return states

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks of the file, in order."""
        lines = self._lines
        begins_item = [
            state is not State.UNSEEN and markdown.begins_item(line)
            for line, state in zip(self._masked_lines, self.states, strict=True)
        ]
        blocks = []
        start = 0
        while start < len(lines):
            end = self._block_end(start, begins_item)
            is_above_item = end < len(lines) and begins_item[end]
            has_child = is_above_item and _indent(lines[end]) > _indent(lines[start])
            visible_text = "".join(self._masked_lines[start:end]).replace(MASK, " ")
            block = Block(
                number=start + 1,
                text="".join(lines[start:end]),
                state=self.states[start],
                is_entry=begins_item[start] and not has_child,
                mentions=markdown.mentions_in(visible_text),
            )
            blocks.append(block)
            start = end
        return tuple(blocks)

    def _block_end(self, start: int, begins_item: Sequence[bool]) -> int:
        """Return the number of the line after the block that starts at a line, both from 0."""
        end = start + 1
        if not begins_item[start]:
            return end
        while end < len(self._lines) and not begins_item[end]:
            is_same_state = self.states[end] is self.states[start]
            if not is_same_state or not _continues(self._lines[end]):
                break
            end += 1
        return end

    @cached_property
    def digest(self) -> str:
        """The digest of the file, which every stored entry contains."""
        return digest_of(self.raw)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each line; empty for a blank line."""
        return [digest_of(encoded(line)) if line.strip() else "" for line in self._lines]

    def blocks_by_file(self, names: markdown.FileNames) -> dict[str, list[Block]]:
        """Return the blocks that name each file; a file without a block has no key."""
        blocks_by_file: dict[str, list[Block]] = {}
        for block, files in self.blocks_with_files(names):
            for file in files:
                blocks_by_file.setdefault(file, []).append(block)
        return blocks_by_file

    def cut_files(self, names: markdown.FileNames) -> list[str]:
        """Return the files that are named only in lines that a start does not load."""
        return [
            name
            for name, blocks in self.blocks_by_file(names).items()
            if {block.state for block in blocks} == {State.CUT}
        ]

    def blocks_with_files(self, names: markdown.FileNames) -> list[tuple[Block, list[str]]]:
        """Return each block with the files that it names.

        The result is cached, because one command looks at the same index several times.
        """
        cache = self._blocks_with_files_cache
        if names.identity not in cache:
            cache[names.identity] = [(block, block.files(names)) for block in self.blocks]
        return cache[names.identity]

    @cached_property
    def _blocks_with_files_cache(self) -> dict[object, list[tuple[Block, list[str]]]]:
        """The results of :meth:`blocks_with_files` by the identity of the names."""
        return {}

    def dangling(self, names: markdown.FileNames) -> list[IndexLink]:
        """Return the Markdown links to missing files, outside of code blocks."""
        return [link for link in self._local_links if not names.file_of(link.target)]

    @cached_property
    def _local_links(self) -> list[IndexLink]:
        """The Markdown links to files, outside of code blocks."""
        return [link for link in self.links if markdown.is_local(link.target)]

    @cached_property
    def links(self) -> list[IndexLink]:
        """All Markdown links, outside of code blocks."""
        links = []
        for block in self.blocks:
            if not self.is_code(block.number):
                inline_links = markdown.inline_links(block.text, block.mentions)
                links += [IndexLink(block.number, link.target) for link in inline_links]
        return links

    @cached_property
    def is_prose(self) -> bool:
        r"""Whether the index is itself the memory: most of its text links no file.

        Headings and blank lines are not counted.

        >>> MemoryIndex(b"# Build\nUse make.\n").is_prose, MemoryIndex(b"- [A](a.md)\n").is_prose
        (True, False)
        """
        chars = 0
        chars_with_link = 0
        for block in self.blocks:
            if block.state is State.UNSEEN or is_heading(block.text):
                continue
            length = len(block.text.strip())
            chars += length
            if any(markdown.is_local(mention.target) for mention in block.mentions):
                chars_with_link += length
        return chars > 2 * chars_with_link

    def is_code(self, number: int) -> bool:
        """Return whether a line, numbered from 1, is in a fenced code block."""
        return self._is_code[number - 1]

    def files_with_entry(self, names: markdown.FileNames) -> set[str]:
        """Return the files that have an entry of their own."""
        subjects = (block.subject(names) for block in self.blocks)
        return {file for file in subjects if file is not None}

    def without(self, removed: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without the entries and links of removed files.

        Add a blank first line if the remaining text would otherwise begin with front matter.
        """
        texts = [block.without(removed, names) for block in self.blocks]
        text = self._joined(texts, removed, names)
        had_front_matter = markdown.read_front_matter("".join(self._lines)).text_at > 0
        has_front_matter = markdown.read_front_matter(text).text_at > 0
        if has_front_matter and not had_front_matter:
            text = _BLANK_LINE + text
        return encoded(text)

    def without_own(self, removed: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without the entries whose first file is removed."""
        texts = []
        for block in self.blocks:
            is_own = _first_file(block, names) in removed
            texts.append(block.without(removed, names) if is_own else block.text)
        return encoded(self._joined(texts, removed, names))

    def _joined(
        self, texts: Sequence[str | None], removed: Collection[str], names: markdown.FileNames
    ) -> str:
        """Return the remaining text, without parents that no longer name any file.

        Parameters
        ----------
        texts : sequence of (str or None)
            The remaining text of each block; None for a removed block.
        removed : collection of str
            The removed files.
        names : FileNames
            The names by which links refer to files.
        """
        remaining = list(texts)
        # From the bottom up, so that nested parents are removed before the parent above them.
        for number in reversed(range(len(remaining))):
            if self._is_emptied_parent(number, remaining, removed, names):
                remaining[number] = None
        return "".join(text for text in remaining if text is not None)

    def _is_emptied_parent(
        self,
        number: int,
        texts: Sequence[str | None],
        removed: Collection[str],
        names: markdown.FileNames,
    ) -> bool:
        """Return whether a block lost its links, names no other file, and lost all nested items."""
        block = self.blocks[number]
        is_parent = block.is_item and not block.is_entry
        is_changed = texts[number] != block.text
        if not is_parent or not is_changed:
            return False
        if not all(file in removed for file in block.files(names)):
            return False
        for child_number in range(number + 1, len(texts)):
            child = self.blocks[child_number]
            if not child.is_item or child.indent <= block.indent:
                return True
            if texts[child_number] is not None:
                return False
        return True

    @cached_property
    def _is_code(self) -> list[bool]:
        """For each line, whether it is in a fenced code block."""
        is_code = []
        open_fence = ""
        for line in self._masked_lines:
            fence = _FENCE.match(line)
            is_code.append(bool(open_fence or fence))
            if fence:
                open_fence = _open_fence_after(open_fence, fence[1])
        return is_code

    @cached_property
    def _lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def _masked_lines(self) -> list[str]:
        """Each line, with front matter and comments masked."""
        return [line for line, _ in _masked_lines(self._lines)]

    @cached_property
    def _visible_lines(self) -> list[str]:
        """Each line without front matter and comments."""
        return [line.replace(MASK, "") for line in self._masked_lines]


class Section(NamedTuple):
    """A heading of an index and the text below it.

    Attributes
    ----------
    line : int
        Number of its first line.
    title : str
        The heading; empty for the text before the first one.
    text : str
        The heading and the text, without front matter and comments.
    loaded : str
        The part of `text` that a start loads.
    """

    line: int
    title: str
    text: str
    loaded: str


def sections_of(index: MemoryIndex) -> list[Section]:
    r"""Return the sections of an index, from top to bottom.

    >>> index = MemoryIndex(b"Use make.\n# Deploy\nAsk first.\n", LoadRule(lines=2))
    >>> [(section.title, section.loaded) for section in sections_of(index)]
    [('', 'Use make.\n'), ('Deploy', '# Deploy\n')]
    """
    sections: list[Section] = []
    for block in index.blocks:
        if block.state is State.UNSEEN:
            continue
        starts_section = is_heading(block.text) and not index.is_code(block.number)
        if starts_section or not sections:
            title = block.text.strip().strip("#").strip() if starts_section else ""
            sections.append(Section(block.number, title, "", ""))
        section = sections[-1]
        loaded = block.text if block.state is State.LOADED else ""
        sections[-1] = section._replace(
            text=section.text + block.text, loaded=section.loaded + loaded
        )
    return [section for section in sections if section.text.strip()]


def is_heading(line: str) -> bool:
    r"""Return whether a line is a heading.

    >>> is_heading("## Deploy\n"), is_heading("#hashtag\n")
    (True, False)
    """
    return _HEADING.match(line) is not None


def find_empty_headings(index: MemoryIndex) -> list[int]:
    r"""Return the numbers of the blocks that are headings with nothing below them, from 0.

    A heading with a link is not empty. A heading that begins the index is its title and stays.

    >>> find_empty_headings(MemoryIndex(b"# Memory\n## Empty\n## Full\n- [A](a.md)\n"))
    [1]
    """
    empty = []
    first_block = 0
    # From the bottom up. A heading in the next line above has something below it if it is of this
    # level, or of a smaller one: `#` is level 1.
    deepest_filled_level = 0
    for number in reversed(range(len(index.blocks))):
        block = index.blocks[number]
        if block.state is State.UNSEEN or not block.text.strip():
            continue
        first_block = number
        if index.is_code(block.number) or not is_heading(block.text):
            deepest_filled_level = _DEEPEST_HEADING_LEVEL
            continue
        heading = block.text.lstrip()
        level = len(heading) - len(heading.lstrip("#"))
        if level > deepest_filled_level and not block.mentions:
            empty.append(number)
        else:
            deepest_filled_level = level - 1
    if first_block in empty:
        empty.remove(first_block)
    return empty[::-1]


def units_of(text: str) -> int:
    """Return the length of a text in UTF-16 units, the unit of the load limit."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def line_of_open_comment(lines: Sequence[str]) -> int:
    r"""Return the number of the line whose comment never ends; 0 for none.

    >>> line_of_open_comment(["# Index\n", "<!-- for people\n", "- [A](a.md)\n"])
    2
    """
    first_line = 0
    for number, masked_line in enumerate(_masked_lines(lines), start=1):
        if not masked_line.is_comment_open:
            first_line = 0
        elif not first_line:
            first_line = number
    return first_line


class _MaskedLine(NamedTuple):
    """A line with front matter and comments masked, and whether a comment continues below it.

    The text has the length of the line.
    """

    text: str
    is_comment_open: bool


def _masked_lines(lines: Sequence[str]) -> Iterator[_MaskedLine]:
    """Yield each line with front matter and comments masked."""
    front_matter_end = markdown.read_front_matter("".join(lines)).text_at
    line_end = 0
    in_comment = False
    open_fence = ""
    for line in lines:
        line_end += len(line)
        fence = _FENCE.match(line)
        if line_end <= front_matter_end:
            yield _MaskedLine(MASK * len(line), in_comment)
        elif fence and not in_comment:
            open_fence = _open_fence_after(open_fence, fence[1])
            yield _MaskedLine(line, in_comment)
        elif in_comment or (not open_fence and _COMMENT.match(line)):
            masked_line = _without_comments(line, in_comment=in_comment)
            in_comment = masked_line.is_comment_open
            yield masked_line
        else:
            yield _MaskedLine(line, in_comment)


def _open_fence_after(open_fence: str, fence: str) -> str:
    """Return the code fence that is open after a line with `fence`; empty if none is."""
    if open_fence == fence:
        return ""
    return open_fence or fence


def _without_comments(line: str, *, in_comment: bool) -> _MaskedLine:
    """Return a line with its comments masked; without other text, the whole line is masked."""
    # In a comment, the line is read as if the comment began right before it.
    opening = "<!--" if in_comment else ""
    is_open = False
    for comment in _COMMENTS.finditer(opening + line):
        is_open = comment[1] is None
    masked = _COMMENTS.sub(lambda comment: MASK * len(comment[0]), opening + line)
    text = masked[len(opening) :]
    if not text.replace(MASK, "").strip():
        text = MASK * len(line)
    return _MaskedLine(text, is_open)


def _within_units(text: str, limit: int) -> str:
    """Return the beginning of a text within `limit` UTF-16 units, cut at the end of a line."""
    if units_of(text) <= limit:
        return text
    # A character has at least one unit, and a unit has two bytes.
    encoded_beginning = text[: limit + 1].encode("utf-16-le", "surrogatepass")
    beginning = encoded_beginning[: 2 * limit].decode("utf-16-le", "ignore")
    length = len(beginning)
    line_end_at = text.rfind("\n", 0, length + 1)
    return text[:line_end_at] if line_end_at > 0 else text[:length]


def lines_of(raw: bytes | str) -> list[str]:
    """Return the lines of a file with their line ends; joined, they are the file."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def encoded(text: str) -> bytes:
    """Return the bytes of a text; undecodable bytes of a file are restored."""
    return text.encode("utf-8", "surrogateescape")


def line_end(raw: bytes) -> str:
    """Return the line end that an index uses."""
    return "\r\n" if b"\r\n" in raw else "\n"


def joined(parts: Sequence[str], *, like: bytes) -> str:
    r"""Return lines or blocks as a text, with a line end after the last one if `like` has one.

    >>> joined(["- a", "- b"], like=b"- c\r\n- d")
    '- a\r\n- b'
    """
    if not parts:
        return ""
    end = line_end(like)
    *parts_above, last = parts
    ended_parts = [part if part.endswith("\n") else part + end for part in parts_above]
    if like and not like.endswith(b"\n"):
        last = re.sub(r"\r?\n\Z", "", last)
    elif not last.endswith("\n"):
        last += end
    return "".join([*ended_parts, last])


def _continues(line: str) -> bool:
    """Return whether a line continues the entry above it."""
    is_indented = line[0] in " \t" and bool(line.strip())
    return is_indented and not line.lstrip().startswith(_NEVER_CONTINUES)


def _indent(line: str) -> int:
    """Return the indentation of a line in columns."""
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


IndexEntry = Mapping[str, Any]
"""A block that names files, and the lines around it, in the shape of :data:`check_entry`."""
Entries = Mapping[str, Sequence[IndexEntry]]
"""The entries of each file, as :func:`entries_of` returns them."""
NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})


def entries_of(index: MemoryIndex, names: markdown.FileNames) -> dict[str, Sequence[IndexEntry]]:
    """Return the index entries of each file that the index names, to be stored."""
    alias_of = {file: alias for alias, file in names.aliases.items()}
    entries: dict[str, Sequence[IndexEntry]] = {}
    for file, blocks in index.blocks_by_file(names).items():
        entries_of_file = [_entry_of(index, names, block) for block in blocks]
        if file in alias_of:
            for entry in entries_of_file:
                entry["also"] = alias_of[file]
        entries[file] = entries_of_file
    return entries


def _entry_of(index: MemoryIndex, names: markdown.FileNames, block: Block) -> dict[str, Any]:
    """Return a block as an index entry, with the digests of the lines around it."""
    start = block.number - 1
    end = start + len(lines_of(block.text))
    digests_above = index.digests[max(start - _NEIGHBOURS, 0) : start]
    digests_below = index.digests[end : end + _NEIGHBOURS]
    return {
        "line": start,
        "text": block.text,
        "entry": block.is_entry,
        "files": block.files(names),
        # Both lists begin with the nearest line. Blank lines have no digest.
        "above": [digest for digest in reversed(digests_above) if digest],
        "below": [digest for digest in digests_below if digest],
        "whole": index.digest,
    }


def names_of(
    entries: Entries,
    file_names: Iterable[str],
    folder: Path,
    aliases: Mapping[str, str] = NO_ALIASES,
) -> markdown.FileNames:
    """Return the names by which links may refer to the files of a folder and of `entries`."""
    all_aliases = dict(aliases)
    for file, entries_of_file in entries.items():
        for entry in entries_of_file:
            if "also" in entry:
                all_aliases[str(entry["also"])] = file
    return markdown.FileNames(folder, {*file_names, *entries}, all_aliases)


def are_entries_unchanged(raw: bytes, expected: Entries, names: markdown.FileNames) -> bool:
    """Return whether the index entries of files have the same texts as `expected`, in any place."""
    blocks_by_file = MemoryIndex(raw).blocks_by_file(names)
    for file, entries in expected.items():
        current_texts = sorted(block.text for block in blocks_by_file.get(file, ()))
        expected_texts = sorted(str(entry["text"]) for entry in entries)
        if current_texts != expected_texts:
            return False
    return True


def remove_entries(raw: bytes, files: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index without the entries and links of files."""
    return MemoryIndex(raw).without(files, names)


def remove_own_entries(raw: bytes, files: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index without the entries that name one of `files` first; other mentions stay."""
    return MemoryIndex(raw).without_own(files, names)


def own_texts(raw: bytes, names: markdown.FileNames) -> dict[str, list[str]]:
    """Return the texts of the entries that name each file first."""
    texts: dict[str, list[str]] = {}
    for block in MemoryIndex(raw).blocks:
        file = _first_file(block, names)
        if file is not None:
            texts.setdefault(file, []).append(block.text)
    return texts


def _first_file(block: Block, names: markdown.FileNames) -> str | None:
    """Return the first file that an entry names; None for another block."""
    files = block.files(names) if block.is_item else []
    return files[0] if files else None


def insert_entries(raw: bytes, entries_by_file: Entries, names: markdown.FileNames) -> bytes:
    """Return an index with the entries of files restored.

    Skip the files that already have an entry of their own. First try to rebuild the index byte for
    byte; if it has changed otherwise, insert each entry at the best matching place.
    """
    files_with_entries = {file for file, entries in entries_by_file.items() if entries}
    missing_files = files_with_entries - MemoryIndex(raw).files_with_entry(names)
    # An entry that names several files is restored once.
    entries = {}
    for file in missing_files:
        for entry in entries_by_file[file]:
            entries[entry["line"], entry["text"]] = entry
    if not entries:
        return raw
    all_files = set(names.files)
    for entry in entries.values():
        all_files.update(entry["files"])
    all_names = replace(names, files=all_files)
    restored_entries = [
        _restored_entry(entry, missing_files, names, all_names)
        for _, entry in sorted(entries.items(), key=lambda item: item[0])
    ]
    for removal in _Removal:
        index = _rebuilt_exactly(raw, restored_entries, removal)
        if index is not None:
            return index
    draft = _Draft(raw, all_names)
    for restored in restored_entries:
        draft.restore(restored)
    # An entry that was inserted into a comment names nothing. Append it to the file again.
    for restored in _unnamed_entries(draft, restored_entries, missing_files, all_names):
        draft.insert(draft.end, restored.lines)
    # If that end is in a comment too, add a plain link at the top.
    for file in sorted(missing_files - MemoryIndex(draft.raw).blocks_by_file(all_names).keys()):
        draft.insert(draft.top, [f"- [{file}](<{file}>)\n"])
    return draft.raw


class _RestoredEntry(NamedTuple):
    """An index entry that is restored.

    Attributes
    ----------
    entry : mapping
        The entry as it was stored.
    lines : list of str
        The lines to insert; links to missing files are plain words.
    lines_without_links : list of str
        The lines without the links to restored files, as they may be in the index now.
    bare_lines : list of str
        The lines without links to any file, removed or not; empty if links are nested, so that
        more than one text is possible.
    may_be_bare : bool
        Whether a removal can leave the lines of this entry without any link. It deletes a list
        entry that names removed files only.
    names_only_removed : bool
        Whether it is an item that names removed memories only.
    is_parent : bool
        Whether it is a sentence, or an item with items nested below it.
    """

    entry: IndexEntry
    lines: list[str]
    lines_without_links: list[str]
    bare_lines: list[str]
    may_be_bare: bool
    names_only_removed: bool
    is_parent: bool

    def remains_after(self, removal: "_Removal") -> list[str]:
        """Return the lines that remain in the index after a removal of a kind."""
        if removal is _Removal.LINKS or not self.names_only_removed:
            return self.lines_without_links
        if self.is_parent and removal is _Removal.ENTRIES:
            return self.lines_without_links
        return []


class _Removal(Enum):
    """Kinds of removal, by the lines that they delete."""

    ENTRIES = "deletes entries that name removed memories only, and no parents"
    PARENTS = (
        "deletes entries that name removed memories only, and parents without remaining entries"
    )
    LINKS = "deletes no lines, only links"


def _unnamed_entries(
    draft: "_Draft",
    restored_entries: Sequence[_RestoredEntry],
    missing_files: Collection[str],
    names: markdown.FileNames,
) -> list[_RestoredEntry]:
    """Return the entries with a missing file that a draft does not name yet."""
    unnamed = set(missing_files) - MemoryIndex(draft.raw).blocks_by_file(names).keys()
    return [
        restored for restored in restored_entries if unnamed.intersection(restored.entry["files"])
    ]


def _restored_entry(
    entry: IndexEntry,
    restored_files: Collection[str],
    names: markdown.FileNames,
    all_names: markdown.FileNames,
) -> _RestoredEntry:
    """Return an entry with its lines in each form that a restore compares.

    Parameters
    ----------
    entry : mapping
        The entry as it was stored.
    restored_files : collection of str
        The files whose entries are restored.
    names : FileNames
        The names of the files that exist.
    all_names : FileNames
        The names of these files and of all files in entries.
    """
    text = str(entry["text"])
    has_no_nested_items = entry["entry"]
    not_existing = {file for file in entry["files"] if file not in names.files}
    removed = not_existing.union(restored_files).intersection(entry["files"])
    text_to_insert = markdown.unlinked(text, not_existing, all_names)
    text_without_links = markdown.unlinked(text, removed, all_names)
    bare_text = markdown.unlinked(text, all_names.files, all_names)
    # Earlier versions kept an entry without memories if it contained anything like a link.
    targets = [mention.target for mention in markdown.mentions_in(text)]
    has_dangling_link = any(
        markdown.is_local(target) and all_names.file_of(target) is None for target in targets
    )
    return _RestoredEntry(
        entry=entry,
        lines=lines_of(text if text_to_insert is None else text_to_insert),
        lines_without_links=lines_of(text_without_links or ""),
        bare_lines=lines_of(bare_text or ""),
        may_be_bare=has_dangling_link or not has_no_nested_items,
        names_only_removed=markdown.begins_item(text) and removed == {*entry["files"]},
        is_parent=not has_no_nested_items,
    )


def _rebuilt_exactly(
    raw: bytes, restored_entries: Sequence[_RestoredEntry], removal: _Removal
) -> bytes | None:
    """Return the index with each entry at its old line; None if its digest is not the old one.

    Each entry replaces the lines of it that a removal of this kind leaves in the index.
    """
    digests = {restored.entry["whole"] for restored in restored_entries}
    if len(digests) != 1:
        return None
    lines = lines_of(raw)
    candidates = [lines]
    if lines[:1] == [_BLANK_LINE]:  # `MemoryIndex.without` may have added it
        candidates.append(lines[1:])
    for candidate in candidates:
        rebuilt = list(candidate)
        for restored in restored_entries:
            start = restored.entry["line"]
            remains = restored.remains_after(removal)
            end = start + len(remains)
            if rebuilt[start:end] != remains:
                end = start
            rebuilt[start:end] = restored.lines
        index = encoded("".join(rebuilt))
        if digest_of(index) in digests:
            return index
    return None


class _Draft:
    """An index into which entries are inserted, although others have edited it since."""

    def __init__(self, raw: bytes, names: markdown.FileNames) -> None:
        self._names = names
        self._lines = lines_of(raw)
        self._digests = [digest_of(encoded(line)) for line in self._lines]
        """The digest of each line; of its old text, if a restored line was edited before."""
        self._digest_counts = Counter(self._digests)
        self._bare_lines: list[str | None] = [self._bare_text_of(line) for line in self._lines]
        """The lines without links; None for a line that was inserted or restored."""
        self._line_end = line_end(raw)

    @property
    def raw(self) -> bytes:
        """The index file as bytes."""
        return encoded("".join(self._lines))

    @property
    def end(self) -> int:
        """The position after the last line."""
        return len(self._lines)

    @property
    def top(self) -> int:
        """The position of the first line after front matter."""
        text = "".join(self._lines)
        front_matter_end = markdown.read_front_matter(text).text_at
        return len(lines_of(text[:front_matter_end]))

    def restore(self, restored: _RestoredEntry) -> None:
        """Replace the remains of an entry by the entry, or insert it beside its old neighbours."""
        remains = self._remains_of(restored)
        if remains is not None:
            end = remains.position + len(remains.linked_lines)
            self._replace(remains.position, end, remains.linked_lines)
            return
        # Front matter counts as such only at the top, so that no line may stand above it.
        position = max(self._position_for(restored), self.top)
        if "<!--" in "".join(restored.lines):  # it may hide the lines below it
            position = self.end
        self.insert(position, restored.lines)
        # A line that was edited in ``RETIRED.md`` has its old text under this key, which is not
        # stored. Stored neighbours have the digest of the old text.
        text_before_edit = restored.entry.get("was")
        if text_before_edit:
            first_line = lines_of(text_before_edit)[0]
            self._set_digests(position, position + 1, [digest_of(encoded(first_line))])

    def insert(self, position: int, lines: Sequence[str]) -> None:
        """Insert lines at a position; add a line end where two lines would be joined."""
        new_lines = list(lines)
        if position and not self._lines[position - 1].endswith("\n"):
            line_above = self._lines[position - 1] + self._line_end
            self._lines[position - 1] = line_above
            self._set_digests(position - 1, position, [digest_of(encoded(line_above))])
        if position < len(self._lines) and not new_lines[-1].endswith("\n"):
            new_lines[-1] += self._line_end
        self._replace(position, position, new_lines)

    def _replace(self, start: int, end: int, lines: list[str]) -> None:
        """Replace lines; the new lines are no longer candidates for the remains of an entry."""
        self._lines[start:end] = lines
        self._bare_lines[start:end] = [None] * len(lines)
        self._set_digests(start, end, [digest_of(encoded(line)) for line in lines])

    def _set_digests(self, start: int, end: int, digests: list[str]) -> None:
        """Set the digests of lines, and count them."""
        self._digest_counts.subtract(self._digests[start:end])
        self._digest_counts.update(digests)
        self._digests[start:end] = digests

    def _remains_of(self, restored: _RestoredEntry) -> "_Remains | None":
        """Return the remains of an entry that are nearest to its old line; None if none."""
        if not restored.bare_lines:
            return None
        bare_lines = [_without_line_end(line) for line in restored.bare_lines]
        candidates = []
        for start in self._positions_of(bare_lines[0]):
            end = start + len(bare_lines)
            if self._bare_lines[start:end] != bare_lines:
                continue
            linked_lines = self._with_links_of(restored, self._lines[start:end])
            if linked_lines is not None:
                candidates.append(_Remains(start, linked_lines))
        old_line = restored.entry["line"]
        return min(candidates, key=lambda remains: abs(remains.position - old_line), default=None)

    def _positions_of(self, bare_line: str) -> Iterator[int]:
        """Yield the positions of the lines that are equal to `bare_line` without their links."""
        position = -1
        while True:
            try:
                position = self._bare_lines.index(bare_line, position + 1)
            except ValueError:  # there is no further one
                return
            yield position

    def _with_links_of(self, restored: _RestoredEntry, lines: Sequence[str]) -> list[str] | None:
        """Return lines with their own links and those of an entry; None if they do not fit."""
        current = markdown.split_links("".join(lines), self._names.files, self._names)
        text = ""
        for restored_line, line in zip(restored.lines, lines, strict=True):
            end = line[len(_without_line_end(line)) :]
            text += _without_line_end(restored_line) + end
        former = markdown.split_links(text, self._names.files, self._names)
        if current is None or former is None:
            return None
        if not current.links and not restored.may_be_bare:
            return None
        missing_links = [link for link in former.links if not self._has_link(current, link)]
        linked_text = current.linked(missing_links)
        return None if linked_text is None else lines_of(linked_text)

    def _has_link(self, unlinked: markdown.Unlinked, link: markdown.RemovedLink) -> bool:
        """Return whether a text has a link to the same file at the same place, in any spelling."""
        return any(
            self._names.file_of(other.target) == self._names.file_of(link.target)
            for other in unlinked.links
            if (other.start, other.end) == (link.start, link.end)
        )

    def _bare_text_of(self, line: str) -> str:
        """Return a line without links to files of the folder and without its line end."""
        bare_text = markdown.unlinked(line, self._names.files, self._names)
        return _without_line_end(line if bare_text is None else bare_text)

    def _position_for(self, restored: _RestoredEntry) -> int:
        """Return the position at which an entry is inserted.

        It is right below the nearest former line above the entry that is still in the index. If
        there is none, it is right above the nearest former line below the entry, or at the end.
        """
        digest_above = self._first_present(restored.entry["above"])
        digest_below = self._first_present(restored.entry["below"])
        lower = None if digest_below is None else self._digests.index(digest_below)
        if digest_above is None:
            return len(self._lines) if lower is None else lower
        after_upper = len(self._digests) - self._digests[::-1].index(digest_above)
        position = self._after_children(after_upper, restored.lines[0])
        if lower is None or markdown.begins_item(self._lines[position - 1]):
            return position
        # The entry was the first of a list: it returns below the blank lines above the list.
        is_blank_between = not "".join(self._lines[position:lower]).strip()
        if is_blank_between and markdown.begins_item(self._lines[lower]):
            return lower
        return position

    def _first_present(self, digests: Iterable[str]) -> str | None:
        """Return the first of the digests that a present line has; None if no line has one."""
        return next((digest for digest in digests if self._digest_counts[digest] > 0), None)

    def _after_children(self, start: int, line: str) -> int:
        """Return the position after the lines that continue an entry or are nested below it.

        Parameters
        ----------
        start : int
            The position of the first of these lines.
        line : str
            The first line of an entry that is to be inserted; nested entries are indented more.
        """
        position = start
        while markdown.begins_item(line) and position < len(self._lines):
            other = self._lines[position]
            is_child = markdown.begins_item(other) and _indent(other) > _indent(line)
            is_continuation = _continues(other) and not markdown.begins_item(other)
            if not is_continuation and not is_child:
                break
            position += 1
        return position


class _Remains(NamedTuple):
    """The lines of an entry that a removal left in the index."""

    position: int
    """The position of the first of these lines."""
    linked_lines: list[str]
    """These lines with the links of the entry added."""


def _without_line_end(line: str) -> str:
    return line.rstrip("\r\n")


def without_change(before: bytes, after: bytes, current: bytes) -> bytes:
    r"""Return the current index without a change from `before` to `after`.

    Lines that the change added and that were edited since stay as they are.

    >>> without_change(b"a\n", b"a\nb\n", b"by hand\na\nb\n")
    b'by hand\na\n'
    """
    if current == after:
        return before
    lines_before = lines_of(before)
    lines = lines_of(current)
    texts_before = [_without_line_end(line) for line in lines_before]
    texts_after = [_without_line_end(line) for line in lines_of(after)]
    current_number = _matching_numbers(texts_after, [_without_line_end(line) for line in lines])
    replacements: dict[int, list[str]] = {}  # by the number of the current line
    insertions: dict[int, list[str]] = {}  # by the number of the current line that follows
    reverse_changes = SequenceMatcher(None, texts_after, texts_before, autojunk=False)
    for change, start, end, before_start, before_end in reverse_changes.get_opcodes():
        former_lines = lines_before[before_start:before_end]
        present = [
            current_number[number] for number in range(start, end) if number in current_number
        ]
        if change == "delete":
            for number in present:
                replacements[number] = []
        elif change == "insert":
            if start in current_number:
                following = current_number[start]
            elif start - 1 in current_number:
                following = current_number[start - 1] + 1
            else:
                following = len(lines)
            insertions.setdefault(following, []).extend(former_lines)
        elif change == "replace" and len(present) == end - start:
            for number in present:
                replacements[number] = []
            replacements[present[0]] = former_lines
    result = []
    for number in range(len(lines) + 1):
        result += insertions.get(number, [])
        result += replacements.get(number, lines[number : number + 1])
    ended_lines = [line if line.endswith("\n") else f"{line}\n" for line in result[:-1]]
    return encoded("".join([*ended_lines, *result[-1:]]))


def _matching_numbers(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return the number in `new` of each line of `old` that is still there, by the old number."""
    numbers: dict[int, int] = {}
    for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for offset in range(match.size):
            numbers[match.a + offset] = match.b + offset
    return numbers


def digest_of(raw: bytes) -> str:
    """Return a short digest that identifies a line or a file."""
    return blake2b(raw, digest_size=5).hexdigest()
