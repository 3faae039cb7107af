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
from typing import Any, Final

import pandas as pd
from tqdm.auto import tqdm

from memlab.arguments import expect, refusal, whole_number
from memlab.evidence.past import HistoryLike
from memlab.evidence.store_history import with_references
from memlab.policies import NearDuplicate, Policy
from memlab.policies.base import steps_of
from memlab.replay.candidates import Room, Rule, replay_at_cost
from memlab.replay.history import ReplayHistory, prepare_history
from memlab.replay.walk import Replay, walk_through


@dataclass(frozen=True)
class Try:
    """A replay to make: of a policy as it is, or of a rule at a size of given cost.

    Attributes
    ----------
    policy : Policy or None
        The policy to replay; None for a rule whose size is searched for.
    retire : bool
        Whether memories are retired instead of deleted.
    rule, room : Rule, Room, or None
        The rule, and the room whose cost it should have.
    cost : float
        Mean tokens of a boot context in that room.
    """

    policy: Policy | None = None
    retire: bool = False
    rule: Rule | None = None
    room: Room | None = None
    cost: float = 0.0

    @property
    def label(self) -> str:
        """Name of the rule, by which tries are grouped; empty without one."""
        return "" if self.rule is None else self.rule.name


SERIAL_BELOW: Final = 250_000
"""Rows times policies below which starting processes costs more time than it saves.

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
    frame_and_references = with_references(
        frame, references, call="memlab.compare", with_body=with_body
    )
    history = prepare_history(*frame_and_references)
    tries = [Try(policy) for policy in checked]
    replays = replays_of(history, tries, every=every, workers=workers, progress=progress)
    return [replay for replay in replays if replay is not None]


def replays_of(
    history: ReplayHistory, tries: list[Try], *, every: int, workers: int | None, progress: bool
) -> list[Replay | None]:
    """Return the replays of a history that has been prepared; see :func:`replay_each`.

    A rule for which no size costs as much as its room has None instead.
    """
    every = whole_number("every", every, least=1)
    if workers is None:
        workers = _default_workers(history, tries)
    workers = whole_number("workers", workers, least=1)
    with_progress = partial(
        tqdm, total=len(tries), desc="replays", unit="policy", disable=not progress, leave=False
    )
    _find_duplicates(history, tries, progress=progress)
    if workers == 1:
        return [_replay_one(history, attempt, every) for attempt in with_progress(tries)]
    # A worker that Ctrl-C stops in its work, or a second Ctrl-C while workers end, would make
    # Python wait forever. So workers start with Ctrl-C blocked, and are ended here.
    earlier_children = set(active_children())
    pool = ProcessPoolExecutor(
        min(workers, len(tries)), initializer=_share, initargs=(history, every)
    )
    with _ctrl_c(SIG_BLOCK), pool:
        futures = [pool.submit(_replay_shared, attempt) for attempt in tries]
        try:
            with _ctrl_c(SIG_UNBLOCK):
                return [future.result() for future in with_progress(futures)]
        except BaseException:
            for worker in set(active_children()) - earlier_children:
                worker.terminate()
            raise


def _default_workers(history: ReplayHistory, tries: list[Try]) -> int:
    """Return the number of processors, or 1 for little work or tries that cannot be pickled."""
    if len(tries) < 2 or len(history) * len(tries) < SERIAL_BELOW:
        return 1
    try:
        pickle.dumps(tries)
    except (pickle.PicklingError, AttributeError, TypeError):
        return 1
    return os.cpu_count() or 1


def _find_duplicates(history: ReplayHistory, tries: list[Try], *, progress: bool) -> None:
    """Compute the near-duplicates that policies need, once for all replays and processes."""
    finders = set[NearDuplicate]()
    for attempt in tries:
        policy = attempt.policy
        if policy is None and attempt.rule is not None:
            policy = attempt.rule.policy(1)
        if policy is not None:
            finders.update(step for step in steps_of(policy) if isinstance(step, NearDuplicate))
    for finder in tqdm(finders, desc="near-duplicates", disable=not progress, leave=False):
        history.near_duplicates(finder)


_shared: dict[str, Any] = {}
"""In a worker process: the history that it replays, and the interval, sent once."""


def _share(history: ReplayHistory, every: int) -> None:
    """In a worker process, keep the history to replay."""
    _shared.update(history=history, every=every)


def _replay_shared(attempt: Try) -> Replay | None:
    """In a worker process, make one replay."""
    return _replay_one(_shared["history"], attempt, _shared["every"])


@contextmanager
def _ctrl_c(action: int) -> Iterator[None]:
    """Block or unblock Ctrl-C in this thread and in processes started from it.

    `action` is ``SIG_BLOCK`` or ``SIG_UNBLOCK``; the previous mask is set again afterwards.
    """
    old_mask = pthread_sigmask(action, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, old_mask)


def policies_of(policies: object) -> list[Policy]:
    """Return policies as a list, after checking that each is one."""
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise refusal(policies, "policies", call="memlab.compare", name="policies")
    as_list = list(policies)
    for policy in as_list:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return as_list


def _replay_one(history: ReplayHistory, attempt: Try, every: int) -> Replay | None:
    """Return the replay of one try; None if no size of its rule costs as much as its room."""
    if attempt.policy is not None:
        return walk_through(history, attempt.policy, every=every, retire=attempt.retire)
    if attempt.rule is None or attempt.room is None:
        raise ValueError("a try needs a policy, or a rule and a room")
    return replay_at_cost(history, attempt.rule, attempt.room, attempt.cost, every=every)
