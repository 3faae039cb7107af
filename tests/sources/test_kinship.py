"""Folders suggested as one project by equal memories, never by preferences."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.sources.checkouts import Project
from memlab.sources.kinship import MIN_EQUAL, MIN_SHARE, Kinship, kinships_among
from tests.support.claude_store import at, memory, project_folder, write_index, write_memory
from tests.support.shell import output_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return tmp_path


def write_project(home: Path, name: str, memories: dict[str, str]) -> Path:
    """Write a folder of memories, by file stem; return the folder."""
    folder = project_folder(home, name)
    for number, (stem, text) in enumerate(memories.items()):
        write_memory(folder, f"{stem}.md", text, at(number))
    write_index(folder, [f"- [{stem}]({stem}.md)" for stem in memories])
    return folder


def facts(first: int, last: int) -> dict[str, str]:
    """Return memories of a project, each with a text of its own."""
    return {
        f"f{number}": memory(f"f{number}", body=f"Fact number {number}.")
        for number in range(first, last)
    }


def preferences(count: int) -> dict[str, str]:
    """Return instructions of a person."""
    return {
        f"p{number}": memory(f"p{number}", "feedback", body=f"Do {number}.")
        for number in range(count)
    }


def test_moved_project_is_suggested_by_equal_memories(home: Path) -> None:
    old = write_project(home, "-srv-app", facts(0, 5))
    new = write_project(home, "-srv-work-app", facts(2, 9))
    write_project(home, "-srv-other", facts(20, 26))
    inventory = memlab.find(home)
    assert inventory.kinships == (Kinship(str(new), str(old), equal=3, memories=5),)
    output = output_of("find", home)
    assert "may be one project" in output
    assert f"3 of 5 equal  {old}  {new}" in output
    (kinship,) = json.loads(output_of("find", "--json", home))["kinships"]
    assert kinship["equal"] == 3


def test_copied_preferences_are_no_evidence(home: Path) -> None:
    write_project(home, "-srv-app", {**preferences(6), **facts(0, 3)})
    write_project(home, "-srv-other", {**preferences(6), **facts(10, 13)})
    assert memlab.find(home).kinships == ()
    assert "may be one project" not in output_of("find", home)


def test_three_clones_give_three_pairs(home: Path) -> None:
    for name in ("-a", "-b", "-c"):
        write_project(home, name, facts(0, 4))
    assert [kinship.equal for kinship in memlab.find(home).kinships] == [4, 4, 4]


def test_show_ends_with_the_merge_that_find_suggests(home: Path) -> None:
    old = write_project(home, "-srv-app", facts(0, 5))
    new = write_project(home, "-srv-work-app", facts(2, 9))
    merge = f"memlab compact {old} --into {new}"
    for folder in (old, new):
        assert merge in output_of("show", folder)
    assert merge in output_of("find", home)


def test_worktrees_are_merged_into_the_main_checkout_first(tmp_path: Path) -> None:
    (tmp_path / "app" / ".git" / "worktrees").mkdir(parents=True)
    projects = {}
    for name in ("app", "docs", "fix"):
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        if name != "app":
            git_folder = tmp_path / "app" / ".git" / "worktrees" / name
            git_folder.mkdir()
            (git_folder / "commondir").write_text("../..\n")
            (git_folder / "gitdir").write_text(f"{root}/.git\n")
            (root / ".git").write_text(f"gitdir: {git_folder}\n")
        projects[name] = Project.at(root)
    contents = {"app": frozenset("1"), "docs": frozenset("234"), "fix": frozenset("56")}
    pairs = [
        (kinship.merge_from, kinship.merge_into) for kinship in kinships_among(contents, projects)
    ]
    assert pairs == [("docs", "app"), ("fix", "app"), ("fix", "docs")]


def test_missing_project_with_a_shorter_path_than_a_subfolder_is_no_kin(tmp_path: Path) -> None:
    subfolder = tmp_path / "deep" / "sub" / "folder"
    subfolder.mkdir(parents=True)
    (tmp_path / ".git" / "worktrees").mkdir(parents=True)
    projects = {"gone": Project("/gone", is_missing=True), "present": Project.at(subfolder)}
    contents = {"gone": frozenset("1"), "present": frozenset("2")}
    assert kinships_among(contents, projects) == []


def test_find_changes_nothing(home: Path) -> None:
    folder = write_project(home, "-a", facts(0, 4))
    write_project(home, "-b", facts(0, 4))
    before = sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*"))
    memlab.find(home)
    assert sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*")) == before
    assert folder.is_dir()


CONTENTS = st.dictionaries(
    st.sampled_from("abcd"), st.frozensets(st.sampled_from("0123456789"), max_size=8), max_size=4
)


@given(CONTENTS)
def test_pairs_equal_brute_force_comparison(contents: dict[str, frozenset[str]]) -> None:
    expected = set()
    for first, second in combinations(sorted(contents), 2):
        equal = len(contents[first] & contents[second])
        smaller = min(len(contents[first]), len(contents[second]))
        if equal >= MIN_EQUAL and equal >= MIN_SHARE * smaller:
            expected.add(frozenset({first, second}))
    kinships = kinships_among(contents)
    pairs = {frozenset({kinship.merge_into, kinship.merge_from}) for kinship in kinships}
    assert pairs == expected
    assert len(kinships) == len(expected)
