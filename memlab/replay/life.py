"""A history to walk forward through: what was written when, what was referred to, and the clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import positions_and_next, references_on_rows
from memlab.policies.base import times
from memlab.policies.experience import experience_of
from memlab.policies.learned import Expectation
from memlab.sizing.history import History, history_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.datetime64]

_EPOCH = np.datetime64(0, "us")


@dataclass(frozen=True)
class Life:
    """Rows in order of writing, and references; those of moment ``m`` come before row ``m``."""

    frame: pd.DataFrame
    references: pd.DataFrame
    target: Ints
    at: Ints
    history: History

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def clock(self) -> Times:
        """UTC time of each moment; it never runs backward, and unknown times are the last known."""
        created = self.created
        known = np.where(np.isnat(created), _EPOCH, created)
        return np.maximum.accumulate(known) if len(known) else known

    @cached_property
    def created(self) -> Times:
        """UTC time each row says it was made at."""
        return times(self.frame, col.CREATED_AT)

    @cached_property
    def referred(self) -> Times:
        """UTC time of each reference; that of the row about to be written where it is unknown."""
        said = times(self.references, col.AT)
        clock = np.append(self.clock, self.clock[-1:] if len(self) else _EPOCH)
        return np.where(np.isnat(said), clock[self.at], said)

    @cached_property
    def positions(self) -> Ints:
        """Position of each row, and the one the next row would get."""
        return positions_and_next(self.frame)

    @cached_property
    def expectation(self) -> Expectation:
        """What could be expected at each moment; the same for every cap."""
        return Expectation(experience_of(self.frame, self.references))

    def now(self, moment: int) -> datetime:
        """Return the time of a moment, with its zone."""
        return pd.Timestamp(self.clock[moment]).to_pydatetime().replace(tzinfo=UTC)


def life_of(frame: pd.DataFrame, references: pd.DataFrame) -> Life:
    """Return a frame and those of its references that fit it as a history to walk through."""
    rows = frame.sort_values(col.POSITION, kind="stable").reset_index(drop=True)
    target, at, place = references_on_rows(rows, references)
    fitting = references.iloc[place].reset_index(drop=True)
    fitting.attrs = {**references.attrs, col.SOURCE: frame.attrs.get(col.SOURCE, "")}
    return Life(rows, fitting, target, at, history_of(rows))


class Signals(Mapping[str, Any]):
    """Which rows are there at a moment, and their columns then; a served reference is an access."""

    def __init__(self, life: Life) -> None:
        self.accessed = np.where(np.isnat(life.created), _EPOCH, life.created)
        self.accesses = np.zeros(len(life), dtype=np.int64)
        self.here = np.zeros(len(life), dtype=bool)
        self.active = np.zeros(len(life), dtype=bool)
        self.new: list[int] = []
        """Rows written, or back, since a policy was last applied."""
        self._life = life
        self._whole: dict[str, npt.NDArray[Any]] = {}
        self._rows: Ints | slice = slice(None)

    def enter(self, row: int) -> None:
        """Note that a row was written, or is back."""
        self.here[row] = self.active[row] = True
        self.new.append(row)

    def serve(self, reference: int) -> None:
        """Note that a reference was served."""
        target = self._life.target[reference]
        self.accessed[target] = max(self.accessed[target], self._life.referred[reference])
        self.accesses[target] += 1

    def of(self, rows: Ints) -> "Signals":
        """Return the signals of some rows; the same object, pointed elsewhere."""
        self._rows = rows
        return self

    def as_frame(self, rows: Ints, *, active: Flags) -> pd.DataFrame:
        """Return some rows as a frame of that moment, numbered from 0."""
        frame = self._life.frame.iloc[rows].reset_index(drop=True)
        frame[col.ACTIVE] = active
        frame[col.PRUNABLE] = active & ~frame[col.LOAD_BEARING]
        frame[col.SUPERSEDED_BY] = frame[col.SUPERSEDED_BY].mask(active)
        accessed = pd.DatetimeIndex(self.accessed[rows]).tz_localize("UTC")
        frame[col.LAST_ACCESSED_AT] = pd.Series(accessed).astype(col.TIME)
        frame[col.ACCESS_COUNT] = pd.array(self.accesses[rows], dtype="Int64")
        return frame

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name == col.LAST_ACCESSED_AT:
            return self.accessed[self._rows]
        if name == col.ACCESS_COUNT:
            return self.accesses[self._rows]
        if name not in self._whole:
            column = self._life.frame[name]
            timed = isinstance(column.dtype, pd.DatetimeTZDtype)
            self._whole[name] = times(self._life.frame, name) if timed else column.to_numpy()
        return self._whole[name][self._rows]

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._life.frame, col.LAST_ACCESSED_AT, col.ACCESS_COUNT])

    def __len__(self) -> int:
        return sum(1 for _ in self)
