"""What is done to each store of a fleet, and by whom; a broken one never ends the run.

When a worker dies, its stores are handed out again one by one.
"""

import gc
import multiprocessing
import os
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import memlab
from memlab import arguments
from memlab.errors import MemlabError
from memlab.fleet.names import Member
from memlab.lazy import import_extra
from memlab.store.records import batched

Row = TypeVar("Row")

Given = Callable[[Member], Any]
"""What belongs to one store alone, fetched when its turn comes."""
AnyTask: TypeAlias = "FleetTask[Any]"
Outcomes: TypeAlias = "Iterator[Outcome[Any]]"
Progress = Callable[[int, int], None]
"""Called with how many stores are done, and how many there are."""

FEW: Final = 20
"""Stores that are done before the first process has started."""
FEW_BYTES: Final = 20_000_000
"""The same of bytes."""

SET_ASIDE: Final = "SetAside"
"""Kind of the error of a store that ends whatever process works on it."""

TOGETHER: Final = 50
"""Stores that are handed out at once, at most: the middle of what pays on Dask."""
LARGE: Final = 16_000_000
"""Bytes of a store that goes alone."""
AHEAD: Final = 2
"""Chunks that are handed out for each worker: one to work on and one to follow it."""
HEARTBEAT: Final = 10.0
"""Seconds without an answer after which it is asked whether anybody is left to give one."""
PATIENCE: Final = 30.0
"""Seconds that a scheduler has to answer, and a first worker to come."""
LOADED_BEFORE: Final = ("memlab.fleet.workers", "memlab.fleet.sweep")
"""What every process needs, imported once and not in each."""


@dataclass(frozen=True)
class Outcome(Generic[Row]):
    """What became of one store. It pickles, and it is never an exception.

    `name` is the member's, `value` what was asked for. `error` says what is wrong and `kind` the
    name of the error's class; both are empty where nothing is. ``state`` is what the store's files
    were like just before it was read, or just after it was changed; empty where unknown.
    """

    name: str
    value: Row | None = None
    error: str = ""
    kind: str = ""
    state: str = ""


def nothing(member: Member) -> None:
    """Give nothing."""


@runtime_checkable
class Runner(Protocol):
    """Who does the work."""

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield an outcome for each of the members, as they come.

        MemlabError when nobody is left to do the work.
        """
        ...


@dataclass(frozen=True)
class FleetTask(Generic[Row]):
    """What is done to each store. It pickles, for others may do it."""

    name: str
    work: Callable[..., Row]
    """Takes what opens a store, and what is given for it alone where anything is."""
    row: type[Row]
    """The dataclass of a row; a field ``store`` is the name that the outcome has already."""
    changes: bool = False
    """Whether a store is another one afterwards."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What else makes results those of another question."""
    rests_on: str | None = ""
    """What results of a finished run hold for beside the stores; None: they say nothing later."""

    def do(self, member: Member, given: Any = None) -> Outcome[Row]:
        """Do it to one store; whatever goes wrong with it is part of the answer."""
        if member.problem:
            return Outcome(member.name, error=member.problem, kind="StoreError")
        state = member.state()
        try:
            value = self.work(member.where, *([] if given is None else [given]))
            return Outcome(member.name, value, state=member.state() if self.changes else state)
        except MemlabError as error:
            words = str(error)
            kind = type(error).__name__
        except Exception as error:  # noqa: BLE001 - one store must not end the run of all
            kind = type(error).__name__
            words = f"memlab failed on it: {kind}: {error}"
        return Outcome(member.name, error=words, kind=kind, state=state)


