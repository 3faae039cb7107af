"""Parse and edit ``MEMORY.md``: which lines are loaded, and which lines are about each file.

Claude Code drops front matter and block comments. It loads the first 200 lines of the rest, and
cuts these to 25,000 UTF-16 units, at the end of a line. A restore puts the blocks of a file back
byte for byte if the index is otherwise unchanged. Otherwise each block goes beside the nearest
lines that surrounded it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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

ENTRY: Final = fields(
    {
        "line": integer(0, 2**31),
        "text": non_empty(raw_text),
        "entry": boolean,
        "whole": text,
        "also": text,
        **dict.fromkeys(("files", "above", "below"), list_of(text)),
    },
    absent={"also"},
)
"""Shape of one index entry in an archive or a journal. The input may be untrusted."""

HIDDEN: Final = "\0"
"""Placeholder for each character of a comment."""

_CODE: Final = re.compile(r" {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r" {0,3}<!--")
_COMMENTS: Final = re.compile(r"<!--.*?(?:(-->)|\Z)", re.DOTALL)
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t\r\n]|\Z)")
_AROUND: Final = 100
"""Number of lines stored above and below a block."""
_EMPTY: Final = "\n"
"""A blank first line. It prevents that the next line is parsed as front matter."""
_NOT_A_CONTINUATION: Final = ("#", "```", "~~~", "<!--", "|")
"""Prefixes of lines that never continue an entry, at any indentation."""


@dataclass(frozen=True)
class LoadRule:
    """The limits of the part of the index that is loaded."""

    lines: int = 200
    units: int = 25_000


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
    text: str
    state: State
    is_entry: bool
    mentions: tuple[markdown.Mention, ...]

    def files(self, names: markdown.FileNames) -> list[str]:
        """Return the files of the folder that the block names, without duplicates."""
        targets = (names.file_of(mention.target) for mention in self.mentions)
        return list(dict.fromkeys(file for file in targets if file is not None))

    @property
    def is_item(self) -> bool:
        """Whether the block is a list entry, with or without entries nested below it."""
        return self.state is not State.UNSEEN and markdown.is_entry(self.text)

    @property
    def indent(self) -> int:
        """Indentation in columns."""
        return _indent(self.text)

    def subject(self, names: markdown.FileNames) -> str | None:
        """Return the file that the entry is about: the first file it names.

        Return None if the block is no entry, names no file, or names the file as ``[[name]]``.
        """
        if not self.is_item:
            return None
        for mention in self.mentions:
            file = names.file_of(mention.target)
            if file is not None:
                return None if markdown.is_wikilink(self.text, mention) else file
        return None

    def without(self, gone: Collection[str], names: markdown.FileNames) -> str | None:
        """Return the text without links to `gone`; None for an entry that names no other file."""
        files = self.files(names)
        if not any(file in gone for file in files):
            return self.text
        if self.is_entry and all(file in gone for file in files):
            return None
        return markdown.unlinked(self.text, gone, names)


@dataclass(frozen=True)
class MemoryIndex:
    """The parsed index file."""

    raw: bytes
    rule: LoadRule = CLAUDE_CODE

    @cached_property
    def text(self) -> str:
        """The text without front matter and comments, before the limits apply."""
        return "".join(self._seen).strip()

    @cached_property
    def loaded(self) -> str:
        """The text that is loaded at start."""
        lines = self.text.split("\n")[: self.rule.lines]
        return _within_units("\n".join(lines), self.rule.units)

    @cached_property
    def states(self) -> list[State]:
        """The state of each line."""
        whole = "".join(self._seen)
        states = list[State]()
        at = 0
        end = len(whole) - len(whole.lstrip()) + len(self.loaded)
        for line in self._seen:
            is_inside = at + len(line.rstrip()) <= end or self.loaded == self.text
            if not line:
                states.append(State.UNSEEN)
            elif is_inside:
                states.append(State.LOADED)
            else:
                states.append(State.CUT)
            at += len(line)
        return states

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks of the file, in order."""
        lines = self._lines
        is_entry = [
            state is not State.UNSEEN and markdown.is_entry(line)
            for line, state in zip(self._masked, self.states, strict=True)
        ]
        blocks = []
        start = 0
        while start < len(lines):
            end = self._block_end(start, is_entry)
            has_child = (
                end < len(lines) and is_entry[end] and _indent(lines[end]) > _indent(lines[start])
            )
            visible = "".join(self._masked[start:end]).replace(HIDDEN, " ")
            block = Block(
                number=start + 1,
                text="".join(lines[start:end]),
                state=self.states[start],
                is_entry=is_entry[start] and not has_child,
                mentions=markdown.mentions_in(visible),
            )
            blocks.append(block)
            start = end
        return tuple(blocks)

    def _block_end(self, start: int, is_entry: Sequence[bool]) -> int:
        """Return the end of the block at `start`: an entry includes its continuation lines."""
        end = start + 1
        if not is_entry[start]:
            return end
        while end < len(self._lines) and not is_entry[end]:
            is_same_state = self.states[end] is self.states[start]
            if not is_same_state or not _continues(self._lines[end]):
                break
            end += 1
        return end

    @cached_property
    def digest(self) -> str:
        """The digest of the file. It is cached because every entry stores it."""
        return digest_of(self.raw)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each line; empty for a blank line."""
        return [digest_of(encoded(line)) if line.strip() else "" for line in self._lines]

    def named(self, names: markdown.FileNames) -> dict[str, list[Block]]:
        """Return the blocks that name each file; a file without a block has no key."""
        blocks_by_file: dict[str, list[Block]] = {}
        for block, files in self.blocks_with_files(names):
            for file in files:
                blocks_by_file.setdefault(file, []).append(block)
        return blocks_by_file

    def cut_files(self, names: markdown.FileNames) -> list[str]:
        """Return the files that are named in lines alone that a start does not load."""
        return [
            name
            for name, blocks in self.named(names).items()
            if {block.state for block in blocks} == {State.CUT}
        ]

    def blocks_with_files(self, names: markdown.FileNames) -> list[tuple[Block, list[str]]]:
        """Return each block with the files that it names.

        The result is cached, because one command looks at the same index several times.
        """
        if names.identity not in self._with_files:
            self._with_files[names.identity] = [
                (block, block.files(names)) for block in self.blocks
            ]
        return self._with_files[names.identity]

    @cached_property
    def _with_files(self) -> dict[object, list[tuple[Block, list[str]]]]:
        """The results of :meth:`blocks_with_files` by the identity of the names."""
        return {}

    def dangling(self, names: markdown.FileNames) -> list[tuple[int, str]]:
        """Return line number and target of every Markdown link to a missing file."""
        return [
            (number, target) for number, target in self._local_links if not names.file_of(target)
        ]

    @cached_property
    def _local_links(self) -> list[tuple[int, str]]:
        """Line number and target of every Markdown link to a file, outside of code blocks."""
        return [(number, target) for number, target in self.links if markdown.is_local(target)]

    @cached_property
    def links(self) -> list[tuple[int, str]]:
        """Line number and target of every Markdown link, outside of code blocks."""
        links = []
        for block in self.blocks:
            if self._is_code[block.number - 1]:
                continue
            found = markdown.inline_links(block.text, block.mentions)
            links += [(block.number, link.target) for link in found]
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
        """Return whether the line of a number is in a fenced code block."""
        return self._is_code[number - 1]

    def files_with_entry(self, names: markdown.FileNames) -> set[str]:
        """Return the files that have an entry of their own."""
        subjects = (block.subject(names) for block in self.blocks)
        return {file for file in subjects if file is not None}

    def without(self, gone: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without the entries and links of `gone`.

        Add a blank first line if the remaining text would otherwise begin with front matter.
        """
        text = self._joined([block.without(gone, names) for block in self.blocks], gone, names)
        had_front_matter = markdown.read_front_matter("".join(self._lines)).text_at
        has_front_matter = markdown.read_front_matter(text).text_at
        if has_front_matter and not had_front_matter:
            text = _EMPTY + text
        return encoded(text)

    def without_own(self, gone: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without the entries whose first file is in `gone`."""
        kept = [
            block.without(gone, names) if _first_file(block, names) in gone else block.text
            for block in self.blocks
        ]
        return encoded(self._joined(kept, gone, names))

    def _joined(
        self, kept: list[str | None], gone: Collection[str], names: markdown.FileNames
    ) -> str:
        """Return the text of the blocks that are kept, without parents that lost all they had."""
        for number in reversed(range(len(kept))):
            if self._is_emptied_parent(number, kept, gone, names):
                kept[number] = None
        return "".join(text for text in kept if text is not None)

    def _is_emptied_parent(
        self,
        number: int,
        kept: Sequence[str | None],
        gone: Collection[str],
        names: markdown.FileNames,
    ) -> bool:
        """Return whether a parent names only deleted files and all its children are deleted."""
        block = self.blocks[number]
        if not block.is_item or block.is_entry or kept[number] == block.text:
            return False
        if not all(file in gone for file in block.files(names)):
            return False
        for place in range(number + 1, len(kept)):
            child = self.blocks[place]
            if not child.is_item or child.indent <= block.indent:
                return True
            if kept[place] is not None:
                return False
        return True

    @cached_property
    def _is_code(self) -> list[bool]:
        """For each line, whether it is in a fenced code block."""
        is_code = []
        open_fence = ""
        for line in self._masked:
            fence = _CODE.match(line)
            is_code.append(bool(open_fence or fence))
            if fence:
                open_fence = _open_fence_after(open_fence, fence[1])
        return is_code

    @cached_property
    def _lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def _masked(self) -> list[str]:
        return list(without_comments(self._lines))

    @cached_property
    def _seen(self) -> list[str]:
        return [line.replace(HIDDEN, "") for line in self._masked]


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

    A heading with a link is none, nor is a heading that begins the index, which is its title.

    >>> find_empty_headings(MemoryIndex(b"# Memory\n## Empty\n## Full\n- [A](a.md)\n"))
    [1]
    """
    empty = []
    first = 0
    filled_above = 0
    """Headings of a level above this one have something below them."""
    for number in reversed(range(len(index.blocks))):
        block = index.blocks[number]
        if block.state is State.UNSEEN or not block.text.strip():
            continue
        first = number
        if index.is_code(block.number) or not is_heading(block.text):
            filled_above = _DEEPEST
            continue
        marks = block.text.lstrip()
        level = len(marks) - len(marks.lstrip("#"))
        if level > filled_above and not block.mentions:
            empty.append(number)
        else:
            filled_above = level - 1
    if first in empty:
        empty.remove(first)
    return empty[::-1]


_DEEPEST: Final = 6
"""The deepest level of a heading."""


def units_of(text: str) -> int:
    """Return the length of a text in UTF-16 units, the unit of the load limit."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def without_comments(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line at its own length, with front matter and comments masked by `HIDDEN`."""
    return (masked for masked, _ in _masked_lines(lines))


def line_of_open_comment(lines: Sequence[str]) -> int:
    r"""Return the number of the line whose comment never ends; 0 for none.

    >>> line_of_open_comment(["# Index\n", "<!-- for people\n", "- [A](a.md)\n"])
    2
    """
    opened_at = 0
    for number, (_, is_open) in enumerate(_masked_lines(lines), start=1):
        if not is_open:
            opened_at = 0
        elif not opened_at:
            opened_at = number
    return opened_at


def _masked_lines(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line with front matter and comments masked, and whether a comment goes on."""
    head = markdown.read_front_matter("".join(lines)).text_at
    at = 0
    in_comment = False
    open_fence = ""
    for line in lines:
        at += len(line)
        fence = _CODE.match(line)
        if at <= head:
            yield HIDDEN * len(line), in_comment
        elif fence and not in_comment:
            open_fence = _open_fence_after(open_fence, fence[1])
            yield line, in_comment
        elif in_comment or (not open_fence and _COMMENT.match(line)):
            masked, in_comment = _masked(line, in_comment=in_comment)
            has_text = bool(masked.replace(HIDDEN, "").strip())
            yield masked if has_text else HIDDEN * len(line), in_comment
        else:
            yield line, in_comment


def _open_fence_after(open_fence: str, fence: str) -> str:
    """Return the code fence that is open after a line with `fence`; empty if none is."""
    if open_fence == fence:
        return ""
    return open_fence or fence


def _masked(line: str, *, in_comment: bool) -> tuple[str, bool]:
    """Return a line with its comments masked, and whether a comment continues on the next line."""
    opening = "<!--" if in_comment else ""
    ends = [comment[1] for comment in _COMMENTS.finditer(opening + line)]
    masked = _COMMENTS.sub(lambda comment: HIDDEN * len(comment[0]), opening + line)
    return masked[len(opening) :], bool(ends) and ends[-1] is None


def _within_units(text: str, limit: int) -> str:
    """Return the beginning of a text within `limit` UTF-16 units, cut at the end of a line."""
    if units_of(text) <= limit:
        return text
    start = text[: limit + 1].encode("utf-16-le", "surrogatepass")[: 2 * limit]
    at = len(start.decode("utf-16-le", "ignore"))
    end = text.rfind("\n", 0, at + 1)
    return text[:end] if end > 0 else text[:at]


def lines_of(raw: bytes | str) -> list[str]:
    """Return the lines of a file with their line ends; joined, they are the file."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def encoded(text: str) -> bytes:
    """Return a decoded text as the bytes it was decoded from."""
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
    *above, last = parts
    ended = [part if part.endswith("\n") else part + end for part in above]
    if like and not like.endswith(b"\n"):
        last = re.sub(r"\r?\n\Z", "", last)
    elif not last.endswith("\n"):
        last += end
    return "".join([*ended, last])


def _continues(line: str) -> bool:
    """Return whether a line continues the entry above it."""
    is_indented = line[0] in " \t" and bool(line.strip())
    return is_indented and not line.lstrip().startswith(_NOT_A_CONTINUATION)


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


IndexEntry = Mapping[str, Any]
"""A block that names files, and the lines around it, in the shape of :data:`ENTRY`."""
Entries = Mapping[str, Sequence[IndexEntry]]
"""The entries of each file, as :func:`entries_of` returns them."""
NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})


