"""Codex databases of raw memories: read, sized, never changed."""

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
from memlab.testing.conformance import ReadingSuite
from memlab.testing.labs import TEXTS, Lab
from tests.support.codex_home import DATABASES, CodexThread, write_codex
from tests.support.owners import CODEX
from tests.support.shell import output_of
from tests.support.stores import run_sql

START = 1_780_000_000
# The schema after the migrations of Codex 0.171 (see test_schema_equals_the_schema_of_codex).
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
CREATE TABLE jobs (
    kind TEXT NOT NULL,
    job_key TEXT NOT NULL,
    status TEXT NOT NULL,
    worker_id TEXT,
    ownership_token TEXT,
    started_at INTEGER,
    finished_at INTEGER,
    lease_until INTEGER,
    retry_at INTEGER,
    retry_remaining INTEGER NOT NULL,
    last_error TEXT,
    input_watermark INTEGER,
    last_success_watermark INTEGER,
    PRIMARY KEY (kind, job_key)
);
CREATE TABLE consolidation_progress (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    max_thread_count INTEGER NOT NULL DEFAULT 0
);
"""
INSERT = (
    "INSERT INTO stage1_outputs (thread_id, source_updated_at, raw_memory, rollout_summary, "
    "rollout_slug, generated_at, usage_count, last_usage) "
    "VALUES (:thread_id, :source_updated_at, :raw_memory, :rollout_summary, "
    ":rollout_slug, :generated_at, :usage_count, :last_usage)"
)


def thread(number: int) -> str:
    return f"0199a213-81c0-7800-8aa1-{number:012}"


def row(number: int, text: str = "raw", slug: str | None = None) -> dict[str, Any]:
    """Return the raw memory of a thread, used as many times as its number."""
    at = START + number * 86_400
    return {
        "thread_id": thread(number),
        "source_updated_at": at,
        "raw_memory": text,
        "rollout_summary": f"summary {number}\nmore",
        "rollout_slug": slug,
        "generated_at": at,
        "usage_count": number,
        "last_usage": at + 9,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.executemany(INSERT, rows)
    return path


class CodexLab(Lab):
    """A database with Codex's tables."""

    where = ".codex/memories_1.sqlite"

    def fill(self, count: int) -> None:
        write(self.path, [row(number, TEXTS[number % len(TEXTS)]) for number in range(count)])
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

    def test_deletion_is_rejected_naming_the_setting(self, lab: CodexLab) -> None:
        before = lab.exactly()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        with pytest.raises(UnsafeDeletionError, match=re.escape(SETTING)):
            memlab.apply(plan)
        assert lab.exactly() == before
        assert not lab.path.with_name(f"{lab.path.name}.archive.db").exists()


def test_raw_memory_is_loaded_with_its_usage(tmp_path: Path) -> None:
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


