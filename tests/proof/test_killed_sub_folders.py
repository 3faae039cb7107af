"""A process killed while changing memories in sub-folders loses nothing."""

import os
import random
import signal
from pathlib import Path

import pytest

from tests.proof.scenes import FOLDER_SCENES, copy_aside
from tests.support.programs import Children

KILLS = max(int(os.environ.get("MEMLAB_KILLS", "240")) // 20, 6)
"""How many processes are killed at a random moment."""


@pytest.mark.parametrize("operation", ["apply", "restore"])
def test_sub_folder_change_killed_at_a_random_time_loses_nothing(
    scratch: Path, children: Children, operation: str
) -> None:
    scene = FOLDER_SCENES[f"{operation} claude_below"](scratch / "whole")
    rehearsal = copy_aside(scene.store, scratch / "again")
    seconds = children.run(scene.operation, store=rehearsal, argument=scene.argument).seconds
    rng = random.Random(5)
    kills = 0
    for _ in range(20 * KILLS):
        store = copy_aside(scene.store, scratch / "killed")
        delay = rng.uniform(0, 1.3 * seconds)
        ended = children.run_and_kill(scene.operation, delay, store=store, argument=scene.argument)
        scene.check(store)
        if ended.code == -signal.SIGKILL:
            kills += 1
            scene.finish(children, store)
            scene.take_back(children, store)
        if kills == KILLS:
            return
    pytest.fail(f"only {kills} of {KILLS} children were there to be killed")
