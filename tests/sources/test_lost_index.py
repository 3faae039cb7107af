"""A lost index or folder of Claude Code: detected, reported and restored."""

import shutil
from pathlib import Path

import pytest

import memlab
from memlab.compaction import keep_copies, plan_recovery, recover
from memlab.errors import StoreError
from memlab.evidence.losses import losses_of
from memlab.sources.capabilities import is_index_lost
from memlab.upkeep.health import Check
from tests.support.claude_store import (
    at,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memory,
)
from tests.support.repositories import Repository

COUNT = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = project_folder(tmp_path)
    for number in range(COUNT):
        kind = "project" if number % 2 == 0 else "feedback"
        write_memory(folder, f"m{number}.md", memory(f"m {number}", kind), at(number))
    lines = [f"- [M {number}](m{number}.md) — hook {number}" for number in range(COUNT)]
    write_index(folder, ["# Memory", "", *lines[:4], "", "## Later", "", *lines[4:]])
    return folder


def check_of(folder: Path | str, name: str) -> Check:
    (check,) = [check for check in memlab.doctor(folder).checks if check.name == name]
    return check


def entries(folder: Path) -> list[str]:
    """Return the lines of the index that name memories."""
    return [line for line in index_lines(folder) if line.startswith("- ")]


# The index


@pytest.mark.parametrize(
    ("state", "lost"),
    [("emptied", COUNT), ("cut to one line", COUNT - 1), ("missing", COUNT)],
)
def test_copies_restore_a_lost_index(folder: Path, state: str, lost: int) -> None:
    before = entries(folder)
    keep_copies(folder)
    if state == "emptied":
        (folder / "MEMORY.md").write_text("")
    elif state == "cut to one line":
        write_index(folder, before[:1])
    else:
        (folder / "MEMORY.md").unlink()
    assert losses_of(folder).unlisted == lost
    assert f"{lost} that a lost or overwritten index named" in str(losses_of(folder))
    assert check_of(folder, "index").status == "WARN"
    assert check_of(folder, "lost").status == "WARN"
    assert "--restore all" in check_of(folder, "lost").advice
    assert "lost" in {alert.name for alert in memlab.show(folder).alerts}
    recover(folder)
    assert entries(folder) == before
    assert len(memlab.lost(folder)) == 0
    assert memlab.load(folder)["index_state"].eq("listed").all()


def test_a_later_copy_keeps_the_lines_of_a_lost_index(folder: Path) -> None:
    keep_copies(folder)
    write_index(folder, index_lines(folder)[2:3])
    for _ in range(2):
        keep_copies(folder)
    assert losses_of(folder).unlisted == COUNT - 1


def test_restoring_an_index_keeps_its_new_lines(folder: Path) -> None:
    keep_copies(folder)
    write_memory(folder, "new.md", memory("new"), at(90))
    write_index(folder, ["# Begun again", "- [New](new.md)"])
    recover(folder)
    lines = index_lines(folder)
    assert lines[:2] == ["# Begun again", "- [New](new.md)"]
    assert len([line for line in lines if line.startswith("- [M ")]) == COUNT


def test_restoring_an_index_can_be_undone(folder: Path) -> None:
    keep_copies(folder)
    (folder / "MEMORY.md").unlink()
    recovery = recover(folder)
    memlab.restore(recovery.digest, store=folder)
    states = memlab.load(folder).set_index("memory_id")["index_state"]
    assert states["m0.md"] == "unlisted"
    assert states["m1.md"] == "listed"  # a restored load-bearing memory stays


def test_line_of_a_rewritten_memory_is_restored_without_error(folder: Path) -> None:
    keep_copies(folder)
    (folder / "MEMORY.md").unlink()
    plan = plan_recovery(folder)
    assert len(plan.losses) == COUNT
    write_memory(folder, "m0.md", memory("another"), at(99))
    recover(folder)
    assert losses_of(folder).unlisted == 0


@pytest.mark.parametrize("is_committed", [False, True])
def test_git_restores_an_overwritten_index(folder: Path, *, is_committed: bool) -> None:
    repo = Repository(folder)
    repo.commit(100)
    before = entries(folder)
    write_index(folder, index_lines(folder)[:3])
    if is_committed:
        repo.commit(101)
    assert losses_of(folder).unlisted == COUNT - 1
    recover(folder)
    assert entries(folder) == before


