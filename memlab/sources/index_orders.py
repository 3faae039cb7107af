"""What another order of an index's entries would have loaded at start."""

from collections.abc import Callable
from typing import Any

from memlab.sources.index_links import FileNames
from memlab.sources.load_rule import State
from memlab.sources.memory_index import Block, MemoryIndex, encoded


def loaded_files(index: MemoryIndex, names: FileNames) -> frozenset[str]:
    """Return the files that a loaded line of an index names."""
    loaded = (block for block in index.blocks if block.state is State.LOADED)
    return frozenset(name for block in loaded for name in block.files(names))


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


def _is_entry(block: Block, names: FileNames) -> bool:
    return block.state is not State.UNSEEN and block.is_entry and bool(block.files(names))
