# ruff: noqa: E501 - the lines are as a transcript has them
"""A transcript folder written line by line after the documented format: harvested, then sized."""

import json
from pathlib import Path

from click.testing import CliRunner

from memlab.cli import main

WROTE = """
{"type":"assistant","uuid":"a1","sessionId":"s1","cwd":"/w","version":"2.1.259","timestamp":"2026-08-01T09:00:00.000Z","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Write","input":{"file_path":"<M>/build.md","content":"x"}}]}}
{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-08-01T09:00:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]},"toolUseResult":{"type":"create","filePath":"<M>/build.md"}}
{"type":"assistant","uuid":"a2","sessionId":"s1","cwd":"/w","timestamp":"2026-08-01T09:05:00.000Z","message":{"id":"m2","content":[{"type":"tool_use","id":"t2","name":"Read","input":{"file_path":"<M>/build.md"}}]}}
{"type":"user","uuid":"u2","sessionId":"s1","timestamp":"2026-08-01T09:05:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t2","content":"1\\tx","is_error":false}]}}
"""
"""The session that wrote a memory reads it: no later need."""

READ = """
{"type":"summary","summary":"<M>/build.md was read","leafUuid":"u2"}
{"type":"attachment","uuid":"v0","sessionId":"s2","timestamp":"2026-08-02T09:00:00.000Z","attachment":{"type":"instructions","memories":[{"path":"<M>/MEMORY.md","type":"AutoMem"}]}}
{"type":"assistant","uuid":"b1","sessionId":"s2","cwd":"/w","timestamp":"2026-08-02T09:01:00.000Z","message":{"id":"n1","content":[{"type":"tool_use","id":"t3","name":"Read","input":{"file_path":"<M>/build.md","offset":1,"limit":20}},{"type":"tool_use","id":"t4","name":"Bash","input":{"command":"cd <M> && cat 'tests.md' 2>/dev/null | head -5"}}]}}
{"type":"user","uuid":"w1","sessionId":"s2","timestamp":"2026-08-02T09:01:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t3","content":"1\\tx","is_error":false}]},"toolUseResult":{"type":"text","file":{"filePath":"<M>/build.md","startLine":1,"numLines":1,"totalLines":1}}}
{"type":"user","uuid":"w2","sessionId":"s2","timestamp":"2026-08-02T09:01:02.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t4","content":"run the slow ones"}]},"toolUseResult":{"stdout":"run the slow ones","stderr":"","interrupted":false}}
{"type":"assistant","uuid":"b2","sessionId":"s2","cwd":"/w","timestamp":"2026-08-02T09:02:00.000Z","message":{"id":"n2","content":[{"type":"tool_use","id":"t5","name":"Read","input":{"file_path":"<M>/build.md"}}]}}
{"type":"user","uuid":"w3","sessionId":"s2","timestamp":"2026-08-02T09:02:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t5","content":"File unchanged since last read."}]},"toolUseResult":{"type":"file_unchanged","file":{"filePath":"<M>/build.md"}}}
{"type":"assistant","uuid":"b3","sessionId":"s2","cwd":"/w","timestamp":"2026-08-02T09:03:00.000Z","message":{"id":"n3","content":[{"type":"tool_use","id":"t6","name":"Read","input":{"file_path":"<M>/gone.md"}}]}}
{"type":"user","uuid":"w4","sessionId":"s2","timestamp":"2026-08-02T09:03:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t6","content":"<tool_use_error>File does not exist.</tool_use_error>","is_error":true}]}}
{"type":"assistant","uuid":"b4","sessionId":"s2","cwd":"/w","timestamp":"2026-08-02T09:04:00.000Z","message":{"id":"n4","content":[{"type":"tool_use","id":"t7","name":"Grep","input":{"pattern":"x","path":"<M>"}}]}}
{"type":"user","uuid":"w5","sessionId":"s2","timestamp":"2026-08-02T09:04:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t7","content":"build.md"}]}}
{"type":"attachment","uuid":"v1","sessionId":"s2","timestamp":"2026-08-02T09:05:00.000Z","attachment":{"type":"relevant_memories","memories":[{"path":"<M>/release.md","content":"x","mtimeMs":1}]}}
{"type":"system","subtype":"compact_boundary","logicalParentUuid":"w5","compactMetadata":{"trigger":"auto","preTokens":1}}
{"type":"assistant","uuid":"b5","sessionId":"s2","timestamp":"2026-08-02T09:06:00.000Z","message":{"content":[{"type":"tool_u
"""
"""A later session: four needs, three of them here, and everything that is none."""

EDITED = """
{"type":"assistant","uuid":"c1","sessionId":"s3","cwd":"/w","timestamp":"2026-08-03T09:00:00.000Z","message":{"id":"o1","content":[{"type":"tool_use","id":"t8","name":"Read","input":{"file_path":"<M>/tests.md"}}]}}
{"type":"user","uuid":"x1","sessionId":"s3","timestamp":"2026-08-03T09:00:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t8","content":"1\\tx"}]}}
{"type":"assistant","uuid":"c2","sessionId":"s3","cwd":"/w","timestamp":"2026-08-03T09:01:00.000Z","message":{"id":"o2","content":[{"type":"tool_use","id":"t9","name":"Edit","input":{"file_path":"<M>/tests.md","old_string":"x","new_string":"y"}}]}}
{"type":"user","uuid":"x2","sessionId":"s3","timestamp":"2026-08-03T09:01:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t9","content":"ok"}]}}
"""
"""A read that goes on to an edit: maintenance."""

