"""The documentation site: complete and self-contained."""

import re
import subprocess
import sys
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

import memlab
from memlab.cli import COMMANDS

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = ("index", "words", "guides/size", "notebooks/01_growth", "reference/names")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = ["-m", "mkdocs", "build", "--strict", "--quiet", "-f", ".ci/mkdocs.yml", "-d"]
    built = subprocess.run(
        [sys.executable, *build, folder], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_page_fits_its_screen_and_loads_nothing_external(browser: Browser, site: Path) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 900})
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri(), wait_until="networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 420, f"{name} is {wide} pixels wide on a narrow screen"
    context.close()
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_site_has_no_dead_link(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    places = {path: {*re.findall(r'\sid="([^"]+)"', page)} for path, page in pages.items()}
    for path in (CHECKOUT / "notebooks").glob("*.ipynb"):
        assert site / "notebooks" / path.with_suffix(".html").name in pages
    dead = []
    for path, page in pages.items():
        for link in map(unescape, set(re.findall(r'\s(?:href|src)="([^"]+)"', page))):
            url = urlsplit(link)
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            lost = url.fragment and unquote(url.fragment) not in places.get(target, {""})
            if not url.scheme and (lost or not target.is_file()):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


@pytest.mark.parametrize("width", [420, 1280])
def test_first_commands_are_fully_visible(browser: Browser, site: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((site / "index.html").as_uri())
    code = page.locator(".language-sh code").first
    assert code.inner_text().splitlines()[-1].endswith("memlab lab")
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")
    page.close()


@pytest.mark.parametrize(
    ("page", "names", "heading"),
    [
        ("names", memlab.__all__, r'<h[34] id="memlab[.\w]*?\.(\w+)"'),
        ("commands", COMMANDS, r'<h3 id="memlab-(\w+)"'),
    ],
)
def test_reference_page_lists_every_name(
    site: Path, page: str, names: Iterable[str], heading: str
) -> None:
    headings = re.findall(heading, (site / "reference" / f"{page}.html").read_text())
    assert set(names) <= set(headings)
