"""Harvest of Codex citations and OpenClaw recalls."""

import json
from pathlib import Path
from typing import Any

import pytest

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence import harvest, read_access_log
from memlab.sources.reads import BROKEN
from memlab.systems import openclaw
from memlab.systems.codex import COPIES, WITHOUT_THREAD, WITHOUT_TIME
from tests.support.claude_store import at
from tests.support.openclaw_store import SKIPPED, recall, write_events
from tests.support.stores import run_sql

THREADS = [f"0199{number}000-0000-7000-8000-00000000000{number}" for number in range(10)]
AT = "2026-08-01T09:00:00.000Z"


def citation(*threads: str, tag: str = "rollout_ids") -> str:
    entries = "<citation_entries>\nMEMORY.md:1-3|note=[the parser]\n</citation_entries>"
    ids = "\n".join((f"<{tag}>", *threads, f"</{tag}>"))
    return f"\n<oai-mem-citation>\n{entries}\n{ids}\n</oai-mem-citation>\n"


def agent_message(text: str, at: str = AT, **payload: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    message = {"type": "message", "role": "assistant", "content": content, **payload}
    return {"timestamp": at, "type": "response_item", "payload": message}


def meta(thread: str, forked_from: str | None = None) -> dict[str, Any]:
    payload = {"id": thread, "cwd": "/w", "cli_version": "0.150.1", "forked_from_id": forked_from}
    return {"timestamp": AT, "type": "session_meta", "payload": payload}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".codex"


def write(home: Path, thread: str, *lines: dict[str, Any], forked_from: str | None = None) -> None:
    """Write a thread; its first line is its metadata."""
    file = home / "sessions" / "2026" / "08" / "01" / f"rollout-2026-08-01T09-00-00-{thread}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = (meta(thread, forked_from), *lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in whole))


def ids(log: Path) -> list[str]:
    return read_access_log(log)[c.MEMORY_ID].tolist()


def test_citation_is_a_read_of_each_thread_it_names(home: Path) -> None:
    write(
        home,
        THREADS[0],
        agent_message("Nothing was needed."),
        agent_message("Done." + citation(THREADS[1], THREADS[2], THREADS[1])),
        agent_message("Again." + citation(THREADS[1], tag="thread_ids"), at="2026-08-01T10:00:00Z"),
    )
    harvested = harvest(home)
    assert harvested.system == "Codex"
    assert harvested.store is None
    assert ids(harvested.log) == [THREADS[1], THREADS[2], THREADS[1]]
    assert set(read_access_log(harvested.log)[c.SESSION]) == {THREADS[0]}


def test_invalid_and_own_citations_are_no_reads(home: Path) -> None:
    block = citation(THREADS[1])
    message = {"type": "agent_message", "message": block}
    write(
        home,
        THREADS[0],
        agent_message("a user quoted it" + block, role="user"),
        {"timestamp": AT, "type": "event_msg", "payload": message},
        agent_message("It names no thread." + citation()),
        agent_message("It never ends. <oai-mem-citation><rollout_ids>\nx"),
        agent_message("It has no time." + block, at=""),
        agent_message("It cites itself." + citation(THREADS[0])),
        agent_message("odd" + block, content="a text"),
    )
    harvested = harvest(home)
    assert harvested.reads == 0
    assert harvested.left_out == {WITHOUT_THREAD: 1, WITHOUT_TIME: 1}
    assert harvested.excluded == {"own session": 1}


def test_citations_copied_into_a_fork_count_once(home: Path) -> None:
    before = [
        agent_message("One." + citation(THREADS[5])),
        agent_message("One." + citation(THREADS[5])),
    ]
    write(home, THREADS[0], *before)
    later = [{**line, "timestamp": "2026-08-02T09:00:00Z"} for line in before]
    again = (meta(THREADS[0]), *later, agent_message("Two." + citation(THREADS[5])))
    write(home, THREADS[1], *again, forked_from=THREADS[0])
    write(home, THREADS[2], *later, forked_from=THREADS[1])
    harvested = harvest(home)
    assert ids(harvested.log) == [THREADS[5]] * 3
    assert harvested.left_out == {COPIES: 4}
    assert sorted(read_access_log(harvested.log)[c.SESSION]) == [THREADS[0]] * 2 + [THREADS[1]]
    assert harvest(home).new == 0


def test_cyclic_forks_are_harvested_once_each(home: Path) -> None:
    first, second = THREADS[:2]
    cited = citation(THREADS[5])
    write(home, first, agent_message(first + cited), forked_from=second)
    write(home, second, agent_message(second + cited), forked_from=first)
    assert harvest(home).reads == 2


def test_codex_database_resolves_to_sessions_beside_it(home: Path) -> None:
    write(home, THREADS[0], agent_message("Done." + citation(THREADS[1])))
    run_sql(home / "memories_1.sqlite", "CREATE TABLE stage1_outputs (thread_id TEXT PRIMARY KEY)")
    assert harvest(home / "memories_1.sqlite").reads == 1
    assert harvest(home / "sessions").reads == 1
    moved = home.rename(home.parent / "old")
    (home.parent / "elsewhere").mkdir()
    alone = (moved / "memories_1.sqlite").rename(home.parent / "elsewhere" / "memories_1.sqlite")
    with pytest.raises(MemlabError, match="there are no sessions in"):
        harvest(alone)
    assert harvest(alone, transcripts=moved).reads == 1


@pytest.fixture
def old_log(tmp_path: Path) -> Path:
    return tmp_path / "memory" / ".dreams" / "events.jsonl"


def test_recall_hit_counts_once_a_day_and_no_query_is_stored(tmp_path: Path, old_log: Path) -> None:
    day = "memory/2026-04-05.md"
    other = "memory/2026-04-06.md"
    write_events(
        old_log,
        recall(at(0), day, other, day),
        recall(at(1), day, query="something else"),
        recall(at(24), "./" + day.replace("/", "\\"), kind=SKIPPED),
    )
    (tmp_path / "MEMORY.md").write_text("index")  # it does not make the folder Claude Code memory
    harvested = harvest(tmp_path)
    assert harvested.system == "OpenClaw workspace"
    assert ids(harvested.log) == [day, other, day]
    assert harvested.by_way == {"recall": 2, "skipped recall": 1}
    assert harvested.left_out == {openclaw.AGAIN: 1}
    assert "no version records memory_get" in str(harvested)
    assert harvested.next_steps()[0].startswith(f"next: memlab size openclaw:{tmp_path} --log ")
    text = harvested.log.read_text()
    assert not any(word in text for word in ("where", "something", "query"))


def test_events_that_are_no_reads_are_counted(tmp_path: Path, old_log: Path) -> None:
    note = "memory/a.md"
    write_events(
        old_log,
        recall(at(1), note, query="__dreaming_light__"),
        recall(at(2), "MEMORY.md", "memory/dreaming/a.md", kind=SKIPPED),
        recall(at(3), note, kind="memory.promotion.applied"),
        recall(at(4), note, timestamp="soon"),
        recall(at(5), ""),
        recall(at(6), note, timestamp="2026-08-01T09:00:06"),
        recall(at(7), results="none"),
    )
    with old_log.open("a") as out:
        out.write('{"type":"memory.recall.recorded","timest')
    harvested = harvest(tmp_path)
    assert ids(harvested.log) == [note]
    left_out = {openclaw.SWEEPS: 1, openclaw.WITHOUT_TIME: 1, BROKEN: 1, openclaw.NO_NOTE: 3}
    assert harvested.left_out == left_out
    assert harvested.notes[0] == "1 date has no time zone; read as UTC"


def test_exported_event_is_not_counted_twice(tmp_path: Path, old_log: Path) -> None:
    write_events(old_log, recall(at(1), "memory/a.md"), recall(at(2), "memory/b.md"))
    new_log = tmp_path / "memory" / "events" / "0af3" / "memory-host-events.jsonl"
    write_events(new_log, recall(at(2), "memory/b.md"), recall(at(3), "memory/c.md"))
    harvested = harvest(tmp_path)
    assert ids(harvested.log) == ["memory/a.md", "memory/b.md", "memory/c.md"]
    second_harvest = harvest(tmp_path / "memory", harvested.log)
    assert second_harvest.new == 0
    assert second_harvest.reads == 3
    assert second_harvest.store == harvested.store
