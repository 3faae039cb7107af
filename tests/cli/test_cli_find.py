"""``memlab find``, and ``memlab show`` on what is no file: as a person types them."""

import json
import re
from pathlib import Path

import pytest
from claude_store import as_found, at, memory, project_folder, write_index, write_memory
from odek_store import write_odek
from shell import run, said


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_MEM_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_find_prints_a_line_a_store_and_what_to_run_next(home: Path) -> None:
    folder = as_found(project_folder(home), files=12)
    write_odek(home / "elsewhere", ["one"])
    shown = said("find")
    assert "1 store" in shown
    assert "Claude Code memory        12" in shown
    assert shown.rstrip().endswith(f"next: memlab show {folder}")
    assert len(json.loads(run("find", "--json").output)["stores"]) == 1


def test_find_says_when_there_is_nothing(home: Path) -> None:
    shown = said("find")
    assert "0 stores" in shown
    assert "next: memlab find FOLDER" in shown
    assert run("find", home / "nowhere").exit_code == 2


def test_show_lists_the_stores_of_a_folder_that_holds_several(home: Path) -> None:
    for number in range(2):
        as_found(project_folder(home, f"-p{number}"), files=5)
    assert "2 stores" in said("show", home / ".claude")
    (home / "empty").mkdir()
    assert "a folder without a store in it; name a store" in said("show", home / "empty", code=2)
    (home / "empty" / "note.md").write_text("---\nname: note\n---\n")
    notes = said("show", home / "empty", code=2)
    assert f"name notes by their system, as claude:{home}/empty" in notes


def test_show_says_what_of_an_index_is_loaded_and_what_is_cut(home: Path) -> None:
    folder = project_folder(home)
    for number in range(205):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    write_memory(folder, "alone.md", memory("nobody names me", style="broken"), at(300))
    write_index(folder, [*(f"- [T](f{number}.md)" for number in range(204)), "- [X](gone.md)"])
    shown = said("show", folder)
    assert re.search(r"loaded at every start +200 ", shown)
    for words in (
        "200 of 205 lines are loaded",
        "204 of 206 files are named by a line",
        "4 named files stand below what is loaded",
        "lines that are cut: 4",
        "- [T](f200.md)",
        "files that no line names: 2",
        "alone.md",
        "lines whose file is not there: 1",
        "gone.md",
        "front matter that is no YAML: 1",
        "206 by file time",
    ):
        assert words in shown, words
    about = json.loads(said("show", folder, "--json"))["about"]
    assert about["cut_files"] == ["f200.md", "f201.md", "f202.md", "f203.md"]
