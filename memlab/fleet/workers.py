"""Tasks on the stores of a fleet, and the runners that execute them.

An error in one store never ends the run. When a worker process dies, its stores are submitted
again one by one.
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
"""Returns the extra argument of a task for one store, just before the store is submitted."""
AnyTask: TypeAlias = "FleetTask[Any]"
Outcomes: TypeAlias = "Iterator[Outcome[Any]]"
Progress = Callable[[int, int], None]
"""Called with the number of finished stores and the number of all stores."""

FEW: Final = 20
"""Number of stores below which starting processes takes longer than the work."""
FEW_BYTES: Final = 20_000_000
"""Total size in bytes below which starting processes takes longer than the work."""

SET_ASIDE: Final = "SetAside"
"""Kind of the error of a store that kills every process that works on it."""

TOGETHER: Final = 50
"""Maximum number of stores in a chunk: the middle of the efficient range on Dask."""
LARGE: Final = 16_000_000
"""Size in bytes above which a store is a chunk of its own."""
AHEAD: Final = 2
"""Chunks submitted for each worker: one that runs and one that waits."""
HEARTBEAT: Final = 10.0
"""Seconds without a result after which the pool is asked whether any worker is alive."""
PATIENCE: Final = 30.0
"""Seconds to wait for a scheduler to answer, and for a first worker."""
LOADED_BEFORE: Final = ("memlab.fleet.workers", "memlab.fleet.sweep")
"""Modules that the fork server imports once for all processes."""


@dataclass(frozen=True)
class Outcome(Generic[Row]):
    """The result of a task on one store, or its error. It can be pickled.

    Attributes
    ----------
    name : str
        The store's name.
    value : Row or None
        The row that the task returned; None if it failed.
    error : str
        The error's message; empty if there is none.
    kind : str
        Name of the error's class; empty if there is none.
    state : str
        :meth:`Member.state` just before the store was read, or just after it was changed; empty if
        unknown.
    """

    name: str
    value: Row | None = None
    error: str = ""
    kind: str = ""
    state: str = ""


def nothing(member: Member) -> None:
    """Return None: the task takes no extra argument."""


@runtime_checkable
class Runner(Protocol):
    """Runs a task on the stores of a fleet."""

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcome of each member, in the order in which they finish.

        Parameters
        ----------
        task : FleetTask
            The task.
        members : sequence of Member
            The stores.
        given : callable, optional
            Returns the extra argument of the task for a store.

        Raises
        ------
        MemlabError
            If no worker is left.
        """
        ...


@dataclass(frozen=True)
class FleetTask(Generic[Row]):
    """A function to run on each store, and the identity of its results. It can be pickled."""

    name: str
    """Name of the task, such as ``"survey"``."""
    work: Callable[..., Row]
    """Takes the path or URL of a store, and the extra argument if there is one."""
    row: type[Row]
    """The dataclass of a row. A field ``store`` repeats the name of the outcome."""
    changes: bool = False
    """Whether the task changes the store."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task; results of other settings are never reused."""
    rests_on: str | None = ""
    """Other input of the results. A later run reuses those with the same input; None: never."""

    def do(self, member: Member, given: Any = None) -> Outcome[Row]:
        """Run the task on one store, and return its row or its error. No error is raised."""
        if member.problem:
            return Outcome(name=member.name, error=member.problem, kind="StoreError")
        state = member.state()
        arguments = (member.where,) if given is None else (member.where, given)
        try:
            value = self.work(*arguments)
            if self.changes:
                return Outcome(name=member.name, value=value, state=member.state())
            return Outcome(name=member.name, value=value, state=state)
        except MemlabError as error:
            message = str(error)
            kind = type(error).__name__
        except Exception as error:  # noqa: BLE001 - one store must not end the run of all
            kind = type(error).__name__
            message = f"memlab failed on it: {kind}: {error}"
        return Outcome(name=member.name, error=message, kind=kind, state=state)


