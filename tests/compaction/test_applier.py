"""Applying a plan to a store file: what goes, what stays, and what stops it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from archives import NOON, compact_at_runtime, compacted, leave_unfinished, planned
from compaction.operations import StoppedError, retirement, stop_at, supersession
from hypothesis import given
from hypothesis import strategies as st
from invariants import archive_of, assert_compacted, assert_nothing_lost, copies_of, rows_of
from programs import run_program
from stores import Row, episodes, row, row_lists, run_sql, write_rows, write_signals

from memlab.compaction.applier import apply
from memlab.compaction.contents import archived_plans, last_applied
from memlab.compaction.plans import Plan, Receipt
from memlab.compaction.restorer import restore
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    CompactionError,
    MemlabError,
    StalePlanError,
)


class TestApplying:
    def test_a_second_time_is_refused_with_what_happened_first(self, store: Path) -> None:
        made = planned(store)
        receipt = apply(made, now=NOON)
        assert (receipt.deleted, receipt.applied_at) == (6, NOON)
        after = rows_of(store)
        with pytest.raises(AlreadyAppliedError) as caught:
            apply(made)
        assert str(caught.value) == (
            f"plan {made.digest[:12]} was applied on 2026-03-01 12:00 UTC: 6 memories are deleted "
            f"and archived in {archive_of(store)}; make a new plan"
        )
        assert rows_of(store) == after
        restore(receipt, ids=["e1", "e2"])
        with pytest.raises(AlreadyAppliedError, match="2 of them restored since"):
            apply(made)


STALE: list[tuple[Callable[[Path], Plan], str, list[str]]] = [
    *(
        (planned, f"UPDATE memory_items SET {change}", [memory_id])
        for change, memory_id in (
            ("title = 'new' WHERE memory_id = 'e3'", "e3"),
            ("superseded_by = 'e9' WHERE memory_id = 'e3'", "e3"),
            ("body = CAST(body AS BLOB) WHERE memory_id = 'e3'", "e3"),
            ("rowid = 100 WHERE memory_id = 'e3'", "e3"),
            ("tags_json = '[\"rejected-path\"]' WHERE rowid = 6", "e3"),
            ("superseded_by = 'd1' WHERE memory_id = 'e9'", "e9"),
        )
    ),
    (
        planned,
        "DELETE FROM memory_items WHERE memory_id LIKE 'e%'",
        [f"e{n}" for n in range(1, 11)],
    ),
    (planned, "DELETE FROM memory_items WHERE memory_id = 'e10'", ["e10"]),
    (planned, "UPDATE memory_signals SET access_count = 2 WHERE memory_id = 'e1'", ["e1"]),
    *(
        (make, f"{change} WHERE memory_id = '{memory_id}'", [memory_id])
        for make, ids in ((supersession, ("d1", "s1")), (retirement, ("e1", "e2", "e8")))
        for memory_id in ids
        for change in (
            "UPDATE memory_items SET body = 'x'",
            "UPDATE memory_items SET superseded_by = 'old'",
            "DELETE FROM memory_items",
        )
    ),
]
"""A plan, what somebody changes after it, and the memories of which it is stale then."""


class TestStalePlans:
    @pytest.mark.parametrize(("make", "change", "stale"), STALE)
    def test_what_a_plan_decided_on_and_changed_or_went_is_named_and_nothing_is_done(
        self, store: Path, make: Callable[[Path], Plan], change: str, stale: list[str]
    ) -> None:
        write_signals(store, "e1", importance=0.5, access_count=1)
        made = make(store)
        run_sql(store, change)
        before, archived = rows_of(store), copies_of(store)
        words = f"{', '.join(stale[:5])}{' and 5 more' * (len(stale) > 5)}"
        with pytest.raises(StalePlanError, match=rf"{len(stale)} \w+ \({words}\)") as caught:
            apply(made)
        assert caught.value.memory_ids == tuple(stale)
        assert (rows_of(store), copies_of(store)) == (before, archived)

    def test_rows_that_no_policy_chooses_among_may_change_and_come_and_kept_ones_be_used(
        self, store: Path
    ) -> None:
        write_signals(store, "e10", importance=0.5, access_count=1)
        made = planned(store)
        run_sql(
            store,
            "UPDATE memory_items SET title = 'new' WHERE memory_id = 'd1'",
            "DELETE FROM memory_items WHERE memory_id = 'old'",
        )
        write_rows(store, [row("d2", "semantic"), *episodes(5, start=11)])
        write_signals(store, "e10", importance=0.5, access_count=2)
        before = rows_of(store)
        assert apply(made).deleted == 6
        gone = {each.position for each in made.memories}
        assert rows_of(store) == {p: r for p, r in before.items() if p not in gone}


GREEDY = [
    "DELETE FROM memory_items WHERE memory_id = 'd1'",
    "DELETE FROM memory_items WHERE memory_id = 'e9'",
    "UPDATE memory_items SET title = '', body = '' WHERE memory_id = 'd1'",
    "UPDATE memory_items SET memory_id = 'd2' WHERE memory_id = 'd1'",
    "UPDATE memory_items SET superseded_by = NULL WHERE memory_id = 'old'",
    "UPDATE memory_items SET kind = 'semantic' WHERE memory_id = 'e9'",
    "INSERT OR REPLACE INTO memory_items SELECT * FROM memory_items WHERE rowid = 1",
    "SELECT RAISE(IGNORE)",
    "SELECT RAISE(ABORT, 'no')",
]


DELETING: dict[str, Callable[[Path], object]] = {
    "apply": compacted,
    "compact_episodic": partial(compact_at_runtime, archive=False),
    "compact_episodic and archive": compact_at_runtime,
}


@pytest.mark.parametrize("name", DELETING)
@pytest.mark.parametrize("action", GREEDY)
@pytest.mark.parametrize("moment", ["BEFORE", "AFTER"])
def test_a_trigger_that_touches_other_rows_costs_nothing(
    store: Path, action: str, moment: str, name: str
) -> None:
    run_sql(store, f"CREATE TRIGGER greedy {moment} DELETE ON memory_items BEGIN {action}; END")
    before = rows_of(store)
    if (action, moment) == ("SELECT RAISE(IGNORE)", "AFTER"):
        DELETING[name](store)  # too late to keep the row, so it does nothing
        assert_compacted(before, rows_of(store), 4)
        return
    words = "left 1 of 2 load-bearing rows" if action == GREEDY[0] else "trigger|SQLite says no"
    with pytest.raises(MemlabError, match=words):
        DELETING[name](store)
    assert rows_of(store) == before
    assert not archive_of(store).exists()


ON_OTHERS = {
    supersession: "UPDATE ON memory_items WHEN NEW.memory_id = 'd1'",
    retirement: "UPDATE ON memory_items WHEN NEW.memory_id = 'e2'",
    planned: "DELETE ON memory_signals",
}


@pytest.mark.parametrize("make", ON_OTHERS)
def test_a_trigger_on_an_update_or_on_the_side_table_rolls_all_back(
    store: Path, make: Callable[[Path], Plan]
) -> None:
    write_signals(store, "e1", importance=0.5)
    body = "BEGIN UPDATE memory_items SET body = 'gone' WHERE memory_id = 'old'; END"
    run_sql(store, f"CREATE TRIGGER t AFTER {ON_OTHERS[make]} {body}")
    made, before = make(store), rows_of(store)
    with pytest.raises(CompactionError, match="all was rolled back"):
        apply(made)
    assert rows_of(store) == before


KILLED_BEFORE_ITS_NOTE = """
import os, sys
from memlab.store.archive.archive import Archive
Archive.finish = lambda *_: os._exit(9)
from memlab.cli import main
main(['compact', sys.argv[1], '--keep-recent', '3', '--apply'])
"""


class TestCutShort:
    @pytest.mark.parametrize(("keep", "deleted"), [(3, 0), (1, 2)])
    def test_what_only_lacks_its_note_is_finished_and_said(
        self, store: Path, keep: int, deleted: int
    ) -> None:
        before, made = rows_of(store), planned(store, 3)
        assert run_program(KILLED_BEFORE_ITS_NOTE, store).returncode == 9
        digest = archived_plans(store)[0].digest
        receipt = compacted(store, keep)
        assert (receipt.deleted, receipt.finished) == (deleted, (digest,))
        assert f"undo: memlab restore {store} {digest[:12]}" in str(receipt)
        assert Receipt.from_json(receipt.to_json()) == receipt
        assert last_applied(store) is not None
        assert all(entry.finished_at for entry in archived_plans(store))
        assert compacted(store, keep).finished == ()
        assert_nothing_lost(before, store)
        assert restore(digest, store=store) == len(made.memories)

    def test_a_position_taken_again_does_not_hide_that_the_deletion_was_done(
        self, store: Path
    ) -> None:
        before, made = rows_of(store), planned(store, 0)
        with pytest.raises(StoppedError):
            apply(made, watch=stop_at("committed"))
        write_rows(store, [row("new")])
        assert max(rows_of(store)) <= max(before), "the new row must take a position again"
        after = rows_of(store)
        assert apply(made).deleted == 10
        assert rows_of(store) == after
        assert archived_plans(store)[0].finished_at is not None

    def test_what_another_process_deleted_meanwhile_stays_in_the_archive(self, store: Path) -> None:
        before, made = rows_of(store), planned(store)
        leave_unfinished(store, made)
        assert restore(made.digest, store=store) == 0
        run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e1', 'e2')")
        with pytest.raises(StalePlanError):
            apply(made)
        apply(planned(store, 2))
        assert_nothing_lost(before, store)
        assert restore(made.digest, store=store, ids=["e1", "e2"]) == 2


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o4755, 0o2660, 0o6777])
    def test_the_archive_has_the_permissions_of_its_store_and_runs_as_nobody(
        self, store: Path, mode: int
    ) -> None:
        store.chmod(mode)
        receipt = compacted(store)
        assert archive_of(store).stat().st_mode & 0o7777 == mode & 0o666
        restore(receipt, into=store.with_name("restored.db"))
        restored = store.with_name("restored.db").stat().st_mode & 0o7777
        assert restored & 0o600 == 0o600
        assert restored & ~(mode & 0o666) == 0  # nobody else, and no more than the umask lets

    def test_an_archive_that_more_may_read_than_the_store_is_refused(self, store: Path) -> None:
        compacted(store, 8)
        archive_of(store).chmod(0o644)
        store.chmod(0o600)
        before = rows_of(store)
        with pytest.raises(ArchiveError, match=r"more people than the store; .* chmod 600"):
            compacted(store)
        assert rows_of(store) == before
        archive_of(store).chmod(0o600)
        assert compacted(store).deleted == 4


def test_an_empty_file_in_an_archives_place_becomes_the_archive(store: Path) -> None:
    archive_of(store).touch()
    assert last_applied(store) is None
    before = rows_of(store)
    assert restore(compacted(store)) == 6
    assert rows_of(store) == before


@given(rows=row_lists(), keep=st.integers(0, 12), chosen=st.sets(st.integers(0, 11)))
def test_a_plan_deletes_what_compact_episodic_deletes_and_all_or_some_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], keep: int, chosen: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    store = write_rows(folder / "memory.db", rows)
    other = write_rows(folder / "compacted.db", rows)
    before, made = rows_of(store), planned(store, keep)
    receipt = apply(made)
    assert compact_at_runtime(other, keep, archive=False) == receipt.deleted
    assert rows_of(store) == rows_of(other)
    assert_compacted(before, rows_of(store), keep)
    assert_nothing_lost(before, store)
    if receipt.deleted:
        some = [each for number, each in enumerate(made.memories) if number in chosen]
        assert restore(receipt, ids=[each.memory_id for each in some]) == len(some)
        away = {each.position for each in made.memories if each not in some}
        assert rows_of(store) == {p: found for p, found in before.items() if p not in away}
        assert restore(receipt) == receipt.deleted - len(some)
    else:
        assert not archive_of(store).exists()
    assert rows_of(store) == before
