"""Signals belong to a row by id and by position, wherever memlab reads them.

A table of that name of somebody else's making is left alone.
"""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from archives import planned
from invariants import rows_of
from stores import item, row, run_sql, signals_of, write_rows, write_signals

import memlab
from memlab.compaction import apply, restore
from memlab.errors import StoreError
from memlab.lifecycle import LifecycleStore
from memlab.policies import KeepRecent, TimeToLive
from memlab.store import SqliteMemoryStore
from memlab.store.records import layout_of, records_at
from memlab.store.signals import SIGNAL_COLUMNS
from memlab.upkeep.health import Status, doctor

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize("by_sql", [False, True])
def test_frame_record_archive_and_lifecycle_agree_on_whose_signals_they_are(
    tmp_path: Path, by_sql: bool
) -> None:
    """A memory with an hour to live is deleted, and another of its name is written for good."""
    path = tmp_path / "memory.db"
    with LifecycleStore(path, clock=lambda: START) as lifecycle:
        lifecycle.put(item("m0"))
        lifecycle.put(item("m1", title="short-lived"), ttl=HOUR)
    if by_sql:  # a runtime that knows nothing of signals
        run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'm1'")
        write_rows(path, [row("m2")])
    with SqliteMemoryStore(path) as plain:
        if not by_sql:
            assert plain.compact_episodic(0) == 2
        plain.put(item("m1", title="for good"))
    assert memlab.plan(path, TimeToLive(), now=START + 2 * DAY).memories == ()
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


OTHERS = {
    "few columns": (
        "CREATE TABLE memory_signals (memory_id TEXT COLLATE NOCASE, importance REAL)",
        "INSERT INTO memory_signals VALUES ('e1', 0.25), ('e1', 0.5), ('E2', 1)",
    ),
    "no key": (
        f"CREATE TABLE memory_signals ({', '.join(SIGNAL_COLUMNS)})",
        "INSERT INTO memory_signals (memory_id, position) VALUES ('e1', 2), ('e1', 2)",
    ),
    "a view": (
        "CREATE TABLE scores (id TEXT, score REAL)",
        "INSERT INTO scores VALUES ('e1', 0.25), ('e9', 1)",
        "CREATE VIEW memory_signals AS SELECT id AS memory_id, score AS importance FROM scores",
    ),
}


@pytest.mark.parametrize("made", OTHERS)
def test_a_table_of_its_name_that_others_made_is_neither_read_nor_touched(
    store: Path, made: str
) -> None:
    run_sql(store, *OTHERS[made])
    rows, said = rows_of(store), signals_of(store)
    assert "importance" not in memlab.load(store)
    receipt = apply(planned(store))
    assert (doctor(store).status, signals_of(store)) == (Status.OK, said)
    assert restore(receipt) == 6
    assert (rows_of(store), signals_of(store)) == (rows, said)
    with pytest.raises(StoreError, match="another program made; nothing was changed"):
        LifecycleStore(store)
    assert (rows_of(store), signals_of(store)) == (rows, said)


def test_signals_come_back_in_the_place_of_what_is_left_of_others_and_rows_without_their_table(
    store: Path,
) -> None:
    write_signals(store, "e1", importance=0.25, graduated=1)
    run_sql(store, "ALTER TABLE memory_signals ADD COLUMN mood BLOB")
    run_sql(store, "UPDATE memory_signals SET mood = x'00ff'")
    said = signals_of(store)
    receipt = apply(planned(store))
    assert signals_of(store) == []
    run_sql(store, "INSERT INTO memory_signals (memory_id, position) VALUES ('e1', 99)")
    assert restore(receipt) == 6
    assert signals_of(store) == said
    rows, receipt = rows_of(store), apply(planned(store, 3))
    run_sql(store, "DROP TABLE memory_signals")
    assert restore(receipt) == 7
    assert rows_of(store) == rows
