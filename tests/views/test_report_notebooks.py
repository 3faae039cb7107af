"""Notebooks are copied for one store, each parameter stated once."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import memlab
from memlab.views.bundled import copy_notebooks, fill_in_parameters, notebook_paths


def notebook_of(parameters: str) -> nbformat.NotebookNode:
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    return nbformat.v4.new_notebook(cells=[first, nbformat.v4.new_code_cell("store = 'mine'")])


def test_parameters_take_the_place_of_those_the_notebook_states() -> None:
    notebook = notebook_of("# whose\nstore = 'bundled.db'\ncaps = (\n    1,\n    2,\n)\nkeep = 50")
    fill_in_parameters(notebook, {"store": "it's.db", "target": 0.9, "caps": (5,)})
    names: dict[str, object] = {}
    exec(notebook.cells[0].source, names)
    assert (names["store"], names["caps"], names["keep"]) == ("it's.db", (5,), 50)
    assert "target" not in names
    assert notebook.cells[0].source.splitlines()[0] == "# whose"
    assert notebook.cells[1].source == "store = 'mine'"


def test_each_name_is_set_once_in_every_copy(tmp_path: Path) -> None:
    given = {"store": str(tmp_path / "memory.db"), "now": "2026-07-01T00:00:00Z"}
    copies = copy_notebooks(tmp_path, given)
    assert [copy.name for copy in copies] == [path.name for path in notebook_paths()]
    for copy in copies:
        cells = nbformat.read(copy, as_version=4).cells
        tagged = (cell for cell in cells if "parameters" in cell.metadata.get("tags", ()))
        source = next(tagged).source
        names = re.findall(r"^(\w+) = ", source, re.MULTILINE)
        assert len(names) == len(set(names)), copy.name
        filled_in = given.keys() & names
        assert filled_in, copy.name
        assert {f"{name} = {given[name]!r}" for name in filled_in} <= set(source.splitlines())


def run_notebook(name: str, folder: Path, **parameters: object) -> str:
    """Run a notebook filled in with parameters; return what it shows, as text."""
    path = next(path for path in copy_notebooks(folder, parameters) if path.stem == name)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    )


@pytest.mark.long
def test_notebooks_see_the_whole_past_of_a_compacted_store(tmp_path: Path) -> None:
    path = memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    past = memlab.load(path)
    memlab.apply(memlab.plan(path, memlab.KeepRecent(100)))
    shown = run_notebook("04_compare_policies", tmp_path, store=str(path), caps=(10,), days=(7,))
    table = memlab.compare(past, memlab.find_references(past), [memlab.KeepRecent(10)]).table
    line = next(line for line in shown.splitlines() if line.startswith("recent 10 "))
    assert f"{table.loc['recent 10', 'served']:.3f}".rstrip("0") in line
    shown = run_notebook("03_size_keep_recent", tmp_path / "03", store=str(path))
    assert f"{memlab.recommend_cap(past).numbers} (" in shown
