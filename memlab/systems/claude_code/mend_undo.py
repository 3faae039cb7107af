"""Undo a mend of ``MEMORY.md`` that may have been edited since."""

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


def without_mend(
    before: bytes | None, after: bytes, current: bytes, names: FileNames
) -> IndexUndone:
    r"""Return the current index without a mend.

    Lines that the mend added are removed unless they were edited. Lines that it removed return
    beside their old neighbours, unless the index names their file again. Entries that it moved
    return to their former order, except those that were moved since. No other line changes.

    Parameters
    ----------
    before : bytes or None
        The index before the mend; None if there was no file.
    after : bytes
        The index after the mend.
    current : bytes
        The index as it is.
    names : FileNames
        The names by which links refer to the files of the folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> names = FileNames(Path("/memory"), {"a.md", "b.md"})
    >>> after = b"- [A](a.md)\n- [B](b.md)\n"
    >>> without_mend(b"- [A](a.md)\n", after, after + b"- by hand\n", names).data
    b'- [A](a.md)\n- by hand\n'
    """
    if current == after:
        return IndexUndone(before, ())
    blocks_before = _nonblank_blocks(before or b"")
    blocks_after = _nonblank_blocks(after)
    added = _texts(blocks_after) - _texts(blocks_before)
    removed = _texts(blocks_before) - _texts(blocks_after)
    draft = _Draft(current)
    kept_lines = draft.remove(added, blocks_after, names)
    kept_lines += draft.insert(removed, blocks_before)
    draft.reorder(
        _occurrences_in(blocks_before, names), _occurrences_in(blocks_after, names), names
    )
    return IndexUndone(draft.raw, tuple(sorted(set(kept_lines))))


