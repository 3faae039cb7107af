"""References in words: where they were found, and why a mention is none."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from memlab.evidence.references import COUNTED

FOUND: Final = {
    "evidence": ("named as evidence", "a later memory says that it built on an earlier one"),
    "supersedes": ("replaced", "a later memory says which earlier one it replaces"),
    "superseded": ("marked as replaced", "an earlier memory says which later one replaced it"),
    "task": ("task taken up again", "a task was taken up again after another one"),
    "log": ("read", "the access log says that the agent read it"),
}
"""A kind of reference, short and in a sentence."""

NOT_COUNTED: Final = {
    "forward": "of a memory that was written later",
    "self": "of a memory by itself",
    "dangling": "of something that was never in the store",
    "duplicate": "found a second time",
    "continued": "in the same stretch of work on a task",
    "undated": "without a time",
    "future": "with a time after now",
    "repeated": "read again in the same session",
}
"""Why a mention is no later need, to be said after a number."""


def counted_in_words(counts: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return each kind of reference there is, what it means, and how many there are.

    Parameters
    ----------
    counts : pandas.DataFrame
        As :func:`memlab.evidence.count_references` returns it.
    """
    return [
        (*FOUND[str(kind)], int(count)) for kind, count in counts[COUNTED].items() if int(count)
    ]


def not_counted_in_words(counts: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Yield why mentions are no later needs, each with how many they are, the most first.

    Parameters
    ----------
    counts : pandas.DataFrame
        As :func:`memlab.evidence.count_references` returns it.
    """
    totals = counts.drop(columns=COUNTED).sum().sort_values(ascending=False, kind="stable")
    for reason, count in totals.items():
        if count:
            yield NOT_COUNTED[str(reason)], int(count)
