"""Every notebook runs on every kind of store without bundled data."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest

import memlab
from memlab.sources.opening import open_source
from memlab.views.bundled import (
    NEEDS,
    UNANSWERED,
    copy_notebooks,
    facts_of,
    folder_of,
    notebook_paths,
)
from memlab.views.needs import NEEDS as WORDS
from memlab.views.needs import unanswered
from tests.support.notebook_stores import STORES, run_here, written_for
from tests.support.stores import episodes, write_rows

SMALL = ("empty", "all deleted", "decision left", "sixty")
"""Stores of a default run; ``--all`` tries the others, too."""

ANSWERED = {
    "empty": {"06"},
    "one row": {"00", "06"},
    "eleven": {"00", "01", "02", "03", "06", "08"},
    "sixty": {"00", "01", "02", "03", "06", "08"},
    "all deleted": {"00", "06"},
    "decision left": {"00", "06"},
    "thousand": {"00", "01", "02", "03", "06", "08"},
    "logged": {"00", "01", "02", "03", "04", "06", "07", "08"},
    "claude": {"00", "01", "03", "05", "06", "08"},
    "openclaw": {"00", "01", "03", "06", "08"},
    "serena": {"00", "01", "03", "06", "08"},
    "odek": {"00", "03", "06", "08"},
    "server": {"00", "03", "06", "08"},
}
"""The notebooks whose question each store can answer, by number."""


@pytest.fixture(
    scope="module",
    params=[
        name if name in SMALL else pytest.param(name, marks=pytest.mark.long) for name in STORES
    ],
)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[Path]]]:
    """Write the notebooks for a store; yield the name of the store and their paths."""
    if request.param == "server":
        pytest.importorskip("betterdb_agent_memory")
    folder = tmp_path_factory.mktemp("store")
    with STORES[request.param](folder) as store:
        yield request.param, written_for(store, folder / "notebooks")


def test_every_notebook_is_written_for_a_store(written: tuple[str, list[Path]]) -> None:
    _, paths = written
    assert [path.name for path in paths] == [path.name for path in notebook_paths()]


@pytest.mark.parametrize("number", [path.name[:2] for path in notebook_paths()])
def test_notebook_runs_to_its_answer(written: tuple[str, list[Path]], number: str) -> None:
    name, paths = written
    (path,) = [path for path in paths if path.name.startswith(number)]
    last = nbformat.read(path, as_version=4).cells[-1]
    answer = run_here(path)[-1].strip()
    is_answered = UNANSWERED not in last.metadata.get("tags", ())
    assert is_answered == (number in ANSWERED[name])
    if number != "00":
        assert re.match(r"[A-Z0].*\d.*\.$", answer, re.DOTALL)
    if not is_answered:
        assert re.search(r"memlab (show|rows|size|compact|harvest) ", answer)


def test_notebooks_of_a_store_do_not_mention_bundled_data(written: tuple[str, list[Path]]) -> None:
    _, paths = written
    for path in paths:
        for cell in nbformat.read(path, as_version=4).cells:
            assert str(folder_of("data")) not in cell.source
            for word in ("bundled", "simulated", "two_years", "looked_up"):
                assert word not in cell.source, path.name


def test_explanation_fits_a_page_and_keeps_commands_whole(tmp_path: Path) -> None:
    store = write_rows(tmp_path / f"{'long-name-' * 8}.db", episodes(5))
    for need in WORDS:
        lines = unanswered(store, need).splitlines()
        for line in lines:
            assert len(line) <= 88 or str(store) in line, need
        commands = [line for line in lines if "memlab " in line]
        assert any(re.search(rf"memlab \w+ .*{re.escape(str(store))}", line) for line in commands)


def test_panels_of_a_notebook_use_the_log_of_its_cell(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("looked_up"), tmp_path / "memory.db")
    log = memlab.store_path("looked_up").with_suffix(".reads.jsonl")
    facts = facts_of(open_source(store), now=datetime.now(UTC), log=log)
    paths = copy_notebooks(tmp_path / "notebooks", facts)
    (path,) = (path for path in paths if path.name.startswith("03"))
    evidence = [
        re.findall(r"(\d+) later needs seen in this store", text) for text in run_here(path)
    ]
    answer, *panels = [counts[-1] for counts in evidence if counts]
    assert len(panels) == 3
    assert set(panels) == {answer}


def test_each_unanswered_question_is_one_cell(written: tuple[str, list[Path]]) -> None:
    name, paths = written
    for path in paths:
        cells = nbformat.read(path, as_version=4).cells
        places = [c.source for c in cells if UNANSWERED in c.metadata.get("tags", ())]
        assert len(places) == len(set(places)), (name, path.name)


def test_each_need_tag_of_a_cell_has_an_explanation() -> None:
    needs = set()
    for path in notebook_paths():
        for cell in nbformat.read(path, as_version=4).cells:
            tags = cell.metadata.get("tags", ())
            needs |= {tag.removeprefix(NEEDS) for tag in tags if tag.startswith(NEEDS)}
    assert needs == WORDS.keys()
