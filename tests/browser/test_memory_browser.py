"""The memory browser in a real browser: brush, keys and selection filter the grid."""

import re
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

import memlab
from memlab.views import MemoryBrowser
from tests.browser.lab import Lab
from tests.support.stores import row, write_rows

NOTEBOOK = "notebooks/08_memories.ipynb"
CHANGE_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"


@pytest.fixture
def expected() -> MemoryBrowser:
    """Return the same browser in Python, as the reference for the widgets."""
    store = memlab.store_path("looked_up")
    log = store.with_suffix(".searches.jsonl")
    return memlab.browse(store, log=log, now=datetime.fromisoformat("2026-06-30T18:00:00+00:00"))


@pytest.fixture(scope="module")
def shown(page: Page, lab: Lab) -> Locator:
    lab.open(page, NOTEBOOK)
    lab.run_all(page)
    widget = page.locator(".memlab-browser")
    expect(widget).to_have_count(1)
    widget.scroll_into_view_if_needed()
    return widget


@pytest.fixture
def all_shown(shown: Locator) -> Locator:
    shown.get_by_role("button", name="Show all", exact=True).click()
    expect(shown.locator("p[role=status]")).to_contain_text("480 of 480 memories")
    return shown


def drag(page: Page, area: Locator, first: float, last: float) -> None:
    """Drag over an area, from one fraction of its width to another."""
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], middle, steps=4)
    page.mouse.up()


