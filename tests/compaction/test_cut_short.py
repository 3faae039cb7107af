"""Commands that were cut short, and files that lie in the way of what they make."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from invariants import rows_of
from programs import run_program
from stores import episodes, row, run_sql, write_rows

import memlab
from memlab.compaction import archived_plans, drop_archived, restore
from memlab.compaction.contents import last_applied
from memlab.compaction.plans import Receipt
from memlab.errors import ArchiveError
from memlab.files import whole_file
from memlab.policies import KeepRecent
from memlab.store.archive.location import archive_path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d", "semantic"), *episodes(8)])


def compact(store: Path, keep: int) -> Receipt:
    return memlab.apply(memlab.plan(store, KeepRecent(keep), now=NOON), now=NOON)


def killed_after_its_commit(store: Path, keep: int) -> None:
    program = (
        "import os, sys\n"
        "from memlab.store.archive.archive import Archive\n"
        "Archive.finish = lambda *_: os._exit(9)\n"
        "from memlab.cli import main\n"
        f"main(['compact', sys.argv[1], '--keep-recent', '{keep}', '--apply'])\n"
    )
    assert run_program(program, store).returncode == 9


class TestKilledBetweenCommitAndNote:
    def test_the_same_command_finishes_it_and_says_what(self, store: Path) -> None:
        before = rows_of(store)
        killed_after_its_commit(store, 3)
        digest = archived_plans(store)[0].digest
        receipt = compact(store, 3)
        assert (receipt.deleted, receipt.finished) == (0, (digest,))
        assert f"undo: memlab restore {store} {digest[:12]}" in str(receipt)
        assert Receipt.from_json(receipt.to_json()) == receipt
        assert last_applied(store) is not None
        assert restore(digest, store=store) == 5
        assert rows_of(store) == before

    def test_a_plan_that_has_more_to_do_says_it_too(self, store: Path) -> None:
        killed_after_its_commit(store, 3)
        digest = archived_plans(store)[0].digest
        receipt = compact(store, 1)
        assert (receipt.deleted, receipt.finished) == (2, (digest,))

    def test_where_nothing_was_cut_short_nothing_is_finished(self, store: Path) -> None:
        assert compact(store, 3).finished == ()
        assert compact(store, 3).finished == ()

    def test_a_receipt_of_before_can_be_read(self, store: Path) -> None:
        content = json.loads(compact(store, 3).to_json())
        del content["finished"]
        assert Receipt.from_json(json.dumps(content)).finished == ()


class TestRestoringIntoAFile:
    @pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
    def test_what_would_be_taken_for_a_part_of_it_is_refused(
        self, store: Path, tmp_path: Path, ending: str
    ) -> None:
        digest = compact(store, 3).digest
        beside = tmp_path / f"back.db{ending}"
        beside.write_bytes(b"stale" * 100)
        with pytest.raises(ArchiveError, match=r"would be taken for a part of .*back\.db"):
            restore(digest, store=store, into=tmp_path / "back.db")
        assert not (tmp_path / "back.db").exists()
        assert beside.read_bytes() == b"stale" * 100

    def test_a_link_to_nothing_is_refused_too(self, store: Path, tmp_path: Path) -> None:
        digest = compact(store, 3).digest
        (tmp_path / "back.db-wal").symlink_to(tmp_path / "nothing")
        with pytest.raises(ArchiveError, match="move it away"):
            restore(digest, store=store, into=tmp_path / "back.db")

    def test_a_file_that_is_not_whole_under_its_name_is_not_called_restored(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from memlab import files

        sync = files.sync

        def syncing(path: Path) -> None:
            if path.suffix == files.DRAFT:
                run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'e1'")
            sync(path)

        monkeypatch.setattr(files, "sync", syncing)
        digest = compact(store, 3).digest
        with pytest.raises(ArchiveError, match="made of 5 memories and 4 are in it"):
            restore(digest, store=store, into=tmp_path / "back.db")

    def test_what_a_killed_one_left_is_gone_after_the_next(
        self, store: Path, tmp_path: Path
    ) -> None:
        digest = compact(store, 3).digest
        program = (
            "import os, sys\n"
            "from memlab import files\n"
            "files.sync = lambda _: os._exit(9)\n"
            "from memlab.compaction import restore\n"
            "restore(sys.argv[2], store=sys.argv[1], into=sys.argv[3])\n"
        )
        target = tmp_path / "back.db"
        assert run_program(program, store, digest, target).returncode == 9
        assert not target.exists()
        assert len(list(tmp_path.glob(".back.db.*.part"))) == 1
        assert restore(digest, store=store, into=target) == 5
        assert list(tmp_path.glob(".*.part")) == []

    def test_a_draft_that_is_being_written_is_left_alone(self, tmp_path: Path) -> None:
        with whole_file(tmp_path / "note") as first:
            first.write_text("one")
            with whole_file(tmp_path / "note") as second:
                assert first.exists()
                second.write_text("two")
        assert (tmp_path / "note").read_text() == "one"
        assert [path.name for path in tmp_path.iterdir()] == ["note"]


class TestDropBesideRestore:
    def test_a_drop_waits_until_what_is_restored_is_noted(self, store: Path) -> None:
        """Else the note would be made of whatever plan has that name by then."""
        from memlab.compaction.restorer import RestoreStep

        digest = compact(store, 3).digest
        seen = []

        def watch(step: str) -> None:
            if step == RestoreStep.COMMITTED:
                program = (
                    "import sys\n"
                    "from memlab.store.archive.archive import open_archive\n"
                    "from memlab.store.archive.location import location_beside\n"
                    "with open_archive(location_beside(sys.argv[1]), busy_timeout=0) as archive:\n"
                    "    archive.forget(sys.argv[2])\n"
                )
                run = run_program(program, store, digest)
                seen.append("is locked by another process" in run.stderr)

        assert restore(digest, store=store, watch=watch) == 5
        assert seen == [True]
        assert [entry.restored for entry in archived_plans(store)] == [5]

    def test_restoring_what_was_dropped_says_so(self, store: Path) -> None:
        digest = compact(store, 3).digest
        drop_archived(store, digest=digest, now=NOON)
        for into in (None, store.with_name("back.db")):
            with pytest.raises(ArchiveError, match="its words are erased"):
                restore(digest, store=store, into=into)

    def test_nothing_is_restored_where_it_cannot_be_noted(self, store: Path) -> None:
        digest = compact(store, 3).digest
        before = rows_of(store)
        run_sql(
            archive_path(store),
            "CREATE TRIGGER stop BEFORE UPDATE ON archived BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        with pytest.raises(ArchiveError, match="no"):
            restore(digest, store=store)
        assert rows_of(store) == before
