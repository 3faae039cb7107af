"""An archive inside a git work tree is ignored and no user file is edited."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.errors import CompactionError, MemlabError
from memlab.store.archive.location import archive_path
from tests.support.repositories import Repository
from tests.support.shell import output_of, undo_in
from tests.support.stores import episodes, row, write_rows


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project" / "agent", root=tmp_path / "project")


@pytest.fixture
def store(repository: Repository) -> Path:
    path = write_rows(repository.folder / "memory.db", [row("d1", "semantic"), *episodes(10)])
    repository.commit(1)
    return path


def committed(repository: Repository) -> list[str]:
    """Commit everything with ``git add -A`` and return the names of the files."""
    repository.commit(2)
    return repository.git("ls-files").splitlines()


def test_archive_is_ignored_by_git(repository: Repository, store: Path) -> None:
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    assert "git ignores it" in receipt
    assert "git clean -x deletes it" in receipt
    assert committed(repository) == ["agent/memory.db"]
    assert "git ignores it" in output_of("doctor", store)
    output_of("restore", store, undo_in(receipt))


def test_copies_are_ignored_by_git(repository: Repository, store: Path) -> None:
    memlab.compaction.keep_copies(store)
    assert committed(repository) == ["agent/memory.db"]


def test_existing_gitignore_is_unchanged_and_the_line_is_named(
    repository: Repository, store: Path
) -> None:
    ignore = store.with_name(".gitignore")
    ignore.write_text("*.log\n")
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    assert ignore.read_text() == "*.log\n"
    assert f"add the line /memory.db.archive.db* to {ignore}" in " ".join(receipt.split())
    doctor = output_of("doctor", store)
    assert "WARN archive_file" in doctor
    ignore.write_text("*.log\n/memory.db.archive.db*\n")
    output_of("doctor", store)
    assert committed(repository) == ["agent/.gitignore", "agent/memory.db"]


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def bytes_of_another_encoding(path: Path) -> None:
    path.write_bytes("# für Anna\n".encode("latin-1"))


@pytest.mark.parametrize(
    "make", [Path.mkdir, a_pipe, a_dangling_link, bytes_of_another_encoding, Path.touch]
)
def test_unusual_gitignore_is_unchanged(
    repository: Repository,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
) -> None:
    monkeypatch.setattr("memlab.store.archive.worktree._GIT_TIMEOUT", 0.5)
    ignore = store.with_name(".gitignore")
    make(ignore)
    before = ignore.lstat()
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    assert f"add the line /memory.db.archive.db* to {ignore}" in " ".join(receipt.split())
    assert "WARN archive_file" in output_of("doctor", store)
    output_of("restore", store, undo_in(receipt))
    after = ignore.lstat()
    assert after.st_ino == before.st_ino
    assert after.st_mode == before.st_mode
    assert after.st_size == before.st_size
    assert after.st_mtime_ns == before.st_mtime_ns


def test_no_gitignore_is_written_if_already_ignored(repository: Repository, store: Path) -> None:
    (repository.root / ".gitignore").write_text("*.archive.db\n")
    memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    assert not store.with_name(".gitignore").exists()
    assert committed(repository) == [".gitignore", "agent/memory.db"]


def test_tracked_archive_is_not_reported_as_ignored(repository: Repository, store: Path) -> None:
    archive = archive_path(store)
    output_of("compact", store, "--keep-recent", 5, "--apply")
    repository.git("add", "-f", str(archive))
    repository.commit(2)
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    assert "git ignores it" not in receipt
    doctor = " ".join(output_of("doctor", store).split())
    untrack = f"git -C {repository.root} rm --cached {archive}"
    assert "WARN archive_file" in doctor
    assert untrack in doctor
    repository.git(*untrack.split()[1:])
    assert "git ignores it" in output_of("doctor", store)
    assert archive.exists()
    assert committed(repository) == ["agent/memory.db"]


def linked_worktree(root: Path) -> Repository:
    main = Repository(root / "main")
    main.commit(1)
    main.git("worktree", "add", "-q", str(root / "linked"))
    return Repository(root / "linked" / "agent", root=root / "linked")


def submodule(root: Path) -> Repository:
    inner = Repository(root / "inner")
    inner.commit(1)
    outer = Repository(root / "outer")
    allowed = ("-c", "protocol.file.allow=always")
    outer.git(*allowed, "submodule", "add", "-q", str(inner.root), "part")
    return Repository(root / "outer" / "part" / "agent", root=root / "outer" / "part")


@pytest.mark.parametrize("make", [linked_worktree, submodule])
def test_archive_is_ignored_in_worktrees_and_submodules(
    tmp_path: Path, make: Callable[[Path], Repository]
) -> None:
    repository = make(tmp_path)
    assert (repository.root / ".git").is_file()
    store = write_rows(repository.folder / "memory.db", [row("d1", "semantic"), *episodes(10)])
    assert "git ignores it" in output_of("compact", store, "--keep-recent", 3, "--apply")
    assert committed(repository) == ["agent/memory.db"]


def test_no_ignore_file_is_written_outside_a_work_tree(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    receipt = output_of("compact", store, "--keep-recent", 3, "--apply")
    assert "git" not in receipt.replace(str(tmp_path), "")
    assert {path.name for path in tmp_path.iterdir()} == {"memory.db", "memory.db.archive.db"}


def test_git_folder_is_unchanged(repository: Repository, store: Path) -> None:
    before = {
        path: path.read_bytes() for path in (repository.root / ".git").rglob("*") if path.is_file()
    }
    memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    after = {
        path: path.read_bytes() for path in (repository.root / ".git").rglob("*") if path.is_file()
    }
    assert after == before


def test_rejected_plan_leaves_no_file(store: Path) -> None:
    plan = memlab.plan(store, memlab.KeepRecent(3))

    class StoppedError(CompactionError):
        pass

    def stop(step: str) -> None:
        if step == "checked":
            raise StoppedError("stopped")

    with pytest.raises(MemlabError):
        memlab.apply(plan, on_step=stop)
    assert {path.name for path in store.parent.iterdir()} == {"memory.db"}


def test_hanging_git_is_asked_once_and_the_archive_is_ignored(
    repository: Repository, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.store.archive.worktree._GIT_TIMEOUT", 0.5)
    configuration = repository.root / ".git" / "config"
    text = configuration.read_bytes()
    configuration.unlink()
    os.mkfifo(configuration)
    ask = subprocess.run
    asked = []

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return ask(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    assert "undo" in str(receipt)
    assert len(asked) == 1  # each further call would wait for the timeout again
    monkeypatch.undo()
    configuration.unlink()
    configuration.write_bytes(text)
    assert archive_path(store).exists()
    assert committed(repository) == ["agent/memory.db"]
