"""Plan a mend of ``MEMORY.md``.

A mend adds missing lines, removes lines of missing files, and can move the lines of the most read
files into the part that a start loads. A load-bearing memory that a start loads stays loaded if its
line can move; otherwise the plan names it. Only lines that are understood change. Prose, comments,
code, hubs and sections keep their place, and so does a line whose file may still exist.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from math import ceil
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from unicodedata import category

from memlab.errors import PlanError
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.capabilities import (
    ADDS,
    CLEARS,
    MOVES,
    REMOVES,
    RESTORES,
    STAYS,
    IndexLine,
    IndexLoad,
)
from memlab.sources.reads import text as decoded
from memlab.systems.claude_code import markdown
from memlab.systems.claude_code.index import (
    INDEX,
    RETIRED,
    Block,
    Entries,
    LoadRule,
    MemoryIndex,
    State,
    encoded,
    find_empty_headings,
    insert_entries,
    is_heading,
    joined,
    line_of_open_comment,
    lines_of,
)
from memlab.systems.claude_code.line_style import (
    default_line,
    is_ordered,
    stem,
    style_of,
    target,
)
from memlab.systems.claude_code.markdown import FileNames
from memlab.systems.claude_code.view import FolderView

_OPEN_COMMENT: Final = "this comment never ends: add --> (no start loads the rest)"
"""Why a line with an open comment is shown in a plan."""
_DROPS_OUT: Final = "it is load-bearing, and no start loads it any more: move it up by hand"
"""Reason for a line that the added lines push out of the part that a start loads."""
_LONGEST_SHOWN: Final = 200
"""Maximum number of characters of a line in a plan."""
_LONGEST_AMBIGUOUS: Final = 20
"""Maximum length of the beginning of a line that does not identify the line.

