"""Near-duplicates: a newer row that says the same replaces the older."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.extras import import_extra
from memlab.policies.base import Policy, Runner
from memlab.policies.optional_columns import times

Vectorise = Callable[[Sequence[str]], Any]
"""Takes n texts, returns n rows of a numpy array or of a scipy sparse matrix."""

FEATURES = 2**20
BLOCKS = 64


@dataclass(frozen=True)
class NearDuplicate(Policy):
    """Let a newer near-duplicate replace the older row it repeats.

    In the order of ``created_at``, a row replaces the one older prunable row most similar to it
    (the newest of them, on a tie) when their cosine reaches `threshold`, unless its trust is lower:
    then both stay. A frame does not say which rows have met before, so this is repeated until
    nothing more goes, and deciding again on what is left changes nothing.

    Texts are title and body, or the title alone in a frame without bodies (``with_body=True`` loads
    them). Unless `vectorise` is given they are compared by how often each word occurs, case aside.
    odek compares the same counts under a random projection to 256 dimensions, which gives this
    cosine ``c`` with a standard error of about ``(1 - c**2) / 16``: 0.01 at the threshold. It
    leaves out words of one character, which here tell two texts apart. Rows without a word are
    nobody's duplicates. ``trusted`` is True unless a frame says otherwise; a writer that is neither
    trusted nor approved by a user or automatically is not.

    Raises
    ------
    ValueError
        If `threshold` is not in [0, 1].
    """

    threshold: float = field(
        default=0.92,
        metadata={"help": "cosine from which a newer memory replaces an older; 0: off"},
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
        """Refuse a threshold that no cosine can be held to."""
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold!r} is not in [0, 1]")

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Name the rows that a newer one replaces."""
        pairs = near_duplicates(rows, self)
        return pd.Series(self.reason, index=pairs.index, dtype="str")


def near_duplicates(rows: pd.DataFrame, policy: NearDuplicate) -> pd.DataFrame:
    """Say which prunable rows a newer near-duplicate replaces, and which one it is.

    Parameters
    ----------
    rows : DataFrame
        A frame, in order of position.
    policy : NearDuplicate
        Threshold and vectors.

    Returns
    -------
    DataFrame
        One row per replaced row, by its label in `rows`: ``memory_id``, ``replaced_by`` (the id of
        the newer one) and ``similarity`` (their cosine).

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed and the policy has no vectors of its own.
    ValueError
        If the policy's vectors are not one per text, or not finite.
    """
    prunable = rows[rows[col.ACTIVE] & ~rows[col.LOAD_BEARING]]
    prunable = prunable.iloc[oldest_first(prunable)]
    if policy.threshold == 0 or len(prunable) < 2:
        winner = similarity = np.full(len(prunable), -1)
    else:
        winner, similarity = _replacements(prunable, policy)
    gone = np.flatnonzero(winner >= 0)
    ids = prunable[col.MEMORY_ID].to_numpy()
    return pd.DataFrame(
        {
            col.MEMORY_ID: ids[gone],
            "replaced_by": ids[winner[gone]],
            "similarity": similarity[gone].astype(np.float64),
        },
        index=prunable.index[gone],
    )


