"""A pool of processes on this machine."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Final

from memlab import arguments
from memlab.errors import MemlabError
from memlab.fleet.driving import Answer, Chunk, drive, work_through
from memlab.fleet.names import Member
from memlab.fleet.outcomes import Given, Outcome, Work, nothing

LOADED_BEFORE: Final = ("memlab.fleet.driving", "memlab.fleet.surveying")
"""What every worker needs, imported once and not in each."""


@dataclass(frozen=True)
class Processes:
    """Several processes on this machine, each with some stores at a time.

    A script that is run by Python itself begins what it does with
    ``if __name__ == "__main__":``, for each process imports it again.

    Parameters
    ----------
    count : int, optional
        How many; by default one for each processor that this process may use.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            arguments.whole_number("count", self.count, least=1)

    def run(
        self, work: Work, members: Sequence[Member], given: Given = nothing
    ) -> Iterator[Outcome[Any]]:
        """Yield an outcome for each of the members, as they come.

        Raises
        ------
        MemlabError
            When no process can be started.
        """
        crew = _Pool(self.count or len(os.sched_getaffinity(0)))
        try:
            yield from drive(crew, work, members, given)
        finally:
            crew.close()


class _Pool:
    """Processes that are started anew when one of them died."""

    attempts = 3
    deaths: tuple[type[BaseException], ...] = (BrokenProcessPool,)

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

    def submit(self, work: Work, chunk: Chunk) -> Answer:
        try:
            return self._executor.submit(work_through, work, chunk)
        except BrokenProcessPool as error:  # broken since the last answer: an answer like others
            future: Answer = Future()
            future.set_exception(error)
            return future

    def lost_with_it(self, running: set[Answer]) -> set[Answer]:
        """Return them all: a pool ends with any of its processes."""
        return wait(running).done

    def recover(self) -> None:
        self.close()
        self._executor = self._started()

    def look_after(self) -> None:
        """Nothing to do: a pool whose processes are gone says so by itself."""

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(LOADED_BEFORE))
        return ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin)


def _begin() -> None:
    """Leave Ctrl-C to the process that hands out, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what is imported stays, and is not looked through again and again
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