A plan has only the beginning of a long line (see :data:`_LONGEST_SHOWN`). When the mended index is
checked, a beginning longer than this stands for the line that begins with it."""
_NO_LIMIT: Final = LoadRule(lines=sys.maxsize, units=sys.maxsize)
_TABLE_RULE: Final = re.compile(r"[ \t]*\|?[ \t:|-]*-[ \t:|-]*\r?\n?\Z")
"""The line of dashes below the head of a table."""


class Committed(NamedTuple):
    """A committed version of the index."""

    data: bytes
    """The content of the file."""
    name: str
    """The name of the version in a plan."""


class Priorities(NamedTuple):
    """The facts that decide which lines of an index a start should load."""

    reads: Mapping[str, int]
    """The number of reads by file."""
    load_bearing: frozenset[str]
    """The files of load-bearing memories. Those that a start loads now should stay loaded."""


@dataclass(frozen=True)
class Mended:
    """The mended index and the changes to its lines."""

    index: MemoryIndex
    lines: tuple[IndexLine, ...]
    """The lines of the plan."""
    before: IndexLoad
    """How much of the index a start loads without the mend."""
    after: IndexLoad
    """How much of the index a start loads after the mend."""


class _Step(NamedTuple):
    """The result of one step of a mend.

    Attributes
    ----------
    raw : bytes
        The index after the step.
    lines : sequence of IndexLine
        The lines of the plan: lines that the step changed, and lines that it left unmended.
    """

    raw: bytes
    lines: Sequence[IndexLine] = ()


class _BlockRange(NamedTuple):
    """The blocks of a section: the number of the first one, and the number after the last one."""

    start: int
    end: int


def mended(
    view: FolderView,
    *,
    lost: Entries,
    committed: Committed | None,
    empty_headings: bool,
    priorities: Priorities,
    reorder: bool,
) -> Mended:
    """Return the mended index of a folder.

    Parameters
    ----------
    view : FolderView
        The folder as it is now.
    lost : mapping of str to sequence of IndexEntry
        The former entries of files that a lost or overwritten index named.
    committed : Committed or None
        The version of the index in git that is restored; None for none.
    empty_headings : bool
        Whether to remove headings with nothing below them.
    priorities : Priorities
        The facts that decide which lines a start should load.
    reorder : bool
        Whether lines may move: those of files that are read most into the part that a start loads,
        and those of load-bearing memories back into it.

    Raises
    ------
    PlanError
        If the index is not UTF-8, or if it cannot be mended without a change to its other lines.
    """
    _check_utf8(view.index.raw, view.folder)
    steps: list[Callable[[FolderView], _Step]] = [
        partial(_restored, lost=lost, committed=committed),
        _without_dead_lines,
        _with_missing_lines,
    ]
    if empty_headings:
        steps.append(_without_empty_headings)
    protected = _loaded_files(view.index, view) & priorities.load_bearing
    if reorder:
        steps.append(partial(_reordered, reads=priorities.reads, protected=protected))
    current = view
    lines: list[IndexLine] = []
    for step in steps:
        result = step(current)
        current = _with_index(view, result.raw)
        lines += result.lines
    _check_mended(view, current, lines)
    return Mended(
        index=current.index,
        lines=(
            *_with_new_numbers(lines, current.index),
            *_dropped_out(protected, current),
            *_open_comment(current.index),
        ),
        before=load_of(view),
        after=load_of(current),
    )


def _open_comment(index: MemoryIndex) -> Iterator[IndexLine]:
    """Yield the line with a comment that never ends, if there is one."""
    lines = lines_of(index.raw)
    number = line_of_open_comment(lines)
    if number:
        text = lines[number - 1].strip()[:_LONGEST_SHOWN].strip()
        yield IndexLine(STAYS, number, text, "", _OPEN_COMMENT)


def _dropped_out(protected: Collection[str], mended_view: FolderView) -> Iterator[IndexLine]:
    """Yield the first line of each protected file that no start loads after the mend."""
    index = mended_view.index
    loaded = _loaded_files(index, mended_view)
    for name, blocks in index.blocks_by_file(mended_view.names).items():
        if name in protected and name not in loaded:
            yield _line(STAYS, blocks[0], name, _DROPS_OUT)


def load_of(view: FolderView) -> IndexLoad:
    """Count the memories, those that the index names, and those that a start loads.

    The tokens are those of the part of the index that a start loads.
    """
    memories = view.notes.keys() - view.hubs.keys()
    named: set[str] = set()
    loaded: set[str] = set()
    for name, blocks in view.blocks_by_file.items():
        if name not in memories:
            continue
        named.add(name)
        if any(block.state is State.LOADED for block in blocks):
            loaded.add(name)
    tokens = ceil(len(decoded(view.index.loaded)) / CHARS_PER_TOKEN)
    return IndexLoad(files=len(memories), named=len(named), loaded=len(loaded), tokens=tokens)


def _with_index(view: FolderView, raw: bytes) -> FolderView:
    """Return a view of the same folder with another index."""
    if raw == view.index.raw:
        return view
    return replace(view, index=_parsed(raw, view))


def _parsed(raw: bytes, view: FolderView) -> MemoryIndex:
    """Return a version of the index, with the load rule of the folder."""
    return MemoryIndex(raw, view.index.rule)


def _check_utf8(raw: bytes, folder: str) -> None:
    """Raise PlanError if an index is not UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{INDEX} in {folder} is not UTF-8 (byte {error.start:,}); nothing was planned: write "
            "it as UTF-8 first"
        ) from error


# Restoring a lost index


def _restored(view: FolderView, lost: Entries, committed: Committed | None) -> _Step:
    """Return the index with the lines that it had before it was lost or overwritten."""
    raw = view.index.raw
    # For each file, where its line was found.
    origins: dict[str, str] = {}
    if committed is not None:
        raw = _merged(committed.data, raw, view)
        for name in _parsed(raw, view).blocks_by_file(view.names):
            origins[name] = f"git has it in {committed.name}"
    lost_of_notes = {name: entries for name, entries in lost.items() if name in view.notes}
    if lost_of_notes:
        raw = insert_entries(raw, lost_of_notes, view.names)
        for name in lost_of_notes:
            origins.setdefault(name, "a copy of the memory has it")
    if raw == view.index.raw:
        return _Step(raw)
    index = _parsed(raw, view)
    lines = []
    for name, blocks in index.blocks_by_file(view.names).items():
        if name not in view.blocks_by_file and name in origins:
            lines.append(_line(RESTORES, blocks[0], name, f"{origins[name]}; the index lost it"))
    return _Step(raw, lines)


def _merged(former: bytes, current: bytes, view: FolderView) -> bytes:
    """Return a former index with the lines added that only the current index has.

    If both have an entry of a file, keep that of the current index.
    """
    current_files = _parsed(current, view).files_with_entry(view.names)
    former_lines = []
    for block in _parsed(former, view).blocks:
        is_replaced = block.is_entry and block.subject(view.names) in current_files
        if not is_replaced:
            former_lines += lines_of(block.text)
    current_lines = lines_of(current)
    matcher = SequenceMatcher(
        None,
        [line.rstrip("\r\n") for line in former_lines],
        [line.rstrip("\r\n") for line in current_lines],
        autojunk=False,
    )
    merged = []
    for change, former_start, former_end, start, end in matcher.get_opcodes():
        merged += former_lines[former_start:former_end]
        if change != "equal":
            merged += current_lines[start:end]
    return encoded(joined(merged, like=current or former))


