"""A pool of processes returns what one process does, whoever dies meanwhile."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from fleets import NOW, Deadly, agent_store, mixed_fleet
from hypothesis import given
from hypothesis import strategies as st

from memlab.errors import MemlabError
from memlab.fleet import Member, Processes, Serial, survey
from memlab.fleet.driving import (
    AHEAD,
    LARGE,
    TOGETHER,
    Answer,
    Chunk,
    chunks_of,
    drive,
    work_through,
)
from memlab.fleet.outcomes import SET_ASIDE, Work, nothing
from memlab.fleet.running import outcomes_of, usual_runner
from memlab.fleet.surveying import Surveying

TWO = Processes(2)


def test_processes_return_the_table_of_one_in_its_order(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path)
    expected = survey(names, now=NOW, runner=Serial())
    pd.testing.assert_frame_equal(survey(names, now=NOW, runner=TWO), expected)
    assert expected["error"].notna().sum() == 2


def test_a_worker_that_is_killed_once_costs_a_retry(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    (tmp_path / "tally").mkdir()
    work = Deadly(NOW, tmp_path / "tally", frozenset({"agent-4"}), times=1)
    found = outcomes_of(work, names, runner=TWO)
    assert len(list((tmp_path / "tally").iterdir())) == 1
    assert [each.value for each in found] == [
        each.value for each in outcomes_of(work, names, runner=Serial())
    ]


def test_a_store_that_kills_every_worker_is_set_aside_and_named(tmp_path: Path) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    (tmp_path / "tally").mkdir()
    work = Deadly(NOW, tmp_path / "tally", frozenset({"agent-2", "agent-9"}), times=99)
    found = {each.name: each for each in outcomes_of(work, names, runner=TWO)}
    aside = [name for name, each in found.items() if each.kind == SET_ASIDE]
    assert [Path(name).parent.name for name in aside] == ["agent-2", "agent-9"]
    assert sum(each.value is not None for each in found.values()) == 10


def test_large_stores_go_out_first_and_alone() -> None:
    sizes = [10, LARGE + 1, *[10] * 200, 3 * LARGE]
    members = [Member(str(n), str(n), size) for n, size in enumerate(sizes)]
    chunks = list(chunks_of(members, 2))
    assert [[each.name for each in chunk] for chunk in chunks[:2]] == [["202"], ["1"]]
    assert max(map(len, chunks)) <= 50
    flat = [each.name for chunk in chunks[2:] for each in chunk]
    assert flat == [each.name for each in members if each.size == 10]


def test_together_small_stores_are_no_larger_than_a_large_one() -> None:
    members = [Member(str(n), str(n), LARGE // 3) for n in range(400)]
    assert {len(chunk) for chunk in chunks_of(members, 2)} <= {3, 2, 1}
    assert len(chunks_of(members, 2)[0]) == 3


class Watched:
    """A crew of two threads that notes how many stores it holds at most."""

    workers, attempts, deaths = 2, 1, (ZeroDivisionError,)

    def __init__(self) -> None:
        self.held, self.most = 0, 0
        self.threads = ThreadPoolExecutor(2)

    def submit(self, work: Work, chunk: Chunk) -> Answer:
        self.held += len(chunk)
        self.most = max(self.most, self.held)
        return self.threads.submit(work_through, work, chunk)

    def recover(self) -> None:
        raise AssertionError("nobody died")

    look_after = recover

    def lost_with_it(self, running: set[Answer]) -> set[Answer]:
        raise AssertionError("nobody died")


@given(
    sizes=st.lists(st.sampled_from([0, 1_000_000, LARGE // 3, LARGE, LARGE + 1]), max_size=400),
    workers=st.integers(1, 8),
)
def test_chunks_hold_every_store_once_and_grow_smaller(sizes: list[int], workers: int) -> None:
    members = [Member(f"s{n}", f"s{n}", size) for n, size in enumerate(sizes)]
    chunks = chunks_of(members, workers)
    assert sorted(m.name for chunk in chunks for m in chunk) == sorted(m.name for m in members)
    left = sum(member.size <= LARGE for member in members)
    for chunk in chunks:
        if chunk[0].size > LARGE:
            assert len(chunk) == 1
            continue
        assert len(chunk) <= max(1, min(TOGETHER, left // (4 * workers)))
        left -= len(chunk)


def test_no_more_is_handed_out_than_keeps_the_workers_busy() -> None:
    crew = Watched()
    members = [Member(str(n), str(n), problem="none") for n in range(2_000)]
    done = 0
    for _ in drive(crew, Surveying(NOW), members, nothing):
        done, crew.held = done + 1, crew.held - 1
    assert done == 2_000
    assert crew.most <= AHEAD * crew.workers * TOGETHER


def test_a_few_small_stores_are_done_here(tmp_path: Path) -> None:
    few = [Member(str(n), str(n), 1000) for n in range(3)]
    assert isinstance(usual_runner(few), Serial)
    assert isinstance(usual_runner(few * 20), Processes)
    assert isinstance(usual_runner([Member("large", "large", 10**9)]), Processes)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_that_is_none_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="is not a whole number of 1 or more"):
        Processes(count)  # type: ignore[arg-type]


def test_a_script_without_a_guard_is_told_so_and_no_store_is_blamed(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 2)
    script = tmp_path / "script.py"
    script.write_text(
        "import memlab.fleet\n"
        "try:\n"
        f"    memlab.fleet.survey({str(store)!r}, runner=memlab.fleet.Processes(1))\n"
        "except memlab.MemlabError as error:\n"
        "    print('told:', error)\n"
    )
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "told: no process could be started; begin what your script does with" in ran.stdout


def test_a_pool_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("memlab.fleet.processes._begin", os.abort)
    with pytest.raises(MemlabError, match="no process could be started"):
        survey(agent_store(tmp_path / "memory.db", 1), now=NOW, runner=TWO)
