"""Atomic file writes, permissions, and waiting for the file clock."""

import os
import time
from pathlib import Path

import pytest

from memlab import clock
from memlab.clock import wait_for_clock_tick
from memlab.errors import MemlabError
from memlab.files import (
    OWNER_ONLY,
    FileMode,
    check_writable,
    permissions_like,
    whole_file,
    write_whole,
)


def test_file_is_written_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    page = tmp_path / "report.html"
    with whole_file(page, permissions=OWNER_ONLY) as draft:
        assert draft.stat().st_mode & 0o777 == 0o600
        draft.write_text("<p>é</p>", encoding="utf-8")
        assert not page.exists()
    with pytest.raises(UnicodeEncodeError), whole_file(page) as draft:
        draft.write_text("half \ud800", encoding="utf-8")
    assert page.read_bytes() == "<p>é</p>".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("target_exists", [True, False])
def test_symlink_is_rejected_and_its_target_unchanged(tmp_path: Path, target_exists: bool) -> None:
    real = tmp_path / "real.json"
    (tmp_path / "link.json").symlink_to(real)
    if target_exists:
        write_whole(real, b"old").chmod(0o600)
    with pytest.raises(MemlabError, match="is a link"):
        write_whole(tmp_path / "link.json", b"new")
    assert real.exists() is target_exists
    if target_exists:
        assert real.read_bytes() == b"old"
        assert real.stat().st_mode & 0o777 == 0o600


def test_symlinked_parent_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link" / "plan.json", b"new")
    assert (tmp_path / "real" / "plan.json").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("store", "before", "wanted"),
    [
        (0o600, None, 0o600),
        (0o640, None, 0o640),
        (0o666, None, 0o644),
        (0o600, 0o644, 0o600),
        (0o644, 0o600, 0o600),
        (0o666, 0o640, 0o640),
    ],
)
def test_permissions_are_no_wider_than_limit_and_umask(
    tmp_path: Path, store: int, before: int | None, wanted: int
) -> None:
    like = write_whole(tmp_path / "memory.db", b"")
    target = tmp_path / "plan.json"
    like.chmod(store)
    if before is not None:
        write_whole(target, b"").chmod(before)
    mask = os.umask(0o022)
    try:
        write_whole(target, b"new", permissions=permissions_like(like))
    finally:
        os.umask(mask)
    assert target.stat().st_mode & 0o777 == wanted


def test_file_of_another_group_gets_only_public_permissions() -> None:
    group = 5
    other_group = 6
    assert FileMode(0o640, group=group).of(group) == 0o640
    assert FileMode(0o640, group=group).of(other_group) == 0o600
    assert FileMode(0o664, group=group).of(other_group) == 0o644


def test_permissions_like_a_missing_file_are_owner_only() -> None:
    assert permissions_like(None) == OWNER_ONLY
    assert permissions_like(Path("nothing")) == OWNER_ONLY


def test_check_writable_reports_problems_without_writing(tmp_path: Path) -> None:
    check_writable(tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == []
    write_whole(tmp_path / "report.html", b"old")
    check_writable(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == b"old"
    with pytest.raises(MemlabError, match="exists"):
        check_writable(tmp_path / "report.html", replace=False)
    with pytest.raises(MemlabError, match=r"cannot be written \(No such file or directory\)"):
        check_writable(tmp_path / "nowhere" / "report.html")


def test_file_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "restored.db"
    with pytest.raises(MemlabError, match="exists"), whole_file(target, replace=False):
        target.write_bytes(b"somebody else's")
    assert target.read_bytes() == b"somebody else's"
    assert [path.name for path in tmp_path.iterdir()] == ["restored.db"]


@pytest.mark.parametrize("kind", ["folder", "device"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path if kind == "folder" else Path(os.devnull)
    with pytest.raises(MemlabError, match="not an ordinary file"):
        write_whole(target, b"")


def test_concurrent_drafts_do_not_disturb_each_other(tmp_path: Path) -> None:
    with whole_file(tmp_path / "note") as first:
        first.write_text("one")
        with whole_file(tmp_path / "note") as second:
            assert first.exists()
            second.write_text("two")
    assert (tmp_path / "note").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_write_after_clock_tick_has_another_mtime(tmp_path: Path) -> None:
    file = tmp_path / "written"
    for _ in range(10):
        file.write_text("once")
        first = file.stat().st_mtime_ns
        wait_for_clock_tick(first)
        file.write_text("more")
        assert file.stat().st_mtime_ns != first


SECOND = 10**9
"""A second in nanoseconds."""


@pytest.mark.parametrize(
    ("elapsed", "waits"),
    [(SECOND, False), (SECOND // 1000, True), (-1000 * SECOND, False)],
    ids=["longer than a tick", "within a tick", "in the future"],
)
def test_wait_for_clock_tick_is_bounded(
    monkeypatch: pytest.MonkeyPatch, elapsed: int, waits: bool
) -> None:
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    now = 10**9 * SECOND
    monkeypatch.setattr(clock, "file_clock", lambda: now)
    wait_for_clock_tick(now - elapsed)
    if waits:
        tick = vars(clock)["_STEP"]
        assert sleeps == [(tick - elapsed) / SECOND]
    else:
        assert sleeps == []
