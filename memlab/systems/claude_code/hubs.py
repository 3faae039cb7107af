"""Find hubs: files that the index names and that are mostly lists of links to other files.

A hub is part of the index and not a memory: it is never deleted, retired or counted. An agent that
loads ``MEMORY.md`` at start reaches the memories of a hub in two steps.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from memlab.systems.claude_code import markdown
from memlab.systems.claude_code.index import Block, MemoryIndex, State
from memlab.systems.claude_code.markdown import FileNames

LEAST_LINKS: Final = 2
"""Minimum number of different files that a hub links."""
_SHARE: Final = 0.5
"""A file is a list of links if more than this share of its lines and characters are links."""


def list_of_links(text: str, *, with_paths: bool = False) -> MemoryIndex | None:
    r"""Return a file as an index if it is mostly a list of links to other files, else None.

    Headings, blank lines, comments and front matter are not counted. More than half of the other
    lines, and of their characters, must be list entries, table rows or lines that begin with a
    link, and must link a file of the folder. If `with_paths` is true, a file of a subfolder counts
    too. At least :data:`LEAST_LINKS` files must be linked.

    >>> list_of_links("# Deploys\n- [Staging](staging.md)\n- [Production](production.md)\n") is None
    False
    >>> list_of_links("The deploy takes an hour. See [[staging]], [[production]].\n") is None
    True
    """
    if "](" not in text and "[[" not in text:
        return None
    index = MemoryIndex(text.encode("utf-8", "surrogateescape"))
    linked_files = set[str]()
    link_lines = 0
    link_chars = 0
    lines = 0
    chars = 0
    for block in index.blocks:
        line = block.text.strip()
        if block.state is State.UNSEEN or not line or line.startswith("#") or _is_rule(line):
            continue
        targets = _targets(block, with_paths=with_paths)
        is_item = markdown.begins_item(block.text)
        has_children = is_item and not block.is_entry
        if has_children and not targets:
            continue
        lines += 1
        chars += len(line)
        if is_item and targets:
            linked_files |= targets
            link_lines += 1
            link_chars += len(line)
    is_list = link_lines > _SHARE * lines and link_chars > _SHARE * chars
    return index if is_list and len(linked_files) >= LEAST_LINKS else None


def hubs_among(
    lists: Mapping[str, MemoryIndex], named_files: Iterable[str], names: FileNames
) -> dict[str, MemoryIndex]:
    """Return the hubs of a folder: the lists of links that its index or another hub names.

    Parameters
    ----------
    lists : mapping of str to MemoryIndex
        The files of the folder that are lists of links.
    named_files : iterable of str
        The files that the index names.
    names : FileNames
        The names by which links refer to files.
    """
    hubs: dict[str, MemoryIndex] = {}
    unvisited = list(named_files)
    while unvisited:
        name = unvisited.pop()
        if name in lists and name not in hubs:
            hubs[name] = lists[name]
            linked_files = lists[name].blocks_by_file(names.for_links_in(name)).keys()
            unvisited += linked_files
    return dict(sorted(hubs.items()))


def _targets(block: Block, *, with_paths: bool) -> set[str]:
    """Return the Markdown files of the folder that a block links. They need not exist."""
    targets = (mention.target.strip("<> ").removeprefix("./") for mention in block.mentions)
    is_inside = markdown.is_inside if with_paths else markdown.is_local
    local = (target for target in targets if is_inside(target))
    return {target for target in local if PurePosixPath(target).suffix in ("", ".md")}


def _is_rule(line: str) -> bool:
    """Return whether a line is a rule, or the line below the head of a table."""
    return not line.strip("-=*_|: \t")
