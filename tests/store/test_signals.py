"""Signals belong to a row by id and by position, wherever memlab reads them."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from stores import row, run_sql, signals_of, write_rows, write_signals

import memlab
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import KeepRecent, TimeToLive
from memlab.store import SqliteMemoryStore
from memlab.store.records import layout_of, records_at

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def item(memory_id: str, text: str = "") -> MemoryItem:
    provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#1", created_at=START)
    return MemoryItem(memory_id, MemoryKind.EPISODIC, text, "", provenance)


def written_anew(path: Path, *, by_sql: bool) -> None:
    """A memory with an hour to live is deleted, and another of its name is written for good."""
    with LifecycleStore(path, clock=lambda: START) as lifecycle:
        lifecycle.put(item("m0"))
        lifecycle.put(item("m1", "short-lived"), ttl=HOUR)
    if by_sql:  # a runtime that knows nothing of signals
        run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'm1'")
        write_rows(path, [row("m2")])
    with SqliteMemoryStore(path) as plain:
        if not by_sql:
            assert plain.compact_episodic(0) == 2
        plain.put(item("m1", "for good"))


@pytest.mark.parametrize("by_sql", [False, True])
def test_a_memory_written_anew_does_not_inherit_the_expiry_of_one_that_was_deleted(
    tmp_path: Path, by_sql: bool
) -> None:
    path = tmp_path / "memory.db"
    written_anew(path, by_sql=by_sql)
    made = memlab.plan(path, TimeToLive(), now=START + 2 * DAY)
    assert made.memories == ()


@pytest.mark.parametrize("by_sql", [False, True])
def test_frame_record_archive_and_lifecycle_agree_on_whose_signals_they_are(
    tmp_path: Path, by_sql: bool
) -> None:
    path = tmp_path / "memory.db"
    written_anew(path, by_sql=by_sql)
    frame = memlab.load(path).set_index("memory_id")
    assert pd.isna(frame["expires_at"]["m1"])
    with closing(sqlite3.connect(path)) as connection:
        at = int(frame["position"]["m1"])
        ((_, record),) = records_at(connection, layout_of(connection), [at])
    assert "memory_signals" not in json.loads(record)
    with LifecycleStore(path, clock=lambda: START + 2 * DAY) as lifecycle:
        assert lifecycle.get("m1") is not None
        assert lifecycle.touch(["m1"], now=START) == 0
    before = {line for line in signals_of(path) if line[0] == "m1"}
    memlab.apply(memlab.plan(path, KeepRecent(0), now=START))
    assert {line for line in signals_of(path) if line[0] == "m1"} == before


def test_compacting_takes_the_signals_of_what_it_deletes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with LifecycleStore(path, clock=lambda: START) as lifecycle:
        for number in range(4):
            lifecycle.put(item(f"m{number}"))
        assert lifecycle.compact_episodic(1) == 3
    assert [line[0] for line in signals_of(path)] == ["m3"]


def test_compacting_leaves_a_side_table_of_another_make_alone(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), row("m2")])
    write_signals(path, "m1", importance=0.5)
    before = signals_of(path)
    with SqliteMemoryStore(path) as store:
        assert store.compact_episodic(1) == 1
    assert signals_of(path) == before


def test_signals_without_positions_belong_by_id_alone(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), row("m2")])
    write_signals(path, "m2", importance=0.5)
    assert memlab.load(path)["importance"].tolist()[1] == 0.5


def test_of_two_rows_that_say_something_of_one_memory_the_last_stands(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1")])
    run_sql(
        path,
        "CREATE TABLE memory_signals (memory_id TEXT, importance REAL)",
        "INSERT INTO memory_signals VALUES ('m1', 0.25), ('m1', 0.5)",
    )
    assert memlab.load(path)["importance"].tolist() == [0.5]
