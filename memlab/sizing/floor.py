"""The load-bearing rows: what no cap can bring down."""

from dataclasses import dataclass
from typing import Final

import pandas as pd

from memlab.columns import ACTIVE, KIND, LOAD_BEARING, MEMORY_ID, TITLE, TOKENS

LARGEST_SHOWN: Final = 5


@dataclass(frozen=True)
class LargeRow:
    """A load-bearing row that costs much; its text comes from an agent and is not to be trusted."""

    memory_id: str
    kind: str
    title: str
    tokens: int


@dataclass(frozen=True)
class Floor:
    """The load-bearing active rows.

    Attributes
    ----------
    items, tokens : int
    by_kind : tuple of (str, int, int)
        Kind, rows, tokens; the costliest first.
    largest : tuple of LargeRow
        The costliest rows.
    """

    items: int
    tokens: int
    by_kind: tuple[tuple[str, int, int], ...]
    largest: tuple[LargeRow, ...]


def floor_of(frame: pd.DataFrame) -> Floor:
    """Return what the frame's load-bearing active rows cost, by kind and the largest of them."""
    rows = frame.loc[frame[ACTIVE] & frame[LOAD_BEARING], [MEMORY_ID, KIND, TITLE, TOKENS]]
    kinds = rows.groupby(rows[KIND].astype("str"))[TOKENS].agg(["size", "sum"])
    kinds = kinds.sort_values("sum", ascending=False)
    largest = rows.nlargest(LARGEST_SHOWN, TOKENS)
    return Floor(
        len(rows),
        int(rows[TOKENS].sum()),
        tuple((str(kind), int(size), int(cost)) for kind, size, cost in kinds.itertuples()),
        tuple(
            LargeRow(str(name), str(kind), str(title), int(tokens))
            for name, kind, title, tokens in largest.itertuples(index=False)
        ),
    )
