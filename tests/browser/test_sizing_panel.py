"""The sizing notebook in a real browser: keyboard control and agreement with the curve."""

import re
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

import memlab
from tests.browser.lab import Lab

NOTEBOOK = "notebooks/03_size_keep_recent.ipynb"
CHANGE_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return memlab.load(memlab.store_path("two_years"))


@pytest.fixture(scope="module")
def curve(two_years: pd.DataFrame) -> pd.DataFrame:
    return memlab.sizing.cap_curve(two_years)


@pytest.fixture(scope="module")
def panel(page: Page, lab: Lab) -> Locator:
    lab.open(page, NOTEBOOK)
    lab.run_all(page)
    widget = page.locator(".memlab-sizing")
    expect(widget).to_have_count(1)
    return widget


def expect_cap(panel: Locator, curve: pd.DataFrame, cap: int) -> None:
    """Check that the panel shows a cap with its numbers, command and picture."""
    expect(last_cell(panel, "keep_recent")).to_contain_text(f"{cap:,}")
    served = f"{curve.loc[cap, 'served']:.1%}"
    expect(last_cell(panel, "references served")).to_contain_text(f"{served} (limits ")
    if cap == curve.index[-1]:
        expect(panel.locator("pre")).to_have_count(0)
        expect(panel).to_contain_text("no command: that cap deletes nothing today")
    else:
        command = f"memlab compact ../data/two_years.db --keep-recent {cap}"
        expect(panel.locator("pre")).to_have_text(command)
    alt_text = re.compile(rf"keep_recent = {cap:,} serves")
    expect(panel.get_by_role("img").first).to_have_attribute("alt", alt_text)


def last_cell(panel: Locator, name: str) -> Locator:
    """Return the last cell of the row with a name."""
    return panel.locator("tr", has_text=name).locator("td").last


def slider(panel: Locator, name: str) -> Locator:
    return panel.get_by_role("slider", name=name)


def type_into(panel: Locator, name: str, text: str) -> None:
    """Type into the number box with an accessible name."""
    box = panel.get_by_role("spinbutton", name=name)
    box.fill(text)
    box.press("Enter")


def test_panel_is_keyboard_operable_and_agrees_with_curve(
    page: Page, panel: Locator, artifacts: Path, two_years: pd.DataFrame, curve: pd.DataFrame
) -> None:
    expect(page.locator('[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(0)
    recommended = memlab.recommend_cap(two_years).keep_recent
    assert recommended is not None
    expect_cap(panel, curve, recommended)
    type_into(panel, "exactly", "250")
    expect_cap(panel, curve, 250)
    budget = panel.get_by_role("spinbutton", name="token budget")
    expect(budget).to_have_attribute("placeholder", "no budget")
    picture = panel.locator("img").first
    before = picture.get_attribute("src")

    cap = slider(panel, "keep_recent")
    expect(cap).to_have_attribute("aria-valuetext", "250")
    cap.press("ArrowRight")
    expect_cap(panel, curve, 260)
    cap.press("ArrowLeft")
    expect_cap(panel, curve, 250)
    cap.press("Home")
    expect_cap(panel, curve, 0)
    cap.press("End")
    expect_cap(panel, curve, int(curve.index[-1]))
    assert picture.get_attribute("src") != before
    copy = panel.get_by_role("button", name="Copy the command")
    expect(copy).to_be_disabled()  # a cap that deletes nothing has no command
    expect(copy).to_have_css("opacity", "0.6")

    type_into(panel, "exactly", "3000")
    expect(panel.get_by_role("alert").first).to_contain_text("2864")
    type_into(panel, "exactly", "123")
    expect_cap(panel, curve, 123)

    type_into(panel, "token budget", "60000")
    slider(panel, "target").press("ArrowRight")
    expect(slider(panel, "target")).to_have_attribute("aria-valuetext", "91%")
    advice = memlab.recommend_cap(two_years, target=0.91, token_budget=60_000)
    expect(panel).to_contain_text(advice.answer)

    panel.get_by_role("button", name="Use the recommended cap").press("Enter")
    assert advice.keep_recent is not None
    expect_cap(panel, curve, advice.keep_recent)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy.click()
    expect(panel.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == panel.locator("pre").inner_text()
    panel.get_by_role("button", name="Save the choice").click()
    expect(panel).to_contain_text(f"keep_recent = {advice.keep_recent} is saved in ")
    expect(panel.locator(".deleted tr")).to_have_count(20)
    panel.scroll_into_view_if_needed()
    page.screenshot(path=artifacts / "sizing-panel-light.png")


def test_panel_fits_all_widths_in_both_themes(page: Page, panel: Locator, artifacts: Path) -> None:
    filters = {"JupyterLab Light": "none", "JupyterLab Dark": "invert"}
    for theme, expected_filter in filters.items():
        page.evaluate(CHANGE_THEME, theme)
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        picture = panel.locator("img").first
        filter_style = picture.evaluate("image => getComputedStyle(image).filter")
        assert filter_style.startswith(expected_filter)
        for width in (900, 1360, 1920):
            page.set_viewport_size({"width": width, "height": 1080})
            panel.scroll_into_view_if_needed()
            name = f"sizing-panel-{width}-{theme.split()[-1].lower()}.png"
            panel.screenshot(path=artifacts / name)
            assert parts_outside(panel) == []


def parts_outside(panel: Locator) -> list[str]:
    parts: list[str] = panel.evaluate(
        """panel => [...panel.querySelectorAll("img, pre, table, button, input")]
            .filter(part => part.getBoundingClientRect().right
                            > panel.getBoundingClientRect().right + 1)
            .map(part => part.outerHTML.slice(0, 80))"""
    )
    return parts
