"""The policy that replaces a row by a newer near-duplicate."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Flags, Floats, Ints
from memlab.policies.base import Policy, RunnerName, time_column
from memlab.policies.likeness import BLOCK, Pairs, SimilaritySearch, Vectorise, vectors_of

DEFAULT_THRESHOLD: Final = 0.92
"""The threshold of odek, a cosine."""


@dataclass(frozen=True)
class NearDuplicate(Policy):
    """Replace an older row by a newer near-duplicate of it.

    In the order of ``created_at``, a row replaces the one older prunable row most similar to it
    (the newest of several) if their cosine reaches `threshold`. This is repeated until nothing more
    is replaced, so that a second decision changes nothing.

    If the newer row is not trusted and the older one is, the newer row is evicted instead; odek
    does not store such an episode at all since August 2026. With `keep_untrusted` both stay, as in
    odek 1.15 of July 2026 and before.

    The text of a row is its title and body, or the title alone in a frame without bodies
    (``with_body=True`` loads them). By default texts are compared by counts of their words. Each
    word is counted once by itself and once for each neighbour: three times inside a text, twice at
    its beginning or end. Case is ignored. A row without words has no duplicates.

    odek compares the same counts under a random projection to 256 dimensions. Its result differs
    from this cosine ``c`` by a standard error of about ``(1 - c**2) / 16``: 0.01 at the threshold.
    odek leaves out words of one ASCII character, which here distinguish texts.

    ``trusted`` is True unless a frame says otherwise. It is False for a writer that is neither
    trusted nor approved by a user or automatically.

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
        metadata={
            "help": "function from texts to vectors, such as embeddings; by default counts of words"
        },
    )

    name: ClassVar[str] = "dedup"
    origin: ClassVar[str] = "odek: a newer near-duplicate replaces the older, trust permitting"
    reason: ClassVar[str] = "near-duplicate"
    reads_bodies: ClassVar[bool] = True
    runner: ClassVar[RunnerName] = "duplicates"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold!r} is not in [0, 1]")

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Return the rows that a newer near-duplicate replaces."""
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
        replaced_by, similarity = replace_older(vectors, is_trusted(prunable), policy)
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


def is_trusted(rows: pd.DataFrame) -> Flags:
    """Return flags of the rows that a trusted writer wrote; all, if trust is not known."""
    if col.TRUSTED not in rows:
        return np.ones(len(rows), dtype=bool)
    return rows[col.TRUSTED].fillna(value=True).to_numpy(dtype=bool)


def oldest_first(rows: pd.DataFrame) -> Ints:
    """Return the numbers of rows in order of creation time, unknown times first."""
    created = time_column(rows, col.CREATED_AT).astype(np.int64)  # NaT is the lowest number
    return np.argsort(created, kind="stable")


def texts_of(rows: pd.DataFrame) -> list[str]:
    """Return the texts that rows are compared by: title and body, or the title alone."""
    title = rows[col.TITLE].fillna("").astype("str")
    if col.BODY not in rows:
        return title.tolist()
    return (title + "\n" + rows[col.BODY].fillna("").astype("str")).tolist()


class Replacement(NamedTuple):
    """The replacement of a row by another.

    Attributes
    ----------
    row : int
        Number of the evicted row.
    replaced_by : int
        Number of the row that replaced it.
    similarity : float
        Cosine of the two rows.
    """

    row: int
    replaced_by: int
    similarity: float


def replace_repeatedly(
    pairs: Pairs, is_trusted_row: Flags, is_present: Flags, *, keep_untrusted: bool
) -> list[Replacement]:
    """Let rows replace similar older rows; repeat this until nothing more is replaced.

    Parameters and result are those of :func:`replace_once`.
    """
    replaced: list[Replacement] = []
    while True:
        replaced_in_pass = replace_once(
            pairs, is_trusted_row, is_present, keep_untrusted=keep_untrusted
        )
        if not replaced_in_pass:
            return replaced
        replaced += replaced_in_pass


def replace_once(
    pairs: Pairs, is_trusted_row: Flags, is_present: Flags, *, keep_untrusted: bool
) -> list[Replacement]:
    """Let each row, the oldest first, replace the older row most similar to it.

    If the row is not trusted and the older one is, the row is evicted itself; with
    `keep_untrusted` both stay.

    Parameters
    ----------
    pairs : Pairs
        The pairs of near-duplicates.
    is_trusted_row : array of bool, shape (rows,)
        Whether a trusted writer wrote each row.
    is_present : array of bool, shape (rows,)
        Whether each row is present. The flags of evicted rows are set to False.
    keep_untrusted : bool
        As for :class:`NearDuplicate`.

    Returns
    -------
    list of Replacement
        The replacements, in order.
    """
    rows, start, count = np.unique(pairs.newer, return_index=True, return_counts=True)
    stop = start + count
    replaced = []
    for row, first_pair, end_pair in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        if not is_present[row]:
            continue
        older = pairs.older[first_pair:end_pair]
        cosine = np.where(is_present[older], pairs.cosine[first_pair:end_pair], -1.0)
        highest = cosine.max()
        if highest < 0:
            continue
        is_most_similar = cosine == highest
        most_similar = int(older[is_most_similar][-1])  # the newest of them
        if is_trusted_row[row] or not is_trusted_row[most_similar]:
            is_present[most_similar] = False
            replaced.append(Replacement(most_similar, row, float(highest)))
        elif not keep_untrusted:
            is_present[row] = False
            replaced.append(Replacement(row, most_similar, float(highest)))
    return replaced


def replace_older(
    vectors: Any, is_trusted_row: Flags, policy: NearDuplicate
) -> tuple[Ints, Floats]:
    """Return the number of the row that replaces each row, -1 for none, and their cosine."""
    search = SimilaritySearch(vectors, policy.threshold)
    keep_untrusted = policy.keep_untrusted
    is_present = np.ones(len(is_trusted_row), dtype=bool)
    rows = np.arange(len(is_trusted_row))
    replaced: list[Replacement] = []
    compared_pairs = []
    # A block is compared only with rows that are still present. Of many equal texts, only the
    # newest stays present, so equal texts do not slow the comparison down.
    for start in range(0, len(is_trusted_row), BLOCK):
        block = rows[start : start + BLOCK]
        pairs = search.pairs(block, np.flatnonzero(is_present[: block[-1] + 1]))
        replaced += replace_once(pairs, is_trusted_row, is_present, keep_untrusted=keep_untrusted)
        compared_pairs.append(pairs.among(is_present))
    if compared_pairs:
        pairs = Pairs.merged(compared_pairs).among(is_present)
        replaced += replace_repeatedly(
            pairs, is_trusted_row, is_present, keep_untrusted=keep_untrusted
        )
    replaced_by = np.full(len(is_trusted_row), -1, dtype=np.int64)
    similarity = np.full(len(is_trusted_row), -1.0)
    for replacement in replaced:
        replaced_by[replacement.row] = replacement.replaced_by
        similarity[replacement.row] = replacement.similarity
    return replaced_by, similarity
