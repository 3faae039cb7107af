"""A newer row in place of an older: near-duplicates, and what could stand for the load-bearing."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, pairwise
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references
from memlab.frame.fields import Flags, Floats, Ints
from memlab.lazy import import_extra
from memlab.policies.base import Policy, Runner, times
from memlab.text import counted

Vectorise = Callable[[Sequence[str]], Any]
"""Takes n texts, returns n rows of a numpy array or of a scipy sparse matrix."""

FEATURES = 2**20
_WORD: Final = re.compile(r"[^\W_]+")
BLOCK = 64
"""Vectors that are compared with all older ones at a time."""
DECIMALS: Final = {np.dtype(np.float64): 9, np.dtype(np.float32): 6}
"""Cosines equal to so many decimals are a tie: what differs beyond is the order of summation."""


@dataclass(frozen=True)
class NearDuplicate(Policy):
    """Let a newer near-duplicate replace the older row it repeats.

    In the order of ``created_at``, a row replaces the one older prunable row most similar to it
    (the newest of them, on a tie) when their cosine reaches `threshold`. Where its trust is lower
    it goes itself: odek has not stored such an episode at all since August 2026. With
    `keep_untrusted` both stay, as in odek 1.15 of July 2026 and before. A frame does not say which
    rows have met before, so this is repeated until nothing more goes, and deciding again on what is
    left changes nothing.

    Texts are title and body, or the title alone in a frame without bodies (``with_body=True`` loads
    them). Unless `vectorise` is given they are compared by how often each word occurs, case aside,
    and how often beside another: a word counts three times, the first and the last of a text twice.
    odek compares the same counts under a random projection to 256 dimensions, which gives this
    cosine ``c`` with a standard error of about ``(1 - c**2) / 16``: 0.01 at the threshold. It
    leaves out words of one ASCII character, which here tell two texts apart. Rows without a word
    are nobody's duplicates. ``trusted`` is True unless a frame says otherwise; a writer that is
    neither trusted nor approved by a user or automatically is not.
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
        """Name the rows that a newer one replaces."""
        pairs = near_duplicates(rows, self)
        return pd.Series(self.reason, index=pairs.index, dtype="str")


def near_duplicates(rows: pd.DataFrame, policy: NearDuplicate) -> pd.DataFrame:
    """Say which prunable rows of a frame a newer near-duplicate replaces, and which one it is.

    One row per replaced row, by its label in `rows`, which are in order of position: ``memory_id``,
    `replaced_by` (the id of the newer one) and `similarity` (their cosine).
    """
    prunable = rows[rows[col.ACTIVE] & ~rows[col.LOAD_BEARING]]
    prunable = prunable.iloc[oldest_first(prunable)]
    winner = similarity = np.full(len(prunable), -1)
    if policy.threshold and len(prunable) > 1:
        vectors = vectors_of(texts_of(prunable), policy)
        winner, similarity = replace_older(vectors, trust_in(prunable), policy)
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


def trust_in(rows: pd.DataFrame) -> Flags:
    """Return whether rows were written by somebody who is trusted: all, unless a frame says so."""
    if col.TRUSTED not in rows:
        return np.ones(len(rows), dtype=bool)
    return rows[col.TRUSTED].fillna(value=True).to_numpy(dtype=bool)


def oldest_first(rows: pd.DataFrame) -> Ints:
    """Return the places of rows by the time they say they were made at, unknown times first."""
    created = times(rows, col.CREATED_AT).astype(np.int64)  # no time is the least number
    return np.argsort(created, kind="stable")


def texts_of(rows: pd.DataFrame) -> list[str]:
    """Return what rows are compared by: title and body, or the title where there is no body."""
    title = rows[col.TITLE].fillna("").astype("str")
    if col.BODY not in rows:
        return title.tolist()
    return (title + "\n" + rows[col.BODY].fillna("").astype("str")).tolist()


