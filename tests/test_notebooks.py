"""Stored notebooks: executed in order, with answers, without private code or paths."""

import ast
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def tree_of(cell: dict[str, Any]) -> ast.Module:
    """Return the syntax tree of a cell without its magics."""
    return ast.parse("".join(line for line in cell["source"] if not line.startswith("%")))


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [cell for cell in code if "".join(cell["source"]).strip()]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def outputs_of(notebook: Path) -> list[dict[str, Any]]:
    return [output for cell in code_cells(notebook) for output in cell["outputs"]]


def test_notebooks_are_found() -> None:
    assert [path.stem for path in NOTEBOOKS][:2] == ["00_start", "01_growth"]


def test_cells_were_run_in_order_without_error(notebook: Path) -> None:
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {output["output_type"] for output in outputs_of(notebook)}
    assert len(kinds) > 0
    assert "error" not in kinds


def test_charts_are_stored_in_the_notebook(notebook: Path) -> None:
    outputs = [output.get("data", {}) for output in outputs_of(notebook)]
    pages = ["".join(data.get("text/html", ())) for data in outputs]
    charts = [page for page in pages if '<div class="memlab-chart">' in page]
    assert len(charts) > 0
    for chart in charts:
        assert "<title>" in chart
        assert "<desc>" in chart


def test_only_the_first_cell_sets_parameters(notebook: Path) -> None:
    first, *rest = code_cells(notebook)
    assert "parameters" in first["metadata"]["tags"]
    parameters = set(re.findall(r"^(\w+) = ", "".join(first["source"]), re.MULTILINE))
    assert "now" in parameters
    assert not parameters.isdisjoint({"store", "stores"})
    for cell in rest:
        if "parameters" not in cell["metadata"].get("tags", ()):
            assert "../" not in "".join(cell["source"])  # so that a copy runs


def test_notebook_begins_with_question_and_ends_with_answer(notebook: Path) -> None:
    first, *_, last = json.loads(notebook.read_text())["cells"]
    assert re.match(r"# .*\?\n", "".join(first["source"]))
    if notebook.stem != "00_start":
        (answer,) = last["outputs"]
        assert re.fullmatch(r"[A-Z].*\d.*\.\n", "".join(answer["text"]))


def test_cells_call_public_names_and_define_nothing(notebook: Path) -> None:
    for cell in code_cells(notebook):
        for node in ast.walk(tree_of(cell)):
            assert not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")


def test_no_local_path_is_stored(notebook: Path) -> None:
    text = notebook.read_text()
    for folder in (Path.home(), NOTEBOOKS[0].parent, "/tmp/", f"{tempfile.gettempdir()}/"):
        assert str(folder) not in text
    assert not re.findall(r"\b(DIGEST|FOLDER|CHART)\b", json.dumps(outputs_of(notebook)))


PAGES = [
    *NOTEBOOKS,
    *(NOTEBOOKS[0].parent.parent / "docs").rglob("*.md"),
    NOTEBOOKS[0].parent.parent / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_link_points_to_a_file(page: Path) -> None:
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        pages = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "".join(pages)
    outside_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    outside_code = re.sub(r"`[^`\n]*`", "", outside_code)
    links = re.findall(r"\]\(([^)#\s]+)", outside_code)
    files = [page.parent / link for link in links if ":" not in link]
    assert [file for file in files if not file.exists()] == []