# Dead lines


def _without_dead_lines(view: FolderView) -> _Step:
    """Return the index without the entries of files that are gone."""
    # The load limit can divide an entry into two blocks. Without it, a second mend finds the same
    # entries as the first.
    index = MemoryIndex(view.index.raw, _NO_LIMIT)
    removed: dict[int, IndexLine] = {}
    kept = []
    # From the bottom up, so that nested entries are removed before the entry above them.
    for number in reversed(range(len(index.blocks))):
        block = index.blocks[number]
        dead_files = _dead_links(view, index, block)
        if not dead_files:
            continue
        reason = _reason_to_keep(view, index, number, dead_files, removed)
        if reason:
            kept.append(_line(STAYS, block, dead_files[0], reason))
        else:
            removed[number] = _line(REMOVES, block, dead_files[0], "its file is gone")
    lines = sorted([*kept, *removed.values()], key=lambda line: line.number)
    if not removed:
        return _Step(index.raw, lines)
    texts = [block.text for number, block in enumerate(index.blocks) if number not in removed]
    return _Step(_without_new_front_matter(texts, index), lines)


def _dead_links(view: FolderView, index: MemoryIndex, block: Block) -> list[str]:
    """Return the Markdown files that a visible block links and that are not in the folder."""
    if block.state is State.UNSEEN or index.is_code(block.number):
        return []
    dead_files = []
    for link in markdown.inline_links(block.text, block.mentions):
        path = markdown.path_in_target(link.target)
        path_without_anchor = re.split(r"[#?]", path, maxsplit=1)[0]
        if not path_without_anchor.endswith(".md"):
            continue
        name = markdown.name_in_link(path)
        if name is None or name in (INDEX, RETIRED):
            continue
        if view.is_dead(link.target):
            dead_files.append(name)
    return dead_files


def _reason_to_keep(
    view: FolderView,
    index: MemoryIndex,
    number: int,
    dead_files: Sequence[str],
    removed: Collection[int],
) -> str:
    """Return the reason to keep a block with dead links; empty if it is to be removed.

    Parameters
    ----------
    view : FolderView
        The folder.
    index : MemoryIndex
        Its index.
    number : int
        The number of the block.
    dead_files : sequence of str
        The missing files that the block links.
    removed : collection of int
        The numbers of the blocks below that are removed.
    """
    block = index.blocks[number]
    for file in dead_files:
        path_now = view.path_by_last_name.get(PurePosixPath(file).name)
        if path_now is not None:
            advice = ", or move it up" if "/" in path_now else ""
            return f"a file of that name is {path_now}: link that{advice}"
    if not block.is_item:
        return "it is a sentence or a heading: take the link out by hand"
    existing_files = block.files(view.all_names)
    if existing_files:
        return f"it names {existing_files[0]} too: take the link out by hand"
    if len(block.mentions) > len(dead_files):
        return "it has other links too: take the dead one out by hand"
    if _has_remaining_children(index, number, removed):
        return "other entries are nested below it"
    return "it is the head of a table" if _is_head_of_table(index, number) else ""


def _is_head_of_table(index: MemoryIndex, number: int) -> bool:
    """Return whether a block is the first row of a table, above its rule."""
    if "|" not in index.blocks[number].text or number + 1 == len(index.blocks):
        return False
    return _TABLE_RULE.match(index.blocks[number + 1].text) is not None


def _has_remaining_children(index: MemoryIndex, number: int, removed: Collection[int]) -> bool:
    """Return whether a block has nested blocks that are not removed."""
    parent = index.blocks[number]
    # `Block.is_entry` is true only of an item without nested items.
    if parent.is_entry:
        return False
    for child_number in range(number + 1, len(index.blocks)):
        child = index.blocks[child_number]
        if not child.text.strip():
            continue
        if child.indent <= parent.indent:
            return False
        if child_number not in removed:
            return True
    return False


def _without_new_front_matter(texts: Sequence[str], index: MemoryIndex) -> bytes:
    """Return blocks as a file that has front matter only if the index had it.

    A blank first line prevents that other text at the top is read as front matter.
    """
    text = joined(texts, like=index.raw)
    had_front_matter = markdown.read_front_matter(index.raw.decode()).text_at > 0
    has_front_matter = markdown.read_front_matter(text).text_at > 0
    if has_front_matter and not had_front_matter:
        text = f"\n{text}"
    return encoded(text)


