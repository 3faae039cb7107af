"""What the load-bearing memories cost, and for which of them a newer one could stand."""

from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Final

import pandas as pd

from memlab import columns as c
from memlab.compaction.wire import sized
from memlab.errors import MissingExtraError
from memlab.frame.loading import load
from memlab.items import Size
from memlab.policies.supersession import WHY, supersedable
from memlab.sizing.history import Floor, floor_of
from memlab.sources.opening import SourceLike, open_source, start_words
from memlab.text import DisplayMixin, Table, TextPage, command, counted

_LISTED: Final = 10
"""How many that could be superseded are shown; JSON and a plan have them all."""
_NEWER: Final = {
    c.MEMORY_ID: "memory_id",
    c.TOKENS: "tokens",
    c.SUPERSEDED_BY: "newer one",
    c.REASON: "reason",
    WHY: "why",
    c.TITLE: "title",
}


@dataclass(frozen=True, repr=False)
class LoadBearing(DisplayMixin):
    """What no cap brings down, and what in it could be superseded.

    `floor` is its cost, of `loaded` tokens in all; `supersedable` those that a newer one could
    stand for, and why; `unseen` what was not looked for, and why.
    """

    store: str
    floor: Floor
    supersedable: pd.DataFrame
    loaded: int
    unseen: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what a script reads."""
        listed = self.supersedable.to_dict(orient="records")
        said = {"store": self.store, "floor": asdict(self.floor), "loaded": self.loaded}
        return {**said, "supersedable": listed, "unseen": self.unseen}

    def sheet(self) -> TextPage:
        """Return what is printed."""
        floor = self.floor
        newer = self.supersedable
        start = start_words(open_source(self.store).name)
        loaded = counted(self.loaded, "tokens")
        if floor.memories:
            size = Size(len(newer), int(newer[c.TOKENS].sum()))
            facts = [
                ("load-bearing", sized(Size(floor.memories, floor.tokens))),
                (start, f"{loaded}, of which no cap can take those away"),
                ("supersedable", sized(size)),
            ]
        else:
            facts = [
                ("load-bearing", "nothing: no memory is kept whatever the cap"),
                (start, f"{loaded}, all of which a cap can take away"),
            ]
        if self.unseen:
            facts.append(("not looked for", self.unseen))
        rows = list(newer[list(_NEWER)].itertuples(index=False, name=None))
        listed = Table("A newer one could stand for", tuple(_NEWER.values()), rows)
        tables = [*floor.tables("By kind"), listed.first(_LISTED, "; --json has all")]
        return TextPage(self.store, facts, [table for table in tables if table.rows])

    def next_steps(self) -> list[str]:
        """Return lines that say what to run next."""
        if self.supersedable.empty:
            return [f"next: {command('size', self.store)}    which keep_recent, with evidence"]
        if not open_source(self.store).supersedes:
            return [
                "next: read both; where they live nothing can stand for another: shorten or delete"
            ]
        return [
            "next: read both; a plan lets the newer ones stand, or with --id ID some of them:",
            f"  {command('floor', self.store)} --save-plan floor.json",
            "what it supersedes stays in the store, and memlab restore takes it back",
        ]


def floor(store: SourceLike) -> LoadBearing:
    """Return what the load-bearing memories of a store cost; the store is only read.

    Near-duplicates are looked for where the extra for them is installed.
    """
    frame = load(store, with_body=True)
    unseen = ""
    try:
        newer = supersedable(frame)
    except MissingExtraError as error:
        newer = supersedable(frame, by_likeness=False)
        unseen = f"near-duplicates: {error}"
    loaded = int(frame.loc[frame[c.ACTIVE], c.TOKENS].sum())
    name = store if isinstance(store, str | PathLike) else open_source(store).name
    return LoadBearing(str(name), floor_of(frame), newer, loaded, unseen)
