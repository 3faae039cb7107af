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
from memlab.frame.fields import Flags, as_instant, retired_rows, rows_in_state
from memlab.frame.loading import frame_of
from memlab.policies.base import Decision
from memlab.sources.base import Source
from memlab.sources.readers import Key, Reader
from memlab.store.records import fingerprint_of

Places = npt.NDArray[np.intp]
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

"""What a memory is to a plan; :attr:`PlanningSnapshot.labels` has indexes of these."""

_BATCH_ROWS: Final = 4_000
"""Rows converted to Python objects at a time. The objects take five times the memory of the
columns."""


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

    It has what a plan needs of the frame, which the caller can then free.

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
        self._expires_at: Final = (
            np.asarray(frame[col.EXPIRES_AT].array, dtype="datetime64[us]")
            if col.EXPIRES_AT in frame
            else None
        )

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

    def memories(self, is_planned: Flags, decision: Decision) -> tuple[PlannedMemory, ...]:
        """Return some memories as a plan lists them, with the reasons of a decision.

        Raise ChangedWhileReadError if a memory is missing.
        """
        places = np.flatnonzero(is_planned)
        parts = np.split(places, range(_BATCH_ROWS, len(places), _BATCH_ROWS))
        with _garbage_collection_off():
            return tuple(chain.from_iterable(self._batch(part, decision) for part in parts))

    def kept(self, is_kept: Flags) -> tuple[KeptMemory, ...]:
        """Return some memories that stay as a plan lists them.

        Raise ChangedWhileReadError if a memory is missing.
        """
        places = np.flatnonzero(is_kept)
        keys = _values_at(self.columns[col.KEY], places)
        ids = _values_at(self.columns[col.MEMORY_ID], places)
        fingerprints = self._fingerprints(keys, self.source.without_usage)
        return tuple(map(KeptMemory, keys, ids, fingerprints))

    def expiring(self, is_decided: Flags, now: datetime) -> tuple[plans.Expiring, ...]:
        """Return the expiry times, after now, of the memories that a plan decides on."""
        if self._expires_at is None:
            return ()
        # A memory that has expired already and is still stored must stay stored until the plan is
        # applied.
        later = np.flatnonzero(is_decided & (self._expires_at > as_instant(now)))
        keys = _values_at(self.columns[col.KEY], later)
        return tuple(map(plans.Expiring, keys, _iso_texts(self._expires_at[later])))

    def groups(self, decision: Decision, *, deleted: Flags) -> tuple[plans.Group, ...]:
        """Return the sorted groups of a plan; each memory is counted in one of them.

        NumPy groups the rows, which takes a tenth of the time of a pandas groupby.
        """
        kinds = self.columns[col.KIND].categories.tolist()
        codes = (deleted, self.labels, self.columns[col.KIND].codes, decision.reason)
        shape = (2, len(LABELS), len(kinds), len(decision.reasons))
        group_codes = np.ravel_multi_index([code.astype(np.int64) for code in codes], shape)
        distinct, group = np.unique(group_codes, return_inverse=True)
        memories = np.bincount(group, minlength=len(distinct))
        tokens = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(tokens, group, self.columns[col.TOKENS])
        deleted_codes, label_codes, kind_codes, reason_codes = np.unravel_index(distinct, shape)
        groups = [
            plans.Group(
                deleted=bool(deleted_codes[index]),
                label=LABELS[label_codes[index]],
                kind=kinds[kind_codes[index]],
                reason=decision.reasons[reason_codes[index]],
                memories=int(memories[index]),
                tokens=int(tokens[index]),
            )
            for index in range(len(distinct))
        ]
        return tuple(sorted(groups))

    def _batch(self, places: Places, decision: Decision) -> Iterator[PlannedMemory]:
        """Yield the memories at some row numbers as a plan lists them."""
        columns = self.columns
        keys = _values_at(columns[col.KEY], places)
        positions = keys
        if columns[col.KEY] is not columns[col.POSITION]:
            positions = _values_at(columns[col.POSITION], places)
        titles = _values_at(columns[col.TITLE], places)
        reasons = np.array(decision.reasons, dtype=object)[decision.reason[places]]
        created = _array_at(columns[col.CREATED_AT], places, "datetime64[us]")
        # The columns are in the order of the fields of PlannedMemory.
        rows = zip(
            keys,
            positions,
            _values_at(columns[col.MEMORY_ID], places),
            _values_at(columns[col.KIND], places),
            [title[: plans.MAX_TITLE_CHARS] for title in titles],
            reasons.tolist(),
            _deduplicated(_values_at(columns[col.TOKENS], places)),
            _deduplicated(_iso_texts(created)),
            self._fingerprints(keys, self.source.archive.location.compared),
            strict=True,
        )
        return map(PlannedMemory._make, rows)

    def _fingerprints(self, keys: list[Key], compared: Callable[[bytes], bytes]) -> list[str]:
        """Return the fingerprints of memories, of the part of a record that is compared.

        Raise ChangedWhileReadError if a memory is missing.
        """
        records = self.reader.records(keys)
        fingerprints = [fingerprint_of(compared(record)) for _, record in records]
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
    label = np.where(frame[col.LOAD_BEARING], load_bearing, LABELS.index(plans.PRUNABLE))
    label[~frame[col.ACTIVE].to_numpy(dtype=bool)] = LABELS.index(plans.SUPERSEDED)
    label[retired_rows(frame)] = LABELS.index(plans.RETIRED)
    for state in (col.REACHED, col.UNLISTED):
        label[rows_in_state(frame, state)] = LABELS.index(state)
    return label


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


def _values_at(values: Any, places: Places) -> list[Any]:
    """Return the values at some row numbers as Python objects, in rising order.

    Equal texts of a categorical column share one object.
    """
    if isinstance(values, pd.Categorical):
        return list(np.array(values.categories, dtype=object)[values.codes[places]])
    return list(_array_at(values, places).tolist())


def _array_at(values: Any, places: Places, dtype: str | None = None) -> npt.NDArray[Any]:
    """Return the values at rising row numbers.

    Slice the column first, because Arrow would search all chunks of a whole column.
    """
    first = places[0] if len(places) else 0
    end = places[-1] + 1 if len(places) else 0
    return np.asarray(values[first:end], dtype)[places - first]


def _deduplicated(values: list[Any]) -> Iterator[Any]:
    """Yield values such that equal ones are one object.

    This saves memory: a million rows have about a hundred different numbers of tokens.
    """
    objects: dict[Any, Any] = {}
    return map(objects.setdefault, values, values)


def _iso_texts(times: npt.NDArray[np.datetime64]) -> list[str]:
    """Return times in UTC in ISO 8601 format; an empty text for a missing time."""
    seconds = times.astype("datetime64[s]")
    if (times == seconds).all():
        # Arrow converts whole seconds in one step.
        texts = pa.array(seconds).cast(pa.string()).to_numpy(zero_copy_only=False)
        return [f"{text[:10]}T{text[11:]}+00:00" for text in texts.tolist()]
    return [f"{time.isoformat()}+00:00" if time else "" for time in times.tolist()]
