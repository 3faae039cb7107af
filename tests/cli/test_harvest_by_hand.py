# ruff: noqa: E501 - the lines are as a transcript has them
"""Transcripts written line by line after the documented format, for what no simulation has."""

import json
from pathlib import Path

from shell import run

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
    memory, log = tmp_path / ".claude" / "projects" / "-w" / "memory", tmp_path / "reads.log"
    memory.mkdir(parents=True)
    for name in ("build.md", "tests.md", "release.md"):
        (memory / name).write_text(f"---\nname: {name}\nmetadata:\n  type: project\n---\nx\n")
    (memory / "MEMORY.md").write_text("- [build](build.md)\n- [tests](tests.md)\n")
    for name, lines in {"a": RESULT, "b": CALLS}.items():
        (memory.parent / f"{name}.jsonl").write_text(lines.strip().replace("<M>", str(memory)))
    said = run("harvest", memory, "-o", log).output
    found = [json.loads(line)["memory_id"] for line in log.read_text().splitlines()]
    assert sorted(found) == ["build.md", "tests.md"]
    assert "calls that failed" in said
