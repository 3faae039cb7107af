"""The project of a memory folder, and folders of one project by git."""

import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.sources.checkouts import checkout_of, normal_address
from memlab.sources.kinship import Kinship
from memlab.systems.claude_code.projects import project_name, project_of
from tests.support.claude_store import (
    at,
    memory,
    project_folder,
    write_index,
    write_memory,
    write_transcript,
)
from tests.support.repositories import Repository
from tests.support.shell import output_of

REMOTE = "git@example.org:team/app.git"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home folder with projects in ``work``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "work").mkdir()
    return tmp_path


def remember(home: Path, project: Path, *stems: str, transcript: bool = True) -> Path:
    """Write the memory folder of a project with a memory for each stem; return it."""
    folder = project_folder(home, project_name(str(project)))
    for number, stem in enumerate(stems):
        kind = "feedback" if stem.startswith("how") else "project"
        write_memory(folder, f"{stem}.md", memory(stem, kind, body=f"On {stem}."), at(number))
    write_index(folder, [f"- [{stem}]({stem}.md) — on {stem}" for stem in stems])
    if transcript:
        start = {"type": "user", "cwd": str(project), "sessionId": "s"}
        write_transcript(folder.parent, "s", ['{"type":"summary"}', json.dumps(start)])
    return folder


def repository(root: Path, remote: str = "") -> Repository:
    """Make a repository with a commit, and with a remote if one is named."""
    git_repository = Repository(root)
    git_repository.commit(0)
    if remote:
        git_repository.git("remote", "add", "origin", remote)
    return git_repository


def pairs(home: Path) -> list[Kinship]:
    """Return the pairs of folders that may be one project."""
    return list(memlab.find(home).kinships)


def test_worktrees_of_a_repository_belong_together(home: Path) -> None:
    app = repository(home / "work" / "app")
    app.git("worktree", "add", "-q", "../one")
    app.git("worktree", "add", "-q", "../two")
    main = remember(home, app.root, "a")
    first = remember(home, home / "work" / "one", "b", "c")
    second = remember(home, home / "work" / "two", "d")
    suggested = pairs(home)
    assert {(pair.merge_from, pair.merge_into) for pair in suggested} == {
        (str(first), str(main)),
        (str(second), str(main)),
        (str(second), str(first)),
    }
    assert {pair.repository for pair in suggested} == {str(app.root / ".git")}
    assert {pair.equal for pair in suggested} == {0}
    assert f"worktrees of {app.root / '.git'}" in output_of("find", home)


def test_clones_of_one_remote_are_suggested(home: Path) -> None:
    repository(home / "work" / "app", REMOTE)
    repository(home / "work" / "again", "https://me:secret@example.org/team/app")
    repository(home / "work" / "other", "https://example.org/team/other")
    first = remember(home, home / "work" / "app", "a", "b")
    second = remember(home, home / "work" / "again", "c")
    remember(home, home / "work" / "other", "d")
    (pair,) = pairs(home)
    assert pair.merge_into == str(first)
    assert pair.merge_from == str(second)
    assert pair.remote == "example.org/team/app"
    output = output_of("find", home)
    assert "two clones on purpose" in output
    assert "secret" not in output + output_of("find", "--json", home)
    assert f"memlab compact {second} --into {first}" in output


def test_packages_of_one_repository_are_not_one_project(home: Path) -> None:
    app = repository(home / "work" / "app", REMOTE)
    app.git("worktree", "add", "-q", "../one")
    for root in ("app", "one"):
        for package in ("web", "api"):
            (home / "work" / root / package).mkdir()
    web = remember(home, home / "work" / "app" / "web", "a")
    remember(home, home / "work" / "app" / "api", "b")
    other_folder = remember(home, home / "work" / "one" / "web", "c")
    (pair,) = pairs(home)
    assert {pair.merge_into, pair.merge_from} == {str(web), str(other_folder)}


def test_two_links_to_one_project_are_one_path(home: Path) -> None:
    app = home / "work" / "app"
    app.mkdir()
    (home / "work" / "link").symlink_to(app)
    remember(home, app, "a", "b")
    remember(home, home / "work" / "link", "c")
    (pair,) = pairs(home)
    assert pair.path == str(app)


def test_removed_worktree_is_orphaned_with_its_repository(home: Path) -> None:
    app = repository(home / "work" / "app")
    app.git("worktree", "add", "-q", "../one")
    main = remember(home, app.root, "a")
    removed = remember(home, home / "work" / "one", "b", "c")
    (home / "work" / "one").rename(home / "elsewhere")
    (pair,) = pairs(home)
    assert pair.merge_into == str(main)
    assert pair.merge_from == str(removed)
    assert pair.repository == str(app.root / ".git")
    (orphan,) = [store for store in memlab.find(home).stores if store.is_orphaned]
    assert orphan.location == str(removed)
    assert orphan.project == str(home / "work" / "one")


def test_moved_project_is_orphaned_and_suggested_by_name(home: Path) -> None:
    new = home / "work" / "moved" / "app"
    new.mkdir(parents=True)
    old = remember(home, home / "work" / "app", "a", "b")
    other = remember(home, new, "c")
    (pair,) = pairs(home)
    assert pair.merge_into == str(other)
    assert pair.merge_from == str(old)
    assert pair.name == "app"
    assert "orphaned" in output_of("find", home)


