"""The doctor finds what is wrong with a store, says what to do, and changes nothing."""

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from archives import leave_unfinished
from hypothesis import given
from hypothesis import strategies as st
from invariants import archive_of, rows_of
from stores import RawText, episodes, row, run_sql, write_rows

from memlab.compaction.applier import ApplyStep, apply, finish
from memlab.compaction.drops import drop_archived
from memlab.compaction.planner import plan
from memlab.compaction.restorer import RestoreStep, restore
from memlab.policies import KeepRecent
from memlab.settings import FILE
from memlab.upkeep.health import Check, Diagnosis, Status, doctor

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    floor = [row("d1", "semantic"), row("s1", "procedural"), row("r1", "episodic", "rejected-path")]
    return write_rows(tmp_path / "memory.db", [*floor, *episodes(10)])


def check(diagnosis: Diagnosis, name: str) -> Check:
    (found,) = [each for each in diagnosis.checks if each.name == name]
    return found


def cut_short(store: Path, keep: int = 4) -> str:
    """Archive what a plan names and die before it is deleted."""
    made = plan(store, KeepRecent(keep), now=NOON)
    leave_unfinished(store, made)
    return made.digest[:12]


def test_a_sound_store_passes_every_check(store: Path) -> None:
    diagnosis = doctor(store)
    names = "memory_integrity sqlite_integrity rows tags supersession insertion_order space archive"
    assert [each.name for each in diagnosis.checks] == names.split()
    assert {each.status for each in diagnosis.checks} == {Status.OK}
    assert diagnosis.status is Status.OK


def test_it_counts_what_an_agent_loads(store: Path) -> None:
    write_rows(store, [row("old", superseded_by="e1")])
    assert check(doctor(store), "memory_integrity").counts == {
        "decisions": 1,
        "skills": 1,
        "rejected_paths": 1,
        "episodes": 11,
        "prunable": 10,
        "superseded": 1,
    }


@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize(("cap", "status"), [(10, Status.OK), (9, Status.WARN)])
def test_a_backlog_above_the_threshold_or_the_remembered_cap_is_a_warning_with_its_command(
    store: Path, cap: int, status: Status, remembered: bool
) -> None:
    if remembered:
        (store.parent / "memlab.toml").write_text(f'policy = {{ name = "recent", keep = {cap} }}\n')
    found = check(doctor(store, backlog=None if remembered else cap), "memory_integrity")
    assert found.status is status
    command = f"memlab compact {store} --keep-recent {cap}"
    assert (command in found.advice) is (status is Status.WARN)


def test_where_no_cap_is_remembered_it_says_what_forge_loops_own_doctor_would(store: Path) -> None:
    write_rows(store, episodes(40, start=100))
    assert check(doctor(store), "memory_integrity").advice == ""
    write_rows(store, episodes(1, start=200))
    found = check(doctor(store), "memory_integrity")
    assert found.status is Status.OK
    assert "no cap is remembered" in found.advice
    assert "forge-loop's own doctor warns above 50" in found.advice
    assert check(doctor(store, backlog=60), "memory_integrity").advice == ""
    (store.parent / FILE).write_text('policy = { name = "learned", max_tokens = 9000 }\n')
    assert check(doctor(store), "memory_integrity").advice == ""


@pytest.mark.parametrize(
    "tag",
    ["Rejected-Path", "rejected_path", "rejected-path ", "rejected paths", "rejected\u2011path"],
)
def test_a_tag_that_looks_like_one_that_protects_is_a_warning(store: Path, tag: str) -> None:
    assert check(doctor(store), "tags").status is Status.OK
    write_rows(store, [row("a", "episodic", tag), row("b", "episodic", tag, "failed")])
    found = check(doctor(store), "tags")
    assert found.status is Status.WARN
    assert found.counts == {"alike": 2}
    assert f"2 tagged {tag!r}, which is not 'rejected-path'" in found.summary
    (store.parent / "memlab.toml").write_text(f"protected_tags = [{json.dumps(tag)}]\n")
    assert check(doctor(store), "tags").status is Status.OK
    write_rows(store, [row("c", "episodic", tag.upper())])
    assert f"1 tagged {tag.upper()!r}, which is not " in check(doctor(store), "tags").summary


def test_a_damaged_file_is_a_failure(store: Path) -> None:
    write_rows(store, episodes(500, start=11))
    data = bytearray(store.read_bytes())
    data[8192:12288] = bytes(4096)
    store.write_bytes(data)
    diagnosis = doctor(store)
    assert diagnosis.status is Status.FAIL
    assert check(diagnosis, "sqlite_integrity").status is Status.FAIL


