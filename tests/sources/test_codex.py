"""Codex's database of raw memories: read, sized, and never changed."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import UnsafeDeletionError
from memlab.sources.opening import open_source
from memlab.sources.readers import Key
from memlab.systems.codex import SETTING, Codex
from memlab.testing.conformance import TEXTS, Lab, ReadingSuite
from tests.support.shell import said
from tests.support.stores import run_sql

START = 1_780_000_000
# As Codex's migrations make it.
SCHEMA = """
CREATE TABLE stage1_outputs (
    thread_id TEXT PRIMARY KEY,
    source_updated_at INTEGER NOT NULL,
    raw_memory TEXT NOT NULL,
    rollout_summary TEXT NOT NULL,
    rollout_slug TEXT,
    generated_at INTEGER NOT NULL,
    usage_count INTEGER,
    last_usage INTEGER,
    selected_for_phase2 INTEGER NOT NULL DEFAULT 0,
    selected_for_phase2_source_updated_at INTEGER
);
CREATE TABLE jobs (kind TEXT, job_key TEXT, status TEXT, PRIMARY KEY (kind, job_key));
"""
INSERT = (
    "INSERT INTO stage1_outputs (thread_id, source_updated_at, raw_memory, rollout_summary, "
    "rollout_slug, generated_at, usage_count, last_usage, selected_for_phase2) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def thread(number: int) -> str:
    return f"0199a213-81c0-7800-8aa1-{number:012}"


def row(number: int, text: str = "raw", slug: str | None = None) -> tuple[Any, ...]:
    """Return a memory of a thread, used as often as its number and on the day after."""
    at = START + number * 86_400
    return (thread(number), at, text, f"summary {number}\nmore", slug, at, number, at + 9, 0)


def write(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.executemany(INSERT, rows)
    return path


class CodexLab(Lab):
    """A database with Codex's tables."""

    where = ".codex/memories_1.sqlite"

    def fill(self, count: int) -> None:
        write(self.path, [row(n, TEXTS[n % len(TEXTS)]) for n in range(count)])
        run_sql(self.path, "UPDATE stage1_outputs SET raw_memory = x'ff00fe' WHERE usage_count = 5")

    def add_pair(self, number: int) -> None:
        rows = [row(2 * number + 1_000 + side, slug=f"pair {number}") for side in (0, 1)]
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(INSERT, rows)

    def change(self, key: Key) -> None:
        run_sql(self.path, f"UPDATE stage1_outputs SET usage_count = 99 WHERE thread_id = '{key}'")

    def exactly(self) -> dict[Key, Any]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            return {row[0]: row for row in connection.execute("SELECT * FROM stage1_outputs")}


class TestCodexSource(ReadingSuite):
    lab_type = CodexLab

    def test_a_deletion_is_refused_with_the_setting(self, lab: CodexLab) -> None:
        before = lab.exactly()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        with pytest.raises(UnsafeDeletionError, match=re.escape(SETTING)):
            memlab.apply(plan)
        assert lab.exactly() == before
        assert not lab.path.with_name(f"{lab.path.name}.archive.db").exists()


def test_a_raw_memory_is_a_memory_with_its_use(tmp_path: Path) -> None:
    path = write(tmp_path / "memories_1.sqlite", [row(0), row(1, slug="fix-the-build")])
    run_sql(path, "UPDATE stage1_outputs SET selected_for_phase2 = 1 WHERE usage_count = 1")
    frame = memlab.load(path, with_body=True)
    assert frame["memory_id"].tolist() == [thread(0), thread(1)]
    assert frame["title"].tolist() == ["summary 0", "fix-the-build"]
    assert frame["body"].tolist() == ["raw", "raw"]
    assert frame["access_count"].tolist() == [0, 1]
    assert frame["tags"].tolist() == [(), ("consolidated",)]
    assert frame["created_at"][1].timestamp() == START + 86_400
    assert frame["prunable"].all()


def test_a_home_and_its_newest_database_are_one_store(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    path = write(home / "memories_1.sqlite", [row(0)])
    assert memlab.load(f"codex:{home}")["memory_id"].tolist() == [thread(0)]
    assert open_source(home).name == f"codex:{path}"


def test_commands_read_it_and_size_names_the_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "memories_1.sqlite", [row(number) for number in range(40)])
    assert json.loads(said("show", "--json", str(path)))["summary"]["rows"]["memories"] == 40
    assert "Codex" in said("show", str(path))
    assert len(json.loads(said("rows", "--json", str(path)))) == 40
    assert SETTING in said("size", str(path))
    stores = json.loads(said("find", "--json", str(tmp_path)))["stores"]
    assert [store["what"] for store in stores] == ["Codex"]
    assert SETTING in said("compact", "--keep-recent", "9", "--apply", str(path), code=2)
    assert SETTING in said("compact", "--keep-recent", "9", "--retire", str(path), code=2)


@given(text=st.text(max_size=80), number=st.none() | st.integers(-9, 9) | st.text(max_size=9))
def test_the_cap_comes_from_the_configuration_or_the_default(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: Any
) -> None:
    home = tmp_path_factory.mktemp("codex")
    cap = Codex(write(home / "memories_1.sqlite", [])).native_cap
    content = text if number is None else f"[memories]\n{SETTING} = {json.dumps(number)}\n"
    (home / "config.toml").write_text(content)
    is_number = isinstance(number, int) and number >= 0
    assert cap.current() == (number if is_number else 256)
