"""Stores before an operation, and what must be true of them at any moment of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invariants import Row, assert_compacted, assert_nothing_lost, rows_of

from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.compaction.plans import Plan
from memlab.errors import AlreadyAppliedError
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from proof import tasks
from proof.conftest import Children
from proof.stores import NOW, make_store, signals_of

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

    def check_undone(self, store: Path) -> None:
        """The operation has not happened."""
        assert rows_of(store) == self.before

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
    gone = {row.position for row in made.memories}
    left = {position: row for position, row in rows.items() if position not in gone}
    assert_compacted(rows, left, KEEP)
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
        store.connection.execute(f"PRAGMA journal_mode = {journal}")
    rows = rows_of(compacted.store)
    return Scene(tasks.vacuum_store, None, compacted.store, rows, rows, rows, {})


SCENES = {
    "apply": scene_of_apply,
    "restore": scene_of_restore,
    "compact_episodic": scene_of_compact,
    "vacuum": scene_of_vacuum,
}
JOURNALS = ("wal", "delete")
