"""Keep what the store's own past says will be referred to."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.policies.base import CappedPolicy, GoesBy, Keys, Rows, Runner
from memlab.policies.expectation import Expectation, experience_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Learned(CappedPolicy):
    """Keep the prunable memories that are the most likely to be referred to next.

    How likely is learned from the references so far: which of the memories there at the time each
    fell on, by age, length, tags, what they name, how often and how lately they had been referred
    to. It is fitted again as references arise. Until there have been enough, and unless it has told
    references it had not seen better than age alone, it keeps the newest, as `KeepRecent` does.

    With `max_items` it counts memories, and load-bearing ones come on top, as under `KeepRecent`:
    what is referred to tends to be long, so the same number of them takes more tokens than the
    newest would. With `max_tokens` it counts tokens, load-bearing ones among them, as `TokenBudget`
    does, and keeps what is the most likely to be referred to per token; while age alone decides, of
    two memories of one age the shorter.

    A store that has been compacted shows only what was kept. :func:`memlab.plan` gives it the rows
    that the store's archive keeps as well; anywhere else do so with :meth:`after`. Without them it
    learns from what is there.

    Raises
    ------
    ValueError
        If neither or both of `max_items` and `max_tokens` are given, or one is not a whole number
        of 0 or more.
    """

    max_items: int | None = field(
        default=None, metadata={"help": "prunable memories to keep", "least": 0, "size": True}
    )
    max_tokens: int | None = field(
        default=None,
        metadata={"help": "tokens that the boot context may take", "least": 0, "size": "tokens"},
    )
    past: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)
    references: pd.DataFrame | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "learned"
    origin: ClassVar[str] = "memlab: what the store's own past says will be referred to"
    reason: ClassVar[str] = "least-expected"
    learns: ClassVar[bool] = True
    runner: ClassVar[Runner] = "learned"
    goes_by: ClassVar[GoesBy] = "use"

    def __post_init__(self) -> None:
        """Refuse two measures of room, or none."""
        super().__post_init__()
        if (self.max_items is None) == (self.max_tokens is None):
            both = "" if self.max_items is None else ", not both"
            raise ValueError(f"give either max_items or max_tokens{both}: the room there is")

    @property
    def slots(self) -> int | None:
        """How many prunable rows stay, or for how many tokens there is room."""
        return self.max_tokens if self.max_items is None else self.max_items

    def sizes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the tokens of each row; or one for each prunable row, and none for the others."""
        if self.max_items is None:
            return rows[col.TOKENS].to_numpy(dtype=np.int64)
        return (~rows[col.LOAD_BEARING].to_numpy(dtype=bool)).astype(np.int64)

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the policy with a past to learn from.

        Parameters
        ----------
        past : DataFrame
            Every row that was ever written, gone ones among them, as :func:`memlab.load` returns.
        references : DataFrame, optional
            What ``find_references`` returns; found in `past` when not given.
        """
        policy = replace(self)
        object.__setattr__(policy, "past", past)
        object.__setattr__(policy, "references", references)
        return policy

    def expectation(
        self, frame: pd.DataFrame, references: pd.DataFrame | None = None
    ) -> Expectation:
        """Return the expectation that a history gives rise to.

        Parameters
        ----------
        frame : DataFrame
            Rows in rowid order, those pruned since among them.
        references : DataFrame, optional
            What ``find_references`` returns; found in the frame when not given.
        """
        return Expectation(experience_of(frame, references))

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:  # noqa: ARG002
        """Return how likely each row is to be referred to next; 0 for a load-bearing one.

        With `max_tokens`, how likely for each of its tokens.
        """
        here = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(dict(rows))
        past = here if self.past is None else _with_past(self.past, here)
        expectation = self.expectation(past, self.references)
        counted = past.loc[~past[col.LOAD_BEARING], col.MEMORY_ID]
        # An id may have been deleted and written again: the newest of them counts.
        newest = np.flatnonzero(~counted.duplicated(keep="last"))
        place = pd.Index(counted.iloc[newest]).get_indexer(here[col.MEMORY_ID])
        scores = np.zeros(len(here))
        known = place >= 0
        tokens = here[col.TOKENS].to_numpy(dtype=np.int64)[known]
        scores[known] = self.ranking(expectation, newest[place[known]], len(counted), tokens)
        return (scores,)

    def ranking(
        self, expectation: Expectation, memories: Ints, moment: int, tokens: Ints
    ) -> npt.NDArray[np.float64]:
        """Return what memories are ranked by; see :meth:`Expectation.scores`."""
        if self.max_tokens is None:
            return expectation.scores(memories, moment)
        return expectation.scores_per_token(memories, moment, tokens)


def _with_past(past: pd.DataFrame, here: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the past and any written since, in rowid order."""
    new = here[~here[col.MEMORY_ID].isin(past[col.MEMORY_ID])]
    every = pd.concat([past, new[list(past.columns.intersection(new.columns))]])
    return every.sort_values(col.POSITION, kind="stable").reset_index(drop=True)
