"""claude-mem databases written by its own code: read, sized, never changed."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.compaction.reclaim import space, vacuum
from memlab.errors import MemlabError, StoreError, UnsafeDeletionError
from memlab.sources.readers import Key
from memlab.systems.claude_mem import SETTING, ClaudeMem, start_of
from memlab.testing.conformance import ReadingSuite
from memlab.testing.labs import TEXTS, Lab
from tests.support.owners import observation, write_claude_mem
from tests.support.shell import output_of, run
from tests.support.stores import run_sql

START = 1_780_000_000_000
INSERT = (
    "INSERT INTO observations (memory_session_id, project, type, title, concepts, created_at, "
    "created_at_epoch) VALUES ('s1', 'web', 'change', 'pair {}', '[\"pattern\"]', '', {});"
)


def session(name: str, project: str, count: int, *, first: int = 0) -> dict[str, Any]:
    """Return a session of observations, one a minute."""
    observations = [
        observation(f"{project} {number}", at=START + (first + number) * 60_000)
        for number in range(count)
    ]
    return {"session": name, "project": project, "observations": observations}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "claude-mem.db"


def loaded(file: Path, **settings: Any) -> list[str]:
    """Return the titles that a start loads with some settings."""
    (file.parent / "settings.json").write_text(json.dumps(settings))
    frame = memlab.load(file)
    return sorted(frame.loc[frame["loaded_at_start"], "title"])


class ClaudeMemLab(Lab):
    """A database made by claude-mem; observations are added by its own statement."""

    where = "claude-mem/claude-mem.db"

    def fill(self, count: int) -> None:
        observations = session("s1", "web", count)
        for number, saved in enumerate(observations["observations"]):
            saved |= {"title": TEXTS[number % 5] + str(number), "facts": ["\x00", "ü"] * number}
        observations["observations"][2] |= {"type": "decision", "narrative": None, "subtitle": None}
        observations["observations"][3] |= {"concepts": ["none-that-is-known"]}
        write_claude_mem(self.path, [observations])
        run_sql(self.path, "UPDATE observations SET narrative = x'ff00fe' WHERE id = 5")

    def add_pair(self, number: int) -> None:
        run_sql(self.path, f"BEGIN; {INSERT.format(number, START * 2 + number) * 2} COMMIT")

    def change(self, key: Key) -> None:
        run_sql(self.path, f"UPDATE observations SET title = 'changed' WHERE id = {key}")

    def exactly(self) -> dict[Key, Any]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            connection.text_factory = bytes
            return {row[0]: row for row in connection.execute("SELECT * FROM observations")}


class TestClaudeMemSource(ReadingSuite):
    lab_type = ClaudeMemLab

    def test_deletion_is_rejected_with_an_alternative(self, lab: ClaudeMemLab) -> None:
        before = lab.exactly()
        with pytest.raises(UnsafeDeletionError) as caught, ClaudeMem(lab.name).changing():
            pytest.fail("the database was opened for a change")
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        assert "loaded from" in str(plan)
        with pytest.raises(UnsafeDeletionError, match=re.escape(str(caught.value))):
            memlab.apply(plan)
        assert lab.exactly() == before


def test_observation_is_loaded_as_a_memory(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 2), session("s2", "api", 1, first=5)])
    frame = memlab.load(file, with_body=True)
    assert frame["memory_id"].tolist() == ["1", "2", "3"]
    assert frame["body"][0] == "in one line\nwhat happened with web 0\na fact\nanother"
    assert frame["tags"][0] == ("discovery", "gotcha")
    assert frame["namespace"].tolist() == ["web", "web", "api"]
    assert frame["thread_id"].tolist() == ["s1", "s1", "s2"]
    assert frame["source_task_ref"].isna().all()
    minutes = [(at.timestamp() * 1000 - START) / 60_000 for at in frame["created_at"]]
    assert minutes == [0, 1, 5]
    assert frame["prunable"].all()


def test_project_is_a_store_including_merged_observations(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 3), session("s2", "my api", 2, first=9)])
    run_sql(file, "UPDATE observations SET merged_into_project = 'my api' WHERE id = 2")
    api = ClaudeMem(f"claude-mem:{file}?project=my%20api")
    for name in (api, api.name):
        assert memlab.load(name)["memory_id"].tolist() == ["2", "4", "5"]
    with pytest.raises(MemlabError, match="there is no option 'projekt'; there are project"):
        ClaudeMem(f"claude-mem:{file}?projekt=web")


def test_start_loads_the_newest_of_each_project(file: Path) -> None:
    first = session("s1", "web", 6)
    second = session("s2", "api", 3)
    batch = session("s3", "job", 4)
    first["observations"][5]["type"] = "heartbeat"
    first["observations"][4]["concepts"] = ["none"]
    for saved in batch["observations"]:
        saved["at"] = START  # of observations in one millisecond claude-mem loads the first
    write_claude_mem(file, [first, second, batch])
    older_titles = ["api 1", "api 2", "job 0", "job 1"]
    assert loaded(file, **{SETTING: "2"}) == [*older_titles, "web 2", "web 3"]
    frame = memlab.load(file)
    assert frame["tokens"].sum() < frame["chars"].sum() / 4
    other = {"CLAUDE_MEM_MODE": "law-study"}  # a mode of unknown types
    assert loaded(file, **{SETTING: 2}, **other) == [*older_titles, "web 4", "web 5"]
    assert "law-study: its types are not known" in str(ClaudeMem(file).extra_report())


IN_FILE = '{"CLAUDE_MEM_CONTEXT_OBSERVATIONS": "80"}'
STARTS = {
    (None, ""): (50, "its default"),
    (IN_FILE, ""): (80, "in settings.json"),
    ('{"env": {"CLAUDE_MEM_CONTEXT_OBSERVATIONS": "70"}}', ""): (70, "in settings.json"),
    (IN_FILE, "9"): (9, "in the environment"),
    ('{"CLAUDE_MEM_CONTEXT_OBSERVATIONS": "many"}', ""): (50, "its default"),
    ("[1]", ""): (50, "its default"),
}
"""Settings file and environment variable, and the expected limit with its origin."""


def test_environment_precedes_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for (written, environment), expected in STARTS.items():
        if written is not None:
            (tmp_path / "settings.json").write_text(written)
        monkeypatch.setenv(SETTING, environment)
        newest, origin = expected
        start = start_of(tmp_path)
        assert start.newest == newest, written
        assert start.origin == origin, written


def test_size_ends_with_the_setting_and_its_file(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 120)])
    *_, step, setting = output_of("size", file).splitlines()
    number = setting.strip().removeprefix(f"{SETTING}=")
    assert f'write "{SETTING}": "{number}" into {file.parent / "settings.json"}' in step
    assert "(today 50, its default;" in step
    answer = json.loads(output_of("size", file, "--json"))
    assert answer["setting"] == f"{SETTING}={number}"
    assert answer["command"] is None
    for unit, expected_count in {"memories": 2, "tokens": 0}.items():
        output = run("size", file, "--token-budget", 500, "--unit", unit).output
        assert output.count(f'next: write "{SETTING}": ') == expected_count
        assert "memlab compact" not in output


def test_several_projects_are_listed_with_their_start_tokens(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 60), session("s2", "it's", 9, first=99)])
    several = output_of("size", file)
    assert f"memlab size 'claude-mem:{file}?project=web'" in several
    assert "these are of 2" in several
    output = output_of("size", f"claude-mem:{file}?project=it%27s")
    assert f"memlab harvest {file} -o {file.with_suffix('.reads.jsonl')}" in output
    text = " ".join(output_of("show", file).split())
    for phrase in ("web 60 50", "it's 9 9", "starts of 2 projects, one loads 50 at most"):
        assert phrase in text
    web = f"claude-mem:{file}?project=web"
    assert "loaded at every start 50" in " ".join(output_of("show", web).split())
    table = memlab.find(file.parent.parent).to_frame()
    weight = memlab.load(web).query("loaded_at_start")["tokens"].sum()
    assert table["tokens_at_start"].tolist() == [weight]


def test_older_and_newer_schemas_are_read(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 2)])
    assert "newer than" not in str(ClaudeMem(file).extra_report())
    run_sql(
        file,
        "INSERT INTO schema_versions (version, applied_at) VALUES (99, '')",
        "ALTER TABLE observations DROP COLUMN subtitle",
        "ALTER TABLE observations ADD COLUMN colour TEXT DEFAULT 'blue'",
    )
    assert "99, newer than 52" in str(ClaudeMem(file).extra_report())
    assert memlab.load(file, columns=["colour"])["colour"].tolist() == ["blue", "blue"]


def test_unreadable_rows_are_named_and_the_rest_is_read(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 6)])
    run_sql(
        file,
        "UPDATE observations SET created_at_epoch = 'yesterday' WHERE id = 1",
        "UPDATE observations SET concepts = 'no json', facts = '{}' WHERE id = 2",
        "UPDATE observations SET title = NULL, narrative = NULL WHERE id = 3",
        "UPDATE observations SET title = CAST(x'fffe41' AS TEXT) WHERE id = 4",
        "UPDATE observations SET created_at_epoch = 9223372036854775807 WHERE id = 5",
    )
    with pytest.raises(
        memlab.errors.BadRowError, match="created_at_epoch 'yesterday' is not a time"
    ):
        memlab.load(file)
    frame = memlab.load(file, on_bad_row="keep").set_index("memory_id")
    assert frame["problem"].notna().tolist().count(True) == 2
    assert frame.loc["2", "tags"] == ("discovery",)
    assert frame.loc["3", "title"] == ""
    assert frame.loc["4", "title"] == "\ufffd\ufffdA"


def test_space_is_measured_and_vacuum_is_rejected(file: Path) -> None:
    write_claude_mem(file, [session("s1", "web", 3)])
    measured = space(file)
    before = file.read_bytes()
    assert measured.file == len(before)
    assert measured.live + measured.free == len(before)
    with pytest.raises(
        StoreError, match="another system's database, which memlab does not rewrite"
    ):
        vacuum(file)
    assert file.read_bytes() == before
