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

ArgumentOf = Callable[[Member], Any]
"""Function that returns the extra argument of a task for one store.

The function is called just before the store is submitted, so that the arguments of all stores are
never in memory together.
"""
AnyTask: TypeAlias = "FleetTask[Any]"
Outcomes: TypeAlias = "Iterator[Outcome[Any]]"
Progress = Callable[[int, int], None]
"""Called with the number of finished stores and the number of all stores."""

MIN_STORES_FOR_PROCESSES: Final = 20
"""Number of stores from which processes save more time than they take to start."""
MIN_BYTES_FOR_PROCESSES: Final = 20_000_000
"""Total size of stores, in bytes, from which processes save more time than they take to start."""

SET_ASIDE: Final = "SetAside"
"""Kind of the error of a store that kills every process that works on it."""

MAX_CHUNK_STORES: Final = 50
"""Maximum number of stores in a chunk."""
LARGE_STORE_BYTES: Final = 16_000_000
"""Size in bytes above which a store is a chunk of its own."""
CHUNKS_PER_WORKER: Final = 2
"""Number of chunks submitted for each worker: one runs, and one waits."""
HEARTBEAT: Final = 10.0
"""Seconds without a result after which the pool checks that a worker is alive."""
PATIENCE: Final = 30.0
"""Seconds to wait for a scheduler to answer, and for a first worker."""
PRELOADED_MODULES: Final = ("memlab.fleet.workers", "memlab.fleet.sweep")
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

    Examples
    --------
    >>> Outcome("memory.db", error="there is no store memory.db", kind="StoreError").value is None
    True
    """

    name: str
    value: Row | None = None
    error: str = ""
    kind: str = ""
    state: str = ""


def no_argument(member: Member) -> None:
    """Return None, which means that the task takes no extra argument."""


@runtime_checkable
class Runner(Protocol):
    """Runs a task on the stores of a fleet.

    Examples
    --------
    A runner that works on one store after the other and prints each outcome:

    >>> class Printing:
    ...     def run(self, task, members, argument_of=no_argument):
    ...         for outcome in Serial().run(task, members, argument_of):
    ...             print(outcome)
    ...             yield outcome
    """

    def run(
        self, task: AnyTask, members: Sequence[Member], argument_of: ArgumentOf = no_argument
    ) -> Outcomes:
        """Yield the outcome of each member, in the order in which they finish.

        Parameters
        ----------
        task : FleetTask
            The task.
        members : sequence of Member
            The stores.
        argument_of : callable, optional
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
    """Takes the path or URL of a store, and the extra argument if it is not None."""
    row: type[Row]
    """The dataclass that `work` returns. Its field ``store``, if any, is the store's name."""
    changes: bool = False
    """Whether the task changes the store."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task. A folder holds only results of one task with the same settings."""
    depends_on: str | None = ""
    """Text that identifies the other input of the results, such as a digest; empty without any.

    A later run reuses only results with the same text. None means that no result is reused.
    """

    def do(self, member: Member, argument: Any = None) -> Outcome[Row]:
        """Run the task on one store, and return its row or its error. No exception is raised."""
        if member.problem:
            return Outcome(name=member.name, error=member.problem, kind="StoreError")
        state = member.state()
        try:
            if argument is None:
                value = self.work(member.location)
            else:
                value = self.work(member.location, argument)
            if self.changes:
                state = member.state()
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
    """Runs one store after the other, in this process.

    Examples
    --------
    >>> import memlab.fleet
    >>> table = memlab.fleet.survey(memlab.store_path("looked_up"), runner=Serial())
    >>> len(table)
    1
    """

    def run(
        self, task: AnyTask, members: Sequence[Member], argument_of: ArgumentOf = no_argument
    ) -> Outcomes:
        """Yield the outcomes in the order of the members."""
        for member in members:
            yield task.do(member, argument_of(member))


Chunk: TypeAlias = list[tuple[Member, Any]]
"""Stores that a worker runs in one go, each with the extra argument of the task."""
ChunkFuture: TypeAlias = "Future[list[Outcome[Any]]]"


