"""Whatever a store's file holds, memlab ends with a result or one of its errors."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pytest

from proof.conftest import environment
from proof.readers import READERS

FILES = int(os.environ.get("MEMLAB_HOSTILE_FILES", "300"))
"""How many mutated stores are used, from seed 0 on: more of them are a night's work."""
SPOILT = FILES if "MEMLAB_HOSTILE_FILES" in os.environ else 60
"""How many times files of each reader are spoilt."""
PROCESSES = 2
PATIENCE = 60.0
"""Seconds after which a store counts as one that hangs."""


class Worker:
    """A process that examines one seed after another, and is replaced when it breaks."""

    def __init__(self, scratch: Path, what: str = "stores") -> None:
        self._arguments = str(scratch), what
        self._start()

    def send(self, seed: int) -> None:
        self.seed, self.since = seed, time.monotonic()
        self.connection.send(seed)

    def answer(self) -> str | None:
        """What is wrong with the seed that was sent."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            self._start()
            return f"seed {self.seed}: the process ended with {code}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_late(self) -> bool:
        return time.monotonic() - self.since > PATIENCE

    def replace(self) -> str:
        self._process.kill()
        return self.answer() or ""

    def stop(self) -> None:
        self.connection.close()
        assert self._process.wait(60) == 0

    def _start(self) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-X", "faulthandler", "-m", "proof.examining"),
                    *(str(theirs.fileno()), *self._arguments),
                ],
                pass_fds=[theirs.fileno()],
                env=environment(),
            )


def verdicts(seeds: Iterator[int], scratch: Path, what: str) -> Iterator[str | None]:
    """Have seeds examined by several processes; yield what is wrong with each."""
    workers = [Worker(scratch, what) for _ in range(PROCESSES)]
    busy: dict[Connection, Worker] = {}
    idle = list(workers)
    while True:
        for worker, seed in zip(idle[:], seeds):  # noqa: B905 - as many as there are
            worker.send(seed)
            busy[worker.connection] = worker
            idle.remove(worker)
        if not busy:
            break
        ready = [busy.pop(connection) for connection in wait(list(busy), timeout=1.0)]
        yield from (worker.answer() for worker in ready)
        late = [worker for worker in busy.values() if worker.is_late()]
        for worker in late:
            del busy[worker.connection]
            yield f"{worker.replace()}, hanging"
        idle += ready + late
    for worker in workers:
        worker.stop()


def test_every_hostile_file_ends_in_a_result_or_an_error(scratch: Path) -> None:
    found = list(verdicts(iter(range(FILES)), scratch, "stores"))
    assert len(found) == FILES
    assert [each for each in found if each is not None] == []


@pytest.mark.parametrize("reader", READERS)
def test_what_nobody_spoilt_is_read_and_changed(reader: str, tmp_path: Path) -> None:
    made = READERS[reader](tmp_path)
    made.make()
    for use in (*made.looks(), *made.changes()):
        use()
    made.check()


def test_every_spoilt_file_ends_in_a_result_or_an_error(scratch: Path) -> None:
    count = SPOILT * len(READERS)
    found = list(verdicts(iter(range(count)), scratch, "readers"))
    assert len(found) == count
    assert [each for each in found if each is not None] == []


def test_a_process_that_dies_or_hangs_is_a_verdict(scratch: Path) -> None:
    for number, wanted in ((signal.SIGSEGV, "ended with -11"), (signal.SIGSTOP, "ended with -9")):
        worker = Worker(scratch)
        worker.send(7)
        os.kill(worker.pid, number)
        verdict = worker.replace() if number == signal.SIGSTOP else worker.answer()
        assert verdict == f"seed 7: the process {wanted}"
        worker.stop()
