"""An index of texts that finds the near-duplicate of a new one while a store is written."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memlab.lazy import import_extra
from memlab.policies.duplicates import NearDuplicate
from memlab.policies.likeness import DECIMALS, cosines, unit_rows, vectors_of

Text = tuple[str, str, str, Any]
"""Id, title and body of a row, and a sort key that is higher for newer rows."""


class TextIndex:
    """Vectors of the texts that a new one may repeat; they are read when first needed."""

    def __init__(self, policy: NearDuplicate | None, read: Callable[[], Sequence[Text]]) -> None:
        self._policy: Any = policy if policy and policy.threshold > 0 else None
        self._read = read
        self.forget()
        if self._policy:
            self._unit(["\n"])  # raises now if an extra is missing

    def forget(self) -> None:
        """Forget all texts; they are read again when next needed."""
        self._orders: Any = None
        self._vectors: Any = None

    def most_similar(self, memory_id: str, title: str, body: str) -> str | None:
        """Return the id of the near-duplicate most like a text; the newest of several."""
        if self._policy is None:
            return None
        if self._orders is None:
            rows = self._read()
            self._orders = {}
            if rows:
                self._append(rows)
        self.discard(memory_id)  # a row that is written again does not repeat itself
        vector = self._unit([f"{title}\n{body}"])
        if not self._orders:
            return None
        likeness = cosines(self._vectors, vector).ravel().round(DECIMALS[vector.dtype])
        highest = likeness.max()
        if highest < self._policy.threshold - 1e-6:
            return None
        ids = list(self._orders)
        most_like = [ids[place] for place in np.flatnonzero(likeness == highest)]
        newest = max(most_like, key=lambda memory_id: (self._orders[memory_id], memory_id))
        return str(newest)

    def add(self, row: Text) -> None:
        """Add a row; it replaces an older one with its id."""
        if self._orders is not None:
            self.discard(row[0])
            self._append([row])

    def discard(self, memory_id: str) -> None:
        """Remove a row."""
        if self._orders and memory_id in self._orders:
            is_other = np.array([known != memory_id for known in self._orders])
            self._vectors = self._vectors[is_other]
            del self._orders[memory_id]

    def _append(self, rows: Sequence[Text]) -> None:
        """Add the vectors of rows."""
        vectors = self._unit([f"{title}\n{body}" for _, title, body, _ in rows])
        if self._vectors is None:
            self._vectors = vectors
        elif isinstance(vectors, np.ndarray):
            self._vectors = np.vstack([self._vectors, vectors])
        else:
            sparse = import_extra("scipy.sparse", extra="models")
            self._vectors = sparse.vstack([self._vectors, vectors])
        for memory_id, _, _, order in rows:
            self._orders[memory_id] = order

    def _unit(self, texts: Sequence[str]) -> Any:
        """Return the unit vectors of texts."""
        return unit_rows(vectors_of(texts, self._policy.vectorise))