# Lines for files without one


def _with_missing_lines(view: FolderView) -> _Step:
    """Return the index with a line for each memory that nothing names."""
    unlisted = [name for name in view.unlisted if name not in view.hubs]
    linkable = sorted(filter(_can_be_linked, unlisted), key=view.position)
    lines = []
    for name in unlisted:
        if not _can_be_linked(name):
            # A name of a file that is not UTF-8 cannot be printed.
            shown_name = name.encode(errors="replace").decode()
            reason = "no link can name it: rename the file"
            lines.append(IndexLine(STAYS, 0, shown_name, "", reason))
    if not linkable:
        return _Step(view.index.raw, lines)
    raw = _with_lines_of(linkable, view)
    named = _parsed(raw, view).blocks_by_file(view.names)
    lines += [_line(ADDS, named[name][0], name, "no line named it") for name in linkable]
    return _Step(raw, lines)


def _with_lines_of(names: Sequence[str], view: FolderView) -> bytes:
    """Return the index with a line for each of `names`, in the style of the section.

    Parameters
    ----------
    names : sequence of str
        The files of the memories, from the oldest to the newest.
    view : FolderView
        The folder.
    """
    sections = _sections(view.index)
    type_counts = [_types_in(view, section) for section in sections]
    names_by_section: dict[_BlockRange, list[str]] = {}
    for name in names:
        section = _section_for(view.notes[name].type.name, sections, type_counts)
        names_by_section.setdefault(section, []).append(name)
    raw = view.index.raw
    names_for_top = []  # memories whose line does not fit into their section
    # From the bottom up, so that the line numbers above stay valid.
    for section in sorted(names_by_section, reverse=True):
        oldest_first = names_by_section[section]
        ordered = oldest_first[::-1] if view.is_newest_first else oldest_first
        extended = _with_group(view, _parsed(raw, view), _insertion_point(view, section), ordered)
        if extended is None:
            names_for_top += oldest_first
        else:
            raw = extended
    for name in names_for_top:
        raw = _with_line_on_top(view, _parsed(raw, view), name)
    return raw


def _with_group(
    view: FolderView, index: MemoryIndex, point: "_InsertionPoint", names: Sequence[str]
) -> bytes | None:
    """Return an index with lines for `names` inserted at a point; None if they do not fit there.

    The lines are written in the style of the section, else in the default style.
    """
    # The section is a range of blocks of `view.index`. Lines that were added since may divide
    # `index` into other blocks.
    blocks = view.index.blocks[point.section.start : point.section.end]
    style = style_of(blocks, view.names, point.neighbour)
    styled_lines = []
    for number, name in enumerate(names):
        styled_lines.append(style.numbered(number).line(name, view.notes[name]))
    default_lines = [default_line(name, view.notes[name]) for name in names]
    for lines in (styled_lines, default_lines):
        raw = _with_inserted(lines, index, point.line)
        if _adds_only_one_line_each(index, _parsed(raw, view), names, view.names):
            return raw
    return None


def _with_line_on_top(view: FolderView, index: MemoryIndex, name: str) -> bytes:
    """Return an index with the line of a memory above everything but front matter."""
    line_without_title = f"- [{stem(name)}]({target(name)})"
    for line in (default_line(name, view.notes[name]), line_without_title):
        raw = _with_inserted([line], index, _top_of(index))
        if _adds_only_one_line_each(index, _parsed(raw, view), [name], view.names):
            return raw
    raise PlanError(
        f"no line can be put into {INDEX} in {view.folder} without changing others; nothing was "
        f"planned: write a line for {name} by hand"
    )


def _can_be_linked(name: str) -> bool:
    """Return whether a link in UTF-8 text can have a file name as its target."""
    is_printable = all(category(char)[0] != "C" for char in name)
    return is_printable and not set("<>|") & set(name)


def _adds_only_one_line_each(
    before: MemoryIndex, after: MemoryIndex, added: Sequence[str], names: FileNames
) -> bool:
    """Return whether each added file has one visible line of its own, and no other line changed."""
    named = after.blocks_by_file(names)
    expected_lines = _all_visible_lines(before)
    for name in added:
        blocks = named.get(name, ())
        if len(blocks) != 1 or blocks[0].files(names) != [name]:
            return False
        if after.is_code(blocks[0].number) or not _is_visible(blocks[0]):
            return False
        expected_lines.update(_visible_lines(blocks[0]))
    return _all_visible_lines(after) == expected_lines


