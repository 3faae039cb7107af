"""The lifecycle store: expiry, capacity, duplicates, archive, concurrency, crashes.

What it deletes it archives first.
"""

import multiprocessing
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.compaction import archived_plans, archived_rows, restore
from memlab.lifecycle import LifecycleStore, Trust
from memlab.policies import ImportanceFloor, NearDuplicate, ValueCap, decide
from memlab.store import SqliteMemoryStore
from tests.lifecycle.memories import DAY, HOUR, SAME, START, Open, ids, item
from tests.support.decisions import kept_ids
from tests.support.invariants import archive_of, rows_of
from tests.support.programs import run_program
from tests.support.shell import output_of
from tests.support.stores import run_sql, signals_of

TICK = timedelta(microseconds=1)
DEDUP = NearDuplicate(0.92)


def test_memory_items_is_unchanged_for_a_plain_store(path: Path) -> None:
    table = "SELECT sql FROM sqlite_schema WHERE name = 'memory_items'"
    with LifecycleStore(path, capacity=ValueCap(9)) as store, SqliteMemoryStore(":memory:") as new:
        for name in "abc":
            store.put(item(name), agent_id="g")
        lifecycle_schema = store.connection.execute(table).fetchall()
        plain_schema = new.connection.execute(table).fetchall()
        assert lifecycle_schema == plain_schema
    with SqliteMemoryStore(path) as plain:
        assert ids(plain) == ["a", "b", "c"]
        plain.supersede("a", by_memory_id="b")
        assert plain.compact_episodic(1) == 1
        assert ids(plain) == ["c"]


def test_frame_shows_the_stored_signals(open_store: Open, path: Path) -> None:
    open_store().put(
        item("a"), ttl=60, importance=-3.0, agent_id="g", thread_id="t", namespace="n",
        trust=Trust.UNTRUSTED,
    )  # fmt: skip
    (row,) = memlab.load(path).to_dict("records")
    assert row["importance"] == -3.0  # no capacity uses it
    assert row["expires_at"] == START + timedelta(seconds=60)
    assert row["last_accessed_at"] == START
    assert row["access_count"] == 0
    assert row["trusted"] is False
    assert row["graduated"] is False
    assert row["agent_id"] == "g"
    assert row["thread_id"] == "t"
    assert row["namespace"] == "n"


def test_new_scope_regroups_existing_rows(open_store: Open) -> None:
    first = open_store(capacity=ValueCap(5))
    for name, tag, importance in (("a", "x", 0.1), ("b", "y", 0.2)):
        first.put(item(name, tags=(tag,)), agent_id="g", importance=importance)
    second = open_store(capacity=ValueCap(1, scope=("tags",)))
    second.put(item("c", tags=("x",)), importance=0.9)
    assert ids(second) == ["b", "c"]


def test_expired_row_is_hidden_before_it_is_deleted(open_store: Open, clock: Any) -> None:
    reads = list[str]()
    store = open_store(access_log=SimpleNamespace(add=reads.append))
    store.put(item("a"), ttl=HOUR)
    store.put(item("b"), ttl=2 * HOUR)
    clock.now = START + HOUR
    assert ids(store) == ["a", "b"]
    clock.now += TICK
    assert store.get("a") is None
    assert reads == []
    assert ids(store) == ["b"]
    assert [memory.memory_id for memory in store.search("a b")] == ["b"]
    assert store.touch(["a"], now=clock.now) == 0, "a use does not restore the row"
    assert store.connection.execute("SELECT count(*) FROM memory_items").fetchone() == (2,)


def test_expire_deletes_expired_rows_once(open_store: Open, clock: Any) -> None:
    store = open_store()
    store.put(item("a"), ttl=HOUR)
    store.put(item("b"), ttl=2 * HOUR)
    clock.now = START + HOUR + TICK
    assert store.expire(clock.now) == 1
    assert store.expire(clock.now) == 0
    assert store.connection.execute("SELECT count(*) FROM memory_items").fetchone() == (1,)
    assert store.stats().evicted == {"expired": 1}
    with pytest.raises(ValueError, match="no time zone"):
        store.expire(START.replace(tzinfo=None))