class WorkerPool(ABC):
    """Workers that run chunks of stores."""

    workers: int
    """Number of chunks that run at the same time."""
    attempts: int = 1
    """Number of tries for a store that kills its worker."""
    death_errors: tuple[type[BaseException], ...] = ()
    """Errors of a chunk whose worker died."""

    @abstractmethod
    def submit(self, task: AnyTask, chunk: Chunk) -> ChunkFuture:
        """Submit a chunk, even after a worker has died."""

    def heartbeat(self) -> None:  # noqa: B027 - not every pool has to
        """Raise a MemlabError if no worker is left."""


def schedule(
    pool: WorkerPool, task: AnyTask, members: Sequence[Member], argument_of: ArgumentOf
) -> Outcomes:
    """Run a task in a pool, and yield the outcome of each member as it finishes.

    If a worker dies, any store of its chunk may be the cause. These stores run again one by one at
    the end.
    """

    def submit(chunk: list[Member]) -> ChunkFuture:
        return pool.submit(task, [(member, argument_of(member)) for member in chunk])

    waiting = chunks_of(members, pool.workers)
    running: dict[ChunkFuture, list[Member]] = {}
    suspects: list[Member] = []
    try:
        while waiting or running:
            while waiting and len(running) < CHUNKS_PER_WORKER * pool.workers:
                chunk = waiting.popleft()
                running[submit(chunk)] = chunk
            for future in _wait_for_any(pool, running):
                chunk = running.pop(future)
                outcomes = _result(pool, future)
                if outcomes is None:
                    suspects += chunk
                else:
                    yield from outcomes
        for member in suspects:
            yield _run_alone(pool, member, submit)
    finally:
        for future in running:
            future.cancel()


