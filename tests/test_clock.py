"""Waiting until the times of files tell what is written from what was."""

import time
from pathlib import Path

import pytest

from memlab import clock
from memlab.clock import file_clock, wait_out


def test_what_is_written_after_the_wait_has_another_time(tmp_path: Path) -> None:
    file = tmp_path / "written"
    for _ in range(10):
        file.write_text("once")
        first = file.stat().st_mtime_ns
        wait_out(first)
        file.write_text("more")
        assert file.stat().st_mtime_ns != first


@pytest.mark.parametrize("ago", [10**9, -(10**12)], ids=["a second ago", "in the future"])
def test_nobody_waits_for_a_time_that_is_not_now(monkeypatch: pytest.MonkeyPatch, ago: int) -> None:
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    wait_out(file_clock() - ago)
    assert waited == []


def test_no_longer_than_a_step_is_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(clock, "file_clock", lambda: 10**18)
    wait_out(10**18 - 1_000_000)
    assert waited == [(vars(clock)["_STEP"] - 1_000_000) / 1e9]
