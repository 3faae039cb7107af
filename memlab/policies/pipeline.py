"""Policies in a row, each on what the one before left."""

from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.policies.base import Policy, Population, Runner, named_by, runner_for
from memlab.policies.duplicates import NearDuplicate
from memlab.policies.rules import (
    ImportanceBudget,
    ImportanceFloor,
    KeepRecent,
    TimeToLive,
    ValueCap,
)


@dataclass(frozen=True, init=False)
class Pipeline(Policy):
    """Policies in order, each deciding on what the one before left.

    Reasons say which step let a row go, so that steps are counted apart.

    Examples
    --------
    >>> [step.name for step in Pipeline.odek().steps]
    ['dedup', 'ttl', 'recent']
    """

    policies: tuple[Policy, ...]

    name: ClassVar[str] = "pipeline"
    origin: ClassVar[str] = "odek, MemForge: several rules in order"
    population: ClassVar[Population] = "all"
    runner: ClassVar[Runner] = "steps"

    def __init__(self, *policies: Policy) -> None:
        for policy in policies:
            expect(policy, Policy, call="Pipeline", name="policies")
        said = {
            "policies": policies,
            "reads_bodies": any(step.reads_bodies for step in policies),
            "learns": any(step.learns for step in policies),
            "goes_by": policies[-1].goes_by if policies else "",
        }
        for name, value in said.items():
            object.__setattr__(self, name, value)

    @classmethod
    def odek(
        cls, *, threshold: float = 0.92, ttl: timedelta | None = None, keep: int = 500
    ) -> "Pipeline":
        """Return odek's order with its defaults: duplicates, expiry (off), newest 500 by time.

        Parameters
        ----------
        threshold : float
            Cosine from which a newer row replaces an older; 0 is off.
        ttl : timedelta, optional
            Age at which a row expires; 0 is off.
        keep : int
            Prunable rows that stay, the newest by creation time; 0 is off.
        """
        cap = KeepRecent(keep, by=col.CREATED_AT)
        return cls(NearDuplicate(threshold), TimeToLive(ttl), *([cap] if keep else []))

    @classmethod
    def memforge(cls, *, threshold: float = 0.1, max_items: int | None = None) -> "Pipeline":
        """Return MemForge's order with its defaults: importance floor, then budget (off).

        Parameters
        ----------
        threshold : float
            Importance below which a row goes, graduated rows excepted.
        max_items : int, optional
            Rows an agent may hold; 0 or None is off.
        """
        return cls(ImportanceFloor(threshold), ImportanceBudget(max_items))

    @classmethod
    def betterdb(cls, *, max_items: int) -> "Pipeline":
        """Return BetterDB's defaults: rows past their own expiry, then the cap of each scope.

        Parameters
        ----------
        max_items : int
            Rows that may match the agent, thread, namespace and tags that one was written with.
        """
        return cls(TimeToLive(), ValueCap(max_items))

    @property
    def steps(self) -> tuple[Policy, ...]:
        """The policies that run, those of an inner pipeline among them."""
        return tuple(
            step
            for policy in self.policies
            for step in (policy.steps if runner_for(policy) == "steps" else (policy,))
        )

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> Self:
        """Return the pipeline with a past to learn from for each of its policies."""
        pipeline = copy(self)
        taught = tuple(policy.after(past, references) for policy in self.policies)
        object.__setattr__(pipeline, "policies", taught)
        return pipeline

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows that go at each step, among those that the steps before left."""
        left, gone = rows, [pd.Series(dtype="str")]
        for number, step in enumerate(self.steps, start=1):
            labels = left.index
            named = named_by(step, left.reset_index(drop=True), now=now)
            named.index = labels[named.index.to_numpy(dtype=np.int64)]
            left = left.drop(index=named.index)
            gone.append(f"step {number}: " + named if len(self.steps) > 1 else named)
        every: pd.Series[str] = pd.concat(gone).astype("str")
        return every