def chunks_of(members: Sequence[Member], workers: int) -> deque[list[Member]]:
    """Split the members into chunks, about eight for each worker.

    Each large store is a chunk of its own. These chunks come first, the largest store first.
    """
    large = [member for member in members if member.size > LARGE_STORE_BYTES]
    large.sort(key=lambda member: member.size, reverse=True)
    small = [member for member in members if member.size <= LARGE_STORE_BYTES]
    chunk_size = max(1, min(MAX_CHUNK_STORES, len(small) // (8 * workers)))
    chunks = deque([member] for member in large)
    chunks.extend(batched(small, chunk_size))
    return chunks


def _wait_for_any(pool: WorkerPool, running: Collection[ChunkFuture]) -> set[ChunkFuture]:
    """Wait until at least one chunk has finished, and return the finished ones."""
    while True:
        done, _ = wait(running, HEARTBEAT, return_when=FIRST_COMPLETED)
        if done:
            return done
        pool.heartbeat()


def _result(pool: WorkerPool, future: ChunkFuture) -> list[Outcome[Any]] | None:
    """Return the outcomes of a chunk; None if it killed its worker."""
    try:
        return future.result()
    except pool.death_errors:
        return None
    except CancelledError as error:
        raise MemlabError(
            "the process that hands out the work has ended; finished stores are kept: run the "
            "same command again"
        ) from error


def _run_alone(
    pool: WorkerPool, member: Member, submit: Callable[[list[Member]], ChunkFuture]
) -> Outcome[Any]:
    """Run one store alone, so that this store is the cause if the worker dies."""
    for _ in range(pool.attempts):
        future = submit([member])
        _wait_for_any(pool, [future])
        outcomes = _result(pool, future)
        if outcomes:
            (outcome,) = outcomes
            return outcome
    message = (
        "every process that worked on it died, so it was skipped; read it alone, with "
        "more memory: memlab show"
    )
    return Outcome(name=member.name, error=message, kind=SET_ASIDE)


def _run_chunk(task: AnyTask, chunk: Chunk) -> list[Outcome[Any]]:
    """Run the task on each store of a chunk, in a worker."""
    return [task.do(member, argument) for member, argument in chunk]


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

    def run(
        self, task: AnyTask, members: Sequence[Member], argument_of: ArgumentOf = no_argument
    ) -> Outcomes:
        """Yield the outcomes as they finish; raise a MemlabError if no process can be started."""
        with closing(_ProcessPool(self.count or len(os.sched_getaffinity(0)))) as pool:
            yield from schedule(pool, task, members, argument_of)


class _ProcessPool(WorkerPool):
    """Processes on this machine, which are all restarted when one of them dies."""

    attempts = 3
    death_errors = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor = self._start()
        try:
            self._executor.submit(os.getpid).result()
        except BrokenProcessPool as error:
            self.close()
            raise MemlabError(
                "no process could be started; begin what your script does with "
                'if __name__ == "__main__":, or pass runner=memlab.fleet.Serial()'
            ) from error

    def submit(self, task: AnyTask, chunk: Chunk) -> ChunkFuture:
        try:
            return self._executor.submit(_run_chunk, task, chunk)
        except BrokenProcessPool:
            self.close()
            self._executor = self._start()
            return self._executor.submit(_run_chunk, task, chunk)

    def close(self) -> None:
        """End the processes. Ctrl-C is blocked meanwhile, because it would make Python hang."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._executor.shutdown(cancel_futures=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _start(self) -> ProcessPoolExecutor:
        """Start the processes."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED_MODULES))
        return ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_initialize_process
        )


def _initialize_process() -> None:
    """Initialize a process: ignore Ctrl-C, and exit when the parent process ends."""

    def exit_with_parent(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # the collector skips imported modules, which are never freed
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()


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

    def run(
        self, task: AnyTask, members: Sequence[Member], argument_of: ArgumentOf = no_argument
    ) -> Outcomes:
        """Yield the outcomes as they finish; raise a MemlabError if no worker is left."""
        yield from schedule(_DaskPool(self.client, self.patience), task, members, argument_of)


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

    Examples
    --------
    >>> with cluster_at(scheduler_file=Path("scheduler.json")) as runner:
    ...     memlab.fleet.survey("agents/*.db", runner=runner)
    Traceback (most recent call last):
    memlab.errors.MemlabError: there is no scheduler file scheduler.json; is the scheduler running?
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
        self._wait_for_worker()
        self.workers = max(1, sum(client.nthreads().values()))
        self._executor = client.get_executor(pure=False)

    def submit(self, task: AnyTask, chunk: Chunk) -> ChunkFuture:
        future: ChunkFuture = self._executor.submit(
            run_chunk_on_dask, task, chunk, memlab.__version__
        )
        return future

    def heartbeat(self) -> None:
        """Wait for a worker; raise a MemlabError if none connects."""
        if self._client.status != "running":
            raise MemlabError(
                f"the scheduler at {self._where} has ended; finished stores are kept: run the same "
                "command again"
            )
        self._wait_for_worker()

    def _wait_for_worker(self) -> None:
        """Wait until at least one worker is connected."""
        try:
            self._client.wait_for_workers(1, timeout=self._patience)
        except TimeoutError as error:
            raise MemlabError(
                f"there is no worker at {self._where}, and none came in {self._patience:.0f} "
                f"seconds; finished stores are kept: start one with memlab {memlab.__version__} "
                f"(dask worker {self._where}) and run the same command again"
            ) from error


def run_chunk_on_dask(task: AnyTask, chunk: Chunk, version: str) -> list[Outcome[Any]]:
    """Run the task on each store of a chunk, on a worker of Dask.

    The error of a missing package names the worker's machine. Raise a MemlabError if `version`,
    the client's version of memlab, differs from the worker's.
    """
    host = socket.gethostname()
    if version != memlab.__version__:
        raise MemlabError(
            f"the worker on {host} runs memlab {memlab.__version__} and the client {version}; "
            "install the same on every worker and start them again"
        )
    outcomes = []
    for outcome in _run_chunk(task, chunk):
        if outcome.kind == "MissingExtraError":
            outcomes.append(replace(outcome, error=f"on {host}: {outcome.error}"))
        else:
            outcomes.append(outcome)
    return outcomes


def default_runner(members: Sequence[Member]) -> Runner:
    """Return the default runner: processes if they save more time than they take to start."""
    total_bytes = sum(member.size for member in members)
    if len(members) < MIN_STORES_FOR_PROCESSES and total_bytes < MIN_BYTES_FOR_PROCESSES:
        return Serial()
    return Processes()
