"""What the cut of a loaded index loses: later reads of memories whose line was not loaded."""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pandas as pd

from memlab import columns as c
from memlab.arguments import expect_frame
from memlab.sources.base import MOST_READ, TODAY, Orders
from memlab.sources.opening import SourceLike, open_source
from memlab.text import Sheet, Shown, Table

HOW_JUDGED: Final = (
    "each read is judged by the files that were there then, and by the reads before it; as many "
    "lines fit as fit today"
)


@dataclass(frozen=True, repr=False)
class CutLosses(Shown):
    """Reads by whether the memory's line was loaded, as the index stands and in other orders.

    Each read is judged by the files that were there at its moment, in the order in question, with
    as many lines loaded as fit today.

    `reads` are those of files that are there today, `unnamed` those of them that no line names;
    lines name `named` files. By order of the entries, ``loaded`` says how many reads found the
    memory's line loaded, and `files` how many files a loaded line names today.
    """

    reads: int
    unnamed: int
    named: int
    loaded: Mapping[str, int]
    files: Mapping[str, int]

    @property
    def lost(self) -> int:
        """Reads of memories whose line was cut, the entries as they stand today."""
        return self.reads - self.unnamed - self.loaded[TODAY]

    @property
    def below(self) -> int:
        """Files whose line is cut today."""
        return self.named - self.files[TODAY]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each order: files that are loaded, reads, and their share."""
        share = [count / self.reads if self.reads else 0.0 for count in self.loaded.values()]
        columns = {"files": list(self.files.values()), "reads": list(self.loaded.values())}
        return pd.DataFrame(
            {**columns, "share": share}, index=pd.Index(self.loaded, name="order of the entries")
        )

    def table(self) -> Table:
        """Return a row for each order, for people; without reads, how much of it is loaded."""
        header = ("order of the entries", "files loaded", "reads with their line loaded", "share")
        if not self.reads:
            return Table("", header[:2], [*self.files.items()][:1])
        shares = self.to_frame().itertuples(name=None)
        rows = [(*counts, f"{share:.1%}") for *counts, share in shares]
        return Table("", header, rows, HOW_JUDGED)

    def sheet(self) -> Sheet:
        """Return what is printed."""
        below = f"{self.below:,} of {self.named:,} named files have their line below the cut"
        facts = [
            ("below", below),
            ("reads", f"{self.reads:,} of files that are there"),
            ("lost", f"{self.lost:,} of memories whose line was cut"),
            ("unnamed", f"{self.unnamed:,} of files that no line names"),
        ]
        return Sheet("what the cut of the index loses", facts, [self.table()])


def cut_losses(source: SourceLike, log: pd.DataFrame | None = None) -> CutLosses:
    """Say which reads found the memory's line loaded, and in which order more would have.

    That is for the index as it stands, and for its entries newest first, oldest first and most read
    first, under the same limits.

    Parameters
    ----------
    source : str, Path or Source
        A folder of Claude Code's memory; MemlabError of another kind of store.
    log : DataFrame, optional
        Later reads, as :func:`memlab.read_access_log` returns them; without them it is only known
        what is cut, and not what that loses.
    """
    if log is None:
        log = pd.DataFrame({c.MEMORY_ID: pd.Series(dtype="str"), c.AT: pd.Series(dtype=c.TIME)})
    expect_frame(log, call="memlab.evidence.cut_losses", name="log", what="log")
    found = open_source(source).orders(Counter(log[c.MEMORY_ID]))
    of_files = log.loc[log[c.MEMORY_ID].isin(found.written.keys())].sort_values(c.AT, kind="stable")
    names = of_files[c.MEMORY_ID].tolist()
    reads = list(zip(of_files[c.AT].dt.to_pydatetime(), names, strict=True))
    named = frozenset(found.lines[TODAY])
    return CutLosses(
        reads=len(reads),
        unnamed=sum(name not in named for name in names),
        named=len(named),
        loaded={order: _served(found, order, reads) for order in found.lines},
        files=found.fits,
    )


def _served(found: Orders, order: str, reads: Sequence[tuple[datetime, str]]) -> int:
    """Return how many reads found the memory's line loaded, in the order that was there then."""
    lines = found.lines[TODAY if order == MOST_READ else order]
    place = {name: (0, number) for number, name in enumerate(lines)}
    known = {name: at for at, name in reversed(reads)}  # what was read was there
    since = {name: min(found.written[name], known.get(name, found.written[name])) for name in lines}
    coming = deque(sorted(lines, key=since.__getitem__))
    there: list[tuple[int, int]] = []
    served = 0
    for at, name in reads:
        while coming and since[coming[0]] <= at:
            insort(there, place[coming.popleft()])
        if name in place:
            above = bisect_left(there, place[name])
            served += above < found.fits[order]
            if order == MOST_READ:
                del there[above]
                times, number = place[name]
                place[name] = times - 1, number
                insort(there, place[name])
    return served
