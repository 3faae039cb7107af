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


def make_hostile_store(path: Path, texts: dict[str, str]) -> Path:
    """Write a store whose titles, bodies, tags, ids, authors and references are hostile."""
    rows = []
    for number, (name, text) in enumerate(texts.items()):
        tags = json.dumps([text])
        odd: dict[str, dict[str, str]] = {
            "title": {"title": text},
            "body": {"body": text},
            "tag": {"tags_json": tags},
            "id": {"memory_id": f"{text} id", "title": text, "superseded_by": f"gone {text} id"},
            "reference": {"authored_by": text, "source_task_ref": text, "evidence_refs_json": tags},
            "again": {"memory_id": f"again {text[:9]}", "title": text},
        }
        when = (START + timedelta(hours=number)).isoformat()
        rows += [row(f"{name}-{place}", created_at=when) | odd[place] for place in odd]
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
    return make_hostile_store(tmp_path_factory.mktemp("small") / "memory.db", TEXTS)


@pytest.fixture
def opened() -> Iterator[Any]:
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
    """Return the control and invisible characters of a text."""
    return {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"}} - {"\n"}


def test_no_command_prints_control_sequences(store: Path, scratch: Path) -> None:
    planned = scratch / "plan.json"
    commands: list[tuple[object, ...]] = [
        *((word, store) for word in ("show", "size", "rows", "doctor")),
        ("compact", store, "--keep-recent", 3, "--save-plan", planned),
        ("apply", planned),
        ("apply", planned),
        ("archive", store),
        ("archive", store, "--rows"),
        ("archive", store, "--search", "owned"),
        ("restore", store, "0000"),
        ("doctor", store),
        ("vacuum", store),
        *(("restore", store, f"no {text}") for text in TEXTS.values()),
    ]
    for command in commands:
        result = run(*command)
        assert result.output
        assert command[0] != "restore" or result.output.count("\n") == 1
        assert control_characters(result.output) == set(), command
        assert len(result.output) < MOST_SHOWN, command


def test_error_messages_with_long_ids_are_short(store: Path) -> None:
    new_plan = plan(store, KeepRecent(3), now=NOW)
    receipt = apply(new_plan, now=NOW)
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
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def shown_in_notebooks(path: Path) -> Iterator[Any]:
    frame = memlab.load(path)
    new_plan = plan(path, KeepRecent(3), now=NOW)
    yield from (frame, summarize(frame, now=NOW), boot_context(frame), memlab.recommend_cap(frame))
    yield from (doctor(path), space(path), new_plan)
    yield from (apply(new_plan, now=NOW), archived_rows(path), doctor(path))


def test_notebook_html_is_escaped_and_short(store: Path) -> None:
    layout = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "style", "br"}
    for html in shown_in_notebooks(store):
        page = html._repr_html_()
        printed = str(html)
        tags = Tags(page)
        assert tags.tags <= layout, type(html)
        assert tags.attributes <= {"style", "class", "border", "scoped"}, type(html)
        assert max(len(page), len(printed)) < MOST_SHOWN, type(html)
        if not isinstance(html, pd.DataFrame):  # pandas prints unknown characters unescaped
            assert control_characters(printed) == set(), type(html)


def report_of(store: Path, page: Path) -> Path:
    """Write the report of a store with a hostile name."""
    named = store.rename(store.with_name(TEXTS["image"].replace("/", "")[:60]))
    result = run("report", named, "-o", page, "--keep-recent", 3)
    assert result.exit_code == 0, result.output
    return page


def notebook_of(store: Path, page: Path) -> Path:
    """Write a page of everything that a notebook shows of the texts of a store."""
    code = (
        f"import memlab; from memlab.upkeep.health import doctor; store = {str(store)!r}",
        "memlab.load(store, with_body=True)",
        "made = memlab.plan(store, memlab.KeepRecent(3)); made",
        "print(made)",
        "memlab.apply(made)",
        "memlab.compaction.archived_rows(store)",
        "doctor(store)",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in code])
    NotebookClient(notebook, resources={"metadata": {"path": str(page.parent)}}).execute()
    urls = ("require_js_url", "mathjax_url", "jquery_url", "mermaid_js_url")
    exporter = HTMLExporter(html_manager_semver_range="", **dict.fromkeys(urls, ""))
    page.write_text(exporter.from_notebook_node(notebook)[0])
    assert "fetch(" in page.read_text()
    return page


@pytest.mark.parametrize("make", [report_of, notebook_of])
def test_page_runs_no_script_and_fetches_nothing(
    make: Callable[[Path, Path], Path], small: Path, scratch: Path, opened: Any
) -> None:
    page = make(copy_aside(small, scratch / "copy"), scratch / "page.html")
    requests = list[str]()
    dialogs = list[str]()
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    opened.goto(page.as_uri(), wait_until="networkidle")

    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert dialogs == []
    assert opened.evaluate("window.owned") is None
    assert opened.title() != "owned"
    handlers = opened.evaluate(
        "[...document.querySelectorAll('*')].flatMap(element => [...element.attributes])"
        ".filter(each => each.name.startsWith('on') || /^\\s*javascript:/i.test(each.value))"
        ".map(each => each.value)"
    )
    assert handlers == []


def test_browser_detects_scripts_and_requests(scratch: Path, opened: Any) -> None:
    page = scratch / "page.html"
    page.write_text(f"<body>{TEXTS['script']}{TEXTS['image']}</body>")
    requests: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page.as_uri(), wait_until="networkidle")
    assert opened.evaluate("window.owned") == 1
    assert len(requests) > 1
