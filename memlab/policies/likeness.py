"""Cosine similarity of texts: word counts as vectors, and the pairs above a threshold."""

import re
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from memlab.frame.fields import Flags, Floats, Ints
from memlab.lazy import import_extra

Vectorise = Callable[[Sequence[str]], Any]
"""A function from n texts to a numpy array or a scipy sparse matrix of n rows."""

FEATURES: Final = 2**20
"""Number of columns of a vector; the hash of a word is the number of its column."""
_WORD: Final = re.compile(r"[^\W_]+")
BLOCK: Final = 64
"""Number of vectors that are compared with all older ones in one operation."""
DECIMALS: Final = {np.dtype(np.float64): 9, np.dtype(np.float32): 6}
"""Number of decimals of cosines by type; further decimals depend on the order of summation."""
_MAX_CANDIDATE_SHARE: Final = 1 / 8
"""If a larger share of pairs has a common rare column, all pairs are compared at once."""


def vectors_of(texts: Sequence[str], vectorise: Vectorise | None = None) -> Any:
    """Return the vectors of texts: those of `vectorise`, or else the counts of words."""
    vectors = word_counts(texts) if vectorise is None else vectorise(texts)
    if np.ndim(vectors) != 2 and not hasattr(vectors, "tocsr"):
        raise ValueError(f"vectorise returned {type(vectors).__name__}, not a matrix")
    if vectors.shape[0] != len(texts):
        raise ValueError(f"vectorise returned {vectors.shape[0]} vectors for {len(texts)} texts")
    return vectors


def word_counts(texts: Sequence[str]) -> Any:
    """Return a sparse matrix with the counts of each text's words as a row of unit length."""
    sparse = import_extra("scipy.sparse", extra="models")
    column_of: dict[str, int] = {}
    columns: list[int] = []
    ends = [0]
    for text in texts:
        for word in counted_words(text):
            if word not in column_of:
                column_of[word] = crc32(word.encode("utf-8", "replace")) % FEATURES
            columns.append(column_of[word])
        ends.append(len(columns))
    counts = sparse.csr_matrix(
        (np.ones(len(columns)), np.array(columns, dtype=np.int32), np.array(ends)),
        shape=(len(texts), FEATURES),
    )
    return to_unit_length(counts)


def counted_words(text: str) -> list[str]:
    """Return the words of a text to count: each word, then both words of each pair of neighbours.

    odek counts the same words.

    >>> counted_words("Retry_the upload")
    ['retry', 'the', 'upload', 'retry', 'the', 'the', 'upload']
    """
    is_ascii = text.isascii()
    # odek is written in Go, which converts each character to lower case by itself.
    lower = text.lower() if is_ascii else "".join(char.lower()[0] for char in text)
    words = _WORD.findall(lower)
    counted = [*words, *chain.from_iterable(pairwise(words))]
    if is_ascii:
        return counted
    return " ".join(_letters_and_digits(word) for word in counted).split()


def _letters_and_digits(word: str) -> str:
    """Return a word in which characters other than letters and digits are spaces.

    As in Go, only decimal digits count as digits.
    """
    return "".join(char if char.isalpha() or char.isdecimal() else " " for char in word)


def to_unit_length(vectors: Any) -> Any:
    """Return vectors scaled to unit length.

    Sparse vectors are returned in double precision, dense ones in single precision. A vector of
    zeros stays as it is.
    """
    if not hasattr(vectors, "tocsr"):
        dense = np.asarray(vectors, dtype=np.float64)
        _check_finite(dense)
        length = np.linalg.norm(dense, axis=1, keepdims=True)
        return (dense / np.where(length == 0, 1.0, length)).astype(np.float32)
    matrix = vectors.tocsr().astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    _check_finite(matrix.data)
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data = matrix.data / np.repeat(length, np.diff(matrix.indptr))
    return matrix


def cosines(rows: Any, candidates: Any) -> Any:
    """Return the cosine of each of `rows` with each of `candidates`; all have unit length."""
    products = rows @ candidates.T
    return products.toarray() if hasattr(products, "toarray") else products


def _check_finite(values: npt.NDArray[Any]) -> None:
    """Raise if a vector holds NaN or infinity."""
    if not np.isfinite(values).all():
        raise ValueError("a text vector holds NaN or infinity; cosine needs finite numbers")


class Pairs(NamedTuple):
    """Pairs of near-duplicates, in ascending order of the newer row.

    Attributes
    ----------
    newer, older : array of int, shape (pairs,)
        The row numbers of each pair.
    cosine : array of float, shape (pairs,)
        Their cosine.
    """

    newer: Ints
    older: Ints
    cosine: Floats

    def among(self, present: Flags) -> "Pairs":
        """Return the pairs whose rows are both present; `present` has a flag for each row."""
        return self.where(present[self.newer] & present[self.older])

    def where(self, is_chosen: Flags) -> "Pairs":
        """Return the chosen pairs; `is_chosen` has a flag for each pair."""
        return Pairs(self.newer[is_chosen], self.older[is_chosen], self.cosine[is_chosen])

    @classmethod
    def merged(cls, parts: "Sequence[Pairs]") -> "Pairs":
        """Return the pairs of all parts together, in order."""
        if len(parts) == 1:
            return parts[0]
        newer = np.concatenate([part.newer for part in parts])
        older = np.concatenate([part.older for part in parts])
        cosine = np.concatenate([part.cosine for part in parts])
        order = np.lexsort((older, newer))
        return cls(newer[order], older[order], cosine[order])


