"""``MEMORY.md``, taken apart and edited: what is loaded of it, and what of it is about each file.

Claude Code leaves out front matter and block comments; of the rest it loads the first 200 lines,
and of these 25,000 UTF-16 units, back to the end of a line. A file's blocks are put back byte for
byte where the index is otherwise as it was, else beside the nearest lines that stood around each.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.store.shapes import fields, listed, raw_text, some, text, truth, whole
from memlab.systems.claude_code import markdown

INDEX: Final = "MEMORY.md"
RETIRED: Final = "RETIRED.md"
"""Beside it: the lines of what is retired. No memory."""

ENTRY: Final = fields(
    {
        "line": whole(0, 2**31),
        "text": some(raw_text),
        "entry": truth,
        "whole": text,
        "also": text,
        **dict.fromkeys(("files", "above", "below"), listed(text)),
    },
    absent={"also"},
)
"""What an index says of a file, once, in an archive or a journal that may be anybody's."""

HIDDEN: Final = "\0"
"""Stands for each character of a comment."""

_CODE: Final = re.compile(r" {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r" {0,3}<!--")
_COMMENTS: Final = re.compile(r"<!--.*?(?:(-->)|\Z)", re.DOTALL)
_AROUND: Final = 100
"""Lines above a block, and below, that are remembered."""
_EMPTY: Final = "\n"
"""A line that keeps what follows from being front matter."""
_OF_ITS_OWN: Final = ("#", "```", "~~~", "<!--", "|")
"""How a line begins that continues no entry, however far it is indented."""


@dataclass(frozen=True)
class LoadRule:
    """The limits of what is loaded."""

    lines: int = 200
    units: int = 25_000


CLAUDE_CODE: Final = LoadRule()


class State(StrEnum):
    """What becomes of a line at start."""

    LOADED = "loaded"
    CUT = "cut"
    """It stands below the limits, in whole or in part."""
    UNSEEN = "unseen"
    """Front matter or a comment."""


class Block(NamedTuple):
    """A line, or an entry of a list with the lines that continue it."""

    number: int
    text: str
    state: State
    is_entry: bool
    mentions: tuple[markdown.Mention, ...]

    def files(self, names: markdown.FileNames) -> list[str]:
        """Return the files of the folder that it names, each once."""
        found = (names.file_of(mention.target) for mention in self.mentions)
        return list(dict.fromkeys(name for name in found if name is not None))

    def without(self, gone: Collection[str], names: markdown.FileNames) -> str | None:
        """Return its text without the links to `gone`; None where nothing is left to say."""
        others = [m.target for m in self.mentions if names.file_of(m.target) not in gone]
        if len(others) == len(self.mentions):
            return self.text
        if self.is_entry and not any(markdown.is_local(t) or names.file_of(t) for t in others):
            return None
        return markdown.unlinked(self.text, gone, names)


@dataclass(frozen=True)
class MemoryIndex:
    """The index file."""

    raw: bytes
    rule: LoadRule = CLAUDE_CODE

    @cached_property
    def text(self) -> str:
        """All of it that a start may load."""
        return "".join(self._seen).strip()

    @cached_property
    def loaded(self) -> str:
        """The text that is loaded."""
        lines = self.text.split("\n")[: self.rule.lines]
        return _within_units("\n".join(lines), self.rule.units)

    @cached_property
    def states(self) -> list[State]:
        """What becomes of each line."""
        whole, states, at = "".join(self._seen), list[State](), 0
        end = len(whole) - len(whole.lstrip()) + len(self.loaded)
        for line in self._seen:
            inside = at + len(line.rstrip()) <= end or self.loaded == self.text
            states.append((State.LOADED if inside else State.CUT) if line else State.UNSEEN)
            at += len(line)
        return states

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All of the file, in order."""
        lines, masked, states = self._lines, self._masked, self.states
        entries = [
            state is not State.UNSEEN and markdown.is_entry(line)
            for line, state in zip(masked, states, strict=True)
        ]
        found, at = [], 0
        while at < len(lines):
            end = at + 1
            while entries[at] and end < len(lines) and not entries[end]:
                if states[end] is not states[at] or not _continues(lines[end]):
                    break
                end += 1
            is_parent = (
                end < len(lines) and entries[end] and _indent(lines[end]) > _indent(lines[at])
            )
            mentions = markdown.mentions_in("".join(masked[at:end]).replace(HIDDEN, " "))
            is_whole = entries[at] and not is_parent
            found.append(Block(at + 1, "".join(lines[at:end]), states[at], is_whole, mentions))
            at = end
        return tuple(found)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each line that is not blank."""
        return [digest_of(encoded(line)) if line.strip() else "" for line in self._lines]

    def named(self, names: markdown.FileNames) -> dict[str, list[Block]]:
        """Return the blocks that name each file; a file that none names is missing."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            for name in block.files(names):
                found.setdefault(name, []).append(block)
        return found

    def dangling(self, names: markdown.FileNames) -> list[tuple[int, str]]:
        """Return line and target of every link to a file that is not there."""
        return [
            (block.number, mention.target)
            for block in self.blocks
            for mention in block.mentions
            if markdown.is_local(mention.target) and names.file_of(mention.target) is None
        ]

    def without(self, gone: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without what names any of `gone`; no rule comes to begin front matter."""
        kept = (block.without(gone, names) for block in self.blocks)
        text = "".join(text for text in kept if text is not None)
        had_head = markdown.read_front_matter("".join(self._lines)).text_at
        begins = markdown.read_front_matter(text).text_at and not had_head
        return encoded(_EMPTY + text if begins else text)

    @cached_property
    def _lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def _masked(self) -> list[str]:
        return list(without_comments(self._lines))

    @cached_property
    def _seen(self) -> list[str]:
        return [line.replace(HIDDEN, "") for line in self._masked]


def units_of(text: str) -> int:
    """Return the UTF-16 units of a text, in which the limit is counted."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def without_comments(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line, as long as it was, with front matter and comments as `HIDDEN` characters."""
    head = markdown.read_front_matter("".join(lines)).text_at
    at, in_comment, in_code = 0, False, ""
    for line in lines:
        at += len(line)
        if at <= head:
            yield HIDDEN * len(line)
        elif not in_comment and (fence := _CODE.match(line)):
            in_code = "" if in_code == fence[1] else in_code or fence[1]
            yield line
        elif in_comment or (not in_code and _COMMENT.match(line)):
            masked, in_comment = _masked(line, in_comment=in_comment)
            yield masked if masked.replace(HIDDEN, "").strip() else HIDDEN * len(line)
        else:
            yield line


def _masked(line: str, *, in_comment: bool) -> tuple[str, bool]:
    """Return a line with its comments hidden, and whether one goes on after it."""
    mark = "<!--" * in_comment
    ends = [found[1] for found in _COMMENTS.finditer(mark + line)]
    masked = _COMMENTS.sub(lambda found: HIDDEN * len(found[0]), mark + line)
    return masked[len(mark) :], bool(ends) and ends[-1] is None


def _within_units(text: str, limit: int) -> str:
    """Return as much of a text as the limit allows, back to the end of a line."""
    if units_of(text) <= limit:
        return text
    whole = text[: limit + 1].encode("utf-16-le", "surrogatepass")[: 2 * limit]
    at = len(whole.decode("utf-16-le", "ignore"))
    end = text.rfind("\n", 0, at + 1)
    return text[:end] if end > 0 else text[:at]


def lines_of(raw: bytes | str) -> list[str]:
    """Return the lines of a file, each with its end, so that joined they are the file."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def encoded(text: str) -> bytes:
    """Return the bytes that lines stand for."""
    return text.encode("utf-8", "surrogateescape")


def _continues(line: str) -> bool:
    return line[0] in " \t" and bool(line.strip()) and not line.lstrip().startswith(_OF_ITS_OWN)


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


IndexEntry = Mapping[str, Any]
"""A block that names files and what stood around it, as :data:`ENTRY` has it."""
Entries = Mapping[str, Sequence[IndexEntry]]
"""By file, what :func:`entries_of` returned of it."""


_Form = tuple[IndexEntry, list[str], list[str]]
"""An entry, its lines before its files come back, none where it is gone, and after."""


def entries_of(index: MemoryIndex, names: markdown.FileNames) -> dict[str, Sequence[IndexEntry]]:
    """Return what an index says of each file it names."""
    also = {file: {"also": alias} for alias, file in names.aliases.items()}
    return {
        file: [_entry_of(index, names, block) | also.get(file, {}) for block in blocks]
        for file, blocks in index.named(names).items()
    }


def _entry_of(index: MemoryIndex, names: markdown.FileNames, block: Block) -> dict[str, Any]:
    """Return a block, and what stands around it."""
    first, digests = block.number - 1, index.digests
    end = first + len(lines_of(block.text))
    return {
        "line": first,
        "text": block.text,
        "entry": block.is_entry,
        "files": block.files(names),
        "above": list(filter(None, reversed(digests[max(first - _AROUND, 0) : first]))),
        "below": list(filter(None, digests[end : end + _AROUND])),
        "whole": digest_of(index.raw),
    }


def remove_entries(raw: bytes, gone: Entries, there: Iterable[str], folder: Path) -> bytes:
    """Return an index with nothing in it that names `gone`."""
    return MemoryIndex(raw).without(gone, _names(gone, there, folder))


def insert_entries(raw: bytes, back: Entries, there: Iterable[str], folder: Path) -> bytes:
    """Return an index that says of files again what it said."""
    names = _names(back, there, folder)
    missing = back.keys() - MemoryIndex(raw).named(names).keys()
    kept = {(each["line"], each["text"]): each for file in missing for each in back[file]}
    forms = [_form(kept[place], missing, names) for place in sorted(kept)]
    if (index := _as_it_stood(raw, forms)) is not None:
        return index
    lines = lines_of(raw)
    for form in forms:
        _put_near(lines, *form)
    return encoded("".join(lines))


def _names(entries: Entries, there: Iterable[str], folder: Path) -> markdown.FileNames:
    also = {str(each["also"]): file for file in entries for each in entries[file] if "also" in each}
    return markdown.FileNames(folder, {*there, *entries}, also)


def _form(entry: IndexEntry, back: Collection[str], names: markdown.FileNames) -> _Form:
    missing = set(entry["files"]) - set(names.names)
    known = replace(names, names={*names.names, *entry["files"]})
    text = entry["text"]
    block = Block(entry["line"], text, State.LOADED, entry["entry"], markdown.mentions_in(text))
    old, new = block.without(missing | set(back), known), block.without(missing, known)
    return entry, lines_of(old or ""), lines_of(new or text)


def _as_it_stood(raw: bytes, forms: Sequence[_Form]) -> bytes | None:
    """Return the index with each entry where it stood, where that is what it was; else None."""
    wholes = {entry["whole"] for entry, _, _ in forms}
    if len(wholes) != 1:
        return None
    lines = lines_of(raw)
    for left in (lines, lines[1:]) if lines[:1] == [_EMPTY] else (lines,):
        whole = list(left)
        for entry, old, new in forms:
            at = entry["line"]
            if whole[at : at + len(old)] != old:
                break
            whole[at : at + len(old)] = new
        else:
            if digest_of(index := encoded("".join(whole))) in wholes:
                return index
    return None


def _put_near(lines: list[str], entry: IndexEntry, old: list[str], new: list[str]) -> None:
    """Put an entry in the place of what was left of it, else below what stood above it."""
    places = [at for at in range(len(lines)) if old and lines[at : at + len(old)] == old]
    if places:
        at = min(places, key=lambda place: abs(place - entry["line"]))
        lines[at : at + len(old)] = new
        return
    at = _between(lines, entry)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    if at < len(lines) and not new[-1].endswith("\n"):
        new = [*new[:-1], f"{new[-1]}\n"]
    lines[at:at] = new


def _between(lines: Sequence[str], entry: IndexEntry) -> int:
    """Return where an entry goes: below what stood above it, else above what stood below it."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, line in enumerate(lines):
        digest = digest_of(encoded(line))
        first.setdefault(digest, number)
        last[digest] = number + 1
    places = [last[digest] for digest in entry["above"] if digest in last]
    places += [first[digest] for digest in entry["below"] if digest in first]
    return places[0] if places else len(lines)


def digest_of(raw: bytes) -> str:
    """Return what tells a line, or a file, from others."""
    return blake2b(raw, digest_size=5).hexdigest()
