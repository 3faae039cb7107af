"""What there is to say of a folder of Claude Code's memory that no frame holds: its index."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlab.sources.abilities import Trouble
from memlab.sources.load_rule import LoadRule, State, units_of
from memlab.sources.memory_index import INDEX
from memlab.text import Sheet, Shown, Table

LISTED = 10
"""Lines of a list that are shown."""
_NAMED = 3
"""Names that a sentence ends with."""


@dataclass(frozen=True, repr=False)
class IndexFacts(Shown):
    """Which lines of an index are loaded, and what it does not say.

    Parameters
    ----------
    folder : str
        Where it lies.
    rule : LoadRule
        What is loaded.
    lines, loaded_lines : int
        How many lines the index has, and how many of them are loaded. Front matter and comments
        are lines that do not count for the limits.
    units, loaded_units : int
        UTF-16 units of the text, comments left out, and of what is loaded of it.
    files : int
        Memories in the folder.
    named : int
        How many of them a line names.
    cut : tuple of (int, str)
        Number and text of each line below the cut that names a memory.
    cut_files : tuple of str
        Memories that no loaded line names, and a cut one does.
    unnamed : tuple of str
        Memories that no line names.
    dangling : tuple of (int, str)
        Number of a line and target of a link in it to a file that is not there.
    dated : mapping of str to int
        How many memories' times are known from where.
    broken : mapping of str to str
        Memories whose front matter is no YAML, and why; it was read line by line.
    not_read : tuple of str
        Links, folders and what else is no ordinary file.
    pending : bool
        Whether a change of the folder was cut short; the next that changes it takes it back.
    """

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
        facts = [
            ("index", f"{self.loaded_lines:,} of {self.lines:,} lines are loaded, {self._size()}"),
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

    def _size(self) -> str:
        if self.loaded_units == self.units:
            return f"{self.units:,} of at most {self.rule.units:,} characters"
        return f"{self.loaded_units:,} of {self.units:,} characters"


def unread(names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names of what is no ordinary file, memlab's own folders left out."""
    return tuple(sorted(name for each in names for name in each if not name.startswith(".memlab")))


def counted(dated: Sequence[str]) -> dict[str, int]:
    """Return how many times each way of dating stands there."""
    return dict(Counter(dated))


def sizes(loaded: str, whole: str, states: Sequence[State]) -> dict[str, int]:
    """Return the fields about lines and units."""
    return {
        "lines": len(states),
        "loaded_lines": states.count(State.LOADED),
        "units": units_of(whole),
        "loaded_units": units_of(loaded),
    }


def _some(names: Sequence[str]) -> str:
    """Return the first of some names, for the end of a sentence."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f": {', '.join(names[:_NAMED])}{more}" if names else ""


def _table(heading: str, header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> Table:
    hidden = len(rows) - LISTED
    remark = f"and {hidden:,} more" if hidden > 0 else ""
    return Table(f"{heading}: {len(rows):,}", header, [*rows[:LISTED]], remark)