def test_no_notebook_cell_fails(page: Page, shown: Locator) -> None:
    expect(page.locator('[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(0)


def test_brush_on_the_curve_shows_its_span(page: Page, all_shown: Locator) -> None:
    drag(page, all_shown.locator(".memlab-area"), 0.25, 0.5)
    status = all_shown.locator("p[role=status]")
    expect(status).to_contain_text("written 2025-")
    match = re.search(r"(\d+) of 480 memories.* written (\S+) to (\S+)", status.inner_text())
    assert match is not None
    count, first, last = match.groups()
    written = memlab.load(memlab.store_path("looked_up"))["created_at"].dt.strftime("%Y-%m-%d")
    assert int(count) == written.between(first, last).sum()
    expect(all_shown.locator(".dt-info")).to_contain_text(f"of {count} entries")
    expect(all_shown.locator(".memlab-band")).to_be_visible()


def test_click_on_the_curve_shows_all(page: Page, all_shown: Locator) -> None:
    drag(page, all_shown.locator(".memlab-area"), 0.25, 0.5)
    expect(all_shown.locator("p[role=status]")).to_contain_text("written")
    all_shown.locator(".memlab-area").click()
    expect(all_shown.locator("p[role=status]")).to_contain_text("480 of 480 memories")


def test_arrow_keys_move_the_range(all_shown: Locator, expected: MemoryBrowser) -> None:
    first = all_shown.get_by_role("slider", name="written from")
    before = first.get_attribute("aria-valuetext")
    first.press("ArrowRight")
    after = first.get_attribute("aria-valuetext")
    assert before is not None
    assert after is not None
    assert before < after
    last = all_shown.get_by_role("slider", name="written to").get_attribute("aria-valuetext")
    assert last is not None
    expected.show_period(after, last)
    expect(all_shown.locator("p[role=status]")).to_contain_text(f"{len(expected.shown)} of 480")


@pytest.mark.parametrize(
    ("tab", "group"), [("parts", "decisions"), ("age or use", "oldest quarter")]
)
def test_chart_row_shows_its_memories(
    all_shown: Locator, expected: MemoryBrowser, tab: str, group: str
) -> None:
    all_shown.get_by_role("tab", name=tab).click()
    row = all_shown.get_by_role("button", name=f"show only: {group}")
    row.press("Enter")
    expect(row).to_have_attribute("aria-pressed", "true")
    expected.show_groups(group)
    expect(all_shown.locator("p[role=status]")).to_contain_text(f"{len(expected.shown)} of 480")
    expect(all_shown.locator("p[role=status]")).to_contain_text(group)
    all_shown.get_by_role("tab", name="when written").click()


def test_column_search_filters_the_grid(all_shown: Locator, expected: MemoryBrowser) -> None:
    box = all_shown.locator(".dtcc-search input").first
    box.fill("webhook")
    matches = expected.memories["title"].str.contains("webhook", case=False).sum()
    assert matches > 0
    expect(all_shown.locator(".dt-info")).to_contain_text(f"of {matches} entries")
    box.fill("")
    expect(all_shown.locator(".dt-info")).to_contain_text("of 480 entries")


def test_all_shown_rows_are_selected_by_a_button(
    all_shown: Locator, expected: MemoryBrowser
) -> None:
    all_shown.locator(".dtcc-search input").first.fill("webhook")
    matches = expected.memories["title"].str.contains("webhook", case=False).sum()
    expect(all_shown.locator(".dt-info")).to_contain_text(f"of {matches} entries")
    all_shown.get_by_role("button", name="Select all shown").click()
    selected = all_shown.locator("p").filter(has_text=re.compile("^selected: "))
    expect(selected).to_contain_text(f"selected: {matches} memories")
    all_shown.get_by_role("button", name="Select none").click()
    expect(selected).to_contain_text("selected: none")
    all_shown.locator(".dtcc-search input").first.fill("")


def test_selected_rows_show_their_text_and_a_plan(
    page: Page, all_shown: Locator, expected: MemoryBrowser, artifacts: Path
) -> None:
    all_shown.locator("tbody tr").first.click()
    newest = expected.memories.iloc[0]
    frame = memlab.load(memlab.store_path("looked_up"), with_body=True)
    (body,) = frame.loc[frame["memory_id"] == newest["memory_id"], "body"]
    expect(all_shown.locator("h4")).to_have_text(newest["title"])
    expect(all_shown.locator("pre").first).to_have_text(body)
    all_shown.get_by_role("button", name="Plan their deletion").click()
    plan = all_shown.locator("pre").last
    expect(plan).to_contain_text("Deletes 1 of 480 memories")
    expect(plan).to_contain_text("memlab.restore(receipt)")
    page.set_viewport_size({"width": 1360, "height": 2400})
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate(CHANGE_THEME, theme)
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        expect(page.locator("#jupyterlab-splash")).to_have_count(0)
        all_shown.screenshot(path=artifacts / f"memories-{theme.split()[-1].lower()}.png")


def test_deletion_takes_two_clicks_and_a_third_undoes_it(
    page: Page, lab: Lab, all_shown: Locator, artifacts: Path
) -> None:
    store = lab.folder / "data" / "looked_up.db"
    before = memlab.load(store)
    all_shown.locator("tbody tr").first.click()
    newest = all_shown.locator("h4")
    expect(newest).to_have_count(1)
    title = newest.inner_text()
    page.set_viewport_size({"width": 1360, "height": 2400})  # a screenshot of all of it
    delete = all_shown.get_by_role("button", name="Delete them")
    undo = all_shown.get_by_role("button", name="Undo")
    expect(delete).to_be_hidden()
    all_shown.get_by_role("button", name="Plan their deletion").press("Enter")
    expect(all_shown.locator("pre").last).to_contain_text("nothing was deleted yet")
    assert len(memlab.load(store)) == 480
    expect(undo).to_be_hidden()
    delete.scroll_into_view_if_needed()
    all_shown.screenshot(path=artifacts / "memories-planned.png")
    delete.press("Enter")
    expect(all_shown.locator("p[role=status]")).to_contain_text("479 of 479 memories")
    expect(all_shown.locator("p[role=status]")).to_contain_text("1 deleted here")
    assert set(before["title"]) - set(memlab.load(store)["title"]) == {title}
    all_shown.screenshot(path=artifacts / "memories-deleted.png")
    expect(delete).to_be_hidden()
    undo.press("Enter")
    expect(all_shown.locator("p[role=status]")).to_contain_text("480 of 480 memories")
    assert memlab.load(store).equals(before)
    expect(undo).to_be_hidden()


def test_load_bearing_memory_is_rejected_with_an_alternative(all_shown: Locator) -> None:
    all_shown.locator(".dtcc-search input").nth(1).fill("load-bearing")
    all_shown.locator("tbody tr").first.click()
    all_shown.get_by_role("button", name="Plan their deletion").click()
    refusal = all_shown.get_by_role("alert")
    expect(refusal).to_contain_text("is load-bearing, and is never deleted or retired")
    expect(refusal).to_contain_text("--supersede")
    expect(all_shown.get_by_role("button", name="Delete them")).to_be_hidden()
    all_shown.locator(".dtcc-search input").nth(1).fill("")


def test_titles_that_are_dates_are_texts(page: Page, lab: Lab) -> None:
    dates = [f"2026-03-{day:02}" for day in range(1, 31)]
    rows = [
        row(f"e{number}", "episodic", "merged", title=date, created_at=date)
        for number, date in enumerate(dates, start=1)
    ]
    write_rows(lab.folder / "dated.db", rows)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cell = nbformat.v4.new_code_cell('import memlab\nmemlab.browse("dated.db")')
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=kernel)
    nbformat.write(notebook, lab.folder / "dated.ipynb")
    lab.open(page, "dated.ipynb")
    lab.run_all(page)
    first = page.locator(".memlab-browser tbody td").first
    expect(first).to_have_text("2026-03-30")
    assert first.evaluate("cell => getComputedStyle(cell).textAlign") != "right"
