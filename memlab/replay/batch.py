"""Several replays of one history, in this process or in several."""

import os
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from typing import Any, Final, NamedTuple

import pandas as pd
from tqdm.auto import tqdm

from memlab.arguments import expect, whole_number, wrong_argument_error
from memlab.evidence.past import HistoryLike
from memlab.evidence.store_history import with_references
from memlab.policies import NearDuplicate, Policy
from memlab.policies.base import steps_of
from memlab.replay.candidates import CostLevel, Rule, replay_at_cost
from memlab.replay.history import ReplayHistory, prepare_history
from memlab.replay.walk import Replay, walk_through


@dataclass(frozen=True)
class ReplayTask:
    """A replay to make, of a given policy or of a rule whose size is searched for.

    Attributes
    ----------
    policy : Policy or None
        The policy to replay; None for a rule whose size is searched for.
    retire : bool
        Whether memories are retired instead of deleted.
    rule : Rule or None
        The rule to replay.
    level : CostLevel or None
        The level at which the rule is compared with others.
    cost : float
        Mean tokens of a start that the rule should have at the level.
    """

    policy: Policy | None = None
    retire: bool = False
    rule: Rule | None = None
    level: CostLevel | None = None
    cost: float = 0.0

    @property
    def label(self) -> str:
        """Name of the rule; empty if the task is to replay a policy without one."""
        return "" if self.rule is None else self.rule.name


class CompletedTask(NamedTuple):
    """A replay task and its replay."""

    task: ReplayTask
    replay: Replay


SERIAL_BELOW: Final = 250_000
"""Number of rows times number of replays below which one process is as fast as several.

With two processors and 23 replays, 10,000 memories take as long in two processes as in one.
"""


def replay_each(
    frame: HistoryLike,
    references: pd.DataFrame | None,
    policies: Iterable[Policy],
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> list[Replay]:
    """Replay one history under each of several policies, and return the replays in their order.

    Parameters
    ----------
    frame, references, every
        As for :func:`memlab.replay.replay`.
    policies : iterable of Policy
        One for each setting to try.
    workers, progress
        As for :func:`memlab.compare`.

    Returns
    -------
    list of Replay

    Raises
    ------
    TypeError
        If `policies` is not a collection of policies.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> store = memlab.store_path("looked_up")
    >>> replays = memlab.replay.replay_each(store, None, [KeepRecent(20), KeepRecent(50)])
    >>> [replay.most_held for replay in replays]
    [20, 50]
    """
    checked = policies_of(policies)
    with_body = any(step.reads_bodies for policy in checked for step in policy.steps)
    past, past_references = with_references(
        frame, references, call="memlab.compare", with_body=with_body
    )
    history = prepare_history(past, past_references)
    tasks = [ReplayTask(policy) for policy in checked]
    replays = replay_tasks(history, tasks, every=every, workers=workers, progress=progress)
    return [replay for replay in replays if replay is not None]


def replay_tasks(
    history: ReplayHistory,
    tasks: list[ReplayTask],
    *,
    every: int,
    workers: int | None,
    progress: bool,
) -> list[Replay | None]:
    """Return the replay of each task, on a history that has been prepared.

    The replay is None if no size of a rule has the cost of the task. The parameters are as for
    :func:`replay_each`.
    """
    every = whole_number("every", every, least=1)
    if workers is None:
        workers = _default_workers(history, tasks)
    workers = whole_number("workers", workers, least=1)
    progress_bar = partial(
        tqdm, total=len(tasks), desc="replays", unit="policy", disable=not progress, leave=False
    )
    _find_duplicates(history, tasks, progress=progress)
    if workers == 1:
        return [_replay_one(history, task, every) for task in progress_bar(tasks)]
    # Python would wait forever if Ctrl-C interrupted a worker, or if Ctrl-C were pressed again
    # while the workers end. So workers start with Ctrl-C blocked, and are ended here.
    earlier_children = set(active_children())
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), initializer=_set_worker_state, initargs=(history, every)
    )
    with _ctrl_c_mask(SIG_BLOCK), pool:
        futures = [pool.submit(_replay_in_worker, task) for task in tasks]
        try:
            with _ctrl_c_mask(SIG_UNBLOCK):
                return [future.result() for future in progress_bar(futures)]
        except BaseException:
            for worker in set(active_children()) - earlier_children:
                worker.terminate()
            raise


def _default_workers(history: ReplayHistory, tasks: list[ReplayTask]) -> int:
    """Return the number of processors; 1 if there is little work or a task cannot be pickled."""
    if len(tasks) < 2 or len(history) * len(tasks) < SERIAL_BELOW:
        return 1
    try:
        pickle.dumps(tasks)
    except (pickle.PicklingError, AttributeError, TypeError):
        return 1
    return os.cpu_count() or 1


def _find_duplicates(history: ReplayHistory, tasks: list[ReplayTask], *, progress: bool) -> None:
    """Compute the near-duplicates that policies need, once for all replays and processes.

    The history keeps the near-duplicates.
    """
    duplicate_steps = set[NearDuplicate]()
    for task in tasks:
        policy = task.policy
        if policy is None and task.rule is not None:
            # A rule takes a size, but its rule of near-duplicates does not depend on it.
            any_size = 1
            policy = task.rule.policy(any_size)
        if policy is None:
            continue
        for step in steps_of(policy):
            if isinstance(step, NearDuplicate):
                duplicate_steps.add(step)
    for step in tqdm(duplicate_steps, desc="near-duplicates", disable=not progress, leave=False):
        history.near_duplicates(step)


_worker_state: dict[str, Any] = {}
"""History that a worker process replays, and the interval between applications of a policy.

A worker process receives both once, when it starts.
"""


def _set_worker_state(history: ReplayHistory, every: int) -> None:
    """Keep the history to replay; called in a worker process."""
    _worker_state["history"] = history
    _worker_state["every"] = every


def _replay_in_worker(task: ReplayTask) -> Replay | None:
    """Make one replay; called in a worker process."""
    return _replay_one(_worker_state["history"], task, _worker_state["every"])


@contextmanager
def _ctrl_c_mask(action: int) -> Iterator[None]:
    """Block or unblock Ctrl-C in this thread and in processes started from it.

    `action` is ``SIG_BLOCK`` or ``SIG_UNBLOCK``; the previous mask is set again afterwards.
    """
    old_mask = pthread_sigmask(action, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, old_mask)


def policies_of(policies: object) -> list[Policy]:
    """Return policies as a list; raise TypeError if one of them is not a policy."""
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise wrong_argument_error(policies, "policies", call="memlab.compare", name="policies")
    as_list = list(policies)
    for policy in as_list:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return as_list


def _replay_one(history: ReplayHistory, task: ReplayTask, every: int) -> Replay | None:
    """Return the replay of a task; None if no size of the rule has the cost of the task."""
    if task.policy is not None:
        return walk_through(history, task.policy, every=every, retire=task.retire)
    if task.rule is None or task.level is None:
        raise ValueError("a replay task needs a policy, or a rule and a cost level")
    return replay_at_cost(history, task.rule, task.level, task.cost, every=every)
