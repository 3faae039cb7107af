"""``MEMORY.md``, taken apart and edited: what is loaded of it, and what of it is about each file.

Claude Code leaves out front matter and block comments; of the rest it loads the first 200 lines,
and of these 25,000 UTF-16 units, back to the end of a line. A file's blocks are put back byte for
byte where the index is otherwise as it was, else beside the nearest lines that stood around each.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memlab.store.shapes import boolean, fields, integer, list_of, non_empty, raw_text, text
from memlab.systems.claude_code import markdown

INDEX: Final = "MEMORY.md"
RETIRED: Final = "RETIRED.md"
"""Beside it: the lines of what is retired. No memory."""

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

    @property
    def is_item(self) -> bool:
        """Whether it is an entry, or one that others stand below."""
        return self.state is not State.UNSEEN and markdown.is_entry(self.text)

    @property
    def indent(self) -> int:
        """How far it stands to the right."""
        return _indent(self.text)

    def subject(self, names: markdown.FileNames) -> str | None:
        """Return the file whose own entry it is: the first that it names; None where it is none's.

        What is named as ``[[name]]`` has no entry of its own by that.
        """
        if not self.is_item:
            return None
        for mention in self.mentions:
            if (file := names.file_of(mention.target)) is not None:
                return None if markdown.is_wikilink(self.text, mention) else file
        return None

    def without(self, gone: Collection[str], names: markdown.FileNames) -> str | None:
        """Return its text without the links to `gone`; None for an entry that names no other."""
        files = self.files(names)
        if not any(file in gone for file in files):
            return self.text
        if self.is_entry and all(file in gone for file in files):
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
        whole = "".join(self._seen)
        states = list[State]()
        at = 0
        end = len(whole) - len(whole.lstrip()) + len(self.loaded)
        for line in self._seen:
            inside = at + len(line.rstrip()) <= end or self.loaded == self.text
            states.append((State.LOADED if inside else State.CUT) if line else State.UNSEEN)
            at += len(line)
        return states

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All of the file, in order."""
        lines = self._lines
        masked = self._masked
        states = self.states
        entries = [
            state is not State.UNSEEN and markdown.is_entry(line)
            for line, state in zip(masked, states, strict=True)
        ]
        found = []
        at = 0
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
    def digest(self) -> str:
        """The digest of the file: hashed once, for every entry says it."""
        return digest_of(self.raw)

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
        """Return line and target of every link of Markdown to a file that is not there."""
        return [
            (block.number, link.target)
            for block in self.blocks
            if not self._is_code[block.number - 1]
            for link in markdown.inline_links(block.text, block.mentions)
            if markdown.is_local(link.target) and names.file_of(link.target) is None
        ]

    def entered(self, names: markdown.FileNames) -> set[str]:
        """Return the files that an entry of their own names."""
        return {file for block in self.blocks if (file := block.subject(names)) is not None}

    def without(self, gone: Collection[str], names: markdown.FileNames) -> bytes:
        """Return the file without what names any of `gone`; no rule comes to begin front matter."""
        kept: list[str | None] = [block.without(gone, names) for block in self.blocks]
        for number in reversed(range(len(kept))):
            if self._goes_with_those_below(number, kept, gone, names):
                kept[number] = None
        text = "".join(text for text in kept if text is not None)
        had_head = markdown.read_front_matter("".join(self._lines)).text_at
        begins = markdown.read_front_matter(text).text_at and not had_head
        return encoded(_EMPTY + text if begins else text)

    def _goes_with_those_below(
        self,
        number: int,
        kept: Sequence[str | None],
        gone: Collection[str],
        names: markdown.FileNames,
    ) -> bool:
        """Whether an entry with others below it names only what goes, and all of those go too."""
        block = self.blocks[number]
        if not block.is_item or block.is_entry or kept[number] == block.text:
            return False
        if not all(file in gone for file in block.files(names)):
            return False
        for place in range(number + 1, len(kept)):
            below = self.blocks[place]
            if not below.is_item or below.indent <= block.indent:
                return True
            if kept[place] is not None:
                return False
        return True

    @cached_property
    def _is_code(self) -> list[bool]:
        """Whether each line stands in a fenced block of code."""
        found = []
        fence = ""
        for line in self._masked:
            mark = _CODE.match(line)
            found.append(bool(fence or mark))
            if mark:
                fence = "" if fence == mark[1] else fence or mark[1]
        return found

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
    at = 0
    in_comment = False
    in_code = ""
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
NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})


