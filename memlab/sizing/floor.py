"""The load-bearing rows: what no cap can bring down."""

from dataclasses import dataclass
from typing import Final

import numpy as np
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
    memories, tokens : int
    by_kind : tuple of (str, int, int)
        Kind, rows, tokens; the costliest first.
    largest : tuple of LargeRow
        The costliest rows.
    """

    memories: int
    tokens: int
    by_kind: tuple[tuple[str, int, int], ...]
    largest: tuple[LargeRow, ...]


def floor_of(frame: pd.DataFrame) -> Floor:
    """Return what the frame's load-bearing active rows cost, by kind and the largest of them."""
    labels = (frame[name].to_numpy(dtype=bool) for name in (ACTIVE, LOAD_BEARING))
    rows = np.flatnonzero(np.logical_and(*labels))
    tokens = frame[TOKENS].to_numpy(dtype=np.int64)[rows]
    codes, kinds = pd.factorize(frame[KIND].array.take(rows))
    named = codes >= 0
    sizes = np.bincount(codes[named], minlength=len(kinds))
    costs = np.bincount(codes[named], tokens[named], minlength=len(kinds)).astype(np.int64)
    by_kind = zip(map(str, kinds), sizes.tolist(), costs.tolist(), strict=True)
    largest = np.argsort(-tokens, kind="stable")[:LARGEST_SHOWN]
    names = (frame[name].array.take(rows[largest]) for name in (MEMORY_ID, KIND, TITLE))
    shown = zip(*names, strict=True)
    return Floor(
        len(rows),
        int(tokens.sum()),
        tuple(sorted(by_kind, key=lambda kind: (-kind[2], kind[0]))),
        tuple(
            LargeRow(str(name), str(kind), str(title), cost)
            for (name, kind, title), cost in zip(shown, tokens[largest].tolist(), strict=True)
        ),
    )