@dataclass(frozen=True)
class Serial:
    """Runs one store after the other, in this process."""

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes in the order of the members."""
        for member in members:
            yield task.do(member, given(member))


Chunk: TypeAlias = list[tuple[Member, Any]]
Answer: TypeAlias = "Future[list[Outcome[Any]]]"


class WorkerPool(ABC):
    """Workers that run chunks of stores."""

    workers: int
    """Number of chunks that run at the same time."""
    attempts: int = 1
    """Number of tries for a store that kills its worker."""
    death_errors: tuple[type[BaseException], ...] = ()
    """Errors of a chunk whose worker died."""

    @abstractmethod
    def submit(self, task: AnyTask, chunk: Chunk) -> Answer:
        """Submit a chunk, even after a worker has died."""

    def heartbeat(self) -> None:  # noqa: B027 - not every pool has to
        """Raise a MemlabError if no worker is left."""


def schedule(pool: WorkerPool, task: AnyTask, members: Sequence[Member], given: Given) -> Outcomes:
    """Run a task in a pool, and yield the outcome of each member as it finishes.

    Stores whose chunk killed its worker are tried again one by one at the end.
    """

    def submit(chunk: list[Member]) -> Answer:
        return pool.submit(task, [(member, given(member)) for member in chunk])

    waiting = chunks_of(members, pool.workers)
    running: dict[Answer, list[Member]] = {}
    suspects: list[Member] = []
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * pool.workers:
                chunk = waiting.popleft()
                running[submit(chunk)] = chunk
            for answer in _answered(pool, running):
                chunk = running.pop(answer)
                outcomes = _result(pool, answer)
                if outcomes is None:
                    suspects += chunk
                else:
                    yield from outcomes
        for member in suspects:
            yield _run_alone(pool, member, submit)
    finally:
        for answer in running:
            answer.cancel()


def chunks_of(members: Sequence[Member], workers: int) -> deque[list[Member]]:
    """Return the members in chunks: each large one alone and first, then about eight a worker."""
    large = [member for member in members if member.size > LARGE]
    large.sort(key=lambda member: -member.size)
    small = [member for member in members if member.size <= LARGE]
    length = max(1, min(TOGETHER, len(small) // (8 * workers)))
    chunks = deque([member] for member in large)
    chunks.extend(batched(small, length))
    return chunks


def _answered(pool: WorkerPool, running: Collection[Answer]) -> set[Answer]:
    """Wait until at least one chunk has finished, and return the finished ones."""
    while True:
        done, _ = wait(running, HEARTBEAT, return_when=FIRST_COMPLETED)
        if done:
            return done
        pool.heartbeat()


def _result(pool: WorkerPool, answer: Answer) -> list[Outcome[Any]] | None:
    """Return the outcomes of a chunk; None if it killed its worker."""
    try:
        return answer.result()
    except pool.death_errors:
        return None
    except CancelledError as error:
        raise MemlabError(
            "whoever hands out the work went away; what is done is done: run the same command again"
        ) from error


def _run_alone(
    pool: WorkerPool, member: Member, submit: Callable[[list[Member]], Answer]
) -> Outcome[Any]:
    """Run a store while no other one runs, so that it is to blame if the worker dies."""
    for _ in range(pool.attempts):
        answer = submit([member])
        _answered(pool, [answer])
        outcomes = _result(pool, answer)
        if outcomes:
            return outcomes[0]
    message = (
        "it ended every process that worked on it and was set aside; look at it alone, with more "
        "memory: memlab show"
    )
    return Outcome(name=member.name, error=message, kind=SET_ASIDE)


def _work_through(task: AnyTask, chunk: Chunk) -> list[Outcome[Any]]:
    """Run the task on each store of a chunk; workers execute this function."""
    return [task.do(member, given) for member, given in chunk]


@dataclass(frozen=True)
class Processes:
    """Runs stores in several processes on this machine.

    A script needs ``if __name__ == "__main__":`` around its code, because each process imports it.

    Parameters
    ----------
    count : int, optional
        Number of processes; by default one for each processor that this process may use.

    Raises
    ------
    ValueError
        If `count` is less than 1.

    Examples
    --------
    >>> Processes(4)
    Processes(count=4)
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            arguments.whole_number("count", self.count, least=1)

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes as they finish; raise a MemlabError if no process can be started."""
        with closing(_ProcessPool(self.count or len(os.sched_getaffinity(0)))) as pool:
            yield from schedule(pool, task, members, given)


class _ProcessPool(WorkerPool):
    """Processes on this machine, which are all restarted when one of them dies."""

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
        """End the processes, with Ctrl-C blocked: a second one would make Python wait for ever."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._executor.shutdown(cancel_futures=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _started(self) -> ProcessPoolExecutor:
        """Start the processes."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(LOADED_BEFORE))
        return ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin)


def _begin() -> None:
    """Initialize a process: ignore Ctrl-C, and exit when the parent process ends."""

    def end_with(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # the collector skips imported modules, which are never freed
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()


@dataclass(frozen=True)
class Cluster:
    """Runs stores on the workers of a Dask client, which may be on other machines.

    Parameters
    ----------
    client : distributed.Client
        A connected client; it stays open.
    patience : float
        Seconds to wait for a first worker.
    """

    client: Any = field(repr=False)
    patience: float = PATIENCE

    def run(self, task: AnyTask, members: Sequence[Member], given: Given = nothing) -> Outcomes:
        """Yield the outcomes as they finish; raise a MemlabError if no worker is left."""
        yield from schedule(_DaskPool(self.client, self.patience), task, members, given)


@contextmanager
def cluster_at(
    address: str | None = None, *, scheduler_file: Path | None = None, patience: float = PATIENCE
) -> Iterator[Cluster]:
    """Connect to a Dask scheduler, yield its workers as a runner, and disconnect.

    Parameters
    ----------
    address : str, optional
        Address of the scheduler, such as ``tcp://HOST:8786``.
    scheduler_file : Path, optional
        The file that ``dask scheduler --scheduler-file`` wrote, instead of an address.
    patience : float
        Seconds to wait for an answer, and for a first worker.

    Yields
    ------
    Cluster
        The runner.

    Raises
    ------
    MemlabError
        If there is no scheduler.
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
    """The workers of a Dask client. Dask retries a chunk on other workers."""

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
        """Wait for a worker; raise a MemlabError if none connects."""
        if self._client.status != "running":
            raise MemlabError(
                f"the scheduler at {self._where} went away; what is done is done: run the same "
                "command again"
            )
        self._wait_for_one()

    def _wait_for_one(self) -> None:
        """Wait until at least one worker is connected."""
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise MemlabError(
                f"there is no worker at {self._where}, and none came in {self._patience:.0f} "
                f"seconds; what is done is done: start one with memlab {memlab.__version__} (dask "
                f"worker {self._where}) and run the same command again"
            ) from error


def work_as_version(task: AnyTask, chunk: Chunk, version: str) -> list[Outcome[Any]]:
    """Run the task on each store of a chunk, on a worker of Dask.

    Name the machine in errors of missing packages. Raise a MemlabError if the worker's memlab has
    another version than the client's.
    """
    host = socket.gethostname()
    if version != memlab.__version__:
        raise MemlabError(
            f"the worker on {host} runs memlab {memlab.__version__} and the client {version}; "
            "install the same on every worker and start them again"
        )
    outcomes = []
    for outcome in _work_through(task, chunk):
        if outcome.kind == "MissingExtraError":
            outcomes.append(replace(outcome, error=f"on {host}: {outcome.error}"))
        else:
            outcomes.append(outcome)
    return outcomes


def usual_runner(members: Sequence[Member]) -> Runner:
    """Return the default runner: processes if they save more time than they take to start."""
    if len(members) < FEW and sum(member.size for member in members) < FEW_BYTES:
        return Serial()
    return Processes()
