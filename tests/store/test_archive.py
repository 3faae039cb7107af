"""The archive file: its contents in SQLite, damage, and foreign files."""

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from memlab.compaction import drop_archived, finish, restore
from memlab.compaction.archive_views import archived_plans, last_applied
from memlab.compaction.wire import as_data
from memlab.errors import (
    ArchiveError,
    DamagedArchiveWarning,
    UnsafeDeletionError,
)
from memlab.evidence.past import load_past
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from memlab.store.archive import opening
from memlab.store.archive.schema import moment_text
from memlab.store.database import connect_reading
from memlab.testing.forging import SCHEMA_CHANGES
from memlab.upkeep.health import Status
from tests.support.archives import NOON, check, compact_at_runtime, compacted
from tests.support.invariants import archive_of, rows_of
from tests.support.programs import run_program
from tests.support.shell import run, typed
from tests.support.stores import row, run_sql, write_rows, write_signals


def test_sqlite_shell_shows_archived_memories(store: Path) -> None:
    write_signals(store, "e1", importance=0.25, namespace="billing")
    receipt = compacted(store, 4)
    with closing(sqlite3.connect(archive_of(store))) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM archived_memories")]
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        ((policy,),) = connection.execute("SELECT policy FROM applies").fetchall()
    assert version == 3
    assert json.loads(policy) == as_data(KeepRecent(4))
    assert [row["memory_id"] for row in rows] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert json.loads(rows[0].pop("record"))["memory_id"] == "e1"
    (signals,) = json.loads(rows[0].pop("memory_signals"))
    assert signals == {"memory_id": "e1", "position": 2, "importance": 0.25, "namespace": "billing"}
    assert rows[0] == {
        **row("e1", "episodic", "merged"),
        **dict.fromkeys(("source_event_id", "source_sequence", "superseded_by", "restored_at")),
        "digest": receipt.digest,
        **dict.fromkeys(("archived_at", "finished_at"), moment_text(NOON)),
        "reason": "beyond-newest",
        "key": 2,
    }
    assert {path.name for path in store.parent.iterdir()} == {store.name, archive_of(store).name}


