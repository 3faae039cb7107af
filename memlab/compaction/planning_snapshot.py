"""The memories of a store at one moment, in the form in which a plan writes them down."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from memlab import columns as col
from memlab.compaction import plans
from memlab.compaction.plans import KeptMemory, PlannedMemory
from memlab.errors import ChangedWhileReadError
from memlab.frame.fields import Flags, Times, as_instant, retired_rows, rows_in_state
from memlab.frame.loading import frame_of
from memlab.policies.base import Decision
from memlab.sources.base import Source
from memlab.sources.readers import Key, Reader
from memlab.store.records import fingerprint_of

RowNumbers = npt.NDArray[np.intp]
"""Row numbers in a frame, from 0."""

Columns = Mapping[str, Any]
"""Columns of a frame as arrays, by name.

They are taken out of the frame once, because that is slow."""

LABELS: Final = (
    plans.PRUNABLE,
    plans.LOAD_BEARING,
    plans.SUPERSEDED,
    plans.RETIRED,
    plans.RETIRES,
    plans.RETURNS,
    col.REACHED,
    col.UNLISTED,
)

"""Labels of the memories in a plan. :attr:`PlanningSnapshot.labels` has indexes of these."""

_BATCH_ROWS: Final = 4_000
"""Number of rows that are converted to Python objects at a time.