def entries_of(index: MemoryIndex, names: markdown.FileNames) -> dict[str, Sequence[IndexEntry]]:
    """Return the index entries of each file that the index names."""
    alias_of = {file: alias for alias, file in names.aliases.items()}
    entries: dict[str, Sequence[IndexEntry]] = {}
    for file, blocks in index.named(names).items():
        of_file = [_entry_of(index, names, block) for block in blocks]
        if file in alias_of:
            for entry in of_file:
                entry["also"] = alias_of[file]
        entries[file] = of_file
    return entries


def _entry_of(index: MemoryIndex, names: markdown.FileNames, block: Block) -> dict[str, Any]:
    """Return a block as an index entry, with the digests of the lines around it."""
    first = block.number - 1
    digests = index.digests
    end = first + len(lines_of(block.text))
    return {
        "line": first,
        "text": block.text,
        "entry": block.is_entry,
        "files": block.files(names),
        "above": list(filter(None, reversed(digests[max(first - _AROUND, 0) : first]))),
        "below": list(filter(None, digests[end : end + _AROUND])),
        "whole": index.digest,
    }


def names_of(
    entries: Entries,
    file_names: Iterable[str],
    folder: Path,
    aliases: Mapping[str, str] = NO_ALIASES,
) -> markdown.FileNames:
    """Return the names by which links may refer to the files of a folder and of `entries`."""
    known_aliases = dict(aliases)
    for file, of_file in entries.items():
        for entry in of_file:
            if "also" in entry:
                known_aliases[str(entry["also"])] = file
    return markdown.FileNames(folder, {*file_names, *entries}, known_aliases)


