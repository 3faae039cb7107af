"""Stores and notebooks that come with memlab, to be read; copies of notebooks for a store."""

import ast
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.columns import KIND, PRUNABLE, RECALLED
from memlab.errors import MemlabError
from memlab.files import write_whole
from memlab.lazy import import_extra
from memlab.sources.base import Source
from memlab.sources.opening import settings_of
from memlab.store.database import store_file

if TYPE_CHECKING:
    from nbformat import NotebookNode

_PACKAGE = Path(__file__).resolve().parent.parent
DATA: Final = "../data/"
"""How a notebook names what lies in the bundled folder beside it."""

START: Final = "00_start.ipynb"
"""The notebook that says which of the others answers which question."""

BUNDLED: Final = "bundled"
"""Tag of a cell that speaks of bundled data."""

NEEDS: Final = "needs-"
"""How a tag begins that names what a store must have for a cell to say something of it."""

UNANSWERED: Final = "unanswered"
"""Tag of the cell that stands where a store cannot answer."""

WHOSE: Final = "store.txt"
"""The file beside the notebooks that says whose they are."""


class StoreFacts(NamedTuple):
    """What a store's notebooks are filled in with, and which needs of their cells it meets."""

    parameters: Mapping[str, Any]
    has: frozenset[str]


def store_names() -> tuple[str, ...]:
    """Return the names that :func:`store_path` knows, in alphabetical order.

    Examples
    --------
    >>> store_names()
    ('looked_up', 'three_hundred_issues', 'two_years')
    """
    return tuple(sorted(path.stem for path in folder_of("data").glob("*.db")))


def store_path(name: str) -> Path:
    """Return where a bundled store lies, readable where nothing can be written.

    `name` is one of :func:`memlab.views.store_names`.

    Examples
    --------
    >>> store_path("two_years").name
    'two_years.db'
    """
    expect(name, str, call="memlab.store_path", name="name")
    # A name is looked up, never read as a path.
    if name not in store_names():
        raise ValueError(f"name must be one of {', '.join(store_names())}, not {name!r}")
    return folder_of("data") / f"{name}.db"


def notebook_paths() -> tuple[Path, ...]:
    """Return where the notebooks lie, in reading order."""
    return tuple(sorted(folder_of("notebooks").glob("[0-9]*.ipynb")))


def folder_of(name: str) -> Path:
    """Return a bundled folder: inside an installed package, beside a checkout's."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def folder_for(store: str) -> Path:
    """Return the name of a store's own folder of notebooks: the same for the same store.

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
    """Put `parameters` into the cell tagged ``parameters``; keep what is stated of bundled data."""
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source = _with_values(cell.source, parameters)


def facts_of(source: Source, *, now: datetime, log: Path | None = None) -> StoreFacts:
    """Look at a store, and return what its notebooks are filled in with and can answer."""
    name = str(store_file(source.name).resolve()) if source.is_native_format else source.name
    parameters: dict[str, Any] = {"store": name, "now": now.isoformat(timespec="seconds")}
    logs = settings_of(source).log if log is None else (log.resolve(),)
    parameters["reads"] = str(logs[0]) if logs else None
    parameters["stores"] = [name]
    parameters["projects"] = (
        str(source.permissions_template.parent.parent)
        if source.permissions_template is not None
        else None
    )
    from memlab.evidence.references import (
        collect_evidence,  # names of bundled stores need no pandas
    )

    has = {"copy": source.is_native_format, "folder": source.cuts_index}
    try:
        evidence = collect_evidence(source, log, call="memlab lab", now=now)
    except MemlabError:  # a notebook says why a store cannot be read, where it is read
        has |= dict.fromkeys(("memories", "prunable", "loaded", "references", "reads"), True)
    else:
        past = evidence.past
        has |= {
            "memories": len(past) > 0,
            "prunable": bool(past[PRUNABLE].any()),
            "loaded": not past.attrs.get(RECALLED),
            "references": len(evidence.references) > 0,
            "reads": bool((evidence.references[KIND] == "log").any()),
        }
    return StoreFacts(parameters, frozenset(need for need, is_met in has.items() if is_met))


def copy_notebooks(folder: Path, facts: StoreFacts | None = None) -> list[Path]:
    """Copy the bundled notebooks into `folder`, without outputs and filled in for a store.

    What is said of bundled data is left out where the store is another, and what the store cannot
    answer gives way to one cell that says so.
    """
    nbformat = import_extra("nbformat", extra="lab")
    store = str(store_path("two_years")) if facts is None else facts.parameters["store"]
    whose = folder / WHOSE
    other = whose.read_text(encoding="utf-8").strip() if whose.is_file() else store
    if other != store:
        raise MemlabError(
            f"the notebooks in {folder} are for {other}; name another folder with --folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(whose, f"{store}\n".encode())
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
    """Return the cells that are true of a store; one in place of those it cannot answer."""
    nbformat = import_extra("nbformat", extra="lab")
    kept: list[NotebookNode] = []
    said: set[str] = set()
    for cell in cells:
        tags = cell.metadata.get("tags", ())
        if BUNDLED in tags:
            continue
        needs = [tag.removeprefix(NEEDS) for tag in tags if tag.startswith(NEEDS)]
        missing = [need for need in needs if need not in facts.has]
        if not missing:
            kept.append(cell)
        elif missing[0] not in said:
            said.add(missing[0])
            code = f'import memlab\n\nprint(memlab.views.unanswered(store, "{missing[0]}"))'
            place = nbformat.v4.new_code_cell(code)
            place.metadata.tags = [UNANSWERED]
            kept.append(place)
    return kept


def _with_values(source: str, parameters: Mapping[str, Any]) -> str:
    """Return code with the values of the names that it assigns, each assigned once."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        stated = getattr(node.value, "value", None)
        if name in parameters:
            value = parameters[name]
        elif isinstance(stated, str) and stated.startswith(DATA):
            value = str(folder_of("data") / stated.removeprefix(DATA))
        else:
            continue
        lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {value!r}"]
    return "\n".join(lines)