The objects take five times the memory of the columns."""


def frame_at(reader: Reader, source: Source, *, with_body: bool) -> pd.DataFrame:
    """Load the memories of an open store as a frame."""
    return frame_of(
        reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )


class PlanningSnapshot:
    """The memories of a store at one moment, as a plan writes them down.

    It copies the columns that a plan needs, so that the caller can free the frame.

    Parameters
    ----------
    reader : Reader
        The open store.
    source : Source
        The store.
    frame : DataFrame
        Its memories, from :func:`frame_at`.

    Attributes
    ----------
    columns : mapping of str to array
        The columns of the frame that a plan needs. The key of a memory is its position by default.
    labels : array of int
        For each memory, the index of its label in :data:`LABELS`.
    token_rule : str
        The rule by which tokens are counted.
    """

    def __init__(self, reader: Reader, source: Source, frame: pd.DataFrame) -> None:
        self.reader: Final = reader
        self.source: Final = source
        self.token_rule: Final = str(frame.attrs[col.TOKEN_RULE])
        self.columns: Final[Columns] = _columns_of(frame)
        self.labels: Final = _labels_of(frame)
        self._expires_at: Times | None = None
        if col.EXPIRES_AT in frame:
            self._expires_at = np.asarray(frame[col.EXPIRES_AT].array, dtype="datetime64[us]")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_prunable(self) -> Flags:
        """For each memory, whether it is prunable."""
        is_prunable: Flags = self.columns[col.PRUNABLE]
        return is_prunable

    @property
    def keys(self) -> list[Key]:
        """The keys of all memories."""
        return _values_at(self.columns[col.KEY], np.arange(len(self)))

    def relabel(self, is_changed: Flags, label: str) -> None:
        """Set the label of some memories."""
        self.labels[is_changed] = LABELS.index(label)

    def has_label(self, label: str) -> Flags:
        """Return for each memory whether it has a label."""
        is_labelled: Flags = self.labels == LABELS.index(label)
        return is_labelled

    def release_unused(self) -> None:
        """Return memory that Arrow no longer uses to the system, after the frame was freed."""
        if len(self) > _BATCH_ROWS:
            pa.default_memory_pool().release_unused()

    def memories(self, decision: Decision, is_planned: Flags) -> tuple[PlannedMemory, ...]:
        """Return the memories with the flag `is_planned` as a plan lists those that it changes.

        Raise ChangedWhileReadError if a memory is missing.

        Parameters
        ----------
        decision : Decision
            The decision, which has the reasons.
        is_planned : array of bool
            For each memory, whether the plan changes it.
        """
        rows = np.flatnonzero(is_planned)
        batches = np.split(rows, range(_BATCH_ROWS, len(rows), _BATCH_ROWS))
        with _garbage_collection_off():
            return tuple(chain.from_iterable(self._batch(batch, decision) for batch in batches))

    def kept(self, is_kept: Flags) -> tuple[KeptMemory, ...]:
        """Return the memories with the flag `is_kept` as a plan lists those that it keeps.

        Raise ChangedWhileReadError if a memory is missing.
        """
        rows = np.flatnonzero(is_kept)
        keys = _values_at(self.columns[col.KEY], rows)
        ids = _values_at(self.columns[col.MEMORY_ID], rows)
        fingerprints = self._fingerprints(keys, self.source.without_usage)
        return tuple(map(KeptMemory, keys, ids, fingerprints))

    def expiring(self, is_decided: Flags, now: datetime) -> tuple[plans.ExpiryTime, ...]:
        """Return the expiry times after `now` of the memories that a plan decides on.

        A memory that has expired before `now` and is still stored is left out. If it is missing
        when the plan is applied, the plan is stale.
        """
        if self._expires_at is None:
            return ()
        expires_later = self._expires_at > as_instant(now)
        rows = np.flatnonzero(is_decided & expires_later)
        keys = _values_at(self.columns[col.KEY], rows)
        return tuple(map(plans.ExpiryTime, keys, _iso_texts(self._expires_at[rows])))

    def groups(self, decision: Decision, *, deleted: Flags) -> tuple[plans.Group, ...]:
        """Return the sorted groups of a plan; each memory is counted in one of them.

        NumPy groups the rows, which takes a tenth of the time of a pandas groupby.
        """
        kinds = self.columns[col.KIND].categories.tolist()
        # Each memory has one code, which combines its action, label, kind and reason.
        codes = (deleted, self.labels, self.columns[col.KIND].codes, decision.reason)
        shape = (2, len(LABELS), len(kinds), len(decision.reasons))
        combined_codes = np.ravel_multi_index([code.astype(np.int64) for code in codes], shape)
        distinct_codes, group_of_memory = np.unique(combined_codes, return_inverse=True)
        memories = np.bincount(group_of_memory, minlength=len(distinct_codes))
        tokens = np.zeros(len(distinct_codes), dtype=np.int64)
        np.add.at(tokens, group_of_memory, self.columns[col.TOKENS])
        deleted_codes, label_codes, kind_codes, reason_codes = np.unravel_index(
            distinct_codes, shape
        )
        groups = [
            plans.Group(
                deleted=bool(deleted_codes[group]),
                label=LABELS[label_codes[group]],
                kind=kinds[kind_codes[group]],
                reason=decision.reasons[reason_codes[group]],
                memories=int(memories[group]),
                tokens=int(tokens[group]),
            )
            for group in range(len(distinct_codes))
        ]
        return tuple(sorted(groups))

    def _batch(self, rows: RowNumbers, decision: Decision) -> Iterator[PlannedMemory]:
        """Yield the memories at some row numbers as a plan lists those that it changes."""
        columns = self.columns
        keys = _values_at(columns[col.KEY], rows)
        positions = keys
        if columns[col.KEY] is not columns[col.POSITION]:
            positions = _values_at(columns[col.POSITION], rows)
        titles = _values_at(columns[col.TITLE], rows)
        reasons = np.array(decision.reasons, dtype=object)[decision.reason[rows]]
        creation_times = _array_at(columns[col.CREATED_AT], rows, "datetime64[us]")
        # The columns are in the order of the fields of PlannedMemory.
        fields_of_memories = zip(
            keys,
            positions,
            _values_at(columns[col.MEMORY_ID], rows),
            _values_at(columns[col.KIND], rows),
            [title[: plans.MAX_TITLE_CHARS] for title in titles],
            reasons.tolist(),
            _deduplicated(_values_at(columns[col.TOKENS], rows)),
            _deduplicated(_iso_texts(creation_times)),
            self._fingerprints(keys, self.source.archive.location.comparable_record),
            strict=True,
        )
        return map(PlannedMemory._make, fields_of_memories)

    def _fingerprints(
        self, keys: list[Key], comparable_part: Callable[[bytes], bytes]
    ) -> list[str]:
        """Return the fingerprints of memories.

        Raise ChangedWhileReadError if a memory is missing.

        Parameters
        ----------
        keys : list of Key
            The keys of the memories.
        comparable_part : callable
            Returns the part of a record that must be unchanged when the plan is applied.
        """
        records = self.reader.records(keys)
        fingerprints = [fingerprint_of(comparable_part(record)) for _, record in records]
        if len(fingerprints) < len(keys):
            raise lost_memories(self.source)
        return fingerprints


def lost_memories(source: Source) -> ChangedWhileReadError:
    """Return the error to raise if records of a store are missing while it is read."""
    return ChangedWhileReadError(f"{source.name} lost memories while it was read")


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Switch off cyclic garbage collection, which takes a fifth of the time of a large plan.

    The collector would look for cycles in tuples that all stay alive.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _labels_of(frame: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Return for each memory the index of its label in :data:`LABELS`."""
    load_bearing = LABELS.index(plans.LOAD_BEARING)
    prunable = LABELS.index(plans.PRUNABLE)
    labels = np.where(frame[col.LOAD_BEARING], load_bearing, prunable)
    # A later label replaces an earlier one.
    labels[~frame[col.ACTIVE].to_numpy(dtype=bool)] = LABELS.index(plans.SUPERSEDED)
    labels[retired_rows(frame)] = LABELS.index(plans.RETIRED)
    for state in (col.REACHED, col.UNLISTED):
        labels[rows_in_state(frame, state)] = LABELS.index(state)
    return labels


