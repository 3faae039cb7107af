"""Dropping: words are erased, facts are kept, and references to what is gone count on."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from stores import row, write_rows

import memlab
from memlab import columns as c
from memlab.compaction import archived_plans, drop_archived, dropped_plans, restore, what_drops
from memlab.errors import ArchiveError
from memlab.evidence.past import load_past
from memlab.frame.loading import load
from memlab.policies import KeepRecent
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import Entry, Key
from memlab.store.archive.location import archive_path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORDS = ("swordfish", "stoat", "heron", "issue:#4711")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten episodes that refer to earlier ones, in words that must not be left behind."""
    rows = [
        row(
            f"stoat-{n}",
            "episodic",
            "heron",
            title=f"swordfish {n}",
            source_task_ref=f"issue:#4711{n}",
            evidence_refs_json=json.dumps([f"issue:#4711{n - 3}", f"stoat-{n - 2}"][: n % 3]),
            superseded_by="stoat-9" if n == 2 else None,
            created_at=f"2026-02-{n + 1:02}T12:00:00+00:00",
        )
        for n in range(10)
    ]
    return write_rows(tmp_path / "memory.db", rows)


def compact(store: Path, keep: int, *, at: datetime = NOON) -> str:
    return memlab.apply(memlab.plan(store, KeepRecent(keep), now=at), now=at).digest


def references(store: Path) -> pd.DataFrame:
    found = memlab.find_references(load_past(store))
    return found.drop(columns=c.TARGET_ID)


def test_words_are_erased_and_facts_are_kept(store: Path) -> None:
    before = load_past(store)
    digest = compact(store, 2)
    drop_archived(store, digest=digest, now=NOON)
    left = archive_path(store).read_bytes()
    assert not [word for word in WORDS if word.encode() in left]
    past = load_past(store)
    same = [c.POSITION, c.KIND, c.TOKENS, c.CHARS, c.CREATED_AT, c.LOAD_BEARING]
    pd.testing.assert_frame_equal(past[same], before[same])
    assert past[c.DELETED_AT].isna().tolist() == [n in (2, 8, 9) for n in range(10)]
    assert set(past[c.TITLE][:2]) == {""}


def test_references_to_dropped_memories_count_as_before(store: Path) -> None:
    expected = references(store)
    assert len(expected) > 5
    first = compact(store, 5)
    second = compact(store, 2)
    drop_archived(store, digest=first, now=NOON)
    pd.testing.assert_frame_equal(references(store), expected)
    drop_archived(store, digest=second, now=NOON)
    pd.testing.assert_frame_equal(references(store), expected)


def test_a_log_finds_dropped_memories_by_the_names_it_has(store: Path) -> None:
    log = pd.DataFrame(
        {c.MEMORY_ID: ["stoat-1"], c.AT: pd.to_datetime(["2026-02-20T00:00:00Z"]).as_unit("us")}
    )
    drop_archived(store, digest=compact(store, 2), now=NOON)
    found = memlab.find_references(load_past(store, log=log), log, only_log=True)
    assert found[c.TARGET_POSITION].tolist() == [2]
    assert memlab.find_references(load_past(store), log, only_log=True).empty


def test_what_was_restored_and_dropped_is_there_once(store: Path) -> None:
    before = load(store)
    digest = compact(store, 2)
    restore(digest, store=store, now=NOON)
    found = drop_archived(store, digest=digest, now=NOON)
    assert (found.memories, found.never_restored) == (7, 0)
    past = load_past(store)
    assert past[c.DELETED_AT].isna().all()
    pd.testing.assert_frame_equal(past[before.columns], before)


def test_a_dropped_deletion_is_listed_and_says_why_it_is_not_restored(store: Path) -> None:
    digest = compact(store, 2)
    drop_archived(store, digest=digest, now=NOON)
    assert archived_plans(store) == []
    assert [(each.digest, each.memories) for each in dropped_plans(store)] == [(digest, 7)]
    with pytest.raises(ArchiveError, match=r"dropped from .* on 2026-03-01 12:00 UTC: its words"):
        restore(digest[:12], store=store)


def test_looking_drops_nothing_and_says_how_many_were_never_restored(store: Path) -> None:
    digest = compact(store, 2)
    restore(digest, store=store, ids=["stoat-7"], now=NOON)
    before = archive_path(store).read_bytes()
    found = what_drops(store, digest=digest)
    assert (found.memories, found.never_restored) == (7, 6)
    assert "never restored  6" in str(found)
    assert archive_path(store).read_bytes() == before


def test_facts_too_leaves_nothing_and_says_what_it_costs(store: Path) -> None:
    expected = len(references(store))
    digest = compact(store, 2)
    found = what_drops(store, digest=digest, facts_too=True)
    assert found.references > 0
    assert f"{found.references} references to them count no more" in str(found)
    assert drop_archived(store, digest=digest, facts_too=True, now=NOON) == found
    assert dropped_plans(store) == []
    assert load_past(store)[c.DELETED_AT].isna().all()
    assert len(references(store)) < expected


def lost_by(store: Path, *steps: Callable[[], object]) -> list[int]:
    """Do each step; return how many references are to what it deleted."""
    targets = memlab.find_references(load_past(store))[c.TARGET_POSITION]
    there = [set(load(store)[c.POSITION])]
    for step in steps:
        step()
        there.append(set(load(store)[c.POSITION]))
    return [int(targets.isin(before - after).sum()) for before, after in pairwise(there)]


