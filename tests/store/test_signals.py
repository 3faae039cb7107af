"""Signals belong to a row by id and by position, wherever memlab reads them.

A table of somebody else's making is put back as it was, or that is refused in words.
"""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from archives import compact_at_runtime, planned
from invariants import rows_of
from stores import item, row, run_sql, signals_of, write_rows

import memlab
from memlab.compaction import apply, restore
from memlab.errors import ArchiveError
from memlab.lifecycle import LifecycleStore
from memlab.policies import KeepRecent, TimeToLive
from memlab.store import SqliteMemoryStore
from memlab.store.records import layout_of, records_at
from memlab.upkeep.health import Status, doctor

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def written_anew(path: Path, *, by_sql: bool) -> None:
    """A memory with an hour to live is deleted, and another of its name is written for good."""
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


@pytest.mark.parametrize("by_sql", [False, True])
def test_frame_record_archive_and_lifecycle_agree_on_whose_signals_they_are(
    tmp_path: Path, by_sql: bool
) -> None:
    path = tmp_path / "memory.db"
    written_anew(path, by_sql=by_sql)
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


def table(columns: str, values: str, *, into: str = "", options: str = "") -> tuple[str, str]:
    return (
        f"CREATE TABLE memory_signals ({columns}) {options}",
        f"INSERT INTO memory_signals {into} VALUES {values}",
    )


MADE = {
    "two rows an id": table(
        "memory_id TEXT, importance REAL", "('e1', 0.25), ('e1', 0.5), ('e1', 0.5), ('e9', 1)"
    ),
    "case does not count": table(
        "memory_id TEXT COLLATE NOCASE PRIMARY KEY, importance REAL",
        "('e1', 0.25), ('E2', 0.5), ('e9', 1)",
    ),
    "a computed column": table(
        "memory_id TEXT PRIMARY KEY, importance REAL, twice REAL AS (importance * 2) STORED",
        "('e1', 0.25), ('e9', 1)",
        into="(memory_id, importance)",
    ),
    "a computed position": table(
        "memory_id TEXT PRIMARY KEY, importance REAL, position INTEGER AS (1) VIRTUAL",
        "('e1', 0.25), ('e9', 1)",
        into="(memory_id, importance)",
    ),
    "a default beside NULL": table(
        "memory_id TEXT PRIMARY KEY, importance REAL DEFAULT 7",
        "('e1', NULL), ('e2', 0.5), ('e9', NULL)",
    ),
    "no rowids": table(
        "memory_id TEXT, turn INTEGER, importance REAL, PRIMARY KEY (memory_id, turn)",
        "('e1', 1, 0.25), ('e1', 2, 0.5), ('e9', 1, 1)",
        options="WITHOUT ROWID",
    ),
    "ids that are no text": table(
        "memory_id, importance REAL", "(x'6531', 0.25), (1, 0.5), (NULL, 0.5), ('e1', 1)"
    ),
    "a view": (
        "CREATE TABLE scores (id TEXT, score REAL)",
        "INSERT INTO scores VALUES ('e1', 0.25), ('e9', 1)",
        "CREATE VIEW memory_signals AS SELECT id AS memory_id, score AS importance FROM scores",
    ),
}


def signals(store: Path) -> list[Any]:
    with closing(sqlite3.connect(store)) as connection:
        return sorted(map(repr, connection.execute("SELECT * FROM memory_signals")))


@pytest.mark.parametrize("made", MADE)
def test_a_table_of_anothers_goes_and_comes_back_whole_or_is_left_alone_by_a_runtime(
    store: Path, made: str
) -> None:
    run_sql(store, *MADE[made])
    rows, said = rows_of(store), signals(store)
    if made == "two rows an id":  # the last of them stands
        assert memlab.load(store)["importance"].tolist()[1] == 0.5
    receipt = apply(planned(store))
    assert doctor(store).status is Status.OK
    assert restore(receipt) == 6
    assert (rows_of(store), signals(store)) == (rows, said)
    gone = compact_at_runtime(store)
    assert gone.digest is not None
    assert signals(store) == said
    assert restore(gone.digest, store=store) == 6
    assert (rows_of(store), signals(store)) == (rows, said)


def test_what_is_said_of_another_memory_is_not_written_over(store: Path) -> None:
    run_sql(store, *MADE["case does not count"])
    receipt = apply(planned(store))
    write_rows(store, [row("E1")])
    run_sql(store, "INSERT INTO memory_signals VALUES ('E1', 9)")
    rows, said = rows_of(store), signals(store)
    with pytest.raises(ArchiveError, match=r"memory_signals .* nothing was restored"):
        restore(receipt)
    assert (rows_of(store), signals(store)) == (rows, said)
    assert restore(receipt, ids=["e2", "e3"]) == 2