def vectors_of(texts: Sequence[str], policy: NearDuplicate) -> Any:
    """Return a policy's vectors of texts."""
    vectors = (policy.vectorise or word_counts)(texts)
    if np.ndim(vectors) != 2 and not hasattr(vectors, "tocsr"):
        raise ValueError(f"vectorise returned {type(vectors).__name__}, not a matrix")
    if vectors.shape[0] != len(texts):
        raise ValueError(f"vectorise returned {vectors.shape[0]} vectors for {len(texts)} texts")
    return vectors


def word_counts(texts: Sequence[str]) -> Any:
    """Return a sparse row per text, of unit length: how often each word is counted in it."""
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
    """Return a text's words, and those of each pair of neighbours again, as odek counts them.

    >>> counted_words("Retry_the upload")
    ['retry', 'the', 'upload', 'retry', 'the', 'the', 'upload']
    """
    # As Go does: character by character, and only digits are numbers within a word.
    plain = text.isascii()
    lower = text.lower() if plain else "".join(each.lower()[0] for each in text)
    words = _WORD.findall(lower)
    counted = [*words, *chain.from_iterable(pairwise(words))]
    if plain:
        return counted
    spaced = ("".join(c if c.isalpha() or c.isdecimal() else " " for c in word) for word in counted)
    return " ".join(spaced).split()


class Pairs(NamedTuple):
    """Near-duplicates: rows by number, the newer of each pair in ascending order."""

    newer: Ints
    older: Ints
    cosine: Floats

    def among(self, there: Flags) -> "Pairs":
        """Return the pairs of which both rows are there."""
        return self.where(there[self.newer] & there[self.older])

    def where(self, chosen: Flags) -> "Pairs":
        """Return the pairs that are chosen."""
        return Pairs(self.newer[chosen], self.older[chosen], self.cosine[chosen])

    @classmethod
    def merged(cls, parts: "Sequence[Pairs]") -> "Pairs":
        """Return the pairs of all parts together."""
        if len(parts) == 1:
            return parts[0]
        newer = np.concatenate([part.newer for part in parts])
        older = np.concatenate([part.older for part in parts])
        cosine = np.concatenate([part.cosine for part in parts])
        order = np.lexsort((older, newer))
        return cls(newer[order], older[order], cosine[order])


NO_PAIRS: Final = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class Replaced(NamedTuple):
    """A row that went, the one in its place, and how similar they are."""

    row: int
    winner: int
    similarity: float


class Likeness:
    """Vectors whose near-duplicates are looked for, numbered from the oldest.

    Two sparse unit vectors whose product reaches the threshold share one of the rare columns of
    each, those beyond which what is left of a vector is shorter than the threshold (prefix
    filtering, Bayardo and others 2007). So only pairs that share one are compared.
    """

    def __init__(self, vectors: Any, threshold: float) -> None:
        self.unit = unit_rows(vectors)
        self.decimals = DECIMALS[self.unit.dtype]
        self.least = threshold - 1e-9 - 10.0**-self.decimals
        self._rare = _rare_columns(self.unit, self.least) if hasattr(self.unit, "tocsr") else None

    def __len__(self) -> int:
        return int(self.unit.shape[0])

    def pairs(self, rows: Ints, others: Ints) -> Pairs:
        """Return the near-duplicates of some rows among others that are older, all ascending."""
        others = others[: np.searchsorted(others, rows[-1])] if len(rows) else others
        if not len(others) or not len(rows):
            return Pairs(rows[:0], rows[:0], np.empty(0))
        newer, older, cosine = self._products(rows, others)
        cosine = np.minimum(cosine.astype(np.float64).round(self.decimals), 1.0)
        alike = (cosine >= self.least) & (older < newer)
        return Pairs(newer, older, cosine).where(alike)

    def _products(self, rows: Ints, others: Ints) -> tuple[Ints, Ints, Floats]:
        """Return pairs that may be alike, and their cosines."""
        if self._rare is not None:
            shared = (self._rare[rows] @ self._rare[others].T).tocsr()
            if shared.nnz < len(rows) * len(others) // _DENSE:
                shared.sort_indices()
                at = np.repeat(np.arange(len(rows)), np.diff(shared.indptr))
                newer = rows[at]
                older = others[shared.indices]
                product = self.unit[newer].multiply(self.unit[older]).sum(axis=1)
                return newer, older, np.asarray(product).ravel()
        product = cosines(self.unit[rows], self.unit[others])
        at, to = np.nonzero(product >= self.least - 1e-6)
        return rows[at], others[to], product[at, to]

    def have_one(self) -> Flags:
        """Return which rows have a near-duplicate among all, older or newer."""
        alike = np.zeros(len(self), dtype=bool)
        every = np.arange(len(self))
        for start in range(0, len(self), BLOCK):
            found = self.pairs(every[start : start + BLOCK], every)
            alike[found.newer] = True
            alike[found.older] = True
        return alike


