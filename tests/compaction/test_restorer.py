"""Restoring to store files: the same bytes at the same place, or nothing."""

from pathlib import Path

import pytest
from archives import compact_at_runtime, compacted, planned
from invariants import archive_of, rows_of
from programs import run_program
from stores import Row, row, run_sql, write_rows, write_signals

from memlab import files
from memlab.compaction import drop_archived
from memlab.compaction.applier import apply
from memlab.compaction.plans import Plan
from memlab.compaction.restorer import restore
from memlab.errors import ArchiveError, MemlabError


def test_restoring_twice_restores_nothing_even_where_a_row_has_changed_since(store: Path) -> None:
    receipt = compacted(store)
    assert restore(receipt.digest[:6], store=store) == 6
    run_sql(store, "UPDATE memory_items SET superseded_by = 'e9' WHERE memory_id = 'e1'")
    before = rows_of(store)
    assert restore(receipt) == 0
    assert rows_of(store) == before


def test_what_was_restored_and_compacted_away_comes_back_again(store: Path) -> None:
    before, receipt = rows_of(store), compacted(store)
    restore(receipt)
    assert compact_at_runtime(store, archive=False) == 6
    assert restore(receipt) == 6
    assert rows_of(store) == before


def test_a_digest_that_names_no_plan_or_several_or_no_store_is_refused_in_words(
    store: Path,
) -> None:
    first = compacted(store, 9).digest
    for digest in ("", "zz"):
        with pytest.raises(ArchiveError, match=f"no plan '{digest}' in .*memlab archive"):
            restore(digest, store=store)
    compacted(store, 8)
    alike = f"UPDATE applies SET digest = '{first[0]}' || substr(digest, 2) WHERE apply = 2"
    run_sql(archive_of(store), alike)
    with pytest.raises(ArchiveError, match="names several plans"):
        restore(first[0], store=store)
    with pytest.raises(ValueError, match="store must be given"):
        restore("abc")


CENSOR = (
    "CREATE TRIGGER censor AFTER INSERT ON memory_items BEGIN UPDATE memory_items "
    "SET body = '' WHERE memory_id = new.memory_id; END"
)


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([row("new", rowid=4)], "position 4"),
        ([row("e2", rowid=77)], "id 'e2'"),
        ([row("e2", rowid=5, title="again")], "position 5"),
        ([], "all was rolled back"),
    ],
    ids=["place", "id", "both", "trigger"],
)
def test_what_stands_in_the_way_is_named_and_nothing_changes(
    store: Path, rows: list[Row], taken: str
) -> None:
    receipt = compacted(store)
    write_rows(store, rows)
    if not rows:
        run_sql(store, CENSOR)
    before = rows_of(store)
    with pytest.raises(ArchiveError, match=taken):
        restore(receipt)
    assert rows_of(store) == before


def test_a_plan_that_frees_the_last_place_says_so_and_the_rest_comes_back_by_id(
    store: Path,
) -> None:
    assert "takes the place of the newest" not in str(planned(store))
    made = planned(store, 0)
    assert "takes the place of the newest, which goes" in str(made)
    assert Plan.from_json(made.to_json()) == made
    receipt = apply(made)
    write_rows(store, [row("next", rowid=13)])
    with pytest.raises(ArchiveError, match=r"1 place .*position 13.*the other 9 by id"):
        restore(receipt)
    assert restore(receipt, ids=[f"e{n}" for n in range(1, 10)]) == 9


class TestIntoANewFile:
    def test_all_of_it_comes_and_the_store_stays_or_is_lost(
        self, store: Path, tmp_path: Path
    ) -> None:
        before, receipt = rows_of(store), compacted(store)
        write_rows(store, [row("new", rowid=4)])
        after, into = rows_of(store), tmp_path / "restored.db"
        assert restore(receipt, into=into) == 6
        assert rows_of(into) == {position: before[position] for position in range(4, 10)}
        assert [p.name for p in tmp_path.iterdir() if "restored" in p.name] == ["restored.db"]
        with pytest.raises(MemlabError, match="exists; name a file that does not"):
            restore(receipt, into=store)
        assert rows_of(store) == after
        store.unlink()
        assert restore(receipt, ids=["e1"], into=tmp_path / "one.db") == 1
        drop_archived(store, digest=receipt.digest)
        with pytest.raises(ArchiveError, match="its words are erased"):
            restore(receipt, into=tmp_path / "back.db")

    @pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
    @pytest.mark.parametrize("is_link", [False, True])
    def test_what_would_be_taken_for_a_part_of_it_is_refused(
        self, store: Path, tmp_path: Path, ending: str, is_link: bool
    ) -> None:
        beside = tmp_path / f"back.db{ending}"
        beside.symlink_to(tmp_path / "nothing") if is_link else beside.write_bytes(b"stale")
        with pytest.raises(ArchiveError, match=r"taken for a part of .*back\.db; .* move it away"):
            restore(compacted(store), into=tmp_path / "back.db")
        assert not (tmp_path / "back.db").exists()
        assert is_link or beside.read_bytes() == b"stale"

    def test_a_file_that_is_not_whole_under_its_name_is_not_called_restored(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sync = files.sync

        def syncing(path: Path) -> None:
            if path.suffix == files.DRAFT:
                run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'e1'")
            sync(path)

        monkeypatch.setattr(files, "sync", syncing)
        with pytest.raises(ArchiveError, match="made of 6 memories and 5 are in it"):
            restore(compacted(store), into=tmp_path / "back.db")

    def test_what_a_killed_one_left_is_gone_after_the_next(
        self, store: Path, tmp_path: Path
    ) -> None:
        digest = compacted(store).digest
        program = """
import os, sys
from memlab import files
files.sync = lambda _: os._exit(9)
from memlab.compaction import restore
restore(sys.argv[2], store=sys.argv[1], into=sys.argv[3])
"""
        target = tmp_path / "back.db"
        assert run_program(program, store, digest, target).returncode == 9
        assert not target.exists()
        assert len(list(tmp_path.glob(".back.db.*.part"))) == 1
        assert restore(digest, store=store, into=target) == 6
        assert list(tmp_path.glob(".*.part")) == []


def test_rows_come_back_where_no_side_table_is_left(store: Path) -> None:
    write_signals(store, "e1", importance=0.5)
    before, receipt = rows_of(store), compacted(store)
    run_sql(store, "DROP TABLE memory_signals")
    assert restore(receipt) == 6
    assert rows_of(store) == before