def test_touch_does_not_extend_the_expiry(open_store: Open, clock: Any) -> None:
    store = open_store()
    store.put(item("b"), ttl=2 * HOUR)
    clock.now = START + HOUR
    assert store.touch(["b"], now=clock.now) == 1
    clock.now = START + 2 * HOUR + TICK
    assert ids(store) == []


def test_rows_without_positive_ttl_never_expire(open_store: Open, clock: Any) -> None:
    store = open_store()
    for number, ttl in enumerate([None, 0, -1, -0.5, timedelta(0), timedelta(days=-1)]):
        store.put(item(f"m{number}"), ttl=ttl)
    clock.now += 3650 * DAY
    assert store.expire(clock.now) == 0
    assert len(ids(store)) == 6


def put_another(store: LifecycleStore) -> None:
    store.put(item("b"), ttl=HOUR)


def touch_the_first(store: LifecycleStore) -> None:
    store.touch(["a"], now=START)


@pytest.mark.parametrize(
    ("event", "change"), [("INSERT", put_another), ("UPDATE", touch_the_first)]
)
def test_row_and_signals_are_written_in_one_transaction(
    open_store: Open, event: str, change: Callable[[LifecycleStore], object]
) -> None:
    store = open_store()
    store.put(item("a"))
    store.connection.execute(
        f"CREATE TRIGGER still BEFORE {event} ON memory_signals "
        "BEGIN SELECT RAISE(ABORT, 'not now'); END"
    )
    with pytest.raises(memlab.errors.StoreError, match="not now"):
        change(store)
    assert ids(store) == ["a"]
    assert store.get("a") == item("a")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"importance": 1.1}, "importance=1.1"),
        ({"importance": float("nan")}, "importance=nan"),
        ({"ttl": "soon"}, "'soon' is not an age like 30d"),
        ({"ttl": float("inf")}, "ttl=inf"),
        ({"ttl": 1e12}, "beyond the calendar"),
        ({"trust": "maybe"}, "maybe"),
    ],
)
def test_invalid_value_is_rejected_and_nothing_written(
    open_store: Open, settings: dict[str, Any], message: str
) -> None:
    store = open_store(capacity=ValueCap(3))
    with pytest.raises(ValueError, match=message):
        store.put(item("a"), **settings)
    assert ids(store) == []


SCOPES = {
    "an agent without thread counts all threads": ("a0.9t a0.8u a0.1", ["m0"]),
    "a thread excludes other threads": ("a0.9t a0.8u a0.1t", ["m0", "m1"]),
    "other tags of an agent are another scope": ("a0.9#x a0.1#y", ["m0", "m1"]),
    "a tag counts rows with more tags": ("a0.9#x#y a0.1#x", ["m0"]),
    "several tags count rows with all of them": ("a0.9#x a0.1#x#y", ["m0", "m1"]),
    "case makes no difference": ("A0.9#X a0.1#x", ["m0"]),
    "a tag may hold a comma": ("a0.9#x,y a0.1#x a0.2#x,y", ["m0", "m1"]),
    "a thread counts all of its agents": ("a0.9s a0.1t b0.9u b0.1t 0.5t", ["m0", "m2", "m4"]),
}  # fmt: skip
"""Memories as agent, importance, thread and tags, and the ids that a cap of one keeps."""


@pytest.mark.parametrize(("written", "remaining"), SCOPES.values(), ids=SCOPES)
def test_capacity_applies_per_scope(open_store: Open, written: str, remaining: list[str]) -> None:
    store = open_store(capacity=ValueCap(1))
    for number, text in enumerate(written.split()):
        owner, *tags = text.split("#")
        parts = re.fullmatch(r"(?P<agent>\D+)?(?P<importance>[\d.]+)(?P<thread>\D+)?", owner)
        assert parts is not None
        store.put(
            item(f"m{number}", tags=tuple(tags)),
            agent_id=parts["agent"],
            thread_id=parts["thread"],
            importance=float(parts["importance"]),
        )
    assert ids(store) == remaining


