"""The commands ``report``, which draws charts, and ``lab``, which opens the notebooks."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

import memlab.views
from memlab.cli import options, output
from memlab.clock import now_utc
from memlab.files import check_writable
from memlab.lazy import missing_extra
from memlab.views.bundled import store_path
from memlab.views.drawing import CHARTS, draw

_LIST_OF_CHARTS: Final = "\b\nNAME is one of\n" + "\n".join(
    f"  {name:<15} {drawing.shows}" for name, drawing in CHARTS.items()
)


@click.command(short_help="Write one HTML file with charts, or one chart.", epilog=_LIST_OF_CHARTS)
@click.argument("store", type=options.STORE, required=False)
@options.file_option(
    "-o", "--output", "file", help="The file to write.  [default: memlab-report.html, or NAME.svg]"
)
@click.option(
    "--chart",
    "name",
    type=click.Choice(sorted(CHARTS)),
    metavar="NAME",
    help="Draw this chart alone: an SVG file that follows the reader's theme, or a PNG file.",
)
@options.flag_option("--narrow", help="Draw the chart for a narrow column.")
@options.file_option(
    "--record", help="Also write a decision record in Markdown, and the plan to review beside it."
)
@options.question_options
def report(
    store: Path | None,
    file: Path | None,
    name: str | None,
    narrow: bool,
    record: Path | None,
    **goal: Any,
) -> None:
    """Write a report on STORE as one self-contained HTML file, or one chart of it.

    The store is only read. Without STORE, the report is on the bundled store of two years.
    """
    if name:
        if record:
            raise click.UsageError("--record goes with the report: leave out --chart")
        _write_chart(name, store, file or Path(f"{name}.svg"), goal, narrow=narrow)
        return
    file = file or Path("memlab-report.html")
    if file.suffix != ".html":
        raise click.UsageError(f"{file.name} must end in .html; --chart NAME writes a picture")
    if narrow:
        raise click.UsageError("--narrow needs --chart NAME")
    path, now = options.store_and_now(store)
    on_step = output.progress_callback("drawing")
    output.show_progress("reading the store and sizing it")
    written = memlab.report(path, file, record=record, now=now, progress=on_step, **goal)
    output.print_result(written, is_example=store is None)


def _write_chart(
    name: str, store: Path | None, file: Path, goal: dict[str, Any], *, narrow: bool
) -> None:
    """Write one chart of a store to an SVG or PNG file, and print its title."""
    from memlab.charts.figure import NARROW
    from memlab.sources.opening import open_source

    if file.suffix not in {".svg", ".png"}:
        raise click.UsageError(f"{file.name} must end in .svg or .png")
    path, now = options.store_and_now(store)
    output.show_progress("reading the store and sizing it")
    check_writable(file)
    chart = draw(name, memlab.views.examine(path, now=now, **goal))
    picture = chart.at(width=NARROW) if narrow else chart
    output.write_picture(picture, file, open_source(path))
    output.print_lines(f"chart: {file}", f"  {chart.title}")


@click.command(short_help="Open the notebooks in JupyterLab.")
@click.argument("store", type=options.STORE, required=False)
@options.path_option(
    "--folder",
    help="Folder for the notebooks; by default one for each store in memlab-notebooks. Existing "
    "notebooks are not changed.",
)
@options.flag_option("--no-browser", help="Print the address instead of opening it.")
@options.flag_option("--allow-root", help="Start even as root, as in a container.")
@options.log_option
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on.")
def lab(
    store: Path | None,
    folder: Path | None,
    no_browser: bool,
    allow_root: bool,
    log: Path | None,
    port: int | None,
) -> None:
    """Open the notebooks in JupyterLab on STORE.

    The first notebook lists which one answers which question. They are copies that you can change.
    If STORE cannot answer a question, one cell says so, with the command that would change it.
    Without STORE, the notebooks open on the bundled stores.
    """
    from importlib.util import find_spec

    from memlab.sources.opening import open_source
    from memlab.views.bundled import (
        JUPYTER_SETTINGS,
        START,
        copy_notebooks,
        facts_of,
        folder_for,
    )

    if find_spec("jupyterlab") is None:
        raise missing_extra("jupyterlab", "lab")
    facts = None if store is None else facts_of(open_source(store), now=now_utc(), log=log)
    name = str(store_path("two_years")) if facts is None else facts.parameters["store"]
    folder = folder or folder_for(name)
    for path in copy_notebooks(folder, facts):
        output.print_lines(f"wrote {path}")
    server = [sys.executable, "-m", "jupyterlab", str(folder)]
    server += [f"--LabApp.default_url=/lab/tree/{START}"]
    if no_browser:
        server.append("--no-browser")
    if allow_root:
        server.append("--allow-root")
    if port:
        server.append(f"--port={port}")
    output.clear_progress()
    # JupyterLab does not ask whether to fetch news. Folders of the user's own take precedence.
    config_path = str(JUPYTER_SETTINGS)
    user_config_path = os.environ.get("JUPYTER_CONFIG_PATH")
    if user_config_path:
        config_path = f"{user_config_path}{os.pathsep}{config_path}"
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": config_path}
    # The server replaces this process, so it receives Ctrl-C itself, and asks before it stops.
    os.execve(server[0], server, environment)  # noqa: S606 - this Python, with fixed arguments
