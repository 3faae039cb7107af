"""What a policy is, and the one place where the load-bearing floor is enforced."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, expect_frame
from memlab.clock import aware

KEPT = "kept"
LOAD_BEARING = "load-bearing"
SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Policy(ABC):
    """A rule that says which memories go.

    A subclass is a frozen dataclass whose fields are its settings; ``metadata["help"]`` of each
    field says what it means. It names the rows that would go, and :func:`decide` sees to it that
    no load-bearing row does.

    Attributes
    ----------
    name : str
        Short name, as on a command line.
    origin : str
        Whose rule it is.
    population : {"active", "superseded"}
        Which rows it chooses among. The others are never touched by it.
    reads_bodies : bool
        Whether it decides by texts, and wants a frame loaded with them.
    learns : bool
        Whether it decides by what a store has lived through, and wants that with :meth:`after`.
    """

    name: ClassVar[str]
    origin: ClassVar[str]
    population: ClassVar[Literal["active", "superseded"]] = "active"
    reads_bodies: ClassVar[bool] = False
    learns: ClassVar[bool] = False

    @property
    def steps(self) -> "tuple[Policy, ...]":
        """The policies that run, in order: the policy itself, unless it is made of others."""
        return (self,)

    def after(self, past: pd.DataFrame) -> "Policy":  # noqa: ARG002
        """Return the policy with a past to learn from: itself, unless it learns.

        Parameters
        ----------
        past : DataFrame
            Every row that was ever written, gone ones among them, as :func:`memlab.load` returns.
        """
        return self

    @abstractmethod
    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows that go.

        Parameters
        ----------
        rows : DataFrame
            The rows of this policy's population in rowid order, numbered from 0. Load-bearing rows
            are among them because they take up room.
        now : datetime
            The moment of the decision, with a time zone.

        Returns
        -------
        Series of str
            A reason for each row that goes, indexed by its label in `rows`. Load-bearing rows in it
            are ignored.
        """


@dataclass(frozen=True)
class CappedPolicy(Policy):
    """A policy that keeps a number of rows and drops the lowest of a ranking.

    What differs between such policies is the ranking, so a caller that follows a store forward one
    row at a time needs only :meth:`eviction_keys` and :attr:`slots`.
    """

    reason: ClassVar[str]
    counts_load_bearing: ClassVar[bool] = True
    timeless: ClassVar[bool] = False
    """Whether neither the moment nor use changes the ranking."""

    @property
    @abstractmethod
    def slots(self) -> int | None:
        """How many rows a scope may hold, or None where the cap is off."""

    @abstractmethod
    def eviction_keys(
        self, rows: Mapping[str, Any] | pd.DataFrame, *, now: datetime
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return what rows are ranked by: the lowest goes first.

        Parameters
        ----------
        rows : DataFrame or mapping of str to array
            Columns of a frame. Signal columns may be missing.
        now : datetime
            The moment of the decision, with a time zone.

        Returns
        -------
        tuple of ndarray, each of shape (len(rows),)
            The most significant key first. Rows equal in all of them go oldest position first.
        """

    def scopes(self, rows: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the number of each row's scope, -1 for a row that is never capped."""
        return np.zeros(len(rows), dtype=np.int64)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the lowest rows of each scope, as many as it holds too many."""
        if self.slots is None or rows.empty:
            return pd.Series(dtype="str")
        scope = self.scopes(rows)
        may_go = ~rows[col.LOAD_BEARING].to_numpy(dtype=bool)
        counted = (scope >= 0) & (may_go | self.counts_load_bearing)
        surplus = np.bincount(scope[counted], minlength=1) - self.slots
        candidates = np.flatnonzero(may_go & (scope >= 0))
        # Rows arrive in rowid order and lexsort is stable: ties go to the older position.
        keys = [key[candidates] for key in self.eviction_keys(rows, now=now)]
        order = candidates[np.lexsort((*reversed(keys), scope[candidates]))]
        rank = np.arange(len(order)) - np.searchsorted(scope[order], scope[order])
        gone = np.sort(order[rank < surplus[scope[order]]])
        return pd.Series(self.reason, index=gone, dtype="str")


def decide(frame: pd.DataFrame, policy: Policy, *, now: datetime) -> pd.DataFrame:
    """Say for every memory whether a policy keeps it, and why.

    Nothing is deleted and `frame` is left as it was. Load-bearing rows are kept under every
    policy. Superseded rows are kept under every policy that does not choose among them by name.
    The order of rows in `frame` does not matter.

    Parameters
    ----------
    frame : DataFrame
        A frame as :func:`memlab.load` returns it.
    policy : Policy
        The rule.
    now : datetime
        The moment of the decision, with a time zone.

    Returns
    -------
    DataFrame
        Same index as `frame`; ``keep`` (bool) and ``reason`` (category). A policy of several steps
        numbers its reasons by step.

    Raises
    ------
    ValueError
        If `now` has no time zone.
    """
    expect_frame(frame, *(col.POSITION, col.ACTIVE, col.LOAD_BEARING), call="memlab.decide")
    expect(policy, Policy, call="memlab.decide", name="policy")
    aware(now, call="memlab.decide")
    rows = frame.reset_index(drop=True).sort_values(col.POSITION, kind="stable")
    rowwise = rows.index.to_numpy()
    rows = rows.reset_index(drop=True)
    active = rows[col.ACTIVE].to_numpy(dtype=bool)
    load_bearing = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    reason = np.where(load_bearing, LOAD_BEARING, np.where(active, KEPT, SUPERSEDED)).astype(object)
    keep = np.ones(len(rows), dtype=bool)
    for number, step in enumerate(policy.steps, start=1):
        chosen = keep & (active if step.population == "active" else ~active)
        where = np.flatnonzero(chosen)
        named = step.evict(rows.iloc[where].reset_index(drop=True), now=now)
        gone = where[named.index.to_numpy(dtype=np.int64)]
        words = named.to_numpy(dtype=object)
        spared = load_bearing[gone]
        gone, words = gone[~spared], words[~spared]
        keep[gone] = False
        reason[gone] = words if len(policy.steps) == 1 else [f"step {number}: {w}" for w in words]
    return _as_given(frame, rowwise, keep, reason)


def _as_given(
    frame: pd.DataFrame,
    rowwise: npt.NDArray[np.int64],
    keep: npt.NDArray[np.bool_],
    reason: npt.NDArray[Any],
) -> pd.DataFrame:
    """Put decisions made in rowid order back into the order of `frame`."""
    kept, why = np.empty_like(keep), np.empty_like(reason)
    kept[rowwise], why[rowwise] = keep, reason
    return pd.DataFrame({col.KEEP: kept, col.REASON: pd.Categorical(why)}, index=frame.index)
