"""Waiting until the times of files tell what is written from what was."""

import time
from pathlib import Path

import pytest

from memlab import clock
from memlab.clock import wait_out


def test_what_is_written_after_the_wait_has_another_time(tmp_path: Path) -> None:
    file = tmp_path / "written"
    for _ in range(10):
        file.write_text("once")
        first = file.stat().st_mtime_ns
        wait_out(first)
        file.write_text("more")
        assert file.stat().st_mtime_ns != first


@pytest.mark.parametrize(("ago", "waits"), [(10**9, False), (10**6, True), (-(10**12), False)])
def test_no_longer_than_a_step_is_waited_and_only_for_a_time_that_is_now(
    monkeypatch: pytest.MonkeyPatch, ago: int, waits: bool
) -> None:
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(clock, "file_clock", lambda: 10**18)
    wait_out(10**18 - ago)
    assert waited == [(vars(clock)["_STEP"] - ago) / 1e9] * waits
