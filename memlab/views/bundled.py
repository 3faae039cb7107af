"""Stores and notebooks that are bundled with memlab, and copies of the notebooks for a store."""

import ast
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.columns import PRUNABLE
from memlab.errors import MemlabError, StoreError
from memlab.files import write_whole
from memlab.lazy import import_extra
from memlab.sources.base import Source
from memlab.sources.opening import settings_of
from memlab.store.database import store_file
from memlab.views.needs import needs_met

if TYPE_CHECKING:
    from nbformat import NotebookNode

_PACKAGE = Path(__file__).resolve().parent.parent
DATA: Final = "../data/"
"""Prefix of the paths in notebooks that name bundled data."""

JUPYTER_SETTINGS: Final = Path(__file__).resolve().parent / "jupyter"
"""Folder with settings of JupyterLab, for its variable ``JUPYTER_CONFIG_PATH``."""

START: Final = "00_start.ipynb"
"""The notebook that lists the questions that the other notebooks answer."""

BUNDLED: Final = "bundled"
"""Tag of a cell that is about bundled data."""

NEEDS: Final = "needs-"
"""Prefix of the tags of a cell that name its needs, such as ``needs-reads``."""

UNANSWERED: Final = "unanswered"
"""Tag of a cell that replaces the cells that a store cannot answer."""

_NEEDS_OF_MEMORIES: Final = (
    "memories",
    "present",
    "prunable",
    "present-prunable",
    "load-bearing",
    "loaded",
    "references",
    "reads",
)
"""Needs that can be checked only after the memories of a store were read."""

STORE_NAME_FILE: Final = "store.txt"
"""File beside the notebooks with the name of their store."""


class StoreFacts(NamedTuple):
    """The parameters of a store's notebooks, and the needs of their cells that the store meets."""

    parameters: Mapping[str, Any]
    """Values of the cell with the tag ``parameters``, by name."""
    has: frozenset[str]
    """The needs that the store meets, such as ``"references"``."""


EXAMPLE_CAP: Final = 50
"""The cap in notebooks. For a store with at most as many prunable memories, it is half of them."""


def store_names() -> tuple[str, ...]:
    """Return the names that :func:`store_path` knows, in alphabetical order.

    Examples
    --------
    >>> store_names()
    ('looked_up', 'three_hundred_issues', 'two_years')
    """
    return tuple(sorted(path.stem for path in folder_of("data").glob("*.db")))


def store_path(name: str) -> Path:
    """Return the path of a bundled store, which can be read on a read-only file system.

    Parameters
    ----------
    name : str
        One of :func:`memlab.views.store_names`.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    ValueError
        If no bundled store has this name.

    Examples
    --------
    >>> store_path("two_years").name
    'two_years.db'
    """
    expect(name, str, call="memlab.store_path", name="name")
    # The name is looked up and never used as a path.
    if name not in store_names():
        raise ValueError(f"name must be one of {', '.join(store_names())}, not {name!r}")
    return folder_of("data") / f"{name}.db"


def notebook_paths() -> tuple[Path, ...]:
    """Return the paths of the bundled notebooks, in reading order."""
    return tuple(sorted(folder_of("notebooks").glob("[0-9]*.ipynb")))


def folder_of(name: str) -> Path:
    """Return a bundled folder, which is in an installed package or beside it in a checkout."""
    installed = _PACKAGE / "_bundled" / name
    if installed.is_dir():
        return installed
    return _PACKAGE.parent / name


def folder_for(store: str) -> Path:
    """Return the folder for the notebooks of a store. It depends only on the name of the store.

    >>> folder_for("/agents/one/memory.db") == folder_for("/agents/two/memory.db")
    False
    >>> folder_for("redis://localhost:6379/0").name.rpartition("-")[0]
    'redis-localhost-6379-0'
    """
    digest = hashlib.sha256(store.encode()).hexdigest()
    readable = store.partition("?")[0] if ":" in store else Path(store).stem
    slug = re.sub(r"[^.\w]+", "-", readable)
    return Path("memlab-notebooks") / f"{slug}-{digest[:6]}"


def fill_in_parameters(notebook: "NotebookNode", parameters: Mapping[str, Any]) -> None:
    """Set values in the cell with the tag ``parameters``; other values of the cell stay."""
    for cell in notebook.cells:
        if _has_parameters(cell):
            cell.source = _with_values(cell.source, parameters)


def _has_parameters(cell: "NotebookNode") -> bool:
    """Return whether a cell has the tag ``parameters``."""
    return "parameters" in cell.metadata.get("tags", ())


