"""The past of a folder tracked by git: creation, deletion, and no code executed."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.compaction import drop_archived, keep_copies, recover
from memlab.sources.folder.git import history_of
from memlab.sources.opening import open_source
from memlab.systems.claude_code.source import ClaudeCode
from tests.support import odek_store
from tests.support.claude_store import memory, write_index, write_memory
from tests.support.repositories import NO_CONFIG, Repository, day
from tests.support.stores import files_in

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

TEXTS = {name: memory(name, body=f"{name} alone. " * 60) for name in "abcdefghijk"}


PLACE = "projects/-home-u-work/memory"
"""A place in which every file is a memory."""


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_CONFIG.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """Make a folder of three memories and an index, committed on the first day."""
    repository = Repository(tmp_path / PLACE)
    write(repository, *"abc")
    entries = [f"- [{name}]({name}.md) — hook" for name in "abc"]
    write_index(repository.folder, ["# Memory", *entries])
    repository.commit(0)
    return repository


def write(repo: Repository, *names: str) -> None:
    for name in names:
        write_memory(repo.folder, f"{name}.md", TEXTS[name])


def loose(repo: Repository, name: str) -> Path:
    """Return the file of a git object."""
    object_id = repo.git("rev-parse", name).strip()
    return repo.root / ".git" / "objects" / object_id[:2] / object_id[2:]


def remove(repo: Repository, *names: str) -> None:
    for name in names:
        (repo.folder / f"{name}.md").unlink()


def past_of(folder: Path | str) -> pd.DataFrame:
    return memlab.load_past(folder).set_index(c.MEMORY_ID)


def lives(folder: Path | str) -> dict[str, tuple[datetime, datetime | None]]:
    """Return creation and deletion time of each memory."""
    past = past_of(folder)[[c.CREATED_AT, c.DELETED_AT]].astype(object)
    return {
        str(name): (born, None if pd.isna(deleted) else deleted)
        for name, born, deleted in past.itertuples(name=None)
    }


def by_git_log(repo: Repository, name: str) -> tuple[datetime, datetime | None]:
    """Return creation and deletion time of a file by ``git log``, following renames."""

    def moments(*arguments: str) -> list[datetime]:
        log = ("log", "--format=@%ct", "--diff-merges=first-parent", "--full-history", "-M70%")
        lines = repo.git(*log, "--name-only", *arguments, "--", name).split()
        return [datetime.fromtimestamp(int(line[1:]), UTC) for line in lines if line[0] == "@"]

    created = min(moments("--follow", "--diff-filter=A"))
    is_present = name in repo.git("ls-files").split("\n")
    deleted = None if is_present else max(moments("--diff-filter=D"))
    return created, deleted


def test_creation_and_deletion_times_equal_git_log(repo: Repository, tmp_path: Path) -> None:
    """Files are renamed, restored, deleted and merged."""
    write(repo, *"def")
    repo.commit(1)
    (repo.folder / "a.md").rename(repo.folder / "renamed.md")
    repo.commit(2)
    remove(repo, "b")
    repo.commit(3)
    write(repo, "b")
    repo.commit(4)
    repo.git("switch", "-q", "-c", "side")
    write(repo, *"gh")
    remove(repo, "d")
    (repo.folder / "c.md").rename(repo.folder / "moved.md")
    repo.commit(5)
    remove(repo, "g")
    repo.commit(6)
    repo.git("switch", "-q", "main")
    write(repo, "i")
    remove(repo, "e")
    repo.commit(7)
    repo.git("merge", "-q", "--no-ff", "-m", "m", "side", at=day(8))
    (repo.folder / "renamed.md").rename(repo.folder / "again.md")
    with (repo.folder / "again.md").open("a") as file:
        file.write("a little more")
    repo.commit(9)
    names = {f"{name}.md" for name in ("again", "b", "moved", "d", "e", "f", "g", "h", "i")}
    times = lives(repo.folder)
    assert times == {name: by_git_log(repo, name) for name in names}
    assert times["d.md"] == (day(1), day(8))  # deleted by a merge, compared with its first parent
    assert times["again.md"] == (day(0), None)
    assert past_of(repo.folder)["load_bearing"].sum() == 0
    remove(repo, "f")
    repo.commit(10)
    shallow = repo.clone(tmp_path / "shallow", "--depth", "2")
    names -= {"d.md", "e.md", "g.md"}
    assert lives(shallow.folder) == {name: by_git_log(shallow, name) for name in names}
    assert "git fetch --unshallow" in open_source(shallow.folder).external_history.note()


@pytest.mark.parametrize("other", [".autopush_test", "README.md", "plan.txt"])
def test_deletion_of_a_foreign_file_is_ignored(tmp_path: Path, other: str) -> None:
    repo = Repository(tmp_path / "memory")
    write(repo, *"abc")
    write_index(repo.folder, [f"- [{name}]({name}.md)" for name in "abc"])
    (repo.folder / other).write_text("no memory\n")
    repo.commit(0)
    (repo.folder / other).unlink()
    repo.commit(1)
    past = memlab.load_past(repo.folder)
    assert past[c.MEMORY_ID].tolist() == ["a.md", "b.md", "c.md"]
    assert past[c.DELETED_AT].isna().all()


def test_uncommitted_changes_are_included(repo: Repository) -> None:
    remove(repo, "a")
    (repo.folder / "b.md").rename(repo.folder / "other.md")
    (repo.folder / "c.md").rename(repo.folder / "C.md")
    write(repo, "d")
    before = lives(repo.folder)
    assert set(before) == {"a.md", "other.md", "C.md", "d.md"}
    deleted = {name: moment for name, (_, moment) in before.items() if moment is not None}
    assert list(deleted) == ["a.md"]
    assert deleted["a.md"].timestamp() == pytest.approx(repo.folder.stat().st_mtime)
    write(repo, "a")
    assert lives(repo.folder)["a.md"] == (day(0), None)


def test_deleted_memory_keeps_its_text_tokens_and_links(repo: Repository) -> None:
    """One memory was emptied before its deletion."""
    write_memory(repo.folder, "d.md", memory("d", "feedback", body="See [[b]] and [[a]]."))
    write_index(repo.folder, ["- [d](d.md) — hook", "- [b](b.md)"])
    repo.commit(1)
    loaded = memlab.load(repo.folder, with_body=True).set_index(c.MEMORY_ID)
    for number, text in enumerate(["\n", ""], 2):
        (repo.folder / "a.md").write_text(text)
        repo.commit(number)
    remove(repo, *"ad")
    write_index(repo.folder, ["- [b](b.md)"])
    repo.commit(4)
    past = memlab.load_past(repo.folder, with_body=True).set_index(c.MEMORY_ID)
    same = [c.TITLE, c.BODY, c.TOKENS, c.TAGS, c.EVIDENCE_REFS, c.CREATED_AT, c.LOAD_BEARING]
    assert past.loc["d.md", same].tolist() == loaded.loc["d.md", same].tolist()
    assert past.loc["a.md", c.TITLE] == "about a"
    assert lives(repo.folder)["a.md"] == (day(0), day(4))


def test_no_code_of_a_repository_is_executed(repo: Repository, tmp_path: Path) -> None:
    folder = repo.folder
    (folder / ".gitattributes").write_text("*.md diff=evil filter=evil merge=evil\n")
    remove(repo, "a")
    repo.commit(1)
    touch = tmp_path / "touch.sh"
    touch.write_text(f'#!/bin/sh\ntouch {tmp_path}/run-"$(basename $0)"\ncat\n')
    touch.chmod(0o755)
    for hook in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-index-change"):
        shutil.copy(touch, folder / ".git" / "hooks" / hook)
    keys = (
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "pager.log",
        "core.sshCommand",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "gpg.program",
        "credential.helper",
        "core.askPass",
        "core.editor",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
        "core.gitProxy",
    )
    for key in keys:
        repo.git("config", key, str(touch))
    other_settings = (
        f"alias.log=!{touch}",
        f"alias.rev-parse=!{touch}",
        f"alias.diff-tree=!{touch}",
        f"alias.cat-file=!{touch}",
        "log.showSignature=true",
        f"core.hooksPath={folder}/.git/hooks",
        "diff.renames=false",
        "diff.orderFile=/nowhere",
        "core.quotePath=true",
        "core.repositoryformatversion=1",
        "extensions.partialClone=origin",
        "remote.origin.promisor=true",
        "protocol.allow=always",
        f"remote.origin.url=ext::{touch}",
        f"remote.origin.uploadpack={touch}",
        "protocol.ext.allow=always",
        "remote.origin.vcs=ext",
    )
    for setting in other_settings:
        key, value = setting.split("=", 1)
        repo.git("config", key, value)
    loose(repo, "HEAD~:a.md").unlink()  # a partial clone fetches it
    head = repo.git("rev-parse", "HEAD").strip()
    repo.git("update-ref", f"refs/replace/{head}", "HEAD~")
    for trace in tmp_path.glob("run-*"):  # traces of the setup
        trace.unlink()
    before = files_in(folder)
    assert [deleted for _, deleted in lives(folder).values()] == [day(1), None, None]
    memlab.doctor(folder)
    assert list(tmp_path.glob("run-*")) == []
    assert files_in(folder) == before


# Incomplete history


def test_missing_git_is_reported(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(repo, "a")
    monkeypatch.setenv("PATH", str(repo.folder))
    assert set(lives(repo.folder)) == {"b.md", "c.md"}
    assert "git is not installed" in open_source(repo.folder).external_history.note()
    checks = {check.name: check for check in memlab.doctor(repo.folder).checks}
    assert "git is not installed" in checks["past"].summary


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_repository_of_another_owner_is_not_read(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remove(repo, "a")
    os.chown(repo.folder, 65534, 65534)
    os.chown(repo.folder / ".git", 65534, 65534)
    assert set(lives(repo.folder)) == {"b.md", "c.md"}
    assert lost(repo.folder) == {}
    note = open_source(repo.folder).external_history.note()
    assert f"git config --global --add safe.directory {repo.folder}" in note
    config = tmp_path / "config"
    config.write_text(f"[safe]\n directory = {repo.folder}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert open_source(repo.folder).external_history.note() == ""
    assert set(lives(repo.folder)) == {"a.md", "b.md", "c.md"}
    assert lost(repo.folder) == {"a.md": ""}


@pytest.mark.parametrize("is_damaged", [False, True], ids=["missing", "damaged"])
@pytest.mark.parametrize(
    ("object_name", "note", "is_older_history_read"),
    [
        ("HEAD~4:a.md", "texts of 1", True),
        ("HEAD~3^{tree}", "was before", False),
        ("HEAD~3", "was before", False),
    ],
)
def test_intact_commits_of_a_damaged_repository_are_used(
    repo: Repository, object_name: str, note: str, is_older_history_read: bool, is_damaged: bool
) -> None:
    for number, (change, name) in enumerate(
        [(remove, "a"), (write, "d"), (remove, "b"), (write, "e")], 1
    ):
        change(repo, name)
        repo.commit(number)
    broken = loose(repo, object_name)
    broken.unlink()
    if is_damaged:
        broken.write_bytes(b"no object" * 9)
    times = lives(repo.folder)
    created, _ = times["c.md"]
    _, deleted = times["b.md"]
    assert deleted == day(3)
    assert {"c.md", "d.md", "e.md"} <= set(times)
    if is_older_history_read:
        assert created == day(0)
    else:
        assert created != day(0)
    assert note in open_source(repo.folder).external_history.note()


def test_partial_clone_fetches_nothing(repo: Repository, tmp_path: Path) -> None:
    (repo.folder / "b.md").rename(repo.folder / "d.md")
    remove(repo, "a")
    write(repo, "e")
    repo.commit(1)
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = repo.clone(tmp_path / "clone" / PLACE, "--filter=blob:none")
    before = files_in(clone.root)
    times = lives(clone.folder)
    assert times["a.md"] == (day(0), day(1))
    assert times["d.md"] == (day(0), None)
    assert "renames may be taken" in open_source(clone.folder).external_history.note()
    assert files_in(clone.root) == before


# Kinds of folders and names


def test_sub_folder_worktree_and_submodule_are_supported(repo: Repository, tmp_path: Path) -> None:
    remove(repo, "a")
    repo.commit(1)
    tree = tmp_path / "tree"
    repo.git("worktree", "add", "-q", str(tree))
    around = Repository(tmp_path / "around")
    url = f"file://{repo.root}"
    around.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, f"deep/{PLACE}"
    )
    around.commit(2)
    expected = {"a.md": day(1), "b.md": None, "c.md": None}
    for folder in (tree, around.root / "deep" / PLACE):
        assert {name: deleted for name, (_, deleted) in lives(folder).items()} == expected
        assert set(lost(folder)) == {"a.md"}
        assert [*recover(folder).losses] == ["a.md"]
    deep = Repository(tmp_path / "project" / "of mine" / "memory\n*", root=tmp_path / "project")
    write(deep, *"abc")
    write_index(deep.folder, [])
    deep.git("init", "-q", "-b", "main")
    deep.commit(3)
    remove(deep, "a")
    (deep.root / "a.md").write_text("elsewhere")
    deep.commit(4)
    assert lives(f"claude:{deep.folder}")["a.md"] == (day(3), day(4))


def test_folder_without_its_own_repository_has_no_history(tmp_path: Path) -> None:
    empty = Repository(tmp_path / "empty")
    bare = tmp_path / "bare.git"
    empty.git("init", "-q", "--bare", str(bare))
    for folder in (empty.folder, bare, bare / "refs", empty.folder / ".git"):
        history = history_of(folder, ClaudeCode)
        assert history.lifetimes == ()
        assert history.missing_note == ""


def test_unusual_file_names_are_supported_and_links_ignored(repo: Repository) -> None:
    odd = ['tab\t".md', "@\n@.md", "über\\.md", ":(top)x.md", "北京.md"]
    for name in odd:
        (repo.folder / name).write_text(f"{name} " * 50)
    (repo.folder / os.fsdecode(b"\xff.md")).write_text("no text")
    (repo.folder / "link.md").symlink_to("b.md")
    repo.commit(1)
    for name in (*odd, os.fsdecode(b"\xff.md"), "link.md"):
        (repo.folder / name).unlink()
    (repo.folder / "a.md").unlink()
    (repo.folder / "a.md").symlink_to("b.md")
    repo.commit(2)
    deleted = {name for name, (_, moment) in lives(repo.folder).items() if moment is not None}
    assert deleted == set(odd)
    assert lost(repo.folder).keys() == set(odd)
    assert {*recover(repo.folder).losses} == set(odd)
    assert (repo.folder / "北京.md").read_text() == "北京.md " * 50


def test_too_large_file_is_not_read(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlab.sources.folder.git.MAX_FILE_BYTES", 2**16)
    large = repo.folder / "large.md"
    for number in (1, 2):
        large.write_bytes(bytes(2**16 + number))
        repo.commit(number)
    large.unlink()
    remove(repo, "a")
    repo.commit(3)
    past = past_of(repo.folder)
    assert past.loc["large.md", c.CHARS] == len("large")
    assert past.loc["a.md", c.TITLE] == "about a"


# Deletions by others


def lost(folder: Path | str) -> dict[str, str]:
    """Return the lost memories and the commits that deleted them."""
    losses = memlab.lost(folder)
    return dict(zip(losses[c.MEMORY_ID], losses[c.COMMIT], strict=True))


def test_lost_files_are_recovered_exactly_from_git(repo: Repository) -> None:
    before = files_in(repo.folder)
    remove(repo, "a")
    entries = [f"- [{name}]({name}.md) — hook" for name in "bc"]
    write_index(repo.folder, ["# Memory", *entries])
    first = repo.commit(1)
    (repo.folder / "b.md").write_text("\n")
    second = repo.commit(2)
    (repo.folder / "b.md").write_text("")
    repo.commit(3)
    (repo.folder / "c.md").rename(repo.folder / "C.md")
    assert lost(repo.folder) == {"a.md": first, "b.md": second}
    losses = memlab.lost(repo.folder).set_index(c.MEMORY_ID)
    assert losses[c.DELETED_AT].to_dict() == {"a.md": day(1), "b.md": day(2)}
    assert losses["emptied"].to_dict() == {"a.md": False, "b.md": True}
    digest = recover(repo.folder).digest
    assert lost(repo.folder) == {}
    (repo.folder / "C.md").rename(repo.folder / "c.md")
    after = files_in(repo.folder)
    for name, content in before.items():
        if ".git/" not in name:
            assert after[name] == content, name
    assert memlab.restore(digest, store=repo.folder).memories == 2
    assert lost(repo.folder) == {"a.md": first, "b.md": second}
    keep_copies(repo.folder)
    assert lost(repo.folder) == {"a.md": first, "b.md": second}


def test_odek_episodes_have_a_git_past(tmp_path: Path) -> None:
    """The committed list names the remaining episodes, too."""
    folder = odek_store.write_odek(tmp_path / "episodes", ["one", "two", "three"])
    repo = Repository(folder)
    repo.commit(0)
    (folder / "s1.md").unlink()
    remaining = [entry for entry in odek_store.entries_of(folder) if entry["session_id"] != "s1"]
    odek_store.write_index(folder, remaining)
    commit = repo.commit(1)
    assert lost(folder) == {"s1": commit}
    assert past_of(folder)[c.TITLE].to_dict() == {"s0": "one", "s1": "two", "s2": "three"}
    recover(folder)
    assert (folder / "s1.md").read_text() == "two"


def compact(repo: Repository, keep: int, at: float) -> str:
    """Apply a cap; return the digest."""
    plan = memlab.plan(repo.folder, memlab.KeepRecent(keep), now=day(at))
    return memlab.apply(plan, now=day(at)).digest


def test_deletion_by_memlab_committed_to_git_counts_once(repo: Repository) -> None:
    compact(repo, 1, 3)
    repo.commit(4)
    assert lives(repo.folder) == {
        "a.md": (day(0), day(3)),
        "b.md": (day(0), day(3)),
        "c.md": (day(0), None),
    }
    assert lost(repo.folder) == {}
    drop_archived(repo.folder, before=day(9), now=day(10))
    assert lost(repo.folder) == {}
    past = memlab.load_past(repo.folder)
    assert past[c.DELETED_AT].dropna().tolist() == [day(3), day(3)]


def test_deletions_by_others_after_a_restore_are_losses(repo: Repository) -> None:
    digest = compact(repo, 1, 3)
    repo.commit(4)
    memlab.restore(digest, store=repo.folder, ids=["a.md"], now=day(5))
    write_memory(repo.folder, "b.md", memory("another b"))
    repo.commit(6)
    remove(repo, *"ab")
    repo.commit(7)
    assert len(memlab.load_past(repo.folder)) == 3
    assert set(lost(repo.folder)) == {"a.md", "b.md"}
    deleted = {name: deleted for name, (_, deleted) in lives(repo.folder).items()}
    assert deleted == {"a.md": day(7), "b.md": day(7), "c.md": None}