@dataclass(frozen=True)
class Serial:
    """One store after the other, in this process."""

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes in the order of the members."""
        for member in members:
            yield task.do(member, given(member))


Chunk: TypeAlias = list[tuple[Member, Any]]
Answer: TypeAlias = "Future[list[Outcome[Any]]]"


class WorkerPool(ABC):
    """Who works: how many at once, and how often a store is tried that ends its worker."""

    workers: int
    attempts: int = 1
    death_errors: tuple[type[BaseException], ...] = ()

    @abstractmethod
    def submit(self, task: AnyTask, chunk: Chunk) -> Answer:
        """Hand a chunk out, whoever has died before."""

    def heartbeat(self) -> None:  # noqa: B027 - not every pool has to
        """Raise a MemlabError when nobody is left to work."""


def schedule(pool: WorkerPool, task: AnyTask, members: Sequence[Member], given: Given) -> Outcomes:
    """Yield an outcome for each member as it comes."""

    def hand_out(chunk: list[Member]) -> Answer:
        return pool.submit(task, [(member, given(member)) for member in chunk])

    waiting = chunks_of(members, pool.workers)
    running: dict[Answer, list[Member]] = {}
    suspects: list[Member] = []
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * pool.workers:
                chunk = waiting.popleft()
                running[hand_out(chunk)] = chunk
            for answer in _answered(pool, running):
                chunk = running.pop(answer)
                found = _result(pool, answer)
                if found is None:
                    suspects += chunk
                else:
                    yield from found
        for member in suspects:
            yield _alone(pool, member, hand_out)
    finally:
        for answer in running:
            answer.cancel()


def chunks_of(members: Sequence[Member], workers: int) -> deque[list[Member]]:
    """Return members in chunks, large ones alone and first; several for each worker, to share."""
    large = sorted((m for m in members if m.size > LARGE), key=lambda m: -m.size)
    small = [member for member in members if member.size <= LARGE]
    together = max(1, min(TOGETHER, len(small) // (8 * workers)))
    return deque([*([each] for each in large), *batched(small, together)])


def _answered(pool: WorkerPool, running: Collection[Answer]) -> set[Answer]:
    while not (done := wait(running, HEARTBEAT, return_when=FIRST_COMPLETED).done):
        pool.heartbeat()
    return done


def _result(pool: WorkerPool, answer: Answer) -> list[Outcome[Any]] | None:
    """Return what came of a chunk; None where it ended its worker."""
    try:
        return answer.result()
    except pool.death_errors:
        return None
    except CancelledError as error:
        raise MemlabError(
            "whoever hands out the work went away; what is done is done: run the same command again"
        ) from error


def _alone(
    pool: WorkerPool, member: Member, hand_out: Callable[[list[Member]], Answer]
) -> Outcome[Any]:
    """Try a store with nothing beside it, so that a death is its own."""
    for _ in range(pool.attempts):
        answer = hand_out([member])
        _answered(pool, [answer])
        if found := _result(pool, answer):
            return found[0]
    words = (
        "it ended every process that worked on it and was set aside; look at it alone, with more "
        "memory: memlab show"
    )
    return Outcome(member.name, error=words, kind=SET_ASIDE)


def _work_through(task: AnyTask, chunk: Chunk) -> list[Outcome[Any]]:
    """Do the task to each store of a chunk; this is what a process is sent."""
    return [task.do(member, given) for member, given in chunk]


@dataclass(frozen=True)
class Processes:
    """Several processes on this machine, by default one for each processor that this one may use.

    A script that is run by Python itself begins what it does with
    ``if __name__ == "__main__":``, for each process imports it again.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            arguments.whole_number("count", self.count, least=1)

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes as they come; a MemlabError where no process can be started."""
        with closing(_ProcessPool(self.count or len(os.sched_getaffinity(0)))) as pool:
            yield from schedule(pool, task, members, given)


class _ProcessPool(WorkerPool):
    """Processes that are started anew when one of them died; one that is gone says so by itself."""

    attempts = 3
    death_errors = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor = self._started()
        try:
            self._executor.submit(os.getpid).result()
        except BrokenProcessPool as error:
            self.close()
            raise MemlabError(
                "no process could be started; begin what your script does with "
                'if __name__ == "__main__":, or pass runner=memlab.fleet.Serial()'
            ) from error

    def submit(self, task: AnyTask, chunk: Chunk) -> Answer:
        try:
            return self._executor.submit(_work_through, task, chunk)
        except BrokenProcessPool:
            self.close()
            self._executor = self._started()
            return self._executor.submit(_work_through, task, chunk)

    def close(self) -> None:
        """End them; a second Ctrl-C meanwhile would leave Python waiting for them for ever."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._executor.shutdown(cancel_futures=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _started(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(LOADED_BEFORE))
        return ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin)