def test_an_index_that_misses_rows_is_a_failure(store: Path) -> None:
    run_sql(
        store,
        "CREATE TABLE twin (memory_id TEXT PRIMARY KEY)",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = "
        "'sqlite_autoindex_twin_1') WHERE name = 'sqlite_autoindex_memory_items_1'",
    )
    found = check(doctor(store), "sqlite_integrity")
    assert found.status is Status.FAIL
    assert "missing from index" in found.summary


def test_rows_that_cannot_be_read_are_named(store: Path) -> None:
    write_rows(
        store,
        [
            row("odd", "dream"),
            row("worse", tags_json="[1]"),
            row("worst", title=RawText(b"\xff")),
            row("late", created_at="yesterday"),
        ],
    )
    found = check(doctor(store), "rows")
    assert (found.status, found.counts) == (Status.WARN, {"unreadable": 4})
    assert "row 14 ('odd'): " in found.summary
    assert all(name in found.summary for name in ("worse", "worst", "late"))
    run_sql(store, "UPDATE memory_items SET kind = 'other'")
    assert check(doctor(store), "rows").status is Status.FAIL


class TestSupersession:
    def test_a_successor_is_there_or_in_the_archive_or_missed(self, store: Path) -> None:
        write_rows(store, [row("a", superseded_by="e1"), row("b", superseded_by="nobody")])
        assert check(doctor(store), "supersession").counts["dangling"] == 1
        apply(plan(store, KeepRecent(4), now=NOON))
        write_rows(store, [row("c", superseded_by="c")])
        found = check(doctor(store), "supersession")
        assert found.counts == {"dangling": 1, "archived": 1, "cyclic": 1}
        assert found.status is Status.WARN
        assert (
            "a memory that is not there (b); 1 supersede each other in a circle (c)"
            in found.summary
        )

    @given(links=st.dictionaries(st.integers(0, 7), st.integers(0, 7)))
    def test_a_row_is_in_a_circle_when_the_way_from_it_leads_back(
        self, tmp_path_factory: pytest.TempPathFactory, links: dict[int, int]
    ) -> None:
        def leads_back(start: int) -> bool:
            here = start
            for _ in links:
                here = links.get(here, -1)
                if here == start:
                    return True
            return False

        rows = [
            row(f"m{n}", superseded_by=f"m{links[n]}" if n in links else None) for n in range(8)
        ]
        path = write_rows(tmp_path_factory.mktemp("links") / "memory.db", rows)
        found = check(doctor(path), "supersession")
        assert found.counts["cyclic"] == sum(map(leads_back, links))
        assert found.counts["dangling"] == 0


def test_rows_inserted_out_of_order_are_counted(store: Path) -> None:
    write_rows(
        store,
        [
            row("early", created_at="2026-02-01T00:00:00Z"),
            row("later", created_at="2026-04-01T00:00:00Z"),
            row("between", created_at="2026-03-15T00:00:00Z"),
        ],
    )
    found = check(doctor(store), "insertion_order")
    assert (found.status, found.counts) == (Status.WARN, {"out_of_order": 2})


def test_a_file_that_is_mostly_free_pages_is_a_warning_with_its_command(store: Path) -> None:
    write_rows(store, [row(f"big{n}", body="x" * 100_000) for n in range(30)])
    assert check(doctor(store), "space").status is Status.OK
    run_sql(store, "DELETE FROM memory_items WHERE memory_id LIKE 'big%'")
    found = check(doctor(store), "space")
    assert found.status is Status.WARN
    assert f"memlab vacuum {store}" in found.advice
    assert found.counts["free"] > 2_900_000


