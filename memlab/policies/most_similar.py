"""The most similar older vector, for every vector in turn, without comparing all pairs.

Sparse vectors are found through an inverted index that holds only the rare end of each: what is
left out of a unit vector has a length below the threshold, so a pair that reaches it must meet in
the index (Bayardo, Ma, Srikant 2007, "Scaling up all pairs similarity search"). Dense vectors are
multiplied in blocks. Rows that were replaced leave the index, so that a store of one text repeated
a hundred thousand times is as quick as one without repeats.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

Flags = npt.NDArray[np.bool_]

# Cosines equal to so many decimals are a tie: what differs beyond is the order of summation.
DECIMALS = 9
SINGLE_DECIMALS = 6
ROUNDING = 10.0**-DECIMALS
BLOCK = 256


class Replaced(NamedTuple):
    """Of one pass: who replaced each row and at what cosine, and whether it met a duplicate."""

    won: Integers
    cosine: Floats
    met: Flags


def replace_older(vectors: Any, trust: Flags, threshold: float) -> tuple[Integers, Floats]:
    """Let each vector replace the most similar older one, until nothing more changes.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n, d)
        In the order they were written. They need not be of unit length.
    trust : array of bool of shape (n,)
        A vector replaces only one that is not trusted more than itself.
    threshold : float
        Cosine from which two are near-duplicates; above 0.

    Returns
    -------
    tuple of array of shape (n,)
        Who replaced each vector, -1 where nobody did, and their cosine, -1 where nobody did.

    Raises
    ------
    ValueError
        If a vector is not finite.
    """
    one_pass = _sparse_pass if hasattr(vectors, "tocsr") else _dense_pass
    prepared = unit_rows(vectors)
    winner = np.full(len(trust), -1, dtype=np.int64)
    similarity = np.full(len(trust), -1.0)
    alive = np.arange(len(trust))
    met = np.ones(len(trust), dtype=bool)
    while met.any():
        # A row that met no near-duplicate meets none among fewer rows: only the others ask again.
        won, cosine, met = one_pass(prepared[alive], trust[alive], met, threshold - ROUNDING)
        gone = won >= 0
        winner[alive[gone]] = alive[won[gone]]
        similarity[alive[gone]] = np.minimum(cosine[gone], 1.0)
        alive, met = alive[~gone], met[~gone] & gone.any()
    return winner, similarity


def unit_rows(vectors: Any) -> Any:
    """Return vectors at unit length, sparse ones in double and dense ones in single precision.

    Raises
    ------
    ValueError
        If a vector is not finite.
    """
    return _unit_sparse(vectors) if hasattr(vectors, "tocsr") else _unit_dense(vectors)


def _unit_sparse(vectors: Any) -> Any:
    """Return the vectors at unit length, features in ascending order, none of them zero."""
    matrix = vectors.tocsr().astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    _check_finite(matrix.data)
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data = matrix.data / np.repeat(length, np.diff(matrix.indptr))
    return matrix


def _unit_dense(vectors: Any) -> npt.NDArray[np.float32]:
    """Return the vectors at unit length, those of length zero as they are."""
    matrix = np.asarray(vectors, dtype=np.float64)
    _check_finite(matrix)
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(length == 0, 1.0, length)).astype(np.float32)


def _check_finite(values: npt.NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise ValueError("a text vector holds NaN or infinity; cosine needs finite numbers")


def _dense_pass(
    vectors: npt.NDArray[np.float32], trust: Flags, asks: Flags, threshold: float
) -> Replaced:
    """Do one pass over dense vectors, a block of those that ask against all older at a time."""
    outcome = _nothing_yet(len(trust))
    asking = np.flatnonzero(asks)
    for start in range(0, len(asking), BLOCK):
        block = asking[start : start + BLOCK]
        older = np.flatnonzero(outcome.won[: block[-1]] < 0)
        products = np.round(vectors[block] @ vectors[older].T, SINGLE_DECIMALS)
        _settle_block(products, block, older, trust, threshold - 10.0**-SINGLE_DECIMALS, outcome)
    return outcome


@numba.njit(cache=True)
def _settle_block(  # type: ignore[no-untyped-def]
    products, block, older, trust, threshold, outcome
):  # pragma: no cover - compiled
    """Let the rows of a block, in order, replace the most similar row before them."""
    for i in range(len(block)):
        row = block[i]
        best, best_cosine = -1, np.float64(threshold)
        for k in range(len(older)):
            other = older[k]
            if other >= row:
                break
            if outcome.won[other] < 0 and products[i, k] >= best_cosine:
                best, best_cosine = other, np.float64(products[i, k])
        _settle(row, best, best_cosine, trust, outcome)


@numba.njit(cache=True)
def _settle(row, best, cosine, trust, outcome):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let `row` replace `best`, its most similar older row, if there is one it may replace."""
    if best < 0:
        return
    outcome.met[row] = True
    if trust[row] >= trust[best]:
        outcome.won[best] = row
        outcome.cosine[best] = cosine


