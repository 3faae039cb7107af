"""An archive that memlab 0.1.0 made: it is read, restored from, added to and dropped.

``made_by_0_1_0`` holds what that version left on the disk. ``whole.db`` is a store of 16 memories
before anything was deleted, with text that is no UTF-8, blobs and signals among them; ``memory.db``
is the same store after a plan that kept 9 prunable memories (``plan.json``, ``receipt.json``),
after ``e2`` was restored from it, and after a plan that kept 6. A third plan was killed after its
two memories were archived and before they were deleted.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from invariants import archive_of, assert_sound, rows_of
from programs import run_program
from stores import run_sql, signals_of

import memlab
from memlab.compaction.applying import finish
from memlab.compaction.contents import (
    archived_plans,
    archived_rows,
    export_archived,
    last_applied,
)
from memlab.compaction.dropping import drop_archived
from memlab.compaction.plans import Plan
from memlab.compaction.receipts import Receipt
from memlab.diagnosis import Status
from memlab.doctor import diagnose
from memlab.errors import ArchiveError, PlanError
from memlab.evidence.past import load_past
from memlab.policies import KeepRecent
from memlab.store.archive_file import open_archive, read_archive
from memlab.store.archive_place import place_beside

MADE = Path(__file__).parent / "made_by_0_1_0"
NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)
FIRST, SECOND, THIRD = "4e58e510efc1", "968a391219fa", "5182b2f5f6af"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("memory.db", "memory.db.archive.db", "whole.db"):
        shutil.copyfile(MADE / name, tmp_path / name)
    return tmp_path / "memory.db"


@pytest.fixture
def whole(store: Path) -> Path:
    return store.with_name("whole.db")


def format_of(store: Path) -> int:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found


class TestReading:
    def test_plans_are_listed(self, store: Path) -> None:
        entries = archived_plans(store)
        assert [entry.digest[:12] for entry in entries] == [FIRST, SECOND, THIRD]
        assert [(e.memories, e.left, e.restored) for e in entries] == [
            (3, 3, 1), (4, 4, 0), (2, 2, 0),
        ]  # fmt: skip
        assert [bool(entry.finished_at) for entry in entries] == [True, True, False]

    def test_memories_are_listed_and_searched(self, store: Path) -> None:
        listed = archived_rows(store)["memory_id"].tolist()
        assert listed == ["e1", "e2", "e3", "e2", "e4", "e5", "e6", "e7", "e8"]
        assert archived_rows(store, search="zürich")["memory_id"].tolist() == ["e1"]

    def test_records_are_those_that_the_store_would_give(self, store: Path, whole: Path) -> None:
        source = memlab.sources.opening.open_source(whole)

        def records(archive):  # type: ignore[no-untyped-def]
            return dict(archive.records(archive.entry(SECOND)))

        found = read_archive(place_beside(store), records)
        with source.reading() as reader:
            assert dict(reader.records(found)) == found
        assert set(found) == {4, 40, 41, 49}

    def test_the_past_has_every_memory_that_ever_was(self, store: Path, whole: Path) -> None:
        past, before = load_past(store), memlab.load(whole)
        assert past["memory_id"].tolist() == before["memory_id"].tolist()
        assert past["chars"].tolist() == before["chars"].tolist()

    def test_an_export_holds_every_value(self, store: Path, tmp_path: Path) -> None:
        assert export_archived(store, tmp_path / "out.jsonl", digest=FIRST) == 3
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert lines[0]["memory_signals"][0]["importance"] == 0.1 + 0.2
        assert lines[1]["source_event_id"] == {"text": b"\xff\0no text".hex()}
        assert lines[2]["source_event_id"] == {"blob": b"\0\xfe blob".hex()}

    def test_the_last_plan_and_its_receipt_can_be_shown(self, store: Path) -> None:
        run_sql(archive_of(store), "DELETE FROM applies WHERE apply = 3")
        found = last_applied(store)
        assert found is not None
        plan, receipt = found
        assert plan.digest[:12] == receipt.digest[:12] == SECOND
        assert "4 of 14 memories" in str(plan)
        assert receipt.boot_before.memories == 13

    def test_looking_at_it_changes_nothing(self, store: Path, tmp_path: Path) -> None:
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        archived_plans(store)
        archived_rows(store)
        diagnose(store)
        memlab.plan(store, KeepRecent(1), now=NOON)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_the_doctor_sees_what_is_unfinished_and_what_is_damaged(self, store: Path) -> None:
        (found,) = [check for check in diagnose(store).checks if check.name == "archive"]
        assert found.status is Status.WARN
        assert f"plan {THIRD} was cut short: 2 memories archived, 2 of them not" in found.summary
        run_sql(archive_of(store), "UPDATE archived SET title = 'forged' WHERE position = 3")
        (found,) = [check for check in diagnose(store).checks if check.name == "archive"]
        assert "1 copies are not what was archived (position 3)" in found.summary


class TestWriting:
    def test_everything_is_restored_to_the_byte(self, store: Path, whole: Path) -> None:
        assert memlab.restore(SECOND, store=store) == 4
        assert memlab.restore(FIRST, store=store) == 2
        assert rows_of(store) == rows_of(whole)
        assert signals_of(store) == signals_of(whole)
        assert format_of(store) == 2

    def test_a_receipt_of_that_time_does_it_too(self, store: Path) -> None:
        receipt = Receipt.from_json((MADE / "receipt.json").read_text())
        assert receipt.boot_before.memories == 15
        assert memlab.restore(receipt, store=store) == 3  # e2 was restored and deleted again

    def test_restoring_into_a_new_file_works_too(
        self, store: Path, whole: Path, tmp_path: Path
    ) -> None:
        assert memlab.restore(FIRST, store=store, into=tmp_path / "back.db") == 3
        before = rows_of(whole)
        assert rows_of(tmp_path / "back.db") == {at: before[at] for at in (3, 4, 5)}

    def test_a_new_plan_is_applied_and_taken_back(self, store: Path, whole: Path) -> None:
        before = rows_of(store)
        receipt = memlab.apply(memlab.plan(store, KeepRecent(2), now=NOON), now=NOON)
        assert receipt.deleted == 4
        entries = archived_plans(store)
        # The one that was cut short before anything went was one copy too many.
        assert [e.digest[:12] for e in entries] == [FIRST, SECOND, receipt.digest[:12]]
        assert memlab.restore(receipt) == 4
        assert rows_of(store) == before
        assert memlab.restore(SECOND, store=store) + memlab.restore(FIRST, store=store) == 6
        assert rows_of(store) == rows_of(whole)

    def test_what_is_old_is_dropped(self, store: Path) -> None:
        dropped = drop_archived(store, before=datetime(2026, 3, 2, tzinfo=UTC))
        assert [entry.digest[:12] for entry in dropped.entries] == [FIRST]
        assert [entry.digest[:12] for entry in archived_plans(store)] == [SECOND, THIRD]
        assert format_of(store) == 2
        assert memlab.restore(SECOND, store=store) == 4

    def test_it_says_the_same_after_it_was_brought_up_to_date(self, store: Path) -> None:
        def everything(archive):  # type: ignore[no-untyped-def]
            return [
                (entry, archive.copies(entry), list(archive.records(entry)))
                for entry in archive.entries()
            ]

        before = read_archive(place_beside(store), everything)
        with open_archive(place_beside(store)):
            pass
        assert read_archive(place_beside(store), everything) == before
        assert_sound(archive_of(store))
        assert format_of(store) == 2

    def test_a_damaged_copy_stays_damaged_and_costs_no_other(self, store: Path) -> None:
        run_sql(archive_of(store), "UPDATE archived SET title = 'forged' WHERE position = 3")
        with pytest.raises(ArchiveError, match=r"copy of 3 in .* is not what was archived"):
            memlab.restore(FIRST, store=store)
        assert memlab.restore(FIRST, store=store, ids=["e3"]) == 1

    @pytest.mark.parametrize("copies", [1, 5])
    def test_one_that_is_killed_while_it_is_brought_up_to_date_is_as_before(
        self, store: Path, copies: int
    ) -> None:
        program = f"""
