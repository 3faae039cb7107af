"""Load-bearing memories that say nearly the same: the part of the floor that can come down."""

from typing import Final

import pandas as pd

from memlab import columns as col
from memlab.policies.duplicates import NearDuplicate, near_duplicates

BY: Final = "superseded_by"
SIMILARITY: Final = "similarity"


def load_bearing_twins(frame: pd.DataFrame, policy: NearDuplicate | None = None) -> pd.DataFrame:
    """Return active load-bearing memories that a newer one of the same kind nearly repeats.

    No policy deletes such a memory. To supersede it by the newer one takes it out of what an agent
    loads at start: ``SqliteMemoryStore.supersede(memory_id, by_memory_id=superseded_by)``.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load(store, with_body=True)`` returns; without bodies titles are compared.
    policy : NearDuplicate, optional
        From which similarity on two memories are near-duplicates, and by what vectors.

    Returns
    -------
    DataFrame
        One row per memory, the costliest first: ``memory_id``, ``kind``, ``title``, ``tokens``,
        ``superseded_by`` (the id of the newer one; at the end of a chain of such, the newest) and
        ``similarity`` to the one that follows it.

    Raises
    ------
    MissingExtraError
        When scikit-learn is not installed and the policy has no vectors of its own.
    """
    rule = NearDuplicate() if policy is None else policy
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    parts = [
        near_duplicates(alike.assign(**{col.LOAD_BEARING: False}), rule)
        for _, alike in floor.groupby(floor[col.KIND].astype("str"))
    ]
    pairs = pd.concat(parts) if parts else near_duplicates(floor.iloc[:0], rule)
    twins = floor.loc[pairs.index, [col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS]]
    follows = dict(zip(pairs[col.MEMORY_ID], pairs["replaced_by"], strict=True))
    twins[BY] = [_newest(follows, memory_id) for memory_id in twins[col.MEMORY_ID]]
    twins[SIMILARITY] = pairs[SIMILARITY]
    return twins.sort_values(col.TOKENS, ascending=False, kind="stable").reset_index(drop=True)


def _newest(follows: dict[str, str], memory_id: str) -> str:
    """Return the end of a chain; each link leads to a newer memory, so it has one."""
    while memory_id in follows:
        memory_id = follows[memory_id]
    return memory_id
