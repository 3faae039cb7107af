"""Applying a plan to a store file: what goes, what stays, and what stops it."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from archives import NOON, leave_unfinished, planned
from hypothesis import given
from hypothesis import strategies as st
from invariants import (
    archive_of,
    assert_compacted,
    assert_nothing_lost,
    copies_of,
    rows_of,
)
from stores import (
    Row,
    episodes,
    row,
    row_lists,
    run_sql,
    write_rows,
    write_signals,
)

from memlab.compaction.applier import ApplyStep, apply, finish
from memlab.compaction.contents import archived_plans
from memlab.compaction.planner import plan
from memlab.compaction.plans import Plan
from memlab.compaction.restorer import restore
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    CompactionError,
    MemlabError,
    StalePlanError,
)
from memlab.policies import KeepAll, KeepRecent, PurgeSuperseded
from memlab.store import SqliteMemoryStore


class StoppedError(Exception):
    """Raised at a step, as if the process had been stopped there."""


def stop_at(step: str):  # type: ignore[no-untyped-def]
    def watch(done: str) -> None:
        if done == step:
            raise StoppedError(step)

    return watch


class TestApplying:
    def test_it_deletes_exactly_what_the_plan_names(self, store: Path) -> None:
        before = rows_of(store)
        receipt = apply(planned(store), now=NOON)
        assert_compacted(before, rows_of(store), 4)
        assert_nothing_lost(before, store)
        assert receipt.deleted == 6
        assert receipt.digest == planned_digest(store)
        assert receipt.applied_at == NOON

    def test_a_plan_read_from_its_file_works_the_same(self, store: Path) -> None:
        before = rows_of(store)
        apply(Plan.from_json(planned(store).to_json()))
        assert_compacted(before, rows_of(store), 4)

    def test_a_second_time_is_refused_with_what_happened_first(self, store: Path) -> None:
        made = planned(store)
        apply(made, now=NOON)
        after = rows_of(store)
        with pytest.raises(AlreadyAppliedError) as caught:
            apply(made)
        assert str(caught.value) == (
            f"plan {made.digest[:12]} was applied on 2026-03-01 12:00 UTC: 6 memories are deleted "
            f"and archived in {archive_of(store)}; make a new plan"
        )
        assert rows_of(store) == after

    def test_after_a_restore_the_refusal_says_so(self, store: Path) -> None:
        made = planned(store)
        restore(apply(made, now=NOON), ids=["e1", "e2"])
        with pytest.raises(AlreadyAppliedError, match="2 of them restored since"):
            apply(made)

    def test_a_plan_that_deletes_nothing_writes_nothing(self, store: Path) -> None:
        made, before = plan(store, KeepAll(), now=NOON), store.read_bytes()
        receipt = apply(made)
        assert (receipt.deleted, receipt.archive) == (0, None)
        assert store.read_bytes() == before
        assert not archive_of(store).exists()

    def test_superseded_rows_can_go_too(self, store: Path) -> None:
        made = plan(store, PurgeSuperseded(timedelta(0)), now=NOON + timedelta(seconds=1))
        assert [each.memory_id for each in made.memories] == ["old"]
        before = rows_of(store)
        assert restore(apply(made)) == 1
        assert rows_of(store) == before

    def test_a_copy_of_the_store_can_be_named_instead(self, store: Path, tmp_path: Path) -> None:
        made, before = planned(store), rows_of(store)
        other = tmp_path / "elsewhere.db"
        other.write_bytes(store.read_bytes())
        assert apply(made, store=other).store == str(other)
        assert_compacted(before, rows_of(other), 4)
        assert rows_of(store) == before

    def test_a_store_with_a_rollback_journal_works_too(self, tmp_path: Path) -> None:
        store = write_rows(tmp_path / "memory.db", episodes(10), journal_mode="DELETE")
        before = rows_of(store)
        assert restore(apply(planned(store))) == 6
        assert rows_of(store) == before

    def test_a_name_with_every_odd_character_works_too(self, store: Path, tmp_path: Path) -> None:
        odd = tmp_path / "a ?#%25'\"é;.db"
        store.rename(odd)
        before = rows_of(odd)
        assert restore(apply(planned(odd))) == 6
        assert rows_of(odd) == before

    def test_a_link_shares_the_archive_of_its_store(self, store: Path, tmp_path: Path) -> None:
        link = tmp_path / "linked" / "link.db"
        link.parent.mkdir()
        link.symlink_to(store)
        assert apply(planned(link)).archive == str(archive_of(store))

    def test_the_store_may_be_open_elsewhere(self, store: Path) -> None:
        with SqliteMemoryStore(store) as opened:
            apply(planned(store))
            assert len(opened.list_active()) == 6


def planned_digest(store: Path) -> str:
    (entry,) = archived_plans(store)
    return entry.digest


class TestStalePlans:
    @pytest.mark.parametrize(
        ("change", "stale"),
        [
            ("UPDATE memory_items SET title = 'new' WHERE memory_id = 'e3'", ["e3"]),
            ("UPDATE memory_items SET superseded_by = 'e9' WHERE memory_id = 'e3'", ["e3"]),
            ("UPDATE memory_items SET body = CAST(body AS BLOB) WHERE memory_id = 'e3'", ["e3"]),
            ("UPDATE memory_items SET rowid = 100 WHERE memory_id = 'e3'", ["e3"]),
            ("UPDATE memory_items SET tags_json = '[\"rejected-path\"]' WHERE rowid = 6", ["e3"]),
            ("DELETE FROM memory_items WHERE memory_id IN ('e2', 'e3')", ["e2", "e3"]),
            ("DELETE FROM memory_items WHERE memory_id = 'e10'", ["e10"]),
            ("UPDATE memory_items SET superseded_by = 'd1' WHERE memory_id = 'e9'", ["e9"]),
        ],
    )
    def test_a_row_changed_or_gone_is_named_and_nothing_is_deleted(
        self, store: Path, change: str, stale: list[str]
    ) -> None:
        made = planned(store)
        run_sql(store, change)
        before = rows_of(store)
        with pytest.raises(StalePlanError, match=stale[0]) as caught:
            apply(made)
        assert caught.value.memory_ids == tuple(stale)
        assert rows_of(store) == before
        assert not archive_of(store).exists()

    def test_rows_added_since_do_not_make_a_plan_stale(self, store: Path) -> None:
        made = planned(store)
        write_rows(store, [row("d2", "semantic"), *episodes(5, start=11)])
        before = rows_of(store)
        assert apply(made).deleted == 6
        gone = {each.position for each in made.memories}
        assert rows_of(store) == {p: r for p, r in before.items() if p not in gone}

    def test_rows_that_no_policy_chooses_among_may_change(self, store: Path) -> None:
        made = planned(store)
        run_sql(
            store,
            "UPDATE memory_items SET title = 'new' WHERE memory_id = 'd1'",
            "DELETE FROM memory_items WHERE memory_id = 'old'",
        )
        assert apply(made).deleted == 6

    def test_a_row_used_since_is_not_deleted(self, store: Path) -> None:
        write_signals(store, "e1", importance=0.5, access_count=1)
        made = planned(store)
        write_signals(store, "e1", importance=0.5, access_count=2)
        with pytest.raises(StalePlanError, match=r"1 changed \(e1\)"):
            apply(made)

    def test_many_rows_are_counted(self, store: Path) -> None:
        made = planned(store, 0)
        run_sql(store, "DELETE FROM memory_items WHERE memory_id LIKE 'e%'")
        with pytest.raises(StalePlanError, match=r"10 gone \(e1, e2, e3, e4, e5 and 5 more\)"):
            apply(made)

    def test_a_memory_that_is_kept_may_be_used_meanwhile(self, store: Path) -> None:
        write_signals(store, "e10", importance=0.5, access_count=1)
        made = planned(store)
        write_signals(store, "e10", importance=0.5, access_count=2)
        assert apply(made).deleted == 6

    def test_a_plan_is_of_one_moment_though_somebody_writes_while_it_is_made(
        self, store: Path
    ) -> None:
        class Meddler(KeepRecent):
            """A policy while which somebody writes."""

            def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
                run_sql(store, "UPDATE memory_items SET title = 'new' WHERE rowid = 4")
                return super().evict(rows, now=now)

        with closing(sqlite3.connect(store)) as connection:
            connection.execute("SELECT * FROM memory_items")  # somebody has the store open
            made = plan(store, Meddler(4), now=NOON)
        assert made.memories[0].title == "title of e1"
        with pytest.raises(StalePlanError, match=r"1 changed \(e1\)"):
            apply(made)

    def test_a_plan_of_a_store_that_nobody_has_open_is_made_again_when_somebody_writes(
        self, store: Path
    ) -> None:
        writes = iter(["new"])

        class Meddler(KeepRecent):
            """A policy while which somebody writes once, and closes the store again."""

            def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
                if title := next(writes, None):
                    run_sql(store, f"UPDATE memory_items SET title = '{title}' WHERE rowid = 4")
                return super().evict(rows, now=now)

        made = plan(store, Meddler(4), now=NOON)
        assert made.memories[0].title == "new"
        assert apply(made).deleted == 6


class TestTriggers:
    @pytest.mark.parametrize(
        "action",
        [
            "DELETE FROM memory_items WHERE memory_id = 'd1'",
            "DELETE FROM memory_items WHERE memory_id = 'e9'",
            "UPDATE memory_items SET body = '' WHERE memory_id = 'd1'",
            "UPDATE memory_items SET body = '' WHERE memory_id = 'old'",
            "UPDATE memory_items SET kind = 'semantic' WHERE memory_id = 'e9'",
            "INSERT OR REPLACE INTO memory_items SELECT * FROM memory_items WHERE rowid = 1",
            "SELECT RAISE(IGNORE)",
            "SELECT RAISE(ABORT, 'no')",
        ],
    )
    @pytest.mark.parametrize("moment", ["BEFORE", "AFTER"])
    def test_a_trigger_that_touches_other_rows_costs_nothing(
        self, store: Path, action: str, moment: str
    ) -> None:
        made = planned(store)
        run_sql(store, f"CREATE TRIGGER greedy {moment} DELETE ON memory_items BEGIN {action}; END")
        before = rows_of(store)
        if (action, moment) == ("SELECT RAISE(IGNORE)", "AFTER"):
            apply(made)  # too late to keep the row, so it does nothing
            assert_compacted(before, rows_of(store), 4)
            return
        with pytest.raises(MemlabError):
            apply(made)
        assert rows_of(store) == before
        assert copies_of(store) == {}

    def test_a_trigger_on_the_side_table_costs_nothing_either(self, store: Path) -> None:
        write_signals(store, "e1", importance=0.5)
        run_sql(
            store,
            "CREATE TRIGGER sly AFTER DELETE ON memory_signals BEGIN "
            "UPDATE memory_items SET body = '' WHERE memory_id = 'd1'; END",
        )
        made, before = planned(store), rows_of(store)
        with pytest.raises(CompactionError, match="all was rolled back"):
            apply(made)
        assert rows_of(store) == before

    def test_a_trigger_that_keeps_an_index_of_its_own_may_do_so(self, store: Path) -> None:
        run_sql(
            store,
            "CREATE TABLE gone (memory_id)",
            "CREATE TRIGGER note AFTER DELETE ON memory_items BEGIN "
            "INSERT INTO gone VALUES (old.memory_id); END",
        )
        before = rows_of(store)
        apply(planned(store))
        assert_compacted(before, rows_of(store), 4)

    def test_a_trigger_that_alters_what_comes_back_costs_nothing(self, store: Path) -> None:
        receipt = apply(planned(store))
        run_sql(
            store,
            "CREATE TRIGGER censor AFTER INSERT ON memory_items BEGIN "
            "UPDATE memory_items SET body = '' WHERE memory_id = new.memory_id; END",
        )
        before = rows_of(store)
        with pytest.raises(ArchiveError, match="all was rolled back"):
            restore(receipt)
        assert rows_of(store) == before


class TestBeingStopped:
    def test_copies_that_were_not_needed_are_dropped_again(self, store: Path) -> None:
        with pytest.raises(StoppedError):
            apply(planned(store), watch=stop_at(ApplyStep.DELETED))
        assert copies_of(store) == {}

    def test_a_plan_cut_short_can_be_finished_from_the_archive(self, store: Path) -> None:
        before = rows_of(store)
        leave_unfinished(store, planned(store))
        receipt = finish(store, planned_digest(store)[:8], now=NOON)
        assert_compacted(before, rows_of(store), 4)
        assert restore(receipt) == 6
        assert rows_of(store) == before

    def test_another_plan_clears_up_copies_of_rows_that_are_there(self, store: Path) -> None:
        before = rows_of(store)
        leave_unfinished(store, planned(store))
        receipt = apply(planned(store, 2))
        assert planned_digest(store) == receipt.digest
        assert_nothing_lost(before, store)

    def test_another_plan_keeps_copies_of_rows_that_are_gone(self, store: Path) -> None:
        before, made = rows_of(store), planned(store)
        with pytest.raises(StoppedError):
            apply(made, watch=stop_at(ApplyStep.COMMITTED))
        apply(planned(store, 2))
        assert_nothing_lost(before, store)
        assert all(entry.finished_at for entry in archived_plans(store))
        with pytest.raises(AlreadyAppliedError):
            apply(made)

    def test_a_position_taken_again_does_not_hide_that_the_deletion_was_done(
        self, store: Path
    ) -> None:
        before, made = rows_of(store), planned(store, 0)
        with pytest.raises(StoppedError):
            apply(made, watch=stop_at(ApplyStep.COMMITTED))
        write_rows(store, [row("new")])
        assert max(rows_of(store)) <= max(before), "the new row must take a position again"
        after = rows_of(store)
        assert apply(made).deleted == 10
        assert rows_of(store) == after
        assert archived_plans(store)[0].finished_at is not None

    def test_a_restore_after_a_stop_leaves_a_record_of_both(self, store: Path) -> None:
        before, made = rows_of(store), planned(store)
        with pytest.raises(StoppedError):
            apply(made, watch=stop_at(ApplyStep.COMMITTED))
        assert restore(made.digest, store=store) == 6
        assert rows_of(store) == before
        apply(planned(store, 2))
        assert [(e.memories, e.restored, bool(e.finished_at)) for e in archived_plans(store)] == [
            (6, 6, True),
            (8, 0, True),
        ]

    def test_restoring_what_was_archived_and_not_deleted_restores_nothing(
        self, store: Path
    ) -> None:
        before, made = rows_of(store), planned(store)
        leave_unfinished(store, made)
        assert restore(made.digest, store=store) == 0
        assert rows_of(store) == before

    def test_rows_that_another_process_deleted_meanwhile_stay_in_the_archive(
        self, store: Path
    ) -> None:
        before, made = rows_of(store), planned(store)
        leave_unfinished(store, made)
        run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e1', 'e2')")
        with pytest.raises(StalePlanError):
            apply(made)
        apply(planned(store, 2))
        assert_nothing_lost(before, store)
        assert restore(made.digest, store=store, ids=["e1", "e2"]) == 2


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
    def test_the_archive_has_the_permissions_of_its_store(self, store: Path, mode: int) -> None:
        store.chmod(mode)
        receipt = apply(planned(store))
        assert archive_of(store).stat().st_mode & 0o777 == mode
        restore(receipt, into=store.with_name("restored.db"))
        restored = store.with_name("restored.db").stat().st_mode & 0o777
        assert restored & 0o600 == 0o600
        assert restored & ~mode == 0  # nobody else, and no more than the umask lets

    @pytest.mark.parametrize("mode", [0o4755, 0o2660, 0o6777])
    def test_no_archive_runs_as_whom_its_store_belongs_to(self, store: Path, mode: int) -> None:
        store.chmod(mode)
        apply(planned(store))
        assert archive_of(store).stat().st_mode & 0o7777 == mode & 0o666

    def test_an_archive_that_more_may_read_than_the_store_is_refused(self, store: Path) -> None:
        apply(planned(store, 8))
        archive_of(store).chmod(0o644)
        store.chmod(0o600)
        before = rows_of(store)
        with pytest.raises(ArchiveError, match=r"more people than the store; .* chmod 600"):
            apply(planned(store))
        assert rows_of(store) == before
        archive_of(store).chmod(0o600)
        assert apply(planned(store)).deleted == 4

    def test_a_file_that_a_link_in_the_archives_place_points_to_is_left_alone(
        self, store: Path, tmp_path: Path
    ) -> None:
        private = tmp_path / "private"
        private.write_text("somebody's")
        private.chmod(0o600)
        archive_of(store).symlink_to(private)
        before = rows_of(store)
        with pytest.raises(ArchiveError):
            apply(planned(store))
        assert rows_of(store) == before
        assert (private.read_text(), private.stat().st_mode & 0o777) == ("somebody's", 0o600)


class TestForeignArchives:
    def test_a_file_in_the_archives_place_is_refused_and_kept(self, store: Path) -> None:
        archive_of(store).write_bytes(b"somebody's notes")
        before = rows_of(store)
        with pytest.raises(ArchiveError, match=r"not an archive.*move it away"):
            apply(planned(store))
        assert rows_of(store) == before
        assert archive_of(store).read_bytes() == b"somebody's notes"

    def test_another_database_in_its_place_is_refused(self, store: Path) -> None:
        run_sql(archive_of(store), "CREATE TABLE applies (x)")
        before = rows_of(store)
        with pytest.raises(ArchiveError, match="is no archive of format 2"):
            apply(planned(store))
        assert rows_of(store) == before

    def test_an_archive_of_a_later_format_is_refused(self, store: Path) -> None:
        receipt = apply(planned(store))
        run_sql(archive_of(store), "PRAGMA user_version = 3")
        after = rows_of(store)
        with pytest.raises(
            ArchiveError,
            match=r"format 2 \(it says 3\); nothing in it is lost: move it away and keep it",
        ):
            restore(receipt)
        with pytest.raises(
            ArchiveError,
            match=r"format 2 \(it says 3\); nothing in it is lost: move it away and keep it",
        ):
            apply(planned(store, 1))
        assert rows_of(store) == after

    def test_an_empty_file_in_its_place_becomes_the_archive(self, store: Path) -> None:
        archive_of(store).touch()
        before = rows_of(store)
        assert restore(apply(planned(store))) == 6
        assert rows_of(store) == before

    def test_copies_that_were_tampered_with_do_not_come_back(self, store: Path) -> None:
        receipt = apply(planned(store))
        run_sql(
            archive_of(store),
            "UPDATE archived SET record = replace(record, 'title of e1', 'forged')",
        )
        after = rows_of(store)
        with pytest.raises(
            ArchiveError,
            match=r"key 4 of plan \w+ \(its record is not what was archived\); nothing was rest",
        ):
            restore(receipt)
        assert rows_of(store) == after


@given(rows=row_lists(), keep=st.integers(0, 12))
def test_a_plan_deletes_what_compact_episodic_deletes_and_all_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], keep: int
) -> None:
    folder = tmp_path_factory.mktemp("random")
    store = write_rows(folder / "memory.db", rows)
    other = write_rows(folder / "compacted.db", rows)
    before = rows_of(store)
    receipt = apply(plan(store, KeepRecent(keep), now=NOON))
    with SqliteMemoryStore(other) as compacted:
        assert compacted.compact_episodic(keep) == receipt.deleted
    assert rows_of(store) == rows_of(other)
    assert_compacted(before, rows_of(store), keep)
    assert_nothing_lost(before, store)
    if receipt.deleted:
        assert restore(receipt) == receipt.deleted
    assert rows_of(store) == before


@pytest.mark.parametrize("name", ["history-uv", "agent-store6"])
def test_real_stores_come_back_row_by_row(real_store, name: str) -> None:  # type: ignore[no-untyped-def]
    store = real_store(name)
    before = rows_of(store)
    receipt = apply(plan(store, KeepRecent(50), now=NOON))
    assert_compacted(before, rows_of(store), 50)
    assert_nothing_lost(before, store)
    assert restore(receipt) == receipt.deleted
    assert rows_of(store) == before