import os, signal, sys
from pathlib import Path
from memlab.store import archive_file, archive_tables
from memlab.store.archive_place import place_beside
made, read = 0, archive_tables.copies_of_1
def stopping(*arguments, **named):
    for number, copied in enumerate(read(*arguments, **named)):
        if number == {copies}:
            os.kill(os.getpid(), signal.SIGKILL)
        yield copied
archive_tables.copies_of_1 = stopping
with archive_file.open_archive(place_beside(Path(sys.argv[1]))):
    pass
"""
        assert run_program(program, store).returncode == -9
        assert len(archived_plans(store)) == 3
        assert memlab.restore(SECOND, store=store) == 4
        assert_sound(archive_of(store))


class TestPlans:
    def test_a_plan_of_that_time_can_be_shown_and_not_applied(self, store: Path) -> None:
        plan = Plan.from_json((MADE / "plan.json").read_text())
        assert plan.digest[:12] == FIRST
        assert [memory.memory_id for memory in plan.memories] == ["e1", "e2", "e3"]
        assert "3 of 16 memories" in str(plan)
        before = rows_of(store)
        with pytest.raises(PlanError, match=r"made by memlab 0\.1\.0.*make a new plan"):
            memlab.apply(plan, store=store)
        assert rows_of(store) == before

    def test_one_that_was_edited_is_refused(self) -> None:
        text = (MADE / "plan.json").read_text()
        with pytest.raises(PlanError, match="edited after it was made"):
            Plan.from_json(text.replace('"e1"', '"d1"'))

    def test_one_that_was_cut_short_is_not_finished_but_made_again(self, store: Path) -> None:
        with pytest.raises(PlanError, match="make a new plan"):
            finish(store, THIRD)
        memlab.apply(memlab.plan(store, KeepRecent(4), now=NOON), now=NOON)
        assert THIRD not in {entry.digest[:12] for entry in archived_plans(store)}