def test_load_bearing_rows_use_capacity_and_are_not_evicted(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2))
    store.put(item("low"), agent_id="h", importance=0.1)
    store.put(item("a"), agent_id="g", importance=0.0, ttl=HOUR)
    with SqliteMemoryStore(path) as plain:
        plain.put(item("a", tags=("rejected-path",)))
    for name in "bc":
        store.put(item(name, kind="procedural"), agent_id="g", importance=0.0)
    store.put(item("e"), agent_id="g", importance=1.0)
    assert ids(store) == ["low", "a", "b", "c"]
    stats = store.stats()
    assert stats.sizes == {'{"agent_id": "g"}': 3, '{"agent_id": "h"}': 1}
    assert stats.floor_over_capacity == {'{"agent_id": "g"}': 3}
    assert stats.enforcement_failures == 0
    assert stats.evicted == {"lowest-value": 1}


def test_load_bearing_rows_neither_expire_nor_are_replaced(open_store: Open, clock: Any) -> None:
    store = open_store(duplicates=DEDUP)
    store.put(item("d", SAME, kind="semantic"), ttl=1)
    store.put(item("e", SAME))
    store.put(item("s", SAME, kind="procedural"))
    store.put(item("r", SAME, tags=("rejected-path",)), ttl=1)
    clock.now = START + DAY
    assert store.expire(clock.now) == 0
    assert ids(store) == ["d", "e", "s", "r"]
    assert store.get("d") is not None
    assert store.touch(["d"], now=clock.now) == 1


def test_rewritten_row_is_not_its_own_duplicate(open_store: Open) -> None:
    open_store(duplicates=DEDUP).put(item("a", SAME))
    reopened = open_store(duplicates=DEDUP)  # a new store that has read no texts yet
    reopened.put(item("a", SAME))
    assert ids(reopened) == ["a"]
    assert reopened.stats().evicted == {}


SPOILS = "CREATE TRIGGER spoils {} DELETE ON memory_items BEGIN {}; END"
MENDS = "DROP TRIGGER spoils"
LAST_USED = "UPDATE memory_signals SET last_accessed_at = {}"


@pytest.mark.parametrize(
    ("spoils", "mends", "message"),
    [
        (SPOILS.format("BEFORE", "SELECT RAISE(ABORT, 'not this')"), MENDS, "not this"),
        (SPOILS.format("AFTER", "DELETE FROM memory_items WHERE kind = 'semantic'"), MENDS, "trig"),
        (LAST_USED.format("'lately'"), LAST_USED.format("NULL"), "lately"),
    ],
    ids=["a trigger that raises", "a trigger that deletes more", "an invalid time"],
)
def test_failed_eviction_keeps_every_row(
    open_store: Open, path: Path, spoils: str, mends: str, message: str
) -> None:
    store = open_store(capacity=ValueCap(1))
    store.put(item("d", kind="semantic"))
    store.put(item("a"), agent_id="g", importance=0.1)
    store.connection.execute(spoils)
    store.put(item("b"), agent_id="g")
    assert ids(store) == ["d", "a", "b"]
    assert store.stats().enforcement_failures == 1
    assert message in str(store.stats().last_failure)
    assert store.stats().evicted == {}
    assert not archive_of(path).exists()
    store.connection.execute(mends)
    store.put(item("c"), agent_id="g", importance=0.9)
    assert ids(store) == ["d", "c"]
    assert archived_rows(path)["memory_id"].tolist() == ["a", "b"]


def test_unset_or_invalid_signals_count_as_missing(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2))
    store.put(item("a"), agent_id="g")
    nothing = "importance = 9e999, last_accessed_at = NULL, access_count = NULL"
    run_sql(path, f"UPDATE memory_signals SET {nothing}")
    assert store.touch(["a", "a", "nobody"], now=START + HOUR) == 1
    assert store.touch(["a"], now=START) == 1
    rows = store.connection.execute("SELECT access_count, last_accessed_at FROM memory_signals")
    assert rows.fetchall() == [(1, "2026-03-01T12:00:00.000000+00:00")]  # both uses are on one day
    for name in "bc":
        store.put(item(name), agent_id="g", importance=0.1)
    assert ids(store) == ["b", "c"]


