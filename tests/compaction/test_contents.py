"""Looking into an archive, exporting it, dropping what is old."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from invariants import assert_nothing_lost, copies_of, rows_of
from stores import RawText, episodes, row, write_rows, write_signals

from memlab.compaction.applier import ApplyStep, apply
from memlab.compaction.contents import (
    archived_plans,
    archived_rows,
    export_archived,
    last_applied,
)
from memlab.compaction.drops import drop_archived
from memlab.compaction.planner import plan
from memlab.compaction.plans import Receipt
from memlab.compaction.restorer import restore
from memlab.errors import ArchiveError
from memlab.policies import KeepRecent
from memlab.store.archive.location import archive_path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])


def compacted(store: Path, keep: int, *, days: int = 0) -> Receipt:
    moment = NOON + timedelta(days)
    return apply(plan(store, KeepRecent(keep), now=moment), now=moment)


class TestListing:
    def test_plans_are_listed_oldest_first(self, store: Path) -> None:
        first, second = compacted(store, 8), compacted(store, 4, days=1)
        restore(second, ids=["e3"])
        entries = archived_plans(store)
        assert [entry.digest for entry in entries] == [first.digest, second.digest]
        assert [(entry.memories, entry.left, entry.restored) for entry in entries] == [
            (2, 2, 0),
            (4, 4, 1),
        ]
        assert entries[1].finished_at == NOON + timedelta(1)

    def test_rows_are_listed_in_the_order_they_were_taken_out(self, store: Path) -> None:
        compacted(store, 8)
        compacted(store, 4, days=1)
        frame = archived_rows(store)
        assert frame["memory_id"].tolist() == ["e1", "e2", "e3", "e4", "e5", "e6"]
        assert frame["position"].tolist() == [2, 3, 4, 5, 6, 7]

    def test_one_plan_can_be_listed_alone(self, store: Path) -> None:
        compacted(store, 8)
        digest = compacted(store, 4, days=1).digest
        assert archived_rows(store, digest=digest[:10])["memory_id"].tolist() == [
            "e3",
            "e4",
            "e5",
            "e6",
        ]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("BODY OF E3", ["e3"]),
            ("e1", ["e1"]),
            ("merged", ["e1", "e2", "e3", "e4", "e5", "e6"]),
            ("%", ["odd"]),
            ("ü", ["odd"]),
            ("' OR 1 --", []),
        ],
    )
    def test_a_search_looks_in_id_title_body_and_tags(
        self, store: Path, text: str, found: list[str]
    ) -> None:
        write_rows(store, [row("odd", rowid=0, title="100 %", body="grün")])
        compacted(store, 4)
        assert archived_rows(store, search=text)["memory_id"].tolist() == found

    def test_bytes_that_are_no_text_are_shown_all_the_same(self, store: Path) -> None:
        write_rows(store, [row("odd", rowid=0, source_event_id=RawText(b"\xff"))])
        compacted(store, 4)
        assert archived_rows(store, search="odd")["title"].tolist() == ["title of odd"]

    def test_looking_leaves_no_trace(self, store: Path) -> None:
        compacted(store, 4)
        before = {path.name: path.read_bytes() for path in store.parent.iterdir()}
        archived_plans(store)
        archived_rows(store, search="e1")
        assert {path.name: path.read_bytes() for path in store.parent.iterdir()} == before

    def test_without_an_archive_it_says_so(self, store: Path) -> None:
        with pytest.raises(ArchiveError, match="no plan has taken anything out"):
            archived_plans(store)

    def test_without_an_archive_no_plan_was_applied(self, store: Path) -> None:
        assert last_applied(store) is None

    def test_an_archive_that_a_kill_left_empty_holds_no_plan(self, store: Path) -> None:
        archive_path(store).touch(mode=0o600)
        assert last_applied(store) is None


class TestExporting:
    def test_jsonl_holds_every_column_of_every_row(self, store: Path, tmp_path: Path) -> None:
        write_signals(store, "e1", importance=0.25)
        receipt = compacted(store, 4)
        assert export_archived(store, tmp_path / "out.jsonl") == 6
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        first = json.loads(lines[0])
        assert len(lines) == 6
        assert first["digest"] == receipt.digest
        assert first["memory_signals"] == [{"memory_id": "e1", "importance": 0.25}]
        assert {name: first[name] for name in row("e1")} == row("e1", "episodic", "merged")

    def test_jsonl_keeps_values_of_any_type(self, store: Path, tmp_path: Path) -> None:
        odd = row("odd", rowid=0, source_event_id=RawText(b"\xff\0"), source_sequence=b"\xfe")
        write_rows(store, [odd])
        compacted(store, 4)
        export_archived(store, tmp_path / "out.jsonl", search="odd")
        (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
        assert json.loads(line)["source_event_id"] == {"text": "ff00"}
        assert json.loads(line)["source_sequence"] == {"blob": "fe"}

    def test_jsonl_cannot_steer_a_terminal(self, store: Path, tmp_path: Path) -> None:
        write_rows(store, [row("odd", rowid=0, title="\x1b[31m\u202e\0")])
        compacted(store, 4)
        export_archived(store, tmp_path / "out.jsonl")
        text = (tmp_path / "out.jsonl").read_text()
        assert all(char.isprintable() or char == "\n" for char in text)

    def test_parquet_holds_every_column_of_every_row(self, store: Path, tmp_path: Path) -> None:
        receipt = compacted(store, 4)
        assert export_archived(store, tmp_path / "out.parquet", digest=receipt.digest) == 6
        frame = pd.read_parquet(tmp_path / "out.parquet")
        assert frame["memory_id"].tolist() == ["e1", "e2", "e3", "e4", "e5", "e6"]
        assert frame["body"].tolist() == [f"body of e{n}" for n in range(1, 7)]
        assert frame["position"].tolist() == [2, 3, 4, 5, 6, 7]
        assert frame["confidence"].tolist() == [0.5] * 6

    def test_parquet_keeps_what_has_no_column_in_the_record(
        self, store: Path, tmp_path: Path
    ) -> None:
        write_rows(store, [row("odd", rowid=0, source_event_id=RawText(b"\xff"))])
        compacted(store, 4)
        assert export_archived(store, tmp_path / "out.parquet", search="odd") == 1
        frame = pd.read_parquet(tmp_path / "out.parquet")
        record = json.loads(frame["record"][0])
        assert record["source_event_id"] == {"text": "ff"}

    def test_an_export_of_nothing_is_a_file_of_nothing(self, store: Path, tmp_path: Path) -> None:
        compacted(store, 4)
        for name in ("out.jsonl", "out.parquet"):
            assert export_archived(store, tmp_path / name, search="nobody wrote this") == 0
        assert pd.read_parquet(tmp_path / "out.parquet").empty
        assert (tmp_path / "out.jsonl").read_text() == ""

    def test_an_export_is_as_private_as_its_archive(self, store: Path, tmp_path: Path) -> None:
        store.chmod(0o600)
        compacted(store, 4)
        export_archived(store, tmp_path / "out.jsonl")
        assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600

    def test_another_ending_is_a_mistake(self, store: Path) -> None:
        with pytest.raises(ValueError, match=r"path must end in .jsonl or .parquet, not 'out.csv'"):
            export_archived(store, "out.csv")


class TestDropping:
    def test_what_is_older_than_a_date_is_dropped_and_named(self, store: Path) -> None:
        before = rows_of(store)
        old, new = compacted(store, 8), compacted(store, 4, days=10)
        dropped = drop_archived(store, before=NOON + timedelta(5))
        assert [entry.digest for entry in dropped.entries] == [old.digest]
        assert [entry.digest for entry in archived_plans(store)] == [new.digest]
        assert set(copies_of(store)) == {4, 5, 6, 7}
        assert rows_of(store).keys() == before.keys() - {2, 3, 4, 5, 6, 7}

    def test_one_plan_can_be_dropped(self, store: Path) -> None:
        old, new = compacted(store, 8), compacted(store, 4, days=10)
        drop_archived(store, digest=new.digest[:12])
        assert [entry.digest for entry in archived_plans(store)] == [old.digest]

    def test_the_bytes_are_gone_from_the_file(self, store: Path) -> None:
        write_rows(store, [row("secret", rowid=0, body="the password is swordfish " * 1000)])
        digest = compacted(store, 4).digest
        size = archive_path(store).stat().st_size
        assert b"swordfish" in archive_path(store).read_bytes()
        drop_archived(store, digest=digest)
        assert b"swordfish" not in archive_path(store).read_bytes()
        assert archive_path(store).stat().st_size < size

    def test_nothing_old_enough_drops_nothing(self, store: Path) -> None:
        compacted(store, 4)
        assert drop_archived(store, before=NOON).entries == ()
        assert len(archived_plans(store)) == 1

    def test_it_waits_for_an_apply_under_way(self, store: Path) -> None:
        before, made = rows_of(store), plan(store, KeepRecent(4), now=NOON)
        dropping = threading.Thread(
            target=drop_archived, args=(store,), kwargs={"before": NOON + timedelta(1)}
        )
        seen = []

        def watch(step: str) -> None:
            if step == ApplyStep.ARCHIVED:
                dropping.start()
                dropping.join(timeout=0.3)
                seen.append(dropping.is_alive())
                assert_nothing_lost(before, store)

        apply(made, now=NOON, watch=watch)
        dropping.join()
        assert seen == [True]

    def test_it_works_where_the_store_is_lost(self, store: Path) -> None:
        compacted(store, 4)
        store.unlink()
        assert drop_archived(store, before=NOON + timedelta(1)).memories == 6

    def test_it_takes_one_name_and_a_zone(self, store: Path) -> None:
        with pytest.raises(ValueError, match="either before=None or digest=None"):
            drop_archived(store)
        with pytest.raises(ValueError, match="has no time zone"):
            drop_archived(store, before=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake
