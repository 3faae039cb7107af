import re
from pathlib import Path

import nbformat
import pytest
from stores import episodes, write_rows

from memlab.errors import MemlabError
from memlab.report.pages import (
    REPORT_NOTEBOOKS,
    fill_in_parameters,
    html_of,
    joined_notebooks,
    run_notebook,
)


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


@pytest.fixture(scope="module")
def executed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[nbformat.NotebookNode, list[tuple[int, int]]]:
    """A notebook that was run, and the progress that was told meanwhile."""
    seen: list[tuple[int, int]] = []
    notebook = notebook_of("print('<script>alert(1)</script>'); secret_name = 1", "2")
    run_notebook(notebook, tmp_path_factory.mktemp("run"), progress=lambda *at: seen.append(at))
    return notebook, seen


def test_progress_counts_every_cell(
    executed: tuple[nbformat.NotebookNode, list[tuple[int, int]]],
) -> None:
    assert executed[1] == [(1, 3), (2, 3), (3, 3)]


def test_a_failing_cell_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match="a cell of the analysis failed: ValueError: no such cap"):
        run_notebook(notebook_of("raise ValueError('no such cap')"), tmp_path)


def test_a_process_that_dies_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match="the analysis did not end: its process was stopped"):
        run_notebook(notebook_of("import os; os._exit(1)"), tmp_path)


def test_a_page_asks_for_nothing_and_shows_no_code(
    executed: tuple[nbformat.NotebookNode, list[tuple[int, int]]],
) -> None:
    page = html_of(executed[0], "title <b>")
    assert "secret_name" not in page
    assert "<script>alert" not in page
    assert "title <b>" not in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", page)
    assert not re.findall(r"@import|url\(\s*['\"]?https?:", page)


def test_stores_of_next_to_nothing_have_pages(tmp_path: Path) -> None:
    whole = nbformat.v4.new_notebook()
    for rows in (0, 1):
        path = write_rows(tmp_path / f"{rows}.db", episodes(rows))
        part = joined_notebooks(REPORT_NOTEBOOKS, {"store": str(path), "keep_recent": 50})
        for cell in part.cells:
            cell.id = f"{cell.id}-{rows}"
        whole.metadata, whole.cells = part.metadata, whole.cells + part.cells
    run_notebook(whole, tmp_path)
    page = html_of(whole, "next to nothing")
    assert "0 memories" in page
    assert "1 memories, 2026-03-01 to 2026-03-01" in page
    assert page.count("<svg ") >= 10
