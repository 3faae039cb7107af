"""What an index has loaded at start, as its entries stand and in other orders."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from memlab.sources.index_links import FileNames
from memlab.sources.load_rule import State
from memlab.sources.memory_index import Block, MemoryIndex, encoded

TODAY: Final = "as it stands"
"""The order of an index that nobody changed."""
NEWEST: Final = "newest first"
OLDEST: Final = "oldest first"
MOST_READ: Final = "most read first"


class Orders(NamedTuple):
    """The files of a folder, and what of them an index has loaded in one order or another.

    Attributes
    ----------
    written : mapping of str to datetime
        File -> when it was first there.
    lines : mapping of str to tuple of str
        Order -> the files that a visible line names, from the top down.
    fits : mapping of str to int
        Order -> how many of them a loaded line names.
    """

    written: Mapping[str, datetime]
    lines: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, int]


def orders_of(
    index: MemoryIndex,
    names: FileNames,
    written: Mapping[str, datetime],
    reads: Mapping[str, int],
) -> Orders:
    """Return what an index has loaded, its entries in each order.

    Parameters
    ----------
    index : MemoryIndex
        As it stands.
    names : FileNames
        What links may call the files.
    written : mapping of str to datetime
        When each file was first there, the oldest first.
    reads : mapping of str to int
        How often each was read.
    """
    age = {name: number for number, name in enumerate(written)}
    keys: dict[str, Callable[[str], int]] = {
        NEWEST: lambda name: -age[name],
        OLDEST: lambda name: age[name],
        MOST_READ: lambda name: -reads.get(name, 0),
    }
    indexes = {TODAY: index} | {o: reordered(index, names, key) for o, key in keys.items()}
    visible = _named(index, names)
    lines = {TODAY: visible} | {o: tuple(sorted(visible, key=key)) for o, key in keys.items()}
    fits = {order: len(_named(each, names, loaded=True)) for order, each in indexes.items()}
    return Orders(written, lines, fits)


def reordered(index: MemoryIndex, names: FileNames, key: Callable[[str], Any]) -> MemoryIndex:
    """Return an index whose entries stand in another order, at the places where entries stood.

    Parameters
    ----------
    index : MemoryIndex
        Headings and prose of it stay where they are.
    names : FileNames
        What links may call the files.
    key : callable
        Of the first file that an entry names; the lowest comes first.
    """
    entries = [block for block in index.blocks if _is_entry(block, names)]
    ordered = iter(sorted(entries, key=lambda block: key(block.files(names)[0])))
    texts = [(next(ordered) if _is_entry(block, names) else block).text for block in index.blocks]
    whole = "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)
    return MemoryIndex(encoded(whole), index.rule)


def _named(index: MemoryIndex, names: FileNames, *, loaded: bool = False) -> tuple[str, ...]:
    """Return the files that visible lines name, or those loaded alone, from the top down."""
    states = {State.LOADED} if loaded else {State.LOADED, State.CUT}
    blocks = (block for block in index.blocks if block.state in states)
    return tuple(dict.fromkeys(name for block in blocks for name in block.files(names)))


def _is_entry(block: Block, names: FileNames) -> bool:
    return block.state is not State.UNSEEN and block.is_entry and bool(block.files(names))
