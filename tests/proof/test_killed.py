"""A process that changes a store may be killed at any moment, and nothing is lost."""

import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from invariants import archive_of, copies_of, rows_of
from programs import Children

import memlab
from memlab.compaction.applier import ApplyStep
from memlab.compaction.reclaim import VacuumStep
from memlab.compaction.restorer import RestoreStep
from proof import tasks
from proof.scenes import OPERATIONS, ROW_SCENES, RowScene, scene_of_compact
from proof.stores import copy_aside, files_of

KILLS = int(os.environ.get("MEMLAB_KILLS", "240"))
"""How many processes are killed at a random moment, over all operations."""
STEPS: Final = {"apply": ApplyStep, "restore": RestoreStep, "vacuum": VacuumStep}


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


def _locked(store: Path) -> bool:
    """Whether somebody else may not write to a store."""
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorname.startswith("SQLITE_BUSY")
        return False


def _archived(store: Path, what: str) -> int:
    """How many entries of an archive are finished, or rows of it restored."""
    with closing(sqlite3.connect(archive_of(store))) as connection:
        table = {"finished_at": "applies", "restored_at": "archived"}[what]
        (count,) = connection.execute(f"SELECT count({what}) FROM {table}").fetchone()
    return int(count)


def _stop_at(
    scene: RowScene, step: str, scratch: Path, children: Children, *, nth: int = 1
) -> tuple[Path, int]:
    """Let a child carry out the operation until a step; return the store and the child."""
    store = copy_aside(scene.store, scratch / "killed")
    stop = {"operation": scene.operation, "what": scene.what, "step": step, "nth": nth}
    pid = children.start(tasks.stopping, store=store, **stop)
    assert children.wait_until_stopped(pid)
    return store, pid


def _kill_and_finish(
    scene: RowScene, store: Path, pid: int, scratch: Path, children: Children
) -> None:
    """Kill a stopped child; what it left can be read, checked and finished."""
    assert children.kill(pid).code == -signal.SIGKILL
    left = files_of(store.parent)
    assert set(memlab.load(store)["position"]) in (set(scene.before), set(scene.after))
    assert files_of(store.parent) == left
    scene.finish(children, copy_aside(store, scratch / "again"))
    scene.check(store)
    scene.finish(children, store)


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name, steps in STEPS.items() for step in steps]
)
def test_killed_at_a_step(
    name: str, step: str, journal: str, scratch: Path, children: Children
) -> None:
    scene = OPERATIONS[name](scratch / "whole", journal)
    store, pid = _stop_at(scene, step, scratch, children)
    steps = list(STEPS[name])
    so_far = set(steps[: steps.index(step) + 1])
    committed = "committed" in so_far  # apply and restore call it the same

    assert rows_of(store) == (scene.after if committed else scene.before)
    if name != "vacuum":
        assert _locked(store) is not committed
    if name == "apply":
        gone = {p: [row] for p, row in scene.before.items() if p not in scene.after}
        assert copies_of(store) == (gone if ApplyStep.ARCHIVED in so_far else {})
        if ApplyStep.ARCHIVED in so_far:
            assert _archived(store, "finished_at") == (step == ApplyStep.RECORDED)
    if name == "restore":
        back = len(scene.after) - len(scene.before)
        assert _archived(store, "restored_at") == (back if step == RestoreStep.RECORDED else 0)
    _kill_and_finish(scene, store, pid, scratch, children)
    if name == "vacuum":
        assert store.stat().st_size < scene.store.stat().st_size


def test_compact_episodic_killed_before_each_statement(
    journal: str, scratch: Path, children: Children
) -> None:
    scene = scene_of_compact(scratch / "whole", journal)
    rehearsal = copy_aside(scene.store, scratch / "again")
    statements = _steps(scene, rehearsal, children)
    delete = next(n for n, sql in enumerate(statements) if sql.startswith("DELETE"))
    commit = statements.index("COMMIT")
    assert statements.index("BEGIN IMMEDIATE") < delete < commit
    for place, statement in enumerate(statements):
        nth = statements[: place + 1].count(statement)
        store, pid = _stop_at(scene, statement, scratch, children, nth=nth)
        assert rows_of(store) == (scene.after if place > commit else scene.before)
        _kill_and_finish(scene, store, pid, scratch, children)


@pytest.mark.parametrize("name", STEPS)
def test_every_operation_takes_every_step_in_order(
    name: str, scratch: Path, children: Children
) -> None:
    scene = OPERATIONS[name](scratch / "whole", "wal")
    assert _steps(scene, scene.store, children) == list(STEPS[name])


def _steps(scene: RowScene, store: Path, children: Children) -> list[str]:
    ended = children.run(tasks.steps_of, operation=scene.operation, store=store, what=scene.what)
    assert ended.error is None
    return list(ended.result)