def entries_of(index: MemoryIndex, names: markdown.FileNames) -> dict[str, Sequence[IndexEntry]]:
    """Return what an index says of each file it names."""
    also = {file: {"also": alias} for alias, file in names.aliases.items()}
    return {
        file: [_entry_of(index, names, block) | also.get(file, {}) for block in blocks]
        for file, blocks in index.named(names).items()
    }


def _entry_of(index: MemoryIndex, names: markdown.FileNames, block: Block) -> dict[str, Any]:
    """Return a block, and what stands around it."""
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
    entries: Entries, there: Iterable[str], folder: Path, aliases: Mapping[str, str] = NO_ALIASES
) -> markdown.FileNames:
    """Return what links may call the files of a folder, those of some entries among them."""
    also = {str(each["also"]): file for file in entries for each in entries[file] if "also" in each}
    return markdown.FileNames(folder, {*there, *entries}, {**aliases, **also})


def is_as_said(raw: bytes, said: Entries, names: markdown.FileNames) -> bool:
    """Whether an index says of files just what it said of them, wherever it says that."""
    named = MemoryIndex(raw).named(names)
    return all(
        sorted(block.text for block in named.get(file, ()))
        == sorted(str(entry["text"]) for entry in said[file])
        for file in said
    )


def remove_entries(raw: bytes, gone: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index with nothing in it that names `gone`."""
    return MemoryIndex(raw).without(gone, names)


def remove_own_entries(raw: bytes, gone: Collection[str], names: markdown.FileNames) -> bytes:
    """Return an index without the entries that name one of `gone` first; other mentions stay."""
    kept = [
        block.without(gone, names) if _first_file(block, names) in gone else block.text
        for block in MemoryIndex(raw).blocks
    ]
    return encoded("".join(text for text in kept if text is not None))


def own_texts(raw: bytes, names: markdown.FileNames) -> dict[str, list[str]]:
    """Return the texts of the entries that name each file first."""
    found: dict[str, list[str]] = {}
    for block in MemoryIndex(raw).blocks:
        if (file := _first_file(block, names)) is not None:
            found.setdefault(file, []).append(block.text)
    return found


def _first_file(block: Block, names: markdown.FileNames) -> str | None:
    """Return the file that an entry names first."""
    files = block.files(names) if block.is_item else []
    return files[0] if files else None


def insert_entries(raw: bytes, back: Entries, names: markdown.FileNames) -> bytes:
    """Return an index that says of files what it said, but of those that an entry names already."""
    missing = back.keys() - MemoryIndex(raw).entered(names)
    kept = {(each["line"], each["text"]): each for file in missing for each in back[file]}
    if not kept:
        return raw
    files = {*names.names, *(file for entry in kept.values() for file in entry["files"])}
    known = replace(names, names=files)
    forms = [_form(kept[place], missing, names, known) for place in sorted(kept)]
    for prefers_left in (False, True):
        if (index := _as_it_stood(raw, forms, prefers_left=prefers_left)) is not None:
            return index
    draft = _Draft(raw, known)
    for form in forms:
        draft.put(form)
    for place in ("end", "top"):
        named = MemoryIndex(draft.raw).named(known)
        for form in forms:
            if not any(file in named for file in form.entry["files"]):  # it came into a comment
                draft.insert(draft.end if place == "end" else draft.top, form.lines)
    return draft.raw


class _Form(NamedTuple):
    """How an entry comes back."""

    entry: IndexEntry
    lines: list[str]
    """Its lines; what they name of files that are not there are plain words."""
    left: list[str]
    """Its lines without its links, which may stand there while its files are gone."""
    bare: list[str]
    """Its lines without any link to a file of the folder; none where that cannot be said."""
    may_be_bare: bool
    """Whether lines without any of its links may be what is left of it."""
    went_whole: bool
    """Whether it names no memory that stayed."""


def _form(
    entry: IndexEntry, back: Collection[str], names: markdown.FileNames, known: markdown.FileNames
) -> _Form:
    text = str(entry["text"])
    missing = {file for file in entry["files"] if file not in names.names}
    gone = {file for file in entry["files"] if file in missing or file in back}
    comes = markdown.unlinked(text, missing, known)
    left = markdown.unlinked(text, gone, known)
    bare = markdown.unlinked(text, known.names, known)
    # Once an entry without memories stayed where anything else in it was like a link.
    dangles = any(
        markdown.is_local(mention.target) and known.file_of(mention.target) is None
        for mention in markdown.mentions_in(text)
    )
    return _Form(
        entry=entry,
        lines=lines_of(text if comes is None else comes),
        left=lines_of(left or ""),
        bare=lines_of(bare or ""),
        may_be_bare=dangles or not entry["entry"],
        went_whole=entry["entry"] and gone == {*entry["files"]},
    )


def _as_it_stood(raw: bytes, forms: Sequence[_Form], *, prefers_left: bool) -> bytes | None:
    """Return the index with each entry where it stood, where that is what it was; else None.

    An entry has gone whole, or its lines are there without its links, which is looked for first
    where `prefers_left`.
    """
    wholes = {form.entry["whole"] for form in forms}
    if len(wholes) != 1:
        return None
    lines = lines_of(raw)
    for before in (lines, lines[1:]) if lines[:1] == [_EMPTY] else (lines,):
        whole = list(before)
        for form in forms:
            at = form.entry["line"]
            left = form.left if prefers_left or not form.went_whole else []
            end = at + len(left)
            whole[at : end if whole[at:end] == left else at] = form.lines
        if digest_of(index := encoded("".join(whole))) in wholes:
            return index
    return None


class _Draft:
    """An index that entries come back into, beside what others have made of it."""

    def __init__(self, raw: bytes, names: markdown.FileNames) -> None:
        self._names = names
        self._lines = lines_of(raw)
        self._digests = [digest_of(encoded(line)) for line in self._lines]
        self._counts = Counter(self._digests)
        self._bare: list[str | None] = [self._bare_of(line) for line in self._lines]
        self._end = "\r\n" if any(line.endswith("\r\n") for line in self._lines) else "\n"

    @property
    def raw(self) -> bytes:
        """The file."""
        return encoded("".join(self._lines))

    @property
    def end(self) -> int:
        """The place behind all lines."""
        return len(self._lines)

    @property
    def top(self) -> int:
        """The place below front matter."""
        head = markdown.read_front_matter("".join(self._lines)).text_at
        return len(lines_of("".join(self._lines)[:head]))

    def put(self, form: _Form) -> None:
        """Put an entry in the place of what is left of it, else below what stood above it."""
        found = self._left_of(form)
        if found is None:
            at = self._place_of(form)
            self.insert(at, form.lines)
            if was := form.entry.get("was"):  # what stood below it is known by its old words
                self._set_digests(at, at + 1, [digest_of(encoded(lines_of(was)[0]))])
        else:
            at, lines = found
            self._replace(at, at + len(lines), lines)

    def insert(self, at: int, lines: Sequence[str]) -> None:
        """Put lines at a place; none of them, nor the one above, runs into the next."""
        new = list(lines)
        if at and not self._lines[at - 1].endswith("\n"):
            ended = self._lines[at - 1] + self._end
            self._lines[at - 1] = ended
            self._set_digests(at - 1, at, [digest_of(encoded(ended))])
        if at < len(self._lines) and not new[-1].endswith("\n"):
            new[-1] += self._end
        self._replace(at, at, new)

    def _replace(self, start: int, end: int, lines: list[str]) -> None:
        """Put lines in the place of others; they are never again what is left of an entry."""
        self._lines[start:end] = lines
        self._bare[start:end] = [None] * len(lines)
        self._set_digests(start, end, [digest_of(encoded(line)) for line in lines])

    def _set_digests(self, start: int, end: int, digests: list[str]) -> None:
        self._counts.subtract(self._digests[start:end])
        self._counts.update(digests)
        self._digests[start:end] = digests

    def _left_of(self, form: _Form) -> tuple[int, list[str]] | None:
        """Return where the nearest lines are that are left of an entry, and with its links."""
        if not form.bare:
            return None
        wanted = [_without_end(line) for line in form.bare]
        found = []
        at = -1
        with suppress(ValueError):  # there is no other
            while True:
                at = self._bare.index(wanted[0], at + 1)
                end = at + len(wanted)
                linked = None
                if self._bare[at:end] == wanted:
                    linked = self._linked(self._lines[at:end], form)
                if linked is not None:
                    found.append((at, linked))
        return min(found, key=lambda place: abs(place[0] - form.entry["line"]), default=None)

    def _linked(self, there: Sequence[str], form: _Form) -> list[str] | None:
        """Return lines with the links that they have, and those of an entry, which they are of."""
        old = markdown.split_links("".join(there), self._names.names, self._names)
        ends = [line[len(_without_end(line)) :] for line in there]
        text = "".join(_without_end(line) + end for line, end in zip(form.lines, ends, strict=True))
        new = markdown.split_links(text, self._names.names, self._names)
        if old is None or new is None or not (old.links or form.may_be_bare):
            return None
        linked = old.linked(link for link in new.links if not self._has(old, link))
        return None if linked is None else lines_of(linked)

    def _has(self, there: markdown.Unlinked, link: markdown.Link) -> bool:
        """Whether a text has a link to the same file at the same place, in whatever spelling."""
        return any(
            self._names.file_of(other.target) == self._names.file_of(link.target)
            for other in there.links
            if (other.start, other.end) == (link.start, link.end)
        )

    def _bare_of(self, line: str) -> str:
        """Return a line without links to files of the folder, and without its end."""
        bare = markdown.unlinked(line, self._names.names, self._names)
        return _without_end(line if bare is None else bare)

    def _place_of(self, form: _Form) -> int:
        """Return where an entry goes: below what stood above it, else above what stood below it."""
        digests = self._digests
        near = (digest for digest in form.entry["above"] if self._counts[digest] > 0)
        above = [len(digests) - digests[::-1].index(digest) for digest in islice(near, 1)]
        near = (digest for digest in form.entry["below"] if self._counts[digest] > 0)
        below = [digests.index(digest) for digest in islice(near, 1)]
        if not above:
            return below[0] if below else len(self._lines)
        at = self._below(above[0], form.lines[0])
        if not below or markdown.is_entry(self._lines[at - 1]):
            return at
        # A list begins below a blank line: its first entry comes back there.
        is_blank = not "".join(self._lines[at : below[0]]).strip()
        return below[0] if is_blank and markdown.is_entry(self._lines[below[0]]) else at

    def _below(self, at: int, line: str) -> int:
        """Return the place below what continues the line above, and below the entries under it."""
        while markdown.is_entry(line) and at < len(self._lines):
            other = self._lines[at]
            goes_on = _continues(other) and not markdown.is_entry(other)
            if not goes_on and not (markdown.is_entry(other) and _indent(other) > _indent(line)):
                break
            at += 1
        return at


def _without_end(line: str) -> str:
    return line.rstrip("\r\n")


def take_back(before: bytes, made: bytes, now: bytes) -> bytes:
    r"""Return an index without the step from `before` to `made`, as it has been edited since.

    Lines that the step made and somebody has edited stay as they were edited.

    >>> take_back(b"a\n", b"a\nb\n", b"by hand\na\nb\n")
    b'by hand\na\n'
    """
    old = lines_of(before)
    lines = lines_of(now)
    old_words, new_words, words = (
        [_without_end(line) for line in lines_of(index)] for index in (before, made, now)
    )
    places: dict[int, int] = {}  # of the lines of `made` that are there still
    for block in SequenceMatcher(None, new_words, words, autojunk=False).get_matching_blocks():
        places |= {block.a + number: block.b + number for number in range(block.size)}
    instead: dict[int, list[str]] = {}  # by the number of a line that is there
    above: dict[int, list[str]] = {}
    steps = SequenceMatcher(None, new_words, old_words, autojunk=False).get_opcodes()
    for step, start, end, first, last in steps:
        if step == "delete":
            instead |= {places[number]: [] for number in range(start, end) if number in places}
        elif step == "insert":
            at = places[start] if start in places else places.get(start - 1, len(lines) - 1) + 1
            above.setdefault(at, []).extend(old[first:last])
        elif step == "replace" and all(number in places for number in range(start, end)):
            instead |= {places[number]: [] for number in range(start, end)}
            instead[places[start]] = old[first:last]
    left = []
    for number in range(len(lines) + 1):
        left += above.get(number, [])
        left += instead.get(number, lines[number : number + 1])
    ended = [line if line.endswith("\n") else f"{line}\n" for line in left[:-1]]
    return encoded("".join([*ended, *left[-1:]]))


def digest_of(raw: bytes) -> str:
    """Return what tells a line, or a file, from others."""
    return blake2b(raw, digest_size=5).hexdigest()
