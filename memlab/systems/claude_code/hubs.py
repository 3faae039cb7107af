"""Hubs: files of a folder that its index names and that are mostly lists of links to others.

A hub is index, not a memory: it is never deleted or retired, and no law counts it. It says where
memories are to be found, as ``MEMORY.md`` does, and a start that loads ``MEMORY.md`` alone leads to
these in two steps.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from memlab.systems.claude_code import markdown
from memlab.systems.claude_code.index import Block, MemoryIndex, State
from memlab.systems.claude_code.markdown import FileNames

LEAST_LINKS: Final = 2
"""Different files that a hub links at least."""
_SHARE: Final = 0.5
"""Of the lines of a hub, and of their characters, more than this lead to other files."""


def list_of_links(text: str) -> MemoryIndex | None:
    r"""Return a file as an index if it is mostly a list of links to other files, else None.

    Headings, blank lines, comments and front matter count for nothing. Of the other lines more than
    half, and of their characters more than half, are entries of a list, rows of a table or lines
    that begin with a link, and link a file of the folder; at least :data:`LEAST_LINKS` are linked.

    >>> list_of_links("# Deploys\n- [Staging](staging.md)\n- [Production](production.md)\n") is None
    False
    >>> list_of_links("The deploy takes an hour. See [[staging]], [[production]].\n") is None
    True
    """
    if "](" not in text and "[[" not in text:
        return None
    index = MemoryIndex(text.encode("utf-8", "surrogateescape"))
    linked = set[str]()
    links = link_chars = lines = chars = 0
    for block in index.blocks:
        words = block.text.strip()
        if block.state is State.UNSEEN or not words or words.startswith("#") or _is_rule(words):
            continue
        targets = _targets(block)
        if markdown.is_entry(block.text) and not targets and not block.is_entry:
            continue  # the entry above those that are indented below it
        lines += 1
        chars += len(words)
        if markdown.is_entry(block.text) and targets:
            linked |= targets
            links += 1
            link_chars += len(words)
    is_list = links > _SHARE * lines and link_chars > _SHARE * chars
    return index if is_list and len(linked) >= LEAST_LINKS else None


def hubs_among(
    lists: Mapping[str, MemoryIndex], named: Iterable[str], names: FileNames
) -> dict[str, MemoryIndex]:
    """Return the hubs of a folder: the lists of links that its index names, or another hub does."""
    found: dict[str, MemoryIndex] = {}
    waiting = list(named)
    while waiting:
        name = waiting.pop()
        if name in lists and name not in found:
            found[name] = lists[name]
            waiting += lists[name].named(names)
    return dict(sorted(found.items()))


def _targets(block: Block) -> set[str]:
    """Return the files beside it that a block links, there or not."""
    targets = (mention.target.strip("<> ").removeprefix("./") for mention in block.mentions)
    local = (target for target in targets if markdown.is_local(target))
    return {target for target in local if PurePosixPath(target).suffix in ("", ".md")}


def _is_rule(words: str) -> bool:
    """Whether a line only divides: a rule, or the line below the head of a table."""
    return not words.strip("-=*_|: \t")
