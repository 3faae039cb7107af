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
from memlab.evidence.past import Memories
from memlab.evidence.store_history import with_references
from memlab.policies import NearDuplicate, Policy
from memlab.policies.base import steps_of
from memlab.replay.candidates import Room, Rule, replay_at_cost
from memlab.replay.life import ReplayHistory, life_of
from memlab.replay.walk import Replay, walk_through


@dataclass(frozen=True)
class Try:
    """A replay to make: of a policy, or of a rule at the size whose cost equals that of a room."""

    policy: Policy | None = None
    retire: bool = False
    rule: Rule | None = None
    room: Room | None = None
    cost: float = 0.0

    @property
    def label(self) -> str:
        """Name of the rule, by which tries are grouped; empty without one."""
        return "" if self.rule is None else self.rule.name


SMALL: Final = 250_000
"""Rows times policies below which starting processes costs more time than it saves.

With two processors and 23 replays, 10,000 memories take as long in two processes as in one.
"""


def replay_each(
    frame: Memories,
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
    """
    checked = policies_of(policies)
    with_body = any(step.reads_bodies for policy in checked for step in policy.steps)
    history = with_references(frame, references, call="memlab.compare", with_body=with_body)
    life = life_of(*history)
    tries = [Try(policy) for policy in checked]
    replays = replays_of(life, tries, every=every, workers=workers, progress=progress)
    return [replay for replay in replays if replay is not None]


def replays_of(
    life: ReplayHistory, tries: list[Try], *, every: int, workers: int | None, progress: bool
) -> list[Replay | None]:
    """Return the replays of a history that has been prepared; see :func:`replay_each`.

    A rule that costs as much as its room at no size has None instead.
    """
    every = whole_number("every", every, least=1)
    if workers is None:
        workers = _default_workers(life, tries)
    workers = whole_number("workers", workers, least=1)
    with_progress = partial(
        tqdm, total=len(tries), desc="replays", unit="policy", disable=not progress, leave=False
    )
    _find_duplicates(life, tries, progress=progress)
    if workers == 1:
        return [_replay_one(life, asked, every) for asked in with_progress(tries)]
    # A worker that Ctrl-C stops in its work, or a second Ctrl-C while workers end, would make
    # Python wait forever. So workers start with Ctrl-C blocked, and are ended here.
    others = set(active_children())
    pool = ProcessPoolExecutor(min(workers, len(tries)), initializer=_share, initargs=(life, every))
    with _ctrl_c(SIG_BLOCK), pool:
        futures = [pool.submit(_replay_shared, asked) for asked in tries]
        try:
            with _ctrl_c(SIG_UNBLOCK):
                return [future.result() for future in with_progress(futures)]
        except BaseException:
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


def _default_workers(life: ReplayHistory, tries: list[Try]) -> int:
    """Return the number of processors, or 1 for little work or tries that cannot be pickled."""
    if len(tries) < 2 or len(life) * len(tries) < SMALL:
        return 1
    try:
        pickle.dumps(tries)
    except (pickle.PicklingError, AttributeError, TypeError):
        return 1
    return os.cpu_count() or 1


def _find_duplicates(life: ReplayHistory, tries: list[Try], *, progress: bool) -> None:
    """Compute the near-duplicates that policies need, once for all replays and processes."""
    finders = set[NearDuplicate]()
    for asked in tries:
        policy = asked.policy
        if policy is None and asked.rule is not None:
            policy = asked.rule.policy(1)
        if policy is not None:
            finders.update(step for step in steps_of(policy) if isinstance(step, NearDuplicate))
    for finder in tqdm(finders, desc="near-duplicates", disable=not progress, leave=False):
        life.near_duplicates(finder)


_shared: dict[str, Any] = {}
"""In a worker process: the history that it replays, and the interval, sent once."""


def _share(life: ReplayHistory, every: int) -> None:
    """In a worker process, keep the history to replay."""
    _shared.update(life=life, every=every)


def _replay_shared(asked: Try) -> Replay | None:
    """In a worker process, make one replay."""
    return _replay_one(_shared["life"], asked, _shared["every"])


@contextmanager
def _ctrl_c(how: int) -> Iterator[None]:
    """Block Ctrl-C in this thread and in processes started from it, or let it through."""
    before = pthread_sigmask(how, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)


def policies_of(policies: object) -> list[Policy]:
    """Return policies as a list, after checking that each is one."""
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise refusal(policies, "policies", call="memlab.compare", name="policies")
    given = list(policies)
    for policy in given:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return given


def _replay_one(life: ReplayHistory, asked: Try, every: int) -> Replay | None:
    """Return the replay of one try; None if its rule costs as much as its room at no size."""
    if asked.policy is not None:
        return walk_through(life, asked.policy, every=every, retire=asked.retire)
    if asked.rule is None or asked.room is None:
        raise ValueError("a try needs a policy, or a rule and a room")
    return replay_at_cost(life, asked.rule, asked.room, asked.cost, every=every)