def _begin() -> None:
    """Leave Ctrl-C to the process that hands out, and end when that one ends."""

    def end_with(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what is imported stays, and is not looked through again and again
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()


@dataclass(frozen=True)
class Cluster:
    """The workers that a Dask client reaches, on other machines too.

    The `client` is connected and left open; `patience` is the seconds to wait for a first worker.
    """

    client: Any = field(repr=False)
    patience: float = PATIENCE

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes as they come; a MemlabError where nobody can do the work."""
        yield from schedule(_DaskPool(self.client, self.patience), task, members, given)


@contextmanager
def cluster_at(
    address: str | None = None, *, scheduler_file: Path | None = None, patience: float = PATIENCE
) -> Iterator[Cluster]:
    """Connect to a scheduler, by address or by the file that ``--scheduler-file`` wrote; then part.

    `patience` is the seconds to wait for an answer, and for a first worker. MemlabError where
    there is no scheduler.
    """
    distributed = import_extra("distributed", extra="fleet")
    file = None if scheduler_file is None else str(scheduler_file)
    if scheduler_file is not None and not scheduler_file.exists():
        raise MemlabError(f"there is no scheduler file {file}; is the scheduler running?")
    try:
        client = distributed.Client(
            address, scheduler_file=file, timeout=patience, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise MemlabError(
            f"no scheduler answers at {address or file} ({error}); start one with: dask scheduler"
        ) from error
    with client:
        yield Cluster(client, patience)


class _DaskPool(WorkerPool):
    """The workers of a client. Dask tries a chunk on other workers by itself."""

    def __init__(self, client: Any, patience: float) -> None:
        self.death_errors = (import_extra("distributed", extra="fleet").KilledWorker,)
        self._client = client
        self._patience = patience
        self._where = str(client.scheduler.address)
        self._wait_for_one()
        self.workers = max(1, sum(client.nthreads().values()))
        self._executor = client.get_executor(pure=False)

    def submit(self, task: AnyTask, chunk: Chunk) -> Answer:
        answer: Answer = self._executor.submit(work_as_version, task, chunk, memlab.__version__)
        return answer

    def heartbeat(self) -> None:
        """Wait for a worker, and raise a MemlabError when none comes."""
        if self._client.status != "running":
            raise MemlabError(
                f"the scheduler at {self._where} went away; what is done is done: run the same "
                "command again"
            )
        self._wait_for_one()

    def _wait_for_one(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise MemlabError(
                f"there is no worker at {self._where}, and none came in {self._patience:.0f} "
                f"seconds; what is done is done: start one with memlab {memlab.__version__} (dask "
                f"worker {self._where}) and run the same command again"
            ) from error


def work_as_version(task: AnyTask, chunk: Chunk, version: str) -> list[Outcome[Any]]:
    """Work through a chunk on a worker, whose memlab may be another; say which machine it is."""
    host = socket.gethostname()
    if version != memlab.__version__:
        raise MemlabError(
            f"the worker on {host} runs memlab {memlab.__version__} and the client {version}; "
            "install the same on every worker and start them again"
        )
    return [
        replace(each, error=f"on {host}: {each.error}")
        if each.kind == "MissingExtraError"
        else each
        for each in _work_through(task, chunk)
    ]


def usual_runner(members: Sequence[Member]) -> Runner:
    """Return who works where nobody was named: processes, where these pay for their start."""
    if len(members) < FEW and sum(member.size for member in members) < FEW_BYTES:
        return Serial()
    return Processes()