def are_entries_unchanged(raw: bytes, expected: Entries, names: markdown.FileNames) -> bool:
    """Return whether the index entries of files have the same texts as `expected`, in any place."""
    blocks_by_file = MemoryIndex(raw).named(names)
    for file, entries in expected.items():
        now = sorted(block.text for block in blocks_by_file.get(file, ()))
        before = sorted(str(entry["text"]) for entry in entries)
        if now != before:
            return False
    return True


def remove_entries(raw: bytes, gone: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index without the entries and links of `gone`."""
    return MemoryIndex(raw).without(gone, names)


def remove_own_entries(raw: bytes, gone: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index without the entries whose first file is in `gone`; other mentions stay."""
    return MemoryIndex(raw).without_own(gone, names)


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


def insert_entries(raw: bytes, back: Entries, names: markdown.FileNames) -> bytes:
    """Return an index with the entries of `back` restored.

    Skip the files that already have an entry of their own. First try to rebuild the index byte for
    byte; if it has changed otherwise, insert each entry at the best matching place.
    """
    missing = {file for file in back if back[file]} - MemoryIndex(raw).files_with_entry(names)
    entries = {}
    for file in missing:
        for entry in back[file]:
            entries[entry["line"], entry["text"]] = entry
    if not entries:
        return raw
    files = set(names.names)
    for entry in entries.values():
        files.update(entry["files"])
    known = replace(names, names=files)
    returning = [_returning(entries[place], missing, names, known) for place in sorted(entries)]
    for removal in _Removal:
        index = _rebuilt_exactly(raw, returning, removal)
        if index is not None:
            return index
    draft = _Draft(raw, known)
    for entry_back in returning:
        draft.put(entry_back)
    # An entry in a comment is not visible: append it, else put a plain link at the top.
    for entry_back in _not_named(draft, returning, missing, known):
        draft.insert(draft.end, entry_back.lines)
    for file in sorted(missing - MemoryIndex(draft.raw).named(known).keys()):
        draft.insert(draft.top, [f"- [{file}](<{file}>)\n"])
    return draft.raw


class _Returning(NamedTuple):
    """An index entry that is restored."""

    entry: IndexEntry
    lines: list[str]
    """The lines to insert; links to missing files are plain words."""
    left: list[str]
    """The lines without the links to returning files, as they may stand in the index now."""
    bare: list[str]
    """The lines without any link to a file of the folder; empty if that is ambiguous."""
    may_be_bare: bool
    """Whether lines without any link may be the remains of this entry."""
    names_only_gone: bool
    """Whether it is a list entry that names no memory that stayed."""
    is_parent: bool
    """Whether other entries are nested below it."""

    def left_after(self, removal: "_Removal") -> list[str]:
        """Return the lines that remain after a removal."""
        if removal is _Removal.LINKS or not self.names_only_gone:
            return self.left
        if self.is_parent and removal is _Removal.ENTRIES:
            return self.left
        return []


class _Removal(Enum):
    """Which lines of list entries a removal may have deleted."""

    ENTRIES = "entries that name no memory that stayed, but no parents"
    PARENTS = "these entries, and parents whose children were all removed"
    LINKS = "no lines, only links"


def _not_named(
    draft: "_Draft",
    returning: Sequence[_Returning],
    missing: Collection[str],
    names: markdown.FileNames,
) -> list[_Returning]:
    """Return the entries with a missing file that a draft does not name yet."""
    unnamed = set(missing) - MemoryIndex(draft.raw).named(names).keys()
    return [entry for entry in returning if unnamed.intersection(entry.entry["files"])]


def _returning(
    entry: IndexEntry, back: Collection[str], names: markdown.FileNames, known: markdown.FileNames
) -> _Returning:
    """Return an entry with its lines in each form that a restore compares."""
    text = str(entry["text"])
    missing = {file for file in entry["files"] if file not in names.names}
    gone = {file for file in entry["files"] if file in missing or file in back}
    restored = markdown.unlinked(text, missing, known)
    left = markdown.unlinked(text, gone, known)
    bare = markdown.unlinked(text, known.names, known)
    # Earlier versions kept an entry without memories if it contained anything like a link.
    dangles = any(
        markdown.is_local(mention.target) and known.file_of(mention.target) is None
        for mention in markdown.mentions_in(text)
    )
    return _Returning(
        entry=entry,
        lines=lines_of(text if restored is None else restored),
        left=lines_of(left or ""),
        bare=lines_of(bare or ""),
        may_be_bare=dangles or not entry["entry"],
        names_only_gone=markdown.is_entry(text) and gone == {*entry["files"]},
        is_parent=not entry["entry"],
    )


def _rebuilt_exactly(
    raw: bytes, returning: Sequence[_Returning], removal: _Removal
) -> bytes | None:
    """Return the index with each entry at its old line; None if its digest is not the old one.

    Lines that a removal of this kind leaves are replaced.
    """
    digests = {entry_back.entry["whole"] for entry_back in returning}
    if len(digests) != 1:
        return None
    lines = lines_of(raw)
    candidates = [lines]
    if lines[:1] == [_EMPTY]:  # `MemoryIndex.without` may have added it
        candidates.append(lines[1:])
    for candidate in candidates:
        rebuilt = list(candidate)
        for entry_back in returning:
            start = entry_back.entry["line"]
            left = entry_back.left_after(removal)
            end = start + len(left)
            if rebuilt[start:end] != left:
                end = start
            rebuilt[start:end] = entry_back.lines
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
        self._counts = Counter(self._digests)
        self._bare: list[str | None] = [self._bare_of(line) for line in self._lines]
        self._end = line_end(raw)

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
        head = markdown.read_front_matter("".join(self._lines)).text_at
        return len(lines_of("".join(self._lines)[:head]))

    def put(self, entry_back: _Returning) -> None:
        """Replace the remains of an entry by the entry, or insert it beside its old neighbours."""
        remains = self._remains_of(entry_back)
        if remains is not None:
            at, lines = remains
            self._replace(at, at + len(lines), lines)
            return
        # A line above front matter would turn that into text.
        at = max(self._place_of(entry_back), self.top)
        if "<!--" in "".join(entry_back.lines):  # it may hide what follows
            at = self.end
        self.insert(at, entry_back.lines)
        old_text = entry_back.entry.get("was")
        if old_text:  # neighbours store the digest of the text before it was edited
            self._set_digests(at, at + 1, [digest_of(encoded(lines_of(old_text)[0]))])

    def insert(self, at: int, lines: Sequence[str]) -> None:
        """Insert lines at a position; add a line end where two lines would be joined."""
        new = list(lines)
        if at and not self._lines[at - 1].endswith("\n"):
            ended = self._lines[at - 1] + self._end
            self._lines[at - 1] = ended
            self._set_digests(at - 1, at, [digest_of(encoded(ended))])
        if at < len(self._lines) and not new[-1].endswith("\n"):
            new[-1] += self._end
        self._replace(at, at, new)

    def _replace(self, start: int, end: int, lines: list[str]) -> None:
        """Replace lines; the new lines are no longer candidates for the remains of an entry."""
        self._lines[start:end] = lines
        self._bare[start:end] = [None] * len(lines)
        self._set_digests(start, end, [digest_of(encoded(line)) for line in lines])

    def _set_digests(self, start: int, end: int, digests: list[str]) -> None:
        self._counts.subtract(self._digests[start:end])
        self._counts.update(digests)
        self._digests[start:end] = digests

    def _remains_of(self, entry_back: _Returning) -> tuple[int, list[str]] | None:
        """Return position and relinked lines of the nearest remains of an entry; None if none."""
        if not entry_back.bare:
            return None
        wanted = [_without_end(line) for line in entry_back.bare]
        candidates = []
        for at in self._positions_of(wanted[0]):
            end = at + len(wanted)
            if self._bare[at:end] != wanted:
                continue
            linked = self._linked(self._lines[at:end], entry_back)
            if linked is not None:
                candidates.append((at, linked))
        old_line = entry_back.entry["line"]
        return min(candidates, key=lambda candidate: abs(candidate[0] - old_line), default=None)

    def _positions_of(self, bare: str) -> Iterator[int]:
        """Yield the positions of the lines whose text without links is `bare`."""
        at = -1
        with suppress(ValueError):  # there is no further one
            while True:
                at = self._bare.index(bare, at + 1)
                yield at

    def _linked(self, there: Sequence[str], entry_back: _Returning) -> list[str] | None:
        """Return lines with their own links and those of an entry; None if they do not fit."""
        old = markdown.split_links("".join(there), self._names.names, self._names)
        ends = [line[len(_without_end(line)) :] for line in there]
        text = "".join(
            _without_end(line) + end for line, end in zip(entry_back.lines, ends, strict=True)
        )
        new = markdown.split_links(text, self._names.names, self._names)
        if old is None or new is None:
            return None
        if not old.links and not entry_back.may_be_bare:
            return None
        linked = old.linked(link for link in new.links if not self._has(old, link))
        return None if linked is None else lines_of(linked)

    def _has(self, there: markdown.Unlinked, link: markdown.Link) -> bool:
        """Return whether a text has a link to the same file at the same place, in any spelling."""
        return any(
            self._names.file_of(other.target) == self._names.file_of(link.target)
            for other in there.links
            if (other.start, other.end) == (link.start, link.end)
        )

    def _bare_of(self, line: str) -> str:
        """Return a line without links to files of the folder and without its line end."""
        bare = markdown.unlinked(line, self._names.names, self._names)
        return _without_end(line if bare is None else bare)

    def _place_of(self, entry_back: _Returning) -> int:
        """Return the position for an entry: after its old upper neighbour, else before the lower.

        Return the end of the index if none of its old neighbours is left.
        """
        digest_above = self._first_present(entry_back.entry["above"])
        digest_below = self._first_present(entry_back.entry["below"])
        below = None if digest_below is None else self._digests.index(digest_below)
        if digest_above is None:
            return len(self._lines) if below is None else below
        last_above = len(self._digests) - self._digests[::-1].index(digest_above)
        at = self._after_children(last_above, entry_back.lines[0])
        if below is None or markdown.is_entry(self._lines[at - 1]):
            return at
        # A list starts after a blank line: its first entry returns below that line.
        is_blank = not "".join(self._lines[at:below]).strip()
        if is_blank and markdown.is_entry(self._lines[below]):
            return below
        return at

    def _first_present(self, digests: Iterable[str]) -> str | None:
        """Return the first digest of which the draft has a line; None if it has none."""
        return next((digest for digest in digests if self._counts[digest] > 0), None)

    def _after_children(self, at: int, line: str) -> int:
        """Return the position after the continuation lines and the entries nested deeper."""
        while markdown.is_entry(line) and at < len(self._lines):
            other = self._lines[at]
            is_child = markdown.is_entry(other) and _indent(other) > _indent(line)
            is_continuation = _continues(other) and not markdown.is_entry(other)
            if not is_continuation and not is_child:
                break
            at += 1
        return at


def _without_end(line: str) -> str:
    return line.rstrip("\r\n")


def without_change(before: bytes, made: bytes, now: bytes) -> bytes:
    r"""Return `now`, the current index, without the change from `before` to `made`.

    Lines that the change added and that were edited since stay as they are.

    >>> without_change(b"a\n", b"a\nb\n", b"by hand\na\nb\n")
    b'by hand\na\n'
    """
    if now == made:
        return before
    old = lines_of(before)
    lines = lines_of(now)
    old_texts = [_without_end(line) for line in old]
    made_texts = [_without_end(line) for line in lines_of(made)]
    now_places = _matching_places(made_texts, [_without_end(line) for line in lines])
    replaced: dict[int, list[str]] = {}  # by line number in `now`
    inserted: dict[int, list[str]] = {}  # by number of the line in `now` that follows
    changes = SequenceMatcher(None, made_texts, old_texts, autojunk=False).get_opcodes()
    for change, start, end, first, last in changes:
        if change == "delete":
            for number in range(start, end):
                if number in now_places:
                    replaced[now_places[number]] = []
        elif change == "insert":
            if start in now_places:
                at = now_places[start]
            else:
                at = now_places.get(start - 1, len(lines) - 1) + 1
            inserted.setdefault(at, []).extend(old[first:last])
        elif change == "replace" and all(number in now_places for number in range(start, end)):
            for number in range(start, end):
                replaced[now_places[number]] = []
            replaced[now_places[start]] = old[first:last]
    result = []
    for number in range(len(lines) + 1):
        result += inserted.get(number, [])
        result += replaced.get(number, lines[number : number + 1])
    ended = [line if line.endswith("\n") else f"{line}\n" for line in result[:-1]]
    return encoded("".join([*ended, *result[-1:]]))


def _matching_places(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return the place in `new` of each line of `old` that is still there."""
    places: dict[int, int] = {}
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            places[block.a + offset] = block.b + offset
    return places


def digest_of(raw: bytes) -> str:
    """Return a short digest that identifies a line or a file."""
    return blake2b(raw, digest_size=5).hexdigest()
