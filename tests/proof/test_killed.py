"""A process that changes a store may be killed at any moment, and nothing is lost."""

import os
import random
import signal
from pathlib import Path

import pytest
from invariants import rows_of
from programs import Children

import memlab
from proof import tasks
from proof.scenes import ROW_SCENES, RowScene, scene_of_compact
from proof.stores import copy_aside, files_of

KILLS = int(os.environ.get("MEMLAB_KILLS", "240"))
"""How many processes are killed at a random moment, over all operations."""


def test_killed_at_a_random_moment(row_scene: RowScene, scratch: Path, children: Children) -> None:
    scene, rng = row_scene, random.Random(7)
    store = copy_aside(scene.store, scratch / "killed")
    rehearsal = copy_aside(scene.store, scratch / "again")
    seconds = children.run(scene.operation, store=rehearsal, what=scene.what).seconds
    wanted = -(-KILLS // len(ROW_SCENES))
    kills = 0
    for _ in range(20 * wanted):
        delay = rng.uniform(0, 1.3 * seconds)
        ended = children.run_and_kill(scene.operation, delay, store=store, what=scene.what)
        if ended.code == -signal.SIGKILL:
            kills += 1
            # First: a journal may name a file beside the original, which recovery drops.
            scene.finish(children, copy_aside(store, scratch / "again"))
            scene.check(store)
        else:
            scene.check_done(store)
            store = copy_aside(scene.store, scratch / "killed")
        if kills == wanted:
            return
    pytest.fail(f"only {kills} of {wanted} children were there to be killed")


def test_compact_episodic_killed_before_each_statement(
    journal: str, scratch: Path, children: Children
) -> None:
    scene = scene_of_compact(scratch / "whole", journal)
    rehearsal = copy_aside(scene.store, scratch / "again")
    do = {"operation": scene.operation, "what": scene.what}
    statements = list(children.run(tasks.steps_of, store=rehearsal, **do).result)
    delete = next(n for n, sql in enumerate(statements) if sql.startswith("DELETE"))
    commit = statements.index("COMMIT")
    assert statements.index("BEGIN IMMEDIATE") < delete < commit
    for place, step in enumerate(statements):
        store = copy_aside(scene.store, scratch / "killed")
        nth = statements[: place + 1].count(step)
        pid = children.start(tasks.stopping, store=store, step=step, nth=nth, **do)
        assert children.wait_until_stopped(pid)
        assert rows_of(store) == (scene.after if place > commit else scene.before)
        assert children.kill(pid).code == -signal.SIGKILL
        left = files_of(store.parent)
        assert set(memlab.load(store)["position"]) in (set(scene.before), set(scene.after))
        assert files_of(store.parent) == left  # who only reads leaves no trace
        scene.finish(children, copy_aside(store, scratch / "again"))
        scene.check(store)
        scene.finish(children, store)