def test_ambiguous_project_name_is_no_evidence(home: Path) -> None:
    for above in ("x", "y"):
        (home / "work" / above / "app").mkdir(parents=True)
        remember(home, home / "work" / above / "app", above)
    remember(home, home / "work" / "app", "a", "b")
    assert pairs(home) == []


def test_preferences_alone_are_no_evidence(home: Path) -> None:
    for name in ("one", "two"):
        (home / "work" / name).mkdir()
        remember(home, home / "work" / name, "how1", "how2", "how3", name)
    assert pairs(home) == []


def test_show_names_the_other_folders(home: Path) -> None:
    app = repository(home / "work" / "app")
    app.git("worktree", "add", "-q", "../one")
    main = remember(home, app.root, "a", "b", "c")
    worktree = remember(home, home / "work" / "one", "a", "b", "d")
    unrelated = remember(home, home / "work" / "app" / ".git", "z")
    output = output_of("show", worktree)
    assert f"worktrees of {app.root / '.git'}, 2 of 3 equal" in output
    assert str(main) in output
    assert str(unrelated) not in output
    fields = json.loads(output_of("show", "--json", worktree))
    (pair,) = fields["kinships"]
    assert pair["merge_into"] == str(main)
    assert pair["merge_from"] == str(worktree)
    assert pair["equal"] == 2
    assert fields["project"] == str(home / "work" / "one")
    assert pair == json.loads(output_of("find", "--json", home))["kinships"][0]


def test_show_reports_an_orphaned_folder(home: Path) -> None:
    folder = remember(home, home / "work" / "gone", "a")
    words = "its project is not there any more, or not on this machine"
    assert f"{words}: {home / 'work' / 'gone'}" in output_of("show", folder)
    assert json.loads(output_of("show", "--json", folder))["is_orphaned"] is True


def test_project_is_found_by_the_name_of_its_folder(home: Path) -> None:
    project = home / "work" / "my.app"
    project.mkdir()
    folder = remember(home, project, "a", transcript=False)
    detected = project_of(folder)
    assert detected is not None
    assert detected.path == str(project)
    assert detected.is_missing is False
    (home / "work" / "my-app").mkdir()
    assert project_of(folder) is None, "two paths have this name"


def test_folder_name_without_a_path_is_orphaned(home: Path) -> None:
    folder = remember(home, home / "work" / "gone", "a", transcript=False)
    detected = project_of(folder)
    assert detected is not None
    assert detected.path == ""
    assert detected.is_missing is True
    assert "no folder matches its name" in output_of("find", home)


@pytest.mark.parametrize("name", ["C--Users-me-app", "app"])
def test_folder_names_of_other_systems_give_no_project(home: Path, name: str) -> None:
    folder = project_folder(home, name)
    assert project_of(folder) is None


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def write_binary(path: Path) -> None:
    path.write_bytes(b"\xff\0" * 99)


def write_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(path))


@pytest.mark.parametrize("make", [make_pipe, write_binary, write_too_large, make_socket])
@pytest.mark.parametrize("place", [".git", ".git/config", ".git/commondir"])
def test_odd_file_in_place_of_git_is_ignored(
    home: Path, make: Callable[[Path], None], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "work" / "app"
    project.mkdir()
    monkeypatch.chdir(project)
    if "/" in place:
        (project / ".git").mkdir()
    make(project / place)
    remember(home, project, "a")
    checkout = checkout_of(project)
    assert checkout is None or checkout.remote == ""
    assert memlab.find(home).kinships == ()


def test_broken_transcript_or_pipe_is_skipped(home: Path) -> None:
    folder = remember(home, home / "work", "a", transcript=False)
    os.mkfifo(folder.parent / "a.jsonl")
    (folder.parent / "b.jsonl").write_text('{"cwd": "/nowhere"}\n{"cwd": [1]}\n{"cwd":\n')
    detected = project_of(folder)
    assert detected is not None
    assert detected.path == str(home / "work")


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("git@Example.org:team/app.git", "example.org/team/app"),
        ("example.org:team/app", "example.org/team/app"),
        ("ssh://git@example.org:2222/team/app.git/", "example.org:2222/team/app"),
        ("https://user:token@example.org/team/app", "example.org/team/app"),
        ("file:///srv/git/app.git", "/srv/git/app"),
        ("/srv/git/app.git", "/srv/git/app"),
        ("../app.git", "/srv/app"),
    ],
)
def test_remote_address_is_normalised(address: str, normal: str) -> None:
    assert normal_address(address, Path("/srv/here")) == normal


def test_git_and_memlab_read_the_same_remote(home: Path) -> None:
    git_repository = repository(home / "work" / "app", "ssh://git@example.org/a b/app.git")
    git_repository.git("remote", "add", "another", "https://example.org/x")
    checkout = checkout_of(git_repository.root)
    assert checkout is not None
    assert checkout.remote == "example.org/a b/app"
    git_repository.git("remote", "rename", "origin", "upstream")
    second_checkout = checkout_of(git_repository.root)
    assert second_checkout is not None
    assert second_checkout.remote == "", "two remotes, and none of them is origin"


@given(st.text(alphabet="aZ0._- é/", max_size=20))
def test_project_name_maps_each_character_of_the_path(path: str) -> None:
    name = project_name(path)
    assert len(name) == len(path)
    assert re.fullmatch("[A-Za-z0-9-]*", name)
