"""A process killed at a random time while changing a store loses nothing."""

import math
import os
import random
import signal
from pathlib import Path

import pytest

from tests.proof.scenes import ROW_SCENES, RowScene, copy_aside
from tests.support.programs import Children

KILLS = int(os.environ.get("MEMLAB_KILLS", "240"))
"""How many processes are killed at a random moment, over all operations."""


def test_operation_killed_at_a_random_time_loses_nothing(
    row_scene: RowScene, scratch: Path, children: Children
) -> None:
    scene = row_scene
    rng = random.Random(7)
    store = copy_aside(scene.store, scratch / "killed")
    rehearsal = copy_aside(scene.store, scratch / "again")
    seconds = children.run(scene.operation, store=rehearsal, argument=scene.argument).seconds
    wanted = math.ceil(KILLS / len(ROW_SCENES))
    kills = 0
    for _ in range(20 * wanted):
        delay = rng.uniform(0, 1.3 * seconds)
        ended = children.run_and_kill(scene.operation, delay, store=store, argument=scene.argument)
        if ended.code == -signal.SIGKILL:
            kills += 1
            # The copy first: a journal may name a file beside the original, which recovery drops.
            scene.finish(children, copy_aside(store, scratch / "again"))
            scene.check(store)
        else:
            scene.check_done(store)
            store = copy_aside(scene.store, scratch / "killed")
        if kills == wanted:
            return
    pytest.fail(f"only {kills} of {wanted} children were there to be killed")
