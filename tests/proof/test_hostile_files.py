"""Any content of a store file gives a result or a memlab error."""

import os
import random
import shutil
import signal
import stat
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlab import clock
from tests.proof.readers import READERS, PathState, Reader, Store, states_in
from tests.support.invariants import result_of
from tests.support.programs import Children, forked

CASES = int(os.environ.get("MEMLAB_HOSTILE_FILES", "60"))
"""How often the files of each reader are damaged, from seed 0 on; each takes 0.2 s of a core."""
STORE_CASES = max(300, CASES)
"""How often a SQLite store is damaged; it can be damaged in more ways than other files."""
PATIENCE = 60
"""Seconds after which a call counts as hanging."""


@pytest.fixture(scope="module")
def examiners() -> Iterator[Children]:
    with forked("tests.proof.test_hostile_files") as processes:
        yield processes


@pytest.mark.parametrize("name", READERS)
def test_hostile_file_gives_a_result_or_a_memlab_error(
    name: str, scratch: Path, examiners: Children
) -> None:
    outside = scratch / "outside"
    case = scratch / "case"
    outside.mkdir()
    (outside / "canary").write_text("somebody's")
    case.mkdir(mode=0o750)
    reader = READERS[name](case)
    reader.make()
    for path in case.rglob("*"):
        path.chmod(path.stat().st_mode & 0o750)
    case.rename(scratch / "whole")
    cases = STORE_CASES if name == Store.__name__ else CASES
    for seed in range(cases):
        ended = examiners.run(examine, reader=reader, outside=outside, seed=seed)
        assert ended.code == 0, f"seed {seed}"
        assert ended.error is None, f"seed {seed}"
        assert ended.result is None, f"seed {seed}"


def examine(reader: Reader, outside: Path, seed: int) -> str | None:
    """Run a reader on damaged files; return what went wrong, or None."""
    os.umask(0)
    vars(clock)["_STEP"] = 0  # nobody else writes here
    warnings.simplefilter("error")
    signal.alarm(PATIENCE)
    rng = random.Random(seed)
    mutation = "nothing yet"
    case = reader.folder
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(case.with_name("whole"), case, symlinks=True)
    try:
        mutation = reader.spoil(outside / "canary", rng)
        for path in case.rglob("*"):
            os.utime(path, (seed, seed), follow_symlinks=False)
        before = states_in(case)
        outside_before = states_in(outside)
        result_of(rng.choice(reader.read_operations()))
        assert states_in(case) == before
        result_of(rng.choice(reader.write_operations()))
        reader.check()
        assert states_in(outside) == outside_before
        check_rights(before, states_in(case))
    except Exception:  # noqa: BLE001 - any error is the result
        return f"{mutation}: {traceback.format_exc()}"
    return None


def check_rights(before: dict[str, PathState], after: dict[str, PathState]) -> None:
    """Check that new files have no more permissions than their folder or the replaced file."""
    owners = {(state.user, state.group) for state in before.values()}
    owners.add((os.geteuid(), os.getegid()))
    inodes_before = {state.inode for state in before.values()}
    for name, state in after.items():
        if state.inode in inodes_before:
            continue
        replaced_mode = before[name].mode if name in before else 0
        too_much = ~(replaced_mode | 0o750)
        assert not state.mode & 0o7000, name
        assert not stat.S_IMODE(state.mode) & too_much, name
        assert (state.user, state.group) in owners, name


@pytest.mark.parametrize("name", READERS)
def test_unmodified_file_is_read_and_changed(name: str, tmp_path: Path) -> None:
    reader = READERS[name](tmp_path)
    reader.make()
    for operation in (*reader.read_operations(), *reader.write_operations()):
        operation()
    reader.check()
