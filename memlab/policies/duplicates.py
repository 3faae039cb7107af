"""The policy that replaces a row by a newer near-duplicate."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Flags, Floats, Ints
from memlab.policies.base import Policy, Runner, times
from memlab.policies.likeness import BLOCK, Likeness, Pairs, Vectorise, vectors_of


@dataclass(frozen=True)
class NearDuplicate(Policy):
    """Replace an older row by a newer near-duplicate of it.

    In the order of ``created_at``, a row replaces the one older prunable row most similar to it
    (the newest of several) if their cosine reaches `threshold`. A newer row that is less trusted
    goes itself; odek does not store such an episode at all since August 2026. With `keep_untrusted`
    both stay, as in odek 1.15 of July 2026 and before. A frame does not say which rows were already
    compared, so the rule is repeated until nothing more goes; deciding again changes nothing.

    Texts are title and body, or the title alone in a frame without bodies (``with_body=True`` loads
    them). By default they are compared by counts of words and of pairs of neighbouring words,
    ignoring case: a word counts three times, the first and the last of a text twice. odek compares
    the same counts under a random projection to 256 dimensions, whose result differs from this
    cosine ``c`` by a standard error of about ``(1 - c**2) / 16``: 0.01 at the threshold. It leaves
    out words of one ASCII character, which here distinguish texts. A row without words has no
    duplicates. ``trusted`` is True unless a frame says otherwise; it is False for a writer that is
    neither trusted nor approved by a user or automatically.
    """

    threshold: float = field(
        default=0.92,
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
    """
    prunable = rows[rows[col.ACTIVE] & ~rows[col.LOAD_BEARING]]
    prunable = prunable.iloc[oldest_first(prunable)]
    winner = np.full(len(prunable), -1)
    similarity = np.full(len(prunable), -1.0)
    if policy.threshold and len(prunable) > 1:
        vectors = vectors_of(texts_of(prunable), policy.vectorise)
        winner, similarity = replace_older(vectors, trust_in(prunable), policy)
    replaced = np.flatnonzero(winner >= 0)
    ids = prunable[col.MEMORY_ID].to_numpy()
    return pd.DataFrame(
        {
            col.MEMORY_ID: ids[replaced],
            "replaced_by": ids[winner[replaced]],
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


class Replaced(NamedTuple):
    """A row that went, the row that replaced it, and their cosine."""

    row: int
    winner: int
    similarity: float


def settle(pairs: Pairs, trust: Flags, present: Flags, *, keep_untrusted: bool) -> list[Replaced]:
    """Let each row replace the one most similar to it, and repeat until nothing more goes.

    Rows that go are removed from `present`.
    """
    replaced: list[Replaced] = []
    while True:
        in_this_pass = ask_once(pairs, trust, present, keep_untrusted=keep_untrusted)
        if not in_this_pass:
            return replaced
        replaced += in_this_pass


def ask_once(pairs: Pairs, trust: Flags, present: Flags, *, keep_untrusted: bool) -> list[Replaced]:
    """Let each row, the oldest first, replace the row most similar to it.

    If it is trusted less than that row, it goes itself, or both stay. Rows that go are removed from
    `present`.
    """
    rows, start, count = np.unique(pairs.newer, return_index=True, return_counts=True)
    stop = start + count
    replaced = []
    for row, first, last in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        if not present[row]:
            continue
        older = pairs.older[first:last]
        cosine = np.where(present[older], pairs.cosine[first:last], -1.0)
        highest = cosine.max()
        if highest < 0:
            continue
        most_similar = int(older[np.flatnonzero(cosine == highest)[-1]])
        if trust[row] >= trust[most_similar]:
            present[most_similar] = False
            replaced.append(Replaced(most_similar, row, float(highest)))
        elif not keep_untrusted:
            present[row] = False
            replaced.append(Replaced(row, most_similar, float(highest)))
    return replaced


def replace_older(vectors: Any, trust: Flags, policy: NearDuplicate) -> tuple[Ints, Floats]:
    """Return for each vector the one that replaces it (-1 for none), and their cosine."""
    likeness = Likeness(vectors, policy.threshold)
    keep_untrusted = policy.keep_untrusted
    present = np.ones(len(trust), dtype=bool)
    rows = np.arange(len(trust))
    replaced: list[Replaced] = []
    compared = []
    # Block by block with the rows still present, so that a store of equal texts stays fast.
    for start in range(0, len(trust), BLOCK):
        block = rows[start : start + BLOCK]
        pairs = likeness.pairs(block, np.flatnonzero(present[: block[-1] + 1]))
        replaced += ask_once(pairs, trust, present, keep_untrusted=keep_untrusted)
        compared.append(pairs.among(present))
    if compared:
        pairs = Pairs.merged(compared).among(present)
        replaced += settle(pairs, trust, present, keep_untrusted=keep_untrusted)
    winner = np.full(len(trust), -1, dtype=np.int64)
    similarity = np.full(len(trust), -1.0)
    for replacement in replaced:
        winner[replacement.row] = replacement.winner
        similarity[replacement.row] = replacement.similarity
    return winner, similarity
