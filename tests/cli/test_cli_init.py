"""``memlab init`` writes each setting as a comment and keeps what is set."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import memlab
from memlab.settings import EXAMPLES, FILE, SETTINGS, read_settings
from memlab.sources.opening import (
    SYSTEMS,
    open_source,
    settings_of,
    settings_without_effect,
    source_of_kind,
)
from tests.support.claude_store import project_folder, realistic_folder
from tests.support.invariants import rows_of
from tests.support.odek_store import write_odek
from tests.support.shell import output_of
from tests.support.stores import episodes, run_sql, write_rows

# The settings in groups, by the stores that they are for. `WITHOUT_EFFECT` has the groups that do
# not apply to a kind of store.
OF_FOLDERS = {"kind", "claude"}
OF_DELETIONS = {"archive_for", "archive_folder", "max_per_run"}
OF_RETIREMENTS = {"retire", "delete_retired_after"}
OF_STARTS = {"context_window"}  # no start loads the memories of some stores
OF_NATIVE_FILES = {"keep_copies", "vacuum_free"}
READ_ONLY = OF_FOLDERS | OF_DELETIONS | OF_RETIREMENTS | OF_NATIVE_FILES
ON_A_SERVER = OF_FOLDERS | OF_RETIREMENTS | OF_NATIVE_FILES | OF_STARTS | {"archive_folder"}
WITHOUT_EFFECT = {
    "file": OF_FOLDERS,
    "claude-mem": READ_ONLY,
    "mcp-memory": OF_FOLDERS | OF_RETIREMENTS | OF_NATIVE_FILES | OF_STARTS,
    "codex": READ_ONLY | OF_STARTS,
    "mcp-graph": READ_ONLY | OF_STARTS,
    "hermes": READ_ONLY,
    "openclaw": OF_RETIREMENTS | OF_STARTS | {"claude", "vacuum_free"},
    "serena": OF_RETIREMENTS | {"claude", "vacuum_free"},
    "claude": {"vacuum_free"},
    "odek": OF_RETIREMENTS | OF_STARTS | {"claude", "vacuum_free"},
    "postgresql": ON_A_SERVER,
    "valkey": ON_A_SERVER,
}
"""The settings that have no effect on a store, by the scheme of its kind."""
SERVERS = {"postgresql": "postgresql://localhost/db?agent=a", "valkey": "redis://localhost/0"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(9))


def test_init_without_apply_only_shows(store: Path) -> None:
    output = output_of("init", store)
    assert "nothing was written; add --apply to write it" in output
    assert f"settings: {store.parent / FILE}" in output
    assert not (store.parent / FILE).exists()


def test_init_writes_each_setting_as_a_comment(store: Path) -> None:
    before = rows_of(store)
    output = output_of("init", store)
    output_of("init", store, "--apply")
    text = (store.parent / FILE).read_text()
    assert text in output
    all_lines = {
        key: f"# {key} = {EXAMPLES[key]}  # {setting.comment}" for key, setting in SETTINGS.items()
    }
    written = {key for key, line in all_lines.items() if line in text.splitlines()}
    assert written == SETTINGS.keys() - WITHOUT_EFFECT["file"]
    assert tomllib.loads(text) == {"store": {"memory.db": {}}}
    assert read_settings(store.parent, "memory.db").policy is None
    assert rows_of(store) == before


@pytest.mark.parametrize("key", sorted(SETTINGS.keys() - WITHOUT_EFFECT["file"]))
def test_uncommented_line_is_a_valid_setting(store: Path, key: str) -> None:
    output_of("init", store, "--apply")
    file = store.parent / FILE
    file.write_text(file.read_text().replace(f"# {key} = ", f"{key} = "))
    settings = read_settings(store.parent, "memory.db")
    assert getattr(settings, key)


def test_init_keeps_existing_settings_and_is_idempotent(store: Path) -> None:
    file = store.parent / FILE
    file.write_text('# mine\ntarget = 0.8\n\n[store."memory.db"]\nmax_per_run = 7  # few\n')
    output_of("init", store, "--apply")
    once = file.read_text()
    assert once.startswith("# mine\ntarget = 0.8\n")
    assert "max_per_run = 7  # few" in once
    assert "# max_per_run = " not in once
    output_of("init", store, "--apply")
    assert file.read_text() == once
    settings = read_settings(store.parent, "memory.db")
    assert settings.target == 0.8
    assert settings.max_per_run == 7


def test_broken_or_foreign_settings_file_is_unchanged(store: Path) -> None:
    file = store.parent / FILE
    file.write_text("target = \n")
    assert "is not TOML" in output_of("init", store, "--apply", code=2)
    assert file.read_text() == "target = \n"
    file.write_text("target = 0.8\n")
    file.chmod(0o666)
    assert "chmod go-w" in output_of("init", store, "--apply", code=2)
    assert file.read_text() == "target = 0.8\n"


def test_init_json_holds_the_text(store: Path) -> None:
    answer = json.loads(output_of("init", store, "--json"))
    assert answer["written"] is False
    assert answer["file"] == str(store.parent / FILE)
    assert answer["text"] in output_of("init", store)
    assert set(answer["left_out"]) == WITHOUT_EFFECT["file"]


@pytest.mark.parametrize("scheme", [system.schemes[0] for system in SYSTEMS if system.source])
def test_settings_without_effect_are_omitted_with_reason(tmp_path: Path, scheme: str) -> None:
    source = source_of_kind(scheme, SERVERS.get(scheme, str(tmp_path / "store")))
    left_out = settings_without_effect(source)
    assert set(left_out) == WITHOUT_EFFECT[scheme]
    assert left_out.keys() <= SETTINGS.keys()
    assert all(reason.strip() for reason in left_out.values())


def odek_folder(folder: Path) -> str:
    write_odek(folder / "episodes", ["one", "two"])
    return f"odek:{folder}/episodes"


def claude_folder(folder: Path) -> str:
    return str(realistic_folder(project_folder(folder)))


def hermes_folder(folder: Path) -> str:
    (folder / ".hermes" / "memories").mkdir(parents=True)
    (folder / ".hermes" / "memories" / "MEMORY.md").write_text("one\n§\ntwo")
    return str(folder / ".hermes" / "memories")


def serena_folder(folder: Path) -> str:
    (folder / ".serena" / "memories").mkdir(parents=True)
    (folder / ".serena" / "memories" / "style.md").write_text("tabs")
    return str(folder / ".serena" / "memories")


def codex_file(folder: Path) -> str:
    columns = "source_updated_at INTEGER, raw_memory TEXT, rollout_summary TEXT"
    run_sql(
        folder / "memories_1.sqlite",
        f"CREATE TABLE stage1_outputs (thread_id TEXT PRIMARY KEY, {columns})",
        "INSERT INTO stage1_outputs VALUES ('t1', 1780000000, 'raw', 'summary')",
    )
    return str(folder / "memories_1.sqlite")


def graph_file(folder: Path) -> str:
    line = {"type": "entity", "name": "a", "entityType": "t", "observations": ["o"]}
    (folder / "memory.jsonl").write_text(json.dumps(line) + "\n")
    return str(folder / "memory.jsonl")


@pytest.mark.parametrize(
    "make", [odek_folder, claude_folder, hermes_folder, serena_folder, codex_file, graph_file]
)
def test_settings_file_of_init_does_not_change_loading(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    name = make(tmp_path)
    before = memlab.load(name)
    answer = json.loads(output_of("init", name, "--apply", "--json"))
    file = Path(answer["file"])
    assert file.read_text() == answer["text"]
    assert settings_of(open_source(name)).policy is None
    assert memlab.load(name).equals(before)
    for key, reason in answer["left_out"].items():
        assert f"# {key} = " not in answer["text"]
        assert reason in " ".join(output_of("init", name).split())
    lines = [line for line in answer["text"].splitlines() if " = " in line]
    listed = {line.split()[1] for line in lines if line.startswith("# ")} & SETTINGS.keys()
    assert listed == SETTINGS.keys() - answer["left_out"].keys()
    # The examples of these settings are paths that do not exist.
    for key in sorted(listed - {"archive_folder", "log", "harvest"}):
        file.write_text(answer["text"].replace(f"# {key} = ", f"{key} = "))
        assert len(memlab.load(name)) == len(before)


def test_init_of_a_non_store_writes_no_settings(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    run_sql(other, "CREATE TABLE things (name TEXT)")
    output_of("init", other, "--apply", code=2)
    assert not (tmp_path / FILE).exists()


def test_save_works_on_the_file_of_init(store: Path) -> None:
    output_of("init", store, "--apply")
    output_of("compact", store, "--keep-recent", 5, "--save")
    assert read_settings(store.parent, "memory.db").keep_recent == 5
