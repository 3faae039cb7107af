"""Bundled stores agree with their generators and README; copies of notebooks."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

import memlab
from memlab.evidence import reads_missed_by_index_cut
from memlab.policies import NearDuplicate, near_duplicates
from memlab.sources.opening import open_source
from memlab.systems.claude_code.source import ClaudeCode
from memlab.views.bundled import (
    StoreFacts,
    copy_notebooks,
    facts_of,
    fill_in_parameters,
    notebook_paths,
    store_names,
)
from tests.support.notebook_stores import run_in_this_process

DATA = Path(__file__).resolve().parents[2] / "data"
README = (DATA / "README.md").read_text()
STORES = ("looked_up", "three_hundred_issues", "two_years")


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DATA)
        yield import_module("generate")


def test_generators_reproduce_the_committed_files(generate: ModuleType) -> None:
    assert store_names() == STORES
    assert sorted(generate.STORES) == sorted(STORES)
    claude = import_module("generate_claude")
    paths = [
        DATA / "odek.reads.jsonl",
        DATA / "looked_up.reads.jsonl",
        DATA / "looked_up.searches.jsonl",
        *(DATA / "odek").iterdir(),
        *(DATA / "claude").rglob("*"),
    ]
    committed = {str(path.relative_to(DATA)): path.read_bytes() for path in paths if path.is_file()}
    generated = generate.odek_folder() | claude.claude_folder()
    generated["looked_up.reads.jsonl"] = generate.looked_up_reads()
    generated["looked_up.searches.jsonl"] = generate.looked_up_searches()
    assert generated == committed
    assert sum(len(content) for content in committed.values()) < 1_500_000


def test_bundled_claude_memory_matches_its_readme(tmp_path: Path) -> None:
    memory = DATA / "claude" / "projects" / "-home-mara-harbor" / "memory"
    frame = memlab.load(memory)
    facts = ClaudeCode(memory).extra_report().fields
    assert len(frame) == 280
    assert len(list(memory.parent.glob("*.jsonl"))) == 140
    assert len(facts["unnamed"]) == 5
    assert len(facts["dangling"]) == 2
    assert facts["loaded_lines"] == 200
    assert facts["dated"] == {"front matter": 120, "transcripts": 160}
    numbers = frame["memory_id"].str.split("_").str[1]
    assert numbers.is_monotonic_increasing
    log = memlab.read_access_log(memlab.harvest(memory, tmp_path / "reads.jsonl").log)
    losses = reads_missed_by_index_cut(memory, log)
    assert set(facts["cut_files"]) <= set(frame["memory_id"].iloc[-80:])
    assert 0.15 < losses.lost / losses.reads < 0.4
    assert losses.loaded["newest first"] > 0.9 * losses.reads


def test_bundled_odek_folder_matches_its_readme() -> None:
    frame = memlab.load(f"odek:{DATA / 'odek'}", with_body=True)
    log = memlab.read_access_log(DATA / "odek.reads.jsonl")
    assert len(frame) == 160
    assert len(log) == 143
    assert int((~frame["trusted"]).sum()) == 9
    assert set(log["memory_id"]) <= set(frame["memory_id"])
    assert 0.05 <= len(near_duplicates(frame, NearDuplicate())) / len(frame) <= 0.15


def test_looked_up_reads_are_as_uneven_as_in_public_stores() -> None:
    reads = memlab.read_access_log(DATA / "looked_up.reads.jsonl")["memory_id"].value_counts()
    frame = memlab.load(memlab.store_path("looked_up"))
    prunable = frame["prunable"].sum()
    assert (reads >= 1).sum() / prunable == pytest.approx(0.32, abs=0.05)
    assert (reads >= 2).sum() / prunable == pytest.approx(0.16, abs=0.05)
    assert (reads >= 3).sum() / prunable == pytest.approx(0.09, abs=0.05)
    assert set(reads.index) <= set(frame["memory_id"])


@pytest.mark.parametrize("name", STORES)
def test_generator_reproduces_the_committed_store(
    name: str, generate: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    generate.write_store(path, generate.STORES[name]())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ATTACH ? AS committed", [str(DATA / f"{name}.db")])
        generated = connection.execute("SELECT rowid, * FROM main.memory_items").fetchall()
        committed = connection.execute("SELECT rowid, * FROM committed.memory_items").fetchall()
    assert generated == committed
    assert list(tmp_path.iterdir()) == [path]
    for store in (path, DATA / f"{name}.db"):
        assert store.stat().st_size < 2_000_000
        assert store.read_bytes()[18:20] == b"\x01\x01"  # rollback journal, not WAL


def test_three_hundred_issues_is_the_worked_example() -> None:
    active = memlab.load(memlab.store_path("three_hundred_issues")).query("active")
    assert set(active.loc[active["prunable"], "tags"].str[0]) == {"failed", "merged"}
    assert set(active["source_task_ref"]) == {f"issue:#{n}" for n in range(1, 301)}


@pytest.mark.parametrize("name", STORES)
def test_readme_states_the_counts_of_the_store(name: str) -> None:
    frame = memlab.load(memlab.store_path(name))
    active = frame[frame["active"]]
    (line,) = re.findall(rf"^\| `{name}\.db` (.*)$", README, re.MULTILINE)
    cells = re.findall(r"\| ([\d,]+) (?=\|)", line)
    rows, active_rows, load_bearing, prunable, superseded = [
        int(cell.replace(",", "")) for cell in cells
    ]
    assert rows == len(frame)
    assert active_rows == len(active)
    assert load_bearing == active["load_bearing"].sum()
    assert prunable == active["prunable"].sum()
    assert superseded == len(frame) - len(active)


def test_needs_in_two_years_match_the_readme() -> None:
    frame = memlab.load(memlab.store_path("two_years"))
    references = memlab.find_references(frame).query("kind == 'evidence'")
    ranks = memlab.sizing.age_ranks(frame, references)["age_rank"]
    is_rejected = frame["tags"].map(lambda tags: "rejected-path" in tags)
    episodes = int(((frame["kind"] == "episodic") & ~is_rejected).sum())
    share = references["target_id"].nunique() / episodes
    p90 = ranks.quantile(0.9)
    p99 = ranks.quantile(0.99)
    sentence = (
        f"{len(references)} references to {share:.1%} of the episodes, "
        f"median {ranks.median():.0f}, 90th percentile {p90:.0f}, 99th {p99:.0f}."
    )
    assert sentence in README


@pytest.mark.parametrize("name", ["three_years", "../data/two_years", "two_years.db", ""])
def test_unknown_store_name_lists_the_bundled_stores(name: str) -> None:
    message = f"name must be one of looked_up, three_hundred_issues, two_years, not {name!r}"
    with pytest.raises(ValueError, match=message):
        memlab.store_path(name)


# Notebooks


def test_parameters_replace_those_of_the_notebook() -> None:
    stated = "# whose\nstore = 'bundled.db'\ncaps = (\n    1,\n    2,\n)\nkeep = 50"
    cells = [nbformat.v4.new_code_cell(source) for source in (stated, "store = 'mine'")]
    cells[0].metadata.tags = ["parameters"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    fill_in_parameters(notebook, {"store": "it's.db", "target": 0.9, "caps": (5,)})
    names: dict[str, object] = {}
    exec(notebook.cells[0].source, names)
    assert names["store"] == "it's.db"
    assert names["caps"] == (5,)
    assert names["keep"] == 50
    assert "target" not in names
    assert notebook.cells[0].source.splitlines()[0] == "# whose"
    assert notebook.cells[1].source == "store = 'mine'"


def facts(store: Path) -> StoreFacts:
    return facts_of(open_source(store), now=datetime(2026, 7, 1, tzinfo=UTC))


def test_each_parameter_is_set_once_in_every_copy(tmp_path: Path) -> None:
    store = memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    parameters = facts(store).parameters
    copies = copy_notebooks(tmp_path / "notebooks", facts(store))
    assert [copy.name for copy in copies] == [path.name for path in notebook_paths()]
    for copy in copies:
        cells = nbformat.read(copy, as_version=4).cells
        tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", ())]
        source = tagged[0].source
        names = re.findall(r"^(\w+) = ", source, re.MULTILINE)
        assert len(names) == len(set(names)), copy.name
        filled_in = parameters.keys() & names
        assert len(filled_in) > 0, copy.name
        for name in filled_in:
            assert f"{name} = {parameters[name]!r}" in source.splitlines()


def test_copies_without_a_store_keep_every_cell(tmp_path: Path) -> None:
    for copy in copy_notebooks(tmp_path):
        tags = [cell.metadata.get("tags", ()) for cell in nbformat.read(copy, as_version=4).cells]
        assert not any("unanswered" in tag for tag in tags)


@pytest.mark.long
def test_notebooks_use_the_past_of_a_compacted_store(tmp_path: Path) -> None:
    path = memlab.copy_store(memlab.store_path("three_hundred_issues"), tmp_path / "memory.db")
    past = memlab.load(path)
    memlab.apply(memlab.plan(path, memlab.KeepRecent(100)))
    copies = {copy.stem: copy for copy in copy_notebooks(tmp_path / "notebooks", facts(path))}
    compared = memlab.compare(past, memlab.find_references(past), workers=1)
    outputs = run_in_this_process(copies["04_compare_policies"])[-1]
    assert outputs.startswith(compared.answer)
    outputs = run_in_this_process(copies["03_size_keep_recent"])[-1]
    safe_cap = memlab.recommend_cap(past).keep_recent
    assert f"the safe cap is {safe_cap} episodes, and the store has 100." in outputs
