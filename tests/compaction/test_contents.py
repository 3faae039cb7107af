"""Archive contents: list, search, export, and erasure that keeps facts."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

import memlab
from memlab import columns as c
from memlab.compaction import (
    archived_plans,
    archived_rows,
    drop_archived,
    dropped_plans,
    export_archived,
    plan_erasure,
    restore,
)
from memlab.errors import ArchiveError
from memlab.evidence.past import load_past
from memlab.frame.loading import load
from memlab.store.archive.location import archive_path
from memlab.store.archive.open_archive import OpenArchive
from tests.support.archives import NOON, compacted
from tests.support.claude_store import project_folder, write_memories
from tests.support.shell import output_of
from tests.support.stores import RawText, files_in, row, write_rows, write_signals

SIX = [f"e{number}" for number in range(1, 7)]


class TestListing:
    def test_plans_and_rows_are_listed_in_deletion_order(self, store: Path) -> None:
        first = compacted(store, 8)
        second = compacted(store, 4, at=NOON + timedelta(1))
        restore(second, ids=["e3"])
        first_entry, second_entry = archived_plans(store)
        assert first_entry.digest == first.digest
        assert first_entry.copies == 2
        assert first_entry.restored == 0
        assert second_entry.digest == second.digest
        assert second_entry.copies == 4
        assert second_entry.restored == 1
        assert second_entry.finished_at == NOON + timedelta(1)
        frame = archived_rows(store)
        assert frame["memory_id"].tolist() == SIX
        assert frame["position"].tolist() == [4, 5, 6, 7, 8, 9]
        alone = archived_rows(store, digest=second.digest[:10])
        assert alone["memory_id"].tolist() == SIX[2:]

    @pytest.mark.parametrize(
        ("text", "matches"),
        [
            ("BODY OF E3", ["e3"]),
            ("e1", ["e1"]),
            ("merged", SIX),
            ("%", ["odd"]),
            ("ü", ["odd"]),
            ("' OR 1 --", []),
        ],
    )
    def test_search_covers_id_title_body_and_tags(
        self, store: Path, text: str, matches: list[str]
    ) -> None:
        odd = {"title": "100 %", "body": "grün", "source_event_id": RawText(b"\xff")}
        write_rows(store, [row("odd", rowid=0, **odd)])
        compacted(store)
        before = files_in(store.parent)
        assert archived_rows(store, search=text)["memory_id"].tolist() == matches
        assert files_in(store.parent) == before

    def test_search_without_a_match_says_how_many_memories_are_archived(
        self, tmp_path: Path
    ) -> None:
        folder = project_folder(tmp_path)
        write_memories(folder, "a", "b", "c")
        memlab.apply(memlab.plan(folder, memlab.KeepRecent(1)))
        output = output_of("archive", folder, "--search", "nothing like it")
        assert "no match among 2 memories in the archive" in output


class TestExporting:
    def test_export_holds_every_column_and_value_type(self, store: Path, tmp_path: Path) -> None:
        odd = {"source_event_id": RawText(b"\xff\0"), "source_sequence": b"\xfe"}
        write_rows(store, [row("odd", rowid=0, title="\x1b[31m\u202e\0", **odd)])
        write_signals(store, "e1", importance=0.25)
        store.chmod(0o600)
        receipt = compacted(store)
        out = tmp_path / "out.jsonl"
        assert export_archived(store, out) == 7
        assert out.stat().st_mode & 0o777 == 0o600
        text = out.read_text()
        assert all(char.isprintable() or char == "\n" for char in text)
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["memory_id"] for line in lines] == ["odd", *SIX]
        assert lines[0]["source_event_id"] == {"text": "ff00"}
        assert lines[0]["source_sequence"] == {"blob": "fe"}
        table = tmp_path / "out.parquet"
        export_archived(store, table)
        records = [json.loads(record) for record in pd.read_parquet(table)["record"]]
        assert [record["title"] for record in records] == [line["title"] for line in lines]
        assert lines[1]["digest"] == receipt.digest
        assert lines[1]["memory_signals"][0]["importance"] == 0.25
        assert {name: lines[1][name] for name in row("e1")} == row("e1", "episodic", "merged")

    def test_export_without_matches_is_an_empty_file(self, store: Path, tmp_path: Path) -> None:
        compacted(store)
        for name in ("out.jsonl", "out.parquet"):
            assert export_archived(store, tmp_path / name, search="nobody wrote this") == 0
        assert pd.read_parquet(tmp_path / "out.parquet").empty
        assert (tmp_path / "out.jsonl").read_text() == ""
        with pytest.raises(ValueError, match=r"path must end in .jsonl or .parquet, not 'out.csv'"):
            export_archived(store, "out.csv")


WORDS = ("swordfish", "stoat", "heron", "issue:#4711")


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Make ten episodes with references, whose texts must not survive a drop."""
    rows = []
    for number in range(10):
        references = [f"issue:#4711{number - 3}", f"stoat-{number - 2}"]
        secret = row(
            f"stoat-{number}",
            "episodic",
            "heron",
            title=f"swordfish {number}",
            body="heron " * 10_000,
            source_task_ref=f"issue:#4711{number}",
            evidence_refs_json=json.dumps(references[: number % 3]),
            superseded_by="stoat-9" if number == 2 else None,
            created_at=f"2026-02-{number + 1:02}T12:00:00+00:00",
        )
        rows.append(secret)
    return write_rows(tmp_path / "secrets.db", rows)


