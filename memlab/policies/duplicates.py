"""The policy that replaces a row by a newer near-duplicate."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Flags, Floats, Ints
from memlab.policies.base import Policy, Runner, times
from memlab.policies.likeness import BLOCK, Likeness, Pairs, Vectorise, vectors_of

DEFAULT_THRESHOLD: Final = 0.92
"""The cosine of odek."""


@dataclass(frozen=True)
class NearDuplicate(Policy):
    """Replace an older row by a newer near-duplicate of it.

    In the order of ``created_at``, a row replaces the one older prunable row most similar to it
    (the newest of several) if their cosine reaches `threshold`. This is repeated until nothing more
    is replaced, so that a second decision changes nothing.

    A newer row that is less trusted than the older one is evicted itself; odek does not store such
    an episode at all since August 2026. With `keep_untrusted` both stay, as in odek 1.15 of July
    2026 and before.

    Texts are title and body, or the title alone in a frame without bodies (``with_body=True`` loads
    them). By default they are compared by counts of words and of pairs of neighbouring words,
    ignoring case: a word counts three times, the first and the last of a text twice. odek compares
    the same counts under a random projection to 256 dimensions, whose result differs from this
    cosine ``c`` by a standard error of about ``(1 - c**2) / 16``: 0.01 at the threshold. It leaves
    out words of one ASCII character, which here distinguish texts. A row without words has no
    duplicates. ``trusted`` is True unless a frame says otherwise; it is False for a writer that is
    neither trusted nor approved by a user or automatically.

    Examples
    --------
    >>> NearDuplicate(0.95).threshold
    0.95
    """

    threshold: float = field(
        default=DEFAULT_THRESHOLD,
        metadata={"help": "cosine from which a newer memory replaces an older; 0: off"},
    )
    keep_untrusted: bool = field(
        default=False,
        metadata={
            "help": "whether an untrusted near-duplicate stays beside the trusted memory that it "
            "repeats, as in odek until July 2026"
        },
        kw_only=True,
    )
    vectorise: Vectorise | None = field(
        default=None,
        metadata={"help": "texts to vectors, for who has embeddings; counts of words otherwise"},
    )

    name: ClassVar[str] = "dedup"
    origin: ClassVar[str] = "odek: a newer near-duplicate replaces the older, trust permitting"
    reason: ClassVar[str] = "near-duplicate"
    reads_bodies: ClassVar[bool] = True
    runner: ClassVar[Runner] = "duplicates"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold!r} is not in [0, 1]")

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Return the rows that a newer one replaces."""
        pairs = near_duplicates(rows, self)
        return pd.Series(self.reason, index=pairs.index, dtype="str")


def near_duplicates(rows: pd.DataFrame, policy: NearDuplicate) -> pd.DataFrame:
    """Return the prunable rows of a frame that a newer near-duplicate replaces.

    Parameters
    ----------
    rows : DataFrame
        A frame in order of position, as :func:`memlab.load` returns it.
    policy : NearDuplicate
        The rule.

    Returns
    -------
    DataFrame
        One row for each replaced row, with its label in `rows`: ``memory_id``, ``replaced_by`` (the
        id of the newer row) and ``similarity`` (their cosine).

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame(
    ...     {
    ...         "memory_id": ["a", "b", "c"],
    ...         "position": [1, 2, 3],
    ...         "created_at": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True),
    ...         "title": ["the parser is slow", "release notes", "the parser is slow"],
    ...         "active": True,
    ...         "load_bearing": False,
    ...     }
    ... )
    >>> near_duplicates(rows, NearDuplicate(0.95)).round(2)
      memory_id replaced_by  similarity
    0         a           c         1.0
    """
    prunable = rows[rows[col.ACTIVE] & ~rows[col.LOAD_BEARING]]
    prunable = prunable.iloc[oldest_first(prunable)]
    replaced_by = np.full(len(prunable), -1)
    similarity = np.full(len(prunable), -1.0)
    if policy.threshold and len(prunable) > 1:
        vectors = vectors_of(texts_of(prunable), policy.vectorise)
        replaced_by, similarity = replace_older(vectors, trust_in(prunable), policy)
    replaced = np.flatnonzero(replaced_by >= 0)
    ids = prunable[col.MEMORY_ID].to_numpy()
    return pd.DataFrame(
        {
            col.MEMORY_ID: ids[replaced],
            "replaced_by": ids[replaced_by[replaced]],
            "similarity": similarity[replaced].astype(np.float64),
        },
        index=prunable.index[replaced],
    )


