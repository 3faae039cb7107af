"""Notes of OpenClaw and Serena: recognition, dates, loading, restore."""

import json
import os
import shlex
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pytest

import memlab
from memlab.errors import StoreError
from memlab.evidence.ingestion import harvest
from memlab.growth import boot_context
from memlab.sources.opening import find_below, open_source, recognise
from memlab.systems.openclaw import OpenClaw
from memlab.systems.serena import ELSEWHERE, MEMORIES
from memlab.testing.conformance import DeletingSuite
from memlab.testing.labs import MODES, FilesLab
from tests.support.claude_store import at, write_memory
from tests.support.openclaw_store import days_before, noon, recall, write_events, write_workspace
from tests.support.permissions import as_nobody
from tests.support.repositories import Repository
from tests.support.repositories import day as moment
from tests.support.shell import output_of
from tests.support.stores import files_in
from tests.support.transcripts import Session, World

TODAY = date(2026, 6, 30)
TEXTS = ("# Day\n\n- né 北京 🦀", "one line", "", "---\nname: x\n---\r\n" + "long " * 3000)


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlab.systems.openclaw.today", lambda: TODAY)


class OpenClawLab(FilesLab):
    """``MEMORY.md``, notes with and without dates, in folders of their own too."""

    where = "workspace"
    scheme = "openclaw:"

    def fill(self, count: int) -> None:
        days = days_before(TODAY, count)
        write_events(self.path / "memory/.dreams/events.jsonl", {"type": "memory.recall.skipped"})
        write_memory(self.path, "MEMORY.md", "# Long term\n" + "x" * 30_000, noon(days[0]))
        for number, day in enumerate(days[1:]):
            pattern = ("memory/{}.md", "memory/{}-släng.md", "memory/a/b/{}.md")[number % 3]
            stem = f"people {number}" if number % 4 == 2 else str(day)
            path = write_memory(self.path, pattern.format(stem), TEXTS[number % 4], noon(day))
            path.chmod(MODES[number % 5])
        (self.path / "memory" / "link.md").symlink_to(self.path / "MEMORY.md")

    def add_pair(self, number: int) -> None:
        title = f"pair {number}"
        self.add_folder(f"memory/{title}", title, noon(TODAY) + timedelta(seconds=number))

    def others(self) -> dict[str, str]:
        beside = ("AGENTS.md", "SOUL.md", "README.md", "docs/a.md", "memory/.dreams/a.md")
        return {**super().others(), **dict.fromkeys(beside, "no memory\n")}

    def files(self) -> list[Path]:
        paths = [*self.path.glob("memory/**/*.md"), self.path / "MEMORY.md"]
        return [path for path in paths if not path.is_symlink()]


