"""Walk a history forward under a policy: what was still there when it was needed."""

from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.arguments import whole_number
from memlab.clock import aware
from memlab.policies import Oracle, Policy
from memlab.replay.life import Ints, Life, Signals, life_of
from memlab.replay.oracle import serve_most
from memlab.replay.outcome import NEVER, Outcome, Replay, report
from memlab.replay.runners import Runner, runner_of


def replay(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
) -> Replay:
    """Walk a history forward under a policy.

    Rows are written in rowid order, each at the time it says it was made (a clock that never runs
    backward); a row that replaces others supersedes them then; after that the policy is applied. A
    need arises just before the row at its ``at_position`` is written, and is served if its target
    is there. What goes never comes back.

    Being needed is being used: ``last_accessed_at`` and ``access_count`` count the needs served so
    far, from the time of writing, whatever a frame says of later. Other signals are taken as they
    stand. Superseded rows are as present as their policy leaves them.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns; nothing pruned from it, or the replay begins with what is
        left.
    references : DataFrame
        What ``find_references`` returns.
    policy : Policy
        The rule; ``Oracle`` gives the bound.
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
    if isinstance(policy, Oracle):
        served, held = serve_most(life, policy.max_items)
        stays = np.full(len(life), NEVER), np.full(len(life), None, dtype=object)
        return report(life, policy, Outcome(*stays, served, held), None)
    gone, step = _Walk(life, policy).run(every, now)
    return report(life, policy, Outcome(gone, step, gone[life.target] >= life.at), now)


class _Walk:
    """The rows that are there, and the runners of the policy's steps."""

    def __init__(self, life: Life, policy: Policy) -> None:
        self.life = life
        self.signals = Signals(life)
        self.gone = np.full(len(life), NEVER)
        self.step = np.full(len(life), None, dtype=object)
        self.runners: list[Runner] = [runner_of(s, life, self.signals) for s in policy.steps]
        self._prefix = len(self.runners) > 1
        self._last_need = 0
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
        while self._last_need < len(at) and at[self._last_need] == moment:
            if self.gone[target[self._last_need]] == NEVER:
                self.signals.use(self._last_need)
            self._last_need += 1

    def _write(self, moment: int) -> None:
        for runner in self.runners:
            runner.enter(moment)
        ends = self.life.history.end
        while self._ended < len(self._ending) and ends[self._ending[self._ended]] == moment:
            row = int(self._ending[self._ended])
            self._ended += 1
            if self.gone[row] == NEVER:
                for runner in self.runners:
                    runner.leave(row)

    def _apply(self, moment: int, now: datetime) -> None:
        for number, runner in enumerate(self.runners, start=1):
            for row, reason in list(runner.gone(moment, now)):
                self.gone[row] = moment
                self.step[row] = f"step {number}: {reason}" if self._prefix else reason
                for other in self.runners:
                    other.leave(row)
