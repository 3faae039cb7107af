"""Programs that run in processes of their own, without an interpreter's start for each.

One process that has memlab imported forks a child a program. The child is as real as one begun with
``python -c``: it can be killed, become another user and change its folder. A test whose claim is
about the start itself (what is imported, a seed of hashes) begins an interpreter.
"""

import atexit
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import iter_modules
from subprocess import CompletedProcess
from typing import IO, Any, NoReturn


def run_program(
    program: str,
    *words: object,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
) -> CompletedProcess[str]:
    """Run a program as ``python -c program words`` does; `env` is added to the environment."""
    connection = _forks(os.getpid())
    environment = {**os.environ, **(env or {})}
    connection.send((program, [str(word) for word in words], str(cwd or Path.cwd()), environment))
    assert connection.poll(120), "no answer to a program"
    return CompletedProcess([program, *map(str, words)], *connection.recv())


@cache
def _forks(owner: int) -> Connection:
    """Start the process that forks; a process that was itself forked gets one of its own."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "programs", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
            },
        )

    def end() -> None:
        if os.getpid() == owner:
            ours.close()
            process.wait(60)

    atexit.register(end)
    return ours


def _serve(connection: Connection) -> None:
    while True:
        try:
            connection.send(_ran(*connection.recv()))
        except EOFError:
            return


def _ran(program: str, words: Sequence[str], cwd: str, env: dict[str, str]) -> tuple[Any, ...]:
    """Fork a child that runs a program; return its code, what it printed and what it complained."""
    # A pipe would hold up a child with much to say.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        pid = os.fork()
        if pid == 0:
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            _run(program, words, printed, complained)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (printed, complained):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return code, *texts


def _run(program: str, words: Sequence[str], printed: IO[bytes], complained: IO[bytes]) -> NoReturn:
    """Be the program, and end with its code as an interpreter does."""
    os.dup2(printed.fileno(), 1)
    os.dup2(complained.fileno(), 2)
    sys.argv = ["-c", *words]
    code = 0
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - an interpreter's last words, whatever it is
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _import_all(package: str) -> None:
    """Import all that children may want of a package."""
    for module in iter_modules(import_module(package).__path__, f"{package}."):
        import_module(module.name)


if __name__ == "__main__":
    for package in ("store", "sources", "frame", "policies", "compaction", "lifecycle"):
        _import_all(f"memlab.{package}")
    _serve(Connection(int(sys.argv[1])))