class TestArchive:
    def test_an_archive_that_matches_its_store_passes(self, store: Path) -> None:
        receipt = apply(plan(store, KeepRecent(4), now=NOON))
        assert check(doctor(store), "archive").counts == {
            "plans": 1,
            "memories": 6,
            "unfinished": 0,
        }
        restore(receipt)
        assert check(doctor(store), "archive").status is Status.OK

    def test_an_apply_cut_short_is_a_warning_with_both_ways_out(self, store: Path) -> None:
        digest = cut_short(store)
        found = check(doctor(store), "archive")
        assert (found.status, found.counts["unfinished"]) == (Status.WARN, 1)
        assert "6 memories archived, 6 of them not deleted" in found.summary
        assert f"memlab apply {store} {digest}" in found.advice
        assert f"memlab archive {store} --drop {digest}" in found.advice

    def test_either_way_out_ends_the_warning(self, store: Path) -> None:
        before = rows_of(store)
        drop_archived(store, digest=cut_short(store))
        assert doctor(store).status is Status.OK
        assert rows_of(store) == before
        finish(store, cut_short(store))
        assert doctor(store).status is Status.OK
        assert len(rows_of(store)) == 7

    def test_an_apply_of_which_only_the_record_is_missing_is_none(self, store: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            apply(plan(store, KeepRecent(4), now=NOON), watch=interrupt_at(ApplyStep.COMMITTED))
        assert check(doctor(store), "archive").status is Status.OK

    def test_copies_whose_rows_went_another_way_are_not_advised_away(self, store: Path) -> None:
        digest = cut_short(store)
        run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'e1'")
        found = check(doctor(store), "archive")
        assert f"memlab restore {store} {digest}" in found.advice
        assert f"memlab apply {store}" not in found.advice

    def test_a_restore_that_was_not_recorded_is_a_warning(self, store: Path) -> None:
        receipt = apply(plan(store, KeepRecent(4), now=NOON))
        with pytest.raises(KeyboardInterrupt):
            restore(receipt, watch=interrupt_at(RestoreStep.COMMITTED))
        found = check(doctor(store), "archive")
        assert found.status is Status.WARN
        assert "6 memories that plan" in found.summary
        restore(receipt)
        assert check(doctor(store), "archive").status is Status.OK

    def test_what_is_called_restored_and_is_not_there_is_a_warning(self, store: Path) -> None:
        receipt = apply(plan(store, KeepRecent(4), now=NOON))
        restore(receipt)
        run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e2', 'e3')")
        found = check(doctor(store), "archive")
        assert found.status is Status.WARN
        assert "2 memories" in found.summary
        assert "are called restored and are not in the store" in found.summary
        assert f"memlab restore {store} {receipt.digest[:12]}" in found.advice
        restore(receipt)
        assert check(doctor(store), "archive").status is Status.OK

    def test_what_was_restored_and_deleted_by_a_later_plan_is_not(self, store: Path) -> None:
        restore(apply(plan(store, KeepRecent(4), now=NOON)))
        apply(plan(store, KeepRecent(2), now=NOON))
        assert check(doctor(store), "archive").status is Status.OK

    def test_an_archive_beside_an_older_store_is_a_warning(self, store: Path) -> None:
        older = store.read_bytes()
        apply(plan(store, KeepRecent(4), now=NOON))
        store.write_bytes(older)
        assert "the store is an older copy" in check(doctor(store), "archive").advice

    def test_copies_that_were_changed_are_a_warning(self, store: Path) -> None:
        apply(plan(store, KeepRecent(4), now=NOON))
        run_sql(archive_of(store), "UPDATE archived SET record = '{}' WHERE key = 5")
        found = check(doctor(store), "archive")
        assert found.status is Status.WARN
        assert "is damaged: key 5 of plan" in found.summary
        assert "its record is not what was archived" in found.summary

    @pytest.mark.parametrize(
        "change",
        [
            "PRAGMA user_version = 9",
            "DROP TABLE applies",
            "UPDATE applies SET archived_at = 'yesterday'",
            "UPDATE applies SET archived_at = x'00'",
        ],
    )
    def test_an_archive_that_cannot_be_read_is_a_failure(self, store: Path, change: str) -> None:
        apply(plan(store, KeepRecent(4), now=NOON))
        run_sql(archive_of(store), "DROP VIEW archived_memories", change)
        assert check(doctor(store), "archive").status is Status.FAIL

    def test_a_file_in_the_archives_place_is_a_failure(self, store: Path) -> None:
        archive_of(store).write_bytes(b"somebody's notes, not an archive")
        assert check(doctor(store), "archive").status is Status.FAIL

    def test_an_empty_archive_is_none(self, store: Path) -> None:
        archive_of(store).touch()
        assert check(doctor(store), "archive").status is Status.OK


def interrupt_at(step: str):  # type: ignore[no-untyped-def]
    def watch(done: str) -> None:
        if done == step:
            raise KeyboardInterrupt

    return watch


def test_a_diagnosis_is_json_for_a_script_a_line_a_check_for_a_person_and_pickles(
    store: Path,
) -> None:
    diagnosis = doctor(store, backlog=3)
    read = json.loads(diagnosis.to_json())
    assert read["status"] == "WARN"
    assert read["checks"][0]["name"] == "memory_integrity"
    assert read["checks"][0]["counts"]["prunable"] == 10
    lines = str(diagnosis).splitlines()
    assert lines[0] == f"WARN: {store}"
    assert lines[1].startswith("  WARN memory_integrity  1 decision, 1 skill")
    assert lines[2].strip().startswith("-> more than 3 prunable: memlab compact")
    assert len(lines) == 10
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis
