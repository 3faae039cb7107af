"""Hostile texts are shown as text in terminals, notebooks, reports and files."""

import json
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import memlab
from memlab import KeepRecent, apply, plan, restore
from memlab.compaction import archived_rows, space
from memlab.errors import MemlabError
from memlab.growth import boot_context, summarize
from memlab.upkeep.health import doctor
from tests.proof.scenes import NOW, START, copy_aside
from tests.support.servers import PATIENCE
from tests.support.shell import run
from tests.support.stores import row, run_sql, write_rows

_ATTACK: Final = "document.title='owned';window.owned=1;fetch('http://127.0.0.1:9/owned')"

TEXTS: Final = {
    "script": f"<script>{_ATTACK}</script>",
    "image": f'<img src="http://127.0.0.1:9/x.png" onerror="{_ATTACK}">',
    "svg": f'<svg onload="{_ATTACK}"><animate onbegin="{_ATTACK}" attributeName="x"/></svg>',
    "attribute": f"\"' autofocus onfocus='{_ATTACK}' x='",
    "escape": f"--></style></title></textarea></pre></td></table><script>{_ATTACK}</script>",
    "half": f"</scr<script>ipt><iframe srcdoc='<script>{_ATTACK}</script>'>",
    "entities": f"&lt;script&gt;{_ATTACK}&lt;/script&gt; &#60;img src=x onerror={_ATTACK}&#62;",
    "link": f"[a](javascript:{_ATTACK}) ![i](http://127.0.0.1:9/i.png) <http://127.0.0.1:9/>",
    "formula": "$\\href{http://127.0.0.1:9/}{x}$ \\(\\unicode{x41}\\) $$\\class{a}{b}$$",
    "template": "{{ 7 * 7 }} {% include '/etc/passwd' %} ${7*7} %(name)s {0}",
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x1b]8;;http://127.0.0.1:9/\x07link\x1b\\",
    "c1": "\x9b2J\x9d0;owned\x9c",
    "backspace": "approved\b\b\b\b\b\b\b\brejected\rmemlab: all is well",
    "lines": "one\r\ntwo\x0b\x0c\x85\u2028\u2029three",
    "direction": "\u202etxt.exe\u202c \u2066a\u2069 \u200f\u061c",
    "invisible": "\u200b\u2060\ufeff\u00ad\U000e0041",
    "nul": "before\0after",
    "combining": "Z" + "\u0301" * 300,
    "sheet": '=HYPERLINK("http://127.0.0.1:9/","x")',
    "quotes": "'; DROP TABLE memory_items; -- \" ` \\ $(touch owned) | & ;",
}
LONG: Final = 2_000_000
"""Characters of the longest text."""


def hostile_columns(text: str) -> dict[str, dict[str, str]]:
    """Return columns of rows that have a hostile text, by the place that it stands in."""
    list_of_text = json.dumps([text])
    return {
        "title": {"title": text},
        "body": {"body": text},
        "tag": {"tags_json": list_of_text},
        "id": {"memory_id": f"{text} id", "title": text, "superseded_by": f"gone {text} id"},
        "reference": {
            "authored_by": text,
            "source_task_ref": text,
            "evidence_refs_json": list_of_text,
        },
        # A second row with the title of "id"; the whole text would also be repeated in its id.
        "same title": {"memory_id": f"again {text[:9]}", "title": text},
    }


def make_hostile_store(path: Path, texts: dict[str, str]) -> Path:
    """Write a store whose titles, bodies, tags, ids, authors and references are hostile."""
    rows = []
    for number, (name, text) in enumerate(texts.items()):
        created_at = (START + timedelta(hours=number)).isoformat()
        for place, columns in hostile_columns(text).items():
            rows.append(row(f"{name}-{place}", created_at=created_at) | columns)
    return write_rows(path, rows)


MOST_SHOWN = 60_000
"""Upper bound on the length of output for a store with a text of two million characters."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile_store(
        tmp_path_factory.mktemp("hostile") / "memory.db", TEXTS | {"long": "A" * LONG}
    )


@pytest.fixture
def store(hostile: Path, scratch: Path) -> Path:
    return copy_aside(hostile, scratch / "copy")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a hostile store without the long text."""
    return make_hostile_store(tmp_path_factory.mktemp("small") / "memory.db", TEXTS)


_HANDLERS: Final = """
[...document.querySelectorAll('*')].flatMap(element => [...element.attributes])
    .filter(attribute =>
        attribute.name.startsWith('on') || /^\\s*javascript:/i.test(attribute.value))
    .map(attribute => attribute.value)
"""
"""Values of all attributes of a page that run scripts."""