def test_each_deletion_of_one_moment_loses_its_own_references(store: Path) -> None:
    lost = lost_by(store, *(partial(compact, store, keep) for keep in (8, 4, 1)))
    entries = archived_plans(store)
    assert {entry.finished_at for entry in entries} == {NOON}
    found = [what_drops(store, digest=each.digest, facts_too=True) for each in entries]
    assert [each.references for each in found] == lost
    assert len(set(lost)) > 1
    digest = entries[1].digest
    drop_archived(store, digest=digest, now=NOON)
    assert drop_archived(store, digest=digest, facts_too=True, now=NOON).references == lost[1]


def test_each_of_a_runtimes_deletions_loses_its_own_references(store: Path) -> None:
    with memlab.SqliteMemoryStore(store, archive=True) as opened:
        lost = lost_by(store, *(partial(opened.compact_episodic, keep) for keep in (8, 4, 1)))
    entries = archived_plans(store)
    found = [what_drops(store, digest=each.digest, facts_too=True) for each in entries]
    assert [each.references for each in found] == lost
    assert len(set(lost)) > 1


def test_facts_of_an_earlier_drop_can_go_too(store: Path) -> None:
    digest = compact(store, 2)
    drop_archived(store, digest=digest, now=NOON)
    found = drop_archived(store, digest=digest[:12], facts_too=True, now=NOON)
    assert (found.memories, [each.memories for each in found.facts]) == (0, [7])
    assert dropped_plans(store) == []
    with closing(sqlite3.connect(archive_path(store))) as connection:
        assert connection.execute("SELECT count(*) FROM dropped").fetchone() == (0,)


class TestByDate:
    TOMORROW = NOON + timedelta(1)

    def test_what_a_wrong_clock_archived_is_passed_over_and_named(self, store: Path) -> None:
        digest = compact(store, 2, at=datetime(1971, 1, 1, tzinfo=UTC))
        found = drop_archived(store, before=self.TOMORROW, now=NOON)
        assert found.entries == ()
        assert f"--drop {digest[:12]} drops it all the same" in str(found)
        assert restore(digest, store=store) == 7

    def test_what_says_it_went_before_it_was_written_is_passed_over(self, store: Path) -> None:
        compact(store, 2, at=datetime(2026, 2, 3, tzinfo=UTC))
        found = what_drops(store, before=self.TOMORROW)
        assert found.entries == ()
        assert "before its memories were written (2026-02-08 12:00 UTC)" in str(found)

    def test_what_says_it_went_before_an_earlier_plan_is_passed_over(self, store: Path) -> None:
        compact(store, 5, at=NOON)
        compact(store, 2, at=NOON - timedelta(5))
        found = what_drops(store, before=self.TOMORROW)
        assert [entry.memories for entry in found.entries] == [4]
        assert "before a plan that was applied earlier" in str(found)

    def test_entries_are_looked_up_once_however_many_there_are(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for keep in (6, 5, 4, 3, 2):
            compact(store, keep)
        looked: list[int] = []
        entries = Archive.entries

        def counted(archive: Archive) -> list[Entry]:
            looked.append(1)
            return entries(archive)

        monkeypatch.setattr(Archive, "entries", counted)
        assert len(what_drops(store, before=self.TOMORROW).entries) == 5
        assert len(looked) == 1

    def test_memories_of_a_deletion_that_its_date_rules_out_are_not_read(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compact(store, 2, at=datetime(1971, 1, 1, tzinfo=UTC))
        monkeypatch.setattr(Archive, "records", None)
        assert len(what_drops(store, before=self.TOMORROW).passed_over) == 1

    def test_what_goes_is_chosen_once_with_its_facts_too(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digests = {compact(store, keep) for keep in (5, 2)}
        expected = what_drops(store, before=self.TOMORROW, facts_too=True)
        read: list[str] = []
        records = Archive.records

        def noted(archive: Archive, entry: Entry) -> Iterator[tuple[Key, bytes]]:
            read.append(entry.digest)
            return records(archive, entry)

        monkeypatch.setattr(Archive, "records", noted)
        found = drop_archived(store, before=self.TOMORROW, facts_too=True, now=NOON)
        assert found == expected
        assert {entry.digest for entry in found.entries} == digests
        assert len(read) == 2 * len(digests)  # for the references to them, and for their times

    def test_a_digest_drops_it_all_the_same(self, store: Path) -> None:
        digest = compact(store, 2, at=datetime(1971, 1, 1, tzinfo=UTC))
        assert drop_archived(store, digest=digest, now=NOON).memories == 7


def test_names_are_hashed_with_a_key_of_the_archive(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(store.read_bytes())
    facts = []
    for path in (store, other):
        drop_archived(path, digest=compact(path, 2), now=NOON)
        with closing(sqlite3.connect(archive_path(path))) as connection:
            found = connection.execute("SELECT facts FROM dropped ORDER BY rowid").fetchall()
        facts.append([json.loads(each)[c.MEMORY_ID] for (each,) in found])
    assert len(set(facts[0]) | set(facts[1])) == 14


def test_a_drop_that_fails_leaves_everything(store: Path) -> None:
    digest = compact(store, 2)

    def stopped(archive: Archive, digest: str) -> None:
        raise ArchiveError(f"stopped at {digest}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "erase", stopped)
        with pytest.raises(ArchiveError, match="stopped"):
            drop_archived(store, digest=digest, now=NOON)
    assert dropped_plans(store) == []
    assert restore(digest, store=store, now=NOON) == 7
