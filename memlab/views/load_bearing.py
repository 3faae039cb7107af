"""The cost of a store's load-bearing memories, and those that could be superseded."""

from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Final

import pandas as pd

from memlab import columns as c
from memlab.compaction.wire import size_in_words
from memlab.errors import MissingExtraError
from memlab.frame.loading import load
from memlab.items import Size
from memlab.policies.supersession import WHY, supersedable
from memlab.sizing.lifetimes import Floor, floor_of
from memlab.sources.opening import SourceLike, open_source, start_label
from memlab.text import DisplayMixin, Table, TextPage, command, counted

_LISTED: Final = 10
"""Maximum number of supersedable memories on the page; JSON and a plan have all of them."""
_HEADINGS: Final = {
    c.MEMORY_ID: "memory_id",
    c.TOKENS: "tokens",
    c.SUPERSEDED_BY: "newer one",
}
"""Headings of the printed table by column. A column with the reason is added."""


@dataclass(frozen=True, repr=False)
class LoadBearing(DisplayMixin):
    """The load-bearing memories of a store, which no cap removes.

    Attributes
    ----------
    store : str
        The store.
    floor : Floor
        The number and the size of the load-bearing memories.
    supersedable : DataFrame
        The memories that a newer one could supersede, with the reason.
    loaded : int
        The size of all active memories, in tokens.
    unseen : str
        The search that was left out, with the reason; empty if all were made.
    """

    store: str
    floor: Floor
    supersedable: pd.DataFrame
    loaded: int
    unseen: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "store": self.store,
            "floor": asdict(self.floor),
            "loaded": self.loaded,
            "supersedable": self.supersedable.to_dict(orient="records"),
            "unseen": self.unseen,
        }

    def sheet(self) -> TextPage:
        """Return the result as a page."""
        floor = self.floor
        older = self.supersedable
        start = start_label(open_source(self.store).name)
        loaded = counted(self.loaded, "tokens")
        if floor.memories:
            size = Size(len(older), int(older[c.TOKENS].sum()))
            facts = [
                ("load-bearing", size_in_words(Size(floor.memories, floor.tokens))),
                (start, f"{loaded}, which no cap reduces below the load-bearing ones"),
                ("supersedable", size_in_words(size)),
            ]
        else:
            facts = [
                ("load-bearing", "none: a cap can delete every memory"),
                (start, f"{loaded}, all of them prunable"),
            ]
        if self.unseen:
            facts.append(("not looked for", self.unseen))
        cells = older[list(_HEADINGS)].itertuples(index=False, name=None)
        reasons = older[c.REASON].astype(str) + ": " + older[WHY].astype(str)
        rows = [(*row, reason) for row, reason in zip(cells, reasons, strict=True)]
        header = (*_HEADINGS.values(), "why")
        listed = Table("Could be superseded by a newer memory", header, rows)
        tables = [*floor.tables("By kind"), listed.first(_LISTED, "; --json has all")]
        return TextPage(self.store, facts, [table for table in tables if table.rows])

    def next_steps(self) -> list[str]:
        """Return the command that supersedes memories, or sizes the store if none can be."""
        if self.supersedable.empty:
            return [f"next: {command('size', self.store)}    which keep_recent, with evidence"]
        if open_source(self.store).supersession is None:
            return ["next: read both memories of each pair; shorten or delete one by hand"]
        return [
            "next: read both memories of each pair. This plan supersedes the older ones:",
            f"  {command('floor', self.store)} --save-plan floor.json    or with --id ID",
            "superseded memories stay in the store; memlab restore undoes it",
        ]


def floor(store: SourceLike) -> LoadBearing:
    """Return the cost of the load-bearing memories of a store. The store is only read.

    Near-duplicates are searched for if the extra for them is installed.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Returns
    -------
    LoadBearing
        The load-bearing memories, and those of them that a newer memory could supersede.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("two_years")
    >>> memlab.floor(store).store == str(store)
    True
    """
    frame = load(store, with_body=True)
    unseen = ""
    try:
        older = supersedable(frame)
    except MissingExtraError as error:
        older = supersedable(frame, by_likeness=False)
        unseen = f"near-duplicates: {error}"
    loaded = int(frame.loc[frame[c.ACTIVE], c.TOKENS].sum())
    name = store if isinstance(store, str | PathLike) else open_source(store).name
    return LoadBearing(
        store=str(name),
        floor=floor_of(frame),
        supersedable=older,
        loaded=loaded,
        unseen=unseen,
    )
