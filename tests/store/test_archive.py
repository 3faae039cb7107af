"""The file of an archive: as SQLite shows it, and when it is not what it should be."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from invariants import archive_of
from stores import episodes, row, run_sql, write_rows, write_signals

from memlab.compaction.applying import apply
from memlab.compaction.contents import archived_plans
from memlab.compaction.planning import plan
from memlab.compaction.receipts import Receipt
from memlab.compaction.wire import as_data
from memlab.diagnosis import Status
from memlab.doctor import diagnose
from memlab.errors import ArchiveError, UnfilledArchiveError
from memlab.policies import KeepRecent
from memlab.store.archive_file import open_archive
from memlab.store.archive_place import place_beside

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])


def compacted(store: Path, keep: int, *, days: int = 0) -> Receipt:
    moment = NOON + timedelta(days)
    return apply(plan(store, KeepRecent(keep), now=moment), now=moment)


class TestPlainSqlite:
    def test_the_sqlite_shell_shows_what_was_taken_out_when_and_why(self, store: Path) -> None:
        receipt = compacted(store, 4)
        with closing(sqlite3.connect(archive_of(store))) as connection:
            connection.row_factory = sqlite3.Row
            shown = [dict(each) for each in connection.execute("SELECT * FROM archived_memories")]
            assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
        assert [each["memory_id"] for each in shown] == ["e1", "e2", "e3", "e4", "e5", "e6"]
        assert json.loads(shown[0].pop("record"))["memory_id"] == "e1"
        assert shown[0] == {
            **row("e1", "episodic", "merged"),
            "source_event_id": None,
            "source_sequence": None,
            "superseded_by": None,
            "digest": receipt.digest,
            "archived_at": NOON.isoformat(),
            "finished_at": NOON.isoformat(),
            "restored_at": None,
            "reason": "beyond-newest",
            "key": 2,
            "memory_signals": None,
        }

    def test_the_policy_is_kept_as_data(self, store: Path) -> None:
        compacted(store, 4)
        with closing(sqlite3.connect(archive_of(store))) as connection:
            (policy,) = connection.execute("SELECT policy FROM applies").fetchone()
        assert json.loads(policy) == as_data(KeepRecent(4))

    def test_a_namespace_is_kept_on_what_is_archived(self, store: Path) -> None:
        write_signals(store, "e1", importance=0.25, namespace="billing")
        compacted(store, 4)
        with closing(sqlite3.connect(archive_of(store))) as connection:
            found = connection.execute(
                "SELECT record ->> '$.memory_signals[0].namespace', "
                "record ->> '$.memory_signals[0].importance' FROM archived_memories "
                "WHERE memory_id = 'e1'"
            ).fetchall()
        assert found == [("billing", 0.25)]

    def test_nothing_lies_beside_it(self, store: Path) -> None:
        compacted(store, 4)
        assert sorted(path.name for path in store.parent.iterdir()) == [
            "memory.db",
            "memory.db.archive.db",
        ]


def test_an_archive_that_another_process_has_locked_is_said_in_words(store: Path) -> None:
    compacted(store, 4)
    with closing(sqlite3.connect(archive_of(store), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(ArchiveError, match="locked by another process"),
            open_archive(place_beside(store), busy_timeout=0.05),
        ):
            pytest.fail("it was opened")


def test_an_archive_whose_tables_were_changed_by_hand_is_refused(store: Path) -> None:
    compacted(store, 4)
    run_sql(archive_of(store), "UPDATE applies SET archived_at = 'yesterday'")
    with pytest.raises(ArchiveError, match="changed by hand"):
        archived_plans(store)


def test_an_archive_that_was_begun_and_never_filled_is_said_to_be_that(store: Path) -> None:
    with closing(sqlite3.connect(archive_of(store), isolation_level=None)) as connection:
        connection.execute("VACUUM")  # a page, and nothing in it
    assert archive_of(store).stat().st_size
    with pytest.raises(UnfilledArchiveError, match=r"begun and never filled.*apply it again"):
        archived_plans(store)
    (found,) = [check for check in diagnose(store).checks if check.name == "archive"]
    assert (found.status, found.summary) == (Status.OK, "empty: no plan has taken anything out")
    compacted(store, 4)
    assert [entry.memories for entry in archived_plans(store)] == [6]


def test_an_archive_of_a_store_that_is_not_there_sends_to_the_path(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"no store .* and no archive .*; check the path"):
        archived_plans(tmp_path / "memory.db")
