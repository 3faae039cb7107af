"""Every notebook runs on every kind of store without bundled data."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

import memlab
from memlab.errors import MemlabError, UnansweredError
from memlab.sources.opening import open_source
from memlab.views import needs
from memlab.views.bundled import (
    NEEDS,
    UNANSWERED,
    copy_notebooks,
    facts_of,
    folder_of,
    notebook_paths,
)
from tests.support.notebook_stores import (
    STORES,
    run_in_this_process,
    write_episodes,
    write_notebooks_for,
)
from tests.support.properties import all_but
from tests.support.stores import episodes, row, write_rows

SMALL = ("empty", "decision left", "sixty")
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


@pytest.fixture(scope="module", params=all_but(STORES, STORES.keys() - SMALL))
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[Path]]]:
    """Write the notebooks for a store; yield the name of the store and their paths."""
    if request.param == "server":
        pytest.importorskip("betterdb_agent_memory")
    folder = tmp_path_factory.mktemp("store")
    with STORES[request.param](folder) as store:
        yield request.param, write_notebooks_for(store, folder / "notebooks")


def test_every_notebook_is_written_for_a_store(written: tuple[str, list[Path]]) -> None:
    _, paths = written
    assert [path.name for path in paths] == [path.name for path in notebook_paths()]


@pytest.mark.parametrize("number", [path.name[:2] for path in notebook_paths()])
def test_notebook_runs_to_its_answer(written: tuple[str, list[Path]], number: str) -> None:
    name, paths = written
    (path,) = [path for path in paths if path.name.startswith(number)]
    last = nbformat.read(path, as_version=4).cells[-1]
    outputs = run_in_this_process(path)
    assert not re.search(r"\b(NaN|NaT|inf)\b|NA>|NA&gt;", "\n".join(outputs))
    answer = outputs[-1].strip()
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
            for word in ("bundled", "simulated", "two_years", "looked_up", "in the next cell"):
                assert word not in cell.source, path.name


def test_explanation_fits_a_page_and_keeps_commands_whole(tmp_path: Path) -> None:
    store = write_rows(tmp_path / f"{'long-name-' * 8}.db", episodes(5))
    for need in needs.NEEDS:
        lines = needs.unanswered(store, need).splitlines()
        for line in lines:
            assert len(line) <= 88 or str(store) in line, need
        commands = [line for line in lines if "memlab " in line]
        assert any(re.search(rf"memlab \w+ .*{re.escape(str(store))}", line) for line in commands)


@pytest.mark.usefixtures("no_rendering")
def test_panels_of_a_notebook_use_the_log_of_its_cell(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("looked_up"), tmp_path / "memory.db")
    log = memlab.store_path("looked_up").with_suffix(".reads.jsonl")
    facts = facts_of(open_source(store), now=datetime.now(UTC), log=log)
    paths = copy_notebooks(tmp_path / "notebooks", facts)
    (path,) = (path for path in paths if path.name.startswith("03"))
    outputs = run_in_this_process(path)
    evidence = [
        re.findall(r"(\d+)% from (\d+) later needs seen in this store", output)
        for output in outputs
    ]
    answer, *panels = [weights[-1] for weights in evidence if weights]
    assert panels == [answer] * 3
    percent, _ = answer
    pages = "\n".join(outputs)
    assert re.findall(r"weight of this store: [\d /()+]+ = (\d+)%", pages) == [percent]
    (written_by_law,) = re.findall(r"where ([\d,]+) prunable memories have been written", pages)
    written_so_far, *_ = re.findall(r"([\d,]+) were so far", pages)
    assert written_by_law == written_so_far


def notebook_for(store: str, folder: Path, number: str) -> Path:
    """Write the notebooks for a store, and return the one with a number."""
    paths = write_notebooks_for(store, folder / "notebooks")
    (path,) = [path for path in paths if path.name.startswith(number)]
    return path


def test_fleet_notebook_shows_the_weights_of_a_single_store(tmp_path: Path) -> None:
    store = write_episodes(tmp_path / "memory.db", 60)
    path = notebook_for(store, tmp_path, "06")
    pages = "\n".join(run_in_this_process(path))
    assert "Fewer than three stores have eight references" in pages
    assert "<th>elsewhere</th>" in pages


@pytest.mark.long
def test_examples_of_the_panel_fit_a_store_with_a_high_floor(tmp_path: Path) -> None:
    decisions = [row(f"d{n}", "semantic", body="why " * 25_000) for n in range(2)]
    store = str(write_rows(tmp_path / "memory.db", [*decisions, *episodes(60)]))
    path = notebook_for(store, tmp_path, "03")
    pages = "\n".join(run_in_this_process(path))
    assert "keep_recent: 6\n" in pages
    assert "exceed the token budget" not in pages


def test_store_without_load_bearing_memories_shows_no_empty_floor(tmp_path: Path) -> None:
    store = str(write_rows(tmp_path / "memory.db", episodes(12)))
    path = notebook_for(store, tmp_path, "01")
    outputs = run_in_this_process(path)
    assert any(text.startswith("0 memories of this store are load-bearing") for text in outputs)
    tables = [text for text in outputs if 'class="dataframe"' in text]
    assert len(tables) > 0
    for table in tables:
        assert "<td>" in table  # the table of an empty floor would have no cells


def test_comparison_of_a_history_names_the_next_command_with_the_path(tmp_path: Path) -> None:
    store = write_episodes(tmp_path / "memory.db", 20)
    comparison = memlab.compare(memlab.StoreHistory(store), workers=1)
    assert f"memlab size {store}" in comparison.command


def test_each_unanswered_question_is_one_cell(written: tuple[str, list[Path]]) -> None:
    name, paths = written
    for path in paths:
        cells = nbformat.read(path, as_version=4).cells
        places = [c.source for c in cells if UNANSWERED in c.metadata.get("tags", ())]
        assert len(places) == len(set(places)), (name, path.name)


def test_each_need_tag_of_a_cell_has_an_explanation() -> None:
    needed = set()
    for path in notebook_paths():
        for cell in nbformat.read(path, as_version=4).cells:
            tags = cell.metadata.get("tags", ())
            needed |= {tag.removeprefix(NEEDS) for tag in tags if tag.startswith(NEEDS)}
    assert needed == needs.NEEDS.keys()


def compact(keep: int, *, retire: bool = False) -> Callable[[str], object]:
    return lambda store: memlab.apply(
        memlab.plan(store, memlab.KeepRecent(keep), retire=retire), all_prunable=True
    )


def compact_and_restore(store: str) -> None:
    memlab.restore(memlab.apply(memlab.plan(store, memlab.KeepRecent(3))))


def delete_rows(store: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM memory_items WHERE kind = 'episodic'")


def replace_by_an_empty_store(store: str) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{store}{ending}").unlink(missing_ok=True)
    memlab.SqliteMemoryStore(store).close()


NOTHING_PRUNABLE = dict.fromkeys(
    ["01", "02", "03", "04", "08"], "0 memories of this store are prunable"
)
CHANGES: dict[str, tuple[Callable[[str], object], dict[str, str]]] = {
    "compacted to three": (compact(3), {}),
    "compacted to zero": (compact(0), NOTHING_PRUNABLE),
    "retired": (compact(0, retire=True), NOTHING_PRUNABLE),
    "restored": (compact_and_restore, {}),
    "deleted rows": (delete_rows, NOTHING_PRUNABLE),
    "replaced": (
        replace_by_an_empty_store,
        dict.fromkeys(["00", "01", "03", "04", "08"], "0 memories are in this store yet")
        | {"02": "0 memories of this store are prunable"},
    ),
    "removed": (
        lambda store: Path(store).unlink(),
        dict.fromkeys(["00", "01", "02", "03", "04", "07", "08"], "there is no file"),
    ),
}
"""Changes of a store after its notebooks were written, and the messages of those that then stop."""


ONLY_WITH_ALL = ("compacted to three", "restored", "retired")
"""Changes after which every cell runs, as on a store of sixty, or stops as after another change."""


@pytest.mark.usefixtures("no_rendering")
@pytest.mark.parametrize("change", all_but(CHANGES, ONLY_WITH_ALL))
def test_a_rerun_on_a_changed_store_answers_in_words(change: str, tmp_path: Path) -> None:
    store = write_episodes(tmp_path / "memory.db", 60)
    paths = write_notebooks_for(store, tmp_path / "notebooks")
    apply_change, expected = CHANGES[change]
    apply_change(store)
    stopped = {}
    for path in paths:
        try:
            run_in_this_process(path)
        except MemlabError as error:
            stopped[path.name[:2]] = " ".join(str(error).split())
    assert stopped.keys() == expected.keys()
    for number, message in expected.items():
        assert message in stopped[number]


@pytest.mark.long
@pytest.mark.parametrize("name", ["logged", "claude", "openclaw", "serena", "odek"])
def test_a_rerun_on_another_changed_store_answers_in_words(name: str, tmp_path: Path) -> None:
    with STORES[name](tmp_path) as store:
        paths = write_notebooks_for(store, tmp_path / "notebooks")
        with suppress(MemlabError):  # some stores are read only
            compact(0)(store)
        for path in paths:
            with suppress(UnansweredError):
                run_in_this_process(path)


def test_a_notebook_shows_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_episodes(tmp_path / "memory.db", 0)
    shell = InteractiveShell()
    shell.run_cell(f"import memlab\nmemlab.views.require({store!r}, 'memories')")
    message = " ".join(capsys.readouterr().out.split())
    assert message.startswith("UnansweredError: 0 memories are in this store yet: memlab show")
    assert message.endswith("shows it again.")
    assert "Traceback" not in message