def test_graduated_is_set_by_put_and_touch(open_store: Open, path: Path) -> None:
    store = open_store()
    store.put(item("a"), importance=0.05, graduated=True)
    store.put(item("b"), importance=0.05)
    assert memlab.load(path)["graduated"].tolist() == [True, False]
    store.touch(["b"], now=START, graduated=True)
    store.touch(["a"], now=START)
    assert memlab.load(path)["graduated"].tolist() == [True, True]
    store.touch(["a"], now=START, graduated=False)
    assert kept_ids(memlab.load(path), ImportanceFloor()) == ["b"]
    with pytest.raises(memlab.errors.WrongArgumentError, match="graduated"):
        store.touch(["a"], now=START, graduated="no")  # type: ignore[arg-type]


# Near-duplicates on write


@pytest.mark.parametrize(
    ("settings", "trust", "remaining"),
    [
        ({"duplicates": NearDuplicate(0)}, ("trusted", "trusted"), ["m0", "m1"]),
        (
            {"duplicates": NearDuplicate(0.92, keep_untrusted=True)},
            ("user-approved", "untrusted"),
            ["m0", "m1"],
        ),
        ({"duplicates": DEDUP}, ("trusted", "auto-approved"), ["m1"]),
    ],
)
def test_near_duplicate_replaces_an_equally_trusted_row(
    open_store: Open, settings: dict[str, Any], trust: tuple[str, ...], remaining: list[str]
) -> None:
    store = open_store(**settings)
    for number, trust_of_row in enumerate(trust):
        store.put(item(f"m{number}", SAME), trust=trust_of_row)
    assert ids(store) == remaining
    expected = {"near-duplicate": 1} if len(remaining) == 1 else {}
    assert store.stats().evicted == expected


def test_untrusted_duplicate_of_a_trusted_row_is_not_stored(open_store: Open) -> None:
    store = open_store(duplicates=DEDUP)
    store.put(item("m0", SAME), trust="user-approved")
    store.put(item("m1", "something else entirely"), trust="untrusted")
    store.put(item("m1", SAME), trust="untrusted")
    assert [memory.title for memory in store.list_active()] == [SAME, "something else entirely"]
    assert store.stats().not_stored == 1
    assert store.stats().evicted == {}
    store.put(item("m2", "something else entirely"), trust="trusted")
    assert ids(store) == ["m0", "m2"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "touch", "supersede", "foreign", "reopen"]),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.1, 0.5, 0.5000001, 1.0]),
        st.sampled_from([None, "g", "h"]),
        st.sampled_from([-400, 0, 0, 1, 30, 24 * 7, 24 * 365]),
        st.booleans(),
    ),
    max_size=25,
)
rules = st.builds(
    ValueCap,
    st.integers(0, 4),
    half_life=st.sampled_from([HOUR, 7 * DAY]),
    recency=st.sampled_from([0.0, 0.25, 0.9]),
    importance=st.sampled_from([0.0, 0.15, 0.1]),
    scope=st.sampled_from([("agent_id",), ()]),
)


class Paused(LifecycleStore):
    """A store that enforces its capacity on request instead of on each put."""

    postponed: tuple[Any, ...] | None = None

    def _enforce_capacity(self, *arguments: Any) -> None:
        self.postponed = arguments

    def enforce_postponed(self) -> None:
        if self.postponed:
            super()._enforce_capacity(*self.postponed)
        self.postponed = None