def test_locked_archive_is_reported(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = compacted(store, 4).digest
    monkeypatch.setattr(opening, "_LOCK_TIMEOUT", 0.05)
    monkeypatch.setitem(connect_reading.__kwdefaults__, "busy_timeout", 0.05)
    with closing(sqlite3.connect(archive_of(store), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ArchiveError, match="locked by another process"):
            drop_archived(store, digest=digest)


def test_unreadable_deletion_is_named_and_blocks_new_ones(store: Path) -> None:
    compacted(store, 4)
    compacted(store, 2, at=NOON + timedelta(1))
    run_sql(archive_of(store), "UPDATE applies SET archived_at = 'yesterday' WHERE apply = 1")
    message = r"is damaged: deletion 1 \('yesterday' is not a timestamp\)"
    with pytest.warns(DamagedArchiveWarning, match=message):
        assert [entry.memories for entry in archived_plans(store)] == [2]
    before = rows_of(store)
    with pytest.raises(ArchiveError, match=f"{message}; nothing was changed: restore a backup"):
        compacted(store, 1)
    assert rows_of(store) == before


def test_empty_archive_counts_as_none(store: Path) -> None:
    with closing(sqlite3.connect(archive_of(store), isolation_level=None)) as connection:
        connection.execute("VACUUM")  # one empty page
    assert archive_of(store).stat().st_size
    with pytest.raises(ArchiveError, match="there is no archive"):
        archived_plans(store)
    archive_check = check(store)
    assert archive_check.status == Status.OK
    assert archive_check.summary == "empty: memlab has deleted nothing"
    compacted(store, 4)
    assert [entry.memories for entry in archived_plans(store)] == [6]


def compact_and_damage_copy(store: Path, change: str) -> str:
    """Compact a store, damage the archived copy of e5, and return its name in messages."""
    digest = compacted(store, 4).digest
    run_sql(archive_of(store), f"UPDATE archived SET {change} WHERE key = 5")
    return f"key 5 of plan {digest[:12]}"


WRONG = {
    "a letter": "fields = replace(fields, 'title', 'titel')",
    "no JSON": "fields = replace(fields, ':', ' ')",
    "no UTF-8": "fields = CAST(replace(CAST(fields AS BLOB), x'69', x'ff') AS TEXT)",
    "a blob": "fields = CAST(fields AS BLOB)",
    # JSON that is nested 5000 deep
    "brackets": "fields = replace(hex(zeroblob(5000)), '00', '[')",
    "another's": "fields = (SELECT fields FROM archived WHERE key = 4)",
    "no fingerprint": "fingerprint = x'00'",
    "no time": "restored_at = 'soon'",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_damaged_copy_is_named_and_others_can_be_restored(store: Path, wrong: str) -> None:
    before = rows_of(store)
    name = compact_and_damage_copy(store, WRONG[wrong])
    (entry,) = archived_plans(store)
    with pytest.warns(DamagedArchiveWarning, match=f"is damaged: {name} .* were left out"):
        assert len(load_past(store)) == len(before) - 1
    archive_check = check(store)
    assert archive_check.status is Status.WARN
    assert name in archive_check.summary
    with pytest.raises(ArchiveError, match=f"{name} .*; nothing was restored: restore the others"):
        restore(entry.digest, store=store)
    assert len(rows_of(store)) == 5
    assert restore(entry.digest, store=store, ids=["e1", "e3"]).memories == 2
    assert compacted(store, 2).deleted == 4  # the damage does not block another plan


@pytest.mark.parametrize(
    "arguments",
    [
        "size {}",
        "report {} -o {out}/report.html",
        "archive {} --rows",
        "archive {} --export {out}/memories.jsonl",
        "archive {} --drop-before 2030-01-01",
    ],
)
def test_commands_name_the_damaged_copy_and_continue(store: Path, arguments: str) -> None:
    name = compact_and_damage_copy(store, WRONG["no JSON"])
    result = run(*typed(arguments, store, store.parent))
    assert result.exit_code == 0, result.output
    assert result.stderr.count(f"is damaged: {name} (its record is not what was archived)") == 1


def test_highly_compressible_plan_can_be_read(tmp_path: Path) -> None:
    store = write_rows(
        tmp_path / "memory.db", [row("x" * 600_000 + str(number)) for number in range(9)]
    )
    receipt = compacted(store, 1)
    archived_plan = last_applied(store)
    assert archived_plan is not None
    assert archived_plan[0].digest == receipt.digest
    assert len(archived_plan[0].memories) == 8


def test_swapped_plan_is_not_finished(store: Path) -> None:
    receipt = compacted(store, 4)
    compacted(store, 2, at=NOON + timedelta(1))
    run_sql(
        archive_of(store),
        "UPDATE applies SET plan_json_zlib = (SELECT plan_json_zlib FROM applies WHERE apply = 2)",
    )
    with pytest.raises(ArchiveError, match="cannot be read: the plan was edited"):
        finish(store, receipt.digest)


# The last change is to `user_version`, which only shows that a newer memlab wrote the archive.
@pytest.mark.parametrize("change", SCHEMA_CHANGES[:-1])
def test_archive_with_triggers_or_views_is_rejected(store: Path, change: str) -> None:
    receipt = compacted(store, 4)
    run_sql(archive_of(store), change)
    before = {path: path.read_bytes() for path in store.parent.iterdir()}
    for use in (lambda: load_past(store), lambda: restore(receipt), lambda: compacted(store, 1)):
        with pytest.raises(
            ArchiveError, match="not an archive that memlab made; nothing in it is lost"
        ):
            use()
    assert {path: path.read_bytes() for path in store.parent.iterdir()} == before


# Stores whose runtime archives its own deletions


def test_runtime_deletions_can_be_restored(store: Path) -> None:
    before = rows_of(store)
    assert compact_at_runtime(store, 10) == 0
    assert not archive_of(store).exists()
    with SqliteMemoryStore(store, archive=True) as opened:
        assert opened.compact_episodic(2) == 8
        compaction = opened.last_compaction
    assert len(rows_of(store)) == 3
    (entry,) = archived_plans(store)
    assert compaction is not None
    assert compaction.undo == f"memlab restore {store} {entry.digest[:12]}"
    assert check(store).status is Status.OK
    assert entry.has_plan is False
    assert last_applied(store) is None
    assert restore(entry.digest, store=store).memories == 8
    assert rows_of(store) == before
    with SqliteMemoryStore(store) as opened:
        deleted = opened.compact_episodic(2)
        assert type(deleted) is int
        assert deleted == 8
        assert opened.last_compaction is None
    with pytest.raises(UnsafeDeletionError, match="name a file"):
        SqliteMemoryStore(":memory:", archive=True)


KILLED_IN_FUNCTION = """
import os, sys
from memlab.store import sqlite_store
setattr(sqlite_store, sys.argv[2], lambda *_, **__: os._exit(9))
with sqlite_store.SqliteMemoryStore(sys.argv[1], archive=True) as store:
    store.compact_episodic(2)
"""
"""Compacts the store argv[1], and is killed when it calls the function argv[2]."""


@pytest.mark.long
@pytest.mark.parametrize(("name", "remaining"), [("delete_rows", 11), ("note_deleted", 3)])
def test_killed_runtime_loses_no_row(store: Path, name: str, remaining: int) -> None:
    before = rows_of(store)
    assert run_program(KILLED_IN_FUNCTION, store, name).returncode == 9
    assert len(rows_of(store)) == remaining
    assert [entry.finished_at for entry in archived_plans(store)] == [None]
    compact_at_runtime(store, 1)
    ended = archived_plans(store)
    assert all(entry.finished_at for entry in ended)
    deleted_by_killed = 8
    deleted_by_next = 1
    restored = sum(restore(entry.digest, store=store).memories for entry in ended)
    assert restored == deleted_by_killed + deleted_by_next
    assert rows_of(store) == before
