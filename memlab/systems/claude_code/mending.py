"""Plan how ``MEMORY.md`` is mended: missing lines in, dead lines out, what is read most loaded.

Only lines that are understood change. Prose, comments, code, hubs and sections keep their place,
and so does every line of which it is not certain that its file is gone.
"""

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
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
from memlab.sources.reads import text as readable
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

_ENDLESS: Final = "this comment never ends: add --> (no start loads the rest)"
_LONGEST_SHOWN: Final = 200
"""Maximum number of characters of a line in a plan."""
_LONGEST_UNCERTAIN: Final = 20
"""Number of characters up to which a part of a line does not identify the line."""
_NO_LIMIT: Final = LoadRule(lines=sys.maxsize, units=sys.maxsize)
_TABLE_RULE: Final = re.compile(r"[ \t]*\|?[ \t:|-]*-[ \t:|-]*\r?\n?\Z")


class Committed(NamedTuple):
    """A committed version of the index, and how a plan names it."""

    data: bytes
    name: str


@dataclass(frozen=True)
class Mended:
    """The mended index, and what happened to its lines."""

    index: MemoryIndex
    lines: tuple[IndexLine, ...]
    before: IndexLoad
    after: IndexLoad


class _Step(NamedTuple):
    """The index after one step, and the lines that the step changed or left."""

    raw: bytes
    lines: Sequence[IndexLine] = ()


def mended(
    view: FolderView,
    *,
    reads: Mapping[str, int],
    lost: Entries,
    committed: Committed | None,
    empty_headings: bool,
    reorder: bool,
) -> Mended:
    """Return the mended index of a folder.

    Parameters
    ----------
    view : FolderView
        The folder as it is now.
    reads : mapping of str to int
        The number of reads by file.
    lost : mapping of str to sequence of IndexEntry
        The former entries of files that a lost or overwritten index named.
    committed : Committed or None
        The version of the index in git that is restored; None for none.
    empty_headings : bool
        Whether to remove headings with nothing below them.
    reorder : bool
        Whether to move lines of files that are read most into the part that a start loads.

    Raises
    ------
    PlanError
        If the index is not UTF-8, or if no change of it leaves its other lines as they are.
    """
    before = view.index
    _check_text(before.raw, view.folder)
    restored = _restored(view, lost, committed)
    current = _with_index(view, restored.raw)
    removed = _without_dead(current)
    current = _with_index(view, removed.raw)
    added = _with_missing(current)
    cleared = _without_empty_headings(added.raw, view) if empty_headings else _Step(added.raw)
    current = _with_index(view, cleared.raw)
    moved = _reordered(current, reads) if reorder else _Step(cleared.raw)
    after = _with_index(view, moved.raw)
    steps = (restored, removed, added, cleared, moved)
    lines = tuple(line for step in steps for line in step.lines)
    _check_mended(view, after, lines)
    lines = (*_numbered(lines, after.index), *_open_comment(after.index))
    return Mended(after.index, lines, load_of(view), load_of(after))


def _open_comment(index: MemoryIndex) -> Iterator[IndexLine]:
    """Yield the line whose comment never ends, which hides the lines below it from a start."""
    lines = lines_of(index.raw)
    number = line_of_open_comment(lines)
    if number:
        text = lines[number - 1].strip()[:_LONGEST_SHOWN].strip()
        yield IndexLine(STAYS, number, text, "", _ENDLESS)


def load_of(view: FolderView) -> IndexLoad:
    """Return how many files a view has, how many its index names and loads, and its tokens."""
    memories = view.notes.keys() - view.hubs.keys()
    named = set[str]()
    loaded = set[str]()
    for name, blocks in view.named.items():
        if name not in memories:
            continue
        named.add(name)
        if any(block.state is State.LOADED for block in blocks):
            loaded.add(name)
    tokens = -(-len(readable(view.index.loaded)) // CHARS_PER_TOKEN)
    return IndexLoad(files=len(memories), named=len(named), loaded=len(loaded), tokens=tokens)


def _with_index(view: FolderView, raw: bytes) -> FolderView:
    """Return a view of the same folder with another index."""
    return view if raw == view.index.raw else replace(view, index=_parsed(raw, view))


def _parsed(raw: bytes, view: FolderView) -> MemoryIndex:
    return MemoryIndex(raw, view.index.rule)


def _check_text(raw: bytes, folder: str) -> None:
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
    sources: dict[str, str] = {}
    if committed is not None:
        raw = _merged(committed.data, raw, view)
        named = _parsed(raw, view).named(view.names)
        sources.update(dict.fromkeys(named, f"git has it in {committed.name}"))
    missing = {name: entries for name, entries in lost.items() if name in view.notes}
    if missing:
        names = FileNames(view.names.folder, {*view.notes, *missing}, view.names.aliases)
        raw = insert_entries(raw, missing, names)
        sources.update(
            {name: "a copy of the memory has it" for name in missing if name not in sources}
        )
    if raw == view.index.raw:
        return _Step(raw)
    index = _parsed(raw, view)
    lines = []
    for name, blocks in index.named(view.names).items():
        if name not in view.named and name in sources:
            lines.append(_line(RESTORES, blocks[0], name, f"{sources[name]}; the index lost it"))
    return _Step(raw, lines)


def _merged(old: bytes, now: bytes, view: FolderView) -> bytes:
    """Return a former index with the lines of the current one that it lacks.

    Where both have an entry of a file, that of the current index is kept.
    """
    current = _parsed(now, view)
    entered = current.files_with_entry(view.names)
    kept = []
    for block in _parsed(old, view).blocks:
        if block.subject(view.names) not in entered or not block.is_entry:
            kept += lines_of(block.text)
    new = lines_of(now)
    texts = [line.rstrip("\r\n") for line in kept]
    new_texts = [line.rstrip("\r\n") for line in new]
    merged = []
    matcher = SequenceMatcher(None, texts, new_texts, autojunk=False)
    for change, start, end, first, last in matcher.get_opcodes():
        merged += kept[start:end]
        if change != "equal":
            merged += new[first:last]
    return encoded(joined(merged, like=now or old))


# Dead lines


def _without_dead(view: FolderView) -> _Step:
    """Return the index without the entries of files that are gone."""
    # Without a limit no entry is divided, so that a second mend finds the same entries.
    index = MemoryIndex(view.index.raw, _NO_LIMIT)
    names = view.all_names
    files = (*view.below, *view.notes, *view.untyped)
    path_of = {PurePosixPath(path).name: path for path in files}
    removed: dict[int, IndexLine] = {}
    lines = []
    for number in reversed(range(len(index.blocks))):
        block = index.blocks[number]
        dead = _dead_links(view, index, block)
        if not dead:
            continue
        reason = _reason_to_keep(index, number, dead, names, path_of, removed)
        if reason:
            lines.append(_line(STAYS, block, dead[0], reason))
        else:
            removed[number] = _line(REMOVES, block, dead[0], "its file is gone")
    lines = sorted([*lines, *removed.values()], key=lambda line: line.number)
    if not removed:
        return _Step(index.raw, lines)
    kept = [block.text for number, block in enumerate(index.blocks) if number not in removed]
    return _Step(_without_new_head(kept, index), lines)


def _dead_links(view: FolderView, index: MemoryIndex, block: Block) -> list[str]:
    """Return the Markdown files that a visible block links and that are not in the folder."""
    if block.state is State.UNSEEN or index.is_code(block.number):
        return []
    dead = []
    for link in markdown.inline_links(block.text, block.mentions):
        path = markdown.path_in_target(link.target)
        name = markdown.name_in_link(path)
        is_file = name is not None and re.split(r"[#?]", path, maxsplit=1)[0].endswith(".md")
        if is_file and view.is_dead(link.target):
            dead.append(str(name))
    return [name for name in dead if name not in (INDEX, RETIRED)]


def _reason_to_keep(
    index: MemoryIndex,
    number: int,
    dead: Sequence[str],
    names: FileNames,
    path_of: Mapping[str, str],
    removed: Collection[int],
) -> str:
    """Return why a line with dead links stays; empty if it is an entry of missing files alone."""
    block = index.blocks[number]
    last_names = [PurePosixPath(name).name for name in dead]
    moved = [path_of[name] for name in last_names if name in path_of]
    others = block.files(names)
    following = index.blocks[number + 1 : number + 2]
    is_above_rule = bool(following) and _TABLE_RULE.match(following[0].text) is not None
    reason = ""
    if moved:
        reason = f"a file of that name is {moved[0]}: link that"
        if "/" in moved[0]:
            reason += ", or move it up"
    elif not block.is_item:
        reason = "it is a sentence or a heading: take the link out by hand"
    elif others:
        reason = f"it names {others[0]} too: take the link out by hand"
    elif len(block.mentions) > len(dead):
        reason = "it has other links too: take the dead one out by hand"
    elif _has_children(index, number, removed):
        reason = "other entries are nested below it"
    elif "|" in block.text and is_above_rule:
        reason = "it is the head of a table"
    return reason


def _has_children(index: MemoryIndex, number: int, removed: Collection[int]) -> bool:
    """Return whether a block stays that is nested below a block."""
    block = index.blocks[number]
    if block.is_entry:
        return False
    for place in range(number + 1, len(index.blocks)):
        child = index.blocks[place]
        if not child.text.strip():
            continue
        if child.indent <= block.indent:
            return False
        if place not in removed:
            return True
    return False


def _without_new_head(texts: Sequence[str], index: MemoryIndex) -> bytes:
    """Return blocks as a file; a blank first line prevents that they begin with front matter."""
    text = joined(texts, like=index.raw)
    had_head = markdown.read_front_matter(index.raw.decode()).text_at
    if markdown.read_front_matter(text).text_at and not had_head:
        text = f"\n{text}"
    return encoded(text)


# Lines for files without one


def _with_missing(view: FolderView) -> _Step:
    """Return the index with a line for each memory that nothing names."""
    missing = [name for name in view.unlisted if name not in view.hubs]
    linkable = sorted(filter(_can_be_linked, missing), key=view.position)
    lines = []
    for name in missing:
        if not _can_be_linked(name):
            shown = name.encode(errors="replace").decode()
            lines.append(IndexLine(STAYS, 0, shown, "", "no link can name it: rename the file"))
    if not linkable:
        return _Step(view.index.raw, lines)
    raw = _with_lines(view, linkable)
    named = _parsed(raw, view).named(view.names)
    lines += [_line(ADDS, named[name][0], name, "no line named it") for name in linkable]
    return _Step(raw, lines)


def _with_lines(view: FolderView, names: Sequence[str]) -> bytes:
    """Return the index with a line for each of some memories, in the style of its section."""
    sections = _sections(view.index)
    types = [_types_in(view, section) for section in sections]
    groups: dict[tuple[int, int], list[str]] = {}
    for name in names:
        section = _section_for(view.notes[name].type.name, sections, types)
        groups.setdefault(section, []).append(name)
    raw = view.index.raw
    left = []
    # From the bottom up, so that the places above stay valid.
    for section in sorted(groups, reverse=True):
        place = _place_for(view, section)
        of_section = groups[section][::-1] if view.is_newest_first else groups[section]
        inserted = _inserted_group(view, _parsed(raw, view), place, of_section)
        if inserted is None:
            left += groups[section]
        else:
            raw = inserted
    for name in left:
        raw = _with_line_on_top(view, _parsed(raw, view), name)
    return raw


def _inserted_group(
    view: FolderView, index: MemoryIndex, place: "_Place", names: Sequence[str]
) -> bytes | None:
    """Return an index with the lines of some memories at a place; None if they do not fit there."""
    blocks = view.index.blocks[place.first : place.last]
    style = style_of(blocks, view.names, place.anchor)
    styled = []
    for number, name in enumerate(names):
        styled.append(style.numbered(number).line(name, view.notes[name]))
    plain = [default_line(name, view.notes[name]) for name in names]
    for lines in (styled, plain):
        raw = _inserted(index, place.at, lines)
        if _are_named_once(index, _parsed(raw, view), names, view.names):
            return raw
    return None


def _with_line_on_top(view: FolderView, index: MemoryIndex, name: str) -> bytes:
    """Return an index with the line of a memory above everything but front matter."""
    for line in (default_line(name, view.notes[name]), f"- [{stem(name)}]({target(name)})"):
        raw = _inserted(index, _top_of(index), [line])
        if _are_named_once(index, _parsed(raw, view), [name], view.names):
            return raw
    raise PlanError(
        f"no line can be put into {INDEX} in {view.folder} without changing others; nothing was "
        f"planned: write a line for {name} by hand"
    )


def _can_be_linked(name: str) -> bool:
    """Return whether a link in UTF-8 text can have a file name as its target."""
    is_text = all(category(char)[0] != "C" for char in name)
    return is_text and not set("<>|") & set(name)


def _are_named_once(
    before: MemoryIndex, after: MemoryIndex, added: Sequence[str], names: FileNames
) -> bool:
    """Return whether each new line names one file and is visible, and the others are as before."""
    named = after.named(names)
    wanted = Counter[str]()
    for block in before.blocks:
        wanted.update(_visible_lines(block))
    for name in added:
        blocks = named.get(name, ())
        if len(blocks) != 1 or blocks[0].files(names) != [name]:
            return False
        if after.is_code(blocks[0].number) or not _is_visible(blocks[0]):
            return False
        wanted.update(_visible_lines(blocks[0]))
    now = Counter[str]()
    for block in after.blocks:
        now.update(_visible_lines(block))
    return now == wanted


def _visible_lines(block: Block) -> list[str]:
    """Return the lines of a block that a start sees or would see above the limit.

    Lines are compared, for a new line above moves the limit, which divides a block.
    """
    if not _is_visible(block):
        return []
    lines = [line.rstrip("\r") for line in block.text.split("\n")]
    return [line for line in lines if line.strip()]


def _is_visible(block: Block) -> bool:
    return block.state is not State.UNSEEN and bool(block.text.strip())


def _inserted(index: MemoryIndex, at: int, new: Sequence[str]) -> bytes:
    """Return an index with new lines before the line number `at`, from 0."""
    lines = lines_of(index.raw)
    lines[at:at] = new
    return encoded(joined(lines, like=index.raw))


def _top_of(index: MemoryIndex) -> int:
    """Return the number of the first line after front matter, from 0."""
    text = index.raw.decode()
    return len(lines_of(text[: markdown.read_front_matter(text).text_at]))


class _Place(NamedTuple):
    """Where a line is inserted: before the line `at`, beside a block, within these blocks."""

    at: int
    anchor: Block | None
    first: int
    last: int


def _place_for(view: FolderView, section: tuple[int, int]) -> _Place:
    """Return the place for new lines in a section: below its entries, or above them."""
    index = view.index
    first, last = section
    items = [
        number
        for number in range(first, last)
        if index.blocks[number].is_item and not index.is_code(index.blocks[number].number)
    ]
    if not items:
        return _Place(_end_of(index, len(index.blocks)), None, 0, len(index.blocks))
    if view.is_newest_first:
        anchor = index.blocks[items[0]]
        return _Place(anchor.number - 1, anchor, first, last)
    end = items[-1] + 1
    # A sentence right below the last entry belongs to it.
    while end < last and _is_lazy_continuation(index, end):
        end += 1
    return _Place(_end_of(index, end), index.blocks[items[-1]], first, last)


def _is_lazy_continuation(index: MemoryIndex, number: int) -> bool:
    """Return whether a block is text that continues the paragraph above it."""
    text = index.blocks[number].text
    return bool(text.strip()) and not is_heading(text) and not index.blocks[number].is_item


def _end_of(index: MemoryIndex, number: int) -> int:
    """Return the number of lines of the first `number` blocks, without blank lines at the end."""
    blocks = index.blocks
    while number and number == len(blocks) and not blocks[number - 1].text.strip():
        blocks = blocks[:-1]
        number -= 1
    if not number:
        return 0
    last = blocks[number - 1]
    return last.number - 1 + len(lines_of(last.text))


def _sections(index: MemoryIndex) -> list[tuple[int, int]]:
    """Return the first block of each section, and the block after its last."""
    starts = [0]
    for number, block in enumerate(index.blocks):
        is_section = is_heading(block.text) and block.state is not State.UNSEEN
        if number and is_section and not index.is_code(block.number):
            starts.append(number)
    return list(zip(starts, [*starts[1:], len(index.blocks)], strict=True))


def _section_for(
    own_type: str, sections: Sequence[tuple[int, int]], types: Sequence[Counter[str]]
) -> tuple[int, int]:
    """Return the section for a memory of a type; else the last one with entries.

    A section is of a type if at least half of the files that it lists, and two or more, have it.
    """
    chosen = sections[-1]
    of_type = None
    most = 1
    for section, of_section in zip(sections, types, strict=True):
        if of_section:
            chosen = section
        same = of_section[own_type]
        if own_type and same > most and 2 * same >= of_section.total():
            most = same
            of_type = section
    return chosen if of_type is None else of_type


def _types_in(view: FolderView, section: tuple[int, int]) -> Counter[str]:
    """Return the types of the memories that entries of a section are about, counted."""
    types = Counter[str]()
    for number in range(*section):
        block = view.index.blocks[number]
        subjects = block.files(view.names) if block.is_item else []
        if subjects and not view.index.is_code(block.number):
            types[view.notes[subjects[0]].type.name] += 1
    return types


# Empty headings


def _without_empty_headings(raw: bytes, view: FolderView) -> _Step:
    """Return the index without headings that have nothing below them; the title stays."""
    index = _parsed(raw, view)
    removed = dict[int, IndexLine]()
    for number in find_empty_headings(index):
        removed[number] = _line(CLEARS, index.blocks[number], "", "nothing stands below it")
    if not removed:
        return _Step(raw)
    kept = []
    after_removed = False
    for number, block in enumerate(index.blocks):
        is_blank = not block.text.strip()
        if number in removed or (after_removed and is_blank):
            after_removed = True
            continue
        after_removed = False
        kept.append(block.text)
    return _Step(_without_new_head(kept, index), list(removed.values()))


# Order


def _reordered(view: FolderView, reads: Mapping[str, int]) -> _Step:
    """Return the index with the most read entries loaded, if a start does not load all of it.

    Entries move within their section and keep the order that they have. Nested and numbered
    entries, parents and hubs stay where they are.
    """
    if view.index.loaded == view.index.text:
        return _Step(view.index.raw)
    before = view.index
    texts = [block.text for block in before.blocks]
    for slots in _movable(view).values():
        counts = {slot: _reads_of(before.blocks[slot], view, reads) for slot in slots}
        if any(counts.values()):
            texts = _with_most_read(texts, slots, counts, view)
    raw = encoded("".join(texts))
    if raw == before.raw:
        return _Step(raw)
    after = _parsed(raw, view)
    return _Step(raw, list(_moves(before, after, view, reads)))


def _movable(view: FolderView) -> dict[tuple[int, bool], list[int]]:
    """Return the blocks that may change places, by section and whether they are table rows."""
    index = view.index
    blocks = index.blocks
    groups: dict[tuple[int, bool], list[int]] = {}
    for section, (first, last) in enumerate(_sections(index)):
        for number in range(first, last):
            block = blocks[number]
            files = block.files(view.names)
            is_memory = bool(files) and not any(file in view.hubs for file in files)
            is_alone = number + 1 == len(blocks) or not _is_lazy_continuation(index, number + 1)
            is_fixed = is_ordered(block.text) or index.is_code(block.number)
            if block.is_entry and is_memory and is_alone and not is_fixed and block.indent == 0:
                is_row = block.text.startswith("|")
                groups.setdefault((section, is_row), []).append(number)
    return groups


def _reads_of(block: Block, view: FolderView, reads: Mapping[str, int]) -> int:
    """Return the number of reads of the file that a block names first."""
    return reads.get(block.files(view.names)[0], 0)


def _with_most_read(
    texts: Sequence[str], slots: Sequence[int], reads: Mapping[int, int], view: FolderView
) -> list[str]:
    """Return the blocks with as many of the most read entries as can be loaded in the first slots.

    Both these entries and the others keep their order.
    """
    ranked = sorted(slots, key=lambda slot: -reads[slot])
    states = _states(texts, view)
    most = sum(states[slot] is State.LOADED for slot in slots)
    for count in range(most, 0, -1):
        chosen = {slot for slot in ranked[:count] if reads[slot]}
        # Entries that are not read and that are loaded already stay before those that are cut.
        others = [slot for slot in slots if slot not in chosen]
        fill = set(others[: count - len(chosen)])
        first = [slot for slot in slots if slot in chosen or slot in fill]
        order = first + [slot for slot in slots if slot not in chosen and slot not in fill]
        arranged = _arranged(texts, slots, order)
        if all(_states(arranged, view)[slot] is State.LOADED for slot in slots[:count]):
            return arranged
    return list(texts)


def _arranged(texts: Sequence[str], slots: Sequence[int], order: Sequence[int]) -> list[str]:
    """Return the blocks with those at `order` in `slots`; each slot keeps its line end."""
    arranged = list(texts)
    for slot, source in zip(slots, order, strict=True):
        text = texts[source].rstrip("\r\n")
        end = texts[slot][len(texts[slot].rstrip("\r\n")) :]
        arranged[slot] = text + end
    return arranged


def _states(texts: Sequence[str], view: FolderView) -> list[State]:
    """Return the state of each block of an index: cut if one of its lines is."""
    index = _parsed(encoded("".join(texts)), view)
    states = []
    at = 0
    for text in texts:
        of_lines = index.states[at : at + len(lines_of(text))]
        at += len(of_lines)
        states.append(State.CUT if State.CUT in of_lines else of_lines[0])
    return states


def _moves(
    before: MemoryIndex, after: MemoryIndex, view: FolderView, reads: Mapping[str, int]
) -> Iterator[IndexLine]:
    """Yield the lines that a start loads now and did not, or the other way round."""
    old = before.named(view.names)
    for name, blocks in after.named(view.names).items():
        was_loaded = any(block.state is State.LOADED for block in old[name])
        is_loaded = any(block.state is State.LOADED for block in blocks)
        if was_loaded != is_loaded:
            count = reads.get(name, 0)
            times = f"read {count:,} times" if count != 1 else "read once"
            place = "a start loads it now" if is_loaded else "no start loads it now"
            yield _line(MOVES, blocks[0], name, f"{times}: {place}")


# Lines of a plan


def _line(action: str, block: Block, file: str, reason: str) -> IndexLine:
    """Return a block as a line of a plan."""
    text = block.text.strip()[:_LONGEST_SHOWN]
    return IndexLine(action, block.number, text, file, reason)


def _numbered(lines: Sequence[IndexLine], index: MemoryIndex) -> tuple[IndexLine, ...]:
    """Return lines of a plan with their numbers in the mended index, unless they are removed."""
    numbers: dict[str, list[int]] = {}
    lines_and_states = zip(lines_of(index.raw), index.states, strict=True)
    for number, (text, state) in enumerate(lines_and_states, start=1):
        if state is not State.UNSEEN and not index.is_code(number):
            numbers.setdefault(text.strip()[:_LONGEST_SHOWN].strip(), []).append(number)
    numbered = []
    for line in lines:
        # By its first line, because the limit may divide another entry than before.
        places = numbers.get(line.text.partition("\n")[0].strip())
        if places and line.action in (ADDS, RESTORES, MOVES, STAYS):
            number = places.pop(0) if len(places) > 1 else places[0]
            numbered.append(line._replace(number=number))
        else:
            numbered.append(line)
    return tuple(numbered)


def _check_mended(view: FolderView, after: FolderView, lines: Sequence[IndexLine]) -> None:
    """Raise PlanError if a mended index lost a line that the plan does not name.

    This is the invariant of a mend: every file that was named is named, each memory is named or
    reached, and every other line is still there.
    """
    faults = []
    linkable = [name for name in after.unlisted if name not in after.hubs and _can_be_linked(name)]
    if linkable:
        faults.append(f"{linkable[0]} has no line")
    lost_names = view.named.keys() - after.named.keys()
    if lost_names:
        faults.append(f"{min(lost_names)} lost its line")
    removed = Counter(line.text for line in lines if line.action in (REMOVES, CLEARS))
    missing = _texts_of(view.index.blocks) - _texts_of(after.index.blocks)
    if not _is_covered(missing, removed):
        faults.append("other lines would change")
    hidden_before = _hidden(view.index)
    hidden_after = _hidden(after.index)
    restores = any(line.action == RESTORES for line in lines)
    is_more_hidden = hidden_after.total() > hidden_before.total()
    if hidden_before - hidden_after or (is_more_hidden and not restores):
        faults.append("a comment or the front matter would change")
    if faults:
        raise PlanError(
            f"{INDEX} in {view.folder} cannot be mended line by line ({faults[0]}); nothing was "
            "planned: mend it by hand"
        )


def _texts_of(blocks: Iterable[Block]) -> Counter[str]:
    """Return the lines of blocks, counted, without blank ones."""
    return Counter(
        line.strip() for block in blocks for line in lines_of(block.text) if line.strip()
    )


def _is_covered(missing: Counter[str], removed: Counter[str]) -> bool:
    """Return whether lines are missing only as parts of removed blocks."""
    parts = Counter[str]()
    for text, count in removed.items():
        for line in lines_of(text):
            parts[line.strip()] += count
    return all(_is_part(line, parts, count) for line, count in missing.items())


def _is_part(line: str, parts: Counter[str], count: int) -> bool:
    """Return whether a line is in removed blocks so often, or begins with a part that was cut."""
    if parts[line] >= count:
        return True
    return any(line.startswith(text) and len(text) > _LONGEST_UNCERTAIN for text in parts)


def _hidden(index: MemoryIndex) -> Counter[str]:
    """Return the lines of comments and front matter, counted."""
    lines = lines_of(index.raw)
    hidden = (
        line.strip()
        for line, state in zip(lines, index.states, strict=True)
        if state is State.UNSEEN
    )
    return Counter(line for line in hidden if line)