def compact(store: Path, keep: int, *, at: datetime = NOON) -> str:
    return compacted(store, keep, at=at).digest


def references(store: Path) -> pd.DataFrame:
    return memlab.find_references(load_past(store)).drop(columns=c.TARGET_ID)


class TestDropping:
    def test_drop_erases_texts_and_keeps_facts(self, secrets: Path) -> None:
        before = load_past(secrets)
        expected = references(secrets)
        assert len(expected) > 5
        first = compact(secrets, 5)
        second = compact(secrets, 2)
        size = archive_path(secrets).stat().st_size
        drop_archived(secrets, digest=first[:12], now=NOON)
        assert [entry.digest for entry in archived_plans(secrets)] == [second]
        (dropped,) = dropped_plans(secrets)
        assert dropped.digest == first
        assert dropped.memories == 4
        pd.testing.assert_frame_equal(references(secrets), expected)
        drop_archived(secrets, digest=second, now=NOON)
        pd.testing.assert_frame_equal(references(secrets), expected)
        archive_bytes = archive_path(secrets).read_bytes()
        for word in WORDS:
            assert word.encode() not in archive_bytes
        assert len(archive_bytes) < size
        past = load_past(secrets)
        same = [c.POSITION, c.KIND, c.TOKENS, c.CHARS, c.CREATED_AT, c.LOAD_BEARING]
        pd.testing.assert_frame_equal(past[same], before[same])
        assert past.index[past[c.DELETED_AT].isna()].tolist() == [2, 8, 9]
        assert set(past[c.TITLE][:2]) == {""}

    def test_log_references_match_dropped_memories(self, secrets: Path) -> None:
        read = pd.to_datetime(["2026-02-20T00:00:00Z"]).as_unit("us")
        log = pd.DataFrame({c.MEMORY_ID: ["stoat-1"], c.AT: read})
        drop_archived(secrets, digest=compact(secrets, 2), now=NOON)
        references = memlab.find_references(load_past(secrets, log=log), log, only_log=True)
        assert references[c.TARGET_POSITION].tolist() == [2]
        assert memlab.find_references(load_past(secrets), log, only_log=True).empty

    def test_restored_and_dropped_memory_exists_once(self, secrets: Path) -> None:
        before = load(secrets)
        digest = compact(secrets, 2)
        restore(digest, store=secrets, ids=["stoat-7"], now=NOON)
        archive = archive_path(secrets).read_bytes()
        dropped = plan_erasure(secrets, digest=digest)
        assert dropped.memories == 7
        assert dropped.never_restored == 6
        assert "never restored  6" in str(dropped)
        assert archive_path(secrets).read_bytes() == archive
        restore(digest, store=secrets, now=NOON)
        dropped = drop_archived(secrets, digest=digest, now=NOON)
        assert dropped.memories == 7
        assert dropped.never_restored == 0
        past = load_past(secrets)
        assert past[c.DELETED_AT].isna().all()
        pd.testing.assert_frame_equal(past[before.columns], before)

    @pytest.mark.parametrize("by", ["plans", "a runtime"])
    def test_drop_counts_only_references_of_its_deletion(self, secrets: Path, by: str) -> None:
        targets = references(secrets)[c.TARGET_POSITION]
        if by == "plans":
            for keep in (8, 4, 1):
                compact(secrets, keep)
        else:
            with memlab.SqliteMemoryStore(secrets, archive=True) as opened:
                for keep in (8, 4, 1):
                    opened.compact_episodic(keep)
        entries = archived_plans(secrets)
        moments = {entry.finished_at for entry in entries}
        assert len(moments) == (1 if by == "plans" else 3)
        deleted = [archived_rows(secrets, digest=entry.digest)[c.POSITION] for entry in entries]
        drops = [plan_erasure(secrets, digest=entry.digest, facts_too=True) for entry in entries]
        lost = [targets.isin(positions).sum() for positions in deleted]
        assert [drop.references for drop in drops] == lost
        assert len(set(lost)) > 1

    @pytest.mark.parametrize("dropped_before", [False, True])
    def test_facts_too_erases_facts_and_loses_references(
        self, secrets: Path, dropped_before: bool
    ) -> None:
        expected = len(references(secrets))
        digest = compact(secrets, 2)
        lost = plan_erasure(secrets, digest=digest, facts_too=True).references
        if dropped_before:
            drop_archived(secrets, digest=digest, now=NOON)
        drop = plan_erasure(secrets, digest=digest[:12], facts_too=True)
        assert drop_archived(secrets, digest=digest, facts_too=True, now=NOON) == drop
        if dropped_before:
            assert drop.memories == 0
            assert [fact.memories for fact in drop.facts] == [7]
        else:
            assert drop.memories == 7
            assert list(drop.facts) == []
        assert lost > 0
        assert drop.references == lost
        assert f"{lost} references to them no longer count" in str(drop)
        assert dropped_plans(secrets) == []
        assert len(references(secrets)) < expected
        with closing(sqlite3.connect(archive_path(secrets))) as connection:
            assert connection.execute("SELECT count(*) FROM dropped").fetchone() == (0,)

    def test_names_are_hashed_with_the_key_of_the_archive(
        self, secrets: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.db"
        other.write_bytes(secrets.read_bytes())
        names = set[str]()
        for path in (secrets, other):
            drop_archived(path, digest=compact(path, 2), now=NOON)
            with closing(sqlite3.connect(archive_path(path))) as connection:
                stored = connection.execute("SELECT facts FROM dropped").fetchall()
            names |= {json.loads(facts)[c.MEMORY_ID] for (facts,) in stored}
        assert len(names) == 14

    def test_failed_drop_changes_nothing(
        self, secrets: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest = compact(secrets, 2)
        monkeypatch.setattr(OpenArchive, "erase", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drop_archived(secrets, digest=digest, now=NOON)
        assert dropped_plans(secrets) == []
        assert restore(digest, store=secrets, now=NOON).memories == 7
        monkeypatch.setattr(OpenArchive, "dropped", lambda archive: 2 * archive.entries())
        with pytest.raises(ArchiveError, match="names several plans"):
            plan_erasure(secrets, digest=digest[:1], facts_too=True)

    def test_drop_needs_one_selector_and_a_time_zone(self, store: Path) -> None:
        with pytest.raises(ValueError, match="either before=None or digest=None"):
            drop_archived(store)
        with pytest.raises(ValueError, match="has no time zone"):
            drop_archived(store, before=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the error


class TestDroppingByDate:
    TOMORROW = NOON + timedelta(1)

    def test_drop_before_works_without_the_store(self, secrets: Path) -> None:
        old = compact(secrets, 8)
        new = compact(secrets, 4, at=NOON + timedelta(10))
        assert drop_archived(secrets, before=NOON).entries == ()
        secrets.unlink()
        dropped = drop_archived(secrets, before=self.TOMORROW, facts_too=True)
        assert [entry.digest for entry in dropped.entries] == [old]
        assert [entry.digest for entry in archived_plans(secrets)] == [new]

    @pytest.mark.parametrize(
        ("moment", "reason"),
        [
            (datetime(1971, 1, 1, tzinfo=UTC), "before there was memlab"),
            (datetime(2026, 2, 3, tzinfo=UTC), r"were written \(2026-02-08 12:00 UTC\)"),
        ],
        ids=["long ago", "before its memories were written"],
    )
    def test_entry_with_an_implausible_date_is_not_dropped(
        self, secrets: Path, moment: datetime, reason: str
    ) -> None:
        digest = compact(secrets, 2, at=moment)
        drop = plan_erasure(secrets, before=self.TOMORROW)
        assert drop.entries == ()
        self.assert_not_dropped_by_date(secrets, digest, reason)

    def test_entry_dated_before_an_earlier_plan_is_not_dropped(self, secrets: Path) -> None:
        compact(secrets, 5, at=NOON)
        digest = compact(secrets, 2, at=NOON - timedelta(5))
        (entry,) = plan_erasure(secrets, before=self.TOMORROW).entries
        assert entry.memories == 4
        self.assert_not_dropped_by_date(secrets, digest, "before a plan that was applied earlier")

    def assert_not_dropped_by_date(self, store: Path, digest: str, reason: str) -> None:
        """Check that a drop by date skips the only plan for a reason; a drop by digest does not."""
        drop = plan_erasure(store, before=self.TOMORROW)
        (stated_reason,) = drop.passed_over
        assert re.search(reason, stated_reason)
        assert f"--drop {digest[:12]} drops it all the same" in str(drop)
        drop_archived(store, before=self.TOMORROW, now=NOON)
        assert [entry.digest for entry in archived_plans(store)] == [digest]
        assert drop_archived(store, digest=digest, now=NOON).memories > 0