class TestOpenClaw(DeletingSuite):
    lab_type = OpenClawLab


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Write 57 dated and three undated notes, without skipped hits."""
    undated = ("people/anna", "projects", "2026-13-45")
    return write_workspace(tmp_path / "workspace", days_before(TODAY, 57), undated=undated)


def report_of(path: Path) -> dict[str, str]:
    """Return what the source reports of itself; the same texts are on its page."""
    page = OpenClaw(path).extra_report()
    assert page is not None
    for phrase in page.to_dict().values():
        assert phrase in str(page)
    return page.to_dict()


def test_is_note_accepts_only_notes() -> None:
    notes = ("memory/2026-04-05.md", "memory/a/b/c.md", "memory/dreaming.md", "memory/x\ny.md")
    other_names = (
        "MEMORY.md",
        "AGENTS.md",
        "memory/a.txt",
        "memory/.a.md",
        "memory/.dreams/a.md",
        "memory/dreaming/a.md",
        "memory/events/s/a.md",
        "memory/a/.git/b.md",
        "skills/a.md",
        "memory",
        "",
        "/memory/a.md",
        "memories/a.md",
        "memory/../memory/.dreams/a.md",
    )
    for name in notes:
        assert OpenClaw.is_note(name), name
    for name in other_names:
        assert not OpenClaw.is_note(name), name


def test_note_is_dated_by_its_name_or_file_time(tmp_path: Path) -> None:
    file_time = noon(TODAY).isoformat()
    tomorrow = TODAY + timedelta(days=1)
    expected = {
        "memory/0001-01-01.md": "0001-01-01T00:00:00+00:00",
        "memory/2026-04-05.md": "2026-04-05T00:00:00+00:00",
        "memory/deep/2026-04-06-a-release.md": "2026-04-06T00:00:00+00:00",
        f"memory/{tomorrow}.md": "2026-07-01T00:00:00+00:00",
        "memory/2026-07-09.md": file_time,
        "memory/2026-02-30.md": file_time,
        "memory/2026-04-071.md": file_time,
        "memory/x.md": file_time,
    }
    for name in expected:
        write_memory(tmp_path, name, "text", noon(TODAY))
    frame = memlab.load(f"openclaw:{tmp_path}").set_index("memory_id")
    assert {name: at.isoformat() for name, at in frame["created_at"].items()} == expected


def test_start_loads_memory_md_and_notes_of_two_days(workspace: Path) -> None:
    frame = memlab.load(workspace).set_index("memory_id")
    loaded = frame[frame["loaded_at_start"]]
    assert set(loaded.index) == {"MEMORY.md", "memory/2026-06-29.md", "memory/2026-06-30.md"}
    assert frame.loc["MEMORY.md", "load_bearing"]
    assert frame.loc["MEMORY.md", "created_at"] == frame["created_at"].min()
    assert boot_context(workspace).loc["facts", "tokens"] == 5_000
    facts = report_of(workspace)
    assert open_source(workspace / "memory").name == OpenClaw(workspace).name
    assert facts["MEMORY.md"] == "20,000 of its 25,000 characters are loaded"
    assert facts["loaded"] == "2 notes of 2026-06-29 and 2026-06-30, today by this machine's clock"


@pytest.mark.parametrize("skipped", [False, True])
def test_undated_notes_are_prunable_only_if_hits_are_logged(tmp_path: Path, skipped: bool) -> None:
    days = days_before(TODAY, 9)
    undated = ("anna", "2026-13-45")
    path = write_workspace(tmp_path / "w", days, undated=undated, skipped=skipped)
    prunable = memlab.load(path).set_index("memory_id")["prunable"]
    undated_ids = [f"memory/{name}.md" for name in undated]
    report = report_of(path)["undated"]
    harvested = harvest(path)
    reads = set(memlab.read_access_log(harvested.log)["memory_id"])
    if skipped:
        assert prunable[undated_ids].all()
        assert prunable.sum() == 11
        assert "records hits on them" in report
        assert set(undated_ids) <= reads
        assert "memlab keeps those notes" not in str(harvested)
    else:
        assert not prunable[undated_ids].any()
        assert prunable.sum() == 9
        assert "kept, because no hit on them is recorded" in report
        assert not set(undated_ids) <= reads
        assert "memlab keeps those notes" in str(harvested)


def test_notes_deleted_by_dreaming_are_listed_with_searches(workspace: Path) -> None:
    text = "# Broker\n\nKafka drops the rebalance listener of its consumers.\n"
    kafka = write_memory(workspace, "memory/2026-06-01-broker.md", text, noon(date(2026, 6, 1)))
    repository = Repository(workspace)
    repository.commit(180)
    before = files_in(workspace / "memory")
    dated = workspace / "memory" / "2026-06-11.md"
    for path in (kafka, dated):
        path.unlink()
    commit = repository.commit(181)
    log = workspace / "memory" / ".dreams" / "events.jsonl"
    searches = [
        (179, "kafka rebalance"),
        (182, "kafka rebalance"),
        (182.5, "kafka rebalance"),
        (183, "kafka rebalance"),
        (184, "what of 2026-06-11?"),
        (184, "xyz kafka"),
        (185, "__dreaming_ kafka"),
    ]
    with log.open("a") as file:
        for day_number, query in searches:
            file.write(json.dumps(recall(moment(day_number), query=query)) + "\n")
        file.write('{"type":"memory.recall.recorded","query":"kafka')
    losses = memlab.lost(workspace)
    assert losses["memory_id"].tolist() == [f"memory/{path.name}" for path in (kafka, dated)]
    assert losses["searches"].tolist() == [3, 1]
    assert losses["asked"].tolist() == [3, 1]
    assert set(losses["commit"]) == {commit}
    assert "kafka rebalance" not in output_of("lost", workspace)
    output_of("lost", workspace, "--restore", "all", "--apply")
    restored = files_in(workspace / "memory")
    log_name = ".dreams/events.jsonl"
    del before[log_name], restored[log_name]
    assert restored == before


def test_removed_sub_folder_is_recreated_by_restore(workspace: Path) -> None:
    deep = write_memory(workspace, "memory/2026/05/2026-05-01.md", "deep", noon(date(2026, 5, 1)))
    before = files_in(workspace)
    receipt = memlab.apply(memlab.plan(workspace, memlab.KeepRecent(57)))
    assert receipt.deleted == 1
    deep.parent.rmdir()
    deep.parent.parent.rmdir()
    assert memlab.restore(receipt).memories == 1
    assert files_in(workspace) == before


def test_symlinks_are_counted_and_not_followed(workspace: Path, tmp_path: Path) -> None:
    outside = write_memory(tmp_path, "outside/2026-04-05.md", "nobody's business", noon(TODAY))
    (workspace / "memory" / "2026-04-04.md").symlink_to(outside)
    (workspace / "memory" / "vault").symlink_to(outside.parent)
    Path(os.fsdecode(os.fsencode(workspace / "memory") + b"/2026-04-\xff.md")).touch()
    assert len(memlab.load(workspace)) == 61
    assert (
        "3 names of links or of what is no file, memory/2026-" in report_of(workspace)["not read"]
    )
    plan = memlab.plan(workspace, memlab.KeepRecent(0))
    (workspace / "memory").rename(tmp_path / "moved")
    (workspace / "memory").symlink_to(tmp_path / "moved")
    message = "memory is not a folder, and memlab follows no link"
    with pytest.raises(StoreError, match=message):
        memlab.load(workspace)
    with pytest.raises(StoreError, match=message):
        memlab.apply(plan)
    assert len(list((tmp_path / "moved").glob("2026*"))) == 60


@pytest.mark.parametrize("shut", ["memory", "memory/people", "memory/2026-06-30.md"])
def test_unreadable_path_is_named(shut: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = write_workspace(Path(name) / "w", days_before(TODAY, 2), undated=["people/anna"])
        memlab.load(path)  # imports modules that only root may read
        path.parent.chmod(0o755)
        (path / shut).chmod(0o000)
        with as_nobody(), pytest.raises(StoreError, match=rf"{shut} cannot be read \(Permission"):
            memlab.load(path)
        (path / shut).chmod(0o755)


def test_only_the_end_of_a_huge_event_log_is_read(workspace: Path) -> None:
    log = workspace / "memory" / ".dreams" / "events.jsonl"
    with log.open("r+b") as file:
        file.seek(2**31)
        file.write(b'\n{"type":"memory.recall.skipped"}\n{"type":"memory.rec')
    assert memlab.load(workspace)["prunable"].sum() == 60


# Serena


class SerenaLab(FilesLab):
    """Memories in folders and beside them."""

    where = f"project/{MEMORIES}"

    def fill(self, count: int) -> None:
        texts = ("# Style\n\nné 北京 🦀", "", "one line\r\n" + "long " * 3000)
        for number in range(count):
            folder = "" if number % 2 == 0 else "a/b/"
            name = f"{folder}topic_{number}.md"
            path = write_memory(self.path, name, texts[number % 3], at(number))
            path.chmod(MODES[number % 5])

    def add_pair(self, number: int) -> None:
        title = f"pair {number}"
        self.add_folder(title, title, at(10_000) + timedelta(seconds=number))


class TestSerena(DeletingSuite):
    lab_type = SerenaLab


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project with two Serena memories; a start loads only their names."""
    folder = tmp_path / "project"
    write_memory(folder / MEMORIES, "core/how-we-test.md", "Run them.\n" * 99, at(0))
    write_memory(folder / MEMORIES, "style.md", "Short.", at(1))
    return folder


