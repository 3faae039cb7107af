"""What an agent loads at start, and how much of it is noise."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memlab import columns as c

Mask: TypeAlias = NDArray[np.bool_]

PARTS: Final = ("decisions", "skills", "rejected paths", "unreadable", "episodes")
"""The parts of a boot context. All but the episodes are load-bearing."""


@dataclass(frozen=True, slots=True)
class Amount:
    """So many items, holding so many tokens."""

    items: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot context and its noise.

    Attributes
    ----------
    items, tokens : int
        All that is loaded.
    load_bearing, prunable : Amount
        The two kinds of it.
    noise_by_items, noise_by_tokens : float or None
        Prunable over all, in [0, 1]; None where there is nothing to divide by.
    """

    items: int
    tokens: int
    load_bearing: Amount
    prunable: Amount
    noise_by_items: float | None
    noise_by_tokens: float | None


def boot_context(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what an agent loads at start, part by part.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``part``, in the order of :data:`PARTS`; ``items`` and ``tokens`` (int64) of the
        memories loaded and whether the part is ``load_bearing``. ``unreadable`` (rows that are kept
        because they could not be interpreted) is there only when it is not empty. ``attrs`` carries
        the token rule.
    """
    amounts = part_amounts(frame)
    listed = [part for part in PARTS if part != "unreadable" or amounts[part].items]
    result = pd.DataFrame(
        {
            c.ITEMS: np.array([amounts[part].items for part in listed], dtype=np.int64),
            c.TOKENS: np.array([amounts[part].tokens for part in listed], dtype=np.int64),
            c.LOAD_BEARING: [part != "episodes" for part in listed],
        },
        index=pd.Index(listed, dtype="str", name=c.PART),
    )
    result.attrs = {
        c.TOKEN_RULE: frame.attrs.get(c.TOKEN_RULE, ""),
        c.SOURCE: frame.attrs.get(c.SOURCE, ""),
    }
    return result


def part_amounts(frame: pd.DataFrame) -> dict[str, Amount]:
    """Return how much of the boot context is in each of :data:`PARTS`."""
    kinds = frame[c.KIND].astype("category").cat
    by_kind = {"semantic": "decisions", "procedural": "skills", "episodic": "rejected paths"}
    places = [PARTS.index(by_kind.get(kind, "unreadable")) for kind in kinds.categories]
    part = np.array([*places, PARTS.index("unreadable")])[kinds.codes.to_numpy()]
    part[~frame[c.LOAD_BEARING].to_numpy(bool)] = PARTS.index("episodes")
    if c.PROBLEM in frame:
        part[frame[c.PROBLEM].notna().to_numpy()] = PARTS.index("unreadable")
    loaded = loaded_at_start(frame)
    part, tokens = part[loaded], frame[c.TOKENS].to_numpy(np.int64)[loaded]
    return {
        name: Amount(int((part == place).sum()), int(tokens[part == place].sum()))
        for place, name in enumerate(PARTS)
    }


def loaded_at_start(frame: pd.DataFrame) -> Mask:
    """Return which memories an agent loads at start.

    The active ones; where a source loads only some of these, those. Where it loads none by itself,
    all that are active stand for what it may recall.
    """
    active = frame[c.ACTIVE].to_numpy(bool)
    if not loads_any(frame):
        return active
    loaded: Mask = active & frame[c.LOADED_AT_START].to_numpy(bool)
    return loaded


def loads_any(frame: pd.DataFrame) -> bool:
    """Whether a source says of some memories that they are loaded at start."""
    return c.LOADED_AT_START in frame and bool(frame[c.LOADED_AT_START].any())


def boot_of(frame: pd.DataFrame, rows: Mask) -> Boot:
    """Return the boot context that `rows` of the frame make up."""
    loaded = rows & loaded_at_start(frame)
    prunable = loaded & frame[c.PRUNABLE].to_numpy(bool)
    everything, noise = amount_of(frame, loaded), amount_of(frame, prunable)
    return Boot(
        items=everything.items,
        tokens=everything.tokens,
        load_bearing=amount_of(frame, loaded & ~prunable),
        prunable=noise,
        noise_by_items=noise.items / everything.items if everything.items else None,
        noise_by_tokens=noise.tokens / everything.tokens if everything.tokens else None,
    )


def amount_of(frame: pd.DataFrame, rows: Mask) -> Amount:
    """Return how many `rows` there are and what they hold."""
    return Amount(items=int(rows.sum()), tokens=int(frame[c.TOKENS].to_numpy()[rows].sum()))


def as_datetime(value: Any) -> datetime | None:
    """Return a creation time as a plain datetime; None for a missing one."""
    return None if pd.isna(value) else pd.Timestamp(value).to_pydatetime()