_DENSE: Final = 8
"""Of so many pairs one shares a rare column: then all are compared at once."""


def _rare_columns(unit: Any, least: float) -> Any:
    """Return of each row the rarest columns, as few as a near-duplicate must share one of."""
    sparse = import_extra("scipy.sparse", extra="models")
    row = np.repeat(np.arange(unit.shape[0]), np.diff(unit.indptr))
    rows_with = np.bincount(unit.indices, minlength=unit.shape[1])
    order = np.lexsort((unit.indices, rows_with[unit.indices], row))
    square = unit.data[order] ** 2
    summed = np.append(0.0, np.cumsum(square))
    before = summed[:-1] - summed[unit.indptr[row]]  # of the rarer ones in this row
    is_rare = 1.0 - before >= least**2 - 1e-6
    kept = order[is_rare]
    ones = np.ones(len(kept), dtype=np.float32)
    return sparse.csr_matrix((ones, (row[is_rare], unit.indices[kept])), shape=unit.shape)


def settle(pairs: Pairs, trust: Flags, there: Flags, *, keep_untrusted: bool) -> list[Replaced]:
    """Let each row replace the one most similar to it, again until nothing more goes.

    `there` is changed: what goes is there no longer.
    """
    replaced: list[Replaced] = []
    while went := ask_once(pairs, trust, there, keep_untrusted=keep_untrusted):
        replaced += went
    return replaced


def ask_once(pairs: Pairs, trust: Flags, there: Flags, *, keep_untrusted: bool) -> list[Replaced]:
    """Let each row, the oldest first, replace the one most similar to it.

    One that is trusted less than that goes itself, or both stay.
    """
    rows, start, count = np.unique(pairs.newer, return_index=True, return_counts=True)
    stop = start + count
    replaced = []
    for row, first, last in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        if not there[row]:
            continue
        older = pairs.older[first:last]
        likeness = np.where(there[older], pairs.cosine[first:last], -1.0)
        highest = likeness.max()
        best = int(older[np.flatnonzero(likeness == highest)[-1]])  # the newest, on a tie
        if highest < 0:
            continue
        if trust[row] >= trust[best]:
            there[best] = False
            replaced.append(Replaced(best, row, float(highest)))
        elif not keep_untrusted:
            there[row] = False
            replaced.append(Replaced(row, best, float(highest)))
    return replaced


def replace_older(vectors: Any, trust: Flags, policy: NearDuplicate) -> tuple[Ints, Floats]:
    """Let vectors replace their most similar older ones; return by whom each went, how similar."""
    likeness = Likeness(vectors, policy.threshold)
    keep = policy.keep_untrusted
    there = np.ones(len(trust), dtype=bool)
    every = np.arange(len(trust))
    replaced: list[Replaced] = []
    met = []
    # Block by block with what is still there, so that a store of one text stays quick.
    for start in range(0, len(trust), BLOCK):
        block = every[start : start + BLOCK]
        found = likeness.pairs(block, np.flatnonzero(there[: block[-1] + 1]))
        replaced += ask_once(found, trust, there, keep_untrusted=keep)
        met.append(found.among(there))
    if met:
        pairs = Pairs.merged(met).among(there)
        replaced += settle(pairs, trust, there, keep_untrusted=keep)
    winner = np.full(len(trust), -1, dtype=np.int64)
    similarity = np.full(len(trust), -1.0)
    for went in replaced:
        winner[went.row] = went.winner
        similarity[went.row] = went.similarity
    return winner, similarity


