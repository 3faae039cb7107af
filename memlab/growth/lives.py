"""When each memory was written, and when it was replaced or deleted."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.frame.arrays import Arrays
from memlab.sources.arrow import as_numbers, of_numbers

Int64s: TypeAlias = NDArray[np.int64]

NEVER: Final = np.iinfo(np.int64).max
"""When a memory was replaced or deleted that never was."""


def lifetimes(memories: Arrays) -> tuple[Int64s, Int64s, Int64s]:
    """Return when each memory was created, replaced and deleted, in microseconds.

    One without a time has that of the one before it; one at the beginning, that of the first with a
    time.
    """
    created = memories.created_at
    dated = np.flatnonzero(~np.isnat(created))
    born = np.zeros(len(created), dtype=np.int64)
    if len(dated):
        place = np.searchsorted(dated, np.arange(len(created)), side="right") - 1
        born = created[dated[np.maximum(place, 0)]].astype(np.int64)
    replaced, successor = successors(memories)
    known = successor >= 0
    ended = np.full(len(created), NEVER, dtype=np.int64)
    ended[replaced] = born[replaced]
    ended[replaced[known]] = np.maximum(born[replaced[known]], born[successor[known]])
    return born, ended, np.maximum(born, _deleted(memories))


def successors(memories: Arrays) -> tuple[Int64s, Int64s]:
    """Return the places of superseded memories, and of what replaced them; -1 if not there."""
    is_replaced = ~memories.active
    if memories.deleted_at is not None:  # a deleted memory is not active either
        is_replaced &= np.isnat(memories.deleted_at) | memories.replaced
    replaced = np.flatnonzero(is_replaced)
    if not len(replaced):
        return replaced, replaced
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = memories.memory_id.cast(pa.large_string())
    wanted = memories.superseded_by.take(of_numbers(replaced)).cast(pa.large_string())
    found = pc.index_in(wanted, value_set=ids, skip_nulls=True).cast(pa.int64())
    return replaced, as_numbers(found, np.int64(-1))


def _deleted(memories: Arrays) -> Int64s:
    if memories.deleted_at is None:
        return np.full(len(memories.tokens), NEVER, dtype=np.int64)
    there = np.isnat(memories.deleted_at)
    return np.where(there, NEVER, memories.deleted_at.astype("datetime64[us]").astype(np.int64))
