"""Memories as the arrays that headline numbers are made of, from a frame or straight from rows."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memlab import columns as c
from memlab.frame.fields import KINDS

if TYPE_CHECKING:
    import pandas as pd

Mask: TypeAlias = npt.NDArray[np.bool_]
Moments: TypeAlias = npt.NDArray[np.datetime64]


class Arrays(NamedTuple):
    """One value a memory, in order of insertion.

    Attributes
    ----------
    kind : array of int8
        Its place among :data:`memlab.frame.fields.KINDS`, -1 where it is none.
    tokens : array of int64
    created_at : array of datetime64[us]
        In UTC, NaT where it is missing.
    active, load_bearing, prunable : array of bool
        The labels.
    unreadable : array of bool
        Kept because it could not be interpreted.
    memory_id, superseded_by : pyarrow.Array or ChunkedArray
        Texts; the second is null where no other memory has replaced this one.
    at_start : array of bool, optional
        Loaded at start, where a source says so of each.
    deleted_at : array of datetime64[us], optional
        In UTC, NaT where it is there; only of a whole past.
    """

    kind: npt.NDArray[np.int8]
    tokens: npt.NDArray[np.int64]
    created_at: Moments
    active: Mask
    load_bearing: Mask
    prunable: Mask
    unreadable: Mask
    memory_id: Any
    superseded_by: Any
    at_start: Mask | None = None
    deleted_at: Moments | None = None

    @property
    def last_at(self) -> datetime | None:
        """When the newest of them was created; None where no time is known."""
        dated = self.created_at[~np.isnat(self.created_at)]
        return as_moment(dated.max()) if len(dated) else None

    @property
    def replaced(self) -> Mask:
        """Which of them another memory has replaced."""
        from memlab.sources.arrow import as_numbers

        return as_numbers(self.superseded_by.is_valid())


def as_moment(instant: np.datetime64) -> datetime:
    """Return an instant of a frame's clock as a datetime in UTC."""
    moment: datetime = instant.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def as_instant(moment: datetime) -> np.datetime64:
    """Return a moment with a time zone as an instant of a frame's clock: UTC, in microseconds."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")


def arrays_of(frame: "pd.DataFrame") -> Arrays:
    """Return a frame's columns as arrays; nothing is copied that need not be."""
    import pyarrow as pa

    kinds = frame[c.KIND].astype("category").cat
    places = [KINDS.index(kind) if kind in KINDS else -1 for kind in kinds.categories]
    unreadable = np.zeros(len(frame), dtype=bool)
    if c.PROBLEM in frame:
        unreadable = frame[c.PROBLEM].notna().to_numpy()
    told, gone = c.LOADED_AT_START in frame, c.DELETED_AT in frame
    return Arrays(
        kind=np.array([*places, -1], dtype=np.int8)[kinds.codes.to_numpy()],
        tokens=frame[c.TOKENS].to_numpy(np.int64),
        created_at=frame[c.CREATED_AT].to_numpy("datetime64[us]"),
        active=frame[c.ACTIVE].to_numpy(bool),
        load_bearing=frame[c.LOAD_BEARING].to_numpy(bool),
        prunable=frame[c.PRUNABLE].to_numpy(bool),
        unreadable=unreadable,
        memory_id=pa.array(frame[c.MEMORY_ID]),
        superseded_by=pa.array(frame[c.SUPERSEDED_BY]),
        at_start=frame[c.LOADED_AT_START].to_numpy(bool) if told else None,
        deleted_at=frame[c.DELETED_AT].to_numpy("datetime64[us]") if gone else None,
    )
