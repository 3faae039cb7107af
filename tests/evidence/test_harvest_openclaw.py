"""OpenClaw's recall events, in both places where they are written."""

import json
from pathlib import Path
from typing import Any

import pytest

from memlab import columns as c
from memlab.evidence.harvest import harvest_reads
from memlab.evidence.reads import read_access_log
from memlab.sources.reads import BROKEN
from memlab.systems.openclaw import SKIPPED, SWEEPS, WITHOUT_PATH, WITHOUT_TIME


def recall(second: int, *paths: str, query: str = "where is it", **changed: Any) -> dict[str, Any]:
    results = [{"path": path, "startLine": 1, "endLine": 4, "score": 0.9} for path in paths]
    return {
        "type": "memory.recall.recorded",
        "timestamp": f"2026-08-01T09:00:{second:02}.000Z",
        "query": query,
        "resultCount": len(results),
        "results": results,
        **changed,
    }


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    return path


@pytest.fixture
def old_log(tmp_path: Path) -> Path:
    return tmp_path / "w" / "memory" / ".dreams" / "events.jsonl"


@pytest.fixture
def new_log(tmp_path: Path) -> Path:
    return tmp_path / "w" / "memory" / "events" / "0af3" / "memory-host-events.jsonl"


def ids(log: Path) -> list[str]:
    return read_access_log(log)[c.MEMORY_ID].tolist()


def test_a_recall_reads_every_file_that_it_found_once(tmp_path: Path, old_log: Path) -> None:
    day, other = "memory/2026-04-05.md", "memory/2026-04-06.md"
    write(old_log, recall(1, day, other, day), recall(2, day))
    (tmp_path / "w" / "MEMORY.md").write_text("index")  # does not make it Claude Code's
    found = harvest_reads(tmp_path / "w")
    assert found.way == "an OpenClaw workspace"
    assert ids(found.log) == [day, other, day]
    assert found.by == {"recall": 3}


def test_what_is_no_read_is_counted(tmp_path: Path, old_log: Path) -> None:
    write(
        old_log,
        recall(1, "a.md", query="__dreaming_light__"),
        recall(2, "a.md", type="memory.recall.skipped", reason="non-short-term-memory-path"),
        recall(3, "a.md", type="memory.promotion.applied"),
        recall(4, "a.md", timestamp="soon"),
        recall(5, ""),
        recall(6, "a.md", timestamp="2026-08-01T09:00:06"),
        recall(7, results="none"),
    )
    with old_log.open("a") as out:
        out.write('{"type":"memory.recall.recorded","timest')
    found = harvest_reads(tmp_path / "w")
    assert ids(found.log) == ["a.md"]
    assert found.left_out == {SWEEPS: 1, SKIPPED: 1, WITHOUT_TIME: 1, WITHOUT_PATH: 1, BROKEN: 1}
    assert found.notes[0] == "1 time without a zone, taken as UTC"


def test_an_event_that_was_exported_is_the_same_read(
    tmp_path: Path, old_log: Path, new_log: Path
) -> None:
    write(old_log, recall(1, "a.md"), recall(2, "b.md"))
    write(new_log, recall(2, "b.md"), recall(3, "c.md"))
    found = harvest_reads(tmp_path / "w")
    assert ids(found.log) == ["a.md", "b.md", "c.md"]
    assert harvest_reads(new_log, found.log).new == 0


def test_the_holes_of_the_log_are_said(tmp_path: Path, old_log: Path) -> None:
    write(old_log, recall(1, "a.md"))
    assert "no version records memory_get" in str(harvest_reads(tmp_path / "w"))