def test_serena_memories_are_found_and_cost_only_their_names(project: Path) -> None:
    folder = project / MEMORIES
    (folder / "MEMORY.md").touch()  # it does not make the folder Claude Code memory
    assert [store.path for store in find_below([project.parent]).stores] == [folder]
    assert open_source(folder).scheme == "serena"
    assert recognise(project) is None
    for name in (project, project / ".serena", folder):
        frame = memlab.load(f"serena:{name}").set_index("memory_id")
        tokens = {"core/how-we-test.md": 4, "style.md": 2, "MEMORY.md": 2}
        assert frame["tokens"].to_dict() == tokens
        assert frame["loaded_at_start"].all()
    assert frame["chars"]["core/how-we-test.md"] > 900


def test_tool_calls_in_the_project_are_reads(project: Path) -> None:
    world = World(project.parent / "home", 0)
    writing = Session(world, "s0", "-work-app")
    reading = Session(world, "s1", "-work-app")
    elsewhere = Session(world, "s2", "-work-app")
    writing.cwd = str(project)
    reading.cwd = str(project / "src")
    writing.call("mcp__serena__write_memory", {"memory_name": "style", "content": "Short."})
    writing.call("mcp__serena__read_memory", {"memory_name": "style"})
    for session in (reading, elsewhere):
        read_memory = "mcp__plugin_serena_serena__read_memory"
        session.call(read_memory, {"memory_file_name": "style.md"})
        session.call(read_memory, {"memory_name": "core/how-we-test"})
    reading.call("mcp__serena__list_memories", {})
    reading.call("mcp__serena__read_memory", {"memory_name": "../../x"})
    reading.call("mcp__serena__read_memory", {"memory_name": "style"}, error=True)
    for session in (writing, reading, elsewhere):
        world._save(session)
    harvested = harvest(f"serena:{project}", transcripts=world.projects)
    read = memlab.read_access_log(harvested.log)["memory_id"]
    assert sorted(read) == ["core/how-we-test.md", "style.md"]
    assert harvested.excluded == {"own session": 1}
    assert harvested.left_out[ELSEWHERE] == 2
    assert harvest(project, harvested.log, transcripts=world.projects).new == 0
    (step,) = harvested.next_steps()
    arguments = shlex.split(step.removeprefix("next: memlab ").partition("    ")[0])
    assert "2 read" in output_of(*arguments)