@given(rules, steps)
def test_scope_holds_what_the_policy_keeps_after_every_put(
    tmp_path_factory: pytest.TempPathFactory, rule: ValueCap, drawn: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("lifecycle") / "memory.db"
    clock = SimpleNamespace(now=START)

    def opened() -> Paused:
        store = Paused(path, capacity=rule, clock=lambda: clock.now, archive=False)
        store.connection.execute("PRAGMA synchronous = OFF")
        return store

    store = opened()
    for action, number, importance, agent, hours, is_load_bearing in drawn:
        clock.now += hours * HOUR
        name = f"m{number}"
        if action == "put":
            kind = "semantic" if is_load_bearing else "episodic"
            store.put(item(name, kind=kind), importance=importance, agent_id=agent)
            frame = memlab.load(path)
            scoped = frame[frame["agent_id"].eq(agent)] if rule.scope else frame
            keep = decide(scoped, replace(rule, scope=()), now=clock.now)["keep"]
            evicted = set(scoped.loc[~keep, "memory_id"])
            expected = [memory_id for memory_id in ids(store) if memory_id not in evicted]
            store.enforce_postponed()
            assert ids(store) == expected
        elif action == "touch":
            store.touch([name], now=clock.now)
        elif action == "supersede":
            if name != "m0" and {name, "m0"} <= set(ids(store)):
                store.supersede(name, by_memory_id="m0")
        elif action == "foreign":
            run_sql(path, f"DELETE FROM memory_items WHERE memory_id = '{name}'")
        elif action == "reopen":
            store.close()
            store = opened()
    assert store.stats().enforcement_failures == 0
    store.close()


def write_some(path: Path, writer: int) -> None:
    with LifecycleStore(path, capacity=ValueCap(5), duplicates=DEDUP) as store:
        store.connection.execute("PRAGMA synchronous = OFF")
        for number in range(4):
            store.put(item(f"w{writer}-{number}", f"writer {writer} note {number}"), agent_id="g")
            store.put(item(f"shared-{number}", f"shared note {number}"), agent_id="g")


@pytest.mark.long
def test_concurrent_writers_leave_a_store_within_its_cap(path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    heavy = ["scipy.sparse"]
    context.set_forkserver_preload([__name__, *heavy])
    writers = [context.Process(target=write_some, args=(path, number)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0] * 6
    with LifecycleStore(path, capacity=ValueCap(5)) as store:
        remaining = ids(store)
        assert len(remaining) == 5
        assert len(set(remaining)) == 5
        (orphans,) = store.connection.execute(
            "SELECT count(*) FROM memory_signals WHERE memory_id NOT IN "
            "(SELECT memory_id FROM memory_items)"
        ).fetchone()
        assert orphans == 0
        written = store.connection.execute("SELECT max(rowid) FROM memory_items").fetchone()[0]
        assert sum(store.stats().evicted.values()) >= written - 5


# Archiving before deletion


def replace_evict_and_expire(store: LifecycleStore) -> None:
    """Write so that one memory is replaced, one evicted, and one expires."""
    store.put(item("old", SAME), agent_id="a", importance=0.9)
    store.put(item("new", SAME), agent_id="a", importance=0.9)
    store.put(item("low"), agent_id="a", importance=0.1)
    store.put(item("high"), agent_id="a", importance=0.9)
    store.put(item("brief"), agent_id="b", ttl=60, importance=0.4)
    store.expire(START + HOUR)


def test_evicted_expired_and_replaced_rows_are_archived(open_store: Open, path: Path) -> None:
    replace_evict_and_expire(open_store(capacity=ValueCap(2), duplicates=NearDuplicate()))
    archived = archived_rows(path)
    assert archived["memory_id"].tolist() == ["old", "low", "brief"]
    assert archived["reason"].tolist() == ["near-duplicate", "lowest-value", "expired"]
    entries = archived_plans(path)
    assert len(entries) == 3
    assert all(entry.finished_at is not None for entry in entries)
    assert memlab.load_past(path)["memory_id"].tolist() == ["old", "new", "low", "high", "brief"]


def test_evicted_row_is_restored_with_its_signals(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(1))
    store.put(item("low"), agent_id="a", importance=0.1, graduated=True)
    rows = rows_of(path)
    signals = signals_of(path)
    store.put(item("high"), agent_id="a", importance=0.9)
    for table in ("memory_items", "memory_signals"):
        run_sql(path, f"DELETE FROM {table} WHERE memory_id = 'high'")
    (entry,) = archived_plans(path)
    assert restore(entry.digest, store=path).memories == 1
    assert rows_of(path) == rows
    assert signals_of(path) == signals


def test_deletion_without_an_archive_is_final(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2), duplicates=NearDuplicate(), archive=False)
    replace_evict_and_expire(store)
    assert ids(store) == ["new", "high"]
    assert not archive_of(path).exists()
    with LifecycleStore(":memory:", capacity=ValueCap(1)) as brief:
        for name, importance in (("low", 0.1), ("high", 0.9)):
            brief.put(item(name), agent_id="a", importance=importance)
        assert ids(brief) == ["high"]
        assert brief.stats().enforcement_failures == 0


def test_failed_archiving_keeps_old_and_new_row(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(2), duplicates=NearDuplicate())
    store.put(item("first"), agent_id="a", importance=0.1, ttl=60)
    archive_of(path).mkdir()
    store.put(item("again", "first"), agent_id="a", importance=0.9)
    assert store.stats().enforcement_failures == 1
    store.put(item("third"), agent_id="a", importance=0.9)
    assert store.stats().enforcement_failures == 2
    assert archive_of(path).name in str(store.stats().last_failure)
    with pytest.raises(memlab.errors.ArchiveError):
        store.expire(START + HOUR)
    assert ids(store) == ["first", "again", "third"]
    assert store.stats().evicted == {}
    archive_of(path).rmdir()
    store.put(item("fourth"), agent_id="a", importance=0.9)
    assert archived_rows(path)["memory_id"].tolist() == ["first", "again"]


KILLED: dict[str, str] = {
    "before the deletion": "LifecycleStore._delete = stop",
    "after the deletion": "guarded.note_deleted = stop",
}
_WRITER = """
import os, signal, sys
from memlab.lifecycle import LifecycleStore, guarded
from memlab.policies import ValueCap
from tests.lifecycle.memories import START, item

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
store = LifecycleStore(sys.argv[1], capacity=ValueCap(1), clock=lambda: START)
store.put(item("high"), agent_id="a", importance=0.9)
"""


@pytest.mark.long
@pytest.mark.parametrize("patch", KILLED.values(), ids=KILLED)
def test_next_writer_cleans_up_after_a_killed_one(open_store: Open, path: Path, patch: str) -> None:
    open_store(capacity=ValueCap(1)).put(item("low"), agent_id="a", importance=0.1)
    assert run_program(_WRITER.format(patch=patch), path).returncode == -signal.SIGKILL
    (entry,) = archived_plans(path)
    assert entry.finished_at is None
    stored_ids = set(ids(SqliteMemoryStore(path))) - {"high"}
    archived_ids = set(archived_rows(path)["memory_id"])
    assert stored_ids | archived_ids == {"low"}
    store = open_store(capacity=ValueCap(1))
    store.put(item("higher"), agent_id="a", importance=1.0)
    assert ids(store) == ["higher"]
    assert archived_rows(path)["memory_id"].tolist() == ["low", "high"]
    assert all(entry.finished_at for entry in archived_plans(path))


def test_past_dates_each_eviction(path: Path) -> None:
    clock = [START]
    with LifecycleStore(path, capacity=ValueCap(2), clock=lambda: clock[0]) as store:
        for number in range(6):
            clock[0] += HOUR
            store.put(item(f"m{number}", at=clock[0]), agent_id="a")
        # Positions start again.
        run_sql(path, "DELETE FROM memory_items WHERE memory_id IN ('m4', 'm5')")
        for number in range(6, 9):
            clock[0] += HOUR
            store.put(item(f"m{number}", at=clock[0]), agent_id="a")
    past = memlab.load_past(path).set_index("memory_id")["deleted_at"]
    assert past.dropna().to_dict() == {
        "m0": START + 3 * HOUR,
        "m1": START + 4 * HOUR,
        "m2": START + 5 * HOUR,
        "m3": START + 6 * HOUR,
        "m6": START + 9 * HOUR,
    }
    assert list(past.index) == ["m0", "m1", "m2", "m3", "m6", "m7", "m8"]


def test_archive_list_shows_evictions_as_one_line(open_store: Open, path: Path) -> None:
    store = open_store(capacity=ValueCap(1))
    for number in range(8):
        store.put(item(f"m{number}"), agent_id="a")
    line, _, undo = output_of("archive", path).splitlines()
    assert "7 deletions of a runtime's own" in line
    assert "7 memories, 0 restored" in line
    assert undo.startswith("undo: memlab restore ")
    assert output_of("archive", path, "--rows").count("lowest-value") == 7
