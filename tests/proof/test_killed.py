"""A process that changes a store may be killed at any moment, and nothing is lost."""

import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from invariants import archive_of, copies_of, rows_of

import memlab
from memlab.compaction.applier import ApplyStep
from memlab.compaction.reclaim import VacuumStep
from memlab.compaction.restorer import RestoreStep
from proof import tasks
from proof.conftest import Children
from proof.scenes import (
    JOURNALS,
    SCENES,
    Scene,
    scene_of_apply,
    scene_of_compact,
    scene_of_restore,
    scene_of_vacuum,
)
from proof.stores import copy_aside, files_of

KILLS = int(os.environ.get("MEMLAB_KILLS", "240"))
"""How many processes are killed at a random moment, over all operations."""


@pytest.mark.parametrize("name", SCENES)
def test_killed_at_a_random_moment(
    name: str, journal: str, scratch: Path, children: Children
) -> None:
    scene = SCENES[name](scratch / "whole", journal)
    rng = random.Random(f"{name} {journal}")
    store = copy_aside(scene.store, scratch / "killed")
    rehearsal = copy_aside(scene.store, scratch / "again")
    seconds = children.run(scene.operation, store=rehearsal, what=scene.what).seconds
    wanted = -(-KILLS // (len(SCENES) * len(JOURNALS)))
    kills = 0
    for _ in range(20 * wanted):
        delay = rng.uniform(0, 1.3 * seconds)
        ended = children.run_and_kill(scene.operation, delay, store=store, what=scene.what)
        if ended.signal == signal.SIGKILL:
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


def _finished(store: Path) -> bool:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        return connection.execute("SELECT finished_at FROM applies").fetchone() != (None,)


def _restored(store: Path) -> int:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        (count,) = connection.execute("SELECT count(restored_at) FROM archived").fetchone()
    return int(count)


def _stop_at(
    scene: Scene, step: str, scratch: Path, children: Children, *, nth: int = 1
) -> tuple[Path, int]:
    """Let a child carry out the operation until a step; return the store and the child."""
    store = copy_aside(scene.store, scratch / "killed")
    pid = children.start(
        tasks.stopping, operation=scene.operation, store=store, what=scene.what, step=step, nth=nth
    )
    assert children.wait_until_stopped(pid)
    return store, pid


def _kill_and_finish(
    scene: Scene, store: Path, pid: int, scratch: Path, children: Children
) -> None:
    """Kill a stopped child; what it left can be read, checked and finished."""
    assert children.kill(pid).signal == signal.SIGKILL
    left = files_of(store.parent)
    assert set(memlab.load(store)["position"]) in (set(scene.before), set(scene.after))
    assert files_of(store.parent) == left
    scene.finish(children, copy_aside(store, scratch / "again"))
    scene.check(store)
    scene.finish(children, store)


@pytest.mark.parametrize("step", ApplyStep)
def test_apply_killed_at_a_step(
    step: ApplyStep, journal: str, scratch: Path, children: Children
) -> None:
    scene = scene_of_apply(scratch / "whole", journal)
    store, pid = _stop_at(scene, step, scratch, children)
    place = list(ApplyStep).index(step)
    committed = place >= list(ApplyStep).index(ApplyStep.COMMITTED)
    archived = place >= list(ApplyStep).index(ApplyStep.ARCHIVED)

    assert rows_of(store) == (scene.after if committed else scene.before)
    gone = {p: [row] for p, row in scene.before.items() if p not in scene.after}
    assert copies_of(store) == (gone if archived else {})
    assert _locked(store) is not committed
    if archived:
        assert _finished(store) is (step == ApplyStep.RECORDED)
    _kill_and_finish(scene, store, pid, scratch, children)


@pytest.mark.parametrize("step", RestoreStep)
def test_restore_killed_at_a_step(
    step: RestoreStep, journal: str, scratch: Path, children: Children
) -> None:
    scene = scene_of_restore(scratch / "whole", journal)
    store, pid = _stop_at(scene, step, scratch, children)
    place = list(RestoreStep).index(step)
    committed = place >= list(RestoreStep).index(RestoreStep.COMMITTED)

    assert rows_of(store) == (scene.after if committed else scene.before)
    assert _locked(store) is not committed
    back = len(scene.after) - len(scene.before)
    assert _restored(store) == (back if step == RestoreStep.RECORDED else 0)
    _kill_and_finish(scene, store, pid, scratch, children)


@pytest.mark.parametrize("step", VacuumStep)
def test_vacuum_killed_at_a_step(
    step: VacuumStep, journal: str, scratch: Path, children: Children
) -> None:
    scene = scene_of_vacuum(scratch / "whole", journal)
    store, pid = _stop_at(scene, step, scratch, children)
    assert rows_of(store) == scene.before
    _kill_and_finish(scene, store, pid, scratch, children)
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


@pytest.mark.parametrize(
    ("name", "steps"), [("apply", ApplyStep), ("restore", RestoreStep), ("vacuum", VacuumStep)]
)
def test_every_operation_takes_every_step_in_order(
    name: str, steps: Any, scratch: Path, children: Children
) -> None:
    scene = SCENES[name](scratch / "whole", "wal")
    assert _steps(scene, scene.store, children) == list(steps)


def _steps(scene: Scene, store: Path, children: Children) -> list[str]:
    ended = children.run(tasks.steps_of, operation=scene.operation, store=store, what=scene.what)
    assert ended.error is None
    return list(ended.result)
