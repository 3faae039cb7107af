"""``memlab lab``: JupyterLab on a copy of the notebooks."""

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from memlab.cli.options import STORE
from memlab.cli.output import print_lines
from memlab.cli.progress import quiet
from memlab.errors import MissingExtraError
from memlab.report.bundled import store_path
from memlab.store.database import store_file


@click.command(short_help="Open the notebooks in JupyterLab.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to put the notebooks; by default a folder of the store's own in memlab-notebooks. "
    "A notebook that is there already is left as it is.",
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
@click.option("--allow-root", is_flag=True, help="Start even as root, as in a container.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on.")
def lab(
    store: Path | None, folder: Path | None, no_browser: bool, allow_root: bool, port: int | None
) -> None:
    """Open the notebooks in JupyterLab, filled in with STORE.

    Without STORE they open on the bundled two years. The notebooks are copies, yours to change. The
    one that compacts a copy of a store is left out where STORE is no SQLite file; the one about
    Claude Code's memory looks at STORE where it is such a folder, and else at the bundled one.
    """
    from importlib.util import find_spec

    from memlab.report.notebooks import copy_notebooks, folder_for
    from memlab.sources.folder_source import FolderSource
    from memlab.sources.opening import open_source

    if find_spec("jupyterlab") is None:
        raise MissingExtraError(
            "this needs jupyterlab, which is not installed; run: pip install 'memlab[lab]'"
        )
    source = open_source(store_path("two_years") if store is None else store)
    name = str(store_file(source.name).resolve()) if source.scheme == "file" else source.name
    parameters = {"store": name}
    if store is not None:
        parameters["now"] = datetime.now(UTC).isoformat(timespec="seconds")
    if isinstance(source, FolderSource) and source.scheme == "claude":
        parameters |= {"memory": str(source.path), "projects": str(source.path.parent.parent)}
    folder = folder or folder_for(name)
    for path in copy_notebooks(folder, parameters, rehearsing=source.scheme == "file"):
        print_lines(f"wrote {path}")
    command = [sys.executable, "-m", "jupyterlab", str(folder)]
    command += ["--no-browser"] * no_browser + ["--allow-root"] * allow_root
    command += [f"--port={port}"] if port else []
    quiet()
    raise SystemExit(_run_to_its_end(command))


def _run_to_its_end(command: list[str]) -> int:
    """Return the exit code of a server that hears Ctrl-C itself, and asks before it stops.

    It ends when this process is told to.
    """
    with subprocess.Popen(command) as server:

        def stop(*_: object) -> None:
            server.terminate()

        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, stop)
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue
