"""Take the mend of ``MEMORY.md`` back, although somebody may have edited it since."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from memlab.sources.capabilities import IndexUndone
from memlab.systems.claude_code import markdown
from memlab.systems.claude_code.index import (
    Block,
    MemoryIndex,
    encoded,
    joined,
    line_end,
    lines_of,
)
from memlab.systems.claude_code.markdown import FileNames

Occurrence = tuple[str, int]
"""The text of a block, and how many blocks above it have the same text."""


def without_mend(before: bytes | None, made: bytes, now: bytes, names: FileNames) -> IndexUndone:
    r"""Return the current index without the mend that changed `before` to `made`.

    Lines that the mend added are removed unless they were edited. Lines that it removed return
    beside their old neighbours, unless the index names their file again. Entries that it moved
    return to their former order, but for those that somebody moved since. No other line changes.

    Parameters
    ----------
    before : bytes or None
        The index before the mend; None if there was no file.
    made : bytes
        The index after the mend.
    now : bytes
        The index as it is.
    names : FileNames
        The names by which links refer to the files of the folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> names = FileNames(Path("/memory"), {"a.md", "b.md"})
    >>> made = b"- [A](a.md)\n- [B](b.md)\n"
    >>> without_mend(b"- [A](a.md)\n", made, made + b"- by hand\n", names).data
    b'- [A](a.md)\n- by hand\n'
    """
    if now == made:
        return IndexUndone(before, ())
    old = _nonblank(before or b"")
    new = _nonblank(made)
    added = _texts(new) - _texts(old)
    removed = _texts(old) - _texts(new)
    draft = _Draft(now)
    stays = draft.remove(added, new, names)
    stays += draft.insert(removed, old)
    draft.reorder(_entries(old, names), _entries(new, names), names)
    return IndexUndone(draft.raw, tuple(sorted(set(stays))))


class _Draft:
    """The index as it is, while a mend is taken back."""

    def __init__(self, now: bytes) -> None:
        self._now = MemoryIndex(now)
        self._texts = [block.text for block in self._now.blocks]
        self._end = line_end(now)

    @property
    def raw(self) -> bytes:
        """The index as bytes."""
        return encoded(joined(self._texts, like=self._now.raw))

    def remove(self, added: Counter[str], made: Iterable[Block], names: FileNames) -> list[str]:
        """Remove the added blocks that are unchanged; return the lines that were edited instead.

        An entry stays, too, if somebody nested others below it.
        """
        left = Counter(added)
        kept = list[Block]()
        stays = []
        for block in self._now.blocks:
            text = _normal(block.text)
            has_children = block.is_item and not block.is_entry
            if left[text] and has_children:
                stays.append(text)
            elif left[text]:
                left[text] -= 1
                continue
            kept.append(block)
        self._texts = [block.text for block in kept]
        edited_files = set[str]()
        for block in made:
            if left[_normal(block.text)]:
                edited_files.update(block.files(names)[:1])
        edited = [block for block in kept if edited_files.intersection(block.files(names)[:1])]
        return stays + [_normal(block.text) for block in edited]

    def insert(self, removed: Counter[str], old: Sequence[Block]) -> list[str]:
        """Insert the removed blocks; return the lines that name the file of one again."""
        current = MemoryIndex(self.raw).blocks
        again = []
        left = Counter(removed)
        for number, block in enumerate(old):
            text = _normal(block.text)
            if not left[text]:
                continue
            left[text] -= 1
            targets = _linked(block) if block.is_item else set()
            naming = [other for other in current if targets & _linked(other)]
            if naming:
                again.append(_normal(naming[0].text))
                continue
            self._insert_at(self._place_of(old, number), text)
        return again

    def _insert_at(self, at: int, text: str) -> None:
        """Insert a text before the block with this number."""
        if at and not self._texts[at - 1].endswith("\n"):
            self._texts[at - 1] += self._end
        self._texts.insert(at, text.replace("\n", self._end) + self._end)

    def _place_of(self, old: Sequence[Block], number: int) -> int:
        """Return the place for a former block: beside the nearest former neighbour that is here."""
        places: dict[str, int] = {}
        for place, text in enumerate(self._texts):
            places.setdefault(_normal(text), place)
        for above in range(number - 1, -1, -1):
            text = _normal(old[above].text)
            if text in places:
                return places[text] + 1
        for below in range(number + 1, len(old)):
            text = _normal(old[below].text)
            if text in places:
                return places[text]
        return len(self._texts)

    def reorder(
        self, old: Sequence[Occurrence], made: Sequence[Occurrence], names: FileNames
    ) -> None:
        """Give the entries that the mend moved their former order, but not those moved since."""
        blocks = MemoryIndex(self.raw).blocks
        here = _occurrences(blocks, names)
        shared = {*old} & {*made} & {*here.values()}
        order_made = [entry for entry in made if entry in shared]
        order_now = [entry for entry in here.values() if entry in shared]
        unmoved = set[Occurrence]()
        matcher = SequenceMatcher(None, order_made, order_now, autojunk=False)
        for match in matcher.get_matching_blocks():
            unmoved.update(order_made[match.a : match.a + match.size])
        places = {entry: place for place, entry in here.items()}
        slots = [place for place, entry in here.items() if entry in unmoved]
        wanted = [places[entry] for entry in old if entry in unmoved]
        self._texts = [block.text for block in blocks]
        for slot, place in zip(slots, wanted, strict=True):
            self._texts[slot] = blocks[place].text


def _nonblank(raw: bytes) -> list[Block]:
    """Return the blocks of an index that are not blank."""
    return [block for block in MemoryIndex(raw).blocks if block.text.strip()]


def _normal(text: str) -> str:
    """Return the text of a block without its last line end, with one kind of line ends."""
    return "\n".join(line.rstrip("\r\n") for line in lines_of(text))


def _texts(blocks: Iterable[Block]) -> Counter[str]:
    """Return the texts of blocks, counted."""
    return Counter(_normal(block.text) for block in blocks)


def _linked(block: Block) -> set[str]:
    """Return the Markdown files that a block links, whether they exist or not."""
    targets = (markdown.path_in_target(mention.target) for mention in block.mentions)
    names = map(markdown.name_in_link, targets)
    return {name for name in names if name is not None}


def _entries(blocks: Iterable[Block], names: FileNames) -> list[Occurrence]:
    """Return the entries about memories, from top to bottom."""
    return [*_occurrences(blocks, names).values()]


def _occurrences(blocks: Iterable[Block], names: FileNames) -> dict[int, Occurrence]:
    """Return the entries about memories, by the number of the block."""
    seen = Counter[str]()
    found = {}
    for number, block in enumerate(blocks):
        if block.is_entry and block.files(names):
            text = _normal(block.text)
            found[number] = (text, seen[text])
            seen[text] += 1
    return found