def _all_visible_lines(index: MemoryIndex) -> Counter[str]:
    """Return the lines of all visible blocks of an index, counted."""
    return Counter(line for block in index.blocks for line in _visible_lines(block))


def _visible_lines(block: Block) -> list[str]:
    """Return the lines of a visible block, without blank ones; none for a hidden block.

    A new line above moves the load limit, which can divide a block. So lines are compared, and not
    blocks.
    """
    if not _is_visible(block):
        return []
    lines = [line.rstrip("\r") for line in block.text.split("\n")]
    return [line for line in lines if line.strip()]


def _is_visible(block: Block) -> bool:
    """Return whether a block has text outside of comments and front matter."""
    return block.state is not State.UNSEEN and bool(block.text.strip())


def _with_inserted(new_lines: Sequence[str], index: MemoryIndex, line: int) -> bytes:
    """Return an index with new lines inserted before a line, which is numbered from 0."""
    lines = lines_of(index.raw)
    lines[line:line] = new_lines
    return encoded(joined(lines, like=index.raw))


def _top_of(index: MemoryIndex) -> int:
    """Return the number of the first line after front matter, from 0."""
    text = index.raw.decode()
    return len(lines_of(text[: markdown.read_front_matter(text).text_at]))


class _InsertionPoint(NamedTuple):
    """The point of an index at which new lines are inserted.

    Attributes
    ----------
    line : int
        The number of the line before which they are inserted, from 0.
    neighbour : Block or None
        The entry beside which they are inserted; None if there is none.
    section : _BlockRange
        The blocks whose style they get.
    """

    line: int
    neighbour: Block | None
    section: _BlockRange


def _insertion_point(view: FolderView, section: _BlockRange) -> _InsertionPoint:
    """Return the point for new lines in a section: below its entries, or above them."""
    index = view.index
    items = []  # as positions in `blocks`; the `number` of a block is that of its first line
    for position in range(section.start, section.end):
        block = index.blocks[position]
        if block.is_item and not index.is_code(block.number):
            items.append(position)
    if not items:
        whole_index = _BlockRange(0, len(index.blocks))
        return _InsertionPoint(_line_count(index, whole_index.end), None, whole_index)
    if view.is_newest_first:
        first_item = index.blocks[items[0]]
        return _InsertionPoint(first_item.number - 1, first_item, section)
    end = items[-1] + 1
    # A sentence right below the last entry belongs to it.
    while end < section.end and _is_lazy_continuation(index, end):
        end += 1
    return _InsertionPoint(_line_count(index, end), index.blocks[items[-1]], section)


def _is_lazy_continuation(index: MemoryIndex, number: int) -> bool:
    """Return whether a block is text that continues the paragraph above it."""
    block = index.blocks[number]
    return bool(block.text.strip()) and not is_heading(block.text) and not block.is_item


def _line_count(index: MemoryIndex, block_count: int) -> int:
    """Return the number of lines of the first blocks.

    If these are all blocks, the blank lines at the end of the file do not count.
    """
    if block_count == len(index.blocks):
        while block_count and not index.blocks[block_count - 1].text.strip():
            block_count -= 1
    if not block_count:
        return 0
    last = index.blocks[block_count - 1]
    return last.number - 1 + len(lines_of(last.text))


def _sections(index: MemoryIndex) -> list[_BlockRange]:
    """Return the sections of an index: the blocks from one heading to the next."""
    starts = [0]
    for number, block in enumerate(index.blocks):
        if number == 0 or block.state is State.UNSEEN:
            continue
        if is_heading(block.text) and not index.is_code(block.number):
            starts.append(number)
    ends = [*starts[1:], len(index.blocks)]
    return [_BlockRange(start, end) for start, end in zip(starts, ends, strict=True)]


def _section_for(
    memory_type: str, sections: Sequence[_BlockRange], type_counts: Sequence[Counter[str]]
) -> _BlockRange:
    """Return the section for a memory of a type: that of the type, else the last with entries.

    A section is of a type if at least two of the files that it lists, and at least half of them,
    have the type. The section with most such files is chosen.
    """
    last_with_entries = sections[-1]
    section_of_type = None
    largest_count = 1  # a single file of the type does not count
    for section, counts in zip(sections, type_counts, strict=True):
        if counts:
            last_with_entries = section
        count = counts[memory_type]
        if memory_type and count > largest_count and 2 * count >= counts.total():
            largest_count = count
            section_of_type = section
    return last_with_entries if section_of_type is None else section_of_type


