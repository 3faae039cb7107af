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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["-f", ".ci/mkdocs.yml", "-d", str(folder)]
    result = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


def test_page_fits_its_screen_and_loads_nothing_external(browser: Browser, site: Path) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 900})
    urls: list[str] = []
    context.on("request", lambda request: urls.append(request.url))
    page = context.new_page()
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri(), wait_until="networkidle")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 420, f"{name} is {width} pixels wide on a narrow screen"
    context.close()
    assert len(urls) > 0
    assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_notebook_has_a_page(site: Path) -> None:
    for notebook in (CHECKOUT / "notebooks").glob("*.ipynb"):
        assert (site / "notebooks" / notebook.with_suffix(".html").name).is_file()


def links_in(page: str) -> set[str]:
    """Return the URLs of links, scripts, styles and pictures of a page."""
    return {unescape(link) for link in re.findall(r'\s(?:href|src)="([^"]+)"', page)}


def test_site_has_no_dead_link(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\sid="([^"]+)"', page)) for path, page in pages.items()}

    def is_dead(link: str, path: Path) -> bool:
        """True if a link on the page at a path has no target on the site."""
        url = urlsplit(link)
        if url.scheme:
            return False  # an external link
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            return True
        return bool(url.fragment) and unquote(url.fragment) not in anchors.get(target, {""})

    dead_links = []
    for path, page in pages.items():
        name = path.relative_to(site)
        dead_links += [f"{name}: {link}" for link in links_in(page) if is_dead(link, path)]
    assert dead_links == []


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