def _nothing_yet(count: int) -> Replaced:
    """Return the outcome before any row has asked."""
    nobody = np.full(count, -1, dtype=np.int64)
    return Replaced(nobody, np.full(count, -1.0), np.zeros(count, dtype=np.bool_))


class SparseRows(NamedTuple):
    """Sparse unit vectors, features numbered by how rare they are, the rarest first.

    Row `i` holds the entries from ``starts[i]`` to ``starts[i + 1]``, in ascending order; ``tail``
    is the length of what an entry and those after it make up.
    """

    starts: Integers
    feature: Integers
    value: Floats
    tail: Floats


class Index(NamedTuple):
    """A linked list of entries per feature."""

    head: Integers
    following: Integers
    owner: Integers


def _sparse_pass(vectors: Any, trust: Flags, asks: Flags, threshold: float) -> Replaced:
    """Do one pass over sparse vectors through an inverted index of their rare ends."""
    rows, features = _rarest_first(vectors)
    index = Index(
        head=np.full(features, -1, dtype=np.int64),
        following=np.full(len(rows.feature), -1, dtype=np.int64),
        owner=np.empty(len(rows.feature), dtype=np.int64),
    )
    outcome = _nothing_yet(len(trust))
    _settle_sparse(rows, index, trust, asks, threshold, outcome)
    return outcome


def _rarest_first(vectors: Any) -> tuple[SparseRows, int]:
    """Renumber features by how many rows have them, and return how many there are."""
    known, column = np.unique(vectors.indices, return_inverse=True)
    by_rarity = np.argsort(np.bincount(column, minlength=len(known)), kind="stable")
    rarity = np.empty(len(known), dtype=np.int64)
    rarity[by_rarity] = np.arange(len(known))
    starts = vectors.indptr.astype(np.int64)
    row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((rarity[column], row))
    value = vectors.data[order]
    from_end = np.cumsum((value * value)[::-1])[::-1]
    after = np.append(from_end, 0.0)[starts[1:]]
    tail = np.sqrt(np.maximum(from_end - after[row], 0.0))
    return SparseRows(starts, rarity[column][order], value, tail), len(known)


@numba.njit(cache=True)
def _settle_sparse(  # type: ignore[no-untyped-def]
    rows, index, trust, asks, threshold, outcome
):  # pragma: no cover - compiled
    """Let rows, in order, replace the most similar row before them.

    Two rows that reach the threshold share a feature at the rare end of both, what follows it
    being shorter than the threshold in each.
    """
    seen_by = np.full(len(trust), -1, dtype=np.int64)
    found = np.empty(len(trust), dtype=np.int64)
    for row in range(len(trust)):
        count = 0
        rare_end = rows.starts[row]
        while rare_end < rows.starts[row + 1] and rows.tail[rare_end] >= threshold - ROUNDING:
            rare_end += 1
        for e in range(rows.starts[row], rare_end):
            feature = rows.feature[e]
            if asks[row]:
                count = _meet(index, feature, row, outcome.won, seen_by, found, count)
            index.owner[e] = row
            index.following[e] = index.head[feature]
            index.head[feature] = e
        best, best_cosine = -1, threshold
        for other in found[:count]:
            product = np.round(_product(rows, row, other, best_cosine), DECIMALS)
            if product > best_cosine or (product == best_cosine and other > best):
                best, best_cosine = other, product
        _settle(row, best, best_cosine, trust, outcome)


@numba.njit(cache=True)
def _meet(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    index, feature, row, won, seen_by, found, count
):  # pragma: no cover - compiled
    """Add the rows that have `feature` at their rare end to those `row` met; return how many.

    Entries of replaced rows are taken out of the list in passing.
    """
    before = -1
    entry = index.head[feature]
    while entry >= 0:
        other = index.owner[entry]
        if won[other] < 0:
            if seen_by[other] != row:
                seen_by[other] = row
                found[count] = other
                count += 1
            before = entry
        elif before < 0:
            index.head[feature] = index.following[entry]
        else:
            index.following[before] = index.following[entry]
        entry = index.following[entry]
    return count


@numba.njit(cache=True)
def _product(rows, one, other, bound):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the product of two rows, or -1 as soon as it cannot reach `bound`."""
    i, j = rows.starts[one], rows.starts[other]
    product = 0.0
    while i < rows.starts[one + 1] and j < rows.starts[other + 1]:
        if product + rows.tail[i] * rows.tail[j] < bound - ROUNDING:
            return -1.0
        if rows.feature[i] == rows.feature[j]:
            product += rows.value[i] * rows.value[j]
            i += 1
            j += 1
        elif rows.feature[i] < rows.feature[j]:
            i += 1
        else:
            j += 1
    return product
