"""Fixtures of the proofs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from proof.forking import Ended, Task

MEMORY = Path("/dev/shm")
"""A file system on which syncing costs nothing."""
SOURCES = tuple(
    f"memlab.systems.{name}" for name in ("memory_items.source", "claude_code.source", "odek")
)
"""What children need and would import each for itself."""


def _fast_folder() -> Path | None:
    return MEMORY if os.access(MEMORY, os.W_OK) else None


def environment() -> dict[str, str]:
    """For a process that imports what lies beside this folder."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "SQLITE_TMPDIR": str(_fast_folder() or tempfile.gettempdir()),
    }


class Children:
    """Children of a small process; every method is one of :class:`proof.forking.Forks`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def start(self, task: Task, **arguments: Any) -> int:
        return self._ask("start", task, arguments)

    def wait(self, pid: int) -> Ended:
        return self._ask("wait", pid)

    def any_running(self, pids: list[int]) -> bool:
        return self._ask("any_running", pids)

    def wait_until_stopped(self, pid: int) -> bool:
        return self._ask("wait_until_stopped", pid)

    def kill(self, pid: int) -> Ended:
        return self._ask("kill", pid)

    def run(self, task: Task, **arguments: Any) -> Ended:
        return self._ask("run", task, arguments)

    def run_and_kill(self, task: Task, delay: float, **arguments: Any) -> Ended:
        return self._ask("run_and_kill", task, arguments, delay)

    def _ask(self, command: str, *arguments: Any) -> Any:
        self._connection.send((command, arguments))
        assert self._connection.poll(120), f"no answer to {command}"
        return self._connection.recv()


@contextmanager
def forked(*modules: str, **variables: str) -> Iterator[Children]:
    """Children of a process that has imported modules, with these environment variables."""
    ours, theirs = Pipe()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "proof.forking", str(theirs.fileno()), *modules],
            pass_fds=[theirs.fileno()],
            env=environment() | variables,
        )
        theirs.close()
        yield Children(ours)
    assert process.wait(60) == 0


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    with forked("proof.tasks", *SOURCES) as made:
        yield made


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every user can enter, in memory where there is some."""
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(params=["wal", "delete"])
def journal(request: pytest.FixtureRequest) -> str:
    """How a store keeps its transactions."""
    return str(request.param)