class _Draft:
    """The current index, from which a mend is removed step by step."""

    def __init__(self, current: bytes) -> None:
        self._current = MemoryIndex(current)
        self._texts = [block.text for block in self._current.blocks]
        self._line_end = line_end(current)

    @property
    def raw(self) -> bytes:
        """The index as bytes."""
        return encoded(joined(self._texts, like=self._current.raw))

    def remove(
        self, added: Counter[str], blocks_after: Iterable[Block], names: FileNames
    ) -> list[str]:
        """Remove the unchanged blocks that a mend added; return the lines that stay instead.

        A line stays if it was edited, or if entries were nested below it since.

        Parameters
        ----------
        added : Counter
            The texts of the added blocks.
        blocks_after : iterable of Block
            All blocks after the mend.
        names : FileNames
            The names by which links refer to files.
        """
        not_removed = Counter(added)
        kept_blocks = list[Block]()
        parents = []
        for block in self._current.blocks:
            text = _normalized(block.text)
            has_children = block.is_item and not block.is_entry
            if not_removed[text] and not has_children:
                not_removed[text] -= 1
                continue
            if not_removed[text]:
                parents.append(text)
            kept_blocks.append(block)
        self._texts = [block.text for block in kept_blocks]
        edited_files = set[str]()
        for block in blocks_after:
            if not_removed[_normalized(block.text)]:
                edited_files.update(block.files(names)[:1])
        edited_lines = [
            _normalized(block.text)
            for block in kept_blocks
            if edited_files.intersection(block.files(names)[:1])
        ]
        return parents + edited_lines

    def insert(self, removed: Counter[str], blocks_before: Sequence[Block]) -> list[str]:
        """Insert the blocks that a mend removed, unless the index names their file again.

        Return the lines that do.

        Parameters
        ----------
        removed : Counter
            The texts of the removed blocks.
        blocks_before : sequence of Block
            All blocks before the mend.
        """
        current_blocks = MemoryIndex(self.raw).blocks
        not_inserted = Counter(removed)
        lines_with_file = []
        for number, block in enumerate(blocks_before):
            text = _normalized(block.text)
            if not not_inserted[text]:
                continue
            not_inserted[text] -= 1
            files = _linked_files(block) if block.is_item else set()
            with_file = [other for other in current_blocks if files & _linked_files(other)]
            if with_file:
                lines_with_file.append(_normalized(with_file[0].text))
            else:
                self._insert_at(self._position_for(blocks_before, number), text)
        return lines_with_file

    def _insert_at(self, position: int, text: str) -> None:
        """Insert a text before the block at a position."""
        if position and not self._texts[position - 1].endswith("\n"):
            self._texts[position - 1] += self._line_end
        self._texts.insert(position, text.replace("\n", self._line_end) + self._line_end)

    def _position_for(self, blocks_before: Sequence[Block], number: int) -> int:
        """Return the position for a removed block: beside its nearest former neighbour.

        Neighbours above come first. Without any, the position is the end.
        """
        positions: dict[str, int] = {}
        for position, text in enumerate(self._texts):
            positions.setdefault(_normalized(text), position)
        for block in reversed(blocks_before[:number]):
            text = _normalized(block.text)
            if text in positions:
                return positions[text] + 1
        for block in blocks_before[number + 1 :]:
            text = _normalized(block.text)
            if text in positions:
                return positions[text]
        return len(self._texts)

    def reorder(
        self, before: Sequence[Occurrence], after: Sequence[Occurrence], names: FileNames
    ) -> None:
        """Give the entries that the mend moved their former order, but not those moved since.

        Parameters
        ----------
        before, after : sequence of Occurrence
            The entries before and after the mend, from top to bottom.
        names : FileNames
            The names by which links refer to files.
        """
        blocks = MemoryIndex(self.raw).blocks
        current = _occurrence_by_block(blocks, names)
        shared = set(before) & set(after) & set(current.values())
        shared_after = [entry for entry in after if entry in shared]
        shared_now = [entry for entry in current.values() if entry in shared]
        unmoved = set[Occurrence]()
        matcher = SequenceMatcher(None, shared_after, shared_now, autojunk=False)
        for match in matcher.get_matching_blocks():
            unmoved.update(shared_after[match.a : match.a + match.size])
        block_of = {entry: number for number, entry in current.items()}
        positions = [number for number, entry in current.items() if entry in unmoved]
        former_order = [block_of[entry] for entry in before if entry in unmoved]
        self._texts = [block.text for block in blocks]
        for position, number in zip(positions, former_order, strict=True):
            self._texts[position] = blocks[number].text


def _nonblank_blocks(raw: bytes) -> list[Block]:
    """Return the blocks of an index that are not blank."""
    return [block for block in MemoryIndex(raw).blocks if block.text.strip()]


def _normalized(text: str) -> str:
    """Return the text of a block without its last line end, with one kind of line ends."""
    return "\n".join(line.rstrip("\r\n") for line in lines_of(text))


def _texts(blocks: Iterable[Block]) -> Counter[str]:
    """Return the texts of blocks, counted."""
    return Counter(_normalized(block.text) for block in blocks)


def _linked_files(block: Block) -> set[str]:
    """Return the Markdown files that a block links, whether they exist or not."""
    targets = (markdown.path_in_target(mention.target) for mention in block.mentions)
    names = map(markdown.name_in_link, targets)
    return {name for name in names if name is not None}


def _occurrences_in(blocks: Iterable[Block], names: FileNames) -> list[Occurrence]:
    """Return the entries about memories, from top to bottom."""
    return list(_occurrence_by_block(blocks, names).values())


def _occurrence_by_block(blocks: Iterable[Block], names: FileNames) -> dict[int, Occurrence]:
    """Return the entries about memories, by the number of the block."""
    counts = Counter[str]()
    occurrences = {}
    for number, block in enumerate(blocks):
        if block.is_entry and block.files(names):
            text = _normalized(block.text)
            occurrences[number] = (text, counts[text])
            counts[text] += 1
    return occurrences
