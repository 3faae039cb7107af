"""Codex's citations, in the rollout files of its sessions."""

import json
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence.harvest import harvest_reads
from memlab.evidence.reads import read_access_log
from memlab.systems.codex import COPIES, WITHOUT_THREAD, WITHOUT_TIME

THREADS = [f"0199{n}000-0000-7000-8000-00000000000{n}" for n in range(10)]
AT = "2026-08-01T09:00:00.000Z"


def citation(*threads: str, tag: str = "rollout_ids") -> str:
    entries = "MEMORY.md:1-3|note=[the parser]"
    ids = "\n".join(threads)
    return (
        f"\n<oai-mem-citation>\n<citation_entries>\n{entries}\n</citation_entries>\n"
        f"<{tag}>\n{ids}\n</{tag}>\n</oai-mem-citation>\n"
    )


def said(text: str, at: str = AT, **payload: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    message = {"type": "message", "role": "assistant", "content": content, **payload}
    return {"timestamp": at, "type": "response_item", "payload": message}


def meta(thread: str, forked_from: str | None = None) -> dict[str, Any]:
    payload = {"id": thread, "cwd": "/w", "cli_version": "0.150.1", "forked_from_id": forked_from}
    return {"timestamp": AT, "type": "session_meta", "payload": payload}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".codex" / "sessions" / "2026" / "08" / "01").mkdir(parents=True)
    return tmp_path / ".codex"


def write(home: Path, thread: str, *lines: dict[str, Any]) -> Path:
    file = home / "sessions" / "2026" / "08" / "01" / f"rollout-2026-08-01T09-00-00-{thread}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def ids(log: Path) -> list[str]:
    return read_access_log(log)[c.MEMORY_ID].tolist()


def test_a_citation_reads_the_threads_it_names(home: Path) -> None:
    write(
        home,
        THREADS[0],
        meta(THREADS[0]),
        said("Nothing was needed."),
        said("Done." + citation(THREADS[1], THREADS[2], THREADS[1])),
        said("Again." + citation(THREADS[1], tag="thread_ids"), at="2026-08-01T10:00:00Z"),
    )
    found = harvest_reads(home)
    assert found.way == "Codex's memories"
    assert ids(found.log) == [THREADS[1], THREADS[2], THREADS[1]]
    log = read_access_log(found.log)
    assert set(log[c.SESSION]) == {THREADS[0]}


def test_what_is_no_citation_of_another_thread_is_counted(home: Path) -> None:
    block = citation(THREADS[1])
    write(
        home,
        THREADS[0],
        meta(THREADS[0]),
        said("a user quoted it" + block, role="user"),
        {
            "timestamp": AT,
            "type": "event_msg",
            "payload": {"type": "agent_message", "message": block},
        },
        said("It names no thread." + citation()),
        said("It never ends. <oai-mem-citation><rollout_ids>\nx"),
        said("It has no time." + block, at=""),
        said("It cites itself." + citation(THREADS[0])),
        said("odd" + block, content="a text"),
    )
    found = harvest_reads(home)
    assert found.reads == 0
    assert found.left_out == {WITHOUT_THREAD: 1, WITHOUT_TIME: 1}
    assert found.apart == {"own session": 1}


def test_a_fork_repeats_what_its_parent_said(home: Path) -> None:
    before = [said("One." + citation(THREADS[5])), said("One." + citation(THREADS[5]))]
    write(home, THREADS[0], meta(THREADS[0]), *before)
    later = [{**line, "timestamp": "2026-08-02T09:00:00Z"} for line in before]
    fork = meta(THREADS[1], THREADS[0])
    write(home, THREADS[1], fork, meta(THREADS[0]), *later, said("Two." + citation(THREADS[5])))
    grandchild = meta(THREADS[2], THREADS[1])
    write(home, THREADS[2], grandchild, *later)
    found = harvest_reads(home)
    assert ids(found.log) == [THREADS[5]] * 3
    assert found.left_out == {COPIES: 4}
    assert sorted(read_access_log(found.log)[c.SESSION]) == [THREADS[0]] * 2 + [THREADS[1]]
    assert harvest_reads(home).new == 0


def test_parents_in_a_circle_end(home: Path) -> None:
    write(home, THREADS[0], meta(THREADS[0], THREADS[1]), said("a" + citation(THREADS[5])))
    write(home, THREADS[1], meta(THREADS[1], THREADS[0]), said("b" + citation(THREADS[5])))
    assert harvest_reads(home).reads == 2


def test_the_database_of_memories_means_the_sessions_beside_it(home: Path) -> None:
    write(home, THREADS[0], meta(THREADS[0]), said("Done." + citation(THREADS[1])))
    with closing(connect(home / "memories_1.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE stage1_outputs (thread_id TEXT PRIMARY KEY)")
    assert harvest_reads(home / "memories_1.sqlite").reads == 1
    assert harvest_reads(home / "sessions").reads == 1
    moved = home.rename(home.parent / "old")
    (home.parent / "elsewhere").mkdir()
    alone = (moved / "memories_1.sqlite").rename(home.parent / "elsewhere" / "memories_1.sqlite")
    with pytest.raises(MemlabError, match="there are no sessions in"):
        harvest_reads(alone)
    assert harvest_reads(alone, transcripts=moved).reads == 1
