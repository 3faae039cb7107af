"""``memlab.rows`` as a grid and the report page in a real browser."""

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import Lab
from tests.support.claude_store import at, memory, project_folder, write_index, write_memory
from tests.support.shell import output_of
from tests.support.stores import episodes, row, write_rows

LOUD = """</script><script>window.ran=1</script><img src=x onerror="window.ran=2">'`${1}"""
CELL = 'import memlab\nmemlab.rows("memory.db", memlab.KeepRecent(20))'


def check_grid(page: Page, grid: Locator) -> None:
    """Page, sort and filter the grid, and check that no script of a memory ran."""
    info = grid.locator(".dt-info")
    ids = grid.locator("tbody tr td:first-child")
    expect(info).to_have_text("Showing 1 to 10 of 41 entries")
    expect(ids.first).to_have_text(LOUD)
    grid.locator(".dt-paging-button", has_text="2").click()
    expect(info).to_have_text("Showing 11 to 20 of 41 entries")
    grid.locator("th", has_text="memory_id").first.click()
    expect(info).to_have_text("Showing 1 to 10 of 41 entries")
    expect(ids.nth(2)).to_have_text("e10")
    grid.locator(".dt-search input").fill("e40")
    expect(ids).to_have_text("e40")
    assert page.evaluate("window.ran") is None


def test_notebook_and_exported_page_show_rows_as_a_grid(
    page: Page, lab: Lab, artifacts: Path
) -> None:
    """The store and the name of its folder hold markup."""
    own_row = row(LOUD, "semantic", LOUD, title=LOUD, authored_by=LOUD, body="x" * 400)
    write_rows(lab.folder / "memory.db", [own_row, *episodes(40)])
    (lab.folder / "evil.js").write_text("window.ran = 3")
    (lab.folder / "itables.toml").write_text('allow_html = true\ndt_bundle = "evil.js"\n')
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata=kernel)
    file = lab.folder / "rows.ipynb"
    nbformat.write(notebook, file)
    lab.open(page, file.name)
    lab.run_all(page)
    grid = page.locator(".dt-container")
    expect(grid).to_be_visible()
    grid.screenshot(path=artifacts / "rows-grid.png")
    check_grid(page, grid)
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    expect(page.locator(".jp-mod-dirty")).to_have_count(0)
    body, _ = HTMLExporter(template_name="basic").from_filename(str(file))
    page.set_content(body)
    check_grid(page, page.locator(".dt-container"))


MIDDLE_OF_LINES = """() => [...document.querySelectorAll('svg')].filter(
  (svg) => svg.checkVisibility() && svg.querySelector('path > title')
).map((svg) => {
  svg.scrollIntoView({block: 'center'});
  const lines = [...svg.querySelectorAll('path')].filter(
    (path) => path.matches('[clip-path][style*="fill: none"]')
      && /^M[^Z]*L[^Z]*L/.test(path.getAttribute('d') ?? ''));
  return lines.map((line) => {
    const at = line.getPointAtLength(line.getTotalLength() / 2);
    const {x, y} = at.matrixTransform(line.getScreenCTM());
    const hit = document.elementFromPoint(x, y);
    return hit?.querySelector(':scope > title')?.textContent ?? hit?.outerHTML.slice(0, 200);
  });
})"""
"""Script that returns the title shown at the middle of each line of a chart."""


@pytest.mark.parametrize("width", [1360, 420])
def test_lines_of_the_report_show_values_on_hover(page: Page, tmp_path: Path, width: int) -> None:
    file = tmp_path / "page.html"
    output_of("report", "-o", file)
    page.set_viewport_size({"width": width, "height": 1000})
    page.set_content(file.read_text())
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    charts = page.evaluate(MIDDLE_OF_LINES)
    charts_of_several_lines = [titles for titles in charts if len(titles) >= 2]
    assert len(charts_of_several_lines) >= 3
    for titles in charts:
        for title in titles:
            assert re.match(r"2\d\d\d-\d\d-\d\d[:;] .*\d|keep_recent = \d", title), title


TABLES_AT_THIS_WIDTH = """() => [...document.querySelectorAll("main .scroll")]
  .filter((part) => part.checkVisibility())
  .map((part) => ({
    name: part.getAttribute("aria-label"),
    hidden: part.scrollWidth - part.clientWidth,
    highest: Math.max(...[...part.querySelectorAll("tr")].map((row) => row.offsetHeight)),
  }))"""


def test_tables_of_a_narrow_report_are_whole_and_low(page: Page, tmp_path: Path) -> None:
    project = project_folder(tmp_path).parent / "memory"
    lines = []
    for number in range(60):
        name = f"project_build_cache_region_{number}"
        kind = "feedback" if number % 5 == 0 else "project"
        write_memory(project, f"{name}.md", memory(name, kind), at(24 * number))
        lines.append(f"- [{name}]({name}.md) — how build and cache and region work together")
    write_index(project, lines)
    file = tmp_path / "page.html"
    output_of("report", project, "-o", file)
    page.set_viewport_size({"width": 420, "height": 1000})
    page.set_content(file.read_text())
    tables = {table["name"]: table for table in page.evaluate(TABLES_AT_THIS_WIDTH)}
    assert "Table: What each cap serves and costs" in tables
    assert "Table: The costliest load-bearing memories" in tables
    for table in tables.values():
        assert table["hidden"] <= 0, table
        assert table["highest"] < 120, table


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_printed_report_takes_few_sheets(page: Page, tmp_path: Path, paper: str) -> None:
    file = tmp_path / "page.html"
    output_of("report", "-o", file)
    page.set_content(file.read_text())
    printed = page.pdf(format=paper)
    sheets = re.findall(rb"/Type\s*/Page\b", printed)
    assert len(sheets) <= 6
