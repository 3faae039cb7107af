"""A process that changes a store may be killed at any moment, and nothing is lost."""

import os
import random
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from invariants import Row, archive_of, assert_nothing_lost, copies_of, rows_of

import memlab
from memlab.compaction import ApplyStep, apply
from memlab.errors import AlreadyAppliedError
from memlab.planning import plan
from memlab.plans import Plan
from memlab.policies import KeepRecent
from memlab.reclaim import VacuumStep
from memlab.restoration import RestoreStep
from memlab.store import SqliteMemoryStore
from proof import tasks
from proof.conftest import Children
from proof.stores import NOW, copy_aside, files_of, make_store, signals_of

KILLS = int(os.environ.get("MEMLAB_KILLS", "400"))
"""How many processes are killed at a random moment, over all operations."""
KEEP = 20
ROWS = 120


@dataclass
class Scene:
    """A store before an operation, what it holds then and what it is to hold afterwards.

    Parameters
    ----------
    operation : callable
        One of :mod:`proof.tasks`.
    what : object
        Its argument.
    store : Path
        Alone in its folder with all that belongs to it.
    kept : dict
        Rows that must be in the store or in its archive at any moment.
    before, after : dict
        The rows in the store at the start and at the end; never anything between.
    signals : dict
        What the side table says of ids in the store, at any moment; empty where nobody promises.
    """

    operation: tasks.Operation
    what: Any
    store: Path
    kept: dict[int, Row]
    before: dict[int, Row]
    after: dict[int, Row]
    signals: dict[str, tuple[Any, ...]]

    def check(self, store: Path) -> None:
        """Nothing is lost, and the operation has happened altogether or not at all."""
        assert_nothing_lost(self.kept, store)
        rows = rows_of(store)
        assert rows in (self.before, self.after)
        self._check_signals(store, rows)

    def check_done(self, store: Path) -> None:
        """Nothing is lost, and the operation has happened."""
        assert_nothing_lost(self.kept, store)
        assert rows_of(store) == self.after
        self._check_signals(store, self.after)

    def finish(self, children: Children, store: Path) -> None:
        """Carry out the operation again, as it is; only a finished one may be refused."""
        ended = children.run(self.operation, store=store, what=self.what)
        if not isinstance(ended.error, AlreadyAppliedError):
            assert ended.error is None
        self.check_done(store)

    def _check_signals(self, store: Path, rows: dict[int, Row]) -> None:
        if self.signals:
            there = {row[1].decode() for row in rows.values()}
            expected = {name: row for name, row in self.signals.items() if name in there}
            assert signals_of(store) == expected


def _whole_and_plan(folder: Path, journal: str) -> tuple[Path, Plan]:
    folder.mkdir()
    store = make_store(folder / "memory.db", rows=ROWS, journal=journal)
    return store, plan(store, KeepRecent(KEEP), now=NOW)


def scene_of_apply(folder: Path, journal: str) -> Scene:
    store, made = _whole_and_plan(folder, journal)
    rows = rows_of(store)
    gone = {row.position for row in made.rows}
    left = {position: row for position, row in rows.items() if position not in gone}
    return Scene(tasks.apply_plan, made.to_json(), store, rows, rows, left, signals_of(store))


def scene_of_restore(folder: Path, journal: str) -> Scene:
    store, made = _whole_and_plan(folder, journal)
    rows, signals = rows_of(store), signals_of(store)
    apply(made, now=NOW)
    return Scene(tasks.restore_rows, made.digest, store, rows, rows_of(store), rows, signals)


def scene_of_compact(folder: Path, journal: str) -> Scene:
    applied = scene_of_apply(folder, journal)
    return Scene(
        tasks.compact, KEEP, applied.store, applied.after, applied.before, applied.after, {}
    )


def scene_of_vacuum(folder: Path, journal: str) -> Scene:
    compacted = scene_of_compact(folder, journal)
    with SqliteMemoryStore(compacted.store) as store:
        store.compact_episodic(KEEP)
    rows = rows_of(compacted.store)
    return Scene(tasks.vacuum_store, None, compacted.store, rows, rows, rows, {})


SCENES = {
    "apply": scene_of_apply,
    "restore": scene_of_restore,
    "compact_episodic": scene_of_compact,
    "vacuum": scene_of_vacuum,
}
JOURNALS = ("wal", "delete")


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
