"""A process killed while changing an index leaves the old or the new index."""

import os
import random
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import memlab
from memlab.errors import AlreadyAppliedError
from tests.proof import tasks
from tests.support import claude_store
from tests.support.programs import Children

KILLS = max(int(os.environ.get("MEMLAB_KILLS", "240")) // 20, 6)
"""How many processes are killed at a random moment."""


def copy_home(home: Path, to: Path) -> Path:
    """Copy a home folder and return the memory folder of the copy."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(home, to)
    return claude_store.project_folder(to)


def test_killed_index_plan_is_finished_and_undone(scratch: Path, children: Children) -> None:
    home = scratch / "home"
    folder = claude_store.realistic_folder(claude_store.project_folder(home))
    claude_store.write_memory(folder, "new.md", claude_store.memory("new"), claude_store.at(50))
    plan = memlab.plan_index(folder)
    index = (folder / "MEMORY.md").read_bytes()
    written = (folder / "MEMORY.md").stat().st_mtime_ns
    copy = copy_home(home, scratch / "again")
    task = tasks.apply_index_plan
    seconds = children.run(task, store=copy, argument=plan.to_json()).seconds
    rng = random.Random(3)
    kills = 0
    for _ in range(20 * KILLS):
        copy = copy_home(home, scratch / "killed")
        delay = rng.uniform(0, 1.3 * seconds)
        ended = children.run_and_kill(task, delay, store=copy, argument=plan.to_json())
        assert (copy / "MEMORY.md").read_bytes() in (index, plan.text.encode())
        with suppress(AlreadyAppliedError):
            memlab.apply(plan, store=copy)
        assert (copy / "MEMORY.md").read_text() == plan.text
        memlab.restore(plan.digest, store=copy)
        assert (copy / "MEMORY.md").read_bytes() == index
        assert (copy / "MEMORY.md").stat().st_mtime_ns == written
        if ended.code == -signal.SIGKILL:
            kills += 1
        if kills == KILLS:
            return
    pytest.fail(f"only {kills} of {KILLS} children were there to be killed")
