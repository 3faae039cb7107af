"""``memlab chart`` draws every chart there is, and ``compare --chart`` writes SVG too."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from shell import run
from stores import episodes, write_rows

import memlab
from memlab import charts
from memlab.report.drawing import CHARTS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("charts") / "memory.db"
    return memlab.copy_store(memlab.store_path("three_hundred_issues"), path)


def test_every_chart_of_a_store_has_a_name() -> None:
    plots = {name for name in charts.__all__ if name.startswith("plot_")}
    named = {f"plot_{name.replace('-', '_')}" for name in CHARTS}
    assert {name for name in plots - named if not name.startswith("plot_fleet")} == set()
    assert all(f"  {name} " in run("chart", "--help").output for name in CHARTS)


@pytest.mark.parametrize("name", sorted(CHARTS))
def test_a_chart_is_an_svg_file_that_says_what_it_shows(
    name: str, store: Path, tmp_path: Path
) -> None:
    drawn = run("chart", name, store, "-o", tmp_path / "chart.svg")
    assert drawn.exit_code == 0, drawn.output
    root = ET.fromstring((tmp_path / "chart.svg").read_text())
    said = {child.tag.rpartition("}")[2]: child.text for child in root}
    assert said["title"]
    assert said["title"] in drawn.output
    assert len(said["desc"] or "") > 20


def test_a_chart_can_be_narrow_and_a_picture(store: Path, tmp_path: Path) -> None:
    wide, narrow, picture = (tmp_path / name for name in ("wide.svg", "narrow.svg", "a.png"))
    for words in ((wide,), (narrow, "--narrow"), (picture,)):
        assert run("chart", "growth", store, "-o", *words).exit_code == 0
    widths = [float(ET.parse(path).getroot().get("width", "0pt")[:-2]) for path in (wide, narrow)]
    assert widths == [576, 288]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_asked_is_drawn(store: Path, tmp_path: Path) -> None:
    asked = ("--cap", 123, "--target", 0.75, "--token-budget", 9_000)
    assert run("chart", "cap-curve", store, "-o", tmp_path / "c.svg", *asked).exit_code == 0
    words = (tmp_path / "c.svg").read_text()
    assert "keep_recent = 123" in words
    assert "target 75%" in words


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", ["growth", "cap-curve", "age-ranks", "before-after", "regret"])
def test_hardly_any_memories_have_a_chart(name: str, count: int, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(count))
    drawn = run("chart", name, path, "-o", tmp_path / "chart.svg")
    assert drawn.exit_code == 0, drawn.output
    ET.fromstring((tmp_path / "chart.svg").read_text())


def test_a_file_of_another_kind_is_refused(store: Path, tmp_path: Path) -> None:
    refused = run("chart", "growth", store, "-o", tmp_path / "chart.gif")
    assert refused.exit_code == 2
    assert "chart.gif must end in .svg or .png" in refused.output
    assert list(tmp_path.iterdir()) == []


def test_compare_draws_svg_too(store: Path, tmp_path: Path) -> None:
    policies = ("--policy", "recent", "--policy", "ttl")
    drawn = run("compare", store, *policies, "--chart", tmp_path / "compared.svg")
    assert drawn.exit_code == 0, drawn.output
    root = ET.fromstring((tmp_path / "compared.svg").read_text())
    assert root.tag.endswith("svg")