def trust_in(rows: pd.DataFrame) -> Flags:
    """Return which rows a trusted writer wrote; all unless the frame says otherwise."""
    if col.TRUSTED not in rows:
        return np.ones(len(rows), dtype=bool)
    return rows[col.TRUSTED].fillna(value=True).to_numpy(dtype=bool)


def oldest_first(rows: pd.DataFrame) -> Ints:
    """Return the places of rows in order of creation time, unknown times first."""
    created = times(rows, col.CREATED_AT).astype(np.int64)  # no time is the least number
    return np.argsort(created, kind="stable")


def texts_of(rows: pd.DataFrame) -> list[str]:
    """Return the texts that rows are compared by: title and body, or the title alone."""
    title = rows[col.TITLE].fillna("").astype("str")
    if col.BODY not in rows:
        return title.tolist()
    return (title + "\n" + rows[col.BODY].fillna("").astype("str")).tolist()


class Replacement(NamedTuple):
    """An evicted row, the row that replaced it, and their cosine; rows are row numbers."""

    row: int
    winner: int
    similarity: float


def replace_until_settled(
    pairs: Pairs, trust: Flags, present: Flags, *, keep_untrusted: bool
) -> list[Replacement]:
    """Let each row replace the row most similar to it; repeat until nothing more is replaced.

    The flags in `present` of the evicted rows are set to False.
    """
    replaced: list[Replacement] = []
    while True:
        replaced_in_pass = replace_once(pairs, trust, present, keep_untrusted=keep_untrusted)
        if not replaced_in_pass:
            return replaced
        replaced += replaced_in_pass


def replace_once(
    pairs: Pairs, trust: Flags, present: Flags, *, keep_untrusted: bool
) -> list[Replacement]:
    """Let each row, the oldest first, replace the row most similar to it.

    If it is trusted less than that row, it is evicted itself, or both stay with `keep_untrusted`.
    The flags in `present` of the evicted rows are set to False.
    """
    rows, start, count = np.unique(pairs.newer, return_index=True, return_counts=True)
    stop = start + count
    replaced = []
    for row, first_pair, end_pair in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        if not present[row]:
            continue
        older = pairs.older[first_pair:end_pair]
        cosine = np.where(present[older], pairs.cosine[first_pair:end_pair], -1.0)
        highest = cosine.max()
        if highest < 0:
            continue
        most_similar = int(older[np.flatnonzero(cosine == highest)[-1]])
        if trust[row] >= trust[most_similar]:
            present[most_similar] = False
            replaced.append(Replacement(most_similar, row, float(highest)))
        elif not keep_untrusted:
            present[row] = False
            replaced.append(Replacement(row, most_similar, float(highest)))
    return replaced


def replace_older(vectors: Any, trust: Flags, policy: NearDuplicate) -> tuple[Ints, Floats]:
    """Return for each vector the one that replaces it (-1 for none), and their cosine."""
    likeness = Likeness(vectors, policy.threshold)
    keep_untrusted = policy.keep_untrusted
    present = np.ones(len(trust), dtype=bool)
    rows = np.arange(len(trust))
    replaced: list[Replacement] = []
    compared_pairs = []
    # A block is compared only with rows that are still present, so that equal texts stay fast.
    for start in range(0, len(trust), BLOCK):
        block = rows[start : start + BLOCK]
        pairs = likeness.pairs(block, np.flatnonzero(present[: block[-1] + 1]))
        replaced += replace_once(pairs, trust, present, keep_untrusted=keep_untrusted)
        compared_pairs.append(pairs.among(present))
    if compared_pairs:
        pairs = Pairs.merged(compared_pairs).among(present)
        replaced += replace_until_settled(pairs, trust, present, keep_untrusted=keep_untrusted)
    replaced_by = np.full(len(trust), -1, dtype=np.int64)
    similarity = np.full(len(trust), -1.0)
    for replacement in replaced:
        replaced_by[replacement.row] = replacement.winner
        similarity[replacement.row] = replacement.similarity
    return replaced_by, similarity
