import re
from pathlib import Path

import nbformat
import pytest

from memlab.errors import MemlabError
from memlab.report.pages import fill_in_parameters, html_of, run_notebook


def notebook_of(*cells: str, parameters: str = "store = 'bundled.db'") -> nbformat.NotebookNode:
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    return nbformat.v4.new_notebook(cells=[first, *(nbformat.v4.new_code_cell(c) for c in cells)])


def test_parameters_are_filled_in_where_the_notebook_states_them() -> None:
    notebook = notebook_of(parameters="store = 'bundled.db'\nkeep_recent = 50")
    fill_in_parameters(notebook, {"store": "it's.db", "target": 0.9})
    names: dict[str, object] = {}
    exec(notebook.cells[0].source, names)
    assert names["store"] == "it's.db"
    assert names["keep_recent"] == 50
    assert "target" not in names


def test_progress_counts_every_cell(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run_notebook(notebook_of("1", "2"), tmp_path, progress=lambda *at: seen.append(at))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_failing_cell_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match="a cell of the analysis failed: ValueError: no such cap"):
        run_notebook(notebook_of("raise ValueError('no such cap')"), tmp_path)


def test_a_process_that_dies_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match="the analysis did not end: its process was stopped"):
        run_notebook(notebook_of("import os; os._exit(1)"), tmp_path)


def test_a_page_asks_for_nothing_and_shows_no_code(tmp_path: Path) -> None:
    notebook = notebook_of("print('<script>alert(1)</script>'); secret_name = 1")
    run_notebook(notebook, tmp_path)
    page = html_of(notebook, "title <b>")
    assert "secret_name" not in page
    assert "<script>alert" not in page
    assert "title <b>" not in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", page)
    assert not re.findall(r"@import|url\(\s*['\"]?https?:", page)