def _columns_of(frame: pd.DataFrame) -> Columns:
    """Return the columns that a plan needs. The key of a memory is its position by default."""
    names = (
        col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS, col.CREATED_AT, col.ACTIVE,
        col.LOAD_BEARING, col.PRUNABLE,
    )  # fmt: skip
    columns = {name: _array(frame[name]) for name in names}
    columns[col.KEY] = _array(frame[col.KEY]) if col.KEY in frame else columns[col.POSITION]
    return columns


def _array(column: "pd.Series[Any]") -> Any:
    """Return the values of a column as a NumPy array, or as the pandas array of its type."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _values_at(values: Any, rows: RowNumbers) -> list[Any]:
    """Return the values at increasing row numbers as Python objects.

    Equal texts of a categorical column share one object.
    """
    if isinstance(values, pd.Categorical):
        return list(np.array(values.categories, dtype=object)[values.codes[rows]])
    return list(_array_at(values, rows).tolist())


def _array_at(values: Any, rows: RowNumbers, dtype: str | None = None) -> npt.NDArray[Any]:
    """Return the values at increasing row numbers as an array.

    Slice the column first, because Arrow would search all chunks of a whole column.
    """
    first = rows[0] if len(rows) else 0
    end = rows[-1] + 1 if len(rows) else 0
    array = np.asarray(values[first:end], dtype)
    return array[rows - first]


def _deduplicated(values: list[Any]) -> Iterator[Any]:
    """Yield the values. Equal values become the same object.

    This saves memory: a million rows have about a hundred different numbers of tokens.
    """
    first_objects: dict[Any, Any] = {}
    for value in values:
        yield first_objects.setdefault(value, value)


def _iso_texts(times: npt.NDArray[np.datetime64]) -> list[str]:
    """Return times in UTC in ISO 8601 format; an empty text for a missing time."""
    seconds = times.astype("datetime64[s]")
    if (times == seconds).all():
        # Arrow converts whole seconds in one step.
        texts = pa.array(seconds).cast(pa.string()).to_numpy(zero_copy_only=False)
        return [f"{text[:10]}T{text[11:]}+00:00" for text in texts.tolist()]
    return [f"{time.isoformat()}+00:00" if time else "" for time in times.tolist()]
