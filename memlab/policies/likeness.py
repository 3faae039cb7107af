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
"""Takes n texts, returns n rows of a numpy array or of a scipy sparse matrix."""

FEATURES: Final = 2**20
"""Number of columns of a vector, to which words are hashed."""
_WORD: Final = re.compile(r"[^\W_]+")
BLOCK: Final = 64
"""Number of vectors that are compared with all older ones in one operation."""
DECIMALS: Final = {np.dtype(np.float64): 9, np.dtype(np.float32): 6}
"""Number of decimals to which cosines are rounded: further ones depend on the summation order."""
_MAX_CANDIDATE_SHARE: Final = 1 / 8
"""Share of pairs with a common rare column above which all pairs are compared at once."""


def vectors_of(texts: Sequence[str], vectorise: Vectorise | None = None) -> Any:
    """Return the vectors of texts, by a function of the caller or by counts of words."""
    vectors = (vectorise or word_counts)(texts)
    if np.ndim(vectors) != 2 and not hasattr(vectors, "tocsr"):
        raise ValueError(f"vectorise returned {type(vectors).__name__}, not a matrix")
    if vectors.shape[0] != len(texts):
        raise ValueError(f"vectorise returned {vectors.shape[0]} vectors for {len(texts)} texts")
    return vectors


def word_counts(texts: Sequence[str]) -> Any:
    """Return a sparse row of unit length for each text: the counts of its words."""
    sparse = import_extra("scipy.sparse", extra="models")
    column_of: dict[str, int] = {}
    columns: list[int] = []
    ends = [0]
    for text in texts:
        for word in counted_words(text):
            column = column_of.get(word)
            if column is None:
                column = column_of[word] = crc32(word.encode("utf-8", "replace")) % FEATURES
            columns.append(column)
        ends.append(len(columns))
    counts = sparse.csr_matrix(
        (np.ones(len(columns)), np.array(columns, dtype=np.int32), np.array(ends)),
        shape=(len(texts), FEATURES),
    )
    return unit_rows(counts)


def counted_words(text: str) -> list[str]:
    """Return the words of a text, then both words of each pair of neighbours, as odek counts them.

    >>> counted_words("Retry_the upload")
    ['retry', 'the', 'upload', 'retry', 'the', 'the', 'upload']
    """
    is_ascii = text.isascii()
    # Go converts each character to lower case by itself.
    lower = text.lower() if is_ascii else "".join(char.lower()[0] for char in text)
    words = _WORD.findall(lower)
    counted = [*words, *chain.from_iterable(pairwise(words))]
    if is_ascii:
        return counted
    return " ".join(_letters_and_digits(word) for word in counted).split()


def _letters_and_digits(word: str) -> str:
    """Return a word with other characters as spaces; as in Go, only decimal digits are numbers."""
    return "".join(char if char.isalpha() or char.isdecimal() else " " for char in word)


def unit_rows(vectors: Any) -> Any:
    """Return vectors scaled to unit length: sparse ones in double, dense in single precision."""
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


def cosines(rows: Any, others: Any) -> Any:
    """Return the cosines of some unit rows with others, as an array."""
    products = rows @ others.T
    return products.toarray() if hasattr(products, "toarray") else products


def _check_finite(values: npt.NDArray[Any]) -> None:
    """Raise if a vector holds NaN or infinity."""
    if not np.isfinite(values).all():
        raise ValueError("a text vector holds NaN or infinity; cosine needs finite numbers")


class Pairs(NamedTuple):
    """Near-duplicate pairs of rows, as row numbers; the newer ones are in ascending order."""

    newer: Ints
    older: Ints
    cosine: Floats

    def among(self, present: Flags) -> "Pairs":
        """Return the pairs whose rows are both present."""
        return self.where(present[self.newer] & present[self.older])

    def where(self, chosen: Flags) -> "Pairs":
        """Return the chosen pairs."""
        return Pairs(self.newer[chosen], self.older[chosen], self.cosine[chosen])

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