def oldest_first(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the places of rows by the time they say they were made at; unknown times come first.

    What is equal keeps its order.
    """
    created = times(rows, col.CREATED_AT).astype(np.int64)  # no time is the least number
    return np.argsort(created, kind="stable")


def texts_of(rows: pd.DataFrame) -> list[str]:
    """Return what rows are compared by: title and body, or the title where there is no body."""
    title = rows[col.TITLE].fillna("").astype("str")
    if col.BODY not in rows:
        return title.tolist()
    return (title + "\n" + rows[col.BODY].fillna("").astype("str")).tolist()


def vectors_of(texts: Sequence[str], policy: NearDuplicate) -> Any:
    """Return a policy's vectors of texts.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed and the policy has no vectors of its own.
    ValueError
        If there is not one vector per text.
    """
    vectors = (policy.vectorise or word_counts)(texts)
    if np.ndim(vectors) != 2 and not hasattr(vectors, "tocsr"):
        raise ValueError(f"vectorise returned {type(vectors).__name__}, not a matrix")
    if vectors.shape[0] != len(texts):
        raise ValueError(f"vectorise returned {vectors.shape[0]} vectors for {len(texts)} texts")
    return vectors


def word_counts(texts: Sequence[str]) -> Any:
    """Return a sparse row per text, of unit length: how often each word occurs in it.

    A word is a run of letters and digits.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    """
    text = import_extra("sklearn.feature_extraction.text", extra="models")
    words = r"(?u)[^\W_]+"  # one-letter words too: only a digit may tell two texts apart
    return text.HashingVectorizer(
        n_features=FEATURES, alternate_sign=False, token_pattern=words
    ).transform(texts)


def _replacements(
    rows: pd.DataFrame, policy: NearDuplicate
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return who replaces each row, -1 where nobody does, and how similar the two are."""
    # Compiled code and scipy are loaded where they are used: a policy is light to import.
    from memlab.policies.most_similar import replace_older

    vectors = vectors_of(texts_of(rows), policy)
    if col.TRUSTED in rows:
        trust = rows[col.TRUSTED].fillna(value=True).to_numpy(dtype=bool)
    else:
        trust = np.ones(len(rows), dtype=bool)
    return replace_older(vectors, trust, policy.threshold)


Text = tuple[str, str, str, Any]
"""Id, title and body of a row, and what is above that of every older row."""


class TextIndex:
    """Texts that a new one may repeat, kept as vectors while rows come and go.

    Parameters
    ----------
    policy : NearDuplicate
        Threshold and vectors.
    rows : sequence of tuple
        What is there: id, title, body, and what is above that of every older row.
    """

    def __init__(self, policy: NearDuplicate, rows: Sequence[Text]) -> None:
        self._policy = policy
        self._rows: list[tuple[Any, str] | None] = []
        self._place: dict[str, int] = {}
        self._blocks: list[Any] = []
        if rows:
            self._append(rows)

    def most_similar(self, title: str, body: str) -> str | None:
        """Return the id of the near-duplicate most like a text, the newest on a tie, or None."""
        vector = self._unit([f"{title}\n{body}"])
        if not self._place:
            return None
        cosines = np.concatenate([_products(block, vector) for block in self._blocks])
        cosines[[row is None for row in self._rows]] = -1.0
        highest = cosines.max()
        if highest < self._policy.threshold - 1e-6:
            return None
        alike = (self._rows[place] for place in np.flatnonzero(cosines == highest))
        return max(row for row in alike if row)[1]

    def add(self, row: Text) -> None:
        """Take in a row, in place of an older one with its id."""
        self.discard(row[0])
        self._append([row])

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if (place := self._place.pop(memory_id, None)) is not None:
            self._rows[place] = None

    def _append(self, rows: Sequence[Text]) -> None:
        """Add a block of rows, and put blocks together before they are many."""
        for memory_id, _, _, order in rows:
            self._place[memory_id] = len(self._rows)
            self._rows.append((order, memory_id))
        self._blocks.append(self._unit([f"{title}\n{body}" for _, title, body, _ in rows]))
        if len(self._blocks) > BLOCKS:
            self._blocks = [_stacked(self._blocks)[list(self._place.values())]]
            self._rows = [self._rows[place] for place in self._place.values()]
            self._place = {memory_id: place for place, memory_id in enumerate(self._place)}

    def _unit(self, texts: Sequence[str]) -> Any:
        from memlab.policies.most_similar import unit_rows

        return unit_rows(vectors_of(texts, self._policy))


def _stacked(blocks: Sequence[Any]) -> Any:
    """Return blocks of one kind as one."""
    if isinstance(blocks[0], np.ndarray):
        return np.vstack(blocks)
    from scipy.sparse import vstack

    return vstack(blocks, format="csr")


def _products(block: Any, vector: Any) -> npt.NDArray[np.float64]:
    """Return the cosine of every row of a block and one vector, ties told by rounding."""
    if isinstance(block, np.ndarray):
        cosines, decimals = block @ vector[0], 6
    else:
        cosines, decimals = (block @ vector.T).toarray().ravel(), 9
    return np.asarray(np.round(cosines.astype(np.float64), decimals), dtype=np.float64)
