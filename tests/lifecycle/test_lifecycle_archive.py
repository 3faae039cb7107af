"""What a lifecycle store deletes is archived first."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from invariants import archive_of, rows_of
from lifecycle.memories import SAME, START, Open, ids, item
from programs import run_program
from shell import said
from stores import run_sql, signals_of

import memlab
from memlab.compaction import archived_plans, archived_rows, restore
from memlab.lifecycle import LifecycleStore
from memlab.policies import NearDuplicate, ValueCap
from memlab.store import SqliteMemoryStore


def let_go(store: LifecycleStore) -> None:
    """Write so that one memory is replaced, one evicted, and one expires."""
    store.put(item("old", SAME), agent_id="a", importance=0.9)
    store.put(item("new", SAME), agent_id="a", importance=0.9)
    store.put(item("low"), agent_id="a", importance=0.1)
    store.put(item("high"), agent_id="a", importance=0.9)
    store.put(item("brief"), agent_id="b", ttl=60, importance=0.4)
    store.expire(START + timedelta(hours=1))


def test_what_is_evicted_expires_or_is_replaced_is_archived(open_store: Open, path: Path) -> None:
    let_go(open_store(capacity=ValueCap(2), duplicates=NearDuplicate()))
    found = archived_rows(path)
    assert found["memory_id"].tolist() == ["old", "low", "brief"]
    assert found["reason"].tolist() == ["near-duplicate", "lowest-value", "expired"]
    assert [entry.finished_at is not None for entry in archived_plans(path)] == [True] * 3
    assert memlab.load_past(path)["memory_id"].tolist() == ["old", "new", "low", "high", "brief"]


def test_what_was_let_go_comes_back_with_its_signals(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(1))
    store.put(item("low"), agent_id="a", importance=0.1, graduated=True)
    before = rows_of(path), signals_of(path)
    store.put(item("high"), agent_id="a", importance=0.9)
    for table in ("memory_items", "memory_signals"):
        run_sql(path, f"DELETE FROM {table} WHERE memory_id = 'high'")
    (entry,) = archived_plans(path)
    assert restore(entry.digest, store=path) == 1
    assert (rows_of(path), signals_of(path)) == before


def test_without_an_archive_a_deletion_is_final(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2), duplicates=NearDuplicate(), archive=False)
    let_go(store)
    assert ids(store) == ["new", "high"]
    assert not archive_of(path).exists()
    with LifecycleStore(":memory:", capacity=ValueCap(1)) as brief:
        for name, importance in (("low", 0.1), ("high", 0.9)):
            brief.put(item(name), agent_id="a", importance=importance)
        assert ids(brief) == ["high"]
        assert brief.stats().enforcement_failures == 0


def test_what_cannot_be_archived_stays_and_the_put_too(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2), duplicates=NearDuplicate())
    store.put(item("first"), agent_id="a", importance=0.1, ttl=60)
    archive_of(path).mkdir()
    store.put(item("again", "first"), agent_id="a", importance=0.9)
    assert store.stats().enforcement_failures == 1
    store.put(item("third"), agent_id="a", importance=0.9)
    assert store.stats().enforcement_failures == 2
    assert archive_of(path).name in (store.stats().last_failure or "")
    with pytest.raises(memlab.errors.ArchiveError):
        store.expire(START + timedelta(hours=1))
    assert ids(store) == ["first", "again", "third"]
    assert store.stats().evicted == {}
    archive_of(path).rmdir()
    store.put(item("fourth"), agent_id="a", importance=0.9)
    assert archived_rows(path)["memory_id"].tolist() == ["first", "again"]


KILLED: dict[str, str] = {
    "before the deletion": "guarded.Removals._delete = stop",
    "after the deletion": "guarded.note_deleted = stop",
}
_WRITER = """
import os, signal, sys
from memlab.lifecycle import LifecycleStore, guarded
from memlab.policies import ValueCap
from lifecycle.memories import START, item

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
store = LifecycleStore(sys.argv[1], capacity=ValueCap(1), clock=lambda: START)
store.put(item("high"), agent_id="a", importance=0.9)
"""


@pytest.mark.long
@pytest.mark.parametrize("patch", KILLED.values(), ids=KILLED)
def test_a_killed_writer_loses_nothing_and_the_next_one_tidies_up(
    open_store: Open, path: Path, patch: str
) -> None:
    open_store(capacity=ValueCap(1)).put(item("low"), agent_id="a", importance=0.1)
    assert run_program(_WRITER.format(patch=patch), path).returncode == -signal.SIGKILL
    (entry,) = archived_plans(path)
    assert entry.finished_at is None
    kept = {"low"} & {*ids(SqliteMemoryStore(path))}
    assert kept | set(archived_rows(path)["memory_id"]) == {"low"}
    store = open_store(capacity=ValueCap(1))
    store.put(item("higher"), agent_id="a", importance=1.0)
    assert ids(store) == ["higher"]
    assert archived_rows(path)["memory_id"].tolist() == ["low", "high"]
    assert all(entry.finished_at for entry in archived_plans(path))


def test_the_past_knows_when_each_of_many_evictions_was(path: Path) -> None:
    clock = [START]
    with LifecycleStore(path, capacity=ValueCap(2), clock=lambda: clock[0]) as store:
        for number in range(6):
            clock[0] += timedelta(hours=1)
            store.put(item(f"m{number}", at=clock[0]), agent_id="a")
        # Positions begin again.
        run_sql(path, "DELETE FROM memory_items WHERE memory_id IN ('m4', 'm5')")
        for number in range(6, 9):
            clock[0] += timedelta(hours=1)
            store.put(item(f"m{number}", at=clock[0]), agent_id="a")
    past = memlab.load_past(path).set_index("memory_id")["deleted_at"]
    hours = {f"m{gone}": gone + 3 for gone in (0, 1, 2, 3)} | {"m6": 9}
    assert {name: at for name, at in past.items() if at == at} == {
        name: START + timedelta(hours=hour) for name, hour in hours.items()
    }
    assert list(past.index) == ["m0", "m1", "m2", "m3", "m6", "m7", "m8"]


def test_many_evictions_are_one_line_of_the_archives_list(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(1))
    for number in range(8):
        store.put(item(f"m{number}"), agent_id="a")
    line, _, undo = said("archive", path).splitlines()
    assert "7 deletions of a runtime's own" in line
    assert "7 memories, 0 restored" in line
    assert undo.startswith("undo: memlab restore ")
    assert said("archive", path, "--rows").count("lowest-value") == 7