AGENT = """
{"type":"assistant","uuid":"d1","isSidechain":true,"sessionId":"s2","cwd":"/w","timestamp":"2026-08-02T10:00:00.000Z","message":{"id":"p1","content":[{"type":"tool_use","id":"t10","name":"Bash","input":{"command":"grep -n slow <M>/release.md"}}]}}
{"type":"user","uuid":"y1","isSidechain":true,"sessionId":"s2","timestamp":"2026-08-02T10:00:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t10","content":"1:slow"}]},"toolUseResult":{"stdout":"1:slow","interrupted":false}}
"""

NAMES = ("build.md", "tests.md", "release.md", "unread.md", "below.md")


def made(home: Path) -> Path:
    """Write the folder; return its memory."""
    project = home / ".claude" / "projects" / "-w"
    memory = project / "memory"
    memory.mkdir(parents=True)
    for name in NAMES:
        (memory / name).write_text(
            f"---\nname: {name}\nmetadata:\n  type: project\n  modified: 2026-07-30T09:00:00Z\n"
            "---\nx\n"
        )
    listed = [f"- [{name}]({name}) — about it" for name in NAMES[:4]]
    index = [*listed, *["-"] * 200, "- [below.md](below.md) — cut"]
    (memory / "MEMORY.md").write_text("\n".join(index) + "\n")
    agents = project / "s2" / "subagents"
    agents.mkdir(parents=True)
    copied = READ.replace('"sessionId":"s2"', '"sessionId":"s4"')
    files = {"s1": WROTE, "s2": READ, "s3": EDITED, "s4": copied, "s2/subagents/agent-1": AGENT}
    for name, lines in files.items():
        (project / f"{name}.jsonl").write_text(lines.strip().replace("<M>", str(memory)))
    (agents / "journal.jsonl").write_text(READ)
    return memory


def run(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_what_was_read_is_found_nothing_invented_and_the_store_sized_by_it(tmp_path: Path) -> None:
    memory, log = made(tmp_path), tmp_path / "reads.log"
    said = run("harvest", memory, "-o", log)
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    found = [(each["memory_id"], each["at"][:16], each["session"]) for each in logged]
    assert sorted(found) == [
        ("build.md", "2026-08-02T09:01", "s2"),
        ("release.md", "2026-08-02T09:05", "s2"),
        ("release.md", "2026-08-02T10:00", "s2"),
        ("tests.md", "2026-08-02T09:01", "s2"),
    ]
    apart = [json.loads(x) for x in (tmp_path / "reads.log.apart").read_text().splitlines()]
    kinds = {(each["memory_id"], each["kind"]) for each in apart if each["kind"] != "write"}
    assert kinds == {("build.md", "own session"), ("tests.md", "maintenance")}
    for words in ("calls that failed", "the file is unchanged", "searches over several files"):
        assert words in said
    assert "broken or cut short" in said
    before = log.read_bytes()
    run("harvest", memory, "-o", log)
    assert log.read_bytes() == before
    sized = run("size", memory, "--log", log)
    assert (
        "by the log: 5 memories: 3 read, 1 never read, though they could have been, "
        "1 below what is loaded at start, and never read"
    ) in sized
    assert (
        "references: 3 read; no later need, so not counted: 1 read again in the same session"
        in (sized)
    )
    assert "keep_recent = " in sized


RESULT = """
{"type":"user","uuid":"z1","sessionId":"s5","timestamp":"2026-08-04T09:00:01.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t20","content":"1\\tx"}]}}
"""
CALLS = """
{"type":"assistant","uuid":"e1","sessionId":"s6","cwd":"/w","timestamp":"2026-08-04T09:00:00.000Z","message":{"content":[{"type":"tool_use","id":"t20","name":"Read","input":{"file_path":"<M>/build.md"}},{"type":"tool_use","id":"t21","name":"Bash","input":{"command":"cat <M>/tests.md <M>/release.md; true"}}]}}
{"type":"user","uuid":"z2","sessionId":"s6","timestamp":"2026-08-04T09:00:02.000Z","message":{"content":[{"type":"tool_result","tool_use_id":"t21","content":"x\\ncat: <M>/release.md: No such file or directory"}]}}
"""


def test_a_result_may_stand_before_its_call_and_name_a_file_that_was_not_there(
    tmp_path: Path,
) -> None:
    memory, log = made(tmp_path), tmp_path / "reads.log"
    for file in memory.parent.rglob("*.jsonl"):
        file.unlink()
    for name, lines in {"a": RESULT, "b": CALLS}.items():
        (memory.parent / f"{name}.jsonl").write_text(lines.strip().replace("<M>", str(memory)))
    said = run("harvest", memory, "-o", log)
    found = [json.loads(line)["memory_id"] for line in log.read_text().splitlines()]
    assert sorted(found) == ["build.md", "tests.md"]
    assert "calls that failed" in said
