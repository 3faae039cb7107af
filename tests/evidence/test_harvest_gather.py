"""Harvest in general: recognised sources, the written log, the result."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memlab.errors import MemlabError
from memlab.evidence import AccessLog, read_access_log
from memlab.evidence.ingestion import default_log, harvest
from tests.support.claude_store import at
from tests.support.openclaw_store import recall, write_events
from tests.support.stores import episodes, write_rows


def workspace(folder: Path, events: int = 3) -> Path:
    """Write a small OpenClaw workspace."""
    log = folder / "memory" / ".dreams" / "events.jsonl"
    recalls = [recall(at(number), f"memory/{number}.md") for number in range(events)]
    write_events(log, *recalls)
    return folder


def test_reads_no_longer_in_the_source_stay_in_the_log(tmp_path: Path) -> None:
    source = workspace(tmp_path / "w", events=5)
    harvest(source)
    harvested = harvest(workspace(source, events=2))
    assert harvested.reads == 2
    assert harvested.new == 0
    assert harvested.kept == 3
    assert len(read_access_log(harvested.log)) == 5
    assert "nothing new, 3 kept that the source does not have any more" in str(harvested)


def rotate(log: Path) -> None:
    log.rename(f"{log}.1")


def cut_last_line(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 10)


def add_another_read(log: Path) -> None:
    AccessLog(log).add("mine", at(9))


@pytest.mark.parametrize(
    ("change", "new", "lines"),
    [(rotate, 0, 3), (cut_last_line, 1, 3), (add_another_read, 0, 4)],
)
def test_second_harvest_copes_with_a_changed_log(
    tmp_path: Path, change: Callable[[Path], object], new: int, lines: int
) -> None:
    source = workspace(tmp_path / "w")
    log = harvest(source).log
    change(log)
    second_harvest = harvest(source)
    assert second_harvest.new == new
    assert second_harvest.kept == 0
    assert len(read_access_log(log)) == lines


def test_default_log_lies_beside_its_source(tmp_path: Path) -> None:
    assert default_log(str(tmp_path / "w")) == tmp_path / "w.reads.jsonl"
    with pytest.raises(MemlabError, match=r"host/db is a server; name a file") as caught:
        default_log("postgresql://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_file_that_is_no_access_log_is_rejected_and_unchanged(tmp_path: Path) -> None:
    source = workspace(tmp_path / "w")
    log = tmp_path / "reads.log"
    log.write_text("memory_id,at\n")
    with pytest.raises(MemlabError, match="is not an access log"):
        harvest(source, log)
    assert log.read_text() == "memory_id,at\n"


def missing_path(folder: Path) -> Path:
    return folder / "nothing"


def text_file(folder: Path) -> Path:
    path = folder / "notes.txt"
    path.write_text("dear diary")
    return path


def empty_folder(folder: Path) -> Path:
    path = folder / "empty"
    path.mkdir()
    return path


def own_store(folder: Path) -> Path:
    return write_rows(folder / "memory.db", episodes(1))


def server(_: Path) -> str:
    return "redis://localhost/0"


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (missing_path, "there is no .*nothing; check the path"),
        (text_file, "cannot be harvested; these can: claude-mem, mcp-memory-service, Codex, "),
        (empty_folder, "cannot be harvested; these can"),
        (
            own_store,
            "holds no record of reads. Let the agent's runtime write one: SqliteMemoryStore",
        ),
        (server, "redis://localhost/0 holds no record of reads; let its"),
    ],
)
def test_failed_harvest_leaves_no_file(tmp_path: Path, make: Any, fault: str) -> None:
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(MemlabError, match=fault):
        harvest(source)
    assert sorted(tmp_path.iterdir()) == before


def test_workspace_without_recalls_gives_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "w" / "memory").mkdir(parents=True)
    for note in ("MEMORY.md", "memory/2026-08-01.md"):
        (tmp_path / "w" / note).write_text("# a note\n")
    harvested = harvest(tmp_path / "w")
    assert harvested.system == "OpenClaw workspace"
    assert "  reads    none" in str(harvested)
    assert "after the last read" not in str(harvested)
    assert read_access_log(harvested.log).empty
