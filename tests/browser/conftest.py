"""Fixtures: a browser, a JupyterLab on a copy of the notebooks, and an offline page."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import memlab
from tests.browser.lab import Lab, running_lab
from tests.support.servers import PATIENCE

CHECKOUT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
PATIENCE_IN_MILLISECONDS = 1000 * PATIENCE
LOCAL = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
"""Beginnings of URLs that stay on this machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start headless Chromium, or skip the test if it is not installed.

    Each module has its own, as playwright drives one browser in a process at a time.
    """
    programs = [path for name in BROWSERS if (path := shutil.which(name))]
    if not programs:
        pytest.skip(f"no browser on this machine (looked for {', '.join(BROWSERS)})")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=programs[0], args=ARGUMENTS, timeout=PATIENCE_IN_MILLISECONDS
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """Open a page; at the end check that it made no request outside this machine."""
    context = browser.new_context(viewport={"width": 1360, "height": 1000})
    urls: list[str] = []
    context.on("request", lambda request: urls.append(request.url))
    new_page = context.new_page()
    new_page.on("websocket", lambda socket: urls.append(socket.url))
    new_page.set_default_timeout(PATIENCE_IN_MILLISECONDS)
    expect.set_options(timeout=PATIENCE_IN_MILLISECONDS)
    yield new_page
    context.close()
    assert [url for url in urls if not url.startswith(LOCAL)] == []


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run JupyterLab on a copy of the notebooks and their stores."""
    folder = tmp_path_factory.mktemp("work")
    private = tmp_path_factory.mktemp("private")
    (folder / "data").mkdir(parents=True)
    shutil.copytree(CHECKOUT / "notebooks", folder / "notebooks")
    for name in ("two_years", "three_hundred_issues", "looked_up"):
        shutil.copy(memlab.store_path(name), folder / "data")
    searches = memlab.store_path("looked_up").with_suffix(".searches.jsonl")
    shutil.copy(searches, folder / "data")
    with running_lab(folder, private) as running:
        yield running


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Return the folder for screenshots: MEMLAB_ARTIFACTS, or one in the checkout."""
    folder = Path(os.environ.get("MEMLAB_ARTIFACTS", CHECKOUT / "artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
