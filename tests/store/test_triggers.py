"""Other tables of the agent: triggers and foreign keys that depend on memories."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memlab.compaction import Plan, apply, plan, plan_supersession, restore
from memlab.errors import StalePlanError, UnsafeDeletionError
from memlab.lifecycle import LifecycleStore
from memlab.policies import KeepRecent, ValueCap
from memlab.store import SqliteMemoryStore
from memlab.store.archive.location import archive_path
from memlab.store.signals import CREATE_SIGNALS
from tests.support.archives import NOON, planned
from tests.support.stores import episodes, files_in, item, row, run_sql, write_rows

FTS = (
    "CREATE VIRTUAL TABLE words USING fts5 (title, body, content = '')",
    """
    CREATE TRIGGER words_in AFTER INSERT ON memory_items BEGIN
        INSERT INTO words (rowid, title, body) VALUES (new.rowid, new.title, new.body);
    END""",
    """
    CREATE TRIGGER words_out AFTER DELETE ON memory_items BEGIN
        INSERT INTO words (words, rowid, title, body)
        VALUES ('delete', old.rowid, old.title, old.body);
    END""",
)
NOTES = (
    "CREATE TABLE notes (memory_id TEXT, words TEXT)",
    "INSERT INTO notes VALUES ('e1', 'mine'), ('e2', 'mine'), ('e9', 'mine')",
)
LOSING = {
    "deletes": "DELETE FROM notes WHERE memory_id = old.memory_id",
    "updates": "UPDATE notes SET words = '' WHERE memory_id = old.memory_id",
    "replaces": "INSERT OR REPLACE INTO notes VALUES (old.memory_id, '')",
    "writes over": "REPLACE INTO notes VALUES (old.memory_id, '')",
}


def content(store: Path, *tables: str) -> list[list[Any]]:
    with closing(sqlite3.connect(store)) as connection:
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def on_delete(action: str) -> str:
    return f"CREATE TRIGGER greedy AFTER DELETE ON memory_items BEGIN {action}; END"


def assert_refused(store: Path, act: Callable[[], object], message: str, *tables: str) -> None:
    """Assert that a call is rejected with advice and changes nothing."""
    before = content(store, "memory_items", *tables)
    archived = archive_path(store).exists()
    with pytest.raises(UnsafeDeletionError, match=message):
        act()
    assert content(store, "memory_items", *tables) == before
    assert archive_path(store).exists() == archived


def compact(store: Path, *, archive: bool, enforced: int = 0) -> None:
    with SqliteMemoryStore(store, archive=archive) as opened:
        opened.connection.execute(f"PRAGMA foreign_keys = {enforced}")
        opened.compact_episodic(2)


@pytest.mark.parametrize("action", LOSING.values(), ids=LOSING)
def test_trigger_that_deletes_from_another_table_is_rejected(store: Path, action: str) -> None:
    plan = planned(store)
    run_sql(store, *NOTES, on_delete(action))
    assert_refused(store, lambda: planned(store), "trigger greedy .* the table notes", "notes")
    assert_refused(store, lambda: apply(plan), "the table notes", "notes")
    for archive in (True, False):
        run = partial(compact, store, archive=archive)
        assert_refused(store, run, "the table notes", "notes")


@pytest.mark.parametrize("setting_off", ["gone", "memory_signals"])
def test_indirect_trigger_is_found(store: Path, setting_off: str) -> None:
    behind = "CREATE TRIGGER behind AFTER {} BEGIN DELETE FROM notes; END"
    run_sql(store, *NOTES, "CREATE TABLE gone (memory_id)", CREATE_SIGNALS)
    if setting_off == "gone":
        run_sql(store, on_delete("INSERT INTO gone VALUES (old.memory_id)"))
        run_sql(store, behind.format("INSERT ON gone"))
    else:
        run_sql(store, behind.format("DELETE ON memory_signals"))
    with pytest.raises(UnsafeDeletionError, match="trigger behind deletes from the table notes"):
        planned(store)


def test_rows_inserted_by_triggers_are_part_of_the_plan(store: Path) -> None:
    early = planned(store)
    run_sql(store, "CREATE TABLE gone (memory_id)")
    run_sql(store, on_delete("INSERT INTO gone VALUES (old.memory_id)"))
    before = files_in(store.parent)
    with pytest.raises(StalePlanError, match="triggers of the store do other things"):
        apply(early)
    assert files_in(store.parent) == before
    retires = plan(store, KeepRecent(9), retire=True, now=NOON)
    assert retires.trigger_effects == ()
    assert apply(retires).retired == 1
    restore(retires.digest, store=store)
    new_plan = planned(store)
    assert [tuple(effect) for effect in new_plan.trigger_effects] == [
        ("greedy", "inserts into", "gone")
    ]
    assert "inserts into" in str(new_plan)
    assert Plan.from_json(new_plan.to_json()) == new_plan
    apply(new_plan)
    assert content(store, "gone") == [[(f"e{number}",) for number in range(1, 7)]]


def test_full_text_index_follows_deletion_and_restore(store: Path) -> None:
    path = write_rows(store.with_name("indexed.db"), [])
    run_sql(
        path,
        *FTS,
        "CREATE TABLE counts (n)",
        "INSERT INTO counts VALUES (0)",
        "CREATE TRIGGER up AFTER INSERT ON memory_items BEGIN UPDATE counts SET n = n + 1; END",
        on_delete("UPDATE counts SET n = n - 1"),
    )
    write_rows(path, episodes(10))
    tables = ("words ('e3')", "counts")
    contents = content(path, *tables)
    assert contents == [[(None, None)], [(10,)]]
    receipt = apply(planned(path))
    assert content(path, *tables) == [[], [(4,)]]
    restore(receipt)
    assert content(path, *tables) == contents


def test_restore_that_triggers_deletions_elsewhere_is_rejected(store: Path) -> None:
    write_rows(store, [row("d2", "semantic")])
    receipt = apply(planned(store))
    link = plan_supersession(store, {"d1": "d2"})
    greedy = "CREATE TRIGGER {0}_greedy AFTER {0} ON memory_items BEGIN DELETE FROM notes; END"
    run_sql(store, *NOTES, *(greedy.format(event) for event in ("INSERT", "UPDATE")))
    for act, what in (
        (lambda: restore(receipt), "comes back"),
        (lambda: apply(link), "is superseded"),
    ):
        assert_refused(store, act, f"the table notes when a memory {what}", "notes")


class TestForeignKey:
    @pytest.fixture(params=["", "ON DELETE CASCADE", "ON DELETE SET NULL"])
    def tied(self, store: Path, request: pytest.FixtureRequest) -> Path:
        run_sql(
            store,
            f"CREATE TABLE vectors (of TEXT REFERENCES Memory_Items {request.param}, v BLOB)",
            "INSERT INTO vectors VALUES ('e2', x'01'), ('e3', x'02'), ('e10', x'03')",
        )
        return store

    @pytest.mark.parametrize("enforced", [0, 1])
    def test_foreign_key_on_a_deleted_row_is_rejected(self, tied: Path, enforced: int) -> None:
        assert_refused(tied, lambda: planned(tied), "2 rows of the table vectors", "vectors")
        for archive in (True, False):
            run = partial(compact, tied, archive=archive, enforced=enforced)
            assert_refused(tied, run, "rows of the table vectors", "vectors")

    def test_foreign_key_on_a_kept_row_is_allowed(self, tied: Path) -> None:
        run_sql(tied, "DELETE FROM vectors WHERE of <> 'e10'")
        apply(planned(tied))
        assert content(tied, "vectors") == [[("e10", b"\x03")]]

    def test_foreign_key_added_after_planning_is_rejected(self, store: Path) -> None:
        plan = planned(store)
        run_sql(
            store,
            "CREATE TABLE pairs (a TEXT, b TEXT, PRIMARY KEY (a, b), "
            "FOREIGN KEY (b) REFERENCES memory_items (memory_id))",
            "INSERT INTO pairs VALUES ('x', 'e4')",
        )
        assert_refused(store, lambda: apply(plan), "1 row of the table pairs")

    @pytest.mark.parametrize("archive", [True, False])
    def test_foreign_key_prevents_eviction_by_a_lifecycle_store(
        self, tmp_path: Path, archive: bool
    ) -> None:
        path = tmp_path / "life.db"
        with LifecycleStore(path, capacity=ValueCap(2), archive=archive) as opened:
            opened.connection.execute(
                "CREATE TABLE vectors (of REFERENCES memory_items ON DELETE CASCADE)"
            )
            opened.connection.execute("INSERT INTO vectors VALUES ('e1')")
            for name in ("e1", "e2", "e3"):
                opened.put(item(name), agent_id="a")
            assert opened.get("e1") is not None
            assert opened.stats().enforcement_failures == 1
