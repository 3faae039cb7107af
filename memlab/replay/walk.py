"""Walk a history forward under a policy: what was still there when it was referred to."""

from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.arguments import whole_number
from memlab.clock import aware
from memlab.policies import Policy
from memlab.policies.base import runner_for
from memlab.replay.life import Ints, Life, Signals, life_of
from memlab.replay.runners import Runner, runner_of
from memlab.replay.tables import STAYS, Fates, Replay, report


def replay(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
) -> Replay:
    """Walk a history forward under a policy.

    Rows are written in order of position, each at the time it says it was made (a clock that never
    runs backward); a row that replaces others supersedes them then; after that the policy is
    applied. A reference arises just before the row at its ``at_position`` is written, and is served
    if its target is there. What goes never comes back.

    A reference counts as an access: ``last_accessed_at`` and ``access_count`` are of the references
    served so far, from the time of writing, whatever a frame says of later. Other signals are taken
    as they stand. Superseded rows are as present as their policy leaves them. A policy that learns
    learns at each moment from all that was written and referred to by then.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns; nothing pruned from it, or the replay begins with what is
        left.
    references : DataFrame
        What ``find_references`` returns.
    policy : Policy
        The rule.
    every : int
        Rows written from one application of the policy to the next.
    now : datetime, optional
        Apply the policy once more at this time, after the last row.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        If `every` is below 1, `now` has no zone, or `references` lacks a column.
    """
    every = whole_number("every", every, least=1)
    if now is not None:
        aware(now, call="memlab.replay.replay")
    return walk_through(life_of(frame, references), policy, every=every, now=now)


def walk_through(
    life: Life, policy: Policy, *, every: int = 1, now: datetime | None = None
) -> Replay:
    """Replay a history that has been prepared; see :func:`replay`."""
    gone, step = _Walk(life, policy).run(every, now)
    return report(life, policy, Fates(gone, step), now)


class _Walk:
    """The rows that are there, and the runners of the policy's steps."""

    def __init__(self, life: Life, policy: Policy) -> None:
        self.life = life
        self.signals = Signals(life)
        self.gone = np.full(len(life), STAYS)
        self.step = np.full(len(life), None, dtype=object)
        steps = policy.steps if runner_for(policy) == "steps" else (policy,)
        self.runners: list[Runner] = [runner_of(step, life, self.signals) for step in steps]
        self._next_reference = 0
        ends = life.history.end
        order = np.argsort(ends, kind="stable")
        self._ending = order[: np.searchsorted(ends[order], len(life))]
        self._ended = 0

    def run(self, every: int, now: datetime | None) -> tuple[Ints, npt.NDArray[np.object_]]:
        """Return for each row the moment it is gone from, and which rule let it go."""
        last = len(self.life)
        for moment in range(last):
            self._serve(moment)
            self._write(moment)
            if (moment + 1) % every == 0:
                self._apply(moment, self.life.now(moment))
        self._serve(last)
        if now is not None:
            self._apply(last, now)
        return self.gone, self.step

    def _serve(self, moment: int) -> None:
        at, target = self.life.at, self.life.target
        while self._next_reference < len(at) and at[self._next_reference] == moment:
            if self.gone[target[self._next_reference]] == STAYS:
                self.signals.serve(self._next_reference)
            self._next_reference += 1

    def _write(self, moment: int) -> None:
        for runner in self.runners:
            runner.enter(moment)
        ends = self.life.history.end
        while self._ended < len(self._ending) and ends[self._ending[self._ended]] == moment:
            row = int(self._ending[self._ended])
            self._ended += 1
            if self.gone[row] == STAYS:
                for runner in self.runners:
                    runner.supersede(row)

    def _apply(self, moment: int, now: datetime) -> None:
        for number, runner in enumerate(self.runners, start=1):
            for row, reason in list(runner.gone(moment, now)):
                self.gone[row] = moment
                self.step[row] = f"step {number}: {reason}" if len(self.runners) > 1 else reason
                for other in self.runners:
                    other.remove(row)
