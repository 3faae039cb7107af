"""Applying a plan to a store file and restoring it: effects and refusals."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab import files
from memlab.compaction import Plan, Receipt, apply, archived_plans, drop_archived, restore
from memlab.compaction.archive_views import last_applied
from memlab.compaction.undo import Restored
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    ArchivePermissionsWarning,
    CompactionError,
    MemlabError,
    StalePlanError,
)
from memlab.evidence.losses import losses_of
from memlab.sources.readers import no_progress
from tests.compaction.operations import OPERATIONS, StoppedError, retirement, stop_at, supersession
from tests.support.archives import NOON, compact_at_runtime, compacted, leave_unfinished, planned
from tests.support.invariants import (
    archive_of,
    assert_compacted,
    assert_nothing_lost,
    copies_of,
    rows_of,
)
from tests.support.stores import Row, episodes, row, row_lists, run_sql, write_rows, write_signals


@given(rows=row_lists(), keep=st.integers(0, 12), chosen=st.sets(st.integers(0, 11)))
def test_plan_deletes_the_same_as_compact_episodic(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], keep: int, chosen: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    store = write_rows(folder / "memory.db", rows)
    other = write_rows(folder / "compacted.db", rows)
    before = rows_of(store)
    plan = planned(store, keep)
    receipt = apply(plan)
    assert compact_at_runtime(other, keep, archive=False) == receipt.deleted
    assert rows_of(store) == rows_of(other)
    assert not archive_of(other).exists()
    assert_compacted(before, rows_of(store), keep)
    assert_nothing_lost(before, store)
    if receipt.deleted:
        restored_first = [memory for number, memory in enumerate(plan.memories) if number in chosen]
        result = restore(receipt, ids=[memory.memory_id for memory in restored_first])
        assert result.memories == len(restored_first)
        missing = {memory.position for memory in plan.memories if memory not in restored_first}
        assert rows_of(store) == {
            position: stored for position, stored in before.items() if position not in missing
        }
        assert restore(receipt).memories == receipt.deleted - len(restored_first)
    else:
        assert not archive_of(store).exists()
    assert rows_of(store) == before


def test_second_apply_is_rejected_with_the_first_result(store: Path) -> None:
    plan = planned(store)
    receipt = apply(plan, now=NOON)
    assert receipt.deleted == 6
    assert receipt.applied_at == NOON
    after = rows_of(store)
    with pytest.raises(AlreadyAppliedError) as caught:
        apply(plan)
    assert str(caught.value) == (
        f"plan {plan.digest[:12]} was applied on 2026-03-01 12:00 UTC: 6 memories are deleted "
        f"and archived in {archive_of(store)}; make a new plan"
    )
    assert rows_of(store) == after
    restore(receipt, ids=["e1", "e2"])
    with pytest.raises(AlreadyAppliedError, match="2 of them restored since"):
        apply(plan)


def assert_plan_is_stale(
    store: Path, make: Callable[[Path], Plan], change: str, stale: list[str], message: str
) -> None:
    """Make a plan, change the store, and check that the plan is rejected and nothing changes."""
    write_signals(store, "e1", importance=0.5, access_count=1)
    new_plan = make(store)
    run_sql(store, change)
    before = rows_of(store)
    archived = copies_of(store)
    with pytest.raises(StalePlanError, match=message) as caught:
        apply(new_plan)
    assert caught.value.memory_ids == tuple(stale)
    assert rows_of(store) == before
    assert copies_of(store) == archived


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (planned, "e3"),
        (planned, "e9"),
        (planned, "e10"),
        (supersession, "d1"),
        (supersession, "s1"),
        (retirement, "e1"),
        (retirement, "e2"),
        (retirement, "e8"),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memory_items SET body = CAST(body AS BLOB)",
        "UPDATE memory_items SET superseded_by = 'old'",
        "DELETE FROM memory_items",
    ],
)
def test_plan_with_a_changed_memory_is_rejected(
    store: Path, make: Callable[[Path], Plan], change: str, name: str
) -> None:
    statement = f"{change} WHERE memory_id = '{name}'"
    assert_plan_is_stale(store, make, statement, [name], rf"1 \w+ \({name}\)")


def test_plan_with_a_changed_position_is_rejected(store: Path) -> None:
    change = "UPDATE memory_items SET rowid = 100 WHERE memory_id = 'e3'"
    assert_plan_is_stale(store, planned, change, ["e3"], r"1 \w+ \(e3\)")


def test_plan_with_a_changed_signal_is_rejected(store: Path) -> None:
    change = "UPDATE memory_signals SET access_count = 2 WHERE memory_id = 'e1'"
    assert_plan_is_stale(store, planned, change, ["e1"], r"1 \w+ \(e1\)")


def test_stale_plan_names_five_memories_and_counts_the_rest(store: Path) -> None:
    change = "DELETE FROM memory_items WHERE rowid > 3"
    names = ["e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9", "e10"]
    message = r"10 \w+ \(e1, e2, e3, e4, e5 and 5 more\)"
    assert_plan_is_stale(store, planned, change, names, message)


def test_changes_of_other_rows_leave_a_plan_valid(store: Path) -> None:
    write_signals(store, "e10", importance=0.5, access_count=1)
    plan = planned(store)
    run_sql(
        store,
        "UPDATE memory_items SET title = 'new' WHERE memory_id = 'd1'",
        "DELETE FROM memory_items WHERE memory_id = 'old'",
    )
    write_rows(store, [row("d2", "semantic"), *episodes(5, start=11)])
    write_signals(store, "e10", importance=0.5, access_count=2)
    before = rows_of(store)
    assert apply(plan).deleted == 6
    deleted = {memory.position for memory in plan.memories}
    assert rows_of(store) == {
        position: row for position, row in before.items() if position not in deleted
    }


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
def test_trigger_that_changes_other_rows_stops_the_deletion(
    store: Path, action: str, moment: str, name: str
) -> None:
    run_sql(store, f"CREATE TRIGGER greedy {moment} DELETE ON memory_items BEGIN {action}; END")
    before = rows_of(store)
    if action == "SELECT RAISE(IGNORE)" and moment == "AFTER":
        DELETING[name](store)  # the trigger runs after the deletion, so it has no effect
        assert_compacted(before, rows_of(store), 4)
        return
    message = "left 1 of 2 load-bearing rows" if action == GREEDY[0] else "trigger|SQLite says no"
    with pytest.raises(MemlabError, match=message):
        DELETING[name](store)
    assert rows_of(store) == before
    assert not archive_of(store).exists()


SPOILED = {
    "apply": ("DELETE ON memory_signals", "'old'"),
    "restore": ("INSERT ON memory_items", "NEW.memory_id"),
    "supersede": ("UPDATE ON memory_items WHEN NEW.memory_id = 'd1'", "'old'"),
    "take back": ("UPDATE ON memory_items WHEN NEW.memory_id = 'd1'", "'old'"),
    "retire": ("UPDATE ON memory_items WHEN NEW.memory_id = 'e2'", "'old'"),
    "take retirement back": ("UPDATE ON memory_items WHEN NEW.memory_id = 'e2'", "'old'"),
    "recover": ("INSERT ON memory_items", "'old'"),
}
"""By operation: the event of a trigger and the memory that it changes."""


@pytest.mark.parametrize("name", SPOILED)
def test_trigger_that_changes_kept_rows_rolls_everything_back(store: Path, name: str) -> None:
    write_signals(store, "e1", importance=0.5)
    operation = OPERATIONS[name]
    event, changed = SPOILED[name]
    argument = operation.prepare(store)
    body = f"BEGIN UPDATE memory_items SET body = 'gone' WHERE memory_id = {changed}; END"
    run_sql(store, f"CREATE TRIGGER t AFTER {event} {body}")
    before = rows_of(store)
    with pytest.raises((CompactionError, ArchiveError), match="all was rolled back"):
        operation.run(store, argument, no_progress)
    assert rows_of(store) == before


class TestInterrupted:
    @pytest.mark.parametrize(("keep", "deleted"), [(3, 0), (1, 2)])
    def test_deletion_without_completion_note_is_finished(
        self, store: Path, keep: int, deleted: int
    ) -> None:
        before = rows_of(store)
        plan = planned(store, 3)
        with pytest.raises(StoppedError):
            apply(plan, on_step=stop_at("committed"))
        receipt = compacted(store, keep)
        assert receipt.deleted == deleted
        assert receipt.finished == (plan.digest,)
        assert f"undo: memlab restore {store} {plan.digest[:12]}" in str(receipt)
        assert Receipt.from_json(receipt.to_json()) == receipt
        assert last_applied(store) is not None
        assert all(entry.finished_at for entry in archived_plans(store))
        assert compacted(store, keep).finished == ()
        assert_nothing_lost(before, store)
        assert restore(plan.digest, store=store).memories == len(plan.memories)

    def test_reused_position_does_not_hide_the_deletion(self, store: Path) -> None:
        before = rows_of(store)
        plan = planned(store, 0)
        with pytest.raises(StoppedError):
            apply(plan, on_step=stop_at("committed"))
        write_rows(store, [row("new")])
        assert max(rows_of(store)) <= max(before), "the new row must take a position again"
        after = rows_of(store)
        assert apply(plan).deleted == 10
        assert rows_of(store) == after
        assert archived_plans(store)[0].finished_at is not None

    def test_rows_deleted_by_another_process_stay_archived(self, store: Path) -> None:
        before = rows_of(store)
        plan = planned(store)
        leave_unfinished(store, plan)
        assert restore(plan.digest, store=store).memories == 0
        run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e1', 'e2')")
        with pytest.raises(StalePlanError):
            apply(plan)
        apply(planned(store, 2))
        assert_nothing_lost(before, store)
        assert restore(plan.digest, store=store, ids=["e1", "e2"]).memories == 2


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o4755, 0o2660, 0o6777])
    def test_archive_has_the_permissions_of_its_store(self, store: Path, mode: int) -> None:
        store.chmod(mode)
        receipt = compacted(store)
        assert archive_of(store).stat().st_mode & 0o7777 == mode & 0o666
        restore(receipt, into=store.with_name("restored.db"))
        mode_of_restored = store.with_name("restored.db").stat().st_mode & 0o7777
        added_permissions = mode_of_restored & ~(mode & 0o666)
        assert mode_of_restored & 0o600 == 0o600
        assert added_permissions == 0

    def test_permissions_of_an_archive_are_narrowed_to_the_store(self, store: Path) -> None:
        compacted(store, 8)
        archive_of(store).chmod(0o644)
        store.chmod(0o600)
        with pytest.warns(ArchivePermissionsWarning, match="are 600 now, where they were 644"):
            assert compacted(store).deleted == 4
        assert archive_of(store).stat().st_mode & 0o777 == 0o600

    def test_archive_permissions_are_never_widened(self, store: Path) -> None:
        store.chmod(0o600)
        compacted(store, 8)
        store.chmod(0o664)
        compacted(store)
        assert archive_of(store).stat().st_mode & 0o777 == 0o600


def test_restored_memories_can_be_compacted_and_restored_again(store: Path) -> None:
    before = rows_of(store)
    receipt = compacted(store)
    assert restore(receipt.digest[:6], store=store).memories == 6
    assert rows_of(store) == before
    run_sql(store, "UPDATE memory_items SET superseded_by = 'e9' WHERE memory_id = 'e1'")
    changed = rows_of(store)
    assert restore(receipt).memories == 0
    assert rows_of(store) == changed
    run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e1', 'e2')")
    assert restore(receipt).memories == 2
    assert rows_of(store) == before


def test_unknown_or_ambiguous_digest_is_rejected(store: Path) -> None:
    first = compacted(store, 9).digest
    for digest in ("", "zz"):
        with pytest.raises(ArchiveError, match=f"no plan '{digest}' in .*memlab archive"):
            restore(digest, store=store)
    compacted(store, 8)
    same_start = f"UPDATE applies SET digest = '{first[0]}' || substr(digest, 2) WHERE apply = 2"
    run_sql(archive_of(store), same_start)
    with pytest.raises(ArchiveError, match="names several plans"):
        restore(first[0], store=store)
    with pytest.raises(ValueError, match="store must be given"):
        restore("abc")


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([row("new", rowid=4)], "position 4"),
        ([row("e2", rowid=77)], "id 'e2'"),
        ([row("e2", rowid=5, title="again")], "position 5"),
    ],
    ids=["place", "id", "both"],
)
def test_conflicting_rows_are_named_on_restore(store: Path, rows: list[Row], taken: str) -> None:
    receipt = compacted(store)
    write_rows(store, rows)
    before = rows_of(store)
    with pytest.raises(ArchiveError, match=taken):
        restore(receipt)
    assert rows_of(store) == before


def test_refused_restore_prints_commands_for_the_rest(store: Path) -> None:
    plan = planned(store)
    receipt = apply(plan)
    write_rows(store, [row("e2", rowid=77)])
    with pytest.raises(ArchiveError) as refusal:
        restore(receipt)
    digest = receipt.digest[:12]
    ids = [memory.memory_id for memory in plan.memories if memory.memory_id != "e2"]
    options = " ".join(f"--id {name}" for name in ids)
    others = f"restore the other {len(ids)} with memlab restore {store} {digest} {options}"
    assert others in str(refusal.value)
    assert f"memlab restore {store} {digest} --into NEW.db" in str(refusal.value)
    assert restore(receipt, ids=ids).memories == len(ids)
    assert restore(receipt, into=store.with_name("NEW.db")).memories == receipt.deleted


def test_reused_id_still_counts_as_deleted(store: Path) -> None:
    receipt = compacted(store)
    restore(receipt, ids=["e1"])
    write_rows(store, [row("e2", rowid=77)])
    assert losses_of(store).deleted_by_memlab == receipt.deleted - 1


def test_plan_that_frees_the_last_position_restores_by_id(store: Path) -> None:
    assert "takes its position" not in str(planned(store))
    plan = planned(store, 0)
    assert "the next one written takes its position" in str(plan)
    assert Plan.from_json(plan.to_json()) == plan
    receipt = apply(plan)
    write_rows(store, [row("next", rowid=13)])
    taken = r"1 place .*position 13.*the other 9 with memlab restore"
    with pytest.raises(ArchiveError, match=taken):
        restore(receipt)
    assert restore(receipt, ids=[f"e{number}" for number in range(1, 10)]).memories == 9


class TestRestoreIntoNewFile:
    def test_restore_into_a_new_file_works_without_the_store(
        self, store: Path, tmp_path: Path
    ) -> None:
        before = rows_of(store)
        receipt = compacted(store)
        write_rows(store, [row("new", rowid=4)])
        after = rows_of(store)
        into = tmp_path / "restored.db"
        (tmp_path / ".restored.db.0a.part").touch()  # left by a killed process
        assert restore(receipt, into=into).memories == 6
        assert rows_of(into) == {position: before[position] for position in range(4, 10)}
        assert list(tmp_path.glob("*restored*")) == [into]
        with pytest.raises(MemlabError, match="exists already; name a new file"):
            restore(receipt, into=store)
        assert rows_of(store) == after
        store.unlink()
        assert restore(receipt, ids=["e1"], into=tmp_path / "one.db").memories == 1
        drop_archived(store, digest=receipt.digest)
        with pytest.raises(ArchiveError, match="its texts are erased"):
            restore(receipt, into=tmp_path / "back.db")

    @pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
    @pytest.mark.parametrize("is_link", [False, True])
    def test_sqlite_side_file_beside_the_new_file_is_rejected(
        self, store: Path, tmp_path: Path, ending: str, is_link: bool
    ) -> None:
        side_file = tmp_path / f"back.db{ending}"
        if is_link:
            side_file.symlink_to(tmp_path / "nothing")
        else:
            side_file.write_bytes(b"stale")
        with pytest.raises(ArchiveError, match=r"taken for a part of .*back\.db; .* move it away"):
            restore(compacted(store), into=tmp_path / "back.db")
        assert not (tmp_path / "back.db").exists()
        if not is_link:
            assert side_file.read_bytes() == b"stale"

    def test_incomplete_new_file_is_not_reported_as_restored(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sync = files.sync

        def syncing(path: Path) -> None:
            if path.suffix == files.TEMP_SUFFIX:
                run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'e1'")
            sync(path)

        monkeypatch.setattr(files, "sync", syncing)
        with pytest.raises(ArchiveError, match="made of 6 memories and 5 are in it"):
            restore(compacted(store), into=tmp_path / "back.db")


def test_restore_accepts_latest(store: Path) -> None:
    before = rows_of(store)
    compacted(store, 6)
    between = rows_of(store)
    compacted(store, 4)
    assert restore("latest", store=store).memories == 2
    assert rows_of(store) == between
    assert restore("latest", store=store).memories == 4
    assert rows_of(store) == before
    with pytest.raises(ArchiveError, match="no plan is left to undo"):
        restore("latest", store=store)


def test_restore_result_displays_as_a_sentence(store: Path) -> None:
    receipt = compacted(store)
    assert str(restore(receipt)) == "6 memories restored"
    assert "that plan is undone already" in str(restore(receipt))
    assert "6 memories restored" in Restored(6)._repr_html_()
    mixed = Restored(3, active_again=2, retired_again=1)._repr_html_()
    assert "2 memories are active again" in mixed
    assert "1 memory is retired again" in mixed