NO_PAIRS: Final = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class SimilaritySearch:
    """A search for the pairs of vectors whose cosine reaches a threshold.

    Vectors are numbered from the oldest. If they are sparse, the rarest columns of each vector are
    indexed, until the rest of the vector is shorter than the threshold. Two vectors whose cosine
    reaches the threshold share an indexed column, so only pairs that share one are compared (prefix
    filtering, Bayardo, Ma and Srikant 2007).
    """

    def __init__(self, vectors: Any, threshold: float) -> None:
        self.unit_vectors = _without_unused_columns(to_unit_length(vectors))
        self.decimals = DECIMALS[self.unit_vectors.dtype]
        # The threshold is lowered by the rounding of cosines and by the error of a sum.
        self.min_cosine = threshold - 1e-9 - 10.0**-self.decimals
        is_sparse = hasattr(self.unit_vectors, "tocsr")
        self._rare = _rare_columns(self.unit_vectors, self.min_cosine) if is_sparse else None

    def __len__(self) -> int:
        return int(self.unit_vectors.shape[0])

    def pairs(self, rows: Ints, candidates: Ints) -> Pairs:
        """Return the pairs of a row and an older candidate whose cosine reaches the threshold.

        `rows` and `candidates` are row numbers in ascending order.
        """
        if len(rows):  # an older candidate has a lower number than the last row
            candidates = candidates[: np.searchsorted(candidates, rows[-1])]
        if not len(candidates) or not len(rows):
            return Pairs(rows[:0], rows[:0], np.empty(0))
        newer, older, cosine = self._products(rows, candidates)
        cosine = np.minimum(cosine.astype(np.float64).round(self.decimals), 1.0)
        is_alike = (cosine >= self.min_cosine) & (older < newer)
        return Pairs(newer, older, cosine).where(is_alike)

    def _products(self, rows: Ints, candidates: Ints) -> tuple[Ints, Ints, Floats]:
        """Return pairs of a row and a candidate with their cosines, at least all similar pairs."""
        if self._rare is not None:
            shared_counts = (self._rare[rows] @ self._rare[candidates].T).tocsr()
            if shared_counts.nnz < int(_MAX_CANDIDATE_SHARE * len(rows) * len(candidates)):
                shared_counts.sort_indices()
                newer = np.repeat(rows, np.diff(shared_counts.indptr))
                older = candidates[shared_counts.indices]
                product = self.unit_vectors[newer].multiply(self.unit_vectors[older]).sum(axis=1)
                return newer, older, np.asarray(product).ravel()
        product = cosines(self.unit_vectors[rows], self.unit_vectors[candidates])
        # This only preselects pairs before the products are rounded, hence the margin.
        row_index, other_index = np.nonzero(product >= self.min_cosine - 1e-6)
        return rows[row_index], candidates[other_index], product[row_index, other_index]

    def has_near_duplicate(self) -> Flags:
        """Return flags of the rows that have a near-duplicate, older or newer."""
        has_duplicate = np.zeros(len(self), dtype=bool)
        rows = np.arange(len(self))
        for start in range(0, len(self), BLOCK):
            pairs = self.pairs(rows[start : start + BLOCK], rows)
            has_duplicate[pairs.newer] = True
            has_duplicate[pairs.older] = True
        return has_duplicate


def _without_unused_columns(unit_vectors: Any) -> Any:
    """Return sparse vectors without the columns that no vector uses; dense ones as they are.

    A product of sparse vectors allocates memory for every one of the million columns. Without the
    unused ones, ``memlab compare`` of 300 memories takes a fifth of the time.
    """
    if not hasattr(unit_vectors, "tocsr"):
        return unit_vectors
    sparse = import_extra("scipy.sparse", extra="models")
    used, column = np.unique(unit_vectors.indices, return_inverse=True)
    return sparse.csr_matrix(
        (unit_vectors.data, column, unit_vectors.indptr), shape=(unit_vectors.shape[0], len(used))
    )


def _rare_columns(unit_vectors: Any, min_cosine: float) -> Any:
    """Return a sparse matrix with ones at the indexed columns of each row, which are its rarest.

    Any near-duplicate of a row shares one of these columns; see :class:`SimilaritySearch`.
    """
    sparse = import_extra("scipy.sparse", extra="models")
    row = np.repeat(np.arange(unit_vectors.shape[0]), np.diff(unit_vectors.indptr))
    rows_with_column = np.bincount(unit_vectors.indices, minlength=unit_vectors.shape[1])
    # The values of each row, those in its rarest columns first.
    order = np.lexsort((unit_vectors.indices, rows_with_column[unit_vectors.indices], row))
    squares_before = np.append(0.0, np.cumsum(unit_vectors.data[order] ** 2))
    # For each value, the sum of the squares of its row's values in rarer columns. Without these,
    # the row has the length sqrt(1 - sum). A column is indexed if that reaches the threshold.
    squares_of_rarer = squares_before[:-1] - squares_before[unit_vectors.indptr[row]]
    is_rare = 1.0 - squares_of_rarer >= min_cosine**2 - 1e-6
    kept = order[is_rare]
    ones = np.ones(len(kept), dtype=np.float32)
    return sparse.csr_matrix(
        (ones, (row[is_rare], unit_vectors.indices[kept])), shape=unit_vectors.shape
    )
