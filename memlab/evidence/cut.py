"""What the cut of a loaded index loses: later reads of memories that no loaded line names."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from memlab.arguments import expect_frame
from memlab.columns import MEMORY_ID
from memlab.errors import MemlabError
from memlab.sources.claude_code import TODAY, ClaudeCode
from memlab.sources.opening import SourceLike, open_source
from memlab.text import Sheet, Shown, Table


@dataclass(frozen=True, repr=False)
class CutLosses(Shown):
    """Reads by what stands of the memory in the index, today and in other orders of its entries.

    Parameters
    ----------
    reads : int
        Of memories that are files of the folder today.
    unnamed : int
        How many of these were of files that no line names, in whatever order.
    loaded : mapping of str to int
        Order of the entries -> how many reads were of memories that a loaded line names.
    files : mapping of str to int
        Order of the entries -> how many files a loaded line names.
    """

    reads: int
    unnamed: int
    loaded: Mapping[str, int]
    files: Mapping[str, int]

    @property
    def lost(self) -> int:
        """Reads of memories whose line is cut today."""
        return self.reads - self.unnamed - self.loaded[TODAY]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each order: files that are loaded, reads, and their share."""
        share = [count / self.reads if self.reads else 0.0 for count in self.loaded.values()]
        columns = {"files": list(self.files.values()), "reads": list(self.loaded.values())}
        return pd.DataFrame(
            {**columns, "share": share}, index=pd.Index(self.loaded, name="order of the entries")
        )

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = [
            ("reads", f"{self.reads:,} of files that are there"),
            ("lost", f"{self.lost:,} of memories whose line is cut today"),
            ("unnamed", f"{self.unnamed:,} of files that no line names"),
        ]
        rows = [
            (order, self.files[order], count, f"{count / self.reads:.1%}" if self.reads else "–")
            for order, count in self.loaded.items()
        ]
        header = ("order of the entries", "files loaded", "reads", "share")
        remark = "by the reads of the log itself: the most read first is a bound, not a forecast"
        return Sheet("what the cut of the index loses", facts, [Table("", header, rows, remark)])


def cut_losses(source: SourceLike, log: pd.DataFrame) -> CutLosses:
    """Say which reads were of memories whose line is loaded at start, and in which order more are.

    Parameters
    ----------
    source : str, Path or Source
        A folder of Claude Code's memory.
    log : DataFrame
        Later reads, as :func:`memlab.read_access_log` returns them.

    Returns
    -------
    CutLosses
        For the index as it stands, and for its entries newest first, oldest first and most read
        first, under the same limits.

    Raises
    ------
    MemlabError
        When `source` is another kind of store.
    """
    expect_frame(log, call="memlab.evidence.cut_losses", name="log", what="log")
    opened = open_source(source)
    if not isinstance(opened, ClaudeCode):
        raise MemlabError(
            f"{opened.name} has no index that is cut; name a folder of Claude Code's memory"
        )
    counts = log[MEMORY_ID].value_counts().to_dict()
    found = opened.orders(counts)
    read = {name: count for name, count in counts.items() if name in found.there}
    return CutLosses(
        reads=sum(read.values()),
        unnamed=sum(count for name, count in read.items() if name not in found.named),
        loaded={
            order: sum(count for name, count in read.items() if name in files)
            for order, files in found.loaded.items()
        },
        files={order: len(files) for order, files in found.loaded.items()},
    )
