"""Permissions of the archive of a folder: no wider than its narrowest file."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import ArchivePermissionsWarning
from memlab.sources.opening import open_source
from memlab.store.archive.location import archive_path
from tests.compaction.operations import StoppedError, stop_at
from tests.support.claude_store import write_index, write_memory

OTHER = 4105


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


def make_folder(below: Path) -> Path:
    folder = below / ".claude" / "projects" / "-w" / "memory"
    names = [f"note_{number}.md" for number in range(6)]
    for name in names:
        write_memory(folder, name, f"---\nname: {name}\nmetadata:\n  type: project\n---\n{name}\n")
    write_index(folder, [f"- [{name}]({name})" for name in names])
    return folder


def compacted(folder: Path, keep: int = 3) -> memlab.Receipt:
    return memlab.apply(memlab.plan(folder, memlab.KeepRecent(keep)))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def set_modes(folder: Path, around: int, files: int) -> None:
    for path in folder.iterdir():
        path.chmod(files)
    folder.chmod(around)


@pytest.mark.parametrize(
    ("around", "files", "expected"),
    [
        (0o755, 0o600, 0o600),
        (0o755, 0o644, 0o644),
        (0o2777, 0o644, 0o644),
        (0o2777, 0o600, 0o600),
        (0o2770, 0o660, 0o660),
        (0o700, 0o666, 0o600),
    ],
)
def test_new_archive_is_no_wider_than_folder_and_files(
    folder: Path, around: int, files: int, expected: int
) -> None:
    set_modes(folder, around, files)
    receipt = compacted(folder)
    assert mode_of(archive_path(folder)) == expected
    assert memlab.restore(receipt).memories == 3


@given(
    st.lists(st.sampled_from([0o600, 0o640, 0o644, 0o660, 0o664, 0o666]), min_size=6, max_size=6)
)
def test_new_archive_is_no_wider_than_any_file(
    tmp_path_factory: pytest.TempPathFactory, modes: list[int]
) -> None:
    folder = make_folder(tmp_path_factory.mktemp("home"))
    for number, mode in enumerate(modes):
        (folder / f"note_{number}.md").chmod(mode)
    compacted(folder)
    mode_of_archive = mode_of(archive_path(folder))
    assert mode_of_archive & 0o600 == 0o600
    for mode in modes:
        granted_by_archive_alone = mode_of_archive & ~mode & 0o077
        assert granted_by_archive_alone == 0


def test_archive_of_copies_is_no_wider_than_any_file(folder: Path) -> None:
    (folder / "note_3.md").chmod(0o600)
    memlab.compaction.keep_copies(folder)
    assert mode_of(archive_path(folder)) == 0o600


def test_archive_is_narrowed_for_narrower_files(folder: Path) -> None:
    set_modes(folder, 0o755, 0o644)
    compacted(folder, 5)
    assert mode_of(archive_path(folder)) == 0o644
    (folder / "note_1.md").chmod(0o600)
    with pytest.warns(ArchivePermissionsWarning, match="are 600 now, where they were 644"):
        assert compacted(folder, 3).deleted == 2
    assert mode_of(archive_path(folder)) == 0o600


def private_memory_beside_foreign_archive(folder: Path) -> str:
    """Give the archive of a folder to another user, and make its oldest memory private."""
    set_modes(folder, 0o2775, 0o664)
    compacted(folder, 5)
    os.chown(archive_path(folder), OTHER, -1)
    os.chown(folder, OTHER, -1)
    archive_path(folder).chmod(0o664)
    private = str(memlab.load(folder).memory_id[0])
    (folder / private).chmod(0o600)
    return private


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_private_memory_stays_if_another_user_owns_the_archive(folder: Path) -> None:
    private = private_memory_beside_foreign_archive(folder)
    names = sorted(path.name for path in folder.glob("note_*"))
    with pytest.warns(ArchivePermissionsWarning, match=f"1 memory kept .*{private}"):
        receipt = compacted(folder, 3)
    assert receipt.deleted == 1
    assert (folder / private).exists()
    assert mode_of(archive_path(folder)) == 0o664
    assert memlab.restore(receipt).memories == 1
    assert sorted(path.name for path in folder.glob("note_*")) == names
    assert open_source(folder).is_folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_private_memory_is_not_expired_after_an_interruption(folder: Path) -> None:
    private_memory_beside_foreign_archive(folder)
    plan = memlab.plan(folder, memlab.KeepRecent(3))
    with pytest.warns(ArchivePermissionsWarning), pytest.raises(StoppedError):
        memlab.apply(plan, on_step=stop_at("committed"))
    receipt = memlab.apply(plan)
    assert receipt.deleted == 1
    assert receipt.expired == 0
