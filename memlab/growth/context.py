"""What an agent loads at start, and how much of it is noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from memlab import columns as c
from memlab.frame.arrays import Arrays, Mask, arrays_of
from memlab.frame.fields import KINDS
from memlab.items import Size

if TYPE_CHECKING:
    import pandas as pd

PARTS: Final = ("decisions", "skills", "rejected paths", "unreadable", "episodes")
"""The parts of a boot context. All but the episodes are load-bearing."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot context and its noise.

    Attributes
    ----------
    memories, tokens : int
        All that is loaded.
    load_bearing, prunable : Size
        The two kinds of it.
    noise_by_memories, noise_by_tokens : float or None
        Prunable over all, in [0, 1]; None where there is nothing to divide by.
    """

    memories: int
    tokens: int
    load_bearing: Size
    prunable: Size
    noise_by_memories: float | None
    noise_by_tokens: float | None


def boot_context(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return what an agent loads at start, part by part.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``part``, in the order of :data:`PARTS`; ``memories`` and ``tokens`` (int64)
        that are loaded, and whether the part is ``load_bearing``. ``unreadable`` (rows kept
        because they could not be interpreted) is there only when it is not empty. ``attrs`` carries
        the token rule.
    """
    import pandas as pd

    sizes = part_sizes(arrays_of(frame))
    listed = [part for part in PARTS if part != "unreadable" or sizes[part].memories]
    result = pd.DataFrame(
        {
            c.MEMORIES: np.array([sizes[part].memories for part in listed], dtype=np.int64),
            c.TOKENS: np.array([sizes[part].tokens for part in listed], dtype=np.int64),
            c.LOAD_BEARING: [part != "episodes" for part in listed],
        },
        index=pd.Index(listed, dtype="str", name=c.PART),
    )
    result.attrs = {
        c.TOKEN_RULE: frame.attrs.get(c.TOKEN_RULE, ""),
        c.SOURCE: frame.attrs.get(c.SOURCE, ""),
    }
    return result


def part_sizes(memories: Arrays) -> dict[str, Size]:
    """Return how large each of :data:`PARTS` is."""
    by_kind = {"semantic": "decisions", "procedural": "skills", "episodic": "rejected paths"}
    places = [PARTS.index(by_kind[kind]) for kind in KINDS]
    part = np.array([*places, PARTS.index("unreadable")])[memories.kind]
    part[~memories.load_bearing] = PARTS.index("episodes")
    part[memories.unreadable] = PARTS.index("unreadable")
    loaded = loaded_at_start(memories)
    return {name: size_of(memories, loaded & (part == place)) for place, name in enumerate(PARTS)}


def loaded_at_start(memories: Arrays) -> Mask:
    """Return which memories an agent loads at start.

    The active ones; where a source loads only some of these, those. Where it loads none by itself,
    all that are active stand for what it may recall.
    """
    if memories.at_start is None or not memories.at_start.any():
        return memories.active
    return memories.active & memories.at_start


def boot_of(memories: Arrays, rows: Mask) -> Boot:
    """Return the boot context that some of the memories make up."""
    loaded = rows & loaded_at_start(memories)
    prunable = loaded & memories.prunable
    everything, noise = size_of(memories, loaded), size_of(memories, prunable)
    return Boot(
        memories=everything.memories,
        tokens=everything.tokens,
        load_bearing=size_of(memories, loaded & ~prunable),
        prunable=noise,
        noise_by_memories=noise.memories / everything.memories if everything.memories else None,
        noise_by_tokens=noise.tokens / everything.tokens if everything.tokens else None,
    )


def size_of(memories: Arrays, rows: Mask) -> Size:
    """Return how many `rows` there are and what they hold."""
    return Size(int(rows.sum()), int(memories.tokens[rows].sum()))
