"""Tasks and programs in processes of their own, without starting an interpreter for each.

Forking a process that has threads is not safe. So a small process without threads imports the
modules of the tasks and forks a child for each; tests talk to it over a pipe. A child is like a
process of ``python -c``: it can be killed, become another user and change its folder. A test of the
start itself (the imports, a seed of hashes) starts an interpreter.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import iter_modules
from subprocess import CompletedProcess
from typing import IO, Any, NamedTuple

Task = Callable[..., Any]
PROGRAMS_NEED = tuple(
    f"memlab.{name}"
    for name in ("store", "sources", "frame", "policies", "compaction", "lifecycle")
)
PATIENCE = 600
"""Seconds to wait for an answer."""


class Ended(NamedTuple):
    """The end of a child: its exit code, and the error or result of its task."""

    code: int
    """Negative if the child was killed by that signal."""
    error: BaseException | None = None
    result: Any = None
    seconds: float = 0.0


class Forks:
    """Forks children and waits for them."""

    def __init__(self) -> None:
        self._answers: dict[int, IO[bytes]] = {}

    def start(self, task: Task, **arguments: Any) -> int:
        """Fork a child that runs a task; return its process id."""
        # A full pipe would block the child. wait() closes the file.
        answer = tempfile.TemporaryFile()  # noqa: SIM115
        pid = os.fork()
        if pid == 0:
            _run(task, arguments, answer)
        self._answers[pid] = answer
        return pid

    def wait(self, pid: int) -> Ended:
        """Wait until a child has ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with self._answers.pop(pid) as answer:
            if code != 0:
                return Ended(code)
            answer.seek(0)
            ended: Ended = pickle.load(answer)
            return ended

    def any_running(self, pids: list[int]) -> bool:
        """True if one of these children has not ended."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return any(os.waitid(os.P_PID, pid, flags) is None for pid in pids)

    def kill(self, pid: int) -> Ended:
        """Kill a child, stopped or running."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def run(self, task: Task, **arguments: Any) -> Ended:
        """Run a task to its end."""
        return self.wait(self.start(task, **arguments))

    def run_and_kill(self, task: Task, delay: float, **arguments: Any) -> Ended:
        """Run a task and kill it after a delay in seconds, unless it has ended by then."""
        pid = self.start(task, **arguments)
        until = time.perf_counter() + delay
        time.sleep(max(0.0, delay - 0.0005))
        while time.perf_counter() < until:
            pass
        return self.kill(pid)  # a child that has ended is still a zombie


def _run(task: Task, arguments: dict[str, Any], answer: IO[bytes]) -> None:
    began = time.perf_counter()
    error: BaseException | None = None
    result = None
    try:
        result = task(**arguments)
    except BaseException as caught:  # noqa: BLE001 - the test checks the error
        error = caught
    seconds = time.perf_counter() - began
    pickle.dump(Ended(code=0, error=error, result=result, seconds=seconds), answer)
    answer.flush()
    os._exit(0)


class Children:
    """Children of another process: every method of :class:`Forks` can be called here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, command: str) -> Callable[..., Any]:
        def ask(*words: Any, **arguments: Any) -> Any:
            self._connection.send((command, words, arguments))
            assert self._connection.poll(PATIENCE), f"no answer to {command}"
            return self._connection.recv()

        return ask


@contextmanager
def forked(*modules: str, cwd: Path | None = None, **variables: str) -> Iterator[Children]:
    """Fork children from a process that imported some modules, with these environment variables.

    All modules of a package are imported. Modules in the folder `cwd` are imported from there.
    """
    ours, theirs = Pipe()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), *modules],
            cwd=cwd,
            pass_fds=[theirs.fileno()],
            # Threads do not survive a fork.
            env=environment() | {"OPENBLAS_NUM_THREADS": "1"} | variables,
        )
        theirs.close()
        yield Children(ours)
    assert process.wait(60) == 0


def environment() -> dict[str, str]:
    """Return the environment of a process that imports the tests' helpers."""
    paths = [str(Path(__file__).parents[2])]
    if os.environ.get("PYTHONPATH"):  # an empty part would be the current folder
        paths.append(os.environ["PYTHONPATH"])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run_program(
    program: str,
    *command: object,
    cwd: Path | str | None = None,
    children: Children | None = None,
) -> CompletedProcess[str]:
    """Run a program as ``python -c program words`` does.

    It runs in a child of a process that imported this memlab, or in one of the given children.
    """
    parent = children or children_with(*PROGRAMS_NEED)
    arguments = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "stdout")
        errors = Path(folder, "stderr")
        ended = parent.run(
            _be_program,
            program=program,
            words=arguments,
            cwd=cwd or Path.cwd(),
            environment=dict(os.environ),
            output=output,
            errors=errors,
        )
        return CompletedProcess(
            args=[program, *arguments],
            returncode=ended.result if ended.code == 0 else ended.code,
            stdout=output.read_text(errors="replace"),
            stderr=errors.read_text(errors="replace"),
        )


def children_with(*modules: str) -> Children:
    """Return children of a process with these modules, which ends with this one.

    A process that was itself forked gets one of its own.
    """
    return _lasting_children(os.getpid(), modules)


@cache
def _lasting_children(owner: int, modules: tuple[str, ...]) -> Children:
    started = ExitStack()
    children = started.enter_context(forked(*modules))

    def close_in_owner() -> None:
        if os.getpid() == owner:
            started.close()

    atexit.register(close_in_owner)
    return children


def _be_program(
    program: str,
    words: list[str],
    cwd: Path,
    environment: dict[str, str],
    output: Path,
    errors: Path,
) -> int:
    """Run a program in this process and return its exit code."""
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT, 0o600), 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *words]
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        return 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - print any error, as an interpreter does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def serve(connection: Connection, modules: list[str]) -> None:
    """Import modules, and carry out commands until the other end is closed."""
    for name in modules:
        module = import_module(name)
        for submodule in iter_modules(getattr(module, "__path__", ()), f"{name}."):
            import_module(submodule.name)
    forks = Forks()
    while True:
        try:
            command, options, arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(forks, command)(*options, **arguments))


if __name__ == "__main__":
    import_module("tests.support.programs").serve(Connection(int(sys.argv[1])), sys.argv[2:])
