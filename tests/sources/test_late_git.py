"""A git command that never answers: the past is not read, not even in part."""

import os
from pathlib import Path

import pytest

import memlab
from memlab.sources.folder import git as folder_git
from memlab.sources.opening import open_source
from memlab.upkeep.maintenance import StepOutcome
from tests.support.claude_store import write_index, write_memory
from tests.support.repositories import Repository
from tests.support.shell import output_of

NEVER_ENDING = (".git/HEAD", ".git/config", ".git/objects/info/alternates")


@pytest.fixture(autouse=True)
def forget_slow_repositories() -> None:
    """Forget repositories of earlier tests that did not answer."""
    folder_git._TIMEOUTS.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a memory folder in git: nine memories, of which two were deleted."""
    monkeypatch.setattr(folder_git, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr(folder_git, "READ_TIMEOUT", 0.5)
    path = tmp_path / ".claude" / "projects" / "-w" / "memory"
    names = [f"note_{number}.md" for number in range(9)]
    for name in names:
        write_memory(path, name, f"---\nname: {name}\nmetadata:\n  type: project\n---\n{name}\n")
    write_index(path, [f"- [{name}]({name})" for name in names])
    repository = Repository(path, root=tmp_path)
    repository.commit(1)
    for name in names[:2]:
        (path / name).unlink()
    write_index(path, [f"- [{name}]({name})" for name in names[2:]])
    repository.commit(2)
    return path


def make_git_hang(repository: Path, name: str) -> None:
    path = repository / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    folder_git._read.cache_clear()


@pytest.mark.parametrize("name", NEVER_ENDING)
def test_hanging_git_leaves_the_past_unread(folder: Path, tmp_path: Path, name: str) -> None:
    assert len(memlab.load_past(folder)) == 9
    make_git_hang(tmp_path, name)
    source = open_source(folder)
    assert "was not read" in source.external_history.note()
    assert not source.external_history.was_read_in_time()
    assert len(memlab.load_past(folder)) == 7
    assert output_of("show", folder)
    output_of("doctor", folder)


def test_auto_cap_fails_without_the_git_past(folder: Path, tmp_path: Path) -> None:
    (folder.parent / "memlab.toml").write_text('policy = { name = "recent", keep = "auto" }\n')
    make_git_hang(tmp_path, ".git/HEAD")
    steps = {step.name: step for step in memlab.maintain(folder, apply=True).steps}
    assert steps["compact"].outcome is StepOutcome.FAILED
    assert "was not read" in steps["compact"].message


def test_partially_read_past_is_discarded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command after the first is too slow, and its partial output is discarded."""
    monkeypatch.setattr(folder_git, "READ_TIMEOUT", 0.0)
    folder_git._read.cache_clear()
    assert folder_git.history_of(folder, type(open_source(folder))).lifetimes == ()
    assert not open_source(folder).external_history.was_read_in_time()
