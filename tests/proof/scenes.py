"""Stores before an operation, and what must be true of them at any moment of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from invariants import assert_compacted, assert_nothing_lost, rows_of
from programs import Children, Ended
from stores import signals_of

from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.errors import AlreadyAppliedError, MemlabError
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from proof import tasks
from proof.stores import NOW, make_store

KEEP = 20
ROWS = 120


@dataclass
class Scene(ABC):
    """A store before an operation, what it holds then and what it is to hold afterwards."""

    operation: tasks.Operation
    what: Any
    store: Path
    """Alone in its folder with all that belongs to it."""
    whole: dict[Any, Any]
    """What must be in the store or in its archive at any moment."""
    before: dict[Any, Any]
    after: dict[Any, Any]
    """What the store holds at the end; never anything between."""

    @abstractmethod
    def check(self, store: Path) -> None:
        """Nothing is lost, and the operation has happened altogether or not at all."""

    @abstractmethod
    def check_done(self, store: Path) -> None:
        """Nothing is lost, and the operation has happened."""

    @abstractmethod
    def check_undone(self, store: Path) -> None:
        """The operation has not happened."""

    def finish(self, children: Children, store: Path) -> None:
        """Carry out the operation again, as it is; only a finished one may be refused."""
        ended = children.run(self.operation, store=store, what=self.what)
        if not isinstance(ended.error, AlreadyAppliedError):
            assert ended.error is None, repr(ended)
        self.check_done(store)


def assert_refused_or_done(scene: Scene, store: Path, ended: Ended) -> None:
    """Nothing is lost, and what was said of the store is so."""
    scene.check(store)
    if ended.error is None:
        scene.check_done(store)
        return
    assert isinstance(ended.error, MemlabError), repr(ended.error)
    assert str(store) in str(ended.error)
    if "nothing was" in str(ended.error):
        scene.check_undone(store)


@dataclass
class RowScene(Scene):
    """The same of a table, whose rows are looked at by position."""

    signals: list[tuple[Any, ...]]
    """What the side table says of ids in the store, at any moment; empty where nobody promises."""

    def check(self, store: Path) -> None:
        assert_nothing_lost(self.whole, store)
        rows = rows_of(store)
        assert rows in (self.before, self.after)
        if self.signals:
            there = {row[1].decode() for row in rows.values()}
            assert signals_of(store) == [row for row in self.signals if row[0] in there]

    def check_done(self, store: Path) -> None:
        self.check(store)
        assert rows_of(store) == self.after

    def check_undone(self, store: Path) -> None:
        assert rows_of(store) == self.before


def row_scene(folder: Path, operation: str, journal: str) -> RowScene:
    folder.mkdir()
    store = make_store(folder / "memory.db", rows=ROWS, journal=journal)
    whole, signals = rows_of(store), signals_of(store)
    made = plan(store, KeepRecent(KEEP), now=NOW)
    gone = {memory.position for memory in made.memories}
    left = {position: row for position, row in whole.items() if position not in gone}
    assert_compacted(whole, left, KEEP)
    if operation == "apply":
        return RowScene(tasks.apply_plan, made.to_json(), store, whole, whole, left, signals)
    if operation == "restore":
        apply(made, now=NOW)
        return RowScene(tasks.restore_rows, made.digest, store, whole, left, whole, signals)
    if operation == "compact_episodic":
        return RowScene(tasks.compact, KEEP, store, left, whole, left, [])
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(KEEP)
        opened.connection.execute(f"PRAGMA journal_mode = {journal}")
    return RowScene(tasks.vacuum_store, None, store, left, left, left, [])


ROW_SCENES: Final[dict[str, Callable[[Path], RowScene]]] = {
    f"{name} {journal}": partial(row_scene, operation=name, journal=journal)
    for name, journal in product(
        ("apply", "restore", "compact_episodic", "vacuum"), ("wal", "delete")
    )
}
"""Each operation with each way to keep transactions."""
