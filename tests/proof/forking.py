"""A small process that forks a child for each task.

Forking a process that has threads is not safe, and starting an interpreter per child is slow. So
one process without threads imports what the tasks need and forks; the tests talk to it over a pipe.
Each command is a name and its arguments, each answer is a value.
"""

import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import IO, Any, NamedTuple

Task = Callable[..., Any]


class Ended(NamedTuple):
    """How a child ended: by a signal, with an error, or with a result."""

    signal: int | None = None
    error: BaseException | None = None
    result: Any = None
    seconds: float = 0.0


class Forks:
    """Forks children and waits for them."""

    def __init__(self) -> None:
        self._answers: dict[int, IO[bytes]] = {}

    def start(self, task: Task, arguments: dict[str, Any]) -> int:
        """Fork a child that runs a task; return its process id."""
        # A pipe would hold up a child with much to say. wait() closes the file.
        answer = tempfile.TemporaryFile()  # noqa: SIM115
        pid = os.fork()
        if pid == 0:
            _run(task, arguments, answer)
        self._answers[pid] = answer
        return pid

    def wait(self, pid: int) -> Ended:
        """Wait until a child has ended."""
        _, status = os.waitpid(pid, 0)
        with self._answers.pop(pid) as answer:
            if os.WIFSIGNALED(status):
                return Ended(signal=os.WTERMSIG(status))
            answer.seek(0)
            error, result, seconds = pickle.load(answer)
        return Ended(error=error, result=result, seconds=seconds)

    def any_running(self, pids: list[int]) -> bool:
        """Whether one of these children has not ended."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return any(os.waitid(os.P_PID, pid, how) is None for pid in pids)

    def wait_until_stopped(self, pid: int) -> bool:
        """Wait until a child has stopped itself, or has ended; whether it has stopped."""
        waited = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert waited is not None
        return waited.si_code == os.CLD_STOPPED

    def kill(self, pid: int) -> Ended:
        """Kill a child, stopped or running."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def run(self, task: Task, arguments: dict[str, Any]) -> Ended:
        """Run a task to its end."""
        return self.wait(self.start(task, arguments))

    def run_and_kill(self, task: Task, arguments: dict[str, Any], delay: float) -> Ended:
        """Run a task and kill it after a delay in seconds, unless it has ended by then."""
        pid = self.start(task, arguments)
        until = time.perf_counter() + delay
        time.sleep(max(0.0, delay - 0.0005))
        while time.perf_counter() < until:
            pass
        return self.kill(pid)  # one that has ended is a zombie still, and ended by itself


def _run(task: Task, arguments: dict[str, Any], answer: IO[bytes]) -> None:
    began = time.perf_counter()
    error: BaseException | None = None
    result = None
    try:
        result = task(**arguments)
    except BaseException as caught:  # noqa: BLE001 - whatever it is, the test judges it
        error = caught
    pickle.dump((error, result, time.perf_counter() - began), answer)
    answer.flush()
    os._exit(0)


def serve(connection: Connection) -> None:
    """Carry out commands until the other end is closed."""
    forks = Forks()
    while True:
        try:
            command, arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(forks, command)(*arguments))


if __name__ == "__main__":
    for module in sys.argv[2:]:  # children find them imported
        import_module(module)
    from proof.forking import serve as serve_commands

    serve_commands(Connection(int(sys.argv[1])))
