"""Run the notebooks' analysis on a store and write what it shows as one HTML file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memlab.errors import MemlabError
from memlab.extras import import_extra
from memlab.files import write_whole
from memlab.report.bundled import notebook_paths

if TYPE_CHECKING:
    from nbformat import NotebookNode

REPORT_NOTEBOOKS: Final = ("01_growth", "03_size_keep_recent")
"""The notebooks whose analysis a report shows, in order."""

PARAMETERS_TAG: Final = "parameters"
"""Marks the cell of a notebook that states its parameters."""
NOT_IN_REPORT_TAG: Final = "not-in-report"
"""Marks a cell that speaks to somebody who reads the notebook, not a report."""

_STYLE: Final = """<style>
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
.jp-InputPrompt, .jp-OutputPrompt, .jp-InputCollapser, .jp-OutputCollapser { display: none; }
.jp-RenderedMarkdown, .jp-OutputArea-output { padding-left: 0 !important; }
.jp-OutputArea-output table { margin-left: 0; }
.jp-OutputArea-output th:first-child, .jp-OutputArea-output td:first-child { text-align: left; }
</style>
"""
"""Text and results on one left edge, at a width that reads well."""

Progress = Callable[[int, int], None]
"""Called with how many cells are done and how many there are."""


def write_report(
    output: Path,
    parameters: dict[str, Any],
    *,
    name: str,
    progress: Progress | None = None,
) -> None:
    """Run the notebooks on a store and write one self-contained HTML file.

    The file holds its charts and styles, asks for nothing from anywhere, and appears whole or not
    at all.

    Parameters
    ----------
    output : Path
        The file to write; an existing one is replaced.
    parameters : dict
        Values for names that the notebooks' first cell states: ``store``, ``now`` and so on. Each
        must be a string, a number or None.
    name : str
        What the report calls the store.
    progress : callable, optional
        Called after every cell.

    Raises
    ------
    MemlabError
        When a cell fails; the message is the error's own.
    MissingExtraError
        When the ``report`` extra is not installed.
    """
    notebook = joined_notebooks(REPORT_NOTEBOOKS, parameters)
    heading = f"# Memory report: {_without_markdown(name)}"
    notebook.cells.insert(0, import_extra("nbformat", extra="report").v4.new_markdown_cell(heading))
    with tempfile.TemporaryDirectory() as folder:
        run_notebook(notebook, Path(folder), progress=progress)
    write_whole(output, html_of(notebook, f"Memory report: {name}"))


def joined_notebooks(names: tuple[str, ...], parameters: dict[str, Any]) -> "NotebookNode":
    """Return the named bundled notebooks as one, in reading order, with `parameters` filled in."""
    nbformat = import_extra("nbformat", extra="report")
    whole: NotebookNode = nbformat.v4.new_notebook()
    for path in notebook_paths():
        if path.stem not in names:
            continue
        part = nbformat.read(path, as_version=4)
        fill_in_parameters(part, parameters)
        whole.metadata = part.metadata
        whole.cells += [
            cell for cell in part.cells if NOT_IN_REPORT_TAG not in cell.metadata.get("tags", ())
        ]
    return whole


def fill_in_parameters(notebook: "NotebookNode", parameters: dict[str, Any]) -> None:
    """Assign `parameters` at the end of the cell tagged ``parameters``, those it states.

    A parameter that the notebook does not state is left out: notebooks state different ones.
    """
    for cell in notebook.cells:
        if PARAMETERS_TAG in cell.metadata.get("tags", ()):
            stated = {line.partition("=")[0].strip() for line in cell.source.splitlines()}
            cell.source += "".join(
                f"\n{name} = {value!r}" for name, value in parameters.items() if name in stated
            )


def run_notebook(
    notebook: "NotebookNode", folder: Path, *, progress: Progress | None = None
) -> None:
    """Execute every cell of `notebook` in place, with `folder` as the kernel's working folder.

    Raises
    ------
    MemlabError
        When a cell fails, takes more than ten minutes, or ends its kernel.
    """
    nbclient = import_extra("nbclient", extra="report")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    done: list[int] = []

    def cell_executed(**_: object) -> None:
        done.append(1)
        if progress is not None:
            progress(len(done), len(cells))

    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
        on_cell_executed=cell_executed,
        # Otherwise the kernel says at every start that it listens on the loopback.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise MemlabError(f"a cell of the analysis failed: {error.ename}: {error.evalue}") from None
    except (nbclient.exceptions.CellTimeoutError, nbclient.exceptions.DeadKernelError) as error:
        raise MemlabError(
            "the analysis did not end: its process was stopped or took more than ten minutes for a "
            "cell; look whether there is enough memory, and try again"
        ) from error


def html_of(notebook: "NotebookNode", title: str) -> str:
    """Return an executed notebook as one HTML page: no code, and nothing fetched from anywhere."""
    nbconvert = import_extra("nbconvert", extra="report")
    exporter = nbconvert.HTMLExporter(
        exclude_input=True,
        exclude_output_prompt=True,
        require_js_url="",
        mathjax_url="",
        jquery_url="",
        mermaid_js_url="",
        html_manager_semver_range="",
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(page).replace("</head>", f"{_STYLE}</head>", 1)


def copy_notebooks(folder: Path, parameters: dict[str, Any]) -> list[Path]:
    """Copy the bundled notebooks into `folder`, without outputs and with `parameters` filled in.

    Returns
    -------
    list of Path
        The files written. A notebook that is there already is left as it is.
    """
    nbformat = import_extra("nbformat", extra="report")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in notebook_paths():
        copy = folder / path.name
        if copy.exists():
            continue
        notebook = nbformat.read(path, as_version=4)
        fill_in_parameters(notebook, parameters)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        write_whole(copy, nbformat.writes(notebook).encode())
        written.append(copy)
    return written


def _without_markdown(text: str) -> str:
    """Return `text` so that neither Markdown nor HTML sees anything in it but text."""
    return "".join(each if each.isalnum() or each == " " else f"&#{ord(each)};" for each in text)
