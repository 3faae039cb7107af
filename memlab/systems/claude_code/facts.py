"""What there is to say of an index that no frame holds: what of it is loaded, in which order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from memlab.sources.base import Trouble
from memlab.systems.claude_code.index import INDEX, LoadRule, MemoryIndex, State, encoded
from memlab.systems.claude_code.links import FileNames
from memlab.text import Sheet, Shown, Table

TODAY: Final = "as it stands"
"""The order of an index that nobody changed."""
NEWEST, OLDEST, MOST_READ = "newest first", "oldest first", "most read first"

LISTED: Final = 10
"""Lines of a list that are shown."""
_NAMED: Final = 3
"""Names that a sentence ends with."""


@dataclass(frozen=True, repr=False)
class IndexFacts(Shown):
    """Which lines of an index are loaded, and what it does not say."""

    folder: str
    rule: LoadRule
    lines: int
    loaded_lines: int
    units: int
    loaded_units: int
    files: int
    named: int
    cut: tuple[tuple[int, str], ...]
    cut_files: tuple[str, ...]
    unnamed: tuple[str, ...]
    dangling: tuple[tuple[int, str], ...]
    dated: Mapping[str, int]
    broken: Mapping[str, str]
    not_read: tuple[str, ...]
    pending: bool

    def troubles(self) -> list[Trouble]:
        """Return what a person could mend: front matter, lines without a file, lines that are cut.

        A file that no line names is none: many are found by a search or by another file.
        """
        broken = [f"{name} ({why})" for name, why in sorted(self.broken.items())]
        dangling = [f"line {number}: {target}" for number, target in self.dangling]
        return [
            Trouble(
                "front_matter",
                len(broken),
                f"{len(broken):,} of {self.files:,} files have front matter that is no YAML and "
                f"was read line by line{_some(broken)}"
                if broken
                else f"that of all {self.files:,} files is YAML, or there is none",
                "put a value that holds a colon or a bracket in quotes",
            ),
            Trouble(
                "index_links",
                len(dangling),
                f"{len(dangling):,} links of {INDEX} lead to no file{_some(dangling)}"
                if dangling
                else f"every link of {INDEX} leads to a file",
                f"take them out of {INDEX}, or write the files",
            ),
            Trouble(
                "index_cut",
                len(self.cut_files),
                f"{len(self.cut_files):,} of {self.named:,} named files stand below what is "
                f"loaded{_some(self.cut_files)}"
                if self.cut_files
                else f"the lines of all {self.named:,} named files are loaded",
                f"move lines up, or take some out: memlab show {self.folder} lists them",
            ),
        ]

    def sheet(self) -> Sheet:
        """Return the facts as a page."""
        dated = ", ".join(f"{count:,} by {how}" for how, count in sorted(self.dated.items()))
        all_loaded = self.loaded_units == self.units
        units = (
            f"{self.units:,} of at most {self.rule.units:,} characters"
            if all_loaded
            else f"{self.loaded_units:,} of {self.units:,} characters"
        )
        facts = [
            ("index", f"{self.loaded_lines:,} of {self.lines:,} lines are loaded, {units}"),
            ("memories", f"{self.named:,} of {self.files:,} files are named by a line"),
            ("dated", dated or "none"),
        ]
        if self.cut_files:
            facts.append(("cut", f"{len(self.cut_files):,} named files stand below what is loaded"))
        if self.not_read:
            facts.append(("not read", f"{len(self.not_read):,} links, folders and other files"))
        if self.pending:
            facts.append(("pending", "a change was cut short; the next one takes it back first"))
        tables = [
            _table("lines that are cut", ("line", "text"), self.cut),
            _table("files that no line names", ("file",), [(name,) for name in self.unnamed]),
            _table("lines whose file is not there", ("line", "link"), self.dangling),
            _table("front matter that is no YAML", ("file", "why"), [*self.broken.items()]),
        ]
        return Sheet(f"{INDEX} in {self.folder}", facts, [each for each in tables if each.rows])


def _some(names: Sequence[str]) -> str:
    """Return the first of some names, for the end of a sentence."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f": {', '.join(names[:_NAMED])}{more}" if names else ""


def _table(heading: str, header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> Table:
    hidden = len(rows) - LISTED
    remark = f"and {hidden:,} more" if hidden > 0 else ""
    return Table(f"{heading}: {len(rows):,}", header, [*rows[:LISTED]], remark)


class Orders(NamedTuple):
    """The files of a folder, and what of them an index has loaded in one order or another."""

    written: Mapping[str, datetime]
    lines: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, int]


def orders_of(
    index: MemoryIndex,
    names: FileNames,
    written: Mapping[str, datetime],
    reads: Mapping[str, int],
) -> Orders:
    """Return what an index has loaded, its entries in each order; `written` is the oldest first."""
    age = {name: number for number, name in enumerate(written)}
    keys: dict[str, Callable[[str], int]] = {
        NEWEST: lambda name: -age[name],
        OLDEST: lambda name: age[name],
        MOST_READ: lambda name: -reads.get(name, 0),
    }
    visible = _visible(index, names, {State.LOADED, State.CUT})
    lines, fits = {TODAY: visible}, {TODAY: len(_visible(index, names, {State.LOADED}))}
    for order, key in keys.items():
        lines[order] = tuple(sorted(visible, key=key))
        fits[order] = len(_visible(_reordered(index, names, key), names, {State.LOADED}))
    return Orders(written, lines, fits)


def _reordered(index: MemoryIndex, names: FileNames, key: Callable[[str], int]) -> MemoryIndex:
    """Return an index whose entries stand in another order, at the places where entries stood."""
    moves = [
        b.is_entry and b.state is not State.UNSEEN and bool(b.files(names)) for b in index.blocks
    ]
    entries = [block for block, does in zip(index.blocks, moves, strict=True) if does]
    ordered = iter(sorted(entries, key=lambda block: key(block.files(names)[0])))
    texts = [
        (next(ordered) if does else block).text
        for block, does in zip(index.blocks, moves, strict=True)
    ]
    whole = "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)
    return MemoryIndex(encoded(whole), index.rule)


def _visible(index: MemoryIndex, names: FileNames, states: Collection[State]) -> tuple[str, ...]:
    """Return the files that lines of some states name, from the top down."""
    blocks = (block for block in index.blocks if block.state in states)
    return tuple(dict.fromkeys(name for block in blocks for name in block.files(names)))
