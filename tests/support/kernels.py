"""Kernels of notebooks that are forked from a process with memlab's modules, and start at once.

A kernel takes two seconds to start and to import the modules of each notebook; a forked one has
imported them. .ci/extras.py runs each notebook in a kernel that starts by itself, with the extra
``lab``.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.programs import Children, children_with

KERNELS_NEED = (
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "matplotlib_inline.backend_inline",
    "numba",
    "memlab.charts",
    "memlab.fleet",
    "memlab.views",
)


class ForkedKernel:
    """A forked child with the methods of :class:`subprocess.Popen` that Jupyter calls."""

    stdin = None
    stdout = None
    stderr = None

    def __init__(self, children: Children, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._children = children

    def poll(self) -> int | None:
        if self.returncode is None and not self._children.any_running([self.pid]):
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._children.wait(self.pid).code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def launch_kernel(
    command: list[str], *, env: dict[str, str], cwd: str | None = None, **_: Any
) -> ForkedKernel:
    """Launch a Python kernel as :func:`jupyter_client.launcher.launch_kernel` does, but fork it."""
    module = command.index("ipykernel_launcher")
    children = children_with(*KERNELS_NEED)
    with tempfile.TemporaryDirectory() as folder:
        has_session = Path(folder, "has_session")
        os.mkfifo(has_session)
        pid = children.start(
            be_kernel,
            arguments=command[module:],
            environment=env,
            cwd=cwd or str(Path.cwd()),
            has_session=has_session,
        )
        # Jupyter kills the kernel's process group, which must not be this process's.
        has_session.read_bytes()
    return ForkedKernel(children, pid)


def be_kernel(
    arguments: list[str], environment: dict[str, str], cwd: str, has_session: Path
) -> None:
    """Be a kernel until Jupyter shuts it down, or the process that forked it ends."""
    os.setsid()
    has_session.write_bytes(b"")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.environ.clear()
    os.environ.update(environment | {"JPY_PARENT_PID": str(os.getppid())})
    os.chdir(cwd)
    sys.argv = arguments
    import pandas as pd
    from ipykernel.kernelapp import launch_new_instance

    # The default of pandas if it is imported in a kernel: no terminal limits the width of a table.
    pd.set_option("display.max_columns", 20)
    launch_new_instance()