def test_home_folder_opens_its_newest_database(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    path = write(home / "memories_1.sqlite", [row(0)])
    assert memlab.load(f"codex:{home}")["memory_id"].tolist() == [thread(0)]
    assert open_source(home).name == f"codex:{path}"


def test_home_with_two_versions_opens_the_most_recently_used(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    first = write(home / DATABASES["v1"], [row(0), row(5)])
    second = write(home / DATABASES["v2"], [row(9)])
    write(home / "memories_of_mine.sqlite", [row(99)])  # not a Codex database
    assert open_source(home).name == f"codex:{second}"
    run_sql(first, f"UPDATE stage1_outputs SET generated_at = {START + 20 * 86_400}")
    assert open_source(home).name == f"codex:{first}"


@pytest.mark.parametrize(
    ("configuration", "version"),
    [
        ('[memories]\nversion = "v1"\n', "v1"),
        ('[memories]\nversion = "v2"\n', "v2"),
        ('[memories]\nversion = "v9"\n', "v2"),
        ("[memories]\nversion = 1\n", "v2"),
        ('memories = "v1"\n', "v2"),
        ("[memories\n", "v2"),
    ],
)
def test_configuration_selects_the_version(
    tmp_path: Path, configuration: str, version: str
) -> None:
    home = tmp_path / ".codex"
    for name, day in (("v1", 1), ("v2", 2)):
        write(home / DATABASES[name], [row(day)])
    (home / "config.toml").write_text(configuration)
    assert open_source(home).name == f"codex:{home / DATABASES[version]}"


def test_empty_or_broken_database_is_not_selected(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    first = write(home / DATABASES["v1"], [row(0)])
    second = write(home / DATABASES["v2"], [])
    assert open_source(home).name == f"codex:{first}"
    second.write_bytes(b"no database")
    assert open_source(home).name == f"codex:{first}"


def test_show_names_the_memories_of_the_other_version(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    first = write(home / DATABASES["v1"], [row(0), row(1)])
    write(home / DATABASES["v2"], [row(9)])
    about = json.loads(output_of("show", "--json", home))["about"]
    assert about["other_databases"] == {str(first): 2}
    assert f"2 memories in {first.name}, a store of its own" in output_of("show", home)


def test_summary_is_the_text_without_a_raw_memory(tmp_path: Path) -> None:
    path = write(tmp_path / DATABASES["v2"], [row(0, "", "fix-the-build"), row(1, "")])
    frame = memlab.load(path, with_body=True)
    assert frame["title"].tolist() == ["fix-the-build", "summary 1"]
    assert frame["body"].tolist() == ["summary 0\nmore", "more"]
    assert frame["tokens"].gt(0).all()


def test_commands_work_and_size_names_the_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "memories_1.sqlite", [row(number) for number in range(40)])
    assert json.loads(output_of("show", "--json", str(path)))["summary"]["rows"]["memories"] == 40
    assert "Codex" in output_of("show", str(path))
    assert len(json.loads(output_of("rows", "--json", str(path)))) == 40
    assert SETTING in output_of("size", str(path))
    stores = json.loads(output_of("find", "--json", str(tmp_path)))["stores"]
    assert [store["system"] for store in stores] == ["Codex"]
    assert SETTING in output_of("compact", "--keep-recent", "9", "--apply", str(path), code=2)
    assert SETTING in output_of("compact", "--keep-recent", "9", "--retire", str(path), code=2)


@given(text=st.text(max_size=80), number=st.none() | st.integers(-9, 9) | st.text(max_size=9))
def test_native_cap_is_read_from_the_configuration(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: Any
) -> None:
    home = tmp_path_factory.mktemp("codex")
    cap = Codex(write(home / "memories_1.sqlite", [])).native_cap
    content = text if number is None else f"[memories]\n{SETTING} = {json.dumps(number)}\n"
    (home / "config.toml").write_text(content)
    is_valid = isinstance(number, int) and number >= 0
    expected = number if is_valid else 256
    assert cap.current() == expected


THREADS = [
    CodexThread(
        prompt="the build needs uv",
        summary="# Build with uv\n\nThe build needs uv, née pip 🦀.",
        slug="build-with-uv",
        raw="---\ndescription: build\n---\n- uv builds the wheel",
    ),
    CodexThread(
        prompt="the tests run on two cores",
        summary="Tests run on two cores.\nMore cores do not help.",
        slug="",
        raw="- two cores",
    ),
    CodexThread(
        prompt="releases are cut on Fridays",
        summary="Releases are cut on Fridays.",
        slug="release-day",
        raw="- Fridays",
    ),
]
BODIES = {
    "v1": [thread.raw for thread in THREADS],
    "v2": [THREADS[0].summary, "More cores do not help.", THREADS[2].summary],
}


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def written(tmp_path: Path, version: str) -> Path:
    """Return a database written by Codex's own code."""
    return write_codex(CODEX, tmp_path / "home" / ".codex", version, THREADS, most=2)


def test_database_written_by_codex_is_read(written: Path, version: str) -> None:
    before = written.read_bytes()
    frame = memlab.load(written, with_body=True)
    assert frame["title"].tolist() == ["build-with-uv", "Tests run on two cores.", "release-day"]
    assert frame["body"].tolist() == BODIES[version]
    assert frame["access_count"].fillna(0).tolist() == [1, 0, 0]
    assert frame["last_accessed_at"].notna().tolist() == [True, False, False]
    assert frame["tags"].tolist() == [(), ("consolidated",), ("consolidated",)]
    assert frame["created_at"].diff().dt.total_seconds().round(-2).tolist()[1:] == [3600, 3600]
    assert frame["prunable"].all()
    assert written.read_bytes() == before


def test_commands_read_a_database_written_by_codex(written: Path) -> None:
    before = written.read_bytes()
    home = written.parent
    files = sorted(home.iterdir())
    stores = json.loads(output_of("find", "--json", home))["stores"]
    assert {store["system"] for store in stores} == {"Codex"}
    assert [store["memories"] for store in stores if store["location"] == str(written)] == [3]
    assert json.loads(output_of("show", "--json", home))["about"]["consolidated"] == 2
    answer = json.loads(output_of("rows", "--json", home))
    assert {memory["title"] for memory in answer} >= {"build-with-uv", "release-day"}
    sized = json.loads(output_of("size", "--json", home))
    assert sized["store"] == str(home)
    assert SETTING in output_of("size", home)
    assert "build-with-uv" in output_of("rows", "--by", "need", home)
    assert "memories" in output_of("doctor", home)
    assert SETTING in output_of("compact", "--keep-recent", "1", "--apply", home, code=2)
    assert written.read_bytes() == before
    assert sorted(home.iterdir()) == files


def test_schema_equals_the_schema_of_codex(written: Path, tmp_path: Path) -> None:
    database = write(tmp_path / "made.sqlite", [])
    query = (
        "SELECT tables.name, columns.* FROM sqlite_schema AS tables, "
        "pragma_table_info(tables.name) AS columns "
        "WHERE tables.type = 'table' AND tables.name != '_sqlx_migrations'"
    )

    def columns_in(path: Path) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return sorted(connection.execute(query))

    assert columns_in(database) == columns_in(written)
