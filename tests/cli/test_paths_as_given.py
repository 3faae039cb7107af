"""Paths are printed as given: relative ones relative, absolute ones absolute."""

from pathlib import Path

import pytest

import memlab
from tests.support.claude_store import project_folder, write_memories
from tests.support.shell import output_of, run
from tests.support.stores import episodes, write_rows

COMMANDS = (
    "show memory.db",
    "size memory.db",
    "size memory.db --explain",
    "size memory.db --save",
    "compact memory.db --keep-recent 3",
    "compact memory.db --keep-recent 3 --rows",
    "compact memory.db --keep-recent 3 --save-plan plan.json",
    "compact memory.db --keep-recent 3 --apply",
    "rows memory.db",
    "compare memory.db --policy recent --keep-recent 5",
    "doctor memory.db",
    "archive memory.db",
    "archive memory.db --copy",
    "init memory.db --apply",
    "floor memory.db",
    "lost memory.db",
    "vacuum memory.db",
    "vacuum memory.db --apply",
    "maintain memory.db",
    "harvest memory.db",
    "report memory.db",
    "find .",
    "fleet show .",
    "fleet size .",
    "show absent.db",
    "restore memory.db latest",
    "restore absent.db latest",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder with a store of twenty memories."""
    write_rows(tmp_path / "memory.db", episodes(20))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("no_rendering")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_relative_path_is_printed_relative(arguments: str, folder: Path) -> None:
    result = run(*arguments.split())
    assert result.output
    assert str(folder) not in result.output


def test_find_without_a_folder_prints_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project_folder(tmp_path / "home")
    write_memories(folder, "a", "b")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    output = output_of("find")
    assert "home/.claude/projects/-home-u-work/memory" in output
    assert str(tmp_path) not in output


@pytest.mark.parametrize("arguments", ["vacuum", "lost", "doctor", "maintain"])
def test_absolute_path_is_printed_absolute(arguments: str, folder: Path) -> None:
    store = folder / "memory.db"
    assert str(store) in run(arguments, store).output


def test_saved_plan_names_its_store_by_a_relative_path(folder: Path) -> None:
    output_of("compact", "memory.db", "--keep-recent", 3, "--save-plan", "plan.json")
    output = output_of("apply", "plan.json")
    assert "applied to memory.db\n" in output
    assert "memlab restore memory.db " in output
    assert str(folder) not in output
    result = run("apply", "plan.json")
    assert result.exit_code == 1
    assert "archived in memory.db.archive.db" in result.output


def test_plan_used_elsewhere_names_its_store_in_full(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    output_of("compact", "memory.db", "--keep-recent", 3, "--save-plan", "plan.json")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert f"applied to {folder / 'memory.db'}\n" in output_of("apply", folder / "plan.json")


def test_paths_in_memory_texts_are_unchanged(folder: Path) -> None:
    write_rows(folder / "notes.db", [{**episodes(1)[0], "title": f"{folder}/x.txt"}])
    assert str(folder)[:20] in output_of("rows", "notes.db")


def test_paths_in_the_settings_file_are_unchanged(folder: Path) -> None:
    line = f'archive_folder = "{folder}/archives"'
    (folder / "memlab.toml").write_text(f"{line}\n")
    assert line in output_of("init", "memory.db").splitlines()


def test_restore_latest_without_a_store_shows_the_syntax(folder: Path) -> None:
    result = run("restore", "latest")
    assert result.exit_code == 2
    assert "memlab restore STORE latest" in result.output


def test_apply_and_restore_accept_a_redundant_apply_option(folder: Path) -> None:
    before = memlab.load("memory.db")
    output_of("compact", "memory.db", "--keep-recent", 3, "--save-plan", "plan.json")
    output_of("apply", "plan.json", "--apply")
    assert len(memlab.load("memory.db")) == 3
    output_of("restore", "memory.db", "--apply")
    assert memlab.load("memory.db").equals(before)
