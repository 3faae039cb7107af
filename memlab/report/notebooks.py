"""Copies of the notebooks, filled in for a store: a folder a store."""

import ast
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memlab.errors import MemlabError
from memlab.extras import import_extra
from memlab.files import write_whole
from memlab.report.bundled import example_of_claude, example_of_odek, notebook_paths

if TYPE_CHECKING:
    from nbformat import NotebookNode

PARAMETERS_TAG: Final = "parameters"
"""Marks the cell of a notebook that states its parameters."""

REHEARSAL: Final = "02_compact.ipynb"
"""The notebook that compacts a copy of a store."""

WHOSE: Final = "store.txt"
"""The file beside the notebooks that says whose they are."""


def folder_for(store: str) -> Path:
    """Return the name of a store's own folder of notebooks: the same for the same store.

    Parameters
    ----------
    store : str
        An absolute path, or the name of a store elsewhere.

    Examples
    --------
    >>> folder_for("/agents/one/memory.db") == folder_for("/agents/two/memory.db")
    False
    >>> folder_for("redis://localhost:6379/0").name.rpartition("-")[0]
    'redis-localhost-6379-0'
    """
    digest = hashlib.sha256(store.encode()).hexdigest()
    own = store.partition("?")[0] if ":" in store else Path(store).stem
    named = re.sub(r"[^.\w]+", "-", own)
    return Path("memlab-notebooks") / f"{named}-{digest[:6]}"


def fill_in_parameters(notebook: "NotebookNode", parameters: Mapping[str, Any]) -> None:
    """Put `parameters` into the cell tagged ``parameters``, in place of the values it states.

    A parameter that the notebook does not state is left out: notebooks state different ones.
    """
    for cell in notebook.cells:
        if PARAMETERS_TAG in cell.metadata.get("tags", ()):
            cell.source = _with_values(cell.source, parameters)


def copy_notebooks(
    folder: Path, parameters: Mapping[str, Any], *, rehearsing: bool = True
) -> list[Path]:
    """Copy the bundled notebooks into `folder`, without outputs and with `parameters` filled in.

    Parameters
    ----------
    folder : Path
        Made where it is not there.
    parameters : mapping
        By name; ``store`` among them.
    rehearsing : bool
        Whether the notebook that compacts a copy of the store is among them, which takes a file.

    Returns
    -------
    list of Path
        The files written. A notebook that is there already is left as it is.

    Raises
    ------
    MemlabError
        When the notebooks in `folder` are another store's.
    """
    nbformat = import_extra("nbformat", extra="lab")
    store = str(parameters["store"])
    other = store_of(folder)
    if other not in {None, store}:
        raise MemlabError(
            f"the notebooks in {folder} are for {other}; name another folder with --folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WHOSE, f"{store}\n".encode())
    written = []
    for path in notebook_paths():
        copy = folder / path.name
        if copy.exists() or (path.name == REHEARSAL and not rehearsing):
            continue
        notebook = nbformat.read(path, as_version=4)
        fill_in_parameters(notebook, example_of_odek() | example_of_claude() | dict(parameters))
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        write_whole(copy, nbformat.writes(notebook).encode())
        written.append(copy)
    return written


def store_of(folder: Path) -> str | None:
    """Return the store that the notebooks in a folder are for; None where there are none."""
    if (folder / WHOSE).is_file():
        return (folder / WHOSE).read_text(encoding="utf-8").strip()
    nbformat = import_extra("nbformat", extra="lab")
    for path in (folder / path.name for path in notebook_paths()):
        if path.is_file():
            try:
                cells = nbformat.read(path, as_version=4).cells
            except (OSError, ValueError, nbformat.ValidationError):
                continue
            return next(filter(None, map(_store_stated, cells)), None)
    return None


def _store_stated(cell: "NotebookNode") -> str | None:
    """Return the store that a cell of parameters names last."""
    if PARAMETERS_TAG not in cell.metadata.get("tags", ()):
        return None
    try:
        stated = dict(_assignments(cell.source))
        return str(ast.literal_eval(stated["store"].value)) if "store" in stated else None
    except (SyntaxError, ValueError):
        return None


def _with_values(source: str, parameters: Mapping[str, Any]) -> str:
    """Return code with the values of the names that it assigns, each assigned once."""
    lines = source.splitlines()
    for name, stated in reversed(_assignments(source)):
        if name in parameters:
            last = stated.end_lineno or stated.lineno
            lines[stated.lineno - 1 : last] = [f"{name} = {parameters[name]!r}"]
    return "\n".join(lines)


def _assignments(source: str) -> list[tuple[str, ast.Assign]]:
    """Return the names that code assigns, each with its statement, from the first line on."""
    return [
        (target.id, node)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
