"""Which memories were read, and which had no chance to be.

A memory that nobody needed and one that nobody could have read look the same in a log. They are not
the same: the second says nothing about a cap.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from memlab.columns import AT, CREATED_AT, LOADED_AT_START, MEMORY_ID, SESSION
from memlab.text import counted

CHANCE: Final = "chance"
CHANCES: Final = {
    "read": "read",
    "unread": "never read, though they could have been",
    "too new": "written after the last read in the log",
    "not loaded": "below what is loaded at start, and never read",
}
"""What a memory's chance was, with the words for it."""


def reading_chances(frame: pd.DataFrame, log: pd.DataFrame) -> pd.Series:
    """Say of every memory whether it was read, and if not, whether it could have been.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns. Where its source says what is loaded at start, and loads
        anything, a memory that is not had no chance: no agent was told of it.
    log : DataFrame
        What `read_access_log` returns: ``memory_id``, ``at`` and, where it is known, ``session``.

    Returns
    -------
    Series
        Named ``chance``, a category of `CHANCES` for each row of the frame. A memory is too new
        when no other session, or where sessions are not known no other read, came after it was
        written.
    """
    last = _last_beginning(log)
    read = frame[MEMORY_ID].isin(log[MEMORY_ID]).to_numpy()
    too_new = ~(frame[CREATED_AT] <= last).to_numpy()  # all of them where the log is empty
    hidden = np.zeros(len(frame), bool)
    if LOADED_AT_START in frame and frame[LOADED_AT_START].any():
        hidden = ~frame[LOADED_AT_START].to_numpy(bool)
    chance = np.select([read, too_new, hidden], ["read", "too new", "not loaded"], "unread")
    return pd.Series(
        pd.Categorical(chance, categories=list(CHANCES)), index=frame.index, name=CHANCE
    )


def describe_chances(chances: pd.Series) -> str:
    """Say in a sentence how many memories were read, and how many could not have been.

    Parameters
    ----------
    chances : Series
        What `reading_chances` returns.
    """
    counts = chances.value_counts(sort=False)
    parts = [f"{counts[name]:,} {words}" for name, words in CHANCES.items() if counts.get(name)]
    return f"{counted(len(chances), 'memories')}: {', '.join(parts)}" if parts else "no memories"


def _last_beginning(log: pd.DataFrame) -> Any:
    """Return when the last session's first read was made, NaT for an empty log.

    A read without a session is one of its own.
    """
    if SESSION not in log:
        return log[AT].max()
    alone = log.loc[log[SESSION].isna(), AT]
    first = log.groupby(SESSION, observed=True)[AT].min()
    return pd.concat([alone, first]).max()