def test_doctor_names_the_git_command_for_a_missing_index(folder: Path) -> None:
    repo = Repository(folder)
    repo.commit(100)
    (folder / "MEMORY.md").unlink()
    check = check_of(folder, "index")
    assert check.status == "WARN"
    assert f"git -C {folder} checkout HEAD -- MEMORY.md" in check.advice


@pytest.mark.parametrize(
    ("lost", "named", "is_lost"), [(7, 1, True), (1, 0, True), (2, 2, True), (1, 1, False)]
)
def test_index_is_lost_if_many_lines_are_missing(lost: int, named: int, *, is_lost: bool) -> None:
    assert is_index_lost(lost, named) == is_lost


def test_line_removed_by_hand_is_not_lost(folder: Path) -> None:
    keep_copies(folder)
    write_index(folder, index_lines(folder)[:-1])
    assert losses_of(folder).unlisted == 0
    assert check_of(folder, "index").status == "OK"


def test_losses_without_git_or_copies_are_reported_as_unknown(folder: Path) -> None:
    (folder / "MEMORY.md").unlink()
    assert str(losses_of(folder)).startswith("it is not known what other programs deleted")
    assert "not known" in check_of(folder, "lost").summary
    assert "not known" in check_of(folder, "index").advice
    assert "not in git, and memlab has no copies" in str(memlab.show(folder))
    assert losses_of(folder).to_dict()["known_by"] == []


# The folder


def test_copies_restore_a_missing_folder(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    keep_copies(folder)
    shutil.rmtree(folder)
    named = f"claude:{folder}"
    assert len(memlab.lost(named)) == COUNT
    assert check_of(named, "lost").counts["lost"] == COUNT
    with pytest.raises(StoreError, match="memlab lost"):
        memlab.load(named)
    assert not folder.exists()
    recover(named)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in before.keys() - {"MEMORY.md"}:
        assert after[name] == before[name]
    assert memlab.load(folder)["index_state"].eq("listed").all()
    assert len(memlab.lost(named)) == 0


def test_folder_that_never_existed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no folder"):
        memlab.lost(f"claude:{tmp_path / 'never'}")


# Untyped files and index prose


def test_untyped_files_in_sub_folders_are_counted(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    entries = []
    for kind in ("user", "project"):
        for number in range(5):
            write_memory(folder / kind, f"n{number}.md", memory("n", style="none"), at(number))
            entries.append(f"- [{kind} {number}]({kind}/n{number}.md)")
    write_memory(folder / ".obsidian", "hidden.md", "hidden", at(1))
    write_index(folder, entries)
    check = check_of(folder, "sub_folders")
    assert check.status == "WARN"
    assert check.counts["found"] == 10
    assert "project/n0.md" in check.summary
    overview = memlab.show(folder)
    assert "not read" in {alert.name for alert in overview.alerts}
    assert overview.more["about"].to_dict()["without_type"][0] == "project/n0.md"


def test_size_names_untyped_files_in_sub_folders(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memory(folder / "notes", "plan.md", memory("n", style="none"), at(1))
    text = "\n".join(memlab.size(folder).next_steps())
    assert "memlab doctor" in text
    assert "notes/plan.md" in text


def test_index_prose_costs_tokens_and_its_cut_is_reported(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_index(folder, [f"- fact {number}: the build needs a flag" for number in range(300)])
    overview = memlab.show(folder)
    assert overview.summary.index_overhead > 1_000
    (loaded,) = [line for line in str(overview).splitlines() if "loaded at every start" in line]
    assert loaded.split()[-2:] == ["0", f"{overview.summary.index_overhead:,}"]
    assert "cut" in {alert.name for alert in overview.alerts}
    check = check_of(folder, "index_cut")
    assert check.status == "WARN"
    assert check.counts["found"] == 100
    (store,) = memlab.find(tmp_path).stores
    assert store.tokens_at_start == overview.summary.index_overhead


def test_entries_are_not_counted_as_index_prose(folder: Path) -> None:
    summary = memlab.show(folder).summary
    lines = [line for line in index_lines(folder) if not line.startswith("- ")]
    assert summary.index_overhead <= len("\n".join(lines)) // 4 + 2