class Likeness:
    """Vectors, numbered from the oldest, whose pairs above a cosine threshold can be searched.

    Two sparse unit vectors whose product reaches the threshold share a column among the rare
    columns of each: those after which the rest of the vector is shorter than the threshold (prefix
    filtering, Bayardo, Ma and Srikant 2007). Only pairs that share one are compared.
    """

    def __init__(self, vectors: Any, threshold: float) -> None:
        self.unit = _used_columns(unit_rows(vectors))
        self.decimals = DECIMALS[self.unit.dtype]
        # The threshold is lowered by the rounding of cosines and by the error of a sum.
        self.min_cosine = threshold - 1e-9 - 10.0**-self.decimals
        is_sparse = hasattr(self.unit, "tocsr")
        self._rare = _rare_columns(self.unit, self.min_cosine) if is_sparse else None

    def __len__(self) -> int:
        return int(self.unit.shape[0])

    def pairs(self, rows: Ints, others: Ints) -> Pairs:
        """Return the pairs of a row and an older one of the others, above the threshold.

        `rows` and `others` are row numbers in ascending order.
        """
        others = others[: np.searchsorted(others, rows[-1])] if len(rows) else others
        if not len(others) or not len(rows):
            return Pairs(rows[:0], rows[:0], np.empty(0))
        newer, older, cosine = self._products(rows, others)
        cosine = np.minimum(cosine.astype(np.float64).round(self.decimals), 1.0)
        is_alike = (cosine >= self.min_cosine) & (older < newer)
        return Pairs(newer, older, cosine).where(is_alike)

    def _products(self, rows: Ints, others: Ints) -> tuple[Ints, Ints, Floats]:
        """Return candidate pairs and their cosines."""
        if self._rare is not None:
            shared_counts = (self._rare[rows] @ self._rare[others].T).tocsr()
            if shared_counts.nnz < int(_MAX_CANDIDATE_SHARE * len(rows) * len(others)):
                shared_counts.sort_indices()
                newer = np.repeat(rows, np.diff(shared_counts.indptr))
                older = others[shared_counts.indices]
                product = self.unit[newer].multiply(self.unit[older]).sum(axis=1)
                return newer, older, np.asarray(product).ravel()
        product = cosines(self.unit[rows], self.unit[others])
        row_index, other_index = np.nonzero(product >= self.min_cosine - 1e-6)
        return rows[row_index], others[other_index], product[row_index, other_index]

    def has_near_duplicate(self) -> Flags:
        """Return which rows have a near-duplicate, older or newer."""
        have_one = np.zeros(len(self), dtype=bool)
        rows = np.arange(len(self))
        for start in range(0, len(self), BLOCK):
            pairs = self.pairs(rows[start : start + BLOCK], rows)
            have_one[pairs.newer] = True
            have_one[pairs.older] = True
        return have_one


def _used_columns(unit: Any) -> Any:
    """Return vectors without the columns that no vector uses, in the same order.

    A product of sparse rows allocates memory for every column. Without the unused ones of a
    million, ``memlab compare`` of 300 memories takes a fifth of the time.
    """
    if not hasattr(unit, "tocsr"):
        return unit
    sparse = import_extra("scipy.sparse", extra="models")
    used, column = np.unique(unit.indices, return_inverse=True)
    return sparse.csr_matrix((unit.data, column, unit.indptr), shape=(unit.shape[0], len(used)))


def _rare_columns(unit: Any, min_cosine: float) -> Any:
    """Return a sparse matrix of ones at the rarest columns of each row.

    Any near-duplicate of a row shares one of these columns.
    """
    sparse = import_extra("scipy.sparse", extra="models")
    row = np.repeat(np.arange(unit.shape[0]), np.diff(unit.indptr))
    rows_with = np.bincount(unit.indices, minlength=unit.shape[1])
    order = np.lexsort((unit.indices, rows_with[unit.indices], row))
    square = unit.data[order] ** 2
    summed = np.append(0.0, np.cumsum(square))
    # For each value: the sum of squares of the values of its row in rarer columns. The rest of the
    # row has the length sqrt(1 - sum); a column is kept while that length reaches the threshold.
    square_of_rarer = summed[:-1] - summed[unit.indptr[row]]
    is_rare = 1.0 - square_of_rarer >= min_cosine**2 - 1e-6
    kept = order[is_rare]
    ones = np.ones(len(kept), dtype=np.float32)
    return sparse.csr_matrix((ones, (row[is_rare], unit.indices[kept])), shape=unit.shape)