def _types_in(view: FolderView, section: _BlockRange) -> Counter[str]:
    """Return the types of the memories that entries of a section are about, counted."""
    types: Counter[str] = Counter()
    for number in range(section.start, section.end):
        block = view.index.blocks[number]
        files = block.files(view.names) if block.is_item else []
        if files and not view.index.is_code(block.number):
            types[view.notes[files[0]].type.name] += 1
    return types


# Empty headings


def _without_empty_headings(view: FolderView) -> _Step:
    """Return the index without headings that have nothing below them; the title stays."""
    index = view.index
    removed: dict[int, IndexLine] = {}
    for number in find_empty_headings(index):
        removed[number] = _line(CLEARS, index.blocks[number], "", "nothing stands below it")
    if not removed:
        return _Step(index.raw)
    texts = []
    # Blank lines directly below a removed heading are removed too.
    is_below_removed = False
    for number, block in enumerate(index.blocks):
        is_blank = not block.text.strip()
        if number in removed or (is_below_removed and is_blank):
            is_below_removed = True
            continue
        is_below_removed = False
        texts.append(block.text)
    return _Step(_without_new_front_matter(texts, index), list(removed.values()))


# Order


class _MovableEntries(NamedTuple):
    """Entries of a section that may change places.

    Attributes
    ----------
    reads : mapping of int to int
        The number of reads of each entry, by the number of its block, from top to bottom.
    protected : set of int
        The numbers of the blocks that keep a load-bearing memory loaded, or load it again.
    """

    reads: Mapping[int, int]
    protected: set[int]


def _reordered(view: FolderView, reads: Mapping[str, int], protected: set[str]) -> _Step:
    """Return the index with protected entries, and then the most read ones, in its loaded part.

    Entries move within their section, and keep their order where they can. Nested and numbered
    entries, parents and hubs do not move. An index that is loaded whole stays as it is.

    Parameters
    ----------
    view : FolderView
        The folder.
    reads : mapping of str to int
        The number of reads by file.
    protected : set of str
        The files of load-bearing memories that a start loads before the mend.
    """
    index = view.index  # earlier steps of the mend may have pushed protected entries out
    if index.loaded == index.text:
        return _Step(index.raw)
    pushed_out = protected - _loaded_files(index, view)
    texts = [block.text for block in index.blocks]
    for numbers in _groups_of_movable(view):
        files_by_number = {number: index.blocks[number].files(view.names) for number in numbers}
        read_counts = {}
        protected_numbers = set()
        has_pushed_out = False
        for number, files in files_by_number.items():
            read_counts[number] = reads.get(files[0], 0)
            is_loaded = index.blocks[number].state is State.LOADED
            if pushed_out.intersection(files):
                has_pushed_out = True
                protected_numbers.add(number)
            elif is_loaded and protected.intersection(files):
                protected_numbers.add(number)
        if has_pushed_out or any(read_counts.values()):
            entries = _MovableEntries(read_counts, protected_numbers)
            texts = _with_preferred_loaded(texts, entries, view, protected)
    raw = encoded("".join(texts))
    if raw == index.raw:
        return _Step(raw)
    moved = _moved_lines(index, _parsed(raw, view), view, reads=reads, protected=protected)
    return _Step(raw, list(moved))


def _groups_of_movable(view: FolderView) -> list[list[int]]:
    """Return groups of blocks that may change places: the rows and other entries of a section.

    The groups are in the order of their first blocks.
    """
    groups = []
    for section in _sections(view.index):
        rows = []
        other_entries = []
        for number in range(section.start, section.end):
            if not _is_movable(view, number):
                continue
            if view.index.blocks[number].text.startswith("|"):
                rows.append(number)
            else:
                other_entries.append(number)
        groups += [rows, other_entries]
    return sorted(group for group in groups if group)


def _is_movable(view: FolderView, number: int) -> bool:
    """Return whether a block is an entry of a memory that may change places with others."""
    index = view.index
    block = index.blocks[number]
    if not block.is_entry or block.indent > 0:
        return False
    if is_ordered(block.text) or index.is_code(block.number):
        return False
    files = block.files(view.names)
    if not files or any(file in view.hubs for file in files):
        return False
    is_last = number + 1 == len(index.blocks)
    return is_last or not _is_lazy_continuation(index, number + 1)