def unit_rows(vectors: Any) -> Any:
    """Return vectors at unit length, sparse ones in double and dense ones in single precision."""
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
    """Return the cosine of each of some unit rows and each of others, as an array."""
    products = rows @ others.T
    return products.toarray() if hasattr(products, "toarray") else products


def _check_finite(values: npt.NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise ValueError("a text vector holds NaN or infinity; cosine needs finite numbers")


Text = tuple[str, str, str, Any]
"""Id, title and body of a row, and what is above that of every older row."""


class TextIndex:
    """Texts that a new one may repeat, read when first asked for, then kept as vectors."""

    def __init__(self, policy: NearDuplicate | None, read: Callable[[], Sequence[Text]]) -> None:
        self._policy: Any = policy if policy and policy.threshold > 0 else None
        self._read = read
        self.forget()
        if self._policy:
            self._unit(["\n"])  # what it needs is there, or said now

    def forget(self) -> None:
        """Read the texts again when they are next asked for."""
        self._orders: Any = None
        self._vectors: Any = None

    def most_similar(self, memory_id: str, title: str, body: str) -> str | None:
        """Return the id of the other near-duplicate most like a text, the newest on a tie."""
        if self._policy is None:
            return None
        if self._orders is None:
            read = self._read()
            self._orders = {}
            if read:
                self._append(read)
        self.discard(memory_id)  # a row that is written again does not repeat itself
        vector = self._unit([f"{title}\n{body}"])
        if not self._orders:
            return None
        likeness = cosines(self._vectors, vector).ravel().round(DECIMALS[vector.dtype])
        highest = likeness.max()
        if highest < self._policy.threshold - 1e-6:
            return None
        rows = list(self._orders.items())
        alike = (rows[place] for place in np.flatnonzero(likeness == highest))
        return str(max((order, memory_id) for memory_id, order in alike)[1])

    def add(self, row: Text) -> None:
        """Take in a row, in place of an older one with its id."""
        if self._orders is not None:
            self.discard(row[0])
            self._append([row])

    def discard(self, memory_id: str) -> None:
        """Leave a row out from now on."""
        if self._orders and memory_id in self._orders:
            there = np.array([each != memory_id for each in self._orders])
            self._vectors = self._vectors[there]
            del self._orders[memory_id]

    def _append(self, rows: Sequence[Text]) -> None:
        vectors = self._unit([f"{title}\n{body}" for _, title, body, _ in rows])
        if self._vectors is not None:
            dense = isinstance(vectors, np.ndarray)
            stack = np.vstack if dense else import_extra("scipy.sparse", extra="models").vstack
            vectors = stack([self._vectors, vectors])
        self._vectors = vectors
        self._orders |= {memory_id: order for memory_id, _, _, order in rows}

    def _unit(self, texts: Sequence[str]) -> Any:
        return unit_rows(vectors_of(texts, self._policy))


WHY: Final = "why"
"""In words: what speaks for it."""

REPEATED: Final = "repeated"
REPLACED: Final = "said to be replaced"
PASSED_ON: Final = "passed on"
OVERTAKEN: Final = "overtaken"
REASONS: Final = {
    REPEATED: "a newer one of its kind says nearly the same",
    REPLACED: "a newer one says that it supersedes it, and it is loaded all the same",
    PASSED_ON: "all that it refers to is newer than itself",
    OVERTAKEN: "a newer one of its kind refers to it, and every reference since is to that one",
}
"""In the order in which one memory is given a reason."""

Follows = tuple[int, int, str, str]
"""Rows of a memory and of the newer one, the reason, and what speaks for it."""


def supersedable(
    frame: pd.DataFrame,
    *,
    policy: NearDuplicate | None = None,
    by_likeness: bool = True,
) -> pd.DataFrame:
    """Return active load-bearing memories that a newer one could stand for: a person decides."""
    rows = frame.reset_index(drop=True)
    floor: list[int] = np.flatnonzero(rows[col.ACTIVE] & rows[col.LOAD_BEARING]).tolist()
    alike = _repeated(rows.iloc[floor], policy or NearDuplicate()) if by_likeness else ()
    said = *alike, *_said(rows, floor, find_references(rows))
    follows: dict[int, tuple[int, str, str]] = {}
    for older, newer, reason, why in said:
        follows.setdefault(older, (newer, reason, why))
    found = rows.loc[list(follows), [col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS]]
    ends = [_end(follows, row) for row in follows]
    found[col.SUPERSEDED_BY] = rows[col.MEMORY_ID].to_numpy()[[end for end, _ in ends]]
    found[col.REASON] = [reason for _, reason, _ in follows.values()]
    found[WHY] = [
        f"{why}, in a chain of {links + 1}" if links > 1 else why
        for (_, _, why), (_, links) in zip(follows.values(), ends, strict=True)
    ]
    text = dict.fromkeys((col.SUPERSEDED_BY, col.REASON, WHY), "str")
    costliest = found.sort_values(col.TOKENS, ascending=False, kind="stable")
    return costliest.astype(text).reset_index(drop=True)


def _repeated(floor: pd.DataFrame, policy: NearDuplicate) -> Iterator[Follows]:
    """Yield the near-duplicates of one kind, each with the newer one that repeats it."""
    row_of = dict(zip(floor[col.MEMORY_ID], floor.index, strict=True))
    for _, alike in floor.groupby(floor[col.KIND].astype("str")):
        pairs = near_duplicates(alike.assign(**{col.LOAD_BEARING: False}), policy)
        for older, newer, similarity in zip(
            pairs.index, pairs["replaced_by"], pairs["similarity"], strict=True
        ):
            yield int(older), int(row_of[newer]), REPEATED, f"similarity {similarity:.2f}"


def _said(rows: pd.DataFrame, floor: list[int], references: pd.DataFrame) -> Iterator[Follows]:
    """Yield what memories say of each other, reason by reason."""
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    supersedes: list[tuple[str, ...]] = rows[col.SUPERSEDES].tolist()
    names: list[tuple[str, ...]] = rows[col.EVIDENCE_REFS].tolist()
    every = {name: row for row, name in enumerate(ids)}
    row_of = {ids[row]: row for row in floor}
    refers = {row: [row_of[each] for each in names[row] if each in row_of] for row in floor}
    for row in floor:
        older = (row_of[each] for each in supersedes[row] if each in row_of)
        yield from ((one, row, REPLACED, f"{ids[row]} says so") for one in older if one < row)
    for row in floor:
        named = [every.get(each, -1) for each in names[row]]
        if refers[row] and min(named) > row:
            count = counted(len(named), "references")
            yield row, max(refers[row]), PASSED_ON, f"{count}, each to a newer one"
    yield from _overtaken(rows, refers, references)


def _overtaken(
    rows: pd.DataFrame, refers: dict[int, list[int]], references: pd.DataFrame
) -> Iterator[Follows]:
    kinds = rows[col.KIND].astype("str").to_numpy()
    positions = rows[col.POSITION].to_numpy(np.int64)
    at = references[col.AT_POSITION].to_numpy(np.int64)
    to = references[col.TARGET_POSITION].to_numpy(np.int64)
    for newer in sorted(refers, reverse=True):
        since = to[at > positions[newer]]
        count = int((since == positions[newer]).sum())
        for older in refers[newer] if count else ():
            if older < newer and kinds[older] == kinds[newer] and positions[older] not in since:
                words = counted(count, "references")
                yield older, newer, OVERTAKEN, f"{words} since, to the newer one alone"


def _end(follows: dict[int, tuple[int, str, str]], row: int) -> tuple[int, int]:
    """Return the end of a chain and its links; each leads to a newer memory, so it has one."""
    links = 0
    while row in follows:
        row = follows[row][0]
        links = links + 1
    return row, links