def facts_of(source: Source, *, now: datetime, log: Path | None = None) -> StoreFacts:
    """Return the parameters of a store's notebooks, and the needs that the store meets.

    Raise StoreError if a file or folder cannot be read. For a server, which may only be down, the
    notebooks keep all their cells.
    """
    name = str(store_file(source.name).resolve()) if source.is_native_format else source.name
    parameters: dict[str, Any] = {"store": name, "now": now.isoformat(timespec="seconds")}
    logs = settings_of(source).log if log is None else (log.resolve(),)
    parameters["reads"] = str(logs[0]) if logs else None
    parameters["stores"] = [name]
    parameters["projects"] = None
    if source.local_path is not None:
        store_folder = source.local_path.parent
        parameters["projects"] = str(store_folder.parent)
    from memlab.evidence.past import present_rows
    from memlab.evidence.store_history import StoreHistory

    try:
        history = StoreHistory.of(source, log, call="memlab lab", now=now).with_references()
    except MemlabError as error:
        # No notebook can answer anything on a file that is no store.
        if isinstance(error, StoreError) and not source.is_server:
            raise
        # All cells are kept: the cell that reads the store then shows the error.
        possible_needs = set(_NEEDS_OF_MEMORIES)
        if source.is_native_format:
            possible_needs.add("copy")
        if source.index is not None:
            possible_needs.add("folder")
        return StoreFacts(parameters, frozenset(possible_needs))
    prunable = int(present_rows(history.past)[PRUNABLE].sum())
    if prunable <= EXAMPLE_CAP:
        parameters["keep_recent"] = prunable // 2
    return StoreFacts(parameters, needs_met(history))


def copy_notebooks(folder: Path, facts: StoreFacts | None = None) -> list[Path]:
    """Copy the bundled notebooks into a folder, without outputs and with a store's parameters.

    For a store that is not bundled, cells about bundled data are left out, and cells that the store
    cannot answer are replaced by an explanation. Notebooks that exist already are not changed.

    Parameters
    ----------
    folder : Path
        The folder.
    facts : StoreFacts, optional
        The store's facts; by default the notebooks are for the bundled stores.

    Returns
    -------
    list of Path
        The notebooks that were written.

    Raises
    ------
    MemlabError
        If the folder holds notebooks of another store.
    """
    nbformat = import_extra("nbformat", extra="lab")
    store = str(store_path("two_years")) if facts is None else facts.parameters["store"]
    name_file = folder / STORE_NAME_FILE
    if name_file.is_file():
        store_of_folder = name_file.read_text(encoding="utf-8").strip()
        if store_of_folder != store:
            raise MemlabError(
                f"the notebooks in {folder} are for {store_of_folder}; "
                "name another folder with --folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(name_file, f"{store}\n".encode())
    written = []
    for path in notebook_paths():
        copy = folder / path.name
        if copy.exists():
            continue
        notebook = nbformat.read(path, as_version=4)
        if facts is not None:
            notebook.cells = _cells_for(notebook.cells, facts)
        fill_in_parameters(notebook, {} if facts is None else facts.parameters)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
                cell.execution_count = None
        write_whole(copy, nbformat.writes(notebook).encode())
        written.append(copy)
    return written


def _cells_for(cells: "list[NotebookNode]", facts: StoreFacts) -> "list[NotebookNode]":
    """Return the cells for a store, with checks and explanations of needs.

    An explanation replaces the cells with a need that the store does not meet. For each need that
    the store meets, a new cell checks that it still does; this cell comes before the first code
    cell with that need.
    """
    nbformat = import_extra("nbformat", extra="lab")
    cells_to_write: list[NotebookNode] = []
    explained: set[str] = set()
    checked: set[str] = set()
    has_log = any(_assigns(cell, "reads") for cell in cells)
    for cell in cells:
        tags = cell.metadata.get("tags", ())
        if BUNDLED in tags:
            continue
        needs = [tag.removeprefix(NEEDS) for tag in tags if tag.startswith(NEEDS)]
        missing = [need for need in needs if need not in facts.has]
        if not missing:
            unchecked = [need for need in needs if need not in checked]
            if unchecked and cell.cell_type == "code":
                checked.update(unchecked)
                check = nbformat.v4.new_code_cell(_check_of(unchecked, has_log=has_log))
                cells_to_write.append(check)
            cells_to_write.append(cell)
            continue
        first_missing = missing[0]
        if first_missing not in explained:
            explained.add(first_missing)
            code = f'import memlab\n\nprint(memlab.views.unanswered(store, "{first_missing}"))'
            explanation = nbformat.v4.new_code_cell(code)
            explanation.metadata.tags = [UNANSWERED]
            cells_to_write.append(explanation)
    return cells_to_write


def _assigns(cell: "NotebookNode", name: str) -> bool:
    """Return whether a cell with the tag ``parameters`` assigns a name."""
    if not _has_parameters(cell):
        return False
    return any(line.startswith(f"{name} = ") for line in cell.source.splitlines())


def _check_of(needs: list[str], *, has_log: bool) -> str:
    """Return the code that checks that a store still meets the needs of the next cells."""
    arguments = ", ".join(["store", *(f'"{need}"' for need in needs)])
    if has_log:
        arguments += ", log=reads"
    return (
        "# the store may have changed since this notebook was written\n"
        f"import memlab\n\nmemlab.views.require({arguments})"
    )


def _with_values(source: str, parameters: Mapping[str, Any]) -> str:
    """Return code with new values in its assignments; paths of bundled data become absolute."""
    lines = source.splitlines()
    # From the last to the first, because a replacement may change the number of lines.
    for node in reversed(ast.parse(source).body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        value_in_notebook = getattr(node.value, "value", None)
        if name in parameters:
            value = parameters[name]
        elif isinstance(value_in_notebook, str) and value_in_notebook.startswith(DATA):
            value = str(folder_of("data") / value_in_notebook.removeprefix(DATA))
        else:
            continue
        lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {value!r}"]
    return "\n".join(lines)
