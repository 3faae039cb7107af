"""The index of a folder of memory files, taken apart: what is loaded, and which files it names.

A file's lines can be taken out and put back; all other bytes of the index stay as they are.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from memlab.sources.front_matter import read_front_matter
from memlab.sources.index_links import (
    FileNames,
    Mention,
    is_entry,
    is_local,
    mentions_in,
    unlinked,
)
from memlab.sources.load_rule import (
    CLAUDE_CODE,
    HIDDEN,
    LoadRule,
    State,
    loaded_part,
    without_comments,
)

INDEX: Final = "MEMORY.md"
EMPTY: Final = "\n"
"""A line that keeps what follows from being front matter."""

_OF_ITS_OWN: Final = ("#", "```", "~~~", "<!--", "|")
"""How a line begins that continues no entry, however far it is indented."""


class Block(NamedTuple):
    """A line, or an entry of a list with the lines that continue it.

    Attributes
    ----------
    number : int
        Its first line, from 1.
    text : str
        With the ends of lines; a byte that is not UTF-8 is a surrogate.
    state : State
        Of its first line.
    is_entry : bool
        It is there for the files it names alone: without them it goes.
    mentions : tuple of Mention
        What it names.
    """

    number: int
    text: str
    state: State
    is_entry: bool
    mentions: tuple[Mention, ...]

    def files(self, names: FileNames) -> list[str]:
        """Return the files of the folder that it names, each once."""
        found = (names.file_of(mention.target) for mention in self.mentions)
        return list(dict.fromkeys(name for name in found if name is not None))

    def without(self, gone: Collection[str], names: FileNames) -> str | None:
        """Return its text without the links to `gone`; None where nothing is left to say.

        An entry that names nothing else goes whole. Anywhere else the words of a link stay.
        """
        going = [names.file_of(mention.target) in gone for mention in self.mentions]
        others = (m.target for m, goes in zip(self.mentions, going, strict=True) if not goes)
        if not any(going):
            return self.text
        if self.is_entry and not any(is_local(t) or names.file_of(t) for t in others):
            return None
        return unlinked(self.text, gone, names)


@dataclass(frozen=True)
class MemoryIndex:
    """The index file.

    Parameters
    ----------
    raw : bytes
        What is in it.
    rule : LoadRule
        How much of it is loaded.
    """

    raw: bytes
    rule: LoadRule = CLAUDE_CODE

    @property
    def loaded(self) -> str:
        """The text that is loaded."""
        return self._parts[0]

    @property
    def states(self) -> Sequence[State]:
        """What becomes of each line."""
        return self._parts[1]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All of the file, in order."""
        return tuple(_blocks(self._lines, self._masked, self.states))

    def named(self, names: FileNames) -> dict[str, list[Block]]:
        """Return the blocks that name each file; a file that none names is missing."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            for name in block.files(names):
                found.setdefault(name, []).append(block)
        return found

    def dangling(self, names: FileNames) -> list[tuple[int, str]]:
        """Return line and target of every link to a file that is not there."""
        return [
            (block.number, mention.target)
            for block in self.blocks
            for mention in block.mentions
            if is_local(mention.target) and names.file_of(mention.target) is None
        ]

    def without(self, gone: Collection[str], names: FileNames) -> bytes:
        """Return the file with nothing in it that names any of `gone`, all else as it is.

        Where a rule comes to stand first, and would begin front matter, an empty line goes before
        it.
        """
        kept = (block.without(gone, names) for block in self.blocks)
        text = "".join(text for text in kept if text is not None)
        is_new = read_front_matter(text).text_at and not read_front_matter(self._text).text_at
        return encoded(EMPTY + text if is_new else text)

    @property
    def _text(self) -> str:
        return "".join(self._lines)

    @cached_property
    def _lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def _masked(self) -> list[str]:
        return list(without_comments(self._lines))

    @cached_property
    def _parts(self) -> tuple[str, list[State]]:
        return loaded_part(self._masked, self.rule)


def lines_of(raw: bytes) -> list[str]:
    """Return the lines of a file, each with its end, so that joined they are the file."""
    parts = raw.decode("utf-8", "surrogateescape").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


def encoded(text: str) -> bytes:
    """Return the bytes that lines stand for."""
    return text.encode("utf-8", "surrogateescape")


def _blocks(
    lines: Sequence[str], masked: Sequence[str], states: Sequence[State]
) -> Iterator[Block]:
    entries = [
        state is not State.UNSEEN and is_entry(line)
        for line, state in zip(masked, states, strict=True)
    ]
    number = 0
    while number < len(lines):
        end = number + 1
        while entries[number] and end < len(lines) and not entries[end]:
            if states[end] is not states[number] or not _continues(lines[end]):
                break
            end += 1
        has_children = (
            end < len(lines) and entries[end] and _indent(lines[end]) > _indent(lines[number])
        )
        yield Block(
            number + 1,
            "".join(lines[number:end]),
            states[number],
            entries[number] and not has_children,
            mentions_in("".join(masked[number:end]).replace(HIDDEN, " ")),
        )
        number = end


def _continues(line: str) -> bool:
    """Whether a line below an entry is part of it: indented, and nothing of its own."""
    return line[0] in " \t" and bool(line.strip()) and not line.lstrip().startswith(_OF_ITS_OWN)


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())
