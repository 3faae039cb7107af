"""Serena's memories: their names are loaded at start; compacted and back; what was read of them."""

import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from claude_store import at, write_memory
from shell import said
from transcripts import Session, World

import memlab
from memlab.evidence.ingestion import harvest
from memlab.sources.opening import find_below, open_source, recognise
from memlab.systems.serena import ELSEWHERE, MEMORIES
from sources.conformance import Compacted, FilesLab


class SerenaLab(FilesLab):
    """Memories in folders and beside them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project" / MEMORIES
        self.name = str(self.path)

    def fill(self, count: int) -> None:
        texts = ("# Style\n\nné 北京 🦀", "", "one line\r\n" + "long " * 3000)
        for number in range(count):
            name = f"{'a/b/' * (number % 2)}topic_{number}.md"
            write_memory(self.path, name, texts[number % 3], at(number)).chmod(0o640)

    def add_pair(self, number: int) -> None:
        title = f"pair {number}"
        self.add_folder(title, title, at(10_000) + timedelta(seconds=number))


class TestSerena(Compacted):
    lab_type = SerenaLab


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With a memory that costs four tokens at start, its name, and one beside it."""
    made = tmp_path / "project"
    write_memory(made / MEMORIES, "core/how-we-test.md", "Run them.\n" * 99, at(0))
    write_memory(made / MEMORIES, "style.md", "Short.", at(1))
    return made


def test_a_memory_costs_its_name_at_start(project: Path) -> None:
    frame = memlab.load(f"serena:{project}").set_index("memory_id")
    assert frame["tokens"].to_dict() == {"core/how-we-test.md": 4, "style.md": 2}
    assert frame["loaded_at_start"].all()
    assert frame["chars"]["core/how-we-test.md"] > 900


def test_they_are_found_where_serena_puts_them(project: Path) -> None:
    folder = project / MEMORIES
    (folder / "MEMORY.md").touch()  # does not make it Claude Code's
    assert [each.path for each in find_below([project.parent]).stores] == [folder]
    assert open_source(folder).scheme == "serena"
    assert recognise(project) is None
    for name in (project, project / ".serena", folder):
        assert len(memlab.load(f"serena:{name}")) == 3


def test_what_agents_in_the_project_asked_for_is_a_read(project: Path) -> None:
    world = World(project.parent / "home", 0)
    writing, reading, elsewhere = (Session(world, f"s{n}", "-work-app") for n in range(3))
    writing.cwd, reading.cwd = str(project), str(project / "src")
    writing.call("mcp__serena__write_memory", {"memory_name": "style", "content": "Short."})
    writing.call("mcp__serena__read_memory", {"memory_name": "style"})
    for name in ({"memory_file_name": "style.md"}, {"memory_name": "core/how-we-test"}):
        for session in (reading, elsewhere):
            session.call("mcp__plugin_serena_serena__read_memory", name)
    reading.call("mcp__serena__list_memories", {})
    reading.call("mcp__serena__read_memory", {"memory_name": "../../x"})
    reading.call("mcp__serena__read_memory", {"memory_name": "style"}, error=True)
    for session in (writing, reading, elsewhere):
        world._save(session)
    found = harvest(f"serena:{project}", transcripts=world.projects)
    read = memlab.read_access_log(found.log)["memory_id"]
    assert sorted(read) == ["core/how-we-test.md", "style.md"]
    assert found.apart == {"own session": 1}
    assert found.left_out[ELSEWHERE] == 2
    assert harvest(project, found.log, transcripts=world.projects).new == 0
    (step,) = found.next_steps()
    words = shlex.split(step.removeprefix("next: memlab ").partition("    ")[0])
    assert "2 read" in said(*words)