@pytest.fixture
def browser_page() -> Iterator[Any]:
    """Open an empty page of a browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium, args=arguments, timeout=1000 * PATIENCE
        )
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        yield page
        browser.close()


def control_characters(text: str) -> set[str]:
    """Return the control and invisible characters of a text, except the line feed."""
    categories = {"Cc", "Cf", "Zl", "Zp", "Cs"}
    return {
        character
        for character in text
        if unicodedata.category(character) in categories and character != "\n"
    }


def test_no_command_prints_control_sequences(store: Path, scratch: Path) -> None:
    plan_file = scratch / "plan.json"
    commands: list[tuple[object, ...]] = [
        ("show", store),
        ("size", store),
        ("rows", store),
        ("doctor", store),
        ("compact", store, "--keep-recent", 3, "--save-plan", plan_file),
        ("apply", plan_file),
        ("apply", plan_file),
        ("archive", store),
        ("archive", store, "--rows"),
        ("archive", store, "--search", "owned"),
        ("restore", store, "0000"),
        ("doctor", store),
        ("vacuum", store),
    ]
    commands += [("restore", store, f"no {text}") for text in TEXTS.values()]
    for command in commands:
        result = run(*command)
        assert result.output
        if command[0] == "restore":
            assert result.output.count("\n") == 1
        assert control_characters(result.output) == set(), command
        assert len(result.output) < MOST_SHOWN, command


def test_error_messages_with_long_ids_are_short(store: Path) -> None:
    receipt = apply(plan(store, KeepRecent(3), now=NOW), now=NOW)
    with pytest.raises(MemlabError) as unknown:
        restore(receipt, ids=["B" * LONG])
    run_sql(store, "UPDATE memory_items SET body = 'changed'")
    assert restore(receipt).memories == receipt.deleted
    stale = plan(store, KeepRecent(3), now=NOW)
    run_sql(store, "UPDATE memory_items SET body = 'changed again'")
    with pytest.raises(MemlabError) as changed:
        apply(stale, now=NOW)
    run_sql(store, "UPDATE memory_items SET kind = memory_id")
    with pytest.raises(MemlabError) as bad:
        memlab.load(store)
    for error in (unknown, changed, bad):
        assert len(str(error.value)) < 3000


class Tags(HTMLParser):
    """The names of all tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def results_with_html(path: Path) -> Iterator[Any]:
    """Yield results that a notebook shows as HTML, before and after an applied plan."""
    frame = memlab.load(path)
    new_plan = plan(path, KeepRecent(3), now=NOW)
    yield frame
    yield summarize(frame, now=NOW)
    yield boot_context(frame)
    yield memlab.recommend_cap(frame)
    yield doctor(path)
    yield space(path)
    yield new_plan
    yield apply(new_plan, now=NOW)
    yield archived_rows(path)
    yield doctor(path)


def test_notebook_html_is_escaped_and_short(store: Path) -> None:
    layout = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "style", "br"}
    for result in results_with_html(store):
        page = result._repr_html_()
        printed = str(result)
        tags = Tags(page)
        assert tags.tags <= layout, type(result)
        assert tags.attributes <= {"style", "class", "border", "scoped"}, type(result)
        assert len(page) < MOST_SHOWN, type(result)
        assert len(printed) < MOST_SHOWN, type(result)
        if not isinstance(result, pd.DataFrame):  # pandas prints unknown characters unescaped
            assert control_characters(printed) == set(), type(result)


def report_of(store: Path, page: Path) -> Path:
    """Write the report of a store with a hostile name."""
    hostile_name = TEXTS["image"].replace("/", "")[:60]
    renamed = store.rename(store.with_name(hostile_name))
    result = run("report", renamed, "-o", page, "--keep-recent", 3)
    assert result.exit_code == 0, result.output
    return page


def notebook_of(store: Path, page: Path) -> Path:
    """Write a page of everything that a notebook shows of the texts of a store."""
    cells = (
        f"import memlab; from memlab.upkeep.health import doctor; store = {str(store)!r}",
        "memlab.load(store, with_body=True)",
        "plan = memlab.plan(store, memlab.KeepRecent(3)); plan",
        "print(plan)",
        "memlab.apply(plan)",
        "memlab.compaction.archived_rows(store)",
        "doctor(store)",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, resources={"metadata": {"path": str(page.parent)}}).execute()
    urls = ("require_js_url", "mathjax_url", "jquery_url", "mermaid_js_url")
    exporter = HTMLExporter(html_manager_semver_range="", **dict.fromkeys(urls, ""))
    page.write_text(exporter.from_notebook_node(notebook)[0])
    assert "fetch(" in page.read_text()
    return page


@pytest.mark.parametrize("write_page", [report_of, notebook_of])
def test_page_runs_no_script_and_fetches_nothing(
    write_page: Callable[[Path, Path], Path], small: Path, scratch: Path, browser_page: Any
) -> None:
    page = write_page(copy_aside(small, scratch / "copy"), scratch / "page.html")
    requests: list[str] = []
    dialogs: list[str] = []

    def note_and_dismiss(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    browser_page.on("request", lambda request: requests.append(request.url))
    browser_page.on("dialog", note_and_dismiss)
    browser_page.goto(page.as_uri(), wait_until="networkidle")

    fetched = [url for url in requests if not url.startswith(("data:", "blob:"))]
    assert fetched == [page.as_uri()]
    assert dialogs == []
    assert browser_page.evaluate("window.owned") is None
    assert browser_page.title() != "owned"
    assert browser_page.evaluate(_HANDLERS) == []


def test_browser_detects_scripts_and_requests(scratch: Path, browser_page: Any) -> None:
    page = scratch / "page.html"
    page.write_text(f"<body>{TEXTS['script']}{TEXTS['image']}</body>")
    requests: list[str] = []
    browser_page.on("request", lambda request: requests.append(request.url))
    browser_page.goto(page.as_uri(), wait_until="networkidle")
    assert browser_page.evaluate("window.owned") == 1
    assert len(requests) > 1
