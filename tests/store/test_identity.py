"""An archive is matched to its store, whatever the files are called."""

import shutil
from pathlib import Path

import pytest

from memlab import restore
from memlab.compaction import apply, drop_archived, finish, plan_erasure
from memlab.compaction.archive_views import archived_plans, archived_rows, dropped_plans
from memlab.compaction.plans import Receipt
from memlab.errors import ArchiveError
from memlab.evidence.past import load_past
from memlab.store import SqliteMemoryStore
from memlab.store.archive.location import archive_path
from memlab.upkeep.health import Status
from tests.support.archives import NOON, check, compact_at_runtime, planned
from tests.support.invariants import rows_of
from tests.support.stores import episodes, row, run_sql, write_rows


def store_at(path: Path, day: int = 1, count: int = 10) -> Path:
    path.parent.mkdir(exist_ok=True)
    moment = {"created_at": f"2026-03-0{day}T12:00:00+00:00"}
    return write_rows(
        path, [memory | moment for memory in (row("d1", "semantic"), *episodes(count))]
    )


def compacted(path: Path, day: int = 1, count: int = 10) -> Receipt:
    return apply(planned(store_at(path, day, count)), now=NOON)


class TestForeignArchive:
    def test_foreign_archive_restores_only_into_a_new_file(self, tmp_path: Path) -> None:
        other = tmp_path / "other" / "memory.db"
        receipt = compacted(other, 2, 55)
        mine = store_at(tmp_path / "memory.db")
        shutil.copy(archive_path(other), archive_path(mine))
        rows = rows_of(mine)
        archive = archive_path(mine).read_bytes()
        for act in (
            lambda: restore(receipt, store=mine),
            lambda: finish(mine, receipt.digest),
            lambda: apply(planned(mine)),
            lambda: load_past(mine),
            lambda: compact_at_runtime(mine, 2),
        ):
            with pytest.raises(ArchiveError, match="is the archive of another store"):
                act()
            assert rows_of(mine) == rows
            assert archive_path(mine).read_bytes() == archive
        archive_check = check(mine)
        assert archive_check.status == Status.FAIL
        assert "of another store" in archive_check.summary
        assert restore(receipt, store=mine, into=tmp_path / "new.db").memories == 51

    def test_archive_of_a_larger_store_is_recognised_as_foreign(self, tmp_path: Path) -> None:
        other = tmp_path / "other" / "memory.db"
        store_at(other, 2, 80)
        run_sql(other, "DELETE FROM memory_items WHERE kind = 'semantic'")
        receipt = apply(planned(other))
        mine = store_at(tmp_path / "memory.db")
        shutil.copy(archive_path(other), archive_path(mine))
        with pytest.raises(ArchiveError, match="of another store"):
            restore(receipt, store=mine)


class TestOwnArchive:
    def test_archive_matches_after_noted_memories_were_deleted(self, tmp_path: Path) -> None:
        """An agent may delete all memories that were kept, and write new ones."""
        path = tmp_path / "memory.db"
        receipt = compacted(path)
        write_rows(path, [row(f"new{number}") for number in range(20)])
        run_sql(path, "DELETE FROM memory_items WHERE memory_id NOT LIKE 'new%'")
        assert restore(receipt).memories == 6
        apply(planned(path))
        run_sql(path, "DELETE FROM memory_items")  # an empty store matches any archive
        assert restore(receipt).memories == 6

    def test_archive_matches_by_memories_kept_last(self, tmp_path: Path) -> None:
        path = tmp_path / "memory.db"
        compacted(path)
        run_sql(path, "UPDATE memory_items SET created_at = '2027-01-01' WHERE memory_id = 'd1'")
        write_rows(path, [row(f"n{number}") for number in range(5)])
        last = apply(planned(path))
        run_sql(path, "DELETE FROM memory_items WHERE memory_id LIKE 'e%'")
        assert restore(last).memories == 5

    @pytest.mark.parametrize("dropped", [False, True])
    def test_archive_matches_after_positions_were_reused(
        self, tmp_path: Path, dropped: bool
    ) -> None:
        """A store that evicts on write reuses its highest positions."""
        path = write_rows(tmp_path / "memory.db", episodes(10))
        apply(planned(path))
        second = apply(planned(path, 0))
        write_rows(path, [row(f"new{number}") for number in range(20)])
        if dropped:
            drop_archived(path, digest=second.digest, now=NOON)
        assert len(load_past(path)) == 30
        assert check(path).status is Status.OK


class TestRenamedStore:
    def test_renamed_store_is_a_warning_and_stops_changes(self, tmp_path: Path) -> None:
        receipt = compacted(tmp_path / "memory.db")
        path = (tmp_path / "memory.db").rename(tmp_path / "agent.db")
        archive_check = check(path)
        assert archive_check.status is Status.WARN
        assert "memory.db.archive.db is the archive of this store" in archive_check.summary
        assert str(archive_path(path)) in archive_check.advice
        with SqliteMemoryStore(path, archive=True) as runtime:
            for act in (
                lambda: archived_plans(path),
                lambda: archived_rows(path),
                lambda: dropped_plans(path),
                lambda: plan_erasure(path, digest=receipt.digest),
                lambda: drop_archived(path, digest=receipt.digest),
                lambda: restore(receipt, store=path),
                lambda: apply(planned(path, 1)),
                lambda: load_past(path),
                lambda: runtime.compact_episodic(1),
            ):
                with pytest.raises(ArchiveError, match=r"which had another name; .* rename it to"):
                    act()
        assert not archive_path(path).exists()
        (tmp_path / "memory.db.archive.db").rename(archive_path(path))
        assert restore(receipt, store=path).memories == 6

    def test_archive_of_another_store_is_not_claimed(self, tmp_path: Path) -> None:
        compacted(tmp_path / "memory.db", 2)
        (tmp_path / "memory.db").unlink()
        mine = store_at(tmp_path / "mine.db")
        day = "created_at = '2026-03-02T12:00:00+00:00' WHERE memory_id = 'd1'"
        run_sql(mine, f"UPDATE memory_items SET {day}")  # both stores have this memory
        assert check(mine).status is Status.OK

    def test_copied_store_gets_its_own_archive(self, tmp_path: Path) -> None:
        path = store_at(tmp_path / "memory.db")
        copy = Path(shutil.copy(path, tmp_path / "copy.db"))
        apply(planned(path))
        apply(planned(copy))
        assert archive_path(copy).exists()