def _with_preferred_loaded(
    texts: Sequence[str],
    entries: _MovableEntries,
    view: FolderView,
    protected: set[str],
) -> list[str]:
    """Return the blocks of an index with the preferred entries in the places that are loaded.

    Protected entries are preferred to others, and among both those that are read more. The entries
    in loaded places keep their order, and so do the others. If the entries to load are too long for
    all loaded places, fewer entries are loaded.

    Parameters
    ----------
    texts : sequence of str
        The blocks of the index.
    entries : _MovableEntries
        The entries that may change places.
    view : FolderView
        The folder.
    protected : set of str
        The files that stay loaded if they are loaded.
    """
    numbers = list(entries.reads)  # the numbers of the blocks, which are also their places
    by_preference = sorted(
        numbers, key=lambda number: (number not in entries.protected, -entries.reads[number])
    )
    index = _parsed_texts(texts, view)
    states = _block_states(texts, index)
    loaded_places = [number for number in numbers if states[number] is State.LOADED]
    protected_and_loaded = _loaded_files(index, view) & protected
    for count in range(len(loaded_places), 0, -1):
        chosen = {
            number
            for number in by_preference[:count]
            if entries.reads[number] or number in entries.protected
        }
        # Other entries fill the remaining loaded places, from the top.
        others = [number for number in numbers if number not in chosen]
        to_load = chosen.union(others[: count - len(chosen)])
        order = [number for number in numbers if number in to_load]
        order += [number for number in numbers if number not in to_load]
        rearranged = _rearranged(texts, numbers, order)
        new_index = _parsed_texts(rearranged, view)
        new_states = _block_states(rearranged, new_index)
        if not all(new_states[place] is State.LOADED for place in numbers[:count]):
            continue
        # Longer lines that move up can also push out the entries of other sections.
        if protected_and_loaded <= _loaded_files(new_index, view):
            return rearranged
    return list(texts)


def _loaded_files(index: MemoryIndex, view: FolderView) -> set[str]:
    """Return the files with an entry in the part of an index that a start loads."""
    return {
        name
        for name, blocks in index.blocks_by_file(view.names).items()
        if any(block.state is State.LOADED for block in blocks)
    }


def _parsed_texts(texts: Sequence[str], view: FolderView) -> MemoryIndex:
    """Return the index that has these blocks."""
    return _parsed(encoded("".join(texts)), view)


def _rearranged(texts: Sequence[str], places: Sequence[int], order: Sequence[int]) -> list[str]:
    """Return blocks in a new order: block ``order[i]`` moves to ``places[i]``.

    The line ends do not move, and neither do blocks at other places.
    """
    rearranged = list(texts)
    for place, number in zip(places, order, strict=True):
        text = texts[number].rstrip("\r\n")
        end = texts[place][len(texts[place].rstrip("\r\n")) :]
        rearranged[place] = text + end
    return rearranged


def _block_states(texts: Sequence[str], index: MemoryIndex) -> list[State]:
    """Return the state of each block of a parsed index: cut if one of its lines is cut."""
    line_states = iter(index.states)
    states = []
    for text in texts:
        states_in_block = list(islice(line_states, len(lines_of(text))))
        is_cut = State.CUT in states_in_block
        states.append(State.CUT if is_cut else states_in_block[0])
    return states


def _moved_lines(
    before: MemoryIndex,
    after: MemoryIndex,
    view: FolderView,
    *,
    reads: Mapping[str, int],
    protected: Collection[str],
) -> Iterator[IndexLine]:
    """Yield the lines that a start loads only before the reordering, or only after it."""
    loaded_before = _loaded_files(before, view)
    loaded_after = _loaded_files(after, view)
    for name, blocks in after.blocks_by_file(view.names).items():
        if (name in loaded_before) == (name in loaded_after):
            continue
        effect = "a start loads it now" if name in loaded_after else "no start loads it now"
        reason = _reads_phrase(reads.get(name, 0))
        if name in protected:
            reason = "load-bearing"
            effect = "a start still loads it"
        elif not reads:  # no log of reads: entries move only for load-bearing ones
            reason = "makes room"
        yield _line(MOVES, blocks[0], name, f"{reason}: {effect}")


def _reads_phrase(count: int) -> str:
    """Return the number of reads of a memory in words."""
    return "read once" if count == 1 else f"read {count:,} times"


# Lines of a plan


def _line(action: str, block: Block, file: str, reason: str) -> IndexLine:
    """Return a block as a line of a plan."""
    text = block.text.strip()[:_LONGEST_SHOWN]
    return IndexLine(action, block.number, text, file, reason)


def _with_new_numbers(lines: Sequence[IndexLine], index: MemoryIndex) -> list[IndexLine]:
    """Return lines of a plan with their numbers in the mended index.

    Of several lines with the same text, the nearest one is taken. A removed line keeps its old
    number.
    """
    numbers_by_text: dict[str, list[int]] = {}
    lines_and_states = zip(lines_of(index.raw), index.states, strict=True)
    for number, (text, state) in enumerate(lines_and_states, start=1):
        if state is not State.UNSEEN and not index.is_code(number):
            shown_text = text.strip()[:_LONGEST_SHOWN].strip()
            numbers_by_text.setdefault(shown_text, []).append(number)
    renumbered = []
    for line in lines:
        # Only the first line of the text is looked up: the mended index may be divided into other
        # blocks, because the load limit is at another line.
        numbers = numbers_by_text.get(line.text.partition("\n")[0].strip())
        if numbers and line.action in (ADDS, RESTORES, MOVES, STAYS):
            old_number = line.number
            number = min(numbers, key=lambda candidate: abs(candidate - old_number))
            # Lines with the same text take different numbers while there are several. The last
            # number stays, because several steps of the mend may name one and the same line.
            if len(numbers) > 1:
                numbers.remove(number)
            renumbered.append(line._replace(number=number))
        else:
            renumbered.append(line)
    return renumbered


def _check_mended(view: FolderView, after: FolderView, lines: Sequence[IndexLine]) -> None:
    """Raise PlanError if a mended index lost a line that the plan does not name.

    A mend keeps this invariant: every file that was named is named, each memory is named or
    reached, and every other line is still there.
    """
    fault = _fault_in(view, after, lines)
    if fault:
        raise PlanError(
            f"{INDEX} in {view.folder} cannot be mended line by line ({fault}); nothing was "
            "planned: mend it by hand"
        )


def _fault_in(view: FolderView, after: FolderView, lines: Sequence[IndexLine]) -> str:
    """Return a violation of the invariant of a mend; empty for none."""
    linkable = [name for name in after.unlisted if name not in after.hubs and _can_be_linked(name)]
    if linkable:
        return f"{linkable[0]} has no line"
    lost_names = view.blocks_by_file.keys() - after.blocks_by_file.keys()
    if lost_names:
        return f"{min(lost_names)} lost its line"
    removed = Counter(line.text for line in lines if line.action in (REMOVES, CLEARS))
    missing = _line_counts(view.index) - _line_counts(after.index)
    if not _are_all_removed(missing, removed):
        return "other lines would change"
    hidden_before = _hidden_lines(view.index)
    hidden_after = _hidden_lines(after.index)
    # A restored version of the index may have more comments.
    is_restore = any(line.action == RESTORES for line in lines)
    has_new_hidden_lines = hidden_after.total() > hidden_before.total() and not is_restore
    if hidden_before - hidden_after or has_new_hidden_lines:
        return "a comment or the front matter would change"
    return ""


def _line_counts(index: MemoryIndex) -> Counter[str]:
    """Return the lines of an index, counted, without blank ones."""
    stripped = (line.strip() for block in index.blocks for line in lines_of(block.text))
    return Counter(line for line in stripped if line)


def _are_all_removed(missing: Counter[str], removed: Counter[str]) -> bool:
    """Return whether all missing lines are parts of removed blocks."""
    removed_lines: Counter[str] = Counter()
    for text, count in removed.items():
        for line in lines_of(text):
            removed_lines[line.strip()] += count
    return all(_is_removed(line, count, removed_lines) for line, count in missing.items())


def _is_removed(line: str, count: int, removed_lines: Counter[str]) -> bool:
    """Return whether a line occurs in removed blocks at least `count` times.

    Long lines are shortened in a plan. So a beginning that is long enough to identify the line
    counts as the line.
    """
    if removed_lines[line] >= count:
        return True
    return any(
        line.startswith(removed) and len(removed) > _LONGEST_AMBIGUOUS for removed in removed_lines
    )


def _hidden_lines(index: MemoryIndex) -> Counter[str]:
    """Return the lines of comments and front matter, counted, without blank ones."""
    hidden: Counter[str] = Counter()
    for line, state in zip(lines_of(index.raw), index.states, strict=True):
        if state is State.UNSEEN and line.strip():
            hidden[line.strip()] += 1
    return hidden
