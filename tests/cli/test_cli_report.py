"""``memlab report``, its charts, and ``memlab lab``."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import memlab
from memlab import charts
from memlab.views.drawing import CHARTS
from tests.support.shell import output_of, run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store that the tests only read."""
    path = tmp_path_factory.mktemp("charts") / "memory.db"
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), path)


@pytest.mark.usefixtures("no_charts")
def test_report_record_holds_evidence_and_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = memlab.store_path("three_hundred_issues")
    store = memlab.copy_store(bundled, tmp_path / "memory.db")
    page = tmp_path / "report.html"
    record = tmp_path / "record.md"
    log = tmp_path / "reads.csv"
    log.write_text("memory_id,at\nsemantic-decision-1,2026-06-01T00:00:00Z\n")
    options = ("--keep-recent", 25, "--target", 0.8, "--token-budget", 9_000, "--log", log)
    output = output_of("report", store, "-o", page, *options, "--record", record)
    assert re.search(rf"^  report +{page}$", output, re.MULTILINE)
    assert "600 → 33 memories" in output
    assert f"next: memlab compact {store} --keep-recent 25    shows" in output
    assert "80% of references, within 9,000 tokens, keep_recent = 25" in page.read_text()
    assert "Reads come from reads.csv." in page.read_text()
    assert str(tmp_path) not in page.read_text()
    assert "| deletes | 567 of 644 memories |" in record.read_text()
    assert "`memlab apply record.plan.json`" in record.read_text()
    output_of("apply", tmp_path / "record.plan.json")
    monkeypatch.setattr("memlab.views.page.page_of", lambda *_, **__: "")
    output_of("report", store, "-o", page, "--keep-recent", 25, "--record", record)
    assert "567 memories deleted and archived; undo: `memlab restore" in record.read_text()


# Charts


def test_every_chart_has_a_name() -> None:
    plots = {name for name in charts.__all__ if re.match("plot_(?!fleet)", name)}
    assert plots <= {f"plot_{name.replace('-', '_')}" for name in CHARTS}
    help_text = run("report", "--help").output
    for name in CHARTS:
        assert f"  {name} " in help_text


QUICK_CHARTS = ("boot-context", "cap-curve", "growth", "regret")
"""Charts that a default run writes by command."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK_CHARTS else pytest.mark.long)
        for name in sorted(CHARTS)
    ],
)
def test_chart_is_an_svg_file_and_its_title_is_printed(
    name: str, store: Path, tmp_path: Path
) -> None:
    output = output_of("report", store, "--chart", name, "-o", tmp_path / "chart.svg")
    title = ET.parse(tmp_path / "chart.svg").findtext("{*}title")
    assert title
    assert title in output


def test_chart_options_set_width_format_and_cap(store: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide.svg"
    narrow = tmp_path / "narrow.svg"
    picture = tmp_path / "a.png"
    chart = ("report", store, "--chart", "cap-curve", "-o")
    output_of(*chart, wide, "--keep-recent", 123, "--target", 0.75, "--token-budget", 9_000)
    output_of(*chart, narrow, "--narrow")
    output_of(*chart, picture)
    assert ET.parse(wide).getroot().get("width") == "576pt"
    assert ET.parse(narrow).getroot().get("width") == "288pt"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "keep_recent = 123" in wide.read_text()
    assert "target 75%" in wide.read_text()
    assert "--narrow needs --chart" in output_of("report", store, "--narrow", code=2)


# Notebooks


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.execve", lambda *_: None)
    monkeypatch.chdir(tmp_path)


def test_lab_start_page_links_every_notebook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command: list[str] = []

    def record_command(_program: str, words: list[str], _environment: object) -> None:
        command.extend(words)

    monkeypatch.setattr("os.execve", record_command)
    assert run("lab", "--folder", tmp_path).exit_code == 0
    (url,) = [word for word in command if "/lab/tree/" in word]
    start_page = tmp_path / url.partition("/lab/tree/")[2]
    links = set(re.findall(r"\]\((\w+\.ipynb)\)", start_page.read_text()))
    assert links == {path.name for path in tmp_path.glob("*.ipynb")} - {start_page.name}


def test_each_store_has_its_own_persistent_notebooks(store: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = memlab.copy_store(store, tmp_path / "other" / store.name)
    assert "wrote" in output_of("lab", store)
    assert "wrote" in output_of("lab", other)
    first, second = sorted(Path("memlab-notebooks").iterdir())
    (first / "02_compact.ipynb").write_text("mine")
    assert "wrote" not in output_of("lab", store)
    assert "wrote" not in output_of("lab", other)
    assert (first / "02_compact.ipynb").read_text() == "mine"
    first_text = (first / "01_growth.ipynb").read_text()
    second_text = (second / "01_growth.ipynb").read_text()
    assert f"'{store}'" in first_text + second_text
    assert f"'{other}'" in first_text + second_text


def test_claude_code_folder_replaces_the_bundled_one(tmp_path: Path) -> None:
    bundled = memlab.store_path("two_years").parent / "claude" / "projects"
    projects = Path(shutil.copytree(bundled, tmp_path / ".claude" / "projects"))
    memory = next(projects.glob("*/memory"))

    def notebook_for(store: Path, folder: str) -> str:
        output_of("lab", store, "--folder", folder)
        return Path(folder, "05_your_own_store.ipynb").read_text()

    text = notebook_for(memory, "of a folder")
    assert str(bundled) not in text
    assert str(memory) in text
    assert str(projects) in text
    text = notebook_for(memlab.store_path("two_years"), "of a file")
    assert str(bundled) not in text
    assert str(memory) not in text
    assert str(projects) not in text


def test_notebooks_of_another_store_are_rejected(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    assert run("lab", "--folder", folder).exit_code == 0
    output = output_of("lab", store, "--folder", folder, code=2)
    assert f"the notebooks in {folder} are for " in output
    assert "name another folder with --folder" in output


def test_lab_refuses_a_file_that_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "make.py"
    file.write_text("print('no store')\n")
    folder = tmp_path / "notebooks"
    assert "is not a SQLite database" in output_of("lab", file, "--folder", folder, code=2)
    assert not folder.exists()


def test_lab_server_replaces_the_command_process(tmp_path: Path) -> None:
    """Ctrl-C, signals and the exit code then belong to the server."""
    (tmp_path / "jupyterlab.py").write_text("import os, sys; print(os.getpid()); sys.exit(7)")
    command = [sys.executable, "-m", "memlab", "lab", "--folder", tmp_path / "notebooks"]
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    ) as lab:
        assert lab.communicate()[0].splitlines()[-1] == str(lab.pid)
    assert lab.returncode == 7
