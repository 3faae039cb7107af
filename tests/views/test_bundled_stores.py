"""The bundled stores are what the generator makes and what their README says."""

import importlib.util
import json
import re
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from permissions import as_nobody

import memlab
from memlab import fleet
from memlab.evidence import cut_losses
from memlab.items import is_load_bearing_memory
from memlab.policies import NearDuplicate, near_duplicates
from memlab.store import SqliteMemoryStore
from memlab.systems.claude_code.source import ClaudeCode
from memlab.views.bundled import notebook_paths, store_names, store_path

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = CHECKOUT / "data"
STORES = ("looked_up", "three_hundred_issues", "two_years")


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    yield from script("generate")


@pytest.fixture(scope="module")
def generate_claude(generate: ModuleType) -> Iterator[ModuleType]:
    yield from script("generate_claude")


def script(name: str) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(name, DATA / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def rows_in(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    rows = connection.execute("SELECT * FROM memory_items ORDER BY rowid").fetchall()
    connection.close()
    return rows


def is_episode(row: tuple[object, ...]) -> bool:
    """Whether it was written as one that a cap may delete."""
    return row[1] == "episodic" and "rejected-path" not in str(row[4])


def age_ranks(rows: list[tuple[object, ...]]) -> tuple[list[int], set[str]]:
    """How many prunable active episodes back each ``issue:#N`` reaches, and which are reached."""
    newest: dict[str, str] = {}
    backlog: list[str] = []
    ranks, reached = [], set()
    for memory_id, kind, _, _, tags, _, _, task, _, _, _, replaces, evidence, _ in rows:
        for task_ref in json.loads(str(evidence)):
            target = newest[task_ref]
            ranks.append(len(backlog) - backlog.index(target))
            reached.add(target)
        for old in json.loads(str(replaces)):
            backlog = [other for other in backlog if other != old]
        newest[str(task)] = str(memory_id)
        if kind == "episodic" and "rejected-path" not in str(tags):
            backlog.append(str(memory_id))
    return ranks, reached


def test_the_bundled_names_are_the_ones_that_are_generated(generate: ModuleType) -> None:
    assert store_names() == STORES == tuple(sorted(generate.STORES))


def test_the_generator_makes_the_committed_folder_byte_for_byte(generate: ModuleType) -> None:
    found = [DATA / "odek.reads.jsonl", *(DATA / "odek").iterdir()]
    committed = {str(path.relative_to(DATA)): path.read_bytes() for path in found}
    assert generate.odek_folder() == committed


def test_the_generator_makes_the_committed_memory_byte_for_byte(
    generate_claude: ModuleType,
) -> None:
    found = [path for path in (DATA / "claude").rglob("*") if path.is_file()]
    committed = {str(path.relative_to(DATA)): path.read_bytes() for path in found}
    assert generate_claude.claude_folder() == committed
    assert sum(map(len, committed.values())) < 1_000_000


def test_the_memory_and_its_transcripts_are_what_their_readme_says(tmp_path: Path) -> None:
    memory = DATA / "claude" / "projects" / "-home-mara-harbor" / "memory"
    frame, facts = memlab.load(memory), ClaudeCode(memory).about()
    assert (len(frame), len(list(memory.parent.glob("*.jsonl")))) == (280, 140)
    assert (len(facts.unnamed), len(facts.dangling), facts.loaded_lines) == (5, 2, 200)
    assert facts.dated == {"front matter": 120, "transcripts": 160}
    assert frame["memory_id"].tolist() == sorted(frame["memory_id"], key=lambda n: n.split("_")[1])
    log = memlab.read_access_log(memlab.harvest(memory, tmp_path / "reads.jsonl").log)
    losses = cut_losses(memory, log)
    assert set(facts.cut_files) <= set(frame["memory_id"].iloc[-80:])
    assert 0.15 < losses.lost / losses.reads < 0.4
    assert losses.loaded["newest first"] > 0.9 * losses.reads


def test_the_folder_of_episodes_is_what_its_readme_says() -> None:
    frame = memlab.load(f"odek:{DATA / 'odek'}", with_body=True)
    log = memlab.read_access_log(DATA / "odek.reads.jsonl")
    assert (len(frame), len(log), int((~frame["trusted"]).sum())) == (160, 143, 9)
    assert set(log["memory_id"]) <= set(frame["memory_id"])
    assert 0.05 <= len(near_duplicates(frame, NearDuplicate())) / len(frame) <= 0.15


def test_what_is_looked_up_is_as_uneven_as_in_the_stores_it_is_simulated_after(
    generate: ModuleType,
) -> None:
    log = DATA / "looked_up.reads.jsonl"
    assert generate.looked_up_reads() == log.read_bytes()
    reads = memlab.read_access_log(log)["memory_id"].value_counts()
    prunable = int(memlab.load(store_path("looked_up"))["prunable"].sum())
    shares = [float((reads >= times).sum()) / prunable for times in (1, 2, 3)]
    assert shares == pytest.approx([0.32, 0.16, 0.09], abs=0.05)
    assert set(reads.index) <= set(memlab.load(store_path("looked_up"))["memory_id"])


def test_the_searches_are_what_the_generator_makes(generate: ModuleType) -> None:
    assert generate.looked_up_searches() == (DATA / "looked_up.searches.jsonl").read_bytes()


def test_policies_differ_on_what_is_looked_up() -> None:
    log = memlab.read_access_log(DATA / "looked_up.reads.jsonl")
    past = memlab.load_past(store_path("looked_up"))
    table = memlab.compare(
        past,
        memlab.find_references(past, log),
        [memlab.KeepRecent(100), memlab.policies.ValueCap(100), memlab.Learned(100)],
    ).table
    served = table["served"]
    assert served["value 100"] > served["learned 100"] > served["recent 100"] + 0.05
    assert table.loc["value 100", "boot_tokens_mean"] < table.loc["recent 100", "boot_tokens_mean"]


def test_the_fleet_has_stores_of_every_kind(generate: ModuleType, tmp_path: Path) -> None:
    for number in (5, 9, 28):
        generate.write_store(tmp_path / f"{number:02}.db", generate.fleet_agent(number))
    sizes = fleet.size(str(tmp_path), runner=fleet.Serial())
    small, planner, large = (sizes.iloc[place] for place in range(3))
    assert small["until"] > small["keep_recent"] > small["prunable"] / 2 > small["likely"]
    assert large["boot_after"] < large["boot_now"]
    assert planner["floor"] > planner["boot_now"] / 2


@pytest.mark.parametrize("name", STORES)
def test_the_generator_makes_the_committed_store_row_for_row_and_small(
    name: str, generate: ModuleType, tmp_path: Path
) -> None:
    made = generate.STORES[name]()
    assert [tuple(row) for row in made] == rows_in(DATA / f"{name}.db")
    path = tmp_path / "store.db"
    generate.write_store(path, made)
    assert list(tmp_path.iterdir()) == [path]
    for store in (path, DATA / f"{name}.db"):
        assert store.stat().st_size < 2_000_000
        assert store.read_bytes()[18:20] == b"\x01\x01"  # rollback journal, not WAL


@pytest.mark.parametrize("name", STORES)
def test_a_store_can_be_read_where_nothing_can_be_written(name: str) -> None:
    bundled = memlab.load(store_path(name))
    with TemporaryDirectory() as folder:  # a folder of pytest's own may not be entered by nobody
        path = Path(shutil.copy(store_path(name), folder))
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        with as_nobody():
            with pytest.raises(PermissionError):
                Path(folder, "written").touch()
            assert memlab.load(path).equals(bundled)
        assert list(Path(folder).iterdir()) == [path]
        Path(folder).chmod(0o755)


def test_three_hundred_issues_is_the_worked_example(tmp_path: Path) -> None:
    copy = memlab.copy_store(store_path("three_hundred_issues"), tmp_path / "copy.db")
    with SqliteMemoryStore(copy) as store:
        active = store.list_active()
        kinds = [item.kind.value for item in active if is_load_bearing_memory(item)]
        outcomes = {item.tags[0] for item in active if not is_load_bearing_memory(item)}
        issues = {item.provenance.source_task_ref for item in active}
        assert (kinds.count("semantic"), kinds.count("procedural"), len(active)) == (3, 5, 600)
        assert outcomes == {"failed", "merged"}
        assert issues == {f"issue:#{n}" for n in range(1, 301)}
        assert store.compact_episodic(50) == 542
        assert len(store.list_active()) == 58


@pytest.mark.parametrize("name", STORES)
def test_rows_are_in_order_of_time_and_replaced_ones_name_their_successor(name: str) -> None:
    rows = rows_in(store_path(name))
    times = [row[10] for row in rows]
    assert times == sorted(set(times))
    place = {row[0]: number for number, row in enumerate(rows)}
    replaced = [(row[0], row[13]) for row in rows if row[13] is not None]
    assert replaced
    for old, new in replaced:
        assert old in json.loads(str(rows[place[new]][11]))
        assert place[old] < place[new]


def test_two_years_has_bursts_and_quiet_weeks() -> None:
    days = (str(row[10])[:10] for row in rows_in(store_path("two_years")))
    weeks = Counter((day[:7], int(day[8:]) // 8) for day in days)
    counts = sorted(weeks.values())
    assert counts[-1] > 2 * median(counts)
    assert counts[0] < median(counts) / 3


@pytest.mark.parametrize("name", STORES)
def test_the_readme_states_the_counts_of_the_store(name: str) -> None:
    rows = rows_in(store_path(name))
    active = [row for row in rows if row[13] is None]
    prunable = len([row for row in active if is_episode(row)])
    counts = (len(rows), len(active), len(active) - prunable, prunable)
    line = next(
        line for line in (DATA / "README.md").read_text().splitlines() if f"`{name}.db` |" in line
    )
    stated = [int(cell.replace(",", "")) for cell in re.findall(r"\| ([\d,]+) (?=\|)", line)]
    assert stated == [*counts, len(rows) - len(active)]


def test_needs_in_two_years_follow_the_measured_law_as_the_readme_states_it() -> None:
    rows = rows_in(store_path("two_years"))
    ranks, reached = age_ranks(rows)
    share = len(reached) / len([row for row in rows if is_episode(row)])
    assert len(ranks) > 300
    assert 20 <= median(ranks) <= 70
    assert 200 <= sorted(ranks)[int(0.9 * len(ranks))] <= 950
    assert 0.08 <= share <= 0.11
    assert 1.0 <= len(ranks) / len(reached) <= 1.4
    stated = re.search(
        r"([\d]+) references to ([\d.]+)% of the episodes, median (\d+)",
        (DATA / "README.md").read_text(),
    )
    assert stated is not None
    assert (int(stated[1]), int(stated[3])) == (len(ranks), median(ranks))
    assert float(stated[2]) == round(100 * share, 1)


@pytest.mark.parametrize("name", ["three_years", "../data/two_years", "two_years.db", ""])
def test_only_names_lead_to_a_store_and_a_refusal_says_them(name: str) -> None:
    known = f"name must be one of looked_up, three_hundred_issues, two_years, not {name!r}"
    with pytest.raises(ValueError, match=known):
        store_path(name)


def test_notebooks_are_found_in_reading_order() -> None:
    found = notebook_paths()
    assert [path.name for path in found] == sorted(
        path.name for path in (CHECKOUT / "notebooks").glob("0*.ipynb")
    )
