"""Every operation with every interruption: done or not done, never half."""

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import memlab
from memlab.compaction import (
    Plan,
    apply,
    archived_plans,
    archived_rows,
    drop_archived,
    dropped_plans,
    export_archived,
    finish,
    plan_erasure,
    plan_supersession,
    recover,
    restore,
)
from memlab.compaction.archive_views import last_applied
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    MemlabError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.policies import KeepRecent
from memlab.sources.readers import no_progress
from memlab.store import database
from memlab.store.archive.open_archive import OpenArchive
from memlab.testing.steps import APPLY_STEPS, RESTORE_STEPS
from tests.compaction.operations import OPERATIONS, Operation, StoppedError, stop_at
from tests.support.archives import NOON, compacted, planned
from tests.support.invariants import (
    Row,
    archive_of,
    assert_nothing_lost,
    assert_sound,
    copies_of,
    rows_of,
)
from tests.support.programs import run_program
from tests.support.properties import crossed, examples
from tests.support.stores import files_in, row, run_sql, write_rows

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.compaction.operations import OPERATIONS
from tests.support.properties import examples
name, store, argument, step = sys.argv[1:]
kill = lambda done: done == step and os.kill(os.getpid(), signal.SIGKILL)
OPERATIONS[name].run(Path(store), argument, kill)
"""


def kill(name: str, store: Path, argument: str, step: str) -> None:
    assert run_program(KILLED, name, store, argument, step).returncode == -signal.SIGKILL


def stop(name: str, store: Path, argument: str, step: str) -> None:
    with pytest.raises(StoppedError):
        OPERATIONS[name].run(store, argument, stop_at(step))


_RECOVERING = ("copy", "recover", "take recovery back")
_PLANS = ("apply", "finish", "supersede", "retire")

REFUSED_AGAIN: dict[tuple[str, str], type[MemlabError]] = {
    **{(name, "recorded"): AlreadyAppliedError for name in _PLANS},
    **{("finish", step): ArchiveError for step in ("checked", "copied")},
}
"""By operation and step: the error of repeating an operation interrupted there."""


def is_locked(store: Path) -> bool:
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        return not connection.in_transaction


def notes_in(store: Path) -> int:
    """Return the number of finished plans and of restored memories in an archive."""
    with closing(sqlite3.connect(archive_of(store))) as connection:
        query = "SELECT (SELECT count(finished_at) FROM applies) + count(restored_at) FROM archived"
        (count,) = connection.execute(query).fetchone()
    return int(count)


def watched(operation: Operation, store: Path, argument: str) -> list[str]:
    """Return the steps of an operation, and check that the store is locked until the last."""
    recorded: list[tuple[str, bool, int]] = []
    operation.run(
        store,
        argument,
        lambda step: recorded.append((str(step), is_locked(store), notes_in(store))),
    )
    steps, locked, notes = map(list, zip(*recorded, strict=True))
    if "locked" in steps:
        last_step = steps.index(operation.done)
        assert locked == [place < last_step for place in range(len(steps))]
    if "recorded" in steps:
        assert notes[:-1] == notes[:1] * (len(notes) - 1)
        assert notes[-1] > notes[0]
    return steps


LINKING = ("supersede", "take back", "retire", "take retirement back")
ENDS = [
    *(
        pytest.param(kill, name, str(step), marks=pytest.mark.long)
        for name, operation in OPERATIONS.items()
        for step in operation.steps
    ),
    *((stop, name, str(step)) for name in (*LINKING, "vacuum") for step in OPERATIONS[name].steps),
]


@pytest.mark.parametrize(("end", "name", "step"), ENDS)
def test_interrupted_operation_can_be_repeated(
    store: Path,
    tmp_path_factory: pytest.TempPathFactory,
    end: Callable[[str, Path, str, str], None],
    name: str,
    step: str,
) -> None:
    operation = OPERATIONS[name]
    contents = rows_of(store)
    argument = operation.prepare(store)
    before = rows_of(store)
    copy = shutil.copytree(store.parent, tmp_path_factory.mktemp("copy") / "of") / store.name
    assert watched(operation, copy, argument) == list(operation.steps)
    after = rows_of(copy)

    end(name, store, argument, step)
    is_done = operation.steps.index(step) >= operation.steps.index(operation.done)
    assert rows_of(store) == (after if is_done else before)
    assert_sound(store)
    if name in {"apply", "finish", "restore"}:
        assert_nothing_lost(contents, store)

    refusal = REFUSED_AGAIN.get((name, step))
    with pytest.raises(refusal) if refusal else nullcontext():
        operation.run(store, argument, no_progress)
    assert rows_of(store) == (before if refusal is ArchiveError else after)
    if name in _RECOVERING:
        assert_sound(archive_of(store))
        run_sql(store, "DELETE FROM memory_items")
        assert len(recover(store).losses) == len(rows_of(store)) == len(contents)
    if refusal is not ArchiveError and name in _PLANS:
        entry = archived_plans(store)[-1]
        assert entry.finished_at is not None
        counts = {"supersede": 1, "retire": 2}
        assert restore(entry.digest, store=store).memories == counts.get(name, 6)
        assert rows_of(store) == before


def test_copies_of_an_aborted_deletion_are_removed(store: Path) -> None:
    stop("apply", store, planned(store).to_json(), "deleted")
    assert copies_of(store) == {}


def full(*_: object) -> None:
    raise ArchiveError("the disk is full")


@pytest.mark.parametrize(
    ("name", "method", "done"),
    [
        ("apply", "mark_applied", "6 memories are deleted and archived"),
        ("restore", "mark_restored", "6 memories were restored into"),
    ],
)
def test_missing_archive_note_is_added_by_repeating(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, method: str, done: str
) -> None:
    operation = OPERATIONS[name]
    argument = operation.prepare(store)
    before = rows_of(store)
    with monkeypatch.context() as patch:
        patch.setattr(OpenArchive, method, full)
        message = rf"{done} .*, but the archive could not record it \(the disk is full\)"
        with pytest.raises(ArchiveError, match=message):
            operation.run(store, argument, no_progress)
    assert rows_of(store) != before
    operation.run(store, argument, no_progress)
    (entry,) = archived_plans(store)
    assert entry.finished_at is not None
    assert entry.restored == 6 * (name == "restore")


def compact_at_runtime(store: Path) -> None:
    with memlab.SqliteMemoryStore(store, archive=True, busy_timeout=0.05) as opened:
        opened.compact_episodic(2)


CHANGES: dict[str, tuple[Callable[[Path], str], Callable[[Path, str, Any], Any]]] = {
    **{name: (operation.prepare, operation.run) for name, operation in OPERATIONS.items()},
    "drop": (
        lambda store: compacted(store).digest,
        lambda store, digest, _: drop_archived(store, digest=digest, now=NOON),
    ),
    "runtime": (lambda store: "", lambda store, *_: compact_at_runtime(store)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_locked_store_is_rejected_and_unchanged(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    prepare, run = CHANGES[name]
    argument = prepare(store)
    connect = database.connect
    monkeypatch.setattr(database, "connect", lambda path, **_: connect(path, busy_timeout=0.05))
    before = rows_of(store)
    copies = copies_of(store)
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process"):
            run(store, argument, no_progress)
    assert rows_of(store) == before
    assert copies_of(store) == copies


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "notes": (lambda path: path.write_bytes(b"somebody's"), r"not an archive.*move it away"),
    "another database": (
        lambda path: run_sql(path, "CREATE TABLE applies (x)"),
        "is not an archive that memlab made.*move it away",
    ),
    "a later format": (
        lambda path: run_sql(path, "CREATE TABLE applies (x)", "PRAGMA user_version = 4"),
        r"newer memlab, in format 4.*reads formats 2 to 3; nothing in it is lost: use a memlab",
    ),
    "a link": (lambda path: path.symlink_to("memory.db"), "link"),
    "a pipe": (os.mkfifo, "no ordinary file"),
    "a folder": (Path.mkdir, "no ordinary file"),
    "a loop": (lambda path: path.symlink_to(path), "no ordinary file"),
}
"""Foreign files in place of an archive, each with its error message."""


@pytest.mark.parametrize(
    ("name", "kind"), crossed([name for name in CHANGES if name != "vacuum"], FOREIGN)
)
def test_foreign_file_in_place_of_archive_is_rejected(store: Path, name: str, kind: str) -> None:
    prepare, run = CHANGES[name]
    put, message = FOREIGN[kind]
    given = prepare(store)
    archive = archive_of(store)
    archive.unlink(missing_ok=True)
    put(archive)
    before = rows_of(store)
    contents = files_in(store.parent)
    mode = archive.lstat()
    for use in (lambda: run(store, given, no_progress), lambda: memlab.load_past(store)):
        with pytest.raises(ArchiveError, match=message):
            use()
    assert rows_of(store) == before
    assert files_in(store.parent) == contents
    assert archive.lstat() == mode


ASK_AN_ARCHIVE: dict[str, Callable[[Path], object]] = {
    "restore": lambda store: restore("abc", store=store),
    "finish": lambda store: finish(store, "abc"),
    "drop": lambda store: drop_archived(store, digest="abc"),
    "what drops": lambda store: plan_erasure(store, digest="abc"),
    "plans": archived_plans,
    "dropped": dropped_plans,
    "rows": archived_rows,
    "export": lambda store: export_archived(store, store.with_name("out.jsonl")),
}


@pytest.mark.parametrize("name", ASK_AN_ARCHIVE)
@pytest.mark.parametrize("put", [lambda _: None, Path.touch], ids=["nothing", "an empty file"])
def test_missing_archive_is_reported_as_nothing_deleted(
    store: Path, name: str, put: Callable[[Path], None]
) -> None:
    put(archive_of(store))
    before = files_in(store.parent)
    with pytest.raises(ArchiveError, match=r"there is no archive.*memlab has deleted nothing"):
        ASK_AN_ARCHIVE[name](store)
    assert last_applied(store) is None
    assert files_in(store.parent) == before
    assert restore(compacted(store)).memories == 6


@pytest.mark.parametrize("source", [":memory:", memlab.SqliteMemoryStore])
def test_in_memory_store_is_rejected(source: Any) -> None:
    with source(":memory:") if callable(source) else nullcontext(source) as opened:
        for use in (
            lambda: memlab.plan(opened, KeepRecent(4)),
            lambda: plan_supersession(opened, {"d1": "s1"}),
        ):
            with pytest.raises(UnsafeDeletionError, match=r"in memory.*SqliteMemoryStore\(path\)"):
                use()


# Random sequences of plans, interruptions, finishes and restores


class CompactionUnderStops(RuleBasedStateMachine):
    """Keeps every version of every row that a plan ever took out."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = write_rows(self.folder / "memory.db", [row("d0", "semantic"), row("e0")])
        self.plans: list[Plan] = []
        self.taken_out: set[Row] = set()
        self.written = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(kind=st.sampled_from(["episodic", "episodic", "semantic"]), count=st.integers(1, 4))
    def put(self, kind: str, count: int) -> None:
        write_rows(self.store, [row(f"m{self.written + n}", kind) for n in range(count)])
        self.written += count

    @rule(number=st.integers(0, 30), column=st.sampled_from(["title", "superseded_by"]))
    def change(self, number: int, column: str) -> None:
        run_sql(
            self.store, f"UPDATE memory_items SET {column} = 'd0' WHERE memory_id = 'm{number}'"
        )

    @rule(keep=st.integers(0, 6))
    def make_plan(self, keep: int) -> None:
        moment = NOON + timedelta(minutes=len(self.plans))
        self.plans.append(planned(self.store, keep, at=moment))

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), stop=st.none() | st.sampled_from(APPLY_STEPS))
    def apply_plan(self, data: st.DataObject, stop: str | None) -> None:
        chosen = data.draw(st.sampled_from(self.plans))
        before = rows_of(self.store)
        committed = stop in {None, "committed", "recorded"}
        try:
            apply(chosen, on_step=stop_at(stop))
        except StoppedError:
            pass
        except (StalePlanError, AlreadyAppliedError):
            committed = False
        # New rows may reuse positions freed by a plan whose completion was not recorded.
        present = {(position, stored[1].decode()) for position, stored in before.items()}
        named = {(memory.position, memory.memory_id) for memory in chosen.memories}
        positions = {position for position, _ in named & present} if committed else set()
        expected = {p: stored for p, stored in before.items() if p not in positions}
        assert rows_of(self.store) == expected
        self.taken_out |= {before[p] for p in positions & before.keys()}
        assert_nothing_lost(before, self.store)

    @rule(data=st.data(), stop=st.none() | st.sampled_from(RESTORE_STEPS))
    def restore_plan(self, data: st.DataObject, stop: str | None) -> None:
        if not self.taken_out:
            return
        entry = data.draw(st.sampled_from(archived_plans(self.store)))
        before = rows_of(self.store)
        try:
            count = restore(entry.digest, store=self.store, on_step=stop_at(stop)).memories
        except ArchiveError:
            assert rows_of(self.store) == before
            return
        except StoppedError:
            count = None
        after = rows_of(self.store)
        back = {p: stored for p, stored in after.items() if p not in before}
        assert {p: stored for p, stored in after.items() if p in before} == before
        assert set(back.values()) <= self.taken_out
        assert count is None or count == len(back)

    @invariant()
    def deleted_rows_are_archived(self) -> None:
        assert self.taken_out <= {
            copy for copies in copies_of(self.store).values() for copy in copies
        }

    @invariant()
    def store_is_intact(self) -> None:
        assert_sound(self.store)
        assert "d0" in {stored[1].decode() for stored in rows_of(self.store).values()}


TestCompactionUnderStops = CompactionUnderStops.TestCase
TestCompactionUnderStops.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None
)
