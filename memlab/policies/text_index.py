"""An index of texts that finds the near-duplicate of a new one while a store is written."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from memlab.lazy import import_extra
from memlab.policies.duplicates import NearDuplicate
from memlab.policies.likeness import DECIMALS, cosines, to_unit_length, vectors_of


class IndexedText(NamedTuple):
    """The text of a row.

    Attributes
    ----------
    memory_id, title, body : str
        The id, title and body of the row.
    order : any
        A sort key that is higher for newer rows.
    """

    memory_id: str
    title: str
    body: str
    order: Any


class TextIndex:
    """Vectors of the texts that a new text may repeat.

    Parameters
    ----------
    policy : NearDuplicate or None
        The rule for near-duplicates; without one, no text has any.
    read : callable
        Reads the texts; it is called when they are first needed.
    """

    def __init__(
        self, policy: NearDuplicate | None, read: Callable[[], Sequence[IndexedText]]
    ) -> None:
        self._policy: Any = None
        if policy is not None and policy.threshold > 0:
            self._policy = policy
        self._read = read
        self.forget()
        if self._policy:
            self._unit_vectors(["\n"])  # raises now if an extra is missing

    def forget(self) -> None:
        """Remove all texts from memory; they are read again when next needed."""
        self._order_of: Any = None
        self._vectors: Any = None

    def most_similar(self, memory_id: str, title: str, body: str) -> str | None:
        """Return the id of the row most similar to a text, if it is a near-duplicate; else None.

        If several rows are equally similar, the newest of them counts.
        """
        if self._policy is None:
            return None
        if self._order_of is None:
            rows = self._read()
            self._order_of = {}
            if rows:
                self._append(rows)
        self.discard(memory_id)  # a row that is written again does not repeat itself
        vector = self._unit_vectors([f"{title}\n{body}"])
        if not self._order_of:
            return None
        similarity = cosines(self._vectors, vector).ravel().round(DECIMALS[vector.dtype])
        highest = similarity.max()
        if highest < self._policy.threshold - 1e-6:
            return None
        ids = list(self._order_of)
        most_similar = [ids[row] for row in np.flatnonzero(similarity == highest)]
        newest = max(most_similar, key=lambda memory_id: (self._order_of[memory_id], memory_id))
        return str(newest)

    def add(self, memory_id: str, title: str, body: str, order: Any) -> None:
        """Add the text of a row; it replaces that of a row with the same id."""
        if self._order_of is not None:
            self.discard(memory_id)
            self._append([IndexedText(memory_id, title, body, order)])

    def discard(self, memory_id: str) -> None:
        """Remove a row."""
        if self._order_of and memory_id in self._order_of:
            is_other = np.array([other_id != memory_id for other_id in self._order_of])
            self._vectors = self._vectors[is_other]
            del self._order_of[memory_id]

    def _append(self, rows: Sequence[IndexedText]) -> None:
        """Add the vectors of rows."""
        vectors = self._unit_vectors([f"{row.title}\n{row.body}" for row in rows])
        if self._vectors is None:
            self._vectors = vectors
        elif isinstance(vectors, np.ndarray):
            self._vectors = np.vstack([self._vectors, vectors])
        else:
            sparse = import_extra("scipy.sparse", extra="models")
            self._vectors = sparse.vstack([self._vectors, vectors])
        for row in rows:
            self._order_of[row.memory_id] = row.order

    def _unit_vectors(self, texts: Sequence[str]) -> Any:
        """Return the unit vectors of texts."""
        return to_unit_length(vectors_of(texts, self._policy.vectorise))
