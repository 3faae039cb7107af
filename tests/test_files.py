"""A file written for a user appears whole or not at all."""

import os
from pathlib import Path

import pytest

from memlab.errors import MemlabError
from memlab.files import whole_file, write_whole


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_there_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "report.html", "<p>é</p>")
    assert (tmp_path / "report.html").read_bytes() == "<p>é</p>".encode()
    assert names_in(tmp_path) == ["report.html"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    def stop_half_way() -> None:
        with whole_file(target) as draft:
            draft.write_bytes(b"half")
            raise KeyError("stopped")

    target = write_whole(tmp_path / "plan.json", b"old")
    with pytest.raises(KeyError, match="stopped"):
        stop_half_way()
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["plan.json"]


def test_nothing_shows_before_the_end(tmp_path: Path) -> None:
    with whole_file(tmp_path / "plan.json") as draft:
        draft.write_bytes(b"all")
        assert not (tmp_path / "plan.json").exists()
    assert (tmp_path / "plan.json").read_bytes() == b"all"


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = write_whole(tmp_path / "plan.json", b"old")
    target.chmod(0o640)
    write_whole(target, b"new")
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    real = write_whole(tmp_path / "real.json", b"old")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    write_whole(link, b"new")
    assert real.read_bytes() == b"new"
    assert link.is_symlink()


def test_an_existing_file_is_not_replaced_when_it_must_not_be(tmp_path: Path) -> None:
    target = write_whole(tmp_path / "restored.db", b"mine")
    with pytest.raises(MemlabError, match="exists"), whole_file(target, replace=False):
        pytest.fail("the block ran")
    assert target.read_bytes() == b"mine"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "restored.db"
    with pytest.raises(MemlabError, match="exists"), whole_file(target, replace=False):
        target.write_bytes(b"somebody else's")
    assert target.read_bytes() == b"somebody else's"
    assert names_in(tmp_path) == ["restored.db"]


@pytest.mark.parametrize("kind", ["folder", "device"])
def test_only_ordinary_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path if kind == "folder" else Path(os.devnull)
    with pytest.raises(MemlabError, match="not an ordinary file"):
        write_whole(target, b"")


def test_a_missing_folder_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"cannot be written \(No such file or directory\)"):
        write_whole(tmp_path / "nowhere" / "plan.json", b"")
